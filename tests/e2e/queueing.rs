//! Prompts, steering and follow-up messages: what is served when, what is refused,
//! and that nothing is lost. Random interleavings are in `interleaving`, aborts in
//! `aborts`.

use serde_json::{Value, json};
use wharf_tests::script::{bash, says};
use wharf_tests::{Env, Exit, Wharf};

use crate::order::{assert_documented_order, count, outline, texts};

/// A shell command that waits until the test writes the file `go`.
const HOLD: &str = "while [ ! -e go ]; do sleep 0.01; done; rm go";

fn lines(commands: &[Value]) -> Vec<u8> {
    commands.iter().map(|command| format!("{command}\n")).collect::<String>().into_bytes()
}

/// The one response with this id.
#[track_caller]
fn response<'a>(exit: &'a Exit, id: &str) -> &'a Value {
    let all: Vec<&Value> =
        exit.all.iter().filter(|line| line["type"] == "response" && line["id"] == id).collect();
    let [response] = all[..] else { panic!("{id} has not one response: {}", exit.transcript) };
    response
}

/// Starts a run that waits in its first tool.
fn holding(env: &Env, wharf: &mut Wharf) {
    assert!(!std::fs::exists(env.project().join("go")).unwrap());
    wharf.prompt("hi");
    wharf.wait_event("tool_execution_start");
}

#[track_caller]
fn accept(wharf: &mut Wharf, command: Value) {
    let response = wharf.request(command);
    assert_eq!(response["success"], true, "{response}");
}

/// Waits until so many messages are queued: the way through `input` handlers takes
/// its time.
fn wait_queued(wharf: &mut Wharf, count: usize) {
    while wharf.data(json!({"type": "get_state"}))["pendingMessageCount"] != count {}
}

#[test]
fn two_prompts_in_one_write() {
    let env = Env::new();
    let model = env.script(&[bash(HOLD), says("done")]);
    let mut wharf = env.rpc_with(&[], &model);
    wharf.send_raw(&lines(&[
        json!({"id": "a", "type": "prompt", "message": "first"}),
        json!({"id": "b", "type": "prompt", "message": "second"}),
    ]));
    wharf.wait_event("tool_execution_start");
    env.write("go", "");
    let exit = wharf.finish();
    assert_eq!(exit.code, Some(0), "{}", exit.stderr);
    assert_eq!(response(&exit, "a")["success"], true);
    let refused = response(&exit, "b");
    assert_eq!(refused["success"], false);
    let error = refused["error"].as_str().unwrap();
    assert!(error.contains("streamingBehavior"), "{error}");
    assert_eq!(texts(&exit.all, "user"), ["first"], "{}", exit.transcript);
    assert_eq!(assert_documented_order(&exit.all), 1);
}

#[test]
fn two_prompts_in_one_write_when_the_first_is_served_at_once() {
    for _ in 0..10 {
        let env = Env::new();
        let model = env.script(&[says("one"), says("two")]);
        let mut wharf = env.rpc_with(&[], &model);
        wharf.send_raw(&lines(&[
            json!({"id": "a", "type": "prompt", "message": "a"}),
            json!({"id": "b", "type": "prompt", "message": "b"}),
        ]));
        let exit = wharf.finish();
        // The first run may be over before the second line is looked at.
        let accepted: Vec<&str> =
            ["a", "b"].into_iter().filter(|id| response(&exit, id)["success"] == true).collect();
        assert_eq!(texts(&exit.all, "user"), accepted, "{}", exit.transcript);
        assert_eq!(accepted.first(), Some(&"a"));
        assert_eq!(assert_documented_order(&exit.all), accepted.len());
    }
}

/// Writes a prompt and another message in one write, while the first reply still
/// needs its tool.
fn prompt_and(kind: &str) -> Exit {
    let env = Env::new();
    let model = env.script(&[bash(HOLD), says("one"), says("two")]);
    let mut wharf = env.rpc_with(&[], &model);
    wharf.send_raw(&lines(&[
        json!({"id": "a", "type": "prompt", "message": "first"}),
        json!({"id": "b", "type": kind, "message": "second"}),
    ]));
    wharf.wait_event("tool_execution_start");
    env.write("go", "");
    let exit = wharf.finish();
    for id in ["a", "b"] {
        assert_eq!(response(&exit, id)["success"], true, "{}", exit.transcript);
    }
    assert_eq!(assert_documented_order(&exit.all), 1, "it stays one run: {}", exit.transcript);
    exit
}

