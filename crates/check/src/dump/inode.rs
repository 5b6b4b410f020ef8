//! Inodes, directories and files.

use super::values::{
    crc_run, dirent, entries, file_extent, ifile_entry, pointer, table_entry, time, tree_root,
    value,
};
use super::view::{View, Worded, hash, hash32, lines, lines_or_faults, text, worded};
use crate::reader::TreeSpec;
use crate::{CheckError, Volume};
use loamfs_format::atime::ATIME_INO;
use loamfs_format::dirent::InlineMap;
use loamfs_format::inode::{Body, Inode, Placement, Table, Tiering, mode};
use loamfs_format::node::TreeRoot;
use loamfs_format::{BlockKind, Ino, InodeBlockNo};

/// The IFILE's entries.
pub fn ifile(volume: &Volume<'_>) -> Box<dyn View> {
    let entries = volume.ifile(InodeBlockNo(0));
    Box::new(lines_or_faults(entries, |(block, entry)| {
        ifile_entry(block, &entry)
    }))
}

/// One inode: its fields, its attributes, and where its content is.
///
/// # Errors
/// When it does not live, or cannot be read.
pub fn inode(volume: &Volume<'_>, ino: Ino) -> Result<Box<dyn View>, CheckError> {
    let inode = volume.inode(ino)?;
    let truncating = Some(inode.truncating).filter(|size| *size != u64::MAX);
    Ok(view!(
        "inode {inode} {type} mode {mode} links {links} size {size} fragments {fragments}\n\
         owner {owner}:{group} project {project} flags {flags} device {device}\n\
         generation {generation} version {version} segment {segment} parent {parent} anchor \
         {anchor}\n\
         access {access}\nmodify {modify}\nchange {change}\nbirth {birth}\n\
         {truncating}{content}\n{tracks}{placement}{tier}{checksums}{crcs}{attributes}",
        inode = ino.0,
        r#type = type_name(&inode),
        mode = format!("{:o}", inode.mode),
        links = inode.nlink,
        size = inode.size,
        fragments = inode.frags,
        owner = inode.uid,
        group = inode.gid,
        project = inode.project,
        flags = format!("{:#x}", inode.flags),
        device = format!("{:#x}", inode.rdev),
        generation = hash32(inode.generation),
        version = inode.version,
        segment = inode.ssn.0,
        parent = inode.parent.0,
        anchor = inode.anchor.0,
        access = time(inode.atime),
        modify = time(inode.mtime),
        change = time(inode.ctime),
        birth = time(inode.btime),
        truncating = worded(
            truncating,
            truncating.map_or(String::new(), |size| format!("being cut to {size} bytes\n")),
        ),
        content = content(&inode.body),
        tracks = tracks(&inode.table),
        placement = placement(inode.placement),
        tier = tier(inode.tier),
        checksums = tree_line("checksum", BlockKind::ChecksumNode, &inode.checksums),
        crcs = crcs(inode.crcs.len()),
        attributes = attributes(volume, &inode),
    ))
}

fn content(body: &Body) -> Box<dyn View> {
    match body {
        Body::Empty => Box::new(worded((), "no content")),
        Body::Inline(data) => view!("inline \"{inline}\"", inline = text(data)),
        Body::InlineDir(data) => view!(
            "inline directory of {inline_directory} bytes",
            inline_directory = data.len(),
        ),
        Body::Small(data) => view!("data at {data}", data = pointer(data)),
        Body::Extents(extents) => view!("{extents} extents", extents = extents.len()),
        Body::ExtentTree(tree) => view!(
            "extent {extent_tree}",
            extent_tree = tree_root(BlockKind::ExtentNode, tree),
        ),
        Body::DirTree(tree) => view!(
            "directory {directory_tree}",
            directory_tree = tree_root(BlockKind::DirNode, tree),
        ),
        Body::Settled(settled) => view!(
            "settled: data at {settled}, slot {slot} of a track with key {key}",
            settled = pointer(&settled.pointer),
            slot = settled.slot,
            key = hash(settled.key),
        ),
    }
}

/// Where a directory's table of tracks is, if it has one.
fn tracks(table: &Table) -> Worded<Option<Box<dyn View>>> {
    let table = match table {
        Table::None => None,
        Table::Inline(bytes) => Some(view!(
            "table of tracks of {inline} bytes\n",
            inline = bytes.len(),
        )),
        Table::Tree(root) => Some(view!(
            "table of tracks: {tree}\n",
            tree = tree_root(BlockKind::TrackNode, root),
        )),
    };
    let words = table.as_ref().map(ToString::to_string);
    worded(table, words.unwrap_or_default())
}

