//! Contents that were read before the tracks are formed which take them.

use crate::hash::NumberMap;
use loamfs_format::{Ino, Pointer};
use std::sync::Arc;

/// Contents that were read ahead, by where they stood: one that changed since is another's, or nobody's.
#[derive(Debug, Clone, Default)]
pub(crate) struct Ahead {
    contents: NumberMap<Ino, Content>,
}

/// What was read of a file, and where it stood.
#[derive(Debug, Clone)]
pub(crate) struct Content {
    pub ino: Ino,
    pub at: Pointer,
    pub bytes: Arc<[u8]>,
}

impl Ahead {
    /// The content of a file that stands there, if it was read.
    pub fn content(&self, ino: Ino, at: &Pointer) -> Option<Arc<[u8]>> {
        let found = self.contents.get(&ino).filter(|found| found.at == *at);
        found.map(|found| Arc::clone(&found.bytes))
    }

    /// These were read, too.
    pub fn add(&mut self, read: Vec<Content>) {
        let read = read.into_iter();
        self.contents
            .extend(read.map(|content| (content.ino, content)));
    }
}
