//! Sealing a segment: everything dirty is frozen, placed, given checksums from the leaves up, and described in the
//! summary (H11, H12; rules 2 to 5).

use crate::blocks::Stop;
use crate::core::Core;
use crate::error::Error;
use crate::homed::{UNIT, Unit};
use crate::inodes::block_identity;
use crate::maps::{BITMAP, GROUP, IFILE, LAZY, OWNER};
use crate::tree::{self, SealedNode, Tree};
use crate::{dir, extents, xattrs};
use loamfs_format::ifile::{IfileEntry, ino_at};
use loamfs_format::inode::{Body, Inode};
use loamfs_format::maps::{LazyEntry, unit_crc};
use loamfs_format::mutant;
use loamfs_format::node::{NODE_SIZE, TreeRoot};
use loamfs_format::pointer::{data_checksum, metadata_checksum};
use loamfs_format::summary::{
    ALLOCATE_SIZE, Allocation, Dynamic, FREE_SIZE, Header, IFILE_SIZE, RECORD_SIZE_MAX, ROLE_SIZE,
    Record, SegmentKind,
};
use loamfs_format::superblock::CheckpointRef;
use loamfs_format::xattr::{Value, Xattr};
use loamfs_format::{
    BlockKind, Extent, FragAddr, Identity, Ino, InodeBlockNo, Pointer, Ssn, Token,
};
use loamfs_log::segment::{Image, PlaceError, Placement, Segment, place};
use loamfs_log::writer::Tail;
use loamfs_space::Owner;
use std::sync::Arc;

/// A block that the segment will hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Item {
    /// Data of a small file.
    Small(Ino),
    /// A piece of an attribute's value: inode, key, piece.
    Value(Ino, u64, usize),
    /// An image: inode, unit.
    Image(Ino, u64),
}

/// A tree with dirty nodes and its owner; `None` for a map.
#[derive(Debug, Clone, Copy)]
enum TreeOf {
    Directory(Ino),
    Extents(Ino),
    Checksums(Ino),
    Xattrs(Ino),
    Map(BlockKind),
}

/// What a segment will hold, in the order of its body: inode blocks and trees, then small data by directory and in
/// readdir order, then values and images (DESIGN.md section 8).
#[derive(Debug, Default)]
struct Contents {
    inode_blocks: Vec<InodeBlockNo>,
    trees: Vec<(TreeOf, usize)>,
    data: Vec<Item>,
    /// Fragments of each block, in the order of the body.
    frags: Vec<u32>,
}

impl Core {
    /// Seals what is dirty into a segment; `None` when there is nothing and no `force`.
    pub fn seal(&mut self, force: bool) -> Result<Option<Segment>, Stop> {
        let contents = self.contents()?;
        let nothing = contents.frags.is_empty()
            && self.blocks.frees.is_empty()
            && self.records.is_empty()
            && !self.space.has_role_changes()
            // The last inode of a block went: the block and its entry go with the next segment.
            && !self.inodes.blocks.values().any(|b| b.dirty && b.base.pointer.is_some());
        if nothing && !force {
            self.inodes
                .blocks
                .retain(|_, block| block.dirty && block.live != 0);
            self.dirty_since = None;
            return Ok(None);
        }
        self.seal_contents(contents, SegmentKind::Normal).map(Some)
    }

    /// Seals the empty segment of recovery (rule 4).
    pub fn seal_mount(&mut self) -> Result<Segment, Stop> {
        self.seal_contents(Contents::default(), SegmentKind::Mount)
    }

    /// Reads what a checkpoint must change, so that sealing it does not stop.
    pub fn prepare_checkpoint(&mut self) -> Result<(), Stop> {
        let groups = self.space.groups_to_load_for_checkpoint()?;
        if !groups.is_empty() {
            return Err(Stop::Load(groups));
        }
        self.maps
            .prepare_apply(&mut self.blocks, &self.space, &self.geometry)
    }

