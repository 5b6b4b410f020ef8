//! What went with daemons that died. Their supervisor writes it down beside the mount, and `unmount` tells it.

use std::fs;
use std::path::PathBuf;

use loamfs_console::size::{count, human};
use loamfs_fuse::MountEntry;
use serde::{Deserialize, Serialize};

use super::runtime;

/// What was not durable when a daemon died.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lost {
    /// Files and directories of which changes may be lost: all that were not known to be durable.
    pub files: u64,
    /// What waited to be written at most since all was durable, in bytes.
    pub bytes: u64,
    /// Whether another daemon was to go on.
    pub is_followed: bool,
}

impl Lost {
    /// What is lost, for people; nothing if nothing is.
    pub fn words(&self) -> Option<String> {
        let files = (self.files > 0).then(|| {
            let files = count(self.files, "file or directory", "files and directories");
            match self.bytes {
                0 => files,
                bytes => format!("{files} (some {})", human(bytes)),
            }
        })?;
        Some(format!(
            "changes of up to {files} that were not synced are lost"
        ))
    }

    /// Writes it down for the mount of this device number.
    pub fn note(&self, device: (u32, u32)) {
        let written = place(device).map(|path| {
            let text = serde_json::to_string(self).unwrap_or_default();
            fs::write(path, text)
        });
        if let Some(Err(error)) = written {
            tracing::warn!("what was lost cannot be written down: {error}");
        }
    }

    /// What was written down of a mount, if a daemon of it died.
    pub fn of(entry: &MountEntry) -> Option<Self> {
        let text = fs::read_to_string(place(entry.device)?).ok()?;
        serde_json::from_str(&text).ok()
    }

    /// Takes away what was written down of the mount of this device number.
    pub fn forget(device: (u32, u32)) {
        // Mostly there is nothing.
        let _ = place(device).map(fs::remove_file);
    }
}

fn place((major, minor): (u32, u32)) -> Option<PathBuf> {
    Some(runtime::own()?.join(format!("{major}-{minor}.lost")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_lost_is_told_in_the_right_number() {
        assert_eq!(Lost::default().words(), None);
        let lost = |files, bytes| {
            Lost {
                files,
                bytes,
                is_followed: false,
            }
            .words()
            .unwrap()
        };
        assert_eq!(
            lost(1, 0),
            "changes of up to 1 file or directory that were not synced are lost"
        );
        assert!(lost(2, 1536).contains("2 files and directories (some 1.5 KiB) that"));
    }
}
