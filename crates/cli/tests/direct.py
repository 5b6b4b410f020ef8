"""Direct writes beside readers of the page cache: once a write has completed, every read agrees.

    direct.py FILE SIZE WRITES     overwrites a file of SIZE bytes WRITES times, by libaio and by pwrite(2) in turn

Others read the file all the time, by read(2) and through a mapping. Then the file is made longer in the same way.
"""

import ctypes
import mmap
import os
import platform
import struct
import sys

NUMBERS = {
    "x86_64": {"setup": 206, "getevents": 208, "submit": 209},
    "aarch64": {"setup": 0, "getevents": 4, "submit": 2},
}[platform.machine()]
PWRITE = 1
libc = ctypes.CDLL(None, use_errno=True)


def call(name, *arguments):
    got = libc.syscall(ctypes.c_long(NUMBERS[name]), *arguments)
    if got < 0:
        raise OSError(ctypes.get_errno(), f"io_{name}")
    return got


context = ctypes.c_ulong(0)
call("setup", ctypes.c_long(8), ctypes.byref(context))


def write_asynchronously(file, buffer, offset):
    address = ctypes.addressof(ctypes.c_char.from_buffer(buffer))
    block = ctypes.create_string_buffer(
        struct.pack("=QIIHhIQQqQII", 0, 0, 0, PWRITE, 0, file, address, len(buffer), offset, 0, 0, 0), 64
    )
    blocks = (ctypes.c_void_p * 1)(ctypes.addressof(block))
    call("submit", context, ctypes.c_long(1), blocks)
    event = ctypes.create_string_buffer(32)
    call("getevents", context, ctypes.c_long(1), ctypes.c_long(1), event, None)
    written = struct.unpack("=QQqq", event.raw)[2]
    assert written == len(buffer), f"wrote {written} of {len(buffer)}"


def write_at_once(file, buffer, offset):
    assert os.pwrite(file, buffer, offset) == len(buffer)


WAYS = [write_asynchronously, write_at_once]


def child(body):
    """Runs something over and over in a process of its own."""
    process = os.fork()
    if process == 0:
        try:
            while True:
                body()
        finally:
            os._exit(1)
    return process


def read_all(path):
    with open(path, "rb", buffering=0) as file:
        while file.read(1 << 16):
            pass


def agree(path, view, number, offset, size):
    """Whether all ways to read a range give the number that was written there last."""
    wanted = bytes([number]) * size
    with open(path, "rb", buffering=0) as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_RANDOM)
        if os.pread(file.fileno(), size, offset) != wanted:
            return "read(2)"
    if view[offset : offset + size] != wanted:
        return "a mapping"
    direct = os.open(path, os.O_RDONLY | os.O_DIRECT)
    buffer = mmap.mmap(-1, size)
    os.preadv(direct, [buffer], offset)
    os.close(direct)
    if buffer[:] != wanted:
        return "a direct read"
    return None


def main(path, size, writes):
    with open(path, "wb") as file:
        file.write(bytes(size))
    file = os.open(path, os.O_RDWR | os.O_DIRECT)
    plain = os.open(path, os.O_RDONLY)
    view = mmap.mmap(plain, size, prot=mmap.PROT_READ)
    buffer = mmap.mmap(-1, size)
    children = [child(lambda: read_all(path)) for _ in range(2)] + [child(lambda: view[:])]
    stale = []

    def write(way, number, offset):
        buffer[:] = bytes([number]) * size
        way(file, buffer, offset)

    try:
        for turn in range(writes):
            way, number = WAYS[turn % 2], 1 + turn % 255
            write(way, number, 0)
            if wrong := agree(path, view, number, 0, size):
                stale.append(f"write {turn} by {way.__name__}: {wrong} is old")
        # Longer by one piece at a time, with the last one read and mapped before.
        for turn in range(1, 9):
            way = WAYS[turn % 2]
            os.pread(plain, size, (turn - 1) * size)
            write(way, turn, turn * size)
            longer = mmap.mmap(plain, (turn + 1) * size, prot=mmap.PROT_READ)
            if wrong := agree(path, longer, turn, turn * size, size):
                stale.append(f"piece {turn} by {way.__name__}: {wrong} is old")
    finally:
        for process in children:
            os.kill(process, 9)
            os.waitpid(process, 0)
    for line in stale[:10]:
        print(line)
    print(f"{len(stale)} of {writes + 8} writes were not seen")
    return 1 if stale else 0


sys.exit(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
