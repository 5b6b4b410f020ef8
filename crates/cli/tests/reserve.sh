#!/bin/bash
# Space that fallocate reserved, on a real mount: the volume is filled up, then every part of the space is written, in any
# order, with kills between; nothing of it fails, and nothing that was promised is lost.
# Needs root for fuseblk and loop devices.
#
#   reserve.sh LOAMFS
set -euo pipefail

loamfs=$(realpath "$1")
. "$(dirname "$0")/common.sh"

# Bytes that a file has on the volume.
taken() {
    echo $((512 * $(stat -c %b "$1")))
}

# Writes numbered units of a file that was reserved, each of numbers that tell which it is: those from $2 to $3 of a shuffled
# order, all of them synced at the end.
write_units() {
    python3 - "$@" <<'PY'
import os
import random
import sys

path, first, end = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
fd = os.open(path, os.O_RDWR)
units = list(range(os.fstat(fd).st_size // 4096))
random.Random(5).shuffle(units)
for number in units[first:end]:
    os.pwrite(fd, (b"unit %08d " % number) * 292, number * 4096)
    if number % 64 == 0:
        os.fsync(fd)
os.fsync(fd)
PY
}

# The first $2 units of that order are what was written, and the others zeros.
units_are_there() {
    python3 - "$@" <<'PY'
import os
import random
import sys

path, written = sys.argv[1], int(sys.argv[2])
fd = os.open(path, os.O_RDONLY)
units = list(range(os.fstat(fd).st_size // 4096))
random.Random(5).shuffle(units)
for at, number in enumerate(units):
    text = (b"unit %08d " % number) * 292
    expected = text.ljust(4096, b"\0") if at < written else bytes(4096)
    found = os.pread(fd, 4096, number * 4096)
    if found != expected:
        sys.exit("unit %d, number %d in the order, begins with %r" % (number, at, found[:20]))
PY
}

fill_up() {
    dd if=/dev/zero of="$mnt/filler" bs=1M 2>/dev/null || true
    mkdir "$mnt/small"
    python3 - "$mnt/small" <<'PY' || true
import itertools
import sys

for number in itertools.count():
    try:
        with open("%s/%d" % (sys.argv[1], number), "wb") as small:
            small.write(bytes(500))
    except OSError:
        break
PY
    sync -f "$mnt" || true
}

mkdir "$mnt"
"$loamfs" mkfs --size 128M "$image" >"$work/out"
mount_it

# The device has something everywhere that must never be seen.
yes "what others wrote" | head -c 80M >"$mnt/others" || true
sync -f "$mnt"
rm "$mnt/others"
sync -f "$mnt"
sleep 1
sync -f "$mnt"

fallocate -l 24M "$mnt/reserved"
[ "$(taken "$mnt/reserved")" -ge $((24 << 20)) ] || fail "nothing was reserved"
cmp -n $((24 << 20)) "$mnt/reserved" /dev/zero || fail "reserved space is not zero"
ok "reserved space reads as zeros"

touch "$mnt/behind"
fallocate --keep-size -l 1M "$mnt/behind"
[ "$(stat -c %s "$mnt/behind")" -eq 0 ] || fail "the file grew"
[ "$(taken "$mnt/behind")" -ge $((1 << 20)) ] || fail "nothing was reserved behind the end"
ok "space is reserved behind a file's end"

fill_up
if fallocate -l 24M "$mnt/more" 2>/dev/null; then fail "a full volume reserved more"; fi
rm -f "$mnt/more"
all=$((24 * 256))
done=0
for part in 1 2 3 4; do
    next=$((all * part / 4))
    write_units "$mnt/reserved" "$done" "$next" || fail "a first write failed"
    done=$next
    crash
    units_are_there "$mnt/reserved" "$done" || fail "what was synced is lost, or what was not written is not zero"
done
ok "on a full volume all of it is written, with kills between"

head -c 1M /dev/urandom >"$work/data"
cat "$work/data" >>"$mnt/behind" || fail "what was reserved behind the end cannot be written"
sync "$mnt/behind"
crash
cmp "$work/data" "$mnt/behind" || fail "what was written behind the end is lost"
"$loamfs" unmount "$mnt"
expect 0 "$loamfs" check "$image"
ok "the volume is whole"

mount_it
# Of a full volume less than nothing is available, so that what comes back does not show there first.
free() { stat -f -c '%f * %S' "$mnt"; }
before=$(($(free)))
rm "$mnt/reserved" "$mnt/behind"
for _ in 1 2 3; do sync -f "$mnt"; done
comes_back() { [ $(($(free))) -ge $((before + (22 << 20))) ]; }
until_it comes_back
"$loamfs" unmount "$mnt"
expect 0 "$loamfs" check "$image"
ok "what was reserved comes back"

# ---- what fails ------------------------------------------------------------------------------------------------------

"$loamfs" mkfs --force --size 64M "$image" >"$work/out"
mount_it
# With so many holes that the first ones have space before the last one finds none.
python3 - "$mnt/file" <<'PY'
import sys

with open(sys.argv[1], "wb") as file:
    for number in range(600):
        file.seek(number << 15)
        file.write(b"data" * 2048)
PY
sync -f "$mnt"

attributes() { stat -c '%s %y %z' "$mnt/file"; }

# Whether the kernel's cache has what the volume has, which direct reads are answered with.
is_cached_right() {
    cmp -s "$mnt/file" <(dd if="$mnt/file" bs=1M iflag=direct status=none)
}

for how in "" --zero-range; do
    cat "$mnt/file" >"$work/read"
    attributes >"$work/out"
    # shellcheck disable=SC2086
    if fallocate $how -l 1G "$mnt/file" 2>"$work/out"; then fail "64 MiB hold a GiB"; fi
    shown=$(attributes)
    until_it is_cached_right
    "$loamfs" drop-caches "$mnt" >"$work/out"
    [ "$shown" = "$(attributes)" ] || fail "fallocate $how failed: $(attributes), and shown is $shown"
done
"$loamfs" unmount "$mnt"
expect 0 "$loamfs" check "$image"
ok "when it fails, what it has changed is seen"
