#!/bin/bash
# Directories that say on which devices large files go, on a real mount of a fast device and a slow one: new files, those that are
# there, what is broken off, what is written back and killed meanwhile, a full fast device, and volumes of one kind of device.
# Needs root.
#
#   tiers.sh LOAMFS
set -euo pipefail

loamfs=$(realpath "$1")
. "$(dirname "$0")/common.sh"

ssd=$work/ssd.img
disk=$work/disk.img
image=$disk
mkdir "$mnt"

said() {
    grep -q -- "$1" "$work/out" || {
        cat "$work/out" >&2
        fail "it did not say: $1"
    }
}

# Of the bytes of files below a directory, how many have homes on the fast device, which comes first on the volume.
on_fast() {
    "$loamfs" info --json "$mnt" >"$work/info"
    find "$1" -type f -print0 | while IFS= read -r -d '' file; do "$loamfs" map --json "$file"; done |
        python3 -c '
import json, sys
devices = json.load(open(sys.argv[1]))["devices"]
fast = next(device for device in devices if device["kind"] == "fast")
text, at, fast_bytes, all_bytes = sys.stdin.read(), 0, 0, 0
while at < len(text.rstrip()):
    pieces, at = json.JSONDecoder().raw_decode(text, at)
    at += len(text[at:]) - len(text[at:].lstrip())
    for piece in pieces:
        if piece["place"] == "home":
            all_bytes += piece["length"]
            if piece["at"] < fast["bytes"]:
                fast_bytes += piece["length"]
print(fast_bytes, all_bytes)' "$work/info"
}

is_all_on() {
    sync -f "$mnt"
    read -r fast all < <(on_fast "$2")
    case $1 in
    fast) [ "$fast" = "$all" ] ;;
    slow) [ "$fast" = 0 ] ;;
    esac && [ "$all" -gt 1000000 ] || fail "of $all bytes of $2 $fast are on the fast device, not all on the $1 one"
}

same() { (cd "$mnt" && sha256sum --quiet -c "$work/sums") || fail "$1: files changed"; }

truncate -s 96M "$ssd"
truncate -s 320M "$disk"
"$loamfs" mkfs -q "$disk" --fast "$ssd"
mount_it "device=$ssd"
mkdir -p "$mnt/dir/below"
for number in $(seq 6); do head -c 3M /dev/urandom >"$mnt/dir/large$number"; done
head -c 2M /dev/urandom >"$mnt/dir/below/large"
head -c 3000 /dev/urandom >"$mnt/dir/small"
(cd "$mnt" && find . -type f -print0 | xargs -0 sha256sum) >"$work/sums"
is_all_on slow "$mnt/dir"

expect 0 "$loamfs" place "$mnt/dir" --on fast
said "large files on fast; 2 directories, 7 files moved"
is_all_on fast "$mnt/dir"
expect 0 "$loamfs" place "$mnt/dir/below"
said "^auto, large files on fast$"
[ "$(getfattr --only-values -n loamfs.on "$mnt/dir/below" 2>/dev/null || python3 -c 'import os, sys; print(os.getxattr(sys.argv[1], "loamfs.on").decode())' "$mnt/dir/below")" = fast ] ||
    fail "the attribute is another"
mkdir "$mnt/dir/new"
head -c 2M /dev/urandom >"$mnt/dir/new/large"
is_all_on fast "$mnt/dir/new"
expect 0 "$loamfs" place --json "$mnt/dir" hash --on fast
said '"on": "fast"'
said '"place": "hash"'
same "on the fast device"
ok "what is there and what comes later stands on the fast device, and that is inherited"

kill -9 "$(daemon)" 2>/dev/null || true
until_it same "after a kill"
"$loamfs" unmount "$mnt"
expect 0 "$loamfs" check --device "$ssd" "$disk"
mount_it "device=$ssd"
same "after a remount"
is_all_on fast "$mnt/dir"
expect 0 "$loamfs" place "$mnt/dir" --on slow
said "large files on slow; 3 directories, 8 files moved"
is_all_on slow "$mnt/dir"
expect 0 "$loamfs" place --json "$mnt/dir" --on slow
said '"moved_bytes": 0'
same "on the slow device"
ok "it holds behind another mount, goes back, and nothing is moved twice"

