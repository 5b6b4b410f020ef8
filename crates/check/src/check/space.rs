//! What is in use against what is recorded as in use.

use super::bits::Bits;
use super::draft::Draft;
use super::exact;
use super::groups::Groups;
use super::scan::{MapScan, Window};
use super::sums::{Side, SpaceSums};
use super::visitor::Lost;
use crate::{MapFault, Options, Owner, Phase, Problem, RangeMap, Volume};
use loamfs_format::{BlockKind, Extent, FragAddr, Ino};

/// Scans the maps, and looks closer at what does not add up.
pub(crate) fn check(
    volume: &Volume<'_>,
    mut sums: SpaceSums,
    lost: &Lost,
    memory: u64,
    report: &mut Draft,
    options: &mut Options<'_>,
) {
    if lost.bits {
        report.skip_space("free space, as a part of the bitmap cannot be read");
        return;
    }
    let total = volume.geometry().total_frags;
    let mut scan = MapScan::new(volume, 0);
    let mut groups = (!lost.groups).then(|| Groups::new(volume));
    while let Some(window) = scan.next(&mut |problem| report.add(problem)) {
        super::tell(options, Phase::Space, window.extent.start.0, total);
        if let Some(groups) = &mut groups {
            groups.window(&window, report);
        }
        log_and_held(volume, &window, report);
        changes(volume, &window, groups.as_mut(), report);
        pieces(&window, &mut sums, groups.as_mut(), report);
    }
    if let Some(groups) = &mut groups {
        groups.finish(report);
    }
    images(volume, &mut sums, report);
    let overcommitted = Problem::Overcommitted {
        claimed: 0,
        total: 0,
    };
    if report.has(overcommitted.code()) {
        report.skip_space("free space, as far more is claimed than there is");
        return;
    }
    let regions = if lost.owners {
        report.skip("owner records, as a part of them cannot be read");
        vec![Extent::new(FragAddr(0), total)]
    } else {
        sums.unequal()
    };
    exact::check(volume, &regions, lost, memory, report, options);
}

/// What the log, the superblocks and what is held back take must be set, and only once.
fn log_and_held(volume: &Volume<'_>, window: &Window, report: &mut Draft) {
    let Window {
        extent,
        set,
        held,
        log,
        reserved,
        ..
    } = window;
    report.stats().frags_set += set.count(*extent);
    report.stats().frags_held += held.count(*extent);
    for run in Bits::runs(*extent, &[held], &[set]) {
        report.add(Problem::HeldNotMarked { extent: run });
        report.plan().add_set(run);
    }
    for own in [log, reserved] {
        for run in Bits::runs(*extent, &[own], &[set]) {
            report.add(Problem::LogNotMarked { extent: run });
            report.plan().add_set(run);
        }
        for run in Bits::runs(*extent, &[own, held], &[]) {
            let kind = BlockKind::Summary;
            let owner = Owner::new(kind, 0, Ino(0), 0, run.start, volume.geometry());
            report.add(Problem::HeldInUse { extent: run, owner });
        }
    }
}

/// What was allocated was free, and what was freed was in use.
fn changes(
    volume: &Volume<'_>,
    window: &Window,
    groups: Option<&mut Groups<'_>>,
    report: &mut Draft,
) {
    let (extent, base) = (window.extent, &window.base);
    let bits = |map: &RangeMap<()>| {
        let mut bits = window.empty();
        map.overlapping(extent)
            .for_each(|(range, ())| bits.set(range));
        bits
    };
    let state = volume.state();
    for run in Bits::runs(extent, &[&bits(&state.fresh), base], &[]) {
        report.add(Problem::AllocatedTwice { extent: run });
    }
    let old = bits(&state.old);
    // What has no bit now either is named as held.
    for run in Bits::runs(extent, &[&old, &window.set], &[base]) {
        report.add(Problem::FreedTwice { extent: run });
    }
    if let Some(groups) = groups {
        for run in Bits::runs(extent, &[&old, base], &[]) {
            groups.freed(run, report);
        }
    }
}

/// Subtracts what bitmap and owner records say, and compares it with the groups' roles.
fn pieces(
    window: &Window,
    sums: &mut SpaceSums,
    groups: Option<&mut Groups<'_>>,
    report: &mut Draft,
) {
    for run in window.live(window.extent) {
        for (extent, owner) in window.split(run) {
            sums.range(extent, owner, Side::Recorded);
        }
    }
    let Some(groups) = groups else { return };
    for run in Bits::runs(
        window.extent,
        &[&window.set],
        &[&window.held, &window.reserved],
    ) {
        for (extent, owner) in window.split(run) {
            if let Some(owner) = owner {
                groups.piece(extent, &owner, report);
            }
        }
    }
}

/// Subtracts the homes that the lazy map knows.
fn images(volume: &Volume<'_>, sums: &mut SpaceSums, report: &mut Draft) {
    for entry in volume.lazy(FragAddr(0)) {
        match entry {
            Ok((home, _)) if home < volume.geometry().total_frags => {
                report.stats().images += 1;
                sums.image(FragAddr(home), Side::Recorded);
            }
            Ok((home, _)) => report.add(Problem::LazyEntry {
                home: FragAddr(home),
            }),
            Err(MapFault::Entry { key, .. }) => report.add(Problem::LazyEntry {
                home: FragAddr(key),
            }),
            // Nodes that cannot be used were named when the map was walked.
            Err(_) => {}
        }
    }
}
