//! Models that an extension answers for: the pieces that it gives become the same steps
//! of a reply that every other provider gives.

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;
use std::vec;

use futures::StreamExt as _;
use futures::future::BoxFuture;
use futures::stream::{self, BoxStream};
use tokio::sync::mpsc;
use wharf_protocol::{Model, StopReason};
use wharf_provider::{
    BlockWriter, ErrorKind, OfferedProvider, Provider, ProviderError, ProviderEvent, Request,
};

use crate::agent::Agent;
use crate::host_api::{
    HostApiError, ProviderOffer, ReplyEnd, ReplyFailure, ReplyPiece, ReplyRequest, ReplySource,
    ReplyStop,
};
use crate::tool::ToolSpec;

/// Pieces that wait for the reader; then the extension waits.
const WAITING_PIECES: usize = 16;

/// Bytes of one reply, and what each block counts beside its text: the whole of it is
/// held in memory. Far more than a reply of any model has.
const MAX_REPLY_BYTES: usize = 64 * 1024 * 1024;
const BLOCK_BYTES: usize = 512;

/// Bytes of an error's text.
const MAX_ERROR_BYTES: usize = 4096;

impl Agent {
    pub(crate) fn register_provider(&self, offer: ProviderOffer) -> Result<(), HostApiError> {
        let ProviderOffer { owner, name, config, source } = offer;
        let provider = |source| Arc::new(ExtensionProvider { source }) as Arc<dyn Provider>;
        let source = source.map(provider);
        let offer = OfferedProvider { owner, name: name.clone(), config, source };
        let added = self.registry().add_provider(offer);
        added.map_err(|error| HostApiError::Invalid(error.to_string()))?;
        // What is said anew of the current model counts at once.
        let current = self.state().model.clone().filter(|model| model.provider == name);
        let found = current.and_then(|Model { id, .. }| self.registry().find(&name, &id).cloned());
        if let Some(found) = found
            && let Some(model) = &mut self.state().model
            && model.reference() == found.reference()
        {
            *model = found;
        }
        Ok(())
    }
}

/// One that an extension answers for.
#[derive(Debug)]
struct ExtensionProvider {
    source: Arc<dyn ReplySource>,
}

impl Provider for ExtensionProvider {
    fn stream(&self, request: Request) -> BoxStream<'static, Result<ProviderEvent, ProviderError>> {
        let (sender, pieces) = mpsc::channel(WAITING_PIECES);
        let max_tokens = request.output_budget();
        let tool = |tool: &wharf_provider::ToolDefinition| ToolSpec {
            name: tool.name.clone(),
            label: tool.name.clone(),
            description: tool.description.clone(),
            parameters: tool.parameters.clone(),
            prompt_snippet: None,
            prompt_guidelines: Vec::new(),
            sequential: false,
        };
        let request = ReplyRequest {
            system_prompt: request.system_prompt,
            messages: request.messages,
            tools: request.tools.iter().map(tool).collect(),
            thinking_level: request.thinking_level,
            max_tokens,
            model: request.model,
        };
        let reply = Reply {
            answering: Some(self.source.reply(request, sender)),
            pieces,
            all_sent: false,
            blocks: Blocks::default(),
            ready: Vec::new().into_iter(),
            failure: None,
        };
        stream::unfold(reply, |mut reply| async { Some((reply.next().await?, reply)) }).boxed()
    }
}

/// A reply under way. Dropping it drops the future that gives it.
struct Reply {
    /// None once it has ended, or nothing more of it counts.
    answering: Option<BoxFuture<'static, Result<ReplyEnd, ReplyFailure>>>,
    pieces: mpsc::Receiver<ReplyPiece>,
    all_sent: bool,
    blocks: Blocks,
    ready: vec::IntoIter<ProviderEvent>,
    /// Follows what is ready.
    failure: Option<ProviderError>,
}

impl Reply {
    async fn next(&mut self) -> Option<Result<ProviderEvent, ProviderError>> {
        loop {
            if let Some(event) = self.ready.next() {
                return Some(Ok(event));
            }
            if let Some(failure) = self.failure.take() {
                return Some(Err(failure));
            }
            let mut out = Vec::new();
            let answering = self.answering.as_mut()?;
            let taken = tokio::select! {
                biased;
                piece = self.pieces.recv(), if !self.all_sent => match piece {
                    Some(piece) => self.blocks.take(piece, &mut out),
                    None => {
                        self.all_sent = true;
                        Ok(())
                    }
                },
                ended = answering => {
                    self.answering = None;
                    self.end(ended, &mut out)
                }
            };
            if let Err(error) = taken {
                self.answering = None;
                self.failure = Some(error);
            }
            self.ready = out.into_iter();
        }
    }

    fn end(
        &mut self,
        ended: Result<ReplyEnd, ReplyFailure>,
        out: &mut Vec<ProviderEvent>,
    ) -> Result<(), ProviderError> {
        // What was sent before the end still counts; what comes later does not.
        self.pieces.close();
        while let Ok(piece) = self.pieces.try_recv() {
            self.blocks.take(piece, out)?;
        }
        match ended {
            Ok(end) => {
                self.blocks.end(&end, out);
                Ok(())
            }
            Err(failure) => Err(error_of(&failure, self.blocks.has_begun())),
        }
    }
}

