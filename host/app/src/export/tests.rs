//! The page as a browser would parse it: its structure, and that nothing of a session
//! becomes markup.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use scraper::{Html, Selector};
use serde_json::{Value, json};
use wharf_protocol::{AgentMessage, UserContent, UserMessage};
use wharf_session::Session;

use super::{ExportError, default_file_name, export, write_file};

const HEADER: &str = r#"{"type":"session","version":3,"id":"s-1","timestamp":"2024-12-03T14:00:00.000Z","cwd":"/x"}"#;

fn open(header: &str, entries: &[Value]) -> Session {
    let mut text = format!("{header}\n");
    for entry in entries {
        text.push_str(&format!("{entry}\n"));
    }
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("one.jsonl");
    fs::write(&path, text).unwrap();
    Session::open(&path).unwrap()
}

fn page(session: &Session) -> String {
    let mut out = Vec::new();
    export(session, &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

fn entry(id: &str, parent: Option<&str>, rest: Value) -> Value {
    let mut entry = json!({"id": id, "parentId": parent, "timestamp": "2024-12-03T14:00:01.000Z"});
    for (name, value) in rest.as_object().unwrap() {
        entry[name] = value.clone();
    }
    entry
}

fn message(id: &str, parent: Option<&str>, message: Value) -> Value {
    entry(id, parent, json!({"type": "message", "message": message}))
}

fn user(id: &str, parent: Option<&str>, text: &str) -> Value {
    message(id, parent, json!({"role": "user", "content": text}))
}

fn reply(id: &str, parent: Option<&str>, content: Value) -> Value {
    message(id, parent, json!({"role": "assistant", "content": content, "stopReason": "stop"}))
}

fn result(id: &str, parent: Option<&str>, call: &str, text: &str) -> Value {
    let content = json!([{"type": "text", "text": text}]);
    message(
        id,
        parent,
        json!({"role": "toolResult", "toolCallId": call, "toolName": "bash", "content": content}),
    )
}

/// The texts of the elements that `selector` finds.
fn texts(html: &Html, selector: &str) -> Vec<String> {
    html.select(&Selector::parse(selector).unwrap())
        .map(|element| element.text().collect::<String>().trim().to_owned())
        .collect()
}

#[test]
fn branches_stand_in_order() {
    let session = open(
        HEADER,
        &[
            user("a", None, "first"),
            reply("b", Some("a"), json!([{"type": "text", "text": "answer"}])),
            user("c", Some("b"), "old way"),
            user("d", Some("b"), "new way"),
            entry("e", Some("d"), json!({"type": "label", "targetId": "c", "label": "mark"})),
        ],
    );
    let html = Html::parse_document(&page(&session));
    assert_eq!(texts(&html, "h1"), ["first"]);
    assert_eq!(texts(&html, ".seg.on .prose"), ["first", "new way"]);
    assert_eq!(texts(&html, ".seg:not(.on) .prose"), ["old way"]);
    assert_eq!(texts(&html, ".forks li"), ["new way", "Branch 1 old way"]);
    assert_eq!(texts(&html, ".bookmarks li"), ["mark"]);
    assert_eq!(texts(&html, "#entry-c .label"), ["mark"]);
    assert_eq!(texts(&html, "nav details.branch li"), ["old way mark"]);
    assert_eq!(texts(&html, "nav li .leaf"), ["current leaf"]);

    session.set_leaf(Some("c")).unwrap();
    let html = Html::parse_document(&page(&session));
    assert_eq!(texts(&html, ".seg.on .prose"), ["first", "old way"]);
    assert_eq!(texts(&html, "#entry-c .leaf"), ["current leaf"]);
}

#[test]
fn results_stand_in_their_calls() {
    let call = |id: &str| json!({"type": "toolCall", "id": id, "name": "bash", "arguments": {"command": id}});
    let session = open(
        HEADER,
        &[
            reply("a", None, json!([call("one"), call("two"), call("never")])),
            entry("n", Some("a"), json!({"type": "thinking_level_change", "thinkingLevel": "low"})),
            result("b", Some("n"), "two", "second"),
            result("c", Some("b"), "one", "first"),
            result("d", Some("c"), "lost", "stray"),
            reply("e", Some("d"), json!([call("late")])),
            user("f", Some("e"), "stop"),
            result("g", Some("f"), "late", "too late"),
        ],
    );
    let html = Html::parse_document(&page(&session));
    assert_eq!(texts(&html, "#entry-a .tool:nth-of-type(1) #entry-c"), ["first"]);
    assert_eq!(texts(&html, "#entry-a .tool:nth-of-type(2) #entry-b"), ["second"]);
    assert_eq!(texts(&html, "#entry-a .tool:nth-of-type(3) .badge"), ["no result"]);
    assert_eq!(texts(&html, "article#entry-d .result"), ["stray"]);
    assert_eq!(texts(&html, "#entry-e .badge"), ["no result"]);
    assert_eq!(texts(&html, "article#entry-g .result"), ["too late"]);
    assert_eq!(texts(&html, ".note#entry-n b"), ["low"]);
}

#[test]
fn tools_show_what_they_did() {
    let calls = json!([
        {"type": "toolCall", "id": "r", "name": "read", "arguments": {"path": "a.rs", "offset": 5, "limit": 2}},
        {"type": "toolCall", "id": "w", "name": "write", "arguments": {"path": "b.rs", "content": "fn b() {}"}},
        {"type": "toolCall", "id": "e", "name": "edit", "arguments": {"path": "c.rs", "edits": [{"oldText": "x", "newText": "y"}]}},
        {"type": "toolCall", "id": "o", "name": "other", "arguments": {"deep": {"n": 1}}},
        {"type": "toolCall", "id": "b", "name": "bash", "arguments": {"command": 7}},
    ]);
    let session = open(HEADER, &[reply("a", None, calls)]);
    let html = Html::parse_document(&page(&session));
    assert_eq!(texts(&html, ".tool .arg"), ["a.rs:5-6", "b.rs", "c.rs", "", ""]);
    assert_eq!(texts(&html, ".tool:nth-of-type(2) .hk"), ["fn"]);
    assert_eq!(texts(&html, ".tool:nth-of-type(3) .del"), ["-x"]);
    assert_eq!(texts(&html, ".tool:nth-of-type(3) .ins"), ["+y"]);
    assert!(texts(&html, ".tool:nth-of-type(4) code")[1].contains("\"n\": 1"));
    assert!(texts(&html, ".tool:nth-of-type(5) code")[1].contains("\"command\": 7"));
}

#[test]
fn damage_is_told() {
    let session = open(HEADER, &[user("a", None, "one"), user("b", Some("gone"), "two")]);
    let html = Html::parse_document(&page(&session));
    assert_eq!(texts(&html, ".seg.on .prose"), ["one", "two"]);
    assert_eq!(texts(&html, ".note.warn").len(), 1);
    assert!(texts(&html, "dl").concat().contains("1 problems in the session file"));
}

#[test]
fn empty_sessions_have_a_page() {
    let session = Session::in_memory("/x".as_ref());
    let html = Html::parse_document(&page(&session));
    assert_eq!(texts(&html, "main .muted"), ["This session has no entries."]);
}

/// In a thread whose stack would not hold a frame for each of them.
#[test]
fn long_chains_and_deep_trees_need_no_stack() {
    let message = Arc::new(AgentMessage::User(UserMessage {
        content: UserContent::Text("x".to_owned()),
        timestamp: 1,
    }));
    let run = move || {
        let session = Session::in_memory("/x".as_ref());
        for _ in 0..100_000 {
            session.append_message(Arc::clone(&message));
        }
        // A branch of a branch of a branch.
        let last = session.leaf_id().unwrap();
        let mut parent = last.clone();
        for _ in 0..3_000 {
            session.set_leaf(Some(parent.as_str())).unwrap();
            let older = session.append_message(Arc::clone(&message)).0;
            session.set_leaf(Some(parent.as_str())).unwrap();
            session.append_message(Arc::clone(&message));
            parent = older;
        }
        session.set_leaf(Some(last.as_str())).unwrap();
        page(&session)
    };
    let html = std::thread::Builder::new().stack_size(512 * 1024).spawn(run).unwrap();
    let html = html.join().unwrap();
    assert_eq!(html.matches("<article ").count(), 106_000);
    let (mut depth, mut deepest) = (0_usize, 0);
    for tag in html.split('<') {
        if tag.starts_with("details") {
            depth += 1;
        } else if tag.starts_with("/details") {
            depth -= 1;
        }
        deepest = deepest.max(depth);
    }
    assert_eq!(depth, 0);
    assert!((10..100).contains(&deepest), "{deepest}");
}

#[test]
fn files() {
    let session = open(HEADER, &[user("a", None, "one")]);
    assert_eq!(default_file_name(&session), "wharf-session-one.html");
    let unsaved = open(r#"{"type":"session","version":3,"id":"../a b","cwd":"/x"}"#, &[]);
    assert_eq!(default_file_name(&unsaved), "wharf-session-one.html");
    let in_memory = Session::in_memory("/x".as_ref());
    assert_eq!(default_file_name(&in_memory), format!("wharf-session-{}.html", in_memory.id()));

    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("page.html");
    fs::write(&path, "old").unwrap();
    write_file(&session, &path).unwrap();
    assert_eq!(fs::read_to_string(&path).unwrap(), page(&session));
    let left: Vec<PathBuf> =
        fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert_eq!(left, [path]);

    let missing = dir.path().join("no/page.html");
    match write_file(&session, &missing) {
        Err(error @ ExportError::NoFolder { .. }) => {
            let folder = dir.path().join("no").display().to_string();
            assert!(
                error.to_string().contains(&format!("there is no folder {folder};")),
                "{error}"
            );
        }
        other => panic!("{other:?}"),
    }
    assert!(matches!(write_file(&session, dir.path()), Err(ExportError::Write { .. })));
}

/// Elements and the attributes that each may have.
fn allowed(element: &str) -> Option<&'static [&'static str]> {
    Some(match element {
        "html" => &["lang"],
        "head" | "body" | "title" | "style" | "script" | "footer" | "dl" | "dt" | "dd" | "kbd"
        | "b" | "bdi" | "em" | "strong" | "hr" | "br" | "table" | "thead" | "tbody" | "tr"
        | "th" | "td" | "blockquote" | "h3" | "h4" | "h5" | "h6" | "summary" => &[],
        "meta" => &["charset", "name", "content", "http-equiv"],
        "a" => &["href", "rel", "class", "title", "aria-label"],
        "header" | "pre" | "h2" | "del" => &["class"],
        "span" | "code" | "ul" => &["class"],
        "h1" => &["dir"],
        "div" => &["class", "id", "role", "dir"],
        "nav" => &["id", "aria-label"],
        "main" => &["id", "tabindex"],
        "section" => &["class", "data-seg", "data-prev", "data-next"],
        "article" => &["class", "id"],
        "details" => &["class", "id", "open"],
        "p" => &["class", "id", "hidden"],
        "ol" => &["start", "data-seg"],
        "li" => &["class", "data-to"],
        "time" => &["datetime", "title"],
        "img" => &["src", "alt", "loading"],
        "button" => &["type", "id", "aria-pressed", "aria-controls", "hidden"],
        "input" => &["type", "id", "placeholder", "aria-label"],
        "output" => &["id", "for", "hidden"],
        _ => return None,
    })
}

/// Panics where the page holds anything that a session could have put there.
fn check_safe(text: &str) -> Html {
    let html = Html::parse_document(text);
    assert_eq!(html.errors, Vec::<std::borrow::Cow<'_, str>>::new(), "{text}");
    let (mut scripts, mut styles) = (0, 0);
    for element in html.select(&Selector::parse("*").unwrap()) {
        let name = element.value().name();
        let attributes = allowed(name).unwrap_or_else(|| panic!("element {name}"));
        for (attribute, value) in element.value().attrs() {
            assert!(attributes.contains(&attribute), "{name} {attribute}={value}");
            let safe = match attribute {
                "href" => ["#", "http://", "https://", "mailto:"]
                    .iter()
                    .any(|start| value.to_ascii_lowercase().starts_with(start)),
                "src" => ["png", "jpeg", "gif", "webp"]
                    .iter()
                    .any(|kind| value.starts_with(&format!("data:image/{kind};base64,"))),
                "id" => !value.contains(char::is_whitespace),
                _ => true,
            };
            assert!(safe, "{name} {attribute}={value}");
        }
        let own: String = element.text().collect();
        match name {
            "script" => {
                scripts += 1;
                assert_eq!(own, include_str!("script.js"));
            }
            "style" => {
                styles += 1;
                assert_eq!(own, include_str!("style.css"));
            }
            _ => {}
        }
    }
    assert_eq!((scripts, styles), (1, 1));
    html
}

const HOSTILE: [&str; 30] = [
    "</script><script>document.title='owned'</script>",
    "<!--",
    "-->",
    "<![CDATA[",
    "]]>",
    "<img src=x onerror=\"document.title='owned'\">",
    "<svg/onload=alert(1)>",
    "\" onclick=\"alert(1)",
    "' onclick='alert(1)",
    "[a](javascript:alert(1))",
    "[a](data:text/html;base64,PGI+)",
    "![a](https://host/p.png \"t\")",
    "<https://host/\"><b>",
    "</style>",
    "</title>",
    "</textarea></pre></code></details></main>",
    "&lt;&amp;&#60;&#x3c;",
    "```html\n<b>\n```\n",
    "```diff\n+<b>\n",
    "> > - 1. <b>\n",
    "|a|<b>|\n|-|-|\n",
    "[x]: javascript:alert(1)\n[x]",
    "\u{202e}\u{2066}",
    "\u{2028}\u{2029}",
    "\0\u{1b}]8;;http://x\u{7}",
    "\u{feff}\u{fffe}\u{ffff}",
    "a b\tc\r\nd\re",
    "{\"a\": \"</script>\"}",
    "image/png\" onload=\"alert(1)",
    "~~*`<i>`*~~",
];

/// Pieces of attacks between arbitrary text.
fn hostile() -> impl Strategy<Value = String> {
    let piece = prop_oneof![3 => select(HOSTILE.to_vec()).prop_map(str::to_owned), 1 => ".{0,12}"];
    vec(piece, 0..4).prop_map(|pieces| pieces.concat())
}

/// One entry of each kind, with `s` in every field that holds text.
fn everywhere(s: &[String]) -> Vec<Value> {
    let s = |index: usize| s[index % s.len()].as_str();
    let blocks = |index| {
        json!([
            {"type": "text", "text": s(index)},
            {"type": "image", "data": s(index + 1), "mimeType": "image/png"},
            {"type": "image", "data": "AAAA", "mimeType": s(index + 2)},
        ])
    };
    let call = |id: &str, name: &str, arguments: Value| json!({"type": "toolCall", "id": id, "name": name, "arguments": arguments});
    let bodies = vec![
        json!({"type": "session_info", "name": s(0)}),
        json!({"type": "message", "message": {"role": "user", "content": s(1)}}),
        json!({"type": "message", "message": {"role": "user", "content": blocks(2)}}),
        json!({"type": "model_change", "provider": s(3), "modelId": s(4)}),
        json!({"type": "message", "message": {
            "role": "assistant", "provider": s(5), "model": s(6), "stopReason": "error", "errorMessage": s(7),
            "content": [
                {"type": "text", "text": s(8)},
                {"type": "thinking", "thinking": s(9)},
                call(s(10), s(11), json!({s(12): s(13), "path": s(14)})),
                call("1", "bash", json!({"command": s(0), "timeout": s(1)})),
                call("2", "read", json!({"path": s(2)})),
                call("3", "write", json!({"path": s(3), "content": s(4)})),
                call("4", "edit", json!({"path": s(5), "oldText": s(6), "newText": s(7)})),
            ],
        }}),
        json!({"type": "message", "message": {"role": "toolResult", "toolCallId": "2", "toolName": "read", "content": blocks(8), "details": {s(9): s(10)}}}),
        json!({"type": "message", "message": {"role": "toolResult", "toolCallId": "4", "toolName": "edit", "content": [], "details": {"diff": s(11)}}}),
        json!({"type": "message", "message": {"role": "toolResult", "toolCallId": s(12), "toolName": s(13), "content": blocks(14), "isError": true}}),
        json!({"type": "message", "message": {"role": "bashExecution", "command": s(0), "output": s(1), "truncated": true, "fullOutputPath": s(2)}}),
        json!({"type": "message", "message": {"role": "custom", "customType": s(3), "content": s(4), "display": true}}),
        json!({"type": "message", "message": {"role": "branchSummary", "summary": s(5), "fromId": s(6)}}),
        json!({"type": "message", "message": {"role": "compactionSummary", "summary": s(7), "tokensBefore": 1}}),
        json!({"type": "compaction", "summary": s(8), "firstKeptEntryId": s(9), "details": s(10)}),
        json!({"type": "branch_summary", "summary": s(11), "fromId": s(12)}),
        json!({"type": "custom", "customType": s(13), "data": {s(14): [s(0)]}}),
        json!({"type": "custom_message", "customType": s(1), "content": blocks(2), "display": false, "details": s(3)}),
        json!({"type": "label", "targetId": s(4), "label": s(5)}),
        json!({"type": format!("x{}", s(6)), "beam": s(7)}),
        json!({"type": "message", "message": {"role": s(8), "content": s(9)}}),
    ];
    let mut parent: Option<String> = None;
    let mut entries = Vec::new();
    for (index, body) in bodies.into_iter().enumerate() {
        let id = format!("{index}{}", s(index));
        entries.push(entry(&id, parent.as_deref(), body));
        // A branch now and then; and a label on an entry that is shown.
        if index % 5 == 4 {
            let label = json!({"type": "label", "targetId": id, "label": s(index)});
            entries.push(entry(&format!("l{id}"), parent.as_deref(), label));
        }
        parent = Some(id);
    }
    entries
}

fn header(s: &str) -> String {
    json!({"type": "session", "version": 3, "id": s, "timestamp": "2024-12-03T14:00:00.000Z", "cwd": s, "agentType": s, "parentSession": s}).to_string()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn nothing_of_a_session_becomes_markup(strings in vec(hostile(), 15)) {
        let session = open(&header(&strings[0]), &everywhere(&strings));
        check_safe(&page(&session));
    }

    #[test]
    fn text_is_found_as_text(
        // What is no control and no bidi control is shown as it is.
        text in "[a-z<>&\"'=/ \u{e9}\u{2028}\u{1f600}!-]{1,40}",
        hostile in select(HOSTILE[..20].to_vec()),
    ) {
        let text = format!("{hostile}{text}");
        let call = json!({"type": "toolCall", "id": "1", "name": "bash", "arguments": {"command": text}});
        let reply = json!({"role": "assistant", "content": [call], "stopReason": "error", "errorMessage": text});
        let session = open(&header(&text), &[
            user("u", None, &text),
            message("a", Some("u"), reply),
            result("r", Some("a"), "1", &text),
            entry("n", Some("r"), json!({"type": "session_info", "name": text})),
        ]);
        let html = check_safe(&page(&session));
        prop_assert_eq!(inner(&html, "#entry-u .prose"), text.clone());
        prop_assert_eq!(inner(&html, "#entry-a .inside pre.code"), text.clone());
        prop_assert_eq!(inner(&html, "#entry-r pre.out"), text.clone());
        prop_assert_eq!(inner(&html, "#entry-a .end"), format!("Failed: {text}"));
        prop_assert_eq!(inner(&html, "#entry-n b"), text);
    }
}

fn inner(html: &Html, selector: &str) -> String {
    let selector = Selector::parse(selector).unwrap();
    html.select(&selector).next().unwrap().text().collect()
}
