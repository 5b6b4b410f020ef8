"""What becomes of permissions, access lists, privileges and flags: does the same on any file system and says what came of it, so
that one can be compared with another. Needs root.

    oracle.py DIR SEED STEPS [without-projects]
"""

import ctypes
import errno
import fcntl
import os
import random
import shutil
import struct
import subprocess
import sys
import time

ACCESS, DEFAULT, CAPABILITY = "system.posix_acl_access", "system.posix_acl_default", "security.capability"
OWNER, USER, GROUP, NAMED_GROUP, MASK, OTHER = 1, 2, 4, 8, 16, 32
LETTERS = {OWNER: "u::", USER: "u:", GROUP: "g::", NAMED_GROUP: "g:", MASK: "m::", OTHER: "o::"}
NOBODY = 0xFFFFFFFF
PR_SET_DUMPABLE = 4
GET_FLAGS, SET_FLAGS, GET_PROJECT, SET_PROJECT = 0x80086601, 0x40086602, 0x801C581F, 0x401C5820
IMMUTABLE, APPEND, NODUMP, NOATIME, PROJECT_INHERIT = 0x10, 0x20, 0x40, 0x80, 0x20000000
# ext4 has others beside these.
FLAGS = IMMUTABLE | APPEND | NODUMP | NOATIME | PROJECT_INHERIT
USERS, GROUPS = [1001, 1002], [2001, 2002]

libc = ctypes.CDLL(None)


def pack(entries):
    return struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *entry) for entry in entries)


def text(value):
    """An access list in words."""
    entries = struct.iter_unpack("<HHI", value[4:])
    return ",".join(
        LETTERS[tag] + ("" if number == NOBODY else f"{number}:") + oct(bits)[2:] for tag, bits, number in entries
    )


def attribute(path, name):
    try:
        return os.getxattr(path, name, follow_symlinks=False)
    except OSError as error:
        if error.errno in (errno.ENODATA, errno.EOPNOTSUPP):
            return None
        raise


def show(path):
    """What everybody can see of an inode."""
    if not os.path.lexists(path):
        return f"no {path}"
    found = os.lstat(path)
    words = [path, oct(found.st_mode), f"{found.st_uid}:{found.st_gid}"]
    for name in (ACCESS, DEFAULT):
        value = attribute(path, name)
        if value is not None:
            words.append(f"{name[17:]}={text(value)}")
    if attribute(path, CAPABILITY) is not None:
        words.append("capability")
    return " ".join(words)


def tried(action):
    """Does something and says how it ended."""
    try:
        result = action()
        return "ok" if result is None else f"ok {result}"
    except OSError as error:
        return errno.errorcode[error.errno]


def as_user(user, group, others, action):
    """Does something as somebody else, in a process of its own, and says how it ended."""
    sys.stdout.flush()
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.setgroups(others)
        os.setresgid(group, group, group)
        os.setresuid(user, user, user)
        # Else /proc/self/fd is out of reach.
        libc.prctl(PR_SET_DUMPABLE, 1)
        os.write(writer, tried(action).encode())
        os._exit(0)
    os.close(writer)
    said = os.read(reader, 1000).decode()
    os.close(reader)
    os.waitpid(child, 0)
    return said


def with_umask(mask, action):
    def run():
        old = os.umask(mask)
        try:
            return action()
        finally:
            os.umask(old)

    return run


def make(path, kind, mode):
    """Something that makes an inode."""
    if kind == "dir":
        return lambda: os.mkdir(path, mode)
    if kind == "fifo":
        return lambda: os.mkfifo(path, mode)
    if kind == "link":
        return lambda: os.symlink("target", path)
    if kind == "unnamed":
        return lambda: named(path, mode)
    return lambda: os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, mode))


def named(path, mode):
    """A file that is made without a name and then gets one."""
    fd = os.open(os.path.dirname(path) or ".", os.O_TMPFILE | os.O_RDWR, mode)
    # Only with a directory does Python follow the link.
    here = os.open(".", os.O_PATH)
    os.link(f"/proc/self/fd/{fd}", path, src_dir_fd=here, follow_symlinks=True)
    os.close(here), os.close(fd)


