//! `loamfs scrub`.

use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use clap::{Args, ValueEnum};
use loamfs_console::complete::ArgValueCompleter;
use loamfs_console::size::{count, human, parse};
use loamfs_console::time;
use loamfs_fuse::MountEntry;
use serde_json::Value;

use crate::candidates::mounted;
use crate::failure::{Failure, Kind};
use crate::mount::control::{self, Request};
use crate::mount::scrubber::Pace;
use crate::mounts;
use crate::output::print_lines;
use crate::progress::StepProgress;
use crate::text::{shown_path, wrapped};

/// How often the daemon is asked how far it is.
const PERIOD: Duration = Duration::from_millis(200);

/// What to do with a scrub.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Action {
    /// Begin one, or go on with the one that was stopped.
    Start,
    /// Stop it; `start` goes on from there, also after another mount.
    Stop,
    /// Say how far it is, and what it found.
    Status,
}

/// What people type.
const EXAMPLES: &str = "\
Examples:
  loamfs scrub start --rate 50M /mnt
      In the background, at most 50 MiB a second.
  loamfs scrub status /mnt
      How far it is, and what it found.
  loamfs scrub start --wait /mnt
      For cron(8): the exit code says whether all is well.";

/// Read all that lives on a mounted volume and has a checksum, and verify it.
///
/// What is damaged is named, and written anew where the volume or its memory has it a second time. The volume stays in use.
///
/// The exit code follows fsck(8): 0 if nothing damaged was found, 1 if all of it is right again, 4 if something is not.
#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub struct ScrubArgs {
    /// What to do.
    action: Action,
    /// Where the volume is mounted.
    #[arg(add = ArgValueCompleter::new(mounted))]
    mountpoint: PathBuf,
    /// Read at most so many bytes a second. Default: rest after each step for as long as it took.
    #[arg(long, value_parser = parse)]
    rate: Option<u64>,
    /// Begin at the beginning, though one is under way.
    #[arg(long)]
    anew: bool,
    /// Stay until it has ended.
    #[arg(long, short)]
    wait: bool,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

impl ScrubArgs {
    /// Carries it out.
    ///
    /// # Errors
    ///
    /// If no LoamFS is mounted there, its daemon cannot be asked, or the scrub could not go on.
    pub fn run(self) -> Result<u8, Failure> {
        if self.action != Action::Start && (self.rate.is_some() || self.anew || self.wait) {
            let words = "--rate, --anew and --wait go with `start` alone";
            return Err(Failure::new(Kind::Usage, words));
        }
        if self.rate == Some(0) {
            let words = "a rate of 0 would never end; `loamfs scrub stop` stops it";
            return Err(Failure::new(Kind::Usage, words));
        }
        let entry = mounts::mounted(&self.mountpoint)?;
        let request = match self.action {
            Action::Start => Request::ScrubStart(Pace {
                rate: self.rate,
                anew: self.anew,
            }),
            Action::Stop => Request::ScrubStop,
            Action::Status => Request::ScrubStatus,
        };
        let mut status = ask(&entry, &request)?;
        if self.wait {
            status = wait(&entry, status)?;
        }
        let text = match self.json {
            true => format!("{status:#}"),
            false => self.told(&status),
        };
        print_lines([text])?;
        if let Some(failed) = status["failed"].as_str() {
            let words = format!("the scrub could not go on: {failed}");
            return Err(Failure::new(Kind::Io, words));
        }
        if self.wait && status["under_way"] == true {
            let words = "the scrub has not ended: it was stopped, or its daemon made way for another one; `loamfs scrub start` goes on";
            return Err(Failure::new(Kind::Io, words));
        }
        Ok(code(&status))
    }

    /// A status for people.
    fn told(&self, status: &Value) -> String {
        let shown = shown_path(&self.mountpoint);
        let number = |field: &str| status[field].as_u64().unwrap_or(0);
        let moment = |field: &str| status[field].as_i64().map(time::short);
        let began = moment("began").unwrap_or_default();
        let mut lines = match (status["under_way"] == true, moment("ended")) {
            (true, _) => {
                let going = match (status["running"] == true, status["rate"].as_u64()) {
                    (true, Some(rate)) => format!("under way, at most {} a second", human(rate)),
                    (true, None) => "under way, at half speed".to_owned(),
                    (false, _) => "stopped; `loamfs scrub start` goes on".to_owned(),
                };
                vec![format!(
                    "{shown}: {going}; begun {began} UTC, {} of {} passed",
                    human(number("passed_bytes")),
                    human(number("volume_bytes")),
                )]
            }
            (false, Some(ended)) => vec![format!(
                "{shown}: scrubbed from {began} to {ended} UTC, {} verified",
                human(number("verified_bytes")),
            )],
            (false, None) => vec![format!("{shown}: was never scrubbed")],
        };
        if status["began"].is_i64() {
            lines.push(format!(
                "{} damaged, {} of them written anew",
                count(number("damaged"), "block", "blocks"),
                number("healed")
            ));
        }
        let found = status["found"].as_array().into_iter().flatten();
        lines.extend(found.filter_map(|found| found["sentence"].as_str().map(str::to_owned)));
        let lines: Vec<String> = lines.iter().map(|line| wrapped(line, 0)).collect();
        lines.join("\n")
    }
}

/// The exit code, as fsck(8) has them.
fn code(status: &Value) -> u8 {
    let number = |field: &str| status[field].as_u64().unwrap_or(0);
    let found = status["found"].as_array();
    let is_left = found.is_some_and(|found| found.iter().any(|found| found["healed"] == false));
    match number("damaged") {
        _ if is_left => 4,
        0 => 0,
        damaged if damaged > number("healed") => 4,
        _ => 1,
    }
}

fn ask(entry: &MountEntry, request: &Request) -> Result<Value, Failure> {
    let answer = control::ask(entry, request)?;
    serde_json::from_str(&answer)
        .map_err(|_| Failure::new(Kind::Io, "the daemon's answer makes no sense"))
}

/// Waits until a scrub goes on no more.
fn wait(entry: &MountEntry, mut status: Value) -> Result<Value, Failure> {
    let mut bar = StepProgress::new();
    while status["running"] == true {
        let number = |field: &str| status[field].as_u64().unwrap_or(0) >> 20;
        bar.step(
            1,
            "MiB scrubbed",
            number("passed_bytes"),
            number("volume_bytes"),
        );
        thread::sleep(PERIOD);
        status = ask(entry, &Request::ScrubStatus)?;
    }
    bar.finish();
    Ok(status)
}
