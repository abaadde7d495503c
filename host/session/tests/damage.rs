//! Files of older versions and damaged ones.
#![expect(clippy::unwrap_used, reason = "tests")]

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tempfile::TempDir;
use wharf_protocol::AgentMessage;
use wharf_session::WarningKind::{
    BadLine, ByteOrderMark, CarriageReturn, DuplicateId, Empty, ExtraHeader, InvalidUtf8,
    MissingHeader, MissingId, NoFinalNewline, NulBytes, OrphanedParent, ParentCycle, PartlyBad,
    SeveralEntries, TornTail,
};
use wharf_session::{EntryKind, OpenError, Session, WarningKind};

const HEADER: &str =
    r#"{"type":"session","version":3,"id":"u","timestamp":"2024-12-03T14:00:00.000Z","cwd":"/x"}"#;
const A: &str = r#"{"type":"message","id":"a","parentId":null,"timestamp":"2024-12-03T14:00:01.000Z","message":{"role":"user","content":"one"}}"#;
const B: &str = r#"{"type":"message","id":"b","parentId":"a","timestamp":"2024-12-03T14:00:02.000Z","message":{"role":"user","content":"two"}}"#;
const C: &str = r#"{"type":"message","id":"c","parentId":"b","timestamp":"2024-12-03T14:00:03.000Z","message":{"role":"user","content":"three"}}"#;

fn user(text: &str) -> Arc<AgentMessage> {
    let json = serde_json::json!({"role": "user", "content": text, "timestamp": 1});
    Arc::new(serde_json::from_value(json).unwrap())
}

/// Each entry as `id<parent`.
fn shape(session: &Session) -> String {
    let show = |entry: &Arc<wharf_session::Entry>| {
        format!("{}<{}", entry.id(), entry.parent_id().map_or("-", |id| id.as_str()))
    };
    session.entries().iter().map(show).collect::<Vec<_>>().join(" ")
}

/// A file with `content` opens with entries of `shape` and just these warnings (with
/// their lines); opening writes nothing; after an append everything is still there.
#[track_caller]
fn check(content: impl AsRef<[u8]>, expected: &str, warnings: &[(usize, WarningKind)]) {
    let content = content.as_ref();
    let shown = String::from_utf8_lossy(content);
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("s.jsonl");
    fs::write(&path, content).unwrap();

    let session = Session::open(&path).unwrap();
    assert_eq!(shape(&session), expected, "{shown}");
    let found: Vec<_> = session.warnings().list().iter().map(|w| (w.line, w.kind)).collect();
    assert_eq!(found, warnings, "{shown}");
    assert!(session.warnings().list().iter().all(|w| w.to_string().contains("s.jsonl, line ")));
    assert_eq!(session.leaf_id(), session.entries().last().map(|entry| entry.id().clone()));
    let context = session.build_context().messages.len();
    session.tree();
    assert_eq!(fs::read(&path).unwrap(), content, "opening wrote");
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);

    let before = session.tree();
    let (id, _) = session.append_message(user("more"));
    let parent = session.leaf_id().map(|id| session.entry(id.as_str()).unwrap());
    let parent = parent.unwrap().parent_id().map_or("-".to_owned(), ToString::to_string);
    drop(session);
    let mut session = Session::open(&path).unwrap();
    assert_eq!(shape(&session), format!("{expected} {id}<{parent}").trim_start(), "{shown}");
    assert_eq!(session.build_context().messages.len(), context + 1);
    for (old, new) in before.iter().zip(session.tree()) {
        assert_eq!((old.entry.json(), old.parent), (new.entry.json(), new.parent), "{shown}");
    }

    // Whatever an entry is called after repairs, what is appended to it stays with it.
    for (place, node) in before.iter().enumerate() {
        session.set_leaf(Some(node.entry.id().as_str())).unwrap();
        drop(session.append_message(user("child")));
        drop(session);
        session = Session::open(&path).unwrap();
        assert_eq!(session.tree().last().unwrap().parent, Some(place), "{shown}");
    }
}

#[test]
fn sound() {
    check(format!("{HEADER}\n"), "", &[]);
    check(format!("{HEADER}\n\n{A}\n  {B}  \n{C}\n"), "a<- b<a c<b", &[]);
}

