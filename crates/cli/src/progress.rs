//! Progress: a bar on a terminal, silence elsewhere.

use std::io::IsTerminal;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::size::human;

/// How often a terminal is drawn to.
const TICK: Duration = Duration::from_millis(120);

/// Files and bytes that have been copied.
pub struct CopyProgress {
    bar: ProgressBar,
    files: u64,
    bytes: u64,
}

impl CopyProgress {
    /// Starts a display.
    pub fn new(verb: &'static str) -> Self {
        let bar = spinner();
        bar.set_prefix(verb);
        Self {
            bar,
            files: 0,
            bytes: 0,
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

    /// How much was copied, as a line.
    pub fn finish(self) -> String {
        self.bar.finish_and_clear();
        format!(
            "{} files and directories, {}",
            self.files,
            human(self.bytes)
        )
    }

    fn show(&self) {
        if !self.bar.is_hidden() {
            self.bar
                .set_message(format!("{} files, {}", self.files, human(self.bytes)));
        }
    }
}

/// Steps of something whose length is known or not.
pub struct StepProgress(ProgressBar);

impl StepProgress {
    /// Starts a display.
    pub fn new() -> Self {
        Self(spinner())
    }

    /// `done` of `total` (0: not known) of what is called `name`.
    pub fn step(&self, name: &str, done: u64, total: u64) {
        if self.0.is_hidden() {
            return;
        }
        self.0.set_prefix(name.to_owned());
        self.0.set_message(match total {
            0 => format!("{done}"),
            total => format!("{done} of {total}"),
        });
    }

    /// Takes the display away.
    pub fn finish(self) {
        self.0.finish_and_clear();
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
