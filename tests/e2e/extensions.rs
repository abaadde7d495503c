//! Where extensions come from, what happens when they clash, the compiled cache, and
//! what an extension can do: answers to events, and the functions of the host.

use std::collections::BTreeMap;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::PathBuf;
use std::time::SystemTime;

use serde_json::{Value, json};
use wharf_tests::script::{bash, call, says};
use wharf_tests::{Env, Wharf, guest};

fn bytes(name: &str) -> Vec<u8> {
    std::fs::read(guest(name)).unwrap()
}

/// A guest with one word in it replaced by another of the same length.
fn patched(component: &[u8], from: &str, to: &str) -> Vec<u8> {
    assert_eq!(from.len(), to.len());
    let mut patched = component.to_vec();
    let mut found = 0;
    for at in 0..patched.len() - from.len() {
        if patched[at..].starts_with(from.as_bytes()) {
            patched[at..at + to.len()].copy_from_slice(to.as_bytes());
            found += 1;
        }
    }
    assert!(found > 0, "{from} is not in the component");
    patched
}

/// Names of the extensions' commands, in load order, when all have settled.
fn commands(wharf: &mut Wharf) -> Vec<String> {
    let data = wharf.data(json!({"type": "get_commands"}));
    let commands = data["commands"].as_array().unwrap();
    commands.iter().map(|command| command["name"].as_str().unwrap().to_owned()).collect()
}

fn notice(wharf: &mut Wharf, command: &str) -> String {
    wharf.prompt(command);
    wharf.wait_notify()
}

/// Runs a command of the probe; gives the line that it shows.
fn probe(wharf: &mut Wharf, command: &str) -> Value {
    serde_json::from_str(&notice(wharf, command)).unwrap()
}

/// The same, and what the host function returned.
fn probed(wharf: &mut Wharf, command: &str) -> Value {
    let shown = probe(wharf, command);
    assert!(shown.get("error").is_none(), "{shown}");
    shown["result"].clone()
}

fn errors(lines: &[Value]) -> Vec<&Value> {
    lines.iter().filter(|line| line["type"] == "extension_error").collect()
}

/// The messages of a run that have this role.
fn messages<'a>(run: &'a [Value], role: &str) -> Vec<&'a Value> {
    run.iter()
        .filter(|line| line["type"] == "message_end" && line["message"]["role"] == role)
        .map(|line| &line["message"])
        .collect()
}

fn text(message: &Value) -> &str {
    message["content"].as_str().unwrap_or_else(|| message["content"][0]["text"].as_str().unwrap())
}

// ---- discovery ---------------------------------------------------------------

#[test]
fn explicit_comes_before_project_before_user() {
    let env = Env::new();
    env.write_agent("extensions/a.wasm", bytes("floods"));
    env.write_agent("extensions/folder/extension.wasm", bytes("hello"));
    env.write_agent("extensions/readme.md", "no extension");
    env.write_agent("extensions/empty-folder/readme.md", "no extension");
    env.write(".wharf/extensions/z.wasm", bytes("spins"));
    let heartbeat = guest("heartbeat");
    let args = ["-e", heartbeat.to_str().unwrap()];
    let mut wharf = env.rpc(&[&args[..], &["--trust-project"]].concat());
    assert_eq!(commands(&mut wharf), ["beat", "spin", "still", "flood", "hello"]);
    assert_eq!(notice(&mut wharf, "/hello"), "Hello, world!");
    let exit = wharf.finish();
    assert!(errors(&exit.rest).is_empty(), "{}", exit.transcript);

    let mut wharf = env.rpc(&[&args[..], &["--trust-project", "--no-extensions"]].concat());
    assert_eq!(commands(&mut wharf), ["beat"]);
}

#[test]
fn a_folder_and_a_relative_path_can_be_named() {
    let env = Env::new();
    env.write("mine/extension.wasm", bytes("hello"));
    let mut wharf = env.rpc(&["-e", "mine"]);
    assert_eq!(commands(&mut wharf), ["hello"]);
    let mut wharf = env.rpc(&["-e", "mine/../mine/extension.wasm"]);
    assert_eq!(commands(&mut wharf), ["hello"]);
    // Settings name them relative to their own file.
    env.write_agent("more/beat.wasm", bytes("heartbeat"));
    env.write_agent("settings.json", json!({"extensions": ["more/beat.wasm"]}).to_string());
    let mut wharf = env.rpc(&["-e", "mine"]);
    assert_eq!(commands(&mut wharf), ["hello", "beat"]);
}

