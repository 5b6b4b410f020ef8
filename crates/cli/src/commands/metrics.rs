//! `loamfs metrics`.

use std::path::PathBuf;

use clap::Args;
use loamfs_console::complete::ArgValueCompleter;
use loamfs_fuse::MountEntry;
use serde_json::{Value, json};

use crate::candidates::mounted;
use crate::failure::{Failure, Kind};
use crate::mounts;
use crate::output::{note, print_lines};
use crate::watch::Sample;

/// What people type.
const EXAMPLES: &str = "\
Examples:
  loamfs metrics >/var/lib/node_exporter/loamfs.prom
      Of all volumes that are mounted, for Prometheus's node_exporter.
  loamfs metrics --json /mnt
      Of one, for another program.";

/// Print what mounted volumes count, as OpenMetrics.
///
/// Counters begin anew with each mount; those of the device and of the cleaner also when a daemon that died is replaced.
/// Sizes are bytes, times seconds.
#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub struct MetricsArgs {
    /// Where volumes are mounted, or their devices or image files. Default: all that the caller may ask.
    #[arg(value_name = "VOLUME", add = ArgValueCompleter::new(mounted))]
    volumes: Vec<PathBuf>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// What a figure is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Type {
    Counter,
    Gauge,
}

/// Figures of the whole volume: name, what it is, where the daemon's report has it, and what it means.
const FIGURES: [(&str, Type, &str, &str); 31] = {
    use Type::{Counter, Gauge};
    [
        (
            "read_only",
            Gauge,
            "/read_only",
            "1 while the volume takes no changes.",
        ),
        (
            "daemons_died",
            Counter,
            "/daemons_died/count",
            "Daemons that died and were replaced.",
        ),
        ("size_bytes", Gauge, "/space/bytes", "Size of the volume."),
        ("free_bytes", Gauge, "/space/free", "What is free."),
        (
            "available_bytes",
            Gauge,
            "/space/available",
            "What of it is for files.",
        ),
        ("inodes", Gauge, "/space/inodes", "Inodes in use."),
        ("log_groups", Gauge, "/groups/log", "Groups of the log."),
        (
            "data_groups",
            Gauge,
            "/groups/data",
            "Groups of large files' data.",
        ),
        ("track_groups", Gauge, "/groups/track", "Groups of tracks."),
        (
            "free_groups",
            Gauge,
            "/groups/free",
            "Groups of none of these.",
        ),
        (
            "segment",
            Gauge,
            "/log/last_segment",
            "Number of the last segment.",
        ),
        (
            "durable_segment",
            Gauge,
            "/log/durable_segment",
            "Number of the last one that is durable.",
        ),
        (
            "unsettled_images",
            Gauge,
            "/log/unsettled_images",
            "Parts of large files that wait in the log.",
        ),
        (
            "cold_reads",
            Counter,
            "/tracks/cold_reads",
            "Reads of small files out of the log that took a request for inode and contents each, where tracks may form in idle times.",
        ),
        (
            "settled_files",
            Counter,
            "/tracks/formed_files",
            "Files that were put into tracks in idle times.",
        ),
        (
            "settled_bytes",
            Counter,
            "/tracks/formed_bytes",
            "Bytes of these.",
        ),
        (
            "hot_bytes",
            Gauge,
            "/hot/held_bytes",
            "Bytes of large files on slow devices that stand on fast ones too.",
        ),
        (
            "hot_read_bytes",
            Counter,
            "/hot/hit_bytes",
            "Bytes of large files that were read there.",
        ),
        (
            "slow_read_bytes",
            Counter,
            "/hot/missed_bytes",
            "Bytes of large files that were read on slow devices.",
        ),
        (
            "owed_bytes",
            Gauge,
            "/groups/owed_bytes",
            "Bytes of large files that stand on fast devices and go to slow ones later.",
        ),
        (
            "cleaned_fragments",
            Counter,
            "/log/cleaned_frags",
            "Fragments that the cleaner emptied.",
        ),
        (
            "cleaned_live_fragments",
            Counter,
            "/log/cleaned_live_frags",
            "Those of them that were in use, and moved.",
        ),
        (
            "written_bytes",
            Counter,
            "/log/written_bytes",
            "Bytes of contents that programs wrote.",
        ),
        (
            "longest_wait_seconds",
            Gauge,
            "/log/longest_wait_seconds",
            "The longest that an operation waited for room.",
        ),
        (
            "cache_bytes",
            Gauge,
            "/memory/cache_bytes",
            "What the caches may take.",
        ),
        (
            "cached_bytes",
            Gauge,
            "/memory/cached_bytes",
            "What they take.",
        ),
        (
            "dirty_log_bytes",
            Gauge,
            "/memory/dirty_log_bytes",
            "What waits for the log.",
        ),
        (
            "dirty_home_bytes",
            Gauge,
            "/memory/dirty_home_bytes",
            "What waits for places of its own.",
        ),
        (
            "device_flushes",
            Counter,
            "/requests/flushes",
            "Flushes of the device.",
        ),
        (
            "scrub_damaged_blocks",
            Gauge,
            "/scrub/damaged",
            "Damaged blocks that the scrub found.",
        ),
        (
            "scrub_healed_blocks",
            Gauge,
            "/scrub/healed",
            "Those of them that were written anew.",
        ),
    ]
};

