//! What people read of an installation. Texts of extensions and servers are shown without
//! what would steer a terminal.

use std::fmt::{self, Write as _};
use std::path::Path;

use wharf_extensions::{InstalledEntry, Permission};

use super::Arrival;

pub(super) fn installed(
    arrival: &Arrival,
    earlier: Option<&InstalledEntry>,
    directory: &Path,
) -> String {
    let Arrival { id, version, hash, source, .. } = arrival;
    let mut text = format!("installed {id} {} from {source}", plain(version));
    if let Some(earlier) = earlier {
        let from = plain(&earlier.source);
        add(&mut text, format_args!("replaces {} from {from}", plain(&earlier.version)));
    }
    if let Some(resolved) = &arrival.resolved {
        add(&mut text, format_args!("resolved to {}", plain(resolved)));
    }
    add(&mut text, format_args!("content {hash}"));
    add(&mut text, format_args!("in {}", directory.join(id).display()));
    for permission in &arrival.permissions {
        add(&mut text, format_args!("asks for {}", Asked(permission)));
    }
    if !arrival.permissions.is_empty() {
        text.push_str("\nnothing was granted: you are asked before it is used, or grant it with wharf extension grant ");
        text.push_str(id);
    }
    text
}

/// `known`: what the old component asked for, where that can be said.
pub(super) fn updated(
    arrival: &Arrival,
    entry: &InstalledEntry,
    known: Option<&[Permission]>,
) -> String {
    let Arrival { id, version, hash, .. } = arrival;
    let mut text = format!("updated {id} {} -> {}", plain(&entry.version), plain(version));
    if let (Some(old), Some(new)) = (&entry.resolved, &arrival.resolved) {
        add(&mut text, format_args!("resolved {} -> {}", plain(old), plain(new)));
    }
    add(&mut text, format_args!("content {} -> {hash}", entry.hash));
    for permission in &arrival.permissions {
        match known {
            Some(known) if known.contains(permission) => {}
            Some(_) => add(&mut text, format_args!("now asks for {}", Asked(permission))),
            None => add(&mut text, format_args!("asks for {}", Asked(permission))),
        }
    }
    text
}

fn add(text: &mut String, line: fmt::Arguments<'_>) {
    // Writing to a String does not fail.
    let _ = write!(text, "\n  {line}");
}

/// A permission as `wharf extension grant` takes it.
struct Asked<'a>(&'a Permission);

impl fmt::Display for Asked<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Permission::FsRead(pattern) => write!(f, "fs-read:{}", plain(pattern)),
            Permission::FsWrite(pattern) => write!(f, "fs-write:{}", plain(pattern)),
            Permission::Net(pattern) => write!(f, "net:{}", plain(pattern)),
            Permission::Exec(patterns) => write!(f, "exec:{}", plain(&patterns.join(" "))),
            Permission::Env(name) => write!(f, "env:{}", plain(name)),
        }
    }
}

/// One line of text without what would steer a terminal, or turn its direction of writing.
pub(super) fn plain(text: &str) -> String {
    let steers = |c: char| {
        c.is_control()
            || matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    text.chars().map(|c| if steers(c) { '\u{fffd}' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::super::source::Source;
    use super::*;

    fn arrival(version: &str, resolved: Option<&str>, permissions: &[Permission]) -> Arrival {
        Arrival {
            source: Source::parse("npm:demo", Path::new("/")).unwrap(),
            resolved: resolved.map(str::to_owned),
            component: Vec::new(),
            hash: format!("sha256:{version}"),
            id: "demo".to_owned(),
            version: version.to_owned(),
            permissions: permissions.to_vec(),
        }
    }

    #[test]
    fn an_installation_says_what_is_asked_for_and_that_nothing_is_granted() {
        let directory = Path::new("/x");
        let exec = Permission::Exec(vec!["git".into(), "sta\u{1b}[2Jsh\n".into()]);
        let asking = arrival("2.0.0", Some("2.0.0"), &[exec]);
        let earlier = arrival("1.0.0", None, &[]).entry();
        assert_eq!(
            installed(&asking, Some(&earlier), directory),
            "installed demo 2.0.0 from npm:demo\n  replaces 1.0.0 from npm:demo\n  resolved to 2.0.0\n  content sha256:2.0.0\n  in /x/demo\n  asks for exec:git sta\u{fffd}[2Jsh\u{fffd}\nnothing was granted: you are asked before it is used, or grant it with wharf extension grant demo"
        );
        assert_eq!(
            installed(&arrival("1.0.0", None, &[]), None, directory),
            "installed demo 1.0.0 from npm:demo\n  content sha256:1.0.0\n  in /x/demo"
        );
    }

    #[test]
    fn an_update_says_what_is_new() {
        let [read, net] = [Permission::FsRead("docs/**".into()), Permission::Net("a.org".into())];
        let entry = arrival("1.0.0", Some("1.0.0"), &[]).entry();
        let new = arrival("1.1.0", Some("1.1.0"), &[read.clone(), net.clone()]);
        let head = "updated demo 1.0.0 -> 1.1.0\n  resolved 1.0.0 -> 1.1.0\n  content sha256:1.0.0 -> sha256:1.1.0";
        for (known, expect) in [
            (Some(vec![read.clone(), net.clone()]), ""),
            (Some(vec![read]), "\n  now asks for net:a.org"),
            (None, "\n  asks for fs-read:docs/**\n  asks for net:a.org"),
        ] {
            assert_eq!(updated(&new, &entry, known.as_deref()), format!("{head}{expect}"));
        }
    }
}
