//! What is measured on mounts.

use crate::rounds::Rounds;

/// What is measured, and how often.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Files of each client.
    pub files: u64,
    /// Numbers of clients that work side by side.
    pub clients: Vec<usize>,
    /// On what, and how often.
    pub rounds: Rounds,
}
