//! The file systems: how each is made and mounted.
//!
//! All have their defaults, but for what would make figures depend on chance or on time after the measurement: lazy
//! initialisation is off, seeds of hashes are fixed, nothing is discarded.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde::{Deserialize, Serialize};

use crate::Error;
use crate::machine::is_program;

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
    /// F2FS.
    #[value(name = "f2fs")]
    #[serde(rename = "f2fs")]
    F2fs,
    /// F2FS, doing on any device what it does on those above 16 GiB.
    #[value(name = "f2fs-large")]
    #[serde(rename = "f2fs-large")]
    F2fsLarge,
    /// NILFS2, without its cleaner.
    Nilfs2,
    /// ext4 in the emulated machine, which shows by how much that machine differs from this one.
    Ext4Emulated,
    /// LoamFS's library, without a mount.
    #[value(name = "loamfs-library", hide = true)]
    #[serde(rename = "loamfs-library")]
    Library,
    /// Whatever is mounted where a directory of the user's own is.
    #[value(hide = true)]
    Directory,
}

/// An identity and seed, so that directories hash alike in every run.
const UUID: &str = "5eed5eed-0000-4000-8000-000000000001";

impl Kind {
    /// Those that run on this machine when nobody chooses.
    pub const HERE: [Kind; 6] = [
        Kind::Loam,
        Kind::Ext2,
        Kind::Ext4,
        Kind::Ext4Journal,
        Kind::Xfs,
        Kind::Btrfs,
    ];

    /// Those that run in the emulated machine: many kernels lack them. The last one is the control.
    pub const EMULATED: [Kind; 4] = [
        Kind::F2fs,
        Kind::F2fsLarge,
        Kind::Nilfs2,
        Kind::Ext4Emulated,
    ];

    /// Those that are not mounted on devices like the others', and have options of their own.
    pub const APART: [Kind; 2] = [Kind::Library, Kind::Directory];

    /// Whether requests to its device are traced, and priced.
    pub const fn is_traced(self) -> bool {
        !matches!(self, Kind::Directory)
    }

    /// Whether it stands beside others on devices like theirs.
    pub fn is_compared(self) -> bool {
        !Kind::APART.contains(&self)
    }

