#!/bin/bash
# Direct I/O on a real mount, beside what the kernel has in its page cache.
# Needs root for fuseblk and loop devices.
#
#   direct.sh LOAMFS [TIMES]      how often the writers and readers run, 3
set -euo pipefail

loamfs=$(realpath "$1")
times=${2:-3}
here=$(dirname "$(realpath "$0")")
. "$here/common.sh"

mkdir "$mnt"
"$loamfs" mkfs --size 256M "$image" >"$work/out"
mount_it
for time in $(seq "$times"); do
    for size in 65536 655360; do
        expect 0 python3 "$here/direct.py" "$mnt/file" $size 60
    done
done
"$loamfs" unmount "$mnt"
expect 0 "$loamfs" check "$image"
ok "$times times, what direct writes have completed is what every reader sees"
