//! Reads an npm package's `.tgz` in memory. Nothing of it is ever written to a disk under
//! a name of its own, so that no path or link in it leads anywhere.

use std::collections::BTreeMap;
use std::io::{self, Read};
use std::path::{Component, Path};

use flate2::read::MultiGzDecoder;
use tar::{Archive, EntryType};
use wharf_extensions::MAX_COMPONENT_BYTES;

use super::candidates::{ChooseError, MANIFEST, choose};

/// Bytes that a package may unpack to: two of the largest components.
const MAX_UNPACKED: u64 = 2 * MAX_COMPONENT_BYTES;

const MAX_ENTRIES: usize = 20_000;

/// Why a package is not taken.
#[derive(Debug, thiserror::Error)]
pub(super) enum ArchiveError {
    #[error("the package is no readable .tgz: {0}")]
    Broken(#[from] io::Error),
    #[error("the package unpacks to more than {0} bytes")]
    TooLarge(u64),
    #[error("the package has more than {MAX_ENTRIES} files")]
    TooMany,
    #[error("the package holds {0:?}, which leads out of it")]
    Outside(String),
    #[error("the package holds {0:?}, which is neither a file nor a folder")]
    NotAFile(String),
    #[error("{0:?} in the package has more than {MAX_COMPONENT_BYTES} bytes")]
    LargeFile(String),
    #[error("the package has no component: no extension.wasm, no other .wasm file")]
    NoComponent,
    #[error("the package has no component that could be chosen: {0}")]
    Choose(#[from] ChooseError),
}

/// A package's component, and the version in its manifest.
#[derive(Debug)]
pub(super) struct Package {
    pub(super) component: Vec<u8>,
    pub(super) version: Option<String>,
}

pub(super) fn read(tgz: impl Read) -> Result<Package, ArchiveError> {
    read_within(tgz, MAX_UNPACKED)
}

fn read_within(tgz: impl Read, limit: u64) -> Result<Package, ArchiveError> {
    let mut budget = Budget { inner: MultiGzDecoder::new(tgz), left: limit, is_spent: false };
    let files = read_files(&mut budget);
    let mut files = match files {
        // What the reader of archives makes of an early end does not matter then.
        Err(_) if budget.is_spent => return Err(ArchiveError::TooLarge(limit)),
        files => files?,
    };
    let names: Vec<&str> = files.keys().map(String::as_str).collect();
    let manifest = files.get(MANIFEST).map(Vec::as_slice);
    let chosen = choose(&names, manifest)?.ok_or(ArchiveError::NoComponent)?.to_owned();
    let version = manifest
        .and_then(|manifest| serde_json::from_slice::<serde_json::Value>(manifest).ok())
        .and_then(|manifest| manifest["version"].as_str().map(str::to_owned));
    let component = files.remove(&chosen).ok_or(ArchiveError::NoComponent)?;
    Ok(Package { component, version })
}

/// The manifest and all components, by their paths below the package's own folder.
fn read_files(tar: impl Read) -> Result<BTreeMap<String, Vec<u8>>, ArchiveError> {
    let mut files = BTreeMap::new();
    let mut archive = Archive::new(tar);
    for (number, entry) in archive.entries()?.enumerate() {
        if number >= MAX_ENTRIES {
            return Err(ArchiveError::TooMany);
        }
        let entry = entry?;
        let kind = entry.header().entry_type();
        if kind == EntryType::XGlobalHeader {
            continue;
        }
        let path = entry.path()?.into_owned();
        let shown = || path.display().to_string();
        let Some(name) = inner_path(&path) else { return Err(ArchiveError::Outside(shown())) };
        match kind {
            EntryType::Regular | EntryType::Continuous => {}
            EntryType::Directory => continue,
            // Links lead elsewhere; sparse files unpack to more than they hold.
            _ => return Err(ArchiveError::NotAFile(shown())),
        }
        if name != MANIFEST && !name.ends_with(".wasm") {
            continue;
        }
        if entry.size() > MAX_COMPONENT_BYTES {
            return Err(ArchiveError::LargeFile(shown()));
        }
        let mut content = Vec::new();
        entry.take(MAX_COMPONENT_BYTES).read_to_end(&mut content)?;
        files.insert(name, content);
    }
    Ok(files)
}

/// A path without the first folder, which npm calls `package`. None for one that is not
/// below it, whoever would unpack it.
fn inner_path(path: &Path) -> Option<String> {
    let mut parts = Vec::new();
    for component in path.components() {
        match component {
            Component::Normal(part) => parts.push(part.to_str()?),
            Component::CurDir => {}
            _ => return None,
        }
    }
    (!parts.is_empty()).then(|| parts[1..].join("/"))
}

/// Fails when more is read than was allowed.
struct Budget<R> {
    inner: R,
    left: u64,
    is_spent: bool,
}

impl<R: Read> Read for Budget<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(buffer)?;
        match self.left.checked_sub(count as u64) {
            Some(left) => {
                self.left = left;
                Ok(count)
            }
            None => {
                self.is_spent = true;
                Err(io::Error::other("too large"))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use std::io::Write as _;

    use flate2::Compression;
    use flate2::write::GzEncoder;
    use tar::{Builder, Header};

    use super::*;

    /// An entry with any name, which the library would refuse to write.
    fn entry(tar: &mut Builder<Vec<u8>>, name: &str, kind: EntryType, content: &[u8]) {
        let mut header = Header::new_gnu();
        header.as_mut_bytes()[..name.len()].copy_from_slice(name.as_bytes());
        header.set_entry_type(kind);
        header.set_size(content.len() as u64);
        if matches!(kind, EntryType::Symlink | EntryType::Link) {
            header.set_link_name("../../etc").unwrap();
        }
        if kind == EntryType::GNUSparse {
            header.as_gnu_mut().unwrap().realsize = *b"00000000000\0";
        }
        header.set_mode(0o644);
        header.set_cksum();
        tar.append(&header, content).unwrap();
    }

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    fn tgz(entries: &[(&str, EntryType, &[u8])]) -> Vec<u8> {
        let mut tar = Builder::new(Vec::new());
        for (name, kind, content) in entries {
            entry(&mut tar, name, *kind, content);
        }
        gzip(&tar.into_inner().unwrap())
    }

    const FILE: EntryType = EntryType::Regular;

    #[test]
    fn the_component_and_the_version_are_found() {
        let manifest = br#"{"version": "1.2.3", "wharf": {"extension": "dist/x.wasm"}}"#;
        let package = tgz(&[
            ("package", EntryType::Directory, b""),
            ("package/package.json", FILE, manifest),
            ("package/other.wasm", FILE, b"other"),
            ("package/dist/x.wasm", FILE, b"wanted"),
        ]);
        let package = read(&package[..]).unwrap();
        assert_eq!(package.component, b"wanted");
        assert_eq!(package.version.as_deref(), Some("1.2.3"));
    }

    #[test]
    fn hostile_packages_are_refused() {
        let wasm = ("package/extension.wasm", FILE, &b"x"[..]);
        for (entries, expect) in [
            (vec![wasm, ("package/../../x.wasm", FILE, b"")], "leads out"),
            (vec![wasm, ("../x", FILE, b"")], "leads out"),
            (vec![wasm, ("/abs/x.wasm", FILE, b"")], "leads out"),
            (vec![("package/extension.wasm", EntryType::Symlink, b"")], "neither a file"),
            (vec![wasm, ("package/hard", EntryType::Link, b"")], "neither a file"),
            (vec![wasm, ("package/fifo", EntryType::Fifo, b"")], "neither a file"),
            (vec![wasm, ("package/sparse", EntryType::GNUSparse, b"")], "neither a file"),
            (vec![wasm, ("package/null", EntryType::Char, b"")], "neither a file"),
            (vec![("package/readme", FILE, b"")], "has no component"),
            (vec![("package/a.wasm", FILE, b""), ("package/b.wasm", FILE, b"")], "several"),
            (vec![], "has no component"),
        ] {
            let error = read(&tgz(&entries)[..]).unwrap_err().to_string();
            assert!(error.contains(expect), "{expect}: {error}");
        }
    }

    #[test]
    fn a_bomb_costs_no_more_than_the_limit() {
        let zeros = vec![0; 1 << 20];
        let bomb = tgz(&[("package/readme", FILE, &zeros), ("package/extension.wasm", FILE, b"x")]);
        assert!(bomb.len() < 20_000);
        assert!(read(&bomb[..]).is_ok());
        let error = read_within(&bomb[..], 1 << 19).unwrap_err();
        assert!(matches!(error, ArchiveError::TooLarge(_)), "{error}");
        // A size that the header only claims.
        let mut header = Header::new_gnu();
        header.set_path("package/extension.wasm").unwrap();
        header.set_size(MAX_COMPONENT_BYTES + 1);
        header.set_cksum();
        let error = read(&gzip(header.as_bytes())[..]).unwrap_err();
        assert!(matches!(error, ArchiveError::LargeFile(_)), "{error}");
    }

    #[test]
    fn too_many_entries_and_torn_files_are_refused() {
        let mut tar = Builder::new(Vec::new());
        for _ in 0..=MAX_ENTRIES {
            entry(&mut tar, "package/x", FILE, b"");
        }
        let many = gzip(&tar.into_inner().unwrap());
        assert!(matches!(read(&many[..]).unwrap_err(), ArchiveError::TooMany));
        let whole = tgz(&[("package/extension.wasm", FILE, &[7; 5000])]);
        for torn in [&whole[..whole.len() / 2], b"no gzip", b""] {
            assert!(matches!(read(torn).unwrap_err(), ArchiveError::Broken(_)), "{torn:?}");
        }
    }
}
