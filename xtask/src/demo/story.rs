//! What happens in the demo, step by step, and what has to be true after each.

use std::path::PathBuf;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use super::Stage;
use super::client::Client;
use super::person::Person;

pub(super) fn play(client: Client, person: Person, stage: &Stage) -> Result<()> {
    let mut story = Story { client, person, next_id: 0 };
    let state = story.greeting()?;
    story.command_with_dialog()?;
    story.dangerous_call(stage)?;
    story.cancelled_switch(&state)?;
    story.end(&state)
}

struct Story {
    client: Client,
    person: Person,
    next_id: u32,
}

impl Story {
    fn caption(&self, title: &str, texts: &[&str]) {
        self.client.screen().caption(title);
        for text in texts {
            self.client.screen().text(text);
        }
    }

    /// Sends a command with an id and waits for its response; gives all lines so far.
    fn request(&mut self, command: &Value) -> Result<Vec<Value>> {
        let id = self.send(command)?;
        self.response(&id)
    }

    fn send(&mut self, command: &Value) -> Result<String> {
        self.next_id += 1;
        let id = self.next_id.to_string();
        self.client.send(&joined(json!({"id": id}), command))?;
        Ok(id)
    }

    fn response(&mut self, id: &str) -> Result<Vec<Value>> {
        self.client.until(&format!("the response to command {id}"), |line| {
            line["type"] == "response" && line["id"] == id
        })
    }

    /// Waits for a dialog; gives it with the lines before it.
    fn dialog(&mut self, method: &str) -> Result<(Value, Vec<Value>)> {
        let what = format!("a {method} dialog");
        let is_dialog =
            |line: &Value| line["type"] == "extension_ui_request" && line["method"] == method;
        let is_too_late =
            |line: &Value| line["type"] == "response" || line["type"] == "tool_execution_end";
        let mut lines = self.client.until(&what, |line| is_dialog(line) || is_too_late(line))?;
        let dialog = lines.pop().context("no dialog")?;
        ensure!(is_dialog(&dialog), "nobody was asked: {what} should come before {dialog}");
        Ok((dialog, lines))
    }

    /// Answers a dialog and waits until it has settled; gives the answer.
    fn answer(&mut self, dialog: &Value, by_itself: Value) -> Result<Value> {
        let answer = self.person.answer(dialog, by_itself)?;
        let line = json!({"type": "extension_ui_response", "id": dialog["id"]});
        self.client.send(&joined(line, &answer))?;
        self.client.until("the end of the dialog", |line| {
            line["type"] == "extension_ui_response_handled" && line["id"] == dialog["id"]
        })?;
        Ok(answer)
    }

    fn notify(&mut self) -> Result<String> {
        let lines = self.client.until("a notification", |line| {
            line["type"] == "extension_ui_request" && line["method"] == "notify"
        })?;
        let text = lines.last().and_then(|line| line["message"].as_str());
        text.map(str::to_owned).context("a notification without a message")
    }

    fn state(&mut self) -> Result<Value> {
        let lines = self.request(&json!({"type": "get_state"}))?;
        Ok(lines.last().map(|line| line["data"].clone()).unwrap_or_default())
    }

    fn greeting(&mut self) -> Result<Value> {
        self.caption(
            "1. A client asks for the state",
            &[
                "One JSON object a line, both ways. Each command gets one response with its id.",
                "The model is scripted: it plays replies from a file and needs no key.",
            ],
        );
        let state = self.state()?;
        let model = &state["model"];
        ensure!(
            model["provider"] == "scripted" && model["id"] == "demo",
            "the model is not scripted/demo: {model}"
        );
        Ok(state)
    }

    fn command_with_dialog(&mut self) -> Result<()> {
        self.caption(
            "2. An extension's command opens a dialog",
            &[
                "rpc-demo, a WebAssembly component, offers /rpc-input. It asks, waits, and then",
                "shows what it was told. While it waits, everything else goes on.",
            ],
        );
        self.request(&json!({"type": "prompt", "message": "/rpc-input"}))?;
        let (dialog, _) = self.dialog("input")?;
        let answer = self.answer(&dialog, json!({"value": "Ada Lovelace"}))?;
        let expect = match answer["value"].as_str() {
            Some(text) => format!("input: answered {text}"),
            None => "input: cancelled".to_owned(),
        };
        let shown = self.notify()?;
        ensure!(shown == expect, "the command showed {shown:?} instead of {expect:?}");
        Ok(())
    }

