#!/bin/bash
# Tracks that form while nobody asks for anything, on a real mount: of a directory that was read cold for long enough, on a disk that
# turns. Then a cold read takes one request of the device. Waits for what `info` says, never for a time. Needs root.
#
#   idle.sh LOAMFS
set -euo pipefail

loamfs=$(realpath "$1")
. "$(dirname "$0")/common.sh"
mkdir "$mnt"

FILES=700

# A figure of the report, by its path.
figure() {
    "$loamfs" info --json "$mnt" | python3 -c "
import json, sys
value = json.load(sys.stdin)
for key in sys.argv[1].split('.'):
    value = value[key]
print(value)" "$1"
}

# Reads a file of the directory when nothing is in memory.
cold() {
    "$loamfs" drop-caches "$mnt" >"$work/out"
    cat "$mnt/dir/file $(($1 * 37 % FILES + 1))" >"$work/out"
}

# How many requests of the device twenty such reads take, once it is known what leads to the directory's names.
requests() {
    local before total=0
    for number in $(seq 20); do
        "$loamfs" drop-caches "$mnt" >"$work/out"
        stat "$mnt/dir/none $number" >"$work/out" 2>&1 || true
        before=$(figure requests.total.reads)
        cat "$mnt/dir/file $((number * 37 % FILES + 1))" >"$work/out"
        total=$((total + $(figure requests.total.reads) - before))
    done
    echo $total
}

same() {
    (cd "$mnt" && sha256sum --quiet -c "$work/sums") || fail "$1: files changed"
}

formed() {
    [ "$(figure tracks.formed_files)" -ge "$1" ]
}

"$loamfs" mkfs --size 256M --disk turning "$image" >"$work/out"
mount_it tracks=asked,noatime
mkdir "$mnt/dir"
for number in $(seq $FILES); do
    head -c $((8000 + number)) /dev/urandom >"$mnt/dir/file $number"
done
(cd "$mnt" && find . -type f -print0 | xargs -0 sha256sum) >"$work/sums"
sync -f "$mnt"
# A file that stands beside its inode in the log takes one request by chance. So inodes change until their blocks are written
# once more, elsewhere.
for mode in 600 640 600 640 600 640 600 640; do
    find "$mnt/dir" -type f -exec chmod $mode {} +
    sync -f "$mnt"
done
out_of_log=$(requests)
[ "$(figure tracks.cold_reads)" = 0 ] || fail "reads are counted though nothing may form"
"$loamfs" unmount "$mnt"
ok "tracks=asked counts nothing"

mount_it noatime
for number in $(seq 400); do
    cold "$number"
done
until_it formed $FILES
"$loamfs" info "$mnt" | grep -A2 "^tracks" >"$work/out" || fail "info tells nothing of tracks"
same "formed"
[ "$(figure groups.track)" -gt 0 ] || fail "no groups of tracks"
out_of_tracks=$(requests)
[ "$out_of_tracks" -le 22 ] && [ "$out_of_tracks" -lt "$out_of_log" ] ||
    fail "twenty cold reads took $out_of_tracks requests, and $out_of_log before"
"$loamfs" unmount "$mnt"
expect 0 "$loamfs" check "$image"
mount_it noatime
same "on the device"
ok "tracks formed: twenty cold reads take $out_of_tracks requests instead of $out_of_log"
