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
#[derive(Clone, Debug, Default, PartialEq, Eq)]
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
    /// Refuse writes.
    pub read_only: bool,
    /// Ignore set-user-id and set-group-id.
    pub nosuid: bool,
    /// Ignore device nodes.
    pub nodev: bool,
    /// Refuse to execute programs.
    pub noexec: bool,
    /// Follow no symbolic link on it.
    pub nosymfollow: bool,
    /// What the mount table shows of access times; the kernel leaves them to
    /// the file system. Without any of these it shows `relatime`.
    pub noatime: bool,
    /// Likewise.
    pub strictatime: bool,
    /// Likewise, of directories.
    pub nodiratime: bool,
    /// Write everything at once.
    pub synchronous: bool,
    /// Write changes of directories at once.
    pub dirsync: bool,
    /// Largest read, in bytes.
    pub max_read: Option<u32>,
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

    /// The flags of mount(2) that each view of a file system has for itself.
    pub(super) fn view_flags(&self) -> MountFlags {
        let mut flags = MountFlags::empty();
        flags.set(MountFlags::RDONLY, self.read_only);
        flags.set(MountFlags::NOSUID, self.nosuid);
        flags.set(MountFlags::NODEV, self.nodev);
        flags.set(MountFlags::NOEXEC, self.noexec);
        flags.set(MountFlags::NOSYMFOLLOW, self.nosymfollow);
        flags
    }

    /// The flags of mount(2).
    pub(super) fn flags(&self) -> MountFlags {
        let mut flags = self.view_flags();
        flags.set(MountFlags::NOATIME, self.noatime);
        flags.set(MountFlags::STRICTATIME, self.strictatime);
        flags.set(MountFlags::NODIRATIME, self.nodiratime);
        flags.set(MountFlags::SYNCHRONOUS, self.synchronous);
        flags.set(MountFlags::DIRSYNC, self.dirsync);
        flags
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
        [
            (self.read_only, "ro"),
            (self.nosuid, "nosuid"),
            (self.nodev, "nodev"),
            (self.noexec, "noexec"),
            (self.nosymfollow, "nosymfollow"),
            (self.noatime, "noatime"),
            (self.synchronous, "sync"),
            (self.dirsync, "dirsync"),
        ]
        .into_iter()
        .filter_map(|(set, name)| set.then_some(name))
    }
}
