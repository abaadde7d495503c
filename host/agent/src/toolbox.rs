//! The tools that there are, which of them the model sees, and which calls of them run.
//! What a call goes through is in `calls`.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::{Map, Value};
use tokio_util::sync::CancellationToken;
use wharf_provider::ToolDefinition;

use crate::agent::Agent;
use crate::host_api::HostApiError;
use crate::resources::Resources;
use crate::run::today;
use crate::tool::{Progress, Tool, ToolSpec};

/// A tool, and the built-in whose place it takes.
#[derive(Debug, Clone)]
pub(crate) struct OfferedTool {
    pub(crate) tool: Arc<dyn Tool>,
    pub(crate) built_in: Option<Arc<dyn Tool>>,
}

impl OfferedTool {
    pub(crate) fn spec(&self) -> &ToolSpec {
        self.tool.spec()
    }

    /// The paths that a call would touch. A tool that overrides a built-in may run it with
    /// the same arguments, so its paths are the built-in's.
    pub(crate) fn paths(&self, args: &Map<String, Value>, cwd: &Path) -> Vec<PathBuf> {
        self.built_in.as_ref().unwrap_or(&self.tool).paths(args, cwd)
    }
}

/// What the model is offered with one request.
#[derive(Debug)]
pub(crate) struct Offer {
    pub(crate) tools: Vec<OfferedTool>,
    pub(crate) definitions: Arc<[ToolDefinition]>,
    /// The system prompt that names the tools, before extensions change it.
    pub(crate) system_prompt: Arc<str>,
    pub(crate) resources: Arc<Resources>,
}

impl Offer {
    pub(crate) fn tool(&self, name: &str) -> Option<&OfferedTool> {
        self.tools.iter().find(|tool| tool.spec().name == name)
    }

    fn is_of(&self, tools: &[OfferedTool], resources: &Arc<Resources>) -> bool {
        Arc::ptr_eq(&self.resources, resources)
            && self.tools.len() == tools.len()
            && self.tools.iter().zip(tools).all(|(a, b)| Arc::ptr_eq(&a.tool, &b.tool))
    }
}

/// A call that runs.
#[derive(Debug)]
pub(crate) struct RunningCall {
    pub(crate) id: String,
    pub(crate) name: String,
    /// As they were approved.
    pub(crate) args: Map<String, Value>,
    /// The paths that handlers judged; none where nobody was asked.
    pub(crate) judged: Option<Vec<PathBuf>>,
    pub(crate) cancel: CancellationToken,
    pub(crate) progress: Progress,
    /// The one that its tool overrides.
    pub(crate) built_in: Option<Arc<dyn Tool>>,
}

/// Keeps a call among those that run, for as long as it lives.
#[derive(Debug)]
pub(crate) struct Running {
    agent: Agent,
    call: Arc<RunningCall>,
}

impl Running {
    pub(crate) fn begin(agent: &Agent, call: RunningCall) -> Self {
        let call = Arc::new(call);
        agent.state().running_calls.push(Arc::clone(&call));
        Self { agent: agent.clone(), call }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.agent.state().running_calls.retain(|other| !Arc::ptr_eq(other, &self.call));
    }
}

impl Agent {
    /// The built-in tools and those of extensions, active or not; an extension's tool that
    /// overrides a built-in stands in its place.
    pub(crate) fn all_tools(&self) -> Vec<OfferedTool> {
        let built_in = |tool| OfferedTool { tool, built_in: None };
        let mut tools: Vec<_> = self.builtin_tools().into_iter().map(built_in).collect();
        for tool in self.inner.hooks.tools() {
            match tools.iter_mut().find(|known| known.spec().name == tool.spec().name) {
                Some(known) => known.built_in = Some(std::mem::replace(&mut known.tool, tool)),
                None => tools.push(OfferedTool { tool, built_in: None }),
            }
        }
        tools
    }

    /// Those that the model sees.
    pub(crate) fn active_tools(&self) -> Vec<OfferedTool> {
        let mut tools = self.all_tools();
        if let Some(names) = &self.state().active_tools {
            tools.retain(|tool| names.contains(&tool.spec().name));
        }
        tools
    }

    /// From the next request on the model sees these tools, and no others.
    ///
    /// # Errors
    /// There is no tool of one of the names; nothing changes then.
    pub(crate) fn set_active_tools(&self, names: Vec<String>) -> Result<(), HostApiError> {
        let tools = self.all_tools();
        let known: HashSet<&str> = tools.iter().map(|tool| &*tool.spec().name).collect();
        if let Some(unknown) = names.iter().find(|name| !known.contains(name.as_str())) {
            let list: Vec<_> = tools.iter().map(|tool| &*tool.spec().name).collect();
            return Err(HostApiError::Invalid(format!(
                "names: there is no tool {unknown:?}; there are {}",
                list.join(", ")
            )));
        }
        self.state().active_tools = Some(names.into_iter().collect());
        self.forget_system_prompt();
        Ok(())
    }

    /// What the last run had is out of date; a run under way has its own, and renews it.
    pub(crate) fn forget_system_prompt(&self) {
        let mut state = self.state();
        if state.run.is_none() {
            state.system_prompt = "".into();
        }
    }

    /// What the model is offered now.
    pub(crate) fn offer(&self) -> Offer {
        self.offer_of(self.active_tools(), self.resources())
    }

    fn offer_of(&self, tools: Vec<OfferedTool>, resources: Arc<Resources>) -> Offer {
        let specs: Vec<_> = tools.iter().map(OfferedTool::spec).collect();
        let system_prompt = resources.system_prompt(&specs, &today(), &self.model_prompt());
        let definitions = specs
            .iter()
            .map(|spec| ToolDefinition {
                name: spec.name.clone(),
                description: spec.description.clone(),
                parameters: spec.parameters.clone(),
            })
            .collect();
        Offer { definitions, system_prompt: system_prompt.into(), tools, resources }
    }

    /// The offer as it is now, and whether it is another one; of one that is the same not a
    /// byte changes, which providers' prompt caches rely on.
    pub(crate) fn renewed(&self, offer: &Offer) -> Option<Offer> {
        let (tools, resources) = (self.active_tools(), self.resources());
        (!offer.is_of(&tools, &resources)).then(|| self.offer_of(tools, resources))
    }
}
