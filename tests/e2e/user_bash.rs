//! Commands that a person runs: `bash` and `abort_bash` over RPC, `!` and `!!` in a
//! one-shot run, and how their output reaches the model.

use std::fs;
use std::process::{Output, Stdio};

use serde_json::{Value, json};
use wharf_tests::llm::{Answer, Api, LlmServer, Reply};
use wharf_tests::{Env, SessionFile, Wharf};

use crate::lab::{done, error, sent, serving, session_path, state};
use crate::order::{assert_documented_order, count};

fn bash(command: &str) -> Value {
    json!({"type": "bash", "command": command})
}

/// A session without a model; nothing here needs one.
fn start(env: &Env) -> Wharf {
    env.rpc(&["--model", "scripted/demo"])
}

fn messages(wharf: &mut Wharf) -> Vec<Value> {
    let data = wharf.data(json!({"type": "get_messages"}));
    data["messages"].as_array().unwrap().clone()
}

fn served() -> (LlmServer, Env) {
    let server = LlmServer::start();
    server.default_reply(Answer::says("ok"));
    let env = serving(&server, &json!([{"id": "m"}]));
    (server, env)
}

const MODEL: [&str; 2] = ["--model", "fake/m"];

#[test]
fn the_result_is_as_documented_and_no_event_tells_of_it() {
    let env = Env::new();
    let mut wharf = start(&env);
    let response = wharf.request(bash("echo out; echo err >&2; pwd -P"));
    let output = format!("out\nerr\n{}\n", env.project().display());
    let expected = json!({
        "type": "response", "id": response["id"], "command": "bash", "success": true,
        "data": {"output": output, "exitCode": 0, "cancelled": false, "truncated": false},
    });
    assert_eq!(response, expected);
    let [message] = &messages(&mut wharf)[..] else { panic!("{}", wharf.transcript()) };
    let mut message = message.clone();
    assert!(message["timestamp"].is_u64());
    message.as_object_mut().unwrap().remove("timestamp");
    let expected = json!({
        "role": "bashExecution", "command": "echo out; echo err >&2; pwd -P", "output": output,
        "exitCode": 0, "cancelled": false, "truncated": false,
    });
    assert_eq!(message, expected);
    let exit = wharf.finish();
    assert!(exit.all.iter().all(|line| line["type"] == "response"), "{}", exit.transcript);
}

#[test]
fn exit_codes_and_signals() {
    let env = Env::new();
    let mut wharf = start(&env);
    for (command, code) in [
        ("exit 3", 3),
        ("exit 255", 255),
        ("no-such-command-here", 127),
        ("kill -9 $$", 137),
        ("true", 0),
        ("kill -TERM $$", 143),
    ] {
        let data = wharf.data(bash(command));
        assert_eq!(
            (&data["exitCode"], &data["cancelled"]),
            (&json!(code), &json!(false)),
            "{command}"
        );
    }
    assert_eq!(wharf.data(bash("true"))["output"], "");
    assert_eq!(wharf.data(bash(""))["exitCode"], 0);
    // Standard input is empty, not the client's.
    let data = wharf.data(bash("cat; echo end"));
    assert_eq!(data["output"], "end\n");
}

#[test]
fn a_shell_that_is_not_there_is_an_error_and_no_message() {
    let env = Env::new();
    env.write_agent("settings.json", json!({"shellPath": "/no/such/shell"}).to_string());
    let mut wharf = start(&env);
    let problem = error(&mut wharf, &bash("true"));
    assert!(problem.contains("/no/such/shell"), "{problem}");
    assert!(messages(&mut wharf).is_empty());
}

