//! `input`: transformations chain, and the first handler that deals with it ends
//! the chain.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;
use wharf_agent::hooks::{HookEvent, InputEvent, InputVerdict};

use super::ask;
use crate::bindings::types::{self as wit, InputDecision};
use crate::call::Request;
use crate::convert;
use crate::extension::Extension;
use crate::limits::MAX_TEXT_BYTES;

pub(crate) async fn input(
    subscribers: &[Arc<Extension>],
    event: InputEvent,
    cancel: &CancellationToken,
) -> InputVerdict {
    let InputEvent { mut text, mut images, source } = event;
    if subscribers.is_empty() {
        return InputVerdict::Proceed { text, images };
    }
    let source = convert::to_source(source);
    let to_guest = |text: &String, images: &Vec<_>| {
        let images = convert::to_images(images);
        Arc::new(wit::InputEvent { text: text.clone(), images, source })
    };
    let mut data = to_guest(&text, &images);
    for extension in subscribers {
        match ask(extension, HookEvent::Input, Request::Input, &data, cancel).await {
            None | Some(InputDecision::Proceed) => {}
            Some(InputDecision::Handled) => return InputVerdict::Handled,
            Some(InputDecision::Transform(replacement)) => match check(replacement) {
                Ok(replaced) => {
                    (text, images) = replaced;
                    data = to_guest(&text, &images);
                }
                Err(problem) => extension.report_error(HookEvent::Input.name(), &problem),
            },
        }
    }
    InputVerdict::Proceed { text, images }
}

fn check(
    replacement: wit::InputReplacement,
) -> Result<(String, Vec<wharf_protocol::ImageContent>), String> {
    let bytes = replacement.text.len();
    if bytes > MAX_TEXT_BYTES {
        return Err(format!("the text has {bytes} bytes; the limit is {MAX_TEXT_BYTES}"));
    }
    Ok((replacement.text, convert::images(replacement.images)?))
}