def written(path, how):
    """Something that changes what a file holds, or whose it is."""

    def run():
        if how == "truncate":
            return os.truncate(path, 3)
        if how == "chown":
            return os.chown(path, -1, GROUPS[0])
        fd = os.open(path, os.O_RDWR | (os.O_TRUNC if how == "open" else 0))
        try:
            if how == "write":
                os.write(fd, b"new")
            if how == "fallocate":
                os.posix_fallocate(fd, 0, 100)
            if how == "copy":
                source = os.open("source", os.O_RDONLY)
                os.copy_file_range(source, fd, 5)
                os.close(source)
        finally:
            os.close(fd)

    return run


def random_list(dice):
    """A list that is valid, most of the time."""
    bits = lambda: dice.randrange(8)
    users = [(USER, bits(), user) for user in USERS if dice.random() < 0.3]
    groups = [(NAMED_GROUP, bits(), group) for group in GROUPS if dice.random() < 0.3]
    mask = [(MASK, bits(), NOBODY)] if users or groups or dice.random() < 0.3 else []
    if dice.random() < 0.05:
        mask = []
    return [(OWNER, bits(), NOBODY), *users, (GROUP, bits(), NOBODY), *groups, *mask, (OTHER, bits(), NOBODY)]


def sequence(dice, steps):
    """Lists, modes, owners and new inodes in any order."""
    os.mkdir("tree", 0o777)
    os.chmod("tree", 0o777)
    paths = ["tree"]
    for step in range(steps):
        path = dice.choice(paths)
        what = dice.choice(["make", "make", "make", "list", "list", "default", "chmod", "chmod", "remove", "chown", "access"])
        who = (dice.choice([0, *USERS]), dice.choice([0, *GROUPS]), dice.sample(GROUPS, dice.randrange(3)))
        if what == "make":
            kind = dice.choice(["file", "file", "dir", "dir", "fifo", "link", "unnamed"])
            mode, mask = dice.randrange(0o10000), dice.randrange(0o1000)
            made = f"{path}/{step}"
            said = as_user(*who, with_umask(mask, make(made, kind, mode)))
            what = f"make {kind} {oct(mode)} umask {oct(mask)}"
            if said == "ok":
                paths.append(made)
                path = made
        elif what in ("list", "default"):
            name, value = (ACCESS, DEFAULT)[what == "default"], random_list(dice)
            said = as_user(*who, lambda: os.setxattr(path, name, pack(value)))
            what = f"{what} {text(pack(value))}"
        elif what == "chmod":
            mode = dice.randrange(0o10000)
            said = as_user(*who, lambda: os.chmod(path, mode))
            what = f"chmod {oct(mode)}"
        elif what == "chown":
            # Without anything to change FUSE cannot tell it from a write that is to come.
            owner, group = dice.choice([(-1, GROUPS[0]), (USERS[0], -1), (USERS[1], GROUPS[1])])
            # By a member of the group: set-group-id without execution falls for others, which FUSE does not tell.
            who = (*who[:2], [0, *GROUPS])
            said = as_user(*who, lambda: os.chown(path, owner, group, follow_symlinks=False))
            what = f"chown {owner}:{group}"
        elif what == "remove":
            name = dice.choice([ACCESS, DEFAULT])
            said = as_user(*who, lambda: os.removexattr(path, name))
            what = f"remove {name}"
        else:
            mode = dice.randrange(1, 8)
            said = as_user(*who, lambda: os.access(path, mode))
            what = f"access {mode}"
        print(f"{step}: {who} {what} of {path}: {said}")
        print("   ", show(path))
    for path in paths:
        print(show(path))


