//! Random interleavings of everything that starts, queues and ends runs: every
//! command is answered once, no accepted message is lost or delivered twice, and
//! every run keeps the documented order.

use std::collections::HashMap;

use serde_json::{Value, json};
use wharf_tests::{Env, Wharf};

use crate::order::{assert_documented_order, texts};

/// SplitMix64: the same commands for the same seed, everywhere.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }
}

/// A command of a plan.
struct Step {
    id: String,
    /// The message that it sends, if it sends one: its id, so that it is unique.
    is_message: bool,
    command: Value,
}

fn plan(random: &mut Random) -> Vec<Step> {
    (0..6 + random.below(10))
        .map(|n| {
            let id = format!("m{n}.");
            let (is_message, mut command) = match random.below(12) {
                0..=2 => (true, json!({"type": "prompt", "message": id})),
                3 => (true, json!({"type": "prompt", "message": id, "streamingBehavior": "steer"})),
                4 => (
                    true,
                    json!({"type": "prompt", "message": id, "streamingBehavior": "followUp"}),
                ),
                5 | 6 => (true, json!({"type": "steer", "message": id})),
                7 | 8 => (true, json!({"type": "follow_up", "message": id})),
                9 | 10 => (false, json!({"type": "abort"})),
                _ => (false, json!({"type": "new_session"})),
            };
            command["id"] = json!(id);
            Step { id, is_message, command }
        })
        .collect()
}

/// Up to two tool calls, then quick answers, slow ones, or both.
fn script(random: &mut Random) -> Vec<Value> {
    let mut replies: Vec<Value> = (0..random.below(3))
        .map(|_| {
            json!({"content": [
                {"type": "toolCall", "name": "bash", "arguments": {"command": "sleep 0.01; echo x"}},
            ]})
        })
        .collect();
    if random.below(2) == 0 {
        replies.push(json!({"delayMs": 3, "chunkChars": 2,
            "content": [{"type": "text", "text": "a slow answer"}]}));
    }
    let delay = random.below(2);
    replies.push(json!({"repeat": true, "delayMs": delay, "chunkChars": 4,
        "content": [{"type": "text", "text": "an answer"}]}));
    replies
}

fn wait_idle(wharf: &mut Wharf) {
    while wharf.data(json!({"type": "get_state"}))["isStreaming"] == true {}
}

fn play(seed: u64, guests: &[&str]) {
    let mut random = Random(seed);
    let env = Env::new();
    let model = env.script(&script(&mut random));
    let mut wharf = env.rpc_with(guests, &model);
    let steps = plan(&mut random);
    let mut write = String::new();
    for step in &steps {
        write.push_str(&format!("{}\n", step.command));
        match random.below(4) {
            0 => {
                wharf.send_raw(std::mem::take(&mut write).as_bytes());
                // Lets the agent go on for a while; how far does not matter.
                for _ in 0..random.below(3) {
                    wharf.data(json!({"type": "get_version"}));
                }
            }
            1 => wharf.send_raw(std::mem::take(&mut write).as_bytes()),
            _ => {}
        }
    }
    wharf.send_raw(write.as_bytes());
    for step in &steps {
        wharf.wait_for(&format!("the answer to {}", step.command), |line| {
            line["type"] == "response" && line["id"] == step.id.as_str()
        });
    }
    wait_idle(&mut wharf);
    let pending = wharf.data(json!({"type": "clear_pending_messages"}));
    let exit = wharf.finish();
    let context = || format!("seed {seed}:\n{}", exit.transcript);
    assert_eq!(exit.code, Some(0), "{}", context());

    let mut answers: HashMap<&str, Vec<&Value>> = HashMap::new();
    for line in exit.all.iter().filter(|line| line["type"] == "response") {
        answers.entry(line["id"].as_str().unwrap()).or_default().push(line);
    }
    let delivered = texts(&exit.all, "user");
    for (at, step) in steps.iter().enumerate() {
        let [answer] = answers[step.id.as_str()][..] else {
            panic!("not one answer to {}: {}", step.command, context());
        };
        assert_eq!(answer["command"], step.command["type"], "{}", context());
        // What waited behind a switch when an abort came is refused by name.
        let aborted = answer["error"] == "Aborted before it began.";
        if aborted {
            let is_followed = steps[at..].iter().any(|later| later.command["type"] == "abort");
            assert!(is_followed, "{} was refused for no abort: {}", step.id, context());
        }
        if !step.is_message {
            if aborted {
                assert_eq!(step.command["type"], "new_session", "{}", context());
                continue;
            }
            assert_eq!(answer["success"], true, "{}", context());
            continue;
        }
        let times = delivered.iter().filter(|text| **text == step.id).count();
        let queued = ["steering", "followUp"]
            .iter()
            .flat_map(|queue| pending[queue].as_array().unwrap())
            .filter(|text| **text == step.id.as_str())
            .count();
        if answer["success"] == false {
            assert!(aborted || step.command["type"] == "prompt", "{}", context());
            assert_eq!(times + queued, 0, "{} was refused and served: {}", step.id, context());
            continue;
        }
        // A new session takes the queues of the old one with it.
        let dropped = steps[at..].iter().any(|later| later.command["type"] == "new_session");
        let expected = if dropped { times + queued <= 1 } else { times + queued == 1 };
        assert!(expected, "{}: {times} times delivered, {queued} queued: {}", step.id, context());
    }
    assert_documented_order(&exit.all);
}

fn play_all(seeds: std::ops::Range<u64>) {
    seeds.for_each(|seed| play(seed, &[]));
}

#[test]
fn first_fifty_seeds() {
    play_all(0..50);
}

#[test]
fn second_fifty_seeds() {
    play_all(50..100);
}

#[test]
fn third_fifty_seeds() {
    play_all(100..150);
}

#[test]
fn fourth_fifty_seeds() {
    play_all(150..200);
}

/// The extension's `input` handler makes the way of a message into the agent longer.
#[test]
fn some_seeds_with_an_input_handler() {
    (200..230).for_each(|seed| play(seed, &["probe"]));
}
