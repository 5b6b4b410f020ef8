//! Content in the log that moves: of small files, of values of attributes, and images.

use crate::blocks::{Stop, What};
use crate::core::Core;
use crate::error::Corrupt;
use crate::operations::{Broken, Change, Claim, Operation, Plan};
use crate::tree::Tree;
use crate::unit::UnitBytes;
use crate::writeback::Homed;
use crate::xattrs;
use loamfs_format::node::TreeRoot;
use loamfs_format::xattr::{Value, Xattr};
use loamfs_format::{FragAddr, Ino, Pointer};
use std::sync::Arc;

/// Makes a small file's content dirty if it is there.
pub(super) struct MoveSmall {
    pub ino: Ino,
    pub at: FragAddr,
}

/// [`MoveSmall`], prepared.
pub(super) struct MovingSmall {
    ino: Ino,
    content: Arc<[u8]>,
}

impl Operation for MoveSmall {
    type Change = MovingSmall;

    fn prepare(&self, core: &mut Core) -> Result<Plan<MovingSmall>, Stop> {
        let (ino, at) = (self.ino, self.at);
        let node = core.node(ino)?;
        let here = node.inode().body.small().is_some_and(|it| it.addr == at);
        if !here || node.small().is_some() || node.is_large() {
            return Ok(Plan::Done(()));
        }
        let content = core.reading().small_content(ino)?;
        core.prepare_dirty(ino)?;
        Ok(Plan::Change(MovingSmall { ino, content }))
    }
}

impl Change for MovingSmall {
    type Done = ();

    fn claim(&self) -> Claim {
        Claim::Nothing
    }

    fn apply(self, core: &mut Core) -> Result<(), Broken> {
        core.pending.add_content(self.content.len());
        core.inodes.prepared(self.ino)?.put_small(self.content);
        Ok(core.touch(self.ino)?)
    }
}

/// Makes the value of an attribute dirty of which a piece is there.
pub(super) struct MoveValue {
    pub ino: Ino,
    /// Its key in the tree of attributes.
    pub key: u64,
    pub at: FragAddr,
}

/// [`MoveValue`], prepared.
pub(super) struct MovingValue {
    ino: Ino,
    key: u64,
    tree: Tree,
    root: TreeRoot,
    /// Its entry, which says that the value is in memory.
    entry: Vec<u8>,
    value: Arc<[u8]>,
    /// Where it was.
    old: Vec<Pointer>,
}

impl Operation for MoveValue {
    type Change = MovingValue;

    fn prepare(&self, core: &mut Core) -> Result<Plan<MovingValue>, Stop> {
        let (ino, key) = (self.ino, self.key);
        core.prepare_dirty(ino)?;
        let node = core.inodes.prepared(ino)?;
        let (tree, root) = (xattrs::tree(node.inode()), node.inode().xattrs);
        let entry = tree.get(&root, &mut core.blocks, key)?;
        let Some(mut xattr) = entry.and_then(|entry| Xattr::decode(entry.value())) else {
            return Ok(Plan::Done(()));
        };
        let Value::Log(pieces) = &mut xattr.value else {
            return Ok(Plan::Done(()));
        };
        if pieces.iter().all(|piece| piece.addr != self.at) {
            return Ok(Plan::Done(()));
        }
        // A segment cuts it anew, into as many.
        let most = core.geometry.small_size;
        let is_cut_so = match pieces.split_last() {
            Some((last, rest)) => last.stored <= most && rest.iter().all(|it| it.stored == most),
            None => false,
        };
        if !is_cut_so {
            return Err(Corrupt::Xattr { ino }.into());
        }
        let mut value = Vec::new();
        for piece in pieces.iter() {
            value.extend_from_slice(&core.blocks.bytes(piece, What::Data(ino))?);
        }
        let old = pieces.clone();
        pieces.fill(Pointer::NONE);
        tree.prepare_put(&root, &mut core.blocks, key)?;
        Ok(Plan::Change(MovingValue {
            ino,
            key,
            tree,
            root,
            entry: xattr.encode(),
            value: value.into(),
            old,
        }))
    }
}

impl Change for MovingValue {
    type Done = ();

    fn claim(&self) -> Claim {
        Claim::Nothing
    }

    fn apply(self, core: &mut Core) -> Result<(), Broken> {
        let mut root = self.root;
        self.tree
            .put(&mut root, &mut core.blocks, self.key, &self.entry)?;
        core.pending.add_content(self.value.len());
        let node = core.inodes.prepared(self.ino)?;
        node.inode_mut().xattrs = root;
        node.put_value(self.key, self.value);
        for piece in &self.old {
            core.freeing().block(piece);
        }
        Ok(core.touch(self.ino)?)
    }
}

/// Makes an image dirty if it is there. It moves within the log, and settles in its own time.
pub(super) struct MoveImage {
    pub ino: Ino,
    pub unit: u64,
    pub at: FragAddr,
}

/// [`MoveImage`], prepared.
pub(super) struct MovingImage {
    ino: Ino,
    unit: u64,
    home: FragAddr,
    content: UnitBytes,
}

impl Operation for MoveImage {
    type Change = MovingImage;

    fn prepare(&self, core: &mut Core) -> Result<Plan<MovingImage>, Stop> {
        let (ino, unit) = (self.ino, self.unit);
        let behind = unit.saturating_add(1);
        let Some((_, home)) = core.reading().homes(ino, unit, behind)?.pop() else {
            return Ok(Plan::Done(()));
        };
        let image = core.maps.lazy_map().get(&home).map(|entry| entry.image);
        if image != Some(self.at) || core.node(ino)?.homed().get(unit).is_some() {
            return Ok(Plan::Done(()));
        }
        let content = core.reading().shown_unit(ino, unit)?;
        core.prepare_dirty(ino)?;
        Ok(Plan::Change(MovingImage {
            ino,
            unit,
            home,
            content,
        }))
    }
}

impl Change for MovingImage {
    type Done = ();

    fn claim(&self) -> Claim {
        Claim::Nothing
    }

    fn apply(self, core: &mut Core) -> Result<(), Broken> {
        let node = core.inodes.prepared(self.ino)?;
        let put = |homed: &mut Homed| homed.move_image(self.unit, self.home, self.content);
        node.change_homed(&mut core.writeback, put);
        Ok(core.touch(self.ino)?)
    }
}
