//! Merging: requests of a batch that touch each other become one.

use crate::{AtomicCounters, DeviceError, Op, Read, Write};

/// The kernel takes at most this many pieces in one vectored request.
const PIECES_MAX: usize = 1024;

/// Requests of a batch that follow each other on the device without a gap.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Run {
    /// First byte.
    pub offset: u64,
    /// Sum of the lengths of the pieces in bytes; never zero.
    pub len: u64,
    /// Indices into the batch, by offset.
    pub pieces: Vec<usize>,
}

impl Run {
    fn end(&self) -> u64 {
        self.offset + self.len
    }
}

/// Sorts requests (index, offset, length) and joins neighbours. Empty requests
/// need no I/O and are left out. Ranges must have been checked.
pub(crate) fn merge(requests: impl Iterator<Item = (usize, u64, u64)>) -> Vec<Run> {
    let mut sorted: Vec<_> = requests.filter(|&(_, _, len)| len > 0).collect();
    sorted.sort_by_key(|&(_, offset, _)| offset);
    let mut runs: Vec<Run> = Vec::new();
    for (index, offset, len) in sorted {
        match runs.last_mut() {
            Some(run) if run.end() == offset && run.pieces.len() < PIECES_MAX => {
                run.len += len;
                run.pieces.push(index);
            }
            _ => runs.push(Run {
                offset,
                len,
                pieces: vec![index],
            }),
        }
    }
    runs
}

/// Sets the result of every read from its `check`, and merges those that pass.
pub(crate) fn read_runs(
    batch: &mut [Read],
    check: impl Fn(&Read) -> Result<(), DeviceError>,
) -> Vec<Run> {
    for read in &mut *batch {
        read.result = check(read);
    }
    let valid = batch.iter().enumerate().filter(|(_, r)| r.result.is_ok());
    merge(valid.map(|(index, r)| (index, r.offset, r.buffer.len() as u64)))
}

/// Checks every write, and merges those that pass.
pub(crate) fn write_runs(
    batch: &[Write<'_>],
    check: impl Fn(&Write<'_>) -> Result<(), DeviceError>,
) -> (Vec<Result<(), DeviceError>>, Vec<Run>) {
    let results: Vec<_> = batch.iter().map(check).collect();
    let valid = batch
        .iter()
        .enumerate()
        .filter(|&(i, _)| results[i].is_ok());
    let runs = merge(valid.map(|(index, w)| (index, w.offset, w.data.len() as u64)));
    (results, runs)
}

/// Counts the runs of a batch of reads: one request each, under the kind of its
/// first piece, and the bytes of each piece under its own kind.
pub(crate) fn count_reads(counters: &AtomicCounters, runs: &[Run], batch: &[Read]) {
    for run in runs {
        counters.request(Op::Read, batch[run.pieces[0]].kind);
        for &piece in &run.pieces {
            let read = &batch[piece];
            counters.bytes(Op::Read, read.kind, read.buffer.len() as u64);
        }
    }
}

/// Counts the runs of a batch of writes, as [`count_reads`] does.
pub(crate) fn count_writes(counters: &AtomicCounters, runs: &[Run], batch: &[Write<'_>]) {
    for run in runs {
        counters.request(Op::Write, batch[run.pieces[0]].kind);
        for &piece in &run.pieces {
            let write = &batch[piece];
            counters.bytes(Op::Write, write.kind, write.data.len() as u64);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn merged(ranges: &[(u64, u64)]) -> Vec<(u64, u64, Vec<usize>)> {
        let requests = ranges.iter().enumerate().map(|(i, &(o, l))| (i, o, l));
        merge(requests)
            .into_iter()
            .map(|run| (run.offset, run.len, run.pieces))
            .collect()
    }

    #[test]
    fn neighbours_join_in_whatever_order_they_came() {
        assert_eq!(
            merged(&[(8, 4), (0, 4), (4, 4), (100, 1)]),
            [(0, 12, vec![1, 2, 0]), (100, 1, vec![3])]
        );
    }

    #[test]
    fn gaps_overlaps_and_empty_requests_do_not_join() {
        assert_eq!(
            merged(&[(0, 4), (5, 4), (5, 4), (9, 0)]),
            [(0, 4, vec![0]), (5, 4, vec![1]), (5, 4, vec![2])]
        );
    }

    #[test]
    fn a_run_never_exceeds_what_the_kernel_takes() {
        let ranges: Vec<_> = (0..PIECES_MAX as u64 + 3).map(|i| (i * 8, 8)).collect();
        let runs = merged(&ranges);
        assert_eq!(runs.len(), 2);
        assert_eq!(runs[1].2.len(), 3);
    }
}