#[test]
fn a_command_that_no_process_can_be_given_is_an_error_and_no_message() {
    let env = Env::new();
    let mut wharf = start(&env);
    for command in ["echo a\0b".to_owned(), format!("echo {}", "x".repeat(3_000_000))] {
        let problem = error(&mut wharf, &bash(&command));
        assert!(problem.len() < 1000, "{}", problem.len());
    }
    assert!(messages(&mut wharf).is_empty());
    assert_eq!(wharf.data(bash("echo fine"))["output"], "fine\n");
    fs::remove_dir(env.project()).unwrap();
    let problem = error(&mut wharf, &bash("echo fine"));
    assert!(problem.contains("project"), "{problem}");
}

#[test]
fn json_mode_prints_events_and_no_output_of_a_command() {
    let env = Env::new();
    let output = one_shot(&env, &["--mode", "json", "--model", "scripted/demo", "!echo hi"]);
    assert_eq!(output.status.code(), Some(0));
    let text = stdout(&output);
    let kinds: Vec<String> = text
        .lines()
        .map(|line| {
            serde_json::from_str::<Value>(line).unwrap()["type"].as_str().unwrap().to_owned()
        })
        .collect();
    assert_eq!(kinds, ["session", "agent_end"]);
}

#[test]
fn the_settings_shape_the_command() {
    let env = Env::new();
    let settings = json!({"shellPath": "/bin/sh", "shellCommandPrefix": "X=set # remark"});
    env.write_agent("settings.json", settings.to_string());
    let mut wharf = start(&env);
    assert_eq!(wharf.data(bash("echo $0 $X"))["output"], "/bin/sh set\n");
    assert_eq!(messages(&mut wharf)[0]["command"], "echo $0 $X");
}

#[test]
fn long_output_keeps_its_end_and_names_a_file_with_all_of_it() {
    let env = Env::new();
    let mut wharf = start(&env);
    for (command, total) in [
        ("seq 1 5000", 23_893),
        ("head -c 300000 /dev/zero | tr '\\0' x; echo END", 300_004),
        ("yes äöü | head -n 30000; echo END", 7 * 30_000 + 4),
    ] {
        let data = wharf.data(bash(command));
        assert_eq!((&data["truncated"], &data["exitCode"]), (&json!(true), &json!(0)), "{command}");
        let output = data["output"].as_str().unwrap();
        assert!(
            output.len() <= 50_000 && output.lines().count() <= 2000,
            "{command}: {}",
            output.len()
        );
        let path = data["fullOutputPath"].as_str().unwrap();
        let full = fs::read_to_string(path).unwrap();
        assert_eq!(full.len(), total, "{command}");
        assert!(full.ends_with(output), "{command}: it is not the end of it");
        assert!(output.len() > 8_000, "{command}: too little is left: {}", output.len());
        let last = messages(&mut wharf).pop().unwrap();
        assert_eq!(last["fullOutputPath"], path);
        assert_eq!(last["output"], output);
    }
}

#[test]
fn control_sequences_and_progress_are_taken_out() {
    let env = Env::new();
    let mut wharf = start(&env);
    for (command, expect) in [
        (r"printf '\033[1;31mred\033[0m\n'", "red\n"),
        (r"printf '10%%\r50%%\r100%%\n'", "100%\n"),
        (r"printf 'a\r\nb\r\n'", "a\nb\n"),
        (r"printf '\033]0;title\007text\n'", "text\n"),
        (r"printf 'long line\rshort\n'", "shortline\n"),
    ] {
        let output = wharf.data(bash(command))["output"].clone();
        let text = output.as_str().unwrap();
        if command.contains("long line") {
            // A terminal leaves the rest of the longer line; either is sensible.
            assert!(text == expect || text == "short\n", "{text:?}");
        } else {
            assert_eq!(text, expect, "{command}");
        }
    }
}

#[test]
fn binary_output_is_named_as_such() {
    let env = Env::new();
    let mut wharf = start(&env);
    let data = wharf.data(bash("head -c 5000 /dev/urandom; printf '\\0\\0\\0'"));
    let output = data["output"].as_str().unwrap();
    assert!(output.contains("binary"), "nothing says so: {output:?}");
    // Single odd bytes are no reason to hide a text.
    let data = wharf.data(bash(r"printf 'caf\351 au lait\n'"));
    let output = data["output"].as_str().unwrap();
    assert!(output.starts_with("caf") && output.ends_with(" au lait\n"), "{output:?}");
}

