//! This machine, and this program on it.

use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

/// A machine, and the program that measures there.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// Version of the program.
    pub version: String,
    /// Kernel.
    pub kernel: String,
    /// Processors that the program may use.
    pub processors: usize,
}

impl Machine {
    /// This one.
    pub fn here() -> Machine {
        let system = rustix::system::uname();
        Machine {
            version: env!("CARGO_PKG_VERSION").into(),
            kernel: system.release().to_string_lossy().into_owned(),
            processors: std::thread::available_parallelism().map_or(0, usize::from),
        }
    }
}

/// What the clock says: 0 where it is before 1970.
pub fn seconds_since_1970() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(0, |time| time.as_secs())
}

/// Whether this machine has a program of this name.
pub(crate) fn is_program(name: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|directory| directory.join(name).is_file())
}
