//! Reading homed units where they stand among hot data.

use super::{Bytes, Reader, Slice};
use crate::blocks::{Fetch, What};
use crate::hot::Hot;
use loamfs_device::IoKind;
use loamfs_format::{Extent, Ssn};
use std::ops::Range;

/// Bytes of one batch, from which on none of it becomes hot data.
const MANY: u64 = 128 << 10;

impl Reader {
    /// Reads those of the blocks that stand among hot data; the others, in the same order. Those are all, if somebody has taken a slot meanwhile:
    /// what he writes there may have the same checksum.
    pub(super) fn read_hot(
        &self,
        hot: &Hot,
        wanted: &[Fetch],
        order: Vec<usize>,
        results: &mut [Option<Bytes>],
    ) -> Vec<usize> {
        let found = hot.find(order.iter().map(|i| at_home(&wanted[*i])));
        let (mut parts, mut others) = (Vec::new(), Vec::new());
        for (i, extents) in order.iter().zip(found.places) {
            match extents {
                Some(extents) => parts.extend(extents.into_iter().map(|extent| (*i, extent))),
                None => others.push(*i),
            }
        }
        if parts.is_empty() {
            return others;
        }
        let spans = spans(parts.iter().map(|(_, extent)| *extent));
        let read = self.requests(spans.iter().map(|span| (self.bytes(*span), IoKind::Homed)));
        let frags = parts.iter().map(|(_, extent)| extent.frags).sum();
        if !hot.still_stand(found.emptied, frags) {
            return order;
        }
        for (i, extent) in parts {
            let span = spans.partition_point(|span| span.start <= extent.start) - 1;
            let (from, within) = (self.bytes(spans[span]).start, self.bytes(extent));
            let within = (within.start - from) as usize..(within.end - from) as usize;
            let part = read[span].as_ref().map(|bytes| &bytes[within]);
            let before = results[i].take().unwrap_or(Ok(Slice::Own(Vec::new())));
            results[i] = Some(before.and_then(|before| {
                let part = part.map_err(Clone::clone)?;
                Ok(Slice::Own([before.as_ref(), part].concat()))
            }));
        }
        others
    }

    /// The bytes of an extent.
    fn bytes(&self, extent: Extent) -> Range<u64> {
        let start = self.geometry.byte_offset(extent.start);
        start..start + extent.frags * u64::from(self.geometry.fragment_size)
    }

    /// When reading these begins, for [`Reader::note_read`], if they may become hot data: so many together cost a disk no seek
    /// that counts.
    pub(super) fn turn(&self, wanted: &[Fetch]) -> Option<u64> {
        let frags = wanted.iter().map(|fetch| u64::from(fetch.pointer.frags));
        let bytes = frags.sum::<u64>() * u64::from(self.geometry.fragment_size);
        let hot = self.hot().filter(|hot| hot.is_on() && bytes < MANY)?;
        Some(hot.turn())
    }

    /// A block was read since `turn`, and is what it should be.
    pub(super) fn note_read(&self, fetch: &Fetch, bytes: &[u8], turn: Option<u64>) {
        if let (Some(hot), Some(turn), Some(home)) = (self.hot(), turn, at_home(fetch)) {
            hot.offer(home, bytes, turn);
        }
    }

    /// These extents hold something new, which nobody has read yet.
    pub fn overwritten(&self, homes: &[Extent]) {
        if let Some(hot) = self.hot() {
            hot.overwritten(homes);
        }
    }

    /// Somebody is about to write these extents, of which those that are not his were free so far.
    pub fn yield_to(&self, extents: impl Iterator<Item = Extent>) {
        if let Some(hot) = self.hot() {
            hot.yield_to(extents);
        }
    }

    /// A block was read, and is not what it should be, or could not be read.
    pub(super) fn note_wrong(&self, fetch: &Fetch) {
        // Written while its window was read, perhaps: the rest of that is stale, too.
        self.forget_around(self.range(fetch));
        if let (Some(hot), Some(home)) = (self.hot(), at_home(fetch)) {
            hot.distrust(home);
        }
    }
}

