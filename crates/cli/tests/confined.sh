#!/bin/bash
# What a daemon has given up, as the kernel tells it, and that all that it is for works on. Needs root.
#
#   confined.sh LOAMFS
set -euo pipefail

# Its log and its sockets are this run's alone.
[ -n "${LOAMFS_PRIVATE-}" ] || exec env LOAMFS_PRIVATE=1 unshare -m bash "$0" "$@"

loamfs=$(realpath "$1")
. "$(dirname "$0")/common.sh"
log=$work/log/daemon.log
# One that other users may run.
python=$(python3 -c 'import sys; print(sys.executable)')

user=

last_words() {
    [ -z "$user" ] || kill "$user" 2>/dev/null
    tally confined "$1"
}

# A field of what `info` says in JSON.
told() { "$loamfs" info --json "$1" | python3 -c "import json, sys; print(json.load(sys.stdin)$2)"; }

daemon_of() { told "$1" '["daemon"]'; }

is_mounted() { grep -q " $1 " /proc/self/mountinfo; }

is_gone() { ! is_mounted "$1"; }

has_ended() { ! kill -0 "$1" 2>/dev/null; }

# A field of the status of each thread.
of_threads() { cat "/proc/$1/task/"*/status | sed -n "s/^$2:[[:space:]]*//p" | sort -u; }

# What the kernel has refused to a process, where its log can be read.
refused_calls() { dmesg 2>/dev/null | grep -c "type=1326 .* pid=$1 " || true; }

# All threads of a daemon, by its number.
check_threads() {
    local field
    for field in CapInh CapPrm CapEff CapBnd CapAmb; do
        [ "$(of_threads "$1" $field)" = 0000000000000000 ] || fail "$field of $1: $(of_threads "$1" $field)"
    done
    [ "$(of_threads "$1" NoNewPrivs)" = 1 ] || fail "$1 may get new privileges"
    [ "$(of_threads "$1" Seccomp)" = 2 ] || fail "$1 may make any system call"
}

# Whatever a mount is for, in a directory of it.
use() {
    "$python" - "$1" <<'END_OF_USE'
import ctypes, mmap, os, sys
place = sys.argv[1]
os.mkdir(place)
path = place + "/file"
data = os.urandom(3 << 20)
with open(path, "wb") as file:
    file.write(data)
    os.fsync(file.fileno())
with open(path, "r+b") as file, mmap.mmap(file.fileno(), 0) as mapped:
    mapped[5000:5004] = b"mmap"
    mapped.flush()
direct = os.open(path, os.O_RDWR | os.O_DIRECT)
buffer = mmap.mmap(-1, 1 << 16)
assert os.preadv(direct, [buffer], 0) == 1 << 16 and buffer[5000:5004] == b"mmap"
os.pwritev(direct, [buffer], 1 << 20)
os.close(direct)
file = os.open(path, os.O_RDWR)
libc = ctypes.CDLL(None, use_errno=True)
libc.fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]
PUNCH_AND_KEEP = 3
assert libc.fallocate(file, PUNCH_AND_KEEP, 1 << 21, 1 << 20) == 0, os.strerror(ctypes.get_errno())
assert libc.fallocate(file, 0, 3 << 20, 1 << 20) == 0, os.strerror(ctypes.get_errno())
copy = os.open(place + "/copy", os.O_RDWR | os.O_CREAT)
assert os.copy_file_range(file, copy, 1 << 20, 0, 0) == 1 << 20
os.close(file)
os.close(copy)
expected = bytearray(data)
expected[5000:5004] = b"mmap"
expected[1 << 20 : (1 << 20) + (1 << 16)] = expected[: 1 << 16]
expected[1 << 21 :] = bytes(2 << 20)
assert open(path, "rb").read() == expected
assert open(place + "/copy", "rb").read() == expected[: 1 << 20]
os.setxattr(path, "user.name", b"value")
os.setxattr(path, "trusted.name", b"value")
assert sorted(os.listxattr(path)) == ["trusted.name", "user.name"], os.listxattr(path)
for number in range(2000):
    with open(f"{place}/{number}", "w") as small:
        small.write(str(number) * 100)
