//! How requests travel between the kernel and the daemon.

use std::sync::OnceLock;

use loamfs_fuse::uring::{self, Rings, RingsError};
use serde_json::{Value, json};

use super::cache;
use super::options::{Options, Transport as Asked};
use crate::failure::{Failure, Kind};

/// At most this part of the cache goes to buffers for requests.
const CACHE_PART: usize = 4;

/// The rings of a mount to come, if it is to have any. To be set up before the daemon gives up what that takes.
///
/// # Errors
///
/// Why there are none, if they were asked for.
pub fn rings(options: &Options, is_supervised: bool) -> Result<Option<Rings>, Failure> {
    match options.daemon.transport.unwrap_or_default() {
        Asked::Dev => Ok(None),
        // A successor of a daemon that died could not have requests of rings sent again.
        Asked::Auto if is_supervised => Ok(None),
        Asked::Auto if uring::is_enabled() != Some(true) => Ok(None),
        Asked::Auto => Ok(set_up(options)
            .inspect_err(|error| tracing::info!("requests travel over /dev/fuse: {error}"))
            .ok()),
        Asked::Uring => {
            switch_on()?;
            set_up(options).map(Some).map_err(|error| {
                let hint = match error {
                    RingsError::Memory { .. } => "; give a larger cache=",
                    RingsError::System(_) => "; see /proc/sys/kernel/io_uring_disabled",
                };
                refused(&format!("{error}{hint}"))
            })
        }
    }
}

fn set_up(options: &Options) -> Result<Rings, RingsError> {
    let bytes = options.volume.cache_bytes();
    let least = usize::try_from(cache::MIN).unwrap_or(usize::MAX);
    Rings::set_up((bytes / CACHE_PART).min(bytes.saturating_sub(least)))
}

fn switch_on() -> Result<(), Failure> {
    uring::enable().map_err(|error| match error.kind() {
        std::io::ErrorKind::PermissionDenied => refused(
            "only root can switch it on, for the whole machine, in /sys/module/fuse/parameters/enable_uring",
        ),
        _ => refused("this kernel's FUSE has no io_uring, which came with Linux 6.14"),
    })
}

fn refused(because: &str) -> Failure {
    Failure::new(Kind::Io, format!("transport=uring: {because}"))
}

/// What came of it.
#[derive(Debug)]
pub struct Transport {
    /// Bytes of the buffers of rings.
    memory: usize,
    /// Rings, or nothing, is what was asked for.
    is_required: bool,
    /// Known once the kernel has taken the rings, or not.
    is_uring: OnceLock<bool>,
}

impl Transport {
    /// That of a mount which has these rings to begin with.
    pub fn new(options: &Options, rings: Option<&Rings>) -> Self {
        Self {
            memory: rings.map_or(0, Rings::memory),
            is_required: options.daemon.transport == Some(Asked::Uring),
            is_uring: match rings {
                Some(_) => OnceLock::new(),
                None => OnceLock::from(false),
            },
        }
    }

    /// Most memory that its buffers take, in bytes.
    pub fn memory(&self) -> usize {
        self.memory
    }

    /// Whether there must be rings.
    pub fn is_required(&self) -> bool {
        self.is_required
    }

    /// How requests travel from now on.
    pub fn decided(&self, by_rings: bool) {
        let _ = self.is_uring.set(by_rings);
    }

    /// As JSON. Waits until it is known: a mount that the kernel has just begun to serve may be asked before.
    pub fn to_json(&self) -> Value {
        let name = match self.is_uring.wait() {
            true => "uring",
            false => "dev",
        };
        json!({ "name": name, "buffer_bytes": self.memory })
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn who_asks_early_hears_what_is_decided_later() {
        let options = Options::default();
        assert_eq!(Transport::new(&options, None).to_json()["name"], "dev");
        // Rings cannot be set up everywhere.
        let transport = Transport {
            memory: 0,
            is_required: true,
            is_uring: OnceLock::new(),
        };
        thread::scope(|scope| {
            let asked = scope.spawn(|| transport.to_json());
            transport.decided(true);
            assert_eq!(asked.join().unwrap()["name"], "uring");
        });
    }
}
