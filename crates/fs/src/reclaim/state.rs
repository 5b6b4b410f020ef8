//! What is known of cleaning, of the fights for space that were lost, and of the room that is left.

use crate::budget::KnownRoom;

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

/// What the cleaner did, and what it is at.
#[derive(Debug, Default)]
pub(crate) struct Reclaim {
    cleaned: Cleaned,
    /// Everything is packed, before somebody gets ENOSPC.
    packing: bool,
    /// Free fragments, held back ones included, when each fight was lost.
    lost: [Option<u64>; 4],
    /// Cleaning ahead failed.
    ahead_over: bool,
    /// What was found out about the log's room.
    known: KnownRoom,
}

impl Reclaim {
    /// The mover went through a range of so many fragments, of which so many were in use.
    pub fn note_cleaned(&mut self, frags: u64, live: u64) {
        self.cleaned.frags += frags;
        self.cleaned.live += live.min(frags);
        let tenth = (live * 10).checked_div(frags).unwrap_or(0).min(9);
        self.cleaned.by_tenths[tenth as usize] += frags;
    }

    pub fn cleaned(&self) -> Cleaned {
        self.cleaned
    }

    /// Segments take holes before they take whole groups, from here on or no more.
    pub fn pack(&mut self, packing: bool) {
        self.packing = packing;
    }

    /// Whether they do.
    pub fn is_packing(&self) -> bool {
        self.packing
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

    /// That holds no more.
    pub fn forget_room(&mut self) {
        self.known = KnownRoom::default();
    }
}
