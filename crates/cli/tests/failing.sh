#!/bin/bash
# A volume that can no longer be written says so where one looks, and a program is told. Where only room was wanting below its
# image, it goes on by itself. Needs root.
#
#   failing.sh LOAMFS
set -euo pipefail

# The file system below is this run's alone.
[ -n "${LOAMFS_PRIVATE-}" ] || exec env LOAMFS_PRIVATE=1 unshare -m bash "$0" "$@"

loamfs=$(realpath "$1")
. "$(dirname "$0")/common.sh"
full=$work/full
device=

last_words() {
    [ -z "$device" ] || losetup -d "$device"
    tally failing "$1"
}

mkdir "$mnt" "$full"
truncate -s 110M "$work/host.img"
mkfs.ext4 -q -F -m 0 "$work/host.img"
mount -o loop "$work/host.img" "$full"
image=$full/volume.img

# An image on a host with room for 24 MiB, and what can make way.
prepare() {
    local number
    rm -f "$image" "$full"/ballast* "$work/said" "$work/synced"
    "$loamfs" mkfs -q --size 256M "$image"
    for number in 1 2 3; do fallocate -l 12M "$full/ballast$number"; done
    sync -f "$full"
    fallocate -l $(($(df --output=avail "$full" | tail -1) - 24 * 1024))K "$full/ballast0"
}

# Makes room on the host.
make_room() { rm "$full/ballast$1"; }

cat >"$work/told" <<'END'
#!/bin/sh
echo "$LOAMFS_MOUNTPOINT: $LOAMFS_REASON" >"$(dirname "$0")/said"
END
chmod +x "$work/told"

failure() { "$loamfs" info --json "$mnt" 2>/dev/null | python3 -c "import json, sys; print((json.load(sys.stdin)['failure'] or {}).get('$1'))" 2>/dev/null; }

has_failed() { [ "$(failure why)" != None ]; }

goes_on() { ! has_failed; }

is_read_only() { grep " $mnt " /proc/self/mountinfo | grep -q ' ro,'; }

is_writable() { ! is_read_only; }

# Fills the host. What was synced is listed, with its checksum.
fill() {
    python3 - "$mnt/$1" >"$work/names" <<'END'
import os, sys
for number in range(1, 3001):
    name = f"{sys.argv[1]}{number}"
    try:
        with open(name, "wb", buffering=0) as file:
            file.write(os.urandom(15000))
            if number % 20 == 0:
                os.fsync(file)
                print(name)
    except OSError:
        sys.exit()
sys.exit("a full host takes everything")
END
    xargs cksum <"$work/names" >>"$work/synced"
}

# Kills the daemon; the next one waits for room.
kill_daemon() {
    local before
    before=$(waited)
    kill -9 "$(daemon)"
    until_it eval "[ \$(waited) -gt $before ]"
}

waited() { grep -c "another one follows when there is room" "$work/daemon.log" || true; }

all_synced() { cut -d' ' -f3 "$work/synced" | xargs cksum 2>&1 | cmp -s - "$work/synced"; }

for kind in plain fuseblk; do
    prepare
    options="on-error=$work/told,$([ $kind = plain ] && echo plain || echo rw)"
    mount_it "$options"
    if has_failed; then fail "something failed: $(failure why)"; fi
    echo kept >"$mnt/kept"
    sync "$mnt/kept"
    exec 5>"$mnt/open" 6<"$mnt/kept"
    before=$(date +%s)
    fill $kind
    until_it test -s "$work/said"
    grep -q "^$mnt: the log cannot be written: .*No space left" "$work/said" || fail "the program is told $(cat "$work/said")"
    until_it has_failed
    "$loamfs" info "$mnt" | tr -s '\n ' ' ' >"$work/out"
    grep -q 'failed since .* UTC: the log cannot be written: .* goes on by itself' "$work/out" || fail "info says $(cat "$work/out")"
    since=$(failure since)
    [ "$since" -ge "$before" ] && [ "$since" -le "$(date +%s)" ] || fail "since $since"
    ! is_read_only || fail "read-only with a file open for writing"
    exec 5>&-
    until_it is_read_only
    [ "$(cat "$mnt/kept")" = kept ] || fail "what was synced is not read"
    ok "$kind: info says since when and why, a program is told, and the mount table shows it once no file is open for writing"

    expect 0 "$loamfs" trim "$mnt"
    expect 32 "$loamfs" mount -o remount,rw "$image" "$mnt"
    pid=$(daemon)
    # A successor could not open it: this daemon stays, and the files are there.
    for command in upgrade "shrink --size 200M" "grow --size 300M"; do
        expect 74 timeout 60 "$loamfs" $command "$mnt"
        grep -q "takes no changes: .*; make room where the image is" "$work/out" || fail "$command says $(cat "$work/out")"
    done
    [ "$(daemon)" = "$pid" ] || fail "another daemon follows"
    make_room 1
    until_it goes_on
    until_it is_writable
    [ "$(daemon)" != "$pid" ] || fail "the same daemon goes on"
    [ "$(cat <&6)" = kept ] || fail "an open file does not go on"
    exec 6<&-
    echo more >"$mnt/more"
    # What was lost is told once.
    ! sync "$mnt" 2>/dev/null || fail "what was lost is not told"
    sync "$mnt/more" "$mnt"
    all_synced || fail "what was synced is lost"
    "$loamfs" info "$mnt" | grep -q '^replaced  1 daemon died' || fail "info does not say that a daemon was replaced"
    ok "$kind: trim works while the host is full, and with room the volume goes on by itself"

    # A daemon that dies while there is no room waits for it, and so does who uses the mount.
    fill again
    until_it has_failed
    kill_daemon
    expect 75 timeout 60 "$loamfs" info "$mnt"
    grep -q "has died, and the next one does not serve yet: mostly it waits for room" "$work/out" ||
        fail "info says $(cat "$work/out")"
    grep -q " $mnt " /proc/self/mountinfo || fail "the mount is gone"
    make_room 2
    until_it goes_on
    until_it is_writable
    all_synced || fail "what was synced is lost"
    ok "$kind: a daemon that dies while the host is full is replaced when there is room; until then info says so"

    fill last
    until_it has_failed
    expect 32 "$loamfs" unmount "$mnt"
    grep -q "the log cannot be written: .*; changes of up to [1-9].* are lost" "$work/out" || fail "unmount says $(cat "$work/out")"
    head -c 50M /dev/zero >"$full/rest" 2>/dev/null || true
    head -c 20M /dev/urandom >"$work/large"
    expect 74 "$loamfs" put "$image" "$work/large" /large
    grep -q "the file system that it is on is full; make room there, or mount it read-only" "$work/out" ||
        fail "put says $(cat "$work/out")"
    mount_it ro
    all_synced || fail "what was synced is lost"
    expect 0 "$loamfs" unmount "$mnt"
    ok "$kind: an unmount says what is lost with a full host, and -o ro shows what was synced"

    rm "$full/rest"
    make_room 3
    mount_it plain
    all_synced || fail "what was synced is lost"
    expect 0 "$loamfs" unmount "$mnt"
    expect 0 "$loamfs" check "$image"
    ok "$kind: with room again, the next mount goes on"
