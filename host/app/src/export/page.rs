//! The page around the entries: head, facts, toolbar, branches one after the other.

use std::io::{self, Write};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sha2::{Digest as _, Sha256};
use wharf_session::Session;

use super::entries::{self, Writer};
use super::highlight::Highlighter;
use super::html::{Html, anchor, dollars, grouped};
use super::layout::Layout;
use super::overview::Overview;
use super::sidebar;

const STYLE: &str = include_str!("style.css");
const SCRIPT: &str = include_str!("script.js");

pub(super) fn write(session: &Session, out: &mut dyn Write) -> io::Result<()> {
    let layout = Layout::new(session);
    let overview = Overview::new(session, &layout);
    let mut html = Html::new(out);
    head(&mut html, &overview.title)?;
    html.raw(
        "<body>\n<a class=\"skip\" href=\"#conversation\">Skip to the conversation</a>\n\
         <header class=\"page\">",
    )?;
    html.wrapped("<h1 dir=\"auto\">", &overview.title, "</h1>\n")?;
    facts(&mut html, session, &layout, &overview)?;
    html.raw("</header>\n")?;
    html.raw(TOOLBAR)?;
    html.raw("<div class=\"columns\">\n")?;
    sidebar::write(&mut html, &layout, &overview)?;
    Branches { layout: &layout, overview: &overview }.write(&mut html)?;
    html.raw("</div>\n<footer>Exported by Wharf ")?;
    html.raw(env!("CARGO_PKG_VERSION"))?;
    html.raw("<span class=\"keys\"> · Keys: <kbd>j</kbd> <kbd>k</kbd> next and previous entry, <kbd>/</kbd> search, <kbd>Esc</kbd> end of search</span></footer>\n")?;
    html.raw("<output id=\"toast\" hidden></output>\n</body>\n</html>\n")
}

const TOOLBAR: &str = "<div class=\"toolbar\" role=\"search\">\
    <button type=\"button\" id=\"show-outline\" aria-controls=\"outline\">Outline</button>\
    <input type=\"search\" id=\"search\" placeholder=\"Search\" aria-label=\"Search the session\">\
    <output id=\"found\" for=\"search\"></output>\
    <button type=\"button\" id=\"search-next\" hidden>Next</button>\
    <span class=\"gap\"></span>\
    <button type=\"button\" id=\"expand-tools\" aria-pressed=\"false\">Expand tools</button>\
    <button type=\"button\" id=\"expand-thinking\" aria-pressed=\"false\">Expand thinking</button>\
    <button type=\"button\" id=\"theme\">Theme: auto</button>\
    </div>\n";

fn head(html: &mut Html<'_>, title: &str) -> io::Result<()> {
    html.raw("<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n")?;
    // Nothing is loaded, and nothing runs but the script below.
    let policy = format!(
        "default-src 'none'; style-src 'sha256-{}'; script-src 'sha256-{}'; img-src data:; \
         base-uri 'none'; form-action 'none'",
        hash(STYLE),
        hash(SCRIPT),
    );
    html.wrapped("<meta http-equiv=\"Content-Security-Policy\" content=\"", &policy, "\">\n")?;
    html.raw(
        "<meta name=\"referrer\" content=\"no-referrer\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n",
    )?;
    html.wrapped("<title>", title, "</title>\n")?;
    html.raw("<style>")?;
    html.raw(STYLE)?;
    html.raw("</style>\n<script>")?;
    html.raw(SCRIPT)?;
    html.raw("</script>\n</head>\n")
}

/// As a Content-Security-Policy names an inline style or script.
fn hash(text: &str) -> String {
    STANDARD.encode(Sha256::digest(text.as_bytes()))
}

fn fact(html: &mut Html<'_>, name: &'static str, value: &str) -> io::Result<()> {
    html.wrapped("<div><dt>", name, "</dt>")?;
    html.wrapped("<dd>", value, "</dd></div>")
}

fn facts(
    html: &mut Html<'_>,
    session: &Session,
    layout: &Layout,
    overview: &Overview,
) -> io::Result<()> {
    let header = session.header();
    html.raw("<dl>")?;
    if !header.cwd.as_os_str().is_empty() {
        fact(html, "Folder", &header.cwd.to_string_lossy())?;
    }
    html.raw("<div><dt>Started</dt><dd>")?;
    entries::time(html, header.timestamp)?;
    html.raw(" UTC</dd></div>")?;
    if let Some(last) = overview.last {
        html.raw("<div><dt>Last entry</dt><dd>")?;
        entries::time(html, last)?;
        html.raw(" UTC</dd></div>")?;
    }
    let mut models: Vec<String> =
        overview.models.iter().map(|(model, replies)| format!("{model} ({replies})")).collect();
    if overview.other_replies > 0 {
        models.push(format!("others ({})", overview.other_replies));
    }
    if !models.is_empty() {
        fact(html, "Models", &models.join(", "))?;
    }
    let counts = format!(
        "{}: {} prompts, {} replies, {} tool calls",
        overview.messages, overview.prompts, overview.replies, overview.tool_calls
    );
    fact(html, "Messages", &counts)?;
    if layout.chains.len() > 1 {
        fact(html, "Branches", &layout.chains.len().to_string())?;
    }
    let usage = &overview.usage;
    let tokens = format!(
        "{} in, {} out, {} read from cache, {} written to it",
        grouped(usage.input),
        grouped(usage.output),
        grouped(usage.cache_read),
        grouped(usage.cache_write),
    );
    fact(html, "Tokens", &tokens)?;
    fact(html, "Cost", &dollars(usage.cost.total))?;
    if let Some(agent) = &header.agent_type {
        fact(html, "Agent", agent)?;
    }
    if let Some(parent) = &header.parent_session {
        fact(html, "Parent session", parent)?;
    }
    fact(html, "Session", &header.id)?;
    if !session.warnings().is_empty() {
        let text = format!("{} problems in the session file", session.warnings().total());
        fact(html, "Damage", &text)?;
    }
    html.raw("</dl>\n")
}

