//! The thread that scrubs a mounted volume, while somebody wants it to.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use loamfs_fs::{Damaged, Error, Ino, ScrubMark, Scrubbed, Volume};
use serde_json::{Value, json};

use crate::text::shown_path;

/// How often it is brought to the device how far the scrub is, while nothing else brings it there.
const KEEP: Duration = Duration::from_secs(600);
/// Damaged places that are remembered; all are logged.
const NAMED_MAX: usize = 1_000;

/// How a scrub is to go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pace {
    /// Bytes a second at most; without it a step is followed by a rest as long as the step.
    pub rate: Option<u64>,
    /// Whether one that is under way begins again.
    pub anew: bool,
}

/// Scrubs a volume, step by step. It does not keep the volume alive.
#[derive(Clone)]
pub struct Scrubber {
    volume: Weak<Volume>,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    run: Mutex<Run>,
    changed: Condvar,
    thread: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Default)]
struct Run {
    /// Whether the thread goes on.
    going: bool,
    rate: Option<u64>,
    /// Bytes that were verified since the mount.
    verified: u64,
    /// What was found since the mount.
    found: Vec<Found>,
    /// Why the thread ended by itself before the end of the volume.
    failed: Option<String>,
}

/// What is wrong somewhere.
struct Found {
    path: Option<String>,
    ino: Option<Ino>,
    fragment: Option<u64>,
    healed: bool,
    words: String,
}

impl Scrubber {
    /// One that waits to be started.
    pub fn new(volume: Weak<Volume>) -> Self {
        Self {
            volume,
            shared: Arc::default(),
        }
    }

    /// Starts a scrub, goes on with one, or sets another pace.
    ///
    /// # Errors
    ///
    /// If the system gives no thread, or the volume is gone.
    pub fn start(&self, pace: Pace) -> Result<(), String> {
        let volume = self.volume.upgrade().ok_or("the volume is being closed")?;
        let mut thread = self.thread();
        {
            let mut run = self.shared.run();
            run.rate = pace.rate;
            if pace.anew || volume.scrub().mark().next.0 == 0 {
                run.found.clear();
                run.verified = 0;
            }
            run.failed = None;
            volume.scrub().begin(pace.anew);
            if run.going {
                return Ok(());
            }
            run.going = true;
        }
        join(thread.take());
        let inner = self.clone();
        let spawned = thread::Builder::new()
            .name("scrub".into())
            .spawn(move || inner.go());
        match spawned {
            Ok(started) => {
                *thread = Some(started);
                Ok(())
            }
            Err(error) => {
                self.shared.run().going = false;
                Err(format!("no thread can be started: {error}"))
            }
        }
    }

    /// Stops it where it is; it goes on from there when it is started again, also after another mount.
    ///
    /// # Errors
    ///
    /// That it cannot be brought to the device how far it is.
    pub fn stop(&self) -> Result<(), String> {
        let was_going = self.end();
        match self.volume.upgrade() {
            Some(volume) if was_going => keep(&volume).map_err(|error| error.to_string()),
            _ => Ok(()),
        }
    }

    /// Ends the thread, and waits for the step that it is in. Returns whether it was going.
    pub fn end(&self) -> bool {
        let was_going = std::mem::take(&mut self.shared.run().going);
        self.shared.changed.notify_one();
        join(self.thread().take());
        was_going
    }

    /// How far it is, and what it found, as JSON.
    pub fn to_json(&self, volume: &Volume) -> Value {
        let mut value = mark_json(volume);
        let run = self.shared.run();
        value["running"] = json!(run.going);
        value["rate"] = json!(run.rate);
        value["verified_bytes"] = json!(run.verified);
        value["failed"] = json!(run.failed);
        value["found"] = run.found.iter().map(Found::to_json).collect();
        value
    }

    /// What it found and could not write anew, as [`to_json`](Self::to_json) has it.
    pub fn damaged_files(&self) -> Vec<Value> {
        let run = self.shared.run();
        let damaged = run.found.iter().filter(|found| !found.healed);
        damaged.map(Found::to_json).collect()
    }

