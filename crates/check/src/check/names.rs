//! Names against inodes: link counts, types, parents; and slots of tracks.
//!
//! A closer look at the ranges of inode numbers whose sums do not add up. What is known of each inode is tallied by
//! another walk, for as many inodes as fit into memory: those with the lowest numbers. The rest is left to further
//! walks.

use super::Walker;
use super::draft::Draft;
use super::first::DIRECTORY;
use super::slots::Slotted;
use super::sums::NameSums;
use super::visitor::{Lost, Visitor};
use crate::{Options, Phase, Problem, Volume};
use loamfs_format::Ino;
use loamfs_format::atime::ATIME_INO;
use loamfs_format::dirent::Dirent;
use loamfs_format::ifile::{block_of, slot_of};
use loamfs_format::inode::{Inode, ROOT_INO};
use std::collections::BTreeMap;

/// Most walks; what is left then stays unnamed.
const PASSES_MAX: u64 = 64;
/// Bytes that a tally takes, with its share of the map.
const TALLY_BYTES: u64 = 320;

/// Names the inodes that the names do not agree with.
pub(crate) fn check(
    volume: &Volume<'_>,
    sums: &NameSums,
    lost: &Lost,
    memory: u64,
    report: &mut Draft,
    options: &mut Options<'_>,
) {
    if sums.all_equal() {
        return;
    }
    let capacity = (memory / 4 / TALLY_BYTES).max(1) as usize;
    let mut from = 0;
    for pass in 0..PASSES_MAX {
        super::tell(options, Phase::Exact, pass, 0);
        report.stats().passes += 1;
        let mut tallies = Tallies {
            sums,
            from,
            upto: u64::MAX,
            capacity,
            map: BTreeMap::new(),
        };
        Walker::new(volume, &mut tallies, false).run();
        for (ino, tally) in &tallies.map {
            judge(volume, lost, Ino(*ino), tally, report);
        }
        if tallies.upto == u64::MAX {
            return;
        }
        from = tallies.upto;
    }
    report.skip("a part of the link counts, as too many are wrong");
}

/// What an inode says of itself.
#[derive(Clone, Copy, Debug)]
struct Stated {
    nlink: u32,
    kind: u8,
    parent: Ino,
    orphan: bool,
}

/// What is known of an inode.
#[derive(Clone, Debug, Default)]
struct Tally {
    stated: Option<Stated>,
    names: u64,
    /// Directories that name it: the first two.
    dirs: [Ino; 2],
    /// A type that a name gives it: the first, and one that differs from the inode's, if the inode came first.
    kinds: [Option<(u8, Ino)>; 2],
    subdirectories: u64,
    /// What the inode says of its slot in a track.
    settled: Option<Slotted>,
    /// The first slot that says that it is the inode's.
    slot: Option<Slotted>,
    slots: u64,
}

/// Tallies the inodes from `from` on whose sums do not add up.
struct Tallies<'s> {
    sums: &'s NameSums,
    from: u64,
    /// This number and those above are left to the next pass.
    upto: u64,
    capacity: usize,
    map: BTreeMap<u64, Tally>,
}

impl Tallies<'_> {
    fn tally(&mut self, ino: Ino) -> Option<&mut Tally> {
        if ino.0 < self.from || ino.0 >= self.upto || !self.sums.is_unequal(ino) {
            return None;
        }
        if self.map.len() >= self.capacity && !self.map.contains_key(&ino.0) {
            let last = *self.map.last_key_value()?.0;
            if ino.0 > last {
                self.upto = ino.0;
                return None;
            }
            self.map.remove(&last);
            self.upto = last;
        }
        Some(self.map.entry(ino.0).or_default())
    }
}

impl Visitor for Tallies<'_> {
    fn slot(&mut self, slot: &Slotted) {
        if let Some(tally) = self.tally(slot.ino) {
            tally.slot.get_or_insert(*slot);
            tally.slots += 1;
        }
    }

    fn name(&mut self, dir: Ino, entry: &Dirent<'_>) {
        let kind = entry.file_type;
        if let Some(tally) = self.tally(entry.ino) {
            if tally.names < 2 {
                tally.dirs[tally.names as usize] = dir;
            }
            tally.names += 1;
            match &mut tally.kinds {
                [first @ None, _] => *first = Some((kind, dir)),
                [Some((first, _)), other @ None] if *first != kind => *other = Some((kind, dir)),
                _ => {}
            }
        }
        if kind == DIRECTORY
            && let Some(tally) = self.tally(dir)
        {
            tally.subdirectories += 1;
        }
    }

    fn inode(&mut self, inode: &Inode, orphan: bool) {
        if let Some(tally) = self.tally(inode.ino) {
            tally.settled = Slotted::by_inode(inode);
            let kind = (inode.file_type() >> 12) as u8;
            let (nlink, parent) = (inode.nlink, inode.parent);
            tally.stated = Some(Stated {
                nlink,
                kind,
                parent,
                orphan,
            });
        }
    }
}

