//! What a file takes of the volume.

use super::Reading;
use crate::blocks::Stop;
use crate::extents;
use crate::inodes::Node;
use loamfs_format::Ino;
use loamfs_format::inode::Body;

impl Reading<'_> {
    /// Fragments that a file takes once what waits of it is on the device. So the number does not change by itself, behind whoever
    /// keeps it. Nothing is read for that.
    pub fn taken(&mut self, ino: Ino) -> Result<u64, Stop> {
        let (block_frags, per_block) = (self.geometry.block_frags(), self.geometry.block_units());
        let node = self.node(ino)?;
        if let Some(small) = node.small() {
            let len = small.len() as u64;
            return Ok(self.geometry.frags_for(len));
        }
        let shown = node.inode().frags;
        if node.homed().is_clean() {
            return Ok(shown);
        }
        let waiting = waiting_blocks(node, per_block);
        let stays = match node.inode().body {
            // It has grown out of its one place.
            Body::Small(_) => 0,
            _ => shown,
        };
        Ok(match self.fresh_blocks(ino, &waiting)? {
            Some(fresh) => stays.saturating_add(fresh.saturating_mul(block_frags)),
            None => stays.max((waiting.len() as u64).saturating_mul(block_frags)),
        })
    }

    /// How many of a file's blocks have no home, of those that wait for one, as far as what tells that is in memory.
    fn fresh_blocks(&mut self, ino: Ino, waiting: &[u64]) -> Result<Option<u64>, Stop> {
        let geometry = self.geometry;
        let end = waiting.last().map_or(0, |last| last + 1);
        let inode = self.inodes.loaded(ino)?.inode();
        let (mut fresh, mut left) = (0, waiting);
        while let Some(&block) = left.first() {
            let range = block..end;
            let next = self
                .blocks
                .at_once(|blocks| extents::first_overlapping(inode, blocks, geometry, range, 1));
            let Ok(Some(next)) = next else {
                // Who reads the file is told what is damaged.
                return Ok(None);
            };
            let home = next.first().map_or(end..end, |extent| {
                extent.block..extent.block + extents::blocks_of(extent, geometry)
            });
            fresh += left.partition_point(|block| *block < home.start) as u64;
            let behind = home.end.max(block + 1);
            left = &left[left.partition_point(|block| *block < behind)..];
        }
        Ok(Some(fresh))
    }
}

/// The blocks of which something waits, in order. They are looked for each time: a count that is kept would have to know of each block
/// whether it has a home, for which a write of whole blocks asks nobody.
fn waiting_blocks(node: &Node, per_block: u64) -> Vec<u64> {
    let mut blocks: Vec<u64> = Vec::new();
    for unit in node.homed().units_in(&(0..u64::MAX)) {
        let block = unit / per_block;
        if blocks.last() != Some(&block) {
            blocks.push(block);
        }
    }
    blocks.sort();
    blocks.dedup();
    blocks
}
