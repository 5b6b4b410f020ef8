//! Extended attributes: in the inode's tail while they fit, else in a tree, large values as runs in the log.
//!
//! As every operation a change has two phases: [`Attributes`] finds and reads all that it needs, [`Put`] and [`Take`] carry
//! it out and do not stop.

mod acls;

use crate::blocks::{Stop, What};
use crate::core::Core;
use crate::error::{Corrupt, Error};
use crate::extents;
use crate::loader::Loader;
use crate::permission::AclKind;
use crate::tree::Tree;
use crate::types::XattrMode;
use loamfs_format::dirent::{DISCRIMINATORS, INLINE_OVERHEAD, InlineMap, NAME_MAX, hash_key};
use loamfs_format::inode::{Inode, TAIL};
use loamfs_format::node::TreeRoot;
use loamfs_format::xattr::{TREE_VALUE_MAX, VALUE_MAX, Value, Xattr};
use loamfs_format::{BlockKind, Ino, Pointer};

/// Shows where small files of a directory go. It is no attribute: nobody lists it, so that no copy takes it along, nor sets it.
pub const PLACEMENT: &str = "loamfs.place";
/// Shows on which devices large files of a directory go, likewise.
pub const TIER: &str = "loamfs.on";
/// Bytes of names that a file's attributes may have, since listxattr(2) gives no more.
const NAMES_MAX: usize = 65_536;

/// Leaves of a tree of attributes: each has one, whose name has a namespace and ends with a zero.
const LEAVES_MAX: u64 = NAMES_MAX as u64 / 7;

/// An attribute that is about to be set.
pub(crate) struct Put {
    key: u64,
    /// What it replaces.
    old: Option<Take>,
    namespace: u8,
    /// Name without its namespace.
    name: Vec<u8>,
    value: Vec<u8>,
}

impl Put {
    /// Bytes of the log that it makes at most.
    pub fn cost(&self) -> u64 {
        self.value.len() as u64 + 32_768
    }

    /// Sets an attribute that was prepared and admitted. The change of the inode is the caller's to note.
    pub fn apply(self, core: &mut Core, ino: Ino) -> Result<(), Stop> {
        let key = self.key;
        if let Some(old) = &self.old {
            drop_value(core, ino, key, &old.xattr);
        }
        let block = core.geometry.small_size as usize;
        let in_log = self.value.len() > TREE_VALUE_MAX;
        let (stored, value) = if in_log {
            // The pieces get their addresses when the segment is sealed.
            let pieces = vec![Pointer::NONE; self.value.len().div_ceil(block)];
            (Value::Log(pieces), Some(self.value))
        } else {
            (Value::Bytes(self.value), None)
        };
        let xattr = Xattr {
            namespace: self.namespace,
            name: self.name,
            value: stored,
        };
        let bytes = xattr.encode();
        let node = core.inodes.prepared(ino)?;
        let mut map = inline(node.inode())?;
        let old = map.get(key).map_or(0, |v| v.len() + INLINE_OVERHEAD);
        let size = map.size() - old + INLINE_OVERHEAD + bytes.len();
        let fits = fits_inline(node.inode(), size)
            && !in_log
            && self.old.as_ref().is_none_or(|old| old.in_inode);
        if fits {
            map.put(key, bytes);
        } else {
            map.remove(key);
            let mut root = node.inode().xattrs;
            tree(node.inode()).put(&mut root, &mut core.blocks, key, &bytes)?;
            node.inode_mut().xattrs = root;
        }
        node.inode_mut().inline_xattrs = map.encode();
        extents::leave_room(node.inode_mut(), &mut core.blocks)?;
        if self.old.is_none() {
            let names = node.names_size();
            node.set_names_size(names.map(|bytes| bytes + xattr.full_name().len() + 1));
        }
        if let Some(value) = value {
            core.pending.add_content(value.len());
            node.put_value(key, value.into());
        }
        Ok(())
    }
}

/// An attribute that an inode has, and that may go.
pub(crate) struct Take {
    key: u64,
    xattr: Xattr,
    /// Not in the tree.
    in_inode: bool,
}

impl Take {
    /// Takes an attribute out that was prepared. The change of the inode is the caller's to note.
    pub fn apply(self, core: &mut Core, ino: Ino) -> Result<(), Stop> {
        let Take {
            key,
            xattr,
            in_inode,
        } = self;
        drop_value(core, ino, key, &xattr);
        let node = core.inodes.prepared(ino)?;
        let gone = xattr.full_name().len() + 1;
        let names = node.names_size();
        node.set_names_size(names.map(|bytes| bytes.saturating_sub(gone)));
        if in_inode {
            let mut map = inline(node.inode())?;
            map.remove(key);
            node.inode_mut().inline_xattrs = map.encode();
        } else {
            let mut root = node.inode().xattrs;
            tree(node.inode()).remove(&mut root, &mut core.blocks, key)?;
            node.inode_mut().xattrs = root;
        }
        Ok(())
    }
}

pub(crate) fn tree(inode: &Inode) -> Tree {
    Tree::of_inode(inode, BlockKind::XattrNode)
}

