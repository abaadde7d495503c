//! Framing of the input, and commands that are wrong: each line is answered once,
//! and the next one works.

use serde_json::{Value, json};
use wharf_tests::script::says;
use wharf_tests::{Env, Wharf};

/// 64 MiB, the cap of a line.
const CAP: usize = 64 * 1024 * 1024;

/// RPC mode without a model and without extensions.
fn bare(env: &Env) -> Wharf {
    env.rpc(&["--no-session"])
}

/// Asks for the version and gives what came before the answer.
fn lines_before_the_next_answer(wharf: &mut Wharf) -> Vec<Value> {
    wharf.send(&json!({"id": "next", "type": "get_version"}));
    let mut lines = wharf.until("the next answer", |line| line["id"] == "next");
    let answer = lines.pop().unwrap();
    assert_eq!(answer["success"], true, "{answer}");
    lines
}

/// Sends bytes that are no command: one `parse` error without an id, and the next
/// line works. Gives the error.
#[track_caller]
fn parse_error(bytes: &[u8]) -> String {
    let env = Env::new();
    let mut wharf = bare(&env);
    wharf.send_raw(bytes);
    let lines = lines_before_the_next_answer(&mut wharf);
    let [response] = &lines[..] else { panic!("not one answer: {}", wharf.transcript()) };
    assert_eq!(response["type"], "response");
    assert_eq!(response["command"], "parse");
    assert_eq!(response["success"], false);
    assert!(response.get("id").is_none(), "{response}");
    let error = response["error"].as_str().unwrap().to_owned();
    assert!(error.starts_with("Failed to parse command: "), "{error}");
    let exit = wharf.finish();
    assert_eq!(exit.code, Some(0), "{}", exit.stderr);
    assert_eq!(exit.all.len(), 2, "{}", exit.transcript);
    error
}

#[test]
fn unicode_separators_end_no_line() {
    let env = Env::new();
    let text = "a\u{2028}b\u{2029}c\u{85}d\u{b}e\u{c}f";
    let model = env.script(&[says(text)]);
    let mut wharf = env.rpc_with(&[], &model);
    let line = format!(
        "{{\"type\":\"prompt\",\"id\":1,\"message\":\"{}\"}}\n",
        "a\u{2028}b\u{2029}c\u{85}d"
    );
    wharf.send_raw(line.as_bytes());
    wharf.wait_event("agent_end");
    let messages = wharf.data(json!({"type": "get_messages"}));
    assert_eq!(messages["messages"][0]["content"][0]["text"], "a\u{2028}b\u{2029}c\u{85}d");
    assert_eq!(messages["messages"][1]["content"][0]["text"], text);
    assert_eq!(wharf.finish().code, Some(0));
}

#[test]
fn a_carriage_return_before_the_line_feed_is_dropped() {
    let env = Env::new();
    let mut wharf = bare(&env);
    // A lone CR is white space of JSON, and ends no line.
    wharf.send_raw(
        b"{\"id\":1,\"type\":\"get_version\"}\r\n{\"id\":2,\r\"type\":\"get_version\"}\n",
    );
    let exit = wharf.finish();
    let ids: Vec<&Value> = exit.all.iter().map(|line| &line["id"]).collect();
    assert_eq!(ids, [1, 2], "{}", exit.transcript);
    assert!(exit.all.iter().all(|line| line["success"] == true), "{}", exit.transcript);
}

#[test]
fn a_line_may_come_in_many_writes_and_a_write_may_hold_many_lines() {
    let env = Env::new();
    let model = env.script(&[says("ok")]);
    let mut wharf = env.rpc_with(&[], &model);
    let line = "{\"id\":\"torn\",\"type\":\"prompt\",\"message\":\"żółć 🦀\u{2028}\"}\r\n";
    for byte in line.as_bytes() {
        wharf.send_raw(&[*byte]);
    }
    wharf.wait_event("agent_end");
    let messages = wharf.data(json!({"type": "get_messages"}));
    assert_eq!(messages["messages"][0]["content"][0]["text"], "żółć 🦀\u{2028}");
    let many: String =
        (0..100).map(|id| format!("{{\"id\":{id},\"type\":\"get_version\"}}\n")).collect();
    wharf.send_raw(many.as_bytes());
    let exit = wharf.finish();
    let ids: Vec<Value> = exit.rest.iter().map(|line| line["id"].clone()).collect();
    let numbers: Vec<Value> = (0..100).map(Value::from).collect();
    assert!(ids.ends_with(&numbers), "{}", exit.transcript);
}

