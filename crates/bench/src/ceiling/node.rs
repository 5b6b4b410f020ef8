//! An inode in memory.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use loamfs_fuse::{FileAttr, FileKind, NodeId, SetAttr, TimeOrNow, Timestamp};

use super::BLOCK_SIZE;
use super::content::Content;
use super::directory::Directory;

/// Set-user-id and set-group-id.
const SET_IDS: u32 = 0o6000;
/// May be executed by its group: only then is set-group-id more than a mark.
const GROUP_EXECUTE: u32 = 0o010;
/// Permission bits of a mode.
pub const PERMISSIONS: u32 = 0o7777;

/// An inode.
pub struct Node {
    /// Its number.
    id: NodeId,
    /// Its type.
    kind: FileKind,
    state: Mutex<State>,
}

/// What changes of an inode.
pub struct State {
    /// Attributes; size and blocks are those of the content.
    attr: FileAttr,
    /// When it was made.
    birth: Timestamp,
    /// What is in it.
    body: Body,
    /// How often the kernel has looked it up.
    lookups: u64,
}

/// What is in an inode.
pub enum Body {
    /// A regular file's bytes.
    File(Content),
    /// A directory's names, and the directory above.
    Directory(Directory, NodeId),
    /// Where a symbolic link leads.
    Link(Box<[u8]>),
    /// Nothing: device nodes and the like.
    Special,
}

/// The time.
pub fn now() -> Timestamp {
    SystemTime::now().into()
}

impl Node {
    /// A new one, with one name.
    pub fn new(id: NodeId, kind: FileKind, attr: FileAttr, body: Body) -> Node {
        let now = now();
        let attr = FileAttr {
            ino: id.0,
            atime: now,
            mtime: now,
            ctime: now,
            mode: kind.mode_bits() | attr.mode & PERMISSIONS,
            blksize: BLOCK_SIZE,
            ..attr
        };
        let state = Mutex::new(State {
            attr,
            birth: now,
            body,
            lookups: 0,
        });
        Node { id, kind, state }
    }

    /// Its number.
    pub const fn id(&self) -> NodeId {
        self.id
    }

    /// Its type.
    pub const fn kind(&self) -> FileKind {
        self.kind
    }

    /// Its state. Who holds a directory's may ask for that of an inode in it, and nobody asks the other way: so nobody waits
    /// in a circle.
    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// When it was made.
    pub const fn birth(&self) -> Timestamp {
        self.birth
    }

    /// What is in it.
    pub fn body(&self) -> &Body {
        &self.body
    }

    /// The kernel knows it once more.
    pub const fn look_up(&mut self) {
        self.lookups += 1;
    }

    /// The kernel gives up so many of the times that it looked it up.
    pub const fn forget(&mut self, lookups: u64) {
        self.lookups = self.lookups.saturating_sub(lookups);
    }

    /// Has another directory above it, if it is a directory.
    pub const fn go_below(&mut self, parent: NodeId) {
        if let Body::Directory(_, above) = &mut self.body {
            *above = parent;
        }
    }

    /// What stat(2) shows.
    pub fn attr(&self) -> FileAttr {
        let size = match &self.body {
            Body::File(content) => content.size(),
            Body::Link(target) => target.len() as u64,
            Body::Directory(..) | Body::Special => 0,
        };
        FileAttr {
            size,
            blocks: size.div_ceil(512),
            ..self.attr
        }
    }

    /// The names, if it is a directory.
    pub fn names(&mut self) -> Option<&mut Directory> {
        match &mut self.body {
            Body::Directory(names, _) => Some(names),
            _ => None,
        }
    }

    /// The bytes, if it is a file.
    pub fn content(&mut self) -> Option<&mut Content> {
        match &mut self.body {
            Body::File(content) => Some(content),
            _ => None,
        }
    }

    /// Has one name more or less.
    pub fn count_names(&mut self, by: i32) {
        self.attr.nlink = self.attr.nlink.saturating_add_signed(by);
        self.attr.ctime = now();
    }

    /// Has no name any more: a directory that is removed.
    pub fn lose_names(&mut self) {
        self.attr.nlink = 0;
        self.attr.ctime = now();
    }

    /// Whether nobody can reach it: it has no name, and the kernel does not know it.
    pub fn is_gone(&self) -> bool {
        self.attr.nlink == 0 && self.lookups == 0
    }

    /// Its content changed.
    pub fn touch(&mut self) {
        let now = now();
        self.attr.mtime = now;
        self.attr.ctime = now;
    }

    /// Takes set-user-id and the like away.
    pub fn drop_privileges(&mut self) {
        let group = self.attr.mode & GROUP_EXECUTE != 0;
        self.attr.mode &= !if group { SET_IDS } else { SET_IDS & 0o4000 };
    }

    /// Carries out a SETATTR.
    pub fn set(&mut self, set: &SetAttr) {
        let now = now();
        let time = |time: TimeOrNow| match time {
            TimeOrNow::Now => now,
            TimeOrNow::Time(time) => time,
        };
        let attr = &mut self.attr;
        attr.ctime = set.ctime.unwrap_or(now);
        attr.mode = set.mode.map_or(attr.mode, |mode| {
            attr.mode & !PERMISSIONS | mode & PERMISSIONS
        });
        attr.uid = set.uid.unwrap_or(attr.uid);
        attr.gid = set.gid.unwrap_or(attr.gid);
        if set.size.is_some() {
            attr.mtime = now;
        }
        attr.atime = set.atime.map_or(attr.atime, time);
        attr.mtime = set.mtime.map_or(attr.mtime, time);
        if set.kill_suidgid {
            self.drop_privileges();
        }
        if let (Some(size), Some(content)) = (set.size, self.content()) {
            content.resize(size);
        }
    }
}
