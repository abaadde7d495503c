//! Another model in the middle of a session: whatever one API has left in the
//! conversation, the next one's server takes it.

use serde_json::{Value, json};
use wharf_tests::Wharf;
use wharf_tests::llm::{Answer, Api, LlmServer};

use super::{PNG, all_apis, blocks, finish, messages, model_id, name, png};
use crate::order::texts;

/// Two turns with everything in them that an API has of its own.
fn script(server: &LlmServer, mark: &str) {
    server.reply(
        Answer::default()
            .thinking(&format!("thought of {mark}"), "c2lnbmVk")
            .redacted("cmVkYWN0ZWQ=")
            .text(&format!("text of {mark}"))
            .call("call_0", "read", &json!({"path": "a.png"}))
            .call("call_1", "read", &json!({"path": "missing.txt"}))
            .call("call_2", "bash", &json!({"command": "printf ''"})),
    );
    server.reply(Answer::default().thinking("more", "bW9yZQ==").text("done"));
}

fn prompt_with_image(wharf: &mut Wharf, message: &str) -> Vec<Value> {
    wharf.data(json!({
        "type": "prompt", "message": message,
        "images": [{"type": "image", "data": PNG, "mimeType": "image/png"}],
    }));
    wharf.take_until("agent_end")
}

fn select(wharf: &mut Wharf, api: Api) {
    let model = wharf.data(json!({
        "type": "set_model", "provider": name(api), "modelId": model_id(api),
    }));
    assert_eq!((&model["id"], &model["api"]), (&json!(model_id(api)), &json!(api.name())));
}

/// Every order of two APIs: from each to each, and back.
#[test]
fn between_every_two_apis() {
    for (from_at, from) in Api::ALL.into_iter().enumerate() {
        for (to_at, to) in Api::ALL.into_iter().enumerate() {
            let (env, servers) = all_apis(&json!({"reasoning": true, "input": ["text", "image"]}));
            env.write("a.png", png());
            let model = format!("{}/{}", name(from), model_id(from));
            let mut wharf = env.rpc(&["--model", &model, "--thinking", "high"]);
            for (turn, (at, api)) in
                [(from_at, from), (to_at, to), (from_at, from)].into_iter().enumerate()
            {
                if turn > 0 {
                    select(&mut wharf, api);
                }
                script(&servers[at], &format!("{}{turn}", api.name()));
                let run = prompt_with_image(&mut wharf, "go");
                let place = format!("{from:?} {to:?} {turn}");
                let replies = messages(&run, "assistant");
                for reply in &replies {
                    assert!(
                        reply["errorMessage"].is_null(),
                        "{place}: {reply} {:?}",
                        servers[at].refusals()
                    );
                    assert_eq!(reply["api"], api.name(), "{place}");
                }
                assert_eq!(replies.len(), 2, "{place}");
                assert_eq!(blocks(replies[0], "toolCall").len(), 3, "{place}");
                // The other model's thoughts are its own.
                let body = servers[at].requests().last().unwrap().body.to_string();
                if turn == 1 && from != to {
                    let foreign = format!("thought of {}0", from.name());
                    assert!(!body.contains(&foreign), "{place}: {body}");
                }
                assert!(body.contains(&format!("text of {}0", from.name())), "{place}");
                let results =
                    super::replies::results(api, &servers[at].requests().last().unwrap().body);
                assert_eq!(results.len(), 3 * (turn + 1), "{place}: {results:?}");
            }
            finish(wharf, 3);
            servers.iter().for_each(LlmServer::verify);
        }
    }
}

/// With a turn under way: the next request of the same run goes to the other model.
#[test]
fn in_the_middle_of_a_turn() {
    for (from_at, from) in Api::ALL.into_iter().enumerate() {
        for (to_at, to) in Api::ALL.into_iter().enumerate().filter(|(_, to)| *to != from) {
            let (env, servers) = all_apis(&json!({"reasoning": true}));
            let wait = "touch started; while [ ! -e go ]; do sleep 0.01; done; echo waited";
            servers[from_at].reply(Answer::default().thinking("hm", "c2lnbmVk").call(
                "call_0",
                "bash",
                &json!({"command": wait}),
            ));
            servers[to_at].reply(Answer::says("taken over"));
            let model = format!("{}/{}", name(from), model_id(from));
            let mut wharf = env.rpc(&["--model", &model, "--thinking", "high"]);
            wharf.prompt("go");
            wharf.wait_event("tool_execution_start");
            select(&mut wharf, to);
            env.write("go", "");
            let run = wharf.take_until("agent_end");
            assert_eq!(
                texts(&run, "assistant").last().unwrap(),
                "taken over",
                "{from:?} {to:?}: {run:?}"
            );
            let sent = servers[to_at].requests();
            let results = super::replies::results(to, &sent[0].body);
            assert_eq!(results[0].1.trim(), "waited", "{from:?} {to:?}");
            assert_eq!(sent.len(), 1);
            finish(wharf, 1);
        }
    }
}

/// The model and the conversation are those of the file after it is opened again.
#[test]
fn after_a_restart() {
    let (env, servers) = all_apis(&json!({"reasoning": true, "input": ["text", "image"]}));
    env.write("a.png", png());
    let mut file: Option<String> = None;
    for round in 0..2 {
        for (at, api) in Api::ALL.into_iter().enumerate() {
            let model = format!("{}/{}", name(api), model_id(api));
            let mut args = vec!["--model", &model, "--thinking", "high"];
            if let Some(file) = &file {
                args.extend(["--session", file]);
            }
            let mut wharf = env.rpc(&args);
            script(&servers[at], &format!("{}{round}", api.name()));
            let run = prompt_with_image(&mut wharf, "go");
            assert_eq!(
                texts(&run, "assistant").last().unwrap(),
                "done",
                "{api:?} {:?}",
                servers[at].refusals()
            );
            let state = wharf.data(json!({"type": "get_state"}));
            file = Some(state["sessionFile"].as_str().unwrap().to_owned());
            finish(wharf, 1);
            // Its model is remembered without being named.
            let mut wharf = env.rpc(&["--session", file.as_ref().unwrap()]);
            servers[at].reply(Answer::says("still me"));
            let run = wharf.run("who?");
            assert_eq!(texts(&run, "assistant"), ["still me"], "{api:?}");
            finish(wharf, 1);
        }
    }
}
