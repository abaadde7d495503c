//! Tool calls with their results.

use std::io;

use serde_json::{Map, Value};
use wharf_protocol::message::joined_text;
use wharf_protocol::{ToolCall, ToolResultMessage};

use super::blocks;
use super::highlight::{Highlighter, Language};
use super::html::{Html, snippet};

/// Characters of the argument in a call's summary line.
const SHORT: usize = 160;

/// A result and the anchor of its entry.
pub(super) struct Answer<'a> {
    pub(super) result: &'a ToolResultMessage,
    pub(super) anchor: String,
}

/// What a tool's arguments and results are made of.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Shape {
    Shell,
    Read,
    Write,
    Edit,
    Other,
}

impl Shape {
    fn of(tool: &str) -> Self {
        match tool {
            "bash" => Self::Shell,
            "read" => Self::Read,
            "write" => Self::Write,
            "edit" => Self::Edit,
            _ => Self::Other,
        }
    }

    /// Arguments that are shown otherwise than as JSON.
    fn own_arguments(self) -> &'static [&'static str] {
        match self {
            Self::Shell => &["command"],
            Self::Read => &["path", "offset", "limit"],
            Self::Write => &["path", "content"],
            Self::Edit => &["path", "oldText", "newText", "edits"],
            Self::Other => &[],
        }
    }
}

/// A call, folded.
pub(super) fn call(
    html: &mut Html<'_>,
    highlighter: &mut Highlighter,
    call: &ToolCall,
    answer: Option<&Answer<'_>>,
) -> io::Result<()> {
    let failed = answer.is_some_and(|answer| answer.result.is_error);
    html.raw(if failed { "<details class=\"tool failed\">" } else { "<details class=\"tool\">" })?;
    summary(html, &call.name, &short_argument(call))?;
    if failed {
        html.raw("<span class=\"badge bad\">failed</span>")?;
    }
    if answer.is_none() {
        html.raw("<span class=\"badge\">no result</span>")?;
    }
    html.raw("</summary><div class=\"inside\">")?;
    arguments(html, highlighter, call, answer.map(|answer| answer.result))?;
    if let Some(Answer { result, anchor }) = answer {
        html.raw("<div class=\"result\" id=\"")?;
        html.text(anchor)?;
        html.raw("\">")?;
        output(html, highlighter, result, path(&call.arguments))?;
        html.raw("</div>")?;
    }
    html.raw("</div></details>")
}

/// A result whose call is not on its branch, or not next to it.
pub(super) fn lone_result(
    html: &mut Html<'_>,
    highlighter: &mut Highlighter,
    result: &ToolResultMessage,
) -> io::Result<()> {
    html.raw(if result.is_error {
        "<details class=\"tool failed\">"
    } else {
        "<details class=\"tool\">"
    })?;
    summary(html, &result.tool_name, &format!("result of call {}", result.tool_call_id))?;
    if result.is_error {
        html.raw("<span class=\"badge bad\">failed</span>")?;
    }
    html.raw("</summary><div class=\"inside\"><div class=\"result\">")?;
    if let Some(diff) = diff(result) {
        blocks::diff(html, diff)?;
    }
    output(html, highlighter, result, None)?;
    html.raw("</div></div></details>")
}

fn summary(html: &mut Html<'_>, tool: &str, argument: &str) -> io::Result<()> {
    html.wrapped("<summary><span class=\"name\">", &snippet(tool, SHORT), "</span> ")?;
    html.wrapped("<code class=\"arg\">", &snippet(argument, SHORT), "</code>")
}

fn text<'a>(arguments: &'a Map<String, Value>, name: &str) -> Option<&'a str> {
    arguments.get(name)?.as_str()
}

/// Early sessions say `file_path`.
fn path(arguments: &Map<String, Value>) -> Option<&str> {
    text(arguments, "path").or_else(|| text(arguments, "file_path"))
}

