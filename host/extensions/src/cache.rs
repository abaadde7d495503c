//! Compiled components and registrations on disk, by content.
//!
//! Loading compiled code is as trusted as loading a shared library, so the cache
//! belongs to the user alone: a directory that others can write is not used, and
//! neither is a file. Nothing here is ever taken from beside an extension.

use std::fs::{self, DirBuilder};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use wasmtime::Engine;
use wasmtime::component::Component;

use crate::registration::Registration;

/// Format of the cache's files.
///
/// 1. The first.
/// 2. Each file ends with the SHA-256 of what is before it.
const FORMAT: u32 = 2;

/// Bytes of the digest at a file's end.
const DIGEST_BYTES: usize = 32;

/// Group and others may not write.
const FOREIGN_WRITE: u32 = 0o022;

/// What a compiled component is found by: its content, and the engine.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Key(String);

impl Key {
    /// `compatibility` names the engine, see `engine`.
    pub(crate) fn new(content: &[u8], compatibility: &str) -> Self {
        let digest = Sha256::digest(content);
        let digits: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
        Self(format!("{digits}-{compatibility}"))
    }

    /// `sha256:` and 64 hex digits, of the content alone.
    pub(crate) fn content_hash(&self) -> String {
        let digits = self.0.split('-').next().unwrap_or_default();
        format!("sha256:{digits}")
    }
}

#[derive(Serialize, Deserialize)]
struct StoredRegistration {
    format: u32,
    registration: Registration,
}

#[derive(Debug)]
pub(crate) struct Cache {
    directory: PathBuf,
}

impl Cache {
    pub(crate) const fn new(directory: PathBuf) -> Self {
        Self { directory }
    }

    fn code_path(&self, key: &Key) -> PathBuf {
        self.directory.join(format!("{}.cwasm", key.0))
    }

    fn registration_path(&self, key: &Key) -> PathBuf {
        self.directory.join(format!("{}.json", key.0))
    }

    /// None when there is none, or none that can be trusted.
    pub(crate) fn registration(&self, key: &Key) -> Option<Registration> {
        let path = self.registration_path(key);
        check_private(&self.directory).ok()?;
        check_private(&path).ok()?;
        let file = fs::read(path).ok()?;
        let stored: StoredRegistration = serde_json::from_slice(undamaged(&file)?).ok()?;
        (stored.format == FORMAT).then_some(stored.registration)
    }

    pub(crate) fn store_registration(
        &self,
        key: &Key,
        registration: &Registration,
    ) -> io::Result<()> {
        let stored = StoredRegistration { format: FORMAT, registration: registration.clone() };
        self.write(&self.registration_path(key), &serde_json::to_vec(&stored)?)
    }

    /// None when there is none, none that can be trusted, or none that this engine takes.
    pub(crate) fn code(&self, key: &Key, engine: &Engine) -> Option<Component> {
        let path = self.code_path(key);
        check_private(&self.directory).ok()?;
        check_private(&path).ok()?;
        // The loader trusts what it maps: a flipped bit would be run.
        undamaged(&fs::read(&path).ok()?)?;
        deserialize(engine, &path).ok()
    }

    pub(crate) fn store_code(&self, key: &Key, component: &Component) -> io::Result<()> {
        let bytes = component.serialize().map_err(io::Error::other)?;
        self.write(&self.code_path(key), &bytes)
    }

    /// A temporary file and a rename: whoever maps the old file keeps it.
    fn write(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        DirBuilder::new().recursive(true).mode(0o700).create(&self.directory)?;
        check_private(&self.directory)?;
        let mut file = tempfile::Builder::new().prefix(".tmp-").tempfile_in(&self.directory)?;
        file.write_all(bytes)?;
        file.write_all(&Sha256::digest(bytes))?;
        file.persist(path).map_err(|error| error.error)?;
        Ok(())
    }
}

/// What a file holds before its digest; none when the two do not fit.
fn undamaged(file: &[u8]) -> Option<&[u8]> {
    let (content, digest) = file.split_at_checked(file.len().checked_sub(DIGEST_BYTES)?)?;
    (Sha256::digest(content).as_slice() == digest).then_some(content)
}

