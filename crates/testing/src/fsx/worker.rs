//! One process of the test: its files, and what it does to them.

use std::collections::VecDeque;
use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{Advice, FallocateFlags, OFlags, SeekFrom};
use rustix::io::Errno;

use super::mapped::BounceFile;
use super::shadow::{Shadow, Wrong};
use crate::rng::Rng;

/// Largest sizes of a worker's files: inline, in the log, at home, and large enough for overwrites that go home at once.
const SIZES: [u64; 4] = [400, 30_000, 400_000, 5 << 20];
/// Bytes that may be changed between two fsyncs; the shadow keeps them all.
const WAITING_MAX: u64 = 32 << 20;
/// Operations on a file that are remembered for the report of a failure.
const REMEMBERED: usize = 2_000;
/// Of them, those that are printed.
const PRINTED: usize = 30;

/// Why a worker stopped.
#[derive(Debug)]
enum Stop {
    /// The file system does not answer any more; for the conductor to judge.
    Dead(String),
    /// It gave a wrong answer.
    Wrong(String),
}

/// What was done to a file.
#[derive(Clone, Debug)]
enum Op {
    Write(u64, u64),
    WriteDirect(u64, u64),
    Store(u64, u64, bool),
    Append(u64),
    Read(u64, u64),
    ReadDirect(u64, u64),
    Load(u64, u64),
    Resize(u64, u64),
    Allocate(u64, u64, bool),
    Punch(u64, u64),
    Zero(u64, u64, bool),
    /// From, to, bytes, another file.
    Copy(u64, u64, u64, bool),
    Holes(u64),
    Fsync,
    Fdatasync,
    /// Of the whole file system.
    Sync,
    /// The kernel forgets the file's pages; then all of it is read.
    Forget,
    Reopen,
    /// A new file of this size takes its name.
    Replace(u64),
}

impl Op {
    /// Whether it changes the file, or what is promised of it.
    fn changes(&self) -> bool {
        !matches!(
            self,
            Op::Read(..) | Op::ReadDirect(..) | Op::Load(..) | Op::Holes(_) | Op::Forget
        )
    }

    /// Whether it may have to do with the byte at this place.
    fn touches(&self, at: u64) -> bool {
        let within = |from: u64, len: u64| from <= at && at < from + len;
        match self {
            Op::Write(from, len) | Op::WriteDirect(from, len) | Op::Store(from, len, _) => {
                within(*from, *len)
            }
            Op::Allocate(from, len, _) | Op::Punch(from, len) | Op::Zero(from, len, _) => {
                within(*from, *len)
            }
            Op::Copy(_, to, len, _) => within(*to, *len),
            Op::Resize(old, new) => *old.min(new) <= at,
            _ => self.changes(),
        }
    }
}

/// One file, its handles and its shadow.
struct Subject {
    path: PathBuf,
    max: u64,
    file: File,
    direct: File,
    shadow: Shadow,
    done: VecDeque<(u64, Op)>,
}

/// A process's part of the test.
pub struct Worker {
    dir: PathBuf,
    rng: Rng,
    bounce: BounceFile,
    subjects: Vec<Subject>,
    count: u64,
}

/// Carries out the conductor's orders, one a line: `make`, `run COUNT`, `close`, `exact`, `crashed`, `end`. Each gets one
/// line of answer: `ok COUNT`, `dead COUNT: WHY` or `WRONG: WHAT`.
///
/// # Errors
/// If the pipes fail.
pub fn obey(dir: &Path, seed: u64) -> io::Result<()> {
    let mut worker = Worker {
        dir: dir.to_owned(),
        rng: Rng::new(seed),
        bounce: BounceFile::new()?,
        subjects: Vec::new(),
        count: 0,
    };
    for line in io::stdin().lock().lines() {
        let line = line?;
        let before = worker.count;
        let done = match line.split_once(' ') {
            Some(("run", count)) => worker.run(count.parse().unwrap_or(0)),
            _ => match line.as_str() {
                "make" => worker.make(),
                "exact" => worker.verify(Shadow::compare_all),
                "crashed" => worker.verify(Shadow::allows),
                _ => return Ok(()),
            },
        };
        let count = worker.count - before;
        match done {
            Ok(()) => println!("ok {count}"),
            Err(Stop::Dead(why)) => println!("dead {count}: {why}"),
            Err(Stop::Wrong(what)) => println!("WRONG: {}", what.replace('\n', "\t")),
        }
        io::stdout().flush()?;
    }
    Ok(())
}

