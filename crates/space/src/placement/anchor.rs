//! dirpref: the anchor group of a new directory (H9; section 3.2 of the hFS paper).
//!
//! A directory shares its parent's group while that group has room for one more directory of the expected size, so
//! that a tree stays together; only then does it move on. Other than in the paper, and in FFS, directories right under
//! the root are not spread over the disk. What a directory is promised follows from what directories there take. So a
//! volume fills from one end, and what is written at one time stands together. Otherwise files in many directories below
//! the root, written at once, cost as many seeks as there are directories. Small files and metadata live in the log and
//! count nowhere here.

use crate::groups::Groups;
use crate::role::{self, Cells};
use loamfs_format::GroupNo;
use std::ops::Range;

/// Groups looked at before the roomiest one is taken.
const TRIES: usize = 8;

/// See [`super::Placement::choose_anchor`].
pub(crate) fn choose(
    groups: &mut Groups,
    parent: GroupNo,
    avg_file_size: u32,
    files_per_dir: u32,
) -> GroupNo {
    let count = groups.layout().groups();
    if count == 0 {
        return GroupNo(0);
    }
    let parent = (parent.0 as usize).min(count - 1);
    let geometry = groups.layout().geometry();
    let bytes = u64::from(avg_file_size).saturating_mul(files_per_dir.into());
    let expected = geometry.frags_for(bytes).clamp(1, geometry.group_frags);
    let least = geometry.block_frags().min(expected);
    let rooms = groups.indexes().rooms();
    let index = beside(groups, parent, expected);
    let index = index.or_else(|| rooms.first(0, rooms.max().max(1)));
    let index = index.unwrap_or(parent);
    let size = observed(groups, index).clamp(least, expected);
    groups.promise(index, size);
    GroupNo(index as u32)
}

/// Fragments that a directory of the group takes on average.
fn observed(groups: &Groups, index: usize) -> u64 {
    let group = groups.group(index);
    if Cells::of(group.role()) != Cells::Blocks {
        return 0;
    }
    let directories = group.directories().into();
    group.taken().checked_div(directories).unwrap_or(0)
}

/// Groups with room for a directory of `size`, from `start` on and around.
fn roomy(groups: &Groups, start: usize, size: u64) -> impl Iterator<Item = usize> {
    let least = u32::try_from(size).unwrap_or(u32::MAX).max(1);
    let rooms = groups.indexes().rooms();
    let mut at = start;
    let mut around = false;
    std::iter::from_fn(move || {
        let mut found = rooms.first(at, least);
        if found.is_none() && !around {
            around = true;
            found = rooms.first(0, least);
        }
        let index = found.filter(|&index| !around || index < start)?;
        at = index + 1;
        Some(index)
    })
    .take(TRIES)
}

fn average_room(groups: &Groups) -> u64 {
    let log = role::of_segments().map(|role| groups.of(role).groups().len());
    let log: usize = log.sum();
    let kept = groups.layout().tiers().log.iter().map(Range::len).sum();
    let others = groups.layout().groups().saturating_sub(log.max(kept));
    groups.indexes().rooms_sum() / (others as u64).max(1)
}

/// The first group from the parent's on that has room, and does not hold much more than the others.
fn beside(groups: &Groups, parent: usize, expected: u64) -> Option<usize> {
    let frags = groups.layout().geometry().group_frags;
    let fair = average_room(groups).saturating_sub(frags / 4);
    roomy(groups, parent, expected).find(|&index| {
        let room = u64::from(groups.indexes().rooms().get(index));
        groups.unused(index) >= fair && room >= observed(groups, index).min(frags)
    })
}