/// Ours, no link, and nobody else can write it.
fn check_private(path: &Path) -> io::Result<()> {
    let metadata = fs::symlink_metadata(path)?;
    let ours = metadata.uid() == rustix::process::geteuid().as_raw();
    let closed = metadata.permissions().mode() & FOREIGN_WRITE == 0;
    if ours && closed && !metadata.file_type().is_symlink() {
        Ok(())
    } else {
        Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            format!("{} must belong to this user and be writable by nobody else", path.display()),
        ))
    }
}

#[expect(
    unsafe_code,
    reason = "the only way to load compiled code; `check_private` has made sure that only this user can have written the file"
)]
fn deserialize(engine: &Engine, path: &Path) -> wasmtime::Result<Component> {
    // SAFETY: the file is one that `store_code` wrote by rename into a directory that
    // only this user can write, and is never changed in place.
    unsafe { Component::deserialize_file(engine, path) }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests fail by panicking")]
    use super::*;

    fn engine() -> Engine {
        Engine::default()
    }

    const EMPTY: &[u8] = b"\0asm\x0d\0\x01\0";

    #[test]
    fn what_was_stored_is_found_and_nothing_else_is() {
        let directory = tempfile::tempdir().unwrap();
        let cache = Cache::new(directory.path().join("cache"));
        let engine = engine();
        let key = Key::new(EMPTY, "abc-speed");
        assert!(cache.code(&key, &engine).is_none());
        let component = Component::new(&engine, EMPTY).unwrap();
        cache.store_code(&key, &component).unwrap();
        assert!(cache.code(&key, &engine).is_some());
        assert!(cache.code(&Key::new(EMPTY, "abd-speed"), &engine).is_none());
        let mode = fs::metadata(directory.path().join("cache")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o700);
    }

    #[test]
    fn damaged_or_foreign_files_are_misses() {
        let directory = tempfile::tempdir().unwrap();
        let cache = Cache::new(directory.path().join("cache"));
        let engine = engine();
        let key = Key::new(EMPTY, "abc-speed");
        let component = Component::new(&engine, EMPTY).unwrap();
        cache.store_code(&key, &component).unwrap();
        let path = cache.code_path(&key);

        fs::set_permissions(&path, fs::Permissions::from_mode(0o620)).unwrap();
        assert!(cache.code(&key, &engine).is_none(), "writable by the group");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        assert!(cache.code(&key, &engine).is_some());

        let bytes = fs::read(&path).unwrap();
        for damaged in [&bytes[..bytes.len() / 2], b"garbage".as_slice(), b""] {
            fs::remove_file(&path).unwrap();
            fs::write(&path, damaged).unwrap();
            assert!(cache.code(&key, &engine).is_none());
        }
        let elsewhere = directory.path().join("elsewhere");
        fs::write(&elsewhere, &bytes).unwrap();
        fs::remove_file(&path).unwrap();
        std::os::unix::fs::symlink(&elsewhere, &path).unwrap();
        assert!(cache.code(&key, &engine).is_none(), "a link");

        fs::write(cache.registration_path(&key), b"{\"format\":2}").unwrap();
        assert!(cache.registration(&key).is_none());
    }

    #[test]
    fn any_flipped_bit_is_a_miss() {
        let directory = tempfile::tempdir().unwrap();
        let cache = Cache::new(directory.path().join("cache"));
        let engine = engine();
        let key = Key::new(EMPTY, "abc-speed");
        cache.store_code(&key, &Component::new(&engine, EMPTY).unwrap()).unwrap();
        let path = cache.code_path(&key);
        let bytes = fs::read(&path).unwrap();
        for at in (0..bytes.len()).step_by(97).chain([bytes.len() - 1]) {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1 << (at % 8);
            fs::remove_file(&path).unwrap();
            fs::write(&path, damaged).unwrap();
            assert!(cache.code(&key, &engine).is_none(), "byte {at}");
        }
        fs::write(&path, bytes).unwrap();
        assert!(cache.code(&key, &engine).is_some());
    }
}
