//! JSONL framing: LF ends a record and nothing else does. An optional CR before
//! it is dropped; U+2028 and U+2029 are ordinary characters of a JSON string.

/// The longest line that is accepted, in bytes without its line feed. A prompt
/// may carry several base64 images; nothing legitimate comes near this.
pub const MAX_LINE_BYTES: usize = 64 * 1024 * 1024;

/// One record of the input.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Frame {
    /// A line without its LF and without a CR before it.
    Line(Vec<u8>),
    /// A line over the cap; its bytes were dropped. The next line is read as usual.
    TooLong {
        /// The length of the whole line in bytes.
        bytes: usize,
    },
}

/// Cuts a byte stream into lines, whatever the chunks.
#[derive(Debug)]
pub struct LineDecoder {
    buffer: Vec<u8>,
    /// Bytes of the current line that were dropped because it is over the cap.
    dropped: usize,
    cap: usize,
}

impl LineDecoder {
    pub const fn new(cap: usize) -> Self {
        Self { buffer: Vec::new(), dropped: 0, cap }
    }

    /// Takes a chunk and gives the lines that it completes.
    pub fn push(&mut self, mut chunk: &[u8], mut each: impl FnMut(Frame)) {
        while let Some(end) = chunk.iter().position(|byte| *byte == b'\n') {
            self.extend(&chunk[..end]);
            each(self.take());
            chunk = &chunk[end + 1..];
        }
        self.extend(chunk);
    }

    /// The input has ended: what is left is a last line without its line feed.
    pub fn finish(&mut self) -> Option<Frame> {
        (!self.buffer.is_empty() || self.dropped > 0).then(|| self.take())
    }

    fn extend(&mut self, bytes: &[u8]) {
        // One byte of slack: a CR at the end is not part of the line.
        if self.dropped > 0 || self.buffer.len() + bytes.len() > self.cap + 1 {
            self.dropped += self.buffer.len() + bytes.len();
            self.buffer = Vec::new();
        } else {
            self.buffer.extend_from_slice(bytes);
        }
    }

    fn take(&mut self) -> Frame {
        if self.dropped > 0 {
            return Frame::TooLong { bytes: std::mem::take(&mut self.dropped) };
        }
        let mut line = std::mem::take(&mut self.buffer);
        if line.last() == Some(&b'\r') {
            line.pop();
        }
        if line.len() > self.cap { Frame::TooLong { bytes: line.len() } } else { Frame::Line(line) }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn decode(cap: usize, chunks: &[&[u8]]) -> Vec<Frame> {
        let mut decoder = LineDecoder::new(cap);
        let mut frames = Vec::new();
        for chunk in chunks {
            decoder.push(chunk, |frame| frames.push(frame));
        }
        frames.extend(decoder.finish());
        frames
    }

    fn line(text: &str) -> Frame {
        Frame::Line(text.as_bytes().to_vec())
    }

    #[test]
    fn only_lf_ends_a_line() {
        let input = "a\u{2028}b\u{2029}c\r\n\u{85}d\re\n\nlast".as_bytes();
        assert_eq!(
            decode(100, &[input]),
            [line("a\u{2028}b\u{2029}c"), line("\u{85}d\re"), line(""), line("last")]
        );
    }

    #[test]
    fn a_line_over_the_cap_is_named_and_the_next_one_still_works() {
        assert_eq!(
            decode(4, &[b"abc", b"def\nok\nabcd\r\nabcde\r\nabcde\n"]),
            [
                Frame::TooLong { bytes: 6 },
                line("ok"),
                line("abcd"),
                Frame::TooLong { bytes: 6 },
                Frame::TooLong { bytes: 5 },
            ]
        );
    }

    proptest! {
        #[test]
        fn chunks_do_not_matter(
            bytes in proptest::collection::vec(prop_oneof![Just(b'\n'), Just(b'\r'), Just(b'a')], 0..60),
            cut in 1_usize..9,
        ) {
            let whole: Vec<_> = decode(5, &[&bytes])
                .into_iter()
                .map(|f| if let Frame::TooLong { .. } = f { Frame::TooLong { bytes: 0 } } else { f })
                .collect();
            let pieces: Vec<&[u8]> = bytes.chunks(cut).collect();
            let cut: Vec<_> = decode(5, &pieces)
                .into_iter()
                .map(|f| if let Frame::TooLong { .. } = f { Frame::TooLong { bytes: 0 } } else { f })
                .collect();
            prop_assert_eq!(whole, cut);
        }
    }
}
