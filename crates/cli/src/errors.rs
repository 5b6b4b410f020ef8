//! Errors that programs met, counted by what they say of the volume, and files that are damaged.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use loamfs_format::Ino;
use loamfs_fs::{Error, LogError, Volume};
use serde_json::{Value, json};

use crate::mount::handover::damaged::{Damaged, FILES_MAX};
use crate::text::shown_path;

/// What an error says of the volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum ErrorKind {
    /// Something on the device is damaged.
    Damaged,
    /// The device failed.
    Device,
    /// Changes were lost with a daemon that died.
    Lost,
    /// No space is left.
    Full,
    /// It takes no changes.
    ReadOnly,
    /// A defect of this program.
    Defect,
    /// Nothing: so are wrong names and the like answered.
    Refused,
}

impl ErrorKind {
    /// How many there are.
    pub const COUNT: usize = 7;

    /// Their names.
    const NAMES: [&str; Self::COUNT] = [
        "damaged",
        "device",
        "lost",
        "full",
        "read_only",
        "defect",
        "refused",
    ];

    /// That of an error; none of what is only tried again.
    fn of(error: &Error) -> Option<Self> {
        Some(match error {
            Error::WouldWait => return None,
            Error::Device(_) | Error::Log(LogError::Device(_)) | Error::Unwritten(_) => {
                Self::Device
            }
            Error::Corrupt(_)
            | Error::Map { .. }
            | Error::Log(_)
            | Error::Space(_)
            | Error::Superblock(_) => Self::Damaged,
            Error::NoSpace => Self::Full,
            Error::ReadOnly => Self::ReadOnly,
            Error::Broken(_) | Error::Segment(_) => Self::Defect,
            _ => Self::Refused,
        })
    }
}

/// The errors of a mount.
#[derive(Default)]
pub struct Errors {
    counts: [AtomicU64; ErrorKind::COUNT],
    /// Files that could not be read, in the order in which that was found.
    damaged: Mutex<Vec<Damaged>>,
}

impl Errors {
    /// Those of a mount that has had so many, and whose files these are.
    pub fn counting_on(before: [u64; ErrorKind::COUNT], damaged: Vec<Damaged>) -> Self {
        Self {
            counts: before.map(AtomicU64::new),
            damaged: Mutex::new(damaged),
        }
    }

    /// Somebody got this error of an inode.
    pub fn count(&self, ino: Ino, error: &Error) {
        let Some(kind) = ErrorKind::of(error) else {
            return;
        };
        self.count_kind(kind);
        if kind == ErrorKind::Damaged {
            let mut damaged = self.damaged.lock().unwrap_or_else(PoisonError::into_inner);
            let is_known = || damaged.iter().any(|file| file.ino() == ino.get());
            if damaged.len() < FILES_MAX && !is_known() {
                let since = SystemTime::now().duration_since(UNIX_EPOCH);
                let since = since.map_or(0, |since| since.as_secs());
                damaged.push(Damaged::new(ino.get(), since, &error.to_string()));
            }
        }
    }

    /// Somebody got an error of this kind.
    pub fn count_kind(&self, kind: ErrorKind) {
        self.counts[kind as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// How many of each kind there were.
    pub fn counts(&self) -> [u64; ErrorKind::COUNT] {
        self.counts
            .each_ref()
            .map(|count| count.load(Ordering::Relaxed))
    }

    /// How many of each kind there were, as JSON.
    pub fn to_json(&self) -> Value {
        let named = ErrorKind::NAMES.into_iter().zip(self.counts());
        named
            .map(|(name, count)| (name.to_owned(), json!(count)))
            .collect::<serde_json::Map<_, _>>()
            .into()
    }

    /// The files that could not be read since the mount began.
    pub fn damaged(&self) -> Vec<Damaged> {
        let damaged = self.damaged.lock().unwrap_or_else(PoisonError::into_inner);
        damaged.clone()
    }

    /// The same, by path where that is known.
    pub fn damaged_files(&self, volume: &Volume) -> Vec<Value> {
        // Looking for a path reads, which may fail in its turn.
        let told = self.damaged().into_iter().map(|file| {
            let path = volume.path_of(Ino(file.ino())).ok().flatten();
            let path = path.map(|path| shown_path(Path::new(OsStr::from_bytes(&path))));
            json!({
                "path": path,
                "inode": file.ino(),
                "since": file.since(),
                "reason": file.reason(),
            })
        });
        told.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_counted_by_kind_and_counted_on() {
        let first = Errors::default();
        first.count(Ino(33), &Error::NotFound);
        first.count(Ino(33), &Error::NoSpace);
        first.count(Ino(33), &Error::WouldWait);
        let second = Errors::counting_on(first.counts(), first.damaged());
        second.count(Ino(33), &Error::NoSpace);
        second.count_kind(ErrorKind::Lost);
        let told = second.to_json();
        assert_eq!(
            (&told["full"], &told["refused"], &told["lost"]),
            (&json!(2), &json!(1), &json!(1))
        );
        assert_eq!(told["device"], 0);
        assert_eq!(ErrorKind::NAMES[ErrorKind::Refused as usize], "refused");
    }
}
