//! What each command does. The match has no wildcard: a new command in the
//! protocol's table is a compile error here.

use serde::Serialize;
use serde_json::{Value, json};
use wharf_agent::hooks::{CommandLookup, InputSource};
use wharf_agent::{Accepted, CompactError, InputKind, Kept, Submission, SubmitError};
use wharf_protocol::command::PromptImage;
use wharf_protocol::{ImageContent, LongResponse, Model, Response, RpcCommand};
use wharf_provider::ModelChoice;

use super::sessions::{LONG_RESPONSE, answer};
use super::{Rpc, listing};
use crate::front::Wakeup;
use crate::modes::slash_command;
use crate::stdout::json_line;

/// Why a command that had to wait will not be served.
const NOT_BEGUN: &str = "Aborted before it began.";

/// What an abort ends where it has not begun; a change of a setting is none of it.
fn is_work(command: &RpcCommand) -> bool {
    matches!(
        command,
        RpcCommand::Prompt(_)
            | RpcCommand::Steer(_)
            | RpcCommand::FollowUp(_)
            | RpcCommand::NewSession(_)
            | RpcCommand::SwitchSession(_)
            | RpcCommand::Fork(_)
            | RpcCommand::ImportSession(_)
            | RpcCommand::NavigateTree(_)
            | RpcCommand::Compact(_)
            | RpcCommand::Bash(_)
            | RpcCommand::Reload(_)
    )
}

