//! The directory that an extension has to itself, `/data` for the guest.

use std::fs::DirBuilder;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};
use wasmtime_wasi::{FsPerms, WasiCtxBuilder};

use crate::access::Access;
use crate::discovery::{Found, Scope};

pub(crate) const GUEST_PATH: &str = "/data";

/// Where the extension's data is: `extension-data/ID` of the agent directory. One that
/// comes with a project has `ID@DIGITS`, by its file: with an id of somebody else it must
/// not get at that one's data.
pub(crate) fn directory(found: &Found, access: &Access) -> PathBuf {
    let comes_with_project = match found.scope {
        Scope::Explicit | Scope::User => false,
        Scope::Project => true,
        // They may be a project's settings.
        Scope::Settings => {
            access.places.project().map_or(true, |project| found.path.starts_with(project))
        }
    };
    let name = if comes_with_project {
        let digest = Sha256::digest(found.path.as_os_str().as_bytes());
        let digits: String = digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
        format!("{}@{digits}", access.id)
    } else {
        access.id.clone()
    };
    access.places.agent_dir().join("extension-data").join(name)
}

/// Makes the directory where there is none, and gives it to the guest.
pub(crate) fn preopen(wasi: &mut WasiCtxBuilder, directory: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
    wasi.preopened_dir(directory, GUEST_PATH, FsPerms::ReadWrite).map_err(io::Error::other)?;
    Ok(())
}
