#!/bin/bash
# What other users mount, lock and put in the way keeps root from nothing. Needs root.
#
#   others.sh LOAMFS
set -euo pipefail

# What is mounted, below /run and /dev too, is this run's alone.
[ -n "${LOAMFS_PRIVATE-}" ] || exec env LOAMFS_PRIVATE=1 unshare -m bash "$0" "$@"

loamfs=$(realpath "$1")
. "$(dirname "$0")/common.sh"
others=()

last_words() {
    let_go
    tally others "$1"
}

let_go() {
    [ ${#others[@]} -eq 0 ] && return
    kill "${others[@]}" 2>/dev/null || true
    wait "${others[@]}" 2>/dev/null || true
    others=()
}

# A FUSE mount as fusermount3 makes it for a user: said to stand on whatever they like, and never answering.
silent_mount() {
    mkdir -p "$2"
    python3 - "$@" <<'END' &
import ctypes, os, sys, time
source, path = sys.argv[1:]
fuse = os.open("/dev/fuse", os.O_RDWR)
options = f"fd={fuse},rootmode=40000,user_id=65534,group_id=65534,allow_other"
mount = ctypes.CDLL(None, use_errno=True).mount
nosuid_nodev = 6
if mount(source.encode(), path.encode(), b"fuse.loamfs", nosuid_nodev, options.encode()):
    sys.exit(os.strerror(ctypes.get_errno()))
time.sleep(600)
END
    others+=($!)
    is_there() { grep -q " $1 " /proc/self/mountinfo; }
    until_it is_there "$2"
}

# Locks the image as somebody who is not root.
lock_as_other() {
    setpriv --reuid=nobody --regid=nogroup --clear-groups flock -F "$1" "$image" sleep 600 &
    others+=($!)
    is_locked() { ! flock -n -x "$image" true; }
    until_it is_locked
}

mkdir "$mnt" "$work/other" "$work/dev"
chmod 711 "$work"
(umask 022 && "$loamfs" mkfs -q --size 64M "$image")
[ "$(stat -c %a "$image")" = 600 ] || fail "mode $(stat -c %a "$image") of a new image"
ok "a new image is for its owner alone"

# ---- mounts -------------------------------------------------------------------------------------------------------------

silent_mount "$work/nothing" "$work/silent"
silent_mount "$work/silent/image" "$work/beside"
silent_mount "$image" "$work/forged"
expect 0 timeout 60 "$loamfs" mkfs -q --force "$image"
expect 0 timeout 60 "$loamfs" mount -o "log=$work/daemon.log" "$image" "$mnt"
expect 0 timeout 60 "$loamfs" info "$image"
# Another view of it.
expect 0 timeout 60 "$loamfs" mount "$image" "$work/other"
grep -q "is mounted on $mnt already" "$work/out" || fail "not told: $(cat "$work/out")"
expect 0 timeout 60 "$loamfs" unmount "$work/other"
expect 0 timeout 60 "$loamfs" unmount "$mnt"
expect 77 timeout 60 "$loamfs" label "$work/forged"
# A plain mount is found by the image too, under any name.
ln -s "$work" "$work/link"
expect 0 timeout 60 "$loamfs" mount -o "plain,log=$work/daemon.log" "$work/link/volume.img" "$mnt"
expect 75 timeout 60 "$loamfs" mkfs --force "$image"
grep -q "is mounted on $mnt;" "$work/out" || fail "not told: $(cat "$work/out")"
expect 0 timeout 60 "$loamfs" unmount "$mnt"
let_go
umount -l "$work/forged" "$work/beside" "$work/silent"
ok "mounts of others are neither asked nor believed"

name=$work/$'\e[31m'
mkdir "$name"
"$loamfs" mount -o "log=$work/daemon.log" "$image" "$name" >"$work/out"
! grep -q $'\e' "$work/out" || fail "mount moves the cursor"
expect 75 "$loamfs" mkfs "$image"
grep -qF '\x1b[31m' "$work/out" || fail "not told: $(cat -v "$work/out")"
! grep -q $'\e' "$work/out" || fail "mkfs moves the cursor"
"$loamfs" unmount "$name"
ok "names of mounts are escaped"

# ---- locks --------------------------------------------------------------------------------------------------------------

export LOAMFS_PATIENCE=2
chmod 644 "$image"
for how in -s -x; do
    lock_as_other $how
    expect 0 "$loamfs" mount -o "log=$work/daemon.log" "$image" "$mnt"
    echo "$how" >"$mnt/file"
    # Who is root keeps out who is root.
    expect 75 "$loamfs" put "$image" "$0" /
    let_go
    expect 75 "$loamfs" put "$image" "$0" /
    expect 75 "$loamfs" mkfs --force "$image"
    "$loamfs" unmount "$mnt"
    [ "$("$loamfs" cat "$image" /file)" = "$how" ] || fail "lost a file"
done
lock_as_other -s
expect 0 "$loamfs" put "$image" "$0" /there
expect 0 "$loamfs" mount -o "plain,log=$work/daemon.log" "$image" "$mnt"
expect 32 "$loamfs" mount "$image" "$work/other"
"$loamfs" unmount "$mnt"
expect 0 "$loamfs" mkfs -q --force "$image"
let_go
lock_as_other -x
expect 0 "$loamfs" ls "$image"
# Nothing that the kernel knows of would keep others out.
expect 75 "$loamfs" put "$image" "$0" /
let_go
device=$(losetup --show -f "$image")
mount -t tmpfs tmpfs "$work/dev"
cp -a "$device" "$work/dev/disk"
chmod 644 "$work/dev/disk"
chmod 711 "$work/dev"
setpriv --reuid=nobody --regid=nogroup --clear-groups flock -F -s "$work/dev/disk" sleep 600 &
others+=($!)
is_locked_device() { ! flock -n -x "$work/dev/disk" true; }
until_it is_locked_device
expect 0 "$loamfs" mount -o "log=$work/daemon.log" "$work/dev/disk" "$mnt"
"$loamfs" unmount "$mnt"
let_go
umount "$work/dev"
losetup -d "$device"
ok "locks of those who can only read keep root from nothing, and root's mounts keep root out"

exec 7<"$image"
flock -s 7
# A reader of root's.
expect 32 "$loamfs" mount "$image" "$mnt" 7<&-
exec 7<&-
chmod 666 "$image"
setpriv --reuid=nobody --regid=nogroup --clear-groups bash -c 'exec 7<>"$0" && flock -s 7 && exec sleep 600' "$image" &
others+=($!)
until_it is_locked
expect 32 "$loamfs" mount "$image" "$mnt"
expect 75 "$loamfs" put "$image" "$0" /
let_go
expect 0 "$loamfs" check "$image"
unset LOAMFS_PATIENCE
ok "those who can write are waited for, and root's readers"

# ---- logs and sockets ---------------------------------------------------------------------------------------------------

mkdir -p /run/loamfs
mount -t tmpfs tmpfs /run/loamfs
chown nobody /run/loamfs
for name in supervisor $(seq -f "0-%g" 200); do ln -s "$work/victim" "/run/loamfs/$name.log"; done
mount -t tmpfs tmpfs "$work/dev"
mknod -m 666 "$work/dev/null" c 1 3
mknod -m 666 "$work/dev/fuse" c 10 229
mount --move "$work/dev" /dev
"$loamfs" mount --json -o plain "$image" "$mnt" >"$work/mounted.json" 2>"$work/out"
grep -q "/run/loamfs is not a directory that only its user can write to" "$work/out" || fail "not told: $(cat "$work/out")"
power_cut "$(sed -n 's/.*"daemon": \([0-9]*\).*/\1/p' "$work/mounted.json")"
[ ! -e "$work/victim" ] || fail "a log was written where a planted link leads: $(cat "$work/victim")"
! ls /run/loamfs | grep -q sock || fail "a socket in a directory of somebody else's"
umount -l /dev /run/loamfs
ok "neither logs nor sockets are in a directory of somebody else's"
