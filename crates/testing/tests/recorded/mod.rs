//! Two devices that are recorded together, for tests of volumes that have a copy of the log: what either holds when power fails, and
//! opening with one of them alone.

use loamfs_device::{
    Device, Effect, Event, FaultyDevice, Image, MemoryDevice, Op, RecordingDevice, Rule,
};
use loamfs_format::superblock::DeviceKind;
use loamfs_fs::members::{Candidate, join, join_without};
use loamfs_fs::{CopyKind, Env, Error, MkfsOptions, NewDevice, OpenOptions, Volume, mkfs_on};
use loamfs_testing::without::Without;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Bytes of the fast device, and of both.
pub const FAST: u64 = 4 << 20;
pub const ALL: u64 = 14 << 20;
/// Files from this size on are large.
pub const LARGE: usize = 250_000;

/// The two devices, recorded together.
#[derive(Clone)]
pub struct Parts {
    pub recorder: Arc<RecordingDevice>,
    /// Whether flushes of the slow one are forgotten.
    pub forgets: bool,
}

/// Which devices are there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum There {
    Both,
    Fast,
    Slow,
}

impl Parts {
    pub fn of(image: Image) -> Parts {
        Parts::cut(image, &[FAST])
    }

    /// Devices that end at these bytes and at the end.
    pub fn cut(image: Image, ends: &[u64]) -> Parts {
        let memory = MemoryDevice::from_image(image);
        Parts {
            recorder: Arc::new(RecordingDevice::new(memory).cut(ends)),
            forgets: false,
        }
    }

    pub fn candidate(&self, index: usize) -> Candidate {
        let device = Arc::clone(self.recorder.members()[index].device());
        let forget = vec![Rule::on(Op::Flush, Effect::Lost)];
        Candidate {
            name: ["fast", "slow", "new"][index].into(),
            device: match self.forgets && index == 1 {
                true => Arc::new(FaultyDevice::with_rules(device, forget)),
                false => device,
            },
        }
    }

    pub fn joined(&self, there: There) -> Arc<dyn Device> {
        let [fast, slow] = [0, 1].map(|index| self.candidate(index));
        match there {
            There::Both => join(&slow, &[fast]).unwrap(),
            There::Fast => join_without(&fast, &[]).unwrap(),
            There::Slow => join_without(&slow, &[]).unwrap(),
        }
    }

    /// An empty volume, with a copy or without one.
    pub fn made(copy: Option<CopyKind>) -> Parts {
        let parts = Parts::of(MemoryDevice::new(ALL).image());
        let new = |index, kind| NewDevice {
            device: parts.candidate(index).device,
            kind,
        };
        let options = MkfsOptions {
            copy,
            ..MkfsOptions::default()
        };
        let devices = [new(0, DeviceKind::Fast), new(1, DeviceKind::Slow)];
        mkfs_on(&devices, &options, &Env::fixed(1)).unwrap();
        parts
    }
}

pub fn open(parts: &Parts, there: There, without: &Without) -> Result<Volume, Error> {
    let options = OpenOptions {
        read_only: there != There::Both,
        ..OpenOptions::default()
    };
    without.open(parts.joined(there), &options, Env::fixed(5))
}

/// What each file holds.
pub type Contents = BTreeMap<String, Vec<u8>>;

/// What the devices hold when power fails behind so many requests. Of what it has not flushed each keeps all, loses all, or a half.
pub fn crashed(recorder: &RecordingDevice, count: usize, keep: [u32; 2]) -> Image {
    let events = recorder.events();
    let mut image = recorder.base_image();
    let part = |offset: u64| usize::from(offset >= FAST);
    let flushed = |part: usize| {
        let flushes = |event: &Event| matches!(event, Event::FlushPart { offset, .. } if usize::from(*offset >= FAST) == part);
        events[..count].iter().rposition(flushes).unwrap_or(0)
    };
    let flushed = [flushed(0), flushed(1)];
    for (at, event) in events[..count].iter().enumerate() {
        let (Event::Write { offset, .. } | Event::Discard { offset, .. }) = event else {
            continue;
        };
        let part = part(*offset);
        let kept = match keep[part] {
            0 => false,
            1 => true,
            seed => (at as u32).wrapping_mul(2_654_435_761).wrapping_add(seed) >> 16 & 1 == 1,
        };
        if at < flushed[part] || kept {
            event.apply(&mut image).unwrap();
        }
    }
    image
}

pub const KEPT: [[u32; 2]; 6] = [[1, 1], [0, 0], [1, 0], [0, 1], [77, 5], [3, 78]];