os.rename(path, place + "/renamed")
os.link(place + "/renamed", place + "/linked")
os.symlink("renamed", place + "/symlink")
assert len(os.listdir(place)) == 2004
assert os.statvfs(place).f_bfree > 0
for number in range(0, 2000, 2):
    os.unlink(f"{place}/{number}")
END_OF_USE
}

mkdir "$mnt" "$work/log" "$work/view"
chmod 711 "$work"
"$loamfs" mkfs -q --size 256M "$image"

"$loamfs" mount -o discard,log="$log" "$image" "$mnt" >/dev/null
daemon=$(daemon_of "$mnt")
check_threads "$daemon"
lowers=$((0x$(sed -n 's/^CapEff:[[:space:]]*//p' /proc/self/status) >> 24 & 1))
score=$(cat "/proc/$daemon/oom_score_adj")
[ "$lowers" = 0 ] || [ "$score" = -900 ] || fail "oom_score_adj is $score"
[ "$(told "$mnt" '["confinement"]["capabilities"]')" = 0000000000000000 ] || fail "info says other capabilities"
[ "$(told "$mnt" '["confinement"]["system_calls_filtered"]')" = True ] || fail "info says nothing of system calls"
[ "$(told "$mnt" '["confinement"]["oom_score_adj"]')" = "$score" ] || fail "info has another oom_score_adj"
# An old kernel has no Landlock.
places=$(told "$mnt" '["confinement"]["files_written_below"]')
[ "$places" = None ] || [ "$places" = "['/run/loamfs', '$work/log']" ] || fail "files below $places"
"$loamfs" info "$mnt" | grep -q '^confined  capabilities 0000000000000000, few system calls' || fail "info shows nothing"
ok "all threads have given up capabilities and system calls, and info says so"