/// One file, however many ways lead to it, is one extension, and nothing to tell.
#[test]
fn the_same_file_found_twice_is_loaded_once() {
    let env = Env::new();
    let file = env.write_agent("extensions/hello.wasm", bytes("hello"));
    symlink(&file, env.project().join("link.wasm")).unwrap();
    let file = file.to_str().unwrap();
    let mut wharf = env.rpc(&["-e", file, "-e", "link.wasm", "-e", file]);
    assert_eq!(commands(&mut wharf), ["hello"]);
    assert_eq!(notice(&mut wharf, "/hello"), "Hello, world!");
    let exit = wharf.finish();
    assert!(errors(&exit.rest).is_empty(), "{}", exit.transcript);
}

/// Two files with the same id: the explicit one is used, and the person is told.
#[test]
fn the_same_id_in_two_files_is_told_and_the_first_is_used() {
    let env = Env::new();
    let explicit = env.write("mine.wasm", patched(&bytes("heartbeat"), "beat ", "mine "));
    env.write_agent("extensions/theirs.wasm", bytes("heartbeat"));
    let mut wharf = env.rpc(&["-e", "mine.wasm"]);
    assert_eq!(commands(&mut wharf), ["beat"]);
    assert_eq!(notice(&mut wharf, "/beat 1"), "mine 1");
    let error = wharf.wait_extension_error("theirs.wasm");
    let told = error["error"].as_str().unwrap();
    assert!(told.contains("heartbeat") && told.contains(explicit.to_str().unwrap()), "{told}");
    let exit = wharf.finish();
    assert!(errors(&exit.rest).is_empty(), "told twice: {}", exit.transcript);
}

#[test]
fn commands_that_clash_are_both_there_with_numbers() {
    let env = Env::new();
    let other = patched(&patched(&bytes("heartbeat"), "heartbeat", "hearsbeat"), "beat ", "tick ");
    env.write("a.wasm", bytes("heartbeat"));
    env.write("b.wasm", other);
    let model = env.script(&[says("not a command")]);
    let mut wharf = env.rpc(&["--model", &model, "-e", "b.wasm", "-e", "a.wasm"]);
    assert_eq!(commands(&mut wharf), ["beat:1", "beat:2"]);
    assert_eq!(notice(&mut wharf, "/beat:1 x"), "tick x");
    assert_eq!(notice(&mut wharf, "/beat:2 x"), "beat x");
    // The bare name is ambiguous and calls neither.
    let run = wharf.run("/beat x");
    assert!(run.iter().all(|line| line["type"] != "extension_ui_request"), "{run:?}");
}

#[test]
fn the_first_of_two_tools_wins_and_both_are_named() {
    let env = Env::new();
    let model = env.script(&[call("greet", &json!({"name": "Ada"})), says("done")]);
    let first = env.write("hello.wasm", bytes("hello"));
    env.write("jello.wasm", patched(&patched(&bytes("hello"), "hello", "jello"), "Hello", "Jello"));
    let args = ["--model", &model, "-e", "hello.wasm", "-e", "jello.wasm"];
    let mut wharf = env.rpc(&args);
    assert_eq!(commands(&mut wharf), ["hello", "jello"]);
    let error = wharf.wait_extension_error("jello.wasm");
    let told = error["error"].as_str().unwrap();
    assert!(told.contains("greet") && told.contains(first.to_str().unwrap()), "{told}");
    let run = wharf.run("go");
    assert_eq!(text(messages(&run, "toolResult")[0]), "Hello, Ada!");
}

#[test]
fn a_built_in_tool_is_not_replaced_by_its_name_alone() {
    let env = Env::new();
    let model =
        env.script(&[call("write", &json!({"path": "a.txt", "content": "x"})), says("done")]);
    env.write("writer.wasm", patched(&bytes("hello"), "greet", "write"));
    let mut wharf = env.rpc(&["--model", &model, "-e", "writer.wasm"]);
    let run = wharf.run("go");
    let told = errors(&run);
    assert_eq!(told.len(), 1, "{told:?}");
    let told = told[0]["error"].as_str().unwrap();
    assert!(told.contains("write") && told.contains("overrides"), "{told}");
    let result = messages(&run, "toolResult")[0];
    assert!(!text(result).contains("Hello"), "{result}");
    assert_eq!(std::fs::read_to_string(env.project().join("a.txt")).unwrap(), "x");
}

