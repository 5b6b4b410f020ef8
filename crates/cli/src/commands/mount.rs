//! `loamfs mount`.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::Args;
use loamfs_console::complete::ArgValueCompleter;
use loamfs_fuse::{MountEntry, find_mount, remount};
use rustix::fs::StatVfsMountFlags;
use rustix::process::geteuid;
use serde_json::json;

use crate::failure::{Failure, Kind};
use crate::members;
use crate::mount::control::{self, Request};
use crate::mount::log::Log;
use crate::mount::options::{Fixed, Options};
use crate::mount::promise::Promise;
use crate::mount::spec::Spec;
use crate::mount::supervisor;
use crate::mount::unmounter::{self, Unmounter};
use crate::mount::{again, beside, daemon, known, spawn};
use crate::mounts::SUBTYPE;
use crate::output::{note, print_lines};
use crate::text::shown_path;

/// What people type.
const EXAMPLES: &str = "
Examples:
  loamfs mount volume.img /mnt
      As root or as an ordinary user; returns when the mount can be used.
  loamfs mount -o cache=1G,noatime /dev/sdb1 /srv/mail
      A mail spool, with what memory the machine can spare.
  loamfs mount -o remount,ro volume.img /mnt
      From now on for reading only.";

/// Mount a volume; returns when the mount is usable.
///
/// As root the volume is mounted as a block device (fuseblk), an image file through a loop device
/// of its own: then sync(1) reaches it, and umount(8) returns when everything is on the device.
/// Other users get a plain FUSE mount through fusermount3, which lacks both: unmount it with
/// `loamfs unmount`.
///
/// Root can mount a volume that is mounted already on another directory too: both show the same, and ro, nosuid, nodev, noexec
/// and nosymfollow are each one's own. The first mount's other options count for all, as do later remounts.
///
/// Options of mount(8) and fstab(5) that mean nothing here are ignored, and others refused. The kernel checks permissions.
///
/// A read sets a file's access time if the file has changed since, and once a day (relatime), always
/// (strictatime) or never (noatime); nodiratime leaves directories out. Access times follow the reads that
/// reach the daemon: what the kernel has in its page cache, or of a directory's listing, is read without
/// them, but where the volume was mounted with strictatime: then nothing is read from there, except through mappings. They are written late, as with lazytime: along with what is written by age, at sync and at
/// unmount. Such as find no space are dropped.
///
/// With noxattr the mount has no extended attributes, and with noacl no access lists: then the kernel does not ask for them, which
/// is a request less for each file that is made or written. What is on the volume stays, and is handed down to new files; modes alone
/// say who may do what, and where there was an access list the group's bits are its mask. A file that is changed loses its capabilities.
/// noacl saves more than that: of a mount's root directory the kernel keeps no access list, and asks for it again each time that somebody
/// who does not own that directory opens or looks at anything below it by its path.
///
/// With dirsync, what changes a directory is on the device when the call returns, and with sync every change is, but for
/// what is stored through mappings.
///
/// With transport=uring requests reach the daemon through io_uring, and are carried out on the processor that sent them. That takes
/// Linux 6.14 and root, as it switches io_uring on for all FUSE mounts of the machine, and it fails where it is not to be had. With
/// transport=dev they come over /dev/fuse. Without it, or with transport=auto, they do so too; but with restart=no or --foreground
/// io_uring is used where it is switched on (/sys/module/fuse/parameters/enable_uring) and allowed. Its buffers take up to a quarter of the cache, and threads= is then
/// the number of threads for what waits.
///
/// Should the daemon die, another one recovers the volume and goes on with the mount; what was not synced may be lost, and whoever syncs it is
/// told. After the sixth time in a minute, with restart=no, with transport=uring, in the foreground, and before Linux 6.16, the mount
/// stays as an error, and the next one recovers the volume. `remount` changes
/// ro, rw, nosuid, nodev, noexec, nosymfollow, sync, dirsync and those for access times; it says which of the others the
/// next mount changes.
///
/// The daemon gives up what serving the mount does not take: capabilities, other system calls, other files than those below
/// the directories of its log and its socket, core dumps. So log= is best given a directory of its own. `loamfs info` shows
/// what is in force. With unconfined it keeps all, should that get in your way; no remount changes it.
///
/// FUSE gives no file system FICLONE, FIEMAP, FIFREEZE, swap files, and some more: the README, in
/// /usr/share/doc/loamfs where a package was installed, has the list (What FUSE does not give).
#[derive(Debug, Args)]
#[command(after_long_help = known::help() + EXAMPLES)]
pub struct MountArgs {
    /// Mount options, separated by commas; see below for those that there are.
    #[arg(short, long = "options", value_name = "OPTIONS", add = ArgValueCompleter::new(known::complete))]
    options: Vec<String>,
    /// Serve the mount in this process until it is unmounted.
    #[arg(long)]
    foreground: bool,
    /// The process that a mount in the background starts, and that has others follow the daemon should that die.
    #[arg(long, hide = true)]
    supervisor: bool,
    /// The daemon that that one starts.
    #[arg(long, hide = true)]
    daemon: bool,
    /// A daemon that takes over from one that died.
    #[arg(long, hide = true)]
    successor: bool,
    /// The process that unmounts for a daemon in the foreground.
    #[arg(long, hide = true)]
    unmounter: bool,
    /// Ignore unknown options.
    #[arg(long, hide = true)]
    sloppy: bool,
    /// Print JSON.
    #[arg(long)]
    json: bool,
    /// The device or image file.
    device: PathBuf,
    /// Where to mount it.
    mountpoint: PathBuf,
}

