//! What a volume is and does, for people and as JSON.

mod figures;
mod identity;

pub use figures::{attr_json, piece_json, requests_json};
pub use identity::Identity;

use std::path::{Path, PathBuf};

use loamfs_console::size::{count, human};
use loamfs_console::time;
use loamfs_fs::Volume;
use loamfs_fuse::{Class, Counts, Tallies};
use serde_json::{Value, json};

use crate::mount::handover::Deaths;
use crate::text::{self, wrapped};
use figures::{info_json, space_json};

/// What a line of a report begins with: its name, and blanks.
const INDENT: usize = 10;

/// Damaged files that people are told.
const DAMAGED_SHOWN: usize = 20;

/// What a volume does, or did, since it was opened.
pub struct Report(Value);

/// A section, for people.
pub fn section_words(flash_block: u64, extent: u64) -> String {
    format!(
        "a section of extents of {}, by flash blocks of {}",
        human(extent),
        human(flash_block)
    )
}

/// The section of a device, if it has one.
fn section_line(device: &Value) -> Option<String> {
    let section = device
        .get("section")
        .filter(|section| section.is_object())?;
    let number = |field: &str| section[field].as_u64().unwrap_or(0);
    let several = number("extent_bytes") < number("flash_block_bytes");
    Some(format!(
        "section   device {} has {}; of the {} {} are clean, {} at least half free, and {} others have {} lost{}",
        device["device"],
        section_words(number("flash_block_bytes"), number("extent_bytes")),
        if several { "flash blocks" } else { "extents" },
        number("clean"),
        number("half_free"),
        number("others"),
        human(number("lost_bytes")),
        match number("groups_not_looked_at") {
            0 => String::new(),
            groups => format!("; {} not looked at", count(groups, "group", "groups")),
        }
    ))
}

impl Report {
    /// Asks an open volume.
    pub fn new(
        volume: &Volume,
        identity: &Identity,
        device: &Path,
        mountpoint: Option<&Path>,
    ) -> Self {
        let mut value = info_json(volume);
        value["device"] = json!(device.to_string_lossy());
        value["mountpoint"] = json!(mountpoint.map(Path::to_string_lossy));
        value["daemon"] = json!(mountpoint.map(|_| std::process::id()));
        value["volume"] = identity.to_json();
        // The superblock was read when the volume was opened; its label may have changed since.
        value["volume"]["label"] = json!(text::shown(&volume.info().label));
        value["space"] = space_json(&volume.statfs());
        Self(value)
    }

    /// Adds what the daemon that serves it has given up, and how requests reach it.
    pub fn of_daemon(mut self, confinement: Value, transport: Value) -> Self {
        let volume = self.0["memory"]["cache_bytes"].as_u64();
        let buffers = transport["buffer_bytes"].as_u64();
        // Requests take their part of what `cache=` says.
        self.0["memory"]["cache_bytes"] = volume
            .zip(buffers)
            .map(|(volume, buffers)| volume + buffers)
            .into();
        self.0["confinement"] = confinement;
        self.0["transport"] = transport;
        self
    }

    /// Adds why changes are refused, and since when; null if nothing failed.
    pub fn failed(mut self, failure: Value) -> Self {
        self.0["failure"] = failure;
        self
    }

    /// Adds how a change of the devices ended; null if this daemon was not begun for one.
    pub fn with_change(mut self, changed: Option<&Result<(), String>>) -> Self {
        self.0["device_change"] = changed
            .map(|ended| json!({ "done": ended.is_ok(), "refused": ended.as_ref().err() }))
            .into();
        self
    }

    /// How a change of the devices ended, if the daemon was begun for one.
    pub fn change(&self) -> Option<Result<(), String>> {
        let ended = self.value("/device_change");
        let done = ended["done"].as_bool()?;
        let why = || ended["refused"].as_str().unwrap_or_default().to_owned();
        Some(done.then_some(()).ok_or_else(why))
    }

    /// Adds the errors that programs got, by kind, and the files that are damaged.
    pub fn with_errors(mut self, by_kind: Value, damaged_files: Vec<Value>) -> Self {
        self.0["errors"] = by_kind;
        self.0["damaged_files"] = damaged_files.into();
        self
    }

