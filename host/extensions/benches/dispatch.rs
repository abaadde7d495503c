//! `tool_call` with a 1 kB payload to 1 and to 10 extensions, and a command that
//! shows something. Needs the test guests: `cargo xtask guests`.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use criterion::Criterion;
use futures::future::BoxFuture;
use serde_json::{Map, Value};
use tokio::runtime::Runtime;
use tokio_util::sync::CancellationToken;
use wharf_agent::hooks::{Hooks, ToolCallEvent};
use wharf_agent::ui::{Dialog, DialogOutcome, Ui, UiUpdate};
use wharf_extensions::{ExtensionHost, ExtensionHostOptions, Loadable, Report, Reporter, Sources};

#[derive(Debug)]
struct Quiet;

impl Reporter for Quiet {
    fn report(&self, report: Report) {
        panic!("{report:?}");
    }
}

impl Ui for Quiet {
    fn has_ui(&self) -> bool {
        false
    }
    fn dialog(&self, _dialog: Dialog) -> BoxFuture<'_, DialogOutcome> {
        Box::pin(std::future::ready(DialogOutcome::NoUi))
    }
    fn show(&self, _update: UiUpdate) -> BoxFuture<'_, ()> {
        Box::pin(std::future::ready(()))
    }
}

fn guests() -> PathBuf {
    std::env::var_os("WHARF_TEST_GUESTS").map_or_else(
        || {
            // Benchmarks are in `target/release/deps`.
            let exe = std::env::current_exe().unwrap_or_default();
            let target = exe.ancestors().nth(3).unwrap_or(Path::new("target"));
            target.join("guests/wasm32-wasip2/release")
        },
        PathBuf::from,
    )
}

/// Extensions with the same behaviour and different ids: the id is patched in the
/// component's data, where it stands once as plain text.
fn subscribers(directory: &Path, count: usize) -> Option<Vec<PathBuf>> {
    const ID: &[u8] = b"subscriber";
    let component = std::fs::read(guests().join("subscriber.wasm")).ok()?;
    let mut paths = Vec::new();
    for number in 0..count {
        let id = format!("subscribe{number}");
        let mut copy = component.clone();
        for at in 0..copy.len() - ID.len() {
            if copy[at..].starts_with(ID) {
                copy[at..at + ID.len()].copy_from_slice(id.as_bytes());
            }
        }
        let path = directory.join(format!("{id}.wasm"));
        std::fs::write(&path, copy).ok()?;
        paths.push(path);
    }
    Some(paths)
}

fn start(runtime: &Runtime, directory: &Path, explicit: Vec<PathBuf>) -> Arc<ExtensionHost> {
    let sources = Sources { explicit, ..Sources::default() };
    let loadable = Loadable { sources, ..Loadable::default() };
    let host = ExtensionHost::start(ExtensionHostOptions {
        loadable: Arc::new(move || loadable.clone()),
        cache_dir: directory.join("cache"),
        log_file: directory.join("log"),
        cwd: directory.to_owned(),
        home: None,
        agent_dir: directory.join("agent"),
        flags: std::collections::HashMap::default(),
        built_in_tools: Vec::new(),
        ui: Arc::new(Quiet),
        reporter: Arc::new(Quiet),
        runtime: runtime.handle().clone(),
    });
    runtime.block_on(host.ready());
    host
}

fn tool_calls(criterion: &mut Criterion, runtime: &Runtime, count: usize) -> Option<()> {
    let directory = tempfile::tempdir().ok()?;
    let host = start(runtime, directory.path(), subscribers(directory.path(), count)?);
    let mut input = Map::new();
    input.insert("command".into(), Value::from("x".repeat(1_000)));
    let event = ToolCallEvent {
        tool_call_id: "call".into(),
        tool_name: "bash".into(),
        input,
        paths: Vec::new(),
    };
    let recheck = |_: &Map<String, Value>| Ok(Vec::new());
    let cancel = CancellationToken::new();
    criterion.bench_function(&format!("tool_call, 1 kB, {count} extensions"), |bencher| {
        bencher.iter(|| runtime.block_on(host.tool_call(event.clone(), &recheck, &cancel)));
    });
    Some(())
}

fn commands(criterion: &mut Criterion, runtime: &Runtime) -> Option<()> {
    let directory = tempfile::tempdir().ok()?;
    let path = guests().join("heartbeat.wasm");
    let host = start(runtime, directory.path(), path.is_file().then(|| vec![path])?);
    criterion.bench_function("command that notifies", |bencher| {
        bencher.iter(|| runtime.block_on(host.run_command("beat".into(), "1".into())));
    });
    Some(())
}

fn main() {
    let mut criterion = Criterion::default().configure_from_args();
    let Ok(runtime) = Runtime::new() else { panic!("no runtime") };
    let done = tool_calls(&mut criterion, &runtime, 1)
        .and_then(|()| tool_calls(&mut criterion, &runtime, 10))
        .and_then(|()| commands(&mut criterion, &runtime));
    assert!(
        done.is_some(),
        "the test guests are missing in {}: run `cargo xtask guests`",
        guests().display()
    );
    criterion.final_summary();
}
