//! What bad input gets: one sentence that says what to do, an exit code, and nothing changed.

#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::Duration;

use loamfs_device::{FileDevice, FileOptions, Mode};
use loamfs_format::superblock::{OFFSETS, SIZE};
use tempfile::TempDir;

/// sysexits.h.
const USAGE: i32 = 64;
const DATA: i32 = 65;
const NO_INPUT: i32 = 66;
const CANNOT_CREATE: i32 = 73;
const IO: i32 = 74;
const BUSY: i32 = 75;
/// fsck(8): the check failed; mount(8): the mount failed.
const NOT_CHECKED: i32 = 8;
const NOT_MOUNTED: i32 = 32;

fn loamfs(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_loamfs"))
        .args(args)
        .env_remove("RUST_LOG")
        // A mount waits for whoever uses the device; here that is in vain.
        .env("LOAMFS_PATIENCE", "0")
        .output()
        .unwrap()
}

struct Place {
    dir: TempDir,
    image: PathBuf,
}

impl Place {
    /// A volume of 16 MiB in a file.
    fn volume() -> Self {
        let dir = TempDir::new().unwrap();
        let image = dir.path().join("image");
        let made = loamfs(&["mkfs", "--size", "16M", image.to_str().unwrap()]);
        assert!(made.status.success(), "{made:?}");
        Self { dir, image }
    }

    /// A file of zeroes.
    fn blank(bytes: u64) -> Self {
        let dir = TempDir::new().unwrap();
        let image = dir.path().join("image");
        File::create(&image).unwrap().set_len(bytes).unwrap();
        Self { dir, image }
    }

    fn file(&self) -> File {
        let mut options = File::options();
        options.read(true).write(true).open(&self.image).unwrap()
    }

    /// Changes both superblocks, and gives them the right checksums.
    fn change_superblocks(&self, at: usize, bytes: &[u8]) {
        OFFSETS
            .iter()
            .for_each(|offset| self.change_superblock(*offset, at, bytes));
    }

    /// Changes one of them.
    fn change_superblock(&self, offset: u64, at: usize, bytes: &[u8]) {
        let mut sb = [0; SIZE];
        self.file().read_exact_at(&mut sb, offset).unwrap();
        sb[at..at + bytes.len()].copy_from_slice(bytes);
        sb[8..16].fill(0);
        let sum = xxhash_rust::xxh3::xxh3_64(&sb);
        sb[8..16].copy_from_slice(&sum.to_le_bytes());
        self.file().write_all_at(&sb, offset).unwrap();
    }

    /// Runs a command, in which `IMAGE` and `DIR` stand for this place, and compares exit code and words. Nothing
    /// may have changed.
    #[track_caller]
    fn refuses(&self, command: &str, code: i32, words: &[&str]) {
        let before = fs::read(&self.image).ok();
        let output = loamfs(&self.args(command));
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(code), "{command}: {said}");
        let said: Vec<&str> = said.lines().collect();
        let &[said] = said.as_slice() else {
            panic!("{command}: {said:?}");
        };
        assert!(said.starts_with("loamfs: "), "{command}: {said}");
        for word in words {
            assert!(said.contains(word), "{command}: no {word:?} in {said}");
        }
        assert!(output.stdout.is_empty(), "{command}");
        assert!(fs::read(&self.image).ok() == before, "{command}: changed");
    }

    /// Runs a command with `--json`, of which the failure must be JSON too.
    #[track_caller]
    fn fails_in_json(&self, command: &str, code: i32) {
        let output = loamfs(&self.args(command));
        assert_eq!(output.status.code(), Some(code), "{command}");
        assert!(output.stdout.is_empty(), "{command}");
        let said: serde_json::Value = serde_json::from_slice(&output.stderr).unwrap();
        assert_eq!(said["exit_code"], code, "{command}: {said}");
        assert!(said["error"].is_string(), "{command}: {said}");
    }

    fn args<'a>(&'a self, command: &'a str) -> Vec<&'a str> {
        let path = |path: &'a Path| path.to_str().unwrap();
        let words = command.split_whitespace();
        words
            .map(|word| match word {
                "IMAGE" => path(&self.image),
                "DIR" => path(self.dir.path()),
                word => word,
            })
            .collect()
    }

    /// Every command that opens a volume refuses it.
    #[track_caller]
    fn cannot_be_opened(&self, words: &[&str]) {
        for command in [
            "ls IMAGE",
            "info IMAGE",
            "dump IMAGE superblock",
            "tree IMAGE",
        ] {
            self.refuses(command, DATA, words);
        }
        self.refuses("put IMAGE /dev/null /x", DATA, words);
        self.refuses("mount IMAGE DIR", NOT_MOUNTED, words);
        self.refuses("mount -o ro IMAGE DIR", NOT_MOUNTED, words);
        self.refuses("check IMAGE", NOT_CHECKED, words);
    }
}

