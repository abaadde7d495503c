//! Calls that cannot run as they are: the model is told, and nothing runs.

use serde_json::{Value, json};
use wharf_tests::llm::{Answer, Api};

use super::{Fake, blocks, events, finish, messages};
use crate::order::{text_of, texts};

/// Tool, the JSON text of the arguments, and what the error says.
const FAULTY: [(&str, &str, &str); 9] = [
    ("bash", "{\"command\": \"touch ran\"", "JSON"),
    ("bash", "touch ran", "JSON"),
    ("bash", "[\"touch ran\"]", "object"),
    ("bash", "\"touch ran\"", "object"),
    ("bash", "{\"command\": [\"touch ran\"]}", "/command"),
    ("bash", "{\"command\": \"touch ran\", \"timeout\": \"soon\"}", "/timeout"),
    ("bash", "{\"command\": \"touch ran\", \"unknown\": 1}", "unknown"),
    ("bash", "{}", "command"),
    ("no_such_tool", "{\"command\": \"touch ran\"}", "no_such_tool"),
];

#[test]
fn calls_that_do_not_fit_are_errors_and_nothing_runs() {
    for api in Api::ALL {
        for (tool, arguments, says) in FAULTY {
            let is_object = serde_json::from_str::<Value>(arguments).is_ok_and(|v| v.is_object());
            if api == Api::GoogleGenerativeAi && !is_object {
                // There, arguments are an object or nothing.
                continue;
            }
            let fake = Fake::start(api);
            fake.server.reply(
                Answer::says("Well.")
                    .call("call_a", "bash", &json!({"command": "echo fine"}))
                    .raw_call("call_b", tool, arguments)
                    .call("call_c", "bash", &json!({"command": "echo also"})),
            );
            fake.server.reply(Answer::says("I see"));
            fake.server.reply(Answer::says("again"));
            let mut wharf = fake.rpc();
            let run = wharf.run("go");
            let at = format!("{api:?} {tool} {arguments}");
            let results = messages(&run, "toolResult");
            let is_error: Vec<&Value> = results.iter().map(|result| &result["isError"]).collect();
            assert_eq!(is_error, [false, true, false], "{at}: {results:?}");
            assert!(text_of(results[1]).contains(says), "{at}: {}", results[1]);
            assert!(!fake.env.project().join("ran").exists(), "{at}: it ran");
            let end = events(&run, "tool_execution_end")[1];
            assert_eq!(end["isError"], true, "{at}");
            assert_eq!(end["result"]["content"], results[1]["content"], "{at}");
            let replies = messages(&run, "assistant");
            assert!(
                blocks(replies[0], "toolCall").iter().all(|call| call["arguments"].is_object())
            );
            assert_eq!(text_of(replies[1]), "I see", "{at}");
            let sent = super::replies::results(api, &fake.last_request().body);
            assert_eq!(sent.len(), 3, "{at}");
            assert!(sent[1].1.contains(says), "{at}: {sent:?}");
            assert_eq!(texts(&wharf.run("more"), "assistant"), ["again"], "{at}");
            finish(wharf, 2);
        }
    }
}

#[test]
fn a_call_without_arguments() {
    for api in Api::ALL {
        // `ls` needs none.
        for arguments in ["", "{}"] {
            let fake = Fake::start(api);
            fake.env.write("a.txt", "A");
            fake.server.reply(Answer::default().raw_call("call_a", "ls", arguments));
            fake.server.reply(Answer::says("done"));
            let mut wharf = fake.rpc();
            let run = wharf.run("go");
            let result = messages(&run, "toolResult")[0];
            assert_eq!(result["isError"], false, "{api:?} {arguments:?}: {result}");
            assert!(text_of(result).contains("a.txt"), "{api:?}: {result}");
            finish(wharf, 1);
        }
    }
}

#[test]
fn names_that_no_tool_can_have() {
    for api in Api::ALL {
        for tool in ["functions.bash", "bash ", "BASH", "naïve", &"x".repeat(200)] {
            let fake = Fake::start(api);
            fake.server.reply(Answer::calls("call_a", tool, &json!({"command": "touch ran"})));
            fake.server.reply(Answer::says("I see"));
            let mut wharf = fake.rpc();
            let run = wharf.run("go");
            let result = messages(&run, "toolResult")[0];
            assert_eq!(result["isError"], true, "{api:?} {tool}: {result}");
            assert!(text_of(result).contains("not found"), "{api:?} {tool}: {result}");
            assert!(!fake.env.project().join("ran").exists());
            assert_eq!(texts(&run, "assistant").last().unwrap(), "I see", "{api:?} {tool}");
            finish(wharf, 1);
        }
    }
}

#[test]
fn ids_that_are_odd_or_the_same() {
    for api in Api::ALL {
        let long = "i".repeat(300);
        for (first, second) in [
            ("same", "same"),
            ("functions.bash:0", "functions.bash:1"),
            ("a b", "a_b"),
            ("", ""),
            (long.as_str(), "x|y"),
        ] {
            if api == Api::AnthropicMessages && first == second {
                // Its server would have to break its own rule.
                continue;
            }
            let fake = Fake::start(api);
            fake.server.reply(Answer::calls(first, "bash", &json!({"command": "echo one"})).call(
                second,
                "bash",
                &json!({"command": "echo two"}),
            ));
            fake.server.reply(Answer::says("done"));
            let mut wharf = fake.rpc();
            let run = wharf.run("go");
            assert_eq!(texts(&run, "toolResult"), ["one\n", "two\n"], "{api:?} {first} {second}");
            let sent = super::replies::results(api, &fake.last_request().body);
            let texts: Vec<&str> = sent.iter().map(|(_, text)| text.trim()).collect();
            assert_eq!(texts, ["one", "two"], "{api:?} {first} {second}: {sent:?}");
            finish(wharf, 1);
        }
    }
}
