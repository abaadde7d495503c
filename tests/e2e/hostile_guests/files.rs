//! Ways out of the folders that were granted: `docs/**`, `~/notes/**` and `@agent/**`.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::thread::{self, JoinHandle};

use serde_json::{Value, json};
use wharf_tests::{Env, Wharf};

use super::{
    HOST_MIB, assert_ends, assert_memory, assert_refused, assert_served, not_granted, outcome,
    start, with_limits,
};

/// In every file that must not be seen or changed.
const SECRET: &str = "nobody may read this";
const FINE: &str = "anybody may read this";
/// Calls while a link is swapped.
const TRIES: u32 = 2_000;

/// Not below the project, the home or the agent directory.
fn outside(env: &Env) -> PathBuf {
    env.project().parent().unwrap().join("outside")
}

fn secret(path: PathBuf) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, SECRET).unwrap();
}

/// Secrets everywhere, and links to them from within.
fn place() -> Env {
    let env = with_limits(&json!({}));
    let (project, outside) = (env.project(), outside(&env));
    let docs = project.join("docs");
    env.write("docs/a.txt", FINE);
    fs::create_dir_all(env.home().join("notes")).unwrap();
    fs::write(env.home().join("notes/n.txt"), FINE).unwrap();
    env.write_agent("skills/s.md", FINE);
    for path in ["secret.txt", "docs2/secret.txt", "docs2/a.txt", "doc/a.txt", "~root/secret.txt"] {
        secret(project.join(path));
    }
    secret(outside.join("secret.txt"));
    secret(env.home().join("secret.txt"));
    secret(env.home().join("notes2/secret.txt"));
    env.write_agent("auth.json", json!({"x": {"type": "api_key", "key": SECRET}}).to_string());
    assert!(env.command().arg("trust").status().unwrap().success());
    secret(env.agent_dir().join("extension-data/hello/secret.txt"));
    env.write_agent("models.json", json!({"providers": {}, "comment": SECRET}).to_string());
    for (target, link) in [
        (outside.clone(), "out"),
        (outside.join("secret.txt"), "out.txt"),
        (PathBuf::from(".."), "up"),
        (PathBuf::from("../docs2"), "beside"),
        (PathBuf::from("loop"), "loop"),
        (outside.join("new.txt"), "dangling"),
        (PathBuf::from("a.txt"), "fine"),
        (env.agent_dir().join("auth.json"), "keys"),
        (env.agent_dir(), "agent"),
        (PathBuf::from("/proc/self/environ"), "environ"),
    ] {
        symlink(target, docs.join(link)).unwrap();
    }
    env
}

/// Every secret is still there, and nothing is beside it.
fn assert_untouched(env: &Env) {
    let outside = outside(env);
    let names: Vec<_> = fs::read_dir(&outside).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(names, ["secret.txt"]);
    let all = [
        outside.join("secret.txt"),
        env.home().join("secret.txt"),
        env.project().join("secret.txt"),
        env.project().join("docs2/secret.txt"),
        env.agent_dir().join("extension-data/hello/secret.txt"),
    ];
    for path in all {
        assert_eq!(fs::read_to_string(&path).unwrap(), SECRET, "{}", path.display());
    }
}

fn file(wharf: &mut Wharf, call: &str, path: &str) -> Value {
    let outcome = outcome(wharf, &format!("/file {}", json!({"call": call, "path": path})));
    assert!(!outcome.to_string().contains(SECRET), "{call} {path}: {outcome}");
    outcome
}

