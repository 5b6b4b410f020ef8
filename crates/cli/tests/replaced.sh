#!/bin/bash
# A daemon that dies is replaced: who uses the mount waits, and goes on. Needs root.
#
#   replaced.sh LOAMFS [KILLS [SEED]]
set -euo pipefail

# Nobody who leaves for a namespace of his own takes these mounts along.
[ -n "${LOAMFS_PRIVATE-}" ] || exec env LOAMFS_PRIVATE=1 unshare -m bash "$0" "$@"

loamfs=$(realpath "$1")
kills=${2:-12}
seed=${3:-$RANDOM}
. "$(dirname "$0")/common.sh"

mkdir "$mnt"

is_dead() { ! stat "$mnt/file" >/dev/null 2>"$work/out" && grep -q 'not connected' "$work/out"; }

has_another() { [ "$(daemon 2>/dev/null)" != "$1" ] && [ -n "$(daemon 2>/dev/null)" ]; }

# Kills the daemon, and waits until another one is there.
replace() {
    local pid
    pid=$(daemon)
    kill -9 "$pid"
    until_it has_another "$pid"
}

# With dirsync a request takes long between its end in memory and its answer, so that it is often sent again.
part=0
for kind in "" plain dirsync; do
    part=$((part + 1))
    some=$((kills * part / 3 - kills * (part - 1) / 3))
    "$loamfs" mkfs -q --force --size 512M "$image"
    LOAMFS_DEATHS=$((2 * kills)) mount_it "cache=64M,commit=2${kind:+,$kind}"
    timeout $((300 + 4 * kills)) python3 "$(dirname "$0")/replaced.py" "$mnt" "$loamfs" "$some" "$seed" \
        >"$work/said" 2>&1 || fail "seed $seed: $(cat "$work/said")"
    expect 0 "$loamfs" unmount "$mnt"
    expect 0 "$loamfs" check "$image"
    ok "${kind:-fuseblk}, seed $seed: $(cat "$work/said")"
done

# ---- what stays as it was ----------------------------------------------------------------------------------------

mount_it dirsync
echo one >"$mnt/file"
replace
mkdir "$mnt/made"
power_cut
mount_it
[ -d "$mnt/made" ] || fail "dirsync is forgotten"
mount -o remount,ro "$mnt"
replace
! touch "$mnt/file" 2>/dev/null || fail "written to, mounted read-only"
mount -o remount,rw "$mnt"
echo two >"$mnt/file"
expect 0 "$loamfs" unmount "$mnt"
expect 0 "$loamfs" check "$image"
ok "a successor keeps what options and remounts said"

# ---- what was lost -----------------------------------------------------------------------------------------------

# A read that began before the daemon died knows the length of what was lost with it.
for kind in "" plain; do
    mount_it "commit=300${kind:+,$kind}"
    : >"$mnt/lost"
    sync "$mnt/lost"
    python3 - "$mnt/lost" "$(daemon)" <<'END' || fail "a read that waited while what it reads was lost"
import errno, os, signal, sys, threading, time

file, daemon = os.open(sys.argv[1], os.O_RDWR), int(sys.argv[2])
os.write(file, b"not synced")
os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
# The kernel knows the length, and has none of the content.
os.fstat(file)
found = []


def read():
    try:
        found.append(os.pread(file, 4096, 0))
    except OSError as error:
        found.append(error.errno)


def stands(thread):
    with open(f"/proc/{daemon}/task/{thread}/stat", "rb") as stat:
        return stat.read().rpartition(b") ")[2].startswith(b"T")


# The signal takes its time: until a thread has met it, the others go on.
os.kill(daemon, signal.SIGSTOP)
while not all(map(stands, os.listdir(f"/proc/{daemon}/task"))):
    time.sleep(0.01)
reader = threading.Thread(target=read)
reader.start()
time.sleep(0.5)
os.kill(daemon, signal.SIGKILL)
reader.join()
sys.exit(f"it found {found[0]}" if found[0] not in (errno.EIO, b"") else 0)
END
    expect 0 "$loamfs" unmount "$mnt"
    expect 0 "$loamfs" check "$image"
done
ok "what was lost is never read as zeros"

# ---- who is told of what was lost ----------------------------------------------------------------------------------