    /// Seals a checkpoint: the maps as they stand before it. Nothing else may be dirty.
    pub fn seal_checkpoint(&mut self) -> Result<Segment, Stop> {
        self.prepare_checkpoint()?;
        self.maps
            .apply(&mut self.blocks, &self.space, &self.geometry)?;
        self.space.checkpoint_done();
        let mut contents = Contents::default();
        for (tree, root) in self.maps.roots() {
            let count = tree.dirty_nodes(&root, &mut self.blocks)?.len();
            contents.trees.push((TreeOf::Map(tree.kind), count));
        }
        let node_frags = self.node_frags();
        let total: usize = contents.trees.iter().map(|(_, count)| count).sum();
        contents.frags = vec![node_frags; total];
        self.seal_contents(contents, SegmentKind::Checkpoint)
    }

    fn node_frags(&self) -> u32 {
        self.geometry.frags_for(NODE_SIZE as u64) as u32
    }

    /// Lists what is dirty, in the order of the body.
    fn contents(&mut self) -> Result<Contents, Stop> {
        let mut contents = Contents::default();
        let geometry = self.geometry;
        let mut inos: Vec<Ino> = Vec::new();
        for (block, b) in self.inodes.blocks.iter().filter(|(_, b)| b.dirty) {
            if b.live != 0 {
                contents.inode_blocks.push(*block);
                let bytes = b.live.count_ones() as usize * loamfs_format::inode::SIZE;
                contents.frags.push(geometry.frags_for(bytes as u64) as u32);
            }
            inos.extend(
                (0..32)
                    .filter(|s| b.live & (1 << s) != 0)
                    .map(|s| ino_at(*block, s)),
            );
        }
        inos.retain(|ino| self.inodes.nodes.get(ino).is_some_and(|node| node.dirty));
        let node_frags = self.node_frags();
        for ino in &inos {
            for (of, tree, root) in self.trees_of(*ino) {
                let count = tree.dirty_nodes(&root, &mut self.blocks)?.len();
                if count > 0 {
                    contents.trees.push((of, count));
                    contents
                        .frags
                        .extend(std::iter::repeat_n(node_frags, count));
                }
            }
        }
        let mut small: Vec<(Ino, u64, Ino, u32)> = Vec::new();
        for ino in &inos {
            let Some(node) = self.inodes.nodes.get(ino) else {
                continue;
            };
            if let Some(data) = &node.small {
                let frags = geometry.frags_for(data.len() as u64) as u32;
                small.push((node.inode.parent, node.dir_key, *ino, frags));
            }
        }
        small.sort_unstable();
        for (_, _, ino, frags) in small {
            contents.data.push(Item::Small(ino));
            contents.frags.push(frags);
        }
        let piece = geometry.block_size as usize;
        for ino in &inos {
            let Some(node) = self.inodes.nodes.get(ino) else {
                continue;
            };
            for (key, value) in &node.values {
                for (i, part) in value.chunks(piece).enumerate() {
                    contents.data.push(Item::Value(*ino, *key, i));
                    contents
                        .frags
                        .push(geometry.frags_for(part.len() as u64) as u32);
                }
            }
            for unit in node.homed.images.keys() {
                contents.data.push(Item::Image(*ino, *unit));
                contents.frags.push(geometry.unit_frags() as u32);
            }
        }
        Ok(contents)
    }

    fn trees_of(&self, ino: Ino) -> Vec<(TreeOf, Tree, TreeRoot)> {
        let Some(node) = self.inodes.nodes.get(&ino) else {
            return Vec::new();
        };
        let inode = &node.inode;
        let mut trees = Vec::new();
        match inode.body {
            Body::DirTree(root) => trees.push((TreeOf::Directory(ino), dir::tree(inode), root)),
            Body::ExtentTree(root) => {
                trees.push((TreeOf::Extents(ino), extents::tree(inode), root));
            }
            _ => {}
        }
        trees.push((
            TreeOf::Checksums(ino),
            extents::crc_tree(inode),
            inode.checksums,
        ));
        trees.push((TreeOf::Xattrs(ino), xattrs::tree(inode), inode.xattrs));
        trees
    }