impl Rpc {
    pub(super) fn command(&mut self, id: Option<Value>, command: RpcCommand) {
        if self.must_keep_order(&command) {
            if self.switching {
                self.waiting_for_switch.push_back((id, command));
                return;
            }
            if !self.waiting_for_commands.is_empty() {
                self.waiting_for_commands.push_back((id, command));
                return;
            }
        }
        let name = command.name();
        match command {
            RpcCommand::Prompt(_) | RpcCommand::Steer(_) | RpcCommand::FollowUp(_) => {
                self.message(id, command);
            }
            RpcCommand::Abort(_) => {
                for handled in self.dialogs.cancel_all() {
                    self.updates.event(&handled, &self.out);
                }
                self.refuse_waiting(NOT_BEGUN, is_work);
                self.agent.abort();
                if !self.agent.is_streaming() {
                    self.respond(&Response::success(id, name));
                    return;
                }
                // Answered when the run has left, so that what follows is not refused.
                let agent = self.agent.clone();
                self.later(async move {
                    agent.wait_idle().await;
                    Response::success(id, name)
                });
            }
            RpcCommand::NewSession(params) => self.new_session(id, params),
            RpcCommand::SwitchSession(params) => self.switch_session(id, params),
            RpcCommand::Fork(params) => self.fork(id, params),
            RpcCommand::ImportSession(params) => self.import_session(id, params),
            RpcCommand::NavigateTree(params) => self.navigate_tree(id, params),
            RpcCommand::GetForkMessages(_) => {
                let data = json!({ "messages": self.agent.fork_messages() });
                self.respond(&Response::with_data(id, name, &data));
            }
            RpcCommand::GetTree(_) => self.get_tree(id),
            RpcCommand::SetLabel(params) => {
                match self.agent.set_label(&params.entry_id, params.label.as_deref()) {
                    Ok(kept) => self.kept(kept, Response::success(id, name)),
                    Err(error) => self.respond(&Response::failure(id, name, error.to_string())),
                }
            }
            RpcCommand::ListSessions(_) | RpcCommand::ListAllSessions(_) => {
                self.list_sessions(id, &command);
            }
            RpcCommand::DeleteSession(params) => self.delete_session(id, params),
            RpcCommand::ExportHtml(params) => self.export_html(id, params),
            RpcCommand::GetDailyCost(_) => {
                let agent = self.agent.clone();
                self.later(async move {
                    let cost = agent.daily_cost().await;
                    answer(id, name, cost.map(|cost| json!({ "cost": cost })))
                });
            }
            RpcCommand::GetState(_) => {
                self.respond(&Response::with_data(id, name, &self.agent.snapshot()));
            }
            RpcCommand::GetMessages(_) => {
                let data = listing::Messages { messages: self.agent.messages() };
                let size = data.size() + LONG_RESPONSE;
                self.out.raw(json_line(&LongResponse::new(id, name, &data), size));
            }
            RpcCommand::GetCommands(_) => {
                // Names of extensions that still load are not known yet.
                let agent = self.agent.clone();
                self.later(async move {
                    agent.ready().await;
                    Response::with_data(id, name, &listing::commands(&agent))
                });
            }
            RpcCommand::GetPendingMessages(_) => {
                self.respond(&Response::with_data(id, name, &self.agent.pending_messages()));
            }
            RpcCommand::ClearPendingMessages(_) => {
                self.respond(&Response::with_data(id, name, &self.agent.clear_pending_messages()));
            }
            RpcCommand::SetSessionName(params) => match self.agent.set_session_name(&params.name) {
                Ok(announced) => self.kept(announced, Response::success(id, name)),
                Err(error) => self.respond(&Response::failure(id, name, error.to_string())),
            },
            RpcCommand::SetModel(params) => {
                match self.agent.set_model(&params.provider, &params.model_id) {
                    Ok((model, kept)) => self.kept(kept, Response::with_data(id, name, &model)),
                    Err(error) => self.respond(&Response::failure(id, name, error.to_string())),
                }
            }
            RpcCommand::ResolveModel(params) => {
                let agent = self.agent.clone();
                self.later(async move {
                    match agent.resolve_model(&params.pattern) {
                        Ok(choice) => Response::with_data(id, name, &choice.map(Resolved::of)),
                        Err(error) => Response::failure(id, name, error.to_string()),
                    }
                });
            }
            RpcCommand::CycleModel(_) => match self.agent.cycle_model() {
                Some((cycled, kept)) => self.kept(kept, Response::with_data(id, name, &cycled)),
                None => self.respond(&Response::with_data(id, name, &Value::Null)),
            },
            RpcCommand::GetAvailableModels(_) => {
                let agent = self.agent.clone();
                self.later(async move {
                    let models = agent.available_models();
                    Response::with_data(id, name, &json!({ "models": models }))
                });
            }
            RpcCommand::CycleThinkingLevel(_) => match self.agent.cycle_thinking_level() {
                Some((level, kept)) => {
                    let data = json!({ "level": level });
                    self.kept(kept, Response::with_data(id, name, &data));
                }
                None => self.respond(&Response::with_data(id, name, &Value::Null)),
            },
            RpcCommand::SetThinkingLevel(params) => {
                let kept = self.agent.set_thinking_level(params.level);
                self.kept(kept, Response::success(id, name));
            }
            RpcCommand::SetSteeringMode(params) => {
                let kept = self.agent.set_steering_mode(params.mode);
                self.kept(kept, Response::success(id, name));
            }
            RpcCommand::SetFollowUpMode(params) => {
                let kept = self.agent.set_follow_up_mode(params.mode);
                self.kept(kept, Response::success(id, name));
            }
            RpcCommand::SetAutoCompaction(params) => {
                let kept = self.agent.set_auto_compaction(params.enabled);
                self.kept(kept, Response::success(id, name));
            }
            RpcCommand::SetAutoRetry(params) => {
                let kept = self.agent.set_auto_retry(params.enabled);
                self.kept(kept, Response::success(id, name));
            }
            RpcCommand::Compact(params) => {
                // Begun here: an abort that comes right after it is meant for it.
                let compacted = self.agent.compact(params.custom_instructions);
                self.later(async move {
                    match compacted.await {
                        Ok(result) => Response::with_data(id, name, &result),
                        Err(error) => Response::failure(id, name, error.to_string()),
                    }
                });
            }
            RpcCommand::AbortCompaction(_) => {
                self.agent.abort_compaction();
                let is_compaction =
                    |command: &RpcCommand| matches!(command, RpcCommand::Compact(_));
                self.refuse_waiting(&CompactError::Cancelled.to_string(), is_compaction);
                self.respond(&Response::success(id, name));
            }
            RpcCommand::AbortRetry(_) => {
                self.agent.abort_retry();
                self.respond(&Response::success(id, name));
            }
            RpcCommand::Bash(params) => {
                let exclude = params.exclude_from_context == Some(true);
                let running = self.agent.run_user_bash(params.command, exclude);
                self.later(async move {
                    match running.await {
                        Ok(result) => Response::with_data(id, name, &result),
                        Err(error) => Response::failure(id, name, error),
                    }
                });
            }
            RpcCommand::AbortBash(_) => {
                let is_bash = |command: &RpcCommand| matches!(command, RpcCommand::Bash(_));
                self.refuse_waiting(NOT_BEGUN, is_bash);
                self.agent.abort_user_bash();
                self.respond(&Response::success(id, name));
            }
            RpcCommand::GetSessionStats(_) => {
                self.respond(&Response::with_data(id, name, &self.agent.stats()));
            }
            RpcCommand::GetPerformanceStats(_) => {
                let agent = self.agent.clone();
                self.later(async move {
                    match agent.performance_stats().await {
                        Ok(models) => Response::with_data(id, name, &json!({ "models": models })),
                        Err(error) => Response::failure(id, name, error),
                    }
                });
            }
            RpcCommand::GetLastAssistantText(_) => {
                let text = self.agent.last_assistant_text();
                self.respond(&Response::with_data(id, name, &json!({ "text": text })));
            }
            RpcCommand::GetVersion(_) => {
                let version = env!("CARGO_PKG_VERSION");
                self.respond(&Response::with_data(id, name, &json!({ "version": version })));
            }
            RpcCommand::GetExtensions(_) => self.get_extensions(id),
            RpcCommand::CompleteArgument(params) => self.complete_argument(id, params),
            RpcCommand::Reload(_) => self.reload(id),
        }
    }

