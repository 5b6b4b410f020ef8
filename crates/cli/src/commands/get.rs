//! `loamfs get`.

use std::collections::HashSet;
use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use clap::Args;
use loamfs_format::Ino;
use loamfs_fs::types::Attr;
use rustix::fs::{CWD, Mode, OFlags};
use rustix::process::umask;

use crate::attributes;
use crate::failure::Failure;
use crate::node::open;
use crate::outward::{Entries, Outward, Put, Source};
use crate::progress::CopyProgress;
use crate::sparse::data_ranges;
use crate::text;
use crate::trouble::Trouble;
use crate::volume::{Opened, Reading, components, is_dir, is_file};

/// Bytes that are read at a time.
const CHUNK: usize = 1 << 20;

/// What people type.
const EXAMPLES: &str = "\
Examples:
  loamfs get volume.img /src /tmp
      A tree, into /tmp/src.";

/// Copy files and directories out of an unmounted volume.
///
/// Directories are copied with everything in them. Mode, times, hard links and `user.` attributes
/// are kept; owners and other attributes too if you are root. What is there already is not
/// changed without --force. What cannot be copied is told, and the rest copied all the same.
#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub struct GetArgs {
    #[command(flatten)]
    reading: Reading,
    /// Replace files that are there already, and fill directories that are.
    #[arg(long, short)]
    force: bool,
    /// Print JSON.
    #[arg(long)]
    json: bool,
    /// The device or image file.
    device: PathBuf,
    /// What to copy, on the volume.
    path: OsString,
    /// Where to; into it if it is a directory.
    #[arg(default_value = ".")]
    target: PathBuf,
}

impl GetArgs {
    /// Carries it out.
    ///
    /// # Errors
    ///
    /// If something cannot be read or written. What was copied before stays.
    pub fn run(self) -> Result<u8, Failure> {
        // Nobody else looks into what is not complete.
        umask(Mode::from_raw_mode(0o077));
        let opened = Opened::open(&self.device, self.reading.access())?;
        let path = text::bytes(&self.path);
        let ino = opened.resolve(path)?.ino;
        let (place, dir, entries) = self.place(&opened, ino)?;
        let (source, name) = (Whole { opened, path }, text::bytes(place.as_os_str()));
        let mut progress = CopyProgress::new("getting", self.json);
        if progress.is_shown() {
            let (files, bytes) = source.total(&entries);
            progress.expect(files, bytes);
        }
        let begun = Outward::new(&source, name, dir, entries, &mut progress);
        let outward = begun.map_err(|error| Failure::io(&self.target, &error))?;
        let mut outward = outward.replacing(self.force);
        let copied = outward.all();
        let summary = progress.finish();
        copied?;
        summary.report("got")
    }

    /// The directory to copy into, and what comes into it.
    fn place(&self, opened: &Opened, ino: Ino) -> Result<(&Path, File, Entries), Failure> {
        let path = text::bytes(&self.path);
        let error = match open_first(&self.target) {
            Ok(dir) => {
                let entries = match components(path).last() {
                    Some(name) => vec![(name.to_vec(), ino)],
                    None => opened.entries(ino, path)?,
                };
                return Ok((&self.target, dir, entries));
            }
            Err(error) => error,
        };
        let failed = |error| Failure::io(&self.target, &error);
        let (Some(parent), Some(name)) = (self.target.parent(), self.target.file_name()) else {
            return Err(failed(error));
        };
        let dir = open_first(parent).map_err(failed)?;
        Ok((parent, dir, vec![(name.as_bytes().to_vec(), ino)]))
    }
}

/// Opens a directory to make names in it, whatever leads there.
fn open_first(path: &Path) -> io::Result<File> {
    let here = path.as_os_str().is_empty();
    let path = if here { Path::new(".") } else { path };
    open(CWD, path, OFlags::PATH | OFlags::DIRECTORY)
}

/// A volume that can be opened.
struct Whole<'a> {
    opened: Opened,
    path: &'a [u8],
}

impl Whole<'_> {
    /// Files and bytes below these entries, as far as they can be told.
    fn total(&self, entries: &Entries) -> (u64, u64) {
        let (mut files, mut bytes) = (0, 0);
        let mut left: Vec<Ino> = entries.iter().map(|(_, ino)| *ino).collect();
        // A damaged volume may have a directory in itself.
        let mut entered = HashSet::new();
        while let Some(ino) = left.pop() {
            let Ok(attr) = self.opened.volume().getattr(ino) else {
                continue;
            };
            files += 1;
            if is_file(&attr) {
                bytes += attr.size;
            }
            if is_dir(&attr) && entered.insert(ino.get()) {
                let below = self.opened.entries(ino, self.path).unwrap_or_default();
                left.extend(below.into_iter().map(|(_, ino)| ino));
            }
        }
        (files, bytes)
    }
}

impl Source for Whole<'_> {
    fn attr(&self, ino: Ino) -> Result<Attr, Trouble> {
        Ok(self.opened.volume().getattr(ino)?)
    }

    fn entries(&self, dir: Ino, troubles: &mut Vec<Trouble>) -> Entries {
        let entries = self.opened.entries(dir, self.path);
        entries.unwrap_or_else(|failure| {
            troubles.push(failure.into());
            Vec::new()
        })
    }

    fn content(
        &self,
        attr: &Attr,
        put: Put<'_>,
        _troubles: &mut Vec<Trouble>,
    ) -> Result<(), Trouble> {
        let volume = self.opened.volume();
        // A hostile volume could claim 8 EiB of holes.
        for range in data_ranges(volume, attr.ino) {
            let range = range?;
            let mut offset = range.start;
            while offset < range.end {
                let len = CHUNK.min(usize::try_from(range.end - offset).unwrap_or(CHUNK));
                let data = volume.read(attr.ino, offset, len)?;
                if data.is_empty() {
                    break;
                }
                put(offset, &data)?;
                offset += data.len() as u64;
            }
        }
        Ok(())
    }

    fn target(&self, ino: Ino) -> Result<Vec<u8>, Trouble> {
        Ok(self.opened.volume().readlink(ino)?)
    }

    fn attributes(
        &self,
        ino: Ino,
        give: &mut dyn FnMut(&[u8], &[u8]),
        _troubles: &mut Vec<Trouble>,
    ) -> Result<(), Trouble> {
        let volume = self.opened.volume();
        let names = volume.xattrs(ino).list()?;
        for name in names.iter().filter(|name| attributes::travels(name)) {
            give(name, &volume.xattrs(ino).get(name)?);
        }
        Ok(())
    }
}
