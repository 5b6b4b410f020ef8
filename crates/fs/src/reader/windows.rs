//! Pieces of the log that were read around a block, for the sake of the blocks beside it; and whether that pays.

use loamfs_device::{Buffer, IoKind};
use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::sync::Arc;

/// Bytes of a window: a small part of what a seek costs on a rotating disk.
pub(super) const WINDOW: u64 = 256 << 10;
/// Least number of windows.
const MIN: usize = 4;
/// Windows of which one must save a seek: as long as one from anywhere takes, a rotating disk reads eight to ten.
const SEEK_WINDOWS: u32 = 8;
/// Over so many windows is it told whether they pay.
pub(super) const LATELY: u32 = 64;

/// Bytes of windows by number: offset / [`WINDOW`].
pub(super) type Held = BTreeMap<u64, Arc<Buffer>>;

/// The numbers of the windows that a range of the device lies in.
pub(super) fn numbers(range: Range<u64>) -> Range<u64> {
    range.start / WINDOW..range.end.div_ceil(WINDOW)
}

/// What to do about a window in which a block lies.
pub(super) enum Around {
    /// Take it.
    Held(Arc<Buffer>),
    /// Read it.
    Whole,
    /// Read the block alone.
    Alone,
}

struct Window {
    /// Nothing, where only a block was read of it.
    bytes: Option<Arc<Buffer>>,
    /// When it was last used, in look-ups.
    used: u64,
}

/// The windows that were used last.
pub(super) struct Windows {
    map: HashMap<u64, Window>,
    /// Their numbers, by when they were last used.
    by_use: BTreeMap<u64, u64>,
    clock: u64,
    max: usize,
    /// What those of metadata and of small files' data gave.
    metadata: Yield,
    data: Yield,
}

impl Windows {
    /// None yet, of at most so many bytes.
    pub fn new(bytes: u64) -> Self {
        Self {
            map: HashMap::new(),
            by_use: BTreeMap::new(),
            clock: 0,
            max: count(bytes),
            metadata: Yield::default(),
            data: Yield::default(),
        }
    }

    /// From now on they take at most so many bytes.
    pub fn resize(&mut self, bytes: u64) {
        self.max = count(bytes);
        self.make_room(self.max);
    }

    /// How many there may be.
    pub fn max(&self) -> usize {
        self.max
    }

    /// What to do about a window in which a block of a kind lies.
    pub fn ask(&mut self, number: u64, kind: IoKind) -> Around {
        if let Some(Window { bytes, .. }) = self.take(number) {
            self.insert(number, bytes.clone());
            self.asked_again(kind);
            return bytes.map_or(Around::Whole, Around::Held);
        }
        if self.yields(kind).one_more() {
            return Around::Whole;
        }
        self.insert(number, None);
        Around::Alone
    }

    /// As [`Windows::ask`], for what is read for the sake of the whole window.
    pub fn ask_whole(&mut self, number: u64) -> Around {
        let window = self.take(number);
        let bytes = window.and_then(|window| window.bytes);
        if let Some(bytes) = &bytes {
            self.insert(number, Some(Arc::clone(bytes)));
        }
        bytes.map_or(Around::Whole, Around::Held)
    }

    /// A block of a kind lies in a window that another one was asked for in.
    pub fn asked_again(&mut self, kind: IoKind) {
        self.yields(kind).again();
    }

    /// Keeps windows that are not there.
    pub fn keep(&mut self, windows: &Held) {
        for (number, bytes) in windows {
            if !self.holds(*number) {
                self.insert(*number, Some(Arc::clone(bytes)));
            }
        }
    }

    /// Whether a window's bytes are there.
    pub fn holds(&self, number: u64) -> bool {
        let window = self.map.get(&number);
        window.is_some_and(|window| window.bytes.is_some())
    }

    /// Forgets a window.
    pub fn forget(&mut self, number: u64) {
        self.take(number);
    }

    /// Forgets them all.
    pub fn forget_all(&mut self) {
        self.make_room(0);
    }

    fn yields(&mut self, kind: IoKind) -> &mut Yield {
        match kind {
            IoKind::SmallData => &mut self.data,
            _ => &mut self.metadata,
        }
    }

    fn take(&mut self, number: u64) -> Option<Window> {
        let window = self.map.remove(&number)?;
        self.by_use.remove(&window.used);
        Some(window)
    }

    fn insert(&mut self, number: u64, bytes: Option<Arc<Buffer>>) {
        self.take(number);
        self.make_room(self.max - 1);
        self.clock += 1;
        let used = self.clock;
        self.map.insert(number, Window { bytes, used });
        self.by_use.insert(used, number);
    }

    /// Leaves so many of those that were used last.
    fn make_room(&mut self, most: usize) {
        while self.map.len() > most
            && let Some((_, number)) = self.by_use.pop_first()
        {
            self.map.remove(&number);
        }
    }
}

/// Windows in so many bytes.
fn count(bytes: u64) -> usize {
    usize::try_from(bytes / WINDOW)
        .unwrap_or(usize::MAX)
        .max(MIN)
}

/// What windows gave lately: those that were read for a block, or would have been, and how often another block was asked
/// for that lies in one.
struct Yield {
    windows: u32,
    again: u32,
}

impl Default for Yield {
    /// Until they were tried, windows pay.
    fn default() -> Self {
        let again = LATELY / SEEK_WINDOWS;
        Self { windows: 0, again }
    }
}

impl Yield {
    /// One more window would be read. Returns whether that paid lately.
    fn one_more(&mut self) -> bool {
        self.windows += 1;
        if self.windows == LATELY {
            self.windows /= 2;
            self.again /= 2;
        }
        self.again * SEEK_WINDOWS >= self.windows
    }

    fn again(&mut self) {
        self.again = LATELY.min(self.again + 1);
    }
}
