//! Where an extension is to be installed from, as text: what is accepted, and how it is
//! kept in `installed.json`. Nothing is fetched here.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr as _;

use oci_client::Reference;

/// What git may talk: none of these runs a program that the URL names, or lets somebody in
/// between change what comes.
const GIT_SCHEMES: [&str; 3] = ["https", "ssh", "file"];

/// Characters of a package's or a repository's name.
const MAX_TEXT: usize = 1000;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Source {
    /// A `.wasm` file, a folder with `extension.wasm`, or a crate.
    Path(PathBuf),
    /// None: the repository's default branch.
    Git {
        url: String,
        revision: Option<String>,
    },
    /// None: the version that the registry calls `latest`.
    Npm {
        name: String,
        version: Option<String>,
    },
    Oci(Reference),
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum SourceError {
    #[error(
        "{0:?} is no git URL: give git+https://HOST/PATH, git+ssh://.., git+file:///.., or USER@HOST:PATH.git"
    )]
    GitUrl(String),
    #[error(
        "{0:?} holds a password, which would be kept in installed.json: leave it to a credential helper of git"
    )]
    Password(String),
    #[error("{0:?} is no branch, tag or commit")]
    Revision(String),
    #[error(
        "{0:?} is no npm package: give npm:NAME or npm:NAME@VERSION, from a registry that npm is configured for"
    )]
    Npm(String),
    #[error(
        "{text:?} is no OCI reference: {problem}; give oci://REGISTRY/REPOSITORY:TAG or ..@sha256:DIGEST"
    )]
    Oci { text: String, problem: String },
    #[error("{0:?} is neither a path nor git+URL, URL.git, npm:NAME or oci://REFERENCE")]
    Unknown(String),
    #[error("the path {0:?} cannot be kept: it is not UTF-8")]
    NotUtf8(PathBuf),
}

impl Source {
    /// A relative path starts at `cwd`.
    pub(super) fn parse(text: &str, cwd: &Path) -> Result<Self, SourceError> {
        if text.is_empty() || text.len() > MAX_TEXT || text.contains(char::is_control) {
            return Err(SourceError::Unknown(text.chars().take(100).collect()));
        }
        if let Some(package) = text.strip_prefix("npm:") {
            return npm(package);
        }
        if let Some(reference) = text.strip_prefix("oci://") {
            return oci(reference);
        }
        if let Some(url) = text.strip_prefix("git+") {
            return git(url);
        }
        let address = text.split('#').next().unwrap_or_default();
        let is_git = address.ends_with(".git") && (text.contains("://") || is_scp_like(address));
        if is_git {
            return git(text);
        }
        if text.contains("://") {
            return Err(SourceError::Unknown(text.to_owned()));
        }
        let path = cwd.join(text);
        match path.to_str() {
            Some(_) => Ok(Self::Path(path)),
            None => Err(SourceError::NotUtf8(path)),
        }
    }

    /// How git talks to a URL that was accepted.
    pub(super) fn git_scheme(url: &str) -> &str {
        url.split_once("://").map_or("ssh", |(scheme, _)| scheme)
    }

    /// The source without the version: what may replace what it gave earlier.
    pub(super) fn origin(&self) -> Self {
        match self {
            Self::Path(path) => Self::Path(path.clone()),
            Self::Git { url, .. } => Self::Git { url: url.clone(), revision: None },
            Self::Npm { name, .. } => Self::Npm { name: name.clone(), version: None },
            Self::Oci(reference) => Self::Oci(Reference::with_tag(
                reference.registry().to_owned(),
                reference.repository().to_owned(),
                "latest".to_owned(),
            )),
        }
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Path(path) => path.display().fmt(f),
            Self::Git { url, revision: None } => write!(f, "git+{url}"),
            Self::Git { url, revision: Some(revision) } => write!(f, "git+{url}#{revision}"),
            Self::Npm { name, version: None } => write!(f, "npm:{name}"),
            Self::Npm { name, version: Some(version) } => write!(f, "npm:{name}@{version}"),
            Self::Oci(reference) => write!(f, "oci://{reference}"),
        }
    }
}

