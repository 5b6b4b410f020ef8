//! Builds requests for tests.

use zerocopy::{Immutable, IntoBytes};

use super::RawRequest;
use crate::wire::header::{IN_HEADER_LEN, InHeader};
use crate::wire::{input, opcode};

/// A request under construction.
pub(crate) struct Builder {
    header: InHeader,
    fixed: Vec<u8>,
    payload: Vec<u8>,
}

impl Builder {
    pub(crate) fn new(opcode: u32, nodeid: u64) -> Self {
        Self {
            header: InHeader {
                len: 0,
                opcode,
                unique: 77,
                nodeid,
                uid: 1000,
                gid: 100,
                pid: 4242,
                total_extlen: 0,
                padding: 0,
            },
            fixed: Vec::new(),
            payload: Vec::new(),
        }
    }

    pub(crate) fn fixed<T: IntoBytes + Immutable>(mut self, value: T) -> Self {
        self.fixed.extend_from_slice(value.as_bytes());
        self
    }

    pub(crate) fn string(self, string: &[u8]) -> Self {
        self.bytes(string).bytes(&[0])
    }

    pub(crate) fn bytes(mut self, bytes: &[u8]) -> Self {
        self.payload.extend_from_slice(bytes);
        self
    }

    pub(crate) fn extensions(mut self, units: u16) -> Self {
        self.header.total_extlen = units;
        self.bytes(&vec![0xee; usize::from(units) * 8])
    }

    /// As `/dev/fuse` gives it.
    pub(crate) fn contiguous(&self) -> Vec<u8> {
        let len = IN_HEADER_LEN + self.fixed.len() + self.payload.len();
        let mut header = self.header;
        header.len = u32::try_from(len).unwrap();
        [header.as_bytes(), &self.fixed, &self.payload].concat()
    }

    /// As a ring gives it: header, fixed-size argument in a larger area, rest.
    pub(crate) fn split(&self) -> (Vec<u8>, Vec<u8>, Vec<u8>) {
        let mut fixed = self.fixed.clone();
        fixed.resize(128, 0xaa);
        (
            self.contiguous()[..IN_HEADER_LEN].to_vec(),
            fixed,
            self.payload.clone(),
        )
    }
}

/// Makes a request of `bytes` whatever they are, with the length put right.
pub(crate) fn with_length(mut bytes: Vec<u8>) -> Vec<u8> {
    let len = u32::try_from(bytes.len()).unwrap();
    if let Some(place) = bytes.get_mut(..4) {
        place.copy_from_slice(&len.to_ne_bytes());
    }
    bytes
}

pub(crate) fn raw(bytes: &[u8]) -> RawRequest<'_> {
    RawRequest::contiguous(bytes).unwrap()
}

pub(crate) fn init(flags: u64) -> Builder {
    let low = u32::try_from(flags & 0xffff_ffff).unwrap() | 1 << 30;
    Builder::new(opcode::INIT, 0)
        .fixed(input::InitShortIn {
            major: 7,
            minor: 45,
            max_readahead: 131_072,
            flags: low,
        })
        .fixed(input::InitExtIn {
            flags2: u32::try_from(flags >> 32).unwrap(),
            unused: [0; 11],
        })
}

