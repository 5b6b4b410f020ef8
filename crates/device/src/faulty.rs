//! A device that fails on a plan.

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use rustix::io::Errno;

use crate::{Counters, Device, DeviceError, IoKind, Member, Op, Read, Write, lock};

/// A request as a plan sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// What is asked.
    pub op: Op,
    /// First byte; 0 for a flush.
    pub offset: u64,
    /// Length in bytes; 0 for a flush.
    pub len: u64,
    /// What it is for; `None` for a flush or a discard.
    pub kind: Option<IoKind>,
    /// How many requests of any sort came before it; each request of a batch
    /// counts.
    pub index: u64,
}

/// What happens to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// It fails with EIO and leaves nothing.
    Fail,
    /// It fails with this error number and leaves nothing.
    FailWith(i32),
    /// A write lands its first bytes, as many whole sectors as fit in this many
    /// bytes, and fails; anything else just fails.
    Torn(u64),
    /// A write lands at, or a read comes from, this offset instead, and claims
    /// success. A flush or a discard is not affected.
    Misdirect(u64),
    /// A write, flush or discard claims success and does nothing. A read is not
    /// affected.
    Lost,
    /// One bit is inverted on the way, where the request covers it.
    FlipBit {
        /// The byte on the device.
        offset: u64,
        /// The bit in it, 0 to 7.
        bit: u8,
    },
    /// The device is gone: this request and all later ones fail.
    Vanish,
}

/// When an effect happens: at matching requests, from the n-th on, so often.
#[derive(Clone, Debug)]
pub struct Rule {
    op: Option<Op>,
    kind: Option<IoKind>,
    range: Option<Range<u64>>,
    /// Matching requests that still pass unharmed.
    skip: u64,
    /// Times that the effect still happens; `None` is for ever.
    times: Option<u64>,
    effect: Effect,
}

impl Rule {
    /// At every request of any sort.
    pub fn any(effect: Effect) -> Self {
        Self {
            op: None,
            kind: None,
            range: None,
            skip: 0,
            times: None,
            effect,
        }
    }

    /// At every request of this sort.
    pub fn on(op: Op, effect: Effect) -> Self {
        Self {
            op: Some(op),
            ..Self::any(effect)
        }
    }

    /// Only at requests of this kind.
    #[must_use]
    pub fn of_kind(mut self, kind: IoKind) -> Self {
        self.kind = Some(kind);
        self
    }

    /// Only at requests that touch this range of bytes.
    #[must_use]
    pub fn in_range(mut self, range: Range<u64>) -> Self {
        self.range = Some(range);
        self
    }

    /// Only at the n-th matching request, counted from 0.
    #[must_use]
    pub fn nth(self, n: u64) -> Self {
        self.after(n).times(1)
    }

    /// Only after this many matching requests.
    #[must_use]
    pub fn after(mut self, count: u64) -> Self {
        self.skip = count;
        self
    }

    /// At most this often.
    #[must_use]
    pub fn times(mut self, times: u64) -> Self {
        self.times = Some(times);
        self
    }

    /// Counts the request if it matches; the effect if it is due.
    fn meet(&mut self, request: &Request) -> Option<Effect> {
        let touches = |range: &Range<u64>| {
            request.offset < range.end && range.start < request.offset.saturating_add(request.len)
        };
        let matches = self.op.is_none_or(|op| op == request.op)
            && self.kind.is_none_or(|kind| Some(kind) == request.kind)
            && self.range.as_ref().is_none_or(touches);
        if !matches {
            return None;
        }
        if self.skip > 0 {
            self.skip -= 1;
            return None;
        }
        match &mut self.times {
            Some(0) => return None,
            Some(times) => *times -= 1,
            None => {}
        }
        Some(self.effect)
    }
}

type Plan = Box<dyn FnMut(&Request) -> Option<Effect> + Send>;

/// Wraps a device and does to its requests what a plan says. The plan sees them
/// one at a time, in the order in which they came, so the same requests meet the
/// same faults in every run.
pub struct FaultyDevice {
    inner: Arc<dyn Device>,
    plan: Mutex<Plan>,
    requests: AtomicU64,
    gone: AtomicBool,
}

impl FaultyDevice {
    /// A device without faults so far.
    pub fn new(inner: Arc<dyn Device>) -> Self {
        Self::with_plan(inner, |_| None)
    }