    /// Places and freezes; nothing stops once a place was found.
    fn seal_contents(&mut self, contents: Contents, kind: SegmentKind) -> Result<Segment, Stop> {
        let tail = self.log.tail().clone();
        let ssn = tail.ssn.next();
        let mut records = Vec::new();
        if mutant::active("free-own") && kind == SegmentKind::Normal {
            records = self.free_own(ssn)?;
        }
        let placement = self.place(&tail, &contents, kind)?;
        self.blocks.begin_segment(ssn);
        self.usable_log = None;
        let seal = Seal {
            ssn,
            image: Image::new(&self.geometry, &placement.extents),
            records,
            addresses: placement.blocks.clone(),
            at: 0,
        };
        let built = self.build(seal, &tail, &contents, &placement, kind);
        let (header, segment) = built.inspect_err(|stop| {
            // What was frozen so far cannot be taken back; nothing of it has reached the device.
            if let Stop::Failed(error) = stop {
                self.fail_log(error);
            }
        })?;
        self.after_seal(&header, &placement, &segment);
        Ok(segment)
    }

    /// Freezes the blocks, describes them, and puts the segment together.
    fn build(
        &mut self,
        mut seal: Seal,
        tail: &Tail,
        contents: &Contents,
        placement: &Placement,
        kind: SegmentKind,
    ) -> Result<(Header, Segment), Stop> {
        self.freeze(&mut seal, contents)?;
        let header = self.describe(&mut seal, tail, placement, kind)?;
        let room: u64 = placement.summary.iter().map(|extent| extent.frags).sum();
        let room = room * u64::from(self.geometry.fragment_size);
        Ok(seal.image.finish(header, &seal.records, room)?)
    }

    /// Frees what the segment supersedes before it is placed, for itself to use: a mutant does.
    fn free_own(&mut self, ssn: Ssn) -> Result<Vec<Record>, Stop> {
        let frees = std::mem::take(&mut self.blocks.frees);
        for extent in &frees {
            self.space.free(*extent, ssn)?;
            self.space.release_range(*extent);
        }
        Ok(frees.into_iter().map(Record::Free).collect())
    }

    fn place(
        &mut self,
        tail: &Tail,
        contents: &Contents,
        kind: SegmentKind,
    ) -> Result<Placement, Stop> {
        let held = if kind == SegmentKind::Checkpoint {
            self.space.held().count() + self.summaries.len()
        } else {
            0
        };
        let freed = self.blocks.frees.len() + self.blocks.retires.len() + contents.frags.len();
        // Every block has a record; so has each dirty inode block, each free, each held range; claimed groups and
        // the log's own ranges take the slack.
        let roles = if self.space.has_role_changes() {
            u64::from(self.geometry.groups()) * ROLE_SIZE
        } else {
            0
        };
        let records_max = contents.frags.len() as u64 * ALLOCATE_SIZE
            + self.inodes.blocks.len() as u64 * (IFILE_SIZE + FREE_SIZE)
            + freed as u64 * FREE_SIZE
            + (self.records.len() + held) as u64 * RECORD_SIZE_MAX
            + contents.data.len() as u64 * RECORD_SIZE_MAX
            + roles
            + 64 * RECORD_SIZE_MAX;
        let kept = if self.plug_holes {
            self.space.free_groups()
        } else {
            self.groups_for_data(&self.waiting(), 0)
        };
        self.space.keep_for_data(kept);
        let result = place(
            &mut self.space,
            &self.geometry,
            tail.next,
            records_max,
            &contents.frags,
            self.rotational,
        );
        match result {
            Ok(placement) => Ok(placement),
            Err(PlaceError::Load(groups)) => Err(Stop::Load(groups)),
            Err(PlaceError::Full) => {
                let g = &self.geometry;
                tracing::error!(
                    blocks = contents.frags.len(),
                    frags = contents.frags.iter().sum::<u32>(),
                    free_groups = self.space.free_groups(),
                    usable = self.space.log_usable(g.block_frags()),
                    log = ?self.space.log_space(),
                    held = self.space.held_frags(),
                    "no room for a segment"
                );
                Err(Stop::Full)
            }
            Err(PlaceError::Space(error)) => Err(error.into()),
        }
    }

