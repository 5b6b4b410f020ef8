//! Which system calls a daemon can make once it serves a mount.
//!
//! Any other is answered ENOSYS, as by a kernel that does not have it, and not by the end of the process: what somebody
//! wrote a moment ago is in its memory alone. Libraries that try a new call know that answer, and go on with an old one.
//! The kernel's log says which call it was.

use std::collections::BTreeMap;
use std::ffi::{c_long, c_ulong};
use std::io;

use libc::sock_filter;
use seccompiler::{
    BackendError, BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition,
    SeccompFilter, SeccompRule, TargetArch,
};

type Rules = BTreeMap<i64, Vec<SeccompRule>>;

/// Those that may be made with any arguments: which files they reach is another matter.
const ANY: &[c_long] = &[
    // Reading and writing.
    libc::SYS_read,
    libc::SYS_write,
    libc::SYS_readv,
    libc::SYS_writev,
    libc::SYS_pread64,
    libc::SYS_pwrite64,
    libc::SYS_preadv,
    libc::SYS_pwritev,
    libc::SYS_preadv2,
    libc::SYS_pwritev2,
    libc::SYS_lseek,
    libc::SYS_fsync,
    libc::SYS_fdatasync,
    libc::SYS_sync_file_range,
    libc::SYS_fallocate,
    libc::SYS_ftruncate,
    libc::SYS_fadvise64,
    // Files.
    libc::SYS_openat,
    libc::SYS_close,
    libc::SYS_close_range,
    libc::SYS_dup,
    libc::SYS_dup3,
    libc::SYS_fcntl,
    libc::SYS_fstat,
    libc::SYS_newfstatat,
    libc::SYS_statx,
    libc::SYS_fstatfs,
    libc::SYS_readlinkat,
    libc::SYS_getdents64,
    libc::SYS_unlinkat,
    libc::SYS_renameat,
    libc::SYS_renameat2,
    // The socket that commands ask at, which is bound before, and that of the system's log.
    libc::SYS_connect,
    libc::SYS_accept4,
    libc::SYS_sendto,
    libc::SYS_sendmsg,
    libc::SYS_recvfrom,
    libc::SYS_recvmsg,
    libc::SYS_getsockopt,
    libc::SYS_setsockopt,
    libc::SYS_shutdown,
    libc::SYS_ppoll,
    // Memory.
    libc::SYS_brk,
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_madvise,
    // Threads.
    libc::SYS_futex,
    libc::SYS_set_robust_list,
    libc::SYS_rseq,
    libc::SYS_membarrier,
    libc::SYS_sched_yield,
    libc::SYS_sched_getaffinity,
    libc::SYS_getcpu,
    libc::SYS_gettid,
    libc::SYS_exit,
    libc::SYS_exit_group,
    // Signals.
    libc::SYS_sigaltstack,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_restart_syscall,
    // Time, chance, and who we are.
    libc::SYS_clock_gettime,
    libc::SYS_clock_getres,
    libc::SYS_clock_nanosleep,
    libc::SYS_nanosleep,
    libc::SYS_gettimeofday,
    libc::SYS_getrandom,
    libc::SYS_getpid,
    libc::SYS_getuid,
    libc::SYS_geteuid,
    libc::SYS_getgid,
    libc::SYS_getegid,
    libc::SYS_getrusage,
    libc::SYS_sysinfo,
    libc::SYS_uname,
];

/// Older calls for the same.
#[cfg(target_arch = "x86_64")]
const OLDER: &[c_long] = &[
    libc::SYS_open,
    libc::SYS_stat,
    libc::SYS_lstat,
    libc::SYS_access,
    libc::SYS_readlink,
    libc::SYS_unlink,
    libc::SYS_rename,
    libc::SYS_dup2,
    libc::SYS_poll,
    libc::SYS_time,
];
#[cfg(not(target_arch = "x86_64"))]
const OLDER: &[c_long] = &[];

/// What the drivers of block devices and of /dev/fuse, and sockets, are asked for: BLKDISCARD, FUSE_DEV_IOC_CLONE, FIONBIO.
const IOCTLS: [u64; 3] = [0x1277, 0x8004_e500, 0x5421];

/// The bits of a socket's type that say which it is; others are flags.
const SOCKET_TYPE: u64 = 0xf;

/// PR_GET_AUXV, by which a library learns of the processor.
const GET_AUXV: u64 = 0x4155_5856;

