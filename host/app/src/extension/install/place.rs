//! Puts a component into an extensions directory and takes it out again, together with
//! its entry in `installed.json`.

use std::fs::{self, DirBuilder};
use std::io::{self, Write as _};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use wharf_agent::resources::{TextFileError, read_regular};
use wharf_extensions::{
    Installed, InstalledEntry, InstalledError, LockedInstalled, MAX_COMPONENT_BYTES,
    is_extension_id,
};

use super::source::Source;
use super::{Arrival, content_hash};

#[derive(Debug, thiserror::Error)]
pub(super) enum PlaceError {
    #[error(transparent)]
    Installed(#[from] InstalledError),
    #[error("{0:?} is no extension id: 1 to 64 characters of a-z, 0-9 and -")]
    Id(String),
    #[error("{id} is installed from {from}; --force replaces it by the one from {source_}")]
    OtherSource { id: String, from: String, source_: String },
    #[error("{} is there already and was not installed; --force replaces it", .0.display())]
    NotInstalled(PathBuf),
    #[error("{id} is not installed in {}", .directory.display())]
    Unknown { id: String, directory: PathBuf },
    #[error(
        "{id} is not installed in {}, though its folder is there: delete it by hand",
        .directory.display()
    )]
    ByHand { id: String, directory: PathBuf },
    #[error("{} is a link or no folder: wharf installs only into folders of its own", .0.display())]
    Foreign(PathBuf),
    #[error("{id} has been changed meanwhile; try again")]
    Changed { id: String },
    #[error("failed to read {}: {source}", .path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("failed to write {}: {source}", .path.display())]
    Write { path: PathBuf, source: io::Error },
}

/// What an arrival may replace.
#[derive(Debug, Clone, Copy)]
pub(super) enum Replace<'a> {
    /// What came from the same source.
    SameSource,
    Anything,
    /// Exactly this entry: the one that an update began with.
    Entry(&'a InstalledEntry),
}

/// Installs what has arrived; gives the entry that it replaces.
pub(super) fn place(
    directory: &Path,
    arrival: &Arrival,
    replace: Replace<'_>,
) -> Result<Option<InstalledEntry>, PlaceError> {
    let id = arrival.id.as_str();
    if !is_extension_id(id) {
        return Err(PlaceError::Id(id.to_owned()));
    }
    let mut locked = Installed::lock(directory)?;
    let earlier = locked.installed().entries().get(id).cloned();
    let file = locked.installed().component(id);
    let folder = own_folder(directory, id)?;
    match (replace, &earlier) {
        (Replace::Anything, _) => {}
        (Replace::Entry(entry), earlier) if earlier.as_ref() != Some(entry) => {
            return Err(PlaceError::Changed { id: id.to_owned() });
        }
        (Replace::SameSource, Some(entry)) if !is_same_origin(&entry.source, &arrival.source) => {
            return Err(PlaceError::OtherSource {
                id: id.to_owned(),
                from: entry.source.clone(),
                source_: arrival.source.to_string(),
            });
        }
        // Also a link that leads nowhere.
        (Replace::SameSource, None) if file.symlink_metadata().is_ok() => {
            return Err(PlaceError::NotInstalled(file));
        }
        (Replace::SameSource | Replace::Entry(_), _) => {}
    }
    // The component first. If the entry then fails to follow, a new one is merely not
    // pinned, and an old entry's pin keeps the new content from being loaded.
    write(&folder, &file, &arrival.component)
        .map_err(|source| PlaceError::Write { path: file, source })?;
    locked.insert(id, arrival.entry())?;
    Ok(earlier)
}

