#!/bin/bash
# A volume in real use: unpack a real tree, compare, mount again, kill the daemon, delete.
# Needs root for fuseblk and loop devices.
#
#   mount.sh LOAMFS TREE      the program, and a directory of at least 20,000 files
set -euo pipefail

loamfs=$(realpath "$1")
tree=$(realpath "$2")
. "$(dirname "$0")/common.sh"

mount_it() {
    "$loamfs" mount -o "log=$work/daemon.log" "$@" "$image" "$mnt"
}

unmount_it() {
    "$loamfs" unmount "$mnt"
}

check_clean() {
    expect 0 "$loamfs" check "$image"
}

used() {
    df --output=used -B1 "$mnt" | tail -1
}

mkdir "$mnt"

# Bad calls change nothing.
expect 66 "$loamfs" mkfs "$image"
expect 64 "$loamfs" mkfs --size 64K "$image"
[ ! -e "$image" ] || fail "a refused mkfs left a file behind"
expect 64 "$loamfs" mkfs --size 1G --block-size 3K "$image"
truncate -s 64M "$work/ext4.img"
mkfs.ext4 -q -F "$work/ext4.img"
sum=$(sha256sum <"$work/ext4.img")
expect 73 "$loamfs" mkfs "$work/ext4.img"
[ "$sum" = "$(sha256sum <"$work/ext4.img")" ] || fail "a refused mkfs wrote"
expect 65 "$loamfs" ls "$work/ext4.img"
expect 32 "$loamfs" mount "$work/ext4.img" "$mnt"
expect 1 "$loamfs" mount -o frobnicate "$work/ext4.img" "$mnt"
expect 0 "$loamfs" mkfs --force "$work/ext4.img"
[ -z "$(blkid -p -o value -s TYPE "$work/ext4.img" 2>/dev/null | grep ext4)" ] || fail "a signature was left"
ok "bad calls are refused and change nothing"

"$loamfs" mkfs --size 4G --label smoke "$image"
mount_it
mountpoint -q "$mnt" || fail "not mounted when mount returned"
empty=$(used)
expect 32 "$loamfs" mount "$image" "$mnt"
expect 75 "$loamfs" mkfs --force "$image"
expect 8 "$loamfs" check "$image"
ok "mounted, and in nobody else's reach"

tar -C "$tree" -cf - . | tar -C "$mnt" -xf -
diff -r --no-dereference "$tree" "$mnt"
ok "$(find "$mnt" -type f | wc -l) files unpacked and equal"

"$loamfs" info --json "$mnt" >"$work/info.json"
grep -q '"durable_segment"' "$work/info.json" || fail "no report"
"$loamfs" settle "$mnt" >"$work/out" || fail "settle failed"
"$loamfs" drop-caches "$mnt" || fail "drop-caches failed"
diff -r --no-dereference "$tree" "$mnt"
ok "equal when settled, and read again from the device"
"$loamfs" umount "$image"
check_clean
mount_it
diff -r --no-dereference "$tree" "$mnt"
ok "equal after a remount, check clean"

# An unlinked file lives while it is open.
echo alive >"$mnt/open"
exec 7<"$mnt/open"
rm "$mnt/open"
[ "$(cat <&7)" = alive ] || fail "an unlinked open file lost its data"
exec 7<&-
# Names over the limit, exclusive creation, links, attributes, sparse files.
long=$(printf 'n%.0s' $(seq 256))
touch "$mnt/${long:1}"
! touch "$mnt/$long" 2>/dev/null || fail "a name of 256 bytes was taken"
rm "$mnt/${long:1}"
truncate -s 1T "$mnt/sparse"
[ "$(stat -c %s "$mnt/sparse")" = $((1 << 40)) ] || fail "sparse file"
mkfifo "$mnt/fifo"
mknod "$mnt/null" c 1 3
echo gone >"$mnt/null"
ln -s target "$mnt/link"
ln "$mnt/fifo" "$mnt/fifo2"
[ "$(stat -c %h "$mnt/fifo")" = 2 ] || fail "link count"
mv "$mnt/link" "$mnt/moved"
[ "$(readlink "$mnt/moved")" = target ] || fail "link target"
rm "$mnt/sparse" "$mnt/fifo" "$mnt/fifo2" "$mnt/null" "$mnt/moved"
# A file without a name that gets one, and a whiteout (mv cannot leave one, so through the system calls).
python3 - "$mnt" <<'END'
import ctypes, os, stat, sys
os.chdir(sys.argv[1])
libc = ctypes.CDLL(None, use_errno=True)
at, follow, whiteout = -100, 0x400, 4
fd = os.open(".", os.O_TMPFILE | os.O_RDWR, 0o600)
os.write(fd, b"unnamed")
assert os.fstat(fd).st_nlink == 0
assert libc.linkat(at, b"/proc/self/fd/%d" % fd, at, b"named", follow) == 0
assert open("named").read() == "unnamed"
assert libc.renameat2(at, b"named", at, b"moved", whiteout) == 0
left = os.stat("named")
assert stat.S_ISCHR(left.st_mode) and left.st_rdev == 0
os.unlink("named"), os.unlink("moved")
END
ok "open files, long names, sparse and special files, files without a name, whiteouts"

