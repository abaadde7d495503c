//! What a guest may reach: asking, keeping the answer, and files, hosts and programs
//! through a component.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use tempfile::TempDir;
use wharf_agent::host_api::HttpRequest;
use wharf_agent::ui::{DialogAnswer, DialogKind, DialogOutcome};
use wharf_extensions::{GrantStore, Permission, Subject};

use crate::support::{FakeResponse, FakeWeb, Fixture, Setup, guest, patiently};

const YES: DialogOutcome = DialogOutcome::Answered(DialogAnswer::Confirmed(true));
const NO: DialogOutcome = DialogOutcome::Answered(DialogAnswer::Confirmed(false));

/// What `reach` asks for itself.
fn asked() -> Vec<Permission> {
    vec![read("docs/**"), net("*"), exec(&["sh", "-c", "**"])]
}

fn read(pattern: &str) -> Permission {
    Permission::FsRead(pattern.into())
}

fn net(pattern: &str) -> Permission {
    Permission::Net(pattern.into())
}

fn exec(words: &[&str]) -> Permission {
    Permission::Exec(words.iter().map(|&word| word.to_owned()).collect())
}

fn directory() -> (Arc<TempDir>, PathBuf) {
    let directory = Arc::new(TempDir::new().unwrap());
    let project = directory.path().canonicalize().unwrap().join("project");
    fs::create_dir_all(project.join("docs")).unwrap();
    fs::write(project.join("docs/a.md"), "text").unwrap();
    fs::write(project.join("secret"), "secret").unwrap();
    fs::create_dir(directory.path().join("agent")).unwrap();
    (directory, project)
}

fn store(directory: &TempDir) -> GrantStore {
    GrantStore::load(directory.path().join("agent/grants.json")).unwrap()
}

fn subject() -> Subject {
    let path = guest("reach").canonicalize().unwrap();
    Subject { id: "reach".into(), path, content_hash: "sha256:other".into() }
}

fn setup(directory: &Arc<TempDir>, project: &std::path::Path) -> Setup {
    let (directory, cwd) = (Some(Arc::clone(directory)), Some(project.to_owned()));
    Setup { directory, cwd, ..Setup::default() }
}

/// `reach` with these permissions, and what it asks for itself denied.
async fn granted(granted: Vec<Permission>, web: Option<FakeWeb>) -> Fixture {
    let (directory, project) = directory();
    let denied = asked().into_iter().filter(|asked| !granted.contains(asked)).collect();
    store(&directory).decide(subject(), granted, denied).unwrap();
    Fixture::with(&["reach"], Setup { web, ..setup(&directory, &project) }).await
}

