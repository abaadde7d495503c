//! The mock LLM server that may lie beside the project. It is not part of it: whoever
//! uses it must do without where it is missing.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};

/// A running mock server. Its script is in the prompts: `[[mock tools=2 deltas=3]]`.
#[derive(Debug)]
pub struct MockLlm {
    child: Child,
    port: u16,
}

impl MockLlm {
    /// None, and a line that says so, where there is no mock or no Python to run it.
    pub fn start() -> Option<Self> {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/tools/mock_llm.py");
        if !script.is_file() {
            crate::note("skipped: the mock server is not there");
            return None;
        }
        let started = Command::new("python3")
            .arg(&script)
            .args(["--port", "0"])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn();
        let Ok(mut child) = started else {
            crate::note("skipped: there is no python3 to run the mock server");
            return None;
        };
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let port = line.trim().strip_prefix("LISTENING ").unwrap().parse().unwrap();
        Some(Self { child, port })
    }

    /// A `models.json` with the model `mock` of the providers `mock-anthropic` and
    /// `mock-openai`.
    pub fn models_json(&self) -> String {
        let url = format!("http://127.0.0.1:{}", self.port);
        let model = json!([{
            "id": "mock", "contextWindow": 1_000_000, "maxTokens": 32_000,
            "cost": {"input": 1.0, "output": 2.0, "cacheRead": 0.0, "cacheWrite": 0.0},
        }]);
        json!({"providers": {
            "mock-anthropic": {"api": "anthropic-messages", "baseUrl": url, "apiKey": "key", "models": model},
            "mock-openai": {"api": "openai-completions", "baseUrl": format!("{url}/v1"), "apiKey": "key", "models": model},
        }})
        .to_string()
    }

    /// Its counters since the last `reset`.
    pub fn stats(&self) -> Value {
        serde_json::from_str(&self.request("GET /stats")).unwrap()
    }

    pub fn reset(&self) {
        self.request("POST /reset");
    }

    fn request(&self, line: &str) -> String {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        write!(stream, "{line} HTTP/1.1\r\nhost: mock\r\n\r\n").unwrap();
        let mut reader = BufReader::new(stream);
        let mut length = 0;
        loop {
            let mut header = String::new();
            reader.read_line(&mut header).unwrap();
            if let Some(value) = header.to_lowercase().strip_prefix("content-length:") {
                length = value.trim().parse().unwrap();
            }
            if header.trim().is_empty() {
                break;
            }
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body).unwrap();
        String::from_utf8(body).unwrap()
    }
}

impl Drop for MockLlm {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
