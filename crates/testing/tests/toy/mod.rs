//! A file system that is right by construction, and wrong on demand: it keeps a
//! model in memory and writes all of it at each commit, so that the harness can
//! be shown to pass what is right and to catch what is wrong.
//!
//! Layout: two slots take turns. A slot is a header of 4 KiB (sequence number,
//! length, checksum) and the encoded model. A commit writes header and model to
//! the older slot in one batch; the newest slot that verifies counts.
//!
//! Contents of large files are held back until a sync or an fsync asks for them,
//! as rule 3 allows, so that the oracle is tested on volumes that lag.

mod codec;

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use loamfs_device::{Device, Image, IoKind, MemoryDevice, Write, read_exact};
use loamfs_format::Ino;
use loamfs_format::inode::{Timestamp, mode};
use loamfs_fs::{Attr, DirEntry, NewInode, RenameFlags, SetAttr, SetTime, StatFs, XattrMode};
use loamfs_testing::content::Content;
use loamfs_testing::errno::{EIO, ENOSPC, EROFS};
use loamfs_testing::geometry::Geometry;
use loamfs_testing::model::{Answer, Body, Id, Model, New, Object, ROOT, Refusal, Rename};
use loamfs_testing::ops::Commit;
use loamfs_testing::rng::mix;
use loamfs_testing::subject::{Failure, Opening, Outcome, Subject, System};

const HEADER: usize = 4096;
const MAGIC: u64 = 0x746f_7966_7331;

/// What a toy does wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Defect {
    // Wrong answers.
    WrongErrno,
    ExchangeForgetsParent,
    TruncateKeepsTail,
    ScanSkipsAfterChange,
    ScanRepeats,
    LosesXattrAtRemount,
    SpuriousNoSpace,
    NoSpaceLeavesName,
    UnlinkNoSpace,
    NumbersReusedWhileOpen,
    ForgetsMtime,
    Panics,
    // Wrong commits.
    NoFlush,
    SlotTooEarly,
    NoChecksum,
    OneSlot,
    FsyncForgetsData,
    CommitHalfARename,
    LargeFilesTorn,
    OldSlotWins,
    CheckerComplains,
    FailsSecondOpen,
}

/// A toy with defects, or without.
#[derive(Clone, Debug, Default)]
pub struct Toy {
    pub defects: BTreeSet<Defect>,
}

impl Toy {
    pub fn with(defect: Defect) -> Self {
        Self {
            defects: BTreeSet::from([defect]),
        }
    }
}

struct State {
    model: Model,
    /// The same, with large files as they were last synced.
    shown: Model,
    next: Id,
    sequence: u64,
    dirty: bool,
    /// Whether the newest slot has not been flushed.
    volatile: bool,
    changes: u64,
    block: u64,
    /// Files that a rename put in another's place: written with the next commit (rule 3).
    replacing: BTreeSet<Id>,
    /// A rename that a defective commit tears apart.
    half: Option<(Id, Vec<u8>, Id)>,
}

struct Open {
    device: Arc<dyn Device>,
    defects: BTreeSet<Defect>,
    read_only: bool,
    state: Mutex<State>,
}

fn io<T>(outcome: Result<T, loamfs_device::DeviceError>) -> Outcome<T> {
    outcome.map_err(|error| Failure {
        errno: EIO,
        message: error.to_string(),
    })
}

fn answer<T>(answer: Answer<T>) -> Outcome<T> {
    answer.map_err(|refusal: Refusal| Failure::plain(refusal.errno))
}

fn checksum(bytes: &[u8]) -> u64 {
    let words = bytes.chunks(8).map(|chunk| {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        u64::from_le_bytes(word)
    });
    words.fold(7, |sum, word| mix(sum ^ word))
}

impl System for Toy {
    fn format(&self, device: Arc<dyn Device>, geometry: &Geometry, _seed: u64) -> Outcome<()> {
        let model = Model::new(0o755, 0, 0);
        let block = geometry.block.into();
        for sequence in [1, 2] {
            write_copy(&*device, &self.defects, sequence, block, ROOT + 100, &model)?;
            io(device.flush())?;
        }
        Ok(())
    }

