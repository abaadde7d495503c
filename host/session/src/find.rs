//! Which file a session id means. Opens files only where their names don't tell.

use std::cmp::Reverse;
use std::path::{Path, PathBuf};

use crate::directory::{SessionDir, SessionFile, is_same_cwd, session_files};
use crate::error::{FindError, ListError};
use crate::header::told_by_file_name;
use crate::listing::summary::read_header;
use crate::listing::{SessionIndex, absolute, describe};

impl SessionDir {
    /// The file of the session whose id is `what` or, where just one is, starts with it:
    /// among the sessions of `cwd` and, where none of them is meant, in the whole store.
    ///
    /// # Errors
    /// If no session or several are meant, or the store can't be read.
    pub fn find(&self, cwd: &Path, what: &str, index: &SessionIndex) -> Result<PathBuf, FindError> {
        let mut found = matches_in(&[absolute(&self.folder(cwd))], what)?;
        found.retain(|found| found.is_of(cwd));
        let (store, folders) = self.folders()?;
        if found.is_empty() {
            found = matches_in(&folders, what)?;
        }
        if found.iter().any(|found| found.exact) {
            found.retain(|found| found.exact);
        }
        match found.len() {
            0 => Err(FindError::NotFound { what: what.to_owned(), looked_in: store }),
            1 => Ok(found.remove(0).file.path),
            total => {
                found.sort_by_key(|found| Reverse(found.file.modified));
                found.truncate(FindError::MAX_CANDIDATES);
                let candidates =
                    found.iter().filter_map(|found| describe(&found.file, index)).collect();
                Err(FindError::Ambiguous { what: what.to_owned(), candidates, total })
            }
        }
    }

    /// The file of the session with just this id.
    pub(crate) fn find_exact(&self, id: &str) -> Result<Option<PathBuf>, ListError> {
        let (_, folders) = self.folders()?;
        let found = matches_in(&folders, id)?;
        Ok(found.into_iter().find(|found| found.exact).map(|found| found.file.path))
    }
}

struct Match {
    file: SessionFile,
    exact: bool,
}

impl Match {
    /// Two directories may share a folder, so the header decides; where that is lost, the
    /// folder does.
    fn is_of(&self, cwd: &Path) -> bool {
        match read_header(&self.file.path) {
            Ok(Some(header)) => is_same_cwd(Path::new(&header.cwd), cwd),
            Ok(None) | Err(_) => true,
        }
    }
}

fn matches_in(folders: &[PathBuf], what: &str) -> Result<Vec<Match>, ListError> {
    let mut matches = Vec::new();
    if what.is_empty() {
        return Ok(matches);
    }
    let what = what.to_ascii_lowercase();
    for folder in folders {
        let found = session_files(folder).map_err(|error| ListError::new(folder, error))?;
        for file in found.files {
            let (named, _) = told_by_file_name(&file.path);
            let id = named.or_else(|| read_header(&file.path).ok().flatten()?.id);
            if let Some(id) = id.map(|id| id.to_ascii_lowercase())
                && id.starts_with(&what)
            {
                matches.push(Match { file, exact: id == what });
            }
        }
    }
    Ok(matches)
}
