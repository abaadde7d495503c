//! `sessionSync` as a setting. What is synced when is tested beside the writer: from
//! outside nobody can see it.

use std::fs;

use serde_json::{Value, json};
use wharf_tests::Env;

use super::{
    any_reply, end, session_file, short_session, start, state, stored_messages, switch, text_of,
};

#[test]
fn each_policy_is_taken_and_what_is_none_is_told() {
    for (value, is_right) in [
        (json!("turn"), true),
        (json!("entry"), true),
        (json!("never"), true),
        (json!("always"), false),
        (json!("Turn"), false),
        (json!(""), false),
        (json!(true), false),
        (json!(1), false),
        (json!(["turn"]), false),
        (json!({"turn": 1}), false),
    ] {
        let env = Env::new();
        let settings = json!({"sessionSync": value, "defaultThinkingLevel": "high"});
        env.write_agent("settings.json", settings.to_string());
        let mut wharf = start(&env, &[]);
        // One bad setting costs no other.
        state(&mut wharf);
        let told: Vec<&Value> =
            wharf.passed().filter(|line| line["type"] == "extension_error").collect();
        if is_right {
            assert!(told.is_empty(), "{value}: {told:?}");
        } else {
            assert_eq!(told.len(), 1, "{value}: {told:?}");
            assert_eq!(told[0]["event"], "load");
            assert!(told[0]["extensionPath"].as_str().unwrap().ends_with("settings.json"));
            let error = told[0]["error"].as_str().unwrap();
            assert!(error.contains("sessionSync"), "{error}");
        }
        wharf.run("first");
        wharf.data(json!({"type": "new_session"}));
        wharf.run("second");
        let file = session_file(&mut wharf);
        end(wharf);
        assert_eq!(stored_messages(&file).len(), 2, "{value}");
    }
}

/// The person's own setting, and a project's that is trusted.
#[test]
fn a_project_may_say_it_too() {
    let env = Env::new();
    env.write(".wharf/settings.json", json!({"sessionSync": "sometimes"}).to_string());
    let mut wharf = start(&env, &["--trust-project"]);
    state(&mut wharf);
    let told: Vec<&Value> =
        wharf.passed().filter(|line| line["type"] == "extension_error").collect();
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(told[0]["error"].as_str().unwrap().contains("sessionSync"), "{told:?}");
    wharf.run("first");
    end(wharf);
}

/// What an error says is kept until it can be written is kept, also when its session has been
/// left meanwhile.
#[test]
fn what_could_not_be_written_when_its_session_was_left_is_written_later() {
    for at_exit in [false, true] {
        let env = Env::new();
        let other = short_session(&env, "elsewhere");
        let dir = env.project().join("kept");
        let model = any_reply(&env);
        let mut wharf = env.rpc(&["--model", &model, "--session-dir", dir.to_str().unwrap()]);
        wharf.run("one");
        let file = session_file(&mut wharf);
        // The folder is gone, and no other can be made.
        fs::rename(&dir, env.project().join("away")).unwrap();
        fs::write(&dir, "in the way").unwrap();
        wharf.run("two");
        assert_eq!(switch(&mut wharf, &other)["success"], true);
        fs::remove_file(&dir).unwrap();
        if !at_exit {
            wharf.run("three");
            let texts: Vec<String> = stored_messages(&file).iter().map(text_of).collect();
            assert!(texts.contains(&"one".to_owned()) && texts.contains(&"two".to_owned()));
            assert!(!texts.contains(&"three".to_owned()));
        }
        assert_eq!(wharf.finish().code, Some(0));
        let texts: Vec<String> = stored_messages(&file).iter().map(text_of).collect();
        assert!(texts.contains(&"one".to_owned()) && texts.contains(&"two".to_owned()));
    }
}
