//! What a test found wrong.

use std::any::Any;
use std::cell::RefCell;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};
use std::sync::Once;

/// Something that must not be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The rule that is broken, in a few words that do not change from run to run.
    pub rule: &'static str,
    /// What was found, with names and numbers.
    pub detail: String,
}

impl Problem {
    /// A broken rule.
    pub fn new(rule: &'static str, detail: impl Into<String>) -> Self {
        Self {
            rule,
            detail: detail.into(),
        }
    }

    /// The same, with the place where it happened in front.
    #[must_use]
    pub fn at(mut self, place: impl fmt::Display) -> Self {
        self.detail = format!("{place}: {}", self.detail);
        self
    }

    /// What is the same for problems of one cause: the text without its numbers.
    pub fn signature(&self) -> String {
        let text = self.detail.chars().filter(|c| !c.is_ascii_digit());
        format!("{}: {}", self.rule, text.take(160).collect::<String>())
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.rule, self.detail)
    }
}

/// What a check ends with.
pub type Verdict<T = ()> = Result<T, Problem>;

/// Set to have panics inside tests printed with their backtraces.
const LOUD: &str = "LOAMFS_TESTING_LOUD";

thread_local! {
    /// Where a guarded test of this thread panicked; `None` outside of one.
    static PLACE: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Keeps panics of guarded tests quiet: cutting a run down may meet thousands.
fn install_hook() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = take_hook();
        let loud = std::env::var_os(LOUD).is_some();
        set_hook(Box::new(move |info| {
            let guarded = PLACE.with_borrow_mut(|place| {
                let inside = place.as_mut()?;
                *inside = info
                    .location()
                    .map_or_else(String::new, ToString::to_string);
                Some(())
            });
            if loud || guarded.is_none() {
                before(info);
            }
        }));
    });
}

/// Runs a test; a panic inside is a problem like any other.
pub fn guarded<T>(run: impl FnOnce() -> Verdict<T>) -> Verdict<T> {
    install_hook();
    let outer = PLACE.replace(Some(String::new()));
    // Whatever the test touched is thrown away after a panic, so that nobody
    // sees it half changed.
    let outcome = catch_unwind(AssertUnwindSafe(run));
    let place = PLACE.replace(outer).unwrap_or_default();
    outcome.unwrap_or_else(|cause| {
        let detail = format!("{place}: {}", message(cause.as_ref()));
        Err(Problem::new("panic", detail))
    })
}

fn message(cause: &(dyn Any + Send)) -> String {
    let text = cause.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| cause.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "without a message".to_owned())
}
