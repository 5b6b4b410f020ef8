#!/bin/bash
# Access times on a real mount: which reads set them, by which option, and that they are kept.
# Needs root for fuseblk and loop devices.
#
#   atime.sh LOAMFS
set -euo pipefail

loamfs=$(realpath "$1")
. "$(dirname "$0")/common.sh"

mount_again() {
    "$loamfs" unmount "$mnt"
    mount_it "$1"
}

atime() {
    stat -c %.9X "$mnt/$1"
}

# Does something that reads $1, past all caches. Says whether that set its access time.
moves() {
    local before after
    "$loamfs" drop-caches "$mnt" >"$work/out"
    before=$(atime "$1")
    "${@:2}" >"$work/out" || fail "${*:2}"
    after=$(atime "$1")
    [ "$(printf '%s\n' "$before" "$after" | sort -V | tail -1)" = "$after" ] || fail "$1: $before, then $after"
    [ "$before" != "$after" ]
}

shown() {
    grep " $mnt " /proc/self/mountinfo | grep -q "[ ,]$1[ ,]" || fail "the mount table does not show $1"
}

read_file() {
    cat "$mnt/file"
}

read_without_trace() {
    python3 -c "import os, sys; os.read(os.open(sys.argv[1], os.O_RDONLY | os.O_NOATIME), 100)" "$mnt/file"
}

copy_file() {
    python3 -c "import os, sys
os.copy_file_range(os.open(sys.argv[1], os.O_RDONLY), os.open(sys.argv[2], os.O_WRONLY | os.O_CREAT), 100)" "$mnt/file" "$mnt/copy"
}

mkdir "$mnt"
"$loamfs" mkfs --size 256M "$image" >"$work/out"

mount_it rw
shown relatime
mkdir "$mnt/dir"
echo content >"$mnt/dir/below"
echo content >"$mnt/file"
ln -s file "$mnt/link"
moves file read_file || fail "relatime: a read after a write"
if moves file read_file; then fail "relatime: a read after a read"; fi
touch -a -d '2 days ago' "$mnt/file"
# The change of the inode is newer than either.
moves file read_file || fail "relatime: a day later"
echo more >>"$mnt/file"
moves file read_file || fail "relatime: a read after another write"
moves dir ls "$mnt/dir" || fail "relatime: a directory"
if moves dir ls "$mnt/dir"; then fail "relatime: a directory again"; fi
touch -a -d '2 days ago' "$mnt/file"
moves file copy_file || fail "relatime: the source of a copy"
if moves file copy_file; then fail "relatime: the source of a copy again"; fi
moves link readlink "$mnt/link" || fail "relatime: a link"
ok "relatime sets the times of what changed since"

kept=$(atime file) kept_dir=$(atime dir)
mount_again strictatime
shown rw
[ "$kept $kept_dir" = "$(atime file) $(atime dir)" ] || fail "not kept over an unmount"
for _ in 1 2; do
    moves file read_file || fail "strictatime"
    moves file copy_file || fail "strictatime: the source of a copy"
    moves dir ls "$mnt/dir" || fail "strictatime: a directory"
done
if moves file read_without_trace; then fail "O_NOATIME"; fi
chattr +A "$mnt/file"
if moves file read_file; then fail "chattr +A"; fi
chattr -A "$mnt/file"
moves file read_file || fail "chattr -A"
ok "strictatime sets them always, but for O_NOATIME and chattr +A"

read_file >"$work/out"
kept=$(atime file)
sync "$mnt"
sync -f "$mnt"
crash nodiratime,strictatime
[ "$kept" = "$(atime file)" ] || fail "not kept over a crash"
shown nodiratime
moves file read_file || fail "nodiratime: a file"
if moves dir ls "$mnt/dir"; then fail "nodiratime"; fi
"$loamfs" mount -o remount,noatime "$image" "$mnt"
shown noatime
if moves file read_file; then fail "remount,noatime"; fi
ok "they survive a daemon that is killed; nodiratime, remount"

kept=$(atime file)
mount_again noatime
shown noatime
if moves file read_file; then fail "noatime"; fi
touch -a -d '2020-02-02 02:02:02.020202 UTC' "$mnt/file"
[ "$(atime file)" = 1580608922.020202000 ] || fail "noatime: touch"
mount_again ro,strictatime
if moves file read_file; then fail "a read-only mount"; fi
[ "$(atime file)" = 1580608922.020202000 ] || fail "read-only"
"$loamfs" unmount "$mnt"
expect 0 "$loamfs" check "$image"
"$loamfs" dump "$image" atimes >"$work/out"
grep -q "inode " "$work/out" || fail "dump"
ok "noatime and ro set none; check finds nothing"
