//! Clauses of the commit and recovery rules that tests can leave out, by the names of the executable model
//! (`docs/model/law.py`). Builds without the feature `mutants` have no switch, and every clause.

#[cfg(feature = "mutants")]
mod switch {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::{PoisonError, RwLock};

    static ACTIVE: RwLock<Option<&'static str>> = RwLock::new(None);
    static SCATTERED: AtomicBool = AtomicBool::new(false);

    /// Leaves the clause of this name out from now on, in the whole process; `None` puts all back. Clauses that protect
    /// from the same go together: their names are joined by `+`.
    pub fn set(name: Option<&'static str>) {
        *ACTIVE.write().unwrap_or_else(PoisonError::into_inner) = name;
    }

    /// Whether the clause of this name is left out.
    pub fn active(name: &str) -> bool {
        let active = *ACTIVE.read().unwrap_or_else(PoisonError::into_inner);
        active.is_some_and(|names| names.split('+').any(|one| one == name))
    }

    /// Lets segments take the lowest free holes from now on, in the whole process, each block one of its own. That
    /// breaks no rule, and brings space that was freed back into use at once.
    pub fn scatter(on: bool) {
        SCATTERED.store(on, Ordering::Relaxed);
    }

    /// Whether segments take the lowest free holes.
    pub fn scattered() -> bool {
        SCATTERED.load(Ordering::Relaxed)
    }
}

#[cfg(feature = "mutants")]
pub use switch::{active, scatter, scattered, set};

/// Whether the clause of this name is left out: never, in this build.
#[cfg(not(feature = "mutants"))]
pub const fn active(_name: &str) -> bool {
    false
}

/// Whether segments take the lowest free holes, as tests may want it: never, in this build.
#[cfg(not(feature = "mutants"))]
pub const fn scattered() -> bool {
    false
}
