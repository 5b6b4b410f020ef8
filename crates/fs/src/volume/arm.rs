//! Where a disk's arm has been, by the requests that went down: what they took, priced as settling is.

use crate::cost::Disk;
use loamfs_device::{Issued, Observer, Op};
use std::sync::{Mutex, OnceLock, PoisonError};

/// The arm of a disk, followed from the first request after it was said what disk it is.
#[derive(Debug, Default)]
pub(super) struct Arm {
    disk: OnceLock<Disk>,
    was: Mutex<Was>,
}

#[derive(Debug, Default)]
struct Was {
    /// Where the last request ended, in bytes.
    at: u64,
    /// Microseconds of all of them.
    took: u64,
}

impl Arm {
    /// It is that of this disk.
    pub fn begin(&self, disk: Disk) {
        // Whoever said it first was right.
        let _ = self.disk.set(disk);
    }

    /// Microseconds that all requests took so far.
    pub fn took(&self) -> u64 {
        self.was.lock().unwrap_or_else(PoisonError::into_inner).took
    }
}

impl Observer for Arm {
    fn issued(&self, request: Issued) {
        let Some(disk) = self.disk.get() else {
            return;
        };
        if !matches!(request.op, Op::Read | Op::Write) {
            return;
        }
        let mut was = self.was.lock().unwrap_or_else(PoisonError::into_inner);
        let way = match request.op {
            Op::Write => disk.way_to_write(was.at, request.offset),
            _ => disk.way(was.at, request.offset),
        };
        was.took = was
            .took
            .saturating_add(way)
            .saturating_add(disk.pass(request.len));
        was.at = request.offset.saturating_add(request.len);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use loamfs_device::IoKind;

    #[test]
    fn what_goes_on_passes_and_all_else_is_a_way() {
        let disk = Disk::of(1 << 30, None, true);
        let arm = Arm::default();
        let ask = |op, offset, len| {
            let before = arm.took();
            arm.issued(Issued {
                op,
                offset,
                len,
                kind: IoKind::Other,
            });
            arm.took() - before
        };
        assert_eq!(ask(Op::Read, 0, 1 << 20), 0, "nobody said what disk it is");
        arm.begin(disk);
        assert_eq!(ask(Op::Read, 0, 1 << 20), disk.pass(1 << 20));
        assert_eq!(ask(Op::Write, 1 << 20, 1 << 20), disk.pass(1 << 20));
        let far = ask(Op::Read, 1 << 29, 1 << 20);
        assert_eq!(far, disk.step((1 << 29) - (2 << 20)) + disk.pass(1 << 20));
        let back = ask(Op::Write, (1 << 29) - (1 << 20), 4096);
        assert!(back > disk.step(2 << 20), "nothing passes backwards");
        assert_eq!(ask(Op::Flush, 0, 0), 0);
    }
}
