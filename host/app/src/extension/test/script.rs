//! A scripted conversation: one JSON object a line, played from top to bottom. Empty lines
//! and lines that begin with `//` are skipped.
//!
//! - `{"grant": ["exec:git **"]}`: what the extension is granted of that which it asks
//!   for; the rest is denied, so nobody is asked. Before anything is sent.
//! - `{"file": "notes/a.md", "text": "..."}`: a file of the working directory. Before
//!   anything is sent.
//! - `{"model": {...}}`: a reply of the model, a line of the scripted provider. Replies are
//!   given in order, wherever they stand.
//! - `{"send": {"type": "prompt", "message": "..."}}`: an RPC command.
//! - `{"expect": {...}}`: waits for an event or a response that has these fields. Others
//!   may come before it; the next step looks at what comes after it. In a string `*` stands
//!   for any text (`\*` for the character); null also for a field that is not there; an
//!   object for one that has at least its fields; an array for one as long.
//! - `{"answer": {"confirmed": true}}`: the answer to the oldest dialog that is open, or
//!   to the next one: `value`, `confirmed`, `selected` and `customText`, or `cancelled`.
//!
//! An `extension_error`, or a response that says no, fails the conversation unless a step
//! expects it; so does an exit that is not 0.

use std::path::{Component, Path};

use anyhow::{Context as _, bail, ensure};
use serde_json::{Map, Value};
use wharf_extensions::Permission;

use super::super::permission;

#[derive(Debug, Default, PartialEq)]
pub(in super::super) struct Script {
    pub(super) grant: Vec<Permission>,
    /// Paths with their texts.
    pub(super) files: Vec<(String, String)>,
    pub(super) model: Vec<Value>,
    pub(super) steps: Vec<Step>,
}

#[derive(Debug, PartialEq)]
pub(super) struct Step {
    /// From 1.
    pub(super) line: usize,
    pub(super) action: Action,
}

#[derive(Debug, PartialEq)]
pub(super) enum Action {
    Send(Map<String, Value>),
    Expect(Value),
    Answer(Map<String, Value>),
}

/// Reads a script; errors name the file and the line.
pub(in super::super) fn parse(path: &Path, text: &str) -> anyhow::Result<Script> {
    let mut script = Script::default();
    for (at, line) in text.lines().enumerate() {
        if line.trim().is_empty() || line.trim_start().starts_with("//") {
            continue;
        }
        let number = at + 1;
        script.add(number, line).with_context(|| format!("{}:{number}", path.display()))?;
    }
    let checks = script.steps.iter().any(|step| matches!(step.action, Action::Expect(_)));
    ensure!(checks, "{}: it expects nothing, so it tests nothing", path.display());
    Ok(script)
}

impl Script {
    fn add(&mut self, line: usize, text: &str) -> anyhow::Result<()> {
        let fields: Map<String, Value> = serde_json::from_str(text).context("no JSON object")?;
        let mut fields = fields.into_iter();
        let Some((key, value)) = fields.next() else { bail!("an empty object says nothing") };
        let rest: Vec<(String, Value)> = fields.collect();
        let begun = !self.steps.is_empty();
        let before = |what: &str| -> anyhow::Result<()> {
            ensure!(!begun, "{what} must stand before the first send, expect and answer");
            Ok(())
        };
        match (key.as_str(), value, rest.as_slice()) {
            ("file", Value::String(file), [(key, Value::String(text))]) if key == "text" => {
                before("file")?;
                let is_inside =
                    Path::new(&file).components().all(|c| matches!(c, Component::Normal(_)));
                ensure!(
                    is_inside && !file.is_empty(),
                    "{file:?} is no path below the working directory"
                );
                self.files.push((file, text.clone()));
            }
            ("file", _, _) => bail!("file is written {{\"file\": PATH, \"text\": TEXT}}"),
            (key, _, [(other, _), ..]) => bail!("{key} and {other} are two steps: one a line"),
            ("grant", Value::Array(texts), []) => {
                before("grant")?;
                for text in texts {
                    let text = text.as_str().context("grant is a list of texts")?;
                    self.grant.push(permission::parse(text)?);
                }
            }
            ("model", reply @ Value::Object(_), []) => self.model.push(reply),
            ("send", Value::Object(command), []) => {
                ensure!(command.contains_key("type"), "a command has a \"type\"");
                self.step(line, Action::Send(command));
            }
            ("expect", event @ Value::Object(_), []) => self.step(line, Action::Expect(event)),
            ("answer", Value::Object(answer), []) => self.step(line, Action::Answer(answer)),
            ("grant", _, _) => bail!("grant is a list of permissions"),
            ("model" | "send" | "expect" | "answer", _, _) => bail!("{key} is an object"),
            _ => bail!("{key:?} is no step; there are: grant, file, model, send, expect, answer"),
        }
        Ok(())
    }