/// The number of a name's namespace, and the rest of it. Under `system.` there are the access lists alone: the kernel lets
/// anybody ask for such a name, and leaves it to the file system which there are.
fn split(name: &[u8]) -> Result<(u8, &[u8]), Error> {
    let (namespace, short) = Xattr::split_name(name).ok_or(Error::Unsupported)?;
    if name.starts_with(b"system.") && AclKind::of(name).is_none() {
        return Err(Error::Unsupported);
    }
    if short.is_empty() || short.contains(&0) {
        return Err(Error::Invalid("the attribute's name is empty"));
    }
    Ok((namespace, short))
}

/// Whether attributes of so many bytes may stand in an inode's tail: whatever body and table become, the root of a tree must still
/// fit there for either.
fn fits_inline(inode: &Inode, bytes: usize) -> bool {
    bytes + inode.body.len().max(TreeRoot::SIZE) + inode.table.claim() <= TAIL
}

fn inline(inode: &Inode) -> Result<InlineMap, Stop> {
    Ok(InlineMap::decode(&inode.inline_xattrs).ok_or(Corrupt::Xattr { ino: inode.ino })?)
}

fn decode(ino: Ino, value: &[u8]) -> Result<Xattr, Stop> {
    Ok(Xattr::decode(value).ok_or(Corrupt::Xattr { ino })?)
}

/// Attributes of inodes: reading them, and preparing changes.
pub(crate) struct Attributes<'c> {
    loader: Loader<'c>,
}

impl Core {
    /// Attributes of inodes.
    pub fn attributes(&mut self) -> Attributes<'_> {
        Attributes {
            loader: self.loader(),
        }
    }
}

