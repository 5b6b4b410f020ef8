//! `loamfs doctor`.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use clap::Args;
use loamfs_console::complete::ArgValueCompleter;
use loamfs_console::size::{count, human};
use loamfs_fuse::MountEntry;
use rustix::process::geteuid;
use serde_json::{Value, json};

use crate::candidates::mounted;
use crate::failure::Failure;
use crate::mount::machine_memory;
use crate::mounts;
use crate::output::print_lines;
use crate::text::{shown_path, wrapped};
use crate::watch::Sample;

/// What people type.
const EXAMPLES: &str = "\
Examples:
  loamfs doctor
      Looks at this machine and at all volumes that are mounted.
  loamfs doctor --json /mnt
      At one of them, for a program to read.";

/// How the kernel says whether requests can travel through io_uring.
const ENABLE_URING: &str = "/sys/module/fuse/parameters/enable_uring";

/// The least kernel that has it.
const URING_KERNEL: (u32, u32) = (6, 14);

/// Memory beyond which a cache is small: so many times the cache.
const MEMORY_PER_CACHE: u64 = 24;

/// Days after which a scrub is due.
const SCRUB_DAYS: i64 = 35;

/// Images that wait before it is worth telling.
const MANY_IMAGES: u64 = 50_000;

/// What a line of a report begins with: its name, and blanks.
const INDENT: usize = 10;

/// Say what would make this machine and its volumes faster or safer.
///
/// Looks at the kernel, how requests travel, caches beside memory, what the disk is, failures and damage, read-only volumes,
/// missing devices, scrubs, free space, and what the daemon has given up. Changes nothing.
///
/// The exit code is 0 if nothing is wrong, though there may be advice, and 4 if something is.
#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub struct DoctorArgs {
    /// Where volumes are mounted, or their devices or image files. Default: all that the caller may ask.
    #[arg(value_name = "VOLUME", add = ArgValueCompleter::new(mounted))]
    volumes: Vec<PathBuf>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// How much something matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Weight {
    /// It is as it should be.
    Good,
    /// It could be better.
    Advice,
    /// It should not stay so.
    Wrong,
}

impl Weight {
    const fn word(self) -> &'static str {
        match self {
            Self::Good => "good",
            Self::Advice => "advice",
            Self::Wrong => "wrong",
        }
    }
}

/// Something that was looked at.
#[derive(Debug)]
struct Finding {
    weight: Weight,
    /// By what programs know it.
    name: &'static str,
    words: String,
}

fn finding(weight: Weight, name: &'static str, words: impl Into<String>) -> Finding {
    Finding {
        weight,
        name,
        words: words.into(),
    }
}

impl DoctorArgs {
    /// Carries it out.
    ///
    /// # Errors
    ///
    /// If nothing is mounted there, or a daemon cannot be asked.
    pub fn run(self) -> Result<u8, Failure> {
        let mut places = vec![("this machine".to_owned(), machine())];
        for entry in self.entries()? {
            let findings = match loamfs_fuse::is_dead(&entry.path) {
                true => vec![finding(
                    Weight::Wrong,
                    "daemon",
                    "its daemon has died; `loamfs unmount` clears the mount, and the next one recovers",
                )],
                false => match Sample::take(&entry) {
                    Ok(sample) => of_mount(&entry, &sample),
                    Err(failure) => vec![finding(Weight::Wrong, "daemon", failure.to_string())],
                },
            };
            places.push((shown_path(&entry.path), findings));
        }
        self.say(&places)?;
        let is_wrong = |finding: &Finding| finding.weight == Weight::Wrong;
        let wrong = places
            .iter()
            .any(|(_, findings)| findings.iter().any(is_wrong));
        Ok(if wrong { 4 } else { 0 })
    }

    fn entries(&self) -> Result<Vec<MountEntry>, Failure> {
        match self.volumes.is_empty() {
            true => Ok(mounts::trusted()),
            false => self
                .volumes
                .iter()
                .map(|path| mounts::mounted(path))
                .collect(),
        }
    }