    /// Adds since when operations and errors are counted, and which daemons died since then.
    pub fn since(mut self, since: u64, deaths: Deaths) -> Self {
        self.0["counted_since"] = since.into();
        self.0["daemons_died"] = json!({
            "count": deaths.count,
            "last": (deaths.count > 0).then_some(deaths.last),
            "last_files_lost": deaths.files,
        });
        self
    }

    /// Adds what programs asked the daemon for.
    pub fn with_operations(mut self, tallies: &Tallies) -> Self {
        let bounds = Counts::BOUNDS;
        let kinds = Class::ALL.into_iter().zip(tallies.counts());
        let operations = kinds.map(|(class, counts)| {
            let value = json!({
                "requests": counts.requests,
                "errors": counts.errors,
                "bytes": counts.bytes,
                "nanoseconds": counts.nanos,
                "within": bounds.iter().zip(counts.within)
                    .map(|(bound, count)| json!({ "nanoseconds": bound, "requests": count }))
                    .collect::<Vec<_>>(),
            });
            (class.name().to_owned(), value)
        });
        self.0["operations"] = operations.collect::<serde_json::Map<_, _>>().into();
        let asked = tallies.processes().into_iter();
        let asked = asked.map(|(process, (requests, bytes))| {
            json!({ "process": process, "requests": requests, "bytes": bytes })
        });
        self.0["processes"] = asked.collect();
        self
    }

    /// Reads what a daemon answered.
    pub fn from_json(text: &str) -> Option<Self> {
        let value: Value = serde_json::from_str(text).ok()?;
        value.is_object().then_some(Self(value))
    }

    /// As text that [`from_json`](Self::from_json) reads.
    ///
    /// # Errors
    ///
    /// None that a report can cause.
    pub fn to_json(&self) -> Result<String, serde_json::Error> {
        serde_json::to_string_pretty(&self.0)
    }

    /// For people.
    pub fn to_text(&self) -> String {
        let mut lines = self.mount_lines();
        lines.extend(self.trouble_lines());
        lines.extend(self.volume_lines());
        if self.number("/hot/room_bytes") > 0 {
            lines.push(self.hot_line());
        }
        let mut lines: Vec<String> = lines.iter().map(|line| wrapped(line, INDENT)).collect();
        if self.has_several() {
            lines.extend(self.device_lines());
        }
        lines.extend(self.request_lines());
        lines.extend(self.operation_lines());
        lines.join("\n")
    }

    fn value(&self, path: &str) -> Value {
        self.0.pointer(path).cloned().unwrap_or_default()
    }

    fn number(&self, path: &str) -> u64 {
        self.value(path).as_u64().unwrap_or(0)
    }

    fn words(&self, path: &str) -> String {
        self.value(path).as_str().unwrap_or("").to_owned()
    }

    fn size(&self, path: &str) -> String {
        human(self.number(path))
    }

    /// Which volume it is, and who serves it where.
    fn mount_lines(&self) -> Vec<String> {
        let mut lines = vec![
            format!("volume    {}", self.words("/volume/uuid")),
            match self.words("/volume/label").as_str() {
                "" => "label     (none)".to_owned(),
                label => format!("label     {label}"),
            },
            format!("device    {}", self.words("/device")),
        ];
        if self.value("/mountpoint").is_string() {
            lines.push(format!(
                "mounted   {}, by process {}",
                self.words("/mountpoint"),
                self.number("/daemon"),
            ));
            lines.extend(self.transport_line());
            lines.extend(self.confinement_line());
        }
        lines
    }

