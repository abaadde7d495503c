//! Rules for kinds of files. `.rules/NAME.md` begins with a line `for: *.rs *.toml`;
//! once the conversation has touched a file that matches, the model reads the rest.
//! Prompt templates in `.rules/prompts` are offered as commands.
//!
//! Permission: reading `.rules/**` in the project.

use serde::{Deserialize, Serialize};
use wharf_sdk::{
    AccessError, AssistantContent, ContextEvent, Ctx, Extension, FileKind, Json, Message,
    Permission, Registration, Resources, ResourcesDiscoverEvent, Result,
};

const FOLDER: &str = ".rules";

#[derive(Deserialize)]
struct Touched {
    path: Option<String>,
}

/// A message as the model reads it.
#[derive(Serialize)]
struct Said<'a> {
    role: &'a str,
    content: &'a str,
    timestamp: u64,
}

struct Rule {
    patterns: Vec<String>,
    text: String,
}

#[derive(Default)]
struct FileRules;

impl Extension for FileRules {
    fn register() -> Registration<Self> {
        Registration::new("file-rules", env!("CARGO_PKG_VERSION"))
            .description("Rules that apply to kinds of files.")
            .permission(Permission::fs_read(".rules/**"))
            .on_context(Self::context)
            .on_resources_discover(Self::resources)
    }
}

impl FileRules {
    async fn context(&self, ctx: &Ctx, event: ContextEvent) -> Result<Option<Json>> {
        let touched = touched(&event.messages()?);
        if touched.is_empty() {
            return Ok(None);
        }
        let rules: Vec<String> = rules(ctx)
            .await?
            .into_iter()
            .filter(|rule| touched.iter().any(|path| rule.applies_to(path)))
            .map(|rule| rule.text)
            .collect();
        if rules.is_empty() {
            return Ok(None);
        }
        let text = format!("Rules for the files of this conversation:\n\n{}", rules.join("\n\n"));
        let message = Said { role: "user", content: &text, timestamp: 0 };
        event.with_message(Json::of(&message)?).map(Some)
    }

    async fn resources(&self, ctx: &Ctx, _: ResourcesDiscoverEvent) -> Result<Resources> {
        let prompts = format!("{FOLDER}/prompts");
        Ok(match ctx.files().stat(prompts.as_str()).await {
            Ok(info) if info.kind == FileKind::Directory => Resources::new().prompt(prompts),
            _ => Resources::new(),
        })
    }
}

impl Rule {
    /// None where the first line names no files.
    fn parse(text: &str) -> Option<Self> {
        let (first, rest) = text.split_once('\n')?;
        let patterns = first.strip_prefix("for:")?.split_whitespace();
        Some(Self { patterns: patterns.map(str::to_owned).collect(), text: rest.trim().to_owned() })
    }

    /// `*.rs` is the end of a name, anything else is a whole name.
    fn applies_to(&self, path: &str) -> bool {
        let name = path.rsplit('/').next().unwrap_or(path);
        self.patterns.iter().any(|pattern| match pattern.strip_prefix('*') {
            Some(end) => name.ends_with(end),
            None => name == pattern,
        })
    }
}

async fn rules(ctx: &Ctx) -> Result<Vec<Rule>> {
    let files = match ctx.files().list_directory(FOLDER).await {
        Ok(files) => files,
        Err(AccessError::NotFound(_)) => return Ok(Vec::new()),
        Err(error) => return Err(error.into()),
    };
    let mut rules = Vec::new();
    for file in files.iter().filter(|file| file.name.ends_with(".md")) {
        let text = ctx.files().read_to_string(format!("{FOLDER}/{}", file.name)).await?;
        rules.extend(Rule::parse(&text));
    }
    Ok(rules)
}

/// The paths that tools were called with.
fn touched(messages: &[Message]) -> Vec<String> {
    let calls = messages.iter().flat_map(|message| match message {
        Message::Assistant { content, .. } => content.as_slice(),
        _ => &[],
    });
    calls
        .filter_map(|block| match block {
            AssistantContent::ToolCall { arguments, .. } => arguments.parse::<Touched>().ok()?.path,
            _ => None,
        })
        .collect()
}

wharf_sdk::export!(FileRules);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_names_its_files_in_its_first_line() {
        let rule = Rule::parse("for: *.rs Cargo.toml\nNo unwrap.\n");
        let applies = |path| rule.as_ref().is_some_and(|rule| rule.applies_to(path));
        assert!(applies("src/lib.rs") && applies("Cargo.toml"));
        assert!(!applies("src/rs") && !applies("My-Cargo.toml.bak"));
        assert!(Rule::parse("No unwrap.\n").is_none());
    }
}
