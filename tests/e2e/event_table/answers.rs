//! The events that extensions answer: for each, how it is made to happen, and what became
//! of it, as it is seen from outside.

use regex::Regex;
use serde_json::{Value, json};
use wharf_tests::llm::{Answer, LlmServer};

use super::lab::{LETTERS, Lab, NOTHING};
use crate::order::text_of;

/// An event, and the cases that are tried beside those that every event has: answers of
/// the extensions a, b and c.
pub(super) struct Answered {
    pub event: &'static str,
    /// What an extension may answer beside `-`, which changes nothing.
    pub answers: &'static [&'static str],
    pub mixed: &'static [[&'static str; 3]],
    /// It happens when the program starts.
    pub at_start: bool,
    /// Makes it happen with these answers, and says what came of it.
    pub observe: fn(&mut Lab, &[&str]) -> String,
}

pub(super) const ALL: [Answered; 13] = [
    Answered {
        event: "tool_call",
        answers: &["replace", "block", "answer", "replace badly"],
        mixed: &[
            ["-", "replace", "-"],
            ["-", "replace", "block"],
            ["block", "replace", "-"],
            ["answer", "block", "-"],
            ["replace", "answer", "-"],
        ],
        at_start: false,
        observe: tool_call,
    },
    Answered {
        event: "tool_result",
        answers: &["text", "error", "details"],
        mixed: &[["text", "error", "details"], ["details", "-", "details"]],
        at_start: false,
        observe: tool_result,
    },
    Answered {
        event: "input",
        answers: &["transform", "handled"],
        mixed: &[["transform", "-", "transform"], ["transform", "handled", "transform"]],
        at_start: false,
        observe: input,
    },
    Answered {
        event: "before_agent_start",
        answers: &["message", "system prompt"],
        mixed: &[["message", "system prompt", "message"]],
        at_start: false,
        observe: before_agent_start,
    },
    Answered {
        event: "context",
        answers: &["replace", "replace badly"],
        mixed: &[["replace", "-", "replace"], ["replace", "replace badly", "replace"]],
        at_start: false,
        observe: context,
    },
    Answered {
        event: "before_provider_request",
        answers: &["replace", "replace badly"],
        mixed: &[["replace", "-", "replace"], ["replace", "replace badly", "replace"]],
        at_start: false,
        observe: before_provider_request,
    },
    Answered {
        event: "user_bash",
        answers: &["wrap", "answer"],
        mixed: &[["wrap", "-", "wrap"], ["wrap", "answer", "wrap"]],
        at_start: false,
        observe: user_bash,
    },
    Answered {
        event: "resources_discover",
        answers: &["add"],
        mixed: &[["add", "-", "add"]],
        at_start: true,
        observe: resources_discover,
    },
    Answered {
        event: "session_directory",
        answers: &["directory"],
        mixed: &[["directory", "directory", "-"], ["directory", "-", "-"]],
        at_start: true,
        observe: session_directory,
    },
    Answered {
        event: "session_before_switch",
        answers: &["cancel"],
        mixed: &[["-", "cancel", "-"], ["-", "-", "cancel"]],
        at_start: false,
        observe: session_before_switch,
    },
    Answered {
        event: "session_before_fork",
        answers: &["keep", "cancel"],
        mixed: &[["-", "keep", "-"], ["keep", "cancel", "-"], ["cancel", "keep", "-"]],
        at_start: false,
        observe: session_before_fork,
    },
    Answered {
        event: "session_before_tree",
        answers: &["instructions", "label", "summary", "cancel"],
        mixed: &[
            ["instructions", "label", "instructions"],
            ["-", "summary", "summary"],
            ["summary", "label", "cancel"],
            ["cancel", "summary", "-"],
        ],
        at_start: false,
        observe: session_before_tree,
    },
    Answered {
        event: "session_before_compact",
        answers: &["summary", "cancel"],
        mixed: &[["-", "summary", "cancel"], ["-", "cancel", "summary"]],
        at_start: false,
        observe: session_before_compact,
    },
];

