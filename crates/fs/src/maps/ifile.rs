//! The IFILE, or inode map (H3, L2): where each inode block is, and which of its inodes live. The tree of the last checkpoint
//! under what changed since.

use super::{IFILE, Maps};
use crate::blocks::{Blocks, Stop};
use crate::error::Corrupt;
use loamfs_format::ifile::IfileEntry;
use loamfs_format::node::Page;
use loamfs_format::{FragAddr, InodeBlockNo};
use std::collections::BTreeMap;

/// Inode blocks to either side that are read along with one.
const NEIGHBOURS: u64 = 48;

/// What the entries of a leaf come to.
pub(super) fn sum_of_leaf(page: &Page) -> [u64; 3] {
    page.iter()
        .filter_map(|(_, value)| IfileEntry::decode(value))
        .fold([0; 3], |sum, entry| {
            IfileEntry::fold(sum, entry.aggregate())
        })
}

impl Maps {
    /// The last segment changed an entry.
    pub fn change_ifile(&mut self, block: InodeBlockNo, entry: IfileEntry) {
        self.ifile_overlay.insert(block, entry);
    }

    /// Entries of which the checkpoint tells nothing, unless a segment since then does.
    pub fn fill_ifile(&mut self, block: InodeBlockNo, entry: IfileEntry) {
        self.ifile_overlay.entry(block).or_insert(entry);
    }

    /// The inode blocks whose entries changed since the last checkpoint.
    pub fn changed_ifile(&self) -> impl ExactSizeIterator<Item = InodeBlockNo> {
        self.ifile_overlay.keys().copied()
    }

    /// The entry of an inode block as of the last sealed segment.
    pub fn ifile_entry(
        &self,
        blocks: &mut Blocks,
        block: InodeBlockNo,
    ) -> Result<IfileEntry, Stop> {
        if let Some(entry) = self.ifile_overlay.get(&block) {
            return Ok(*entry);
        }
        match IFILE.get(&self.ifile, blocks, block.0)? {
            None => Ok(IfileEntry::default()),
            Some(entry) => Ok(IfileEntry::decode(entry.value()).ok_or(Corrupt::IfileEntry(block))?),
        }
    }

    /// Entries of inode blocks near `block` whose blocks stand within `reach` fragments of its own, as far as they
    /// are known without reading: inodes made together are mostly used together.
    pub fn ifile_neighbours(
        &self,
        blocks: &mut Blocks,
        block: InodeBlockNo,
        addr: FragAddr,
        reach: u64,
    ) -> Vec<(InodeBlockNo, IfileEntry)> {
        let near = |entry: &IfileEntry| {
            entry.pointer.is_some() && entry.pointer.addr.0.abs_diff(addr.0) <= reach
        };
        let (from, to) = (
            block.0.saturating_sub(NEIGHBOURS),
            block.0.saturating_add(NEIGHBOURS),
        );
        let mut found: Vec<(InodeBlockNo, IfileEntry)> = self
            .ifile_overlay
            .range(InodeBlockNo(from)..InodeBlockNo(to))
            .map(|(block, entry)| (*block, *entry))
            .collect();
        if found.is_empty()
            && let Ok(Some(leaf)) = IFILE.descend(&self.ifile, blocks, block.0, |_| true)
        {
            let entries = leaf.page.iter().filter(|(key, _)| (from..to).contains(key));
            found.extend(
                entries.filter_map(|(key, value)| {
                    Some((InodeBlockNo(key), IfileEntry::decode(value)?))
                }),
            );
        }
        found.retain(|(_, entry)| near(entry));
        found
    }

    /// Inode blocks that have orphan bits, with those bits, from `from` on, as far as one leaf tells; and where to go
    /// on.
    pub fn orphans(
        &self,
        blocks: &mut Blocks,
        from: InodeBlockNo,
    ) -> Result<(BTreeMap<InodeBlockNo, u32>, Option<InodeBlockNo>), Stop> {
        let mut found = BTreeMap::new();
        let leaf = IFILE.descend(&self.ifile, blocks, from.0, |a| a[1] > 0)?;
        for (key, value) in leaf.iter().flat_map(|leaf| leaf.page.iter()) {
            let block = InodeBlockNo(key);
            let entry = IfileEntry::decode(value).ok_or(Corrupt::IfileEntry(block))?;
            found.insert(block, entry.orphan);
        }
        let end = leaf.and_then(|leaf| leaf.end).map(InodeBlockNo);
        let last = end.unwrap_or(InodeBlockNo(u64::MAX));
        let newer = self.ifile_overlay.range(from..last);
        found.extend(newer.map(|(block, entry)| (*block, entry.orphan)));
        found.retain(|block, orphan| *block >= from && *orphan != 0);
        Ok((found, end))
    }
}
