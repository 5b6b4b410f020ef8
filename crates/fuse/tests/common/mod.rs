//! A file system in memory, and mounts that always end.
#![allow(dead_code, reason = "each test uses a part")]

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, RwLock};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime};

use loamfs_fuse::{
    AttrReply, ByteSink, Caller, Config, DirEntry, DirPlusSink, DirSink, EntryReply, Errno, Error,
    FileAttr, FileKind, Filesystem, MountOptions, NewNode, NodeId, OpenFlags, OpenReply,
    OpenReplyFlags, ReadCall, ReadReply, RenameFlags, Session, SetAttr, SetXattrFlags,
    SetXattrMode, StatfsReply, StatxReply, TimeOrNow, Timestamp, WriteFlags,
};
use rustix::mount::UnmountFlags;

const TTL: Duration = Duration::from_secs(3600);

/// How long an answer may take, and what others are waited for.
const PATIENCE: Duration = Duration::from_secs(60);

/// How often something is asked for while others wait.
const ASKED: usize = 100;

/// What can be seen from outside.
#[derive(Default)]
pub struct Counts {
    pub opens: AtomicU64,
    pub creates: AtomicU64,
    pub readdirplus: AtomicU64,
    pub syncs: AtomicU64,
    pub fsyncs: AtomicU64,
    pub truncating_opens: AtomicU64,
    pub truncating_setattrs: AtomicU64,
    pub unaligned_writes: AtomicU64,
    pub destroyed: AtomicBool,
    /// Requests came through io_uring.
    pub rings: OnceLock<bool>,
    /// Requests that were tried.
    pub tried: AtomicU64,
}

pub struct MemFs {
    state: Mutex<State>,
    pub counts: Counts,
    /// Whoever holds it for writing holds up every fsync, as a device that does not answer does.
    pub device: RwLock<()>,
    /// Every request would wait.
    pub waits: AtomicBool,
    /// How long destroy takes.
    destroy_delay: Duration,
}

struct State {
    inodes: BTreeMap<u64, Inode>,
    next: u64,
}

/// Name, next offset, inode and kind.
type Listed = (Vec<u8>, u64, u64, FileKind);

struct Inode {
    attr: FileAttr,
    birth: Timestamp,
    data: Arc<Vec<u8>>,
    /// Name to inode, `.` and `..` included.
    children: BTreeMap<Vec<u8>, u64>,
    xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
}

fn now() -> Timestamp {
    SystemTime::now().into()
}

fn usize_of(number: u64) -> usize {
    usize::try_from(number).unwrap()
}

impl Default for MemFs {
    fn default() -> Self {
        let mut state = State {
            inodes: BTreeMap::new(),
            next: 1,
        };
        let root = state.add(0o040_755, 0, 0, 0);
        state.link_dots(root, root);
        Self {
            state: Mutex::new(state),
            counts: Counts::default(),
            device: RwLock::new(()),
            waits: AtomicBool::new(false),
            destroy_delay: Duration::ZERO,
        }
    }
}

impl State {
    fn add(&mut self, mode: u32, uid: u32, gid: u32, rdev: u32) -> u64 {
        let ino = self.next;
        self.next += 1;
        let time = now();
        self.inodes.insert(
            ino,
            Inode {
                attr: FileAttr {
                    ino,
                    size: 0,
                    blocks: 0,
                    atime: time,
                    mtime: time,
                    ctime: time,
                    mode,
                    nlink: 1,
                    uid,
                    gid,
                    rdev,
                    blksize: 4096,
                },
                birth: time,
                data: Arc::default(),
                children: BTreeMap::new(),
                xattrs: BTreeMap::new(),
            },
        );
        ino
    }

    fn link_dots(&mut self, ino: u64, parent: u64) {
        let inode = self.inodes.get_mut(&ino).unwrap();
        inode.attr.nlink = 2;
        inode.children.insert(b".".to_vec(), ino);
        inode.children.insert(b"..".to_vec(), parent);
    }

    fn get(&mut self, ino: u64) -> Result<&mut Inode, Errno> {
        self.inodes.get_mut(&ino).ok_or(Errno::STALE)
    }

    fn child(&mut self, parent: NodeId, name: &[u8]) -> Result<u64, Errno> {
        let parent = self.get(parent.0)?;
        parent.children.get(name).copied().ok_or(Errno::NOENT)
    }

