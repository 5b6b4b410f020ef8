//! The cleaner, and the one mover: `evacuate` makes the live blocks of a range dirty, so that the next segment carries
//! them elsewhere and frees their places. Policies choose the ranges, by cost and benefit: what moving takes, against what it wins
//! (DESIGN.md, "One mover").

mod cleaner;
mod mover;
mod state;

pub(crate) use cleaner::Elsewhere;
pub(crate) use state::{Fight, Reclaim};

/// Groups that are emptied together at most: their owners' inodes are read together.
pub const BATCH_MAX: usize = 8;

/// Fragments that are worth moving at most, for each that this wins, when an operation waits for room.
pub(crate) const COST_MAX: u64 = 7;

/// What moving may cost, against what it wins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CostLimit {
    /// Room is there, but in holes that cost a seek each: five fragments, if that wins three.
    Low,
    /// An operation waits for it: [`COST_MAX`] fragments, if that wins one.
    High,
    /// The operation gets ENOSPC else: what serves as it is may be moved too.
    Any,
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
