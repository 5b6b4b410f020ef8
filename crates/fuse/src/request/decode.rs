//! One arm per opcode.

use super::args::Args;
use super::{
    AttributesOperation, ContentOperation, ForgetList, HandleOperation, InitOffer, NameOperation,
    Operation, RawRequest,
};
use crate::wire::flags::{self, fattr};
use crate::wire::{input, opcode};
use crate::{
    Capabilities, CopyEnd, Errno, FallocateMode, IoctlCall, NewNode, NodeId, OpenFlags, ReadCall,
    RenameFlags, SeekWhence, SetAttr, SetXattrFlags, SetXattrMode, TimeOrNow, Timestamp,
    WriteFlags,
};

/// Decodes the arguments of `raw`; `granted` is what INIT agreed on, as one
/// structure has two sizes.
///
/// # Errors
///
/// EINVAL for arguments that are cut off or make no sense, EOPNOTSUPP for a
/// fallocate mode that is not known.
pub(crate) fn decode<'a>(
    raw: &RawRequest<'a>,
    granted: Capabilities,
) -> Result<Operation<'a>, Errno> {
    let mut args = Args::new(raw);
    let args = &mut args;
    Ok(match raw.header.opcode {
        opcode::INIT => init(args)?,
        opcode::DESTROY => Operation::Destroy,
        opcode::INTERRUPT => Operation::Interrupt,
        opcode::FORGET => forget(&args.fixed()?),
        opcode::BATCH_FORGET => batch_forget(args)?,
        opcode::STATFS => Operation::Statfs,
        opcode::SYNCFS => Operation::SyncFs,

        opcode::LOOKUP => Operation::Name(NameOperation::Lookup { name: args.name()? }),
        opcode::CREATE => Operation::Name(create(args)?),
        opcode::TMPFILE => Operation::Name(tmpfile(&args.fixed()?)),
        opcode::MKNOD => Operation::Name(mknod(args)?),
        opcode::MKDIR => Operation::Name(mkdir(args)?),
        opcode::SYMLINK => Operation::Name(symlink(args)?),
        opcode::LINK => Operation::Name(link(args)?),
        opcode::UNLINK => Operation::Name(NameOperation::Unlink { name: args.name()? }),
        opcode::RMDIR => Operation::Name(NameOperation::Rmdir { name: args.name()? }),
        opcode::RENAME => Operation::Name(rename(args)?),
        opcode::RENAME2 => Operation::Name(rename_with_flags(args)?),

        opcode::GETATTR => Operation::Attributes(get_attr(&args.fixed()?)),
        opcode::STATX => Operation::Attributes(statx(&args.fixed()?)),
        opcode::SETATTR => {
            Operation::Attributes(AttributesOperation::SetAttr(set_attr(&args.fixed()?)))
        }
        opcode::ACCESS => Operation::Attributes(access(&args.fixed()?)),
        opcode::SETXATTR => Operation::Attributes(set_xattr(args, granted)?),
        opcode::GETXATTR => Operation::Attributes(get_xattr(args)?),
        opcode::LISTXATTR => Operation::Attributes(list_xattr(&args.fixed()?)),
        opcode::REMOVEXATTR => Operation::Attributes(remove_xattr(args)?),
        opcode::IOCTL => Operation::Attributes(ioctl(args)?),

        opcode::OPEN => Operation::Handle(HandleOperation::Open {
            flags: open(&args.fixed()?),
        }),
        opcode::OPENDIR => Operation::Handle(HandleOperation::OpenDir {
            flags: open(&args.fixed()?),
        }),
        opcode::READLINK => Operation::Content(ContentOperation::ReadLink),
        opcode::READ => Operation::Content(ContentOperation::Read(read_call(&args.fixed()?))),
        opcode::READDIR => Operation::Content(ContentOperation::ReadDir(read_call(&args.fixed()?))),
        opcode::READDIRPLUS => {
            Operation::Content(ContentOperation::ReadDirPlus(read_call(&args.fixed()?)))
        }
        opcode::WRITE => Operation::Content(write(args)?),
        opcode::FLUSH => Operation::Handle(flush(&args.fixed()?)),
        opcode::RELEASE => Operation::Handle(release(&args.fixed()?)),
        opcode::RELEASEDIR => Operation::Handle(release_dir(&args.fixed()?)),
        opcode::FSYNC => Operation::Handle(fsync(&args.fixed()?)),
        opcode::FSYNCDIR => Operation::Handle(fsync_dir(&args.fixed()?)),
        opcode::FALLOCATE => Operation::Content(fallocate(&args.fixed()?)?),
        opcode::LSEEK => Operation::Content(lseek(&args.fixed()?)?),
        opcode::COPY_FILE_RANGE => Operation::Content(copy_file_range(raw, &args.fixed()?, false)?),
        opcode::COPY_FILE_RANGE_64 => {
            Operation::Content(copy_file_range(raw, &args.fixed()?, true)?)
        }
        _ => Operation::Unknown,
    })
}

