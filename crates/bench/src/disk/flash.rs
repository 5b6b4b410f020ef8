//! A solid-state disk: units that are programmed wherever there is room, in blocks that are erased as a whole.
//!
//! - The map goes by units of 4 KiB. Who writes a part of a unit has the rest of it read first.
//! - What is written goes behind what was written last. A page is programmed when it is full. A flush programs the one that is
//!   not, unless the disk keeps over a power cut what it has taken.
//! - While hardly any block is erased, the one in which the fewest units still count is emptied: these move to a block of their
//!   own (greedy collection).
//! - Reading, programming and erasing cells is spread evenly over the dies. A request takes a command, and then what its bytes
//!   take on the bus, or its cells on the dies, whichever is more. A read waits for its first page besides. What is collected
//!   comes on top.
//! - The disk is used: every unit holds something, in the order of their numbers.
//! - As with disks that turn, nobody reads two places at once.

use std::collections::VecDeque;

use super::mechanics::Busy;
use super::{Span, Surface};
use crate::trace::SECTOR;

/// Bytes of a unit.
const UNIT: u64 = 4096;
const UNIT_SECTORS: u64 = UNIT / SECTOR;
/// A place that holds nothing, or a unit that has none.
const NONE: u32 = u32::MAX;
/// Blocks that stay erased, so that there is somewhere to move to.
const ERASED: usize = 2;
/// Least number of blocks beyond those that hold the disk's bytes.
const SPARE: u64 = ERASED as u64 + 3;

/// Figures of a solid-state disk. Times in seconds, rates in bytes a second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cells {
    /// Bytes of a page, a whole number of units.
    pub page: u64,
    /// Pages of a block.
    pub block_pages: u64,
    /// Blocks beyond those that hold the disk's bytes, as a part of these.
    pub spare: f64,
    /// Dies, over all channels, that work at the same time.
    pub dies: u64,
    /// Time in which a page is read from the cells.
    pub read: f64,
    /// Time in which one is programmed.
    pub program: f64,
    /// Time in which a block is erased.
    pub erase: f64,
    /// Rate of the bus to the host.
    pub bus: f64,
    /// Time that a command takes.
    pub command: f64,
    /// Whether what was taken is kept when power fails.
    pub protected: bool,
}

/// A block that is written to, and the place in it that is next.
#[derive(Clone, Copy, Debug)]
struct Open {
    block: u64,
    next: u64,
}

/// Who writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stream {
    Host,
    Collection,
}

/// The state of the disk.
#[derive(Clone, Debug)]
pub struct Flash {
    cells: Cells,
    /// Places of units.
    map: Vec<u32>,
    /// What places hold.
    holds: Vec<u32>,
    /// Units that count, in each block.
    live: Vec<u32>,
    /// Those that were erased first come first.
    erased: VecDeque<u64>,
    open: [Option<Open>; 2],
    /// What the dies have worked since a request began.
    work: f64,
    busy: Busy,
    /// Whether anything was written since the last flush.
    written: bool,
}

impl Flash {
    /// A used disk of `sectors` sectors.
    pub fn new(cells: Cells, sectors: u64) -> Flash {
        let units = sectors.div_ceil(UNIT_SECTORS).min(u64::from(NONE) / 2);
        let per_block = cells.block_pages * cells.page / UNIT;
        let full = units.div_ceil(per_block);
        let spare = ((full as f64 * cells.spare).ceil() as u64).max(SPARE);
        let places = (full + spare) * per_block;
        let held = |place: u64| if place < units { place as u32 } else { NONE };
        let live = |block: u64| per_block.min(units.saturating_sub(block * per_block)) as u32;
        Flash {
            cells,
            map: (0..units as u32).collect(),
            holds: (0..places).map(held).collect(),
            live: (0..full + spare).map(live).collect(),
            erased: (full..full + spare).collect(),
            open: [None; 2],
            work: 0.0,
            busy: Busy::default(),
            written: false,
        }
    }

    const fn per_page(&self) -> u64 {
        self.cells.page / UNIT
    }

    const fn per_block(&self) -> u64 {
        self.cells.block_pages * self.per_page()
    }

    /// The units that a span touches, as far as the disk has them.
    fn units(&self, span: Span) -> std::ops::Range<u64> {
        let last = self.map.len() as u64;
        (span.start / UNIT_SECTORS).min(last)..span.end.div_ceil(UNIT_SECTORS).min(last)
    }

    /// Pages from which units are read, each once as long as its units follow each other.
    fn pages(&self, units: std::ops::Range<u64>) -> u64 {
        let (mut pages, mut last) = (0, None);
        for unit in units {
            let place = self.map[unit as usize];
            let page = (place != NONE).then_some(u64::from(place) / self.per_page());
            pages += u64::from(page.is_some() && page != last);
            last = page;
        }
        pages
    }

    /// Nothing stands for a unit any more.
    fn forget(&mut self, unit: u64) {
        let place = std::mem::replace(&mut self.map[unit as usize], NONE);
        if place != NONE {
            self.holds[place as usize] = NONE;
            let block = u64::from(place) / self.per_block();
            self.live[block as usize] -= 1;
        }
    }