#[test]
fn a_background_child_does_not_hold_the_answer() {
    let env = Env::new();
    let mut wharf = start(&env);
    let data = wharf
        .data(bash("(while [ ! -e stop ]; do sleep 0.01; done; touch stopped) & echo started"));
    assert_eq!((&data["output"], &data["exitCode"]), (&json!("started\n"), &json!(0)));
    // It is still there.
    assert_eq!(
        wharf.data(bash("touch stop; while [ ! -e stopped ]; do sleep 0.01; done; echo seen"))["output"],
        "seen\n"
    );
}

/// Waits until a command has made a file.
fn wait_file(env: &Env, name: &str) {
    let path = env.project().join(name);
    let mut wharf = start(env);
    let command = format!("while [ ! -e {name} ]; do sleep 0.01; done");
    assert_eq!(wharf.data(bash(&command))["exitCode"], 0);
    assert!(path.exists());
}

#[test]
fn abort_bash_ends_the_whole_group() {
    let env = Env::new();
    let mut wharf = start(&env);
    let command = "echo before; (sleep 1000 & echo $! > child; wait) & touch up; wait";
    wharf.send(&json!({"id": "b", "type": "bash", "command": command}));
    wait_file(&env, "child");
    done(&mut wharf, &json!({"type": "abort_bash"}));
    let response = wharf.wait_for("the answer", |line| line["id"] == "b");
    let expected = json!({
        "type": "response", "id": "b", "command": "bash", "success": true,
        "data": {"output": "before\n", "cancelled": true, "truncated": false},
    });
    assert_eq!(response, expected);
    let last = messages(&mut wharf).pop().unwrap();
    assert_eq!((&last["cancelled"], &last["output"]), (&json!(true), &json!("before\n")));
    assert!(last["exitCode"].is_null(), "{last}");
    let pid = fs::read_to_string(env.project().join("child")).unwrap();
    // A zombie that nobody has reaped yet counts as gone.
    let check = format!(
        "while kill -0 {0} && ! grep -q ') Z ' /proc/{0}/stat; do sleep 0.01; done 2>/dev/null",
        pid.trim()
    );
    wharf.data(bash(&check));
}

#[test]
fn a_command_that_ignores_sigterm_is_killed() {
    let env = Env::new();
    let mut wharf = start(&env);
    wharf.send(&json!({"id": "b", "type": "bash", "command": "trap 'echo no' TERM; touch up; while :; do sleep 0.05; done"}));
    wait_file(&env, "up");
    done(&mut wharf, &json!({"type": "abort_bash"}));
    let response = wharf.wait_for("the answer", |line| line["id"] == "b");
    assert_eq!(response["data"]["cancelled"], true, "{response}");
}

#[test]
fn abort_bash_without_a_command_and_before_one() {
    let env = Env::new();
    let mut wharf = start(&env);
    done(&mut wharf, &json!({"type": "abort_bash"}));
    assert_eq!(wharf.data(bash("echo fine"))["output"], "fine\n");
    done(&mut wharf, &json!({"type": "abort_bash"}));
}

/// The abort means what was written before it.
#[test]
fn abort_bash_in_one_write_with_its_command() {
    let env = Env::new();
    let mut wharf = start(&env);
    wharf.send_raw(
        format!("{}\n{}\n", json!({"id": "b", "type": "bash", "command": "for i in $(seq 200); do sleep 0.01; done"}), json!({"id": "a", "type": "abort_bash"}))
            .as_bytes(),
    );
    let response = wharf.wait_for("the answer", |line| line["id"] == "b");
    assert_eq!(response["data"]["cancelled"], true, "{response}");
}

