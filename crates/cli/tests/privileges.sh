#!/bin/bash
# Set-user-id that somebody's write takes away, on a real mount, though somebody else looks at the file meanwhile.
# Needs root for fuseblk, loop devices and changing users.
#
#   privileges.sh LOAMFS
set -euo pipefail

loamfs=$(realpath "$1")
. "$(dirname "$0")/common.sh"

# Writes to a file as somebody else, and asks for its attributes while the kernel fetches the bytes that are written: behind
# what it says of set-user-id before a write, and before the write.
write_and_look() {
    python3 - "$1" <<'END'
import ctypes, fcntl, mmap, os, platform, struct, sys, threading

UFFDIO_API, UFFDIO_REGISTER, UFFDIO_ZEROPAGE = 0xC018AA3F, 0xC020AA00, 0xC020AA04
MISSING, USERFAULTFD = 1, {"x86_64": 323, "aarch64": 282}
path = sys.argv[1]
libc = ctypes.CDLL(None, use_errno=True)
faults = libc.syscall(USERFAULTFD.get(platform.machine(), -1), os.O_CLOEXEC)
if faults < 0:
    sys.exit(77)
page = mmap.PAGESIZE
memory = mmap.mmap(-1, page, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
fcntl.ioctl(faults, UFFDIO_API, bytearray(struct.pack("<QQQ", 0xAA, 0, 0)))
fcntl.ioctl(faults, UFFDIO_REGISTER, bytearray(struct.pack("<QQQQ", address, page, MISSING, 0)))


def look():
    os.read(faults, 32)
    try:
        os.stat(path)
    finally:
        fcntl.ioctl(faults, UFFDIO_ZEROPAGE, bytearray(struct.pack("<QQQq", address, page, 0, 0)))


file = os.open(path, os.O_WRONLY)
# Within the file, and where a program has nothing to run: while a file grows, the kernel keeps no attributes.
os.lseek(file, -4, os.SEEK_END)
threading.Thread(target=look, daemon=True).start()
os.setresuid(1001, 1001, 1001)
written = libc.write(file, ctypes.c_void_p(address), 4)
sys.exit(0 if written == 4 else os.strerror(ctypes.get_errno()))
END
}

# Whose the program runs as that 1001 starts.
runs_as() {
    setpriv --reuid 1001 --regid 1001 --clear-groups "$mnt/id" -u
}

chmod 755 "$work"
mkdir "$mnt"
"$loamfs" mkfs --size 64M "$image" >"$work/out"
# strictatime: writes pass by the kernel's cache.
for option in rw strictatime; do
    mount_it $option
    cp /usr/bin/id "$mnt/id"
    chown 1002:0 "$mnt/id"
    chmod 4777 "$mnt/id"
    [ "$(runs_as)" = 1002 ] || fail "set-user-id does not count"
    status=0
    write_and_look "$mnt/id" || status=$?
    [ $status -ne 77 ] || { echo "skipped: this kernel tells nobody of page faults"; exit 0; }
    [ $status -eq 0 ] || fail "the write: $status"
    [ "$(runs_as)" = 1001 ] || fail "what somebody else has written to runs as its owner"
    "$loamfs" unmount "$mnt"
    ok "$option: set-user-id is gone behind a write, though somebody looked before it"
done
