//! Mounting, unmounting, and finding mounts.

mod direct;
mod helper;
mod info;
mod options;

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use rustix::fs::{AtFlags, CWD, StatxFlags, statx};
pub use rustix::mount::MountFlags;
use rustix::mount::UnmountFlags;
use rustix::process::geteuid;

use crate::{Errno, Error, devfuse};

pub use info::{MountEntry, mounts, mounts_of};
pub use options::{BlockDevice, MountOptions};

/// How often a server that may be dying is asked, and how long is waited between.
const CANCELLED_MAX: u32 = 200;
const CANCELLED_PAUSE: Duration = Duration::from_millis(10);

/// A mount and the connection that serves it. Dropping it detaches the mount
/// if it is still there, so that a daemon that fails does not leave a dead one.
pub struct Mounted {
    path: PathBuf,
    connection: Arc<OwnedFd>,
    /// Further descriptors of the connection, for threads that serve it.
    ends: Vec<Arc<OwnedFd>>,
    entry: Option<MountEntry>,
    detacher: Detacher,
}

/// Takes the mount on a path out of the tree, or says why it cannot.
type Detacher = Box<dyn Fn(&Path) -> Result<(), String> + Send + Sync>;

/// Mounts on `path`. As root by mount(2), else through fusermount3. The mount
/// is there when this returns, but whoever uses it waits until it is served.
///
/// # Errors
///
/// [`Error::Mount`], [`Error::Helper`] and others that say what was missing.
pub fn mount(path: &Path, options: &MountOptions) -> Result<Mounted, Error> {
    let path = fs::canonicalize(path).map_err(|source| Error::Mount {
        path: path.to_owned(),
        source,
    })?;
    let connection = if geteuid().is_root() {
        direct::mount(&path, options)?
    } else {
        helper::mount(&path, options)?
    };
    let entry = info::topmost(&path).unwrap_or_default();
    Ok(Mounted {
        path,
        connection: Arc::new(connection),
        ends: Vec::new(),
        entry,
        detacher: Box::new(|path| detach(path).map_err(|error| error.to_string())),
    })
}

impl Mounted {
    /// The mount point, without symbolic links.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The descriptor that carries the requests.
    #[must_use]
    pub fn connection(&self) -> &Arc<OwnedFd> {
        &self.connection
    }

    /// A mount whose server is gone, of which somebody kept the descriptors: the first is that which was mounted. `entry`
    /// is what the mount table has of it, if it is in the tree.
    #[must_use]
    pub fn taken_over(
        entry: Option<MountEntry>,
        connection: OwnedFd,
        ends: impl IntoIterator<Item = OwnedFd>,
    ) -> Self {
        Self {
            path: entry
                .as_ref()
                .map_or_else(PathBuf::new, |entry| entry.path.clone()),
            connection: Arc::new(connection),
            ends: ends.into_iter().map(Arc::new).collect(),
            entry,
            detacher: Box::new(|path| detach(path).map_err(|error| error.to_string())),
        }
    }

    /// Opens descriptors for threads until there are `count`, as far as the system gives them. What was read from one
    /// stays with it: whoever is to take the mount over needs all of them.
    pub fn open_ends(&mut self, count: usize) {
        while self.ends.len() < count {
            match devfuse::clone_of(&self.connection) {
                Ok(end) => self.ends.push(Arc::new(end)),
                // A thread without one shares the first.
                Err(errno) => {
                    tracing::debug!(%errno, "no descriptor of its own for a thread");
                    return;
                }
            }
        }
    }

    /// The descriptors that [`open_ends`](Self::open_ends) opened.
    #[must_use]
    pub fn ends(&self) -> &[Arc<OwnedFd>] {
        &self.ends
    }

    /// Lets the kernel read ahead up to `bytes` on this mount; the default is
    /// 128 KiB. [`Config::max_readahead`](crate::Config::max_readahead) is the
    /// other limit. Needs root.
    ///
    /// # Errors
    ///
    /// Whatever the system says to the write in `/sys/class/bdi`.
    pub fn set_read_ahead(&self, bytes: u32) -> io::Result<()> {
        let entry = self.entry.as_ref().ok_or(io::ErrorKind::NotFound)?;
        let (major, minor) = entry.device;
        let suffix = if entry.is_block() { "-fuseblk" } else { "" };
        fs::write(
            format!("/sys/class/bdi/{major}:{minor}{suffix}/read_ahead_kb"),
            (bytes / 1024).to_string(),
        )
    }

    /// Has somebody else take the mount away, for a daemon that has given up what that takes.
    #[must_use]
    pub fn detached_by(
        self,
        detacher: impl Fn(&Path) -> Result<(), String> + Send + Sync + 'static,
    ) -> Self {
        let mut mounted = self;
        mounted.detacher = Box::new(detacher);
        mounted
    }

    /// Takes the mount out of the tree at once, as [`detach`] does.
    pub(crate) fn detach(&self) -> Result<(), String> {
        (self.detacher)(&self.path)
    }

