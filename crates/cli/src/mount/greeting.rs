//! What a mount says when it is ready.

use std::path::PathBuf;
use std::time::Duration;

use loamfs_console::size::{count, human};
use loamfs_device::Counters;
use loamfs_fs::Loss;
use loamfs_fuse::MountEntry;
use serde_json::json;

use super::spec::Spec;
use crate::report::{Identity, requests_json};
use crate::text::{shown_path, wrapped};

/// How a volume was mounted, and what that took.
pub struct Greeting<'a> {
    /// What was asked for.
    pub spec: &'a Spec,
    /// Who the volume is.
    pub identity: &'a Identity,
    /// The mount, as the kernel has it.
    pub entry: Option<&'a MountEntry>,
    /// The loop device of an image file.
    pub loop_path: Option<PathBuf>,
    /// Why it is a plain FUSE mount, if that is worth saying.
    pub plain_because: Option<&'a str>,
    /// What rot took from the log, if that is why the mount is read-only.
    pub loss: Option<Loss>,
    /// The numbers of devices that are missing.
    pub missing: &'a [u32],
    /// How long opening the volume took.
    pub time: Duration,
    /// The requests that it took.
    pub counters: Counters,
}

impl Greeting<'_> {
    /// As it was asked for: for people, or JSON.
    pub fn text(&self) -> String {
        if self.spec.json {
            self.json()
        } else {
            self.sentences()
        }
    }

    fn sentences(&self) -> String {
        let mut device = shown_path(&self.spec.device);
        if let Some(path) = &self.loop_path {
            device.push_str(&format!(" ({})", shown_path(path)));
        }
        let total = self.counters.total();
        let first = format!(
            "{device} is mounted on {}",
            shown_path(&self.spec.mountpoint)
        );
        let mut text = format!(
            "{}\nopening it took {:.3} s, {} of {} and {} of {}\n",
            wrapped(&first, 2),
            self.time.as_secs_f64(),
            count(total.reads, "read", "reads"),
            human(total.read_bytes),
            count(total.writes, "write", "writes"),
            human(total.write_bytes),
        );
        if let Some(because) = self.plain_because {
            let told = format!(
                "only as a plain FUSE mount ({because}): sync(1) does not reach it, so unmount it with \
                 `loamfs unmount`, and use fsync for what must not be lost"
            );
            text.push_str(&(wrapped(&told, 0) + "\n"));
        }
        if let Some(loss) = &self.loss {
            text.push_str(&format!("it is read-only: {loss}\n"));
        }
        for device in self.missing {
            text.push_str(&format!(
                "device {device} is missing: what stands there cannot be read\n"
            ));
        }
        text
    }

    fn json(&self) -> String {
        let value = json!({
            "mounted": true,
            "device": self.spec.device.to_string_lossy(),
            "loop": self.loop_path.as_ref().map(|path| path.to_string_lossy()),
            "mountpoint": self.spec.mountpoint.to_string_lossy(),
            "type": self.entry.map(|entry| entry.fstype.to_string_lossy()),
            "plain_because": self.plain_because,
            "read_only": self.spec.options.is_read_only(),
            "read_only_because": self.loss.map(|loss| loss.to_string()),
            "missing_devices": self.missing,
            "daemon": std::process::id(),
            "volume": self.identity.to_json(),
            "opening": {
                "seconds": self.time.as_secs_f64(),
                "requests": requests_json(&self.counters),
            },
        });
        format!("{value:#}\n")
    }
}
