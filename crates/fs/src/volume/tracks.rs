//! Moving files to where they belong: those of a directory, or of a tree of them, in steps. Mostly these are small ones, and go into
//! tracks.

mod ahead;

use super::Durability;
use super::commit::all_written;
use super::upkeep::Upkeep;
use crate::core::dirent_type;
use crate::error::Error;
use crate::hash::NumberSet;
use crate::operations::carry::{At, Carry, Room};
use crate::operations::placing::{MoveFile, Wish};
use crate::operations::{Change, Operation, Stepped};
use crate::tracks::choose::{Loose, Which};
use crate::tracks::dissolve::{DISSOLVE_COST, Dissolve};
use crate::tracks::form::FormTrack;
use crate::tracks::gather::Gather;
use crate::tracks::outcome::{Outcome, Unplaced};
use ahead::{Lookahead, ReadAhead};
use loamfs_format::Ino;
use loamfs_format::dirent::KEYS_END;
use loamfs_format::group::Role;
use loamfs_format::inode::{Placement, ROOT_INO, Tiering, mode};
use loamfs_format::kind::InodeTree;
use loamfs_format::superblock::{Features, INCOMPATIBLE_TRACKS};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

/// Bytes of contents that settle in one step.
const STEP: u64 = 16 << 20;
/// What of directories is brought together, one after the other.
const PASSES: [InodeTree; 2] = [InodeTree::Dir, InodeTree::Track];
/// Directories that are brought together in one step: one segment mostly takes what leads to their tracks.
const GATHERED: usize = 4096;
/// Passes in which the large files of a directory are carried: the last ones for what others kept from being written.
const PASSES_MAX: u32 = 3;
/// Entries of a directory that are looked at together.
const ENTRIES: usize = 1024;

/// Moving the small files of a tree to where they belong, as far as it is. Who loses it begins anew: what was moved stays, and only
/// its directories are looked at again.
#[derive(Debug, Clone)]
pub struct Arranging {
    /// Directories that are still to be looked through; the last is next.
    waiting: Vec<Ino>,
    /// All directories that are looked through, or were.
    known: NumberSet<Ino>,
    /// The one that is being looked through, and the position to go on from.
    looking: Option<(Ino, u64)>,
    /// How many of those that wait are not in it.
    behind: usize,
    /// Directories that were looked through, in the order in which their files move: eight bytes for each.
    found: Vec<Ino>,
    /// Which of these is next to have its files moved.
    next: usize,
    /// What is done in that one.
    stage: Option<Stage>,
    /// Contents that were read of the next ones.
    ahead: ReadAhead,
    /// Whether directories below are arranged too.
    deep: bool,
    /// What its directories are to say of files; without it they say what they did, and small ones settle into tracks.
    wish: Option<Wish>,
    /// Whether files of it may have changed just now.
    warm: bool,
    /// How many of its directories were brought together, once all are done: first their names, then what leads to their tracks.
    gathered: [Option<usize>; PASSES.len()],
    done: Arranged,
    /// Files that were made ready to move so far, and bytes of their contents: some stay where they are all the same.
    ready: (u64, u64),
    /// What comes of those that were made ready for tracks.
    outcome: Arc<Outcome>,
    /// Directories with tracks that had no place: they are gone through again, from these keys on, once anything settled.
    unplaced: Unplaced,
    /// Directories behind so many of those that were found are gone through again, from these keys on.
    again: Option<(usize, Unplaced)>,
    /// Files that were ready when all was last written for want of room.
    written: u64,
    /// Files that had settled when what they left was last freed, if it was.
    freed: Option<u64>,
    /// Directories that could not be gone through to their end, and why.
    damaged: BTreeMap<Ino, Error>,
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

/// What is done in a directory, each from a key on, one after the other.
#[derive(Debug, Clone, Copy)]
enum Stage {
    /// Tracks that lack files of theirs are taken apart.
    Loosen(u64),
    /// Tracks are formed where there are none.
    Form(u64),
    /// Files go to groups of another role.
    Move(u64, Role),
    /// Large files go to devices of a tier.
    Carry(Carrying),
}

impl Stage {
    /// Whether files settle into tracks.
    const fn settles(self) -> bool {
        matches!(self, Stage::Loosen(_) | Stage::Form(_))
    }
}

/// Carrying the large files of a directory.
#[derive(Debug, Clone, Copy)]
struct Carrying {
    /// Where it goes on.
    at: At,
    to: Tiering,
    /// Bytes that this pass through the directory has carried.
    bytes: u64,
    /// Passes before it.
    passes: u32,
}

impl Carrying {
    fn to(to: Tiering) -> Carrying {
        Carrying {
            at: At::default(),
            to,
            bytes: 0,
            passes: 0,
        }
    }

