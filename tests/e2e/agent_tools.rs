//! Tools that talk to the person instead of the machine: `tasks_update`, `suggest_next`,
//! `ask_user` and `skill`; and which tools a model is offered.

use std::process::Stdio;

use serde_json::{Value, json};
use wharf_tests::llm::{Answer, LlmServer};
use wharf_tests::script::{call, says};
use wharf_tests::{Env, SessionFile, Wharf};

use crate::lab::{done, serving, session_path, state};
use crate::order::{count, text_of, texts};

fn tasks(list: &[(&str, &str, &str)]) -> Value {
    let list: Vec<Value> = list
        .iter()
        .map(|(id, title, status)| json!({"id": id, "title": title, "status": status}))
        .collect();
    json!(list)
}

fn of_type<'a>(lines: &'a [Value], kind: &str) -> Vec<&'a Value> {
    lines.iter().filter(|line| line["type"] == kind).collect()
}

/// Runs one call of a tool with each of these arguments; gives the run.
fn calls(env: &Env, tool: &str, all: &[Value]) -> (Wharf, Vec<Value>) {
    let mut replies: Vec<Value> = all.iter().map(|arguments| call(tool, arguments)).collect();
    replies.push(says("done"));
    let model = env.script(&replies);
    let mut wharf = env.rpc(&["--model", &model]);
    let run = wharf.run("go");
    (wharf, run)
}

#[test]
fn a_task_list_is_replaced_as_a_whole() {
    let env = Env::new();
    let first = tasks(&[("a", "Look", "in_progress"), ("b", "Fix", "pending")]);
    let second = tasks(&[
        ("a", "Look", "completed"),
        ("b", "Fix ü", "in_progress"),
        ("c", "Test", "pending"),
    ]);
    let (mut wharf, run) =
        calls(&env, "tasks_update", &[json!({"tasks": first}), json!({"tasks": second})]);
    let events = of_type(&run, "tasks_update");
    assert_eq!(events.len(), 2, "{}", wharf.transcript());
    assert_eq!(*events[0], json!({"type": "tasks_update", "tasks": first}));
    assert_eq!(*events[1], json!({"type": "tasks_update", "tasks": second}));
    assert_eq!(state(&mut wharf)["tasks"], second);
    // The event comes while its call runs.
    let kinds: Vec<&str> = run.iter().map(|line| line["type"].as_str().unwrap()).collect();
    let at = |kind: &str| kinds.iter().position(|known| *known == kind).unwrap();
    assert!(
        at("tool_execution_start") < at("tasks_update")
            && at("tasks_update") < at("tool_execution_end")
    );
}

#[test]
fn a_list_that_is_wrong_leaves_the_old_one() {
    let good = tasks(&[("a", "Look", "pending")]);
    let wrong = [
        (tasks(&[("x", "One", "pending"), ("x", "Two", "pending")]), "x"),
        (tasks(&[("", "One", "pending")]), "id"),
        (tasks(&[("x", " ", "pending")]), "title"),
        (tasks(&[("x", "One", "done")]), "status"),
        (json!([{"id": "x", "title": "One"}]), "status"),
        (json!([{"id": 1, "title": "One", "status": "pending"}]), "id"),
        (json!("x"), "tasks"),
        (json!(null), "tasks"),
    ];
    let env = Env::new();
    let mut all = vec![json!({"tasks": good})];
    all.extend(wrong.iter().map(|(list, _)| json!({"tasks": list})));
    let (mut wharf, run) = calls(&env, "tasks_update", &all);
    assert_eq!(of_type(&run, "tasks_update").len(), 1);
    let ends = of_type(&run, "tool_execution_end");
    for (end, (list, named)) in ends[1..].iter().zip(&wrong) {
        assert_eq!(end["isError"], true, "{list}");
        assert!(text_of(&end["result"]).contains(named), "{list}: {}", text_of(&end["result"]));
    }
    assert_eq!(state(&mut wharf)["tasks"], good);
}

#[test]
fn a_session_has_its_list_again_when_it_is_reopened_or_switched_to() {
    let env = Env::new();
    let list = tasks(&[("a", "Look", "in_progress")]);
    let (mut wharf, _) = calls(&env, "tasks_update", &[json!({ "tasks": list })]);
    let first = session_path(&mut wharf);
    wharf.data(json!({"type": "new_session"}));
    assert_eq!(state(&mut wharf)["tasks"], json!([]));
    let path = first.display().to_string();
    wharf.data(json!({"type": "switch_session", "sessionPath": path}));
    assert_eq!(state(&mut wharf)["tasks"], list);
    assert_eq!(wharf.finish().code, Some(0));
    let mut wharf = env.rpc(&["--model", "scripted/demo", "--session", &path]);
    assert_eq!(state(&mut wharf)["tasks"], list);
    let before = std::fs::read(&first).unwrap();
    assert_eq!(wharf.finish().code, Some(0));
    assert_eq!(std::fs::read(&first).unwrap(), before);
    SessionFile::read(&first).assert_linear();
}

