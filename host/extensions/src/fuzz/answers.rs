//! Arbitrary answers to every event, failures among them, through what combines them.
//! The actors are stand-ins that make the answers up and note what they gave.

use std::any::Any;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Map, Value, json};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio_util::sync::CancellationToken;
use wharf_agent::hooks::{
    BeforeAgentStartEvent, BeforeCompactEvent, BeforeCompactVerdict, BeforeTreeEvent,
    CompactionCause, DiscoverReason, ForkVerdict, InputEvent, InputSource, InputVerdict,
    ProviderRequestEvent, SwitchReason, ToolCallEvent, ToolCallVerdict, ToolResultEvent,
    TreeOptions, TreeVerdict, UserBashEvent, UserBashVerdict,
};
use wharf_agent::tool::ToolOutput;
use wharf_protocol::{AgentMessage, ContentBlock};

use super::cases::fuzz;
use super::data::Data;
use super::{Kept, extension, services};
use crate::bindings::types as wit;
use crate::call::{Call, CallError, Request};
use crate::dispatch;
use crate::extension::{Extension, Message};
use crate::limits::{
    MAX_COMMAND_BYTES, MAX_CONTENT_BLOCKS, MAX_CONTENT_BYTES, MAX_DISCOVERED_PATHS,
    MAX_ERROR_BYTES, MAX_NAME_BYTES, MAX_PATH_BYTES, MAX_TEXT_BYTES,
};
use crate::registration::Registration;

const CASES: u64 = 400;

/// What an answer asks for, as far as the combinations tell answers apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Given {
    /// Go on: nothing is changed, or there is no such handler.
    Proceed,
    /// Go on with something else, if it is acceptable.
    Change,
    /// An answer in the place of what would have happened, if it is acceptable.
    Answer,
    /// A cancel, a block, `handled`: the chain ends.
    End,
    Failed,
}

type Log = Arc<Mutex<Vec<Given>>>;

/// In the place of an actor.
struct Actor {
    data: Data,
    log: Log,
    /// Calls that are never answered.
    held: Vec<Box<dyn Any + Send>>,
}

impl Actor {
    async fn run(mut self, extension: Arc<Extension>, mut mailbox: UnboundedReceiver<Message>) {
        while let Some(message) = mailbox.recv().await {
            if let Message::Call(request) = message {
                extension.call_taken();
                // The same as a real one: nobody waits for these any more.
                if !request.parts().0.cancel.is_cancelled() {
                    self.answer(*request);
                }
            }
        }
    }

