//! Reading blocks for operations that were sent back: one batch, neighbours together, with read-around in the log
//! (DESIGN.md section 8).

use crate::blocks::{Fetch, What};
use crate::error::{Corrupt, Error};
use loamfs_device::{Buffer, Device, DeviceError, IoKind, Read};
use loamfs_format::{Extent, Geometry};
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Bytes read around a block of the log: a small part of what a seek costs on a rotating disk.
const WINDOW: u64 = 256 << 10;
/// Homed units this close together are read with one request.
const GAP: u64 = 64 << 10;
/// Most bytes of one request.
const REQUEST_MAX: u64 = 1 << 20;
/// Windows that are not worth a short seek: as long as one takes, a rotating disk reads four or five.
const GAP_WINDOWS: u64 = 4;
/// Windows of one request of a sweep at most.
const SWEEP_WINDOWS: u64 = 32;
/// Windows of which one must save a seek: as long as one from anywhere takes, a rotating disk reads eight to ten.
const SEEK_WINDOWS: u32 = 8;
/// Over so many windows is it told whether they pay.
const LATELY: u32 = 64;

/// A window's worth of the device, as it was read a while ago.
struct Window {
    /// Nothing, where only a block was read of it.
    bytes: Option<Arc<[u8]>>,
    /// When it was last used, in look-ups.
    used: u64,
}

/// Windows by number: offset / [`WINDOW`].
#[derive(Default)]
struct Windows {
    map: HashMap<u64, Window>,
    clock: u64,
    max: usize,
    /// What those of metadata and of small files' data gave.
    metadata: Yield,
    data: Yield,
}

/// What windows gave lately: those that were read for a block, or would have been, and how often another block was asked
/// for that lies in one.
struct Yield {
    asked: u32,
    again: u32,
}

impl Default for Yield {
    /// Until they were tried, windows pay.
    fn default() -> Self {
        let again = LATELY / SEEK_WINDOWS;
        Self { asked: 0, again }
    }
}

/// What to do about a window in which a block lies.
enum Around {
    /// Take it.
    Held(Arc<[u8]>),
    /// Read it.
    Whole,
    /// Read the block alone.
    Alone,
}

/// Bytes of windows by number.
type Held = BTreeMap<u64, Arc<[u8]>>;

/// Reads blocks of a volume.
pub(crate) struct Reader {
    device: Arc<dyn Device>,
    geometry: Geometry,
    windows: Mutex<Windows>,
}

/// The bytes of a fetched block's whole fragments.
pub(crate) type Bytes = Result<Vec<u8>, DeviceError>;

impl Reader {
    /// A reader that keeps up to `bytes` bytes of windows.
    pub fn new(device: Arc<dyn Device>, geometry: Geometry, bytes: usize) -> Reader {
        let max = (bytes as u64 / WINDOW).max(4) as usize;
        let windows = Windows {
            max,
            ..Windows::default()
        };
        Reader {
            device,
            geometry,
            windows: Mutex::new(windows),
        }
    }

    /// Reads blocks, in the order given. What comes from a window may be stale; `fresh` forbids that.
    pub fn read(&self, wanted: &[Fetch], fresh: bool) -> Vec<Bytes> {
        let mut order: Vec<usize> = (0..wanted.len()).collect();
        order.sort_by_key(|i| wanted[*i].pointer.addr);
        let (exact, around): (Vec<usize>, Vec<usize>) = order
            .into_iter()
            .partition(|i| fresh || matches!(wanted[*i].what, What::Unit { .. }));
        let mut results: Vec<Option<Bytes>> = wanted.iter().map(|_| None).collect();
        self.read_exactly(wanted, &exact, &mut results);
        self.read_around(wanted, &around, &mut results);
        let lost = || Err(DeviceError::io(loamfs_device::Op::Read, 0, 0, 5));
        results
            .into_iter()
            .map(|r| r.unwrap_or_else(lost))
            .collect()
    }

    fn range(&self, fetch: &Fetch) -> Range<u64> {
        let start = self.geometry.byte_offset(fetch.pointer.addr);
        let len = u64::from(fetch.pointer.frags) * u64::from(self.geometry.fragment_size);
        start..start + len
    }

