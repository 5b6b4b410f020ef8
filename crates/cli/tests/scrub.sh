#!/bin/bash
# A scrub of a volume in use, on real mounts: what rots below it is found, named, and right again where there is a copy; it
# stops, goes on behind another mount, and is in nobody's way. Needs root.
#
#   scrub.sh LOAMFS
set -euo pipefail

loamfs=$(realpath "$1")
. "$(dirname "$0")/common.sh"
mkdir "$mnt"

# A volume with small files and a large one, mounted.
fresh() {
    rm -f "$image"
    "$loamfs" mkfs --size 256M "$image" >"$work/out"
    mount_it "${1-}"
    mkdir "$mnt/dir"
    for number in $(seq 200); do
        head -c $((number * 37)) /dev/urandom >"$mnt/dir/small $number"
    done
    head -c 16M /dev/urandom >"$mnt/dir/large"
    sync -f "$mnt"
}

# What a field of the status is.
status() {
    local code=0
    "$loamfs" scrub status --json "$mnt" >"$work/status" || code=$?
    [ $code -le 4 ] || fail "no status"
    python3 -c "import json, sys; print(json.load(open(sys.argv[1]))[sys.argv[2]])" "$work/status" "$1"
}

# Where a file's first piece is, in bytes of the volume.
place_of() {
    "$loamfs" map --json "$1" | python3 -c "import json, sys; print(json.load(sys.stdin)[0]['at'])"
}

# Changes bits of a byte of the image.
rot() {
    python3 - "$image" "$1" <<'END'
import sys
with open(sys.argv[1], "r+b") as image:
    image.seek(int(sys.argv[2]))
    byte = image.read(1)[0]
    image.seek(int(sys.argv[2]))
    image.write(bytes([byte ^ 0x11]))
END
}

fresh
expect 0 "$loamfs" scrub status "$mnt"
grep -q "never scrubbed" "$work/out" || fail "a new volume was scrubbed: $(cat "$work/out")"
expect 0 "$loamfs" scrub start --wait "$mnt"
grep -q "^0 blocks damaged" "$work/out" || fail "$(cat "$work/out")"
[ "$(status verified_bytes)" -gt $((16 << 20)) ] || fail "only $(status verified_bytes) bytes were verified"
"$loamfs" info "$mnt" | grep -q "^scrub     ended" || fail "info does not know of it"
ok "a sound volume is found sound"

rot $(($(place_of "$mnt/dir/large") + 12345))
rot "$(place_of "$mnt/dir/small 100")"
"$loamfs" drop-caches "$mnt" >"$work/out"
expect 4 "$loamfs" scrub start --wait "$mnt"
grep -q "^2 blocks damaged, 0 of them" "$work/out" || fail "$(cat "$work/out")"
grep -q "^dir/large: " "$work/out" || fail "the large file is not named: $(cat "$work/out")"
grep -q "^dir/small 100: " "$work/out" || fail "the small file is not named: $(cat "$work/out")"
grep -q "scrub: dir/large: " "$work/daemon.log" || fail "the log does not name it"
"$loamfs" info "$mnt" | grep -q "^damaged   2 blocks" || fail "info does not say it"
cat "$mnt/dir/small 100" >/dev/null 2>&1 && fail "damage is read as if it were sound"
ok "damaged files are named"

"$loamfs" unmount "$mnt" >"$work/out"
fresh
expect 0 "$loamfs" scrub start --wait "$mnt"
rot $(((64 << 10) + 300))
expect 1 "$loamfs" scrub start --wait "$mnt"
grep -q "^1 block damaged, 1 of them" "$work/out" || fail "$(cat "$work/out")"
expect 0 "$loamfs" scrub start --wait "$mnt"
# What memory has is written anew.
cat "$mnt/dir/small 100" >"$work/before"
"$loamfs" drop-caches "$mnt" >"$work/out"
cat "$mnt/dir/small 100" >/dev/null
rot "$(place_of "$mnt/dir/small 100")"
expect 1 "$loamfs" scrub start --wait "$mnt"
"$loamfs" unmount "$mnt" >"$work/out"
expect 0 "$loamfs" check "$image"
mount_it
cmp "$mnt/dir/small 100" "$work/before" || fail "what was healed has other content"
ok "what stands a second time is right again"

expect 0 "$loamfs" scrub start --rate 2M "$mnt"
until_it eval '[ "$(status verified_bytes)" -gt 0 ]'
expect 0 "$loamfs" scrub stop "$mnt"
[ "$(status running) $(status under_way)" = "False True" ] || fail "it did not stop half way"
behind=$(status passed_bytes)
"$loamfs" unmount "$mnt" >"$work/out"
mount_it
[ "$(status passed_bytes)" = "$behind" ] || fail "it would go on at $(status passed_bytes) instead of $behind"
expect 0 "$loamfs" scrub start --wait "$mnt"
[ "$(status under_way)" = False ] || fail "it did not end"
[ "$(status verified_bytes)" -lt $((17 << 20)) ] || fail "it began anew"
ok "it stops, and goes on behind another mount"

# Whoever waits for it hears that it did not end.
"$loamfs" scrub start --anew --wait --rate 1M "$mnt" >"$work/waited" 2>&1 &
waits=$!
until_it eval '[ "$(status running)" = True ]'
expect 0 "$loamfs" scrub stop "$mnt"
code=0
wait $waits || code=$?
[ $code -eq 74 ] || fail "exit code $code of a scrub that was stopped: $(cat "$work/waited")"
grep -q "has not ended" "$work/waited" || fail "$(cat "$work/waited")"
expect 0 "$loamfs" scrub start --wait "$mnt"
ok "one that was stopped is none that ended well"

# Whoever works beside it works; what ends the mount ends it.
expect 0 "$loamfs" scrub start --anew --rate 4M "$mnt"
for number in $(seq 100); do
    head -c 20000 /dev/urandom >"$mnt/dir/other $number"
    rm "$mnt/dir/small $number"
done
[ "$(status running)" = True ] || fail "it ended too soon"
expect 0 "$loamfs" unmount "$mnt"
expect 0 "$loamfs" check "$image"
mount_it
expect 0 "$loamfs" scrub start --anew "$mnt"
crash
"$loamfs" unmount "$mnt" >"$work/out"
expect 0 "$loamfs" check "$image"
ok "a mount ends while it is under way, also by kill -9"

mount_it ro
expect 0 "$loamfs" scrub start --wait --anew "$mnt"
"$loamfs" unmount "$mnt" >"$work/out"
ok "a volume for reading only can be scrubbed"

expect 64 "$loamfs" scrub stop --rate 5M "$mnt"
expect 64 "$loamfs" scrub start --rate 0 "$mnt"
expect 64 "$loamfs" scrub begin "$mnt"
expect 66 "$loamfs" scrub status "$mnt"
ok "what makes no sense is refused"
