//! Which groups serve what: the log or large files, on the fast device or on the others (hybridFS, Y1), all of them the log
//! (profile `lfs`, L4). And which serve nothing new, since their device leaves.

use super::Groups;
use crate::layout::Section;
use loamfs_format::GroupNo;
use std::collections::BTreeSet;
use std::ops::Range;

/// Says of groups what is to be placed in them from now on.
pub struct Areas<'g>(&'g mut Groups);

impl Areas<'_> {
    /// The log should stand in these groups, and the blocks of large files in the others, as long as there is room. The
    /// ranges do not overlap, by number.
    pub fn keep_log_on(&mut self, groups: Vec<Range<u32>>) {
        let count = self.0.table.len();
        let within =
            |range: Range<u32>| (range.start as usize).min(count)..(range.end as usize).min(count);
        let groups = groups.into_iter().map(within).collect();
        self.0.layout.keep_log_on(groups);
        self.refresh_all();
    }

    /// The blocks of large files in these groups are given out by extents, as far as these have room. Sections do not overlap; those
    /// whose extents are longer than a group are none.
    pub fn cut(&mut self, sections: Vec<Section>) {
        self.0.layout.cut(sections);
        for index in 0..self.0.table.len() {
            let shape = self.0.layout.shape(index);
            self.0.table[index].cut(shape);
        }
        self.refresh_all();
    }

    /// Everything goes to groups of the log, blocks of large files too, and to such as hold nothing: those of large files fill
    /// one group after the other, segments others. Segments go to holes when there is nothing else, and those blocks never
    /// (LFS, section 4.3).
    pub fn keep_all_in_log(&mut self) {
        self.0.all_log = true;
    }

    /// The log is one run upward while half of the groups are free, so that a band of a shingled disk is written once.
    pub fn spare_bands(&mut self) {
        self.0.spares_bands = true;
    }

    /// Nothing new is placed in these groups, and what is free there is no room: their device is to leave, or the volume is to end
    /// before them. The next checkpoint has no descriptors of those that hold nothing. The ranges do not overlap.
    pub fn leave(&mut self, groups: Vec<Range<u32>>) {
        let within = |range: Range<u32>| range.start as usize..range.end as usize;
        self.0
            .layout
            .leave(groups.into_iter().map(within).collect());
        for index in (0..self.0.table.len()).filter(|index| self.0.layout.is_leaving(*index)) {
            self.0.changes.mark_desc(index);
        }
        self.refresh_all();
    }

    /// Nothing new is placed in `groups`, and in no other such groups: they are being emptied.
    pub(crate) fn close(&mut self, groups: &[GroupNo]) {
        let known = groups.iter().map(|group| group.0 as usize);
        let new: BTreeSet<usize> = known.filter(|index| *index < self.0.table.len()).collect();
        let old = std::mem::replace(&mut self.0.closed, new.clone());
        for index in old.union(&new) {
            self.0.refresh(*index);
        }
    }

    /// Blocks of large files fill this group of the log, and no other.
    pub(crate) fn fill_with_homes(&mut self, index: usize) {
        let before = self.0.home_head.replace(index);
        for index in before.into_iter().chain([index]) {
            self.0.refresh(index);
        }
    }

    fn refresh_all(&mut self) {
        for index in 0..self.0.table.len() {
            self.0.refresh(index);
        }
    }
}

impl Groups {
    /// Which groups serve what.
    pub(crate) fn areas(&mut self) -> Areas<'_> {
        Areas(self)
    }
}