#[test]
fn what_is_no_volume() {
    let words = ["holds no LoamFS volume", "loamfs mkfs"];
    Place::blank(16 << 20).cannot_be_opened(&words);
    // Shorter than a superblock's place.
    Place::blank(100).cannot_be_opened(&words);
    Place::blank(0).cannot_be_opened(&words);
}

#[test]
fn what_is_not_there() {
    let place = Place::volume();
    fs::remove_file(&place.image).unwrap();
    for command in ["ls IMAGE", "info IMAGE", "put IMAGE /dev/null /x"] {
        place.refuses(command, NO_INPUT, &["does not exist", "check the path"]);
    }
    place.refuses("mkfs IMAGE", NO_INPUT, &["--size"]);
    assert!(!place.image.exists());
}

#[test]
fn versions_and_features_of_the_future() {
    let place = Place::volume();
    place.change_superblocks(16, &[2]);
    place.cannot_be_opened(&["format version 2", "use a newer loamfs"]);

    let place = Place::volume();
    place.change_superblocks(64 + 3, &[0x40]);
    place.cannot_be_opened(&["incompatible features 0x40000000", "use a newer loamfs"]);

    // A crash may have met who set it in one copy.
    for offset in OFFSETS {
        let place = Place::volume();
        place.change_superblock(offset, 16, &[2]);
        place.cannot_be_opened(&["format version 2", "use a newer loamfs"]);
        let place = Place::volume();
        place.change_superblock(offset, 64 + 3, &[0x40]);
        place.cannot_be_opened(&["incompatible features 0x40000000", "use a newer loamfs"]);
    }
}

/// Programs that know no deltas refuse a volume with them, so whoever has one of these leaves them out.
#[test]
fn volumes_have_deltas_unless_they_are_left_out() {
    for (switches, expected) in [
        (&[][..], true),
        (&["--deltas"], true),
        (&["--no-deltas"], false),
        (&["--deltas", "--no-deltas"], false),
        (&["--no-deltas", "--deltas"], true),
    ] {
        let place = Place::blank(16 << 20);
        let made = [
            &["mkfs", "--json"],
            switches,
            &[place.image.to_str().unwrap()],
        ]
        .concat();
        let output = loamfs(&made);
        assert!(output.status.success(), "{made:?}: {output:?}");
        let said: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(said["deltas"], expected, "{made:?}");
        for offset in OFFSETS {
            let mut incompatible = [0; 8];
            let at = offset + 64;
            place.file().read_exact_at(&mut incompatible, at).unwrap();
            let told = incompatible[0] & (8 | 32);
            assert_eq!(told, if expected { 8 | 32 } else { 0 }, "{made:?}");
        }
    }
}

/// Who does not know a read-only compatible feature may look, but not write, whichever copy has it.
#[test]
fn features_that_only_writers_must_know() {
    let place = Place::volume();
    place.change_superblocks(56 + 1, &[0x80]);
    may_only_be_read(&place);
    for offset in OFFSETS {
        let place = Place::volume();
        place.change_superblock(offset, 56 + 7, &[0x80]);
        may_only_be_read(&place);
    }
}

