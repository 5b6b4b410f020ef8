//! `loamfs place`.

use std::fs;
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use loamfs_console::complete::ArgValueCompleter;
use loamfs_console::size::{count, human};
use loamfs_fs::{PLACEMENT, Placement};
use rustix::fs::getxattr;
use rustix::io::Errno;
use serde_json::json;

use crate::candidates::mounted;
use crate::failure::{Failure, Kind};
use crate::mount::control::{self, Request};
use crate::mounts;
use crate::output::print_lines;
use crate::text::{shown_path, wrapped};

/// What people type.
const EXAMPLES: &str = "\
Examples:
  loamfs place /mnt/photos hash
      Small files there are read at one access each.
  loamfs place /mnt/photos
      What the directory says.";

/// Where small files of a directory go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Word {
    /// Into the log. What is there stays where it is.
    Auto,
    /// Into the log, and into no track: tracks that are there are taken apart.
    Log,
    /// Into data groups, like large files: a block each, which the log does not move.
    Data,
    /// Into tracks: one access reads a file with its attributes. New directories get tracks with their first files.
    /// What comes to a directory with tracks later goes into the log until the same is said again.
    Hash,
}

impl Word {
    const fn placement(self) -> Placement {
        match self {
            Self::Auto => Placement::Auto,
            Self::Log => Placement::Log,
            Self::Data => Placement::Data,
            Self::Hash => Placement::Hash,
        }
    }
}

/// Say where small files of a directory go, and move those that are there.
///
/// That holds for all directories below it, and for those that are made there later. `getfattr -n loamfs.place` shows it too.
/// Large files have homes in data groups, and tiny ones stand in their inodes, whatever is said here.
///
/// Others use the volume meanwhile. Ctrl-C ends it; what was moved until then stays, and the same command goes on.
/// Without a place it only shows what the directory says.
#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub struct PlaceArgs {
    /// A directory on a mounted volume.
    #[arg(value_name = "DIR", add = ArgValueCompleter::new(mounted))]
    directory: PathBuf,
    /// Where small files of it go.
    #[arg(value_name = "PLACE")]
    place: Option<Word>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

impl PlaceArgs {
    /// Carries it out.
    ///
    /// # Errors
    ///
    /// If it is no directory on a mount of LoamFS, its daemon could not do it, or room ran out.
    pub fn run(self) -> Result<u8, Failure> {
        let path = fs::canonicalize(&self.directory)
            .map_err(|error| Failure::io(&self.directory, &error))?;
        let shown = shown_path(&self.directory);
        if !path.is_dir() {
            let words = format!("{shown} is no directory; name the one that the files are in");
            return Err(Failure::usage(words));
        }
        let Some((entry, ino)) = mounts::holding(&path)? else {
            let words = format!("{shown} is on no mount of LoamFS; mount the volume first");
            return Err(Failure::usage(words));
        };
        let Some(word) = self.place else {
            return self.show(&path);
        };
        let placement = word.placement();
        let request = Request::Place(ino, placement);
        let answer = control::ask_showing(&entry, &request, "placing files:")?;
        let [directories, files, bytes, full] = control::figures(&answer)?;
        let word = placement.word();
        let told = match self.json {
            true => {
                let figures = json!({
                    "place": word,
                    "directories": directories,
                    "moved_files": files,
                    "moved_bytes": bytes,
                    "full": full != 0,
                });
                format!("{figures:#}")
            }
            false => wrapped(
                &format!(
                    "{shown}: {word}; {}, {} moved ({})",
                    count(directories, "directory", "directories"),
                    count(files, "file", "files"),
                    human(bytes),
                ),
                2,
            ),
        };
        print_lines([told])?;
        match full {
            0 => Ok(0),
            _ => Err(Failure::new(
                Kind::Io,
                "room ran out, and some files stay where they are; make some, and say the same again",
            )),
        }
    }

    /// Prints what the directory says.
    fn show(&self, path: &Path) -> Result<u8, Failure> {
        let mut word = [0; 64];
        let len = getxattr(path, PLACEMENT, &mut word).map_err(|error| match error {
            Errno::OPNOTSUPP => Failure::new(
                Kind::Io,
                format!(
                    "{} does not show it: the volume is mounted with noxattr, or by an older program",
                    shown_path(&self.directory)
                ),
            ),
            error => Failure::io(&self.directory, &error.into()),
        })?;
        let word = String::from_utf8_lossy(word.get(..len).unwrap_or_default());
        match self.json {
            true => print_lines([format!("{:#}", json!({ "place": word }))]),
            false => print_lines([word.into_owned()]),
        }
    }
}
