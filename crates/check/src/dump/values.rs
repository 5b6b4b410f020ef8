//! What stands in the trees.

use super::view::{
    Each, Key, View, hash, hash32, hex, lines_or_faults, mark, name, row, text, worded,
};
use crate::Volume;
use crate::reader::TreeSpec;
use loamfs_format::atime::{ATIME_INO, AtimeRun};
use loamfs_format::checksum::CrcRun;
use loamfs_format::dirent::Dirent;
use loamfs_format::group::{CHUNK_BYTES, CHUNK_FRAGS, GroupDesc};
use loamfs_format::ifile::{IfileEntry, ino_at};
use loamfs_format::inode::Timestamp;
use loamfs_format::kind::{Belongs, InodeTree, MapTree};
use loamfs_format::maps::{LazyEntry, OwnerRecord};
use loamfs_format::node::TreeRoot;
use loamfs_format::pointer::RawPointer;
use loamfs_format::track::TableEntry;
use loamfs_format::xattr::{Value, Xattr};
use loamfs_format::{BlockKind, Extent, FragAddr, Ino, InodeBlockNo, Pointer};
use zerocopy::FromBytes;

/// The entries of a tree.
pub(super) fn entries(volume: &Volume<'_>, spec: TreeSpec) -> Each {
    lines_or_faults(volume.entries(spec, 0), |entry| {
        value(volume, (spec.kind, spec.ino), entry.key(), entry.value())
    })
}

/// An entry of a leaf of a tree of this kind, which belongs to `ino`.
pub(super) fn value(
    volume: &Volume<'_>,
    (kind, ino): (BlockKind, Ino),
    key: u64,
    bytes: &[u8],
) -> Box<dyn View> {
    let said = match kind.belongs() {
        Belongs::Map(map) => of_map(map, key, bytes),
        Belongs::Tree(tree) => of_tree(volume, (tree, ino), key, bytes),
        Belongs::Volume | Belongs::Inodes | Belongs::Part(_) => None,
    };
    said.unwrap_or_else(|| malformed(kind, key, bytes))
}

fn of_map(map: MapTree, key: u64, bytes: &[u8]) -> Option<Box<dyn View>> {
    match map {
        MapTree::Ifile => IfileEntry::decode(bytes).map(|e| ifile_entry(key, &e)),
        MapTree::Bitmap => bitmap_chunk(key, bytes),
        MapTree::Owner => OwnerRecord::decode(bytes).map(|o| {
            let extent = Extent::new(FragAddr(key), o.frags.into());
            owner(extent, o.kind, o.level, o.ino, o.logical)
        }),
        MapTree::Group => GroupDesc::decode(bytes).map(|d| group(key, &d)),
        MapTree::Lazy => LazyEntry::decode(bytes).map(|e| lazy_entry(key, &e)),
    }
}

fn of_tree(
    volume: &Volume<'_>,
    (tree, ino): (InodeTree, Ino),
    key: u64,
    bytes: &[u8],
) -> Option<Box<dyn View>> {
    match tree {
        InodeTree::Dir => Dirent::decode(bytes).map(|d| dirent(key, d.ino, d.file_type, d.name)),
        InodeTree::Extent => RawPointer::ref_from_bytes(bytes)
            .ok()
            .map(|raw| file_extent(key, &Pointer::decode(raw))),
        InodeTree::Checksum if ino == ATIME_INO => {
            AtimeRun::decode(bytes).map(|run| atime_run(key, &run))
        }
        InodeTree::Checksum => CrcRun::decode(bytes).map(|run| crc_run(key, &run)),
        InodeTree::Xattr => Xattr::decode(bytes).map(|x| xattr(key, &x)),
        InodeTree::Track => {
            let frag = volume.geometry().fragment_size;
            TableEntry::decode(bytes, frag).map(|entry| table_entry(key, &entry))
        }
    }
}

pub(super) fn malformed(kind: BlockKind, key: u64, bytes: &[u8]) -> Box<dyn View> {
    view!(
        "key {key}: malformed: {malformed}",
        key = Key(kind, key),
        malformed = hex(bytes),
    )
}

pub(super) fn extent(extent: Extent) -> Box<dyn View> {
    view!(
        "@{at}+{fragments}",
        at = extent.start.0,
        fragments = extent.frags,
    )
}

pub(super) fn pointer(p: &Pointer) -> Box<dyn View> {
    view!(
        "{extent} stored {stored} birth {birth} checksum {checksum}",
        extent = extent(p.extent()),
        stored = p.stored,
        birth = p.birth.0,
        checksum = hash(p.checksum),
    )
}

pub(super) fn tree_root(kind: BlockKind, root: &TreeRoot) -> Box<dyn View> {
    view!(
        "tree at {pointer} level {level} from {from} on",
        pointer = pointer(&root.pointer),
        level = root.level,
        from = Key(kind, root.low),
    )
}

pub(super) fn ifile_entry(block: u64, entry: &IfileEntry) -> Box<dyn View> {
    view!(
        "block {block} at {pointer} live {live} packed {packed} orphan {orphan} segment {segment}",
        block = block,
        pointer = pointer(&entry.pointer),
        live = hash32(entry.live),
        packed = hash32(entry.packed),
        orphan = hash32(entry.orphan),
        segment = entry.ssn.0,
    )
}

pub(super) fn lazy_entry(home: u64, entry: &LazyEntry) -> Box<dyn View> {
    view!(
        "home {home} image {image} crc {crc} inode {inode} unit {unit} segment {segment}",
        home = home,
        image = entry.image.0,
        crc = hash32(entry.crc),
        inode = entry.ino.0,
        unit = entry.unit,
        segment = entry.ssn.0,
    )
}