fn open(path: &Path, direct: bool) -> io::Result<File> {
    let flags = if direct {
        OFlags::DIRECT
    } else {
        OFlags::empty()
    };
    let flags = flags.bits() as i32;
    let mut options = OpenOptions::new();
    options
        .read(true)
        .write(true)
        .custom_flags(flags)
        .open(path)
}

impl Subject {
    fn open(path: PathBuf, max: u64) -> io::Result<Subject> {
        Ok(Subject {
            file: open(&path, false)?,
            direct: open(&path, true)?,
            path,
            max,
            shadow: Shadow::default(),
            done: VecDeque::new(),
        })
    }

    fn reopen(&mut self) -> io::Result<()> {
        self.file = open(&self.path, false)?;
        self.direct = open(&self.path, true)?;
        Ok(())
    }

    fn remember(&mut self, number: u64, op: Op) {
        if self.done.len() == REMEMBERED {
            self.done.pop_front();
        }
        self.done.push_back((number, op));
    }

    /// Puts a wrong byte and what was done to it into words.
    fn wrong(&self, wrong: &Wrong) -> Stop {
        let name = self.path.display();
        let touches = |op: &Op| wrong.at.map_or(op.changes(), |at| op.touches(at));
        let touching = self.done.iter().filter(|(_, op)| touches(op));
        let mut last: Vec<_> = touching.rev().take(PRINTED).collect();
        last.reverse();
        let listed: String = last
            .into_iter()
            .map(|(number, op)| format!("\n  {number}: {op:?}"))
            .collect();
        Stop::Wrong(format!("{name} {wrong}; last done to it:{listed}"))
    }

    fn mistaken(&self, what: impl fmt::Display) -> Stop {
        let what = what.to_string();
        self.wrong(&Wrong { at: None, what })
    }

    /// A range that is mostly short, and now and then ends exactly at the end of something.
    fn range(&self, rng: &mut Rng, limit: u64) -> (u64, u64) {
        let limit = limit.max(1);
        let longest = match rng.below(100) {
            0 => limit,
            1..=9 => limit / 4,
            10..=39 => 20_000,
            _ => 3_000,
        };
        let align = *rng.pick(&[1, 1, 1, 512, 4096, 16_384]).unwrap_or(&1);
        let from = rng.below(limit) / align * align;
        let len = rng.between(1, longest.clamp(1, limit - from));
        let len = if rng.one_in(3) {
            len.next_multiple_of(align)
        } else {
            len
        };
        (from, len.min(limit - from))
    }
}

impl From<Errno> for Stop {
    fn from(errno: Errno) -> Stop {
        Stop::Dead(errno.to_string())
    }
}

impl From<io::Error> for Stop {
    fn from(error: io::Error) -> Stop {
        Stop::Dead(error.to_string())
    }
}

impl Worker {
    /// Makes the files, all of them empty and durable.
    fn make(&mut self) -> Result<(), Stop> {
        fs::create_dir_all(&self.dir)?;
        for (index, max) in SIZES.into_iter().enumerate() {
            let path = self.dir.join(format!("file{index}"));
            File::create_new(&path)?;
            let mut subject = Subject::open(path, max)?;
            subject.shadow.promise();
            self.subjects.push(subject);
        }
        rustix::fs::syncfs(File::open(&self.dir)?)?;
        Ok(())
    }

    /// Looks at what is in all files; then that is what they hold.
    fn verify(&mut self, judge: fn(&Shadow, &[u8]) -> Result<(), Wrong>) -> Result<(), Stop> {
        for subject in &mut self.subjects {
            // A replacement that a crash cut short.
            let _ = fs::remove_file(subject.path.with_extension("new"));
            let content = fs::read(&subject.path)?;
            judge(&subject.shadow, &content).map_err(|wrong| subject.wrong(&wrong))?;
            subject.shadow.adopt(content);
        }
        Ok(())
    }

