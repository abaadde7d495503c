//! How long a model thinks: the level that is asked for, what the model makes of it, and
//! where it is kept; and the other switches that a client flips at run time.

use serde_json::{Value, json};
use wharf_tests::llm::{Answer, Failure, LlmServer};
use wharf_tests::{Env, SessionFile, Wharf};

use crate::lab::{choices, done, error, serving, session_path, settings, state};
use crate::order::{count, texts};

/// One model of each kind: that does not reason, that does, and of a family with `xhigh`.
fn kinds() -> (LlmServer, Env) {
    let server = LlmServer::start();
    server.default_reply(Answer::says("ok"));
    let effort = json!({"supportsReasoningEffort": true});
    let env = serving(
        &server,
        &json!([
            {"id": "plain", "compat": effort},
            {"id": "thinker", "reasoning": true, "compat": effort},
            {"id": "gpt-5.2", "reasoning": true, "compat": effort},
        ]),
    );
    (server, env)
}

fn set_level(level: &str) -> Value {
    json!({"type": "set_thinking_level", "level": level})
}

fn set_model(wharf: &mut Wharf, id: &str) {
    wharf.data(json!({"type": "set_model", "provider": "fake", "modelId": id}));
}

const LEVELS: [&str; 6] = ["off", "minimal", "low", "medium", "high", "xhigh"];

#[test]
fn each_level_is_clamped_to_the_model_everywhere() {
    let (server, env) = kinds();
    let mut wharf = env.rpc(&["--model", "fake/plain"]);
    for (model, effective) in [
        ("plain", ["off"; 6]),
        ("thinker", ["off", "minimal", "low", "medium", "high", "high"]),
        ("gpt-5.2", LEVELS),
    ] {
        set_model(&mut wharf, model);
        for (asked, expect) in LEVELS.into_iter().zip(effective) {
            done(&mut wharf, &set_level(asked));
            let context = format!("{asked} of {model}");
            assert_eq!(state(&mut wharf)["thinkingLevel"], expect, "{context}");
            let run = wharf.run("hi");
            assert_eq!(run[0]["thinkingLevel"], expect, "{context}: {}", run[0]);
            let request = server.requests().pop().unwrap();
            let effort = &request.body["reasoning_effort"];
            let level = SessionFile::read(&session_path(&mut wharf))
                .of_type("thinking_level_change")
                .last()
                .map(|entry| entry["thinkingLevel"].clone());
            assert_eq!(level, Some(json!(expect)), "{context}");
            // `off` may be worded in several ways; every other level has a name.
            if expect == "off" {
                assert!(effort.is_null() || effort == "none", "{context}: {effort}");
            } else {
                assert_eq!(*effort, expect, "{context}");
            }
            // What was asked for is the default of later runs, also where the model is not
            // able to.
            assert_eq!(settings(&env)["defaultThinkingLevel"], asked, "{context}");
        }
    }
}

#[test]
fn the_wish_outlives_a_model_that_cannot_think() {
    let (_server, env) = kinds();
    let mut wharf = env.rpc(&["--model", "fake/gpt-5.2:xhigh"]);
    let mut seen = Vec::new();
    for id in ["thinker", "plain", "gpt-5.2"] {
        set_model(&mut wharf, id);
        seen.push(state(&mut wharf)["thinkingLevel"].clone());
    }
    assert_eq!(seen, ["high", "off", "xhigh"]);
}

#[test]
fn cycling_goes_through_the_levels_of_the_model() {
    let (_server, env) = kinds();
    let mut wharf = env.rpc(&["--model", "fake/thinker:medium"]);
    let mut cycle = || {
        let data = wharf.data(json!({"type": "cycle_thinking_level"}));
        assert_eq!(data.as_object().unwrap().len(), 1, "{data}");
        data["level"].as_str().unwrap().to_owned()
    };
    let seen: Vec<String> = (0..5).map(|_| cycle()).collect();
    assert_eq!(seen, ["high", "off", "minimal", "low", "medium"]);
    set_model(&mut wharf, "gpt-5.2");
    let seen: Vec<Value> = (0..3)
        .map(|_| wharf.data(json!({"type": "cycle_thinking_level"}))["level"].clone())
        .collect();
    assert_eq!(seen, ["high", "xhigh", "off"]);
    assert_eq!(settings(&env)["defaultThinkingLevel"], "off");
    set_model(&mut wharf, "plain");
    let response = wharf.request(json!({"type": "cycle_thinking_level"}));
    let expected = json!({
        "type": "response", "id": response["id"], "command": "cycle_thinking_level",
        "success": true, "data": null,
    });
    assert_eq!(response, expected);
}