    /// Reads blocks, in the order of their addresses, those that are close together with one request.
    fn read_exactly(&self, wanted: &[Fetch], order: &[usize], results: &mut [Option<Bytes>]) {
        let mut spans: Vec<(Range<u64>, Vec<usize>)> = Vec::new();
        for &i in order {
            let range = self.range(&wanted[i]);
            if let Some((span, blocks)) = spans.last_mut()
                && range.start <= span.end + GAP
                && range.end.saturating_sub(span.start) <= REQUEST_MAX
            {
                span.end = span.end.max(range.end);
                blocks.push(i);
            } else {
                spans.push((range, vec![i]));
            }
        }
        let requests = spans
            .iter()
            .map(|(span, blocks)| (span.clone(), kind(&wanted[blocks[0]])));
        let read = self.requests(requests);
        for ((span, blocks), read) in spans.into_iter().zip(read) {
            for i in blocks {
                let range = self.range(&wanted[i]);
                let within = (range.start - span.start) as usize..(range.end - span.start) as usize;
                results[i] = match &read {
                    Ok(bytes) => bytes.get(within).map(|part| Ok(part.to_vec())),
                    Err(error) => Some(Err(error.clone())),
                };
            }
        }
    }

    /// Takes blocks out of windows, and reads the windows that are not there, neighbours with one request, where that
    /// paid lately.
    fn read_around(&self, wanted: &[Fetch], order: &[usize], results: &mut [Option<Bytes>]) {
        let around = self.look_up(wanted, order);
        let is_alone = |i: &usize| {
            let mut numbers = self.numbers(&wanted[*i]);
            numbers.any(|number| matches!(around.get(&number), Some((Around::Alone, _))))
        };
        let (alone, order): (Vec<usize>, Vec<usize>) = order.iter().partition(|i| is_alone(i));
        self.read_exactly(wanted, &alone, results);
        let mut held = Held::new();
        let mut whole = Vec::new();
        for (number, (around, kind)) in around {
            match around {
                Around::Held(bytes) => drop(held.insert(number, bytes)),
                Around::Whole => whole.push((number, kind)),
                Around::Alone => {}
            }
        }
        let size = self.size();
        let mut spans: Vec<(Range<u64>, IoKind)> = Vec::new();
        for (number, kind) in whole {
            let window = number * WINDOW..((number + 1) * WINDOW).min(size);
            if let Some((span, _)) = spans.last_mut()
                && span.end == window.start
                && window.end - span.start <= REQUEST_MAX
            {
                span.end = window.end;
            } else {
                spans.push((window, kind));
            }
        }
        let read = self.requests(spans.iter().cloned());
        let mut failed: Vec<(Range<u64>, DeviceError)> = Vec::new();
        for ((span, _), read) in spans.into_iter().zip(read) {
            match read {
                // Copied: a window that is dropped must not leave its bytes behind with others of the same request.
                Ok(bytes) => held.extend(
                    (span.start / WINDOW..)
                        .zip(bytes.chunks(WINDOW as usize))
                        .map(|(number, bytes)| (number, Arc::from(bytes))),
                ),
                Err(error) => failed.push((span, error)),
            }
        }
        self.windows().keep(&held);
        for i in order {
            let range = self.range(&wanted[i]);
            let error = failed
                .iter()
                .find(|(span, _)| span.start < range.end && range.start < span.end);
            results[i] = match error {
                Some((_, error)) => Some(Err(error.clone())),
                None => assemble(&held, range).map(Ok),
            };
        }
    }

    /// Bytes that may be swept before their blocks are read, so that none is dropped before.
    pub fn sweep_max(&self) -> u64 {
        self.windows().max as u64 / 2 * WINDOW
    }

    /// Reads the windows that `extents` lie in, ahead of whoever reads blocks in them: in the order of their addresses,
    /// one request after the other, and through short gaps. What cannot be read is left to those who want it.
    pub fn sweep(&self, extents: &[Extent]) {
        let mut missing: BTreeSet<u64> = BTreeSet::new();
        for extent in extents {
            let start = self.geometry.byte_offset(extent.start);
            let end = self.geometry.byte_offset(extent.end());
            missing.extend(start / WINDOW..end.div_ceil(WINDOW));
        }
        {
            let windows = self.windows();
            missing.retain(|number| !windows.holds(*number));
        }
        let mut spans: Vec<Range<u64>> = Vec::new();
        for number in &missing {
            match spans.last_mut() {
                Some(span)
                    if *number <= span.end + GAP_WINDOWS
                        && *number < span.start + SWEEP_WINDOWS =>
                {
                    span.end = number + 1;
                }
                _ => spans.push(*number..number + 1),
            }
        }
        for span in spans {
            let range = span.start * WINDOW..(span.end * WINDOW).min(self.size());
            let read = self.requests(std::iter::once((range, IoKind::SmallData)));
            let Some(Ok(bytes)) = read.into_iter().next() else {
                continue;
            };
            let windows = span.zip(bytes.chunks(WINDOW as usize));
            let wanted = windows.filter(|(number, _)| missing.contains(number));
            let read: Held = wanted.map(|(number, part)| (number, part.into())).collect();
            self.windows().keep(&read);
        }
    }

