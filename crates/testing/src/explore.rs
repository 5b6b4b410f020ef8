//! The crash explorer: every state that a crash may leave is opened, compared
//! with what the commit rules allow, written to, and checked.
//!
//! - [`recording`]: a workload on a device that remembers, and what it promised,
//! - [`states`]: the states that a crash at some point may leave,
//! - [`oracle`]: what a volume may look like afterwards,
//! - [`verify`]: what is done with one state,
//! - [`hunt`]: goes through the states of a recording, and of crashes after crashes,
//! - [`starts`], [`single`], [`cases`]: the workloads,
//! - [`changes`]: those that change the volume's devices,
//! - [`fleet`]: runs many cases on all cores,
//! - [`directed`], [`clauses`]: a short history for each clause of the rules, which loses data where the clause is
//!   left out.

pub mod cases;
pub mod changes;
pub mod clauses;
pub mod directed;
pub mod fleet;
pub mod history;
pub mod hunt;
pub mod names;
pub mod oracle;
pub mod recording;
pub mod single;
pub mod starts;
pub mod states;
pub mod verify;