    /// What is not as it should be.
    fn trouble_lines(&self) -> Vec<String> {
        let mut lines = Vec::new();
        if self.value("/read_only") == Value::Bool(true) {
            lines.push("access    for reading only".to_owned());
        }
        if self.value("/failure/why").is_string() {
            let advice = match self.value("/failure/goes_on_with_room") == Value::Bool(true) {
                true => "make room where the image is, and it goes on by itself",
                false => "unmount it, and mount it again",
            };
            lines.push(format!(
                "failed    since {}: {}; {advice}",
                self.moment("/failure/since"),
                self.words("/failure/why")
            ));
        }
        if self.value("/broken").is_string() {
            lines.push(format!(
                "broken    a defect of this program, nothing is written until the next mount: {}",
                self.words("/broken")
            ));
        }
        if self.value("/lost_segments/reason").is_string() {
            lines.push(format!("lost      {}", self.words("/lost_segments/reason")));
        }
        let (damaged, healed) = (self.number("/scrub/damaged"), self.number("/scrub/healed"));
        if damaged > healed {
            lines.push(format!(
                "damaged   {}, as the scrub found; `loamfs scrub status` and the log name the files",
                count(damaged - healed, "block", "blocks"),
            ));
        }
        lines.extend(self.death_line());
        lines.extend(self.error_line());
        lines.extend(self.damaged_lines());
        lines
    }

    /// Daemons that died since the mount began.
    fn death_line(&self) -> Option<String> {
        let died = Some(self.number("/daemons_died/count")).filter(|died| *died > 0)?;
        let lost = match self.number("/daemons_died/last_files_lost") {
            0 => "nothing was lost then".to_owned(),
            files => format!(
                "what was not synced may be lost, of {} at most",
                count(files, "file or directory", "files and directories")
            ),
        };
        Some(format!(
            "replaced  {} died, the last before {}; {lost}",
            count(died, "daemon", "daemons"),
            self.moment("/daemons_died/last"),
        ))
    }

    /// Errors that say something of the volume.
    fn error_line(&self) -> Option<String> {
        let words = [
            ("damaged", "for damage"),
            ("device", "of the device"),
            ("lost", "for what went with a daemon"),
            ("full", "for want of space"),
            ("read_only", "as it takes no changes"),
            ("defect", "for a defect of this program"),
        ];
        let told = words.into_iter().filter_map(|(kind, words)| {
            let number = self.number(&format!("/errors/{kind}"));
            (number > 0).then(|| format!("{number} {words}"))
        });
        let told: Vec<String> = told.collect();
        (!told.is_empty()).then(|| {
            let since = self.moment("/counted_since");
            format!("errors    since {since}: {}", told.join(", "))
        })
    }

    /// Files that are damaged.
    fn damaged_lines(&self) -> Vec<String> {
        let files = self.value("/damaged_files");
        let files = files.as_array().map_or(&[][..], Vec::as_slice);
        let line = |file: &Value| {
            let whose = match (file["path"].as_str(), file["inode"].as_u64()) {
                (Some(path), _) => path.to_owned(),
                (None, Some(inode)) => format!("inode {inode}"),
                (None, None) => "no file".to_owned(),
            };
            let why = file["reason"].as_str().unwrap_or_default();
            format!("damaged   {whose}: {why}")
        };
        let mut lines: Vec<String> = files.iter().take(DAMAGED_SHOWN).map(line).collect();
        if files.len() > DAMAGED_SHOWN {
            lines.push(format!(
                "damaged   {} more; --json names them",
                files.len() - DAMAGED_SHOWN
            ));
        }
        lines
    }

    /// A time of day in seconds, for people.
    fn moment(&self, path: &str) -> String {
        let seconds = i64::try_from(self.number(path)).unwrap_or(0);
        format!("{} UTC", time::short(seconds))
    }

