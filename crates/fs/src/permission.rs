//! What modes, access lists and flags allow, and what becomes of them. Pure arithmetic: nothing here reads or writes a
//! volume, so that every rule can be tried by itself. Who may do what is decided by the kernel, which asks for the lists.

mod acl;

pub(crate) use acl::Acl;

use crate::error::Error;
use crate::types::{InodeFlags, SetAttr, SetTime};
use loamfs_format::inode::{flag, mode};

/// Runs as its owner.
const SET_UID: u32 = 0o4000;
/// Runs as its group; of a directory: hands its group down.
const SET_GID: u32 = 0o2000;
/// The group may execute it.
const GROUP_EXECUTES: u32 = 0o010;
/// All bits but the type.
pub(crate) const BITS: u32 = 0o7777;
/// Read, write and execute, for owner, group and others.
pub(crate) const ACCESS: u32 = 0o777;

/// The two attributes that are access lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AclKind {
    /// Who may do what with the inode.
    Access,
    /// What a directory gives to what is made in it.
    Default,
}

impl AclKind {
    /// The attribute's name.
    pub const fn name(self) -> &'static [u8] {
        match self {
            AclKind::Access => b"system.posix_acl_access",
            AclKind::Default => b"system.posix_acl_default",
        }
    }

    /// The list that an attribute of this name is.
    pub fn of(name: &[u8]) -> Option<AclKind> {
        [AclKind::Access, AclKind::Default]
            .into_iter()
            .find(|kind| kind.name() == name)
    }
}

/// A mode after a write, a truncate, or a change of the owner by somebody who may not keep these bits. Without the
/// group's execute bit set-group-id has another meaning, and stays.
pub(crate) fn without_privileges(mode: u32) -> u32 {
    let set_gid = if mode & GROUP_EXECUTES != 0 {
        SET_GID
    } else {
        0
    };
    mode & !(SET_UID | set_gid)
}

/// A mode, and the list beside it, after an access list was set; there is none where the mode says all of it.
pub(crate) fn set_access(mode: u32, acl: Acl, clear_sgid: bool) -> (u32, Option<Acl>) {
    let cleared = if clear_sgid { SET_GID } else { 0 };
    let mode = mode & !(ACCESS | cleared) | acl.mode();
    (mode, acl.is_extended().then_some(acl))
}

/// What a new inode starts with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Born {
    /// Type and permissions.
    pub mode: u32,
    /// Its group.
    pub gid: u32,
    /// Its access list.
    pub access: Option<Acl>,
    /// Its default list.
    pub default: Option<Acl>,
    /// Its flags and project.
    pub flags: InodeFlags,
}

/// What a directory says of what is made in it.
#[derive(Clone, Debug)]
pub(crate) struct Parent {
    pub mode: u32,
    pub gid: u32,
    pub flags: InodeFlags,
    /// Its default list.
    pub default: Option<Acl>,
}

/// What an inode of the mode `asked` for, type included, starts with. A default list stands in for the umask. Links
/// have no lists.
pub(crate) fn born(parent: Parent, asked: u32, umask: u32, gid: u32) -> Born {
    let (file_type, handed) = (asked & mode::TYPE, parent.mode & SET_GID);
    let is_dir = file_type == mode::DIRECTORY;
    let kept = if is_dir { handed } else { 0 };
    let asked = asked | kept;
    let gid = if handed != 0 { parent.gid } else { gid };
    let flags = inherited_flags(parent.flags, file_type);
    match parent.default.filter(|_| file_type != mode::SYMLINK) {
        None => Born {
            mode: asked & !(umask & ACCESS),
            gid,
            access: None,
            default: None,
            flags,
        },
        Some(default) => {
            let (bits, access) = default.clone().narrowed(asked);
            Born {
                mode: asked & !ACCESS | bits,
                gid,
                access,
                default: is_dir.then_some(default),
                flags,
            }
        }
    }
}