fn may_only_be_read(place: &Place) {
    assert!(loamfs(&place.args("ls IMAGE")).status.success());
    place.refuses(
        "put IMAGE /dev/null /x",
        DATA,
        &["read-only", "newer loamfs"],
    );
    place.refuses(
        "mount IMAGE DIR",
        NOT_MOUNTED,
        &["read-only", "newer loamfs"],
    );
}

#[test]
fn a_superblock_of_another_volume() {
    let (place, other) = (Place::volume(), Place::volume());
    let mut sb = [0; SIZE];
    other.file().read_exact_at(&mut sb, OFFSETS[1]).unwrap();
    place.file().write_all_at(&sb, OFFSETS[1]).unwrap();
    place.cannot_be_opened(&["belong to different volumes"]);
}

/// The first copy says where the second one is; who has neither is told what to do.
#[test]
fn a_superblock_of_another_volume_of_another_size() {
    let other = Place::volume();
    let place = Place::blank(20 << 20);
    let made = loamfs(&place.args("mkfs --size 12M IMAGE"));
    assert!(made.status.success(), "{made:?}");
    let mut sb = [0; SIZE];
    other.file().read_exact_at(&mut sb, OFFSETS[1]).unwrap();
    place.file().write_all_at(&sb, OFFSETS[1]).unwrap();
    for command in ["ls IMAGE", "check IMAGE", "probe IMAGE"] {
        let found = loamfs(&place.args(command));
        assert!(found.status.success(), "{command}: {found:?}");
    }
    place.file().write_all_at(&[7; SIZE], OFFSETS[0]).unwrap();
    place.cannot_be_opened(&["12.0 MiB", "4096 zeros", "loamfs check"]);
    place.refuses("probe IMAGE", DATA, &["4096 zeros"]);
    place.file().write_all_at(&[0; SIZE], OFFSETS[1]).unwrap();
    let checked = loamfs(&place.args("check IMAGE"));
    assert!(checked.status.success(), "{checked:?}");
}

#[test]
fn a_superblock_that_is_old_or_gone_is_no_obstacle() {
    let place = Place::volume();
    let mut old = [0; SIZE];
    place.file().read_exact_at(&mut old, OFFSETS[1]).unwrap();
    for _ in 0..2 {
        let put = loamfs(&place.args("put --force IMAGE Cargo.toml /"));
        assert!(put.status.success(), "{put:?}");
    }
    for copy in [old, [0; SIZE]] {
        place.file().write_all_at(&copy, OFFSETS[1]).unwrap();
        let listed = loamfs(&place.args("ls IMAGE"));
        assert_eq!(listed.stdout, b"Cargo.toml\n", "{listed:?}");
        let checked = loamfs(&place.args("check IMAGE"));
        assert!(checked.status.success(), "{checked:?}");
    }
}

#[test]
fn a_device_that_shrank() {
    let place = Place::volume();
    place.file().set_len(12 << 20).unwrap();
    place.cannot_be_opened(&[
        "12.0 MiB",
        "16.0 MiB",
        "4.0 MiB too little",
        "at least as large",
    ]);
}

/// A file that was cut does not look whole again because a larger one is asked for.
#[test]
fn an_image_that_was_cut_does_not_grow() {
    let words = ["20.0 MiB", "64.0 MiB", "at least as large"];
    for size in ["60M", "64M", "80M"] {
        let place = Place::blank(64 << 20);
        let made = loamfs(&place.args("mkfs IMAGE"));
        assert!(made.status.success(), "{made:?}");
        place.file().set_len(20 << 20).unwrap();
        place.refuses(&format!("grow --size {size} IMAGE"), DATA, &words);
        place.refuses("grow IMAGE", DATA, &words);
    }
}

