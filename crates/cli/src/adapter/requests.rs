//! The requests, one by one: each becomes a call of the library.

use std::cell::Cell;
use std::ops::{ControlFlow, Range};
use std::sync::Arc;
use std::time::Duration;

use loamfs_format::inode::mode;
use loamfs_format::superblock::UNIT_SIZE;
use loamfs_fs::Error;
use loamfs_fs::types::{RenameFlags, SetAttr, XattrMode};
use loamfs_fuse as fuse;
use loamfs_fuse::{
    AttrReply, ByteSink, Caller, Capabilities, CopyEnd, DirPlusSink, DirSink, EntryReply, Errno,
    FallocateMode, Filesystem, IoctlCall, Negotiated, NewNode, NodeId, OpenFlags, OpenReply,
    ReadCall, ReadReply, SeekWhence, SetXattrFlags, SetXattrMode, StatfsReply, StatxReply,
    WriteFlags,
};

use super::convert::{file_attr, ino_of, node_of, time_from_fuse, time_to_fuse};
use super::reads::Reads;
use super::{Adapter, TTL, convert, resent, trim, trusted};
use crate::errors::ErrorKind;
use crate::mount::promise::Promise;

/// Entries that are taken from the volume at a time.
const READDIR_BATCH: usize = 128;

/// Most that one request copies, in bytes: a thread serves nothing else meanwhile. Programs ask again.
const COPY_MAX: u64 = 64 << 20;

/// Longest name, in bytes.
const NAME_MAX: u32 = 255;

/// Whether a request asks for no change but of the time of the last one. So the kernel announces a write, fallocate or copy
/// that takes set-user-id and the like away. It is no order to do so, since anybody may ask in this way (chown(2) with
/// nothing to change).
fn changes_nothing(set: &fuse::SetAttr) -> bool {
    let nothing = fuse::SetAttr {
        fh: set.fh,
        ..fuse::SetAttr::default()
    };
    *set == nothing
}

impl Filesystem for Adapter {
    fn init(&self, negotiated: &Negotiated) -> Result<(), Errno> {
        let has_rings = negotiated.granted.contains(Capabilities::OVER_IO_URING);
        if self.transport.is_required() && !has_rings {
            tracing::error!("transport=uring: the kernel does not offer io_uring to this mount");
            return Err(Errno::OPNOTSUPP);
        }
        self.handover.agree(negotiated);
        self.events.ready(negotiated)
    }

    fn without_waiting(&self, changes: bool, request: &mut dyn FnMut()) -> bool {
        // What is promised of changes waits, when they are made.
        let waits = changes && self.promise.covers(Promise::Names);
        !waits && loamfs_fs::without_waiting(request).is_ok()
    }

    fn carried(&self, by_rings: bool) {
        self.transport.decided(by_rings);
    }

    fn destroy(&self) {
        self.events.closing();
        for node in self.lookups.take_held() {
            self.release(ino_of(node));
        }
        self.events.closed(self.volume.close());
    }

    fn lookup(&self, caller: Caller, parent: NodeId, name: &[u8]) -> Result<EntryReply, Errno> {
        self.begin_again(caller);
        let dir = self.ino(parent)?;
        if matches!(name, b"." | b"..") {
            // Only who has a handle from before asks this way, for an inode that the kernel does not know any more. Its
            // number may have been given away since; and without a name it is as good as gone, though its end may still
            // be on its way through here. `.` of a file is the file.
            let attr = self.answer("lookup", dir, self.volume.getattr(dir))?;
            if node_of(&attr) != parent || attr.nlink == 0 {
                return Err(Errno::STALE);
            }
            if name == b"." {
                return self.entry(caller, &attr);
            }
        }
        match self.volume.lookup(dir, name) {
            Ok(attr) => self.entry(caller, &attr),
            Err(Error::NotFound) => Ok(EntryReply::negative(TTL)),
            Err(error) => Err(self.errno("lookup", dir, &error)),
        }
    }

    fn forget(&self, node: NodeId, count: u64) {
        if self.lookups.forget(node, count) {
            self.release(ino_of(node));
        }
    }

    fn getattr(&self, _: Caller, node: NodeId, _: Option<u64>) -> Result<AttrReply, Errno> {
        let ino = self.ino(node)?;
        let attr = self.answer("getattr", ino, self.volume.getattr(ino))?;
        Ok(self.attr(&attr))
    }

    fn statx(&self, _: Caller, node: NodeId, _: Option<u64>) -> Result<StatxReply, Errno> {
        let ino = self.ino(node)?;
        let attr = self.answer("statx", ino, self.volume.getattr(ino))?;
        Ok(StatxReply {
            attr: file_attr(&attr, self.block_size),
            birth: Some(time_to_fuse(attr.btime)),
            attr_ttl: TTL,
        })
    }

