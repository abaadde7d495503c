//! What holds for any session and any damage.
#![expect(clippy::unwrap_used, reason = "tests")]

use std::collections::HashSet;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use proptest::prelude::*;
use tempfile::TempDir;
use wharf_protocol::{AgentMessage, ThinkingLevel};
use wharf_session::{
    BranchSummaryEntry, CompactionEntry, CustomMessageEntry, MessageRole, Session, SessionDir,
    SessionOptions,
};

/// Places are taken modulo the number of entries there are.
#[derive(Debug, Clone)]
enum Step {
    Message(String),
    Reply(String),
    Result(String),
    Custom(String),
    CustomMessage(String),
    Model(String),
    Thinking,
    Name(String),
    Label(usize, Option<String>),
    Compaction(usize),
    BranchSummary(usize),
    Branch(usize),
    Reset,
    Reopen,
}

fn step() -> impl Strategy<Value = Step> {
    let text = || any::<String>();
    prop_oneof![
        6 => text().prop_map(Step::Message),
        3 => text().prop_map(Step::Reply),
        2 => text().prop_map(Step::Result),
        1 => text().prop_map(Step::Custom),
        1 => text().prop_map(Step::CustomMessage),
        1 => text().prop_map(Step::Model),
        1 => Just(Step::Thinking),
        1 => text().prop_map(Step::Name),
        2 => (any::<usize>(), proptest::option::of(text())).prop_map(|(n, l)| Step::Label(n, l)),
        1 => any::<usize>().prop_map(Step::Compaction),
        1 => any::<usize>().prop_map(Step::BranchSummary),
        2 => any::<usize>().prop_map(Step::Branch),
        1 => Just(Step::Reset),
        1 => Just(Step::Reopen),
    ]
}

fn message(json: serde_json::Value) -> Arc<AgentMessage> {
    Arc::new(serde_json::from_value(json).unwrap())
}

fn user(text: &str) -> Arc<AgentMessage> {
    message(serde_json::json!({"role": "user", "content": text, "timestamp": 1}))
}

fn create(dir: &TempDir) -> Session {
    let store = SessionDir::Flat(dir.path().to_owned());
    let session = Session::create(&store, Path::new("/x"), SessionOptions::default());
    drop(session.append_message(user("first")));
    session
}

fn apply(session: Session, step: &Step) -> Session {
    let count = session.entry_count();
    let id = |n: usize| session.entries()[n % count].id().to_string();
    match step {
        Step::Message(text) => drop(session.append_message(user(text))),
        Step::Reply(text) => drop(session.append_message(message(serde_json::json!({
            "role": "assistant", "stopReason": "toolUse", "provider": "p", "model": text,
            "content": [
                {"type": "text", "text": text},
                {"type": "toolCall", "id": text, "name": "read", "arguments": {"path": text}},
            ],
            "usage": {"totalTokens": text.len()}, "timestamp": 2,
        })))),
        Step::Result(text) => drop(session.append_message(message(serde_json::json!({
            "role": "toolResult", "toolCallId": text, "toolName": text, "details": {"x": text},
            "content": [{"type": "text", "text": text}], "isError": false, "timestamp": 3,
        })))),
        Step::Custom(text) => {
            drop(session.append_custom(text, Some(serde_json::json!({ "v": text }))));
        }
        Step::CustomMessage(text) => drop(session.append_custom_message(CustomMessageEntry {
            custom_type: "x".to_owned(),
            content: wharf_protocol::UserContent::Text(text.clone()),
            display: true,
            details: None,
        })),
        Step::Model(text) => drop(session.append_model_change(text, text)),
        Step::Thinking => drop(session.append_thinking_level_change(ThinkingLevel::Low)),
        Step::Name(name) => drop(session.append_session_info(name)),
        Step::Label(n, label) => drop(session.append_label(&id(*n), label.as_deref()).unwrap()),
        Step::Compaction(n) => drop(session.append_compaction(CompactionEntry {
            summary: "s".to_owned(),
            first_kept_entry_id: id(*n),
            tokens_before: 1,
            details: None,
            from_hook: None,
        })),
        Step::BranchSummary(n) => {
            let summary = BranchSummaryEntry {
                from_id: id(0),
                summary: "s".to_owned(),
                details: None,
                from_hook: None,
            };
            drop(session.append_branch_summary(Some(&id(*n)), summary).unwrap());
        }
        Step::Branch(n) => session.set_leaf(Some(&id(*n))).unwrap(),
        Step::Reset => session.set_leaf(None).unwrap(),
        Step::Reopen => return reopen(session),
    }
    session
}

