//! Writing the agent directory's `settings.json`: one change at a time, also with several
//! processes, and nothing else touched. What the keys mean is not known here.

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use super::text_file::{self, TextFileError};
use crate::tools::canonical_path;

/// The texts are those that rpc-mode.md fixes.
#[derive(Debug, thiserror::Error)]
pub enum SettingsWriteError {
    #[error(
        "Cannot write settings: the global settings file failed to load (fix or remove the corrupt settings.json first)"
    )]
    Corrupt,
    #[error("Failed to persist settings: {action} {path}: {source}", path = path.display())]
    Io {
        /// `cannot write`
        action: &'static str,
        path: PathBuf,
        source: io::Error,
    },
}

#[derive(Debug, Clone)]
pub struct SettingsFile {
    path: PathBuf,
}

impl SettingsFile {
    pub fn new(path: PathBuf) -> Self {
        Self { path }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Applies `change` to what the file holds now, and writes the file if it made a
    /// difference. Keys keep their order. Waits for other writers; blocks.
    ///
    /// # Errors
    /// The file is there and is no JSON object, or it cannot be read or written. It then
    /// is as it was.
    pub fn update(
        &self,
        change: impl FnOnce(&mut Map<String, Value>),
    ) -> Result<(), SettingsWriteError> {
        let _lock = self.lock()?;
        // A link, say into a directory of dotfiles, stays one.
        let target = canonical_path(&self.path)
            .map_err(|error| failed("cannot follow", &self.path)(io::Error::other(error)))?;
        let old = read(&target)?;
        let mut new = old.clone();
        change(&mut new);
        if new == old {
            return Ok(());
        }
        write(&target, new).map_err(failed("cannot write", &target))
    }

    /// The lock is on a file of its own, as the settings file is replaced by each write. It
    /// stays there: who removed it would take it from those who wait for it.
    fn lock(&self) -> Result<File, SettingsWriteError> {
        if let Some(directory) = self.path.parent() {
            DirBuilder::new()
                .recursive(true)
                .mode(0o700)
                .create(directory)
                .map_err(failed("cannot make", directory))?;
        }
        let mut path = self.path.clone().into_os_string();
        path.push(".lock");
        let path = PathBuf::from(path);
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(false).mode(0o600);
        let file = options.open(&path).map_err(failed("cannot open", &path))?;
        file.lock().map_err(failed("cannot lock", &path))?;
        Ok(file)
    }
}

/// Sets the value at `path`, for example `["retry", "enabled"]`. Objects on the way are
/// made where there are none, also in place of what is no object.
pub fn set_path(object: &mut Map<String, Value>, path: &[&str], value: Value) {
    let Some((key, groups)) = path.split_last() else { return };
    let mut holder = object;
    for group in groups {
        let next = holder.entry(*group).or_insert(Value::Null);
        if !next.is_object() {
            *next = Value::Object(Map::new());
        }
        // An object since the line before.
        let Value::Object(inner) = next else { return };
        holder = inner;
    }
    holder.insert((*key).to_owned(), value);
}

fn failed<'a>(
    action: &'static str,
    path: &'a Path,
) -> impl FnOnce(io::Error) -> SettingsWriteError + 'a {
    move |source| SettingsWriteError::Io { action, path: path.to_path_buf(), source }
}

/// An absent file is an empty object. Bytes that are not UTF-8 make the file corrupt here:
/// writing it would lose them.
fn read(file: &Path) -> Result<Map<String, Value>, SettingsWriteError> {
    match text_file::read_regular(file, text_file::MAX_BYTES) {
        Ok(bytes) => {
            let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&bytes);
            serde_json::from_slice(bytes).map_err(|_| SettingsWriteError::Corrupt)
        }
        Err(error) if error.is_not_found() => Ok(Map::new()),
        Err(TextFileError::Io(source)) => Err(failed("cannot read", file)(source)),
        Err(TextFileError::NotAFile | TextFileError::TooLarge { .. }) => {
            Err(SettingsWriteError::Corrupt)
        }
    }
}

