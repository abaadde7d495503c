//! What a model says, whatever API it is asked through.

use serde_json::Value;

/// Tokens of a reply; the four kinds of input and output do not overlap, but
/// `reasoning` is a part of `output`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Usage {
    pub input: u64,
    pub output: u64,
    pub cache_read: u64,
    /// Only Anthropic counts it; elsewhere it is input.
    pub cache_write: u64,
    pub reasoning: u64,
}

impl Default for Usage {
    fn default() -> Self {
        Self { input: 10, output: 5, cache_read: 0, cache_write: 0, reasoning: 0 }
    }
}

/// Why a reply ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    /// Nothing more to say.
    End,
    /// Tools are to be called.
    ToolUse,
    /// The token limit.
    Length,
    /// The model, or a filter before it, declines.
    Refusal,
}

#[derive(Debug, Clone)]
pub(super) enum Block {
    Text,
    Thinking { signature: String },
    Redacted { data: String },
    Call { id: String, name: String },
}

/// A reply. Each block goes out in one delta unless [`Answer::in_pieces`] says more.
#[derive(Debug, Clone, Default)]
pub struct Answer {
    /// Each with its deltas: of text, of thinking, or of a call's JSON text.
    pub(super) blocks: Vec<(Block, Vec<String>)>,
    pub(super) usage: Usage,
    stop: Option<Stop>,
}

impl Answer {
    /// One text.
    pub fn says(text: &str) -> Self {
        Self::default().text(text)
    }

    /// One tool call.
    pub fn calls(id: &str, tool: &str, arguments: &Value) -> Self {
        Self::default().call(id, tool, arguments)
    }

    fn block(mut self, block: Block, text: &str) -> Self {
        let pieces = if text.is_empty() { Vec::new() } else { vec![text.to_owned()] };
        self.blocks.push((block, pieces));
        self
    }

    pub fn text(self, text: &str) -> Self {
        self.block(Block::Text, text)
    }

    /// Thinking that is signed, where the API signs: Anthropic's signature, OpenAI's
    /// `encrypted_content`, Google's `thoughtSignature` on the part that follows.
    pub fn thinking(self, text: &str, signature: &str) -> Self {
        self.block(Block::Thinking { signature: signature.to_owned() }, text)
    }

    /// Anthropic's encrypted thinking; other APIs leave it out.
    pub fn redacted(self, data: &str) -> Self {
        self.block(Block::Redacted { data: data.to_owned() }, "")
    }

    /// A tool call; several make parallel calls.
    pub fn call(self, id: &str, tool: &str, arguments: &Value) -> Self {
        self.raw_call(id, tool, &arguments.to_string())
    }

    /// A tool call whose arguments may be no JSON. (Google has no such thing: there the
    /// arguments are null.)
    pub fn raw_call(self, id: &str, tool: &str, arguments: &str) -> Self {
        self.block(Block::Call { id: id.to_owned(), name: tool.to_owned() }, arguments)
    }

    /// Splits the last block into this many deltas of about one length.
    pub fn in_pieces(mut self, count: usize) -> Self {
        if let Some((_, pieces)) = self.blocks.last_mut() {
            let chars: Vec<char> = pieces.concat().chars().collect();
            let size = chars.len().div_ceil(count.max(1)).max(1);
            *pieces = chars.chunks(size).map(|piece| piece.iter().collect()).collect();
        }
        self
    }

    pub fn usage(mut self, usage: Usage) -> Self {
        self.usage = usage;
        self
    }

    /// Without this: [`Stop::ToolUse`] if there are calls, else [`Stop::End`].
    pub fn stop(mut self, stop: Stop) -> Self {
        self.stop = Some(stop);
        self
    }

    pub(super) fn stops_for(&self) -> Stop {
        self.stop.unwrap_or_else(|| {
            let has_call = self.blocks.iter().any(|(block, _)| matches!(block, Block::Call { .. }));
            if has_call { Stop::ToolUse } else { Stop::End }
        })
    }
}