    fn open(&self, device: Arc<dyn Device>, opening: &Opening) -> Outcome<Box<dyn Subject>> {
        io(device.flush())?;
        let mut slots: Vec<_> = [0, 1]
            .into_iter()
            .filter_map(|slot| read_slot(&*device, &self.defects, slot))
            .collect();
        slots.sort_by_key(|slot| slot.0);
        if self.defects.contains(&Defect::OldSlotWins) {
            slots.reverse();
        }
        let (sequence, block, next, model) = slots.pop().ok_or(Failure::plain(EIO))?;
        if self.defects.contains(&Defect::FailsSecondOpen) && sequence % 7 == 5 {
            return Err(Failure::plain(EIO));
        }
        Ok(Box::new(Open {
            device,
            defects: self.defects.clone(),
            read_only: opening.read_only,
            state: Mutex::new(State {
                shown: model.clone(),
                model,
                next,
                sequence,
                dirty: false,
                volatile: false,
                changes: 0,
                block,
                replacing: BTreeSet::new(),
                half: None,
            }),
        }))
    }

    fn check(&self, image: &Image, _geometry: &Geometry) -> Vec<String> {
        let device = MemoryDevice::from_image(image.clone());
        let slots = [0, 1].map(|slot| read_slot(&device, &self.defects, slot).is_some());
        if slots == [false; 2] {
            return vec!["no slot verifies".to_owned()];
        }
        let wrong = self.defects.contains(&Defect::CheckerComplains) && slots != [true; 2];
        wrong
            .then(|| "a slot does not verify".to_owned())
            .into_iter()
            .collect()
    }
}

fn slot_offset(device: &dyn Device, slot: u64) -> u64 {
    slot * (device.size() / 2)
}

fn write_copy(
    device: &dyn Device,
    defects: &BTreeSet<Defect>,
    sequence: u64,
    block: u64,
    next: Id,
    model: &Model,
) -> Outcome<()> {
    let mut body = codec::encode(model);
    let len = body.len();
    body.resize(len.next_multiple_of(4096), 0);
    let slot = if defects.contains(&Defect::OneSlot) {
        0
    } else {
        sequence % 2
    };
    let offset = slot_offset(device, slot);
    if (body.len() + HEADER) as u64 > device.size() / 2 {
        return Err(Failure::plain(ENOSPC));
    }
    let fields = [MAGIC, sequence, len as u64, checksum(&body), block, next];
    let mut header = vec![0; HEADER];
    for (at, field) in fields.iter().enumerate() {
        header[at * 8..at * 8 + 8].copy_from_slice(&field.to_le_bytes());
    }
    let writes = [
        Write::new(offset, &header, IoKind::Segment),
        Write::new(offset + HEADER as u64, &body, IoKind::Segment),
    ];
    for result in device.write(&writes) {
        io(result)?;
    }
    Ok(())
}

fn read_slot(
    device: &dyn Device,
    defects: &BTreeSet<Defect>,
    slot: u64,
) -> Option<(u64, u64, Id, Model)> {
    let offset = slot_offset(device, slot);
    let header = read_exact(device, offset, HEADER, IoKind::Summary).ok()?;
    let field = |at: usize| {
        let bytes = header[at * 8..at * 8 + 8].try_into().unwrap_or([0; 8]);
        u64::from_le_bytes(bytes)
    };
    if field(0) != MAGIC || field(2) > device.size() / 2 {
        return None;
    }
    let len = field(2) as usize;
    let padded = len.next_multiple_of(4096);
    let body = read_exact(device, offset + HEADER as u64, padded, IoKind::Metadata).ok()?;
    if checksum(&body) != field(3) && !defects.contains(&Defect::NoChecksum) {
        return None;
    }
    let model = codec::decode(&body[..len])?;
    Some((field(1), field(4), field(5), model))
}

