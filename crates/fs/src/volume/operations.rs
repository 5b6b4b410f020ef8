//! Operations on names, contents and attributes.

use super::Volume;
use super::background::LEFTOVERS_STEP;
use crate::blocks::{Missed, Stop};
use crate::core::Core;
use crate::error::Error;
use crate::operations::attributes::{DropPrivileges, SetAttributes};
use crate::operations::flags::SetFlags;
use crate::operations::link::Link;
use crate::operations::make::{Make, MakeUnnamed};
use crate::operations::rename::{Climb, Rename};
use crate::operations::unlink::{Rmdir, Unlink};
use crate::operations::write::Write;
use crate::operations::{Change, Operation};
use crate::patience;
use crate::reading::{Shared, joined};
use crate::region::Region;
use crate::stat;
use crate::tracks::weigh;
use crate::types::{Attr, DirEntry, EntryPlus, InodeFlags, NewInode, RenameFlags, SetAttr};
use crate::unit::UNIT;
use crate::witness::{Nobody, Witness};
use loamfs_format::Ino;
use loamfs_format::inode::mode;
use std::sync::PoisonError;

/// Steps of a way up, of which none is as long; a damaged one must end all the same.
const CLIMBS_MAX: u32 = 1 << 14;

/// Entries that are listed with their attributes while the state is locked: so that who waits for it need not sleep.
const PLUS_MAX: usize = 32;

/// Entries of which what is missing is read in one batch.
const PLUS_AHEAD: usize = 128;

impl Volume {
    /// Runs an operation until its change is made, reading what it misses and making room where it needs some.
    pub(super) fn perform<O: Operation>(
        &self,
        operation: &O,
    ) -> Result<<O::Change as Change>::Done, Error> {
        self.run(|core| core.perform(operation))
    }

    fn make(
        &self,
        dir: Ino,
        name: &[u8],
        file_type: u32,
        new: &NewInode,
        target: &[u8],
    ) -> Result<Attr, Error> {
        self.perform(&Make {
            dir,
            name: name.to_vec(),
            file_type,
            new: *new,
            target: target.to_vec(),
        })
    }

    /// Attributes of what a name leads to; `.` and `..` too.
    ///
    /// # Errors
    /// [`Error`], here and below.
    pub fn lookup(&self, dir: Ino, name: &[u8]) -> Result<Attr, Error> {
        let (attr, fetched) = self.run_told(|core| {
            core.names()
                .lookup(dir, name)
                .and_then(|ino| stat::attr(core, ino))
        })?;
        if fetched {
            weigh::note(&mut self.core(), attr.ino, false);
        }
        Ok(attr)
    }

    /// Attributes.
    ///
    /// # Errors
    /// [`Error`].
    pub fn getattr(&self, ino: Ino) -> Result<Attr, Error> {
        self.run(|core| stat::attr(core, ino))
    }

    /// Changes attributes; a new size cuts or extends a file.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a time that is none, before anything changes; [`Error`].
    pub fn setattr(&self, ino: Ino, set: &SetAttr) -> Result<Attr, Error> {
        set.check_times()?;
        let (attr, left) = self.run(|core| {
            let set = core.env.config().owner.kept(set)?;
            let attr = core.perform(&SetAttributes { ino, set })?;
            Ok((attr, set.size.is_some() && core.leftovers.waiting() > 0))
        })?;
        if !left {
            return Ok(attr);
        }
        self.engine.tidy_after(LEFTOVERS_STEP);
        // It takes less now. That this cannot be told is no failure of what was done.
        Ok(patience::apart(|| self.getattr(ino)).unwrap_or(attr))
    }

    /// Flags and project.
    ///
    /// # Errors
    /// [`Error`].
    pub fn flags(&self, ino: Ino) -> Result<InodeFlags, Error> {
        self.run(|core| core.flags(ino))
    }