/// An image that cannot have the size that is asked for is not even longer.
#[test]
fn an_image_that_cannot_grow_stays_as_it_was() {
    let place = Place::blank(8 << 20);
    let made = loamfs(&place.args("mkfs IMAGE"));
    assert!(made.status.success(), "{made:?}");
    // An odd length, which no device has.
    place.file().set_len((8 << 20) + 1).unwrap();
    place.refuses("grow --size 16M IMAGE", USAGE, &["below 16 MiB"]);
    place.refuses(
        "grow --size 4M IMAGE",
        USAGE,
        &["`loamfs shrink` makes it smaller"],
    );
    Place::blank(100).refuses("grow --size 16M IMAGE", DATA, &["holds no LoamFS volume"]);
}

#[test]
fn a_device_that_somebody_uses() {
    let place = Place::volume();
    let options = FileOptions::new(Mode::ReadWriteExclusive);
    let _held = FileDevice::open_with(&place.image, &options).unwrap();
    let words = ["used by another program", "unmount it"];
    for command in ["ls IMAGE", "info IMAGE", "put IMAGE /dev/null /x"] {
        place.refuses(command, BUSY, &words);
    }
    for command in ["mkfs IMAGE", "mkfs --force IMAGE"] {
        place.refuses(command, BUSY, &words);
    }
    place.refuses("check IMAGE", NOT_CHECKED, &words);
    place.refuses("check --repair IMAGE", NOT_CHECKED, &words);
    place.refuses("mount IMAGE DIR", NOT_MOUNTED, &words);
}

/// As when a daemon whose mount is gone still finishes.
#[test]
fn a_device_that_is_let_go_soon_is_waited_for() {
    let place = Place::volume();
    for command in ["check IMAGE", "ls IMAGE", "mkfs --force IMAGE"] {
        let options = FileOptions::new(Mode::ReadWriteExclusive);
        let held = FileDevice::open_with(&place.image, &options).unwrap();
        let waiting = Command::new(env!("CARGO_BIN_EXE_loamfs"))
            .args(place.args(command))
            .env("LOAMFS_PATIENCE", "240")
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        thread::sleep(Duration::from_millis(1_000));
        drop(held);
        let output = waiting.wait_with_output().unwrap();
        assert!(output.status.success(), "{command}: {output:?}");
    }
}

/// A mkfs that waits while somebody else has the device.
fn waiting_mkfs(args: &[&str]) -> Child {
    Command::new(env!("CARGO_BIN_EXE_loamfs"))
        .args(args)
        .env("LOAMFS_PATIENCE", "240")
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Whoever had the lock before may have changed the file meanwhile.
#[test]
fn a_refused_mkfs_takes_back_only_what_it_did() {
    let place = Place::volume();
    let options = FileOptions::new(Mode::ReadWriteExclusive);
    let held = FileDevice::open_with(&place.image, &options).unwrap();
    let waiting = waiting_mkfs(&place.args("mkfs --size 32M IMAGE"));
    let opened = PathBuf::from(format!("/proc/{}/fd", waiting.id()));
    let has_opened = || {
        let mut open = fs::read_dir(&opened).unwrap();
        open.any(|entry| fs::read_link(entry.unwrap().path()).is_ok_and(|to| to == place.image))
    };
    while !has_opened() {
        thread::sleep(Duration::from_millis(10));
    }
    place.file().set_len(64 << 20).unwrap();
    drop(held);
    let output = waiting.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(CANNOT_CREATE), "{output:?}");
    assert_eq!(fs::metadata(&place.image).unwrap().len(), 64 << 20);
    place.file().set_len(16 << 20).unwrap();
    place.refuses("mkfs --size 32M IMAGE", CANNOT_CREATE, &["LoamFS"]);
}

