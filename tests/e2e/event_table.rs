//! How the answers of several extensions combine, as it was observed: `docs/events.md` is
//! written from what these tests see. And who is told of what, once and in order.

mod answers;
mod lab;
mod notifications;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::sync::Mutex;
use std::thread;

use serde_json::Value;

use self::answers::Answered;
use self::lab::{Compiled, Lab, NOTHING, Seen};
use self::notifications::{OF_THE_SESSION, ON_THE_WIRE, THINNED, as_on_the_wire, on_the_wire};
use crate::wit_coverage::Contract;

const SUBSCRIBERS: [usize; 3] = [0, 1, 3];

/// How many binaries run at a time.
const WORKERS: usize = 4;

const HEAD: &str = "\
# How extensions combine

Each row is a case that was run with the real program, and what was observed. This page is
written by the test `event_table`; `UPDATE_DOCS=1 cargo xtask test event_table` writes it
anew.

How to read it: the extensions `a`, `b` and `c` are loaded in this order and subscribe to
every event. *answers* says what each of them answers; `-` changes nothing, `fail` is an
error and `trap` a panic, and a row of one answer is `a` alone. *asked* says who was asked, in
which order, and what they saw. Where an event carries a text, it is `x`, and an extension
that changes it adds its own letter: `b: xa` is `b` being asked about what `a` has made of it.
*reported* are the extensions of which an `extension_error` told.
";

const NOTIFICATIONS_HEAD: &str = "\
## Notifications

They have no answer. One run has them all: replies with tools, one that was torn and one that
was cut off, another model, a compaction, a move in the tree, a fork, a switch, a new
session, the end. *told* says how often each extension was told; updates are thinned, how
many there are is a matter of time. Then `b` answers every event with an error, or panics at
the first one of the kind: who was reported, and whether the others were told as often as
without it.
";

/// One line of the page.
struct Row {
    answers: String,
    asked: String,
    outcome: String,
    reported: String,
}

fn dash(text: String) -> String {
    if text.is_empty() { "nobody".to_owned() } else { text }
}

fn asked(event: &Answered, seen: &[Seen]) -> String {
    let mut seen: Vec<&Seen> = seen.iter().filter(|one| one.event == event.event).collect();
    // All are asked at the same time.
    if event.at_start {
        seen.sort_by_key(|one| one.letter);
    }
    let words = seen.iter().map(|one| match one.what.as_str() {
        "" => one.letter.to_string(),
        what => format!("{}: {what}", one.letter),
    });
    dash(words.collect::<Vec<_>>().join(", "))
}

fn row(event: &Answered, lab: &mut Lab, answers: &[&str]) -> Row {
    let outcome = event.happen(lab, answers);
    let otherwise = lab.reported_otherwise(event.event);
    assert!(otherwise.is_empty(), "{} {answers:?}: {otherwise:?}", event.event);
    let reported = lab.reported(event.event);
    let reported: Vec<String> = reported.keys().map(char::to_string).collect();
    Row {
        answers: dash(answers.join(", ")),
        asked: asked(event, &lab.seen()),
        outcome,
        reported: reported.join(", "),
    }
}

/// All cases of an event with so many subscribers.
fn rows(compiled: &Compiled, event: &Answered, subscribers: usize) -> Vec<Row> {
    let mut lab = Lab::new(compiled, subscribers);
    answers::write_resources(&lab);
    if !event.at_start {
        lab.start();
    }
    event.cases(subscribers).iter().map(|case| row(event, &mut lab, case)).collect()
}

/// Does all the work with a few threads; the results are in the order of the work.
fn in_parallel<W: Sync, R: Send>(work: &[W], run: impl Fn(&W) -> R + Sync) -> Vec<R> {
    let next = Mutex::new(0..work.len());
    let done = Mutex::new(BTreeMap::new());
    thread::scope(|scope| {
        for _ in 0..WORKERS {
            scope.spawn(|| {
                loop {
                    let Some(at) = next.lock().unwrap().next() else { return };
                    let result = run(&work[at]);
                    done.lock().unwrap().insert(at, result);
                }
            });
        }
    });
    done.into_inner().unwrap().into_values().collect()
}

