//! Between the WIT world's types and the agent's, in both directions. What comes
//! from a guest is checked here; an error names the field.

use serde_json::{Map, Value};
use wharf_agent::hooks::{CompactionCause, InputSource, SwitchReason};
use wharf_agent::tool::ToolOutput;
use wharf_protocol::message::CustomMessage;
use wharf_protocol::{ContentBlock, ImageContent, UserContent};

use crate::bindings::types as wit;
use crate::limits::{MAX_CONTENT_BLOCKS, MAX_CONTENT_BYTES, MAX_DETAILS_BYTES, MAX_JSON_VALUES};

/// A guest's JSON text within its cap.
pub(crate) fn json(field: &str, text: &str) -> Result<Value, String> {
    if text.len() > MAX_DETAILS_BYTES {
        return Err(format!("{field} has {} bytes; the limit is {MAX_DETAILS_BYTES}", text.len()));
    }
    parse(text).map_err(|problem| format!("{field} {problem}"))
}

/// A guest's JSON text, unless it would be far larger once it is parsed. The text of the
/// error follows a name.
pub(crate) fn parse(text: &str) -> Result<Value, String> {
    let values = count_values(text);
    if values > MAX_JSON_VALUES {
        return Err(format!("has {values} values; the limit is {MAX_JSON_VALUES}"));
    }
    serde_json::from_str(text).map_err(|error| format!("is no JSON: {error}"))
}

/// Values of JSON text: as many as commas and opening brackets outside of strings, and one.
fn count_values(text: &str) -> usize {
    let (mut count, mut is_string, mut is_escaped) = (1, false, false);
    for byte in text.bytes() {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' if is_string => is_escaped = true,
            b'"' => is_string = !is_string,
            b',' | b'[' | b'{' if !is_string => count += 1,
            _ => {}
        }
    }
    count
}

/// A guest's text that says something, within its cap.
pub(crate) fn check_text(what: &str, text: &str, cap: usize) -> Result<(), String> {
    if text.len() > cap {
        return Err(format!("{what} has {} bytes; the limit is {cap}", text.len()));
    }
    if text.trim().is_empty() {
        return Err(format!("{what} is blank"));
    }
    Ok(())
}

pub(crate) fn object(field: &str, text: &str) -> Result<Map<String, Value>, String> {
    match json(field, text)? {
        Value::Object(map) => Ok(map),
        _ => Err(format!("{field} is no JSON object")),
    }
}

fn check_content(bytes: usize, blocks: usize) -> Result<(), String> {
    if blocks > MAX_CONTENT_BLOCKS {
        return Err(format!("the content has {blocks} blocks; the limit is {MAX_CONTENT_BLOCKS}"));
    }
    if bytes > MAX_CONTENT_BYTES {
        return Err(format!("the content has {bytes} bytes; the limit is {MAX_CONTENT_BYTES}"));
    }
    Ok(())
}

pub(crate) fn content(blocks: Vec<wit::Content>) -> Result<Vec<ContentBlock>, String> {
    let bytes = blocks
        .iter()
        .map(|block| match block {
            wit::Content::Text(text) => text.len(),
            wit::Content::Image(image) => image.data.len() + image.mime_type.len(),
        })
        .sum();
    check_content(bytes, blocks.len())?;
    Ok(blocks
        .into_iter()
        .map(|block| match block {
            wit::Content::Text(text) => ContentBlock::text(text),
            wit::Content::Image(image) => ContentBlock::Image(from_image(image)),
        })
        .collect())
}

fn from_image(image: wit::Image) -> ImageContent {
    ImageContent { data: image.data, mime_type: image.mime_type }
}

pub(crate) fn images(images: Vec<wit::Image>) -> Result<Vec<ImageContent>, String> {
    let bytes = images.iter().map(|image| image.data.len() + image.mime_type.len()).sum();
    check_content(bytes, images.len())?;
    Ok(images.into_iter().map(from_image).collect())
}

/// The output, and whether it is an error.
pub(crate) fn tool_output(output: wit::ToolOutput) -> Result<(ToolOutput, bool), String> {
    let details = output.details.map(|details| json("details", &details)).transpose()?;
    Ok((ToolOutput { content: content(output.content)?, details }, output.is_error))
}

pub(crate) fn custom_message(message: wit::CustomMessage) -> Result<CustomMessage, String> {
    let details = message.details.map(|details| json("details", &details)).transpose()?;
    if message.custom_type.is_empty() {
        return Err("custom-type is empty".to_owned());
    }
    Ok(CustomMessage {
        custom_type: message.custom_type,
        content: UserContent::Blocks(content(message.content)?),
        display: message.display,
        details,
        timestamp: now(),
    })
}

/// Milliseconds since the Unix epoch.
fn now() -> u64 {
    let elapsed = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    u64::try_from(elapsed.unwrap_or_default().as_millis()).unwrap_or(u64::MAX)
}

pub(crate) fn to_content(blocks: &[ContentBlock]) -> Vec<wit::Content> {
    blocks
        .iter()
        .map(|block| match block {
            ContentBlock::Text(text) => wit::Content::Text(text.text.clone()),
            ContentBlock::Image(image) => wit::Content::Image(to_image(image)),
        })
        .collect()
}

fn to_image(image: &ImageContent) -> wit::Image {
    wit::Image { data: image.data.clone(), mime_type: image.mime_type.clone() }
}

pub(crate) fn to_images(images: &[ImageContent]) -> Vec<wit::Image> {
    images.iter().map(to_image).collect()
}

pub(crate) fn to_json(value: &impl serde::Serialize) -> String {
    // Only a map with keys that are no strings could fail, and wire types have none.
    serde_json::to_string(value).unwrap_or_else(|_| "null".to_owned())
}

pub(crate) fn to_tool_output(output: &ToolOutput, is_error: bool) -> wit::ToolOutput {
    wit::ToolOutput {
        content: to_content(&output.content),
        details: output.details.as_ref().map(to_json),
        is_error,
    }
}

pub(crate) const fn to_source(source: InputSource) -> wit::InputSource {
    match source {
        InputSource::Interactive => wit::InputSource::Interactive,
        InputSource::Rpc => wit::InputSource::Rpc,
        InputSource::Extension => wit::InputSource::Extension,
    }
}

pub(crate) const fn to_cause(cause: CompactionCause) -> wit::CompactionCause {
    match cause {
        CompactionCause::Manual => wit::CompactionCause::Manual,
        CompactionCause::Threshold => wit::CompactionCause::Threshold,
        CompactionCause::Overflow => wit::CompactionCause::Overflow,
    }
}

pub(crate) const fn to_reason(reason: SwitchReason) -> wit::SwitchReason {
    match reason {
        SwitchReason::New => wit::SwitchReason::New,
        SwitchReason::Resume => wit::SwitchReason::Resume,
    }
}