#[test]
fn an_empty_list_clears() {
    let env = Env::new();
    let list = tasks(&[("a", "Look", "completed")]);
    let (mut wharf, run) =
        calls(&env, "tasks_update", &[json!({ "tasks": list }), json!({"tasks": []})]);
    assert_eq!(*of_type(&run, "tasks_update")[1], json!({"type": "tasks_update", "tasks": []}));
    assert_eq!(state(&mut wharf)["tasks"], json!([]));
}

#[test]
fn a_suggestion_is_an_event() {
    let env = Env::new();
    let (mut wharf, run) = calls(
        &env,
        "suggest_next",
        &[
            json!({"command": "/skill:review all"}),
            json!({"command": "  fix it \n"}),
            json!({"command": " "}),
            json!({"command": "two\nlines"}),
            json!({"command": 5}),
            json!({"command": "x".repeat(3000)}),
        ],
    );
    let events = of_type(&run, "suggest_next");
    assert_eq!(
        events,
        [
            &json!({"type": "suggest_next", "command": "/skill:review all"}),
            &json!({"type": "suggest_next", "command": "fix it"}),
        ]
    );
    let errors: Vec<bool> =
        of_type(&run, "tool_execution_end").iter().map(|end| end["isError"] == true).collect();
    assert_eq!(errors, [false, false, true, true, true, true]);
    // Nothing of it was sent as a prompt.
    assert_eq!(texts(&run, "user"), ["go"]);
    assert_eq!(state(&mut wharf)["pendingMessageCount"], 0);
}

#[test]
fn a_skill_gives_its_body_with_its_arguments() {
    let env = Env::new();
    let skill = |name: &str, extra: &str, body: &str| {
        let text = format!("---\nname: {name}\ndescription: Does {name}.\n{extra}---\n{body}");
        env.write_agent(&format!("skills/{name}/SKILL.md"), text);
    };
    skill(
        "fill",
        "",
        "One $1, two $2, all $ARGUMENTS in ${WHARF_SKILL_DIR} of ${WHARF_SESSION_ID}.",
    );
    skill("bare", "", "Just do it.");
    skill("secret", "disable-model-invocation: true\n", "Not for models.");
    let (mut wharf, run) = calls(
        &env,
        "skill",
        &[
            json!({"skill": "fill", "args": "a 'b $1 c'"}),
            json!({"skill": "bare", "args": "these words"}),
            json!({"skill": "secret"}),
            json!({"skill": "none-such"}),
            json!({}),
            json!({"skill": "fill", "args": ["a"]}),
        ],
    );
    let ends = of_type(&run, "tool_execution_end");
    let id = state(&mut wharf)["sessionId"].as_str().unwrap().to_owned();
    let dir = env.agent_dir().join("skills/fill").display().to_string();
    let text = text_of(&ends[0]["result"]);
    assert!(text.contains(&format!("One a, two b $1 c, all a b $1 c in {dir} of {id}.")), "{text}");
    assert!(!text.contains("description:"), "{text}");
    let text = text_of(&ends[1]["result"]);
    assert!(text.contains("Just do it.") && text.contains("these words"), "{text}");
    let text = text_of(&ends[2]["result"]);
    assert_eq!(ends[2]["isError"], true);
    assert!(text.contains("secret") && !text.contains("Not for models"), "{text}");
    let text = text_of(&ends[3]["result"]);
    assert_eq!(ends[3]["isError"], true);
    assert!(text.contains("none-such") && text.contains("fill") && text.contains("bare"), "{text}");
    assert!(!text.contains("secret"), "a skill that is not for models is offered: {text}");
    for end in &ends[4..] {
        assert_eq!(end["isError"], true, "{end}");
    }
}