    /// What the volume is, and what it holds on the device and in memory.
    fn volume_lines(&self) -> [String; 9] {
        let (size, number) = (|path| self.size(path), |path| self.number(path));
        let deltas = match self.value("/volume/deltas") == Value::Bool(false) {
            true => " without deltas",
            false => "",
        };
        [
            format!(
                "made      {} UTC, profile {}{}, fragments of {}, small files up to {}, blocks of {}, groups of {}",
                self.words("/volume/created"),
                self.words("/volume/profile"),
                deltas,
                size("/volume/fragment_size"),
                size("/volume/small_size"),
                size("/volume/block_size"),
                size("/volume/group_bytes"),
            ),
            format!(
                "space     {}: {} free, {} of it for files; {}",
                size("/space/bytes"),
                size("/space/free"),
                size("/space/available"),
                count(number("/space/inodes"), "inode", "inodes"),
            ),
            format!(
                "groups    {}: {} log, {} data, {}{} free",
                number("/volume/groups"),
                number("/groups/log"),
                number("/groups/data"),
                match number("/groups/track") {
                    0 => String::new(),
                    tracks => format!("{tracks} of tracks, "),
                },
                number("/groups/free"),
            ),
            format!(
                "log       segment {}, durable up to {}, checkpoint {}; {} to settle in {} ms, {} held back",
                number("/log/last_segment"),
                number("/log/durable_segment"),
                number("/log/checkpoint"),
                count(number("/log/unsettled_images"), "image", "images"),
                number("/log/settle_milliseconds"),
                size("/log/held_bytes"),
            ),
            format!(
                "memory    {} cached of cache={}, settle={}, and {}; {} dirty for the log, {} for homes, {} of bitmaps",
                size("/memory/cached_bytes"),
                size("/memory/cache_bytes"),
                size("/memory/settle_bytes"),
                count(number("/memory/cached_inodes"), "inode", "inodes"),
                size("/memory/dirty_log_bytes"),
                size("/memory/dirty_home_bytes"),
                size("/memory/bitmap_bytes"),
            ),
            self.cleaning_line(),
            self.tracks_line(),
            self.scrub_line(),
            format!(
                "requests  {}, {} of {}",
                count(number("/requests/flushes"), "flush", "flushes"),
                count(number("/requests/discards"), "discard", "discards"),
                size("/requests/discard_bytes"),
            ),
        ]
    }

    /// Which volume it is of.
    pub fn uuid(&self) -> String {
        self.words("/volume/uuid")
    }

    /// The device that a mount names.
    pub fn device(&self) -> PathBuf {
        self.words("/device").into()
    }

    /// Bytes of the volume.
    pub fn bytes(&self) -> u64 {
        self.number("/space/bytes")
    }

    /// What cleaning moved and won, and what writing takes.
    fn cleaning_line(&self) -> String {
        let number = |path| self.number(path);
        let won = number("/log/cleaned_bytes").saturating_sub(number("/log/moved_bytes"));
        let for_each = match self.value("/log/device_bytes_for_each").as_f64() {
            Some(bytes) => format!(
                "{bytes:.2} bytes written for each of the {}",
                self.size("/log/written_bytes")
            ),
            None => "nothing written".to_owned(),
        };
        format!(
            "cleaning  {} freed, {} moved for it; {for_each} of contents; at most {:.0} ms of waiting for room",
            human(won),
            self.size("/log/moved_bytes"),
            self.value("/log/longest_wait_seconds")
                .as_f64()
                .unwrap_or(0.0)
                * 1_000.0,
        )
    }

    /// What formed by the clock, and what waits for that.
    fn tracks_line(&self) -> String {
        let number = |path| self.number(path);
        let seconds = |path| self.value(path).as_f64().unwrap_or(0.0);
        format!(
            "tracks    {} formed in idle times, of {} ({}, estimated {:.1} s, by its requests {:.1} s); {} of others; {} would pay: {} in {:.1} s, which would have spared {:.1} s; {}",
            count(number("/tracks/formed_files"), "file", "files"),
            count(
                number("/tracks/formed_directories"),
                "directory",
                "directories"
            ),
            self.size("/tracks/formed_bytes"),
            seconds("/tracks/formed_estimated_seconds"),
            seconds("/tracks/formed_seconds"),
            count(number("/tracks/cold_reads"), "cold read", "cold reads"),
            count(
                number("/tracks/waiting_directories"),
                "directory",
                "directories"
            ),
            self.size("/tracks/waiting_bytes"),
            seconds("/tracks/waiting_seconds"),
            seconds("/tracks/waiting_saving_seconds"),
            match self.value("/tracks/waits_for").as_str() {
                Some("bytes") => "that is too little to begin",
                Some("room") => "no room can be won for more",
                Some("idle") => "more form once nobody asks for anything",
                _ => "others have to be read more for that",
            },
        )
    }

    /// What is read often of slow devices, and stands on fast ones too.
    fn hot_line(&self) -> String {
        format!(
            "hot data  {} in {} of free room; {} of large files read there, {} on slow devices; {} written",
            self.size("/hot/held_bytes"),
            self.size("/hot/room_bytes"),
            self.size("/hot/hit_bytes"),
            self.size("/hot/missed_bytes"),
            self.size("/hot/written_bytes"),
        )
    }