fn git(text: &str) -> Result<Source, SourceError> {
    let (url, revision) = match text.split_once('#') {
        Some((url, revision)) => (url, Some(revision.to_owned())),
        None => (text, None),
    };
    let bad = || SourceError::GitUrl(text.to_owned());
    if url.starts_with('-') || url.contains(char::is_whitespace) {
        return Err(bad());
    }
    match url.split_once("://") {
        Some((scheme, rest)) => {
            // `ext::...://` and the like name a program.
            if !GIT_SCHEMES.contains(&scheme) || rest.is_empty() || rest.starts_with('-') {
                return Err(bad());
            }
            let authority = rest.split('/').next().unwrap_or_default();
            let user = authority.rsplit_once('@').map(|(user, _)| user);
            if user.is_some_and(|user| user.contains(':') || scheme == "https") {
                return Err(SourceError::Password(text.to_owned()));
            }
        }
        None if is_scp_like(url) => {}
        None => return Err(bad()),
    }
    match revision {
        Some(revision) if !is_revision(&revision) => Err(SourceError::Revision(revision)),
        revision => Ok(Source::Git { url: url.to_owned(), revision }),
    }
}

/// `user@host:path`, without `::`, which would name a remote helper.
fn is_scp_like(url: &str) -> bool {
    let Some((user, rest)) = url.split_once('@') else { return false };
    let Some((host, path)) = rest.split_once(':') else { return false };
    let is_name = |text: &str| {
        !text.is_empty()
            && !text.starts_with('-')
            && text.chars().all(|c| c.is_alphanumeric() || matches!(c, '.' | '-' | '_'))
    };
    is_name(user) && is_name(host) && !path.is_empty() && !path.starts_with([':', '-'])
}

/// Close to what git takes as the name of a branch, and no refspec.
fn is_revision(text: &str) -> bool {
    !text.is_empty()
        && !text.starts_with(['-', '+', '/'])
        && !text.contains("..")
        && text.chars().all(|c| c.is_alphanumeric() || matches!(c, '.' | '-' | '_' | '/'))
}

fn npm(text: &str) -> Result<Source, SourceError> {
    let bad = || SourceError::Npm(format!("npm:{text}"));
    // The first `@` of `@scope/name@1` belongs to the name.
    let at = text.char_indices().skip(1).find(|(_, c)| *c == '@').map(|(at, _)| at);
    let (name, version) = match at {
        Some(at) => (&text[..at], Some(&text[at + 1..])),
        None => (text, None),
    };
    let is_part = |part: &str| {
        !part.is_empty()
            && !part.starts_with(['.', '-', '_'])
            && part.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_' | '~'))
    };
    let is_name = match name.strip_prefix('@') {
        Some(scoped) => {
            scoped.split_once('/').is_some_and(|(scope, name)| is_part(scope) && is_part(name))
        }
        // npm would take these for a file.
        None => is_part(name) && !name.ends_with(".tgz") && !name.ends_with(".tar.gz"),
    };
    // A version, a range or a tag: nothing that npm would take for a URL or a file.
    let is_version = |version: &str| {
        !version.is_empty()
            && !version.starts_with(['.', '-'])
            && version.chars().all(|c| c.is_ascii_alphanumeric() || ".-+^~<>=*| ".contains(c))
    };
    if !is_name || version.is_some_and(|version| !is_version(version)) {
        return Err(bad());
    }
    Ok(Source::Npm { name: name.to_owned(), version: version.map(str::to_owned) })
}