    fn entry(&mut self, ino: u64) -> Result<EntryReply, Errno> {
        Ok(EntryReply {
            node: NodeId(ino),
            generation: 0,
            attr: self.get(ino)?.attr,
            entry_ttl: TTL,
            attr_ttl: TTL,
        })
    }

    fn make(
        &mut self,
        caller: Caller,
        parent: NodeId,
        name: &[u8],
        mode: u32,
        rdev: u32,
    ) -> Result<u64, Errno> {
        if self.child(parent, name).is_ok() {
            return Err(Errno::EXIST);
        }
        let ino = self.add(mode, caller.uid, caller.gid, rdev);
        let parent = self.get(parent.0)?;
        parent.children.insert(name.to_vec(), ino);
        parent.attr.mtime = now();
        Ok(ino)
    }

    fn remove(&mut self, parent: NodeId, name: &[u8]) -> Result<(), Errno> {
        let ino = self.child(parent, name)?;
        self.get(parent.0)?.children.remove(name);
        // Kept in the table: files may be open.
        let attr = &mut self.get(ino)?.attr;
        attr.nlink = attr.nlink.saturating_sub(1);
        Ok(())
    }

    fn set_size(&mut self, ino: u64, size: u64) -> Result<(), Errno> {
        let inode = self.get(ino)?;
        Arc::make_mut(&mut inode.data).resize(usize_of(size), 0);
        inode.attr.size = size;
        inode.attr.blocks = size.div_ceil(512);
        Ok(())
    }

    /// Every entry from `offset` on.
    fn listing(&mut self, node: NodeId, offset: u64) -> Result<Vec<Listed>, Errno> {
        let children = self.get(node.0)?.children.clone();
        (1..)
            .zip(children)
            .skip(usize_of(offset))
            .map(|(next, (name, ino))| {
                let kind = FileKind::from_mode(self.get(ino)?.attr.mode).ok_or(Errno::IO)?;
                Ok((name, next, ino, kind))
            })
            .collect()
    }
}

impl MemFs {
    pub fn slow_to_end(destroy_delay: Duration) -> Self {
        Self {
            destroy_delay,
            ..Self::default()
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }
}

fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::SeqCst);
}

pub fn seen(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::SeqCst)
}

impl Filesystem for MemFs {
    fn without_waiting(&self, _: bool, request: &mut dyn FnMut()) -> bool {
        count(&self.counts.tried);
        if self.waits.load(Ordering::SeqCst) {
            return false;
        }
        request();
        true
    }

    fn carried(&self, by_rings: bool) {
        self.counts.rings.set(by_rings).unwrap();
    }

    fn destroy(&self) {
        thread::sleep(self.destroy_delay);
        self.counts.destroyed.store(true, Ordering::SeqCst);
    }

    fn lookup(&self, _: Caller, parent: NodeId, name: &[u8]) -> Result<EntryReply, Errno> {
        let mut state = self.lock();
        match state.child(parent, name) {
            Ok(ino) => state.entry(ino),
            Err(Errno::NOENT) => Ok(EntryReply::negative(TTL)),
            Err(errno) => Err(errno),
        }
    }

    fn getattr(&self, _: Caller, node: NodeId, _: Option<u64>) -> Result<AttrReply, Errno> {
        Ok(AttrReply {
            attr: self.lock().get(node.0)?.attr,
            attr_ttl: TTL,
        })
    }

    fn statx(&self, _: Caller, node: NodeId, _: Option<u64>) -> Result<StatxReply, Errno> {
        let mut state = self.lock();
        let inode = state.get(node.0)?;
        Ok(StatxReply {
            attr: inode.attr,
            birth: Some(inode.birth),
            attr_ttl: TTL,
        })
    }

    fn setattr(&self, caller: Caller, node: NodeId, set: &SetAttr) -> Result<AttrReply, Errno> {
        let time = |wanted| match wanted {
            TimeOrNow::Time(time) => time,
            TimeOrNow::Now => now(),
        };
        let mut state = self.lock();
        if let Some(size) = set.size {
            if size == 0 {
                count(&self.counts.truncating_setattrs);
            }
            state.set_size(node.0, size)?;
        }
        let attr = &mut state.get(node.0)?.attr;
        if let Some(mode) = set.mode {
            attr.mode = attr.mode & 0o170_000 | mode & 0o7777;
        }
        attr.uid = set.uid.unwrap_or(attr.uid);
        attr.gid = set.gid.unwrap_or(attr.gid);
        attr.atime = set.atime.map_or(attr.atime, time);
        attr.mtime = set.mtime.map_or(attr.mtime, time);
        attr.ctime = now();
        drop(state);
        self.getattr(caller, node, None)
    }

