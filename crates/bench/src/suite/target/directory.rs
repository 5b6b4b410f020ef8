//! A new directory on a file system that is mounted already. It cannot be mounted anew, and nobody traces it: as root
//! caches are dropped where a remount would have emptied them, else they stay warm.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::{Drops, Seen, Target};
use crate::Error;
use crate::cleanup::{Guard, later};
use crate::lab::{self, Mount, drop_caches};
use crate::suite::files::{Files, MountedFiles};

/// A new directory in one that is somebody's own, removed afterwards.
pub struct InDirectory {
    files: MountedFiles,
    mount: Mount,
    loamfs: PathBuf,
    drops: Drops,
    _remove: Guard,
}

impl InDirectory {
    /// One in `directory`; `loamfs` is the program that speaks to a daemon of LoamFS's.
    ///
    /// # Errors
    /// As the system says.
    pub fn new(directory: &Path, loamfs: &Path) -> Result<InDirectory, Error> {
        let mount = Mount::of(directory)?;
        let name = format!("loamfs-bench-{}", std::process::id());
        let root = mount.directory.join(name);
        fs::create_dir(&root).map_err(Error::at("making", &root))?;
        let gone = root.clone();
        Ok(InDirectory {
            files: MountedFiles::new(root),
            mount,
            loamfs: loamfs.to_owned(),
            drops: Drops::new()?,
            _remove: later(move || remove(&gone)),
        })
    }

    /// Has LoamFS's daemon do something; nothing for others.
    fn tell(&self, command: &str) -> Result<(), Error> {
        if self.mount.is_loamfs() {
            let mut loamfs = Command::new(&self.loamfs);
            lab::run(loamfs.arg(command).arg(&self.mount.mountpoint))?;
        }
        Ok(())
    }
}

/// Whether this process may drop caches, and tell any daemon what to do.
fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Removes a directory in which somebody may still be at work: under another name nobody finds it.
fn remove(path: &Path) {
    let aside = path.with_extension("gone");
    let path = match fs::rename(path, &aside) {
        Ok(()) => &aside,
        Err(_) => path,
    };
    // What was under way may still have made something.
    for _ in 0..3 {
        if fs::remove_dir_all(path).is_ok() {
            return;
        }
    }
}

impl Target for InDirectory {
    fn files(&self) -> &dyn Files {
        &self.files
    }

    fn root(&self) -> Option<&Path> {
        Some(self.files.root())
    }

    fn remount(&mut self) -> Result<(), Error> {
        self.files.sync()?;
        self.drop_caches()
    }

    fn mounts_anew(&self) -> bool {
        false
    }

    /// There is none: what serves the directory is not ours to bound.
    fn bound_memory(&mut self, _: Option<u64>) -> Result<bool, Error> {
        self.remount()?;
        Ok(false)
    }

    fn drop_caches(&mut self) -> Result<(), Error> {
        if !is_root() {
            return Ok(());
        }
        self.drops.count();
        if self.mount.is_loamfs() {
            self.tell("drop-caches")
        } else {
            drop_caches()
        }
    }

    fn settle(&mut self) -> Result<(), Error> {
        if is_root() {
            self.tell("settle")?;
        }
        self.files.sync()
    }

    fn data(&self) -> Result<Option<(u64, u64)>, Error> {
        Ok(None)
    }

    fn unmount(&mut self) -> Result<(), Error> {
        self.files.sync()
    }

    fn seen(self: Box<Self>) -> Result<Seen, Error> {
        Ok(Seen {
            disturbed: self.drops.disturbed()?,
            ..Seen::default()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::suite::stage::{End, Stage};

    /// Caches are not dropped by these phases: others may be measuring on this machine.
    #[test]
    fn phases_are_timed_and_the_directory_goes_in_the_end() {
        let place = tempfile::tempdir().unwrap();
        fs::write(place.path().join("kept"), b"somebody's").unwrap();
        let mut target = InDirectory::new(place.path(), Path::new("loamfs")).unwrap();
        assert!(target.unmount().is_ok());
        let mut stage = Stage::mounted(target);
        stage
            .phase("make", End::Sync, |files, beat| {
                files.make_directory(Path::new("d"))?;
                files.create(Path::new("d/f"), b"abc")?;
                assert_eq!(files.size(Path::new("d/f"))?, 3);
                beat.tick()
            })
            .unwrap();
        let outcome = stage.finish().unwrap();
        let names = outcome.trace.phases.iter().map(|phase| &phase.name);
        assert_eq!(names.collect::<Vec<_>>(), ["make", "setup-unmount"]);
        assert_eq!(outcome.seconds.len(), 1);
        assert!(outcome.trace.requests.is_empty());
        let left: Vec<_> = fs::read_dir(place.path()).unwrap().flatten().collect();
        assert_eq!(left.len(), 1, "{left:?}");
    }

    #[test]
    fn what_is_at_work_cannot_keep_the_directory() {
        let place = tempfile::tempdir().unwrap();
        let root = place.path().join("work");
        fs::create_dir_all(root.join("a/b")).unwrap();
        remove(&root);
        assert!(fs::write(root.join("late"), b"x").is_err());
        assert_eq!(fs::read_dir(place.path()).unwrap().count(), 0);
    }
}
