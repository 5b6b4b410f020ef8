//! The commands, one file each.

pub mod bench;
pub mod cat;
mod changing;
pub mod check;
pub mod clean;
pub mod device;
pub mod doctor;
pub mod drop_caches;
pub mod dump;
pub mod generate;
pub mod get;
pub mod grow;
pub mod info;
pub mod iostat;
pub mod label;
pub mod ls;
pub mod map;
pub mod metrics;
pub mod mkfs;
pub mod mount;
pub mod place;
pub mod probe;
pub mod put;
mod resizing;
pub mod salvage;
pub mod scrub;
pub mod settle;
pub mod shrink;
pub mod stat;
pub mod top;
pub mod tree;
pub mod trim;
pub mod unmount;
pub mod upgrade;

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{CommandFactory, Parser, Subcommand};

use crate::failure::{Failure, Front};
use crate::text::COLUMNS_MAX;

/// What people type first.
const EXAMPLES: &str = "\
Examples:
  loamfs mkfs --size 8G volume.img
  loamfs mount volume.img /mnt
      A volume in a file, and its files below /mnt.
  loamfs info /mnt
      How it is.
  loamfs unmount /mnt
      Returns when everything is in the file.";

/// A file system for very many small files, on disks where a seek is dear.
///
/// Sizes are numbers with an optional K, M, G or T (powers of 1,024), such as 8G or 1.5T.
#[derive(Debug, Parser)]
#[command(name = "loamfs", version, disable_help_subcommand = true, max_term_width = COLUMNS_MAX, after_long_help = EXAMPLES)]
pub struct Cli {
    /// Another device of a volume of several; may be given again. Those that the kernel has as block devices are found
    /// without.
    #[arg(long = "device", global = true, value_name = "PATH")]
    pub members: Vec<PathBuf>,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What the program can do. Each command describes itself where its arguments are defined.
#[derive(Debug, Subcommand)]
pub enum Command {
    Mkfs(mkfs::MkfsArgs),
    Mount(mount::MountArgs),
    Unmount(unmount::UnmountArgs),
    Upgrade(upgrade::UpgradeArgs),
    Check(check::CheckArgs),
    Info(info::InfoArgs),
    Top(top::TopArgs),
    Iostat(iostat::IostatArgs),
    Metrics(metrics::MetricsArgs),
    Doctor(doctor::DoctorArgs),
    Label(label::LabelArgs),
    Device(device::DeviceArgs),
    Grow(grow::GrowArgs),
    Shrink(shrink::ShrinkArgs),
    Trim(trim::TrimArgs),
    Map(map::MapArgs),
    Dump(dump::DumpArgs),
    Ls(ls::LsArgs),
    Tree(tree::TreeArgs),
    Cat(cat::CatArgs),
    Stat(stat::StatArgs),
    Put(put::PutArgs),
    Get(get::GetArgs),
    Salvage(salvage::SalvageArgs),
    Settle(settle::SettleArgs),
    Clean(clean::CleanArgs),
    Place(place::PlaceArgs),
    Scrub(scrub::ScrubArgs),
    DropCaches(drop_caches::DropCachesArgs),
    Bench(bench::BenchArgs),
    #[command(hide = true)]
    Probe(probe::ProbeArgs),
    #[command(hide = true)]
    GenerateMan(generate::ManArgs),
    #[command(hide = true)]
    Completions(generate::CompletionArgs),
}

impl Command {
    /// Whose exit codes the command uses.
    pub const fn front(&self) -> Front {
        match self {
            Self::Mount(_) | Self::Unmount(_) => Front::Mount,
            Self::Check(_) => Front::Check,
            _ => Front::General,
        }
    }

