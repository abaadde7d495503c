//! Damaged files as a client meets them: they open with every whole entry, what is wrong
//! is told with its line, looking writes nothing, and they go on.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use wharf_tests::{Env, Wharf};

use super::{
    any_reply, contents, diagnostics, end, is_session_diagnostic, lock_of, messages, open, start,
    state, switch, text_of, texts,
};

const UUID: &str = "0f8fad5b-d9cb-469f-a165-70867728950e";

fn header(env: &Env) -> String {
    json!({"type": "session", "version": 3, "id": UUID, "timestamp": "2024-12-03T14:00:00.000Z",
        "cwd": env.project()})
    .to_string()
}

/// The message `text`, whose id is made of `id`.
fn entry(id: u32, parent: Option<u32>, text: &str) -> String {
    let name = |id: u32| format!("{id:08x}");
    json!({"type": "message", "id": name(id), "parentId": parent.map(name),
        "timestamp": format!("2024-12-03T14:00:{id:02}.000Z"),
        "message": {"role": "user", "content": text, "timestamp": 1_733_234_400_000_u64 + u64::from(id)}})
    .to_string()
}

struct Case {
    name: &'static str,
    bytes: Vec<u8>,
    /// Of the messages that it opens with.
    texts: &'static [&'static str],
    /// Those that are named, in order and once each.
    lines: &'static [usize],
}

fn cases(env: &Env) -> Vec<Case> {
    let head = header(env);
    let [a, b, c] = [entry(1, None, "a"), entry(2, Some(1), "b"), entry(3, Some(2), "c")];
    let case =
        |name, text: String, texts, lines| Case { name, bytes: text.into_bytes(), texts, lines };
    let whole = format!("{head}\n{a}\n{b}\n{c}\n");
    let abc = &["a", "b", "c"][..];
    vec![
        case("sound", whole.clone(), abc, &[]),
        case("torn last line", whole[..whole.len() - 30].to_owned(), &["a", "b"], &[4]),
        case("torn by a byte", whole[..whole.len() - 2].to_owned(), &["a", "b"], &[4]),
        case("no final newline", whole[..whole.len() - 1].to_owned(), abc, &[4]),
        case("NULs at the end", format!("{whole}{}", "\0".repeat(4096)), abc, &[5]),
        case("NULs in a line", format!("{head}\n{a}\n\0\0\0{b}\0\n{c}\n"), abc, &[3]),
        case(
            "NULs in place of a line",
            format!("{head}\n{a}\n{}\n{c}\n", "\0".repeat(99)),
            &["a", "c"],
            &[3, 4],
        ),
        case("bad middle line", format!("{head}\n{a}\n{{\"type\":\"mess\n{b}\n{c}\n"), abc, &[3]),
        case(
            "lost middle entry",
            format!("{head}\n{a}\n{}\n{c}\n", &b[..60]),
            &["a", "c"],
            &[3, 4],
        ),
        case("two objects on a line", format!("{head}\n{a}{b}\n{c}\n"), abc, &[2]),
        case("all objects on a line", format!("{head}\n{a}{b} {c}\n"), abc, &[2]),
        case(
            "cut prefix and whole object",
            format!("{head}\n{a}\n{}{b}\n{c}\n", &a[..44]),
            abc,
            &[3],
        ),
        case("CRLF", whole.replace('\n', "\r\n"), abc, &[1]),
        case("byte order mark", format!("\u{feff}{whole}"), abc, &[1]),
        case("empty lines", format!("{head}\n\n{a}\n \n{b}\n\n\n{c}\n\n"), abc, &[]),
        case("empty", String::new(), &[], &[1]),
        case("only NULs", "\0".repeat(512), &[], &[1]),
        case("missing header", format!("{a}\n{b}\n{c}\n"), abc, &[1]),
        case("garbage for a header", format!("garbage\n{a}\n{b}\n{c}\n"), abc, &[1]),
        case("second header", format!("{head}\n{a}\n{head}\n{b}\n{c}\n"), abc, &[3]),
        case(
            "duplicate ids",
            format!("{head}\n{a}\n{}\n{c}\n", entry(1, Some(1), "b")),
            abc,
            &[3, 4],
        ),
        case("orphan", format!("{head}\n{a}\n{}\n{}\n", entry(2, Some(77), "b"), c), abc, &[3]),
        case(
            "only orphans",
            format!("{head}\n{b}\n{}\n", entry(3, Some(78), "c")),
            &["b", "c"],
            &[2, 3],
        ),
        case("own parent", format!("{head}\n{a}\n{}\n{c}\n", entry(2, Some(2), "b")), abc, &[3]),
        case("cycle", format!("{head}\n{a}\n{}\n{c}\n", entry(2, Some(3), "b")), abc, &[3]),
    ]
}

