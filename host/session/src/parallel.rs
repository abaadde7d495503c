//! Reads and parses a long file with more than one thread; what comes of it has the order
//! of the file. Knows lines and envelopes, no tree.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::ops::Range;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;

use crate::scan::{Envelope, trim};

/// Below this many bytes threads cost more than they save.
const MIN_LEN: usize = 4 << 20;

/// Bytes of a chunk, roughly: it ends with a line.
const CHUNK: usize = 1 << 20;

/// Parsed chunks of one thread that may wait: an envelope takes some 200 bytes.
const AHEAD: usize = 2;

/// Threads that parse; whoever takes in what they parsed is one more.
const MAX_THREADS: usize = 4;

/// A line without its line feed, at its place in the text.
pub(crate) struct ParsedLine<'a> {
    pub(crate) start: usize,
    pub(crate) end: usize,
    /// Of a line that is one object, and nothing else but white space.
    pub(crate) envelope: Option<Envelope<'a>>,
}

fn parse_lines<'a>(text: &'a str, range: Range<usize>, mut take: impl FnMut(ParsedLine<'a>)) {
    let mut start = range.start;
    while start < range.end {
        let length = memchr::memchr(b'\n', &text.as_bytes()[start..range.end]);
        let end = length.map_or(range.end, |length| start + length);
        take(ParsedLine { start, end, envelope: Envelope::parse(trim(&text[start..end])) });
        start = end + 1;
    }
}

/// Gives `take` every line of `text`, parsed, in order.
pub(crate) fn for_each_line<'a>(text: &'a str, mut take: impl FnMut(ParsedLine<'a>)) {
    let threads = thread::available_parallelism().map_or(1, usize::from).min(MAX_THREADS);
    if text.len() < MIN_LEN || threads < 2 {
        return parse_lines(text, 0..text.len(), take);
    }
    let chunks = chunks(text);
    thread::scope(|scope| {
        let mut queues: Vec<Receiver<Vec<ParsedLine<'a>>>> = Vec::new();
        for worker in 0..threads {
            let (sender, queue) = sync_channel(AHEAD);
            let own = chunks.iter().skip(worker).step_by(threads).cloned();
            let run = move || parse_chunks(text, own, &sender);
            // Without a thread its queue is closed, and its chunks are parsed here.
            let _ =
                thread::Builder::new().name("session-parser".to_owned()).spawn_scoped(scope, run);
            queues.push(queue);
        }
        for (place, chunk) in chunks.iter().enumerate() {
            match queues[place % threads].recv() {
                Ok(lines) => lines.into_iter().for_each(&mut take),
                Err(_) => parse_lines(text, chunk.clone(), &mut take),
            }
        }
    });
}

fn parse_chunks<'a>(
    text: &'a str,
    chunks: impl Iterator<Item = Range<usize>>,
    sender: &SyncSender<Vec<ParsedLine<'a>>>,
) {
    for chunk in chunks {
        let mut lines = Vec::new();
        parse_lines(text, chunk, |line| lines.push(line));
        if sender.send(lines).is_err() {
            return;
        }
    }
}

/// Whole lines each, together the whole text.
fn chunks(text: &str) -> Vec<Range<usize>> {
    let bytes = text.as_bytes();
    let mut chunks = Vec::with_capacity(bytes.len() / CHUNK + 1);
    let mut start = 0;
    while start < bytes.len() {
        let from = (start + CHUNK).min(bytes.len());
        let end = memchr::memchr(b'\n', &bytes[from..]).map_or(bytes.len(), |at| from + at + 1);
        chunks.push(start..end);
        start = end;
    }
    chunks
}

/// The content of a file that had `len` bytes when it was looked at.
pub(crate) fn read_whole(file: &mut File, len: u64) -> io::Result<Vec<u8>> {
    let len = usize::try_from(len).map_err(|_| io::ErrorKind::FileTooLarge)?;
    let mut bytes = Vec::new();
    if len >= MIN_LEN {
        bytes = vec![0; len];
        let read = read_halves(file, &mut bytes)?;
        bytes.truncate(read);
        file.seek(SeekFrom::Start(read as u64))?;
    } else {
        bytes.reserve_exact(len + 1);
    }
    file.read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Fills `bytes` from the beginning of the file, as far as that goes. Half of the time
/// goes to the memory's first use, which two threads share.
#[cfg(unix)]
fn read_halves(file: &File, bytes: &mut [u8]) -> io::Result<usize> {
    let middle = bytes.len() / 2;
    let (first, second) = bytes.split_at_mut(middle);
    let (first, second) = thread::scope(|scope| {
        let builder = thread::Builder::new().name("session-reader".to_owned());
        let other = builder.spawn_scoped(scope, || read_at(file, second, middle as u64))?;
        let first = read_at(file, first, 0);
        let second = other.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        io::Result::Ok((first, second))
    })?;
    match first? {
        read if read < middle => Ok(read),
        read => Ok(read + second?),
    }
}

#[cfg(unix)]
fn read_at(file: &File, bytes: &mut [u8], offset: u64) -> io::Result<usize> {
    let mut done = 0;
    while done < bytes.len() {
        let at = offset + done as u64;
        match std::os::unix::fs::FileExt::read_at(file, &mut bytes[done..], at) {
            Ok(0) => break,
            Ok(read) => done += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(done)
}

#[cfg(not(unix))]
fn read_halves(mut file: &File, bytes: &mut [u8]) -> io::Result<usize> {
    let mut done = 0;
    while done < bytes.len() {
        match file.read(&mut bytes[done..]) {
            Ok(0) => break,
            Ok(read) => done += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(done)
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use std::io::Write as _;

    use super::*;

    /// Lines of many lengths, some of them no objects, one longer than a chunk.
    fn text() -> String {
        let mut text = String::new();
        for number in 0..40_000 {
            match number % 7 {
                0 => text.push('\n'),
                1 => text.push_str("garbage\r\n"),
                2 if number == 20_007 => {
                    text.push_str(&format!("{{\"x\":\"{}\"}}\n", "é".repeat(CHUNK)))
                }
                _ => text.push_str(&format!(
                    "{{\"type\":\"custom\",\"id\":\"{number:x}\",\"data\":\"{}\"}}\n",
                    "x".repeat(number % 300)
                )),
            }
        }
        text.push_str("{\"type\":\"custom\"}");
        text
    }

    #[test]
    fn threads_give_what_one_gives() {
        let text = text();
        assert!(text.len() > MIN_LEN);
        let (mut one, mut many) = (Vec::new(), Vec::new());
        parse_lines(&text, 0..text.len(), |line| one.push((line.start, line.end, line.envelope)));
        for_each_line(&text, |line| many.push((line.start, line.end, line.envelope)));
        assert_eq!(one.len(), text.lines().count());
        assert!(one == many);
        assert!(chunks(&text).len() > 4);
        for (text, expect) in [("", 0), ("\n", 1), ("a\n\nb", 3)] {
            let mut lines = 0;
            for_each_line(text, |_| lines += 1);
            assert_eq!(lines, expect, "{text:?}");
        }
    }

    #[test]
    fn a_file_is_read_whole_whatever_its_length_was() {
        let content: Vec<u8> = (0..MIN_LEN + 999).map(|at| (at % 251) as u8).collect();
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&content).unwrap();
        // As it is, grown since, cut since to less than half and to more.
        for len in [content.len(), content.len() - 5, MIN_LEN * 3, MIN_LEN + 5_000, 10] {
            file.seek(SeekFrom::Start(0)).unwrap();
            assert!(read_whole(&mut file, len as u64).unwrap() == content, "{len}");
        }
    }
}