#[test]
fn of_several_mkfs_at_once_one_makes_the_volume_and_the_others_leave_it() {
    for _ in 0..20 {
        let dir = TempDir::new().unwrap();
        let image = dir.path().join("image");
        let args = ["mkfs", "--size", "16M", image.to_str().unwrap()];
        let all = [(); 3].map(|()| waiting_mkfs(&args));
        let ended = all.map(|one| one.wait_with_output().unwrap());
        let made = ended.iter().filter(|output| output.status.success());
        assert_eq!(made.count(), 1, "{ended:?}");
        let checked = loamfs(&["check", image.to_str().unwrap()]);
        assert!(checked.status.success(), "{checked:?}, {ended:?}");
    }
}

#[test]
fn options_and_sizes_out_of_range() {
    let place = Place::blank(16 << 20);
    for (options, word) in [
        ("--size 1M", "at least 2097152"),
        ("--size 100", "at least 2097152"),
        ("--size 2097151", "would have 2093056"),
        (
            "--uuid 00000000-0000-0000-0000-000000000000",
            "UUID of zeros",
        ),
        ("--size 12X", "12X"),
        ("--size -1", "-1"),
        ("--block-size 3K", "--block-size must be"),
        ("--block-size 2K", "--block-size must be"),
        ("--block-size 2M", "--block-size must be"),
        ("--fragment-size 100", "--fragment-size must be"),
        ("--fragment-size 8K", "--fragment-size must be"),
        ("--group-size 100K", "--group-size must be"),
        ("--profile other", "other"),
        ("--uuid 12", "12"),
        ("--files-per-dir many", "many"),
        ("--no-such-option", "--no-such-option"),
        (
            "--label 12345678901234567890123456789012345678901234567890123456789012345",
            "64",
        ),
    ] {
        place.refuses(&format!("mkfs {options} IMAGE"), USAGE, &[word]);
    }
    Place::blank(1 << 20).refuses("mkfs IMAGE", USAGE, &["at least 2097152"]);
    place.refuses("mkfs", USAGE, &["<DEVICE>"]);
    place.refuses("dump IMAGE inode two", USAGE, &["two"]);
    place.refuses("no-such-command", USAGE, &["no-such-command"]);
    place.refuses("", USAGE, &["a command is missing", "--help"]);
    place.refuses("dump IMAGE", USAGE, &["a command is missing"]);
    place.refuses("check", 16, &["<DEVICE>"]);
    place.refuses("mount IMAGE", 1, &["<MOUNTPOINT>"]);
}

#[test]
fn what_holds_something_already() {
    let other = Place::blank(16 << 20);
    // The magic number of ext4.
    other.file().write_all_at(&[0x53, 0xef], 1080).unwrap();
    other.refuses("mkfs IMAGE", CANNOT_CREATE, &["ext", "--force"]);
    Place::volume().refuses("mkfs IMAGE", CANNOT_CREATE, &["LoamFS", "--force"]);
    Place::volume().refuses("mkfs --size 32M IMAGE", CANNOT_CREATE, &["--force"]);
}

#[test]
fn names_that_are_not_on_the_volume() {
    let place = Place::volume();
    for command in [
        "ls IMAGE /none",
        "cat IMAGE /none",
        "stat IMAGE /none",
        "get IMAGE /none DIR",
    ] {
        place.refuses(command, NO_INPUT, &["/none", "no such file", "loamfs tree"]);
    }
    place.refuses("dump IMAGE inode 77", NO_INPUT, &["no inode 77"]);
    place.refuses("dump IMAGE segment 77", NO_INPUT, &["no segment 77"]);
    place.refuses("dump IMAGE node 5", NO_INPUT, &["no node at 5"]);
    place.refuses("put IMAGE DIR/none /", NO_INPUT, &["does not exist"]);
    place.refuses("mount IMAGE DIR/none", NOT_MOUNTED, &["does not exist"]);
}