/// Deletes an installed extension; gives its entry.
pub(super) fn remove(directory: &Path, id: &str) -> Result<InstalledEntry, PlaceError> {
    if !is_extension_id(id) {
        return Err(PlaceError::Id(id.to_owned()));
    }
    let unknown = || PlaceError::Unknown { id: id.to_owned(), directory: directory.to_owned() };
    if !directory.is_dir() {
        return Err(unknown());
    }
    let mut locked: LockedInstalled = Installed::lock(directory)?;
    let folder = own_folder(directory, id)?;
    let Some(entry) = locked.installed().entries().get(id).cloned() else {
        let by_hand = PlaceError::ByHand { id: id.to_owned(), directory: directory.to_owned() };
        return Err(if folder.exists() { by_hand } else { unknown() });
    };
    match fs::remove_dir_all(&folder) {
        Err(source) if source.kind() != io::ErrorKind::NotFound => {
            return Err(PlaceError::Write { path: folder, source });
        }
        _ => {}
    }
    locked.remove(id)?;
    Ok(entry)
}

/// Whether the component in place is the one that its entry says.
pub(super) fn is_intact(installed: &Installed, id: &str, hash: &str) -> Result<bool, PlaceError> {
    let path = installed.component(id);
    match read_regular(&path, MAX_COMPONENT_BYTES) {
        Ok(component) => Ok(content_hash(&component) == hash),
        Err(TextFileError::Io(source)) if source.kind() != io::ErrorKind::NotFound => {
            Err(PlaceError::Read { path, source })
        }
        Err(_) => Ok(false),
    }
}

