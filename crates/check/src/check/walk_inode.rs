//! What an inode says by itself, and the way to its content.

use super::Walker;
use crate::Problem;
use crate::reader::{TreeSpec, TreeWalk};
use loamfs_format::Ssn;
use loamfs_format::atime::{ATIME_INO, is_atime_file};
use loamfs_format::inode::{Inode, flag, mode};

impl Walker<'_, '_> {
    /// Checks a live inode of a block whose entry says that it changed last in segment `limit`.
    pub(super) fn inode(&mut self, inode: &Inode, orphan: bool, limit: Ssn) {
        let ino = inode.ino;
        // The bit also marks a file with names while a truncate of it is pending.
        let cut = inode.nlink > 0 && inode.truncating != u64::MAX;
        let orphan = orphan && !cut;
        let keeps_atimes = is_atime_file(inode);
        if keeps_atimes {
            self.visitor.reserved();
        } else {
            self.visitor.inode(inode, orphan);
        }
        if ino == ATIME_INO && !keeps_atimes {
            self.visitor.problem(Problem::AtimeFile {});
        }
        if inode.generation == 0 {
            self.visitor.problem(Problem::Generation { ino });
        }
        let dirs_only = if inode.is_dir() {
            0
        } else {
            flag::PROJECT_INHERIT
        };
        if inode.flags & !(flag::ALL & !dirs_only) != 0 {
            let flags = inode.flags;
            self.visitor.problem(Problem::InodeFlags { ino, flags });
        }
        if orphan != (inode.nlink == 0) {
            self.visitor.problem(Problem::OrphanBit {
                ino,
                nlink: inode.nlink,
                orphan,
            });
        }
        if inode.ssn > limit {
            self.visitor.problem(Problem::InodeSsn {
                ino,
                ssn: inode.ssn,
                limit,
            });
        }
        if !is_type(inode.file_type()) {
            self.visitor.problem(Problem::InodeType {
                ino,
                mode: inode.mode,
            });
        }
        if keeps_atimes {
            return self.atimes(inode);
        }
        self.xattrs(inode);
        if inode.is_dir() {
            self.no_checksums(inode);
            self.directory(inode);
        } else {
            self.file(inode);
        }
    }

    /// Says that a directory has checksums, and claims what they take: they go with it.
    fn no_checksums(&mut self, inode: &Inode) {
        let ino = inode.ino;
        if !inode.checksums.is_empty() {
            self.visitor.problem(Problem::DirChecksums { ino });
        }
        for node in TreeWalk::new(self.volume, TreeSpec::checksums(inode), 0) {
            self.node(node);
        }
    }
}

const fn is_type(file_type: u32) -> bool {
    matches!(
        file_type,
        mode::SOCKET
            | mode::SYMLINK
            | mode::REGULAR
            | mode::BLOCK
            | mode::DIRECTORY
            | mode::CHARACTER
            | mode::FIFO
    )
}
