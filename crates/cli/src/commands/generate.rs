//! `loamfs generate-man` and `loamfs completions`.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::PathBuf;

use clap::{Args, Command};
use loamfs_console::complete::{Shell, script};
use loamfs_console::generate::{Section, page, pages};

use crate::failure::{Failure, Front, Kind};
use crate::helpers::Helper;
use crate::output::print_lines;

/// Write the manual pages into a directory.
#[derive(Debug, Args)]
pub struct ManArgs {
    /// Where to; it is made if it is not there.
    directory: PathBuf,
}

/// Print the script by which a shell completes.
#[derive(Debug, Args)]
pub struct CompletionArgs {
    /// Which shell.
    shell: Shell,
    /// For which name of the program.
    #[arg(default_value = "loamfs", value_parser = ["loamfs", "mkfs.loamfs", "fsck.loamfs", "mount.loamfs"])]
    name: String,
}

/// Whose exit codes a command line uses.
type FrontOf = fn(&[OsString]) -> Front;

impl ManArgs {
    /// Carries it out.
    ///
    /// # Errors
    ///
    /// If a page cannot be written.
    pub fn run(self, program: Command, front_of: FrontOf) -> Result<u8, Failure> {
        let written = self.write(program, front_of);
        written.map_err(|error| Failure::io(&self.directory, &error))?;
        Ok(0)
    }

    fn write(&self, program: Command, front_of: FrontOf) -> io::Result<()> {
        fs::create_dir_all(&self.directory)?;
        pages(&self.directory, program, &["loamfs"], &|words| {
            let arguments: Vec<OsString> = words.iter().map(OsString::from).collect();
            more(
                words.get(1).copied().unwrap_or_default(),
                front_of(&arguments),
            )
        })?;
        Helper::ALL.into_iter().try_for_each(|helper| {
            let more = more(helper.command(), helper.front());
            page(
                &self.directory,
                helper.definition(),
                helper.name(),
                "8",
                &more,
            )?;
            helper.other_names().iter().try_for_each(|name| {
                let text = format!(".so man8/{}.8\n", helper.name());
                fs::write(self.directory.join(format!("{name}.8")), text)
            })
        })
    }
}

/// What stands on the page of a command besides its own definition.
fn more(command: &str, front: Front) -> Vec<Section> {
    let mut sections = vec![Section::exit_status(front)];
    if matches!(command, "" | "mount") {
        sections.push(Section::new("files", FILES));
        sections.push(Section::new("environment", ENVIRONMENT));
    }
    sections.push(Section::new("see also", [(see_also(command), "")]));
    sections
}

const FILES: [(&str, &str); 4] = [
    (
        "/run/loamfs",
        "Where daemons of root listen for other commands, and log where there is no system log. Of \
         other users it is $XDG_RUNTIME_DIR/loamfs, else a directory of their own below /tmp.",
    ),
    (
        "/etc/fstab",
        "Takes volumes of the type loamfs by device, image file, UUID= or LABEL=.",
    ),
    (
        "/sys/module/fuse/parameters/enable_uring",
        "Whether requests can travel through io_uring.",
    ),
    (
        "/usr/share/loamfs/magic",
        "How file(1) knows a volume: file -m /usr/share/loamfs/magic volume.img.",
    ),
];

const ENVIRONMENT: [(&str, &str); 4] = [
    (
        "LOAMFS_LOG",
        "How much is logged, such as debug or loamfs_fs=trace. Default: info.",
    ),
    (
        "LOAMFS_PATIENCE",
        "How many seconds a mount waits for who uses the device; other commands wait a quarter of that. Default: 20.",
    ),
    ("NO_COLOR", "If it is set, nothing is coloured."),
    ("XDG_RUNTIME_DIR", "Where daemons of ordinary users listen."),
];

/// The pages next to that of a command.
fn see_also(command: &str) -> &'static str {
    match command {
        "" => {
            "loamfs-mkfs(1), loamfs-mount(1), loamfs-check(1), loamfs-info(1), mount.loamfs(8), fuse(4)"
        }
        "mount" => {
            "loamfs(1), loamfs-unmount(1), loamfs-info(1), mount(8), fstab(5), fusermount3(1)"
        }
        "unmount" => "loamfs(1), loamfs-mount(1), umount(8)",
        "check" => "loamfs(1), loamfs-salvage(1), loamfs-scrub(1), fsck(8)",
        "mkfs" => "loamfs(1), loamfs-mount(1), loamfs-grow(1), mkfs(8)",
        "grow" => "loamfs(1), loamfs-mkfs(1), loamfs-shrink(1), lvextend(8)",
        "shrink" => "loamfs(1), loamfs-grow(1), loamfs-device(1), lvreduce(8)",
        "scrub" | "salvage" => "loamfs(1), loamfs-check(1), loamfs-get(1)",
        "put" | "get" | "ls" | "tree" | "cat" | "stat" => {
            "loamfs(1), loamfs-put(1), loamfs-get(1), loamfs-ls(1), loamfs-tree(1), loamfs-cat(1)"
        }
        "trim" => "loamfs(1), loamfs-mount(1), fstrim(8)",
        "label" => "loamfs(1), loamfs-mkfs(1), fstab(5)",
        "map" | "dump" => "loamfs(1), loamfs-dump(1), loamfs-map(1), filefrag(8)",
        _ => "loamfs(1), loamfs-mount(1), loamfs-info(1)",
    }
}

impl CompletionArgs {
    /// Carries it out.
    ///
    /// # Errors
    ///
    /// If standard output cannot be written.
    pub fn run(self) -> Result<u8, Failure> {
        let script = script(self.shell, &self.name)
            .map_err(|error| Failure::new(Kind::Io, error.to_string()))?;
        print_lines([script])
    }
}
