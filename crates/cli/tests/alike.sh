#!/bin/bash
# What administrators know of the kernel's own file systems, on a real mount: a second mount, norecovery, access times of
# cached reads, FITRIM's refusals beside ext4's, who sees trusted attributes.
# Needs root for fuseblk and loop devices.
#
#   alike.sh LOAMFS
set -euo pipefail

loamfs=$(realpath "$1")
. "$(dirname "$0")/common.sh"
other=$work/other

loops() {
    losetup --associated "$image" | wc -l
}

mkdir "$mnt" "$other"
"$loamfs" mkfs --size 64M "$image" >"$work/out"

# ---- mounted twice -------------------------------------------------------------------------------------------

mount_it rw
echo first >"$mnt/file"
"$loamfs" mount -o "log=$work/daemon.log" "$image" "$other" >"$work/out" 2>&1
grep -q "shows the same" "$work/out" || fail "no word of it: $(cat "$work/out")"
[ "$(cat "$other/file")" = first ] || fail "the second mount shows something else"
echo second >"$other/file"
[ "$(cat "$mnt/file")" = second ] || fail "the first mount shows something else"
[ "$(loops)" = 1 ] || fail "$(loops) loop devices"
expect 32 "$loamfs" mount "$image" "$other"
grep -q "is mounted on $other already" "$work/out" || fail "not said: $(cat "$work/out")"
"$loamfs" unmount "$mnt"
[ "$(cat "$other/file")" = second ] || fail "the second mount went with the first"
"$loamfs" mount -o "ro,nosuid,cache=64M,dirsync" "$(findmnt -n -o SOURCE "$other")" "$mnt" >"$work/out" 2>&1
grep -q "those of the mount on $other count: cache, dirsync" "$work/out" || fail "not named: $(cat "$work/out")"
if touch "$mnt/file" 2>/dev/null; then fail "written to through a mount that is ro"; fi
findmnt -n -o OPTIONS "$mnt" | grep -q nosuid || fail "nosuid is lost"
touch "$other/file"
daemon=$(daemon "$other")
kill "$daemon"
until_it eval '! mountpoint -q "$mnt" && ! mountpoint -q "$other" && [ ! -e "/proc/$daemon" ]'
expect 0 "$loamfs" check "$image"
mount_it ro
expect 32 "$loamfs" mount "$image" "$other"
grep -q "read-only on $mnt" "$work/out" || fail "not said: $(cat "$work/out")"
"$loamfs" unmount "$mnt"
ok "a volume is mounted twice, and each mount has flags of its own"

# ---- norecovery ----------------------------------------------------------------------------------------------

mount_it commit=600
echo synced >"$mnt/synced"
sync -f "$mnt"
power_cut
until_it eval '[ "$(loops)" = 0 ]'
sum=$(sha256sum <"$image")
expect 1 "$loamfs" mount -o norecovery "$image" "$mnt"
grep -q 'needs `ro`' "$work/out" || fail "not said: $(cat "$work/out")"
mount_it ro,norecovery
[ "$(cat "$mnt/synced")" = synced ] || fail "what was synced is not shown"
"$loamfs" unmount "$mnt"
[ "$sum" = "$(sha256sum <"$image")" ] || fail "norecovery wrote"
ok "norecovery goes with ro, and nothing is written"

# ---- strictatime ---------------------------------------------------------------------------------------------