    /// Gives every block its address and checksum, children before those that point to them.
    fn freeze(&mut self, seal: &mut Seal, contents: &Contents) -> Result<(), Stop> {
        // The body's order is inode blocks, trees, data; inode blocks are made last, since they hold the pointers.
        let (inodes_at, trees_at) = (0, contents.inode_blocks.len());
        seal.at = trees_at + contents.trees.iter().map(|(_, count)| count).sum::<usize>();
        for item in &contents.data {
            self.freeze_data(seal, *item)?;
        }
        seal.at = trees_at;
        for (of, _) in &contents.trees {
            self.freeze_tree(seal, *of)?;
        }
        seal.at = inodes_at;
        for block in &contents.inode_blocks {
            self.freeze_inodes(seal, *block);
        }
        for (block, b) in self
            .inodes
            .blocks
            .iter()
            .filter(|(_, b)| b.dirty && b.live == 0)
        {
            seal.records
                .push(Record::Ifile(*block, IfileEntry::default()));
            self.maps
                .ifile_overlay
                .insert(*block, IfileEntry::default());
            if b.base.pointer.is_some() {
                self.blocks.supersede(&b.base.pointer);
            }
        }
        Ok(())
    }

    fn freeze_data(&mut self, seal: &mut Seal, item: Item) -> Result<(), Stop> {
        let unit_frags = self.geometry.unit_frags();
        match item {
            Item::Small(ino) => {
                let Some(node) = self.inodes.nodes.get_mut(&ino) else {
                    return Ok(());
                };
                let Some(data) = node.small.take() else {
                    return Ok(());
                };
                let geometry = self.geometry;
                let id = who(BlockKind::SmallData, &node.inode, 0);
                let pointer = seal.put_data(&geometry, &node.inode, id, &data);
                let old = std::mem::replace(&mut node.inode.body, Body::Small(pointer));
                node.shown_size = node.inode.size;
                node.seal_first = false;
                node.inode.frags = pointer.frags.into();
                self.blocks.seal_content(&pointer, data);
                if let Body::Small(old) = old {
                    self.blocks.supersede(&old);
                }
            }
            Item::Value(ino, key, piece) => {
                let block_size = self.geometry.block_size as usize;
                let geometry = self.geometry;
                let Some(node) = self.inodes.nodes.get_mut(&ino) else {
                    return Ok(());
                };
                let Some(value) = node.values.get(&key).cloned() else {
                    return Ok(());
                };
                let part = value.chunks(block_size).nth(piece).unwrap_or_default();
                let id = who(BlockKind::XattrValue, &node.inode, key);
                let pointer = seal.put_data(&geometry, &node.inode, id, part);
                self.blocks.seal_bytes(&pointer, part.into());
                self.point_value(ino, key, piece, pointer)?;
                if (piece + 1) * block_size >= value.len()
                    && let Some(node) = self.inodes.nodes.get_mut(&ino)
                {
                    node.values.remove(&key);
                }
            }
            Item::Image(ino, unit) => {
                let geometry = self.geometry;
                let Some(node) = self.inodes.nodes.get_mut(&ino) else {
                    return Ok(());
                };
                let Some((home, Unit { bytes, .. })) = node.homed.images.remove(&unit) else {
                    return Ok(());
                };
                let id = who(BlockKind::Image, &node.inode, unit);
                let placed = seal.put_data(&geometry, &node.inode, id, &bytes);
                let crc = unit_crc(&bytes);
                let pointer = Pointer {
                    frags: unit_frags as u32,
                    stored: UNIT as u32,
                    checksum: crc.into(),
                    ..placed
                };
                self.blocks.seal_content(&pointer, bytes);
                let entry = LazyEntry {
                    image: placed.addr,
                    crc,
                    ssn: seal.ssn,
                    ino,
                    unit,
                };
                if let Some(old) = self.maps.lazy_map.insert(home, entry) {
                    self.blocks.frees.push(Extent::new(old.image, unit_frags));
                }
                self.maps.lazy_dirty.insert(home);
                seal.records.push(Record::Image(home, entry));
                if node.homed.is_clean() {
                    self.homed.remove(&ino);
                }
            }
        }
        Ok(())
    }

