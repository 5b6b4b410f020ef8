#!/bin/bash
# What df shows is there, on real mounts: it can be allocated, or written, to the last block, and nothing is left over that
# nobody can use. Needs root.
#
#   available.sh LOAMFS
set -euo pipefail

loamfs=$(realpath "$1")
. "$(dirname "$0")/common.sh"
mkdir "$mnt"
mib=$((1 << 20))

# Bytes that statvfs shows as available; both its sizes must be one, since programs multiply by either.
shown() {
    python3 - "$mnt" <<'END'
import os, sys
figures = os.statvfs(sys.argv[1])
assert figures.f_bsize == figures.f_frsize, figures
print(figures.f_bavail * figures.f_frsize)
END
}

# Makes a volume of $1 bytes and mounts it.
fresh() {
    rm -f "$image"
    "$loamfs" mkfs --size "$1" "$image" >"$work/out"
    mount_it
}

# Writes zeros to a file until nothing fits; says how many.
fill() {
    dd if=/dev/zero of="$mnt/$1" bs=1M conv=fsync 2>"$work/out" && fail "dd found no end"
    grep -q 'No space left' "$work/out" || fail "$(cat "$work/out")"
    stat -c %s "$mnt/$1"
}

# What is written at a time fits whole or not at all.
piece=$((256 << 10))

# That $2 is not less than $1 but for a piece, and not more than so many bytes more.
about() {
    [ "$2" -gt $(($1 - piece)) ] || fail "$4: $2 of $1 bytes"
    [ "$2" -le $(($1 + $3)) ] || fail "$4: $2, and $1 were shown"
}

fresh 2G
before=$(shown)
fallocate -l $((before - 16 * mib)) "$mnt/allocated" || fail "$before shown, less 16 MiB not allocated"
left=$(shown)
about $((16 * mib)) "$((left + 16 * mib))" $((64 * mib)) "after fallocate"
ok "2 GiB: all but 16 MiB of $before bytes can be allocated, $left are shown then"
about "$left" "$(fill rest)" $((64 * mib)) "behind what is allocated"
[ "$(shown)" -lt $mib ] || fail "$(shown) are left"
ok "and written"
rm "$mnt/allocated" "$mnt/rest"
sync -f "$mnt"
# As one of data, a group in which a superblock stands counts with both of its parts; once it is free again, with the longer one.
is_back() {
    local now
    now=$(shown)
    [ "$now" -gt $((before - 32 * mib - piece)) ] && [ "$now" -le "$before" ]
}
until_it is_back
ok "what was removed is shown again"
umount "$mnt"

fresh 1G
before=$(shown)
written=$(fill one)
about "$before" "$written" $((20 * mib)) "one file"
[ "$(shown)" -lt $mib ] || fail "$(shown) are left"
ok "1 GiB: one file takes $written bytes, $before were shown"
umount "$mnt"
"$loamfs" check "$image" >"$work/out" || fail "$(cat "$work/out")"
ok "the volume is sound"
