//! The interface that a file system implements.

use crate::{
    AttrReply, ByteSink, Caller, CopyEnd, DirPlusSink, DirSink, EntryReply, Errno, FallocateMode,
    IoctlCall, Negotiated, NewNode, NodeId, OpenFlags, OpenReply, ReadCall, ReadReply, RenameFlags,
    SeekWhence, SetAttr, SetXattrFlags, StatfsReply, StatxReply, WriteFlags,
};

/// A file system as the kernel sees it. Every method is called from several
/// threads at once and may block; the thread that brought a request also
/// carries it out.
///
/// A method that is left out answers ENOSYS. For the optional ones the kernel
/// remembers that and does without: see each method. A method that panics is
/// answered with EIO, and the connection goes on.
///
/// Names are single components, not empty, without `/` and zero bytes; their
/// length is not limited here.
#[expect(
    unused_variables,
    reason = "the parameters are named for those who implement the methods"
)]
pub trait Filesystem: Send + Sync {
    /// The connection starts. Nothing else is called before this returns. An
    /// error ends the mount.
    ///
    /// # Errors
    ///
    /// Whatever keeps the file system from starting.
    fn init(&self, negotiated: &Negotiated) -> Result<(), Errno> {
        Ok(())
    }

    /// Calls `request`, which calls methods below, none of which waits for a
    /// device or for others that do. Returns `false` if one would have had to:
    /// `request` is called again then, as a whole, on a thread that may wait.
    /// What must not happen twice has not happened by then. `changes` says
    /// whether it changes anything, were it only a time.
    fn without_waiting(&self, changes: bool, request: &mut dyn FnMut()) -> bool {
        request();
        true
    }

    /// Whether requests come through io_uring, and not over `/dev/fuse`. Called once of a session that has rings, before
    /// the first request after `init`, or when the connection ends without one.
    fn carried(&self, by_rings: bool) {}

    /// The connection ends: write back everything. Called once if `init`
    /// succeeded, when no other method runs; none is called afterwards. On a
    /// mount of type fuseblk, umount waits for this to return. Inodes that are
    /// still looked up and files that are still open are forgotten.
    fn destroy(&self) {}

    /// Looks up a name and counts a lookup of its inode. To let the kernel
    /// remember that the name does not exist, return
    /// [`EntryReply::negative`] instead of ENOENT.
    ///
    /// # Errors
    ///
    /// Any errno.
    fn lookup(&self, caller: Caller, parent: NodeId, name: &[u8]) -> Result<EntryReply, Errno> {
        Err(Errno::NOSYS)
    }

    /// Takes back `count` lookups of an inode. At zero the kernel does not know
    /// the node id any longer.
    fn forget(&self, node: NodeId, count: u64) {}

    /// Attributes of an inode.
    ///
    /// # Errors
    ///
    /// Any errno.
    fn getattr(&self, caller: Caller, node: NodeId, fh: Option<u64>) -> Result<AttrReply, Errno> {
        Err(Errno::NOSYS)
    }

    /// Attributes with the birth time; asked for only by programs that want
    /// that. ENOSYS makes the kernel use [`getattr`](Self::getattr).
    ///
    /// # Errors
    ///
    /// Any errno.
    fn statx(&self, caller: Caller, node: NodeId, fh: Option<u64>) -> Result<StatxReply, Errno> {
        Err(Errno::NOSYS)
    }

    /// Changes attributes, and returns what they are then.
    ///
    /// # Errors
    ///
    /// Any errno.
    fn setattr(&self, caller: Caller, node: NodeId, set: &SetAttr) -> Result<AttrReply, Errno> {
        Err(Errno::NOSYS)
    }

    /// Puts the target of a symbolic link into `target`, without a zero byte.
    ///
    /// # Errors
    ///
    /// Any errno.
    fn readlink(
        &self,
        caller: Caller,
        node: NodeId,
        target: &mut ByteSink<'_>,
    ) -> Result<(), Errno> {
        Err(Errno::NOSYS)
    }

