//! The user interface of extensions over RPC: golden transcripts of each method,
//! and answers that do not fit, come late, twice or for nothing. What dialogs and
//! runs do to each other is in `overlap`.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use insta::assert_snapshot;
use serde_json::{Value, json};
use wharf_tests::{Env, Exit, Wharf};

/// Every dialog of the example `rpc-demo`: command, method, a fitting answer.
fn dialogs() -> [(&'static str, &'static str, Value); 5] {
    [
        ("/rpc-select", "select", json!({"value": "Beta"})),
        ("/rpc-confirm", "confirm", json!({"confirmed": true})),
        ("/rpc-input", "input", json!({"value": "some text"})),
        ("/rpc-editor", "editor", json!({"value": "Line 1\nline two"})),
        ("/rpc-ask", "ask", json!({"selected": ["SQLite"], "customText": "with WAL enabled"})),
    ]
}

fn start(env: &Env) -> Wharf {
    env.rpc_with(&["rpc-demo"], "scripted/demo")
}

/// Opens a dialog by its command.
fn open(wharf: &mut Wharf, command: &str, method: &str) -> Value {
    wharf.send(&json!({"id": "p", "type": "prompt", "message": command}));
    let response = wharf.wait_for("the answer", |line| line["id"] == "p");
    assert_eq!(response["success"], true, "{response}");
    wharf.wait_ui(method)
}

/// Each dialog has settled once, and told so once.
#[track_caller]
fn assert_settled_once(exit: &Exit) {
    assert_eq!(exit.code, Some(0), "{}", exit.stderr);
    let ids = |kind: &str| -> Vec<&Value> {
        exit.all
            .iter()
            .filter(|line| line["type"] == kind)
            .filter(|line| kind != "extension_ui_request" || is_dialog(line))
            .map(|line| &line["id"])
            .collect()
    };
    let opened = ids("extension_ui_request");
    let mut handled = ids("extension_ui_response_handled");
    for id in opened {
        let at = handled.iter().position(|handled| *handled == id);
        handled.remove(at.unwrap_or_else(|| panic!("{id} never settled: {}", exit.transcript)));
    }
    assert!(handled.is_empty(), "handled twice or never opened: {handled:?}");
}

fn is_dialog(request: &Value) -> bool {
    ["select", "confirm", "input", "editor", "ask"].iter().any(|name| request["method"] == *name)
}

/// How a dialog ends.
enum End<'a> {
    Answer(&'a Value),
    Cancel,
    Timeout,
    Abort,
    InputEnds,
}

/// One dialog in a process of its own, as a transcript.
fn transcript(command: &str, method: &str, end: &End<'_>) -> String {
    let env = Env::new();
    let mut wharf = start(&env);
    let timed = format!("{command} timeout=50");
    let command = if let End::Timeout = end { &timed } else { command };
    let dialog = open(&mut wharf, command, method);
    match end {
        End::Answer(fields) => wharf.answer(&dialog, (*fields).clone()),
        End::Cancel => wharf.answer(&dialog, json!({"cancelled": true})),
        End::Timeout => {}
        End::Abort => wharf.send(&json!({"id": "a", "type": "abort"})),
        End::InputEnds => wharf.close_stdin(),
    }
    let handled = wharf.wait_event("extension_ui_response_handled");
    assert_eq!(handled["id"], dialog["id"]);
    wharf.wait_notify();
    if let End::Abort = end {
        wharf.wait_for("the answer", |line| line["id"] == "a");
    }
    let exit = wharf.finish();
    assert_settled_once(&exit);
    exit.transcript
}

#[test]
fn a_dialog_that_is_answered() {
    for (command, method, answer) in dialogs() {
        assert_snapshot!(
            format!("answer_{method}"),
            transcript(command, method, &End::Answer(&answer))
        );
    }
}

#[test]
fn a_dialog_that_is_cancelled() {
    for (command, method, _) in dialogs() {
        assert_snapshot!(format!("cancel_{method}"), transcript(command, method, &End::Cancel));
    }
}

#[test]
fn a_dialog_that_times_out() {
    for (command, method, _) in dialogs() {
        assert_snapshot!(format!("timeout_{method}"), transcript(command, method, &End::Timeout));
    }
}

#[test]
fn a_dialog_that_is_aborted() {
    for (command, method, _) in dialogs() {
        assert_snapshot!(format!("abort_{method}"), transcript(command, method, &End::Abort));
    }
}

#[test]
fn a_dialog_at_the_end_of_the_input() {
    for (command, method, _) in dialogs() {
        let text = transcript(command, method, &End::InputEnds);
        assert_snapshot!(format!("end_of_input_{method}"), text);
    }
}

