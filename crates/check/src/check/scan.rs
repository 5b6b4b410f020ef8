//! The bitmap and the owner records, window by window in the order of addresses.

use super::bits::{Bits, WINDOW};
use crate::owner::Piece;
use crate::reader::{Entries, Owners};
use crate::{MapFault, Owner, Problem, Volume};
use loamfs_format::group::{CHUNK_BYTES, CHUNK_FRAGS};
use loamfs_format::{BlockKind, Extent, FragAddr, Ino};

/// What is recorded of a window of the volume.
pub(crate) struct Window {
    /// The window, cut at the end of the volume.
    pub(crate) extent: Extent,
    /// The bitmap of the checkpoint.
    pub(crate) base: Bits,
    /// The bitmap now.
    pub(crate) set: Bits,
    /// What is held back.
    pub(crate) held: Bits,
    /// What belongs to the log itself.
    pub(crate) log: Bits,
    /// What belongs to superblocks.
    pub(crate) reserved: Bits,
    /// Owner records, cut to the window.
    pub(crate) owners: Vec<Piece>,
}

impl Window {
    /// The window without a bit set.
    pub(crate) fn empty(&self) -> Bits {
        Bits::new(self.extent.start.0 / WINDOW * WINDOW)
    }

    /// The runs of a range that are in use by inodes or maps.
    pub(crate) fn live(&self, extent: Extent) -> Vec<Extent> {
        Bits::runs(
            extent,
            &[&self.set],
            &[&self.held, &self.log, &self.reserved],
        )
    }

    /// Cuts a run at the ends of the owner records, and says whose each piece is.
    pub(crate) fn split(&self, run: Extent) -> Vec<(Extent, Option<Owner>)> {
        let mut pieces = Vec::new();
        let mut at = run.start.0;
        let first = self
            .owners
            .partition_point(|(extent, _)| extent.end() <= run.start);
        for (extent, owner) in self.owners.iter().skip(first) {
            if extent.start >= run.end() {
                break;
            }
            let (from, to) = (extent.start.0.max(at), extent.end().0.min(run.end().0));
            if from > at {
                pieces.push((Extent::new(FragAddr(at), from - at), None));
            }
            if to > from {
                pieces.push((Extent::new(FragAddr(from), to - from), Some(*owner)));
            }
            at = at.max(to);
        }
        if at < run.end().0 {
            pieces.push((Extent::new(FragAddr(at), run.end().0 - at), None));
        }
        pieces
    }
}

/// A scan forward over the maps.
pub(crate) struct MapScan<'v> {
    volume: &'v Volume<'v>,
    chunks: Entries<'v>,
    owners: Owners<'v>,
    /// The record that was read last and may reach further.
    owner: Option<Piece>,
    reserved: Vec<Extent>,
    /// Those of them of which the bitmap says nothing.
    unmapped: Vec<Extent>,
    at: u64,
}

/// Hears what is wrong with the maps' entries: a hostile volume has more of that than there is memory.
pub(crate) type Wrong<'w> = &'w mut dyn FnMut(Problem);

