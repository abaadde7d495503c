//! What a person has granted, kept in `grants.json`. What a grant allows is
//! `permissions`', and who asks is `ask`'s.

use std::fs::{DirBuilder, File};
use std::io::{self, Write as _};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use wharf_agent::resources::{TextFileError, read_regular};

use crate::permissions::covers;
use crate::registration::Permission;

/// Format of the file.
///
/// 1. The first: `{"version": 1, "extensions": [{"id", "path", "contentHash", "granted",
///    "denied"}]}`, where a permission is an object of one field: `{"fs-read": PATTERN}`,
///    `{"fs-write": PATTERN}`, `{"net": PATTERN}`, `{"exec": [PROGRAM, PATTERN..]}` or
///    `{"env": NAME}`.
const FORMAT: u32 = 1;
/// Nobody has granted that much; a file that is larger is not ours.
const MAX_FILE_BYTES: u64 = 16 * 1024 * 1024;

/// Why grants cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum GrantError {
    #[error("failed to read the grants in {path}: {source}", path = path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("the grants in {path} are broken, so nothing is granted: {source}; repair or remove the file", path = path.display())]
    Corrupt { path: PathBuf, source: serde_json::Error },
    #[error("failed to write the grants to {path}: {source}", path = path.display())]
    Write { path: PathBuf, source: io::Error },
}

/// Whose grants: an extension as it was asked about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subject {
    pub id: String,
    /// The component's canonical file.
    pub path: PathBuf,
    /// `sha256:` and 64 hex digits.
    pub content_hash: String,
}

/// What is decided for one extension.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grant {
    pub subject: Subject,
    pub granted: Vec<Permission>,
    pub denied: Vec<Permission>,
}

impl Grant {
    /// What was decided about a permission; None: nothing yet.
    pub fn decision(&self, permission: &Permission) -> Option<bool> {
        if self.denied.iter().any(|denied| covers(denied, permission)) {
            return Some(false);
        }
        self.granted.iter().any(|granted| covers(granted, permission)).then_some(true)
    }
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct GrantFile {
    version: u32,
    extensions: Vec<Entry>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Entry {
    id: String,
    path: PathBuf,
    content_hash: String,
    #[serde(default)]
    granted: Vec<Permission>,
    #[serde(default)]
    denied: Vec<Permission>,
}

impl From<Entry> for Grant {
    fn from(entry: Entry) -> Self {
        let Entry { id, path, content_hash, granted, denied } = entry;
        Self { subject: Subject { id, path, content_hash }, granted, denied }
    }
}

impl From<&Grant> for Entry {
    fn from(grant: &Grant) -> Self {
        let Subject { id, path, content_hash } = grant.subject.clone();
        Self {
            id,
            path,
            content_hash,
            granted: grant.granted.clone(),
            denied: grant.denied.clone(),
        }
    }
}

/// The grants of one agent directory.
#[derive(Debug)]
pub struct GrantStore {
    file: PathBuf,
    grants: Vec<Grant>,
}

impl GrantStore {
    /// Reads the file; one that does not exist grants nothing.
    ///
    /// # Errors
    /// It cannot be read or understood; it is never overwritten then.
    pub fn load(file: impl Into<PathBuf>) -> Result<Self, GrantError> {
        let file = file.into();
        let grants = read(&file)?;
        Ok(Self { file, grants })
    }

    pub fn list(&self) -> &[Grant] {
        &self.grants
    }

    /// What is decided for the extension: what was decided about its file, whatever its
    /// content was, else what was decided about the same content in another file. The id
    /// alone counts for nothing: an extension of a project can have any.
    pub fn find(&self, subject: &Subject) -> Option<&Grant> {
        find(&self.grants, subject)
    }

    /// Keeps a decision, over an earlier one for the same permissions.
    ///
    /// # Errors
    /// The file cannot be written, or holds something else; nothing has changed then.
    pub fn decide(
        &mut self,
        subject: Subject,
        granted: Vec<Permission>,
        denied: Vec<Permission>,
    ) -> Result<(), GrantError> {
        self.change(|grants| {
            let (mut was_granted, mut was_denied) = find(grants, &subject)
                .map(|grant| (grant.granted.clone(), grant.denied.clone()))
                .unwrap_or_default();
            for list in [&mut was_granted, &mut was_denied] {
                list.retain(|old| !granted.iter().chain(&denied).any(|new| covers(new, old)));
            }
            was_granted.extend(unique(granted));
            was_denied.extend(unique(denied));
            let grant = Grant { subject, granted: was_granted, denied: was_denied };
            match grants.iter_mut().find(|old| is_of_file(old, &grant.subject)) {
                Some(old) => *old = grant,
                None => grants.push(grant),
            }
            true
        })
    }

    /// Takes back all that an extension id was granted, or only `permissions`; gives what
    /// was taken back. Nothing is decided about it afterwards; without `permissions`
    /// refusals are forgotten too.
    ///
    /// # Errors
    /// The file cannot be written; nothing has changed then.
    pub fn revoke(
        &mut self,
        id: &str,
        permissions: Option<&[Permission]>,
    ) -> Result<Vec<Permission>, GrantError> {
        let mut revoked = Vec::new();
        self.change(|grants| {
            let before = grants.len();
            match permissions {
                None => grants.retain(|grant| {
                    let is_other = grant.subject.id != id;
                    if !is_other {
                        revoked.extend(grant.granted.iter().cloned());
                    }
                    is_other
                }),
                Some(permissions) => {
                    for grant in grants.iter_mut().filter(|grant| grant.subject.id == id) {
                        grant.granted.retain(|granted| {
                            let is_meant = permissions.iter().any(|p| covers(granted, p));
                            if is_meant {
                                revoked.push(granted.clone());
                            }
                            !is_meant
                        });
                    }
                }
            }
            before != grants.len() || !revoked.is_empty()
        })?;
        Ok(unique(revoked))
    }

    pub fn file(&self) -> &Path {
        &self.file
    }

    /// Applies a change to what the file holds now, so that two processes do not undo each
    /// other's. `change` says whether there is something to write.
    fn change(&mut self, change: impl FnOnce(&mut Vec<Grant>) -> bool) -> Result<(), GrantError> {
        let parent = self.file.parent().filter(|dir| !dir.as_os_str().is_empty());
        let parent = parent.unwrap_or(Path::new("."));
        let failed = |source| GrantError::Write { path: self.file.clone(), source };
        DirBuilder::new().recursive(true).mode(0o700).create(parent).map_err(failed)?;
        let lock = File::open(parent).map_err(failed)?;
        lock.lock().map_err(failed)?;
        let mut grants = read(&self.file)?;
        if change(&mut grants) {
            write(&self.file, &grants, parent).map_err(failed)?;
        }
        self.grants = grants;
        Ok(())
    }
}

fn is_of_file(grant: &Grant, subject: &Subject) -> bool {
    grant.subject.id == subject.id && grant.subject.path == subject.path
}

fn find<'a>(grants: &'a [Grant], subject: &Subject) -> Option<&'a Grant> {
    let same_content = |grant: &&Grant| {
        grant.subject.id == subject.id && grant.subject.content_hash == subject.content_hash
    };
    grants
        .iter()
        .find(|grant| is_of_file(grant, subject))
        .or_else(|| grants.iter().find(same_content))
}

