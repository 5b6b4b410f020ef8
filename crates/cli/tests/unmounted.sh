#!/bin/bash
# What `unmount` says when a daemon dies meanwhile, or had died: whether something was lost, and what. Needs root.
#
#   unmounted.sh LOAMFS
set -euo pipefail

# The file system below is this run's alone.
[ -n "${LOAMFS_PRIVATE-}" ] || exec env LOAMFS_PRIVATE=1 unshare -m bash "$0" "$@"

loamfs=$(realpath "$1")
. "$(dirname "$0")/common.sh"
host=$work/host

mkdir "$mnt" "$host"
truncate -s 200M "$work/host.img"
mkfs.ext4 -q -F "$work/host.img"
mount -o loop "$work/host.img" "$host"
image=$host/volume.img
"$loamfs" mkfs -q --size 128M "$image"

# Whatever happens, the file system below can be unmounted.
last_words() {
    fsfreeze -u "$host" 2>/dev/null || true
    tally unmounted "$1"
}

# What was said, on one line.
said() { tr '\n' ' ' <"$work/said"; }

# Has a daemon die while it writes out what was not synced, as its volume is closed.
die_closing() {
    local pid code=0
    pid=$(daemon)
    # No write ends, and so no unmount either.
    fsfreeze -f "$host"
    "$loamfs" unmount --json "$mnt" >"$work/json" 2>"$work/said" &
    sleep 1
    kill -9 "$pid"
    fsfreeze -u "$host"
    wait $! || code=$?
    [ $code = "$1" ] || fail "exit code $code instead of $1: $(said)"
    grep -q "the daemon of $mnt died while it closed the volume" "$work/said" || fail "it says $(said)"
    ! grep -q " $mnt " /proc/self/mountinfo || fail "it is still mounted"
}

for kind in fuseblk plain; do
    mount_it "commit=60,$([ $kind = plain ] && echo plain || echo rw)"
    echo kept >"$mnt/kept"
    sync "$mnt/kept" "$mnt"
    head -c 3000000 /dev/urandom >"$mnt/lost"
    die_closing 32
    case $kind in
    fuseblk) grep -q "another one closed it; changes of up to [1-9][0-9]* files" "$work/said" || fail "it says $(said)" ;;
    plain) grep -q "the next mount recovers it; changes of up to [1-9][0-9]* files" "$work/said" || fail "it says $(said)" ;;
    esac
    grep -q "were not synced are lost" "$work/said" || fail "it does not say what is lost: $(said)"
    python3 - "$work/json" <<'END' || fail "wrong JSON"
import json, sys
told = json.load(open(sys.argv[1]))
assert told["daemon_died"] and told["lost"]["files"] >= 1 and told["lost"]["bytes"] > 0, told
END
    mount_it
    [ "$(cat "$mnt/kept")" = kept ] || fail "what was synced is lost"
    expect 0 "$loamfs" unmount "$mnt"
    expect 0 "$loamfs" check "$image"
    ok "$kind: a daemon that dies while it closes the volume is told of, with what is lost: $(said)"
done

# ---- daemons that make way -----------------------------------------------------------------------------------------

for pause in 0 0.02 0.05 0.1 0.2 0.4; do
    mount_it
    head -c 20000000 /dev/urandom >"$mnt/more"
    "$loamfs" upgrade "$mnt" >"$work/out" 2>&1 &
    sleep $pause
    "$loamfs" unmount --json "$mnt" >"$work/json" 2>"$work/said" || fail "it is not unmounted: $(said)"
    wait $! || true
    ! grep -q died "$work/said" || fail "it says $(said)"
    grep -q '"daemon_died": false' "$work/json" || fail "wrong JSON"
    expect 0 "$loamfs" check "$image"
done
ok "a daemon that makes way for another one has not died"

# ---- mounts that are dead already ----------------------------------------------------------------------------------

is_dead() { ! stat "$mnt/kept" >/dev/null 2>"$work/out" && grep -q 'not connected' "$work/out"; }

mount_it restart=no
echo more >"$mnt/more"
kill -9 "$(daemon)"
until_it is_dead
expect 32 "$loamfs" unmount "$mnt"
grep -q "had died; the next mount recovers the volume; changes of up to [1-9].* are lost" "$work/out" ||
    fail "it says $(cat "$work/out")"
mount_it restart=no
sync "$mnt/kept" "$mnt"
kill -9 "$(daemon)"
until_it is_dead
expect 0 "$loamfs" unmount "$mnt"
grep -q "had died; the next mount recovers the volume$" "$work/out" || fail "it says $(cat "$work/out")"
mount_it
expect 0 "$loamfs" unmount "$mnt"
[ ! -s "$work/out" ] || fail "it is said again: $(cat "$work/out")"
expect 0 "$loamfs" check "$image"
ok "an unmount of a dead mount is no success if something was lost, and else it is"

# ---- what a daemon has to say while its mount ends -----------------------------------------------------------------

# The kernel is to forget what was stored through a mapping and is refused, which the supervisor sees to, as it does to the end.
mount_it
daemon=$(daemon)
python3 - "$mnt/protected" "$work/stored" <<'END' &
import mmap, signal, subprocess, sys
file = open(sys.argv[1], "w+b")
file.truncate(4096)
stored = mmap.mmap(file.fileno(), 4096)
subprocess.run(["chattr", "+i", sys.argv[1]], check=True)
stored[:6] = b"stored"
open(sys.argv[2], "w")
signal.pause()
END
user=$!
until_it test -e "$work/stored"
kill "$daemon"
has_ended() { ! grep -qs . "/proc/$daemon/cmdline"; }
until_it has_ended
kill "$user"
wait "$user" || true
expect 0 "$loamfs" check "$image"
ok "a daemon in use that is told to end does, with something to say to who ends its mount"
