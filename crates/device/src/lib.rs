//! Block devices under a LoamFS volume.
//!
//! Everything above sees one trait, [`Device`]: batches of reads and writes,
//! a flush, an advisory discard, and counters by kind of request. Below it:
//!
//! - [`FileDevice`]: an image file or a block device,
//! - [`MemoryDevice`]: a sparse [`Image`] in memory that is cheap to copy,
//! - [`RecordingDevice`]: keeps every write and flush, for crash exploration,
//! - [`TracingDevice`]: keeps every request as it goes down, by an
//!   [`ObservedDevice`] that tells an [`Observer`] of each,
//! - [`FaultyDevice`]: fails, tears, misdirects or corrupts on a fixed plan,
//! - [`JoinedDevice`]: several devices as one.
//!
//! Beside it, [`LoopDevice`]: an image file as a block device of the kernel's.
//!
//! What a device promises is little. A write that completed may sit in a
//! volatile cache until a flush that was issued afterwards has returned. Writes
//! of one batch land in any order. Of a write that was under way in a crash any
//! subset of its sectors may have landed.

// How many lines: `clippy.toml`.
#![deny(clippy::too_many_lines)]
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

mod batch;
mod buffer;
mod counters;
mod device;
mod error;
mod faulty;
mod file;
mod image;
mod joined;
mod loopdev;
mod memory;
mod observe;
mod pool;
mod record;
mod request;
mod sys;
mod trace;
mod transfer;

pub use buffer::Buffer;
pub use counters::{AtomicCounters, Counters, KindCounters};
pub use device::{Device, read_exact, read_readable, write_all};
pub use error::{DeviceError, Op};
pub use faulty::{Effect, FaultyDevice, Request, Rule};
pub use file::{FileDevice, FileOptions, Lock, Mode};
pub use image::Image;
pub use joined::{Copied, JoinedDevice, Member, sides};
pub use loopdev::{
    LoopDevice, LoopError, LoopOptions, backing_file, find_loops, image_behind, is_autoclear,
    measure_again, whole_image,
};
pub use memory::MemoryDevice;
pub use observe::{Issued, ObservedDevice, Observer};
pub use record::{Event, RecordingDevice};
pub use request::{IoKind, Read, Write};
pub use trace::{Tracer, TracingDevice};

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks a mutex whose holder may have panicked. What the mutexes of this crate
/// guard is valid after every single step, so a poisoned one is still usable.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
