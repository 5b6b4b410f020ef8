//! What file systems ask of a device, counted by the kernel.
//!
//! - [`trace`]: requests as the driver got them, and what they add up to;
//! - [`capture`]: takes a trace of any block device, and compares it with the device's own counters;
//! - [`lab`]: an image on a loop device, formatted, mounted, and taken away again whatever happens;
//! - [`workload`]: trees of small files, made, looked at and read;
//! - [`disk`]: disks of a model, which price a trace;
//! - [`hash`]: what it costs to compute where a small file lies;
//! - [`clean`]: what cleaning a log costs, policies side by side;
//! - [`settler`]: when what was overwritten should settle, policies side by side;
//! - [`tracks`]: what tracks are worth, beside reading from the log;
//! - [`suite`]: the papers' workloads, run on each file system;
//! - [`emulate`]: a machine that is emulated, for file systems that this one's kernel lacks;
//! - [`requests`]: what a FUSE mount is asked for each operation, counted by the kernel;
//! - [`mount`]: rates and CPU time of operations on mounts, side by side;
//! - [`elapsed`]: how long programs take on mounts, side by side;
//! - [`streams`]: rates of large files that are written and read, side by side;
//! - [`tiers`]: a volume on two disks, beside the same work on each;
//! - [`beside`]: figures of file systems side by side;
//! - [`ceiling`]: a FUSE server that does no other work, to compare with;
//! - [`results`]: what they came to, kept between runs;
//! - [`report`]: a page that shows it beside the papers' figures;
//! - [`command`]: the command line of the program;
//! - [`claims`]: what the project promises of LoamFS, each with its measurement.

#![cfg_attr(not(test), deny(clippy::too_many_lines))]
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

pub mod beside;
pub mod capture;
pub mod ceiling;
pub mod claims;
pub mod clean;
pub mod cleanup;
pub mod command;
mod cpu;
pub mod disk;
pub mod elapsed;
pub mod emulate;
mod error;
pub mod hash;
pub mod lab;
mod machine;
mod modelled;
pub mod mount;
mod operation;
pub mod report;
pub mod requests;
pub mod results;
pub mod rounds;
pub mod settler;
pub mod stand;
pub mod streams;
pub mod suite;
pub mod table;
pub mod tiers;
pub mod trace;
pub mod tracks;
pub mod workload;

pub use error::Error;
