#!/bin/bash
# The mount options sync and dirsync on a real mount: what had returned is there after kill -9.
# Needs root for fuseblk and loop devices.
#
#   promise.sh LOAMFS
set -euo pipefail

loamfs=$(realpath "$1")
. "$(dirname "$0")/common.sh"

there() {
    [ -e "$mnt/$1" ] || fail "$1 is gone"
}

gone() {
    [ ! -e "$mnt/$1" ] || fail "$1 is back"
}

# Changes names in every way that there is, in a directory of its own, over what was synced before.
change_names() {
    mkdir "$mnt/$1"
    touch "$mnt/$1/from" "$mnt/$1/over" "$mnt/$1/removed" "$mnt/$1/left" "$mnt/$1/right"
    mkdir "$mnt/$1/empty" "$mnt/$1/other"
    echo left >"$mnt/$1/left"
    sync -f "$mnt"
    touch "$mnt/$1/created"
    mkdir "$mnt/$1/made"
    ln -s target "$mnt/$1/symlink"
    mknod "$mnt/$1/pipe" p
    ln "$mnt/$1/from" "$mnt/$1/linked"
    rm "$mnt/$1/removed"
    rmdir "$mnt/$1/empty"
    mv "$mnt/$1/from" "$mnt/$1/other/to"
    mv "$mnt/$1/created" "$mnt/$1/over"
    mv --exchange "$mnt/$1/left" "$mnt/$1/right" 2>/dev/null || mv "$mnt/$1/left" "$mnt/$1/right"
}

names_are_changed() {
    for name in made symlink pipe linked other/to over; do
        [ -L "$mnt/$1/$name" ] || there "$1/$name"
    done
    for name in created removed empty from; do
        gone "$1/$name"
    done
    [ "$(cat "$mnt/$1/right")" = left ] || fail "the last rename is lost"
}

mkdir "$mnt"
"$loamfs" mkfs --size 256M "$image" >"$work/out"
for option in dirsync sync; do
    mount_it "commit=600,$option"
    change_names "$option"
    crash "commit=600,$option"
    names_are_changed "$option"
    "$loamfs" unmount "$mnt"
    expect 0 "$loamfs" check "$image"
done
ok "with dirsync and sync, names that were changed are changed after kill -9"

mount_it "commit=600,sync"
echo old >"$mnt/file"
echo longer >"$mnt/cut"
head -c 1000000 /dev/zero >"$mnt/large"
sync -f "$mnt"
echo new >"$mnt/file"
truncate -s 2 "$mnt/cut"
head -c 200000 /dev/urandom >"$work/data"
cat "$work/data" >"$mnt/large"
chmod 600 "$mnt/file"
chown 12:34 "$mnt/file"
touch -d 2001-02-03 "$mnt/cut"
python3 -c "import os, sys; os.setxattr(sys.argv[1], 'user.name', b'value')" "$mnt/file"
fallocate -l 100000 "$mnt/allocated"
crash "commit=600,sync"
[ "$(cat "$mnt/file")" = new ] || fail "a write is lost"
[ "$(cat "$mnt/cut")" = lo ] || fail "a truncate is lost"
cmp "$work/data" "$mnt/large"
[ "$(stat -c '%a %u:%g' "$mnt/file")" = "600 12:34" ] || fail "attributes are lost"
[ "$(date -r "$mnt/cut" +%Y-%m-%d)" = 2001-02-03 ] || fail "times are lost"
[ "$(python3 -c "import os, sys; print(os.getxattr(sys.argv[1], 'user.name').decode())" "$mnt/file")" = value ] || fail "an extended attribute is lost"
[ "$(stat -c %s "$mnt/allocated")" = 100000 ] || fail "an allocation is lost"
ok "with sync, every change is there after kill -9"

"$loamfs" mount -o remount,rw "$image" "$mnt"
mkdir "$mnt/unsynced"
"$loamfs" mount -o remount,dirsync "$image" "$mnt"
mkdir "$mnt/synced"
"$loamfs" mount -o remount,sync "$image" "$mnt"
echo content >"$mnt/content"
crash "commit=600,rw"
there synced
[ "$(cat "$mnt/content")" = content ] || fail "a remount to sync does nothing"
"$loamfs" unmount "$mnt"
ok "a remount changes what is promised"

# 32 at a time: they share segments.
mount_it "commit=600,dirsync"
segment() {
    "$loamfs" info --json "$mnt" | sed -n 's/.*"last_segment": \([0-9]*\).*/\1/p' | head -1
}
before=$(segment)
python3 - "$mnt" <<'END'
import os, sys, threading
def make(thread):
    os.mkdir(f"{sys.argv[1]}/t{thread}")
    for number in range(20):
        os.mkdir(f"{sys.argv[1]}/t{thread}/{number}")
threads = [threading.Thread(target=make, args=[number]) for number in range(32)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
END
[ $(($(segment) - before)) -lt $((32 * 21)) ] || fail "a segment for each change"
crash "commit=600,rw"
[ "$(find "$mnt"/t* -type d | wc -l)" = $((32 * 21)) ] || fail "directories are gone"
"$loamfs" unmount "$mnt"
expect 0 "$loamfs" check "$image"
ok "what many change at once is there too"
