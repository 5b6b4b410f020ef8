#!/usr/bin/env python3
"""Where a daemon's time goes: a flame graph for each operation on small files, of a mount on a loop device in memory.

flames.py LOAMFS OUT    needs root, perf, and inferno's programs in PATH; LOAMFS is built with frame pointers

Directories of 4,000 files of 1 KiB are made, looked at, listed, read, written anew, renamed and removed by one client, over
io_uring where the kernel has it. Caches of kernel and daemon are dropped before each directory that is looked at, listed or read.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time

DIRS, FILES, CONTENT = 12, 4000, b"7" * 1024
RATE = "1999"


def run(*command):
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def names(directory):
    return [f"{directory}/file{number:05}" for number in range(FILES)]


def put(path, flags):
    descriptor = os.open(path, os.O_WRONLY | flags, 0o644)
    os.write(descriptor, CONTENT)
    os.close(descriptor)


def create(directory):
    for path in names(directory):
        put(path, os.O_CREAT | os.O_EXCL)


def stat(directory):
    for path in names(directory):
        os.stat(path)


def listing(directory):
    with os.scandir(directory) as entries:
        for entry in entries:
            entry.stat(follow_symlinks=False)


def read(directory):
    for path in names(directory):
        descriptor = os.open(path, os.O_RDONLY)
        os.read(descriptor, len(CONTENT))
        os.close(descriptor)


def rewrite(directory):
    for path in names(directory):
        put(path, os.O_TRUNC)


def rename(directory):
    for path in names(directory):
        os.rename(path, path + ".new")


def remove(directory):
    for path in names(directory):
        os.unlink(path + ".new")


OPERATIONS = [
    ("create", create, False),
    ("cold-stat", stat, True),
    ("list", listing, True),
    ("cold-read", read, True),
    ("rewrite", rewrite, False),
    ("rename", rename, False),
    ("unlink", remove, False),
]


class Mount:
    """A fresh volume in memory, mounted."""

    def __init__(self, loamfs, work):
        self.loamfs, self.at = loamfs, f"{work}/mnt"
        self.image = tempfile.NamedTemporaryFile(dir="/dev/shm")
        self.image.truncate(2 << 30)
        self.device = run("losetup", "--find", "--show", self.image.name).strip()
        run(loamfs, "mkfs", "--quiet", self.device)
        os.mkdir(self.at)
        run(loamfs, "mount", "-o", "transport=auto,restart=no", self.device, self.at)
        self.daemon = json.loads(run(loamfs, "info", "--json", self.at))["daemon"]

    def drop_caches(self):
        run(self.loamfs, "drop-caches", self.at)
        with open("/proc/sys/vm/drop_caches", "w") as drop:
            drop.write("2")

    def end(self):
        if os.path.ismount(self.at):
            run("umount", self.at)
        run("losetup", "--detach", self.device)


def record(mount, operation, is_cold, data):
    recorder = subprocess.Popen(
        ["perf", "record", "--quiet", "-F", RATE, "-g", "-p", str(mount.daemon), "-o", data]
    )
    time.sleep(0.5)
    for number in range(DIRS):
        if is_cold:
            mount.drop_caches()
        operation(f"{mount.at}/dir{number}")
    recorder.send_signal(signal.SIGINT)
    recorder.wait()


def draw(data, title, out):
    script = subprocess.run(["perf", "script", "-i", data], check=True, capture_output=True).stdout
    folded = subprocess.run(
        ["inferno-collapse-perf"], input=script, check=True, capture_output=True
    ).stdout
    drawing = ["inferno-flamegraph", "--deterministic", "--minwidth", "0.5", "--title", title]
    svg = subprocess.run(drawing, input=folded, check=True, capture_output=True).stdout
    with open(out, "wb") as file:
        file.write(svg)


def main():
    loamfs, out = sys.argv[1:]
    os.makedirs(out, exist_ok=True)
    with tempfile.TemporaryDirectory() as work:
        mount = Mount(loamfs, work)
        try:
            for number in range(DIRS):
                os.mkdir(f"{mount.at}/dir{number}")
            for name, operation, is_cold in OPERATIONS:
                record(mount, operation, is_cold, f"{work}/perf")
                draw(f"{work}/perf", f"LoamFS, {name}: the daemon", f"{out}/{name}.svg")
                print(f"{out}/{name}.svg", flush=True)
        finally:
            mount.end()


if __name__ == "__main__":
    main()