impl MetricsArgs {
    /// Carries it out.
    ///
    /// # Errors
    ///
    /// If nothing is mounted there, or a daemon cannot be asked.
    pub fn run(self) -> Result<u8, Failure> {
        let samples = self.samples()?;
        if self.json {
            let reports: Vec<&Value> = samples.iter().map(Sample::report).collect();
            return print_lines([format!("{:#}", json!(reports))]);
        }
        let reports: Vec<&Value> = samples.iter().map(Sample::report).collect();
        print_lines([text(&reports)])
    }

    /// What the daemons say. One of those that were not named may be of another version; that is told beside.
    fn samples(&self) -> Result<Vec<Sample>, Failure> {
        let mut samples = Vec::new();
        for entry in self.entries()? {
            match Sample::take(&entry) {
                Err(failure) if self.volumes.is_empty() => note(&format!("loamfs: {failure}")),
                taken => samples.push(taken?),
            }
        }
        Ok(samples)
    }

    fn entries(&self) -> Result<Vec<MountEntry>, Failure> {
        if !self.volumes.is_empty() {
            return self
                .volumes
                .iter()
                .map(|path| mounts::mounted(path))
                .collect();
        }
        let mut found: Vec<MountEntry> = Vec::new();
        for entry in mounts::trusted() {
            // A volume may be mounted in several places.
            if !found.iter().any(|known| known.device == entry.device)
                && !loamfs_fuse::is_dead(&entry.path)
            {
                found.push(entry);
            }
        }
        match found.is_empty() {
            true => Err(Failure::new(
                Kind::NoInput,
                "no LoamFS is mounted; mount a volume first",
            )),
            false => Ok(found),
        }
    }
}

/// A family of figures: its head, and a line for each value.
struct Family<'a> {
    lines: Vec<String>,
    name: String,
    reports: &'a [&'a Value],
    suffix: &'static str,
}

impl<'a> Family<'a> {
    fn new(name: &str, kind: Type, help: &str, reports: &'a [&'a Value]) -> Self {
        let (word, suffix) = match kind {
            Type::Counter => ("counter", "_total"),
            Type::Gauge => ("gauge", ""),
        };
        let name = format!("loamfs_{name}");
        Self {
            lines: vec![
                format!("# TYPE {name} {word}"),
                format!("# HELP {name} {help}"),
            ],
            name,
            reports,
            suffix,
        }
    }

    /// A value of each volume, with further labels.
    fn values(mut self, labels: &[(&str, &str)], value: impl Fn(&Value) -> Option<f64>) -> Self {
        for report in self.reports {
            let Some(value) = value(report) else { continue };
            let of = |path: &str| report.pointer(path).and_then(Value::as_str).unwrap_or("");
            let own = [
                ("uuid", of("/volume/uuid")),
                ("label", of("/volume/label")),
                ("mountpoint", of("/mountpoint")),
            ];
            let all = own.iter().chain(labels);
            let all: Vec<String> = all
                .map(|(name, value)| format!("{name}=\"{}\"", escaped(value)))
                .collect();
            self.lines.push(format!(
                "{}{}{{{}}} {value}",
                self.name,
                self.suffix,
                all.join(",")
            ));
        }
        self
    }
}

/// As OpenMetrics wants it: a backslash before what ends a label.
fn escaped(value: &str) -> String {
    value
        .replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n")
}

