//! Telling the device what is free (rule 5): by the clock, what was freed lately; when asked, everything.
//!
//! Only what may be written at once may be discarded. Space is given out under `sealing` or, to large files' data, under
//! `homes`, so what is found free under both locks stays free until the device was told.

use super::{Engine, Sealer, Upkeep, Watch};
use crate::blocks::Stop;
use crate::error::Error;
use crate::freed;
use crate::types::Discard;
use loamfs_device::{Counters, Device};
use loamfs_format::{Extent, FragAddr, Geometry, GroupNo};
use std::sync::RwLockWriteGuard;

/// Requests that devices get while nobody else may seal: one may take a solid-state disk milliseconds.
const DISCARD_STEP: usize = 8;

/// Requests that they get when the volume is closed or frozen, which somebody waits for. [`Upkeep::trim`] finds the rest.
pub(super) const DISCARDS_AT_LAST: usize = 256;

/// What devices were told of what is free.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trimmed {
    /// Bytes that they made use of; of what stands twice, in one place.
    pub bytes: u64,
    /// Numbers of the devices that make no use of it.
    pub unable: Vec<u32>,
}

impl Upkeep<'_> {
    /// Tells the devices to forget the free runs of at least `least` bytes in the bytes `start .. start + len` of the
    /// volume; returns how many bytes that were. What was freed and is not durable yet is left out.
    ///
    /// # Errors
    /// As [`trim_telling`](Self::trim_telling).
    pub fn trim(&self, start: u64, len: u64, least: u64) -> Result<u64, Error> {
        let trimmed = self.trim_telling(start, len, least, &mut |_, _| {})?;
        Ok(trimmed.bytes)
    }

    /// As [`trim`](Self::trim); calls `tell` with the number of groups that are done, and of all.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a range behind the end or shorter than a fragment, and for a run that no group can have;
    /// [`Error::ReadOnly`]; [`Error::Unsupported`] if no device could make use of it; that a bitmap is damaged, or that a
    /// device failed.
    pub fn trim_telling(
        &self,
        start: u64,
        len: u64,
        least: u64,
        tell: &mut dyn FnMut(u64, u64),
    ) -> Result<Trimmed, Error> {
        let geometry = self.core().geometry;
        let asked = in_fragments(start, len, least, &geometry)?;
        let least = least.div_ceil(geometry.fragment_size.into());
        let mut trimmed = Trimmed::default();
        for group in (0..geometry.groups()).map(GroupNo) {
            tell(group.0.into(), geometry.groups().into());
            let device = self.device_of(group);
            let range = geometry.group_extent(group).intersection(asked);
            if range.frags == 0 || device.is_some_and(|device| trimmed.unable.contains(&device)) {
                continue;
            }
            match self.engine().sealer().trim_in_group(range, least) {
                Ok(Some(told)) => trimmed.bytes += told,
                Ok(None) => trimmed.unable.extend(device),
                Err(error) => return Err(error),
            }
        }
        match trimmed.bytes == 0 && !trimmed.unable.is_empty() {
            true => Err(Error::Unsupported),
            false => Ok(trimmed),
        }
    }

    /// The number of the device that has a group.
    fn device_of(&self, group: GroupNo) -> Option<u32> {
        let core = self.core();
        let mut devices = core.sb.devices.iter();
        let found = devices.find(|device| core.sb.groups_of(device).contains(&group.0));
        found.map(|device| device.device)
    }
}

/// Which devices are told what is free; none where there are none of those.
pub(super) fn told(who: Discard, device: &dyn Device) -> Discard {
    let turns = match device.members() {
        [] => device.rotational(),
        members => members.iter().all(|member| member.device().rotational()),
    };
    match who {
        Discard::Flash if turns => Discard::Never,
        who => who,
    }
}

/// The fragments in the bytes `start .. start + len` of a volume.
fn in_fragments(start: u64, len: u64, least: u64, geometry: &Geometry) -> Result<Extent, Error> {
    let size = u64::from(geometry.fragment_size);
    if start / size >= geometry.total_frags {
        return Err(Error::Invalid(
            "the range begins behind the end of the volume",
        ));
    }
    if len < size {
        return Err(Error::Invalid("the range is shorter than a fragment"));
    }
    if least / size > geometry.group_frags {
        return Err(Error::Invalid("no free run is as long as that"));
    }
    let end = (start.saturating_add(len) / size).min(geometry.total_frags);
    let first = start.div_ceil(size);
    Ok(Extent::new(FragAddr(first), end.saturating_sub(first)))
}

impl Engine {
    /// Tells the devices what was freed lately, in up to `max` requests, a few at a time: others may seal in between.
    pub(super) fn discard_in_steps(&self, max: usize) {
        for _ in 0..max.div_ceil(DISCARD_STEP) {
            if !self.core().freed.waits() {
                return;
            }
            self.sealer().discard_freed(DISCARD_STEP);
        }
    }

