//! What can be said about a mount, and how it is said to the kernel and to
//! fusermount3.

use std::ffi::{OsStr, OsString};
use std::fmt::Write as _;
use std::path::PathBuf;

use rustix::mount::MountFlags;

/// The block device behind a mount of type fuseblk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockDevice {
    /// The device.
    pub path: PathBuf,
    /// Block size of the mount, in bytes: a power of two from 512 to the page
    /// size.
    pub block_size: u32,
}

/// How to mount. The default leaves everything off.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountOptions {
    /// What the mount table shows as the source, unless there is a block device.
    pub fsname: OsString,
    /// Name of the file system: the mount's type is `fuse.` or `fuseblk.` and
    /// this.
    pub subtype: OsString,
    /// Mount as fuseblk: the device is claimed, sync(2) arrives, umount waits.
    /// Needs root.
    pub block_device: Option<BlockDevice>,
    /// Let users other than the one who mounts use it.
    pub allow_other: bool,
    /// Let the kernel check permissions by mode, owner and group.
    pub default_permissions: bool,
    /// Switches of mount(2). What they say of access times the mount table
    /// shows; the kernel leaves these to the file system. Without any of them
    /// it shows `relatime`.
    pub flags: MountFlags,
    /// Largest read, in bytes.
    pub max_read: Option<u32>,
}

/// The flags of mount(2) that each view of a file system has for itself.
pub(super) const OF_VIEW: MountFlags = MountFlags::RDONLY
    .union(MountFlags::NOSUID)
    .union(MountFlags::NODEV)
    .union(MountFlags::NOEXEC)
    .union(MountFlags::NOSYMFOLLOW);

/// What fusermount3 calls the flags that it knows.
const NAMES: [(MountFlags, &str); 8] = [
    (MountFlags::RDONLY, "ro"),
    (MountFlags::NOSUID, "nosuid"),
    (MountFlags::NODEV, "nodev"),
    (MountFlags::NOEXEC, "noexec"),
    (MountFlags::NOSYMFOLLOW, "nosymfollow"),
    (MountFlags::NOATIME, "noatime"),
    (MountFlags::SYNCHRONOUS, "sync"),
    (MountFlags::DIRSYNC, "dirsync"),
];

impl Default for MountOptions {
    fn default() -> Self {
        Self {
            fsname: OsString::new(),
            subtype: OsString::new(),
            block_device: None,
            allow_other: false,
            default_permissions: false,
            flags: MountFlags::empty(),
            max_read: None,
        }
    }
}

impl MountOptions {
    /// The type of the mount.
    pub(super) fn fstype(&self) -> OsString {
        let mut fstype = OsString::from(match self.block_device {
            Some(_) => "fuseblk",
            None => "fuse",
        });
        if !self.subtype.is_empty() {
            fstype.push(".");
            fstype.push(&self.subtype);
        }
        fstype
    }

    /// What the mount table shows as the source.
    pub(super) fn source(&self) -> &OsStr {
        match &self.block_device {
            Some(device) => device.path.as_os_str(),
            None if !self.fsname.is_empty() => &self.fsname,
            None => &self.subtype,
        }
    }

    /// The options that FUSE itself reads, each with a comma in front.
    pub(super) fn fuse_options(&self) -> String {
        let mut text = String::new();
        if self.allow_other {
            text.push_str(",allow_other");
        }
        if self.default_permissions {
            text.push_str(",default_permissions");
        }
        if let Some(max_read) = self.max_read {
            // Writing to a String cannot fail.
            let _ = write!(text, ",max_read={max_read}");
        }
        text
    }

    /// The switches of mount(2) by name, for fusermount3, which does not know
    /// all of them.
    pub(super) fn flag_names(&self) -> impl Iterator<Item = &'static str> {
        let set = |(flag, _): &(MountFlags, _)| self.flags.contains(*flag);
        NAMES.into_iter().filter(set).map(|(_, name)| name)
    }
}
