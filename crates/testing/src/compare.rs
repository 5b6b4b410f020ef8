//! A volume against a model: the same names, attributes and contents.

use std::collections::BTreeMap;

use loamfs_format::Ino;
use loamfs_format::inode::ROOT_INO;

use crate::content::{Content, UNIT};
use crate::model::{Body, Id, Model, Object, ROOT};
use crate::problem::{Problem, Verdict};
use crate::subject::Subject;
use crate::tree::{Node, Tree, list, must};

/// Which inode each object of a model is.
pub type Inos = BTreeMap<Id, Ino>;

/// Files up to this size are read whole, larger ones where they have data.
const WHOLE: u64 = 8 << 20;

/// Compares everything; the inodes of what has a name. `known` are inode numbers
/// that must have stayed.
pub fn compare(subject: &dyn Subject, model: &Model, known: &Inos) -> Verdict<Inos> {
    let differs = |detail| Problem::new("the volume differs from the model", detail);
    let tree = Tree::read(subject, false)?;
    let size = |object: &Object, node: &Node| {
        object.content().and_then(|content| {
            let found = node.attr.size;
            (content.size() != found).then(|| format!("size {found}, not {}", content.size()))
        })
    };
    let inos = match_tree(model, &tree, |_, object, node| size(object, node)).map_err(differs)?;
    for (id, ino) in &inos {
        if let Some(before) = known.get(id).filter(|&before| before != ino) {
            return Err(differs(format!(
                "{} was inode {before} and is {ino}",
                model.path(*id)
            )));
        }
        if let Some(content) = model.get(*id).and_then(|object| object.content()) {
            compare_content(subject, *ino, content)
                .map_err(|problem| problem.at(model.path(*id)))?;
        }
    }
    for (&id, &ino) in known {
        let orphan = model.get(id).filter(|object| object.nlink == 0);
        if let Some(object) = orphan {
            compare_orphan(subject, ino, object)?;
        }
    }
    Ok(inos)
}

/// A file without a name can only be asked, not found.
fn compare_orphan(subject: &dyn Subject, ino: Ino, object: &Object) -> Verdict {
    let attr = must(subject.getattr(ino), || format!("getattr of orphan {ino}"))?;
    if attr.nlink != 0 || attr.mode != object.mode() || object.size() != Some(attr.size) {
        let detail = format!("orphan {ino} is {attr:?}, not {object:?}");
        return Err(Problem::new("the volume differs from the model", detail));
    }
    match object.content() {
        Some(content) => compare_content(subject, ino, content),
        None => Ok(()),
    }
}

/// Compares the bytes of a file whose size has been compared.
pub fn compare_content(subject: &dyn Subject, ino: Ino, content: &Content) -> Verdict {
    let size = content.size();
    if size <= WHOLE {
        let pieces = (0..size).step_by(256 << 10);
        for offset in pieces {
            compare_range(subject, ino, content, offset, 256 << 10)?;
        }
    } else {
        let borders = [0, size / 2, size.saturating_sub(2 * UNIT)];
        let data = content.stored_units().map(|unit| unit * UNIT);
        for offset in borders.into_iter().chain(data) {
            compare_range(subject, ino, content, offset, 2 * UNIT as usize)?;
        }
    }
    // Behind the end there is nothing.
    compare_range(subject, ino, content, size, 100)
}

/// Compares a range of a file.
pub fn compare_range(
    subject: &dyn Subject,
    ino: Ino,
    content: &Content,
    offset: u64,
    len: usize,
) -> Verdict {
    let found = must(subject.read(ino, offset, len), || {
        format!("read of {len} bytes at {offset} of inode {ino}")
    })?;
    let expected = content.read(offset, len);
    if found == expected {
        return Ok(());
    }
    let detail = describe_difference(&found, &expected, offset);
    Err(Problem::new(
        "a file holds the wrong bytes",
        format!("inode {ino}, size {}: {detail}", content.size()),
    ))
}

fn describe_difference(found: &[u8], expected: &[u8], offset: u64) -> String {
    if found.len() != expected.len() {
        return format!(
            "a read at {offset} gave {} bytes, not {}",
            found.len(),
            expected.len()
        );
    }
    let differs = |at: &usize| found[*at] != expected[*at];
    let first = (0..found.len()).find(differs).unwrap_or(0);
    let last = (0..found.len()).rev().find(differs).unwrap_or(0);
    let zeroes = found[first..=last].iter().all(|&byte| byte == 0);
    format!(
        "bytes {}..={} differ{}",
        offset + first as u64,
        offset + last as u64,
        if zeroes { " (all zero)" } else { "" }
    )
}

