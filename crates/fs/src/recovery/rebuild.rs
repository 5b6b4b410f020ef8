//! Maps of which nodes cannot be read: what these said, as far as it follows from what is left.
//!
//! The nodes are taken out of their trees. What groups are used for follows from bitmap and owner records, what is in use
//! from owner records: more than is in use, since these say nothing of what was freed; what is too much is nobody's, and
//! is freed when that is checked. Where blocks of inodes and images are, a check has found out.

use super::{Replay, each_owner, with_tree};
use crate::blocks::Blocks;
use crate::error::Error;
use crate::maps::{Chunk, Maps, tree_of};
use crate::reader::Reader;
use loamfs_format::group::{CHUNK_FRAGS, GroupDesc};
use loamfs_format::ifile::IfileEntry;
use loamfs_format::kind::MapTree;
use loamfs_format::maps::LazyEntry;
use loamfs_format::{Extent, FragAddr, Geometry, GroupNo, InodeBlockNo};
use loamfs_space::Cells;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// What a check has found of maps of which nodes cannot be read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rebuild {
    /// These nodes: of which map, at which level, and their lower bounds.
    pub nodes: Vec<(MapTree, u8, u64)>,
    /// What the IFILE said of blocks of inodes there.
    pub inode_blocks: Vec<(InodeBlockNo, IfileEntry)>,
    /// What the lazy map said of homes there.
    pub images: Vec<(FragAddr, LazyEntry)>,
}

/// The keys of which nodes told that were taken out, by map.
#[derive(Debug, Default)]
pub(crate) struct Lost(BTreeMap<MapTree, Vec<Range<u64>>>);

impl Lost {
    fn of(&self, map: MapTree) -> &[Range<u64>] {
        self.0.get(&map).map_or(&[], Vec::as_slice)
    }
}

/// Takes nodes that cannot be read out of their maps.
pub(crate) fn take_out(
    reader: &Reader,
    blocks: &mut Blocks,
    maps: &mut Maps,
    nodes: &[(MapTree, u8, u64)],
) -> Result<Lost, Error> {
    let mut lost = Lost::default();
    for (map, level, low) in nodes {
        let keys = with_tree(reader, blocks, |blocks| {
            tree_of(*map).drop_node(maps.root_mut(*map), blocks, *level, *low)
        })?;
        lost.0.entry(*map).or_default().extend(keys);
    }
    Ok(lost)
}

/// A group, while its role is looked for.
struct Unknown {
    /// Its bitmap, by key; `None` where all bits are set.
    chunks: BTreeMap<u64, Option<[u8; 64]>>,
    desc: GroupDesc,
}

/// What the groups are used for whose descriptors were lost, and how much of them. How many directories are anchored there
/// is a hint that is begun anew.
pub(crate) fn groups(
    reader: &Reader,
    blocks: &mut Blocks,
    maps: &Maps,
    (geometry, all_log): (&Geometry, bool),
    lost: &Lost,
) -> Result<Vec<(GroupNo, GroupDesc)>, Error> {
    let mut groups = BTreeMap::new();
    let count = u64::from(geometry.groups());
    let lost = lost.of(MapTree::Group).iter();
    for number in lost.flat_map(|range| range.start..range.end.min(count)) {
        let group = GroupNo(u32::try_from(number).unwrap_or(u32::MAX));
        let chunks = with_tree(reader, blocks, |blocks| {
            maps.group_chunks(blocks, geometry, group)
        })?;
        let found = Unknown::new(geometry.group_extent(group), chunks);
        if found.desc.used > 0 {
            groups.insert(group, found);
        }
    }
    if groups.is_empty() {
        return Ok(Vec::new());
    }
    each_owner(reader, blocks, maps, geometry, |owned, record| {
        let allowed = record.kind.roles(all_log);
        let Some(role) = allowed.first() else {
            return;
        };
        let last = geometry.group_of(FragAddr(owned.end().0 - 1));
        for (group, lost) in groups.range_mut(geometry.group_of(owned.start)..=last) {
            let extent = geometry.group_extent(*group);
            let mut range = owned.start.0.max(extent.start.0)..owned.end().0.min(extent.end().0);
            // What a record says of fragments without a bit means nothing.
            if !allowed.contains(&lost.desc.role) && range.any(|at| lost.is_set(at)) {
                lost.desc.role = *role;
            }
        }
    })?;
    let descs = groups.into_iter().map(|(group, lost)| (group, lost.desc));
    Ok(descs.collect())
}