    /// Bytes of the volume.
    fn size(&self) -> u64 {
        let end = loamfs_format::FragAddr(self.geometry.total_frags);
        self.geometry.byte_offset(end)
    }

    /// The numbers of the windows that a block lies in.
    fn numbers(&self, fetch: &Fetch) -> Range<u64> {
        let range = self.range(fetch);
        range.start / WINDOW..range.end.div_ceil(WINDOW)
    }

    /// What to do about the windows that blocks lie in, with what they are first wanted for.
    fn look_up(&self, wanted: &[Fetch], order: &[usize]) -> BTreeMap<u64, (Around, IoKind)> {
        let mut found: BTreeMap<u64, (Around, IoKind)> = BTreeMap::new();
        let mut windows = self.windows();
        for &i in order {
            let kind = kind(&wanted[i]);
            for number in self.numbers(&wanted[i]) {
                match found.entry(number) {
                    Entry::Vacant(entry) => drop(entry.insert((windows.ask(number, kind), kind))),
                    Entry::Occupied(mut entry) => {
                        windows.yields(kind).found();
                        if let (around @ Around::Alone, _) = entry.get_mut() {
                            *around = Around::Whole;
                        }
                    }
                }
            }
        }
        found
    }

    /// Reads ranges of the device in one batch.
    fn requests(
        &self,
        requests: impl Iterator<Item = (Range<u64>, IoKind)>,
    ) -> Vec<Result<Buffer, DeviceError>> {
        let mut batch: Vec<Read> = requests
            .map(|(range, kind)| Read::new(range.start, (range.end - range.start) as usize, kind))
            .collect();
        self.device.read(&mut batch);
        batch.into_iter().map(Read::into_result).collect()
    }

    fn windows(&self) -> MutexGuard<'_, Windows> {
        self.windows.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Forgets all windows.
    pub fn forget(&self) {
        self.windows().map.clear();
    }

    /// Forgets every window that overlaps what was just written.
    pub fn written(&self, offset: u64, len: u64) {
        let mut windows = self.windows();
        for number in offset / WINDOW..(offset + len).div_ceil(WINDOW) {
            windows.map.remove(&number);
        }
    }
}

impl Windows {
    /// What to do about a window in which a block of a kind lies.
    fn ask(&mut self, number: u64, kind: IoKind) -> Around {
        self.clock += 1;
        if let Some(window) = self.map.get_mut(&number) {
            window.used = self.clock;
            let bytes = window.bytes.clone();
            self.yields(kind).found();
            return bytes.map_or(Around::Whole, Around::Held);
        }
        if self.yields(kind).ask() {
            return Around::Whole;
        }
        self.insert(number, None);
        Around::Alone
    }

    fn yields(&mut self, kind: IoKind) -> &mut Yield {
        match kind {
            IoKind::SmallData => &mut self.data,
            _ => &mut self.metadata,
        }
    }

    /// Keeps windows.
    fn keep(&mut self, windows: &Held) {
        for (number, bytes) in windows {
            if !self.holds(*number) {
                self.insert(*number, Some(Arc::clone(bytes)));
            }
        }
    }

    fn holds(&self, number: u64) -> bool {
        let window = self.map.get(&number);
        window.is_some_and(|window| window.bytes.is_some())
    }

    /// Inserts a window, in place of those that were not used for longest.
    fn insert(&mut self, number: u64, bytes: Option<Arc<[u8]>>) {
        while self.map.len() >= self.max && !self.map.contains_key(&number) {
            let oldest = self.map.iter().min_by_key(|(_, w)| w.used);
            if let Some(number) = oldest.map(|(number, _)| *number) {
                self.map.remove(&number);
            }
        }
        let used = self.clock;
        self.map.insert(number, Window { bytes, used });
    }
}

impl Yield {
    /// One more window would be read. Returns whether that paid lately.
    fn ask(&mut self) -> bool {
        self.asked += 1;
        if self.asked == LATELY {
            self.asked /= 2;
            self.again /= 2;
        }
        self.again * SEEK_WINDOWS >= self.asked
    }

    /// Another block was asked for that lies in one.
    fn found(&mut self) {
        self.again = LATELY.min(self.again + 1);
    }
}

/// What a read of a block counts as.
fn kind(fetch: &Fetch) -> IoKind {
    match fetch.what {
        What::Unit { .. } => IoKind::Homed,
        What::Data(_) => IoKind::SmallData,
        What::Node(_) | What::Meta(_) => IoKind::Metadata,
    }
}