/// Why system calls could not be restricted.
#[derive(Debug, thiserror::Error)]
pub enum CallsError {
    /// There is no filter for this machine.
    #[error("no filter can be made: {0}")]
    Filter(#[from] BackendError),
    /// The kernel refused the filter.
    #[error("the kernel takes no filter: {0}")]
    Kernel(#[from] io::Error),
}

/// Restricts all threads of the process, and those that they start. With rings they go on using those that there are.
///
/// # Errors
///
/// If nothing is restricted.
pub fn restrict(has_rings: bool) -> Result<(), CallsError> {
    // The C library tries it for each thread, so that nothing is to be logged of it; its flags are in memory, where no
    // filter sees them.
    let unseen = Rules::from([(libc::SYS_clone3, Vec::new())]);
    let nosys = || SeccompAction::Errno(libc::ENOSYS as u32);
    let quiet = program(unseen, SeccompAction::Allow, nosys())?;
    let mut rules = allowed()?;
    if has_rings {
        rules.extend(for_rings()?);
    }
    rules.insert(libc::SYS_clone3, Vec::new());
    let loud = program(rules, nosys(), SeccompAction::Allow)?;
    install(&quiet, 0)?;
    Ok(install(&loud, libc::SECCOMP_FILTER_FLAG_LOG)?)
}

/// All rules: of a call with several, one has to hold.
fn allowed() -> Result<Rules, BackendError> {
    let any = ANY.iter().chain(OLDER);
    let mut rules: Rules = any.map(|call| (*call, Vec::new())).collect();
    let one_of = |argument, values: &[u64]| {
        let each = values.iter().map(|value| equal(argument, *value));
        each.collect::<Result<Vec<_>, _>>()
    };
    rules.insert(libc::SYS_ioctl, one_of(1, &IOCTLS)?);
    rules.insert(libc::SYS_socket, vec![datagrams()?]);
    let names = [libc::PR_SET_NAME as u64, libc::PR_SET_VMA as u64];
    rules.insert(
        libc::SYS_prctl,
        one_of(0, &[&names[..], &[GET_AUXV]].concat())?,
    );
    // To end itself, if it must.
    let own = u64::from(std::process::id());
    rules.insert(libc::SYS_tgkill, one_of(0, &[own])?);
    // Limits can be asked for, and not be set.
    rules.insert(libc::SYS_prlimit64, vec![masked(2, u64::MAX, 0)?]);
    // Threads, and neither processes nor namespaces.
    let thread = libc::CLONE_THREAD as u64;
    rules.insert(libc::SYS_clone, vec![masked(0, thread, thread)?]);
    // Memory that can be executed is not made.
    for call in [libc::SYS_mmap, libc::SYS_mprotect] {
        rules.insert(call, vec![masked(2, libc::PROT_EXEC as u64, 0)?]);
    }
    Ok(rules)
}

/// Those that rings take besides: each thread binds itself, and says that something is in its ring. What that may be was
/// restricted when the ring was made.
fn for_rings() -> Result<Rules, BackendError> {
    Ok(Rules::from([
        (libc::SYS_io_uring_enter, Vec::new()),
        (libc::SYS_sched_setaffinity, vec![equal(0, 0)?]),
    ]))
}

/// A local socket for datagrams, as the system's log has it. Landlock keeps nobody from connecting to a local socket that has
/// a name, and what may do much to a machine listens at such, for connections.
fn datagrams() -> Result<SeccompRule, BackendError> {
    let condition = |argument, operator, value: i32| {
        SeccompCondition::new(argument, SeccompCmpArgLen::Dword, operator, value as u64)
    };
    SeccompRule::new(vec![
        condition(0, SeccompCmpOp::Eq, libc::AF_UNIX)?,
        condition(1, SeccompCmpOp::MaskedEq(SOCKET_TYPE), libc::SOCK_DGRAM)?,
    ])
}

/// That an argument, of 32 bits, is this.
fn equal(argument: u8, value: u64) -> Result<SeccompRule, BackendError> {
    let length = SeccompCmpArgLen::Dword;
    let condition = SeccompCondition::new(argument, length, SeccompCmpOp::Eq, value)?;
    SeccompRule::new(vec![condition])
}

/// That these bits of an argument, of 64 bits, are those.
fn masked(argument: u8, mask: u64, bits: u64) -> Result<SeccompRule, BackendError> {
    let length = SeccompCmpArgLen::Qword;
    let condition = SeccompCondition::new(argument, length, SeccompCmpOp::MaskedEq(mask), bits)?;
    SeccompRule::new(vec![condition])
}

fn program(
    rules: Rules,
    others: SeccompAction,
    these: SeccompAction,
) -> Result<BpfProgram, BackendError> {
    let machine = TargetArch::try_from(std::env::consts::ARCH)?;
    SeccompFilter::new(rules, others, these, machine)?.try_into()
}

#[expect(
    unsafe_code,
    reason = "the crate that makes filters installs none that the kernel's log tells of"
)]
fn install(program: &BpfProgram, flags: c_ulong) -> io::Result<()> {
    let filter = libc::sock_fprog {
        len: u16::try_from(program.len()).map_err(io::Error::other)?,
        filter: program.as_ptr().cast::<sock_filter>().cast_mut(),
    };
    let flags = flags | libc::SECCOMP_FILTER_FLAG_TSYNC;
    let mode = libc::SECCOMP_SET_MODE_FILTER;
    // SAFETY: the kernel reads as many instructions as `filter` says, in the kernel's own layout, and keeps a copy.
    match unsafe { libc::syscall(libc::SYS_seccomp, mode, flags, &raw const filter) } {
        0 => Ok(()),
        -1 => Err(io::Error::last_os_error()),
        thread => Err(io::Error::other(format!(
            "thread {thread} has another filter"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Read;
    use std::net::{TcpListener, UdpSocket};
    use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};
    use std::process::Command;
    use std::thread;

    use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};

    use super::*;

    /// What is given up is given up for the whole process, so that another one tries it.
    #[test]
    fn what_a_mount_does_not_take_is_refused_and_the_rest_works() {
        let tests = std::env::current_exe().unwrap();
        let ran = Command::new(tests)
            .args([
                "--ignored",
                "--exact",
                "mount::confine::calls::tests::restricted",
            ])
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&ran.stdout);
        assert!(ran.status.success(), "{ran:?}");
        assert!(said.contains("1 passed"), "{said}");
    }

    #[test]
    #[ignore = "for the test above: it restricts the process"]
    fn restricted() {
        let earlier = thread::spawn(thread::park);
        let path = std::env::temp_dir().join(format!("loamfs-restricted-{}", std::process::id()));
        let (service, log) = (path.with_extension("sock"), path.with_extension("log"));
        let _service = UnixListener::bind(&service).unwrap();
        let _log = UnixDatagram::bind(&log).unwrap();
        rustix::thread::set_no_new_privs(true).unwrap();
        restrict(false).unwrap();
        let refused = |error: io::Error| assert_eq!(error.raw_os_error(), Some(libc::ENOSYS));
        refused(Command::new("/bin/true").status().unwrap_err());
        refused(TcpListener::bind("127.0.0.1:0").unwrap_err());
        refused(UdpSocket::bind("127.0.0.1:0").unwrap_err());
        refused(
            rustix::mount::unmount("/nowhere", rustix::mount::UnmountFlags::empty())
                .unwrap_err()
                .into(),
        );
        refused(std::env::set_current_dir("/").unwrap_err());
        refused(
            rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::URG)
                .unwrap_err()
                .into(),
        );
        refused(
            rustix::io::ioctl_fionread(File::open("/dev/null").unwrap())
                .unwrap_err()
                .into(),
        );
        let map = |protection| {
            #[expect(unsafe_code, reason = "mapping memory is")]
            // SAFETY: the address is the kernel's choice, and nobody uses the memory.
            unsafe {
                mmap_anonymous(std::ptr::null_mut(), 4096, protection, MapFlags::PRIVATE)
            }
        };
        assert!(map(ProtFlags::READ | ProtFlags::WRITE).is_ok());
        refused(map(ProtFlags::READ | ProtFlags::EXEC).unwrap_err().into());

        // An earlier thread is restricted too, and later ones can be started.
        let seccomp = |task: String| {
            let status = std::fs::read_to_string(task + "/status").unwrap();
            status.contains("Seccomp:\t2")
        };
        for task in std::fs::read_dir("/proc/self/task").unwrap() {
            assert!(seccomp(task.unwrap().path().display().to_string()));
        }
        earlier.thread().unpark();
        earlier.join().unwrap();
        thread::spawn(|| ()).join().unwrap();
        let mut text = String::new();
        File::open("/proc/self/status")
            .unwrap()
            .read_to_string(&mut text)
            .unwrap();
        refused(UnixStream::connect(&service).unwrap_err());
        let to_log = UnixDatagram::unbound().unwrap();
        to_log.set_nonblocking(true).unwrap();
        to_log.connect(&log).unwrap();
        to_log.send(b"line").unwrap();
        std::fs::remove_file(&service).unwrap();
        std::fs::remove_file(&log).unwrap();
        std::fs::write(&path, b"log").unwrap();
        let aside = path.with_extension("old");
        std::fs::rename(&path, &aside).unwrap();
        std::fs::remove_file(&aside).unwrap();
    }
}
