//! Emptying what is behind the end that a volume in use is to have. Its superblocks change once it is closed (`crate::shrink`):
//! until then nothing on the device tells of it, and a crash leaves a volume of which some things were moved.

use super::Upkeep;
use super::vacating::set_leaving;
use crate::core::Core;
use crate::error::Error;
use crate::shrink::cut;
use loamfs_format::FragAddr;
use loamfs_format::text::human;
use std::ops::Range;

impl Upkeep<'_> {
    /// Moves what stands behind the first `bytes` bytes of the volume to before them, and returns when both copies of the superblock
    /// name checkpoints that have nothing there. `tell` is told now and then how many bytes are left, and says whether to go on.
    /// Nothing is placed there again until the volume is closed; after `false` and errors it is.
    ///
    /// # Errors
    /// [`Error::Options`] with the smallest size that has room for all; [`Error::NoSpace`] where there is none for the rest, since
    /// others wrote meanwhile; the device's.
    pub fn clear_behind(
        &self,
        bytes: u64,
        mut tell: impl FnMut(u64) -> bool,
    ) -> Result<bool, Error> {
        let cleared = self.clear(bytes, &mut tell);
        if !matches!(cleared, Ok(true)) {
            self.keep_size();
        }
        cleared
    }

    /// Takes back that the volume is to become smaller. What was moved stays where it is.
    pub fn keep_size(&self) {
        let mut core = self.core();
        let end = core.end().last();
        core.end().cut(end);
    }

    fn clear(&self, bytes: u64, tell: &mut dyn FnMut(u64) -> bool) -> Result<bool, Error> {
        let sealer = self.engine().sealer();
        let (end, first) = {
            let mut core = self.core();
            core.access.check()?;
            let end = cut(&core.sb, bytes)?.volume_bytes();
            (end, core.end().group_at(end))
        };
        if sealer.win_room(|core| core.end().cut(first))? > 0 {
            return Err(self.core().end().refusal(end, first));
        }
        drop(sealer);
        let cleared = self.vacate(|core| behind(core, first), tell)?;
        if cleared {
            self.engine().sealer().name_in_both()?;
        }
        Ok(cleared)
    }
}

/// The groups from this one on.
fn behind(core: &Core, first: u32) -> Vec<Range<u32>> {
    let groups = first..core.geometry.groups();
    std::iter::once(groups)
        .filter(|it| !it.is_empty())
        .collect()
}

/// The end of the volume, as groups: a view of the state.
struct End<'c> {
    core: &'c mut Core,
}

impl Core {
    fn end(&mut self) -> End<'_> {
        End { core: self }
    }
}

impl End<'_> {
    /// Behind all groups.
    fn last(&self) -> u32 {
        self.core.geometry.groups()
    }

    /// The first group that is not wholly within so many bytes.
    fn group_at(&self, bytes: u64) -> u32 {
        let g = &self.core.geometry;
        let whole = bytes / g.byte_offset(FragAddr(g.group_frags));
        u32::try_from(whole).unwrap_or(u32::MAX).min(g.groups())
    }

    /// From now on nothing is placed in the groups from this one on, nor where a device leaves.
    fn cut(&mut self, first: u32) {
        let mut leaving = self.core.sb.leaving_groups();
        leaving.extend(behind(self.core, first));
        set_leaving(self.core, leaving);
    }

    /// Why the volume cannot end after so many bytes, with groups from `first` on behind that.
    fn refusal(&mut self, end: u64, first: u32) -> Error {
        let (mut low, mut high) = (first.saturating_add(1).min(self.last()), self.last());
        while low < high {
            let middle = low.midpoint(high);
            self.cut(middle);
            // What is free in holes counts where it was not tried to win it.
            match self.core.available().bytes(false) > 0 {
                true => high = middle,
                false => low = middle + 1,
            }
        }
        let g = &self.core.geometry;
        if high == self.last() {
            let all = human(g.byte_offset(FragAddr(g.total_frags)));
            return Error::Options(format!(
                "the volume holds too much to become smaller than {all}; delete files first"
            ));
        }
        let least = g.byte_offset(FragAddr(u64::from(high).saturating_mul(g.group_frags)));
        Error::Options(format!(
            "{} is too little for what the volume holds; give --size {}K or more, or delete files first",
            human(end),
            least >> 10
        ))
    }
}
