#!/bin/bash
# A volume of three devices: a fast one and two others. Made, mounted by any of them, as image files that are named and as
# block devices that the kernel has; killed and mounted again; refused, with nothing changed, where one is missing or doubled.
# Needs root for fuseblk and loop devices.
#
#   devices.sh LOAMFS
set -euo pipefail

loamfs=$(realpath "$1")
. "$(dirname "$0")/common.sh"

ssd=$work/ssd.img
one=$work/one.img
two=$work/two.img
image=$one
others="device=$ssd,device=$two"

# A figure of the device of this kind or name, of those of the mount.
of_device() {
    "$loamfs" info --json "$mnt" | python3 -c '
import json, sys
word, path = sys.argv[1], sys.argv[2].split("/")
total = 0
for device in json.load(sys.stdin)["devices"]:
    if word in (device["kind"], device["name"]):
        for field in path:
            device = device[field]
        total += device
print(total)' "$1" "$2"
}

# What the images hold.
sums() {
    sha256sum "$ssd" "$one" "$two"
}

# The last command has failed with these words.
said() {
    grep -q -- "$1" "$work/out" || {
        cat "$work/out" >&2
        fail "it did not say: $1"
    }
}

small_files() {
    for number in $(seq "$1" "$2"); do
        head -c 3000 /dev/zero | tr '\0' "$(printf '%b' "\\$(printf '%o' $((97 + number % 26)))")" >"$mnt/small$number"
    done
}

small_files_are_there() {
    for number in $(seq "$1" "$2"); do
        letter=$(printf '%b' "\\$(printf '%o' $((97 + number % 26)))")
        [ "$(tr -d "$letter" <"$mnt/small$number" | wc -c)" = 0 ] || fail "small$number holds something else"
        [ "$(stat -c %s "$mnt/small$number")" = 3000 ] || fail "small$number has another size"
    done
}

mkdir "$mnt"
truncate -s 96M "$ssd"
truncate -s 160M "$one" "$two"

"$loamfs" mkfs "$one" "$two" --fast "$ssd" >"$work/out"
said "made volume"
expect 73 "$loamfs" mkfs "$one" "$two" --fast "$ssd"
said "give --force"
expect 64 "$loamfs" mkfs --force --size 64M "$one" "$two"
said "several are used whole"
ok "three devices become one volume"

for alone in "$ssd" "$one" "$two"; do
    before=$(sums)
    expect 8 "$loamfs" check "$alone"
    said "is missing; attach or name it"
    expect 32 "$loamfs" mount "$alone" "$mnt"
    said "is missing; attach or name it"
    [ "$(sums)" = "$before" ] || fail "a device was changed"
done
ok "one alone is refused, and what is missing is named"

expect 0 "$loamfs" check --device "$two" --device "$ssd" "$one"
expect 0 "$loamfs" dump --device "$two" --device "$ssd" "$one" superblock
said "device 0, fast: "
expect 0 "$loamfs" device list --device "$two" --device "$ssd" "$one"
[ "$(grep -c '^device [0-2]' "$work/out")" = 3 ] || fail "not all devices are listed"
ok "named, they are checked, dumped and listed"

mount_it "$others"
small_files 1 200
sync -f "$mnt"
[ "$(of_device slow requests/total/write_bytes)" -lt 100000 ] || fail "small files went to the disks"
[ "$(of_device fast requests/total/write_bytes)" -gt 600000 ] || fail "small files did not go to the fast device"
head -c 50000000 /dev/urandom >"$work/large"
cp "$work/large" "$mnt/large"
sync -f "$mnt"
[ "$(of_device slow requests/total/write_bytes)" -gt 50000000 ] || fail "a large file did not go to the disks"
[ "$(of_device fast requests/total/write_bytes)" -lt 20000000 ] || fail "a large file went to the fast device"
ok "small files stand on the fast device, large ones on the others"

crash "$others"
small_files_are_there 1 200
cmp "$work/large" "$mnt/large"
for round in 1 2 3; do
    small_files $((round * 1000)) $((round * 1000 + 50))
    sync -f "$mnt"
    cp "$work/large" "$mnt/large$round" 2>/dev/null &
    sleep 0.3
    crash "$others"
    wait
    small_files_are_there $((round * 1000)) $((round * 1000 + 50))
done
"$loamfs" unmount "$mnt"
expect 0 "$loamfs" check --device "$two" --device "$ssd" "$one"
ok "what was synced survives kills of the daemon"

loops=()
for file in "$one" "$ssd" "$two"; do
    loops+=("$(losetup --show -f "$file")")
done
for device in "${loops[@]}"; do
    "$loamfs" mount "$device" "$mnt" >"$work/out"
    small_files_are_there 1 3
    "$loamfs" unmount "$mnt"
    expect 0 "$loamfs" check "$device"
done
ok "as block devices they find each other, whichever is named"

losetup -d "${loops[2]}"
until_it test ! -e "/sys/block/$(basename "${loops[2]}")/loop/backing_file"
before=$(sums)
expect 32 "$loamfs" mount "${loops[0]}" "$mnt"
said "of the volume's 3, a slow one of .* is missing"
[ "$(sums)" = "$before" ] || fail "a device was changed"
cp "$two" "$work/copy.img"
expect 32 "$loamfs" mount -o "device=$two,device=$work/copy.img" "${loops[0]}" "$mnt"
said "both say that they are device 2; detach the one that is a copy"
"$loamfs" mkfs -q --size 16M "$work/other.img"
expect 32 "$loamfs" mount -o "device=$two,device=$work/other.img" "${loops[0]}" "$mnt"
said "does not belong to the same volume"
[ "$(sums)" = "$before" ] || fail "a device was changed"
"$loamfs" mount -o "device=$two" "${loops[0]}" "$mnt" >"$work/out"
small_files_are_there 1 3
"$loamfs" unmount "$mnt"
losetup -d "${loops[0]}" "${loops[1]}"
ok "a missing, a doubled and a foreign device are named, and nothing is changed"

mount_it "$others"
rm "$mnt"/large*
# More than the fast device holds.
mkdir "$mnt/many"
for dir in $(seq 40); do
    mkdir "$mnt/many/$dir"
    head -c 3000000 /dev/urandom | split -b 12000 - "$mnt/many/$dir/x"
done
sync -f "$mnt"
"$loamfs" info "$mnt" >"$work/out"
said "as the fast ones are full"
grep -q "the fast devices are full" "$work/daemon.log" || fail "the log does not tell of it"
"$loamfs" unmount "$mnt"
expect 0 "$loamfs" check --device "$two" --device "$ssd" "$one"
ok "a full fast device spills, and says so"
