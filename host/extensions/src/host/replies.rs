//! Pieces of replies that extensions give.

use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use wasmtime::component::Accessor;
use wharf_agent::host_api::ReplyPiece as AgentPiece;

use crate::bindings::replies::{Host, HostWithStore};
use crate::bindings::types::{HostError, ReplyPiece};
use crate::limits::{
    MAX_NAME_BYTES, MAX_REPLY_BYTES, MAX_REPLY_PIECE_BYTES, REPLY_PIECE_OVERHEAD, cut,
};
use crate::state::{CallKind, Interfaces, State};

impl Host for State {}

impl HostWithStore<State> for Interfaces {
    async fn push(
        accessor: &Accessor<State, Self>,
        request_id: String,
        piece: ReplyPiece,
    ) -> Result<(), HostError> {
        let bytes = check(&piece)?;
        let (pieces, life) = accessor.with(|mut access| access.get().reply(&request_id, bytes))?;
        let sent = async {
            tokio::select! {
                biased;
                () = life.cancelled() => false,
                sent = pieces.send(to_agent(piece)) => sent.is_ok(),
            }
        };
        if sent.await { Ok(()) } else { Err(unknown(&request_id)) }
    }
}

impl State {
    /// The way to whoever reads a reply, charged with a piece of so many bytes.
    fn reply(
        &mut self,
        request_id: &str,
        piece: usize,
    ) -> Result<(mpsc::Sender<AgentPiece>, CancellationToken), HostError> {
        let found = self.calls.values_mut().find_map(|call| match &mut call.kind {
            CallKind::Reply { id, pieces, bytes } if id == request_id => {
                Some((pieces.clone(), call.life.token(), bytes))
            }
            _ => None,
        });
        let Some((pieces, life, bytes)) = found else { return Err(unknown(request_id)) };
        let total = *bytes + piece + REPLY_PIECE_OVERHEAD;
        if total > MAX_REPLY_BYTES {
            return Err(HostError::Invalid(format!(
                "the reply would have {total} bytes; the limit is {MAX_REPLY_BYTES}"
            )));
        }
        *bytes = total;
        Ok((pieces, life))
    }
}

fn unknown(request_id: &str) -> HostError {
    HostError::NotAllowed(format!("the reply {:?} is not asked for", cut(request_id, 100)))
}

/// The size of a piece, within its cap.
fn check(piece: &ReplyPiece) -> Result<usize, HostError> {
    let (bytes, cap) = match piece {
        ReplyPiece::Text(text)
        | ReplyPiece::Thinking(text)
        | ReplyPiece::ToolCallArguments(text) => (text.len(), MAX_REPLY_PIECE_BYTES),
        ReplyPiece::ToolCall(head) if head.id.is_empty() || head.name.is_empty() => {
            return Err(HostError::Invalid("piece is a tool call without id or name".to_owned()));
        }
        ReplyPiece::ToolCall(head) => (head.id.len() + head.name.len(), MAX_NAME_BYTES),
    };
    if bytes > cap {
        return Err(HostError::Invalid(format!("piece has {bytes} bytes; the limit is {cap}")));
    }
    Ok(bytes)
}

fn to_agent(piece: ReplyPiece) -> AgentPiece {
    match piece {
        ReplyPiece::Text(text) => AgentPiece::Text(text),
        ReplyPiece::Thinking(text) => AgentPiece::Thinking(text),
        ReplyPiece::ToolCall(head) => AgentPiece::ToolCall { id: head.id, name: head.name },
        ReplyPiece::ToolCallArguments(text) => AgentPiece::ToolCallArguments(text),
    }
}