    fn thread(&self) -> MutexGuard<'_, Option<JoinHandle<()>>> {
        let thread = self.shared.thread.lock();
        thread.unwrap_or_else(PoisonError::into_inner)
    }

    /// Goes from step to step until it is told to stop, or is at the end.
    fn go(&self) {
        let mut kept = Instant::now();
        loop {
            let began = Instant::now();
            let Some(volume) = self.volume.upgrade() else {
                return;
            };
            let ended = match volume.scrub().step() {
                Ok(done) => self.note(&volume, done, began),
                Err(error) => {
                    tracing::error!("the scrub cannot go on: {error}");
                    self.shared.run().failed = Some(error.to_string());
                    None
                }
            };
            if ended.is_none() || kept.elapsed() >= KEEP {
                // Errors show where the volume is written to: here nothing waits for it.
                let _ = keep(&volume);
                kept = Instant::now();
            }
            let Some(rest) = ended else {
                match self.goes_on(&volume) {
                    true => continue,
                    false => return,
                }
            };
            drop(volume);
            let run = self.shared.run();
            let waited = self
                .shared
                .changed
                .wait_timeout_while(run, rest, |run| run.going);
            let (run, _) = waited.unwrap_or_else(PoisonError::into_inner);
            if !run.going {
                return;
            }
        }
    }

    /// Whether somebody has started a scrub while the last one ended. Who does so later starts a thread.
    fn goes_on(&self, volume: &Volume) -> bool {
        let mut run = self.shared.run();
        let is_under_way = volume.scrub().mark().next.0 != 0;
        run.going &= is_under_way && run.failed.is_none();
        run.going
    }

    /// Takes note of a step. Returns how long to rest before the next one; `None` at the end.
    fn note(&self, volume: &Volume, done: Scrubbed, began: Instant) -> Option<Duration> {
        let untold = done
            .untold
            .iter()
            .map(|(ino, error)| Found::untold(*ino, error));
        let damaged = done
            .damaged
            .iter()
            .map(|damaged| Found::of(volume, damaged));
        let found: Vec<Found> = damaged.chain(untold).collect();
        for found in &found {
            match found.healed {
                true => tracing::warn!("scrub: {}", found.sentence()),
                false => tracing::error!("scrub: {}", found.sentence()),
            }
        }
        let mut run = self.shared.run();
        run.verified += done.bytes;
        for found in found {
            let is_known = run.found.iter().any(|known| known.same_as(&found));
            if !is_known && run.found.len() < NAMED_MAX {
                run.found.push(found);
            }
        }
        let took = began.elapsed();
        let rest = match run.rate {
            Some(rate) => {
                let due = Duration::from_secs_f64(done.bytes as f64 / rate.max(1) as f64);
                due.saturating_sub(took)
            }
            None => took,
        };
        (!done.ended).then_some(rest)
    }
}

impl Shared {
    fn run(&self) -> MutexGuard<'_, Run> {
        self.run.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Brings to the device how far the scrub is; a volume for reading only keeps it in memory.
fn keep(volume: &Volume) -> Result<(), Error> {
    match volume.scrub().keep() {
        Err(Error::ReadOnly) => Ok(()),
        kept => kept,
    }
}

fn join(thread: Option<JoinHandle<()>>) {
    if thread.is_some_and(|thread| thread.join().is_err()) {
        tracing::error!("the scrub panicked");
    }
}

/// How far the scrub of a volume is, or what the last one found, as JSON.
pub fn mark_json(volume: &Volume) -> Value {
    let ScrubMark {
        next,
        since,
        until,
        damaged,
        healed,
    } = volume.scrub().mark();
    let (passed, all) = volume.scrub().progress();
    let under_way = next.0 != 0;
    json!({
        "under_way": under_way,
        "passed_bytes": under_way.then_some(passed),
        "volume_bytes": all,
        "began": (since != 0).then_some(since),
        "ended": (until != 0).then_some(until),
        "damaged": damaged,
        "healed": healed,
    })
}

impl Found {
    fn of(volume: &Volume, damaged: &Damaged) -> Self {
        let path = damaged.ino.and_then(|ino| volume.path_of(ino).ok()?);
        Self {
            path: path.map(|path| shown_path(Path::new(OsStr::from_bytes(&path)))),
            ino: damaged.ino,
            fragment: Some(damaged.addr.0),
            healed: damaged.healed,
            words: damaged.error.to_string(),
        }
    }