    /// Puts the address of a piece of an attribute's value where the attribute stands: in the tree, whose leaf is
    /// dirty since the attribute was set.
    fn point_value(
        &mut self,
        ino: Ino,
        key: u64,
        piece: usize,
        pointer: Pointer,
    ) -> Result<(), Stop> {
        let Some(node) = self.inodes.nodes.get_mut(&ino) else {
            return Ok(());
        };
        let (tree, mut root) = (xattrs::tree(&node.inode), node.inode.xattrs);
        let found = tree.get(&root, &mut self.blocks, key)?;
        let Some(mut xattr) = found.as_ref().and_then(|e| Xattr::decode(e.value())) else {
            return Ok(());
        };
        drop(found);
        if let Value::Log(pieces) = &mut xattr.value
            && let Some(slot) = pieces.get_mut(piece)
        {
            *slot = pointer;
        }
        tree.put(&mut root, &mut self.blocks, key, &xattr.encode())?;
        node.inode.xattrs = root;
        Ok(())
    }

    fn freeze_tree(&mut self, seal: &mut Seal, of: TreeOf) -> Result<(), Stop> {
        let (tree, root, version) = match of {
            TreeOf::Map(kind) => {
                let found = self
                    .maps
                    .roots()
                    .into_iter()
                    .find(|(tree, _)| tree.kind == kind);
                let Some((tree, root)) = found else {
                    return Ok(());
                };
                (tree, root, 0)
            }
            TreeOf::Directory(ino)
            | TreeOf::Extents(ino)
            | TreeOf::Checksums(ino)
            | TreeOf::Xattrs(ino) => {
                let found = self
                    .trees_of(ino)
                    .into_iter()
                    .find(|(o, ..)| same_tree(*o, of));
                let Some((_, tree, root)) = found else {
                    return Ok(());
                };
                let version = self
                    .inodes
                    .nodes
                    .get(&ino)
                    .map_or(0, |node| node.inode.version);
                (tree, root, version)
            }
        };
        let frags = self.node_frags();
        let (ssn, mut at) = (seal.ssn, seal.at);
        let addresses = seal.addresses.clone();
        let mut sealed: Vec<SealedNode> = Vec::new();
        let assign = |_: &Identity| {
            let addr = addresses.get(at).copied().unwrap_or_default();
            at += 1;
            tree::Placement {
                addr,
                frags,
                birth: ssn,
            }
        };
        let uuid = self.sb.uuid;
        let root = tree.finalize(&root, &mut self.blocks, &uuid, assign, |node| {
            sealed.push(node)
        })?;
        seal.at = at;
        for node in sealed {
            seal.image.put(node.pointer.addr, node.page.as_bytes());
            seal.records.push(Record::Allocate(Allocation {
                extent: node.pointer.extent(),
                kind: node.identity.kind,
                level: node.identity.level,
                ino: node.identity.ino,
                generation: node.identity.generation,
                version,
                logical: node.identity.logical,
                stored: node.pointer.stored,
                checksum: node.pointer.checksum,
                in_body: true,
            }));
        }
        match of {
            TreeOf::Map(kind) => {
                if let Some(slot) = self.maps.root_mut(kind) {
                    *slot = root;
                }
            }
            TreeOf::Directory(ino) => self.set_root(ino, |inode| inode.body = Body::DirTree(root)),
            TreeOf::Extents(ino) => self.set_root(ino, |inode| inode.body = Body::ExtentTree(root)),
            TreeOf::Checksums(ino) => self.set_root(ino, |inode| inode.checksums = root),
            TreeOf::Xattrs(ino) => self.set_root(ino, |inode| inode.xattrs = root),
        }
        Ok(())
    }

