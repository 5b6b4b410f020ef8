//! Placing and building one dynamic segment: summary first, blocks behind it, over as few extents as space allows (H10, H11).
//!
//! The first extent starts at the unit that the predecessor reserved and runs on into the window behind it, so that a
//! segment is one contiguous write while space allows. Blocks are never split; the summary may be.

use crate::plugging::{Cut, Fitting};
use loamfs_device::Buffer;
use loamfs_format::summary::{COPY_SIZE, EXTENTS_MAX, HEADER_SIZE, Header, Record};
use loamfs_format::text::human;
use loamfs_format::track::TRACK_MAX;
use loamfs_format::{Extent, FragAddr, Geometry, GroupNo, Ssn};
use loamfs_space::{FoundSpace, Space, SpaceError};
use std::collections::BTreeMap;

/// Why a segment found no place.
#[derive(Debug)]
pub enum PlaceError {
    /// These groups' bitmaps must be loaded first; nothing has changed.
    Load(Vec<GroupNo>),
    /// No room; nothing has changed.
    Full,
    /// Space accounting is inconsistent.
    Space(SpaceError),
}

impl From<SpaceError> for PlaceError {
    fn from(error: SpaceError) -> Self {
        PlaceError::Space(error)
    }
}

/// Where the parts of a segment go. The ranges are taken from free space but have no owner yet.
#[derive(Debug)]
pub struct SegmentPlace {
    /// The segment's extents, whole units, in the order of its bytes.
    pub extents: Vec<Extent>,
    /// The address of each block, in the order given.
    pub blocks: Vec<FragAddr>,
    /// The ranges that the summary takes.
    pub summary: Vec<Extent>,
    /// The unit reserved for the next summary.
    pub next: Extent,
    /// Where each track begins.
    pub tracks: Vec<FragAddr>,
    /// Free ranges between tracks that the segment writes over: unshown, and to be abandoned when it is durable.
    pub padding: Vec<Extent>,
}

/// The blocks of a segment, in the order of its body.
#[derive(Clone, Copy, Debug)]
pub struct SegmentBody<'a> {
    /// Fragments of each.
    pub frags: &'a [u32],
    /// So many of the first begin with a unit: they are rewritten often, and what is not of whole units would leave holes
    /// that begin and end within units, where no segment fits.
    pub aligned: usize,
    /// Fragments of each track that it writes besides, in groups of their own, unsplit.
    pub tracks: &'a [u64],
}

/// Finds a place for a summary with at most `records_max` bytes of records and for the blocks of `body`.
///
/// `at` is the unit reserved for this summary. Without a `cut` the log goes on where the next long run is. A segment has
/// [`EXTENTS_MAX`] extents at most; where the smallest holes would take more, the rest is cut into the longest.
///
/// # Errors
/// [`PlaceError`]; in each case space is as it was before.
pub fn place(
    space: &mut Space,
    geometry: &Geometry,
    at: FragAddr,
    records_max: u64,
    body: SegmentBody<'_>,
    cut: Option<Cut>,
) -> Result<SegmentPlace, PlaceError> {
    let reserved = Extent::new(at, geometry.unit_frags());
    if !geometry.holds(reserved) {
        return Err(SpaceError::Range { extent: reserved }.into());
    }
    let holes = cut.map(|cut| {
        let fitting = Fitting::of(geometry, cut, body.frags);
        Holes::new(space.cleaning().log_holes(), fitting)
    });
    let mut placer = Placer {
        space,
        geometry,
        holes,
        taken: Vec::new(),
        gaps: Vec::new(),
        padding: Vec::new(),
        closed: Vec::new(),
        current: reserved,
        used: 0,
        left: 0,
        ends: 0,
    };
    let placed = placer.run(records_max, body);
    if placed.is_err() {
        placer.undo();
    }
    match (placed, cut) {
        (Err(PlaceError::Full), Some(Cut::Smallest)) => {
            place(space, geometry, at, records_max, body, Some(Cut::Longest))
        }
        (placed, _) => placed,
    }
}