#[test]
fn settings_disable_an_extension_by_its_id() {
    let env = Env::new();
    env.write_agent("extensions/hello.wasm", bytes("hello"));
    env.write_agent("extensions/heartbeat.wasm", bytes("heartbeat"));
    let settings = json!({"extensionSettings": {"hello": {"disabled": true}}});
    env.write_agent("settings.json", settings.to_string());
    let mut wharf = env.rpc(&[]);
    assert_eq!(commands(&mut wharf), ["beat"]);
    // The id counts, whatever the file is called.
    let from = env.agent_dir().join("extensions/hello.wasm");
    std::fs::rename(from, env.agent_dir().join("extensions/greeter.wasm")).unwrap();
    let mut wharf = env.rpc(&[]);
    assert_eq!(commands(&mut wharf), ["beat"]);
}

#[test]
fn settings_limit_one_extension_by_its_id() {
    let env = Env::new();
    let settings = json!({"extensionSettings": {
        "*": {"limits": {"commandBudgetMs": 3000}},
        "spins": {"limits": {"commandBudgetMs": 200}},
    }});
    env.write_agent("settings.json", settings.to_string());
    let mut wharf = env.rpc_with(&["spins"], "scripted/demo");
    wharf.prompt("/spin");
    let error = wharf.wait_extension_error("spins.wasm");
    assert!(error["error"].as_str().unwrap().contains("200 ms"), "{error}");
}

// ---- the compiled cache ------------------------------------------------------

fn cache_files(env: &Env) -> BTreeMap<PathBuf, SystemTime> {
    let dir = env.agent_dir().join("cache/components");
    std::fs::read_dir(dir)
        .unwrap()
        .map(|entry| {
            let entry = entry.unwrap();
            (entry.path(), entry.metadata().unwrap().modified().unwrap())
        })
        .collect()
}

/// `hello` greets by command and by tool.
fn assert_greets(env: &Env) {
    let model = env.script(&[call("greet", &json!({"name": "Ada"})), says("done")]);
    let mut wharf = env.rpc_with(&["hello"], &model);
    assert_eq!(commands(&mut wharf), ["hello"]);
    assert_eq!(notice(&mut wharf, "/hello"), "Hello, world!");
    let run = wharf.run("go");
    assert_eq!(text(messages(&run, "toolResult")[0]), "Hello, Ada!");
    let exit = wharf.finish();
    assert_eq!(exit.code, Some(0), "{}", exit.transcript);
    assert!(errors(&exit.rest).is_empty(), "{}", exit.transcript);
}

#[test]
fn a_second_start_takes_everything_from_the_cache() {
    let env = Env::new();
    assert_greets(&env);
    let before = cache_files(&env);
    assert_eq!(before.len(), 2, "code and registration: {before:?}");
    assert_greets(&env);
    assert_eq!(cache_files(&env), before);
}

#[test]
fn the_cache_belongs_to_the_user_alone() {
    let env = Env::new();
    assert_greets(&env);
    let mode = |path: &PathBuf| std::fs::metadata(path).unwrap().permissions().mode() & 0o7777;
    let dir = env.agent_dir().join("cache/components");
    assert_eq!(mode(&dir), 0o700);
    for file in cache_files(&env).keys() {
        assert_eq!(mode(file), 0o600, "{}", file.display());
    }
    // What others could have written is not loaded, and nothing stops.
    std::fs::set_permissions(&dir, std::fs::Permissions::from_mode(0o777)).unwrap();
    for file in cache_files(&env).keys() {
        std::fs::write(file, b"from somebody else").unwrap();
    }
    assert_greets(&env);
}

/// What is done to every byte string of the cache.
fn damage_cache(env: &Env, damage: impl Fn(&mut Vec<u8>)) {
    for file in cache_files(env).keys() {
        let mut content = std::fs::read(file).unwrap();
        damage(&mut content);
        std::fs::write(file, content).unwrap();
    }
}