    /// Another pass, unless there was nothing left for this one: what waits stays where it is when the cleaner ends meanwhile
    /// (`Mover::leave_unmoved`).
    fn again(self) -> Option<Carrying> {
        let passes = self.passes + 1;
        let more = self.bytes > 0 && passes < PASSES_MAX;
        more.then_some(Carrying {
            passes,
            ..Carrying::to(self.to)
        })
    }
}

impl Arranging {
    /// A directory, and all below it: they say from now on where small files go, and those that are there go there.
    pub fn placing(top: Ino, placement: Placement) -> Arranging {
        Arranging {
            wish: Some(Wish::Small(placement)),
            ..Arranging::tree(top)
        }
    }

    /// A directory, and all below it: they say from now on on which devices the blocks of large files go, as long as these have room,
    /// and those that are there go there. Where all devices are of one kind that is an [`Error::Options`], in words for the user.
    pub fn carrying(top: Ino, on: impl Into<Tiering>) -> Arranging {
        Arranging {
            wish: Some(Wish::Large(on.into())),
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
            known: NumberSet::from_iter([top]),
            looking: None,
            behind: 0,
            found: Vec::new(),
            next: 0,
            stage: None,
            ahead: ReadAhead::default(),
            deep: true,
            wish: None,
            warm: true,
            gathered: [None; PASSES.len()],
            done: Arranged::default(),
            ready: (0, 0),
            outcome: Arc::default(),
            unplaced: Unplaced::default(),
            again: None,
            written: 0,
            freed: None,
            damaged: BTreeMap::new(),
        }
    }

    /// Directories alone, whose small files settle into tracks.
    pub(super) fn of(dirs: Vec<Ino>) -> Arranging {
        Arranging {
            waiting: Vec::new(),
            found: dirs,
            ..Arranging::tree(ROOT_INO)
        }
    }

    /// It goes on later: what was read ahead is not kept until then.
    pub(super) fn at_rest(self) -> Arranging {
        Arranging {
            ahead: ReadAhead::default(),
            ..self
        }
    }

    /// Bytes of contents that were made ready to move so far.
    pub(super) const fn ready_bytes(&self) -> u64 {
        self.ready.1
    }

    /// Counts what settled since the last time.
    pub(super) fn note_settled(&mut self) {
        let (files, bytes, unplaced) = self.outcome.take();
        self.done.files += files;
        self.done.bytes += bytes;
        self.unplaced.note_all(&unplaced);
    }

    /// Groups were won: tracks that had no place may have one.
    pub(super) fn note_room(&self) {
        self.outcome.note_room();
    }

    /// What it came to so far, as far as segments have it.
    pub const fn done(&self) -> &Arranged {
        &self.done
    }

    /// The directories that could not be gone through to their end, since they are damaged, and what is wrong with each. Some of
    /// their files, or what is below them, may be where it was.
    pub const fn damaged(&self) -> &BTreeMap<Ino, Error> {
        &self.damaged
    }

    /// How many directories were found, each counted once.
    fn found_once(&self) -> usize {
        match self.again {
            Some((once, _)) => once,
            None => self.found.len(),
        }
    }

