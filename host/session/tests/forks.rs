//! Sessions made out of others: what they keep, and what a failure leaves.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use proptest::prelude::*;
use tempfile::TempDir;
use wharf_protocol::model::ModelRef;
use wharf_protocol::{AgentMessage, ThinkingLevel};
use wharf_session::{
    BranchSummaryEntry, CompactionEntry, EntryType, ForkError, OpenError, Session, SessionContext,
    SessionDir, SessionOptions,
};

const HEADER: &str = r#"{"type":"session","version":3,"id":"0b8e4f9a-5f0f-4a55-9d5e-2f7c5d8c7a10","timestamp":"2024-12-03T14:00:00.000Z","cwd":"/old","mood":"calm","agentType":"Explore"}"#;
const A: &str = r#"{"type":"message","id":"a","parentId":null,"timestamp":"2024-12-03T14:00:01.000Z","message":{"role":"user","content":"one"},"extra":1.50}"#;
const B: &str = r#"{"type":"hologram","id":"b","parentId":"a","timestamp":"2024-12-03T14:00:02.000Z","beam":[1]}"#;
const L: &str = r#"{"type":"label","id":"l","parentId":"b","timestamp":"2024-12-03T14:00:03.000Z","targetId":"a","label":"old"}"#;
const C: &str = r#"{"type":"message","id":"c","parentId":"l","timestamp":"2024-12-03T14:00:04.000Z","message":{"role":"user","content":"three"},"odd":null}"#;
const L2: &str = r#"{"type":"label","id":"l2","parentId":"c","timestamp":"2024-12-03T14:00:05.000Z","targetId":"a","label":"new"}"#;
const N: &str = r#"{"type":"session_info","id":"n","parentId":"l2","timestamp":"2024-12-03T14:00:06.000Z","name":"Work"}"#;

fn user(text: &str) -> Arc<AgentMessage> {
    let json = serde_json::json!({"role": "user", "content": text, "timestamp": 1});
    Arc::new(serde_json::from_value(json).unwrap())
}

struct Place {
    temp: TempDir,
    dir: SessionDir,
}

impl Place {
    fn new() -> Self {
        let temp = TempDir::new().unwrap();
        let dir = SessionDir::Nested(temp.path().join("store"));
        Self { temp, dir }
    }

    fn file(&self, lines: &[&str]) -> PathBuf {
        let path = self.temp.path().join("source.jsonl");
        fs::write(&path, lines.join("\n") + "\n").unwrap();
        path
    }

    /// No folder either.
    #[track_caller]
    fn assert_nothing_created(&self) {
        assert!(!self.temp.path().join("store").exists());
    }
}

fn lines(session: &Session) -> Vec<String> {
    session.entries().iter().map(|entry| entry.json().to_owned()).collect()
}

/// What a model sees.
fn seen(context: &SessionContext) -> (serde_json::Value, Option<ModelRef>, Option<ThinkingLevel>) {
    let messages = serde_json::to_string(&context.messages).unwrap();
    let messages = serde_json::from_str(&messages).unwrap();
    (messages, context.model.clone(), context.thinking_level)
}

fn written(session: &Session) -> Vec<String> {
    fs::read_to_string(session.file().unwrap()).unwrap().lines().map(str::to_owned).collect()
}