    fn readlink(&self, _: Caller, node: NodeId, target: &mut ByteSink<'_>) -> Result<(), Errno> {
        target.put(&self.lock().get(node.0)?.data);
        Ok(())
    }

    fn symlink(
        &self,
        caller: Caller,
        parent: NodeId,
        name: &[u8],
        target: &[u8],
    ) -> Result<EntryReply, Errno> {
        let mut state = self.lock();
        let ino = state.make(caller, parent, name, 0o120_777, 0)?;
        state.get(ino)?.data = Arc::new(target.to_vec());
        state.entry(ino)
    }

    fn mknod(
        &self,
        caller: Caller,
        parent: NodeId,
        name: &[u8],
        new: NewNode,
        rdev: u32,
    ) -> Result<EntryReply, Errno> {
        let mut state = self.lock();
        let ino = state.make(caller, parent, name, new.mode, rdev)?;
        state.entry(ino)
    }

    fn mkdir(
        &self,
        caller: Caller,
        parent: NodeId,
        name: &[u8],
        new: NewNode,
    ) -> Result<EntryReply, Errno> {
        let mut state = self.lock();
        let ino = state.make(caller, parent, name, 0o040_000 | new.mode, 0)?;
        state.link_dots(ino, parent.0);
        state.entry(ino)
    }

    fn unlink(&self, _: Caller, parent: NodeId, name: &[u8]) -> Result<(), Errno> {
        self.lock().remove(parent, name)
    }

    fn rmdir(&self, _: Caller, parent: NodeId, name: &[u8]) -> Result<(), Errno> {
        let mut state = self.lock();
        let ino = state.child(parent, name)?;
        if state.get(ino)?.children.len() > 2 {
            return Err(Errno::NOTEMPTY);
        }
        state.remove(parent, name)
    }

    fn rename(
        &self,
        _: Caller,
        from: (NodeId, &[u8]),
        to: (NodeId, &[u8]),
        flags: RenameFlags,
    ) -> Result<(), Errno> {
        let mut state = self.lock();
        let ino = state.child(from.0, from.1)?;
        let target = state.child(to.0, to.1);
        if flags.no_replace && target.is_ok() {
            return Err(Errno::EXIST);
        }
        if flags.exchange {
            let target = target?;
            let source = state.get(from.0.0)?;
            source.children.insert(from.1.to_vec(), target);
        } else {
            if target.is_ok() {
                state.remove(to.0, to.1)?;
            }
            state.get(from.0.0)?.children.remove(from.1);
        }
        state.get(to.0.0)?.children.insert(to.1.to_vec(), ino);
        Ok(())
    }

    fn link(
        &self,
        _: Caller,
        node: NodeId,
        parent: NodeId,
        name: &[u8],
    ) -> Result<EntryReply, Errno> {
        let mut state = self.lock();
        let directory = state.get(parent.0)?;
        directory.children.insert(name.to_vec(), node.0);
        state.get(node.0)?.attr.nlink += 1;
        state.entry(node.0)
    }