def privileges():
    """What takes set-user-id, set-group-id and capabilities away, from whom, and when it can be seen."""
    capability = struct.pack("<IIIII", 0x02000001, 1 << 10, 0, 0, 0)
    with open("source", "w") as source:
        source.write("source")
    os.chmod("source", 0o644)
    for user in (0, USERS[0]):
        for mode in (0o6777, 0o6767, 0o4666, 0o2676, 0o2666, 0o1777):
            for how in ("write", "truncate", "open", "fallocate", "copy", "chown"):
                for capable in (False, True):
                    path = f"{user}-{oct(mode)}-{how}-{capable}"
                    with open(path, "w") as file:
                        file.write("content")
                    os.chown(path, user if how == "chown" else 0, 2003)
                    if capable:
                        os.setxattr(path, CAPABILITY, capability)
                    os.chmod(path, mode)
                    os.stat(path)
                    said = as_user(user, 2003, GROUPS, written(path, how))
                    print(path, said, show(path))
    # A chown to nobody new is a change as well, and one of a directory takes nothing away.
    os.mkdir("directory")
    os.chmod("directory", 0o6775)
    os.chown("directory", USERS[0], GROUPS[0])
    print(show("directory"))


def execution():
    """Whose a program runs as, before and behind a write by somebody else that nobody has looked at."""
    shutil.copy("/usr/bin/id", "id")
    os.chown("id", USERS[1], 0)
    os.chmod("id", 0o4777)
    run = lambda: subprocess.run(["./id", "-u"], capture_output=True, check=True).stdout
    print(as_user(USERS[0], GROUPS[0], [], run))
    fd = os.open("id", os.O_WRONLY | os.O_APPEND)
    print(as_user(USERS[0], GROUPS[0], [], lambda: os.write(fd, b"more")))
    os.close(fd)
    print(as_user(USERS[0], GROUPS[0], [], run))
    print(show("id"))


def groups():
    """Set-group-id directories, and the groups of those who make something in them."""
    for bits in (0o777, 0o2777, 0o6777, 0o3777):
        top = f"groups-{oct(bits)}"
        os.mkdir(top)
        os.chown(top, 0, GROUPS[0])
        os.chmod(top, bits)
        for others in ([], [GROUPS[0]], [GROUPS[1]]):
            for kind in ("file", "dir", "fifo", "link", "unnamed"):
                for mode in (0o2777, 0o2767, 0o6755):
                    path = f"{top}/{kind}-{oct(mode)}-{others}"
                    said = as_user(USERS[0], GROUPS[1], others, with_umask(0o022, make(path, kind, mode)))
                    print(said, show(path))
                    if kind == "file":
                        said = as_user(USERS[0], GROUPS[1], others, lambda: os.chmod(path, 0o2755))
                        print(said, show(path))
                        value = pack([(OWNER, 7, NOBODY), (GROUP, 7, NOBODY), (OTHER, 5, NOBODY)])
                        said = as_user(USERS[0], GROUPS[1], others, lambda: os.setxattr(path, ACCESS, value))
                        print(said, show(path))


def ioctl(path, command, data):
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        return fcntl.ioctl(fd, command, data)
    finally:
        os.close(fd)


def flags_of(path):
    return struct.unpack("<I", ioctl(path, GET_FLAGS, bytes(4)))[0]


def set_flags(path, flags):
    ioctl(path, SET_FLAGS, struct.pack("<I", flags_of(path) & ~FLAGS | flags))


def show_flags(path):
    """Flags in both forms, and project."""
    if not os.path.lexists(path):
        return f"no {path}"
    numbers, _, _, project, _ = struct.unpack("<5I8x", ioctl(path, GET_PROJECT, bytes(28)))
    return f"{show(path)} flags {flags_of(path) & FLAGS:x} {numbers:x} project {project}"


def set_project(path, numbers, project):
    ioctl(path, SET_PROJECT, struct.pack("<5I8x", numbers, 0, 0, project, 0))


def with_file(path, flags, action):
    fd = os.open(path, flags)
    try:
        action(fd)
    finally:
        os.close(fd)


