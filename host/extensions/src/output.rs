//! A guest's stdout and stderr: whole lines to the log, the end of stderr kept
//! for the text of an error.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use tokio::io::AsyncWrite;
use wasmtime_wasi::cli::{IsTerminal, StdoutStream};
use wasmtime_wasi::p2::{OutputStream, Pollable, StreamResult};

use crate::limits::{MAX_LOG_LINE_BYTES, STDERR_TAIL_BYTES};
use crate::log_file::{Level, LogFile};

/// One of the two streams of one instance.
#[derive(Debug, Clone)]
pub(crate) struct GuestOutput(Arc<Mutex<Lines>>);

#[derive(Debug)]
struct Lines {
    log: Arc<LogFile>,
    extension: Arc<str>,
    level: Level,
    /// A line whose end has not come yet.
    partial: Vec<u8>,
    tail: Vec<u8>,
}

impl GuestOutput {
    pub(crate) fn new(log: Arc<LogFile>, extension: Arc<str>, level: Level) -> Self {
        Self(Arc::new(Mutex::new(Lines {
            log,
            extension,
            level,
            partial: Vec::new(),
            tail: Vec::new(),
        })))
    }

    fn push(&self, bytes: &[u8]) {
        let mut lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        lines.push(bytes);
    }

    /// The message of the last panic, or else the last bytes that were written.
    pub(crate) fn tail(&self) -> String {
        let lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let text = String::from_utf8_lossy(&lines.tail);
        panic_message(&text).unwrap_or(&text).trim().to_owned()
    }
}

/// What a panic of Rust's standard library says, without the thread and the hint
/// about backtraces, which nobody can follow here.
fn panic_message(text: &str) -> Option<&str> {
    let message = &text[text.rfind("panicked at ")?..];
    Some(message.split("\nnote: run with `RUST_BACKTRACE").next().unwrap_or(message))
}

impl Lines {
    fn keep(&mut self, bytes: &[u8]) {
        self.tail.extend_from_slice(&bytes[bytes.len().saturating_sub(STDERR_TAIL_BYTES)..]);
        let excess = self.tail.len().saturating_sub(STDERR_TAIL_BYTES);
        self.tail.drain(..excess);
    }

    fn push(&mut self, bytes: &[u8]) {
        self.keep(bytes);
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            self.partial.extend_from_slice(piece);
            if piece.ends_with(b"\n") || self.partial.len() > MAX_LOG_LINE_BYTES {
                self.flush();
            }
        }
    }

    fn flush(&mut self) {
        let line = std::mem::take(&mut self.partial);
        let text = String::from_utf8_lossy(&line);
        self.log.write(&self.extension, self.level, text.trim_end());
    }
}

impl Drop for Lines {
    fn drop(&mut self) {
        if !self.partial.is_empty() {
            self.flush();
        }
    }
}

impl IsTerminal for GuestOutput {
    fn is_terminal(&self) -> bool {
        false
    }
}

impl StdoutStream for GuestOutput {
    fn async_stream(&self) -> Box<dyn AsyncWrite + Send + Sync> {
        Box::new(self.clone())
    }

    fn p2_stream(&self) -> Box<dyn OutputStream> {
        Box::new(self.clone())
    }
}

impl AsyncWrite for GuestOutput {
    fn poll_write(
        self: Pin<&mut Self>,
        _context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.push(bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

#[wasmtime_wasi::async_trait]
impl Pollable for GuestOutput {
    async fn ready(&mut self) {}
}

impl OutputStream for GuestOutput {
    fn write(&mut self, bytes: bytes::Bytes) -> StreamResult<()> {
        self.push(&bytes);
        Ok(())
    }

    fn flush(&mut self) -> StreamResult<()> {
        Ok(())
    }

    fn check_write(&mut self) -> StreamResult<usize> {
        Ok(64 * 1024)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tail(writes: &[&str]) -> String {
        let directory = std::env::temp_dir().join("wharf-no-such-directory");
        let log = Arc::new(LogFile::new(directory));
        let output = GuestOutput::new(log, "x".into(), Level::Stderr);
        if let Ok(mut lines) = output.0.lock() {
            for bytes in writes {
                lines.keep(bytes.as_bytes());
            }
        }
        output.tail()
    }

    #[test]
    fn the_tail_is_the_panic_message_or_the_last_bytes() {
        assert_eq!(tail(&["one\n", "two\n"]), "one\ntwo");
        let panic = "thread 'main' (1) panicked at src/lib.rs:1:2:\nboom\nnote: run with `RUST_BACKTRACE=1` environment variable to display a backtrace\n";
        assert_eq!(tail(&["noise\n", panic]), "panicked at src/lib.rs:1:2:\nboom");
        let long = "x".repeat(STDERR_TAIL_BYTES);
        assert_eq!(tail(&[&long, "end"]).len(), STDERR_TAIL_BYTES);
    }
}
