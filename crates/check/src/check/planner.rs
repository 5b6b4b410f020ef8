//! What a repair would have to change, as a check finds it.

use crate::Plan;
use loamfs_format::ifile::IfileEntry;
use loamfs_format::kind::MapTree;
use loamfs_format::maps::LazyEntry;
use loamfs_format::summary::Unwritten;
use loamfs_format::{Extent, FragAddr, GroupNo, Ino, InodeBlockNo};

/// Most entries of each list.
pub(super) const LIST_MAX: usize = 1 << 16;

/// A plan in the making. Where a list is full, the plan says that it stops short.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Planner {
    plan: Plan,
}

impl Planner {
    pub(super) fn add_set(&mut self, extent: Extent) {
        self.plan.truncated |= !push(&mut self.plan.set, extent);
    }

    pub(super) fn add_clear(&mut self, extent: Extent) {
        self.plan.truncated |= !push(&mut self.plan.clear, extent);
    }

    pub(super) fn add_links(&mut self, ino: Ino, count: u32) {
        self.plan.truncated |= !list(&mut self.plan.links, (ino, count));
    }

    pub(super) fn add_unnamed(&mut self, ino: Ino) {
        self.plan.truncated |= !list(&mut self.plan.unnamed, ino);
    }

    pub(super) fn add_recount(&mut self, group: GroupNo) {
        self.plan.truncated |= !list(&mut self.plan.recount, group);
    }

    pub(super) fn add_worn(&mut self, map: MapTree, low: u64) {
        self.plan.truncated |= !list(&mut self.plan.worn, (map, low));
    }

    pub(super) fn add_table(&mut self, dir: Ino) {
        // What is taken out with a table shows when all is checked again.
        self.plan.truncated = true;
        if self.plan.tables.len() < LIST_MAX {
            self.plan.tables.insert(dir);
        }
    }

    pub(super) fn add_unsettled(&mut self, ino: Ino) {
        if self.plan.unsettled.len() < LIST_MAX {
            self.plan.unsettled.insert(ino);
        } else {
            self.plan.truncated = true;
        }
    }

    pub(super) fn add_home(&mut self, extent: Extent, ino: Ino, block: u64) {
        self.plan.truncated |= !list(&mut self.plan.homes, (extent, ino, block));
    }

    /// Has nodes of a map taken out. Returns whether there are any to take out.
    pub(super) fn take_out(&mut self, nodes: impl IntoIterator<Item = (MapTree, u8, u64)>) -> bool {
        self.plan.nodes.extend(nodes);
        // What the nodes below them took is nobody's, and shows when these are gone.
        self.plan.truncated |= !self.plan.nodes.is_empty();
        !self.plan.nodes.is_empty()
    }

    /// Has the IFILE say this of blocks of inodes.
    pub(super) fn set_inode_blocks(&mut self, entries: Vec<(InodeBlockNo, IfileEntry)>) {
        self.plan.inode_blocks = entries;
    }

    /// Has the lazy map say this of homes.
    pub(super) fn set_images(&mut self, images: Vec<(FragAddr, LazyEntry)>) {
        self.plan.images = images;
    }

    /// Has the volume say that so many inodes live.
    pub(super) const fn set_inodes(&mut self, inodes: u64) {
        self.plan.inodes = Some(inodes);
    }

    /// Has the volume say that so much was never written.
    pub(super) const fn set_unwritten(&mut self, unwritten: Unwritten) {
        self.plan.unwritten = Some(unwritten);
    }

    /// Has the volume say that this is the first inode block whose number was never given out.
    pub(super) const fn set_next_inode_block(&mut self, block: InodeBlockNo) {
        self.plan.next_inode_block = Some(block);
    }

    /// Whether the table of a directory's tracks is to be emptied.
    pub(super) fn empties_table(&self, dir: Ino) -> bool {
        self.plan.tables.contains(&dir)
    }

    /// The plan, its lists in order; ranges that touch or overlap are merged.
    pub(super) fn finish(mut self) -> Plan {
        for list in [&mut self.plan.set, &mut self.plan.clear] {
            list.sort();
            list.dedup_by(|next, kept| {
                let touches = next.start <= kept.end();
                if touches {
                    kept.frags = kept.frags.max(next.end().0 - kept.start.0);
                }
                touches
            });
        }
        self.plan.links.sort();
        self.plan.links.dedup();
        self.plan.unnamed.sort();
        self.plan.unnamed.dedup();
        self.plan
    }
}

/// Adds an entry; false when the list is full.
fn list<T>(entries: &mut Vec<T>, entry: T) -> bool {
    let has_room = entries.len() < LIST_MAX;
    if has_room {
        entries.push(entry);
    }
    has_room
}

/// Adds a range, to the last one if it continues it; false when the list is full.
fn push(ranges: &mut Vec<Extent>, extent: Extent) -> bool {
    if let Some(last) = ranges.last_mut()
        && last.end() == extent.start
    {
        last.frags = last.frags.saturating_add(extent.frags);
        return true;
    }
    list(ranges, extent)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_that_touch_become_one() {
        let mut planner = Planner::default();
        for (start, frags) in [(30, 2), (10, 4), (14, 2), (12, 3)] {
            planner.add_set(Extent::new(FragAddr(start), frags));
        }
        let plan = planner.finish();
        assert_eq!(
            plan.set,
            [Extent::new(FragAddr(10), 6), Extent::new(FragAddr(30), 2)]
        );
    }
}
