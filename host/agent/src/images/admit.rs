//! The images of a message, checked where it enters the conversation: whoever it is
//! from (a person, a tool, an extension), what stays of it can be sent.

use base64::Engine as _;
use base64::alphabet;
use base64::engine::general_purpose::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use tokio::task::spawn_blocking;
use wharf_protocol::message::ImageContent;
use wharf_protocol::{AgentMessage, ContentBlock, UserContent};

use super::{Fitted, ImageError, fit, max_bytes};

/// What some clients send; APIs do not take it.
const LENIENT: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_padding_mode(DecodePaddingMode::Indifferent)
        .with_decode_allow_trailing_bits(true),
);

/// Makes the message's images fit, and puts a remark in the place of one that cannot
/// be made so. The pixels are worked on off the async threads.
pub(crate) async fn admit(mut message: AgentMessage, auto_resize: bool) -> AgentMessage {
    let blocks = match &mut message {
        AgentMessage::User(user) => blocks_of(&mut user.content),
        AgentMessage::Custom(custom) => blocks_of(&mut custom.content),
        AgentMessage::ToolResult(result) => &mut result.content,
        AgentMessage::Assistant(_)
        | AgentMessage::BashExecution(_)
        | AgentMessage::BranchSummary(_)
        | AgentMessage::CompactionSummary(_) => return message,
    };
    for block in blocks {
        let ContentBlock::Image(image) = block else { continue };
        let taken = ImageContent {
            data: std::mem::take(&mut image.data),
            mime_type: std::mem::take(&mut image.mime_type),
        };
        let checked = spawn_blocking(move || check(taken, auto_resize)).await;
        *block = match checked {
            Ok(Ok(image)) => ContentBlock::Image(image),
            Ok(Err(error)) => remark(&error),
            // The runtime shuts down.
            Err(error) => remark(&error),
        };
    }
    message
}

fn blocks_of(content: &mut UserContent) -> &mut [ContentBlock] {
    match content {
        UserContent::Text(_) => &mut [],
        UserContent::Blocks(blocks) => blocks,
    }
}

fn remark(error: &dyn std::fmt::Display) -> ContentBlock {
    ContentBlock::text(format!("[An image was left out here: {error}]"))
}

fn check(image: ImageContent, auto_resize: bool) -> Result<ImageContent, ImageError> {
    let ImageContent { data, .. } = image;
    let limit = max_bytes(auto_resize);
    // Before it is decoded; line feeds may be in it.
    if data.len() / 2 > limit {
        return Err(ImageError::TooLarge { limit });
    }
    let (bytes, is_standard) = from_base64(&data)?;
    let Fitted { mime_type, changed, .. } = fit(&bytes, auto_resize)?;
    let (data, mime_type) = match changed {
        Some(changed) => (STANDARD.encode(changed.bytes), changed.mime_type),
        None if is_standard => (data, mime_type),
        None => (STANDARD.encode(bytes), mime_type),
    };
    Ok(ImageContent { data, mime_type: mime_type.to_owned() })
}

/// The bytes, and whether APIs take the text.
fn from_base64(data: &str) -> Result<(Vec<u8>, bool), ImageError> {
    if let Ok(bytes) = STANDARD.decode(data) {
        return Ok((bytes, true));
    }
    let text: Vec<u8> = data.bytes().filter(|byte| !byte.is_ascii_whitespace()).collect();
    let bytes = LENIENT.decode(text).map_err(|_| ImageError::NotBase64)?;
    Ok((bytes, false))
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

    use image::ImageFormat;
    use serde_json::{Value, json};

    use super::super::tests::{encoded, flat};
    use super::*;

    fn block(data: &str, mime_type: &str) -> Value {
        json!({"type": "image", "data": data, "mimeType": mime_type})
    }

    /// The blocks that stay, of a message of each kind.
    async fn admitted(blocks: &[Value], auto_resize: bool) -> Vec<Value> {
        let messages = [
            json!({"role": "user", "content": blocks}),
            json!({"role": "custom", "customType": "c", "display": true, "content": blocks}),
            json!({"role": "toolResult", "toolCallId": "1", "toolName": "t", "content": blocks}),
        ];
        let mut results = Vec::new();
        for message in messages {
            let message = serde_json::from_value(message).unwrap();
            let admitted = admit(message, auto_resize).await;
            let Value::Array(blocks) = serde_json::to_value(admitted).unwrap()["content"].take()
            else {
                panic!("no blocks")
            };
            results.push(blocks);
        }
        let first = results.swap_remove(0);
        assert!(results.iter().all(|other| *other == first));
        first
    }

    #[tokio::test]
    async fn blocks_keep_their_places() {
        let png = STANDARD.encode(encoded(&flat(3, 2), ImageFormat::Png));
        let jpeg = STANDARD.encode(encoded(&flat(3, 2), ImageFormat::Jpeg));
        let broken = STANDARD.encode(b"\x89PNG\r\n\x1a\n");
        let text = json!({"type": "text", "text": "look"});
        let blocks = [
            text.clone(),
            block(&png, "image/png"),
            block(&STANDARD.encode("hello"), "image/png"),
            block(&jpeg, "image/png"),
            block(&broken, "image/png"),
            block("?", "image/png"),
            block(&png, ""),
        ];
        let remark = |text: &str| json!({"type": "text", "text": format!("[An image was left out here: {text}]")});
        let sent = admitted(&blocks, true).await;
        assert_eq!(sent[0], text);
        assert_eq!(sent[1], block(&png, "image/png"));
        let none = "it is not an image that models take (png, jpeg, gif, webp); convert it";
        assert_eq!(sent[2], remark(none));
        assert_eq!(sent[3], block(&jpeg, "image/jpeg"));
        let text = sent[4]["text"].as_str().unwrap();
        assert!(text.contains("the image/png data cannot be decoded ("), "{text}");
        assert_eq!(sent[5], remark("its data is not base64"));
        assert_eq!(sent[6], block(&png, "image/png"));
        assert_eq!(sent.len(), blocks.len());
    }

    #[tokio::test]
    async fn base64_is_made_what_apis_take() {
        let png = STANDARD.encode(encoded(&flat(3, 2), ImageFormat::Png));
        let lines = format!("{}\r\n{}\n", &png[..40], &png[40..]);
        for data in [lines.as_str(), png.trim_end_matches('=')] {
            let sent = admitted(&[block(data, "image/png")], true).await;
            assert_eq!(sent, [block(&png, "image/png")]);
        }
    }

    #[tokio::test]
    async fn large_images_are_scaled_if_settings_allow() {
        let png = STANDARD.encode(encoded(&flat(2_400, 12), ImageFormat::Png));
        let wide = STANDARD.encode(encoded(&flat(9_000, 1), ImageFormat::Png));
        let sent = admitted(&[block(&png, "image/png")], true).await;
        let bytes = STANDARD.decode(sent[0]["data"].as_str().unwrap()).unwrap();
        assert_eq!(image::load_from_memory(&bytes).unwrap().width(), 2_000);
        assert_eq!(admitted(&[block(&png, "image/png")], false).await, [block(&png, "image/png")]);
        let sent = admitted(&[block(&wide, "image/png")], false).await;
        assert!(sent[0]["text"].as_str().unwrap().contains("9000x1 pixels is larger"));
    }

    #[tokio::test]
    async fn text_alone_stays_as_it_is() {
        let message = json!({"role": "user", "content": "hello", "timestamp": 1});
        let message: AgentMessage = serde_json::from_value(message).unwrap();
        assert_eq!(admit(message.clone(), true).await, message);
    }
}
