//! Places at which readers look for superblocks, of volumes that have none there: older programs gave them to files.

use super::{Durability, Sealer, Upkeep};
use crate::error::Error;
use loamfs_format::superblock::RO_COMPATIBLE_PLACES;
use loamfs_format::{Extent, FragAddr};
use loamfs_log::superblocks;

/// Rounds in which a place is emptied. One is enough unless summaries or maps are there, or data on their way.
const ROUNDS: u32 = 4;

impl Upkeep<'_> {
    /// Reserves these places on a volume that an older program made or wrote, once a mount and where there is room: what is
    /// there moves elsewhere, and both superblock copies come to say that nothing is. No failure is anybody's error: the
    /// volume stays as it was.
    pub(super) fn reserve_places(&self) {
        {
            let mut core = self.core();
            let done = core.sb.reserves_places()
                || core.leftovers.are_places_tried()
                || !core.access.is_writable();
            if done || !core.budget().may_compact() {
                return;
            }
            core.leftovers.note_places_tried();
        }
        let sealer = self.engine().sealer();
        let reserved = sealer.reserve_all();
        {
            let mut core = self.core();
            core.mover().open_groups();
            core.mover().leave_unmoved();
        }
        match reserved {
            Ok(true) => tracing::info!("the places of superblocks are reserved now"),
            Ok(false) => {
                tracing::warn!("files keep the place of a superblock before the next mount");
            }
            Err(error) => tracing::warn!(%error, "cannot reserve the places of superblocks"),
        }
    }
}

impl Sealer<'_> {
    /// Whether it came to that.
    fn reserve_all(&self) -> Result<bool, Error> {
        let places = self.core().sb.other_places();
        for place in &places {
            if !self.reserve(*place)? {
                return Ok(false);
            }
        }
        // What was there must not pass for a copy when the first one is damaged.
        let geometry = self.core().geometry;
        let offsets = places.iter().map(|place| geometry.byte_offset(place.start));
        superblocks::wipe(self.device.as_ref(), offsets)?;
        self.core().sb.ro_compatible |= RO_COMPATIBLE_PLACES;
        // Each names one copy anew, and neither says so before a checkpoint has nothing there.
        self.name_in_both()?;
        Ok(true)
    }

    /// Empties one place and reserves it; whether that worked.
    fn reserve(&self, place: Extent) -> Result<bool, Error> {
        let geometry = self.core().geometry;
        let group = geometry.group_of(place.start);
        // Large files have whole blocks.
        let block = geometry.block_frags();
        let first = place.start.0 / block * block;
        let end = (first + block).min(geometry.total_frags);
        let range = Extent::new(FragAddr(first), end - first);
        for _ in 0..ROUNDS {
            self.load(&[group])?;
            {
                let mut core = self.core();
                if core.space.reserve(place).is_ok() {
                    core.reclaim.forget_room();
                    return Ok(true);
                }
                core.mover().close_groups(&[group]);
            }
            self.evacuate_with_homes(&[range], |core| core.budget().may_compact())?;
            self.commit_all(Durability::Durable)?;
            self.say_reusable()?;
            self.free_held()?;
        }
        Ok(false)
    }
}
