//! Clients that send what nobody should: wrong types, torn lines, commands that cross each
//! other. Each gets one answer, the process lives, and the files stay sound.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use serde_json::{Value, json};
use wharf_tests::{Env, Wharf};

use super::{
    Random, diagnostics, end, messages, open, session_file, session_files, short_session,
    sound_lines, start, state,
};

/// Sends all in one write and takes lines until each has its answer; then those of a
/// last command, so that a second answer would be seen.
fn ask_all(wharf: &mut Wharf, commands: &[Value]) -> Vec<Value> {
    let text: String = commands.iter().map(|command| format!("{command}\n")).collect();
    ask_raw(wharf, text.as_bytes(), commands.len())
}

fn ask_raw(wharf: &mut Wharf, bytes: &[u8], answers: usize) -> Vec<Value> {
    wharf.send_raw(bytes);
    let mut lines = Vec::new();
    let mut found = 0;
    while found < answers {
        let line = wharf.next().unwrap_or_else(|| panic!("it has ended:\n{}", wharf.transcript()));
        found += usize::from(line["type"] == "response");
        lines.push(line);
    }
    wharf.send(&json!({"type": "get_version", "id": "last"}));
    lines.extend(wharf.until("the last answer", |line| line["id"] == "last"));
    lines.pop();
    lines
}

fn responses(lines: &[Value]) -> Vec<&Value> {
    lines.iter().filter(|line| line["type"] == "response").collect()
}

/// Commands about sessions: the fields that they need, and those that they may have.
const FIELDS: &[(&str, &[&str], &[&str])] = &[
    ("fork", &["entryId"], &[]),
    (
        "navigate_tree",
        &["targetId"],
        &["summarize", "customInstructions", "replaceInstructions", "label"],
    ),
    ("set_label", &["entryId"], &["label"]),
    ("delete_session", &["sessionPath"], &[]),
    ("switch_session", &["sessionPath"], &["fork"]),
    ("import_session", &["sessionPath"], &[]),
    ("new_session", &[], &["parentSession"]),
    ("export_html", &[], &["outputPath"]),
    ("set_session_name", &["name"], &[]),
];

#[test]
fn fields_of_wrong_types_are_refused_one_by_one() {
    let env = Env::new();
    let mut wharf = start(&env, &[]);
    wharf.run("first");
    let file = session_file(&mut wharf);
    let from = wharf.data(json!({"type": "get_fork_messages"}));
    let entry = from["messages"][0]["entryId"].clone();
    let other = short_session(&env, "other");
    let before = fs::read(&file).unwrap();
    let sound = |field: &str| match field {
        "entryId" | "targetId" => entry.clone(),
        "sessionPath" => json!(other),
        _ => json!("x"),
    };
    let wrong = [
        Value::Null,
        json!(7),
        json!(-1.5),
        json!(true),
        json!([]),
        json!(["a"]),
        json!({}),
        json!({"a": {"b": []}}),
    ];
    for (command, needed, optional) in FIELDS {
        let mut commands = Vec::new();
        for field in needed.iter().chain(*optional) {
            for value in &wrong {
                let is_flag = ["summarize", "replaceInstructions", "fork"].contains(field);
                let is_right = if is_flag { value.is_boolean() } else { value.is_string() };
                if is_right || (value.is_null() && optional.contains(field)) {
                    continue;
                }
                let mut sent = json!({"type": command, "id": commands.len()});
                for needed in *needed {
                    sent[*needed] = sound(needed);
                }
                sent[*field] = value.clone();
                commands.push(sent);
            }
            if ["summarize", "replaceInstructions", "fork"].contains(field) {
                commands.push(json!({"type": command, "id": commands.len(), "entryId": entry,
                    "targetId": entry, "sessionPath": other, *field: "true"}));
            }
        }
        if !needed.is_empty() {
            commands.push(json!({"type": command, "id": commands.len()}));
        }
        let lines = ask_all(&mut wharf, &commands);
        let found = responses(&lines);
        assert_eq!(found.len(), commands.len(), "{command}");
        for sent in &commands {
            let to: Vec<_> = found.iter().filter(|answer| answer["id"] == sent["id"]).collect();
            assert_eq!(to.len(), 1, "{sent}: {to:?}");
            assert_eq!(to[0]["success"], false, "{sent}: {}", to[0]);
            assert_eq!(to[0]["command"], **command, "{sent}: {}", to[0]);
            assert!(!to[0]["error"].as_str().unwrap().is_empty(), "{sent}");
        }
    }
    assert_eq!(session_file(&mut wharf), file);
    assert_eq!(fs::read(&file).unwrap(), before);
    assert!(other.exists());
    assert_eq!(messages(&mut wharf).len(), 2);
    end(wharf);
}