#[test]
fn an_abort_of_the_run_leaves_a_persons_command_alone() {
    let env = Env::new();
    let mut wharf = start(&env);
    wharf.send(&json!({"id": "b", "type": "bash", "command": "touch up; while [ ! -e go ]; do sleep 0.01; done; echo whole"}));
    wait_file(&env, "up");
    done(&mut wharf, &json!({"type": "abort"}));
    env.write("go", "");
    let response = wharf.wait_for("the answer", |line| line["id"] == "b");
    assert_eq!(response["data"]["output"], "whole\n");
}

#[test]
fn two_commands_run_at_once_and_both_are_aborted() {
    let env = Env::new();
    let mut wharf = start(&env);
    // Neither can end without the other.
    let pair = |mine: &str, other: &str| {
        format!("touch {mine}; while [ ! -e {other} ]; do sleep 0.01; done; echo {mine}")
    };
    wharf.send(&json!({"id": "x", "type": "bash", "command": pair("one", "two")}));
    wharf.send(&json!({"id": "y", "type": "bash", "command": pair("two", "one")}));
    for (id, expect) in [("x", "one\n"), ("y", "two\n")] {
        let response = wharf.wait_for("an answer", |line| line["id"] == id);
        assert_eq!(response["data"]["output"], expect);
    }
    assert_eq!(messages(&mut wharf).len(), 2);
    for id in ["x", "y"] {
        wharf.send(
            &json!({"id": id, "type": "bash", "command": format!("touch up-{id}; sleep 1000")}),
        );
        wait_file(&env, &format!("up-{id}"));
    }
    done(&mut wharf, &json!({"type": "abort_bash"}));
    for id in ["x", "y"] {
        let response = wharf.wait_for("an answer", |line| line["id"] == id);
        assert_eq!(response["data"]["cancelled"], true);
    }
}

#[test]
fn whoever_has_an_answer_finds_its_message() {
    let env = Env::new();
    let mut wharf = start(&env);
    for round in 1..=5 {
        let lines: String = (0..20)
            .map(|id| format!("{}\n", json!({"id": id, "type": "bash", "command": "true"})))
            .collect();
        wharf.send_raw(lines.as_bytes());
        for _ in 0..20 {
            let response = wharf.wait_for("an answer", |line| line["command"] == "bash");
            assert_eq!(response["data"]["exitCode"], 0);
        }
        assert_eq!(messages(&mut wharf).len(), round * 20);
    }
}

#[test]
fn the_model_reads_the_output_with_the_next_prompt() {
    for api in Api::ALL {
        let server = LlmServer::start();
        server.default_reply(Answer::says("ok"));
        let env = Env::new();
        env.write_agent("settings.json", crate::lab::quiet().to_string());
        env.write_agent("models.json", server.models_json(api, &json!({})));
        let mut wharf = env.rpc(&["--model", "fake/fake-1"]);
        wharf.data(bash("printf 'one\\ntwo\\n'"));
        wharf.data(bash("echo three"));
        assert!(server.requests().is_empty(), "a command asked the model");
        let run = wharf.run("what was it?");
        assert_eq!(assert_documented_order(&run), 1);
        let body = server.requests()[0].body.to_string();
        let text = |text: &str| {
            let quoted = json!(text).to_string();
            quoted[1..quoted.len() - 1].to_owned()
        };
        for wanted in
            ["Ran `printf 'one\\ntwo\\n'`\n```\none\ntwo\n", "Ran `echo three`\n```\nthree\n"]
        {
            assert!(body.contains(&text(wanted)), "{}: {wanted:?} is not in: {body}", api.name());
        }
        let at = |part: &str| body.find(&text(part)).unwrap();
        let order = ["```\none\ntwo\n", "```\nthree\n", "what was it?"].map(at);
        assert!(order.is_sorted(), "{body}");
        // And with all that follow.
        wharf.run("again");
        assert!(server.requests()[1].body.to_string().contains(&text("```\nthree\n")));
    }
}