#[test]
fn where_nothing_is_mounted() {
    let place = Place::blank(0);
    let words = ["no LoamFS is mounted on", "name the directory"];
    for command in ["info DIR", "settle DIR"] {
        place.refuses(command, NO_INPUT, &words);
    }
    place.refuses("unmount DIR", 1, &words);
    place.refuses("umount IMAGE", 1, &words);
    place.refuses("unmount DIR/none", 1, &["does not exist", "check the path"]);
    if rustix::process::geteuid().is_root() {
        place.refuses(
            "mount -o remount IMAGE DIR",
            1,
            &["without `remount` first"],
        );
        place.refuses(
            "mount -o remount IMAGE DIR/none",
            NOT_MOUNTED,
            &["does not exist"],
        );
    }
}

/// Sizes that the file system around an image cannot hold; here a limit of the process stands for its.
#[test]
fn images_that_the_file_system_around_cannot_hold() {
    let place = Place::volume();
    for command in ["mkfs --force --size 300T", "grow --size 300T"] {
        let limited = format!(
            "trap '' XFSZ; ulimit -f 65536; exec {} {command} {}",
            env!("CARGO_BIN_EXE_loamfs"),
            place.image.display()
        );
        let output = Command::new("bash")
            .args(["-c", &limited])
            .output()
            .unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(IO), "{command}: {said}");
        assert!(said.contains("takes no file of that size"), "{said}");
        assert_eq!(
            place.file().metadata().unwrap().len(),
            16 << 20,
            "{command}"
        );
    }
    assert!(loamfs(&place.args("check IMAGE")).status.success());
}

/// In whole units of 4 KiB.
#[test]
fn odd_sizes_are_rounded_down() {
    let place = Place::blank(0);
    let length = || place.file().metadata().unwrap().len();
    let made = loamfs(&place.args("mkfs --size 16777217 IMAGE"));
    assert!(made.status.success(), "{made:?}");
    assert_eq!(length(), 16 << 20);
    let same = loamfs(&place.args("grow --size 16777217 IMAGE"));
    assert!(same.status.success(), "{same:?}");
    assert_eq!(length(), 16 << 20);
    let grown = loamfs(&place.args("grow --size 20971521 IMAGE"));
    assert!(grown.status.success(), "{grown:?}");
    assert_eq!(length(), 20 << 20);
}

#[test]
fn labels_have_no_control_characters() {
    let place = Place::volume();
    let image = place.image.to_str().unwrap();
    for args in [
        &["mkfs", "--force", "-L", "two\nlines", image][..],
        &["label", image, "two\nlines"],
    ] {
        let output = loamfs(args);
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(USAGE), "{args:?}: {said}");
        assert!(said.contains("control characters"), "{args:?}: {said}");
    }
    assert_eq!(loamfs(&["label", image]).stdout, b"\n");
}

/// udev may ask about anything; a fifo would be waited for.
#[test]
fn what_is_no_device_is_not_opened() {
    let place = Place::blank(0);
    let fifo = place.dir.path().join("fifo");
    let mode = rustix::fs::Mode::from_raw_mode(0o600);
    rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, mode, 0).unwrap();
    for command in ["probe", "label", "info"] {
        let command = format!("{command} {}", fifo.display());
        place.refuses(
            &command,
            NO_INPUT,
            &["neither a regular file nor a block device"],
        );
    }
}

/// Who reads JSON reads failures as JSON too, in one line beside the output proper.
#[test]
fn failures_as_json() {
    let place = Place::volume();
    place.fails_in_json("dump --json IMAGE inode 77", NO_INPUT);
    place.fails_in_json("dump IMAGE node 5 --json", NO_INPUT);
    place.fails_in_json("dump --json IMAGE", USAGE);
    fs::remove_file(&place.image).unwrap();
    for (command, code) in [
        ("info --json IMAGE", NO_INPUT),
        ("check --json IMAGE", NOT_CHECKED),
        ("dump --json IMAGE superblock", NO_INPUT),
        ("mount --json IMAGE DIR", NOT_MOUNTED),
        ("grow --json --size x IMAGE", USAGE),
    ] {
        place.fails_in_json(command, code);
    }
    place.refuses("info -- --json", NO_INPUT, &["--json does not exist"]);
}