    fn setattr(&self, _: Caller, node: NodeId, set: &fuse::SetAttr) -> Result<AttrReply, Errno> {
        let ino = self.ino(node)?;
        if changes_nothing(set) {
            // The mode is about to change, which the kernel does not expect: it has to ask again.
            let attr = self.volume.setattr(ino, &SetAttr::default());
            let attr = self.answer("setattr", ino, attr)?;
            return Ok(AttrReply {
                attr_ttl: Duration::ZERO,
                ..self.attr(&attr)
            });
        }
        let set = SetAttr {
            mode: set.mode.map(|bits| bits & !mode::TYPE),
            drop_privileges: set.kill_suidgid,
            uid: set.uid,
            gid: set.gid,
            size: set.size,
            atime: set.atime.map(convert::set_time),
            mtime: set.mtime.map(convert::set_time),
            ctime: set.ctime.map(time_from_fuse),
        };
        self.answer("setattr", ino, set.check_times())?;
        if set.uid.is_some() || set.gid.is_some() || set.size.is_some() {
            self.drop_unseen_capability(ino)?;
        }
        let attr = self.changed("setattr", node, self.volume.setattr(ino, &set))?;
        Ok(self.attr(&attr))
    }

    fn readlink(&self, _: Caller, node: NodeId, target: &mut ByteSink<'_>) -> Result<(), Errno> {
        let ino = self.ino(node)?;
        target.put(&self.answer("readlink", ino, self.volume.readlink(ino))?);
        self.volume.accessed(ino);
        Ok(())
    }

    fn symlink(
        &self,
        caller: Caller,
        parent: NodeId,
        name: &[u8],
        target: &[u8],
    ) -> Result<EntryReply, Errno> {
        let dir = self.ino(parent)?;
        let new = NewNode {
            mode: 0o777,
            umask: 0,
        };
        let new = Self::new_inode(caller, new, 0);
        let made = self.make(caller, (parent, name), || {
            self.volume.symlink(dir, name, target, &new)
        });
        self.changed_entry(caller, &self.named("symlink", parent, made)?)
    }

    fn mknod(
        &self,
        caller: Caller,
        parent: NodeId,
        name: &[u8],
        new: NewNode,
        rdev: u32,
    ) -> Result<EntryReply, Errno> {
        let dir = self.ino(parent)?;
        let inode = Self::new_inode(caller, new, rdev);
        let made = self.make(caller, (parent, name), || match new.mode & mode::TYPE {
            mode::REGULAR | 0 => self.volume.create(dir, name, &inode),
            file_type => self.volume.mknod(dir, name, file_type, &inode),
        });
        self.changed_entry(caller, &self.named("mknod", parent, made)?)
    }

    fn mkdir(
        &self,
        caller: Caller,
        parent: NodeId,
        name: &[u8],
        new: NewNode,
    ) -> Result<EntryReply, Errno> {
        let dir = self.ino(parent)?;
        let inode = Self::new_inode(caller, new, 0);
        let made = self.make(caller, (parent, name), || {
            self.volume.mkdir(dir, name, &inode)
        });
        self.changed_entry(caller, &self.named("mkdir", parent, made)?)
    }

    fn unlink(&self, caller: Caller, parent: NodeId, name: &[u8]) -> Result<(), Errno> {
        let dir = self.ino(parent)?;
        let removed = self.witnessed(caller, |volume| volume.unlink(dir, name));
        self.named("unlink", parent, resent::removed(caller, removed))
    }

    fn rmdir(&self, caller: Caller, parent: NodeId, name: &[u8]) -> Result<(), Errno> {
        let dir = self.ino(parent)?;
        let removed = self.witnessed(caller, |volume| volume.rmdir(dir, name));
        self.named("rmdir", parent, resent::removed(caller, removed))
    }

    fn rename(
        &self,
        caller: Caller,
        (from, name): (NodeId, &[u8]),
        (to, new_name): (NodeId, &[u8]),
        flags: fuse::RenameFlags,
    ) -> Result<(), Errno> {
        let (dir, new_dir) = (self.ino(from)?, self.ino(to)?);
        if self.is_moved(caller, (to, new_name)) {
            return Ok(());
        }
        let flags = RenameFlags {
            no_replace: flags.no_replace,
            exchange: flags.exchange,
            whiteout: flags
                .whiteout
                .then(|| Self::new_inode(caller, NewNode { mode: 0, umask: 0 }, 0)),
        };
        let renamed = self.witnessed(caller, |volume| {
            volume.rename(dir, name, new_dir, new_name, flags)
        });
        self.named("rename", from, renamed)?;
        self.named("rename", to, Ok(()))
    }

