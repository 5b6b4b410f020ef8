#!/bin/bash
# A volume of three devices: a fast one and two others. Made, mounted by any of them, as image files that are named and as
# block devices that the kernel has; killed and mounted again; refused, with nothing changed, where one is missing or doubled.
# Devices join, leave and are replaced, also after the command was killed, and grow; all of that under a mount too, while programs
# write and daemons are killed.
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
said "as the fast ones had no room"
grep -q "the fast devices have no room" "$work/daemon.log" || fail "the log does not tell of it"
"$loamfs" unmount "$mnt"
expect 0 "$loamfs" check --device "$two" --device "$ssd" "$one"
ok "a full fast device spills, and says so"

# ---- joining and leaving -----------------------------------------------------------------------------------------

mount_it "$others"
rm -rf "$mnt"/many "$mnt"/small*
three=$work/three.img
four=$work/four.img
truncate -s 160M "$three" "$four"
named=(--device "$two" --device "$ssd")

# How many devices the mount has.
count() { "$loamfs" device list --json "$mnt" | grep -c '"device":'; }

bytes() { df -B1 --output=size "$mnt" | tail -1; }

before=$(bytes)
expect 64 "$loamfs" device remove "$mnt" "$three"
said "is no device of this volume"
expect 74 "$loamfs" device remove "$mnt" 0
said "leads the volume"
expect 74 "$loamfs" device remove "$mnt" "$one"
said "the mount names device"
expect 64 "$loamfs" device replace "$mnt" "$one" "$three"
said "the mount names $one"
[ "$(count)" = 3 ] || fail "the devices have changed"
"$loamfs" unmount "$mnt"
[ -z "$(tr -d '\0' <"$three" | head -c 1)" ] || fail "it was written to"
ok "what cannot leave a mount is named, and nothing has changed"

"$loamfs" mkfs -q --force --size 64M "$work/other.img"
expect 73 "$loamfs" device add "${named[@]}" "$one" "$work/other.img"
said "give --force to overwrite it"
expect 64 "$loamfs" device add "${named[@]}" "$one" "$two"
said "is a device of this volume already"
cp "$work/other.img" "$work/copy.img"
expect 73 "$loamfs" device add "$work/other.img" "$work/copy.img"
cmp "$work/other.img" "$work/copy.img" || fail "a copy of a volume was overwritten"
ok "what cannot join or leave is named, and stays as it was"

expect 0 "$loamfs" device add "${named[@]}" "$one" "$three"
said "added"
others="$others,device=$three"
mount_it "$others"
[ "$(count)" = 4 ] || fail "it has not joined"
[ "$(bytes)" -gt $((before + 100000000)) ] || fail "there is no more room"
crash "$others"
[ "$(count)" = 4 ] || fail "it has not stayed"
ok "a device joins"

# Four fifths of what the others hold: of a small volume the log's reserve is most of the rest.
full=$((($(bytes) - 150000000) / 5 * 4))
mkdir "$mnt/fill"
number=0
while [ $(($(df -B1 --output=used "$mnt" | tail -1) + 3000000)) -lt $full ]; do
    number=$((number + 1))
    head -c 2500000 /dev/urandom >"$mnt/fill/large$number"
    mkdir "$mnt/fill/$number"
    head -c 100000 /dev/urandom | split -b 5000 - "$mnt/fill/$number/x"
done
sync -f "$mnt"
(cd "$mnt/fill" && find . -type f -print0 | sort -z | xargs -0 sha256sum) >"$work/sums"
expect 0 "$loamfs" device list "$mnt"
"$loamfs" unmount "$mnt"
named=(--device "$three" --device "$two" --device "$ssd")
expect 64 "$loamfs" device remove "${named[@]}" "$one" "$ssd"
said "leads the volume"
# It is killed, and goes on.
for pause in 0.2 0.5; do
    timeout -s KILL "$pause" "$loamfs" device remove "${named[@]}" "$one" "$two" >"$work/out" 2>&1 || true
    [ -z "$(ls -A "$mnt")" ] || fail "it is mounted"
