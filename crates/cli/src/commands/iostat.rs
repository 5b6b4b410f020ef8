//! `loamfs iostat`.

use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use clap::Args;
use loamfs_console::complete::ArgValueCompleter;
use loamfs_console::size::human;
use loamfs_console::time::took;

use crate::candidates::mounted;
use crate::failure::Failure;
use crate::mounts;
use crate::output::print_next;
use crate::watch::{Change, Sample};

/// Lines after which the heads of the columns are said again.
const LINES_PER_HEAD: u64 = 20;

/// What people type.
const EXAMPLES: &str = "\
Examples:
  loamfs iostat /mnt
      What was done since the volume was mounted.
  loamfs iostat /mnt 1
      What is done, second by second, until it is interrupted.
  loamfs iostat --json /mnt 10 6
      A minute in six parts, each a line of JSON.";

/// Show what programs ask of a mounted volume, and what that asks of its device.
///
/// The first line counts from the mount on; with an interval each further line is a second's part of what was done in it.
/// Columns: operations of programs and their average time, content that they read and wrote; then requests to the device:
/// reads, writes, flushes.
#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub struct IostatArgs {
    /// Where the volume is mounted, or its device or image file.
    #[arg(add = ArgValueCompleter::new(mounted))]
    volume: PathBuf,
    /// Seconds between lines; without it one line is said.
    #[arg(value_parser = seconds)]
    interval: Option<Duration>,
    /// How many lines. Default: until it is interrupted.
    #[arg(value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
    /// Print JSON, a line each time.
    #[arg(long)]
    json: bool,
}

/// Seconds on the command line.
pub fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok();
    let fits = |seconds: &f64| (0.01..=86_400.0).contains(seconds);
    let seconds: Option<f64> = seconds.filter(fits);
    let seconds = seconds.ok_or("give seconds, such as 1 or 0.5, up to a day")?;
    Ok(Duration::from_secs_f64(seconds))
}

impl IostatArgs {
    /// Carries it out.
    ///
    /// # Errors
    ///
    /// If nothing is mounted there, or its daemon cannot be asked, also after a while.
    pub fn run(self) -> Result<u8, Failure> {
        let entry = mounts::mounted(&self.volume)?;
        let count = match self.interval {
            None => 1,
            Some(_) => self.count.unwrap_or(u64::MAX),
        };
        let mut before = None;
        for number in 0..count {
            if number > 0 {
                thread::sleep(self.interval.unwrap_or_default());
            }
            let now = Sample::take(&entry)?;
            let change = Change {
                before: before.as_ref(),
                now: &now,
            };
            if !self.say(number, &change)? {
                break;
            }
            before = Some(now);
        }
        Ok(0)
    }

    /// Returns whether somebody listens.
    fn say(&self, number: u64, change: &Change<'_>) -> Result<bool, Failure> {
        if self.json {
            return print_next(&change.to_json().to_string());
        }
        // The first line is of another time than the others.
        let wants_head = number == 1 || number.is_multiple_of(LINES_PER_HEAD);
        let line = line(change);
        match wants_head {
            true => print_next(&format!("{}\n{line}", head(change.before.is_some()))),
            false => print_next(&line),
        }
    }
}

fn head(is_rate: bool) -> String {
    let title = match is_rate {
        true => "programs, a second",
        false => "programs, since the mount",
    };
    format!(
        "{title:<38} | device\n{:>7} {:>8} {:>10} {:>10} |{:>6} {:>9} {:>6} {:>9} {:>5}",
        "asked", "took", "read", "written", "reads", "of", "writes", "of", "flush",
    )
}

fn line(change: &Change<'_>) -> String {
    let seconds = change.time().map_or(1.0, |time| time.as_secs_f64());
    let rate = |number: u64| number as f64 / seconds;
    let size = |path: &str| human(rate(change.grown(path)) as u64);
    let count = |path: &str| rate(change.grown(path));
    let requests = change.all_kinds("requests");
    let mean = change.all_kinds("nanoseconds").checked_div(requests);
    format!(
        "{:>7.0} {:>8} {:>10} {:>10} |{:>6.0} {:>9} {:>6.0} {:>9} {:>5.0}",
        rate(requests),
        mean.map_or("-".to_owned(), took),
        size("/operations/read/bytes"),
        size("/operations/write/bytes"),
        count("/requests/total/reads"),
        size("/requests/total/read_bytes"),
        count("/requests/total/writes"),
        size("/requests/total/write_bytes"),
        count("/requests/flushes"),
    )
}
