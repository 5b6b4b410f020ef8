//! Homes on fast devices that are to go to slow ones, where directories say that files are written back (hybridFS, III.A). Nothing on
//! the device tells of them: who opens a volume finds them by their owners.

use crate::range_map::{Piece, RangeMap};
use loamfs_format::inode::Inode;
use loamfs_format::{Extent, FragAddr, GroupNo, Ino};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

/// Files that came to be written back with what they have are known up to so many, until somebody has looked at them.
const ENTERED_MAX: usize = 4096;

/// Whose blocks they are, in the order in which they go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Debtor {
    /// The group near which they will stand.
    pub anchor: GroupNo,
    /// The file.
    pub ino: Ino,
}

impl Debtor {
    /// A file.
    pub fn of(inode: &Inode) -> Debtor {
        Debtor {
            anchor: inode.anchor,
            ino: inode.ino,
        }
    }
}

impl Piece for Debtor {
    fn tail(self, _: u64) -> Debtor {
        self
    }
}

/// What is owed to slow devices, by address. There are no more than so many pieces of it in memory: what is left out is found again by
/// its owners, once there is room.
#[derive(Clone, Debug)]
pub struct Owed {
    ranges: RangeMap<Debtor>,
    frags: u64,
    /// Pieces that there may be.
    pieces_max: usize,
    /// Whether somebody has looked for all of it since the mount, or since something was left out.
    searched: bool,
    /// Whether something was left out since somebody began to look.
    left_out: bool,
    /// Files that came to be written back, and the block from which what they have is to be looked for.
    entered: BTreeMap<Ino, u64>,
    /// Fragments that ever came to be owed, but for those that a move brought back.
    news: u64,
}

impl Default for Owed {
    fn default() -> Owed {
        Owed {
            ranges: RangeMap::default(),
            frags: 0,
            pieces_max: usize::MAX,
            searched: false,
            left_out: false,
            entered: BTreeMap::new(),
            news: 0,
        }
    }
}

impl Owed {
    /// Bytes of memory that a piece takes: its range, its debtor, and what a tree needs besides.
    pub const PIECE_BYTES: usize = 50;

    /// There may be so many pieces from now on.
    pub fn limit(&mut self, pieces: usize) {
        self.pieces_max = pieces.max(2);
    }

    /// Fragments that are.
    pub fn frags(&self) -> u64 {
        self.frags
    }

    /// Fragments that ever came to be, but for those that a move brought back.
    pub fn news(&self) -> u64 {
        self.news
    }

    /// Whether all of it is known: behind a mount somebody must have looked for it.
    pub fn is_known(&self) -> bool {
        self.searched && self.entered.is_empty()
    }

    /// Whether somebody is to look for what is not known, and there is room for what that finds.
    pub fn wants_search(&self) -> bool {
        !self.searched && self.ranges.len() <= self.pieces_max / 2
    }

    /// Somebody begins to look.
    pub fn begin_search(&mut self) {
        self.left_out = false;
    }

    /// Somebody has looked everywhere.
    pub fn end_search(&mut self) {
        self.searched = !self.left_out;
    }

    /// A file comes to be written back with what it has.
    pub fn enter(&mut self, ino: Ino) {
        if self.entered.len() < ENTERED_MAX {
            self.entered.insert(ino, 0);
        } else {
            self.leave_out();
        }
    }

    /// The first such file behind another one, or of all, and the block from which what it has is to be looked for.
    pub fn entered_behind(&self, behind: Option<Ino>) -> Option<(Ino, u64)> {
        let from = behind.map_or(Bound::Unbounded, Bound::Excluded);
        let first = self.entered.range((from, Bound::Unbounded)).next()?;
        Some((*first.0, *first.1))
    }

    /// That goes on from another block, or is over.
    pub fn look_on(&mut self, ino: Ino, block: Option<u64>) {
        match block {
            Some(block) => drop(self.entered.insert(ino, block)),
            None => drop(self.entered.remove(&ino)),
        }
    }

    /// Whose they are.
    pub fn debtors(&self) -> BTreeSet<Debtor> {
        self.ranges.iter().map(|(_, debtor)| debtor).collect()
    }

    /// An extent is to go, which stands on a fast device.
    pub fn owe(&mut self, extent: Extent, debtor: Debtor) {
        let before = self.frags;
        self.owe_again(extent, debtor);
        self.news = self.news.saturating_add(self.frags.saturating_sub(before));
    }