fn judge(volume: &Volume<'_>, lost: &Lost, ino: Ino, tally: &Tally, report: &mut Draft) {
    slots(volume, lost, tally, report);
    let Some(stated) = tally.stated else {
        // The file of access times lives, and has no name.
        let is_reserved = ino == ATIME_INO;
        if tally.names > 0 && (is_reserved || !was_lost(volume, ino)) {
            report.add(Problem::DirentTarget {
                dir: tally.dirs[0],
                ino,
            });
        }
        return;
    };
    for (stored, dir) in tally
        .kinds
        .into_iter()
        .flatten()
        .filter(|(kind, _)| *kind != stated.kind)
    {
        report.add(Problem::DirentType {
            dir,
            ino,
            stored,
            found: stated.kind,
        });
    }
    if stated.orphan {
        if tally.names > 0 {
            report.add(Problem::OrphanNamed {
                ino,
                dir: tally.dirs[0],
            });
            right_count(ino, tally, &stated, report);
        }
        return;
    }
    if tally.names == 0 && ino != ROOT_INO {
        if !lost.names {
            report.add(Problem::Unnamed {
                ino,
                nlink: stated.nlink,
            });
            // It may be one that went: whoever removed it would free what is another's.
            if !report.shares(ino, stated.kind == DIRECTORY) {
                report.plan().add_unnamed(ino);
            }
        }
        return;
    }
    if stated.kind == DIRECTORY {
        directory(ino, tally, &stated, report);
    }
    let found = right(tally, &stated);
    // Names that could not be read may make up for what is missing.
    if found > stated.nlink.into() || (found < stated.nlink.into() && !lost.names) {
        report.add(Problem::LinkCount {
            ino,
            stored: stated.nlink,
            found,
        });
        right_count(ino, tally, &stated, report);
    }
}

/// Compares what an inode and slots say of each other.
fn slots(volume: &Volume<'_>, lost: &Lost, tally: &Tally, report: &mut Draft) {
    match (&tally.settled, &tally.slot) {
        (None, None) => {}
        // Of these it is known already that their directory's tracks are not to be believed.
        (Some(settled), None) if lost.inodes || report.plan().empties_table(settled.dir) => {}
        (Some(settled), None) => {
            let ino = settled.ino;
            report.add(Problem::TrackMissing { ino });
            report.plan().add_unsettled(ino);
        }
        (settled, Some(slot)) => {
            let is_same = tally.slots == 1 && *settled == Some(*slot);
            let is_unknown = tally.stated.is_none() && was_lost(volume, slot.ino);
            if !is_same && !is_unknown {
                let Slotted { dir, key, ino, .. } = *slot;
                report.add(Problem::TrackSlot { dir, key, ino });
                report.plan().add_table(dir);
            }
        }
    }
}

fn directory(ino: Ino, tally: &Tally, stated: &Stated, report: &mut Draft) {
    let [first, second] = tally.dirs;
    if tally.names > 1 || (tally.names > 0 && ino == ROOT_INO) {
        report.add(Problem::DirTwice {
            ino,
            first,
            second: if tally.names > 1 { second } else { ino },
        });
    }
    // With two names it is enough that one of them is the parent's.
    let named_by_parent = stated.parent == first || (tally.names > 1 && stated.parent == second);
    if ino != ROOT_INO && !named_by_parent {
        report.add(Problem::Parent {
            ino,
            stored: stated.parent,
            found: first,
        });
    }
}

/// The link count that the names give.
fn right(tally: &Tally, stated: &Stated) -> u64 {
    if stated.kind == DIRECTORY {
        tally.subdirectories.saturating_add(2)
    } else {
        tally.names
    }
}

fn right_count(ino: Ino, tally: &Tally, stated: &Stated, report: &mut Draft) {
    if let Ok(count) = u32::try_from(right(tally, stated)) {
        report.plan().add_links(ino, count);
    }
}

/// Whether the inode lives as far as the IFILE says, and only could not be read, which was named already.
fn was_lost(volume: &Volume<'_>, ino: Ino) -> bool {
    match volume.ifile_entry(block_of(ino)) {
        Ok(entry) => entry.is_some_and(|entry| entry.live & (1 << slot_of(ino)) != 0),
        Err(_) => true,
    }
}
