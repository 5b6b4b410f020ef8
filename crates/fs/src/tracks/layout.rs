//! How a segment writes tracks: a head, then the data in the order of keys, in one run.

use super::outcome::Outcome;
use super::{Forming, TrackFile, Tracks};
use crate::inodes::{Inodes, Node};
use loamfs_format::inode::Inode;
use loamfs_format::track::{SHORT_ELSEWHERE_MAX, Slot, head_bytes};
use loamfs_format::{Geometry, Ino, Pointer};
use std::sync::Arc;

/// A track that a segment writes.
#[derive(Debug)]
pub(crate) struct Layout {
    /// The directory.
    pub dir: Ino,
    /// Its range of keys.
    pub low: u64,
    pub high: u64,
    /// Names of the range that have no slot in it.
    pub elsewhere: u32,
    /// Its files, by the keys of their names.
    pub files: Vec<(u64, TrackFile)>,
    /// Fragments of the head, and of the whole run.
    pub head_frags: u32,
    pub frags: u64,
    /// Who is told once it is sealed.
    pub outcome: Arc<Outcome>,
}

impl Tracks {
    /// The tracks that the next segment writes, as things stand.
    pub fn layouts(&self, geometry: &Geometry, inodes: &Inodes) -> Vec<Layout> {
        let forming = self.forming.iter();
        forming
            .filter_map(|it| layout(it, geometry, inodes))
            .collect()
    }
}

/// The layout of a track; `None` if no file is left for it, or too many names came to its range.
fn layout(forming: &Forming, geometry: &Geometry, inodes: &Inodes) -> Option<Layout> {
    let files = forming.files.iter().map(|(key, file)| (*key, *file));
    let ready = |file: &TrackFile| inodes.get(file.ino).and_then(Node::small).is_some();
    let files: Vec<(u64, TrackFile)> = files.filter(|(_, file)| ready(file)).collect();
    let elsewhere = forming.names.saturating_sub(files.len() as u32);
    // Its entry may stand in an inode, and needs no tree only now.
    if files.is_empty() || elsewhere > SHORT_ELSEWHERE_MAX {
        return None;
    }
    let head_frags = geometry.frags_for(head_bytes(files.len()) as u64) as u32;
    let bytes = |file: &TrackFile| inodes.get(file.ino)?.small().map(|data| data.len() as u64);
    let data = files.iter().filter_map(|(_, file)| bytes(file));
    let data: u64 = data.map(|bytes| geometry.frags_for(bytes)).sum();
    Some(Layout {
        dir: forming.dir,
        low: forming.low,
        high: forming.high,
        elsewhere,
        files,
        head_frags,
        frags: u64::from(head_frags) + data,
        outcome: Arc::clone(&forming.outcome),
    })
}

/// The slot of a file whose data are at `pointer`, in the run that begins `start` fragments before it.
pub(crate) fn slot_of(inode: &Inode, key: u64, second: u64, pointer: &Pointer, start: u16) -> Slot {
    Slot {
        second,
        start,
        frags: pointer.frags as u16,
        stored: pointer.stored,
        checksum: pointer.checksum,
        ..Slot::of(inode, key)
    }
}
