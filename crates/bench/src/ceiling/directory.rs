//! The names of a directory.

use std::collections::{BTreeMap, HashMap};

use loamfs_fuse::{FileKind, NodeId};

/// What a name leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The name.
    pub name: Box<[u8]>,
    /// The inode.
    pub node: NodeId,
    /// Its type.
    pub kind: FileKind,
}

/// Names, which are listed in the order in which they were made.
#[derive(Default)]
pub struct Directory {
    /// Where each name stands in the order.
    places: HashMap<Box<[u8]>, u64>,
    entries: BTreeMap<u64, Entry>,
    /// The last place that was given; 1 and 2 are those of `.` and `..`.
    last: u64,
}

/// Places of `.` and `..`.
pub const DOTS: u64 = 2;

impl Directory {
    /// What a name leads to.
    pub fn find(&self, name: &[u8]) -> Option<&Entry> {
        self.entries.get(self.places.get(name)?)
    }

    /// Adds a name, or gives it another inode. Returns what it led to.
    pub fn insert(&mut self, name: &[u8], node: NodeId, kind: FileKind) -> Option<Entry> {
        let before = self.remove(name);
        self.last = self.last.max(DOTS) + 1;
        let name: Box<[u8]> = name.into();
        self.places.insert(name.clone(), self.last);
        self.entries.insert(self.last, Entry { name, node, kind });
        before
    }

    /// Takes a name away. Returns what it led to.
    pub fn remove(&mut self, name: &[u8]) -> Option<Entry> {
        let place = self.places.remove(name)?;
        self.entries.remove(&place)
    }

    /// Whether there is no name.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Those behind a place, in their order, each with its own.
    pub fn behind(&self, place: u64) -> impl Iterator<Item = (u64, &Entry)> {
        let found = self.entries.range(place.saturating_add(1)..);
        found.map(|(place, entry)| (*place, entry))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listing_goes_on_where_it_stopped() {
        let mut directory = Directory::default();
        for (number, name) in [b"a", b"b", b"c"].iter().enumerate() {
            let node = NodeId(number as u64 + 10);
            assert_eq!(directory.insert(*name, node, FileKind::Regular), None);
        }
        let names = |from| {
            let found = directory.behind(from);
            found.map(|(_, e)| e.name.to_vec()).collect::<Vec<_>>()
        };
        assert_eq!(names(DOTS), [b"a", b"b", b"c"]);
        let (place, _) = directory.behind(DOTS).next().unwrap();
        assert_eq!(names(place), [b"b", b"c"]);
        directory.remove(b"b");
        assert!(directory.find(b"b").is_none());
        assert_eq!(directory.find(b"c").map(|e| e.node), Some(NodeId(12)));
        let other = directory.insert(b"c", NodeId(9), FileKind::Regular);
        assert_eq!(other.map(|e| e.node), Some(NodeId(12)));
        assert_eq!(directory.behind(0).count(), 2);
    }
}