/// The outline without responses and tool events.
fn conversation(exit: &Exit) -> Vec<String> {
    outline(&exit.all)
        .into_iter()
        .filter(|line| line != "response" && !line.starts_with("tool"))
        .collect()
}

#[test]
fn a_prompt_and_a_follow_up_in_one_write() {
    assert_eq!(
        conversation(&prompt_and("follow_up")),
        [
            "agent_start",
            "turn_start",
            "user: first",
            "assistant: ",
            "turn_end",
            "turn_start",
            "assistant: one",
            "turn_end",
            "user: second",
            "turn_start",
            "assistant: two",
            "turn_end",
            "agent_end",
        ]
    );
}

#[test]
fn a_prompt_and_a_steering_message_in_one_write() {
    assert_eq!(
        conversation(&prompt_and("steer")),
        [
            "agent_start",
            "turn_start",
            "user: first",
            "assistant: ",
            "turn_end",
            "user: second",
            "turn_start",
            "assistant: one",
            "turn_end",
            "agent_end",
        ]
    );
}

#[test]
fn a_message_in_the_same_write_as_a_prompt_that_is_served_at_once() {
    for kind in ["follow_up", "steer"] {
        let env = Env::new();
        let model = env.script(&[says("one"), says("two")]);
        let mut wharf = env.rpc_with(&[], &model);
        wharf.send_raw(&lines(&[
            json!({"id": "a", "type": "prompt", "message": "first"}),
            json!({"id": "b", "type": kind, "message": "second"}),
        ]));
        let exit = wharf.finish();
        assert_eq!(response(&exit, "a")["success"], true);
        assert_eq!(response(&exit, "b")["success"], true);
        assert_eq!(texts(&exit.all, "user"), ["first", "second"], "{}", exit.transcript);
        assert_eq!(texts(&exit.all, "assistant"), ["one", "two"], "{}", exit.transcript);
        assert_documented_order(&exit.all);
    }
}

#[test]
fn every_kind_of_message_in_one_write() {
    let env = Env::new();
    let repeat = json!({"repeat": true, "content": [{"type": "text", "text": "ok"}]});
    let model = env.script(&[bash(HOLD), repeat]);
    let mut wharf = env.rpc_with(&[], &model);
    let commands = [
        json!({"id": "1", "type": "follow_up", "message": "1"}),
        json!({"id": "2", "type": "prompt", "message": "2"}),
        json!({"id": "3", "type": "steer", "message": "3"}),
        json!({"id": "4", "type": "prompt", "message": "4", "streamingBehavior": "followUp"}),
        json!({"id": "5", "type": "prompt", "message": "5", "streamingBehavior": "steer"}),
        json!({"id": "6", "type": "follow_up", "message": "6"}),
        json!({"id": "7", "type": "prompt", "message": "7"}),
    ];
    wharf.send_raw(&lines(&commands));
    wharf.wait_event("tool_execution_start");
    env.write("go", "");
    let exit = wharf.finish();
    let mut delivered = texts(&exit.all, "user");
    delivered.sort();
    let accepted: Vec<&str> = ["1", "2", "3", "4", "5", "6", "7"]
        .into_iter()
        .filter(|id| response(&exit, id)["success"] == true)
        .collect();
    assert_eq!(delivered, accepted, "{}", exit.transcript);
    assert_eq!(accepted, ["1", "3", "4", "5", "6"], "a plain prompt while streaming is refused");
}

