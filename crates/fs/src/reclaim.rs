//! The cleaner, and the one mover: `evacuate` makes the live blocks of a range dirty, so that the next segment carries
//! them elsewhere and frees their places. The cleaning policy chooses the ranges: [`cleaner`] (DESIGN.md, "One mover").

mod cleaner;
mod forming_cost;
mod gathering;
mod mover;
mod plugging_cost;
mod settler;
mod state;

pub(crate) use cleaner::{
    CostLimit, Elsewhere, Goal, HOLES_MANY, IDLE_ROUNDS, SERVED_PART, Spared, outlook, pays,
};
pub(crate) use forming_cost::{FormingCost, GroupsForTracks, Settling, USUAL};
pub(crate) use gathering::Gathering;
pub(crate) use settler::{Estimate, Weighed, cheapest_first, closing, idle};
pub(crate) use state::{BATCH_MAX, CutInto, Fight, Leftover, Plugging, Reclaim};

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
