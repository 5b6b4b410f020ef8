//! Setting and removing extended attributes.

use super::{Broken, Change, Claim, Operation, Plan};
use crate::blocks::Stop;
use crate::core::Core;
use crate::error::Error;
use crate::inodes::trees;
use crate::permission;
use crate::tree::Tree;
use crate::types::XattrMode;
use crate::xattrs::{self, Put, Take};
use loamfs_format::Ino;
use loamfs_format::kind::InodeTree;
use loamfs_format::node::TreeRoot;
use loamfs_format::xattr::Xattr;

/// Leaves that one step of a removal frees.
const CLEAR_LEAVES: usize = 16;

/// Sets an attribute. Access lists are [`SetAcl`](super::acl::SetAcl)'s.
pub(crate) struct SetXattr {
    pub ino: Ino,
    pub name: Vec<u8>,
    pub value: Vec<u8>,
    pub how: XattrMode,
}

/// [`SetXattr`], prepared.
pub(crate) struct SettingXattr {
    ino: Ino,
    put: Put,
}

impl Operation for SetXattr {
    type Change = SettingXattr;

    fn prepare(&self, core: &mut Core) -> Result<Plan<SettingXattr>, Stop> {
        permission::may_change(core.flags(self.ino)?)?;
        let put =
            core.attributes()
                .prepare_put(self.ino, &self.name, self.value.clone(), self.how)?;
        Ok(Plan::Change(SettingXattr { ino: self.ino, put }))
    }
}

impl Change for SettingXattr {
    type Done = ();

    fn claim(&self) -> Claim {
        Claim::Growth {
            log: self.put.cost(),
            data: 0,
        }
    }

    fn apply(self, core: &mut Core) -> Result<(), Broken> {
        self.put.apply(core, self.ino)?;
        Ok(xattrs::changed(core, self.ino)?)
    }
}

/// Removes an attribute.
pub(crate) struct RemoveXattr {
    pub ino: Ino,
    pub name: Vec<u8>,
}

/// [`RemoveXattr`], prepared.
pub(crate) struct RemovingXattr {
    ino: Ino,
    take: Take,
}

impl Operation for RemoveXattr {
    type Change = RemovingXattr;

    fn prepare(&self, core: &mut Core) -> Result<Plan<RemovingXattr>, Stop> {
        permission::may_change(core.flags(self.ino)?)?;
        let take = core.attributes().prepare_take(self.ino, &self.name)?;
        Ok(Plan::Change(RemovingXattr {
            ino: self.ino,
            take: take.ok_or(Error::NoAttribute)?,
        }))
    }
}

impl Change for RemovingXattr {
    type Done = ();

    fn claim(&self) -> Claim {
        Claim::Removal
    }

    fn apply(self, core: &mut Core) -> Result<(), Broken> {
        self.take.apply(core, self.ino)?;
        Ok(xattrs::changed(core, self.ino)?)
    }
}

/// A bounded number of an orphan's attributes, or of entries of its table of tracks, about to go.
pub(crate) struct Clearing {
    ino: Ino,
    which: InodeTree,
    tree: Tree,
    root: TreeRoot,
}

impl Clearing {
    /// Reads what the next step needs; `None` when nothing is left in the trees.
    pub fn prepare(core: &mut Core, ino: Ino) -> Result<Option<Clearing>, Stop> {
        core.prepare_dirty(ino)?;
        let node = core.inodes.prepared(ino)?;
        let full = [InodeTree::Xattr, InodeTree::Track].map(|which| {
            let tree = trees::tree_of(node.inode(), which);
            let tree = tree.filter(|(_, root)| !root.is_empty());
            tree.map(|(tree, root)| (which, tree, root))
        });
        let Some((which, tree, root)) = full.into_iter().flatten().next() else {
            return Ok(None);
        };
        tree.prepare_trim(&root, &mut core.blocks, 0, CLEAR_LEAVES)?;
        Ok(Some(Clearing {
            ino,
            which,
            tree,
            root,
        }))
    }
}

impl Change for Clearing {
    type Done = ();

    fn claim(&self) -> Claim {
        Claim::Removal
    }

    fn apply(self, core: &mut Core) -> Result<(), Broken> {
        let (ino, mut root, mut gone) = (self.ino, self.root, Vec::new());
        let note = |key, value: &[u8]| {
            if self.which == InodeTree::Xattr {
                gone.extend(Xattr::decode(value).map(|xattr| (key, xattr)));
            }
        };
        let blocks = &mut core.blocks;
        self.tree
            .trim_step(&mut root, blocks, 0, CLEAR_LEAVES, note)?;
        let node = core.inodes.prepared(ino)?;
        trees::set_root(node.inode_mut(), self.which, root);
        node.set_names_size(None);
        for (key, xattr) in gone {
            xattrs::drop_value(core, ino, key, &xattr);
        }
        Ok(core.touch(ino)?)
    }
}
