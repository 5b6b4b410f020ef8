//! Directories that are written together: their names, and then what leads to their tracks, tables and inodes. Whoever lists many
//! directories, or looks names up in them, then reads few windows for all of them.

use crate::blocks::Stop;
use crate::core::Core;
use crate::error::Error;
use crate::inodes::trees;
use crate::operations::{Broken, Change, Claim, NAMES_COST, Operation, Plan};
use crate::tree::Tree;
use loamfs_format::Ino;
use loamfs_format::ifile::{INODE_BLOCK_MAX, block_of};
use loamfs_format::kind::InodeTree;
use loamfs_format::node::TreeRoot;

/// Makes a directory's inode dirty, and the path to one leaf of a tree of it, so that the next segment takes them along. Answers
/// where the next leaf begins, if there is one.
pub(crate) struct Gather {
    pub dir: Ino,
    pub which: InodeTree,
    pub from: u64,
}

/// [`Gather`], prepared.
pub(crate) struct Gathering {
    dir: Ino,
    which: InodeTree,
    leaf: Option<Leaf>,
}

/// A leaf: the same entry is put again, which takes the path to it out for change.
struct Leaf {
    tree: Tree,
    root: TreeRoot,
    key: u64,
    value: Vec<u8>,
    next: Option<u64>,
}

impl Operation for Gather {
    type Change = Gathering;

    fn prepare(&self, core: &mut Core) -> Result<Plan<Gathering>, Stop> {
        let (dir, which) = (self.dir, self.which);
        match core.directory(dir) {
            Err(Stop::Failed(Error::Stale(_))) => return Ok(Plan::Done(None)),
            met => drop(met?),
        }
        core.prepare_dirty(dir)?;
        let inode = core.inodes.prepared(dir)?.inode();
        let Some((tree, root)) = trees::tree_of(inode, which) else {
            let leaf = None;
            return Ok(Plan::Change(Gathering { dir, which, leaf }));
        };
        let blocks = &mut core.blocks;
        let Some(found) = tree.descend(&root, blocks, self.from, |_| true)? else {
            return Ok(Plan::Done(None));
        };
        let Some((key, value)) = found.page.iter().next() else {
            return Ok(Plan::Done(found.end));
        };
        tree.prepare_put(&root, blocks, key)?;
        let leaf = Some(Leaf {
            tree,
            root,
            key,
            value: value.to_vec(),
            next: found.end,
        });
        Ok(Plan::Change(Gathering { dir, which, leaf }))
    }
}

impl Change for Gathering {
    type Done = Option<u64>;

    fn claim(&self) -> Claim {
        Claim::Growth {
            log: INODE_BLOCK_MAX + NAMES_COST,
            data: 0,
        }
    }

    fn apply(self, core: &mut Core) -> Result<Option<u64>, Broken> {
        let Some(leaf) = self.leaf else {
            core.inodes.touch_block(block_of(self.dir))?;
            core.note_dirty();
            return Ok(None);
        };
        let mut root = leaf.root;
        let blocks = &mut core.blocks;
        leaf.tree.put(&mut root, blocks, leaf.key, &leaf.value)?;
        let inode = core.inodes.prepared(self.dir)?.inode_mut();
        trees::set_root(inode, self.which, root);
        core.touch(self.dir)?;
        Ok(leaf.next)
    }
}