    /// The devices of several.
    pub fn devices(&self) -> Value {
        self.value("/devices")
    }

    /// Whether it is on several devices.
    pub fn has_several(&self) -> bool {
        self.devices().as_array().is_some_and(|all| !all.is_empty())
    }

    /// What it says of the device of this number, if the volume has it.
    pub fn device_numbered(&self, number: u32) -> Option<Value> {
        let devices = self.devices();
        let mut all = devices.as_array().into_iter().flatten();
        all.find(|one| one["device"] == number).cloned()
    }

    /// A line for each device of several, broken as those of the report.
    pub fn device_lines(&self) -> Vec<String> {
        let devices = self.devices();
        let line = |device: &Value| {
            let number = |path: &str| device.pointer(path).and_then(Value::as_u64).unwrap_or(0);
            let words = |field: &str| device[field].as_str().unwrap_or("").to_owned();
            format!(
                "device {:<2} {}, {}, {}: {} log, {} data, {} free; {} reads of {}, {} writes of {}, {} flushes",
                number("/device"),
                words("name"),
                match device["state"].as_str() {
                    Some(state @ ("leaving" | "missing")) => words("kind") + ", " + state,
                    _ => words("kind"),
                },
                human(number("/bytes")),
                number("/groups/log"),
                number("/groups/data"),
                number("/groups/free"),
                number("/requests/total/reads"),
                human(number("/requests/total/read_bytes")),
                number("/requests/total/writes"),
                human(number("/requests/total/write_bytes")),
                number("/requests/flushes"),
            )
        };
        let all = || devices.as_array().into_iter().flatten();
        let mut lines: Vec<String> = all().map(line).collect();
        lines.extend(all().filter_map(section_line));
        if let (Some(first), Some(holder)) = (all().next(), all().find(|it| it["has_copy"] == true))
        {
            lines.push(format!(
                "copy      what device {} holds stands on device {} too",
                first["device"], holder["device"]
            ));
        }
        if let Some(behind) = devices_behind(&self.0) {
            lines.push(behind);
        }
        match self.number("/groups/spilled_log") {
            0 => {}
            1 => lines.push(
                "spilled   1 log group is on a slow device, as the fast ones had no room".into(),
            ),
            count => lines.push(format!(
                "spilled   {count} log groups are on slow devices, as the fast ones had no room"
            )),
        }
        match self.number("/groups/spilled_data_bytes") {
            0 => {}
            bytes => lines.push(format!(
                "spilled   {} of large files went to slow devices since the mount, as the fast ones had no room",
                human(bytes)
            )),
        }
        let looked = match self.value("/groups/owed_is_known") == Value::Bool(false) {
            true => ", and more is looked for",
            false => "",
        };
        match self.number("/groups/owed_bytes") {
            0 => {}
            bytes => lines.push(format!(
                "owed      {} of large files stand on fast devices and go to slow ones later{looked}",
                human(bytes)
            )),
        }
        if lines.is_empty() {
            lines.push(format!("device    {}, the only one", self.words("/device")));
        }
        lines.iter().map(|line| wrapped(line, INDENT)).collect()
    }

    /// How far the scrub is, or when there was one.
    fn scrub_line(&self) -> String {
        let moment = |path| self.value(path).as_i64().map(time::short);
        match (moment("/scrub/began"), moment("/scrub/ended")) {
            (Some(began), _) if self.value("/scrub/under_way") == true => format!(
                "scrub     begun {began} UTC, {} of {} passed",
                self.size("/scrub/passed_bytes"),
                self.size("/scrub/volume_bytes"),
            ),
            (_, Some(ended)) => format!("scrub     ended {ended} UTC"),
            _ => "scrub     none yet".to_owned(),
        }
    }

    /// How requests reach the daemon; nothing of an older one.
    fn transport_line(&self) -> Option<String> {
        let transport = self.0.get("transport")?;
        let line = match transport["name"].as_str()? {
            "uring" => {
                let bytes = transport["buffer_bytes"].as_u64().unwrap_or(0);
                format!("transport io_uring, with buffers of {}", human(bytes))
            }
            _ => "transport /dev/fuse".to_owned(),
        };
        Some(line)
    }

