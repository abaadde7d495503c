//! Tables of patterns and what is held against them.
#![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

use std::path::Path;

use super::*;

fn strings(words: &[&str]) -> Vec<String> {
    words.iter().map(|&word| word.to_owned()).collect()
}

fn problem(permission: &Permission) -> Option<String> {
    check(permission).err().map(|error| error.to_string())
}

#[test]
fn malformed_patterns_are_named() {
    for pattern in [
        "",
        "/",
        "/etc/passwd",
        "a//b",
        "a/",
        "./a",
        "a/.",
        "..",
        "a/../b",
        "~",
        "~root/x",
        "~/",
        "~//a",
        "~/../x",
        "@agent",
        "@agent/",
        "@agent/../x",
        "a**",
        "**b/c",
        "a\u{202e}b",
        "a\nb",
        "a\0b",
    ] {
        for permission in [Permission::FsRead(pattern.into()), Permission::FsWrite(pattern.into())]
        {
            let problem = problem(&permission).unwrap_or_else(|| panic!("{permission} passed"));
            assert!(problem.contains(&permission.to_string()), "{problem}");
        }
    }
    for pattern in [
        "",
        "a b",
        "a/b",
        "a@b",
        "http://a",
        "a:",
        "a:0",
        "a:65536",
        "a:x",
        "a:+1",
        "::1",
        "a:1:2",
        "*a.org",
        "a.*.org",
        "*.",
        "*.127.0.0.1",
        "*.*",
        "**",
        "[::1",
        "[::1]x",
        "[::1]:",
        ".",
        "a..b",
        "%61.org",
        "1.2.3.256",
        "a\u{200b}.org",
    ] {
        assert!(problem(&Permission::Net(pattern.into())).is_some(), "{pattern}");
    }
    for words in [
        &[][..],
        &[""],
        &["*"],
        &["gi?"],
        &["bin/git"],
        &["./git"],
        &[".."],
        &["/"],
        &["/a/../b"],
        &["/a//b"],
        &["git", "**", "x"],
        &["git", "a\nb"],
        &["a\0"],
    ] {
        assert!(problem(&Permission::Exec(strings(words))).is_some(), "{words:?}");
    }
    for name in ["", "1A", "A=B", "A B", "A-B", "*", "Ä"] {
        assert!(problem(&Permission::Env(name.into())).is_some(), "{name}");
    }
    assert_eq!(
        problem(&Permission::FsRead("a/../b".into())).unwrap(),
        "the permission fs-read:a/../b is malformed: it has the part \"..\""
    );
}

fn file(pattern: &str, base: Base, path: &str) -> bool {
    let rules = Rules::new(&[Permission::FsRead(pattern.into())]);
    assert!(!rules.file(FileUse::Write, base, Path::new(path)), "reading is not writing");
    rules.file(FileUse::Read, base, Path::new(path))
}

#[test]
fn files_match_part_by_part() {
    for (pattern, path, expected) in [
        ("docs", "docs", true),
        ("docs", "docs2", false),
        ("docs", "docs/a", false),
        ("docs/**", "docs", false),
        ("docs/**", "docs/a", true),
        ("docs/**", "docs/.a/b/c", true),
        ("docs/**", "docs2/a", false),
        ("docs/**", "Docs/a", false),
        ("docs/*", "docs/a", true),
        ("docs/*", "docs/a/b", false),
        ("docs/?", "docs/a", true),
        ("docs/?", "docs/ab", false),
        ("d*s/a", "docs/a", true),
        ("d*s/a", "d/s/a", false),
        ("**/a.md", "a.md", true),
        ("**/a.md", "x/y/a.md", true),
        ("**/a.md", "x/y/ba.md", false),
        ("a/**/b", "a/b", true),
        ("a/**/b", "a/x/y/b", true),
        ("a/**/b", "a/x/y/b/c", false),
        ("**", "a/b", true),
        ("**", "", false),
        ("**", "../a", false),
        ("docs/**", "docs/../secret", false),
        // Only the two wildcards are special.
        ("[id].tsx", "[id].tsx", true),
        ("[id].tsx", "i.tsx", false),
        ("{a,b}", "a", false),
        ("*[!x]*", "a/b", false),
        ("*[!x]*", "q[!x]r", true),
        ("a\\*", "a\\b", true),
        ("a\\*", "a*", false),
    ] {
        assert_eq!(file(pattern, Base::Project, path), expected, "{pattern} {path}");
    }
    assert!(file("~/n/*", Base::Home, "n/a"));
    assert!(!file("~/n/*", Base::Project, "n/a"));
    assert!(!file("n/*", Base::Home, "n/a"));
    assert!(file("@agent/skills/**", Base::AgentDir, "skills/a"));
    assert!(file("@agents/x", Base::Project, "@agents/x"));
}

