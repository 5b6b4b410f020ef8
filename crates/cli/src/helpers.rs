//! The names under which other programs call this one: `mkfs.loamfs`, `fsck.loamfs` and
//! `mount.loamfs`, each with the habits that mkfs(8), fsck(8) and mount(8) expect of a helper.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use clap::{ArgAction, Command, CommandFactory, Parser};
use loamfs_console::complete::ArgValueCompleter;

use crate::commands::check::CheckArgs;
use crate::commands::mkfs::MkfsArgs;
use crate::commands::mount::MountArgs;
use crate::failure::{Failure, Front};
use crate::mount::known;
use crate::parse_failed;
use crate::text::COLUMNS_MAX;

/// What people type.
const MKFS_EXAMPLES: &str = "\
Examples:
  mkfs -t loamfs -L photos /dev/sdb1
      A volume on a partition.";

/// What people type.
const FSCK_EXAMPLES: &str = "\
Examples:
  fsck -t loamfs -f -y /dev/sdb1
      Everything, and what can be repaired is.";

/// What people type.
const MOUNT_EXAMPLES: &str = "\
Examples:
  mount -t loamfs -o noatime /dev/sdb1 /srv/mail
      A partition.
  mount -t loamfs volume.img /mnt
      An image file.";

/// A name that is not `loamfs`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Helper {
    /// `mkfs.loamfs`.
    Mkfs,
    /// `fsck.loamfs`.
    Fsck,
    /// `mount.loamfs`.
    Mount,
}

/// Make a LoamFS volume.
#[derive(Debug, Parser)]
#[command(name = "mkfs.loamfs", version, max_term_width = COLUMNS_MAX, after_long_help = MKFS_EXAMPLES)]
pub struct MkfsHelper {
    #[command(flatten)]
    args: MkfsArgs,
}

/// Check a LoamFS volume, and repair it.
///
/// A volume that was not unmounted cleanly needs no repair: mounting it recovers it. So with -a or
/// -p this only makes sure that there is a volume that can be mounted, unless -f asks for more. Then
/// everything that has a checksum is read, the contents of files too.
///
/// Exit codes are those of fsck(8): 0 nothing wrong, 1 repaired, 4 errors left, 8 the check failed, 16 wrong
/// call.
#[derive(Debug, Parser)]
#[command(name = "fsck.loamfs", version, max_term_width = COLUMNS_MAX, after_long_help = FSCK_EXAMPLES)]
pub struct FsckHelper {
    /// Repair without asking; does little without -f (see above).
    #[arg(short = 'a')]
    auto: bool,
    /// The same as -a.
    #[arg(short = 'p')]
    preen: bool,
    /// Repair whatever can be repaired.
    #[arg(short = 'y')]
    yes: bool,
    /// Change nothing.
    #[arg(short = 'n', conflicts_with_all = ["auto", "preen", "yes"])]
    no: bool,
    /// Check everything, though nothing seems wrong.
    #[arg(short = 'f')]
    force: bool,
    /// Say more; accepted for fsck(8).
    #[arg(short = 'v', action = ArgAction::Count)]
    verbose: u8,
    /// Tell of the progress: a line `STEP DONE TOTAL DEVICE` each time to this descriptor; to a terminal
    /// without a number, or with 0.
    #[arg(short = 'C', value_name = "DESCRIPTOR")]
    progress: Option<i32>,
    /// No title; there is none.
    #[arg(short = 'T')]
    no_title: bool,
    /// The device or image file.
    device: PathBuf,
}

/// Mount a LoamFS volume, for mount(8).
///
/// As mount.fuse.loamfs and mount.fuseblk.loamfs, which is what mount(8) calls by the type in the mount
/// table, it changes the options of a mount (-o remount). The options are those of loamfs-mount(1).
#[derive(Debug, Parser)]
#[command(name = "mount.loamfs", version, max_term_width = COLUMNS_MAX, after_long_help = MOUNT_EXAMPLES)]
pub struct MountHelper {
    /// The device or image file.
    device: PathBuf,
    /// Where to mount it.
    mountpoint: PathBuf,
    /// Mount options, as for `loamfs mount`.
    #[arg(short = 'o', value_name = "OPTIONS", add = ArgValueCompleter::new(known::complete))]
    options: Vec<String>,
    /// Mount for reading only.
    #[arg(short = 'r')]
    read_only: bool,
    /// Mount for reading and writing.
    #[arg(short = 'w')]
    read_write: bool,
    /// Do everything but mount.
    #[arg(short = 'f')]
    fake: bool,
    /// Do not write /etc/mtab; it never is.
    #[arg(short = 'n')]
    no_mtab: bool,
    /// Ignore unknown options.
    #[arg(short = 's')]
    sloppy: bool,
    /// Say more.
    #[arg(short = 'v', action = ArgAction::Count)]
    verbose: u8,
    /// The type that was asked for.
    #[arg(short = 't', value_name = "TYPE")]
    fstype: Option<String>,
}

impl Helper {
    /// The helper that the first argument names, if it names one.
    pub fn from_name(name: Option<&OsString>) -> Option<Self> {
        let name = Path::new(name?).file_name()?;
        let is_name = |known: &&str| OsStr::new(known) == name;
        Self::ALL.into_iter().find(|helper| {
            let mut names =
                std::iter::once(helper.name()).chain(helper.other_names().iter().copied());
            names.any(|known| is_name(&known))
        })
    }