#[test]
fn tails() {
    check(format!("{HEADER}\n{A}\n{B}"), "a<- b<a", &[(3, NoFinalNewline)]);
    check(HEADER, "", &[(1, NoFinalNewline)]);
    let torn = &B[..50];
    check(format!("{HEADER}\n{A}\n{torn}"), "a<-", &[(3, NoFinalNewline), (3, TornTail)]);
    // A writer that didn't look went on behind it.
    check(format!("{HEADER}\n{A}\n{torn}{B}\n{C}\n"), "a<- b<a c<b", &[(3, PartlyBad)]);
}

#[test]
fn bad_bytes() {
    check(format!("{HEADER}\n\0\0\0{A}\0\0\n{B}\n"), "a<- b<a", &[(2, NulBytes)]);
    check(
        format!("{HEADER}\n{A}\n{}\0\0\0\0", &B[..40]),
        "a<-",
        &[(3, NoFinalNewline), (3, NulBytes), (3, TornTail)],
    );
    check(format!("{HEADER}\r\n{A}\r\n{B}\r\n"), "a<- b<a", &[(1, CarriageReturn)]);
    check(format!("\u{feff}{HEADER}\n{A}\n"), "a<-", &[(1, ByteOrderMark)]);
    let mut bytes = format!("{HEADER}\n{A}\n{B}\n").into_bytes();
    let place = bytes.windows(3).position(|w| w == b"one").unwrap();
    bytes[place] = 0xff;
    check(bytes, "a<- b<a", &[(2, InvalidUtf8)]);
}

#[test]
fn bad_lines() {
    for bad in ["garbage", "[1]", "7", "{}", r#"{"type":7}"#, "}{", &B[1..]] {
        check(format!("{HEADER}\n{A}\n{bad}\n"), "a<-", &[(3, BadLine)]);
    }
    check(format!("{HEADER}\n{A}{B}\n{C}\n"), "a<- b<a c<b", &[(2, SeveralEntries)]);
    check(format!("{HEADER}\n{A}\n{HEADER}\n{B}\n"), "a<- b<a", &[(3, ExtraHeader)]);
}

#[test]
fn headers() {
    check("", "", &[(1, Empty)]);
    check("\n \n", "", &[(1, Empty)]);
    check("\0\0\0\0", "", &[(1, Empty)]);
    check(&HEADER[..40], "", &[(1, NoFinalNewline), (1, TornTail), (1, MissingHeader)]);
    check(&HEADER[..3], "", &[(1, NoFinalNewline), (1, TornTail), (1, MissingHeader)]);
    check(format!("{A}\n{B}\n"), "a<- b<a", &[(1, MissingHeader)]);
    check(format!("{}\n{A}\n{B}\n", &HEADER[..70]), "a<- b<a", &[(1, BadLine), (1, MissingHeader)]);
    check(format!("garbage\n{HEADER}\n{A}\n"), "a<-", &[(1, BadLine)]);
}

