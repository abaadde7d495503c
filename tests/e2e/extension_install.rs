//! `wharf extension install`, `remove` and `update`: every kind of source, what is refused,
//! and that nothing but the pinned content is loaded.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use tar::{Builder, EntryType, Header};
use wharf_tests::{Answer, Env, FileServer, guest, note};

fn component(name: &str) -> Vec<u8> {
    std::fs::read(guest(name)).unwrap()
}

/// The same component with another content: a custom section more.
fn variant(component: &[u8], text: &str) -> Vec<u8> {
    let mut bytes = component.to_vec();
    let name = b"variant";
    let size = u8::try_from(1 + name.len() + text.len()).unwrap();
    assert!(size < 0x80, "one byte of LEB128");
    bytes.extend([0, size, 7]);
    bytes.extend(name);
    bytes.extend(text.as_bytes());
    bytes
}

fn sha256(bytes: &[u8]) -> String {
    let digits: String = Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256:{digits}")
}

/// Runs `wharf extension ARGS`.
fn extension(env: &Env, args: &[&str]) -> Output {
    env.command().arg("extension").args(args).output().unwrap()
}

fn stdout(output: &Output) -> String {
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{told}");
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn stderr(output: &Output) -> String {
    assert_eq!(output.status.code(), Some(1), "{}", String::from_utf8_lossy(&output.stdout));
    String::from_utf8(output.stderr.clone()).unwrap()
}

#[track_caller]
fn has(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "no {part:?} in {text}");
    }
}

fn user_dir(env: &Env) -> PathBuf {
    env.agent_dir().join("extensions")
}

/// The entry of an id in `installed.json`.
fn entry(directory: &Path, id: &str) -> Value {
    let text = std::fs::read(directory.join("installed.json")).unwrap();
    let list: Value = serde_json::from_slice(&text).unwrap();
    assert_eq!(list["version"], 1);
    list["extensions"][id].clone()
}

fn placed(directory: &Path, id: &str) -> Vec<u8> {
    std::fs::read(directory.join(id).join("extension.wasm")).unwrap()
}

fn nothing_installed(env: &Env) {
    assert!(!user_dir(env).exists(), "something was installed");
}

/// Names of the extensions' commands in a run, and what was told of extensions.
fn loaded(env: &Env) -> (Vec<String>, Vec<String>) {
    let mut wharf = env.rpc(&["--trust-project"]);
    let data = wharf.data(json!({"type": "get_commands"}));
    let commands = data["commands"].as_array().unwrap();
    let names = commands.iter().map(|c| c["name"].as_str().unwrap().to_owned()).collect();
    let exit = wharf.finish();
    let errors = exit.rest.iter().filter(|line| line["type"] == "extension_error");
    (names, errors.map(|line| line["error"].as_str().unwrap().to_owned()).collect())
}

// ---- paths -------------------------------------------------------------------

#[test]
fn a_file_is_installed_pinned_loaded_and_removed() {
    let env = Env::new();
    let source = env.write("some.wasm", component("hello"));
    let hash = sha256(&component("hello"));
    let told = stdout(&extension(&env, &["install", "some.wasm"]));
    has(&told, &["installed hello ", &hash, source.to_str().unwrap()]);
    assert_eq!(placed(&user_dir(&env), "hello"), component("hello"));
    let entry = entry(&user_dir(&env), "hello");
    assert_eq!(entry["source"], source.to_str().unwrap());
    assert_eq!(entry["hash"], hash.as_str());
    assert_eq!(entry.get("resolved"), None);
    assert!(entry["installedAt"].as_str().unwrap().ends_with('Z'), "{entry}");
    assert!(!env.agent_dir().join("grants.json").exists(), "something was granted");
    assert_eq!(loaded(&env), (vec!["hello".to_owned()], vec![]));

    has(&stdout(&extension(&env, &["update"])), &["hello", "is up to date"]);
    has(&stdout(&extension(&env, &["remove", "hello"])), &["removed hello", "revoke hello"]);
    assert!(!user_dir(&env).join("hello").exists());
    assert_eq!(loaded(&env), (vec![], vec![]));
    has(&stderr(&extension(&env, &["remove", "hello"])), &["hello is not installed"]);
    has(&stdout(&extension(&env, &["update"])), &["nothing is installed"]);
}

