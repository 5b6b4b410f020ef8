//! Who holds inodes though their names may go. That is kept beside the inodes, which need not stay in memory for it.

use crate::hash::NumberMap;
use loamfs_format::Ino;

/// The inodes that somebody holds.
#[derive(Debug, Default)]
pub(crate) struct Holders(NumberMap<Ino, Held>);

#[derive(Debug, Default)]
struct Held {
    count: u32,
    /// It has no name.
    unlinked: bool,
    /// It was made without one, and may still be given one.
    nameless: bool,
}

impl Holders {
    /// One more holds an inode, which has a name or not.
    pub fn hold(&mut self, ino: Ino, unlinked: bool) {
        let held = self.0.entry(ino).or_default();
        held.count += 1;
        held.unlinked = unlinked;
    }

    /// Somebody holds an inode that was made without a name.
    pub fn hold_nameless(&mut self, ino: Ino) {
        let held = Held {
            count: 1,
            unlinked: true,
            nameless: true,
        };
        self.0.insert(ino, held);
    }

    /// One less holds an inode. Returns whether that was the last one, and the inode has no name.
    pub fn let_go(&mut self, ino: Ino) -> bool {
        let Some(held) = self.0.get_mut(&ino) else {
            return false;
        };
        held.count -= 1;
        let gone = held.count == 0 && held.unlinked;
        if held.count == 0 {
            self.0.remove(&ino);
        }
        gone
    }

    /// An inode has a name now, or none any more.
    pub fn note_unlinked(&mut self, ino: Ino, unlinked: bool) {
        if let Some(held) = self.0.get_mut(&ino) {
            held.unlinked = unlinked;
        }
    }

    /// Whether somebody holds an inode.
    pub fn hold_it(&self, ino: Ino) -> bool {
        self.0.contains_key(&ino)
    }

    /// Whether an inode was made without a name and may still be given one.
    pub fn is_nameless(&self, ino: Ino) -> bool {
        self.0.get(&ino).is_some_and(|held| held.nameless)
    }

    /// The same; it gets one.
    pub fn take_nameless(&mut self, ino: Ino) -> bool {
        let held = self.0.get_mut(&ino);
        held.is_some_and(|held| std::mem::take(&mut held.nameless))
    }
}
