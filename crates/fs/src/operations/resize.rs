//! Giving files another size.

use super::{Broken, Change, Claim, Operation, Plan};
use crate::blocks::Stop;
use crate::budget::NODES_COST;
use crate::core::Core;
use crate::error::Error;
use crate::file::SIZE_MAX;
use crate::flags::flags_of;
use crate::permission;
use crate::reading::joined;
use crate::unit::{UNIT, UnitBytes, filled};
use loamfs_format::Ino;
use loamfs_format::inode::Body;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Makes a file at least so long.
#[derive(Clone, Copy)]
pub(crate) struct Grow {
    pub ino: Ino,
    pub size: u64,
}

/// Frees what was reserved behind the end of a large file; one that is no longer than small ones goes back to the log.
#[derive(Clone, Copy)]
pub(crate) struct CutBehind {
    pub ino: Ino,
}

/// How a file gets another size.
enum How {
    /// It has that size.
    Nothing,
    /// A small file stays small, with this content.
    Small(Arc<[u8]>),
    /// A small file of this content leaves the log.
    Leave(Arc<[u8]>),
    /// A large file grows: these units become zero behind its end.
    Grow(BTreeMap<u64, UnitBytes>),
    /// A file on its way home turns back, with this content.
    Return(Arc<[u8]>),
    /// A large file shrinks.
    Cut,
}

/// Another size for a file, prepared. A large file's blocks behind it go in steps: see [`Drain`](super::drain::Drain).
pub(crate) struct Resizing {
    ino: Ino,
    size: u64,
    old: u64,
    how: How,
    claim: Claim,
}

impl Operation for Grow {
    type Change = Resizing;

    fn prepare(&self, core: &mut Core) -> Result<Plan<Resizing>, Stop> {
        if self.size <= core.file(self.ino)?.inode().size {
            return Ok(Plan::Done(()));
        }
        Resizing::prepare(core, self.ino, self.size).map(Plan::Change)
    }
}

impl Operation for CutBehind {
    type Change = Resizing;

    fn prepare(&self, core: &mut Core) -> Result<Plan<Resizing>, Stop> {
        let node = core.file(self.ino)?;
        permission::may_grow(flags_of(node.inode()))?;
        if !node.is_large() {
            return Ok(Plan::Done(()));
        }
        let size = node.inode().size;
        let mut resizing = Resizing::prepare(core, self.ino, size)?;
        if size <= core.sizes().small_max() {
            resizing.how = How::Cut;
        }
        Ok(match resizing.how {
            How::Nothing => Plan::Done(()),
            _ => Plan::Change(resizing),
        })
    }
}

impl Resizing {
    pub fn prepare(core: &mut Core, ino: Ino, size: u64) -> Result<Resizing, Stop> {
        if size > SIZE_MAX {
            return Err(Error::TooLarge.into());
        }
        let node = core.file(ino)?;
        if node.inode().truncating != u64::MAX && size > node.inode().size {
            return Err(core.leftovers.wait_for_drain(ino));
        }
        let (old, large) = (node.inode().size, node.is_large());
        core.prepare_dirty(ino)?;
        core.may_cut(ino, size.div_ceil(UNIT)..u64::MAX)?;
        let small_max = core.sizes().small_max();
        let claim = if size > old {
            // What stands behind the old end of a large file becomes zero; a small one leaves the log.
            let at_home = large || size > small_max;
            Claim::Growth {
                log: size.min(small_max) + NODES_COST,
                data: if at_home { 2 * small_max } else { 0 },
            }
        } else {
            Claim::Removal
        };
        Ok(Resizing {
            ino,
            size,
            old,
            how: How::prepare(core, ino, size)?,
            claim,
        })
    }
}

impl How {
    /// Reads what giving a file another size needs. The inode is prepared.
    fn prepare(core: &mut Core, ino: Ino, size: u64) -> Result<How, Stop> {
        let small_max = core.sizes().small_max();
        let node = core.node(ino)?;
        let (old, large, moving) = (node.inode().size, node.is_large(), node.is_moving());
        if !large && size <= small_max {
            // Who cuts a file to nothing needs none of it, which may be damaged or far away.
            let old = match size {
                0 => Arc::default(),
                _ => core.reading().small_content(ino)?,
            };
            let kept = old.len().min(size as usize);
            let keep = |new: &mut [u8]| new[..kept].copy_from_slice(&old[..kept]);
            Ok(How::Small(filled(size as usize, keep)))
        } else if size > old {
            core.may_go_home(ino)?;
            Ok(match large {
                true => How::Grow(core.reading().zeroes_behind(ino, size)?),
                false => How::Leave(core.reading().small_content(ino)?),
            })
        } else if size == old {
            let behind = size.div_ceil(u64::from(core.geometry.block_size));
            let reserved = core.reading().extents_from(ino, behind, u64::MAX, 1)?;
            Ok(match reserved.is_empty() {
                true => How::Nothing,
                // What was reserved behind the end goes.
                false => How::Cut,
            })
        } else if size <= small_max && moving {
            // On its way home the file has become small again: what segments show is still the small form.
            let content = joined(&core.reading().read(ino, 0, size as usize)?);
            Ok(How::Return(content.into()))
        } else {
            Ok(How::Cut)
        }
    }
}

impl Change for Resizing {
    type Done = ();

    fn claim(&self) -> Claim {
        self.claim
    }

    fn apply(self, core: &mut Core) -> Result<(), Broken> {
        let (ino, size) = (self.ino, self.size);
        match self.how {
            How::Nothing => {}
            How::Small(content) => core.set_small(ino, content)?,
            How::Leave(content) => {
                core.homes().leave_small(ino, &content)?;
                core.homes()
                    .put(ino, BTreeMap::new(), size, &BTreeSet::new())?;
            }
            How::Grow(units) => core.homes().put(ino, units, size, &BTreeSet::new())?,
            How::Return(content) => {
                core.homes().forget(ino)?;
                core.set_small(ino, content)?;
            }
            How::Cut => cut(core, ino, size)?,
        }
        if size == 0 && self.old > 0 {
            let node = core.inodes.prepared(ino)?;
            node.inode_mut().version = node.inode().version.wrapping_add(1);
            // What is written now replaces what was there: no segment shows the cut without it (rule 3).
            if core.env.law().cut_waits() {
                core.writeback.hold_up(ino, u64::MAX);
            }
        }
        Ok(core.changed_content(ino)?)
    }
}

/// Cuts a large file's data that waits, and records the target for the rest (rule 1).
fn cut(core: &mut Core, ino: Ino, size: u64) -> Result<(), Stop> {
    core.homes()
        .drop_units(ino, size.div_ceil(UNIT)..u64::MAX)?;
    let node = core.inodes.prepared(ino)?;
    node.change_homed(&mut core.writeback, |homed| homed.show_at_most(size));
    let moving = matches!(node.inode().body, Body::Inline(_) | Body::Small(_));
    node.inode_mut().size = size;
    if moving {
        // The small form that segments show goes with the move to home or back to small.
    } else {
        node.show_size(node.shown_size().min(size));
        if !matches!(node.inode().body, Body::Empty) {
            node.inode_mut().truncating = size;
        }
    }
    core.leftovers.mark(&mut core.inodes, ino)?;
    core.leftovers.add(ino);
    Ok(())
}
