//! Standard input as protocol lines, read by a thread of its own: a blocking
//! read must not hold a worker of the runtime.

use std::io::{self, Read as _};

use tokio::sync::mpsc;
use wharf_protocol::framing::{Frame, LineDecoder, MAX_LINE_BYTES};

/// Lines read ahead of the loop.
const READ_AHEAD: usize = 256;

const CHUNK: usize = 64 * 1024;

/// Starts reading; the channel closes when the input ends.
///
/// # Errors
/// The thread cannot be started.
pub(crate) fn lines() -> io::Result<mpsc::Receiver<Frame>> {
    let (sender, receiver) = mpsc::channel(READ_AHEAD);
    std::thread::Builder::new().name("stdin".into()).spawn(move || {
        let mut decoder = LineDecoder::new(MAX_LINE_BYTES);
        let mut chunk = vec![0; CHUNK];
        let mut input = io::stdin().lock();
        loop {
            let read = match input.read(&mut chunk) {
                // An input that cannot be read any more has ended.
                Ok(0) | Err(_) => break,
                Ok(read) => read,
            };
            let mut gone = false;
            decoder.push(&chunk[..read], |frame| gone |= sender.blocking_send(frame).is_err());
            if gone {
                return;
            }
        }
        if let Some(frame) = decoder.finish() {
            // The loop may have ended already.
            let _ = sender.blocking_send(frame);
        }
    })?;
    Ok(receiver)
}