#[test]
fn damaged_cache_files_are_made_anew() {
    let env = Env::new();
    assert_greets(&env);
    damage_cache(&env, Vec::clear);
    assert_greets(&env);
    damage_cache(&env, |content| content.truncate(content.len() / 2));
    assert_greets(&env);
    damage_cache(&env, |content| content.truncate(content.len() - 1));
    assert_greets(&env);
    damage_cache(&env, |content| content.fill(b'x'));
    assert_greets(&env);
    damage_cache(&env, |content| content.extend_from_slice(b"trailing garbage"));
    assert_greets(&env);
    let before = cache_files(&env);
    assert_greets(&env);
    assert_eq!(cache_files(&env), before, "the cache was not repaired");
}

/// Flips bits of one cache file, a number of times; the extension works each time.
fn flip_bits(suffix: &str, bits: usize) {
    let env = Env::new();
    assert_greets(&env);
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    // xorshift64: the same places in every run of the test.
    let mut draw = |bound: usize| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        usize::try_from(random % u64::try_from(bound).unwrap()).unwrap()
    };
    for _ in 0..8 {
        let files = cache_files(&env);
        let file = files.keys().find(|file| file.extension().unwrap() == suffix).unwrap();
        let mut content = std::fs::read(file).unwrap();
        for _ in 0..bits {
            let at = draw(content.len());
            content[at] ^= 1 << draw(8);
        }
        std::fs::write(file, content).unwrap();
        assert_greets(&env);
    }
}

/// A disk that turns bits must not make machine code of them.
#[test]
fn flipped_bits_in_compiled_code_do_no_harm() {
    flip_bits("cwasm", 8);
}

/// Nor must it make an extension offer something else. (One bit: it is still JSON.)
#[test]
fn flipped_bits_in_a_registration_do_no_harm() {
    flip_bits("json", 1);
    let env = Env::new();
    assert_greets(&env);
    // What is left is sound JSON, and a registration, of something else.
    for file in cache_files(&env).keys() {
        if let Ok(registration) = std::fs::read_to_string(file) {
            std::fs::write(file, registration.replace("\"hello\"", "\"iello\"")).unwrap();
        }
    }
    assert_greets(&env);
}

#[test]
fn changed_content_is_another_component() {
    let env = Env::new();
    env.write("x.wasm", bytes("hello"));
    let mut wharf = env.rpc(&["-e", "x.wasm"]);
    assert_eq!(commands(&mut wharf), ["hello"]);
    env.write("x.wasm", bytes("heartbeat"));
    let mut wharf = env.rpc(&["-e", "x.wasm"]);
    assert_eq!(commands(&mut wharf), ["beat"]);
    assert_eq!(notice(&mut wharf, "/beat 1"), "beat 1");
}

// ---- answers to events -------------------------------------------------------

#[test]
fn a_replaced_input_is_what_runs() {
    let env = Env::new();
    let model = env.script(&[bash("echo no # REPLACE:echo yes"), says("done")]);
    let mut wharf = env.rpc_with(&["probe"], &model);
    let run = wharf.run("go");
    assert_eq!(text(messages(&run, "toolResult")[0]), "yes\n");
}

/// A guard that has approved one command is asked again when a later handler makes
/// another of it.
#[test]
fn a_guard_sees_what_a_later_handler_has_replaced() {
    for guests in [["permission-gate", "probe"], ["probe", "permission-gate"]] {
        let env = Env::new();
        // One word to the guard, until it is replaced.
        let model = env.script(&[bash("x-REPLACE:sudo touch ran"), says("done")]);
        let mut wharf = env.rpc_with(&guests, &model);
        wharf.prompt("go");
        let dialog = wharf.wait_ui("select");
        assert!(dialog["title"].as_str().unwrap().contains("\n  sudo touch ran\n"), "{dialog}");
        wharf.answer(&dialog, json!({"value": "No"}));
        let run = wharf.until("agent_end", |line| line["type"] == "agent_end");
        let result = messages(&run, "toolResult")[0];
        assert_eq!((text(result), &result["isError"]), ("Blocked by user", &json!(true)));
        assert!(run.iter().all(|line| line["method"] != "select"), "asked twice: {run:?}");
        assert!(!env.project().join("ran").exists());
    }
}

#[test]
fn an_answer_takes_the_place_of_the_tool() {
    let env = Env::new();
    let model = env.script(&[bash("touch ran # ANSWER: as if it ran"), says("done")]);
    let mut wharf = env.rpc_with(&["probe"], &model);
    let run = wharf.run("go");
    let result = messages(&run, "toolResult")[0];
    assert_eq!((text(result), &result["isError"]), ("as if it ran", &json!(false)));
    assert!(!env.project().join("ran").exists());
}