#[test]
fn odd_texts_are_answered_once_and_harm_nothing() {
    let env = Env::new();
    let mut wharf = start(&env, &[]);
    wharf.run("first");
    let file = session_file(&mut wharf);
    let before = fs::read(&file).unwrap();
    let odd = [
        String::new(),
        " ".to_owned(),
        "\0".to_owned(),
        "a\0b.jsonl".to_owned(),
        "\u{2028}\u{feff}".to_owned(),
        "../../../../../../../etc/passwd".to_owned(),
        "/".to_owned(),
        "/dev/null".to_owned(),
        "/dev/stdin".to_owned(),
        "~nobody/x.jsonl".to_owned(),
        "x".repeat(10_000),
        format!("{}.jsonl", "y/".repeat(3000)),
        "null".to_owned(),
        "00000000".to_owned(),
    ];
    for (command, field) in [
        ("fork", "entryId"),
        ("navigate_tree", "targetId"),
        ("set_label", "entryId"),
        ("delete_session", "sessionPath"),
        ("switch_session", "sessionPath"),
        ("import_session", "sessionPath"),
    ] {
        let commands: Vec<Value> = odd
            .iter()
            .enumerate()
            .map(|(id, text)| json!({"type": command, "id": id, field: text, "label": "l"}))
            .collect();
        let lines = ask_all(&mut wharf, &commands);
        let found = responses(&lines);
        assert_eq!(found.len(), commands.len(), "{command}");
        for answer in found {
            assert_eq!(answer["success"], false, "{answer}");
            let error = answer["error"].as_str().unwrap();
            assert!(!error.contains("internal") && !error.contains("panic"), "{answer}");
        }
    }
    // As halves of a pair they are no text at all.
    for half in [r"\ud800", r"\udc00\ud800"] {
        let line = format!("{{\"type\":\"fork\",\"id\":\"half\",\"entryId\":\"{half}\"}}\n");
        let lines = ask_raw(&mut wharf, line.as_bytes(), 1);
        assert_eq!(responses(&lines).len(), 1);
        assert_eq!(responses(&lines)[0]["success"], false);
    }
    assert_eq!(session_file(&mut wharf), file);
    assert_eq!(fs::read(&file).unwrap(), before);
    wharf.run("second");
    end(wharf);
    sound_lines(&file);
}

/// A line may come in any number of writes; what is no JSON costs its own line.
#[test]
fn torn_lines_are_put_together_and_bad_ones_cost_themselves() {
    let env = Env::new();
    let mut wharf = start(&env, &[]);
    wharf.run("first");
    let from = wharf.data(json!({"type": "get_fork_messages"}));
    let entry = from["messages"][0]["entryId"].as_str().unwrap().to_owned();
    let command = json!({"type": "navigate_tree", "id": "t", "targetId": entry}).to_string();
    let whole = format!("{command}\n");
    for cut in 1..whole.len() {
        wharf.send_raw(&whole.as_bytes()[..cut]);
        let lines = ask_raw(&mut wharf, &whole.as_bytes()[cut..], 1);
        let found = responses(&lines);
        assert_eq!(found.len(), 1, "cut at {cut}");
        assert_eq!((&found[0]["id"], &found[0]["success"]), (&json!("t"), &json!(true)));
    }
    let bad: &[&[u8]] = &[
        &command.as_bytes()[..command.len() - 1],
        &command.as_bytes()[1..],
        b"{\"type\":\"fork\",\"entryId\":\"\xff\"}",
        b"{\"type\":\"fork\",\"entryId\":\"a\0b\"}",
        b"[{\"type\":\"new_session\"}]",
        b"\"new_session\"",
        b"{\"type\":\"new_session\"} {\"type\":\"new_session\"}",
        b"{\"type\":\"new_session\"}}",
        b"{\"type\":\"New_Session\"}",
        b"{\"type\":[\"new_session\"]}",
        b"{}",
    ];
    let file = session_file(&mut wharf);
    for line in bad {
        let sent = [*line, b"\n"].concat();
        let lines = ask_raw(&mut wharf, &sent, 1);
        let found = responses(&lines);
        assert_eq!(found.len(), 1, "{}", String::from_utf8_lossy(line));
        assert_eq!(found[0]["success"], false, "{}", String::from_utf8_lossy(line));
    }
    assert_eq!(session_file(&mut wharf), file);
    end(wharf);
    sound_lines(&file);
}

