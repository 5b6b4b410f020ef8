//! What a check has found so far.

use super::planner::Planner;
use crate::{Problem, Report, Severity, Stats};
use loamfs_format::Ino;
use std::collections::BTreeMap;

/// A report in the making.
#[derive(Debug, Default)]
pub(super) struct Draft {
    report: Report,
    plan: Planner,
    /// Most problems that are kept; all are counted.
    problems_max: usize,
    /// Problems that a crash does not leave, kept or not.
    damage: u64,
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
        self.damage += u64::from(problem.severity() > Severity::Note);
        if report.problems.len() < self.problems_max {
            report.problems.push(problem);
        }
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

    /// How many problems there were that a crash does not leave.
    pub(super) const fn damage(&self) -> u64 {
        self.damage
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