#[test]
fn base_fields_of_other_types() {
    let number = B.replace(r#""id":"b""#, r#""id":7"#);
    check(format!("{HEADER}\n{A}\n{number}\n"), "a<- 00000001<a", &[(3, MissingId)]);
    let null = B.replace(r#""id":"b""#, r#""id":null"#);
    check(format!("{HEADER}\n{A}\n{null}\n"), "a<- 00000001<a", &[(3, MissingId)]);
    let empty = B.replace(r#""id":"b""#, r#""id":"""#);
    check(format!("{HEADER}\n{A}\n{empty}\n"), "a<- 00000001<a", &[(3, MissingId)]);
    // What names no parent goes on where the file was.
    let parent = B.replace(r#""parentId":"a""#, r#""parentId":7"#);
    check(format!("{HEADER}\n{A}\n{parent}\n"), "a<- b<a", &[]);
    let time = B.replace(r#""timestamp":"2024-12-03T14:00:02.000Z""#, r#""timestamp":null"#);
    check(format!("{HEADER}\n{A}\n{time}\n{C}\n"), "a<- b<a c<b", &[]);
}

#[test]
fn unusual_lines_of_whole_entries() {
    // Ids that do not stand in the text as they are, or not near its beginning.
    let escaped = B.replace(r#""id":"b""#, r#""id":"\u0062""#);
    check(format!("{HEADER}\n{A}\n{escaped}\n{C}\n"), "a<- b<a c<b", &[]);
    let fields = r#""parentId":"a","timestamp":"2024-12-03T14:00:02.000Z","id":"b""#;
    let late = format!(
        r#"{{"type":"message","message":{{"role":"user","content":"{}"}},{fields}}}"#,
        "x".repeat(300)
    );
    check(format!("{HEADER}\n{A}\n{late}\n{C}\n"), "a<- b<a c<b", &[]);
    let long = "i".repeat(300);
    let (b, c) =
        (B.replace("\"b\"", &format!("\"{long}\"")), C.replace("\"b\"", &format!("\"{long}\"")));
    check(format!("{HEADER}\n{A}\n{b}\n{c}\n"), &format!("a<- {long}<a c<{long}"), &[]);
}

#[test]
fn half_surrogate_pairs_do_not_break_what_goes_out() {
    let cut = B.replace("two", r"cut \ud83d");
    let content = format!("{HEADER}\n{A}\n{cut}\n");
    check(&content, "a<- b<a", &[]);
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("s.jsonl");
    fs::write(&path, &content).unwrap();
    let session = Session::open(&path).unwrap();
    assert_eq!(session.entries()[1].json(), cut);
    let messages = session.build_context().messages;
    for json in [
        serde_json::to_string(&messages).unwrap(),
        serde_json::to_string(&session.entries()).unwrap(),
        session.tree_json(),
    ] {
        let value: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert!(value.to_string().contains("cut \u{fffd}"), "{json}");
    }
    match messages[1].get().unwrap().as_ref() {
        AgentMessage::User(user) => assert_eq!(user.content.to_text(), "cut \u{fffd}"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn labels_of_what_is_not_there() {
    let label = r#"{"type":"label","id":"b","parentId":"a","timestamp":"2024-12-03T14:00:02.000Z","targetId":"nobody","label":"x"}"#;
    let content = format!("{HEADER}\n{A}\n{label}\n{C}\n");
    check(&content, "a<- b<a c<b", &[]);
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("s.jsonl");
    fs::write(&path, &content).unwrap();
    let session = Session::open(&path).unwrap();
    assert_eq!(session.label("nobody"), None);
    assert!(session.tree().iter().all(|node| node.label.is_none()));
}

#[test]
fn messages_that_lack_what_their_role_asks_for() {
    let odd = B.replace(r#","content":"two""#, "");
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("s.jsonl");
    fs::write(&path, format!("{HEADER}\n{A}\n{odd}\n")).unwrap();
    let messages = Session::open(&path).unwrap().build_context().messages;
    assert!(messages[0].get().is_some());
    assert!(messages[1].get().is_none() && messages[1].read().is_none());
    assert_eq!(serde_json::to_string(&messages[1]).unwrap(), r#"{"role":"user"}"#);
}

/// Takes minutes if a try reads what the tries before it have read.
#[test]
fn long_garbage_in_one_line() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("s.jsonl");
    for garbage in [
        "{".repeat(2_000_000),
        r#"{"type":""#.repeat(200_000),
        r#"{"type":"x"}"#.repeat(100_000),
        format!("{}{}", r#"{"type":"x"},"#.repeat(100_000), " ".repeat(1_000_000)),
        "\0x".repeat(500_000),
        format!(r#"{{"type":"custom","data":{}"#, "[".repeat(2_000_000)),
        "\u{fffd}\\".repeat(500_000),
    ] {
        let mut bytes = format!("{HEADER}\n{A}\n{garbage}\n{B}\n").into_bytes();
        fs::write(&path, &bytes).unwrap();
        let session = Session::open(&path).unwrap();
        assert_eq!(shape(&session), "a<- b<a", "{}", &garbage[..20.min(garbage.len())]);
        assert!(!session.warnings().is_empty());
        bytes.truncate(bytes.len() - B.len() - 1);
        fs::write(&path, &bytes).unwrap();
        assert_eq!(shape(&Session::open(&path).unwrap()), "a<-");
    }
}

#[test]
fn broken_trees() {
    // The parent is lost: a root, whose branch still leads to what is before it.
    check(format!("{HEADER}\n{A}\n{C}\n"), "a<- c<b", &[(3, OrphanedParent)]);
    check(format!("{HEADER}\n{C}\n"), "c<b", &[(2, OrphanedParent)]);
    // Parents after their children are unusual, but no damage.
    check(format!("{HEADER}\n{B}\n{A}\n"), "b<a a<-", &[]);
    let own = A.replace("null", "\"a\"");
    check(format!("{HEADER}\n{own}\n{B}\n"), "a<a b<a", &[(2, ParentCycle)]);
    let cycle = A.replace("null", "\"c\"");
    check(format!("{HEADER}\n{cycle}\n{B}\n{C}\n"), "a<c b<a c<b", &[(2, ParentCycle)]);
    check(format!("{HEADER}\n{A}\n{B}\n{B}\n{C}\n"), "a<- 00000001<a b<a c<b", &[(4, DuplicateId)]);
    let no_id = A.replace(r#""id":"a","parentId":null,"#, "");
    check(format!("{HEADER}\n{A}\n{no_id}\n{B}\n"), "a<- 00000001<a b<a", &[(3, MissingId)]);
}

#[test]
fn orphans_are_roots_with_their_own_parent_id() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("s.jsonl");
    fs::write(&path, format!("{HEADER}\n{A}\n{C}\n")).unwrap();
    let session = Session::open(&path).unwrap();
    let tree = session.tree();
    assert_eq!(tree[1].parent, None);
    assert_eq!(tree[1].entry.parent_id().unwrap().as_str(), "b");
    assert_eq!(
        session.tree_json(),
        concat!(
            r#"{"roots":[{"id":"a","parentId":null,"type":"message","role":"user","preview":"one","timestamp":"2024-12-03T14:00:01.000Z","children":[]},"#,
            r#"{"id":"c","parentId":"b","type":"message","role":"user","preview":"three","timestamp":"2024-12-03T14:00:03.000Z","children":[]}],"leafId":"c"}"#
        )
    );
    assert_eq!(session.branch().len(), 2);
}

#[test]
fn unknown_entries_and_fields_stay() {
    let odd = r#"{"type":"hologram","id":"b","parentId":"a","timestamp":"2024-12-03T14:00:02.000Z","beam":[1.50]}"#;
    let odder = r#"{"type":"message","id":"c","parentId":"b","timestamp":"2024-12-03T14:00:03.000Z","message":{"role":"oracle"},"more":1}"#;
    check(format!("{HEADER}\n{A}\n{odd}\n{odder}\n"), "a<- b<a c<b", &[]);
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("s.jsonl");
    fs::write(&path, format!("{HEADER}\n{A}\n{odd}\n{odder}\n")).unwrap();
    let session = Session::open(&path).unwrap();
    for (entry, line) in session.entries().iter().skip(1).zip([odd, odder]) {
        assert_eq!(entry.json(), line);
        assert!(matches!(entry.kind(), EntryKind::Unknown(raw) if raw.get() == line));
    }
    assert_eq!(session.entries()[2].message_json(), Some(r#"{"role":"oracle"}"#));
    assert_eq!(session.message_count(), 2);
}

#[test]
fn other_files_are_refused_untouched() {
    let newer = HEADER.replace("\"version\":3", "\"version\":4");
    for (content, needle) in [
        (format!("{newer}\n{A}\n"), "version 4, newer than the supported 3"),
        ("# Notes\n\ntext".to_owned(), "is no session file"),
        ("{\n  \"name\": \"x\"\n}\n".to_owned(), "is no session file"),
        (r#"{"type":"module","id":"x"}"#.to_owned(), "is no session file"),
    ] {
        let dir = TempDir::new().unwrap();
        let path = dir.path().join("s.jsonl");
        fs::write(&path, &content).unwrap();
        let error = Session::open(&path).unwrap_err().to_string();
        assert!(error.contains(needle) && error.contains("s.jsonl"), "{error}");
        assert_eq!(fs::read_to_string(&path).unwrap(), content);
    }
    let dir = TempDir::new().unwrap();
    assert!(matches!(Session::open(dir.path()), Err(OpenError::NotAFile { .. })));
}

#[test]
fn hook_messages_of_version_2_become_custom_ones() {
    let header = HEADER.replace("\"version\":3", "\"version\":2");
    let hook = r#"{"type":"message","id":"b","parentId":"a","timestamp":"2024-12-03T14:00:02.000Z","message":{"role":"hookMessage","customType":"x","content":"c","display":true,"timestamp":1}}"#;
    let content = format!("{header}\n{A}\n{hook}\n");
    check(&content, "a<- b<a", &[]);

    let dir = TempDir::new().unwrap();
    let path = dir.path().join("s.jsonl");
    fs::write(&path, &content).unwrap();
    let session = Session::open(&path).unwrap();
    let context = session.build_context();
    let message = context.messages[1].get().unwrap();
    assert!(matches!(&**message, AgentMessage::Custom(m) if m.display));
    drop(session.append_message(user("more")));
    drop(session);
    let now = fs::read_to_string(&path).unwrap();
    assert!(now.starts_with(&format!("{HEADER}\n{A}\n")), "{now}");
    assert_eq!(fs::read_to_string(dir.path().join("s.jsonl.v2.bak")).unwrap(), content);
}

#[tokio::test]
async fn a_file_that_changed_meanwhile_is_not_replaced() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("s.jsonl");
    let header = HEADER.replace("\"version\":3", "\"version\":2");
    fs::write(&path, format!("{header}\n{A}\n")).unwrap();
    let session = Session::open(&path).unwrap();
    let content = format!("{header}\n{A}\n{B}\n");
    fs::write(&path, &content).unwrap();
    // It goes on elsewhere, with what was read.
    session.append_message(user("more")).1.await.unwrap();
    let moved = session.file().unwrap().to_owned();
    drop(session);
    assert_ne!(moved, path);
    assert_eq!(Session::open(&moved).unwrap().message_count(), 2);
    assert_eq!(fs::read_to_string(&path).unwrap(), content);
}

/// The recorded session; not everybody who builds this has it.
fn fixture() -> Option<PathBuf> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../../shared/fixtures/sessions/v1-linear.jsonl");
    path.exists().then_some(path)
}

#[test]
fn a_recorded_version_1_session() {
    let Some(source) = fixture() else {
        writeln!(std::io::stderr(), "skipped: the recorded session is not here").unwrap();
        return;
    };
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("v1.jsonl");
    fs::copy(&source, &path).unwrap();
    let session = Session::open(&path).unwrap();
    assert!(session.warnings().is_empty(), "{:?}", session.warnings());
    assert_eq!(session.message_count(), 914);
    assert_eq!(session.entry_count(), 1018);
    assert_eq!(session.branch().len(), 1018);
    let unknown = |session: &Session| {
        session.entries().iter().filter(|e| matches!(e.kind(), EntryKind::Unknown(_))).count()
    };
    assert_eq!(unknown(&session), 0);
    let context = session.build_context();
    assert_eq!(context.messages.len(), 914);
    assert_eq!(context.model.unwrap().id, "claude-sonnet-4-5");
    assert!(context.thinking_level.is_some());
    let entries: Vec<String> = session.entries().iter().map(|e| e.json().to_owned()).collect();
    assert_eq!(fs::read(&path).unwrap(), fs::read(&source).unwrap());

    drop(session.append_message(user("more")));
    drop(session);
    assert_eq!(fs::read(dir.path().join("v1.jsonl.v1.bak")).unwrap(), fs::read(&source).unwrap());
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2);
    let session = Session::open(&path).unwrap();
    assert!(session.warnings().is_empty());
    assert_eq!(session.message_count(), 915);
    assert_eq!(unknown(&session), 0);
    for (entry, old) in session.entries().iter().zip(&entries) {
        assert_eq!(entry.json(), old);
    }
    let header = fs::read_to_string(&path).unwrap();
    assert!(header.starts_with(r#"{"type":"session","version":3,"#));
    assert!(header.lines().next().unwrap().ends_with(r#""thinkingLevel":"off"}"#));
}
