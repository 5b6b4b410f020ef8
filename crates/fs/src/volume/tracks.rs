//! Moving small files to where they belong: those of a directory, or of a tree of them, in steps. Mostly that is into tracks.

use super::Durability;
use super::commit::all_written;
use super::upkeep::Upkeep;
use crate::core::dirent_type;
use crate::error::Error;
use crate::operations::placing::MoveFile;
use crate::operations::{Change, Operation, Stepped};
use crate::tracks::choose::{Loose, Which};
use crate::tracks::dissolve::Dissolve;
use crate::tracks::form::FormTrack;
use crate::tracks::gather::Gather;
use loamfs_format::Ino;
use loamfs_format::group::Role;
use loamfs_format::inode::{Placement, mode};
use loamfs_format::kind::InodeTree;
use loamfs_format::superblock::{Features, INCOMPATIBLE_TRACKS};

/// Bytes of contents that settle in one step.
const STEP: u64 = 16 << 20;
/// What of directories is brought together, one after the other.
const PASSES: [InodeTree; 2] = [InodeTree::Dir, InodeTree::Track];
/// Directories that are brought together in one step: one segment mostly takes what leads to their tracks.
const GATHERED: usize = 4096;
/// Entries of a directory that are looked at together.
const ENTRIES: usize = 1024;

/// Moving the small files of a tree to where they belong, as far as it is. Who loses it begins anew: what was moved stays, and only
/// its directories are looked at again.
#[derive(Debug, Clone)]
pub struct Arranging {
    /// Directories that are still to come; the last is next.
    waiting: Vec<Ino>,
    /// How many of these are not in the one that is being arranged.
    behind: usize,
    /// The one that is being arranged, and what is done there.
    now: Option<(Ino, Stage)>,
    /// Whether directories below are arranged too.
    deep: bool,
    /// What its directories are to say of small files; without it they say what they did, and files settle into tracks.
    placement: Option<Placement>,
    /// Whether files of it may have changed just now.
    warm: bool,
    /// Directories that were gone through, eight bytes for each.
    met: Vec<Ino>,
    /// How many of these were brought together, once all are done: first their names, then what leads to their tracks.
    gathered: [Option<usize>; PASSES.len()],
    done: Arranged,
}

/// What moving the files of a tree came to so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Arranged {
    /// Directories that are done.
    pub directories: u64,
    /// Files that were put into tracks, or wherever else they belong.
    pub files: u64,
    /// Bytes of their contents.
    pub bytes: u64,
    /// Some stay where they are for want of room.
    pub full: bool,
}

/// What is done in a directory, each from a position on, one after the other.
#[derive(Debug, Clone, Copy)]
enum Stage {
    /// It says where its small files go.
    Say,
    /// Directories in it are found.
    List(u64),
    /// Tracks that lack files of theirs are taken apart.
    Loosen(u64),
    /// Tracks are formed where there are none.
    Form(u64),
    /// Files go to groups of another role.
    Move(u64, Role),
}

impl Arranging {
    /// A directory, and all below it: they say from now on where small files go, and those that are there go there.
    pub fn placing(top: Ino, placement: Placement) -> Arranging {
        Arranging {
            placement: Some(placement),
            ..Arranging::tree(top)
        }
    }

    /// A directory alone.
    #[must_use]
    pub fn alone(self) -> Arranging {
        Arranging {
            deep: false,
            ..self
        }
    }

    /// A directory, and all below it: small files settle into tracks, but where directories say something else.
    pub fn tree(top: Ino) -> Arranging {
        Arranging {
            waiting: vec![top],
            behind: 0,
            now: None,
            deep: true,
            placement: None,
            warm: true,
            met: Vec::new(),
            gathered: [None; PASSES.len()],
            done: Arranged::default(),
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
        self.behind = self.waiting.len();
        Some((dir, Stage::Say))
    }
}

impl Upkeep<'_> {
    /// Settles the small files of a directory into tracks, as far as there is room for it, and makes that durable. Whoever
    /// reads such a file then needs one request for its attributes and its data.
    ///
    /// # Errors
    /// [`Error`]; tracks that were written before count.
    pub fn settle_directory(&self, dir: Ino) -> Result<(), Error> {
        let mut arranging = Arranging::tree(dir).alone();
        while self.arrange(&mut arranging)? {}
        Ok(())
    }

    /// Goes on moving the small files of a tree, a step of a few MiB at most, as far as there is room for it. Answers whether
    /// there is more to do; all of it is durable then.
    ///
    /// # Errors
    /// [`Error`]; what was moved before stays so. A directory that is gone meanwhile is none.
    pub fn arrange(&self, arranging: &mut Arranging) -> Result<bool, Error> {
        let Some((dir, stage)) = arranging.now.take().or_else(|| arranging.next()) else {
            if self.gather(arranging)? {
                return Ok(true);
            }
            all_written(self.engine().write_out(Durability::Durable)?)?;
            return Ok(false);
        };
        let next = match stage {
            Stage::Say => self.say(dir, arranging),
            Stage::List(from) => self.list_below(dir, from, arranging),
            Stage::Loosen(from) => self.loosen(dir, from, arranging),
            Stage::Form(from) => {
                let which = Which::Cold;
                self.go_through(from, arranging, |from| FormTrack { dir, from, which })
                    .map(|next| next.map(Stage::Form))
            }
            Stage::Move(from, to) => self
                .go_through(from, arranging, |from| MoveFile { dir, from, to })
                .map(|next| next.map(|from| Stage::Move(from, to))),
        };
        arranging.now = match next {
            Ok(next) => next.map(|stage| (dir, stage)),
            // What is left stays where it is.
            Err(Error::NoSpace) => {
                arranging.waiting.clear();
                arranging.done.full = true;
                None
            }
            Err(Error::Stale(_)) if arranging.deep => None,
            Err(error) => return Err(error),
        };
        if arranging.now.is_none() {
            arranging.done.directories += 1;
            arranging.met.push(dir);
        }
        Ok(true)
    }

