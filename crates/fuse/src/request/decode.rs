//! One arm per opcode.

use super::args::Args;
use super::{ForgetList, InitOffer, Operation, RawRequest};
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
    Ok(match raw.header.opcode {
        opcode::LOOKUP => Operation::Lookup { name: args.name()? },
        opcode::FORGET => Operation::Forget {
            count: args.fixed::<input::ForgetIn>()?.nlookup,
        },
        opcode::BATCH_FORGET => batch_forget(&mut args)?,
        opcode::GETATTR => {
            let arg: input::GetattrIn = args.fixed()?;
            Operation::GetAttr {
                fh: handle(arg.getattr_flags, arg.fh),
            }
        }
        opcode::STATX => {
            let arg: input::StatxIn = args.fixed()?;
            // The rest says how fresh the answer must be and what it is for;
            // answers are always fresh and whole.
            Operation::Statx {
                fh: handle(arg.getattr_flags, arg.fh),
            }
        }
        opcode::SETATTR => Operation::SetAttr(set_attr(&args.fixed()?)),
        opcode::READLINK => Operation::ReadLink,
        opcode::SYMLINK => {
            let name = args.name()?;
            let target = args.string()?;
            if target.is_empty() {
                return Err(Errno::INVAL);
            }
            Operation::Symlink { name, target }
        }
        opcode::MKNOD => {
            let arg: input::MknodIn = args.fixed()?;
            Operation::Mknod {
                name: args.name()?,
                new: new_node(arg.mode, arg.umask),
                rdev: arg.rdev,
            }
        }
        opcode::MKDIR => {
            let arg: input::MkdirIn = args.fixed()?;
            Operation::Mkdir {
                name: args.name()?,
                new: new_node(arg.mode, arg.umask),
            }
        }
        opcode::UNLINK => Operation::Unlink { name: args.name()? },
        opcode::RMDIR => Operation::Rmdir { name: args.name()? },
        opcode::RENAME => {
            let arg: input::RenameIn = args.fixed()?;
            rename(&mut args, arg.newdir, RenameFlags::default())?
        }
        opcode::RENAME2 => {
            let arg: input::Rename2In = args.fixed()?;
            rename(&mut args, arg.newdir, RenameFlags::from_bits(arg.flags)?)?
        }
        opcode::LINK => {
            let arg: input::LinkIn = args.fixed()?;
            Operation::Link {
                name: args.name()?,
                target: NodeId(arg.oldnodeid),
            }
        }
        opcode::OPEN => Operation::Open {
            flags: open(&args.fixed()?),
        },
        opcode::OPENDIR => Operation::OpenDir {
            flags: open(&args.fixed()?),
        },
        opcode::READ => Operation::Read(read_call(&args.fixed()?)),
        opcode::READDIR => Operation::ReadDir(read_call(&args.fixed()?)),
        opcode::READDIRPLUS => Operation::ReadDirPlus(read_call(&args.fixed()?)),
        opcode::WRITE => {
            let arg: input::WriteIn = args.fixed()?;
            Operation::Write {
                fh: arg.fh,
                offset: arg.offset,
                data: args.bytes(arg.size)?,
                flags: WriteFlags {
                    from_cache: arg.write_flags & flags::WRITE_CACHE != 0,
                    kill_suidgid: arg.write_flags & flags::WRITE_KILL_SUIDGID != 0,
                    open: plain_flags(arg.flags),
                },
            }
        }
        opcode::STATFS => Operation::Statfs,
        opcode::RELEASE => {
            let arg: input::ReleaseIn = args.fixed()?;
            Operation::Release {
                fh: arg.fh,
                flags: plain_flags(arg.flags),
            }
        }
        opcode::RELEASEDIR => {
            let arg: input::ReleaseIn = args.fixed()?;
            Operation::ReleaseDir {
                fh: arg.fh,
                flags: plain_flags(arg.flags),
            }
        }
        opcode::FSYNC => {
            let arg: input::FsyncIn = args.fixed()?;
            Operation::Fsync {
                fh: arg.fh,
                datasync: arg.fsync_flags & flags::FSYNC_DATASYNC != 0,
            }
        }
        opcode::FSYNCDIR => {
            let arg: input::FsyncIn = args.fixed()?;
            Operation::FsyncDir {
                fh: arg.fh,
                datasync: arg.fsync_flags & flags::FSYNC_DATASYNC != 0,
            }
        }
        opcode::SETXATTR => set_xattr(&mut args, granted)?,
        opcode::GETXATTR => {
            let arg: input::GetxattrIn = args.fixed()?;
            Operation::GetXattr {
                name: xattr_name(&mut args)?,
                size: arg.size,
            }
        }
        opcode::LISTXATTR => Operation::ListXattr {
            size: args.fixed::<input::GetxattrIn>()?.size,
        },
        opcode::REMOVEXATTR => Operation::RemoveXattr {
            name: xattr_name(&mut args)?,
        },
        opcode::FLUSH => Operation::Flush {
            fh: args.fixed::<input::FlushIn>()?.fh,
        },
        opcode::INIT => init(&mut args)?,
        opcode::ACCESS => Operation::Access {
            mask: args.fixed::<input::AccessIn>()?.mask,
        },
        opcode::CREATE => {
            let arg: input::CreateIn = args.fixed()?;
            Operation::Create {
                name: args.name()?,
                new: new_node(arg.mode, arg.umask),
                flags: create_flags(&arg),
            }
        }
        opcode::TMPFILE => {
            let arg: input::CreateIn = args.fixed()?;
            Operation::Tmpfile {
                new: new_node(arg.mode, arg.umask),
                flags: create_flags(&arg),
            }
        }
        opcode::INTERRUPT => Operation::Interrupt,
        opcode::DESTROY => Operation::Destroy,
        opcode::IOCTL => ioctl(&mut args)?,
        opcode::FALLOCATE => {
            let arg: input::FallocateIn = args.fixed()?;
            Operation::Fallocate {
                fh: arg.fh,
                offset: arg.offset,
                length: arg.length,
                mode: FallocateMode::from_bits(arg.mode)?,
            }
        }
        opcode::LSEEK => {
            let arg: input::LseekIn = args.fixed()?;
            Operation::Lseek {
                fh: arg.fh,
                offset: arg.offset,
                whence: SeekWhence::from_raw(arg.whence)?,
            }
        }
        opcode::COPY_FILE_RANGE => copy_file_range(raw, &args.fixed()?, false)?,
        opcode::COPY_FILE_RANGE_64 => copy_file_range(raw, &args.fixed()?, true)?,
        opcode::SYNCFS => Operation::SyncFs,
        _ => Operation::Unknown,
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

fn rename<'a>(
    args: &mut Args<'a>,
    new_parent: u64,
    flags: RenameFlags,
) -> Result<Operation<'a>, Errno> {
    Ok(Operation::Rename {
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

fn set_xattr<'a>(args: &mut Args<'a>, granted: Capabilities) -> Result<Operation<'a>, Errno> {
    let (size, mode, extra) = if granted.contains(Capabilities::SETXATTR_EXT) {
        let arg: input::SetxattrIn = args.fixed()?;
        (arg.size, arg.flags, arg.setxattr_flags)
    } else {
        let arg: input::SetxattrShortIn = args.fixed()?;
        (arg.size, arg.flags, 0)
    };
    Ok(Operation::SetXattr {
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

fn ioctl<'a>(args: &mut Args<'a>) -> Result<Operation<'a>, Errno> {
    let arg: input::IoctlIn = args.fixed()?;
    Ok(Operation::Ioctl {
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
) -> Result<Operation<'a>, Errno> {
    if arg.flags != 0 {
        return Err(Errno::INVAL);
    }
    Ok(Operation::CopyFileRange {
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
