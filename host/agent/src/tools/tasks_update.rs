//! The tool `tasks_update`.

use std::collections::HashSet;

use futures::future::BoxFuture;
use serde::Deserialize;
use serde_json::json;
use wharf_protocol::event::{SessionTask, TaskStatus};
use wharf_protocol::message::ContentBlock;

use super::args;
use crate::tool::{Tool, ToolCallContext, ToolFailure, ToolOutput, ToolSpec};

/// Most tasks of a list. Each update and each state snapshot carries the whole list.
const MAX_TASKS: usize = 200;

#[derive(Debug)]
pub(super) struct TasksUpdate {
    spec: ToolSpec,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Args {
    tasks: Vec<SessionTask>,
}

impl TasksUpdate {
    pub(super) fn new() -> Self {
        let spec = ToolSpec {
            name: "tasks_update".to_owned(),
            label: "Tasks".to_owned(),
            description:
                "Replaces the task list that the person sees beside the conversation. Give \
                the whole list each time, done tasks included, and keep a task's id; an empty list \
                clears it."
                    .to_owned(),
            parameters: args::object_schema(
                &["tasks"],
                &json!({
                    "tasks": {
                        "type": "array",
                        "description": "The whole list in the order of work, at most 200 tasks",
                        "items": args::object_schema(
                            &["id", "title", "status"],
                            &json!({
                                "id": { "type": "string", "description": "Short and unique in the list; stays the same in later lists" },
                                "title": { "type": "string", "description": "What is to be done, in a few words" },
                                "status": {
                                    "type": "string",
                                    "enum": ["pending", "in_progress", "completed"],
                                    "description": "How far it is",
                                },
                            }),
                        ),
                    },
                }),
            ),
            prompt_snippet: Some(
                "Show the person the list of tasks and how far each is".to_owned(),
            ),
            prompt_guidelines: vec![
                "Use tasks_update for work of three or more steps: list them before the first, and \
                 send the list again whenever a task is begun or completed."
                    .to_owned(),
            ],
            sequential: false,
        };
        Self { spec }
    }

    async fn execute(&self, call: ToolCallContext) -> Result<ToolOutput, ToolFailure> {
        let Args { tasks } = args::parse(call.args)?;
        check(&tasks).map_err(|problem| {
            ToolFailure::new(format!(
                "failed to update the tasks: {problem}; the list is unchanged"
            ))
        })?;
        let text = summary(&tasks);
        let details = json!({ "tasks": tasks });
        call.session.set_tasks(tasks).await;
        Ok(ToolOutput { content: vec![ContentBlock::text(text)], details: Some(details) })
    }
}

impl Tool for TasksUpdate {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn run(&self, call: ToolCallContext) -> BoxFuture<'_, Result<ToolOutput, ToolFailure>> {
        Box::pin(self.execute(call))
    }
}

fn check(tasks: &[SessionTask]) -> Result<(), String> {
    if tasks.len() > MAX_TASKS {
        return Err(format!("{} tasks; the limit is {MAX_TASKS}", tasks.len()));
    }
    let mut ids = HashSet::new();
    for (index, task) in tasks.iter().enumerate() {
        let place = index + 1;
        if task.id.trim().is_empty() {
            return Err(format!("the id of task {place} is blank"));
        }
        if task.title.trim().is_empty() {
            return Err(format!("the title of task {:?} is blank", task.id));
        }
        if !ids.insert(task.id.as_str()) {
            return Err(format!("two tasks have the id {:?}; give each its own", task.id));
        }
    }
    Ok(())
}

/// `3 tasks: 1 completed, 2 pending`
fn summary(tasks: &[SessionTask]) -> String {
    if tasks.is_empty() {
        return "The task list is empty.".to_owned();
    }
    let counts: Vec<String> = [
        (TaskStatus::Completed, "completed"),
        (TaskStatus::InProgress, "in progress"),
        (TaskStatus::Pending, "pending"),
    ]
    .into_iter()
    .filter_map(|(status, word)| {
        let count = tasks.iter().filter(|task| task.status == status).count();
        (count > 0).then(|| format!("{count} {word}"))
    })
    .collect();
    let noun = if tasks.len() == 1 { "task" } else { "tasks" };
    format!("{} {noun}: {}", tasks.len(), counts.join(", "))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::Value;

    use super::*;
    use crate::tools::testing::{Bench, FakeSession};

    fn task(id: &str, title: &str, status: &str) -> Value {
        json!({ "id": id, "title": title, "status": status })
    }

    #[tokio::test]
    async fn the_list_is_replaced_and_counted() {
        let session = Arc::new(FakeSession::default());
        let bench = Bench::in_session(Arc::clone(&session) as _);
        let full: Vec<Value> =
            (0..MAX_TASKS).map(|n| task(&n.to_string(), "t", "pending")).collect();
        for (tasks, expect) in [
            (vec![task("a", "Look", "in_progress")], "1 task: 1 in progress"),
            (
                vec![
                    task("a", "Look", "completed"),
                    task("b", "Change", "in_progress"),
                    task("c", "Build", "in_progress"),
                    task("d", "Test", "pending"),
                ],
                "4 tasks: 1 completed, 2 in progress, 1 pending",
            ),
            (full, "200 tasks: 200 pending"),
            (vec![], "The task list is empty."),
        ] {
            let output = bench.output("tasks_update", json!({ "tasks": tasks })).await;
            assert_eq!(output.content[0].as_text(), Some(expect));
            assert_eq!(output.details, Some(json!({ "tasks": tasks })));
            assert_eq!(json!(session.tasks()), json!(tasks));
        }
        assert!(!session.stopped());
    }

    #[tokio::test]
    async fn a_wrong_list_changes_nothing() {
        let session = Arc::new(FakeSession::default());
        let bench = Bench::in_session(Arc::clone(&session) as _);
        bench.text("tasks_update", json!({ "tasks": [task("a", "Look", "pending")] })).await;
        let many: Vec<Value> =
            (0..=MAX_TASKS).map(|n| task(&n.to_string(), "t", "pending")).collect();
        for (tasks, expect) in [
            (
                vec![task("a", "x", "pending"), task(" ", "y", "pending")],
                "the id of task 2 is blank",
            ),
            (vec![task("a", "\n", "pending")], "the title of task \"a\" is blank"),
            (
                vec![task("a", "x", "pending"), task("a", "y", "pending")],
                "two tasks have the id \"a\"; give each its own",
            ),
            (many, "201 tasks; the limit is 200"),
        ] {
            let error = bench.error("tasks_update", json!({ "tasks": tasks })).await;
            assert_eq!(
                error,
                format!("failed to update the tasks: {expect}; the list is unchanged")
            );
        }
        assert_eq!(json!(session.tasks()), json!([task("a", "Look", "pending")]));
    }

    #[test]
    fn the_schema_holds_the_shape() {
        let schema = TasksUpdate::new().spec.parameters;
        for wrong in [
            json!({}),
            json!({"tasks": [{"id": "a", "title": "x"}]}),
            json!({"tasks": [task("a", "x", "done")]}),
            json!({"tasks": [{"id": 1, "title": "x", "status": "pending"}]}),
            json!({"tasks": [{"id": "a", "title": "x", "status": "pending", "note": ""}]}),
        ] {
            assert!(!jsonschema::is_valid(&schema, &wrong), "{wrong}");
        }
    }
}