    fn say(&self, places: &[(String, Vec<Finding>)]) -> Result<u8, Failure> {
        if self.json {
            let rows = places.iter().map(|(place, findings)| {
                let findings = findings.iter().map(|found| {
                    json!({ "weight": found.weight.word(), "name": found.name, "sentence": found.words })
                });
                json!({ "place": place, "findings": findings.collect::<Vec<_>>() })
            });
            return print_lines([format!("{:#}", json!(rows.collect::<Vec<_>>()))]);
        }
        let lines = places.iter().flat_map(|(place, findings)| {
            let told = findings.iter().map(|found| {
                let line = format!("  {:<8}{}", found.weight.word(), found.words);
                wrapped(&line, INDENT)
            });
            std::iter::once(format!("{place}:")).chain(told)
        });
        print_lines(lines)
    }
}

/// What can be said without a volume.
fn machine() -> Vec<Finding> {
    let release = rustix::system::uname();
    let release = release.release().to_string_lossy().into_owned();
    let version = version(&release);
    let mut found = vec![];
    let kernel = format!("Linux {release}");
    let has_uring = version.is_some_and(|version| version >= URING_KERNEL);
    match has_uring {
        true => found.push(finding(Weight::Good, "kernel", kernel)),
        false => found.push(finding(
            Weight::Advice,
            "kernel",
            format!("{kernel}: from 6.14 on requests can travel through io_uring, which makes small files up to several times as fast"),
        )),
    }
    let enabled = fs::read_to_string(ENABLE_URING)
        .ok()
        .map(|text| text.trim() == "Y");
    if has_uring && enabled == Some(false) {
        found.push(finding(
            Weight::Advice,
            "enable_uring",
            format!("io_uring is switched off for FUSE; `echo Y >{ENABLE_URING}` as root, or mount with -o transport=uring"),
        ));
    }
    if !Path::new("/dev/fuse").exists() {
        found.push(finding(
            Weight::Wrong,
            "fuse",
            "/dev/fuse is missing, so nothing can be mounted; `modprobe fuse`",
        ));
    }
    found.extend(user_mounts());
    found
}

/// The two first numbers of a release of Linux.
fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|letter: char| !letter.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

/// Whether ordinary users can mount.
fn user_mounts() -> Option<Finding> {
    let helper = ["/usr/bin/fusermount3", "/bin/fusermount3"]
        .into_iter()
        .find_map(|path| fs::metadata(path).ok());
    let words = match helper {
        None => "fusermount3 is missing, so only root can mount; install fuse3",
        Some(found) if found.permissions().mode() & 0o4000 == 0 => {
            "fusermount3 is not set-user-id, so only root can mount; install fuse3 anew"
        }
        Some(_) => return None,
    };
    Some(finding(Weight::Advice, "fusermount3", words))
}

/// What can be said of a mount.
fn of_mount(entry: &MountEntry, sample: &Sample) -> Vec<Finding> {
    let looks: [fn(&MountEntry, &Sample) -> Option<Finding>; 10] = [
        changes,
        missing,
        damage,
        kind,
        transport,
        cache,
        disk,
        scrub,
        space,
        confinement,
    ];
    let mut found: Vec<Finding> = looks
        .iter()
        .filter_map(|look| look(entry, sample))
        .collect();
    found.extend(host(sample));
    found.extend(images(sample));
    if found.iter().all(|found| found.weight == Weight::Good) {
        found.push(finding(Weight::Good, "all", "nothing to say"));
    }
    found
}

fn changes(_: &MountEntry, sample: &Sample) -> Option<Finding> {
    let report = sample.report();
    let why = report["failure"]["why"]
        .as_str()
        .or_else(|| report["broken"].as_str());
    let (weight, words) = match (why, &report["lost_segments"]) {
        (Some(why), _) => (Weight::Wrong, format!("takes no changes any more: {why}")),
        (None, Value::Object(loss)) => (
            Weight::Wrong,
            format!(
                "a part of its log is lost: {}; save what is needed, then mount it with -o accept-loss",
                loss["reason"].as_str().unwrap_or("?")
            ),
        ),
        (None, _) if report["read_only"] == true => (
            Weight::Advice,
            "takes no changes: it was mounted for reading only, or is frozen".to_owned(),
        ),
        _ => return None,
    };
    Some(finding(weight, "changes", words))
}

