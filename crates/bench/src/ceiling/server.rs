//! The server: each method as `cli::adapter` has it, over the table.
//!
//! What no measurement asks for is refused: exchanging two names, whiteouts, holes that are punched, and extended attributes
//! that are set.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use loamfs_fuse::{
    AttrReply, ByteSink, Caller, CopyEnd, DirEntry, DirPlusSink, DirSink, EntryReply, Errno,
    FallocateMode, FileAttr, FileKind, Filesystem, Negotiated, NewNode, NodeId, OpenFlags,
    OpenReply, OpenReplyFlags, ReadCall, ReadReply, RenameFlags, SeekWhence, SetAttr,
    SetXattrFlags, StatfsReply, StatxReply, WriteFlags,
};

use super::content::Content;
use super::directory::{DOTS, Directory, Entry};
use super::node::{Body, Node, State};
use super::table::Table;
use super::{Attributes, BLOCK_SIZE};

/// How long the kernel may trust what it was told.
const TTL: Duration = Duration::from_secs(3_600);

/// Most that one request copies, in bytes.
const COPY_MAX: u64 = 64 << 20;

/// Longest name, in bytes.
const NAME_MAX: u32 = 255;

/// What it says that there is room for, in blocks: a TiB.
const BLOCKS: u64 = (1 << 40) / BLOCK_SIZE as u64;

/// Set-group-id: a directory hands its group down.
const SET_GROUP_ID: u32 = 0o2000;

/// The file system in memory.
pub struct Ceiling {
    table: Table,
    attributes: Attributes,
    ready: Box<dyn Fn() + Send + Sync>,
}

impl Ceiling {
    /// An empty one.
    pub fn new(attributes: Attributes, ready: Box<dyn Fn() + Send + Sync>) -> Ceiling {
        Ceiling {
            table: Table::new(),
            attributes,
            ready,
        }
    }

    /// Whether an attribute can be asked for, answered as `cli::adapter::attributes` does.
    fn check(&self, name: &[u8]) -> Result<(), Errno> {
        match self.attributes {
            Attributes::None => Err(Errno::NOSYS),
            Attributes::Unlisted if name.starts_with(b"system.posix_acl_") => Err(Errno::OPNOTSUPP),
            Attributes::All | Attributes::Unlisted => Ok(()),
        }
    }

    /// Makes an inode with a name.
    fn make(
        &self,
        caller: Caller,
        (parent, name): (NodeId, &[u8]),
        new: NewNode,
        (kind, rdev): (FileKind, u32),
        body: Body,
    ) -> Result<Arc<Node>, Errno> {
        let directory = self.table.get(parent)?;
        let mut above = directory.state();
        let mut attr = attr_of(caller, new, &above, kind);
        attr.rdev = rdev;
        let names = above.names().ok_or(Errno::NOTDIR)?;
        if names.find(name).is_some() {
            return Err(Errno::EXIST);
        }
        let node = self.table.make(kind, attr, body);
        names.insert(name, node.id(), kind);
        above.touch();
        if kind == FileKind::Directory {
            above.count_names(1);
        }
        Ok(node)
    }

    fn make_file(
        &self,
        caller: Caller,
        place: (NodeId, &[u8]),
        new: NewNode,
    ) -> Result<Arc<Node>, Errno> {
        let body = Body::File(Content::default());
        self.make(caller, place, new, (FileKind::Regular, 0), body)
    }

    /// An inode that the kernel is about to know once more.
    fn find(&self, parent: NodeId, name: &[u8]) -> Result<Option<Arc<Node>>, Errno> {
        let directory = self.table.get(parent)?;
        let mut state = directory.state();
        let above = match state.body() {
            Body::Directory(_, above) => *above,
            _ => return Err(Errno::NOTDIR),
        };
        let id = match name {
            b"." => Some(parent),
            b".." => Some(above),
            name => state.names().and_then(|n| n.find(name)).map(|e| e.node),
        };
        drop(state);
        id.map(|id| self.table.get(id)).transpose()
    }

