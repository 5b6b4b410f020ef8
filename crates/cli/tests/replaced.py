# Clients of a mount whose daemon is killed again and again, and what they may see. Each process works until it is told to
# end, and says what went wrong.
#
#   replaced.py MOUNTPOINT LOAMFS KILLS SEED
#
# What may be lost is what was not synced: then fsync says EIO, a file that is gone ESTALE, and a name that was never synced
# ENOENT. Nothing else is an answer. What was synced is there at the end.
import errno
import json
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import time

mnt, loamfs, kills, seed = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
LOST = (errno.EIO, errno.ESTALE, errno.ENOENT)
stop = multiprocessing.Event()
rounds = multiprocessing.Array("L", 16)


def syncs(place):
    """Files that are written and synced one by one. Returns those of which fsync said that they are there."""
    kept, number = {}, 0
    while not stop.is_set():
        number += 1
        path = f"{place}/{number}"
        text = f"{number} {random.random()}\n".encode() * random.randrange(1, 400)
        try:
            file = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY)
            try:
                os.write(file, text)
                os.fsync(file)
            finally:
                os.close(file)
            kept[path] = text
        except OSError as error:
            if error.errno not in LOST:
                raise
        yield
    for path, text in kept.items():
        with open(path, "rb") as file:
            assert file.read() == text, f"{path} is not what was synced"


def appends(place):
    """A record behind the other in one open file. One is there for good when fsync says so, else it is written again."""
    path = place + "/log"
    file = os.open(path, os.O_CREAT | os.O_RDWR)
    os.fsync(file)
    records, told = [], True
    while not stop.is_set():
        record = f"{len(records):08} {random.randrange(10**9):09}\n".encode()
        try:
            os.pwrite(file, record, 19 * len(records))
            os.fsync(file)
            records.append(record)
        except OSError as error:
            assert error.errno == errno.EIO, error
        yield
    os.close(file)
    with open(path, "rb") as file:
        assert file.read(19 * len(records)) == b"".join(records), "a record that was synced is lost"


def large(place):
    """A large file is written over in place, synced, and read through another descriptor."""
    size, path = 4 << 20, place + "/large"
    file = os.open(path, os.O_CREAT | os.O_RDWR)
    content = bytearray(os.urandom(size))
    os.pwrite(file, content, 0)
    os.fsync(file)
    while not stop.is_set():
        at, new = random.randrange(size - 70000), os.urandom(random.randrange(1, 70000))
        while not stop.is_set():
            try:
                os.pwrite(file, new, at)
                os.fsync(file)
                break
            except OSError as error:
                assert error.errno == errno.EIO, error
        else:
            new = os.pread(file, len(new), at)
        content[at : at + len(new)] = new
        again = os.open(path, os.O_RDONLY)
        assert os.pread(again, len(new), at) == new, "what was synced is not read"
        os.close(again)
        yield
    with open(path, "rb") as file:
        assert file.read() == bytes(content), "the large file is not what was synced"


def unlinked(place):
    """A file without a name, and one whose name goes while it is open, are read and written as before."""
    directory = os.open(place, os.O_RDONLY)
    path, text = place + "/unlinked", os.urandom(300_000)
    file = os.open(path, os.O_CREAT | os.O_RDWR)
    os.write(file, text)
    os.fsync(file)
    os.unlink(path)
    os.fsync(directory)
    os.fsync(file)
    seen = 0
    while not stop.is_set():
        assert os.pread(file, len(text), 0) == text, "an unlinked file has other content"
        assert os.fstat(file).st_nlink == 0, "it has a name again"
        assert not os.path.exists(path)
        seen += 1
        if seen % 50 == 0:
            os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
        yield
    os.close(file)


def stands(place):
    """Somebody whose working directory is on the mount."""
    there = place + "/deep/er"
    os.makedirs(there)
    with open(there + "/file", "w") as file:
        file.write("here")
        os.fsync(file.fileno())
    for path in (there, place + "/deep", place):
        directory = os.open(path, os.O_RDONLY)
        os.fsync(directory)
        os.close(directory)
    os.chdir(there)
    while not stop.is_set():
        assert os.listdir(".") == ["file"], os.listdir(".")
        with open("file") as file:
            assert file.read() == "here"
        assert os.path.samefile(".", there)
        yield
    os.chdir("/")


