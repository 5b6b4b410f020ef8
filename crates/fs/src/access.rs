//! Whether a volume takes changes, and if not, why.
//!
//! ```text
//!             freeze                 a write to the log failed (rule 12)
//! Writable <----------> Frozen       Writable, Frozen ------------------> LogFailed
//!             thaw                   anything ---------------------------> Broken
//! ```
//! A volume that is opened read-only, or closed, is `ReadOnly` from then on.
//! Nothing is sealed, counted as durable or said in a superblock unless the volume is writable.

use crate::error::Error;

/// Whether a volume takes changes, and if not, why.
#[derive(Clone, Debug, Default)]
pub enum Access {
    /// It does.
    #[default]
    Writable,
    /// It was opened so, or it is closed.
    ReadOnly,
    /// Somebody asked for it while the volume was in use, and may ask for the opposite.
    Frozen,
    /// The log could not be written or flushed; so it stays until the next mount (rule 12).
    LogFailed(Error),
    /// The program met what cannot be, or an operation ended in the middle: what is in memory may be half an operation,
    /// which must never reach the device. So it stays until the next mount, which finds the last sealed segment.
    Broken(&'static str),
}

impl Access {
    /// Whether changes are taken.
    pub fn is_writable(&self) -> bool {
        matches!(self, Access::Writable)
    }

    /// What cannot be and was met all the same, if it was.
    pub fn broken(&self) -> Option<&'static str> {
        match self {
            Access::Broken(what) => Some(what),
            _ => None,
        }
    }

    /// What failed, if changes are refused because of that.
    pub fn failure(&self) -> Option<String> {
        match self {
            Access::LogFailed(error) => Some(format!("the log cannot be written: {error}")),
            Access::Broken(what) => Some(format!("a defect of this program: {what}")),
            Access::Writable | Access::ReadOnly | Access::Frozen => None,
        }
    }

    /// Whether the log failed for want of room below the device: where an image is, or in a pool.
    pub fn wants_room(&self) -> bool {
        matches!(self, Access::LogFailed(error) if error.is_for_want_of_room())
    }

    /// That the device may be told what is free. It may be where the log failed: what is free in memory waits for nothing
    /// (rule 5), so it is free whatever the next mount finds.
    ///
    /// # Errors
    /// As [`Access::check`].
    pub(crate) fn check_discard(&self) -> Result<(), Error> {
        match self {
            Access::LogFailed(_) => Ok(()),
            access => access.check(),
        }
    }

    /// That changes are taken.
    ///
    /// # Errors
    /// [`Error::ReadOnly`], or [`Error::Broken`].
    pub(crate) fn check(&self) -> Result<(), Error> {
        match self {
            Access::Writable => Ok(()),
            Access::ReadOnly | Access::Frozen | Access::LogFailed(_) => Err(Error::ReadOnly),
            Access::Broken(what) => Err(Error::Broken(what)),
        }
    }

    /// That nothing failed by which what was written may be lost, or must not count.
    ///
    /// # Errors
    /// As [`Access::check`].
    pub(crate) fn check_log(&self) -> Result<(), Error> {
        match self {
            Access::LogFailed(_) | Access::Broken(_) => self.check(),
            Access::Writable | Access::ReadOnly | Access::Frozen => Ok(()),
        }
    }

    /// Takes no changes from here on: the volume is closed.
    pub(crate) fn end(&mut self) {
        if self.is_writable() {
            *self = Access::ReadOnly;
        }
    }

    /// Takes no changes until [`Access::thaw`].
    pub(crate) fn freeze(&mut self) {
        if self.is_writable() {
            *self = Access::Frozen;
        }
    }

    /// Takes changes again.
    ///
    /// # Errors
    /// As [`Access::check`], when they are refused for another reason.
    pub(crate) fn thaw(&mut self) -> Result<(), Error> {
        if matches!(self, Access::Frozen) {
            *self = Access::Writable;
        }
        self.check()
    }

