//! Files that the segment which first writes them puts into tracks: those of a directory that says so, and has no track yet.

use super::choose::Which;
use super::form::FormTrack;
use crate::blocks::Stop;
use crate::core::Core;
use crate::inodes::Node;
use crate::operations::{Change, Operation, Plan};
use loamfs_format::Ino;
use loamfs_format::inode::{Body, Placement};
use loamfs_format::superblock::{Features, INCOMPATIBLE_TRACKS};
use loamfs_format::track::{SLOTS_MAX, head_bytes};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Bytes of new files that are worth the first tracks of a directory.
const LEAST: u64 = 16 << 10;
/// Bytes of the log that a track takes at most beside its files, which wait anyway: its head, and what leads to it.
const COST: u64 = head_bytes(SLOTS_MAX) as u64 + (16 << 10);

/// Makes new files ready to settle into tracks, as far as all that it takes is in memory and in the next segment's room. The others
/// go to the log as if nobody had asked.
///
/// # Errors
/// Nothing but what cannot be.
pub(crate) fn form(core: &mut Core) -> Result<(), Stop> {
    let tracks = Features::incompatible(INCOMPATIBLE_TRACKS);
    if !core.sb.has_placement() || !core.checkpoints.is_announced(tracks) {
        return Ok(());
    }
    // A segment holds no more than three quarters of what it may ([`Sizes::segment_full`](crate::budget::Sizes)).
    let mut room = u64::from(core.geometry.segment_max) / 8;
    for dir in directories(core) {
        let (mut from, nobody) = (Some(0), Arc::default());
        while let Some(key) = from
            && let Some(left) = room.checked_sub(COST)
        {
            room = left;
            let which = Which::New;
            let step = FormTrack {
                dir,
                from: key,
                which,
                outcome: &nobody,
            };
            from = match step.prepare(core) {
                Ok(Plan::Change(change)) => {
                    let formed = change.apply(core);
                    formed
                        .map_err(|_| core.access.break_down("a new track stopped"))?
                        .next
                }
                Ok(Plan::Done(formed)) => formed.next,
                Err(Stop::Failed(error)) => {
                    tracing::debug!(%error, dir = dir.0, "new files go to the log");
                    None
                }
                // What must be read first is not waited for.
                Err(_) => None,
            };
        }
    }
    Ok(())
}

/// Directories that want their files in tracks, have none, and get files enough from the next segment.
fn directories(core: &Core) -> Vec<Ino> {
    let inodes = &core.inodes;
    let dirty = inodes.dirty_blocks().flat_map(|(block, b)| b.inos(block));
    let new = dirty
        .filter_map(|ino| inodes.get(ino))
        .filter(|node| is_new(node));
    let mut bytes: BTreeMap<Ino, u64> = BTreeMap::new();
    for node in new {
        *bytes.entry(node.inode().parent).or_default() += node.inode().size;
    }
    let wants = |dir: &Ino| {
        let node = inodes.get(*dir).filter(|node| node.is_dirty());
        node.is_some_and(|node| {
            node.inode().placement == Placement::Hash && node.inode().table.is_empty()
        })
    };
    let enough = bytes.into_iter().filter(|(_, bytes)| *bytes >= LEAST);
    enough.map(|(dir, _)| dir).filter(wants).collect()
}

/// Whether a small file has content that no segment shows.
fn is_new(node: &Node) -> bool {
    node.is_dirty() && node.small().is_some() && node.inode().body == Body::Empty
}
