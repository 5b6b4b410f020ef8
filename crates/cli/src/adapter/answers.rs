//! What answers to requests have in common: errors, what is durable by then, and what the kernel gets and holds by them.

use std::ops::{ControlFlow, Range};
use std::os::fd::OwnedFd;
use std::sync::PoisonError;

use loamfs_format::Ino;
use loamfs_format::inode::mode;
use loamfs_fs::Error;
use loamfs_fs::types::{Attr, DirEntry, NewInode};
use loamfs_fuse::{
    AttrReply, Caller, EntryReply, Errno, FallocateMode, NewNode, NodeId, OpenReply, ReadCall,
};

use super::convert::{file_attr, ino_of, node_of};
use super::{Adapter, Attributes, TTL, attributes};
use crate::errors::ErrorKind;
use crate::mount::promise::Promise;

impl Adapter {
    /// The errno for the kernel; what an administrator must know of goes to the log too.
    pub(super) fn errno(&self, doing: &str, ino: Ino, error: &Error) -> Errno {
        self.errors.count(ino, error);
        match error {
            Error::Corrupt(_)
            | Error::Device(_)
            | Error::Map { .. }
            | Error::Log(_)
            | Error::Space(_)
            | Error::Superblock(_) => {
                tracing::error!(inode = ino.get(), "{doing} failed: {error}");
            }
            error => tracing::debug!(inode = ino.get(), "{doing}: {error}"),
        }
        Errno::from_raw_os_error(error.errno())
    }

    pub(super) fn answer<T>(
        &self,
        doing: &str,
        ino: Ino,
        result: Result<T, Error>,
    ) -> Result<T, Errno> {
        result.map_err(|error| self.errno(doing, ino, &error))
    }

    /// The answer to a change of names in a directory, which is durable by then if that is promised.
    pub(super) fn named<T>(
        &self,
        doing: &str,
        dir: NodeId,
        result: Result<T, Error>,
    ) -> Result<T, Errno> {
        self.kept(Promise::Names, doing, dir, result)
    }

    /// The answer to any other change of an inode.
    pub(super) fn changed<T>(
        &self,
        doing: &str,
        node: NodeId,
        result: Result<T, Error>,
    ) -> Result<T, Errno> {
        self.kept(Promise::Everything, doing, node, result)
    }

    pub(super) fn kept<T>(
        &self,
        promise: Promise,
        doing: &str,
        node: NodeId,
        result: Result<T, Error>,
    ) -> Result<T, Errno> {
        let ino = ino_of(node);
        let value = self.answer(doing, ino, result)?;
        self.lookups.note_change(node);
        if self.promise.covers(promise) {
            self.sync(doing, node)?;
        }
        Ok(value)
    }

    /// Returns when all that was done to an inode is durable.
    pub(super) fn sync(&self, doing: &str, node: NodeId) -> Result<(), Errno> {
        let (ino, change) = (ino_of(node), self.lookups.change(node));
        self.answer(doing, ino, self.volume.fsync(ino, false))?;
        self.lookups.note_durable(node, change);
        Ok(())
    }

    /// The inode behind the kernel's name for it, unless it was lost with an earlier daemon.
    pub(super) fn ino(&self, node: NodeId) -> Result<Ino, Errno> {
        match !self.gone.is_empty() && self.gone.contains(&node) {
            true => {
                self.errors.count_kind(ErrorKind::Lost);
                Err(Errno::STALE)
            }
            false => Ok(ino_of(node)),
        }
    }

    /// Before a change of a file of which the kernel does not ask whether it has capabilities: they go. Otherwise what
    /// somebody else has written would have them, with a later mount at the latest.
    pub(super) fn drop_capability(&self, ino: Ino) -> Result<(), Errno> {
        self.answer("write", ino, attributes::drop_capability(&self.volume, ino))
    }

    /// The same before a change of which it does ask, where it can.
    pub(super) fn drop_unseen_capability(&self, ino: Ino) -> Result<(), Errno> {
        match self.attributes {
            Attributes::None => self.drop_capability(ino),
            Attributes::All | Attributes::Unlisted => Ok(()),
        }
    }

    /// Writes all of what the kernel had in its cache: it takes for written whatever is not refused.
    pub(super) fn write_whole(
        &self,
        ino: Ino,
        offset: u64,
        data: &[u8],
    ) -> Result<usize, loamfs_fs::Error> {
        let mut done = 0;
        while done < data.len() {
            let at = offset.saturating_add(done as u64);
            done += self.volume.write(ino, at, &data[done..])?;
        }
        Ok(done)
    }

    /// Has the kernel forget, soon, content of a file. It waits for reads that are under way, and a process that waits so
    /// cannot be killed: so it is left to the supervisor, where another daemon may have to answer them.
    pub(super) fn forget_content(&self, node: NodeId, range: Range<u64>) {
        match &self.supervisor {
            None => self.notifier.content(node, range),
            Some(supervisor) => {
                told(supervisor.forget(&[(node, range)]));
            }
        }
    }

    /// A fallocate failed, of which a part may be done. The kernel believes that nothing was, and has to look again.
    pub(super) fn half_done(&self, node: NodeId, range: Range<u64>, mode: FallocateMode) {
        self.notifier.attributes(node);
        if mode.punch_hole || mode.zero_range {
            self.forget_content(node, range);
        }
    }