#[test]
fn a_line_over_the_cap_gets_one_error_and_the_next_line_works() {
    let mut line = vec![b'x'; CAP + 1];
    line.push(b'\n');
    let error = parse_error(&line);
    assert!(error.contains(&CAP.to_string()), "the error names no limit: {error}");
    assert!(error.contains(&(CAP + 1).to_string()), "the error names no length: {error}");
}

#[test]
fn a_line_of_exactly_the_cap_is_served() {
    let env = Env::new();
    let mut wharf = bare(&env);
    let (head, tail) = ("{\"id\":\"big\",\"type\":\"get_version\",\"padding\":\"", "\"}");
    let padding = "x".repeat(CAP - head.len() - tail.len());
    wharf.send_raw(format!("{head}{padding}{tail}\r\n").as_bytes());
    let answer = wharf.wait_for("the answer", |line| line["type"] == "response");
    assert_eq!((&answer["id"], &answer["success"]), (&json!("big"), &json!(true)), "{answer}");
}

#[test]
fn an_endless_last_line_gets_one_error() {
    let env = Env::new();
    let mut wharf = bare(&env);
    for _ in 0..65 {
        wharf.send_raw(&vec![b'{'; 1024 * 1024]);
    }
    let exit = wharf.finish();
    assert_eq!(exit.code, Some(0), "{}", exit.stderr);
    let [response] = &exit.all[..] else { panic!("not one answer: {}", exit.transcript) };
    assert_eq!(response["command"], "parse");
    assert!(response["error"].as_str().unwrap().contains(&CAP.to_string()), "{response}");
}

#[test]
fn nul_bytes_are_no_json() {
    parse_error(b"{\"type\":\"get_version\"\0}\n");
    parse_error(b"\0\n");
    parse_error(b"{\"type\":\"prompt\",\"message\":\"a\0b\"}\n");
}

#[test]
fn an_escaped_nul_is_part_of_the_text() {
    let env = Env::new();
    let model = env.script(&[says("ok")]);
    let mut wharf = env.rpc_with(&[], &model);
    let run = wharf.run("a\0b");
    let user = run.iter().find(|line| line["type"] == "message_end").unwrap();
    assert_eq!(user["message"]["content"][0]["text"], "a\0b");
}

#[test]
fn invalid_utf8_is_no_json() {
    parse_error(b"{\"type\":\"prompt\",\"message\":\"\xff\"}\n");
    parse_error(b"\xc3\n");
}

#[test]
fn half_a_surrogate_pair_costs_one_character_and_no_answer() {
    let env = Env::new();
    let mut wharf = bare(&env);
    wharf.send_raw(b"{\"id\":\"s\",\"type\":\"set_session_name\",\"name\":\"cut \\ud83d\"}\n");
    wharf.wait_for("the answer", |line| line["id"] == "s" && line["success"] == true);
    let state = wharf.data(json!({"type": "get_state"}));
    assert_eq!(state["sessionName"], "cut \u{fffd}");
}

#[test]
fn a_line_without_content_is_no_json() {
    parse_error(b"\n");
    parse_error(b"  \t \r\n");
}

#[test]
fn a_last_line_needs_no_line_feed() {
    let env = Env::new();
    let mut wharf = bare(&env);
    wharf.send_raw(b"{\"id\":\"last\",\"type\":\"get_version\"}");
    let exit = wharf.finish();
    assert_eq!(exit.code, Some(0), "{}", exit.stderr);
    let [response] = &exit.all[..] else { panic!("not one answer: {}", exit.transcript) };
    assert_eq!((&response["id"], &response["success"]), (&json!("last"), &json!(true)));
}

#[test]
fn only_an_object_is_a_command() {
    for line in ["[1]", "[]", "\"get_version\"", "7", "null", "true", "{\"type\":", "{} {}", "fly"]
    {
        parse_error(format!("{line}\n").as_bytes());
    }
}

#[test]
fn nesting_without_end_is_an_error_and_no_crash() {
    parse_error(format!("{}\n", "[".repeat(1_000_000)).as_bytes());
    parse_error(format!("{}\n", "{\"a\":".repeat(1_000_000)).as_bytes());
}

