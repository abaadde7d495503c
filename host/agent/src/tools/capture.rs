//! The output of a running command in bounded memory: the end of it, counts of all of
//! it, and a file with the whole once it is too long to be shown.

use std::io::{self, BufWriter, Write};
use std::path::PathBuf;

use serde_json::{Value, json};
use tempfile::NamedTempFile;

use super::ansi::Cleaner;
use super::truncate::{self, CutBy, Limits, MAX_BYTES, Truncation};

/// Bytes of the file with the whole output. A command can write without end.
const MAX_FULL_OUTPUT: u64 = 256 * 1024 * 1024;

/// More than can be shown, so that a cut always falls between whole lines if it can.
const KEPT_BYTES: usize = MAX_BYTES + 16;

/// What may be shown of a command's output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Captured {
    /// Clean text within the caps.
    pub text: String,
    /// `None`: `text` is all there was.
    pub truncation: Option<Truncation>,
    /// Clean text too. There is one only if something was cut.
    pub full_output_path: Option<PathBuf>,
    /// Further remarks for the reader.
    pub notes: Vec<String>,
}

impl Captured {
    /// What is kept of an output that is known as a whole.
    pub fn of(output: &str) -> Self {
        let mut capture = Capture::new();
        capture.push(output.as_bytes());
        capture.finish()
    }

    /// `text` with its remarks: what was cut, where the rest is.
    pub fn annotated(&self) -> String {
        let mut text = self.text.clone();
        if let Some(note) = self.cut_note() {
            text = truncate::with_note(text, &note);
        }
        for note in &self.notes {
            text = truncate::with_note(text, note);
        }
        text
    }

    /// `text` with its remarks but for the cut, for a reader who is told of that in fields.
    pub fn noted(&self) -> String {
        self.notes.iter().fold(self.text.clone(), |text, note| truncate::with_note(text, note))
    }

    fn cut_note(&self) -> Option<String> {
        let cut = self.truncation.as_ref()?;
        let mut note = if cut.last_line_partial {
            format!("Showing the last {} bytes of line {}", cut.output_bytes, cut.total_lines)
        } else {
            let first = cut.total_lines - cut.output_lines + 1;
            format!("Showing lines {first}-{0} of {0}", cut.total_lines)
        };
        if cut.truncated_by == CutBy::Bytes {
            note.push_str(" (50 kB limit)");
        }
        if let Some(path) = &self.full_output_path {
            note.push_str(&format!(". Full output: {}", path.display()));
        }
        Some(note)
    }

    /// `details` of the bash tool.
    pub fn details(&self) -> Value {
        json!({ "truncation": self.truncation, "fullOutputPath": self.full_output_path })
    }
}

#[derive(Debug)]
enum FullOutput {
    NotNeeded,
    Open { file: BufWriter<NamedTempFile>, written: u64 },
    Failed(String),
}

impl FullOutput {
    fn create(text: &str) -> Self {
        // `tempfile` gives mode 0600.
        match tempfile::Builder::new().prefix("wharf-bash-").suffix(".log").tempfile() {
            Ok(file) => {
                let mut this = Self::Open { file: BufWriter::new(file), written: 0 };
                this.append(text);
                this
            }
            Err(error) => Self::Failed(error.to_string()),
        }
    }

    fn append(&mut self, text: &str) {
        let Self::Open { file, written } = self else { return };
        if *written >= MAX_FULL_OUTPUT {
            return;
        }
        match file.write_all(text.as_bytes()) {
            Ok(()) => *written += text.len() as u64,
            Err(error) => *self = Self::Failed(error.to_string()),
        }
    }
}

/// Takes a command's output as it comes.
#[derive(Debug)]
pub(super) struct Capture {
    cleaner: Cleaner,
    store: Store,
}

#[derive(Debug)]
struct Store {
    /// At least the last `KEPT_BYTES` of what came.
    tail: String,
    bytes: u64,
    line_feeds: usize,
    /// The last byte that came was no line feed.
    open_line: bool,
    full: FullOutput,
}

