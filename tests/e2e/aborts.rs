//! Abort in each state of a run: one `agent_end`, nothing left behind, and the
//! agent can be used again. Aborts in dialogs are in `overlap`.

use std::fs;

use serde_json::{Value, json};
use wharf_tests::script::{bash, says};
use wharf_tests::{Env, Wharf};

use crate::order::{assert_documented_order, count, text_of, texts};
use crate::processes::{read_pid, wait_gone};

#[track_caller]
fn abort(wharf: &mut Wharf) {
    let response = wharf.request(json!({"type": "abort"}));
    let id = &response["id"];
    let expected = json!({"id": id, "type": "response", "command": "abort", "success": true});
    assert_eq!(response, expected);
}

/// The agent answers a prompt with `again`, and there were `runs` runs in all.
#[track_caller]
fn assert_usable(mut wharf: Wharf, runs: usize) {
    let run = wharf.run("still there?");
    assert_eq!(texts(&run, "assistant"), ["again"], "{}", wharf.transcript());
    let exit = wharf.finish();
    assert_eq!(exit.code, Some(0), "{}", exit.stderr);
    assert_eq!(assert_documented_order(&exit.all), runs, "{}", exit.transcript);
    assert_eq!(count(&exit.all, "agent_end"), runs);
}

/// A text of many deltas, one every 20 ms: it never ends within a test.
fn slow() -> Value {
    json!({"delayMs": 20, "chunkChars": 1, "content": [{"type": "text", "text": "x".repeat(100_000)}]})
}

#[test]
fn abort_in_the_middle_of_a_reply() {
    let env = Env::new();
    let model = env.script(&[slow(), says("again")]);
    let mut wharf = env.rpc_with(&[], &model);
    wharf.prompt("hi");
    wharf.wait_for("a delta", |line| line["assistantMessageEvent"]["type"] == "text_delta");
    abort(&mut wharf);
    let run = wharf.take_until("agent_end");
    let message = &run.iter().rfind(|line| line["type"] == "message_end").unwrap()["message"];
    assert_eq!(message["stopReason"], "aborted", "{message}");
    let text = text_of(message);
    assert!(!text.is_empty() && text.chars().all(|c| c == 'x'), "{text}");
    let messages = wharf.data(json!({"type": "get_messages"}));
    assert_eq!(messages["messages"][1], *message);
    assert_usable(wharf, 2);
}

#[test]
fn abort_before_the_first_delta() {
    let env = Env::new();
    let late =
        json!({"when": "^hi$", "delayMs": 600_000, "content": [{"type": "text", "text": "never"}]});
    let model = env.script(&[late, says("again")]);
    let mut wharf = env.rpc_with(&[], &model);
    wharf.prompt("hi");
    wharf.wait_event("turn_start");
    abort(&mut wharf);
    let run = wharf.take_until("agent_end");
    let message = &run.iter().rfind(|line| line["type"] == "message_end").unwrap()["message"];
    assert_eq!(message["stopReason"], "aborted", "{message}");
    assert_usable(wharf, 2);
}

#[test]
fn abort_in_the_middle_of_a_tool_call_of_the_model() {
    let env = Env::new();
    let half = json!({"when": "^hi$", "delayMs": 20, "chunkChars": 1, "content": [{
        "type": "toolCall", "name": "bash", "arguments": {"command": format!("touch ran # {}", "x".repeat(100_000))},
    }]});
    let model = env.script(&[half, says("again")]);
    let mut wharf = env.rpc_with(&[], &model);
    wharf.prompt("hi");
    wharf.wait_for("a delta", |line| line["assistantMessageEvent"]["type"] == "toolcall_delta");
    abort(&mut wharf);
    let run = wharf.take_until("agent_end");
    assert_eq!(count(&run, "tool_execution_start"), 0, "half a call ran: {run:?}");
    assert!(!fs::exists(env.project().join("ran")).unwrap());
    assert_usable(wharf, 2);
}