struct Placer<'a> {
    space: &'a mut Space,
    geometry: &'a Geometry,
    /// Which holes there are, if they are to be fitted.
    holes: Option<Holes>,
    /// What was taken from free space so far, to be undone on failure.
    taken: Vec<Extent>,
    /// Ends of units before aligned blocks.
    gaps: Vec<Extent>,
    /// Free ranges between tracks.
    padding: Vec<Extent>,
    /// Finished extents.
    closed: Vec<Extent>,
    /// The extent being filled.
    current: Extent,
    /// Fragments of it that are filled.
    used: u64,
    /// Fragments still to be placed.
    left: u64,
    /// Ends of units behind those that begin with one, at most, where holes are fitted: no other block takes them.
    ends: u64,
}

/// Holes by their length, and how they are chosen.
struct Holes {
    by_length: BTreeMap<u64, Vec<FragAddr>>,
    fitting: Fitting,
}

impl Holes {
    fn new(holes: Vec<Extent>, fitting: Fitting) -> Holes {
        let mut new = Holes {
            by_length: BTreeMap::new(),
            fitting,
        };
        new.refresh(holes);
        new
    }

    /// These are the holes now.
    fn refresh(&mut self, holes: Vec<Extent>) {
        self.by_length.clear();
        holes.into_iter().for_each(|hole| self.put(hole));
    }

    fn put(&mut self, hole: Extent) {
        if hole.frags > 0 {
            self.by_length
                .entry(hole.frags)
                .or_default()
                .push(hole.start);
        }
    }

    /// A hole of at least `least` fragments, as far as `want` of it.
    fn take(&mut self, want: u64, least: u64) -> Option<Extent> {
        let frags = self.fitting.choose(&self.by_length, least)?;
        let starts = self.by_length.get_mut(&frags)?;
        let start = starts.pop()?;
        if starts.is_empty() {
            self.by_length.remove(&frags);
        }
        let taken = frags.min(want.max(least));
        self.put(Extent::new(FragAddr(start.0 + taken), frags - taken));
        Some(Extent::new(start, taken))
    }
}

/// Fragments behind a block of so many that begins with a unit, up to the next unit.
fn rest_of_unit(frags: u32, unit: u64) -> u64 {
    let frags = u64::from(frags);
    frags.next_multiple_of(unit) - frags
}

