//! What a newcomer does wrong, and what the program says to it: a table of command, exit code and words.
//!
//! `IMAGE` is a volume, `FILE` a file that is none, `DIR` an empty directory, `NONE` nothing. Each is told in one line, and
//! nothing is changed by it.

#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use tempfile::TempDir;

/// Exit codes of sysexits.h, mount(8) and fsck(8).
const TABLE: &[(&str, i32, &[&str])] = &[
    ("", 64, &["a command is missing", "--help"]),
    ("moutn IMAGE DIR", 64, &["did you mean `mount`?"]),
    ("mk IMAGE", 64, &["unrecognized subcommand 'mk'"]),
    ("format IMAGE", 64, &["unrecognized subcommand"]),
    (
        "place DIR hash",
        64,
        &["on no mount of LoamFS", "mount the volume first"],
    ),
    (
        "place FILE",
        64,
        &["is no directory", "the one that the files are in"],
    ),
    ("place DIR fast", 64, &["auto, log, data, hash"]),
    ("place NONE log", 66, &["does not exist"]),
    ("umont DIR", 64, &["did you mean `umount`?"]),
    ("mkfs", 64, &["<DEVICE>", "--help"]),
    ("mkfs NONE", 66, &["does not exist", "--size"]),
    ("mkfs DIR", 66, &["neither a file nor a block device"]),
    (
        "mkfs --size 1G DIR/none/volume.img",
        66,
        &["does not exist", "check the path"],
    ),
    ("mkfs --size 1GB NONE", 64, &["powers of 1,000", "write 1G"]),
    ("mkfs --size 1,5G NONE", 64, &["is not a size", "1.5T"]),
    ("mkfs --size -1G NONE", 64, &["-1"]),
    ("mkfs --size 1M NONE", 64, &["at least 2097152"]),
    ("mkfs -s 1G NONE", 64, &["'-s'", "--help"]),
    ("mkfs --sise 1G NONE", 64, &["did you mean `--size`?"]),
    ("mkfs IMAGE", 73, &["LoamFS", "--force"]),
    (
        "mkfs --block-size 3K --force IMAGE",
        64,
        &["--block-size must be"],
    ),
    (
        "mkfs --label toolong0123456789012345678901234567890123456789012345678901234567890 NONE --size 8M",
        64,
        &["at most 64"],
    ),
    ("mount IMAGE", 1, &["<MOUNTPOINT>"]),
    ("mount DIR IMAGE", 32, &["is not a directory"]),
    ("mount NONE DIR", 32, &["does not exist", "check the path"]),
    (
        "mount IMAGE NONE",
        32,
        &["does not exist", "make that directory first"],
    ),
    (
        "mount FILE DIR",
        32,
        &["holds no LoamFS volume", "loamfs mkfs"],
    ),
    (
        "mount -o rw,noatme IMAGE DIR",
        1,
        &["`noatme` is not known; did you mean `noatime`?"],
    ),
    (
        "mount -o cache IMAGE DIR",
        1,
        &["needs a value", "cache=SIZE"],
    ),
    ("mount -o cache=1 IMAGE DIR", 1, &["out of range"]),
    ("mount -o cache=64MB IMAGE DIR", 1, &["write 64M"]),
    (
        "mount -o uid=no-such-user IMAGE DIR",
        1,
        &["no user of this machine"],
    ),
    (
        "mount -o gid=no-such-group IMAGE DIR",
        1,
        &["no group of this machine"],
    ),
    (
        "mount -o transport=tcp IMAGE DIR",
        1,
        &["transport=auto|uring|dev"],
    ),
    ("mount -o commit=0 IMAGE DIR", 1, &["1 to 3600 seconds"]),
    ("mount -o log=relative IMAGE DIR", 1, &["log=/FILE"]),
    ("mount -o norecovery IMAGE DIR", 1, &["needs `ro`"]),
    ("mount -o context=x IMAGE DIR", 1, &["no SELinux labels"]),
    ("unmount", 1, &["<MOUNTPOINT>"]),
    ("unmount DIR", 1, &["no LoamFS is mounted on"]),
    ("unmount IMAGE", 1, &["no LoamFS is mounted on"]),
    ("unmount NONE", 1, &["does not exist"]),
    ("info DIR", 66, &["no LoamFS is mounted on"]),
    ("info FILE", 65, &["holds no LoamFS volume"]),
    ("iostat DIR 1 1", 66, &["no LoamFS is mounted on"]),
    ("iostat DIR 0", 64, &["such as 1 or 0.5"]),
    ("metrics DIR", 66, &["no LoamFS is mounted on"]),
    ("doctor DIR", 66, &["no LoamFS is mounted on"]),
    ("check", 16, &["<DEVICE>"]),
    (
        "check DIR",
        8,
        &["neither a regular file nor a block device"],
    ),
    ("check --fix IMAGE", 16, &["--fix", "--help"]),
    ("fsck FILE", 8, &["holds no LoamFS volume"]),
    (
        "grow IMAGE --size 4M",
        64,
        &["`loamfs shrink` makes it smaller"],
    ),
    ("shrink IMAGE", 64, &["--size"]),
    (
        "shrink IMAGE --size 1T",
        64,
        &["`loamfs grow` makes it larger"],
    ),
    ("shrink IMAGE --size 1M", 64, &["2.0 MiB at least"]),
    ("shrink FILE --size 4M", 65, &["holds no LoamFS volume"]),
    ("ls NONE", 66, &["does not exist"]),
    ("ls IMAGE /none", 66, &["no such file", "loamfs tree"]),
    ("cat IMAGE", 64, &["<PATH>..."]),
    ("cat IMAGE /", 64, &["not a regular file"]),
    ("put IMAGE FILE", 64, &["<SOURCE>"]),
    ("put IMAGE NONE /", 66, &["does not exist"]),
    ("get IMAGE", 64, &["<PATH>"]),
    ("get IMAGE /none DIR", 66, &["no such file"]),
    ("scrub IMAGE", 64, &["start, stop, status"]),
    ("scrub start DIR", 66, &["no LoamFS is mounted on"]),
    (
        "label IMAGE toolong0123456789012345678901234567890123456789012345678901234567890",
        64,
        &["at most 64"],
    ),
    ("dump IMAGE", 64, &["a command is missing"]),
    ("dump IMAGE inode x", 64, &["invalid value 'x'"]),
    ("dump IMAGE superblok", 64, &["did you mean `superblock`?"]),
    ("map FILE", 64, &["is on no mount of LoamFS"]),
    ("completions bahs", 64, &["did you mean `bash`?"]),
];

