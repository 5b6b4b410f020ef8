//! Takes a trace of a block device by the kernel's block tracepoints, in a tracing instance of its own, so that
//! nobody else's tracing is disturbed. Needs root.

mod decode;
pub mod fuse;
mod stat;
mod tracefs;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

use rustix::fs::{major, minor};

use crate::Error;
use crate::trace::{Op, Trace};
use stat::Stat;
use tracefs::Instance;

/// Events that are being read, by a thread of their own.
struct Recording {
    instance: Arc<Instance>,
    reader: JoinHandle<Result<Vec<u8>, Error>>,
    done: Arc<AtomicBool>,
}

impl Recording {
    fn start(instance: Instance) -> Result<Recording, Error> {
        let instance = Arc::new(instance);
        let done = Arc::new(AtomicBool::new(false));
        let reader = {
            let (instance, done) = (Arc::clone(&instance), Arc::clone(&done));
            thread::spawn(move || instance.read_all(&done))
        };
        instance.switch(true)?;
        Ok(Recording {
            instance,
            reader,
            done,
        })
    }

    fn switch_off(&self) -> Result<(), Error> {
        self.instance.switch(false)
    }

    /// All events as text; it was switched off.
    fn text(self) -> Result<String, Error> {
        self.done.store(true, Ordering::Release);
        let bytes = self.reader.join();
        let bytes = bytes.map_err(|_| Error::Trace("its reader ended early".into()))??;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }
}

/// A trace that is being taken.
pub struct Capture {
    recording: Recording,
    device: (u32, u32),
    before: Stat,
}

impl Capture {
    /// Starts; requests that are issued from now on are in the trace.
    ///
    /// # Errors
    /// Without tracefs, root, or such a block device.
    pub fn start(device: &Path) -> Result<Capture, Error> {
        let number = rustix::fs::stat(device)
            .map_err(|errno| Error::at("looking at", device)(errno.into()))?
            .st_rdev;
        let device = (major(number), minor(number));
        let instance = Instance::new("block/block_rq_issue", "dev", device)?;
        let before = Stat::at_rest(device)?;
        Ok(Capture {
            recording: Recording::start(instance)?,
            device,
            before,
        })
    }

    /// Stops, and compares the trace with the device's own counters. What is under way to the device is waited for; nothing
    /// new may begin.
    ///
    /// # Errors
    /// [`Error::Trace`] if events were lost or the counters say something else.
    pub fn stop(self) -> Result<Trace, Error> {
        self.recording.switch_off()?;
        let counted = Stat::at_rest(self.device)?.since(&self.before);
        let size = stat::size(self.device)?;
        let mut trace = decode::trace(&self.recording.text()?, self.device)?;
        // Processors' buffers are read one after the other.
        trace.requests.sort_by_key(|request| request.micros);
        agree(&trace, &counted)?;
        Ok(Trace {
            size: Some(size),
            ..trace
        })
    }
}

/// Compares a trace with the counters; flushes apart, which kernels count in different ways.
fn agree(trace: &Trace, counted: &Stat) -> Result<(), Error> {
    let (read, written) = (trace.sum(Op::Read), trace.sum(Op::Write));
    let given_up = trace.sum(Op::Discard);
    let flushes = trace.sum(Op::Flush).requests;
    let same = (read.requests, read.bytes, written.bytes)
        == (counted.reads, counted.read_bytes, counted.write_bytes)
        && (given_up.requests, given_up.bytes) == (counted.discards, counted.discard_bytes)
        && (written.requests..=written.requests + flushes).contains(&counted.writes);
    if same {
        return Ok(());
    }
    Err(Error::Trace(format!(
        "it has {read:?} read, {written:?} written, {given_up:?} discarded and {flushes} flushes, the device counted {counted:?}"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::Request;

    fn trace() -> Trace {
        let request = |op, sectors| Request {
            micros: 0,
            op,
            marks: String::new(),
            sector: 0,
            sectors,
        };
        Trace {
            requests: vec![request(Op::Write, 8), request(Op::Flush, 0)],
            ..Trace::default()
        }
    }

    #[test]
    fn counters_may_count_a_flush_as_a_write_or_not() {
        let counted = |writes| Stat {
            writes,
            write_bytes: 4096,
            ..Stat::default()
        };
        assert!(agree(&trace(), &counted(1)).is_ok());
        assert!(agree(&trace(), &counted(2)).is_ok());
        assert!(agree(&trace(), &counted(3)).is_err());
    }

    #[test]
    fn what_the_trace_misses_is_an_error() {
        let counted = Stat {
            writes: 1,
            write_bytes: 8192,
            ..Stat::default()
        };
        assert!(agree(&trace(), &counted).is_err());
    }
}
