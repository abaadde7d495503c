//! Google's `streamGenerateContent`: what it refuses, and how its streams look.

use serde_json::{Value, json};

use super::answer::{Answer, Block, Stop};
use super::api::{Asked, Refusal, duplicate, is_identifier, items, text, unknown_field, unnamed};
use super::connection::Recorded;

const FIELDS: [&str; 8] = [
    "cachedContent",
    "contents",
    "generationConfig",
    "model",
    "safetySettings",
    "systemInstruction",
    "toolConfig",
    "tools",
];

/// What a function's `parameters` may have: Google's own `Schema`, a part of OpenAPI's.
/// (`parametersJsonSchema` takes JSON Schema.)
const SCHEMA_FIELDS: [&str; 22] = [
    "anyOf",
    "default",
    "description",
    "enum",
    "example",
    "format",
    "items",
    "maxItems",
    "maxLength",
    "maxProperties",
    "maximum",
    "minItems",
    "minLength",
    "minProperties",
    "minimum",
    "nullable",
    "pattern",
    "properties",
    "propertyOrdering",
    "required",
    "title",
    "type",
];

pub(super) fn check(request: &Recorded) -> Result<(), Refusal> {
    let query = request.query.as_deref().unwrap_or_default();
    let mut pairs = query.split('&');
    if query.split('&').any(|pair| pair.starts_with("key=")) {
        return Err("the API key stands in the URL".into());
    }
    if !pairs.any(|pair| pair == "alt=sse") {
        return Err("alt=sse is missing: the answer would be one JSON array".into());
    }
    let has_key = request.header("x-goog-api-key").is_some_and(|key| !key.is_empty());
    match (has_key, request.header("authorization").is_some()) {
        (false, false) => {
            return Err(Refusal {
                status: 403,
                message: "Method doesn't allow unregistered callers (callers without established identity). Please use API Key or other form of API consumer identity to call this API.".to_owned(),
            });
        }
        (true, true) => return Err("both x-goog-api-key and authorization were sent".into()),
        _ => {}
    }
    let body = &request.body;
    if let Some(field) = unknown_field(body, &FIELDS) {
        return Err(format!(
            "Invalid JSON payload received. Unknown name \"{field}\": Cannot find field."
        )
        .into());
    }
    check_tools(body)?;
    let system = &body["systemInstruction"];
    if !system.is_null() {
        check_parts("systemInstruction", system)?;
    }
    let contents = items(&body["contents"]);
    if contents.is_empty() {
        return Err("* GenerateContentRequest.contents: contents is not specified".into());
    }
    for (index, content) in contents.iter().enumerate() {
        let expected = if index % 2 == 0 { "user" } else { "model" };
        match text(&content["role"]) {
            role if role == expected => {}
            "user" | "model" if index > 0 => {
                return Err(
                    "Please ensure that multiturn requests alternate between user and model."
                        .into(),
                );
            }
            "user" | "model" => {
                return Err("Please ensure that multiturn requests begin with a user turn.".into());
            }
            _ => return Err("Please use a valid role: user, model.".into()),
        }
        check_parts(&format!("contents[{index}]"), content)?;
        let before = index.checked_sub(1).map(|before| &contents[before]);
        check_answers(content, before)?;
    }
    let last = &contents[contents.len() - 1];
    if last["role"] != "user" {
        return Err("Please ensure that single turn requests end with a user role.".into());
    }
    if request.path.contains("gemini-3") {
        check_signatures(contents)?;
    }
    Ok(())
}

fn check_tools(body: &Value) -> Result<(), Refusal> {
    let functions: Vec<&Value> =
        items(&body["tools"]).iter().flat_map(|t| items(&t["functionDeclarations"])).collect();
    for (index, function) in functions.iter().enumerate() {
        let place = format!("tools[0].function_declarations[{index}]");
        if !is_identifier(text(&function["name"]), 64) {
            return Err(format!("* GenerateContentRequest.{place}.name: Invalid function name. Must start with a letter or an underscore. Must be alphanumeric, with a maximum length of 64.").into());
        }
        check_schema(&format!("{place}.parameters"), &function["parameters"])?;
    }
    match duplicate(functions.iter().map(|function| text(&function["name"]))) {
        Some(name) => Err(format!("Duplicate function declaration found: {name}").into()),
        None => Ok(()),
    }
}

fn check_schema(place: &str, schema: &Value) -> Result<(), Refusal> {
    if let Some(field) = unknown_field(schema, &SCHEMA_FIELDS) {
        return Err(format!(
            "Invalid JSON payload received. Unknown name \"{field}\" at '{place}': Cannot find field."
        )
        .into());
    }
    if schema["type"].is_array() {
        return Err(
            format!("Proto field is not repeating, cannot start list: '{place}.type'").into()
        );
    }
    for (name, inner) in schema["properties"].as_object().into_iter().flatten() {
        check_schema(&format!("{place}.properties[{name}]"), inner)?;
    }
    if !schema["items"].is_null() {
        check_schema(&format!("{place}.items"), &schema["items"])?;
    }
    items(&schema["anyOf"]).iter().try_for_each(|inner| check_schema(place, inner))
}