    fn dangerous_call(&mut self, stage: &Stage) -> Result<()> {
        let folder = stage.build_folder();
        self.caption(
            "3. The model wants to run rm -rf, and permission-gate asks first",
            &[
                "The reply streams as message_update lines; the copies of the message that each",
                "carries are left out here. Before the tool runs, the extension sees the call.",
            ],
        );
        let mut seen =
            self.request(&json!({"type": "prompt", "message": "clean the build folder"}))?;
        let (dialog, before) = self.dialog("select")?;
        seen.extend(before);
        in_order(&seen, &["agent_start", "message_update", "tool_execution_start"])?;
        ensure!(folder.is_dir(), "the command ran before anybody was asked");
        let answer = self.answer(&dialog, json!({"value": "No"}))?;
        let after = self.client.until("agent_end", |line| line["type"] == "agent_end")?;
        in_order(&after, &["tool_execution_end", "turn_end", "turn_start", "agent_end"])?;
        let end = after.iter().find(|line| line["type"] == "tool_execution_end");
        let is_error = end.is_some_and(|line| line["isError"] == true);
        if answer["value"] == "Yes" {
            ensure!(!is_error, "the command was allowed and failed");
            ensure!(!folder.exists(), "the command was allowed, and the folder is still there");
            self.client.screen().text("You allowed it: the folder build is gone.");
        } else {
            ensure!(is_error, "the command was not allowed, and the tool reports success");
            ensure!(folder.is_dir(), "the command was not allowed, and the folder is gone");
            self.client.screen().text("Blocked: the folder build is still there.");
        }
        Ok(())
    }

    fn cancelled_switch(&mut self, before: &Value) -> Result<()> {
        self.caption(
            "4. A new session, unless confirm-switch is told otherwise",
            &["An extension can cancel session_before_switch; the response then says so."],
        );
        let id = self.send(&json!({"type": "new_session"}))?;
        let (dialog, _) = self.dialog("confirm")?;
        let answer = self.answer(&dialog, json!({"confirmed": false}))?;
        let lines = self.response(&id)?;
        let cancelled = lines.last().map(|line| line["data"]["cancelled"].clone());
        let expect = answer["confirmed"] != true;
        ensure!(cancelled == Some(json!(expect)), "new_session should say cancelled: {expect}");
        let after = self.state()?;
        let is_same = after["sessionId"] == before["sessionId"];
        ensure!(is_same == expect, "the session is not the one that it should be: {after}");
        let messages = after["messageCount"].as_u64().unwrap_or_default();
        if expect {
            ensure!(messages > 0, "the session's messages are gone");
            self.client.screen().text("Cancelled: the session and its messages are still there.");
        } else {
            ensure!(messages == 0, "the new session is not empty");
            self.client.screen().text("You confirmed: this is a new, empty session.");
        }
        Ok(())
    }

    /// Ends the input. The first session's file holds the conversation.
    fn end(mut self, first: &Value) -> Result<()> {
        self.caption(
            "5. The end of the input ends Wharf",
            &["What was accepted is finished, extensions are told, and the exit code is 0."],
        );
        self.client.finish()?;
        let file: PathBuf = first["sessionFile"].as_str().context("no sessionFile")?.into();
        let text = std::fs::read_to_string(&file)
            .with_context(|| format!("failed to read the session file {}", file.display()))?;
        let mut messages = 0;
        for line in text.lines() {
            let entry: Value = serde_json::from_str(line)
                .with_context(|| format!("a line of the session file is no JSON: {line}"))?;
            messages += usize::from(entry["type"] == "message");
        }
        // The prompt, the reply, the tool's result, the last reply.
        ensure!(messages == 4, "the session file has {messages} messages instead of 4");
        self.client.screen().text(&format!(
            "The session file holds the conversation: {} lines of JSON, {messages} of them messages.",
            text.lines().count()
        ));
        Ok(())
    }
}

/// The fields of both objects, in this order.
fn joined(mut first: Value, second: &Value) -> Value {
    if let (Some(first), Some(second)) = (first.as_object_mut(), second.as_object()) {
        first.extend(second.clone());
    }
    first
}

/// Checks that lines of these types came in this order, whatever came between.
fn in_order(lines: &[Value], types: &[&str]) -> Result<()> {
    let mut rest = lines.iter();
    for kind in types {
        ensure!(rest.any(|line| line["type"] == *kind), "{kind} is missing, or out of order");
    }
    Ok(())
}
