//! Whether all directories hang together.
//!
//! That each directory is named by its parent, and once, is checked elsewhere; what is left are directories that are
//! their own ancestors, and what hangs below them.

use super::draft::Draft;
use crate::{Options, Phase, Problem, Volume};
use loamfs_format::ifile::{INO_MAX, INODES_PER_BLOCK};
use loamfs_format::inode::ROOT_INO;
use loamfs_format::{Ino, InodeBlockNo};

/// Rounds over all inodes when the directories do not fit into memory. Each settles at least one level of the tree,
/// and far more where numbers rise with the depth, as they do when directories are made.
const ROUNDS_MAX: usize = 64;

/// Names one directory of every ring.
pub(crate) fn check(
    volume: &Volume<'_>,
    directories: Option<Vec<(Ino, Ino)>>,
    memory: u64,
    report: &mut Draft,
    options: &mut Options<'_>,
) {
    let count = report.stats().directories;
    super::tell(options, Phase::Tree, 0, count);
    match directories {
        Some(mut list) => {
            list.sort_unstable();
            for ino in rings(&list) {
                report.add(Problem::Detached { ino });
            }
        }
        None => by_rounds(volume, memory, report),
    }
    super::tell(options, Phase::Tree, count, count);
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Mark {
    New,
    /// On the path that is being followed.
    Path,
    Done,
}

/// The lowest directory of every ring; `list` is sorted by number.
fn rings(list: &[(Ino, Ino)]) -> Vec<Ino> {
    let find = |ino: Ino| list.binary_search_by_key(&ino, |(ino, _)| *ino).ok();
    let mut marks = vec![Mark::New; list.len()];
    let mut rings = Vec::new();
    for start in 0..list.len() {
        let mut at = Some(start);
        // Follow the parents until something known, marking the path.
        while let Some(index) = at.filter(|index| marks[*index] == Mark::New) {
            marks[index] = Mark::Path;
            let (ino, parent) = list[index];
            at = if ino == ROOT_INO { None } else { find(parent) };
        }
        if let Some(ring) = at.filter(|index| marks[*index] == Mark::Path) {
            let mut lowest = list[ring].0;
            let mut next = find(list[ring].1);
            while let Some(index) = next.filter(|index| *index != ring) {
                lowest = lowest.min(list[index].0);
                next = find(list[index].1);
            }
            rings.push(lowest);
        }
        let mut at = Some(start);
        while let Some(index) = at.filter(|index| marks[*index] == Mark::Path) {
            marks[index] = Mark::Done;
            at = find(list[index].1);
        }
    }
    rings
}

/// Without the memory for all directories: a bit for every inode number, set once the directory is known to hang
/// below the root, in rounds over all inodes.
fn by_rounds(volume: &Volume<'_>, memory: u64, report: &mut Draft) {
    let blocks = volume.state().dynamic.next_inode_block.0;
    let numbers = blocks.saturating_mul(INODES_PER_BLOCK).min(INO_MAX);
    if numbers / 8 > memory / 2 {
        report.skip("whether all directories hang together, for want of memory");
        return;
    }
    let mut known = vec![0u64; (numbers / 64) as usize + 1];
    let bit = |ino: Ino| ((ino.0 / 64) as usize, 1u64 << (ino.0 % 64));
    let (word, mask) = bit(ROOT_INO);
    known[word] |= mask;
    for _ in 0..ROUNDS_MAX {
        report.stats().passes += 1;
        let (mut progress, mut left) = (false, None);
        each_directory(volume, |ino, parent| {
            let ((word, mask), (above, bit_above)) = (bit(ino), bit(parent));
            let is_known = known.get(word).is_none_or(|bits| bits & mask != 0);
            if is_known {
                return;
            }
            if known.get(above).is_some_and(|bits| bits & bit_above != 0) {
                known[word] |= mask;
                progress = true;
            } else {
                left = left.or(Some(ino));
            }
        });
        match left {
            None => return,
            Some(ino) if !progress => {
                report.add(Problem::Detached { ino });
                return;
            }
            Some(_) => {}
        }
    }
    report.skip("whether all directories hang together, as they are nested too deeply");
}

fn each_directory(volume: &Volume<'_>, mut visit: impl FnMut(Ino, Ino)) {
    let mut batch = Vec::new();
    let mut entries = volume.ifile(InodeBlockNo(0)).flatten().peekable();
    while let Some((block, entry)) = entries.next() {
        batch.push((InodeBlockNo(block), entry));
        if batch.len() < 256 && entries.peek().is_some() {
            continue;
        }
        for (_, read) in volume.inode_blocks(&batch) {
            let Ok(read) = read else { continue };
            for (ino, _, inode) in read.inodes() {
                if let Ok(inode) = inode
                    && inode.is_dir()
                    && inode.nlink > 0
                {
                    visit(ino, inode.parent);
                }
            }
        }
        batch.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rings_are_found_once_and_what_hangs_below_them_is_not_named() {
        let list = [
            (2, 2),
            (10, 2),
            (11, 10),
            (20, 22),
            (21, 20),
            (22, 21),
            (23, 20),
            (30, 99),
        ];
        let list: Vec<_> = list.iter().map(|(a, b)| (Ino(*a), Ino(*b))).collect();
        assert_eq!(rings(&list), [Ino(20)]);
    }
}
