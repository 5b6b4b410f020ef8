//! Reading blocks for operations that were sent back: one batch, neighbours together, with read-around in the log
//! (DESIGN.md, "Caches and memory").

mod hot;
mod windows;

use crate::blocks::{Fetch, What};
use crate::error::{Corrupt, Error};
use crate::hot::Hot;
use loamfs_device::{Buffer, Device, DeviceError, IoKind, Read, read_exact, sides};
use loamfs_format::{Extent, FragAddr, Geometry};
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use windows::{Around, Held, WINDOW, Windows, numbers};

/// Homed units this close together are read with one request.
const GAP: u64 = 64 << 10;
/// Most bytes of one request.
const REQUEST_MAX: u64 = 1 << 20;
/// Windows that are not worth a short seek: as long as one takes, a rotating disk reads four or five.
const GAP_WINDOWS: u64 = 4;
/// Windows of one request of a sweep at most.
const SWEEP_WINDOWS: u64 = 32;
/// Most bytes of blocks that are taken out of windows at once while others wait for it.
const AT_HAND_MAX: u64 = 128 << 10;

/// Reads blocks of a volume.
pub(crate) struct Reader {
    device: Arc<dyn Device>,
    geometry: Geometry,
    windows: Mutex<Windows>,
    /// Whether windows are read at all.
    around: bool,
    /// What of slow devices stands on fast ones too.
    hot: Option<Hot>,
}

/// The bytes of a fetched block's whole fragments.
pub(crate) enum Slice {
    /// Its own.
    Own(Vec<u8>),
    /// Among those that were read with it.
    Part(Arc<Buffer>, Range<usize>),
}

impl AsRef<[u8]> for Slice {
    fn as_ref(&self) -> &[u8] {
        match self {
            Slice::Own(bytes) => bytes,
            Slice::Part(buffer, range) => buffer.get(range.clone()).unwrap_or_default(),
        }
    }
}

/// What reading a block gave.
pub(crate) type Bytes = Result<Slice, DeviceError>;

impl Reader {
    /// A reader that keeps up to `bytes` bytes of windows.
    pub fn new(device: Arc<dyn Device>, geometry: Geometry, bytes: u64) -> Reader {
        Reader {
            device,
            geometry,
            windows: Mutex::new(Windows::new(bytes)),
            around: true,
            hot: None,
        }
    }

    /// The same, which looks for homed units among hot data first, and keeps them there.
    pub fn that_keeps_hot(self, hot: Option<Hot>) -> Reader {
        Reader { hot, ..self }
    }

    /// Hot data, if any are kept.
    pub fn hot(&self) -> Option<&Hot> {
        self.hot.as_ref()
    }

    /// The same, which reads each block alone, or does not.
    pub fn that_reads_around(self, around: bool) -> Reader {
        Reader { around, ..self }
    }

    /// The same device, but for what stands twice: that is read in its first place alone.
    fn first(&self) -> Arc<dyn Device> {
        let first = sides(self.device.as_ref())
            .ok()
            .and_then(|sides| sides.into_iter().next());
        first.unwrap_or_else(|| Arc::clone(&self.device))
    }

    /// The same device, but for what stands twice: that is read in its second place. None where nothing does.
    fn second(&self) -> Option<Arc<dyn Device>> {
        sides(self.device.as_ref()).ok()?.pop()
    }

    /// The device, in which what stands twice is read in its first place; and the same that reads it in its second.
    pub fn places(&self) -> impl Iterator<Item = Arc<dyn Device>> {
        std::iter::once(self.first()).chain(self.second())
    }

    /// A reader that keeps nothing, and has no other place for what it cannot read in the first.
    pub fn in_first_place(&self) -> Reader {
        Reader::new(self.first(), self.geometry, 0)
    }

    /// Blocks as they are in each place, if they stand in two: the second ones, in the order given.
    pub fn read_second(&self, wanted: &[Fetch]) -> Option<Vec<Bytes>> {
        let second = self.second()?;
        let read = |fetch: &Fetch| {
            let range = self.range(fetch);
            let len = (range.end - range.start) as usize;
            let bytes = read_exact(second.as_ref(), range.start, len, kind(fetch))?;
            Ok(Slice::Own(bytes.to_vec()))
        };
        Some(wanted.iter().map(read).collect())
    }

