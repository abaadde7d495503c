//! Permissions as a person writes them, and as they show themselves: `fs-read:docs/**`, `fs-write:out/*`,
//! `net:*.example.org`, `exec:git status **`, `env:NAME`. What the patterns mean is the
//! extension host's.

use wharf_extensions::Permission;

const KINDS: &str = "fs-read:GLOB, fs-write:GLOB, net:HOST, exec:PROGRAM ARGUMENTS or env:NAME";

/// Why a text is no permission.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum PermissionError {
    #[error("{0:?} is no permission: it is written {KINDS}")]
    Kind(String),
    #[error("{0:?} says nothing after the colon")]
    Empty(String),
    #[error("{0:?} has a quote without its end")]
    Quote(String),
}

pub(super) fn parse(text: &str) -> Result<Permission, PermissionError> {
    let Some((kind, pattern)) = text.split_once(':') else {
        return Err(PermissionError::Kind(text.to_owned()));
    };
    let pattern = pattern.trim_matches(' ');
    let own = || pattern.to_owned();
    let permission = match kind.trim() {
        "fs-read" => Permission::FsRead(own()),
        "fs-write" => Permission::FsWrite(own()),
        "net" => Permission::Net(own()),
        "env" => Permission::Env(own()),
        "exec" => Permission::Exec(
            shell_words::split(pattern).map_err(|_| PermissionError::Quote(text.to_owned()))?,
        ),
        _ => return Err(PermissionError::Kind(text.to_owned())),
    };
    if pattern.is_empty() {
        return Err(PermissionError::Empty(text.to_owned()));
    }
    Ok(permission)
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use proptest::prelude::*;

    use super::*;

    fn exec(words: &[&str]) -> Permission {
        Permission::Exec(words.iter().map(|word| (*word).to_owned()).collect())
    }

    #[test]
    fn permissions_are_written_as_they_are_read() {
        for (text, expect) in [
            ("fs-read:docs/**", Permission::FsRead("docs/**".into())),
            ("fs-write:~/notes/*.md", Permission::FsWrite("~/notes/*.md".into())),
            ("net:*.example.org:8443", Permission::Net("*.example.org:8443".into())),
            ("net:[::1]:*", Permission::Net("[::1]:*".into())),
            ("env:GITHUB_TOKEN", Permission::Env("GITHUB_TOKEN".into())),
            ("exec:git status **", exec(&["git", "status", "**"])),
            ("exec:git commit -m 'a b'", exec(&["git", "commit", "-m", "a b"])),
            ("exec:printf ''", exec(&["printf", ""])),
        ] {
            assert_eq!(parse(text).as_ref(), Ok(&expect));
            assert_eq!(expect.to_string(), text);
        }
        assert_eq!(parse("exec: git  status"), Ok(exec(&["git", "status"])));
    }

    #[test]
    fn what_is_no_permission_says_how_one_is_written() {
        for (text, expect) in [
            ("docs/**", format!("\"docs/**\" is no permission: it is written {KINDS}")),
            ("read:docs", format!("\"read:docs\" is no permission: it is written {KINDS}")),
            ("net:", "\"net:\" says nothing after the colon".to_owned()),
            ("exec:", "\"exec:\" says nothing after the colon".to_owned()),
            ("exec:sh 'a", "\"exec:sh 'a\" has a quote without its end".to_owned()),
        ] {
            assert_eq!(parse(text).unwrap_err().to_string(), expect);
        }
    }

    proptest! {
        #[test]
        fn any_exec_pattern_comes_back(words in prop::collection::vec(".{0,12}", 1..5)) {
            let permission = Permission::Exec(words);
            prop_assert_eq!(parse(&permission.to_string()), Ok(permission));
        }
    }
}