#[test]
fn a_pattern_opens_the_folders_that_lead_to_its_matches() {
    for (pattern, folder, expected) in [
        ("docs/**", "", true),
        ("docs/**", "docs", true),
        ("docs/**", "docs/x", true),
        ("docs/**", "docs2", false),
        ("docs/a.md", "docs", true),
        ("docs/a.md", "docs/a.md", false),
        ("docs/*.md", "doc", false),
        ("docs/*.md", "docs/../x", false),
    ] {
        let rules = Rules::new(&[Permission::FsRead(pattern.into())]);
        assert_eq!(rules.folder(Base::Project, Path::new(folder)), expected, "{pattern} {folder}");
    }
}

#[test]
fn hosts_are_compared_as_a_browser_spells_them() {
    for (pattern, url, expected) in [
        ("example.org", "https://example.org/x", true),
        ("example.org", "https://EXAMPLE.org.", true),
        ("Example.ORG.", "https://example.org", true),
        ("example.org", "http://example.org", true),
        ("example.org", "https://example.org:443", true),
        ("example.org", "https://example.org:80", false),
        ("example.org", "http://example.org:443", false),
        ("example.org", "https://example.org:8443", false),
        ("example.org:8443", "https://example.org:8443", true),
        ("example.org:443", "https://example.org", true),
        ("example.org:443", "http://example.org", false),
        ("example.org:*", "http://example.org:1", true),
        ("example.org", "https://www.example.org", false),
        ("example.org", "https://example.org.evil.com", false),
        ("example.org", "https://notexample.org", false),
        ("example.org", "https://evil.com/example.org", false),
        ("example.org", "https://evil.com#@example.org", false),
        ("example.org", "https://evil.com\\@example.org", false),
        ("example.org", "https:\\\\example.org", true),
        ("example.org", "https://ex%61mple.org", true),
        ("example.org", "https://example\u{3002}org", true),
        ("*.example.org", "https://a.b.example.org", true),
        ("*.example.org", "https://a.example.org.", true),
        ("*.example.org", "https://example.org", false),
        ("*.example.org", "https://notexample.org", false),
        ("*", "http://[::1]", true),
        ("*", "http://a:81", false),
        ("*:*", "http://a:81", true),
        ("127.0.0.1", "http://0x7f.1", true),
        ("127.0.0.1", "http://2130706433", true),
        ("127.0.0.1", "http://0177.0.0.1.", true),
        ("0x7f.1", "http://127.0.0.1", true),
        ("127.0.0.1", "http://127.0.0.1.example.org", false),
        ("127.0.0.1", "http://[::ffff:127.0.0.1]", false),
        ("localhost", "http://127.0.0.1", false),
        ("[::1]", "http://[0:0::1]", true),
        ("[::1]:8080", "http://[::1]:8080", true),
        ("[::1]", "http://[::2]", false),
        ("bücher.example", "https://xn--bcher-kva.example", true),
        ("xn--bcher-kva.example", "https://BÜCHER.example", true),
        // The first letter is Cyrillic.
        ("example.org", "https://\u{435}xample.org", false),
    ] {
        let permission = Permission::Net(pattern.into());
        assert_eq!(problem(&permission), None);
        let url = parse_url(url, None).unwrap();
        assert_eq!(Rules::new(&[permission]).host(&url), expected, "{pattern} {url}");
    }
}

