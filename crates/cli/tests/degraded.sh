#!/bin/bash
# A volume of three devices of which one is gone: refused unless `-o degraded` is given; then what stands on the others can be read,
# nothing is written, and a killed daemon is replaced. Without the device it becomes whole again, and what was lost is told by file.
# The device that returns is refused.
# Needs root for fuseblk and loop devices.
#
#   degraded.sh LOAMFS
set -euo pipefail

loamfs=$(realpath "$1")
. "$(dirname "$0")/common.sh"

ssd=$work/ssd.img
one=$work/one.img
two=$work/two.img
image=$ssd
all="device=$one,device=$two"
named=(--device "$ssd" "$two")

said() {
    grep -q -- "$1" "$work/out" || {
        cat "$work/out" >&2
        fail "it did not say: $1"
    }
}

# What the images hold that are left.
sums() { sha256sum "$ssd" "$two"; }

# How the files of a list can be read: all of them, or which.
unreadable() { (cd "$mnt" && { sha256sum --quiet -c "$work/$1" 2>/dev/null || true; } | sed 's/: FAILED.*//' | sort); }

mkdir "$mnt"
truncate -s 96M "$ssd"
truncate -s 160M "$one" "$two"
"$loamfs" mkfs -q "$one" "$two" --fast "$ssd"
mount_it "$all"
mkdir "$mnt/small" "$mnt/large"
head -c 1000000 /dev/urandom | split -b 5000 - "$mnt/small/x"
for number in $(seq 10); do head -c 25000000 /dev/urandom >"$mnt/large/$number"; done
# Each has a piece in the log, which is not lost.
for number in $(seq 10); do
    printf 'here' | dd of="$mnt/large/$number" bs=1 seek=20480 conv=notrunc,fsync status=none
done
(cd "$mnt" && find small -type f -print0 | sort -z | xargs -0 sha256sum) >"$work/small"
(cd "$mnt" && find large -type f -print0 | sort -z | xargs -0 sha256sum) >"$work/large"
kill -9 "$(daemon)" 2>/dev/null || true
small_is_there() { [ -z "$(unreadable small)" ]; }
until_it small_is_there
"$loamfs" unmount "$mnt"
mv "$one" "$work/gone"

before=$(sums)
expect 32 "$loamfs" mount -o "device=$two" "$ssd" "$mnt"
said "is missing; attach or name it"
expect 1 "$loamfs" mount -o "degraded,rw,device=$two" "$ssd" "$mnt"
said "is read-only"
expect 32 "$loamfs" mount -o "degraded,device=$work/gone" "$two" "$mnt"
said "is missing; attach or name it"
expect 0 "$loamfs" device list "${named[@]}"
said "missing"
expect 0 "$loamfs" info --json "${named[@]}"
said '"state": "missing"'
[ "$(sums)" = "$before" ] || fail "a device was changed"
ok "without a device, or without the one that leads, the volume is refused; what there is can be listed"

mount_it "degraded,device=$two"
said "is missing: what stands there cannot be read"
small_is_there || fail "small files cannot be read"
cp -r "$mnt/small" "$work/copy"
lost=$(unreadable large)
[ -n "$lost" ] || fail "nothing is lost"
[ "$(wc -w <<<"$lost")" -lt 10 ] || fail "all is lost"
broken=$mnt/$(head -1 <<<"$lost")
[ "$(dd if="$broken" bs=1 skip=20480 count=4 status=none)" = here ] || fail "what stands in the log cannot be read"
expect 1 dd if="$broken" of=/dev/null bs=4096 count=1
said "Input/output error"
expect 1 touch "$mnt/new"
said "Read-only file system"
kill -9 "$(daemon)"
until_it small_is_there
[ "$(unreadable large)" = "$lost" ] || fail "a successor reads something else"
expect 75 "$loamfs" device remove --missing "$mnt"
said "unmount it first"
"$loamfs" unmount "$mnt"
[ "$(sums)" = "$before" ] || fail "a device was changed"
ok "degraded, what stands on the others is read, and nothing is written"