#[test]
fn a_folder_is_installed_into_a_project_which_stays_untrusted() {
    let env = Env::new();
    env.write("made/extension.wasm", component("hello"));
    let told = stdout(&extension(&env, &["install", "made", "--project"]));
    has(&told, &["installed hello", "wharf trust"]);
    let directory = env.project().join(".wharf/extensions");
    assert_eq!(placed(&directory, "hello"), component("hello"));
    nothing_installed(&env);
    let mut wharf = env.rpc(&[]);
    assert_eq!(wharf.data(json!({"type": "get_commands"}))["commands"], json!([]));
    wharf.finish();
    assert_eq!(loaded(&env).0, ["hello"]);

    // Its list says what would be fetched, so it is not followed before it is trusted.
    has(&stderr(&extension(&env, &["update", "--project"])), &["wharf trust"]);
    stdout(&env.command().arg("trust").output().unwrap());
    has(&stdout(&extension(&env, &["update", "--project"])), &["is up to date"]);
    stdout(&extension(&env, &["remove", "hello", "--project"]));
    assert!(!directory.join("hello").exists());
}

#[test]
fn what_is_no_component_or_not_the_wanted_one_is_not_installed() {
    let env = Env::new();
    env.write("hello.wasm", component("hello"));
    env.write("text.wasm", "no component");
    env.write("module.wasm", b"\0asm\x01\0\0\0");
    env.write("torn.wasm", &component("hello")[..1000]);
    env.write("empty/readme", "");
    let other = sha256(b"other");
    for (args, expect) in [
        (&["install", "text.wasm"][..], "project/text.wasm "),
        (&["install", "module.wasm"], "project/module.wasm "),
        (&["install", "torn.wasm"], "project/torn.wasm "),
        (&["install", "none.wasm"], "there is no extension at"),
        (&["install", "empty"], "neither an extension.wasm nor a crate"),
        (&["install", "hello.wasm", "--hash", &other], "nothing was installed"),
        (&["install", "hello.wasm", "--hash", "sha256:abc"], "--hash"),
        (&["install", "https://example.org/x.wasm"], "neither a path nor"),
        (&["install", "git+ext::sh -c touch% owned"], "is no git URL"),
    ] {
        let told = stderr(&extension(&env, args));
        has(&told, &[expect]);
    }
    nothing_installed(&env);
    assert!(!env.project().join("owned").exists());
    let hash = sha256(&component("hello"));
    stdout(&extension(&env, &["install", "hello.wasm", "--hash", &hash]));
}

#[test]
fn content_that_was_changed_is_not_loaded_until_it_is_fetched_again() {
    let env = Env::new();
    let source = env.write("hello.wasm", component("hello"));
    stdout(&extension(&env, &["install", "hello.wasm"]));
    let file = user_dir(&env).join("hello/extension.wasm");
    let altered = variant(&component("hello"), "altered");
    std::fs::write(&file, &altered).unwrap();
    let (commands, errors) = loaded(&env);
    assert_eq!(commands, [""; 0]);
    assert_eq!(errors.len(), 1, "{errors:?}");
    let update = "run wharf extension update hello, or install it again";
    has(&errors[0], &["differs from the pinned hash", update, &sha256(&altered)]);
    // Nor when it is named.
    let mut wharf = env.rpc(&["-e", file.to_str().unwrap()]);
    assert_eq!(wharf.data(json!({"type": "get_commands"}))["commands"], json!([]));
    wharf.finish();

    let told = stdout(&extension(&env, &["update", "hello"]));
    has(&told, &["updated hello"]);
    assert_eq!(placed(&user_dir(&env), "hello"), component("hello"));
    assert_eq!(loaded(&env).0, ["hello"]);

    std::fs::remove_file(source).unwrap();
    let told = stderr(&extension(&env, &["update"]));
    has(&told, &["hello is not updated", "there is no extension at"]);
    assert_eq!(loaded(&env).0, ["hello"], "a failed update changes nothing");
}

