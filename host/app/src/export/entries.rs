//! One entry after the other: messages, cards, and small lines. The tree is not
//! known here, but for the segment that is being written.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::io;

use serde_json::Value;
use wharf_protocol::message::{BashExecutionMessage, joined_text};
use wharf_protocol::{
    AgentMessage, AssistantContent, AssistantMessage, ContentBlock, StopReason, ThinkingContent,
    ToolResultMessage, UserContent,
};
use wharf_session::{EntryKind, Timestamp};

use super::blocks;
use super::highlight::{Highlighter, Language};
use super::html::{Html, anchor, dollars, grouped, has_own_anchor, snippet};
use super::layout::Layout;
use super::markdown;
use super::overview::model_name;
use super::tools::{self, Answer};

/// Entries that are looked at for the results of a reply's calls.
const MAX_LOOK_AHEAD: usize = 256;
/// Characters of an id that no program writes.
const MAX_ID: usize = 40;

pub(super) struct Writer<'w, 'out> {
    pub(super) html: &'w mut Html<'out>,
    pub(super) highlighter: &'w mut Highlighter,
    pub(super) layout: &'w Layout,
    /// The model of the reply before, whose name isn't repeated.
    model: Option<String>,
}

/// An entry that was parsed ahead of its turn.
struct Parsed<'w> {
    place: usize,
    kind: Cow<'w, EntryKind>,
}

impl Parsed<'_> {
    fn result(&self) -> Option<&ToolResultMessage> {
        match self.kind.as_ref() {
            EntryKind::Message(message) => match message.as_ref() {
                AgentMessage::ToolResult(result) => Some(result),
                _ => None,
            },
            _ => None,
        }
    }
}

/// Entries of a segment, with those that were parsed ahead.
struct Reader<'w> {
    layout: &'w Layout,
    places: &'w [usize],
    ahead: VecDeque<Parsed<'w>>,
}

impl<'w> Reader<'w> {
    fn read(&mut self) -> Option<Parsed<'w>> {
        let (place, rest) = self.places.split_first()?;
        self.places = rest;
        Some(Parsed { place: *place, kind: self.layout.entry(*place).kind_once() })
    }

    fn next(&mut self) -> Option<Parsed<'w>> {
        self.ahead.pop_front().or_else(|| self.read())
    }

    /// The results of the calls of a reply, in the order of the calls.
    fn results(&mut self, reply: &AssistantMessage) -> Vec<Option<Parsed<'w>>> {
        let calls: Vec<&str> = reply.tool_calls().map(|call| call.id.as_str()).collect();
        let mut results: Vec<Option<Parsed<'w>>> = calls.iter().map(|_| None).collect();
        let mut missing = calls.len();
        let mut passed = VecDeque::new();
        while missing > 0
            && passed.len() < MAX_LOOK_AHEAD
            && let Some(parsed) = self.next()
        {
            if is_turn(&parsed.kind) {
                passed.push_back(parsed);
                break;
            }
            let id = parsed.result().map(|result| result.tool_call_id.as_str());
            // Damaged files may have two calls of one id.
            let call = (0..calls.len()).find(|i| id == Some(calls[*i]) && results[*i].is_none());
            match call {
                Some(call) => {
                    results[call] = Some(parsed);
                    missing -= 1;
                }
                None => passed.push_back(parsed),
            }
        }
        passed.append(&mut self.ahead);
        self.ahead = passed;
        results
    }
}

/// Whether this entry starts something new: results of earlier calls come before it.
fn is_turn(kind: &EntryKind) -> bool {
    match kind {
        EntryKind::Message(message) => {
            matches!(message.as_ref(), AgentMessage::User(_) | AgentMessage::Assistant(_))
        }
        _ => false,
    }
}

/// What stands in the frame of an entry.
#[derive(Clone, Copy)]
struct Frame<'a> {
    place: usize,
    /// `<article class="..."`, still open.
    open: &'static str,
    who: &'a str,
    /// For example a reply's model.
    what: &'a str,
}

