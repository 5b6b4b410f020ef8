//! What a volume may look like after a crash (rules 2 and 3).
//!
//! Names, attributes and small files are those of one moment between two
//! operations, not before the last one that was promised. Files of more than a
//! block may lag behind that moment, each 4 KiB of them by itself, but not behind
//! what was promised of them.

use std::collections::BTreeMap;
use std::sync::Arc;

use loamfs_format::inode::mode;

use super::history::{History, Level};
use crate::compare::{Inos, match_tree};
use crate::content::{Content, UNIT};
use crate::geometry::Geometry;
use crate::model::{Body, Id, Model, Object, ROOT};
use crate::problem::{Problem, Verdict};
use crate::tree::{Node, Tree};

/// The snapshot whose state a recovered volume shows.
pub fn allowed(
    history: &History,
    level: &Level,
    tree: &Tree,
    geometry: &Geometry,
) -> Verdict<usize> {
    let mut reasons = Vec::new();
    for snapshot in (level.floor..=level.ceiling.min(history.last())).rev() {
        let judge = Judge {
            history,
            level,
            snapshot,
            block: geometry.block.into(),
        };
        let matched = match_tree(&history.snapshots[snapshot], tree, |id, object, node| {
            judge.file(id, object, node)
        });
        match matched {
            Ok(_) => return Ok(snapshot),
            Err(reason) => reasons.push((snapshot, reason)),
        }
    }
    Err(problem(history, level, tree, &reasons))
}

/// Says whether the state is too old, or none at all.
fn problem(history: &History, level: &Level, tree: &Tree, reasons: &[(usize, String)]) -> Problem {
    let size = |object: &Object, node: &Node| {
        let size = object.content().map(|content| content.size());
        (size.is_some_and(|size| size != node.attr.size)).then(|| "another size".to_owned())
    };
    let older = (0..level.floor).rev().find(|&snapshot| {
        let model = &history.snapshots[snapshot];
        match_tree(model, tree, |_, object, node| size(object, node)).is_ok()
    });
    let mut shown: Vec<_> = reasons.iter().take(3).collect();
    shown.extend(reasons.iter().skip(3).next_back());
    let shown: Vec<_> = shown
        .into_iter()
        .map(|(snapshot, reason)| format!("after operation {snapshot}: {reason}"))
        .collect();
    let shown = shown.join("; ");
    match older {
        Some(older) => Problem::new(
            "what was promised is lost",
            format!(
                "the state is that after operation {older}, promised were {}; {shown}",
                level.floor
            ),
        ),
        None => Problem::new(
            "the state is that of no moment",
            format!(
                "operations {} to {} would be allowed; {shown}",
                level.floor, level.ceiling
            ),
        ),
    }
}

/// Judges files for one snapshot.
struct Judge<'a> {
    history: &'a History,
    level: &'a Level,
    snapshot: usize,
    block: u64,
}

impl Judge<'_> {
    fn file(&self, id: Id, object: &Object, node: &Node) -> Option<String> {
        let (expected, found) = (object.content()?, node.content.as_ref()?);
        if expected == found {
            return None;
        }
        let versions = self.versions(id);
        let small = versions.iter().all(|version| version.size() <= self.block);
        if small {
            return Some(format!(
                "{} bytes that differ from the {} of then",
                found.size(),
                expected.size()
            ));
        }
        lagging(found, &versions)
    }

    /// The contents that a file had since they were last promised.
    fn versions(&self, id: Id) -> Vec<&Content> {
        let replaced = self.history.replacements.iter();
        let replaced = replaced
            .filter(|&&(other, from)| other == id && from <= self.snapshot)
            .map(|&(_, from)| from);
        let start = replaced
            .chain([
                self.level.content_floor(id),
                self.history.renewed(self.snapshot),
            ])
            .max()
            .unwrap_or(0)
            .min(self.snapshot);
        let mut versions: Vec<&Content> = Vec::new();
        let mut last: Option<&Arc<Object>> = None;
        for model in &self.history.snapshots[start..=self.snapshot] {
            let object = model.get(id);
            let same = matches!((last, object), (Some(one), Some(two)) if Arc::ptr_eq(one, two));
            if !same {
                versions.extend(object.and_then(|object| object.content()));
            }
            last = object;
        }
        versions
    }
}