    fn answer(&mut self, request: Request) {
        match request {
            Request::ToolCall(call) => {
                let is_final = call.params.0.final_check;
                self.settle(call, true, |data| tool_call(data, is_final));
            }
            Request::ToolResult(call) => self.settle(call, true, |data| {
                let patch = wit::ToolResultPatch {
                    content: data.option(content),
                    details: data.option(Data::json),
                    is_error: data.option(Data::bool),
                };
                (patch, Given::Change)
            }),
            Request::Input(call) => self.settle(call, true, |data| match data.0.u8(..3) {
                0 => (wit::InputDecision::Proceed, Given::Proceed),
                1 => (wit::InputDecision::Handled, Given::End),
                _ => {
                    let (text, images) = (data.text(), data.list(image));
                    let replacement = wit::InputReplacement { text, images };
                    (wit::InputDecision::Transform(replacement), Given::Change)
                }
            }),
            Request::BeforeAgentStart(call) => self.settle(call, true, |data| {
                let answer = wit::BeforeAgentStartAnswer {
                    message: data.option(|data| wit::CustomMessage {
                        custom_type: data.text(),
                        content: content(data),
                        display: data.bool(),
                        details: data.option(Data::json),
                    }),
                    system_prompt: data.option(Data::text),
                };
                (answer, Given::Change)
            }),
            Request::SessionBeforeSwitch(call) => self.settle(call, false, |data| {
                if data.bool() {
                    (wit::SwitchDecision::Cancel, Given::End)
                } else {
                    (wit::SwitchDecision::Proceed, Given::Proceed)
                }
            }),
            Request::SessionBeforeFork(call) => {
                self.settle(call, false, |data| match data.0.u8(..3) {
                    0 => (wit::ForkDecision::Proceed, Given::Proceed),
                    1 => (wit::ForkDecision::KeepConversation, Given::Change),
                    _ => (wit::ForkDecision::Cancel, Given::End),
                });
            }
            Request::SessionBeforeTree(call) => self.settle(call, true, tree),
            Request::SessionDirectory(call) => {
                self.settle(call, true, |data| (data.option(Data::text), Given::Change));
            }
            Request::SessionBeforeCompact(call) => self.settle(call, true, compact),
            Request::Context(call) => {
                self.settle(call, true, |data| (data.option(Data::json), Given::Change));
            }
            Request::ProviderPayload(call) => {
                self.settle(call, true, |data| (data.option(Data::json), Given::Change));
            }
            Request::ResourcesDiscover(call) => self.settle(call, true, |data| {
                let skill_paths = data.list(Data::text);
                let prompt_paths = data.list(Data::text);
                (wit::DiscoveredResources { skill_paths, prompt_paths }, Given::Change)
            }),
            Request::UserBash(call) => self.settle(call, true, |data| match data.0.u8(..3) {
                0 => (wit::UserBashDecision::Proceed, Given::Proceed),
                1 => (wit::UserBashDecision::Wrap(data.text()), Given::Change),
                _ => {
                    let (output, exit_code) = (data.text(), data.option(|data| data.0.i32(..)));
                    let result = wit::UserBashResult { output, exit_code };
                    (wit::UserBashDecision::Answer(result), Given::Answer)
                }
            }),
            // No events.
            Request::RunCommand(_)
            | Request::CompleteArgument(_)
            | Request::ExecuteTool(_)
            | Request::StreamReply(_) => {}
        }
    }

    /// Most calls get what `make` makes. One that is held is answered when whoever waits
    /// has given up, if they ever do.
    fn settle<P, R>(
        &mut self,
        call: Call<P, Result<R, String>>,
        may_hold: bool,
        make: impl FnOnce(&mut Data) -> (R, Given),
    ) where
        P: Send + 'static,
        R: Send + 'static,
    {
        let (answer, given) = match self.data.0.u8(..30) {
            0 => (Ok(None), Given::Proceed),
            1..4 => (Ok(Some(Err(self.data.text()))), Given::Failed),
            4 => (Err(CallError::Trapped(self.data.text())), Given::Failed),
            5 => (Err(CallError::Restarted(self.data.text())), Given::Failed),
            6 => (Err(CallError::Stopped), Given::Failed),
            7 if may_hold => {
                self.log.lock().unwrap().push(Given::Failed);
                self.held.push(Box::new(call));
                return;
            }
            7 => (Err(CallError::Stopped), Given::Failed),
            _ => {
                let (answer, given) = make(&mut self.data);
                (Ok(Some(Ok(answer))), given)
            }
        };
        self.log.lock().unwrap().push(given);
        call.reply.settle(answer);
    }
}

fn image(data: &mut Data) -> wit::Image {
    wit::Image { data: data.text(), mime_type: data.text() }
}

fn content(data: &mut Data) -> Vec<wit::Content> {
    data.list(|data| {
        if data.bool() { wit::Content::Text(data.text()) } else { wit::Content::Image(image(data)) }
    })
}

fn tool_call(data: &mut Data, is_final: bool) -> (wit::ToolCallDecision, Given) {
    // In the final check only a block is one; what cannot be understood still fails.
    let answer = if is_final { Given::Change } else { Given::Answer };
    match data.0.u8(..6) {
        0..2 => (wit::ToolCallDecision::Allow, Given::Proceed),
        2 => (wit::ToolCallDecision::Block(data.text()), Given::End),
        3 => {
            let output = wit::ToolOutput {
                content: content(data),
                details: data.option(Data::json),
                is_error: data.bool(),
            };
            (wit::ToolCallDecision::Answer(output), answer)
        }
        _ => {
            let input = if data.bool() { data.object(2) } else { data.json() };
            (wit::ToolCallDecision::Replace(input), Given::Change)
        }
    }
}

