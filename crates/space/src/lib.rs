//! Free space of a LoamFS volume, in memory: bitmaps, extent summary trees, groups and their roles.
//!
//! [`Space`] knows of every fragment whether it may be written, and finds long free runs. It reads and writes
//! nothing: bitmaps of groups come from its caller when they are needed ([`FoundSpace::Load`], [`Space::load`]), and go
//! back to disk through [`Checkpoint`] at a checkpoint. It keeps no time,
//! starts no threads and draws no random numbers, so that the same calls always give the same addresses.
//!
//! A fragment is in one of five states, and its bit is set in all but the first:
//!
//! | state | entered by | left by |
//! |---|---|---|
//! | free | [`Space::release`], [`Space::abandon`] | |
//! | unshown: a home, or a place of a segment, that no segment shows yet | [`Space::allocate_unshown`] | [`Space::show`], [`Space::abandon`] |
//! | in use | [`Space::allocate`], [`Space::show`] | [`Space::free`], [`Space::retire`] |
//! | held back: freed, and still part of a state that a crash may bring back (rule 5) | [`Space::free`], [`Space::retire`] | [`Space::release`] |
//! | reserved for a superblock | [`Space::new`], [`Space::reserve`] | never |
//!
//! Who owns what:
//!
//! | concern | type |
//! |---|---|
//! | where groups and superblocks are | `Layout` |
//! | descriptors and bitmaps of groups; what of them is dirty | `Groups`, `Group`, `Changes` |
//! | the free-space index of a role: longest runs where bitmaps are in memory, upper bounds elsewhere | [`FreeIndex`] |
//! | where segments, extents and directories go | `PlacementState`, and [`Placement`], which searches |
//! | delayed deallocation | [`Held`] |
//! | homes that no segment shows | `Unshown` |
//! | extents of sections: what each has free, and which have enough | `ExtentMap`, of each group in memory |
//! | homes on fast devices that are to go to slow ones | [`Owed`] |
//! | owner records since the last checkpoint | [`Owners`] |
//!
//! [`Bitmaps`], [`Checkpoint`], [`Cleaning`] and [`Uneven`] look at them and own nothing; [`Areas`] says which groups serve
//! what, [`SpaceReplay`] applies what summaries say, [`SpaceRepair`] what repair knows.
// How many lines: `clippy.toml`.
#![deny(clippy::too_many_lines)]
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

mod bitmap;
mod bitmaps;
mod checkpoint;
mod cleaning;
mod error;
mod groups;
mod held;
pub mod law;
mod layout;
mod owed;
mod owners;
mod placement;
mod range_map;
pub mod role;
mod space;
mod spare;
mod uneven;
mod unshown;
mod usage;

#[cfg(test)]
mod model_tests;
#[cfg(test)]
mod tests;

pub use bitmaps::Bitmaps;
pub use checkpoint::{Checkpoint, ChunkValue};
pub use cleaning::{Candidate, Cleaning, CleaningCost, CleaningPolicy, Leaving, Outlook};
pub use error::SpaceError;
pub use groups::{Areas, FreeIndex, SpaceRepair};
pub use held::Held;
pub use layout::Section;
pub use loamfs_format::summary::Wait;
pub use owed::{Debtor, Owed};
pub use owners::{Owner, Owners};
pub use placement::{FoundSpace, Placement};
pub use role::Cells;
pub use space::{Space, SpaceReplay};
pub use spare::Spare;
pub use uneven::{Ragged, Uneven};
pub use usage::{ExtentUse, Usage};
