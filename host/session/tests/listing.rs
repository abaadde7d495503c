//! What lists show, what the index saves, and which file an id means.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use proptest::prelude::*;
use tempfile::TempDir;
use wharf_protocol::AgentMessage;
use wharf_session::{
    FindError, Listing, OpenError, Session, SessionDir, SessionIndex, SessionOptions,
};

const NONE: &str = "(no messages)";

fn user(text: &str) -> Arc<AgentMessage> {
    let json = serde_json::json!({"role": "user", "content": text, "timestamp": 1});
    Arc::new(serde_json::from_value(json).unwrap())
}

fn assistant(text: &str) -> Arc<AgentMessage> {
    let zero =
        serde_json::json!({"input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0, "total": 0});
    let json = serde_json::json!({
        "role": "assistant", "content": [{"type": "text", "text": text}], "api": "a",
        "provider": "p", "model": "m", "stopReason": "stop", "timestamp": 1,
        "usage": {"input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0, "totalTokens": 0, "cost": zero},
    });
    Arc::new(serde_json::from_value(json).unwrap())
}

fn session(dir: &SessionDir, cwd: &str, texts: &[&str]) -> PathBuf {
    let session = Session::create(dir, Path::new(cwd), SessionOptions::default());
    for text in texts {
        drop(session.append_message(user(text)));
    }
    session.file().unwrap().to_owned()
}

fn all(dir: &SessionDir, index: &SessionIndex) -> Listing {
    dir.list_all(index, &mut |_, _| {}).unwrap()
}

/// As messages show them, newest first.
fn first_messages(listing: &Listing) -> Vec<&str> {
    listing.sessions.iter().map(|session| session.first_message.as_str()).collect()
}

fn header(id: &str, cwd: &str) -> String {
    format!(
        "{{\"type\":\"session\",\"version\":3,\"id\":\"{id}\",\"timestamp\":\"2024-12-03T14:00:00.000Z\",\"cwd\":\"{cwd}\"}}\n"
    )
}

fn message(second: u32, text: &str) -> String {
    format!(
        "{{\"type\":\"message\",\"id\":\"{second:08}\",\"parentId\":null,\"timestamp\":\"2024-12-03T14:00:{second:02}.000Z\",\"message\":{{\"role\":\"user\",\"content\":\"{text}\"}}}}\n"
    )
}

fn append(path: &Path, bytes: &[u8]) {
    OpenOptions::new().append(true).open(path).unwrap().write_all(bytes).unwrap();
}

/// Makes the file's time one that can be relied on.
fn age(path: &Path) {
    let file = OpenOptions::new().append(true).open(path).unwrap();
    file.set_modified(SystemTime::now() - Duration::from_secs(60)).unwrap();
}

#[test]
fn a_session_is_shown_as_clients_expect() {
    let temp = TempDir::new().unwrap();
    let dir = SessionDir::Nested(temp.path().join("sessions"));
    let made = Session::create(&dir, Path::new("/home/me/x"), SessionOptions::default());
    drop(made.append_model_change("p", "m"));
    drop(made.append_message(user("")));
    drop(made.append_message(assistant("hello")));
    drop(made.append_message(user(&"é".repeat(1001))));
    drop(made.append_message(user("second")));
    drop(made.append_session_info(" Work "));
    let (path, id) = (made.file().unwrap().to_owned(), made.id().to_owned());
    let (created, last) = (made.header().timestamp, made.entries().last().unwrap().timestamp());
    drop(made);

    let index = SessionIndex::in_memory();
    let listing = dir.list(Path::new("/home/me/x"), &index, &mut |_, _| {}).unwrap();
    assert_eq!(
        serde_json::to_value(&listing.sessions).unwrap(),
        serde_json::json!([{
            "path": path, "id": id, "cwd": "/home/me/x", "name": "Work",
            "created": created, "modified": last, "messageCount": 4,
            "firstMessage": "é".repeat(1000),
        }])
    );
    assert_eq!(listing.problems, []);
}

#[test]
fn a_store_that_is_not_there_is_empty_and_one_that_cannot_be_read_is_an_error() {
    let temp = TempDir::new().unwrap();
    let index = SessionIndex::in_memory();
    fs::write(temp.path().join("file"), "").unwrap();
    let cwd = Path::new("/x");
    for root in ["none", "none/none"] {
        for dir in
            [SessionDir::Nested(temp.path().join(root)), SessionDir::Flat(temp.path().join(root))]
        {
            assert_eq!(all(&dir, &index).sessions, []);
            assert_eq!(dir.list(cwd, &index, &mut |_, _| {}).unwrap().sessions, []);
            assert!(!temp.path().join("none").exists());
        }
    }
    for dir in
        [SessionDir::Nested(temp.path().join("file")), SessionDir::Flat(temp.path().join("file"))]
    {
        let error = dir.list_all(&index, &mut |_, _| {}).unwrap_err();
        assert_eq!(error.path, temp.path().join("file"));
        assert!(error.to_string().ends_with("file"), "{error}");
        assert!(dir.list(cwd, &index, &mut |_, _| {}).is_err());
        assert!(matches!(dir.find(cwd, "a", &index), Err(FindError::Store(_))));
    }
}

#[test]
fn lists_are_of_a_directory_or_of_all() {
    let temp = TempDir::new().unwrap();
    let index = SessionIndex::in_memory();
    let nested = SessionDir::Nested(temp.path().join("nested"));
    let flat = SessionDir::Flat(temp.path().join("flat"));
    for dir in [&nested, &flat] {
        for cwd in ["/a/b", "/a-b", "/c"] {
            session(dir, cwd, &[cwd]);
            std::thread::sleep(Duration::from_millis(2));
        }
        assert_eq!(first_messages(&all(dir, &index)), ["/c", "/a-b", "/a/b"]);
    }
    let of = |dir: &SessionDir, cwd: &str| {
        let listing = dir.list(Path::new(cwd), &index, &mut |_, _| {}).unwrap();
        first_messages(&listing).into_iter().map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(of(&nested, "/a/b"), ["/a/b"]);
    assert_eq!(of(&nested, "/a-b"), ["/a-b"]);
    assert_eq!(of(&nested, "/d"), [""; 0]);
    assert_eq!(of(&flat, "/a/b"), ["/c", "/a-b", "/a/b"]);

    let recent = |dir: &SessionDir, cwd: &str| {
        Session::continue_recent(dir, Path::new(cwd)).unwrap().entry_count()
    };
    for dir in [&nested, &flat] {
        assert_eq!(recent(dir, "/a/b"), 1);
        assert_eq!(recent(dir, "/d"), 0);
    }
}

#[test]
fn damaged_sessions_are_listed_and_other_files_are_not() {
    let temp = TempDir::new().unwrap();
    let folder = temp.path().join("--x--");
    fs::create_dir(&folder).unwrap();
    let uuid = "0b8e4f9a-5f0f-4a55-9d5e-2f7c5d8c7a10";
    let named = format!("2024-12-03T13-00-00-000Z_{uuid}.jsonl");
    let write = |name: &str, text: &str| fs::write(folder.join(name), text).unwrap();
    let torn = message(3, "torn");
    write("torn.jsonl", &format!("{}{}{}", header("t", "/x"), message(50, "whole"), &torn[..70]));
    write("headless.jsonl", &message(40, "headless"));
    write(
        "v1.jsonl",
        "{\"type\":\"session\",\"id\":\"v1\",\"timestamp\":\"2024-12-03T14:00:00.000Z\",\"cwd\":\"/x\"}\r\n{\"type\":\"message\",\"timestamp\":\"2024-12-03T14:00:30.000Z\",\"message\":{\"role\":\"user\",\"content\":\"old\"}}\r\n",
    );
    write("bom.jsonl", &format!("\u{feff}{}\n\0\0{}", header("b", "/x"), message(20, "bom")));
    write(
        "reordered.jsonl",
        &format!(
            "{}{{\"message\": {{\"content\": [{{\"text\": \"blocks\", \"type\": \"text\"}}], \"role\": \"user\"}}, \"timestamp\": \"2024-12-03T14:00:10.000Z\", \"id\": \"a\", \"type\": \"message\"}}\n",
            header("r", "/x")
        ),
    );
    write("empty.jsonl", &header("e", "/x"));
    write(&named, "\0\0\0\0");
    // Not sessions, copies, a subagent's, and one that is too new.
    write("notes.jsonl", "{\"note\":1}\n{\"type\":\"message\",\"text\":\"hi\"}\n");
    write("blank.jsonl", " \n");
    write("torn.jsonl.v1.bak", &header("k", "/x"));
    write("torn.jsonl.torn", &torn);
    write("torn.jsonl.lock", "1");
    fs::create_dir(folder.join("folder.jsonl")).unwrap();
    write(
        "agent.jsonl",
        &header("s", "/x").replace("\"cwd\"", "\"agentType\":\"Explore\",\"cwd\""),
    );
    write("new.jsonl", &header("n", "/x").replace("\"version\":3", "\"version\":4"));
    let mut problems = vec![folder.join("new.jsonl")];
    for (name, version) in [("a.jsonl", "3.5"), ("b.jsonl", "1e30"), ("c.jsonl", "\"99\"")] {
        let version = format!("\"version\":{version}");
        write(name, &header("odd", "/x").replace("\"version\":3", &version));
        problems.push(folder.join(name));
    }
    #[cfg(unix)]
    {
        std::os::unix::fs::symlink("loop.jsonl", folder.join("loop.jsonl")).unwrap();
        problems.push(folder.join("loop.jsonl"));
        std::os::unix::fs::symlink("nowhere.jsonl", folder.join("dangling.jsonl")).unwrap();
    }

    let dir = SessionDir::Nested(temp.path().to_owned());
    let index = SessionIndex::new(temp.path().join("cache/sessions.json"));
    for _ in 0..2 {
        for listing in
            [all(&dir, &index), dir.list(Path::new("/x"), &index, &mut |_, _| {}).unwrap()]
        {
            let shown: Vec<_> = listing
                .sessions
                .iter()
                .map(|s| (s.id.as_str(), s.message_count, s.first_message.as_str()))
                .collect();
            assert_eq!(
                shown,
                [
                    ("t", 1, "whole"),
                    ("headless", 1, "headless"),
                    ("v1", 1, "old"),
                    ("b", 1, "bom"),
                    ("r", 1, "blocks"),
                    ("e", 0, NONE),
                    (uuid, 0, NONE),
                ]
            );
            let mut found: Vec<_> = listing.problems.iter().map(|(path, _)| path.clone()).collect();
            found.sort();
            problems.sort();
            assert_eq!(found, problems);
            for session in listing.sessions {
                assert_agrees(&session.path, &session);
            }
        }
    }
}

/// The list says what opening the file says.
#[track_caller]
fn assert_agrees(path: &Path, shown: &wharf_session::SessionInfo) {
    let session = Session::open(path).unwrap();
    assert_eq!(shown.message_count, session.message_count());
    assert_eq!(shown.name, session.name());
    let first = session
        .entries()
        .iter()
        .filter_map(|entry| match entry.message()?.as_ref() {
            AgentMessage::User(message) => Some(message.content.to_text()),
            _ => None,
        })
        .find(|text| !text.is_empty());
    let first = first.map_or(NONE.to_owned(), |text| text.chars().take(1000).collect());
    assert_eq!(shown.first_message, first);
}

#[test]
fn the_index_saves_reading_and_nothing_else() {
    let temp = TempDir::new().unwrap();
    let dir = SessionDir::Nested(temp.path().join("sessions"));
    let file = temp.path().join("cache/sessions.json");
    let path = session(&dir, "/x", &["one"]);
    let other = session(&dir, "/y", &["two"]);
    let fresh = || all(&dir, &SessionIndex::new(file.clone())).sessions;
    let expected = fresh();
    age(&path);
    age(&other);
    assert_eq!(fresh(), expected);

    // Same size, same time: nobody looks into it.
    let text = fs::read_to_string(&path).unwrap();
    let time = fs::metadata(&path).unwrap().modified().unwrap();
    let set = |text: &str| {
        let file = OpenOptions::new().write(true).open(&path).unwrap();
        (&file).write_all(text.as_bytes()).unwrap();
        file.set_modified(time).unwrap();
    };
    set(&text.replace("one", "eno"));
    assert_eq!(fresh(), expected);
    set(&text);

    // Growth is read, in this process and by others.
    let kept = SessionIndex::new(file.clone());
    assert_eq!(all(&dir, &kept).sessions, expected);
    append(&path, message(1, "more").as_bytes());
    let count = |sessions: &[wharf_session::SessionInfo]| {
        sessions.iter().find(|s| s.path == path).map(|s| s.message_count)
    };
    assert_eq!(count(&fresh()), Some(2));
    append(&path, message(2, "more").as_bytes());
    assert_eq!(count(&all(&dir, &kept).sessions), Some(3));
    assert_eq!(count(&fresh()), Some(3));

    // A replaced file and a removed one are noticed.
    fs::rename(&other, &path).unwrap();
    assert_eq!(fresh().len(), 1);
    assert_eq!(count(&fresh()), Some(1));
    assert!(!fs::read_to_string(&file).unwrap().contains("--y--"), "forgotten");

    // Whatever stands in the index.
    let sound = fs::read_to_string(&file).unwrap();
    for garbage in [
        String::new(),
        "\0\0".to_owned(),
        "{}".to_owned(),
        sound[..sound.len() / 2].to_owned(),
        sound.replace("\"version\":1", "\"version\":9"),
        sound.replace("\"offset\":", "\"offset\":9"),
    ] {
        fs::write(&file, garbage).unwrap();
        append(&path, message(3, "again").as_bytes());
        assert_agrees(&path, &fresh()[0]);
    }

    // A cache that can't be written costs speed and is told.
    fs::remove_file(&file).unwrap();
    fs::create_dir(&file).unwrap();
    append(&path, b"\n");
    let listing = all(&dir, &SessionIndex::new(file.clone()));
    assert_eq!(listing.sessions.len(), 1);
    assert_eq!(listing.problems.len(), 1);
    assert_eq!(listing.problems[0].0, file);
}

#[test]
fn a_message_too_long_to_be_held_counts() {
    let temp = TempDir::new().unwrap();
    let path = temp.path().join("s.jsonl");
    let content =
        [header("u", "/x"), message(1, "one"), message(2, &"x".repeat(17 << 20)), message(3, "b")];
    fs::write(&path, content.concat()).unwrap();
    let dir = SessionDir::Flat(temp.path().to_owned());
    let listing = all(&dir, &SessionIndex::in_memory());
    assert_eq!(listing.sessions[0].message_count, 3);
    assert_agrees(&path, &listing.sessions[0]);
}

#[test]
fn a_subagent_is_nothing_to_go_on_with() {
    let temp = TempDir::new().unwrap();
    let dir = SessionDir::Flat(temp.path().to_owned());
    let mine = session(&dir, "/x", &["mine"]);
    age(&mine);
    let options = SessionOptions { agent_type: Some("Explore".to_owned()), parent_session: None };
    let child = Session::create(&dir, Path::new("/x"), options);
    drop(child.append_message(user("child")));
    drop(child);
    let recent = Session::continue_recent(&dir, Path::new("/x")).unwrap();
    assert_eq!(recent.file(), Some(&*mine));
    assert_eq!(first_messages(&all(&dir, &SessionIndex::in_memory())), ["mine"]);
}

#[test]
fn a_little_growth_of_a_large_store_is_not_worth_an_index() {
    let temp = TempDir::new().unwrap();
    let dir = SessionDir::Flat(temp.path().join("s"));
    let file = temp.path().join("index.json");
    let paths: Vec<_> = (0..40).map(|_| session(&dir, "/x", &["a"])).collect();
    paths.iter().for_each(|path| age(path));
    all(&dir, &SessionIndex::new(file.clone()));
    let before = fs::read(&file).unwrap();

    let kept = SessionIndex::new(file.clone());
    append(&paths[0], message(1, "b").as_bytes());
    for index in [&kept, &SessionIndex::new(file.clone()), &kept] {
        let counts = all(&dir, index).sessions.into_iter().map(|s| s.message_count);
        assert_eq!(counts.sum::<usize>(), 41);
        assert_eq!(fs::read(&file).unwrap(), before);
    }
    // But it adds up.
    for path in &paths {
        append(path, message(2, "c").as_bytes());
    }
    all(&dir, &kept);
    assert_ne!(fs::read(&file).unwrap(), before);
}

#[test]
fn progress_runs_from_what_is_known_to_all() {
    let temp = TempDir::new().unwrap();
    let dir = SessionDir::Flat(temp.path().to_owned());
    let index = SessionIndex::in_memory();
    let paths: Vec<_> = (0..20).map(|_| session(&dir, "/x", &["a"])).collect();
    let steps = |index: &SessionIndex| {
        let mut steps = Vec::new();
        dir.list_all(index, &mut |done, total| steps.push((done, total))).unwrap();
        steps
    };
    assert_eq!(steps(&index), (0..=20).map(|done| (done, 20)).collect::<Vec<_>>());
    paths.iter().for_each(|path| age(path));
    steps(&index);
    assert_eq!(steps(&index), [(20, 20)]);
}

#[test]
fn processes_may_share_an_index() {
    let temp = TempDir::new().unwrap();
    let dir = SessionDir::Flat(temp.path().join("s"));
    let file = temp.path().join("index.json");
    let paths: Vec<_> = (0..8).map(|_| session(&dir, "/x", &["a"])).collect();
    std::thread::scope(|scope| {
        for path in &paths {
            scope.spawn(|| {
                let index = SessionIndex::new(file.clone());
                for _ in 0..20 {
                    append(path, message(1, "b").as_bytes());
                    assert_eq!(all(&dir, &index).sessions.len(), 8);
                }
            });
        }
    });
    let listing = all(&dir, &SessionIndex::new(file));
    assert!(listing.sessions.iter().all(|session| session.message_count == 21));
    assert_eq!(fs::read_dir(temp.path()).unwrap().count(), 2, "temporary files are left");
}

#[test]
fn an_id_or_the_start_of_one_names_a_session() {
    let temp = TempDir::new().unwrap();
    let dir = SessionDir::Nested(temp.path().to_owned());
    let index = SessionIndex::in_memory();
    let write = |folder: &str, name: &str, text: &str| {
        fs::create_dir_all(temp.path().join(folder)).unwrap();
        let path = temp.path().join(folder).join(name);
        fs::write(&path, text).unwrap();
        path
    };
    let id = |digit: char| format!("abc{digit}4f9a-5f0f-4a55-9d5e-2f7c5d8c7a10");
    let name = |digit: char| format!("2024-12-03T13-00-00-000Z_{}.jsonl", id(digit));
    let here = write("--x--", &name('1'), &(header(&id('1'), "/x") + &message(1, "hello")));
    let there = write("--y--", &name('2'), &header(&id('2'), "/y"));
    write("--y--", &name('3'), &header(&id('3'), "/y"));
    let odd = write("--y--", "odd.jsonl", &header("odd-id", "/y"));
    let longer = write("--y--", "odder.jsonl", &header("odd-id-2", "/y"));
    write("--y--", "notes.jsonl", "{}\n");

    let find = |cwd: &str, what: &str| dir.find(Path::new(cwd), what, &index);
    // Sessions of the directory come first.
    assert_eq!(find("/x", "abc").unwrap(), here);
    assert_eq!(find("/x", &id('2')).unwrap(), there);
    assert_eq!(find("/x", "ABC2").unwrap(), there);
    assert_eq!(find("/z", "abc1").unwrap(), here);
    assert_eq!(find("/z", "odd-id").unwrap(), odd, "the whole id");
    assert_eq!(find("/z", "odd-id-").unwrap(), longer);

    let error = find("/z", "abc").unwrap_err().to_string();
    assert!(error.starts_with("3 sessions match \"abc\""), "{error}");
    assert!(error.contains(&format!("\n  {}  /x  hello", id('1'))), "{error}");
    assert!(matches!(find("/y", "abc"), Err(FindError::Ambiguous { total: 2, .. })));
    for what in ["", "zzz", "notes"] {
        let error = find("/x", what).unwrap_err();
        assert!(
            matches!(&error, FindError::NotFound { looked_in, .. } if looked_in == temp.path())
        );
        assert!(error.to_string().contains(temp.path().to_str().unwrap()), "{error}");
    }

    // Two directories that share a folder; and a copy, which has the same id.
    let shared = write("--a-b--", &name('4'), &header(&id('4'), "/a/b"));
    write("--a-b--", &name('5'), &header(&id('5'), "/a-b"));
    assert_eq!(find("/a/b", "abc").unwrap(), shared);
    let copy = write("--y--", &format!("copy_{}.jsonl", id('1')), &header(&id('1'), "/y"));
    let error = find("/z", &id('1')).unwrap_err().to_string();
    assert!(error.contains(copy.to_str().unwrap()), "{error}");

    for number in 0..12 {
        write("--m--", &format!("{number}.jsonl"), &header(&format!("many-{number}"), "/m"));
    }
    match find("/m", "many").unwrap_err() {
        FindError::Ambiguous { candidates, total, .. } => {
            assert_eq!((candidates.len(), total), (10, 12));
        }
        other => panic!("{other}"),
    }
}

#[derive(Debug, Clone)]
enum Piece {
    User(String),
    Assistant(String),
    Name(Option<String>),
    Custom,
    /// Bytes of its own.
    Raw(Vec<u8>),
    /// A message that is cut off and has no line feed.
    Torn(prop::sample::Index),
    /// A message with one byte changed.
    Hit(prop::sample::Index, u8),
    List,
    /// The end of the file goes.
    Cut(prop::sample::Index),
}

fn piece() -> impl Strategy<Value = Piece> {
    prop_oneof![
        4 => ".{0,20}".prop_map(Piece::User),
        3 => ".{0,20}".prop_map(Piece::Assistant),
        2 => proptest::option::of(".{0,8}").prop_map(Piece::Name),
        1 => Just(Piece::Custom),
        1 => proptest::collection::vec(any::<u8>(), 0..12).prop_map(Piece::Raw),
        1 => prop_oneof![Just("\r\n"), Just("\0\0\0"), Just("\n\n"), Just("\u{feff}"), Just("{}")]
            .prop_map(|text| Piece::Raw(text.as_bytes().to_vec())),
        2 => any::<prop::sample::Index>().prop_map(Piece::Torn),
        2 => (any::<prop::sample::Index>(), any::<u8>()).prop_map(|(at, by)| Piece::Hit(at, by)),
        4 => Just(Piece::List),
        1 => any::<prop::sample::Index>().prop_map(Piece::Cut),
    ]
}

fn line(number: usize, rest: serde_json::Value) -> Vec<u8> {
    let mut entry = serde_json::json!({
        "type": "", "id": format!("{number:08x}"), "parentId": null,
        "timestamp": format!("2024-12-03T14:{:02}:{:02}.000Z", number / 60 % 60, number % 60),
    });
    entry.as_object_mut().unwrap().extend(rest.as_object().unwrap().clone());
    format!("{entry}\n").into_bytes()
}

fn bytes_of(number: usize, piece: &Piece) -> Vec<u8> {
    let say = |role: &str, text: &str| {
        let mut message = match role {
            "user" => serde_json::to_value(&*user(text)).unwrap(),
            _ => serde_json::to_value(&*assistant(text)).unwrap(),
        };
        message["role"] = role.into();
        line(number, serde_json::json!({"type": "message", "message": message}))
    };
    match piece {
        Piece::User(text) => say("user", text),
        Piece::Assistant(text) => say("assistant", text),
        Piece::Name(name) => {
            line(number, serde_json::json!({"type": "session_info", "name": name}))
        }
        Piece::Custom => line(number, serde_json::json!({"type": "custom", "customType": "x"})),
        Piece::Raw(bytes) => bytes.clone(),
        Piece::Torn(at) => {
            let mut bytes = say("user", "torn");
            bytes.truncate(at.index(bytes.len()));
            bytes
        }
        Piece::Hit(at, by) => {
            let mut bytes = say("user", "hit");
            let at = at.index(bytes.len());
            bytes[at] = *by;
            bytes
        }
        Piece::List | Piece::Cut(_) => Vec::new(),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn lists_agree_with_opening_and_with_lists_without_an_index(
        pieces in proptest::collection::vec(piece(), 0..30),
        start in prop_oneof![
            3 => Just(header("u", "/x").into_bytes()),
            1 => Just(header("u", "/x").replace(",\"version\":3", "").into_bytes()),
            1 => Just(Vec::new()),
        ],
    ) {
        let temp = TempDir::new().unwrap();
        let dir = SessionDir::Flat(temp.path().join("s"));
        fs::create_dir(temp.path().join("s")).unwrap();
        let path = temp.path().join("s/2024-12-03T13-00-00-000Z_0b8e4f9a-5f0f-4a55-9d5e-2f7c5d8c7a10.jsonl");
        fs::write(&path, start).unwrap();
        let index = SessionIndex::new(temp.path().join("index.json"));
        for (number, piece) in pieces.iter().chain([&Piece::List]).enumerate() {
            append(&path, &bytes_of(number, piece));
            match piece {
                Piece::Cut(at) => {
                    let file = OpenOptions::new().write(true).open(&path).unwrap();
                    let len = file.metadata().unwrap().len();
                    file.set_len(at.index(usize::try_from(len).unwrap() + 1) as u64).unwrap();
                }
                Piece::List => {
                    let listing = all(&dir, &index);
                    prop_assert_eq!(
                        &listing.sessions,
                        &all(&dir, &SessionIndex::in_memory()).sessions
                    );
                    match (Session::open(&path), listing.sessions.as_slice()) {
                        (Ok(_), [shown]) => assert_agrees(&path, shown),
                        (Err(OpenError::NotASession { .. } | OpenError::TooNew { .. }), []) => {}
                        (opened, shown) => prop_assert!(false, "{:?} {:?}", opened, shown),
                    }
                }
                _ => {}
            }
        }
    }
}
