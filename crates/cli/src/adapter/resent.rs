//! Requests that the kernel sends once more, because an earlier daemon did not answer them.
//!
//! What it had done for them recovery has brought back, or not. Most requests can be carried out twice: reads, writes at
//! an offset, new attributes. Those that change names cannot, as the second time finds what the first has done. The kernel
//! locks the directories meanwhile, so nothing else has changed there. Still what is found may be older than the request:
//! a name that was removed just before may be back. So these leave a mark before they change anything, which tells
//! ([`crate::mount::handover`]):
//!
//! - what makes something: when it began. An inode of that name which was born since then is its own;
//! - a rename: which inode it moves ([`super::witness`]). If the new name has it, it has been moved.
//!
//! A name that is to be removed, and is not there, has been.

use loamfs_fs::Error;
use loamfs_fs::types::{Attr, Timestamp};
use loamfs_fuse::{Caller, NodeId};

use super::Adapter;
use super::convert::{ino_of, node_of};
use crate::mount::handover;

impl Adapter {
    /// Before a request that gives the kernel inodes: takes back what it counted in an earlier daemon.
    pub(super) fn begin_again(&self, caller: Caller) {
        if caller.request.is_resent {
            for node in self.lookups.take_back(caller.request) {
                self.release(ino_of(node));
            }
        }
    }

    /// Makes something of this name in a directory, unless the same request has made it already.
    pub(super) fn make(
        &self,
        caller: Caller,
        (parent, name): (NodeId, &[u8]),
        make: impl FnOnce() -> Result<Attr, Error>,
    ) -> Result<Attr, Error> {
        self.begin_again(caller);
        let begun = self.handover.begin(caller.request, handover::now());
        match (make(), begun) {
            (Err(Error::Exists), Some(begun)) => {
                let found = self.volume.lookup(ino_of(parent), name)?;
                match nanoseconds(found.btime) >= begun {
                    true => Ok(found),
                    false => Err(Error::Exists),
                }
            }
            (made, _) => made,
        }
    }

    /// Gives an inode one more name, unless the same request has done so.
    pub(super) fn link_once(
        &self,
        caller: Caller,
        node: NodeId,
        (parent, name): (NodeId, &[u8]),
    ) -> Result<Attr, Error> {
        self.begin_again(caller);
        let (ino, dir) = (ino_of(node), ino_of(parent));
        match self.volume.link(ino, dir, name) {
            Err(Error::Exists) if caller.request.is_resent => {
                let found = self.volume.lookup(dir, name)?;
                match found.ino == ino {
                    true => Ok(found),
                    false => Err(Error::Exists),
                }
            }
            linked => linked,
        }
    }

    /// Whether the same request has renamed what it is to rename already.
    pub(super) fn is_moved(&self, caller: Caller, (to, new_name): (NodeId, &[u8])) -> bool {
        let moved = self.handover.earlier(caller.request);
        moved.is_some_and(|moved| {
            let there = self.volume.lookup(ino_of(to), new_name);
            there.is_ok_and(|there| node_of(&there).0 == moved)
        })
    }
}

/// What removes something has done so if the same request finds nothing any more.
pub(super) fn removed(caller: Caller, removed: Result<(), Error>) -> Result<(), Error> {
    match removed {
        Err(Error::NotFound | Error::NoAttribute) if caller.request.is_resent => Ok(()),
        removed => removed,
    }
}

fn nanoseconds(time: Timestamp) -> u64 {
    let seconds = u64::try_from(time.seconds).unwrap_or(0);
    seconds
        .saturating_mul(1_000_000_000)
        .saturating_add(time.nanos.into())
}