impl Capture {
    pub(super) fn new() -> Self {
        let store = Store {
            tail: String::new(),
            bytes: 0,
            line_feeds: 0,
            open_line: false,
            full: FullOutput::NotNeeded,
        };
        Self { cleaner: Cleaner::new(), store }
    }

    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.cleaner.feed(bytes, &mut |text| self.store.append(text));
    }

    /// What may be shown so far.
    pub(super) fn snapshot(&self) -> Captured {
        let path = match &self.store.full {
            FullOutput::Open { file, .. } => Some(file.get_ref().path().to_path_buf()),
            FullOutput::NotNeeded | FullOutput::Failed(_) => None,
        };
        let (text, truncation) = self.store.shown(self.cleaner.pending());
        Captured { text, truncation, full_output_path: path, notes: Vec::new() }
    }

    /// What may be shown in the end. The file with the whole output stays.
    pub(super) fn finish(mut self) -> Captured {
        self.cleaner.finish(&mut |text| self.store.append(text));
        let (text, truncation) = self.store.shown("");
        let mut notes = Vec::new();
        if self.cleaner.nul_bytes > 0 {
            notes.push(format!(
                "The output holds binary data: {} NUL bytes left out, {} sequences that are not UTF-8 shown as U+FFFD",
                self.cleaner.nul_bytes, self.cleaner.invalid
            ));
        }
        let mut full_output_path = None;
        match self.store.full {
            FullOutput::NotNeeded => {}
            FullOutput::Failed(error) => notes.push(unsaved(&error)),
            FullOutput::Open { file, written } => match keep(file) {
                Ok(path) => {
                    if written < self.store.bytes {
                        notes.push(format!("The full output file ends after {written} bytes"));
                    }
                    full_output_path = Some(path);
                }
                Err(error) => notes.push(unsaved(&error.to_string())),
            },
        }
        Captured { text, truncation, full_output_path, notes }
    }
}

fn unsaved(error: &str) -> String {
    format!("The full output could not be saved: {error}")
}

fn keep(file: BufWriter<NamedTempFile>) -> io::Result<PathBuf> {
    let file = file.into_inner().map_err(io::IntoInnerError::into_error)?;
    let (_, path) = file.keep().map_err(|error| error.error)?;
    Ok(path)
}

impl Store {
    fn append(&mut self, text: &str) {
        self.tail.push_str(text);
        self.bytes += text.len() as u64;
        self.line_feeds += text.bytes().filter(|byte| *byte == b'\n').count();
        self.open_line = !text.ends_with('\n');
        match &mut self.full {
            FullOutput::NotNeeded => {
                let lines = self.line_feeds + usize::from(self.open_line);
                if self.bytes > MAX_BYTES as u64 || lines > truncate::MAX_LINES {
                    // Nothing was dropped from the tail yet: it is the whole output.
                    self.full = FullOutput::create(&self.tail);
                }
            }
            full => full.append(text),
        }
        if self.tail.len() > 2 * KEPT_BYTES {
            let cut = self.tail.floor_char_boundary(self.tail.len() - KEPT_BYTES);
            self.tail.drain(..cut);
        }
    }