/// Opening a file told these lines of it, and nothing else.
#[track_caller]
fn check_told(case: &str, told: &[String], file: &Path, lines: &[usize]) {
    let prefix = format!("session {}, line ", file.display());
    let mut found: Vec<usize> = told
        .iter()
        .map(|text| {
            let rest = text.strip_prefix(&prefix).unwrap_or_else(|| panic!("{case}: {text}"));
            rest.split_once(':').unwrap().0.parse().unwrap()
        })
        .collect();
    found.sort_unstable();
    found.dedup();
    assert_eq!(found, lines, "{case}: {told:?}");
}

/// What has been told before the answer to `get_state`.
fn told_at_start(wharf: &mut Wharf) -> Vec<String> {
    state(wharf);
    diagnostics(wharf.passed())
}

#[test]
fn damaged_files_open_are_told_and_go_on() {
    let env = Env::new();
    for case in cases(&env) {
        let Case { name, bytes, texts: expected, lines } = case;
        let folder = env.project().join(name);
        fs::create_dir(&folder).unwrap();
        let file = folder.join("s.jsonl");
        fs::write(&file, &bytes).unwrap();
        let modified = fs::metadata(&file).unwrap().modified().unwrap();

        let mut wharf = open(&env, &file);
        check_told(name, &told_at_start(&mut wharf), &file, lines);
        assert_eq!(texts(&mut wharf), expected, "{name}");
        for look in ["get_tree", "get_fork_messages", "get_session_stats"] {
            wharf.data(json!({"type": look}));
        }
        let output = folder.join("page.html");
        wharf.data(json!({"type": "export_html", "outputPath": output}));
        fs::remove_file(output).unwrap();
        // Looking changes nothing.
        assert_eq!(fs::read(&file).unwrap(), bytes, "{name}");
        assert_eq!(fs::metadata(&file).unwrap().modified().unwrap(), modified, "{name}");
        let names: Vec<PathBuf> = contents(&folder).into_iter().map(|(path, _)| path).collect();
        assert_eq!(names, [file.clone(), lock_of(&file)], "{name}");
        end(wharf);
        assert_eq!(contents(&folder), [(file.clone(), bytes.clone())], "{name}");

        let mut wharf = open(&env, &file);
        let told = diagnostics(&wharf.run("more"));
        check_told(name, &told, &file, lines);
        assert_eq!(session_path(&mut wharf), file, "{name}");
        end(wharf);
        // Whatever was cut off or replaced is kept beside it.
        let kept: Vec<u8> = contents(&folder).into_iter().flat_map(|(_, bytes)| bytes).collect();
        for line in bytes.split(|byte| *byte == b'\n').filter(|line| line.len() > 1) {
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            let line = line.strip_prefix("\u{feff}".as_bytes()).unwrap_or(line);
            assert!(kept.windows(line.len()).any(|part| part == line), "{name}: a line is gone");
        }

        let mut expected: Vec<&str> = expected.to_vec();
        expected.extend(["more", "ok"]);
        for _ in 0..2 {
            let mut again = open(&env, &file);
            let told = told_at_start(&mut again);
            assert!(!told.iter().any(|text| text.contains("cut off")), "{name}: {told:?}");
            assert_eq!(texts(&mut again), expected, "{name}");
            end(again);
        }
        check_appended(name, &file);
    }
}

fn session_path(wharf: &mut Wharf) -> PathBuf {
    super::session_file(wharf)
}

/// The last two lines are what was appended, each whole, the second below the first.
#[track_caller]
fn check_appended(name: &str, file: &Path) {
    let bytes = fs::read(file).unwrap();
    assert!(bytes.ends_with(b"\n"), "{name}");
    let lines: Vec<&[u8]> = bytes[..bytes.len() - 1].split(|byte| *byte == b'\n').collect();
    let last: Vec<Value> = lines[lines.len() - 2..]
        .iter()
        .map(|line| serde_json::from_slice(line).unwrap_or_else(|error| panic!("{name}: {error}")))
        .collect();
    assert_eq!(last[1]["parentId"], last[0]["id"], "{name}");
    assert_eq!(
        [text_of(&last[0]["message"]), text_of(&last[1]["message"])],
        ["more", "ok"],
        "{name}"
    );
}