#[test]
fn no_spelling_of_a_path_leads_out() {
    let env = place();
    let mut wharf = start(&env, "escapes");
    let outside = outside(&env);
    let shown = |path: &Path| path.display().to_string();
    let absolute = [
        shown(&outside.join("secret.txt")),
        shown(&env.project().join("secret.txt")),
        shown(&env.project().join("docs/../secret.txt")),
        shown(&env.home().join("secret.txt")),
    ];
    let spellings = [
        "secret.txt",
        "./secret.txt",
        "../outside/secret.txt",
        "docs/../secret.txt",
        "docs/../../outside/secret.txt",
        "docs/nothing/../../secret.txt",
        "docs/a.txt/../../secret.txt",
        "docs/./.././secret.txt",
        "docs//..//secret.txt",
        "docs/out/secret.txt",
        "docs/up/secret.txt",
        "docs/up/up/secret.txt",
        "docs/beside/secret.txt",
        "docs2/secret.txt",
        "docs2/a.txt",
        "doc/a.txt",
        "docs/../docs2/secret.txt",
        "docs\\..\\secret.txt",
        "docs%2f..%2fsecret.txt",
        "Docs/a.txt",
        "~/secret.txt",
        "~/notes/../secret.txt",
        "~/notes2/secret.txt",
        "~//secret.txt",
        "~root/secret.txt",
        "@agent/../outside/secret.txt",
        "@agent/../project/secret.txt",
        "@agents/secret.txt",
        "/etc/passwd",
        "//etc/passwd",
        "/proc/self/environ",
        "/dev/zero",
    ];
    for path in spellings.into_iter().chain(absolute.iter().map(String::as_str)) {
        for call in ["read", "stat", "write", "remove"] {
            let outcome = file(&mut wharf, call, path);
            assert_refused(&outcome, "denied", "", &format!("{call} {path}"));
        }
    }
    // Those are followed, but a link may be removed as such.
    for path in ["docs/out.txt", "docs/environ", "docs/out", "docs/beside"] {
        for call in ["read", "stat", "list", "write"] {
            let outcome = file(&mut wharf, call, path);
            assert_refused(&outcome, "denied", "", &format!("{call} {path}"));
        }
    }
    for (path, permission) in [
        ("secret.txt", "fs-read:secret.txt"),
        ("docs/up/secret.txt", "fs-read:secret.txt"),
        ("docs/beside/a.txt", "fs-read:docs2/a.txt"),
        ("~/notes/../secret.txt", "fs-read:~/secret.txt"),
    ] {
        let outcome = file(&mut wharf, "read", path);
        assert_refused(&outcome, "denied", &not_granted("escapes", permission), path);
    }
    let outcome = file(&mut wharf, "write", "docs/../secret.txt");
    let text = not_granted("escapes", "fs-write:secret.txt");
    assert_refused(&outcome, "denied", &text, "write");
    for path in ["", "docs/a\0.txt"] {
        assert_refused(&file(&mut wharf, "read", path), "invalid", "path", path);
    }
    let outcome = file(&mut wharf, "read", &"docs/".repeat(2_000));
    assert_refused(&outcome, "invalid", "path", "a long path");
    // What is neither in nor out.
    for call in ["read", "write", "stat"] {
        for path in ["docs/loop", "docs/loop/a.txt"] {
            let outcome = file(&mut wharf, call, path);
            assert!(outcome["error"].is_object(), "{call} {path}: {outcome}");
        }
    }
    let outcome = file(&mut wharf, "write", "docs/dangling");
    assert!(outcome["error"].is_object(), "{outcome}");
    assert_untouched(&env);
    assert_served(&mut wharf, "Ann");
    assert_memory(&wharf, HOST_MIB);
    assert_ends(wharf);
}

#[test]
fn what_was_granted_works_and_lists_nothing_else() {
    let env = place();
    let mut wharf = start(&env, "escapes");
    for path in ["docs/a.txt", "docs/./a.txt", "docs/fine", "docs/../docs/a.txt", "~/notes/n.txt"] {
        assert_eq!(file(&mut wharf, "read", path)["ok"], FINE, "{path}");
    }
    let absolute = env.project().join("docs/a.txt").display().to_string();
    assert_eq!(file(&mut wharf, "read", &absolute)["ok"], FINE);
    assert_eq!(file(&mut wharf, "read", "@agent/skills/s.md")["ok"], FINE);
    assert_eq!(file(&mut wharf, "write", "docs/new/deep.txt")["ok"], "written");
    assert_eq!(fs::read_to_string(env.project().join("docs/new/deep.txt")).unwrap(), "by escapes");
    // The link goes, and what it leads to stays.
    assert_eq!(file(&mut wharf, "remove", "docs/out.txt")["ok"], "removed");
    assert!(!env.project().join("docs/out.txt").is_symlink());
    assert_eq!(file(&mut wharf, "remove", "docs/out")["ok"], "removed");

    let listed = |wharf: &mut Wharf, path: &str| -> Vec<String> {
        let outcome = file(wharf, "list", path);
        let names = outcome["ok"].as_str().unwrap_or_else(|| panic!("{path}: {outcome}"));
        names.split_whitespace().map(str::to_owned).collect()
    };
    assert!(listed(&mut wharf, "docs").contains(&"a.txt".to_owned()));
    assert_eq!(listed(&mut wharf, "."), ["docs"]);
    assert_eq!(listed(&mut wharf, "~"), ["notes"]);
    let agent = listed(&mut wharf, "@agent");
    assert!(agent.contains(&"skills".to_owned()), "{agent:?}");
    for hidden in ["auth.json", "grants.json", "trusted.json", "extensions", "extension-data"] {
        assert!(!agent.contains(&hidden.to_owned()), "{hidden} in {agent:?}");
    }
    for path in ["..", "/", "docs2", "docs/..//docs2", "docs/beside", "~/notes2"] {
        assert_refused(&file(&mut wharf, "list", path), "denied", "", path);
    }
    assert_untouched(&env);
    assert_served(&mut wharf, "Bea");
    assert_ends(wharf);
}

