//! Models on the command line: `--list-models`, `--model`, `--provider`, and what goes to
//! which stream.

use std::process::{Output, Stdio};

use serde_json::json;
use wharf_tests::Env;
use wharf_tests::llm::{Answer, LlmServer};

use crate::lab::{provider, quiet, serving};

fn run(env: &Env, args: &[&str]) -> Output {
    env.command().args(args).stdin(Stdio::null()).output().unwrap()
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

/// The first two columns of the listing: provider and id.
fn listed(output: &Output) -> Vec<String> {
    assert_eq!(output.status.code(), Some(0), "{}", stderr(output));
    let text = stdout(output);
    let mut lines = text.lines();
    let head: Vec<&str> = lines.next().unwrap().split_whitespace().collect();
    assert_eq!(head[..2], ["provider", "model"]);
    lines
        .map(|line| {
            let cells: Vec<&str> = line.split_whitespace().collect();
            format!("{}/{}", cells[0], cells[1])
        })
        .collect()
}

/// Models of two providers, some of like names.
fn shelf() -> (LlmServer, Env) {
    let server = LlmServer::start();
    server.default_reply(Answer::says("ok"));
    let env = serving(&server, &json!([]));
    let models = json!({"providers": {
        "left": provider(&server, &json!([
            {"id": "apple-1"}, {"id": "apple-2", "name": "Red Apple", "reasoning": true, "input": ["text", "image"],
                "contextWindow": 1_000_000, "maxTokens": 8192},
            {"id": "pear:8b", "reasoning": true},
        ])),
        "right": provider(&server, &json!([{"id": "apple-9"}, {"id": "plum"}, {"id": "plum-20250101"}])),
    }});
    env.write_agent("models.json", models.to_string());
    (server, env)
}

#[test]
fn the_listing_is_on_stdout_and_nothing_else_is() {
    let (_server, env) = shelf();
    let output = run(&env, &["--list-models"]);
    assert_eq!(stderr(&output), "");
    let all = listed(&output);
    assert!(all.len() > 50, "{all:?}");
    for name in
        ["scripted/demo", "left/apple-1", "left/pear:8b", "right/plum", "anthropic/claude-opus-4-8"]
    {
        assert!(all.iter().any(|known| known == name), "{name} is missing");
    }
    // Warnings do not get into it.
    env.write_agent("models.json", "{");
    let output = run(&env, &["--list-models"]);
    assert!(stderr(&output).contains("models.json"), "{}", stderr(&output));
    assert!(listed(&output).iter().any(|name| name == "scripted/demo"));
}

#[test]
fn a_search_takes_all_of_its_words_in_any_order() {
    let (_server, env) = shelf();
    for (args, expect) in [
        (&["--list-models", "apple"][..], &["left/apple-1", "left/apple-2", "right/apple-9"][..]),
        (&["--list-models=apple left"], &["left/apple-1", "left/apple-2"]),
        (&["--list-models", "RED"], &["left/apple-2"]),
        (&["--list-models", "right/plum"], &["right/plum", "right/plum-20250101"]),
        (&["--list-models", "apple", "--provider", "right"], &["right/apple-9"]),
        (
            &["--provider", "left", "--list-models"],
            &["left/apple-1", "left/apple-2", "left/pear:8b"],
        ),
        (&["--provider", "LEFT", "--list-models", "pear"], &["left/pear:8b"]),
    ] {
        assert_eq!(listed(&run(&env, args)), expect, "{args:?}");
    }
}

#[test]
fn the_row_of_a_model() {
    let (_server, env) = shelf();
    let text = stdout(&run(&env, &["--list-models", "--provider", "left"]));
    insta::assert_snapshot!(text, @"
    provider  model    context  max output  thinking  images  key
    left      apple-1  128K     16K         no        no      yes
    left      apple-2  1M       8K          yes       yes     yes
    left      pear:8b  128K     16K         yes       no      yes
    ");
}

#[test]
fn a_search_without_a_result_is_a_failure_that_says_so() {
    let (_server, env) = shelf();
    for args in [
        &["--list-models", "no-such-thing"][..],
        &["--list-models", "apple", "--provider", "nobody"],
        &["--list-models", "--provider", "nobody"],
    ] {
        let output = run(&env, args);
        assert_eq!(output.status.code(), Some(1), "{args:?}");
        assert_eq!(stdout(&output), "", "{args:?}");
        let wanted = if args.contains(&"nobody") { "nobody" } else { "no-such-thing" };
        assert!(stderr(&output).contains(wanted), "{args:?}: {}", stderr(&output));
    }
}

#[test]
fn a_listing_starts_nothing() {
    let (server, env) = shelf();
    for args in [
        &["--list-models", "--mode", "rpc"][..],
        &["--list-models", "--mode", "json"],
        &["-p", "--list-models"],
    ] {
        let output = run(&env, args);
        assert!(listed(&output).len() > 50, "{args:?}");
    }
    assert!(server.requests().is_empty());
    assert!(!env.agent_dir().join("sessions").exists());
    // A word after it is its search and no prompt.
    assert_eq!(listed(&run(&env, &["--list-models", "plum", "-p"])).len(), 2);
}

#[test]
fn a_listing_whose_reader_has_gone_ends_quietly() {
    let (_server, env) = shelf();
    let mut child = env
        .command()
        .arg("--list-models")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert!(!stderr(&output).contains("panicked"), "{}", stderr(&output));
}

/// The model that answered, and what was said on stderr.
#[track_caller]
fn chosen(server: &LlmServer, env: &Env, args: &[&str]) -> (String, String) {
    let mut all = vec!["-p", "--no-session"];
    all.extend(args);
    all.push("hi");
    let output = run(env, &all);
    assert_eq!(output.status.code(), Some(0), "{args:?}: {}", stderr(&output));
    assert_eq!(stdout(&output), "ok\n", "{args:?}");
    let request = server.requests().pop().unwrap();
    (request.body["model"].as_str().unwrap().to_owned(), stderr(&output))
}

#[test]
fn patterns_choose_a_model() {
    let (server, env) = shelf();
    for (args, expect) in [
        (&["--model", "left/apple-1"][..], "apple-1"),
        (&["--model", "apple-1"], "apple-1"),
        (&["--model", "APPLE-9"], "apple-9"),
        (&["--model", "Red Apple"], "apple-2"),
        (&["--model", "red"], "apple-2"),
        (&["--model", "pear:8b"], "pear:8b"),
        (&["--model", "left/pear:8b:low"], "pear:8b"),
        (&["--model", "pear"], "pear:8b"),
        (&["--model", "pear:high"], "pear:8b"),
        (&["--model", "*-9"], "apple-9"),
        (&["--provider", "right", "--model", "apple"], "apple-9"),
        (&["--provider", "right", "--model", "right/plum"], "plum"),
        (&["--model", "right/plum"], "plum"),
        (&["--provider", "right"], "apple-9"),
    ] {
        let (model, told) = chosen(&server, &env, args);
        assert_eq!(model, expect, "{args:?}");
        assert_eq!(told, "", "{args:?}");
    }
}

#[test]
fn a_choice_among_several_of_one_provider_is_told() {
    let (server, env) = shelf();
    let (model, told) = chosen(&server, &env, &["--model", "left/apple"]);
    assert_eq!(model, "apple-2");
    for part in ["left/apple-1", "left/apple-2"] {
        assert!(told.contains(part), "{told}");
    }
    let (model, told) = chosen(&server, &env, &["--model", "pear:ultra"]);
    assert_eq!(model, "pear:8b");
    assert!(told.contains("ultra") && told.contains("xhigh"), "{told}");
}

#[test]
fn a_pattern_that_chooses_none_is_an_error_that_helps() {
    let (server, env) = shelf();
    for (args, parts) in [
        // Several providers: which are meant is told.
        (&["--model", "apple"][..], &["left/apple-1", "left/apple-2", "right/apple-9"][..]),
        (&["--model", "no-such-model-at-all"], &["no-such-model-at-all"]),
        (&["--model", "left/aple-1"], &["apple-1"]),
        (&["--provider", "nobody", "--model", "apple-1"], &["nobody", "left", "right"]),
        (&["--provider", "nobody"], &["nobody", "--list-models"]),
        (&["--model", ""], &["--model"]),
    ] {
        for mode in ["text", "json", "rpc"] {
            let mut all = vec!["--mode", mode, "--no-session"];
            all.extend(args);
            all.push("hi");
            if mode == "rpc" {
                all.pop();
            }
            let output = run(&env, &all);
            assert_ne!(output.status.code(), Some(0), "{args:?}");
            let told = stderr(&output);
            for part in parts {
                if *part != "--model" {
                    assert!(told.contains(part), "{args:?}: {part} is not in: {told}");
                }
            }
            if mode == "json" {
                let text = stdout(&output);
                assert!(
                    text.trim_end().ends_with("{\"type\":\"agent_end\",\"messages\":[]}"),
                    "{text}"
                );
            } else {
                assert_eq!(stdout(&output), "", "{args:?}");
            }
        }
    }
    assert!(server.requests().is_empty());
}

#[test]
fn a_key_decides_between_models_of_one_name() {
    let server = LlmServer::start();
    server.default_reply(Answer::says("ok"));
    let env = Env::new();
    env.write_agent("settings.json", quiet().to_string());
    // The same id as one of a built-in provider that has no key here.
    let models =
        json!({"providers": {"mine": provider(&server, &json!([{"id": "claude-opus-4-8"}])) }});
    env.write_agent("models.json", models.to_string());
    let (model, told) = chosen(&server, &env, &["--model", "claude-opus-4-8"]);
    assert_eq!((model.as_str(), told.as_str()), ("claude-opus-4-8", ""));
    let (model, _) = chosen(&server, &env, &["--model", "opus-4-8"]);
    assert_eq!(model, "claude-opus-4-8");
}

#[test]
fn a_default_that_cannot_be_used_is_told_and_stops_nothing() {
    let (_server, env) = shelf();
    let mut settings = quiet();
    settings["defaultProvider"] = json!("left");
    settings["defaultModel"] = json!("gone");
    env.write_agent("settings.json", settings.to_string());
    let mut wharf = env.rpc(&["--no-session"]);
    assert!(wharf.data(json!({"type": "get_state"}))["model"].is_null());
    let exit = wharf.finish();
    assert_eq!(exit.code, Some(0));
    assert!(
        exit.stderr.contains("settings.json") && exit.stderr.contains("left/gone"),
        "{}",
        exit.stderr
    );
}

#[test]
fn a_scope_with_wrong_patterns_is_told() {
    let (_server, env) = shelf();
    let mut wharf = env.rpc(&[
        "--no-session",
        "--model",
        "plum",
        "--models",
        "no-such, left/pear:8b:ultra ,claude-opus-4-8",
    ]);
    let state = wharf.data(json!({"type": "get_state"}));
    let names: Vec<&str> = state["scopedModels"]
        .as_array()
        .unwrap()
        .iter()
        .map(|m| m["id"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["pear:8b"]);
    let exit = wharf.finish();
    for part in ["no-such", "ultra", "claude-opus-4-8"] {
        assert!(exit.stderr.contains(part), "{part} is not told: {}", exit.stderr);
    }
}