impl Placer<'_> {
    fn run(&mut self, records_max: u64, body: SegmentBody<'_>) -> Result<SegmentPlace, PlaceError> {
        let unit = self.geometry.unit_frags();
        let frag = u64::from(self.geometry.fragment_size);
        let summary = loamfs_format::summary::summary_len(records_max) / frag;
        self.left = summary + body.frags.iter().map(|b| u64::from(*b)).sum::<u64>();
        let fitted = body.frags.iter().take(self.fitted(&body));
        self.ends = fitted.map(|frags| rest_of_unit(*frags, unit)).sum();
        let window = self.left.next_multiple_of(unit) - unit;
        let run = self.space.bitmaps().log_run(self.current.end(), window);
        let alone = !self.space.law().gathers_segments() || self.holes.is_some();
        self.extend(if alone { 0 } else { run })?;

        let summary = self.place_summary(summary)?;
        let blocks = self.place_blocks(&body)?;
        self.close()?;
        let next = self.reserve_next()?;
        let tracks = self.place_tracks(body.tracks)?;
        for gap in std::mem::take(&mut self.gaps) {
            self.space.abandon(gap)?;
        }
        Ok(SegmentPlace {
            extents: std::mem::take(&mut self.closed),
            blocks,
            summary,
            next,
            tracks,
            padding: std::mem::take(&mut self.padding),
        })
    }

    /// How many of the blocks that begin with a unit are fitted into holes, so that what ends within one counts.
    fn fitted(&self, body: &SegmentBody<'_>) -> usize {
        match self.holes {
            Some(_) => body.aligned,
            None => 0,
        }
    }

    /// The ranges that the summary takes, of so many fragments.
    fn place_summary(&mut self, mut left: u64) -> Result<Vec<Extent>, PlaceError> {
        let mut summary = Vec::new();
        while left > 0 {
            let here = (self.current.frags - self.used).min(left);
            if here == 0 {
                self.another(self.geometry.unit_frags())?;
                continue;
            }
            summary.push(self.fill(here));
            left -= here;
        }
        Ok(summary)
    }

    /// The addresses of the blocks.
    fn place_blocks(&mut self, body: &SegmentBody<'_>) -> Result<Vec<FragAddr>, PlaceError> {
        let (unit, fitted) = (self.geometry.unit_frags(), self.fitted(body));
        let mut addresses = Vec::with_capacity(body.frags.len());
        for (i, block) in body.frags.iter().enumerate() {
            let frags = u64::from(*block);
            if i < body.aligned {
                self.align();
            }
            if self.current.frags - self.used < frags {
                self.another(frags)?;
            }
            addresses.push(self.fill(frags).start);
            if let Some(holes) = &mut self.holes {
                holes.fitting.placed(frags);
            }
            if i < fitted {
                self.ends -= rest_of_unit(*block, unit);
            }
        }
        Ok(addresses)
    }

    /// Where tracks begin. All stand in one run, if there is one: each other place would cost a seek. Those that fill their windows
    /// come first, in their order; the others share windows, the longest first.
    fn place_tracks(&mut self, tracks: &[u64]) -> Result<Vec<FragAddr>, PlaceError> {
        let window = self.geometry.frags_for(TRACK_MAX.into());
        let fills = |frags: u64| frags >= window / 8 * 7;
        let mut order: Vec<usize> = (0..tracks.len()).collect();
        order.sort_by_key(|i| match tracks[*i] {
            frags if fills(frags) => 0,
            frags => window.saturating_sub(frags),
        });
        let all: u64 = tracks.iter().sum();
        if all == 0 {
            return Ok(Vec::new());
        }
        let near = self.find_track(all.min(window), FragAddr(0))?;
        let mut near = near.map_or(FragAddr(0), |run| run.start);
        let mut runs = Vec::with_capacity(tracks.len());
        let mut starts = vec![FragAddr(0); tracks.len()];
        for i in order {
            let run = self.take_track(tracks[i], near)?;
            let group = |addr| self.geometry.group_of(addr);
            if group(run.start) != group(near) {
                near = run.start;
            }
            starts[i] = run.start;
            runs.push(run);
        }
        runs.sort_unstable_by_key(|run| run.start);
        for run in runs {
            self.add_track(run)?;
        }
        Ok(starts)
    }

    /// A place for a track; `None` if there is none.
    fn find_track(&mut self, frags: u64, near: FragAddr) -> Result<Option<Extent>, PlaceError> {
        let window = self.geometry.frags_for(TRACK_MAX.into());
        match self.space.placement().find_track(frags, window, near) {
            FoundSpace::Run(run) => Ok(Some(run)),
            FoundSpace::Load(groups) => Err(PlaceError::Load(groups)),
            FoundSpace::Full => Ok(None),
        }
    }

    /// Takes the place of a track.
    fn take_track(&mut self, frags: u64, near: FragAddr) -> Result<Extent, PlaceError> {
        let run = self.find_track(frags, near)?.ok_or(PlaceError::Full)?;
        self.take(run)?;
        let rest = Extent::new(FragAddr(run.start.0 + frags), run.frags - frags);
        if rest.frags > 0 {
            self.gaps.push(rest);
        }
        Ok(run)
    }

    /// The segment has a track there, in an extent of its own, or at the end of that of the track before it.
    fn add_track(&mut self, run: Extent) -> Result<(), PlaceError> {
        self.pad(run.start);
        let full = self.closed.len() >= EXTENTS_MAX;
        match self.closed.last_mut() {
            Some(last) if last.end() == run.start => last.frags += run.frags,
            _ if full => return Err(PlaceError::Full),
            _ => self.closed.push(run),
        }
        Ok(())
    }

    /// Lengthens the track's extent before this one over the free end of its window: one request writes both, which a disk
    /// would else come to one by one. Nobody gets that range before the segment is durable.
    fn pad(&mut self, upto: FragAddr) {
        let Some(last) = self.closed.last().copied() else {
            return;
        };
        let gap = Extent::new(last.end(), upto.0.saturating_sub(last.end().0));
        let group = |addr| self.geometry.group_of(addr);
        let window = self.geometry.frags_for(TRACK_MAX.into());
        let near = gap.frags > 0 && gap.frags < window && group(last.start) == group(upto);
        if near && self.take(gap).is_ok() {
            self.padding.push(gap);
            if let Some(last) = self.closed.last_mut() {
                last.frags += gap.frags;
            }
        }
    }

    /// Lengthens the current extent by `frags` free fragments right behind it.
    fn extend(&mut self, frags: u64) -> Result<(), PlaceError> {
        if frags > 0 {
            self.take(Extent::new(self.current.end(), frags))?;
            self.current.frags += frags;
        }
        Ok(())
    }

    fn take(&mut self, extent: Extent) -> Result<(), PlaceError> {
        self.space.allocate_unshown(extent)?;
        self.taken.push(extent);
        Ok(())
    }

    fn fill(&mut self, frags: u64) -> Extent {
        let extent = Extent::new(FragAddr(self.current.start.0 + self.used), frags);
        self.used += frags;
        self.left = self.left.saturating_sub(frags);
        extent
    }

    /// Goes on with the next unit.
    fn align(&mut self) {
        let gap = self.used.next_multiple_of(self.geometry.unit_frags()) - self.used;
        if gap > 0 {
            self.gaps
                .push(Extent::new(FragAddr(self.current.start.0 + self.used), gap));
            self.used += gap;
        }
    }

    /// Closes the current extent and opens another that holds at least `least` fragments.
    fn another(&mut self, least: u64) -> Result<(), PlaceError> {
        self.close()?;
        if self.closed.len() >= EXTENTS_MAX {
            return Err(PlaceError::Full);
        }
        let unit = self.geometry.unit_frags();
        // As many extents as are left must be enough for the rest.
        let left = self.left + self.ends;
        let fair = left / (EXTENTS_MAX - self.closed.len()) as u64;
        let near = self.closed.last().map_or(self.current.start, |e| e.end());
        let want = left.next_multiple_of(unit).max(unit);
        let least = least.max(fair).next_multiple_of(unit);
        let block = self.geometry.small_frags().next_multiple_of(unit);
        let holes = self.holes.as_mut();
        let fitted = holes.and_then(|holes| holes.take(want, least));
        let mut found = match fitted {
            Some(hole) => hole,
            // Of a log without longer holes those are taken that will do.
            None => match self.find(want, near, least.max(block)) {
                Err(PlaceError::Full) if least < block => self.find(want, near, least)?,
                found => found?,
            },
        };
        found.frags = found.frags.min(want);
        self.take(found)?;
        if let Some(holes) = self.holes.as_mut().filter(|_| fitted.is_none()) {
            // It may be in holes that grew by what was given back.
            holes.refresh(self.space.cleaning().log_holes());
        }
        self.current = found;
        self.used = 0;
        Ok(())
    }

    /// A free run of at least `least` fragments.
    fn find(&mut self, want: u64, near: FragAddr, least: u64) -> Result<Extent, PlaceError> {
        let (want, near) = match self.space.law().gathers_segments() {
            true => (want, near),
            false => (least, FragAddr(0)),
        };
        match self.space.placement().find_log(want, least, near) {
            FoundSpace::Run(extent) => Ok(extent),
            FoundSpace::Load(groups) => Err(PlaceError::Load(groups)),
            FoundSpace::Full => Err(PlaceError::Full),
        }
    }

    /// Ends the current extent behind its last filled unit and gives the rest back.
    fn close(&mut self) -> Result<(), PlaceError> {
        let unit = self.geometry.unit_frags();
        let filled = self.used.next_multiple_of(unit);
        let rest = Extent::new(
            FragAddr(self.current.start.0 + self.used),
            self.current.frags.saturating_sub(self.used),
        );
        if rest.frags > 0 {
            self.give_back(rest)?;
        }
        if filled > 0 {
            self.closed.push(Extent::new(self.current.start, filled));
        }
        self.current = Extent::new(rest.start, 0);
        self.used = 0;
        Ok(())
    }

    /// Frees a range that was taken a moment ago; it may lie across the end of one taken extent only.
    fn give_back(&mut self, rest: Extent) -> Result<(), PlaceError> {
        self.space.abandon(rest)?;
        for taken in &mut self.taken {
            if taken.overlaps(rest) {
                taken.frags = rest.start.0.saturating_sub(taken.start.0);
            }
        }
        self.taken.retain(|e| e.frags > 0);
        Ok(())
    }

    /// Reserves the next summary's unit: right behind the segment while a fair window is free there, or as much as it took itself;
    /// else where the largest window is. If each segment of an fsync went to the largest hole, all would become short, and each
    /// would change the maps elsewhere.
    fn reserve_next(&mut self) -> Result<Extent, PlaceError> {
        let unit = self.geometry.unit_frags();
        let window = self.geometry.frags_for(self.geometry.segment_max.into());
        let end = self.closed.last().map_or(self.current.start, |e| e.end());
        let taken = self.closed.iter().map(|extent| extent.frags).sum::<u64>();
        let alike = taken.max(2 * self.geometry.small_frags());
        let here = match self.space.law().gathers_segments() {
            true => self.space.bitmaps().log_run(end, window),
            false => 0,
        };
        let holes = self.holes.as_mut();
        let start = if let Some(hole) = holes.and_then(|holes| holes.take(unit, unit)) {
            hole.start
        } else if here >= alike.min(window / 8) {
            end
        } else {
            match self.find(window, end, unit) {
                Ok(found) if found.frags > here => found.start,
                Err(PlaceError::Load(groups)) => return Err(PlaceError::Load(groups)),
                _ if here >= unit => end,
                Ok(found) => found.start,
                Err(error) => return Err(error),
            }
        };
        let next = Extent::new(start, unit);
        self.take(next)?;
        Ok(next)
    }

    fn undo(&mut self) {
        for extent in std::mem::take(&mut self.taken) {
            if let Err(error) = self.space.abandon(extent) {
                tracing::error!(%error, ?extent, "cannot give a place back");
            }
        }
    }
}

