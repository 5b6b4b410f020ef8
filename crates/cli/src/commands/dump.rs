//! `loamfs dump`.

use std::io::IsTerminal as _;
use std::path::PathBuf;

use clap::{Args, Subcommand};
use loamfs_check::{CheckError, Volume, dump};
use loamfs_format::{FragAddr, Ino, Ssn};

use crate::failure::Failure;
use crate::output::print;
use crate::text::wrapped;
use crate::volume::{Access, open_device};

/// What people type.
const EXAMPLES: &str = "\
Examples:
  loamfs dump volume.img superblock
      Who the volume is, and how large its parts are.
  loamfs dump --json volume.img inode 32
      An inode, for a program to read.
  loamfs dump volume.img segments
      The chain of the log since the last checkpoint.";

/// Show any structure on the device.
///
/// A file that has the name of a structure is given with its directory: `loamfs dump ./dir superblock`.
#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub struct DumpArgs {
    /// The device or image file.
    device: PathBuf,
    /// Print JSON.
    #[arg(long, global = true)]
    json: bool,
    /// Which structure.
    #[command(subcommand)]
    what: What,
}

/// Structures.
#[derive(Clone, Copy, Debug, Subcommand)]
#[command(disable_help_subcommand = true)]
enum What {
    /// Both copies of the superblock.
    Superblock,
    /// Role and usage of every group.
    Groups,
    /// The segments since the last checkpoint.
    Segments,
    /// One segment: its summary, record by record.
    Segment {
        /// Its sequence number.
        ssn: u64,
    },
    /// Where the inode blocks are.
    Ifile,
    /// One inode.
    Inode {
        /// Its number.
        number: u64,
    },
    /// The entries of a directory, and its table of tracks.
    Dir {
        /// The directory's inode number.
        number: u64,
    },
    /// Where the content of a large file is.
    Extents {
        /// The file's inode number.
        number: u64,
    },
    /// The checksums of a large file's data.
    Checksums {
        /// The file's inode number.
        number: u64,
    },
    /// When inodes were read, as far as it is kept beside them.
    Atimes,
    /// Any node of any tree.
    Node {
        /// The number of its first fragment, as pointers to it show it behind the `@`.
        address: u64,
    },
    /// A track of small files: the slots in its head.
    Track {
        /// The number of its first fragment, as the directory's table shows it behind the `@`.
        address: u64,
    },
    /// Which fragments are in use, as the last checkpoint has it.
    Bitmap,
    /// Who owns which range.
    Owners,
    /// Blocks whose newest image is in the log.
    Lazy,
}

impl DumpArgs {
    /// Carries it out.
    ///
    /// # Errors
    ///
    /// If there is no volume, no such structure, or it cannot be read.
    pub fn run(self) -> Result<u8, Failure> {
        let device = open_device(&self.device, Access::Degraded)?;
        let failed = |error: CheckError| Failure::check(&self.device, &error);
        let volume = Volume::open(&device).map_err(failed)?;
        let view = match self.what {
            What::Superblock => dump::superblock(&volume),
            What::Groups => dump::groups(&volume),
            What::Segments => dump::segments(&volume),
            What::Segment { ssn } => dump::segment(&volume, Ssn(ssn)).map_err(failed)?,
            What::Ifile => dump::ifile(&volume),
            What::Inode { number } => dump::inode(&volume, Ino(number)).map_err(failed)?,
            What::Dir { number } => dump::directory(&volume, Ino(number)).map_err(failed)?,
            What::Extents { number } => dump::extents(&volume, Ino(number)).map_err(failed)?,
            What::Checksums { number } => dump::checksums(&volume, Ino(number)).map_err(failed)?,
            What::Atimes => dump::atimes(&volume).map_err(failed)?,
            What::Node { address } => {
                dump::node(&volume, device.as_ref(), FragAddr(address)).map_err(failed)?
            }
            What::Track { address } => dump::track(&volume, FragAddr(address)).map_err(failed)?,
            What::Bitmap => dump::bitmap(&volume),
            What::Owners => dump::owners(&volume),
            What::Lazy => dump::lazy(&volume),
        };
        print(|out| {
            if !self.json && std::io::stdout().is_terminal() {
                let text = view.to_string();
                return text
                    .lines()
                    .try_for_each(|line| writeln!(out, "{}", wrapped(line, 2)));
            }
            if !self.json {
                return write!(out, "{view}");
            }
            serde_json::to_writer_pretty(&mut *out, &view)?;
            writeln!(out)
        })
    }
}