    /// Keeps up to `bytes` bytes of windows from now on.
    pub fn resize(&self, bytes: u64) {
        self.windows().resize(bytes);
    }

    /// Reads blocks, in the order given. What comes from a window may be stale; `fresh` forbids that.
    pub fn read(&self, wanted: &[Fetch], fresh: bool) -> Vec<Bytes> {
        let (exact, around): (Vec<usize>, Vec<usize>) = self
            .order(wanted)
            .into_iter()
            .partition(|i| fresh || !self.around || matches!(wanted[*i].what, What::Unit { .. }));
        let mut results: Vec<Option<Bytes>> = wanted.iter().map(|_| None).collect();
        let exact = match self.hot().filter(|hot| !fresh && hot.is_on()) {
            Some(hot) => self.read_hot(hot, wanted, exact, &mut results),
            None => exact,
        };
        self.read_exactly(wanted, &exact, &mut results);
        self.read_around(wanted, &around, &mut results);
        let lost = || Err(DeviceError::io(loamfs_device::Op::Read, 0, 0, 5));
        results
            .into_iter()
            .map(|r| r.unwrap_or_else(lost))
            .collect()
    }

    /// Whether what is read of small files' data is read alone: to read around it did not pay lately.
    pub fn reads_alone(&self) -> bool {
        !self.around || !self.windows().data_pay()
    }

    /// Blocks that windows hold, in the order given, if they hold all of them and those are small: no device is touched,
    /// and whoever holds a lock may ask. As the rest of what windows give, they may be stale.
    pub fn at_hand(&self, wanted: &[Fetch]) -> Option<Vec<Vec<u8>>> {
        let bytes = |fetch: &Fetch| {
            let range = self.range(fetch);
            range.end - range.start
        };
        let is_homed = |fetch: &Fetch| matches!(fetch.what, What::Unit { .. });
        if wanted.iter().any(is_homed) || wanted.iter().map(bytes).sum::<u64>() > AT_HAND_MAX {
            return None;
        }
        let order = self.order(wanted);
        let mut windows = self.windows();
        let mut numbers = wanted.iter().flat_map(|fetch| self.numbers(fetch));
        if !numbers.all(|number| windows.holds(number)) {
            return None;
        }
        let found = self.look_up(&mut windows, wanted, &order);
        drop(windows);
        let held = found
            .into_iter()
            .filter_map(|(number, (around, _))| match around {
                Around::Held(bytes) => Some((number, bytes)),
                Around::Whole | Around::Itself | Around::Alone => None,
            });
        let held: Held = held.collect();
        let blocks = wanted
            .iter()
            .map(|fetch| assemble(&held, self.range(fetch)));
        blocks.collect()
    }

