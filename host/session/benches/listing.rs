//! `list_all` over 3,000 sessions of all sizes (some 600 MB): without an index, with one
//! when nothing has changed, and when one session has grown.

use std::fs::{self, OpenOptions};
use std::hint::black_box;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use criterion::Criterion;
use wharf_session::{SessionDir, SessionIndex};

const PROJECTS: usize = 60;
const SESSIONS: usize = 3000;

/// Gives the file of the last session.
fn make_store(root: &Path) -> PathBuf {
    let mut path = PathBuf::new();
    let reply = "some words of \\\"text\\\" and code\\n".repeat(60);
    for number in 0..SESSIONS {
        let cwd = format!("/home/me/project-{}", number % PROJECTS);
        let folder = root.join(format!("--{}--", cwd[1..].replace('/', "-")));
        fs::create_dir_all(&folder).expect("a temporary directory can be written");
        let id = format!("{number:08x}-5f0f-4a55-9d5e-2f7c5d8c7a10");
        let mut text = format!(
            "{{\"type\":\"session\",\"version\":3,\"id\":\"{id}\",\"timestamp\":\"2024-12-03T14:00:00.000Z\",\"cwd\":\"{cwd}\"}}\n"
        );
        // 2 kB a message; most sessions are short, a few are long.
        for entry in 0..(20 + number % 100 + if number % 50 == 0 { 1500 } else { 0 }) {
            text.push_str(&message(entry, &reply));
        }
        path = folder.join(format!("2024-12-03T14-00-00-000Z_{id}.jsonl"));
        fs::write(&path, text).expect("a temporary directory can be written");
        let file = OpenOptions::new().append(true).open(&path).expect("the file was made");
        file.set_modified(SystemTime::now() - Duration::from_secs(3600))
            .expect("its owner may set its time");
    }
    path
}

fn message(entry: usize, text: &str) -> String {
    let role = if entry.is_multiple_of(2) { "user" } else { "toolResult" };
    let parent =
        entry.checked_sub(1).map_or("null".to_owned(), |parent| format!("\"{parent:08x}\""));
    format!(
        "{{\"type\":\"message\",\"id\":\"{entry:08x}\",\"parentId\":{parent},\"timestamp\":\"2024-12-03T14:00:01.000Z\",\"message\":{{\"role\":\"{role}\",\"content\":[{{\"type\":\"text\",\"text\":\"{text}\"}}],\"timestamp\":1}}}}\n"
    )
}

fn list(dir: &SessionDir, index: &SessionIndex) {
    let listing = dir.list_all(index, &mut |_, _| {}).expect("the store can be read");
    assert_eq!(listing.sessions.len(), SESSIONS);
    black_box(listing);
}

fn main() {
    let temp = tempfile::tempdir().expect("there is a temporary directory");
    let dir = SessionDir::Nested(temp.path().join("sessions"));
    let file = temp.path().join("sessions.json");
    let last = make_store(&temp.path().join("sessions"));
    list(&dir, &SessionIndex::new(file.clone()));

    let mut criterion = Criterion::default()
        .sample_size(10)
        .measurement_time(Duration::from_secs(5))
        .configure_from_args();
    criterion.bench_function("list_all/cold", |b| {
        b.iter(|| list(&dir, &SessionIndex::in_memory()));
    });
    criterion.bench_function("list_all/warm_process", |b| {
        let index = SessionIndex::new(file.clone());
        b.iter(|| list(&dir, &index));
    });
    criterion.bench_function("list_all/warm_file", |b| {
        b.iter(|| list(&dir, &SessionIndex::new(file.clone())));
    });
    criterion.bench_function("list_all/one_grown", |b| {
        let index = SessionIndex::new(file.clone());
        b.iter(|| {
            let mut grown = OpenOptions::new().append(true).open(&last).expect("the file was made");
            grown.write_all(message(1, "more").as_bytes()).expect("the file can be written");
            list(&dir, &index);
        });
    });
    criterion.final_summary();
}