    fn link(
        &self,
        caller: Caller,
        node: NodeId,
        parent: NodeId,
        name: &[u8],
    ) -> Result<EntryReply, Errno> {
        self.ino(node)?;
        self.ino(parent)?;
        let linked = self.link_once(caller, node, (parent, name));
        self.changed_entry(caller, &self.named("link", parent, linked)?)
    }

    fn open(&self, _: Caller, _: NodeId, _: OpenFlags) -> Result<OpenReply, Errno> {
        Ok(self.opened())
    }

    fn opendir(&self, _: Caller, _: NodeId, _: OpenFlags) -> Result<OpenReply, Errno> {
        Ok(OpenReply {
            fh: 0,
            flags: fuse::OpenReplyFlags::NONE,
        })
    }

    fn create(
        &self,
        caller: Caller,
        parent: NodeId,
        name: &[u8],
        new: NewNode,
        flags: OpenFlags,
    ) -> Result<(EntryReply, OpenReply), Errno> {
        let dir = self.ino(parent)?;
        let inode = Self::new_inode(caller, new, 0);
        let made = self.make(caller, (parent, name), || {
            self.volume.create(dir, name, &inode)
        });
        let attr = match made {
            // The kernel thought that the name was free, and would ask nobody whether the caller may open what is there, nor cut it. Nobody
            // else changes names, but one that was removed is back where a daemon died before that was durable. Now the kernel looks again.
            Err(Error::Exists) if !flags.exclusive() => return Err(Errno::STALE),
            made => self.named("create", parent, made)?,
        };
        Ok((self.changed_entry(caller, &attr)?, self.opened()))
    }

    fn tmpfile(
        &self,
        caller: Caller,
        parent: NodeId,
        new: NewNode,
        _: OpenFlags,
    ) -> Result<(EntryReply, OpenReply), Errno> {
        let dir = self.ino(parent)?;
        self.begin_again(caller);
        let made = self
            .volume
            .create_unnamed(dir, &Self::new_inode(caller, new, 0));
        let attr = self.answer("tmpfile", dir, made)?;
        let entry = self.changed_entry(caller, &attr)?;
        // The volume holds it already: its first lookup is what holds it.
        self.lookups.hold(entry.node);
        Ok((entry, self.opened()))
    }

    fn read(
        &self,
        _: Caller,
        node: NodeId,
        call: ReadCall,
        reply: &mut ReadReply<'_>,
    ) -> Result<(), Errno> {
        let ino = self.ino(node)?;
        let size = usize::try_from(call.size).unwrap_or(usize::MAX);
        let is_in_doubt = self.doubt.has(node);
        let data = self.volume.read_shared(ino, call.offset, size);
        let data = self.answer("read", ino, data)?;
        let found = || data.iter().map(|piece| piece.range().len()).sum::<usize>();
        if is_in_doubt && found() < size {
            self.errors.count_kind(ErrorKind::Lost);
            return Err(Errno::IO);
        }
        self.accessed(ino, call);
        for piece in data {
            reply.append_shared(Arc::clone(piece.holder()), piece.range());
        }
        Ok(())
    }

    fn write(
        &self,
        caller: Caller,
        node: NodeId,
        _: u64,
        offset: u64,
        data: &[u8],
        flags: WriteFlags,
    ) -> Result<u32, Errno> {
        let ino = self.ino(node)?;
        if flags.kill_suidgid {
            self.drop_privileges(caller, node)?;
        }
        let past_its_cache = self.reads == Reads::All && !flags.from_cache;
        match past_its_cache {
            true => self.drop_capability(ino)?,
            false => self.drop_unseen_capability(ino)?,
        }
        let taken = match flags.from_cache {
            true => self.write_whole(ino, offset, data),
            false => self.volume.write(ino, offset, data),
        };
        if flags.from_cache && matches!(taken, Err(Error::NotPermitted)) {
            // Stored through a mapping of what chattr(1) protects: the kernel would go on showing it.
            let end = offset.saturating_add(data.len() as u64);
            self.forget_content(node, offset..end);
        }
        if flags.from_cache && taken.is_err() {
            // Some of it may be there.
            self.lookups.note_change(node);
        }
        let taken = self.answer("write", ino, taken)?;
        self.handover.note_written(taken);
        self.lookups.note_change(node);
        // Behind a write that went through its cache the kernel syncs by itself.
        let asked = flags.open.synchronous() || self.promise.covers(Promise::Everything);
        if asked && past_its_cache {
            self.sync("write", node)?;
        }
        u32::try_from(taken).map_err(|_| Errno::IO)
    }

