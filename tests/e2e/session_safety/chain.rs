//! A long chain: its tree is deeper than any parser of JSON likes, so answers are looked
//! at as bytes.

use std::fmt::Write as _;
use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Stdio};

use serde_json::json;
use wharf_tests::Env;

use super::any_reply;

/// A running binary whose answers are not parsed.
pub(super) struct Bytes {
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
}

pub(super) struct Answer(Vec<u8>);

impl Bytes {
    pub(super) fn start(env: &Env, file: &Path) -> Self {
        let model = any_reply(env);
        let mut command = env.command();
        command.args(["--mode", "rpc", "--model", &model, "--session"]).arg(file);
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let stdin = child.stdin.take().unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        Self { child, stdin, stdout }
    }

    pub(super) fn send(&mut self, command: &serde_json::Value) {
        writeln!(self.stdin, "{command}").unwrap();
    }

    /// The first line that holds `part`.
    pub(super) fn line_with(&mut self, part: &str) -> Answer {
        loop {
            let mut line = Vec::new();
            assert!(self.stdout.read_until(b'\n', &mut line).unwrap() > 0, "no line with {part}");
            let answer = Answer(line);
            if answer.count(part.as_bytes()) > 0 {
                return answer;
            }
        }
    }

    pub(super) fn answer(&mut self, command: &str) -> Answer {
        self.send(&json!({"type": command, "id": "asked"}));
        let answer = self.line_with("\"id\":\"asked\"");
        assert_eq!(answer.count(b"\"success\":true"), 1, "{command}");
        answer
    }

    pub(super) fn end(mut self) {
        drop(self.stdin);
        let mut line = Vec::new();
        while self.stdout.read_until(b'\n', &mut line).unwrap() > 0 {
            line.clear();
        }
        assert_eq!(self.child.wait().unwrap().code(), Some(0));
    }
}

impl Answer {
    pub(super) fn count(&self, part: &[u8]) -> usize {
        self.0.windows(part.len()).filter(|found| *found == part).count()
    }

    /// How deep brackets and braces are nested; they are balanced.
    pub(super) fn depth(&self) -> usize {
        let (mut depth, mut deepest) = (0_usize, 0);
        let (mut in_text, mut escaped) = (false, false);
        for byte in &self.0 {
            match byte {
                _ if escaped => escaped = false,
                b'\\' if in_text => escaped = true,
                b'"' => in_text = !in_text,
                b'{' | b'[' if !in_text => depth += 1,
                b'}' | b']' if !in_text => depth = depth.checked_sub(1).unwrap(),
                _ => {}
            }
            deepest = deepest.max(depth);
        }
        assert_eq!(depth, 0, "it is cut off");
        deepest
    }
}

const ENTRIES: usize = 50_000;

#[test]
fn a_chain_of_fifty_thousand_entries_is_served() {
    let env = Env::new();
    let mut text =
        json!({"type": "session", "version": 3, "id": "0f8fad5b-d9cb-469f-a165-70867728950e",
        "timestamp": "2024-12-03T14:00:00.000Z", "cwd": env.project()})
        .to_string();
    text.push('\n');
    let mut parent = "null".to_owned();
    for at in 0..ENTRIES {
        let id = format!("\"{at:08x}\"");
        writeln!(
            text,
            "{{\"type\":\"message\",\"id\":{id},\"parentId\":{parent},\
            \"timestamp\":\"2024-12-03T14:00:01.000Z\",\"message\":{{\"role\":\"user\",\
            \"content\":\"message {at}\",\"timestamp\":1}}}}"
        )
        .unwrap();
        parent = id;
    }
    let file = env.write("chain/long.jsonl", &text);
    let mut wharf = Bytes::start(&env, &file);
    // All at once: none may hold up or garble another.
    for command in
        ["get_tree", "get_state", "get_messages", "get_fork_messages", "get_session_stats"]
    {
        wharf.send(&json!({"type": command, "id": command}));
    }
    let mut seen = std::collections::BTreeMap::new();
    for _ in 0..5 {
        let line = wharf.line_with("\"type\":\"response\"");
        let start = String::from_utf8_lossy(&line.0[..200.min(line.0.len())]).into_owned();
        assert!(start.contains("\"success\":true"), "{start}");
        let name =
            ["get_tree", "get_state", "get_messages", "get_fork_messages", "get_session_stats"]
                .into_iter()
                .find(|name| start.contains(&format!("\"id\":\"{name}\"")));
        seen.insert(name.unwrap(), line);
    }
    assert_eq!(seen["get_tree"].count(b"\"children\":["), ENTRIES);
    assert!(seen["get_tree"].depth() >= 2 * ENTRIES);
    assert_eq!(seen["get_messages"].count(b"\"role\":\"user\""), ENTRIES);
    assert_eq!(seen["get_fork_messages"].count(b"\"entryId\":"), ENTRIES);
    assert_eq!(seen["get_state"].count(format!("\"messageCount\":{ENTRIES}").as_bytes()), 1);
    assert_eq!(fs::read_to_string(&file).unwrap(), text);

    // From the end to the beginning and back; a label; a fork of nearly all of it.
    let ids = [0, ENTRIES / 2, ENTRIES - 1].map(|at| format!("{at:08x}"));
    for (number, id) in ids.iter().chain(ids.iter().rev()).enumerate() {
        let name = format!("moved {number}");
        wharf.send(&json!({"type": "navigate_tree", "targetId": id, "id": name}));
        let answer = wharf.line_with(&format!("\"id\":\"{name}\""));
        assert_eq!(answer.count(b"\"cancelled\":false"), 1);
    }
    wharf.send(&json!({"type": "set_label", "entryId": ids[2], "label": "end", "id": "labelled"}));
    assert_eq!(wharf.line_with("\"id\":\"labelled\"").count(b"\"success\":true"), 1);
    wharf.send(&json!({"type": "fork", "entryId": ids[2], "id": "forked"}));
    assert_eq!(wharf.line_with("\"id\":\"forked\"").count(b"\"cancelled\":false"), 1);
    assert_eq!(wharf.answer("get_messages").count(b"\"role\":\"user\""), ENTRIES - 1);
    wharf.end();
    let after = fs::read_to_string(&file).unwrap();
    assert!(after.starts_with(&text) && after.lines().count() == ENTRIES + 2);
}
