//! What the page comes to: a sentence and a chart, before anything else.

use super::html::{escape, figure};
use super::{chart, compared};
use crate::disk::Preset;
use crate::lab::Kind;
use crate::results::Results;

/// How much faster than all others counts as first.
const MARGIN: f64 = 1.02;

/// A workload in which LoamFS and others have figures: seconds of each, of the hard disk of the model.
struct Contest<'a> {
    case: &'a str,
    ours: f64,
    others: Vec<(Kind, f64)>,
}

impl Contest<'_> {
    /// The fastest of the others.
    fn best(&self) -> Option<(Kind, f64)> {
        let others = self.others.iter().copied();
        others.min_by(|a, b| a.1.total_cmp(&b.1))
    }

    /// How many times as long as the fastest of the others LoamFS takes.
    fn times(&self) -> f64 {
        self.best()
            .map_or(1.0, |(_, best)| self.ours / best.max(1e-9))
    }
}

fn contests(results: &Results) -> Vec<Contest<'_>> {
    let seconds = |case: &str, kind| {
        let median = results.median(case, kind, Preset::Reference, &[])?;
        Some(median.0.seconds).filter(|seconds| *seconds > 0.0)
    };
    let cases = results.cases().into_iter();
    let all = cases.filter_map(|case| {
        let others = compared(results).into_iter();
        let others = others.filter(|kind| !matches!(kind, Kind::Loam | Kind::Ext4Emulated));
        let contest = Contest {
            case,
            ours: seconds(case, Kind::Loam)?,
            others: others
                .filter_map(|kind| Some((kind, seconds(case, kind)?)))
                .collect(),
        };
        (!contest.others.is_empty()).then_some(contest)
    });
    all.collect()
}

/// The section.
pub fn section(results: &Results) -> String {
    let contests = contests(results);
    format!(
        "<p class=\"verdict\">{}</p>\n{}",
        escape(&sentence(results, &contests)),
        picture(results, &contests)
    )
}