impl Attributes<'_> {
    /// All attributes with their keys.
    fn all(&mut self, ino: Ino) -> Result<Vec<(u64, Xattr)>, Stop> {
        let (node, blocks) = self.loader.again().with_blocks(ino)?;
        let mut raw = inline(node.inode())?.0;
        let (tree, root) = (tree(node.inode()), node.inode().xattrs);
        if tree
            .known_leaves(&root, blocks)
            .is_some_and(|leaves| leaves > LEAVES_MAX)
        {
            return Err(Corrupt::Xattr { ino }.into());
        }
        // All that is missing is asked for at once: each time it begins anew.
        let mut lost = None;
        tree.scan_around(
            &root,
            blocks,
            |key, value| raw.push((key, value.to_vec())),
            |_, stop| lost = lost.take().or(Some(stop)),
        );
        if let Some(stop) = lost {
            return Err(stop);
        }
        raw.into_iter()
            .map(|(key, value)| Ok((key, decode(ino, &value)?)))
            .collect()
    }

    /// The attributes whose names have the hash of this one, with their keys and whether they are in the inode.
    fn like(&mut self, ino: Ino, name: &[u8]) -> Result<Vec<Take>, Stop> {
        let first = hash_key(&self.loader.hash_key(), name);
        let (node, blocks) = self.loader.again().with_blocks(ino)?;
        let (map, root, tree) = (
            inline(node.inode())?,
            node.inode().xattrs,
            tree(node.inode()),
        );
        let mut found = Vec::new();
        for (key, value) in map
            .0
            .iter()
            .filter(|(k, _)| (first..first + DISCRIMINATORS).contains(k))
        {
            found.push(Take {
                key: *key,
                xattr: decode(ino, value)?,
                in_inode: true,
            });
        }
        let mut from = first;
        while let Some(entry) = tree.next(&root, blocks, from)?
            && entry.key() < first + DISCRIMINATORS
        {
            found.push(Take {
                key: entry.key(),
                xattr: decode(ino, entry.value())?,
                in_inode: false,
            });
            from = entry.key() + 1;
        }
        Ok(found)
    }

    /// The attribute of a name, with its key and whether it is in the inode.
    fn find(&mut self, ino: Ino, name: &[u8]) -> Result<Option<Take>, Stop> {
        let mut found = self.like(ino, name)?.into_iter();
        Ok(found.find(|it| it.xattr.full_name() == name))
    }

    /// The value of an attribute, or what a directory says of files in it.
    pub fn get(&mut self, ino: Ino, name: &[u8]) -> Result<Vec<u8>, Stop> {
        let said: Option<fn(&Inode) -> &'static str> = match name {
            name if name == PLACEMENT.as_bytes() => Some(|dir| dir.placement.word()),
            name if name == TIER.as_bytes() => Some(|dir| dir.tier.word()),
            _ => None,
        };
        if let Some(word) = said {
            let inode = self.loader.again().node(ino)?.inode();
            return match inode.is_dir() {
                true => Ok(word(inode).as_bytes().to_vec()),
                false => Err(Error::NoAttribute.into()),
            };
        }
        split(name)?;
        let Take { key, xattr, .. } = self.find(ino, name)?.ok_or(Error::NoAttribute)?;
        match xattr.value {
            Value::Bytes(bytes) => Ok(bytes),
            Value::Log(pieces) => {
                let (node, blocks) = self.loader.again().with_blocks(ino)?;
                if let Some(bytes) = node.values().get(&key) {
                    return Ok(bytes.to_vec());
                }
                let mut value = Vec::new();
                for piece in &pieces {
                    value.extend_from_slice(&blocks.bytes(piece, What::Data(ino))?);
                }
                Ok(value)
            }
        }
    }

    /// The full names of all attributes that can be asked for: a volume may hold others (FORMAT.md, "Directories and
    /// attributes").
    pub fn list(&mut self, ino: Ino) -> Result<Vec<Vec<u8>>, Stop> {
        let all = self.all(ino)?.into_iter();
        let names = all.map(|(_, xattr)| xattr.full_name());
        Ok(names.filter(|name| split(name).is_ok()).collect())
    }

    /// Bytes of what listxattr(2) gives, counted once.
    fn names_size(&mut self, ino: Ino) -> Result<usize, Stop> {
        if let Some(names) = self.loader.again().node(ino)?.names_size() {
            return Ok(names);
        }
        let names = self.list(ino)?.iter().map(|name| name.len() + 1).sum();
        let node = self.loader.again().node(ino)?;
        node.set_names_size(Some(names));
        Ok(names)
    }

    /// Finds a place for an attribute, and reads what putting it there needs.
    pub fn prepare_put(
        &mut self,
        ino: Ino,
        name: &[u8],
        value: Vec<u8>,
        how: XattrMode,
    ) -> Result<Put, Stop> {
        let (namespace, short) = split(name)?;
        if name.len() > NAME_MAX || value.len() > VALUE_MAX {
            return Err(Error::Range.into());
        }
        let found = self.find(ino, name)?;
        match (&found, how) {
            (Some(_), XattrMode::Create) => return Err(Error::Exists.into()),
            (None, XattrMode::Replace) => return Err(Error::NoAttribute.into()),
            _ => {}
        }
        if found.is_none() && self.names_size(ino)? + name.len() + 1 > NAMES_MAX {
            return Err(Error::NoSpace.into());
        }
        self.loader.again().prepare_dirty(ino)?;
        let key = match &found {
            Some(found) => found.key,
            None => self.free_key(ino, name)?,
        };
        let (node, blocks) = self.loader.again().with_blocks(ino)?;
        let (root, tree) = (node.inode().xattrs, tree(node.inode()));
        tree.prepare_put(&root, blocks, key)?;
        Ok(Put {
            key,
            old: found,
            namespace,
            name: short.to_vec(),
            value,
        })
    }

    /// What [`Put::apply`] needs for an attribute of an inode that is about to be made; `taken` are the keys of
    /// others that it will have.
    pub fn prepare_new(
        &self,
        name: &[u8],
        value: Vec<u8>,
        taken: &[u64],
    ) -> Result<(u64, Put), Stop> {
        let (namespace, short) = split(name)?;
        let first = hash_key(&self.loader.hash_key(), name);
        let key = (first..first + DISCRIMINATORS).find(|key| !taken.contains(key));
        let key = key.ok_or(Error::NoSpace)?;
        let put = Put {
            key,
            old: None,
            namespace,
            name: short.to_vec(),
            value,
        };
        Ok((key, put))
    }

    /// A key for a new attribute that neither the inode nor the tree has.
    fn free_key(&mut self, ino: Ino, name: &[u8]) -> Result<u64, Stop> {
        let first = hash_key(&self.loader.hash_key(), name);
        let like = self.like(ino, name)?.into_iter();
        let taken: Vec<u64> = like.map(|it| it.key).collect();
        let key = (first..first + DISCRIMINATORS).find(|key| !taken.contains(key));
        Ok(key.ok_or(Error::NoSpace)?)
    }

    /// Finds an attribute, and reads what taking it out needs.
    pub fn prepare_take(&mut self, ino: Ino, name: &[u8]) -> Result<Option<Take>, Stop> {
        split(name)?;
        let Some(found) = self.find(ino, name)? else {
            return Ok(None);
        };
        self.loader.again().prepare_dirty(ino)?;
        let (node, blocks) = self.loader.again().with_blocks(ino)?;
        let (root, tree) = (node.inode().xattrs, tree(node.inode()));
        if !found.in_inode {
            tree.prepare_remove(&root, blocks, found.key)?;
        }
        Ok(Some(found))
    }
}

/// Frees what an attribute's value takes in the log, or what of it waits in memory.
pub(crate) fn drop_value(core: &mut Core, ino: Ino, key: u64, xattr: &Xattr) {
    if let Value::Log(pieces) = &xattr.value {
        pieces.iter().for_each(|piece| core.freeing().block(piece));
    }
    let waiting = core
        .inodes
        .get_mut(ino)
        .and_then(|node| node.take_value(key));
    core.pending.drop_content(waiting.as_deref());
}

/// Notes that an inode's attributes changed.
pub(crate) fn changed(core: &mut Core, ino: Ino) -> Result<(), Stop> {
    let now = core.env.now();
    core.inodes.prepared(ino)?.inode_mut().ctime = now;
    core.touch(ino)
}
