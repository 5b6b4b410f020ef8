//! What forming the tracks of a directory takes a disk, against what that saves those who read its files (S3, S4). The prices are those
//! of settling.

use super::settler::Prices;

/// What passes below the arm for each byte of contents: it is read and written, and with inodes, names, tables and the ways between
/// that comes to half as much again.
const PASSED: u64 = 3;

/// What forming tracks takes, and saves, in microseconds of a disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct FormingCost {
    pub cost: u64,
    /// What those reads would not have taken that are taken to come.
    pub saving: u64,
}

impl FormingCost {
    /// Whether it will have paid by then.
    pub fn pays(&self) -> bool {
        self.saving >= self.cost && self.cost > 0
    }
}

impl Prices {
    /// Whether a seek is what reading in pieces costs.
    pub fn has_seeks(&self) -> bool {
        self.disk.turns()
    }

    /// What it takes to form tracks of `bytes` of contents, and what it saves `reads` cold reads, each a seek: a track's one request brings what
    /// the log has in two places. What the volume holds is `in_use` bytes, so that a seek passes over a third of it.
    pub fn forming(&self, bytes: u64, reads: u64, in_use: u64) -> FormingCost {
        FormingCost {
            cost: self.disk.pass(bytes.saturating_mul(PASSED)),
            saving: match self.has_seeks() {
                true => reads.saturating_mul(self.disk.step(in_use / 3)),
                false => 0,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cost::Disk;
    use crate::fixture::volume;

    /// Prices of a volume of 8 GiB that holds two.
    fn forming(rotational: bool, bytes: u64, reads: u64) -> FormingCost {
        let geometry = volume(64 << 20, &crate::OpenOptions::default())
            .core()
            .geometry;
        let disk = Disk::of(8 << 30, None, rotational);
        Prices { geometry, disk }.forming(bytes, reads, 2 << 30)
    }

    #[test]
    fn as_many_reads_pay_as_have_cost_what_moving_takes() {
        // A hundred files of 10 KiB, and ten thousand: two reads of a hundred.
        let (few, many) = (1 << 20, 100 << 20);
        assert!(!forming(true, few, 1).pays());
        assert!(forming(true, few, 2).pays());
        assert!(!forming(true, many, 100).pays());
        assert!(forming(true, many, 200).pays());
        assert!(!FormingCost::default().pays());
    }

    #[test]
    fn where_nothing_turns_nothing_pays() {
        assert!(!forming(false, 1 << 20, 1 << 40).pays());
    }
}
