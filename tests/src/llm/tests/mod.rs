//! Tests of the fake server, through a client that does no more than sockets do.

mod checks;
mod wire;

use std::io::{BufRead as _, BufReader, ErrorKind, Read as _, Write as _};
use std::net::{Shutdown, TcpStream};

use serde_json::{Value, json};

use super::{Api, LlmServer};

/// How a response's body ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ending {
    Complete,
    Closed,
    Reset,
}

#[derive(Debug)]
struct Response {
    status: u16,
    head: String,
    /// As the server has chunked them; one where it gave a length.
    chunks: Vec<Vec<u8>>,
    ending: Ending,
}

impl Response {
    fn body(&self) -> Vec<u8> {
        self.chunks.concat()
    }

    fn text(&self) -> String {
        String::from_utf8(self.body()).unwrap()
    }

    /// The JSON of its events.
    fn data(&self) -> Vec<Value> {
        let text = self.text();
        let data = text.lines().filter_map(|line| line.strip_prefix("data: "));
        data.filter(|data| *data != "[DONE]").map(|d| serde_json::from_str(d).unwrap()).collect()
    }
}

struct Client(BufReader<TcpStream>);

impl Client {
    fn new(server: &LlmServer) -> Self {
        let address = server.base_url().replace("http://", "");
        Self(BufReader::new(TcpStream::connect(address).unwrap()))
    }

    fn send(&mut self, bytes: &[u8]) {
        self.0.get_mut().write_all(bytes).unwrap();
    }

    fn post(&mut self, target: &str, headers: &[(&str, &str)], body: &Value) {
        let mut head = format!("POST {target} HTTP/1.1\r\nhost: fake\r\n");
        for (name, value) in headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        let body = body.to_string();
        head.push_str(&format!("Content-Length: {}\r\n\r\n{body}", body.len()));
        self.send(head.as_bytes());
    }

    /// Posts a good request and reads the response.
    fn ask(&mut self, api: Api) -> Response {
        self.post_good(api);
        self.response()
    }

    fn post_good(&mut self, api: Api) {
        self.post(target(api), headers(api), &good(api));
    }

    fn line(&mut self) -> Result<String, Ending> {
        let mut line = Vec::new();
        match self.0.read_until(b'\n', &mut line) {
            Ok(_) if line.ends_with(b"\r\n") => {
                Ok(String::from_utf8(line).unwrap().trim().to_owned())
            }
            Ok(_) => Err(Ending::Closed),
            Err(error) if error.kind() == ErrorKind::ConnectionReset => Err(Ending::Reset),
            Err(error) => panic!("{error}"),
        }
    }

    fn bytes(&mut self, length: usize) -> Result<Vec<u8>, Ending> {
        let mut bytes = vec![0; length];
        match self.0.read_exact(&mut bytes) {
            Ok(()) => Ok(bytes),
            Err(error) if error.kind() == ErrorKind::ConnectionReset => Err(Ending::Reset),
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => Err(Ending::Closed),
            Err(error) => panic!("{error}"),
        }
    }

    fn head(&mut self) -> (u16, String) {
        let status = self.line().unwrap();
        let status = status.split(' ').nth(1).unwrap().parse().unwrap();
        let mut head = String::new();
        loop {
            let line = self.line().unwrap();
            if line.is_empty() {
                return (status, head);
            }
            head.push_str(&line);
            head.push('\n');
        }
    }

    /// One chunk; none at the body's end.
    fn chunk(&mut self) -> Result<Option<Vec<u8>>, Ending> {
        let size = usize::from_str_radix(&self.line()?, 16).unwrap();
        let bytes = self.bytes(size)?;
        self.line()?;
        Ok((size > 0).then_some(bytes))
    }

    fn response(&mut self) -> Response {
        let (status, head) = self.head();
        let mut chunks = Vec::new();
        let ending = if let Some(at) = head.find("content-length: ") {
            let length = head[at + 16..].lines().next().unwrap().parse().unwrap();
            self.bytes(length).map(|bytes| chunks.push(bytes)).err()
        } else {
            loop {
                match self.chunk() {
                    Ok(Some(chunk)) => chunks.push(chunk),
                    Ok(None) => break None,
                    Err(ending) => break Some(ending),
                }
            }
        };
        Response { status, head, chunks, ending: ending.unwrap_or(Ending::Complete) }
    }

    fn close(self) {
        self.0.get_ref().shutdown(Shutdown::Both).unwrap();
    }
}

fn target(api: Api) -> &'static str {
    match api {
        Api::AnthropicMessages => "/v1/messages",
        Api::OpenaiCompletions => "/v1/chat/completions",
        Api::OpenaiResponses => "/v1/responses",
        Api::GoogleGenerativeAi => "/v1beta/models/fake-1:streamGenerateContent?alt=sse",
    }
}