impl<'w, 'out> Writer<'w, 'out> {
    pub(super) fn new(
        html: &'w mut Html<'out>,
        highlighter: &'w mut Highlighter,
        layout: &'w Layout,
    ) -> Self {
        Self { html, highlighter, layout, model: None }
    }

    pub(super) fn segment(&mut self, segment: usize) -> io::Result<()> {
        let layout = self.layout;
        let mut reader = Reader { layout, places: layout.places(segment), ahead: VecDeque::new() };
        self.model = None;
        while let Some(parsed) = reader.next() {
            if layout.is_severed(parsed.place) {
                self.html.raw(
                    "<p class=\"note warn\">The entry before this one is lost. What follows \
                     comes after it in the session file.</p>",
                )?;
            }
            self.entry(&parsed, &mut reader)?;
        }
        Ok(())
    }

    fn entry(&mut self, parsed: &Parsed<'w>, reader: &mut Reader<'w>) -> io::Result<()> {
        let place = parsed.place;
        match parsed.kind.as_ref() {
            EntryKind::Message(message) => match message.as_ref() {
                AgentMessage::Assistant(reply) => {
                    let results = reader.results(reply);
                    self.reply(place, reply, &results)
                }
                message => {
                    self.model = None;
                    self.message(place, message)
                }
            },
            EntryKind::ModelChange(change) => {
                let model = model_name(&change.provider, &change.model_id);
                self.note(place, "Model", &model)
            }
            EntryKind::ThinkingLevelChange(change) => {
                self.note(place, "Thinking level", change.thinking_level.as_str())
            }
            EntryKind::SessionInfo(info) => match info.name.as_deref() {
                Some(name) if !name.trim().is_empty() => self.note(place, "Session name", name),
                _ => self.note(place, "Session name", "cleared"),
            },
            EntryKind::Label(label) => self.label(place, &label.target_id, label.label.as_deref()),
            EntryKind::Compaction(compaction) => {
                let details = compaction.details.as_ref();
                self.compaction(place, &compaction.summary, compaction.tokens_before, details)
            }
            EntryKind::BranchSummary(branch) => {
                self.branch_summary(place, &branch.summary, branch.details.as_ref())
            }
            EntryKind::CustomMessage(custom) => self.custom(
                place,
                &custom.custom_type,
                &custom.content,
                custom.display,
                custom.details.as_ref(),
            ),
            EntryKind::Custom(custom) => {
                let title = format!("State of extension {}", custom.custom_type);
                self.folded(place, &title, |this| match &custom.data {
                    Some(data) => blocks::json(this.html, this.highlighter, data),
                    None => this.html.raw("<p class=\"muted\">no data</p>"),
                })
            }
            EntryKind::Unknown(raw) => {
                let title = format!("Unknown entry {}", type_name(raw.get()));
                self.folded(place, &title, |this| {
                    blocks::raw_json(this.html, this.highlighter, raw.get())
                })
            }
        }
    }

    fn message(&mut self, place: usize, message: &AgentMessage) -> io::Result<()> {
        match message {
            AgentMessage::User(user) => {
                let frame = Frame { place, open: USER, who: "User", what: "" };
                self.framed(frame, |this| match &user.content {
                    UserContent::Text(text) => blocks::prose(this.html, text),
                    UserContent::Blocks(content) => {
                        for block in content {
                            match block {
                                ContentBlock::Text(text) => blocks::prose(this.html, &text.text)?,
                                ContentBlock::Image(image) => blocks::image(this.html, image)?,
                            }
                        }
                        Ok(())
                    }
                })
            }
            AgentMessage::ToolResult(result) => {
                let frame = Frame { place, open: ASSISTANT, who: "Tool result", what: "" };
                self.framed(frame, |this| tools::lone_result(this.html, this.highlighter, result))
            }
            AgentMessage::BashExecution(run) => self.bash(place, run),
            AgentMessage::Custom(custom) => self.custom(
                place,
                &custom.custom_type,
                &custom.content,
                custom.display,
                custom.details.as_ref(),
            ),
            AgentMessage::BranchSummary(branch) => {
                self.branch_summary(place, &branch.summary, None)
            }
            AgentMessage::CompactionSummary(compaction) => {
                self.compaction(place, &compaction.summary, compaction.tokens_before, None)
            }
            // Written with the results of its calls.
            AgentMessage::Assistant(reply) => self.reply(place, reply, &[]),
        }
    }

