//! `wharf extension inspect`

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use serde::Serialize;
use serde_json::{Map, Value};
use wharf_extensions::{GrantStore, Inspection, Subject};

use super::describe::{Decisions, Offer, grants_file};
use super::here::Here;
use super::list::decisions;
use super::{HereArgs, print, print_json};
use crate::plain::{one_line, shown};
use crate::{report, wiring};

/// Characters of a description.
const CHARS: usize = 160;
/// Width of the first column.
const LABEL: usize = 12;

#[derive(Debug, Args)]
pub(crate) struct InspectArgs {
    /// A .wasm file, a folder with extension.wasm, or the id of an extension that loads here
    #[arg(value_name = "FILE|ID")]
    extension: String,
    /// As JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    here: HereArgs,
}

/// All that is known of a component before it is used.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Inspected {
    id: String,
    version: String,
    description: String,
    path: PathBuf,
    /// Bytes.
    size: u64,
    content_hash: String,
    api_version: String,
    #[serde(flatten)]
    offer: Offer,
    permissions: Decisions,
    /// As settings name them.
    limits: Map<String, Value>,
}

pub(super) fn run(args: &InspectArgs) -> anyhow::Result<ExitCode> {
    let here = Here::new(&args.here)?;
    let inspection = here.inspect(&here.find(&args.extension)?)?;
    let inspected = Inspected::new(&here, &inspection);
    if args.json {
        print_json(&inspected)?;
    } else {
        print(&inspected.text())?;
    }
    Ok(ExitCode::SUCCESS)
}

pub(super) fn subject(inspection: &Inspection) -> Subject {
    Subject {
        id: inspection.registration.id.clone(),
        path: inspection.path.clone(),
        content_hash: inspection.content_hash.clone(),
    }
}

impl Inspected {
    pub(super) fn new(here: &Here, inspection: &Inspection) -> Self {
        let grants = GrantStore::load(grants_file(&here.loading));
        if let Err(error) = &grants {
            report::warning(error);
        }
        let registration = &inspection.registration;
        // Settings may call it by its id, or by its file's name.
        let has_own = here.settings.limited_extensions().any(|name| name == registration.id);
        let name = if has_own { &registration.id } else { &inspection.name };
        let limits = wiring::limits(&here.settings, name).describe();
        Self {
            id: registration.id.clone(),
            version: registration.version.clone(),
            description: registration.description.clone(),
            path: inspection.path.clone(),
            size: inspection.size,
            content_hash: inspection.content_hash.clone(),
            api_version: inspection.api_version.clone(),
            offer: Offer::from(registration),
            permissions: Decisions::of(
                grants.as_ref().ok(),
                &subject(inspection),
                &registration.permissions,
            ),
            limits: limits
                .into_iter()
                .map(|(name, value)| (name.to_owned(), value.into()))
                .collect(),
        }
    }

    pub(super) fn text(&self) -> String {
        let Offer { commands, tools, subscriptions, flags, shortcuts } = &self.offer;
        let mut text =
            format!("{} {}\n", one_line(&self.id, CHARS), one_line(&self.version, CHARS));
        if !self.description.is_empty() {
            text.push_str(&format!("{}\n", one_line(&self.description, CHARS)));
        }
        let path = shown(&self.path.display().to_string(), usize::MAX);
        rows(&mut text, "file", [format!("{path} ({} bytes)", self.size)]);
        rows(&mut text, "content", [shown(&self.content_hash, CHARS)]);
        rows(&mut text, "API", [format!("wharf:extension@{}", one_line(&self.api_version, CHARS))]);
        let described = |head: String, description: &str| {
            format!("{}  {}", one_line(&head, CHARS), one_line(description, CHARS))
        };
        rows(
            &mut text,
            "commands",
            commands.iter().map(|command| {
                let hint = command.argument_hint.as_deref().unwrap_or_default();
                described(format!("/{} {hint}", command.name), &command.description)
            }),
        );
        rows(
            &mut text,
            "tools",
            tools.iter().map(|tool| {
                let mark = if tool.overrides { " (overrides the built-in)" } else { "" };
                described(format!("{}{mark}", tool.name), &tool.description)
            }),
        );
        rows(&mut text, "events", subscriptions.iter().map(|name| one_line(name, CHARS)));
        rows(
            &mut text,
            "flags",
            flags.iter().map(|flag| {
                let value = if flag.takes_value { "=VALUE" } else { "" };
                described(format!("--{}{value}", flag.name), &flag.description)
            }),
        );
        rows(
            &mut text,
            "shortcuts",
            shortcuts.iter().map(|shortcut| {
                described(
                    format!("{} runs /{}", shortcut.key, shortcut.command),
                    &shortcut.description,
                )
            }),
        );
        rows(&mut text, "permissions", decisions(&self.permissions));
        let value = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        rows(
            &mut text,
            "limits",
            self.limits.iter().map(|(name, limit)| format!("{name}  {}", value(limit))),
        );
        text
    }
}

/// Lines under one label.
fn rows(text: &mut String, label: &str, rows: impl IntoIterator<Item = String>) {
    for (at, row) in rows.into_iter().enumerate() {
        let label = if at == 0 { label } else { "" };
        text.push_str(format!("{label:<LABEL$} {row}").trim_end());
        text.push('\n');
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::describe::{Command, Tool};
    use super::*;

    #[test]
    fn what_a_guest_says_moves_no_cursor() {
        let evil = "\u{1b}[2J\u{202e}x\r\ny";
        let inspected = Inspected {
            id: "gate".to_owned(),
            version: "1.0.0\u{7}".to_owned(),
            description: evil.to_owned(),
            path: "/x/gate.wasm".into(),
            size: 12,
            content_hash: "sha256:00".to_owned(),
            api_version: "0.1.1".to_owned(),
            offer: Offer {
                commands: vec![Command {
                    name: "hello".to_owned(),
                    description: evil.to_owned(),
                    argument_hint: Some("[name]".to_owned()),
                }],
                tools: vec![Tool {
                    name: "bash".to_owned(),
                    label: String::new(),
                    description: "Wraps it".to_owned(),
                    overrides: true,
                }],
                subscriptions: vec!["tool_call".to_owned(), "turn_end".to_owned()],
                ..Offer::default()
            },
            permissions: Decisions {
                granted: vec!["net:example.org".to_owned()],
                undecided: vec!["env:\u{1b}[0mX".to_owned()],
                ..Decisions::default()
            },
            limits: Map::from_iter([("memoryMb".to_owned(), json!("256"))]),
        };
        assert_eq!(
            inspected.text(),
            "gate 1.0.0\n\
             [2Jx y\n\
             file         /x/gate.wasm (12 bytes)\n\
             content      sha256:00\n\
             API          wharf:extension@0.1.1\n\
             commands     /hello [name]  [2Jx y\n\
             tools        bash (overrides the built-in)  Wraps it\n\
             events       tool_call\n             \
             turn_end\n\
             permissions  granted    net:example.org\n             \
             undecided  env:[0mX\n\
             limits       memoryMb  256\n"
        );
    }
}
