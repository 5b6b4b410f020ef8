//! What cleaning costs against utilisation: the simulator of the LFS papers (Rosenblum and Ousterhout, 1992, section 3), for
//! the policies that LoamFS may choose from.
//!
//! - [`log`]: a disk of segments that are written at a head, and cleaned;
//! - [`policy`]: which segments are cleaned, and where what lives in them goes;
//! - [`pattern`]: which block is overwritten next;
//! - [`table`]: all of them side by side;
//! - [`numbered`]: files on a volume;
//! - [`volume`]: what a volume writes where as much of it is overwritten;
//! - [`rate`]: how fast it makes clean groups of thin ones.

pub mod log;
pub mod numbered;
pub mod pattern;
pub mod policy;
pub mod rate;
pub mod table;
pub mod volume;
