//! Which addresses have changed hands, and in which turn: what was read of them before is of an earlier tenant.
//!
//! Several chunks share a place of a table that never grows. Who is told for nothing that his has changed hands reads once more.

use loamfs_format::Extent;
use loamfs_format::hot::SLOT_FRAGS;

/// Places of the table: chunks that follow each other over 2 GiB have one each.
const PLACES: usize = 1 << 15;

/// Turns in which chunks of 64 fragments have changed hands.
#[derive(Debug)]
pub(crate) struct Tenants {
    turn: u64,
    /// The last turn of any chunk that has this place.
    last: Box<[u64]>,
}

impl Default for Tenants {
    fn default() -> Tenants {
        Tenants {
            turn: 0,
            last: vec![0; PLACES].into(),
        }
    }
}

/// The chunks in which an extent lies.
fn chunks(extent: Extent) -> impl Iterator<Item = u64> {
    extent.start.0 / SLOT_FRAGS..extent.end().0.div_ceil(SLOT_FRAGS)
}

impl Tenants {
    /// What is read from now on is of this turn.
    pub fn turn(&self) -> u64 {
        self.turn
    }

    /// An extent has changed hands.
    pub fn note(&mut self, extent: Extent) {
        self.turn += 1;
        for chunk in chunks(extent).take(PLACES) {
            self.last[chunk as usize % PLACES] = self.turn;
        }
    }

    /// Whether a chunk may have changed hands behind this turn.
    pub fn since(&self, chunk: u64, turn: u64) -> bool {
        self.last[chunk as usize % PLACES] > turn
    }

    /// Whether any part of an extent may have.
    pub fn since_of(&self, extent: Extent, turn: u64) -> bool {
        chunks(extent)
            .take(PLACES)
            .any(|chunk| self.since(chunk, turn))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use loamfs_format::FragAddr;

    #[test]
    fn what_has_changed_hands_is_told_to_who_read_before() {
        let mut tenants = Tenants::default();
        let at = |chunk: u64| Extent::new(FragAddr(chunk * SLOT_FRAGS), SLOT_FRAGS);
        let before = tenants.turn();
        tenants.note(at(5));
        let behind = tenants.turn();
        tenants.note(at(9));
        let told = |turn| [4, 5, 6, 9].map(|chunk| tenants.since_of(at(chunk), turn));
        assert_eq!(told(before), [false, true, false, true]);
        assert_eq!(told(behind), [false, false, false, true]);
        assert!(
            tenants.since(5 + PLACES as u64, before),
            "they share a place"
        );
        assert!(tenants.since_of(Extent::new(FragAddr(0), 6 * SLOT_FRAGS), before));
    }
}
