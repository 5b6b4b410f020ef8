//! Settling small files into tracks: those of a directory, or of a tree of them, in steps.

use super::Durability;
use super::commit::all_written;
use super::upkeep::Upkeep;
use crate::core::dirent_type;
use crate::error::Error;
use crate::tracks::form::{FormTrack, Loose};
use loamfs_format::Ino;
use loamfs_format::inode::mode;
use loamfs_format::superblock::INCOMPATIBLE_TRACKS;

/// Bytes of contents that settle in one step.
const STEP: u64 = 16 << 20;
/// Entries of a directory that are looked at together.
const ENTRIES: usize = 1024;

/// Settling the small files of a tree into tracks, as far as it is. Who loses it begins anew: what has settled stays, and only its
/// directories are looked at again.
#[derive(Debug, Clone)]
pub struct Arranging {
    /// Directories that are still to come; the last is next.
    waiting: Vec<Ino>,
    /// The one that is being arranged, and what is done there.
    now: Option<(Ino, Stage)>,
    /// Whether directories below are arranged too.
    deep: bool,
    /// Whether files of it may have changed just now.
    warm: bool,
    done: Arranged,
}

/// What settling a tree came to so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Arranged {
    /// Directories that are done.
    pub directories: u64,
    /// Files that were put into tracks.
    pub files: u64,
    /// Bytes of their contents.
    pub bytes: u64,
}

/// What is done in a directory, each from a position on, one after the other.
#[derive(Debug, Clone, Copy)]
enum Stage {
    /// Directories in it are found.
    List(u64),
    /// Tracks that lack files of theirs are taken apart.
    Loosen(u64),
    /// Tracks are formed where there are none.
    Form(u64),
}

impl Arranging {
    /// A directory, and all below it.
    pub fn tree(top: Ino) -> Arranging {
        Arranging {
            waiting: vec![top],
            now: None,
            deep: true,
            warm: true,
            done: Arranged::default(),
        }
    }

    /// A directory alone.
    fn directory(dir: Ino) -> Arranging {
        Arranging {
            deep: false,
            ..Arranging::tree(dir)
        }
    }

    /// What it came to so far.
    pub const fn done(&self) -> &Arranged {
        &self.done
    }

    /// Directories that are known to be still to come.
    pub fn waiting(&self) -> usize {
        self.waiting.len() + usize::from(self.now.is_some())
    }

    /// The directory that comes next is begun.
    fn next(&mut self) -> Option<(Ino, Stage)> {
        let dir = self.waiting.pop()?;
        let first = match self.deep {
            true => Stage::List(0),
            false => Stage::Loosen(0),
        };
        Some((dir, first))
    }
}

impl Upkeep<'_> {
    /// Settles the small files of a directory into tracks, as far as there is room for it, and makes that durable. Whoever
    /// reads such a file then needs one request for its attributes and its data.
    ///
    /// # Errors
    /// [`Error`]; tracks that were written before count.
    pub fn settle_directory(&self, dir: Ino) -> Result<(), Error> {
        let mut arranging = Arranging::directory(dir);
        while self.arrange(&mut arranging)? {}
        Ok(())
    }

    /// Goes on settling the small files of a tree, a step of a few MiB at most, as far as there is room for it. Answers whether
    /// there is more to do; all of it is durable then.
    ///
    /// # Errors
    /// [`Error`]; tracks that were written before count. A directory that is gone meanwhile is none.
    pub fn arrange(&self, arranging: &mut Arranging) -> Result<bool, Error> {
        let Some((dir, stage)) = arranging.now.take().or_else(|| arranging.next()) else {
            all_written(self.engine().write_out(Durability::Durable)?)?;
            return Ok(false);
        };
        let next = match stage {
            Stage::List(from) => self.list_below(dir, from, arranging),
            Stage::Loosen(from) => self.loosen(dir, from, arranging),
            Stage::Form(from) => self.form(dir, from, arranging),
        };
        arranging.now = match next {
            Ok(next) => next.map(|stage| (dir, stage)),
            // What is left stays where it is.
            Err(Error::NoSpace) => {
                arranging.waiting.clear();
                None
            }
            Err(Error::Stale(_)) if arranging.deep => None,
            Err(error) => return Err(error),
        };
        if arranging.now.is_none() {
            arranging.done.directories += 1;
        }
        Ok(true)
    }

    /// Finds directories in one.
    fn list_below(
        &self,
        dir: Ino,
        from: u64,
        arranging: &mut Arranging,
    ) -> Result<Option<Stage>, Error> {
        // Behind `.` and `..`.
        let entries = self.volume().readdir(dir, from.max(2), ENTRIES)?;
        let is_directory = |file_type: u8| file_type == dirent_type(mode::DIRECTORY);
        let below = entries.iter().filter(|entry| is_directory(entry.file_type));
        arranging.waiting.extend(below.map(|entry| entry.ino));
        Ok(Some(match entries.last() {
            Some(last) => Stage::List(last.next),
            None => Stage::Loosen(0),
        }))
    }

    /// Takes the next track apart that lacks files of its range.
    fn loosen(
        &self,
        dir: Ino,
        from: u64,
        arranging: &mut Arranging,
    ) -> Result<Option<Stage>, Error> {
        self.engine().announce(INCOMPATIBLE_TRACKS)?;
        let mut from = Some(from);
        while let Some(key) = from {
            let Loose { track, next } = self.engine().run(|core| core.track_to_loosen(dir, key))?;
            if let Some(track) = track {
                while self.engine().run(|core| core.perform(&track))? {}
                arranging.warm = true;
                return Ok(Some(next.map_or(Stage::Form(0), Stage::Loosen)));
            }
            from = next;
        }
        Ok(Some(Stage::Form(0)))
    }

    /// Forms tracks where there are none.
    fn form(&self, dir: Ino, from: u64, arranging: &mut Arranging) -> Result<Option<Stage>, Error> {
        if std::mem::take(&mut arranging.warm) {
            // What was just written is cold once it is in the log.
            all_written(self.engine().write_out(Durability::Written)?)?;
        }
        let (mut next, mut bytes) = (Some(from), 0);
        while let Some(from) = next {
            if bytes >= STEP {
                return Ok(Some(Stage::Form(from)));
            }
            let step = FormTrack { dir, from };
            let formed = self.engine().run(|core| core.perform(&step))?;
            arranging.done.files += formed.files;
            arranging.done.bytes += formed.bytes;
            bytes += formed.bytes;
            next = formed.next;
        }
        Ok(None)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
