//! `loamfs top`.

use std::io::{IsTerminal, stdout};
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;
use loamfs_console::complete::ArgValueCompleter;
use loamfs_fuse::MountEntry;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};

use super::iostat::seconds;
use crate::candidates::mounted;
use crate::failure::{Failure, Kind};
use crate::mounts;
use crate::output::print_next;
use crate::watch::{Change, Sample};

mod screen;

/// What people type.
const EXAMPLES: &str = "\
Examples:
  loamfs top /mnt
      Until q is pressed; space stops and goes on.
  loamfs top --json --interval 5 /mnt
      Every five seconds a line of JSON.";

/// Shortest and longest time between two pictures that the keys reach.
const INTERVALS: [Duration; 2] = [Duration::from_millis(250), Duration::from_secs(60)];

/// Look at a mounted volume while it works.
///
/// Shows which processes ask for how much, what operations there are and how long they take, segments and cleaning, memory,
/// and what the device is asked for. Keys: q ends it, space stops and goes on, + and - change how often it looks.
#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub struct TopArgs {
    /// Where the volume is mounted, or its device or image file. Default: the only one that is mounted.
    #[arg(add = ArgValueCompleter::new(mounted))]
    volume: Option<PathBuf>,
    /// Seconds between two looks.
    #[arg(long, short, default_value = "1", value_parser = seconds)]
    interval: Duration,
    /// Print JSON, a line each time.
    #[arg(long)]
    json: bool,
}

/// What a key says.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Wish {
    End,
    Pause,
    Oftener,
    LessOften,
    Look,
}

impl TopArgs {
    /// Carries it out.
    ///
    /// # Errors
    ///
    /// If nothing is mounted there, its daemon cannot be asked, also after a while, or there is no terminal.
    pub fn run(self) -> Result<u8, Failure> {
        let entry = self.entry()?;
        if self.json {
            return self.lines(&entry);
        }
        if !stdout().is_terminal() {
            return Err(Failure::usage(
                "top needs a terminal; use `loamfs iostat`, or give --json",
            ));
        }
        let first = Sample::take(&entry)?;
        let mut terminal = ratatui::try_init().map_err(told)?;
        let watched = self.watch(&entry, first, &mut terminal);
        ratatui::restore();
        watched.map(|()| 0)
    }

    fn entry(&self) -> Result<MountEntry, Failure> {
        if let Some(path) = &self.volume {
            return mounts::mounted(path);
        }
        let mut found = mounts::trusted();
        found.dedup_by_key(|entry| entry.device);
        match (found.pop(), found.is_empty()) {
            (Some(entry), true) => Ok(entry),
            (None, _) => Err(Failure::new(
                Kind::NoInput,
                "no LoamFS is mounted; mount a volume first",
            )),
            _ => Err(Failure::usage(
                "several volumes are mounted; name one of them",
            )),
        }
    }

    fn lines(&self, entry: &MountEntry) -> Result<u8, Failure> {
        let mut before = Sample::take(entry)?;
        loop {
            thread::sleep(self.interval);
            let now = Sample::take(entry)?;
            let change = Change {
                before: Some(&before),
                now: &now,
            };
            if !print_next(&change.to_json().to_string())? {
                return Ok(0);
            }
            before = now;
        }
    }

    fn watch(
        &self,
        entry: &MountEntry,
        first: Sample,
        terminal: &mut ratatui::DefaultTerminal,
    ) -> Result<(), Failure> {
        let (mut before, mut now) = (None, first);
        let (mut interval, mut paused) = (self.interval, false);
        loop {
            let change = Change {
                before: before.as_ref(),
                now: &now,
            };
            let drawn = terminal.draw(|frame| screen::draw(frame, &change, interval, paused));
            drawn.map_err(told)?;
            match wish(interval)? {
                Wish::End => return Ok(()),
                Wish::Pause => paused = !paused,
                Wish::Oftener => interval = (interval / 2).max(INTERVALS[0]),
                Wish::LessOften => interval = (interval * 2).min(INTERVALS[1]),
                Wish::Look if paused => {}
                Wish::Look => before = Some(std::mem::replace(&mut now, Sample::take(entry)?)),
            }
        }
    }
}

/// Waits for a key, or for the next look.
fn wish(interval: Duration) -> Result<Wish, Failure> {
    let start = Instant::now();
    loop {
        let left = interval.saturating_sub(start.elapsed());
        if !event::poll(left).map_err(told)? {
            return Ok(Wish::Look);
        }
        let Event::Key(key) = event::read().map_err(told)? else {
            // The terminal has another size.
            return Ok(Wish::Look);
        };
        let control = key.modifiers.contains(KeyModifiers::CONTROL);
        let wish = match key.code {
            KeyCode::Char('q') | KeyCode::Esc => Wish::End,
            KeyCode::Char('c') if control => Wish::End,
            KeyCode::Char(' ' | 'p') => Wish::Pause,
            KeyCode::Char('+') => Wish::Oftener,
            KeyCode::Char('-') => Wish::LessOften,
            _ => continue,
        };
        if key.kind == KeyEventKind::Press {
            return Ok(wish);
        }
    }
}

#[expect(
    clippy::needless_pass_by_value,
    reason = "so that it can be named where an error is mapped"
)]
fn told(error: std::io::Error) -> Failure {
    Failure::new(Kind::Io, format!("the terminal: {error}"))
}