use "$mnt/one"
"$loamfs" trim "$mnt" >/dev/null
"$loamfs" label "$mnt" confined
[ "$("$loamfs" label "$mnt")" = confined ] || fail "the label is $("$loamfs" label "$mnt")"
"$loamfs" settle "$mnt" >/dev/null
"$loamfs" map "$mnt/one/renamed" >/dev/null
"$loamfs" drop-caches "$mnt" >/dev/null
cat "$mnt"/one/* >/dev/null
mount -o remount,ro "$mnt"
! touch "$mnt/file" 2>/dev/null || fail "written to, mounted read-only"
mount -o remount,rw,sync,noatime "$mnt"
mkdir "$mnt/synced"
mount -o remount,async,relatime "$mnt"
setpriv --reuid=nobody --regid=nogroup --clear-groups "$python" - "$mnt/one/renamed" <<'END'
import os, sys
assert os.listxattr(sys.argv[1]) == ["user.name"], os.listxattr(sys.argv[1])
END
check_threads "$daemon"
ok "it reads and writes, answers commands, is remounted, and tells who may see trusted attributes"

head -c 9M /dev/zero >>"$log"
"$loamfs" mount "$image" "$work/view" >/dev/null
is_mounted "$work/view" || fail "there is no other view"
python3 -c 'import sys, time; file = open(sys.argv[1]); time.sleep(600)' "$mnt/one/copy" &
user=$!
has_it() { readlink "/proc/$user/fd/"* | grep -qx "$mnt/one/copy"; }
until_it has_it
loop=$(losetup -j "$image" | cut -d: -f1)
kill "$daemon"
until_it has_ended "$daemon"
until_it is_gone "$mnt"
is_gone "$work/view" || fail "the other view is left"
kill "$user"
wait "$user" 2>/dev/null || true
user=
[ -z "$loop" ] || until_it test ! -e "/sys/block/${loop#/dev/}/loop/backing_file"
grep -q 'cutting off who uses it' "$log"* || fail "that somebody was cut off is not in the log"
grep -q 'unmounted' "$log" || fail "the end is not in the log"
[ "$(stat -c %s "$log.old")" -ge 9437184 ] || fail "the log was not put aside"
[ ! -e "/run/loamfs/$(basename "$loop")" ] || fail "something is left in /run/loamfs"
expect 0 "$loamfs" check "$image"
ok "a signal ends it wherever it is seen and though it is in use; its log is put aside; nothing is left"

[ "$(refused_calls "$daemon")" = 0 ] || fail "$(dmesg | grep "type=1326 .* pid=$daemon ")"
ok "no system call that it made was refused"

"$loamfs" mount "$image" "$mnt" >/dev/null
daemon=$(daemon_of "$mnt")
kill -9 "$daemon"
has_another() { daemon=$(daemon_of "$mnt" 2>/dev/null) && ! has_ended "$daemon"; }
until_it has_another
check_threads "$daemon"
use "$mnt/replaced"
[ "$(refused_calls "$daemon")" = 0 ] || fail "$(dmesg | grep "type=1326 .* pid=$daemon ")"
"$loamfs" unmount "$mnt"
ok "one that follows a daemon that was killed is confined too"

"$loamfs" mount --foreground "$image" "$mnt" >"$work/out" 2>&1 &
daemon=$!
until_it is_mounted "$mnt"
until_it grep -q 'is mounted' "$work/out"
check_threads "$daemon"
use "$mnt/two"
kill -INT "$daemon"
wait "$daemon" || fail "a signal ends it with $?"
is_gone "$mnt" || fail "it is mounted"
expect 0 "$loamfs" check "$image"
ok "in the foreground too"

"$loamfs" mount -o unconfined "$image" "$mnt" >/dev/null
daemon=$(daemon_of "$mnt")
[ "$(of_threads "$daemon" NoNewPrivs)" = 0 ] || fail "no new privileges though unconfined"
[ "$(of_threads "$daemon" Seccomp)" = 0 ] || fail "system calls are filtered though unconfined"
[ "$(of_threads "$daemon" CapEff)" != 0000000000000000 ] || fail "no capabilities though unconfined"
"$loamfs" info "$mnt" | grep -q '^confined  no' || fail "info does not say that it is unconfined"
"$loamfs" unmount "$mnt"
ok "unconfined keeps all"

# Who is not root has less to give up, and unmounts by a program that takes privileges.
if [ -u "$(command -v fusermount3)" ]; then
    # On some machines it is for root alone.
    mkdir "$work/dev"
    mount -t tmpfs none "$work/dev"
    mknod -m 666 "$work/dev/fuse" c 10 229
    mount --bind "$work/dev/fuse" /dev/fuse
    own=$work/own
    mkdir "$own" "$own/mnt"
    chown nobody:nogroup "$own" "$own/mnt"
    as_nobody() { setpriv --reuid=nobody --regid=nogroup --clear-groups env -u XDG_RUNTIME_DIR "$@"; }
    as_nobody "$loamfs" mkfs -q --size 256M "$own/volume.img"
    as_nobody "$loamfs" mount "$own/volume.img" "$own/mnt" >/dev/null
    daemon=$(pgrep -u nobody -f -- "--daemon.*$own/mnt")
    check_user() {
        [ "$(of_threads "$daemon" NoNewPrivs)" = 1 ] || fail "a user's daemon may get new privileges"
        [ "$(of_threads "$daemon" Seccomp)" = 2 ] || fail "a user's daemon may make any system call"
    }
    check_user
    as_nobody bash -ec "cd $own/mnt; mkdir one; seq 200000 >one/file; cp one/file one/copy; cmp one/file one/copy
        dd if=/dev/zero of=one/direct oflag=direct bs=64K count=4 status=none; sync one/direct; mv one two; ls -lR >/dev/null
        rm two/copy"
    as_nobody "$loamfs" info "$own/mnt" | grep -q '^confined  capabilities' || fail "info shows nothing to a user"
    kill "$daemon"
    until_it has_ended "$daemon"
    is_gone "$own/mnt" || fail "a user's mount is left by a signal"
    expect 0 "$loamfs" check "$own/volume.img"
    umount /dev/fuse
    ok "a user's daemon too"
else
    echo "skipped: users cannot mount here"
fi