/// A segment ready to be written.
#[derive(Debug)]
pub struct Segment {
    /// Sequence number.
    pub ssn: Ssn,
    /// One contiguous write an extent.
    pub writes: Vec<(FragAddr, Buffer)>,
}

impl Segment {
    /// Bytes of all writes.
    pub fn bytes(&self) -> u64 {
        self.writes.iter().map(|(_, b)| b.len() as u64).sum()
    }
}

/// The bytes of a segment while they are put together.
#[derive(Debug)]
pub struct SegmentBytes {
    extents: Vec<Extent>,
    buffers: Vec<Buffer>,
    /// Bytes at the end of the last buffer that no block takes.
    spare: usize,
    fragment_size: u64,
    /// A block that has no place in it.
    outside: Option<FragAddr>,
}

impl SegmentBytes {
    /// Zeroed bytes for the extents.
    pub fn new(geometry: &Geometry, extents: &[Extent]) -> SegmentBytes {
        let fragment_size = u64::from(geometry.fragment_size);
        let buffers: Vec<Buffer> = extents
            .iter()
            .map(|e| Buffer::zeroed((e.frags * fragment_size) as usize))
            .collect();
        SegmentBytes {
            extents: extents.to_vec(),
            spare: buffers.last().map_or(0, |last| last.len()),
            buffers,
            fragment_size,
            outside: None,
        }
    }