done

# The kernel waits for a daemon to close the volume, and whoever unmounts with it, so that nobody can end that either.
mount_it
fill unmounted
until_it has_failed
kill_daemon
expect 32 timeout 60 "$loamfs" unmount "$mnt"
grep -q "had died; the next mount recovers the volume; changes of up to .* are lost" "$work/out" || fail "unmount says $(cat "$work/out")"
make_room 0
until_it mount_it
all_synced || fail "what was synced is lost"
expect 0 "$loamfs" unmount "$mnt"
expect 0 "$loamfs" check "$image"
ok "a mount whose daemon died can be unmounted before there is room for the next one"

expect 1 "$loamfs" mount -o on-error=relative "$image" "$mnt"
grep -q "on-error=/PROGRAM" "$work/out" || fail "no advice: $(cat "$work/out")"
ok "a program without a path is refused"

# ---- loop devices that would not tell ------------------------------------------------------------------------------

# Their driver takes a write that was cut short for a whole one: so it is on tmpfs, and without direct I/O.
mkdir "$work/memory"
mount -t tmpfs -o size=40M tmpfs "$work/memory"
on_disk=$image image=$work/memory/volume.img
rm -f "$work/synced"
"$loamfs" mkfs -q --size 256M "$image"
mount_it
tr '\n' ' ' <"$work/out" | grep -q "plain FUSE mount (a loop device would lose what was synced" || fail "it says $(cat "$work/out")"
fill memory
until_it has_failed
expect 32 "$loamfs" unmount "$mnt"
mount_it ro
all_synced || fail "what was synced is lost"
expect 0 "$loamfs" unmount "$mnt"
ok "an image in memory is mounted without a loop device, and keeps what was synced when memory is full"

image=$on_disk
device=$(losetup --show -f "$image")
"$loamfs" mount "$device" "$mnt" >"$work/out" 2>&1
grep -q "below $device get full, what was synced is lost" "$work/out" || fail "it says $(cat "$work/out")"
expect 0 "$loamfs" unmount "$mnt"
losetup -d "$device"
device=$(losetup --direct-io=on --show -f "$image")
"$loamfs" mount "$device" "$mnt" >"$work/out" 2>&1
! grep -q "get full" "$work/out" || fail "it says $(cat "$work/out")"
expect 0 "$loamfs" unmount "$mnt"
losetup -d "$device"
device=
ok "a loop device that would not say that its image is full is warned of"

# ---- what can only be read -----------------------------------------------------------------------------------------

refused() {
    expect 1 "$loamfs" mount "$2" "$mnt"
    [ "$(wc -l <"$work/out")" = 1 ] && grep -q "can only be read: $1; mount it read-only (\`-o ro\`)" "$work/out" ||
        fail "it says $(cat "$work/out")"
    for command in "mkfs --force" "grow --size 300M"; do
        expect 77 "$loamfs" $command "$2"
        grep -q "can only be read: $1; make it writable, or change a copy of it" "$work/out" ||
            fail "$command says $(cat "$work/out")"
    done
    expect 0 "$loamfs" mount -o ro "$2" "$mnt"
    expect 0 "$loamfs" unmount "$mnt"
}

mount -o remount,ro "$full"
refused "the file system that it is on is read-only" "$image"
device=$(losetup --show -r -f "$image")
refused "the device is read-only" "$device"
losetup -d "$device"
device=
mount -o remount,rw "$full"
chattr +i "$image"
refused "it is immutable or append-only (chattr(1))" "$image"
chattr -i "$image"
ok "what can only be read says why, and names -o ro"
