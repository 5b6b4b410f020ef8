//! How to run it again: the commands whose results are shown.

use std::collections::BTreeSet;

use clap::ValueEnum;

use crate::lab::Kind;
use crate::results::{Place, Results};
use crate::suite::{Case, Workload};
use crate::table::name;

/// One command for all workloads of the scale's own sizes, and one for each size of its own, here and in the emulated
/// machine.
pub fn commands(results: &Results) -> Vec<String> {
    let mut commands = Vec::new();
    let groups = [
        ("run", &Kind::HERE[..]),
        ("emulate", &Kind::EMULATED[..]),
        ("run", &[Kind::Library]),
        ("run", &[Kind::Directory]),
    ];
    for (verb, kinds) in groups {
        let runs = results.runs.iter().filter(|run| kinds.contains(&run.kind));
        let (mut usual, mut resized): (Vec<&Case>, Vec<&Case>) = runs
            .map(|run| &run.case)
            .partition(|case| is_usual(results, case));
        usual.dedup();
        resized.sort_by_key(|case| &case.name);
        resized.dedup();
        if !usual.is_empty() {
            let command = command(results, verb, kinds, &usual);
            commands.push(command + &only(results, verb, kinds, &usual));
        }
        for case in resized {
            let mut size = format!(" --only {} --count {}", name(&case.workload), case.count);
            if !is_of_a_size(results) {
                size += &format!(" --device {}", case.device >> 30);
            }
            commands.push(command(results, verb, kinds, &[case]) + &size);
        }
    }
    commands
}

fn is_of_a_size(results: &Results) -> bool {
    results
        .about
        .place
        .as_ref()
        .is_some_and(Place::is_of_a_size)
}

/// Whether a case is one of the scale's own. A device of the user's has the size that it has.
fn is_usual(results: &Results, case: &Case) -> bool {
    let mut cases = case.workload.cases(results.about.scale).into_iter();
    cases.any(|mut usual| {
        if is_of_a_size(results) {
            usual.device = case.device;
        }
        usual == *case
    })
}

/// A command without its workloads.
fn command(results: &Results, verb: &str, kinds: &[Kind], cases: &[&Case]) -> String {
    let about = &results.about;
    let of_these = |kind: Kind| {
        let runs = results.runs.iter();
        runs.filter(move |run| run.kind == kind && cases.contains(&&run.case))
    };
    let mut command = format!(
        "loamfs bench {verb} --suite {} --scale {} --seed {} --out results.json",
        name(&about.suite),
        name(&about.scale),
        about.seed
    );
    let runs = kinds.iter().flat_map(|kind| of_these(*kind));
    let runs = runs.map(|run| run.run).max().unwrap_or(1);
    if runs != about.scale.runs() {
        command += &format!(" --runs {runs}");
    }
    let ran = |kind: &&Kind| of_these(**kind).next().is_some();
    if !kinds.iter().all(|kind| ran(&kind)) {
        for kind in kinds.iter().filter(ran) {
            command += &format!(" --fs {}", name(kind));
        }
    }
    if verb == "run"
        && let Some(place) = &about.place
    {
        command += &place.arguments();
    }
    if kinds == [Kind::Library] {
        command += " --library";
    }
    let here = verb == "run" && kinds != [Kind::Library];
    for (option, value) in [
        ("options", about.options.as_ref().filter(|_| here)),
        ("archive", about.archive.as_ref()),
        ("repo", about.repository.as_ref().filter(|_| here)),
    ] {
        if let Some(value) = value {
            command += &format!(" --{option} {value}");
        }
    }
    command
}

/// Names workloads, unless they are all that the command runs by itself.
fn only(results: &Results, verb: &str, kinds: &[Kind], cases: &[&Case]) -> String {
    let ran: BTreeSet<Workload> = cases.iter().map(|case| case.workload).collect();
    let suite = results.about.suite.workloads().into_iter();
    let all: BTreeSet<Workload> = suite
        .filter(|workload| match kinds {
            [Kind::Library] => !workload.needs_programs(),
            [Kind::Directory] => workload.runs_in_directory(),
            _ => verb == "run" || !workload.needs_programs(),
        })
        .collect();
    if ran == all {
        return String::new();
    }
    let all = Workload::value_variants().iter();
    let ran = all.filter(|workload| ran.contains(workload));
    ran.map(|workload| format!(" --only {}", name(workload)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Error;
    use crate::results::{About, Run};
    use crate::suite::{Scale, Suite};

    fn results(scale: Scale) -> Results {
        Results::new(About {
            scale,
            seed: 7,
            options: Some("cache=1G".into()),
            ..About::of_nothing()
        })
    }

    fn ran(results: &mut Results, case: &Case, kind: Kind, run: u32) {
        results.extend([Run::failed(case, kind, run, &Error::NotRoot)]);
    }

    #[test]
    fn a_whole_suite_needs_no_names() {
        let mut results = results(Scale::Small);
        for workload in Suite::Papers.workloads() {
            for case in workload.cases(Scale::Small) {
                for kind in Kind::HERE {
                    ran(&mut results, &case, kind, 1);
                }
            }
        }
        let whole = "loamfs bench run --suite papers --scale small --seed 7 --out results.json --options cache=1G";
        assert_eq!(commands(&results), [whole]);
    }

    #[test]
    fn what_ran_in_the_library_has_a_command_of_its_own() {
        let mut results = results(Scale::Small);
        for workload in Suite::Papers.workloads() {
            for case in workload.cases(Scale::Small) {
                ran(&mut results, &case, Kind::Library, 1);
            }
        }
        let whole =
            "loamfs bench run --suite papers --scale small --seed 7 --out results.json --library";
        assert_eq!(commands(&results), [whole]);
    }

    #[test]
    fn parts_sizes_and_the_emulated_machine_are_named() {
        let mut results = results(Scale::Small);
        let case = &Workload::Postmark.cases(Scale::Small)[0];
        ran(&mut results, case, Kind::Loam, 1);
        ran(&mut results, case, Kind::Loam, 3);
        let large = case.clone().resized(Some(500), Some(8));
        ran(&mut results, &large, Kind::Nilfs2, 1);
        let common = "--suite papers --scale small --seed 7 --out results.json";
        assert_eq!(
            commands(&results),
            [
                format!(
                    "loamfs bench run {common} --runs 3 --fs loamfs --options cache=1G --only postmark"
                ),
                format!(
                    "loamfs bench emulate {common} --fs nilfs2 --only postmark --count 500 --device 8"
                ),
            ]
        );
    }
}
