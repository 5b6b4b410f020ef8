//! `loamfs salvage`.

use std::cell::RefCell;
use std::collections::HashSet;
use std::fs::File;
use std::path::PathBuf;

use clap::Args;
use loamfs_check::salvage::{Found, Options};
use loamfs_check::{CheckError, Salvage};
use loamfs_format::Ino;
use loamfs_format::inode::ROOT_INO;
use loamfs_fs::types::Attr;
use rustix::fs::{CWD, Mode, OFlags, mkdirat};
use rustix::io::Errno;
use rustix::process::umask;
use serde_json::{Value, json};

use crate::attributes;
use crate::failure::{Failure, Kind};
use crate::node::{names, open, open_directory};
use crate::output::note;
use crate::outward::{Entries, Outward, Put, Source};
use crate::progress::{CopyProgress, StepProgress};
use crate::text::{bytes, shown, shown_path};
use crate::trouble::Trouble;
use crate::volume::{Access, is_name, open_device};
use loamfs_console::size::{human, parse};

/// Where what has no name that is known comes.
const LOST_FOUND: &str = "lost+found";

/// Why nothing gives anybody rights.
const UNPROVED: &str = "of a damaged volume nobody knows who put it there";

/// What people type.
const EXAMPLES: &str = "\
Examples:
  loamfs salvage /dev/sdb1 /tmp/saved
      What can be found, superblock or not.";

/// Bring out what is left of a damaged volume.
///
/// Copies all that can be found into a new or empty directory, also where superblocks, checkpoints,
/// maps or large parts of the device are gone. Nothing is written to the device, and nothing is
/// copied that does not have its checksum: what is damaged of a file becomes a hole, and is told.
/// What has no name that is known comes to `lost+found`, under its number. Programs get no rights of
/// their owners, and devices are left out. With everything readable, `loamfs get` does the same.
#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub struct SalvageArgs {
    /// Print JSON.
    #[arg(long)]
    json: bool,
    /// Without a superblock: which volume, if there are remains of several.
    #[arg(long)]
    uuid: Option<uuid::Uuid>,
    /// Without a superblock: how long blocks of large files are. That is 4K, or the volume's `mkfs --block-size` if it was made with
    /// `--no-tails`.
    #[arg(long, value_parser = parse)]
    block_size: Option<u64>,
    /// The device or image file.
    device: PathBuf,
    /// The directory to fill; it is made if it is not there.
    #[arg(value_name = "DIR")]
    target: PathBuf,
}

impl SalvageArgs {
    /// Carries it out.
    ///
    /// # Errors
    ///
    /// If there is nothing of a volume, or not all of it could be brought out.
    pub fn run(self) -> Result<u8, Failure> {
        // Nobody else looks into what is not complete.
        umask(Mode::from_raw_mode(0o077));
        let device = open_device(&self.device, Access::Degraded)?;
        let block_size = self.block_size()?;
        let dir = self.place()?;
        let mut bar = StepProgress::new();
        let mut tell = |done, total| bar.step(1, "looking at the device", done, total);
        let mut options = Options {
            uuid: self.uuid.map(uuid::Uuid::into_bytes),
            block_size,
            progress: &mut tell,
        };
        let found = Salvage::open(&*device, &mut options);
        bar.finish();
        let salvage = found.map_err(|error| self.nothing(&error))?;
        if !self.json {
            for line in self.findings(&salvage) {
                note(&line);
            }
        }
        let remains = Remains {
            salvage: &salvage,
            reached: RefCell::default(),
        };
        let mut progress = CopyProgress::new("bringing out", self.json);
        let brought = self.bring_out(&remains, &dir, &mut progress);
        let summary = progress.finish();
        let nameless = brought?;
        let code = summary.report_with("brought out", &facts(&salvage, nameless))?;
        let findings = salvage.findings();
        let is_part = findings.gaps || findings.overflowed;
        if is_part || findings.older > 0 || findings.lost > 0 {
            let words = "not all of the volume was found; the summary says what is missing";
            let told = "not all of the volume was found; what is missing is said above";
            let words = if self.json { words } else { told };
            return Err(Failure::new(Kind::Data, words));
        }
        Ok(code)
    }

    fn block_size(&self) -> Result<Option<u32>, Failure> {
        let Some(size) = self.block_size else {
            return Ok(None);
        };
        let fits = u32::try_from(size).ok();
        let fits = fits.filter(|size| size.is_power_of_two() && (4096..=1 << 20).contains(size));
        let words = "a block has 4K to 1M, a power of two; give 4K, or the --block-size of a volume made with --no-tails";
        fits.map(Some).ok_or_else(|| Failure::usage(words))
    }

    /// Makes the directory, or makes sure that it is empty. Opens it.
    fn place(&self) -> Result<File, Failure> {
        let failed = |error: std::io::Error| Failure::io(&self.target, &error);
        match mkdirat(CWD, &self.target, Mode::from_raw_mode(0o700)) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(errno) => return Err(failed(errno.into())),
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        let dir = open(CWD, &self.target, flags).map_err(failed)?;
        if !names(&dir).map_err(failed)?.is_empty() {
            return Err(Failure::new(
                Kind::CannotCreate,
                format!(
                    "{} is not empty; name an empty directory, or a new one",
                    shown_path(&self.target)
                ),
            ));
        }
        Ok(dir)
    }

