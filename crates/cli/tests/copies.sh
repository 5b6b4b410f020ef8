#!/bin/bash
# put, get and tree beside somebody who wants more than is theirs, with files that cannot be copied, and with trees deeper
# than any path is long. Needs root.
#
#   copies.sh LOAMFS
set -euo pipefail

# What is mounted is this run's alone.
[ -n "${LOAMFS_PRIVATE-}" ] || exec env LOAMFS_PRIVATE=1 unshare -m bash "$0" "$@"

loamfs=$(realpath "$1")
. "$(dirname "$0")/common.sh"
own=$work/own
attacker=

last_words() {
    [ -z "$attacker" ] || kill "$attacker" 2>/dev/null
    tally copies "$1"
}

# A program of somebody who is not root, beside the next command.
attack() {
    # What root has in its PATH may be for root alone.
    setpriv --reuid=nobody --regid=nogroup --clear-groups env PATH=/usr/bin:/bin python3 - "$@" <&0 &
    attacker=$!
}

# Puts a link in the place of what root makes or reads, as soon as it is there or, if it is there, as soon as a file in it
# is opened.
swap() {
    attack "$@" <<'END'
import ctypes, os, sys, time
name, aside, target, watched = sys.argv[1:]
if watched:
    libc = ctypes.CDLL(None)
    events = libc.inotify_init()
    assert libc.inotify_add_watch(events, watched.encode(), 0x20) >= 0
    open(aside + ".ready", "w").close()
    os.read(events, 4096)
while not os.path.lexists(name):
    time.sleep(0.001)
os.rename(name, aside)
os.symlink(target, name)
END
}

mkdir "$own" "$mnt" "$work/victim"
chmod 711 "$work"
chown nobody:nogroup "$own"
echo secret >"$work/victim/secret"
chmod 600 "$work/victim/secret"
chmod 700 "$work/victim"

"$loamfs" mkfs -q --size 1G "$image"
mkdir "$work/tree"
# Large enough that whoever waits for it comes in between.
head -c 100000000 /dev/urandom >"$work/tree/large"
for number in $(seq 30); do echo "$number" >"$work/tree/small$number"; done
chmod 666 "$work/tree/large"
"$loamfs" put "$image" "$work/tree" / 2>"$work/out"

# ---- get, into a directory of somebody else's ---------------------------------------------------------------------------

swap "$own/got" "$own/aside" "$work/victim/secret" ""
expect 0 "$loamfs" get "$image" /tree/large "$own/got"
wait "$attacker" || fail "nobody came in between"
[ "$(stat -c %a:%u "$work/victim/secret")" = 600:0 ] || fail "get changed a file that a planted link leads to"
[ "$(stat -c %a "$own/aside")" = 666 ] || fail "get left the mode out"
cmp "$work/tree/large" "$own/aside" || fail "get left content out"
rm -f "$own/got" "$own/aside"

swap "$own/got" "$own/aside" "$work/victim" ""
expect 0 "$loamfs" get "$image" /tree "$own/got"
wait "$attacker" || fail "nobody came in between"
[ "$(ls "$work/victim")" = secret ] || fail "get went where a planted link leads: $(ls "$work/victim")"
[ "$(stat -c %a "$work/victim")" = 700 ] || fail "get changed a directory that a planted link leads to"
diff -r "$work/tree" "$own/aside" || fail "get lost files"
rm -r "$own/got" "$own/aside"
ok "get writes to nothing that planted links lead to"

