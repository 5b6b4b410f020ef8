//! A request, from the kernel's bytes to a typed operation.
//!
//! The bytes are treated as hostile, although the kernel writes them: every
//! length is checked before it is used, and whatever does not fit is EINVAL.
//! Names and data stay where they are and are borrowed.

mod args;
mod decode;

use zerocopy::FromBytes;

use crate::wire::header::{InHeader, UNIQUE_RESEND};
use crate::wire::input::{IoctlIn, WriteIn};
use crate::wire::opcode;
use crate::{
    Caller, CopyEnd, FallocateMode, IoctlCall, NewNode, NodeId, OpenFlags, ReadCall, RenameFlags,
    Request, SeekWhence, SetAttr, SetXattrFlags, WriteFlags,
};

pub(crate) use decode::decode;

/// A request as a transport received it, its header checked and its arguments
/// not yet looked at.
#[derive(Clone, Copy, Debug)]
pub struct RawRequest<'a> {
    header: InHeader,
    /// Holds the fixed-size argument, if the operation has one.
    fixed: &'a [u8],
    /// Names and data, when they do not follow the fixed-size argument.
    payload: Option<&'a [u8]>,
}

/// The bytes are not a request, so there is nobody to answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("what was read is not a FUSE request")]
pub struct NotARequest;

impl<'a> RawRequest<'a> {
    /// A request in one piece, as `/dev/fuse` gives it.
    ///
    /// # Errors
    ///
    /// If there is no whole header, or its length is not that of `bytes`.
    pub fn contiguous(bytes: &'a [u8]) -> Result<Self, NotARequest> {
        let (header, args) = InHeader::read_from_prefix(bytes).map_err(|_| NotARequest)?;
        let args = without_extensions(&header, args)?;
        if usize::try_from(header.len) != Ok(bytes.len()) {
            return Err(NotARequest);
        }
        Ok(Self {
            header,
            fixed: args,
            payload: None,
        })
    }

    /// A request whose header, fixed-size argument and payload lie apart, as a
    /// ring of fixed buffers gives it. `fixed` may be longer than the argument.
    ///
    /// # Errors
    ///
    /// If there is no whole header.
    pub fn split(header: &[u8], fixed: &'a [u8], payload: &'a [u8]) -> Result<Self, NotARequest> {
        let (header, _) = InHeader::read_from_prefix(header).map_err(|_| NotARequest)?;
        let payload = without_extensions(&header, payload)?;
        Ok(Self {
            header,
            fixed,
            payload: Some(payload),
        })
    }

    /// The number that ties the reply to the request.
    #[must_use]
    pub fn unique(&self) -> u64 {
        self.header.unique
    }

    /// The number of the operation.
    #[must_use]
    pub fn opcode(&self) -> u32 {
        self.header.opcode
    }

    /// The inode it is about.
    #[must_use]
    pub fn node(&self) -> NodeId {
        NodeId(self.header.nodeid)
    }

    /// Who asks.
    #[must_use]
    pub fn caller(&self) -> Caller {
        Caller {
            uid: self.header.uid,
            gid: self.header.gid,
            pid: self.header.pid,
            request: Request {
                unique: self.header.unique & !UNIQUE_RESEND,
                is_resent: self.header.unique & UNIQUE_RESEND != 0,
            },
        }
    }

    /// Length of the content that a write brings along, in bytes.
    pub(crate) fn data_len(&self) -> u64 {
        let around = size_of::<InHeader>() + size_of::<WriteIn>();
        u64::from(self.header.len).saturating_sub(around as u64)
    }

    /// Whether it waits for a device, or takes long, as a rule.
    pub(crate) fn waits(&self) -> bool {
        matches!(
            self.header.opcode,
            opcode::FSYNC
                | opcode::FSYNCDIR
                | opcode::SYNCFS
                | opcode::FALLOCATE
                | opcode::COPY_FILE_RANGE
                | opcode::COPY_FILE_RANGE_64
                | opcode::LSEEK
                | opcode::DESTROY
        ) || self.header.opcode == opcode::IOCTL && !self.is_plain_ioctl()
    }

    /// Whether it is an ioctl(2) that passes nothing in or out. Programs ask so of each file that they open whether it is a
    /// terminal.
    fn is_plain_ioctl(&self) -> bool {
        IoctlIn::read_from_prefix(self.fixed)
            .is_ok_and(|(call, _)| call.in_size == 0 && call.out_size == 0)
    }

    /// Whether nothing in the kernel stays locked meanwhile that it needs to forget what it has cached. Reads and writes
    /// lock pages.
    pub(crate) fn can_be_put_off(&self) -> bool {
        let locks = matches!(
            self.header.opcode,
            opcode::READ | opcode::WRITE | opcode::READLINK
        );
        let is_general = matches!(self.header.opcode, opcode::STATFS | opcode::INIT);
        !locks && !is_general && self.wants_reply()
    }

