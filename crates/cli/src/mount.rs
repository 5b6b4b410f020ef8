//! Everything behind `loamfs mount`: its options, the daemon that serves a mount, and how others
//! talk to that daemon.

pub mod again;
pub mod beside;
mod cache;
pub mod change;
mod confine;
pub mod control;
pub mod daemon;
mod emptier;
mod failing;
mod greeting;
mod handler;
pub mod handover;
mod heir;
mod holders;
mod keep;
pub mod known;
pub mod log;
pub mod lost;
mod memory;
mod old_loop;
pub mod options;
mod packets;
pub mod promise;
mod reaction;
mod room;
pub mod scrubber;
mod signals;
mod source;
pub mod spawn;
pub mod spec;
mod stale;
mod standing;
mod state;
mod stop;
pub mod supervisor;
mod ticker;
pub mod transport;
pub mod unmounter;
mod unwritable;
mod words;
mod writers;

pub use cache::machine as machine_memory;
pub use holders::nobody_writes;
pub use old_loop::{refused as refuse_attached, wait_until_harmless};
pub use stale::clear_one as clear_dead;
