//! What a check has found so far.

use super::planner::{LIST_MAX, Planner};
use crate::{Problem, Report, Severity, Stats};
use loamfs_format::Ino;
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};

/// Most problems that are remembered to compare two checks.
const SUBJECTS_MAX: usize = 1 << 16;

/// A report in the making.
#[derive(Debug, Default)]
pub(super) struct Draft {
    report: Report,
    plan: Planner,
    /// Most problems that are kept; all are counted.
    problems_max: usize,
    /// Problems that a crash does not leave, kept or not.
    damage: u64,
    /// What the first of those are about, as hashes.
    subjects: Vec<u64>,
    /// Inodes that have what others have too, as far as there is room for them.
    shared: BTreeSet<Ino>,
    /// Whether it was not looked at who has what.
    space_unknown: bool,
}

impl Draft {
    /// Nothing yet.
    pub(super) fn new(problems_max: usize) -> Draft {
        Draft {
            problems_max,
            ..Draft::default()
        }
    }

    /// Takes in a problem.
    pub(super) fn add(&mut self, problem: Problem) {
        let report = &mut self.report;
        *report.counts.entry(problem.code()).or_default() += 1;
        report.worst = report.worst.max(Some(problem.severity()));
        if problem.severity() > Severity::Note {
            self.damage += 1;
            if self.subjects.len() < SUBJECTS_MAX {
                let hasher = BuildHasherDefault::<DefaultHasher>::default();
                self.subjects.push(hasher.hash_one(problem.subject()));
            }
        }
        if report.problems.len() < self.problems_max {
            report.problems.push(problem);
        }
    }

    /// Notes inodes that have the same as each other, or what the log has, or what may be given to others.
    pub(super) fn note_shared(&mut self, inodes: impl IntoIterator<Item = Ino>) {
        if self.shared.len() < LIST_MAX {
            self.shared.extend(inodes);
        }
    }

    /// Whether an inode may have what is not its own alone. What a directory leads to is not known here, nor is anything where space was
    /// not looked at.
    pub(super) fn shares(&self, ino: Ino, is_directory: bool) -> bool {
        let any = !self.shared.is_empty();
        let unknown = self.space_unknown || self.shared.len() >= LIST_MAX;
        unknown || is_directory && any || self.shared.contains(&ino)
    }

    /// Space cannot be looked at, and why.
    pub(super) fn skip_space(&mut self, what: &'static str) {
        self.space_unknown = true;
        self.skip(what);
    }

    /// Notes what could not be checked, and why.
    pub(super) fn skip(&mut self, what: &'static str) {
        if !self.report.unchecked.contains(&what) {
            self.report.unchecked.push(what);
        }
    }

    /// Repairs nothing.
    pub(super) fn plan_nothing(&mut self) {
        self.plan = Planner::default();
    }

    /// Notes what was not asked for.
    pub(super) const fn leave_out(&mut self, what: &'static str) {
        self.report.left_out = Some(what);
    }

    /// Whether there was a problem of this kind.
    pub(super) fn has(&self, code: u16) -> bool {
        self.report.counts.contains_key(&code)
    }

    /// How many problems there were that a crash does not leave, and that another check did not come to.
    pub(super) fn beyond(&self, other: &Draft) -> u64 {
        let all = |it: &Draft| it.subjects.len() as u64 == it.damage;
        if !all(self) || !all(other) {
            return self.damage.saturating_sub(other.damage);
        }
        let known: BTreeSet<u64> = other.subjects.iter().copied().collect();
        let new = self.subjects.iter().filter(|it| !known.contains(it));
        new.count() as u64
    }

    /// How much could be read.
    pub(super) const fn seen(&self) -> u64 {
        self.report.stats.nodes + self.report.stats.inodes
    }

    /// Whether a repair would change the same, of the same state.
    pub(super) fn plans_as(&self, other: &Draft) -> bool {
        self.plan == other.plan && self.report.stats.last == other.report.stats.last
    }

    /// The problems that are kept.
    pub(super) fn problems(&self) -> &[Problem] {
        &self.report.problems
    }

    /// Gives the paths of inodes that problems are about.
    pub(super) fn set_paths(&mut self, paths: BTreeMap<Ino, Vec<u8>>) {
        self.report.paths = paths;
    }

    /// What is counted.
    pub(super) const fn stats(&mut self) -> &mut Stats {
        &mut self.report.stats
    }

    /// What a repair would change.
    pub(super) const fn plan(&mut self) -> &mut Planner {
        &mut self.plan
    }

    /// All of it.
    pub(super) fn finish(self) -> Report {
        Report {
            plan: self.plan.finish(),
            ..self.report
        }
    }
}