mkdir "$mnt/dir/under"
head -c 1500000 /dev/urandom >"$mnt/dir/under/large"
sync -f "$mnt"
expect 0 "$loamfs" place --json "$mnt/dir" --on 2M
said '"on": "2M"'
said '"moved_files": 3'
is_all_on fast "$mnt/dir/under"
is_all_on fast "$mnt/dir/new"
read -r fast all < <(on_fast "$mnt/dir")
[ $((all - fast)) = $((18 << 20)) ] || fail "$fast of $all bytes are on the fast device"
expect 0 "$loamfs" place "$mnt/dir/under"
said "^hash, large files up to 2M on fast, others on slow$"
same "by size"
ok "files up to a size go to the fast device, larger ones to the slow one"

owed() { "$loamfs" info --json "$mnt" | python3 -c 'import json, sys; print(json.load(sys.stdin)["groups"]["owed_bytes"])'; }
# Behind a mount that is known once somebody has looked.
owes_nothing() { knows_what_is_owed && [ "$(owed)" = 0 ]; }
knows_what_is_owed() { "$loamfs" info --json "$mnt" | grep -q '"owed_is_known": *true'; }

mkdir "$mnt/back"
expect 0 "$loamfs" place "$mnt/back" --on write-back
said "large files on fast, and later on slow"
for number in $(seq 3); do head -c 3M /dev/urandom >"$mnt/back/$number"; done
(cd "$mnt" && find . -type f -print0 | xargs -0 sha256sum) >"$work/sums"
is_all_on fast "$mnt/back"
[ "$(owed)" = $((9 << 20)) ] || fail "$(owed) bytes are owed"
expect 0 "$loamfs" info "$mnt"
said "of large files stand on fast devices and go to slow ones"
"$loamfs" metrics "$mnt" | grep -q "^loamfs_owed_bytes.* $((9 << 20))$" || fail "metrics do not tell what is owed"
"$loamfs" unmount "$mnt"
mount_it "device=$ssd"
is_all_on fast "$mnt/back"
until_it owes_nothing
is_all_on slow "$mnt/back"
expect 0 "$loamfs" place "$mnt/back" --on bypass
[ "$(python3 -c 'import os, sys; print(os.getxattr(sys.argv[1], "loamfs.on").decode())' "$mnt/back")" = bypass ] || fail "the attribute is another"
head -c 3M /dev/urandom >"$mnt/back/more"
is_all_on slow "$mnt/back"
rm "$mnt/back/more"
same "written back"
ok "what is written back goes to the slow device later, also behind a remount, and what bypasses the fast one never stands there"

# Until some of it has moved: asked as quickly as can be, as the rest follows soon.
until_moves() {
    for _ in $(seq 5000); do
        "$loamfs" info --json "$mnt" | grep -q "\"owed_bytes\": *$1\b" || return 0
    done
    fail "nothing moves"
}
owes() { [ "$(owed)" = "$1" ]; }

