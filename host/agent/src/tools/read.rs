//! The tool `read`: a page of a text file, or an image.

use std::borrow::Cow;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read as _};
use std::path::{Path, PathBuf};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use futures::future::BoxFuture;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use tokio_util::sync::CancellationToken;
use wharf_protocol::message::{ContentBlock, ImageContent};

use super::paths::{Paths, io_failure};
use super::truncate::{self, CutBy, Kept, Limits, MAX_BYTES, MAX_LINES, Truncation};
use super::{args, work};
use crate::images::{self, Changed, Fitted};
use crate::tool::{Tool, ToolCallContext, ToolFailure, ToolOutput, ToolSpec};

/// Bytes at the beginning of a file that tell what it is.
const SNIFFED: usize = 8 * 1024;
const BUFFER: usize = 64 * 1024;
/// Above the cap, so that a cut at the cap falls on a character that is complete.
const COLLECTED: usize = MAX_BYTES + 16;

#[derive(Debug)]
pub(super) struct Read {
    spec: ToolSpec,
    paths: Paths,
    auto_resize_images: bool,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Args {
    path: String,
    #[serde(default, deserialize_with = "args::count")]
    offset: Option<usize>,
    #[serde(default, deserialize_with = "args::count")]
    limit: Option<usize>,
}

impl Read {
    pub(super) fn new(paths: Paths, auto_resize_images: bool) -> Self {
        let spec = ToolSpec {
            name: "read".to_owned(),
            label: "Read".to_owned(),
            description: "Reads a text file, or an image (png, jpeg, gif, webp). Of a text, at most 2,000 lines \
                or 50 kB are returned, whichever is less; the result then says which offset to go on with."
                .to_owned(),
            parameters: args::object_schema(
                &["path"],
                &json!({
                    "path": { "type": "string", "minLength": 1, "description": "File to read, relative to the current directory or absolute" },
                    "offset": { "type": "integer", "minimum": 1, "description": "First line to read, counted from 1" },
                    "limit": { "type": "integer", "minimum": 1, "description": "Number of lines to read" },
                }),
            ),
            prompt_snippet: Some("Read files, also images".to_owned()),
            prompt_guidelines: vec!["Read files with read, not with cat or sed.".to_owned()],
            sequential: false,
        };
        Self { spec, paths, auto_resize_images }
    }

    async fn execute(&self, call: ToolCallContext) -> Result<ToolOutput, ToolFailure> {
        let args: Args = args::parse(call.args)?;
        let path = self.paths.canonical(&call.cwd, &args.path)?;
        let auto_resize = self.auto_resize_images;
        work::run_cancellable(&call.cancel, move |cancel| read(&path, &args, auto_resize, cancel))
            .await
    }
}

impl Tool for Read {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn paths(&self, args: &Map<String, Value>, cwd: &Path) -> Vec<PathBuf> {
        self.paths.touched(args, cwd)
    }

    fn run(&self, call: ToolCallContext) -> BoxFuture<'_, Result<ToolOutput, ToolFailure>> {
        Box::pin(self.execute(call))
    }
}

fn read(
    path: &Path,
    args: &Args,
    auto_resize: bool,
    cancel: &CancellationToken,
) -> Result<ToolOutput, ToolFailure> {
    let failure = |error: &io::Error| io_failure("read", &args.path, error);
    let metadata = fs::metadata(path).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => ToolFailure::new(format!(
            "failed to read {}: there is no file {}; look for it with find or ls",
            args.path,
            path.display()
        )),
        _ => failure(&error),
    })?;
    if metadata.is_dir() {
        return Err(ToolFailure::new(format!(
            "failed to read {}: it is a directory; list it with ls",
            args.path
        )));
    }
    // Opening a pipe or a device could wait for ever.
    if !metadata.is_file() {
        return Err(ToolFailure::new(format!(
            "failed to read {}: it is not a regular file",
            args.path
        )));
    }
    let file = File::open(path).map_err(|error| failure(&error))?;
    let mut reader = BufReader::with_capacity(BUFFER, file);
    let start = reader.fill_buf().map_err(|error| failure(&error))?;
    if images::image_type(start).is_some() {
        let mut bytes = Vec::new();
        // One byte above the limit tells that the file is larger.
        let limit = images::max_bytes(auto_resize) as u64 + 1;
        reader.take(limit).read_to_end(&mut bytes).map_err(|error| failure(&error))?;
        return image(&bytes, args, auto_resize);
    }
    if let Some(reason) = binary_reason(&start[..start.len().min(SNIFFED)]) {
        return Err(ToolFailure::new(format!(
            "failed to read {}: {reason}; look at it with a bash command such as file or xxd",
            args.path
        )));
    }
    let first = args.offset.unwrap_or(1).max(1);
    let wanted = args.limit.unwrap_or(MAX_LINES).min(MAX_LINES);
    let scan = Scan::run(&mut reader, first, wanted, cancel).map_err(|error| failure(&error))?;
    page(&scan, first, args)
}

