//! Reading homed units where they stand among hot data.

use super::{Bytes, Reader, Slice};
use crate::blocks::{Fetch, What};
use crate::hot::Hot;
use loamfs_device::IoKind;
use loamfs_format::Extent;
use std::ops::Range;

/// Bytes of one batch, from which on none of it becomes hot data.
const MANY: u64 = 128 << 10;

impl Reader {
    /// Reads those of the blocks that stand among hot data; the others.
    pub(super) fn read_hot(
        &self,
        hot: &Hot,
        wanted: &[Fetch],
        order: Vec<usize>,
        results: &mut [Option<Bytes>],
    ) -> Vec<usize> {
        let found = hot.find(order.iter().map(|i| wanted[*i].pointer.extent()));
        let (mut parts, mut others) = (Vec::new(), Vec::new());
        for (i, extents) in order.into_iter().zip(found) {
            match extents {
                Some(extents) => parts.extend(extents.into_iter().map(|extent| (i, extent))),
                None => others.push(i),
            }
        }
        let spans = spans(parts.iter().map(|(_, extent)| *extent));
        let read = self.requests(spans.iter().map(|span| (self.bytes(*span), IoKind::Homed)));
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
        if let (Some(hot), Some(turn), What::Unit { .. }) = (self.hot(), turn, fetch.what) {
            hot.offer(fetch.pointer.extent(), bytes, turn);
        }
    }

    /// These extents hold something new, which nobody has read yet.
    pub fn overwritten(&self, homes: &[Extent]) {
        if let Some(hot) = self.hot() {
            hot.overwritten(homes);
        }
    }

    /// A block was read, and is not what it should be, or could not be read.
    pub(super) fn note_wrong(&self, fetch: &Fetch) {
        // Written while its window was read, perhaps: the rest of that is stale, too.
        self.forget_around(self.range(fetch));
        if let (Some(hot), What::Unit { .. }) = (self.hot(), fetch.what) {
            hot.distrust(fetch.pointer.extent());
        }
    }
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
