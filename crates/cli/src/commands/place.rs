//! `loamfs place`.

use std::fs;
use std::path::{Path, PathBuf};

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, ValueEnum};
use loamfs_console::complete::ArgValueCompleter;
use loamfs_console::size::{count, human};
use loamfs_fs::{PLACEMENT, Placement, TIER, Tiering};
use loamfs_fuse::MountEntry;
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
  loamfs place /mnt/databases --on fast
      Large files there go to the fast devices of a volume that has some beside others.
  loamfs place /mnt/photos --on 1M
      Those up to a MiB do, and larger ones go to the slow devices.
  loamfs place /mnt/scratch --on write-back
      What is written there goes to the fast devices, and to the slow ones later.
  loamfs place /mnt/snapshots --on bypass
      Large files there never take room of the fast devices.
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

/// The words for where large files go, and what they are.
fn tierings() -> impl TypedValueParser<Value = Tiering> {
    let words = PossibleValuesParser::new(Tiering::all().map(Tiering::word));
    words.map(|word| Tiering::of_word(&word).unwrap_or_default())
}

/// Say where files of a directory go, and move those that are there.
///
/// That holds for all directories below it, and for those that are made there later. `getfattr -n loamfs.place -n loamfs.on` shows
/// it too. PLACE is for small files; tiny ones stand in their inodes, whatever is said here. Large files have homes in data groups,
/// and --on says on which devices.
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
    /// On which devices large files of it go, on a volume with fast devices beside others, as long as these have room: on the `slow` ones, as
    /// they do by themselves (`auto`, which moves nothing), or on the `fast` ones, of which a quarter is left to the log. Or a size: files up to that go
    /// to the fast ones, others to the slow ones. With `write-back` they are written to the fast ones, and go to the slow ones when the volume
    /// is idle or the fast ones get short of room; `loamfs info` tells how much is still to go. With `bypass` they are on the slow ones, and what is
    /// read of them often is not kept on the fast ones either.
    #[arg(long, value_name = "DEVICES", value_parser = tierings(), hide_possible_values = true)]
    on: Option<Tiering>,
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
        let place = self.place.map(Word::placement);
        let on = self.on;
        if (place, on) == (None, None) {
            return self.show(&path);
        }
        let ask = |request: Option<Request>| match request {
            Some(request) => Moved::ask(&entry, &request),
            None => Ok(Moved::default()),
        };
        let moved = ask(place.map(|place| Request::Place(ino, place)))?;
        let small_full = moved.full;
        let moved = moved.and(ask(on.map(|on| Request::On(ino, on)))?);
        print_lines([self.told(place, on, small_full, &moved)])?;
        match (moved.damaged, small_full) {
            (0, false) => Ok(0),
            (0, true) => Err(Failure::new(
                Kind::Io,
                "room ran out, and some files stay where they are; make some, and say the same again",
            )),
            (damaged, _) => Err(Failure::new(
                Kind::Io,
                format!(
                    "{} damaged, and files of them or directories below them may stay where they are; see what `loamfs check` \
                     says of the volume",
                    count(damaged, "directory is", "directories are"),
                ),
            )),
        }
    }

    /// What moved, in a line or two, or as JSON.
    fn told(
        &self,
        place: Option<Placement>,
        on: Option<Tiering>,
        small_full: bool,
        moved: &Moved,
    ) -> String {
        if self.json {
            let mut figures = json!({
                "directories": moved.directories,
                "moved_files": moved.files,
                "moved_bytes": moved.bytes,
                "full": moved.full,
                "damaged_directories": moved.damaged,
                "damaged": moved.named,
            });
            if let Some(place) = place {
                figures["place"] = json!(place.word());
            }
            if let Some(on) = on {
                figures["on"] = json!(on.word());
            }
            return format!("{figures:#}");
        }
        let rest = match moved.full && !small_full {
            true => "; what is left had no room there, and stays where it is",
            false => "",
        };
        let line = format!(
            "{}: {}; {}, {} moved ({}){rest}",
            shown_path(&self.directory),
            said(place.map(Placement::word), on),
            count(moved.directories, "directory", "directories"),
            count(moved.files, "file", "files"),
            human(moved.bytes),
        );
        let named = moved.named.iter().map(|named| wrapped(named, 2));
        let lines: Vec<String> = [wrapped(&line, 2)].into_iter().chain(named).collect();
        lines.join("\n")
    }

    /// Prints what the directory says.
    fn show(&self, path: &Path) -> Result<u8, Failure> {
        let place = self.attribute(path, PLACEMENT)?;
        let on = self.attribute(path, TIER)?;
        match self.json {
            true => print_lines([format!("{:#}", json!({ "place": place, "on": on }))]),
            false => {
                let on = Tiering::of_word(&on).filter(|on| *on != Tiering::default());
                print_lines([said(Some(&place), on)])
            }
        }
    }

    /// An attribute of the directory's that no list has.
    fn attribute(&self, path: &Path, name: &str) -> Result<String, Failure> {
        let mut word = [0; 64];
        let len = getxattr(path, name, &mut word).map_err(|error| match error {
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
        Ok(word.into_owned())
    }
}

/// What a daemon did.
#[derive(Default)]
struct Moved {
    directories: u64,
    files: u64,
    bytes: u64,
    /// Some had no room.
    full: bool,
    /// Directories that are damaged.
    damaged: u64,
    /// What is wrong with some of these, by their paths.
    named: Vec<String>,
}

impl Moved {
    fn ask(entry: &MountEntry, request: &Request) -> Result<Self, Failure> {
        let answer = control::ask_showing(entry, request, "placing files:")?;
        let (answer, named) = control::without_damaged(&answer);
        let [directories, files, bytes, full, damaged] = control::figures(&answer)?;
        Ok(Self {
            directories,
            files,
            bytes,
            full: full != 0,
            damaged,
            named,
        })
    }

    /// What was done for both of two wishes, in the same directories.
    fn and(mut self, other: Self) -> Self {
        for named in other.named {
            if !self.named.contains(&named) {
                self.named.push(named);
            }
        }
        Self {
            directories: self.directories.max(other.directories),
            files: self.files + other.files,
            bytes: self.bytes + other.bytes,
            full: self.full || other.full,
            damaged: self.damaged.max(other.damaged),
            named: self.named,
        }
    }
}

/// What a directory says, in words.
fn said(place: Option<&str>, on: Option<Tiering>) -> String {
    let on = on.map(|on| match on {
        Tiering::On(tier) => format!("large files on {}", tier.word()),
        Tiering::UpTo(_) => format!("large files up to {} on fast, others on slow", on.word()),
        Tiering::Bypass => "large files on slow, past the fast ones".to_owned(),
        Tiering::WriteBack => "large files on fast, and later on slow".to_owned(),
    });
    let words: Vec<String> = place.map(str::to_owned).into_iter().chain(on).collect();
    words.join(", ")
}
