//! Which segments are cleaned, and where what lives in them goes.

use clap::ValueEnum;
use serde::Serialize;

/// A policy of cleaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Policy {
    /// The emptiest segments; what lives goes to the head that new blocks go to.
    Greedy,
    /// The emptiest segments; what lives goes to a head of its own.
    GreedyApart,
    /// The segments with the most (1 - u) age / (1 + u); one head.
    CostBenefit,
    /// The same; what lives goes to a head of its own.
    CostBenefitApart,
}

impl Policy {
    /// How much a segment is worth cleaning: the most first.
    ///
    /// `live` of `blocks` blocks live, and the youngest is `age` writes old.
    pub fn worth(self, live: u32, blocks: u32, age: u64) -> f64 {
        let u = f64::from(live) / f64::from(blocks.max(1));
        match self {
            Policy::Greedy | Policy::GreedyApart => 1.0 - u,
            Policy::CostBenefit | Policy::CostBenefitApart => {
                // A segment that was written just now is worth something too, if it is empty.
                (1.0 - u) * (age as f64 + 1.0) / (1.0 + u)
            }
        }
    }

    /// Whether what lives goes to a head of its own.
    pub fn is_apart(self) -> bool {
        matches!(self, Policy::GreedyApart | Policy::CostBenefitApart)
    }
}
