//! The example extensions that ask for permissions, each through the binary: with its
//! grants, and without.

use std::process::Command;

use serde_json::{Value, json};
use wharf_tests::llm::{Answer, LlmServer};
use wharf_tests::script::{call, says};
use wharf_tests::web::{WebAnswer, WebServer};
use wharf_tests::{Env, Wharf, guest};

use crate::story::{rpc_over, settings};

fn git(env: &Env, args: &[&str]) -> String {
    let mut git = Command::new("git");
    git.args(["-c", "user.name=T", "-c", "user.email=t@example.org"]).args(args);
    git.current_dir(env.project()).env("HOME", env.home());
    let output = git.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// A repository with one commit of `a.txt`.
fn repository(env: &Env) {
    env.write("a.txt", "committed");
    git(env, &["init", "-q"]);
    git(env, &["add", "a.txt"]);
    git(env, &["commit", "-qm", "first"]);
}

fn a_txt(env: &Env) -> String {
    std::fs::read_to_string(env.project().join("a.txt")).unwrap()
}

fn say_yes(wharf: &mut Wharf, title: &str) {
    let dialog = wharf.wait_ui("confirm");
    assert_eq!(dialog["title"], title);
    wharf.answer(&dialog, json!({"confirmed": true}));
}

#[test]
fn git_checkpoint_puts_files_back_with_the_conversation() {
    let env = Env::new();
    repository(&env);
    env.grant_all(&["git-checkpoint"]);
    env.write("a.txt", "changed by hand");
    let write = |text: &str| call("write", &json!({"path": "a.txt", "content": text}));
    let model =
        env.script(&[write("by the model"), says("done"), write("once more"), says("done")]);
    let mut wharf = env.rpc_with(&["git-checkpoint"], &model);
    wharf.run("first");
    wharf.run("second");
    assert_eq!(a_txt(&env), "once more");
    let messages = wharf.data(json!({"type": "get_fork_messages"}));
    let entry = |at: usize| messages["messages"][at]["entryId"].clone();

    wharf.send(&json!({"id": "move", "type": "navigate_tree", "targetId": entry(1)}));
    say_yes(&mut wharf, "Restore files?");
    wharf.wait_for("the move", |line| line["id"] == "move" && line["success"] == true);
    assert_eq!(a_txt(&env), "by the model");

    wharf.send(&json!({"id": "fork", "type": "fork", "entryId": entry(0)}));
    say_yes(&mut wharf, "Restore files?");
    wharf.wait_for("the fork", |line| line["id"] == "fork" && line["success"] == true);
    assert_eq!(a_txt(&env), "changed by hand");
    assert_eq!(wharf.finish().code, Some(0));
}

#[test]
fn dirty_repo_guard_asks_only_when_there_is_something_to_lose() {
    let env = Env::new();
    repository(&env);
    env.grant_all(&["dirty-repo-guard"]);
    let mut wharf = env.rpc_with(&["dirty-repo-guard"], &env.script(&[says("x")]));
    let new = wharf.data(json!({"type": "new_session"}));
    assert_eq!(new["cancelled"], false);
    env.write("a.txt", "changed");
    for (answer, cancelled) in [(false, true), (true, false)] {
        wharf.send(&json!({"id": "new", "type": "new_session"}));
        let dialog = wharf.wait_ui("confirm");
        assert_eq!(dialog["message"], "1 files have changes that are not committed. Go on?");
        wharf.answer(&dialog, json!({"confirmed": answer}));
        let response = wharf.wait_for("the response", |line| line["id"] == "new");
        assert_eq!(response["data"]["cancelled"], cancelled);
    }
    assert_eq!(wharf.finish().code, Some(0));
}

#[test]
fn what_is_not_granted_is_asked_for_once_and_a_no_is_kept() {
    let env = Env::new();
    repository(&env);
    env.write("a.txt", "changed");
    let mut wharf = env.rpc_with(&["dirty-repo-guard"], &env.script(&[says("x")]));
    let dialog = wharf.wait_ui("confirm");
    let asked = format!("{}{}", dialog["title"], dialog["message"]);
    assert!(asked.contains("dirty-repo-guard") && asked.contains("git status"), "{asked}");
    wharf.answer(&dialog, json!({"confirmed": false}));
    // The guard cannot look, says so in the log, and lets the switch go on.
    let new = wharf.data(json!({"type": "new_session"}));
    assert_eq!(new["cancelled"], false);
    assert_eq!(wharf.finish().code, Some(0));
    let mut wharf = env.rpc_with(&["dirty-repo-guard"], &env.script(&[says("x")]));
    let new = wharf.data(json!({"type": "new_session"}));
    assert_eq!(new["cancelled"], false);
    assert!(wharf.passed().all(|line| line["method"] != "confirm"), "{}", wharf.transcript());
    assert_eq!(wharf.finish().code, Some(0));
}

#[test]
fn inline_bash_puts_output_into_prompts_and_wraps_pipes() {
    let env = Env::new();
    env.grant_all(&["inline-bash"]);
    let mut wharf = env.rpc_with(&["inline-bash"], &env.script(&[says("ok")]));
    let run = wharf.run("say !{printf hello} and !{exit 3}");
    let prompt = run.iter().find(|line| line["message"]["role"] == "user").unwrap();
    assert_eq!(prompt["message"]["content"][0]["text"], "say hello and [exit 3 failed: ]");
    let bash = |wharf: &mut Wharf, command: &str| {
        wharf.data(json!({"type": "bash", "command": command}))["exitCode"].clone()
    };
    assert_eq!(bash(&mut wharf, "false | true"), 1);
    assert_eq!(bash(&mut wharf, "true | true"), 0);
    assert_eq!(wharf.finish().code, Some(0));
}

#[test]
fn notify_webhook_tells_when_a_run_is_over() {
    let env = Env::new();
    env.grant_all(&["notify-webhook"]);
    let hook = WebServer::start(|_| WebAnswer::ok("thanks"));
    let mut command = env.command();
    command
        .args(["--mode", "rpc", "--model", &env.script(&[says("ok")]), "-e"])
        .arg(guest("notify-webhook"))
        .env("WHARF_WEBHOOK_URL", hook.url("/hook"));
    let mut wharf = Wharf::start(command, env.names());
    wharf.run("go");
    let told = hook.wait();
    assert_eq!((told.method.as_str(), told.path.as_str()), ("POST", "/hook"));
    let body: Value = serde_json::from_slice(&told.body).unwrap();
    assert!(body["text"].as_str().unwrap().starts_with("Wharf is done with "), "{body}");
    assert_eq!(wharf.finish().code, Some(0));
}

/// Ollama's two APIs, as far as the example uses them.
fn ollama() -> WebServer {
    WebServer::start(|request| match request.path.as_str() {
        "/api/chat" => {
            let lines = [
                json!({"message": {"role": "assistant", "content": "Hel"}, "done": false}),
                json!({"message": {"role": "assistant", "content": "lo"}, "done": false}),
                json!({
                    "message": {"role": "assistant", "content": ""}, "done": true,
                    "prompt_eval_count": 7, "eval_count": 2,
                }),
            ];
            WebAnswer::ok(lines.map(|line| format!("{line}\n")).concat())
        }
        _ => WebAnswer { status: 404, headers: Vec::new(), body: Vec::new() },
    })
}

#[test]
fn custom_provider_answers_through_granted_http() {
    let env = Env::new();
    settings(&env, json!({}));
    env.grant_all(&["custom-provider"]);
    let server = ollama();
    let path = guest("custom-provider").display().to_string();
    let mut wharf = env.rpc(&["-e", &path, "--ollama", &server.url("")]);
    // The extension adds its models when the session starts.
    let is_there = |wharf: &mut Wharf| {
        wharf.request(json!({"type": "set_model", "provider": "ollama", "modelId": "qwen3:8b"}))["success"]
            == true
    };
    while !is_there(&mut wharf) {}
    let run = wharf.run("hi");
    let end = run
        .iter()
        .find(|line| line["type"] == "message_end" && line["message"]["role"] == "assistant");
    let message = &end.unwrap()["message"];
    assert_eq!(message["content"], json!([{"type": "text", "text": "Hello"}]));
    assert_eq!(message["usage"]["output"], 2);
    let asked: Value = serde_json::from_slice(&server.wait().body).unwrap();
    assert_eq!(asked["model"], "qwen3:8b");
    let last = asked["messages"].as_array().unwrap().last().unwrap();
    assert_eq!(*last, json!({"role": "user", "content": "hi"}));
    assert_eq!(wharf.finish().code, Some(0));
}

#[test]
fn file_rules_are_read_once_a_file_of_their_kind_is_touched() {
    let env = Env::new();
    settings(&env, json!({}));
    env.write(".rules/rust.md", "for: *.rs\nNever unwrap.\n");
    env.write(".rules/prompts/review.md", "Review $1\n");
    env.write("a.rs", "fn a() {}");
    env.grant_all(&["file-rules"]);
    let server = LlmServer::start();
    server.reply(Answer::calls("c1", "read", &json!({"path": "a.rs"})));
    server.reply(Answer::says("done"));
    let path = guest("file-rules").display().to_string();
    let mut wharf = rpc_over(&env, &server, &["-e", &path]);
    let commands = wharf.data(json!({"type": "get_commands"}));
    let names: Vec<_> =
        commands["commands"].as_array().unwrap().iter().map(|c| c["name"].clone()).collect();
    assert!(names.contains(&json!("review")), "{names:?}");
    wharf.run("look");
    let bodies: Vec<String> = server.requests().iter().map(|r| r.body.to_string()).collect();
    let has_rule: Vec<bool> = bodies.iter().map(|body| body.contains("Never unwrap.")).collect();
    assert_eq!(has_rule, [false, true]);
    // The session does not know of it.
    let messages = wharf.data(json!({"type": "get_messages"})).to_string();
    assert!(!messages.contains("Never unwrap."));
    assert_eq!(wharf.finish().code, Some(0));
}
