//! Leaves out one clause of the rules after the other: the crash explorer must
//! notice each, or it proves nothing. Takes an hour; the program `mutants` has
//! the table and does the work, each clause in a process of its own, because the
//! switch holds for a whole process.

#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::process::Command;

#[test]
#[ignore = "takes an hour: run it with --ignored after changes of the rules"]
fn every_clause_is_missed_when_it_is_left_out() {
    let program = env!("CARGO_BIN_EXE_mutants");
    let status = Command::new(program).status().unwrap();
    assert!(status.success());
}
