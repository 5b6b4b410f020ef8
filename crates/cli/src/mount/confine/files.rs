//! Which files a daemon can open: those that tell of processes and devices, the kernel's end of a mount, its log and its
//! socket. What it has open already, the device above all, it keeps.

use std::path::{Path, PathBuf};

use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, Ruleset, RulesetAttr, RulesetCreatedAttr,
    RulesetError, RulesetStatus, Scope, path_beneath_rules,
};

use super::super::options::DaemonOptions;
use super::super::runtime;

/// Mounts, what callers may do, processors and memory.
const TOLD: [&str; 2] = ["/proc", "/sys"];

/// The first one is opened by each thread that serves a mount.
const DEVICES: [&str; 2] = ["/dev/fuse", "/dev/null"];

/// Why files could not be restricted.
#[derive(Debug, thiserror::Error)]
pub enum FilesError {
    /// The rules cannot be made.
    #[error(transparent)]
    Rules(#[from] RulesetError),
    /// The kernel has no such rules.
    #[error("this kernel has no Landlock, or it is switched off")]
    Unknown,
}

/// Restricts the calling thread, and those that it starts. Returns below which directories files can still be written.
///
/// # Errors
///
/// If nothing is restricted.
pub fn restrict(options: &DaemonOptions) -> Result<Vec<PathBuf>, FilesError> {
    let writable = writable(options);
    let read = AccessFs::ReadFile | AccessFs::ReadDir;
    let use_device = AccessFs::ReadFile | AccessFs::WriteFile | AccessFs::IoctlDev;
    let status = Ruleset::default()
        .handle_access(AccessFs::from_all(ABI::V5))?
        .handle_access(AccessNet::from_all(ABI::V4))?
        .scope(Scope::from_all(ABI::V6))?
        .create()?
        .add_rules(path_beneath_rules(TOLD, read))?
        .add_rules(path_beneath_rules(DEVICES, use_device))?
        .add_rules(path_beneath_rules(&writable, read | keep_files()))?
        .restrict_self()?;
    match status.ruleset {
        RulesetStatus::NotEnforced => Err(FilesError::Unknown),
        _ => Ok(writable),
    }
}

/// What a log that is put aside takes, and a socket.
fn keep_files() -> BitFlags<AccessFs> {
    AccessFs::WriteFile
        | AccessFs::Truncate
        | AccessFs::MakeReg
        | AccessFs::MakeSock
        | AccessFs::RemoveFile
}

/// Where the daemon has its socket and, without a system log, its log; and where the log is that it was given.
fn writable(options: &DaemonOptions) -> Vec<PathBuf> {
    let log = options.log.as_deref().and_then(Path::parent);
    let mut places = Vec::from_iter(runtime::own());
    places.extend(log.map(Path::to_owned));
    places
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::io::{self, ErrorKind};
    use std::net::TcpListener;
    use std::thread;

    use rustix::thread::set_no_new_privs;

    use super::*;

    /// Both are a thread's own.
    #[test]
    fn what_is_not_the_daemon_s_is_out_of_reach() {
        let (place, foreign) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let options = DaemonOptions {
            log: Some(place.path().join("log")),
            ..DaemonOptions::default()
        };
        let open_before = File::create(foreign.path().join("device")).unwrap();
        let tried = thread::spawn(move || {
            set_no_new_privs(true).unwrap();
            let writable = match restrict(&options) {
                Err(FilesError::Unknown) => return eprintln!("skipped: no Landlock here"),
                restricted => restricted.unwrap(),
            };
            assert!(writable.contains(&place.path().to_owned()), "{writable:?}");
            let refused = |error: io::Error| assert_eq!(error.kind(), ErrorKind::PermissionDenied);
            refused(File::open("/etc/passwd").unwrap_err());
            refused(fs::read_dir("/etc").unwrap_err());
            refused(File::create(foreign.path().join("new")).unwrap_err());
            refused(fs::remove_file(foreign.path().join("device")).unwrap_err());
            refused(TcpListener::bind("127.0.0.1:0").unwrap_err());
            open_before.set_len(4096).unwrap();
            fs::read("/proc/self/mountinfo").unwrap();
            refused(fs::write("/proc/self/oom_score_adj", "0").unwrap_err());
            let (log, aside) = (place.path().join("log"), place.path().join("log.old"));
            fs::write(&log, "log").unwrap();
            fs::rename(&log, &aside).unwrap();
            fs::remove_file(&aside).unwrap();
        });
        tried.join().unwrap();
    }
}
