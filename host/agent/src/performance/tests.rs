#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::os::unix::fs::{PermissionsExt, symlink};
use std::thread;

use proptest::prelude::*;
use tempfile::TempDir;

use super::*;

const NOW: &str = "2026-03-31T12:00:00.000Z";

fn now() -> Timestamp {
    Timestamp::parse(NOW).unwrap()
}

/// A log in a directory that does not exist yet.
fn log() -> (TempDir, PerformanceLog) {
    let dir = tempfile::tempdir().unwrap();
    let log = PerformanceLog::new(dir.path().join("agent/performance.jsonl"));
    (dir, log)
}

/// A log that has this content.
fn log_with(content: impl AsRef<[u8]>) -> (TempDir, PerformanceLog) {
    let (dir, log) = log();
    fs::create_dir(log.path.parent().unwrap()).unwrap();
    fs::write(&log.path, content).unwrap();
    (dir, log)
}

fn entry(model: &str) -> PerformanceEntry {
    PerformanceEntry {
        timestamp: now(),
        session_id: "s".to_owned(),
        provider: "p".to_owned(),
        model_id: model.to_owned(),
        stop_reason: StopReason::Stop,
        output_tokens: 50,
        duration: Duration::from_secs(2),
    }
}

fn written(timestamp: &str, model: &str, tps: f64) -> String {
    format!(
        "{{\"timestamp\":\"{timestamp}\",\"provider\":\"p\",\"modelId\":\"{model}\",\"tps\":{tps}}}\n"
    )
}

fn read(log: &PerformanceLog) -> String {
    fs::read_to_string(&log.path).unwrap()
}

/// The models of the lines, `?` where a line is none.
fn models(log: &PerformanceLog) -> Vec<String> {
    let model = |line: &[u8]| match serde_json::from_slice::<Recorded>(line) {
        Ok(recorded) => recorded.model_id,
        Err(_) => "?".to_owned(),
    };
    let bytes = fs::read(&log.path).unwrap();
    let bytes = bytes.strip_suffix(b"\n").expect("the last line is whole");
    bytes.split(|byte| *byte == b'\n').map(model).collect()
}

#[test]
fn a_line_has_the_fields_of_the_format() {
    let (_dir, log) = log();
    let longer = Duration::from_micros(3_000_999);
    log.record_at(&PerformanceEntry { duration: longer, ..entry("m") }, now()).unwrap();
    log.record_at(&PerformanceEntry { output_tokens: 7, ..entry("n\"o") }, now()).unwrap();
    assert_eq!(
        read(&log),
        "{\"timestamp\":\"2026-03-31T12:00:00.000Z\",\"sessionId\":\"s\",\"provider\":\"p\",\"modelId\":\"m\",\"outputTokens\":50,\"durationMs\":3000,\"tps\":16.666666666666668}\n\
         {\"timestamp\":\"2026-03-31T12:00:00.000Z\",\"sessionId\":\"s\",\"provider\":\"p\",\"modelId\":\"n\\\"o\",\"outputTokens\":7,\"durationMs\":2000,\"tps\":3.5}\n"
    );
    assert_eq!(fs::metadata(&log.path).unwrap().mode() & 0o777, 0o600);
}

#[test]
fn only_replies_that_tell_a_speed_are_recorded() {
    let millis = Duration::from_millis;
    for (stop_reason, output_tokens, duration, expect) in [
        (StopReason::Stop, 1, millis(10), true),
        (StopReason::Length, 1, millis(10), true),
        (StopReason::ToolUse, 1, millis(10), true),
        (StopReason::Error, 1, millis(10), false),
        (StopReason::Aborted, 1, millis(10), false),
        (StopReason::Stop, 0, millis(10), false),
        (StopReason::Stop, 1, Duration::from_micros(9_999), false),
        (StopReason::Stop, 1, millis(0), false),
    ] {
        let (_dir, log) = log();
        let entry = PerformanceEntry { stop_reason, output_tokens, duration, ..entry("m") };
        log.record(entry).unwrap();
        let case = format!("{stop_reason:?} {output_tokens} {duration:?}");
        assert_eq!(log.path.exists(), expect, "{case}");
        assert_eq!(log.path.parent().unwrap().exists(), expect, "{case}");
    }
}

