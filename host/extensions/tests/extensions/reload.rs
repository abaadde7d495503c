//! Reload: what changed is replaced, what did not goes on, and nothing is left behind.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use wharf_agent::hooks::{HookNotification, Hooks, ReloadedExtension};
use wharf_extensions::{ExtensionState, Limits};

use crate::support::{Fixture, Setup, blocks, guest, patiently};

/// A folder with one component, whose content changes.
struct Place {
    _directory: tempfile::TempDir,
    file: PathBuf,
    earlier: Vec<u8>,
    later: Vec<u8>,
}

impl Place {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().canonicalize().unwrap().join("x.wasm");
        let [earlier, later] =
            ["changing", "changing-later"].map(|name| fs::read(guest(name)).unwrap());
        fs::write(&file, &earlier).unwrap();
        Self { _directory: directory, file, earlier, later }
    }

    fn put(&self, content: &[u8]) {
        let temporary = self.file.with_extension("tmp");
        fs::write(&temporary, content).unwrap();
        fs::rename(&temporary, &self.file).unwrap();
    }

    async fn start(&self, setup: Setup) -> Fixture {
        let fixture = Fixture::start(vec![self.file.clone(), guest("heartbeat")], setup);
        patiently(fixture.host.ready()).await;
        fixture
    }
}

fn told(
    id: &str,
    path: &Path,
    versions: (Option<&str>, Option<&str>),
    changed: bool,
) -> ReloadedExtension {
    ReloadedExtension {
        id: id.to_owned(),
        path: path.to_owned(),
        old_version: versions.0.map(str::to_owned),
        new_version: versions.1.map(str::to_owned),
        changed,
        error: None,
    }
}

fn heartbeat() -> ReloadedExtension {
    let path = guest("heartbeat").canonicalize().unwrap();
    told("heartbeat", &path, (Some("0.1.0"), Some("0.1.0")), false)
}

async fn which(fixture: &Fixture) -> String {
    fixture.command("which").await;
    fixture.ui.notified().await
}

