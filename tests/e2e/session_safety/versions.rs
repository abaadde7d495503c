//! Files of versions 1 and 2, and of versions to come.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use serde_json::{Value, json};
use wharf_tests::{Env, SessionFile, note};

use super::chain::Bytes;
use super::{
    any_reply, beside, contents, diagnostics, end, lock_of, messages, open, session_file, start,
    state, switch, text_of, texts,
};

const UUID: &str = "0f8fad5b-d9cb-469f-a165-70867728950e";

fn lines(lines: &[Value]) -> String {
    lines.iter().map(|line| format!("{line}\n")).collect()
}

fn reply(text: &str) -> Value {
    let cost = json!({"input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0, "total": 0});
    json!({"role": "assistant", "content": [{"type": "text", "text": text}], "api": "x",
        "provider": "p", "model": "m", "usage": {"input": 0, "output": 0, "cacheRead": 0,
        "cacheWrite": 0, "totalTokens": 0, "cost": cost}, "stopReason": "stop",
        "timestamp": 1_733_234_402_000_u64})
}

fn user(text: &str) -> Value {
    json!({"role": "user", "content": text, "timestamp": 1_733_234_401_000_u64})
}

fn version_1(env: &Env) -> String {
    let time = |second: u32| format!("2024-12-03T14:00:{second:02}.000Z");
    lines(&[
        json!({"type": "session", "id": UUID, "timestamp": time(0), "cwd": env.project(), "mine": [1]}),
        json!({"type": "message", "timestamp": time(1), "message": user("dropped")}),
        json!({"type": "message", "timestamp": time(2), "message": reply("dropped")}),
        json!({"type": "message", "timestamp": time(3), "message": user("kept")}),
        json!({"type": "compaction", "timestamp": time(4), "summary": "so far",
            "firstKeptEntryIndex": 3, "tokensBefore": 9}),
        json!({"type": "message", "timestamp": time(5), "message": reply("last"), "odd": {"n": 1}}),
    ])
}

fn version_2(env: &Env) -> String {
    let time = |second: u32| format!("2024-12-03T14:00:{second:02}.000Z");
    lines(&[
        json!({"type": "session", "version": 2, "id": UUID, "timestamp": time(0), "cwd": env.project()}),
        json!({"type": "message", "id": "0000000a", "parentId": null, "timestamp": time(1), "message": user("first")}),
        json!({"type": "message", "id": "0000000b", "parentId": "0000000a", "timestamp": time(2),
            "message": {"role": "hookMessage", "customType": "x", "content": "from a hook",
                "display": true, "timestamp": 1_733_234_401_500_u64}}),
        json!({"type": "message", "id": "0000000c", "parentId": "0000000b", "timestamp": time(3), "message": reply("last")}),
    ])
}

#[test]
fn old_files_are_read_as_they_are_and_migrated_with_the_first_write() {
    let env = Env::new();
    for (version, content) in [(1, version_1(&env)), (2, version_2(&env))] {
        let folder = env.project().join(version.to_string());
        fs::create_dir(&folder).unwrap();
        let file = folder.join("old.jsonl");
        fs::write(&file, &content).unwrap();
        let modified = fs::metadata(&file).unwrap().modified().unwrap();
        let mut wharf = open(&env, &file);
        let before = messages(&mut wharf);
        let roles: Vec<&str> =
            before.iter().map(|message| message["role"].as_str().unwrap()).collect();
        match version {
            1 => assert_eq!(roles, ["compactionSummary", "user", "assistant"]),
            _ => assert_eq!(roles, ["user", "custom", "assistant"]),
        }
        for look in ["get_tree", "get_fork_messages", "get_session_stats", "list_sessions"] {
            wharf.data(json!({"type": look}));
        }
        assert!(diagnostics(wharf.passed()).is_empty());
        end(wharf);
        assert_eq!(fs::read_to_string(&file).unwrap(), content);
        assert_eq!(fs::metadata(&file).unwrap().modified().unwrap(), modified);
        assert_eq!(contents(&folder).len(), 1);

        let mut wharf = open(&env, &file);
        let told = diagnostics(&wharf.run("more"));
        assert!(told.is_empty(), "{told:?}");
        assert_eq!(session_file(&mut wharf), file);
        assert_eq!(state(&mut wharf)["sessionId"], UUID);
        end(wharf);
        let backup = beside(&file, &format!(".v{version}.bak"));
        assert_eq!(fs::read_to_string(&backup).unwrap(), content);
        let written = super::sound_lines(&file);
        assert_eq!((&written[0]["version"], &written[0]["id"]), (&json!(3), &json!(UUID)));
        if version == 1 {
            assert_eq!(written[0]["mine"], json!([1]), "unknown fields stay");
            assert_eq!(written[5]["odd"], json!({"n": 1}));
            assert_eq!(written[4]["firstKeptEntryId"], written[3]["id"]);
        }
        let mut again = open(&env, &file);
        let after = messages(&mut again);
        assert_eq!(after[..before.len()], before);
        assert_eq!(after.len(), before.len() + 2);
        assert!(diagnostics(again.passed()).is_empty());
        // Never twice.
        again.run("and more");
        end(again);
        assert_eq!(contents(&folder).len(), 2);
    }
}

/// Any first write, not only that of a prompt.
#[test]
fn a_label_migrates_too_and_a_crash_before_it_costs_nothing() {
    let env = Env::new();
    let file = env.write("old/old.jsonl", version_2(&env));
    let mut wharf = open(&env, &file);
    wharf.data(json!({"type": "set_label", "entryId": "0000000a", "label": "here"}));
    // Answered means written.
    wharf.kill();
    wharf.wait_exit();
    let written = super::sound_lines(&file);
    assert_eq!(written[0]["version"], 3);
    assert!(written.iter().any(|line| line["type"] == "label" && line["label"] == "here"));
    assert_eq!(fs::read_to_string(beside(&file, ".v2.bak")).unwrap(), version_2(&env));
}

/// While a session of an old version is open, the file belongs to it.
#[test]
fn an_old_file_that_changes_before_its_first_write_is_not_replaced() {
    let env = Env::new();
    let file = env.write("old/old.jsonl", version_2(&env));
    let mut wharf = open(&env, &file);
    state(&mut wharf);
    fs::write(&file, "my notes\n").unwrap();
    let mut told = diagnostics(&wharf.run("more"));
    told.extend(diagnostics(&wharf.run("and more")));
    assert!(!told.is_empty(), "nothing was told");
    assert_eq!(fs::read_to_string(&file).unwrap(), "my notes\n");
    // Nothing is lost either: it is in some file beside it, which the client is told of.
    let place = session_file(&mut wharf);
    let kept = messages(&mut wharf);
    assert_eq!(kept.len(), 7);
    let exit = wharf.finish();
    assert_ne!(place, file, "{told:?}");
    assert_eq!(exit.code, Some(0), "{}", exit.stderr);
    let mut again = open(&env, &place);
    assert_eq!(messages(&mut again), kept);
    end(again);
}

#[test]
fn a_newer_version_is_refused_everywhere_and_not_touched() {
    let env = Env::new();
    let content = version_2(&env).replace("\"version\":2", "\"version\":4");
    let folder = env.project().join("newer");
    fs::create_dir(&folder).unwrap();
    let file = folder.join("2024-12-03T14-00-00-000Z_x.jsonl");
    fs::write(&file, &content).unwrap();
    let modified = fs::metadata(&file).unwrap().modified().unwrap();
    let untouched = |case: &str| {
        assert_eq!(contents(&folder), [(file.clone(), content.clone().into_bytes())], "{case}");
        assert_eq!(fs::metadata(&file).unwrap().modified().unwrap(), modified, "{case}");
    };
    let path = file.to_str().unwrap();
    let model = any_reply(&env);
    for args in [
        &["-p", "hi", "--session", path][..],
        &["-p", "hi", "--fork", path],
        &["--mode", "json", "hi", "--session", path],
        &["--mode", "rpc", "--session", path],
        &["--export", path],
        &["import", path],
    ] {
        let mut command = env.command();
        command.args(args).stdin(Stdio::null());
        if !["--export", "import"].contains(&args[0]) {
            command.args(["--model", &model]);
        }
        let output = command.output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{args:?}");
        let err = String::from_utf8(output.stderr).unwrap();
        for part in [path, "version 4", "newer"] {
            assert!(err.contains(part), "{args:?}: {err}");
        }
        untouched(args[0]);
    }
    let mut wharf = start(&env, &[]);
    wharf.run("first");
    let own = session_file(&mut wharf);
    for command in [
        json!({"type": "switch_session", "sessionPath": file}),
        json!({"type": "switch_session", "sessionPath": file, "fork": true}),
        json!({"type": "import_session", "sessionPath": file}),
    ] {
        let refused = wharf.request(command.clone());
        assert_eq!(refused["success"], false, "{command}");
        let error = refused["error"].as_str().unwrap();
        assert!(error.contains("version 4") && error.contains(path), "{error}");
        assert_eq!(session_file(&mut wharf), own);
        untouched(&command.to_string());
    }
    end(wharf);
    assert_eq!(super::session_files(&env.agent_dir()), [own]);

    // As the last session of a directory it is not written over either.
    let args = ["--session-dir", folder.to_str().unwrap(), "--continue"];
    let mut command = env.command();
    command.args(["-p", "hi", "--model", &model]).args(args).stdin(Stdio::null());
    command.output().unwrap();
    assert_eq!(fs::read_to_string(&file).unwrap(), content);
    assert!(!lock_of(&file).exists());
}

/// A session of a real early version, where the fixtures lie beside the clone.
fn fixture() -> Option<PathBuf> {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
    let path = manifest.join("../../shared/fixtures/sessions/v1-linear.jsonl");
    let found = path.exists();
    if !found {
        note(format_args!("skipped: {} is missing", path.display()));
    }
    found.then_some(path)
}

#[test]
fn a_real_session_of_version_1_opens_forks_migrates_and_exports() {
    let Some(fixture) = fixture() else { return };
    let env = Env::new();
    let content = fs::read(&fixture).unwrap();
    let file = env.write("real/old.jsonl", &content);
    let mut wharf = open(&env, &file);
    let before = messages(&mut wharf);
    assert_eq!(before.len(), 914);
    let from = wharf.data(json!({"type": "get_fork_messages"}));
    let from = from["messages"].as_array().unwrap();
    let last = from.last().unwrap().clone();
    let page = env.project().join("page.html");
    wharf.data(json!({"type": "export_html", "outputPath": page}));
    end(wharf);
    assert_eq!(fs::read(&file).unwrap(), content);
    assert_eq!(contents(file.parent().unwrap()).len(), 1);
    let page = fs::read_to_string(page).unwrap();
    assert!(
        page.get(..15).is_some_and(|start| start.eq_ignore_ascii_case("<!doctype html>"))
            && page.trim_end().ends_with("</html>")
    );

    // The tree is one chain: deeper than parsers of JSON like it.
    let mut raw = Bytes::start(&env, &file);
    let tree = raw.answer("get_tree");
    assert_eq!(tree.count(b"\"children\":"), 914 + 103 + 1);
    assert!(tree.depth() > 2 * 1017, "{}", tree.depth());
    raw.end();

    let mut wharf = open(&env, &file);
    let forked = wharf.data(json!({"type": "fork", "entryId": last["entryId"]}));
    assert_eq!(forked["text"], last["text"]);
    let at = before.iter().rposition(|message| message["role"] == "user").unwrap();
    assert_eq!(text_of(&before[at]), last["text"].as_str().unwrap());
    assert_eq!(messages(&mut wharf), before[..at]);
    let fork = session_file(&mut wharf);
    // The old one was only read.
    assert_eq!(fs::read(&file).unwrap(), content);
    assert_eq!(switch(&mut wharf, &file)["success"], true);
    wharf.run("more");
    end(wharf);
    assert_eq!(fs::read(beside(&file, ".v1.bak")).unwrap(), content);
    let mut again = open(&env, &file);
    let after = messages(&mut again);
    assert_eq!(after[..914], before);
    assert_eq!(texts(&mut again)[914..], ["more", "ok"]);
    end(again);
    let header = SessionFile::parse(fs::read_to_string(&fork).unwrap().lines().next().unwrap());
    assert_eq!(header.unwrap().header["parentSession"], file.to_str().unwrap());
}