    /// The next directory is done.
    fn pass_on(&mut self) {
        self.done.directories += u64::from(self.next < self.found_once());
        self.next += 1;
    }

    /// Where the next directory has tracks that had no place, if it is gone through again for them.
    fn again_from(&self, dir: Ino) -> Option<u64> {
        let (once, unplaced) = self.again.as_ref()?;
        (self.next >= *once).then(|| unplaced.first(dir))?
    }

    /// Goes through directories again that have tracks which had no place.
    fn go_again(&mut self) {
        let (once, unplaced) = (self.found_once(), std::mem::take(&mut self.unplaced));
        self.found.truncate(once);
        self.found.extend(unplaced.dirs());
        self.next = once;
        self.again = Some((once, unplaced));
    }

    /// The directory that is looked through next, and the position to go on from.
    fn next_to_look(&mut self) -> Option<(Ino, u64)> {
        if let Some(looking) = self.looking.take() {
            return Some(looking);
        }
        let dir = self.waiting.pop()?;
        self.behind = self.waiting.len();
        Some((dir, 0))
    }

    /// A directory is below one. On a damaged volume two names may lead to it, also one below it.
    fn note_below(&mut self, dir: Ino) {
        if self.known.insert(dir) {
            self.waiting.push(dir);
        }
    }

    /// A directory was gone through as far as that could be done. What is damaged keeps nothing else where it is, nor does one that
    /// is gone meanwhile.
    ///
    /// # Errors
    /// All others.
    fn pass_over(&mut self, dir: Ino, error: Error) -> Result<(), Error> {
        match error {
            Error::NoSpace => self.end(),
            Error::Stale(_) if self.deep => {}
            // Its name says that it is one.
            Error::NotDirectory if !self.found.is_empty() => {
                self.damaged.entry(dir).or_insert(error);
            }
            Error::Corrupt(_) | Error::Map { .. } | Error::Device(_) => {
                tracing::warn!(%error, dir = dir.0, "a directory is damaged; other ones are gone on with");
                self.damaged.entry(dir).or_insert(error);
            }
            error => return Err(error),
        }
        Ok(())
    }

    /// There is no room for more: what is left stays where it is.
    fn end(&mut self) {
        self.done.full = true;
        self.waiting.clear();
        self.found.truncate(self.next + 1);
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
        match arranging.damaged.pop_first() {
            Some((_, error)) => Err(error),
            None => Ok(()),
        }
    }

    /// Goes on moving the small files of a tree, a step of a few MiB at most, as far as there is room for it. First all directories
    /// are looked through. Answers whether there is more to do; all of it is durable then.
    ///
    /// # Errors
    /// [`Error`]; what was moved before stays so. A directory that is gone meanwhile is none, nor is one that is damaged
    /// ([`Arranging::damaged`]).
    pub fn arrange(&self, arranging: &mut Arranging) -> Result<bool, Error> {
        self.engine().tally.note_asked();
        if Arranger::new(*self, &|| false).step(arranging)? {
            return Ok(true);
        }
        all_written(self.engine().write_out(Durability::Durable)?)?;
        arranging.note_settled();
        Ok(false)
    }
}

/// What takes the steps.
pub(super) struct Arranger<'v> {
    upkeep: Upkeep<'v>,
    /// Whether a step is to end where it is.
    ends: &'v dyn Fn() -> bool,
}

impl<'v> Arranger<'v> {
    /// Steps end where they are once `ends` says so.
    pub fn new(upkeep: Upkeep<'v>, ends: &'v dyn Fn() -> bool) -> Arranger<'v> {
        Arranger { upkeep, ends }
    }
}

