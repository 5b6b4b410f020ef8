//! A daemon that makes way for another one.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use loamfs_fs::Volume;

use super::change::Change;

/// Ends this process for a successor, or says why it cannot.
pub type MakeWay = Arc<dyn Fn(&Volume, Succession) -> Result<(), String> + Send + Sync>;

/// For what a daemon makes way.
pub enum Succession {
    /// Nothing: it only says whether it could.
    Asked,
    /// The program that is installed now.
    Upgrade,
    /// A change of the devices, with those that join.
    Change(Change, Vec<OwnedFd>),
}