impl Open {
    fn has(&self, defect: Defect) -> bool {
        self.defects.contains(&defect)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs a change of the model.
    fn change<T>(&self, run: impl FnOnce(&mut State) -> Answer<T>) -> Outcome<T> {
        if self.read_only {
            return Err(Failure::plain(EROFS));
        }
        let mut state = self.state();
        state.changes += 1;
        assert!(
            !(self.has(Defect::Panics) && state.changes == 300),
            "the toy panics on purpose"
        );
        let result = answer(run(&mut state));
        state.dirty |= result.is_ok();
        result
    }

    /// Writes the model, large files as far as they were synced.
    fn write_out(&self, all: bool, one: Option<Id>) -> Outcome<()> {
        let mut state = self.state();
        if self.read_only || !state.dirty {
            return Ok(());
        }
        let model = &state.model;
        let mut objects = model.objects().clone();
        objects.retain(|_, object| object.nlink > 0);
        for (id, object) in &mut objects {
            let asked = all || one == Some(*id) || state.replacing.contains(id);
            let held = !asked && !self.has(Defect::LargeFilesTorn);
            let large = object.content().is_some_and(|c| c.size() > state.block);
            let old = state.shown.get(*id).and_then(|object| object.content());
            let was_large = old.is_some_and(|c| c.size() > state.block);
            if held && (large || was_large) {
                let content = old.cloned().unwrap_or_default();
                Arc::make_mut(object).body = Body::File(content);
            }
            if self.has(Defect::LargeFilesTorn) && large && !all && one != Some(*id) {
                tear(Arc::make_mut(object));
            }
        }
        if self.has(Defect::CommitHalfARename)
            && !all
            && let Some((dir, name, id)) = state.half.take()
        {
            let object = objects.get_mut(&dir).map(Arc::make_mut);
            if let Some(Body::Dir { entries, .. }) = object.map(|o| &mut o.body) {
                entries.entry(name).or_insert(id);
            }
        }
        let shown = Model::from_objects(objects);
        // The slot that is written to holds the newest state that is durable
        // until the other one has been flushed.
        if state.volatile && !self.has(Defect::NoFlush) && !self.has(Defect::SlotTooEarly) {
            io(self.device.flush())?;
        }
        state.sequence += 1;
        state.volatile = true;
        let sequence = state.sequence;
        write_copy(
            &*self.device,
            &self.defects,
            sequence,
            state.block,
            state.next,
            &shown,
        )?;
        state.shown = shown;
        state.replacing.clear();
        state.dirty = state.shown.objects() != state.model.objects();
        Ok(())
    }

    fn flush(&self) -> Outcome<()> {
        if self.has(Defect::NoFlush) {
            return Ok(());
        }
        io(self.device.flush())?;
        self.state().volatile = false;
        Ok(())
    }

    fn attr(&self, state: &State, id: Id) -> Outcome<Attr> {
        let object = state.model.get(id);
        let object = object.ok_or(Failure::plain(loamfs_testing::errno::ENOENT))?;
        let time = Timestamp::default();
        let forget = self.has(Defect::ForgetsMtime);
        Ok(Attr {
            ino: Ino(id),
            generation: 1,
            mode: object.mode(),
            nlink: object.nlink,
            uid: object.uid,
            gid: object.gid,
            rdev: object.rdev,
            size: object.size().unwrap_or(4096),
            blocks: 0,
            atime: time,
            mtime: object.mtime.filter(|_| !forget).unwrap_or_default(),
            ctime: time,
            btime: time,
        })
    }

    fn make(
        &self,
        new: &NewInode,
        run: impl FnOnce(&mut Model, Id, &New) -> Answer<()>,
    ) -> Outcome<Attr> {
        let new = New {
            permissions: new.mode,
            uid: new.uid,
            gid: new.gid,
            rdev: new.rdev,
        };
        let reuse = self.has(Defect::NumbersReusedWhileOpen);
        let count = self.state().model.objects().len();
        let id = self.change(|state| {
            state.next += 1;
            let id = if reuse && count > 20 {
                ROOT + 100 + count as u64
            } else {
                state.next
            };
            run(&mut state.model, id, &new)?;
            Ok(id)
        })?;
        let full = |defect| self.has(defect) && self.state().changes % 50 == 49;
        if full(Defect::SpuriousNoSpace) || full(Defect::NoSpaceLeavesName) {
            return Err(Failure::plain(ENOSPC));
        }
        self.attr(&self.state(), id)
    }
}

/// Half of the units of a file are missing.
fn tear(object: &mut Object) {
    if let Body::File(content) = &mut object.body {
        let size = content.size();
        let mut torn = Content::default();
        torn.truncate(size);
        for unit in content.stored_units().collect::<Vec<_>>() {
            if unit % 2 == 0 {
                torn.write(unit * 4096, &content.read(unit * 4096, 4096));
            }
        }
        *content = torn;
    }
}

impl Subject for Open {
    fn close(self: Box<Self>) -> Outcome<()> {
        if self.has(Defect::LosesXattrAtRemount) {
            let mut state = self.state();
            let model = &mut state.model;
            let found = model.objects().iter().find_map(|(&id, object)| {
                object
                    .xattrs
                    .keys()
                    .next_back()
                    .map(|name| (id, name.clone()))
            });
            if let Some((id, name)) = found {
                answer(model.removexattr(id, &name))?;
                state.dirty = true;
            }
        }
        self.sync()
    }

    fn lookup(&self, dir: Ino, name: &[u8]) -> Outcome<Attr> {
        let state = self.state();
        let id = answer(state.model.lookup(dir.0, name))?;
        self.attr(&state, id)
    }

    fn getattr(&self, ino: Ino) -> Outcome<Attr> {
        self.attr(&self.state(), ino.0)
    }