    /// The order of addresses.
    fn order(&self, wanted: &[Fetch]) -> Vec<usize> {
        let mut order: Vec<usize> = (0..wanted.len()).collect();
        order.sort_by_key(|i| wanted[*i].pointer.addr);
        order
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
            let read = read.map(Arc::new);
            for i in blocks {
                let range = self.range(&wanted[i]);
                let within = (range.start - span.start) as usize..(range.end - span.start) as usize;
                let piece = |buffer: &Arc<Buffer>| Slice::Part(Arc::clone(buffer), within);
                results[i] = Some(read.as_ref().map(piece).map_err(Clone::clone));
            }
        }
    }

    /// The copies of a node of a map, read one by one, with zeros for those that cannot be read; `None` if there are no
    /// two, or none can be read.
    pub fn copies(&self, fetch: &Fetch) -> Option<Vec<u8>> {
        let What::Node(id) = fetch.what else {
            return None;
        };
        let copies: Vec<Extent> = fetch.pointer.copies(id.kind, &self.geometry).collect();
        let requests = copies.iter().map(|copy| {
            let start = self.geometry.byte_offset(copy.start);
            (start..start + u64::from(fetch.pointer.stored), kind(fetch))
        });
        let read: Vec<Option<Buffer>> = self
            .requests(requests)
            .into_iter()
            .map(Result::ok)
            .collect();
        (copies.len() > 1 && read.iter().any(Option::is_some)).then(|| {
            let zeros = vec![0; fetch.pointer.stored as usize];
            let bytes = read.iter().map(|copy| copy.as_deref().unwrap_or(&zeros));
            bytes.collect::<Vec<&[u8]>>().concat()
        })
    }

    /// Takes blocks out of windows, and reads the windows that are not there, neighbours with one request, where that
    /// paid lately.
    fn read_around(&self, wanted: &[Fetch], order: &[usize], results: &mut [Option<Bytes>]) {
        let around = self.look_up(&mut self.windows(), wanted, order);
        let is_alone = |i: &usize| {
            let mut numbers = self.numbers(&wanted[*i]);
            numbers.any(|number| matches!(around.get(&number), Some((Around::Alone, _))))
        };
        let (alone, order): (Vec<usize>, Vec<usize>) = order.iter().partition(|i| is_alone(i));
        self.read_exactly(wanted, &alone, results);
        let numbers = order.iter().flat_map(|i| self.numbers(&wanted[*i]));
        let needed: BTreeSet<u64> = numbers.collect();
        let mut held = Held::new();
        let mut whole: BTreeMap<u64, IoKind> = BTreeMap::new();
        for (number, (around, kind)) in around {
            match around {
                Around::Held(bytes) => drop(held.insert(number, bytes)),
                Around::Whole if needed.contains(&number) => {
                    whole.extend(self.beside(number, kind).map(|other| (other, kind)));
                    whole.insert(number, kind);
                }
                Around::Itself if needed.contains(&number) => drop(whole.insert(number, kind)),
                Around::Whole | Around::Itself | Around::Alone => {}
            }
        }
        let whole: Vec<(u64, IoKind)> = whole.into_iter().collect();
        let failed = self.read_windows(&whole, &mut held);
        self.windows().keep(&held);
        for i in order {
            let range = self.range(&wanted[i]);
            let error = failed
                .iter()
                .find(|(span, _)| span.start < range.end && range.start < span.end);
            results[i] = match error {
                Some((_, error)) => Some(Err(error.clone())),
                None => assemble(&held, range).map(|bytes| Ok(Slice::Own(bytes))),
            };
        }
    }

    /// The windows that are read along with one of a kind: those of metadata beside it, where a seek is dear.
    fn beside(&self, number: u64, kind: IoKind) -> impl Iterator<Item = u64> {
        let window = self.window(number);
        let dear = kind == IoKind::Metadata && self.device.rotational_at(window.start);
        let beside = match dear {
            true => self.windows().beside(number),
            false => Vec::new(),
        };
        let geometry = self.geometry;
        let volume = geometry.byte_offset(FragAddr(geometry.total_frags));
        beside
            .into_iter()
            .filter(move |other| other * WINDOW < volume)
    }

    /// Reads whole windows, each into memory of its own, neighbours with one request; what could not be read.
    fn read_windows(
        &self,
        whole: &[(u64, IoKind)],
        held: &mut Held,
    ) -> Vec<(Range<u64>, DeviceError)> {
        let spans = || whole.iter().map(|(number, _)| self.window(*number));
        let kinds = whole.iter().map(|(_, kind)| *kind);
        let read = self.requests(spans().zip(kinds));
        let mut failed = Vec::new();
        for (((number, _), span), read) in whole.iter().zip(spans()).zip(read) {
            match read {
                Ok(bytes) => drop(held.insert(*number, Arc::new(bytes))),
                Err(error) => failed.push((span, error)),
            }
        }
        failed
    }

    /// Bytes that may be swept before their blocks are read, so that none is dropped before.
    pub fn sweep_max(&self) -> u64 {
        self.windows().max() as u64 / 2 * WINDOW
    }

    /// Reads the windows that `extents` lie in, ahead of whoever reads blocks in them: in the order of their addresses,
    /// one request after the other, and through short gaps. What cannot be read is left to those who want it.
    pub fn sweep(&self, extents: &[Extent]) {
        let mut missing: BTreeSet<u64> = BTreeSet::new();
        for extent in extents {
            let start = self.geometry.byte_offset(extent.start);
            let end = self.geometry.byte_offset(extent.end());
            missing.extend(numbers(start..end));
        }
        {
            let windows = self.windows();
            missing.retain(|number| !windows.holds(*number));
            // What has no room is left to those who want it, too.
            if let Some(&rest) = missing.iter().nth(windows.max() / 2) {
                missing.split_off(&rest);
            }
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
            let windows = span
                .clone()
                .map(|number| (self.window(number), IoKind::SmallData));
            let read = span.zip(self.requests(windows));
            let wanted = read.filter(|(number, _)| missing.contains(number));
            let read: Held = wanted
                .filter_map(|(number, bytes)| Some((number, Arc::new(bytes.ok()?))))
                .collect();
            self.windows().keep(&read);
        }
    }

    /// The bytes of a window; the volume's last one may be shorter.
    fn window(&self, number: u64) -> Range<u64> {
        let volume = self
            .geometry
            .byte_offset(FragAddr(self.geometry.total_frags));
        number * WINDOW..((number + 1) * WINDOW).min(volume)
    }

    /// The numbers of the windows that a block lies in.
    fn numbers(&self, fetch: &Fetch) -> Range<u64> {
        numbers(self.range(fetch))
    }

    /// What to do about the windows that blocks lie in, with what they are first wanted for.
    fn look_up(
        &self,
        windows: &mut Windows,
        wanted: &[Fetch],
        order: &[usize],
    ) -> BTreeMap<u64, (Around, IoKind)> {
        let mut found: BTreeMap<u64, (Around, IoKind)> = BTreeMap::new();
        for &i in order {
            let kind = kind(&wanted[i]);
            let whole = matches!(wanted[i].what, What::Track(_));
            for number in self.numbers(&wanted[i]) {
                let turns = self.device.rotational_at(self.window(number).start);
                match found.entry(number) {
                    Entry::Vacant(entry) => {
                        let around = match whole {
                            true => windows.ask_whole(number),
                            false => windows.ask(number, kind, turns),
                        };
                        entry.insert((around, kind));
                    }
                    Entry::Occupied(mut entry) => match entry.get_mut() {
                        (around @ Around::Alone, _) => {
                            if windows.ask_with(number, kind, turns) {
                                *around = Around::Whole;
                            }
                        }
                        _ => windows.asked_again(kind, turns),
                    },
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
        self.windows().forget_all();
    }

    /// Forgets every window that overlaps a range: it was written, or is stale.
    pub fn forget_around(&self, range: Range<u64>) {
        let mut windows = self.windows();
        numbers(range).for_each(|number| windows.forget(number));
    }
}

/// What a read of a block counts as.
fn kind(fetch: &Fetch) -> IoKind {
    match fetch.what {
        What::Unit { .. } => IoKind::Homed,
        What::Data(_) => IoKind::SmallData,
        What::Node(_) | What::Meta(_) | What::Track(_) => IoKind::Metadata,
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

/// Reads and takes in what is wanted, which becomes hot data if it may and is read often; what fails, or does not verify, is read again by
/// itself, past the windows. Returns what fails then too: the device's error, or the damage found.
pub(crate) fn fetch_into(
    reader: &Reader,
    wanted: &[Fetch],
    may_be_hot: bool,
    mut take: impl FnMut(&Fetch, &[u8]) -> Result<(), Corrupt>,
) -> Vec<(Fetch, Error)> {
    let turn = reader.turn(wanted).filter(|_| may_be_hot);
    let mut take = |fetch: &Fetch, bytes: Bytes| {
        let bytes = bytes?;
        take(fetch, bytes.as_ref())?;
        reader.note_read(fetch, bytes.as_ref(), turn);
        Ok::<(), Error>(())
    };
    let mut failed = Vec::new();
    for (fetch, bytes) in wanted.iter().zip(reader.read(wanted, false)) {
        if take(fetch, bytes).is_ok() {
            continue;
        }
        reader.note_wrong(fetch);
        for bytes in reader.read(std::slice::from_ref(fetch), true) {
            let again = take(
                fetch,
                bytes.or_else(|error| reader.copies(fetch).map(Slice::Own).ok_or(error)),
            );
            let again = again.or_else(|error| {
                let second = reader.read_second(std::slice::from_ref(fetch));
                let second = second.into_iter().flatten().next();
                let taken = second.is_some_and(|bytes| take(fetch, bytes).is_ok());
                taken.then_some(()).ok_or(error)
            });
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
    use loamfs_device::{MemoryDevice, Write};
    use loamfs_format::{Ino, InodeBlockNo, Pointer};

    const MIB: u64 = 1024;

    fn geometry() -> Geometry {
        Geometry {
            fragment_size: 1024,
            block_size: 16 << 10,
            small_size: 16 << 10,
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
        let before = device.counters().total().read_bytes;
        reader.sweep(&[Extent::new(FragAddr(32 * MIB), 16 * MIB)]);
        let read = device.counters().total().read_bytes - before;
        assert_eq!(read, reader.sweep_max(), "no more than is kept");
    }

    fn data(at: u64, frags: u32) -> Fetch {
        let pointer = Pointer {
            addr: FragAddr(at),
            frags,
            stored: frags << 10,
            ..Pointer::NONE
        };
        let what = What::Data(Ino(7));
        Fetch { pointer, what }
    }

    /// Requests and bytes that reading a block takes.
    fn cost(reader: &Reader, fetch: Fetch) -> (u64, u64) {
        let before = reader.device.counters().total();
        assert!(reader.read(&[fetch], false)[0].is_ok());
        let now = reader.device.counters().total();
        (now.reads - before.reads, now.read_bytes - before.read_bytes)
    }

    /// Fragments of a window.
    const FRAGS: u64 = WINDOW >> 10;

    /// Small files that are read at random have nothing in common but their windows, each of which takes as long as an
    /// eighth of a seek, and the place of another.
    #[test]
    fn windows_are_read_as_long_as_that_pays() {
        let memory = MemoryDevice::new(64 << 20).with_rotational(true);
        let device: Arc<dyn Device> = Arc::new(memory);
        let reader = Reader::new(Arc::clone(&device), geometry(), 1 << 20);
        let read = |at: u64| cost(&reader, data(at, 4));
        let (alone, whole) = ((1, 4 << 10), (1, WINDOW));
        assert_eq!(read(8 * FRAGS), whole, "until they were tried");
        for i in 0..100 {
            read((16 + i * 37 % 200) * FRAGS);
        }
        let (last, next) = (230 * FRAGS, 240 * FRAGS);
        assert_eq!(read(last), alone);
        let over_two = cost(&reader, data(last + FRAGS - 8, 16));
        assert_eq!(over_two, (1, 16 << 10), "nobody would take of the first");
        assert_eq!(read(next), alone);
        assert_eq!(read(next + 8), whole, "it is asked for again");
        assert_eq!(read(next + 16), (0, 0));
        for i in 0..u64::from(windows::LATELY) {
            read(next + i % 32);
        }
        assert_eq!(read(next + FRAGS), whole, "they pay again");
    }

    /// A window took as long as five blocks, and for the few blocks that lead to a file there were two windows.
    #[test]
    fn where_nothing_turns_windows_are_read_once_blocks_of_them_are_wanted() {
        let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(64 << 20));
        let reader = Reader::new(Arc::clone(&device), geometry(), 16 << 20);
        let read = |at: u64| cost(&reader, data(at, 4));
        let (alone, whole) = ((1, 4 << 10), (1, WINDOW));
        for number in 0..100 {
            assert_eq!(
                read((10 + number) * FRAGS),
                alone,
                "nothing else of it is wanted"
            );
        }
        for block in 1..6 {
            let read = read(109 * FRAGS + 8 * block);
            assert_eq!(read, if block < 5 { alone } else { whole });
        }
        assert_eq!(read(109 * FRAGS + 100), (0, 0));
        // Who reads one file after the other has whole windows soon, and goes back to single blocks when he reads at random.
        let dense = |window: u64| -> u64 {
            let blocks = (0..64).map(|block| read(window * FRAGS + 4 * block).0);
            blocks.sum()
        };
        let requests: Vec<u64> = (120..150).map(dense).collect();
        assert!(
            requests[10..].iter().all(|requests| *requests == 1),
            "{requests:?}"
        );
        let at_random: Vec<(u64, u64)> = (150..250).map(|window| read(window * FRAGS)).collect();
        assert_eq!(at_random[0], whole);
        assert!(
            at_random[64..].iter().all(|read| *read == alone),
            "{at_random:?}"
        );
        // Near ones together take one request, and no more bytes than to the last of them.
        let near = [data(252 * FRAGS, 4), data(252 * FRAGS + 12, 4)];
        let before = device.counters().total();
        assert!(reader.read(&near, false).iter().all(Result::is_ok));
        let after = device.counters().total();
        let took = (
            after.reads - before.reads,
            after.read_bytes - before.read_bytes,
        );
        assert_eq!(took, (1, 16 << 10));
    }

    /// What leads to the tracks of an arranged tree stands in a few MiB: each of its windows cost a seek.
    #[test]
    fn windows_of_metadata_bring_those_beside_them_as_long_as_that_pays() {
        let memory = MemoryDevice::new(64 << 20).with_rotational(true);
        let device: Arc<dyn Device> = Arc::new(memory);
        let reader = Reader::new(Arc::clone(&device), geometry(), 32 << 20);
        let what = What::Meta(crate::inodes::block_identity(InodeBlockNo(1)));
        let block = |at: u64| Fetch {
            what,
            ..data(at, 4)
        };
        // Two blocks of a window, so that windows themselves pay.
        let node = |window: u64| {
            let first = cost(&reader, block(window * FRAGS));
            assert_eq!(cost(&reader, block(window * FRAGS + 8)), (0, 0));
            first
        };
        assert_eq!(node(4), (1, 4 * WINDOW), "until they were tried");
        assert_eq!([node(5), node(6), node(7)], [(0, 0); 3]);
        for part in (10..60).rev() {
            node(part * 4);
        }
        reader.forget();
        assert_eq!(node(21), (1, WINDOW), "nobody asked for those beside");
        for part in 2..8 {
            for window in 0..4 {
                node(part * 4 + window);
            }
        }
        reader.forget();
        assert_eq!(node(21), (1, 4 * WINDOW), "they would have paid");
        let track = Fetch {
            what: What::Track(crate::inodes::block_identity(InodeBlockNo(1))),
            ..data(30 * FRAGS, 4)
        };
        assert_eq!(
            cost(&reader, track),
            (1, WINDOW),
            "one brings all of a track"
        );
    }

    /// It was written while it was read around another block.
    #[test]
    fn a_window_that_is_stale_is_read_again() {
        let memory = MemoryDevice::new(64 << 20).with_rotational(true);
        let device: Arc<dyn Device> = Arc::new(memory);
        let reader = Reader::new(Arc::clone(&device), geometry(), 1 << 20);
        cost(&reader, data(8 * FRAGS, 4));
        let new = vec![7; WINDOW as usize];
        device.write(&[Write::new(8 * WINDOW, &new, IoKind::Segment)]);
        let before = device.counters().total().reads;
        for at in (8 * FRAGS..9 * FRAGS).step_by(4) {
            let failed = fetch_into(&reader, &[data(at, 4)], true, |fetch, bytes| {
                let (addr, ino) = (fetch.pointer.addr, fetch.ino());
                let is_new = bytes.iter().all(|byte| *byte == 7);
                is_new.then_some(()).ok_or(Corrupt::Pointer { addr, ino })
            });
            assert!(failed.is_empty());
        }
        let reads = device.counters().total().reads - before;
        assert_eq!(reads, 2, "the block that did not fit, and the window");
    }
}
