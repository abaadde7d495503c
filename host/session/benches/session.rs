//! What opening, walking and appending cost with long sessions. Before the benches, the
//! peak memory of a process that opens a session and lists its tree.

mod generate;

use std::hint::black_box;
use std::io::{self, Write as _};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use criterion::Criterion;
use tempfile::TempDir;
use tokio::runtime::Runtime;
use wharf_protocol::AgentMessage;
use wharf_session::Session;

/// Makes this program open the session that is named and tell its peak memory.
const MEASURED: &str = "WHARF_SESSION_BENCH_MEMORY_OF";

fn user(text: &str) -> Arc<AgentMessage> {
    let json = serde_json::json!({"role": "user", "content": text, "timestamp": 1});
    Arc::new(serde_json::from_value(json).expect("a user message"))
}

fn open(path: &Path) -> Session {
    let session = Session::open(path).expect("the session opens");
    assert!(session.warnings().is_empty(), "{:?}", session.warnings());
    session
}

/// The data that `get_messages` answers with.
#[derive(serde::Serialize)]
struct Messages<T> {
    messages: T,
}

fn benches(c: &mut Criterion) {
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    let dir = TempDir::new().expect("a directory");
    let (mixed, chain) = (dir.path().join("mixed.jsonl"), dir.path().join("chain.jsonl"));
    generate::mixed(&mixed, 100_000).expect("a session file");
    generate::chain(&chain, 1_000_000).expect("a session file");
    for path in [&mixed, &chain] {
        tell_memory(path).expect("a child process");
    }

    let mut group = c.benchmark_group("100,000 entries, 60 MB");
    group.sample_size(10);
    group.bench_function("open", |b| b.iter(|| open(&mixed)));
    group.bench_function("open, tree", |b| b.iter(|| black_box(open(&mixed).tree())));
    group.bench_function("open, context", |b| b.iter(|| open(&mixed).build_context()));
    let session = open(&mixed);
    group.bench_function("context", |b| b.iter(|| session.build_context()));
    let context = session.build_context();
    group.bench_function("get_messages", |b| {
        b.iter(|| serde_json::to_string(&Messages { messages: &context.messages }));
    });
    group.bench_function("get_tree", |b| b.iter(|| session.tree_json()));
    group.bench_function("append", |b| b.iter(|| append(&session, &runtime)));
    drop(session);
    group.finish();

    let mut group = c.benchmark_group("a chain of 10,000");
    generate::chain(&chain, 10_000).expect("a session file");
    let session = open(&chain);
    group.bench_function("get_tree", |b| b.iter(|| session.tree_json()));
    drop(session);
    group.finish();

    let mut group = c.benchmark_group("a new session");
    group.sample_size(10);
    let fresh = dir.path().join("fresh.jsonl");
    generate::chain(&fresh, 1).expect("a session file");
    let session = open(&fresh);
    group.bench_function("append", |b| b.iter(|| append(&session, &runtime)));
    group.finish();

    let mut group = c.benchmark_group("a chain of 1,000,000");
    group.sample_size(10);
    generate::chain(&chain, 1_000_000).expect("a session file");
    group.bench_function("open", |b| b.iter(|| open(&chain)));
    let session = open(&chain);
    group.bench_function("tree", |b| b.iter(|| session.tree()));
    group.bench_function("branch", |b| b.iter(|| session.branch()));
    group.bench_function("context", |b| b.iter(|| session.build_context()));
    group.bench_function("get_tree", |b| b.iter(|| session.tree_json()));
    group.finish();
}

/// Until the line is in the file.
fn append(session: &Session, runtime: &Runtime) {
    let (_, receipt) = session.append_message(user("one more message of the usual length"));
    runtime.block_on(receipt).expect("it is written");
}

fn tell_memory(path: &Path) -> io::Result<()> {
    let child = Command::new(std::env::current_exe()?).env(MEASURED, path).output()?;
    io::stderr().write_all(&child.stderr)
}

/// Peak resident memory of this process; Linux only.
fn peak_memory() -> String {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.unwrap_or("unknown").trim().to_owned()
}

fn main() -> io::Result<()> {
    if let Some(path) = std::env::var_os(MEASURED) {
        let base = peak_memory();
        let size = std::fs::metadata(&path)?.len() / 1024;
        let session = open(Path::new(&path));
        let opened = peak_memory();
        let tree = session.tree();
        return writeln!(
            io::stderr(),
            "{} entries, {size} kB: peak {base} before, {opened} opened, {} with the tree",
            tree.len(),
            peak_memory(),
        );
    }
    let mut criterion = Criterion::default().configure_from_args();
    benches(&mut criterion);
    criterion.final_summary();
    Ok(())
}