#[test]
fn an_error_of_a_tool_call_handler_blocks() {
    let env = Env::new();
    let model = env.script(&[bash("touch ran # FAIL"), says("done")]);
    let mut wharf = env.rpc_with(&["probe"], &model);
    let run = wharf.run("go");
    let result = messages(&run, "toolResult")[0];
    assert_eq!(result["isError"], true);
    assert!(text(result).contains("failed"), "{result}");
    assert!(text(result).contains("probe fails on purpose"), "{result}");
    assert!(!env.project().join("ran").exists());
    assert_eq!(run.last().unwrap()["type"], "agent_end");
}

#[test]
fn control_functions_are_not_allowed_in_handlers() {
    let env = Env::new();
    let model = env.script(&[bash("echo CONTROL"), says("done")]);
    let mut wharf = env.rpc_with(&["probe"], &model);
    let run = wharf.run("go");
    let notice = run.iter().find(|line| line["method"] == "notify").unwrap();
    let shown: Value = serde_json::from_str(notice["message"].as_str().unwrap()).unwrap();
    assert_eq!(shown["call"], "control-in-tool-call");
    assert_eq!(shown["error"]["kind"], "not-allowed", "{shown}");
    // It is a value, not a trap: the call goes on.
    assert_eq!(text(messages(&run, "toolResult")[0]), "CONTROL\n");
}

/// The event, the message and the file tell the same.
#[test]
fn a_patched_result_is_seen_everywhere() {
    let env = Env::new();
    let model = env.script(&[bash("echo PATCHME"), says("done")]);
    let mut wharf = env.rpc_with(&["probe"], &model);
    let run = wharf.run("go");
    let content = json!([
        {"type": "text", "text": "PATCHME\n"},
        {"type": "text", "text": "[seen by probe]"},
    ]);
    let end = run.iter().find(|line| line["type"] == "tool_execution_end").unwrap();
    assert_eq!(end["result"]["content"], content);
    assert_eq!(messages(&run, "toolResult")[0]["content"], content);
    let turn_end = run.iter().find(|line| line["type"] == "turn_end").unwrap();
    assert_eq!(turn_end["toolResults"][0]["content"], content);
    let kept = wharf.data(json!({"type": "get_messages"}));
    assert_eq!(kept["messages"][2]["content"], content);
    let file = wharf.data(json!({"type": "get_state"}))["sessionFile"].as_str().unwrap().to_owned();
    let stored = std::fs::read_to_string(file).unwrap();
    let in_file = stored.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let result =
        in_file.into_iter().find(|entry| entry["message"]["role"] == "toolResult").unwrap();
    assert_eq!(result["message"]["content"], content);
}

#[test]
fn input_is_transformed_or_handled_before_it_reaches_the_model() {
    let env = Env::new();
    let model = env.script(&[says("heard")]);
    let mut wharf = env.rpc_with(&["probe"], &model);
    assert_eq!(notice(&mut wharf, "handled:for the extension"), "handled: for the extension");
    // The notice leaves before its handler has returned.
    assert_eq!(probed(&mut wharf, "/control-wait-for-idle"), Value::Null);
    let state = wharf.data(json!({"type": "get_state"}));
    assert_eq!((&state["messageCount"], &state["isStreaming"]), (&json!(0), &json!(false)));
    let run = wharf.run("transform:quiet words");
    assert_eq!(text(messages(&run, "user")[0]), "QUIET WORDS");
    let exit = wharf.finish();
    let started = exit.transcript.matches("\"agent_start\"").count();
    assert_eq!(started, 1, "{}", exit.transcript);
}

/// Handlers see the raw text; what they make of it is expanded.
#[test]
fn input_handlers_come_before_expansion() {
    let env = Env::new();
    env.write_agent("prompts/SAY.md", "You said: $1");
    let model = env.script(&[says("heard")]);
    let mut wharf = env.rpc_with(&["probe"], &model);
    let run = wharf.run("transform:/say it");
    assert_eq!(text(messages(&run, "user")[0]).trim(), "You said: IT");
}