fn loamfs(args: &[String]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_loamfs"))
        .args(args)
        .env("LOAMFS_PATIENCE", "0")
        .output()
        .unwrap()
}

/// The words of a command, with paths for the names of the table.
fn words(command: &str, place: &Path) -> Vec<String> {
    let path = |name: &str| place.join(name).to_str().unwrap().to_owned();
    let word = |word: &str| match word {
        "IMAGE" => path("volume.img"),
        "FILE" => path("file"),
        "DIR" => path("dir"),
        "NONE" => path("none"),
        word => word.replace("DIR/", &path("dir/")),
    };
    command.split_whitespace().map(word).collect()
}

#[test]
fn mistakes_are_told_in_a_sentence_and_change_nothing() {
    let place = TempDir::new().unwrap();
    let image = place.path().join("volume.img");
    fs::create_dir(place.path().join("dir")).unwrap();
    fs::write(place.path().join("file"), "no volume\n".repeat(50_000)).unwrap();
    let made = loamfs(&words("mkfs --size 16M IMAGE", place.path()));
    assert!(made.status.success(), "{made:?}");
    let before = fs::read(&image).unwrap();
    let mut wrong = Vec::new();
    for &(command, code, expected) in TABLE {
        let ran = loamfs(&words(command, place.path()));
        let said = String::from_utf8_lossy(&ran.stderr).into_owned();
        let is_told = expected.iter().all(|words| said.contains(words));
        let is_right = ran.status.code() == Some(code)
            && is_told
            && said.lines().count() == 1
            && said.starts_with("loamfs: ")
            && ran.stdout.is_empty();
        if !is_right {
            wrong.push(format!(
                "{command}\n  wanted {code} {expected:?}\n  got {:?} {said}",
                ran.status.code()
            ));
        }
        assert!(
            !place.path().join("none").exists(),
            "{command}: made something"
        );
        assert!(
            fs::read(&image).unwrap() == before,
            "{command}: changed the volume"
        );
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// What is there already is not changed by a copy, either way, unless that is asked for.
#[test]
fn copies_replace_nothing_unless_forced() {
    let place = TempDir::new().unwrap();
    let run = |command: &str| loamfs(&words(command, place.path()));
    let refused = |command: &str| {
        let ran = run(command);
        let said = String::from_utf8_lossy(&ran.stderr).into_owned();
        assert_eq!(ran.status.code(), Some(73), "{command}: {said}");
        assert!(said.contains("exists already; give --force"), "{said}");
    };
    let done = |command: &str| {
        let ran = run(command);
        assert!(ran.status.success(), "{command}: {ran:?}");
        String::from_utf8_lossy(&ran.stdout).into_owned()
    };
    done("mkfs -q --size 16M IMAGE");
    let (tree, file) = (place.path().join("dir"), place.path().join("dir/file"));
    fs::create_dir(&tree).unwrap();
    fs::write(&file, "old").unwrap();
    std::os::unix::fs::symlink("nowhere", place.path().join("dir/link")).unwrap();
    done("put IMAGE DIR /");
    fs::write(&file, "new").unwrap();
    fs::write(place.path().join("dir/more"), "more").unwrap();
    refused("put IMAGE DIR /");
    refused("put IMAGE DIR/file /dir/file");
    assert_eq!(done("cat IMAGE /dir/file"), "old");
    refused("get IMAGE /dir/file DIR");
    assert_eq!(fs::read_to_string(&file).unwrap(), "new");
    done("put --force IMAGE DIR /");
    assert_eq!(done("cat IMAGE /dir/file /dir/more"), "newmore");
    fs::write(&file, "other").unwrap();
    fs::write(place.path().join("dir/own"), "stays").unwrap();
    let target = place.path().to_str().unwrap();
    refused(&format!("get IMAGE /dir {target}"));
    done(&format!("get --force IMAGE /dir {target}"));
    assert_eq!(fs::read_to_string(&file).unwrap(), "new");
    assert_eq!(
        fs::read_to_string(place.path().join("dir/own")).unwrap(),
        "stays"
    );
    let link = fs::read_link(place.path().join("dir/link")).unwrap();
    assert_eq!(link, Path::new("nowhere"));
    // A directory is never replaced by a file.
    fs::remove_file(&file).unwrap();
    fs::create_dir(&file).unwrap();
    assert!(
        !run(&format!("get --force IMAGE /dir {target}"))
            .status
            .success()
    );
    assert!(!run("put --force IMAGE DIR /").status.success());
    assert_eq!(done("cat IMAGE /dir/file"), "new");
    assert!(run("check IMAGE").status.success());
}

/// Sources that come to one name replace each other, and never the only name of what is to have that name.
#[test]
fn links_of_one_file_that_come_to_one_name_are_copied() {
    let place = TempDir::new().unwrap();
    let done = |command: &str| {
        let ran = loamfs(&words(command, place.path()));
        assert!(ran.status.success(), "{command}: {ran:?}");
        String::from_utf8_lossy(&ran.stdout).into_owned()
    };
    let path = |name: &str| place.path().join(name);
    for name in ["dir", "dir/1", "dir/2", "dir/3"] {
        fs::create_dir(path(name)).unwrap();
    }
    fs::write(path("dir/1/x"), "linked").unwrap();
    fs::write(path("dir/2/x"), "other").unwrap();
    fs::hard_link(path("dir/1/x"), path("dir/3/x")).unwrap();
    fs::hard_link(path("dir/1/x"), path("dir/3/y")).unwrap();
    done("mkfs -q --size 16M IMAGE");
    done("put --force IMAGE DIR/1/x DIR/3/x /");
    assert_eq!(done("cat IMAGE /x"), "linked");
    done("put --force IMAGE DIR/1/x DIR/2/x DIR/3/y /");
    assert_eq!(done("cat IMAGE /x /y"), "otherlinked");
    done("put --force IMAGE DIR/1/x DIR/2/x DIR/3/x DIR/3/y /");
    assert_eq!(done("cat IMAGE /x /y"), "linkedlinked");
    assert!(done("stat IMAGE /x").contains("2 names"));
    done("check IMAGE");
}