    /// A device that obeys rules; all count every request, and the first that is
    /// due decides.
    pub fn with_rules(inner: Arc<dyn Device>, rules: Vec<Rule>) -> Self {
        Self::with_plan(inner, plan_of(rules))
    }

    /// A device that asks a closure about every request.
    pub fn with_plan(
        inner: Arc<dyn Device>,
        plan: impl FnMut(&Request) -> Option<Effect> + Send + 'static,
    ) -> Self {
        Self {
            inner,
            plan: Mutex::new(Box::new(plan)),
            requests: AtomicU64::new(0),
            gone: AtomicBool::new(false),
        }
    }

    /// Replaces the plan by rules, none to heal the device.
    pub fn set_rules(&self, rules: Vec<Rule>) {
        *lock(&self.plan) = Box::new(plan_of(rules));
    }

    /// Makes all requests fail from now on, until [`revive`](Self::revive).
    pub fn vanish(&self) {
        self.gone.store(true, Ordering::SeqCst);
    }

    /// Brings a device that vanished back, with all that it held.
    pub fn revive(&self) {
        self.gone.store(false, Ordering::SeqCst);
    }

    /// Requests so far, failed ones and each request of a batch included.
    pub fn requests(&self) -> u64 {
        self.requests.load(Ordering::SeqCst)
    }

    /// Asks the plan; the effect, with a device that is gone turned into one.
    fn judge(&self, op: Op, offset: u64, len: u64, kind: Option<IoKind>) -> Option<Effect> {
        // Held throughout, so that the plan sees requests in index order.
        let mut plan = lock(&self.plan);
        let index = self.requests.fetch_add(1, Ordering::SeqCst);
        let request = Request {
            op,
            offset,
            len,
            kind,
            index,
        };
        let gone = Some(Effect::FailWith(Errno::NODEV.raw_os_error()));
        if self.gone.load(Ordering::SeqCst) {
            return gone;
        }
        let effect = plan(&request);
        if effect == Some(Effect::Vanish) {
            self.vanish();
            return gone;
        }
        effect
    }
}

impl fmt::Debug for FaultyDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FaultyDevice")
            .field("requests", &self.requests)
            .field("gone", &self.gone)
            .finish_non_exhaustive()
    }
}

fn plan_of(mut rules: Vec<Rule>) -> impl FnMut(&Request) -> Option<Effect> + Send {
    move |request| {
        // Every rule counts, also those that come after the one that decides.
        let due: Vec<_> = rules.iter_mut().map(|rule| rule.meet(request)).collect();
        due.into_iter().flatten().next()
    }
}

/// The error number of an effect that makes requests of this sort fail.
fn failure(effect: Option<Effect>) -> Option<i32> {
    match effect {
        Some(Effect::Fail | Effect::Torn(_) | Effect::Vanish) => Some(Errno::IO.raw_os_error()),
        Some(Effect::FailWith(errno)) => Some(errno),
        _ => None,
    }
}

/// Inverts a bit of bytes that start at `start`, if they cover it.
fn flip(bytes: &mut [u8], start: u64, offset: u64, bit: u8) {
    let place = offset
        .checked_sub(start)
        .and_then(|at| usize::try_from(at).ok());
    if let Some(byte) = place.and_then(|at| bytes.get_mut(at)) {
        *byte ^= 1 << (bit % 8);
    }
}

/// What becomes of a write: the part that goes down, and the answer if it is
/// not the inner device's.
struct Fate<'a> {
    goes_down: Option<(u64, Cow<'a, [u8]>)>,
    answer: Option<Result<(), DeviceError>>,
}

impl<'a> Fate<'a> {
    fn new(write: &Write<'a>, effect: Option<Effect>, sector: u32) -> Self {
        let whole = Cow::Borrowed(write.data);
        let (goes_down, answer) = match effect {
            Some(Effect::Torn(bytes)) => {
                let limit = bytes.min(write.data.len() as u64);
                let kept = (limit - limit % u64::from(sector)) as usize;
                let head = Cow::Borrowed(&write.data[..kept]);
                ((kept > 0).then_some((write.offset, head)), None)
            }
            Some(Effect::Misdirect(offset)) => (Some((offset, whole)), Some(Ok(()))),
            Some(Effect::Lost) => (None, Some(Ok(()))),
            Some(Effect::FlipBit { offset, bit }) => {
                let mut data = write.data.to_vec();
                flip(&mut data, write.offset, offset, bit);
                (Some((write.offset, Cow::Owned(data))), None)
            }
            Some(Effect::Fail | Effect::FailWith(_) | Effect::Vanish) => (None, None),
            None => (Some((write.offset, whole)), None),
        };
        let len = write.data.len() as u64;
        let failed =
            failure(effect).map(|errno| Err(DeviceError::io(Op::Write, write.offset, len, errno)));
        Self {
            goes_down,
            answer: failed.or(answer),
        }
    }
}