    /// Takes a name away from a directory, if what it leads to may go.
    fn remove(&self, parent: NodeId, name: &[u8], kind: FileKind) -> Result<(), Errno> {
        let directory = self.table.get(parent)?;
        let mut state = directory.state();
        let names = state.names().ok_or(Errno::NOTDIR)?;
        let entry = names.find(name).ok_or(Errno::NOENT)?;
        let node = self.table.get(entry.node)?;
        let is_directory = entry.kind == FileKind::Directory;
        if is_directory != (kind == FileKind::Directory) {
            let wrong = [Errno::NOTDIR, Errno::ISDIR];
            return Err(wrong[usize::from(is_directory)]);
        }
        may_go(&node)?;
        names.remove(name);
        state.touch();
        if is_directory {
            state.count_names(-1);
        }
        drop(state);
        self.unname(&node);
        Ok(())
    }

    /// An inode has lost a name.
    fn unname(&self, node: &Node) {
        match node.kind() {
            FileKind::Directory => node.state().lose_names(),
            _ => node.state().count_names(-1),
        }
        self.table.drop_if_gone(node);
    }

    /// What a name of a directory leads to.
    fn entry_of(&self, parent: NodeId, name: &[u8]) -> Result<Option<Entry>, Errno> {
        let directory = self.table.get(parent)?;
        let mut state = directory.state();
        let names = state.names().ok_or(Errno::NOTDIR)?;
        Ok(names.find(name).cloned())
    }

    /// Takes `name` out of a directory.
    fn take_out(&self, parent: NodeId, name: &[u8], is_directory: bool) -> Result<(), Errno> {
        let directory = self.table.get(parent)?;
        let mut state = directory.state();
        state.names().ok_or(Errno::NOTDIR)?.remove(name);
        state.touch();
        if is_directory {
            state.count_names(-1);
        }
        Ok(())
    }

    /// Puts a name into a directory, perhaps in place of what it led to.
    fn put_in(&self, parent: NodeId, name: &[u8], entry: &Entry) -> Result<(), Errno> {
        let directory = self.table.get(parent)?;
        let mut state = directory.state();
        let names = state.names().ok_or(Errno::NOTDIR)?;
        let before = names.insert(name, entry.node, entry.kind);
        state.touch();
        let is_directory = entry.kind == FileKind::Directory;
        if is_directory && before.is_none() {
            state.count_names(1);
        }
        drop(state);
        if let Some(before) = before {
            self.unname(&*self.table.get(before.node)?);
        }
        let node = self.table.get(entry.node)?;
        let mut state = node.state();
        state.go_below(parent);
        state.count_names(0);
        Ok(())
    }

    /// Hands out the entries of a directory from a place on, `.` and `..` first, until `add` says that it is full.
    fn list(
        &self,
        directory: NodeId,
        offset: u64,
        mut add: impl FnMut(&DirEntry<'_>) -> bool,
    ) -> Result<(), Errno> {
        let node = self.table.get(directory)?;
        let state = node.state();
        let Body::Directory(names, above) = state.body() else {
            return Err(Errno::NOTDIR);
        };
        let dots = [(directory.0, 1, &b"."[..]), (above.0, DOTS, &b".."[..])];
        for (ino, next_offset, name) in dots {
            let entry = DirEntry {
                ino,
                next_offset,
                kind: FileKind::Directory,
                name,
            };
            if offset < next_offset && add(&entry) {
                return Ok(());
            }
        }
        for (place, entry) in names.behind(offset.max(DOTS)) {
            let entry = DirEntry {
                ino: entry.node.0,
                next_offset: place,
                kind: entry.kind,
                name: &entry.name,
            };
            if add(&entry) {
                break;
            }
        }
        Ok(())
    }
}

/// Attributes of what is made in a directory.
fn attr_of(caller: Caller, new: NewNode, above: &State, kind: FileKind) -> FileAttr {
    let directory = above.attr();
    let handed_down = directory.mode & SET_GROUP_ID != 0;
    let is_directory = kind == FileKind::Directory;
    let mode = new.mode & !new.umask;
    FileAttr {
        mode: match handed_down && is_directory {
            true => mode | SET_GROUP_ID,
            false => mode,
        },
        nlink: if is_directory { 2 } else { 1 },
        uid: caller.uid,
        gid: if handed_down {
            directory.gid
        } else {
            caller.gid
        },
        ..FileAttr::default()
    }
}

/// That nothing is in a directory.
fn may_go(node: &Node) -> Result<(), Errno> {
    match node.state().names() {
        Some(names) if !names.is_empty() => Err(Errno::NOTEMPTY),
        _ => Ok(()),
    }
}

/// The reply that gives the kernel an inode, which it knows once more then.
fn entry(node: &Node) -> EntryReply {
    let mut state = node.state();
    state.look_up();
    EntryReply {
        node: node.id(),
        generation: 1,
        attr: state.attr(),
        entry_ttl: TTL,
        attr_ttl: TTL,
    }
}

fn attr(state: &State) -> AttrReply {
    AttrReply {
        attr: state.attr(),
        attr_ttl: TTL,
    }
}

/// What an open file is answered with.
fn opened() -> OpenReply {
    OpenReply {
        fh: 0,
        flags: OpenReplyFlags::KEEP_CACHE | OpenReplyFlags::NOFLUSH,
    }
}

impl Filesystem for Ceiling {
    fn init(&self, _: &Negotiated) -> Result<(), Errno> {
        (self.ready)();
        Ok(())
    }