    /// Copies a block to its place. One outside the segment, which [`place`] rules out, keeps the segment from being used.
    pub fn put(&mut self, at: FragAddr, bytes: &[u8]) {
        let Some((i, offset)) = self.room_at(at, bytes.len()) else {
            self.outside = Some(at);
            return;
        };
        self.buffers[i][offset..][..bytes.len()].copy_from_slice(bytes);
        if i + 1 == self.buffers.len() {
            let frag = self.fragment_size as usize;
            let end = (offset + bytes.len()).next_multiple_of(frag);
            let behind = self.buffers[i].len().saturating_sub(end);
            self.spare = self.spare.min(behind);
        }
    }

    /// Whether all its blocks have a place in it.
    fn check(&self) -> Result<(), Unbuilt> {
        match self.outside {
            Some(at) => Err(Unbuilt::Outside { at }),
            None => Ok(()),
        }
    }

    /// The buffer, and the place in it, of a block of so many bytes.
    fn room_at(&self, at: FragAddr, bytes: usize) -> Option<(usize, usize)> {
        let i = self.extents.iter().position(|e| e.contains(at))?;
        let offset = ((at.0 - self.extents[i].start.0) * self.fragment_size) as usize;
        let end = offset.checked_add(bytes)?;
        (end <= self.buffers[i].len()).then_some((i, offset))
    }

