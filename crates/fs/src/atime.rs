//! When inodes were read: beside the inodes, in the atime file (a reserved inode), so that a read never rewrites one.
//!
//! An inode in memory has the time that counts. One that changed since the last segment takes it along; of the others
//! the new times wait here until they are put into the file's tree. A time there counts as long as the inode is the one
//! of which it was taken, which the segment of its last change tells.

use crate::blocks::{Missed, Stop};
use crate::core::Core;
use crate::error::Error;
use crate::inodes::Node;
use crate::operations::{Broken, Change, Claim, Operation, Plan};
use crate::types::{AtimeRule, AtimeWhen};
use loamfs_format::atime::{ATIME_INO, Atime, AtimeRun};
use loamfs_format::ifile::{block_of, slot_of};
use loamfs_format::inode::{Inode, Timestamp, flag, mode};
use loamfs_format::node::TreeRoot;
use loamfs_format::superblock::COMPATIBLE_ATIME;
use loamfs_format::{Ino, InodeBlockNo};

pub(crate) mod waiting;

use waiting::File;

/// A day: relatime's longest wait.
const RELATIVE_SECONDS: i64 = 24 * 3600;
/// Inode blocks whose times are looked for together, so that what is missing is read in one batch.
const TOGETHER: usize = 64;
/// Bytes of the log that the times of an inode block cost at most: a path of the tree, and the file's own block.
const PUT_COST: u64 = 32 << 10;
/// What cannot be.
const VANISHED: Error =
    Error::Broken("the access times that were to be dropped are not there any more");

/// Whether a read at `now` sets the access time of an inode.
fn is_due(rule: AtimeRule, inode: &Inode, now: Timestamp) -> bool {
    if inode.flags & flag::NOATIME != 0 || (inode.is_dir() && !rule.directories) {
        return false;
    }
    match rule.when {
        AtimeWhen::Never => false,
        AtimeWhen::Always => inode.atime != now,
        AtimeWhen::Relative => {
            inode.atime <= inode.mtime
                || inode.atime <= inode.ctime
                || now.seconds.saturating_sub(inode.atime.seconds) >= RELATIVE_SECONDS
        }
    }
}

/// Whoever changes the file changes its inode and its tree as operations do, and so needs all of the state.
pub(crate) struct AtimeFile<'c> {
    core: &'c mut Core,
}

impl Core {
    /// What changes access times.
    pub fn atime_file(&mut self) -> AtimeFile<'_> {
        AtimeFile { core: self }
    }
}

