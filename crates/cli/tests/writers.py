#!/usr/bin/env python3
"""Writers beside each other, which know what they synced.

    writers.py DIRECTORY COUNT STOP

So many threads make, sync and remove files in the directory until the file STOP is there. Then each file that was synced must
hold what was written. What was not synced may go with a daemon that is killed: its content (EIO), or all of it (ESTALE). Nothing may
fail for want of space.
"""

import errno
import os
import random
import sys
import threading

directory, count, stop = sys.argv[1], int(sys.argv[2]), sys.argv[3]
# Files that each keeps, and bytes of the largest.
KEPT, LARGEST = 24, 200_000
wrong = []


def content(seed, size):
    return random.Random(seed).randbytes(size)


def work(number, synced):
    rng = random.Random(number)
    turn = 0
    while not os.path.exists(stop):
        turn += 1
        seed = f"{number}-{turn}"
        size = rng.choice([300, 3_000, 9_000, rng.randrange(LARGEST)])
        path = f"{directory}/{seed}"
        try:
            with open(path, "wb", buffering=0) as file:
                rest = memoryview(content(seed, size))
                while rest:
                    rest = rest[file.write(rest) :]
                os.fsync(file.fileno())
            synced[path] = (seed, size)
        except OSError as error:
            if error.errno not in (errno.EIO, errno.ESTALE):
                wrong.append(f"{path}: {error}")
                return
        if len(synced) > KEPT:
            old = next(iter(synced))
            del synced[old]
            try:
                os.unlink(old)
            except OSError as error:
                wrong.append(f"{old}: {error}")
                return


files = [{} for _ in range(count)]
threads = [threading.Thread(target=work, args=pair) for pair in enumerate(files)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
for synced in files:
    for path, (seed, size) in synced.items():
        try:
            with open(path, "rb") as file:
                if file.read() != content(seed, size):
                    wrong.append(f"{path}: it holds something else")
        except OSError as error:
            wrong.append(f"{path}: {error}")
print(f"{sum(map(len, files))} files of {count} writers")
for words in wrong[:20]:
    print(words)
sys.exit(1 if wrong or not all(files) else 0)