    fn lookup(&self, _: Caller, parent: NodeId, name: &[u8]) -> Result<EntryReply, Errno> {
        Ok(match self.find(parent, name)? {
            Some(node) => entry(&node),
            None => EntryReply::negative(TTL),
        })
    }

    fn forget(&self, id: NodeId, count: u64) {
        if id == NodeId::ROOT {
            return;
        }
        if let Ok(node) = self.table.get(id) {
            let mut state = node.state();
            state.forget(count);
            drop(state);
            self.table.drop_if_gone(&node);
        }
    }

    fn getattr(&self, _: Caller, node: NodeId, _: Option<u64>) -> Result<AttrReply, Errno> {
        Ok(attr(&self.table.get(node)?.state()))
    }

    fn statx(&self, _: Caller, node: NodeId, _: Option<u64>) -> Result<StatxReply, Errno> {
        let node = self.table.get(node)?;
        let state = node.state();
        Ok(StatxReply {
            attr: state.attr(),
            birth: Some(state.birth()),
            attr_ttl: TTL,
        })
    }

    fn setattr(&self, _: Caller, node: NodeId, set: &SetAttr) -> Result<AttrReply, Errno> {
        let node = self.table.get(node)?;
        let mut state = node.state();
        state.set(set);
        let nothing = SetAttr {
            fh: set.fh,
            ..SetAttr::default()
        };
        // So the kernel announces a write that takes set-user-id away: it has to ask again.
        let attr_ttl = if *set == nothing { Duration::ZERO } else { TTL };
        Ok(AttrReply {
            attr_ttl,
            ..attr(&state)
        })
    }

    fn readlink(&self, _: Caller, node: NodeId, target: &mut ByteSink<'_>) -> Result<(), Errno> {
        let node = self.table.get(node)?;
        match node.state().body() {
            Body::Link(path) => target.put(path),
            _ => return Err(Errno::INVAL),
        }
        Ok(())
    }

    fn symlink(
        &self,
        caller: Caller,
        parent: NodeId,
        name: &[u8],
        target: &[u8],
    ) -> Result<EntryReply, Errno> {
        let new = NewNode {
            mode: 0o777,
            umask: 0,
        };
        let body = Body::Link(target.into());
        let made = self.make(caller, (parent, name), new, (FileKind::Symlink, 0), body)?;
        Ok(entry(&made))
    }

    fn mknod(
        &self,
        caller: Caller,
        parent: NodeId,
        name: &[u8],
        new: NewNode,
        rdev: u32,
    ) -> Result<EntryReply, Errno> {
        let kind = FileKind::from_mode(new.mode).unwrap_or(FileKind::Regular);
        let body = match kind {
            FileKind::Regular => Body::File(Content::default()),
            _ => Body::Special,
        };
        let made = self.make(caller, (parent, name), new, (kind, rdev), body)?;
        Ok(entry(&made))
    }