fn reopen(session: Session) -> Session {
    let path = session.file().unwrap().to_owned();
    drop(session);
    Session::open(&path).unwrap()
}

/// The nodes of `tree_json` as `(id, depth)` in its order, and the whole value.
fn nested(session: &Session) -> (Vec<(String, usize)>, serde_json::Value) {
    let tree: serde_json::Value = serde_json::from_str(&session.tree_json()).unwrap();
    let mut nodes = Vec::new();
    let mut open: Vec<(&serde_json::Value, usize)> =
        tree["roots"].as_array().unwrap().iter().rev().map(|root| (root, 0)).collect();
    while let Some((node, depth)) = open.pop() {
        nodes.push((node["id"].as_str().unwrap().to_owned(), depth));
        let children = node["children"].as_array().unwrap();
        open.extend(children.iter().rev().map(|child| (child, depth + 1)));
    }
    (nodes, tree)
}

/// The same, from what the other methods tell.
fn walked(session: &Session) -> Vec<(String, usize)> {
    let mut nodes = Vec::new();
    let mut open: Vec<_> = session.children(None).into_iter().rev().map(|root| (root, 0)).collect();
    while let Some((entry, depth)) = open.pop() {
        nodes.push((entry.id().to_string(), depth));
        let children = session.children(Some(entry.id().as_str()));
        open.extend(children.into_iter().rev().map(|child| (child, depth + 1)));
    }
    nodes
}

/// A context: its messages parsed, and what is said besides.
fn context_of(session: &Session, id: &str) -> (Vec<Option<Arc<AgentMessage>>>, String) {
    let context = session.build_context_to(id).unwrap();
    // What goes out is the JSON of the same messages, in one line.
    let json = serde_json::to_string(&context.messages).unwrap();
    assert!(!json.contains('\n'));
    let read: Vec<AgentMessage> = serde_json::from_str(&json).unwrap();
    let parsed: Vec<_> = context.messages.iter().map(|m| m.get().cloned()).collect();
    assert!(read.iter().map(Some).eq(parsed.iter().map(Option::as_deref)));
    for message in &context.messages {
        let name = match message.read().unwrap().as_ref() {
            AgentMessage::ToolResult(result) => Some(result.tool_name.clone()),
            _ => None,
        };
        assert_eq!(message.tool_name().map(|name| name.into_owned()), name);
        assert_eq!(MessageRole::of(message.get().unwrap()), message.role());
    }
    let rest = format!("{} {:?} {:?}", context.compacted, context.model, context.thinking_level);
    (parsed, rest)
}

/// Everything that a session knows, but for the leaf, which files don't tell.
fn picture(session: &Session) -> Vec<String> {
    let mut picture = vec![format!("{:?} {:?}", session.header(), session.name())];
    picture.extend(session.tree().iter().map(|node| {
        let entry = &node.entry;
        format!(
            "{} {:?} {:?} {:?} {:?} {}",
            entry.id(),
            entry.parent_id(),
            node.parent,
            node.label,
            entry.kind(),
            entry.json()
        )
    }));
    picture
}

/// A session file made by `steps`.
fn file_of(dir: &TempDir, steps: &[Step]) -> std::path::PathBuf {
    let session = steps.iter().fold(create(dir), apply);
    session.file().unwrap().to_owned()
}

fn entry_lines(session: &Session) -> Vec<String> {
    session.entries().iter().map(|entry| entry.json().to_owned()).collect()
}