# Twice, each time with other files, within a sweep or right behind it: kills come where they come.
mkdir "$mnt/killed"
expect 0 "$loamfs" place "$mnt/killed" --on write-back
within=0
for round in 1 2; do
    for number in $(seq 8); do head -c 4M /dev/urandom >"$mnt/killed/$number"; done
    (cd "$mnt" && find . -type f -print0 | xargs -0 sha256sum) >"$work/sums"
    sync -f "$mnt"
    before=$(owed)
    # More than moves in one step.
    [ "$before" -gt $((16 << 20)) ] || fail "$before bytes are owed"
    pid=$(daemon)
    until_moves "$before"
    power_cut "$pid"
    expect 0 "$loamfs" check --device "$ssd" "$disk"
    mount_it "device=$ssd"
    same "killed within a sweep, round $round"
    until_it knows_what_is_owed
    [ "$(owed)" = 0 ] || within=$((within + 1))
    until_it owes_nothing
    is_all_on slow "$mnt/killed"
    same "killed within a sweep and moved, round $round"
    "$loamfs" unmount "$mnt"
    expect 0 "$loamfs" check --device "$ssd" "$disk"
    mount_it "device=$ssd"
    same "killed within a sweep and mounted again, round $round"
    rm "$mnt/killed"/*
    sync -f "$mnt"
done
rmdir "$mnt/killed"
sed -i '/killed/d' "$work/sums"
ok "a mount that is killed while what it owes moves loses nothing, and moves the rest later ($within of 2 within a sweep)"

mkdir "$mnt/fast" "$mnt/entered"
expect 0 "$loamfs" place "$mnt/fast" --on fast
expect 0 "$loamfs" place "$mnt/entered" --on write-back
head -c 3M /dev/urandom >"$mnt/fast/large"
is_all_on fast "$mnt/fast"
mv "$mnt/fast/large" "$mnt/entered/large"
until_it owes $((3 << 20))
until_it owes_nothing
is_all_on slow "$mnt/entered"
rm -r "$mnt/fast" "$mnt/entered"
ok "what is renamed into a directory that writes back goes to the slow device"

mkdir "$mnt/full"
expect 0 "$loamfs" place "$mnt/full" --on fast
for number in $(seq 20); do head -c 6M /dev/zero | tr '\0' "$(printf '%x' $((number % 16)))" >"$mnt/full/$number"; done
sync -f "$mnt"
read -r fast all < <(on_fast "$mnt/full")
[ "$all" -gt $((119 << 20)) ] && [ "$fast" -gt $((40 << 20)) ] && [ "$fast" -lt $((80 << 20)) ] || fail "$fast of $all bytes are on the fast device"
expect 0 "$loamfs" info "$mnt"
said "of large files went to slow devices since the"
[ "$("$loamfs" info --json "$mnt" | python3 -c 'import json, sys; groups = json.load(sys.stdin)["groups"]; print(groups["spilled_log"], groups["spilled_data_bytes"] > 30 << 20)')" = "0 True" ] ||
    fail "the figures of what spilled are others"
expect 0 "$loamfs" place "$mnt/full" --on fast
said "had no room there"
same "a full fast device"
rm -r "$mnt/full"
ok "a full fast device is no error: the rest goes to the slow one, the log keeps room, and info tells"
"$loamfs" unmount "$mnt"
expect 0 "$loamfs" check --device "$ssd" "$disk"

# Where the homes of a file begin must be borders of flash blocks of 256 KiB.
begins_at_a_border() {
    "$loamfs" map --json "$1" | python3 -c '
import json, sys
at = json.load(sys.stdin)[0]["at"]
sys.exit(at % (256 << 10) != 0)' || fail "$1 begins within a flash block"
}
mount_it "device=$ssd"
mkdir "$mnt/cut"
expect 0 "$loamfs" place "$mnt/cut" --on fast
expect 64 "$loamfs" device section "$mnt" "$ssd" 3K
said "powers of two from 4K to 64M"
expect 0 "$loamfs" device section "$mnt" "$ssd" 256K,64K
said "device 0 has a section of extents of 64"
for number in 1 2 3; do head -c 100K /dev/urandom >"$mnt/cut/$number"; done
sync -f "$mnt"
for number in 1 2 3; do begins_at_a_border "$mnt/cut/$number"; done
expect 0 "$loamfs" info "$mnt"
said "^section "
same "with a section"
"$loamfs" unmount "$mnt"
expect 0 "$loamfs" check --device "$ssd" "$disk"

expect 0 "$loamfs" device section --json --device "$ssd" "$disk" 0 none
said '"flash_block_bytes": null'
expect 0 "$loamfs" device list --device "$ssd" "$disk"
! grep -q "^section " "$work/out" || fail "there is a section still"
ok "room for large files comes in extents of flash blocks, while somebody asks for it"

# Another fast device, replaced unmounted and under a mount.
for number in 1 2 3; do truncate -s 64M "$work/more$number.img"; done
more=$work/more1.img
expect 64 "$loamfs" device replace --device "$ssd" "$disk" "$ssd" "$more"
said "leads the volume"
expect 0 "$loamfs" device add --fast --device "$ssd" "$disk" "$more"
expect 0 "$loamfs" device section --device "$ssd" --device "$more" "$disk" "$more" 256K,64K
expect 0 "$loamfs" device replace --device "$ssd" --device "$more" "$disk" "$more" "$work/more2.img"
more=$work/more2.img
expect 0 "$loamfs" device list --device "$ssd" --device "$more" "$disk"
said "^section .*extents of 64"
mount_it "device=$ssd,device=$more"
expect 0 "$loamfs" device replace "$mnt" "$more" "$work/more3.img"
more=$work/more3.img
expect 0 "$loamfs" device list "$mnt"
said "^section .*extents of 64"
same "after a fast device was replaced"
"$loamfs" unmount "$mnt"
expect 0 "$loamfs" check --device "$ssd" --device "$more" "$disk"
ok "a device that replaces another one gives out its room as that did; the one that leads is not replaced"

image=$work/alone.img
"$loamfs" mkfs -q --size 64M "$image"
mount_it
mkdir "$mnt/dir"
for word in fast slow; do
    expect 74 "$loamfs" place "$mnt/dir" --on $word
    said "no fast devices beside slow ones"
done
expect 0 "$loamfs" place "$mnt/dir" --on auto
expect 64 "$loamfs" place "$mnt/dir" --on quick
"$loamfs" unmount "$mnt"
ok "where all devices are of one kind, there is nothing to choose"
