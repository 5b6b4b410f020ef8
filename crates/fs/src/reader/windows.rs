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
/// The same where the head stands between others that are wanted, as it does among metadata.
const SHORT_SEEK_WINDOWS: u32 = 4;
/// Windows that are read at once, where those beside one that is wanted pay: a part of the device that begins at a multiple of it.
const BESIDE: u64 = 4;
/// Least number of windows of which that takes a small part.
const MANY: usize = 16 * BESIDE as usize;
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
    /// Read it for what stands in it: those beside it have nothing in common with that.
    Itself,
    /// Read the block alone.
    Alone,
}

struct Window {
    /// Nothing, where only a block was read of it.
    bytes: Option<Arc<Buffer>>,
    /// When it was last used, in look-ups.
    used: u64,
    /// It was read beside another one, or would have been, and nobody asked for it so far.
    beside: bool,
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
    /// What those gave that were read beside others of metadata.
    beside: Yield,
}

impl Windows {
    /// None yet, of at most so many bytes.
    pub fn new(bytes: u64) -> Self {
        Self {
            map: HashMap::new(),
            by_use: BTreeMap::new(),
            clock: 0,
            max: count(bytes),
            metadata: Yield::new(SEEK_WINDOWS),
            data: Yield::new(SEEK_WINDOWS),
            beside: Yield::new(SHORT_SEEK_WINDOWS),
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
        let found = self.take_asked(number);
        if let Some(Window { bytes, beside, .. }) = found {
            self.insert(number, bytes.clone());
            if !beside {
                self.asked_again(kind);
                return bytes.map_or(Around::Whole, Around::Held);
            }
            if let Some(bytes) = bytes {
                self.yields(kind).one_more();
                return Around::Held(bytes);
            }
        }
        if self.yields(kind).one_more() {
            return Around::Whole;
        }
        self.insert(number, None);
        Around::Alone
    }

    /// As [`Windows::ask`], for what is read for the sake of the whole window.
    pub fn ask_whole(&mut self, number: u64) -> Around {
        let window = self.take_asked(number);
        let bytes = window.and_then(|window| window.bytes);
        if let Some(bytes) = &bytes {
            self.insert(number, Some(Arc::clone(bytes)));
        }
        bytes.map_or(Around::Itself, Around::Held)
    }

    /// The windows beside one of metadata that are to be read along with it: those of its part of the device that are not there, if
    /// such ones paid lately. Else one is noted, which tells when they would.
    pub fn beside(&mut self, number: u64) -> Vec<u64> {
        if self.max < MANY {
            return Vec::new();
        }
        let (pays, first) = (self.beside.pays(), number / BESIDE * BESIDE);
        let mut others: Vec<u64> = (first..first + BESIDE)
            .filter(|other| !self.map.contains_key(other))
            .filter(|other| {
                if pays {
                    *other != number
                } else {
                    *other == number ^ 1
                }
            })
            .collect();
        for other in &others {
            self.beside.one_more();
            self.insert(*other, None);
            if let Some(window) = self.map.get_mut(other) {
                window.beside = true;
            }
        }
        others.retain(|_| pays);
        others
    }

    /// Whether those of small files' data paid lately.
    pub fn data_pay(&self) -> bool {
        self.data.pays()
    }

    /// A block of a kind lies in a window that another one was asked for in.
    pub fn asked_again(&mut self, kind: IoKind) {
        self.yields(kind).again();
    }

    /// Keeps windows that are not there.
    pub fn keep(&mut self, windows: &Held) {
        for (number, bytes) in windows {
            let beside = self.map.get(number).is_some_and(|window| window.beside);
            if !self.holds(*number) {
                self.insert(*number, Some(Arc::clone(bytes)));
            }
            if let Some(window) = self.map.get_mut(number) {
                window.beside = beside;
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

    /// Takes a window that somebody asks for: one that was read beside another one, or would have been, paid then.
    fn take_asked(&mut self, number: u64) -> Option<Window> {
        let window = self.take(number)?;
        if window.beside {
            self.beside.again();
        }
        Some(window)
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
        let window = Window {
            bytes,
            used: self.clock,
            beside: false,
        };
        self.map.insert(number, window);
        self.by_use.insert(self.clock, number);
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
    /// Of so many one must pay.
    of: u32,
}

impl Yield {
    /// Until they were tried, windows pay.
    fn new(of: u32) -> Self {
        Self {
            windows: 0,
            again: LATELY / of,
            of,
        }
    }

    /// One more window would be read. Returns whether that paid lately.
    fn one_more(&mut self) -> bool {
        self.windows += 1;
        if self.windows == LATELY {
            self.windows /= 2;
            self.again /= 2;
        }
        self.pays()
    }

    /// Whether they paid lately.
    fn pays(&self) -> bool {
        self.again * self.of >= self.windows
    }

    fn again(&mut self) {
        self.again = LATELY.min(self.again + 1);
    }
}
