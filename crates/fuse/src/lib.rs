//! A thin layer over the kernel's FUSE protocol: wire format, one dispatcher,
//! transports, and mounting. It knows nothing of any particular file system.
//!
//! From top to bottom:
//!
//! - [`Filesystem`] is what a file system implements; [`Session`] serves a
//!   mount with one.
//! - [`Dispatcher`] and its [`Worker`]s, one a thread: from a [`RawRequest`] to a
//!   [`Reply`]. They know no transport.
//! - [`Transport`] and [`Channel`]: where requests come from. [`DevFuse`] reads
//!   `/dev/fuse`, with a descriptor for each thread; [`uring`] has a queue for
//!   each processor.
//! - [`Notifier`]: what the kernel is told without having asked.
//! - [`mount()`], [`unmount`], [`find_mount`] and friends: the mount itself.
//!
//! A request is carried out by the thread that received it: waking another
//! thread costs more than most requests do. Once the buffers have grown, the
//! layer allocates nothing for a request. Only when all threads but one wait,
//! for a device most likely, does the last one hand requests over, so that
//! statfs is answered all the same.

#![cfg_attr(not(test), deny(clippy::too_many_lines))]
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

mod buffer;
mod channel;
mod devfuse;
mod dispatch;
mod encode;
mod error;
mod filesystem;
mod init;
mod mount;
mod notify;
mod reply;
mod request;
mod session;
mod tally;
mod types;
pub mod uring;
#[allow(
    dead_code,
    reason = "structures and flags follow the kernel's in full, used or not"
)]
mod wire;

pub use channel::{Channel, Transport};
pub use devfuse::DevFuse;
pub use dispatch::{Dispatcher, Outcome, Worker};
pub use error::Error;
pub use filesystem::Filesystem;
pub use init::{Capabilities, Config, Negotiated, ReadDirPlus};
pub use mount::{
    BlockDevice, MountEntry, MountFlags, MountOptions, Mounted, detach, find_mount, is_dead, mount,
    mount_again, mounts, mounts_of, remount, unmount,
};
pub use notify::Notifier;
pub use reply::{ByteSink, DirEntry, DirPlusSink, DirSink, ReadReply, Reply};
pub use request::{NotARequest, RawRequest};
/// The error number that answers a request.
pub use rustix::io::Errno;
pub use session::{Hold, Session};
pub use tally::{Asked, Class, Counts, Tallies};
pub use types::{
    AttrReply, Caller, CopyEnd, EntryReply, FallocateMode, FileAttr, FileKind, IoctlCall, NewNode,
    NodeId, OpenFlags, OpenReply, OpenReplyFlags, ReadCall, RenameFlags, Request, SeekWhence,
    SetAttr, SetXattrFlags, SetXattrMode, StatfsReply, StatxReply, TimeOrNow, Timestamp,
    WriteFlags,
};