/// What a process did in one life.
struct Life {
    /// Every response's id, counted.
    answers: BTreeMap<String, usize>,
    announced: Vec<Value>,
    deleted: Vec<PathBuf>,
}

fn entries_of(env: &Env) -> Vec<String> {
    let files = session_files(&env.agent_dir());
    let lines = files.iter().flat_map(|file| sound_lines(file));
    lines.filter_map(|line| Some(line["id"].as_str()?.to_owned())).collect()
}

/// Sends a jumble of commands in one write, or in two.
fn jumble(env: &Env, wharf: &mut Wharf, random: &mut Random, may_delete: bool) -> Life {
    let files = session_files(&env.agent_dir());
    let entries = entries_of(env);
    let count = 4 + random.below(14);
    let mut commands = Vec::new();
    for number in 0..count {
        let entry = random.pick(&entries).clone();
        let file = random.pick(&files).clone();
        let mut command = match random.below(if may_delete { 16 } else { 14 }) {
            0 | 1 => json!({"type": "fork", "entryId": entry}),
            2 | 3 => json!({"type": "navigate_tree", "targetId": entry}),
            4 => {
                json!({"type": "navigate_tree", "targetId": entry, "summarize": true, "label": "l"})
            }
            5 | 6 => json!({"type": "switch_session", "sessionPath": file}),
            7 => json!({"type": "switch_session", "sessionPath": file, "fork": true}),
            8 => json!({"type": "new_session"}),
            9 => json!({"type": "set_label", "entryId": entry, "label": format!("label {number}")}),
            10 => json!({"type": "get_tree"}),
            11 => json!({"type": "abort"}),
            12 => json!({"type": "list_sessions"}),
            13 => json!({"type": "compact"}),
            _ => json!({"type": "delete_session", "sessionPath": file}),
        };
        if random.below(3) == 0 {
            command = json!({"type": "prompt", "message": format!("message {number}"),
                "streamingBehavior": "followUp"});
        }
        command["id"] = json!(number.to_string());
        commands.push(command);
    }
    let text: String = commands.iter().map(|command| format!("{command}\n")).collect();
    let cut = random.below(text.len());
    let mut life = Life { answers: BTreeMap::new(), announced: Vec::new(), deleted: Vec::new() };
    if random.below(2) == 0 {
        wharf.send_raw(text.as_bytes());
    } else {
        wharf.send_raw(&text.as_bytes()[..cut]);
        wharf.send_raw(&text.as_bytes()[cut..]);
    }
    while life.answers.len() < count {
        let line = wharf.next().unwrap_or_else(|| panic!("it has ended:\n{}", wharf.transcript()));
        note_line(&mut life, &commands, &line);
    }
    // Comes to rest: an abort is answered when the run has left.
    wharf.send(&json!({"type": "abort", "id": "rest"}));
    for line in wharf.until("rest", |line| line["id"] == "rest") {
        note_line(&mut life, &commands, &line);
    }
    life.answers.remove("rest");
    assert_eq!(life.answers.len(), count, "{}", wharf.transcript());
    for (id, times) in &life.answers {
        assert_eq!(*times, 1, "{id} was answered {times} times:\n{}", wharf.transcript());
    }
    life
}

fn note_line(life: &mut Life, commands: &[Value], line: &Value) {
    match line["type"].as_str().unwrap() {
        "response" => {
            let id = line["id"].as_str().unwrap_or_else(|| panic!("no id: {line}")).to_owned();
            if line["success"] == true && line["command"] == "delete_session" {
                let sent = commands.iter().find(|command| command["id"] == id.as_str()).unwrap();
                life.deleted.push(PathBuf::from(sent["sessionPath"].as_str().unwrap()));
            }
            *life.answers.entry(id).or_default() += 1;
        }
        "message_end" => life.announced.push(line["message"].clone()),
        _ => {}
    }
}