impl MountArgs {
    /// What `mount.loamfs` was called with.
    pub fn for_helper(
        device: PathBuf,
        mountpoint: PathBuf,
        options: Vec<String>,
        sloppy: bool,
    ) -> Self {
        Self {
            options,
            foreground: false,
            supervisor: false,
            daemon: false,
            successor: false,
            unmounter: false,
            sloppy,
            json: false,
            device,
            mountpoint,
        }
    }

    /// Carries it out.
    ///
    /// # Errors
    ///
    /// Why it could not be mounted.
    pub fn run(self) -> Result<u8, Failure> {
        self.run_with(false)
    }

    /// As [`run`](Self::run), saying nothing of success if `quiet`.
    ///
    /// # Errors
    ///
    /// Why it could not be mounted.
    pub fn run_with(self, quiet: bool) -> Result<u8, Failure> {
        if self.parsed_options()?.nofail && !self.device.exists() {
            return self.say(false);
        }
        let spec = self.spec()?;
        if spec.options.remount {
            change(&spec)?;
            return self.say(true);
        }
        if !self.is_part()
            && let Some(entry) = again::find(&spec)
        {
            again::show(&spec, &entry)?;
            return self.say_again(&spec, &entry, quiet);
        }
        let log = Log::start();
        if self.supervisor {
            spawn::leave_session();
            let arguments = supervisor::Arguments {
                first: self.daemon_arguments(&spec, "--daemon"),
                successor: self.daemon_arguments(&spec, "--successor"),
            };
            return supervisor::run(&spec, &log, &arguments);
        }
        if self.unmounter {
            return unmounter::run(&spec, &log).map(|()| 0);
        }
        if self.daemon || self.successor || self.foreground {
            let unmounter = self.start_unmounter(&spec)?;
            return daemon::run(&spec, &log, unmounter, self.successor).map(|()| 0);
        }
        match spawn::daemon(&self.daemon_arguments(&spec, "--supervisor"))? {
            spawn::Outcome::Ready(text) => {
                if !quiet {
                    print_lines([text.trim_end().to_owned()])?;
                }
                for warning in beside::warnings(&spec) {
                    note(&format!("loamfs: {warning}"));
                }
                Ok(0)
            }
            spawn::Outcome::Failed(code) => Ok(code),
        }
    }

    /// Whether this is one of the processes that a mount is made of.
    fn is_part(&self) -> bool {
        self.supervisor || self.daemon || self.successor || self.unmounter
    }

