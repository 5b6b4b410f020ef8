//! What is measured of each file system, in this order.

use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::requests::operation::Operation;

/// An operation on each file of a client. Each finds the files as those before have left them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Step {
    /// Makes it and writes it.
    Create,
    /// Looks at it when the kernel knows it.
    Stat,
    /// Looks at it when no cache has it.
    ColdStat,
    /// Lists it and looks at it, from no cache.
    List,
    /// Reads it from no cache.
    ColdRead,
    /// Reads it again.
    WarmRead,
    /// Cuts it and writes it anew.
    Rewrite,
    /// Gives it another name.
    Rename,
    /// Removes it.
    Unlink,
}

/// How often a warm operation is repeated: one pass is over in no time.
const PASSES: u64 = 5;

impl Step {
    /// All, in their order.
    pub const ALL: [Step; 9] = [
        Step::Create,
        Step::Stat,
        Step::ColdStat,
        Step::List,
        Step::ColdRead,
        Step::WarmRead,
        Step::Rewrite,
        Step::Rename,
        Step::Unlink,
    ];

    /// What people call it.
    pub const fn name(self) -> &'static str {
        match self {
            Step::Create => "create",
            Step::Stat => "stat",
            Step::ColdStat => "cold stat",
            Step::List => "list",
            Step::ColdRead => "cold read",
            Step::WarmRead => "warm read",
            Step::Rewrite => "rewrite",
            Step::Rename => "rename",
            Step::Unlink => "unlink",
        }
    }

    const fn operation(self) -> Operation {
        match self {
            Step::Create => Operation::Create,
            Step::Stat => Operation::Stat,
            Step::ColdStat => Operation::ColdStat,
            Step::List => Operation::List,
            Step::ColdRead => Operation::ColdRead,
            Step::WarmRead => Operation::WarmRead,
            Step::Rewrite => Operation::Rewrite,
            Step::Rename => Operation::Rename,
            Step::Unlink => Operation::Unlink,
        }
    }

    /// Whether no cache may have anything of the files before.
    pub const fn is_cold(self) -> bool {
        self.operation().is_cold()
    }

    /// Whether the kernel is to know the files before, though nothing has asked for them yet.
    pub const fn is_warmed(self) -> bool {
        matches!(self, Step::Stat)
    }

    /// Whether there is something to write back afterwards.
    pub const fn changes(self) -> bool {
        matches!(
            self,
            Step::Create | Step::Rewrite | Step::Rename | Step::Unlink
        )
    }

    /// How often it is done to each file.
    pub const fn passes(self) -> u64 {
        match self {
            Step::Stat | Step::WarmRead => PASSES,
            _ => 1,
        }
    }

    /// Does it once to so many files of a directory.
    pub fn pass(self, directory: &Path, files: u64) -> io::Result<()> {
        self.operation().on_all(directory, files)
    }
}