    /// Messages and switches take effect in the order in which they were written, also
    /// when one of them has to wait: a message after a switch is meant for the new
    /// session, also in the same write. An extension's command runs at once: it may be
    /// what the person answers the switch's dialog with.
    fn must_keep_order(&self, command: &RpcCommand) -> bool {
        match command {
            RpcCommand::Prompt(params) => {
                !matches!(self.lookup(&params.message), Some((CommandLookup::Found, _, _)))
            }
            RpcCommand::Steer(_)
            | RpcCommand::FollowUp(_)
            | RpcCommand::NewSession(_)
            | RpcCommand::SwitchSession(_)
            | RpcCommand::Fork(_)
            | RpcCommand::ImportSession(_)
            | RpcCommand::NavigateTree(_)
            | RpcCommand::SetLabel(_)
            | RpcCommand::DeleteSession(_)
            | RpcCommand::ExportHtml(_)
            | RpcCommand::SetSessionName(_)
            | RpcCommand::SetModel(_)
            | RpcCommand::CycleModel(_)
            | RpcCommand::SetThinkingLevel(_)
            | RpcCommand::CycleThinkingLevel(_)
            | RpcCommand::SetSteeringMode(_)
            | RpcCommand::SetFollowUpMode(_)
            | RpcCommand::SetAutoCompaction(_)
            | RpcCommand::SetAutoRetry(_)
            | RpcCommand::Compact(_)
            | RpcCommand::Bash(_)
            | RpcCommand::Reload(_) => true,
            RpcCommand::Abort(_)
            | RpcCommand::GetState(_)
            | RpcCommand::GetMessages(_)
            | RpcCommand::GetForkMessages(_)
            | RpcCommand::GetTree(_)
            | RpcCommand::ListSessions(_)
            | RpcCommand::ListAllSessions(_)
            | RpcCommand::GetDailyCost(_)
            | RpcCommand::GetCommands(_)
            | RpcCommand::GetPendingMessages(_)
            | RpcCommand::ClearPendingMessages(_)
            | RpcCommand::ResolveModel(_)
            | RpcCommand::GetAvailableModels(_)
            | RpcCommand::AbortCompaction(_)
            | RpcCommand::AbortRetry(_)
            | RpcCommand::AbortBash(_)
            | RpcCommand::GetSessionStats(_)
            | RpcCommand::GetPerformanceStats(_)
            | RpcCommand::GetLastAssistantText(_)
            | RpcCommand::GetVersion(_)
            | RpcCommand::GetExtensions(_)
            | RpcCommand::CompleteArgument(_) => false,
        }
    }

