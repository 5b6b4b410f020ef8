//! Whole transfers out of system calls that may stop short.

use std::io::{IoSlice, IoSliceMut};

use rustix::io::Errno;

/// Reads until the pieces are full. `call` is one positioned vectored read;
/// `align` is the unit in which direct I/O must continue, 1 without it.
pub(crate) fn fill(
    mut pieces: &mut [IoSliceMut<'_>],
    mut offset: u64,
    align: usize,
    mut call: impl FnMut(&mut [IoSliceMut<'_>], u64) -> Result<usize, Errno>,
) -> Result<(), Errno> {
    let mut left: usize = pieces.iter().map(|piece| piece.len()).sum();
    while left > 0 {
        let moved = progress(call(&mut *pieces, offset), left, align)?;
        IoSliceMut::advance_slices(&mut pieces, moved);
        offset += moved as u64;
        left -= moved;
    }
    Ok(())
}

/// Writes until the pieces are all out, as [`fill`] does.
pub(crate) fn drain(
    mut pieces: &mut [IoSlice<'_>],
    mut offset: u64,
    align: usize,
    mut call: impl FnMut(&[IoSlice<'_>], u64) -> Result<usize, Errno>,
) -> Result<(), Errno> {
    let mut left: usize = pieces.iter().map(|piece| piece.len()).sum();
    while left > 0 {
        let moved = progress(call(&*pieces, offset), left, align)?;
        IoSlice::advance_slices(&mut pieces, moved);
        offset += moved as u64;
        left -= moved;
    }
    Ok(())
}

/// How far one call brought us, in whole units; zero to try again.
fn progress(outcome: Result<usize, Errno>, left: usize, align: usize) -> Result<usize, Errno> {
    match outcome {
        // Nothing moved although there is more to move: the file was cut
        // behind our back. Only an error ends the loop.
        Ok(0) => Err(Errno::IO),
        Ok(moved) if moved >= left => Ok(left),
        // Direct I/O cannot go on in the middle of a sector; repeating the
        // part of it that was moved is harmless.
        Ok(moved) => match moved - moved % align {
            0 => Err(Errno::IO),
            whole => Ok(whole),
        },
        Err(Errno::INTR) => Ok(0),
        Err(errno) => Err(errno),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A source that answers from a script of limits and errors.
    fn fill_with(
        script: &[Result<usize, Errno>],
        align: usize,
    ) -> (Result<(), Errno>, Vec<u8>, Vec<u64>) {
        let source: Vec<u8> = (0..24).collect();
        let (mut first, mut second) = ([0xff; 10], [0xff; 6]);
        let mut offsets = Vec::new();
        let mut script = script.iter();
        let mut pieces = [IoSliceMut::new(&mut first), IoSliceMut::new(&mut second)];
        let result = fill(&mut pieces, 4, align, |pieces, offset| {
            offsets.push(offset);
            let limit = (*script.next().unwrap_or(&Ok(usize::MAX)))?;
            let mut moved = 0;
            for piece in pieces {
                let count = piece.len().min(limit - moved);
                let from = offset as usize + moved;
                piece[..count].copy_from_slice(&source[from..from + count]);
                moved += count;
            }
            Ok(moved)
        });
        (result, [&first[..], &second[..]].concat(), offsets)
    }

    #[test]
    fn short_and_interrupted_reads_go_on() {
        let script = [Ok(3), Err(Errno::INTR), Ok(9)];
        let (result, bytes, offsets) = fill_with(&script, 1);
        assert_eq!(result, Ok(()));
        assert_eq!(bytes, (4..20).collect::<Vec<u8>>());
        assert_eq!(offsets, [4, 7, 7, 16]);
    }

    #[test]
    fn direct_reads_go_on_at_a_sector() {
        let (result, bytes, offsets) = fill_with(&[Ok(7)], 4);
        assert_eq!(result, Ok(()));
        assert_eq!(bytes, (4..20).collect::<Vec<u8>>());
        assert_eq!(offsets, [4, 8]);
    }

    #[test]
    fn an_end_or_an_error_is_reported() {
        assert_eq!(fill_with(&[Ok(3), Ok(0)], 1).0, Err(Errno::IO));
        assert_eq!(fill_with(&[Err(Errno::NXIO)], 1).0, Err(Errno::NXIO));
        assert_eq!(fill_with(&[Ok(3)], 4).0, Err(Errno::IO));
    }

    #[test]
    fn short_writes_go_on() {
        let mut sink = Vec::new();
        let mut limits = [Ok(5), Err(Errno::INTR), Ok(2)].into_iter();
        let mut pieces = [IoSlice::new(b"hello "), IoSlice::new(b"world")];
        let result = drain(&mut pieces, 100, 1, |pieces, offset| {
            assert_eq!(offset, 100 + sink.len() as u64);
            let limit = limits.next().unwrap_or(Ok(usize::MAX))?;
            let all = pieces.iter().flat_map(|piece| piece.iter().copied());
            let before = sink.len();
            sink.extend(all.take(limit));
            Ok(sink.len() - before)
        });
        assert_eq!(result, Ok(()));
        assert_eq!(sink, b"hello world");
    }
}
