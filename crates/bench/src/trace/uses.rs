//! What the bytes of requests are for: data, metadata where it belongs, a journal.

use std::ops::{AddAssign, Range};

use serde::{Deserialize, Serialize};

use super::{Op, Request};

/// Bytes, by use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Uses {
    /// Read of files' data.
    pub data_read: u64,
    /// Read of anything else.
    pub metadata_read: u64,
    /// Written of files' data.
    pub data_written: u64,
    /// Written of metadata, to where they belong.
    pub metadata_written: u64,
    /// Written to a journal or log.
    pub journal_written: u64,
}

impl Uses {
    /// By the marks of requests, for file systems of the kernel, whose journal has these sectors. Metadata that ext2 and
    /// ext4 read ahead of their use bear no mark, and count as data.
    pub fn marked(requests: &[Request], journal: &[Range<u64>]) -> Uses {
        let mut uses = Uses::default();
        for request in requests {
            let metadata = request.marks.contains('m');
            let in_journal = |range: &Range<u64>| range.contains(&request.sector);
            let sum = match request.op {
                Op::Read if metadata => &mut uses.metadata_read,
                Op::Read => &mut uses.data_read,
                Op::Write if journal.iter().any(in_journal) => &mut uses.journal_written,
                Op::Write if metadata => &mut uses.metadata_written,
                Op::Write => &mut uses.data_written,
                Op::Flush | Op::Discard => continue,
            };
            *sum += request.bytes();
        }
        uses
    }

    /// Of a file system that says how much of what it moved was data, and writes all else to its log.
    pub fn told(requests: &[Request], (data_read, data_written): (u64, u64)) -> Uses {
        let all = Uses::marked(requests, &[]);
        let (read, written) = (
            all.data_read + all.metadata_read,
            all.data_written + all.metadata_written,
        );
        Uses {
            data_read,
            metadata_read: read.saturating_sub(data_read),
            data_written,
            metadata_written: 0,
            journal_written: written.saturating_sub(data_written),
        }
    }
}

impl AddAssign for Uses {
    fn add_assign(&mut self, other: Uses) {
        self.data_read += other.data_read;
        self.metadata_read += other.metadata_read;
        self.data_written += other.data_written;
        self.metadata_written += other.metadata_written;
        self.journal_written += other.journal_written;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::Trace;

    #[test]
    fn marks_and_places_tell_what_bytes_are_for() {
        let lines = [
            "0 R 0 8",
            "1 Rm 8 2",
            "2 W 100 1",
            "3 Wm 200 3",
            "4 Wsm 300 16",
            "5 W 308 1",
            "6 F 0 0",
            "7 D 0 8",
        ];
        let trace: Trace = lines.join("\n").parse().unwrap();
        let uses = Uses::marked(&trace.requests, &[300..305, 305..309]);
        let sectors = [
            uses.data_read,
            uses.metadata_read,
            uses.data_written,
            uses.metadata_written,
            uses.journal_written,
        ];
        assert_eq!(sectors.map(|bytes| bytes / 512), [8, 2, 1, 3, 17]);
    }

    #[test]
    fn what_is_not_told_to_be_data_went_to_the_log() {
        let trace: Trace = "0 R 0 8\n1 W 100 9".parse().unwrap();
        let uses = Uses::told(&trace.requests, (1024, 512));
        assert_eq!((uses.data_read, uses.metadata_read), (1024, 3072));
        assert_eq!((uses.data_written, uses.journal_written), (512, 4096));
        assert_eq!(uses.metadata_written, 0);
    }
}