    fn fallocate(
        &self,
        caller: Caller,
        node: NodeId,
        _: u64,
        range: Range<u64>,
        mode: FallocateMode,
    ) -> Result<(), Errno> {
        let (ino, offset, len) = (self.ino(node)?, range.start, range.end - range.start);
        self.drop_privileges_unless_root(caller, node)?;
        self.drop_unseen_capability(ino)?;
        let done = match mode {
            FallocateMode {
                punch_hole: true,
                zero_range: true,
                ..
            } => return Err(Errno::OPNOTSUPP),
            FallocateMode {
                punch_hole: true, ..
            } => self.volume.ranges(ino).punch(offset, len),
            FallocateMode {
                zero_range: true,
                keep_size,
                ..
            } => self.volume.ranges(ino).zero(offset, len, !keep_size),
            FallocateMode { keep_size, .. } => {
                self.volume.ranges(ino).allocate(offset, len, !keep_size)
            }
        };
        if done.is_err() {
            self.half_done(node, range, mode);
        }
        self.changed("fallocate", node, done)
    }

    fn lseek(
        &self,
        _: Caller,
        node: NodeId,
        _: u64,
        offset: u64,
        whence: SeekWhence,
    ) -> Result<u64, Errno> {
        let ino = self.ino(node)?;
        let found = match whence {
            SeekWhence::Data => self.volume.ranges(ino).seek_data(offset),
            SeekWhence::Hole => self.volume.ranges(ino).seek_hole(offset),
        };
        self.answer("lseek", ino, found)
    }

    fn copy_file_range(
        &self,
        caller: Caller,
        from: CopyEnd,
        to: CopyEnd,
        length: u64,
    ) -> Result<u64, Errno> {
        let (source, target) = (self.ino(from.node)?, self.ino(to.node)?);
        self.drop_privileges_unless_root(caller, to.node)?;
        self.drop_unseen_capability(target)?;
        let len = length.min(COPY_MAX);
        let copied = self
            .volume
            .copy_range((source, from.offset), (target, to.offset), len);
        let copied = self.changed("copy", to.node, copied)?;
        if copied > 0 && self.volume.accessed(source) {
            // Of a copy the kernel expects no such thing.
            self.notifier.attributes(from.node);
        }
        Ok(copied)
    }

    fn fsync(&self, caller: Caller, node: NodeId, _: u64, _: bool) -> Result<(), Errno> {
        let ino = self.ino(node)?;
        let misses = self.losses.tell(node, caller);
        if self.lookups.tell_loss(node) || misses {
            tracing::warn!(
                inode = ino.get(),
                "fsync failed: changes were lost with the daemon before"
            );
            self.errors.count_kind(ErrorKind::Lost);
            return Err(Errno::IO);
        }
        self.sync("fsync", node)
    }

    fn fsyncdir(&self, caller: Caller, node: NodeId, fh: u64, datasync: bool) -> Result<(), Errno> {
        self.fsync(caller, node, fh, datasync)
    }

    fn syncfs(&self, caller: Caller, node: NodeId) -> Result<(), Errno> {
        self.answer("sync", ino_of(node), self.volume.sync())?;
        match self.losses.tell_of_all(caller) {
            true => {
                tracing::warn!("syncfs failed: changes were lost with the daemon before");
                self.errors.count_kind(ErrorKind::Lost);
                Err(Errno::IO)
            }
            false => Ok(()),
        }
    }

    fn ioctl(
        &self,
        caller: Caller,
        node: NodeId,
        _: u64,
        call: IoctlCall<'_>,
        output: &mut ByteSink<'_>,
    ) -> Result<i32, Errno> {
        match call.command {
            trim::COMMAND => self.trim(caller, call, output),
            _ => self.flags_ioctl(node, call, output),
        }
    }

    fn readdir(
        &self,
        _: Caller,
        node: NodeId,
        call: ReadCall,
        entries: &mut DirSink<'_>,
    ) -> Result<(), Errno> {
        let dir = self.ino(node)?;
        self.accessed(dir, call);
        let list = |position| {
            let names = self.volume.readdir(dir, position, READDIR_BATCH)?;
            Ok(names.into_iter().map(|entry| (entry, ())).collect())
        };
        self.walk(dir, call.offset, list, |entry, ()| {
            match entries.add(&convert::dir_entry(entry)) {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            }
        })
    }

