//! Processes that begin at the same moment, and processes that are killed while
//! sessions change. Killed runs of one session are in `crash`.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::process::Stdio;

use serde_json::{Value, json};
use wharf_tests::{Env, SessionFile, Wharf};

use super::{
    Random, any_reply, end, open, session_files, short_session, sound_lines, start, state,
    stored_messages, text_of,
};

/// Takes lines to the end of the run or of the process; gives the messages that it
/// announced, and whether it goes on.
fn run_or_end(wharf: &mut Wharf) -> (Vec<Value>, bool) {
    let mut announced = Vec::new();
    while let Some(line) = wharf.next() {
        match line["type"].as_str().unwrap() {
            "message_end" => announced.push(line["message"].clone()),
            "agent_end" => return (announced, true),
            _ => {}
        }
    }
    (announced, false)
}

#[test]
fn of_two_that_continue_at_once_one_writes() {
    let env = Env::new();
    let file = short_session(&env, "base");
    let mut expected = stored_messages(&file);
    for round in 0..15 {
        let mut pair: Vec<Wharf> = Vec::new();
        for _ in 0..2 {
            pair.push(start(&env, &["--continue"]));
        }
        for (at, wharf) in pair.iter_mut().enumerate() {
            let message = format!("round {round} {at}");
            wharf.send(&json!({"type": "prompt", "message": message}));
        }
        let pids: Vec<u32> = pair.iter().map(Wharf::pid).collect();
        let mut writers = 0;
        let mut open = Vec::new();
        for (at, mut wharf) in pair.into_iter().enumerate() {
            let (announced, goes_on) = run_or_end(&mut wharf);
            if goes_on {
                writers += 1;
                expected.extend(announced);
                // Kept open until the other one has been refused.
                open.push(wharf);
            } else {
                assert!(announced.is_empty());
                let exit = wharf.wait_exit();
                assert_eq!(exit.code, Some(1));
                let owner = format!("in use by process {}", pids[1 - at]);
                assert!(exit.stderr.contains(&owner), "{}", exit.stderr);
            }
        }
        assert_eq!(writers, 1, "round {round}");
        open.into_iter().for_each(end);
        SessionFile::read(&file).assert_linear();
        assert_eq!(stored_messages(&file), expected, "round {round}");
    }
    assert_eq!(session_files(&env.agent_dir()), [file]);
}

#[test]
fn two_that_begin_at_once_without_a_session_each_make_their_own() {
    for _ in 0..5 {
        let env = Env::new();
        let mut pair: Vec<Wharf> = (0..2).map(|_| start(&env, &["--continue"])).collect();
        for (at, wharf) in pair.iter_mut().enumerate() {
            wharf.send(&json!({"type": "prompt", "message": at.to_string()}));
        }
        let mut found = Vec::new();
        for wharf in &mut pair {
            let (announced, goes_on) = run_or_end(wharf);
            if goes_on {
                found.push((super::session_file(wharf), announced));
            }
        }
        // Not before: the second could go on where the first has ended.
        drop(pair);
        // Where the first had made its file when the second looked, that one was refused.
        assert!(!found.is_empty());
        let files = session_files(&env.agent_dir());
        assert_eq!(files.len(), found.len());
        for (file, announced) in found {
            assert_eq!(stored_messages(&file), announced);
        }
    }
}

fn prompt(number: usize) -> Value {
    json!({"type": "prompt", "id": number.to_string(), "message": format!("message {number}"),
        "streamingBehavior": "followUp"})
}

