//! `navigate_tree` and other commands at the same time: what refuses a move, and what is
//! written right before or after one.

use std::fs;
use std::io::Write as _;
use std::process::Command;

use serde_json::{Value, json};
use wharf_tests::Env;
use wharf_tests::llm::{Answer, LlmServer, Reply};

use crate::lab::{error, serving};
use crate::navigation::{go, moved, to, written_again};
use crate::session_tree::{entries, entry, id_of, leaf, nodes, talked, told, tree};
use crate::story::{accept, rpc_over, session_file, settings, state};

const STREAMING: &str =
    "Cannot navigate the session tree while the agent is streaming. Abort or wait for idle first.";
pub(crate) const SUMMARIZING: &str = "Cannot navigate the session tree while summarization or compaction is in progress. Wait for idle first.";

#[test]
fn not_while_the_agent_is_streaming() {
    let env = Env::new();
    settings(&env, json!({}));
    let server = LlmServer::start();
    server.reply(Answer::says("one"));
    let gate = server.gate();
    server.reply(Reply::from(Answer::says("two")).hold_after(3, &gate));
    let mut wharf = rpc_over(&env, &server, &[]);
    wharf.run("first");
    let first = id_of(&mut wharf, "first");
    wharf.prompt("second");
    gate.wait_reached();
    let before = tree(&mut wharf);
    for command in [
        to(&first),
        json!({"type": "navigate_tree", "targetId": first, "summarize": true, "label": "a"}),
        to(before["leafId"].as_str().unwrap()),
    ] {
        assert_eq!(error(&mut wharf, &command), STREAMING);
    }
    assert_eq!(tree(&mut wharf), before);
    // An abort ends that: in one write the move comes after the end of the run.
    accept(&mut wharf, json!({"type": "abort"}));
    go(&mut wharf, to(&first), &written_again("first"));
    assert_eq!(told(&mut wharf), <[&str; 0]>::default());
    let file = session_file(&mut wharf);
    let stored = entries(&file);
    assert_eq!(stored.last().unwrap()["message"]["stopReason"], "aborted");
    assert_eq!(server.requests().len(), 2);
}

/// What is written after a prompt comes while it streams, however close it is.
#[test]
fn a_prompt_and_a_move_in_one_write() {
    for _ in 0..5 {
        let env = Env::new();
        let mut wharf = talked(&env, &[], &["first", "second"]);
        let second = id_of(&mut wharf, "second");
        let lines = [json!({"id": "p", "type": "prompt", "message": "third"}), {
            let mut command = to(&second);
            command["id"] = json!("n");
            command
        }];
        wharf.send_raw(format!("{}\n{}\n", lines[0], lines[1]).as_bytes());
        let response = wharf.wait_for("the answer", |line| line["id"] == "n");
        assert_eq!(response["error"], STREAMING);
        wharf.wait_event("agent_end");
        assert_eq!(told(&mut wharf).len(), 6);
    }
}

#[test]
fn a_move_and_a_prompt_in_one_write() {
    for _ in 0..5 {
        let env = Env::new();
        let mut wharf = talked(&env, &[], &["first", "second"]);
        let file = session_file(&mut wharf);
        let (second, parent) = (id_of(&mut wharf, "second"), id_of(&mut wharf, "re: first"));
        let third = json!({"id": "p", "type": "prompt", "message": "third"});
        wharf.send_raw(format!("{}\n{third}\n", to(&second)).as_bytes());
        let response = wharf.wait_for("the answer", |line| line["id"] == "p");
        assert_eq!(response["success"], true, "{response}");
        wharf.wait_event("agent_end");
        let expected = ["user: first", "assistant: re: first", "user: third", "assistant: ok"];
        assert_eq!(told(&mut wharf), expected);
        let third = id_of(&mut wharf, "third");
        assert_eq!(entry(&entries(&file), &third)["parentId"], *parent);
    }
}

/// What is chosen after a move holds, and belongs to the branch that it leads to.
#[test]
fn a_move_and_a_choice_of_model_in_one_write() {
    for _ in 0..5 {
        let server = LlmServer::start();
        let env = serving(
            &server,
            &json!([{"id": "one", "reasoning": true}, {"id": "two", "reasoning": true}]),
        );
        server.default_reply(Answer::says("answer"));
        let mut wharf = env.rpc(&["--model", "fake/one", "--thinking", "low"]);
        wharf.run("first");
        wharf.run("second");
        let file = session_file(&mut wharf);
        let count = entries(&file).len();
        let second = id_of(&mut wharf, "second");
        let lines = [
            to(&second),
            json!({"id": "m", "type": "set_model", "provider": "fake", "modelId": "two"}),
            json!({"id": "l", "type": "set_thinking_level", "level": "high"}),
        ];
        let lines: Vec<String> = lines.iter().map(|line| format!("{line}\n")).collect();
        wharf.send_raw(lines.concat().as_bytes());
        for (what, id) in
            [("navigate_tree", None), ("set_model", Some("m")), ("set_thinking_level", Some("l"))]
        {
            let response = wharf.wait_for(what, |line| {
                line["command"] == what && line.get("id").and_then(Value::as_str) == id
            });
            assert_eq!(response["success"], true, "{response}");
        }
        let now = state(&mut wharf);
        assert_eq!((&now["model"]["id"], &now["thinkingLevel"]), (&json!("two"), &json!("high")));
        wharf.run("third");
        assert_eq!(server.requests().last().unwrap().body["model"], "two");
        let stored = entries(&file);
        let kinds: Vec<&Value> = stored[count..].iter().map(|entry| &entry["type"]).collect();
        assert_eq!(kinds, ["model_change", "thinking_level_change", "message", "message"]);
        assert_eq!(stored[count]["parentId"], entry(&stored, &second)["parentId"]);
    }
}

