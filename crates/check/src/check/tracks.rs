//! Tracks against the names of their directory: what a track answers is what the directory says (rule 14).

use super::Walker;
use super::slots::Slotted;
use super::visitor::Lost;
use crate::Problem;
use crate::reader::{TreeSpec, TreeWalk, head_extent, table_entry};
use loamfs_format::dirent::{Dirent, KEYS_END, hash_key};
use loamfs_format::inode::{Inode, Table, mode};
use loamfs_format::node::{Page, TreeRoot};
use loamfs_format::track::{Head, Slot, TableEntry, decode_inline, second_hash};
use loamfs_format::{BlockKind, Ino};
use std::sync::Arc;

/// A walk over a directory's table of tracks, beside the walk over its names.
pub(super) struct Tracks<'v> {
    dir: Ino,
    generation: u32,
    inline: std::vec::IntoIter<(u64, TableEntry)>,
    tree: TreeWalk<'v>,
    leaf: Option<(Arc<Page>, usize)>,
    /// The entry behind that of the open range.
    ahead: Option<(u64, TableEntry)>,
    /// The range of the name that was told last.
    open: Option<Range>,
    /// Whether no name and no entry was out of reach so far.
    whole: bool,
}

/// A range of keys that has a track.
struct Range {
    low: u64,
    entry: TableEntry,
    head: Head,
    /// Bit per slot: a name was told that it answers for.
    answered: u64,
    /// Names for which none does.
    elsewhere: u64,
}

impl Range {
    /// The slots that are not masked.
    fn valid(&self) -> impl Iterator<Item = (usize, &Slot)> {
        let slots = self.head.slots.iter().enumerate();
        slots.filter(|(index, _)| self.entry.stale & (1 << index) == 0)
    }
}