expect 65 "$loamfs" ls "${named[@]}" /large
said "read what is on the others with \`--degraded\`"
expect 0 "$loamfs" ls --degraded "${named[@]}" /large
[ "$(wc -l <"$work/out")" = 10 ] || fail "not all names are listed"
expect 0 "$loamfs" tree --degraded "${named[@]}"
expect 0 "$loamfs" stat --degraded "${named[@]}" "/large/1"
"$loamfs" cat --degraded "${named[@]}" /small/xaa | cmp - "$work/copy/xaa"
first=$(head -1 <<<"$lost")
expect 74 "$loamfs" cat --degraded "${named[@]}" "/$first"
said "^loamfs: /$first: device 1: .*the device is missing"
expect 74 "$loamfs" get --degraded "${named[@]}" / "$work/got"
diff -r "$work/got/small" "$work/copy" || fail "get has other small files"
for number in $(seq 10); do
    case $'\n'$lost$'\n' in
    *$'\n'"large/$number"$'\n'*) said "got/large/$number: device 1: " ;;
    *) (cd "$work/got" && grep " large/$number$" "$work/large" | sha256sum --quiet -c) || fail "large/$number is another" ;;
    esac
done
expect 8 "$loamfs" check "${named[@]}"
said "is missing; attach or name it"
expect 16 "$loamfs" check --degraded --repair "${named[@]}"
for how in "" --quick; do
    expect 0 "$loamfs" check --degraded $how "${named[@]}"
    said "117 DeviceMissing: device 1, of .*, is missing"
    said "clean, but for what is on devices that are missing"
    told=$(sed -n 's,.*413 MissingData: .* (/\(.*\))$,\1,p' "$work/out" | sort)
    [ "$told" = "$lost" ] || fail "check tells of $told instead of $lost"
done
expect 0 "$loamfs" check --degraded --json "${named[@]}"
said '"missing_devices": 1'
[ "$(sums)" = "$before" ] || fail "a device was changed"
ok "without a mount, what is there is read, and what is not is told by its path; check passes over it"

got=0
"$loamfs" salvage "${named[@]}" "$work/brought" >"$work/out" 2>&1 || got=$?
[ $got != 0 ] || fail "salvage does not say that something is lost"
diff -r "$work/brought/small" "$work/copy" || fail "salvage has other small files"
ok "salvage brings out what there is"

expect 64 "$loamfs" device remove --missing --json "${named[@]}"
said '"removed": false'
expect 64 "$loamfs" device remove --missing "${named[@]}"
said "would be lost"
[ "$(grep -o '^/large/[0-9]*' "$work/out" | sed 's,^/,,' | sort)" = "$lost" ] || fail "it tells of other files than $lost"
[ "$(sums)" = "$before" ] || fail "a device was changed"
ok "what would be lost is told, and nothing is changed"

# It is killed, and goes on.
for pause in 0.05 0.15; do
    timeout -s KILL "$pause" "$loamfs" device remove --missing --force "${named[@]}" >"$work/out" 2>&1 || true
done
if "$loamfs" device list "${named[@]}" | grep -q missing; then
    expect 0 "$loamfs" device remove --missing --force "${named[@]}"
    said "which is missing; the volume had"
fi
expect 64 "$loamfs" device remove --missing --force "${named[@]}"
said "no device of this volume is missing"
expect 0 "$loamfs" check "${named[@]}"
image=$ssd
mount_it "device=$two"
small_is_there || fail "small files were lost"
for file in $(unreadable large); do
    grep -q "^$file$" <<<"$lost" || fail "$file was lost too"
    [ "$(dd if="$mnt/$file" bs=1 skip=20480 count=4 status=none)" = here ] || fail "what stood in the log was lost"
    cat "$mnt/$file" >/dev/null
done
head -c 20000000 /dev/urandom >"$mnt/new"
"$loamfs" unmount "$mnt"
expect 0 "$loamfs" check "${named[@]}"
ok "the volume is whole without the device, and holds all else"