/// Whatever is granted: keys, grants, trust, settings, installed extensions, others' data.
#[test]
fn the_agent_directory_keeps_its_own() {
    let env = place();
    let mut wharf = start(&env, "escapes");
    let own = || {
        ["auth.json", "trusted.json", "grants.json", "settings.json", "models.json"]
            .map(|name| fs::read_to_string(env.agent_dir().join(name)).unwrap())
    };
    let before = own();
    let absolute = env.agent_dir().join("auth.json").display().to_string();
    let closed = [
        "@agent/auth.json",
        "@agent/./auth.json",
        "@agent//auth.json",
        "@agent/skills/../auth.json",
        "@agent/../agent/auth.json",
        "@agent/grants.json",
        "@agent/trusted.json",
        "@agent/models.json",
        "@agent/extensions/x/extension.wasm",
        "@agent/extensions/new/extension.wasm",
        "@agent/extension-data/hello/secret.txt",
        "docs/keys",
        "docs/agent/auth.json",
        &absolute,
    ];
    for path in closed {
        for call in ["read", "stat", "write"] {
            let outcome = file(&mut wharf, call, path);
            assert_refused(&outcome, "denied", "whatever is granted", &format!("{call} {path}"));
        }
    }
    for path in closed.into_iter().filter(|path| *path != "docs/keys") {
        let outcome = file(&mut wharf, "remove", path);
        assert_refused(&outcome, "denied", "whatever is granted", path);
    }
    for call in ["write", "remove"] {
        let outcome = file(&mut wharf, call, "@agent/settings.json");
        assert_refused(&outcome, "denied", "whatever is granted", call);
    }
    assert_untouched(&env);
    assert_eq!(own(), before);
    assert!(!env.agent_dir().join("extensions/new").exists());
    assert_served(&mut wharf, "Cleo");
    assert_ends(wharf);
}

/// No file of a kind that never ends, or that waits for somebody, is opened.
#[test]
fn what_is_no_file_is_not_waited_for() {
    let env = place();
    let pipe = env.project().join("docs/pipe");
    let made = std::process::Command::new("mkfifo").arg(&pipe).status().unwrap();
    assert!(made.success());
    let socket = env.project().join("docs/socket");
    let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    let mut wharf = start(&env, "escapes");
    for path in ["docs/pipe", "docs/socket", "docs"] {
        for call in ["read", "write"] {
            let outcome = file(&mut wharf, call, path);
            assert!(outcome["error"].is_object(), "{call} {path}: {outcome}");
        }
    }
    assert!(pipe.exists() && socket.exists());
    // A file without end has one here.
    let large = fs::File::create(env.project().join("docs/large")).unwrap();
    large.set_len(1 << 40).unwrap();
    let outcome = file(&mut wharf, "read", "docs/large");
    assert_refused(&outcome, "failed", "docs/large has more than 16777216 bytes", "a large file");
    assert_served(&mut wharf, "Dana");
    assert_memory(&wharf, HOST_MIB);
    assert_ends(wharf);
}

/// Goes on until it is dropped.
struct Swapper {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Swapper {
    fn start(mut swap: impl FnMut() + Send + 'static) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let thread = thread::spawn({
            let stop = Arc::clone(&stop);
            move || {
                while !stop.load(SeqCst) {
                    swap();
                }
            }
        });
        Self { stop, thread: Some(thread) }
    }
}