fn text_change(data: &mut Data) -> wit::TextChange {
    match data.0.u8(..3) {
        0 => wit::TextChange::Keep,
        1 => wit::TextChange::Clear,
        _ => wit::TextChange::Set(data.text()),
    }
}

fn tree(data: &mut Data) -> (wit::TreeDecision, Given) {
    if data.once_in(4) {
        return (wit::TreeDecision::Cancel, Given::End);
    }
    let changes = wit::TreeChanges {
        summary: data.option(|data| wit::TreeSummary {
            summary: data.text(),
            details: data.option(Data::json),
        }),
        custom_instructions: text_change(data),
        replace_instructions: data.option(Data::bool),
        label: text_change(data),
    };
    (wit::TreeDecision::Proceed(changes), Given::Change)
}

fn compact(data: &mut Data) -> (wit::CompactDecision, Given) {
    match data.0.u8(..4) {
        0 => (wit::CompactDecision::Proceed, Given::Proceed),
        1 => (wit::CompactDecision::Cancel, Given::End),
        _ => {
            let own = wit::OwnSummary {
                summary: data.text(),
                first_kept_entry_id: data.option(Data::text),
                details: data.option(Data::json),
            };
            (wit::CompactDecision::Replace(own), Given::Answer)
        }
    }
}

/// The subscribers of one case, and what they answered since it was last asked.
struct Asked {
    subscribers: Vec<Arc<Extension>>,
    log: Log,
    kept: Arc<Kept>,
    cancel: CancellationToken,
}

impl Asked {
    fn new(data: &mut Data) -> Self {
        let (services, kept) = services();
        let log = Log::default();
        let registration = json!({
            "id": "x", "version": "", "description": "", "commands": [], "tools": [],
            "subscriptions": [], "flags": [], "shortcuts": [], "permissions": [],
        });
        let registration: Registration = serde_json::from_value(registration).unwrap();
        let subscribers = (0..data.0.usize(1..5))
            .map(|number| {
                let (extension, mailbox) = extension(number, registration.clone(), &services);
                let actor =
                    Actor { data: Data(data.0.fork()), log: Arc::clone(&log), held: Vec::new() };
                tokio::spawn(actor.run(Arc::clone(&extension), mailbox));
                extension
            })
            .collect();
        Self { subscribers, log, kept, cancel: CancellationToken::new() }
    }

    /// A person's abort, later than any answer that comes.
    fn aborted_later(&mut self) {
        let cancel = CancellationToken::new();
        self.cancel = cancel.clone();
        tokio::spawn(async move {
            tokio::time::sleep(Duration::from_secs(60)).await;
            cancel.cancel();
        });
    }

    /// That all were asked, unless there was an abort.
    fn check_all(&self) {
        let count = self.given().len();
        assert!(count == self.subscribers.len() || self.cancel.is_cancelled(), "{count}");
    }

    /// What was given, in order. Nobody is asked after the chain has ended.
    fn given(&self) -> Vec<Given> {
        let given = std::mem::take(&mut *self.log.lock().unwrap());
        if let Some(end) = given.iter().position(|given| *given == Given::End) {
            assert_eq!(end + 1, given.len(), "somebody was asked after the end: {given:?}");
        }
        for report in self.kept.0.lock().unwrap().drain(..) {
            assert!(report.error.len() <= MAX_ERROR_BYTES && !report.error.contains('\n'));
        }
        given
    }
}

fn message() -> Arc<AgentMessage> {
    let text = r#"{"role":"user","content":"hi","timestamp":1}"#;
    Arc::new(serde_json::from_str(text).unwrap())
}

fn check_output(content: &[ContentBlock]) {
    assert!(content.len() <= MAX_CONTENT_BLOCKS);
    let size = |block: &ContentBlock| match block {
        ContentBlock::Text(text) => text.text.len(),
        ContentBlock::Image(image) => image.data.len() + image.mime_type.len(),
    };
    assert!(content.iter().map(size).sum::<usize>() <= MAX_CONTENT_BYTES);
}

