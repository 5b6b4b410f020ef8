//! Who does something: the kernel asks more for some than for others.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;
use std::thread;

use rustix::process::{Gid, Uid};
use rustix::thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid};

use crate::Error;

/// Nobody in particular.
const STRANGER: u32 = 65_534;

/// Who does something in a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Person {
    /// Root, whose directory it is.
    Root,
    /// Somebody else, whose directory it is.
    Owner,
    /// Somebody else in a directory of root's into which all may write.
    Guest,
}

impl Person {
    /// All.
    pub const ALL: [Person; 3] = [Person::Root, Person::Owner, Person::Guest];

    /// What they are called.
    pub const fn name(self) -> &'static str {
        match self {
            Person::Root => "root",
            Person::Owner => "owner",
            Person::Guest => "guest",
        }
    }

    /// Makes a directory theirs, or lets them in.
    pub fn prepare(self, directory: &Path) -> Result<(), Error> {
        let done = match self {
            Person::Root => Ok(()),
            Person::Owner => chown(directory, Some(STRANGER), Some(STRANGER)),
            Person::Guest => fs::set_permissions(directory, Permissions::from_mode(0o777)),
        };
        done.map_err(Error::at("preparing", directory))
    }

    /// Has them do something.
    pub fn act(self, what: impl FnOnce() -> io::Result<()> + Send) -> Result<(), Error> {
        // Only a thread changes who it is, which ends afterwards.
        let work = || {
            if self != Person::Root {
                become_stranger()?;
            }
            what()
        };
        let done = thread::scope(|scope| scope.spawn(work).join());
        let failed = |source| Error::Io {
            what: format!("working as {}", self.name()),
            source,
        };
        done.unwrap_or_else(|_| Err(io::Error::other("it broke off")))
            .map_err(failed)
    }
}

fn become_stranger() -> io::Result<()> {
    let (uid, gid) = (Uid::from_raw(STRANGER), Gid::from_raw(STRANGER));
    set_thread_groups(&[])?;
    set_thread_res_gid(gid, gid, gid)?;
    Ok(set_thread_res_uid(uid, uid, uid)?)
}