/// Where a block stands that is a unit at home. An image is not: the log uses its place again, and nobody drops what was hot there.
fn at_home(fetch: &Fetch) -> Option<Extent> {
    let is_unit = matches!(fetch.what, What::Unit { .. });
    (is_unit && fetch.pointer.birth == Ssn(0)).then(|| fetch.pointer.extent())
}

/// Extents in the order of their addresses, those that follow each other as one.
fn spans(extents: impl Iterator<Item = Extent>) -> Vec<Extent> {
    let mut extents: Vec<Extent> = extents.collect();
    extents.sort_unstable_by_key(|extent| extent.start);
    let mut spans: Vec<Extent> = Vec::new();
    for extent in extents {
        match spans.last_mut() {
            Some(span) if extent.start <= span.end() => {
                let end = span.end().max(extent.end());
                span.frags = end.0 - span.start.0;
            }
            _ => spans.push(extent),
        }
    }
    spans
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::reader::fetch_into;
    use loamfs_device::{Device, MemoryDevice, Write};
    use loamfs_format::{FragAddr, Geometry, GroupNo, Ino, Pointer};
    use std::sync::Arc;

    /// A reader of a volume of 64 MiB whose first four groups are fast and free.
    fn reader() -> (Reader, Geometry) {
        let options = crate::OpenOptions::default();
        let geometry = crate::fixture::volume(64 << 20, &options).core().geometry;
        let hot = Hot::new(geometry, [7; 16], Ssn(1), 8 << 20);
        hot.settle_in(std::iter::once(0..4).collect(), &[0, 1, 2, 3].map(GroupNo));
        let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(64 << 20));
        let reader = Reader::new(device, geometry, 1 << 20).that_keeps_hot(Some(hot));
        (reader, geometry)
    }

    /// A unit at an address, at home or in the log.
    fn unit(geometry: &Geometry, addr: u64, birth: u64) -> Fetch {
        let pointer = Pointer {
            addr: FragAddr(addr),
            frags: geometry.unit_frags() as u32,
            stored: 4096,
            birth: Ssn(birth),
            ..Pointer::NONE
        };
        let (ino, unit) = (Ino(7), 0);
        Fetch {
            pointer,
            what: What::Unit { ino, unit },
        }
    }

    fn write(reader: &Reader, geometry: &Geometry, at: FragAddr, bytes: &[u8]) {
        let write = Write::new(geometry.byte_offset(at), bytes, IoKind::Other);
        assert!(reader.device.write(&[write]).iter().all(Result::is_ok));
    }

    /// What reading it gives.
    fn read(reader: &Reader, fetch: Fetch) -> u8 {
        let mut first = 0;
        let take = |_: &Fetch, bytes: &[u8]| {
            first = bytes[0];
            Ok(())
        };
        assert!(fetch_into(reader, &[fetch], true, take).is_empty());
        first
    }

    /// An image stands on a slow device where the log has spilled. What was read often there passed for what came to stand there later, if
    /// somebody had made it so that the checksum fits.
    #[test]
    fn images_are_no_hot_data_and_are_not_found_among_them() {
        let (reader, geometry) = reader();
        let hot = reader.hot().unwrap();
        let addr = geometry.group_extent(GroupNo(6)).start;
        write(&reader, &geometry, addr, &[1; 4096]);
        let (home, image) = (unit(&geometry, addr.0, 0), unit(&geometry, addr.0, 9));
        for _ in 0..3 {
            assert_eq!(read(&reader, image), 1);
        }
        assert!(!hot.is_waiting());
        for _ in 0..3 {
            assert_eq!(read(&reader, home), 1);
        }
        let writing = hot.take_writes();
        for (at, bytes) in writing.writes() {
            write(&reader, &geometry, at, bytes);
        }
        hot.written(writing);
        // The home was given up, and the log is there now.
        write(&reader, &geometry, addr, &[2; 4096]);
        assert_eq!(read(&reader, home), 1, "it is hot");
        assert_eq!(read(&reader, image), 2);
    }
}
