//! A file's checksums, read forward once.

use super::Walker;
use crate::Problem;
use crate::reader::{TreeSpec, TreeWalk};
use loamfs_format::checksum::{CRC_UNITS, CrcRun};
use loamfs_format::inode::Inode;
use loamfs_format::node::Page;
use loamfs_format::{BlockKind, Ino};
use std::sync::Arc;

/// A walk over a checksum tree, beside the walk over the file's extents.
pub(super) struct Crcs<'v> {
    ino: Ino,
    walk: TreeWalk<'v>,
    leaf: Option<(Arc<Page>, usize)>,
    /// The run that was read last.
    run: Option<(u64, CrcRun)>,
    /// Checksums seen of units below `limit`.
    seen: u64,
    /// Units from here on are about to be freed and do not count.
    limit: u64,
    /// Whether every run could be read.
    whole: bool,
}

impl<'v> Crcs<'v> {
    pub(super) fn new(walker: &Walker<'_, 'v>, inode: &Inode, limit: u64) -> Crcs<'v> {
        let walk = TreeWalk::new(walker.volume, TreeSpec::checksums(inode), 0);
        let mut crcs = Crcs {
            ino: inode.ino,
            walk,
            leaf: None,
            run: None,
            seen: 0,
            limit,
            whole: true,
        };
        // Beside a tree, what stands in the inode says nothing.
        if inode.checksums.is_empty() {
            crcs.take(0, inode.inline_run(0));
        }
        crcs
    }

    /// Checksums seen of units below the limit.
    pub(super) fn seen(&self) -> u64 {
        self.seen
    }

    /// Whether every run could be read.
    pub(super) fn is_whole(&self) -> bool {
        self.whole
    }

    /// The checksum of a unit, 0 when there is none. Units must be asked for in rising order.
    pub(super) fn get(&mut self, walker: &mut Walker<'_, 'v>, unit: u64) -> u32 {
        let key = unit / CRC_UNITS;
        while self.run.as_ref().is_none_or(|(at, _)| *at < key) && self.advance(walker) {}
        let run = self.run.as_ref().filter(|(at, _)| *at == key);
        run.map_or(0, |(_, run)| run.0[(unit % CRC_UNITS) as usize])
    }

    /// Reads to the end, so that all nodes are seen and all checksums counted.
    pub(super) fn finish(&mut self, walker: &mut Walker<'_, 'v>) {
        while self.advance(walker) {}
    }

    /// Takes the next run; false at the end.
    fn advance(&mut self, walker: &mut Walker<'_, 'v>) -> bool {
        loop {
            if let Some((page, index)) = &mut self.leaf
                && let Some((key, value)) = page.entry(*index)
            {
                *index += 1;
                match CrcRun::decode(value) {
                    Some(run) => {
                        self.take(key, run);
                        return true;
                    }
                    None => {
                        let (kind, ino) = (BlockKind::ChecksumNode, self.ino);
                        walker.visitor.problem(Problem::Entry { kind, ino, key });
                        self.whole = false;
                        continue;
                    }
                }
            }
            let Some(node) = self.walk.next() else {
                return false;
            };
            let page = walker.node(node);
            self.whole &= page.is_some();
            self.leaf = page.filter(|page| page.level() == 0).map(|page| (page, 0));
        }
    }

    /// Counts a run, which is the last one then.
    fn take(&mut self, key: u64, run: CrcRun) {
        self.seen += self.count(key, &run);
        self.run = Some((key, run));
    }

    fn count(&self, key: u64, run: &CrcRun) -> u64 {
        let first = key.saturating_mul(CRC_UNITS);
        let counts =
            |(index, crc): (u64, &u32)| *crc != 0 && first.saturating_add(index) < self.limit;
        (0..).zip(&run.0).filter(|item| counts(*item)).count() as u64
    }
}