/// The stress test runs as root and for long; it says at once what is wrong with its arguments.
#[test]
fn the_stress_test_refuses_bad_arguments() {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/stress.sh");
    let program = env!("CARGO_BIN_EXE_loamfs");
    for (arguments, words) in [
        (vec![], "0 arguments"),
        (vec![program, "1", "1", "1"], "4 arguments"),
        (vec!["/nowhere"], "`/nowhere` is no program"),
        (vec!["/tmp"], "`/tmp` is no program"),
        (vec![program, "ten"], "SECONDS is a whole number"),
        (vec![program, "0"], "not `0`"),
        (vec![program, "1.5"], "not `1.5`"),
        (vec![program, "-1"], "not `-1`"),
        (vec![program, "99999999999999999999"], "SECONDS"),
        (vec![program, "1", "many"], "PROCESSES is a whole number"),
        (vec![program, "1", "5000"], "from 1 to 4096"),
    ] {
        let output = Command::new("bash")
            .arg(script)
            .args(&arguments)
            .output()
            .unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(USAGE), "{arguments:?}: {said}");
        assert_eq!(said.lines().count(), 1, "{arguments:?}: {said}");
        assert!(said.starts_with("stress: "), "{arguments:?}: {said}");
        assert!(said.contains(words), "{arguments:?}: {said}");
        assert!(output.stdout.is_empty(), "{arguments:?}");
    }
}

/// A device that cannot join a volume keeps what it holds, though `--force` allows to overwrite it.
#[test]
fn a_device_that_cannot_join_is_as_it_was() {
    let volume = Place::volume();
    let short = Place::blank(200 << 10);
    // As an ext4 file system begins.
    short.file().write_all_at(&[0x53, 0xef], 0x438).unwrap();
    let before = fs::read(&short.image).unwrap();
    let [image, new] = [&volume.image, &short.image].map(|path| path.to_str().unwrap());
    let refused = loamfs(&["device", "add", "--force", image, new]);
    assert_eq!(refused.status.code(), Some(USAGE), "{refused:?}");
    assert_eq!(fs::read(&short.image).unwrap(), before);
    // One that can is overwritten.
    short.file().set_len(32 << 20).unwrap();
    let refused = loamfs(&["device", "add", image, new]);
    assert_eq!(refused.status.code(), Some(CANNOT_CREATE), "{refused:?}");
    let added = loamfs(&["device", "add", "--force", image, new]);
    assert!(added.status.success(), "{added:?}");
    assert_eq!(fs::read(&short.image).unwrap()[0x438..0x43a], [0, 0]);
}

/// A device that cannot leave is replaced by none: the new one had joined by then.
#[test]
fn what_cannot_leave_is_replaced_by_nothing() {
    let places = [64 << 20, 96 << 20, 96 << 20].map(Place::blank);
    let [fast, slow, new] = places.each_ref().map(|place| place.image.to_str().unwrap());
    let made = loamfs(&["mkfs", "-q", slow, "--fast", fast]);
    assert!(made.status.success(), "{made:?}");
    let list = || loamfs(&["device", "list", "--json", "--device", fast, slow]).stdout;
    let (before, held) = (list(), fs::read(&places[2].image).unwrap());
    for (old, words) in [
        ("7", "no device 7"),
        (slow, "by another device"),
        (fast, "leads the volume"),
    ] {
        let refused = loamfs(&["device", "replace", "--device", fast, slow, old, new]);
        assert_eq!(refused.status.code(), Some(USAGE), "{refused:?}");
        let said = String::from_utf8_lossy(&refused.stderr);
        assert!(said.contains(words), "{said}");
        assert!(fs::read(&places[2].image).unwrap() == held, "{old}");
        assert_eq!(list(), before);
    }
}