fn image(bytes: &[u8], args: &Args, auto_resize: bool) -> Result<ToolOutput, ToolFailure> {
    let path = &args.path;
    let fitted = images::fit(bytes, auto_resize)
        .map_err(|error| ToolFailure::new(format!("failed to read {path}: {error}")))?;
    let Fitted { mime_type, original, changed } = fitted;
    let length = bytes.len();
    let (data, sent_type, text) = match changed {
        None => {
            let text = format!("Read image {path} ({mime_type}, {length} bytes)");
            (STANDARD.encode(bytes), mime_type, text)
        }
        Some(Changed { bytes, mime_type: sent_type, size }) => {
            let mut text = format!(
                "Read image {path} ({mime_type}, {original} pixels, {length} bytes); it is shown as {sent_type}, {size} pixels, {} bytes",
                bytes.len()
            );
            if size != original {
                let factor = f64::from(original.width.max(original.height))
                    / f64::from(size.width.max(size.height));
                text.push_str(&format!(
                    ". Multiply coordinates by {factor:.2} to get those in the file"
                ));
            }
            (STANDARD.encode(bytes), sent_type, text)
        }
    };
    let image = ImageContent { data, mime_type: sent_type.to_owned() };
    Ok(ToolOutput {
        content: vec![ContentBlock::text(text), ContentBlock::Image(image)],
        details: None,
    })
}

fn binary_reason(start: &[u8]) -> Option<String> {
    match start {
        [0xff, 0xfe, ..] | [0xfe, 0xff, ..] => {
            return Some("it is UTF-16 text; convert it with iconv".to_owned());
        }
        _ => {}
    }
    let at = start.iter().position(|byte| *byte == 0)?;
    Some(format!("it is a binary file (NUL byte at offset {at})"))
}

/// The wanted lines of a file, and how many lines there are.
struct Scan {
    /// The wanted lines, up to `COLLECTED` bytes of them.
    bytes: Vec<u8>,
    /// Bytes of the first wanted line, without its line feed.
    first_line_bytes: u64,
    total_lines: usize,
    total_bytes: u64,
}

impl Scan {
    fn run(
        reader: &mut impl BufRead,
        first: usize,
        wanted: usize,
        cancel: &CancellationToken,
    ) -> io::Result<Self> {
        let mut scan =
            Self { bytes: Vec::new(), first_line_bytes: 0, total_lines: 0, total_bytes: 0 };
        let mut line = 1;
        let mut open_line = false;
        loop {
            let buffer = reader.fill_buf()?;
            if buffer.is_empty() || cancel.is_cancelled() {
                break;
            }
            for part in buffer.split_inclusive(|byte| *byte == b'\n') {
                if line >= first && line - first < wanted {
                    let room = COLLECTED.saturating_sub(scan.bytes.len());
                    scan.bytes.extend_from_slice(&part[..part.len().min(room)]);
                }
                open_line = !part.ends_with(b"\n");
                if line == first {
                    scan.first_line_bytes += (part.len() - usize::from(!open_line)) as u64;
                }
                if !open_line {
                    line += 1;
                }
            }
            let length = buffer.len();
            scan.total_bytes += length as u64;
            reader.consume(length);
        }
        scan.total_lines = line - 1 + usize::from(open_line);
        Ok(scan)
    }
}

fn page(scan: &Scan, first: usize, args: &Args) -> Result<ToolOutput, ToolFailure> {
    if first > scan.total_lines.max(1) {
        return Err(ToolFailure::new(format!(
            "failed to read {}: offset {first} is past the end; the file has {} lines",
            args.path, scan.total_lines
        )));
    }
    if scan.total_lines == 0 {
        return Ok(text_output("[The file is empty]".to_owned(), None));
    }
    if let Some(at) = scan.bytes.iter().position(|byte| *byte == 0) {
        return Err(ToolFailure::new(format!(
            "failed to read {}: it holds binary data (NUL byte {at} bytes after the beginning of line {first})",
            args.path
        )));
    }
    let decoded = String::from_utf8_lossy(&scan.bytes);
    let text = decoded.strip_prefix('\u{feff}').filter(|_| first == 1).unwrap_or(&decoded);
    let kept = truncate::head(text, Limits::STANDARD);
    let last = first + kept.lines - 1;
    let mut shown = kept.text.to_owned();
    if let Some(note) = continuation(scan, &kept, first, last, args) {
        shown = truncate::with_note(shown, &note);
    }
    if matches!(decoded, Cow::Owned(_)) && kept.text.contains('\u{fffd}') {
        shown = truncate::with_note(
            shown,
            "The file is not valid UTF-8; other bytes are shown as U+FFFD",
        );
    }
    let by_request = args.limit.is_some_and(|limit| limit <= MAX_LINES);
    let cut_by = match kept.cut_by {
        None if last < scan.total_lines && !by_request => Some(CutBy::Lines),
        cut_by => cut_by,
    };
    let truncation =
        cut_by.map(|cut_by| Truncation::of(&kept, cut_by, scan.total_lines, scan.total_bytes));
    Ok(text_output(shown, truncation.map(|truncation| json!({ "truncation": truncation }))))
}

