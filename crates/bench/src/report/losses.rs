//! Where LoamFS is not the first: as plainly as where it is.

use super::compared;
use super::html::{Table, escape};
use crate::disk::{Preset, Tally};
use crate::lab::Kind;
use crate::results::Results;

/// How much slower than another counts as a loss.
const MARGIN: f64 = 1.02;

/// A phase in which another file system is faster.
struct Loss {
    case: String,
    phase: String,
    preset: Preset,
    ours: Tally,
    best: Kind,
    theirs: Tally,
}

/// The section.
pub fn section(results: &Results) -> String {
    if compared(results).is_empty() {
        return String::new();
    }
    let losses = find(results);
    let mut out = String::from("<h2>Where LoamFS loses</h2>\n");
    if losses.is_empty() {
        return out + "<p>In no phase is another file system faster by more than 2 %.</p>\n";
    }
    out += "<p>Every phase in which another file system takes less time on the same disk, by more than 2 %: the best of \
            them, and what LoamFS's time went into. <i>moving</i> is the time in which the disk's arm moves and waits for its place, \
            <i>cleaning</i> that in which a shingled disk empties its cache. The largest differences come first.</p>\n";
    let mut table = Table::new(&[
        "workload",
        "phase",
        "disk",
        "LoamFS, s",
        "best",
        "best, s",
        "times",
        "LoamFS: reads",
        "writes",
        "moving, s",
        "cleaning, s",
        "best: reads",
        "writes",
        "moving, s",
    ]);
    for loss in losses {
        let requests = |sum: crate::trace::Sum| {
            format!(
                "{} of {:.1} MiB",
                sum.requests,
                sum.bytes as f64 / f64::from(1 << 20)
            )
        };
        table.row(
            false,
            &[
                loss.case,
                loss.phase,
                super::disk_name(loss.preset).to_owned(),
                format!("{:.2}", loss.ours.seconds),
                loss.best.name().into(),
                format!("{:.2}", loss.theirs.seconds),
                format!("{:.2}", loss.ours.seconds / loss.theirs.seconds.max(1e-9)),
                requests(loss.ours.read),
                requests(loss.ours.written),
                format!("{:.2}", loss.ours.positioning_seconds),
                format!("{:.2}", loss.ours.cleaning_seconds),
                requests(loss.theirs.read),
                requests(loss.theirs.written),
                format!("{:.2}", loss.theirs.positioning_seconds),
            ],
        );
    }
    out + &table.html() + &missing(results)
}

fn find(results: &Results) -> Vec<Loss> {
    let mut losses = Vec::new();
    for case in results.cases() {
        let Some(run) = results.of(case, Kind::Loam).first().copied() else {
            continue;
        };
        for phase in &run.phases {
            for preset in &Preset::TURNING {
                let median = |kind| {
                    let median = results.median(case, kind, *preset, &[&phase.name]);
                    median.map(|(tally, ..)| tally)
                };
                let peers = compared(results)
                    .into_iter()
                    .filter(|kind| !matches!(kind, Kind::Loam | Kind::Ext4Emulated));
                let best = peers
                    .filter_map(|kind| Some((kind, median(kind)?)))
                    .min_by(|a, b| a.1.seconds.total_cmp(&b.1.seconds));
                if let (Some(ours), Some((best, theirs))) = (median(Kind::Loam), best)
                    && ours.seconds > MARGIN * theirs.seconds
                {
                    losses.push(Loss {
                        case: case.to_owned(),
                        phase: phase.name.clone(),
                        preset: *preset,
                        ours,
                        best,
                        theirs,
                    });
                }
            }
        }
    }
    let lost = |loss: &Loss| loss.ours.seconds - loss.theirs.seconds;
    losses.sort_by(|a, b| lost(b).total_cmp(&lost(a)));
    losses
}

/// Workloads for which there is nothing to compare.
fn missing(results: &Results) -> String {
    let peers = |case: &str| {
        compared(results)
            .iter()
            .any(|kind| !results.of(case, *kind).is_empty())
    };
    let without = |case: &&str| results.of(case, Kind::Loam).is_empty() && peers(case);
    let cases: Vec<&str> = results.cases().into_iter().filter(without).collect();
    if cases.is_empty() {
        return String::new();
    }
    format!(
        "<p class=\"loss\">LoamFS has no figures for {}.</p>\n",
        escape(&cases.join(", "))
    )
}
