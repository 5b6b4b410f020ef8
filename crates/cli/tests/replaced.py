# Clients of a mount whose daemon is killed again and again, and what they may see. Each process works until it is told to
# end, and says what went wrong.
#
#   replaced.py MOUNTPOINT LOAMFS KILLS SEED
#
# What may be lost is what was not synced: then fsync says EIO, a file that is gone ESTALE, and a name that was never synced
# ENOENT. Nothing else is an answer. What was synced is there at the end. A program that meets such an error may give up;
# one that ends well, and what it made is synced without an error, has kept that.
import errno
import json
import multiprocessing
import os
import queue
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import tarfile
import tempfile
import time

mnt, loamfs, kills, seed = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
LOST = (errno.EIO, errno.ESTALE, errno.ENOENT)
stop = multiprocessing.Event()
rounds = multiprocessing.Array("L", 16)
# Of those, what programs made that is synced.
kept = multiprocessing.Array("L", 16)
# Odd from before a daemon is killed until another one is there.
killed = multiprocessing.Value("L", 0)


def write(file, content, at):
    """Writes all of it. The kernel writes the part of a page for itself, and the next part may fail: then it says how far it
    came. So it does with what it hands to a daemon that is killed meanwhile."""
    while content:
        done = os.pwrite(file, content, at)
        content, at = content[done:], at + done


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
                write(file, text, 0)
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
            write(file, record, 19 * len(records))
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
    write(file, content, 0)
    os.fsync(file)
    while not stop.is_set():
        at, new = random.randrange(size - 70000), os.urandom(random.randrange(1, 70000))
        while not stop.is_set():
            try:
                write(file, new, at)
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
    write(file, text, 0)
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
            if os.path.islink(path):
                continue
            file = os.open(path, os.O_RDONLY)
            try:
                os.fsync(file)
            finally:
                os.close(file)


def sync_names(directory):
    file = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(file)
    finally:
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
                with open(path + " link", "rb") as file:
                    found = file.read()
                assert found in (b"", str(number).encode()), f"{path} holds {found}"
            if number % 3:
                (os.rmdir if kind == 0 else os.unlink)(path + " moved")
        except OSError as error:
            if error.errno not in LOST:
                raise
        yield


class Lost(Exception):
    """A program met what was lost with a daemon."""


def program(*words, **options):
    """Runs a program. If it fails, that is for what was lost with a daemon, of which it says nothing that is not so."""
    ran = subprocess.run(words, capture_output=True, text=True, errors="replace", **options)
    if os.strerror(errno.ENOTCONN) in ran.stderr:
        raise RuntimeError(ran.stderr)
    if ran.returncode:
        raise Lost(f"{' '.join(words)}: exit code {ran.returncode}: {ran.stderr}{ran.stdout}")
    return ran.stdout


def attempt(step, since):
    """Does something whose end is synced. Returns whether it was; only a daemon that died since all was is an excuse. What
    looks wrong counts if no daemon died meanwhile: a program that goes on then may have read what was never synced, and is
    lost."""
    began = killed.value
    try:
        step()
    except AssertionError:
        if began % 2 == 0 and killed.value == began:
            raise
        return False
    except (Lost, OSError) as error:
        if isinstance(error, OSError) and error.errno not in LOST:
            raise
        assert since is None or since % 2 or killed.value != since, f"no daemon died, and yet: {error}"
        return False
    return True


def without_loss(step):
    """Does something until it meets nothing more of what was lost. Each file and directory may say so once."""
    for _ in range(2000):
        if attempt(step, None):
            return
    step()