fn table(page: &mut String, head: &[&str], rows: impl Iterator<Item = Vec<String>>) {
    let mut line = |cells: &[String]| {
        let cells: Vec<String> = cells.iter().map(|cell| cell.replace('|', "\\|")).collect();
        writeln!(page, "| {} |", cells.join(" | ")).unwrap();
    };
    line(&head.iter().map(|it| (*it).to_owned()).collect::<Vec<_>>());
    line(&vec!["---".to_owned(); head.len()]);
    rows.for_each(|row| line(&row));
}

fn answered(page: &mut String, compiled: &Compiled) {
    let work: Vec<(&Answered, usize)> = answers::ALL
        .iter()
        .flat_map(|event| SUBSCRIBERS.map(|subscribers| (event, subscribers)))
        .collect();
    let results = in_parallel(&work, |(event, subscribers)| rows(compiled, event, *subscribers));
    let mut results = work.iter().zip(results).peekable();
    while let Some(((event, _), rows)) = results.next() {
        let mut all = rows;
        while let Some((_, more)) = results.next_if(|((other, _), _)| other.event == event.event) {
            all.extend(more);
        }
        writeln!(page, "\n## `{}`\n", event.event).unwrap();
        let cells =
            all.into_iter().map(|row| vec![row.answers, row.asked, row.outcome, row.reported]);
        table(page, &["answers", "asked", "what comes of it", "reported"], cells);
    }
}

/// How often each extension was told of an event, as `a 2, b 2, c 2`.
fn told(lab: &Lab, seen: &[Seen], event: &str) -> String {
    let counts = lab.combiners().iter().map(|name| {
        let letter = name.chars().last().unwrap();
        let count = seen.iter().filter(|one| one.letter == letter && one.event == event).count();
        match count {
            1.. if THINNED.contains(&event) => format!("{letter} some"),
            count => format!("{letter} {count}"),
        }
    });
    dash(counts.collect::<Vec<_>>().join(", "))
}

/// What became of an extension's fault, as `b; a and c are told`.
fn fault(lab: &Lab, seen: &[Seen], event: &str, without: &[Seen]) -> String {
    let letters = lab.reported(event).keys().map(char::to_string).collect::<Vec<_>>();
    let count = |seen: &[Seen], letter| {
        let count = seen.iter().filter(|one| one.letter == letter && one.event == event).count();
        if THINNED.contains(&event) { count.min(1) } else { count }
    };
    let others = ['a', 'c'].into_iter().all(|it| count(seen, it) == count(without, it));
    let others = if others { "the others are told" } else { "the others are NOT told" };
    format!("{} reported, {others}", dash(letters.join(", ")))
}

fn notified(page: &mut String, compiled: &Compiled, events: &[String]) {
    #[derive(Clone)]
    enum Run {
        Plain(usize),
        Fails,
        Traps(String),
    }
    let mut work: Vec<Run> = SUBSCRIBERS.map(Run::Plain).to_vec();
    work.push(Run::Fails);
    work.extend(events.iter().cloned().map(Run::Traps));
    let mut results = in_parallel(&work, |run| {
        let mut lab = Lab::new(compiled, if let Run::Plain(count) = run { *count } else { 3 });
        match run {
            Run::Plain(_) => {}
            Run::Fails => {
                events.iter().for_each(|event| lab.set(event, &[NOTHING, "fail", NOTHING]));
            }
            Run::Traps(event) => lab.set(event, &[NOTHING, "trap once", NOTHING]),
        }
        notifications::story(&mut lab);
        let seen = lab.seen();
        (lab, seen)
    })
    .into_iter();
    let mut next = || results.next().unwrap();
    let (none, one, three, fails) = (next(), next(), next(), next());
    assert!(none.1.is_empty());
    writeln!(page, "\n{NOTIFICATIONS_HEAD}").unwrap();
    let rows = events.iter().map(|event| {
        let traps = next();
        vec![
            format!("`{event}`"),
            told(&one.0, &one.1, event),
            told(&three.0, &three.1, event),
            fault(&fails.0, &fails.1, event, &three.1),
            fault(&traps.0, &traps.1, event, &three.1),
        ]
    });
    let head = ["event", "told, of one", "told, of three", "`b` fails", "`b` traps"];
    table(page, &head, rows);
}

