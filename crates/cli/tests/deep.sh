#!/bin/bash
# Directories move to where a tree is deep and nothing of the way up is in memory, nor fits into it, and never below
# themselves; others rename meanwhile.
# Needs root for fuseblk and loop devices.
#
#   deep.sh LOAMFS [LEVELS]      10,000
set -euo pipefail

loamfs=$(realpath "$1")
levels=${2:-10000}
. "$(dirname "$0")/common.sh"

mkdir "$mnt"
"$loamfs" mkfs --size 512M "$image" >"$work/out"
mount_it cache=16M
python3 - "$loamfs" "$mnt" "$levels" <<'END'
import os, subprocess, sys, time
loamfs, mnt, levels = sys.argv[1], sys.argv[2], int(sys.argv[3])
root = os.open(mnt, os.O_RDONLY)
os.chdir(mnt)
os.mkdir("moved")
os.mkdir("busy")
middle = None
for level in range(levels):
    os.mkdir("d")
    os.chdir("d")
    if level == levels // 2:
        middle = os.open(".", os.O_RDONLY)
bottom = os.open(".", os.O_RDONLY)
subprocess.run([loamfs, "drop-caches", mnt], check=True, stdout=subprocess.DEVNULL)
ended, end = os.pipe()
begun, begin = os.pipe()
beside = os.fork()
if beside == 0:
    os.close(end)
    os.set_blocking(ended, False)
    file, renames = os.path.join(mnt, "busy", "name"), 0
    open(file, "w").close()
    os.write(begin, b"x")
    while True:
        os.rename(file, file + "2")
        os.rename(file + "2", file)
        renames += 2
        try:
            os.read(ended, 1)
            break
        except BlockingIOError:
            pass
    print(f"{renames} renames beside it")
    sys.stdout.flush()
    os._exit(0)
os.read(begun, 1)
start = time.monotonic()
os.rename("moved", "here", src_dir_fd=root, dst_dir_fd=bottom)
print(f"moved in {time.monotonic() - start:.1f} s")
os.close(end)
assert os.waitpid(beside, 0)[1] == 0
assert os.path.isdir("here") and not os.path.exists(f"{mnt}/moved")
for above in root, middle:
    try:
        os.rename("d", "below", src_dir_fd=above, dst_dir_fd=bottom)
        raise SystemExit("a directory moved below itself")
    except OSError as error:
        assert error.errno == 22, error
os.rename("here", "moved", src_dir_fd=bottom, dst_dir_fd=middle)
END
"$loamfs" unmount "$mnt"
expect 0 "$loamfs" check "$image"
ok "a directory moves to the bottom of $levels levels and back"