#[test]
fn the_same_level_again_writes_nothing() {
    let (_server, env) = kinds();
    let mut wharf = env.rpc(&["--model", "fake/thinker:low"]);
    wharf.run("hi");
    for level in ["low", "low", "high", "xhigh", "low"] {
        done(&mut wharf, &set_level(level));
    }
    set_model(&mut wharf, "thinker");
    wharf.run("again");
    let session = SessionFile::read(&session_path(&mut wharf));
    session.assert_linear();
    assert_eq!(
        choices(&session),
        ["fake/thinker", "low", "user", "assistant", "high", "low", "user", "assistant"]
    );
}

#[test]
fn the_flag_goes_before_the_pattern_and_that_before_the_settings() {
    let (_server, env) = kinds();
    env.write_agent(
        "settings.json",
        json!({"autoSessionName": false, "defaultThinkingLevel": "medium",
            "defaultProvider": "fake", "defaultModel": "thinker"})
        .to_string(),
    );
    for (args, expect) in [
        (&[][..], "medium"),
        (&["--model", "fake/thinker"], "medium"),
        (&["--model", "fake/thinker:low"], "low"),
        (&["--model", "fake/thinker:low", "--thinking", "high"], "high"),
        (&["--thinking", "off"], "off"),
        (&["--thinking", "xhigh"], "high"),
        (&["--model", "fake/plain", "--thinking", "high"], "off"),
    ] {
        let mut wharf = env.rpc(args);
        assert_eq!(state(&mut wharf)["thinkingLevel"], expect, "{args:?}");
    }
}

#[test]
fn a_level_that_is_none_is_a_wrong_command_line() {
    let (_server, env) = kinds();
    for level in ["ultra", ""] {
        let args = ["--model", "fake/thinker", "--thinking", level, "-p", "hi"];
        let output = env.command().args(args).output().unwrap();
        assert_eq!(output.status.code(), Some(2));
        assert!(output.stdout.is_empty());
        let told = String::from_utf8(output.stderr).unwrap();
        assert!(told.contains("--thinking") && told.contains("minimal"), "{told}");
    }
}

#[test]
fn the_level_of_a_reopened_session_goes_before_the_settings() {
    let (_server, env) = kinds();
    let mut wharf = env.rpc(&["--model", "fake/thinker:high"]);
    wharf.run("hi");
    let file = session_path(&mut wharf);
    assert_eq!(wharf.finish().code, Some(0));
    env.write_agent(
        "settings.json",
        json!({"autoSessionName": false, "defaultThinkingLevel": "low",
            "defaultProvider": "fake", "defaultModel": "gpt-5.2"})
        .to_string(),
    );
    let mut wharf = env.rpc(&["--session", file.to_str().unwrap()]);
    let now = state(&mut wharf);
    assert_eq!((&now["model"]["id"], &now["thinkingLevel"]), (&json!("thinker"), &json!("high")));
    assert_eq!(wharf.finish().code, Some(0));
    // A flag is somebody's wish.
    let mut wharf = env.rpc(&["--session", file.to_str().unwrap(), "--thinking", "minimal"]);
    let now = state(&mut wharf);
    assert_eq!(
        (&now["model"]["id"], &now["thinkingLevel"]),
        (&json!("thinker"), &json!("minimal"))
    );
}

#[test]
fn queue_modes_are_told_kept_and_taken_up() {
    let (_server, env) = kinds();
    let mut wharf = env.rpc(&["--model", "fake/plain"]);
    let modes = |wharf: &mut Wharf| {
        let now = state(wharf);
        (now["steeringMode"].clone(), now["followUpMode"].clone())
    };
    assert_eq!(modes(&mut wharf), (json!("one-at-a-time"), json!("one-at-a-time")));
    done(&mut wharf, &json!({"type": "set_steering_mode", "mode": "all"}));
    assert_eq!(modes(&mut wharf), (json!("all"), json!("one-at-a-time")));
    done(&mut wharf, &json!({"type": "set_follow_up_mode", "mode": "all"}));
    done(&mut wharf, &json!({"type": "set_steering_mode", "mode": "one-at-a-time"}));
    assert_eq!(modes(&mut wharf), (json!("one-at-a-time"), json!("all")));
    let kept = settings(&env);
    assert_eq!(
        (&kept["steeringMode"], &kept["followUpMode"]),
        (&json!("one-at-a-time"), &json!("all"))
    );
    // A new session goes on with them; a new run begins with them.
    wharf.data(json!({"type": "new_session"}));
    assert_eq!(modes(&mut wharf), (json!("one-at-a-time"), json!("all")));
    assert_eq!(wharf.finish().code, Some(0));
    let mut wharf = env.rpc(&["--model", "fake/plain"]);
    assert_eq!(modes(&mut wharf), (json!("one-at-a-time"), json!("all")));
}