    fn set_root(&mut self, ino: Ino, set: impl FnOnce(&mut Inode)) {
        if let Some(node) = self.inodes.nodes.get_mut(&ino) {
            set(&mut node.inode);
        }
    }

    /// The size that a segment may show of an inode (rule 3).
    fn shown_size(&self, ino: Ino) -> u64 {
        let Some(node) = self.inodes.nodes.get(&ino) else {
            return 0;
        };
        if node.homed.is_clean() {
            return node.inode.size;
        }
        // While a file moves home, segments show the small form.
        if matches!(node.inode.body, Body::Small(_) | Body::Inline(_)) {
            return node.shown_size;
        }
        match node.homed.unshown_end(node.shown_size / UNIT) {
            Some(end) => end.max(node.shown_size).min(node.inode.size),
            None => node.inode.size,
        }
    }

    fn freeze_inodes(&mut self, seal: &mut Seal, block: InodeBlockNo) {
        let Some(b) = self.inodes.blocks.get(&block) else {
            return;
        };
        for slot in (0..32).filter(|slot| b.live & (1 << slot) != 0) {
            let ino = ino_at(block, slot);
            let shown = self.shown_size(ino);
            if let Some(node) = self.inodes.nodes.get_mut(&ino) {
                node.shown_size = shown;
            }
        }
        let nodes = &self.inodes.nodes;
        let current = |ino: Ino| {
            let node = nodes.get(&ino).filter(|node| node.dirty)?;
            Some(Inode {
                size: node.shown_size,
                ..node.inode.clone()
            })
        };
        let packed = b.pack(block, current);
        let identity = block_identity(block);
        let checksum = metadata_checksum(&self.sb.uuid, &identity, &packed);
        let frags = self.geometry.frags_for(packed.len() as u64) as u32;
        let pointer = Pointer {
            addr: seal.next_address(),
            frags,
            stored: packed.len() as u32,
            birth: seal.ssn,
            checksum,
        };
        seal.image.put(pointer.addr, &packed);
        seal.records.push(Record::Allocate(Allocation {
            extent: pointer.extent(),
            kind: BlockKind::InodeBlock,
            level: 0,
            ino: Ino(0),
            generation: 0,
            version: 0,
            logical: block.0,
            stored: pointer.stored,
            checksum,
            in_body: true,
        }));
        let entry = IfileEntry {
            pointer,
            live: b.live,
            orphan: b.orphan,
            ssn: seal.ssn,
        };
        seal.records.push(Record::Ifile(block, entry));
        if b.base.pointer.is_some() {
            self.blocks.supersede(&b.base.pointer);
        }
        self.maps.ifile_overlay.insert(block, entry);
        self.blocks.seal_bytes(&pointer, Arc::from(packed));
    }

