//! Ending a pending truncate: blocks behind the target are freed in bounded steps, and a file that has become small
//! goes back to the log (H8).

use super::{Broken, Change, Claim, Operation, Plan};
use crate::blocks::Stop;
use crate::core::Core;
use crate::error::Error;
use crate::extents::{self, CrcChange, STEP_EXTENTS};
use crate::reading::joined;
use crate::tree::Tree;
use loamfs_format::Ino;
use loamfs_format::checksum::CRC_UNITS;
use loamfs_format::inode::{Body, FileExtent};
use loamfs_format::node::TreeRoot;
use std::sync::Arc;

/// Behind every block that a file can have.
const BLOCK_END: u64 = 1 << 52;
/// Leaves of a tree that one step frees.
const DRAIN_LEAVES: usize = 32;

/// Frees a bounded number of blocks behind a file's pending target. True when the drain is over.
#[derive(Clone, Copy)]
pub(crate) struct Drain {
    pub ino: Ino,
}

/// [`Drain`], prepared: one step.
pub(crate) enum Draining {
    Extents(FreeExtents),
    Checksums(TrimChecksums),
    Return(ReturnToLog),
}

/// Extents from a block on go.
pub(crate) struct FreeExtents {
    ino: Ino,
    first: u64,
    change: extents::ExtentChange,
}

/// Checksums from a unit on go.
pub(crate) struct TrimChecksums {
    ino: Ino,
    tree: Tree,
    root: TreeRoot,
    /// The unit.
    keep: u64,
    /// What becomes of the run that it is in.
    edge: CrcChange,
}

/// A file goes back to the log.
pub(crate) struct ReturnToLog {
    ino: Ino,
    content: Arc<[u8]>,
    /// It has been on its way home: segments show its small form.
    moving: bool,
    tree: Tree,
    root: TreeRoot,
    change: extents::ExtentChange,
}

impl Operation for Drain {
    type Change = Draining;

    fn prepare(&self, core: &mut Core) -> Result<Plan<Draining>, Stop> {
        let ino = self.ino;
        let node = match core.node(ino) {
            Err(Stop::Failed(Error::Stale(_))) => return Ok(Plan::Done(true)),
            other => other?,
        };
        if !node.inode().is_file() {
            return Ok(Plan::Done(true));
        }
        if node.inode().truncating == u64::MAX {
            return Ok(match ReturnToLog::prepare(core, ino)? {
                Some(change) => Plan::Change(Draining::Return(change)),
                None => Plan::Done(true),
            });
        }
        Draining::prepare(core, ino).map(Plan::Change)
    }
}

impl Draining {
    /// The next step of a pending truncate.
    pub fn prepare(core: &mut Core, ino: Ino) -> Result<Draining, Stop> {
        core.prepare_dirty(ino)?;
        let geometry = core.geometry;
        let node = core.inodes.prepared(ino)?;
        let keep = node.inode().truncating.div_ceil(geometry.block_size.into());
        let last = last_extents(core, ino, keep)?;
        let inode = core.inodes.prepared(ino)?.inode();
        if let Some(first) = last.last().map(|e| e.block.max(keep)) {
            let behind = [(first, BLOCK_END)];
            let change = extents::prepare(inode, &mut core.blocks, &geometry, &behind, &[])?;
            return Ok(Draining::Extents(FreeExtents { ino, first, change }));
        }
        let (tree, root) = (extents::crc_tree(inode), inode.checksums);
        let keep = keep * geometry.block_units();
        let from = keep.div_ceil(CRC_UNITS);
        tree.prepare_trim(&root, &mut core.blocks, from, DRAIN_LEAVES)?;
        let edge = if keep.is_multiple_of(CRC_UNITS) || root.is_empty() {
            CrcChange::default()
        } else {
            let stale = keep..keep.next_multiple_of(CRC_UNITS);
            extents::prepare_crcs(inode, &mut core.blocks, false, stale.map(|unit| (unit, 0)))?
        };
        Ok(Draining::Checksums(TrimChecksums {
            ino,
            tree,
            root,
            keep,
            edge,
        }))
    }
}

impl Change for Draining {
    type Done = bool;

    fn claim(&self) -> Claim {
        Claim::Removal
    }

    fn apply(self, core: &mut Core) -> Result<bool, Broken> {
        match self {
            Draining::Extents(change) => change.apply(core)?,
            Draining::Checksums(change) => change.apply(core)?,
            Draining::Return(change) => {
                change.apply(core)?;
                return Ok(true);
            }
        }
        Ok(false)
    }
}

