#!/bin/bash
# What is read often of large files on a slow device stands in free room of the fast one too, on a real mount: it is read there, behind a
# remount too, it is right behind a crash, it makes room, and `hot=off` keeps none.
# Needs root.
#
#   hot.sh LOAMFS
set -euo pipefail

loamfs=$(realpath "$1")
. "$(dirname "$0")/common.sh"

ssd=$work/ssd.img
disk=$work/disk.img
image=$disk
mkdir "$mnt"

# A figure of hot data.
told() { "$loamfs" info --json "$mnt" | python3 -c 'import json, sys; print(json.load(sys.stdin)["hot"][sys.argv[1]])' "$1"; }

# Reads 300 units of a file, none beside another, past the kernel's cache; they are what was written.
pieces() {
    python3 - "$mnt/hot" "$work/hot" <<'PYTHON'
import mmap, os, sys
file, copy = os.open(sys.argv[1], os.O_RDONLY | os.O_DIRECT), open(sys.argv[2], "rb")
room = mmap.mmap(-1, 4096)
for i in range(300):
    at = i * 77 % 300 * 160 * 1024
    os.preadv(file, [room], at)
    copy.seek(at)
    if room[:] != copy.read(4096):
        sys.exit(f"wrong content at {at}")
PYTHON
}

# Drives them out of the daemon's memory, and lets its clock pass.
forget() {
    dd if="$mnt/other" of=/dev/null bs=1M iflag=direct status=none
    sleep 1.3
}

# Reads them until they stand on the fast device: the daemon's memory may keep them for a while.
warm() {
    for _ in $(seq 12); do
        pieces
        forget
        [ "$(told held_bytes)" -lt $((270 * 4096)) ] || return 0
    done
    fail "$(told held_bytes) bytes are hot"
}

# Bytes that reading all of them takes from the slow device.
missed() {
    before=$(told missed_bytes)
    pieces
    echo $(($(told missed_bytes) - before))
}

truncate -s 96M "$ssd"
truncate -s 320M "$disk"
"$loamfs" mkfs -q "$disk" --fast "$ssd"
mount_it "device=$ssd,cache=16M"
head -c 48M /dev/urandom >"$work/hot"
cp "$work/hot" "$mnt/hot"
head -c 40M /dev/urandom >"$mnt/other"
sync -f "$mnt"
forget
cold=$(missed)
[ "$cold" = $((300 * 4096)) ] || fail "$cold bytes were read of 300 units"
warm
expect 0 "$loamfs" info "$mnt"
grep -q "^hot data  .* read there" "$work/out" || fail "info does not tell of hot data"
ok "what is read often stands on the fast device"

"$loamfs" unmount "$mnt"
expect 0 "$loamfs" check --device "$ssd" "$disk"
mount_it "device=$ssd,cache=16M"
sleep 1.3
hot=$(missed)
[ "$hot" -lt $((30 * 4096)) ] || fail "behind a remount $hot bytes come from the slow device"
[ "$(told hit_bytes)" -gt $((270 * 4096)) ] || fail "only $(told hit_bytes) bytes were read on the fast device"
ok "it is read there behind a remount"

kill -9 "$(daemon)" 2>/dev/null || true
until_it pieces
forget
warm
ok "it is right behind a crash, and kept again"

for number in $(seq 4000); do head -c 12000 /dev/zero >"$mnt/small$number"; done
sync -f "$mnt"
sleep 1.3
pieces
groups=$("$loamfs" info --json "$mnt" | python3 -c 'import json, sys; print(json.load(sys.stdin)["groups"]["spilled_log"])')
[ "$groups" = 0 ] || fail "$groups groups of the log went to the slow device"
rm "$mnt"/small*
"$loamfs" unmount "$mnt"
expect 0 "$loamfs" check --device "$ssd" "$disk"
ok "it gives room to small files"

mount_it "device=$ssd,cache=16M,hot=off"
for _ in 1 2 3; do
    pieces
    forget
done
[ "$(told written_bytes) $(told room_bytes)" = "0 0" ] || fail "hot=off keeps hot data"
expect 1 "$loamfs" mount -o "device=$ssd,hot=never" "$disk" "$mnt"
"$loamfs" unmount "$mnt"
ok "hot=off keeps none"