    /// Its name in tables.
    pub const fn name(self) -> &'static str {
        match self {
            Kind::Loam => "LoamFS",
            Kind::Ext2 => "ext2",
            Kind::Ext4 => "ext4",
            Kind::Ext4Journal => "ext4-journal",
            Kind::Xfs => "XFS",
            Kind::Btrfs => "btrfs",
            Kind::F2fs => "F2FS",
            Kind::F2fsLarge => "F2FS-large",
            Kind::Nilfs2 => "NILFS2",
            Kind::Ext4Emulated => "ext4-emulated",
            Kind::Library => "LoamFS-library",
            Kind::Directory => "directory",
        }
    }

    /// The program that formats it; LoamFS does so itself.
    pub const fn formatter(self) -> Option<&'static str> {
        match self {
            Kind::Loam | Kind::Library | Kind::Directory => None,
            Kind::Ext2 => Some("mkfs.ext2"),
            Kind::Ext4 | Kind::Ext4Journal | Kind::Ext4Emulated => Some("mkfs.ext4"),
            Kind::Xfs => Some("mkfs.xfs"),
            Kind::Btrfs => Some("mkfs.btrfs"),
            Kind::F2fs | Kind::F2fsLarge => Some("mkfs.f2fs"),
            Kind::Nilfs2 => Some("mkfs.nilfs2"),
        }
    }

    /// Whether this machine has that.
    pub fn is_installed(self) -> bool {
        self.formatter().is_none_or(is_program)
    }

    /// Whether this machine has that for all of these.
    ///
    /// # Errors
    ///
    /// [`Error::Lacking`], which says what to install, for the first of which it has not.
    pub fn need(kinds: &[Self]) -> Result<(), Error> {
        match kinds.iter().find(|kind| !kind.is_installed()) {
            Some(kind) => Err(Error::Lacking(format!(
                "{} is not installed, which makes {}; install it, or choose other file systems by --fs",
                kind.formatter().unwrap_or_default(),
                kind.name()
            ))),
            None => Ok(()),
        }
    }

    /// What formats a device of `size` bytes; its path is to be added. [`Kind::APART`] is formatted nowhere here.
    pub(super) fn mkfs(self, loamfs: &Path, size: u64) -> Command {
        let mut command = match self.formatter() {
            None => Command::new(loamfs),
            Some(program) => Command::new(program),
        };
        let extended = format!("hash_seed={UUID},lazy_itable_init=0,lazy_journal_init=0,nodiscard");
        match self {
            Kind::Loam | Kind::Library | Kind::Directory => {
                command.args(["mkfs", "--force", "--quiet"])
            }
            Kind::Ext2 | Kind::Ext4 | Kind::Ext4Journal | Kind::Ext4Emulated => {
                command.args(["-q", "-F", "-U", UUID, "-E", &extended])
            }
            // None hashes by its identity; two btrfs of one identity cannot even be made on the same machine.
            Kind::Xfs | Kind::Btrfs | Kind::Nilfs2 => command.args(["-q", "-f", "-K"]),
            // Without discarding.
            Kind::F2fs | Kind::F2fsLarge => command.args(["-q", "-f", "-t", "0"]),
        };
        if self == Kind::Ext4Journal {
            command.args(["-J", &format!("size={}", largest_journal(size))]);
        }
        command
    }

    /// Type and options of a mount by the kernel.
    pub(super) const fn mount_type(self) -> (&'static str, &'static str) {
        match self {
            Kind::Loam | Kind::Library | Kind::Directory => ("fuse", ""),
            Kind::Ext2 => ("ext2", ""),
            Kind::Ext4 | Kind::Ext4Journal | Kind::Ext4Emulated => ("ext4", "nodiscard"),
            Kind::Xfs => ("xfs", "nodiscard"),
            Kind::Btrfs => ("btrfs", "nodiscard"),
            Kind::F2fs => ("f2fs", "nodiscard"),
            Kind::F2fsLarge => ("f2fs", "nodiscard,alloc_mode=default"),
            Kind::Nilfs2 => ("nilfs2", "nodiscard"),
        }
    }

    /// A setting of the mounted file system on a device of this name, in /sys/fs, that is no mount option.
    pub(super) fn setting(self, device: &str) -> Option<(PathBuf, &'static str)> {
        let path = |file| PathBuf::from(format!("/sys/fs/f2fs/{device}/{file}"));
        // In place only while an fsync waits; up to 16 GiB F2FS always prefers it.
        (self == Kind::F2fsLarge).then(|| (path("ipu_policy"), "16"))
    }
}

/// MiB of the largest journal, to within half a per cent. It is 10,240,000 blocks of 4 KiB, and at most half of what a
/// device has beside bitmaps and descriptors. mke2fs takes 510 MiB of 1 GiB, 1,020 of 2 and 16,359 of 32.
const fn largest_journal(size: u64) -> u64 {
    let half = (size / 2) >> 20;
    let (room, most) = (half.saturating_sub(half / 200 + 2), 40_000);
    if room < most { room } else { most }
}

#[cfg(test)]
mod tests {
    use clap::ValueEnum;

    use super::*;

    #[test]
    fn every_kind_runs_somewhere() {
        let all = [&Kind::HERE[..], &Kind::EMULATED[..], &Kind::APART[..]].concat();
        assert_eq!(all, Kind::value_variants());
    }

    #[test]
    fn only_f2fs_as_on_large_disks_has_a_setting() {
        let with = Kind::value_variants()
            .iter()
            .filter_map(|kind| kind.setting("vda"));
        let with: Vec<_> = with.collect();
        assert_eq!(with, [(PathBuf::from("/sys/fs/f2fs/vda/ipu_policy"), "16")]);
    }
}