#[test]
fn some_urls_are_never_asked() {
    for url in [
        "https://user@example.org",
        "https://user:pw@example.org",
        "https://:pw@example.org",
        "https://example.org@evil.com",
        "ftp://example.org",
        "file:///etc/passwd",
        "data:,x",
        "javascript:1",
        "//example.org",
        "example.org",
        "",
        "https://",
        "http://a b",
        "http://[::1",
        "http://a:99999",
        "unix:/run/x",
    ] {
        assert!(parse_url(url, None).is_err(), "{url}");
    }
    let base = parse_url("https://a.org/x/y?q#f", None).unwrap();
    assert_eq!(base.as_str(), "https://a.org/x/y?q");
    assert_eq!(parse_url("../z", Some(&base)).unwrap().as_str(), "https://a.org/z");
    assert_eq!(parse_url("//evil.com", Some(&base)).unwrap().as_str(), "https://evil.com/");
    assert_eq!(pattern_for(&parse_url("https://a.org.:8/", None).unwrap()), "a.org:8");
}

#[test]
fn the_pattern_that_a_denial_names_allows_the_url() {
    for url in
        ["https://a.org", "http://a.org:8080/x", "http://[::1]:1", "http://127.1", "https://ü.de"]
    {
        let url = parse_url(url, None).unwrap();
        assert!(Rules::new(&[Permission::Net(pattern_for(&url))]).host(&url), "{url}");
    }
}

#[test]
fn programs_match_word_by_word() {
    for (pattern, words, expected) in [
        (&["git"][..], &["git"][..], true),
        (&["git"], &["git", "push"], false),
        (&["git"], &["/usr/bin/git"], false),
        (&["/usr/bin/git"], &["/usr/bin/git"], true),
        (&["/usr/bin/git"], &["git"], false),
        (&["git", "**"], &["git"], true),
        (&["git", "**"], &["git", "a", "b"], true),
        (&["git", "status", "**"], &["git"], false),
        (&["git", "status", "**"], &["git", "status"], true),
        (&["git", "status", "**"], &["git", "-c", "x", "status"], false),
        (&["git", "log", "*"], &["git", "log"], false),
        (&["git", "log", "*"], &["git", "log", ""], true),
        (&["git", "log", "*"], &["git", "log", "a/b\nc; rm -rf /"], true),
        (&["git", "log", "*"], &["git", "log", "a", "b"], false),
        (&["git", "--x=?"], &["git", "--x=1"], true),
        (&["git", "--x=?"], &["git", "--x=12"], false),
        (&["git", "status"], &["git", "status;id"], false),
        (&["git", "[a]"], &["git", "a"], false),
        (&["git", "[a]"], &["git", "[a]"], true),
        (&["git", "a/**x"], &["git", "a/b/x"], true),
    ] {
        let rules = Rules::new(&[Permission::Exec(strings(pattern))]);
        let (program, arguments) = words.split_first().unwrap();
        assert_eq!(rules.program(program, &strings(arguments)), expected, "{pattern:?} {words:?}");
    }
}

#[test]
fn a_decision_counts_for_the_same_permission_only() {
    let read = |pattern: &str| Permission::FsRead(pattern.into());
    assert!(covers(&read("a"), &read("a")));
    assert!(!covers(&read("**"), &read("a")));
    assert!(!covers(&read("a"), &Permission::FsWrite("a".into())));
}

#[test]
fn permissions_are_written_as_a_person_types_them() {
    let exec = Permission::Exec(strings(&["git", "log", "a b", "", "it's", "**"]));
    assert_eq!(exec.to_string(), r"exec:git log 'a b' '' 'it'\''s' **");
    // What a shell takes for a comment would not come back.
    let comment = Permission::Exec(strings(&["echo", "#a"]));
    assert_eq!(comment.to_string(), "exec:echo '#a'");
}

#[test]
fn wide_permissions_are_marked() {
    let exec = |words: &[&str]| Permission::Exec(strings(words));
    for (permission, expected) in [
        (Permission::Net("*".into()), true),
        (Permission::Net("*:*".into()), true),
        (Permission::Net("*.org".into()), true),
        (Permission::Net("*.example.org".into()), false),
        (Permission::FsRead("**".into()), true),
        (Permission::FsWrite("~/**/x".into()), true),
        (Permission::FsWrite("docs/**".into()), false),
        (exec(&["sh", "-c", "*"]), true),
        (exec(&["/usr/bin/python3.12", "**"]), true),
        (exec(&["cargo", "**"]), true),
        (exec(&["git", "status", "**"]), false),
        (exec(&["sh", "build.sh"]), false),
    ] {
        assert_eq!(describe(&permission).contains("WIDE"), expected, "{permission}");
    }
    assert_eq!(describe(&exec(&["git"])), "run git without arguments");
}