async fn reach(fixture: &Fixture, words: &str) -> String {
    fixture.command(&format!("reach {words}")).await;
    fixture.ui.notified().await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_person_is_asked_once_and_calls_wait_for_the_answer() {
    let (directory, project) = directory();
    let fixture = Fixture::with(&["reach"], setup(&directory, &project)).await;
    let waiting = tokio::spawn(fixture.start_command("reach read docs/a.md"));
    let dialog = fixture.ui.dialogs.next().await;
    let DialogKind::Confirm { title, message } = &dialog.dialog.kind else { panic!() };
    let path = guest("reach").canonicalize().unwrap();
    assert_eq!(
        title,
        &format!("Grant permissions to the extension reach 0.1.0 ({})?", path.display())
    );
    assert_eq!(
        message,
        "reach asks to:\n\
         - read files docs/** in the project\n\
         - connect to * (WIDE: any host, also this computer and its network)\n\
         - run sh -c with any further arguments (WIDE: it can run anything, with all your rights)"
    );
    // What needs no decision goes on.
    assert_eq!(reach(&fixture, "data-write /data/x 1").await, "ok: ");
    assert!(!waiting.is_finished());
    dialog.answer(YES);
    assert_eq!(fixture.ui.notified().await, "ok: text");
    patiently(waiting).await.unwrap();
    let kept = store(&directory);
    assert_eq!(kept.list()[0].granted, asked());
    assert!(kept.list()[0].subject.content_hash.starts_with("sha256:"));
    drop(fixture);

    let fixture = Fixture::with(&["reach"], setup(&directory, &project)).await;
    assert_eq!(reach(&fixture, "read docs/a.md").await, "ok: text");
    assert!(fixture.ui.dialogs.is_empty());
    store(&directory).revoke("reach", None).unwrap();
    fixture.host.review_permissions();
    fixture.ui.dialogs.next().await.answer(NO);
    assert_eq!(
        reach(&fixture, "read docs/a.md").await,
        "denied: fs-read:docs/a.md is not granted; grant what it asks for with: wharf extension grant reach"
    );
    assert_eq!(store(&directory).list()[0].denied, asked());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dismissed_question_counts_for_this_run_only() {
    let (directory, project) = directory();
    let fixture = Fixture::with(&["reach"], setup(&directory, &project)).await;
    fixture.ui.dialogs.next().await.answer(DialogOutcome::Cancelled);
    assert!(reach(&fixture, "read docs/a.md").await.starts_with("denied: "));
    assert!(store(&directory).list().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_front_end_one_report_says_how_to_grant() {
    let (directory, project) = directory();
    let fixture =
        Fixture::with(&["reach"], Setup { no_ui: true, ..setup(&directory, &project) }).await;
    let report = fixture.report().await;
    assert!(report.starts_with("permissions: nobody has decided"), "{report}");
    assert!(report.contains("wharf extension grant reach"), "{report}");
    fixture.command("reach read docs/a.md").await;
    assert!(fixture.reports.0.is_empty());
    assert!(store(&directory).list().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn broken_grants_grant_nothing_and_stay_as_they_are() {
    let (directory, project) = directory();
    let file = directory.path().join("agent/grants.json");
    fs::write(&file, "{broken").unwrap();
    let fixture = Fixture::with(&["reach"], setup(&directory, &project)).await;
    assert!(fixture.report().await.contains("nothing is granted"));
    assert!(reach(&fixture, "read docs/a.md").await.starts_with("denied: "));
    assert!(fixture.ui.dialogs.is_empty() && fixture.reports.0.is_empty());
    assert_eq!(fs::read_to_string(file).unwrap(), "{broken");
}

#[tokio::test(flavor = "multi_thread")]
async fn files_are_reached_through_a_component() {
    let write = Permission::FsWrite("out/**".into());
    let fixture = granted(vec![read("docs/**"), write, Permission::Env("PATH".into())], None).await;
    for (words, expected) in [
        ("read docs/a.md", "ok: text"),
        ("stat docs/a.md", "ok: 4"),
        ("list docs", "ok: a.md"),
        ("read docs/none", "not-found: docs/none is not there"),
        ("write out/x/y new", "ok: "),
        ("remove out/x/y", "ok: "),
        (
            "read docs/../secret",
            "denied: fs-read:secret is not granted; grant what it asks for with: wharf extension grant reach",
        ),
        (
            "read /etc/passwd",
            "denied: /etc/passwd leads out of the project, the home and the agent directory, where nothing can be granted",
        ),
        (
            "read @agent/auth.json",
            "denied: @agent/auth.json belongs to what extensions cannot reach, whatever is granted",
        ),
        (
            "env HOME",
            "denied: env:HOME is not granted; grant what it asks for with: wharf extension grant reach",
        ),
        ("env A=B", "invalid: name is none of a variable"),
        ("data-write /data/n.txt hello", "ok: "),
        ("data-read /data/n.txt", "ok: hello"),
    ] {
        assert_eq!(reach(&fixture, words).await, expected, "{words}");
    }
    assert!(reach(&fixture, "env PATH").await.starts_with("ok: "));
    for path in ["/data/../../auth.json", "/etc/passwd", "docs/a.md"] {
        let shown = reach(&fixture, &format!("data-read {path}")).await;
        assert!(shown.starts_with("failed: "), "{path}: {shown}");
    }
    let data = fixture.directory.path().join("agent/extension-data/reach");
    assert_eq!(fs::read_to_string(data.join("n.txt")).unwrap(), "hello");
    use std::os::unix::fs::PermissionsExt as _;
    assert_eq!(fs::metadata(data).unwrap().permissions().mode() & 0o777, 0o700);
}

/// `/to/STATUS/URL` sends on to the URL; `/large` has 200,001 bytes; else it is `page`.
fn web(request: &HttpRequest) -> FakeResponse {
    let (_, path) = request.url.split_once("://").unwrap().1.split_once('/').unwrap();
    if let Some((status, target)) = path.strip_prefix("to/").and_then(|to| to.split_once('/')) {
        return (status.parse().unwrap(), vec![("Location", target.to_owned())], Vec::new());
    }
    match path {
        "large" => (200, Vec::new(), vec![vec![b'x'; 200_000], Vec::new(), vec![b'x']]),
        "loop" => (302, vec![("location", "/loop".into())], Vec::new()),
        _ => (200, Vec::new(), vec![b"page".to_vec()]),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_hop_of_a_request_is_judged() {
    let mut fixture = granted(vec![net("a.org"), net("b.org:8080")], Some(web)).await;
    for (words, expected, sent) in [
        (
            "fetch GET https://A.org/x#f",
            "ok: 200 https://a.org/x page",
            &["GET https://a.org/x 0"][..],
        ),
        (
            "fetch POST https://a.org/to/307/http://b.org:8080/y Authorization:s X-A:1 Content-Type:t",
            "ok: 200 http://b.org:8080/y page",
            &[
                "POST https://a.org/to/307/http://b.org:8080/y Authorization=s X-A=1 Content-Type=t 4",
                "POST http://b.org:8080/y X-A=1 Content-Type=t 4",
            ],
        ),
    ] {
        assert_eq!(reach(&fixture, words).await, expected, "{words}");
        for request in sent {
            assert_eq!(fixture.api_calls.recv().await.as_deref(), Some(*request));
        }
    }
    assert_eq!(
        reach(&fixture, "fetch POST https://a.org/to/303//z cookie:s content-type:t").await,
        "ok: 200 https://a.org/z page"
    );
    fixture.api_calls.recv().await.unwrap();
    let second = fixture.api_calls.recv().await.unwrap();
    assert_eq!(second, "GET https://a.org/z cookie=s 0");
    for (words, expected) in [
        (
            "fetch GET https://a.org/to/302/https://evil.com/x",
            "denied: net:evil.com is not granted",
        ),
        ("fetch GET https://a.org/to/302/https://b.org/x", "denied: net:b.org is not granted"),
        ("fetch GET https://a.org/to/302/https://a.org@evil.com/", "denied: a redirect to"),
        ("fetch GET https://a.org/to/301/file:///etc/passwd", "denied: a redirect to"),
        ("fetch GET https://a.org/loop", "failed: there are more than 10 redirects"),
        ("fetch GET https://a.org:444/", "denied: net:a.org:444 is not granted"),
        ("fetch GET http://a.org.evil.com/", "denied: net:a.org.evil.com is not granted"),
        ("fetch GET https://u@a.org/", "invalid: url has a user"),
        ("fetch GET file:///etc/passwd", "invalid: url has the scheme"),
        ("fetch CONNECT https://a.org/", "invalid: method"),
        ("fetch GET https://a.org/ Host:evil.com", "invalid: headers: Host is the host's own"),
        ("fetch GET https://a.org/ A:b\nHost:c", "invalid: headers: the value of A"),
    ] {
        let shown = reach(&fixture, words).await;
        assert!(shown.starts_with(expected), "{words}: {shown}");
    }
    assert_eq!(reach(&fixture, "size https://a.org/large").await, "ok: 200001 65536");
    for _ in 0..16 {
        assert_eq!(reach(&fixture, "keep https://a.org/x").await, "ok: ");
    }
    assert!(reach(&fixture, "keep https://a.org/x").await.starts_with("failed: 16 responses"));
}

#[tokio::test(flavor = "multi_thread")]
async fn programs_run_as_they_were_granted() {
    let rules = vec![exec(&["ls", "-l", "*"]), exec(&["/bin/sh"]), read("~/x"), net("*")];
    let mut fixture = granted(rules, None).await;
    let project = fixture.directory.path().canonicalize().unwrap().join("project");
    let shown = reach(&fixture, "exec ls -l $(id);reboot").await;
    assert!(shown.starts_with("ok: Some(0) ") && shown.contains("PATH"), "{shown}");
    let call = fixture.api_calls.recv().await.unwrap();
    assert_eq!(call, format!(r#"ls ["-l", "$(id);reboot"] in {}"#, project.display()));
    assert!(reach(&fixture, "exec-in docs /bin/sh").await.starts_with("ok: "));
    let call = fixture.api_calls.recv().await.unwrap();
    assert_eq!(call, format!("sh [] in {}", project.join("docs").display()));
    for (words, expected) in [
        (
            "exec ls",
            "denied: exec:ls is not granted; grant what it asks for with: wharf extension grant reach",
        ),
        (
            "exec sh -c id",
            "denied: exec:sh -c id is not granted; grant what it asks for with: wharf extension grant reach",
        ),
        ("exec ./ls -l x", "invalid: the program is a name, or an absolute path"),
        ("exec-in docs/a.md /bin/sh", "invalid: cwd docs/a.md is no folder"),
        (
            "exec-in /etc /bin/sh",
            "denied: /etc leads out of the project, the home and the agent directory, where nothing can be granted",
        ),
    ] {
        assert_eq!(reach(&fixture, words).await, expected, "{words}");
    }
    assert!(fixture.api_calls.try_recv().is_err());
}
