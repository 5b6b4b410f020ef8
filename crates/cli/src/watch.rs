//! What a mount does while one looks: two reports of its daemon, and the difference.

use std::time::{Duration, Instant};

use loamfs_fuse::MountEntry;
use serde_json::{Value, json};

use crate::failure::{Failure, Kind};
use crate::mount::control::{self, Request};
use crate::text::shown_path;

/// What a daemon said, and when.
pub struct Sample {
    at: Instant,
    report: Value,
}

impl Sample {
    /// Asks the daemon of a mount.
    ///
    /// # Errors
    ///
    /// If it cannot be asked, or answers what this program does not understand.
    pub fn take(entry: &MountEntry) -> Result<Self, Failure> {
        let answer = control::ask(entry, &Request::Info)?;
        let report: Option<Value> = serde_json::from_str(&answer).ok();
        let Some(report) = report.filter(|report| report["operations"].is_object()) else {
            let shown = shown_path(&entry.path);
            let words =
                format!("the daemon of {shown} is another version of this program; mount it anew");
            return Err(Failure::new(Kind::Io, words));
        };
        Ok(Self {
            at: Instant::now(),
            report,
        })
    }

    /// A report that some daemon could have given.
    #[cfg(test)]
    pub fn of(report: Value) -> Self {
        let at = Instant::now();
        Self { at, report }
    }

    /// All that it said.
    pub const fn report(&self) -> &Value {
        &self.report
    }

    /// A number that it said; 0 where it said nothing.
    pub fn number(&self, path: &str) -> u64 {
        self.report
            .pointer(path)
            .and_then(Value::as_u64)
            .unwrap_or(0)
    }
}

/// What was done from one sample to a later one.
pub struct Change<'a> {
    /// The one before; nothing for all since the mount began.
    pub before: Option<&'a Sample>,
    /// The later one.
    pub now: &'a Sample,
}

