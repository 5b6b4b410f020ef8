//! The first walk: names what is wrong by itself, and sums what two places must agree on.

use super::draft::Draft;
use super::slots::Slotted;
use super::sums::{NameSums, Side, SpaceSums};
use super::visitor::{Lost, Visitor};
use crate::{Options, Owner, Phase, Problem, Progress, Volume};
use loamfs_format::dirent::Dirent;
use loamfs_format::ifile::{INO_MAX, INODES_PER_BLOCK};
use loamfs_format::inode::{Inode, ROOT_INO, mode};
use loamfs_format::kind::MapTree;
use loamfs_format::summary::Unwritten;
use loamfs_format::{BlockKind, Extent, FragAddr, Ino, InodeBlockNo, ifile};

/// The type bits of a directory, as entries have them.
pub(crate) const DIRECTORY: u8 = (mode::DIRECTORY >> 12) as u8;
/// Inodes between two words about progress.
const STEP: u64 = 1024;

/// What the first walk leaves for the rest of the check.
pub(crate) struct Found {
    pub(crate) space: SpaceSums,
    pub(crate) names: NameSums,
    pub(crate) lost: Lost,
    /// Directories and their parents; `None` when they do not fit into memory.
    pub(crate) directories: Option<Vec<(Ino, Ino)>>,
    /// Whether there is a root directory.
    pub(crate) root: bool,
    /// Behind the highest block of inodes.
    pub(crate) next_inode_block: InodeBlockNo,
    /// Nodes of maps that cannot be used: the map, the level, and the lower bound.
    pub(crate) nodes: Vec<(MapTree, u8, u64)>,
    /// Extents that were never written.
    pub(crate) unwritten: Unwritten,
}

/// The visitor of the first walk.
pub(crate) struct First<'a, 'p> {
    found: Found,
    report: &'a mut Draft,
    options: &'a mut Options<'p>,
    /// Most directories that are remembered.
    directories_max: usize,
    claimed: u64,
    /// Fragments in use, by the number of the kind.
    frags: [u64; BlockKind::ALL.len() + 1],
    total: u64,
    inodes: u64,
}

impl<'a, 'p> First<'a, 'p> {
    pub(crate) fn new(
        volume: &Volume<'_>,
        memory: u64,
        report: &'a mut Draft,
        options: &'a mut Options<'p>,
    ) -> First<'a, 'p> {
        let key = volume.superblock().uuid;
        let total = volume.geometry().total_frags;
        let dynamic = &volume.state().dynamic;
        let numbers = dynamic
            .next_inode_block
            .0
            .saturating_mul(INODES_PER_BLOCK)
            .min(INO_MAX);
        report.stats().passes += 1;
        let found = Found {
            space: SpaceSums::new(key, total, memory / 16),
            names: NameSums::new(key, numbers, memory / 16),
            lost: Lost::default(),
            directories: Some(Vec::new()),
            root: false,
            next_inode_block: InodeBlockNo(1),
            nodes: Vec::new(),
            unwritten: Unwritten::default(),
        };
        let directories_max = (memory / 4 / size_of::<(Ino, Ino)>() as u64) as usize;
        First {
            found,
            report,
            options,
            directories_max,
            claimed: 0,
            frags: [0; BlockKind::ALL.len() + 1],
            total,
            inodes: dynamic.inodes,
        }
    }

    pub(crate) fn finish(self) -> Found {
        let (claimed, total) = (self.claimed, self.total);
        if self.is_overcommitted() {
            self.report.add(Problem::Overcommitted { claimed, total });
        }
        for kind in BlockKind::ALL {
            let frags = self.frags[kind as usize];
            if frags > 0 {
                self.report.stats().frags.insert(format!("{kind:?}"), frags);
            }
        }
        self.found
    }

    /// Whether so much is claimed that summing it would cost more than the volume's size allows.
    fn is_overcommitted(&self) -> bool {
        self.claimed > self.total.saturating_mul(2)
    }

    fn tell(&mut self, phase: Phase, done: u64, total: u64) {
        if let Some(progress) = &mut self.options.progress {
            progress(Progress { phase, done, total });
        }
    }

