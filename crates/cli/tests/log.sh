#!/bin/bash
# The daemon's messages in the system's log: one that nobody reads keeps nobody waiting, one that comes again is found.
# Needs root, for a /dev and a /run/loamfs of its own.
#
#   log.sh LOAMFS
set -euo pipefail

# Where these are this run's alone.
[ -n "${LOAMFS_PRIVATE-}" ] || exec env LOAMFS_PRIVATE=1 unshare -m bash "$0" "$@"

loamfs=$(realpath "$1")
. "$(dirname "$0")/common.sh"
listener=

last_words() {
    [ -z "$listener" ] || hang_up
    tally log "$1"
}

# Who listens at /dev/log, and reads only while $work/reads is there; what it hears is in $work/heard.
cat >"$work/listener.py" <<'END_OF_LISTENER'
import os, socket, sys, time
work = sys.argv[1]
listener = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
listener.bind("/dev/log")
listener.settimeout(0.1)
with open(work + "/heard", "ab", buffering=0) as heard:
    while True:
        if not os.path.exists(work + "/reads"):
            time.sleep(0.1)
            continue
        try:
            heard.write(listener.recv(65536) + b"\n")
        except TimeoutError:
            pass
END_OF_LISTENER

listen() {
    rm -f /dev/log
    python3 "$work/listener.py" "$work" &
    listener=$!
    until_it test -S /dev/log
}

hang_up() {
    kill -9 "$listener"
    wait "$listener" 2>/dev/null || true
    listener=
}

heard() { grep -qs "$1" "$work/heard"; }

# One error of the daemon's.
read_damaged() {
    ! cat "$mnt/damaged" >/dev/null 2>&1 || fail "a damaged file is read"
}

# More errors than a log takes that nobody reads. They are read beside this script, which would wait with them for ever.
fill_the_log() {
    local reader
    (for _ in $(seq 400); do read_damaged; done) &
    reader=$!
    has_read() { ! kill -0 "$reader" 2>/dev/null; }
    until_it has_read
    wait "$reader"
}

mkdir "$mnt" "$work/dev"
mount -t tmpfs tmpfs "$work/dev"
mknod -m 666 "$work/dev/null" c 1 3
mknod -m 666 "$work/dev/fuse" c 10 229
"$loamfs" mkfs --size 64M "$image" >"$work/out"
head -c 3000000 /dev/urandom >"$work/damaged"
"$loamfs" put "$image" "$work/damaged" /damaged >"$work/out" 2>&1
at=$("$loamfs" map --json "$image" /damaged | sed -n 's/.*"at": \([0-9]*\).*/\1/p' | head -1)
head -c 4096 /dev/urandom | dd of="$image" bs=1 seek="$at" conv=notrunc status=none
mount --move "$work/dev" /dev
mkdir -p /run/loamfs
mount -t tmpfs -o mode=700 tmpfs /run/loamfs

touch "$work/reads"
listen
"$loamfs" mount -o plain "$image" "$mnt" >"$work/out"
read_damaged
until_it heard "<27>loamfs\[[0-9]*\]: .*does not match its checksum"
ok "errors are in the system's log"

# What info tells of them outlives the daemon that met them, once that has looked around.
told() { "$loamfs" info "$mnt" | sed -n '/^errors/s/.*UTC: //p; /^damaged/p'; }
told >"$work/before"
grep -q "^[1-9][0-9]* for damage" "$work/before" && grep -q "^damaged   damaged: " "$work/before" || fail "info says $(cat "$work/before")"
sleep 3
kill -9 "$(daemon)"
is_replaced() { "$loamfs" info "$mnt" | grep -q "^replaced  1 daemon died"; }
until_it is_replaced
told | diff "$work/before" - >"$work/out" || fail "after another daemon it says $(cat "$work/out")"
ok "errors and damaged files are told after another daemon too"

rm "$work/reads"
fill_the_log
ok "a log that nobody reads keeps nobody waiting"
touch "$work/reads"
loss_is_told() {
    read_damaged
    heard "([1-9][0-9]* messages before this one were lost) "
}
until_it loss_is_told
ok "what was lost is counted"

# Of one kind of error there are only so many.
for _ in $(seq 400); do read_damaged; done
said=$(grep -c "does not match its checksum" "$work/heard")
[ "$said" -lt 300 ] || fail "a damaged file is told of $said times"
ok "a damaged file does not fill the log"

"$loamfs" unmount "$mnt"
"$loamfs" mount -o plain "$image" "$mnt" >"$work/out"
hang_up
rm "$work/heard"
read_damaged
grep -q "does not match its checksum" /run/loamfs/*.log || fail "an error is in no log"
listen
read_damaged
until_it heard "<27>loamfs\[[0-9]*\]: .*does not match its checksum"
ok "without a log there is a file; a listener that comes again hears the next message"

rm "$work/reads"
fill_the_log
pid=$(daemon)
kill -TERM "$pid"
is_gone() { ! kill -0 "$pid" 2>/dev/null; }
until_it is_gone
ok "a daemon ends though nobody reads its log"
