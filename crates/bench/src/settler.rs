//! When what was overwritten should settle: LoamFS's own choice beside policies that do not choose, by what a disk of the
//! model takes for all of a workload. In the library, on a device in memory; nothing of it takes part in a mount.
//!
//! - `workload`: what is written and read, and when nobody asks for anything;
//! - `stand`: a volume on a priced disk, and what a policy does on it.

mod stand;
mod workload;

use clap::ValueEnum;
use serde::Serialize;

use crate::Error;
use crate::disk::Preset;
use stand::Stand;
pub use workload::Workload;

/// How much longer than the best of those that do not choose the choice may take.
const LONGER_MAX: f64 = 1.1;
/// How far an estimate may be from what it took, as a part of that.
const APART_MAX: f64 = 0.2;

/// When images settle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Policy {
    /// As LoamFS chooses.
    Weighed,
    /// Never.
    Never,
    /// All of them, every second, and when the volume is closed.
    Always,
    /// All of them, when the volume is closed.
    Unmount,
}

/// How large it all is.
#[derive(Clone, Copy, Debug)]
pub struct Scale {
    /// MiB that a workload's files have together.
    pub megabytes: u64,
    /// Where chance comes from.
    pub seed: u64,
}

/// What settling was said to take, and took: seconds.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Estimate {
    /// Images.
    pub images: u64,
    /// What the volume said before.
    pub said: f64,
    /// What the disk took.
    pub took: f64,
}

impl Estimate {
    /// How far apart they are, as a part of what it took.
    pub fn apart(&self) -> f64 {
        self.said / self.took - 1.0
    }
}

/// What a workload took under one policy.
#[derive(Clone, Debug, Serialize)]
pub struct Taken {
    /// The policy.
    pub policy: Policy,
    /// Seconds of the disk.
    pub seconds: f64,
    /// Seconds of cleaning that are left for later.
    pub owed: f64,
    /// Images that are left in the log.
    pub images: u64,
    /// The estimate for the largest sweep that was asked for, if any was.
    pub estimate: Option<Estimate>,
}

impl Taken {
    /// What counts: whatever is owed is paid once.
    pub fn all(&self) -> f64 {
        self.seconds + self.owed
    }
}

/// A workload on a disk, under all policies.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// The workload.
    pub workload: Workload,
    /// The disk.
    pub disk: &'static str,
    /// The policies.
    pub taken: Vec<Taken>,
    /// What the choice took, to the best of the others.
    pub to_best: f64,
    /// How far the estimate of one sweep of everything is from what it took.
    pub apart: Option<f64>,
    /// Whether both are within their bounds.
    pub holds: bool,
}

impl Row {
    /// Runs a workload under each policy.
    ///
    /// # Errors
    /// The volume's.
    pub fn new(workload: Workload, preset: Preset, scale: Scale) -> Result<Row, Error> {
        let taken = Policy::value_variants().iter().map(|policy| {
            let mut stand = Stand::new(*policy, preset, scale.seed)?;
            workload.run(&mut stand, scale)?;
            stand.finish()
        });
        let taken = taken.collect::<Result<Vec<Taken>, Error>>()?;
        let all = |chosen: bool| {
            let seconds = taken.iter();
            let seconds = seconds.filter(move |it| (it.policy == Policy::Weighed) == chosen);
            seconds.map(Taken::all).fold(f64::INFINITY, f64::min)
        };
        let to_best = all(true) / all(false);
        let at_once = taken.iter().find(|it| it.policy == Policy::Unmount);
        let apart = at_once.and_then(|it| it.estimate.as_ref().map(Estimate::apart));
        Ok(Row {
            workload,
            disk: preset.name(),
            to_best,
            apart,
            holds: to_best <= LONGER_MAX && apart.is_none_or(|apart| apart.abs() <= APART_MAX),
            taken,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_takes_the_same_and_only_what_is_asked_for_settles() {
        let scale = Scale {
            megabytes: 4,
            seed: 1,
        };
        let row = || Row::new(Workload::RandomRead, Preset::Reference, scale).unwrap();
        let (one, other) = (row(), row());
        assert_eq!(one.to_best.to_bits(), other.to_best.to_bits());
        let of = |policy| one.taken.iter().find(|it| it.policy == policy).unwrap();
        assert!(of(Policy::Never).images > 0 && of(Policy::Never).estimate.is_none());
        assert_eq!(of(Policy::Always).images, 0);
        assert_eq!(of(Policy::Unmount).images, 0);
        assert!(of(Policy::Unmount).estimate.is_some());
    }
}
