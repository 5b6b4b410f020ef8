//! A volume with a million files: the daemon's memory while all are touched, and what mounting it costs.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use loamfs_console::size::human;
use serde::Deserialize;

use super::{Scale, image_bytes};
use crate::Error;
use crate::lab::{Kind, Lab, Measured, Memory, Mounted, Tools, drop_caches, run as run_program};
use crate::table::Row;
use crate::trace::Op;
use crate::workload::{SmallFiles, write_new};

/// The daemon's `cache=`, in bytes.
const CACHE: u64 = 256 << 20;
/// What it may take besides.
const BESIDES: u64 = 64 << 20;
/// How often its memory is looked at; its peak the kernel keeps itself.
const LOOK: Duration = Duration::from_millis(20);
/// Requests of the look behind the end of a log that was cut off: 32 MiB (DESIGN.md, rule 4), in the largest requests of a
/// loop device, 512 KiB.
const LOOK_BEHIND: u64 = (32 << 20) / (512 << 10);

pub fn run(tools: &Tools, scale: Scale) -> Result<Vec<Row>, Error> {
    let files = SmallFiles {
        files: scale.files(1_000_000),
        per_directory: 1_000,
        bytes: (512, 1536),
    };
    let lab = Lab::new(tools, Kind::Loam, image_bytes(files.files))?;
    let mut rows = memory(&lab, &files)?;
    rows.extend(mounts(&lab, &files)?);
    lab.check()?;
    Ok(rows)
}

/// Makes, looks at and reads files, the daemon living on from one to the other.
fn memory(lab: &Lab, files: &SmallFiles) -> Result<Vec<Row>, Error> {
    let mounted = lab.mount_with(Some(&format!("cache={CACHE}")))?;
    let (result, most) = watched(&mounted, || -> Result<_, Error> {
        files.create(mounted.path())?;
        mounted.sync()?;
        let made = mounted.memory()?;
        // The kernel forgets, so that the daemon is asked again.
        drop_caches()?;
        files.stat(mounted.path())?;
        files.read(mounted.path(), 10)?;
        Ok(made)
    });
    let made = result?.unwrap_or_default();
    let end = mounted.memory()?.unwrap_or_default();
    mounted.unmount()?;
    let bound = CACHE + BESIDES;
    let what = format!(
        "daemon's memory, {} files made, looked at, read",
        files.files
    );
    Ok(vec![
        Row::claim(
            &what,
            format!("cache + 64 MiB = {}", human(bound)),
            format!(
                "peak {}, of it not of files {}",
                human(end.peak),
                human(most.anonymous)
            ),
            end.peak <= bound,
        ),
        Row::told(
            "  of it after all were made, and at the end",
            format!(
                "peak {}, resident {}",
                human(made.peak),
                human(end.resident)
            ),
        ),
    ])
}

/// Runs something, and returns with its result the most memory that was seen.
fn watched<T>(mounted: &Mounted, phase: impl FnOnce() -> T) -> (T, Memory) {
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let watcher = scope.spawn(|| {
            let mut most = Memory::default();
            while !done.load(Ordering::Relaxed) {
                if let Ok(Some(now)) = mounted.memory() {
                    most.resident = most.resident.max(now.resident);
                    most.anonymous = most.anonymous.max(now.anonymous);
                }
                thread::sleep(LOOK);
            }
            most
        });
        let result = phase();
        done.store(true, Ordering::Relaxed);
        (result, watcher.join().unwrap_or_default())
    })
}

/// Mounts it after a clean unmount, and after the daemon was killed while it made files.
fn mounts(lab: &Lab, files: &SmallFiles) -> Result<Vec<Row>, Error> {
    let clean = mount(lab, "mount after a clean unmount", 0)?;
    let mounted = lab.mount()?;
    let more = SmallFiles {
        files: files.files / 40,
        ..*files
    };
    let root = mounted.path().join("more");
    more.create(&root)?;
    // The last file is promised; those before it therefore, too.
    let path = root.join("promised");
    let file = write_new(&path, b"kept")?;
    file.sync_all().map_err(Error::at("fsync of", &path))?;
    drop(file);
    let last = SmallFiles {
        files: 5_000.min(files.files),
        ..*files
    };
    last.create(&root.join("last"))?;
    mounted.kill()?;
    let killed = mount(lab, "mount after kill -9", LOOK_BEHIND)?;
    let mounted = lab.mount()?;
    more.stat(&mounted.path().join("more"))?;
    let kept = std::fs::read(&path).map_err(Error::at("reading", &path))?;
    mounted.unmount()?;
    if kept != b"kept" {
        return Err(Error::Lacking("the file that was fsynced is lost".into()));
    }
    Ok([clean, killed].concat())
}