def git(place):
    """Commits, each of them synced. Those are there, whole, whatever became of others."""
    tree, number, commits = None, 0, []
    environment = dict(os.environ, HOME=place, GIT_CONFIG_NOSYSTEM="1")
    for kind in ("AUTHOR", "COMMITTER"):
        environment |= {f"GIT_{kind}_NAME": "nobody", f"GIT_{kind}_EMAIL": "nobody@localhost"}

    def run(*words):
        settings = ("-c", "core.fsync=all", "-c", "gc.auto=0", "-c", "core.logAllRefUpdates=false")
        return program("git", "-C", tree, *settings, *words, env=environment).strip()

    def begin():
        nonlocal tree, number
        if tree:
            shutil.rmtree(tree, ignore_errors=True)
        number += 1
        tree = f"{place}/{number}"
        os.mkdir(tree)
        run("init", "--quiet", "--initial-branch=main")
        sync_all(place)

    def back():
        """As after a power cut: to the last commit that is known to be there."""
        for path, _, names in os.walk(tree + "/.git"):
            for name in names:
                if name.endswith(".lock"):
                    os.unlink(f"{path}/{name}")
        if commits:
            # The index may name what is lost.
            if os.path.exists(tree + "/.git/index"):
                os.unlink(tree + "/.git/index")
            with open(tree + "/.git/refs/heads/main", "w") as file:
                file.write(commits[-1] + "\n")
            run("reset", "--quiet", "--hard")
            run("clean", "-fdxq")
            sync_all(place)
        else:
            begin()

    def commit():
        for _ in range(3):
            path = f"{tree}/{random.randrange(5)}"
            os.makedirs(path, exist_ok=True)
            with open(f"{path}/{random.randrange(20)}", "w") as file:
                file.write(f"{random.random()}\n" * random.randrange(1, 2000))
        run("add", "--all")
        run("commit", "--quiet", "--message", str(len(commits)))
        made = run("rev-parse", "HEAD")
        sync_all(place)
        commits.append(made)

    def whole():
        run("fsck", "--full", "--strict")
        assert run("rev-list", "HEAD").split() == commits[::-1], "a commit that was synced is lost"
        assert not run("status", "--porcelain"), "what was committed is not there"

    without_loss(begin)
    since = killed.value
    while not stop.is_set():
        if attempt(commit, since):
            since = killed.value
            yield True
        else:
            without_loss(back)
            yield
        if len(commits) == 25:
            without_loss(whole)
            commits.clear()
            without_loss(begin)
    if commits:
        without_loss(back)
        without_loss(whole)


def tar(place):
    """An archive is unpacked. A tree that was unpacked and synced is what is in the archive."""
    content = random.Random(7)
    with tempfile.TemporaryDirectory() as outside:
        for number in range(120):
            path = f"{outside}/tree/{number % 7}/{number % 3}"
            os.makedirs(path, exist_ok=True)
            with open(f"{path}/{number}", "wb") as file:
                file.write(content.randbytes(content.choice([0, 100, 3000, 20_000, 200_000])))
        os.symlink("nowhere", outside + "/tree/symlink")
        os.link(f"{outside}/tree/0/0/0", outside + "/tree/link")
        archive = outside + "/archive.tar"
        with tarfile.open(archive, "w") as file:
            file.add(outside + "/tree", "tree")
        yield from unpack(place, archive)


def unpack(place, archive):
    trees, number, since = [], 0, killed.value
    while not stop.is_set():
        number += 1
        tree = f"{place}/{number}"

        def one():
            os.mkdir(tree)
            program("tar", "-xf", archive, "-C", tree)
            sync_all(tree)
            sync_names(place)

        if attempt(one, since):
            trees.append(tree)
            since = killed.value
            yield True
        else:
            shutil.rmtree(tree, ignore_errors=True)
            yield
        if len(trees) > 3:
            old = trees.pop(0)
            compare(archive, old)
            shutil.rmtree(old, ignore_errors=True)
    for tree in trees:
        compare(archive, tree)


def compare(archive, tree):
    # Nothing here was not synced: no daemon that dies is an excuse.
    program("tar", "--compare", "-f", archive, "-C", tree)


# How two databases are used: one writes ahead, the other rolls back.
SETTINGS = [
    # Memory that processes share would be of a file that may be lost.
    "PRAGMA locking_mode=EXCLUSIVE; PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL; PRAGMA wal_autocheckpoint=50",
    # FULL does not sync that the journal is gone, which is the commit.
    "PRAGMA journal_mode=DELETE; PRAGMA synchronous=EXTRA",
]


def begin(connections, which, path):
    for rest in ("", "-journal", "-wal"):
        if os.path.exists(path + rest):
            os.unlink(path + rest)
    connection = connect(which, path)
    connection.execute("CREATE TABLE kept (number INTEGER PRIMARY KEY, content BLOB)")
    connection.close()
    sync_all(os.path.dirname(path))


def connect(which, path):
    connection = sqlite3.connect(path, isolation_level=None)
    connection.executescript(SETTINGS[which])
    return connection


def transact(connections, which, path, first):
    if which not in connections:
        connections[which] = connect(which, path)
    connection = connections[which]
    connection.execute("BEGIN")
    for number in range(first, first + 5):
        content = random.randbytes(random.randrange(1, 3000))
        connection.execute("INSERT OR REPLACE INTO kept VALUES (?, ?)", (number, content))
    connection.execute("COMMIT")


def whole(connections, which, path, told):
    connection = connect(which, path)
    [(said,)] = connection.execute("PRAGMA integrity_check").fetchall()
    assert said == "ok", f"{path}: {said}"
    [(count,)] = connection.execute(f"SELECT COUNT(*) FROM kept WHERE number < {told}").fetchall()
    assert count == told, f"{path}: {count} rows of {told} that were committed"
    connection.close()