/// The names of the tools that a model is offered, and its system prompt.
fn offered(args: &[&str], with_skill: bool) -> (Vec<String>, String) {
    let server = LlmServer::start();
    server.default_reply(Answer::says("ok"));
    let env = serving(&server, &json!([{"id": "m"}]));
    if with_skill {
        env.write_agent("skills/a/SKILL.md", "---\nname: a\ndescription: Does a.\n---\nDo a.");
        env.write_agent(
            "skills/b/SKILL.md",
            "---\nname: b\ndescription: Does <b>.\ndisable-model-invocation: true\n---\nDo b.",
        );
    }
    let mut all = vec!["--model", "fake/m", "--no-session"];
    all.extend(args);
    let mut wharf = env.rpc(&all);
    wharf.run("hi");
    let body = server.requests()[0].body.clone();
    let names = body["tools"]
        .as_array()
        .map(|tools| {
            tools.iter().map(|tool| tool["function"]["name"].as_str().unwrap().to_owned()).collect()
        })
        .unwrap_or_default();
    (names, body["messages"][0]["content"].to_string())
}

#[test]
fn the_tools_that_a_model_is_offered() {
    let all = [
        "read",
        "bash",
        "edit",
        "write",
        "grep",
        "find",
        "ls",
        "ask_user",
        "tasks_update",
        "suggest_next",
    ];
    let sorted = |mut names: Vec<String>| {
        names.sort();
        names
    };
    let mut expect: Vec<String> = all.map(str::to_owned).to_vec();
    expect.sort();
    assert_eq!(sorted(offered(&[], false).0), expect);
    let (names, prompt) = offered(&[], true);
    assert!(names.contains(&"skill".to_owned()), "{names:?}");
    assert!(prompt.contains("<available_skills>") && prompt.contains("Does a."), "{prompt}");
    assert!(!prompt.contains("Does &lt;b"), "{prompt}");
    assert_eq!(sorted(offered(&["--tools", "read,ls"], true).0), ["ls", "read"]);
    assert_eq!(offered(&["--tools", "skill"], true).0, ["skill"]);
    assert!(offered(&["--no-tools"], true).0.is_empty());
    // A model without the tool is not told to use it.
    let (_, prompt) = offered(&["--no-tools"], true);
    assert!(!prompt.contains("ask_user") && !prompt.contains("- bash:"), "{prompt}");
}

#[test]
fn a_tool_that_there_is_none_of_is_a_wrong_command_line() {
    let env = Env::new();
    for args in
        [&["--tools", "read,telepathy"][..], &["--tools", ""], &["--tools", "read", "--no-tools"]]
    {
        let output = env
            .command()
            .args(["--model", "scripted/demo", "-p", "hi"])
            .args(args)
            .stdin(Stdio::null())
            .output()
            .unwrap();
        assert_ne!(output.status.code(), Some(0), "{args:?}");
        assert!(output.stdout.is_empty());
        assert!(String::from_utf8(output.stderr).unwrap().contains("--tools"), "{args:?}");
    }
}

#[test]
fn a_tool_that_is_not_offered_does_not_run() {
    let env = Env::new();
    let model = env.script(&[call("bash", &json!({"command": "touch ran"})), says("done")]);
    let mut wharf = env.rpc(&["--model", &model, "--tools", "read"]);
    let run = wharf.run("go");
    let end = of_type(&run, "tool_execution_end")[0];
    assert_eq!(end["isError"], true);
    assert!(!env.project().join("ran").exists());
}

/// The request of a call of `ask_user` with these arguments, without its id and times.
fn asked(arguments: &Value) -> Value {
    let env = Env::new();
    let model = env.script(&[call("ask_user", arguments), says("done")]);
    let mut wharf = env.rpc(&["--model", &model]);
    wharf.prompt("go");
    let mut dialog = wharf.wait_ui("ask");
    let fields = dialog.as_object_mut().unwrap();
    assert!(fields.remove("id").is_some_and(|id| id.is_string()));
    if let Some(expires) = fields.remove("expiresAt") {
        assert!(expires.as_u64().unwrap() > 1_700_000_000_000, "{expires}");
        assert!(fields["timeout"].is_u64());
    }
    dialog
}

#[test]
fn a_question_has_the_documented_fields() {
    let full = json!({
        "question": "Which **one**?", "title": "Choose", "options": ["A", "B"], "allowFreeText": false,
        "multiSelect": true, "multiline": true, "timeout": 60,
    });
    let expected = json!({
        "type": "extension_ui_request", "method": "ask", "title": "Choose", "question": "Which **one**?",
        "options": ["A", "B"], "allowFreeText": false, "multiSelect": true, "multiline": true,
        "timeout": 60_000,
    });
    assert_eq!(asked(&full), expected);
    let mut plain = asked(&json!({"question": "Why?"}));
    // It is optional: left out, not an empty list, which would be none of 2 to 4.
    assert!(plain.get("options").is_none(), "{plain}");
    let title = plain.as_object_mut().unwrap().remove("title").unwrap();
    assert!(!title.as_str().unwrap().is_empty());
    let expected = json!({
        "type": "extension_ui_request", "method": "ask", "question": "Why?",
        "allowFreeText": true, "multiSelect": false, "multiline": false,
    });
    assert_eq!(plain, expected);
}

