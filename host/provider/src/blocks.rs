//! The content blocks of a reply that streams in: numbers them, and turns what an API
//! reports of them into the steps that the rest of Wharf knows.

use serde_json::{Map, Value};
use wharf_protocol::{StopReason, StreamDelta, ToolCall};

use crate::ProviderEvent;

#[derive(Debug)]
enum Open {
    Text { signature: Option<String> },
    Thinking { signature: Option<String>, redacted: bool },
    Call { id: String, name: String, arguments: String, thought_signature: Option<String> },
}

/// Writes the blocks of one reply. A block is known by the index that starting it gave.
#[derive(Debug, Default)]
pub struct BlockWriter {
    /// How many blocks have been started.
    count: usize,
    /// Blocks that have not ended, oldest first.
    open: Vec<(usize, Open)>,
    has_call: bool,
}

impl BlockWriter {
    pub fn start_text(&mut self, out: &mut Vec<ProviderEvent>) -> usize {
        let index = self.start(Open::Text { signature: None });
        push(out, StreamDelta::TextStart { index });
        index
    }

    pub fn start_thinking(&mut self, out: &mut Vec<ProviderEvent>) -> usize {
        let index = self.start(Open::Thinking { signature: None, redacted: false });
        push(out, StreamDelta::ThinkingStart { index });
        index
    }

    pub fn start_call(&mut self, id: String, name: String, out: &mut Vec<ProviderEvent>) -> usize {
        self.has_call = true;
        let index = self.start(Open::Call {
            id: id.clone(),
            name: name.clone(),
            arguments: String::new(),
            thought_signature: None,
        });
        push(out, StreamDelta::ToolCallStart { index, id, name });
        index
    }

    fn start(&mut self, block: Open) -> usize {
        let index = self.count;
        self.count += 1;
        self.open.push((index, block));
        index
    }

    fn open(&mut self, index: usize) -> Option<&mut Open> {
        self.open.iter_mut().find(|(at, _)| *at == index).map(|(_, block)| block)
    }

    /// More text, thinking, or JSON text of a call's arguments. Nothing for a block that
    /// is not open.
    pub fn push(&mut self, index: usize, text: &str, out: &mut Vec<ProviderEvent>) {
        if text.is_empty() {
            return;
        }
        let delta = text.to_owned();
        match self.open(index) {
            None => {}
            Some(Open::Text { .. }) => push(out, StreamDelta::Text { index, delta }),
            Some(Open::Thinking { .. }) => push(out, StreamDelta::Thinking { index, delta }),
            Some(Open::Call { arguments, .. }) => {
                arguments.push_str(text);
                push(out, StreamDelta::ToolCall { index, delta });
            }
        }
    }

    /// Replaces the JSON text of a call's arguments by what the API says is the whole of
    /// it; only the part that is new is put out.
    pub(crate) fn set_arguments(
        &mut self,
        index: usize,
        whole: &str,
        out: &mut Vec<ProviderEvent>,
    ) {
        let Some(Open::Call { arguments, .. }) = self.open(index) else { return };
        let rest = whole.strip_prefix(arguments.as_str()).map(str::to_owned);
        whole.clone_into(arguments);
        if let Some(delta) = rest.filter(|rest| !rest.is_empty()) {
            push(out, StreamDelta::ToolCall { index, delta });
        }
    }

    /// Adds to a block's signature: signatures may come in pieces. An empty one is none.
    pub(crate) fn sign(&mut self, index: usize, piece: &str) {
        if piece.is_empty() {
            return;
        }
        match self.open(index) {
            Some(
                Open::Text { signature }
                | Open::Thinking { signature, .. }
                | Open::Call { thought_signature: signature, .. },
            ) => signature.get_or_insert_default().push_str(piece),
            None => {}
        }
    }

    /// The provider encrypted this thinking; only its signature counts.
    pub(crate) fn redact(&mut self, index: usize) {
        if let Some(Open::Thinking { redacted, .. }) = self.open(index) {
            *redacted = true;
        }
    }

    /// Ends a block whose last piece has come.
    pub fn end(&mut self, index: usize, out: &mut Vec<ProviderEvent>) {
        if let Some(at) = self.open.iter().position(|(open, _)| *open == index) {
            let (index, block) = self.open.remove(at);
            close(index, block, false, out);
        }
    }

