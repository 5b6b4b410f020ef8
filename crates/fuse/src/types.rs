//! The vocabulary between the dispatcher and a
//! [`Filesystem`](crate::Filesystem).

mod attr;
mod flags;
mod reply;

pub use attr::{FileAttr, FileKind, SetAttr, TimeOrNow, Timestamp};
pub use flags::{
    FallocateMode, OpenFlags, OpenReplyFlags, RenameFlags, SeekWhence, SetXattrFlags, SetXattrMode,
    WriteFlags,
};
pub use reply::{AttrReply, EntryReply, OpenReply, StatfsReply, StatxReply};

/// The kernel's name for an inode that it looked up, as the file system gave
/// it in an [`EntryReply`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeId(pub u64);

impl NodeId {
    /// The root of the file system. It is known without a lookup.
    pub const ROOT: Self = Self(1);
    /// No inode: in an [`EntryReply`] it says that the name does not exist.
    pub const NONE: Self = Self(0);
}

/// Who asks. Of the supplementary groups the kernel would send one, with requests that make something, if it is also the
/// directory's (`FUSE_CREATE_SUPP_GROUP`). That is not asked for: the kernel has then decided already whether what is made
/// keeps set-group-id, which is all that the group is good for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caller {
    /// User id used for file access.
    pub uid: u32,
    /// Group id used for file access.
    pub gid: u32,
    /// Thread id, or 0 when the request has no caller (write-back, release).
    pub pid: u32,
    /// Which request it is.
    pub request: Request,
}

/// Which request it is, among those of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Its number.
    pub unique: u64,
    /// An earlier server had it and did not answer. What it asks for may have been done.
    pub is_resent: bool,
}

/// What a new inode should look like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewNode {
    /// Type and permission bits. The caller's umask is already applied, unless
    /// [`Config::dont_mask`](crate::Config::dont_mask) was granted.
    pub mode: u32,
    /// The caller's umask.
    pub umask: u32,
}

/// What is read of an open file or directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadCall {
    /// Its handle.
    pub fh: u64,
    /// Where to start: a byte of a file; of a directory 0, or the `next_offset` of the entry that was seen last.
    pub offset: u64,
    /// Most bytes of the answer.
    pub size: u32,
    /// As it was opened.
    pub flags: OpenFlags,
}

/// One direction of a copy inside the file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopyEnd {
    /// The file.
    pub node: NodeId,
    /// Its handle.
    pub fh: u64,
    /// Where the copy starts, in bytes.
    pub offset: u64,
}

/// An ioctl with its data already copied in by the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IoctlCall<'a> {
    /// The command, which also encodes direction and size.
    pub command: u32,
    /// The argument as the caller passed it; a pointer means nothing here.
    pub argument: u64,
    /// What the command passes in.
    pub input: &'a [u8],
    /// How many bytes the command may return.
    pub output_size: u32,
    /// The caller is a 32-bit program.
    pub compat: bool,
    /// The node is a directory.
    pub directory: bool,
}