done
# Where it was done by then, --device names what is no device of the volume any more.
if grep -q -- "$two" <("$loamfs" device list "${named[@]}" "$one" 2>/dev/null); then
    expect 0 "$loamfs" device remove "${named[@]}" "$one" "$two"
    said "removed"
fi
named=(--device "$three" --device "$ssd")
expect 0 "$loamfs" check "${named[@]}" "$one"
expect 65 "$loamfs" info "$two"
others="device=$ssd,device=$three"
ok "a device leaves, though it is killed in between, and nothing is lost"

mount_it "$others"
(cd "$mnt/fill" && sha256sum --quiet -c "$work/sums") || fail "something was lost"
"$loamfs" unmount "$mnt"
expect 64 "$loamfs" device remove "${named[@]}" "$one" "$three"
said "and the others have room for"
expect 0 "$loamfs" device replace --json "${named[@]}" "$one" "$three" "$four"
said '"bytes": '
others="device=$ssd,device=$four"
mount_it "$others"
[ "$(count)" = 3 ] || fail "it was not replaced"
(cd "$mnt/fill" && sha256sum --quiet -c "$work/sums") || fail "something was lost"
rm -r "$mnt"/fill
"$loamfs" unmount "$mnt"
named=(--device "$four" --device "$ssd")
expect 0 "$loamfs" check "${named[@]}" "$one"
expect 0 "$loamfs" device add "${named[@]}" "$one" "$two"
named+=(--device "$two")
expect 0 "$loamfs" device remove "${named[@]}" "$one" "$four"
expect 0 "$loamfs" check --device "$two" --device "$ssd" "$one"
ok "a device is replaced by another one; unmounted they join and leave too"

# ---- growing -----------------------------------------------------------------------------------------------------

others="device=$ssd,device=$two"
named=(--device "$two" --device "$ssd")
mount_it "$others"
before=$(bytes)
head -c 20000000 /dev/urandom >"$mnt/large"
sum=$(sha256sum <"$mnt/large")
"$loamfs" unmount "$mnt"
expect 64 "$loamfs" grow --size 1G "${named[@]}" "$one"
said "is for a volume of one device"
longer=$("$loamfs" device list --json "${named[@]}" "$one" | tr -d ' ,"' | sed -n 's/^name://p' | tail -1)
truncate -s +160M "$longer"
expect 0 "$loamfs" grow "${named[@]}" "$one"
said "has grown from"
expect 0 "$loamfs" check "${named[@]}" "$one"
mount_it "$others"
[ "$(bytes)" -gt $((before + 160000000)) ] || fail "df says $(bytes) after $before"
[ "$(sha256sum <"$mnt/large")" = "$sum" ] || fail "something was lost"
head -c 100000000 /dev/urandom >"$mnt/larger" || fail "there is no more room"
"$loamfs" unmount "$mnt"
expect 0 "$loamfs" grow "${named[@]}" "$one"
said "fills its device already"
expect 0 "$loamfs" check "${named[@]}" "$one"
ok "a volume of several devices grows"

# ---- under a mount -------------------------------------------------------------------------------------------------

# Kills daemons at random moments until there is the file calm, or this run is over.
kill_daemons() {
    while [ -d "$work" ] && [ ! -e "$work/calm" ]; do
        sleep "0.$((RANDOM % 9 + 1))"
        pid=$(daemon 2>/dev/null) && [ -n "$pid" ] && kill -9 "$pid" 2>/dev/null || true
    done
}

# Has 16 programs write in a new directory while daemons are killed; returns when some have written.
begin_work() {
    rm -f "$work/stop" "$work/calm"
    mkdir "$1"
    "$(dirname "$0")/writers.py" "$1" 16 "$work/stop" >"$work/writers" &
    writers=$!
    has_files() { [ "$(find "$1" -type f | head -50 | wc -l)" = 50 ]; }
    until_it has_files "$1"
    kill_daemons &
    killer=$!
}

# Has that end: what they synced is there, and there was room for all.
end_work() {
    touch "$work/calm"
    wait "$killer"
    touch "$work/stop"
    wait "$writers" || {
        cat "$work/writers" >&2
        fail "what was synced is not there, or there was no room"
    }
}