fn headers(api: Api) -> &'static [(&'static str, &'static str)] {
    match api {
        Api::AnthropicMessages => &[("X-Api-Key", "k"), ("anthropic-version", "2023-06-01")],
        Api::OpenaiCompletions | Api::OpenaiResponses => &[("Authorization", "Bearer k")],
        Api::GoogleGenerativeAi => &[("x-goog-api-key", "k")],
    }
}

/// A request with all that the checks look at, and nothing to complain of.
fn good(api: Api) -> Value {
    let schema = json!({"type": "object", "properties": {"path": {"type": "string"}}});
    match api {
        Api::AnthropicMessages => json!({
            "model": "fake-1", "stream": true, "max_tokens": 4096,
            "system": [{"type": "text", "text": "s", "cache_control": {"type": "ephemeral"}}],
            "thinking": {"type": "enabled", "budget_tokens": 1024},
            "tools": [
                {"name": "read", "input_schema": schema},
                {"name": "ls", "input_schema": schema, "cache_control": {"type": "ephemeral"}},
            ],
            "messages": [
                {"role": "user", "content": "look"},
                {"role": "assistant", "content": [
                    {"type": "thinking", "thinking": "hm", "signature": "sig"},
                    {"type": "redacted_thinking", "data": "x"},
                    {"type": "text", "text": "I look"},
                    {"type": "tool_use", "id": "a", "name": "read", "input": {"cache_control": 1}},
                    {"type": "tool_use", "id": "b", "name": "ls", "input": {}},
                ]},
                {"role": "user", "content": [
                    {"type": "tool_result", "tool_use_id": "b", "content": "x"},
                    {"type": "tool_result", "tool_use_id": "a", "content": [
                        {"type": "text", "text": "t"},
                        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AA=="}},
                    ]},
                    {"type": "text", "text": "and?", "cache_control": {"type": "ephemeral"}},
                ]},
            ],
        }),
        Api::OpenaiCompletions => json!({
            "model": "fake-1", "stream": true, "stream_options": {"include_usage": true},
            "max_completion_tokens": 100,
            "tools": [{"type": "function", "function": {"name": "read", "parameters": schema}}],
            "messages": [
                {"role": "system", "content": "s"},
                {"role": "user", "content": [{"type": "text", "text": "look"}]},
                {"role": "assistant", "content": null, "tool_calls": [
                    {"id": "a", "type": "function", "function": {"name": "read", "arguments": "{}"}},
                    {"id": "b", "type": "function", "function": {"name": "read", "arguments": "{}"}},
                ]},
                {"role": "tool", "tool_call_id": "b", "content": "x"},
                {"role": "tool", "tool_call_id": "a", "content": ""},
                {"role": "assistant", "content": "done"},
                {"role": "user", "content": "and?"},
            ],
        }),
        Api::OpenaiResponses => json!({
            "model": "fake-1", "stream": true, "store": false, "max_output_tokens": 100,
            "include": ["reasoning.encrypted_content"],
            "tools": [{"type": "function", "name": "read", "parameters": schema}],
            "input": [
                {"role": "developer", "content": "s"},
                {"role": "user", "content": [{"type": "input_text", "text": "look"}]},
                {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "e"},
                {"type": "message", "role": "assistant", "id": "msg_1", "status": "completed",
                 "content": [{"type": "output_text", "text": "I look", "annotations": []}]},
                {"type": "function_call", "id": "fc_1", "call_id": "a", "name": "read", "arguments": "{}"},
                {"type": "function_call", "call_id": "b", "name": "read", "arguments": "{}"},
                {"type": "function_call_output", "call_id": "b", "output": "x"},
                {"type": "function_call_output", "call_id": "a", "output": ""},
            ],
        }),
        Api::GoogleGenerativeAi => json!({
            "systemInstruction": {"parts": [{"text": "s"}]},
            "tools": [{"functionDeclarations": [
                {"name": "read", "parameters": schema},
                {"name": "ls", "parametersJsonSchema": {"type": "object", "additionalProperties": false}},
            ]}],
            "contents": [
                {"role": "user", "parts": [{"text": "look"}]},
                {"role": "model", "parts": [
                    {"text": "hm", "thought": true},
                    {"functionCall": {"name": "read", "args": {}}, "thoughtSignature": "s"},
                    {"functionCall": {"name": "ls", "args": {}}},
                ]},
                {"role": "user", "parts": [
                    {"functionResponse": {"name": "read", "response": {"output": "x"}}},
                    {"functionResponse": {"name": "ls", "response": {"output": "y"}}},
                ]},
            ],
        }),
    }
}
