//! Builds tiny volumes by hand, from the format alone.
//!
//! A [`Builder`] holds what a volume says as plain collections. A test takes [`Builder::sample`], makes one of them
//! wrong, and gets a device whose checksums are all right, or damages bytes of a device that is.

use loamfs_format::checksum::unit_crc;
use loamfs_format::dirent::{Dirent, InlineMap, hash_key};
use loamfs_format::group::{GroupDesc, Role};
use loamfs_format::ifile::IfileEntry;
use loamfs_format::inode::{Body, FileExtent, Inode, ROOT_INO, Timestamp, mode};
use loamfs_format::maps::{LazyEntry, OwnerRecord};
use loamfs_format::node::{NODE_SIZE, TreeRoot};
use loamfs_format::pointer::{data_checksum, metadata_checksum};
use loamfs_format::summary::{Allocation, Dynamic, Record, Wait};
use loamfs_format::superblock::{CheckpointRef, DeviceEntry, Geometry, ScrubMark, Superblock};
use loamfs_format::track::TableEntry;
use loamfs_format::xattr::{Value, Xattr};
use loamfs_format::{
    BlockKind, Extent, FragAddr, Identity, Ino, InodeBlockNo, Pointer, Ssn, Token,
};
use std::collections::{BTreeMap, BTreeSet};

mod random;
mod segments;
mod trees;

pub use random::{Rng, content};

pub const FRAG: u64 = 1024;
pub const BLOCK: u64 = 16 * 1024;
pub const BLOCK_FRAGS: u64 = BLOCK / FRAG;
pub const UNIT: u64 = 4096;
pub const UNIT_FRAGS: u64 = UNIT / FRAG;
pub const TOTAL: u64 = 4096;
pub const GROUP: u64 = 512;
/// Where the checkpoint's summary is, and how much it takes.
pub const CHECKPOINT: u64 = 1024;
const SUMMARY_FRAGS: u64 = 16;
/// Where the segment after it is.
pub const AFTER: u64 = 1400;
/// The unit reserved behind the last segment.
pub const NEXT: u64 = 1500;
/// Where log blocks from before the checkpoint go, and homed blocks.
const LOG_START: u64 = 256;
const DATA_START: u64 = 2048;
pub const HASH_KEY: [u8; 16] = [9; 16];
pub const UUID: [u8; 16] = [0x5a; 16];

pub const SUB: Ino = Ino(33);
pub const SMALL: Ino = Ino(34);
pub const TINY: Ino = Ino(35);
pub const LARGE: Ino = Ino(36);
pub const TREE: Ino = Ino(37);
pub const LINK: Ino = Ino(38);
pub const ORPHAN: Ino = Ino(39);
pub const MANY: Ino = Ino(40);
pub const ATTRS: Ino = Ino(41);
pub const DEEP: Ino = Ino(42);

pub type Entries = BTreeMap<u64, Vec<u8>>;

#[derive(Clone)]
pub struct Builder {
    pub sb: Superblock,
    pub bytes: Vec<u8>,
    pub bits: BTreeSet<u64>,
    pub owners: BTreeMap<u64, OwnerRecord>,
    pub ifile: BTreeMap<u64, IfileEntry>,
    pub lazy: BTreeMap<u64, LazyEntry>,
    pub groups: BTreeMap<u64, GroupDesc>,
    pub held: Vec<(Extent, Wait)>,
    pub inodes: BTreeMap<Ino, Inode>,
    pub dirs: BTreeMap<Ino, Entries>,
    pub crcs: BTreeMap<Ino, BTreeMap<u64, u32>>,
    pub extents: BTreeMap<Ino, Vec<FileExtent>>,
    pub xattrs: BTreeMap<Ino, Entries>,
    pub tables: BTreeMap<Ino, BTreeMap<u64, TableEntry>>,
    pub dynamic: Dynamic,
    /// Said by the segment after the checkpoint, beside its own changes.
    pub after: Vec<Record>,
    pub log_at: u64,
    pub data_at: u64,
    /// Inodes that have the orphan bit.
    pub orphans: BTreeSet<Ino>,
    /// A group whose descriptor counts one fragment too many.
    pub wrong_used: Option<u64>,
    /// Whether inner nodes of the IFILE count an orphan too many.
    pub wrong_aggregate: bool,
    /// Whether files whose checksums are one run have them in their inodes.
    pub short: bool,
    /// Chooses blocks of metadata, and bits in them, that are flipped before they get their checksum.
    pub fuzz: Option<Rng>,
    /// Nodes of the maps, which are part of the checkpoint: their allocations.
    body: Vec<Allocation>,
    body_at: Option<u64>,
}