    /// Writes the summary, for which `room` bytes were placed, over the first bytes and ends the segment. With the
    /// volume's key the summary gets its code, and its header a second copy at the segment's end if nothing is there.
    ///
    /// # Errors
    /// [`Unbuilt`]: what [`place`] was given was wrong, and the segment cannot be used.
    pub fn finish(
        mut self,
        mut header: Header,
        records: &[Record],
        room: u64,
        log_key: Option<&[u8; 16]>,
    ) -> Result<(Header, Segment), Unbuilt> {
        self.check()?;
        let mut bytes = vec![0u8; HEADER_SIZE];
        records.iter().for_each(|r| r.encode(&mut bytes));
        if bytes.len() as u64 > room {
            let (records, bytes) = (records.len(), bytes.len());
            return Err(Unbuilt::TooLong {
                records,
                bytes,
                room,
            });
        }
        header.extents = self.extents.clone();
        header.records_len = (bytes.len() - HEADER_SIZE) as u64;
        header.records_checksum =
            loamfs_format::pointer::data_checksum(bytes.get(HEADER_SIZE..).unwrap_or_default());
        header.code = log_key.map_or([0; 16], |key| header.code_under(key));
        bytes[..HEADER_SIZE].copy_from_slice(&header.encode());
        let mut rest = bytes.as_slice();
        for buffer in &mut self.buffers {
            let here = rest.len().min(buffer.len());
            buffer[..here].copy_from_slice(&rest[..here]);
            rest = &rest[here..];
            // What is left of the last buffer is spare, as far as no block lies there.
            let behind = buffer.len() - here;
            self.spare = if here > 0 {
                self.spare.min(behind)
            } else {
                self.spare
            };
        }
        if let Some(copy) = header.encode_copy().filter(|_| log_key.is_some())
            && self.spare >= COPY_SIZE
            && let Some(last) = self.buffers.last_mut()
        {
            let at = last.len() - COPY_SIZE;
            last[at..].copy_from_slice(&copy);
        }
        let writes = self
            .extents
            .iter()
            .map(|e| e.start)
            .zip(self.buffers)
            .collect();
        let ssn = header.ssn;
        Ok((header, Segment { ssn, writes }))
    }
}

