//! What extensions are asked and told when the session or its leaf changes, exactly once
//! each, and what becomes of their answers.

use std::fs;

use serde_json::{Map, Value, json};
use wharf_tests::llm::{Answer, Api, LlmServer, Reply};
use wharf_tests::script::says;
use wharf_tests::{Env, SessionFile, Wharf, guest};

use crate::lab::error;
use crate::navigation::{go, to};
use crate::session_tree::{entries, entry, every_entry, id_of, leaf, nodes, told, tree};
use crate::story::{accept, session_file, settings, state};

/// A command of `probe`, and what it shows.
fn probe(wharf: &mut Wharf, command: &str) -> Value {
    wharf.prompt(command);
    serde_json::from_str(&wharf.wait_notify()).unwrap()
}

/// How often each notification about sessions has arrived.
fn counts(wharf: &mut Wharf) -> Value {
    let all = probe(wharf, "/counts");
    let names = ["session_start", "session_switch", "session_fork", "session_tree"];
    let all = all.as_object().unwrap();
    let kept = all.iter().filter(|(name, _)| names.contains(&name.as_str()));
    Value::Object(kept.map(|(name, count)| (name.clone(), count.clone())).collect::<Map<_, _>>())
}

/// Waits until that many of one kind have arrived, and no more: gives the counts. What
/// comes later is seen by the next call.
fn wait_counts(wharf: &mut Wharf, expected: &Value) {
    for _ in 0..500 {
        if counts(wharf) == *expected {
            return;
        }
    }
    panic!("expected {expected}, and there were {}", counts(wharf));
}

fn typed(wharf: &mut Wharf, kind: &str) -> Vec<String> {
    let all = probe(wharf, "/typed");
    let lines = all.as_array().unwrap().iter().map(|line| line.as_str().unwrap().to_owned());
    lines.filter(|line| line.starts_with(kind)).collect()
}

/// With these guests, two runs at a fake server.
fn start(env: &Env, server: &LlmServer, guests: &[&str]) -> Wharf {
    settings(env, json!({}));
    let model = json!({"contextWindow": 10_000, "maxTokens": 2000});
    env.write_agent("models.json", server.models_json(Api::AnthropicMessages, &model));
    let paths: Vec<String> = guests.iter().map(|name| guest(name).display().to_string()).collect();
    let mut args = vec!["--model", "fake/fake-1"];
    for path in &paths {
        args.extend(["-e", path]);
    }
    let mut wharf = env.rpc(&args);
    server.reply(Answer::says("answer one"));
    server.reply(Answer::says("answer two"));
    wharf.run("first");
    wharf.run("second");
    wharf
}

fn set(wharf: &mut Wharf, command: &str) {
    let shown = probe(wharf, command);
    assert!(shown.get("error").is_none(), "{shown}");
}

fn summarized(target: &str) -> Value {
    json!({"type": "navigate_tree", "targetId": target, "summarize": true})
}

