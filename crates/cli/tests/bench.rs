//! `loamfs bench` on files; what needs root and devices is in `make bench`.

#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fs;
use std::process::{Command, Output};

use serde_json::Value;
use tempfile::TempDir;

fn bench(dir: &TempDir, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_loamfs"))
        .arg("bench")
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