/// How many checksums the inode has, if any; they are listed by [`checksums`].
fn crcs(count: usize) -> Worded<Option<usize>> {
    match count {
        0 => worded(None, ""),
        _ => worded(Some(count), format!("{count} checksums in the inode\n")),
    }
}

/// Where small files of a directory go, if it says so.
fn placement(placement: Placement) -> Worded<Option<&'static str>> {
    let said = Some(placement).filter(|it| *it != Placement::Auto);
    let word = said.map(Placement::word);
    worded(
        word,
        word.map_or(String::new(), |word| format!("small files: {word}\n")),
    )
}

/// On which devices large files of a directory go, if it says so.
fn tier(on: Tiering) -> Worded<Option<&'static str>> {
    let said = Some(on).filter(|it| *it != Tiering::default());
    let text = match said {
        None => String::new(),
        Some(Tiering::On(tier)) => format!("large files: on {} devices\n", tier.word()),
        Some(on @ Tiering::UpTo(_)) => {
            format!("large files: up to {} on fast devices\n", on.word())
        }
        Some(Tiering::Bypass) => "large files: on slow devices, past the fast ones\n".to_owned(),
        Some(Tiering::WriteBack) => {
            "large files: on fast devices, and later on slow ones\n".to_owned()
        }
    };
    worded(said.map(Tiering::word), text)
}

/// The root of a tree as a line of its own, if there is one.
fn tree_line(what: &str, kind: BlockKind, root: &TreeRoot) -> Worded<Option<Box<dyn View>>> {
    let tree = (!root.is_empty()).then(|| tree_root(kind, root));
    let words = tree.as_ref().map(|tree| format!("{what} {tree}\n"));
    worded(tree, words.unwrap_or_default())
}

/// The attributes in the inode, the root of the tree of the others, and those.
fn attributes(volume: &Volume<'_>, inode: &Inode) -> Box<dyn View> {
    let spec = TreeSpec {
        kind: BlockKind::XattrNode,
        ino: inode.ino,
        generation: inode.generation,
        root: inode.xattrs,
    };
    let attribute = |key, bytes: &[u8]| -> Box<dyn View> {
        let attribute = value(volume, (spec.kind, spec.ino), key, bytes);
        let words = format!("attribute {attribute}");
        Box::new(worded(attribute, words))
    };
    let InlineMap(inline) = InlineMap::decode(&inode.inline_xattrs).unwrap_or_default();
    view!(
        "{inline}{tree}{in_tree}",
        inline = lines(inline.iter().map(|(key, bytes)| attribute(*key, bytes))),
        tree = tree_line("attribute", spec.kind, &spec.root),
        in_tree = lines_or_faults(volume.entries(spec, 0), |entry| attribute(
            entry.key(),
            entry.value()
        )),
    )
}

/// The entries of a directory, by key, and behind them those of its table of tracks.
///
/// # Errors
/// When the inode is no directory, or cannot be read.
pub fn directory(volume: &Volume<'_>, ino: Ino) -> Result<Box<dyn View>, CheckError> {
    let inode = volume.inode(ino)?;
    let mut entries = lines_or_faults(volume.directory(&inode)?, |entry| {
        dirent(entry.key, entry.ino, entry.file_type, &entry.name)
    });
    let table = lines_or_faults(volume.table(&inode), |(low, entry)| {
        table_entry(low, &entry)
    });
    entries.views.extend(table.views);
    Ok(Box::new(entries))
}

/// The extents of a large file, by block.
///
/// # Errors
/// When the inode cannot be read.
pub fn extents(volume: &Volume<'_>, ino: Ino) -> Result<Box<dyn View>, CheckError> {
    let inode = volume.inode(ino)?;
    let extents = volume.extents(&inode);
    Ok(Box::new(lines_or_faults(extents, |extent| {
        file_extent(extent.block, &extent.pointer)
    })))
}

/// The checksums of a large file's units.
///
/// # Errors
/// When the inode cannot be read.
pub fn checksums(volume: &Volume<'_>, ino: Ino) -> Result<Box<dyn View>, CheckError> {
    let inode = volume.inode(ino)?;
    Ok(Box::new(match inode.checksums.is_empty() {
        true if !inode.crcs.is_empty() => lines([crc_run(0, &inode.inline_run(0))]),
        _ => entries(volume, TreeSpec::checksums(&inode)),
    }))
}

/// The access times that are kept beside the inodes, by inode block, with those that do not count any more.
///
/// # Errors
/// When the file that keeps them cannot be read.
pub fn atimes(volume: &Volume<'_>) -> Result<Box<dyn View>, CheckError> {
    match checksums(volume, ATIME_INO) {
        Err(CheckError::NoInode { .. }) => Ok(Box::new(lines([]))),
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