/// The compaction is of the branch that the move leads to.
#[test]
fn a_move_and_a_compaction_in_one_write() {
    for _ in 0..5 {
        let env = Env::new();
        settings(&env, json!({}));
        let server = LlmServer::start();
        server.default_reply(Answer::says(&"answer ".repeat(20)));
        server.default_summary(Answer::says("THE SUMMARY"));
        let mut wharf = rpc_over(&env, &server, &[]);
        for prompt in ["first", "second", "third"] {
            wharf.run(prompt);
        }
        let third = id_of(&mut wharf, "third");
        let mut navigate = to(&third);
        navigate["id"] = json!("n");
        let compact = json!({"id": "c", "type": "compact"});
        wharf.send_raw(format!("{navigate}\n{compact}\n").as_bytes());
        let response = wharf.wait_for("the answer", |line| line["id"] == "n");
        assert_eq!(response["data"], written_again("third"));
        let response = wharf.wait_for("the answer", |line| line["id"] == "c");
        assert_eq!(response["success"], true, "{response}");
        let conversation = told(&mut wharf);
        assert!(conversation[0].starts_with("compactionSummary: "), "{conversation:?}");
        assert!(!conversation.iter().any(|line| line.contains("third")), "{conversation:?}");
        let asked =
            server.requests()[3..].iter().map(|one| one.body.to_string()).collect::<String>();
        assert!(asked.contains("first") && !asked.contains("third"), "{asked}");
    }
}

/// What a person runs meanwhile belongs to where the leaf is when it is done.
#[test]
fn a_shell_command_during_a_move() {
    let env = Env::new();
    let mut wharf = talked(&env, &[], &["first", "second"]);
    let (second, parent) = (id_of(&mut wharf, "second"), id_of(&mut wharf, "re: first"));
    let fifo = env.project().join("fifo");
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    wharf.send(&json!({"id": "b", "type": "bash", "command": "cat fifo"}));
    // Waits until the command reads.
    let mut pipe = fs::OpenOptions::new().write(true).open(&fifo).unwrap();
    go(&mut wharf, to(&second), &written_again("second"));
    pipe.write_all(b"out of the pipe").unwrap();
    drop(pipe);
    let response = wharf.wait_for("the answer", |line| line["id"] == "b");
    assert_eq!(response["success"], true, "{response}");
    assert_eq!(
        told(&mut wharf),
        ["user: first", "assistant: re: first", "bashExecution: cat fifo"]
    );
    let nodes = nodes(&tree(&mut wharf));
    let shell = nodes.iter().find(|node| node["role"] == "bashExecution").unwrap();
    assert_eq!(shell["parentId"], *parent);
}

/// Each is made, and the last one decides: none of them sums up anything.
#[test]
fn many_moves_in_one_write() {
    let env = Env::new();
    let mut wharf = talked(&env, &[], &["first", "second", "third"]);
    let targets = [
        id_of(&mut wharf, "re: third"),
        id_of(&mut wharf, "second"),
        id_of(&mut wharf, "re: first"),
        id_of(&mut wharf, "re: second"),
    ];
    let mut lines = String::new();
    for number in 0..20 {
        let mut command = to(&targets[number % 4]);
        command["id"] = json!(number);
        lines.push_str(&format!("{command}\n"));
    }
    wharf.send_raw(lines.as_bytes());
    for number in 0..20 {
        let response = wharf.wait_for("an answer", |line| line["id"] == number);
        assert_eq!(response["success"], true, "{response}");
    }
    assert_eq!(leaf(&mut wharf), *targets[3]);
    assert_eq!(told(&mut wharf).len(), 4);
}

#[test]
fn not_while_a_compaction_runs() {
    let env = Env::new();
    settings(&env, json!({}));
    let server = LlmServer::start();
    server.default_reply(Answer::says(&"answer ".repeat(20)));
    let mut wharf = rpc_over(&env, &server, &[]);
    wharf.run("first");
    wharf.run("second");
    let first = id_of(&mut wharf, "first");
    let gate = server.gate();
    server.default_summary(Reply::from(Answer::says("THE SUMMARY")).hold(&gate));
    wharf.send(&json!({"id": "c", "type": "compact"}));
    gate.wait_reached();
    let before = tree(&mut wharf);
    assert_eq!(error(&mut wharf, &to(&first)), SUMMARIZING);
    let summarize = json!({"type": "navigate_tree", "targetId": first, "summarize": true});
    assert_eq!(error(&mut wharf, &summarize), SUMMARIZING);
    assert_eq!(tree(&mut wharf), before);
    gate.open();
    let response = wharf.wait_for("the answer", |line| line["id"] == "c");
    assert_eq!(response["success"], true, "{response}");
    assert!(told(&mut wharf)[0].starts_with("compactionSummary: THE SUMMARY"));
    // Before the compaction there is the whole conversation.
    let file = session_file(&mut wharf);
    let stored = entries(&file);
    let above = stored.last().unwrap()["parentId"].as_str().unwrap().to_owned();
    go(&mut wharf, to(&above), &moved());
    let whole = told(&mut wharf);
    assert_eq!((whole.len(), whole[0].as_str()), (4, "user: first"));
    server.reply(Answer::says("three"));
    wharf.run("third");
    let requests = server.requests();
    let sent = requests.last().unwrap().body["messages"].to_string();
    assert!(sent.contains("first") && !sent.contains("THE SUMMARY"), "{sent}");
}