    /// Makes a symbolic link and counts a lookup of it.
    ///
    /// # Errors
    ///
    /// Any errno.
    fn symlink(
        &self,
        caller: Caller,
        parent: NodeId,
        name: &[u8],
        target: &[u8],
    ) -> Result<EntryReply, Errno> {
        Err(Errno::NOSYS)
    }

    /// Makes a file that is not a directory, and counts a lookup of it.
    ///
    /// # Errors
    ///
    /// Any errno.
    fn mknod(
        &self,
        caller: Caller,
        parent: NodeId,
        name: &[u8],
        new: NewNode,
        rdev: u32,
    ) -> Result<EntryReply, Errno> {
        Err(Errno::NOSYS)
    }

    /// Makes a directory and counts a lookup of it.
    ///
    /// # Errors
    ///
    /// Any errno.
    fn mkdir(
        &self,
        caller: Caller,
        parent: NodeId,
        name: &[u8],
        new: NewNode,
    ) -> Result<EntryReply, Errno> {
        Err(Errno::NOSYS)
    }

    /// Removes a name that is not a directory's. The inode lives on while it
    /// has names, lookups or open files.
    ///
    /// # Errors
    ///
    /// Any errno.
    fn unlink(&self, caller: Caller, parent: NodeId, name: &[u8]) -> Result<(), Errno> {
        Err(Errno::NOSYS)
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    ///
    /// Any errno.
    fn rmdir(&self, caller: Caller, parent: NodeId, name: &[u8]) -> Result<(), Errno> {
        Err(Errno::NOSYS)
    }

    /// Renames; `from` and `to` are a directory and a name in it.
    ///
    /// # Errors
    ///
    /// Any errno; EINVAL for flags that are not supported.
    fn rename(
        &self,
        caller: Caller,
        from: (NodeId, &[u8]),
        to: (NodeId, &[u8]),
        flags: RenameFlags,
    ) -> Result<(), Errno> {
        Err(Errno::NOSYS)
    }

    /// Gives an inode another name and counts a lookup of it.
    ///
    /// # Errors
    ///
    /// Any errno.
    fn link(
        &self,
        caller: Caller,
        node: NodeId,
        parent: NodeId,
        name: &[u8],
    ) -> Result<EntryReply, Errno> {
        Err(Errno::NOSYS)
    }

    /// Opens a file. To do without opens, choose
    /// [`Config::zero_message_open`](crate::Config::zero_message_open) and leave
    /// this out. ENOSYS without that choice becomes EOPNOTSUPP, because the
    /// kernel would then drop every `O_TRUNC`.
    ///
    /// # Errors
    ///
    /// Any errno.
    fn open(&self, caller: Caller, node: NodeId, flags: OpenFlags) -> Result<OpenReply, Errno> {
        Err(Errno::NOSYS)
    }

    /// Makes and opens a regular file, and counts a lookup of it; opens it if
    /// it exists and the flags allow that. ENOSYS makes the kernel use
    /// [`mknod`](Self::mknod) and [`open`](Self::open).
    ///
    /// # Errors
    ///
    /// Any errno.
    fn create(
        &self,
        caller: Caller,
        parent: NodeId,
        name: &[u8],
        new: NewNode,
        flags: OpenFlags,
    ) -> Result<(EntryReply, OpenReply), Errno> {
        Err(Errno::NOSYS)
    }

    /// Makes and opens a file without a name, and counts a lookup of it. With
    /// ENOSYS, programs get EOPNOTSUPP.
    ///
    /// # Errors
    ///
    /// Any errno.
    fn tmpfile(
        &self,
        caller: Caller,
        parent: NodeId,
        new: NewNode,
        flags: OpenFlags,
    ) -> Result<(EntryReply, OpenReply), Errno> {
        Err(Errno::NOSYS)
    }

    /// Reads up to `call.size` bytes into `reply`; fewer mean the end of the file.
    ///
    /// # Errors
    ///
    /// Any errno; what was put into `reply` is dropped then.
    fn read(
        &self,
        caller: Caller,
        node: NodeId,
        call: ReadCall,
        reply: &mut ReadReply<'_>,
    ) -> Result<(), Errno> {
        Err(Errno::NOSYS)
    }

    /// Writes, and returns how many bytes of `data` were taken. `data` usually
    /// starts on a page boundary in memory.
    ///
    /// # Errors
    ///
    /// Any errno.
    fn write(
        &self,
        caller: Caller,
        node: NodeId,
        fh: u64,
        offset: u64,
        data: &[u8],
        flags: WriteFlags,
    ) -> Result<u32, Errno> {
        Err(Errno::NOSYS)
    }

    /// A descriptor of an open file is closed. After ENOSYS, no more of these.
    ///
    /// # Errors
    ///
    /// Any errno; close(2) returns it.
    fn flush(&self, caller: Caller, node: NodeId, fh: u64) -> Result<(), Errno> {
        Err(Errno::NOSYS)
    }

    /// The last descriptor of an open file is gone. Nobody waits for this.
    ///
    /// # Errors
    ///
    /// Any errno; the kernel ignores it.
    fn release(&self, node: NodeId, fh: u64, flags: OpenFlags) -> Result<(), Errno> {
        Err(Errno::NOSYS)
    }

    /// Makes a file durable, its size and data only with `datasync`. After
    /// ENOSYS the kernel takes every fsync for done.
    ///
    /// # Errors
    ///
    /// Any errno.
    fn fsync(&self, caller: Caller, node: NodeId, fh: u64, datasync: bool) -> Result<(), Errno> {
        Err(Errno::NOSYS)
    }

    /// Opens a directory. ENOSYS makes the kernel open every directory by
    /// itself and cache listings.
    ///
    /// # Errors
    ///
    /// Any errno.
    fn opendir(&self, caller: Caller, node: NodeId, flags: OpenFlags) -> Result<OpenReply, Errno> {
        Err(Errno::NOSYS)
    }

    /// Lists a directory from `call.offset` on. Nothing added means the end.
    ///
    /// # Errors
    ///
    /// Any errno; entries that were added are dropped then.
    fn readdir(
        &self,
        caller: Caller,
        node: NodeId,
        call: ReadCall,
        entries: &mut DirSink<'_>,
    ) -> Result<(), Errno> {
        Err(Errno::NOSYS)
    }

    /// Lists a directory with the attributes of what is in it, and counts a
    /// lookup of every inode that was added, save `.` and `..`. Asked for only
    /// if [`Config::readdirplus`](crate::Config::readdirplus) is not off. An
    /// error after entries were counted would leave them counted for ever:
    /// return what there is instead.
    ///
    /// # Errors
    ///
    /// Any errno, before the first entry.
    fn readdirplus(
        &self,
        caller: Caller,
        node: NodeId,
        call: ReadCall,
        entries: &mut DirPlusSink<'_>,
    ) -> Result<(), Errno> {
        Err(Errno::NOSYS)
    }

    /// The last descriptor of an open directory is gone.
    ///
    /// # Errors
    ///
    /// Any errno; the kernel ignores it.
    fn releasedir(&self, node: NodeId, fh: u64, flags: OpenFlags) -> Result<(), Errno> {
        Err(Errno::NOSYS)
    }

    /// Makes a directory durable. After ENOSYS the kernel takes every fsync of
    /// a directory for done.
    ///
    /// # Errors
    ///
    /// Any errno.
    fn fsyncdir(&self, caller: Caller, node: NodeId, fh: u64, datasync: bool) -> Result<(), Errno> {
        Err(Errno::NOSYS)
    }

    /// Sizes and free space.
    ///
    /// # Errors
    ///
    /// Any errno.
    fn statfs(&self, caller: Caller, node: NodeId) -> Result<StatfsReply, Errno> {
        Err(Errno::NOSYS)
    }

    /// Sets an extended attribute. After ENOSYS, programs get EOPNOTSUPP.
    ///
    /// # Errors
    ///
    /// Any errno.
    fn setxattr(
        &self,
        caller: Caller,
        node: NodeId,
        name: &[u8],
        value: &[u8],
        flags: SetXattrFlags,
    ) -> Result<(), Errno> {
        Err(Errno::NOSYS)
    }

    /// Puts the value of an extended attribute into `value`. After ENOSYS the
    /// kernel does not ask again, nor for `security.capability` at a write.
    ///
    /// # Errors
    ///
    /// Any errno; ENODATA if there is none of that name.
    fn getxattr(
        &self,
        caller: Caller,
        node: NodeId,
        name: &[u8],
        value: &mut ByteSink<'_>,
    ) -> Result<(), Errno> {
        Err(Errno::NOSYS)
    }

    /// Puts the names of all extended attributes into `names`, with
    /// [`ByteSink::put_name`].
    ///
    /// # Errors
    ///
    /// Any errno.
    fn listxattr(
        &self,
        caller: Caller,
        node: NodeId,
        names: &mut ByteSink<'_>,
    ) -> Result<(), Errno> {
        Err(Errno::NOSYS)
    }

    /// Removes an extended attribute.
    ///
    /// # Errors
    ///
    /// Any errno; ENODATA if there is none of that name.
    fn removexattr(&self, caller: Caller, node: NodeId, name: &[u8]) -> Result<(), Errno> {
        Err(Errno::NOSYS)
    }

    /// Checks permissions for access(2) and chdir(2); `mask` is 1 for execute,
    /// 2 for write, 4 for read, in any sum. Not asked for with
    /// default_permissions; ENOSYS allows everything from then on.
    ///
    /// # Errors
    ///
    /// EACCES, or any other errno.
    fn access(&self, caller: Caller, node: NodeId, mask: u32) -> Result<(), Errno> {
        Err(Errno::NOSYS)
    }

    /// Makes the whole file system durable. Comes only on mounts of type
    /// fuseblk, with sync(2) and syncfs(2).
    ///
    /// # Errors
    ///
    /// Any errno.
    fn syncfs(&self, caller: Caller, node: NodeId) -> Result<(), Errno> {
        Err(Errno::NOSYS)
    }

    /// Allocates, frees or clears a range. After ENOSYS, programs get
    /// EOPNOTSUPP.
    ///
    /// # Errors
    ///
    /// Any errno.
    fn fallocate(
        &self,
        caller: Caller,
        node: NodeId,
        fh: u64,
        range: std::ops::Range<u64>,
        mode: FallocateMode,
    ) -> Result<(), Errno> {
        Err(Errno::NOSYS)
    }

    /// Finds the next data or hole at or after `offset`. After ENOSYS the
    /// kernel takes the whole file for data.
    ///
    /// # Errors
    ///
    /// ENXIO if there is none before the end of the file; any other errno.
    fn lseek(
        &self,
        caller: Caller,
        node: NodeId,
        fh: u64,
        offset: u64,
        whence: SeekWhence,
    ) -> Result<u64, Errno> {
        Err(Errno::NOSYS)
    }

    /// Copies inside the file system, perhaps by sharing, and returns how many
    /// bytes. After ENOSYS the kernel copies by reading and writing.
    ///
    /// # Errors
    ///
    /// Any errno.
    fn copy_file_range(
        &self,
        caller: Caller,
        from: CopyEnd,
        to: CopyEnd,
        length: u64,
    ) -> Result<u64, Errno> {
        Err(Errno::NOSYS)
    }

    /// Carries out an ioctl, puts what it returns into `output`, at most
    /// `call.output_size` bytes, and returns its result. The kernel turns
    /// ENOSYS into ENOTTY.
    ///
    /// # Errors
    ///
    /// Any errno; ENOTTY for an unknown command.
    fn ioctl(
        &self,
        caller: Caller,
        node: NodeId,
        fh: u64,
        call: IoctlCall<'_>,
        output: &mut ByteSink<'_>,
    ) -> Result<i32, Errno> {
        Err(Errno::NOSYS)
    }
}