    /// The same of one that a move has brought back.
    pub fn owe_again(&mut self, extent: Extent, debtor: Debtor) {
        self.pay(extent);
        let (start, end) = (extent.start.0, extent.end().0);
        self.frags += extent.frags;
        // What is written in sequence is one range.
        let before = self.ranges.before(start);
        let before = before.filter(|(found, whose)| found.end == start && *whose == debtor);
        let start = before.map_or(start, |(found, _)| found.start);
        self.ranges.insert(start..end, debtor);
        self.stay_few(end);
    }

    /// What of an extent was to go is gone.
    pub fn pay(&mut self, extent: Extent) {
        let frags = &mut self.frags;
        self.ranges.cut(extent.start.0..extent.end().0, |gone, _| {
            *frags = frags.saturating_sub(gone.end - gone.start);
        });
        self.stay_few(extent.end().0);
    }

    /// Leaves out the last piece before an address, if there is one too many.
    fn stay_few(&mut self, end: u64) {
        if self.ranges.len() > self.pieces_max
            && let Some((last, _)) = self.ranges.before(end)
        {
            self.ranges.remove(last.start);
            self.frags = self.frags.saturating_sub(last.end - last.start);
            self.leave_out();
        }
    }

    fn leave_out(&mut self) {
        self.left_out = true;
        self.searched = false;
    }

    /// Nothing of a file is to go any more.
    pub fn forgive(&mut self, ino: Ino) {
        let of = self.ranges.iter().filter(|(_, debtor)| debtor.ino == ino);
        let of = of.map(|(range, _)| Extent::new(FragAddr(range.start), range.end - range.start));
        for extent in of.collect::<Vec<_>>() {
            self.pay(extent);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(ino: u64) -> Debtor {
        Debtor {
            anchor: GroupNo(7),
            ino: Ino(ino),
        }
    }

    fn at(start: u64, frags: u64) -> Extent {
        Extent::new(FragAddr(start), frags)
    }

    #[test]
    fn what_is_owed_is_counted_once_until_it_is_gone() {
        let mut owed = Owed::default();
        owed.owe(at(64, 32), of(40));
        owed.owe(at(96, 32), of(40));
        owed.owe(at(128, 64), of(41));
        owed.owe(at(80, 32), of(40));
        assert_eq!((owed.frags(), owed.ranges.len()), (128, 3));
        owed.pay(at(90, 60));
        assert_eq!(owed.frags(), 68);
        owed.pay(at(0, 64));
        assert_eq!(owed.debtors(), [of(40), of(41)].into());
        owed.forgive(Ino(40));
        assert_eq!((owed.frags(), owed.debtors()), (42, [of(41)].into()));
        owed.pay(at(0, 1 << 20));
        assert_eq!((owed.frags(), owed.ranges.len()), (0, 0));
    }

    /// Scattered pieces took memory without end.
    #[test]
    fn pieces_stay_few_and_what_is_left_out_is_to_be_looked_for() {
        let mut owed = Owed::default();
        owed.limit(8);
        owed.begin_search();
        owed.end_search();
        // One long piece is cut into many, and many come one by one.
        owed.owe(at(0, 32 * 32), of(40));
        assert!(owed.is_known() && owed.news() == 32 * 32);
        for number in 0..16 {
            owed.pay(at(64 * number, 32));
            assert!(owed.ranges.len() <= 8);
        }
        for number in 0..16 {
            owed.owe(at(10_000 + 64 * number, 32), of(41));
            assert!(owed.ranges.len() <= 8);
        }
        assert!(!owed.is_known() && !owed.wants_search());
        let counted: u64 = owed
            .ranges
            .iter()
            .map(|(range, _)| range.end - range.start)
            .sum();
        assert_eq!(owed.frags(), counted);
        // A search that has no room for what it finds is to be repeated.
        owed.pay(at(0, 1 << 20));
        assert!(owed.wants_search());
        owed.begin_search();
        for number in 0..9 {
            owed.owe(at(20_000 + 64 * number, 32), of(42));
        }
        owed.end_search();
        assert!(!owed.is_known());
        owed.pay(at(0, 1 << 20));
        owed.begin_search();
        owed.end_search();
        assert!(owed.is_known());
    }

    #[test]
    fn too_many_files_that_come_to_be_written_back_are_found_by_a_search() {
        let mut owed = Owed::default();
        owed.end_search();
        for ino in 0..ENTERED_MAX as u64 + 1 {
            owed.enter(Ino(ino));
        }
        while let Some((ino, _)) = owed.entered_behind(None) {
            assert!(!owed.is_known());
            owed.look_on(ino, None);
        }
        assert!(!owed.is_known() && owed.wants_search());
    }
}
