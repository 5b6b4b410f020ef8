//! Descriptors of groups that cannot be read, from what the bitmap and the owner records say.

use crate::blocks::Blocks;
use crate::error::Error;
use crate::maps::{Chunk, Maps};
use crate::reader::Reader;
use crate::recovery::{each_owner, with_tree};
use loamfs_format::group::{CHUNK_FRAGS, GroupDesc, Role};
use loamfs_format::{BlockKind, Extent, FragAddr, Geometry, GroupNo};
use std::collections::BTreeMap;
use std::ops::Range;

/// A group, while its role is looked for.
struct Lost {
    /// Its bitmap, by key; `None` where all bits are set.
    chunks: BTreeMap<u64, Option<[u8; 64]>>,
    desc: GroupDesc,
}

/// What the groups in these ranges are used for, and how much of them. How many directories are anchored there is a hint
/// that is begun anew.
pub(crate) fn groups(
    reader: &Reader,
    blocks: &mut Blocks,
    maps: &Maps,
    geometry: &Geometry,
    lost: impl Iterator<Item = Range<u64>>,
) -> Result<Vec<(GroupNo, GroupDesc)>, Error> {
    let mut groups = BTreeMap::new();
    let count = u64::from(geometry.groups());
    for number in lost.flat_map(|range| range.start..range.end.min(count)) {
        let group = GroupNo(u32::try_from(number).unwrap_or(u32::MAX));
        let chunks = with_tree(reader, blocks, |blocks| {
            maps.group_chunks(blocks, geometry, group)
        })?;
        let found = Lost::new(geometry.group_extent(group), chunks);
        if found.desc.used > 0 {
            groups.insert(group, found);
        }
    }
    each_owner(reader, blocks, maps, |start, record| {
        let role = match record.kind {
            BlockKind::Superblock => return,
            BlockKind::Homed => Role::Data,
            _ => Role::Log,
        };
        let end = start.0.saturating_add(record.frags.into());
        let last = geometry.group_of(FragAddr(end.saturating_sub(1)));
        for (group, lost) in groups.range_mut(geometry.group_of(start)..=last) {
            let extent = geometry.group_extent(*group);
            let mut range = start.0.max(extent.start.0)..end.min(extent.end().0);
            // What a record says of fragments without a bit means nothing.
            if lost.desc.role == Role::Free && range.any(|at| lost.is_set(at)) {
                lost.desc.role = role;
            }
        }
    })?;
    let descs = groups.into_iter().map(|(group, lost)| (group, lost.desc));
    Ok(descs.collect())
}

impl Lost {
    fn new(extent: Extent, chunks: Vec<Chunk>) -> Lost {
        let mut lost = Lost {
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