def uses(path):
    """What can be tried on a file or directory, most harmless first."""
    access = pack([(OWNER, 6, NOBODY), (USER, 4, 5), (GROUP, 4, NOBODY), (MASK, 4, NOBODY), (OTHER, 0, NOBODY)])
    tries = {
        "read": lambda: os.close(os.open(path, os.O_RDONLY)),
        "now": lambda: os.utime(path),
        "then": lambda: os.utime(path, (1, 1)),
        "chmod": lambda: os.chmod(path, 0o751),
        "chown": lambda: os.chown(path, 1, 1),
        "set": lambda: os.setxattr(path, "user.name", b"value"),
        "unset": lambda: os.removexattr(path, "user.kept"),
        "list": lambda: os.setxattr(path, ACCESS, access),
        "nodump": lambda: set_flags(path, flags_of(path) & FLAGS | NODUMP),
        "link": lambda: os.link(path, "flags/linked"),
    }
    if os.path.isdir(path):
        for kind in ("file", "dir", "link", "fifo", "unnamed"):
            tries[f"make {kind}"] = make(f"{path}/{kind}", kind, 0o755)
        tries["link into"] = lambda: os.link("flags/outside", f"{path}/outside")
        tries["unlink inside"] = lambda: os.unlink(f"{path}/inside")
        tries["rmdir inside"] = lambda: os.rmdir(f"{path}/below")
        tries["move inside"] = lambda: os.rename(f"{path}/inside", f"{path}/renamed")
        tries["move out"] = lambda: os.rename(f"{path}/inside", "flags/moved")
        tries["move over"] = lambda: os.rename("flags/outside", f"{path}/inside")
        tries["move in"] = lambda: os.rename("flags/outside", f"{path}/new")
        tries["rmdir"] = lambda: os.rmdir(path)
    else:
        tries["append"] = lambda: with_file(path, os.O_WRONLY | os.O_APPEND, lambda fd: os.write(fd, b"more"))
        tries["allocate"] = lambda: with_file(
            path, os.O_RDWR | os.O_APPEND, lambda fd: os.posix_fallocate(fd, 0, 50_000)
        )
        tries["write"] = lambda: with_file(path, os.O_WRONLY, lambda fd: os.pwrite(fd, b"other", 3))
        tries["open to cut"] = lambda: with_file(path, os.O_WRONLY | os.O_TRUNC, lambda fd: None)
        tries["truncate"] = lambda: os.truncate(path, 5)
        tries["lengthen"] = lambda: os.truncate(path, 90_000)
        tries["move over"] = lambda: os.rename("flags/outside", path)
        tries["unlink"] = lambda: os.unlink(path)
    tries["rename"] = lambda: os.rename(path, "flags/renamed")
    return tries


def flags():
    """What flags forbid, who may set them, and what they hand down."""
    for bits in (0, IMMUTABLE, APPEND, IMMUTABLE | APPEND, NODUMP | NOATIME):
        for kind in ("file", "dir"):
            path = f"flags/{kind}"
            os.mkdir("flags")
            make(path, kind, 0o755)()
            names = list(uses(path))
            shutil.rmtree("flags")
            for what in names:
                os.mkdir("flags")
                make(path, kind, 0o755)()
                if kind == "dir":
                    make(f"{path}/inside", "file", 0o644)()
                    make(f"{path}/below", "dir", 0o755)()
                else:
                    with_file(path, os.O_WRONLY, lambda fd: os.write(fd, b"content" * 1000))
                make("flags/outside", "file", 0o644)()
                os.setxattr(path, "user.kept", b"value")
                set_flags(path, bits)
                print(f"{kind} {bits:x} {what}: {tried(uses(path)[what])}")
                print("   ", show_flags(path))
                for above, _, names in os.walk("flags", topdown=False):
                    for name in [above, *(f"{above}/{name}" for name in names)]:
                        if os.path.isdir(name) or os.path.isfile(name) and not os.path.islink(name):
                            set_flags(name, 0)
                shutil.rmtree("flags")
    os.mkdir("flags")
    make("flags/own", "file", 0o644)()
    os.chown("flags/own", USERS[0], USERS[0])
    for user in USERS:
        for bits in (NODUMP, IMMUTABLE, APPEND, 0):
            said = as_user(user, user, [], lambda: set_flags("flags/own", bits))
            print(user, f"{bits:x}", said, show_flags("flags/own"))
    # The programs that people use.
    for change in ("+i", "-i", "+a", "=dA"):
        subprocess.run(["chattr", change, "flags/own"], check=True)
        said = subprocess.run(["lsattr", "flags/own"], capture_output=True, check=True, text=True).stdout
        print(change, said.replace("e", "-"), show_flags("flags/own"))