#[test]
fn a_mode_that_changes_during_a_run_counts_for_what_waits() {
    for (mode, expect) in [("all", vec!["go", "a", "b"]), ("one-at-a-time", vec!["go", "a", "b"])] {
        let (server, env) = kinds();
        let gate = server.gate();
        server.reply(wharf_tests::llm::Reply::from(Answer::says("first")).hold(&gate));
        let mut wharf = env.rpc(&["--model", "fake/plain"]);
        let other = if mode == "all" { "one-at-a-time" } else { "all" };
        done(&mut wharf, &json!({"type": "set_follow_up_mode", "mode": other}));
        wharf.prompt("go");
        gate.wait_reached();
        for text in ["a", "b"] {
            done(&mut wharf, &json!({"type": "follow_up", "message": text}));
        }
        done(&mut wharf, &json!({"type": "set_follow_up_mode", "mode": mode}));
        gate.open();
        let run = wharf.take_until("agent_end");
        assert_eq!(texts(&run, "user"), expect);
        let turns = if mode == "all" { 2 } else { 3 };
        assert_eq!(count(&run, "turn_start"), turns, "{mode}");
    }
}

#[test]
fn automatic_retry_can_be_switched() {
    let (server, env) = kinds();
    let mut wharf = env.rpc(&["--model", "fake/plain"]);
    done(&mut wharf, &json!({"type": "set_auto_retry", "enabled": false}));
    assert_eq!(settings(&env)["retry"], json!({"baseDelayMs": 1, "enabled": false}));
    server.reply(Failure::Overloaded);
    let run = wharf.run("hi");
    assert_eq!(count(&run, "auto_retry_start"), 0);
    assert_eq!(server.requests().len(), 1);
    done(&mut wharf, &json!({"type": "set_auto_retry", "enabled": true}));
    server.reply(Failure::Overloaded);
    let run = wharf.run("hi");
    assert_eq!(count(&run, "auto_retry_start"), 1);
    let end = run.iter().find(|line| line["type"] == "auto_retry_end").unwrap();
    assert_eq!(*end, json!({"type": "auto_retry_end", "success": true, "attempt": 1}));
    assert_eq!(settings(&env)["retry"]["enabled"], true);
}

#[test]
fn automatic_compaction_is_told_and_kept() {
    let (_server, env) = kinds();
    let mut wharf = env.rpc(&["--model", "fake/plain"]);
    assert_eq!(state(&mut wharf)["autoCompactionEnabled"], true);
    done(&mut wharf, &json!({"type": "set_auto_compaction", "enabled": false}));
    assert_eq!(state(&mut wharf)["autoCompactionEnabled"], false);
    assert_eq!(settings(&env)["compaction"], json!({"enabled": false}));
    assert_eq!(wharf.finish().code, Some(0));
    let mut wharf = env.rpc(&["--model", "fake/plain"]);
    assert_eq!(state(&mut wharf)["autoCompactionEnabled"], false);
    done(&mut wharf, &json!({"type": "set_auto_compaction", "enabled": true}));
    assert_eq!(state(&mut wharf)["autoCompactionEnabled"], true);
}

#[test]
fn a_group_of_the_settings_that_is_no_object_is_repaired_by_the_change() {
    let (_server, env) = kinds();
    env.write_agent(
        "settings.json",
        json!({"autoSessionName": false, "retry": 7, "compaction": []}).to_string(),
    );
    let mut wharf = env.rpc(&["--model", "fake/plain"]);
    done(&mut wharf, &json!({"type": "set_auto_retry", "enabled": false}));
    done(&mut wharf, &json!({"type": "set_auto_compaction", "enabled": false}));
    let kept = settings(&env);
    assert_eq!(
        (&kept["retry"], &kept["compaction"]),
        (&json!({"enabled": false}), &json!({"enabled": false}))
    );
}

