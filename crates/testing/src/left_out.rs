//! Tests that must notice when a clause is left out. The switch holds for a whole process, so each clause gets one.

use std::io;
use std::process::{Command, Stdio};

use loamfs_format::mutant;

/// The variable that names the clause to leave out.
const VARIABLE: &str = "LOAMFS_LEFT_OUT";

/// Leaves out the clause that this process was started to do without, if any.
pub fn obey() {
    if let Ok(clause) = std::env::var(VARIABLE) {
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
