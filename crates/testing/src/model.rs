//! A plain in-memory file system: what a volume must behave like.
//!
//! It knows nothing of blocks, logs or crashes. Objects have ids that the caller
//! gives when it makes them, so that a sequence of operations means the same
//! after some of them were left out. A clone shares every object with its
//! original, so that a snapshot after each operation is cheap.

mod files;
mod namespace;
mod objects;
mod rename;
mod xattrs;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use loamfs_format::inode::{Timestamp, mode};

use crate::content::Content;
use crate::errno::Errno;

pub use objects::Objects;
pub use rename::{Rename, WHITEOUT};

/// Names an object of a model for good.
pub type Id = u64;

/// The root directory's id.
pub const ROOT: Id = 2;

/// Longest name in bytes.
pub const NAME_MAX: usize = 255;

/// Why an operation is refused. Where more than one rule forbids it, POSIX does
/// not say which counts; the others stand beside the likeliest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// What Linux answers.
    pub errno: Errno,
    /// What would be right, too.
    pub also: &'static [Errno],
}

impl Refusal {
    /// Whether an implementation may answer this.
    pub fn allows(&self, errno: Errno) -> bool {
        self.errno == errno || self.also.contains(&errno)
    }
}

impl From<Errno> for Refusal {
    fn from(errno: Errno) -> Self {
        Self { errno, also: &[] }
    }
}

/// What an operation of the model ends with.
pub type Answer<T> = Result<T, Refusal>;

/// What an object consists of besides its attributes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Body {
    /// A regular file.
    File(Content),
    /// A directory.
    Dir {
        /// Where `..` leads.
        parent: Id,
        /// Names, without `.` and `..`.
        entries: BTreeMap<Vec<u8>, Id>,
    },
    /// A symbolic link.
    Symlink(Vec<u8>),
    /// A device node, FIFO or socket.
    Special,
}

/// A file, directory, link or special file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Object {
    /// Type bits of the mode.
    pub file_type: u32,
    /// Permission bits of the mode.
    pub permissions: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Device number of a special file.
    pub rdev: u32,
    /// Names; of a directory, with `.` and the `..` of its children.
    pub nlink: u32,
    /// Time of the last change, when it was set and nothing has changed since.
    pub mtime: Option<Timestamp>,
    /// Extended attributes.
    pub xattrs: BTreeMap<Vec<u8>, Arc<[u8]>>,
    /// The rest.
    pub body: Body,
}

impl Object {
    /// The whole mode.
    pub fn mode(&self) -> u32 {
        self.file_type | self.permissions
    }

    /// The size that stat shows; `None` for a directory, whose size means nothing.
    pub fn size(&self) -> Option<u64> {
        match &self.body {
            Body::File(content) => Some(content.size()),
            Body::Symlink(target) => Some(target.len() as u64),
            Body::Dir { .. } => None,
            Body::Special => Some(0),
        }
    }

    /// What the file holds, of a regular file.
    pub fn content(&self) -> Option<&Content> {
        match &self.body {
            Body::File(content) => Some(content),
            _ => None,
        }
    }

    /// The names in it, of a directory.
    pub fn entries(&self) -> Option<&BTreeMap<Vec<u8>, Id>> {
        match &self.body {
            Body::Dir { entries, .. } => Some(entries),
            _ => None,
        }
    }

    /// Whether it is a directory.
    pub fn is_dir(&self) -> bool {
        self.entries().is_some()
    }
}

/// Who and what a new object is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct New {
    /// Permission bits.
    pub permissions: u32,
    /// Owner.
    pub uid: u32,
    /// Group, unless the directory hands down its own.
    pub gid: u32,
    /// Device number.
    pub rdev: u32,
}

/// A file system: its objects, and which of them live though no name leads to them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Model {
    objects: Objects,
    /// How often a file is held open.
    opens: BTreeMap<Id, u32>,
    /// Files that never had a name, and may get one.
    unnamed: BTreeSet<Id>,
}

impl Model {
    /// An empty file system whose root directory has these permissions and owner.
    pub fn new(permissions: u32, uid: u32, gid: u32) -> Self {
        let root = Object {
            file_type: mode::DIRECTORY,
            permissions,
            uid,
            gid,
            rdev: 0,
            nlink: 2,
            mtime: None,
            xattrs: BTreeMap::new(),
            body: Body::Dir {
                parent: ROOT,
                entries: BTreeMap::new(),
            },
        };
        Self {
            objects: Objects(BTreeMap::from([(ROOT, Arc::new(root))])),
            opens: BTreeMap::new(),
            unnamed: BTreeSet::new(),
        }
    }

    /// A file system of these objects, nothing of it open. They must include the
    /// root and whatever an entry names.
    pub fn from_objects(objects: BTreeMap<Id, Arc<Object>>) -> Self {
        Self {
            objects: Objects(objects),
            opens: BTreeMap::new(),
            unnamed: BTreeSet::new(),
        }
    }

    /// All objects, orphans that are held open included.
    pub fn objects(&self) -> &BTreeMap<Id, Arc<Object>> {
        &self.objects.0
    }

    /// Whether a file is held open.
    pub fn is_open(&self, id: Id) -> bool {
        self.opens.contains_key(&id)
    }

    /// Whether a file has no name, and never had one.
    pub fn is_unnamed(&self, id: Id) -> bool {
        self.unnamed.contains(&id)
    }

    /// The files that are held open.
    pub fn open_ids(&self) -> impl Iterator<Item = Id> + '_ {
        self.opens.keys().copied()
    }

    /// What unmounting does: nothing is open any more, and what has no name is gone.
    pub fn remount(&mut self) {
        self.opens.clear();
        self.unnamed.clear();
        self.objects.0.retain(|_, object| object.nlink > 0);
    }

    /// Drops an object that has neither a name nor a holder.
    fn reap(&mut self, id: Id) {
        let dead = self.objects.get(id).is_some_and(|o| o.nlink == 0);
        if dead && !self.opens.contains_key(&id) {
            self.objects.0.remove(&id);
            self.unnamed.remove(&id);
        }
    }
}

/// Whoever asks about one object, or changes it alone, asks [`Objects`].
impl Deref for Model {
    type Target = Objects;

    fn deref(&self) -> &Objects {
        &self.objects
    }
}

impl DerefMut for Model {
    fn deref_mut(&mut self) -> &mut Objects {
        &mut self.objects
    }
}