impl AtimeFile<'_> {
    /// An inode was read; returns whether that set its access time. One that is not in memory any more, and one for which
    /// there is no room, stays as it is.
    pub fn accessed(&mut self, ino: Ino) -> bool {
        let rule = self.core.atimes.rule();
        if !self.core.access.is_writable() || rule.when == AtimeWhen::Never {
            return false;
        }
        let now = self.core.env.now();
        let Some(node) = self.core.inodes.get_mut(ino) else {
            return false;
        };
        if !is_due(rule, node.inode(), now) {
            return false;
        }
        let time = Atime::new(now, node.inode().ssn);
        if !node.is_dirty() && !self.core.atimes.wait(ino, time) {
            return false;
        }
        node.inode_mut().atime = now;
        if self.core.atimes.many_wait() {
            self.core.note_dirty();
        }
        true
    }

    /// Puts times that wait into the file's tree, from an inode block on, as many as a segment takes along; returns
    /// where to go on after it. Those that find no space are dropped.
    pub fn keep(&mut self, from: InodeBlockNo) -> Result<Option<InodeBlockNo>, Stop> {
        if self.core.atimes.blocks(from).next().is_none() {
            return Ok(None);
        }
        if !self.core.access.is_writable()
            || !self.core.budget().space_fits(PUT_COST, 0)
            || !self.core.perform(&MakeFile)?
        {
            self.core.atimes.forget_all();
            return Ok(None);
        }
        self.prepare_keep(from)?;
        let mut at = from;
        loop {
            let Some(block) = self.core.atimes.blocks(at).next() else {
                return Ok(None);
            };
            if at > from
                && self.core.budget().segment_length() > self.core.sizes().segment_full() / 2
            {
                return Ok(Some(block));
            }
            if !self.core.budget().space_fits(PUT_COST, 0) {
                self.core.atimes.forget_all();
                return Ok(None);
            }
            let kept = self.keep_block(block);
            self.core.atimes.unless_damaged(kept)?;
            for (ino, _) in self.core.atimes.of_block(block) {
                self.core.atimes.forget(ino);
            }
            at = InodeBlockNo(block.0 + 1);
        }
    }

    /// Reads what the next blocks' times need, in one batch.
    fn prepare_keep(&mut self, from: InodeBlockNo) -> Result<(), Stop> {
        let Some((tree, root)) = self.core.loader().tree()? else {
            return Ok(());
        };
        let blocks: Vec<InodeBlockNo> = self.core.atimes.blocks(from).take(TOGETHER).collect();
        let mut missed = Missed::default();
        for block in blocks {
            let prepared = tree.prepare_put(&root, &mut self.core.blocks, block.0);
            let prepared = missed.note(prepared);
            self.core.atimes.unless_damaged(prepared)?;
        }
        missed.nothing()
    }

    /// Puts the times of one inode block into the tree. Those of numbers that are free go.
    fn keep_block(&mut self, block: InodeBlockNo) -> Result<(), Stop> {
        let Some((tree, mut root)) = self.core.loader().tree()? else {
            return Ok(());
        };
        let (live, _) = self
            .core
            .inodes
            .bits(&self.core.maps, &mut self.core.blocks, block)?;
        let mut run = match tree.get(&root, &mut self.core.blocks, block.0)? {
            Some(entry) => AtimeRun::decode(entry.value()).unwrap_or_default(),
            None => AtimeRun::default(),
        };
        for (ino, time) in self.core.atimes.of_block(block) {
            run.0[slot_of(ino) as usize] = Some(time);
        }
        for (slot, time) in (0u32..).zip(&mut run.0) {
            *time = time.filter(|_| live & (1 << slot) != 0);
        }
        if let Some(value) = run.encode() {
            tree.put(&mut root, &mut self.core.blocks, block.0, &value)?;
            self.set_root(root)?;
        }
        Ok(())
    }

    fn set_root(&mut self, root: TreeRoot) -> Result<(), Stop> {
        self.core.inodes.prepared(ATIME_INO)?.inode_mut().checksums = root;
        self.core.touch(ATIME_INO)
    }

    /// Before an inode goes: whether it is the last of its block, and [`AtimeFile::drop_block`] has something to drop.
    pub fn prepare_drop(&mut self, ino: Ino) -> Result<bool, Stop> {
        let block = block_of(ino);
        let (live, _) = self
            .core
            .inodes
            .bits(&self.core.maps, &mut self.core.blocks, block)?;
        if live & !(1 << slot_of(ino)) != 0 {
            return Ok(false);
        }
        let Some((tree, root)) = self.core.loader().tree()? else {
            return Ok(false);
        };
        let found = tree
            .prepare_remove(&root, &mut self.core.blocks, block.0)
            .and_then(|()| tree.get(&root, &mut self.core.blocks, block.0))
            .and_then(|entry| self.core.prepare_dirty(ATIME_INO).map(|()| entry.is_some()));
        Ok(self.core.atimes.unless_damaged(found)?.unwrap_or(false))
    }

    /// Takes away what is kept of an inode block whose last inode goes.
    pub fn drop_block(&mut self, ino: Ino) -> Result<(), Stop> {
        let (tree, mut root) = self.core.loader().tree()?.ok_or(VANISHED)?;
        tree.remove(&mut root, &mut self.core.blocks, block_of(ino).0)?;
        self.set_root(root)
    }
}

/// Brings the file into memory, to be changed, or makes it; whether it can be used.
struct MakeFile;

/// [`MakeFile`], prepared.
struct Making {
    inode: Inode,
}

impl Operation for MakeFile {
    type Change = Making;

    fn prepare(&self, core: &mut Core) -> Result<Plan<Making>, Stop> {
        if core.loader().tree()?.is_some() {
            let prepared = core.prepare_dirty(ATIME_INO);
            let usable = core.atimes.unless_damaged(prepared)?.is_some();
            return Ok(Plan::Done(usable));
        }
        if core.atimes.file() == File::Unusable {
            return Ok(Plan::Done(false));
        }
        let block = block_of(ATIME_INO);
        core.inodes
            .load_block(&core.maps, &mut core.blocks, block)?;
        // Who knows nothing of access times takes it for an empty file without a name.
        let generation = core.env.generation();
        let inode = Inode::new(ATIME_INO, mode::REGULAR, generation, core.env.now());
        Ok(Plan::Change(Making { inode }))
    }
}

impl Change for Making {
    type Done = bool;

    fn claim(&self) -> Claim {
        Claim::Nothing
    }

    fn apply(self, core: &mut Core) -> Result<bool, Broken> {
        let node = Node::new(self.inode, core.open_ssn());
        core.inodes.take_number(ATIME_INO, node)?;
        core.touch(ATIME_INO)?;
        core.atimes.set_file(File::There);
        core.sb.compatible |= COMPATIBLE_ATIME;
        Ok(true)
    }
}
