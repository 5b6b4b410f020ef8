//! When inodes were read: beside the inodes, in the atime file (a reserved inode), so that a read never rewrites one.
//!
//! An inode in memory has the time that counts. One that changed since the last segment takes it along; of the others
//! the new times wait here until they are put into the file's tree. A time there counts as long as the inode is the one
//! of which it was taken, which the segment of its last change tells.

use crate::blocks::{Missed, Stop};
use crate::core::Core;
use crate::error::Error;
use crate::extents;
use crate::inodes::Node;
use crate::tree::Tree;
use crate::types::{AtimeRule, AtimeWhen};
use loamfs_format::atime::{ATIME_INO, Atime, AtimeRun, is_atime_file};
use loamfs_format::ifile::{block_of, slot_of};
use loamfs_format::inode::{Inode, Timestamp, flag, mode};
use loamfs_format::node::TreeRoot;
use loamfs_format::superblock::COMPATIBLE_ATIME;
use loamfs_format::{Ino, InodeBlockNo};

pub(crate) mod waiting;

use waiting::{Atimes, File};

/// A day: relatime's longest wait.
const RELATIVE_SECONDS: i64 = 24 * 3600;
/// Inode blocks whose times are looked for together, so that what is missing is read in one batch.
const TOGETHER: usize = 64;
/// Bytes of the log that the times of an inode block cost at most: a path of the tree, and the file's own block.
const PUT_COST: u64 = 32 << 10;

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

impl Core {
    /// An inode was read; returns whether that set its access time. One that is not in memory any more, and one for which
    /// there is no room, stays as it is.
    pub fn accessed(&mut self, ino: Ino) -> bool {
        if !self.access.is_writable() || self.atimes.rule.when == AtimeWhen::Never {
            return false;
        }
        let now = self.env.now();
        let Some(node) = self.inodes.nodes.get_mut(&ino) else {
            return false;
        };
        if !is_due(self.atimes.rule, &node.inode, now) {
            return false;
        }
        if !node.dirty {
            let Atimes {
                waiting,
                waiting_max,
                ..
            } = &mut self.atimes;
            if waiting.len() >= *waiting_max && !waiting.contains_key(&ino) {
                return false;
            }
            waiting.insert(ino, Atime::new(now, node.inode.ssn));
        }
        node.inode.atime = now;
        if self.atimes.waiting.len() > self.atimes.waiting_max / 2 {
            self.note_dirty();
        }
        true
    }

    /// Brings an inode into memory, with the access time that counts.
    pub fn load(&mut self, ino: Ino) -> Result<(), Stop> {
        let mut missed = Missed::default();
        let kept = missed.note(self.kept_atime(ino))?.flatten();
        missed.note(self.inodes.load(&self.maps, &mut self.blocks, ino))?;
        if let Err(stop) = missed.nothing() {
            self.inodes.nodes.remove(&ino);
            return Err(stop);
        }
        if let Some(node) = self.inodes.nodes.get_mut(&ino)
            && let Some(kept) = kept.filter(|kept| kept.counts(node.inode.ssn))
        {
            node.inode.atime = kept.time;
        }
        Ok(())
    }

    /// The access time that is kept of an inode, if any. Damage of the file is no error: the inode's own time counts.
    fn kept_atime(&mut self, ino: Ino) -> Result<Option<Atime>, Stop> {
        if ino == ATIME_INO {
            return Ok(None);
        }
        if let Some(waiting) = self.atimes.waiting.get(&ino) {
            return Ok(Some(*waiting));
        }
        let Some((tree, root)) = self.atime_tree()? else {
            return Ok(None);
        };
        let found = tree.get(&root, &mut self.blocks, block_of(ino).0);
        let entry = self.unless_damaged(found)?.flatten();
        let run = entry.and_then(|entry| AtimeRun::decode(entry.value()));
        Ok(run.unwrap_or_default().0[slot_of(ino) as usize])
    }

    /// What was found in the file, unless that is damaged: it is left alone from then on, and is nobody's error.
    fn unless_damaged<T>(&mut self, found: Result<T, Stop>) -> Result<Option<T>, Stop> {
        match found {
            Err(Stop::Failed(error)) => {
                if self.atimes.file != File::Unusable {
                    tracing::error!(%error, "the file of access times is damaged: none are kept before the next mount");
                }
                self.atimes.file = File::Unusable;
                Ok(None)
            }
            found => found.map(Some),
        }
    }

    /// The atime file's tree; `None` without one that can be used.
    fn atime_tree(&mut self) -> Result<Option<(Tree, TreeRoot)>, Stop> {
        if matches!(self.atimes.file, File::Absent | File::Unusable) {
            return Ok(None);
        }
        let loaded = self.inodes.load(&self.maps, &mut self.blocks, ATIME_INO);
        if matches!(loaded, Err(Stop::Failed(Error::Stale(_)))) {
            self.atimes.file = File::Absent;
            return Ok(None);
        }
        self.unless_damaged(loaded)?;
        let node = self.inodes.nodes.get(&ATIME_INO);
        let Some(inode) = node
            .map(|node| &node.inode)
            .filter(|inode| is_atime_file(inode))
        else {
            self.atimes.file = File::Unusable;
            return Ok(None);
        };
        self.atimes.file = File::There;
        self.sb.compatible |= COMPATIBLE_ATIME;
        Ok(Some((extents::crc_tree(inode), inode.checksums)))
    }