fn forget<'a>(arg: &input::ForgetIn) -> Operation<'a> {
    Operation::Forget { count: arg.nlookup }
}

fn create<'a>(args: &mut Args<'a>) -> Result<NameOperation<'a>, Errno> {
    let arg: input::CreateIn = args.fixed()?;
    Ok(NameOperation::Create {
        name: args.name()?,
        new: new_node(arg.mode, arg.umask),
        flags: create_flags(&arg),
    })
}

fn tmpfile<'a>(arg: &input::CreateIn) -> NameOperation<'a> {
    NameOperation::Tmpfile {
        new: new_node(arg.mode, arg.umask),
        flags: create_flags(arg),
    }
}

fn mknod<'a>(args: &mut Args<'a>) -> Result<NameOperation<'a>, Errno> {
    let arg: input::MknodIn = args.fixed()?;
    Ok(NameOperation::Mknod {
        name: args.name()?,
        new: new_node(arg.mode, arg.umask),
        rdev: arg.rdev,
    })
}

fn mkdir<'a>(args: &mut Args<'a>) -> Result<NameOperation<'a>, Errno> {
    let arg: input::MkdirIn = args.fixed()?;
    Ok(NameOperation::Mkdir {
        name: args.name()?,
        new: new_node(arg.mode, arg.umask),
    })
}

fn symlink<'a>(args: &mut Args<'a>) -> Result<NameOperation<'a>, Errno> {
    let name = args.name()?;
    let target = args.string()?;
    if target.is_empty() {
        return Err(Errno::INVAL);
    }
    Ok(NameOperation::Symlink { name, target })
}

fn link<'a>(args: &mut Args<'a>) -> Result<NameOperation<'a>, Errno> {
    let arg: input::LinkIn = args.fixed()?;
    Ok(NameOperation::Link {
        name: args.name()?,
        target: NodeId(arg.oldnodeid),
    })
}

fn rename<'a>(args: &mut Args<'a>) -> Result<NameOperation<'a>, Errno> {
    let arg: input::RenameIn = args.fixed()?;
    renamed(args, arg.newdir, RenameFlags::default())
}

fn rename_with_flags<'a>(args: &mut Args<'a>) -> Result<NameOperation<'a>, Errno> {
    let arg: input::Rename2In = args.fixed()?;
    renamed(args, arg.newdir, RenameFlags::from_bits(arg.flags)?)
}

fn get_attr<'a>(arg: &input::GetattrIn) -> AttributesOperation<'a> {
    AttributesOperation::GetAttr {
        fh: handle(arg.getattr_flags, arg.fh),
    }
}

/// The rest of the argument says how fresh the answer must be and what it is for; answers are always fresh and whole.
fn statx<'a>(arg: &input::StatxIn) -> AttributesOperation<'a> {
    AttributesOperation::Statx {
        fh: handle(arg.getattr_flags, arg.fh),
    }
}

fn access<'a>(arg: &input::AccessIn) -> AttributesOperation<'a> {
    AttributesOperation::Access { mask: arg.mask }
}

fn get_xattr<'a>(args: &mut Args<'a>) -> Result<AttributesOperation<'a>, Errno> {
    let arg: input::GetxattrIn = args.fixed()?;
    Ok(AttributesOperation::GetXattr {
        name: xattr_name(args)?,
        size: arg.size,
    })
}

fn list_xattr<'a>(arg: &input::GetxattrIn) -> AttributesOperation<'a> {
    AttributesOperation::ListXattr { size: arg.size }
}