/// Kills a process that goes from session to session.
fn killed_while_sessions_change(seed: u64, rounds: usize) {
    let env = Env::new();
    let model = any_reply(&env);
    let mut random = Random(seed);
    let (mut number, mut announced) = (0, 0);
    for round in 0..rounds {
        let place = format!("seed {seed:#x}, round {round}");
        let mut command = env.command();
        command.args(["--mode", "rpc", "--model", &model]);
        if random.below(2) == 0 {
            command.arg("--continue");
        }
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut stdin = child.stdin.take().unwrap();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let mut commands = Vec::new();
        for _ in 0..1 + random.below(12) {
            number += 1;
            let files = session_files(&env.agent_dir());
            let mut command = match random.below(12) {
                0 => json!({"type": "new_session"}),
                1 if !files.is_empty() => {
                    json!({"type": "switch_session", "sessionPath": random.pick(&files)})
                }
                2 => json!({"type": "set_session_name", "name": format!("name {number}")}),
                3 => json!({"type": "get_fork_messages"}),
                _ => prompt(number),
            };
            command["id"] = json!(number.to_string());
            commands.push(command);
        }
        number += 1;
        commands.push(prompt(number));
        let last = json!(number.to_string());
        let text: String = commands.iter().map(|command| format!("{command}\n")).collect();
        stdin.write_all(text.as_bytes()).unwrap();

        let mut lines: Vec<Value> = Vec::new();
        let mut is_last_run = false;
        for _ in 0..random.below(150) {
            let mut line = String::new();
            stdout.read_line(&mut line).unwrap();
            let line: Value = serde_json::from_str(&line).unwrap();
            is_last_run |= line["id"] == last;
            // After it nothing may come.
            let is_over = is_last_run && line["type"] == "agent_end";
            // Forks begin from messages that it has.
            if let Some(entry) = line["data"]["messages"][0]["entryId"].as_str() {
                number += 1;
                let fork = json!({"id": number.to_string(), "type": "fork", "entryId": entry});
                writeln!(stdin, "{fork}").unwrap();
                let label = format!("label {number}");
                let label = json!({"id": format!("{number}l"), "type": "set_label",
                    "entryId": entry, "label": label});
                writeln!(stdin, "{label}").unwrap();
                commands.push(fork);
                commands.push(label);
            }
            lines.push(line);
            if is_over {
                break;
            }
        }
        // SIGKILL
        child.kill().unwrap();
        let mut rest = Vec::new();
        stdout.read_to_end(&mut rest).unwrap();
        child.wait().unwrap();
        // The last line may be cut off.
        for line in rest.split_inclusive(|byte| *byte == b'\n') {
            if line.ends_with(b"\n") {
                lines.push(serde_json::from_slice(line).unwrap());
            }
        }

        let files = session_files(&env.agent_dir());
        let mut kept = Vec::new();
        for file in &files {
            mend_tail(&env, file);
            kept.extend(sound_lines(file));
        }
        for line in &lines {
            if line["type"] == "message_end" {
                announced += 1;
                let is_kept = kept.iter().any(|entry| entry["message"] == line["message"]);
                assert!(is_kept, "{place}: announced and lost: {line}");
            }
            // Labels too are written before they are acknowledged.
            let sent = commands.iter().find(|command| command["id"] == line["id"]);
            if let Some(sent) = sent
                && line["type"] == "response"
                && sent["type"] == "set_label"
                && line["success"] == true
            {
                let is_kept = kept.iter().any(|entry| entry["label"] == sent["label"]);
                assert!(is_kept, "{place}: acknowledged and lost: {sent}");
            }
        }
    }
    let files = session_files(&env.agent_dir());
    assert!(files.len() > 1, "nothing happened");
    for file in &files {
        let mut wharf = open(&env, file);
        state(&mut wharf);
        end(wharf);
    }
    assert!(announced > 2 * rounds, "only {announced} messages");
}

/// A write that was cut off leaves half a line, which the next write moves away.
fn mend_tail(env: &Env, file: &std::path::Path) {
    if fs::read(file).unwrap().ends_with(b"\n") {
        return;
    }
    let mut wharf = open(env, file);
    wharf.run("mends");
    end(wharf);
}

#[test]
fn what_was_announced_is_on_the_disk_after_a_kill_between_sessions() {
    killed_while_sessions_change(0x9e37_79b9_7f4a_7c15, 20);
}

#[test]
fn what_was_announced_is_on_the_disk_after_a_kill_between_sessions_with_another_seed() {
    killed_while_sessions_change(0x0123_4567_89ab_cdef, 20);
}

/// The listing of one process sees what another one has announced.
#[test]
fn another_process_lists_and_copies_while_messages_are_written() {
    let env = Env::new();
    let mut writer = start(&env, &[]);
    writer.run("first");
    let file = super::session_file(&mut writer);
    let mut reader = start(&env, &[]);
    for round in 1..15 {
        writer.run(&format!("round {round}"));
        let data = reader.data(json!({"type": "list_sessions"}));
        let sessions = data["sessions"].as_array().unwrap();
        let listed = sessions.iter().find(|session| session["path"] == file.to_str().unwrap());
        assert_eq!(listed.unwrap()["messageCount"], 2 * (round + 1), "{data}");
        let fork = json!({"type": "switch_session", "sessionPath": file, "fork": true});
        reader.data(fork);
        let copied = super::messages(&mut reader);
        assert_eq!(copied.len(), 2 * (round + 1));
        assert_eq!(text_of(&copied[2 * round]), format!("round {round}"));
    }
    end(reader);
    end(writer);
}
