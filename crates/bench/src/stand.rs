//! The file systems, each mounted for a round.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde::{Deserialize, Serialize};

use crate::Error;
use crate::cleanup::{Guard, later};
use crate::lab::{Kind, Lab, Mounted, Tools};
use crate::machine::is_program;

/// The program of [`Subject::Bindfs`].
const BINDFS: &str = "bindfs";

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Subject {
    /// LoamFS.
    #[value(name = "loamfs")]
    #[serde(rename = "loamfs")]
    LoamFs,
    /// A FUSE server in memory that does no other work.
    Ceiling,
    /// ext4.
    Ext4,
    /// XFS.
    Xfs,
    /// btrfs.
    Btrfs,
    /// bindfs over ext4: another FUSE file system, with its own defaults.
    Bindfs,
}

impl Subject {
    /// All.
    pub const ALL: [Subject; 6] = [
        Subject::LoamFs,
        Subject::Ceiling,
        Subject::Ext4,
        Subject::Xfs,
        Subject::Btrfs,
        Subject::Bindfs,
    ];

    /// Its name in tables.
    pub const fn name(self) -> &'static str {
        match self {
            Subject::LoamFs => "LoamFS",
            Subject::Ceiling => "ceiling",
            Subject::Ext4 => "ext4",
            Subject::Xfs => "XFS",
            Subject::Btrfs => "btrfs",
            Subject::Bindfs => "bindfs",
        }
    }

    /// Whether this machine has the program that it takes besides ours.
    pub fn is_installed(self) -> bool {
        let program = match self {
            Subject::Bindfs => Some(BINDFS),
            _ => self.kind().formatter(),
        };
        program.is_none_or(is_program)
    }

    /// What is on its device.
    const fn kind(self) -> Kind {
        match self {
            Subject::LoamFs | Subject::Ceiling => Kind::Loam,
            Subject::Ext4 | Subject::Bindfs => Kind::Ext4,
            Subject::Xfs => Kind::Xfs,
            Subject::Btrfs => Kind::Btrfs,
        }
    }
}

/// A file system that is mounted on a device of its own.
pub struct Stand {
    subject: Subject,
    // What lies over another mount is unmounted before that, and that before its device goes.
    mounted: Mounted,
    below: Option<Below>,
    lab: Lab,
}

/// What bindfs shows elsewhere.
struct Below {
    mounted: Mounted,
    _place: Guard,
}

impl Stand {
    /// Makes one of `size` bytes. `bench` is the program that serves the ceiling.
    ///
    /// # Errors
    /// Without root, room or the programs.
    pub fn new(tools: &Tools, bench: &Path, subject: Subject, size: u64) -> Result<Stand, Error> {
        let lab = match subject {
            // It keeps nothing on its device, which makes its mount of the same kind as LoamFS's.
            Subject::Ceiling => Lab::bare(tools, subject.kind(), size)?,
            _ => Lab::new(tools, subject.kind(), size)?,
        };
        let (mounted, below) = match subject {
            Subject::Ceiling => (lab.mount_by(ceiling(tools, bench, &lab))?, None),
            Subject::Bindfs => bindfs(tools, &lab)?,
            _ => (lab.mount()?, None),
        };
        Ok(Stand {
            subject,
            mounted,
            below,
            lab,
        })
    }

    /// Which file system it is.
    pub fn subject(&self) -> Subject {
        self.subject
    }

    /// Where it is mounted.
    pub fn root(&self) -> &Path {
        self.mounted.path()
    }

    /// The device below it.
    pub fn device(&self) -> &Path {
        self.lab.device()
    }

    /// The process that serves it; `None` for file systems of the kernel.
    pub fn daemon(&self) -> Option<u32> {
        self.mounted.daemon()
    }

    /// Makes a directory for each client.
    ///
    /// # Errors
    /// As the system says.
    pub fn directories(&self, name: &str, clients: usize) -> Result<Vec<PathBuf>, Error> {
        let make = |client| {
            let name = format!("{name}-{client}-of-{clients}");
            let path = self.mounted.path().join(name);
            fs::create_dir(&path).map_err(Error::at("making", &path))?;
            Ok(path)
        };
        (1..=clients).map(make).collect()
    }

    /// Drops what the kernel and the daemon keep; all is written back before.
    ///
    /// # Errors
    /// Without root, or if the daemon fails.
    pub fn drop_caches(&self) -> Result<(), Error> {
        self.mounted.drop_caches()
    }

    /// Writes everything back.
    ///
    /// # Errors
    /// As the system says.
    pub fn sync(&self) -> Result<(), Error> {
        self.mounted.sync()?;
        self.below
            .as_ref()
            .map_or(Ok(()), |below| below.mounted.sync())
    }

    /// Unmounts.
    ///
    /// # Errors
    /// As the system says, or how the daemon ended.
    pub fn close(self) -> Result<(), Error> {
        self.mounted.unmount()?;
        self.below.map_or(Ok(()), |below| below.mounted.unmount())
    }
}

/// The call that serves the ceiling on a lab's device.
fn ceiling(tools: &Tools, bench: &Path, lab: &Lab) -> Command {
    let mut command = Command::new(bench);
    command.arg("ceiling").arg("--device").arg(lab.device());
    if let Some(options) = &tools.options {
        command.args(["-o", options]);
    }
    command.arg(lab.root());
    command
}

/// Mounts a lab's file system, and bindfs over it on a directory beside.
fn bindfs(tools: &Tools, lab: &Lab) -> Result<(Mounted, Option<Below>), Error> {
    let path = tools.work.join(BINDFS);
    fs::create_dir_all(&path).map_err(Error::at("making", &path))?;
    let gone = path.clone();
    let below = Below {
        _place: later(move || drop(fs::remove_dir(&gone))),
        mounted: lab.mount()?,
    };
    let mut command = Command::new(BINDFS);
    command.arg("-f").arg(lab.root()).arg(&path);
    Ok((Mounted::silent(command, &path)?, Some(below)))
}