#[test]
fn an_id_from_elsewhere_replaces_nothing_unasked() {
    let env = Env::new();
    env.write("mine.wasm", component("hello"));
    let other = variant(&component("hello"), "other");
    env.write("other.wasm", &other);
    stdout(&extension(&env, &["install", "mine.wasm"]));
    let told = stderr(&extension(&env, &["install", "other.wasm"]));
    has(&told, &["hello is installed from", "mine.wasm", "--force"]);
    assert_eq!(placed(&user_dir(&env), "hello"), component("hello"));
    let told = stdout(&extension(&env, &["install", "other.wasm", "--force"]));
    has(&told, &["installed hello", "replaces"]);
    assert_eq!(placed(&user_dir(&env), "hello"), other);

    // One that a person copied there is not ours to replace.
    env.write_agent("extensions/todo/extension.wasm", "own");
    env.write("todo.wasm", component("todo"));
    has(&stderr(&extension(&env, &["install", "todo.wasm"])), &["was not installed; --force"]);
    has(&stderr(&extension(&env, &["remove", "todo"])), &["delete it by hand"]);
    assert_eq!(placed(&user_dir(&env), "todo"), b"own");
}

#[test]
fn a_projects_list_and_links_reach_nothing_outside() {
    let env = Env::new();
    env.write("hello.wasm", component("hello"));
    let precious = env.agent_dir().join("precious");
    std::fs::create_dir_all(&precious).unwrap();
    std::fs::write(precious.join("extension.wasm"), "kept").unwrap();
    std::fs::create_dir_all(env.project().join(".wharf/extensions")).unwrap();
    std::os::unix::fs::symlink(&precious, env.project().join(".wharf/extensions/hello")).unwrap();
    for args in
        [&["install", "hello.wasm", "--project", "--force"][..], &["remove", "hello", "--project"]]
    {
        has(&stderr(&extension(&env, args)), &["is a link or no folder"]);
    }
    let list = json!({"version": 1, "extensions": {"../../../agent/precious": {
        "source": "/x", "hash": sha256(b""), "version": "1", "installedAt": "x",
    }}});
    env.write(".wharf/extensions/installed.json", list.to_string());
    for args in [
        &["remove", "x", "--project"][..],
        &["update", "--project"],
        &["install", "hello.wasm", "--project"],
    ] {
        has(&stderr(&extension(&env, args)), &["installed.json is broken"]);
    }
    assert_eq!(std::fs::read(precious.join("extension.wasm")).unwrap(), b"kept");
    std::fs::remove_dir_all(env.project().join(".wharf")).unwrap();
    std::os::unix::fs::symlink(&precious, env.project().join(".wharf")).unwrap();
    has(&stderr(&extension(&env, &["install", "hello.wasm", "--project"])), &["is a link"]);
    assert_eq!(std::fs::read_dir(&precious).unwrap().count(), 1);
}

#[test]
fn installations_at_once_are_all_kept() {
    let env = Env::new();
    let names = ["hello", "todo", "rpc-demo", "hello"];
    let running: Vec<_> = names
        .iter()
        .map(|name| {
            let mut command = env.command();
            command.args(["extension", "install"]).arg(guest(name));
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
        })
        .collect();
    for child in running {
        stdout(&child.wait_with_output().unwrap());
    }
    for name in names {
        let hash = sha256(&placed(&user_dir(&env), name));
        assert_eq!(entry(&user_dir(&env), name)["hash"], hash.as_str());
    }
    assert_eq!(loaded(&env).1, [""; 0]);
}

// ---- git ---------------------------------------------------------------------