#[test]
fn what_is_only_shown() {
    let env = Env::new();
    let mut wharf = start(&env);
    for (command, method) in [
        ("/rpc-notify", "notify"),
        ("/rpc-notify warning take care", "notify"),
        ("/rpc-notify error it broke", "notify"),
        ("/rpc-status Turn 3 running...", "setStatus"),
        ("/rpc-status", "setStatus"),
        ("/rpc-widget --- My Widget --- | Line 1 | Line 2", "setWidget"),
        ("/rpc-widget", "setWidget"),
        ("/rpc-widget below one | two", "setWidget"),
        ("/rpc-widget below", "setWidget"),
        ("/rpc-title wharf - my project", "setTitle"),
        ("/rpc-prefill prefilled text for the user", "set_editor_text"),
    ] {
        open(&mut wharf, command, method);
    }
    let exit = wharf.finish();
    assert_settled_once(&exit);
    assert_snapshot!("shown", exit.transcript);
}

#[test]
fn other_fitting_answers() {
    let env = Env::new();
    let mut wharf = start(&env);
    for (command, method, answer, shown) in [
        ("/rpc-confirm", "confirm", json!({"confirmed": false}), "confirm: answered false"),
        ("/rpc-input", "input", json!({"value": ""}), "input: answered "),
        ("/rpc-input", "input", json!({"value": "é\u{2028}\"\\"}), "input: answered é\u{2028}\"\\"),
        ("/rpc-editor", "editor", json!({"value": "a\r\nb"}), "editor: answered a\r\nb"),
        (
            "/rpc-select",
            "select",
            json!({"value": "Alpha", "cancelled": false}),
            "select: answered Alpha",
        ),
        (
            "/rpc-confirm",
            "confirm",
            json!({"confirmed": true, "cancelled": true}),
            "confirm: cancelled",
        ),
        ("/rpc-ask", "ask", json!({"selected": ["PostgreSQL"]}), "ask: answered [PostgreSQL]"),
        ("/rpc-ask", "ask", json!({"selected": [], "customText": "x"}), "ask: answered [] x"),
        ("/rpc-ask", "ask", json!({"selected": []}), "ask: cancelled"),
        ("/rpc-ask", "ask", json!({"selected": [], "customText": " \n"}), "ask: cancelled"),
    ] {
        let dialog = open(&mut wharf, command, method);
        wharf.answer(&dialog, answer);
        assert_eq!(wharf.wait_notify(), shown);
    }
    assert_settled_once(&wharf.finish());
}

/// Answers that do not fit, by method.
fn malformed(method: &str) -> Vec<Value> {
    let mut all = vec![json!({}), json!({"cancelled": 1}), json!({"cancelled": "true"})];
    all.extend(match method {
        "confirm" => vec![
            json!({"confirmed": "true"}),
            json!({"confirmed": 1}),
            json!({"confirmed": null}),
            json!({"confirmed": [true]}),
            json!({"value": "yes"}),
        ],
        "ask" => vec![
            json!({"selected": "SQLite"}),
            json!({"selected": null}),
            json!({"selected": {"0": "SQLite"}}),
            json!({"selected": [1]}),
            json!({"selected": [null]}),
            json!({"selected": ["SQLite", 7]}),
            json!({"selected": ["Oracle"]}),
            json!({"selected": ["SQLite", "PostgreSQL"]}),
            json!({"selected": ["SQLite"], "customText": 5}),
            json!({"selected": ["SQLite"], "customText": ["x"]}),
            json!({"customText": "x"}),
            json!({"value": "SQLite"}),
        ],
        "select" => vec![
            json!({"value": 1}),
            json!({"value": null}),
            json!({"value": ["Alpha"]}),
            json!({"value": {"value": "Alpha"}}),
            json!({"value": "Delta"}),
            json!({"value": "alpha"}),
            json!({"selected": ["Alpha"]}),
            json!({"confirmed": true}),
        ],
        _ => vec![
            json!({"value": 1}),
            json!({"value": true}),
            json!({"value": null}),
            json!({"value": ["text"]}),
            json!({"value": {}}),
            json!({"confirmed": true}),
        ],
    });
    all
}

#[test]
fn an_answer_that_does_not_fit_is_refused_and_the_dialog_stays() {
    for (command, method, answer) in dialogs() {
        let env = Env::new();
        let mut wharf = start(&env);
        let dialog = open(&mut wharf, command, method);
        for wrong in malformed(method) {
            wharf.answer(&dialog, wrong.clone());
            let line = wharf.next().unwrap();
            assert_eq!(line["type"], "response", "{method} {wrong}: {line}");
            assert_eq!(line["id"], dialog["id"], "{method} {wrong}: {line}");
            assert_eq!(line["command"], "extension_ui_response", "{method} {wrong}: {line}");
            assert_eq!(line["success"], false, "{method} {wrong}: {line}");
            let error = line["error"].as_str().unwrap();
            assert!(error.contains(method), "{method} {wrong}: {error}");
        }
        wharf.answer(&dialog, answer);
        let text = wharf.wait_notify();
        assert!(text.starts_with(&format!("{method}: answered")), "{text}");
        assert_settled_once(&wharf.finish());
    }
}

