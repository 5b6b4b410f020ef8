//! Clauses of the commit and recovery rules that tests can leave out, by the names of the executable model
//! (`docs/model/law.py`). Builds without the feature `mutants` have no switch, and every clause.

#[cfg(feature = "mutants")]
mod switch {
    use std::sync::{PoisonError, RwLock};

    static ACTIVE: RwLock<Option<&'static str>> = RwLock::new(None);

    /// Leaves the clause of this name out from now on, in the whole process; `None` puts all back.
    pub fn set(name: Option<&'static str>) {
        *ACTIVE.write().unwrap_or_else(PoisonError::into_inner) = name;
    }

    /// Whether the clause of this name is left out.
    pub fn active(name: &str) -> bool {
        *ACTIVE.read().unwrap_or_else(PoisonError::into_inner) == Some(name)
    }
}

#[cfg(feature = "mutants")]
pub use switch::{active, set};

/// Whether the clause of this name is left out: never, in this build.
#[cfg(not(feature = "mutants"))]
pub const fn active(_name: &str) -> bool {
    false
}