#[test]
fn a_type_that_is_no_string_is_named() {
    let env = Env::new();
    let mut wharf = bare(&env);
    for kind in ["", ",\"type\":7", ",\"type\":null", ",\"type\":[\"abort\"]", ",\"type\":{}"] {
        wharf.send_raw(format!("{{\"id\":\"x\"{kind}}}\n").as_bytes());
        let response = wharf.wait_for("the answer", |line| line["id"] == "x");
        assert_eq!(response["command"], "parse", "{response}");
        assert_eq!(response["success"], false, "{response}");
        assert!(response["error"].as_str().unwrap().contains("\"type\""), "{response}");
    }
    assert_eq!(lines_before_the_next_answer(&mut wharf), Vec::<Value>::new());
}

#[test]
fn an_id_of_any_kind_comes_back_unchanged() {
    let env = Env::new();
    let mut wharf = bare(&env);
    let ids = [
        "\"text\"",
        "\"\"",
        "\"é\u{2028}\\n\"",
        "0",
        "-7",
        "1.5",
        "9007199254740993",
        "18446744073709551615",
        "true",
        "false",
        "[1,\"two\",null]",
        "{\"b\":1,\"a\":{}}",
    ];
    for id in ids {
        wharf.send_raw(format!("{{\"id\":{id},\"type\":\"get_version\"}}\n").as_bytes());
        let response = wharf.wait_for("the answer", |line| line["type"] == "response");
        let sent: Value = serde_json::from_str(id).unwrap();
        assert_eq!(response["id"], sent, "{response}");
        assert_eq!(response["id"].to_string(), sent.to_string());
    }
}

#[test]
fn an_id_of_null_comes_back_too() {
    let env = Env::new();
    let mut wharf = bare(&env);
    wharf.send_raw(b"{\"id\":null,\"type\":\"get_version\"}\n");
    let response = wharf.wait_for("the answer", |line| line["type"] == "response");
    assert_eq!(response.get("id"), Some(&Value::Null), "{response}");
}

#[test]
fn no_id_no_id() {
    let env = Env::new();
    let mut wharf = bare(&env);
    wharf.send_raw(b"{\"type\":\"get_version\"}\n");
    let response = wharf.wait_for("the answer", |line| line["type"] == "response");
    assert!(response.get("id").is_none(), "{response}");
}

#[test]
fn an_unknown_command_is_answered_with_its_id() {
    let env = Env::new();
    let mut wharf = bare(&env);
    for kind in ["fly", "", "Prompt", "get_state ", "é\u{2028}"] {
        let response = wharf.request(json!({"type": kind, "message": "x"}));
        let id = response["id"].clone();
        let error = format!("Unknown command: {kind}");
        let expected = json!({
            "id": id, "type": "response", "command": kind, "success": false, "error": error,
        });
        assert_eq!(response, expected);
    }
    assert_eq!(lines_before_the_next_answer(&mut wharf), Vec::<Value>::new());
}

/// Every field of every command, and values that it must not have.
fn wrong_fields() -> Vec<(&'static str, Value, &'static str)> {
    let mut cases = Vec::new();
    let not_text = [json!(5), json!(true), json!(null), json!(["m"]), json!({"text": "m"})];
    let wrong_images = [
        json!("AA=="),
        json!({"type": "image", "data": "AA==", "mimeType": "image/png"}),
        json!([1]),
        json!([null]),
        json!(["AA=="]),
        json!([{}]),
        json!([{"type": "image"}]),
        json!([{"type": "image", "data": "AA=="}]),
        json!([{"type": "image", "mimeType": "image/png"}]),
        json!([{"type": "image", "data": 1, "mimeType": "image/png"}]),
        json!([{"type": "image", "data": "AA==", "mimeType": 5}]),
        json!([{"data": "AA==", "mimeType": "image/png"}]),
        json!([{"type": "text", "text": "x"}]),
        json!([{"type": "audio", "data": "AA==", "mimeType": "a/b"}]),
        json!([{"type": "image", "data": "AA==", "mimeType": "image/png"}, 7]),
    ];
    for command in ["prompt", "steer", "follow_up"] {
        cases.push((command, json!({}), "message"));
        for value in &not_text {
            cases.push((command, json!({"message": value}), "message"));
        }
        for value in &wrong_images {
            cases.push((command, json!({"message": "m", "images": value}), "images"));
        }
    }
    for value in [json!("now"), json!("follow_up"), json!(1), json!([]), json!(true), json!({})] {
        cases.push((
            "prompt",
            json!({"message": "m", "streamingBehavior": value}),
            "streamingBehavior",
        ));
    }
    for value in [json!(5), json!(true), json!(["p"]), json!({})] {
        cases.push(("new_session", json!({"parentSession": value}), "parentSession"));
    }
    cases.push(("switch_session", json!({}), "sessionPath"));
    cases.push(("set_session_name", json!({}), "name"));
    for value in &not_text {
        cases.push(("switch_session", json!({"sessionPath": value}), "sessionPath"));
        cases.push(("set_session_name", json!({"name": value}), "name"));
    }
    cases
}