    fn readdirplus(
        &self,
        caller: Caller,
        node: NodeId,
        call: ReadCall,
        entries: &mut DirPlusSink<'_>,
    ) -> Result<(), Errno> {
        let dir = self.ino(node)?;
        self.accessed(dir, call);
        self.begin_again(caller);
        let mut counted = Vec::new();
        // Attributes of entries that do not fit would be got for nothing.
        let room = Cell::new(entries.room());
        let list = |position| self.volume.readdir_plus(dir, position, room.get().max(1));
        let listed = self.walk(dir, call.offset, list, |entry, attr| {
            if !entries.fits(entry.name.len()) {
                return ControlFlow::Break(());
            }
            let unnamed = EntryReply::negative(Duration::ZERO);
            let found = if matches!(&entry.name[..], b"." | b"..") {
                unnamed
            } else {
                match attr {
                    Ok(attr) => match self.entry(caller, attr) {
                        Ok(found) => {
                            counted.push(found.node);
                            found
                        }
                        Err(_) => return ControlFlow::Break(()),
                    },
                    // Listed without its inode, so that the rest of the directory stays usable.
                    Err(error) => {
                        self.log_gap(dir, &entry.name, error);
                        unnamed
                    }
                }
            };
            let is_full = entries.add(&convert::dir_entry(entry), &found);
            room.set(entries.room());
            match is_full {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            }
        });
        if listed.is_err() {
            // The kernel does not hear of these: it is listed again, or not at all.
            let release = |node: &NodeId| self.lookups.take_back_of(*node, caller.request);
            let held = counted.into_iter().filter(release);
            held.for_each(|node| self.release(ino_of(node)));
        }
        listed
    }

    fn statfs(&self, _: Caller, _: NodeId) -> Result<StatfsReply, Errno> {
        let figures = self.volume.statfs();
        // Programs multiply by either size.
        let units =
            |frags: u64| frags.saturating_mul(figures.fragment_size.into()) / u64::from(UNIT_SIZE);
        Ok(StatfsReply {
            blocks: units(figures.total),
            bfree: units(figures.free),
            bavail: units(figures.available),
            files: figures.inodes.saturating_add(figures.inodes_free),
            ffree: figures.inodes_free,
            bsize: UNIT_SIZE,
            namelen: NAME_MAX,
            frsize: UNIT_SIZE,
        })
    }

    fn setxattr(
        &self,
        caller: Caller,
        node: NodeId,
        name: &[u8],
        value: &[u8],
        flags: SetXattrFlags,
    ) -> Result<(), Errno> {
        self.attributes.check(name)?;
        let ino = self.ino(node)?;
        let how = match flags.mode {
            SetXattrMode::Any => XattrMode::Any,
            SetXattrMode::Create => XattrMode::Create,
            SetXattrMode::Replace => XattrMode::Replace,
        };
        let set = if flags.clear_sgid {
            self.volume.xattrs(ino).set_by_stranger(name, value, how)
        } else {
            self.volume.xattrs(ino).set(name, value, how)
        };
        let set = match set {
            // The same request has set it.
            Err(Error::Exists) if caller.request.is_resent => self
                .volume
                .xattrs(ino)
                .get(name)
                .and_then(|found| match found == value {
                    true => Ok(()),
                    false => Err(Error::Exists),
                }),
            set => set,
        };
        self.changed("setxattr", node, set)
    }

    fn getxattr(
        &self,
        _: Caller,
        node: NodeId,
        name: &[u8],
        value: &mut ByteSink<'_>,
    ) -> Result<(), Errno> {
        self.attributes.check(name)?;
        let ino = self.ino(node)?;
        value.put(&self.answer("getxattr", ino, self.volume.xattrs(ino).get(name))?);
        Ok(())
    }

    fn listxattr(
        &self,
        caller: Caller,
        node: NodeId,
        names: &mut ByteSink<'_>,
    ) -> Result<(), Errno> {
        let ino = self.ino(node)?;
        self.attributes.check(b"")?;
        let mut found = self.answer("listxattr", ino, self.volume.xattrs(ino).list())?;
        found.retain(|name| self.attributes.check(name).is_ok());
        trusted::hide(&mut found, caller);
        found.iter().for_each(|name| names.put_name(name));
        Ok(())
    }

    fn removexattr(&self, caller: Caller, node: NodeId, name: &[u8]) -> Result<(), Errno> {
        self.attributes.check(name)?;
        let ino = self.ino(node)?;
        let removed = resent::removed(caller, self.volume.xattrs(ino).remove(name));
        self.changed("removexattr", node, removed)
    }
}