/// How to get what is not shown.
fn continuation(
    scan: &Scan,
    kept: &Kept<'_>,
    first: usize,
    last: usize,
    args: &Args,
) -> Option<String> {
    let total = scan.total_lines;
    let mut note = if kept.partial_line {
        format!(
            "Line {first} is {} bytes long, and only its first {} are shown (50 kB limit). Get the rest with bash: sed -n '{first}p' FILE | tail -c +{}",
            scan.first_line_bytes,
            kept.text.len(),
            kept.text.len() + 1,
        )
    } else if last == total {
        return None;
    } else if args.limit.is_some_and(|limit| limit == kept.lines) {
        format!("{} more lines in the file", total - last)
    } else {
        let by = if kept.cut_by == Some(CutBy::Bytes) { " (50 kB limit)" } else { "" };
        format!("Showing lines {first}-{last} of {total}{by}")
    };
    if last < total {
        note.push_str(&format!(". Use offset={} to continue", last + 1));
    }
    Some(note)
}

fn text_output(text: String, details: Option<Value>) -> ToolOutput {
    ToolOutput { content: vec![ContentBlock::text(text)], details }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

    use std::os::unix::fs::symlink;

    use super::*;
    use crate::tools::testing::Bench;

    #[tokio::test]
    async fn a_short_file_comes_as_it_is() {
        let bench = Bench::new();
        bench.file("a.txt", "one\r\ntwo\n");
        bench.file("home/b.txt", "\u{feff}ünï");
        bench.file("empty", "");
        assert_eq!(bench.text("read", json!({"path": "a.txt"})).await, "one\r\ntwo\n");
        assert_eq!(bench.text("read", json!({"path": "~/b.txt"})).await, "ünï");
        assert_eq!(bench.text("read", json!({"path": "empty"})).await, "[The file is empty]");
        assert_eq!(bench.output("read", json!({"path": "a.txt"})).await.details, None);
    }

    #[tokio::test]
    async fn pages_say_how_to_go_on() {
        let bench = Bench::new();
        let all: String = (1..=4_500).map(|n| format!("{n}\n")).collect();
        bench.file("long", &all);
        let output = bench.output("read", json!({"path": "long"})).await;
        let text = output.content[0].as_text().unwrap();
        assert!(text.starts_with("1\n2\n"));
        assert!(
            text.ends_with("2000\n\n[Showing lines 1-2000 of 4500. Use offset=2001 to continue]")
        );
        assert_eq!(output.details.unwrap()["truncation"]["truncatedBy"], "lines");

        let text = bench.text("read", json!({"path": "long", "offset": 4_001})).await;
        assert!(text.starts_with("4001\n") && text.ends_with("4500\n"), "{text}");
        let output = bench.output("read", json!({"path": "long", "offset": 3.0, "limit": 2})).await;
        assert_eq!(
            output.content[0].as_text(),
            Some("3\n4\n\n[4496 more lines in the file. Use offset=5 to continue]")
        );
        assert_eq!(output.details, None);
        // A limit does not lift the cap.
        let text = bench.text("read", json!({"path": "long", "limit": 3_000})).await;
        assert!(text.ends_with("[Showing lines 1-2000 of 4500. Use offset=2001 to continue]"));

        let error = bench.error("read", json!({"path": "long", "offset": 4_501})).await;
        assert!(error.contains("offset 4501 is past the end; the file has 4500 lines"), "{error}");
    }

    #[tokio::test]
    async fn long_lines_are_cut_and_named() {
        let bench = Bench::new();
        let wide = format!("{}\n", "é".repeat(490));
        bench.file("wide", wide.repeat(60));
        let output = bench.output("read", json!({"path": "wide"})).await;
        let text = output.content[0].as_text().unwrap();
        assert!(
            text.ends_with("[Showing lines 1-50 of 60 (50 kB limit). Use offset=51 to continue]"),
            "{text}"
        );
        assert_eq!(output.details.unwrap()["truncation"]["truncatedBy"], "bytes");

        bench.file("one", format!("{}\nsecond", "文".repeat(30_000)));
        let text = bench.text("read", json!({"path": "one"})).await;
        assert!(
            text.contains("[Line 1 is 90000 bytes long, and only its first 49998 are shown"),
            "{text}"
        );
        assert!(text.ends_with("Use offset=2 to continue]"));
        assert_eq!(bench.text("read", json!({"path": "one", "offset": 2})).await, "second");
        assert!(!text.contains('\u{fffd}'));
    }

    fn png(width: u32, height: u32) -> Vec<u8> {
        let mut bytes = Vec::new();
        image::RgbImage::new(width, height)
            .write_to(&mut io::Cursor::new(&mut bytes), image::ImageFormat::Png)
            .unwrap();
        bytes
    }

    fn decoded(output: &ToolOutput) -> (Vec<u8>, &str) {
        let ContentBlock::Image(image) = &output.content[1] else { panic!("no image") };
        (STANDARD.decode(&image.data).unwrap(), &image.mime_type)
    }

    #[tokio::test]
    async fn images_come_as_images() {
        let bench = Bench::new();
        // The bytes decide, not the name.
        bench.file("picture.txt", png(20, 10));
        let output = bench.output("read", json!({"path": "picture.txt"})).await;
        assert_eq!(decoded(&output), (png(20, 10), "image/png"));
        let text = format!("Read image picture.txt (image/png, {} bytes)", png(20, 10).len());
        assert_eq!(output.content[0].as_text(), Some(text.as_str()));

        bench.file("wide.png", png(4_000, 1_000));
        let output = bench.output("read", json!({"path": "wide.png"})).await;
        let (sent, mime_type) = decoded(&output);
        assert_eq!(mime_type, "image/png");
        let expected = format!(
            "Read image wide.png (image/png, 4000x1000 pixels, {} bytes); it is shown as image/png, 2000x500 pixels, {} bytes. Multiply coordinates by 2.00 to get those in the file",
            png(4_000, 1_000).len(),
            sent.len(),
        );
        assert_eq!(output.content[0].as_text(), Some(expected.as_str()));

        bench.file("broken.png", &png(20, 10)[..40]);
        let error = bench.error("read", json!({"path": "broken.png"})).await;
        assert!(
            error.starts_with("failed to read broken.png: the image/png data cannot be decoded"),
            "{error}"
        );
    }

    #[tokio::test]
    async fn large_images_are_refused_where_settings_say_so() {
        let bench = Bench::with(|options| options.auto_resize_images = false);
        bench.file("wide.png", png(2_400, 10));
        let output = bench.output("read", json!({"path": "wide.png"})).await;
        assert_eq!(decoded(&output).0, png(2_400, 10));
        let mut large = b"GIF89a".to_vec();
        large.resize(4_000_000, 0);
        bench.file("large.gif", &large);
        assert_eq!(
            bench.error("read", json!({"path": "large.gif"})).await,
            "failed to read large.gif: the image is larger than 3750000 bytes; make a smaller copy"
        );
    }

    #[tokio::test]
    async fn what_is_no_text_is_refused() {
        let bench = Bench::new();
        bench.file("program", b"\x7fELF\0\0");
        bench.file("utf16", b"\xff\xfea\0");
        let mut late = vec![b'x'; 20_000];
        late.push(0);
        bench.file("late", &late);
        bench.file("latin1", b"caf\xe9\n");
        std::fs::create_dir(bench.cwd().join("dir")).unwrap();
        let error = bench.error("read", json!({"path": "program"})).await;
        assert!(error.contains("binary file (NUL byte at offset 4)"), "{error}");
        assert!(bench.error("read", json!({"path": "utf16"})).await.contains("UTF-16"));
        assert!(bench.error("read", json!({"path": "late"})).await.contains("binary data"));
        let text = bench.text("read", json!({"path": "latin1"})).await;
        assert!(text.starts_with("caf\u{fffd}\n\n[The file is not valid UTF-8"), "{text}");
        assert!(bench.error("read", json!({"path": "dir"})).await.contains("list it with ls"));
        assert!(bench.error("read", json!({"path": "none"})).await.contains("there is no file"));
        let _pipe = std::os::unix::net::UnixListener::bind(bench.cwd().join("s")).unwrap();
        assert!(bench.error("read", json!({"path": "s"})).await.contains("not a regular file"));
    }

    #[tokio::test]
    async fn the_judged_path_is_the_read_one() {
        let bench = Bench::new();
        bench.file(".env", "secret");
        symlink(".env", bench.cwd().join("x")).unwrap();
        let args = json!({"path": "gone/../x"});
        assert_eq!(bench.paths("read", &args), [bench.cwd().join(".env")]);
        assert_eq!(bench.text("read", args).await, "secret");
    }
}
