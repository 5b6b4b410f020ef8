//! What rot takes from the log.

use loamfs_format::{FragAddr, Ssn};

/// Segments that were durable and that the chain does not reach any more. A crash cannot do that (rule 4).
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "the log is damaged: segment {first} at fragment {at} cannot be read, but what was written up to segment {durable} \
     was durable; mount read-only to save what is left, or give up what is lost with `-o accept-loss`"
)]
pub struct Loss {
    /// The first of them.
    pub first: Ssn,
    /// Where its summary should be.
    pub at: FragAddr,
    /// The highest that something says was durable.
    pub durable: Ssn,
    /// The highest sequence number that was met. Who goes on takes higher ones than any lost segment may have.
    pub highest: Ssn,
}
