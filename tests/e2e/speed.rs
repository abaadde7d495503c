//! `performance.jsonl` and the statistics that are made of it.

use std::collections::HashSet;
use std::fs;
use std::process::Stdio;

use serde_json::{Value, json};
use wharf_tests::{Env, Wharf};

use crate::story::{settings, state};

/// A reply that takes longer than the ten milliseconds below which nothing is recorded.
fn reply(output: u64, extra: Value) -> Value {
    let mut reply = json!({
        "delayMs": 15, "content": [{"type": "text", "text": "ok"}],
        "usage": {"input": 3, "output": output, "cacheRead": 0, "cacheWrite": 0, "totalTokens": 3 + output},
    });
    reply.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
    reply
}

fn log(env: &Env) -> Vec<Value> {
    let text = fs::read_to_string(env.agent_dir().join("performance.jsonl")).unwrap_or_default();
    assert!(text.is_empty() || text.ends_with('\n'), "a torn line: {text}");
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn stats(wharf: &mut Wharf) -> Vec<Value> {
    let data = wharf.data(json!({"type": "get_performance_stats"}));
    assert_eq!(data.as_object().unwrap().len(), 1, "{data}");
    data["models"].as_array().unwrap().clone()
}

/// Waits until so many replies are counted: nothing waits for the log.
fn wait_counted(wharf: &mut Wharf, count: u64) -> Value {
    for _ in 0..10_000 {
        if let [model] = &stats(wharf)[..]
            && model["count"] == count
        {
            return model.clone();
        }
    }
    panic!("never {count} replies: {:?}", stats(wharf));
}

#[test]
fn a_line_has_the_documented_fields() {
    let env = Env::new();
    let tool = json!({"content": [{"type": "toolCall", "name": "bash", "arguments": {"command": "echo 1"}}]});
    let model = env.script(&[reply(40, tool), reply(30, json!({}))]);
    let mut wharf = env.rpc_with(&[], &model);
    assert!(stats(&mut wharf).is_empty());
    wharf.run("go");
    let id = state(&mut wharf)["sessionId"].clone();
    let model_stats = wait_counted(&mut wharf, 2);
    let lines = log(&env);
    assert_eq!(lines.len(), 2);
    let (provider, model_id) = model.split_once('/').unwrap();
    for (line, tokens) in lines.iter().zip([40.0, 30.0]) {
        let object = line.as_object().unwrap();
        let mut keys: Vec<&str> = object.keys().map(String::as_str).collect();
        keys.sort_unstable();
        let documented =
            ["durationMs", "modelId", "outputTokens", "provider", "sessionId", "timestamp", "tps"];
        assert_eq!(keys, documented);
        assert_eq!(line["sessionId"], id);
        assert_eq!((&line["provider"], &line["modelId"]), (&json!(provider), &json!(model_id)));
        assert_eq!(line["outputTokens"].as_f64(), Some(tokens));
        let duration = line["durationMs"].as_f64().unwrap();
        assert!(duration >= 10.0, "{line}");
        let tps = line["tps"].as_f64().unwrap();
        assert!((tps - tokens * 1000.0 / duration).abs() < 1e-6, "{line}");
        let time = line["timestamp"].as_str().unwrap();
        assert!(time.len() == 24 && time.ends_with('Z'), "{time}");
    }
    let speeds: Vec<f64> = lines.iter().map(|line| line["tps"].as_f64().unwrap()).collect();
    let middle = f64::midpoint(speeds[0], speeds[1]);
    for field in ["median", "mean"] {
        let value = model_stats[field].as_f64().unwrap();
        // Whole numbers or not: both are as documented.
        assert!((value - middle).abs() <= 1.0, "{field}: {model_stats}, {speeds:?}");
    }
    assert_eq!(model_stats["provider"], provider);
    assert_eq!(model_stats["modelId"], model_id);
}

#[test]
fn what_is_not_recorded() {
    let env = Env::new();
    settings(&env, json!({"retry": {"maxRetries": 1}}));
    let endless = json!({"delayMs": 600_000, "when": "^abort"});
    let model = env.script(&[
        reply(0, json!({})),
        reply(5, json!({"error": {"status": 400, "body": "bad"}})),
        reply(5, json!({"drop": true, "when": "^drop"})),
        reply(7, json!({"when": "^drop"})),
        reply(5, endless),
        // Faster than a reply can be.
        reply(5, json!({"delayMs": 0, "content": [], "when": "^quick"})),
        reply(9, json!({"when": "^last"})),
    ]);
    let mut wharf = env.rpc_with(&[], &model);
    wharf.run("no tokens");
    wharf.run("an error");
    wharf.run("drop");
    wharf.prompt("abort");
    wharf.wait_event("turn_start");
    assert_eq!(wharf.request(json!({"type": "abort"}))["success"], true);
    wharf.take_until("agent_end");
    wharf.run("last");
    wait_counted(&mut wharf, 2);
    let tokens: Vec<Value> = log(&env).iter().map(|line| line["outputTokens"].clone()).collect();
    assert_eq!(tokens, [7, 9]);
}

#[test]
fn two_processes_at_once_lose_no_line() {
    const RUNS: u64 = 15;
    let env = Env::new();
    let model = env.script(&[reply(5, json!({"repeat": true}))]);
    let mut both = [env.rpc_with(&[], &model), env.rpc_with(&[], &model)];
    let ids: HashSet<Value> = both.iter_mut().map(|one| state(one)["sessionId"].clone()).collect();
    for _ in 0..RUNS {
        for wharf in &mut both {
            wharf.prompt("go");
        }
        for wharf in &mut both {
            wharf.take_until("agent_end");
        }
    }
    for wharf in &mut both {
        assert_eq!(wait_counted(wharf, 2 * RUNS)["count"], 2 * RUNS);
    }
    let lines = log(&env);
    for id in &ids {
        let own = lines.iter().filter(|line| line["sessionId"] == *id).count();
        assert_eq!(own as u64, RUNS, "{id}");
    }
}

/// The last reply of a process is in the log when the process has ended.
#[test]
fn an_exit_right_after_a_reply_loses_no_line() {
    for _ in 0..10 {
        let env = Env::new();
        let model = env.script(&[reply(5, json!({}))]);
        let output = env
            .command()
            .args(["--mode", "json", "--model", &model, "go"])
            .stdin(Stdio::null())
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(0));
        assert_eq!(log(&env).len(), 1);

        let env = Env::new();
        let model = env.script(&[reply(5, json!({}))]);
        let mut wharf = env.rpc_with(&[], &model);
        wharf.send(&json!({"type": "prompt", "message": "go"}));
        wharf.close_stdin();
        assert_eq!(wharf.wait_exit().code, Some(0));
        assert_eq!(log(&env).len(), 1);
    }
}

