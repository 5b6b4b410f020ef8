//! What plugging holes costs a disk, against cleaning (Matthews et al. 1997): before data are written into many short holes,
//! groups of the log are emptied for them, if that takes less. The prices are those of settling.

use super::settler::Prices;
use crate::cost::Scatter;

/// What is written for what is moved: what leads to it changes too, and the maps; and what that supersedes makes holes in the log, which
/// are cleaned in their turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Written {
    /// Tenths, for each that is moved.
    tenths: u64,
}

impl Written {
    /// Where inode blocks are written anew.
    pub const WITH_BLOCKS: Written = Written { tenths: 30 };
    /// Where segments say what changed in them: of 2.07 bytes of small files, new and moved ones, 0.21 were written besides.
    pub const WITH_DELTAS: Written = Written { tenths: 13 };

    /// For so many fragments.
    fn of(self, live: u64) -> u64 {
        live.saturating_mul(self.tenths) / 10
    }
}

/// What it costs to write into holes, and to empty a group instead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PluggingCost {
    /// Microseconds from one hole to the next.
    step: u64,
    /// Fragments of a hole.
    hole: u64,
    /// Microseconds in which a group passes below the arm.
    pass: u64,
    /// Fragments that pass in a second.
    rate: u64,
    written: Written,
}

impl PluggingCost {
    /// Whether it takes a disk longer to write into holes what emptying a group wins, which is `won` fragments, than to read that
    /// group and to write the `live` fragments in it elsewhere. What these take there is not won.
    pub fn costs_more(self, live: u64, won: u64) -> bool {
        let written = self.written.of(live);
        let left = (live + won).saturating_sub(written);
        let holes = left / self.hole.max(1);
        holes * self.step > self.pass + written.saturating_mul(1_000_000) / self.rate.max(1)
    }
}

impl Prices {
    /// What it costs to write `waiting` fragments in one sweep into holes of `hole` fragments, all over the volume.
    /// Emptying a group writes as much as `written` says.
    pub fn plugging(&self, hole: u64, waiting: u64, written: Written) -> PluggingCost {
        let g = self.geometry;
        let frag = u64::from(g.fragment_size);
        let holes = (waiting / hole.max(1)).max(1);
        let group = g.group_frags * frag;
        let pass = Scatter {
            pieces: 1,
            bytes: group,
            span: group,
        };
        PluggingCost {
            step: self.disk.write_step(g.total_frags * frag / holes),
            hole,
            pass: self.disk.sweep(pass),
            rate: self.disk.bytes_in_a_second() / frag,
            written,
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::Written;
    use crate::fixture::volume;
    use crate::{Env, MkfsOptions, OpenOptions, Volume, mkfs};
    use loamfs_device::{Device, MemoryDevice};
    use loamfs_format::superblock::DiskFigures;
    use std::sync::Arc;

    const MIB: u64 = 1 << 10;
    const BLOCKS: Written = Written::WITH_BLOCKS;

    fn on_a_disk(bytes: u64, disk: Option<DiskFigures>) -> Volume {
        let device = MemoryDevice::new(bytes).with_rotational(true);
        let device: Arc<dyn Device> = Arc::new(device);
        let options = MkfsOptions {
            disk,
            ..MkfsOptions::default()
        };
        mkfs(&device, &options, &Env::fixed(1)).unwrap();
        Volume::open(device, &OpenOptions::default(), Env::fixed(2)).unwrap()
    }

    #[test]
    fn a_group_is_emptied_if_it_holds_little_and_holes_are_short() {
        let volume = on_a_disk(2 << 30, None);
        let prices = volume.core().prices();
        let costs_more = |hole: u64, live: u64| {
            let plugging = prices.plugging(hole, 40 * MIB, BLOCKS);
            plugging.costs_more(live, 16 * MIB - live)
        };
        assert!(costs_more(256, 0) && costs_more(256, 2 * MIB));
        assert!(!costs_more(256, 8 * MIB) && !costs_more(256, 16 * MIB));
        assert!(!costs_more(4 * MIB, 0) && !costs_more(16 * MIB, 0));
    }

    /// Where holes are as short as files, nearly any group is worth it.
    #[test]
    fn what_says_deltas_empties_groups_that_are_fuller() {
        let volume = on_a_disk(2 << 30, None);
        let costs_more = |written: Written| {
            let plugging = volume.core().prices().plugging(12, 4 * MIB, written);
            plugging.costs_more(11 * MIB, 5 * MIB)
        };
        assert!(costs_more(Written::WITH_DELTAS) && !costs_more(BLOCKS));
    }

    /// Moving things costs it bands, and holes cost no seek: it lost what the holes won.
    #[test]
    fn on_a_shingled_disk_holes_are_plugged() {
        let volume = on_a_disk(2 << 30, Some(DiskFigures::SHINGLED));
        let plugging = volume.core().prices().plugging(256, 40 * MIB, BLOCKS);
        assert!(!plugging.costs_more(0, 16 * MIB) && !plugging.costs_more(2 * MIB, 14 * MIB));
    }

    #[test]
    fn where_nothing_turns_holes_are_plugged() {
        let volume = volume(2 << 30, &OpenOptions::default());
        let plugging = volume.core().prices().plugging(256, 40 * MIB, BLOCKS);
        assert!(!plugging.costs_more(2 * MIB, 14 * MIB));
    }
}