/// Not only the session that a run begins with.
#[test]
fn damage_is_told_by_a_switch_and_by_every_mode() {
    let env = Env::new();
    let cases = cases(&env);
    let mut wharf = start(&env, &[]);
    for Case { name, bytes, texts: expected, lines } in &cases {
        let file = env.write(&format!("{name}.jsonl"), bytes);
        let switched = switch(&mut wharf, &file);
        assert_eq!(switched["success"], true, "{name}: {switched}");
        state(&mut wharf);
        let mut told = Vec::new();
        while wharf.passed().any(is_session_diagnostic) {
            let line = wharf.wait_for("a diagnostic", is_session_diagnostic);
            told.push(line["error"].as_str().unwrap().to_owned());
        }
        check_told(name, &told, &file, lines);
        assert_eq!(texts(&mut wharf), *expected, "{name}");
        assert_eq!(fs::read(&file).unwrap(), *bytes, "{name}");
    }
    end(wharf);

    let model = any_reply(&env);
    let Case { name, lines, .. } =
        cases.iter().find(|case| case.name == "lost middle entry").unwrap();
    let file = env.project().join(format!("{name}.jsonl"));
    for mode in [&["-p", "more"][..], &["--mode", "json", "more"]] {
        let args = [mode, &["--model", &model, "--session", file.to_str().unwrap()]].concat();
        let output = env.command().args(args).stdin(std::process::Stdio::null()).output().unwrap();
        assert_eq!(output.status.code(), Some(0));
        let err = String::from_utf8(output.stderr).unwrap();
        let out = String::from_utf8(output.stdout).unwrap();
        for line in *lines {
            let place = format!("{}, line {line}:", file.display());
            assert_eq!(err.matches(&place).count(), 1, "{err}");
            let events = usize::from(mode[0] == "--mode");
            assert_eq!(out.matches(&place).count(), events, "{out}");
        }
    }
}

/// A copy of a damaged file has whole lines only and all that could be read; the damaged
/// one stays as it is.
#[test]
fn copies_of_damaged_files_have_whole_lines() {
    let env = Env::new();
    for Case { name, bytes, texts: expected, .. } in cases(&env) {
        let file = env.write(&format!("{name}.jsonl"), &bytes);
        if expected.is_empty() {
            let mut wharf = start(&env, &[]);
            let fork = json!({"type": "switch_session", "sessionPath": file, "fork": true});
            let refused = wharf.request(fork);
            assert_eq!(refused["success"], false, "{name}: {refused}");
            end(wharf);
            continue;
        }
        let mut wharf = start(&env, &["--fork", file.to_str().unwrap()]);
        assert_eq!(texts(&mut wharf), expected, "{name}");
        wharf.run("more");
        let copy = session_path(&mut wharf);
        assert_eq!(messages(&mut wharf).len(), expected.len() + 2);
        end(wharf);
        assert_eq!(fs::read(&file).unwrap(), bytes, "{name}");
        for line in fs::read_to_string(&copy).unwrap().lines() {
            serde_json::from_str::<Value>(line).unwrap_or_else(|error| panic!("{name}: {error}"));
        }
        let mut again = open(&env, &copy);
        assert_eq!(texts(&mut again)[..expected.len()], *expected, "{name}");
        assert_eq!(messages(&mut again).len(), expected.len() + 2);
        end(again);
    }
}

/// A garbled file of many lines costs no flood of events.
#[test]
fn a_wholly_garbled_file_is_told_in_bounds() {
    let env = Env::new();
    let [a, b] = [entry(1, None, "a"), entry(2, Some(1), "b")];
    let text = format!("{}\n{a}\n{}{b}\n", header(&env), "garbage\n".repeat(100_000));
    let file = env.write("garbled.jsonl", &text);
    let mut wharf = open(&env, &file);
    let told = told_at_start(&mut wharf);
    assert!(!told.is_empty() && told.len() <= 200, "{}", told.len());
    assert_eq!(texts(&mut wharf), ["a", "b"]);
    // Those that are not told one by one are counted.
    assert!(told.iter().any(|text| text.contains("99900")), "{:?}", told.last());
    end(wharf);
    assert_eq!(fs::read_to_string(&file).unwrap(), text);
}