    /// Puts times that wait into the file's tree, from an inode block on, as many as a segment takes along; returns
    /// where to go on after it. Those that find no space are dropped.
    pub fn keep_atimes(&mut self, from: InodeBlockNo) -> Result<Option<InodeBlockNo>, Stop> {
        if self.atimes.blocks(from).next().is_none() {
            return Ok(None);
        }
        if !self.access.is_writable()
            || !self.budget().space_fits(PUT_COST, 0)
            || !self.prepare_atime_file()?
        {
            self.atimes.waiting.clear();
            return Ok(None);
        }
        self.prepare_keep(from)?;
        let mut at = from;
        loop {
            let Some(block) = self.atimes.blocks(at).next() else {
                return Ok(None);
            };
            if at > from && self.budget().segment_estimate() > self.sizes().segment_full() / 2 {
                return Ok(Some(block));
            }
            if !self.budget().space_fits(PUT_COST, 0) {
                self.atimes.waiting.clear();
                return Ok(None);
            }
            let kept = self.keep_block(block);
            self.unless_damaged(kept)?;
            for (ino, _) in self.atimes.of_block(block) {
                self.atimes.forget(ino);
            }
            at = InodeBlockNo(block.0 + 1);
        }
    }

    /// Brings the file into memory, to be changed, or makes it; whether it can be used.
    fn prepare_atime_file(&mut self) -> Result<bool, Stop> {
        if self.atime_tree()?.is_some() {
            let prepared = self.prepare_dirty(ATIME_INO);
            return Ok(self.unless_damaged(prepared)?.is_some());
        }
        if self.atimes.file == File::Unusable {
            return Ok(false);
        }
        let block = block_of(ATIME_INO);
        self.inodes
            .load_block(&self.maps, &mut self.blocks, block)?;
        let ssn = self.open_ssn();
        // Who knows nothing of access times takes it for an empty file without a name.
        let generation = self.env.generation();
        let inode = Inode::new(ATIME_INO, mode::REGULAR, generation, self.env.now());
        // Nothing is ever made in it, so that the place for that does not matter.
        self.apply(|core| {
            core.inodes.take_number(ATIME_INO, Node::new(inode, ssn))?;
            core.touch(ATIME_INO)?;
            core.atimes.file = File::There;
            core.sb.compatible |= COMPATIBLE_ATIME;
            Ok(true)
        })
    }

    /// Reads what the next blocks' times need, in one batch.
    fn prepare_keep(&mut self, from: InodeBlockNo) -> Result<(), Stop> {
        let Some((tree, root)) = self.atime_tree()? else {
            return Ok(());
        };
        let blocks: Vec<InodeBlockNo> = self.atimes.blocks(from).take(TOGETHER).collect();
        let mut missed = Missed::default();
        for block in blocks {
            let prepared = tree.prepare_put(&root, &mut self.blocks, block.0);
            let prepared = missed.note(prepared);
            self.unless_damaged(prepared)?;
        }
        missed.nothing()
    }

    /// Puts the times of one inode block into the tree. Those of numbers that are free go.
    fn keep_block(&mut self, block: InodeBlockNo) -> Result<(), Stop> {
        let Some((tree, mut root)) = self.atime_tree()? else {
            return Ok(());
        };
        let (live, _) = self.inodes.bits(&self.maps, &mut self.blocks, block)?;
        let mut run = match tree.get(&root, &mut self.blocks, block.0)? {
            Some(entry) => AtimeRun::decode(entry.value()).unwrap_or_default(),
            None => AtimeRun::default(),
        };
        for (ino, time) in self.atimes.of_block(block) {
            run.0[slot_of(ino) as usize] = Some(time);
        }
        for (slot, time) in (0u32..).zip(&mut run.0) {
            *time = time.filter(|_| live & (1 << slot) != 0);
        }
        if let Some(value) = run.encode() {
            tree.put(&mut root, &mut self.blocks, block.0, &value)?;
            self.set_atime_root(root)?;
        }
        Ok(())
    }

    fn set_atime_root(&mut self, root: TreeRoot) -> Result<(), Stop> {
        self.inodes.prepared(ATIME_INO)?.inode.checksums = root;
        self.touch(ATIME_INO)
    }

    /// Before an inode goes: whether it is the last of its block, and [`Core::drop_atimes`] has something to drop.
    pub fn prepare_drop_atimes(&mut self, ino: Ino) -> Result<bool, Stop> {
        let block = block_of(ino);
        let (live, _) = self.inodes.bits(&self.maps, &mut self.blocks, block)?;
        if live & !(1 << slot_of(ino)) != 0 {
            return Ok(false);
        }
        let Some((tree, root)) = self.atime_tree()? else {
            return Ok(false);
        };
        let found = tree
            .prepare_remove(&root, &mut self.blocks, block.0)
            .and_then(|()| tree.get(&root, &mut self.blocks, block.0))
            .and_then(|entry| self.prepare_dirty(ATIME_INO).map(|()| entry.is_some()));
        Ok(self.unless_damaged(found)?.unwrap_or(false))
    }

    /// Takes away what is kept of an inode block whose last inode goes.
    pub fn drop_atimes(&mut self, ino: Ino) -> Result<(), Stop> {
        let Some((tree, mut root)) = self.atime_tree()? else {
            return Ok(());
        };
        tree.remove(&mut root, &mut self.blocks, block_of(ino).0)?;
        self.set_atime_root(root)
    }
}