#[test]
fn a_prompt_during_a_run_says_what_it_wants_or_is_refused() {
    let env = Env::new();
    let model = env.script(&[bash(HOLD), says("steered"), says("followed")]);
    let mut wharf = env.rpc_with(&[], &model);
    holding(&env, &mut wharf);
    let refused = wharf.request(json!({"type": "prompt", "message": "lost"}));
    assert_eq!(refused["success"], false, "{refused}");
    let error = refused["error"].as_str().unwrap();
    assert!(error.contains("streamingBehavior"), "{error}");
    let prompt = |message: &str, behavior: &str| json!({"type": "prompt", "message": message, "streamingBehavior": behavior});
    accept(&mut wharf, prompt("later", "followUp"));
    accept(&mut wharf, prompt("now", "steer"));
    wait_queued(&mut wharf, 2);
    env.write("go", "");
    let run = wharf.take_until("agent_end");
    assert_eq!(texts(&run, "user"), ["hi", "now", "later"]);
    assert_eq!(texts(&run, "assistant"), ["", "steered", "followed"]);
    let exit = wharf.finish();
    assert_eq!(texts(&exit.all, "user"), ["hi", "now", "later"]);
    assert_eq!(assert_documented_order(&exit.all), 1);
}

#[test]
fn a_prompt_that_names_a_behavior_starts_a_run_when_there_is_none() {
    for behavior in ["steer", "followUp"] {
        let env = Env::new();
        let model = env.script(&[says("one")]);
        let mut wharf = env.rpc_with(&[], &model);
        accept(
            &mut wharf,
            json!({"type": "prompt", "message": "hi", "streamingBehavior": behavior}),
        );
        let run = wharf.take_until("agent_end");
        assert_eq!(texts(&run, "user"), ["hi"]);
    }
}

#[test]
fn a_queued_message_without_a_run_is_not_lost() {
    for kind in ["steer", "follow_up"] {
        let env = Env::new();
        let model = env.script(&[says("one"), says("two")]);
        let mut wharf = env.rpc_with(&[], &model);
        accept(&mut wharf, json!({"type": kind, "message": "early"}));
        let exit = wharf.finish();
        assert_eq!(texts(&exit.all, "user"), ["early"], "{}", exit.transcript);
    }
}

#[test]
fn steering_comes_after_the_calls_and_before_the_next_request() {
    let env = Env::new();
    let next = json!({"when": "^turn left$", "content": [{"type": "text", "text": "left"}]});
    let calls = json!({"content": [
        {"type": "toolCall", "id": "a", "name": "bash", "arguments": {"command": HOLD}},
        {"type": "toolCall", "id": "b", "name": "bash", "arguments": {"command": "echo b"}},
    ]});
    let model = env.script(&[calls, next]);
    let mut wharf = env.rpc_with(&[], &model);
    holding(&env, &mut wharf);
    accept(&mut wharf, json!({"type": "steer", "message": "turn left"}));
    wait_queued(&mut wharf, 1);
    env.write("go", "");
    let exit = wharf.finish();
    let events: Vec<Value> =
        exit.all.iter().filter(|line| line["type"] != "response").cloned().collect();
    assert_eq!(
        outline(&events),
        [
            "agent_start",
            "turn_start",
            "user: hi",
            "assistant: ",
            "tool_execution_start a",
            "tool_execution_start b",
            "tool_execution_end a",
            "toolResult: (no output)",
            "tool_execution_end b",
            "toolResult: b\n",
            "turn_end",
            "user: turn left",
            "turn_start",
            "assistant: left",
            "turn_end",
            "agent_end",
        ],
        "{}",
        exit.transcript
    );
    assert_eq!(assert_documented_order(&exit.all), 1);
}

#[test]
fn a_follow_up_waits_until_the_run_would_stop() {
    let env = Env::new();
    let model = env.script(&[bash(HOLD), bash("echo more"), says("one"), says("two")]);
    let mut wharf = env.rpc_with(&[], &model);
    holding(&env, &mut wharf);
    accept(&mut wharf, json!({"type": "follow_up", "message": "afterwards"}));
    wait_queued(&mut wharf, 1);
    env.write("go", "");
    let run = wharf.take_until("agent_end");
    assert_eq!(
        outline(&run).into_iter().filter(|line| !line.starts_with("tool_")).collect::<Vec<_>>(),
        [
            "agent_start",
            "turn_start",
            "user: hi",
            "assistant: ",
            "toolResult: (no output)",
            "turn_end",
            "turn_start",
            "assistant: ",
            "toolResult: more\n",
            "turn_end",
            "turn_start",
            "assistant: one",
            "turn_end",
            "user: afterwards",
            "turn_start",
            "assistant: two",
            "turn_end",
            "agent_end",
        ]
    );
}