/// The folder of an id. A link in its place would lead a write or a removal elsewhere.
fn own_folder(directory: &Path, id: &str) -> Result<PathBuf, PlaceError> {
    let folder = directory.join(id);
    match folder.symlink_metadata() {
        Ok(metadata) if metadata.is_dir() => Ok(folder),
        Ok(_) => Err(PlaceError::Foreign(folder)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(folder),
        Err(source) => Err(PlaceError::Read { path: folder, source }),
    }
}

fn is_same_origin(kept: &str, source: &Source) -> bool {
    // What is kept is absolute, so that the directory does not matter.
    Source::parse(kept, Path::new("/")).is_ok_and(|kept| kept.origin() == source.origin())
}

fn write(folder: &Path, file: &Path, component: &[u8]) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    let mut temporary = tempfile::Builder::new().prefix(".tmp-").tempfile_in(folder)?;
    temporary.write_all(component)?;
    temporary.as_file().sync_all()?;
    temporary.persist(file).map_err(|error| error.error)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use std::os::unix::fs::symlink;

    use super::*;

    fn arrival(source: &str, component: &str) -> Arrival {
        Arrival {
            source: Source::parse(source, Path::new("/cwd")).unwrap(),
            resolved: None,
            hash: content_hash(component.as_bytes()),
            component: component.into(),
            id: "demo".into(),
            version: "0.1.0".into(),
            permissions: Vec::new(),
        }
    }

    fn content(directory: &Path) -> String {
        fs::read_to_string(directory.join("demo/extension.wasm")).unwrap()
    }

    #[test]
    fn a_component_is_placed_replaced_and_removed_with_its_entry() {
        let temp = tempfile::tempdir().unwrap();
        let directory = &temp.path().join("extensions");
        let same = Replace::SameSource;
        assert_eq!(place(directory, &arrival("npm:demo@1", "one"), same).unwrap(), None);
        let replaced = place(directory, &arrival("npm:demo@2", "two"), same).unwrap().unwrap();
        assert_eq!(replaced.source, "npm:demo@1");
        assert_eq!(content(directory), "two");
        let installed = Installed::load(directory).unwrap();
        assert_eq!(installed.entries()["demo"].hash, content_hash(b"two"));
        assert!(is_intact(&installed, "demo", &content_hash(b"two")).unwrap());
        assert!(!is_intact(&installed, "demo", &content_hash(b"one")).unwrap());
        assert!(!is_intact(&installed, "none", &content_hash(b"one")).unwrap());
        let names: Vec<_> = fs::read_dir(directory.join("demo")).unwrap().collect();
        assert_eq!(names.len(), 1, "{names:?}");

        assert_eq!(remove(directory, "demo").unwrap().source, "npm:demo@2");
        assert!(!directory.join("demo").exists());
        assert!(Installed::load(directory).unwrap().entries().is_empty());
        let error = remove(directory, "demo").unwrap_err();
        assert!(matches!(error, PlaceError::Unknown { .. }), "{error}");
    }

    #[test]
    fn another_source_or_a_file_of_the_person_is_replaced_only_by_force() {
        let temp = tempfile::tempdir().unwrap();
        let directory = temp.path();
        place(directory, &arrival("npm:demo", "one"), Replace::SameSource).unwrap();
        let other = arrival("npm:demo-fork", "evil");
        let error = place(directory, &other, Replace::SameSource).unwrap_err();
        assert_eq!(
            error.to_string(),
            "demo is installed from npm:demo; --force replaces it by the one from npm:demo-fork"
        );
        assert_eq!(content(directory), "one");
        place(directory, &other, Replace::Anything).unwrap();
        assert_eq!(content(directory), "evil");

        let temp = tempfile::tempdir().unwrap();
        fs::create_dir(temp.path().join("demo")).unwrap();
        fs::write(temp.path().join("demo/extension.wasm"), "own").unwrap();
        let error = place(temp.path(), &other, Replace::SameSource).unwrap_err();
        assert!(matches!(error, PlaceError::NotInstalled(_)), "{error}");
        let error = remove(temp.path(), "demo").unwrap_err();
        assert!(matches!(error, PlaceError::ByHand { .. }), "{error}");
        assert_eq!(content(temp.path()), "own");
    }

    #[test]
    fn an_update_replaces_only_what_it_began_with() {
        let temp = tempfile::tempdir().unwrap();
        let began = arrival("npm:demo", "one").entry();
        let new = arrival("npm:demo", "two");
        let error = place(temp.path(), &new, Replace::Entry(&began)).unwrap_err();
        assert!(matches!(error, PlaceError::Changed { .. }), "{error}");
        place(temp.path(), &arrival("npm:demo", "other"), Replace::SameSource).unwrap();
        let error = place(temp.path(), &new, Replace::Entry(&began)).unwrap_err();
        assert!(matches!(error, PlaceError::Changed { .. }), "{error}");
        let current = Installed::load(temp.path()).unwrap().entries()["demo"].clone();
        place(temp.path(), &new, Replace::Entry(&current)).unwrap();
        assert_eq!(content(temp.path()), "two");
    }

    #[test]
    fn no_link_leads_a_write_or_a_removal_elsewhere() {
        let temp = tempfile::tempdir().unwrap();
        let outside = tempfile::tempdir().unwrap();
        fs::write(outside.path().join("precious"), "").unwrap();
        place(temp.path(), &arrival("npm:demo", "one"), Replace::SameSource).unwrap();
        fs::remove_dir_all(temp.path().join("demo")).unwrap();
        symlink(outside.path(), temp.path().join("demo")).unwrap();
        for force in [Replace::SameSource, Replace::Anything] {
            let error = place(temp.path(), &arrival("npm:demo", "two"), force).unwrap_err();
            assert!(matches!(error, PlaceError::Foreign(_)), "{error}");
        }
        let error = remove(temp.path(), "demo").unwrap_err();
        assert!(matches!(error, PlaceError::Foreign(_)), "{error}");
        assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 1);
        for id in ["..", "../x", "", "a/b", "Demo"] {
            assert!(matches!(remove(temp.path(), id), Err(PlaceError::Id(_))), "{id}");
        }
    }

    #[test]
    fn many_at_once_end_with_a_component_that_fits_its_entry() {
        let temp = tempfile::tempdir().unwrap();
        std::thread::scope(|scope| {
            for number in 0..8 {
                let directory = temp.path();
                scope.spawn(move || {
                    let arrival = arrival(&format!("npm:demo@{number}"), &number.to_string());
                    place(directory, &arrival, Replace::SameSource).unwrap();
                });
            }
        });
        let installed = Installed::load(temp.path()).unwrap();
        let entry = &installed.entries()["demo"];
        assert_eq!(entry.source, format!("npm:demo@{}", content(temp.path())));
        assert!(is_intact(&installed, "demo", &entry.hash).unwrap());
    }
}
