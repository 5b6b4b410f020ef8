//! What of the free space a device may be told to forget.

use crate::space::{Space, State};
use loamfs_format::{Extent, FragAddr};

impl Space {
    /// The free runs in a range that is widened to whole cells: 4 KiB units of log groups, blocks of data groups. What
    /// is in use, unshown, reserved or held back (rule 5) is in none of them; neither is anything of groups whose
    /// bitmaps are not in memory.
    pub fn free_runs(&self, extent: Extent) -> Vec<Extent> {
        let mut runs: Vec<Extent> = Vec::new();
        let end = extent.start.0.saturating_add(extent.frags);
        for (index, bits, _) in self
            .layout
            .parts(extent.start.0..end.min(self.layout.geometry().total_frags))
        {
            let Some(group) = self.groups.get(index) else {
                break;
            };
            let found: Vec<_> = match &group.state {
                State::Loaded(map) => map.holes_in(bits).collect(),
                State::Empty if group.deltas.is_empty() => self
                    .layout
                    .map_for(index, group.role, self.layout.pristine_bits(index))
                    .map(|map| map.holes_in(bits).collect())
                    .unwrap_or_default(),
                State::Empty | State::Absent => continue,
            };
            let start = self.layout.extent(index).start.0;
            for hole in found {
                let run = Extent::new(FragAddr(start + hole.start), hole.end - hole.start);
                match runs.last_mut().filter(|last| last.end() == run.start) {
                    Some(last) => last.frags += run.frags,
                    None => runs.push(run),
                }
            }
        }
        runs
    }
}
