//! Reading blocks for operations that were sent back: one batch, neighbours together, with read-around in the log
//! (DESIGN.md section 8).

use crate::blocks::{Fetch, What};
use crate::error::{Corrupt, Error};
use loamfs_device::{Device, DeviceError, IoKind, Read};
use loamfs_format::Geometry;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Bytes read around a block of the log: a small part of what a seek costs on a rotating disk.
const WINDOW: u64 = 256 << 10;
/// Homed units this close together are read with one request.
const GAP: u64 = 64 << 10;
/// Most bytes of one request.
const REQUEST_MAX: u64 = 1 << 20;

/// A window's worth of the device, as it was read a while ago.
struct Window {
    bytes: Box<[u8]>,
    /// When it was last used, in look-ups.
    used: u64,
}

/// Windows by number: offset / [`WINDOW`].
#[derive(Default)]
struct Windows {
    map: HashMap<u64, Window>,
    clock: u64,
    max: usize,
}

/// Reads blocks of a volume.
pub(crate) struct Reader {
    device: Arc<dyn Device>,
    geometry: Geometry,
    windows: Mutex<Windows>,
}

/// The bytes of a fetched block's whole fragments.
pub(crate) type Bytes = Result<Vec<u8>, DeviceError>;

impl Reader {
    /// A reader that keeps up to `bytes` bytes of windows.
    pub fn new(device: Arc<dyn Device>, geometry: Geometry, bytes: usize) -> Reader {
        let max = (bytes as u64 / WINDOW).max(4) as usize;
        let windows = Windows {
            max,
            ..Windows::default()
        };
        Reader {
            device,
            geometry,
            windows: Mutex::new(windows),
        }
    }

    /// Reads blocks, in the order given. What comes from a window may be stale; `fresh` forbids that.
    pub fn read(&self, wanted: &[Fetch], fresh: bool) -> Vec<Bytes> {
        let mut results: Vec<Option<Bytes>> = wanted
            .iter()
            .map(|fetch| {
                if fresh {
                    None
                } else {
                    self.look_up(fetch).map(Ok)
                }
            })
            .collect();
        let mut order: Vec<usize> = (0..wanted.len())
            .filter(|i| results[*i].is_none())
            .collect();
        order.sort_by_key(|i| wanted[*i].pointer.addr);
        let spans = self.spans(wanted, &order, fresh);
        let mut batch: Vec<Read> = spans
            .iter()
            .map(|span| Read::new(span.start, (span.end - span.start) as usize, span.kind))
            .collect();
        self.device.read(&mut batch);
        for (span, read) in spans.into_iter().zip(batch) {
            match read.into_result() {
                Ok(bytes) => {
                    for i in span.blocks {
                        let (start, end) = self.range(&wanted[i]);
                        let (from, to) =
                            ((start - span.start) as usize, (end - span.start) as usize);
                        results[i] = bytes.get(from..to).map(|part| Ok(part.to_vec()));
                    }
                    if span.keep {
                        self.windows().keep(span.start, &bytes);
                    }
                }
                Err(error) => {
                    for i in span.blocks {
                        results[i] = Some(Err(error.clone()));
                    }
                }
            }
        }
        let lost = || Err(DeviceError::io(loamfs_device::Op::Read, 0, 0, 5));
        results
            .into_iter()
            .map(|r| r.unwrap_or_else(lost))
            .collect()
    }

    fn range(&self, fetch: &Fetch) -> (u64, u64) {
        let start = self.geometry.byte_offset(fetch.pointer.addr);
        let len = u64::from(fetch.pointer.frags) * u64::from(self.geometry.fragment_size);
        (start, start + len)
    }

