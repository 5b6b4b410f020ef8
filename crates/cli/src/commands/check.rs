//! `loamfs check`.

use std::path::PathBuf;

use clap::Args;
use loamfs_check::{CheckError, Options, Phase, Progress, Report, Severity, Volume, check};
use loamfs_console::size::parse;
use loamfs_fs::{Rebuild, Repairs};
use serde_json::{Value, json};

use crate::failure::{Failure, Kind};
use crate::output::print_lines;
use crate::progress::StepProgress;
use crate::text::shown_path;
use crate::volume::{Access, Opened, open_device};

/// fsck(8): errors were corrected.
const REPAIRED: u8 = 1;
/// fsck(8): errors are left.
const ERRORS_LEFT: u8 = 4;
/// fsck(8): the check itself failed.
const NOT_CHECKED: u8 = 8;

/// Rounds of repair and check: a plan with too much in it stops short.
const ROUNDS_MAX: usize = 8;

/// What people type.
const EXAMPLES: &str = "\
Examples:
  loamfs check volume.img
      Reads all that has a checksum, and changes nothing.
  loamfs check --repair volume.img
      Repairs what can be repaired.
  loamfs check --degraded volume.img
      Without a device that is missing: what else there is, and which files are lost in part.
  loamfs check --quick --json /dev/sdb1
      Metadata alone, for a program to read.";

/// Check an unmounted volume, and repair it.
///
/// Verifies everything that has a checksum, the contents of files too, and every structure of the
/// volume from its format alone. What is wrong with a file is told with its path. Exit codes are
/// those of fsck(8):
/// 0 nothing wrong, 1 repaired, 4 errors left, 8 the check failed, 16 wrong call.
#[derive(Debug, Args)]
#[command(visible_alias = "fsck", after_long_help = EXAMPLES)]
pub struct CheckArgs {
    /// Repair what can be repaired.
    #[arg(long)]
    repair: bool,
    /// Check what there is, though devices of the volume are missing: what stands on those is named, and is no damage.
    #[arg(long, conflicts_with = "repair")]
    degraded: bool,
    /// Leave out the contents of files, and the search of the whole device for lost inodes: only
    /// metadata are verified.
    #[arg(long)]
    quick: bool,
    /// What was asked for once is what is done without it.
    #[arg(long, hide = true, conflicts_with = "quick")]
    data: bool,
    /// Most memory to use; at least 16K are.
    #[arg(long, default_value = "256M", value_parser = parse)]
    memory: u64,
    /// List at most this many problems; all are counted.
    #[arg(long, default_value_t = 1_000)]
    problems: usize,
    /// Print JSON.
    #[arg(long)]
    json: bool,
    /// Tell this descriptor of the progress.
    #[arg(skip)]
    pipe: Option<i32>,
    /// The device or image file.
    device: PathBuf,
}

impl CheckArgs {
    /// What `fsck.loamfs` was called with.
    pub fn for_fsck(device: PathBuf, repair: bool, pipe: Option<i32>) -> Self {
        Self {
            pipe,
            repair,
            degraded: false,
            quick: false,
            data: false,
            memory: 256 << 20,
            problems: 1_000,
            json: false,
            device,
        }
    }

    /// Only makes sure that there is a volume that can be opened, which is what a crash leaves.
    ///
    /// # Errors
    ///
    /// If there is none.
    pub fn look(self) -> Result<u8, Failure> {
        Opened::open(&self.device, Access::Read)?;
        print_lines([format!(
            "{}: clean enough to mount; give -f to check everything",
            shown_path(&self.device)
        )])
    }

    /// Carries it out.
    ///
    /// # Errors
    ///
    /// If there is no volume, or it is in use.
    pub fn run(self) -> Result<u8, Failure> {
        let device = open_device(&self.device, Access::reading(self.degraded))?;
        self.refuse_none(&device)?;
        let report = self.examine(&device);
        drop(device);
        let mut left = None;
        let repair = || -> Result<Option<Report>, Failure> {
            let mut left: Option<Report> = None;
            for _ in 0..ROUNDS_MAX {
                let last = left.as_ref().unwrap_or(&report);
                if last.plan.is_empty() {
                    break;
                }
                self.apply(last)?;
                let truncated = last.plan.truncated;
                left = Some(self.examine(&open_device(&self.device, Access::Read)?));
                if !truncated {
                    break;
                }
            }
            Ok(left)
        };
        if self.repair {
            match repair() {
                Ok(after) => left = after,
                Err(failure) => {
                    self.print(&report, None, ERRORS_LEFT)?;
                    return Err(failure);
                }
            }
        }
        let code = match &left {
            None => code_of(&report),
            Some(left) if left.is_clean() => REPAIRED,
            Some(_) => ERRORS_LEFT,
        };
        self.print(&report, left.as_ref(), code)
    }

    /// What is no volume, or not one for this program, is no damage either.
    fn refuse_none(&self, device: &dyn loamfs_device::Device) -> Result<(), Failure> {
        match Volume::open(device) {
            Err(
                error @ (CheckError::Superblock(_)
                | CheckError::Foreign
                | CheckError::Undecided { .. }
                | CheckError::Shrunk { .. }
                | CheckError::Incomplete { .. }),
            ) => Err(Failure::check(&self.device, &error)),
            _ => Ok(()),
        }
    }