pub(super) fn owner(
    range: Extent,
    kind: BlockKind,
    level: u8,
    ino: Ino,
    logical: u64,
) -> Box<dyn View> {
    view!(
        "{extent} {kind} level {level} inode {inode}, logical {logical}",
        extent = extent(range),
        kind = name(kind),
        level = level,
        inode = ino.0,
        logical = Key(kind, logical),
    )
}

pub(super) fn group(number: u64, desc: &GroupDesc) -> Box<dyn View> {
    view!(
        "group {group} {role}: {used} fragments set, {directories} directories",
        group = number,
        role = name(desc.role),
        used = desc.used,
        directories = desc.directories,
    )
}

/// A chunk of the bitmap: the runs of set bits.
fn bitmap_chunk(key: u64, bytes: &[u8]) -> Option<Box<dyn View>> {
    let whole = [u8::MAX; CHUNK_BYTES];
    let bytes = match bytes.len() {
        0 => &whole,
        CHUNK_BYTES => bytes,
        _ => return None,
    };
    let start = key.saturating_mul(CHUNK_FRAGS);
    let is_set = |bit: u64| bytes[(bit / 8) as usize] & (1 << (bit % 8)) != 0;
    let mut runs = Vec::new();
    let mut bit = 0;
    while bit < CHUNK_FRAGS {
        let len = (bit..CHUNK_FRAGS).take_while(|at| is_set(*at)).count() as u64;
        if len > 0 {
            let at = FragAddr(start.saturating_add(bit));
            runs.push(extent(Extent::new(at, len)));
        }
        bit += len + 1;
    }
    Some(view!(
        "chunk {chunk}:{used}",
        chunk = key,
        used = row(runs, "")
    ))
}

pub(super) fn dirent(key: u64, ino: Ino, file_type: u8, name: &[u8]) -> Box<dyn View> {
    view!(
        "{key} inode {inode} type {type} {name}",
        key = hash(key),
        inode = ino.0,
        r#type = file_type,
        name = text(name),
    )
}

pub(super) fn file_extent(block: u64, p: &Pointer) -> Box<dyn View> {
    view!(
        "block {block} at {pointer}{unwritten}",
        block = block,
        pointer = pointer(p),
        unwritten = mark(p.unwritten, " unwritten"),
    )
}

/// What a directory's table says of the names from a key on.
pub(super) fn table_entry(low: u64, entry: &TableEntry) -> Box<dyn View> {
    let filter = match entry.has_filter() {
        true => format!(", filter {}", hash(entry.filter)),
        false => String::new(),
    };
    let track = entry.is_some().then(|| {
        view!(
            "track at {extent} segment {segment} checksum {checksum}: {slots} slots, masked {masked}, \
             {elsewhere} names elsewhere{filter}",
            extent = extent(Extent::new(entry.addr, entry.frags.into())),
            segment = entry.ssn.0,
            checksum = hash(entry.checksum),
            slots = entry.slots,
            masked = hash(entry.stale),
            elsewhere = entry.elsewhere,
            filter = worded(entry.has_filter().then(|| hash(entry.filter)), filter),
        )
    });
    let words = track
        .as_ref()
        .map_or("no track".to_owned(), ToString::to_string);
    view!(
        "names from {names_from} on: {track}",
        names_from = hash(low),
        track = worded(track, words),
    )
}

pub(super) fn time(time: Timestamp) -> Box<dyn View> {
    view!(
        "{seconds}.{nanos:09}",
        seconds = time.seconds,
        nanos = time.nanos,
    )
}

/// Access times, each with the low half of the segment with which it counts.
fn atime_run(key: u64, run: &AtimeRun) -> Box<dyn View> {
    let times = (0u32..).zip(&run.0).filter_map(|(slot, atime)| {
        let (ino, atime) = (ino_at(InodeBlockNo(key), slot), (*atime)?);
        Some(view!(
            "inode {inode} {time} of segment {segment}",
            inode = ino.0,
            time = time(atime.time),
            segment = atime.ssn,
        ))
    });
    view!(
        "block {block}:{times}",
        block = key,
        times = row(times, ";")
    )
}

/// The checksums of up to 64 units, those without data as a dash.
pub(super) fn crc_run(key: u64, run: &CrcRun) -> Box<dyn View> {
    let crcs = run.used().iter().map(|crc| -> Box<dyn View> {
        match crc {
            0 => Box::new(worded((), "-")),
            crc => Box::new(hash32(*crc)),
        }
    });
    view!(
        "units from {from} on:{checksums}",
        from = key.saturating_mul(run.0.len() as u64),
        checksums = row(crcs, ""),
    )
}

fn xattr(key: u64, xattr: &Xattr) -> Box<dyn View> {
    let (key, name) = (hash(key), text(&xattr.full_name()));
    match &xattr.value {
        Value::Bytes(bytes) => view!(
            "{key} {name} = \"{value}\"",
            key = key,
            name = name,
            value = text(bytes),
        ),
        Value::Log(pieces) => {
            let pieces: Vec<_> = pieces.iter().map(pointer).collect();
            let words: Vec<_> = pieces.iter().map(ToString::to_string).collect();
            let pieces = worded(pieces, words.join(", "));
            view!(
                "{key} {name} at {pieces}",
                key = key,
                name = name,
                pieces = pieces
            )
        }
    }
}