    /// Does this many operations. Whatever happens, the file system can be unmounted afterwards.
    fn run(&mut self, count: u64) -> Result<(), Stop> {
        for subject in &mut self.subjects {
            subject.reopen()?;
        }
        let done = (0..count).try_for_each(|_| self.step());
        for subject in &mut self.subjects {
            subject.file = File::open("/dev/null")?;
            subject.direct = File::open("/dev/null")?;
        }
        done
    }

    fn step(&mut self) -> Result<(), Stop> {
        self.count += 1;
        let index = self.rng.index(self.subjects.len());
        let op = self.choose(index);
        let subject = &mut self.subjects[index];
        subject.remember(self.count, op.clone());
        let done = self.act(index, &op);
        match done {
            Err(Stop::Dead(why)) => Err(Stop::Dead(format!("{op:?}: {why}"))),
            Err(Stop::Wrong(what)) => Err(Stop::Wrong(format!("{}, {op:?}: {what}", self.count))),
            other => other,
        }
    }

    fn choose(&mut self, index: usize) -> Op {
        let subject = &self.subjects[index];
        let rng = &mut self.rng;
        let (size, max) = (subject.shadow.size(), subject.max);
        if subject.shadow.waiting() > WAITING_MAX {
            return Op::Fsync;
        }
        let anywhere = subject.range(rng, max);
        let inside = subject.range(rng, size);
        let flag = rng.one_in(2);
        match rng.below(1000) {
            0..250 => Op::Write(anywhere.0, anywhere.1),
            250..290 => Op::WriteDirect(anywhere.0, anywhere.1),
            290..330 if size < max => Op::Append(rng.between(1, (max - size).min(5_000))),
            330..430 if size > 0 => Op::Store(inside.0, inside.1, rng.one_in(20)),
            430..600 => Op::Read(anywhere.0, anywhere.1),
            600..650 => Op::ReadDirect(anywhere.0, anywhere.1),
            650..720 if size > 0 => Op::Load(inside.0, inside.1),
            720..770 => Op::Resize(size, resized(rng, size, max)),
            770..800 => Op::Allocate(anywhere.0, anywhere.1, flag),
            800..840 => Op::Punch(anywhere.0, anywhere.1),
            840..870 => Op::Zero(anywhere.0, anywhere.1, flag),
            870..910 if size > 0 => self.choose_copy(index, flag),
            910..930 if size > 0 => Op::Holes(inside.0),
            930..960 => Op::Fsync,
            960..970 => Op::Fdatasync,
            970..972 => Op::Sync,
            972..982 => Op::Forget,
            982..990 => Op::Reopen,
            990..993 => Op::Replace(rng.below(max)),
            _ => Op::Read(anywhere.0, anywhere.1),
        }
    }

    /// A copy to another place of the file that it does not overlap, or to the next file.
    fn choose_copy(&mut self, index: usize, other: bool) -> Op {
        let target = if other {
            (index + 1) % self.subjects.len()
        } else {
            index
        };
        let (from, len) =
            self.subjects[index].range(&mut self.rng, self.subjects[index].shadow.size());
        let limit = self.subjects[target].max;
        let to = self.rng.below(limit);
        let mut len = len.min(limit - to);
        if !other && to < from + len && from < to + len {
            len = to.abs_diff(from);
        }
        Op::Copy(from, to, len, other)
    }