    fn examine(&self, device: &dyn loamfs_device::Device) -> Report {
        let mut bar = match self.pipe {
            Some(pipe) => StepProgress::telling(pipe, &self.device),
            None => StepProgress::new(),
        };
        let mut tell = |progress: Progress| {
            let (number, name) = phase_name(progress.phase);
            bar.step(number, name, progress.done, progress.total);
        };
        let mut options = Options {
            quick: self.quick,
            memory: self.memory,
            problems_max: self.problems,
            progress: Some(&mut tell),
        };
        let report = check(device, &mut options);
        bar.finish();
        report
    }

    /// Has the file system carry out what the check has planned.
    fn apply(&self, report: &Report) -> Result<(), Failure> {
        let recount = report.plan.recount.clone();
        let rebuild = Rebuild {
            nodes: report.plan.nodes.clone(),
            inode_blocks: report.plan.inode_blocks.clone(),
            images: report.plan.images.clone(),
        };
        let opened = Opened::open_to_repair(&self.device, Access::Write, recount, rebuild)?;
        // Opening for writing adds one segment to what was checked.
        if opened.volume().info().segment != report.stats.last.next() {
            return Err(Failure::new(
                Kind::Busy,
                format!(
                    "{} was changed after it had been checked; try again",
                    shown_path(&self.device)
                ),
            ));
        }
        let plan = &report.plan;
        let repairs = Repairs {
            set: plan.set.clone(),
            clear: plan.clear.clone(),
            links: plan.links.clone(),
            unnamed: plan.unnamed.clone(),
            next_inode_block: plan.next_inode_block,
            inodes: plan.inodes,
            unwritten: plan.unwritten,
            worn: plan.worn.clone(),
            homes: plan.homes.clone(),
            tables: plan.tables.clone(),
            unsettled: plan.unsettled.clone(),
        };
        opened
            .volume()
            .repair(&repairs)
            .map_err(|error| Failure::volume(&self.device, &error))?;
        opened.finish()
    }

    /// Prints what was found and, after a repair, what is left of it.
    fn print(&self, report: &Report, left: Option<&Report>, code: u8) -> Result<u8, Failure> {
        if self.json {
            print_lines([format!("{:#}", to_json(report, left, code))])?;
            return Ok(code);
        }
        let verdict = match code {
            0 if report.stats.missing_devices > 0 => {
                "clean, but for what is on devices that are missing"
            }
            0 if self.quick => "clean, but for what was left out",
            0 => "clean",
            REPAIRED => "repaired",
            ERRORS_LEFT => "errors are left",
            _ => "not everything could be checked",
        };
        let mut text = report.to_string();
        if let Some(left) = left.filter(|left| !left.is_clean()) {
            text.push_str(&format!("after the repair:\n{left}"));
        }
        print_lines([format!("{text}{}: {verdict}", shown_path(&self.device))])?;
        Ok(code)
    }
}

/// The exit code for what was found.
fn code_of(report: &Report) -> u8 {
    match report.worst {
        _ if report.is_clean() => 0,
        Some(worst) if worst > Severity::Note => ERRORS_LEFT,
        _ => NOT_CHECKED,
    }
}

fn to_json(report: &Report, left: Option<&Report>, code: u8) -> Value {
    let problems = |report: &Report| -> Vec<Value> {
        report
            .problems
            .iter()
            .map(|problem| {
                let mut value = json!(problem);
                value["inode"] = json!(problem.inode().map(|ino| ino.get()));
                value["path"] = json!(report.path(problem));
                value
            })
            .collect()
    };
    json!({
        "clean": report.is_clean(),
        "repaired": left.is_some(),
        "left": left.map(problems),
        "exit_code": code,
        "problems": problems(report),
        "problems_total": report.total(),
        "counts": report.counts,
        "worst": report.worst,
        "unchecked": report.unchecked,
        "left_out": report.left_out,
        "stats": report.stats,
        "repairable": {
            "bits_to_set": report.plan.set.len(),
            "bits_to_clear": report.plan.clear.len(),
            "links": report.plan.links.len(),
            "unnamed": report.plan.unnamed.len(),
            "nodes_to_take_out": report.plan.nodes.len(),
            "inode_blocks_found": report.plan.inode_blocks.len(),
            "images_found": report.plan.images.len(),
            "groups_to_count": report.plan.recount.len(),
            "homes_to_record": report.plan.homes.len(),
            "tables_of_tracks_to_empty": report.plan.tables.len(),
            "files_to_unsettle": report.plan.unsettled.len(),
        },
    })
}

/// A phase's place in the order of phases, and its name.
fn phase_name(phase: Phase) -> (usize, &'static str) {
    match phase {
        Phase::Open => (1, "reading the log"),
        Phase::Maps => (2, "maps"),
        Phase::Inodes => (3, "inodes"),
        Phase::Search => (4, "lost inodes"),
        Phase::Space => (5, "space"),
        Phase::Tree => (6, "directories"),
        Phase::Exact => (7, "a closer look"),
    }
}
