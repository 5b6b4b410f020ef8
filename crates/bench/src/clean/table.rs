//! Policies side by side, by pattern and utilisation.

use clap::ValueEnum;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use serde::Serialize;

use super::log::{Log, Shape};
use super::pattern::Pattern;
use super::policy::Policy;

/// Percent of the disk that live, without what cleaning needs.
const UTILISATIONS: [u32; 9] = [20, 40, 50, 60, 70, 80, 85, 90, 95];
/// How often as many blocks as live are overwritten before it is counted, and while. What is cold must have been cleaned a
/// few times.
const BEFORE: u64 = 12;
const WHILE: u64 = 6;

/// How much is simulated.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Scale {
    /// The disk.
    pub shape: Shape,
    /// Where chance comes from.
    pub seed: u64,
}

/// What a policy cost.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Cost {
    /// The policy.
    pub policy: Policy,
    /// Blocks written for a new one.
    pub amplification: f64,
    /// Blocks read and written for a new one, where segments are read whole.
    pub write_cost: f64,
    /// How much of the segments lived that were cleaned.
    pub alive: f64,
}

/// All policies at one utilisation.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// What was overwritten.
    pub pattern: Pattern,
    /// How much of the disk lives, in percent.
    pub utilisation: u32,
    /// What segments would cost that all are as full as the disk: 2 / (1 - u) (the papers' formula).
    pub formula: f64,
    /// What each policy cost.
    pub costs: Vec<Cost>,
}

/// All rows of these patterns; `tell` is told what comes next.
pub fn rows(scale: Scale, patterns: &[Pattern], tell: &mut dyn FnMut(Pattern, u32)) -> Vec<Row> {
    let each = |pattern: Pattern| UTILISATIONS.map(|utilisation| (pattern, utilisation));
    let all = patterns.iter().copied().flat_map(each);
    all.map(|(pattern, utilisation)| {
        tell(pattern, utilisation);
        let share = f64::from(utilisation) / 100.0;
        let costs = Policy::value_variants().iter();
        Row {
            pattern,
            utilisation,
            formula: 2.0 / (1.0 - share),
            costs: costs
                .map(|policy| cost(scale, pattern, *policy, share))
                .collect(),
        }
    })
    .collect()
}

/// What a policy costs at a utilisation below 1.
pub fn cost(scale: Scale, pattern: Pattern, policy: Policy, utilisation: f64) -> Cost {
    let random = &mut ChaCha8Rng::seed_from_u64(scale.seed);
    let mut log = Log::filled(scale.shape, policy, utilisation);
    log.age(pattern, BEFORE, random);
    let (counts, write_cost) = log.age(pattern, WHILE, random);
    let cleaned = counts.cleaned * u64::from(scale.shape.blocks);
    Cost {
        policy,
        amplification: counts.amplification(),
        write_cost,
        alive: counts.moved as f64 / cleaned.max(1) as f64,
    }
}
