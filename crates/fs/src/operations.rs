//! Changes of a volume in two phases (DESIGN.md, "Inodes, directories, attributes"): what is asked for is prepared, then
//! admitted, then applied.
//!
//! ```text
//! Operation --prepare--> Change --claim, admit--> apply --> done
//!     ^                    |
//!     +------- Stop -------+   blocks are read or room is made, and it is prepared again
//! ```
//! Whatever can stop does so before anything changes. An operation owns what was asked for, so that it can wait; a
//! change owns all that was looked up for it, so that it looks up nothing that may be missing.

pub(crate) mod acl;
pub(crate) mod attributes;
pub(crate) mod carry;
pub(crate) mod drain;
pub(crate) mod evict;
pub(crate) mod flags;
pub(crate) mod link;
pub(crate) mod make;
pub(crate) mod placing;
pub(crate) mod preallocate;
pub(crate) mod range;
pub(crate) mod rename;
pub(crate) mod resize;
pub(crate) mod unlink;
pub(crate) mod write;
pub(crate) mod xattr;

use crate::blocks::Stop;
use crate::core::Core;
use crate::types::Timestamp;
use loamfs_format::Ino;

/// What a change of names makes at most, in bytes of the log: nodes of two directories, and inode blocks.
pub(crate) const NAMES_COST: u64 = 96 << 10;

/// What somebody asked for.
pub(crate) trait Operation {
    /// What comes of it.
    type Change: Change;

    /// Looks up and reads all that the change needs, and finds what forbids it. Only caches change.
    ///
    /// # Errors
    /// What is missing, or why it cannot be.
    fn prepare(&self, core: &mut Core) -> Result<Plan<Self::Change>, Stop>;
}

/// What is to be done for an operation.
pub(crate) enum Plan<C: Change> {
    Change(C),
    /// Nothing: this is what it comes to.
    Done(C::Done),
}

/// What a step through a directory's files came to.
#[derive(Default)]
pub(crate) struct Stepped {
    /// The key that the next step begins with; `None` at the end of the directory.
    pub next: Option<u64>,
    /// Files that it moves, and bytes of their contents.
    pub files: u64,
    pub bytes: u64,
}

/// What was found of a file that is to move; nothing if it is damaged: that stays where it is.
pub(crate) fn unless_damaged<T>(
    ino: Ino,
    found: Result<Option<T>, Stop>,
) -> Result<Option<T>, Stop> {
    match found {
        Err(Stop::Failed(error)) => {
            tracing::debug!(%error, ino = ino.0, "a damaged file does not move");
            Ok(None)
        }
        found => found,
    }
}

/// A change, all of which is in memory.
pub(crate) trait Change {
    /// What whoever asked for it gets.
    type Done;

    /// The room that it takes.
    fn claim(&self) -> Claim;

    /// Makes it. It was prepared and admitted, so that nothing stops it.
    ///
    /// # Errors
    /// What cannot be was met: half of it may be done.
    fn apply(self, core: &mut Core) -> Result<Self::Done, Broken>;
}

/// Room that a change takes at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Claim {
    /// So many bytes of new content of the log, and of data.
    Growth { log: u64, data: u64 },
    /// It writes so many bytes to space that was reserved, in so many runs of checksums.
    First { bytes: u64, runs: u64 },
    /// None: it is part of what was admitted.
    Nothing,
    /// It writes so many bytes to the log, and the same segment gives back as much: the reserve may lend that.
    Overwrite { log: u64 },
    /// It gives space back, and may take the reserve for that.
    Removal,
    /// It may, if that is all there is; it makes so many bytes of the log.
    Either { log: u64 },
}

/// Why a change that was prepared stopped.
#[derive(Debug)]
pub(crate) struct Broken(Stop);

impl From<Stop> for Broken {
    fn from(stop: Stop) -> Self {
        Broken(stop)
    }
}

impl Core {
    /// Prepares an operation, admits its change, and makes that. If that stops, half of it may be done: the volume is
    /// broken.
    pub fn perform<O: Operation>(
        &mut self,
        operation: &O,
    ) -> Result<<O::Change as Change>::Done, Stop> {
        // What an operation that was sent back was about to change stays as it is.
        self.inodes.take_unsettling();
        match operation.prepare(self)? {
            Plan::Done(done) => Ok(done),
            Plan::Change(change) => {
                self.admit_claim(change.claim())?;
                let unsettled = self.unsettle_prepared().map_err(Broken);
                let changed = unsettled.and_then(|()| change.apply(self));
                changed.map_err(|Broken(stop)| {
                    tracing::error!(?stop, "a prepared change stopped");
                    self.access.break_down("a prepared change stopped").into()
                })
            }
        }
    }

    fn admit_claim(&mut self, claim: Claim) -> Result<(), Stop> {
        match claim {
            Claim::Growth { log, data } => self.budget().admit(log, data),
            Claim::First { bytes, runs } => self.budget().admit_first(bytes, runs),
            Claim::Nothing => Ok(()),
            Claim::Overwrite { log } => self.budget().admit_overwrite(log),
            Claim::Removal => self.budget().admit_removal(),
            Claim::Either { log } => match self.budget().admit(log, 0) {
                Err(Stop::Full) => self.budget().admit_removal(),
                admitted => admitted,
            },
        }
    }
}

/// A directory's entries changed.
fn changed_names(core: &mut Core, dir: Ino, now: Timestamp) -> Result<(), Stop> {
    let node = core.inodes.prepared(dir)?;
    node.inode_mut().mtime = now;
    node.inode_mut().ctime = now;
    core.touch(dir)
}