    fn step(&mut self, line: usize, action: Action) {
        self.steps.push(Step { line, action });
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use serde_json::json;

    use super::*;

    #[test]
    fn a_script_is_read_in_order() {
        let text = r#"
            // What it is about.
            {"grant": ["exec:git **"]}
            {"file": "a/b.md", "text": "x"}
            {"model": {"content": []}}
            {"send": {"type": "prompt", "message": "hi"}}
            {"expect": {"type": "agent_end"}}
            {"model": {"error": {}}}
            {"answer": {"confirmed": true}}
        "#;
        let script = parse(Path::new("t.jsonl"), text).unwrap();
        let object = |value: Value| value.as_object().unwrap().clone();
        assert_eq!(
            script,
            Script {
                grant: vec![Permission::Exec(vec!["git".into(), "**".into()])],
                files: vec![("a/b.md".into(), "x".into())],
                model: vec![json!({"content": []}), json!({"error": {}})],
                steps: vec![
                    Step {
                        line: 6,
                        action: Action::Send(object(json!({"type": "prompt", "message": "hi"}))),
                    },
                    Step { line: 7, action: Action::Expect(json!({"type": "agent_end"})) },
                    Step { line: 9, action: Action::Answer(object(json!({"confirmed": true}))) },
                ],
            }
        );
    }

    #[test]
    fn a_line_that_is_no_step_is_named() {
        let expects = "{\"expect\": {}}\n";
        for (line, expect) in [
            ("{", "t.jsonl:2: no JSON object"),
            ("{}", "t.jsonl:2: an empty object says nothing"),
            (
                r#"{"wait": 1}"#,
                "t.jsonl:2: \"wait\" is no step; there are: grant, file, model, send, expect, answer",
            ),
            (r#"{"send": {}}"#, "t.jsonl:2: a command has a \"type\""),
            (r#"{"expect": "x"}"#, "t.jsonl:2: expect is an object"),
            (
                r#"{"expect": {}, "send": {}}"#,
                "t.jsonl:2: expect and send are two steps: one a line",
            ),
            (
                r#"{"grant": []}"#,
                "t.jsonl:2: grant must stand before the first send, expect and answer",
            ),
        ] {
            let error = parse(Path::new("t.jsonl"), &format!("{expects}{line}")).unwrap_err();
            let told = crate::report::with_causes(&error);
            assert!(told.starts_with(expect), "{told}");
        }
        for file in ["../x", "/x", "", "a/../../x"] {
            let line = json!({"file": file, "text": ""}).to_string();
            assert!(parse(Path::new("t.jsonl"), &format!("{line}\n{expects}")).is_err(), "{file}");
        }
        let error = parse(Path::new("t.jsonl"), "{\"send\": {\"type\": \"x\"}}").unwrap_err();
        assert_eq!(error.to_string(), "t.jsonl: it expects nothing, so it tests nothing");
    }
}