#[test]
fn abort_in_a_shell_command_ends_its_process_group() {
    let env = Env::new();
    let command = "sleep 1000 & echo $! > child.tmp; mv child.tmp child; \
        echo $$ > shell.tmp; mv shell.tmp shell; sleep 1000";
    let model = env.script(&[bash(command), says("again")]);
    let mut wharf = env.rpc_with(&[], &model);
    wharf.prompt("hi");
    let shell = read_pid(&env.project().join("shell"));
    let child = read_pid(&env.project().join("child"));
    abort(&mut wharf);
    let run = wharf.take_until("agent_end");
    let end = run.iter().find(|line| line["type"] == "tool_execution_end").unwrap();
    assert_eq!(end["isError"], true, "{end}");
    wait_gone(&shell);
    wait_gone(&child);
    assert_usable(wharf, 2);
}

#[test]
fn abort_with_parallel_calls_gives_each_a_result() {
    let env = Env::new();
    let wait = |id: &str| {
        let command = format!("echo $$ > {id}.tmp; mv {id}.tmp {id}; exec sleep 1000");
        json!({"type": "toolCall", "id": id, "name": "bash", "arguments": {"command": command}})
    };
    let done =
        json!({"type": "toolCall", "id": "c", "name": "bash", "arguments": {"command": "echo c"}});
    let model = env.script(&[json!({"content": [wait("a"), wait("b"), done]}), says("again")]);
    let mut wharf = env.rpc_with(&[], &model);
    wharf.prompt("hi");
    let pids = [read_pid(&env.project().join("a")), read_pid(&env.project().join("b"))];
    abort(&mut wharf);
    let run = wharf.take_until("agent_end");
    assert_eq!(texts(&run, "toolResult").len(), 3, "{run:?}");
    pids.iter().for_each(wait_gone);
    assert_usable(wharf, 2);
}

#[test]
fn abort_leaves_queued_messages_in_their_queue() {
    let env = Env::new();
    let repeat = json!({"repeat": true, "content": [{"type": "text", "text": "again"}]});
    let model = env.script(&[bash("sleep 1000"), repeat]);
    let mut wharf = env.rpc_with(&[], &model);
    wharf.prompt("hi");
    wharf.wait_event("tool_execution_start");
    for (kind, message) in [("steer", "s"), ("follow_up", "f")] {
        assert_eq!(wharf.request(json!({"type": kind, "message": message}))["success"], true);
    }
    while wharf.data(json!({"type": "get_state"}))["pendingMessageCount"] != 2 {}
    abort(&mut wharf);
    wharf.take_until("agent_end");
    let pending = wharf.data(json!({"type": "get_pending_messages"}));
    assert_eq!((&pending["steering"], &pending["followUp"]), (&json!(["s"]), &json!(["f"])));
    let run = wharf.run("on");
    let mut delivered = texts(&run, "user");
    delivered.sort();
    assert_eq!(delivered, ["f", "on", "s"], "{}", wharf.transcript());
}

#[test]
fn an_abort_in_the_same_write_as_its_prompt() {
    let env = Env::new();
    // Whether it was asked for at all before the abort does not matter.
    let mut reply = slow();
    reply["when"] = json!("^hi$");
    let model = env.script(&[reply, says("again")]);
    let mut wharf = env.rpc_with(&[], &model);
    wharf.send_raw(
        b"{\"id\":1,\"type\":\"prompt\",\"message\":\"hi\"}\n{\"id\":2,\"type\":\"abort\"}\n",
    );
    let run = wharf.take_until("agent_end");
    assert_eq!(texts(&run, "user"), ["hi"], "an accepted prompt is in the conversation");
    let last = &run.iter().rfind(|line| line["type"] == "message_end").unwrap()["message"];
    assert_eq!(last["stopReason"], "aborted", "{last}");
    assert_usable(wharf, 2);
}

#[test]
fn many_aborts_end_a_run_once() {
    let env = Env::new();
    let model = env.script(&[slow(), says("again")]);
    let mut wharf = env.rpc_with(&[], &model);
    wharf.prompt("hi");
    wharf.wait_event("message_update");
    wharf.send_raw("{\"type\":\"abort\"}\n".repeat(10).as_bytes());
    wharf.take_until("agent_end");
    assert_usable(wharf, 2);
}
