//! Two ways to add models: `ollama-openai` is data, and the host sends its requests;
//! `ollama` is answered by the extension itself, which speaks Ollama's own API.
//!
//! Permission: HTTP to this machine (`127.0.0.1`, any port). The server is
//! `http://127.0.0.1:11434`, or what `--ollama URL` says.

use std::cell::RefCell;

use serde::{Deserialize, Serialize};
use wharf_sdk::{
    AssistantContent, Content, Ctx, Event, Extension, FlagSpec, Json, Message, Model, Notification,
    Permission, Registration, ReplyEnd, ReplyFailure, ReplyRequest, ReplyWriter, Result,
};

const SERVER: &str = "http://127.0.0.1:11434";
const MODEL: &str = "qwen3:8b";

#[derive(Default)]
struct CustomProvider {
    server: RefCell<String>,
}

#[derive(Serialize)]
struct Chat<'a> {
    model: &'a str,
    messages: Vec<Turn>,
    stream: bool,
}

#[derive(Serialize)]
struct Turn {
    role: &'static str,
    content: String,
}

/// A provider as in `models.json`.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Provider<'a> {
    base_url: Option<&'a str>,
    api: Option<&'a str>,
    api_key: Option<&'a str>,
    models: &'a [Offer],
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Offer {
    id: &'static str,
    context_window: u32,
    max_tokens: u32,
}

/// A line of Ollama's stream.
#[derive(Deserialize)]
struct Line {
    message: Option<Said>,
    #[serde(default)]
    prompt_eval_count: u64,
    #[serde(default)]
    eval_count: u64,
    error: Option<String>,
}

#[derive(Deserialize)]
struct Said {
    content: String,
}

impl Extension for CustomProvider {
    fn register() -> Registration<Self> {
        Registration::new("custom-provider", env!("CARGO_PKG_VERSION"))
            .description("Models of an Ollama server.")
            .permission(Permission::net("127.0.0.1:*"))
            .flag(FlagSpec::value("ollama", "Where Ollama listens"))
            .on_notification([Event::SessionStart], Self::session_start)
            .reply_source(Self::reply)
    }
}

impl CustomProvider {
    async fn session_start(&self, ctx: &Ctx, _: Notification) -> Result<()> {
        let server = ctx.agent().flag("ollama").value().unwrap_or_else(|| SERVER.to_owned());
        let models = [Offer { id: MODEL, context_window: 32_768, max_tokens: 8_192 }];
        let own = Provider { base_url: None, api: None, api_key: None, models: &models };
        let base_url = format!("{server}/v1");
        let data = Provider {
            base_url: Some(&base_url),
            api: Some("openai-completions"),
            api_key: Some("ollama"),
            models: &models,
        };
        let (data, own) = (Json::of(&data)?, Json::of(&own)?);
        *self.server.borrow_mut() = server;
        let agent = ctx.agent();
        agent.register_provider("ollama-openai", data).await?;
        agent.register_streaming_provider("ollama", own).await
    }

    async fn reply(
        &self,
        ctx: &Ctx,
        request: ReplyRequest,
        writer: ReplyWriter,
    ) -> Result<ReplyEnd, ReplyFailure> {
        let url = format!("{}/api/chat", self.server.borrow());
        let model: Model = request.model.parse()?;
        let body = Chat { model: &model.id, messages: chat(&request)?, stream: true };
        let mut response = ctx.http().post(url).json(&body)?.send().await?;
        if !response.is_success() {
            let status = response.status();
            let failure = ReplyFailure::new(format!("Ollama answered {status}"));
            return Err(failure.with_status(status));
        }
        let mut lines = Lines::default();
        let mut end = ReplyEnd::stop();
        while let Some(chunk) = response.chunk().await? {
            for line in lines.add(&chunk) {
                let line: Line = Json::read(&line)?;
                if let Some(problem) = line.error {
                    return Err(ReplyFailure::new(problem));
                }
                if let Some(said) = line.message.filter(|said| !said.content.is_empty()) {
                    writer.text(said.content).await?;
                }
                end = end.with_usage(line.prompt_eval_count, line.eval_count);
            }
        }
        Ok(end)
    }
}

/// The conversation as Ollama wants it: text only.
fn chat(request: &ReplyRequest) -> Result<Vec<Turn>> {
    let mut chat = vec![Turn { role: "system", content: request.system_prompt.clone() }];
    for message in request.messages()? {
        let (role, content) = match message {
            Message::User { content } => ("user", text(&content)),
            Message::ToolResult { content, .. } => ("tool", text(&content)),
            Message::Assistant { content, .. } => {
                let texts = content.iter().filter_map(|block| match block {
                    AssistantContent::Text { text } => Some(text.as_str()),
                    _ => None,
                });
                ("assistant", texts.collect())
            }
            _ => continue,
        };
        chat.push(Turn { role, content });
    }
    Ok(chat)
}

fn text(content: &[Content]) -> String {
    content.iter().filter_map(Content::as_text).collect()
}

/// Cuts a stream of bytes into lines.
#[derive(Default)]
struct Lines(Vec<u8>);

impl Lines {
    fn add(&mut self, chunk: &[u8]) -> Vec<String> {
        self.0.extend_from_slice(chunk);
        let mut lines = Vec::new();
        while let Some(end) = self.0.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = self.0.drain(..=end).collect();
            if line.len() > 1 {
                lines.push(String::from_utf8_lossy(&line).into_owned());
            }
        }
        lines
    }
}

wharf_sdk::export!(CustomProvider);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_come_whole_however_the_stream_is_cut() {
        let mut lines = Lines::default();
        assert!(lines.add(b"{\"a\"").is_empty());
        assert_eq!(lines.add(b":1}\n\n{}\n{"), ["{\"a\":1}\n", "{}\n"]);
        assert_eq!(lines.add(b"}\n"), ["{}\n"]);
    }
}
