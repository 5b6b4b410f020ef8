//! Who is shown the names of `trusted.` attributes: the kernel asks before it lets anybody read or change one, but leaves
//! listing them to the file system.

use loamfs_fuse::Caller;

const PREFIX: &[u8] = b"trusted.";
/// The bit of `CAP_SYS_ADMIN`.
const SYS_ADMIN: u32 = 21;

/// Leaves out what `caller` may not see.
pub(super) fn hide(names: &mut Vec<Vec<u8>>, caller: Caller) {
    let is_trusted = |name: &Vec<u8>| name.starts_with(PREFIX);
    if names.iter().any(is_trusted) && !administers(caller) {
        names.retain(|name| !is_trusted(name));
    }
}

/// Whether the caller has `CAP_SYS_ADMIN` in the machine's own user namespace, as far as its number and its thread tell: that
/// of another namespace is of no use to who is not root here.
pub(super) fn administers(caller: Caller) -> bool {
    caller.uid == 0
        && std::fs::read_to_string(format!("/proc/{}/status", caller.pid))
            .is_ok_and(|status| effective(&status).is_some_and(|set| set >> SYS_ADMIN & 1 == 1))
}

fn effective(status: &str) -> Option<u64> {
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("CapEff:"))?;
    u64::from_str_radix(line.trim(), 16).ok()
}