# Ranges: what the kernel has cached must follow.
python3 - "$mnt" <<'END'
import ctypes, errno, mmap, os, sys
os.chdir(sys.argv[1])
libc = ctypes.CDLL(None, use_errno=True)
keep, punch, zero, block = 1, 2, 16, 4096

def fallocate(fd, mode, offset, length):
    if libc.fallocate(fd, mode, ctypes.c_long(offset), ctypes.c_long(length)) != 0:
        raise OSError(ctypes.get_errno(), "fallocate")

fd = os.open("ranges", os.O_CREAT | os.O_RDWR)
os.write(fd, b"x" * 20 * block)
os.fsync(fd)
mapped = mmap.mmap(fd, 20 * block)
full = os.fstat(fd).st_blocks
fallocate(fd, punch | keep, block + 5, 10 * block)
assert os.pread(fd, 3, block + 4) == b"x\0\0" and mapped[5 * block] == 0
os.fsync(fd)
assert os.fstat(fd).st_blocks == full - 9 * block // 512
assert os.lseek(fd, 0, os.SEEK_HOLE) == 2 * block
assert os.lseek(fd, 2 * block, os.SEEK_DATA) == 11 * block
fallocate(fd, 0, 0, 30 * block)
assert os.fstat(fd).st_size == 30 * block
assert os.fstat(fd).st_blocks == 30 * block // 512
assert os.lseek(fd, 0, os.SEEK_HOLE) == 2 * block
assert os.lseek(fd, 20 * block, os.SEEK_HOLE) == 20 * block
fallocate(fd, zero, 15 * block, 10)
assert os.pread(fd, 12, 15 * block - 1) == b"x" + 10 * b"\0" + b"x"
fallocate(fd, keep, 0, 100 * block)
assert os.fstat(fd).st_size == 30 * block
try:
    fallocate(fd, 0, 0, 1 << 40)
    raise SystemExit("more space was given than there is")
except OSError as error:
    assert error.errno == errno.ENOSPC
assert os.fstat(fd).st_size == 30 * block
copy = os.open("copy", os.O_CREAT | os.O_RDWR)
assert os.copy_file_range(fd, copy, 40 * block, 0) == 30 * block
assert os.pread(copy, 40 * block, 0) == os.pread(fd, 40 * block, 0)
os.unlink("ranges"), os.unlink("copy")
END
ok "ranges are freed, zeroed, filled, searched and copied"

# Handles, as NFS servers have them, from before a remount.
handles() {
    python3 - "$mnt" "$work/handles" "$1" <<'END'
import ctypes, errno, json, os, struct, sys
top, store, when = sys.argv[1:]
os.chdir(top)
libc = ctypes.CDLL(None, use_errno=True)
at = -100

def handle_of(path):
    handle = ctypes.create_string_buffer(struct.pack("Ii", 128, 0), 136)
    mount = ctypes.c_int()
    assert libc.name_to_handle_at(at, path.encode(), handle, ctypes.byref(mount), 0) == 0, path
    return handle.raw.hex()

def opened(handle):
    top = os.open(".", os.O_RDONLY)
    fd = libc.open_by_handle_at(top, bytes.fromhex(handle), os.O_RDONLY)
    os.close(top)
    if fd < 0:
        raise OSError(ctypes.get_errno(), "open_by_handle_at")
    return fd

def stale(path):
    try:
        opened(handles[path][0])
    except OSError as error:
        assert error.errno == errno.ESTALE, error
        return
    raise SystemExit(f"{path} is there again")

if when == "before":
    os.makedirs("handles/deep/below")
    for path in ("handles/deep/file", "handles/gone", "handles/late"):
        with open(path, "w") as file:
            file.write(path)
    os.symlink("file", "handles/link")
    paths = ["handles", "handles/deep/below", "handles/deep/file", "handles/link", "handles/gone", "handles/late"]
    with open(store, "w") as out:
        json.dump({path: (handle_of(path), os.lstat(path).st_ino) for path in paths}, out)
    os.unlink("handles/gone")
    sys.exit()
with open(store) as file:
    handles = json.load(file)
fd = opened(handles["handles/deep/file"][0])
assert os.read(fd, 100) == b"handles/deep/file"
assert os.fstat(fd).st_ino == handles["handles/deep/file"][1]
fd = opened(handles["handles/deep/below"][0])
assert os.stat("..", dir_fd=fd).st_ino == os.stat("handles/deep").st_ino
assert os.readlink(f"/proc/self/fd/{fd}").endswith("handles/deep/below")
assert "link" in os.listdir(opened(handles["handles"][0]))
os.unlink("handles/late")
# What has no name and no holder is gone, also while its end is still on its way through the daemon.
for number in range(300):
    path = f"handles/short{number}"
    with open(path, "w"):
        pass
    handle = handle_of(path)
    os.unlink(path)
    handles[path] = handle, 0
    stale(path)
# Numbers are given out again; a handle is of one inode only.
for number in range(2000):
    with open(f"handles/{number}", "w"):
        pass
for path in ("handles/gone", "handles/late"):
    stale(path)
END
}
handles before
unmount_it
mount_it
handles after
rm -r "$mnt/handles"
ok "handles lead to the same inodes behind a remount, and to no other"