fn short_argument(call: &ToolCall) -> String {
    let arguments = &call.arguments;
    match Shape::of(&call.name) {
        Shape::Shell => text(arguments, "command").unwrap_or_default().to_owned(),
        Shape::Read => {
            let path = path(arguments).unwrap_or_default();
            let number = |name| arguments.get(name).and_then(Value::as_u64);
            match (number("offset"), number("limit")) {
                (None, None) => path.to_owned(),
                (first, None) => format!("{path}:{}-", first.unwrap_or(1)),
                (first, Some(count)) => {
                    let first = first.unwrap_or(1);
                    let last = first.saturating_add(count).saturating_sub(1);
                    format!("{path}:{first}-{last}")
                }
            }
        }
        Shape::Write | Shape::Edit => path(arguments).unwrap_or_default().to_owned(),
        Shape::Other => {
            let texts: Vec<String> = arguments
                .values()
                .filter_map(Value::as_str)
                .take(3)
                .map(|text| snippet(text, SHORT))
                .collect();
            texts.join(" · ")
        }
    }
}

fn arguments(
    html: &mut Html<'_>,
    highlighter: &mut Highlighter,
    call: &ToolCall,
    result: Option<&ToolResultMessage>,
) -> io::Result<()> {
    let arguments = &call.arguments;
    let shape = Shape::of(&call.name);
    match shape {
        Shape::Shell => {
            if let Some(command) = text(arguments, "command") {
                blocks::code(html, highlighter, command, Language::Named("bash"))?;
            }
        }
        Shape::Write => {
            if let Some(content) = text(arguments, "content") {
                let language = path(arguments).map_or(Language::Plain, Language::OfFile);
                blocks::code(html, highlighter, content, language)?;
            }
        }
        Shape::Edit => match result.and_then(diff) {
            Some(diff) => blocks::diff(html, diff)?,
            None => replacements(html, arguments)?,
        },
        Shape::Read | Shape::Other => {}
    }
    // A tool of that name may have other arguments, or of other types.
    let rest: Map<String, Value> = arguments
        .iter()
        .filter(|(name, value)| {
            let own = shape.own_arguments().contains(&name.as_str());
            let shown = match name.as_str() {
                "edits" => value.as_array().is_some_and(|edits| edits.iter().all(is_replacement)),
                "offset" | "limit" => value.is_u64(),
                _ => value.is_string(),
            };
            !(own && shown)
        })
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect();
    if rest.is_empty() {
        return Ok(());
    }
    blocks::json(html, highlighter, &Value::Object(rest))
}

/// What the edit tool reports.
fn diff(result: &ToolResultMessage) -> Option<&str> {
    result.details.as_ref()?.get("diff")?.as_str()
}

fn is_replacement(edit: &Value) -> bool {
    ["oldText", "newText"].iter().all(|name| edit.get(name).is_some_and(Value::is_string))
}

fn replacements(html: &mut Html<'_>, arguments: &Map<String, Value>) -> io::Result<()> {
    let edits = arguments.get("edits").and_then(Value::as_array);
    let objects = edits.into_iter().flatten().filter_map(Value::as_object);
    for edit in objects.chain([arguments]) {
        if let (Some(old), Some(new)) = (text(edit, "oldText"), text(edit, "newText")) {
            blocks::replacement(html, old, new)?;
        }
    }
    Ok(())
}

fn output(
    html: &mut Html<'_>,
    highlighter: &mut Highlighter,
    result: &ToolResultMessage,
    path: Option<&str>,
) -> io::Result<()> {
    let text = joined_text(&result.content);
    let shape = Shape::of(&result.tool_name);
    if !text.is_empty() {
        match (shape, path) {
            (Shape::Read, Some(path)) if !result.is_error => {
                blocks::code(html, highlighter, &text, Language::OfFile(path))?;
            }
            _ => blocks::plain(html, &text)?,
        }
    } else if result.content.is_empty() {
        html.raw("<p class=\"muted\">no output</p>")?;
    }
    blocks::images(html, &result.content)?;
    let details = result.details.as_ref().filter(|details| has_content(details, shape));
    match details {
        Some(details) => blocks::folded_json(html, highlighter, "details", details),
        None => Ok(()),
    }
}

/// Whether details tell more than what is shown anyway.
fn has_content(details: &Value, shape: Shape) -> bool {
    match details {
        Value::Null => false,
        Value::Object(fields) => fields.iter().any(|(name, value)| {
            let shown = shape == Shape::Edit && name == "diff";
            !shown && !value.is_null()
        }),
        _ => true,
    }
}