    fn nothing(&self, error: &CheckError) -> Failure {
        match error {
            CheckError::Superblock(cause) if cause.is_no_copy() => Failure::new(
                Kind::Data,
                format!(
                    "{}: nothing of a LoamFS volume was found; check the path",
                    shown_path(&self.device)
                ),
            ),
            error => Failure::check(&self.device, error),
        }
    }

    /// What had to be done without, for people.
    fn findings(&self, salvage: &Salvage<'_>) -> Vec<String> {
        let findings = salvage.findings();
        let device = shown_path(&self.device);
        let told = [
            (
                findings.no_superblock,
                format!(
                    "no superblock was found; {device} is taken for volume {} with fragments of {} and blocks of {}, \
                     and the log is believed by its checksums alone",
                    uuid::Uuid::from_bytes(salvage.volume().superblock().uuid),
                    human(salvage.volume().geometry().fragment_size.into()),
                    human(salvage.volume().geometry().block_size.into()),
                ),
            ),
            (
                findings.one_superblock,
                "only one of the two superblock copies was found; if the other one was the newest, some may be older than it should".to_owned(),
            ),
            (
                findings.gaps,
                "parts of the log are missing, and with them what they changed; some of the rest may be older than it should".to_owned(),
            ),
            (
                findings.no_images,
                "which parts of large files have newer data elsewhere is not known".to_owned(),
            ),
            (
                findings.overflowed,
                "more seems to speak of inodes than there is room for; those with the highest numbers were left out".to_owned(),
            ),
            (
                findings.older > 0,
                format!(
                    "of {} blocks of inodes only an older state was found; it comes to {LOST_FOUND}",
                    findings.older
                ),
            ),
            (
                findings.unverified > 0,
                format!("of {} blocks of inodes no checksum was found", findings.unverified),
            ),
            (
                findings.lost > 0,
                format!("of {} blocks of inodes, 32 at most in each, nothing was found", findings.lost),
            ),
        ];
        let told = told.into_iter().filter(|(is, _)| *is);
        told.map(|(_, words)| format!("loamfs: {words}")).collect()
    }

    /// Copies what the root leads to, then the rest. Returns how much of it has no name that is known.
    fn bring_out(
        &self,
        remains: &Remains<'_, '_>,
        dir: &File,
        progress: &mut CopyProgress,
    ) -> Result<u64, Failure> {
        let failed = |error: std::io::Error| Failure::io(&self.target, &error);
        let top = bytes(self.target.as_os_str());
        let mut troubles = Vec::new();
        let entries = match remains.salvage.inode(ROOT_INO) {
            Ok(_) => remains.entries(ROOT_INO, &mut troubles),
            Err(fault) => {
                troubles.push(said(&fault));
                Vec::new()
            }
        };
        progress.bad(|| top.to_vec(), troubles)?;
        let copy = dir.try_clone().map_err(failed)?;
        Outward::new(remains, top, copy, entries, progress)
            .map_err(failed)?
            .all()?;
        let nameless = remains.nameless();
        if nameless.is_empty() {
            return Ok(0);
        }
        match mkdirat(dir, LOST_FOUND, Mode::from_raw_mode(0o700)) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(errno) => return Err(failed(errno.into())),
        }
        let place = self.target.join(LOST_FOUND);
        let failed = |error: std::io::Error| Failure::io(&place, &error);
        let mut count = 0;
        // One by one: of directories that lead to each other, the first brings out the others.
        for ino in nameless {
            if !remains.reached.borrow_mut().insert(ino.0) {
                continue;
            }
            let dir = open_directory(dir, LOST_FOUND).map_err(failed)?;
            let entries = vec![(ino.0.to_string().into_bytes(), ino)];
            Outward::new(remains, bytes(place.as_os_str()), dir, entries, progress)
                .map_err(failed)?
                .all()?;
            count += 1;
        }
        Ok(count)
    }
}

/// What had to be done without, for programs.
fn facts(salvage: &Salvage<'_>, nameless: u64) -> Value {
    let findings = salvage.findings();
    json!({
        "superblock": !findings.no_superblock,
        "both_superblocks": !findings.no_superblock && !findings.one_superblock,
        "log": !findings.gaps,
        "images": !findings.no_images,
        "scanned": findings.scanned,
        "inode_blocks": {
            "older": findings.older,
            "unverified": findings.unverified,
            "overflowed": findings.overflowed,
            "lost": findings.lost,
        },
        "nameless": nameless,
    })
}

/// A volume that cannot be opened.
struct Remains<'s, 'd> {
    salvage: &'s Salvage<'d>,
    /// Inodes that were brought out, or are about to.
    reached: RefCell<HashSet<u64>>,
}