impl<'v> MapScan<'v> {
    /// A scan from `from` on.
    pub(crate) fn new(volume: &'v Volume<'v>, from: u64) -> MapScan<'v> {
        let at = from / WINDOW * WINDOW;
        let sb = volume.superblock();
        let mut unmapped = sb.reserved_extents();
        unmapped.retain(|extent| !sb.copy_extents().contains(extent));
        MapScan {
            volume,
            chunks: volume.entries(volume.map(BlockKind::BitmapNode), at / CHUNK_FRAGS),
            owners: volume.owners(FragAddr(at)),
            owner: None,
            reserved: sb.reserved_extents(),
            unmapped,
            at,
        }
    }

    /// The next window of which the bitmap, or what replay knows, says anything.
    pub(crate) fn next(&mut self, wrong: Wrong<'_>) -> Option<Window> {
        let state = self.volume.state();
        let at = FragAddr(self.at);
        // Nodes that cannot be used were named when the maps were walked.
        while let Some(Err(_)) = self.chunks.peek() {
            self.chunks.next();
        }
        let chunk = match self.chunks.peek() {
            Some(Ok(entry)) => Some(entry.key().saturating_mul(CHUNK_FRAGS)),
            _ => None,
        };
        let reserved = self.reserved.iter().filter(|extent| extent.end() > at);
        let starts = [
            chunk,
            state
                .allocated
                .from(at)
                .next()
                .map(|(extent, _)| extent.start.0),
            state.held.from(at).next().map(|(extent, _)| extent.start.0),
            state.log.from(at).next().map(|(extent, ())| extent.start.0),
            reserved.map(|extent| extent.start.0).min(),
        ];
        let start = starts.into_iter().flatten().min()?.max(self.at) / WINDOW * WINDOW;
        if start >= self.volume.geometry().total_frags {
            self.beyond_the_end(wrong);
            return None;
        }
        Some(self.load(start, wrong))
    }

    /// The window at `start`, which must not lie before where the scan is.
    pub(crate) fn load(&mut self, start: u64, wrong: Wrong<'_>) -> Window {
        let total = self.volume.geometry().total_frags;
        let extent = Extent::new(FragAddr(start), WINDOW.min(total.saturating_sub(start)));
        let mut base = Bits::new(start);
        self.chunks(extent, &mut base, wrong);
        base.truncate(total);
        for range in &self.unmapped {
            base.clear(*range);
        }
        let mut window = Window {
            extent,
            set: base.clone(),
            base,
            held: Bits::new(start),
            log: Bits::new(start),
            reserved: Bits::new(start),
            owners: self.owners(extent, wrong),
        };
        let state = self.volume.state();
        for (range, _) in state.allocated.overlapping(extent) {
            window.set.set(range);
        }
        for (range, _) in state.held.overlapping(extent) {
            window.held.set(range);
        }
        for (range, ()) in state.log.overlapping(extent) {
            window.log.set(range);
        }
        for range in &self.reserved {
            window.reserved.set(*range);
        }
        for range in &self.unmapped {
            window.set.set(*range);
        }
        self.at = start + WINDOW;
        window
    }

    /// Reads the chunks up to the end of a window.
    fn chunks(&mut self, window: Extent, bits: &mut Bits, wrong: Wrong<'_>) {
        let end = (window.start.0 + WINDOW) / CHUNK_FRAGS;
        loop {
            match self.chunks.peek() {
                Some(Ok(entry)) if entry.key() >= end => return,
                None => return,
                _ => {}
            }
            let Some(Ok(entry)) = self.chunks.next() else {
                continue;
            };
            let key = entry.key();
            let start = FragAddr(key.saturating_mul(CHUNK_FRAGS));
            match entry.value() {
                [] => bits.set(Extent::new(start, CHUNK_FRAGS)),
                bytes if bytes.len() == CHUNK_BYTES => {
                    for (word, bytes) in (0u64..).zip(bytes.chunks_exact(8)) {
                        let value = bytes
                            .iter()
                            .rev()
                            .fold(0, |word, byte| word << 8 | u64::from(*byte));
                        bits.set_word(start.0 + word * 64, value);
                    }
                }
                _ => {
                    let kind = BlockKind::BitmapNode;
                    let ino = Ino(0);
                    wrong(Problem::Entry { kind, ino, key });
                }
            }
            if start.0 >= self.volume.geometry().total_frags {
                wrong(Problem::BitmapOutside { addr: start });
            }
        }
    }

    /// Names the first chunk behind the end of the volume.
    fn beyond_the_end(&mut self, wrong: Wrong<'_>) {
        if let Some(Ok(entry)) = self.chunks.next() {
            let addr = FragAddr(entry.key().saturating_mul(CHUNK_FRAGS));
            wrong(Problem::BitmapOutside { addr });
        }
    }

    /// The owner records of a window, cut to it.
    fn owners(&mut self, window: Extent, wrong: Wrong<'_>) -> Vec<Piece> {
        let mut pieces = Vec::new();
        loop {
            let next = match self.owner.take() {
                Some(piece) => Some(Ok(piece)),
                None => self.owners.next(),
            };
            let (extent, owner) = match next {
                None => return pieces,
                Some(Ok(piece)) => piece,
                Some(Err(MapFault::Entry { kind, ino, key })) => {
                    wrong(Problem::Entry { kind, ino, key });
                    continue;
                }
                Some(Err(MapFault::OwnerOverlap { first, second })) => {
                    wrong(Problem::OwnerOverlap { first, second });
                    continue;
                }
                Some(Err(MapFault::Node(_))) => continue,
            };
            let from = extent.start.max(window.start);
            let to = extent.end().min(window.end());
            if from < to {
                pieces.push((Extent::new(from, to.0 - from.0), owner));
            }
            if extent.end() > window.end() {
                self.owner = Some((extent, owner));
                return pieces;
            }
        }
    }
}
