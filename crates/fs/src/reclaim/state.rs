//! What is known of cleaning, of the fights for space that were lost, and of the room that is left.

use super::gathering::Scattered;
use crate::budget::KnownRoom;
use loamfs_format::{GroupNo, Ssn};
use loamfs_space::CleaningCost;

/// Groups that are emptied together at most: their owners' inodes are read together.
pub(crate) const BATCH_MAX: usize = 8;

/// What is fought for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fight {
    /// Room for an operation: without it there is ENOSPC.
    Room,
    /// A place for a segment: without it everything stays in memory.
    Place,
    /// The reserve, whole again. To lose it is no reason for ENOSPC: an operation fights harder.
    Reserve,
    /// Free groups, before somebody needs them.
    Ahead,
    /// Free groups for segments that would be cut into many holes.
    Holes,
    /// Free groups for tracks that form by the clock.
    Tracks,
    /// What the reserve has lent to overwrites: without it there is ENOSPC for them.
    Lent,
}

/// Into which holes groups are emptied, so that no whole group is taken for what is moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Plugging {
    /// The longest: a few for each segment.
    Long,
    /// The shortest that will do, one for each block.
    Short,
}

/// What the mover went through since the volume was opened, in fragments.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Cleaned {
    /// All ranges together.
    pub frags: u64,
    /// What of it was in use, and so moved.
    pub live: u64,
    /// The ranges, by how many tenths of each were in use: the last are those that were full.
    pub by_tenths: [u64; 10],
}

/// Into how many holes a segment was cut, of so many fragments.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct CutInto {
    pub holes: u64,
    pub frags: u64,
}

/// Groups that were emptied as far as they could be.
#[derive(Debug)]
struct Left {
    groups: Vec<GroupNo>,
    /// Those that hold nothing but what a checkpoint frees.
    emptied: Vec<GroupNo>,
    /// When that was, by the clock of `space::cleaning`.
    clock: u64,
    /// Checkpoints from here on free what is left of map nodes and summaries.
    until: Ssn,
}

/// What a round of moving left in groups.
#[derive(Debug)]
pub(crate) struct Leftover {
    /// The groups that hold something.
    pub groups: Vec<GroupNo>,
    /// Those that hold nothing but what a checkpoint frees: map nodes, and what is held back.
    pub emptied: Vec<GroupNo>,
}

/// What the cleaner did, and what it is at.
#[derive(Debug, Default)]
pub(crate) struct Reclaim {
    cleaned: Cleaned,
    /// Everything is packed, before somebody gets ENOSPC.
    packing: bool,
    /// Groups are emptied into holes.
    plugging: Option<Plugging>,
    /// Free fragments, held back ones included, when each fight was lost.
    lost: [Option<u64>; 7],
    /// What moving left behind, of the last rounds.
    left: Vec<Left>,
    /// Cleaning ahead failed.
    ahead_over: bool,
    /// Most bytes of large files that were refused, and as many were not admitted since.
    homes_refused: u64,
    /// The last segment of many blocks.
    cut: CutInto,
    /// What was found out about the log's room.
    known: KnownRoom,
    /// What of large files may stand scattered.
    scattered: Scattered,
}

impl Left {
    /// Whether both superblock copies name a checkpoint that freed it.
    fn is_over(&self, named: [Option<Ssn>; 2]) -> bool {
        named
            .into_iter()
            .all(|checkpoint| checkpoint >= Some(self.until))
    }
}

impl Reclaim {
    /// The mover went through a range of so many fragments, of which so many were in use.
    pub fn note_cleaned(&mut self, frags: u64, live: u64) {
        self.cleaned.frags += frags;
        self.cleaned.live += live.min(frags);
        let tenth = (live * 10).checked_div(frags).unwrap_or(0).min(9);
        self.cleaned.by_tenths[tenth as usize] += frags;
    }

    /// How a segment was cut.
    pub fn note_cut(&mut self, cut: CutInto) {
        self.cut = cut;
    }

    /// How the last one was.
    pub fn last_cut(&self) -> CutInto {
        self.cut
    }

    pub fn cleaned(&self) -> Cleaned {
        self.cleaned
    }

    /// At this time of `space::cleaning`, all was moved out of groups that could be: the checkpoint of segment `until`, or a later
    /// one, frees the rest, or some of it. What both superblock copies named before is forgotten.
    pub fn note_left(
        &mut self,
        leftover: Leftover,
        clock: u64,
        until: Ssn,
        named: [Option<Ssn>; 2],
    ) {
        self.left.retain(|left| !left.is_over(named));
        if !leftover.groups.is_empty() || !leftover.emptied.is_empty() {
            self.left.push(Left {
                groups: leftover.groups,
                emptied: leftover.emptied,
                clock,
                until,
            });
        }
    }

