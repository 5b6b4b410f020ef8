//! Contents of regular files: in the inode, in the log, or at home (H1, H6, H8). The steps of which changes of them are
//! made.

use crate::blocks::Stop;
use crate::core::Core;
use crate::error::Error;
use crate::inodes::Node;
use crate::unit::UNIT;
use loamfs_format::Ino;
use loamfs_format::inode::{Body, TAIL};
use std::ops::Range;
use std::sync::Arc;

/// Largest file: 8 EiB less one byte, as off_t has it.
pub(crate) const SIZE_MAX: u64 = i64::MAX as u64;

impl Node {
    /// Whether the content is kept in blocks at home, or is on its way there.
    pub fn is_large(&self) -> bool {
        !self.homed().is_clean()
            || matches!(self.inode().body, Body::Extents(_) | Body::ExtentTree(_))
            || self.small().is_none() && self.inode().size > 0 && self.inode().body == Body::Empty
    }

    /// Whether the file is on its way home, while segments still show its small form.
    pub fn is_moving(&self) -> bool {
        !self.homed().is_clean() && matches!(self.inode().body, Body::Inline(_) | Body::Small(_))
    }

    /// The first unit that segments do not show, or not whole: none while they show the small form.
    pub fn hidden_from(&self) -> u64 {
        if self.is_moving() {
            0
        } else {
            self.shown_size() / UNIT
        }
    }

    /// Most bytes that can stand in the inode.
    pub fn inline_max(&self) -> usize {
        TAIL - self.inode().inline_xattrs.len().min(TAIL)
    }
}

/// Whether segments show a file's blocks, or would if it had any.
pub(crate) fn at_home(node: &Node) -> bool {
    let blocks = matches!(
        node.inode().body,
        Body::Empty | Body::Extents(_) | Body::ExtentTree(_)
    );
    blocks && node.small().is_none()
}

/// A node that is a regular file's.
///
/// # Errors
/// [`Error::IsDirectory`] or [`Error::Invalid`].
pub(crate) fn regular(node: &mut Node) -> Result<&mut Node, Stop> {
    if node.inode().is_dir() {
        return Err(Error::IsDirectory.into());
    }
    if !node.inode().is_file() {
        return Err(Error::Invalid("not a regular file").into());
    }
    Ok(node)
}

impl Core {
    /// A regular file that is in memory.
    pub fn file(&mut self, ino: Ino) -> Result<&mut Node, Stop> {
        regular(self.node(ino)?)
    }

    /// The content of a file changed now. The set-user-id bits that a write takes away are the caller's to take.
    pub fn changed_content(&mut self, ino: Ino) -> Result<(), Stop> {
        let small_max = self.sizes().small_max();
        let now = self.env.now();
        let node = self.inodes.prepared(ino)?;
        node.inode_mut().mtime = now;
        node.inode_mut().ctime = now;
        // A file that spilled is as much up to date as one in the log: the next segment shows it (rule 2).
        if node.inode().size <= small_max && node.homed().is_dirty() {
            let upto = node.homed().puts();
            self.writeback.hold_up(ino, upto);
        }
        self.note_waiting();
        self.touch(ino)
    }

    /// Gives a small file its whole content. The inode must be prepared.
    pub fn set_small(&mut self, ino: Ino, content: Arc<[u8]>) -> Result<(), Stop> {
        let node = self.inodes.prepared(ino)?;
        let mut freed = None;
        if content.len() <= node.inline_max() {
            node.may_go_home();
        }
        self.pending.drop_content(node.take_small().as_deref());
        node.inode_mut().size = content.len() as u64;
        if content.len() <= node.inline_max() {
            freed = node.inode().body.small();
            node.show_all();
            node.inode_mut().frags = 0;
            node.inode_mut().body = if content.is_empty() {
                Body::Empty
            } else {
                Body::Inline(content.to_vec())
            };
        } else {
            self.pending.add_content(content.len());
            node.put_small(content);
        }
        if let Some(pointer) = freed {
            node.note_cut(pointer.frags.into());
            self.freeing().block(&pointer);
        }
        Ok(())
    }

    /// Sends back an operation that drops units of a file on their way home, when that happened too often.
    pub fn may_cut(&mut self, ino: Ino, units: Range<u64>) -> Result<(), Stop> {
        match self.node(ino)?.homed().insists_on(units) {
            true => Err(Stop::Flying(ino)),
            false => Ok(()),
        }
    }

    /// Sends back an operation that takes a file home before a segment shows its small content.
    pub fn may_go_home(&mut self, ino: Ino) -> Result<(), Stop> {
        let seal_first = self.node(ino)?.seals_first();
        if self.env.law().stays_small(seal_first) {
            return Err(Stop::Crowded);
        }
        Ok(())
    }
}
