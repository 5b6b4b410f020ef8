//! What file systems ask of a device, counted by the kernel.
//!
//! - [`trace`]: requests as the driver got them, and what they add up to;
//! - [`capture`]: takes a trace of any block device, and compares it with the device's own counters;
//! - [`lab`]: an image on a loop device, formatted, mounted, and taken away again whatever happens;
//! - [`workload`]: trees of small files, made, looked at and read;
//! - [`claims`]: what the project promises of LoamFS, each with its measurement.

#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

pub mod capture;
pub mod claims;
pub mod cleanup;
mod error;
pub mod lab;
pub mod table;
pub mod trace;
pub mod workload;

pub use error::Error;