    fn act(&mut self, index: usize, op: &Op) -> Result<(), Stop> {
        match *op {
            Op::Copy(from, to, len, other) => return self.copy(index, from, to, len, other),
            Op::Sync => return self.sync(index),
            _ => {}
        }
        let (rng, bounce, count) = (&mut self.rng, &self.bounce, self.count);
        let subject = &mut self.subjects[index];
        match *op {
            Op::Write(at, len) | Op::WriteDirect(at, len) => {
                let bytes = noise(rng, len);
                subject.shadow.write(at, &bytes);
                let direct = matches!(op, Op::WriteDirect(..));
                let file = if direct {
                    &subject.direct
                } else {
                    &subject.file
                };
                file.write_all_at(&bytes, at)?;
            }
            Op::Append(len) => {
                let bytes = noise(rng, len);
                let end = subject.shadow.size();
                subject.shadow.write(end, &bytes);
                let mut file = OpenOptions::new().append(true).open(&subject.path)?;
                file.write_all(&bytes)?;
            }
            Op::Store(at, len, sync) => {
                let bytes = noise(rng, len);
                subject.shadow.write(at, &bytes);
                bounce.store(&subject.file, at, &bytes, sync)?;
            }
            Op::Read(at, len) => subject.read(&subject.file, at, len)?,
            Op::ReadDirect(at, len) => subject.read(&subject.direct, at, len)?,
            Op::Load(at, len) => {
                let mut bytes = vec![0; len as usize];
                bounce.load(&subject.file, at, &mut bytes)?;
                subject.compare(at, &bytes)?;
            }
            Op::Resize(_, size) => {
                subject.shadow.resize(size);
                subject.file.set_len(size)?;
            }
            Op::Allocate(at, len, keep) => subject.allocate(at, len, keep)?,
            Op::Punch(at, len) => subject.punch(at, len)?,
            Op::Zero(at, len, keep) => subject.zero(at, len, keep)?,
            Op::Holes(at) => subject.holes(at)?,
            Op::Fsync => {
                subject.file.sync_all()?;
                subject.shadow.promise();
            }
            Op::Fdatasync => {
                subject.file.sync_data()?;
                subject.shadow.promise();
            }
            Op::Forget => subject.forget()?,
            Op::Reopen => subject.reopen()?,
            Op::Replace(size) => {
                let bytes = noise(rng, size);
                subject.replace(&bytes)?;
            }
            Op::Copy(..) | Op::Sync => {}
        }
        if count.is_multiple_of(16) {
            subject.measure()?;
        }
        Ok(())
    }

    fn copy(
        &mut self,
        index: usize,
        from: u64,
        to: u64,
        len: u64,
        other: bool,
    ) -> Result<(), Stop> {
        let target = if other {
            (index + 1) % self.subjects.len()
        } else {
            index
        };
        let source = &self.subjects[index];
        let bytes = source.shadow.part(from, from + len).to_vec();
        let source = source.file.try_clone()?;
        let target = &mut self.subjects[target];
        if other {
            target.remember(self.count, Op::Copy(from, to, len, true));
        }
        target.shadow.write(to, &bytes);
        let (mut left, mut off_in, mut off_out) = (bytes.len(), from, to);
        while left > 0 {
            let (off_in, off_out) = (Some(&mut off_in), Some(&mut off_out));
            match rustix::fs::copy_file_range(&source, off_in, &target.file, off_out, left)? {
                0 => return Err(target.mistaken("copy_file_range copied nothing")),
                copied => left -= copied.min(left),
            }
        }
        Ok(())
    }

    fn sync(&mut self, index: usize) -> Result<(), Stop> {
        rustix::fs::syncfs(&self.subjects[index].file)?;
        for subject in &mut self.subjects {
            subject.shadow.promise();
            subject.remember(self.count, Op::Sync);
        }
        Ok(())
    }
}

impl Subject {
    fn compare(&self, at: u64, bytes: &[u8]) -> Result<(), Stop> {
        self.shadow.compare(at, bytes).map_err(|mut wrong| {
            wrong.what += self.again(at, bytes.len());
            self.wrong(&wrong)
        })
    }