    /// As [`forget_content`](Self::forget_content), all of several files, and their attributes with it: of one that is about to go the
    /// kernel waits for these too, until a read of it is answered that an earlier daemon was asked. Returns what ends when that is
    /// done, if it can be known.
    pub(super) fn forget_files(&self, nodes: &[NodeId]) -> Option<OwnedFd> {
        let supervisor = self.supervisor.as_ref()?;
        let contents: Vec<_> = nodes.iter().map(|node| (*node, 0..u64::MAX)).collect();
        let forgotten = supervisor.forget(&contents);
        told(forgotten.and_then(|()| supervisor.when_forgotten()))
    }

    /// The reply that gives the kernel an inode, and counts that it has it once more.
    pub(super) fn entry(&self, caller: Caller, attr: &Attr) -> Result<EntryReply, Errno> {
        let node = node_of(attr);
        self.lookups.count(node, caller.request)?;
        Ok(EntryReply {
            node,
            generation: u64::from(attr.generation),
            attr: file_attr(attr, self.block_size),
            entry_ttl: TTL,
            attr_ttl: TTL,
        })
    }

    /// As [`entry`](Self::entry), of an inode that was changed by this.
    pub(super) fn changed_entry(&self, caller: Caller, attr: &Attr) -> Result<EntryReply, Errno> {
        let entry = self.entry(caller, attr)?;
        self.lookups.note_change(entry.node);
        Ok(entry)
    }

    pub(super) fn attr(&self, attr: &Attr) -> AttrReply {
        AttrReply {
            attr: file_attr(attr, self.block_size),
            attr_ttl: TTL,
        }
    }

    /// Somebody reads, and did not ask that it leave no trace. The kernel, which keeps attributes for long, forgets the
    /// access time with each of these requests by itself.
    pub(super) fn accessed(&self, ino: Ino, call: ReadCall) {
        if !call.flags.noatime() {
            self.volume.accessed(ino);
        }
    }

    pub(super) fn release(&self, ino: Ino) {
        if let Err(error) = self.volume.release_file(ino) {
            self.errno("releasing", ino, &error);
        }
    }

    /// Before a change of a file for which the kernel does not say, as it does for writes, whether it takes set-user-id and
    /// the like away: all but root's do.
    pub(super) fn drop_privileges_unless_root(
        &self,
        caller: Caller,
        node: NodeId,
    ) -> Result<(), Errno> {
        match caller.uid {
            0 => Ok(()),
            _ => self.drop_privileges(caller, node),
        }
    }

    /// Before a change of a file that takes set-user-id and the like away. The kernel is told, as it keeps modes for long: it
    /// may not expect this, and somebody may have looked at the old mode just now.
    pub(super) fn drop_privileges(&self, caller: Caller, node: NodeId) -> Result<(), Errno> {
        let ino = ino_of(node);
        let dropped = self.answer("change", ino, self.volume.drop_privileges(ino))?;
        // The daemon before may have come so far and no further with the same request.
        if dropped || caller.request.is_resent {
            self.notifier.attributes(node);
        }
        Ok(())
    }

    pub(super) fn opened(&self) -> OpenReply {
        OpenReply {
            fh: 0,
            flags: self.reads.open_flags(),
        }
    }

    pub(super) fn new_inode(caller: Caller, new: NewNode, rdev: u32) -> NewInode {
        NewInode {
            mode: new.mode & !mode::TYPE,
            umask: new.umask,
            uid: caller.uid,
            gid: caller.gid,
            rdev,
        }
    }

    /// Walks a directory from `offset` on until `add` breaks off or the end is reached. `list` gives entries from a position
    /// on, each with what belongs to it.
    pub(super) fn walk<T>(
        &self,
        dir: Ino,
        offset: u64,
        list: impl Fn(u64) -> Result<Vec<(DirEntry, T)>, Error>,
        mut add: impl FnMut(&DirEntry, &T) -> ControlFlow<()>,
    ) -> Result<(), Errno> {
        let mut position = offset;
        let mut first = true;
        loop {
            let batch = match list(position) {
                Ok(batch) => batch,
                Err(error @ Error::WouldWait) => return Err(self.errno("listing", dir, &error)),
                Err(error) if first => return Err(self.errno("listing", dir, &error)),
                // What was listed so far was counted; the next call meets the error.
                Err(_) => return Ok(()),
            };
            let Some((last, _)) = batch.last() else {
                return Ok(());
            };
            position = last.next;
            first = false;
            let mut pairs = batch.iter();
            if pairs.try_for_each(|(entry, of)| add(entry, of)).is_break() {
                return Ok(());
            }
        }
    }

    /// Logs a missing inode behind a name once for each directory in a row.
    pub(super) fn log_gap(&self, dir: Ino, name: &[u8], error: &Error) {
        let mut logged = self.logged.lock().unwrap_or_else(PoisonError::into_inner);
        if logged.replace(dir) != Some(dir) {
            let name = crate::text::shown(name);
            tracing::error!(
                directory = dir.get(),
                "the inode of `{name}` cannot be read: {error}"
            );
        }
    }
}

/// What the supervisor answers; the log tells why it does not.
fn told<T>(answer: Result<T, String>) -> Option<T> {
    answer
        .inspect_err(|error| tracing::warn!("the supervisor: {error}"))
        .ok()
}