# Of somebody's file, nothing that its owner could have put a program into gets rights of others.
cp /bin/true "$work/tree/program"
chown nobody:shadow "$work/tree/program"
chmod 6755 "$work/tree/program"
mkdir "$work/tree/down"
cp -p "$work/tree/program" "$work/tree/down"
expect 0 "$loamfs" put "$image" "$work/tree/program" "$work/tree/down" /
expect 74 "$loamfs" get "$image" /program "$own"
grep -q "program: its set-group-id bit is left out" "$work/out" || fail "not told: $(cat "$work/out")"
[ "$(stat -c %a:%U:%G "$own/program")" = 4755:nobody:shadow ] || fail "$(stat -c %a:%U:%G "$own/program")"
expect 0 "$loamfs" get "$image" /down "$own"
[ "$(stat -c %a:%U:%G "$own/down/program")" = 6755:nobody:shadow ] || fail "a program in a directory of get's own"
# Nor does it inherit what its directory gives to others.
python3 - "$own" <<'END'
import os, struct, sys
entry = lambda tag, bits, who=0xffffffff: struct.pack("<HHI", tag, bits, who)
lists = [entry(1, 7), entry(2, 7, 1234), entry(4, 0), entry(16, 7), entry(32, 0)]
os.setxattr(sys.argv[1], "system.posix_acl_default", struct.pack("<I", 2) + b"".join(lists))
END
expect 0 "$loamfs" get "$image" /tree "$own"
python3 - "$own/tree" <<'END' || fail "an access list was inherited"
import os, sys
for name in (sys.argv[1], f"{sys.argv[1]}/large"):
    assert not [name for name in os.listxattr(name) if "acl" in name], name
END
rm -r "$own"/*
ok "get gives no rights that the volume does not name"

# ---- put, of a tree of somebody else's ----------------------------------------------------------------------------------

mkdir "$own/tree"
head -c 100000000 /dev/urandom >"$own/tree/large"
for number in $(seq 30); do
    echo theirs >"$own/tree/file$number"
    echo secret >"$work/victim/file$number"
done
chown -R nobody:nogroup "$own/tree"
swap "$own/tree" "$own/aside" "$work/victim" "$own/tree/large"
until_it test -e "$own/aside.ready"
expect 0 "$loamfs" put "$image" "$own/tree" /theirs
wait "$attacker" || fail "nobody came in between"
for number in $(seq 30); do
    [ "$("$loamfs" cat "$image" "/theirs/file$number")" = theirs ] || fail "put read what a planted link leads to"
done
rm -r "$own"/*
mkdir "$own/special"
mkfifo "$own/special/fifo"
ln -s nowhere "$own/special/link"
python3 -c "import socket, sys; socket.socket(socket.AF_UNIX).bind(sys.argv[1])" "$own/special/socket"
mknod "$own/special/null" c 1 3
chmod 640 "$own/special/null" "$own/special/fifo"
chown -h 12:34 "$own/special"/*
touch -h -d @1000000 "$own/special"/*
expect 0 "$loamfs" put "$image" "$own/special" /
expect 0 "$loamfs" get "$image" /special "$work/special"
shape() { (cd "$1" && stat -c '%N %F %a %u:%g %Y %t:%T' *); }
[ "$(shape "$own/special")" = "$(shape "$work/special")" ] || fail "$(shape "$work/special")"
ok "put reads nothing that planted links lead to; links, fifos, sockets and devices go both ways"

# ---- files that cannot be copied ----------------------------------------------------------------------------------------

at=$("$loamfs" map --json "$image" /tree/large | sed -n 's/.*"at": \([0-9]*\).*/\1/p' | head -1)
head -c 4096 /dev/urandom | dd of="$image" bs=1 seek="$at" conv=notrunc status=none
name=$'\e[31m'
mkdir "$own/tree"
echo mine >"$own/tree/$name"
ln "$own/tree/$name" "$own/tree/other"
"$loamfs" put "$image" "$own/tree/$name" /tree 2>"$work/out"
expect 65 "$loamfs" get "$image" /tree "$work/got"
grep -q "got/large: .*does not match its checksum" "$work/out" || fail "not told: $(cat "$work/out")"
grep -q "^loamfs: 1 of 3[0-9] were not copied" "$work/out" || fail "not counted: $(cat "$work/out")"
for number in $(seq 30); do cmp "$work/tree/small$number" "$work/got/small$number"; done
# The volume's root goes into a directory that is there, which stays as it was.
mkdir "$work/into"
chmod 750 "$work/into"
echo mine >"$work/into/special"
expect 74 "$loamfs" get --json "$image" / "$work/into"
grep -q '{"error":".*into/special exists already' "$work/out" || fail "not told: $(cat "$work/out")"
grep -q '"bad": 3,' "$work/out" || fail "not counted: $(cat "$work/out")"
[ "$(cat "$work/into/special")$(stat -c %a "$work/into")" = mine750 ] || fail "get changed what was there"
cmp "$work/tree/small7" "$work/into/tree/small7"
expect 73 "$loamfs" get "$image" "/tree/$name" "$work/got"
grep -qF 'got/\x1b[31m exists already' "$work/out" || fail "not told, or not escaped: $(cat -v "$work/out")"
! grep -q $'\e' "$work/out" || fail "a name moves the cursor"
ok "what cannot be copied is told and counted, and the rest copied"