#[test]
fn statistics_are_of_the_latest_turns_of_each_model() {
    let fresh = "2026-03-31T11:00:00.000Z";
    let many: String = (0..250).map(|n| written(fresh, "m", f64::from(n))).collect();
    for (content, expect) in [
        (String::new(), vec![]),
        (written(fresh, "m", 3.0), vec![("m", 3.0, 3.0, 1)]),
        (
            [4.0, 1.0, 9.0, 2.0].map(|tps| written(fresh, "m", tps)).concat(),
            vec![("m", 3.0, 4.0, 4)],
        ),
        (
            [("b", 1.0), ("a", 5.0), ("b", 8.0), ("b", 3.0)]
                .map(|(model, tps)| written(fresh, model, tps))
                .concat(),
            vec![("a", 5.0, 5.0, 1), ("b", 3.0, 4.0, 3)],
        ),
        (many, vec![("m", 199.5, 199.5, 100)]),
        // At the edge of the 30 days, and past it.
        (
            written("2026-03-01T12:00:00.000Z", "m", 1.0)
                + &written("2026-03-01T11:59:59.999Z", "m", 2.0),
            vec![("m", 1.0, 1.0, 1)],
        ),
        // What cannot be read is skipped.
        (
            "no\n\n[]\n{\"timestamp\":\"x\"}\n".to_owned()
                + &written("someday", "m", 1.0)
                + &written(fresh, "m", 2.0)
                + &written(fresh, "m", 3.0).trim_end().replace('}', ""),
            vec![("m", 2.0, 2.0, 1)],
        ),
    ] {
        let (_dir, log) = log_with(&content);
        let expect: Vec<_> = expect
            .into_iter()
            .map(|(model, median, mean, count)| ModelPerformance {
                provider: "p".to_owned(),
                model_id: model.to_owned(),
                median,
                mean,
                count,
            })
            .collect();
        assert_eq!(log.stats_at(now()).unwrap(), expect, "{content}");
        assert_eq!(read(&log), content, "reading changes nothing");
    }
}

#[test]
fn what_is_recorded_is_counted() {
    let (_dir, log) = log();
    assert_eq!(log.stats().unwrap(), []);
    assert!(!log.path.exists());
    let entry = PerformanceEntry { timestamp: Timestamp::now(), ..entry("m") };
    log.record(entry).unwrap();
    let stats = log.stats().unwrap();
    assert_eq!(
        serde_json::to_string(&stats).unwrap(),
        r#"[{"provider":"p","modelId":"m","median":25.0,"mean":25.0,"count":1}]"#
    );
}

#[test]
fn what_is_no_file_is_an_error_that_names_it() {
    let (dir, _) = log();
    let log = PerformanceLog::new(dir.path().to_owned());
    let path = dir.path().display();
    for error in [log.record(entry("m")).unwrap_err(), log.stats().unwrap_err()] {
        assert!(error.to_string().contains(&format!("the performance log {path}: ")), "{error}");
    }
}

/// A prune comes when the first line is 31 days old, and takes all that is older than 30.
#[test]
fn old_entries_go_once_a_day() {
    let fresh = written("2026-03-30T00:00:00.000Z", "fresh", 1.0);
    let old = written("2026-03-01T11:59:59.999Z", "old", 1.0);
    let older = written("2026-02-28T11:59:59.999Z", "older", 1.0);
    let future = written("2027-01-01T00:00:00.000Z", "future", 1.0);
    let undated = "{\"modelId\":1}\n".to_owned();
    for (lines, expect) in [
        (vec![], vec!["new"]),
        (vec![&fresh], vec!["fresh", "new"]),
        // Past its time, but for less than a day.
        (vec![&old, &fresh], vec!["old", "fresh", "new"]),
        (vec![&older, &old, &fresh], vec!["fresh", "new"]),
        (vec![&older, &fresh, &old], vec!["fresh", "new"]),
        // As old as the line before.
        (vec![&older, &undated, &fresh, &undated], vec!["fresh", "?", "new"]),
        (vec![&undated, &fresh], vec!["fresh", "new"]),
        (vec![&undated], vec!["new"]),
        // A clock that went wrong once does not stop pruning for a year.
        (vec![&future, &older, &fresh], vec!["future", "fresh", "new"]),
    ] {
        let content: String = lines.into_iter().map(String::as_str).collect();
        let (dir, log) = log_with(&content);
        log.record_at(&entry("new"), now()).unwrap();
        assert_eq!(models(&log), expect, "{content}");
        let files = fs::read_dir(dir.path().join("agent")).unwrap().count();
        assert_eq!(files, 1, "nothing temporary stays behind");
    }
}