#[test]
fn a_fork_has_the_whole_tree_verbatim() {
    let place = Place::new();
    let source =
        place.file(&[HEADER, A, B, "garbage", C.replace("\"l\"", "\"gone\"").as_str(), L2]);
    let original = Session::open(&source).unwrap();
    let fork = Session::fork_from(&source, Path::new("/new"), &place.dir).unwrap();
    assert_eq!(lines(&fork), lines(&original));
    let text = written(&fork);
    assert_eq!(text[1..], lines(&original));
    let header: serde_json::Value = serde_json::from_str(&text[0]).unwrap();
    assert_eq!(header["cwd"], "/new");
    assert_eq!(header["parentSession"], source.to_str().unwrap());
    assert_eq!(header["id"], fork.id());
    assert_eq!(header.get("agentType"), None);
    assert_ne!(fork.id(), original.id());
    assert_eq!(fork.file().unwrap().parent().unwrap(), place.dir.folder(Path::new("/new")));
    assert_eq!(fork.warnings().list(), original.warnings().list());
    assert!(!fork.warnings().is_empty());
    let parents = |session: &Session| -> Vec<_> {
        session.tree().iter().map(|node| (node.parent, node.label.clone())).collect()
    };
    assert_eq!(parents(&fork), parents(&original));
    assert_eq!(fs::read_dir(fork.file().unwrap().parent().unwrap()).unwrap().count(), 1);

    drop(fork.append_message(user("more")));
    let file = fork.file().unwrap().to_owned();
    drop(fork);
    assert_eq!(Session::open(&file).unwrap().entry_count(), original.entry_count() + 1);
    assert_eq!(lines(&Session::open(&source).unwrap()), lines(&original));
}

