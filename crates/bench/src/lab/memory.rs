//! A directory in memory, for images that no disk slows down.

use std::fs;
use std::path::{Path, PathBuf};

use rustix::mount::{MountFlags, UnmountFlags};

use crate::Error;
use crate::cleanup::{Guard, later};

/// A tmpfs of its own, which goes when this is dropped. Whatever is mounted in it goes first.
pub struct MemoryDirectory {
    path: PathBuf,
    undo: Guard,
}

/// What takes it away.
impl From<MemoryDirectory> for Guard {
    fn from(directory: MemoryDirectory) -> Guard {
        directory.undo
    }
}

impl MemoryDirectory {
    /// Mounts one on a new directory in `work`. It takes half of the machine's memory at most.
    ///
    /// # Errors
    /// Without root.
    pub fn new(work: &Path) -> Result<MemoryDirectory, Error> {
        let path = work.join(format!("loamfs-bench-{}-memory", std::process::id()));
        fs::create_dir_all(&path).map_err(Error::at("making", &path))?;
        let gone = path.clone();
        let undo = later(move || {
            if rustix::mount::unmount(&gone, UnmountFlags::empty()).is_err() {
                let _ = rustix::mount::unmount(&gone, UnmountFlags::DETACH);
            }
            let _ = fs::remove_dir(&gone);
        });
        rustix::mount::mount(
            "loamfs-bench",
            &path,
            "tmpfs",
            MountFlags::empty(),
            c"mode=755",
        )
        .map_err(|errno| Error::at("mounting on", &path)(errno.into()))?;
        Ok(MemoryDirectory { path, undo })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }
}
