//! Whether the calling thread waits for a device, for room, or for others that do.
//!
//! Who serves many must not wait with one of them. It tries each call first, and hands over what would have to wait. A
//! call that would is refused before it has changed anything, and so is every other one behind it: what was tried can be
//! called again as a whole.

use crate::error::Error;
use std::cell::Cell;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Patience {
    /// It waits.
    Endless,
    /// It does not.
    None,
    /// It does not, and would have had to.
    Lost,
}

thread_local! {
    static PATIENCE: Cell<Patience> = const { Cell::new(Patience::Endless) };
}

/// Something would have had to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WouldWait;

/// Puts back what was before, also behind a panic.
struct Before(Patience);

impl Drop for Before {
    fn drop(&mut self) {
        PATIENCE.set(self.0);
    }
}

/// Runs `calls` of volumes on this thread, none of which waits.
///
/// # Errors
/// [`WouldWait`] if one would have had to; it and those behind it changed nothing. So `calls` can be made once more, as
/// long as those before it can.
pub fn without_waiting<T>(calls: impl FnOnce() -> T) -> Result<T, WouldWait> {
    let _before = Before(PATIENCE.replace(Patience::None));
    let value = calls();
    match PATIENCE.get() {
        Patience::Lost => Err(WouldWait),
        Patience::None | Patience::Endless => Ok(value),
    }
}

/// Runs what is no part of the call behind which it comes: that it would wait is nothing to that.
pub(crate) fn apart<T>(work: impl FnOnce() -> T) -> T {
    let _before = Before(PATIENCE.get());
    work()
}

/// Before waiting.
///
/// # Errors
/// [`Error::WouldWait`] where it is not to be.
pub(crate) fn wait() -> Result<(), Error> {
    if PATIENCE.get() == Patience::Endless {
        return Ok(());
    }
    PATIENCE.set(Patience::Lost);
    Err(Error::WouldWait)
}

/// Whether waiting is allowed.
pub(crate) fn is_endless() -> bool {
    PATIENCE.get() == Patience::Endless
}

/// Before a call.
///
/// # Errors
/// [`Error::WouldWait`] if one before it would have waited.
pub(crate) fn go_on() -> Result<(), Error> {
    match PATIENCE.get() {
        Patience::Lost => Err(Error::WouldWait),
        Patience::None | Patience::Endless => Ok(()),
    }
}

/// Behind a change that must not be made again: whatever is left to do for it waits.
///
/// # Errors
/// [`Error::WouldWait`] as [`go_on`].
pub(crate) fn wait_from_here() -> Result<(), Error> {
    go_on()?;
    PATIENCE.set(Patience::Endless);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_waits_once_is_refused_from_then_on() {
        assert!(wait().is_ok());
        let tried = without_waiting(|| {
            assert!(go_on().is_ok());
            assert!(wait().is_err());
            assert!(go_on().is_err());
            assert!(wait_from_here().is_err());
        });
        assert_eq!(tried, Err(WouldWait));
        assert!(wait().is_ok() && go_on().is_ok());
    }

    #[test]
    fn what_is_apart_is_nothing_to_the_call() {
        let tried = without_waiting(|| apart(|| wait().is_err()));
        assert_eq!(tried, Ok(true));
    }

    #[test]
    fn from_some_point_on_it_may_wait() {
        let tried = without_waiting(|| wait_from_here().is_ok() && wait().is_ok());
        assert_eq!(tried, Ok(true));
    }

    #[test]
    fn a_panic_leaves_no_haste() {
        let panicked = std::panic::catch_unwind(|| without_waiting(|| panic!("on purpose")));
        assert!(panicked.is_err() && wait().is_ok());
    }
}
