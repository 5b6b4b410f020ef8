//! Nodes of files' trees that move.

use crate::blocks::Stop;
use crate::core::Core;
use crate::inodes::trees;
use crate::operations::{Broken, Change, Claim, Operation, Plan};
use crate::tree::Tree;
use loamfs_format::kind::InodeTree;
use loamfs_format::node::TreeRoot;
use loamfs_format::{FragAddr, Ino};
use loamfs_space::Owner;

/// Makes a node of a file's tree dirty if it is still where its owner record says.
pub(super) struct MoveNode {
    pub owner: Owner,
    pub which: InodeTree,
    pub at: FragAddr,
}

/// [`MoveNode`], prepared: the same entry is put again, which takes the path to it out for change.
pub(super) struct MovingNode {
    ino: Ino,
    which: InodeTree,
    tree: Tree,
    root: TreeRoot,
    key: u64,
    value: Vec<u8>,
}

impl Operation for MoveNode {
    type Change = MovingNode;

    fn prepare(&self, core: &mut Core) -> Result<Plan<MovingNode>, Stop> {
        let owner = self.owner;
        core.prepare_dirty(owner.ino)?;
        let node = core.inodes.prepared(owner.ino)?;
        let Some((tree, root)) = trees::tree_of(node.inode(), self.which) else {
            return Ok(Plan::Done(()));
        };
        let found = tree.locate(&root, &mut core.blocks, owner.level, owner.logical)?;
        if found.is_none_or(|pointer| pointer.addr != self.at) {
            return Ok(Plan::Done(()));
        }
        let Some(entry) = tree.next(&root, &mut core.blocks, owner.logical)? else {
            return Ok(Plan::Done(()));
        };
        tree.prepare_put(&root, &mut core.blocks, entry.key())?;
        Ok(Plan::Change(MovingNode {
            ino: owner.ino,
            which: self.which,
            tree,
            root,
            key: entry.key(),
            value: entry.value().to_vec(),
        }))
    }
}

impl Change for MovingNode {
    type Done = ();

    fn claim(&self) -> Claim {
        Claim::Nothing
    }

    fn apply(self, core: &mut Core) -> Result<(), Broken> {
        let (ino, mut root) = (self.ino, self.root);
        self.tree
            .put(&mut root, &mut core.blocks, self.key, &self.value)?;
        let inode = core.inodes.prepared(ino)?.inode_mut();
        trees::set_root(inode, self.which, root);
        Ok(core.touch(ino)?)
    }
}
