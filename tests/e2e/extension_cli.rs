//! `wharf extension ...`, as a person and an author use it.

use std::process::Output;

use serde_json::{Value, json};
use wharf_tests::{Env, guest, note};

fn extension(env: &Env, args: &[&str]) -> Output {
    env.command().arg("extension").args(args).output().unwrap()
}

fn out(output: &Output) -> String {
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn json_of(output: &Output) -> Value {
    serde_json::from_str(&out(output)).unwrap()
}

fn installed() -> Env {
    let env = Env::new();
    env.write_agent("extensions/asks.wasm", std::fs::read(guest("asks")).unwrap());
    env
}

fn permissions(env: &Env) -> Value {
    json_of(&extension(env, &["inspect", "asks", "--json"]))["permissions"].clone()
}

#[test]
fn inspect_shows_what_is_offered_and_asked_without_running_a_handler() {
    let env = Env::new();
    let file = guest("asks").display().to_string();
    let inspected = json_of(&extension(&env, &["inspect", &file, "--json"]));
    assert_eq!(inspected["id"], "asks");
    assert_eq!(inspected["apiVersion"], "0.1.1");
    let hash = inspected["contentHash"].as_str().unwrap();
    assert!(hash.starts_with("sha256:") && hash.len() == 71, "{hash}");
    assert_eq!(inspected["size"], std::fs::metadata(&file).unwrap().len());
    assert_eq!(inspected["commands"][0]["name"], "flags");
    assert_eq!(inspected["flags"][1]["takesValue"], true);
    assert_eq!(
        inspected["shortcuts"][0],
        json!({
            "key": "ctrl+f", "description": "Shows flags", "command": "flags"
        })
    );
    let undecided = json!(["exec:git status **", "net:example.org"]);
    assert_eq!(
        inspected["permissions"],
        json!({"granted": [], "denied": [], "undecided": undecided})
    );
    assert!(inspected["limits"]["memoryMb"].as_str().unwrap().contains("256"), "{inspected}");
    let text = out(&extension(&env, &["inspect", &file]));
    assert!(text.contains("undecided  exec:git status **"), "{text}");
    assert!(!text.contains('\u{1b}'), "{text}");
}

#[test]
fn what_cannot_be_inspected_says_why() {
    let env = Env::new();
    env.write("notes.wasm", "plain text");
    for (named, word) in
        [("notes.wasm", "no WebAssembly"), ("missing.wasm", "missing.wasm"), ("nobody", "nobody")]
    {
        let output = extension(&env, &["inspect", named]);
        assert_eq!(output.status.code(), Some(1), "{named}");
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert!(stderr.starts_with("error: ") && stderr.contains(word), "{stderr}");
    }
}

#[test]
fn the_list_is_in_load_order_with_scopes() {
    let env = installed();
    env.write(".wharf/extensions/hello.wasm", std::fs::read(guest("hello")).unwrap());
    let ids = |args: &[&str]| {
        let list = json_of(&extension(&env, &[&["list", "--json"], args].concat()));
        let list = list["extensions"].as_array().unwrap().clone();
        list.iter()
            .map(|e| format!("{} {} {}", e["id"], e["scope"], e["state"]).replace('"', ""))
            .collect::<Vec<_>>()
    };
    assert_eq!(ids(&[]), ["asks user registered"]);
    assert_eq!(ids(&["--trust-project"]), ["hello project registered", "asks user registered"]);
    let beat = guest("heartbeat").display().to_string();
    assert_eq!(ids(&["-e", &beat, "--no-extensions"]), ["heartbeat explicit registered"]);
}

#[test]
fn grants_are_given_and_taken_back() {
    let env = installed();
    let refused = extension(&env, &["grant", "asks"]);
    assert_eq!(refused.status.code(), Some(1), "nobody can be asked: {refused:?}");
    let refused = extension(&env, &["grant", "asks", "net:*"]);
    let stderr = String::from_utf8(refused.stderr).unwrap();
    assert!(stderr.contains("it does not ask for net:*"), "{stderr}");

    out(&extension(&env, &["grant", "asks", "exec:git status **"]));
    assert_eq!(permissions(&env)["granted"], json!(["exec:git status **"]));
    assert_eq!(permissions(&env)["undecided"], json!(["net:example.org"]));
    out(&extension(&env, &["grant", "asks", "--yes"]));
    assert_eq!(permissions(&env)["undecided"], json!([]));
    out(&extension(&env, &["revoke", "asks", "net:example.org"]));
    assert_eq!(permissions(&env)["granted"], json!(["exec:git status **"]));
    assert!(out(&extension(&env, &["revoke", "asks"])).contains("exec:git status **"));
    assert_eq!(permissions(&env)["granted"], json!([]));
    let nothing = out(&extension(&env, &["revoke", "asks"]));
    assert!(nothing.contains("nothing of that was granted"), "{nothing}");
}

#[test]
fn check_tells_clashes_with_what_loads_here() {
    let env = Env::new();
    env.write_agent("extensions/hello.wasm", std::fs::read(guest("hello")).unwrap());
    let beat = guest("heartbeat").display().to_string();
    let fine = extension(&env, &["check", &beat]);
    out(&fine);
    let stderr = String::from_utf8(fine.stderr).unwrap();
    assert!(stderr.contains("nothing to say against it"), "{stderr}");
    // The same id as one that is installed.
    let copy = env.write("copy.wasm", std::fs::read(guest("hello")).unwrap());
    let clash = extension(&env, &["check", copy.to_str().unwrap()]);
    let stderr = String::from_utf8(clash.stderr).unwrap();
    assert!(stderr.contains("\"hello\" is taken by"), "{stderr}");
}

/// The whole way of an author, with cargo: offline, since the SDK's own dependencies are
/// there for this very test.
#[test]
fn a_new_crate_builds_and_passes_its_test() {
    let env = Env::new();
    let host = |name: &str| std::env::var_os(name).unwrap_or_default();
    let sdk = concat!(env!("CARGO_MANIFEST_DIR"), "/../sdk/rust");
    let wharf = |args: &[&str]| {
        let mut command = env.command();
        for name in ["CARGO_HOME", "RUSTUP_HOME", "RUSTUP_TOOLCHAIN"] {
            if !host(name).is_empty() {
                command.env(name, host(name));
            }
        }
        // cargo and rustup find their own by the tester's home.
        command.env("HOME", host("HOME")).arg("extension").args(args).output().unwrap()
    };
    out(&wharf(&["new", "ask-first", "--sdk", sdk]));
    assert!(!wharf(&["new", "ask-first", "--sdk", sdk]).status.success(), "overwritten");
    let built = wharf(&["build", "ask-first"]);
    if !built.status.success() {
        let stderr = String::from_utf8_lossy(&built.stderr).into_owned();
        let is_offline =
            stderr.contains("failed to download") || stderr.contains("Could not resolve");
        assert!(is_offline, "{stderr}");
        note("skipped: cargo cannot reach the registry here");
        return;
    }
    let path = "ask-first/target/wasm32-wasip2/release/ask_first.wasm";
    assert!(out(&built).contains("ask_first.wasm"), "{built:?}");
    assert!(std::fs::metadata(env.project().join(path)).unwrap().len() < 200_000, "{built:?}");
    let played = wharf(&["test", "ask-first"]);
    assert!(out(&played).contains("1 passed, 0 failed"), "{played:?}");
    out(&wharf(&["check", "ask-first"]));

    let script = "{\"send\": {\"type\": \"prompt\", \"message\": \"/hello Bob\"}}\n\
        {\"expect\": {\"type\": \"extension_ui_request\", \"message\": \"Hello, Ada!\"}}\n";
    env.write("ask-first/tests/wrong.jsonl", script);
    let failed = wharf(&["test", path, "--tests", "ask-first/tests", "--timeout", "2"]);
    assert_eq!(failed.status.code(), Some(1));
    let report = String::from_utf8(failed.stdout).unwrap();
    for line in ["FAILED", "line 2", "- \"Hello, Ada!\"", "+ \"Hello, Bob!\"", "1 passed, 1 failed"]
    {
        assert!(report.contains(line), "{report}");
    }
}

#[test]
fn a_conversation_grants_and_denies() {
    let env = Env::new();
    let asks = guest("asks").display().to_string();
    // Nobody is asked for what is not granted: it is denied.
    let grant = "{\"grant\": [\"exec:git status **\"]}\n";
    let rest = "{\"send\": {\"type\": \"get_extensions\"}}\n\
        {\"expect\": {\"type\": \"response\", \"data\": {\"extensions\": [{\"permissions\": {\
        \"granted\": [\"exec:git*\"], \"denied\": [\"net:example.org\"], \"undecided\": []}}]}}}\n";
    env.write("tests/grants.jsonl", format!("{grant}{rest}"));
    let played = extension(&env, &["test", &asks]);
    // Its flag --model clashes with Wharf's own, which is an extension_error.
    assert_eq!(played.status.code(), Some(1), "{played:?}");
    let report = String::from_utf8(played.stdout).unwrap();
    assert!(report.contains("its flag --model cannot be given"), "{report}");
    let expected = "{\"expect\": {\"type\": \"extension_error\"}}\n";
    env.write("tests/grants.jsonl", format!("{grant}{expected}{rest}"));
    let played = extension(&env, &["test", &asks]);
    assert!(out(&played).contains("1 passed"), "{played:?}");
}