    fn setattr(&self, ino: Ino, set: &SetAttr) -> Outcome<Attr> {
        let keeps = self.has(Defect::TruncateKeepsTail);
        self.change(|state| {
            let model = &mut state.model;
            if let Some(permissions) = set.mode {
                model.chmod(ino.0, permissions)?;
            }
            if let (Some(uid), Some(gid)) = (set.uid, set.gid) {
                model.chown(ino.0, uid, gid)?;
            }
            if let Some(size) = set.size {
                let old = model.read(ino.0, 0, 1 << 22)?;
                model.truncate(ino.0, size)?;
                if keeps && size > old.len() as u64 && old.len() > 100 {
                    model.write(ino.0, old.len() as u64, &old[..1])?;
                }
            }
            match set.mtime {
                Some(SetTime::At(time)) => model.set_mtime(ino.0, time),
                _ => Ok(()),
            }
        })?;
        self.attr(&self.state(), ino.0)
    }

    fn create(&self, dir: Ino, name: &[u8], new: &NewInode) -> Outcome<Attr> {
        self.make(new, |model, id, new| model.create(dir.0, name, id, new))
    }

    fn mkdir(&self, dir: Ino, name: &[u8], new: &NewInode) -> Outcome<Attr> {
        self.make(new, |model, id, new| model.mkdir(dir.0, name, id, new))
    }

    fn mknod(&self, dir: Ino, name: &[u8], file_type: u32, new: &NewInode) -> Outcome<Attr> {
        self.make(new, |model, id, new| {
            model.mknod(dir.0, name, id, file_type, new)
        })
    }

    fn symlink(&self, dir: Ino, name: &[u8], target: &[u8], new: &NewInode) -> Outcome<Attr> {
        self.make(new, |model, id, new| {
            model.symlink(dir.0, name, id, target, new)
        })
    }

    fn link(&self, ino: Ino, dir: Ino, name: &[u8]) -> Outcome<Attr> {
        self.change(|state| state.model.link(ino.0, dir.0, name))?;
        self.attr(&self.state(), ino.0)
    }

    fn unlink(&self, dir: Ino, name: &[u8]) -> Outcome<()> {
        if self.has(Defect::UnlinkNoSpace) {
            return Err(Failure::plain(ENOSPC));
        }
        self.change(|state| state.model.unlink(dir.0, name))
    }

    fn rmdir(&self, dir: Ino, name: &[u8]) -> Outcome<()> {
        let result = self.change(|state| state.model.rmdir(dir.0, name));
        match result {
            Err(_) if self.has(Defect::WrongErrno) => Err(Failure::plain(EIO)),
            other => other,
        }
    }

    fn rename(
        &self,
        dir: Ino,
        name: &[u8],
        new_dir: Ino,
        new_name: &[u8],
        flags: RenameFlags,
    ) -> Outcome<()> {
        if flags.whiteout.is_some() {
            return Err(Failure::plain(loamfs_testing::errno::EOPNOTSUPP));
        }
        let how = match (flags.no_replace, flags.exchange) {
            (true, _) => Rename::NoReplace,
            (_, true) => Rename::Exchange,
            _ => Rename::Replace,
        };
        let forgets = self.has(Defect::ExchangeForgetsParent) && how == Rename::Exchange;
        self.change(|state| {
            let before = state.model.clone();
            let source = state.model.lookup(dir.0, name);
            state.model.rename(dir.0, name, new_dir.0, new_name, how)?;
            if how == Rename::Replace {
                state.replacing.extend(source.ok());
            }
            state.half = source.ok().map(|id| (dir.0, name.to_vec(), id));
            if forgets && dir != new_dir {
                state.model = before;
            }
            Ok(())
        })
    }

    fn readlink(&self, ino: Ino) -> Outcome<Vec<u8>> {
        answer(self.state().model.readlink(ino.0))
    }

