//! `loamfs device remove --missing`.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use loamfs_check::paths_of;
use loamfs_console::size::{count, human};
use loamfs_device::Device;
use loamfs_format::Ino;
use loamfs_fs::members::{Candidate, join_without};
use loamfs_fs::{Env, Error, LogError, Lost, OpenOptions, Volume};
use serde_json::{Value, json};

use super::DeviceArgs;
use crate::failure::{Failure, Kind};
use crate::members;
use crate::mounts;
use crate::output::print_lines;
use crate::text::shown_path;

/// What a removal would lose.
struct Losses {
    /// The numbers of devices that are missing.
    devices: Vec<u32>,
    /// Bytes of each file.
    files: BTreeMap<Ino, u64>,
    /// As far as names lead to them.
    paths: BTreeMap<Ino, Vec<u8>>,
}

impl DeviceArgs {
    /// Takes devices that are missing out of a volume that is not mounted, and tells what of which files is lost with them. Where
    /// anything is, `--force` must be given.
    ///
    /// # Errors
    ///
    /// If none is missing, or the volume cannot be whole without one.
    pub(super) fn remove_missing(&self) -> Result<u8, Failure> {
        if let Some(entry) = mounts::find(&self.volume) {
            return Err(Failure::new(
                Kind::Busy,
                format!("{} is mounted; unmount it first", shown_path(&entry.path)),
            ));
        }
        let (first, others) = self.candidates(members::named())?;
        let losses = self.losses(&first, &others)?;
        let refused = !losses.files.is_empty() && !self.force;
        let sizes = match refused {
            true => None,
            false => Some(
                loamfs_fs::remove_missing(&first, &others, &Env::system())
                    .map_err(|error| self.failed(error))?,
            ),
        };
        let code = print_lines(match self.json {
            true => vec![format!("{:#}", losses.to_json(sizes))],
            false => losses.lines(sizes),
        })?;
        match refused {
            false => Ok(code),
            true => Err(Failure::usage(format!(
                "{} would lose what is told above; attach the missing device, or give --force to give that up",
                count(losses.files.len() as u64, "file", "files")
            ))),
        }
    }

    /// Puts a new device in the place of the one that leads, which is missing, out of the copy that another one has.
    ///
    /// # Errors
    ///
    /// If that is not missing, or has no copy; if the new device is too small, or seems to hold something.
    pub(super) fn replace_missing(&self, new: &Path) -> Result<u8, Failure> {
        if let Some(entry) = mounts::find(&self.volume) {
            return Err(Failure::new(
                Kind::Busy,
                format!("{} is mounted; unmount it first", shown_path(&entry.path)),
            ));
        }
        let (first, others) = self.candidates(members::named())?;
        let device = self.open_unused(new, |_| false)?;
        let new = members::candidate(new, device);
        let replaced = members::replace_missing(&first, &others, &new);
        let (bytes, unread) = replaced.map_err(|error| self.failed(error))?;
        let without = match unread {
            0 => String::new(),
            _ => format!(
                ", without {} of the copy that cannot be read (`loamfs check` tells what stood there)",
                human(unread)
            ),
        };
        let what = format!("{} leads the volume now{without}", new.name);
        match self.json {
            true => print_lines([format!(
                "{:#}",
                json!({ "bytes_before": bytes, "bytes": bytes, "bytes_unread": unread })
            )]),
            false => self.say(&what, (bytes, bytes)),
        }
    }

    /// What is lost: looked for without a single write.
    fn losses(&self, first: &Candidate, others: &[Candidate]) -> Result<Losses, Failure> {
        let joined = join_without(first, others).map_err(LogError::from);
        let device = joined.map_err(|error| self.failed(error.into()))?;
        let options = OpenOptions {
            read_only: true,
            ..OpenOptions::default()
        };
        let opened = Volume::open(device.clone(), &options, Env::system());
        let volume = opened.map_err(|error| self.failed(error))?;
        let devices = volume.info().missing();
        let Lost { files, others } = volume.upkeep().lost().map_err(|error| self.failed(error))?;
        if others > 0 {
            return Err(Failure::new(
                Kind::Data,
                format!(
                    "{} of metadata and small files were on what is missing, without which the volume cannot be made \
                     whole; attach the device, or bring out what is left with `loamfs salvage`",
                    human(others)
                ),
            ));
        }
        let inos = files.keys().copied().collect();
        let paths = paths_of(&device as &dyn Device, &inos);
        Ok(Losses {
            devices,
            files,
            paths: paths.map_err(|error| Failure::check(&self.volume, &error))?,
        })
    }

    fn failed(&self, error: Error) -> Failure {
        Failure::volume(&self.volume, &error)
    }
}

impl Losses {
    fn name(&self, ino: Ino) -> String {
        match self.paths.get(&ino) {
            Some(path) => shown_path(Path::new(OsStr::from_bytes(path))),
            None => format!("inode {}", ino.get()),
        }
    }

    fn lines(&self, sizes: Option<(u64, u64)>) -> Vec<String> {
        let of = |(ino, bytes): (&Ino, &u64)| {
            let lost = if sizes.is_some() {
                "lost"
            } else {
                "would be lost"
            };
            format!("{}: {} {lost}", self.name(*ino), human(*bytes))
        };
        let mut lines: Vec<String> = self.files.iter().map(of).collect();
        if let Some((before, after)) = sizes {
            let numbers: Vec<String> = self.devices.iter().map(u32::to_string).collect();
            lines.push(format!(
                "removed device {}, which is missing; the volume had {} and has {}; what was lost reads as zeros",
                numbers.join(", "),
                human(before),
                human(after)
            ));
        }
        lines
    }

    fn to_json(&self, sizes: Option<(u64, u64)>) -> Value {
        let file = |(ino, bytes): (&Ino, &u64)| {
            json!({
                "path": self.paths.contains_key(ino).then(|| self.name(*ino)),
                "inode": ino.get(),
                "bytes": bytes,
            })
        };
        json!({
            "missing": self.devices,
            "removed": sizes.is_some(),
            "lost": self.files.iter().map(file).collect::<Vec<_>>(),
            "bytes_before": sizes.map(|(before, _)| before),
            "bytes": sizes.map(|(_, after)| after),
        })
    }
}
