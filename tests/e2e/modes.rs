//! One-shot runs: `--mode json` and `-p`.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Output, Stdio};

use rustix::process::Signal;
use serde_json::{Value, json};
use wharf_tests::script::{bash, says};
use wharf_tests::{Env, PIXELS, guest};

use crate::order::{assert_documented_order, count, outline, text_of, texts};
use crate::processes::signal;

/// A run with this standard input.
fn run_with_input(env: &Env, args: &[&str], input: &[u8]) -> Output {
    let mut child = env
        .command()
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // One that does not read its input may be gone already.
    let _ = child.stdin.take().unwrap().write_all(input);
    child.wait_with_output().unwrap()
}

fn run(env: &Env, args: &[&str]) -> Output {
    run_with_input(env, args, b"")
}

/// Every line of stdout, each a JSON object.
#[track_caller]
fn lines(output: &Output) -> Vec<Value> {
    let text = str::from_utf8(&output.stdout).unwrap();
    assert!(text.is_empty() || text.ends_with('\n'), "a torn line: {text}");
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(lines.iter().all(Value::is_object), "{text}");
    lines
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

#[track_caller]
fn assert_ends_with_agent_end(lines: &[Value]) {
    assert_eq!(lines[0]["type"], "session", "{}", lines[0]);
    assert_eq!(lines.last().unwrap()["type"], "agent_end", "{}", lines.last().unwrap());
}

fn session_files(env: &Env) -> Vec<std::path::PathBuf> {
    let mut files = Vec::new();
    let mut folders = vec![env.agent_dir().join("sessions")];
    while let Some(folder) = folders.pop() {
        let Ok(entries) = fs::read_dir(folder) else { continue };
        for entry in entries {
            let path = entry.unwrap().path();
            if path.is_dir() { folders.push(path) } else { files.push(path) }
        }
    }
    files
}

#[test]
fn json_mode_prints_the_header_and_the_events_in_their_order() {
    let env = Env::new();
    let model = env.script(&[bash("echo out"), says("done")]);
    let output = run(&env, &["--mode", "json", "--model", &model, "go"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert_eq!(stderr(&output), "");
    let lines = lines(&output);
    assert_eq!(
        outline(&lines),
        [
            "session",
            "agent_start",
            "turn_start",
            "user: go",
            "assistant: ",
            "tool_execution_start call_1",
            "tool_execution_end call_1",
            "toolResult: out\n",
            "turn_end",
            "turn_start",
            "assistant: done",
            "turn_end",
            "agent_end",
        ]
    );
    assert_eq!(assert_documented_order(&lines), 1);
    assert!(count(&lines, "message_update") > 0);
    let [file] = &session_files(&env)[..] else { panic!("not one session file") };
    let stored = fs::read_to_string(file).unwrap();
    let printed = str::from_utf8(&output.stdout).unwrap();
    assert_eq!(printed.lines().next(), stored.lines().next());
    let header = &lines[0];
    assert_eq!(header["version"], 3);
    assert_eq!(header["cwd"], env.project().display().to_string());
    assert!(
        file.display().to_string().ends_with(&format!("_{}.jsonl", header["id"].as_str().unwrap()))
    );
    assert_eq!(lines.last().unwrap()["messages"].as_array().unwrap().len(), 4);
}

#[test]
fn json_mode_without_a_session_file() {
    let env = Env::new();
    let model = env.script(&[says("done")]);
    let output = run(&env, &["--mode", "json", "--no-session", "--model", &model, "go"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert_ends_with_agent_end(&lines(&output));
    assert!(session_files(&env).is_empty());
}

#[test]
fn json_mode_serves_several_prompts_one_after_the_other() {
    let env = Env::new();
    let model = env.script(&[says("one"), says("two")]);
    let output = run(&env, &["--mode", "json", "--model", &model, "first", "second"]);
    let lines = lines(&output);
    assert_eq!(texts(&lines, "user"), ["first", "second"]);
    assert_eq!(assert_documented_order(&lines), 2);
    assert_ends_with_agent_end(&lines);
}

#[test]
fn json_mode_ends_with_agent_end_when_the_provider_fails() {
    let env = Env::new();
    let model = env.script(&[json!({"error": {"status": 400, "body": "bad request"}})]);
    let output = run(&env, &["--mode", "json", "--model", &model, "go"]);
    // Errors surface as events, not as exit codes.
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let lines = lines(&output);
    assert_ends_with_agent_end(&lines);
    assert_eq!(assert_documented_order(&lines), 1);
    let messages = &lines.last().unwrap()["messages"];
    assert_eq!(messages[1]["stopReason"], "error");
    assert!(messages[1]["errorMessage"].as_str().unwrap().contains("bad request"), "{messages}");
}

#[test]
fn json_mode_ends_with_agent_end_without_a_model() {
    let env = Env::new();
    let output = run(&env, &["--mode", "json", "go"]);
    assert_eq!(output.status.code(), Some(1));
    let lines = lines(&output);
    assert_ends_with_agent_end(&lines);
    assert_eq!(lines.last().unwrap()["messages"], json!([]));
    assert!(stderr(&output).contains("--model"), "{}", stderr(&output));
}

#[test]
fn json_mode_ends_with_agent_end_when_an_extension_took_the_prompt() {
    let env = Env::new();
    for (name, prompt) in [("probe", "handled:x"), ("hello", "/hello")] {
        let extension = guest(name);
        let output = run(&env, &["--mode", "json", "-e", extension.to_str().unwrap(), prompt]);
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        assert_ends_with_agent_end(&lines(&output));
    }
}

#[test]
fn json_mode_ends_with_agent_end_on_a_signal() {
    for (number, code) in [(Signal::TERM, 143), (Signal::INT, 130)] {
        let env = Env::new();
        let model = env.script(&[json!({"delayMs": 20, "chunkChars": 1,
            "content": [{"type": "text", "text": "x".repeat(100_000)}]})]);
        let mut child = env
            .command()
            .args(["--mode", "json", "--model", &model, "go"])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut all = Vec::new();
        for line in BufReader::new(child.stdout.take().unwrap()).lines() {
            let line: Value = serde_json::from_str(&line.unwrap()).unwrap();
            if count(&all, "message_update") == 3 && line["type"] == "message_update" {
                signal(child.id(), number);
            }
            all.push(line);
        }
        assert_eq!(child.wait().unwrap().code(), Some(code));
        assert_ends_with_agent_end(&all);
        assert_eq!(assert_documented_order(&all), 1);
        let messages = &all.last().unwrap()["messages"];
        assert_eq!(messages[1]["stopReason"], "aborted", "{messages}");
    }
}

#[test]
fn text_mode_prints_exactly_the_answer() {
    let env = Env::new();
    let thinking = json!({"content": [
        {"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "the answer é\u{2028}!"},
    ]});
    let first = json!({"content": [
        {"type": "text", "text": "I will look."},
        {"type": "toolCall", "name": "bash", "arguments": {"command": "echo out"}},
    ]});
    let model = env.script(&[first, thinking]);
    let output = run(&env, &["-p", "--model", &model, "go"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert_eq!(str::from_utf8(&output.stdout).unwrap(), "the answer é\u{2028}!\n");
    assert_eq!(stderr(&output), "");
}

#[test]
fn every_way_to_ask_for_text_is_the_same() {
    for flags in [&["-p"][..], &["--print"], &["--mode", "text"], &[]] {
        let env = Env::new();
        let model = env.script(&[says("answer")]);
        let output = run(&env, &[flags, &["--model", &model, "go"]].concat());
        assert_eq!(output.status.code(), Some(0), "{flags:?} {}", stderr(&output));
        assert_eq!(output.stdout, b"answer\n", "{flags:?}");
    }
}

#[test]
fn text_mode_tells_errors_on_stderr() {
    let env = Env::new();
    let model = env.script(&[json!({"error": {"status": 400, "body": "bad request"}})]);
    let output = run(&env, &["-p", "--model", &model, "go"]);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(output.stdout, b"");
    assert!(stderr(&output).contains("bad request"), "{}", stderr(&output));

    let output = run(&env, &["-p", "go"]);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(output.stdout, b"");
    assert!(stderr(&output).contains("--model"), "{}", stderr(&output));

    let output = run(&env, &["-p", "--model", "nobody/nothing", "go"]);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(output.stdout, b"");
    assert!(stderr(&output).contains("nobody/nothing"), "{}", stderr(&output));
}

#[test]
fn text_mode_prints_what_was_said_before_a_failure_as_a_failure() {
    let env = Env::new();
    let model = env
        .script(&[json!({"content": [{"type": "text", "text": "half"}], "stopReason": "length"})]);
    let output = run(&env, &["-p", "--model", &model, "go"]);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(output.stdout, b"half\n");
    assert!(stderr(&output).contains("limit"), "{}", stderr(&output));
}

#[test]
fn text_mode_runs_an_extension_command() {
    let env = Env::new();
    let hello = guest("hello");
    let output = run(&env, &["-p", "-e", hello.to_str().unwrap(), "/hello you"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert_eq!(output.stdout, b"");
}

#[test]
fn the_prompt_may_come_from_standard_input() {
    for mode in ["json", "text"] {
        let env = Env::new();
        let model = env.script(&[
            json!({"when": "^from stdin", "content": [{"type": "text", "text": "seen"}]}),
        ]);
        let output = run_with_input(&env, &["--mode", mode, "--model", &model], b"from stdin\n");
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        let answer = if mode == "json" {
            texts(&lines(&output), "assistant").concat() + "\n"
        } else {
            String::from_utf8(output.stdout).unwrap()
        };
        assert_eq!(answer, "seen\n");
    }
}

#[test]
fn no_prompt_at_all_is_an_error() {
    let env = Env::new();
    for input in ["", " \n\t"] {
        let output = run_with_input(&env, &["-p", "--model", "scripted/demo"], input.as_bytes());
        assert_ne!(output.status.code(), Some(0));
        assert_eq!(output.stdout, b"");
        assert!(stderr(&output).contains("prompt"), "{}", stderr(&output));
    }
    let output = run(&env, &[]);
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(output.stdout, b"");
    assert!(stderr(&output).contains("--help"), "{}", stderr(&output));
}

#[test]
fn files_of_the_command_line_go_into_the_prompt() {
    let env = Env::new();
    env.write("notes.txt", "the notes\n");
    // The first of `PIXELS`.
    let png = b"\x89PNG\r\n\x1a\n\
        \0\0\0\rIHDR\0\0\0\x01\0\0\0\x01\x08\0\0\0\0:~\x9bU\
        \0\0\0\nIDATx\xdac`\0\0\0\x02\0\x01\xe5'\xde\xfc\
        \0\0\0\0IEND\xaeB`\x82";
    env.write("image.png", png);
    let model = env.script(&[says("ok")]);
    let args = ["--mode", "json", "--model", &model, "@notes.txt", "@image.png", "what is this?"];
    let output = run(&env, &args);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let lines = lines(&output);
    let user = lines.iter().find(|line| line["type"] == "message_end").unwrap();
    let text = user["message"]["content"][0]["text"].as_str().unwrap();
    let (notes, question) = (text.find("the notes"), text.find("what is this?"));
    assert!(text.contains("notes.txt") && notes.is_some() && notes < question, "{text}");
    let image = json!({"type": "image", "data": PIXELS[0], "mimeType": "image/png"});
    assert_eq!(user["message"]["content"][1], image);
}

#[test]
fn a_file_of_the_command_line_that_cannot_be_used_is_named() {
    let env = Env::new();
    env.write("blob.bin", [0, 159, 146, 150]);
    for (name, problem) in [
        ("missing.txt", "cannot be read: No such file or directory (os error 2)"),
        (".", "is not a regular file"),
        ("blob.bin", "is neither UTF-8 text nor an image (png, jpeg, gif, webp)"),
    ] {
        let output = run(&env, &["-p", "--model", "scripted/demo", &format!("@{name}"), "go"]);
        assert_eq!(output.status.code(), Some(1), "{name}");
        assert_eq!(output.stdout, b"");
        assert_eq!(stderr(&output), format!("error: {name} {problem}\n"));
    }
}

#[test]
fn nobody_is_asked_in_a_one_shot_run() {
    for mode in ["json", "text"] {
        let env = Env::new();
        let model = env.script(&[bash("sudo touch ran"), says("understood")]);
        let gate = guest("permission-gate");
        let output =
            run(&env, &["--mode", mode, "--model", &model, "-e", gate.to_str().unwrap(), "go"]);
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        assert!(!fs::exists(env.project().join("ran")).unwrap());
        if mode == "json" {
            let lines = lines(&output);
            assert_eq!(count(&lines, "extension_ui_request"), 0);
            let end = lines.iter().find(|line| line["type"] == "tool_execution_end").unwrap();
            assert_eq!(end["isError"], true);
            assert!(text_of(&end["result"]).contains("no UI"), "{end}");
        }
    }
}

#[test]
fn a_run_can_be_continued() {
    let env = Env::new();
    let model = env.script(&[says("one")]);
    let first = run(&env, &["--mode", "json", "--model", &model, "first"]);
    let model = env.script(&[says("two")]);
    let second = run(&env, &["--mode", "json", "--model", &model, "--continue", "second"]);
    assert_eq!(second.status.code(), Some(0), "{}", stderr(&second));
    assert_eq!(lines(&first)[0], lines(&second)[0], "another session");
    assert_eq!(session_files(&env).len(), 1);
    let file = session_files(&env).remove(0);
    let missing = env.project().join("missing.jsonl");
    let output = run(&env, &["-p", "--session", missing.to_str().unwrap(), "go"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("missing.jsonl"), "{}", stderr(&output));
    assert!(!fs::exists(missing).unwrap());
    let model = env.script(&[says("three")]);
    let third = run(
        &env,
        &["--mode", "json", "--model", &model, "--session", file.to_str().unwrap(), "third"],
    );
    assert_eq!(lines(&third)[0], lines(&first)[0]);
    assert_eq!(fs::read_to_string(&file).unwrap().matches("\"role\":\"user\"").count(), 3);
}