    /// Whether moving what a group holds was in vain, and would be again: only a checkpoint frees it.
    pub fn is_left(&self, cheap: &CleaningCost, named: [Option<Ssn>; 2]) -> bool {
        let has = |left: &Left| cheap.written <= left.clock && left.groups.contains(&cheap.group);
        self.left
            .iter()
            .any(|left| has(left) && !left.is_over(named))
    }

    /// Groups that are free once both superblock copies name another checkpoint: all else was moved out of them.
    /// With the time when that was, by the clock of `space::cleaning`: what was placed there later is something else.
    pub fn emptied(&self, named: [Option<Ssn>; 2]) -> impl Iterator<Item = (GroupNo, u64)> {
        let waits = self.left.iter().filter(move |left| !left.is_over(named));
        waits.flat_map(|left| left.emptied.iter().map(|group| (*group, left.clock)))
    }

    /// So many bytes of large files were admitted, or refused.
    pub fn note_homes(&mut self, bytes: u64, admitted: bool) {
        self.homes_refused = match admitted {
            true if bytes >= self.homes_refused => 0,
            true => self.homes_refused,
            false => self.homes_refused.max(bytes),
        };
    }

    /// Whether some were refused, and as many were not admitted since: somebody may fight for them.
    pub fn are_homes_refused(&self) -> bool {
        self.homes_refused > 0
    }

    /// Segments take holes before they take whole groups, from here on or no more.
    pub fn pack(&mut self, packing: bool) {
        self.packing = packing;
    }

    /// Whether they do.
    pub fn is_packing(&self) -> bool {
        self.packing
    }

    /// Segments take holes, and no whole group while there are any, from here on or no more.
    pub fn plug(&mut self, plugging: Option<Plugging>) {
        self.plugging = plugging;
    }

    /// Which ones they take.
    pub fn plugging(&self) -> Option<Plugging> {
        self.plugging
    }

    /// No group is emptied ahead any more.
    pub fn stop_ahead(&mut self) {
        self.ahead_over = true;
    }

    /// Whether none is.
    pub fn is_ahead_over(&self) -> bool {
        self.ahead_over
    }

    /// A fight was lost with so many fragments clear.
    pub fn lose(&mut self, fight: Fight, clear: u64) {
        self.lost[fight as usize] = Some(clear);
    }

    /// A fight was won, or is worth it again.
    pub fn forget(&mut self, fight: Fight) {
        self.lost[fight as usize] = None;
    }

    /// What was clear when a fight was lost, or the least since.
    pub fn lost(&self, fight: Fight) -> Option<u64> {
        self.lost[fight as usize]
    }

    /// What was found out about the log's room, to be asked and added to.
    pub fn known(&mut self) -> &mut KnownRoom {
        &mut self.known
    }

    /// What of large files may stand scattered, to be asked and added to.
    pub fn scattered(&mut self) -> &mut Scattered {
        &mut self.scattered
    }

    /// That holds no more.
    pub fn forget_room(&mut self) {
        self.known = KnownRoom::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(number: u32, written: u64) -> CleaningCost {
        CleaningCost {
            group: GroupNo(number),
            live: 1,
            won: 1,
            room: 1,
            age: 0,
            written,
        }
    }

    /// Such a group was the cheapest, and was moved again and again for nothing.
    #[test]
    fn what_moving_left_is_spared_until_both_copies_name_a_later_checkpoint() {
        let named = |a, b| [Some(Ssn(a)), Some(Ssn(b))];
        let mut reclaim = Reclaim::default();
        let left = |groups: &[u32]| {
            let groups: Vec<GroupNo> = groups.iter().copied().map(GroupNo).collect();
            Leftover {
                emptied: groups.clone(),
                groups,
            }
        };
        reclaim.note_left(left(&[3]), 100, Ssn(20), named(10, 12));
        assert!(reclaim.is_left(&group(3, 100), named(10, 12)));
        assert!(reclaim.is_left(&group(3, 100), named(25, 12)));
        assert!(!reclaim.is_left(&group(3, 100), named(25, 20)));
        assert_eq!(reclaim.emptied(named(25, 12)).count(), 1);
        assert_eq!(reclaim.emptied(named(25, 20)).count(), 0);
        // What was placed there since may be moved, and so may others.
        assert!(!reclaim.is_left(&group(3, 101), named(10, 12)));
        assert!(!reclaim.is_left(&group(4, 100), named(10, 12)));
        reclaim.note_left(left(&[]), 200, Ssn(30), named(25, 20));
        assert!(reclaim.left.is_empty());
    }
}