    fn reply(
        &mut self,
        place: usize,
        reply: &AssistantMessage,
        results: &[Option<Parsed<'w>>],
    ) -> io::Result<()> {
        let model = model_name(&reply.provider, &reply.model);
        // Marks stand in the head, which is only seen at times where a reply goes on.
        let marked = self.layout.nodes[place].label.is_some() || self.layout.leaf == Some(place);
        let goes_on = !marked && self.model.as_ref() == Some(&model);
        let frame = Frame {
            place,
            open: if goes_on { ASSISTANT_GOES_ON } else { ASSISTANT },
            who: "Assistant",
            what: &model,
        };
        self.framed(frame, |this| {
            let mut results = results.iter();
            for block in &reply.content {
                match block {
                    AssistantContent::Text(text) if text.text.trim().is_empty() => {}
                    AssistantContent::Text(text) => {
                        markdown::write(this.html, this.highlighter, &text.text)?;
                    }
                    AssistantContent::Thinking(thinking) => this.thinking(thinking)?,
                    AssistantContent::ToolCall(call) => {
                        let parsed = results.next().and_then(Option::as_ref);
                        let answer = parsed.and_then(|parsed| {
                            let result = parsed.result()?;
                            Some(Answer { result, anchor: this.anchor(parsed.place) })
                        });
                        tools::call(this.html, this.highlighter, call, answer.as_ref())?;
                    }
                }
            }
            this.end_of_reply(reply)
        })?;
        self.model = Some(model);
        Ok(())
    }

    fn thinking(&mut self, thinking: &ThinkingContent) -> io::Result<()> {
        if thinking.redacted {
            return self.html.raw("<p class=\"muted\">Thinking, encrypted by the provider</p>");
        }
        if thinking.thinking.trim().is_empty() {
            return Ok(());
        }
        self.html.raw("<details class=\"thinking\"><summary>Thinking</summary>")?;
        markdown::write(self.html, self.highlighter, &thinking.thinking)?;
        self.html.raw("</details>")
    }

    /// How the reply ended, and what it cost.
    fn end_of_reply(&mut self, reply: &AssistantMessage) -> io::Result<()> {
        match reply.stop_reason {
            StopReason::Stop | StopReason::ToolUse => {}
            StopReason::Length => self
                .html
                .raw("<p class=\"end\"><b>Cut off:</b> the reply reached its token limit</p>")?,
            StopReason::Aborted => {
                self.html.raw("<p class=\"end\"><b>Aborted</b>")?;
                self.error_text(reply)?;
            }
            StopReason::Error => {
                self.html.raw("<p class=\"end bad\"><b>Failed</b>")?;
                self.error_text(reply)?;
            }
        }
        let usage = &reply.usage;
        let input = usage.input.saturating_add(usage.cache_read).saturating_add(usage.cache_write);
        if input == 0 && usage.output == 0 {
            return Ok(());
        }
        let mut text = format!("{} in · {} out", grouped(input), grouped(usage.output));
        if usage.cost.total > 0.0 {
            text.push_str(&format!(" · {}", dollars(usage.cost.total)));
        }
        self.html.wrapped("<p class=\"usage\">", &text, "</p>")
    }

    fn error_text(&mut self, reply: &AssistantMessage) -> io::Result<()> {
        if let Some(error) = &reply.error_message {
            self.html.wrapped(": ", error, "")?;
        }
        self.html.raw("</p>")
    }

    fn bash(&mut self, place: usize, run: &BashExecutionMessage) -> io::Result<()> {
        let what = match run.exclude_from_context {
            Some(true) => "not seen by the model",
            _ => "",
        };
        self.framed(Frame { place, open: BASH, who: "Command", what }, |this| {
            blocks::code(this.html, this.highlighter, &run.command, Language::Named("bash"))?;
            if run.output.is_empty() {
                this.html.raw("<p class=\"muted\">no output</p>")?;
            } else {
                blocks::plain(this.html, &run.output)?;
            }
            if run.cancelled {
                this.html.raw("<p class=\"end\"><b>Cancelled</b></p>")?;
            }
            if let Some(code) = run.exit_code.filter(|code| *code != 0) {
                let text = format!("exit code {code}");
                this.html.wrapped("<p class=\"end bad\">", &text, "</p>")?;
            }
            if run.truncated {
                let text = match &run.full_output_path {
                    Some(path) => format!("The output is cut; all of it went to {path}"),
                    None => "The output is cut".to_owned(),
                };
                this.html.wrapped("<p class=\"muted\">", &text, "</p>")?;
            }
            Ok(())
        })
    }

    fn custom(
        &mut self,
        place: usize,
        custom_type: &str,
        content: &UserContent,
        display: bool,
        details: Option<&Value>,
    ) -> io::Result<()> {
        self.model = None;
        let body = |this: &mut Self| {
            match content {
                UserContent::Text(text) => markdown::write(this.html, this.highlighter, text)?,
                UserContent::Blocks(content) => {
                    markdown::write(this.html, this.highlighter, &joined_text(content))?;
                    blocks::images(this.html, content)?;
                }
            }
            this.details(details)
        };
        if display {
            let frame = Frame { place, open: CUSTOM, who: "Extension", what: custom_type };
            return self.framed(frame, body);
        }
        self.folded(place, &format!("Hidden message of extension {custom_type}"), body)
    }

    fn compaction(
        &mut self,
        place: usize,
        summary: &str,
        tokens: u64,
        details: Option<&Value>,
    ) -> io::Result<()> {
        self.model = None;
        let what = match tokens {
            0 => "earlier messages became a summary".to_owned(),
            tokens => format!("{} tokens became a summary", grouped(tokens)),
        };
        let frame = Frame { place, open: CARD, who: "Compaction", what: &what };
        self.framed(frame, |this| this.summary(summary, details))
    }

    fn branch_summary(
        &mut self,
        place: usize,
        summary: &str,
        details: Option<&Value>,
    ) -> io::Result<()> {
        self.model = None;
        let what = "what the branch that was left had come to";
        let frame = Frame { place, open: CARD, who: "Branch summary", what };
        self.framed(frame, |this| this.summary(summary, details))
    }

    fn summary(&mut self, summary: &str, details: Option<&Value>) -> io::Result<()> {
        self.html.raw("<details class=\"fold\" open><summary>Summary</summary>")?;
        markdown::write(self.html, self.highlighter, summary)?;
        self.html.raw("</details>")?;
        self.details(details)
    }

    fn details(&mut self, details: Option<&Value>) -> io::Result<()> {
        match details.filter(|details| !details.is_null()) {
            Some(details) => blocks::folded_json(self.html, self.highlighter, "details", details),
            None => Ok(()),
        }
    }

    /// A small line.
    fn note(&mut self, place: usize, name: &str, value: &str) -> io::Result<()> {
        self.open_note(place)?;
        self.html.text(name)?;
        self.html.wrapped(": <b>", value, "</b></p>")
    }

    fn label(&mut self, place: usize, target: &str, label: Option<&str>) -> io::Result<()> {
        self.open_note(place)?;
        self.html.raw("Bookmark ")?;
        match label {
            Some(label) => self.html.wrapped("<b>", label, "</b> set on ")?,
            None => self.html.raw("removed from ")?,
        }
        if has_own_anchor(target) {
            let target = anchor(target, place);
            self.html.wrapped("<a href=\"#", &target, "\">this entry</a></p>")
        } else {
            self.html.wrapped("entry ", &snippet(target, MAX_ID), "</p>")
        }
    }

    fn open_note(&mut self, place: usize) -> io::Result<()> {
        let id = self.anchor(place);
        self.html.wrapped("<p class=\"e note\" id=\"", &id, "\">")?;
        if self.layout.leaf == Some(place) {
            self.html.raw("<span class=\"leaf\">current leaf</span> ")?;
        }
        Ok(())
    }

    /// An entry of which only the title is seen at first.
    fn folded(
        &mut self,
        place: usize,
        title: &str,
        body: impl FnOnce(&mut Self) -> io::Result<()>,
    ) -> io::Result<()> {
        let id = self.anchor(place);
        self.html.wrapped("<details class=\"e hidden\" id=\"", &id, "\"><summary>")?;
        self.html.text(title)?;
        self.html.raw("</summary>")?;
        body(self)?;
        self.html.raw("</details>")
    }

    fn framed(
        &mut self,
        frame: Frame<'_>,
        body: impl FnOnce(&mut Self) -> io::Result<()>,
    ) -> io::Result<()> {
        let id = self.anchor(frame.place);
        self.html.raw(frame.open)?;
        self.html.wrapped(" id=\"", &id, "\"><header><span class=\"who\">")?;
        self.html.text(frame.who)?;
        self.html.raw("</span>")?;
        if !frame.what.is_empty() {
            self.html.wrapped("<span class=\"what\">", frame.what, "</span>")?;
        }
        if let Some(label) = &self.layout.nodes[frame.place].label {
            self.html.wrapped("<span class=\"label\">", label, "</span>")?;
        }
        if self.layout.leaf == Some(frame.place) {
            self.html.raw("<span class=\"leaf\">current leaf</span>")?;
        }
        time(self.html, self.layout.entry(frame.place).timestamp())?;
        self.html.wrapped(
            "<a class=\"anchor\" title=\"Link to this entry\" aria-label=\"Link to this entry\" href=\"#",
            &id,
            "\">#</a></header>",
        )?;
        body(self)?;
        self.html.raw("</article>")
    }

    fn anchor(&self, place: usize) -> String {
        anchor(self.layout.entry(place).id().as_str(), place)
    }
}

const USER: &str = "<article class=\"e user\"";
const ASSISTANT: &str = "<article class=\"e assistant\"";
const ASSISTANT_GOES_ON: &str = "<article class=\"e assistant cont\"";
const BASH: &str = "<article class=\"e bash\"";
const CUSTOM: &str = "<article class=\"e custom\"";
const CARD: &str = "<article class=\"e card\"";

/// To the minute; the exact time is in an attribute.
pub(super) fn time(html: &mut Html<'_>, timestamp: Timestamp) -> io::Result<()> {
    let exact = timestamp.to_string();
    let shown = match exact.split_once('T') {
        Some((date, time)) => format!("{date} {}", time.get(..5).unwrap_or(time)),
        None => exact.clone(),
    };
    html.wrapped("<time datetime=\"", &exact, "\" title=\"")?;
    html.text(&exact)?;
    html.wrapped("\">", &shown, "</time>")
}

/// The type that an entry's JSON states.
fn type_name(json: &str) -> String {
    let value: Option<Value> = serde_json::from_str(json).ok();
    let name = |value: &Value| Some(value.get("type")?.as_str()?.to_owned());
    value.as_ref().and_then(name).unwrap_or_default()
}