/// Flags and project of what is made in a directory.
fn inherited_flags(parent: InodeFlags, file_type: u32) -> InodeFlags {
    let project = if parent.bits & flag::PROJECT_INHERIT != 0 {
        parent.project
    } else {
        0
    };
    let handed = flag::NODUMP | flag::NOATIME | flag::PROJECT_INHERIT;
    InodeFlags {
        bits: flags_of(file_type, parent.bits & handed),
        project,
    }
}

/// Those of some flags that an inode of this type can have.
pub(crate) fn flags_of(mode_bits: u32, bits: u32) -> u32 {
    if mode_bits & mode::TYPE == mode::DIRECTORY {
        bits
    } else {
        bits & !flag::PROJECT_INHERIT
    }
}

/// Refuses what a flag of `refusing` forbids.
fn refuse(flags: InodeFlags, refusing: u32) -> Result<(), Error> {
    if flags.bits & refusing != 0 {
        return Err(Error::NotPermitted);
    }
    Ok(())
}

/// Whether an inode may change at all: a directory take in names, a file get space, times become now.
///
/// # Errors
/// [`Error::NotPermitted`], here and below.
pub(crate) fn may_grow(flags: InodeFlags) -> Result<(), Error> {
    refuse(flags, flag::IMMUTABLE)
}

/// Whether what an inode is or has may change in any way.
pub(crate) fn may_change(flags: InodeFlags) -> Result<(), Error> {
    refuse(flags, flag::IMMUTABLE | flag::APPEND)
}

/// Whether a file of `size` bytes may be written from `offset` on.
pub(crate) fn may_write(flags: InodeFlags, offset: u64, size: u64) -> Result<(), Error> {
    if offset < size {
        may_change(flags)
    } else {
        may_grow(flags)
    }
}

/// Whether a directory may lose a name of an inode, or have it lead elsewhere.
pub(crate) fn may_remove(dir: InodeFlags, inode: InodeFlags) -> Result<(), Error> {
    may_change(dir)?;
    may_change(inode)
}

/// Whether a directory may take in an inode that exists. One that hands its project down takes its own only.
///
/// # Errors
/// [`Error::NotPermitted`], and [`Error::CrossDevice`] for another project.
pub(crate) fn may_enter(dir: InodeFlags, inode: InodeFlags) -> Result<(), Error> {
    may_grow(dir)?;
    if dir.bits & flag::PROJECT_INHERIT != 0 && dir.project != inode.project {
        return Err(Error::CrossDevice);
    }
    Ok(())
}

/// Whether flags and project may become others. As long as an inode is to stay immutable its flags are too.
pub(crate) fn may_set_flags(from: InodeFlags, to: InodeFlags) -> Result<(), Error> {
    if from == to {
        return Ok(());
    }
    refuse(from, flag::IMMUTABLE & to.bits)
}

/// Whether an inode's attributes may be set so. Times may become now where only growing is allowed, that of the last change
/// by a request that asks for nothing else.
pub(crate) fn may_set(flags: InodeFlags, set: &SetAttr) -> Result<(), Error> {
    let chosen = |time| matches!(time, Some(SetTime::At(_)));
    let named = set.mode.is_some() || set.uid.is_some() || set.gid.is_some();
    if named || set.size.is_some() || chosen(set.atime) || chosen(set.mtime) {
        may_change(flags)
    } else {
        may_grow(flags)
    }
}

/// Whether a list of this kind can be given to an inode of this mode.
///
/// # Errors
/// [`Error::Unsupported`] for a link, [`Error::Denied`] for a default list of what is no directory.
pub(crate) fn may_have(kind: AclKind, mode_bits: u32) -> Result<(), Error> {
    match (kind, mode_bits & mode::TYPE) {
        (_, mode::SYMLINK) => Err(Error::Unsupported),
        (AclKind::Default, file_type) if file_type != mode::DIRECTORY => Err(Error::Denied),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests;