    /// Sets flags and project, without asking who may. What an inode may still do then is refused with
    /// [`Error::NotPermitted`] by every other operation.
    ///
    /// # Errors
    /// [`Error`]; [`Error::Unsupported`] for flags that do not exist.
    pub fn set_flags(&self, ino: Ino, flags: InodeFlags) -> Result<(), Error> {
        self.perform(&SetFlags { ino, flags })
    }

    /// Takes set-user-id away from what is no directory, and set-group-id where the group may execute it, as a write by
    /// somebody does who may not keep them. Says whether there was anything to take.
    ///
    /// # Errors
    /// [`Error`].
    pub fn drop_privileges(&self, ino: Ino) -> Result<bool, Error> {
        self.perform(&DropPrivileges { ino })
    }

    /// Makes a regular file.
    ///
    /// # Errors
    /// [`Error`].
    pub fn create(&self, dir: Ino, name: &[u8], new: &NewInode) -> Result<Attr, Error> {
        self.make(dir, name, mode::REGULAR, new, b"")
    }

    /// Makes a regular file without a name placed as if in `dir`, held once as by [`Volume::open_file`]. It is gone
    /// when that is released, unless [`Volume::link`] has named it; other files without a name cannot be named again.
    ///
    /// # Errors
    /// [`Error`].
    pub fn create_unnamed(&self, dir: Ino, new: &NewInode) -> Result<Attr, Error> {
        self.perform(&MakeUnnamed { dir, new: *new })
    }

    /// Makes a directory.
    ///
    /// # Errors
    /// [`Error`].
    pub fn mkdir(&self, dir: Ino, name: &[u8], new: &NewInode) -> Result<Attr, Error> {
        self.make(dir, name, mode::DIRECTORY, new, b"")
    }

    /// Makes a special file, or a regular one, of the type bits `file_type`.
    ///
    /// # Errors
    /// [`Error`].
    pub fn mknod(
        &self,
        dir: Ino,
        name: &[u8],
        file_type: u32,
        new: &NewInode,
    ) -> Result<Attr, Error> {
        match file_type {
            mode::REGULAR | mode::FIFO | mode::SOCKET | mode::BLOCK | mode::CHARACTER => {
                self.make(dir, name, file_type, new, b"")
            }
            _ => Err(Error::Invalid("this type of file cannot be made so")),
        }
    }

    /// Makes a symbolic link.
    ///
    /// # Errors
    /// [`Error`].
    pub fn symlink(
        &self,
        dir: Ino,
        name: &[u8],
        target: &[u8],
        new: &NewInode,
    ) -> Result<Attr, Error> {
        if target.is_empty() {
            return Err(Error::NotFound);
        }
        self.make(dir, name, mode::SYMLINK, new, target)
    }

    /// Gives a file one more name.
    ///
    /// # Errors
    /// [`Error`].
    pub fn link(&self, ino: Ino, dir: Ino, name: &[u8]) -> Result<Attr, Error> {
        let name = name.to_vec();
        self.perform(&Link { ino, dir, name })
    }