def walks(place):
    """A tree that nobody changes is walked: all of it is there each time."""
    for directory in range(20):
        os.mkdir(f"{place}/{directory}")
        for number in range(40):
            with open(f"{place}/{directory}/{number}", "w") as file:
                file.write(f"{directory} {number}")
    sync_all(place)
    while not stop.is_set():
        found = 0
        for path, _, names in os.walk(place, onerror=fails):
            for name in names:
                os.stat(os.path.join(path, name))
                found += 1
        assert found == 800, f"{found} files instead of 800"
        with open(f"{place}/{random.randrange(20)}/{random.randrange(40)}") as file:
            assert file.read()
        yield


def sync_all(place):
    # A plain mount knows no syncfs. What the first fsync takes along the others need not wait for.
    for directory, _, files in os.walk(place):
        for path in [os.path.join(directory, name) for name in files] + [directory]:
            file = os.open(path, os.O_RDONLY)
            os.fsync(file)
            os.close(file)


def fails(error):
    raise error


def names(place):
    """Names that nobody has used: making one never fails because it is there already, and none is taken for another."""
    number = 0
    while not stop.is_set():
        number += 1
        path = f"{place}/{number}"
        kind = number % 5
        if kind == 0:
            os.mkdir(path)
        elif kind == 1:
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
        elif kind == 2:
            os.symlink("nowhere", path)
        elif kind == 3:
            os.mkfifo(path)
        else:
            file = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY)
        # From here on it may be lost.
        try:
            if kind == 4:
                try:
                    os.write(file, str(number).encode())
                finally:
                    os.close(file)
            os.rename(path, path + " moved")
            if kind == 4:
                os.link(path + " moved", path + " link")
                with open(path + " link") as file:
                    assert file.read() in ("", str(number))
            if number % 3:
                (os.rmdir if kind == 0 else os.unlink)(path + " moved")
        except OSError as error:
            if error.errno not in LOST:
                raise
        yield


def looks(place):
    """The mount is there, with what is in it, whoever looks."""
    while not stop.is_set():
        assert "marker" in os.listdir(mnt), "an empty directory"
        with open(mnt + "/marker") as file:
            assert file.read() == "marker"
        os.statvfs(mnt)
        yield


WORK = [syncs, syncs, appends, large, unlinked, stands, walks, names, names, looks]


def run(number, work, said):
    random.seed(seed * 100 + number)
    place = f"{mnt}/{number}"
    try:
        for _ in work(place):
            rounds[number] += 1
        said.put((number, None))
    except BaseException as error:
        import traceback

        said.put((number, f"{work.__name__}: {''.join(traceback.format_exception(error))}"))


def daemon():
    asked = subprocess.run([loamfs, "info", "--json", mnt], capture_output=True, text=True)
    return json.loads(asked.stdout)["daemon"] if asked.returncode == 0 else None


def successor(before):
    start = time.monotonic()
    while time.monotonic() < start + 60:
        now = daemon()
        if now not in (None, before):
            return now, time.monotonic() - start
        time.sleep(0.01)
    sys.exit("no daemon follows")


with open(mnt + "/marker", "w") as file:
    file.write("marker")
for number in range(len(WORK)):
    os.mkdir(f"{mnt}/{number}")
sync_all(mnt)
said = multiprocessing.Queue()
workers = [
    multiprocessing.Process(target=run, args=(number, work, said))
    for number, work in enumerate(WORK)
]
for worker in workers:
    worker.start()
while not all(rounds[number] for number in range(len(WORK))) and said.empty():
    time.sleep(0.05)
random.seed(seed)
serving, waited, done = daemon(), [], 0
for done in range(1, kills + 1):
    time.sleep(random.choice([0, 0.02, 0.1, 0.3, 0.6]))
    os.kill(serving, signal.SIGKILL)
    serving, seconds = successor(serving)
    waited.append(seconds)
    if not said.empty():
        break
before = list(rounds)
deadline = time.monotonic() + 60
while any(rounds[number] == before[number] for number in range(len(WORK))) and said.empty():
    if time.monotonic() > deadline:
        sys.exit(f"somebody hangs: {before} and then {list(rounds)}")
    time.sleep(0.05)
stop.set()
failures = [said.get(timeout=120) for _ in workers]
for worker in workers:
    worker.join()
waited.sort()
print(f"{done} kills, {sum(rounds)} rounds of work; a daemon was back after {waited[len(waited) // 2]:.2f} s,"
      f" {waited[-1]:.2f} s at most")
wrong = [text for _, text in failures if text]
if wrong:
    sys.exit("\n".join(wrong))