#[test]
fn a_field_of_a_wrong_type_is_refused_by_name_once() {
    let env = Env::new();
    let model = env.script(&[]);
    let mut wharf = env.rpc_with(&[], &model);
    let cases = wrong_fields();
    let mut input = String::new();
    for (id, (command, fields, _)) in cases.iter().enumerate() {
        let mut line = fields.clone();
        line["id"] = json!(id);
        line["type"] = json!(command);
        input.push_str(&format!("{line}\n"));
    }
    wharf.send_raw(input.as_bytes());
    let exit = wharf.finish();
    assert_eq!(exit.code, Some(0), "{}", exit.stderr);
    assert_eq!(exit.all.len(), cases.len(), "{}", exit.transcript);
    for (id, (command, fields, field)) in cases.iter().enumerate() {
        let answers: Vec<&Value> = exit.all.iter().filter(|line| line["id"] == id).collect();
        let [answer] = answers[..] else { panic!("{command} {fields}: {answers:?}") };
        assert_eq!(answer["type"], "response", "{command} {fields}: {answer}");
        assert_eq!(answer["command"], *command, "{command} {fields}: {answer}");
        assert_eq!(answer["success"], false, "{command} {fields}: {answer}");
        let error = answer["error"].as_str().unwrap();
        assert!(error.contains(field), "{command} {fields}: the field is not named: {error}");
    }
}

#[test]
fn fields_that_a_command_does_not_know_are_ignored() {
    let env = Env::new();
    let mut wharf = bare(&env);
    for command in [
        "abort",
        "new_session",
        "get_state",
        "get_messages",
        "get_commands",
        "get_pending_messages",
        "clear_pending_messages",
        "get_last_assistant_text",
        "get_version",
    ] {
        let response = wharf.request(json!({"type": command, "message": 5, "extra": {"a": [1]}}));
        assert_eq!(response["success"], true, "{response}");
        assert_eq!(response["command"], command, "{response}");
    }
}

#[test]
fn optional_fields_may_be_null() {
    let env = Env::new();
    let model = env.script(&[says("ok")]);
    let mut wharf = env.rpc_with(&[], &model);
    let command = json!({
        "type": "prompt", "message": "hi", "images": null, "streamingBehavior": null,
    });
    assert_eq!(wharf.request(command)["success"], true);
    wharf.wait_event("agent_end");
    let command = json!({"type": "new_session", "parentSession": null});
    assert_eq!(wharf.data(command), json!({"cancelled": false}));
}

#[test]
fn every_command_is_answered_once() {
    let env = Env::new();
    let model = env.script(&[json!({"repeat": true, "content": [{"type": "text", "text": "ok"}]})]);
    let mut wharf = env.rpc_with(&[], &model);
    let commands = [
        json!({"type": "prompt", "message": "hi"}),
        json!({"type": "prompt", "message": "hi", "streamingBehavior": "steer"}),
        json!({"type": "steer", "message": "hi"}),
        json!({"type": "follow_up", "message": "hi"}),
        json!({"type": "get_state"}),
        json!({"type": "get_messages"}),
        json!({"type": "get_commands"}),
        json!({"type": "get_pending_messages"}),
        json!({"type": "clear_pending_messages"}),
        json!({"type": "set_session_name", "name": "n"}),
        json!({"type": "get_last_assistant_text"}),
        json!({"type": "get_version"}),
        json!({"type": "abort"}),
        json!({"type": "new_session"}),
        json!({"type": "switch_session", "sessionPath": "missing.jsonl"}),
    ];
    let mut input = String::new();
    for (id, command) in commands.iter().enumerate() {
        let mut line = command.clone();
        line["id"] = json!(id);
        input.push_str(&format!("{line}\n"));
    }
    wharf.send_raw(input.as_bytes());
    let exit = wharf.finish();
    for (id, command) in commands.iter().enumerate() {
        let answers: Vec<&Value> =
            exit.all.iter().filter(|line| line["type"] == "response" && line["id"] == id).collect();
        let [answer] = answers[..] else { panic!("{command}: {answers:?}") };
        assert_eq!(answer["command"], command["type"], "{answer}");
        let is_known_failure = command["type"] == "switch_session";
        assert_eq!(answer["success"], !is_known_failure, "{answer}");
    }
}