impl<'v> Tracks<'v> {
    pub(super) fn new(walker: &mut Walker<'_, 'v>, inode: &Inode) -> Tracks<'v> {
        let (dir, generation) = (inode.ino, inode.generation);
        let (mut inline, mut root) = (Some(Vec::new()), TreeRoot::EMPTY);
        match &inode.table {
            Table::None => {}
            Table::Inline(bytes) => {
                inline = decode_inline(bytes, walker.volume.geometry().fragment_size);
            }
            Table::Tree(tree) => root = *tree,
        }
        if !inode.table.is_empty() && !walker.volume.superblock().has_tracks() {
            walker.visitor.problem(Problem::TracksUnannounced { dir });
        }
        let spec = TreeSpec {
            kind: BlockKind::TrackNode,
            ino: dir,
            generation,
            root,
        };
        let is_table = inline.is_some();
        let mut tracks = Tracks {
            dir,
            generation,
            inline: inline.unwrap_or_default().into_iter(),
            tree: TreeWalk::new(walker.volume, spec, 0),
            leaf: None,
            ahead: None,
            open: None,
            whole: true,
        };
        if !is_table {
            tracks.malformed(walker, 0);
        }
        tracks.ahead = tracks.read(walker);
        tracks
    }

    /// Some names cannot be told.
    pub(super) fn names_are_lost(&mut self) {
        self.whole = false;
    }

    /// Tells of a name. Names must be told by rising keys.
    pub(super) fn name(&mut self, walker: &mut Walker<'_, 'v>, key: u64, name: &Dirent<'_>) {
        while self.ahead.is_some_and(|(low, _)| low <= key) {
            self.advance(walker);
        }
        let Some(range) = &mut self.open else {
            return;
        };
        // As somebody asks who has the name alone.
        let secret = &walker.volume.superblock().hash_key;
        let (hash, second) = (hash_key(secret, name.name), second_hash(secret, name.name));
        match range.head.find(hash, second) {
            Some((index, slot)) if range.entry.stale & (1 << index) == 0 => {
                let bit = 1 << index;
                let regular = u32::from(name.file_type) == mode::REGULAR >> 12;
                let same = slot.key == key && slot.ino == name.ino && regular;
                if !same || range.answered & bit != 0 {
                    let (dir, ino) = (self.dir, name.ino);
                    walker.visitor.problem(Problem::TrackSlot { dir, key, ino });
                }
                range.answered |= bit;
            }
            _ => range.elsewhere += 1,
        }
    }

    /// No more names follow.
    pub(super) fn finish(mut self, walker: &mut Walker<'_, 'v>) {
        while self.ahead.is_some() {
            self.advance(walker);
        }
        self.close(walker);
    }

    /// Goes on with the next range.
    fn advance(&mut self, walker: &mut Walker<'_, 'v>) {
        self.close(walker);
        let Some((low, entry)) = self.ahead.take() else {
            return;
        };
        self.ahead = self.read(walker);
        if entry.is_some() {
            self.open = self.track(walker, low, entry);
        }
    }

    /// Reads the head of a track, and tells of its slots.
    fn track(&mut self, walker: &mut Walker<'_, 'v>, low: u64, entry: TableEntry) -> Option<Range> {
        let (volume, dir) = (walker.volume, self.dir);
        let extent = head_extent(volume.geometry(), volume.last(), &entry);
        if let Ok(extent) = extent {
            walker.claim(extent, BlockKind::TrackHead, 0, dir, low);
        }
        let high = self.ahead.map_or(KEYS_END, |(low, _)| low);
        let identity = entry.identity(dir, self.generation, low, high);
        let head = match volume.track_head(&entry, &identity) {
            Ok(head) => head,
            Err(fault) => {
                let addr = entry.addr;
                let damaged = Problem::TrackHead {
                    dir,
                    low,
                    addr,
                    fault,
                };
                match extent {
                    Ok(extent) => walker.unusable(dir, BlockKind::TrackHead, extent, damaged),
                    Err(_) => walker.visitor.problem(damaged),
                }
                return None;
            }
        };
        walker.visitor.track();
        let range = Range {
            low,
            entry,
            head,
            answered: 0,
            elsewhere: 0,
        };
        for (index, slot) in range.valid() {
            let slotted = Slotted::by_slot(&range.head, index, slot);
            walker.visitor.slot(&slotted);
        }
        if entry.stale == entry.every_slot() {
            walker.visitor.problem(Problem::TrackMasked { dir, low });
        }
        Some(range)
    }

    /// Compares what a track answers for with the names that were told.
    fn close(&mut self, walker: &mut Walker<'_, 'v>) {
        let Some(range) = self.open.take().filter(|_| self.whole) else {
            return;
        };
        let (dir, low) = (self.dir, range.low);
        for (index, slot) in range.valid() {
            if range.answered & (1 << index) == 0 {
                let (key, ino) = (slot.key, slot.ino);
                walker.visitor.problem(Problem::TrackSlot { dir, key, ino });
            }
        }
        let (stored, found) = (range.entry.elsewhere, range.elsewhere);
        if u64::from(stored) != found {
            walker.visitor.problem(Problem::TrackCount {
                dir,
                low,
                stored,
                found,
            });
        }
    }

    /// The next entry of the table.
    fn read(&mut self, walker: &mut Walker<'_, 'v>) -> Option<(u64, TableEntry)> {
        if let Some(entry) = self.inline.next() {
            return Some(entry);
        }
        loop {
            if let Some((page, index)) = &mut self.leaf
                && let Some((low, value)) = page.entry(*index)
            {
                *index += 1;
                match table_entry(walker.volume.geometry(), low, value) {
                    Some(entry) => return Some(entry),
                    None => self.malformed(walker, low),
                }
                continue;
            }
            let page = walker.node(self.tree.next()?);
            self.whole &= page.is_some();
            self.leaf = page.filter(|page| page.level() == 0).map(|page| (page, 0));
        }
    }

    fn malformed(&mut self, walker: &mut Walker<'_, 'v>, low: u64) {
        let dir = self.dir;
        walker.visitor.problem(Problem::TrackEntry { dir, low });
        walker.visitor.lost(Lost::below(BlockKind::TrackNode));
        self.whole = false;
    }
}