impl Change<'_> {
    /// The time between; nothing since the mount began, which nobody timed.
    pub fn time(&self) -> Option<Duration> {
        self.before.map(|before| self.now.at - before.at)
    }

    /// By how much a counter has grown.
    pub fn grown(&self, path: &str) -> u64 {
        let before = self.before.map_or(0, |before| before.number(path));
        self.now.number(path).saturating_sub(before)
    }

    /// The kinds of operations, by name.
    pub fn kinds(&self) -> Vec<String> {
        let kinds = self.now.report["operations"].as_object();
        kinds
            .into_iter()
            .flatten()
            .map(|(name, _)| name.clone())
            .collect()
    }

    /// The same of all kinds of operations.
    pub fn all_kinds(&self, field: &str) -> u64 {
        let kinds = self.kinds();
        let each = kinds
            .iter()
            .map(|kind| self.grown(&format!("/operations/{kind}/{field}")));
        each.sum()
    }

    /// Nanoseconds that an operation of this kind took on average, if there was any.
    pub fn mean_nanos(&self, kind: &str) -> Option<u64> {
        let requests = self.grown(&format!("/operations/{kind}/requests"));
        self.grown(&format!("/operations/{kind}/nanoseconds"))
            .checked_div(requests)
    }

    /// The time in which 99 of 100 operations of this kind were done, by the bounds that the daemon counts by.
    pub fn slow_nanos(&self, kind: &str) -> Option<u64> {
        let requests = self.grown(&format!("/operations/{kind}/requests"));
        let bounds = self
            .now
            .report
            .pointer(&format!("/operations/{kind}/within"))?;
        let count = bounds.as_array()?.len();
        let place = (0..count).find(|place| {
            let path = format!("/operations/{kind}/within/{place}/requests");
            self.grown(&path).saturating_mul(100) >= requests.saturating_mul(99)
        })?;
        (requests > 0)
            .then(|| bounds[place]["nanoseconds"].as_u64())
            .flatten()
    }

    /// Processes that asked for something: number, requests, bytes; those that asked most first.
    pub fn processes(&self) -> Vec<(u64, u64, u64)> {
        let of = |sample: &Sample| -> Vec<(u64, u64, u64)> {
            let list = sample.report["processes"].as_array();
            let number = |row: &Value, field: &str| row[field].as_u64().unwrap_or(0);
            let rows = list.into_iter().flatten();
            rows.map(|row| {
                (
                    number(row, "process"),
                    number(row, "requests"),
                    number(row, "bytes"),
                )
            })
            .collect()
        };
        let before = self.before.map(of).unwrap_or_default();
        let mut now = of(self.now);
        for (process, requests, bytes) in &mut now {
            if let Some(known) = before.iter().find(|known| known.0 == *process) {
                *requests = requests.saturating_sub(known.1);
                *bytes = bytes.saturating_sub(known.2);
            }
        }
        now.retain(|(_, requests, _)| *requests > 0);
        now.sort_by_key(|(process, requests, _)| (std::cmp::Reverse(*requests), *process));
        now
    }

    /// As JSON, all figures in numbers of that time.
    pub fn to_json(&self) -> Value {
        let kinds = self.kinds().into_iter().map(|kind| {
            let grown = |field: &str| self.grown(&format!("/operations/{kind}/{field}"));
            let value = json!({
                "requests": grown("requests"),
                "errors": grown("errors"),
                "bytes": grown("bytes"),
                "mean_nanoseconds": self.mean_nanos(&kind),
                "slow_nanoseconds": self.slow_nanos(&kind),
            });
            (kind, value)
        });
        let processes = self
            .processes()
            .into_iter()
            .map(|(process, requests, bytes)| {
                json!({
                    "process": process,
                    "name": name_of(process),
                    "requests": requests,
                    "bytes": bytes,
                })
            });
        json!({
            "mountpoint": self.now.report["mountpoint"],
            "seconds": self.time().map(|time| time.as_secs_f64()),
            "operations": kinds.collect::<serde_json::Map<_, _>>(),
            "processes": processes.collect::<Vec<_>>(),
            "device": {
                "reads": self.grown("/requests/total/reads"),
                "read_bytes": self.grown("/requests/total/read_bytes"),
                "writes": self.grown("/requests/total/writes"),
                "write_bytes": self.grown("/requests/total/write_bytes"),
                "flushes": self.grown("/requests/flushes"),
                "discard_bytes": self.grown("/requests/discard_bytes"),
            },
            "segments": self.grown("/log/last_segment"),
            "cleaned_frags": self.grown("/log/cleaned_frags"),
            "cleaned_live_frags": self.grown("/log/cleaned_live_frags"),
            "unsettled_images": self.now.number("/log/unsettled_images"),
            "dirty_bytes": self.now.number("/memory/dirty_log_bytes") + self.now.number("/memory/dirty_home_bytes"),
            "free_bytes": self.now.number("/space/available"),
        })
    }
}

/// What a process is called, if it is still there and can be seen.
pub fn name_of(process: u64) -> Option<String> {
    let name = std::fs::read(format!("/proc/{process}/comm")).ok()?;
    Some(crate::text::shown(name.trim_ascii_end()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(requests: u64, nanos: u64, at: Instant) -> Sample {
        let report = json!({
            "operations": { "read": {
                "requests": requests, "nanoseconds": nanos, "bytes": 0, "errors": 0,
                "within": [
                    { "nanoseconds": 1000, "requests": requests / 2 },
                    { "nanoseconds": 9000, "requests": requests },
                ],
            } },
            "processes": [{ "process": 7, "requests": requests, "bytes": 0 }],
            "log": { "last_segment": requests },
        });
        Sample { at, report }
    }

    #[test]
    fn what_grew_is_told() {
        let start = Instant::now();
        let before = sample(10, 1_000, start);
        let now = sample(30, 41_000, start + Duration::from_secs(2));
        let change = Change {
            before: Some(&before),
            now: &now,
        };
        assert_eq!(change.all_kinds("requests"), 20);
        assert_eq!(change.mean_nanos("read"), Some(2_000));
        assert_eq!(change.slow_nanos("read"), Some(9_000));
        assert_eq!(change.processes(), [(7, 20, 0)]);
        let same = Change {
            before: Some(&now),
            now: &now,
        };
        assert_eq!((same.mean_nanos("read"), same.processes()), (None, vec![]));
    }
}
