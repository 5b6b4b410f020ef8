//! The emulator: how it is called, and that it ends with us.

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use super::guest;
use crate::Error;
use crate::cleanup::later;

/// The files of a machine.
pub struct Parts {
    /// Its kernel.
    pub kernel: PathBuf,
    /// Its files.
    pub initramfs: PathBuf,
    /// The disk under measurement.
    pub disk: PathBuf,
    /// The disk for what it answers.
    pub answer: PathBuf,
    /// What it says while it works.
    pub console: PathBuf,
}

/// Bytes of the disk for answers: holes, most of them.
pub const ANSWER: u64 = 8 << 30;

/// MiB of memory, of which only what is touched is taken.
const MEMORY: u32 = 4096;

/// Nothing on this machine's screen or network; the clock counts instructions, 2^0 nanoseconds each, and goes on while
/// the machine waits for its disk. The disk's requests are as large and as many as a loop device's: a queue of 128.
fn arguments(parts: &Parts) -> Vec<String> {
    let drive = |name: &str, path: &Path| {
        // In names of files commas are doubled.
        let file = path.display().to_string().replace(',', ",,");
        [
            "-drive".to_owned(),
            format!("if=none,id={name},format=raw,cache=unsafe,discard=unmap,file={file}"),
            "-device".to_owned(),
            format!("virtio-blk-pci,drive={name},queue-size=128,num-queues=1"),
        ]
    };
    let plain = [
        "-nodefaults",
        "-no-user-config",
        "-no-reboot",
        "-display",
        "none",
        "-machine",
        "pc",
        "-accel",
        "tcg,thread=single",
        "-icount",
        "shift=0,sleep=on",
        "-cpu",
        "max",
        "-smp",
        "1",
    ];
    let mut arguments = plain.map(str::to_owned).to_vec();
    let shown = |path: &Path| path.display().to_string();
    let console = shown(&parts.console).replace(',', ",,");
    for (name, value) in [
        ("-m", MEMORY.to_string()),
        ("-kernel", shown(&parts.kernel)),
        ("-initrd", shown(&parts.initramfs)),
        ("-append", guest::command_line()),
        ("-serial", format!("file:{console}")),
    ] {
        arguments.extend([name.to_owned(), value]);
    }
    // In the order of their names in the machine.
    arguments.extend(drive("disk", &parts.disk));
    arguments.extend(drive("answer", &parts.answer));
    arguments
}

/// Runs a machine until it switches itself off.
///
/// # Errors
/// If the emulator does not start, or what it said when it failed.
pub fn run(qemu: &Path, parts: &Parts) -> Result<(), Error> {
    let failed = |source| Error::Io {
        what: format!("running {}", qemu.display()),
        source,
    };
    let child = Command::new(qemu)
        .args(arguments(parts))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        // A signal from the terminal is for us: the machine is taken away in its turn.
        .process_group(0)
        .spawn()
        .map_err(failed)?;
    let _ends = kill_later(&child).map_err(failed)?;
    let output = child.wait_with_output().map_err(failed)?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(Error::Command {
        command: qemu.display().to_string(),
        said: said.lines().last().unwrap_or("it was killed").to_owned(),
    })
}

/// Kills it if it still runs, and nobody else in its place.
fn kill_later(child: &Child) -> std::io::Result<crate::cleanup::Guard> {
    let number = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    let number = number.ok_or_else(|| std::io::Error::other("it has no number"))?;
    let process = pidfd_open(number, PidfdFlags::empty())?;
    Ok(later(move || {
        let _ = pidfd_send_signal(&process, Signal::KILL);
    }))
}

/// Why a machine did not answer: the last thing on its console that this program said, else the last of all.
pub fn last_words(console: &Path) -> String {
    let bytes = fs::read(console).unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes);
    let lines = || {
        text.lines()
            .rev()
            .map(str::trim)
            .filter(|line| !line.is_empty())
    };
    let ours = lines().find(|line| line.contains("loamfs"));
    let last = ours.or_else(|| lines().next());
    last.unwrap_or("it said nothing").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(directory: &str) -> Parts {
        let path = |name: &str| Path::new(directory).join(name);
        Parts {
            kernel: path("vmlinuz"),
            initramfs: path("initramfs"),
            disk: path("disk"),
            answer: path("answer"),
            console: path("console"),
        }
    }

    #[test]
    fn the_measured_disk_is_the_first() {
        let arguments = arguments(&parts("/a,b"));
        let disks: Vec<&String> = arguments.iter().filter(|a| a.contains("file=")).collect();
        assert!(disks[0].ends_with("file=/a,,b/disk"), "{disks:?}");
        assert!(disks[1].ends_with("file=/a,,b/answer"), "{disks:?}");
        // Without this the emulation's slowness would reach the timers.
        let clock = arguments.iter().position(|a| a == "-icount").unwrap();
        assert_eq!(arguments[clock + 1], "shift=0,sleep=on");
    }

    #[test]
    fn an_emulator_that_fails_is_quoted_and_one_that_is_missing_named() {
        let directory = tempfile::tempdir().unwrap();
        let parts = parts(&directory.path().display().to_string());
        // It takes the arguments for a script.
        let said = run(Path::new("/bin/sh"), &parts).unwrap_err().to_string();
        assert!(said.starts_with("`/bin/sh` failed: "), "{said}");
        let said = run(Path::new("/nowhere/qemu"), &parts)
            .unwrap_err()
            .to_string();
        assert!(said.starts_with("running /nowhere/qemu: "), "{said}");
    }

    #[test]
    fn last_words_are_our_own_if_there_are_any() {
        let directory = tempfile::tempdir().unwrap();
        let console = directory.path().join("console");
        assert_eq!(last_words(&console), "it said nothing");
        fs::write(
            &console,
            "[ 1.0] a\nloamfs: no disk\n[ 2.0] Kernel panic\n\n",
        )
        .unwrap();
        assert_eq!(last_words(&console), "loamfs: no disk");
        fs::write(&console, "[ 1.0] a\n[ 2.0] Kernel panic\n\n").unwrap();
        assert_eq!(last_words(&console), "[ 2.0] Kernel panic");
    }
}