/// The user messages by turn: those that each request saw first.
fn by_turn(run: &[Value]) -> Vec<Vec<String>> {
    let mut turns = vec![Vec::new()];
    for line in outline(run) {
        if let Some(text) = line.strip_prefix("user: ") {
            turns.last_mut().unwrap().push(text.to_owned());
        } else if line.starts_with("assistant: ") {
            turns.push(Vec::new());
        }
    }
    turns.pop();
    turns
}

fn queue_four(settings: &str) -> Vec<Vec<String>> {
    let env = Env::new();
    env.write_agent("settings.json", settings);
    let repeat = json!({"repeat": true, "content": [{"type": "text", "text": "ok"}]});
    let model = env.script(&[bash(HOLD), repeat]);
    let mut wharf = env.rpc_with(&[], &model);
    holding(&env, &mut wharf);
    for (kind, message) in
        [("follow_up", "f1"), ("steer", "s1"), ("follow_up", "f2"), ("steer", "s2")]
    {
        accept(&mut wharf, json!({"type": kind, "message": message}));
    }
    wait_queued(&mut wharf, 4);
    env.write("go", "");
    let run = wharf.take_until("agent_end");
    by_turn(&run)
}

#[test]
fn queued_messages_are_delivered_one_at_a_time_by_default() {
    let one = [vec!["hi"], vec!["s1"], vec!["s2"], vec!["f1"], vec!["f2"]];
    assert_eq!(queue_four("{}"), one);
    let explicit = r#"{"steeringMode":"one-at-a-time","followUpMode":"one-at-a-time"}"#;
    assert_eq!(queue_four(explicit), one);
}

