//! What stands in the trees, each value as a piece of a line.

use loamfs_format::atime::{ATIME_INO, AtimeRun};
use loamfs_format::dirent::Dirent;
use loamfs_format::group::{CHUNK_BYTES, CHUNK_FRAGS, GroupDesc};
use loamfs_format::ifile::{IfileEntry, ino_at};
use loamfs_format::maps::{CrcRun, LazyEntry, OwnerRecord};
use loamfs_format::node::TreeRoot;
use loamfs_format::pointer::RawPointer;
use loamfs_format::xattr::{Value, Xattr};
use loamfs_format::{BlockKind, Extent, FragAddr, Ino, InodeBlockNo, Pointer};
use zerocopy::FromBytes;

/// An entry of a leaf of a tree of this kind, which belongs to `ino`.
pub(super) fn value(kind: BlockKind, ino: Ino, key: u64, bytes: &[u8]) -> String {
    let said = match kind {
        BlockKind::IfileNode => {
            IfileEntry::decode(bytes).map(|e| format!("block {key} {}", ifile_entry(&e)))
        }
        BlockKind::BitmapNode => Some(bitmap_chunk(key, bytes)),
        BlockKind::OwnerNode => OwnerRecord::decode(bytes).map(|o| owner(key, &o)),
        BlockKind::GroupNode => GroupDesc::decode(bytes).map(|d| group(key, &d)),
        BlockKind::LazyNode => {
            LazyEntry::decode(bytes).map(|e| format!("home {key} {}", lazy_entry(&e)))
        }
        BlockKind::DirNode => {
            Dirent::decode(bytes).map(|d| dirent(key, d.ino, d.file_type, d.name))
        }
        BlockKind::ExtentNode => RawPointer::ref_from_bytes(bytes)
            .ok()
            .map(|raw| format!("block {key} at {}", pointer(&Pointer::decode(raw)))),
        BlockKind::ChecksumNode if ino == ATIME_INO => {
            AtimeRun::decode(bytes).map(|run| atime_run(key, &run))
        }
        BlockKind::ChecksumNode => Some(crc_run(key, bytes)),
        BlockKind::XattrNode => Some(xattr(key, bytes)),
        _ => None,
    };
    said.unwrap_or_else(|| format!("key {key}: malformed: {}", hex(bytes)))
}

pub(super) fn pointer(p: &Pointer) -> String {
    format!(
        "{:?} stored {} birth {} checksum {:016x}",
        p.extent(),
        p.stored,
        p.birth,
        p.checksum
    )
}

pub(super) fn tree_root(root: &TreeRoot) -> String {
    format!(
        "tree at {} level {} from {} on",
        pointer(&root.pointer),
        root.level,
        root.low
    )
}

pub(super) fn ifile_entry(entry: &IfileEntry) -> String {
    format!(
        "at {} live {:08x} orphan {:08x} segment {}",
        pointer(&entry.pointer),
        entry.live,
        entry.orphan,
        entry.ssn
    )
}

pub(super) fn lazy_entry(entry: &LazyEntry) -> String {
    format!(
        "image {} crc {:08x} inode {} unit {} segment {}",
        entry.image, entry.crc, entry.ino, entry.unit, entry.ssn
    )
}

fn owner(start: u64, owner: &OwnerRecord) -> String {
    format!(
        "{:?} {:?} level {} inode {}, logical {}",
        Extent::new(FragAddr(start), owner.frags.into()),
        owner.kind,
        owner.level,
        owner.ino,
        owner.logical
    )
}

pub(super) fn group(number: u64, desc: &GroupDesc) -> String {
    format!(
        "group {number} {:?}: {} fragments set, {} directories",
        desc.role, desc.used, desc.directories
    )
}

/// A chunk of the bitmap: the runs of set bits.
pub(super) fn bitmap_chunk(key: u64, bytes: &[u8]) -> String {
    let start = key.saturating_mul(CHUNK_FRAGS);
    if bytes.is_empty() {
        return format!("chunk {key}: @{start}+{CHUNK_FRAGS}");
    }
    if bytes.len() != CHUNK_BYTES {
        return format!("chunk {key}: malformed: {}", hex(bytes));
    }
    let is_set = |bit: u64| bytes[(bit / 8) as usize] & (1 << (bit % 8)) != 0;
    let mut runs = Vec::new();
    let mut bit = 0;
    while bit < CHUNK_FRAGS {
        let len = (bit..CHUNK_FRAGS).take_while(|at| is_set(*at)).count() as u64;
        if len > 0 {
            runs.push(format!(" @{}+{len}", start.saturating_add(bit)));
        }
        bit += len + 1;
    }
    format!("chunk {key}:{}", runs.concat())
}

pub(super) fn dirent(key: u64, ino: Ino, file_type: u8, name: &[u8]) -> String {
    format!("{key:016x} inode {ino} type {file_type} {}", text(name))
}

/// The checksums of up to 64 units, those without data as a dash.
/// Access times, each with the low half of the segment with which it counts.
fn atime_run(key: u64, run: &AtimeRun) -> String {
    let times = (0u32..).zip(&run.0).filter_map(|(slot, atime)| {
        let (ino, atime) = (ino_at(InodeBlockNo(key), slot), (*atime)?);
        let (seconds, nanos) = (atime.time.seconds, atime.time.nanos);
        Some(format!(
            " inode {ino} {seconds}.{nanos:09} of segment {};",
            atime.ssn
        ))
    });
    format!("block {key}:{}", times.collect::<String>())
}

fn crc_run(key: u64, bytes: &[u8]) -> String {
    let Some(CrcRun(run)) = CrcRun::decode(bytes) else {
        return format!("units of run {key}: malformed: {}", hex(bytes));
    };
    let used = run.iter().rposition(|crc| *crc != 0).map_or(0, |at| at + 1);
    let crcs = run[..used].iter().map(|crc| match crc {
        0 => " -".to_owned(),
        crc => format!(" {crc:08x}"),
    });
    format!(
        "units from {} on:{}",
        key.saturating_mul(run.len() as u64),
        crcs.collect::<String>()
    )
}

pub(super) fn xattr(key: u64, bytes: &[u8]) -> String {
    let Some(xattr) = Xattr::decode(bytes) else {
        return format!("{key:016x} malformed: {}", hex(bytes));
    };
    let name = text(&xattr.full_name());
    match &xattr.value {
        Value::Bytes(bytes) => format!("{key:016x} {name} = \"{}\"", text(bytes)),
        Value::Log(pieces) => {
            let pieces: Vec<String> = pieces.iter().map(pointer).collect();
            format!("{key:016x} {name} at {}", pieces.join(", "))
        }
    }
}

pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Bytes as text, with what is not printable escaped.
pub(super) fn text(bytes: &[u8]) -> String {
    bytes.escape_ascii().to_string()
}