fn number(report: &Value, path: &str) -> Option<f64> {
    match report.pointer(path)? {
        Value::Bool(on) => Some(f64::from(u8::from(*on))),
        value => value.as_f64(),
    }
}

/// The names of what is in an object of any of the reports.
fn names(reports: &[&Value], path: &str) -> Vec<String> {
    let objects = reports
        .iter()
        .filter_map(|report| report.pointer(path)?.as_object());
    let mut names: Vec<String> = objects.flatten().map(|(name, _)| name.clone()).collect();
    names.sort();
    names.dedup();
    names
}

fn text(reports: &[&Value]) -> String {
    let mut families: Vec<Family<'_>> = FIGURES
        .iter()
        .map(|(name, kind, path, help)| {
            Family::new(name, *kind, help, reports).values(&[], |report| number(report, path))
        })
        .collect();
    let by_kind = |name: &str, help: &str, base: &str, label: &str, field: &str, unit: f64| {
        let family = Family::new(name, Type::Counter, help, reports);
        names(reports, base).iter().fold(family, |family, kind| {
            let path = format!("{base}/{kind}/{field}");
            family.values(&[(label, kind)], |report| {
                Some(number(report, &path)? / unit)
            })
        })
    };
    for (name, help, field, unit) in [
        ("operations", "What programs asked for.", "requests", 1.0),
        ("operation_errors", "What of it was refused.", "errors", 1.0),
        (
            "operation_bytes",
            "Content that it read or wrote.",
            "bytes",
            1.0,
        ),
        (
            "operation_seconds",
            "How long it took, all together.",
            "nanoseconds",
            1e9,
        ),
    ] {
        families.push(by_kind(name, help, "/operations", "operation", field, unit));
    }
    let errors = Family::new(
        "errors",
        Type::Counter,
        "Errors that programs got.",
        reports,
    );
    families.push(
        names(reports, "/errors")
            .iter()
            .fold(errors, |family, kind| {
                let path = format!("/errors/{kind}");
                family.values(&[("kind", kind)], |report| number(report, &path))
            }),
    );
    let damaged = Family::new(
        "damaged_files",
        Type::Gauge,
        "Files known to be damaged.",
        reports,
    );
    families.push(damaged.values(&[], |report| {
        Some(report.pointer("/damaged_files")?.as_array()?.len() as f64)
    }));
    for (name, help, field) in [
        ("device_reads", "Reads of the device.", "reads"),
        ("device_read_bytes", "What they read.", "read_bytes"),
        ("device_writes", "Writes to the device.", "writes"),
        ("device_written_bytes", "What they wrote.", "write_bytes"),
    ] {
        families.push(by_kind(name, help, "/requests/by_kind", "of", field, 1.0));
    }
    let mut lines: Vec<String> = families
        .into_iter()
        .flat_map(|family| family.lines)
        .collect();
    lines.push("# EOF".to_owned());
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_volume_has_a_line_in_each_family() {
        let report = json!({
            "mountpoint": "/mnt/a \"b\"",
            "read_only": true,
            "volume": { "uuid": "u", "label": "l" },
            "errors": { "damaged": 2 },
            "damaged_files": [{ "path": "/a" }],
            "operations": { "read": { "requests": 3, "nanoseconds": 1_500_000_000 } },
        });
        let text = text(&[&report]);
        for line in [
            "# TYPE loamfs_read_only gauge",
            "loamfs_read_only{uuid=\"u\",label=\"l\",mountpoint=\"/mnt/a \\\"b\\\"\"} 1",
            "loamfs_errors_total{uuid=\"u\",label=\"l\",mountpoint=\"/mnt/a \\\"b\\\"\",kind=\"damaged\"} 2",
            "loamfs_damaged_files{uuid=\"u\",label=\"l\",mountpoint=\"/mnt/a \\\"b\\\"\"} 1",
            "# TYPE loamfs_operations counter",
            "loamfs_operations_total{uuid=\"u\",label=\"l\",mountpoint=\"/mnt/a \\\"b\\\"\",operation=\"read\"} 3",
            "loamfs_operation_seconds_total{uuid=\"u\",label=\"l\",mountpoint=\"/mnt/a \\\"b\\\"\",operation=\"read\"} 1.5",
        ] {
            assert!(text.lines().any(|told| told == line), "no {line} in {text}");
        }
        assert!(text.ends_with("# EOF"));
    }
}