def projects():
    """Project ids, what hands them down, and what they keep apart."""
    os.mkdir("projects")
    make("projects/own", "file", 0o644)()
    for bits in (0x8, 0x10, 0x40, 0x80, 0x200, 0x298, 0):
        for path in ("projects", "projects/own"):
            print(f"{bits:x}", tried(lambda: set_project(path, bits, 42)), show_flags(path))
    set_project("projects", 0x2C0, 43)
    for kind in ("file", "dir", "fifo", "link", "unnamed"):
        print(tried(make(f"projects/{kind}", kind, 0o755)))
    for path in ("projects", "projects/file", "projects/dir", "projects/unnamed", "projects/own"):
        print(show_flags(path))
    make("stranger", "file", 0o644)()
    print(tried(lambda: os.link("stranger", "projects/stranger")))
    print(tried(lambda: os.rename("stranger", "projects/stranger")))
    print(tried(lambda: os.rename("projects/own", "projects/moved")))


def copied(path, target, length):
    with_file(path, os.O_RDONLY, lambda fd: with_file(target, os.O_WRONLY, lambda to: os.copy_file_range(fd, to, length)))


def times():
    """Which times of a file what is done to it moves, though much of it changes nothing."""
    os.mkdir("times")
    acts = {
        "truncate to the same": lambda path: os.truncate(path, 7),
        "ftruncate to the same": lambda path: with_file(path, os.O_RDWR, lambda fd: os.ftruncate(fd, 7)),
        "truncate to more": lambda path: os.truncate(path, 70_000),
        "ftruncate to the same again": lambda path: with_file(path, os.O_RDWR, lambda fd: os.ftruncate(fd, 70_000)),
        "open to cut": lambda path: os.close(os.open(path, os.O_WRONLY | os.O_TRUNC)),
        "open to cut nothing": lambda path: os.close(os.open(path, os.O_WRONLY | os.O_TRUNC)),
        "chmod to the same": lambda path: os.chmod(path, 0o666),
        "chown to the same": lambda path: os.chown(path, USERS[0], GROUPS[0]),
        "chown to nobody": lambda path: os.chown(path, -1, -1),
        "chattr": lambda path: set_flags(path, NODUMP),
        "chattr to the same": lambda path: set_flags(path, NODUMP),
        "write nothing": lambda path: with_file(path, os.O_WRONLY, lambda fd: os.write(fd, b"")),
        "read": lambda path: with_file(path, os.O_RDONLY, lambda fd: os.read(fd, 10)),
    }
    for user in (0, *USERS):
        path = f"times/{user}"
        with open(path, "w") as file:
            file.write("content")
        os.chown(path, USERS[0], GROUPS[0])
        os.chmod(path, 0o666)
        for name, act in acts.items():
            before = os.stat(path)
            time.sleep(0.02)
            said = as_user(user, GROUPS[0], [], lambda: act(path))
            after = os.stat(path)
            moved = [word for word in ("st_mtime_ns", "st_ctime_ns") if getattr(before, word) != getattr(after, word)]
            print(user, name, said, *moved, after.st_size)
    with open("times/source", "w") as file:
        file.write("content" * 10_000)
    os.utime("times/source", (1, 1))
    for length in (0, 5, 50_000):
        before = os.stat("times/source")
        said = tried(lambda: copied("times/source", path, length))
        after = os.stat("times/source")
        print("copy", length, said, *(name for name in dir(after) if name.endswith("_ns") and getattr(before, name) != getattr(after, name)))
    for bits in (IMMUTABLE, APPEND):
        set_flags(path, bits)
        print(f"{bits:x}", tried(lambda: os.chown(path, -1, -1)))
        set_flags(path, 0)


