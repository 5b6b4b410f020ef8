//! A directory's table of tracks, and the heads that it names.

use super::Volume;
use super::directory::tree_of;
use super::tree::Entries;
use crate::{BlockFault, CheckError, MapFault, PointerFault};
use loamfs_format::inode::{Inode, Table};
use loamfs_format::track::{Head, TableEntry, TrackIdentity, decode_inline, head_bytes, is_low};
use loamfs_format::{BlockKind, Extent, Geometry, Ino, Ssn};

/// The entries of a table by their keys: where the range of each begins.
pub type TableEntries<'v> = Box<dyn Iterator<Item = Result<(u64, TableEntry), CheckError>> + 'v>;

impl Volume<'_> {
    /// The table of a directory's tracks.
    pub fn table<'v>(&'v self, dir: &Inode) -> TableEntries<'v> {
        let (ino, geometry) = (dir.ino, self.geometry());
        match &dir.table {
            Table::None => Box::new(std::iter::empty()),
            Table::Inline(bytes) => match decode_inline(bytes, geometry.fragment_size) {
                Some(entries) => Box::new(entries.into_iter().map(Ok)),
                None => Box::new(std::iter::once(Err(malformed(ino, 0).into()))),
            },
            Table::Tree(root) => {
                let spec = tree_of(dir, BlockKind::TrackNode, *root);
                Box::new(Entries::new(self, spec, 0).map(move |item| {
                    let item = item?;
                    let entry = table_entry(geometry, item.key(), item.value());
                    Ok(entry.ok_or_else(|| malformed(ino, item.key()))?)
                }))
            }
        }
    }

    /// The head of a track, verified against its table's entry.
    ///
    /// # Errors
    /// What is wrong with the entry or the head.
    pub fn track_head(
        &self,
        entry: &TableEntry,
        identity: &TrackIdentity,
    ) -> Result<Head, BlockFault> {
        head_extent(self.geometry(), self.last(), entry)?;
        let bytes = self
            .io()
            .read(entry.addr, head_bytes(usize::from(entry.slots)))?;
        let (uuid, fragment_size) = (&self.superblock().uuid, self.geometry().fragment_size);
        Ok(entry.head(&bytes, uuid, identity, fragment_size)?)
    }
}

/// An entry of the tree of a table.
pub(crate) fn table_entry(
    geometry: &Geometry,
    low: u64,
    value: &[u8],
) -> Option<(u64, TableEntry)> {
    let entry = TableEntry::decode(value, geometry.fragment_size);
    entry.filter(|_| is_low(low)).map(|entry| (low, entry))
}

/// The fragments of the head of a track, whose whole run must be on the volume.
pub(crate) fn head_extent(
    geometry: &Geometry,
    last: Ssn,
    entry: &TableEntry,
) -> Result<Extent, PointerFault> {
    if !geometry.holds(Extent::new(entry.addr, entry.frags.into())) {
        return Err(PointerFault::Outside);
    }
    if entry.ssn > last {
        return Err(PointerFault::Birth { birth: entry.ssn });
    }
    let bytes = head_bytes(usize::from(entry.slots));
    Ok(Extent::new(entry.addr, geometry.frags_for(bytes as u64)))
}

fn malformed(ino: Ino, key: u64) -> MapFault {
    let kind = BlockKind::TrackNode;
    MapFault::Entry { kind, ino, key }
}