/// Waits until what is left are so many actors and stores.
async fn until_left(fixture: &Fixture, expected: (usize, usize)) {
    let wait = async {
        while fixture.host.live() != expected {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let left = tokio::time::timeout(Duration::from_secs(60), wait).await;
    assert!(left.is_ok(), "{:?} are left, not {expected:?}", fixture.host.live());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_changed_is_replaced_and_what_did_not_goes_on() {
    let place = Place::new();
    let fixture = place.start(Setup::default()).await;
    fixture.host.notify(HookNotification::SessionStart);
    assert_eq!(which(&fixture).await, "1.0.0, started 1");

    let same = (Some("1.0.0"), Some("1.0.0"));
    assert_eq!(fixture.reload().await, [told("changing", &place.file, same, false), heartbeat()]);
    assert_eq!(which(&fixture).await, "1.0.0, started 1", "the same instance");

    place.put(&place.later);
    let next = (Some("1.0.0"), Some("2.0.0"));
    assert_eq!(fixture.reload().await, [told("changing", &place.file, next, true), heartbeat()]);
    assert_eq!(which(&fixture).await, "2.0.0, started 1");
    until_left(&fixture, (2, 1)).await;

    fs::remove_file(&place.file).unwrap();
    let reloaded = fixture.reload().await;
    assert_eq!(reloaded, [heartbeat(), told("changing", &place.file, (Some("2.0.0"), None), true)]);
    assert!(fixture.report().await.starts_with("load: there is no extension at "));
    assert_eq!(fixture.host.commands().len(), 1);
    until_left(&fixture, (1, 0)).await;

    place.put(&place.earlier);
    let reloaded = fixture.reload().await;
    assert_eq!(reloaded, [told("changing", &place.file, (None, Some("1.0.0")), true), heartbeat()]);
    assert_eq!(which(&fixture).await, "1.0.0, started 1");
    assert!(fixture.reports.0.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn content_that_cannot_be_loaded_leaves_the_old_one_and_says_why() {
    let place = Place::new();
    let fixture = place.start(Setup::default()).await;
    fixture.host.notify(HookNotification::SessionStart);
    assert_eq!(which(&fixture).await, "1.0.0, started 1");
    let panics = fs::read(guest("panics-register")).unwrap();
    for (content, why) in
        [(&place.later[..1_000], "is no valid component"), (&panics[..], "register failed: ")]
    {
        place.put(content);
        let reloaded = fixture.reload().await;
        let error = reloaded[0].error.as_deref().unwrap();
        assert!(error.contains(why), "{error}");
        assert_eq!(reloaded[0].new_version.as_deref(), Some("1.0.0"));
        assert_eq!(which(&fixture).await, "1.0.0, started 1");
    }
    assert!(fixture.reports.0.is_empty(), "the one who asked is told");
    place.put(&place.later);
    assert_eq!(fixture.reload().await[0].new_version.as_deref(), Some("2.0.0"));
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_never_worked_is_reported_as_at_the_start() {
    let place = Place::new();
    place.put(b"nonsense");
    let fixture = place.start(Setup::default()).await;
    for _ in 0..2 {
        assert!(fixture.report().await.ends_with("is no WebAssembly file"));
        assert!(
            matches!(&fixture.host.list()[0].state, ExtensionState::Failed { error } if error.ends_with("is no WebAssembly file"))
        );
        let reloaded = fixture.reload().await;
        assert_eq!((reloaded[0].id.as_str(), &reloaded[0].new_version), ("x", &None));
        assert!(reloaded[0].error.is_some());
    }
    place.put(&place.earlier);
    fixture.reload().await;
    assert_eq!(which(&fixture).await, "1.0.0, started 0");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_old_instance_was_doing_is_cancelled() {
    let place = Place::new();
    let fixture = place.start(Setup::default()).await;
    let waiting = tokio::spawn(fixture.start_command("wait"));
    let mut dialog = fixture.ui.dialogs.next().await;
    let asking = fixture.bash("ASK");
    let (verdict, ()) = tokio::join!(asking, async {
        let mut other = fixture.ui.dialogs.next().await;
        place.put(&place.later);
        fixture.reload().await;
        other.dropped().await;
    });
    assert_eq!(verdict, blocks("1.0.0 says no"));
    dialog.dropped().await;
    patiently(waiting).await.unwrap();
    assert_eq!(fixture.ui.notified().await, "1.0.0: cancelled");
    assert_eq!(which(&fixture).await, "2.0.0, started 0");
    until_left(&fixture, (2, 1)).await;
    assert!(fixture.reports.0.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_does_not_return_ends_with_its_store() {
    let place = Place::new();
    let limits = Limits { cancel_grace: Duration::from_millis(200), ..Limits::default() };
    let fixture = place.start(Setup { limits, ..Setup::default() }).await;
    let stubborn = tokio::spawn(fixture.start_command("stubborn"));
    let _dialog = fixture.ui.dialogs.next().await;
    place.put(&place.later);
    fixture.reload().await;
    assert_eq!(which(&fixture).await, "2.0.0, started 0");
    patiently(stubborn).await.unwrap();
    assert_eq!(
        fixture.report().await,
        "command: /stubborn: it was reloaded or removed before this call was through"
    );
    until_left(&fixture, (2, 1)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_may_reload_its_own_extension() {
    let place = Place::new();
    let fixture = place.start(Setup::default()).await;
    place.put(&place.later);
    fixture.command("reload").await;
    assert_eq!(fixture.ui.notified().await, "1.0.0: 2 reloaded");
    assert_eq!(which(&fixture).await, "2.0.0, started 0");
    until_left(&fixture, (2, 1)).await;
    assert!(fixture.reports.0.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancelled_reload_changes_nothing_and_two_at_once_are_refused() {
    let place = Place::new();
    let fixture = place.start(Setup::default()).await;
    place.put(&place.later);
    let cancel = CancellationToken::new();
    cancel.cancel();
    let error = fixture.host.reload(&cancel).await.unwrap_err();
    assert_eq!(error, "the reload was cancelled; nothing has changed");
    assert_eq!(which(&fixture).await, "1.0.0, started 0");

    let cancel = CancellationToken::new();
    let (first, second) = tokio::join!(fixture.host.reload(&cancel), fixture.host.reload(&cancel));
    assert_eq!(first.unwrap()[0].new_version.as_deref(), Some("2.0.0"));
    assert_eq!(second.unwrap_err(), "a reload is under way already");
}

#[tokio::test(flavor = "multi_thread")]
async fn other_limits_and_settings_count_from_the_reload_on() {
    let place = Place::new();
    let fixture = place.start(Setup::default()).await;
    let limits = Limits { memory_bytes: 32 * 1024 * 1024, ..Limits::default() };
    fixture.loadable.lock().unwrap().own_limits.insert("changing".to_owned(), limits);
    let same = (Some("1.0.0"), Some("1.0.0"));
    assert_eq!(fixture.reload().await[0], told("changing", &place.file, same, false));
    let infos = fixture.host.list();
    assert_eq!((infos[0].limits, infos[1].limits), (limits, Limits::default()));
    // Named on the command line, so that settings do not switch it off; elsewhere they do.
    {
        let mut loadable = fixture.loadable.lock().unwrap();
        loadable.sources.disabled = vec!["changing".to_owned()];
        loadable.sources.settings = std::mem::take(&mut loadable.sources.explicit);
    }
    let reloaded = fixture.reload().await;
    assert_eq!(reloaded[0], told("changing", &place.file, (Some("1.0.0"), None), true));
    assert_eq!(fixture.host.list()[0].state, ExtensionState::Disabled);
    assert_eq!(fixture.reload().await.len(), 1, "it was not there before either");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_clash_is_told_once_and_ends_with_the_first_one() {
    let place = Place::new();
    let fixture = place.start(Setup::default()).await;
    fixture.host.notify(HookNotification::SessionStart);
    let copy = place.file.with_file_name("y.wasm");
    fs::write(&copy, &place.later).unwrap();
    fixture.loadable.lock().unwrap().sources.explicit.push(copy.clone());
    for _ in 0..2 {
        fixture.reload().await;
        assert_eq!(which(&fixture).await, "1.0.0, started 1");
        assert_eq!(fixture.host.list()[2].state, ExtensionState::Shadowed);
    }
    assert!(fixture.report().await.contains("its id \"changing\" is taken by "));
    assert!(fixture.reports.0.is_empty(), "told once");
    fixture.loadable.lock().unwrap().sources.explicit.remove(0);
    fixture.reload().await;
    assert_eq!(which(&fixture).await, "2.0.0, started 1");
}

/// Bytes of this process that are in memory.
fn resident() -> usize {
    let statm = fs::read_to_string("/proc/self/statm").unwrap();
    let pages: usize = statm.split(' ').nth(1).unwrap().parse().unwrap();
    pages * 4096
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_reloads_leave_nothing_behind() {
    const RELOADS: usize = 1_000;
    const WARM_UP: usize = 100;
    // An instance alone has more than 50 kB; a thousand of them would be far over this.
    const BOUND: usize = 24 * 1024 * 1024;
    let place = Place::new();
    let fixture = place.start(Setup::default()).await;
    fixture.host.notify(HookNotification::SessionStart);
    let mut warm = 0;
    for reload in 0..RELOADS {
        let (content, version) =
            if reload % 2 == 0 { (&place.later, "2.0.0") } else { (&place.earlier, "1.0.0") };
        place.put(content);
        let reloaded = fixture.reload().await;
        assert_eq!(reloaded[0].new_version.as_deref(), Some(version));
        assert_eq!(which(&fixture).await, format!("{version}, started 1"));
        if reload == WARM_UP {
            warm = resident();
        }
    }
    until_left(&fixture, (2, 1)).await;
    let grown = resident().saturating_sub(warm);
    assert!(grown < BOUND, "{grown} bytes more after {RELOADS} reloads");
    assert!(fixture.reports.0.is_empty());
}
