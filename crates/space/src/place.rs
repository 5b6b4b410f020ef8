//! Where new directories are anchored (H9; section 3.2 of the hFS paper): dirpref.
//!
//! A directory shares its parent's group while that group has room for one more directory of the expected size, so
//! that a tree stays together; only then does it move on. Other than in the paper, and in FFS, directories right under
//! the root are not spread over the disk, and what a directory is promised follows from what directories there take: a
//! volume then fills from one end, and what is written at one time stands together. Files in many directories below
//! the root, written at once, cost as many seeks as there are directories otherwise. Small files and metadata live in
//! the log and count nowhere here.

use crate::space::Space;
use loamfs_format::GroupNo;
use loamfs_format::group::Role;

/// Groups looked at before the roomiest one is taken.
const TRIES: usize = 8;

impl Space {
    /// Chooses the group near which a new directory's large files will stand, and promises it what directories there
    /// take so far, at most `avg_file_size` bytes x `files_per_dir`. `parent` is the anchor of the parent. The
    /// directory counts once [`Space::anchored`] says so.
    pub fn choose_anchor(
        &mut self,
        parent: GroupNo,
        avg_file_size: u32,
        files_per_dir: u32,
    ) -> GroupNo {
        let count = self.groups.len();
        if count == 0 {
            return GroupNo(0);
        }
        let frags = self.layout.geometry().group_frags;
        let bytes = u64::from(avg_file_size).saturating_mul(files_per_dir.into());
        let expected = self.layout.geometry().frags_for(bytes).clamp(1, frags);
        let index = self.beside((parent.0 as usize).min(count - 1), expected);
        let index = index.or_else(|| self.rooms.first(0, self.rooms.max().max(1)));
        let index = index.unwrap_or((parent.0 as usize).min(count - 1));
        let least = self.layout.geometry().block_frags().min(expected);
        let size = self.observed(index).clamp(least, expected);
        self.groups[index].promised = (self.groups[index].promised + size).min(frags);
        self.refresh(index);
        GroupNo(index as u32)
    }

    /// Directories came to be anchored in a group (positive) or left it; also for replay.
    pub fn anchored(&mut self, group: GroupNo, delta: i32) {
        let index = group.0 as usize;
        let Some(known) = self.groups.get_mut(index) else {
            return;
        };
        if delta < 0 {
            // The promises to those that left lapse.
            let left = u64::from(delta.unsigned_abs().min(known.directories));
            known.promised -= known.promised / u64::from(known.directories.max(1)) * left;
        }
        known.directories = known.directories.saturating_add_signed(delta);
        self.dirty_groups.insert(group.0);
        self.refresh(index);
    }

    /// Fragments that a directory of the group takes on average.
    fn observed(&self, index: usize) -> u64 {
        let group = &self.groups[index];
        if group.role != Role::Data {
            return 0;
        }
        let used = group.used.saturating_sub(group.reserved);
        used.checked_div(group.directories.into()).unwrap_or(0)
    }

    /// Groups with room for a directory of `size`, from `start` on and around.
    fn roomy(&self, start: usize, size: u64) -> impl Iterator<Item = usize> {
        let least = u32::try_from(size).unwrap_or(u32::MAX).max(1);
        let mut at = start;
        let mut around = false;
        std::iter::from_fn(move || {
            let mut found = self.rooms.first(at, least);
            if found.is_none() && !around {
                around = true;
                found = self.rooms.first(0, least);
            }
            let index = found.filter(|&index| !around || index < start)?;
            at = index + 1;
            Some(index)
        })
        .take(TRIES)
    }

    fn average_room(&self) -> u64 {
        let groups = self.groups.len().saturating_sub(self.log_groups.len());
        self.rooms_sum / (groups as u64).max(1)
    }

    /// The first group from the parent's on that has room, and does not hold much more than the others.
    fn beside(&self, parent: usize, expected: u64) -> Option<usize> {
        let frags = self.layout.geometry().group_frags;
        let fair = self.average_room().saturating_sub(frags / 4);
        self.roomy(parent, expected).find(|&index| {
            self.unused(index) >= fair
                && u64::from(self.rooms.get(index)) >= self.observed(index).min(frags)
        })
    }
}
