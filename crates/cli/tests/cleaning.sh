#!/bin/bash
# A daemon that is killed while its cleaner works: on a volume that is nearly full and written over, and during `loamfs clean`.
# What was synced is there, nothing older and nothing of another file. Needs root.
#
#   cleaning.sh LOAMFS
set -euo pipefail

loamfs=$(realpath "$1")
. "$(dirname "$0")/common.sh"
mkdir "$mnt"

# Files whose 4 KiB pieces say which file and which version they are. Which version is being written, which is, and what was
# synced, is told in lines outside of the volume.
cat >"$work/files.py" <<'END'
import os, random, struct, sys

PIECE = 4096
mnt, told = sys.argv[2], sys.argv[3]

def name(number):
    return f"{mnt}/dir{number % 8}/file{number}"

def pieces(number):
    return 16 if number % 50 == 0 else 1 + number % 4

def piece(number, version, place):
    return struct.pack("<QQQ", number, version, place) * (PIECE // 24) + b"\0" * (PIECE % 24)

def write(number, version):
    with open(name(number), "r+b" if version else "xb", buffering=0) as file:
        for place in range(pieces(number)):
            file.write(piece(number, version, place))

def fill(percent):
    for number in range(8):
        os.mkdir(f"{mnt}/dir{number}")
    number = 0
    while True:
        room = os.statvfs(mnt)
        if room.f_bavail * 100 < room.f_blocks * (100 - percent):
            break
        for _ in range(50):
            write(number, 0)
            number += 1
    os.sync()
    with open(told, "w") as lines:
        print("files", number, file=lines)

# Writes over files at random until the daemon dies.
def churn(seed):
    state = read_told()
    chance = random.Random(seed)
    lines = open(told, "a", buffering=1)
    print("begins", file=lines)
    while True:
        some = [chance.randrange(state["files"]) for _ in range(64)]
        for number in some:
            version = state["most"].get(number, 0) + 1
            state["most"][number] = version
            print("begun", number, version, file=lines)
            write(number, version)
            print("written", number, version, file=lines)
        # What of it is large is not synced with others.
        for number in some:
            fd = os.open(name(number), os.O_RDONLY)
            os.fsync(fd)
            os.close(fd)
        print("synced", file=lines)

def read_told():
    state, written = {"files": 0, "most": {}, "least": {}}, {}
    for line in open(told):
        match line.split():
            case ["files", count]:
                state["files"] = int(count)
            case ["begins"]:
                written = {}
            case ["begun", number, version]:
                state["most"][int(number)] = int(version)
            case ["written", number, version]:
                written[int(number)] = int(version)
            case ["synced"]:
                state["least"].update(written)
                written = {}
    return state

# Each piece is of its file, and no older than what was synced.
def verify():
    state = read_told()
    for number in range(state["files"]):
        content = open(name(number), "rb").read()
        assert len(content) == pieces(number) * PIECE, f"file {number} has {len(content)} bytes"
        least, most = state["least"].get(number, 0), state["most"].get(number, 0)
        for place in range(pieces(number)):
            found = content[place * PIECE:(place + 1) * PIECE]
            version = struct.unpack_from("<Q", found, 8)[0]
            assert found == piece(number, version, place), f"file {number}, piece {place}: not of this file"
            assert least <= version <= most, f"file {number}, piece {place}: {version} of {least} to {most}"

{"fill": lambda: fill(int(sys.argv[4])), "churn": lambda: churn(int(sys.argv[4])), "verify": verify}[sys.argv[1]]()
END

files() {
    python3 "$work/files.py" "$1" "$mnt" "$work/told" "${@:2}"
}

# What the cleaner of this mount has moved.
moved() {
    "$loamfs" info --json "$mnt" | sed -n 's/.*"moved_bytes": \([0-9]*\).*/\1/p'
}

moves_since() {
    [ "$(moved)" -gt "$1" ]
}

# The volume is sound, and its files are what they may be.
is_whole() {
    expect 0 "$loamfs" check "$image"
    mount_it cache=16M
    files verify || fail "$1"
}

"$loamfs" mkfs --quiet --size 128M "$image"
mount_it cache=16M
files fill 82
ok "$(sed -n 's/^files //p' "$work/told") files fill four fifths of 128 MiB"

for round in $(seq 6); do
    before=$(moved)
    files churn "$round" 2>"$work/churn" &
    writer=$!
    until_it moves_since "$before"
    sleep "0.$((round * 7 % 10))"
    kill -0 $writer || fail "round $round: $(tail -3 "$work/churn")"
    power_cut
    ! wait $writer || fail "round $round: it writes without end"
    is_whole "round $round"
done
ok "killed 6 times while they are written over and cleaned: what was synced is there"

for round in $(seq 3); do
    files churn "$((100 + round))" 2>"$work/churn" &
    writer=$!
    sleep 1
    kill $writer
    ! wait $writer || fail "it writes without end"
    sync -f "$mnt"
    echo synced >>"$work/told"
    before=$(moved)
    "$loamfs" clean --until 95% "$mnt" >"$work/clean" 2>&1 &
    cleaning=$!
    until_it moves_since "$before"
    sleep "0.0$((round * 3 % 10))"
    power_cut
    wait $cleaning || true
    is_whole "clean, round $round"
done
ok "killed 3 times during loamfs clean: all is there"

expect 0 "$loamfs" unmount "$mnt"
expect 0 "$loamfs" check "$image"
