//! Looks before each write whether the file is still the one that has our entries, and
//! mends it if not. Nothing is ever written to a file that is not known to be ours.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::Target;
use super::create::{create_file, folder_of, write_session};
use super::replace::{Applied, move_torn_tail};
use super::stamp::{FileId, Stamp};
use super::worker::{ATTEMPTS, Worker};
use crate::Timestamp;
use crate::directory::create_private_dir;
use crate::entry::Entry;
use crate::error::{OpenError, WriteError};
use crate::header::SessionHeader;
use crate::load::load;
use crate::lock::FileLock;
use crate::notice::Notice;

/// Links to follow, as Linux does.
const MAX_LINKS: usize = 40;

enum Standing {
    /// Ours, open, and all that we know of it is there; its length (bytes) is greater if
    /// others appended.
    Ours { len: u64 },
    /// The path leads nowhere.
    Missing,
    /// Another file, or ours after somebody cut it or wrote it anew.
    Foreign,
}

impl Worker {
    /// Has the file open for appending at the start of a line (or where our own partial
    /// line ended), and the lock that it takes.
    pub(super) fn ready(&mut self) -> Result<(), WriteError> {
        self.begin()?;
        for _ in 0..ATTEMPTS {
            match self.look()? {
                Standing::Ours { len } => return self.accept(len),
                Standing::Missing => self.recreate()?,
                Standing::Foreign => self.adopt_or_move()?,
            }
        }
        Err(self.error(io::Error::other("the file is replaced again and again")))
    }

    /// Whether the path leads to all that we wrote.
    pub(super) fn is_in_place(&self) -> bool {
        match (std::fs::metadata(self.shared.path()), &self.stamp) {
            (Ok(metadata), Some(stamp)) => {
                FileId::of(&metadata) == stamp.id && metadata.len() >= stamp.end
            }
            _ => false,
        }
    }

    /// What comes before the first write.
    fn begin(&mut self) -> Result<(), WriteError> {
        match &self.target {
            Target::Existing(_) => self.shared.hold_lock()?,
            Target::New(header) => {
                let path = self.shared.path();
                let line = header.to_line().map_err(|error| WriteError::Encode(Arc::new(error)))?;
                create_private_dir(folder_of(path)).map_err(|error| self.error(error))?;
                self.shared.hold_lock()?;
                let stamp = create_file(path, |out| out.write_all(line.as_bytes()))
                    .and_then(|file| Stamp::of(&file));
                self.stamp = match stamp {
                    Ok(stamp) => Some(stamp),
                    // Somebody else's file: none of ours is there.
                    Err(error) if error.kind() == ErrorKind::AlreadyExists => None,
                    Err(error) => return Err(self.error(error)),
                };
                self.target = Target::Existing(None);
            }
            Target::Replaced(replacement) => {
                let path = self.shared.path();
                self.shared.hold_lock()?;
                match replacement.apply(path, self.stamp.as_ref())? {
                    Applied::Replaced => {
                        self.target = Target::Existing(None);
                        let stamp = File::open(path).and_then(|file| Stamp::of(&file));
                        self.stamp = Some(stamp.map_err(|error| self.error(error))?);
                        self.needs_line_feed = false;
                    }
                    // Until that has worked nothing may be appended there.
                    Applied::Changed => self.adopt_or_move()?,
                    Applied::Missing => self.target = Target::Existing(None),
                }
            }
        }
        Ok(())
    }