    /// Takes no changes any more since the log failed (rule 12).
    pub(crate) fn fail_log(&mut self, error: &Error) {
        if matches!(self, Access::Writable | Access::Frozen) {
            tracing::error!(%error, "the log cannot be written; the volume is read-only from here on");
            *self = Access::LogFailed(error.clone());
        }
    }

    /// Takes no changes any more since `what` cannot be. Returns the error of whoever met it.
    #[must_use = "whoever met it must not go on"]
    pub(crate) fn break_down(&mut self, what: &'static str) -> Error {
        if self.broken().is_none() {
            tracing::error!(
                what,
                "a defect of this program: nothing more is written until the next mount; please report it"
            );
            *self = Access::Broken(what);
        }
        Error::Broken(what)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::blocks::Stop;
    use crate::core::Core;
    use crate::operations::{Broken, Change, Claim, Operation, Plan};
    use crate::{Env, MkfsOptions, NewInode, OpenOptions, ROOT_INO, Volume, mkfs};
    use loamfs_device::{Device, MemoryDevice};
    use loamfs_format::{Ino, Ssn};
    use std::sync::Arc;

    fn volume() -> Volume {
        let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(16 << 20));
        mkfs(&device, &MkfsOptions::default(), &Env::fixed(1)).unwrap();
        Volume::open(device, &OpenOptions::default(), Env::fixed(2)).unwrap()
    }

    /// An operation whose change asks for what it had to have.
    struct Stopping;

    impl Operation for Stopping {
        type Change = Stopping;

        fn prepare(&self, _: &mut Core) -> Result<Plan<Stopping>, Stop> {
            Ok(Plan::Change(Stopping))
        }
    }

    impl Change for Stopping {
        type Done = ();

        fn claim(&self) -> Claim {
            Claim::Nothing
        }

        fn apply(self, _: &mut Core) -> Result<(), Broken> {
            Err(Stop::Crowded.into())
        }
    }

    #[test]
    fn a_prepared_change_that_stops_is_not_tried_again_and_breaks_the_volume() {
        let volume = volume();
        let mut runs = 0;
        let result = volume.run(|core| {
            runs += 1;
            core.perform(&Stopping)
        });
        assert!(matches!(result, Err(Error::Broken(_))));
        assert_eq!(runs, 1);
        assert!(volume.info().access.broken().is_some());
    }

    #[test]
    fn to_change_what_was_not_prepared_breaks_the_volume() {
        let volume = volume();
        let result = volume.run(|core| core.touch(Ino(77)));
        assert!(matches!(result, Err(Error::Broken(_))));
        assert!(volume.info().access.broken().is_some());
    }

    #[test]
    fn a_segment_that_is_out_of_order_is_not_written_and_breaks_the_volume() {
        let volume = volume();
        let lost = |core: &mut Core| {
            let mut tail = core.log.tail().clone();
            tail.ssn = tail.ssn.next().next();
            core.log.sealed(tail, Ssn(0), 0);
            Ok(())
        };
        volume.run(lost).unwrap();
        volume
            .create(ROOT_INO, b"file", &NewInode::of_mode(0o644))
            .unwrap();
        assert!(matches!(volume.sync(), Err(Error::Broken(_))));
        assert!(volume.info().access.broken().is_some());
    }

    #[test]
    fn only_what_was_frozen_thaws_and_what_broke_stays_so() {
        let mut access = Access::Writable;
        access.freeze();
        assert!(!access.is_writable());
        assert!(access.thaw().is_ok());

        access.fail_log(&Error::NoSpace);
        assert!(matches!(access.thaw(), Err(Error::ReadOnly)));

        let error = access.break_down("the first thing");
        assert!(matches!(error, Error::Broken("the first thing")));
        let _ = access.break_down("another thing");
        access.freeze();
        access.end();
        assert_eq!(access.broken(), Some("the first thing"));
        assert!(matches!(access.thaw(), Err(Error::Broken(_))));
    }
}
