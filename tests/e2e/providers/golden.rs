//! A whole run in JSON mode, line by line, for each API: thinking, two parallel calls,
//! and an answer.

use insta::assert_snapshot;
use regex::Regex;
use serde_json::json;
use wharf_tests::llm::{Answer, Api, Usage};
use wharf_tests::normalise;

use super::Fake;

#[test]
fn json_mode() {
    // Google gives calls no ids; these are made.
    let made = Regex::new("call_[0-9a-f]{32}").unwrap();
    for api in Api::ALL {
        let fake = Fake::with(
            api,
            &json!({
                "reasoning": true,
                "cost": {"input": 2.0, "output": 8.0, "cacheRead": 0.5, "cacheWrite": 4.0},
            }),
        );
        fake.env.write("a.txt", "alpha\n");
        fake.env.write("b.txt", "beta\n");
        let usage = |input, output| Usage {
            input,
            output,
            cache_read: 2000,
            cache_write: 1000,
            reasoning: 25,
        };
        fake.server.reply(
            Answer::default()
                .thinking("Two files.", "c2lnbmVk")
                .text("I read both.")
                .call("call_a", "read", &json!({"path": "a.txt"}))
                .call("call_b", "read", &json!({"path": "b.txt"}))
                .usage(usage(500, 100)),
        );
        fake.server.reply(Answer::says("alpha and beta").usage(usage(1000, 50)));
        let output = fake
            .env
            .command()
            .args([
                "--mode",
                "json",
                "--model",
                &fake.model,
                "--thinking",
                "high",
                "What is in them?",
            ])
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        assert_eq!(String::from_utf8_lossy(&output.stderr), "");
        let text = normalise(str::from_utf8(&output.stdout).unwrap(), &fake.env.names());
        let mut seen = Vec::new();
        let text = made.replace_all(&text, |found: &regex::Captures<'_>| {
            let id = found[0].to_owned();
            let at = seen.iter().position(|known| *known == id).unwrap_or_else(|| {
                seen.push(id);
                seen.len() - 1
            });
            format!("[CALL{}]", at + 1)
        });
        assert_snapshot!(api.name().replace('-', "_"), text.trim_end());
    }
}
