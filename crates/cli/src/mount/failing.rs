//! Notices that a volume takes no changes any more because something failed, and tells the supervisor, which can do what a
//! confined daemon cannot.

use std::sync::{Arc, OnceLock};
use std::time::{SystemTime, UNIX_EPOCH};

use loamfs_fs::Volume;
use serde_json::{Value, json};

use super::unmounter::Unmounter;

/// Longest reason that is told, in bytes.
const REASON_MAX: usize = 500;

/// What is known of that.
pub struct Failing {
    found: OnceLock<Found>,
    /// The supervisor has another daemon follow where room was wanting, and there is some.
    goes_on: bool,
}

struct Found {
    since: SystemTime,
    why: String,
    wants_room: bool,
}

impl Failing {
    /// Nothing failed yet.
    pub fn new(goes_on: bool) -> Self {
        Self {
            found: OnceLock::new(),
            goes_on,
        }
    }

    /// Looks whether it is so by now. The supervisor is told the first time.
    pub fn look(&self, volume: &Volume, supervisor: Option<&Arc<Unmounter>>) {
        if self.found.get().is_some() {
            return;
        }
        let access = volume.upkeep().access();
        let Some(why) = access.failure() else {
            return;
        };
        let wants_room = access.wants_room();
        let word = if wants_room { "full" } else { "failed" };
        if let Some(supervisor) = supervisor
            && let Err(error) = supervisor.say(&format!("{word} {}", in_one_line(&why)))
        {
            tracing::warn!("the supervisor: {error}");
        }
        // Nobody else looks.
        let _ = self.found.set(Found {
            since: SystemTime::now(),
            why,
            wants_room,
        });
    }

    /// Why changes are refused, if something failed.
    pub fn why(&self) -> Option<String> {
        self.found.get().map(|found| found.why.clone())
    }

    /// Since when, in seconds of the time of day, why, and whether it goes on by itself; null while nothing failed.
    pub fn to_json(&self) -> Value {
        self.found.get().map_or(Value::Null, |found| {
            let since = found.since.duration_since(UNIX_EPOCH);
            json!({
                "since": since.map_or(0, |since| since.as_secs()),
                "why": found.why,
                "goes_on_with_room": found.wants_room && self.goes_on,
            })
        })
    }
}

fn in_one_line(words: &str) -> String {
    let mut line: String = words
        .chars()
        .map(|letter| if letter.is_control() { ' ' } else { letter })
        .collect();
    while line.len() > REASON_MAX {
        line.pop();
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_one_line_and_not_too_long() {
        assert_eq!(in_one_line("one\ntwo"), "one two");
        assert_eq!(in_one_line(&"\u{e9}".repeat(REASON_MAX)).len(), REASON_MAX);
    }
}
