#!/bin/bash
# Records of what is where, on a real mount: small files take the place of the beginning of a large one, and its rest can
# still be checked, moved and read.
# Needs root for fuseblk and loop devices.
#
#   owners.sh LOAMFS
set -euo pipefail

loamfs=$(realpath "$1")
. "$(dirname "$0")/common.sh"

mount_again() {
    "$loamfs" unmount "$mnt"
    expect 0 "$loamfs" check "$image"
    mount_it
}

mkdir "$mnt"
"$loamfs" mkfs --size 32M "$image" >"$work/out"
mount_it
for number in $(seq 7); do
    head -c 3200000 /dev/urandom >"$mnt/large$number"
done
sync -f "$mnt"
mount_again
for number in $(seq 7); do
    fallocate --punch-hole --offset 0 --length 2M "$mnt/large$number"
done
sha256sum "$mnt"/large* >"$work/sums"
mount_again
# Each round is a checkpoint, and each file takes other fragments.
for round in 1 2 3; do
    python3 - "$mnt" $round <<'END'
import os, sys
directory, seed = sys.argv[1], int(sys.argv[2])
for number in range(600):
    file = os.open(f"{directory}/small{seed}.{number}", os.O_WRONLY | os.O_CREAT)
    os.write(file, os.urandom((number * 331 + seed) % 9000))
    if number % 10 == 0:
        os.fsync(file)
    os.close(file)
END
    mount_again
    sha256sum --quiet --check "$work/sums"
done
ok "small files take the place of a large one's beginning, and its records stay right"

# Full, so that what is left of the large files is moved to make room.
cat /dev/zero >"$mnt/fill" 2>/dev/null && fail "never full"
rm "$mnt/fill" "$mnt"/small*
mount_again
sha256sum --quiet --check "$work/sums"
ok "their rest is read and moved"