    /// Whether what was read wrong is right past the kernel's pages.
    fn again(&self, at: u64, len: usize) -> &'static str {
        let mut bytes = vec![0; len];
        match self.direct.read_at(&mut bytes, at) {
            Ok(read) if read == len && self.shadow.compare(at, &bytes).is_ok() => {
                "; right past the page cache"
            }
            Ok(_) => "; wrong past the page cache too",
            Err(_) => "; not to be read past the page cache",
        }
    }

    /// Reads up to `len` bytes, as many as there are, and compares them.
    fn read(&self, file: &File, at: u64, len: u64) -> Result<(), Stop> {
        let mut bytes = vec![0; len as usize];
        let mut filled = 0;
        while filled < bytes.len() {
            match file.read_at(&mut bytes[filled..], at + filled as u64)? {
                0 => break,
                read => filled += read,
            }
        }
        self.compare(at, &bytes[..filled])?;
        let wanted = self.shadow.part(at, at + len).len();
        if filled < wanted {
            let what = format!("{filled} bytes read at {at} instead of {wanted}");
            return Err(self.mistaken(what));
        }
        Ok(())
    }

    fn measure(&self) -> Result<(), Stop> {
        let size = self.file.metadata()?.len();
        if size == self.shadow.size() {
            Ok(())
        } else {
            let wanted = self.shadow.size();
            Err(self.mistaken(format!("size {size} instead of {wanted}")))
        }
    }

    fn allocate(&mut self, at: u64, len: u64, keep: bool) -> Result<(), Stop> {
        let mut flags = FallocateFlags::empty();
        flags.set(FallocateFlags::KEEP_SIZE, keep);
        if !keep && at + len > self.shadow.size() {
            self.shadow.resize(at + len);
        }
        rustix::fs::fallocate(&self.file, flags, at, len)?;
        Ok(())
    }

    fn zero(&mut self, at: u64, len: u64, keep: bool) -> Result<(), Stop> {
        let mut flags = FallocateFlags::ZERO_RANGE;
        flags.set(FallocateFlags::KEEP_SIZE, keep);
        self.shadow.zero(at, at + len);
        if !keep && at + len > self.shadow.size() {
            self.shadow.resize(at + len);
        }
        rustix::fs::fallocate(&self.file, flags, at, len)?;
        Ok(())
    }

    /// Makes a hole.
    fn punch(&mut self, at: u64, len: u64) -> Result<(), Stop> {
        self.shadow.zero(at, at + len);
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        Ok(rustix::fs::fallocate(&self.file, flags, at, len)?)
    }

    /// Reads all of it, not from the kernel's memory.
    fn forget(&mut self) -> Result<(), Stop> {
        // Pages that wait are not forgotten; the first call writes them.
        for _ in 0..2 {
            rustix::fs::fadvise(&self.file, 0, None, Advice::DontNeed)?;
        }
        self.read(&self.file, 0, self.max + 1)
    }

    /// What is called a hole must hold zeros only, and there is one behind the last byte at the latest.
    fn holes(&self, at: u64) -> Result<(), Stop> {
        let size = self.shadow.size();
        let hole = rustix::fs::seek(&self.file, SeekFrom::Hole(at))?;
        if hole < at || hole > size {
            return Err(self.mistaken(format!("a hole at {hole}, sought from {at}")));
        }
        let data = match rustix::fs::seek(&self.file, SeekFrom::Data(hole)) {
            Err(Errno::NXIO) => size,
            other => other?,
        };
        let inside = self.shadow.part(hole, data);
        if let Some(place) = inside.iter().position(|&byte| byte != 0) {
            return Err(self.wrong(&Wrong {
                at: Some(hole + place as u64),
                what: format!("data in a hole from {hole} to {data}"),
            }));
        }
        Ok(())
    }

    /// A new file with other content takes the file's name, as editors do it, without an fsync: a crash leaves the one
    /// or the other.
    fn replace(&mut self, bytes: &[u8]) -> Result<(), Stop> {
        let new = self.path.with_extension("new");
        fs::write(&new, bytes)?;
        self.shadow.replace(bytes);
        fs::rename(&new, &self.path)?;
        self.reopen()?;
        Ok(())
    }
}

/// A new size: anything, a little more or less, or nothing.
fn resized(rng: &mut Rng, size: u64, max: u64) -> u64 {
    match rng.below(20) {
        0 => 0,
        1..=9 => rng.below(max),
        10..=14 => (size + rng.below(5_000)).min(max),
        _ => size.saturating_sub(rng.below(5_000)),
    }
}

fn noise(rng: &mut Rng, len: u64) -> Vec<u8> {
    let mut bytes = vec![0; len as usize];
    for word in bytes.chunks_mut(8) {
        word.copy_from_slice(&rng.next_u64().to_le_bytes()[..word.len()]);
    }
    bytes
}