#[test]
fn old_formats_are_migrated() {
    let place = Place::new();
    let source = place.file(&[
        r#"{"type":"session","id":"0b8e4f9a-5f0f-4a55-9d5e-2f7c5d8c7a10","timestamp":"2024-12-03T14:00:00.000Z","cwd":"/old","modelId":"m"}"#,
        r#"{"type":"message","timestamp":"2024-12-03T14:00:01.000Z","message":{"role":"user","content":"a"}}"#,
        r#"{"type":"message","timestamp":"2024-12-03T14:00:02.000Z","message":{"role":"hookMessage","customType":"x","content":"b","display":true,"timestamp":1}}"#,
    ]);
    let before = fs::read(&source).unwrap();
    let original = Session::open(&source).unwrap();
    let fork = Session::fork_from(&source, Path::new("/new"), &place.dir).unwrap();
    let import = Session::import(&source, Path::new("/new"), &place.dir).unwrap();
    for session in [&fork, &import] {
        assert_eq!(seen(&session.build_context()), seen(&original.build_context()));
        let text = written(session).join("\n");
        assert!(text.contains("\"version\":3") && !text.contains("hookMessage"), "{text}");
        assert!(Session::open(session.file().unwrap()).unwrap().warnings().is_empty());
    }
    assert!(written(&import)[0].contains(r#""modelId":"m""#));
    assert_eq!(fs::read(&source).unwrap(), before);
}

#[test]
fn what_cannot_be_copied_creates_nothing() {
    let place = Place::new();
    let cwd = Path::new("/new");
    type Copy = fn(&Path, &Path, &SessionDir) -> Result<Session, ForkError>;
    for copy in [Session::fork_from as Copy, Session::import as Copy] {
        let error = |path: &Path| copy(path, cwd, &place.dir).unwrap_err();
        let missing = place.temp.path().join("missing.jsonl");
        let found = error(&missing);
        assert!(matches!(found, ForkError::Source(OpenError::NotFound { .. })), "{found}");
        assert!(found.to_string().contains("missing.jsonl"));
        for (content, expected) in [
            (vec![""], "no entries"),
            (vec![HEADER], "no entries"),
            (vec!["{\"note\":1}"], "no session file"),
            (vec![&*HEADER.replace("\"version\":3", "\"version\":4"), A], "newer"),
        ] {
            let found = error(&place.file(&content)).to_string();
            assert!(found.contains(expected) && found.contains("source.jsonl"), "{found}");
        }
        assert!(matches!(error(place.temp.path()), ForkError::Source(_)));
        place.assert_nothing_created();
    }
    let session = Session::open(&place.file(&[HEADER, A])).unwrap();
    let error = session.create_branched_session(Some("nope"), &place.dir).unwrap_err();
    assert_eq!(error.to_string(), "entry nope not found");
    place.assert_nothing_created();

    fs::write(place.temp.path().join("store"), "in the way").unwrap();
    let error = session.create_branched_session(Some("a"), &place.dir).unwrap_err();
    assert!(matches!(error, ForkError::Write { .. }), "{error}");
}

#[test]
fn a_branch_leaves_label_entries_and_keeps_labels() {
    let place = Place::new();
    let source = place.file(&[HEADER, A, B, L, C, L2, N]);
    let session = Session::open(&source).unwrap();
    let branched = session.create_branched_session(Some("c"), &place.dir).unwrap();

    let text = written(&branched);
    let header: serde_json::Value = serde_json::from_str(&text[0]).unwrap();
    assert_eq!(header["parentSession"], source.to_str().unwrap());
    assert_eq!(header["cwd"], "/old");
    assert_eq!(text[1..4], [A, B, &C.replace("\"parentId\":\"l\"", "\"parentId\":\"b\"")]);
    let added: Vec<serde_json::Value> =
        text[4..].iter().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(added.len(), 2);
    assert_eq!((&added[0]["type"], &added[0]["name"]), (&"session_info".into(), &"Work".into()));
    assert_eq!((&added[1]["targetId"], &added[1]["label"]), (&"a".into(), &"new".into()));
    assert_eq!(added[0]["parentId"], "c");
    assert_eq!(branched.name().as_deref(), Some("Work"));
    assert_eq!(branched.label("a").as_deref(), Some("new"));
    assert!(branched.warnings().is_empty());

    // The label's target is not on this branch; the name is the path's own.
    session.set_leaf(None).unwrap();
    drop(session.append_message(user("other")));
    let (named, _) = session.append_session_info("Work");
    let branched = session.create_branched_session(Some(named.as_str()), &place.dir).unwrap();
    assert_eq!(written(&branched).len(), 3);
    assert_eq!(branched.label("a"), None);

    // The path has a name that was cleared since.
    let (cleared, _) = session.append_session_info("");
    let branched = session.create_branched_session(Some(named.as_str()), &place.dir).unwrap();
    assert_eq!(branched.name(), None);
    assert_eq!(branched.entry_count(), 3);
    let branched = session.create_branched_session(Some(cleared.as_str()), &place.dir).unwrap();
    assert_eq!(branched.entry_count(), 3);
}

#[test]
fn a_compaction_that_kept_from_a_label_on_keeps_the_same() {
    let place = Place::new();
    let compaction = r#"{"type":"compaction","id":"k","parentId":"c","timestamp":"2024-12-03T14:00:09.000Z","summary":"s","firstKeptEntryId":"l","tokensBefore":7}"#;
    let session = Session::open(&place.file(&[HEADER, A, B, L, C, compaction])).unwrap();
    let branched = session.create_branched_session(Some("k"), &place.dir).unwrap();
    assert_eq!(seen(&branched.build_context()), seen(&session.build_context()));
    assert_eq!(branched.build_context().messages.len(), 2);
}

#[tokio::test]
async fn a_branch_without_messages_waits_for_one() {
    let place = Place::new();
    let model = r#"{"type":"model_change","id":"m","parentId":null,"timestamp":"2024-12-03T14:00:01.000Z","provider":"p","modelId":"x","keep":true}"#;
    let source = place.file(&[HEADER, model, &A.replace("null", "\"m\""), N]);
    let session = Session::open(&source).unwrap();
    for (leaf, expected) in [(None, 1), (Some("m"), 2)] {
        let branched = session.create_branched_session(leaf, &place.dir).unwrap();
        assert_eq!(branched.entry_count(), expected);
        assert_eq!(branched.name().as_deref(), Some("Work"));
        branched.flush().await.unwrap();
        place.assert_nothing_created();
    }
    let branched = session.create_branched_session(Some("m"), &place.dir).unwrap();
    branched.append_message(user("go")).1.await.unwrap();
    let text = written(&branched);
    assert_eq!(text.len(), 4);
    assert!(text[0].contains("\"parentSession\""));
    assert_eq!(text[1], model);
    let file = branched.file().unwrap().to_owned();
    let before = lines(&branched);
    drop(branched);
    let reopened = Session::open(&file).unwrap();
    assert!(reopened.warnings().is_empty());
    assert_eq!(lines(&reopened), before);
}

#[test]
fn in_memory_stays_in_memory() {
    let place = Place::new();
    let session = Session::in_memory(Path::new("/x"));
    let (id, _) = session.append_message(user("one"));
    drop(session.append_label(id.as_str(), Some("here")).unwrap());
    drop(session.append_message(user("two")));
    let leaf = session.leaf_id().unwrap();
    let branched = session.create_branched_session(Some(leaf.as_str()), &place.dir).unwrap();
    assert_eq!(branched.file(), None);
    assert_eq!(seen(&branched.build_context()), seen(&session.build_context()));
    assert_eq!(branched.label(id.as_str()).as_deref(), Some("here"));
    drop(branched.append_message(user("three")));
    drop(branched);
    place.assert_nothing_created();
}

#[test]
fn an_import_keeps_its_id_and_its_header() {
    let place = Place::new();
    let source = place.file(&[HEADER, A, "garbage", B]);
    let import = Session::import(&source, Path::new("/new"), &place.dir).unwrap();
    let path = import.file().unwrap().to_owned();
    let text = written(&import);
    assert_eq!(text[0], HEADER.replace("\"/old\"", "\"/new\""));
    assert_eq!(text[1..], [A, B]);
    assert_eq!(import.warnings().total(), 1);
    assert_eq!(
        path,
        place
            .dir
            .folder(Path::new("/new"))
            .join("2024-12-03T14-00-00-000Z_0b8e4f9a-5f0f-4a55-9d5e-2f7c5d8c7a10.jsonl")
    );
    // Again, or the file that is in the store: also for another directory.
    for source in [&source, &path] {
        match Session::import(source, Path::new("/other"), &place.dir).unwrap_err() {
            ForkError::Exists { id, path: found } => {
                assert_eq!((id.as_str(), &found), (import.id(), &path));
            }
            other => panic!("{other}"),
        }
    }
    assert!(!place.dir.folder(Path::new("/other")).exists());

    // An id is no way out of the store.
    let source =
        place.file(&[&HEADER.replace("0b8e4f9a-5f0f-4a55-9d5e-2f7c5d8c7a10", "../../../evil"), A]);
    let import = Session::import(&source, Path::new("/new"), &place.dir).unwrap();
    assert_eq!(import.id(), "../../../evil");
    assert_eq!(import.file().unwrap().parent().unwrap(), place.dir.folder(Path::new("/new")));
    assert!(matches!(
        Session::import(&source, Path::new("/new"), &place.dir),
        Err(ForkError::Exists { .. })
    ));
}

/// Places are taken modulo the number of entries there are.
#[derive(Debug, Clone)]
enum Step {
    Message(String),
    Custom,
    Model(String),
    Thinking(bool),
    Name(String),
    Label(usize, Option<String>),
    Compaction(usize),
    BranchSummary(usize),
    Branch(usize),
    Reset,
    Fork,
    Branched(usize),
}

fn step() -> impl Strategy<Value = Step> {
    let text = || any::<String>();
    prop_oneof![
        6 => text().prop_map(Step::Message),
        1 => Just(Step::Custom),
        1 => text().prop_map(Step::Model),
        1 => any::<bool>().prop_map(Step::Thinking),
        2 => text().prop_map(Step::Name),
        4 => (any::<usize>(), proptest::option::of(text())).prop_map(|(n, l)| Step::Label(n, l)),
        1 => any::<usize>().prop_map(Step::Compaction),
        1 => any::<usize>().prop_map(Step::BranchSummary),
        2 => any::<usize>().prop_map(Step::Branch),
        1 => Just(Step::Reset),
        1 => Just(Step::Fork),
        1 => any::<usize>().prop_map(Step::Branched),
    ]
}

fn picture(session: &Session) -> Vec<String> {
    let mut picture = vec![format!("{:?}", session.name())];
    picture.extend(
        session
            .tree()
            .iter()
            .map(|node| format!("{:?} {:?} {}", node.parent, node.label, node.entry.json())),
    );
    picture
}

/// The branch to `leaf` is the same in the session that was made of it.
fn assert_same_branch(
    session: &Session,
    leaf: &str,
    branched: &Session,
) -> Result<(), TestCaseError> {
    let path = session.branch_to(leaf).unwrap();
    let kept: Vec<_> = path.iter().filter(|entry| entry.entry_type() != EntryType::Label).collect();
    prop_assert_eq!(
        seen(&branched.build_context()),
        seen(&session.build_context_to(leaf).unwrap())
    );
    prop_assert_eq!(branched.name(), session.name());
    let entries = branched.entries();
    prop_assert!(entries.len() >= kept.len());
    for (old, new) in kept.iter().zip(&entries) {
        prop_assert_eq!(old.id(), new.id());
        // What a compaction kept from a label on, it keeps from the entry after that on.
        if old.entry_type() != EntryType::Compaction {
            prop_assert_eq!(old.kind(), new.kind());
        }
        prop_assert_eq!(session.label(old.id().as_str()), branched.label(new.id().as_str()));
    }
    // One chain, to the leaf.
    prop_assert_eq!(branched.branch().len(), entries.len());
    let times: HashSet<_> = entries.iter().map(|entry| entry.timestamp()).collect();
    prop_assert_eq!(times.len(), entries.len());
    if branched.message_count() > 0 {
        let reopened = Session::open(branched.file().unwrap()).unwrap();
        prop_assert!(reopened.warnings().is_empty());
        prop_assert_eq!(picture(&reopened), picture(branched));
    } else {
        prop_assert!(!branched.file().unwrap().exists());
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn copies_of_any_session_are_faithful(steps in proptest::collection::vec(step(), 0..40)) {
        let place = Place::new();
        let cwd = Path::new("/x");
        let mut session = Session::create(&place.dir, cwd, SessionOptions::default());
        drop(session.append_message(user("first")));
        for step in steps.iter().chain(&[Step::Branched(usize::MAX), Step::Fork]) {
            let count = session.entry_count();
            let id = |n: usize| session.entries()[n % count].id().to_string();
            match step {
                Step::Message(text) => drop(session.append_message(user(text))),
                Step::Custom => drop(session.append_custom("x", None)),
                Step::Model(text) => drop(session.append_model_change(text, text)),
                Step::Thinking(high) => drop(session.append_thinking_level_change(
                    if *high { ThinkingLevel::High } else { ThinkingLevel::Low },
                )),
                Step::Name(name) => drop(session.append_session_info(name)),
                Step::Label(n, label) => {
                    drop(session.append_label(&id(*n), label.as_deref()).unwrap());
                }
                Step::Compaction(n) => drop(session.append_compaction(CompactionEntry {
                    summary: "s".to_owned(),
                    // Of the branch, as in practice.
                    first_kept_entry_id: {
                        let branch = session.branch();
                        branch.get(n % branch.len().max(1)).map_or(String::new(), |e| e.id().to_string())
                    },
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
                Step::Fork => {
                    let before = picture(&session);
                    let file = session.file().unwrap().to_owned();
                    drop(session);
                    session = Session::fork_from(&file, cwd, &place.dir).unwrap();
                    prop_assert_eq!(&picture(&session), &before);
                    let reopened = Session::open(session.file().unwrap()).unwrap();
                    prop_assert_eq!(&picture(&reopened), &before);
                    prop_assert_eq!(session.header().parent_session.as_deref(), file.to_str());
                }
                Step::Branched(n) => {
                    let leaf = id(*n);
                    let branched = session.create_branched_session(Some(&leaf), &place.dir).unwrap();
                    assert_same_branch(&session, &leaf, &branched)?;
                    if branched.message_count() > 0 {
                        session = branched;
                    }
                }
            }
        }
    }
}