class Client:
    """A process that uses databases. It ends with the first error, and its locks with it; then there is another one."""

    def __init__(self):
        self.process = None

    def do(self, step, *words):
        if self.process is None:
            self.pipe, theirs = multiprocessing.Pipe()
            self.process = multiprocessing.Process(target=serve, args=(theirs,))
            self.process.start()
            theirs.close()
        self.pipe.send((step.__name__, words))
        try:
            lost, wrong = self.pipe.recv()
        except EOFError:
            lost, wrong = "the client died", None
        if lost or wrong:
            self.end()
        assert not wrong, wrong
        if lost:
            raise Lost(lost)

    def end(self):
        if self.process is not None:
            try:
                self.pipe.send((None, None))
            except OSError:
                # It has ended.
                pass
            self.process.join()
            self.pipe.close()
            self.process = None


def serve(pipe):
    connections = {}
    while True:
        step, words = pipe.recv()
        if step is None:
            for connection in connections.values():
                connection.close()
            return
        try:
            globals()[step](connections, *words)
            pipe.send((None, None))
        except AssertionError as error:
            pipe.send((None, str(error)))
        except (OSError, sqlite3.Error) as error:
            pipe.send((str(error), None))
            # Not even what a connection does when it is closed.
            os._exit(0)


def sqlite(place):
    """Transactions of databases. What was committed is there."""
    paths, told = [place + "/ahead/kept", place + "/back/kept"], [0, 0]
    client = Client()
    for which, path in enumerate(paths):
        os.mkdir(os.path.dirname(path))
        without_loss(lambda: sync_names(place))
        without_loss(lambda: client.do(begin, which, path))
    since = [killed.value, killed.value]
    while not stop.is_set():
        which = random.randrange(2)
        if attempt(lambda: client.do(transact, which, paths[which], told[which]), since[which]):
            told[which] += 5
            since[which] = killed.value
            yield True
        else:
            without_loss(lambda: client.do(whole, which, paths[which], told[which]))
            yield
    client.end()
    for which, path in enumerate(paths):
        without_loss(lambda: client.do(whole, which, path, told[which]))
    client.end()


def looks(place):
    """The mount is there, with what is in it, whoever looks."""
    while not stop.is_set():
        assert "marker" in os.listdir(mnt), "an empty directory"
        with open(mnt + "/marker") as file:
            assert file.read() == "marker"
        os.statvfs(mnt)
        yield


WORK = [syncs, syncs, appends, large, unlinked, stands, walks, names, names, git, tar, sqlite, looks]
PROGRAMS = [WORK.index(work) for work in (git, tar, sqlite)]


def run(number, work, said):
    random.seed(seed * 100 + number)
    place = f"{mnt}/{number}"
    try:
        for is_kept in work(place):
            rounds[number] += 1
            kept[number] += bool(is_kept)
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
    give_up("no daemon follows")


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


def give_up(why):
    for worker in workers:
        worker.kill()
    sys.exit(why)


def after(rounds_before, kept_before):
    """Waits until everybody has done more than by then, and each program has kept something."""
    deadline = time.monotonic() + 120

    def moved():
        all_do = all(rounds[number] > rounds_before[number] for number in range(len(WORK)))
        return all_do and all(kept[number] > kept_before[number] for number in PROGRAMS)

    while said.empty() and not moved():
        if time.monotonic() > deadline:
            give_up(f"somebody hangs: {rounds_before} and then {list(rounds)}, {kept_before} and then {list(kept)}")
        time.sleep(0.05)


after([0] * len(WORK), [0] * len(WORK))
random.seed(seed)
serving, waited, done = daemon(), [], 0
for done in range(1, kills + 1):
    time.sleep(random.choice([0, 0.02, 0.1, 0.3, 0.6]))
    killed.value += 1
    os.kill(serving, signal.SIGKILL)
    serving, seconds = successor(serving)
    killed.value += 1
    waited.append(seconds)
    if not said.empty():
        break
after(list(rounds), list(kept))
stop.set()
try:
    failures = [said.get(timeout=240) for _ in workers]
except queue.Empty:
    give_up(f"somebody does not end: {list(rounds)}")
for worker in workers:
    worker.join()
waited.sort()
print(f"{done} kills, {sum(rounds)} rounds of work, {kept[PROGRAMS[0]]} commits, {kept[PROGRAMS[1]]} archives and"
      f" {kept[PROGRAMS[2]]} transactions kept; a daemon was back after {waited[len(waited) // 2]:.2f} s,"
      f" {waited[-1]:.2f} s at most")
wrong = [text for _, text in failures if text]
if wrong:
    sys.exit("\n".join(wrong))
