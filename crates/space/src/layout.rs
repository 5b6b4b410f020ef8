//! Where the groups of a volume are, and the places in them that are reserved for superblocks.

use crate::bitmap::Bitmap;
use crate::bitmap::extent_map::ExtentShape;
use crate::bitmap::group_map::GroupMap;
use crate::error::SpaceError;
use crate::role::Cells;
use loamfs_format::group::{CHUNK_FRAGS, Role};
use loamfs_format::inode::Tier;
use loamfs_format::{Extent, FragAddr, Geometry, GroupNo};
use std::ops::Range;

/// The part of a range that lies in one group: the group's index, fragments within the group, and the same as an
/// extent.
pub(crate) type Part = (usize, Range<u64>, Extent);

/// How a volume is cut into groups.
#[derive(Clone, Debug)]
pub(crate) struct Layout {
    geometry: Geometry,
    /// Fragments of a group, as a power of two.
    shift: u32,
    reserved: Vec<Extent>,
    /// Those of the reserved extents of which the maps say nothing.
    unmapped: Vec<Extent>,
    /// Groups of which no device has anything.
    absent: usize,
    /// Groups in which nothing new is placed, for good.
    leaving: Vec<Range<usize>>,
    tiers: Tiers,
    sections: Vec<Section>,
}

/// Groups whose blocks are given out by extents (hybridFS, Y5). All lengths are fragments, and powers of two but for the first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Section {
    /// The groups, by number.
    pub groups: Range<u32>,
    /// How far into each group the first border of a flash block is that a block begins at.
    pub first: u64,
    /// A flash block: extents begin at its borders.
    pub flash_block: u64,
    /// An extent.
    pub extent: u64,
}

impl Section {
    /// How it cuts the blocks of a group. Where extents are smaller than a flash block, a virtual extent is as long as that and has
    /// several (Y6).
    fn shape(&self, geometry: &Geometry) -> ExtentShape {
        let block = geometry.block_frags();
        let (flash, extent) = (self.flash_block.max(block), self.extent.max(block));
        ExtentShape {
            first: self.first / block,
            extent: extent.max(flash) / block,
            piece: if extent < flash { extent / block } else { 1 },
        }
    }

    /// Whether extents fit into groups.
    fn fits(&self, geometry: &Geometry) -> bool {
        let fits = |frags: u64| frags.is_power_of_two() && frags <= geometry.group_frags;
        fits(self.flash_block)
            && fits(self.extent)
            && self.first < geometry.group_frags
            && self.first.is_multiple_of(geometry.block_frags())
    }

    /// The groups of it that are in another range.
    fn within(&self, groups: &Range<usize>) -> Range<usize> {
        let (start, end) = (self.groups.start as usize, self.groups.end as usize);
        start.max(groups.start)..end.min(groups.end)
    }
}

/// Which groups stand on the device that the log, or large files, should be on: the fast one or the others (Y1). Both lists are
/// empty where there is no fast device.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tiers {
    /// Groups for the log.
    pub(crate) log: Vec<Range<usize>>,
    /// Groups for the blocks of large files.
    pub(crate) data: Vec<Range<usize>>,
}

impl Layout {
    /// A volume with `reserved` extents that the maps tell of, and `gaps` that no device holds.
    pub(crate) fn new(geometry: Geometry, reserved: Vec<Extent>, gaps: &[Extent]) -> Layout {
        let whole = |gap: &Extent| {
            let end = match gap.end().0 == geometry.total_frags {
                true => u64::from(geometry.groups()),
                false => gap.end().0 / geometry.group_frags,
            };
            end.saturating_sub(gap.start.0.div_ceil(geometry.group_frags))
        };
        Layout {
            geometry,
            shift: geometry.group_frags.trailing_zeros(),
            absent: gaps.iter().map(whole).sum::<u64>() as usize,
            reserved: [&reserved, gaps].concat(),
            unmapped: gaps.to_vec(),
            leaving: Vec::new(),
            tiers: Tiers::default(),
            sections: Vec::new(),
        }
    }

    /// From now on these groups are cut into extents.
    pub(crate) fn cut(&mut self, sections: Vec<Section>) {
        let fits = |section: &Section| section.fits(&self.geometry);
        self.sections = sections.into_iter().filter(fits).collect();
    }

