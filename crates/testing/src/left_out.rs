//! Tests that must notice when a clause is left out. The switch holds for a whole process, so each clause gets one.

use std::io;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::watchdog::Watchdog;
use loamfs_format::mutant;

/// The variable that names the clause to leave out.
const VARIABLE: &str = "LOAMFS_LEFT_OUT";

/// Without some clauses a test waits for ever; it takes far less with them.
const HANGS: Duration = Duration::from_secs(20);

/// Leaves out the clause that this process was started to do without, if any. Then a test that hangs fails.
pub fn obey() {
    if let Ok(clause) = std::env::var(VARIABLE) {
        let watchdog = Watchdog::start(HANGS);
        watchdog.enter(Some(format!("without {clause}")));
        // It watches as long as the process lives.
        std::mem::forget(watchdog);
        mutant::set(Some(clause.leak()));
    }
}

/// Runs tests of this program, each without its clause, and returns those that pass all the same.
///
/// # Errors
/// If the program cannot be run.
pub fn unmissed<'a>(clauses: &[(&'a str, &'a str)]) -> io::Result<Vec<(&'a str, &'a str)>> {
    let program = std::env::current_exe()?;
    let mut unmissed = Vec::new();
    for (clause, test) in clauses {
        let status = Command::new(&program)
            .args(["--exact", test])
            .env(VARIABLE, clause)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()?;
        if status.success() {
            unmissed.push((*clause, *test));
        }
    }
    Ok(unmissed)
}
