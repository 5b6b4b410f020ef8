//! Which chunks stand in which slots: who gets in, and who goes.
//!
//! A chunk gets in when it is wanted the second time while it is remembered, so that what is read once, as by a backup, neither wears
//! the fast device nor drives anything out. Whoever was found lately stays when the hand comes (clock, with a count of three).

use crate::hash::{NumberMap, NumberSet};
use loamfs_format::hot::{HotSlot, SLOT_FRAGS};
use loamfs_format::{Extent, FragAddr, GroupNo};
use std::collections::{BTreeSet, VecDeque};

/// Finds that are counted of a chunk, at most.
const FOUND_MAX: u8 = 3;
/// Chunks that are remembered at least, though they do not stand here.
const REMEMBERED_MIN: usize = 1024;

/// The slots of all groups, one group's behind another's.
#[derive(Debug)]
pub(super) struct Shelf {
    /// Slots of a whole group, and those of them that its table takes.
    whole: u64,
    table: u64,
    groups: Vec<Option<GroupNo>>,
    slots: Vec<Slot>,
    free: Vec<u32>,
    by_chunk: NumberMap<u64, u32>,
    hand: usize,
    /// How often slots were emptied that others may write to.
    emptied: u64,
    remembered: Remembered,
}

#[derive(Debug, Clone, Copy, Default)]
struct Slot {
    holds: HotSlot,
    /// Whether it is some chunk's, though nothing of that may stand here yet.
    taken: bool,
    found: u8,
    /// Whether something of its chunk is being written: until [`Shelf::fill`] it is nobody else's.
    pending: bool,
}

/// Chunks that were wanted once, of late.
#[derive(Debug, Default)]
struct Remembered {
    order: VecDeque<u64>,
    known: NumberSet<u64>,
}

impl Remembered {
    /// Whether it was wanted before; if not, it is from now on.
    fn again(&mut self, chunk: u64, max: usize) -> bool {
        if self.known.remove(&chunk) {
            return true;
        }
        while self.order.len() >= max {
            let oldest = self.order.pop_front();
            oldest.map(|chunk| self.known.remove(&chunk));
        }
        self.order.push_back(chunk);
        self.known.insert(chunk);
        false
    }
}

impl Shelf {
    /// None yet, of groups that have so many slots, some of them for the table.
    pub fn new(whole: u64, table: u64) -> Shelf {
        Shelf {
            whole,
            table: table.min(whole),
            groups: Vec::new(),
            slots: Vec::new(),
            free: Vec::new(),
            by_chunk: NumberMap::default(),
            hand: 0,
            emptied: 0,
            remembered: Remembered::default(),
        }
    }

    /// Slots that a group has for chunks.
    pub fn slots_of_group(&self) -> u64 {
        self.whole - self.table
    }

    /// Slots that a group's table takes.
    pub fn table(&self) -> u64 {
        self.table
    }

    /// Whether slots are in this group.
    pub fn has(&self, group: GroupNo) -> bool {
        self.groups.contains(&Some(group))
    }

    /// Slots that there are.
    pub fn room(&self) -> u64 {
        self.groups.iter().flatten().count() as u64 * self.slots_of_group()
    }

    /// Fragments that stand here.
    pub fn held(&self) -> u64 {
        let held = self.slots.iter().map(|slot| slot.holds.held.count_ones());
        held.map(u64::from).sum()
    }

    /// How often slots were emptied so far: what was found before may be somebody else's by now.
    pub fn emptied(&self) -> u64 {
        self.emptied
    }

    /// The fragment at which a slot begins.
    fn at(&self, slot: u32) -> Option<FragAddr> {
        let slot = u64::from(slot);
        let group = self.groups.get((slot / self.slots_of_group()) as usize)?;
        let first = u64::from((*group)?.0) * self.whole;
        let within = self.table + slot % self.slots_of_group();
        Some(FragAddr((first + within) * SLOT_FRAGS))
    }

    // ---- readers -----------------------------------------------------------------------------------------------

    /// Where all parts of something stand, if they do.
    pub fn find(&mut self, parts: impl Iterator<Item = (u64, u64)>) -> Option<Vec<Extent>> {
        let mut found = Vec::new();
        for (chunk, mask) in parts {
            let slot = *self.by_chunk.get(&chunk)?;
            let known = self.slots.get_mut(slot as usize)?;
            if known.holds.held & mask != mask {
                return None;
            }
            known.found = (known.found + 1).min(FOUND_MAX);
            let start = FragAddr(self.at(slot)?.0 + u64::from(mask.trailing_zeros()));
            found.push(Extent::new(start, mask.count_ones().into()));
        }
        Some(found)
    }

    /// Fragments of a chunk are not what they should be; whether any of them stood here.
    pub fn lose(&mut self, chunk: u64, mask: u64) -> bool {
        let Some(&slot) = self.by_chunk.get(&chunk) else {
            return false;
        };
        let holds = &mut self.slots[slot as usize].holds;
        let lost = holds.held & mask != 0;
        holds.held &= !mask;
        lost
    }

    /// Whether a chunk, of which these fragments were read, should have them here, and has not.
    pub fn wants(&mut self, chunk: u64, mask: u64) -> bool {
        match self.by_chunk.get(&chunk) {
            Some(&slot) => self.slots[slot as usize].holds.held & mask != mask,
            None => {
                let max = self.slots.len().max(REMEMBERED_MIN);
                self.remembered.again(chunk, max)
            }
        }
    }