#[test]
fn a_damaged_or_missing_log_does_not_matter() {
    let env = Env::new();
    let file = env.write_agent("performance.jsonl", "no JSON\n{\"timestamp\":\"2026");
    let model = env.script(&[reply(5, json!({"repeat": true}))]);
    let mut wharf = env.rpc_with(&[], &model);
    assert!(stats(&mut wharf).is_empty());
    wharf.run("go");
    wait_counted(&mut wharf, 1);
    // What cannot be read is pruned, after the line that led to it.
    let lines = || fs::read_to_string(&file).unwrap().lines().count();
    let is_pruned = (0..1000).any(|_| stats(&mut wharf).len() == 1 && lines() == 1);
    assert!(is_pruned, "{}", fs::read_to_string(&file).unwrap());
    fs::remove_file(&file).unwrap();
    assert!(stats(&mut wharf).is_empty());
    wharf.run("go");
    wait_counted(&mut wharf, 1);
    assert_eq!(log(&env).len(), 1);
    let exit = wharf.finish();
    assert!(exit.all.iter().all(|line| line["type"] != "extension_error"), "{}", exit.transcript);
}

#[test]
fn what_is_older_than_thirty_days_counts_no_more() {
    let env = Env::new();
    let line = |time: &str| {
        json!({"timestamp": time, "sessionId": "s", "provider": "p", "modelId": "m",
            "outputTokens": 10, "durationMs": 100, "tps": 100.0})
        .to_string()
    };
    env.write_agent("performance.jsonl", format!("{}\n", line("2020-01-01T00:00:00.000Z")));
    let model = env.script(&[reply(5, json!({}))]);
    let mut wharf = env.rpc_with(&[], &model);
    assert!(stats(&mut wharf).is_empty());
    wharf.run("go");
    let model = wait_counted(&mut wharf, 1);
    assert_eq!(model["provider"], "scripted");
    // The prune comes after the line that led to it.
    let is_pruned = (0..1000).any(|_| stats(&mut wharf).len() == 1 && log(&env).len() == 1);
    assert!(is_pruned, "{:?}", log(&env));
}
