//! The thread that empties devices which are to leave a mounted volume. When nothing is left there, its daemon makes way for one
//! that takes them out ([`super::change`]). What ends before that is gone on with by the next daemon, and the next mount.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use loamfs_format::superblock::DeviceState;
use loamfs_fs::Volume;

use super::change::Change;
use super::succession::{MakeWay, Succession};

/// How far a removal is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Emptied {
    /// It goes on.
    pub going: bool,
    /// Bytes that are left, and that there were when this daemon began.
    pub left: u64,
    /// See `left`.
    pub most: u64,
    /// Why it does not.
    pub failed: Option<String>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<Emptied>,
    changed: Condvar,
    thread: Mutex<Option<JoinHandle<()>>>,
    make_way: OnceLock<MakeWay>,
}

/// What empties devices; all clones are the same.
#[derive(Clone)]
pub struct Emptier {
    volume: Weak<Volume>,
    may_write: bool,
    /// The number of the device that the mount names, which cannot leave it.
    named: Option<u32>,
    shared: Arc<Shared>,
}

impl Emptier {
    /// One that waits to be started.
    pub fn new(volume: Weak<Volume>, may_write: bool, named: Option<u32>) -> Self {
        Self {
            volume,
            may_write,
            named,
            shared: Arc::default(),
        }
    }

    /// By this the daemon ends, so that another one takes out what is empty.
    pub fn ends_by(&self, make_way: MakeWay) {
        // There is one way.
        let _ = self.shared.make_way.set(make_way);
    }

    /// Whether a device cannot leave the mount, and why.
    pub fn refuses(&self, device: u32) -> Option<String> {
        (self.named == Some(device)).then(|| {
            format!("the mount names device {device}; unmount, and mount the volume by another one")
        })
    }

    /// Empties those that leave, if there are any and it does not already.
    pub fn start(&self) {
        let Some(volume) = self.volume.upgrade().filter(|_| self.may_write) else {
            return;
        };
        let entries = volume.info().members.into_iter().map(|member| member.entry);
        let leaving = entries.filter(|entry| entry.state == DeviceState::Leaving);
        let leaving: Vec<u32> = leaving.map(|entry| entry.device).collect();
        if leaving.is_empty() || self.state().going {
            return;
        }
        if let Some(why) = leaving.iter().find_map(|device| self.refuses(*device)) {
            self.state().failed = Some(why);
            return;
        }
        join(self.thread().take());
        *self.state() = Emptied {
            going: true,
            ..Emptied::default()
        };
        let inner = self.clone();
        let spawned = thread::Builder::new()
            .name("emptier".into())
            .spawn(move || inner.go());
        match spawned {
            Ok(started) => *self.thread() = Some(started),
            Err(error) => self.ended(Some(format!("no thread can be started: {error}"))),
        }
    }

    /// Ends the thread, and waits for the step that it is in.
    pub fn end(&self) {
        let mut state = self.state();
        state.going = false;
        let thread = self.thread().take();
        drop(state);
        join(thread);
    }

    /// Waits a while for news, and tells how far it is.
    pub fn progress(&self, patience: Duration) -> Emptied {
        let changed = self.shared.changed.wait_timeout(self.state(), patience);
        let (state, _) = changed.unwrap_or_else(PoisonError::into_inner);
        state.clone()
    }

    fn go(&self) {
        let Some(volume) = self.volume.upgrade() else {
            return;
        };
        let emptied = volume.upkeep().evacuate(|left| {
            let mut state = self.state();
            state.left = left;
            state.most = state.most.max(left);
            self.shared.changed.notify_all();
            state.going
        });
        let why = match emptied {
            Ok(true) if self.goes_alone() => self.make_way(&volume).err(),
            Ok(_) => None,
            Err(error) => Some(error.to_string()),
        };
        if let Some(why) = &why {
            tracing::error!("a device cannot leave yet: {why}");
        }
        self.ended(why);
    }

    /// Whether it still is to go on. Nobody waits for this thread from then on: it waits for all others.
    fn goes_alone(&self) -> bool {
        let state = self.state();
        if state.going {
            drop(self.thread().take());
        }
        state.going
    }

    fn make_way(&self, volume: &Volume) -> Result<(), String> {
        let make_way = self.shared.make_way.get();
        let make_way = make_way.ok_or("the mount does not serve yet")?;
        make_way(volume, Succession::Change(Change::Remove, Vec::new()))
    }

    fn ended(&self, why: Option<String>) {
        let mut state = self.state();
        state.going = false;
        state.failed = why;
        self.shared.changed.notify_all();
    }

    fn state(&self) -> MutexGuard<'_, Emptied> {
        let state = self.shared.state.lock();
        state.unwrap_or_else(PoisonError::into_inner)
    }

    fn thread(&self) -> MutexGuard<'_, Option<JoinHandle<()>>> {
        let thread = self.shared.thread.lock();
        thread.unwrap_or_else(PoisonError::into_inner)
    }
}

fn join(thread: Option<JoinHandle<()>>) {
    // One that panicked has said so.
    let _ = thread.map(JoinHandle::join);
}
