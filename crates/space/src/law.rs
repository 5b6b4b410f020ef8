//! What the rules demand of free space (`docs/DESIGN.md`, "The commit argument, rule by rule"): a pure function for each
//! decision. The defaults are the law. A volume is handed it when it is opened; only builds with the feature `overrule`,
//! which are for tests, can be handed another one.

use std::fmt::{self, Debug, Formatter};
use std::marker::PhantomData;
use std::ops::Deref;
use std::sync::Arc;

/// The decisions.
pub trait Rules: Debug + Send + Sync {
    /// Rule 5: what was freed and is allocated again is no longer held back.
    fn allocation_ends_hold(&self) -> bool {
        true
    }

    /// Rule 9: a checkpoint leaves out what no segment shows yet.
    fn leaves_out_unshown(&self) -> bool {
        true
    }

    /// No rule, but a habit: segments are long runs near each other. Without it each block takes the lowest hole, and
    /// what was freed is used again at once.
    fn gathers_segments(&self) -> bool {
        true
    }
}

/// The law as it stands.
#[derive(Debug)]
pub struct Lawful;

impl Rules for Lawful {}

/// A crate's rules that know the law.
pub trait Code: Debug + Send + Sync + 'static {
    /// The law.
    fn lawful() -> &'static Self;
}

impl Code for dyn Rules {
    #[inline]
    fn lawful() -> &'static Self {
        &Lawful
    }
}

/// The rules `R` that somebody goes by: the law, unless a test has handed him others.
pub struct Law<R: ?Sized> {
    #[cfg(feature = "overrule")]
    others: Option<Arc<R>>,
    rules: PhantomData<Arc<R>>,
}

impl<R: ?Sized> Law<R> {
    /// Other rules than the law.
    #[cfg(feature = "overrule")]
    pub fn of(others: Arc<R>) -> Self {
        Law {
            others: Some(others),
            rules: PhantomData,
        }
    }

    /// That part of it which somebody else goes by.
    pub fn part<S: ?Sized>(&self, _part: impl FnOnce(Arc<R>) -> Arc<S>) -> Law<S> {
        Law {
            #[cfg(feature = "overrule")]
            others: self.others.clone().map(_part),
            rules: PhantomData,
        }
    }
}

impl<R: ?Sized> Default for Law<R> {
    fn default() -> Self {
        Law {
            #[cfg(feature = "overrule")]
            others: None,
            rules: PhantomData,
        }
    }
}

impl<R: ?Sized> Clone for Law<R> {
    fn clone(&self) -> Self {
        self.part(|rules| rules)
    }
}

impl<R: Code + ?Sized> Deref for Law<R> {
    type Target = R;

    // What is behind it is known when it is compiled, so that without others nothing is left of it.
    #[inline]
    fn deref(&self) -> &R {
        #[cfg(feature = "overrule")]
        if let Some(others) = &self.others {
            return others;
        }
        R::lawful()
    }
}

impl<R: Code + ?Sized> Debug for Law<R> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}