    /// Puts the rest into the summary: frees, roles, roots, what is held back, and the log's own ranges.
    fn describe(
        &mut self,
        seal: &mut Seal,
        tail: &Tail,
        placement: &Placement,
        kind: SegmentKind,
    ) -> Result<Header, Stop> {
        let ssn = seal.ssn;
        if kind == SegmentKind::Checkpoint {
            // What was held back before this segment; its own frees are in its own records (rule 9).
            let held: Vec<Record> = self
                .space
                .held()
                .map(|(extent, wait)| Record::Held(extent, wait))
                .collect();
            seal.records.extend(held);
            for (tree, root) in self.maps.roots() {
                seal.records.push(Record::Root(tree.kind, root));
            }
        }
        seal.records.append(&mut self.records);
        let roles = self.space.take_role_changes();
        let said = |_: &(_, _)| !mutant::active("role-unsaid");
        for (group, role) in roles.into_iter().filter(said) {
            seal.records.push(Record::Role(group, role));
        }
        for extent in placement.summary.iter().chain([&placement.next]) {
            let logical = if *extent == placement.next {
                ssn.next().0
            } else {
                ssn.0
            };
            // The summary's first unit is the predecessor's allocation.
            let rest = if extent.start == tail.next {
                let unit = self.geometry.unit_frags();
                Extent::new(FragAddr(extent.start.0 + unit), extent.frags - unit)
            } else {
                *extent
            };
            if rest.frags > 0 {
                seal.records.push(Record::Allocate(Allocation {
                    extent: rest,
                    kind: BlockKind::Summary,
                    level: 0,
                    ino: Ino(0),
                    generation: 0,
                    version: 0,
                    logical,
                    stored: 0,
                    checksum: 0,
                    in_body: false,
                }));
            }
        }
        for record in &seal.records {
            if let Record::Allocate(a) = record
                && a.kind != BlockKind::Homed
            {
                let owner = Owner {
                    kind: a.kind,
                    level: a.level,
                    ino: a.ino,
                    logical: a.logical,
                };
                self.space.show(a.extent, owner)?;
            }
        }
        for extent in std::mem::take(&mut self.blocks.frees) {
            seal.records.push(Record::Free(extent));
            self.space.free(extent, ssn)?;
        }
        let mut retired = Vec::new();
        if kind == SegmentKind::Checkpoint {
            retired.append(&mut self.blocks.retires);
            retired.append(&mut self.summaries);
        }
        for extent in retired {
            seal.records.push(Record::Retire(extent));
            self.space.retire(extent, ssn)?;
        }
        Ok(Header {
            uuid: self.sb.uuid,
            ssn,
            previous: tail.token,
            token: Token(self.random.next_u64()),
            next: placement.next.start,
            durable: if mutant::active("no-durable") {
                Ssn(0)
            } else {
                self.log.durable()
            },
            kind,
            dynamic: Dynamic {
                inodes: self.inodes.live,
                next_inode_block: self.inodes.next_block,
                sealed: self.clock.now().seconds,
            },
            extents: Vec::new(),
            records_len: 0,
            records_checksum: 0,
        })
    }

    fn after_seal(&mut self, header: &Header, placement: &Placement, segment: &Segment) {
        let tail = Tail {
            ssn: header.ssn,
            token: header.token,
            next: header.next,
        };
        let at = placement
            .extents
            .first()
            .map(|e| e.start)
            .unwrap_or_default();
        // The summary as sealed may have left it out; the writer goes by what it should say.
        let says = self.log.durable();
        self.log.sealed(tail, says, segment.bytes());
        if let Some(freed) = self
            .freed
            .as_mut()
            .filter(|_| mutant::active("discard-held"))
        {
            freed.extend(self.space.held().map(|(extent, _)| extent));
        }
        let early = ["reuse-at-once", "reuse-when-said", "reuse-home-early"];
        if early.into_iter().any(mutant::active) {
            self.release();
        }
        self.summaries.extend(placement.summary.iter().copied());
        self.since_segments += 1;
        self.since_summary_bytes += header.summary_len();
        if header.kind == SegmentKind::Checkpoint {
            self.base = CheckpointRef {
                ssn: header.ssn,
                token: header.token,
                addr: at,
            };
            self.since_segments = 0;
            self.since_summary_bytes = 0;
            return;
        }
        for (block, b) in std::mem::take(&mut self.inodes.blocks) {
            if !b.dirty {
                continue;
            }
            for slot in 0..32 {
                if let Some(node) = self.inodes.nodes.get_mut(&ino_at(block, slot)) {
                    node.dirty = false;
                }
            }
        }
        self.small_bytes = 0;
        self.inodes.dirty_bytes = 0;
        self.inodes.busy = 0;
        self.dirty_since = None;
        self.barrier.clear();
    }