    fn look(&mut self) -> Result<Standing, WriteError> {
        let path = self.shared.path();
        let metadata = match std::fs::metadata(path) {
            Ok(metadata) => metadata,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Standing::Missing),
            Err(error) => return Err(self.error(error)),
        };
        let Some(stamp) = &self.stamp else { return Ok(Standing::Foreign) };
        if FileId::of(&metadata) != stamp.id || metadata.len() < stamp.end {
            return Ok(Standing::Foreign);
        }
        let file = match &self.file {
            Some(file) => file,
            None => match OpenOptions::new().read(true).append(true).open(path) {
                Ok(file) => self.file.insert(Arc::new(file)),
                Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Standing::Missing),
                Err(error) => return Err(self.error(error)),
            },
        };
        let is_ours = || {
            let metadata = file.metadata()?;
            let len = metadata.len();
            // Its bytes too: it can be written anew in place, with the same length.
            let is_ours =
                FileId::of(&metadata) == stamp.id && len >= stamp.end && stamp.is_kept_in(file)?;
            Ok(is_ours.then_some(len))
        };
        match is_ours() {
            Ok(Some(len)) => Ok(Standing::Ours { len }),
            Ok(None) => Ok(Standing::Foreign),
            Err(error) => Err(self.error(error)),
        }
    }

    /// Goes on at the end of the file, which is open.
    fn accept(&mut self, len: u64) -> Result<(), WriteError> {
        let Some(file) = self.file.clone() else { return Ok(()) };
        let torn = match self.target {
            Target::Existing(torn) => torn,
            Target::New(_) | Target::Replaced(_) => None,
        };
        if let Some(torn) = torn
            && torn.source_len == len
        {
            move_torn_tail(&file, self.shared.path(), torn).map_err(|error| self.error(error))?;
        } else if self.stamp.as_ref().is_some_and(|stamp| stamp.end == len) {
            return Ok(());
        }
        // Somebody else wrote after our last byte: a line of ours that is not finished is
        // written again as a whole. After the move of a torn tail there is none.
        let stamp = Stamp::of(&file).map_err(|error| self.error(error))?;
        self.target = Target::Existing(None);
        self.partial = 0;
        self.needs_line_feed = !stamp.ends_line();
        self.stamp = Some(stamp);
        Ok(())
    }

    /// Writes the whole session again where its file was.
    fn recreate(&mut self) -> Result<(), WriteError> {
        let place = self.shared.place();
        let path = self.shared.path().to_owned();
        let (header, entries) = (place.header.clone(), self.entries()?);
        create_private_dir(folder_of(&path)).map_err(|error| self.error(error))?;
        // The lock file may have gone with the folder.
        self.shared.renew_lock()?;
        match write_session(&destination(&path), header.to_line(), &entries) {
            Ok(file) => {
                self.start_over(file, entries.len())?;
                self.shared.notify(Notice::Recreated { path });
                Ok(())
            }
            // It is back: looked at again.
            Err(error) if error.kind() == ErrorKind::AlreadyExists && path.exists() => Ok(()),
            Err(error) => Err(self.error(error)),
        }
    }

    /// Goes on in what stands there if it is this session (a sync tool brought it back, an
    /// editor saved it); if not, in a new file beside it.
    fn adopt_or_move(&mut self) -> Result<(), WriteError> {
        let from = self.shared.path().to_owned();
        let header = self.shared.place().header.clone();
        let entries = self.entries()?;
        let theirs = load(&from);
        if let Ok(theirs) = &theirs
            && theirs.header.id == header.id
            && theirs.replacement.is_none()
            && has_all(theirs.tree.entries(), &entries[..self.in_file.min(entries.len())])
        {
            self.file = None;
            self.partial = 0;
            self.needs_line_feed = !theirs.stamp.ends_line();
            self.stamp = Some(theirs.stamp.clone());
            self.target = Target::Existing(theirs.torn_tail);
            return Ok(());
        }
        // Two files never have the same id: where the old one may have it still, the new
        // one is a child of it.
        let keeps_id = match &theirs {
            Ok(theirs) => theirs.header.id != header.id,
            Err(OpenError::NotASession { .. } | OpenError::NotAFile { .. }) => true,
            Err(_) => false,
        };
        let mut header = header;
        if !keeps_id {
            header = SessionHeader {
                id: SessionHeader::new_id(),
                parent_session: Some(from.to_string_lossy().into_owned()),
                ..header
            };
        }
        self.move_to_new_file(from, header, &entries)
    }

    fn move_to_new_file(
        &mut self,
        from: PathBuf,
        header: SessionHeader,
        entries: &[Arc<Entry>],
    ) -> Result<(), WriteError> {
        let mut time = None;
        for _ in 0..ATTEMPTS {
            let next = Timestamp::after(time);
            time = Some(next);
            let to = folder_of(&from).join(header.file_name_at(next));
            let lock = FileLock::take(&to)?;
            match write_session(&to, header.to_line(), entries) {
                Ok(file) => {
                    self.shared.move_to(to.clone(), header, lock);
                    self.start_over(file, entries.len())?;
                    self.shared.notify(Notice::Moved { from, to });
                    return Ok(());
                }
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                Err(error) => return Err(WriteError::io(&to, error)),
            }
        }
        Err(self.error(ErrorKind::AlreadyExists.into()))
    }

    /// With a new file that has the first `in_file` entries.
    fn start_over(&mut self, file: File, in_file: usize) -> Result<(), WriteError> {
        self.finish_until(in_file);
        self.target = Target::Existing(None);
        self.needs_line_feed = false;
        // Not open for appending.
        self.file = None;
        self.stamp = Some(Stamp::of(&file).map_err(|error| self.error(error))?);
        Ok(())
    }

    fn entries(&self) -> Result<Vec<Arc<Entry>>, WriteError> {
        (self.snapshot)().ok_or_else(|| WriteError::Stopped { path: self.shared.path().to_owned() })
    }
}

/// Where a link leads to, though nothing is there.
fn destination(path: &Path) -> PathBuf {
    let mut path = path.to_owned();
    for _ in 0..MAX_LINKS {
        match std::fs::read_link(&path) {
            Ok(target) => path = folder_of(&path).join(target),
            Err(_) => break,
        }
    }
    path
}

fn has_all(mut theirs: impl Iterator<Item = Arc<Entry>>, ours: &[Arc<Entry>]) -> bool {
    ours.iter().all(|entry| theirs.next().is_some_and(|their| their.json() == entry.json()))
}
