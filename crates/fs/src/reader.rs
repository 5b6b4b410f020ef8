//! Reading blocks for operations that were sent back: one batch, neighbours together, with read-around in the log
//! (DESIGN.md section 8).

use crate::blocks::{Fetch, What};
use crate::error::Error;
use loamfs_device::{Buffer, Device, DeviceError, IoKind, Read};
use loamfs_format::Geometry;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

/// Bytes read around a block of the log: a small part of what a seek costs on a rotating disk.
const WINDOW: u64 = 256 << 10;
/// Windows that are kept: one for each of a few streams.
const WINDOWS_MAX: usize = 16;
/// Homed units this close together are read with one request.
const GAP: u64 = 64 << 10;
/// Most bytes of one request.
const REQUEST_MAX: u64 = 1 << 20;

/// A piece of the device, as it was read a while ago.
struct Window {
    offset: u64,
    bytes: Buffer,
}

/// Reads blocks of a volume.
pub(crate) struct Reader {
    device: Arc<dyn Device>,
    geometry: Geometry,
    windows: Mutex<VecDeque<Arc<Window>>>,
}

/// The bytes of a fetched block's whole fragments.
pub(crate) type Bytes = Result<Vec<u8>, DeviceError>;

impl Reader {
    pub fn new(device: Arc<dyn Device>, geometry: Geometry) -> Reader {
        Reader {
            device,
            geometry,
            windows: Mutex::new(VecDeque::new()),
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
                    self.from_windows(fetch).map(Ok)
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
                    let window = Arc::new(Window {
                        offset: span.start,
                        bytes,
                    });
                    for i in span.blocks {
                        results[i] = self.cut(&window, &wanted[i]).map(Ok);
                    }
                    if span.keep {
                        self.keep(window);
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
            let end = if keep {
                end.max((start + WINDOW).min(size))
            } else {
                end
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

    fn cut(&self, window: &Window, fetch: &Fetch) -> Option<Vec<u8>> {
        let (start, end) = self.range(fetch);
        let from = start.checked_sub(window.offset)? as usize;
        let to = end.checked_sub(window.offset)? as usize;
        Some(window.bytes.get(from..to)?.to_vec())
    }

    fn from_windows(&self, fetch: &Fetch) -> Option<Vec<u8>> {
        let windows = self.windows.lock().unwrap_or_else(PoisonError::into_inner);
        windows.iter().find_map(|window| self.cut(window, fetch))
    }

    fn keep(&self, window: Arc<Window>) {
        let mut windows = self.windows.lock().unwrap_or_else(PoisonError::into_inner);
        windows.push_front(window);
        windows.truncate(WINDOWS_MAX);
    }

    /// Forgets every window that overlaps what was just written.
    pub fn written(&self, offset: u64, len: u64) {
        let mut windows = self.windows.lock().unwrap_or_else(PoisonError::into_inner);
        windows.retain(|w| w.offset + w.bytes.len() as u64 <= offset || offset + len <= w.offset);
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

/// Reads and takes in what is wanted, once for each block from fresh bytes if the first ones do not verify.
///
/// # Errors
/// The device's, or the damage found.
pub(crate) fn fetch_into(
    reader: &Reader,
    wanted: &[Fetch],
    mut take: impl FnMut(&Fetch, &[u8]) -> Result<(), crate::error::Corrupt>,
) -> Result<(), Error> {
    for (fetch, bytes) in wanted.iter().zip(reader.read(wanted, false)) {
        if take(fetch, &bytes?).is_err() {
            let again = reader.read(std::slice::from_ref(fetch), true);
            for bytes in again {
                take(fetch, &bytes?)?;
            }
        }
    }
    Ok(())
}