/// What the model is told, and whether it was asked again.
fn answered(arguments: &Value, answer: &Value) -> (String, bool, bool) {
    let env = Env::new();
    let model = env.script(&[call("ask_user", arguments), says("I go on")]);
    let mut wharf = env.rpc(&["--model", &model]);
    wharf.prompt("go");
    let dialog = wharf.wait_ui("ask");
    wharf.answer(&dialog, answer.clone());
    let handled = wharf.wait_for("its end", |line| line["type"] == "extension_ui_response_handled");
    assert_eq!(handled, json!({"type": "extension_ui_response_handled", "id": dialog["id"]}));
    let run = wharf.take_until("agent_end");
    let end = of_type(&run, "tool_execution_end")[0];
    assert_eq!(state(&mut wharf)["isStreaming"], false);
    (text_of(&end["result"]), end["isError"] == true, count(&run, "turn_start") > 1)
}

#[test]
fn answers_reach_the_model() {
    let question =
        json!({"question": "Which?", "options": ["Alpha", "Beta", "Gamma"], "multiSelect": true});
    let (text, is_error, goes_on) = answered(&question, &json!({"selected": ["Alpha", "Gamma"]}));
    assert!(text.contains("Alpha") && text.contains("Gamma") && !text.contains("Beta"), "{text}");
    assert_eq!((is_error, goes_on), (false, true));
    let (text, ..) = answered(&question, &json!({"selected": ["Beta"], "customText": "with WAL"}));
    assert!(text.contains("Beta") && text.contains("with WAL"), "{text}");
    let (text, is_error, _) =
        answered(&question, &json!({"selected": [], "customText": "neither"}));
    assert!(text.contains("neither") && !is_error, "{text}");
}

#[test]
fn no_answer_ends_the_turn() {
    let question = json!({"question": "Which?", "options": ["Alpha", "Beta"]});
    for answer in [
        json!({"cancelled": true}),
        json!({"selected": []}),
        json!({"selected": [], "customText": " \n"}),
    ] {
        let (text, _, goes_on) = answered(&question, &answer);
        assert!(!goes_on, "{answer}: the run went on: {text}");
    }
}

#[test]
fn a_question_that_times_out_ends_the_turn() {
    let env = Env::new();
    let model = env.script(&[
        call("ask_user", &json!({"question": "Why?", "timeout": 0.05})),
        says("I go on"),
    ]);
    let mut wharf = env.rpc(&["--model", &model]);
    let run = wharf.run("go");
    assert_eq!(count(&run, "turn_start"), 1);
    assert_eq!(count(&run, "extension_ui_response_handled"), 1);
    // The next prompt is answered.
    let run = wharf.run("again");
    assert_eq!(texts(&run, "assistant"), ["I go on"]);
}

#[test]
fn an_answer_that_does_not_fit_leaves_the_question_open() {
    let env = Env::new();
    let question =
        json!({"question": "Which?", "options": ["Alpha", "Beta"], "allowFreeText": false});
    let model = env.script(&[call("ask_user", &question), says("done")]);
    let mut wharf = env.rpc(&["--model", &model]);
    wharf.prompt("go");
    let dialog = wharf.wait_ui("ask");
    for wrong in [
        json!({}),
        json!({"selected": "Alpha"}),
        json!({"selected": ["Gamma"]}),
        json!({"selected": ["Alpha", "Beta"]}),
        json!({"selected": ["Alpha"], "customText": "though none is taken"}),
        json!({"selected": ["Alpha"], "customText": 5}),
        json!({"confirmed": true}),
    ] {
        wharf.answer(&dialog, wrong.clone());
        let line = wharf.wait_for("the refusal", |line| line["type"] == "response");
        assert_eq!(
            (&line["success"], &line["id"]),
            (&json!(false), &dialog["id"]),
            "{wrong}: {line}"
        );
    }
    wharf.answer(&dialog, json!({"selected": ["Beta"]}));
    let run = wharf.take_until("agent_end");
    assert!(text_of(&of_type(&run, "tool_execution_end")[0]["result"]).contains("Beta"));
}

