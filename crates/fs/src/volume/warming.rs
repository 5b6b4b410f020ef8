//! Keeping hot data in free groups of fast devices, by the clock ([`crate::hot`]).
//!
//! Writing into what is free is as telling a device that it is free (rule 5, `volume::discard`): whoever may seal, and has no write of
//! homes in flight, finds free what stays so until he is done. No law is asked for more, as nothing depends on what he writes.

use super::Sealer;
use crate::hot::{Hot, Writing};
use loamfs_device::{IoKind, Write, read_exact};
use loamfs_format::GroupNo;
use std::ops::Range;
use std::time::Duration;

/// How often somebody looks which groups are free, where nothing waits.
const LOOK_EVERY: Duration = Duration::from_secs(1);

impl Sealer<'_> {
    /// Hot data, where there are fast devices, or were.
    fn hot(&self) -> Option<&Hot> {
        let hot = self.reader.hot()?;
        let has_fast = !self.core().sb.fast_groups().is_empty();
        (has_fast || hot.is_on()).then_some(hot)
    }

    /// Writes what waits, if no home is being written just now.
    pub(super) fn warm(&self) {
        let Some(hot) = self.hot() else {
            return;
        };
        let now = self.core().env.elapsed();
        let mut looked = self.warmed();
        let looks = looked.is_none_or(|last| now.saturating_sub(last) >= LOOK_EVERY);
        if !looks && !hot.is_waiting() {
            return;
        }
        // Tables count before others have used the groups, so that this cannot wait.
        let homes = match hot.is_new() {
            true => Some(self.homes_alone()),
            false => self.homes_alone_at_once(),
        };
        if let Some(_homes) = homes {
            *looked = Some(now);
            self.take_spare(hot);
            self.bring(hot, hot.take_writes());
        }
    }

    /// Writes what waits, and what there is for the next mount: the volume is closed, and no segment comes any more.
    pub(super) fn warm_at_last(&self) {
        if let Some(hot) = self.hot() {
            let _homes = self.homes_alone();
            self.take_spare(hot);
            self.bring(hot, hot.take_writes());
            let tables = hot.tables(self.core().log.tail().ssn);
            // They tell of what is there: no power failure may leave them alone.
            if tables.writes().next().is_some() && self.flush_device().is_ok() {
                self.bring(hot, tables);
            }
        }
    }

    /// Keeps to the groups that are free. Nobody else writes homes meanwhile.
    fn take_spare(&self, hot: &Hot) {
        let (fast, spare) = self.spare_groups();
        for group in hot.settle_in(fast, &spare) {
            self.remember(hot, group);
        }
    }

    /// Writes into groups that are free, as before.
    fn bring(&self, hot: &Hot, writing: Writing) {
        let geometry = self.core().geometry;
        let writes = writing.writes().map(|(at, bytes)| {
            let offset = geometry.byte_offset(at);
            Write::new(offset, bytes, IoKind::Other)
        });
        let writes: Vec<Write<'_>> = writes.collect();
        let written: Result<(), _> = self.device().write(&writes).into_iter().collect();
        match written {
            Ok(()) => hot.written(writing),
            Err(error) => {
                tracing::warn!(%error, "hot data cannot be written, and are not kept any more");
                hot.give_up();
            }
        }
    }

    /// The groups of fast devices, and those of them that hot data may take.
    fn spare_groups(&self) -> (Vec<Range<u32>>, Vec<GroupNo>) {
        let core = self.core();
        let fast = core.sb.fast_groups();
        // What the leading device holds stands on a slow one too, and whatever is written to it.
        let is_twice = core.sb.copy().is_some() || core.sb.behind().is_some();
        let leads = core.sb.devices.first().filter(|_| is_twice);
        let twice = leads.map(|leads| core.sb.groups_of(leads));
        let mut spare = core.space.spare().farthest(&fast);
        spare.retain(|group| twice.as_ref().is_none_or(|twice| !twice.contains(&group.0)));
        (fast, spare)
    }

    /// Reads a group's table, which an earlier mount may have left there.
    fn remember(&self, hot: &Hot, group: GroupNo) {
        let (geometry, table) = (self.core().geometry, hot.table(group));
        let len = table.frags as usize * geometry.fragment_size as usize;
        let start = geometry.byte_offset(table.start);
        if let Ok(bytes) = read_exact(self.device(), start, len, IoKind::Other) {
            hot.believe(group, &bytes);
        }
    }
}
