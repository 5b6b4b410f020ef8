//! Tracks: a directory's small files in one run, which one read of the device brings (hashFS, S1-S5; DESIGN.md, "Tracks").
//!
//! The truth is the directory and the inode in the log; a track is a second way to them (rule 14).
//!
//! - [`table`]: where a directory keeps which track holds the names from a key on. [`lookup`] asks it, and [`change`] keeps it
//!   true while files and names change.
//! - [`choose`]: which files form a track together. [`cold`] reads their contents in another order, [`form`] makes them ready,
//!   and [`fresh`] does so with new ones.
//! - [`layout`]: how a segment writes a track. [`reads`]: what reading files that have none has cost; [`weigh`]: which reads count,
//!   and what a directory has to settle.
//! - [`dissolve`] takes a track apart, and [`gather`] brings together what leads to tracks.

pub(crate) mod ahead;
pub(crate) mod change;
pub(crate) mod choose;
pub(crate) mod cold;
pub(crate) mod dissolve;
pub(crate) mod form;
pub(crate) mod fresh;
pub(crate) mod gather;
pub(crate) mod layout;
pub(crate) mod lookup;
pub(crate) mod outcome;
pub(crate) mod reads;
pub(crate) mod table;
pub(crate) mod weigh;

use loamfs_format::{Extent, Ino, Ssn};
use outcome::Outcome;
use reads::ColdReads;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// So many names in a row that were not there make it likely that the next one is not.
const IN_VAIN: u32 = 2;

/// Tracks that the next segment writes.
#[derive(Debug, Default)]
pub(crate) struct Tracks {
    forming: Vec<Forming>,
    /// Free ranges that segments wrote over between tracks, until these are durable.
    padding: Vec<(Ssn, Extent)>,
    reads: ColdReads,
    /// So many heads in a row, the last ones asked, had no slot for the name.
    in_vain: u32,
}

/// A track that is about to be written: its files are dirty, and are sealed into it unless they change before.
#[derive(Debug)]
pub(crate) struct Forming {
    /// The directory.
    pub dir: Ino,
    /// Its range of keys.
    pub low: u64,
    pub high: u64,
    /// Names of the directory in this range.
    pub names: u32,
    /// Its files, by the keys of their names.
    pub files: BTreeMap<u64, TrackFile>,
    /// What comes of it, for whoever made it ready.
    pub outcome: Arc<Outcome>,
}

/// A file that is about to settle.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TrackFile {
    pub ino: Ino,
    /// The second hash of its name.
    pub second: u64,
}

impl Forming {
    fn holds(&self, dir: Ino, key: u64) -> bool {
        self.dir == dir && (self.low..self.high).contains(&key)
    }
}

impl Tracks {
    /// The next segment writes this one too.
    pub fn begin(&mut self, forming: Forming) {
        self.forming.push(forming);
    }

    /// A file changes: it is not cold, and stays in the log.
    pub fn changed(&mut self, ino: Ino) {
        for forming in &mut self.forming {
            forming.files.retain(|_, file| file.ino != ino);
        }
    }

    /// A directory has more or fewer names at a key.
    pub fn count(&mut self, dir: Ino, key: u64, delta: i32) {
        for forming in self.forming.iter_mut().filter(|it| it.holds(dir, key)) {
            forming.names = forming.names.saturating_add_signed(delta);
        }
    }

    /// Segment `ssn` writes over these free ranges.
    pub fn pad(&mut self, ssn: Ssn, padding: &[Extent]) {
        self.padding
            .extend(padding.iter().map(|range| (ssn, *range)));
    }

    /// The ranges that segments up to `durable` wrote over: nothing is in flight there any more.
    pub fn take_padding(&mut self, durable: Ssn) -> Vec<Extent> {
        let over = self.padding.extract_if(.., |(ssn, _)| *ssn <= durable);
        over.map(|(_, range)| range).collect()
    }

    /// What reading files out of the log has cost.
    pub fn reads(&mut self) -> &mut ColdReads {
        &mut self.reads
    }

    /// A track's head was asked for a name, and had a slot for it or not.
    pub fn note_asked(&mut self, found: bool) {
        self.in_vain = match found {
            true => 0,
            false => self.in_vain.saturating_add(1),
        };
    }

    /// Whether the next name that a head is to be asked for is likely not to be there, as the last ones were not.
    pub const fn expects_none(&self) -> bool {
        self.in_vain >= IN_VAIN
    }

    /// They are in a segment.
    pub fn forget(&mut self) {
        self.forming.clear();
    }

    /// There is no place for all of them, which have so many fragments: half of them, the longer and later ones, go to the log, and
    /// whoever made these ready is told.
    pub fn give_half_up(&mut self, frags: &BTreeMap<(Ino, u64), u64>) {
        let frags_of = |it: &Forming| frags.get(&(it.dir, it.low)).copied();
        let longest = |it: &Forming| frags_of(it).unwrap_or(u64::MAX);
        let all = self.forming.iter().zip(0..);
        let mut order: Vec<(u64, usize)> = all.map(|(it, at)| (longest(it), at)).collect();
        order.sort_unstable();
        if let [(shortest, _)] = order.as_slice() {
            self.forming[0].outcome.note_no_place_for(*shortest);
        }
        let given_up: BTreeSet<usize> = order[order.len() / 2..].iter().map(|it| it.1).collect();
        for at in given_up.into_iter().rev() {
            let it = self.forming.remove(at);
            // The others are none any more.
            if frags_of(&it).is_some() {
                it.outcome.note_unplaced(it.dir, it.low);
            }
        }
    }
}