    /// The directory says where its small files go, if it is to say something else.
    fn say(&self, dir: Ino, arranging: &Arranging) -> Result<Option<Stage>, Error> {
        if let Some(placement) = arranging.placement {
            self.set_placement(dir, placement)?;
        }
        match arranging.deep {
            true => Ok(Some(Stage::List(0))),
            false => self.begin_to_move(dir, arranging),
        }
    }

    /// Where the files of a directory belong.
    fn begin_to_move(&self, dir: Ino, arranging: &Arranging) -> Result<Option<Stage>, Error> {
        let said = self.placement(dir)?;
        Ok(match (said, arranging.placement) {
            (Placement::Hash, _) | (Placement::Auto, None) => Some(Stage::Loosen(0)),
            (Placement::Log, Some(_)) => Some(Stage::Move(0, Role::Log)),
            (Placement::Data, Some(_)) => Some(Stage::Move(0, Role::Data)),
            _ => None,
        })
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
        if let Some(last) = entries.last() {
            return Ok(Some(Stage::List(last.next)));
        }
        // Tracks stand in the order in which a listing comes to them.
        if let Some(found) = arranging.waiting.get_mut(arranging.behind..) {
            found.reverse();
        }
        self.begin_to_move(dir, arranging)
    }

    /// Brings directories together in the log that were gone through, once all of them are done, if anything settled: a few of
    /// them. Answers whether there were any.
    fn gather(&self, arranging: &mut Arranging) -> Result<bool, Error> {
        let settles = matches!(arranging.placement, None | Some(Placement::Hash));
        if !arranging.deep || !settles || arranging.done.files == 0 {
            return Ok(false);
        }
        for (which, gathered) in PASSES.into_iter().zip(&mut arranging.gathered) {
            if gathered.is_none() {
                // So that segments hold nothing else.
                all_written(self.engine().write_out(Durability::Written)?)?;
            }
            let from = *gathered.get_or_insert(0);
            let some = arranging.met.iter().skip(from).take(GATHERED);
            let count = some.len();
            for dir in some {
                match self.gather_directory(*dir, which) {
                    // What is left stays where it is.
                    Err(Error::NoSpace) => return Ok(false),
                    gathered => gathered?,
                }
            }
            *gathered = Some(from + count);
            if count > 0 {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Makes a directory's inode dirty, and all of a tree of it.
    fn gather_directory(&self, dir: Ino, which: InodeTree) -> Result<(), Error> {
        let mut from = Some(0);
        while let Some(key) = from {
            let step = Gather {
                dir,
                which,
                from: key,
            };
            from = self.engine().run(|core| core.perform(&step))?;
        }
        Ok(())
    }

    /// Takes the next track apart that lacks files of its range.
    fn loosen(
        &self,
        dir: Ino,
        from: u64,
        arranging: &mut Arranging,
    ) -> Result<Option<Stage>, Error> {
        self.engine()
            .announce(Features::incompatible(INCOMPATIBLE_TRACKS))?;
        let mut from = Some(from);
        while let Some(key) = from {
            let Loose { track, next } = self
                .engine()
                .run(|core| core.tracks_of(dir).next_worn(key))?;
            if let Some(range) = track {
                let track = Dissolve {
                    dir,
                    low: range.low,
                    at: range.entry.addr,
                };
                while self.engine().run(|core| core.perform(&track))? {}
                arranging.warm = true;
                return Ok(Some(next.map_or(Stage::Form(0), Stage::Loosen)));
            }
            from = next;
        }
        Ok(Some(Stage::Form(0)))
    }

    /// What was just written is cold once it is in the log.
    fn cool(&self, arranging: &mut Arranging) -> Result<(), Error> {
        if std::mem::take(&mut arranging.warm) {
            all_written(self.engine().write_out(Durability::Written)?)?;
        }
        Ok(())
    }

    /// Goes through files of a directory by operations, from a key on, until that is a step. Answers where the next one begins.
    fn go_through<O>(
        &self,
        from: u64,
        arranging: &mut Arranging,
        operation: impl Fn(u64) -> O,
    ) -> Result<Option<u64>, Error>
    where
        O: Operation<Change: Change<Done = Stepped>>,
    {
        self.cool(arranging)?;
        let (mut next, mut bytes) = (Some(from), 0);
        while let Some(from) = next {
            if bytes >= STEP {
                break;
            }
            let step = operation(from);
            let stepped = self.engine().run(|core| core.perform(&step))?;
            arranging.done.files += stepped.files;
            arranging.done.bytes += stepped.bytes;
            arranging.done.full |= stepped.full;
            bytes += stepped.bytes;
            next = stepped.next;
        }
        Ok(next)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