def attributes():
    """Who may set, get and remove attributes of what is not theirs, by their names."""
    os.mkdir("attributes")
    paths = [make(f"attributes/{kind}", kind, 0o600)() or f"attributes/{kind}" for kind in ("file", "dir", "link", "fifo")]
    names = ["system.evil", "system.", "system.posix_acl", ACCESS + "x", "System.evil", "foo.bar", "none", "user.", "user.name"]
    names += ["trusted.name", "security.name"]
    for user in (0, USERS[0]):
        for path in [".", *paths]:
            for name in names:
                act = lambda action: as_user(user, user, [], lambda: action(path))
                print(
                    user,
                    path,
                    name,
                    act(lambda path: os.getxattr(path, name, follow_symlinks=False)),
                    act(lambda path: os.removexattr(path, name, follow_symlinks=False)),
                    act(lambda path: os.setxattr(path, name, b"value", follow_symlinks=False)),
                    act(lambda path: os.getxattr(path, name, follow_symlinks=False)),
                    act(lambda path: os.removexattr(path, name, follow_symlinks=False)),
                    act(lambda path: sorted(os.listxattr(path, follow_symlinks=False))),
                )


def refusals():
    """Lists that cannot be."""
    os.mkdir("refused")
    with open("refused/file", "w"):
        pass
    os.symlink("file", "refused/link")
    good = pack([(OWNER, 6, NOBODY), (GROUP, 4, NOBODY), (OTHER, 0, NOBODY)])
    unmasked = pack([(OWNER, 6, NOBODY), (USER, 4, 1), (GROUP, 4, NOBODY), (OTHER, 0, NOBODY)])
    for value in (good, unmasked, b"", b"\2\0\0\0", b"\3\0\0\0", good[:-1], good[:-8], good + good[4:]):
        for name in (ACCESS, DEFAULT):
            for path in ("refused", "refused/file", "refused/link"):
                said = tried(lambda: os.setxattr(path, name, value, follow_symlinks=False))
                print(name, value.hex(), path, said, show(path))
                print(tried(lambda: os.removexattr(path, name, follow_symlinks=False)), show(path))
    for flags in (os.XATTR_CREATE, os.XATTR_REPLACE):
        print(tried(lambda: os.setxattr("refused/file", ACCESS, good, flags)), show("refused/file"))
    for user in (0, USERS[0]):
        os.setxattr("refused/file", "trusted.hidden", b"value")
        print(user, as_user(user, user, [], lambda: sorted(os.listxattr("refused/file"))))


def many_entries():
    """Lists of many entries, as many as ext4 can hold."""
    os.mkdir("many")
    for users in (10, 60, 200):
        value = [(OWNER, 7, NOBODY)]
        value += [(USER, 5, 10_000 + user) for user in range(users)]
        value += [(GROUP, 5, NOBODY), (MASK, 5, NOBODY), (OTHER, 0, NOBODY)]
        os.setxattr("many", DEFAULT, pack(value))
        for kind in ("file", "dir"):
            path = f"many/{kind}-{users}"
            make(path, kind, 0o777)()
            print(users, show(path))


os.chdir(sys.argv[1])
seed, steps = int(sys.argv[2]), int(sys.argv[3])
os.umask(0o022)
if sys.argv[4:] != ["without-projects"]:
    projects()
privileges()
execution()
groups()
flags()
times()
attributes()
refusals()
many_entries()
sequence(random.Random(seed), steps)
