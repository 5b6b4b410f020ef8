//! A daemon that makes way for another one.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use loamfs_fs::{Access, Volume};

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

impl Succession {
    /// Why this daemon had better stay: what failed may keep another one from opening the volume, and this one can still be read
    /// from. Where the program itself was wrong, a newer one is the cure.
    pub fn refused(&self, access: &Access) -> Option<String> {
        let why = access.failure()?;
        if access.broken().is_some() && matches!(self, Self::Upgrade) {
            return None;
        }
        let advice = match access.wants_room() {
            true => "make room where the image is, and do this again once it goes on",
            false => "unmount it, and look at its device first",
        };
        Some(format!("the volume takes no changes: {why}; {advice}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use loamfs_device::DeviceError;

    fn failed(code: i32) -> Access {
        let error = DeviceError::io(loamfs_device::Op::Write, 0, 1, code);
        Access::LogFailed(error.into())
    }

    #[test]
    fn nobody_follows_where_the_log_failed() {
        let shrink = Succession::Change(Change::Shrink(1 << 30), Vec::new());
        for succession in [Succession::Asked, Succession::Upgrade, shrink] {
            let full = succession.refused(&failed(28)).expect("refused");
            assert!(full.contains("; make room where the image is"), "{full}");
            let failed = succession.refused(&failed(5)).expect("refused");
            assert!(failed.contains("; unmount it"), "{failed}");
            for fine in [Access::Writable, Access::ReadOnly, Access::Frozen] {
                assert_eq!(succession.refused(&fine), None);
            }
        }
    }

    #[test]
    fn a_newer_program_may_follow_one_that_was_wrong() {
        let broken = Access::Broken("it cannot be");
        assert_eq!(Succession::Upgrade.refused(&broken), None);
        assert!(Succession::Asked.refused(&broken).is_some());
    }
}