/// Answers that nobody waits for change nothing and are not answered.
#[track_caller]
fn assert_ignored(wharf: &mut Wharf, dialog: &Value, answer: &Value) {
    wharf.answer(dialog, answer.clone());
    wharf.send(&json!({"id": "after", "type": "get_version"}));
    let line = wharf.next().unwrap();
    assert_eq!(line["id"], "after", "not ignored: {line}");
}

#[test]
fn answers_that_come_late_or_twice_are_ignored() {
    for (command, method, answer) in dialogs() {
        let env = Env::new();
        let mut wharf = start(&env);
        let late = open(&mut wharf, &format!("{command} timeout=1"), method);
        assert_eq!(wharf.wait_notify(), format!("{method}: timed out"));
        wharf.wait_event("extension_ui_response_handled");
        assert_ignored(&mut wharf, &late, &answer);
        assert_ignored(&mut wharf, &late, &json!({"cancelled": true}));

        let twice = open(&mut wharf, command, method);
        wharf.answer(&twice, answer.clone());
        assert!(wharf.wait_notify().contains("answered"));
        wharf.wait_event("extension_ui_response_handled");
        assert_ignored(&mut wharf, &twice, &answer);
        assert_ignored(&mut wharf, &twice, &json!({"cancelled": true}));
        assert_ignored(&mut wharf, &twice, &json!({"value": 5, "confirmed": "no"}));
        let exit = wharf.finish();
        assert!(exit.rest.is_empty(), "{}", exit.transcript);
        assert_settled_once(&exit);
    }
}

#[test]
fn two_answers_in_one_write_settle_a_dialog_once() {
    let env = Env::new();
    let mut wharf = start(&env);
    let dialog = open(&mut wharf, "/rpc-confirm", "confirm");
    let line = |fields: &str| {
        format!("{{\"type\":\"extension_ui_response\",\"id\":{},{fields}}}\n", dialog["id"])
    };
    let both =
        line("\"confirmed\":true") + &line("\"confirmed\":false") + &line("\"cancelled\":true");
    wharf.send_raw(both.as_bytes());
    assert_eq!(wharf.wait_notify(), "confirm: answered true");
    let exit = wharf.finish();
    assert_settled_once(&exit);
}

#[test]
fn an_answer_to_no_dialog_is_ignored() {
    let env = Env::new();
    let mut wharf = start(&env);
    let nothing = json!({"id": "00000000-0000-4000-8000-000000000000"});
    assert_ignored(&mut wharf, &nothing, &json!({"value": "x"}));
    let open = open(&mut wharf, "/rpc-input", "input");
    assert_ignored(&mut wharf, &json!({"id": ""}), &json!({"value": "x"}));
    wharf.answer(&open, json!({"value": "y"}));
    assert_eq!(wharf.wait_notify(), "input: answered y");
    let notice = {
        wharf.prompt("/rpc-notify");
        wharf.wait_ui("notify")
    };
    wharf.wait_event("extension_ui_response_handled");
    assert_ignored(&mut wharf, &notice, &json!({"value": "x"}));
}

#[test]
fn an_answer_without_the_id_of_a_dialog_is_refused() {
    let env = Env::new();
    let mut wharf = start(&env);
    for id in [json!(5), json!(null), json!(["x"]), json!({}), json!(true)] {
        wharf.send(&json!({"type": "extension_ui_response", "id": id, "value": "x"}));
        let line = wharf.next().unwrap();
        assert_eq!(line["command"], "extension_ui_response", "{line}");
        assert_eq!(line["success"], false, "{line}");
        if !id.is_null() {
            assert_eq!(line["id"], id, "{line}");
        }
    }
    wharf.send(&json!({"type": "extension_ui_response", "value": "x"}));
    let line = wharf.next().unwrap();
    assert_eq!((&line["success"], line.get("id")), (&json!(false), None), "{line}");
}

fn now_millis() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    u64::try_from(since.as_millis()).unwrap()
}

#[test]
fn a_question_with_a_timeout_says_when_it_expires() {
    let env = Env::new();
    let mut wharf = start(&env);
    let timeout = 600_000;
    let before = now_millis();
    let dialog = open(&mut wharf, &format!("/rpc-ask timeout={timeout}"), "ask");
    let after = now_millis();
    assert_eq!(dialog["timeout"], timeout);
    let expires = dialog["expiresAt"].as_u64().unwrap();
    assert!((before + timeout..=after + timeout).contains(&expires), "{before} {expires} {after}");
    let other = open(&mut wharf, "/rpc-ask", "ask");
    assert!(other.get("timeout").is_none() && other.get("expiresAt").is_none(), "{other}");
}

#[test]
fn a_timeout_comes_not_before_its_time() {
    let env = Env::new();
    let mut wharf = start(&env);
    let before = now_millis();
    open(&mut wharf, "/rpc-confirm timeout=300", "confirm");
    assert_eq!(wharf.wait_notify(), "confirm: timed out");
    let waited = Duration::from_millis(now_millis() - before);
    assert!(waited >= Duration::from_millis(299), "{waited:?}");
}
