//! `loamfs bench` starts a program of its own, which is there in the same version or not at all.

#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use tempfile::TempDir;

/// A copy of the program in a place of its own.
fn installed(directory: &Path) -> PathBuf {
    let sbin = directory.join("sbin");
    fs::create_dir_all(&sbin).unwrap();
    let program = sbin.join("loamfs");
    fs::copy(env!("CARGO_BIN_EXE_loamfs"), &program).unwrap();
    program
}

/// A script that says to be loamfs-bench, tells what it was given, and ends with 7.
fn put_bench(path: &Path, version: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    let script = format!(
        "#!/bin/sh\n[ \"$1\" = --version ] && {{ echo loamfs-bench {version}; exit; }}\necho \"got $*\"; exit 7\n"
    );
    fs::write(path, script).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

fn bench(program: &Path, args: &[&str]) -> Output {
    let mut command = Command::new(program);
    command.arg("bench").args(args).output().unwrap()
}

/// One test, since a script that another thread has just written cannot always be started.
#[test]
fn it_is_started_in_this_version_or_missed_in_a_sentence() {
    let directory = TempDir::new().unwrap();
    let program = installed(directory.path());
    let refused = |words: &str| {
        let ran = bench(&program, &["run"]);
        assert_eq!(ran.status.code(), Some(66), "{ran:?}");
        let said = String::from_utf8_lossy(&ran.stderr);
        assert!(said.contains(words), "{said}");
        assert_eq!(said.lines().count(), 1, "{said}");
    };
    // Where the package is installed there is one.
    if !Path::new("/usr/libexec/loamfs-bench").exists() {
        refused("loamfs-bench is missing");
    }
    for place in ["libexec/loamfs-bench", "sbin/loamfs-bench"] {
        put_bench(&directory.path().join(place), env!("CARGO_PKG_VERSION"));
        for args in [&["run", "--json", "-x", "--", "y"][..], &["--help"], &[]] {
            let ran = bench(&program, args);
            assert_eq!(ran.status.code(), Some(7), "{ran:?}");
            let said = String::from_utf8(ran.stdout).unwrap();
            assert_eq!(
                said.trim_end(),
                format!("got {}", args.join(" ")).trim_end()
            );
        }
        fs::remove_file(directory.path().join(place)).unwrap();
    }
    put_bench(&directory.path().join("sbin/loamfs-bench"), "0.0.1");
    refused("install both in the same version");
}
