# How wide the lines are that a command prints: at a terminal of 80 columns, with and without NO_COLOR, and into a pipe.
#
#   columns.py LOAMFS WORK MOUNTPOINT
import fcntl, os, pty, re, struct, subprocess, sys, termios

loamfs, work, mnt = sys.argv[1:]
COLUMNS = 80
image, other = f"{work}/volume.img", f"{work}/other.img"

bad = []


def shown(text):
    """What stands on a terminal: without what moves the cursor, and of a line that is written over only the last state."""
    text = re.sub(r"\x1b\][^\x07\x1b]*(\x07|\x1b\\)|\x1b[\[(][0-9;?]*[A-Za-z]", "", text)
    return [line.rstrip("\r").rsplit("\r", 1)[-1] for line in text.split("\n")]


def at_terminal(words, extra):
    pid, terminal = pty.fork()
    if not pid:
        os.execve(loamfs, [loamfs] + words, dict(os.environ, TERM="xterm", **extra))
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, COLUMNS, 0, 0))
    text = b""
    while True:
        try:
            piece = os.read(terminal, 65536)
        except OSError:
            break
        if not piece:
            break
        text += piece
    os.waitpid(pid, 0)
    return text.decode(errors="replace")


def piped(words, extra):
    done = subprocess.run([loamfs] + words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          env=dict(os.environ, **extra), text=True, errors="replace", check=False)
    # A message is one line there, as programs look for it.
    return done.stdout


WAYS = [("at a terminal", at_terminal, {}), ("with NO_COLOR", at_terminal, {"NO_COLOR": "1"}), ("piped", piped, {})]


def measure(*words, ways=WAYS):
    words = list(words)
    for name, run, extra in ways:
        # A dump is a line a thing there, as programs search it.
        if words[0] == "dump" and run is piped:
            continue
        text = run(words, extra)
        # Words of the caller, such as a path, are never broken.
        wide = [line for line in shown(text) if len(line) > COLUMNS and len(max(line.split(), key=len)) < 60]
        if wide:
            bad.append((" ".join(words), name, max(map(len, wide)), wide[0]))
        if "NO_COLOR" in extra and re.search(r"\x1b\[[0-9;]*m", text):
            bad.append((" ".join(words), "is coloured with NO_COLOR", 0, ""))
        if run is piped and "\x1b" in text:
            bad.append((" ".join(words), "has colours or moves the cursor in a pipe", 0, ""))


def commands(words):
    """A command and those below it, from its help."""
    yield words
    text = piped(words + ["--help"], {})
    listed = re.search(r"^Commands:\n((?:  .*\n|\n)+)", text, re.M)
    for name in re.findall(r"^  ([a-z][a-z-]*)(?: |$)", listed[1] if listed else "", re.M):
        if name != "help":
            yield from commands(words + [name])


known = list(commands([]))
for words in known:
    measure(*words, "--help")
    measure(*words, "-h", ways=WAYS[2:])
print(f"{len(known)} commands have help")

# What is reported of a volume that is mounted, and of one that is not.
for words in (
    ["info", mnt], ["info", other], ["doctor", mnt], ["iostat", mnt, "1", "1"], ["label", mnt], ["map", f"{mnt}/tree/large"],
    ["map", f"{mnt}/tree/small1"], ["device", "list", mnt], ["scrub", "status", mnt], ["scrub", "start", "--wait", mnt],
    ["settle", mnt], ["clean", mnt], ["place", mnt, "auto"], ["trim", mnt], ["drop-caches", mnt], ["check", other], ["ls", "-l", other, "/tree"],
    ["ls", other, "/tree"], ["tree", "-L", "1", other], ["stat", other, "/tree/large"], ["cat", other, "/tree/words"],
    ["put", other, f"{work}/tree", "/again"], ["get", "--force", other, "/tree", f"{work}/out.d"], ["label", other],
    ["salvage", other, f"{work}/saved"], ["mkfs", "--force", f"{work}/third.img", "--size", "64M"],
    ["grow", "--size", "80M", f"{work}/third.img"], ["mount", f"{work}/third.img", f"{work}/mnt3"], ["unmount", f"{work}/mnt3"],
    ["upgrade", mnt],
):
    measure(*words)
for part in ("superblock", "groups", "segments", "ifile", "inode 32", "dir 2", "extents 32", "checksums 32", "bitmap", "owners",
             "lazy", "atimes"):
    measure("dump", other, *part.split())

# Mistakes.
for words in (
    ["mount", "-o", "chache=1G", image, mnt], ["mount", "-o", "cache=1", image, mnt], ["mount", f"{work}/none", mnt],
    ["mount", image, f"{work}/none"], ["mount", f"{work}/text", f"{work}/mnt3"], ["mkfs", other], ["mkfs", image],
    ["mkfs", "--size", "1TB", f"{work}/new"], ["mkfs", "--size", "1", f"{work}/new"], ["check", f"{work}/text"],
    ["check", image], ["unmount", work], ["info", work], ["moutn", image, mnt], ["get", other, "/none", work],
    ["put", other, f"{work}/tree", "/"], ["scrub", "status", other], ["device", "remove", other, other], ["grow", mnt],
    ["dump", other, "segment", "999999"], ["dump", other, "nothing"], ["trim", work], ["map", f"{work}/text"],
):
    measure(*words)

for words, how, width, line in bad:
    print(f"`loamfs {words}` {how}: {width or ''} {line}")
sys.exit(bool(bad))
