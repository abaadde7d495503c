//! `before_agent_start`: messages are collected, the system prompt chains.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;
use wharf_agent::hooks::{BeforeAgentStartEvent, BeforeAgentStartVerdict, HookEvent};

use super::ask;
use crate::bindings::types as wit;
use crate::call::Request;
use crate::convert;
use crate::extension::Extension;
use crate::limits::MAX_TEXT_BYTES;

pub(crate) async fn before_agent_start(
    subscribers: &[Arc<Extension>],
    event: BeforeAgentStartEvent,
    cancel: &CancellationToken,
) -> BeforeAgentStartVerdict {
    let BeforeAgentStartEvent { prompt, images, mut system_prompt } = event;
    let mut messages = Vec::new();
    if subscribers.is_empty() {
        return BeforeAgentStartVerdict { messages, system_prompt };
    }
    let images = convert::to_images(&images);
    let to_guest = |system_prompt: &String| {
        Arc::new(wit::BeforeAgentStartEvent {
            prompt: prompt.clone(),
            images: images.clone(),
            system_prompt: system_prompt.clone(),
        })
    };
    let mut data = to_guest(&system_prompt);
    for extension in subscribers {
        let kind = HookEvent::BeforeAgentStart;
        let answer = ask(extension, kind, Request::BeforeAgentStart, &data, cancel).await;
        let Some(answer) = answer else { continue };
        match answer.message.map(convert::custom_message).transpose() {
            Ok(message) => messages.extend(message),
            Err(problem) => extension.report_error(kind.name(), &problem),
        }
        match answer.system_prompt {
            Some(prompt) if prompt.len() > MAX_TEXT_BYTES => {
                let bytes = prompt.len();
                let problem =
                    format!("the system prompt has {bytes} bytes; the limit is {MAX_TEXT_BYTES}");
                extension.report_error(kind.name(), &problem);
            }
            Some(prompt) => {
                system_prompt = prompt;
                data = to_guest(&system_prompt);
            }
            None => {}
        }
    }
    BeforeAgentStartVerdict { messages, system_prompt }
}