/// Runs `check` with fresh subscribers, often. Time stands still while anybody works.
fn answers(check: impl AsyncFn(&mut Asked, &mut Data)) {
    fuzz(CASES, |rng| {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .unwrap();
        let mut data = Data(rng);
        runtime.block_on(async {
            let mut asked = Asked::new(&mut data);
            asked.aborted_later();
            check(&mut asked, &mut data).await;
        });
    });
}

#[test]
fn tool_call_fails_closed() {
    answers(async |asked, data| {
        let input: Map<String, Value> = [("a".to_owned(), json!(1))].into_iter().collect();
        let event = ToolCallEvent {
            tool_call_id: data.text(),
            tool_name: data.text(),
            input: input.clone(),
            paths: vec![PathBuf::from(data.text())],
        };
        let refuses = data.once_in(4);
        let recheck = |_: &Map<String, Value>| {
            if refuses { Err("refused".to_owned()) } else { Ok(Vec::new()) }
        };
        let verdict = dispatch::tool_call(&asked.subscribers, event, &recheck, &asked.cancel).await;
        let given = asked.given();
        let last = given.last().copied();
        let goes_on = |given: &Given| matches!(given, Given::Proceed | Given::Change);
        match verdict {
            ToolCallVerdict::Run(run) => {
                assert!(given.iter().all(goes_on), "it runs: {given:?}");
                assert!(given.len() >= asked.subscribers.len());
                assert!(run == input || given.contains(&Given::Change));
            }
            ToolCallVerdict::Block(_) => {
                assert!(last != Some(Given::Proceed), "nobody blocked it: {given:?}");
            }
            ToolCallVerdict::Answer { output, .. } => {
                assert_eq!(last, Some(Given::Answer));
                check_output(&output.content);
            }
        }
        assert!(given.iter().rev().skip(1).all(goes_on), "the chain had ended: {given:?}");
    });
}

#[test]
fn tool_result_and_messages_stay_within_their_caps() {
    answers(async |asked, data| {
        let output = ToolOutput { content: vec![ContentBlock::text("t")], details: None };
        let event = ToolResultEvent {
            tool_call_id: data.text(),
            tool_name: data.text(),
            input: Map::new(),
            output,
            is_error: data.bool(),
        };
        let result = dispatch::tool_result(&asked.subscribers, event, &asked.cancel).await;
        check_output(&result.output.content);
        asked.check_all();

        asked.aborted_later();
        let event = BeforeAgentStartEvent {
            prompt: data.text(),
            images: Vec::new(),
            system_prompt: data.text(),
        };
        let verdict = dispatch::before_agent_start(&asked.subscribers, event, &asked.cancel).await;
        assert!(verdict.system_prompt.len() <= MAX_TEXT_BYTES);
        assert!(verdict.messages.len() <= asked.subscribers.len());
        asked.check_all();
    });
}

#[test]
fn input_and_user_bash_end_where_they_are_dealt_with() {
    answers(async |asked, data| {
        let event =
            InputEvent { text: data.text(), images: Vec::new(), source: InputSource::Interactive };
        let verdict = dispatch::input(&asked.subscribers, event, &asked.cancel).await;
        let is_handled = asked.given().contains(&Given::End);
        assert_eq!(verdict == InputVerdict::Handled, is_handled);

        asked.aborted_later();
        let event = UserBashEvent { command: "ls".to_owned(), exclude_from_context: data.bool() };
        let verdict =
            dispatch::user_bash(&asked.subscribers, event, Path::new("/"), &asked.cancel).await;
        let given = asked.given();
        match verdict {
            UserBashVerdict::Run(command) => {
                assert!(!command.trim().is_empty() && !command.contains('\0'));
                assert!(command.len() <= MAX_COMMAND_BYTES);
                assert!(command == "ls" || given.contains(&Given::Change));
            }
            UserBashVerdict::Answer { output, .. } => {
                assert_eq!(given.last(), Some(&Given::Answer));
                assert!(output.len() <= MAX_TEXT_BYTES);
            }
        }
    });
}