    /// Up to `max` runs of what was freed lately, cut by groups, on devices that are told of it.
    fn parts_to_tell(&self, max: usize) -> Vec<Extent> {
        let mut core = self.core();
        let geometry = core.geometry;
        let runs = core.freed.take(max, &geometry);
        let by_group = |run: &Extent| {
            let run = *run;
            let groups = geometry.groups_with(run);
            groups.map(move |group| geometry.group_extent(group).intersection(run))
        };
        let parts = runs.iter().flat_map(by_group);
        let turns = |part: &Extent| self.device.rotational_at(geometry.byte_offset(part.start));
        parts.filter(|part| core.freed.tells(turns(part))).collect()
    }
}

impl Sealer<'_> {
    /// Trims a range of one group; returns as [`Discarder::discard`].
    fn trim_in_group(&self, range: Extent, least: u64) -> Result<Option<u64>, Error> {
        self.core().access.check_discard()?;
        let discarder = Discarder::new(self);
        let mut runs = discarder.free_in_group(range)?;
        runs.retain(|run| run.frags >= least.max(1));
        discarder.discard(&runs)
    }

    /// Tells the devices that are told by themselves what was freed lately and is still free, in up to `max` requests; the rest waits
    /// on. That it fails is no error of anybody's: the volume goes on without telling.
    pub(super) fn discard_freed(&self, max: usize) {
        if self.core().access.check_discard().is_err() {
            return;
        }
        let parts = self.parts_to_tell(max);
        if parts.is_empty() {
            return;
        }
        let discarder = Discarder::new(self);
        let geometry = self.core().geometry;
        let mut runs: Vec<Extent> = Vec::new();
        let mut left = Vec::new();
        for part in parts {
            if runs.len() >= max {
                left.push(part);
                continue;
            }
            match discarder.free_in_group(part) {
                Ok(found) => {
                    let whole = found
                        .iter()
                        .filter_map(|run| freed::within(*run, &geometry));
                    runs.extend(whole);
                }
                Err(error) => tracing::debug!(%error, "cannot tell what is free"),
            }
        }
        left.extend(runs.split_off(runs.len().min(max)));
        self.core().freed.note(&left, &geometry);
        if let Err(error) = discarder.discard(&runs) {
            tracing::warn!(%error, "the device cannot discard; it is not told any more what is free");
            self.core().freed.tell(Discard::Never);
        }
    }
}

/// Whoever may seal, and has no write of homes in flight: what he finds free stays so.
struct Discarder<'v> {
    engine: &'v Engine,
    _homes: (Watch<'v>, RwLockWriteGuard<'v, ()>),
}

impl<'v> Discarder<'v> {
    fn new(sealer: &'v Sealer<'_>) -> Discarder<'v> {
        let engine: &Engine = sealer;
        Discarder {
            engine,
            _homes: engine.homes_alone(),
        }
    }

    /// The free runs in a range of one group. Its bitmap leaves memory again if it was not there before.
    fn free_in_group(&self, range: Extent) -> Result<Vec<Extent>, Error> {
        let group = self.engine.core().geometry.group_of(range.start);
        let was_loaded = self.engine.core().space.bitmaps().is_loaded(group);
        let runs = self.engine.step(|core| {
            let bitmaps = core.space.bitmaps();
            match bitmaps.is_loaded(group) {
                true => Ok(bitmaps.free_runs(range)),
                false => Err(Stop::Load(vec![group])),
            }
        })?;
        if !was_loaded {
            let mut core = self.engine.core();
            core.space.unload(group);
            core.reclaim.forget_room();
        }
        Ok(runs.iter().map(|run| run.intersection(range)).collect())
    }

    /// Discards runs, but for those that hold hot data; returns how many bytes the device made use of, `None` if it can use none.
    fn discard(&self, runs: &[Extent]) -> Result<Option<u64>, Error> {
        let geometry = self.engine.core().geometry;
        let hot = self.engine.reader.hot();
        let is_hot = |run: &&Extent| hot.is_some_and(|hot| hot.has(geometry.group_of(run.start)));
        let ranges: Vec<(u64, u64)> = runs
            .iter()
            .filter(|run| !is_hot(run))
            .map(|run| {
                let len = run.frags.saturating_mul(geometry.fragment_size.into());
                (geometry.byte_offset(run.start), len)
            })
            .collect();
        if ranges.is_empty() {
            return Ok(Some(0));
        }
        let before = self.counters();
        self.engine.device.discard(&ranges)?;
        let told = self.counters().into_iter().zip(before);
        let told = told.map(|(after, before)| after - before);
        let used = told.filter(|told| told.discards() > 0);
        // What stands twice is told of in both places.
        Ok(used.map(|told| told.discard_bytes()).max())
    }

    /// Those of each device.
    fn counters(&self) -> Vec<Counters> {
        let device = &self.engine.device;
        match device.members() {
            [] => vec![device.counters()],
            members => members.iter().map(|it| it.device().counters()).collect(),
        }
    }
}