#[test]
fn the_text_for_the_model_is_the_documented_one() {
    let (server, env) = served();
    let mut wharf = env.rpc(&MODEL);
    wharf.data(bash("echo total 48"));
    wharf.data(bash("exit 4"));
    wharf.run("hi");
    let text = sent(&server.requests()[0], "user").join("\n");
    // The fence is on the line after the output's last.
    assert!(text.starts_with("Ran `echo total 48`\n```\ntotal 48\n```\n"), "{text:?}");
    assert!(text.contains("Ran `exit 4`\n```\n") && text.contains("code 4"), "{text:?}");
    assert!(text.ends_with("hi"), "{text:?}");
}

#[test]
fn what_is_excluded_is_in_the_session_and_not_at_the_model() {
    let (server, env) = served();
    let mut wharf = env.rpc(&MODEL);
    wharf.data(json!({"type": "bash", "command": "echo hidden-thing", "excludeFromContext": true}));
    wharf.data(json!({"type": "bash", "command": "echo shown-thing", "excludeFromContext": false}));
    wharf.data(json!({"type": "bash", "command": "echo plain-thing", "excludeFromContext": null}));
    wharf.run("hi");
    let body = server.requests()[0].body.to_string();
    assert!(!body.contains("hidden-thing"), "{body}");
    assert!(body.contains("shown-thing") && body.contains("plain-thing"), "{body}");
    let all = messages(&mut wharf);
    assert_eq!(all[0]["excludeFromContext"], true);
    assert!(all[1].get("excludeFromContext").is_none_or(|value| value == false), "{}", all[1]);
}

#[test]
fn the_session_file_has_them_and_a_reopened_one_too() {
    let (server, env) = served();
    let mut wharf = env.rpc(&MODEL);
    wharf.data(bash("echo one"));
    wharf.data(json!({"type": "bash", "command": "echo secret", "excludeFromContext": true}));
    wharf.run("hi");
    wharf.data(bash("exit 2"));
    let before = messages(&mut wharf);
    let file = session_path(&mut wharf);
    assert_eq!(wharf.finish().code, Some(0));
    let session = SessionFile::read(&file);
    session.assert_linear();
    assert_eq!(session.messages(), before);
    let mut wharf = env.rpc(&["--session", file.to_str().unwrap(), "--model", "fake/m"]);
    assert_eq!(messages(&mut wharf), before);
    wharf.run("again");
    let body = server.requests()[1].body.to_string();
    assert!(
        body.contains("echo one") && body.contains("exit 2") && !body.contains("secret"),
        "{body}"
    );
}

#[test]
fn a_command_before_the_first_message_is_one() {
    let env = Env::new();
    let mut wharf = start(&env);
    let file = session_path(&mut wharf);
    assert!(!file.exists());
    wharf.data(bash("echo one"));
    assert_eq!(state(&mut wharf)["messageCount"], 1);
    assert_eq!(wharf.finish().code, Some(0));
    // Whether the file is there already is not fixed; if it is, it is whole.
    if file.exists() {
        assert_eq!(SessionFile::read(&file).messages().len(), 1);
    }
}

