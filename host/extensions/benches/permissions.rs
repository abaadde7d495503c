//! Judging alone, without what is then done: a file, a host and a program against 1, 10
//! and 100 granted patterns, where the last one fits (`granted`) or none does (`denied`).
//! An address is parsed anew each time, a path has been resolved before.

use std::hint::black_box;
use std::path::Path;

use criterion::Criterion;
use wharf_extensions::Permission;
use wharf_extensions::for_benches::Judge;

fn main() {
    let mut criterion = Criterion::default().configure_from_args();
    for count in [1, 10, 100] {
        files(&mut criterion, count);
        hosts(&mut criterion, count);
        programs(&mut criterion, count);
    }
    criterion.final_summary();
}

/// `count` permissions, numbered from 1.
fn judge(count: usize, permission: impl Fn(usize) -> Permission) -> Judge {
    let granted: Vec<_> = (1..=count).map(permission).collect();
    Judge::new(&granted)
}

fn bench(criterion: &mut Criterion, name: &str, expected: bool, judge: impl Fn() -> bool) {
    assert_eq!(judge(), expected, "{name}");
    criterion.bench_function(name, |bencher| bencher.iter(|| black_box(judge())));
}

fn files(criterion: &mut Criterion, count: usize) {
    let judge = judge(count, |number| Permission::FsRead(format!("docs{number}/**/*.md")));
    let granted = format!("docs{count}/guide/chapters/one.md");
    for (word, path) in [("granted", granted.as_str()), ("denied", "src/guide/chapters/one.md")] {
        let name = format!("permission check: file {word}, {count} patterns");
        bench(criterion, &name, word == "granted", || judge.reads(black_box(Path::new(path))));
    }
}

fn hosts(criterion: &mut Criterion, count: usize) {
    let judge = judge(count, |number| Permission::Net(format!("*.host{number}.example.org")));
    let granted = format!("https://api.host{count}.example.org/v1/items?limit=10");
    let denied = "https://api.example.com/v1/items?limit=10";
    for (word, url) in [("granted", granted.as_str()), ("denied", denied)] {
        let name = format!("permission check: host {word}, {count} patterns");
        bench(criterion, &name, word == "granted", || judge.connects(black_box(url)));
    }
}

fn programs(criterion: &mut Criterion, count: usize) {
    let words = |number: usize| ["git".to_owned(), format!("command{number}"), "**".to_owned()];
    let judge = judge(count, |number| Permission::Exec(words(number).into()));
    let granted = [format!("command{count}"), "--porcelain".to_owned(), "src".to_owned()];
    let denied = ["push".to_owned(), "--force".to_owned(), "origin".to_owned()];
    for (word, arguments) in [("granted", &granted), ("denied", &denied)] {
        let name = format!("permission check: program {word}, {count} patterns");
        bench(criterion, &name, word == "granted", || judge.runs("git", black_box(arguments)));
    }
}