    fn readdir(&self, dir: Ino, position: u64, max: usize) -> Outcome<Vec<DirEntry>> {
        let state = self.state();
        let object = state.model.get(dir.0).ok_or(Failure::plain(EIO))?;
        let Body::Dir { parent, entries } = &object.body else {
            return Err(Failure::plain(loamfs_testing::errno::ENOTDIR));
        };
        let key = |name: &[u8]| (checksum(name) >> 9).max(3);
        let kind = |id: &Id| {
            state
                .model
                .get(*id)
                .map_or(0, |o| (o.file_type >> 12) as u8)
        };
        let directory = (mode::DIRECTORY >> 12) as u8;
        let mut all = vec![
            (1, b".".to_vec(), dir, directory),
            (2, b"..".to_vec(), Ino(*parent), directory),
        ];
        let named = entries.iter();
        all.extend(named.map(|(name, id)| (key(name), name.clone(), Ino(*id), kind(id))));
        all.sort();
        if self.has(Defect::ScanSkipsAfterChange) {
            // Positions are indices, which slide when an entry goes.
            for (at, entry) in all.iter_mut().enumerate() {
                entry.0 = at as u64 + 1;
            }
        }
        let repeats = self.has(Defect::ScanRepeats);
        let rest = all.into_iter().filter(|entry| entry.0 > position);
        Ok(rest
            .take(max)
            .map(|(key, name, ino, file_type)| DirEntry {
                ino,
                file_type,
                next: if repeats && key > 2 && max == 7 {
                    key - 1
                } else {
                    key
                },
                name,
            })
            .collect())
    }

    fn open_file(&self, ino: Ino) -> Outcome<()> {
        answer(self.state().model.open(ino.0))
    }

    fn release_file(&self, ino: Ino) -> Outcome<()> {
        answer(self.state().model.release(ino.0))
    }

    fn read(&self, ino: Ino, offset: u64, len: usize) -> Outcome<Vec<u8>> {
        answer(self.state().model.read(ino.0, offset, len))
    }

    fn write(&self, ino: Ino, offset: u64, data: &[u8]) -> Outcome<usize> {
        self.change(|state| state.model.write(ino.0, offset, data))?;
        Ok(data.len())
    }

    fn punch(&self, ino: Ino, offset: u64, len: u64) -> Outcome<()> {
        self.change(|state| state.model.punch(ino.0, offset, len))
    }

    fn allocate(&self, ino: Ino, offset: u64, len: u64, grow: bool) -> Outcome<()> {
        self.change(|state| state.model.allocate(ino.0, offset, len, grow))
    }

    fn copy_range(&self, from: (Ino, u64), to: (Ino, u64), len: u64) -> Outcome<u64> {
        let (from, to) = ((from.0.0, from.1), (to.0.0, to.1));
        self.change(|state| state.model.copy(from, to, len))
    }

    fn seek_data(&self, ino: Ino, offset: u64) -> Outcome<u64> {
        self.seek_hole(ino, offset).map(|_| offset)
    }

    fn seek_hole(&self, ino: Ino, offset: u64) -> Outcome<u64> {
        let size = self.getattr(ino)?.size;
        let inside = Some(size).filter(|size| offset < *size);
        inside.ok_or(Failure::plain(loamfs_testing::errno::ENXIO))
    }

    fn fsync(&self, ino: Ino, _data_only: bool) -> Outcome<()> {
        let one = Some(ino.0).filter(|_| !self.has(Defect::FsyncForgetsData));
        self.write_out(false, one)?;
        self.flush()
    }

    fn sync(&self) -> Outcome<()> {
        self.write_out(true, None)?;
        self.flush()
    }

    fn statfs(&self) -> StatFs {
        let full = self.has(Defect::NoSpaceLeavesName) || self.has(Defect::UnlinkNoSpace);
        StatFs {
            fragment_size: 1024,
            block_size: 4096,
            total: 1000,
            free: if full { 50 } else { 900 },
            available: if full { 20 } else { 800 },
            inodes: 1,
            inodes_free: 1,
        }
    }

    fn getxattr(&self, ino: Ino, name: &[u8]) -> Outcome<Vec<u8>> {
        Ok(answer(self.state().model.getxattr(ino.0, name))?.to_vec())
    }

    fn setxattr(&self, ino: Ino, name: &[u8], value: &[u8], mode: XattrMode) -> Outcome<()> {
        self.change(|state| state.model.setxattr(ino.0, name, value, mode))
    }

    fn listxattr(&self, ino: Ino) -> Outcome<Vec<Vec<u8>>> {
        answer(self.state().model.listxattr(ino.0))
    }

    fn removexattr(&self, ino: Ino, name: &[u8]) -> Outcome<()> {
        self.change(|state| state.model.removexattr(ino.0, name))
    }

    fn tick(&self, millis: u64) -> Outcome<()> {
        if millis >= 5000 {
            self.write_out(false, None)
        } else {
            Ok(())
        }
    }

    fn commit(&self, how: Commit) -> Outcome<()> {
        self.write_out(false, None)?;
        match how {
            Commit::Written => Ok(()),
            Commit::Durable => self.flush(),
        }
    }

    fn checkpoint(&self) -> Outcome<()> {
        self.write_out(false, None)?;
        self.flush()
    }
}
