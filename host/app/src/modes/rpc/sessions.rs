//! Commands about sessions: which one is current, its tree, and the files that there are.

use std::path::Path;

use serde_json::{Value, json};
use wharf_agent::NewSession;
use wharf_agent::hooks::TreeOptions;
use wharf_protocol::command::{
    ExportHtmlParams, ForkParams, NavigateTreeParams, NewSessionParams, SessionPathParams,
    SwitchSessionParams,
};
use wharf_protocol::{LongResponse, Response, RpcCommand};
use wharf_session::Verbatim;

use super::{Rpc, session_diagnostic};
use crate::front::Wakeup;
use crate::stdout::json_line;
use crate::{export, report};

/// Entries of a tree that is written at once, some milliseconds; larger ones are written
/// while the loop goes on.
const QUICK_TREE: usize = 2000;

/// Bytes of a response besides its data, roughly.
pub(super) const LONG_RESPONSE: usize = 256;

impl Rpc {
    pub(super) fn new_session(&mut self, id: Option<Value>, params: NewSessionParams) {
        let agent = self.agent.clone();
        let options = NewSession { parent_session: params.parent_session };
        self.switch(async move {
            let cancelled = agent.new_session(options).await;
            Response::with_data(id, "new_session", &json!({ "cancelled": cancelled }))
        });
    }

    pub(super) fn switch_session(&mut self, id: Option<Value>, params: SwitchSessionParams) {
        let agent = self.agent.clone();
        self.switch(async move {
            let path = Path::new(&params.session_path);
            let switched = agent.switch_session(path, params.fork == Some(true)).await;
            answer(
                id,
                "switch_session",
                switched.map(|cancelled| json!({ "cancelled": cancelled })),
            )
        });
    }

    pub(super) fn fork(&mut self, id: Option<Value>, params: ForkParams) {
        let agent = self.agent.clone();
        self.switch(async move {
            let forked = agent.fork(&params.entry_id).await;
            answer(id, "fork", forked.map(|forked| json!(forked)))
        });
    }

    pub(super) fn import_session(&mut self, id: Option<Value>, params: SessionPathParams) {
        let agent = self.agent.clone();
        self.switch(async move {
            let imported = agent.import_session(Path::new(&params.session_path)).await;
            let data = imported.map(|file| match file {
                Some(file) => json!({ "cancelled": false, "sessionFile": file }),
                None => json!({ "cancelled": true }),
            });
            answer(id, "import_session", data)
        });
    }

    pub(super) fn navigate_tree(&mut self, id: Option<Value>, params: NavigateTreeParams) {
        let name = "navigate_tree";
        let options = TreeOptions {
            summarize: params.summarize == Some(true),
            custom_instructions: params.custom_instructions,
            replace_instructions: params.replace_instructions == Some(true),
            label: params.label,
        };
        let summarize = options.summarize;
        // Begun here: what is written after it belongs to the branch that it leads to. For a
        // summary, which may take minutes, only what is said to the model waits.
        match self.agent.navigate_tree(&params.target_id, options) {
            Ok(moved) if summarize => self.later(async move { answer(id, name, moved.await) }),
            Ok(moved) => self.switch(async move { answer(id, name, moved.await) }),
            Err(error) => self.respond(&Response::failure(id, name, error.to_string())),
        }
    }

    pub(super) fn get_tree(&mut self, id: Option<Value>) {
        let name = "get_tree";
        let (session, own_id) = (self.agent.session(), id.clone());
        let is_quick = session.entry_count() <= QUICK_TREE;
        let line = move || {
            let tree = session.tree_json();
            let data = Verbatim(&tree);
            json_line(&LongResponse::new(own_id, name, &data), tree.len() + LONG_RESPONSE)
        };
        if is_quick {
            self.out.raw(line());
            return;
        }
        self.deferred += 1;
        let front = self.front.clone();
        tokio::spawn(async move {
            let line = tokio::task::spawn_blocking(line).await;
            front
                .wake(line.map_or_else(|_| Wakeup::Response(failed(id, name)), Wakeup::Line))
                .await;
        });
    }

    pub(super) fn list_sessions(&mut self, id: Option<Value>, command: &RpcCommand) {
        let (agent, front, name) = (self.agent.clone(), self.front.clone(), command.name());
        let all = matches!(command, RpcCommand::ListAllSessions(_));
        self.later(async move {
            let listed = match all {
                true => agent.list_all_sessions().await,
                false => agent.list_sessions().await,
            };
            match listed {
                Ok(listing) => {
                    for (path, problem) in listing.problems {
                        front.event(session_diagnostic(&path, problem));
                    }
                    Response::with_data(id, name, &json!({ "sessions": listing.sessions }))
                }
                Err(error) => answer::<(), _>(id, name, Err(error)),
            }
        });
    }

    pub(super) fn delete_session(&mut self, id: Option<Value>, params: SessionPathParams) {
        let agent = self.agent.clone();
        self.later(async move {
            let deleted = agent.delete_session(Path::new(&params.session_path)).await;
            let data = deleted.map(|method| json!({ "method": method.as_str() }));
            answer(id, "delete_session", data)
        });
    }

    pub(super) fn export_html(&mut self, id: Option<Value>, params: ExportHtmlParams) {
        let session = self.agent.session();
        let path = match params.output_path {
            Some(path) => self.agent.resolve(Path::new(&path)),
            None => self.agent.resolve(Path::new(&export::default_file_name(&session))),
        };
        self.blocking(id, "export_html", move |id| {
            let written = export::write_file(&session, &path);
            answer(id, "export_html", written.map(|()| json!({ "path": path })))
        });
    }

    /// Answers when `work`, which takes time and waits for nothing, is done.
    fn blocking(
        &mut self,
        id: Option<Value>,
        name: &'static str,
        work: impl FnOnce(Option<Value>) -> Response + Send + 'static,
    ) {
        let given = id.clone();
        let work = tokio::task::spawn_blocking(move || work(given));
        self.later(async move {
            work.await.unwrap_or_else(|_| {
                Response::failure(
                    id,
                    name,
                    format!("internal error: {name} failed; please report it"),
                )
            })
        });
    }
}

/// The answer to a command that panicked.
fn failed(id: Option<Value>, name: &'static str) -> Response {
    Response::failure(id, name, format!("internal error: {name} failed; please report it"))
}

pub(super) fn answer<T: serde::Serialize, E: Into<anyhow::Error>>(
    id: Option<Value>,
    name: &'static str,
    result: Result<T, E>,
) -> Response {
    match result {
        Ok(data) => Response::with_data(id, name, &data),
        Err(error) => Response::failure(id, name, report::with_causes(&error.into())),
    }
}
