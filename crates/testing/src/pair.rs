//! LoamFS on two devices, a fast one and another, each half of the bytes; of a quarter and the rest, where the log stands twice.

use std::sync::Arc;

use loamfs_device::{
    Device, DeviceError, Effect, FaultyDevice, Image, JoinedDevice, Member, MemoryDevice, Op, Rule,
};
use loamfs_format::superblock::DeviceKind;
use loamfs_fs::members::{Candidate, join, join_without};
use loamfs_fs::{
    CopyKind, Env, Error, LogError, MkfsOptions, NewDevice, OpenOptions, Section, Volume,
};

use crate::geometry::Geometry;
use crate::loam::{Loam, check_device, format_env, options_of};
use crate::ops;
use crate::subject::{Opening, Outcome, Subject, System};

/// A volume on a fast device and a slow one of so many bytes, in memory.
///
/// # Errors
/// Why there is none.
pub fn fast_and_slow(bytes: [u64; 2]) -> Result<Arc<dyn Device>, Error> {
    fast_and_slow_with(bytes, &MkfsOptions::default())
}

/// The same, made with options.
///
/// # Errors
/// Why there is none.
pub fn fast_and_slow_with(
    bytes: [u64; 2],
    options: &MkfsOptions,
) -> Result<Arc<dyn Device>, Error> {
    let [fast, slow] = bytes.map(|bytes| Arc::new(MemoryDevice::new(bytes)) as Arc<dyn Device>);
    let new = |device: &Arc<dyn Device>, kind| NewDevice {
        device: Arc::clone(device),
        kind,
    };
    let devices = [new(&fast, DeviceKind::Fast), new(&slow, DeviceKind::Slow)];
    loamfs_fs::mkfs_on(&devices, options, &Env::fixed(1))?;
    joined([("fast", fast), ("slow", slow)])
}

/// The volume on two devices, by their names.
fn joined(devices: [(&str, Arc<dyn Device>); 2]) -> Result<Arc<dyn Device>, Error> {
    let [first, other] = devices.map(|(name, device)| Candidate {
        name: name.into(),
        device,
    });
    Ok(join(&first, &[other]).map_err(LogError::from)?)
}

/// Two devices instead of one.
#[derive(Clone, Debug, Default)]
pub struct Pair {
    /// What runs on them.
    pub loam: Loam,
    /// Whether flushes of the second one are forgotten: a fault that must be noticed.
    pub forgets: bool,
    /// What copy of the first one the second one has.
    pub copy: Option<CopyKind>,
    /// The section of the first one.
    pub section: Option<Section>,
}

impl Pair {
    /// The two devices. One that is recorded tells which of them is flushed.
    fn parts(&self, device: &Arc<dyn Device>) -> Result<[Arc<dyn Device>; 2], DeviceError> {
        let [fast, slow] = match device.members() {
            [fast, slow] => [fast, slow].map(|member| Arc::clone(member.device())),
            _ => {
                let cut = self.cut(device.size());
                let rest = device.size() - cut;
                [slice(device, 0, cut)?, slice(device, cut, rest)?]
            }
        };
        match self.forgets {
            false => Ok([fast, slow]),
            true => {
                let forget = vec![Rule::on(Op::Flush, Effect::Lost)];
                Ok([fast, Arc::new(FaultyDevice::with_rules(slow, forget))])
            }
        }
    }

    /// Bytes of the first one.
    fn cut(&self, size: u64) -> u64 {
        size / if self.copy.is_some() { 4 } else { 2 }
    }

    /// What is wrong with the volume on either device alone.
    fn alone(&self, device: &Arc<dyn Device>) -> Vec<String> {
        let parts = self.parts(device).into_iter().flatten();
        let wrong = parts.enumerate().filter_map(|(index, device)| {
            let name = format!("device {index} alone");
            let candidate = Candidate {
                name: name.clone(),
                device,
            };
            let joined = join_without(&candidate, &[]).map_err(LogError::from);
            let options = OpenOptions {
                read_only: true,
                ..OpenOptions::default()
            };
            let opened = joined
                .map_err(Error::from)
                .and_then(|joined| Volume::open(joined, &options, Env::fixed(3)));
            match opened {
                Ok(volume) => volume.info().loss.map(|loss| format!("{name}: {loss}")),
                Err(error) => Some(format!("{name}: {error}")),
            }
        });
        wrong.collect()
    }

    /// The volume on both.
    ///
    /// # Errors
    /// Why they are none.
    pub fn joined(&self, device: &Arc<dyn Device>) -> Result<Arc<dyn Device>, Error> {
        let [fast, slow] = self.parts(device)?;
        joined([("slow", slow), ("fast", fast)])
    }
}

fn slice(device: &Arc<dyn Device>, at: u64, len: u64) -> Result<Arc<dyn Device>, DeviceError> {
    let member = Member::new("part", Arc::clone(device), at, len);
    Ok(Arc::new(JoinedDevice::new(vec![member])?))
}

impl System for Pair {
    fn furnished(&self) -> Vec<ops::Op> {
        self.loam.furnished()
    }

    fn arguments(&self) -> String {
        format!("{} --tiered", self.loam.arguments())
    }

    fn format(&self, device: Arc<dyn Device>, geometry: &Geometry, seed: u64) -> Outcome<()> {
        let made = options_of(self.loam.volumes);
        let options = MkfsOptions {
            uuid: Some([0x5a; 16]),
            deltas: made.deltas,
            tails: made.tails,
            copy: self.copy,
            section: self.section,
            ..geometry.mkfs_options()
        };
        let [fast, slow] = self.parts(&device).map_err(Error::from)?;
        let new = |device, kind| NewDevice { device, kind };
        let devices = [new(slow, DeviceKind::Slow), new(fast, DeviceKind::Fast)];
        loamfs_fs::mkfs_on(&devices, &options, &format_env(&self.loam, seed))?;
        Ok(())
    }

    fn open(&self, device: Arc<dyn Device>, opening: &Opening) -> Outcome<Box<dyn Subject>> {
        self.loam.open(self.joined(&device)?, opening)
    }

    fn cuts(&self, size: u64) -> Vec<u64> {
        vec![self.cut(size)]
    }

    fn check(&self, image: &Image, geometry: &Geometry) -> Vec<String> {
        let memory = MemoryDevice::from_image(image.clone()).with_sector_size(geometry.sector);
        let device: Arc<dyn Device> = Arc::new(memory);
        match self.joined(&device) {
            Ok(joined) if self.copy.is_some() => {
                [check_device(joined.as_ref()), self.alone(&device)].concat()
            }
            Ok(joined) => check_device(joined.as_ref()),
            Err(error) => vec![error.to_string()],
        }
    }
}