impl Answered {
    /// The answers of one case each, for so many subscribers. A trap is the last: its
    /// extension begins anew.
    pub(super) fn cases(&self, subscribers: usize) -> Vec<Vec<&'static str>> {
        let [first, ..] = self.answers else { panic!("{} has no answer", self.event) };
        match subscribers {
            0 => vec![Vec::new()],
            1 => {
                let answers = [&[NOTHING], self.answers, &["fail", "trap"]].concat();
                answers.into_iter().map(|answer| vec![answer]).collect()
            }
            _ => {
                let same = [&[NOTHING], self.answers].concat();
                let mut cases: Vec<_> = same.into_iter().map(|answer| vec![answer; 3]).collect();
                cases.extend(self.mixed.iter().map(|case| case.to_vec()));
                cases.push(vec!["fail", first, NOTHING]);
                cases.push(vec![NOTHING, "trap", first]);
                cases
            }
        }
    }

    /// Makes a case happen.
    pub(super) fn happen(&self, lab: &mut Lab, answers: &[&str]) -> String {
        if self.at_start {
            lab.set(self.event, answers);
            lab.start();
        } else {
            lab.set(self.event, &[NOTHING; 3]);
            let response = lab.ask(json!({"type": "new_session"}));
            assert_eq!(response["data"]["cancelled"], false, "{response}");
        }
        let outcome = (self.observe)(lab, answers);
        lab.idle();
        outcome
    }
}

/// The letters between the last `<<` and `>>`, else the text.
pub(super) fn letters(text: &str) -> String {
    let between = text.rsplit_once("<<").and_then(|(_, rest)| rest.split_once(">>"));
    between.map_or_else(|| text.trim().to_owned(), |(letters, _)| letters.to_owned())
}

/// A text of so many tokens that the compaction of these tests keeps one turn of it.
fn pad(text: &str) -> String {
    format!("{text:.<60}")
}

fn last_request(server: &LlmServer) -> Value {
    server.requests().last().map_or(Value::Null, |request| request.body.clone())
}

/// The text of the person's last message, as the model reads it.
fn read_by_model(server: &LlmServer) -> String {
    let request = last_request(server);
    let messages = request["messages"].as_array().unwrap();
    let last = messages.iter().rfind(|message| message["role"] == "user").unwrap();
    letters(&text_of(last))
}

/// Runs a tool call; the line of its end, and the tool's result in the conversation.
fn one_call(lab: &mut Lab) -> (Value, Value) {
    let command = json!({"command": format!("echo '{LETTERS}'")});
    lab.server.reply(Answer::calls("toolu_1", "bash", &command));
    lab.server.reply(Answer::says("done"));
    let run = lab.run("go");
    let end = run.iter().find(|line| line["type"] == "tool_execution_end").unwrap().clone();
    let messages = lab.ask(json!({"type": "get_messages"}))["data"]["messages"].clone();
    let messages = messages.as_array().unwrap();
    let result = messages.iter().find(|message| message["role"] == "toolResult").unwrap();
    (end, result.clone())
}

/// Without what differs from build to build.
fn plain(text: &str) -> String {
    let text = Regex::new("panicked at [^ ]+: ").unwrap().replace(text, "panicked: ");
    Regex::new(r" \(wasm trap: .*").unwrap().replace(&text, "").into_owned()
}

fn in_words(result: &Value, is_error: &Value) -> String {
    let mut words = plain(&letters(&text_of(result)));
    if *is_error == true {
        words = format!("error: {words}");
    }
    if let Some(details) = result["details"].as_str() {
        words.push_str(&format!(" ({details})"));
    }
    words
}

fn tool_call(lab: &mut Lab, answers: &[&str]) -> String {
    lab.set("tool_call", answers);
    let (end, _) = one_call(lab);
    format!("the result is {}", in_words(&end["result"], &end["isError"]))
}

/// The event for front ends, the message and what the model reads tell the same.
fn tool_result(lab: &mut Lab, answers: &[&str]) -> String {
    lab.set("tool_result", answers);
    let (end, message) = one_call(lab);
    let told = in_words(&end["result"], &end["isError"]);
    let kept = in_words(&message, &message["isError"]);
    assert_eq!(told, kept, "the event and the message differ");
    let request = last_request(&lab.server);
    let sent = request["messages"].as_array().unwrap().last().unwrap()["content"][0].clone();
    assert_eq!(sent["type"], "tool_result", "{sent}");
    assert_eq!(letters(&text_of(&sent)), letters(&text_of(&message)), "{sent}");
    assert_eq!(sent["is_error"] == true, message["isError"] == true, "{sent}");
    format!("the result is {told}")
}

