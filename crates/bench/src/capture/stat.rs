//! A device's own counters: `/sys/dev/block/MAJOR:MINOR/stat`.

use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use crate::Error;
use crate::trace::SECTOR;

/// Requests that have completed, and their bytes; flushes apart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stat {
    /// Read requests.
    pub reads: u64,
    /// Their bytes.
    pub read_bytes: u64,
    /// Write requests.
    pub writes: u64,
    /// Their bytes.
    pub write_bytes: u64,
    /// Requests that gave sectors up.
    pub discards: u64,
    /// Their bytes.
    pub discard_bytes: u64,
}

/// How often, and after what pause, it is looked whether a device is at rest: some ten seconds.
const LOOKS: u32 = 1000;
const PAUSE: Duration = Duration::from_millis(10);

/// Bytes of a device.
///
/// # Errors
/// If there is no such device.
pub fn size(device: (u32, u32)) -> Result<u64, Error> {
    let (path, text) = file(device, "size")?;
    let sectors: Option<u64> = text.trim().parse().ok();
    let bytes = sectors.and_then(|sectors| sectors.checked_mul(SECTOR));
    bytes.ok_or_else(|| not_understood(&path, &text))
}

/// A file that says something of a device, and what it says.
fn file((major, minor): (u32, u32), name: &str) -> Result<(PathBuf, String), Error> {
    let path = PathBuf::from(format!("/sys/dev/block/{major}:{minor}/{name}"));
    let text = fs::read_to_string(&path).map_err(Error::at("reading", &path))?;
    Ok((path, text))
}

/// Requests that have begun and are not over.
fn under_way(text: &str) -> Option<u64> {
    text.split_whitespace().nth(8)?.parse().ok()
}

fn not_understood(path: &Path, text: &str) -> Error {
    Error::Trace(format!("{} is not understood: {text}", path.display()))
}

impl Stat {
    /// The counters once nothing is under way: they have a request when it is over, and a trace when it begins.
    ///
    /// # Errors
    /// If there is no such device, or it is never at rest.
    pub fn at_rest(device: (u32, u32)) -> Result<Stat, Error> {
        for _ in 0..LOOKS {
            let (path, text) = file(device, "stat")?;
            match under_way(&text) {
                Some(0) => return Stat::parse(&text).ok_or_else(|| not_understood(&path, &text)),
                Some(_) => thread::sleep(PAUSE),
                None => return Err(not_understood(&path, &text)),
            }
        }
        Err(Error::Trace(
            "requests are under way to the device all the time".into(),
        ))
    }

    fn parse(text: &str) -> Option<Stat> {
        let mut fields = text.split_whitespace().map(str::parse::<u64>);
        let mut next = |skip: usize| fields.nth(skip)?.ok();
        Some(Stat {
            reads: next(0)?,
            read_bytes: next(1)?.checked_mul(SECTOR)?,
            writes: next(1)?,
            write_bytes: next(1)?.checked_mul(SECTOR)?,
            discards: next(4)?,
            discard_bytes: next(1)?.checked_mul(SECTOR)?,
        })
    }

    /// What was added since `before`.
    pub const fn since(&self, before: &Stat) -> Stat {
        Stat {
            reads: self.reads.wrapping_sub(before.reads),
            read_bytes: self.read_bytes.wrapping_sub(before.read_bytes),
            writes: self.writes.wrapping_sub(before.writes),
            write_bytes: self.write_bytes.wrapping_sub(before.write_bytes),
            discards: self.discards.wrapping_sub(before.discards),
            discard_bytes: self.discard_bytes.wrapping_sub(before.discard_bytes),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fields_stand_where_the_kernel_puts_them() {
        let text = "  11  12  13  14  15  16  17  18  19  20  21  22  23  24  25  26  27\n";
        let stat = Stat {
            reads: 11,
            read_bytes: 13 * 512,
            writes: 15,
            write_bytes: 17 * 512,
            discards: 22,
            discard_bytes: 24 * 512,
        };
        assert_eq!(Stat::parse(text), Some(stat));
        assert_eq!(under_way(text), Some(19));
        assert_eq!(Stat::parse("1 2 3"), None);
        assert_eq!(under_way("1 2 3"), None);
    }
}