    /// Puts a unit where the stream writes.
    fn put(&mut self, unit: u64, stream: Stream) {
        self.forget(unit);
        let mut open = match self.open[stream as usize].take() {
            Some(open) => open,
            None => Open {
                block: self.erased.pop_front().unwrap_or_default(),
                next: 0,
            },
        };
        let place = open.block * self.per_block() + open.next;
        self.map[unit as usize] = place as u32;
        self.holds[place as usize] = unit as u32;
        self.live[open.block as usize] += 1;
        open.next += 1;
        if open.next.is_multiple_of(self.per_page()) {
            self.program();
        }
        self.open[stream as usize] = (open.next < self.per_block()).then_some(open);
    }

    fn program(&mut self) {
        self.work += self.cells.program;
        self.busy.programmed += self.cells.page;
    }

    /// Programs the page of a stream that is not full, and leaves the rest of it empty.
    fn close_page(&mut self, stream: Stream) {
        let per_page = self.per_page();
        if let Some(mut open) = self.open[stream as usize]
            && !open.next.is_multiple_of(per_page)
        {
            open.next = open.next.next_multiple_of(per_page);
            self.program();
            self.open[stream as usize] = (open.next < self.per_block()).then_some(open);
        }
    }

    /// Empties blocks until enough are erased.
    fn collect(&mut self) {
        while self.erased.len() <= ERASED {
            let open = |block: u64| self.open.iter().flatten().any(|open| open.block == block);
            let closed = (0..self.live.len() as u64)
                .filter(|block| !open(*block) && !self.erased.contains(block));
            let Some(victim) = closed.min_by_key(|block| self.live[*block as usize]) else {
                return;
            };
            if u64::from(self.live[victim as usize]) >= self.per_block() {
                return;
            }
            self.empty(victim);
        }
    }

    fn empty(&mut self, victim: u64) {
        let first = victim * self.per_block();
        let places = (first..first + self.per_block()).collect::<Vec<_>>();
        for page in places.chunks(self.per_page() as usize) {
            let units = page.iter().map(|place| self.holds[*place as usize]);
            let units: Vec<u32> = units.filter(|unit| *unit != NONE).collect();
            if !units.is_empty() {
                self.work += self.cells.read;
            }
            for unit in units {
                self.put(unit.into(), Stream::Collection);
            }
        }
        self.work += self.cells.erase;
        self.busy.erased += 1;
        self.erased.push_back(victim);
    }

    /// Seconds that the dies take for what was asked of them since this was asked last.
    fn worked(&mut self) -> f64 {
        std::mem::take(&mut self.work) / self.cells.dies as f64
    }

    /// Seconds that bytes take on the bus.
    fn passes(&self, bytes: u64) -> f64 {
        bytes as f64 / self.cells.bus
    }
}

impl Surface for Flash {
    /// All places are as near as any.
    fn distance(&self, _: Span) -> u64 {
        0
    }

    fn write(&mut self, span: Span) {
        self.written = true;
        let units = self.units(span);
        let cut =
            |sector: u64| (!sector.is_multiple_of(UNIT_SECTORS)).then_some(sector / UNIT_SECTORS);
        let mut parts: Vec<u64> = [span.start, span.end].into_iter().filter_map(cut).collect();
        parts.dedup();
        for unit in parts.into_iter().filter(|unit| units.contains(unit)) {
            self.work += self.cells.read * self.pages(unit..unit + 1) as f64;
        }
        let mut collected = 0.0;
        for unit in units {
            if self.open[Stream::Host as usize].is_none() && self.erased.len() <= ERASED {
                let work = std::mem::take(&mut self.work);
                self.collect();
                collected += self.worked();
                self.work = work;
            }
            self.put(unit, Stream::Host);
        }
        let cells = self.worked();
        let bytes = self.passes(span.sectors() * SECTOR);
        self.busy.writing += self.cells.command + cells.max(bytes);
        self.busy.cleaning += collected;
    }

    fn read(&mut self, span: Span) {
        let pages = self.pages(self.units(span));
        let first = if pages > 0 { self.cells.read } else { 0.0 };
        let cells = pages.saturating_sub(1) as f64 * self.cells.read / self.cells.dies as f64;
        let bytes = self.passes(span.sectors() * SECTOR);
        self.busy.reading += self.cells.command + first + cells.max(bytes);
    }

    fn flush(&mut self) {
        if !std::mem::take(&mut self.written) || self.cells.protected {
            return;
        }
        self.close_page(Stream::Host);
        self.work = 0.0;
        // The last pages go on at the same time.
        self.busy.writing += self.cells.command + self.cells.program;
    }

    fn discard(&mut self, span: Span) {
        let last = self.map.len() as u64;
        let whole =
            span.start.div_ceil(UNIT_SECTORS).min(last)..(span.end / UNIT_SECTORS).min(last);
        whole.for_each(|unit| self.forget(unit));
    }

