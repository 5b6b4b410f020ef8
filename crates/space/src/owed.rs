//! Homes on fast devices that are to go to slow ones, where directories say that files are written back (hybridFS, III.A). Nothing on
//! the device tells of them: who opens a volume finds them by their owners.

use crate::range_map::{Piece, RangeMap};
use loamfs_format::inode::Inode;
use loamfs_format::{Extent, FragAddr, GroupNo, Ino};
use std::collections::BTreeSet;

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

/// What is owed to slow devices, by address.
#[derive(Clone, Debug, Default)]
pub struct Owed {
    ranges: RangeMap<Debtor>,
    frags: u64,
    is_known: bool,
}

impl Owed {
    /// Fragments that are.
    pub fn frags(&self) -> u64 {
        self.frags
    }

    /// Whether somebody has looked for what an earlier mount left.
    pub fn is_known(&self) -> bool {
        self.is_known
    }

    /// Somebody has.
    pub fn note_known(&mut self) {
        self.is_known = true;
    }

    /// Whose they are.
    pub fn debtors(&self) -> BTreeSet<Debtor> {
        self.ranges.iter().map(|(_, debtor)| debtor).collect()
    }

    /// An extent is to go, which stands on a fast device.
    pub fn owe(&mut self, extent: Extent, debtor: Debtor) {
        self.pay(extent);
        let (start, end) = (extent.start.0, extent.end().0);
        self.frags += extent.frags;
        // What is written in sequence is one range.
        let before = self.ranges.before(start);
        let before = before.filter(|(found, whose)| found.end == start && *whose == debtor);
        let start = before.map_or(start, |(found, _)| found.start);
        self.ranges.insert(start..end, debtor);
    }

    /// What of an extent was to go is gone.
    pub fn pay(&mut self, extent: Extent) {
        let frags = &mut self.frags;
        self.ranges.cut(extent.start.0..extent.end().0, |gone, _| {
            *frags = frags.saturating_sub(gone.end - gone.start);
        });
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
}