#[test]
fn during_a_run_the_result_waits_and_comes_not_between_a_call_and_its_result() {
    let (server, env) = served();
    let gate = server.gate();
    let call = Answer::default().call(
        "a",
        "bash",
        &json!({"command": "while [ ! -e go ]; do sleep 0.01; done; echo called"}),
    );
    server.reply(call);
    server.reply(Reply::from(Answer::says("mid")).hold(&gate));
    let mut wharf = env.rpc(&MODEL);
    wharf.prompt("go");
    wharf.wait_event("tool_execution_start");
    // The answer comes at once, though the run goes on.
    assert_eq!(wharf.data(bash("echo during-call"))["output"], "during-call\n");
    assert_eq!(state(&mut wharf)["isStreaming"], true);
    env.write("go", "");
    gate.wait_reached();
    let second = server.requests()[1].body.clone();
    assert_eq!(wharf.data(bash("echo during-reply"))["output"], "during-reply\n");
    gate.open();
    let run = wharf.take_until("agent_end");
    assert_eq!(count(&run, "agent_end"), 1);
    wharf.run("next");
    // In the documented format, after the result; the server refuses anything between.
    let texts = sent(&server.requests()[2], "user");
    assert!(texts.iter().any(|text| text.contains("during-call")), "{texts:?}");
    assert!(texts.iter().any(|text| text.contains("during-reply")), "{texts:?}");
    assert!(second["messages"].as_array().unwrap().iter().any(|m| m["role"] == "tool"));
    let all = messages(&mut wharf);
    let roles: Vec<&str> = all.iter().map(|m| m["role"].as_str().unwrap()).collect();
    assert_eq!(
        roles,
        [
            "user",
            "assistant",
            "toolResult",
            "bashExecution",
            "assistant",
            "bashExecution",
            "user",
            "assistant"
        ]
    );
    let session = SessionFile::read(&session_path(&mut wharf));
    session.assert_linear();
    assert_eq!(session.messages(), all);
}

#[test]
fn a_command_that_ends_after_the_run_it_began_in() {
    let (server, env) = served();
    let mut wharf = env.rpc(&MODEL);
    wharf.send(&json!({"id": "b", "type": "bash", "command": "touch up; while [ ! -e go ]; do sleep 0.01; done; echo tardy-thing"}));
    wait_file(&env, "up");
    wharf.run("first");
    env.write("go", "");
    wharf.wait_for("the answer", |line| line["id"] == "b");
    wharf.run("second");
    let first = server.requests()[0].body.to_string();
    let second = server.requests()[1].body.to_string();
    assert!(!first.contains("tardy-thing") && second.contains("tardy-thing"), "{second}");
}

#[test]
fn a_new_session_does_not_get_the_commands_of_the_old() {
    let (server, env) = served();
    let mut wharf = env.rpc(&MODEL);
    wharf.data(bash("echo old"));
    wharf.data(json!({"type": "new_session"}));
    assert!(messages(&mut wharf).is_empty());
    wharf.run("hi");
    assert!(!server.requests()[0].body.to_string().contains("echo old"));
    // One that runs while the session is switched is answered all the same, once.
    wharf.send(&json!({"id": "b", "type": "bash", "command": "touch up; sleep 1000"}));
    wait_file(&env, "up");
    wharf.data(json!({"type": "new_session"}));
    let response = wharf.wait_for("the answer", |line| line["id"] == "b");
    assert_eq!(response["data"]["cancelled"], true, "{response}");
    assert!(messages(&mut wharf).is_empty());
}

/// What was written later is meant for the session that was asked for before.
#[test]
fn a_command_behind_a_switch_in_one_write_belongs_to_the_new_session() {
    let env = Env::new();
    let mut wharf = env.rpc_with(&["confirm-switch"], "scripted/demo");
    wharf.run("hello");
    wharf.send_raw(
        format!(
            "{}\n{}\n",
            json!({"id": "n", "type": "new_session"}),
            json!({"id": "b", "type": "bash", "command": "echo mine"})
        )
        .as_bytes(),
    );
    let dialog = wharf.wait_for("the question", |line| line["type"] == "extension_ui_request");
    wharf.data(json!({"type": "get_version"}));
    wharf.answer(&dialog, json!({"confirmed": true}));
    let response = wharf.wait_for("the answer", |line| line["id"] == "b");
    assert_eq!(response["data"]["output"], "mine\n", "{response}");
    wharf.wait_for("the switch", |line| line["id"] == "n");
    let all = messages(&mut wharf);
    assert_eq!(all.len(), 1, "{all:?}");
    assert_eq!(all[0]["output"], "mine\n");
}