#[test]
fn an_abort_settles_the_question() {
    let env = Env::new();
    let model = env.script(&[call("ask_user", &json!({"question": "Why?"})), says("done")]);
    let mut wharf = env.rpc(&["--model", &model]);
    wharf.prompt("go");
    wharf.wait_ui("ask");
    done(&mut wharf, &json!({"type": "abort"}));
    let run = wharf.take_until("agent_end");
    assert_eq!(count(&run, "turn_start"), 1);
    let run = wharf.run("again");
    assert_eq!(texts(&run, "assistant"), ["done"]);
}

#[test]
fn questions_that_nobody_could_answer_are_not_asked() {
    let env = Env::new();
    let (mut wharf, run) = calls(
        &env,
        "ask_user",
        &[
            json!({"question": " "}),
            json!({"question": "W?", "options": ["one"]}),
            json!({"question": "W?", "options": ["a", "a"]}),
            json!({"question": "W?", "options": ["a", "b", "c", "d", "e"]}),
            json!({"question": "W?", "options": ["a", " "]}),
            json!({"question": "W?", "allowFreeText": false}),
            json!({"question": "W?", "timeout": 0}),
            json!({"question": "W?", "timeout": -1}),
            json!({"question": "W?", "options": "a"}),
        ],
    );
    assert_eq!(count(&run, "extension_ui_request"), 0);
    let ends = of_type(&run, "tool_execution_end");
    assert_eq!(ends.len(), 9);
    assert!(ends.iter().all(|end| end["isError"] == true), "{ends:?}");
    assert_eq!(texts(&run, "assistant").last().unwrap(), "done");
    wharf.data(json!({"type": "get_state"}));
}

#[test]
fn two_questions_of_one_reply_come_one_after_the_other() {
    let env = Env::new();
    let ask = |id: &str, question: &str| json!({"type": "toolCall", "id": id, "name": "ask_user", "arguments": {"question": question}});
    let model =
        env.script(&[json!({"content": [ask("a", "First?"), ask("b", "Second?")]}), says("done")]);
    let mut wharf = env.rpc(&["--model", &model]);
    wharf.prompt("go");
    let first = wharf.wait_ui("ask");
    assert_eq!(first["question"], "First?");
    wharf.data(json!({"type": "get_version"}));
    assert!(wharf.passed().all(|line| line["type"] != "extension_ui_request"), "both are open");
    wharf.answer(&first, json!({"selected": [], "customText": "1"}));
    let second = wharf.wait_ui("ask");
    assert_eq!(second["question"], "Second?");
    wharf.answer(&second, json!({"selected": [], "customText": "2"}));
    let run = wharf.take_until("agent_end");
    assert_eq!(texts(&run, "assistant").last().unwrap(), "done");
}

/// "Stops the current agent turn rather than continuing without an answer": neither is
/// the next question asked nor does anything else of that reply happen.
#[test]
fn what_stands_behind_an_unanswered_question_does_not_happen() {
    let env = Env::new();
    let part = |id: &str, tool: &str, arguments: Value| json!({"type": "toolCall", "id": id, "name": tool, "arguments": arguments});
    let reply = json!({"content": [
        part("a", "ask_user", json!({"question": "Really?"})),
        part("b", "bash", json!({"command": "touch ran"})),
        part("c", "ask_user", json!({"question": "Second?"})),
    ]});
    let model = env.script(&[reply, says("I go on")]);
    let mut wharf = env.rpc(&["--model", &model]);
    wharf.prompt("go");
    let first = wharf.wait_ui("ask");
    wharf.answer(&first, json!({"cancelled": true}));
    let end = wharf.wait_for("the end or a second question", |line| {
        line["type"] == "agent_end" || line["type"] == "extension_ui_request"
    });
    assert_eq!(end["type"], "agent_end", "{end}");
    let messages = end["messages"].as_array().unwrap();
    // Every call has its result all the same.
    assert_eq!(messages.iter().filter(|message| message["role"] == "toolResult").count(), 3);
    assert!(!env.project().join("ran").exists(), "it ran without an answer");
}

#[test]
fn in_a_one_shot_run_the_model_is_told_that_nobody_can_be_asked() {
    let env = Env::new();
    let model = env.script(&[call("ask_user", &json!({"question": "Why?"})), says("I assume so")]);
    let output =
        env.command().args(["--model", &model, "-p", "go"]).stdin(Stdio::null()).output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(String::from_utf8(output.stdout).unwrap(), "I assume so\n");
}
