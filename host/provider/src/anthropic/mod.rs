//! The API `anthropic-messages`: the Anthropic Messages API, streaming. Its request is
//! put together here; the parts with rules of their own are in the modules below.

mod decode;
#[cfg(test)]
mod decode_tests;
#[cfg(test)]
mod encode_tests;
mod messages;
mod thinking;

use serde_json::{Map, Value, json};

use crate::Request;
use crate::api::{Api, Decoder, Endpoint, HttpRequest};
use decode::MessagesDecoder;

/// The version of the API; `anthropic-version` has had this value since 2023.
const VERSION: &str = "2023-06-01";

#[derive(Debug)]
pub(crate) struct AnthropicMessages;

impl Api for AnthropicMessages {
    fn encode(&self, request: &Request, endpoint: &Endpoint) -> HttpRequest {
        let mut plan = thinking::plan(request);
        let mut conversation = messages::encode(&request.messages, plan.shape());
        if plan.needs_thinking_first() && !messages::turn_begins_with_thinking(&conversation) {
            plan = thinking::without(request);
            conversation = messages::encode(&request.messages, plan.shape());
        }
        messages::mark_for_cache(&mut conversation);

        let mut body = Map::new();
        body.insert("model".to_owned(), json!(request.model.id));
        body.insert("max_tokens".to_owned(), json!(plan.max_tokens));
        body.insert("stream".to_owned(), json!(true));
        if !request.system_prompt.trim().is_empty() {
            let mut block = messages::text(&request.system_prompt);
            messages::mark(&mut block);
            body.insert("system".to_owned(), json!([block]));
        }
        body.insert("messages".to_owned(), Value::Array(conversation));
        let tools = tools(request);
        if !tools.is_empty() {
            body.insert("tools".to_owned(), Value::Array(tools));
        }
        if let Some(thinking) = plan.thinking {
            body.insert("thinking".to_owned(), thinking);
        }
        if let Some(effort) = plan.effort {
            body.insert("output_config".to_owned(), json!({"effort": effort}));
        }

        let mut headers = vec![("anthropic-version", VERSION.to_owned())];
        if let Some(key) = &endpoint.api_key {
            headers.push(if endpoint.auth_header {
                ("authorization", format!("Bearer {key}"))
            } else {
                ("x-api-key", key.clone())
            });
        }
        if let Some(beta) = plan.beta {
            headers.push(("anthropic-beta", beta.to_owned()));
        }
        HttpRequest { url: url(&endpoint.base_url), headers, body: Value::Object(body) }
    }

    fn decoder(&self, _: &Request) -> Box<dyn Decoder> {
        Box::new(MessagesDecoder::default())
    }
}

/// People write the base with and without the version.
fn url(base: &str) -> String {
    let version = if base.ends_with("/v1") { "" } else { "/v1" };
    format!("{base}{version}/messages")
}

fn tools(request: &Request) -> Vec<Value> {
    let mut tools: Vec<Value> = request
        .tools
        .iter()
        .map(|tool| {
            json!({
                "name": tool.name,
                "description": tool.description,
                "input_schema": input_schema(&tool.parameters),
            })
        })
        .collect();
    if let Some(last) = tools.last_mut() {
        messages::mark(last);
    }
    tools
}

/// The API refuses a schema that does not say at its top that it is of an object.
fn input_schema(parameters: &Value) -> Value {
    let mut schema = parameters.as_object().cloned().unwrap_or_default();
    schema.insert("type".to_owned(), json!("object"));
    Value::Object(schema)
}