expect 32 "$loamfs" mount -o "device=$two,device=$work/gone" "$ssd" "$mnt"
said "is no device of this volume any more"
expect 0 "$loamfs" device add "${named[@]}" --force "$work/gone"
mount_it "device=$two,device=$work/gone"
small_is_there || fail "small files were lost"
"$loamfs" unmount "$mnt"
ok "the device that returns is refused, and may join anew"

# ---- the log stands twice ----------------------------------------------------------------------------------------------

rm -f "$ssd" "$two" "$work/gone"
truncate -s 64M "$ssd"
truncate -s 256M "$two"
expect 64 "$loamfs" mkfs --copy each "$two"
said "is for a volume of one fast device and others"
expect 0 "$loamfs" mkfs "$two" --fast "$ssd" --copy each
image=$two
mount_it "device=$ssd"
mkdir "$mnt/small"
for number in $(seq 100); do
    echo "what $number says" >"$mnt/small/$number"
done
head -c 20000000 /dev/urandom >"$mnt/large"
sync -f "$mnt"
sum=$(cat "$mnt"/small/* "$mnt/large" | sha256sum)
"$loamfs" device list "$mnt" >"$work/out"
said "what device 0 holds stands on device 1 too"
power_cut
mv "$ssd" "$work/gone"
expect 0 "$loamfs" ls --degraded "$two"
before=$(sha256sum "$two")
expect 32 "$loamfs" mount "$two" "$mnt"
said "read what is on the others"
"$loamfs" mount -o degraded "$two" "$mnt" >"$work/out"
[ "$(cat "$mnt"/small/* "$mnt/large" | sha256sum)" = "$sum" ] || fail "the copy lacks something"
"$loamfs" unmount "$mnt"
[ "$(sha256sum "$two")" = "$before" ] || fail "the device was changed"
truncate -s 16M "$work/little"
expect 64 "$loamfs" device replace --missing "$two" "$work/little"
said "it must hold what the missing device held"
truncate -s 80M "$ssd"
expect 0 "$loamfs" device replace --missing "$two" "$ssd"
said "leads the volume now"
expect 8 "$loamfs" check --device "$work/gone" "$two"
mount_it "device=$ssd"
[ "$(cat "$mnt"/small/* "$mnt/large" | sha256sum)" = "$sum" ] || fail "the new device lacks something"
echo later >"$mnt/small/later"
"$loamfs" unmount "$mnt"
expect 0 "$loamfs" check --device "$ssd" "$two"
ok "who has lost the fast device reads its copy, and a new one gets all that"

# ---- a copy comes and goes ---------------------------------------------------------------------------------------------

three=$work/three.img
rm -f "$ssd" "$two" "$work/gone"
truncate -s 64M "$ssd"
truncate -s 256M "$two"
truncate -s 384M "$three"
named=(--device "$ssd" --device "$three" "$two")
is_copied() { "$loamfs" device list "$@" | grep -q "what device 0 holds stands on device 2 too"; }
expect 0 "$loamfs" mkfs "$two" --fast "$ssd"
mount_it "device=$ssd"
for number in $(seq 100); do
    echo "what $number says" >"$mnt/$number"
done
expect 74 "$loamfs" device copy "$mnt" each
said "no device has room for a copy"
expect 64 "$loamfs" device copy "$mnt" twice
said "\`each\`, \`behind\` or \`none\`"
expect 64 "$loamfs" device replace --copy "$mnt" "$two" "$three"
said "goes with \`add\` alone"
(while [ ! -e "$work/enough" ]; do date +%N >"$mnt/last" && sync "$mnt/last"; done) &
writer=$!
expect 0 "$loamfs" device add --copy "$mnt" "$three"
said "added"
is_copied "$mnt" || fail "there is no copy"
for _ in 1 2 3; do
    expect 0 "$loamfs" device copy "$mnt" none
    said "stands once now"
    ! is_copied "$mnt" || fail "there is a copy"
    # Who asks for it goes, and so does what was copied.
    timeout -s KILL 0.02 "$loamfs" device copy "$mnt" each >"$work/out" 2>&1 || true
    expect 0 "$loamfs" device copy --json "$mnt" each
    said '"copy": "each"'
done
expect 74 "$loamfs" device remove "$mnt" "$three"
said "give that up first"
expect 64 "$loamfs" device replace "$mnt" "$three" "$work/little"
said "give that up first"
touch "$work/enough"
wait "$writer"
sum=$(cat "$mnt"/* | sha256sum)
power_cut
mv "$ssd" "$work/gone"
"$loamfs" mount -o "degraded,device=$three" "$two" "$mnt" >"$work/out"
[ "$(cat "$mnt"/* | sha256sum)" = "$sum" ] || fail "the copy lacks something"
"$loamfs" unmount "$mnt"
mv "$work/gone" "$ssd"
expect 0 "$loamfs" device copy "${named[@]}" none
expect 0 "$loamfs" check "${named[@]}"
mv "$ssd" "$work/gone"
expect 65 "$loamfs" ls --degraded --device "$three" "$two"
said "is missing"
mv "$work/gone" "$ssd"
expect 0 "$loamfs" device copy "${named[@]}" each
is_copied "${named[@]}" || fail "there is no copy"
expect 0 "$loamfs" check "${named[@]}"
expect 0 "$loamfs" device copy "${named[@]}" none
expect 0 "$loamfs" device remove "${named[@]}" "$three"
mount_it "device=$ssd"
[ "$(cat "$mnt"/* | sha256sum)" = "$sum" ] || fail "something was lost"
"$loamfs" unmount "$mnt"
ok "a copy comes and goes while programs write, and losing the fast device loses nothing of it"

# ---- a copy that is behind ---------------------------------------------------------------------------------------------

rm -f "$ssd" "$two" "$three" "$work/gone"
truncate -s 64M "$ssd"
truncate -s 256M "$two"
expect 0 "$loamfs" mkfs "$two" --fast "$ssd" --copy behind
mount_it "device=$ssd"
head -c 3000 /dev/urandom >"$mnt/early"
# Less than a sixteenth of the volume, for which a renewal would not wait for its time once it is removed.
head -c 10000000 /dev/urandom >"$mnt/large"
"$loamfs" unmount "$mnt"
mount_it "device=$ssd"
sum=$(cat "$mnt/early" "$mnt/large" | sha256sum)
echo late >"$mnt/late"
rm "$mnt/large"
sync -f "$mnt"
"$loamfs" device list "$mnt" >"$work/out"
said "device 1 has what the fast one held"
# The clock has come by.
sleep 1.2
power_cut
expect 0 "$loamfs" check --device "$ssd" "$two"
mv "$ssd" "$work/gone"
expect 32 "$loamfs" mount "$two" "$mnt"
"$loamfs" mount -o degraded "$two" "$mnt" >"$work/out"
[ ! -e "$mnt/late" ] || fail "it was not renewed so soon"
[ "$(cat "$mnt/early" "$mnt/large" | sha256sum)" = "$sum" ] || fail "the copy lacks something"
"$loamfs" unmount "$mnt"
expect 0 "$loamfs" check --degraded "$two"
truncate -s 80M "$three"
expect 64 "$loamfs" device replace --missing "$two" "$three"
said "is behind"
mv "$work/gone" "$ssd"
mount_it "device=$ssd"
[ "$(cat "$mnt/late")" = late ] || fail "the fast device has what was synced"
expect 74 "$loamfs" device copy "$mnt" each
said "give that up first"
expect 0 "$loamfs" device copy "$mnt" none
expect 0 "$loamfs" device copy --json "$mnt" behind
said '"copy": "behind"'
"$loamfs" unmount "$mnt"
mv "$ssd" "$work/gone"
"$loamfs" mount -o degraded "$two" "$mnt" >"$work/out"
[ "$(cat "$mnt/late")" = late ] || fail "a copy that is made anew has all"
"$loamfs" unmount "$mnt"
ok "a copy that is behind has a whole state, and a sync waits for the fast device alone"