    /// Ends all blocks that are open. `stop`: why the reply stopped. One that hit the
    /// token limit may have been cut inside the arguments of a call: such a call is
    /// marked, also where they happen to read as none at all.
    pub fn end_all(&mut self, stop: StopReason, out: &mut Vec<ProviderEvent>) {
        let cut = stop == StopReason::Length;
        for (index, block) in self.open.drain(..) {
            close(index, block, cut, out);
        }
    }

    /// True once a call was started.
    pub fn has_call(&self) -> bool {
        self.has_call
    }
}

fn close(index: usize, block: Open, cut: bool, out: &mut Vec<ProviderEvent>) {
    push(
        out,
        match block {
            Open::Text { signature } => StreamDelta::TextEnd { index, signature },
            Open::Thinking { signature, redacted } => {
                StreamDelta::ThinkingEnd { index, signature, redacted }
            }
            Open::Call { id, name, arguments, thought_signature } => {
                let (arguments, problem) = if cut {
                    (Map::new(), Some("the reply was cut off at the token limit".to_owned()))
                } else {
                    parse_arguments(&arguments)
                };
                let call = ToolCall { id, name, arguments, thought_signature };
                StreamDelta::ToolCallEnd { index, call, problem }
            }
        },
    );
}

fn push(out: &mut Vec<ProviderEvent>, delta: StreamDelta) {
    out.push(ProviderEvent::Delta(delta));
}

