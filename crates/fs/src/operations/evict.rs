//! Removing inodes that have no name.

use super::drain::Draining;
use super::resize::Resizing;
use super::xattr::Clearing;
use super::{Broken, Change, Claim, Operation, Plan};
use crate::blocks::Stop;
use crate::core::Core;
use crate::error::Error;
use loamfs_format::Ino;
use loamfs_format::inode::Body;

/// Removes an orphan that nobody holds, or goes on with it.
#[derive(Clone, Copy)]
pub(crate) struct Evict {
    pub ino: Ino,
}

/// What a step of that came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Evicted {
    /// Something of it is left.
    More,
    /// It is gone.
    Gone,
    /// It is no orphan, or somebody holds it.
    Stays,
}

/// [`Evict`], prepared: one step.
pub(crate) enum Evicting {
    /// Its content is cut off.
    Cut(Resizing),
    /// Its blocks go.
    Drain(Draining),
    /// Its attributes go.
    Clear(Clearing),
    /// It goes itself.
    Give {
        ino: Ino,
        /// The access times of its inode block go too.
        times_go: bool,
    },
}

impl Operation for Evict {
    type Change = Evicting;

    fn prepare(&self, core: &mut Core) -> Result<Plan<Evicting>, Stop> {
        let ino = self.ino;
        if core.leftovers.holders().hold_it(ino) {
            return Ok(Plan::Done(Evicted::Stays));
        }
        let node = match core.node(ino) {
            Err(Stop::Failed(Error::Stale(_))) => return Ok(Plan::Done(Evicted::Gone)),
            other => other?,
        };
        let inode = node.inode();
        if inode.nlink > 0 {
            return Ok(Plan::Done(Evicted::Stays));
        }
        // Space may be reserved behind the end of a file without a byte.
        let blocks = matches!(inode.body, Body::Extents(_) | Body::ExtentTree(_));
        let bytes = inode.size > 0 && node.is_large();
        let uncut = bytes || blocks && inode.truncating == u64::MAX;
        let (cuts, drains) = (inode.is_file() && uncut, inode.truncating != u64::MAX);
        if inode.is_dir() {
            // A wrong link count takes no names away.
            core.names().prepare_empty(ino)?;
        }
        let step = if cuts {
            Evicting::Cut(Resizing::prepare(core, ino, 0)?)
        } else if drains {
            Evicting::Drain(Draining::prepare(core, ino)?)
        } else if let Some(step) = Clearing::prepare(core, ino)? {
            Evicting::Clear(step)
        } else {
            let times_go = core.atime_file().prepare_drop(ino)?;
            Evicting::Give { ino, times_go }
        };
        Ok(Plan::Change(step))
    }
}

impl Change for Evicting {
    type Done = Evicted;

    fn claim(&self) -> Claim {
        Claim::Removal
    }

    fn apply(self, core: &mut Core) -> Result<Evicted, Broken> {
        match self {
            Evicting::Cut(step) => step.apply(core)?,
            Evicting::Drain(step) => {
                step.apply(core)?;
            }
            Evicting::Clear(step) => step.apply(core)?,
            Evicting::Give { ino, times_go } => {
                give(core, ino, times_go)?;
                return Ok(Evicted::Gone);
            }
        }
        Ok(Evicted::More)
    }
}

/// Gives an inode back that has nothing any more but small content.
fn give(core: &mut Core, ino: Ino, times_go: bool) -> Result<(), Stop> {
    core.atimes.forget(ino);
    if times_go {
        core.atime_file().drop_block(ino)?;
    }
    let node = core.inodes.prepared(ino)?;
    core.pending.drop_content(node.take_small().as_deref());
    if let Some(pointer) = node.inode().body.small() {
        core.freeing().block(&pointer);
    }
    core.homes().forget(ino)?;
    core.writeback.let_pass(ino);
    core.inodes.give_back(ino)?;
    core.leftovers.remove(ino);
    core.note_dirty();
    Ok(())
}
