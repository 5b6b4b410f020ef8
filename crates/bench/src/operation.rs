//! Operations on the files of a directory.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// Bytes of each file.
const BYTES: usize = 1024;

/// How often a warm operation is repeated that is timed: one pass is over in no time.
const PASSES: u64 = 5;

/// What is done to each file. They build on each other, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Operation {
    /// Makes it and writes it.
    Create,
    /// Looks at one that the kernel knows.
    Stat,
    /// Reads what was just written.
    ReadNew,
    /// Looks at one that no cache has.
    ColdStat,
    /// Lists them and looks at each, as the kernel knows them already.
    List,
    /// The same from no cache.
    ColdList,
    /// Reads one that no cache has.
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

impl Operation {
    /// All, in their order.
    pub const ALL: [Operation; 11] = [
        Operation::Create,
        Operation::Stat,
        Operation::ReadNew,
        Operation::ColdStat,
        Operation::List,
        Operation::ColdList,
        Operation::ColdRead,
        Operation::WarmRead,
        Operation::Rewrite,
        Operation::Rename,
        Operation::Unlink,
    ];

    /// Those whose time is taken, in their order: what is just written lies in the kernel.
    pub fn timed() -> impl Iterator<Item = Operation> {
        let all = Operation::ALL.into_iter();
        all.filter(|operation| *operation != Operation::ReadNew)
    }

    /// What people call it.
    pub const fn name(self) -> &'static str {
        match self {
            Operation::Create => "create",
            Operation::Stat => "stat",
            Operation::ReadNew => "read of a new file",
            Operation::ColdStat => "cold stat",
            Operation::List => "list",
            Operation::ColdList => "cold list",
            Operation::ColdRead => "cold read",
            Operation::WarmRead => "warm read",
            Operation::Rewrite => "rewrite",
            Operation::Rename => "rename",
            Operation::Unlink => "unlink",
        }
    }

    /// Whether no cache may have anything of the files before.
    pub const fn is_cold(self) -> bool {
        matches!(
            self,
            Operation::ColdStat | Operation::ColdList | Operation::ColdRead
        )
    }

    /// Whether there is something to write back afterwards.
    pub const fn changes(self) -> bool {
        matches!(
            self,
            Operation::Create | Operation::Rewrite | Operation::Rename | Operation::Unlink
        )
    }

    /// How often it is done to each file when its time is taken.
    pub const fn passes(self) -> u64 {
        match self {
            Operation::Stat | Operation::WarmRead => PASSES,
            _ => 1,
        }
    }

    /// Does it to so many files of a directory.
    pub fn on_all(self, directory: &Path, files: u64) -> io::Result<()> {
        if matches!(self, Operation::List | Operation::ColdList) {
            for entry in fs::read_dir(directory)? {
                rustix::fs::lstat(entry?.path())?;
            }
            return Ok(());
        }
        (0..files).try_for_each(|number| self.on_one(directory, number))
    }

    fn on_one(self, directory: &Path, number: u64) -> io::Result<()> {
        let path = |letter: char| -> PathBuf { directory.join(format!("{letter}{number:06}")) };
        let file = path('f');
        match self {
            Operation::Create => File::create_new(file)?.write_all(&[1; BYTES]),
            // The standard library asks for the time of birth too, which takes a request of its own.
            Operation::Stat | Operation::ColdStat => Ok(rustix::fs::stat(file).map(drop)?),
            Operation::ReadNew | Operation::ColdRead | Operation::WarmRead => {
                let mut content = [0; BYTES];
                File::open(file)?.read_exact(&mut content)
            }
            Operation::Rewrite => File::create(file)?.write_all(&[2; BYTES]),
            Operation::Rename => fs::rename(file, path('g')),
            Operation::Unlink => fs::remove_file(path('g')),
            Operation::List | Operation::ColdList => Ok(()),
        }
    }
}