    /// The parts of sections in a range of groups.
    pub(crate) fn sections_in(&self, groups: &Range<usize>) -> Vec<Range<usize>> {
        let within = self.sections.iter().map(|section| section.within(groups));
        within.filter(|range| !range.is_empty()).collect()
    }

    /// How the blocks of a group are cut into extents, if they are.
    pub(crate) fn shape(&self, index: usize) -> Option<ExtentShape> {
        let holds = |section: &&Section| section.groups.contains(&(index as u32));
        let section = self.sections.iter().find(holds)?;
        Some(section.shape(&self.geometry))
    }

    /// Groups that there are: of which a device has something.
    pub(crate) fn present(&self) -> usize {
        self.groups().saturating_sub(self.absent)
    }

    /// From now on nothing new is placed in these groups.
    pub(crate) fn leave(&mut self, groups: Vec<Range<usize>>) {
        self.leaving = groups;
    }

    /// Groups in which nothing new is placed, for good.
    pub(crate) fn leaving(&self) -> &[Range<usize>] {
        &self.leaving
    }

    /// Whether a group is one of these.
    pub(crate) fn is_leaving(&self, index: usize) -> bool {
        self.leaving.iter().any(|range| range.contains(&index))
    }

    /// From now on the log should stand in these groups, which follow each other, and data in the others.
    pub(crate) fn keep_log_on(&mut self, log: Vec<Range<usize>>) {
        let mut data = Vec::new();
        let mut at = 0;
        let end = self.groups()..self.groups();
        for range in log.iter().chain([&end]) {
            if at < range.start {
                data.push(at..range.start);
            }
            at = range.end;
        }
        self.tiers = match log.is_empty() || data.is_empty() {
            true => Tiers::default(),
            false => Tiers { log, data },
        };
    }

    /// The groups of a tier, and none where that is no choice.
    pub(crate) fn tier(&self, tier: Tier) -> &[Range<usize>] {
        match tier {
            Tier::Fast => &self.tiers.log,
            Tier::Auto | Tier::Slow => &self.tiers.data,
        }
    }

    /// Where things should stand.
    pub(crate) fn tiers(&self) -> &Tiers {
        &self.tiers
    }

    /// Whether a group is one in which the log should stand, and nothing else.
    pub(crate) fn is_for_log(&self, index: usize) -> bool {
        self.tiers.log.iter().any(|range| range.contains(&index))
    }

    /// The same with one more reserved place, which the maps do not tell of.
    pub(crate) fn with_unmapped(&self, place: Extent) -> Layout {
        let mut layout = self.clone();
        layout.reserved.push(place);
        layout.unmapped.push(place);
        layout
    }

    /// The geometry.
    pub(crate) fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// The reserved extents.
    pub(crate) fn reserved(&self) -> &[Extent] {
        &self.reserved
    }

    /// The reserved extents of which the maps say nothing.
    pub(crate) fn unmapped(&self) -> &[Extent] {
        &self.unmapped
    }

    // ---- addresses ---------------------------------------------------------------------------------------------

    /// How many groups there are.
    pub(crate) fn groups(&self) -> usize {
        self.geometry.groups() as usize
    }

    /// The fragments of a group.
    pub(crate) fn extent(&self, index: usize) -> Extent {
        self.geometry.group_extent(GroupNo(index as u32))
    }

    /// The first fragment of a group.
    pub(crate) fn start(&self, index: usize) -> u64 {
        (index as u64) << self.shift
    }

    /// The index of the group that holds an address, whether there is such a group or not.
    pub(crate) fn index(&self, at: u64) -> usize {
        (at >> self.shift) as usize
    }

    /// The index of the group that holds an address, that of the last group for addresses behind the volume.
    pub(crate) fn index_near(&self, addr: FragAddr) -> usize {
        self.index(addr.0).min(self.groups().saturating_sub(1))
    }

    /// An address as a position in its group.
    pub(crate) fn position(&self, at: u64) -> u64 {
        at & (self.geometry.group_frags - 1)
    }

    /// The range of an extent that is not empty and lies on the volume.
    pub(crate) fn on_volume(&self, extent: Extent) -> Result<Range<u64>, SpaceError> {
        if extent.frags == 0 || !self.geometry.holds(extent) {
            return Err(SpaceError::Range { extent });
        }
        Ok(extent.start.0..extent.end().0)
    }