#[test]
fn a_fork_is_cancelled_kept_and_goes_on_after_a_failure() {
    let env = Env::new();
    let server = LlmServer::start();
    let mut wharf = start(&env, &server, &["probe"]);
    let old = session_file(&mut wharf);
    let (before, tree_before) = (fs::read(&old).unwrap(), tree(&mut wharf));
    let second = id_of(&mut wharf, "second");
    let fork = json!({"type": "fork", "entryId": second});

    set(&mut wharf, "/before-fork CANCEL");
    let response = wharf.request(fork.clone());
    let expected = json!({"id": response["id"], "type": "response", "command": "fork",
        "success": true, "data": {"text": "second", "cancelled": true}});
    assert_eq!(response, expected);
    assert_eq!(session_file(&mut wharf), old);
    assert_eq!(tree(&mut wharf), tree_before);
    assert_eq!(fs::read_dir(old.parent().unwrap()).unwrap().count(), 2, "the file and its lock");
    // Nobody is asked about what cannot be.
    error(&mut wharf, &json!({"type": "fork", "entryId": "zzz"}));

    set(&mut wharf, "/before-fork SHOW");
    wharf.send(&json!({"id": "f", "type": "fork", "entryId": second}));
    let shown: Value = serde_json::from_str(&wharf.wait_notify()).unwrap();
    assert_eq!(shown, json!({"call": "session-before-fork", "result": {"entryId": second}}));
    let response = wharf.wait_for("the answer", |line| line["id"] == "f");
    assert_eq!(response["data"], json!({"text": "second", "cancelled": false}));
    let middle = session_file(&mut wharf);
    assert_ne!(middle, old);
    assert_eq!(fs::read(&old).unwrap(), before);
    // The one that was cancelled would be here too.
    wait_counts(&mut wharf, &json!({"session_start": 1, "session_fork": 1}));
    assert_eq!(typed(&mut wharf, "fork"), [format!("fork Some({:?})", old.to_str().unwrap())]);

    // The conversation is not rewound: the whole branch goes into the fork.
    set(&mut wharf, "/before-fork KEEP");
    accept(&mut wharf, json!({"type": "switch_session", "sessionPath": old}));
    assert_eq!(wharf.data(fork.clone()), json!({"text": "second", "cancelled": false}));
    let kept = session_file(&mut wharf);
    let conversation =
        ["user: first", "assistant: answer one", "user: second", "assistant: answer two"];
    assert_eq!(told(&mut wharf), conversation);
    let session = SessionFile::read(&kept);
    session.assert_linear();
    assert_eq!(session.messages(), SessionFile::read(&old).messages());
    assert_eq!(session.header["parentSession"], old.to_str().unwrap());

    set(&mut wharf, "/before-fork FAIL");
    assert_eq!(wharf.data(fork), json!({"text": "second", "cancelled": false}));
    let failure = wharf.wait_extension_error("probe");
    assert_eq!(failure["event"], "session_before_fork", "{failure}");
    assert_eq!(told(&mut wharf), ["user: first", "assistant: answer one"]);
    wait_counts(&mut wharf, &json!({"session_start": 1, "session_fork": 3, "session_switch": 1}));
    assert_eq!(typed(&mut wharf, "fork").len(), 3);
    assert_eq!(
        counts(&mut wharf),
        json!({"session_start": 1, "session_fork": 3, "session_switch": 1})
    );
}

#[test]
fn a_move_is_cancelled_shown_and_goes_on_after_a_failure() {
    let env = Env::new();
    let server = LlmServer::start();
    let mut wharf = start(&env, &server, &["probe"]);
    let file = session_file(&mut wharf);
    let (second, one) = (id_of(&mut wharf, "second"), id_of(&mut wharf, "answer one"));
    let old_leaf = leaf(&mut wharf);
    let (before, tree_before) = (fs::read(&file).unwrap(), tree(&mut wharf));
    let written_again = json!({"cancelled": false, "editorText": "second"});

    set(&mut wharf, "/before-tree CANCEL");
    for mut command in [to(&second), summarized(&second), to(&one)] {
        command["label"] = json!("never");
        go(&mut wharf, command, &json!({"cancelled": true}));
    }
    assert_eq!(tree(&mut wharf), tree_before);
    assert_eq!(fs::read(&file).unwrap(), before);
    assert_eq!(told(&mut wharf).len(), 4);
    // Nobody is asked about what cannot be.
    assert_eq!(error(&mut wharf, &to("zzz")), "Entry zzz not found");

    set(&mut wharf, "/before-tree SHOW");
    wharf.send(&json!({"id": "n", "type": "navigate_tree", "targetId": second,
        "customInstructions": "words", "replaceInstructions": true, "label": "here"}));
    let shown: Value = serde_json::from_str(&wharf.wait_notify()).unwrap();
    let response = wharf.wait_for("the answer", |line| line["id"] == "n");
    assert_eq!(response["data"], written_again);
    let mut result = shown["result"].clone();
    let abandoned = result["abandoned"].take();
    assert_eq!(
        result,
        json!({"targetId": second, "oldLeafId": old_leaf, "commonAncestorId": one,
            "abandoned": null, "summarize": false, "customInstructions": "words",
            "replaceInstructions": true, "label": "here"})
    );
    // The leaf goes before the target, so that is where the two branches part.
    assert_eq!(abandoned[0]["content"][0]["text"], "second");
    assert_eq!(abandoned[1]["content"][0]["text"], "answer two");
    assert_eq!(abandoned.as_array().unwrap().len(), 2);
    wait_counts(&mut wharf, &json!({"session_start": 1, "session_tree": 1}));

    // To where it is already is no move.
    set(&mut wharf, "/before-tree");
    let here = leaf(&mut wharf).as_str().unwrap().to_owned();
    go(&mut wharf, to(&here), &json!({"cancelled": false}));

    set(&mut wharf, "/before-tree FAIL");
    go(&mut wharf, to(old_leaf.as_str().unwrap()), &json!({"cancelled": false}));
    let failure = wharf.wait_extension_error("probe");
    assert_eq!(failure["event"], "session_before_tree", "{failure}");
    assert_eq!(leaf(&mut wharf), old_leaf);
    wait_counts(&mut wharf, &json!({"session_start": 1, "session_tree": 2}));
    let old = old_leaf.as_str().unwrap();
    let first_leaf = here;
    assert_eq!(
        typed(&mut wharf, "tree"),
        [
            format!("tree Some({old:?}) Some({first_leaf:?}) None false"),
            format!("tree Some({first_leaf:?}) Some({old:?}) None false"),
        ]
    );
    assert_eq!(server.requests().len(), 2, "no summary was asked for");
    assert_eq!(counts(&mut wharf), json!({"session_start": 1, "session_tree": 2}));
}