pub fn extent(start: u64, frags: u64) -> Extent {
    Extent::new(FragAddr(start), frags)
}

impl Builder {
    fn empty() -> Builder {
        let geometry = Geometry {
            fragment_size: FRAG as u32,
            block_size: BLOCK as u32,
            small_size: BLOCK as u32,
            group_frags: GROUP,
            total_frags: TOTAL,
            segment_max: 1 << 20,
            checkpoint_segments_max: 64,
            checkpoint_summary_max: 1 << 20,
            checkpoint_nodes_max: 2048,
        };
        let sb = Superblock {
            copied: Ssn(0),
            copied_at: 0,
            uuid: UUID,
            membership_epoch: 1,
            device: 0,
            devices: vec![DeviceEntry {
                frags: TOTAL,
                ..DeviceEntry::default()
            }],
            geometry,
            checksum_algorithm: 1,
            compatible: 0,
            ro_compatible: 0,
            incompatible: 0,
            checkpoint: CheckpointRef {
                ssn: Ssn(2),
                token: Token(22),
                addr: FragAddr(CHECKPOINT),
            },
            hash_key: HASH_KEY,
            label: b"tiny".to_vec(),
            created: 0,
            avg_file_size: 16_384,
            files_per_dir: 64,
            profile: b"hfs".to_vec(),
            disk: None,
            scrub: ScrubMark::default(),
            log_key: [0; 16],
            durable: Ssn(0),
            clean: false,
        };
        let mut b = Builder {
            bits: BTreeSet::new(),
            bytes: vec![0; (TOTAL * FRAG) as usize],
            owners: BTreeMap::new(),
            ifile: BTreeMap::new(),
            lazy: BTreeMap::new(),
            groups: BTreeMap::new(),
            held: Vec::new(),
            inodes: BTreeMap::new(),
            dirs: BTreeMap::new(),
            crcs: BTreeMap::new(),
            extents: BTreeMap::new(),
            xattrs: BTreeMap::new(),
            tables: BTreeMap::new(),
            dynamic: Dynamic {
                inodes: 0,
                next_inode_block: InodeBlockNo(2),
                sealed: 1,
                ..Dynamic::default()
            },
            after: Vec::new(),
            log_at: LOG_START,
            data_at: DATA_START,
            orphans: BTreeSet::from([ORPHAN]),
            wrong_used: None,
            wrong_aggregate: false,
            short: false,
            fuzz: None,
            body: Vec::new(),
            body_at: None,
            sb,
        };
        for run in b.sb.reserved_extents() {
            b.mark(run);
            b.own(run, BlockKind::Superblock, 0, Ino(0), 0);
        }
        b
    }

    /// A volume with one of everything.
    pub fn sample() -> Builder {
        let mut b = Builder::empty();
        b.add(ROOT_INO, mode::DIRECTORY | 0o755, ROOT_INO, Body::Empty);
        b.add(SUB, mode::DIRECTORY | 0o755, ROOT_INO, Body::Empty);
        b.add(DEEP, mode::DIRECTORY | 0o755, SUB, Body::Empty);
        let small = b.place(&content(1, 5000), BlockKind::SmallData, 0, SMALL, 0, 0);
        b.add(SMALL, mode::REGULAR | 0o644, ROOT_INO, Body::Small(small));
        b.add(
            TINY,
            mode::REGULAR | 0o644,
            SUB,
            Body::Inline(b"hello".to_vec()),
        );
        b.add(
            LINK,
            mode::SYMLINK | 0o777,
            SUB,
            Body::Inline(b"../small".to_vec()),
        );
        b.add(
            ORPHAN,
            mode::REGULAR | 0o600,
            ROOT_INO,
            Body::Inline(b"gone".to_vec()),
        );
        b.add(MANY, mode::REGULAR | 0o600, ROOT_INO, Body::Empty);
        b.add(ATTRS, mode::REGULAR | 0o600, ROOT_INO, Body::Empty);
        b.large_files();
        b.attributes();

        b.name(ROOT_INO, b"sub", SUB);
        b.name(ROOT_INO, b"small", SMALL);
        b.name(ROOT_INO, b"large", LARGE);
        b.name(ROOT_INO, b"tree", TREE);
        b.name(ROOT_INO, b"attrs", ATTRS);
        for index in 0..200 {
            b.name(ROOT_INO, format!("link{index:03}").as_bytes(), MANY);
        }
        b.name(SUB, b"tiny", TINY);
        b.name(SUB, b"symlink", LINK);
        b.name(SUB, b"deep", DEEP);
        b.count_links();
        // Freed a while ago and still waiting.
        b.held.push((extent(600, 7), Wait::Durable(Ssn(1))));
        b.mark(extent(600, 7));
        for group in 0..3 {
            b.groups.insert(
                group,
                GroupDesc {
                    role: Role::Log,
                    ..GroupDesc::default()
                },
            );
        }
        for group in 4..6 {
            b.groups.insert(
                group,
                GroupDesc {
                    role: Role::Data,
                    ..GroupDesc::default()
                },
            );
        }
        b.dynamic.inodes = b.inodes.len() as u64;
        b
    }