fn remove_xattr<'a>(args: &mut Args<'a>) -> Result<AttributesOperation<'a>, Errno> {
    Ok(AttributesOperation::RemoveXattr {
        name: xattr_name(args)?,
    })
}

fn write<'a>(args: &mut Args<'a>) -> Result<ContentOperation<'a>, Errno> {
    let arg: input::WriteIn = args.fixed()?;
    Ok(ContentOperation::Write {
        fh: arg.fh,
        offset: arg.offset,
        data: args.bytes(arg.size)?,
        flags: WriteFlags {
            from_cache: arg.write_flags & flags::WRITE_CACHE != 0,
            kill_suidgid: arg.write_flags & flags::WRITE_KILL_SUIDGID != 0,
            open: plain_flags(arg.flags),
        },
    })
}

fn flush(arg: &input::FlushIn) -> HandleOperation {
    HandleOperation::Flush { fh: arg.fh }
}

fn release(arg: &input::ReleaseIn) -> HandleOperation {
    HandleOperation::Release {
        fh: arg.fh,
        flags: plain_flags(arg.flags),
    }
}

fn release_dir(arg: &input::ReleaseIn) -> HandleOperation {
    HandleOperation::ReleaseDir {
        fh: arg.fh,
        flags: plain_flags(arg.flags),
    }
}

fn fsync(arg: &input::FsyncIn) -> HandleOperation {
    HandleOperation::Fsync {
        fh: arg.fh,
        datasync: arg.fsync_flags & flags::FSYNC_DATASYNC != 0,
    }
}

fn fsync_dir(arg: &input::FsyncIn) -> HandleOperation {
    HandleOperation::FsyncDir {
        fh: arg.fh,
        datasync: arg.fsync_flags & flags::FSYNC_DATASYNC != 0,
    }
}

fn fallocate<'a>(arg: &input::FallocateIn) -> Result<ContentOperation<'a>, Errno> {
    Ok(ContentOperation::Fallocate {
        fh: arg.fh,
        offset: arg.offset,
        length: arg.length,
        mode: FallocateMode::from_bits(arg.mode)?,
    })
}

fn lseek<'a>(arg: &input::LseekIn) -> Result<ContentOperation<'a>, Errno> {
    Ok(ContentOperation::Lseek {
        fh: arg.fh,
        offset: arg.offset,
        whence: SeekWhence::from_raw(arg.whence)?,
    })
}

fn handle(getattr_flags: u32, fh: u64) -> Option<u64> {
    (getattr_flags & flags::GETATTR_FH != 0).then_some(fh)
}

fn new_node(mode: u32, umask: u32) -> NewNode {
    NewNode { mode, umask }
}

fn plain_flags(bits: u32) -> OpenFlags {
    OpenFlags {
        bits,
        kill_suidgid: false,
    }
}

fn read_call(arg: &input::ReadIn) -> ReadCall {
    ReadCall {
        fh: arg.fh,
        offset: arg.offset,
        size: arg.size,
        flags: plain_flags(arg.flags),
    }
}

fn open(arg: &input::OpenIn) -> OpenFlags {
    OpenFlags {
        bits: arg.flags,
        kill_suidgid: arg.open_flags & flags::OPEN_KILL_SUIDGID != 0,
    }
}

fn create_flags(arg: &input::CreateIn) -> OpenFlags {
    OpenFlags {
        bits: arg.flags,
        kill_suidgid: arg.open_flags & flags::OPEN_KILL_SUIDGID != 0,
    }
}

fn batch_forget<'a>(args: &mut Args<'a>) -> Result<Operation<'a>, Errno> {
    let arg: input::BatchForgetIn = args.fixed()?;
    let one = u32::try_from(size_of::<input::ForgetOne>()).map_err(|_| Errno::INVAL)?;
    let len = arg.count.checked_mul(one).ok_or(Errno::INVAL)?;
    Ok(Operation::BatchForget(ForgetList(args.bytes(len)?)))
}

