//! A tool with state that follows the conversation: a to-do list whose every result
//! carries the whole list in its `details`, so that going back to an earlier entry,
//! another branch or another session brings the list of that place back.
//!
//! The list in memory is only a cache. It is right while the newest call that this
//! instance ran stands on the current branch; else it is read from the branch. (To
//! look only at the branch would lose a call whose result is not written yet.)

mod list;

use std::cell::RefCell;

use list::TodoList;
use serde::Deserialize;
use wharf_sdk::{
    AssistantContent, CommandCtx, Ctx, Entry, Extension, Json, Message, Parameters, Registration,
    Result, ToolCtx, ToolOutput, ToolSpec,
};

const TOOL: &str = "todo";

#[derive(Default)]
struct Todo {
    state: RefCell<State>,
}

#[derive(Default)]
struct State {
    list: TodoList,
    /// The session and the call that the list stands after.
    newest: Option<(String, String)>,
}

#[derive(Deserialize, Parameters)]
#[serde(rename_all = "lowercase")]
enum Action {
    List,
    Add,
    Toggle,
    Clear,
}

#[derive(Deserialize, Parameters)]
struct Params {
    action: Action,
    /// What is to be done; for `add`.
    text: Option<String>,
    /// The item's number; for `toggle`.
    id: Option<u32>,
}

impl Extension for Todo {
    fn register() -> Registration<Self> {
        let tool = ToolSpec::new(TOOL, "Keeps a to-do list: list, add (text), toggle (id), clear.")
            .label("To-do list")
            .prompt_snippet("Keep a to-do list")
            .sequential();
        Registration::new("todo", env!("CARGO_PKG_VERSION"))
            .description("A to-do list that follows the conversation's branches.")
            .tool_with(tool, Self::todo)
            .command("todos", "Shows the to-do list", Self::todos)
    }
}

impl Todo {
    async fn todo(&self, ctx: &ToolCtx, params: Params) -> Result<ToolOutput> {
        self.sync(ctx)?;
        let mut state = self.state.borrow_mut();
        let text = match params.action {
            Action::List => state.list.to_string(),
            Action::Add => {
                let text = params.text.ok_or("add needs a text")?;
                state.list.add(text)
            }
            Action::Toggle => {
                let id = params.id.ok_or("toggle needs an id")?;
                state.list.toggle(id).ok_or_else(|| format!("there is no to-do #{id}"))?
            }
            Action::Clear => state.list.clear(),
        };
        state.newest = Some((ctx.session().id(), ctx.tool_call_id().to_owned()));
        Ok(ToolOutput::text(text).with_details(Json::of(&state.list)?))
    }

    async fn todos(&self, ctx: &CommandCtx, _args: &str) -> Result<()> {
        self.sync(ctx)?;
        ctx.ui().notify(self.state.borrow().list.to_string());
        Ok(())
    }

    /// Makes the list that of the current branch.
    fn sync(&self, ctx: &Ctx) -> Result<()> {
        let session = ctx.session();
        let branch = session.branch()?;
        let mut state = self.state.borrow_mut();
        let is_current = state.newest.as_ref().is_some_and(|(id, call)| {
            *id == session.id() && branch.iter().any(|entry| has_call(entry, call))
        });
        if !is_current {
            let list = branch.iter().rev().find_map(list_of).unwrap_or_default();
            *state = State { list, newest: None };
        }
        Ok(())
    }
}

/// True when the entry is the model's message with that call.
fn has_call(entry: &Entry, call: &str) -> bool {
    let Some(Message::Assistant { content, .. }) = entry.message() else { return false };
    content.iter().any(|part| matches!(part, AssistantContent::ToolCall { id, .. } if id == call))
}

/// The list that a result of this tool carries.
fn list_of(entry: &Entry) -> Option<TodoList> {
    match entry.message()? {
        Message::ToolResult { tool_name, details: Some(details), .. } if tool_name == TOOL => {
            details.parse().ok()
        }
        _ => None,
    }
}

wharf_sdk::export!(Todo);

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panic")]
mod tests {
    use super::*;

    #[test]
    fn the_list_comes_from_results_of_this_tool_only() {
        let line = |tool: &str, details: &str| {
            let text = format!(
                r#"{{"type":"message","id":"b","parentId":"a","message":{{"role":"toolResult","toolCallId":"c1","toolName":"{tool}","content":[],"details":{details},"isError":false}}}}"#
            );
            serde_json::from_str::<Entry>(&text).unwrap()
        };
        let details = r#"{"items":[{"id":3,"text":"sail","done":true}],"nextId":4}"#;
        let list = list_of(&line(TOOL, details)).unwrap();
        assert_eq!(list.to_string(), "[x] #3 sail");
        assert!(list_of(&line("other", details)).is_none());
        assert!(list_of(&line(TOOL, "null")).is_none());
    }
}