fn input(lab: &mut Lab, answers: &[&str]) -> String {
    lab.set("input", answers);
    let before = lab.server.requests().len();
    lab.server.default_reply(Answer::says("done"));
    let response = lab.ask(json!({"type": "prompt", "message": LETTERS}));
    assert_eq!(response["success"], true, "{response}");
    let state = lab.idle();
    if lab.server.requests().len() == before {
        assert_eq!(state["messageCount"], 0, "{state}");
        return "nothing is sent".to_owned();
    }
    format!("the model reads {}", read_by_model(&lab.server))
}

fn before_agent_start(lab: &mut Lab, answers: &[&str]) -> String {
    lab.set("before_agent_start", answers);
    lab.server.reply(Answer::says("done"));
    lab.run("go");
    let request = last_request(&lab.server);
    let system = letters(&request["system"].to_string());
    let messages = lab.ask(json!({"type": "get_messages"}))["data"]["messages"].clone();
    let messages = messages.as_array().unwrap();
    let own = messages.iter().filter(|message| message["role"] == "custom").map(text_of);
    let own: Vec<String> = own.collect();
    for text in &own {
        assert!(request["messages"].to_string().contains(text), "the model does not read {text}");
    }
    let own = if own.is_empty() { "no message".to_owned() } else { own.join(", ") };
    format!("the system prompt is {system}; {own}")
}

/// `context` and `before_provider_request`: the session keeps the person's own.
fn context_of(lab: &mut Lab, event: &str, answers: &[&str]) -> String {
    lab.set(event, answers);
    lab.server.reply(Answer::says("done"));
    lab.run(LETTERS);
    let read = read_by_model(&lab.server);
    let messages = lab.ask(json!({"type": "get_messages"}))["data"]["messages"].clone();
    let kept = letters(&text_of(&messages[0]));
    format!("the model reads {read}, the session keeps {kept}")
}

fn context(lab: &mut Lab, answers: &[&str]) -> String {
    context_of(lab, "context", answers)
}

fn before_provider_request(lab: &mut Lab, answers: &[&str]) -> String {
    context_of(lab, "before_provider_request", answers)
}

fn user_bash(lab: &mut Lab, answers: &[&str]) -> String {
    lab.set("user_bash", answers);
    let response = lab.ask(json!({"type": "bash", "command": format!("echo '{LETTERS}'")}));
    let messages = lab.ask(json!({"type": "get_messages"}))["data"]["messages"].clone();
    let kept = letters(messages[0]["command"].as_str().unwrap());
    let output = letters(response["data"]["output"].as_str().unwrap());
    format!("the output is {output}, the session keeps the command {kept}")
}

fn resources_discover(lab: &mut Lab, _answers: &[&str]) -> String {
    // The end of a run: whatever is discovered at the start has been.
    lab.server.reply(Answer::says("done"));
    lab.run("/of-none");
    let commands = lab.ask(json!({"type": "get_commands"}))["data"]["commands"].clone();
    let names = commands.as_array().unwrap().iter().map(|one| one["name"].as_str().unwrap());
    let names: Vec<&str> = names.collect();
    if names.is_empty() { "nothing is added".to_owned() } else { names.join(", ") }
}

/// Where the lab's resources are: a skill and a template for each extension.
pub(super) fn write_resources(lab: &Lab) {
    for letter in ["a", "b", "c"] {
        let skill = format!("---\nname: skill-{letter}\ndescription: Of {letter}.\n---\nDo it.");
        lab.env.write(&format!("skills-{letter}/skill-{letter}/SKILL.md"), skill);
        lab.env.write(&format!("prompts-{letter}/prompt-{letter}.md"), "Do it.");
    }
}

fn session_directory(lab: &mut Lab, _answers: &[&str]) -> String {
    lab.server.reply(Answer::says("done"));
    lab.run("go");
    let state = lab.idle();
    let file = std::path::PathBuf::from(state["sessionFile"].as_str().unwrap());
    assert!(file.is_file(), "{}", file.display());
    let folder = file.parent().unwrap();
    match folder.strip_prefix(lab.env.project()) {
        Ok(folder) => format!("sessions are in {}", folder.display()),
        Err(_) => "sessions are in the default directory".to_owned(),
    }
}