fn config() -> ProptestConfig {
    ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn reopening_gives_the_same_tree(steps in proptest::collection::vec(step(), 0..40)) {
        let dir = TempDir::new().unwrap();
        let session = steps.iter().fold(create(&dir), apply);
        // A file tells the leaf by its last entry.
        let last = session.entries().last().unwrap().id().to_string();
        session.set_leaf(Some(&last)).unwrap();
        let before = picture(&session);
        let contexts: Vec<_> =
            session.entries().iter().map(|e| context_of(&session, e.id().as_str())).collect();
        let tree = session.tree_json();
        prop_assert_eq!(nested(&session).0, walked(&session));
        let session = reopen(session);
        prop_assert!(session.warnings().is_empty());
        prop_assert_eq!(picture(&session), before);
        prop_assert_eq!(session.tree_json(), tree);
        prop_assert_eq!(session.leaf_entry().unwrap().id().to_string(), last.clone());
        for (entry, context) in session.entries().iter().zip(contexts) {
            prop_assert_eq!(context_of(&session, entry.id().as_str()), context);
        }
        let (nodes, value) = nested(&session);
        prop_assert_eq!(&nodes, &walked(&session));
        prop_assert_eq!(nodes.len(), session.entry_count());
        prop_assert_eq!(value["leafId"].as_str(), Some(&*last));
        for entry in session.entries() {
            let line = entry.preview(200);
            prop_assert!(line.chars().count() <= 200 && !line.contains(['\n', '\r', '\t']));
        }
        let timestamps: HashSet<_> =
            session.entries().iter().map(|entry| entry.timestamp()).collect();
        prop_assert_eq!(timestamps.len(), session.entry_count());
        prop_assert_eq!(
            session.leaf_id(),
            session.entries().last().map(|entry| entry.id().clone())
        );
    }

    #[test]
    fn a_cut_costs_the_entry_that_it_is_in(
        steps in proptest::collection::vec(step(), 0..12),
        places in proptest::collection::vec(any::<prop::sample::Index>(), 8),
    ) {
        let dir = TempDir::new().unwrap();
        let path = file_of(&dir, &steps);
        let whole = fs::read(&path).unwrap();
        let all = entry_lines(&Session::open(&path).unwrap());
        for place in places {
            let cut = &whole[..place.index(whole.len())];
            fs::write(&path, cut).unwrap();
            let session = Session::open(&path).unwrap();
            let kept = entry_lines(&session);
            // Every entry but the cut one, which is whole if only its line feed is gone.
            let text = String::from_utf8_lossy(cut);
            let complete = text.matches('\n').count().saturating_sub(1);
            prop_assert!(kept.len() == complete || kept.len() == complete + 1);
            prop_assert_eq!(&kept[..], &all[..kept.len()]);

            drop(session.append_message(user("more")));
            drop(session.append_message(user("and more")));
            let session = reopen(session);
            let after = entry_lines(&session);
            prop_assert_eq!(&after[..kept.len()], &kept[..]);
            prop_assert_eq!(after.len(), kept.len() + 2);
            prop_assert!(session.branch().len() >= 2);
        }
    }

    #[test]
    fn a_damaged_line_costs_that_line_alone(
        steps in proptest::collection::vec(step(), 3..12),
        hit in any::<prop::sample::Index>(),
        places in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
    ) {
        let dir = TempDir::new().unwrap();
        let path = file_of(&dir, &steps);
        let whole = fs::read(&path).unwrap();
        let mut lines: Vec<Vec<u8>> =
            whole.split(|&byte| byte == b'\n').map(<[u8]>::to_vec).collect();
        lines.pop();
        let hit = hit.index(lines.len());
        for (place, byte) in places {
            let place = place.index(lines[hit].len());
            lines[hit][place] = if byte == b'\n' { b'#' } else { byte };
        }
        let mut damaged = lines.join(&b'\n');
        damaged.push(b'\n');
        fs::write(&path, &damaged).unwrap();

        // Damage may also make the header say a newer version, which is refused.
        let session = match Session::open(&path) {
            Ok(session) => session,
            Err(error) => {
                prop_assert_eq!(hit, 0, "{}", error);
                return Ok(());
            }
        };
        let check = |session: &Session| {
            let found: HashSet<String> = entry_lines(session).into_iter().collect();
            for (index, line) in lines.iter().enumerate().skip(1) {
                if index != hit {
                    prop_assert!(found.contains(std::str::from_utf8(line).unwrap()));
                }
            }
            Ok(())
        };
        check(&session)?;
        drop(session.append_message(user("more")));
        let count = session.entry_count();
        let session = reopen(session);
        check(&session)?;
        prop_assert_eq!(session.entry_count(), count);
    }

    #[test]
    fn any_bytes_open_or_are_refused(
        bytes in proptest::collection::vec(any::<u8>(), 0..200),
        with_header in any::<bool>(),
    ) {
        let dir = TempDir::new().unwrap();
        let path = dir.path().join("s.jsonl");
        let header = r#"{"type":"session","version":3,"id":"u","timestamp":"2024-12-03T14:00:00.000Z","cwd":"/x"}"#;
        let mut content = if with_header { format!("{header}\n").into_bytes() } else { Vec::new() };
        content.extend(bytes);
        fs::write(&path, &content).unwrap();
        let opened = Session::open(&path);
        prop_assert_eq!(fs::read(&path).unwrap(), content);
        if let Ok(session) = opened {
            drop(session.append_message(user("more")));
            let session = reopen(session);
            prop_assert_eq!(session.message_count(), 1);
        } else {
            prop_assert!(!with_header);
        }
    }
}