/// A project's settings go before the agent directory's, and only those of a trusted one.
#[test]
fn what_a_project_sets_is_not_written_into_it() {
    let (_server, env) = kinds();
    let project = env.write(".wharf/settings.json", json!({"steeringMode": "all"}).to_string());
    let before = std::fs::read(&project).unwrap();
    let mut wharf = env.rpc(&["--model", "fake/thinker", "--trust-project"]);
    assert_eq!(state(&mut wharf)["steeringMode"], "all");
    done(&mut wharf, &json!({"type": "set_steering_mode", "mode": "one-at-a-time"}));
    assert_eq!(state(&mut wharf)["steeringMode"], "one-at-a-time");
    assert_eq!(settings(&env)["steeringMode"], "one-at-a-time");
    assert_eq!(std::fs::read(&project).unwrap(), before);
}

#[test]
fn a_budget_of_the_settings_is_what_anthropic_is_asked_for() {
    let server = LlmServer::start();
    server.default_reply(Answer::says("ok"));
    let env = Env::new();
    env.write_agent(
        "settings.json",
        json!({"autoSessionName": false, "thinkingBudgets": {"low": 1500, "high": 3000}})
            .to_string(),
    );
    env.write_agent(
        "models.json",
        server.models_json(
            wharf_tests::llm::Api::AnthropicMessages,
            &json!({"id": "claude-haiku-4-5", "reasoning": true, "maxTokens": 10_000}),
        ),
    );
    for (level, expect) in [("low", 1500), ("high", 3000)] {
        let mut wharf = env.rpc(&["--model", "fake/claude-haiku-4-5", "--thinking", level]);
        wharf.run("hi");
        let request = server.requests().pop().unwrap();
        assert_eq!(
            request.body["thinking"]["budget_tokens"], expect,
            "{level}: {}",
            request.body["thinking"]
        );
    }
    let mut wharf = env.rpc(&["--model", "fake/claude-haiku-4-5"]);
    wharf.run("hi");
    let request = server.requests().pop().unwrap();
    assert!(matches!(request.body["thinking"]["type"].as_str(), None | Some("disabled")));
}

#[test]
fn an_unknown_level_leaves_all_as_it_is() {
    let (_server, env) = kinds();
    let mut wharf = env.rpc(&["--model", "fake/thinker:low"]);
    let before = settings(&env);
    let problem = error(&mut wharf, &set_level("ultra"));
    for level in LEVELS {
        assert!(problem.contains(level), "{level} is not offered: {problem}");
    }
    assert_eq!(state(&mut wharf)["thinkingLevel"], "low");
    assert_eq!(settings(&env), before);
}

#[test]
fn what_is_asked_in_the_same_write_as_a_change_finds_it_made() {
    let (_server, env) = kinds();
    let mut wharf = env.rpc(&["--model", "fake/plain"]);
    let lines: Vec<String> = [
        json!({"type": "set_model", "provider": "fake", "modelId": "thinker"}),
        json!({"type": "set_thinking_level", "level": "low"}),
        json!({"type": "set_thinking_level", "level": "high"}),
        json!({"type": "set_steering_mode", "mode": "all"}),
        json!({"type": "set_auto_compaction", "enabled": false}),
        json!({"type": "set_session_name", "name": "two\nlines"}),
        json!({"id": "s", "type": "get_state"}),
    ]
    .iter()
    .map(|command| format!("{command}\n"))
    .collect();
    wharf.send_raw(lines.concat().as_bytes());
    let state = wharf.wait_for("state", |line| line["id"] == "s")["data"].clone();
    assert_eq!(state["model"]["id"], "thinker");
    assert_eq!(state["thinkingLevel"], "high");
    assert_eq!(state["steeringMode"], "all");
    assert_eq!(state["autoCompactionEnabled"], false);
    assert_eq!(state["sessionName"], "two lines");
    assert_eq!(wharf.finish().code, Some(0));
    // Of two changes in a row the later one is kept.
    let kept = settings(&env);
    assert_eq!(kept["defaultThinkingLevel"], "high");
    assert_eq!(kept["defaultModel"], "thinker");
}