#[test]
fn a_prune_keeps_link_and_permissions() {
    let (dir, log) = log_with(written("2026-01-01T00:00:00.000Z", "old", 1.0));
    let elsewhere = dir.path().join("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    let target = elsewhere.join("log");
    fs::rename(&log.path, &target).unwrap();
    fs::set_permissions(&target, fs::Permissions::from_mode(0o644)).unwrap();
    symlink("../elsewhere/log", &log.path).unwrap();
    log.record_at(&entry("new"), now()).unwrap();
    assert!(log.path.is_symlink());
    assert_eq!(models(&log), ["new"]);
    assert_eq!(fs::metadata(&target).unwrap().mode() & 0o777, 0o644);
}

/// Each thread has its own open file, as processes have.
#[test]
fn concurrent_writers_and_prunes_lose_nothing() {
    const WRITERS: usize = 4;
    const ENTRIES: usize = 100;
    let (_dir, log) = log();
    thread::scope(|scope| {
        for writer in 0..WRITERS {
            let log = &log;
            scope.spawn(move || {
                for n in 0..ENTRIES {
                    // Before each tenth one, something to prune.
                    if n % 10 == 0 {
                        let file = log.open_locked().unwrap();
                        append(&file, written("2026-01-01T00:00:00.000Z", "old", 1.0).as_bytes())
                            .unwrap();
                        log.prune(&file, now()).unwrap();
                    }
                    log.record_at(&entry(&format!("{writer} {n}")), now()).unwrap();
                }
            });
        }
    });
    let mut found = models(&log);
    found.sort();
    let mut expect: Vec<_> = (0..WRITERS)
        .flat_map(|writer| (0..ENTRIES).map(move |n| format!("{writer} {n}")))
        .collect();
    expect.sort();
    assert_eq!(found, expect);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// A crash may cut the file anywhere; whole lines and what comes after it survive.
    #[test]
    fn a_cut_costs_one_line_at_most(lines in 0_usize..5, cut in 0.0..1.0_f64) {
        let content: String = (0..lines)
            .map(|n| written("2026-03-31T11:00:00.000Z", &n.to_string(), 1.0))
            .collect();
        let cut = (content.len() as f64 * cut) as usize;
        let whole = content[..cut].matches('\n').count();
        let (_dir, log) = log_with(&content[..cut]);
        log.record_at(&entry("new"), now()).unwrap();
        let models: Vec<_> = models(&log).into_iter().filter(|model| model != "?").collect();
        let mut expect: Vec<_> = (0..whole).map(|n| n.to_string()).collect();
        // Cut before its line end, a line is all there.
        if content[cut..].starts_with('\n') {
            expect.push(whole.to_string());
        }
        expect.push("new".to_owned());
        prop_assert_eq!(models, expect);
    }

    /// Any content: recording works, and no entry of the last 30 days goes.
    #[test]
    fn whatever_is_there_entries_stay(lines in prop::collection::vec(prop_oneof![
        Just(written("2026-03-20T00:00:00.000Z", "fresh", 1.0).into_bytes()),
        Just(written("2026-01-01T00:00:00.000Z", "old", 1.0).into_bytes()),
        prop::collection::vec(any::<u8>(), 0..20).prop_map(|mut bytes| { bytes.push(b'\n'); bytes }),
    ], 0..8)) {
        let content = lines.concat();
        let fresh = lines.iter().filter(|line| line.windows(5).any(|part| part == b"fresh")).count();
        let (_dir, log) = log_with(&content);
        log.record_at(&entry("new"), now()).unwrap();
        let models = models(&log);
        prop_assert_eq!(models.iter().filter(|model| *model == "fresh").count(), fresh);
        prop_assert_eq!(models.last().map(String::as_str), Some("new"));
        let stats = log.stats_at(now()).unwrap();
        prop_assert_eq!(stats.iter().map(|model| model.count).sum::<usize>(), fresh + 1);
    }
}