#[test]
fn before_agent_start_injects_a_message_and_a_prompt_for_one_run() {
    let env = Env::new();
    let model = env.script(&[says("one"), says("two")]);
    let mut wharf = env.rpc_with(&["probe"], &model);
    let run = wharf.run("please INJECT");
    let roles: Vec<&str> = run
        .iter()
        .filter(|line| line["type"] == "message_end")
        .map(|line| line["message"]["role"].as_str().unwrap())
        .collect();
    assert_eq!(roles, ["user", "custom", "assistant"]);
    let custom = messages(&run, "custom")[0];
    assert_eq!(custom["customType"], "probe");
    assert_eq!(text(custom), "injected by probe");
    assert_eq!(custom["details"], json!({"prompt": "please INJECT"}));
    let prompt = probed(&mut wharf, "/agent-system-prompt");
    assert!(prompt.as_str().unwrap().ends_with(" [probe]"), "{prompt}");
    wharf.run("nothing special");
    let prompt = probed(&mut wharf, "/agent-system-prompt");
    assert!(!prompt.as_str().unwrap().contains("[probe]"), "{prompt}");
}

#[test]
fn each_notification_arrives_once() {
    let env = Env::new();
    let model = env.script(&[bash("echo x"), says("done")]);
    let mut wharf = env.rpc_with(&["probe"], &model);
    wharf.run("go");
    wharf.data(json!({"type": "new_session"}));
    // Notifications wait in a queue of their own; the last one tells that all are in.
    let counts = (0..200)
        .map(|_| probe(&mut wharf, "/counts"))
        .find(|counts| counts["session_switch"] == 1)
        .expect("session_switch never arrived");
    let mut counts = counts.as_object().unwrap().clone();
    // How many updates there are depends on the pace.
    counts.remove("message_update");
    counts.remove("tool_execution_update");
    assert_eq!(
        Value::Object(counts),
        json!({
            "agent_end": 1, "agent_start": 1, "message_end": 4, "message_start": 4,
            "session_start": 1, "session_switch": 1, "tool_execution_end": 1,
            "tool_execution_start": 1, "turn_end": 2, "turn_start": 2,
        })
    );
}

// ---- functions of the host ---------------------------------------------------

#[test]
fn an_extension_reads_the_session() {
    let env = Env::new();
    let model = env.script(&[says("hi")]);
    let mut wharf = env.rpc_with(&["probe"], &model);
    wharf.run("hello");
    let state = wharf.data(json!({"type": "get_state"}));
    assert_eq!(probed(&mut wharf, "/session-id"), state["sessionId"]);
    assert_eq!(probed(&mut wharf, "/session-file"), state["sessionFile"]);
    assert_eq!(probed(&mut wharf, "/session-name"), Value::Null);
    let stored = std::fs::read_to_string(state["sessionFile"].as_str().unwrap()).unwrap();
    let lines: Vec<Value> =
        stored.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(probed(&mut wharf, "/session-header"), lines[0]);
    assert_eq!(probed(&mut wharf, "/session-entries"), json!(lines[1..]));
    assert_eq!(probed(&mut wharf, "/session-branch"), json!(lines[1..]));
    assert_eq!(probed(&mut wharf, "/session-leaf"), lines.last().unwrap()["id"]);
}

#[test]
fn an_extension_writes_to_the_session() {
    let env = Env::new();
    let model = env.script(&[says("hi"), says("again")]);
    let mut wharf = env.rpc_with(&["probe"], &model);
    wharf.run("hello");
    let id = probed(&mut wharf, "/session-append-entry mark {\"n\":1}");
    assert_eq!(probed(&mut wharf, "/session-leaf"), id);
    wharf.prompt("/session-set-name  A name ");
    assert_eq!(wharf.wait_event("session_name_changed")["name"], "A name");
    wharf.wait_notify();
    assert_eq!(probed(&mut wharf, "/session-name"), "A name");
    assert_eq!(wharf.data(json!({"type": "get_state"}))["sessionName"], "A name");
    let id = id.as_str().unwrap();
    probed(&mut wharf, &format!("/session-set-label {id} here"));
    assert_eq!(probed(&mut wharf, &format!("/session-label {id}")), "here");
    probed(&mut wharf, &format!("/session-set-label {id}"));
    assert_eq!(probed(&mut wharf, &format!("/session-label {id}")), Value::Null);
    let refused = probe(&mut wharf, "/session-set-label 00000000 x");
    assert_eq!(refused["error"]["kind"], "invalid");
    assert!(refused["error"]["message"].as_str().unwrap().contains("00000000"), "{refused}");
    assert_eq!(probe(&mut wharf, "/session-set-name")["error"]["kind"], "invalid");
    // None of it is a message, and the conversation goes on behind it.
    let messages = wharf.data(json!({"type": "get_messages"}));
    assert_eq!(messages["messages"].as_array().unwrap().len(), 2);
    wharf.run("more");
    let file = wharf.data(json!({"type": "get_state"}))["sessionFile"].as_str().unwrap().to_owned();
    assert_eq!(wharf.finish().code, Some(0));
    let stored = std::fs::read_to_string(file).unwrap();
    let entries: Vec<Value> =
        stored.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let of = |kind: &str| entries.iter().filter(|entry| entry["type"] == kind).collect::<Vec<_>>();
    assert_eq!(
        (&of("custom")[0]["customType"], &of("custom")[0]["data"]),
        (&json!("mark"), &json!({"n": 1}))
    );
    assert_eq!(of("session_info")[0]["name"], "A name");
    assert_eq!(of("label")[0]["targetId"], id);
    assert_eq!(of("label")[0]["label"], "here");
    assert!(of("label")[1]["label"].is_null());
}

