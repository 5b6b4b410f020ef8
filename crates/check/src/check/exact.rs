//! A closer look at the regions whose sums do not add up.
//!
//! What is reached there is collected by another walk, as much as fits into memory: the ranges with the lowest
//! addresses. What did not fit is left to a further walk.

use super::Walker;
use super::bits::{Bits, WINDOW};
use super::draft::Draft;
use super::scan::{MapScan, Window};
use super::visitor::{Lost, Visitor};
use crate::{Options, Owner, Phase, Problem, Volume};
use loamfs_format::{BlockKind, Extent, FragAddr};
use std::collections::BTreeSet;

/// Most walks; what is left then stays unnamed.
const PASSES_MAX: u64 = 64;

/// A range that is reached, or a home with an image when there is no owner.
type Claim = (Extent, Option<Owner>);

/// Names what is wrong in the given regions, which are ordered and do not touch.
pub(crate) fn check(
    volume: &Volume<'_>,
    regions: &[Extent],
    lost: &Lost,
    memory: u64,
    report: &mut Draft,
    options: &mut Options<'_>,
) {
    let capacity = (memory / 8 / size_of::<Claim>() as u64) as usize;
    let mut from = 0;
    for pass in 0..PASSES_MAX {
        if regions.last().is_none_or(|last| last.end().0 <= from) {
            return;
        }
        super::tell(options, Phase::Exact, pass, 0);
        report.stats().passes += 1;
        let mut claims = Collector {
            regions,
            from,
            upto: u64::MAX,
            capacity,
            claims: Vec::new(),
        };
        Walker::new(volume, &mut claims, false).run();
        let upto = claims.upto;
        Judge {
            volume,
            lost,
            report,
            from,
            upto,
            shared: Vec::new(),
        }
        .regions(regions, claims.sorted());
        if upto == u64::MAX {
            return;
        }
        if upto <= from {
            report.skip("a part of the free space, as too much is claimed in one place");
        }
        from = upto.max(from + 1);
    }
    report.skip("a part of the free space, as too much of it is wrong");
}

/// Collects what is reached in the regions from `from` on.
struct Collector<'r> {
    regions: &'r [Extent],
    from: u64,
    /// What starts here or behind is left to the next pass.
    upto: u64,
    capacity: usize,
    claims: Vec<Claim>,
}

impl Collector<'_> {
    fn add(&mut self, extent: Extent, owner: Option<Owner>) {
        if extent.end().0 <= self.from || extent.start.0 >= self.upto {
            return;
        }
        let first = self
            .regions
            .partition_point(|region| region.end() <= extent.start);
        if self
            .regions
            .get(first)
            .is_some_and(|region| region.overlaps(extent))
        {
            self.claims.push((extent, owner));
        }
        if self.claims.len() >= 2 * self.capacity.max(1) {
            let (_, nth, _) = self
                .claims
                .select_nth_unstable_by_key(self.capacity, |(extent, _)| extent.start);
            self.upto = nth.0.start.0;
            let upto = self.upto;
            self.claims.retain(|(extent, _)| extent.start.0 < upto);
        }
    }

    fn sorted(&mut self) -> &[Claim] {
        self.claims.sort_unstable();
        &self.claims
    }
}

impl Visitor for Collector<'_> {
    fn claim(&mut self, extent: Extent, owner: Owner) {
        self.add(extent, Some(owner));
    }

    fn image(&mut self, home: FragAddr) {
        self.add(Extent::new(home, 1), None);
    }
}

/// Compares claims and records piece by piece, between `from` and `upto`.
struct Judge<'a, 'v> {
    volume: &'v Volume<'v>,
    lost: &'a Lost,
    report: &'a mut Draft,
    from: u64,
    upto: u64,
    /// What is claimed more than once, in order.
    shared: Vec<Extent>,
}

impl Judge<'_, '_> {
    fn regions(&mut self, regions: &[Extent], claims: &[Claim]) {
        self.overlaps(claims);
        let homes: BTreeSet<FragAddr> = claims
            .iter()
            .filter(|(_, owner)| owner.is_none())
            .map(|(e, _)| e.start)
            .collect();
        let mut rest = claims
            .iter()
            .filter_map(|(extent, owner)| Some((*extent, (*owner)?)))
            .peekable();
        let mut active: Vec<(Extent, Owner)> = Vec::new();
        let total = self.volume.geometry().total_frags;
        for region in regions {
            let end = region.end().0.min(self.upto).min(total);
            let mut at = region.start.0.max(self.from);
            let mut scan = MapScan::new(self.volume, at);
            while at < end {
                // What is wrong with entries was told when all was scanned.
                let mut window = scan.load(at / WINDOW * WINDOW, &mut drop);
                // What lies before was looked at in an earlier pass, what lies behind has to wait.
                let stop = window.extent.end().0.min(end);
                window.extent = Extent::new(FragAddr(at), stop - at);
                while let Some(claim) = rest.next_if(|(e, _)| e.start < window.extent.end()) {
                    active.push(claim);
                }
                active.retain(|(extent, _)| extent.end() > window.extent.start);
                self.window(&window, &active);
                self.images(&window, &homes);
                at = stop;
            }
        }
    }

