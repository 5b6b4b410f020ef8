//! Progress: a bar on a terminal, silence elsewhere.

use std::ffi::OsString;
use std::fs::File;
use std::io::{IsTerminal, Write};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use loamfs_console::size::{count, human};
use serde_json::{Value, json};

use crate::failure::{Failure, Kind};
use crate::output::{note, print_lines};
use crate::trouble::Trouble;

/// How often a terminal is drawn to.
const TICK: Duration = Duration::from_millis(120);

/// What a file takes to copy besides its bytes, as if it were so many bytes more.
const FILE_WORK: u64 = 16 << 10;

/// Files and bytes that have been copied, and what went wrong with some.
pub struct CopyProgress {
    bar: ProgressBar,
    json: bool,
    files: u64,
    bytes: u64,
    /// Files and bytes in all, if they are known.
    expected: Option<(u64, u64)>,
    bad: u64,
    /// What went wrong first.
    kind: Kind,
}

impl CopyProgress {
    /// Starts a display; what goes wrong is said as JSON if `json`.
    pub fn new(verb: &'static str, json: bool) -> Self {
        let bar = spinner();
        bar.set_prefix(verb);
        Self {
            bar,
            json,
            files: 0,
            bytes: 0,
            expected: None,
            bad: 0,
            kind: Kind::Io,
        }
    }

    /// Whether anybody sees how far it is.
    pub fn is_shown(&self) -> bool {
        !self.bar.is_hidden()
    }

    /// How many files and bytes there are in all: then it can be told how long it takes.
    pub fn expect(&mut self, files: u64, bytes: u64) {
        self.expected = Some((files, bytes));
        self.bar.set_length(work(files, bytes));
        let template = "{spinner} {prefix} {msg} ({elapsed}, {eta} left)";
        if let Ok(style) = ProgressStyle::with_template(template) {
            self.bar.set_style(style);
        }
    }

    /// One more file or directory.
    pub fn file(&mut self) {
        self.files += 1;
        self.show();
    }

    /// More data.
    pub fn bytes(&mut self, count: u64) {
        self.bytes += count;
        self.show();
    }

    /// Says what went wrong with one of the files, if anything did.
    ///
    /// # Errors
    ///
    /// That with which the next file would fare no better.
    pub fn bad(
        &mut self,
        path: impl FnOnce() -> Vec<u8>,
        troubles: Vec<Trouble>,
    ) -> Result<(), Failure> {
        if troubles.is_empty() {
            return Ok(());
        }
        let path = PathBuf::from(OsString::from_vec(path()));
        for trouble in troubles {
            let is_hopeless = trouble.is_hopeless();
            let failure = trouble.of(&path);
            if is_hopeless {
                return Err(failure);
            }
            if self.bad == 0 {
                self.kind = failure.kind();
            }
            let text = match self.json {
                true => json!({ "error": failure.to_string() }).to_string(),
                false => format!("loamfs: {failure}"),
            };
            self.bar.suspend(|| note(&text));
        }
        self.bad += 1;
        Ok(())
    }

    /// Takes the display away, and says how much was copied.
    pub fn finish(self) -> Copied {
        self.bar.finish_and_clear();
        Copied(self)
    }

    fn show(&self) {
        if self.bar.is_hidden() {
            return;
        }
        let (files, bytes) = (self.files, self.bytes);
        self.bar.set_position(work(files, bytes));
        self.bar.set_message(match self.expected {
            Some((all, size)) => format!(
                "{files} of {all} files, {} of {}",
                human(bytes),
                human(size)
            ),
            None => format!("{files} files, {}", human(bytes)),
        });
    }
}

/// What a copy takes: a file takes time besides that for its bytes.
fn work(files: u64, bytes: u64) -> u64 {
    files.saturating_mul(FILE_WORK).saturating_add(bytes)
}

/// How much was copied.
pub struct Copied(CopyProgress);

impl Copied {
    /// Says so, to people beside the output proper. Returns the exit code.
    ///
    /// # Errors
    ///
    /// If not all was copied whole, or JSON cannot be written.
    pub fn report(&self, verb: &str) -> Result<u8, Failure> {
        self.report_with(verb, &json!({}))
    }

    /// The same, with further facts for programs.
    ///
    /// # Errors
    ///
    /// As [`Copied::report`].
    pub fn report_with(&self, verb: &str, facts: &Value) -> Result<u8, Failure> {
        let CopyProgress {
            files, bytes, bad, ..
        } = self.0;
        if self.0.json {
            let mut value = json!({ "files": files, "bytes": bytes, "bad": bad });
            if let (Some(value), Some(facts)) = (value.as_object_mut(), facts.as_object()) {
                value.extend(facts.clone());
            }
            print_lines([format!("{value:#}")])?;
        } else {
            let all = count(files, "file or directory", "files and directories");
            let whole = match bad {
                0 => all,
                bad => format!("{} of {all}", files.saturating_sub(bad)),
            };
            note(&format!("{verb} {whole}, {}", human(bytes)));
        }
        match bad {
            0 => Ok(0),
            bad => Err(Failure::new(
                self.0.kind,
                format!("{bad} of {files} were not copied, or not wholly; the reasons are above"),
            )),
        }
    }
}

/// Steps of something whose length is known or not.
pub struct StepProgress {
    bar: ProgressBar,
    lines: Option<Lines>,
}

/// Progress for a program that reads lines from a pipe, as `fsck -C` has it.
struct Lines {
    pipe: File,
    device: PathBuf,
    /// What was said last: the step and the hundredths of it.
    said: Option<(usize, u64)>,
}

impl StepProgress {
    /// Starts a display.
    pub fn new() -> Self {
        Self {
            bar: spinner(),
            lines: None,
        }
    }

    /// Starts one that also tells descriptor `pipe` of the progress on `device`.
    pub fn telling(pipe: i32, device: &Path) -> Self {
        // A descriptor that cannot be written to is nobody who listens.
        let pipe = File::options()
            .append(true)
            .open(format!("/proc/self/fd/{pipe}"));
        Self {
            lines: pipe.ok().map(|pipe| Lines {
                pipe,
                device: device.to_owned(),
                said: None,
            }),
            ..Self::new()
        }
    }

    /// `done` of `total` (0: not known) of step number `number`, which is called `name`.
    pub fn step(&mut self, number: usize, name: &str, done: u64, total: u64) {
        if let Some(lines) = &mut self.lines {
            lines.say(number, done, total);
        }
        if self.bar.is_hidden() {
            return;
        }
        self.bar.set_prefix(name.to_owned());
        self.bar.set_message(match total {
            0 => format!("{done}"),
            total => format!("{done} of {total}"),
        });
    }

    /// Takes the display away.
    pub fn finish(self) {
        self.bar.finish_and_clear();
    }
}

impl Lines {
    fn say(&mut self, number: usize, done: u64, total: u64) {
        let hundredths = done.saturating_mul(100).checked_div(total).unwrap_or(0);
        if self.said.replace((number, hundredths)) != Some((number, hundredths)) {
            let device = self.device.display();
            // Whoever asked for progress may have gone.
            let _ = writeln!(self.pipe, "{number} {done} {total} {device}");
        }
    }
}

fn spinner() -> ProgressBar {
    let target = if std::io::stderr().is_terminal() {
        ProgressDrawTarget::stderr()
    } else {
        ProgressDrawTarget::hidden()
    };
    let bar = ProgressBar::with_draw_target(None, target);
    if let Ok(style) = ProgressStyle::with_template("{spinner} {prefix} {msg} ({elapsed})") {
        bar.set_style(style);
    }
    bar.enable_steady_tick(TICK);
    bar
}
