#!/bin/bash
# A volume that can no longer be written says so where one looks, and a program is told. Needs root.
#
#   failing.sh LOAMFS
set -euo pipefail

# The file system below is this run's alone.
[ -n "${LOAMFS_PRIVATE-}" ] || exec env LOAMFS_PRIVATE=1 unshare -m bash "$0" "$@"

loamfs=$(realpath "$1")
. "$(dirname "$0")/common.sh"
full=$work/full

mkdir "$mnt" "$full"
mount -t tmpfs -o size=24M tmpfs "$full"
image=$full/volume.img
"$loamfs" mkfs -q --size 256M "$image"
cat >"$work/told" <<'END'
#!/bin/sh
echo "$LOAMFS_MOUNTPOINT: $LOAMFS_REASON" >"$(dirname "$0")/said"
END
chmod +x "$work/told"

told() { "$loamfs" info --json "$mnt" | python3 -c "import json, sys; print(json.load(sys.stdin)['failure'])"; }

is_read_only() { grep " $mnt " /proc/self/mountinfo | grep -q ' ro,'; }

fill() {
    local number
    for number in $(seq 3000); do
        head -c 15000 /dev/urandom >"$mnt/$number" || return 0
        [ $((number % 50)) != 0 ] || sync "$mnt/$number" || return 0
    done 2>/dev/null
    fail "a full host takes everything"
}

mount_it "plain,on-error=$work/told"
[ "$(told)" = None ] || fail "something failed: $(told)"
echo kept >"$mnt/kept"
sync "$mnt/kept"
exec 5>"$mnt/open"
before=$(date +%s)
fill
until_it test -s "$work/said"
grep -q "^$mnt: the log cannot be written: " "$work/said" || fail "the program is told $(cat "$work/said")"
until_it sh -c "'$loamfs' info '$mnt' | grep -q '^failed    since .* UTC: the log cannot be written: '"
since=$("$loamfs" info --json "$mnt" | python3 -c "import json, sys; print(json.load(sys.stdin)['failure']['since'])")
[ "$since" -ge "$before" ] && [ "$since" -le "$(date +%s)" ] || fail "since $since"
! is_read_only || fail "read-only with a file open for writing"
exec 5>&-
until_it is_read_only
[ "$(cat "$mnt/kept")" = kept ] || fail "what was synced is not read"
ok "info says since when and why, a program is told, and the mount table shows it once no file is open for writing"

mount -o remount,size=100M "$full"
expect 32 "$loamfs" mount -o remount,rw "$image" "$mnt"
"$loamfs" unmount "$mnt" >/dev/null 2>&1 || true
mount_it plain
[ "$(cat "$mnt/kept")" = kept ] || fail "what was synced is lost"
echo more >"$mnt/more"
sync "$mnt/more"
expect 0 "$loamfs" unmount "$mnt"
expect 0 "$loamfs" check "$image"
ok "with room again, the next mount goes on"
expect 1 "$loamfs" mount -o on-error=relative "$image" "$mnt"
grep -q "on-error=/PROGRAM" "$work/out" || fail "no advice: $(cat "$work/out")"
ok "a program without a path is refused"