impl FreeExtents {
    fn apply(self, core: &mut Core) -> Result<(), Stop> {
        let behind = self.first * core.geometry.block_units()..u64::MAX;
        core.homes().change(self.ino, &self.change)?;
        // The mover may have taken some of it along.
        core.homes().drop_units(self.ino, behind)?;
        core.freeing()
            .homes_of(self.ino, self.change.into_freed())?;
        core.touch(self.ino)
    }
}

impl TrimChecksums {
    fn apply(self, core: &mut Core) -> Result<(), Stop> {
        let (ino, mut root, from) = (self.ino, self.root, self.keep.div_ceil(CRC_UNITS));
        let blocks = &mut core.blocks;
        let trimmed = self
            .tree
            .trim_step(&mut root, blocks, from, DRAIN_LEAVES, |_, _| {})?;
        let node = core.inodes.prepared(ino)?;
        node.inode_mut().checksums = root;
        if trimmed.done {
            extents::cut_crcs(node.inode_mut(), self.keep);
            if !node.inode().checksums.is_empty() {
                extents::apply_crcs(node.inode_mut(), blocks, &self.edge)?;
            }
            node.inode_mut().truncating = u64::MAX;
            core.leftovers.mark(&mut core.inodes, ino)?;
        }
        core.touch(ino)
    }
}

impl ReturnToLog {
    /// Reads a large file that has shrunk to a block or less, unless it is about to go.
    fn prepare(core: &mut Core, ino: Ino) -> Result<Option<ReturnToLog>, Stop> {
        let small_max = core.sizes().small_max();
        let node = core.file(ino)?;
        if !node.is_large() || node.inode().size > small_max || node.inode().nlink == 0 {
            return Ok(None);
        }
        let size = node.inode().size as usize;
        core.prepare_dirty(ino)?;
        let content = if size == 0 {
            Arc::default()
        } else {
            joined(&core.reading().read(ino, 0, size)?).into()
        };
        let geometry = core.geometry;
        let inode = core.inodes.prepared(ino)?.inode();
        let moving = matches!(inode.body, Body::Inline(_) | Body::Small(_));
        let (tree, root) = (extents::crc_tree(inode), inode.checksums);
        tree.prepare_trim(&root, &mut core.blocks, 0, usize::MAX)?;
        let change = if moving {
            extents::ExtentChange::default()
        } else {
            let all = [(0, BLOCK_END)];
            extents::prepare(inode, &mut core.blocks, &geometry, &all, &[])?
        };
        Ok(Some(ReturnToLog {
            ino,
            content,
            moving,
            tree,
            root,
            change,
        }))
    }

    fn apply(self, core: &mut Core) -> Result<(), Stop> {
        let (ino, mut root) = (self.ino, self.root);
        core.homes().forget(ino)?;
        let (node, blocks) = (core.inodes.prepared(ino)?, &mut core.blocks);
        if !self.moving {
            self.tree
                .trim_step(&mut root, blocks, 0, usize::MAX, |_, _| {})?;
            node.inode_mut().checksums = TreeRoot::EMPTY;
            node.inode_mut().crcs.clear();
            core.homes().change(ino, &self.change)?;
            let node = core.inodes.prepared(ino)?;
            node.inode_mut().frags = 0;
            node.show_size(0);
        }
        for home in self.change.into_freed() {
            core.freeing().home(home);
        }
        core.set_small(ino, self.content)?;
        // Its homes go with the next segment.
        core.inodes.seal_before_growth(ino)?;
        core.touch(ino)
    }
}

/// The last extents of a file that reach beyond block `keep`, last first, a bounded number.
fn last_extents(core: &mut Core, ino: Ino, keep: u64) -> Result<Vec<FileExtent>, Stop> {
    let geometry = core.geometry;
    let inode = core.inodes.prepared(ino)?.inode();
    let blocks = &mut core.blocks;
    let root = match &inode.body {
        Body::Extents(_) => {
            let mut found = extents::overlapping(inode, blocks, &geometry, keep, BLOCK_END)?;
            found.reverse();
            return Ok(found);
        }
        Body::ExtentTree(root) => root,
        _ => return Ok(Vec::new()),
    };
    let beyond = |e: &FileExtent| e.block + extents::blocks_of(e, &geometry) > keep;
    let tree = extents::tree(inode);
    let (mut found, mut from) = (Vec::new(), BLOCK_END);
    while found.len() < STEP_EXTENTS
        && let Some(entry) = tree.prev(root, blocks, from)?
    {
        let key = entry.key();
        let here = extents::overlapping(inode, blocks, &geometry, key, key + 1)?;
        let Some(extent) = here.into_iter().find(beyond) else {
            break;
        };
        found.push(extent);
        let Some(next) = key.checked_sub(1) else {
            break;
        };
        from = next;
    }
    Ok(found)
}
