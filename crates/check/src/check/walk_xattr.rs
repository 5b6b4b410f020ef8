//! Extended attributes.

use super::Walker;
use super::keyed::{KeyedNames, Verdict};
use super::visitor::Lost;
use crate::Problem;
use crate::reader::{TreeSpec, TreeWalk};
use loamfs_format::dirent::{InlineMap, NAME_MAX};
use loamfs_format::inode::Inode;
use loamfs_format::xattr::{TREE_VALUE_MAX, VALUE_MAX, Value, Xattr};
use loamfs_format::{BlockKind, Ino};

impl Walker<'_, '_> {
    pub(super) fn xattrs(&mut self, inode: &Inode) {
        let (ino, generation) = (inode.ino, inode.generation);
        let hash = self.volume.superblock().hash_key;
        let mut names = KeyedNames::new(hash);
        match InlineMap::decode(&inode.inline_xattrs) {
            Some(InlineMap(entries)) => {
                for (key, value) in &entries {
                    self.xattr(ino, &mut names, *key, value);
                }
            }
            None => self.visitor.problem(Problem::Xattr { ino, key: 0 }),
        }
        let mut names = KeyedNames::new(hash);
        let spec = TreeSpec {
            kind: BlockKind::XattrNode,
            ino,
            generation,
            root: inode.xattrs,
        };
        for node in TreeWalk::new(self.volume, spec, 0) {
            let leaf = self.node(node).filter(|page| page.level() == 0);
            for (key, value) in leaf.iter().flat_map(|page| page.iter()) {
                self.xattr(ino, &mut names, key, value);
            }
        }
    }

    fn xattr(&mut self, ino: Ino, names: &mut KeyedNames, key: u64, value: &[u8]) {
        let Some(xattr) = Xattr::decode(value) else {
            self.visitor.problem(Problem::Xattr { ino, key });
            self.visitor.lost(Lost::below(BlockKind::XattrValue));
            return;
        };
        let full = xattr.full_name();
        let fine = !xattr.name.is_empty() && full.len() <= NAME_MAX && !xattr.name.contains(&0);
        let fits = match &xattr.value {
            Value::Bytes(bytes) => bytes.len() <= TREE_VALUE_MAX,
            Value::Log(pieces) => {
                for piece in pieces {
                    self.data_block(ino, BlockKind::XattrValue, piece);
                }
                pieces
                    .iter()
                    .map(|piece| u64::from(piece.stored))
                    .sum::<u64>()
                    <= VALUE_MAX as u64
            }
        };
        match names.add(key, &full) {
            Verdict::Fine if fine && fits => {}
            Verdict::Twice => self.visitor.problem(Problem::XattrTwice { ino, key }),
            _ => self.visitor.problem(Problem::Xattr { ino, key }),
        }
    }
}
