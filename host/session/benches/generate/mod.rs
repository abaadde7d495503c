//! Session files as a long-lived agent leaves them. The same arguments always give
//! the same file.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use serde_json::{Value, json};

/// A year of one-second steps from here on, over and over.
const START: i64 = 1_733_234_400;

const PROSE: &str = "The handler reads the token from the header, then it asks the store for the \
session that belongs to it.\nIf there is none, `load` answers with \"not found\" and the middleware \
turns that into a 401; \u{201c}expired\u{201d} ones get a 403. ";

struct Lines {
    out: BufWriter<File>,
    count: usize,
    parent: Value,
}

impl Lines {
    fn create(path: &Path) -> io::Result<Self> {
        let mut out = BufWriter::new(File::create(path)?);
        writeln!(
            out,
            r#"{{"type":"session","version":3,"id":"5f1c6e0a-6b0d-4c52-9d7e-0b9f4a3c2d11","timestamp":"2024-12-03T14:00:00.000Z","cwd":"/home/me/project"}}"#
        )?;
        Ok(Self { out, count: 0, parent: Value::Null })
    }

    /// Scattered, as random ids are.
    fn id(ordinal: usize) -> String {
        #[expect(clippy::cast_possible_truncation, reason = "a hash; ids have 32 bits")]
        let id = (ordinal as u32).wrapping_mul(2_654_435_761);
        format!("{id:08x}")
    }

    fn timestamp(&self) -> String {
        let seconds = START + i64::try_from(self.count % 31_000_000).unwrap_or(0);
        let time = jiff::Timestamp::from_second(seconds).unwrap_or_default();
        format!("{time:.3}")
    }

    fn add(&mut self, kind: &str, body: &Value) -> io::Result<()> {
        let id = Self::id(self.count);
        let (base, parent) = (json!(id), &self.parent);
        write!(
            self.out,
            r#"{{"type":"{kind}","id":{base},"parentId":{parent},"timestamp":"{}""#,
            self.timestamp()
        )?;
        for (name, value) in body.as_object().into_iter().flatten() {
            write!(self.out, r#","{name}":{value}"#)?;
        }
        self.out.write_all(b"}\n")?;
        self.parent = json!(id);
        self.count += 1;
        Ok(())
    }

    fn message(&mut self, message: &Value) -> io::Result<()> {
        self.add("message", &json!({ "message": message }))
    }
}

/// `entries` entries of about 600 bytes: turns of a question, calls and results, with
/// now and then another model, a label, an extension's state and a new branch.
pub(crate) fn mixed(path: &Path, entries: usize) -> io::Result<()> {
    let mut lines = Lines::create(path)?;
    lines.add("model_change", &json!({"provider": "anthropic", "modelId": "claude-sonnet-4-5"}))?;
    lines.add("thinking_level_change", &json!({"thinkingLevel": "medium"}))?;
    while lines.count < entries {
        turn(&mut lines)?;
    }
    lines.out.flush()
}

fn turn(lines: &mut Lines) -> io::Result<()> {
    let n = lines.count;
    let time = 1_733_234_400_000_u64 + n as u64;
    lines.message(&json!({
        "role": "user",
        "content": [{"type": "text", "text": format!("Question {n}: {PROSE}")}],
        "timestamp": time,
    }))?;
    for call in 0..4 {
        let call_id = format!("toolu_{n:012}_{call}");
        lines.message(&json!({
            "role": "assistant",
            "content": [
                {"type": "text", "text": format!("Step {call}. {}", &PROSE[..104])},
                {"type": "toolCall", "id": call_id, "name": "read", "arguments": {"path": format!("src/handlers/session_{n}.rs"), "offset": call * 40, "limit": 40}},
            ],
            "api": "anthropic-messages",
            "provider": "anthropic",
            "model": "claude-sonnet-4-5",
            "usage": usage(n),
            "stopReason": "toolUse",
            "timestamp": time,
        }))?;
        lines.message(&json!({
            "role": "toolResult",
            "toolCallId": call_id,
            "toolName": "read",
            "content": [{"type": "text", "text": format!("{n}: {PROSE}{PROSE}")}],
            "isError": false,
            "timestamp": time,
        }))?;
    }
    lines.message(&json!({
        "role": "assistant",
        "content": [{"type": "text", "text": format!("Done. {PROSE}")}],
        "api": "anthropic-messages",
        "provider": "anthropic",
        "model": "claude-sonnet-4-5",
        "usage": usage(n),
        "stopReason": "stop",
        "timestamp": time,
    }))?;
    let last = lines.parent.clone();
    match n % 11 {
        0 => lines.add("model_change", &json!({"provider": "openai", "modelId": "gpt-4o"})),
        3 => lines.add("label", &json!({"targetId": last, "label": format!("step {n}")})),
        5 => lines.add("custom", &json!({"customType": "todo", "data": {"open": [n, n + 1]}})),
        // The next turn leaves this one's last replies on a branch of their own.
        7 => {
            lines.parent = json!(Lines::id(n + 4));
            Ok(())
        }
        _ => Ok(()),
    }
}

fn usage(n: usize) -> Value {
    json!({
        "input": n % 9000, "output": 212, "cacheRead": 48_211, "cacheWrite": 991,
        "totalTokens": n % 9000 + 49_414,
        "cost": {"input": 0.0123, "output": 0.00318, "cacheRead": 0.014_463_3, "cacheWrite": 0.003_716, "total": 0.033_659_3},
    })
}

/// `entries` short messages, each the child of the one before.
pub(crate) fn chain(path: &Path, entries: usize) -> io::Result<()> {
    let mut lines = Lines::create(path)?;
    while lines.count < entries {
        let n = lines.count;
        lines
            .message(&json!({"role": "user", "content": format!("message {n}"), "timestamp": n}))?;
    }
    lines.out.flush()
}
