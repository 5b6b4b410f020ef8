//! Options that say how the daemon serves a mount.

use std::path::PathBuf;

use super::super::words::Words;
use crate::members::Absent;

/// Most threads that serve requests.
pub(super) const THREADS_MAX: usize = 256;

/// How requests travel, as it was asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Transport {
    /// Through io_uring where the system lets it.
    #[default]
    Auto,
    /// Through io_uring, which is switched on for the machine if it is not.
    Uring,
    /// Over /dev/fuse.
    Dev,
}

impl Transport {
    /// All of them, by the words of the option.
    pub const WORDS: Words<Self> = Words(&[
        ("auto", Self::Auto),
        ("uring", Self::Uring),
        ("dev", Self::Dev),
    ]);
}

/// How a mount is served.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DaemonOptions {
    /// No fuseblk and no loop device, even as root.
    pub plain: bool,
    /// The daemon gives up nothing.
    pub unconfined: bool,
    /// No access lists.
    pub noacl: bool,
    /// No extended attributes at all.
    pub noxattr: bool,
    /// Threads that serve requests.
    pub threads: Option<usize>,
    /// How requests travel, if anything is said of that.
    pub transport: Option<Transport>,
    /// A daemon that dies is not replaced.
    pub no_restart: bool,
    /// What is run when something failed and the volume takes no changes any more.
    pub on_error: Option<PathBuf>,
    /// Where the daemon logs to.
    pub log: Option<PathBuf>,
    /// The other devices of a volume of several, as far as they were named.
    pub devices: Vec<PathBuf>,
    /// Devices may be missing.
    pub degraded: bool,
}

impl DaemonOptions {
    /// What becomes of a volume of which a device is missing.
    pub fn absent(&self) -> Absent {
        match self.degraded {
            true => Absent::Allowed,
            false => Absent::Refused,
        }
    }

    /// Those that no remount changes, with their values if they were given.
    pub(super) fn fixed(&self) -> impl Iterator<Item = (&'static str, Option<String>)> {
        let yes = |given: bool| given.then(|| true.to_string());
        let word = |transport| Transport::WORDS.word(transport).to_owned();
        let path = |path: &PathBuf| path.to_string_lossy().into_owned();
        let devices: Vec<String> = self.devices.iter().map(path).collect();
        [
            ("threads", self.threads.map(|count| count.to_string())),
            ("transport", self.transport.map(word)),
            ("log", self.log.as_ref().map(path)),
            ("on-error", self.on_error.as_ref().map(path)),
            ("device", (!devices.is_empty()).then(|| devices.join(" "))),
            ("noacl", yes(self.noacl)),
            ("noxattr", yes(self.noxattr)),
            ("plain", yes(self.plain)),
            ("unconfined", yes(self.unconfined)),
            ("degraded", yes(self.degraded)),
            ("restart", self.no_restart.then(|| "no".to_owned())),
        ]
        .into_iter()
    }
}
