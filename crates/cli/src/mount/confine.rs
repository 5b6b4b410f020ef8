//! What a daemon gives up: it reads what somebody hostile may have written to a volume, and should that ever make it do
//! what it was not written for, little shall be in its reach. `SECURITY.md` says against whom.
//!
//! Capabilities, and which files can be opened, are a thread's own. So they go before the volume is looked at, while there
//! is one thread; another one, which ends when that is done, mounts. System calls are left for last, for all threads at
//! once. What takes privileges later is done by another process ([`super::unmounter`]).

mod calls;
mod files;

use std::fs;
use std::path::PathBuf;

use rustix::process::{DumpableBehavior, geteuid, set_dumpable_behavior};
use rustix::thread::{
    CapabilitySet, CapabilitySets, clear_ambient_capability_set,
    remove_capability_from_bounding_set, set_capabilities, set_no_new_privs,
};
use serde_json::{Value, json};

use super::options::DaemonOptions;

/// Where the kernel keeps how likely it ends this process when memory is short, and what a daemon of root's asks for: to
/// be among the last, since all who use the volume depend on it.
const OOM: &str = "/proc/self/oom_score_adj";
const OOM_SCORE: i32 = -900;

/// A daemon that is confined, or is not to be.
pub struct Confinement {
    is_wanted: bool,
    /// Below which directories files can be written.
    writable: Option<Vec<PathBuf>>,
}

impl Confinement {
    /// Gives up what reading a volume does not take. To be called by the only thread.
    pub fn before_reading(options: &DaemonOptions) -> Self {
        spare_from_oom();
        if options.unconfined {
            return Self {
                is_wanted: false,
                writable: None,
            };
        }
        note("core dumps and tracing", keep_memory_to_itself());
        note("new privileges", set_no_new_privs(true));
        note("capabilities", drop_capabilities());
        let writable = files::restrict(options);
        if let Err(error) = &writable {
            warn("files", error);
        }
        Self {
            is_wanted: true,
            writable: writable.ok(),
        }
    }

    /// Gives up what serving a mount does not take, for all threads, those to come too.
    pub fn before_serving(&self, has_rings: bool) {
        if self.is_wanted
            && let Err(error) = calls::restrict(has_rings)
        {
            warn("system calls", &error);
        }
    }

    /// What is in force, as the kernel tells it.
    pub fn to_json(&self) -> Value {
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            line.map(str::trim)
        };
        let score = fs::read_to_string(OOM).unwrap_or_default();
        json!({
            "wanted": self.is_wanted,
            "capabilities": field("CapEff:"),
            "no_new_privileges": field("NoNewPrivs:") == Some("1"),
            "system_calls_filtered": field("Seccomp:") == Some("2"),
            "files_written_below": self.writable,
            "oom_score_adj": score.trim().parse::<i32>().ok(),
        })
    }
}

/// Has the kernel spare this process when memory is short. Only root may ask for less than there is.
pub fn spare_from_oom() {
    let now = fs::read_to_string(OOM).ok();
    let now = now.and_then(|text| text.trim().parse::<i32>().ok());
    if geteuid().is_root() && now.is_some_and(|now| now > OOM_SCORE) {
        let _ = fs::write(OOM, OOM_SCORE.to_string());
    }
}

/// Memory holds what others wrote. Who is not root owns the process, and may look into it.
fn keep_memory_to_itself() -> rustix::io::Result<()> {
    match geteuid().is_root() {
        true => set_dumpable_behavior(DumpableBehavior::NotDumpable),
        false => Ok(()),
    }
}

/// Takes all from the calling thread, and from those that it starts.
fn drop_capabilities() -> rustix::io::Result<()> {
    clear_ambient_capability_set()?;
    for capability in CapabilitySet::all() {
        // Without privileges it is refused, and of no use: there is nothing to bound.
        let _ = remove_capability_from_bounding_set(capability);
    }
    let none = CapabilitySet::empty();
    let sets = CapabilitySets {
        effective: none,
        permitted: none,
        inheritable: none,
    };
    set_capabilities(None, sets)
}

fn note(what: &str, given_up: rustix::io::Result<()>) {
    if let Err(errno) = given_up {
        warn(what, &errno);
    }
}

/// An old kernel is no reason not to mount.
fn warn(what: &str, error: &dyn std::fmt::Display) {
    tracing::warn!("the daemon could not give up {what}: {error}");
}