impl Remains<'_, '_> {
    /// Inodes to which no name leads, those that hold others first: what they lead to is not among them, unless
    /// directories lead to each other.
    fn nameless(&self) -> Vec<Ino> {
        let reached = self.reached.borrow();
        let is_left = |ino: &Ino| *ino != ROOT_INO && !reached.contains(&ino.0);
        let mut named = HashSet::new();
        let mut left = Vec::new();
        for ino in self.salvage.numbers().filter(is_left) {
            let Ok(found) = self.salvage.inode(ino) else {
                // It is told when it is copied.
                left.push((false, ino));
                continue;
            };
            // It had no name when the volume was written last.
            if found.inode.nlink == 0 {
                continue;
            }
            if found.inode.is_dir() {
                named.extend(self.named(&found).0.into_iter().map(|(_, ino)| ino.0));
            }
            left.push((found.inode.is_dir(), ino));
        }
        let (named, rest): (Vec<_>, Vec<_>) = left
            .into_iter()
            .partition(|(_, ino)| named.contains(&ino.0));
        let (directories, others): (Vec<_>, Vec<_>) = rest.into_iter().partition(|(is, _)| *is);
        let all = directories.into_iter().chain(others).chain(named);
        all.map(|(_, ino)| ino).collect()
    }

    /// What the names in a directory lead to, and what goes wrong with some.
    fn named(&self, dir: &Found) -> (Entries, Vec<Trouble>) {
        let (entries, faults) = self.salvage.entries(&dir.inode);
        let mut troubles: Vec<Trouble> = faults.iter().map(said).collect();
        let mut named = Vec::new();
        for entry in entries.into_iter().filter(|entry| is_name(&entry.name)) {
            let ino = entry.ino;
            match self.salvage.inode(ino) {
                Ok(found) if self.salvage.is_named(dir, &entry, &found) => {
                    named.push((entry.name, ino));
                }
                Ok(_) => troubles.push(Trouble::Said(
                    Kind::Data,
                    format!(
                        "what was found of {}, inode {ino}, is of another time; look for it in {LOST_FOUND}",
                        shown(&entry.name)
                    ),
                )),
                Err(fault) => troubles.push(Trouble::Said(
                    Kind::Data,
                    format!("{} is lost: {fault}", shown(&entry.name)),
                )),
            }
        }
        named.sort_unstable();
        (named, troubles)
    }

    fn found(&self, ino: Ino) -> Result<Found, Trouble> {
        self.salvage.inode(ino).map_err(|fault| said(&fault))
    }
}

impl Source for Remains<'_, '_> {
    fn attr(&self, ino: Ino) -> Result<Attr, Trouble> {
        Ok(Attr::of(&self.found(ino)?.inode, 0))
    }

    fn entries(&self, dir: Ino, troubles: &mut Vec<Trouble>) -> Entries {
        let found = match self.found(dir) {
            Ok(found) => found,
            Err(trouble) => {
                troubles.push(trouble);
                return Vec::new();
            }
        };
        let (entries, bad) = self.named(&found);
        troubles.extend(bad);
        let mut reached = self.reached.borrow_mut();
        reached.extend(entries.iter().map(|(_, ino)| ino.0));
        entries
    }

    fn content(
        &self,
        attr: &Attr,
        put: Put<'_>,
        troubles: &mut Vec<Trouble>,
    ) -> Result<(), Trouble> {
        let found = self.found(attr.ino)?;
        let damage = self.salvage.content(&found.inode, put)?;
        if let Some(first) = damage.faults.first() {
            let words = match damage.at {
                Some(at) => format!(
                    "{} of {} are lost and read as zeros, the first at byte {at}: {first}",
                    human(damage.bytes),
                    human(attr.size)
                ),
                None => format!(
                    "some of its {} may be lost and read as zeros: {first}",
                    human(attr.size)
                ),
            };
            troubles.push(Trouble::Said(Kind::Data, words));
        }
        if damage.may_be_older {
            let words = "parts of it may be older than they should";
            troubles.push(Trouble::Said(Kind::Data, words.to_owned()));
        }
        Ok(())
    }

    fn target(&self, ino: Ino) -> Result<Vec<u8>, Trouble> {
        let inode = self.found(ino)?.inode;
        let mut target = Vec::new();
        let damage = self
            .salvage
            .content(&inode, &mut |_, data| -> Result<(), Trouble> {
                target.extend_from_slice(data);
                Ok(())
            })?;
        match damage.faults.first() {
            None => Ok(target),
            Some(fault) => Err(said(fault)),
        }
    }

    fn attributes(
        &self,
        ino: Ino,
        give: &mut dyn FnMut(&[u8], &[u8]),
        troubles: &mut Vec<Trouble>,
    ) -> Result<(), Trouble> {
        let inode = self.found(ino)?.inode;
        let (attributes, faults) = self.salvage.attributes(&inode);
        for (name, value) in attributes
            .iter()
            .filter(|(name, _)| attributes::travels(name))
        {
            give(name, value);
        }
        troubles.extend(faults.iter().map(said));
        Ok(())
    }

    fn distrust(&self) -> Option<&'static str> {
        Some(UNPROVED)
    }
}

fn said(fault: &CheckError) -> Trouble {
    Trouble::Said(Kind::Data, fault.to_string())
}