    /// What the daemon cannot do; nothing of an older one.
    fn confinement_line(&self) -> Option<String> {
        let confinement = self.0.get("confinement")?;
        let holds = |field: &str| confinement[field] == Value::Bool(true);
        if !holds("wanted") {
            return Some("confined  no, as it was mounted with unconfined".to_owned());
        }
        let capabilities = confinement["capabilities"].as_str().unwrap_or("?");
        let files = match confinement["files_written_below"].as_array() {
            Some(places) => {
                let places = places.iter().filter_map(Value::as_str);
                format!("files below {}", places.collect::<Vec<_>>().join(" and "))
            }
            None => "any file".to_owned(),
        };
        let calls = match holds("system_calls_filtered") {
            true => "few system calls",
            false => "any system call",
        };
        Some(format!(
            "confined  capabilities {capabilities}, {calls}, writes to {files}; oom_score_adj {}",
            confinement["oom_score_adj"]
        ))
    }

    /// What programs asked for, a line a kind that was; nothing of an older daemon.
    fn operation_lines(&self) -> Vec<String> {
        let kinds = self.0.get("operations").and_then(Value::as_object);
        let lines = kinds.into_iter().flatten().filter_map(|(name, row)| {
            let number = |field: &str| row[field].as_u64().unwrap_or(0);
            let requests = Some(number("requests")).filter(|requests| *requests > 0)?;
            let mean = time::took(number("nanoseconds") / requests);
            let mut line = format!("          {name:<10}{requests:>9} of {mean:>9}");
            if number("bytes") > 0 {
                line.push_str(&format!(", {:>10}", human(number("bytes"))));
            }
            if number("errors") > 0 {
                line.push_str(&format!(", {} refused", number("errors")));
            }
            Some(line)
        });
        let lines: Vec<String> = lines.collect();
        let title = (!lines.is_empty()).then(|| match self.number("/counted_since") {
            0 => "asked     by programs, and how long it took on average".to_owned(),
            _ => format!(
                "asked     by programs since {}, and how long it took",
                self.moment("/counted_since")
            ),
        });
        title.into_iter().chain(lines).collect()
    }

    /// The table of requests, a line a kind that was used.
    fn request_lines(&self) -> Vec<String> {
        let Some(kinds) = self
            .0
            .pointer("/requests/by_kind")
            .and_then(Value::as_object)
        else {
            return Vec::new();
        };
        let total = self.0.pointer("/requests/total").map(|row| ("total", row));
        let rows = kinds
            .iter()
            .map(|(name, row)| (name.as_str(), row))
            .chain(total);
        let line = |(name, row): (&str, &Value)| {
            let number = |field: &str| row.get(field).and_then(Value::as_u64).unwrap_or(0);
            format!(
                "          {name:<10}{:>9} {:<5} of {:>10},{:>9} {:<6} of {:>10}",
                number("reads"),
                plural(number("reads"), "read"),
                human(number("read_bytes")),
                number("writes"),
                plural(number("writes"), "write"),
                human(number("write_bytes")),
            )
        };
        rows.map(line).collect()
    }
}

impl Identity {
    /// Whether it is of the volume of a report.
    pub fn is_of(&self, report: &Report) -> bool {
        self.uuid().to_string() == report.uuid()
    }
}

fn plural(number: u64, one: &str) -> String {
    match number {
        1 => one.to_owned(),
        _ => format!("{one}s"),
    }
}

/// How far a copy is behind, for people.
fn devices_behind(report: &Value) -> Option<String> {
    let behind = report.get("behind").filter(|behind| !behind.is_null())?;
    let device = &behind["device"];
    Some(match behind["age_seconds"].as_u64() {
        None => format!(
            "copy      device {device} is to have what the fast one holds, and has nothing of it yet"
        ),
        Some(seconds) => {
            let age = time::took(seconds.saturating_mul(1_000_000_000));
            let lacks = behind["bytes"].as_u64().map(human);
            let lacks = lacks.map_or(String::new(), |bytes| {
                format!(", and lacks {bytes} of what was written since")
            });
            format!("copy      device {device} has what the fast one held {age} ago{lacks}")
        }
    })
}