fn git(folder: &Path, args: &[&str]) -> String {
    let output = Command::new("git")
        .current_dir(folder)
        .args(["-c", "user.name=t", "-c", "user.email=t@example.org"])
        .args(["-c", "commit.gpgsign=false", "-c", "core.hooksPath=/dev/null"])
        .args(args)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

fn commit(env: &Env, file: &str, content: &[u8]) -> String {
    env.write(&format!("repo/{file}"), content);
    let folder = env.project().join("repo");
    git(&folder, &["add", "--all"]);
    git(&folder, &["commit", "--quiet", "--message=x"]);
    git(&folder, &["rev-parse", "HEAD"])
}

#[test]
fn a_git_repository_is_followed_by_update() {
    let env = Env::new();
    let folder = env.project().join("repo");
    std::fs::create_dir(&folder).unwrap();
    git(&folder, &["init", "--quiet", "--initial-branch=main"]);
    commit(&env, "package.json", br#"{"wharf": {"extension": "dist/hello.wasm"}}"#);
    commit(&env, "decoy.wasm", b"decoy");
    let first = commit(&env, "dist/hello.wasm", &component("hello"));
    git(&folder, &["tag", "v1"]);
    let url = format!("git+file://{}", folder.display());
    let told = stdout(&extension(&env, &["install", &url]));
    has(&told, &["installed hello", &first]);
    let installed = entry(&user_dir(&env), "hello");
    assert_eq!((&installed["source"], &installed["resolved"]), (&json!(url), &json!(first)));
    has(&stdout(&extension(&env, &["update"])), &["is up to date"]);

    let newer = variant(&component("hello"), "newer");
    let second = commit(&env, "dist/hello.wasm", &newer);
    let told = stdout(&extension(&env, &["update", "hello"]));
    let [old, new] = [sha256(&component("hello")), sha256(&newer)];
    has(&told, &[&format!("{first} -> {second}"), &format!("{old} -> {new}")]);
    assert_eq!(placed(&user_dir(&env), "hello"), newer);

    // Another revision of the same repository is the same source.
    stdout(&extension(&env, &["install", &format!("{url}#v1")]));
    assert_eq!(placed(&user_dir(&env), "hello"), component("hello"));
    has(&stdout(&extension(&env, &["update"])), &["is up to date"]);
    has(&stderr(&extension(&env, &["install", &format!("{url}#none")])), &["failed to fetch none"]);

    git(&folder, &["rm", "--quiet", "-r", "dist", "decoy.wasm", "package.json"]);
    commit(&env, "Cargo.toml", b"[package]\nname = \"x\"\nversion = \"0.1.0\"\n");
    has(&stderr(&extension(&env, &["install", &url])), &["--build builds it"]);
    assert_eq!(placed(&user_dir(&env), "hello"), component("hello"));
}

// ---- npm ---------------------------------------------------------------------

fn has_npm() -> bool {
    let found = Command::new("npm").arg("--version").output().is_ok();
    if !found {
        note("npm is not installed: packages of npm are not tested");
    }
    found
}

/// A package with these entries, whatever they are called.
fn package(entries: &[(&str, EntryType, &[u8])]) -> Vec<u8> {
    let mut tar = Builder::new(Vec::new());
    for (name, kind, content) in entries {
        let mut header = Header::new_gnu();
        header.as_mut_bytes()[..name.len()].copy_from_slice(name.as_bytes());
        header.set_entry_type(*kind);
        header.set_size(content.len() as u64);
        if *kind == EntryType::Symlink {
            header.set_link_name("../../../..").unwrap();
        }
        header.set_mode(0o644);
        header.set_cksum();
        tar.append(&header, *content).unwrap();
    }
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(&tar.into_inner().unwrap()).unwrap();
    encoder.finish().unwrap()
}

/// Publishes versions of a package; the last is the latest.
fn publish(server: &FileServer, name: &str, versions: &[(&str, Vec<u8>)]) {
    let mut listed = json!({});
    for (version, tgz) in versions {
        let path = format!("/{name}/-/{name}-{version}.tgz");
        let url = format!("http://{}{path}", server.address());
        listed[version] = json!({"name": name, "version": version, "dist": {"tarball": url}});
        server.put(&path, Answer::new("application/octet-stream", tgz.clone()));
    }
    let latest = versions.last().unwrap().0;
    let listing = json!({"name": name, "dist-tags": {"latest": latest}, "versions": listed});
    server.put(&format!("/{name}"), Answer::json(&listing));
}

fn extension_npm(env: &Env, server: &FileServer, args: &[&str]) -> Output {
    env.command()
        .env("npm_config_registry", format!("http://{}/", server.address()))
        .env("npm_config_fetch_retries", "0")
        .arg("extension")
        .args(args)
        .output()
        .unwrap()
}

/// A package of a component, with a script that must never run.
fn good_package(env: &Env, version: &str, component: &[u8]) -> Vec<u8> {
    let touch = format!("touch {}", env.project().join("owned").display());
    let manifest = json!({
        "name": "hello-wharf", "version": version,
        "scripts": {"install": touch, "prepack": touch, "prepare": touch, "postinstall": touch},
    });
    package(&[
        ("package/package.json", EntryType::Regular, manifest.to_string().as_bytes()),
        ("package/extension.wasm", EntryType::Regular, component),
    ])
}

#[test]
fn an_npm_package_is_installed_and_updated_within_its_range() {
    if !has_npm() {
        return;
    }
    let env = Env::new();
    let server = FileServer::start();
    let [one, two, three] = ["1.0.0", "1.1.0", "2.0.0"].map(|version| {
        let component = variant(&component("hello"), version);
        (version, good_package(&env, version, &component))
    });
    publish(&server, "hello-wharf", std::slice::from_ref(&one));
    let told = stdout(&extension_npm(&env, &server, &["install", "npm:hello-wharf@^1"]));
    has(&told, &["installed hello", "npm:hello-wharf@^1", "1.0.0"]);
    publish(&server, "hello-wharf", &[one, two, three]);
    // npm takes its own copy of the listing for fresh.
    std::fs::remove_dir_all(env.home().join(".npm")).unwrap();
    let told = stdout(&extension_npm(&env, &server, &["update"]));
    has(&told, &["updated hello", "1.0.0 -> 1.1.0"]);
    assert_eq!(placed(&user_dir(&env), "hello"), variant(&component("hello"), "1.1.0"));
    let installed = entry(&user_dir(&env), "hello");
    assert_eq!(
        (&installed["source"], &installed["resolved"]),
        (&json!("npm:hello-wharf@^1"), &json!("1.1.0"))
    );
    stdout(&extension_npm(&env, &server, &["install", "npm:hello-wharf"]));
    assert_eq!(entry(&user_dir(&env), "hello")["resolved"], "2.0.0");
    assert!(!env.project().join("owned").exists(), "a script of the package ran");
    has(
        &stderr(&extension_npm(&env, &server, &["install", "npm:no-such"])),
        &["failed to fetch the npm package no-such@latest"],
    );
}

#[test]
fn hostile_npm_packages_are_refused() {
    if !has_npm() {
        return;
    }
    let wasm = component("hello");
    let good = ("package/extension.wasm", EntryType::Regular, &wasm[..]);
    for (entries, expect) in [
        (vec![good, ("package/../../../owned", EntryType::Regular, &b"x"[..])], "leads out of it"),
        (
            vec![("package/extension.wasm", EntryType::Symlink, &b""[..])],
            "neither a file nor a folder",
        ),
        (vec![("package/readme", EntryType::Regular, &b""[..])], "has no component"),
    ] {
        let env = Env::new();
        let server = FileServer::start();
        publish(&server, "evil", &[("1.0.0", package(&entries))]);
        has(&stderr(&extension_npm(&env, &server, &["install", "npm:evil"])), &[expect]);
        nothing_installed(&env);
    }
}

// ---- OCI ---------------------------------------------------------------------

const MANIFEST_TYPE: &str = "application/vnd.oci.image.manifest.v1+json";

/// Puts a component under a tag; gives the manifest's digest.
fn push(server: &FileServer, tag: &str, component: &[u8], authorization: Option<&str>) -> String {
    let put = |path: String, answer: Answer| {
        server.put(&path, Answer { authorization: authorization.map(str::to_owned), ..answer });
    };
    let digest = sha256(component);
    let config = b"{}";
    let manifest = json!({
        "schemaVersion": 2,
        "mediaType": MANIFEST_TYPE,
        "config": {
            "mediaType": "application/vnd.wasm.config.v0+json",
            "digest": sha256(config), "size": config.len(),
        },
        "layers": [{"mediaType": "application/wasm", "digest": digest, "size": component.len()}],
    })
    .to_string();
    let manifest_digest = sha256(manifest.as_bytes());
    for reference in [tag, &manifest_digest] {
        let answer = Answer::new(MANIFEST_TYPE, manifest.clone())
            .header("Docker-Content-Digest", manifest_digest.clone());
        put(format!("/v2/me/hello/manifests/{reference}"), answer);
    }
    put(format!("/v2/me/hello/blobs/{digest}"), Answer::new("application/octet-stream", component));
    put("/v2/".to_owned(), Answer::new("application/json", "{}"));
    manifest_digest
}

#[test]
fn an_oci_artifact_is_installed_by_tag_and_digest_and_updated() {
    let env = Env::new();
    let server = FileServer::start();
    let first = push(&server, "latest", &component("hello"), None);
    let repository = format!("oci://{}/me/hello", server.address());
    let told = stdout(&extension(&env, &["install", &format!("{repository}:latest")]));
    has(&told, &["installed hello", &first]);
    assert_eq!(entry(&user_dir(&env), "hello")["resolved"], first.as_str());
    has(&stdout(&extension(&env, &["update"])), &["is up to date"]);

    let newer = variant(&component("hello"), "newer");
    let second = push(&server, "latest", &newer, None);
    has(&stdout(&extension(&env, &["update"])), &[&format!("{first} -> {second}")]);
    assert_eq!(placed(&user_dir(&env), "hello"), newer);

    stdout(&extension(&env, &["install", &format!("{repository}@{first}")]));
    assert_eq!(placed(&user_dir(&env), "hello"), component("hello"));
    has(&stdout(&extension(&env, &["update"])), &["is up to date"]);
    has(
        &stderr(&extension(&env, &["install", &format!("{repository}:none")])),
        &["failed to fetch", ":none"],
    );
}

#[test]
fn a_registry_that_gives_tokens_is_asked_for_one() {
    let env = Env::new();
    let server = FileServer::start();
    let address = server.address();
    server.challenge(format!(r#"Bearer realm="http://{address}/token",service="test""#));
    server.put("/token", Answer::json(&json!({"token": "secret-token"})));
    push(&server, "latest", &component("hello"), Some("Bearer secret-token"));
    stdout(&extension(&env, &["install", &format!("oci://{address}/me/hello")]));
    assert_eq!(placed(&user_dir(&env), "hello"), component("hello"));
    let requests = server.requests();
    let token = requests.iter().find(|request| request.path.starts_with("/token")).unwrap();
    assert!(token.path.contains("pull"), "{token:?}");
    assert_eq!(token.authorization, None);
}

#[test]
fn a_registry_that_gives_something_else_is_refused() {
    let env = Env::new();
    let server = FileServer::start();
    let digest = push(&server, "latest", &component("hello"), None);
    let source = format!("oci://{}/me/hello:latest", server.address());
    let blob = format!("/v2/me/hello/blobs/{}", sha256(&component("hello")));
    server
        .put(&blob, Answer::new("application/octet-stream", variant(&component("hello"), "evil")));
    has(&stderr(&extension(&env, &["install", &source])), &["failed to fetch", "igest"]);

    let layers = |layers: Value| {
        let manifest = json!({
            "schemaVersion": 2, "mediaType": MANIFEST_TYPE, "layers": layers,
            "config": {"mediaType": "x/y", "digest": sha256(b""), "size": 0},
        });
        server
            .put("/v2/me/hello/manifests/latest", Answer::new(MANIFEST_TYPE, manifest.to_string()));
    };
    let layer = |kind: &str, size: u64| json!({"mediaType": kind, "digest": digest, "size": size});
    layers(json!([layer("application/vnd.oci.image.layer.v1.tar+gzip", 1)]));
    has(&stderr(&extension(&env, &["install", &source])), &["no WASM artifact", "tar+gzip"]);
    layers(json!([layer("application/wasm", 1), layer("application/wasm", 1)]));
    has(&stderr(&extension(&env, &["install", &source])), &["2 layers"]);
    layers(json!([layer("application/wasm", 1 << 40)]));
    has(&stderr(&extension(&env, &["install", &source])), &["the limit is"]);
    nothing_installed(&env);
}