#[test]
fn an_extension_asks_the_agent() {
    let env = Env::new();
    let model = env.script(&[says("hi")]);
    let mut wharf = env.rpc_with(&["probe", "hello"], &model);
    // A command runs as soon as its own extension is there; wait for the other one.
    assert!(commands(&mut wharf).contains(&"hello".to_owned()));
    assert_eq!(probed(&mut wharf, "/agent-is-idle"), true);
    assert_eq!(probed(&mut wharf, "/agent-has-pending"), false);
    assert_eq!(probed(&mut wharf, "/agent-cwd"), env.project().to_str().unwrap());
    assert_eq!(probed(&mut wharf, "/ui-has-ui"), true);
    let state = wharf.data(json!({"type": "get_state"}));
    assert_eq!(probed(&mut wharf, "/agent-model"), state["model"]);
    let tools = probed(&mut wharf, "/agent-tools");
    let names: Vec<&str> =
        tools.as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap()).collect();
    for name in ["read", "write", "edit", "bash", "grep", "find", "ls", "greet"] {
        assert!(names.contains(&name), "{name} in {names:?}");
    }
    wharf.prompt("/log from the probe");
    wharf.wait_notify();
    let exit = wharf.finish();
    assert_eq!(exit.code, Some(0));
    let log = std::fs::read_to_string(env.agent_dir().join("wharf.log")).unwrap();
    for level in ["debug", "info", "warn", "error"] {
        assert!(log.contains(&format!("{level} from the probe")), "{log}");
    }
}

#[test]
fn an_extension_sends_messages() {
    let env = Env::new();
    let model = env.script(&[says("one"), says("two"), says("three")]);
    let mut wharf = env.rpc_with(&["probe"], &model);

    // Without a run under way, a person's message starts one.
    wharf.prompt("/agent-send-user-message steer from the extension");
    let run = wharf.until("agent_end", |line| line["type"] == "agent_end");
    assert_eq!(text(messages(&run, "user")[0]), "from the extension");
    assert_eq!(text(messages(&run, "assistant")[0]), "one");

    // A custom message is recorded, and starts a run only where that was asked for.
    probed(&mut wharf, "/agent-send-message steer quiet");
    let quiet = wharf.wait_for("the custom message", |line| {
        line["type"] == "message_end" && line["message"]["role"] == "custom"
    });
    assert_eq!(text(&quiet["message"]), "quiet");
    assert_eq!(probed(&mut wharf, "/agent-is-idle"), true);

    wharf.prompt("/agent-send-message-and-run follow-up loud");
    let run = wharf.until("agent_end", |line| line["type"] == "agent_end");
    assert_eq!(text(messages(&run, "custom")[0]), "loud");
    assert_eq!(text(messages(&run, "assistant")[0]), "two");

    // The next prompt takes it along.
    probed(&mut wharf, "/agent-send-message next-turn later");
    let run = wharf.run("now");
    assert_eq!(text(messages(&run, "custom")[0]), "later");
    assert_eq!(text(messages(&run, "assistant")[0]), "three");
    let kept = wharf.data(json!({"type": "get_messages"}));
    let roles: Vec<&str> = kept["messages"]
        .as_array()
        .unwrap()
        .iter()
        .map(|message| message["role"].as_str().unwrap())
        .collect();
    assert_eq!(roles.iter().filter(|role| **role == "custom").count(), 3, "{roles:?}");
    assert_eq!(wharf.finish().code, Some(0));
}

