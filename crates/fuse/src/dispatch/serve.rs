//! One arm per operation: call the method, put its answer into the reply.

use crate::reply::{ByteSink, DirPlusSink, DirSink, ReadReply};
use crate::request::{
    AttributesOperation, ContentOperation, HandleOperation, NameOperation, Operation, RawRequest,
};
use crate::wire::output::{CopyFileRangeOut, GetxattrOut, IoctlOut, LseekOut, WriteOut};
use crate::{
    Caller, Capabilities, Config, EntryReply, Errno, Filesystem, NodeId, OpenReply, Reply, encode,
};

/// Longest target of a symbolic link that the kernel takes.
const LINK_TARGET_MAX: usize = 4095;

pub(super) fn operation(
    fs: &dyn Filesystem,
    config: &Config,
    granted: Capabilities,
    raw: &RawRequest<'_>,
    operation: Operation<'_>,
    reply: &mut Reply,
) -> Result<(), Errno> {
    let call = Call {
        fs,
        config,
        granted,
        caller: raw.caller(),
        node: raw.node(),
        reply,
    };
    match operation {
        Operation::Name(operation) => call.on_name(operation)?,
        Operation::Attributes(operation) => call.on_attributes(operation)?,
        Operation::Handle(operation) => call.on_handle(operation)?,
        Operation::Content(operation) => call.on_content(operation)?,
        Operation::Forget { count } => fs.forget(call.node, count),
        Operation::BatchForget(list) => {
            for (node, count) in list.iter() {
                fs.forget(node, count);
            }
        }
        Operation::Statfs => call
            .reply
            .push(&encode::statfs(&fs.statfs(call.caller, call.node)?)),
        Operation::SyncFs => fs.syncfs(call.caller, call.node)?,
        // Nothing can be interrupted, and the kernel does not insist.
        Operation::Interrupt => {}
        // The first two never come here: see `Worker::serve`.
        Operation::Init(_) | Operation::Destroy | Operation::Unknown => {
            return Err(Errno::NOSYS);
        }
    }
    Ok(())
}

/// A call of the file system. Each method carries out its kind of operation.
struct Call<'a> {
    fs: &'a dyn Filesystem,
    config: &'a Config,
    granted: Capabilities,
    caller: Caller,
    node: NodeId,
    reply: &'a mut Reply,
}

impl Call<'_> {
    /// What makes, finds or changes a name in a directory.
    fn on_name(self, operation: NameOperation<'_>) -> Result<(), Errno> {
        let Call {
            fs,
            caller,
            node,
            reply,
            ..
        } = self;
        match operation {
            NameOperation::Lookup { name } => entry(reply, &fs.lookup(caller, node, name)?),
            NameOperation::Create { name, new, flags } => {
                created(reply, &fs.create(caller, node, name, new, flags)?);
            }
            NameOperation::Tmpfile { new, flags } => {
                created(reply, &fs.tmpfile(caller, node, new, flags)?);
            }
            NameOperation::Mknod { name, new, rdev } => {
                entry(reply, &fs.mknod(caller, node, name, new, rdev)?);
            }
            NameOperation::Mkdir { name, new } => entry(reply, &fs.mkdir(caller, node, name, new)?),
            NameOperation::Symlink { name, target } => {
                entry(reply, &fs.symlink(caller, node, name, target)?);
            }
            NameOperation::Link { name, target } => {
                entry(reply, &fs.link(caller, target, node, name)?);
            }
            NameOperation::Unlink { name } => fs.unlink(caller, node, name)?,
            NameOperation::Rmdir { name } => fs.rmdir(caller, node, name)?,
            NameOperation::Rename {
                name,
                new_parent,
                new_name,
                flags,
            } => fs.rename(caller, (node, name), (new_parent, new_name), flags)?,
        }
        Ok(())
    }

    /// What looks at an inode, or changes it apart from its content.
    fn on_attributes(self, operation: AttributesOperation<'_>) -> Result<(), Errno> {
        let Call {
            fs,
            caller,
            node,
            reply,
            ..
        } = self;
        match operation {
            AttributesOperation::GetAttr { fh } => {
                reply.push(&encode::attr_out(&fs.getattr(caller, node, fh)?));
            }
            AttributesOperation::Statx { fh } => {
                reply.push(&encode::statx(&fs.statx(caller, node, fh)?));
            }
            AttributesOperation::SetAttr(set) => {
                reply.push(&encode::attr_out(&fs.setattr(caller, node, &set)?));
            }
            AttributesOperation::Access { mask } => fs.access(caller, node, mask)?,
            AttributesOperation::SetXattr { name, value, flags } => {
                fs.setxattr(caller, node, name, value, flags)?;
            }
            AttributesOperation::GetXattr { name, size } => {
                fs.getxattr(caller, node, name, &mut ByteSink::new(reply))?;
                fit_xattr(reply, size)?;
            }
            AttributesOperation::ListXattr { size } => {
                fs.listxattr(caller, node, &mut ByteSink::new(reply))?;
                fit_xattr(reply, size)?;
            }
            AttributesOperation::RemoveXattr { name } => fs.removexattr(caller, node, name)?,
            AttributesOperation::Ioctl { fh, call } => {
                let answer = |sink: &mut ByteSink<'_>| fs.ioctl(caller, node, fh, call, sink);
                ioctl(reply, length(call.output_size), answer)?;
            }
        }
        Ok(())
    }

    /// What opens a file or a directory, lets go of it, or makes it durable.
    fn on_handle(self, operation: HandleOperation) -> Result<(), Errno> {
        let Call {
            fs, caller, node, ..
        } = self;
        match operation {
            HandleOperation::Open { flags: _ } if self.config.zero_message_open => {
                Err(Errno::NOSYS)
            }
            HandleOperation::Open { flags } => {
                let open = fs.open(caller, node, flags);
                let open = open.map_err(|errno| no_open(errno, self.granted))?;
                self.reply.push(&encode::open(&open));
                Ok(())
            }
            HandleOperation::OpenDir { flags: _ } if self.config.zero_message_opendir => {
                Err(Errno::NOSYS)
            }
            HandleOperation::OpenDir { flags } => {
                let open = fs.opendir(caller, node, flags)?;
                self.reply.push(&encode::open(&open));
                Ok(())
            }
            HandleOperation::Flush { fh } => fs.flush(caller, node, fh),
            HandleOperation::Release { fh, flags } => fs.release(node, fh, flags),
            HandleOperation::ReleaseDir { fh, flags } => fs.releasedir(node, fh, flags),
            HandleOperation::Fsync { fh, datasync } => fs.fsync(caller, node, fh, datasync),
            HandleOperation::FsyncDir { fh, datasync } => fs.fsyncdir(caller, node, fh, datasync),
        }
    }

    /// What reads or changes the content of a file, a directory or a symbolic link.
    fn on_content(self, operation: ContentOperation<'_>) -> Result<(), Errno> {
        let Call {
            fs,
            caller,
            node,
            reply,
            ..
        } = self;
        match operation {
            ContentOperation::ReadLink => {
                fs.readlink(caller, node, &mut ByteSink::new(reply))?;
                if reply.body_len() > LINK_TARGET_MAX {
                    return Err(Errno::NAMETOOLONG);
                }
            }
            ContentOperation::Read(call) => {
                let mut data = ReadReply::new(reply, length(call.size));
                fs.read(caller, node, call, &mut data)?;
            }
            ContentOperation::ReadDir(call) => {
                let mut entries = DirSink::new(reply, length(call.size));
                fs.readdir(caller, node, call, &mut entries)?;
            }
            ContentOperation::ReadDirPlus(call) => {
                let mut entries = DirPlusSink::new(reply, length(call.size));
                fs.readdirplus(caller, node, call, &mut entries)?;
            }
            ContentOperation::Write {
                fh,
                offset,
                data,
                flags,
            } => {
                let size = fs.write(caller, node, fh, offset, data, flags)?;
                reply.push(&WriteOut { size, padding: 0 });
            }
            ContentOperation::Fallocate {
                fh,
                offset,
                length,
                mode,
            } => {
                let end = offset.checked_add(length).ok_or(Errno::FBIG)?;
                fs.fallocate(caller, node, fh, offset..end, mode)?;
            }
            ContentOperation::Lseek { fh, offset, whence } => {
                let offset = fs.lseek(caller, node, fh, offset, whence)?;
                reply.push(&LseekOut { offset });
            }
            ContentOperation::CopyFileRange {
                from,
                to,
                length,
                wide,
            } => copy_file_range(reply, wide, |limit| {
                fs.copy_file_range(caller, from, to, length.min(limit))
            })?,
        }
        Ok(())
    }
}

