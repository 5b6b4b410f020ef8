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
/// Blocks that a window must save where nothing turns: reading one alone takes such a disk a fifth of what a window does.
const SOLID_BLOCKS: u32 = 5;
/// Windows there that are taken for tried, and of no use, until some were.
const SOLID_TRIED: u32 = 2;
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
    /// Blocks that it was asked for, as long as they are read alone.
    asked: u32,
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
    /// What those gave on devices that turn, and on others.
    turning: Yields,
    solid: Yields,
    /// Whether that turns where small files' data were last asked for.
    data_turn: bool,
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
            turning: Yields::of(|| Yield::new(SEEK_WINDOWS)),
            solid: Yields::of(Yield::solid),
            data_turn: true,
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

    /// What to do about a window in which a block of a kind lies, on a device that turns or not.
    pub fn ask(&mut self, number: u64, kind: IoKind, turns: bool) -> Around {
        if kind == IoKind::SmallData {
            self.data_turn = turns;
        }
        let found = self.take_asked(number);
        let mut asked = 0;
        if let Some(window) = found {
            let (bytes, beside) = (window.bytes, window.beside);
            self.insert(number, bytes.clone());
            match bytes {
                Some(bytes) if beside => {
                    self.yields(kind, turns).one_more();
                    return Around::Held(bytes);
                }
                Some(bytes) => {
                    self.asked_again(kind, turns);
                    return Around::Held(bytes);
                }
                None if beside => {}
                None => {
                    self.asked_again(kind, turns);
                    asked = window.asked;
                    if turns || asked >= SOLID_BLOCKS || self.yields(kind, turns).pays() {
                        return Around::Whole;
                    }
                }
            }
        }
        if asked == 0 && self.yields(kind, turns).one_more() {
            return Around::Whole;
        }
        self.insert(number, None);
        self.asked_alone(number, asked.saturating_add(1));
        Around::Alone
    }

    /// So many blocks of a window were read alone.
    fn asked_alone(&mut self, number: u64, blocks: u32) {
        if let Some(window) = self.map.get_mut(&number) {
            window.asked = blocks;
        }
    }

    /// One more block of a window is read alone, with another one of it. Whether the whole of it is read instead.
    pub fn ask_with(&mut self, number: u64, kind: IoKind, turns: bool) -> bool {
        self.asked_again(kind, turns);
        let asked = self.map.get(&number).map_or(0, |window| window.asked);
        self.asked_alone(number, asked.saturating_add(1));
        turns
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

    /// Whether those of small files' data paid lately, on devices like that where one was last asked for.
    pub fn data_pay(&self) -> bool {
        let yields = if self.data_turn {
            &self.turning
        } else {
            &self.solid
        };
        yields.data.pays()
    }

    /// A block of a kind lies in a window that another one was asked for in.
    pub fn asked_again(&mut self, kind: IoKind, turns: bool) {
        self.yields(kind, turns).again();
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

    fn yields(&mut self, kind: IoKind, turns: bool) -> &mut Yield {
        let yields = if turns {
            &mut self.turning
        } else {
            &mut self.solid
        };
        match kind {
            IoKind::SmallData => &mut yields.data,
            _ => &mut yields.metadata,
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
            asked: 0,
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

/// What windows of metadata and of small files' data gave.
struct Yields {
    metadata: Yield,
    data: Yield,
}

impl Yields {
    fn of(new: impl Fn() -> Yield) -> Yields {
        Yields {
            metadata: new(),
            data: new(),
        }
    }
}

/// What windows gave lately: those that were read for a block, or would have been, and how often another block was asked
/// for that lies in one.
struct Yield {
    windows: u32,
    again: u32,
    /// Of so many windows one must save a request.
    of: u32,
    /// Or each of them so many.
    each: u32,
}

impl Yield {
    /// Until they were tried, windows pay.
    fn new(of: u32) -> Self {
        Self {
            windows: 0,
            again: LATELY / of,
            of,
            each: 1,
        }
    }

    /// Until they were tried, they do not.
    fn solid() -> Self {
        Self {
            windows: SOLID_TRIED,
            again: 0,
            of: 1,
            each: SOLID_BLOCKS,
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
        self.again * self.of >= self.windows * self.each
    }

    fn again(&mut self) {
        self.again = (LATELY * self.each).min(self.again + 1);
    }
}