mount_it commit=600
python3 - "$mnt/shared" "$(daemon)" <<'END' || fail "not all who had the file open were told once that changes were lost"
import ctypes, errno, os, signal, subprocess, sys
path, daemon = sys.argv[1], int(sys.argv[2])
libc = ctypes.CDLL(None, use_errno=True)
told = ["EIO", None]

def synced(file):
    try:
        return os.fsync(file)
    except OSError as error:
        return errno.errorcode[error.errno]

def synced_all(file):
    return errno.errorcode[ctypes.get_errno()] if libc.syncfs(file) else None

file = os.open(path, os.O_RDWR | os.O_CREAT)
os.fsync(file)
(written, wrote), (killed, kill) = os.pipe(), os.pipe()
child = os.fork()
if child == 0:
    file = os.open(path, os.O_RDWR)
    os.pwrite(file, b"theirs", 100)
    os.write(wrote, b"x")
    os.read(killed, 1)
    said = [[sync(file), sync(file)] for sync in (synced, synced_all)]
    print(said)
    os._exit(said != [told, told])
os.pwrite(file, b"ours", 0)
os.read(written, 1)
os.kill(daemon, signal.SIGKILL)
said = [[sync(file), sync(file)] for sync in (synced, synced_all)]
print(said)
os.write(kill, b"x")
_, status = os.waitpid(child, 0)
later = [subprocess.run(["sync", *words, path]).returncode for words in ([], [], ["-f"])]
print(later)
sys.exit((said, status, later) != ([told, told], 0, [0, 0, 0]))
END
expect 0 "$loamfs" unmount "$mnt"
expect 0 "$loamfs" check "$image"
ok "each process that was there before is told once that changes were lost, of a file and of everything"

# ---- another program ---------------------------------------------------------------------------------------------

cp "$loamfs" "$work/program"
"$work/program" mount -o "log=$work/daemon.log" "$image" "$mnt" >/dev/null
exec 5>"$mnt/open"
echo 'not synced' >&5
cp "$loamfs" "$work/new"
mv "$work/new" "$work/program"
expect 0 "$loamfs" upgrade "$mnt"
[ "$(readlink "/proc/$(daemon)/exe")" = "$work/program" ] || fail "the old program serves: $(readlink "/proc/$(daemon)/exe")"
echo 'nor this' >&5
[ "$(cat "$mnt/open")" = "not synced
nor this" ] || fail "something was lost"
printf '#!/bin/sh\nexit 1\n' >"$work/new"
chmod +x "$work/new"
mv "$work/new" "$work/program"
expect 0 "$loamfs" upgrade --json "$mnt"
grep -q "that program cannot serve" "$work/daemon.log" || fail "the log does not say that the new program failed"
echo 'and this' >&5
sync "$mnt/open" || fail "an upgrade lost something"
exec 5>&-
[ "$(wc -l <"$mnt/open")" = 3 ] || fail "something was lost with the program that failed"
expect 0 "$loamfs" unmount "$mnt"
expect 0 "$loamfs" check "$image"
mount_it restart=no
expect 74 "$loamfs" upgrade "$mnt"
grep -q 'cannot be taken over' "$work/out" || fail "no reason: $(cat "$work/out")"
expect 0 "$loamfs" unmount "$mnt"
ok "an upgrade loses nothing, and one that fails leaves the program before"

# ---- when it is given up -----------------------------------------------------------------------------------------

mount_it
for _ in 1 2 3 4 5; do replace; done
kill -9 "$(daemon)"
until_it is_dead
grep -q "given up: it dies again and again" "$work/daemon.log" || fail "the log does not say why"
mountpoint -q "$mnt" 2>/dev/null || grep -q " $mnt " /proc/self/mountinfo || fail "the mount is gone"
mount_it
[ "$(cat "$mnt/file")" = two ] || fail "recovered without what was synced"
ok "the sixth death in a minute is the last: the mount stays, as an error"
expect 0 "$loamfs" unmount "$mnt"

mount_it restart=no
kill -9 "$(daemon)"
until_it is_dead
grep -q " $mnt " /proc/self/mountinfo || fail "the mount is gone"
expect 0 "$loamfs" unmount "$mnt"
ok "with restart=no it stays as an error"