    fn mkdir(
        &self,
        caller: Caller,
        parent: NodeId,
        name: &[u8],
        new: NewNode,
    ) -> Result<EntryReply, Errno> {
        let body = Body::Directory(Directory::default(), parent);
        let kind = (FileKind::Directory, 0);
        Ok(entry(&*self.make(
            caller,
            (parent, name),
            new,
            kind,
            body,
        )?))
    }

    fn unlink(&self, _: Caller, parent: NodeId, name: &[u8]) -> Result<(), Errno> {
        self.remove(parent, name, FileKind::Regular)
    }

    fn rmdir(&self, _: Caller, parent: NodeId, name: &[u8]) -> Result<(), Errno> {
        self.remove(parent, name, FileKind::Directory)
    }

    fn rename(
        &self,
        _: Caller,
        (from, name): (NodeId, &[u8]),
        (to, new_name): (NodeId, &[u8]),
        flags: RenameFlags,
    ) -> Result<(), Errno> {
        if flags.exchange || flags.whiteout {
            return Err(Errno::INVAL);
        }
        let moved = self.entry_of(from, name)?.ok_or(Errno::NOENT)?;
        let target = self.entry_of(to, new_name)?;
        if let Some(target) = &target {
            if flags.no_replace {
                return Err(Errno::EXIST);
            }
            if target.node == moved.node {
                return Ok(());
            }
            may_go(&*self.table.get(target.node)?)?;
        }
        // The kernel locks both directories, so that nobody sees the moment in between.
        self.take_out(from, name, moved.kind == FileKind::Directory)?;
        self.put_in(to, new_name, &moved)
    }

    fn link(
        &self,
        _: Caller,
        node: NodeId,
        parent: NodeId,
        name: &[u8],
    ) -> Result<EntryReply, Errno> {
        let node = self.table.get(node)?;
        let directory = self.table.get(parent)?;
        let mut state = directory.state();
        let names = state.names().ok_or(Errno::NOTDIR)?;
        if names.find(name).is_some() {
            return Err(Errno::EXIST);
        }
        names.insert(name, node.id(), node.kind());
        state.touch();
        drop(state);
        node.state().count_names(1);
        Ok(entry(&node))
    }

    fn create(
        &self,
        caller: Caller,
        parent: NodeId,
        name: &[u8],
        new: NewNode,
        flags: OpenFlags,
    ) -> Result<(EntryReply, OpenReply), Errno> {
        let node = match self.make_file(caller, (parent, name), new) {
            Err(Errno::EXIST) if !flags.exclusive() => {
                self.find(parent, name)?.ok_or(Errno::NOENT)?
            }
            made => made?,
        };
        Ok((entry(&node), opened()))
    }

    fn tmpfile(
        &self,
        caller: Caller,
        parent: NodeId,
        new: NewNode,
        _: OpenFlags,
    ) -> Result<(EntryReply, OpenReply), Errno> {
        let directory = self.table.get(parent)?;
        let attr = FileAttr {
            nlink: 0,
            ..attr_of(caller, new, &directory.state(), FileKind::Regular)
        };
        let body = Body::File(Content::default());
        let node = self.table.make(FileKind::Regular, attr, body);
        Ok((entry(&node), opened()))
    }

    fn read(
        &self,
        _: Caller,
        node: NodeId,
        call: ReadCall,
        reply: &mut ReadReply<'_>,
    ) -> Result<(), Errno> {
        let node = self.table.get(node)?;
        let mut state = node.state();
        let content = state.content().ok_or(Errno::ISDIR)?;
        content.read(call.offset, call.size.into(), reply);
        Ok(())
    }

    fn write(
        &self,
        _: Caller,
        node: NodeId,
        _: u64,
        offset: u64,
        data: &[u8],
        flags: WriteFlags,
    ) -> Result<u32, Errno> {
        let node = self.table.get(node)?;
        let mut state = node.state();
        state.content().ok_or(Errno::ISDIR)?.write(offset, data);
        state.touch();
        if flags.kill_suidgid {
            state.drop_privileges();
        }
        u32::try_from(data.len()).map_err(|_| Errno::IO)
    }