    /// A run on the volume, group by group.
    pub(crate) fn parts(&self, range: Range<u64>) -> impl Iterator<Item = Part> + use<> {
        let (shift, end) = (self.shift, range.end);
        let mut at = range.start;
        std::iter::from_fn(move || {
            if at >= end {
                return None;
            }
            let base = at >> shift << shift;
            let stop = end.min(base + (1 << shift));
            let extent = Extent::new(FragAddr(at), stop - at);
            let part = ((at >> shift) as usize, at - base..stop - base, extent);
            at = stop;
            Some(part)
        })
    }

    /// The keys of the bitmap chunks that hold a group's bits.
    pub(crate) fn chunk_keys(&self, group: GroupNo) -> Range<u64> {
        let extent = self.geometry.group_extent(group);
        extent.start.0 / CHUNK_FRAGS..extent.end().0.div_ceil(CHUNK_FRAGS)
    }

    /// The fragments of bitmap chunks that are on the volume.
    pub(crate) fn frags_of(&self, keys: Range<u64>) -> Range<u64> {
        let end = keys.end.saturating_mul(CHUNK_FRAGS);
        keys.start.saturating_mul(CHUNK_FRAGS)..end.min(self.geometry.total_frags)
    }

    // ---- superblocks -------------------------------------------------------------------------------------------

    /// Whether a superblock is in the range.
    pub(crate) fn is_reserved(&self, extent: Extent) -> bool {
        self.reserved
            .iter()
            .any(|reserved| reserved.overlaps(extent))
    }

    /// The reserved fragments of a group, as positions in it.
    pub(crate) fn reserved_in(&self, index: usize) -> Vec<Range<u64>> {
        let extent = self.extent(index);
        let (start, end) = (extent.start.0, extent.end().0);
        self.reserved
            .iter()
            .map(|e| e.start.0.clamp(start, end) - start..e.end().0.clamp(start, end) - start)
            .filter(|range| !range.is_empty())
            .collect()
    }

    /// Fragments of a group that are reserved and of which the maps say nothing.
    pub(crate) fn unmapped_in(&self, index: usize) -> u64 {
        let group = self.extent(index);
        let inside = |place: &Extent| {
            let end = place.end().0.min(group.end().0);
            end.saturating_sub(place.start.0.max(group.start.0))
        };
        self.unmapped.iter().map(inside).sum()
    }

    // ---- bitmaps -----------------------------------------------------------------------------------------------

    /// The bits of a group that holds nothing.
    pub(crate) fn pristine_bits(&self, index: usize) -> Bitmap {
        let mut bits = Bitmap::new(self.extent(index).frags);
        for range in self.reserved_in(index) {
            bits.set(range);
        }
        bits
    }

    /// Of a group that holds nothing, how many fragments are reserved, and the longest run of whole blocks.
    pub(crate) fn pristine(&self, index: usize) -> (u64, u64) {
        let block = self.geometry.block_frags();
        let (reserved, frags) = (self.reserved_in(index), self.extent(index).frags);
        match reserved.first() {
            None => return (0, frags / block * block),
            Some(all) if *all == (0..frags) => return (frags, 0),
            Some(_) => {}
        }
        let bits = self.pristine_bits(index);
        let frags = bits.ones();
        let map = GroupMap::new(bits, block, true, &reserved);
        (frags, map.map_or(0, |map| map.longest()))
    }

    /// The bitmap of a group in this role: blocks in a data group, units and fragments in every other.
    pub(crate) fn map_for(
        &self,
        index: usize,
        role: Role,
        bits: Bitmap,
    ) -> Result<GroupMap, SpaceError> {
        let (cell, fine) = match Cells::of(role) {
            Cells::Blocks => (self.geometry.block_frags(), false),
            Cells::Units | Cells::None => (self.geometry.unit_frags(), true),
        };
        let start = self.start(index);
        let map = GroupMap::new(bits, cell, fine, &self.reserved_in(index));
        let mut map = map.map_err(|at| SpaceError::Misaligned {
            extent: Extent::new(FragAddr(start + at), cell),
        })?;
        if !fine {
            map.cut(self.shape(index));
        }
        Ok(map)
    }
}
