//! What reading small files out of the log has cost, by directory: as many reads are taken to come. Only where a seek is what reads
//! cost, and where tracks may form by the clock (`volume::forming`).

use super::choose::dir_in_log;
use crate::blocks::Stop;
use crate::core::Core;
use crate::dir;
use crate::types::SettleWhen;
use loamfs_format::Ino;
use loamfs_format::inode::Placement;
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// Directories that are remembered at most.
const DIRECTORIES_MAX: usize = 1 << 16;
/// Names of a directory that are looked at to tell how many there are.
const SAMPLE: u64 = 64;

/// What a device was asked for of a directory's small files that stand in the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Reads {
    /// Names that were looked up.
    pub lookups: u64,
    /// Contents that were read.
    pub contents: u64,
    /// Bytes of these files.
    pub bytes: u64,
}

impl Reads {
    /// How often it was asked for both, as for what nobody had in memory: a track's one request brings both.
    pub fn cold(&self) -> u64 {
        self.lookups.min(self.contents)
    }
}

/// These reads, of all directories.
#[derive(Debug, Default)]
pub(crate) struct ColdReads {
    dirs: BTreeMap<Ino, Reads>,
    /// Since the volume was opened.
    all: u64,
}

impl ColdReads {
    /// A file was looked up, or so many bytes of it read.
    fn note(&mut self, dir: Ino, read: Option<u64>) {
        let reads = self.dirs.entry(dir).or_default();
        let before = reads.cold();
        reads.lookups += u64::from(read.is_none());
        reads.contents += u64::from(read.is_some());
        reads.bytes = reads.bytes.saturating_add(read.unwrap_or(0));
        self.all += reads.cold() - before;
        // What was read least, or long ago, is forgotten first.
        while self.dirs.len() > DIRECTORIES_MAX {
            self.dirs.retain(|_, reads| {
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

    /// The directories of most cold reads, so many at most.
    pub fn most(&self, max: usize) -> Vec<(Ino, Reads)> {
        let dirs = self.dirs.iter().map(|(dir, it)| (*dir, *it));
        let mut dirs: Vec<(Ino, Reads)> = dirs.filter(|(_, reads)| reads.cold() > 0).collect();
        dirs.sort_by_key(|(_, reads)| Reverse(reads.cold()));
        dirs.truncate(max);
        dirs
    }

    /// A directory's files settle, or never will: its reads count anew.
    pub fn forget(&mut self, dir: Ino) {
        self.dirs.remove(&dir);
    }
}

/// Whether tracks may form by the clock: where nothing turns there is no seek that they save.
pub(crate) fn matter(core: &Core) -> bool {
    core.env.config().tracks == SettleWhen::Pays && core.prices().has_seeks()
}

/// A file was looked up, or read, and a device was asked for what that needs.
pub(crate) fn note(core: &mut Core, ino: Ino, is_read: bool) {
    if !matter(core) {
        return;
    }
    let Some(node) = core.inodes.get(ino) else {
        return;
    };
    if let Some(dir) = dir_in_log(node) {
        let read = is_read.then_some(node.inode().size);
        core.tracks.reads().note(dir, read);
    }
}

/// Bytes of the small files of a directory, as estimated: as many as it has names, each as long as those are that were read. None if they
/// go elsewhere.
pub(crate) fn bytes_of(core: &mut Core, dir: Ino, reads: Reads) -> Result<u64, Stop> {
    let (node, blocks) = core.loader().directory(dir)?;
    let inode = node.inode();
    if inode.nlink == 0 || !matches!(inode.placement, Placement::Auto | Placement::Hash) {
        return Ok(0);
    }
    let (mut names, mut bytes, mut from) = (0, 0, 0);
    while names < SAMPLE
        && let Some(entry) = dir::next(inode, blocks, from)?
    {
        names += 1;
        bytes += dir::size_of(&entry);
        from = entry.key.saturating_add(1);
    }
    if names == SAMPLE {
        names = inode.size.saturating_mul(names) / bytes.max(1);
    }
    Ok(names.saturating_mul(reads.bytes / reads.contents.max(1)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_read_least_is_forgotten_when_there_are_too_many() {
        let mut reads = ColdReads::default();
        for _ in 0..4 {
            reads.note(Ino(1), None);
            reads.note(Ino(1), Some(100));
        }
        for dir in 0..=DIRECTORIES_MAX as u64 {
            reads.note(Ino(2 + dir), Some(10));
        }
        assert!(reads.dirs.len() <= DIRECTORIES_MAX);
        assert_eq!(reads.all(), 4, "the others are of inodes in memory");
        let most = reads.most(9);
        assert_eq!((most.len(), most[0].0, most[0].1.cold()), (1, Ino(1), 2));
        reads.forget(Ino(1));
        assert!(reads.most(9).iter().all(|(dir, _)| *dir != Ino(1)));
    }
}