impl Arranger<'_> {
    /// A step. Answers whether there was one to take.
    pub fn step(&self, arranging: &mut Arranging) -> Result<bool, Error> {
        let taken = self.look_through(arranging)?
            || self.move_files(arranging)?
            || self.go_again(arranging)?
            || self.gather(arranging)?;
        arranging.note_settled();
        Ok(taken)
    }

    /// Looks through some of the next directory: it says where small files go, and directories in it are found. Answers whether
    /// there was one.
    fn look_through(&self, arranging: &mut Arranging) -> Result<bool, Error> {
        let Some((dir, from)) = arranging.next_to_look() else {
            return Ok(false);
        };
        let next = match from {
            0 => self.say(dir, arranging),
            from => self.list_below(dir, from, arranging),
        };
        match next {
            Ok(Some(from)) => arranging.looking = Some((dir, from)),
            Ok(None) => arranging.found.push(dir),
            Err(error) => arranging.pass_over(dir, error)?,
        }
        Ok(true)
    }

    /// Moves some files of the next directory. Answers whether there was one.
    fn move_files(&self, arranging: &mut Arranging) -> Result<bool, Error> {
        let Some(&dir) = arranging.found.get(arranging.next) else {
            arranging.ahead = ReadAhead::default();
            return Ok(false);
        };
        let stage = arranging.stage.take();
        let next = match stage {
            None => self.begin_to_move(dir, arranging),
            Some(Stage::Loosen(from)) => self.loosen(dir, from, arranging),
            Some(Stage::Form(from)) => self.form(dir, from, arranging),
            Some(Stage::Move(from, to)) => self.move_some(dir, from, to, arranging),
            Some(Stage::Carry(carrying)) => self.carry(dir, carrying, arranging),
        };
        match next {
            Ok(stage) => arranging.stage = stage,
            Err(Error::NoSpace)
                if stage.is_some_and(Stage::settles) && self.frees(arranging)? =>
            {
                arranging.stage = stage;
            }
            Err(error) => arranging.pass_over(dir, error)?,
        }
        if arranging.stage.is_none() {
            arranging.pass_on();
        }
        Ok(true)
    }

    /// Makes room for more files to settle, if there is any to be made: what is ready is written, and then what settled frees where it
    /// stood before, after the next checkpoints. Nothing is tried again before one of both has changed something.
    fn frees(&self, arranging: &mut Arranging) -> Result<bool, Error> {
        let engine = self.upkeep.engine();
        if arranging.written < arranging.ready.0 {
            arranging.written = arranging.ready.0;
            all_written(engine.write_out(Durability::Durable)?)?;
            return Ok(true);
        }
        let settled = Some(arranging.done.files);
        if std::mem::replace(&mut arranging.freed, settled) == settled {
            return Ok(false);
        }
        engine.sealer().take_checkpoints()?;
        engine.sealer().say_reusable()?;
        arranging.note_room();
        Ok(true)
    }

    /// Begins to go through directories again with tracks that had no place, if there may be one by now. Answers whether there are any.
    fn go_again(&self, arranging: &mut Arranging) -> Result<bool, Error> {
        if arranging.done.full || arranging.gathered[0].is_some() {
            return Ok(false);
        }
        if arranging.written < arranging.ready.0 {
            // Only then is it known.
            return self.frees(arranging);
        }
        if arranging.unplaced.is_empty() {
            return Ok(false);
        }
        match self.frees(arranging)? {
            true => arranging.go_again(),
            false => arranging.end(),
        }
        Ok(true)
    }

    /// The directory says where its files go, if it is to say something else. Answers from where on it is listed, if it is.
    fn say(&self, dir: Ino, arranging: &Arranging) -> Result<Option<u64>, Error> {
        if let Some(wish) = arranging.wish {
            match self.upkeep.say(dir, wish) {
                // One below that may not be changed says what it did, and keeps no other one where it is.
                Err(Error::NotPermitted) if !arranging.found.is_empty() => {}
                said => drop(said?),
            }
        }
        // Behind `.` and `..`.
        Ok(arranging.deep.then_some(2))
    }

    /// Where the files of a directory belong.
    fn begin_to_move(&self, dir: Ino, arranging: &Arranging) -> Result<Option<Stage>, Error> {
        if let Some(Wish::Large(on)) = arranging.wish {
            return Ok((on != Tiering::default()).then_some(Stage::Carry(Carrying::to(on))));
        }
        if let Some(from) = arranging.again_from(dir) {
            return Ok(Some(Stage::Form(from)));
        }
        let said = self.upkeep.placement(dir)?;
        Ok(match (said, arranging.wish) {
            (Placement::Hash, _) | (Placement::Auto, None) => Some(Stage::Loosen(0)),
            (Placement::Log, Some(_)) => Some(Stage::Move(0, Role::Log)),
            (Placement::Data, Some(_)) => Some(Stage::Move(0, Role::Data)),
            _ => None,
        })
    }

    /// Finds directories in one, from a position on. Answers where to go on.
    fn list_below(
        &self,
        dir: Ino,
        from: u64,
        arranging: &mut Arranging,
    ) -> Result<Option<u64>, Error> {
        let entries = self.upkeep.volume().readdir(dir, from, ENTRIES)?;
        let is_directory = |file_type: u8| file_type == dirent_type(mode::DIRECTORY);
        let below = entries.iter().filter(|entry| is_directory(entry.file_type));
        for entry in below {
            arranging.note_below(entry.ino);
        }
        if let Some(last) = entries.last() {
            return Ok(Some(last.next));
        }
        // Tracks stand in the order in which a listing comes to them.
        if let Some(found) = arranging.waiting.get_mut(arranging.behind..) {
            found.reverse();
        }
        Ok(None)
    }

    /// Brings directories together in the log that were gone through, once all of them are done, if anything settled: a few of
    /// them. Answers whether there were any.
    fn gather(&self, arranging: &mut Arranging) -> Result<bool, Error> {
        let settles = matches!(arranging.wish, None | Some(Wish::Small(Placement::Hash)));
        if !arranging.deep || !settles || arranging.ready.0 == 0 {
            return Ok(false);
        }
        for (pass, which) in PASSES.into_iter().enumerate() {
            if arranging.gathered[pass].is_none() {
                // So that segments hold nothing else.
                all_written(self.upkeep.engine().write_out(Durability::Written)?)?;
            }
            let from = arranging.gathered[pass].unwrap_or(0);
            let found = arranging.found.iter().take(arranging.found_once());
            let some = found.skip(from).take(GATHERED);
            let some: Vec<Ino> = some.copied().collect();
            let mut count = 0;
            for dir in some.iter().take_while(|_| !(self.ends)()) {
                count += 1;
                match self.gather_directory(*dir, which) {
                    Ok(()) => {}
                    // What is left stays where it is.
                    Err(Error::NoSpace) => return Ok(false),
                    Err(error) => arranging.pass_over(*dir, error)?,
                }
            }
            arranging.gathered[pass] = Some(from + count);
            if count > 0 || (self.ends)() {
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
            from = self.upkeep.engine().run(|core| core.perform(&step))?;
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
        self.upkeep
            .engine()
            .announce(Features::incompatible(INCOMPATIBLE_TRACKS))?;
        let mut from = Some(from);
        while let Some(key) = from {
            if (self.ends)() {
                return Ok(Some(Stage::Loosen(key)));
            }
            let Loose { track, next } = self
                .upkeep
                .engine()
                .run(|core| core.tracks_of(dir).next_worn(key))?;
            if let Some(range) = track {
                let track = Dissolve {
                    dir,
                    low: range.low,
                    at: range.entry.addr,
                };
                while self.upkeep.engine().run(|core| {
                    core.budget().admit(DISSOLVE_COST, 0)?;
                    core.perform(&track)
                })? {}
                arranging.warm = true;
                return Ok(Some(next.map_or(Stage::Form(0), Stage::Loosen)));
            }
            from = next;
        }
        Ok(Some(Stage::Form(0)))
    }

    /// Forms tracks of a directory from a key on.
    fn form(&self, dir: Ino, from: u64, arranging: &mut Arranging) -> Result<Option<Stage>, Error> {
        self.cool(arranging)?;
        let here = (arranging.next, from);
        let mut ahead = std::mem::take(&mut arranging.ahead);
        if !ahead.reaches(here) && !arranging.done.full {
            // What is left of it is nobody's.
            drop(ahead);
            let settle = |dir| {
                let begun = self.begin_to_move(dir, arranging);
                begun.is_ok_and(|stage| stage.is_some_and(Stage::settles))
            };
            let lookahead = Lookahead {
                engine: self.upkeep.engine(),
                dirs: &arranging.found,
                settle: &settle,
                ends: self.ends,
            };
            ahead = lookahead.read(here);
        }
        let which = Which::Cold(ahead.contents());
        let range = from..ahead.end_from(here);
        let outcome = &Arc::clone(&arranging.outcome);
        let next = self.go_through(range, arranging, |from| FormTrack {
            dir,
            from,
            which,
            outcome,
        });
        arranging.ahead = ahead;
        Ok(next?.map(Stage::Form))
    }

    /// Moves some files to groups of a role.
    fn move_some(
        &self,
        dir: Ino,
        from: u64,
        to: Role,
        arranging: &mut Arranging,
    ) -> Result<Option<Stage>, Error> {
        let (files, bytes) = arranging.ready;
        let step = |from| MoveFile { dir, from, to };
        let next = self.go_through(from..KEYS_END, arranging, step);
        arranging.done.files += arranging.ready.0 - files;
        arranging.done.bytes += arranging.ready.1 - bytes;
        Ok(next?.map(|from| Stage::Move(from, to)))
    }

    /// Carries some pieces of large files of a directory to devices of a tier, as far as these have room, and writes them there.
    fn carry(
        &self,
        dir: Ino,
        mut carrying: Carrying,
        arranging: &mut Arranging,
    ) -> Result<Option<Stage>, Error> {
        self.cool(arranging)?;
        let (engine, to) = (self.upkeep.engine(), carrying.to);
        let mut room = Room::of(&mut engine.core());
        let (mut next, mut bytes) = (Some(carrying.at), 0);
        while let Some(from) = next.filter(|_| bytes < STEP) {
            let step = Carry {
                dir,
                from,
                to,
                room,
            };
            let carried = engine.run(|core| step.take(core))?;
            // Hot data of it is none any more.
            engine.reader.overwritten(&carried.bypasses);
            arranging.done.files += u64::from(carried.begins && carrying.passes == 0);
            arranging.done.bytes += carried.bytes;
            bytes += carried.bytes;
            room = room.without(carried.to, carried.bytes);
            next = carried.next;
            if carried.full {
                arranging.end();
                next = None;
            }
        }
        all_written(engine.write_out(Durability::Written)?)?;
        carrying.bytes += bytes;
        Ok(match next {
            Some(at) => Some(Carrying { at, ..carrying }),
            None if arranging.done.full => None,
            None => carrying.again(),
        }
        .map(Stage::Carry))
    }

    /// What was just written is cold once it is in the log.
    fn cool(&self, arranging: &mut Arranging) -> Result<(), Error> {
        if std::mem::take(&mut arranging.warm) {
            all_written(self.upkeep.engine().write_out(Durability::Written)?)?;
        }
        Ok(())
    }

    /// Goes through files of a directory in a range of keys by operations, until that is a step. Answers where the next one begins.
    fn go_through<O>(
        &self,
        range: Range<u64>,
        arranging: &mut Arranging,
        operation: impl Fn(u64) -> O,
    ) -> Result<Option<u64>, Error>
    where
        O: Operation<Change: Change<Done = Stepped>>,
    {
        self.cool(arranging)?;
        let (mut next, mut bytes) = (Some(range.start), 0);
        while let Some(from) = next {
            if bytes >= STEP || from >= range.end || (self.ends)() {
                break;
            }
            let step = operation(from);
            let stepped = self.upkeep.engine().run(|core| core.perform(&step))?;
            arranging.ready.0 += stepped.files;
            arranging.ready.1 += stepped.bytes;
            bytes += stepped.bytes;
            next = stepped.next;
        }
        Ok(next)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