    /// Two large files: one with inline extents, a hole and an image, one with a tree.
    fn large_files(&mut self) {
        let first = self.home(LARGE, 0, 2, 11);
        let second = self.home(LARGE, 5, 1, 12);
        self.add(
            LARGE,
            mode::REGULAR | 0o644,
            ROOT_INO,
            Body::Extents(vec![first, second]),
        );
        let large = self.inode(LARGE);
        large.size = 6 * BLOCK - 100;
        large.frags = 3 * BLOCK_FRAGS;
        let image = content(13, UNIT as usize);
        let unit = 3;
        let at = self.place(&image, BlockKind::Image, 0, LARGE, 0, unit).addr;
        let entry = LazyEntry {
            image: at,
            crc: unit_crc(&image),
            ssn: Ssn(1),
            ino: LARGE,
            unit,
        };
        self.lazy
            .insert(first.pointer.addr.0 + unit * UNIT_FRAGS, entry);

        let extents = (0..6).map(|i| self.home(TREE, i * 2, 1, 20 + i)).collect();
        self.extents.insert(TREE, extents);
        self.add(
            TREE,
            mode::REGULAR | 0o644,
            ROOT_INO,
            Body::ExtentTree(TreeRoot::EMPTY),
        );
        let tree = self.inode(TREE);
        tree.size = 11 * BLOCK;
        tree.frags = 6 * BLOCK_FRAGS;
    }

    fn attributes(&mut self) {
        let value = self.place(&content(30, 3000), BlockKind::XattrValue, 0, ATTRS, 0, 0);
        let long = Xattr {
            namespace: 1,
            name: b"long".to_vec(),
            value: Value::Log(vec![value]),
        };
        let short = Xattr {
            namespace: 3,
            name: b"selinux".to_vec(),
            value: Value::Bytes(vec![1; 900]),
        };
        for xattr in [&long, &short] {
            let key = hash_key(&HASH_KEY, &xattr.full_name());
            self.xattrs
                .entry(ATTRS)
                .or_default()
                .insert(key, xattr.encode());
        }
        let inline = Xattr {
            namespace: 1,
            name: b"tag".to_vec(),
            value: Value::Bytes(b"x".to_vec()),
        };
        let key = hash_key(&HASH_KEY, b"user.tag");
        self.inode(SMALL).inline_xattrs = InlineMap(vec![(key, inline.encode())]).encode();
    }

    pub fn inode(&mut self, ino: Ino) -> &mut Inode {
        self.inodes.get_mut(&ino).unwrap()
    }

    pub fn add(&mut self, ino: Ino, mode: u32, parent: Ino, body: Body) {
        let size = match &body {
            Body::Inline(data) => data.len() as u64,
            Body::Small(_) | Body::Settled(_) => body.small().map_or(0, |p| p.stored.into()),
            _ => 0,
        };
        let frags = body.small().map_or(0, |pointer| pointer.frags.into());
        let generation = 1000 + ino.0 as u32;
        let inode = Inode {
            nlink: 0,
            size,
            parent,
            ssn: Ssn(1),
            frags,
            body,
            ..Inode::new(ino, mode, generation, Timestamp::default())
        };
        self.inodes.insert(ino, inode);
    }

    pub fn name(&mut self, dir: Ino, name: &[u8], ino: Ino) {
        let file_type = self
            .inodes
            .get(&ino)
            .map_or(8, |inode| inode.file_type() >> 12) as u8;
        let value = Dirent {
            ino,
            file_type,
            name,
        }
        .encode();
        let mut key = hash_key(&HASH_KEY, name);
        let entries = self.dirs.entry(dir).or_default();
        while entries.contains_key(&key) {
            key += 1;
        }
        entries.insert(key, value);
    }