#[test]
fn the_end_of_the_input_waits_for_a_command() {
    let env = Env::new();
    let mut wharf = start(&env);
    wharf.send(&json!({"id": "b", "type": "bash", "command": "touch up; while [ ! -e go ]; do sleep 0.01; done; echo whole"}));
    wait_file(&env, "up");
    wharf.close_stdin();
    env.write("go", "");
    let exit = wharf.wait_exit();
    assert_eq!(exit.code, Some(0));
    let response = exit.all.iter().find(|line| line["id"] == "b").unwrap();
    assert_eq!(response["data"]["output"], "whole\n", "{response}");
}

#[test]
fn a_signal_ends_a_command_too() {
    let env = Env::new();
    let mut wharf = start(&env);
    wharf
        .send(&json!({"id": "b", "type": "bash", "command": "sleep 1000 & echo $! > child; wait"}));
    wait_file(&env, "child");
    let pid = wharf.pid();
    let status =
        std::process::Command::new("kill").args(["-TERM", &pid.to_string()]).status().unwrap();
    assert!(status.success());
    let exit = wharf.wait_exit();
    assert_eq!(exit.code, Some(143), "{}", exit.transcript);
    let child = fs::read_to_string(env.project().join("child")).unwrap();
    let mut wharf = start(&env);
    let check = format!(
        "for i in $(seq 500); do kill -0 {0} 2>/dev/null || exit 0; grep -q ') Z ' /proc/{0}/stat && exit 0; sleep 0.01; done; exit 1",
        child.trim()
    );
    assert_eq!(wharf.data(bash(&check))["exitCode"], 0, "the command outlived the program");
}

fn one_shot(env: &Env, args: &[&str]) -> Output {
    env.command().args(args).stdin(Stdio::null()).output().unwrap()
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

#[test]
fn an_exclamation_mark_runs_a_command_in_a_one_shot_run() {
    let (server, env) = served();
    for prompt in ["!echo hi", "! echo hi", "!!echo hi", "!! echo hi "] {
        let output = one_shot(&env, &["--model", "fake/m", "-p", prompt]);
        assert_eq!(stdout(&output), "hi\n", "{prompt}");
        assert_eq!((output.status.code(), output.stderr.len()), (Some(0), 0), "{prompt}");
    }
    assert!(server.requests().is_empty(), "a command asked the model");
    let output = one_shot(&env, &["-p", "!echo out; exit 3"]);
    assert_eq!(stdout(&output), "out\n");
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8(output.stderr).unwrap().contains('3'));
    // Without a model too.
    let output = one_shot(&env, &["-p", "!printf x"]);
    assert_eq!((stdout(&output).as_str(), output.status.code()), ("x\n", Some(0)));
}

#[test]
fn the_next_prompt_of_a_one_shot_run_knows_the_command() {
    let (server, env) = served();
    let output = one_shot(
        &env,
        &["--model", "fake/m", "-p", "!echo shown-thing", "!!echo hidden-thing", "what was it?"],
    );
    assert_eq!(stdout(&output), "shown-thing\nhidden-thing\nok\n");
    let body = server.requests()[0].body.to_string();
    assert!(body.contains("shown-thing") && !body.contains("hidden-thing"), "{body}");
}

#[test]
fn marks_alone_are_text_for_the_model() {
    let (server, env) = served();
    for prompt in ["!", "!!", "  !echo hi", "hi!"] {
        let output = one_shot(&env, &["--model", "fake/m", "--no-session", "-p", prompt]);
        assert_eq!(stdout(&output), "ok\n", "{prompt}");
        assert_eq!(sent(&server.requests().pop().unwrap(), "user"), [prompt]);
    }
    // Over RPC there is the command `bash`: a prompt is a prompt.
    let mut wharf = env.rpc(&["--model", "fake/m", "--no-session"]);
    wharf.run("!echo hi");
    assert_eq!(sent(&server.requests().pop().unwrap(), "user"), ["!echo hi"]);
}