# The same command again, as long as daemons die under it.
persist() {
    for _ in $(seq 60); do
        if "$loamfs" "$@" >"$work/out" 2>&1; then return; fi
        # It was done when the command could not be told.
        if grep -q "is a device of this volume already\|is no device of this volume" "$work/out"; then return; fi
        sleep 0.2
    done
    cat "$work/out" >&2
    fail "never: $*"
}

# Also when a daemon was killed just now.
has_count() { [ "$(count 2>/dev/null)" = "$1" ]; }

image=$work/live.img
new=$work/new.img
"$loamfs" mkfs -q --size 128M "$image"
cp "$image" "$work/backup.img"
truncate -s 128M "$new"
mount_it cache=64M
before=$(bytes)
exec 9>"$mnt/open"
echo begun >&9
expect 0 "$loamfs" device add "$mnt" "$new"
said "added $new; the volume had"
echo done >&9
exec 9>&-
[ "$(cat "$mnt/open")" = "begun
done" ] || fail "an open file was cut off"
[ "$(count)" = 2 ] || fail "it has not joined"
[ "$(bytes)" -gt $((before + 110000000)) ] || fail "there is no more room"
expect 64 "$loamfs" device add "$mnt" "$new"
said "is a device of this volume already"
truncate -s 200K "$work/short.img"
printf '\123\357' | dd of="$work/short.img" bs=1 seek=$((0x438)) conv=notrunc status=none
before=$(sha256sum <"$work/short.img")
expect 64 "$loamfs" device add --force "$mnt" "$work/short.img"
said "too little for a group"
[ "$(sha256sum <"$work/short.img")" = "$before" ] || fail "what cannot join was wiped"
before=$(stat -c %s "$image")
expect 64 "$loamfs" grow --size 1G "$mnt"
said "is for a volume of one device"
[ "$(stat -c %s "$image")" = "$before" ] || fail "the image was extended all the same"
expect 0 "$loamfs" trim "$mnt"
said "trimmed"
expect 64 "$loamfs" device replace "$mnt" "$new" "$new"
said "name another one"
expect 64 "$loamfs" device remove "$mnt" "$work/backup.img"
said "is no device of this volume"
expect 0 "$loamfs" check "$work/backup.img"
[ "$(count)" = 2 ] || fail "the devices have changed"
truncate -s +64M "$new"
before=$(bytes)
expect 0 "$loamfs" grow "$mnt"
[ "$(bytes)" -gt $((before + 60000000)) ] || fail "it has not grown"
head -c 200000000 /dev/urandom >"$mnt/large" || fail "there is no more room"
power_cut
expect 8 "$loamfs" check "$image"
expect 0 "$loamfs" check --device "$new" "$image"
"$loamfs" mount -o "device=$new" "$image" "$mnt" >"$work/out"
rm "$mnt/large"
"$loamfs" unmount "$mnt"
ok "a device joins a mounted volume, and it grows"

"$loamfs" mount -o "device=$new" "$image" "$mnt" >"$work/out"
expect 0 "$loamfs" device remove "$mnt" "$new"
has_count 1 || fail "it has not left"
expect 0 "$loamfs" upgrade "$mnt"
kill -9 "$(daemon)"
until_it has_count 1
echo alone >"$mnt/alone"
"$loamfs" unmount "$mnt"
expect 0 "$loamfs" check "$image"
ok "where all have left but the device that leads, daemons follow each other still"

rm "$image" "$new"
"$loamfs" mkfs -q --size 128M "$image"
for number in 1 2 3; do truncate -s 64M "$work/new$number.img"; done
mount_it
head -c 30000000 /dev/urandom >"$mnt/large"
"$loamfs" device add "$mnt" "$work/new1.img" >/dev/null 2>&1 &
added=1
"$loamfs" device add "$mnt" "$work/new2.img" >/dev/null 2>&1 && added=$((added + 1))
wait $! && added=$((added + 1))
[ "$(count)" -ge "$added" ] || fail "one of two that were added at a time has not joined"
"$loamfs" unmount "$mnt"
ok "of two devices that are added at a time none is forgotten"

rm "$image" "$work"/new[12].img
truncate -s 64M "$work"/new{1,2}.img
"$loamfs" mkfs -q --size 128M "$image"
LOAMFS_DEATHS=1000 mount_it cache=64M
begin_work "$mnt/many"
for number in 1 2 3; do
    persist device add "$mnt" "$work/new$number.img"
    truncate -s +16M "$work/new$number.img"
    persist grow "$mnt"
done
end_work
until_it has_count 4
ok "devices join while 16 programs write and daemons are killed"

head -c 60000000 /dev/urandom >"$mnt/large"
sync "$mnt/large"
begin_work "$mnt/more"
persist device remove "$mnt" "$work/new1.img"
persist device replace "$mnt" "$work/new2.img" "$work/new1.img"
end_work
until_it has_count 3
# Nobody holds what has left, nor does it say anything of the volume.
expect 65 "$loamfs" info "$work/new2.img"
"$loamfs" unmount "$mnt"
expect 0 "$loamfs" check --device "$work/new1.img" --device "$work/new3.img" "$image"
ok "devices leave and are replaced while 16 programs write and daemons are killed"

"$loamfs" mount -o "device=$work/new1.img,device=$work/new3.img,log=$work/daemon.log" "$image" "$mnt" >"$work/out"
head -c 90000000 /dev/urandom >"$work/large"
cp "$work/large" "$mnt/large"
sync -f "$mnt"
expect 0 "$loamfs" device remove --cancel "$mnt" "$work/new1.img"
has_count 3 || fail "it does not stay"
head -c 1000000 "$work/new1.img" >"$work/said"
# It goes on though nobody waits for it.
timeout -s KILL 0.1 "$loamfs" device remove "$mnt" "$work/new1.img" >"$work/out" 2>&1 || true
if ! "$loamfs" device list "$mnt" | grep -q leaving && ! has_count 2; then
    expect 0 "$loamfs" device remove "$mnt" "$work/new1.img"
fi
until_it has_count 2
cmp "$work/large" "$mnt/large"
# As if what took it out had ended before it could wipe it.
dd if="$work/said" of="$work/new1.img" conv=notrunc status=none
expect 0 "$loamfs" device remove "$mnt" "$work/new1.img"
said "removed"
expect 65 "$loamfs" info "$work/new1.img"
dd if="$work/said" of="$work/new1.img" conv=notrunc status=none
head -c 60000000 /dev/urandom >"$mnt/rest"
expect 74 "$loamfs" device remove "$mnt" "$work/new3.img"
said "and the others have room for"
"$loamfs" device list "$mnt" | grep -q leaving && fail "it leaves all the same"
"$loamfs" unmount "$mnt"
expect 0 "$loamfs" device remove --device "$work/new1.img" --device "$work/new3.img" "$image" "$work/new1.img"
said "removed"
expect 65 "$loamfs" info "$work/new1.img"
expect 0 "$loamfs" check --device "$work/new3.img" "$image"
ok "a removal goes on without its command, is finished when it is said again, and is refused without room"

# ---- what a crash left on a device -----------------------------------------------------------------------------------

loops=()
for number in 1 2 3; do truncate -s 32M "$work/part$number.img"; done
"$loamfs" mkfs -q "$work/part1.img" "$work/part2.img"
head -c 1000000 "$work/part2.img" >"$work/said"
expect 0 "$loamfs" device add --device "$work/part2.img" "$work/part1.img" "$work/part3.img"
# As if power had failed before the second device heard of the third.
dd if="$work/said" of="$work/part2.img" conv=notrunc status=none
for number in 1 2 3; do loops+=("$(losetup --show -f "$work/part$number.img")"); done
expect 0 "$loamfs" check "${loops[1]}"
"$loamfs" mount "${loops[1]}" "$mnt" >"$work/out"
has_count 3 || fail "the third device is not found"
"$loamfs" unmount "$mnt"
cmp -s -n 1000000 "$work/said" "$work/part2.img" && fail "the second device still says the same"
losetup -d "${loops[@]}"
ok "a device that missed a change finds the others, and is told"