    /// Carries it out, and returns the exit code.
    ///
    /// # Errors
    ///
    /// Why it could not be done.
    pub fn run(self) -> Result<u8, Failure> {
        match self {
            Self::Mkfs(args) => args.run(),
            Self::Mount(args) => args.run(),
            Self::Unmount(args) => args.run(),
            Self::Upgrade(args) => args.run(),
            Self::Check(args) => args.run(),
            Self::Info(args) => args.run(),
            Self::Top(args) => args.run(),
            Self::Iostat(args) => args.run(),
            Self::Metrics(args) => args.run(),
            Self::Doctor(args) => args.run(),
            Self::Label(args) => args.run(),
            Self::Device(args) => args.run(),
            Self::Grow(args) => args.run(),
            Self::Shrink(args) => args.run(),
            Self::Trim(args) => args.run(),
            Self::Map(args) => args.run(),
            Self::Probe(args) => args.run(),
            Self::Dump(args) => args.run(),
            Self::Ls(args) => args.run(),
            Self::Tree(args) => args.run(),
            Self::Cat(args) => args.run(),
            Self::Stat(args) => args.run(),
            Self::Put(args) => args.run(),
            Self::Get(args) => args.run(),
            Self::Salvage(args) => args.run(),
            Self::Settle(args) => args.run(),
            Self::Clean(args) => args.run(),
            Self::Place(args) => args.run(),
            Self::Scrub(args) => args.run(),
            Self::DropCaches(args) => args.run(),
            Self::Bench(args) => args.run(),
            Self::GenerateMan(args) => args.run(Cli::command(), front_of),
            Self::Completions(args) => args.run(),
        }
    }
}

/// Whose exit codes apply to a command line that could not be understood.
pub fn front_of(arguments: &[OsString]) -> Front {
    match arguments.get(1).and_then(|word| word.to_str()) {
        Some("mount" | "unmount" | "umount") => Front::Mount,
        Some("check" | "fsck") => Front::Check,
        _ => Front::General,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_definitions_are_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_promised_call_parses() {
        for line in [
            "mkfs --size 8G --label L --profile hfs --block-size 16K --fragment-size 1K \
             --avg-file-size 10000 --files-per-dir 20 --force vol.img",
            "mount -o ro,cache=64M --foreground vol.img /mnt",
            "mount --json vol.img /mnt",
            "unmount /mnt",
            "unmount --json /mnt",
            "umount vol.img",
            "fsck vol.img",
            "check --repair --json vol.img",
            "info --json /mnt",
            "dump vol.img superblock",
            "--device ssd.img info vol.img",
            "check vol.img --device ssd.img --device other.img",
            "mkfs disk1 disk2 --fast ssd",
            "device list --json /mnt",
            "dump vol.img groups",
            "dump vol.img segments",
            "dump vol.img segment 17",
            "dump vol.img ifile",
            "dump vol.img inode 32",
            "dump vol.img dir 2",
            "dump --json vol.img atimes",
            "dump vol.img node 17 --json",
            "ls -l vol.img /a",
            "tree vol.img",
            "cat vol.img /a",
            "stat vol.img /a",
            "put vol.img file dir /a",
            "get vol.img /a out",
            "salvage --json --block-size 16K vol.img out",
            "label vol.img",
            "label /mnt new",
            "grow --size 8G vol.img",
            "shrink --json --size 8G vol.img",
            "trim --json --minimum 1M /mnt",
            "map /mnt/file",
            "map --json vol.img /file",
            "probe vol.img",
            "settle --json /mnt",
            "clean --json --until 80% /mnt",
            "place /mnt/dir",
            "place --json /mnt/dir hash",
            "place /mnt/dir --on fast",
            "place /mnt/dir hash --on slow",
            "drop-caches /mnt",
            "bench run --suite papers --scale small --json",
            "bench --help",
            "bench",
        ] {
            let words = std::iter::once("loamfs").chain(line.split_whitespace());
            assert!(Cli::try_parse_from(words).is_ok(), "{line}");
        }
    }

    #[test]
    fn what_is_for_bench_stays_with_it() {
        let cli = Cli::try_parse_from(["loamfs", "bench", "run", "--device", "4"]).unwrap();
        assert!(cli.members.is_empty());
    }
}