    /// Names what two claims share.
    fn overlaps(&mut self, claims: &[Claim]) {
        let mut farthest: Option<(Extent, Owner)> = None;
        for (extent, owner) in claims {
            let Some(owner) = *owner else { continue };
            if let Some((other, first)) = farthest
                && other.end() > extent.start
            {
                let shared = extent.intersection(other);
                self.note_shared(shared);
                if extent.start.0 >= self.from {
                    self.report.note_shared([first.ino, owner.ino]);
                    self.report.add(Problem::Overlap {
                        extent: shared,
                        first,
                        second: owner,
                    });
                }
            }
            if farthest.is_none_or(|(other, _)| other.end() < extent.end()) {
                farthest = Some((*extent, owner));
            }
        }
    }

    /// Notes what is claimed more than once, by rising starts.
    fn note_shared(&mut self, extent: Extent) {
        match self.shared.last_mut() {
            Some(last) if extent.start <= last.end() => {
                let end = last.end().max(extent.end());
                last.frags = end.0 - last.start.0;
            }
            _ => self.shared.push(extent),
        }
    }

    fn is_shared(&self, extent: Extent) -> bool {
        let first = self.shared.partition_point(|s| s.end() <= extent.start);
        self.shared.get(first).is_some_and(|s| s.overlaps(extent))
    }

    fn window(&mut self, window: &Window, claims: &[(Extent, Owner)]) {
        let Window {
            extent,
            set,
            held,
            log,
            reserved,
            ..
        } = window;
        let mut claimed = window.empty();
        for (claim, owner) in claims {
            claimed.set(*claim);
            self.claim(window, *claim, *owner);
        }
        if self.lost.space {
            return;
        }
        for run in Bits::runs(*extent, &[set], &[held, log, reserved, &claimed]) {
            self.report.add(Problem::Leaked { extent: run });
            self.report.plan().add_clear(run);
        }
    }

    fn claim(&mut self, window: &Window, claim: Extent, owner: Owner) {
        let Window {
            extent,
            set,
            held,
            log,
            reserved,
            ..
        } = window;
        let start = claim.start.max(extent.start);
        let claim = Extent::new(
            start,
            claim.end().min(extent.end()).0.saturating_sub(start.0),
        );
        if claim.frags == 0 {
            return;
        }
        let mut full = window.empty();
        full.set(claim);
        for run in Bits::runs(claim, &[&full], &[set]) {
            self.report.note_shared([owner.ino]);
            self.report.add(Problem::NotMarked { extent: run, owner });
            self.report.plan().add_set(run);
        }
        for run in Bits::runs(claim, &[held], &[]) {
            self.report.note_shared([owner.ino]);
            self.report.add(Problem::HeldInUse { extent: run, owner });
        }
        for own in [log, reserved] {
            for run in Bits::runs(claim, &[own], &[]) {
                self.report.note_shared([owner.ino]);
                self.report.add(Problem::LogInUse { extent: run, owner });
            }
        }
        if self.lost.owners {
            return;
        }
        let pieces = window.live(claim);
        let pieces = pieces.into_iter().flat_map(|run| window.split(run));
        let wrong: Vec<_> = pieces.filter(|(_, found)| *found != Some(owner)).collect();
        let homed = owner.kind == BlockKind::Homed;
        // The record may be right, and what else claims it wrong.
        if homed && !wrong.is_empty() && !self.is_shared(claim) {
            let block = owner.logical(claim.start, self.volume.geometry());
            self.report.plan().add_home(claim, owner.ino, block);
        }
        for (extent, found) in wrong {
            self.report.add(match homed {
                true => Problem::HomeRecord {
                    extent,
                    owner,
                    found,
                },
                false => Problem::OwnerRecord {
                    extent,
                    owner,
                    found,
                },
            });
        }
    }

    /// Names the homes with images that no file has come to.
    fn images(&mut self, window: &Window, homes: &BTreeSet<FragAddr>) {
        if !self.volume.has_images() || self.lost.space {
            return;
        }
        let entries = self.volume.lazy(window.extent.start).flatten();
        let entries = entries.map(|(home, _)| FragAddr(home));
        for home in entries.take_while(|home| *home < window.extent.end()) {
            if !homes.contains(&home) {
                self.report.add(Problem::LazyStray { home });
            }
        }
    }
}