    /// Space that what is durable now makes reusable (rule 5).
    pub fn release(&mut self) -> Vec<Extent> {
        let both = match self.slots {
            [Some(a), Some(b)] if mutant::active("one-superblock") => a.max(b),
            _ if mutant::active("retire-at-checkpoint") => self.base.ssn,
            [Some(a), Some(b)] => a.min(b),
            _ => Ssn(0),
        };
        self.usable_log = None;
        let mut said = self.log.said();
        if mutant::active("superblock-says") {
            said = said.max(self.slots.into_iter().flatten().max().unwrap_or(said));
        }
        if mutant::active("reuse-home-early") {
            self.space.release_homes();
        }
        // Nobody settles over what is used again (rule 7).
        let settling = &self.settling;
        let busy = |range| {
            settling.range(range).next().is_some() && !mutant::active("reuse-during-settle")
        };
        let freed = self.space.release(said, both, busy);
        if let Some(waiting) = &mut self.freed {
            waiting.extend_from_slice(&freed);
        }
        let protect = self.geometry.group_of(self.log.tail().next);
        self.space.give_back_empty(Some(protect));
        freed
    }

    /// Whether a checkpoint is due (rule 9).
    pub fn checkpoint_due(&self) -> bool {
        if mutant::active("never-due") {
            return false;
        }
        let g = &self.geometry;
        let (chunks, groups) = self.space.dirty_counts();
        let nodes = self.maps.ifile_overlay.len() / 16
            + self.space.owner_overlay_len() / 16
            + chunks / 16
            + groups
            + self.maps.lazy_dirty.len() / 8;
        self.since_segments >= g.checkpoint_segments_max
            || self.since_summary_bytes >= g.checkpoint_summary_max.into()
            || nodes >= g.checkpoint_nodes_max as usize
    }

    /// Turns the volume read-only after a write error to the log (rule 12).
    pub fn fail_log(&mut self, error: &Error) {
        if !self.read_only {
            tracing::error!(%error, "the log cannot be written; the volume is read-only from here on");
            self.read_only = true;
            self.frozen = false;
        }
    }
}

/// The five maps, for those who walk them all.
pub(crate) const MAPS: [Tree; 5] = [IFILE, BITMAP, OWNER, GROUP, LAZY];

fn same_tree(a: TreeOf, b: TreeOf) -> bool {
    matches!(
        (a, b),
        (TreeOf::Directory(_), TreeOf::Directory(_))
            | (TreeOf::Extents(_), TreeOf::Extents(_))
            | (TreeOf::Checksums(_), TreeOf::Checksums(_))
            | (TreeOf::Xattrs(_), TreeOf::Xattrs(_))
    )
}

fn who(kind: BlockKind, inode: &Inode, logical: u64) -> Identity {
    Identity {
        kind,
        level: 0,
        ino: inode.ino,
        generation: inode.generation,
        logical,
    }
}

/// A segment that is being put together.
struct Seal {
    ssn: Ssn,
    image: Image,
    records: Vec<Record>,
    /// Address of each block, in the order of the body.
    addresses: Vec<FragAddr>,
    /// The next of them.
    at: usize,
}

impl Seal {
    fn next_address(&mut self) -> FragAddr {
        let addr = self.addresses.get(self.at).copied().unwrap_or_default();
        self.at += 1;
        addr
    }

    /// Places a block of file data or of an attribute's value.
    fn put_data(
        &mut self,
        geometry: &loamfs_format::Geometry,
        inode: &Inode,
        id: Identity,
        bytes: &[u8],
    ) -> Pointer {
        let pointer = Pointer {
            addr: self.next_address(),
            frags: geometry.frags_for(bytes.len() as u64) as u32,
            stored: bytes.len() as u32,
            birth: self.ssn,
            checksum: data_checksum(bytes),
        };
        self.image.put(pointer.addr, bytes);
        self.records.push(Record::Allocate(Allocation {
            extent: pointer.extent(),
            kind: id.kind,
            level: 0,
            ino: id.ino,
            generation: id.generation,
            version: inode.version,
            logical: id.logical,
            stored: pointer.stored,
            checksum: pointer.checksum,
            in_body: true,
        }));
        pointer
    }
}
