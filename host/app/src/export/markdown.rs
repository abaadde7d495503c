//! Markdown to HTML with a fixed set of elements. Raw HTML stays text, images become
//! links, and links lead nowhere but to web pages and mail addresses.

use std::io;

use pulldown_cmark::{CodeBlockKind, Event, HeadingLevel, Options, Parser, Tag, TagEnd};

use super::blocks;
use super::highlight::Highlighter;
use super::html::Html;

/// Longer texts, in bytes, are shown as they are.
const MAX_TEXT: usize = 1_000_000;
/// Deeper quotes and lists don't indent further: browsers stop at some 500 elements.
const MAX_DEPTH: usize = 24;

pub(super) fn write(
    html: &mut Html<'_>,
    highlighter: &mut Highlighter,
    text: &str,
) -> io::Result<()> {
    if text.len() > MAX_TEXT {
        return blocks::plain(html, text);
    }
    html.raw("<div class=\"md\" dir=\"auto\">")?;
    let options =
        Options::ENABLE_TABLES | Options::ENABLE_STRIKETHROUGH | Options::ENABLE_TASKLISTS;
    let mut writer = Writer { html, highlighter, open: Vec::new(), in_head: false, code: None };
    for event in Parser::new_ext(text, options) {
        writer.event(event)?;
    }
    html.raw("</div>")
}

struct Writer<'w, 'out> {
    html: &'w mut Html<'out>,
    highlighter: &'w mut Highlighter,
    /// What closes the open elements; empty for one that was not written.
    open: Vec<&'static str>,
    in_head: bool,
    /// Language and text of the code block that is being read.
    code: Option<(String, String)>,
}

impl Writer<'_, '_> {
    fn event(&mut self, event: Event<'_>) -> io::Result<()> {
        match event {
            Event::Start(tag) => self.start(tag),
            Event::End(TagEnd::CodeBlock) => match self.code.take() {
                Some((language, code)) => {
                    blocks::fenced(self.html, self.highlighter, &language, &code)
                }
                None => Ok(()),
            },
            Event::End(_) => {
                let close = self.open.pop().unwrap_or_default();
                if close == HEAD_END {
                    self.in_head = false;
                }
                self.html.raw(close)
            }
            Event::Text(text) | Event::Html(text) | Event::InlineHtml(text) => match &mut self.code
            {
                Some((_, code)) => {
                    code.push_str(&text);
                    Ok(())
                }
                None => self.html.text(&text),
            },
            Event::Code(text) => self.html.wrapped("<code>", &text, "</code>"),
            Event::SoftBreak => self.html.raw("\n"),
            Event::HardBreak => self.html.raw("<br>"),
            Event::Rule => self.html.raw("<hr>"),
            Event::TaskListMarker(done) => self.html.raw(if done { "☑ " } else { "☐ " }),
            // Not switched on; shown as text if they were.
            Event::InlineMath(text) | Event::DisplayMath(text) | Event::FootnoteReference(text) => {
                self.html.text(&text)
            }
        }
    }

    fn start(&mut self, tag: Tag<'_>) -> io::Result<()> {
        let (open, close) = match tag {
            Tag::CodeBlock(kind) => {
                let language = match kind {
                    CodeBlockKind::Fenced(language) => language.into_string(),
                    CodeBlockKind::Indented => String::new(),
                };
                self.code = Some((language, String::new()));
                return Ok(());
            }
            Tag::Link { dest_url, .. } => return self.link(&dest_url),
            Tag::Image { dest_url, .. } => {
                self.html.raw("<span class=\"pic\">🖼</span> ")?;
                return self.link(&dest_url);
            }
            Tag::List(Some(first)) if self.open.len() < MAX_DEPTH => {
                self.html.raw("<ol start=\"")?;
                self.html.text(&first.to_string())?;
                ("\">", "</ol>")
            }
            Tag::List(None) => ("<ul>", "</ul>"),
            Tag::Item => ("<li>", "</li>"),
            Tag::Paragraph => ("<p>", "</p>"),
            // The page has its own h1 and h2.
            Tag::Heading { level, .. } => match level {
                HeadingLevel::H1 => ("<h3>", "</h3>"),
                HeadingLevel::H2 => ("<h4>", "</h4>"),
                HeadingLevel::H3 => ("<h5>", "</h5>"),
                HeadingLevel::H4 | HeadingLevel::H5 | HeadingLevel::H6 => ("<h6>", "</h6>"),
            },
            Tag::BlockQuote(_) => ("<blockquote>", "</blockquote>"),
            Tag::Table(_) => ("<div class=\"table\"><table>", "</table></div>"),
            Tag::TableHead => {
                self.in_head = true;
                ("<thead><tr>", HEAD_END)
            }
            Tag::TableRow => ("<tr>", "</tr>"),
            Tag::TableCell if self.in_head => ("<th>", "</th>"),
            Tag::TableCell => ("<td>", "</td>"),
            Tag::Emphasis => ("<em>", "</em>"),
            Tag::Strong => ("<strong>", "</strong>"),
            Tag::Strikethrough => ("<del>", "</del>"),
            Tag::List(Some(_))
            | Tag::HtmlBlock
            | Tag::FootnoteDefinition(_)
            | Tag::DefinitionList
            | Tag::DefinitionListTitle
            | Tag::DefinitionListDefinition
            | Tag::Superscript
            | Tag::Subscript
            | Tag::MetadataBlock(_) => ("", ""),
        };
        if self.open.len() >= MAX_DEPTH {
            self.open.push("");
            // Texts that would stand in different blocks still do.
            return self.html.raw(" ");
        }
        self.open.push(close);
        self.html.raw(open)
    }

