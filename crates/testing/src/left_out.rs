//! Tests that must notice when a clause is left out. A process of their own runs them without it.

use std::io;
use std::process::{Command, Stdio};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use loamfs_device::Device;
use loamfs_fs::{Env, Error, OpenOptions, Volume};

use crate::watchdog::Watchdog;
use crate::without::Without;

/// The variable that names the clause to leave out.
const VARIABLE: &str = "LOAMFS_LEFT_OUT";

/// Without some clauses a test waits for ever; it takes far less with them.
const HANGS: Duration = Duration::from_secs(20);

/// What this process was started to leave out, if anything. Then a test that hangs fails.
static OURS: LazyLock<Without> = LazyLock::new(|| {
    let Ok(clause) = std::env::var(VARIABLE) else {
        return Without::default();
    };
    let watchdog = Watchdog::start(HANGS);
    watchdog.enter(Some(format!("without {clause}")));
    // It watches as long as the process lives.
    std::mem::forget(watchdog);
    Without::clauses(&clause).announced()
});

/// Opens a volume without the clause that this process was started to leave out, if any.
///
/// # Errors
/// As [`Volume::open`].
pub fn open(device: Arc<dyn Device>, options: &OpenOptions, env: Env) -> Result<Volume, Error> {
    OURS.open(device, options, env)
}

/// Runs tests of this program, each without its clause, and returns those that pass all the same, or fail before they
/// have come to it.
///
/// # Errors
/// If the program cannot be run.
pub fn unmissed<'a>(clauses: &[(&'a str, &'a str)]) -> io::Result<Vec<(&'a str, &'a str)>> {
    let program = std::env::current_exe()?;
    let mut unmissed = Vec::new();
    for (clause, test) in clauses {
        let output = Command::new(&program)
            .args(["--exact", test])
            .env(VARIABLE, clause)
            .stdout(Stdio::null())
            .output()?;
        let said = String::from_utf8_lossy(&output.stderr);
        let reached = said.contains(&Without::announcement(clause));
        if output.status.success() || !reached {
            unmissed.push((*clause, *test));
        }
    }
    Ok(unmissed)
}