impl Drop for Swapper {
    fn drop(&mut self) {
        self.stop.store(true, SeqCst);
        let ended = self.thread.take().unwrap().join();
        assert!(ended.is_ok() || thread::panicking());
    }
}

/// The kinds of outcomes that many calls had.
fn outcomes(wharf: &mut Wharf, call: &str, path: &str) -> Vec<String> {
    let args = json!({"call": call, "path": path, "times": TRIES});
    let outcome = outcome(wharf, &format!("/file {args}"));
    let counts = outcome["ok"].as_object().unwrap_or_else(|| panic!("{outcome}"));
    let sum: u64 = counts.values().map(|count| count.as_u64().unwrap()).sum();
    assert_eq!(sum, u64::from(TRIES), "{outcome}");
    counts.keys().cloned().collect()
}

#[track_caller]
fn assert_only(outcomes: &[String], fine: &[&str]) {
    for outcome in outcomes {
        let is_fine = fine.iter().any(|fine| outcome == fine);
        assert!(
            is_fine || ["denied", "failed", "not-found"].contains(&outcome.as_str()),
            "{outcome}"
        );
    }
}

/// A file that is a link to the outside at every other moment.
#[test]
fn a_swapped_link_is_never_followed() {
    let env = place();
    let mut wharf = start(&env, "escapes");
    let (docs, secret) = (env.project().join("docs"), outside(&env).join("secret.txt"));
    let link_size = secret.as_os_str().len();
    let target = docs.join("swapped.txt");
    let swapper = Swapper::start({
        let (file, link) = (docs.join("file.tmp"), docs.join("link.tmp"));
        move || {
            fs::write(&file, FINE).unwrap();
            fs::rename(&file, &target).unwrap();
            // Each takes the other's place at once.
            let _ = fs::remove_file(&link);
            symlink(&secret, &link).unwrap();
            fs::rename(&link, &target).unwrap();
        }
    });
    assert_only(&outcomes(&mut wharf, "read", "docs/swapped.txt"), &[FINE, "by escapes", ""]);
    // The link itself is in a granted folder, so its own size may be told; that of what it
    // leads to may not.
    let own = format!("Other of {}", link_size);
    let size = format!("File of {}", FINE.len());
    let fine = [&*size, "File of 0", "File of 10", &own];
    assert_only(&outcomes(&mut wharf, "stat", "docs/swapped.txt"), &fine);
    assert_only(&outcomes(&mut wharf, "write", "docs/swapped.txt"), &["written"]);
    assert_only(&outcomes(&mut wharf, "remove", "docs/swapped.txt"), &["removed"]);
    drop(swapper);
    assert_untouched(&env);
    assert_served(&mut wharf, "Eve");
    assert_memory(&wharf, HOST_MIB);
    assert_ends(wharf);
}

/// A folder on the way that is a link to the outside at every other moment.
#[test]
fn a_swapped_folder_is_never_followed() {
    let env = place();
    let mut wharf = start(&env, "escapes");
    let docs = env.project().join("docs");
    env.write("docs/folder/secret.txt", FINE);
    let swapper = Swapper::start({
        let (folder, aside) = (docs.join("folder"), env.project().join("aside"));
        let outside = outside(&env);
        move || {
            // A call may make the folder anew meanwhile; then it stays for a round.
            if fs::rename(&folder, &aside).is_ok() {
                if symlink(&outside, &folder).is_ok() {
                    fs::remove_file(&folder).unwrap();
                }
                let _ = fs::remove_dir_all(&folder);
                let _ = fs::rename(&aside, &folder);
            }
        }
    });
    let path = "docs/folder/secret.txt";
    assert_only(&outcomes(&mut wharf, "read", path), &[FINE]);
    // Names of the outside are the same ones here, so only the size tells.
    assert_only(&outcomes(&mut wharf, "stat", path), &[&format!("File of {}", FINE.len())]);
    assert_only(&outcomes(&mut wharf, "list", "docs/folder"), &["secret.txt", ""]);
    assert_only(&outcomes(&mut wharf, "write", path), &["written"]);
    assert_only(&outcomes(&mut wharf, "write", "docs/folder/new.txt"), &["written"]);
    assert_only(&outcomes(&mut wharf, "remove", path), &["removed"]);
    drop(swapper);
    assert_untouched(&env);
    assert_served(&mut wharf, "Fay");
    assert_memory(&wharf, HOST_MIB);
    assert_ends(wharf);
}
