//! Data integrity on a real mount: random work on files beside shadow copies in memory, after the idea of fsx.
//!
//! - [`shadow`]: what a file holds, and what of it a crash may leave,
//! - [`mapped`]: loads and stores through mmap,
//! - [`worker`]: one process and its files,
//! - [`conductor`]: the mount, the worker processes, remounts and kills between.
//!
//! What each worker does follows from the seed; when a kill hits it does not. A failure prints what was last done to the
//! place that is wrong.

pub mod conductor;
pub mod mapped;
pub mod shadow;
pub mod worker;