    /// Who unmounts for the daemon that this process becomes.
    fn start_unmounter(&self, spec: &Spec) -> Result<Unmounter, Failure> {
        let started = match self.daemon || self.successor {
            true => Unmounter::supervisor(),
            false => Unmounter::start(&self.daemon_arguments(spec, "--unmounter")),
        };
        started.map_err(|error| {
            let text = format!("the process that unmounts cannot be started: {error}");
            Failure::new(Kind::Io, text)
        })
    }

    /// What there is to say of another view of a mount.
    fn say_again(&self, spec: &Spec, entry: &MountEntry, quiet: bool) -> Result<u8, Failure> {
        let path = entry.path.display();
        let mut kept = late_options(entry, &spec.options);
        kept.extend(again::shared_options(entry, &spec.options));
        if !kept.is_empty() {
            note(&format!(
                "loamfs: of these options those of the mount on {path} count: {}",
                kept.join(", ")
            ));
        }
        if !quiet && !self.json {
            let (device, shown) = (self.device.display(), self.mountpoint.display());
            print_lines([format!(
                "{device} is mounted on {path} already; {shown} shows the same"
            )])?;
        }
        self.say(true)
    }

    /// With `--json`, what there is to say of a call that has started no daemon.
    fn say(&self, mounted: bool) -> Result<u8, Failure> {
        if !self.json {
            return Ok(0);
        }
        let value = json!({
            "mounted": mounted,
            "device": self.device.to_string_lossy(),
            "mountpoint": self.mountpoint.to_string_lossy(),
        });
        print_lines([format!("{value:#}")])
    }

    /// Only says whether it could be tried.
    ///
    /// # Errors
    ///
    /// What is wrong with the command line.
    pub fn check_only(self) -> Result<u8, Failure> {
        self.spec().map(|_| 0)
    }

    fn spec(&self) -> Result<Spec, Failure> {
        let options = self.parsed_options()?;
        let device = absolute(&self.device)?;
        let mountpoint = absolute(&self.mountpoint)?;
        // Before a successor serves it, nobody could look at the mount point.
        if options.remount || self.successor {
            return Ok(self.spec_of(device, mountpoint, options));
        }
        if let Err(error) = std::fs::metadata(&device) {
            return Err(Failure::io(&self.device, &error));
        }
        match std::fs::metadata(&mountpoint) {
            // mount(8) calls this a mount that failed, not a mistake on the command line.
            Ok(metadata) if !metadata.is_dir() => Err(Failure::new(
                Kind::NoInput,
                format!(
                    "{} is not a directory; name an empty directory to mount on",
                    shown_path(&self.mountpoint)
                ),
            )),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Err(Failure::new(
                Kind::NoInput,
                format!(
                    "{} does not exist; make that directory first",
                    shown_path(&self.mountpoint)
                ),
            )),
            // Any other error may be a dead mount, which is cleared later.
            _ => Ok(self.spec_of(device, mountpoint, options)),
        }
    }

    fn spec_of(&self, device: PathBuf, mountpoint: PathBuf, options: Options) -> Spec {
        Spec {
            device,
            mountpoint,
            options,
            foreground: self.foreground,
            json: self.json,
        }
    }

    fn parsed_options(&self) -> Result<Options, Failure> {
        let parsed = Options::parse(self.options.iter().map(String::as_str));
        let mut options = match parsed {
            Err(_) if self.sloppy => Options::parse_known(self.options.iter().map(String::as_str)),
            parsed => parsed?,
        };
        for path in members::named() {
            options.daemon.devices.push(absolute(path)?);
        }
        Ok(options)
    }

    fn daemon_arguments(&self, spec: &Spec, role: &str) -> Vec<OsString> {
        let mut arguments: Vec<OsString> = vec!["mount".into(), role.into()];
        if self.sloppy {
            arguments.push("--sloppy".into());
        }
        if self.json {
            arguments.push("--json".into());
        }
        for options in &self.options {
            arguments.push("-o".into());
            arguments.push(options.into());
        }
        for path in members::named() {
            arguments.push("--device".into());
            arguments.push(path.into());
        }
        arguments.push("--".into());
        arguments.push(spec.device.clone().into());
        arguments.push(spec.mountpoint.clone().into());
        arguments
    }
}