/// Devices of several that are not there.
fn missing(_: &MountEntry, sample: &Sample) -> Option<Finding> {
    let devices = sample.report()["devices"].as_array()?;
    let missing = devices.iter().filter(|it| it["state"] == "missing");
    let numbers: Vec<String> = missing.map(|it| it["device"].to_string()).collect();
    let words = match &numbers[..] {
        [] => return None,
        [number] => format!("device {number} is missing"),
        numbers => format!("devices {} are missing", numbers.join(", ")),
    };
    let words = format!(
        "{words}; attach it and mount the volume anew, or see what `loamfs device remove --missing` would lose"
    );
    Some(finding(Weight::Wrong, "missing", words))
}

fn damage(_: &MountEntry, sample: &Sample) -> Option<Finding> {
    let files = sample.report()["damaged_files"].as_array();
    let files = files.map_or(0, |files| files.len() as u64);
    if files > 0 {
        let words = format!(
            "{} known to be damaged; `loamfs info` names what is, and `loamfs check` tells more",
            count(files, "file is", "files are")
        );
        return Some(finding(Weight::Wrong, "damage", words));
    }
    let left = sample
        .number("/scrub/damaged")
        .saturating_sub(sample.number("/scrub/healed"));
    (left > 0).then(|| {
        finding(
            Weight::Wrong,
            "damage",
            "the scrub found damage that it could not mend; `loamfs scrub status` names the files",
        )
    })
}

fn kind(entry: &MountEntry, _: &Sample) -> Option<Finding> {
    (!entry.is_block() && geteuid().is_root()).then(|| {
        finding(Weight::Advice, "plain", "a plain mount, which sync(1) does not reach; mounted by root, without -o plain, it does")
    })
}

fn transport(_: &MountEntry, sample: &Sample) -> Option<Finding> {
    let enabled = fs::read_to_string(ENABLE_URING).is_ok_and(|text| text.trim() == "Y");
    let is_device = sample.report()["transport"]["name"] == "dev";
    (is_device && enabled).then(|| {
        finding(Weight::Advice, "transport", "requests travel over /dev/fuse though io_uring is switched on; mount it anew, without -o transport=dev")
    })
}

fn cache(_: &MountEntry, sample: &Sample) -> Option<Finding> {
    let (cache, memory) = (sample.number("/memory/cache_bytes"), machine_memory());
    (cache > 0 && memory / cache >= MEMORY_PER_CACHE).then(|| {
        let words = format!(
            "the cache is {} of {} of memory; where many small files change give it what can be spared, such as -o cache={}M",
            human(cache), human(memory), (memory / 8) >> 20
        );
        finding(Weight::Advice, "cache", words)
    })
}

fn disk(entry: &MountEntry, sample: &Sample) -> Option<Finding> {
    let (major, minor) = entry.device;
    let queue = |place: &str| {
        fs::read_to_string(format!("/sys/dev/block/{major}:{minor}/{place}/rotational")).ok()
    };
    let turns = queue("queue").or_else(|| queue("../queue"))?.trim() == "1";
    let made_for = sample.report().pointer("/volume/disk_turns")?.as_bool()?;
    let words = match (made_for, turns) {
        (true, false) => {
            "made for a disk that turns, and the device says that it does not; then mkfs --disk solid fits better"
        }
        (false, true) => {
            "made for a disk that does not turn, and the device says that it does; then mkfs --disk turning fits better"
        }
        _ => return None,
    };
    Some(finding(Weight::Advice, "disk", words))
}

fn scrub(entry: &MountEntry, sample: &Sample) -> Option<Finding> {
    let report = sample.report();
    if report["scrub"]["under_way"] == true {
        return None;
    }
    let place = shown_path(&entry.path);
    let now = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .ok()?;
    let now = i64::try_from(now.as_secs()).ok()?;
    let words = match report["scrub"]["ended"].as_i64() {
        None => format!(
            "never scrubbed; `loamfs scrub start {place}` once a month finds what rots where nobody reads"
        ),
        Some(ended) if now - ended > SCRUB_DAYS * 86_400 => {
            format!(
                "scrubbed {} days ago; `loamfs scrub start {place}`",
                (now - ended) / 86_400
            )
        }
        Some(_) => return None,
    };
    Some(finding(Weight::Advice, "scrub", words))
}