    /// Whether the mount is still there.
    #[must_use]
    pub fn is_mounted(&self) -> bool {
        let found = info::topmost(&self.path).unwrap_or_default();
        // A remount changes what else is said of it.
        let which = |entry: &MountEntry| (entry.id, entry.device);
        found.is_some() && found.as_ref().map(which) == self.entry.as_ref().map(which)
    }

    /// Unmounts, and keeps the connection until the daemon has ended.
    ///
    /// # Errors
    ///
    /// EBUSY while files on it are in use.
    pub fn unmount(&self) -> Result<(), Error> {
        unmount(&self.path)
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if self.is_mounted()
            && let Err(error) = self.detach()
        {
            tracing::warn!(%error, "a mount without a server is left behind");
        }
    }
}

/// Unmounts what is mounted on `path`.
///
/// # Errors
///
/// [`Error::Unmount`] or [`Error::Helper`], such as EBUSY while it is in use.
pub fn unmount(path: &Path) -> Result<(), Error> {
    unmount_with(path, UnmountFlags::NOFOLLOW)
}

/// Takes what is mounted on `path` out of the tree at once; it ends when the
/// last file on it is closed. The way to get rid of a dead mount.
///
/// # Errors
///
/// [`Error::Unmount`] or [`Error::Helper`].
pub fn detach(path: &Path) -> Result<(), Error> {
    unmount_with(path, UnmountFlags::NOFOLLOW | UnmountFlags::DETACH)
}

fn unmount_with(path: &Path, flags: UnmountFlags) -> Result<(), Error> {
    if !geteuid().is_root() {
        return helper::unmount(path, flags.contains(UnmountFlags::DETACH));
    }
    rustix::mount::unmount(path, flags).map_err(|errno| Error::Unmount {
        path: path.to_owned(),
        source: errno.into(),
    })
}

/// Changes the flags of a mount (read-only, nosuid, ...) to those in `options`,
/// as `mount -o remount` does; whatever else `options` holds stays as it was.
/// Needs root.
///
/// # Errors
///
/// [`Error::Mount`], such as EBUSY when files are open for writing.
pub fn remount(path: &Path, options: &MountOptions) -> Result<(), Error> {
    rustix::mount::mount_remount(path, options.flags, c"").map_err(|errno| Error::Mount {
        path: path.to_owned(),
        source: errno.into(),
    })
}

/// Shows what is mounted on `from` on `path` too. Of `options` only those count that each of the two has for itself:
/// read-only, nosuid, nodev, noexec, nosymfollow. Needs root.
///
/// # Errors
///
/// [`Error::Mount`].
pub fn mount_again(from: &Path, path: &Path, options: &MountOptions) -> Result<(), Error> {
    let failed = |errno: Errno| Error::Mount {
        path: path.to_owned(),
        source: errno.into(),
    };
    rustix::mount::mount_bind(from, path).map_err(failed)?;
    let flags = (options.flags & options::OF_VIEW) | MountFlags::BIND;
    rustix::mount::mount_remount(path, flags, c"").map_err(|errno| {
        // It would allow what was to be refused.
        let _ = detach(path);
        failed(errno)
    })
}

/// The topmost mount on exactly `path`, if it is a FUSE mount with this
/// subtype (`loamfs` in `fuse.loamfs` and `fuseblk.loamfs`). Works for a dead
/// mount too.
///
/// # Errors
///
/// If the mount table cannot be read, or the way to `path` does not exist.
pub fn find_mount(path: &Path, subtype: &OsStr) -> Result<Option<MountEntry>, Error> {
    let path = resolve(path).map_err(|source| Error::Path {
        path: path.to_owned(),
        source,
    })?;
    let entry = info::topmost(&path)?;
    Ok(entry.filter(|entry| entry.subtype() == Some(subtype)))
}

/// Whether what is mounted on `path` has lost its server. Waits for the
/// server's answer if there is one.
#[must_use]
pub fn is_dead(path: &Path) -> bool {
    // A plain stat may be answered from the kernel's cache, dead or not.
    let flags = AtFlags::STATX_FORCE_SYNC | AtFlags::NO_AUTOMOUNT;
    let ask = || statx(CWD, path, flags, StatxFlags::BASIC_STATS).map(drop);
    let mut answer = ask();
    // So ends what is on its way into a ring of a server that dies.
    for _ in 0..CANCELLED_MAX {
        if answer != Err(Errno::CANCELED) {
            break;
        }
        thread::sleep(CANCELLED_PAUSE);
        answer = ask();
    }
    answer.is_err_and(is_of_the_dead)
}

/// What the kernel answers for a server that is dead or dying.
fn is_of_the_dead(errno: Errno) -> bool {
    matches!(errno, Errno::NOTCONN | Errno::CONNABORTED | Errno::CANCELED)
}

/// As canonicalize, for a last component that may be a dead mount.
fn resolve(path: &Path) -> io::Result<PathBuf> {
    match fs::canonicalize(path) {
        Err(error) if Errno::from_io_error(&error).is_some_and(is_of_the_dead) => {}
        result => return result,
    }
    let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
    let parent = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    Ok(fs::canonicalize(parent)?.join(name))
}