    /// Takes a name out of a directory.
    pub fn unname(&mut self, dir: Ino, name: &[u8]) {
        let found = |value: &Vec<u8>| Dirent::decode(value).is_some_and(|entry| entry.name == name);
        self.dirs
            .get_mut(&dir)
            .unwrap()
            .retain(|_, value| !found(value));
    }

    /// Gives every inode the link count and every directory the size that its entries want.
    pub fn count_links(&mut self) {
        let mut links: BTreeMap<Ino, u32> = BTreeMap::new();
        for (dir, entries) in &self.dirs {
            for value in entries.values() {
                let entry = Dirent::decode(value).unwrap();
                *links.entry(entry.ino).or_default() += 1;
                if u32::from(entry.file_type) == mode::DIRECTORY >> 12 {
                    *links.entry(*dir).or_default() += 1;
                }
            }
        }
        for (ino, inode) in &mut self.inodes {
            inode.nlink = links.get(ino).copied().unwrap_or_default();
            if inode.is_dir() {
                inode.nlink += if *ino == ROOT_INO { 2 } else { 1 };
                let entries = self.dirs.get(ino);
                inode.size =
                    entries.map_or(0, |e| e.values().map(|value| 10 + value.len() as u64).sum());
            }
        }
    }

    pub fn mark(&mut self, run: Extent) {
        self.bits.extend(run.start.0..run.end().0);
    }

    pub fn clear(&mut self, run: Extent) {
        self.bits.retain(|bit| !run.contains(FragAddr(*bit)));
    }

    pub fn own(&mut self, run: Extent, kind: BlockKind, level: u8, ino: Ino, logical: u64) {
        let record = OwnerRecord {
            frags: run.frags as u32,
            kind,
            level,
            ino,
            logical,
        };
        self.owners.insert(run.start.0, record);
    }

    /// Writes a block into the log and says whose it is.
    pub fn place(
        &mut self,
        bytes: &[u8],
        kind: BlockKind,
        level: u8,
        ino: Ino,
        generation: u32,
        logical: u64,
    ) -> Pointer {
        let mut bytes = bytes.to_vec();
        let data = matches!(
            kind,
            BlockKind::SmallData | BlockKind::XattrValue | BlockKind::Image
        );
        if let Some(rng) = self.fuzz.as_mut().filter(|_| !data) {
            rng.damage(&mut bytes);
        }
        let bytes = bytes.as_slice();
        let frags = (bytes.len() as u64).div_ceil(FRAG);
        let at = self.body_at.unwrap_or(self.log_at);
        let run = extent(at, frags);
        let identity = Identity {
            kind,
            level,
            ino,
            generation,
            logical,
        };
        let checksum = if data {
            data_checksum(bytes)
        } else {
            metadata_checksum(&UUID, &identity, bytes)
        };
        self.write(at, bytes);
        let stored = bytes.len() as u32;
        match &mut self.body_at {
            Some(body_at) => {
                *body_at += frags;
                self.body.push(Allocation {
                    extent: run,
                    kind,
                    level,
                    ino,
                    generation,
                    version: 0,
                    logical,
                    stored,
                    checksum,
                    in_body: true,
                });
            }
            None => {
                self.log_at += frags;
                self.mark(run);
                self.own(run, kind, level, ino, logical);
            }
        }
        let birth = Ssn(if self.body_at.is_some() { 2 } else { 1 });
        Pointer {
            addr: run.start,
            frags: frags as u32,
            stored,
            birth,
            checksum,
            ..Pointer::NONE
        }
    }

    pub fn write(&mut self, at: u64, bytes: &[u8]) {
        let at = (at * FRAG) as usize;
        self.bytes[at..at + bytes.len()].copy_from_slice(bytes);
    }

    /// Writes homed blocks and their checksums.
    fn home(&mut self, ino: Ino, block: u64, blocks: u64, seed: u64) -> FileExtent {
        let run = extent(self.data_at, blocks * BLOCK_FRAGS);
        self.data_at = run.end().0;
        let bytes = content(seed, (blocks * BLOCK) as usize);
        self.write(run.start.0, &bytes);
        self.mark(run);
        self.own(run, BlockKind::Homed, 0, ino, block);
        let crcs = self.crcs.entry(ino).or_default();
        for (unit, data) in (block * BLOCK / UNIT..).zip(bytes.chunks(UNIT as usize)) {
            crcs.insert(unit, unit_crc(data));
        }
        let frags = run.frags as u32;
        FileExtent {
            block,
            pointer: Pointer {
                addr: run.start,
                frags,
                birth: Ssn(1),
                ..Pointer::NONE
            },
        }
    }
}

const _: () = assert!(NODE_SIZE as u64 == UNIT);
