//! Content blocks: code, diffs, images, JSON.

use std::io;

use serde_json::Value;
use wharf_protocol::{ContentBlock, ImageContent};

use super::highlight::{Highlighter, Language};
use super::html::{Html, is_base64};

/// The image types that browsers show without running anything in them.
const IMAGE_TYPES: [&str; 4] = ["image/png", "image/jpeg", "image/gif", "image/webp"];

/// Code always stands in `<pre><code>`: right after `<pre>` HTML drops a line feed.
const PRE: &str = "<pre class=\"code\"><code>";
const END_PRE: &str = "</code></pre>";

/// Text as it is, in a fixed-width font.
pub(super) fn plain(html: &mut Html<'_>, text: &str) -> io::Result<()> {
    html.wrapped("<pre class=\"out\"><code>", text, END_PRE)
}

/// Prose as it is: a person's own line breaks.
pub(super) fn prose(html: &mut Html<'_>, text: &str) -> io::Result<()> {
    html.wrapped("<div class=\"prose\" dir=\"auto\">", text, "</div>")
}

pub(super) fn code(
    html: &mut Html<'_>,
    highlighter: &mut Highlighter,
    text: &str,
    language: Language<'_>,
) -> io::Result<()> {
    html.raw(PRE)?;
    highlighter.code(html, text, language)?;
    html.raw(END_PRE)
}

/// A fenced block of Markdown; `info` is what stands after the fence.
pub(super) fn fenced(
    html: &mut Html<'_>,
    highlighter: &mut Highlighter,
    info: &str,
    text: &str,
) -> io::Result<()> {
    match info.split_whitespace().next() {
        Some("diff" | "patch") => diff(html, text),
        _ => code(html, highlighter, text, Language::Named(info)),
    }
}

/// A diff: unified, or with a line number after the sign.
pub(super) fn diff(html: &mut Html<'_>, text: &str) -> io::Result<()> {
    html.raw("<pre class=\"code diff\"><code>")?;
    for line in text.split_inclusive('\n') {
        html.raw(match line.as_bytes() {
            [b'+', b'+', b'+', b' ', ..] | [b'-', b'-', b'-', b' ', ..] => "<span class=\"file\">",
            [b'+', ..] => "<span class=\"ins\">",
            [b'-', ..] => "<span class=\"del\">",
            [b'@', b'@', ..] => "<span class=\"hunk\">",
            _ => "<span>",
        })?;
        html.text(line)?;
        html.raw("</span>")?;
    }
    html.raw(END_PRE)
}

/// What was replaced by what, where there is no diff.
pub(super) fn replacement(html: &mut Html<'_>, old: &str, new: &str) -> io::Result<()> {
    html.raw("<pre class=\"code diff\"><code>")?;
    for (open, sign, text) in
        [("<span class=\"del\">", "-", old), ("<span class=\"ins\">", "+", new)]
    {
        for line in text.split_inclusive('\n') {
            html.raw(open)?;
            html.raw(sign)?;
            html.text(line)?;
            html.raw("</span>")?;
        }
    }
    html.raw(END_PRE)
}

pub(super) fn json(
    html: &mut Html<'_>,
    highlighter: &mut Highlighter,
    value: &Value,
) -> io::Result<()> {
    let text = serde_json::to_string_pretty(value).unwrap_or_else(|_| value.to_string());
    code(html, highlighter, &text, Language::Named("json"))
}

/// JSON text that may be damaged.
pub(super) fn raw_json(
    html: &mut Html<'_>,
    highlighter: &mut Highlighter,
    text: &str,
) -> io::Result<()> {
    match serde_json::from_str::<Value>(text) {
        Ok(value) => json(html, highlighter, &value),
        Err(_) => plain(html, text),
    }
}

/// JSON that is there for the curious.
pub(super) fn folded_json(
    html: &mut Html<'_>,
    highlighter: &mut Highlighter,
    title: &str,
    value: &Value,
) -> io::Result<()> {
    html.wrapped("<details class=\"fold\"><summary>", title, "</summary>")?;
    json(html, highlighter, value)?;
    html.raw("</details>")
}

pub(super) fn image(html: &mut Html<'_>, image: &ImageContent) -> io::Result<()> {
    // The type is written from the table, not from the session.
    let known = IMAGE_TYPES.iter().find(|known| known.eq_ignore_ascii_case(&image.mime_type));
    match known {
        Some(known) if is_base64(&image.data) => {
            html.raw("<img loading=\"lazy\" alt=\"Image of the conversation\" src=\"data:")?;
            html.raw(known)?;
            html.raw(";base64,")?;
            html.base64(&image.data)?;
            html.raw("\">")
        }
        _ => {
            let size = image.data.len();
            let text = match known {
                Some(_) => format!("[image: {size} characters that are no base64]"),
                None => format!("[image of type {}, {size} characters]", image.mime_type),
            };
            html.wrapped("<p class=\"muted\">", &text, "</p>")
        }
    }
}

/// Images of a message or a result.
pub(super) fn images(html: &mut Html<'_>, content: &[ContentBlock]) -> io::Result<()> {
    for block in content {
        if let ContentBlock::Image(content) = block {
            image(html, content)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod unit {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;

    fn written(write: impl FnOnce(&mut Html<'_>) -> io::Result<()>) -> String {
        let mut out = Vec::new();
        write(&mut Html::new(&mut out)).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn only_harmless_images_are_images() {
        for (mime_type, data, is_image) in [
            ("image/png", "iVBORw0KGgo=", true),
            ("IMAGE/JPEG", "/9j/4A+=", true),
            ("image/svg+xml", "PHN2Zz4=", false),
            ("text/html", "PGI+", false),
            ("image/png\" onload=\"x", "AA==", false),
            ("image/png", "AA==\" onload=\"x", false),
            ("image/png", "", false),
        ] {
            let content = ImageContent { data: data.to_owned(), mime_type: mime_type.to_owned() };
            let html = written(|html| image(html, &content));
            assert_eq!(html.starts_with("<img "), is_image, "{html}");
            assert!(!html.contains("onload=\""), "{html}");
        }
    }

    #[test]
    fn diffs() {
        let html = written(|html| diff(html, "--- a\n+++ a\n@@ -1 +1 @@\n-<x>\n+  1 y\n z"));
        assert_eq!(
            html,
            "<pre class=\"code diff\"><code><span class=\"file\">--- a\n</span><span class=\"file\">+++ a\n</span>\
             <span class=\"hunk\">@@ -1 +1 @@\n</span><span class=\"del\">-&lt;x&gt;\n</span>\
             <span class=\"ins\">+  1 y\n</span><span> z</span></code></pre>"
        );
    }
}