/// Walks a model and a tree side by side. `file` judges the size and content of
/// regular files; everything else must be equal. Ends with the inode of each
/// object, or the first difference.
pub fn match_tree(
    model: &Model,
    tree: &Tree,
    mut file: impl FnMut(Id, &Object, &Node) -> Option<String>,
) -> Result<Inos, String> {
    let mut inos = Inos::from([(ROOT, ROOT_INO)]);
    let mut ids = BTreeMap::from([(ROOT_INO, ROOT)]);
    let mut next = vec![(ROOT, ROOT_INO)];
    while let Some((id, ino)) = next.pop() {
        let (Some(object), Some(node)) = (model.get(id), tree.nodes.get(&ino)) else {
            return Err(format!("inode {ino} is missing"));
        };
        let wrong = attributes(object, node)
            .or_else(|| file(id, object, node))
            .or_else(|| parent(object, node, &inos))
            .or_else(|| names(object, node));
        if let Some(wrong) = wrong {
            return Err(format!("{} (inode {ino}): {wrong}", model.path(id)));
        }
        let children = object.entries().into_iter().flatten();
        for ((name, &child), &child_ino) in children.zip(node.entries.values()) {
            let known = (inos.get(&child).copied(), ids.get(&child_ino).copied());
            match known {
                (None, None) => {
                    inos.insert(child, child_ino);
                    ids.insert(child_ino, child);
                    next.push((child, child_ino));
                }
                (Some(one), Some(two)) if one == child_ino && two == child => {}
                _ => {
                    let name = String::from_utf8_lossy(name);
                    return Err(format!(
                        "{name} in {} leads to the wrong inode {child_ino}",
                        model.path(id)
                    ));
                }
            }
        }
    }
    Ok(inos)
}

fn attributes(object: &Object, node: &Node) -> Option<String> {
    let attr = &node.attr;
    let pairs = [
        ("mode", attr.mode, object.mode()),
        ("nlink", attr.nlink, object.nlink),
        ("uid", attr.uid, object.uid),
        ("gid", attr.gid, object.gid),
        ("rdev", attr.rdev, object.rdev),
    ];
    for (what, found, expected) in pairs {
        if found != expected {
            return Some(match what {
                "mode" => format!("mode {found:o}, not {expected:o}"),
                _ => format!("{what} {found}, not {expected}"),
            });
        }
    }
    if object.mtime.is_some_and(|mtime| mtime != attr.mtime) {
        return Some(format!("mtime {:?}, not {:?}", attr.mtime, object.mtime));
    }
    match &object.body {
        Body::Symlink(target) if node.target.as_ref() != Some(target) => {
            return Some("another target".to_owned());
        }
        Body::Symlink(target) if attr.size != target.len() as u64 => {
            return Some(format!("size {} of a link", attr.size));
        }
        _ => {}
    }
    xattrs(object, node)
}

fn xattrs(object: &Object, node: &Node) -> Option<String> {
    if object.xattrs == node.xattrs {
        return None;
    }
    let all = object.xattrs.keys().chain(node.xattrs.keys());
    let mut wrong = all.filter(|&name| object.xattrs.get(name) != node.xattrs.get(name));
    let name = wrong.next()?;
    let len = |value: Option<&std::sync::Arc<[u8]>>| value.map(|value| value.len());
    Some(format!(
        "attribute {:?} has {:?} bytes, not {:?} (or other ones)",
        String::from_utf8_lossy(name),
        len(node.xattrs.get(name)),
        len(object.xattrs.get(name))
    ))
}

fn parent(object: &Object, node: &Node, inos: &Inos) -> Option<String> {
    let Body::Dir { parent, .. } = &object.body else {
        return None;
    };
    // The walk comes from above, so that the parent is known.
    let expected = inos.get(parent).copied();
    (node.parent != expected).then(|| format!(".. is {:?}, not {expected:?}", node.parent))
}

fn names(object: &Object, node: &Node) -> Option<String> {
    let expected = object.entries()?;
    if expected.keys().eq(node.entries.keys()) {
        return None;
    }
    let missing = expected.keys().find(|&n| !node.entries.contains_key(n));
    let extra = node.entries.keys().find(|&n| !expected.contains_key(n));
    let show = |name: Option<&Vec<u8>>| name.map(|n| String::from_utf8_lossy(n).into_owned());
    Some(format!(
        "{} names, not {}; missing {:?}, extra {:?}",
        node.entries.len(),
        expected.len(),
        show(missing),
        show(extra)
    ))
}

/// Checks that positions inside a directory stay good: reading on from any of
/// them gives what followed it.
pub fn compare_positions(subject: &dyn Subject, dir: Ino) -> Verdict {
    let all = list(subject, dir, usize::from(u16::MAX))?;
    let step = (all.len() / 7).max(1);
    for start in (0..all.len()).step_by(step) {
        let rest = must(subject.readdir(dir, all[start].next, all.len()), || {
            format!("readdir of {dir} at {}", all[start].next)
        })?;
        // A volume may give less than was asked for, but nothing else.
        let expected = &all[start + 1..];
        if rest.is_empty() != expected.is_empty() || !expected.starts_with(&rest) {
            let detail = format!("directory {dir}, behind entry {start} of {}", all.len());
            return Err(Problem::new("a position of readdir is wrong", detail));
        }
    }
    Ok(())
}