fn set_attr(arg: &input::SetattrIn) -> SetAttr {
    let has = |bit| arg.valid & bit != 0;
    // The wire has no sign, the kernel's own times have.
    let stamp = |seconds: u64, nanoseconds| Timestamp {
        seconds: seconds.cast_signed(),
        nanoseconds,
    };
    let time = |now, set, stamp| match (has(now), has(set)) {
        (true, _) => Some(TimeOrNow::Now),
        (false, true) => Some(TimeOrNow::Time(stamp)),
        (false, false) => None,
    };
    SetAttr {
        fh: has(fattr::FH).then_some(arg.fh),
        mode: has(fattr::MODE).then_some(arg.mode),
        uid: has(fattr::UID).then_some(arg.uid),
        gid: has(fattr::GID).then_some(arg.gid),
        size: has(fattr::SIZE).then_some(arg.size),
        atime: time(
            fattr::ATIME_NOW,
            fattr::ATIME,
            stamp(arg.atime, arg.atimensec),
        ),
        mtime: time(
            fattr::MTIME_NOW,
            fattr::MTIME,
            stamp(arg.mtime, arg.mtimensec),
        ),
        ctime: has(fattr::CTIME).then_some(stamp(arg.ctime, arg.ctimensec)),
        kill_suidgid: has(fattr::KILL_SUIDGID),
    }
}

fn renamed<'a>(
    args: &mut Args<'a>,
    new_parent: u64,
    flags: RenameFlags,
) -> Result<NameOperation<'a>, Errno> {
    Ok(NameOperation::Rename {
        name: args.name()?,
        new_parent: NodeId(new_parent),
        new_name: args.name()?,
        flags,
    })
}

/// Unlike a file's name, this one may contain a slash.
fn xattr_name<'a>(args: &mut Args<'a>) -> Result<&'a [u8], Errno> {
    let name = args.string()?;
    if name.is_empty() {
        return Err(Errno::INVAL);
    }
    Ok(name)
}

fn set_xattr<'a>(
    args: &mut Args<'a>,
    granted: Capabilities,
) -> Result<AttributesOperation<'a>, Errno> {
    let (size, mode, extra) = if granted.contains(Capabilities::SETXATTR_EXT) {
        let arg: input::SetxattrIn = args.fixed()?;
        (arg.size, arg.flags, arg.setxattr_flags)
    } else {
        let arg: input::SetxattrShortIn = args.fixed()?;
        (arg.size, arg.flags, 0)
    };
    Ok(AttributesOperation::SetXattr {
        name: xattr_name(args)?,
        value: args.bytes(size)?,
        flags: SetXattrFlags {
            mode: SetXattrMode::from_bits(mode)?,
            clear_sgid: extra & flags::SETXATTR_ACL_KILL_SGID != 0,
        },
    })
}

fn init<'a>(args: &mut Args<'a>) -> Result<Operation<'a>, Errno> {
    let short: input::InitShortIn = args.fixed()?;
    let mut flags = Capabilities::from_bits(u64::from(short.flags));
    if flags.contains(Capabilities::INIT_EXT) {
        let ext: input::InitExtIn = args.fixed()?;
        flags = flags | Capabilities::from_bits(u64::from(ext.flags2) << 32);
    }
    Ok(Operation::Init(InitOffer {
        major: short.major,
        minor: short.minor,
        flags: flags.bits(),
    }))
}

fn ioctl<'a>(args: &mut Args<'a>) -> Result<AttributesOperation<'a>, Errno> {
    let arg: input::IoctlIn = args.fixed()?;
    Ok(AttributesOperation::Ioctl {
        fh: arg.fh,
        call: IoctlCall {
            command: arg.cmd,
            argument: arg.arg,
            input: args.bytes(arg.in_size)?,
            output_size: arg.out_size,
            compat: arg.flags & flags::IOCTL_32BIT != 0,
            directory: arg.flags & flags::IOCTL_DIR != 0,
        },
    })
}

fn copy_file_range<'a>(
    raw: &RawRequest<'a>,
    arg: &input::CopyFileRangeIn,
    wide: bool,
) -> Result<ContentOperation<'a>, Errno> {
    if arg.flags != 0 {
        return Err(Errno::INVAL);
    }
    Ok(ContentOperation::CopyFileRange {
        from: CopyEnd {
            node: raw.node(),
            fh: arg.fh_in,
            offset: arg.off_in,
        },
        to: CopyEnd {
            node: NodeId(arg.nodeid_out),
            fh: arg.fh_out,
            offset: arg.off_out,
        },
        length: arg.len,
        wide,
    })
}