mount_it strictatime
head -c 300000 /dev/urandom >"$mnt/data"
mkdir "$mnt/dir"
touch "$mnt/dir/name"
ln -s target "$mnt/link"
cp /bin/true "$mnt/program"
for way in "cat $mnt/data" "ls $mnt/dir" "readlink $mnt/link"; do
    $way >"$work/out"
    before=$(stat -c %.9X "${way#* }")
    sleep 0.02
    $way >"$work/out"
    [ "$before" != "$(stat -c %.9X "${way#* }")" ] || fail "unseen: $way"
done
"$mnt/program" || fail "a program does not run"
python3 - "$mnt/data" <<'END'
import mmap, os, sys
path = sys.argv[1]
file = os.open(path, os.O_RDWR)
view = mmap.mmap(file, 8192)
view[0:3] = b"abc"
assert os.pread(file, 3, 0) == b"abc", "a read misses what was stored"
os.pwrite(file, b"xyz", 4096)
assert view[4096:4099] == b"xyz", "a mapping misses what was written"
end = os.open(path, os.O_WRONLY | os.O_APPEND)
os.write(end, b"end")
assert os.pread(file, 10, 300000) == b"end"
os.close(os.open(path, os.O_WRONLY | os.O_TRUNC))
assert os.fstat(file).st_size == 0
END
"$loamfs" unmount "$mnt"
mount_it strictatime,sync,commit=600
echo kept >"$mnt/kept"
crash rw
[ "$(cat "$mnt/kept")" = kept ] || fail "with strictatime, sync keeps no write"
ok "with strictatime each read counts, and files are as ever"

# ---- FITRIM --------------------------------------------------------------------------------------------------

truncate -s 64M "$work/ext4.img"
mkfs.ext4 -q -b 1024 "$work/ext4.img"
mount -o loop "$work/ext4.img" "$other"
cat >"$work/trim.py" <<'END'
import errno, fcntl, os, struct, sys
END, MOST = 64 << 20, (1 << 64) - 1
RANGES = [
    (0, MOST, 0), (END - 1024, MOST, 0), (0, 1024, 0), (5, 4096, 0),
    (END, MOST, 0), (END + 4096, 4096, 0), (MOST, MOST, 0), (MOST, 4096, 0),
    (0, 0, 0), (0, 1, 0), (0, 1023, 0), (0, MOST, MOST), (0, MOST, END),
]
directory = os.open(sys.argv[1], os.O_RDONLY)
for asked in RANGES:
    try:
        fcntl.ioctl(directory, 0xC0185879, bytearray(struct.pack("=QQQ", *asked)))
        print(asked, "done")
    except OSError as error:
        print(asked, errno.errorcode[error.errno])
END
python3 "$work/trim.py" "$other" >"$work/ext4"
python3 "$work/trim.py" "$mnt" >"$work/loamfs"
grep -q EINVAL "$work/ext4" || fail "ext4 refuses nothing"
diff "$work/ext4" "$work/loamfs" || fail "FITRIM differs from ext4's"
for directory in "$other" "$mnt"; do
    setpriv --bounding-set=-sys_admin python3 "$work/trim.py" "$directory"
done >"$work/out"
if grep -qv EPERM "$work/out"; then fail "root without the right to it trims: $(cat "$work/out")"; fi
ok "FITRIM refuses what ext4 refuses"

# ---- trusted attributes --------------------------------------------------------------------------------------

cat >"$work/list.py" <<'END'
import os, sys
print(*sorted(os.listxattr(sys.argv[1])))
END
for directory in "$mnt" "$other"; do
    touch "$directory/marked"
    python3 -c "import os, sys
for name in 'trusted.a', 'user.b', 'trusted.c': os.setxattr(sys.argv[1], name, b'x')" "$directory/marked"
done
chmod 755 "$work"
python=$(python3 -c 'import sys; print(sys.executable)')
for who in "" "--bounding-set=-sys_admin" "--reuid=65534 --regid=65534 --clear-groups"; do
    for directory in "$other" "$mnt"; do
        # shellcheck disable=SC2086
        setpriv $who "$python" "$work/list.py" "$directory/marked"
    done >"$work/out" || fail "cannot list as '$who'"
    [ "$(uniq "$work/out" | wc -l)" = 1 ] || fail "with '$who' ext4 and LoamFS list: $(cat "$work/out")"
done
grep -qx user.b "$work/out" || fail "others see trusted attributes: $(cat "$work/out")"
umount "$other"
"$loamfs" unmount "$mnt"
expect 0 "$loamfs" check "$image"
ok "trusted attributes are listed to root alone"