    /// Takes a name away from what is no directory.
    ///
    /// # Errors
    /// [`Error`].
    pub fn unlink(&self, dir: Ino, name: &[u8]) -> Result<(), Error> {
        self.witnessed(&Nobody).unlink(dir, name)
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// [`Error`].
    pub fn rmdir(&self, dir: Ino, name: &[u8]) -> Result<(), Error> {
        self.witnessed(&Nobody).rmdir(dir, name)
    }

    /// Renames, replaces or swaps.
    ///
    /// # Errors
    /// [`Error`].
    pub fn rename(
        &self,
        dir: Ino,
        name: &[u8],
        new_dir: Ino,
        new_name: &[u8],
        flags: RenameFlags,
    ) -> Result<(), Error> {
        self.witnessed(&Nobody)
            .rename(dir, name, new_dir, new_name, flags)
    }

    /// Changes of names of which `witness` is told.
    pub fn witnessed<'a>(&'a self, witness: &'a dyn Witness) -> Witnessed<'a> {
        Witnessed {
            volume: self,
            witness,
        }
    }

    /// Goes up to the root, in steps between which others go on.
    fn climb(&self, climb: Climb) -> Result<(), Error> {
        let mut at = climb.from;
        for _ in 0..CLIMBS_MAX {
            if self.run(|core| core.names().climb(climb.moved, &mut at))? {
                return Ok(());
            }
        }
        Err(Error::Invalid("the directory's path has no end"))
    }

    /// The target of a symbolic link.
    ///
    /// # Errors
    /// [`Error`].
    pub fn readlink(&self, ino: Ino) -> Result<Vec<u8>, Error> {
        self.run(|core| core.reading().link_target(ino))
    }

    /// Up to `max` entries from a position on, 0 being the start; each says where to go on.
    ///
    /// # Errors
    /// [`Error`].
    pub fn readdir(&self, dir: Ino, position: u64, max: usize) -> Result<Vec<DirEntry>, Error> {
        self.run(|core| core.names().list(dir, position, max))
    }

    /// As [`Volume::readdir`], each entry with the attributes of what it leads to, or why there are none. They may be fewer,
    /// so that others are served between them; none are only at the end.
    ///
    /// # Errors
    /// [`Error`]. An inode that is damaged is none.
    pub fn readdir_plus(
        &self,
        dir: Ino,
        position: u64,
        max: usize,
    ) -> Result<Vec<EntryPlus>, Error> {
        self.run(|core| {
            let mut missed = Missed::default();
            let found = list_plus(core, dir, position, max.min(PLUS_MAX), &mut missed)?;
            missed.nothing().inspect_err(|_| {
                // What is missing of those behind them is read in the same batch; who lists them is told what is wrong.
                let _ = list_plus(core, dir, position, PLUS_AHEAD, &mut Missed::default());
            })?;
            Ok(found)
        })
    }

    /// Holds an inode, so that it lives on when its last name goes.
    ///
    /// # Errors
    /// [`Error`].
    pub fn open_file(&self, ino: Ino) -> Result<(), Error> {
        self.run(|core| {
            let unlinked = core.node(ino)?.inode().nlink == 0;
            core.leftovers.holders().hold(ino, unlinked);
            Ok(())
        })
    }

    /// Lets go of what [`Volume::open_file`] held.
    ///
    /// # Errors
    /// [`Error`].
    pub fn release_file(&self, ino: Ino) -> Result<(), Error> {
        let left = {
            let mut core = self.core();
            core.leftovers.let_go(ino);
            core.leftovers.waiting() > 0
        };
        if left {
            self.engine.tidy_after(1);
        }
        Ok(())
    }

    /// Reads up to `len` bytes; fewer at the end of the file.
    ///
    /// # Errors
    /// [`Error`].
    pub fn read(&self, ino: Ino, offset: u64, len: usize) -> Result<Vec<u8>, Error> {
        Ok(joined(&self.read_shared(ino, offset, len)?))
    }

    /// As [`Volume::read`], without a copy: in pieces that follow each other.
    ///
    /// # Errors
    /// [`Error`].
    pub fn read_shared(&self, ino: Ino, offset: u64, len: usize) -> Result<Vec<Shared>, Error> {
        let read = |core: &mut Core| core.reading().read(ino, offset, len);
        let range = offset..offset.saturating_add(len as u64);
        let region = Region::of(ino, offset / UNIT);
        let (first, fetched) = self.run_told(|core| match read(core) {
            Err(Stop::Missing)
                if patience::is_endless() && core.settler().asks(region, range.clone()) =>
            {
                Ok(None)
            }
            result => result.map(Some),
        })?;
        if let Some(bytes) = first {
            if fetched && self.engine.reader.reads_alone() {
                weigh::note(&mut self.core(), ino, true);
            }
            return Ok(bytes);
        }
        let regions = self.engine.sweeper().due_before_read(ino, range);
        if !regions.is_empty() {
            self.engine.sweeper().settle_for_reader(&regions)?;
        }
        self.run(read)
    }

    /// Writes `data`, or as much of its beginning as there is room for. Returns how many bytes that is.
    ///
    /// # Errors
    /// [`Error`], if nothing was written; [`Error::WouldWait`] also if some of it was.
    pub fn write(&self, ino: Ino, offset: u64, data: &[u8]) -> Result<usize, Error> {
        // Pieces, so that one write never exceeds what may be dirty; each is atomic.
        let mut done = 0;
        for piece in data.chunks(256 << 10) {
            let result = self.perform(&Write {
                ino,
                offset: offset + done as u64,
                data: piece,
            });
            match result {
                Ok(()) => done += piece.len(),
                // Who may not wait has all of it written by somebody who may.
                Err(error) if done == 0 || matches!(error, Error::WouldWait) => return Err(error),
                Err(_) => break,
            }
        }
        self.engine.tally.note_written(done as u64);
        Ok(done)
    }
}

/// A volume that tells a witness of changes of names: see [`Volume::witnessed`].
pub struct Witnessed<'a> {
    volume: &'a Volume,
    witness: &'a dyn Witness,
}