impl Unknown {
    fn new(extent: Extent, chunks: Vec<Chunk>) -> Unknown {
        let mut lost = Unknown {
            chunks: chunks.into_iter().collect(),
            desc: GroupDesc::default(),
        };
        let set = (extent.start.0..extent.end().0).filter(|at| lost.is_set(*at));
        lost.desc.used = set.count() as u64;
        lost
    }

    fn is_set(&self, at: u64) -> bool {
        let bit = (at % CHUNK_FRAGS) as usize;
        match self.chunks.get(&(at / CHUNK_FRAGS)) {
            None => false,
            Some(None) => true,
            Some(Some(bits)) => bits[bit / 8] >> (bit % 8) & 1 != 0,
        }
    }
}

impl Replay<'_> {
    /// Puts what is known in the place of what was lost. The log was replayed, so that this is how things stand now.
    pub fn fill_in(&mut self, lost: &Lost, found: &Rebuild) -> Result<(), Error> {
        for (block, entry) in &found.inode_blocks {
            self.maps.fill_ifile(*block, *entry);
        }
        for (home, entry) in &found.images {
            self.maps.lazy_map_mut().fill_in(*home, *entry);
        }
        self.forget_deltas(lost.of(MapTree::Ifile))?;
        for group in self.groups_of_keys(lost.of(MapTree::Bitmap)) {
            self.rebuild_bitmap(group)?;
        }
        Ok(())
    }

    /// Blocks of inodes that were not found again are gone, and with them what segments said of their inodes: else every checkpoint
    /// would say it on (rule 16).
    fn forget_deltas(&mut self, lost: &[Range<u64>]) -> Result<(), Error> {
        let maps = &*self.maps;
        for block in self.inodes.deltas().blocks_in(lost) {
            let entry = with_tree(self.reader, self.blocks, |blocks| {
                maps.ifile_entry(blocks, block)
            })?;
            if !entry.pointer.is_some() {
                self.inodes.deltas_mut().written(block);
            }
        }
        Ok(())
    }

    /// The groups of which these chunks of the bitmap told.
    fn groups_of_keys(&self, chunks: &[Range<u64>]) -> BTreeSet<GroupNo> {
        let last = FragAddr(self.sb.geometry.total_frags.saturating_sub(1));
        let group = |frag: u64| self.sb.geometry.group_of(FragAddr(frag).min(last)).0;
        let numbers = chunks.iter().flat_map(|keys| {
            let end = keys.end.saturating_mul(CHUNK_FRAGS).saturating_sub(1);
            group(keys.start.saturating_mul(CHUNK_FRAGS))..=group(end)
        });
        numbers.map(GroupNo).collect()
    }

    /// Takes all of a group as in use that an owner record names, if the group may hold it, and all that is held back.
    fn rebuild_bitmap(&mut self, group: GroupNo) -> Result<(), Error> {
        let extent = self.sb.geometry.group_extent(group);
        let (maps, space, geometry) = (&*self.maps, &*self.space, &self.sb.geometry);
        let role = space.role(group);
        let owners = with_tree(self.reader, self.blocks, |blocks| {
            maps.owners_now(blocks, space, geometry, extent)
        })?;
        let all_log = space.is_all_log();
        let cell = Cells::of(role).finest(&self.sb.geometry);
        // Data groups have whole blocks alone.
        let cells = |of: Extent| {
            let start = of.start.max(extent.start).0 / cell * cell;
            let end = of.end().min(extent.end()).0.next_multiple_of(cell);
            let end = end.min(extent.end().0 / cell * cell);
            Extent::new(FragAddr(start), end.saturating_sub(start))
        };
        let mut used: Vec<Extent> = owners
            .into_iter()
            .filter(|(_, owner)| owner.kind.roles(all_log).contains(&role))
            .map(|(of, _)| cells(of))
            .collect();
        used.extend(space.held().iter().map(|(extent, _)| extent));
        Ok(self.space.repair().rebuild(group, &used)?)
    }
}