    /// Of an inode whose blocks cannot be told.
    fn untold(ino: Ino, error: &Error) -> Self {
        Self {
            path: None,
            ino: Some(ino).filter(|ino| ino.get() != 0),
            fragment: None,
            healed: false,
            words: format!("not verified: {error}"),
        }
    }

    fn same_as(&self, other: &Self) -> bool {
        (self.ino, self.fragment, &self.words) == (other.ino, other.fragment, &other.words)
    }

    fn sentence(&self) -> String {
        let whose = match (&self.path, self.ino) {
            (Some(path), _) => format!("{path}: "),
            (None, Some(ino)) => format!("inode {}: ", ino.get()),
            (None, None) => String::new(),
        };
        let healed = if self.healed { "; written anew" } else { "" };
        format!("{whose}{}{healed}", self.words)
    }

    fn to_json(&self) -> Value {
        json!({
            "path": self.path,
            "inode": self.ino.map(Ino::get),
            "fragment": self.fragment,
            "healed": self.healed,
            "reason": self.words,
            "sentence": self.sentence(),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::mpsc::{self, Receiver, Sender};

    use loamfs_device::{Device, Issued, MemoryDevice, ObservedDevice, Observer, Op};
    use loamfs_fs::{Env, MkfsOptions, OpenOptions};

    use super::*;

    /// Long enough for whatever does not hang.
    const PATIENCE: Duration = Duration::from_secs(10);

    /// Keeps the next write waiting, once it is closed.
    struct Gate {
        is_closed: AtomicBool,
        reached: Sender<()>,
        opens: Mutex<Receiver<()>>,
    }

    impl Observer for Gate {
        fn issued(&self, request: Issued) {
            if request.op == Op::Write && self.is_closed.swap(false, Ordering::SeqCst) {
                self.reached.send(()).unwrap();
                let opens = self.opens.lock().unwrap();
                opens.recv_timeout(PATIENCE).unwrap();
            }
        }
    }

    #[test]
    fn a_scrub_that_is_started_while_the_last_one_ends_is_carried_out() {
        let ((reached, is_reached), (open, opens)) = (mpsc::channel(), mpsc::channel());
        let gate = Arc::new(Gate {
            is_closed: AtomicBool::new(false),
            reached,
            opens: Mutex::new(opens),
        });
        let memory = MemoryDevice::new(16 << 20);
        let device: Arc<dyn Device> = Arc::new(ObservedDevice::new(memory, Arc::clone(&gate)));
        loamfs_fs::mkfs(&device, &MkfsOptions::default(), &Env::system()).unwrap();
        let volume = Volume::open(device, &OpenOptions::default(), Env::system()).unwrap();
        let volume = Arc::new(volume);
        let scrubber = Scrubber::new(Arc::downgrade(&volume));
        gate.is_closed.store(true, Ordering::SeqCst);
        scrubber.start(Pace::default()).unwrap();
        is_reached.recv_timeout(PATIENCE).unwrap();
        scrubber.start(Pace::default()).unwrap();
        open.send(()).unwrap();
        let began = Instant::now();
        while scrubber.to_json(&volume)["running"] == true && began.elapsed() < PATIENCE {
            thread::sleep(Duration::from_millis(1));
        }
        let told = scrubber.to_json(&volume);
        assert_eq!(told["running"], false);
        assert_eq!(told["under_way"], false);
        assert_ne!(told["verified_bytes"], 0);
        scrubber.end();
    }
}