impl Witnessed<'_> {
    /// Makes a change of names. Returns what came of it, and whether somebody has something left to do then.
    fn perform<O: Operation>(
        &self,
        operation: &O,
    ) -> Result<(<O::Change as Change>::Done, bool), Error> {
        self.volume
            .run(|core| Ok((core.perform(operation)?, core.leftovers.waiting() > 0)))
    }

    fn remove<O: Operation>(&self, operation: &O) -> Result<(), Error> {
        let (_, left) = self.perform(operation)?;
        if left {
            self.volume.engine.tidy_after(1);
        }
        Ok(())
    }

    /// As [`Volume::unlink`].
    ///
    /// # Errors
    /// [`Error`], here and below.
    pub fn unlink(&self, dir: Ino, name: &[u8]) -> Result<(), Error> {
        self.remove(&Unlink {
            dir,
            name: name.to_vec(),
            witness: self.witness,
        })
    }

    /// As [`Volume::rmdir`].
    ///
    /// # Errors
    /// [`Error`].
    pub fn rmdir(&self, dir: Ino, name: &[u8]) -> Result<(), Error> {
        self.remove(&Rmdir {
            dir,
            name: name.to_vec(),
            witness: self.witness,
        })
    }

    /// As [`Volume::rename`].
    ///
    /// # Errors
    /// [`Error`].
    pub fn rename(
        &self,
        dir: Ino,
        name: &[u8],
        new_dir: Ino,
        new_name: &[u8],
        flags: RenameFlags,
    ) -> Result<(), Error> {
        let mut rename = Rename {
            dir,
            name: name.to_vec(),
            new_dir,
            new_name: new_name.to_vec(),
            flags,
            climbed: Vec::new(),
            witness: self.witness,
        };
        let volume = self.volume;
        let mut moving = None;
        let left = loop {
            let (climb, left) = self.perform(&rename)?;
            let Some(climb) = climb else { break left };
            // From here to the end no other directory moves, so that what was climbed stays as it is.
            patience::wait()?;
            let lock = || volume.moving.lock().unwrap_or_else(PoisonError::into_inner);
            moving.get_or_insert_with(lock);
            volume.climb(climb)?;
            rename.climbed.push(climb);
        };
        if left {
            volume.engine.tidy_after(1);
        }
        Ok(())
    }
}

/// Entries from a position on, with attributes as far as they are in memory.
fn list_plus(
    core: &mut Core,
    dir: Ino,
    position: u64,
    max: usize,
    missed: &mut Missed,
) -> Result<Vec<EntryPlus>, Stop> {
    let entries = core.names().list(dir, position, max)?;
    let mut found = Vec::with_capacity(entries.len());
    for entry in entries {
        let attr = match stat::listed(core, entry.ino) {
            Err(stop @ Stop::Failed(Error::Broken(_))) => return Err(stop),
            Err(Stop::Failed(error)) => Some(Err(error)),
            attr => missed.note(attr)?.map(Ok),
        };
        found.extend(attr.map(|attr| (entry, attr)));
    }
    Ok(found)
}
