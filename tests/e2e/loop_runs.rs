//! Long tool loops: their order, what is stored of them, and what runs say of
//! themselves where they begin and end.

use std::process::Stdio;

use insta::assert_snapshot;
use serde_json::{Value, json};
use wharf_tests::llm::{Answer, Api, LlmServer};
use wharf_tests::script::{bash, says};
use wharf_tests::{Env, SessionFile};

use crate::order::{count, texts};
use crate::story::{
    announced, assert_consistent, assert_stored, get_messages, rpc_over, session_file, settings,
    state, story,
};

fn call(id: &str, tool: &str, arguments: Value) -> Value {
    json!({"type": "toolCall", "id": id, "name": tool, "arguments": arguments})
}

/// Ten replies of five calls each, in each of them one that builds on the reply before;
/// `c18` fails.
fn fifty_calls() -> Vec<Value> {
    let mut replies: Vec<Value> = (0..10)
        .map(|turn| {
            let id = |n: usize| format!("c{}", turn * 5 + n);
            let mine = format!("f{turn}.txt");
            let before = if turn == 3 {
                "missing.txt".to_owned()
            } else {
                format!("f{}.txt", usize::saturating_sub(turn, 1))
            };
            let second = match turn {
                0 => call(&id(1), "ls", json!({"path": "."})),
                _ if turn % 2 == 0 => call(
                    &id(1),
                    "edit",
                    json!({"path": before, "oldText": "line 1", "newText": "changed"}),
                ),
                _ => call(&id(1), "ls", json!({"path": "."})),
            };
            let third = match turn {
                0 => call(&id(3), "bash", json!({"command": "echo 0"})),
                // In another reply than the edit of the same file.
                3 => call(&id(3), "read", json!({"path": before})),
                _ if turn % 2 == 1 => call(&id(3), "read", json!({"path": before})),
                _ => call(&id(3), "find", json!({"pattern": "*.none"})),
            };
            json!({"content": [
                {"type": "text", "text": format!("turn {turn}")},
                call(&id(0), "write", json!({"path": mine, "content": "line 1\nline 2\n"})),
                second,
                call(&id(2), "grep", json!({"pattern": "nothing-like-it", "path": "."})),
                third,
                call(&id(4), "bash", json!({"command": format!("echo out {turn}")})),
            ]})
        })
        .collect();
    replies.push(says("all done"));
    replies
}

#[test]
fn fifty_calls_in_one_run() {
    let env = Env::new();
    let model = env.script(&fifty_calls());
    let output = env
        .command()
        .args(["--mode", "json", "--model", &model, "go"])
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!((output.status.code(), &*errors), (Some(0), ""));
    let text = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(assert_consistent(&lines), 1);
    assert_eq!(count(&lines, "tool_execution_end"), 50);
    assert_snapshot!("fifty_calls", story(&lines));
    // What the tools did is there, and the model was told of the one that failed.
    let read = |name: &str| std::fs::read_to_string(env.project().join(name)).unwrap();
    assert_eq!(read("f9.txt"), "line 1\nline 2\n");
    assert_eq!(read("f1.txt"), "changed\nline 2\n");
    let failed: Vec<&Value> = lines
        .iter()
        .filter(|line| line["type"] == "tool_execution_end" && line["isError"] == true)
        .collect();
    assert_eq!(failed.len(), 1, "{failed:?}");
    assert_eq!(failed[0]["toolCallId"], "c18");
    // The file tells the same.
    let folder = std::fs::read_dir(env.agent_dir().join("sessions")).unwrap().next().unwrap();
    let file = std::fs::read_dir(folder.unwrap().path()).unwrap().next().unwrap().unwrap();
    let session = assert_stored(&file.path(), &lines);
    assert_eq!(session.header["id"], lines[0]["id"]);
    assert_eq!(session.messages().len(), 1 + 10 * 6 + 1);
}

#[test]
fn a_tool_starts_after_its_start_was_told_also_when_many_are_called() {
    let env = Env::new();
    let wait = |id: &str| {
        let command = format!("while [ ! -e {id}.go ]; do sleep 0.01; done; echo {id}");
        call(id, "bash", json!({"command": command}))
    };
    let ids = ["a", "b", "c", "d", "e"];
    let calls: Vec<Value> = ids.iter().map(|id| wait(id)).collect();
    let model = env.script(&[json!({"content": calls}), says("done")]);
    let mut wharf = env.rpc_with(&[], &model);
    wharf.prompt("go");
    for id in ids {
        wharf.wait_for("a start", |line| {
            line["type"] == "tool_execution_start" && line["toolCallId"] == id
        });
    }
    // The last one ends first; nothing of it is told before the first one's end.
    for id in ids.iter().rev() {
        env.write(&format!("{id}.go"), "");
    }
    let run = wharf.take_until("agent_end");
    let ends: Vec<&str> = run
        .iter()
        .filter(|line| line["type"] == "tool_execution_end")
        .map(|line| line["toolCallId"].as_str().unwrap())
        .collect();
    assert_eq!(ends, ids);
    let file = session_file(&mut wharf);
    let exit = wharf.finish();
    assert_eq!(assert_consistent(&exit.all), 1);
    assert_stored(&file, &exit.all);
}