    fn remember_directory(&mut self, inode: &Inode) {
        let full = self.directories_max;
        match &mut self.found.directories {
            Some(list) if list.len() < full => list.push((inode.ino, inode.parent)),
            list => *list = None,
        }
    }
}

impl Visitor for First<'_, '_> {
    fn claim(&mut self, extent: Extent, owner: Owner) {
        self.claimed = self.claimed.saturating_add(extent.frags);
        if !self.is_overcommitted() {
            self.frags[owner.kind as usize] += extent.frags;
            self.found.space.range(extent, Some(owner), Side::Reached);
        }
    }

    fn image(&mut self, home: FragAddr) {
        self.found.space.image(home, Side::Reached);
    }

    fn name(&mut self, dir: Ino, entry: &Dirent<'_>) {
        self.report.stats().names += 1;
        let names = &mut self.found.names;
        if entry.file_type == DIRECTORY {
            names.names(entry.ino, DIRECTORY, dir, 1, Side::Reached);
            names.subdirectories(dir, 1, Side::Reached);
        } else {
            names.names(entry.ino, entry.file_type, Ino(0), 1, Side::Reached);
        }
    }

    fn inode(&mut self, inode: &Inode, orphan: bool) {
        let stats = self.report.stats();
        stats.inodes += 1;
        stats.orphans += u64::from(orphan);
        let (ino, nlink) = (inode.ino, u64::from(inode.nlink));
        let next = InodeBlockNo(ifile::block_of(ino).0 + 1);
        self.found.next_inode_block = self.found.next_inode_block.max(next);
        let names = &mut self.found.names;
        if let Some(slot) = Slotted::by_inode(inode) {
            names.slot(&slot, Side::Recorded);
        }
        if inode.is_dir() {
            stats.directories += 1;
            self.found.root |= ino == ROOT_INO;
            if nlink > 0 {
                if ino != ROOT_INO {
                    names.names(ino, DIRECTORY, inode.parent, 1, Side::Recorded);
                }
                names.subdirectories(ino, nlink.wrapping_sub(2), Side::Recorded);
                self.remember_directory(inode);
            }
            if ino == ROOT_INO && inode.parent != ROOT_INO {
                let (stored, found) = (inode.parent, ROOT_INO);
                self.report.add(Problem::Parent { ino, stored, found });
            }
        } else {
            let kind = (inode.file_type() >> 12) as u8;
            names.names(ino, kind, Ino(0), nlink, Side::Recorded);
        }
        let seen = self.report.stats().inodes;
        if seen.is_multiple_of(STEP) {
            self.tell(Phase::Inodes, seen, self.inodes);
        }
    }

    fn slot(&mut self, slot: &Slotted) {
        self.found.names.slot(slot, Side::Reached);
    }

    fn track(&mut self) {
        self.report.stats().tracks += 1;
    }

    fn unwritten(&mut self, extent: Extent) {
        let count = &mut self.found.unwritten;
        count.extents += 1;
        count.frags = count.frags.saturating_add(extent.frags);
    }

    fn reserved(&mut self) {
        self.report.stats().inodes += 1;
    }

    fn problem(&mut self, problem: Problem) {
        if let Problem::Node {
            kind, level, low, ..
        } = problem
            && let Some(map) = kind.map()
        {
            self.found.nodes.push((map, level, low));
        }
        if let Problem::MapCopy { kind, low, .. } = problem
            && let Some(map) = kind.map()
        {
            self.report.plan().add_worn(map, low);
        }
        match problem {
            Problem::MissingData { bytes, .. } => self.report.stats().missing_bytes += bytes,
            Problem::MissingBlock { .. } => {
                self.report
                    .skip("what metadata tell that are on a device that is missing");
            }
            _ => {}
        }
        if let Some(dir) = problem.table() {
            self.report.plan().add_table(dir);
        }
        self.report.add(problem);
    }

    fn lost(&mut self, lost: Lost) {
        self.found.lost += lost;
    }

    fn node(&mut self) {
        self.report.stats().nodes += 1;
    }

    fn data(&mut self, bytes: u64) {
        self.report.stats().data_bytes += bytes;
    }

    fn maps_done(&mut self, maps: u64) {
        self.tell(Phase::Maps, maps, 5);
    }
}