    /// Other names of it: what mount(8) calls to change a mount, as types are so in the mount table.
    pub const fn other_names(self) -> &'static [&'static str] {
        match self {
            Self::Mkfs | Self::Fsck => &[],
            Self::Mount => &["mount.fuse.loamfs", "mount.fuseblk.loamfs"],
        }
    }

    /// All of them.
    pub const ALL: [Self; 3] = [Self::Mkfs, Self::Fsck, Self::Mount];

    /// What it takes.
    pub fn definition(self) -> Command {
        match self {
            Self::Mkfs => MkfsHelper::command(),
            Self::Fsck => FsckHelper::command(),
            Self::Mount => MountHelper::command(),
        }
    }

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Mkfs => "mkfs.loamfs",
            Self::Fsck => "fsck.loamfs",
            Self::Mount => "mount.loamfs",
        }
    }

    /// The command that it stands for.
    pub const fn command(self) -> &'static str {
        match self {
            Self::Mkfs => "mkfs",
            Self::Fsck => "check",
            Self::Mount => "mount",
        }
    }

    /// Whose exit codes it uses.
    pub const fn front(self) -> Front {
        match self {
            Self::Mkfs => Front::General,
            Self::Fsck => Front::Check,
            Self::Mount => Front::Mount,
        }
    }

    /// Carries it out.
    ///
    /// # Errors
    ///
    /// As the command that it stands for.
    pub fn run(self, arguments: &[OsString]) -> Result<u8, Failure> {
        match self {
            Self::Mkfs => match MkfsHelper::try_parse_from(arguments) {
                Ok(helper) => helper.args.run(),
                Err(error) => parse_failed(&error),
            },
            Self::Fsck => match FsckHelper::try_parse_from(with_descriptor(arguments)) {
                Ok(helper) => helper.run(),
                Err(error) => parse_failed(&error),
            },
            Self::Mount => match MountHelper::try_parse_from(arguments) {
                Ok(helper) => helper.run(),
                Err(error) => parse_failed(&error),
            },
        }
    }
}

/// The arguments, with the 0 that a `-C` without a number stands for.
fn with_descriptor(arguments: &[OsString]) -> Vec<OsString> {
    let mut words = arguments.iter().peekable();
    let mut full = Vec::new();
    while let Some(word) = words.next() {
        full.push(word.clone());
        let is_number = |word: &&OsString| word.to_str().is_some_and(|w| w.parse::<i32>().is_ok());
        if word == "-C" && !words.peek().is_some_and(is_number) {
            full.push("0".into());
        }
    }
    full
}

impl FsckHelper {
    fn run(self) -> Result<u8, Failure> {
        let pipe = self.progress.filter(|descriptor| *descriptor > 0);
        let auto = self.auto || self.preen;
        let check = CheckArgs::for_fsck(self.device, auto || self.yes, pipe);
        if auto && !self.force {
            check.look()
        } else {
            check.run()
        }
    }
}

impl MountHelper {
    fn run(self) -> Result<u8, Failure> {
        let mut options = self.options;
        if self.read_only {
            options.push("ro".to_owned());
        }
        if self.read_write {
            options.push("rw".to_owned());
        }
        let quiet = self.verbose == 0;
        let args = MountArgs::for_helper(self.device, self.mountpoint, options, self.sloppy);
        if self.fake {
            args.check_only()
        } else {
            args.run_with(quiet)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_recognised_by_their_last_component() {
        let named = |name: &str| Helper::from_name(Some(&name.into()));
        assert_eq!(named("/sbin/mkfs.loamfs"), Some(Helper::Mkfs));
        assert_eq!(named("fsck.loamfs"), Some(Helper::Fsck));
        assert_eq!(named("/sbin/mount.fuseblk.loamfs"), Some(Helper::Mount));
        assert_eq!(named("loamfs"), None);
        assert_eq!(Helper::from_name(None), None);
    }

    #[test]
    fn the_definitions_are_sound() {
        for helper in Helper::ALL {
            helper.definition().debug_assert();
        }
    }

    /// The manual page is made from the same.
    #[test]
    fn fsck_tells_its_switches_and_exit_codes() {
        let help = FsckHelper::command().render_long_help().to_string();
        for words in ["  -a\n", "  -p\n", "  -C <", "4 errors left"] {
            assert!(help.contains(words), "no {words:?} in {help}");
        }
    }

    #[test]
    fn the_calls_of_fsck_and_mount_are_understood() {
        let progress = |words: &[&str]| {
            let words: Vec<OsString> = words.iter().map(OsString::from).collect();
            FsckHelper::try_parse_from(with_descriptor(&words))
                .unwrap()
                .progress
        };
        assert_eq!(
            progress(&["fsck.loamfs", "-a", "-T", "-C", "/dev/x"]),
            Some(0)
        );
        assert_eq!(progress(&["fsck.loamfs", "-C7", "-y", "/dev/x"]), Some(7));
        assert_eq!(
            progress(&["fsck.loamfs", "-C", "7", "-y", "/dev/x"]),
            Some(7)
        );
        assert_eq!(progress(&["fsck.loamfs", "-n", "/dev/x"]), None);
        FsckHelper::try_parse_from(["fsck.loamfs", "-p", "-f", "/dev/x"]).unwrap();
        assert!(FsckHelper::try_parse_from(["fsck.loamfs", "-n", "-y", "/dev/x"]).is_err());
        let call = [
            "mount.loamfs",
            "/dev/x",
            "/mnt",
            "-n",
            "-v",
            "-o",
            "rw,nofail",
        ];
        MountHelper::try_parse_from(call).unwrap();
    }
}
