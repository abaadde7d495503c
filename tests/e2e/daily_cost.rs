//! `get_daily_cost`: whose replies count, of which day, and how often.

use std::time::SystemTime;

use serde_json::{Value, json};
use wharf_tests::script::says;
use wharf_tests::{Env, Wharf};

use crate::session_store::{delete, folder_of, header, lines, put, reply, switch, user, uuid};

/// Days since 1970-01-01, as year, month and day.
fn civil(days: i64) -> (i64, i64, i64) {
    let mut year = 1970;
    let mut left = days;
    let is_leap = |year: i64| year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    while left >= 365 + i64::from(is_leap(year)) {
        left -= 365 + i64::from(is_leap(year));
        year += 1;
    }
    let february = 28 + i64::from(is_leap(year));
    let mut month = 1;
    for days in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31] {
        if left < days {
            break;
        }
        left -= days;
        month += 1;
    }
    (year, month, left + 1)
}

/// Seconds since the epoch as an entry's timestamp.
fn iso(seconds: i64) -> String {
    let (year, month, day) = civil(seconds.div_euclid(86_400));
    let rest = seconds.rem_euclid(86_400);
    let (hour, minute, second) = (rest / 3600, rest / 60 % 60, rest % 60);
    format!("{year}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.000Z")
}

/// It is noon where the binary runs, so that a day's ends are far.
fn at_noon(env: &Env, args: &[&str]) -> (Wharf, i64) {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    let now = i64::try_from(since.as_secs()).unwrap();
    // Of a POSIX zone the sign is reversed: what is added for UTC.
    let hours = now.rem_euclid(86_400) / 3600 - 12;
    let mut command = env.command();
    command.env("TZ", format!("XXX{hours}")).args(["--mode", "rpc"]).args(args);
    (Wharf::start(command, env.names()), now)
}

fn cents(wharf: &mut Wharf) -> i64 {
    let data = wharf.data(json!({"type": "get_daily_cost"}));
    assert_eq!(data.as_object().unwrap().len(), 1, "{data}");
    #[expect(clippy::cast_possible_truncation, reason = "a few dollars")]
    let cents = (data["cost"].as_f64().unwrap() * 100.0).round() as i64;
    cents
}

fn priced(tokens: u32, dollars: f64) -> Value {
    let mut reply = says("ok");
    reply["usage"] = json!({"input": tokens, "output": 0, "cacheRead": 0, "cacheWrite": 0,
        "totalTokens": tokens, "cost": {"input": dollars, "output": 0.0, "cacheRead": 0.0,
        "cacheWrite": 0.0, "total": dollars}});
    reply
}

#[test]
fn the_daily_cost_is_that_of_todays_replies_each_counted_once() {
    let env = Env::new();
    let mut reply_at_a_price = priced(10, 0.25);
    reply_at_a_price["repeat"] = json!(true);
    let model = env.script(&[reply_at_a_price]);
    let set_model = json!({"type": "set_model", "provider": "scripted",
        "modelId": model.strip_prefix("scripted/").unwrap()});
    let (mut wharf, now) = at_noon(&env, &["--model", &model]);
    assert_eq!(cents(&mut wharf), 0);
    let other = env.home().join("other");
    let folder = folder_of(&env, &other);
    let hours_ago = |hours: i64| iso(now - hours * 3600);
    // Between twelve and one o'clock: 11 hours ago is today, 13 hours ago is not.
    let spread = [
        header(&uuid(1), &other, &hours_ago(50)),
        user(1, None, &hours_ago(49), json!("long ago")),
        reply(2, Some(1), &hours_ago(48), 1000.0),
        reply(3, Some(2), &hours_ago(13), 100.0),
        reply(4, Some(3), &hours_ago(11), 1.0),
        // Another branch costs as well.
        reply(5, Some(3), &hours_ago(10), 2.0),
    ];
    let path = put(&folder, "a.jsonl", &lines(&spread));
    put(&folder, "tomorrow.jsonl", &lines(&[reply(1, None, &hours_ago(-13), 500.0)]));
    assert_eq!(cents(&mut wharf), 300);
    // Of a subagent, and damaged files cost what is whole in them.
    let mut child = header(&uuid(2), &other, &hours_ago(5));
    child["agentType"] = json!("reviewer");
    let child = lines(&[child, reply(1, None, &hours_ago(4), 4.0)]);
    put(&env.agent_dir().join("subagent-sessions/abc/step-1"), "c.jsonl", &child);
    let torn = "garbage\n".to_owned() + &lines(&[reply(9, None, &hours_ago(3), 8.0)]);
    put(&folder, "torn.jsonl", &(torn + "{\"type\":\"message\",\"usage\":"));
    // What is kept beside sessions costs nothing.
    put(&folder, "a.jsonl.v1.bak", &lines(&[reply(9, None, &hours_ago(2), 64.0)]));
    assert_eq!(cents(&mut wharf), 1500);

    wharf.run("one");
    assert_eq!(cents(&mut wharf), 1525);
    // A copy repeats what was paid once, whichever way it is made.
    switch(&mut wharf, &path, true);
    assert_eq!(cents(&mut wharf), 1525);
    // Its model was another one.
    wharf.data(set_model);
    wharf.run("two");
    assert_eq!(cents(&mut wharf), 1550);
    let messages = wharf.data(json!({"type": "get_fork_messages"}));
    let last = messages["messages"].as_array().unwrap().last().unwrap()["entryId"].clone();
    wharf.data(json!({"type": "fork", "entryId": last}));
    assert_eq!(cents(&mut wharf), 1550);
    wharf.run("three");
    assert_eq!(cents(&mut wharf), 1575);
    // What is deleted is no longer in any file.
    delete(&mut wharf, &path);
    assert_eq!(wharf.finish().code, Some(0));
    let (mut again, _) = at_noon(&env, &[]);
    assert_eq!(cents(&mut again), 1575, "copies of it are still there");
}

#[test]
fn the_daily_cost_of_a_flat_directory_is_its_own() {
    let env = Env::new();
    let model = env.script(&[priced(10, 0.25)]);
    let (mut wharf, now) = at_noon(&env, &["--model", &model, "--session-dir", "~/flat"]);
    let today = |number: u32, dollars: f64| {
        lines(&[
            header(&uuid(number), &env.project(), &iso(now - 60)),
            reply(1, None, &iso(now - i64::from(number)), dollars),
        ])
    };
    put(&folder_of(&env, &env.project()), "default.jsonl", &today(1, 100.0));
    put(&env.home().join("flat"), "flat.jsonl", &today(2, 2.0));
    put(&env.agent_dir().join("subagent-sessions/x"), "child.jsonl", &today(3, 4.0));
    assert_eq!(cents(&mut wharf), 600);
    wharf.run("hi");
    assert_eq!(cents(&mut wharf), 625);
    assert_eq!(wharf.finish().code, Some(0));

    // Without a file of its own a run costs nothing that is kept.
    let model = env.script(&[priced(10, 0.5)]);
    let (mut wharf, _) = at_noon(&env, &["--model", &model, "--no-session"]);
    wharf.run("hi");
    assert_eq!(cents(&mut wharf), 10_400);
}