/// Replaces the file; a crash leaves the old one or the new one.
fn write(file: &Path, object: Map<String, Value>) -> io::Result<()> {
    let text = format!("{:#}\n", Value::Object(object));
    if text.len() as u64 > text_file::MAX_BYTES {
        let problem = format!("it would be larger than {} bytes", text_file::MAX_BYTES);
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, problem));
    }
    let directory = file.parent().unwrap_or(Path::new("/"));
    let old = match fs::metadata(file) {
        Ok(metadata) => Some(metadata),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(error),
    };
    // The rename would not care.
    if old.as_ref().is_some_and(|old| old.permissions().readonly()) {
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, "it is write-protected"));
    }
    let mut new = tempfile::Builder::new()
        .prefix(".settings-")
        .permissions(Permissions::from_mode(0o600))
        .tempfile_in(directory)?;
    if let Some(old) = old {
        let made = new.as_file().metadata()?;
        if (made.uid(), made.gid()) != (old.uid(), old.gid()) {
            // A run as root must not take the file from its owner. Others may not give it
            // away, and need not: the content is what was asked for.
            let _ = fchown(new.as_file(), Some(old.uid()), Some(old.gid()));
        }
        new.as_file().set_permissions(old.permissions())?;
    }
    new.write_all(text.as_bytes())?;
    new.as_file().sync_all()?;
    new.persist(file)?;
    File::open(directory)?.sync_all()
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test may panic")]

    use std::os::unix::fs::symlink;
    use std::thread;

    use serde_json::json;

    use super::*;

    struct Setup {
        root: tempfile::TempDir,
    }

    impl Setup {
        fn empty() -> Self {
            Self { root: tempfile::tempdir().unwrap() }
        }

        fn new(content: impl AsRef<[u8]>) -> Self {
            let setup = Self::empty();
            fs::create_dir(setup.path("agent")).unwrap();
            fs::write(setup.path("agent/settings.json"), content).unwrap();
            setup
        }

        fn path(&self, name: &str) -> PathBuf {
            self.root.path().canonicalize().unwrap().join(name)
        }

        fn file(&self) -> SettingsFile {
            SettingsFile::new(self.path("agent/settings.json"))
        }

        fn content(&self) -> String {
            fs::read_to_string(self.path("agent/settings.json")).unwrap()
        }

        fn names(&self, directory: &str) -> Vec<String> {
            let entries = fs::read_dir(self.path(directory)).unwrap();
            let mut names: Vec<_> = entries
                .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
                .collect();
            names.sort();
            names
        }
    }

    fn set(key: &str, value: Value) -> impl FnOnce(&mut Map<String, Value>) {
        move |object| set_path(object, &[key], value)
    }

    #[test]
    fn only_what_changes_is_changed() {
        for (before, after) in [
            ("{}", "{\n  \"a\": 1\n}\n"),
            ("\u{feff}{\"z\": 1,\r\n\"a\":2}", "{\n  \"z\": 1,\n  \"a\": 1\n}\n"),
            (
                r#"{"zebra": {"y": [1.0, {"x": null}], "b": "ü\u0000"}, "a": {}, "m": -0.5}"#,
                "{\n  \"zebra\": {\n    \"y\": [\n      1.0,\n      {\n        \"x\": null\n      }\n    ],\n    \"b\": \"ü\\u0000\"\n  },\n  \"a\": 1,\n  \"m\": -0.5\n}\n",
            ),
        ] {
            let setup = Setup::new(before);
            setup.file().update(set("a", json!(1))).unwrap();
            assert_eq!(setup.content(), after);
            assert_eq!(setup.names("agent"), ["settings.json", "settings.json.lock"]);
        }
    }

    #[test]
    fn the_first_change_makes_file_and_directory() {
        let setup = Setup::empty();
        setup.file().update(|_| {}).unwrap();
        assert!(!setup.path("agent/settings.json").exists(), "nothing to write");
        setup.file().update(set("a", json!(true))).unwrap();
        assert_eq!(setup.content(), "{\n  \"a\": true\n}\n");
        let mode = |name| fs::metadata(setup.path(name)).unwrap().mode() & 0o777;
        assert_eq!([mode("agent"), mode("agent/settings.json")], [0o700, 0o600]);
    }

    #[test]
    fn without_a_difference_nothing_is_written() {
        let text = "{ \"a\": 1 }";
        let setup = Setup::new(text);
        let inode = || fs::metadata(setup.path("agent/settings.json")).unwrap().ino();
        let before = inode();
        setup.file().update(set("a", json!(1))).unwrap();
        assert_eq!((setup.content().as_str(), inode()), (text, before));
    }

    #[test]
    fn a_file_that_does_not_load_stays_as_it_is() {
        for content in
            [&b""[..], b"{\"a\": 1", b"[]", b"null", b"{\"a\": 1} x", b"{\"a\": \"\xe9\"}"]
        {
            let setup = Setup::new(content);
            let error = setup.file().update(set("a", json!(1))).unwrap_err();
            assert_eq!(
                error.to_string(),
                "Cannot write settings: the global settings file failed to load (fix or remove the corrupt settings.json first)"
            );
            assert_eq!(fs::read(setup.path("agent/settings.json")).unwrap(), content);
        }
    }

    #[test]
    fn permissions_and_links_are_kept() {
        let setup = Setup::new("{}");
        let dotfiles = setup.path("dotfiles");
        fs::create_dir(&dotfiles).unwrap();
        let target = dotfiles.join("wharf.json");
        fs::rename(setup.path("agent/settings.json"), &target).unwrap();
        fs::set_permissions(&target, Permissions::from_mode(0o664)).unwrap();
        symlink("../dotfiles/wharf.json", setup.path("agent/settings.json")).unwrap();
        setup.file().update(set("a", json!(1))).unwrap();
        assert!(setup.path("agent/settings.json").is_symlink());
        assert_eq!(setup.content(), "{\n  \"a\": 1\n}\n");
        assert_eq!(fs::metadata(&target).unwrap().mode() & 0o777, 0o664);
        assert_eq!(setup.names("dotfiles"), ["wharf.json"]);

        // A link to nothing yet.
        fs::remove_file(&target).unwrap();
        setup.file().update(set("b", json!(2))).unwrap();
        assert_eq!(fs::read_to_string(&target).unwrap(), "{\n  \"b\": 2\n}\n");
        assert!(setup.path("agent/settings.json").is_symlink());
    }

    #[test]
    fn what_cannot_be_written_is_named() {
        // Write protection is looked at, not tried: it holds for root too.
        let setup = Setup::new("{}");
        let path = setup.path("agent/settings.json");
        fs::set_permissions(&path, Permissions::from_mode(0o444)).unwrap();
        let error = setup.file().update(set("a", json!(1))).unwrap_err();
        assert_eq!(
            error.to_string(),
            format!(
                "Failed to persist settings: cannot write {}: it is write-protected",
                path.display()
            )
        );
        assert_eq!(setup.content(), "{}");

        // It could not be loaded again.
        let setup = Setup::new("{}");
        let error = setup.file().update(set("a", json!("x".repeat(1 << 20)))).unwrap_err();
        assert!(error.to_string().ends_with(": it would be larger than 1048576 bytes"), "{error}");
        assert_eq!(setup.content(), "{}");

        let setup = Setup::empty();
        fs::write(setup.path("agent"), "a file").unwrap();
        let error = setup.file().update(set("a", json!(1))).unwrap_err().to_string();
        let start =
            format!("Failed to persist settings: cannot make {}: ", setup.path("agent").display());
        assert!(error.starts_with(&start), "{error}");

        let setup = Setup::empty();
        fs::create_dir(setup.path("agent")).unwrap();
        symlink("settings.json", setup.path("agent/settings.json")).unwrap();
        let error = setup.file().update(set("a", json!(1))).unwrap_err().to_string();
        assert!(error.starts_with("Failed to persist settings: cannot follow "), "{error}");
    }

    /// Each thread has its own open file, as processes have.
    #[test]
    fn concurrent_changes_are_all_there() {
        const WRITERS: usize = 4;
        const CHANGES: usize = 20;
        let setup = Setup::new(r#"{"count": 0}"#);
        thread::scope(|scope| {
            for writer in 0..WRITERS {
                let file = setup.file();
                scope.spawn(move || {
                    for n in 0..CHANGES {
                        let change = |object: &mut Map<String, Value>| {
                            let count = object["count"].as_u64().unwrap() + 1;
                            object["count"] = json!(count);
                            set_path(object, &["by", &format!("{writer} {n}")], json!(true));
                        };
                        file.update(change).unwrap();
                    }
                });
            }
        });
        let object: Value = serde_json::from_str(&setup.content()).unwrap();
        assert_eq!(object["count"], WRITERS * CHANGES);
        assert_eq!(object["by"].as_object().unwrap().len(), WRITERS * CHANGES);
    }

    #[test]
    fn values_are_set_at_their_path() {
        for (before, path, after) in [
            (json!({}), &["a"][..], json!({"a": 1})),
            (json!({"a": {"b": 2}}), &["a"], json!({"a": 1})),
            (json!({}), &["a", "b", "c"], json!({"a": {"b": {"c": 1}}})),
            (
                json!({"a": {"x": 0, "b": {"y": 0}}}),
                &["a", "b", "c"],
                json!({"a": {"x": 0, "b": {"y": 0, "c": 1}}}),
            ),
            (json!({"a": "text"}), &["a", "b"], json!({"a": {"b": 1}})),
            (json!({"a": null, "b": 2}), &["a", "c"], json!({"a": {"c": 1}, "b": 2})),
            (json!({"a": 2}), &[], json!({"a": 2})),
        ] {
            let mut object = before.as_object().unwrap().clone();
            set_path(&mut object, path, json!(1));
            assert_eq!(Value::Object(object).to_string(), after.to_string(), "{path:?}");
        }
    }
}