/// Mounts and unmounts it; `look` requests go behind the end of the log.
fn mount(lab: &Lab, what: &str, look: u64) -> Result<Vec<Row>, Error> {
    drop_caches()?;
    let log = log(lab)?;
    let (mounted, cost) = lab.measure(|| lab.mount())?;
    let seconds = mounted.opening_seconds();
    mounted.unmount()?;
    let bound = 64 + log.requests() + look;
    let (reads, writes) = (cost.trace.sum(Op::Read), cost.trace.sum(Op::Write));
    let requests = reads.requests + writes.requests;
    Ok(vec![
        Row::claim(
            format!("{what}: requests"),
            format!("64 + {} ({log}) + {look} behind its end", log.requests()),
            shown(&cost),
            requests <= bound,
        ),
        Row::claim(
            format!("{what}: time that it prints"),
            "under 1 s",
            seconds.map_or("none".into(), |s| format!("{s:.3} s")),
            seconds.is_some_and(|s| s < 1.0),
        ),
    ])
}

fn shown(cost: &Measured) -> String {
    let (reads, writes) = (cost.trace.sum(Op::Read), cost.trace.sum(Op::Write));
    format!(
        "{} ({} reads of {}, {} writes of {}), {:.3} s",
        reads.requests + writes.requests,
        reads.requests,
        human(reads.bytes),
        writes.requests,
        human(writes.bytes),
        cost.time.as_secs_f64()
    )
}

/// The part of the log that a mount has to read.
#[derive(Debug, Default)]
struct Log {
    segments: u64,
    summary_bytes: u64,
    /// Requests that the summaries are worth: one for each MiB, one for each at least.
    summary_requests: u64,
    /// Bytes of segments that are not known to be durable, whose bodies are verified.
    beyond: u64,
}

impl Log {
    fn requests(&self) -> u64 {
        self.summary_requests + self.beyond.div_ceil(1 << 20)
    }
}

impl std::fmt::Display for Log {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{} summaries of {}, {} beyond durable",
            self.segments,
            human(self.summary_bytes),
            human(self.beyond)
        )
    }
}

/// Reads it from what `loamfs dump` prints.
fn log(lab: &Lab) -> Result<Log, Error> {
    let dump = run_program(
        lab.loamfs()
            .args(["dump", "--json"])
            .arg(lab.device())
            .arg("segments"),
    )?;
    let fragment = fragment_size(lab)?;
    let read = segments(&dump);
    let durable = read.iter().map(|s| s.durable).max().unwrap_or(0);
    let mut log = Log::default();
    for segment in read {
        log.segments += 1;
        log.summary_bytes += segment.record_bytes;
        log.summary_requests += segment.record_bytes.div_ceil(1 << 20).max(1);
        if segment.segment > durable {
            log.beyond += segment.fragments * fragment;
        }
    }
    if log.segments == 0 {
        return Err(Error::Lacking(format!("no segments are seen in: {dump}")));
    }
    Ok(log)
}

/// A segment, as `loamfs dump --json DEVICE segments` shows it.
#[derive(Deserialize)]
struct Segment {
    segment: u64,
    durable: u64,
    record_bytes: u64,
    fragments: u64,
}

fn segments(dump: &str) -> Vec<Segment> {
    #[derive(Default, Deserialize)]
    struct Dump {
        segments: Vec<Segment>,
    }
    serde_json::from_str::<Dump>(dump)
        .unwrap_or_default()
        .segments
}

fn fragment_size(lab: &Lab) -> Result<u64, Error> {
    let text = run_program(lab.loamfs().args(["info", "--json"]).arg(lab.device()))?;
    let info: serde_json::Value = serde_json::from_str(&text).unwrap_or_default();
    let size = info.pointer("/volume/fragment_size");
    size.and_then(serde_json::Value::as_u64)
        .ok_or_else(|| Error::Lacking(format!("no fragment size is seen in: {text}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_are_read_from_the_dump() {
        let dump = r#"{ "segments": [{ "segment": 339, "kind": "Normal", "at": 4294, "durable": 337,
            "record_bytes": 4120, "fragments": 40, "extents": 1, "next": 77, "replay_starts_here": true }],
            "dropped": 2 }"#;
        let read = segments(dump);
        let [read] = read.as_slice() else {
            panic!("{} segments", read.len());
        };
        assert_eq!((read.segment, read.durable), (339, 337));
        assert_eq!((read.record_bytes, read.fragments), (4120, 40));
        assert!(segments("no segments").is_empty());
    }
}