#[test]
fn sessions_stay_where_somebody_cancels() {
    answers(async |asked, data| {
        let target = data.option(|data| PathBuf::from(data.text()));
        let is_cancelled =
            dispatch::session_before_switch(&asked.subscribers, SwitchReason::New, target).await;
        assert_eq!(is_cancelled, asked.given().contains(&Given::End));

        let verdict = dispatch::session_before_fork(&asked.subscribers, data.text()).await;
        let given = asked.given();
        let expected = if given.contains(&Given::End) {
            ForkVerdict::Cancel
        } else if given.contains(&Given::Change) {
            ForkVerdict::KeepConversation
        } else {
            ForkVerdict::Proceed
        };
        assert_eq!(verdict, expected);

        asked.aborted_later();
        let event = BeforeTreeEvent {
            target_id: data.text(),
            old_leaf_id: data.option(Data::text),
            common_ancestor_id: data.option(Data::text),
            abandoned: vec![message()],
            options: TreeOptions { summarize: data.bool(), ..TreeOptions::default() },
        };
        let summarize = event.options.summarize;
        let verdict = dispatch::session_before_tree(&asked.subscribers, event, &asked.cancel).await;
        let given = asked.given();
        match verdict {
            TreeVerdict::Cancel => assert_eq!(given.last(), Some(&Given::End)),
            TreeVerdict::Proceed { options, summary } => {
                assert!(!given.contains(&Given::End));
                assert!(summary.is_none() || summarize);
                let says_something = |text: &String| !text.trim().is_empty();
                assert!(summary.iter().all(|own| says_something(&own.summary)));
                assert!(options.label.iter().all(|label| label.len() <= MAX_NAME_BYTES));
                assert!(options.label.iter().all(says_something));
                assert_eq!(options.summarize, summarize);
            }
        }

        asked.aborted_later();
        let event = BeforeCompactEvent {
            cause: CompactionCause::Manual,
            first_kept_entry_id: "host".to_owned(),
            tokens_before: data.0.u64(..),
            previous_summary: data.option(Data::text),
            messages: vec![message()],
            turn_prefix: Vec::new(),
            details: json!({}),
            instructions: data.option(Data::text),
        };
        let verdict =
            dispatch::session_before_compact(&asked.subscribers, event, &asked.cancel).await;
        let given = asked.given();
        match verdict {
            BeforeCompactVerdict::Proceed => assert!(!given.contains(&Given::End)),
            BeforeCompactVerdict::Cancel => assert_eq!(given.last(), Some(&Given::End)),
            BeforeCompactVerdict::Replace(own) => {
                assert_eq!(given.last(), Some(&Given::Answer));
                // There is no session whose entries it could name.
                assert_eq!(own.first_kept_entry_id, "host");
                assert!(!own.summary.trim().is_empty());
            }
        }
    });
}

#[test]
fn what_is_asked_of_all_at_once_is_within_its_caps() {
    answers(async |asked, _| {
        let count = asked.subscribers.len();
        let directory = dispatch::session_directory(&asked.subscribers, Path::new("/")).await;
        if let Some(path) = directory.as_deref().and_then(Path::to_str) {
            assert!(!path.trim().is_empty() && path.len() <= MAX_PATH_BYTES);
        }
        assert_eq!(asked.given().len(), count);

        let reason = DiscoverReason::Startup;
        let found = dispatch::resources_discover(&asked.subscribers, Path::new("/"), reason).await;
        for paths in [found.skill_paths, found.prompt_paths] {
            assert!(paths.len() <= count * MAX_DISCOVERED_PATHS);
        }
        assert_eq!(asked.given().len(), count);
    });
}

#[test]
fn what_is_sent_to_models_stays_readable() {
    answers(async |asked, data| {
        let messages = vec![message(); data.0.usize(1..3)];
        let messages = dispatch::context(&asked.subscribers, messages, &asked.cancel).await;
        assert!(!messages.is_empty());
        // It is written for the session's copy, for the provider and for front ends.
        assert!(serde_json::to_string(&messages).is_ok());
        asked.check_all();

        asked.aborted_later();
        let event = ProviderRequestEvent {
            provider: data.text(),
            model: data.text(),
            api: data.text(),
            payload: json!({"messages": []}),
        };
        let payload =
            dispatch::before_provider_request(&asked.subscribers, event, &asked.cancel).await;
        assert!(serde_json::to_string(&payload).is_ok());
        asked.check_all();
    });
}
