//! The lines of a file of any size, in bounded memory. Knows nothing of what is in them.

use std::io::{self, BufRead, BufReader, ErrorKind, Read};

use memchr::memchr;

/// Bytes of a line that are held. Longer ones are seen by their start only.
pub(crate) const MAX_LINE: usize = 16 << 20;

/// Bytes per read: large enough that most lines are seen where they were read to.
const BUFFER: usize = 256 << 10;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Line<'a> {
    /// Without the line feed; of a line longer than [`MAX_LINE`] its start.
    pub(crate) bytes: &'a [u8],
    /// Where `bytes` is the start only: the last byte of the line that is no white space.
    pub(crate) cut: Option<u8>,
    /// It ends in a line feed, not with the file.
    pub(crate) finished: bool,
}

/// Shows every line to `visit`; gives the bytes up to the last line feed.
pub(crate) fn read_lines(source: impl Read, visit: impl FnMut(Line<'_>)) -> io::Result<u64> {
    read_capped(source, MAX_LINE, visit)
}

fn read_capped(source: impl Read, cap: usize, mut visit: impl FnMut(Line<'_>)) -> io::Result<u64> {
    let mut reader = BufReader::with_capacity(BUFFER, source);
    let mut held = Held { bytes: Vec::new(), len: 0, last: 0, cap };
    let mut finished = 0;
    loop {
        let chunk = match reader.fill_buf() {
            Ok(chunk) => chunk,
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        if chunk.is_empty() {
            break;
        }
        let used = match memchr(b'\n', chunk) {
            Some(end) => {
                if held.len == 0 && end <= cap {
                    visit(Line { bytes: &chunk[..end], cut: None, finished: true });
                } else {
                    held.add(&chunk[..end]);
                    visit(held.line(true));
                }
                finished += held.len.max(end) as u64 + 1;
                held.clear();
                end + 1
            }
            None => {
                held.add(chunk);
                chunk.len()
            }
        };
        reader.consume(used);
    }
    if held.len > 0 {
        visit(held.line(false));
    }
    Ok(finished)
}

/// A line that reaches over the end of the buffer.
struct Held {
    bytes: Vec<u8>,
    /// Of the line so far, held or not.
    len: usize,
    last: u8,
    cap: usize,
}

impl Held {
    fn add(&mut self, part: &[u8]) {
        let room = self.cap - self.bytes.len();
        self.bytes.extend_from_slice(&part[..part.len().min(room)]);
        self.len += part.len();
        if let Some(last) = part.iter().rfind(|byte| !byte.is_ascii_whitespace()) {
            self.last = *last;
        }
    }

    fn line(&self, finished: bool) -> Line<'_> {
        let cut = (self.len > self.bytes.len()).then_some(self.last);
        Line { bytes: &self.bytes, cut, finished }
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.len = 0;
        self.last = 0;
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;

    /// Gives three bytes at a time.
    struct Slow<'a>(&'a [u8]);

    impl Read for Slow<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let count = self.0.len().min(3);
            buffer[..count].copy_from_slice(&self.0[..count]);
            self.0 = &self.0[count..];
            Ok(count)
        }
    }

    fn check(text: &str, expected: &[(&str, Option<u8>, bool)], finished: u64) {
        let whole: &mut dyn Read = &mut text.as_bytes();
        let slow: &mut dyn Read = &mut Slow(text.as_bytes());
        for source in [whole, slow] {
            let mut lines = Vec::new();
            let end = read_capped(source, 8, |line| {
                let text = String::from_utf8(line.bytes.to_vec()).unwrap();
                lines.push((text, line.cut, line.finished));
            })
            .unwrap();
            let lines: Vec<_> = lines.iter().map(|(t, cut, f)| (t.as_str(), *cut, *f)).collect();
            assert_eq!(lines, expected, "{text:?}");
            assert_eq!(end, finished, "{text:?}");
        }
    }

    #[test]
    fn lines_are_whole_or_cut_at_the_cap() {
        check("", &[], 0);
        check("\n", &[("", None, true)], 1);
        check("ab\n\ncd", &[("ab", None, true), ("", None, true), ("cd", None, false)], 4);
        check("12345678\n", &[("12345678", None, true)], 9);
        check("123456789 \r\nx\n", &[("12345678", Some(b'9'), true), ("x", None, true)], 14);
        check("a\n1234567890}", &[("a", None, true), ("12345678", Some(b'}'), false)], 2);
    }
}