    // ---- whoever writes ----------------------------------------------------------------------------------------

    /// From now on slots are in these groups, and in no others. Returns those that are new.
    pub fn take_groups(&mut self, chosen: &[GroupNo]) -> Vec<GroupNo> {
        let wanted: BTreeSet<GroupNo> = chosen.iter().copied().collect();
        for index in 0..self.groups.len() {
            if self.groups[index].is_some_and(|group| !wanted.contains(&group)) {
                self.drop_group(index);
            }
        }
        let known: BTreeSet<GroupNo> = self.groups.iter().copied().flatten().collect();
        let new: Vec<GroupNo> = wanted.difference(&known).copied().collect();
        new.iter().for_each(|group| self.add_group(*group));
        new
    }

    /// Somebody else takes a group: no slots are there any more.
    pub fn leave(&mut self, group: GroupNo) {
        if let Some(index) = self.groups.iter().position(|known| *known == Some(group)) {
            self.drop_group(index);
        }
    }

    fn slots_at(&self, index: usize) -> std::ops::Range<usize> {
        let slots = self.slots_of_group() as usize;
        index * slots..(index + 1) * slots
    }

    fn add_group(&mut self, group: GroupNo) {
        let vacant = self.groups.iter().position(Option::is_none);
        let index = vacant.unwrap_or(self.groups.len());
        match vacant {
            Some(index) => self.groups[index] = Some(group),
            None => self.groups.push(Some(group)),
        }
        let range = self.slots_at(index);
        if self.slots.len() < range.end {
            self.slots.resize(range.end, Slot::default());
        }
        // The first ones are taken first.
        self.free.extend(range.rev().map(|slot| slot as u32));
    }

    fn drop_group(&mut self, index: usize) {
        self.emptied += 1;
        let range = self.slots_at(index);
        for slot in &mut self.slots[range.clone()] {
            let slot = std::mem::take(slot);
            if slot.taken {
                self.by_chunk.remove(&slot.holds.chunk);
            }
        }
        self.free.retain(|slot| !range.contains(&(*slot as usize)));
        self.groups[index] = None;
    }

    /// A new group's table says that this stands there, in the order of its slots. What stands elsewhere already is left out.
    pub fn believe(&mut self, group: GroupNo, told: &[HotSlot]) {
        let Some(index) = self.groups.iter().position(|known| *known == Some(group)) else {
            return;
        };
        for (slot, holds) in self.slots_at(index).zip(told) {
            let is_new = holds.held != 0 && !self.by_chunk.contains_key(&holds.chunk);
            if is_new && !self.slots[slot].taken {
                self.by_chunk.insert(holds.chunk, slot as u32);
                self.slots[slot] = Slot {
                    holds: *holds,
                    taken: true,
                    ..Slot::default()
                };
            }
        }
        let slots = &self.slots;
        self.free.retain(|slot| !slots[*slot as usize].taken);
    }

    /// The slot of a chunk, and where it begins: its own, a free one, or one of which nothing was found of late. Something is written there
    /// then, and told by [`Shelf::fill`].
    pub fn slot_for(&mut self, chunk: u64) -> Option<(u32, FragAddr)> {
        let slot = match self.by_chunk.get(&chunk) {
            Some(&slot) => slot,
            None => {
                let slot = self.free.pop().or_else(|| self.drive_out())?;
                self.by_chunk.insert(chunk, slot);
                self.slots[slot as usize] = Slot {
                    holds: HotSlot { chunk, held: 0 },
                    taken: true,
                    ..Slot::default()
                };
                slot
            }
        };
        self.slots[slot as usize].pending = true;
        self.at(slot).map(|at| (slot, at))
    }

    /// Empties a slot, but for those that are being written.
    fn drive_out(&mut self) -> Option<u32> {
        // All slots, as often as the most found one counts, and once more.
        for _ in 0..self.slots.len() * (usize::from(FOUND_MAX) + 2) {
            let at = self.hand;
            self.hand = (self.hand + 1) % self.slots.len();
            let slot = &mut self.slots[at];
            match (slot.taken && !slot.pending, slot.found) {
                (false, _) => {}
                (true, 0) => {
                    let chunk = std::mem::take(slot).holds.chunk;
                    self.by_chunk.remove(&chunk);
                    self.emptied += 1;
                    return Some(at as u32);
                }
                (true, _) => slot.found -= 1,
            }
        }
        None
    }

    /// A slot holds this now, if it is the chunk's still.
    pub fn fill(&mut self, slot: u32, filled: HotSlot) {
        let known = self.slots.get_mut(slot as usize);
        if let Some(known) = known.filter(|known| known.taken && known.holds.chunk == filled.chunk)
        {
            known.holds.held |= filled.held;
            known.pending = false;
        }
    }

    /// What each group's slots hold, but for groups that hold nothing.
    pub fn tables(&self) -> impl Iterator<Item = (GroupNo, Vec<HotSlot>)> {
        let groups = self.groups.iter().enumerate();
        groups.filter_map(|(index, group)| {
            let slots = self.slots[self.slots_at(index)].iter();
            let told: Vec<HotSlot> = slots.map(|slot| slot.holds).collect();
            let holds = told.iter().any(|slot| slot.held != 0);
            holds.then_some(((*group)?, told))
        })
    }
}

#[cfg(test)]
mod tests;