fn session_before_switch(lab: &mut Lab, answers: &[&str]) -> String {
    lab.server.reply(Answer::says("done"));
    lab.run("go");
    let before = lab.idle()["sessionId"].clone();
    lab.set("session_before_switch", answers);
    let response = lab.ask(json!({"type": "new_session"}));
    let stays = lab.idle()["sessionId"] == before;
    let cancelled = response["data"]["cancelled"].as_bool().unwrap();
    assert_eq!(stays, cancelled, "{response}");
    if stays { "the session stays".to_owned() } else { "a new session".to_owned() }
}

/// Two turns; the second one's message.
fn two_turns(lab: &mut Lab) -> String {
    for text in ["first", "second"] {
        lab.server.reply(Answer::says(&pad(&format!("answer to {text}"))));
        lab.run(&pad(text));
    }
    let messages = lab.ask(json!({"type": "get_fork_messages"}))["data"]["messages"].clone();
    messages[1]["entryId"].as_str().unwrap().to_owned()
}

fn session_before_fork(lab: &mut Lab, answers: &[&str]) -> String {
    let entry = two_turns(lab);
    let before = lab.idle()["sessionId"].clone();
    lab.set("session_before_fork", answers);
    let response = lab.ask(json!({"type": "fork", "entryId": entry}));
    let state = lab.idle();
    let stays = state["sessionId"] == before;
    assert_eq!(response["data"]["cancelled"], stays, "{response}");
    match state["messageCount"].as_u64().unwrap() {
        4 if stays => "the session stays".to_owned(),
        2 if !stays => "a fork before the message".to_owned(),
        4 => "a fork of the whole branch".to_owned(),
        count => format!("{count} messages"),
    }
}

fn session_before_tree(lab: &mut Lab, answers: &[&str]) -> String {
    let entry = two_turns(lab);
    let leaf = lab.ask(json!({"type": "get_tree"}))["data"]["leafId"].clone();
    let before = lab.server.requests().len();
    lab.set("session_before_tree", answers);
    lab.server.default_summary(Answer::says("summary of the model"));
    let response = lab.ask(json!({"type": "navigate_tree", "targetId": entry, "summarize": true,
        "customInstructions": LETTERS, "label": LETTERS}));
    let tree = lab.ask(json!({"type": "get_tree"}))["data"].clone();
    if response["data"]["cancelled"] == true {
        assert_eq!(tree["leafId"], leaf, "{response}");
        assert_eq!(lab.server.requests().len(), before, "a summary was asked for");
        return "the leaf stays".to_owned();
    }
    assert_ne!(tree["leafId"], leaf, "{response}");
    let messages = lab.ask(json!({"type": "get_messages"}))["data"]["messages"].clone();
    let summary = messages.as_array().unwrap().last().unwrap()["summary"].clone();
    let summary = summary.as_str().unwrap();
    let asked = if lab.server.requests().len() == before {
        String::new()
    } else {
        let request = last_request(&lab.server);
        format!(", asked for with {}", letters(&request["messages"].to_string()))
    };
    let all = crate::session_tree::nodes(&tree);
    let node = all.iter().find(|node| node["type"] == "branch_summary").unwrap();
    let label = letters(node["label"].as_str().unwrap());
    format!("{summary}{asked}; the label is {label}")
}

fn session_before_compact(lab: &mut Lab, answers: &[&str]) -> String {
    two_turns(lab);
    lab.set("session_before_compact", answers);
    lab.server.default_summary(Answer::says("summary of the model"));
    let response = lab.ask(json!({"type": "compact"}));
    let messages = lab.ask(json!({"type": "get_messages"}))["data"]["messages"].clone();
    if response["success"] == false {
        assert_eq!(messages.as_array().unwrap().len(), 4, "{messages}");
        return format!("error: {}", response["error"].as_str().unwrap());
    }
    let summary = response["data"]["summary"].as_str().unwrap().to_owned();
    assert_eq!(messages[0]["summary"], summary, "{messages}");
    summary
}