    fn shown(&self, pending: &str) -> (String, Option<Truncation>) {
        let text = format!("{}{pending}", self.tail);
        let kept = truncate::tail(&text, Limits::STANDARD);
        let truncation = kept.cut_by.map(|cut_by| {
            let open_line = if pending.is_empty() { self.open_line } else { true };
            let total_lines = self.line_feeds + usize::from(open_line);
            Truncation::of(&kept, cut_by, total_lines, self.bytes + pending.len() as u64)
        });
        (kept.text.to_owned(), truncation)
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use proptest::prelude::*;

    use super::*;
    use crate::tools::truncate::{MAX_LINES, count_lines};

    fn capture(chunks: &[&[u8]]) -> Captured {
        let mut capture = Capture::new();
        for chunk in chunks {
            capture.push(chunk);
            let shown = capture.snapshot();
            assert!(shown.text.len() <= MAX_BYTES);
            assert!(capture.store.tail.len() <= 2 * KEPT_BYTES);
        }
        capture.finish()
    }

    #[test]
    fn short_output_makes_no_file() {
        let shown = capture(&[b"one\n", b"two"]);
        assert_eq!(shown.annotated(), "one\ntwo");
        assert_eq!(shown.details(), json!({"truncation": null, "fullOutputPath": null}));
        let at_the_cap = vec![b'x'; MAX_BYTES];
        assert_eq!(capture(&[&at_the_cap]).truncation, None);
        let at_the_cap = "\n".repeat(MAX_LINES);
        assert_eq!(capture(&[at_the_cap.as_bytes()]).truncation, None);
    }

    #[test]
    fn the_last_lines_stay_and_the_file_has_all() {
        let all: String = (1..=2_500).map(|n| format!("line {n}\n")).collect();
        let (first, second) = all.as_bytes().split_at(20_000);
        let shown = capture(&[first, second]);
        assert!(shown.text.starts_with("line 501\n"));
        assert!(shown.text.ends_with("line 2500\n"));
        let path = shown.full_output_path.clone().unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), all);
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        fs::remove_file(&path).unwrap();
        let expected = format!("[Showing lines 501-2500 of 2500. Full output: {}]", path.display());
        assert!(shown.annotated().ends_with(&expected));
        let details = shown.details();
        assert_eq!(details["truncation"]["truncatedBy"], "lines");
        assert_eq!(details["truncation"]["outputLines"], 2_000);
        assert_eq!(details["truncation"]["totalBytes"], all.len());
        assert_eq!(details["fullOutputPath"], path.to_str().unwrap());
    }

    #[test]
    fn a_long_line_keeps_its_end() {
        let line = "é".repeat(60_000);
        let shown = capture(&[b"before\n", line.as_bytes(), b"!"]);
        assert_eq!(shown.text.len(), MAX_BYTES - 1);
        assert!(shown.text.ends_with("é!"));
        assert!(shown.annotated().contains("Showing the last 49999 bytes of line 2 (50 kB limit)"));
        let path = shown.full_output_path.unwrap();
        assert_eq!(fs::metadata(&path).unwrap().len(), 7 + 120_000 + 1);
        fs::remove_file(path).unwrap();
    }

    #[test]
    fn binary_output_is_named() {
        let shown = capture(&[b"\x7fELF\0\0\xff\n"]);
        assert!(shown.annotated().contains("holds binary data: 2 NUL bytes left out"));
    }

    #[test]
    fn a_dropped_capture_leaves_no_file() {
        let mut capture = Capture::new();
        capture.push(&vec![b'\n'; 5_000]);
        let path = capture.snapshot().full_output_path.unwrap();
        assert!(path.exists());
        drop(capture);
        assert!(!path.exists());
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]
        #[test]
        fn what_is_shown_is_the_end(
            lines in proptest::collection::vec("[a-zé]{0,60}", 0..2_500),
            chunk in 1_usize..9_000,
        ) {
            let all = lines.join("\n");
            let chunks: Vec<&[u8]> = all.as_bytes().chunks(chunk).collect();
            let shown = capture(&chunks);
            prop_assert!(all.ends_with(&shown.text));
            prop_assert!(count_lines(&shown.text) <= MAX_LINES);
            prop_assert_eq!(shown.truncation.is_none(), shown.text == all);
            if let Some(cut) = &shown.truncation {
                prop_assert_eq!(cut.total_lines, count_lines(&all));
                prop_assert_eq!(cut.total_bytes, all.len() as u64);
                let path = shown.full_output_path.clone().unwrap();
                prop_assert_eq!(fs::read_to_string(&path).unwrap(), all);
                fs::remove_file(path).unwrap();
            }
        }
    }
}