/// `-o remount`: changes the flags of a mount that is there, and says what waits for the next one.
fn change(spec: &Spec) -> Result<(), Failure> {
    let shown = shown_path(&spec.mountpoint);
    if !geteuid().is_root() {
        return Err(Failure::new(
            Kind::NoPermission,
            format!("only root can change the options of the mount on {shown}"),
        ));
    }
    let found = find_mount(&spec.mountpoint, SUBTYPE.as_ref()).map_err(|error| match error {
        loamfs_fuse::Error::Path { source, .. } => Failure::io(&spec.mountpoint, &source),
        error => Failure::new(Kind::Io, error.to_string()),
    })?;
    let Some(entry) = found else {
        return Err(Failure::usage(format!(
            "no LoamFS is mounted on {shown}; mount it without `remount` first"
        )));
    };
    change_flags(spec, &entry)?;
    let late = late_options(&entry, &spec.options);
    if !late.is_empty() {
        note(&format!(
            "loamfs: a remount does not change these options, the next mount does: {}",
            late.join(", ")
        ));
    }
    Ok(())
}

/// Which options are others than those of the mount, and no remount changes them. Those of fstab(5) come along with
/// every remount, so that the same ones again are nothing to speak of.
fn late_options(entry: &MountEntry, options: &Options) -> Vec<String> {
    let mut wanted = options.fixed();
    if !wanted.is_empty() {
        // A daemon that is older than this program does not know what is asked; then there is nothing to compare with.
        let answer = control::ask(entry, &Request::Fixed).unwrap_or_default();
        let known: Vec<Fixed> = serde_json::from_str(&answer).unwrap_or_default();
        wanted.retain(|option| !known.contains(option));
    }
    wanted.into_iter().map(|(name, _)| name).collect()
}

fn change_flags(spec: &Spec, entry: &MountEntry) -> Result<(), Failure> {
    let kernel = || {
        remount(&entry.path, &daemon::mount_options(spec))
            .map_err(|error| Failure::new(Kind::Io, error.to_string()))
    };
    if let Some(rule) = spec.options.volume.atime {
        control::ask(entry, &Request::Atime(rule))?;
    }
    change_promise(entry, Promise::of(&spec.options))?;
    // The daemon takes changes whenever the kernel does, so that none that the kernel took is refused.
    if spec.options.is_read_only() {
        kernel()?;
        return control::ask(entry, &Request::Freeze).map(drop);
    }
    control::ask(entry, &Request::Thaw).map_err(|failure| {
        let words = "for writing, unmount it and mount it again with rw";
        Failure::new(failure.kind(), format!("{failure}; {words}"))
    })?;
    if let Err(failure) = kernel() {
        // Where the kernel was rw it still is, and the daemon with it.
        if is_read_only(entry) {
            let _ = control::ask(entry, &Request::Freeze);
        }
        return Err(failure);
    }
    Ok(())
}

/// A daemon that is older than this program promises nothing, and cannot be asked to.
fn change_promise(entry: &MountEntry, promise: Promise) -> Result<(), Failure> {
    match control::ask(entry, &Request::Promise(promise)) {
        Err(_) if promise == Promise::default() => Ok(()),
        asked => asked.map(drop),
    }
}

/// Whether the kernel refuses changes.
fn is_read_only(entry: &MountEntry) -> bool {
    rustix::fs::statvfs(&entry.path)
        .is_ok_and(|mount| mount.f_flag.contains(StatVfsMountFlags::RDONLY))
}

fn absolute(path: &Path) -> Result<PathBuf, Failure> {
    let path = std::path::absolute(path).map_err(|error| Failure::io(path, &error))?;
    // A trailing slash would not match the mount table.
    Ok(path.components().collect())
}