    /// Requests that cover the blocks in `order`, sorted by address.
    fn spans(&self, wanted: &[Fetch], order: &[usize], fresh: bool) -> Vec<Span> {
        let size = self
            .geometry
            .byte_offset(loamfs_format::FragAddr(self.geometry.total_frags));
        let mut spans: Vec<Span> = Vec::new();
        for &i in order {
            let (start, end) = self.range(&wanted[i]);
            let keep = !fresh && !matches!(wanted[i].what, What::Unit { .. });
            if let Some(last) = spans.last_mut()
                && last.keep == keep
                && start <= last.end + if keep { 0 } else { GAP }
                && end.saturating_sub(last.start) <= REQUEST_MAX
            {
                last.end = last.end.max(end);
                last.blocks.push(i);
                continue;
            }
            // Aligned, so that neighbouring windows never overlap.
            let (start, end) = if keep {
                let first = start / WINDOW * WINDOW;
                (first, end.next_multiple_of(WINDOW).min(size).max(end))
            } else {
                (start, end)
            };
            let kind = match wanted[i].what {
                What::Unit { .. } => IoKind::Homed,
                What::Data(_) => IoKind::SmallData,
                What::Node(_) | What::Meta(_) => IoKind::Metadata,
            };
            spans.push(Span {
                start,
                end,
                kind,
                keep,
                blocks: vec![i],
            });
        }
        spans
    }

    fn windows(&self) -> MutexGuard<'_, Windows> {
        self.windows.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn look_up(&self, fetch: &Fetch) -> Option<Vec<u8>> {
        if matches!(fetch.what, What::Unit { .. }) {
            return None;
        }
        let (start, end) = self.range(fetch);
        self.windows().copy(start, end)
    }

    /// Forgets every window that overlaps what was just written.
    pub fn written(&self, offset: u64, len: u64) {
        let mut windows = self.windows();
        for number in offset / WINDOW..(offset + len).div_ceil(WINDOW) {
            windows.map.remove(&number);
        }
    }
}

impl Windows {
    /// The bytes `start .. end`, if windows hold them all.
    fn copy(&mut self, start: u64, end: u64) -> Option<Vec<u8>> {
        self.clock += 1;
        let mut bytes = Vec::with_capacity((end - start) as usize);
        let mut at = start;
        while at < end {
            let window = self.map.get_mut(&(at / WINDOW))?;
            window.used = self.clock;
            let within = (at % WINDOW) as usize;
            let here = (WINDOW - at % WINDOW).min(end - at) as usize;
            bytes.extend_from_slice(window.bytes.get(within..within + here)?);
            at += here as u64;
        }
        Some(bytes)
    }

    /// Keeps a request's bytes, which start at the start of a window. They are copied: a window that goes must not
    /// leave its bytes behind with others of the same request.
    fn keep(&mut self, offset: u64, bytes: &[u8]) {
        for (number, window) in (offset / WINDOW..).zip(bytes.chunks(WINDOW as usize)) {
            while self.map.len() >= self.max {
                let oldest = self.map.iter().min_by_key(|(_, w)| w.used);
                if let Some(number) = oldest.map(|(number, _)| *number) {
                    self.map.remove(&number);
                }
            }
            let window = Window {
                bytes: window.into(),
                used: self.clock,
            };
            self.map.insert(number, window);
        }
    }
}

struct Span {
    start: u64,
    end: u64,
    kind: IoKind,
    /// Whether the bytes may serve later reads.
    keep: bool,
    blocks: Vec<usize>,
}

/// Reads and takes in what is wanted; what fails, or does not verify, is read again by itself, past the windows.
/// Returns what fails then too: the device's error, or the damage found.
pub(crate) fn fetch_into(
    reader: &Reader,
    wanted: &[Fetch],
    mut take: impl FnMut(&Fetch, &[u8]) -> Result<(), Corrupt>,
) -> Vec<(Fetch, Error)> {
    let mut take = |fetch: &Fetch, bytes: Bytes| Ok::<(), Error>(take(fetch, &bytes?)?);
    let mut failed = Vec::new();
    for (fetch, bytes) in wanted.iter().zip(reader.read(wanted, false)) {
        if take(fetch, bytes).is_ok() {
            continue;
        }
        for bytes in reader.read(std::slice::from_ref(fetch), true) {
            let again = take(fetch, bytes);
            failed.extend(again.err().map(|error| (*fetch, error)));
        }
    }
    failed
}