fn sentence(results: &Results, contests: &[Contest<'_>]) -> String {
    let count = contests.len();
    let Some(worst) = contests
        .iter()
        .max_by(|a, b| a.times().total_cmp(&b.times()))
    else {
        return alone(results);
    };
    let first = contests
        .iter()
        .filter(|contest| contest.times() * MARGIN < 1.0)
        .count();
    let last = contests
        .iter()
        .filter(|contest| contest.times() > MARGIN)
        .count();
    let workloads = if count == 1 { "workload" } else { "workloads" };
    let mut said = format!(
        "By the time that a hard disk of the model is busy, LoamFS is first in {first} of {count} {workloads}"
    );
    if let Some(rival) = rival(contests) {
        let part = rival.ours / rival.theirs.max(1e-9);
        let which = match rival.workloads {
            all if all == count => "over all".to_owned(),
            some => format!("over the {some} that it has figures of"),
        };
        said.push_str(&format!(
            ", and takes {part:.2} of the time of {} {which}",
            rival.kind.name()
        ));
    }
    match (last, worst.best()) {
        (0, _) | (_, None) => said + "; it loses to none.",
        (_, Some((kind, _))) => format!(
            "{said}; it loses most in {}, where it takes {:.1} times as long as {}.",
            worst.case,
            worst.times(),
            kind.name()
        ),
    }
}

/// Another file system over all workloads in which it has figures.
struct Rival {
    kind: Kind,
    workloads: usize,
    /// Its seconds.
    theirs: f64,
    /// LoamFS's in the same workloads.
    ours: f64,
}

/// The one that takes least beside LoamFS.
fn rival(contests: &[Contest<'_>]) -> Option<Rival> {
    let mut rivals: Vec<Rival> = Vec::new();
    for contest in contests {
        for &(kind, seconds) in &contest.others {
            let at = rivals.iter().position(|rival| rival.kind == kind);
            let at = at.unwrap_or_else(|| {
                let (workloads, theirs, ours) = (0, 0.0, 0.0);
                rivals.push(Rival {
                    kind,
                    workloads,
                    theirs,
                    ours,
                });
                rivals.len() - 1
            });
            rivals[at].workloads += 1;
            rivals[at].theirs += seconds;
            rivals[at].ours += contest.ours;
        }
    }
    let times = |rival: &Rival| rival.theirs / rival.ours.max(1e-9);
    rivals
        .into_iter()
        .min_by(|a, b| times(a).total_cmp(&times(b)))
}

/// Where no other file system stands beside it.
fn alone(results: &Results) -> String {
    let cases = results.cases().len();
    let workloads = if cases == 1 { "workload" } else { "workloads" };
    let failed = results
        .runs
        .iter()
        .filter(|run| run.failed.is_some())
        .count();
    let failures = match failed {
        0 => "none failed".to_owned(),
        1 => "one run failed".to_owned(),
        failed => format!("{failed} runs failed"),
    };
    format!(
        "{cases} {workloads}, and no other file system beside LoamFS on the same disk: the figures say what was asked of a disk, \
         and compare nothing; {failures}."
    )
}

/// LoamFS's time beside that of the fastest of the others, workload by workload.
fn picture(results: &Results, contests: &[Contest<'_>]) -> String {
    let bars: Vec<chart::Bar> = match contests.is_empty() {
        false => contests.iter().flat_map(pair).collect(),
        true => results
            .cases()
            .into_iter()
            .filter_map(|case| single(results, case))
            .collect(),
    };
    if bars.is_empty() {
        return String::new();
    }
    let heading = "seconds that the hard disk of the model is busy";
    let panel = chart::bars_with("The verdict", heading, &bars, 190.0);
    let caption = match contests.is_empty() {
        false => {
            "<b>LoamFS</b> (green) and the fastest of the others, workload by workload; shorter is better"
        }
        true => "what each workload takes",
    };
    figure(caption, &[panel])
}

fn pair(contest: &Contest<'_>) -> Vec<chart::Bar> {
    let bar = |name: String, value: f64, ours| chart::Bar {
        name,
        value,
        more: 0.0,
        label: format!("{value:.1} s"),
        ours,
    };
    let ours = bar(contest.case.to_owned(), contest.ours, true);
    let best = contest
        .best()
        .map(|(kind, best)| bar(format!("\u{2013} {}", kind.name()), best, false));
    std::iter::once(ours).chain(best).collect()
}

/// A workload of which only one kind of run is there.
fn single(results: &Results, case: &str) -> Option<chart::Bar> {
    let kinds = super::kinds(results);
    let median = |kind: &Kind| results.median(case, *kind, Preset::Reference, &[]);
    let (tally, ..) = kinds.iter().find_map(median)?;
    Some(chart::Bar {
        name: case.to_owned(),
        value: tally.seconds,
        more: 0.0,
        label: format!("{:.1} s", tally.seconds),
        ours: true,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::page;
    use crate::results::{About, Run};
    use crate::suite::{Outcome, Scale, Spent, Workload};
    use crate::trace::Uses;

    const NEAR: &str = "P 1 make -1\n2 R 0 8\nP 6 make 1\n";
    const FAR: &str = "P 1 make -1\n2 R 0 8\n3 R 1000000 8\n4 R 0 8\n5 R 1000000 8\nP 6 make 1\n";

    fn results(runs: &[(Workload, Kind, &str)]) -> Results {
        let mut results = Results::new(About::of_nothing());
        for (workload, kind, trace) in runs {
            let outcome = Outcome {
                parts: Vec::new(),
                trace: trace.parse().unwrap(),
                seconds: vec![1.25],
                spent: vec![Spent::default()],
                uses: vec![Uses::default()],
                disturbed: false,
            };
            let case = &workload.cases(Scale::Tiny)[0];
            results.extend([Run::new(case, *kind, 1, &outcome)]);
        }
        results
    }

    fn said(runs: &[(Workload, Kind, &str)]) -> String {
        let results = results(runs);
        let page = page(&results);
        let said = sentence(&results, &contests(&results));
        // It comes first, with its chart, and no other text before it.
        let place = page.find(&escape(&said)).unwrap();
        assert!(place < page.find("<svg").unwrap() && place < page.find("<h2").unwrap());
        said
    }

    #[test]
    fn gains_and_losses_are_told_in_a_sentence() {
        let won = [
            (Workload::Smallfile, Kind::Loam, NEAR),
            (Workload::Smallfile, Kind::Ext4, FAR),
        ];
        let told = said(&won);
        assert!(told.contains("first in 1 of 1 workload,"), "{told}");
        assert!(told.contains("of the time of ext4 over all"), "{told}");
        assert!(told.ends_with("it loses to none."), "{told}");
        let lost = [
            (Workload::Smallfile, Kind::Loam, FAR),
            (Workload::Smallfile, Kind::Ext4, NEAR),
        ];
        let told = said(&lost);
        assert!(told.contains("first in 0 of 1 workload,"), "{told}");
        assert!(told.contains("it loses most in"), "{told}");
        assert!(told.contains("times as long as ext4."), "{told}");
    }

    #[test]
    fn who_lacks_figures_is_not_compared_over_all() {
        let told = said(&[
            (Workload::Smallfile, Kind::Loam, NEAR),
            (Workload::Smallfile, Kind::Ext2, FAR),
            (Workload::Largefile, Kind::Loam, NEAR),
            (Workload::Largefile, Kind::Ext2, FAR),
            (Workload::Largefile, Kind::Ext4, NEAR),
        ]);
        let words = "takes 1.00 of the time of ext4 over the 1 that it has figures of";
        assert!(told.contains(words), "{told}");
    }

    #[test]
    fn the_library_alone_is_compared_with_nothing() {
        let told = said(&[(Workload::Smallfile, Kind::Library, NEAR)]);
        assert!(told.contains("compare nothing; none failed."), "{told}");
    }

    /// What a narrow screen needs: cells that say their headings. And the words of the table are explained.
    #[test]
    fn words_are_explained_and_cells_say_their_heading() {
        let page = page(&results(&[(Workload::Smallfile, Kind::Loam, NEAR)]));
        assert!(page.contains("data-of=\"hard disk, s\""));
        // The path in an error is longer than a phone is wide.
        assert!(page.contains("overflow-wrap: break-word"));
        for word in [
            "cleaning owed</b>:",
            "<code>reference</code>",
            "1 KiB is 1,024",
        ] {
            assert!(page.contains(word), "{word}");
        }
    }
}