fn space(_: &MountEntry, sample: &Sample) -> Option<Finding> {
    let (available, all) = (
        sample.number("/space/available"),
        sample.number("/space/bytes"),
    );
    let left = || format!("{} of {} left", human(available), human(all));
    if available < all / 50 {
        return Some(finding(
            Weight::Wrong,
            "space",
            format!(
                "nearly full: {}; delete something, or `loamfs grow`",
                left()
            ),
        ));
    }
    (available < all / 10).then(|| {
        finding(
            Weight::Advice,
            "space",
            format!(
                "{}: the cleaner works harder the fuller the volume is",
                left()
            ),
        )
    })
}

fn confinement(_: &MountEntry, sample: &Sample) -> Option<Finding> {
    let confinement = &sample.report()["confinement"];
    let in_force = confinement["wanted"] == true && confinement["system_calls_filtered"] == true;
    (confinement.is_object() && !in_force).then(|| {
        finding(Weight::Advice, "confinement", "the daemon has kept rights that it does not need; see SECURITY.md, and leave out -o unconfined")
    })
}

/// An image file that its own file system may not have room for.
fn host(sample: &Sample) -> Option<Finding> {
    let path = Path::new(sample.report()["device"].as_str()?);
    let image = fs::metadata(path).ok().filter(fs::Metadata::is_file)?;
    let more = image
        .len()
        .saturating_sub(image.blocks().saturating_mul(512));
    let around = rustix::fs::statvfs(path).ok()?;
    let free = around.f_bavail.saturating_mul(around.f_frsize);
    (free < more).then(|| {
        let words = format!(
            "its image may grow by {}, and the file system around it has {}; make room there, or use -o discard",
            human(more), human(free)
        );
        finding(Weight::Wrong, "host", words)
    })
}

fn images(sample: &Sample) -> Option<Finding> {
    let images = sample.number("/log/unsettled_images");
    (images > MANY_IMAGES).then(|| {
        let words = format!("{images} parts of large files wait in the log; `loamfs settle` before large files are read in order");
        finding(Weight::Advice, "images", words)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each of these had been good, and the exit code 0.
    #[test]
    fn what_cannot_be_changed_or_read_is_not_well() {
        let entry = MountEntry {
            id: 1,
            device: (0, 0),
            is_whole: true,
            path: "/mnt".into(),
            fstype: "fuse.loamfs".into(),
            source: "volume.img".into(),
            options: "".into(),
            super_options: "".into(),
            read_only: false,
        };
        let failure =
            json!({ "since": 1, "why": "the log cannot be written: EIO", "goes_on": false });
        let devices =
            json!([{ "device": 0, "state": "present" }, { "device": 3, "state": "missing" }]);
        let table = [
            (
                json!({ "read_only": true, "failure": failure }),
                "changes",
                Weight::Wrong,
                "EIO",
            ),
            (
                json!({ "read_only": true, "failure": null }),
                "changes",
                Weight::Advice,
                "frozen",
            ),
            (
                json!({ "damaged_files": [{ "path": "/a" }] }),
                "damage",
                Weight::Wrong,
                "1 file is",
            ),
            (
                json!({ "devices": devices }),
                "missing",
                Weight::Wrong,
                "device 3 is missing",
            ),
        ];
        for (report, name, weight, words) in table {
            let found = of_mount(&entry, &Sample::of(report.clone()));
            let found = found.iter().find(|found| found.name == name).unwrap();
            assert_eq!(found.weight, weight, "{report}");
            assert!(found.words.contains(words), "{}", found.words);
        }
        let well =
            json!({ "read_only": false, "failure": null, "broken": null, "damaged_files": [] });
        let well = of_mount(&entry, &Sample::of(well));
        let names = ["changes", "damage", "missing"];
        assert!(
            well.iter().all(|found| !names.contains(&found.name)),
            "{well:?}"
        );
    }

    #[test]
    fn releases_have_two_numbers() {
        assert_eq!(version("6.18.44-fc-v669"), Some((6, 18)));
        assert_eq!(version("6.1-rc2"), Some((6, 1)));
        assert_eq!(version("x"), None);
    }
}