    /// Whether it changes what is in the file system.
    pub(crate) fn changes(&self) -> bool {
        !matches!(
            self.header.opcode,
            opcode::LOOKUP
                | opcode::GETATTR
                | opcode::STATX
                | opcode::READLINK
                | opcode::OPEN
                | opcode::READ
                | opcode::STATFS
                | opcode::RELEASE
                | opcode::GETXATTR
                | opcode::LISTXATTR
                | opcode::FLUSH
                | opcode::OPENDIR
                | opcode::READDIR
                | opcode::READDIRPLUS
                | opcode::RELEASEDIR
                | opcode::ACCESS
        )
    }

    /// Whether the kernel waits for an answer.
    #[must_use]
    pub fn wants_reply(&self) -> bool {
        !matches!(
            self.header.opcode,
            opcode::FORGET | opcode::BATCH_FORGET | opcode::INTERRUPT
        )
    }
}

/// Cuts off the extensions (security context, supplementary groups) that a
/// request may end with: none is asked for, so none is understood.
fn without_extensions<'a>(header: &InHeader, bytes: &'a [u8]) -> Result<&'a [u8], NotARequest> {
    let extensions = usize::from(header.total_extlen) * 8;
    let kept = bytes.len().checked_sub(extensions).ok_or(NotARequest)?;
    Ok(&bytes[..kept])
}

/// What the kernel offers when the connection starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct InitOffer {
    pub(crate) major: u32,
    pub(crate) minor: u32,
    pub(crate) flags: u64,
}

/// The counts of a BATCH_FORGET.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ForgetList<'a>(&'a [u8]);

impl ForgetList<'_> {
    /// Node and number of lookups to take back, one by one.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (NodeId, u64)> + '_ {
        use crate::wire::input::ForgetOne;
        self.0
            .chunks_exact(size_of::<ForgetOne>())
            .filter_map(|bytes| ForgetOne::read_from_bytes(bytes).ok())
            .map(|one| (NodeId(one.nodeid), one.nlookup))
    }
}

/// A decoded operation. The inode it is about, or the directory, is in the
/// header.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Operation<'a> {
    Name(NameOperation<'a>),
    Attributes(AttributesOperation<'a>),
    Handle(HandleOperation),
    Content(ContentOperation<'a>),
    Forget {
        count: u64,
    },
    BatchForget(ForgetList<'a>),
    Statfs,
    Init(InitOffer),
    Interrupt,
    Destroy,
    SyncFs,
    /// Nothing this crate knows.
    Unknown,
}

/// What makes, finds or changes a name in a directory.
#[derive(Clone, Copy, Debug)]
pub(crate) enum NameOperation<'a> {
    Lookup {
        name: &'a [u8],
    },
    Create {
        name: &'a [u8],
        new: NewNode,
        flags: OpenFlags,
    },
    Tmpfile {
        new: NewNode,
        flags: OpenFlags,
    },
    Mknod {
        name: &'a [u8],
        new: NewNode,
        rdev: u32,
    },
    Mkdir {
        name: &'a [u8],
        new: NewNode,
    },
    Symlink {
        name: &'a [u8],
        target: &'a [u8],
    },
    Link {
        name: &'a [u8],
        target: NodeId,
    },
    Unlink {
        name: &'a [u8],
    },
    Rmdir {
        name: &'a [u8],
    },
    Rename {
        name: &'a [u8],
        new_parent: NodeId,
        new_name: &'a [u8],
        flags: RenameFlags,
    },
}

/// What looks at an inode, or changes it apart from its content.
#[derive(Clone, Copy, Debug)]
pub(crate) enum AttributesOperation<'a> {
    GetAttr {
        fh: Option<u64>,
    },
    Statx {
        fh: Option<u64>,
    },
    SetAttr(SetAttr),
    Access {
        mask: u32,
    },
    SetXattr {
        name: &'a [u8],
        value: &'a [u8],
        flags: SetXattrFlags,
    },
    GetXattr {
        name: &'a [u8],
        size: u32,
    },
    ListXattr {
        size: u32,
    },
    RemoveXattr {
        name: &'a [u8],
    },
    Ioctl {
        fh: u64,
        call: IoctlCall<'a>,
    },
}

/// What opens a file or a directory, lets go of it, or makes it durable.
#[derive(Clone, Copy, Debug)]
pub(crate) enum HandleOperation {
    Open { flags: OpenFlags },
    OpenDir { flags: OpenFlags },
    Flush { fh: u64 },
    Release { fh: u64, flags: OpenFlags },
    ReleaseDir { fh: u64, flags: OpenFlags },
    Fsync { fh: u64, datasync: bool },
    FsyncDir { fh: u64, datasync: bool },
}

/// What reads or changes the content of a file, a directory or a symbolic link.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ContentOperation<'a> {
    ReadLink,
    Read(ReadCall),
    ReadDir(ReadCall),
    ReadDirPlus(ReadCall),
    Write {
        fh: u64,
        offset: u64,
        data: &'a [u8],
        flags: WriteFlags,
    },
    Fallocate {
        fh: u64,
        offset: u64,
        length: u64,
        mode: FallocateMode,
    },
    Lseek {
        fh: u64,
        offset: u64,
        whence: SeekWhence,
    },
    CopyFileRange {
        from: CopyEnd,
        to: CopyEnd,
        length: u64,
        /// The reply has room for a 64-bit count.
        wide: bool,
    },
}

#[cfg(test)]
pub(crate) mod build;
#[cfg(test)]
mod tests;