fn docs() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../docs/events.md")
}

#[test]
fn the_page_of_events_is_what_happens() {
    let contract = Contract::read();
    let ours: Vec<String> = answers::ALL.iter().map(|it| it.event.to_owned()).collect();
    let mut theirs = contract.answered_events();
    theirs.sort_by_key(|event| ours.iter().position(|it| it == event));
    assert_eq!(ours, theirs, "the page has not the events of the contract");

    let mut page = HEAD.to_owned();
    let compiled = Compiled::new();
    answered(&mut page, &compiled);
    notified(&mut page, &compiled, &contract.notifications());
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(docs(), &page).unwrap();
        return;
    }
    let kept = std::fs::read_to_string(docs()).unwrap_or_default();
    let first = kept.lines().zip(page.lines()).find(|(kept, now)| kept != now);
    assert!(
        kept == page,
        "docs/events.md is not what was observed; the first line that differs (page, observed): \
         {first:#?}. If that is meant, write it anew with \
         `UPDATE_DOCS=1 cargo xtask test event_table` and look at what has changed"
    );
}

/// Each extension is told what front ends are told, once and in the same order, and of the
/// session in the order of what was done.
#[test]
fn three_extensions_are_told_everything_once_and_in_order() {
    let mut lab = Lab::new(&Compiled::new(), 3);
    let lines = notifications::story(&mut lab);
    let all = lab.seen();
    let wire = on_the_wire(&lines);
    assert!(wire.len() > 30, "{wire:?}");
    let errors: Vec<&Value> =
        lines.iter().filter(|line| line["type"] == "extension_error").collect();
    assert!(errors.is_empty(), "{errors:?}");
    let mut lists = Vec::new();
    for letter in ['a', 'b', 'c'] {
        let seen: Vec<Seen> = all.iter().filter(|one| one.letter == letter).cloned().collect();
        assert_eq!(as_on_the_wire(&seen), wire, "{letter}");
        let session: Vec<&str> = seen
            .iter()
            .map(|one| one.event.as_str())
            .filter(|event| OF_THE_SESSION.contains(event))
            .collect();
        assert_eq!(session, OF_THE_SESSION, "{letter}");
        for event in ON_THE_WIRE.iter().chain(&OF_THE_SESSION) {
            assert!(seen.iter().any(|one| one.event == *event), "{letter} is not told of {event}");
        }
        // Updates belong to the message and the call that are under way.
        let mut open: Option<&str> = None;
        for one in &seen {
            match one.event.as_str() {
                "message_start" => open = Some("message"),
                "message_end" => open = None,
                "message_update" => assert_eq!(open, Some("message"), "{letter}"),
                _ => {}
            }
        }
        let known = |one: &&Seen| {
            let event = one.event.as_str();
            let is_known = ON_THE_WIRE.contains(&event) || OF_THE_SESSION.contains(&event);
            is_known && !THINNED.contains(&event)
        };
        let list: Vec<(String, String)> =
            seen.iter().filter(known).map(|one| (one.event.clone(), one.what.clone())).collect();
        lists.push(list);
    }
    assert_eq!(lists[0], lists[1]);
    assert_eq!(lists[0], lists[2]);
}