/// The bytes of a range, if the windows hold them all.
fn assemble(windows: &Held, range: Range<u64>) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity((range.end - range.start) as usize);
    let mut at = range.start;
    while at < range.end {
        let within = (at % WINDOW) as usize;
        let here = (WINDOW - at % WINDOW).min(range.end - at);
        let window = windows.get(&(at / WINDOW))?;
        bytes.extend_from_slice(window.get(within..within + here as usize)?);
        at += here;
    }
    Some(bytes)
}

/// Reads and takes in what is wanted; what fails, or does not verify, is read again by itself, past the windows.
/// Returns what fails then too: the device's error, or the damage found.
pub(crate) fn fetch_into(
    reader: &Reader,
    wanted: &[Fetch],
    mut take: impl FnMut(&Fetch, &[u8]) -> Result<(), Corrupt>,
) -> Vec<(Fetch, Error)> {
    let mut take = |fetch: &Fetch, bytes: Bytes| Ok::<(), Error>(take(fetch, &bytes?)?);
    let mut failed = Vec::new();
    for (fetch, bytes) in wanted.iter().zip(reader.read(wanted, false)) {
        if take(fetch, bytes).is_ok() {
            continue;
        }
        for bytes in reader.read(std::slice::from_ref(fetch), true) {
            let again = take(fetch, bytes);
            failed.extend(again.err().map(|error| (*fetch, error)));
        }
    }
    failed
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::blocks::Fetch;
    use loamfs_device::MemoryDevice;
    use loamfs_format::{FragAddr, Ino, Pointer};

    const MIB: u64 = 1024;

    fn geometry() -> Geometry {
        Geometry {
            fragment_size: 1024,
            block_size: 16 << 10,
            group_frags: 8 * MIB,
            total_frags: 64 * MIB,
            segment_max: 1 << 20,
            checkpoint_segments_max: 64,
            checkpoint_summary_max: 1 << 20,
            checkpoint_nodes_max: 2048,
        }
    }

    fn at(start: u64) -> Extent {
        Extent::new(FragAddr(start), 8)
    }

    /// What lives in a group that is emptied was read in pieces, and again when something else came in between.
    #[test]
    fn what_was_swept_is_read_once_and_through_short_gaps() {
        let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(64 << 20));
        let reader = Reader::new(Arc::clone(&device), geometry(), 16 << 20);
        assert_eq!(reader.sweep_max(), 8 << 20);
        let requests = || device.counters().total().reads;
        let live = [at(9 * MIB), at(8 * MIB), at(8 * MIB + 700), at(20 * MIB)];
        reader.sweep(&live);
        assert_eq!(requests(), 2, "one for each group");
        let wanted = live.map(|extent| Fetch {
            pointer: Pointer {
                addr: extent.start,
                frags: 8,
                stored: 8192,
                ..Pointer::NONE
            },
            what: What::Data(Ino(7)),
        });
        assert!(reader.read(&wanted, false).iter().all(Result::is_ok));
        reader.sweep(&live);
        assert_eq!(requests(), 2, "nothing is read again");
        reader.sweep(&[at(8 * MIB + 300)]);
        assert_eq!(requests(), 3, "what was in a gap is not kept");
    }

    /// Small files that are read at random have nothing in common but their windows, each of which takes as long as an
    /// eighth of a seek, and the place of another.
    #[test]
    fn windows_are_read_as_long_as_that_pays() {
        let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(64 << 20));
        let reader = Reader::new(Arc::clone(&device), geometry(), 1 << 20);
        let read = |at: u64| {
            let pointer = Pointer {
                addr: FragAddr(at),
                frags: 4,
                stored: 4096,
                ..Pointer::NONE
            };
            let what = What::Data(Ino(7));
            let before = device.counters().total();
            assert!(reader.read(&[Fetch { pointer, what }], false)[0].is_ok());
            let now = device.counters().total();
            (now.reads - before.reads, now.read_bytes - before.read_bytes)
        };
        let window = WINDOW >> 10;
        let (alone, whole) = ((1, 4 << 10), (1, WINDOW));
        assert_eq!(read(8 * window), whole, "until they were tried");
        let far = |i: u64| read((16 + i * 37 % 200) * window);
        for i in 0..100 {
            far(i);
        }
        assert_eq!(far(100), alone);
        let next = 240 * window;
        assert_eq!(read(next), alone);
        assert_eq!(read(next + 8), whole, "it is asked for again");
        assert_eq!(read(next + 16), (0, 0));
        for i in 0..u64::from(LATELY) {
            read(next + i % 32);
        }
        assert_eq!(read(next + window), whole, "they pay again");
    }
}