/// Reads the JSON text of a call's arguments, strictly; the second part says what is
/// wrong with it. No text at all is how APIs send a call without arguments.
pub(crate) fn parse_arguments(text: &str) -> (Map<String, Value>, Option<String>) {
    if text.trim().is_empty() {
        return (Map::new(), None);
    }
    match serde_json::from_str::<Value>(text) {
        Ok(Value::Object(arguments)) => (arguments, None),
        Ok(_) => (Map::new(), Some("the arguments are not a JSON object".to_owned())),
        Err(error) => (Map::new(), Some(format!("the arguments are not valid JSON: {error}"))),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn steps(out: Vec<ProviderEvent>) -> Vec<StreamDelta> {
        out.into_iter()
            .map(|event| match event {
                ProviderEvent::Delta(delta) => delta,
                ProviderEvent::Done { .. } => panic!("a writer of blocks ends no reply"),
            })
            .collect()
    }

    fn start_call(writer: &mut BlockWriter, out: &mut Vec<ProviderEvent>) -> usize {
        writer.start_call("c".to_owned(), "read".to_owned(), out)
    }

    #[test]
    fn blocks_are_numbered_and_may_interleave() {
        let mut writer = BlockWriter::default();
        let mut out = Vec::new();
        let thinking = writer.start_thinking(&mut out);
        let text = writer.start_text(&mut out);
        writer.push(text, "a", &mut out);
        writer.push(thinking, "hm", &mut out);
        writer.push(text, "", &mut out);
        for piece in ["si", "", "g"] {
            writer.sign(thinking, piece);
        }
        writer.sign(text, "");
        writer.end(thinking, &mut out);
        assert!(!writer.has_call());
        let call = start_call(&mut writer, &mut out);
        assert!(writer.has_call());
        writer.push(call, "{\"path\":", &mut out);
        writer.push(call, "\"x\"}", &mut out);
        writer.sign(call, "t");
        writer.end_all(StopReason::ToolUse, &mut out);
        // Nothing for a block that has ended, or that never was.
        let length = out.len();
        for index in [thinking, text, call, 7] {
            writer.push(index, "x", &mut out);
            writer.sign(index, "x");
            writer.redact(index);
            writer.set_arguments(index, "{}", &mut out);
            writer.end(index, &mut out);
        }
        writer.end_all(StopReason::Length, &mut out);
        assert_eq!(out.len(), length);

        let (id, name) = ("c".to_owned(), "read".to_owned());
        let delta = |text: &str| text.to_owned();
        let arguments = json!({"path": "x"}).as_object().cloned().unwrap_or_default();
        let thought_signature = Some("t".to_owned());
        assert_eq!(
            steps(out),
            [
                StreamDelta::ThinkingStart { index: 0 },
                StreamDelta::TextStart { index: 1 },
                StreamDelta::Text { index: 1, delta: delta("a") },
                StreamDelta::Thinking { index: 0, delta: delta("hm") },
                StreamDelta::ThinkingEnd {
                    index: 0,
                    signature: Some("sig".to_owned()),
                    redacted: false,
                },
                StreamDelta::ToolCallStart { index: 2, id: id.clone(), name: name.clone() },
                StreamDelta::ToolCall { index: 2, delta: delta("{\"path\":") },
                StreamDelta::ToolCall { index: 2, delta: delta("\"x\"}") },
                StreamDelta::TextEnd { index: 1, signature: None },
                StreamDelta::ToolCallEnd {
                    index: 2,
                    call: ToolCall { id, name, arguments, thought_signature },
                    problem: None,
                },
            ]
        );
    }

    #[test]
    fn redacted_thinking_is_marked() {
        let mut writer = BlockWriter::default();
        let mut out = Vec::new();
        let index = writer.start_thinking(&mut out);
        writer.redact(index);
        writer.sign(index, "data");
        writer.end(index, &mut out);
        let signature = Some("data".to_owned());
        assert_eq!(
            steps(out).pop(),
            Some(StreamDelta::ThinkingEnd { index, signature, redacted: true })
        );
    }

    #[test]
    fn the_whole_of_the_arguments_counts() {
        for (pieces, whole, deltas, expect) in [
            (&["{\"a\"", ":1"][..], "{\"a\":1}", "{\"a\":1}", json!({"a": 1})),
            (&[], "{\"a\":1}", "{\"a\":1}", json!({"a": 1})),
            (&["{\"a\":1}"], "{\"a\":1}", "{\"a\":1}", json!({"a": 1})),
            // What has gone out stays out; the call itself is right.
            (&["{\"b\""], "{\"a\":1}", "{\"b\"", json!({"a": 1})),
        ] {
            let mut writer = BlockWriter::default();
            let mut out = Vec::new();
            let index = start_call(&mut writer, &mut out);
            for piece in pieces {
                writer.push(index, piece, &mut out);
            }
            writer.set_arguments(index, whole, &mut out);
            writer.end(index, &mut out);
            let mut seen = String::new();
            let mut end = None;
            for step in steps(out) {
                match step {
                    StreamDelta::ToolCall { delta, .. } => seen.push_str(&delta),
                    StreamDelta::ToolCallEnd { call, problem, .. } => end = Some((call, problem)),
                    _ => {}
                }
            }
            assert_eq!(seen, deltas);
            let end = end.map(|(call, problem)| (Value::Object(call.arguments), problem));
            assert_eq!(end, Some((expect, None)));
        }
    }

    #[test]
    fn a_call_that_the_token_limit_cut_must_not_run() {
        for text in ["", "{}", "{\"path\":\"x\"}", "{\"pa"] {
            let mut writer = BlockWriter::default();
            let mut out = Vec::new();
            let ended = start_call(&mut writer, &mut out);
            writer.end(ended, &mut out);
            let open = start_call(&mut writer, &mut out);
            writer.push(open, text, &mut out);
            writer.end_all(StopReason::Length, &mut out);
            let ends: Vec<_> = steps(out)
                .into_iter()
                .filter_map(|step| match step {
                    StreamDelta::ToolCallEnd { call, problem, .. } => {
                        Some((call.arguments.is_empty(), problem.is_some()))
                    }
                    _ => None,
                })
                .collect();
            assert_eq!(ends, [(true, false), (true, true)], "{text}");
        }
    }

    #[test]
    fn arguments_are_read_strictly() {
        let check = |text: &str, expect: Value, problem: &str| {
            let (arguments, found) = parse_arguments(text);
            assert_eq!(Value::Object(arguments), expect, "{text}");
            let found = found.unwrap_or_default();
            assert!(
                found.starts_with(problem) && found.is_empty() == problem.is_empty(),
                "{text}: {found}"
            );
        };
        check("", json!({}), "");
        check(" \n", json!({}), "");
        check("{}", json!({}), "");
        check(" {\"a\":[1]} ", json!({"a": [1]}), "");
        check("null", json!({}), "the arguments are not a JSON object");
        check("[1]", json!({}), "the arguments are not a JSON object");
        check("\"{}\"", json!({}), "the arguments are not a JSON object");
        check("{\"a\":", json!({}), "the arguments are not valid JSON: ");
        check("{} {}", json!({}), "the arguments are not valid JSON: ");
        let deep = "[".repeat(100_000);
        check(&deep, json!({}), "the arguments are not valid JSON: ");
    }
}