    fn busy(&self) -> Busy {
        self.busy
    }

    fn owed(&self) -> f64 {
        0.0
    }
}

#[cfg(test)]
mod tests {
    use rand::{RngExt, SeedableRng};
    use rand_chacha::ChaCha8Rng;

    use super::*;

    const CELLS: Cells = Cells {
        page: 8192,
        block_pages: 32,
        spare: 0.1,
        dies: 4,
        read: 50e-6,
        program: 400e-6,
        erase: 2e-3,
        bus: 100e6,
        command: 10e-6,
        protected: false,
    };
    /// 64 MiB.
    const SECTORS: u64 = 1 << 17;

    fn unit(number: u64) -> Span {
        Span::new(number * UNIT_SECTORS, UNIT_SECTORS)
    }

    fn close(a: f64, b: f64) {
        assert!((a - b).abs() < 1e-9, "{a} {b}");
    }

    /// Each unit is where the map says, and blocks count what they hold.
    fn sound(disk: &Flash) {
        for (unit, place) in disk.map.iter().enumerate() {
            assert!(*place == NONE || disk.holds[*place as usize] == unit as u32);
        }
        let per_block = disk.per_block() as usize;
        for (block, live) in disk.holds.chunks(per_block).zip(&disk.live) {
            let held = block.iter().filter(|unit| **unit != NONE).count();
            assert_eq!(held, *live as usize);
        }
        for block in &disk.erased {
            assert_eq!(disk.live[*block as usize], 0);
        }
    }

    #[test]
    fn a_read_takes_its_first_page_and_then_its_bytes() {
        let mut disk = Flash::new(CELLS, SECTORS);
        disk.read(unit(7));
        close(disk.busy.reading, 10e-6 + 50e-6 + 4096.0 / 100e6);
        let mut long = Flash::new(CELLS, SECTORS);
        long.read(Span::new(0, 2048));
        // 128 pages on 4 dies take 1.6 ms, 1 MiB on the bus takes 10.
        close(
            long.busy.reading,
            10e-6 + 50e-6 + f64::from(1 << 20) / 100e6,
        );
        assert_eq!(long.busy.programmed, 0);
    }

    #[test]
    fn a_write_takes_its_pages_and_a_flush_closes_one() {
        let mut disk = Flash::new(CELLS, SECTORS);
        disk.write(Span::new(0, 2048));
        // 128 pages on 4 dies.
        close(disk.busy.writing, 10e-6 + 128.0 / 4.0 * 400e-6);
        assert_eq!(disk.busy.programmed, 1 << 20);
        disk.write(unit(1000));
        assert_eq!(disk.busy.programmed, 1 << 20, "its page is half full");
        disk.flush();
        disk.flush();
        assert_eq!(disk.busy.programmed, (1 << 20) + 8192);
        let mut keeps = Flash::new(
            Cells {
                protected: true,
                ..CELLS
            },
            SECTORS,
        );
        keeps.write(unit(1000));
        keeps.flush();
        assert_eq!(keeps.busy.programmed, 0);
        sound(&disk);
    }

    #[test]
    fn a_part_of_a_unit_has_the_rest_read() {
        let mut disk = Flash::new(CELLS, SECTORS);
        disk.write(Span::new(1, 1));
        close(disk.busy.writing, 10e-6 + 50e-6 / 4.0);
    }

    #[test]
    fn in_order_nothing_is_collected_that_counts() {
        let mut disk = Flash::new(CELLS, SECTORS);
        for _ in 0..3 {
            for start in (0..SECTORS).step_by(2048) {
                disk.write(Span::new(start, 2048));
            }
        }
        sound(&disk);
        // What the first pass overwrote went block by block.
        assert_eq!(disk.busy.programmed, 3 * SECTORS * SECTOR);
        assert!(disk.busy.erased > 0);
    }

    /// Greedy collection of uniform writes: with a tenth more blocks than data, theory has about 1 / (1 - u) with u the part of
    /// a victim that still counts, and u is about 0.8.
    #[test]
    fn at_random_what_counts_is_moved_and_discards_help() {
        let run = |discarded: u64| {
            let mut random = ChaCha8Rng::seed_from_u64(3);
            let units = SECTORS / UNIT_SECTORS;
            let mut disk = Flash::new(CELLS, SECTORS);
            disk.discard(Span::new(0, discarded * UNIT_SECTORS));
            for _ in 0..6 * units {
                disk.write(unit(random.random_range(discarded..units)));
            }
            let before = disk.busy.programmed;
            for _ in 0..units {
                disk.write(unit(random.random_range(discarded..units)));
            }
            sound(&disk);
            (disk.busy.programmed - before) as f64 / (units * UNIT) as f64
        };
        let (full, half) = (run(0), run(SECTORS / UNIT_SECTORS / 2));
        assert!((3.0..6.0).contains(&full), "{full}");
        assert!((1.0..1.6).contains(&half), "{half}");
    }
}
