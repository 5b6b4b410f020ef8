//! `loamfs-bench` on files; what needs root and devices is in `make bench`.

#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fs;
use std::process::{Command, Output};

use serde_json::Value;
use tempfile::TempDir;

fn bench(dir: &TempDir, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_loamfs-bench"))
        .args(args)
        .current_dir(dir.path())
        .output()
        .unwrap()
}

#[test]
fn replay_prices_a_trace_and_leaves_setup_out() {
    let dir = TempDir::new().unwrap();
    let text =
        "P 0 setup -1\n1 W 0 8\nP 2 setup 1\nP 3 scan -1\n4 R 8 2048\n5 R 2056 2048\nP 6 scan 2\n";
    fs::write(dir.path().join("a.trace"), text).unwrap();
    let ran = bench(
        &dir,
        &["replay", "a.trace", "--preset", "reference", "--json"],
    );
    assert!(ran.status.success(), "{ran:?}");
    let priced: Value = serde_json::from_slice(&ran.stdout).unwrap();
    assert_eq!(priced["size"], 2_u64 << 30);
    assert_eq!(priced["total"]["read"]["bytes"], 2 << 20);
    assert_eq!(priced["total"]["written"]["requests"], 0);
    assert_eq!(priced["phases"][0]["name"], "scan");
    // Two MiB that follow each other at 200 MB/s.
    let seconds = priced["total"]["seconds"].as_f64().unwrap();
    assert!(
        (seconds - f64::from(2 << 20) / 200e6).abs() < 1e-5,
        "{seconds}"
    );
}

#[test]
fn what_is_no_trace_or_does_not_fit_is_refused() {
    let dir = TempDir::new().unwrap();
    fs::write(dir.path().join("bad"), "1 R 0 8\nhello\n").unwrap();
    fs::write(dir.path().join("far"), "1 R 9000000 8\n").unwrap();
    for (args, code, words) in [
        (&["replay", "bad"][..], 65, "line 2"),
        (&["replay", "none"][..], 66, "none"),
        (&["replay", "far", "--size", "1000000"][..], 64, "--size"),
        (
            &["report", "bad", "--html", "x.html"][..],
            65,
            "file of results",
        ),
    ] {
        let ran = bench(&dir, args);
        assert_eq!(ran.status.code(), Some(code), "{ran:?}");
        let said = String::from_utf8_lossy(&ran.stderr);
        assert!(said.contains(words), "{said}");
    }
}

#[test]
fn it_speaks_as_people_call_it() {
    let dir = TempDir::new().unwrap();
    let said = |args: &[&str]| {
        let ran = bench(&dir, args);
        let text = [ran.stdout, ran.stderr].concat();
        (ran.status.code(), String::from_utf8(text).unwrap())
    };
    let version = format!("loamfs-bench {}\n", env!("CARGO_PKG_VERSION"));
    assert_eq!(said(&["--version"]), (Some(0), version));
    let (code, text) = said(&["replay", "--help"]);
    assert_eq!(code, Some(0));
    assert!(text.contains("Usage: loamfs bench replay"), "{text}");
    let missing = "loamfs bench: a command is missing; see --help\n";
    assert_eq!(said(&[]), (Some(64), missing.to_owned()));
    let (code, text) = said(&["replay", "none", "--json"]);
    assert_eq!(code, Some(66));
    assert!(text.starts_with("{\"error\":"), "{text}");
}

#[test]
fn without_the_program_of_its_version_nothing_is_measured() {
    // Where it can have another name: a copy that is still open in another test's process cannot be started.
    let dir = TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let alone = dir.path().join("loamfs-bench");
    fs::hard_link(env!("CARGO_BIN_EXE_loamfs-bench"), &alone).unwrap();
    fs::write(dir.path().join("loamfs"), "#!/bin/sh\necho loamfs 0.0.1\n").unwrap();
    let work = TempDir::new().unwrap();
    let ran = Command::new(&alone)
        .args([
            "run",
            "--scale",
            "tiny",
            "--only",
            "smallfile",
            "--directory",
        ])
        .arg(work.path())
        .arg("--out")
        .arg(work.path().join("results.json"))
        .output()
        .unwrap();
    assert_eq!(ran.status.code(), Some(66), "{ran:?}");
    let said = String::from_utf8_lossy(&ran.stderr);
    assert!(said.contains("install both in the same version"), "{said}");
}