#[test]
fn settings_deliver_queued_messages_all_at_once() {
    assert_eq!(
        queue_four(r#"{"steeringMode":"all","followUpMode":"all"}"#),
        [vec!["hi"], vec!["s1", "s2"], vec!["f1", "f2"]]
    );
    assert_eq!(
        queue_four(r#"{"steeringMode":"all"}"#),
        [vec!["hi"], vec!["s1", "s2"], vec!["f1"], vec!["f2"]]
    );
    assert_eq!(
        queue_four(r#"{"followUpMode":"all"}"#),
        [vec!["hi"], vec!["s1"], vec!["s2"], vec!["f1", "f2"]]
    );
}

#[test]
fn a_message_is_queued_once_its_response_says_so() {
    let env = Env::new();
    let model = env.script(&[bash(HOLD), says("done")]);
    let mut wharf = env.rpc_with(&[], &model);
    holding(&env, &mut wharf);
    for n in 1..=20 {
        let message = format!("m{n}");
        let kind = if n % 2 == 0 { "steer" } else { "follow_up" };
        wharf.send_raw(&lines(&[
            json!({"id": "q", "type": kind, "message": message}),
            json!({"id": "c", "type": "clear_pending_messages"}),
        ]));
        let queued = wharf.wait_for("the answer", |line| line["id"] == "q");
        assert_eq!(queued["success"], true);
        let cleared = wharf.wait_for("the answer", |line| line["id"] == "c");
        let data = &cleared["data"];
        let texts: Vec<&Value> = data["steering"]
            .as_array()
            .unwrap()
            .iter()
            .chain(data["followUp"].as_array().unwrap())
            .collect();
        assert_eq!(texts, [&json!(message)], "accepted, but not in the queue: {cleared}");
    }
    env.write("go", "");
    let run = wharf.take_until("agent_end");
    assert_eq!(texts(&run, "user"), ["hi"], "a cleared message was delivered");
}

/// Clients prompt when they see `agent_end`; also on a machine that pauses Wharf in
/// any place.
#[test]
fn a_prompt_after_agent_end_is_never_refused() {
    let env = Env::new();
    let model = env.script(&[json!({"repeat": true, "content": [{"type": "text", "text": "ok"}]})]);
    let mut wharf = env.rpc_with(&[], &model);
    for n in 0..1000 {
        let response = wharf.request(json!({"type": "prompt", "message": "again"}));
        assert_eq!(response["success"], true, "prompt {n}: {response}");
        wharf.take_until("agent_end");
    }
}

#[test]
fn after_agent_end_the_state_is_not_streaming() {
    let env = Env::new();
    let model = env.script(&[json!({"repeat": true, "content": [{"type": "text", "text": "ok"}]})]);
    let mut wharf = env.rpc_with(&[], &model);
    for n in 0..1000 {
        wharf.prompt("again");
        wharf.take_until("agent_end");
        let state = wharf.data(json!({"type": "get_state"}));
        assert_eq!(state["isStreaming"], false, "run {n}");
    }
}

#[test]
fn an_extension_command_cannot_be_queued() {
    let env = Env::new();
    let model = env.script(&[bash(HOLD), says("done")]);
    let mut wharf = env.rpc_with(&["heartbeat"], &model);
    let refused = |wharf: &mut Wharf, kind: &str| {
        let response = wharf.request(json!({"type": kind, "message": "/beat 7"}));
        assert_eq!(response["success"], false, "{response}");
        assert_eq!(response["command"], kind, "{response}");
        let error = response["error"].as_str().unwrap();
        assert!(error.contains("/beat") && error.contains("prompt"), "{error}");
    };
    refused(&mut wharf, "steer");
    refused(&mut wharf, "follow_up");
    holding(&env, &mut wharf);
    refused(&mut wharf, "steer");
    refused(&mut wharf, "follow_up");
    env.write("go", "");
    wharf.take_until("agent_end");
    let exit = wharf.finish();
    assert_eq!(count(&exit.all, "extension_ui_request"), 0, "{}", exit.transcript);
    assert_eq!(texts(&exit.all, "user"), ["hi"], "{}", exit.transcript);
}

#[test]
fn an_extension_command_runs_at_once_during_a_run() {
    let env = Env::new();
    let model = env.script(&[bash(HOLD), says("done")]);
    let mut wharf = env.rpc_with(&["heartbeat"], &model);
    holding(&env, &mut wharf);
    for behavior in [json!(null), json!("steer"), json!("followUp")] {
        let command =
            json!({"type": "prompt", "message": "/beat 7", "streamingBehavior": behavior});
        accept(&mut wharf, command);
        assert_eq!(wharf.wait_notify(), "beat 7");
    }
    let pending = wharf.data(json!({"type": "get_state"}))["pendingMessageCount"].clone();
    assert_eq!(pending, 0);
    env.write("go", "");
    let run = wharf.take_until("agent_end");
    assert_eq!(texts(&run, "user"), ["hi"], "{}", wharf.transcript());
}

#[test]
fn a_prompt_after_new_session_in_one_write_goes_to_the_new_session() {
    let env = Env::new();
    let model = env.script(&[says("one"), says("two"), says("three")]);
    let mut wharf = env.rpc_with(&[], &model);
    wharf.run("old");
    let old = wharf.data(json!({"type": "get_state"}))["sessionFile"].clone();
    wharf.send_raw(&lines(&[
        json!({"id": "n", "type": "new_session"}),
        json!({"id": "p", "type": "prompt", "message": "new"}),
        json!({"id": "f", "type": "follow_up", "message": "newer"}),
    ]));
    wharf.take_until("agent_end");
    let messages = wharf.data(json!({"type": "get_messages"}))["messages"].clone();
    assert_eq!(messages[0]["content"][0]["text"], "new");
    assert_eq!(messages[2]["content"][0]["text"], "newer");
    let new = wharf.data(json!({"type": "get_state"}))["sessionFile"].clone();
    let exit = wharf.finish();
    for id in ["n", "p", "f"] {
        assert_eq!(response(&exit, id)["success"], true);
    }
    let read = |file: &Value| std::fs::read_to_string(file.as_str().unwrap()).unwrap();
    assert!(!read(&old).contains("\"new"), "{}", read(&old));
    assert!(!read(&new).contains("\"old\""), "{}", read(&new));
    assert!(read(&new).contains("\"newer\""), "{}", read(&new));
}

#[test]
fn new_session_during_a_run_ends_the_run_first() {
    let env = Env::new();
    let model = env.script(&[bash(HOLD), says("in the new one")]);
    let mut wharf = env.rpc_with(&[], &model);
    holding(&env, &mut wharf);
    accept(&mut wharf, json!({"type": "steer", "message": "for the old one"}));
    wharf.send_raw(&lines(&[
        json!({"id": "n", "type": "new_session"}),
        json!({"id": "p", "type": "prompt", "message": "new"}),
    ]));
    let old = wharf.take_until("agent_end");
    assert!(old.iter().all(|line| line["id"] != "p"), "{old:?}");
    let run = wharf.take_until("agent_end");
    assert_eq!(texts(&run, "user"), ["new"]);
    assert_eq!(texts(&run, "assistant"), ["in the new one"]);
    let state = wharf.data(json!({"type": "get_state"}));
    assert_eq!(state["messageCount"], 2);
    assert_eq!(state["pendingMessageCount"], 0);
    let exit = wharf.finish();
    assert_eq!(assert_documented_order(&exit.all), 2);
    assert_eq!(response(&exit, "n")["data"], json!({"cancelled": false}));
}

#[test]
fn what_waits_has_a_cap_and_the_message_beyond_it_is_refused_by_name() {
    let env = Env::new();
    let model = env.script(&[bash(HOLD), says("done")]);
    let mut wharf = env.rpc_with(&[], &model);
    holding(&env, &mut wharf);
    for number in 0..1000 {
        accept(&mut wharf, json!({"type": "follow_up", "message": format!("m{number}")}));
    }
    let refused = wharf.request(json!({"type": "steer", "message": "one too many"}));
    assert_eq!(refused["success"], false);
    let error = refused["error"].as_str().unwrap();
    assert!(error.starts_with("Too many messages are waiting (at most 1000"), "{error}");
    let cleared = wharf.data(json!({"type": "clear_pending_messages"}));
    assert_eq!(cleared["followUp"].as_array().unwrap().len(), 1000);
    accept(&mut wharf, json!({"type": "steer", "message": "there is room again"}));
    env.write("go", "");
    wharf.wait_event("agent_end");
}

/// While extensions load nobody knows whether `/name` is a command; what comes after it
/// must not overtake it.
#[test]
fn messages_keep_their_order_while_extensions_load() {
    for first in ["/some/path.rs does not build", "/unknown thing"] {
        let env = Env::new();
        let model = env.script(&[
            json!({"when": "path|unknown", "delayMs": 5, "chunkChars": 1,
                "content": [{"type": "text", "text": "x".repeat(200)}]}),
            says("again"),
        ]);
        let mut wharf = env.rpc_with(&["hello", "heartbeat"], &model);
        let lines = [
            json!({"id": "1", "type": "prompt", "message": first}),
            json!({"id": "2", "type": "prompt", "message": "second"}),
        ];
        wharf.send_raw(format!("{}\n{}\n", lines[0], lines[1]).as_bytes());
        let answer = wharf.wait_for("the first answer", |line| line["id"] == "1");
        assert_eq!(answer["success"], true, "{answer}");
        let answer = wharf.wait_for("the second answer", |line| line["id"] == "2");
        assert_eq!(answer["success"], false, "{answer}");
        wharf.wait_event("agent_end");
    }
}

#[test]
fn an_abort_covers_a_message_that_waits_for_extensions() {
    let env = Env::new();
    let model = env.script(&[says("never")]);
    let mut wharf = env.rpc_with(&["hello"], &model);
    wharf.send_raw(
        b"{\"id\":\"1\",\"type\":\"prompt\",\"message\":\"/unknown\"}\n{\"id\":\"2\",\"type\":\"abort\"}\n",
    );
    let answer = wharf.wait_for("the answer", |line| line["id"] == "1");
    // Either it was refused, or it was already known to be a prompt and is aborted.
    if answer["success"] == true {
        let end = wharf.wait_event("agent_end");
        let last = end["messages"].as_array().unwrap().last().unwrap().clone();
        assert_eq!(last["stopReason"], "aborted", "{end}");
    } else {
        assert_eq!(answer["error"], "Aborted before it began.");
    }
    wharf.wait_for("the abort's answer", |line| line["id"] == "2" && line["success"] == true);
}