/// A well-formed request of every kind.
pub(crate) fn one_of_each() -> Vec<Builder> {
    let new = |opcode| Builder::new(opcode, 5);
    let read = input::ReadIn {
        fh: 9,
        offset: 4096,
        size: 100,
        read_flags: 0,
        lock_owner: 0,
        flags: 0,
        padding: 0,
    };
    let release = input::ReleaseIn {
        fh: 9,
        flags: 2,
        release_flags: 0,
        lock_owner: 0,
    };
    let fsync = input::FsyncIn {
        fh: 9,
        fsync_flags: 1,
        padding: 0,
    };
    let create = input::CreateIn {
        flags: 0o102,
        mode: 0o100_644,
        umask: 0o22,
        open_flags: 1,
    };
    let copy = input::CopyFileRangeIn {
        fh_in: 9,
        off_in: 1,
        nodeid_out: 6,
        fh_out: 10,
        off_out: 2,
        len: 1 << 33,
        flags: 0,
    };
    let size = input::GetxattrIn {
        size: 64,
        padding: 0,
    };
    let open = input::OpenIn {
        flags: 0,
        open_flags: 0,
    };
    vec![
        new(opcode::LOOKUP).string(b"name"),
        new(opcode::FORGET).fixed(input::ForgetIn { nlookup: 3 }),
        new(opcode::GETATTR).fixed(input::GetattrIn {
            getattr_flags: 1,
            dummy: 0,
            fh: 9,
        }),
        new(opcode::SETATTR).fixed(input::SetattrIn {
            valid: 0x7ff,
            padding: 0,
            fh: 9,
            size: 10,
            lock_owner: 0,
            atime: 1,
            mtime: u64::MAX,
            ctime: 3,
            atimensec: 4,
            mtimensec: 5,
            ctimensec: 6,
            mode: 0o644,
            unused4: 0,
            uid: 7,
            gid: 8,
            unused5: 0,
        }),
        new(opcode::READLINK),
        new(opcode::SYMLINK).string(b"name").string(b"to/where"),
        new(opcode::MKNOD)
            .fixed(input::MknodIn {
                mode: 0o020_600,
                rdev: 0x103,
                umask: 0o22,
                padding: 0,
            })
            .string(b"name"),
        new(opcode::MKDIR)
            .fixed(input::MkdirIn {
                mode: 0o755,
                umask: 0o22,
            })
            .string(b"name"),
        new(opcode::UNLINK).string(b"name"),
        new(opcode::RMDIR).string(b"name"),
        new(opcode::RENAME)
            .fixed(input::RenameIn { newdir: 6 })
            .string(b"name")
            .string(b"new"),
        new(opcode::LINK)
            .fixed(input::LinkIn { oldnodeid: 6 })
            .string(b"name"),
        new(opcode::OPEN).fixed(open),
        new(opcode::READ).fixed(read),
        new(opcode::WRITE)
            .fixed(input::WriteIn {
                fh: 9,
                offset: 4096,
                size: 4,
                write_flags: 5,
                lock_owner: 0,
                flags: 2,
                padding: 0,
            })
            .bytes(b"data"),
        new(opcode::STATFS),
        new(opcode::RELEASE).fixed(release),
        new(opcode::FSYNC).fixed(fsync),
        new(opcode::SETXATTR)
            .fixed(input::SetxattrShortIn { size: 5, flags: 1 })
            .string(b"user.x")
            .bytes(b"value"),
        new(opcode::GETXATTR).fixed(size).string(b"user.x"),
        new(opcode::LISTXATTR).fixed(size),
        new(opcode::REMOVEXATTR).string(b"user.x"),
        new(opcode::FLUSH).fixed(input::FlushIn {
            fh: 9,
            unused: 0,
            padding: 0,
            lock_owner: 0,
        }),
        init(u64::MAX),
        new(opcode::OPENDIR).fixed(open),
        new(opcode::READDIR).fixed(read),
        new(opcode::RELEASEDIR).fixed(release),
        new(opcode::FSYNCDIR).fixed(fsync),
        new(opcode::ACCESS).fixed(input::AccessIn {
            mask: 4,
            padding: 0,
        }),
        new(opcode::CREATE).fixed(create).string(b"name"),
        new(opcode::INTERRUPT).fixed(1_u64),
        new(opcode::DESTROY),
        new(opcode::IOCTL)
            .fixed(input::IoctlIn {
                fh: 9,
                flags: 0,
                cmd: 0x6601,
                arg: 0,
                in_size: 3,
                out_size: 8,
            })
            .bytes(b"abc"),
        new(opcode::BATCH_FORGET)
            .fixed(input::BatchForgetIn { count: 2, dummy: 0 })
            .bytes([5_u64, 1, 6, 2].as_bytes()),
        new(opcode::FALLOCATE).fixed(input::FallocateIn {
            fh: 9,
            offset: 1,
            length: 2,
            mode: 3,
            padding: 0,
        }),
        new(opcode::READDIRPLUS).fixed(read),
        new(opcode::RENAME2)
            .fixed(input::Rename2In {
                newdir: 6,
                flags: 1,
                padding: 0,
            })
            .string(b"name")
            .string(b"new"),
        new(opcode::LSEEK).fixed(input::LseekIn {
            fh: 9,
            offset: 1,
            whence: 4,
            padding: 0,
        }),
        new(opcode::COPY_FILE_RANGE).fixed(copy),
        new(opcode::SYNCFS).fixed(0_u64),
        new(opcode::TMPFILE).fixed(create),
        new(opcode::STATX).fixed(input::StatxIn {
            getattr_flags: 0,
            reserved: 0,
            fh: 0,
            sx_flags: 0,
            sx_mask: 0xfff,
        }),
        new(opcode::COPY_FILE_RANGE_64).fixed(copy),
    ]
}