fn check_parts(place: &str, content: &Value) -> Result<(), Refusal> {
    let parts = items(&content["parts"]);
    if parts.is_empty() {
        return Err(format!(
            "* GenerateContentRequest.{place}.parts: contents.parts must not be empty."
        )
        .into());
    }
    for (at, part) in parts.iter().enumerate() {
        let is_filled = ["functionCall", "functionResponse", "inlineData", "fileData"]
            .iter()
            .any(|field| part[field].is_object());
        // A signature may come in a part of its own, whose text is empty.
        let has_text = match part["text"].as_str() {
            Some(text) => !text.is_empty() || part["thoughtSignature"].is_string(),
            None => false,
        };
        if is_filled == has_text {
            return Err(format!(
                "Unable to submit request because it has an empty or doubled part: {place}.parts[{at}]"
            )
            .into());
        }
        let call = &part["functionCall"];
        if call.is_object() && !call["args"].is_object() && !call["args"].is_null() {
            return Err(format!(
                "Invalid value at '{place}.parts[{at}].function_call.args' (type.googleapis.com/google.protobuf.Struct)"
            )
            .into());
        }
        let response = &part["functionResponse"];
        if response.is_object() && !response["response"].is_object() {
            return Err(format!(
                "Invalid value at '{place}.parts[{at}].function_response.response' (type.googleapis.com/google.protobuf.Struct)"
            )
            .into());
        }
    }
    Ok(())
}

fn names<'a>(content: &'a Value, field: &'a str) -> Vec<&'a str> {
    let parts = items(&content["parts"]).iter().filter(|part| part[field].is_object());
    parts.map(|part| text(&part[field]["name"])).collect()
}

fn check_answers(content: &Value, before: Option<&Value>) -> Result<(), Refusal> {
    let answers = names(content, "functionResponse");
    let calls = before.map(|before| names(before, "functionCall")).unwrap_or_default();
    if answers.len() != calls.len() {
        return Err(if calls.is_empty() {
            "Please ensure that function response turn comes immediately after a function call turn.".into()
        } else {
            "Please ensure that the number of function response parts is equal to the number of function call parts of the function call turn.".into()
        });
    }
    let sorted = |mut names: Vec<&str>| {
        names.sort_unstable();
        names.join(", ")
    };
    let (answers, calls) = (sorted(answers), sorted(calls));
    if answers != calls {
        return Err(format!("the function responses are of {answers}, the calls of {calls}").into());
    }
    Ok(())
}

/// Gemini 3 wants back the signatures of the turn that is under way: on the first call
/// of each step.
fn check_signatures(contents: &[Value]) -> Result<(), Refusal> {
    let is_prompt = |content: &Value| {
        content["role"] == "user" && names(content, "functionResponse").is_empty()
    };
    let begin = contents.iter().rposition(is_prompt).unwrap_or(0);
    for (index, content) in contents.iter().enumerate().skip(begin) {
        let first = items(&content["parts"]).iter().find(|part| part["functionCall"].is_object());
        if first.is_some_and(|part| text(&part["thoughtSignature"]).is_empty()) {
            return Err(format!(
                "Function call is missing a thought_signature in functionCall parts. This is required for tools to work correctly (contents[{index}])."
            )
            .into());
        }
    }
    Ok(())
}

pub(super) fn events(answer: &Answer, asked: &Asked<'_>) -> Vec<Vec<u8>> {
    let usage = answer.usage;
    let prompt = usage.input + usage.cache_read + usage.cache_write;
    let chunk = |parts: Value, finish: Option<&str>| {
        let mut candidate = json!({"content": {"parts": parts, "role": "model"}, "index": 0});
        let mut counts = json!({
            "promptTokenCount": prompt, "totalTokenCount": prompt,
            "cachedContentTokenCount": usage.cache_read,
        });
        if let Some(finish) = finish {
            candidate["finishReason"] = finish.into();
            counts["candidatesTokenCount"] = usage.output.saturating_sub(usage.reasoning).into();
            counts["thoughtsTokenCount"] = usage.reasoning.into();
            counts["totalTokenCount"] = (prompt + usage.output).into();
        }
        unnamed(
            &json!({
                "candidates": [candidate], "usageMetadata": counts,
                "modelVersion": "fake-1", "responseId": format!("r{}", asked.number),
            }),
            "\r\n",
        )
    };
    let mut events = Vec::new();
    let mut signature: Option<&str> = None;
    let mut signed = |mut part: Value, signature: &mut Option<&str>| {
        if let Some(signature) = signature.take() {
            part["thoughtSignature"] = signature.into();
        }
        events.push(chunk(json!([part]), None));
    };
    for (block, pieces) in &answer.blocks {
        match block {
            Block::Text => {
                for piece in pieces {
                    signed(json!({"text": piece}), &mut signature);
                }
            }
            Block::Thinking { signature: own } => {
                for piece in pieces {
                    signed(json!({"text": piece, "thought": true}), &mut None);
                }
                signature = Some(own).filter(|own| !own.is_empty()).map(String::as_str);
            }
            Block::Redacted { .. } => {}
            Block::Call { name, .. } => {
                let arguments: Value = serde_json::from_str(&pieces.concat()).unwrap_or_default();
                let call = json!({"functionCall": {"name": name, "args": arguments}});
                signed(call, &mut signature);
            }
        }
    }
    let finish = match answer.stops_for() {
        Stop::End | Stop::ToolUse => "STOP",
        Stop::Length => "MAX_TOKENS",
        Stop::Refusal => "SAFETY",
    };
    let mut last = json!({"text": ""});
    if let Some(signature) = signature {
        last["thoughtSignature"] = signature.into();
    }
    events.push(chunk(json!([last]), Some(finish)));
    events
}
