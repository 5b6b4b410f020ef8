//! The file systems: how each is made and mounted.
//!
//! All have their defaults, but for what would make figures depend on chance or on time after the measurement: lazy
//! initialisation is off, seeds of hashes are fixed, nothing is discarded.

use std::path::Path;
use std::process::Command;

use serde::{Deserialize, Serialize};

/// What can be on the device.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, clap::ValueEnum,
)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// LoamFS.
    #[value(name = "loamfs")]
    #[serde(rename = "loamfs")]
    Loam,
    /// ext2.
    Ext2,
    /// ext4.
    Ext4,
    /// ext4, with the largest journal that the device allows.
    Ext4Journal,
    /// XFS.
    Xfs,
    /// btrfs.
    Btrfs,
}

/// An identity and seed, so that directories hash alike in every run.
const UUID: &str = "5eed5eed-0000-4000-8000-000000000001";

impl Kind {
    /// Its name in tables.
    pub const fn name(self) -> &'static str {
        match self {
            Kind::Loam => "LoamFS",
            Kind::Ext2 => "ext2",
            Kind::Ext4 => "ext4",
            Kind::Ext4Journal => "ext4-journal",
            Kind::Xfs => "XFS",
            Kind::Btrfs => "btrfs",
        }
    }

    /// What formats a device of `size` bytes; its path is to be added.
    pub(super) fn mkfs(self, loamfs: &Path, size: u64) -> Command {
        let mut command = match self {
            Kind::Loam => Command::new(loamfs),
            Kind::Ext2 => Command::new("mkfs.ext2"),
            Kind::Ext4 | Kind::Ext4Journal => Command::new("mkfs.ext4"),
            Kind::Xfs => Command::new("mkfs.xfs"),
            Kind::Btrfs => Command::new("mkfs.btrfs"),
        };
        let extended = format!("hash_seed={UUID},lazy_itable_init=0,lazy_journal_init=0,nodiscard");
        match self {
            Kind::Loam => command.args(["mkfs", "--force", "--quiet"]),
            Kind::Ext2 | Kind::Ext4 | Kind::Ext4Journal => {
                command.args(["-q", "-F", "-U", UUID, "-E", &extended])
            }
            // Neither hashes by its identity; two btrfs of one identity cannot even be made on the same machine.
            Kind::Xfs | Kind::Btrfs => command.args(["-q", "-f", "-K"]),
        };
        if self == Kind::Ext4Journal {
            command.args(["-J", &format!("size={}", largest_journal(size))]);
        }
        command
    }

    /// Type and options of a mount by the kernel.
    pub(super) const fn mount_type(self) -> (&'static str, &'static str) {
        match self {
            Kind::Loam => ("fuse", ""),
            Kind::Ext2 => ("ext2", ""),
            Kind::Ext4 | Kind::Ext4Journal => ("ext4", "nodiscard"),
            Kind::Xfs => ("xfs", "nodiscard"),
            Kind::Btrfs => ("btrfs", "nodiscard"),
        }
    }
}

/// MiB of the largest journal: 10,240,000 blocks of 4 KiB, and no more than half of the device beside its own
/// metadata.
const fn largest_journal(size: u64) -> u64 {
    let half = (size / 2) >> 20;
    let (room, most) = (half - half / 32, 40_000);
    if room < most { room } else { most }
}