    fn link(&mut self, url: &str) -> io::Result<()> {
        // Links hold no links; a picture in one would be.
        let inside = self.open.contains(&END_LINK);
        if inside || self.open.len() >= MAX_DEPTH || !is_safe_url(url) {
            self.open.push("");
            return Ok(());
        }
        self.open.push(END_LINK);
        self.html.raw("<a rel=\"noopener noreferrer\" href=\"")?;
        self.html.text(url)?;
        self.html.raw("\">")
    }
}

const HEAD_END: &str = "</tr></thead>";
const END_LINK: &str = "</a>";

fn is_safe_url(url: &str) -> bool {
    // Browsers skip some controls and blanks; an address has none.
    if url.contains(|c: char| c.is_control() || c.is_whitespace()) {
        return false;
    }
    ["http://", "https://", "mailto:"].iter().any(|scheme| {
        url.get(..scheme.len()).is_some_and(|start| start.eq_ignore_ascii_case(scheme))
    })
}

#[cfg(test)]
mod unit {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;

    fn rendered(text: &str) -> String {
        let mut out = Vec::new();
        write(&mut Html::new(&mut out), &mut Highlighter::new(), text).unwrap();
        let html = String::from_utf8(out).unwrap();
        let inner = html.strip_prefix("<div class=\"md\" dir=\"auto\">").unwrap();
        inner.strip_suffix("</div>").unwrap().to_owned()
    }

    #[test]
    fn elements() {
        for (text, expect) in [
            (
                "a *b* **c** ~~d~~ `e<`",
                "<p>a <em>b</em> <strong>c</strong> <del>d</del> <code>e&lt;</code></p>",
            ),
            ("# T\n\n- a\n- b\n", "<h3>T</h3><ul><li>a</li><li>b</li></ul>"),
            ("7. a\n", "<ol start=\"7\"><li>a</li></ol>"),
            ("- [x] a\n", "<ul><li>☑ a</li></ul>"),
            (
                "|a|\n|-|\n|b|\n",
                "<div class=\"table\"><table><thead><tr><th>a</th></tr></thead><tr><td>b</td></tr></table></div>",
            ),
            ("> a\n\n---", "<blockquote><p>a</p></blockquote><hr>"),
            ("    <x>\n", "<pre class=\"code\"><code>&lt;x&gt;\n</code></pre>"),
        ] {
            assert_eq!(rendered(text), expect, "{text}");
        }
    }

    #[test]
    fn hostile_text_stays_text() {
        for (text, expect) in [
            ("<script>alert(1)</script>", "&lt;script&gt;alert(1)&lt;/script&gt;"),
            ("a <img src=x onerror=alert(1)>", "<p>a &lt;img src=x onerror=alert(1)&gt;</p>"),
            ("[a](javascript:alert(1))", "<p>a</p>"),
            ("[a](JaVaScRiPt&#58;alert(1))", "<p>a</p>"),
            ("[a](data:text/html,<b>)", "<p>a</p>"),
            ("[a](//host/x)", "<p>a</p>"),
            ("[a](#entry-b)", "<p>a</p>"),
            (
                "[a](https://h/\"onclick=x)",
                "<p><a rel=\"noopener noreferrer\" href=\"https://h/&quot;onclick=x\">a</a></p>",
            ),
            (
                "![a](http://h/p.png)",
                "<p><span class=\"pic\">🖼</span> <a rel=\"noopener noreferrer\" href=\"http://h/p.png\">a</a></p>",
            ),
            (
                "[![a](http://h/p.png)](http://i/)",
                "<p><a rel=\"noopener noreferrer\" href=\"http://i/\"><span class=\"pic\">🖼</span> a</a></p>",
            ),
            (
                "<HTTPS://H/>",
                "<p><a rel=\"noopener noreferrer\" href=\"HTTPS://H/\">HTTPS://H/</a></p>",
            ),
        ] {
            assert_eq!(rendered(text), expect, "{text}");
        }
    }

    #[test]
    fn depth_is_bounded() {
        let html = rendered(&format!("{} deep", ">".repeat(5000)));
        assert_eq!(html.matches("<blockquote>").count(), MAX_DEPTH);
        assert_eq!(html.matches("</blockquote>").count(), MAX_DEPTH);
        assert!(html.contains("deep"));
    }
}