/// What is wrong with a file that may be a mixture of versions.
fn lagging(found: &Content, versions: &[&Content]) -> Option<String> {
    let sizes = versions.iter().map(|version| version.size());
    let (low, high) = (sizes.clone().min()?, sizes.max()?);
    let size = found.size();
    if size < low || size > high {
        return Some(format!("size {size}, never below {low} or above {high}"));
    }
    for unit in 0..size.div_ceil(UNIT) {
        let len = UNIT.min(size - unit * UNIT);
        let end = unit * UNIT + len;
        let known = versions.iter().any(|version| {
            version.size() >= end && version.same_in_unit(found, unit, len as usize)
        });
        if !known {
            let zeroes = found.same_in_unit(&Content::default(), unit, len as usize);
            return Some(format!(
                "unit {unit} of {size} bytes is of none of {} versions{}",
                versions.len(),
                if zeroes { " (all zero)" } else { "" }
            ));
        }
    }
    None
}

/// A model of what a tree shows, whose ids are the inode numbers.
pub fn adopt(tree: &Tree) -> (Model, Inos) {
    let objects: BTreeMap<Id, Arc<Object>> = tree
        .nodes
        .iter()
        .map(|(ino, node)| (ino.0, Arc::new(object_of(node))))
        .collect();
    let inos = tree.nodes.keys().map(|&ino| (ino.0, ino)).collect();
    (Model::from_objects(objects), inos)
}

fn object_of(node: &Node) -> Object {
    let attr = &node.attr;
    let body = match attr.mode & mode::TYPE {
        mode::DIRECTORY => Body::Dir {
            parent: node.parent.map_or(ROOT, |ino| ino.0),
            entries: node
                .entries
                .iter()
                .map(|(name, ino)| (name.clone(), ino.0))
                .collect(),
        },
        mode::SYMLINK => Body::Symlink(node.target.clone().unwrap_or_default()),
        mode::REGULAR => Body::File(node.content.clone().unwrap_or_default()),
        _ => Body::Special,
    };
    Object {
        file_type: attr.mode & mode::TYPE,
        permissions: attr.mode & !mode::TYPE,
        uid: attr.uid,
        gid: attr.gid,
        rdev: attr.rdev,
        nlink: attr.nlink,
        mtime: Some(attr.mtime),
        xattrs: node.xattrs.clone(),
        body,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn content(parts: &[(u64, u8)]) -> Content {
        let mut content = Content::default();
        for &(unit, byte) in parts {
            content.write(unit * UNIT, &[byte; UNIT as usize]);
        }
        content
    }

    #[test]
    fn a_lagging_file_is_a_mixture_of_whole_units() {
        let (old, new) = (
            content(&[(0, 1), (1, 1), (2, 1)]),
            content(&[(0, 2), (1, 2), (2, 2)]),
        );
        let versions = [&old, &new];
        assert_eq!(
            lagging(&content(&[(0, 1), (1, 2), (2, 1)]), &versions),
            None
        );
        assert!(lagging(&content(&[(0, 1), (1, 3), (2, 1)]), &versions).is_some());
        let mut torn = old.clone();
        torn.write(100, &[2; 100]);
        assert!(lagging(&torn, &versions).is_some());
    }

    #[test]
    fn a_lagging_file_shows_no_zeroes_that_were_never_there() {
        let (old, new) = (content(&[(0, 1)]), content(&[(0, 1), (1, 2), (2, 2)]));
        let versions = [&old, &new];
        assert_eq!(lagging(&content(&[(0, 1), (1, 2)]), &versions), None);
        let mut hole = old.clone();
        hole.truncate(2 * UNIT);
        assert!(lagging(&hole, &versions).is_some());
        assert!(lagging(&content(&[]), &versions).is_some());
    }
}