struct Branches<'a> {
    layout: &'a Layout,
    overview: &'a Overview,
}

impl Branches<'_> {
    fn write(&self, html: &mut Html<'_>) -> io::Result<()> {
        let layout = self.layout;
        let mut highlighter = Highlighter::new();
        html.raw("<main id=\"conversation\" tabindex=\"-1\">\n<p id=\"elsewhere\" hidden>This is not the current branch. <a href=\"#\">Back to the current branch</a></p>\n")?;
        if layout.nodes.is_empty() {
            html.raw("<p class=\"muted\">This session has no entries.</p>\n")?;
        }
        if let [_, _, ..] = layout.roots.as_slice() {
            self.forks(html, "separate trees in this session", None, &layout.roots)?;
        }
        for (chain, segments) in layout.chains.iter().map(|c| c.segments.clone()).enumerate() {
            for segment in segments.clone() {
                self.open_segment(html, segment)?;
                if chain > 0 && segment == segments.start {
                    self.branch_head(html, chain)?;
                }
                Writer::new(html, &mut highlighter, layout).segment(segment)?;
                let this = &layout.segments[segment];
                if !this.branches.is_empty() {
                    let title = match this.next {
                        Some(_) => "ways on from here",
                        None => "ways on from the current leaf",
                    };
                    self.forks(html, title, this.next, &this.branches)?;
                }
                html.raw("</section>\n")?;
            }
        }
        html.raw("</main>\n")
    }

    /// The script finds its way through the tree by the numbers: of the segment, of the
    /// one before, and of the one after it.
    fn open_segment(&self, html: &mut Html<'_>, segment: usize) -> io::Result<()> {
        let this = &self.layout.segments[segment];
        html.raw(if this.current {
            "<section class=\"seg on\""
        } else {
            "<section class=\"seg\""
        })?;
        html.raw(" data-seg=\"")?;
        html.number(segment)?;
        for (open, other) in [("\" data-prev=\"", this.parent), ("\" data-next=\"", this.next)] {
            if let Some(other) = other {
                html.raw(open)?;
                html.number(other)?;
            }
        }
        html.raw("\">\n")
    }

    /// Only seen where all branches stand one after the other.
    fn branch_head(&self, html: &mut Html<'_>, chain: usize) -> io::Result<()> {
        html.raw("<h2 class=\"branch-head\">Branch ")?;
        html.number(chain)?;
        if let Some(parent) = self.layout.chains[chain].parent
            && let Some(place) = self.layout.places(parent).last()
        {
            html.raw(", after ")?;
            self.link(html, *place, "this entry")?;
        }
        html.raw("</h2>\n")
    }

    /// The ways on from a branch point.
    fn forks(
        &self,
        html: &mut Html<'_>,
        title: &'static str,
        next: Option<usize>,
        chains: &[usize],
    ) -> io::Result<()> {
        let layout = self.layout;
        let count = chains.len() + usize::from(next.is_some());
        html.raw("<div class=\"forks\"><span>")?;
        html.number(count)?;
        html.raw(" ")?;
        html.raw(title)?;
        html.raw("</span><ul>")?;
        let next = next.into_iter().map(|segment| (None, segment));
        let others =
            chains.iter().map(|chain| (Some(*chain), layout.chains[*chain].segments.start));
        for (chain, segment) in next.chain(others) {
            html.raw("<li data-to=\"")?;
            html.number(segment)?;
            html.raw("\">")?;
            if let Some(chain) = chain.filter(|chain| *chain > 0) {
                html.raw("<span class=\"muted\">Branch ")?;
                html.number(chain)?;
                html.raw("</span> ")?;
            }
            let places = layout.places(segment);
            // A prompt tells more than a model change before it.
            let told = places.iter().find_map(|place| Some((*place, self.overview.line(*place)?)));
            match told {
                Some((_, line)) => self.link(html, places[0], &line.text)?,
                None => self.link(html, places[0], "goes on")?,
            }
            html.raw("</li>")?;
        }
        html.raw("</ul></div>\n")
    }

    fn link(&self, html: &mut Html<'_>, place: usize, text: &str) -> io::Result<()> {
        let anchor = anchor(self.layout.entry(place).id().as_str(), place);
        html.wrapped("<a href=\"#", &anchor, "\">")?;
        html.wrapped("<bdi>", text, "</bdi></a>")
    }
}
