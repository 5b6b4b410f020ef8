//! Telling the kernel, without being asked, that what it knows is not so any more.

use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use rustix::io::{IoSlice, writev};
use zerocopy::IntoBytes;

use crate::wire::header::{OUT_HEADER_LEN, OutHeader};
use crate::wire::output::{INC_EPOCH, INVAL_INODE, NotifyInvalInodeOut, RESEND};
use crate::{Errno, Error, Mounted, NodeId};

/// Makes the kernel forget what it knows of inodes. Dropping it ends its thread.
pub struct Notifier {
    connection: Arc<OwnedFd>,
    contents: Sender<Notice>,
}

/// What has to wait for others.
enum Notice {
    Content(NodeId, Range<u64>),
    /// To be closed when all before it is done.
    End(OwnedFd),
}

impl Notifier {
    /// A notifier for a mount.
    ///
    /// # Errors
    ///
    /// [`Error::Thread`].
    pub fn start(mounted: &Mounted) -> Result<Self, Error> {
        Self::of(Arc::clone(mounted.connection()))
    }

    /// A notifier for the mount behind a connection, in whatever process.
    ///
    /// # Errors
    ///
    /// [`Error::Thread`].
    pub fn of(connection: Arc<OwnedFd>) -> Result<Self, Error> {
        let (contents, waiting) = channel();
        let shared = Arc::clone(&connection);
        thread::Builder::new()
            .name("notifier".into())
            .spawn(move || forget_contents(&shared, &waiting))
            .map_err(Error::Thread)?;
        Ok(Self {
            connection,
            contents,
        })
    }

    /// Has the kernel ask for an inode's attributes before it shows them again.
    pub fn attributes(&self, node: NodeId) {
        // An offset below zero leaves the content alone, so that there is nothing to wait for.
        tell(&self.connection, node, -1, 0);
    }

    /// Has the kernel send again what was read by an earlier server and not
    /// answered.
    pub fn resend(&self) {
        send(&self.connection, RESEND, &[]);
    }

    /// Has the kernel look every name up again before it uses what it knows of
    /// it. What is mounted below a directory of this mount goes by that.
    pub fn names(&self) {
        send(&self.connection, INC_EPOCH, &[]);
    }

    /// Has the kernel forget, soon, the bytes of a file that it keeps in its page cache. A thread of its own does it: it
    /// waits for whoever reads or writes those pages, and that may be the very request that is being carried out. A process
    /// that is killed does not end before that thread does.
    pub fn content(&self, node: NodeId, range: Range<u64>) {
        // The thread ends with this.
        let _ = self.contents.send(Notice::Content(node, range));
    }

    /// Closes `end` once the kernel has forgotten all [`content`](Self::content) that it was told to forget before.
    pub fn close_then(&self, end: OwnedFd) {
        let _ = self.contents.send(Notice::End(end));
    }
}

fn forget_contents(connection: &OwnedFd, waiting: &Receiver<Notice>) {
    let signed = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
    for notice in waiting {
        match notice {
            Notice::Content(node, range) => {
                let len = range.end.saturating_sub(range.start);
                tell(connection, node, signed(range.start), signed(len));
            }
            Notice::End(end) => drop(end),
        }
    }
}

fn tell(connection: &OwnedFd, node: NodeId, off: i64, len: i64) {
    let body = NotifyInvalInodeOut {
        ino: node.0,
        off,
        len,
    };
    send(connection, INVAL_INODE, body.as_bytes());
}

/// Says something that is no answer.
fn send(connection: &OwnedFd, what: i32, body: &[u8]) {
    let header = OutHeader {
        len: (OUT_HEADER_LEN + body.len()) as u32,
        error: what,
        unique: 0,
    };
    let pieces = [IoSlice::new(header.as_bytes()), IoSlice::new(body)];
    match writev(connection, &pieces) {
        // It knows nothing of the inode, or the mount is gone.
        Ok(_) | Err(Errno::NOENT | Errno::NODEV | Errno::CONNABORTED | Errno::NOTCONN) => {}
        Err(errno) => tracing::warn!(%errno, "the kernel refused a notice"),
    }
}