#[test]
fn an_extension_has_a_summary_of_its_own() {
    let env = Env::new();
    let server = LlmServer::start();
    let mut wharf = start(&env, &server, &["probe"]);
    let file = session_file(&mut wharf);
    let (second, one) = (id_of(&mut wharf, "second"), id_of(&mut wharf, "answer one"));
    let old_leaf = leaf(&mut wharf);
    let change = json!({"summary": "OWN", "details": {"any": ["thing"]}, "label": "own label"});
    set(&mut wharf, &format!("/before-tree CHANGE {change}"));
    let mut command = summarized(&second);
    command["label"] = json!("asked for");
    go(&mut wharf, command, &json!({"cancelled": false, "editorText": "second"}));
    assert_eq!(server.requests().len(), 2, "no model is asked");
    let stored = entries(&file);
    let (summary, label) = (&stored[stored.len() - 2], stored.last().unwrap());
    let mut plain = summary.clone();
    for field in ["id", "timestamp"] {
        plain.as_object_mut().unwrap().remove(field);
    }
    assert_eq!(
        plain,
        json!({"type": "branch_summary", "parentId": one, "fromId": old_leaf, "summary": "OWN",
            "details": {"any": ["thing"]}, "fromHook": true})
    );
    assert_eq!((&label["targetId"], &label["label"]), (&summary["id"], &json!("own label")));
    let told_now = told(&mut wharf);
    assert_eq!(told_now[2..], ["branchSummary: OWN"]);
    wait_counts(&mut wharf, &json!({"session_start": 1, "session_tree": 1}));
    let typed = typed(&mut wharf, "tree");
    assert_eq!(typed.len(), 1);
    assert!(typed[0].contains("OWN") && typed[0].ends_with(" true"), "{typed:?}");
    // The next prompt is below, and the model reads the summary.
    server.reply(Answer::says("answer three"));
    wharf.run("third");
    let sent = server.requests()[2].body["messages"].to_string();
    assert!(sent.contains("OWN") && !sent.contains("answer two"), "{sent}");

    // Where none is wanted, none is taken.
    set(&mut wharf, r#"/before-tree CHANGE {"summary": "UNWANTED"}"#);
    go(&mut wharf, to(old_leaf.as_str().unwrap()), &json!({"cancelled": false}));
    assert_eq!(leaf(&mut wharf), old_leaf);
    assert!(!fs::read_to_string(&file).unwrap().contains("UNWANTED"));
}

#[test]
fn an_extension_changes_how_a_summary_is_made() {
    let env = Env::new();
    let server = LlmServer::start();
    let mut wharf = start(&env, &server, &["probe"]);
    let second = id_of(&mut wharf, "second");
    let back = leaf(&mut wharf).as_str().unwrap().to_owned();
    server.default_summary(Answer::says("S"));
    let mut ask = |change: Value| {
        set(&mut wharf, &format!("/before-tree CHANGE {change}"));
        let mut command = summarized(&second);
        command["customInstructions"] = json!("the client's words");
        command["label"] = json!("the client's");
        go(&mut wharf, command, &json!({"cancelled": false, "editorText": "second"}));
        let nodes = nodes(&tree(&mut wharf));
        let node = nodes.iter().rfind(|node| node["type"] == "branch_summary").unwrap();
        let label = node.get("label").map(|label| label.as_str().unwrap().to_owned());
        set(&mut wharf, "/before-tree");
        go(&mut wharf, to(&back), &json!({"cancelled": false}));
        let sent = server.requests().last().unwrap().body["messages"].to_string();
        (sent, label)
    };
    let (plain, label) = ask(json!({}));
    assert!(plain.contains("the client's words"), "{plain}");
    assert_eq!(label.as_deref(), Some("the client's"));
    let (changed, label) = ask(json!({"customInstructions": "other words", "label": "other"}));
    assert!(changed.contains("other words") && !changed.contains("the client's words"));
    assert_eq!(label.as_deref(), Some("other"));
    let (cleared, label) = ask(json!({"customInstructions": null, "label": null}));
    assert!(!cleared.contains("the client's words"), "{cleared}");
    assert_eq!(label, None);
    let (replaced, _) =
        ask(json!({"customInstructions": "only this", "replaceInstructions": true}));
    assert!(replaced.contains("only this") && replaced.len() < cleared.len(), "{replaced}");
}

/// The after-event tells the summary as it stands in the file; a move that fails or is
/// aborted tells nothing.
#[test]
fn a_move_is_told_once_and_only_when_it_was_made() {
    let env = Env::new();
    let server = LlmServer::start();
    let mut wharf = start(&env, &server, &["probe"]);
    let (first, second) = (id_of(&mut wharf, "first"), id_of(&mut wharf, "second"));
    let old_leaf = leaf(&mut wharf);
    server.on_summary(Reply::status(
        400,
        r#"{"type":"error","error":{"type":"invalid_request_error","message":"bad"}}"#,
    ));
    error(&mut wharf, &summarized(&first));
    let gate = server.gate();
    server.on_summary(Reply::from(Answer::says("never")).hold(&gate));
    wharf.send(&json!({"id": "n", "type": "navigate_tree", "targetId": first, "summarize": true}));
    gate.wait_reached();
    accept(&mut wharf, json!({"type": "abort"}));
    let response = wharf.wait_for("the answer", |line| line["id"] == "n");
    assert_eq!(response["data"], json!({"cancelled": true}), "{response}");
    server.on_summary(Answer::says("THE SUMMARY"));
    go(&mut wharf, summarized(&second), &json!({"cancelled": false, "editorText": "second"}));
    wait_counts(&mut wharf, &json!({"session_start": 1, "session_tree": 1}));
    let [line] = &typed(&mut wharf, "tree")[..] else { panic!("not one") };
    let new_leaf = leaf(&mut wharf);
    let begin = format!(
        "tree Some({:?}) Some({:?}) Some(",
        old_leaf.as_str().unwrap(),
        new_leaf.as_str().unwrap()
    );
    assert!(line.starts_with(&begin) && line.ends_with(") false"), "{line}");
    assert!(line.contains("THE SUMMARY"), "{line}");
    assert_eq!(counts(&mut wharf), json!({"session_start": 1, "session_tree": 1}));
}

/// A dialog of an extension that is open before a move is cancelled by an abort, and with
/// it the move.
#[test]
fn an_abort_while_an_extension_asks_about_a_move() {
    let env = Env::new();
    let server = LlmServer::start();
    let mut wharf = start(&env, &server, &["waiter"]);
    let file = session_file(&mut wharf);
    let (second, before) = (id_of(&mut wharf, "second"), fs::read(&file).unwrap());
    let tree_before = tree(&mut wharf);
    for answer in ["abort", "no", "yes"] {
        wharf.send(&json!({"id": answer, "type": "navigate_tree", "targetId": second,
            "customInstructions": "ASK"}));
        let dialog = wharf.wait_ui("confirm");
        assert_eq!(tree(&mut wharf), tree_before, "nothing has moved yet");
        match answer {
            "abort" => accept(&mut wharf, json!({"type": "abort"})),
            _ => wharf.answer(&dialog, json!({"confirmed": answer == "yes"})),
        }
        let response = wharf.wait_for("the answer", |line| line["id"] == answer);
        let data = match answer {
            "yes" => json!({"cancelled": false, "editorText": "second"}),
            _ => json!({"cancelled": true}),
        };
        assert_eq!(response["data"], data, "{answer}");
        assert_eq!(fs::read(&file).unwrap(), before);
    }
    assert_eq!(told(&mut wharf).len(), 2);
}

/// An extension that still loads is waited for.
#[test]
fn at_once_after_the_start_extensions_are_asked() {
    let env = Env::new();
    let file = every_entry(&env).write(&env);
    let before = fs::read(&file).unwrap();
    let path = file.to_str().unwrap();
    let navigate = json!({"id": "n", "type": "navigate_tree", "targetId": "b0000002",
        "customInstructions": "CANCEL", "label": "never"});
    let component = guest("probe").display().to_string();
    let mut wharf = env.rpc(&["--model", "scripted/demo", "--session", path, "-e", &component]);
    wharf.send(&navigate);
    let response = wharf.wait_for("the answer", |line| line["id"] == "n");
    assert_eq!(response["data"], json!({"cancelled": true}), "{response}");
    assert_eq!(leaf(&mut wharf), "b0000008");
    assert_eq!(wharf.finish().code, Some(0));

    let component = guest("confirm-switch").display().to_string();
    let mut wharf = env.rpc(&["--model", "scripted/demo", "--session", path, "-e", &component]);
    wharf.send(&json!({"id": "f", "type": "fork", "entryId": "b0000002"}));
    let dialog = wharf.wait_ui("confirm");
    assert_eq!(dialog["title"], "Fork session?");
    // An abort settles the dialog, and with it the fork.
    accept(&mut wharf, json!({"type": "abort"}));
    let response = wharf.wait_for("the answer", |line| line["id"] == "f");
    assert_eq!(response["data"], json!({"text": "another \"way\"", "cancelled": true}));
    assert_eq!(session_file(&mut wharf), file);
    assert_eq!(wharf.finish().code, Some(0));
    assert_eq!(fs::read(&file).unwrap(), before);
    assert!(!env.agent_dir().join("sessions").exists());
}

/// `session_before_switch` of one example asks by a dialog, so it can be counted;
/// `session_switch` is counted by the probe.
#[test]
fn each_switch_is_asked_about_and_told_once() {
    let env = Env::new();
    let server = LlmServer::start();
    let mut wharf = start(&env, &server, &["probe", "confirm-switch"]);
    let first = session_file(&mut wharf);
    let outside = {
        let text = fs::read_to_string(&first).unwrap();
        let id = state(&mut wharf)["sessionId"].as_str().unwrap().to_owned();
        env.write("outside.jsonl", text.replace(&id, "11111111-d9cb-469f-a165-70867728950e"))
    };
    let mut switches = 0;
    for (command, method, yes) in [
        (json!({"type": "new_session"}), "confirm", json!({"confirmed": true})),
        (
            json!({"type": "switch_session", "sessionPath": first}),
            "select",
            json!({"value": "Yes"}),
        ),
        (
            json!({"type": "switch_session", "sessionPath": first, "fork": true}),
            "select",
            json!({"value": "Yes"}),
        ),
        (
            json!({"type": "import_session", "sessionPath": outside}),
            "select",
            json!({"value": "Yes"}),
        ),
    ] {
        for goes_on in [false, true] {
            let before = session_file(&mut wharf);
            let mut command = command.clone();
            command["id"] = json!("s");
            wharf.send(&command);
            let dialog = wharf.wait_ui(method);
            let answer = if goes_on { yes.clone() } else { json!({"cancelled": true}) };
            wharf.answer(&dialog, answer);
            let response = wharf.wait_for("the answer", |line| line["id"] == "s");
            assert_eq!(response["success"], true, "{response}");
            assert_eq!(response["data"]["cancelled"], !goes_on, "{response}");
            let is_other = session_file(&mut wharf) != before;
            assert_eq!(is_other, goes_on, "{command}");
            if goes_on {
                switches += 1;
            } else {
                assert!(wharf.wait_notify().ends_with(" cancelled"));
            }
            let asked = |line: &&Value| line["method"] == "confirm" || line["method"] == "select";
            assert_eq!(wharf.passed().filter(asked).count(), 0, "asked twice: {command}");
            let mut expected = json!({"session_start": 1});
            if switches > 0 {
                expected["session_switch"] = json!(switches);
            }
            wait_counts(&mut wharf, &expected);
        }
    }
    // What cannot be opened is not asked about.
    let missing = env.project().join("missing.jsonl");
    error(&mut wharf, &json!({"type": "switch_session", "sessionPath": missing}));
    error(&mut wharf, &json!({"type": "import_session", "sessionPath": missing}));

    // A fork has events of its own, and none of those.
    let second = id_of(&mut wharf, "second");
    wharf.send(&json!({"id": "f", "type": "fork", "entryId": second}));
    let dialog = wharf.wait_ui("confirm");
    assert_eq!(dialog["title"], "Fork session?");
    wharf.answer(&dialog, json!({"confirmed": true}));
    let response = wharf.wait_for("the answer", |line| line["id"] == "f");
    assert_eq!(response["data"]["cancelled"], false, "{response}");
    let expected = json!({"session_start": 1, "session_switch": 4, "session_fork": 1});
    wait_counts(&mut wharf, &expected);
    // A move has its own too.
    let first = id_of(&mut wharf, "first");
    go(&mut wharf, to(&first), &json!({"cancelled": false, "editorText": "first"}));
    let expected =
        json!({"session_start": 1, "session_switch": 4, "session_fork": 1, "session_tree": 1});
    wait_counts(&mut wharf, &expected);
    assert_eq!(counts(&mut wharf), expected);
    let asked = |line: &&Value| line["method"] == "confirm" || line["method"] == "select";
    assert_eq!(wharf.passed().filter(asked).count(), 0);
}

/// Models are told where a move or a fork changes them, and only there.
#[test]
fn a_model_that_comes_back_with_a_branch_is_told() {
    let env = Env::new();
    let mut reply = says("ok");
    reply["repeat"] = json!(true);
    let model = env.script(&[reply]);
    let mut wharf = env.rpc_with(&["probe"], &model);
    wharf.run("first");
    accept(&mut wharf, json!({"type": "set_model", "provider": "scripted", "modelId": "demo"}));
    wharf.run("second");
    let file = session_file(&mut wharf);
    let stored = entries(&file);
    let reply = stored.iter().find(|entry| entry["message"]["role"] == "assistant").unwrap();
    let second = stored.iter().rfind(|entry| entry["message"]["role"] == "user").unwrap();
    assert_eq!(entry(&stored, second["parentId"].as_str().unwrap())["type"], "model_change");
    // Back, where the model was another; again, where it is the same; forward.
    for id in [&reply["id"], &stored[2]["id"], &second["id"]] {
        let response = wharf.request(to(id.as_str().unwrap()));
        assert_eq!(response["success"], true, "{response}");
    }
    wait_counts(&mut wharf, &json!({"session_start": 1, "session_tree": 3}));
    let models = typed(&mut wharf, "model");
    let sources: Vec<&str> = models.iter().map(|line| line.rsplit(' ').next().unwrap()).collect();
    assert_eq!(sources, ["Set", "Restore", "Restore"], "{models:?}");
}