/// Why a segment cannot be used.
#[derive(Debug, Clone, Copy, thiserror::Error)]
pub enum Unbuilt {
    /// Its summary is longer than its place.
    #[error("a summary of {records} records takes {}, and has {}", human(*bytes as u64), human(*room))]
    TooLong {
        /// Records.
        records: usize,
        /// Bytes with the header.
        bytes: usize,
        /// Bytes that were placed.
        room: u64,
    },
    /// One of its blocks is outside of it.
    #[error("a block at {at} is outside of its segment")]
    Outside {
        /// The block.
        at: FragAddr,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_without_a_place_spoils_the_segment() {
        let geometry = Geometry {
            fragment_size: 4096,
            block_size: 8192,
            small_size: 8192,
            group_frags: 64,
            total_frags: 4096,
            segment_max: 1 << 16,
            checkpoint_segments_max: 64,
            checkpoint_summary_max: 1 << 20,
            checkpoint_nodes_max: 64,
        };
        let extents = [Extent::new(FragAddr(8), 2), Extent::new(FragAddr(20), 1)];
        let mut whole = SegmentBytes::new(&geometry, &extents);
        whole.put(FragAddr(9), &[1; 4096]);
        whole.put(FragAddr(20), &[2; 100]);
        assert!(whole.check().is_ok());
        assert_eq!(whole.buffers[1][..100], [2; 100]);
        for (at, bytes) in [(10, 1), (0, 1), (9, 4097), (21, 1)] {
            let mut spoilt = SegmentBytes::new(&geometry, &extents);
            spoilt.put(FragAddr(at), &vec![1; bytes]);
            assert!(spoilt.check().is_err(), "{at}");
        }
    }

    const GEOMETRY: Geometry = Geometry {
        fragment_size: 1024,
        block_size: 16_384,
        small_size: 16_384,
        group_frags: 4096,
        total_frags: 8 * 4096,
        segment_max: 8 << 20,
        checkpoint_segments_max: 64,
        checkpoint_summary_max: 1 << 20,
        checkpoint_nodes_max: 64,
    };

    /// A log without a free group, and with holes of 100 to 140 fragments; with a unit that is taken.
    fn full_of_holes() -> (Space, FragAddr) {
        let owner = loamfs_space::Owner {
            kind: loamfs_format::BlockKind::SmallData,
            level: 0,
            ino: loamfs_format::Ino(2),
            logical: 0,
        };
        let mut space = Space::new(GEOMETRY, Vec::new());
        let mut pieces = Vec::new();
        while let FoundSpace::Run(run) = space.placement().find_log(4096, 4, FragAddr(0)) {
            let end = run.end().0;
            for (i, at) in (run.start.0..end).step_by(400).enumerate() {
                let hole = Extent::new(FragAddr(at), (100 + 4 * i as u64).min(end - at));
                let rest = Extent::new(hole.end(), 400_u64.min(end - at) - hole.frags);
                for piece in [hole, rest].into_iter().filter(|piece| piece.frags > 0) {
                    space.allocate(piece, owner).unwrap();
                }
                pieces.push(hole);
            }
        }
        for hole in &pieces[1..] {
            space.free(*hole, Ssn(1)).unwrap();
            space.release_range(*hole);
        }
        (space, pieces[0].start)
    }

    /// What was left at the end of a group was a hole, and a seek.
    #[test]
    fn a_segment_goes_on_into_a_new_group() {
        let owner = loamfs_space::Owner {
            kind: loamfs_format::BlockKind::SmallData,
            level: 0,
            ino: loamfs_format::Ino(2),
            logical: 0,
        };
        let geometry = Geometry {
            group_frags: 8192,
            total_frags: 8 * 8192,
            ..GEOMETRY
        };
        let mut space = Space::new(geometry, Vec::new());
        space.areas().spare_bands();
        let first = space.placement().find_log(8192, 4, FragAddr(0));
        assert_eq!(first, FoundSpace::Run(Extent::new(FragAddr(0), 8192)));
        let written = Extent::new(FragAddr(0), 8104);
        space.allocate(written, owner).unwrap();
        let body = SegmentBody {
            frags: &[12; 20],
            aligned: 0,
            tracks: &[],
        };
        let at = FragAddr(8100);
        let placed = place(&mut space, &geometry, at, 400, body, None).unwrap();
        let mut end = at;
        for extent in &placed.extents {
            assert_eq!(extent.start, end);
            end = extent.end();
        }
        assert!(end.0 >= at.0 + 240);
        assert_eq!(placed.next.start, end);
        space.check().unwrap();
    }

    /// Each went to the largest hole that there was: all became short, and each cost a seek, and changed the maps elsewhere.
    #[test]
    fn short_segments_go_on_in_the_hole_in_which_the_last_one_is() {
        let (mut space, mut at) = full_of_holes();
        let (mut elsewhere, mut extents) = (0, 0);
        for _ in 0..60 {
            let body = SegmentBody {
                frags: &[12],
                aligned: 0,
                tracks: &[],
            };
            let placed = place(&mut space, &GEOMETRY, at, 400, body, None).unwrap();
            extents += placed.extents.len();
            let end = placed.extents.last().unwrap().end();
            elsewhere += u32::from(placed.next.start != end);
            at = placed.next.start;
        }
        // Six or seven fit into a hole.
        assert!(elsewhere <= 12, "{elsewhere} went elsewhere");
        assert!(extents <= 61, "{extents} extents");
    }
}
