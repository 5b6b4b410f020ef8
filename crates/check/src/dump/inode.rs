//! Inodes, directories and files.

use super::values::value;
use super::{dirent, ifile_entry, line, pointer, text, tree_root, xattr};
use crate::reader::TreeSpec;
use crate::{CheckError, Volume};
use loamfs_format::atime::ATIME_INO;
use loamfs_format::dirent::InlineMap;
use loamfs_format::inode::{Body, Inode, mode};
use loamfs_format::{BlockKind, Ino, InodeBlockNo};

/// The IFILE's entries, one a line.
pub fn ifile(volume: &Volume<'_>) -> String {
    let mut out = String::new();
    for item in volume.ifile(InodeBlockNo(0)) {
        match item {
            Ok((block, entry)) => {
                line(
                    &mut out,
                    format_args!("block {block} {}", ifile_entry(&entry)),
                );
            }
            Err(fault) => line(&mut out, fault),
        }
    }
    out
}

/// One inode: its fields, its attributes, and where its content is.
///
/// # Errors
/// When it does not live, or cannot be read.
pub fn inode(volume: &Volume<'_>, ino: Ino) -> Result<String, CheckError> {
    let inode = volume.inode(ino)?;
    let mut out = String::new();
    line(
        &mut out,
        format_args!(
            "inode {ino} {} mode {:o} links {} size {} fragments {}",
            type_name(&inode),
            inode.mode,
            inode.nlink,
            inode.size,
            inode.frags
        ),
    );
    line(
        &mut out,
        format_args!(
            "owner {}:{} project {} flags {:#x} device {:#x}",
            inode.uid, inode.gid, inode.project, inode.flags, inode.rdev
        ),
    );
    line(
        &mut out,
        format_args!(
            "generation {:08x} version {} segment {} parent {} anchor {}",
            inode.generation, inode.version, inode.ssn, inode.parent, inode.anchor
        ),
    );
    for (name, time) in [
        ("access", inode.atime),
        ("modify", inode.mtime),
        ("change", inode.ctime),
        ("birth", inode.btime),
    ] {
        line(
            &mut out,
            format_args!("{name} {}.{:09}", time.seconds, time.nanos),
        );
    }
    if inode.truncating != u64::MAX {
        line(
            &mut out,
            format_args!("being cut to {} bytes", inode.truncating),
        );
    }
    body(&mut out, &inode);
    if !inode.checksums.is_empty() {
        line(
            &mut out,
            format_args!("checksum {}", tree_root(&inode.checksums)),
        );
    }
    xattrs(&mut out, volume, &inode);
    Ok(out)
}

fn body(out: &mut String, inode: &Inode) {
    match &inode.body {
        Body::Empty => line(out, "no content"),
        Body::Inline(data) => line(out, format_args!("inline \"{}\"", text(data))),
        Body::InlineDir(data) => line(
            out,
            format_args!("inline directory of {} bytes", data.len()),
        ),
        Body::Small(data) => line(out, format_args!("data at {}", pointer(data))),
        Body::Extents(extents) => line(out, format_args!("{} extents", extents.len())),
        Body::ExtentTree(tree) => line(out, format_args!("extent {}", tree_root(tree))),
        Body::DirTree(tree) => line(out, format_args!("directory {}", tree_root(tree))),
    }
}

fn xattrs(out: &mut String, volume: &Volume<'_>, inode: &Inode) {
    let (ino, generation) = (inode.ino, inode.generation);
    let spec = TreeSpec {
        kind: BlockKind::XattrNode,
        ino,
        generation,
        root: inode.xattrs,
    };
    let InlineMap(inline) = InlineMap::decode(&inode.inline_xattrs).unwrap_or_default();
    for (key, value) in &inline {
        line(out, format_args!("attribute {}", xattr(*key, value)));
    }
    if !inode.xattrs.is_empty() {
        line(out, format_args!("attribute {}", tree_root(&inode.xattrs)));
    }
    for entry in volume.entries(spec, 0) {
        match entry {
            Ok(entry) => line(
                out,
                format_args!("attribute {}", xattr(entry.key(), entry.value())),
            ),
            Err(fault) => line(out, fault),
        }
    }
}

/// The entries of a directory, by key.
///
/// # Errors
/// When the inode is no directory, or cannot be read.
pub fn directory(volume: &Volume<'_>, ino: Ino) -> Result<String, CheckError> {
    let mut out = String::new();
    for entry in volume.directory(&volume.inode(ino)?)? {
        match entry {
            Ok(entry) => line(
                &mut out,
                dirent(entry.key, entry.ino, entry.file_type, &entry.name),
            ),
            Err(fault) => line(&mut out, fault),
        }
    }
    Ok(out)
}

/// The extents of a large file, by block.
///
/// # Errors
/// When the inode cannot be read.
pub fn extents(volume: &Volume<'_>, ino: Ino) -> Result<String, CheckError> {
    let mut out = String::new();
    for extent in volume.extents(&volume.inode(ino)?) {
        match extent {
            Ok(extent) => line(
                &mut out,
                format_args!("block {} at {}", extent.block, pointer(&extent.pointer)),
            ),
            Err(fault) => line(&mut out, fault),
        }
    }
    Ok(out)
}

/// The checksums of a large file's units.
///
/// # Errors
/// When the inode cannot be read.
pub fn checksums(volume: &Volume<'_>, ino: Ino) -> Result<String, CheckError> {
    let inode = volume.inode(ino)?;
    let spec = TreeSpec::checksums(&inode);
    let mut out = String::new();
    for entry in volume.entries(spec, 0) {
        match entry {
            Ok(entry) => line(&mut out, value(spec.kind, ino, entry.key(), entry.value())),
            Err(fault) => line(&mut out, fault),
        }
    }
    Ok(out)
}

/// The access times that are kept beside the inodes, an inode block a line, with those that do not count any more.
///
/// # Errors
/// When the file that keeps them cannot be read.
pub fn atimes(volume: &Volume<'_>) -> Result<String, CheckError> {
    match checksums(volume, ATIME_INO) {
        Err(CheckError::NoInode { .. }) => Ok(String::new()),
        kept => kept,
    }
}

const fn type_name(inode: &Inode) -> &'static str {
    match inode.file_type() {
        mode::SOCKET => "socket",
        mode::SYMLINK => "symlink",
        mode::REGULAR => "file",
        mode::BLOCK => "block device",
        mode::DIRECTORY => "directory",
        mode::CHARACTER => "character device",
        mode::FIFO => "fifo",
        _ => "of no type",
    }
}