fn jumbles(seed: u64, rounds: usize, may_delete: bool) {
    let env = Env::new();
    let mut random = Random(seed);
    for message in ["a", "b", "c"] {
        short_session(&env, message);
    }
    let mut announced: Vec<Value> = Vec::new();
    let mut wharf = open(&env, &session_files(&env.agent_dir())[0]);
    for round in 0..rounds {
        let place = format!("seed {seed:#x}, round {round}");
        let life = jumble(&env, &mut wharf, &mut random, may_delete);
        let file = session_file(&mut wharf);
        // What is told of a file would be damage or a change, and there is neither.
        assert_eq!(diagnostics(wharf.passed()), [""; 0], "{place}");
        for deleted in &life.deleted {
            assert!(!deleted.exists() && *deleted != file, "{place}: {}", deleted.display());
        }
        announced.extend(life.announced);
        let files = session_files(&env.agent_dir());
        let kept: Vec<Value> = files.iter().flat_map(|file| sound_lines(file)).collect();
        if !may_delete {
            for message in &announced {
                let is_kept = kept.iter().any(|entry| entry["message"] == *message);
                assert!(is_kept, "{place}: lost {message}:\n{}", wharf.transcript());
            }
        }
        if files.len() < 2 {
            short_session(&env, "another");
        }
        if random.below(6) == 0 {
            end(wharf);
            wharf = start(&env, &["--continue"]);
            state(&mut wharf);
        }
    }
    assert!(announced.len() > 2 * rounds, "only {} messages", announced.len());
    let shown = messages(&mut wharf);
    let place = state(&mut wharf)["sessionFile"].as_str().map(PathBuf::from).unwrap();
    end(wharf);
    let locks = super::contents(&env.agent_dir());
    assert!(!locks.iter().any(|(path, _)| path.to_string_lossy().ends_with(".lock")));
    let files = session_files(&env.agent_dir());
    let mut ids: Vec<Value> = files.iter().map(|file| sound_lines(file)[0]["id"].clone()).collect();
    ids.sort_by_key(Value::to_string);
    ids.dedup();
    assert_eq!(ids.len(), files.len(), "two files have the same id");
    assert!(place.exists() || shown.is_empty());
    for file in files.iter().take(8) {
        let mut wharf = open(&env, file);
        state(&mut wharf);
        assert_eq!(diagnostics(wharf.passed()), [""; 0], "{}", file.display());
        end(wharf);
    }
}

#[test]
fn commands_that_cross_each_other_are_answered_once_each() {
    jumbles(0x9e37_79b9_7f4a_7c15, 25, false);
}

#[test]
fn commands_that_cross_each_other_are_answered_once_each_with_deletions() {
    jumbles(0x2545_f491_4f6c_dd1d, 25, true);
}

/// In every order of four commands that each want another session.
#[test]
fn every_order_of_switching_commands_ends_in_a_sound_state() {
    let env = Env::new();
    let other = short_session(&env, "other");
    let spare = |number: usize| {
        let path = env.project().join(format!("spare/{number}.jsonl"));
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::copy(&other, &path).unwrap();
        path
    };
    let mut wharf = start(&env, &[]);
    wharf.run("first");
    for order in 0..24 {
        let from = wharf.data(json!({"type": "get_fork_messages"}));
        let mut kinds = vec!["fork", "switch_session", "new_session", "navigate_tree"];
        let (mut rest, mut commands) = (order, Vec::new());
        let spare = spare(order);
        while !kinds.is_empty() {
            let kind = kinds.remove(rest % kinds.len());
            rest /= kinds.len() + 1;
            let entry = from["messages"][0]["entryId"].clone();
            commands.push(json!({"type": kind, "id": kind, "entryId": entry, "targetId": entry,
                "sessionPath": other}));
        }
        commands.push(json!({"type": "delete_session", "id": "delete", "sessionPath": spare}));
        commands
            .push(json!({"type": "prompt", "id": "prompt", "message": format!("order {order}")}));
        let mut lines = ask_all(&mut wharf, &commands);
        let found = responses(&lines);
        assert_eq!(found.len(), commands.len(), "{commands:?}");
        for command in &commands {
            let to = found.iter().filter(|line| line["id"] == command["id"]).count();
            assert_eq!(to, 1, "{command}");
        }
        for kind in ["new_session", "switch_session", "delete", "prompt"] {
            let answer = found.iter().find(|line| line["id"] == kind).unwrap();
            assert_eq!(answer["success"], true, "{answer}");
        }
        if !lines.iter().any(|line| line["type"] == "agent_end") {
            lines.extend(wharf.take_until("agent_end"));
        }
        assert!(!spare.exists());
        // The prompt is the last message of the session that is current now.
        let texts = super::texts(&mut wharf);
        assert_eq!(
            texts[texts.len() - 2..],
            [format!("order {order}"), "ok".to_owned()],
            "{commands:?}"
        );
        let file = session_file(&mut wharf);
        let stored: Vec<String> =
            super::stored_messages(&file).iter().map(super::text_of).collect();
        assert_eq!(stored.iter().filter(|text| **text == format!("order {order}")).count(), 1);
    }
    end(wharf);
    for file in session_files(&env.agent_dir()) {
        sound_lines(&file);
    }
}
