//! The outline at the side of the page: bookmarks, and the tree of branches. Only branch
//! points indent; nothing here recurses.

use std::io;

use super::html::{Html, anchor};
use super::layout::Layout;
use super::overview::{LineKind, Overview};

/// Deeper branches don't indent: browsers stop at some 500 nested elements.
const MAX_DEPTH: usize = 32;

pub(super) fn write(html: &mut Html<'_>, layout: &Layout, overview: &Overview) -> io::Result<()> {
    html.raw(
        "<nav id=\"outline\" aria-label=\"Outline\"><details open><summary>Outline</summary>",
    )?;
    Sidebar { html, layout, overview }.write()?;
    html.raw("</details></nav>\n")
}

struct Sidebar<'w, 'out> {
    html: &'w mut Html<'out>,
    layout: &'w Layout,
    overview: &'w Overview,
}

/// A chain that is being written: the branch that comes next.
struct Open {
    chain: usize,
    segment: usize,
    branch: usize,
    close: &'static str,
}

impl Sidebar<'_, '_> {
    fn write(&mut self) -> io::Result<()> {
        self.bookmarks()?;
        let mut stack: Vec<Open> = Vec::new();
        for root in &self.layout.roots {
            stack.push(self.open(*root, 0)?);
            while let Some(open) = stack.last_mut() {
                let segments = &self.layout.chains[open.chain].segments;
                if open.segment == segments.end {
                    self.html.raw(open.close)?;
                    stack.pop();
                    continue;
                }
                let (segment, branch) = (open.segment, open.branch);
                if branch == 0 {
                    self.segment(segment)?;
                }
                match self.layout.segments[segment].branches.get(branch) {
                    Some(chain) => {
                        open.branch += 1;
                        let depth = stack.len();
                        stack.push(self.open(*chain, depth)?);
                    }
                    None => {
                        open.segment += 1;
                        open.branch = 0;
                    }
                }
            }
        }
        Ok(())
    }

    fn bookmarks(&mut self) -> io::Result<()> {
        let nodes = self.layout.nodes.iter().enumerate();
        let mut labelled = nodes.filter(|(_, node)| node.label.is_some()).peekable();
        if labelled.peek().is_none() {
            return Ok(());
        }
        self.html.raw("<h2>Bookmarks</h2><ul class=\"bookmarks\">")?;
        for (place, node) in labelled {
            self.html.raw("<li>")?;
            self.link(place, node.label.as_deref().unwrap_or_default())?;
            self.html.raw("</li>")?;
        }
        self.html.raw("</ul><h2>Conversation</h2>")
    }

    /// Starts a chain that leaves another one, or the first.
    fn open(&mut self, chain: usize, depth: usize) -> io::Result<Open> {
        let segment = self.layout.chains[chain].segments.start;
        let close = if chain == 0 {
            ""
        } else if depth < MAX_DEPTH {
            self.html.raw("<details class=\"branch\" open><summary>")?;
            self.branch_title(chain)?;
            self.html.raw("</summary>")?;
            "</details>"
        } else {
            self.html.raw("<p class=\"branch\">")?;
            self.branch_title(chain)?;
            self.html.raw("</p>")?;
            ""
        };
        Ok(Open { chain, segment, branch: 0, close })
    }

    fn branch_title(&mut self, chain: usize) -> io::Result<()> {
        self.html.raw("<span class=\"muted\">Branch </span>")?;
        self.html.number(chain)
    }

    fn segment(&mut self, segment: usize) -> io::Result<()> {
        let layout = self.layout;
        let mut open = false;
        for place in layout.places(segment) {
            let Some(line) = self.overview.line(*place) else { continue };
            if !std::mem::replace(&mut open, true) {
                self.html.raw("<ol data-seg=\"")?;
                self.html.number(segment)?;
                self.html.raw("\">")?;
            }
            self.html.raw(match line.kind {
                LineKind::Prompt => "<li class=\"prompt\">",
                LineKind::Summary => "<li class=\"summary\">",
                LineKind::Other => "<li>",
            })?;
            self.link(*place, &line.text)?;
            if let Some(label) = &layout.nodes[*place].label {
                self.html.wrapped(" <span class=\"label\">", label, "</span>")?;
            }
            if layout.leaf == Some(*place) {
                self.html.raw(" <span class=\"leaf\">current leaf</span>")?;
            }
            self.html.raw("</li>")?;
        }
        if open { self.html.raw("</ol>") } else { Ok(()) }
    }

    fn link(&mut self, place: usize, text: &str) -> io::Result<()> {
        let anchor = anchor(self.layout.entry(place).id().as_str(), place);
        self.html.wrapped("<a href=\"#", &anchor, "\">")?;
        self.html.wrapped("<bdi>", text, "</bdi></a>")
    }
}