fn oci(text: &str) -> Result<Source, SourceError> {
    let bad = |problem: String| SourceError::Oci { text: format!("oci://{text}"), problem };
    let reference = Reference::from_str(text).map_err(|error| bad(error.to_string()))?;
    // Without this a reference that names no registry would go to one that nobody named.
    if text.split('/').next() != Some(reference.registry()) {
        return Err(bad("it names no registry".to_owned()));
    }
    if reference.digest().is_some_and(|digest| !digest.starts_with("sha256:")) {
        return Err(bad("its digest is no sha256".to_owned()));
    }
    Ok(Source::Oci(reference))
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use proptest::prelude::*;

    use super::*;

    fn parse(text: &str) -> Result<Source, SourceError> {
        Source::parse(text, Path::new("/cwd"))
    }

    #[test]
    fn each_form_is_known_and_kept_as_it_can_be_given_again() {
        for (text, kept, origin) in [
            ("a/x.wasm", "/cwd/a/x.wasm", "/cwd/a/x.wasm"),
            ("/abs", "/abs", "/abs"),
            ("./npm:x", "/cwd/./npm:x", "/cwd/./npm:x"),
            ("repo.git", "/cwd/repo.git", "/cwd/repo.git"),
            ("git+https://h/x", "git+https://h/x", "git+https://h/x"),
            ("https://h/x.git", "git+https://h/x.git", "git+https://h/x.git"),
            ("https://h/x.git#v1", "git+https://h/x.git#v1", "git+https://h/x.git"),
            ("git+file:///r#feature/a", "git+file:///r#feature/a", "git+file:///r"),
            ("git+ssh://git@h/x", "git+ssh://git@h/x", "git+ssh://git@h/x"),
            ("git@h.org:a/x.git#main", "git+git@h.org:a/x.git#main", "git+git@h.org:a/x.git"),
            ("npm:demo", "npm:demo", "npm:demo"),
            ("npm:demo@^1.2", "npm:demo@^1.2", "npm:demo"),
            ("npm:demo@~1.2", "npm:demo@~1.2", "npm:demo"),
            ("npm:@me/demo@next", "npm:@me/demo@next", "npm:@me/demo"),
            (
                "oci://localhost:5000/a/x:1",
                "oci://localhost:5000/a/x:1",
                "oci://localhost:5000/a/x:latest",
            ),
            ("oci://ghcr.io/a/x", "oci://ghcr.io/a/x:latest", "oci://ghcr.io/a/x:latest"),
        ] {
            let source = parse(text).unwrap();
            assert_eq!(source.to_string(), kept, "{text}");
            assert_eq!(parse(kept).unwrap(), source, "{text}");
            assert_eq!(source.origin().to_string(), origin, "{text}");
        }
    }

    #[test]
    fn what_would_run_or_reach_something_else_is_refused() {
        for text in [
            "",
            "https://h/x.wasm",
            "git+ext::sh -c touch% x",
            "git+ext::sh://x",
            "git+http://h/x",
            "git://h/x.git",
            "git+--upload-pack=touch",
            "git+ssh://-oProxyCommand=x/y",
            "git+/some/path",
            "git+git@-h:x",
            "git+a@h::x",
            "https://me:secret@h/x.git",
            "https://token@h/x.git",
            "ssh://me:secret@h/x.git",
            "git+https://h/x#--output=x",
            "git+https://h/x#a:b",
            "git+https://h/x#+a",
            "git+https://h/x#a..b",
            "git+https://h/x#",
            "npm:",
            "npm:../x",
            "npm:./x.tgz",
            "npm:x.tgz",
            "npm:/abs",
            "npm:a/b",
            "npm:-g",
            "npm:x@file:../y",
            "npm:x@https://h/y.tgz",
            "npm:x@../y",
            "npm:x@~/y",
            "npm:x@npm:y",
            "npm:x@",
            "npm:@x",
            "oci://",
            "oci://demo",
            "oci://me/demo:1",
            "oci://h.org/UPPER",
            "oci://h.org/x@sha256:abc",
            "a\nb",
        ] {
            assert!(parse(text).is_err(), "{text}: {:?}", parse(text));
        }
    }

    proptest! {
        #[test]
        fn what_is_accepted_is_read_the_same_again(text in "(npm:|oci://|git\\+|)[a-z@/:.#~^+ -]{0,40}") {
            if let Ok(source) = parse(&text) {
                prop_assert_eq!(parse(&source.to_string()), Ok(source));
            }
        }
    }
}
