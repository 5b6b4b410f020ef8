//! What reading small files out of the log has cost: as many reads are taken to come. It is counted for directories that were made
//! together, since they stand together in the log: those whose inodes share a block. Only where a seek is what reads cost, and
//! where tracks may form by the clock (`volume::forming`).

use loamfs_format::ifile::{INODES_PER_BLOCK, block_of, ino_at};
use loamfs_format::{Ino, InodeBlockNo};
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// Blocks of directories that are remembered at most.
const BLOCKS_MAX: usize = 1 << 14;

/// What a device was asked for of small files that stand in the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Reads {
    /// Names that were looked up.
    lookups: u64,
    /// Contents that were read alone, so that a request was for one file.
    contents: u64,
    /// Bytes of these files.
    bytes: u64,
}

impl Reads {
    /// How often it was asked for both, as for what nobody had in memory: a track's one request brings both.
    pub fn cold(&self) -> u64 {
        self.lookups.min(self.contents)
    }

    /// Bytes of a file, as those have that were read.
    pub fn bytes_a_file(&self) -> u64 {
        self.bytes / self.contents.max(1)
    }
}

/// These reads, of all directories.
#[derive(Debug, Default)]
pub(crate) struct ColdReads {
    blocks: BTreeMap<InodeBlockNo, Reads>,
    /// Since the volume was opened.
    all: u64,
}

impl ColdReads {
    /// A file of a directory was looked up, or so many bytes of it read.
    pub fn note(&mut self, dir: Ino, read: Option<u64>) {
        let reads = self.blocks.entry(block_of(dir)).or_default();
        let before = reads.cold();
        reads.lookups += u64::from(read.is_none());
        reads.contents += u64::from(read.is_some());
        reads.bytes = reads.bytes.saturating_add(read.unwrap_or(0));
        self.all += reads.cold() - before;
        // What was read least, or long ago, is forgotten first.
        while self.blocks.len() > BLOCKS_MAX {
            self.blocks.retain(|_, reads| {
                reads.lookups /= 2;
                reads.contents /= 2;
                reads.bytes /= 2;
                reads.lookups + reads.contents > 0
            });
        }
    }

    /// How many cold reads there were since the volume was opened.
    pub fn all(&self) -> u64 {
        self.all
    }

    /// The blocks of directories of most cold reads, so many at most.
    pub fn most(&self, max: usize) -> Vec<(InodeBlockNo, Reads)> {
        let blocks = self.blocks.iter().map(|(block, it)| (*block, *it));
        let mut blocks: Vec<(InodeBlockNo, Reads)> =
            blocks.filter(|(_, reads)| reads.cold() > 0).collect();
        blocks.sort_by_key(|(_, reads)| Reverse(reads.cold()));
        blocks.truncate(max);
        blocks
    }

    /// What stands in a directory of a block settles, or never will: reads count anew.
    pub fn forget(&mut self, block: InodeBlockNo) {
        self.blocks.remove(&block);
    }
}

/// Those that may be directories whose inodes share a block.
pub(crate) fn together(block: InodeBlockNo) -> impl Iterator<Item = Ino> {
    (0..INODES_PER_BLOCK as u32).map(move |slot| ino_at(block, slot))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_read_least_is_forgotten_when_there_are_too_many() {
        let mut reads = ColdReads::default();
        let dir = |block: usize| ino_at(InodeBlockNo(block as u64), 3);
        for _ in 0..4 {
            reads.note(dir(1), None);
            reads.note(dir(1), Some(100));
        }
        for other in 0..=BLOCKS_MAX {
            reads.note(dir(2 + other), Some(10));
        }
        assert!(reads.blocks.len() <= BLOCKS_MAX);
        assert_eq!(reads.all(), 4, "the others are of inodes in memory");
        let most = reads.most(9);
        assert_eq!((most.len(), most[0].1.cold()), (1, 2));
        let block = most[0].0;
        assert!(block == InodeBlockNo(1) && together(block).any(|ino| ino == dir(1)));
        reads.forget(block);
        assert!(reads.most(9).is_empty());
    }
}
