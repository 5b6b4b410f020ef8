//! `loamfs drop-caches`.

use std::fs;
use std::path::{Path, PathBuf};

use clap::Args;
use loamfs_console::complete::ArgValueCompleter;
use rustix::process::geteuid;

use crate::candidates::mounted;
use crate::failure::{Failure, Kind};
use crate::mount::control::{self, Request};
use crate::mounts;

/// Where the kernel is told to forget.
const KERNEL: &str = "/proc/sys/vm/drop_caches";

/// What people type.
const EXAMPLES: &str = "\
Examples:
  loamfs drop-caches /mnt
      Before a measurement of cold reads.";

/// Forget what was read, so that the next reads come from the device: for measurements (root).
///
/// Everything is made durable first. The kernel forgets clean pages, names and inodes of the whole machine.
#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub struct DropCachesArgs {
    /// Where the volume is mounted.
    #[arg(add = ArgValueCompleter::new(mounted))]
    mountpoint: PathBuf,
}

impl DropCachesArgs {
    /// Carries it out.
    ///
    /// # Errors
    ///
    /// If no LoamFS is mounted there, or the caller is not root.
    pub fn run(self) -> Result<u8, Failure> {
        let entry = mounts::mounted(&self.mountpoint)?;
        if !geteuid().is_root() {
            return Err(Failure::new(
                Kind::NoPermission,
                "the kernel's caches can only be dropped by root",
            ));
        }
        // The kernel first: what it still writes back comes to the daemon, which forgets last.
        rustix::fs::sync();
        let path = Path::new(KERNEL);
        fs::write(path, "3").map_err(|error| Failure::io(path, &error))?;
        control::ask(&entry, &Request::Drop)?;
        Ok(0)
    }
}