    fn fallocate(
        &self,
        _: Caller,
        node: NodeId,
        _: u64,
        range: Range<u64>,
        mode: FallocateMode,
    ) -> Result<(), Errno> {
        if mode.punch_hole || mode.zero_range {
            return Err(Errno::OPNOTSUPP);
        }
        let node = self.table.get(node)?;
        let mut state = node.state();
        let content = state.content().ok_or(Errno::ISDIR)?;
        if !mode.keep_size && content.size() < range.end {
            content.resize(range.end);
        }
        Ok(())
    }

    fn lseek(
        &self,
        _: Caller,
        node: NodeId,
        _: u64,
        offset: u64,
        whence: SeekWhence,
    ) -> Result<u64, Errno> {
        let size = self.table.get(node)?.state().attr().size;
        match whence {
            _ if offset >= size => Err(Errno::NXIO),
            SeekWhence::Data => Ok(offset),
            SeekWhence::Hole => Ok(size),
        }
    }

    fn copy_file_range(
        &self,
        _: Caller,
        from: CopyEnd,
        to: CopyEnd,
        length: u64,
    ) -> Result<u64, Errno> {
        let source = self.table.get(from.node)?;
        let content = source.state().content().map(|content| {
            // A file may be copied within itself.
            content.copy(from.offset, length.min(COPY_MAX))
        });
        let content = content.ok_or(Errno::ISDIR)?;
        let target = self.table.get(to.node)?;
        let mut state = target.state();
        let into = state.content().ok_or(Errno::ISDIR)?;
        into.write(to.offset, &content);
        state.touch();
        Ok(content.len() as u64)
    }

    fn fsync(&self, _: Caller, _: NodeId, _: u64, _: bool) -> Result<(), Errno> {
        Ok(())
    }

    fn fsyncdir(&self, _: Caller, _: NodeId, _: u64, _: bool) -> Result<(), Errno> {
        Ok(())
    }

    fn syncfs(&self, _: Caller, _: NodeId) -> Result<(), Errno> {
        Ok(())
    }

    fn readdir(
        &self,
        _: Caller,
        node: NodeId,
        call: ReadCall,
        entries: &mut DirSink<'_>,
    ) -> Result<(), Errno> {
        self.list(node, call.offset, |listed| entries.add(listed))
    }

    fn readdirplus(
        &self,
        _: Caller,
        node: NodeId,
        call: ReadCall,
        entries: &mut DirPlusSink<'_>,
    ) -> Result<(), Errno> {
        self.list(node, call.offset, |listed| {
            if !entries.fits(listed.name.len()) {
                return true;
            }
            let unnamed = EntryReply::negative(Duration::ZERO);
            let found = match listed.name {
                b"." | b".." => unnamed,
                _ => {
                    let node = self.table.get(NodeId(listed.ino));
                    node.map_or(unnamed, |node| entry(&node))
                }
            };
            entries.add(listed, &found)
        })
    }

    fn statfs(&self, _: Caller, _: NodeId) -> Result<StatfsReply, Errno> {
        Ok(StatfsReply {
            blocks: BLOCKS,
            bfree: BLOCKS,
            bavail: BLOCKS,
            files: BLOCKS,
            ffree: BLOCKS,
            bsize: BLOCK_SIZE,
            namelen: NAME_MAX,
            frsize: BLOCK_SIZE,
        })
    }

    fn setxattr(
        &self,
        _: Caller,
        _: NodeId,
        name: &[u8],
        _: &[u8],
        _: SetXattrFlags,
    ) -> Result<(), Errno> {
        self.check(name)?;
        Err(Errno::OPNOTSUPP)
    }

    fn getxattr(
        &self,
        _: Caller,
        node: NodeId,
        name: &[u8],
        _: &mut ByteSink<'_>,
    ) -> Result<(), Errno> {
        self.check(name)?;
        self.table.get(node)?;
        Err(Errno::NODATA)
    }

    fn listxattr(&self, _: Caller, _: NodeId, _: &mut ByteSink<'_>) -> Result<(), Errno> {
        self.check(b"")
    }

    fn removexattr(&self, _: Caller, _: NodeId, name: &[u8]) -> Result<(), Errno> {
        self.check(name)?;
        Err(Errno::NODATA)
    }
}