    fn open(&self, _: Caller, node: NodeId, flags: OpenFlags) -> Result<OpenReply, Errno> {
        count(&self.counts.opens);
        if flags.truncate() {
            count(&self.counts.truncating_opens);
            self.lock().set_size(node.0, 0)?;
        }
        Ok(OpenReply {
            fh: node.0,
            flags: OpenReplyFlags::KEEP_CACHE | OpenReplyFlags::NOFLUSH,
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
        count(&self.counts.creates);
        let entry = self.mknod(caller, parent, name, new, 0)?;
        // Nothing to truncate, although the flags may say so.
        let flags = OpenFlags { bits: 0, ..flags };
        Ok((entry, self.open(caller, entry.node, flags)?))
    }

    fn tmpfile(
        &self,
        caller: Caller,
        _: NodeId,
        new: NewNode,
        flags: OpenFlags,
    ) -> Result<(EntryReply, OpenReply), Errno> {
        let mut state = self.lock();
        let ino = state.add(new.mode, caller.uid, caller.gid, 0);
        state.get(ino)?.attr.nlink = 0;
        let entry = state.entry(ino)?;
        drop(state);
        Ok((entry, self.open(caller, entry.node, flags)?))
    }

    fn read(
        &self,
        _: Caller,
        node: NodeId,
        call: ReadCall,
        reply: &mut ReadReply<'_>,
    ) -> Result<(), Errno> {
        let data: Arc<[u8]> = self.lock().get(node.0)?.data[..].into();
        reply.append_shared(data, usize_of(call.offset)..usize::MAX);
        Ok(())
    }

    fn write(
        &self,
        _: Caller,
        node: NodeId,
        _: u64,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
    ) -> Result<u32, Errno> {
        if data.as_ptr().align_offset(4096) != 0 {
            count(&self.counts.unaligned_writes);
        }
        let mut state = self.lock();
        let start = usize_of(offset);
        let end = start + data.len();
        let size = state.get(node.0)?.data.len().max(end);
        state.set_size(node.0, size as u64)?;
        let inode = state.get(node.0)?;
        Arc::make_mut(&mut inode.data)[start..end].copy_from_slice(data);
        inode.attr.mtime = now();
        Ok(u32::try_from(data.len()).unwrap())
    }

    fn release(&self, _: NodeId, _: u64, _: OpenFlags) -> Result<(), Errno> {
        Ok(())
    }

    fn fsync(&self, _: Caller, _: NodeId, _: u64, _: bool) -> Result<(), Errno> {
        count(&self.counts.fsyncs);
        drop(self.device.read().unwrap());
        Ok(())
    }

    fn readdir(
        &self,
        _: Caller,
        node: NodeId,
        call: ReadCall,
        entries: &mut DirSink<'_>,
    ) -> Result<(), Errno> {
        for (name, next_offset, ino, kind) in self.lock().listing(node, call.offset)? {
            if entries.add(&DirEntry {
                ino,
                next_offset,
                kind,
                name: &name,
            }) {
                break;
            }
        }
        Ok(())
    }

    fn readdirplus(
        &self,
        _: Caller,
        node: NodeId,
        call: ReadCall,
        entries: &mut DirPlusSink<'_>,
    ) -> Result<(), Errno> {
        count(&self.counts.readdirplus);
        let mut state = self.lock();
        for (name, next_offset, ino, kind) in state.listing(node, call.offset)? {
            let found = state.entry(ino)?;
            let entry = DirEntry {
                ino,
                next_offset,
                kind,
                name: &name,
            };
            if entries.add(&entry, &found) {
                break;
            }
        }
        Ok(())
    }

    fn statfs(&self, _: Caller, _: NodeId) -> Result<StatfsReply, Errno> {
        Ok(StatfsReply {
            blocks: 1000,
            bfree: 900,
            bavail: 800,
            files: 700,
            ffree: 600,
            bsize: 4096,
            namelen: 255,
            frsize: 1024,
        })
    }

    fn setxattr(
        &self,
        _: Caller,
        node: NodeId,
        name: &[u8],
        value: &[u8],
        flags: SetXattrFlags,
    ) -> Result<(), Errno> {
        let mut state = self.lock();
        let xattrs = &mut state.get(node.0)?.xattrs;
        match (flags.mode, xattrs.contains_key(name)) {
            (SetXattrMode::Create, true) => return Err(Errno::EXIST),
            (SetXattrMode::Replace, false) => return Err(Errno::NODATA),
            _ => {}
        }
        xattrs.insert(name.to_vec(), value.to_vec());
        Ok(())
    }

    fn getxattr(
        &self,
        _: Caller,
        node: NodeId,
        name: &[u8],
        value: &mut ByteSink<'_>,
    ) -> Result<(), Errno> {
        let mut state = self.lock();
        value.put(state.get(node.0)?.xattrs.get(name).ok_or(Errno::NODATA)?);
        Ok(())
    }

    fn listxattr(&self, _: Caller, node: NodeId, names: &mut ByteSink<'_>) -> Result<(), Errno> {
        for name in self.lock().get(node.0)?.xattrs.keys() {
            names.put_name(name);
        }
        Ok(())
    }

    fn removexattr(&self, _: Caller, node: NodeId, name: &[u8]) -> Result<(), Errno> {
        let mut state = self.lock();
        let removed = state.get(node.0)?.xattrs.remove(name);
        removed.map(drop).ok_or(Errno::NODATA)
    }

    fn syncfs(&self, _: Caller, _: NodeId) -> Result<(), Errno> {
        count(&self.counts.syncs);
        Ok(())
    }
}

/// Why mounting cannot be tried here, if it cannot.
pub fn obstacle() -> Option<String> {
    if !rustix::process::geteuid().is_root() {
        return Some("not root".into());
    }
    std::fs::File::options()
        .read(true)
        .write(true)
        .open("/dev/fuse")
        .err()
        .map(|error| format!("/dev/fuse: {error}"))
}

/// Returns from a test that cannot run here, saying why.
#[macro_export]
macro_rules! need_mounts {
    () => {
        if let Some(reason) = common::obstacle() {
            eprintln!("skipped: {reason}");
            return;
        }
    };
}

/// A served mount, which is gone when this is dropped.
pub struct Served {
    pub path: PathBuf,
    server: Option<JoinHandle<Result<(), Error>>>,
}

pub fn options() -> MountOptions {
    MountOptions {
        fsname: "memory".into(),
        subtype: "loamtest".into(),
        default_permissions: true,
        allow_other: true,
        ..MountOptions::default()
    }
}

impl Served {
    pub fn start(
        path: &Path,
        fs: Arc<dyn Filesystem>,
        options: &MountOptions,
        config: Config,
    ) -> Self {
        Self::start_session(path, fs, options, Session::new(config))
    }

    pub fn start_session(
        path: &Path,
        fs: Arc<dyn Filesystem>,
        options: &MountOptions,
        session: Session,
    ) -> Self {
        let mounted = loamfs_fuse::mount(path, options).unwrap();
        Self {
            path: mounted.path().to_owned(),
            server: Some(thread::spawn(move || session.run(fs, mounted))),
        }
    }

    /// Unmounts and returns what the server returned.
    pub fn end(mut self) -> Result<(), Error> {
        loamfs_fuse::unmount(&self.path).unwrap();
        self.server.take().unwrap().join().unwrap()
    }

    /// What the server returned, which ends by itself.
    pub fn wait(mut self) -> Result<(), Error> {
        self.server.take().unwrap().join().unwrap()
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        if let Some(server) = self.server.take() {
            // After a failed test files may still be open, so that the server
            // would not end: leave it to the end of the process.
            if thread::panicking() {
                abort(&self.path);
            } else if loamfs_fuse::detach(&self.path).is_ok() {
                let _ = server.join();
            }
        }
    }
}

/// Ends a connection: whoever waits for an answer gets an error. A process whose thread waits for its own server cannot end
/// otherwise, and whoever started it waits, too.
pub fn abort(path: &Path) {
    let flags = UnmountFlags::FORCE | UnmountFlags::DETACH;
    if let Err(error) = rustix::mount::unmount(path, flags) {
        eprintln!("{}: {error}", path.display());
    }
}

/// Makes so many files and has all of them synced by a device that does not answer; when so many of the syncs have come,
/// `ask` must be answered well, time and again. Then the device answers.
pub fn answered_while_syncs_wait(
    path: &Path,
    fs: &MemFs,
    (files, waiting): (usize, usize),
    ask: impl Fn() -> bool + Send,
) {
    // The kernel syncs a file for one caller at a time.
    let files: Vec<File> = (0..files)
        .map(|number| File::create(path.join(number.to_string())).unwrap())
        .collect();
    thread::scope(|scope| {
        let stuck = fs.device.write().unwrap();
        let syncs: Vec<_> = files
            .iter()
            .map(|file| scope.spawn(|| file.sync_all()))
            .collect();
        let begin = Instant::now();
        while seen(&fs.counts.fsyncs) < waiting as u64 && begin.elapsed() < PATIENCE {
            thread::yield_now();
        }
        let (asked, answered) = channel();
        scope.spawn(move || (0..ASKED).try_for_each(|_| asked.send(ask())));
        let answers: Vec<bool> = (0..ASKED)
            .map_while(|_| answered.recv_timeout(PATIENCE).ok())
            .collect();
        let syncs_came = seen(&fs.counts.fsyncs);
        drop(stuck);
        if answers.len() < ASKED {
            // Whoever asks would never end.
            abort(path);
        }
        assert!(syncs_came >= waiting as u64, "{syncs_came} syncs came");
        assert_eq!(answers, [true; ASKED]);
        for sync in syncs {
            sync.join().unwrap().unwrap();
        }
    });
}
