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
#[derive(Default)]
pub struct Failing(OnceLock<(SystemTime, String)>);

impl Failing {
    /// Looks whether it is so by now. The supervisor is told the first time.
    pub fn look(&self, volume: &Volume, supervisor: Option<&Arc<Unmounter>>) {
        if self.0.get().is_some() {
            return;
        }
        let Some(why) = volume.upkeep().access().failure() else {
            return;
        };
        if let Some(supervisor) = supervisor
            && let Err(error) = supervisor.say(&format!("failed {}", in_one_line(&why)))
        {
            tracing::warn!("the supervisor: {error}");
        }
        // Nobody else looks.
        let _ = self.0.set((SystemTime::now(), why));
    }

    /// Since when, in seconds of the time of day, and why; null while nothing failed.
    pub fn to_json(&self) -> Value {
        self.0.get().map_or(Value::Null, |(since, why)| {
            let since = since.duration_since(UNIX_EPOCH);
            json!({ "since": since.map_or(0, |since| since.as_secs()), "why": why })
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