impl Device for FaultyDevice {
    fn size(&self) -> u64 {
        self.inner.size()
    }

    fn sector_size(&self) -> u32 {
        self.inner.sector_size()
    }

    fn write_align(&self) -> u32 {
        self.inner.write_align()
    }

    fn rotational(&self) -> bool {
        self.inner.rotational()
    }

    fn rotational_at(&self, offset: u64) -> bool {
        self.inner.rotational_at(offset)
    }

    fn read(&self, batch: &mut [Read]) {
        let mut down = Vec::new();
        for (index, read) in batch.iter_mut().enumerate() {
            let len = read.buffer.len() as u64;
            let effect = self.judge(Op::Read, read.offset, len, Some(read.kind));
            if let Some(errno) = failure(effect) {
                read.result = Err(DeviceError::io(Op::Read, read.offset, len, errno));
                continue;
            }
            let mut request = Read::new(read.offset, 0, read.kind);
            std::mem::swap(&mut request.buffer, &mut read.buffer);
            if let Some(Effect::Misdirect(offset)) = effect {
                request.offset = offset;
            }
            down.push((index, effect, request));
        }
        let (places, mut requests): (Vec<_>, Vec<_>) = down
            .into_iter()
            .map(|(index, effect, request)| ((index, effect), request))
            .unzip();
        self.inner.read(&mut requests);
        for ((index, effect), mut request) in places.into_iter().zip(requests) {
            let read = &mut batch[index];
            if let Some(Effect::FlipBit { offset, bit }) = effect {
                flip(&mut request.buffer, read.offset, offset, bit);
            }
            read.buffer = request.buffer;
            read.result = request.result;
        }
    }

    fn write(&self, batch: &[Write<'_>]) -> Vec<Result<(), DeviceError>> {
        let sector = self.sector_size();
        let fates: Vec<_> = batch
            .iter()
            .map(|write| {
                let len = write.data.len() as u64;
                let effect = self.judge(Op::Write, write.offset, len, Some(write.kind));
                Fate::new(write, effect, sector)
            })
            .collect();
        let mut down = Vec::new();
        for (write, fate) in batch.iter().zip(&fates) {
            if let Some((offset, data)) = &fate.goes_down {
                down.push(Write::new(*offset, data, write.kind));
            }
        }
        let mut landed = self.inner.write(&down).into_iter();
        fates
            .into_iter()
            .map(|fate| {
                let inner = fate.goes_down.and_then(|_| landed.next());
                fate.answer.or(inner).unwrap_or(Err(DeviceError::NotIssued))
            })
            .collect()
    }

    fn flush(&self) -> Result<(), DeviceError> {
        let effect = self.judge(Op::Flush, 0, 0, None);
        match (failure(effect), effect) {
            (Some(errno), _) => Err(DeviceError::io(Op::Flush, 0, 0, errno)),
            (None, Some(Effect::Lost)) => Ok(()),
            _ => self.inner.flush(),
        }
    }

    fn discard(&self, ranges: &[(u64, u64)]) -> Result<(), DeviceError> {
        for &(offset, len) in ranges {
            let effect = self.judge(Op::Discard, offset, len, None);
            match (failure(effect), effect) {
                (Some(errno), _) => {
                    return Err(DeviceError::io(Op::Discard, offset, len, errno));
                }
                (None, Some(Effect::Lost)) => {}
                _ => self.inner.discard(&[(offset, len)])?,
            }
        }
        Ok(())
    }

    /// The inner device's: what never reached it is not counted.
    fn counters(&self) -> Counters {
        self.inner.counters()
    }

    fn members(&self) -> &[Member] {
        self.inner.members()
    }
}

#[cfg(test)]
mod tests;
