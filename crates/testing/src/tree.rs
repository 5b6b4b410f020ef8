//! Everything that a volume shows, read through its interface.

use std::collections::BTreeMap;
use std::sync::Arc;

use loamfs_format::Ino;
use loamfs_format::inode::{ROOT_INO, mode};
use loamfs_fs::{Attr, DirEntry};

use crate::content::Content;
use crate::problem::{Problem, Verdict};
use crate::subject::{Failure, PLACEMENT, Subject, TIER};

/// Bytes of a read.
const READ: usize = 1 << 20;
/// No test makes a larger file that must be read whole.
const SIZE_MAX: u64 = 256 << 20;
/// Steps after which reading a directory is not going to end.
const STEPS_MAX: usize = 1 << 20;

/// An inode and what hangs from it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// Its attributes.
    pub attr: Attr,
    /// Where `..` leads, of a directory.
    pub parent: Option<Ino>,
    /// Names in it, of a directory.
    pub entries: BTreeMap<Vec<u8>, Ino>,
    /// Target, of a symbolic link.
    pub target: Option<Vec<u8>>,
    /// Extended attributes.
    pub xattrs: BTreeMap<Vec<u8>, Arc<[u8]>>,
    /// Content, of a regular file, when it was asked for.
    pub content: Option<Content>,
}

/// The tree from the root down.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tree {
    /// What a name leads to, and the root.
    pub nodes: BTreeMap<Ino, Node>,
}

/// An error where there must be none.
///
/// # Errors
/// The problem that it is.
pub fn must<T>(outcome: Result<T, Failure>, what: impl FnOnce() -> String) -> Verdict<T> {
    outcome.map_err(|failure| {
        Problem::new(
            "an operation failed that cannot",
            format!("{}: {failure}", what()),
        )
    })
}

fn inconsistent(detail: String) -> Problem {
    Problem::new("the volume contradicts itself", detail)
}

impl Tree {
    /// Reads a volume, with the contents of files or without.
    pub fn read(subject: &dyn Subject, with_contents: bool) -> Verdict<Self> {
        let mut nodes = BTreeMap::new();
        let mut next = vec![ROOT_INO];
        while let Some(ino) = next.pop() {
            if nodes.contains_key(&ino) {
                continue;
            }
            let node = Node::read(subject, ino, with_contents)?;
            next.extend(node.entries.values());
            nodes.insert(ino, node);
        }
        Ok(Self { nodes })
    }
}

impl Node {
    fn read(subject: &dyn Subject, ino: Ino, with_contents: bool) -> Verdict<Self> {
        let attr = must(subject.getattr(ino), || format!("getattr of {ino}"))?;
        if attr.ino != ino {
            return Err(inconsistent(format!("getattr of {ino} tells {}", attr.ino)));
        }
        let mut node = Self {
            attr,
            parent: None,
            entries: BTreeMap::new(),
            target: None,
            xattrs: read_xattrs(subject, ino)?,
            content: None,
        };
        match attr.mode & mode::TYPE {
            mode::DIRECTORY => node.read_dir(subject)?,
            mode::SYMLINK => {
                let target = must(subject.readlink(ino), || format!("readlink of {ino}"))?;
                node.target = Some(target);
            }
            mode::REGULAR if with_contents => {
                node.content = Some(read_content(subject, ino, attr.size)?);
            }
            _ => {}
        }
        Ok(node)
    }

    fn read_dir(&mut self, subject: &dyn Subject) -> Verdict {
        let dir = self.attr.ino;
        let mut dots = [None; 2];
        for entry in list(subject, dir, 64)? {
            let what = || format!("entry {:?} of {dir}", String::from_utf8_lossy(&entry.name));
            match &entry.name[..] {
                b"." if dots[0].replace(entry.ino).is_none() => continue,
                b".." if dots[1].replace(entry.ino).is_none() => continue,
                _ => {}
            }
            let found = must(subject.lookup(dir, &entry.name), || {
                format!("lookup of {}", what())
            })?;
            if found.ino != entry.ino {
                return Err(inconsistent(format!(
                    "{} is inode {}, and {} by lookup",
                    what(),
                    entry.ino,
                    found.ino
                )));
            }
            if found.mode >> 12 != u32::from(entry.file_type) {
                return Err(inconsistent(format!(
                    "{} has type {}, its inode mode {:o}",
                    what(),
                    entry.file_type,
                    found.mode
                )));
            }
            if self.entries.insert(entry.name.clone(), entry.ino).is_some() {
                return Err(inconsistent(format!("{} is there twice", what())));
            }
        }
        if dots[0] != Some(dir) || dots[1].is_none() {
            return Err(inconsistent(format!(
                "directory {dir} lists {dots:?} for . and .."
            )));
        }
        self.parent = dots[1];
        Ok(())
    }
}

/// All entries of a directory, read in pieces.
pub(crate) fn list(subject: &dyn Subject, dir: Ino, chunk: usize) -> Verdict<Vec<DirEntry>> {
    let mut entries: Vec<DirEntry> = Vec::new();
    let mut position = 0;
    for _ in 0..STEPS_MAX {
        let piece = must(subject.readdir(dir, position, chunk), || {
            format!("readdir of {dir} at {position}")
        })?;
        let Some(last) = piece.last() else {
            return Ok(entries);
        };
        if piece.len() > chunk {
            return Err(inconsistent(format!(
                "readdir of {dir} gave {} entries for {chunk}",
                piece.len()
            )));
        }
        position = last.next;
        entries.extend(piece);
    }
    Err(inconsistent(format!(
        "reading directory {dir} does not end"
    )))
}

fn read_xattrs(subject: &dyn Subject, ino: Ino) -> Verdict<BTreeMap<Vec<u8>, Arc<[u8]>>> {
    let names = must(subject.listxattr(ino), || format!("listxattr of {ino}"))?;
    let count = names.len();
    let mut xattrs = BTreeMap::new();
    for name in names {
        let value = must(subject.getxattr(ino, &name), || {
            format!("getxattr {:?} of {ino}", String::from_utf8_lossy(&name))
        })?;
        xattrs.insert(name, value.into());
    }
    if xattrs.len() != count {
        return Err(inconsistent(format!("listxattr of {ino} repeats a name")));
    }
    for name in [PLACEMENT, TIER] {
        if let Ok(word) = subject.getxattr(ino, name)
            && word != b"auto"
        {
            xattrs.insert(name.to_vec(), word.into());
        }
    }
    Ok(xattrs)
}

fn read_content(subject: &dyn Subject, ino: Ino, size: u64) -> Verdict<Content> {
    if size > SIZE_MAX {
        return Err(inconsistent(format!("inode {ino} has {size} bytes")));
    }
    let mut content = Content::default();
    content.truncate(size);
    let mut offset = 0;
    while offset < size {
        let len = READ.min((size - offset) as usize);
        let bytes = must(subject.read(ino, offset, len), || {
            format!("read of {len} bytes at {offset} of {ino}")
        })?;
        if bytes.len() != len {
            return Err(inconsistent(format!(
                "a read of {len} bytes at {offset} of {ino}, which has {size}, gave {}",
                bytes.len()
            )));
        }
        content.write(offset, &bytes);
        offset += len as u64;
    }
    Ok(content)
}