impl fmt::Debug for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reply").field("blocks", &self.blocks).finish_non_exhaustive()
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Text,
    Thinking,
    Call,
}

/// Makes blocks of pieces.
#[derive(Debug, Default)]
struct Blocks {
    writer: BlockWriter,
    /// The block that the next piece may belong to, and its number.
    open: Option<(Kind, usize)>,
    call_ids: HashSet<String>,
    bytes: usize,
}

impl Blocks {
    fn has_begun(&self) -> bool {
        self.bytes > 0
    }

    fn take(
        &mut self,
        piece: ReplyPiece,
        out: &mut Vec<ProviderEvent>,
    ) -> Result<(), ProviderError> {
        match piece {
            ReplyPiece::Text(text) => self.more(Kind::Text, &text, out),
            ReplyPiece::Thinking(text) => self.more(Kind::Thinking, &text, out),
            ReplyPiece::ToolCallArguments(text) => {
                if !matches!(self.open, Some((Kind::Call, _))) {
                    return Err(wrong("arguments that follow no tool call"));
                }
                self.more(Kind::Call, &text, out)
            }
            ReplyPiece::ToolCall { id, name } => {
                if id.trim().is_empty() || name.trim().is_empty() {
                    return Err(wrong("a tool call without an id or a name"));
                }
                if !self.call_ids.insert(id.clone()) {
                    return Err(wrong(&format!("two tool calls with the id {id:?}")));
                }
                self.charge(BLOCK_BYTES + id.len() + name.len())?;
                self.close(out);
                self.open = Some((Kind::Call, self.writer.start_call(id, name, out)));
                Ok(())
            }
        }
    }

    fn more(
        &mut self,
        kind: Kind,
        text: &str,
        out: &mut Vec<ProviderEvent>,
    ) -> Result<(), ProviderError> {
        if text.is_empty() {
            return Ok(());
        }
        self.charge(text.len())?;
        let index = match self.open {
            Some((open, index)) if open == kind => index,
            _ => {
                self.charge(BLOCK_BYTES)?;
                self.close(out);
                let index = match kind {
                    Kind::Thinking => self.writer.start_thinking(out),
                    // Arguments always have their call.
                    Kind::Text | Kind::Call => self.writer.start_text(out),
                };
                self.open = Some((kind, index));
                index
            }
        };
        self.writer.push(index, text, out);
        Ok(())
    }

    fn charge(&mut self, bytes: usize) -> Result<(), ProviderError> {
        self.bytes = self.bytes.saturating_add(bytes);
        if self.bytes > MAX_REPLY_BYTES {
            return Err(wrong(&format!("more than {MAX_REPLY_BYTES} bytes")));
        }
        Ok(())
    }

    /// Ends the block that is open.
    fn close(&mut self, out: &mut Vec<ProviderEvent>) {
        if let Some((_, index)) = self.open.take() {
            self.writer.end(index, out);
        }
    }

    fn end(&mut self, end: &ReplyEnd, out: &mut Vec<ProviderEvent>) {
        let stop_reason = match end.stop {
            ReplyStop::Length => StopReason::Length,
            ReplyStop::Stop | ReplyStop::ToolUse if self.writer.has_call() => StopReason::ToolUse,
            ReplyStop::Stop | ReplyStop::ToolUse => StopReason::Stop,
        };
        self.writer.end_all(stop_reason, out);
        out.push(ProviderEvent::Done { stop_reason, usage: end.usage });
    }
}

/// The extension has given what is no reply.
fn wrong(what: &str) -> ProviderError {
    let text = format!("the extension that answers for the model gave {what}");
    ProviderError::new(ErrorKind::Protocol, text)
}

/// A status says what a failure is, as a server's does; then the text; then whether it
/// may work the next time.
fn error_of(failure: &ReplyFailure, has_begun: bool) -> ProviderError {
    let mut end = failure.message.len().min(MAX_ERROR_BYTES);
    while !failure.message.is_char_boundary(end) {
        end -= 1;
    }
    let message = match failure.message[..end].trim() {
        "" => "the extension that answers for the model gave no reason",
        message => message,
    };
    if let Some(status) = failure.status.filter(|status| (300..600).contains(status)) {
        return ProviderError::status(status, message);
    }
    let error = ProviderError::in_stream("", message, message);
    match error.kind {
        // The text says nothing.
        ErrorKind::Server if !failure.transient => {
            ProviderError::new(ErrorKind::InvalidRequest, message)
        }
        // Torn, as a server's reply may be.
        ErrorKind::Server if has_begun => ProviderError::new(ErrorKind::Dropped, message),
        ErrorKind::Server => ProviderError::new(ErrorKind::Connection, message),
        _ => error,
    }
}

#[cfg(test)]
mod tests;
