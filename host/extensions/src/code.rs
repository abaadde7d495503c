//! The code of one extension, ready to be instantiated, and one instance of it
//! with its exports looked up.

use std::fmt;
use std::sync::Arc;

use wasmtime::component::{Component, ComponentExportIndex, InstancePre, TypedFunc};
use wasmtime::{AsContextMut, Store};

use crate::bindings::types::{
    BeforeAgentStartAnswer, BeforeAgentStartEvent, CompactDecision, Completion, ContextEvent,
    DiscoveredResources, ForkDecision, InputDecision, InputEvent, Notification,
    ProviderRequestEvent, Registration, ReplyEnd, ReplyFailure, ReplyRequest,
    ResourcesDiscoverEvent, SessionBeforeCompactEvent, SessionBeforeForkEvent,
    SessionBeforeSwitchEvent, SessionBeforeTreeEvent, SessionDirectoryEvent, SwitchDecision,
    ToolCallDecision, ToolCallEvent, ToolInvocation, ToolOutput, ToolResultEvent, ToolResultPatch,
    TreeDecision, UserBashDecision, UserBashEvent,
};
use crate::engine::Runtime;
use crate::state::State;
use crate::version::ApiVersion;

macro_rules! exports {
    ($($field:ident: $name:literal, $params:ty => $result:ty;)*) => {
        /// Where the functions of `handlers` are; those that a component lacks are
        /// "not handled".
        #[derive(Default)]
        struct Indices {
            $($field: Option<ComponentExportIndex>,)*
        }

        impl Indices {
            fn of(component: &Component, handlers: &ComponentExportIndex) -> Self {
                Self { $($field: component.get_export_index(Some(handlers), $name),)* }
            }
        }

        /// The functions of one instance.
        #[derive(Clone, Copy)]
        pub(crate) struct Exports {
            $(pub(crate) $field: Option<TypedFunc<$params, ($result,)>>,)*
        }

        impl Exports {
            fn of(
                instance: &wasmtime::component::Instance,
                store: &mut Store<State>,
                indices: &Indices,
            ) -> wasmtime::Result<Self> {
                Ok(Self {
                    $($field: match &indices.$field {
                        Some(index) => Some(
                            instance
                                .get_typed_func(store.as_context_mut(), index)
                                .map_err(|error| error.context(concat!("the export ", $name)))?,
                        ),
                        None => None,
                    },)*
                })
            }
        }
    };
}

exports! {
    register: "register", () => Registration;
    run_command: "run-command", (String, String) => Result<(), String>;
    complete_argument: "complete-argument", (String, String) => Vec<Completion>;
    execute_tool: "execute-tool", (ToolInvocation,) => Result<ToolOutput, String>;
    on_tool_call: "on-tool-call", (Arc<ToolCallEvent>,) => Result<ToolCallDecision, String>;
    on_tool_result: "on-tool-result", (Arc<ToolResultEvent>,) => Result<ToolResultPatch, String>;
    on_input: "on-input", (Arc<InputEvent>,) => Result<InputDecision, String>;
    on_before_agent_start: "on-before-agent-start",
        (Arc<BeforeAgentStartEvent>,) => Result<BeforeAgentStartAnswer, String>;
    on_session_before_switch: "on-session-before-switch",
        (Arc<SessionBeforeSwitchEvent>,) => Result<SwitchDecision, String>;
    on_session_before_fork: "on-session-before-fork",
        (Arc<SessionBeforeForkEvent>,) => Result<ForkDecision, String>;
    on_session_before_tree: "on-session-before-tree",
        (Arc<SessionBeforeTreeEvent>,) => Result<TreeDecision, String>;
    on_session_directory: "on-session-directory",
        (Arc<SessionDirectoryEvent>,) => Result<Option<String>, String>;
    on_session_before_compact: "on-session-before-compact",
        (Arc<SessionBeforeCompactEvent>,) => Result<CompactDecision, String>;
    on_context: "on-context", (Arc<ContextEvent>,) => Result<Option<String>, String>;
    on_before_provider_request: "on-before-provider-request",
        (Arc<ProviderRequestEvent>,) => Result<Option<String>, String>;
    on_resources_discover: "on-resources-discover",
        (Arc<ResourcesDiscoverEvent>,) => Result<DiscoveredResources, String>;
    on_user_bash: "on-user-bash", (Arc<UserBashEvent>,) => Result<UserBashDecision, String>;
    stream_reply: "stream-reply", (ReplyRequest,) => Result<ReplyEnd, ReplyFailure>;
    on_notification: "on-notification", (Arc<Notification>,) => Result<(), String>;
}

/// Compiled, checked and linked.
pub(crate) struct Code {
    pub(crate) built_for: ApiVersion,
    pre: InstancePre<State>,
    indices: Indices,
}

impl fmt::Debug for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Code")
    }
}

impl Code {
    /// Links `component`; `handlers` is the full name of the interface that it exports.
    /// What it imports beyond the world and WASI is there, and traps when called.
    pub(crate) fn link(
        runtime: &Runtime,
        component: &Component,
        handlers: &ComponentExportIndex,
        built_for: ApiVersion,
    ) -> wasmtime::Result<Self> {
        let indices = Indices::of(component, handlers);
        let pre = match runtime.linker.instantiate_pre(component) {
            Ok(pre) => pre,
            Err(_) => {
                let mut linker = runtime.linker.clone();
                linker.define_unknown_imports_as_traps(component)?;
                linker.instantiate_pre(component)?
            }
        };
        Ok(Self { built_for, pre, indices })
    }

    /// Runs the component's start code.
    pub(crate) async fn instantiate(&self, store: &mut Store<State>) -> wasmtime::Result<Exports> {
        let instance = self.pre.instantiate_async(&mut *store).await?;
        Exports::of(&instance, store, &self.indices)
    }
}