# The daemon dies while a tree is unpacked.
mkdir "$mnt/second"
dd if=/dev/urandom of="$mnt/second/marker" bs=64K count=40 conv=fsync status=none
marker=$(sha256sum <"$mnt/second/marker")
tar -C "$tree" -cf - . 2>/dev/null | tar -C "$mnt/second" -xf - 2>/dev/null &
unpacking=$!
sleep 1.5
power_cut
wait $unpacking && fail "the daemon was killed too late" || true
mount_it
[ "$(sha256sum <"$mnt/second/marker")" = "$marker" ] || fail "fsynced data was lost"
for path in "$tree"/*; do
    diff -r --no-dereference "$path" "$mnt/$(basename "$path")"
done
unmount_it
check_clean
ok "kill -9: mounts again, what was synced is there, check clean"

# SIGTERM while files are open.
mount_it
echo kept >"$mnt/kept"
(cd "$mnt/second" && exec sleep 60) &
sleeper=$!
until [ "$(readlink "/proc/$sleeper/cwd")" = "$mnt/second" ]; do
    kill -0 "$sleeper" || fail "nobody can stand in the mount"
    sleep 0.1
done
pid=$(daemon)
kill -TERM "$pid"
for _ in $(seq 100); do
    kill -0 "$pid" 2>/dev/null || break
    sleep 0.1
done
! kill -0 "$pid" 2>/dev/null || fail "the daemon survived SIGTERM"
kill "$sleeper"
wait "$sleeper" 2>/dev/null || true
check_clean
[ "$("$loamfs" cat "$image" /kept)" = kept ] || fail "SIGTERM lost data"
ok "SIGTERM with a user inside: everything is on the device"

# Plain mounts, as rootless ones are.
mount_it -o plain
rm -rf "$mnt/second/."* 2>/dev/null || true
echo plain >"$mnt/plain"
unmount_it
[ "$("$loamfs" cat "$image" /plain)" = plain ] || fail "a plain mount lost data"
mount_it -o ro
! touch "$mnt/no" 2>/dev/null || fail "a read-only mount took a write"
umount "$mnt"
ok "plain and read-only mounts"

# Without mounting.
mkdir "$work/in" "$work/out.d"
cp -a "$tree"/. "$work/in" 2>/dev/null
first=$(find "$work/in" -mindepth 1 -maxdepth 1 -type d | head -1)
"$loamfs" put "$image" "$first" /put
"$loamfs" get "$image" /put "$work/out.d" 2>/dev/null
diff -r --no-dereference "$first" "$work/out.d/put"
check_clean
ok "put and get of a tree"

# Everything goes, and the space comes back.
mount_it
find "$mnt" -mindepth 1 -maxdepth 1 -exec rm -rf {} +
sync
unmount_it
check_clean
# What the last checkpoint replaced, nodes of maps above all, goes with the next.
mount_it
unmount_it
mount_it
left=$(($(used) - empty))
# Maps keep the nodes that once described the space; all files, names and data are gone.
[ "$left" -le $((4 << 20)) ] || fail "rm -rf left $left bytes in use"
unmount_it
ok "rm -rf gives the space back ($left bytes less than when empty)"