    /// An abort also means what was written before it and has not begun.
    fn refuse_waiting(&mut self, error: &str, is_meant: impl Fn(&RpcCommand) -> bool) {
        let mut refused = Vec::new();
        for queue in [&mut self.waiting_for_commands, &mut self.waiting_for_switch] {
            let (meant, kept): (Vec<_>, Vec<_>) =
                std::mem::take(queue).into_iter().partition(|(_, command)| is_meant(command));
            refused.extend(meant);
            queue.extend(kept);
        }
        for (id, command) in refused {
            self.respond(&Response::failure(id, command.name(), error));
        }
    }

    /// The extension command that a message calls, with its arguments; none for a
    /// message to the model.
    fn lookup(&self, message: &str) -> Option<(CommandLookup, String, String)> {
        let (name, arguments) = slash_command(message)?;
        match self.hooks.find_command(name) {
            CommandLookup::Unknown => None,
            found => Some((found, name.to_owned(), arguments.to_owned())),
        }
    }

    /// `prompt`, `steer` and `follow_up`.
    fn message(&mut self, id: Option<Value>, command: RpcCommand) {
        let name = command.name();
        let (text, images, kind) = match &command {
            RpcCommand::Prompt(params) => (
                &params.message,
                &params.images,
                InputKind::Prompt { streaming_behavior: params.streaming_behavior },
            ),
            RpcCommand::Steer(params) => (&params.message, &params.images, InputKind::Steer),
            RpcCommand::FollowUp(params) => (&params.message, &params.images, InputKind::FollowUp),
            _ => return,
        };
        match self.lookup(text) {
            Some((CommandLookup::Loading, _, _)) => {
                self.waiting_for_commands.push_back((id, command));
                return;
            }
            Some((_, called, arguments)) if name == "prompt" => {
                self.respond(&Response::success(id, name));
                self.run_extension_command(called, arguments);
                return;
            }
            Some((_, called, _)) => {
                let error = format!(
                    "Extension command \"/{called}\" cannot be queued. Send it with the prompt command, which runs it at once."
                );
                self.respond(&Response::failure(id, name, error));
                return;
            }
            None => {}
        }
        let submission = Submission {
            text: text.clone(),
            images: images.iter().flatten().map(image).collect(),
            kind,
            source: InputSource::Rpc,
        };
        let answer = move |id, result: Result<(), SubmitError>| match result {
            Ok(()) => Response::success(id, name),
            Err(error) => Response::failure(id, name, error.to_string()),
        };
        match self.agent.submit(submission) {
            Ok(Accepted::Now) => self.respond(&answer(id, Ok(()))),
            Ok(Accepted::Later(verdict)) => self.later(async move {
                // The agent answers every input that it took in.
                answer(id, verdict.await.unwrap_or(Err(SubmitError::NoModel)))
            }),
            Err(error) => self.respond(&answer(id, Err(error))),
        }
    }

    fn run_extension_command(&mut self, name: String, arguments: String) {
        self.running_commands += 1;
        let running = self.hooks.run_command(name, arguments);
        let front = self.front.clone();
        tokio::spawn(async move {
            running.await;
            front.wake(Wakeup::CommandDone).await;
        });
    }

    /// Answers when `response` is ready; the loop goes on meanwhile.
    pub(super) fn later(&mut self, response: impl Future<Output = Response> + Send + 'static) {
        self.deferred += 1;
        let front = self.front.clone();
        tokio::spawn(async move {
            let response = response.await;
            front.wake(Wakeup::Response(response)).await;
        });
    }

    /// Answers when a change, which is in effect already, has been kept.
    pub(super) fn kept(&mut self, kept: Kept, response: Response) {
        self.later(async move {
            kept.await;
            response
        });
    }

    /// Answers when the switch is made; what is meant for the session after it waits.
    pub(super) fn switch(&mut self, response: impl Future<Output = Response> + Send + 'static) {
        self.deferred += 1;
        self.switching = true;
        let front = self.front.clone();
        tokio::spawn(async move {
            let response = response.await;
            front.wake(Wakeup::Switched(response)).await;
        });
    }
}

/// The data of `resolve_model`.
#[derive(Serialize)]
struct Resolved {
    model: Model,
    #[serde(skip_serializing_if = "Option::is_none")]
    warning: Option<String>,
}

impl Resolved {
    fn of(choice: ModelChoice) -> Self {
        Self { model: choice.model, warning: choice.warning }
    }
}

fn image(image: &PromptImage) -> ImageContent {
    image.0.clone()
}