fn length(size: u32) -> usize {
    usize::try_from(size).unwrap_or(usize::MAX)
}

/// What an ioctl(2) answers is a number, and then at most `most` bytes.
fn ioctl(
    reply: &mut Reply,
    most: usize,
    answer: impl FnOnce(&mut ByteSink<'_>) -> Result<i32, Errno>,
) -> Result<(), Errno> {
    reply.push(&IoctlOut::default());
    let result = answer(&mut ByteSink::new(reply))?;
    if reply.body_len() - size_of::<IoctlOut>() > most {
        return Err(Errno::IO);
    }
    reply.patch(
        0,
        &IoctlOut {
            result,
            ..IoctlOut::default()
        },
    );
    Ok(())
}

fn entry(reply: &mut Reply, entry: &EntryReply) {
    reply.push(&encode::entry(entry));
}

fn created(reply: &mut Reply, (entry, open): &(EntryReply, OpenReply)) {
    reply.push(&encode::entry(entry));
    reply.push(&encode::open(open));
}

/// ENOSYS ends all opens, and with ATOMIC_O_TRUNC the kernel sends nothing else
/// that truncates: a file opened with `O_TRUNC` would keep its old content. An
/// open that fails is better than that.
fn no_open(errno: Errno, granted: Capabilities) -> Errno {
    if errno == Errno::NOSYS && granted.contains(Capabilities::ATOMIC_O_TRUNC) {
        return Errno::OPNOTSUPP;
    }
    errno
}

/// The answer to a question about extended attributes: with size 0, how long
/// it would be; else the bytes themselves.
fn fit_xattr(reply: &mut Reply, size: u32) -> Result<(), Errno> {
    let len = reply.body_len();
    if size == 0 {
        let size = u32::try_from(len).map_err(|_| Errno::TOOBIG)?;
        reply.replace(&GetxattrOut { size, padding: 0 });
        return Ok(());
    }
    if len > length(size) {
        return Err(Errno::RANGE);
    }
    Ok(())
}

/// The older form of the reply has 32 bits for the count, so no more is copied
/// than they hold (down to a page, as the kernel would do).
fn copy_file_range(
    reply: &mut Reply,
    wide: bool,
    copy: impl FnOnce(u64) -> Result<u64, Errno>,
) -> Result<(), Errno> {
    const NARROW_MAX: u64 = 0xffff_f000;
    if wide {
        let bytes_copied = copy(u64::MAX)?;
        reply.push(&CopyFileRangeOut { bytes_copied });
    } else {
        let size = u32::try_from(copy(NARROW_MAX)?).map_err(|_| Errno::IO)?;
        reply.push(&WriteOut { size, padding: 0 });
    }
    Ok(())
}