fn unique(permissions: Vec<Permission>) -> Vec<Permission> {
    let mut unique: Vec<Permission> = Vec::new();
    for permission in permissions {
        if !unique.contains(&permission) {
            unique.push(permission);
        }
    }
    unique
}

fn read(file: &Path) -> Result<Vec<Grant>, GrantError> {
    let failed = |source| GrantError::Read { path: file.to_owned(), source };
    let bytes = match read_regular(file, MAX_FILE_BYTES) {
        Ok(bytes) => bytes,
        Err(TextFileError::Io(source)) if source.kind() == io::ErrorKind::NotFound => {
            return Ok(Vec::new());
        }
        Err(TextFileError::Io(source)) => return Err(failed(source)),
        Err(other) => return Err(failed(io::Error::other(other.to_string()))),
    };
    let corrupt = |source| GrantError::Corrupt { path: file.to_owned(), source };
    let content: GrantFile = serde_json::from_slice(&bytes).map_err(corrupt)?;
    if content.version != FORMAT {
        let text = format!("its version is {}; this program knows {FORMAT}", content.version);
        return Err(corrupt(<serde_json::Error as serde::de::Error>::custom(text)));
    }
    Ok(content.extensions.into_iter().map(Grant::from).collect())
}

/// The temporary file has mode 0600, and keeps it when it takes the list's place.
fn write(file: &Path, grants: &[Grant], parent: &Path) -> io::Result<()> {
    let content =
        GrantFile { version: FORMAT, extensions: grants.iter().map(Entry::from).collect() };
    let mut temporary = tempfile::Builder::new().prefix(".grants-").tempfile_in(parent)?;
    serde_json::to_writer_pretty(&mut temporary, &content)?;
    temporary.write_all(b"\n")?;
    temporary.as_file().sync_all()?;
    temporary.persist(file)?;
    File::open(parent)?.sync_all()
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests fail by panicking")]
    use std::collections::BTreeMap;
    use std::os::unix::fs::PermissionsExt as _;

    use proptest::prelude::*;

    use super::*;

    fn subject(id: &str, path: &str, hash: &str) -> Subject {
        Subject { id: id.into(), path: path.into(), content_hash: hash.into() }
    }

    fn env(name: &str) -> Permission {
        Permission::Env(name.into())
    }

    fn decision(store: &GrantStore, subject: &Subject, permission: &Permission) -> Option<bool> {
        store.find(subject).and_then(|grant| grant.decision(permission))
    }

    #[test]
    fn a_decision_goes_with_the_file_or_with_the_content_but_not_with_the_id() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("agent/grants.json");
        let mut store = GrantStore::load(&file).unwrap();
        let user = subject("notes", "/user/notes.wasm", "sha256:1");
        store.decide(user.clone(), vec![env("A")], vec![env("B")]).unwrap();
        let again = GrantStore::load(&file).unwrap();
        for (subject, expected) in [
            (user.clone(), Some(true)),
            (subject("notes", "/user/notes.wasm", "sha256:2"), Some(true)),
            (subject("notes", "/else/notes.wasm", "sha256:1"), Some(true)),
            (subject("notes", "/project/.wharf/extensions/notes.wasm", "sha256:2"), None),
            (subject("other", "/user/notes.wasm", "sha256:1"), None),
        ] {
            assert_eq!(decision(&again, &subject, &env("A")), expected, "{subject:?}");
        }
        assert_eq!(decision(&again, &user, &env("B")), Some(false));
        assert_eq!(decision(&again, &user, &env("C")), None);
        assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    }

    #[test]
    fn what_is_decided_later_keeps_what_was_carried_over() {
        let dir = tempfile::tempdir().unwrap();
        let mut store = GrantStore::load(dir.path().join("grants.json")).unwrap();
        store.decide(subject("n", "/a", "h"), vec![env("A")], vec![]).unwrap();
        let moved = subject("n", "/b", "h");
        store.decide(moved.clone(), vec![env("B")], vec![]).unwrap();
        assert_eq!(decision(&store, &moved, &env("A")), Some(true));
        assert_eq!(store.revoke("n", Some(&[env("A")])).unwrap(), [env("A")]);
        assert_eq!(decision(&store, &moved, &env("A")), None);
        assert_eq!(store.revoke("other", None).unwrap(), []);
        assert_eq!(store.revoke("n", None).unwrap(), [env("B")]);
        assert!(store.list().is_empty());
    }

    #[test]
    fn a_file_that_is_not_understood_grants_nothing_and_stays() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("grants.json");
        let mut store = GrantStore::load(&file).unwrap();
        for text in ["", "{", "[]", r#"{"version":2,"extensions":[]}"#, r#"{"version":1}"#] {
            std::fs::write(&file, text).unwrap();
            let error = GrantStore::load(&file).unwrap_err().to_string();
            assert!(error.contains("nothing is granted"), "{error}");
            let decided = store.decide(subject("n", "/a", "h"), vec![env("A")], vec![]);
            assert!(decided.is_err() && store.list().is_empty());
            assert!(store.revoke("n", None).is_err());
            assert_eq!(std::fs::read_to_string(&file).unwrap(), text);
        }
    }

    #[test]
    fn processes_do_not_lose_each_others_decisions() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("grants.json");
        std::thread::scope(|scope| {
            for worker in 0..4 {
                let file = &file;
                scope.spawn(move || {
                    let mut store = GrantStore::load(file).unwrap();
                    for n in 0..10 {
                        let subject = subject("n", &format!("/{worker}"), "h");
                        store.decide(subject, vec![env(&format!("V{n}"))], vec![]).unwrap();
                    }
                });
            }
        });
        let store = GrantStore::load(&file).unwrap();
        for worker in 0..4 {
            let subject = subject("n", &format!("/{worker}"), "x");
            for n in 0..10 {
                let decided = decision(&store, &subject, &env(&format!("V{n}")));
                assert_eq!(decided, Some(true), "{worker} {n}");
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]

        /// The last decision of a file about a permission counts, through writing and reading.
        #[test]
        fn the_last_decision_counts(
            steps in prop::collection::vec((0..3_u8, 0..4_u8, any::<bool>(), any::<bool>()), 1..12)
        ) {
            let dir = tempfile::tempdir().unwrap();
            let file = dir.path().join("grants.json");
            let mut expected = BTreeMap::<(u8, u8), bool>::new();
            for (path, permission, is_granted, revokes) in steps {
                let mut store = GrantStore::load(&file).unwrap();
                let subject = subject("n", &format!("/{path}"), &format!("h{path}"));
                let wanted = vec![env(&format!("V{permission}"))];
                if revokes {
                    store.revoke("n", Some(&wanted)).unwrap();
                    expected.retain(|key, granted| !(*granted && key.1 == permission));
                } else {
                    expected.insert((path, permission), is_granted);
                    let (yes, no) = if is_granted { (wanted, vec![]) } else { (vec![], wanted) };
                    store.decide(subject, yes, no).unwrap();
                }
            }
            let store = GrantStore::load(&file).unwrap();
            for path in 0..3 {
                for permission in 0..4 {
                    let subject = subject("n", &format!("/{path}"), "changed");
                    let decided = decision(&store, &subject, &env(&format!("V{permission}")));
                    prop_assert_eq!(decided, expected.get(&(path, permission)).copied());
                }
            }
        }
    }
}
