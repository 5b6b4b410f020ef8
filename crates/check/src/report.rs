//! What a check is asked for, and what it finds.

use crate::{Plan, Problem, Severity};
use loamfs_format::text::shown;
use loamfs_format::{Ino, Ssn};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;

/// How to check.
pub struct Options<'p> {
    /// Whether to leave the data of files out, and verify metadata only.
    pub quick: bool,
    /// Most bytes that the check keeps in memory, whatever the size of the volume, beside a few megabytes of buffers
    /// and what the summaries behind the last checkpoint say. With less than the volume needs at once, parts that look
    /// wrong are looked at in several passes.
    pub memory: u64,
    /// Most problems kept in the report; all are counted.
    pub problems_max: usize,
    /// Told how far the check is.
    pub progress: Option<&'p mut dyn FnMut(Progress)>,
}

impl Default for Options<'_> {
    fn default() -> Self {
        Options {
            quick: false,
            memory: 256 << 20,
            problems_max: 1000,
            progress: None,
        }
    }
}

impl fmt::Debug for Options<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options")
            .field("quick", &self.quick)
            .field("memory", &self.memory)
            .field("problems_max", &self.problems_max)
            .finish_non_exhaustive()
    }
}

/// The parts of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Superblock and log.
    Open,
    /// The nodes of the maps, counted in maps.
    Maps,
    /// Inodes and what they own, counted in inodes.
    Inodes,
    /// The whole device, in bytes: where lost inodes are. Only when nodes of the IFILE cannot be used.
    Search,
    /// The bitmap and the owner records, counted in fragments.
    Space,
    /// Whether all directories hang together, counted in directories.
    Tree,
    /// A closer look at parts of the volume that do not add up, counted in passes.
    Exact,
}

/// How far a check is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Progress {
    /// The part that is under way.
    pub phase: Phase,
    /// How much of it is done.
    pub done: u64,
    /// How much there is to do; 0 when nobody knows.
    pub total: u64,
}

/// What was looked at.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Stats {
    /// The last segment that counts.
    #[serde(serialize_with = "number")]
    pub last: Ssn,
    /// The highest segment of which something says that it was durable.
    #[serde(serialize_with = "number")]
    pub durable: Ssn,
    /// Segments adopted.
    pub segments: u64,
    /// Segments that continue the chain, but do not count.
    pub dropped_segments: u64,
    /// Live inodes.
    pub inodes: u64,
    /// Directories among them.
    pub directories: u64,
    /// Inodes without a name.
    pub orphans: u64,
    /// Entries of directories.
    pub names: u64,
    /// Nodes of all trees.
    pub nodes: u64,
    /// Tracks of directories.
    pub tracks: u64,
    /// Fragments in use, by whom: kind of block to fragments.
    pub frags: BTreeMap<String, u64>,
    /// Fragments set in the bitmap.
    pub frags_set: u64,
    /// Fragments held back.
    pub frags_held: u64,
    /// Images in the log that have not settled.
    pub images: u64,
    /// Bytes of file data that were read and verified.
    pub data_bytes: u64,
    /// Devices of the volume that are missing.
    pub missing_devices: u64,
    /// Bytes of file data that stand on those.
    pub missing_bytes: u64,
    /// Times that the metadata were walked through.
    pub passes: u64,
}

fn number<S: serde::Serializer>(ssn: &Ssn, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u64(ssn.0)
}

/// What a check found.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// The problems, as many as were asked for.
    pub problems: Vec<Problem>,
    /// How many there were of each kind, by number.
    pub counts: BTreeMap<u16, u64>,
    /// The worst of them.
    pub worst: Option<Severity>,
    /// The paths of inodes that problems are about; of those without one no name leads to them.
    pub paths: BTreeMap<Ino, Vec<u8>>,
    /// What could not be checked, and why.
    pub unchecked: Vec<&'static str>,
    /// What was not asked for.
    pub left_out: Option<&'static str>,
    /// What a repair would change.
    pub plan: Plan,
    /// What was looked at.
    pub stats: Stats,
}

impl Report {
    /// The path of what a problem is about, where it is about an inode that names lead to.
    pub fn path(&self, problem: &Problem) -> Option<String> {
        let path = self.paths.get(&problem.inode()?)?;
        Some(shown(path))
    }

    /// How many problems there were, listed or not.
    pub fn total(&self) -> u64 {
        self.counts.values().sum()
    }

    /// Whether nothing was found but what a crash may leave, in all that was asked for.
    pub fn is_clean(&self) -> bool {
        self.worst.is_none_or(|worst| worst <= Severity::Note) && self.unchecked.is_empty()
    }
}

/// One line a problem, then what was left out, then a summary.
impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for problem in &self.problems {
            write!(f, "{} {}: {problem}", problem.code(), problem.name())?;
            match self.path(problem) {
                Some(path) => writeln!(f, " ({path})")?,
                None => writeln!(f)?,
            }
        }
        let more = self.total().saturating_sub(self.problems.len() as u64);
        if more > 0 {
            writeln!(f, "... and {more} more")?;
        }
        for what in &self.unchecked {
            writeln!(f, "not checked: {what}")?;
        }
        if let Some(what) = self.left_out {
            writeln!(f, "left out: {what}")?;
        }
        let Stats {
            inodes,
            directories,
            names,
            nodes,
            last,
            ..
        } = &self.stats;
        writeln!(
            f,
            "{} problems; {inodes} inodes ({directories} directories), {names} names, {nodes} nodes, as of segment {last}",
            self.total()
        )
    }
}
