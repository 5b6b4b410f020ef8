#!/bin/bash
# Many processes at once on a LoamFS mount, a mixture of everything; then it is unmounted and checked. Needs root.
#
#   stress.sh LOAMFS [SECONDS [PROCESSES]]     the program; 600 seconds and 64 processes without more
set -euo pipefail

usage() {
    echo "stress: $*; try \`stress.sh LOAMFS [SECONDS [PROCESSES]]\`" >&2
    exit 64
}

# A whole number from 1 to a limit.
count() {
    if ! [[ $2 =~ ^[1-9][0-9]{0,8}$ ]] || [ "$2" -gt "$3" ]; then
        usage "$1 is a whole number from 1 to $3, not \`$2\`"
    fi
}

[ $# -ge 1 ] && [ $# -le 3 ] || usage "$# arguments are given, not one to three"
[ -f "$1" ] && [ -x "$1" ] || usage "\`$1\` is no program"
seconds=${2:-600}
processes=${3:-64}
count SECONDS "$seconds" 100000000
count PROCESSES "$processes" 4096
loamfs=$(realpath "$1")
. "$(dirname "$0")/common.sh"
# The caches, the buffers of segments in flight and what the daemon needs for itself: docs/DESIGN.md, "Caches and memory".
cache_mib=128
memory_max_mib=$((cache_mib + 192))

last_words() {
    [ "$1" -eq 0 ] && return
    echo "stress: FAILED"
    tail -20 "$work/daemon.log" >&2
}

figure() {
    "$loamfs" info --json "$mnt" | sed -n "s/.*\"$1\": \([0-9]*\).*/\1/p" | head -1
}

cat >"$work/worker.py" <<'END_OF_WORKER'
import errno, os, random, sys, time
root, number, end = sys.argv[1], int(sys.argv[2]), time.monotonic() + float(sys.argv[3])
rng = random.Random(number)
# What these say of names that others have just taken, removed or filled is no fault; nor is a full volume.
expected = {errno.ENOENT, errno.EEXIST, errno.ENOTEMPTY, errno.ENOSPC, errno.EISDIR, errno.ENOTDIR, errno.EINVAL,
            errno.ENODATA, errno.ELOOP, errno.EXDEV, errno.ESTALE, errno.EPERM, errno.ENXIO, errno.EMLINK}
os.chdir(root)
places = ["shared%d" % i for i in range(4)] + ["own%d" % number]
os.makedirs(places[-1], exist_ok=True)

def path():
    parts = [rng.choice(places)] + ["d%d" % rng.randrange(4) for _ in range(rng.randrange(3))]
    return "/".join(parts + ["f%d" % rng.randrange(40)])

def data():
    return os.urandom(1) * rng.choice([0, 10, 200, 3000, 15000, 20000, 70000, 400000])

def write(name, flags):
    fd = os.open(name, flags | os.O_RDWR | os.O_CREAT, 0o644)
    try:
        os.pwrite(fd, data(), rng.choice([0, 0, 100, 5000, 100000]))
        if rng.randrange(20) == 0:
            os.fsync(fd)
        elif rng.randrange(10) == 0:
            os.ftruncate(fd, rng.randrange(100000))
        elif rng.randrange(20) == 0:
            os.posix_fallocate(fd, rng.randrange(50000), 1 + rng.randrange(100000))
    finally:
        os.close(fd)

def read(name):
    with open(name, "rb") as file:
        file.read()

def attributes(name):
    os.setxattr(name, "user.a%d" % rng.randrange(5), os.urandom(rng.choice([5, 100, 3000])))
    os.listxattr(name)
    os.removexattr(name, "user.a0")

def held(name):
    # Unlinked while it is open.
    fd = os.open(name, os.O_RDWR | os.O_CREAT)
    try:
        os.unlink(name)
        os.write(fd, data())
        os.lseek(fd, 0, os.SEEK_SET)
        os.read(fd, 1000)
    finally:
        os.close(fd)

def listing(name):
    with os.scandir(os.path.dirname(name)) as entries:
        for entry in entries:
            entry.stat(follow_symlinks=False)

work = [
    (20, lambda: write(path(), 0)), (5, lambda: write(path(), os.O_TRUNC)), (3, lambda: write(path(), os.O_APPEND)),
    (20, lambda: read(path())), (10, lambda: os.unlink(path())), (8, lambda: os.rename(path(), path())),
    (4, lambda: os.link(path(), path())), (3, lambda: os.symlink(path(), path())),
    (8, lambda: os.makedirs(os.path.dirname(path()))), (3, lambda: os.rmdir(os.path.dirname(path()))),
    (5, lambda: attributes(path())), (4, lambda: held(path())), (6, lambda: listing(path())),
    (4, lambda: os.truncate(path(), rng.randrange(300000))), (3, lambda: os.chmod(path(), rng.randrange(0o1000) | 0o600)),
    (2, lambda: os.utime(path(), (rng.randrange(1 << 31), rng.randrange(1 << 31)))),
    (2, lambda: os.statvfs(".")),
]
weights = [weight for weight, _ in work]
count = 0
while time.monotonic() < end:
    count += 1
    try:
        rng.choices(work, weights)[0][1]()
    except OSError as error:
        if error.errno not in expected:
            raise
print(count)
END_OF_WORKER

mkdir "$mnt"
"$loamfs" mkfs --size 2G "$image" >/dev/null
"$loamfs" mount -o "log=$work/daemon.log,cache=${cache_mib}M" "$image" "$mnt" >/dev/null
daemon=$(figure daemon)
pids=()
for number in $(seq "$processes"); do
    python3 "$work/worker.py" "$mnt" "$number" "$seconds" >"$work/count.$number" &
    pids+=($!)
done
for pid in "${pids[@]}"; do wait "$pid"; done
sync
peak=$(($(sed -n 's/^VmHWM:[^0-9]*\([0-9]*\).*/\1/p' "/proc/$daemon/status") / 1024))
# Every inode has a name, or it was leaked: nobody holds one any more.
# The volume's own file of access times has no name.
own=1
for _ in $(seq 100); do
    named=$(find "$mnt" -printf '%i\n' | sort -u | wc -l)
    inodes=$(figure inodes)
    [ "$inodes" = $((named + own)) ] && break
    sleep 0.2
done
[ "$inodes" = $((named + own)) ] || { echo "$inodes inodes, $named of them have names"; exit 1; }
[ "$peak" -le $memory_max_mib ] || { echo "the daemon took $peak MiB, over $memory_max_mib"; exit 1; }
"$loamfs" unmount "$mnt" >/dev/null
"$loamfs" check "$image" >"$work/check" || { cat "$work/check"; exit 1; }
! grep ERROR "$work/daemon.log" || exit 1
echo "stress: passed, $(cat "$work"/count.* | paste -sd+ | bc) operations of $processes processes in $seconds s," \
    "$named inodes, daemon at most $peak MiB"