mount_it
python3 -c "
import os, sys
os.setxattr(sys.argv[1], 'user.large', b'x' * 60000)
os.setxattr(sys.argv[1], 'user.small', b'y')" "$mnt/tree/small1"
"$loamfs" unmount "$mnt"
truncate -s 16M "$work/ext4.img"
mkfs.ext4 -q "$work/ext4.img"
mkdir "$work/ext4"
mount -o loop "$work/ext4.img" "$work/ext4"
expect 74 "$loamfs" get "$image" /tree/small1 "$work/ext4"
grep -q "small1: its attribute user.large of 58.6 KiB is left out" "$work/out" || fail "not told: $(cat "$work/out")"
python3 -c "
import os, sys
assert os.getxattr(sys.argv[1], 'user.small') == b'y'" "$work/ext4/small1"
cmp "$work/tree/small1" "$work/ext4/small1"
umount "$work/ext4"
ok "attributes that do not fit are told, and the others set"

# ---- deep trees ---------------------------------------------------------------------------------------------------------

# A megabyte of names one below the other, and a file with two names far apart at its end.
python3 - "$work" <<'END'
import os, sys
os.chdir(sys.argv[1])
os.mkdir("deep")
os.chdir("deep")
top = os.open(".", os.O_RDONLY)
for level in range(5000):
    os.mkdir("n" * 200)
    os.chdir("n" * 200)
with open("bottom", "w") as file:
    file.write("here")
os.link("bottom", "linked", dst_dir_fd=top)
END
"$loamfs" mkfs -q --size 256M "$work/deep.img"
# Far fewer files than levels.
(ulimit -n 100 && "$loamfs" put "$work/deep.img" "$work/deep" / && "$loamfs" get "$work/deep.img" /deep "$work/out.d") \
    2>"$work/out" || fail "put and get of a deep tree: $(cut -c 1-200 "$work/out")"
python3 - "$work/out.d" <<'END'
import os, sys
os.chdir(sys.argv[1])
first = os.stat("linked")
for level in range(5000):
    os.chdir("n" * 200)
assert open("bottom").read() == "here"
assert os.path.samestat(os.stat("bottom"), first)
END
for switch in "" --json; do
    # shellcheck disable=SC2086
    python3 - "$loamfs" tree $switch "$work/deep.img" <<'END' || fail "tree $switch of a deep volume"
import resource, subprocess, sys
lines = 0
with subprocess.Popen(sys.argv[1:], stdout=subprocess.PIPE) as tree:
    lines = sum(block.count(b"\n") for block in iter(lambda: tree.stdout.read(1 << 16), b""))
kilobytes = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
assert tree.returncode == 0 and lines > 5000, (tree.returncode, lines)
assert kilobytes < 256 << 10, f"{kilobytes} KiB"
END
done
# rm(1) goes down by descriptors too.
rm -r "$work/deep" "$work/out.d"
ok "put, get and tree of 5,000 levels"
