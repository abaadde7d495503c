//! Ways out of what is granted, each of which must stay closed.
#![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use tempfile::TempDir;

use super::*;
use crate::places::Places;

struct Setup {
    root: TempDir,
    access: Arc<Access>,
}

/// `project` in `home`, `home/agent`, and a secret outside and in the project.
fn setup() -> Setup {
    let root = tempfile::tempdir().unwrap();
    for (file, text) in [
        ("outside/secret", "SECRET"),
        ("home/secret", "SECRET"),
        ("home/notes/n.md", "note"),
        ("home/agent/auth.json", "SECRET"),
        ("home/agent/models.json", "SECRET"),
        ("home/agent/settings.json", "settings"),
        ("home/agent/skills/s.md", "skill"),
        ("home/agent/extensions/x.wasm", "SECRET"),
        ("home/project/docs/a.md", "text"),
        ("home/project/docs/deep/b.md", "deep"),
        ("home/project/docs2/a.md", "SECRET"),
        ("home/project/secret", "SECRET"),
    ] {
        let path = root.path().join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    let home = root.path().join("home");
    let places = Places::new(home.join("project"), Some(home.clone()), home.join("agent"));
    let access = Access::new("x".into(), "sha256:0".into(), Arc::new(places));
    Setup { root, access }
}

impl Setup {
    fn path(&self, path: &str) -> PathBuf {
        self.root.path().join(path)
    }

    fn with<T>(
        &self,
        permissions: &[Permission],
        path: &str,
        work: impl FnOnce(&Job<'_>) -> Result<T, AccessError>,
    ) -> Result<T, String> {
        let rules = Rules::new(permissions);
        let result = work(&Job { access: &self.access, rules: &rules, path });
        result.map_err(|error| match error {
            AccessError::Denied(_) => "denied".to_owned(),
            AccessError::NotFound(_) => "not-found".to_owned(),
            AccessError::Invalid(_) => "invalid".to_owned(),
            AccessError::Failed(_) => "failed".to_owned(),
            other => format!("{other:?}"),
        })
    }

    fn read(&self, permissions: &[Permission], path: &str) -> Result<String, String> {
        self.with(permissions, path, read).map(|bytes| String::from_utf8(bytes).unwrap())
    }

    fn write(&self, permissions: &[Permission], path: &str) -> Result<(), String> {
        self.with(permissions, path, |job| write(job, b"new"))
    }
}

fn reading(pattern: &str) -> [Permission; 1] {
    [Permission::FsRead(pattern.into())]
}

fn writing(pattern: &str) -> [Permission; 1] {
    [Permission::FsWrite(pattern.into())]
}

fn err<T>(kind: &str) -> Result<T, String> {
    Err(kind.to_owned())
}

#[test]
fn only_what_is_granted_is_read_however_it_is_spelled() {
    let setup = setup();
    let granted = reading("docs/**");
    let absolute = setup.path("home/project/docs/a.md");
    for path in
        ["docs/a.md", "docs//a.md", "./docs/./a.md", "docs/deep/../a.md", "~/project/docs/a.md"]
    {
        assert_eq!(setup.read(&granted, path), Ok("text".into()), "{path}");
    }
    assert_eq!(setup.read(&granted, absolute.to_str().unwrap()), Ok("text".into()));
    let secret = setup.path("outside/secret");
    for path in [
        "secret",
        "docs/../secret",
        "docs/../docs2/a.md",
        "docs2/a.md",
        "docs/none/../../secret",
        "docs/../../secret",
        "../../outside/secret",
        "~/secret",
        "~/../outside/secret",
        "@agent/auth.json",
        "/etc/passwd",
        secret.to_str().unwrap(),
        "docs",
    ] {
        assert_eq!(setup.read(&granted, path), err("denied"), "{path}");
    }
    assert_eq!(setup.read(&granted, "docs/none"), err("not-found"));
    // Whether a file that is not granted is there cannot be told.
    assert_eq!(setup.read(&granted, "none"), err("denied"));
    assert_eq!(setup.read(&granted, "/none/../x"), err("denied"));
    for path in ["", "docs/\0"] {
        assert_eq!(setup.read(&granted, path), err("invalid"), "{path}");
    }
    assert_eq!(setup.read(&reading("~/notes/*.md"), "~/notes/n.md"), Ok("note".into()));
    assert_eq!(setup.read(&reading("@agent/skills/**"), "@agent/skills/s.md"), Ok("skill".into()));
    assert_eq!(setup.read(&reading("**"), "docs"), err("failed"));
}

#[test]
fn links_are_judged_by_where_they_lead() {
    let setup = setup();
    let link = |target: &str, name: &str| symlink(setup.path(target), setup.path(name)).unwrap();
    link("outside", "home/project/docs/out");
    link("outside/secret", "home/project/docs/out-file");
    link("home/project/secret", "home/project/docs/in-file");
    link("home/project/docs/a.md", "home/project/fine");
    link("outside/none", "home/project/docs/dangling");
    symlink("../../../outside/secret", setup.path("home/project/docs/relative")).unwrap();
    symlink("loop", setup.path("home/project/docs/loop")).unwrap();
    let granted = reading("docs/**");
    for path in
        ["docs/out/secret", "docs/out-file", "docs/in-file", "docs/relative", "docs/out/none"]
    {
        assert_eq!(setup.read(&granted, path), err("denied"), "{path}");
        assert_eq!(setup.with(&granted, path, stat).err(), Some("denied".into()), "{path}");
    }
    assert_eq!(setup.with(&granted, "docs/out", list).err(), Some("denied".into()));
    assert_eq!(setup.read(&granted, "fine"), Ok("text".into()));
    assert_eq!(setup.read(&granted, "docs/loop"), err("failed"));

    let granted = writing("docs/**");
    for path in ["docs/out/new", "docs/out-file", "docs/in-file", "docs/out/a/b"] {
        assert_eq!(setup.write(&granted, path), err("denied"), "{path}");
    }
    assert_eq!(setup.write(&granted, "docs/dangling"), err("failed"));
    assert_eq!(setup.with(&granted, "docs/out/secret", remove), err("denied"));
    assert!(!setup.path("outside/none").exists() && !setup.path("outside/new").exists());
    assert_eq!(fs::read_to_string(setup.path("outside/secret")).unwrap(), "SECRET");
    // A link that is removed takes nothing with it.
    assert_eq!(setup.with(&granted, "docs/out-file", remove), Ok(()));
    assert!(setup.path("outside/secret").exists());
}

#[test]
fn the_agent_directory_keeps_its_own_whatever_is_granted() {
    let setup = setup();
    let all: Vec<_> = ["**", "~/**", "@agent/**"]
        .into_iter()
        .flat_map(|p| [reading(p), writing(p)])
        .flatten()
        .collect();
    symlink(setup.path("home/agent"), setup.path("home/project/agent-link")).unwrap();
    symlink(setup.path("home/agent/auth.json"), setup.path("home/project/key")).unwrap();
    let absolute = setup.path("home/agent/auth.json");
    for path in [
        "@agent/auth.json",
        "~/agent/auth.json",
        "agent-link/auth.json",
        "key",
        absolute.to_str().unwrap(),
        "@agent/AUTH.json",
        "@agent/skills/../auth.json",
        "@agent/models.json",
        "@agent/extensions/x.wasm",
        "@agent/extension-data/other/x",
        "@agent/grants.json",
        "@agent/trusted.json",
        "@agent/cache/x",
        "@agent/.grants-1",
    ] {
        assert_eq!(setup.read(&all, path), err("denied"), "{path}");
        assert_eq!(setup.write(&all, path), err("denied"), "{path}");
    }
    assert_eq!(setup.read(&all, "~/agent/settings.json"), Ok("settings".into()));
    for path in ["@agent/settings.json", "@agent/sessions/x.jsonl", "~/agent/subagent-sessions/x"] {
        assert_eq!(setup.write(&all, path), err("denied"), "{path}");
        assert_eq!(setup.with(&all, path, remove), err("denied"), "{path}");
    }
    assert_eq!(setup.write(&all, "@agent/skills/new/s.md"), Ok(()));
    let names = setup.with(&all, "@agent", list).unwrap();
    let names: Vec<_> = names.iter().map(|entry| entry.name.as_str()).collect();
    assert_eq!(names, ["settings.json", "skills"]);

    // A key that is kept elsewhere is a key all the same.
    fs::rename(setup.path("home/agent/auth.json"), setup.path("home/notes/key")).unwrap();
    symlink(setup.path("home/notes/key"), setup.path("home/agent/auth.json")).unwrap();
    assert_eq!(setup.read(&all, "~/notes/key"), err("denied"));
}

#[test]
fn writing_makes_folders_and_keeps_the_mode() {
    let setup = setup();
    let granted = writing("docs/**");
    assert_eq!(setup.write(&granted, "docs/x/y/z.md"), Ok(()));
    assert_eq!(fs::read_to_string(setup.path("home/project/docs/x/y/z.md")).unwrap(), "new");
    let file = setup.path("home/project/docs/a.md");
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    fs::set_permissions(&file, fs::Permissions::from_mode(0o740)).unwrap();
    fs::hard_link(&file, setup.path("outside/other-name")).unwrap();
    assert_eq!(setup.write(&granted, "docs/a.md"), Ok(()));
    assert_eq!((fs::read_to_string(&file).unwrap().as_str(), mode(&file)), ("new", 0o740));
    assert_eq!(fs::read_to_string(setup.path("outside/other-name")).unwrap(), "text");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o440)).unwrap();
    assert_eq!(setup.write(&granted, "docs/a.md"), err("failed"));
    assert_eq!(setup.write(&granted, "docs/deep"), err("failed"));
    assert_eq!(setup.write(&granted, "other.md"), err("denied"));
    assert_eq!(setup.write(&granted, "docs2/x"), err("denied"));
    assert_eq!(setup.write(&reading("docs/**"), "docs/b.md"), err("denied"));
    assert_eq!(setup.with(&granted, "docs/deep", remove), err("failed"), "it is not empty");
    assert_eq!(setup.with(&granted, "docs/x/y/z.md", remove), Ok(()));
    assert_eq!(setup.with(&granted, "docs/x/y", remove), Ok(()));
    let left: Vec<_> = fs::read_dir(setup.path("home/project/docs"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.starts_with(".wharf"))
        .collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn a_listing_shows_what_is_granted_and_what_leads_to_it() {
    let setup = setup();
    fs::write(setup.path("home/project/docs/c.txt"), "").unwrap();
    let list_of = |pattern: &str, folder: &str| {
        let entries = setup.with(&reading(pattern), folder, list)?;
        Ok::<_, String>(entries.into_iter().map(|entry| entry.name).collect::<Vec<_>>().join(" "))
    };
    assert_eq!(list_of("docs/**", "docs"), Ok("a.md c.txt deep".into()));
    assert_eq!(list_of("docs/*.md", "docs"), Ok("a.md".into()));
    assert_eq!(list_of("docs/**/b.md", "docs"), Ok("deep".into()));
    assert_eq!(list_of("docs/**", "."), Ok("docs".into()));
    assert_eq!(list_of("docs/**", "docs2"), err("denied"));
    assert_eq!(list_of("docs/**", "~"), err("denied"));
    assert_eq!(list_of("docs/**", "docs/a.md"), err("failed"));
    assert!(setup.with(&reading("docs/**"), "docs", stat).is_ok());
    assert_eq!(setup.with(&reading("docs/*/x"), "docs/a.md", stat).err(), Some("denied".into()));
}

#[test]
fn a_pipe_is_refused_without_waiting_for_it() {
    let setup = setup();
    let pipe = setup.path("home/project/docs/pipe");
    let mode = rustix::fs::Mode::from_raw_mode(0o600);
    rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, mode).unwrap();
    assert_eq!(setup.read(&reading("docs/**"), "docs/pipe"), err("failed"));
    assert_eq!(setup.write(&writing("docs/**"), "docs/pipe"), err("failed"));
    assert_eq!(setup.with(&writing("docs/**"), "docs/pipe", remove), err("failed"));
}

#[test]
fn a_file_over_the_limit_is_refused() {
    let setup = setup();
    let file = fs::File::create(setup.path("home/project/docs/large")).unwrap();
    file.set_len(MAX_FILE_BYTES as u64).unwrap();
    assert!(setup.read(&reading("docs/**"), "docs/large").is_ok());
    file.set_len(MAX_FILE_BYTES as u64 + 1).unwrap();
    assert_eq!(setup.read(&reading("docs/**"), "docs/large"), err("failed"));
}

#[test]
fn a_link_that_is_swapped_in_between_is_not_followed() {
    let setup = setup();
    let docs = setup.path("home/project/docs");
    let flip = |good: &Path, link: &Path, name: &Path| {
        // The name is the real thing and the link in turn. Writing may make a folder of
        // that name while there is none.
        if fs::rename(good, name).is_err() {
            let _ = fs::remove_dir_all(name);
            return;
        }
        fs::rename(name, good).unwrap();
        if symlink(link, name).is_ok() {
            fs::remove_file(name).unwrap();
        }
    };
    fs::create_dir(docs.join("good")).unwrap();
    fs::write(docs.join("good/secret"), "fine").unwrap();
    fs::write(docs.join("good-file"), "fine").unwrap();
    let done = AtomicBool::new(false);
    let mut seen = [0_u32; 2];
    std::thread::scope(|scope| {
        let (docs, done) = (&docs, &done);
        let outside = setup.path("outside");
        scope.spawn(move || {
            while !done.load(SeqCst) {
                flip(&docs.join("good"), &outside, &docs.join("folder"));
                flip(&docs.join("good-file"), &outside.join("secret"), &docs.join("file"));
            }
        });
        for _ in 0..3_000 {
            for path in ["docs/folder/secret", "docs/file"] {
                match setup.read(&reading("docs/**"), path) {
                    Ok(text) => {
                        seen[0] += 1;
                        if text != "fine" {
                            done.store(true, SeqCst);
                            panic!("{text} was read through {path}");
                        }
                    }
                    Err(_) => seen[1] += 1,
                }
            }
            // Neither file of the outside changes, nor does one come to be there.
            let _ = setup.write(&writing("docs/**"), "docs/folder/new");
        }
        done.store(true, SeqCst);
    });
    assert_eq!(seen[0] + seen[1], 6_000);
    assert!(!setup.path("outside/new").exists());
    assert_eq!(fs::read_to_string(setup.path("outside/secret")).unwrap(), "SECRET");
}