/// The model is sent exactly what the events told, in the same order, in each request.
#[test]
fn each_request_carries_the_results_in_source_order() {
    let env = Env::new();
    settings(&env, json!({}));
    let server = LlmServer::start();
    let slow = json!({"command": "while [ ! -e go ]; do sleep 0.01; done; echo slow"});
    let quick = json!({"command": "echo quick; touch go"});
    server.reply(Answer::default().call("toolu_1", "bash", &slow).call("toolu_2", "bash", &quick));
    server.reply(Answer::says("done"));
    let mut wharf = rpc_over(&env, &server, &[]);
    wharf.run("go");
    let second = &server.wait_for_requests(2)[1].body;
    let sent = second["messages"].as_array().unwrap();
    let results: Vec<(&str, &str)> = sent.last().unwrap()["content"]
        .as_array()
        .unwrap()
        .iter()
        .map(|block| {
            let content = &block["content"];
            let text = content.as_str().or_else(|| content[0]["text"].as_str());
            (block["tool_use_id"].as_str().unwrap(), text.unwrap())
        })
        .collect();
    assert_eq!(results, [("toolu_1", "slow\n"), ("toolu_2", "quick\n")]);
    assert_eq!(assert_consistent(&wharf.finish().all), 1);
}

/// The second model of a server that thinks.
fn start_with(env: &Env, server: &LlmServer, reasoning: bool, args: &[&str]) -> wharf_tests::Wharf {
    let model = json!({"reasoning": reasoning, "maxTokens": 64_000, "contextWindow": 200_000});
    env.write_agent("models.json", server.models_json(Api::AnthropicMessages, &model));
    env.rpc(&[&["--model", "fake/fake-1"], args].concat())
}

#[test]
fn a_run_says_which_model_is_asked_and_with_which_level() {
    for (reasoning, asked, effective) in
        [(true, "high", "high"), (true, "off", "off"), (false, "high", "off")]
    {
        let env = Env::new();
        settings(&env, json!({}));
        let server = LlmServer::start();
        server.default_reply(Answer::says("ok"));
        let mut wharf = start_with(&env, &server, reasoning, &["--thinking", asked]);
        let run = wharf.run("go");
        let start = &run[0];
        assert_eq!(
            *start,
            json!({
                "type": "agent_start",
                "model": {"provider": "fake", "id": "fake-1"},
                "thinkingLevel": effective,
            })
        );
        assert_eq!(state(&mut wharf)["thinkingLevel"], effective);
        let body = &server.requests()[0].body;
        let thinks = body.get("thinking").is_some_and(|thinking| thinking["type"] != "disabled");
        assert_eq!(thinks, effective != "off", "{body}");
    }
}

#[test]
fn a_level_set_during_a_run_is_told_by_the_next_one() {
    let env = Env::new();
    settings(&env, json!({}));
    let server = LlmServer::start();
    let gate = server.gate();
    server.reply(Answer::says("one").in_pieces(2));
    server.reply(wharf_tests::llm::Reply::from(Answer::says("two")).hold(&gate));
    server.reply(Answer::says("three"));
    let mut wharf = start_with(&env, &server, true, &["--thinking", "low"]);
    assert_eq!(wharf.run("a")[0]["thinkingLevel"], "low");
    wharf.prompt("b");
    gate.wait_reached();
    wharf.wait_event("agent_start");
    let response = wharf.request(json!({"type": "set_thinking_level", "level": "high"}));
    assert_eq!(response["success"], true);
    gate.open();
    wharf.take_until("agent_end");
    assert_eq!(wharf.run("c")[0]["thinkingLevel"], "high");
    let file = session_file(&mut wharf);
    let exit = wharf.finish();
    assert_eq!(assert_consistent(&exit.all), 3);
    let session = assert_stored(&file, &exit.all);
    let levels: Vec<&Value> = session
        .of_type("thinking_level_change")
        .iter()
        .map(|entry| &entry["thinkingLevel"])
        .collect();
    assert_eq!(levels, ["low", "high"]);
}

/// Text, thinking and a whole call of an attempt that is given up leave nothing behind.
#[test]
fn nothing_of_a_void_attempt_is_in_the_ends_of_turn_and_run() {
    let env = Env::new();
    settings(&env, json!({}));
    let half = |name: &str| {
        vec![
            json!({"type": "thinking", "thinking": format!("void thought {name}")}),
            json!({"type": "text", "text": format!("void {name}")}),
            call(&format!("void_{name}"), "bash", json!({"command": "touch void-ran"})),
        ]
    };
    let overloaded = json!({"status": 529, "body": "overloaded"});
    let model = env.script(&[
        json!({"content": half("dropped"), "drop": true}),
        json!({"content": half("failed"), "error": overloaded}),
        bash("echo real"),
        json!({"content": half("dropped again"), "drop": true}),
        json!({"content": half("failed again"), "error": overloaded}),
        says("done"),
    ]);
    let mut wharf = env.rpc_with(&[], &model);
    let run = wharf.run("go");
    assert_eq!(texts(&run, "assistant"), ["", "done"]);
    assert_snapshot!("void_attempts", story(&run));
    let told = announced(&run);
    assert_eq!(get_messages(&mut wharf), told);
    for line in run.iter().filter(|line| {
        ["turn_end", "agent_end", "message_end"].iter().any(|kind| line["type"] == *kind)
    }) {
        assert!(!line.to_string().contains("void"), "{line}");
    }
    assert!(!std::fs::exists(env.project().join("void-ran")).unwrap(), "a void call ran");
    let file = session_file(&mut wharf);
    let exit = wharf.finish();
    assert_eq!(assert_consistent(&exit.all), 1);
    assert_stored(&file, &exit.all);
    assert!(!std::fs::read_to_string(&file).unwrap().contains("void"));
    assert_eq!(SessionFile::read(&file).of_type("message").len(), 4);
}