#[test]
fn an_extension_steers_and_aborts_a_run() {
    let env = Env::new();
    let slow = json!({"content": [{"type": "text", "text": "x".repeat(400)}], "chunkChars": 1,
        "delayMs": 50});
    let model = env.script(&[bash("read -r line < gate"), says("steered"), slow]);
    let gate = env.project().join("gate");
    let made = std::process::Command::new("mkfifo").arg(&gate).status().unwrap();
    assert!(made.success());
    let mut wharf = env.rpc_with(&["probe"], &model);
    wharf.prompt("go");
    wharf.wait_event("tool_execution_start");
    assert_eq!(probed(&mut wharf, "/agent-is-idle"), false);
    probed(&mut wharf, "/agent-send-user-message steer turn left");
    // It waits for the tool, in a queue that everybody sees.
    let queued = (0..200).any(|_| probed(&mut wharf, "/agent-has-pending") == true);
    assert!(queued);
    let pending = wharf.data(json!({"type": "get_pending_messages"}));
    assert!(pending.to_string().contains("turn left"), "{pending}");
    std::fs::write(&gate, "go\n").unwrap();
    let run = wharf.until("agent_end", |line| line["type"] == "agent_end");
    let users = messages(&run, "user");
    assert_eq!(text(users[users.len() - 1]), "turn left");
    assert_eq!(text(messages(&run, "assistant")[1]), "steered");

    wharf.prompt("slow");
    wharf.wait_event("message_update");
    wharf.prompt("/agent-abort");
    let run = wharf.until("agent_end", |line| line["type"] == "agent_end");
    assert_eq!(messages(&run, "assistant")[0]["stopReason"], "aborted");
    assert_eq!(wharf.finish().code, Some(0));
}

#[test]
fn a_command_controls_the_session() {
    let env = Env::new();
    let model = env.script(&[says("one"), says("two")]);
    let mut wharf = env.rpc_with(&["probe"], &model);
    wharf.run("first");
    let first = wharf.data(json!({"type": "get_state"}));
    assert_eq!(probed(&mut wharf, "/control-wait-for-idle"), Value::Null);
    assert_eq!(probed(&mut wharf, "/control-new-session"), "done");
    let second = wharf.data(json!({"type": "get_state"}));
    assert_ne!(second["sessionId"], first["sessionId"]);
    assert_eq!(second["messageCount"], 0);
    let file = first["sessionFile"].as_str().unwrap();
    assert_eq!(probed(&mut wharf, &format!("/control-switch-session {file}")), "done");
    let state = wharf.data(json!({"type": "get_state"}));
    assert_eq!(state["sessionId"], first["sessionId"]);
    assert_eq!(state["messageCount"], 2);
    let missing = env.project().join("missing.jsonl");
    let failed = probe(&mut wharf, &format!("/control-switch-session {}", missing.display()));
    assert_eq!(failed["error"]["kind"], "failed");
    assert!(failed["error"]["message"].as_str().unwrap().contains("missing.jsonl"), "{failed}");
    assert!(!missing.exists());
    let state = wharf.data(json!({"type": "get_state"}));
    assert_eq!(state["sessionId"], first["sessionId"]);
    assert_eq!(wharf.finish().code, Some(0));
}

/// A guard hears of what another extension's command does.
#[test]
fn a_command_that_switches_is_asked_about_like_any_other() {
    let env = Env::new();
    let model = env.script(&[says("one")]);
    let mut wharf = env.rpc_with(&["probe", "confirm-switch"], &model);
    wharf.run("first");
    wharf.prompt("/control-new-session");
    let dialog = wharf.wait_ui("confirm");
    wharf.answer(&dialog, json!({"confirmed": false}));
    let notices = [wharf.wait_notify(), wharf.wait_notify()];
    assert!(notices.iter().any(|notice| notice == "Clear cancelled"), "{notices:?}");
    let shown = notices.iter().find(|notice| notice.starts_with('{')).unwrap();
    assert_eq!(
        serde_json::from_str::<Value>(shown).unwrap(),
        json!({"call": "control-new-session", "result": "cancelled"})
    );
    assert_eq!(wharf.data(json!({"type": "get_state"}))["messageCount"], 2);
}
