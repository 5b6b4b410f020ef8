#!/bin/bash
# A summary of the log that rots, on a real mount: nothing that was durable goes without a word, nothing is written until
# the loss is accepted, and afterwards nobody misses anything any more.
# Needs root for fuseblk and loop devices.
#
#   rot.sh LOAMFS
set -euo pipefail

loamfs=$(realpath "$1")
. "$(dirname "$0")/common.sh"

# Files that are durable one by one.
write_files() {
    python3 - "$mnt" "$@" <<'END'
import os, sys
directory, names = sys.argv[1], sys.argv[2:]
for name in names:
    file = os.open(f"{directory}/{name}", os.O_WRONLY | os.O_CREAT, 0o644)
    os.write(file, name.encode() * 1000)
    os.fsync(file)
    os.close(file)
END
}

# The daemon dies, with all that nobody synced.
die() { power_cut; }

# Where a segment's summary is, in bytes: of that which so many others follow.
summary() {
    "$loamfs" dump --json "$image" segments | python3 -c '
import json, sys
chain = json.load(sys.stdin)
print(chain["segments"][-1 - int(sys.argv[1])]["at"] * 1024)' "$1"
}

mkdir "$mnt"
"$loamfs" mkfs --size 64M "$image" >"$work/out"
mount_it
write_files a b c d e f g h
die
cp "$image" "$work/sound.img"
# The first sector of a summary; whether there was room for a second copy depends on what the segment holds.
healed=""
for number in 3 4 5 6 7; do
    cp "$work/sound.img" "$image"
    at=$(summary $number)
    dd if=/dev/zero of="$image" bs=512 seek=$((at / 512)) count=1 conv=notrunc status=none
    if "$loamfs" check "$image" >"$work/out" 2>&1; then
        grep -q "second copy was read" "$work/out" || fail "check takes the break for the end"
        healed=$number
        break
    fi
done
[ -n "$healed" ] || fail "no header has a second copy"
mount_it
[ "$(ls "$mnt" | wc -l)" -eq 8 ] || fail "files are missing"
grep -q read-only "$work/out" && fail "read-only for nothing"
"$loamfs" unmount "$mnt"
expect 0 "$loamfs" check "$image"
ok "a header that rots is read by its second copy"

cp "$work/sound.img" "$image"
at=$(summary 5)
dd if=/dev/zero of="$image" bs=4096 seek=$((at / 4096)) count=1 conv=notrunc status=none
sha256sum "$image" >"$work/sum"
expect 4 "$loamfs" check "$image"
grep -q "were durable" "$work/out" || fail "check says nothing of what is lost"
sha256sum --quiet --check "$work/sum"
ok "check says what is lost, and how to go on"

mount_it
grep -q "it is read-only: the log is damaged" "$work/out" || fail "mount does not say why it is read-only"
findmnt --noheadings --output OPTIONS "$mnt" | grep -qw ro || fail "findmnt does not say ro"
touch "$mnt/new" 2>/dev/null && fail "it can be written to"
[ -s "$mnt/a" ] || fail "what was there before is gone"
"$loamfs" info "$mnt" | grep -q "the log is damaged" || fail "info does not say why"
"$loamfs" unmount "$mnt"
sha256sum --quiet --check "$work/sum"
ok "the volume can be read, says why it cannot be written to, and nothing is written to it"

expect 65 "$loamfs" label "$image" other
grep -q "accept-loss" "$work/out" || fail "label does not say how to go on"
sha256sum --quiet --check "$work/sum"
ok "other commands refuse to write, too"

mount_it accept-loss
write_files afterwards
die
mount_it
[ -s "$mnt/afterwards" ] && [ -s "$mnt/a" ] || fail "what was written after the loss is gone"
"$loamfs" unmount "$mnt"
expect 0 "$loamfs" check "$image"
ok "who accepts the loss goes on, and nobody misses anything any more"

# The newest checkpoint of a volume that was closed.
mount_it
rm "$mnt/a"
"$loamfs" unmount "$mnt"
at=$(summary 0)
dd if=/dev/zero of="$image" bs=4096 seek=$((at / 4096)) count=1 conv=notrunc status=none
mount_it
grep -q "it is read-only: the log is damaged" "$work/out" || fail "an older checkpoint is taken in silence"
"$loamfs" unmount "$mnt"
ok "no older checkpoint is taken in silence"

# All nodes of one of the maps: the volume can be read, and written to again once it is repaired.
"$loamfs" mkfs -q --force --size 64M "$image"
mount_it
head -c 3000000 /dev/urandom >"$work/large"
cp "$work/large" "$mnt/large"
for number in $(seq 300); do echo "$number" >"$mnt/small$number"; done
# Short overwrites stay in the log.
sync "$mnt/large"
for unit in $(seq 100 2 300); do
    dd if=/dev/urandom of="$work/unit" bs=4096 count=1 status=none
    for file in "$work/large" "$mnt/large"; do
        dd if="$work/unit" of="$file" bs=4096 seek="$unit" conv=notrunc status=none
    done
done
sync "$mnt/large"
"$loamfs" unmount "$mnt"
cp "$image" "$work/sound.img"

# All files as they were.
whole() {
    "$loamfs" cat "$image" /large | cmp - "$work/large"
    for number in 1 150 300; do
        [ "$("$loamfs" cat "$image" "/small$number")" = "$number" ] || fail "small$number has other data"
    done
}

for kind in GroupNode BitmapNode LazyNode IfileNode; do
    cp "$work/sound.img" "$image"
    # Some of these are of earlier checkpoints.
    "$loamfs" dump --json "$image" owners | python3 -c '
import json, sys
for owner in json.load(sys.stdin):
    if owner["kind"] == sys.argv[1]:
        extent = owner["extent"]
        print(extent["at"], extent["fragments"])' $kind >"$work/nodes"
    [ -s "$work/nodes" ] || fail "no $kind"
    # One of two copies is not missed, and mended.
    while read -r node count; do
        [ "$count" -eq 8 ] || continue
        dd if=/dev/zero of="$image" bs=1024 seek="$node" count=4 conv=notrunc status=none
    done <"$work/nodes"
    whole
    expect 4 "$loamfs" check "$image"
    grep -q "MapCopy\|one of the two copies" "$work/out" || fail "check does not say which copy is damaged"
    expect 1 "$loamfs" check --repair "$image"
    expect 0 "$loamfs" check "$image"
    whole
    cp "$work/sound.img" "$image"
    while read -r node count; do
        dd if=/dev/zero of="$image" bs=1024 seek="$node" count="$count" conv=notrunc status=none
    done <"$work/nodes"
    if [ $kind != IfileNode ]; then
        expect 74 "$loamfs" put "$image" "$work/out" /
        grep -q "check --repair" "$work/out" || fail "nobody says how to repair it"
    fi
    expect 4 "$loamfs" check "$image"
    grep -q "can be found out from" "$work/out" || fail "check does not say what it can find out"
    expect 1 "$loamfs" check --repair "$image"
    expect 0 "$loamfs" check "$image"
    whole
    mount_it
    cp "$work/large" "$mnt/again"
    rm "$mnt/small7"
    "$loamfs" unmount "$mnt"
    whole
    "$loamfs" cat "$image" /again | cmp - "$work/large"
    expect 0 "$loamfs" check "$image"
done
ok "what nodes of maps said that are gone is found out anew"
