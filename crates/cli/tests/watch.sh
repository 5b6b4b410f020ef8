#!/bin/bash
# What one sees of a mount that works: top at a terminal, iostat, metrics, doctor; and what a mount says of what it hides, and
# of a copy of a volume. Needs root.
#
#   watch.sh LOAMFS
set -euo pipefail

loamfs=$(realpath "$1")
. "$(dirname "$0")/common.sh"

mkdir "$mnt"
"$loamfs" mkfs -q --size 256M --label watched "$image"
mount_it
"$loamfs" doctor "$mnt" >"$work/out" || [ $? -eq 4 ]
grep -q "never scrubbed" "$work/out" || fail "doctor does not miss the scrub: $(cat "$work/out")"
"$loamfs" iostat --json "$mnt" 0.2 6 >"$work/lines" &
watcher=$!
mkdir "$mnt/tree"
for number in $(seq 300); do echo "$number" >"$mnt/tree/$number"; done
cat "$mnt"/tree/* >/dev/null
! rmdir "$mnt/tree" 2>/dev/null
rm "$mnt"/tree/1*
sync
wait $watcher
python3 - "$work/lines" <<'END'
import json, sys
first, *rest = [json.loads(line) for line in open(sys.argv[1])]
assert len(rest) == 5 and first["seconds"] is None and all(0.1 < line["seconds"] < 60 for line in rest), rest
END
"$loamfs" info --json "$mnt" | python3 -c '
import json, sys
operations = json.load(sys.stdin)["operations"]
made, written = operations["make"], operations["write"]
assert made["requests"] >= 301 and made["errors"] == 0, made
assert written["requests"] >= 300 and written["bytes"] >= 300 * 2, written
removed = operations["remove"]
assert removed["errors"] == 1 and removed["requests"] >= 100 and made["nanoseconds"] > 0, removed
last = made["within"][-1]
assert 0 < last["requests"] <= made["requests"], made'
"$loamfs" info "$mnt" | grep -Eq "^ +make +[0-9]+ of +[0-9.]+ (us|ms|s)" || fail "info has no operations"
[ "$("$loamfs" iostat "$mnt" 0.1 3 | wc -l)" -eq 7 ] || fail "iostat does not say three lines below two heads"
# Whoever prints again and again ends when nobody reads it any more.
unread() {
    timeout 20 "$loamfs" "$@" | head -n 1 >"$work/out" || fail "$1 goes on though nobody reads it"
    [ -s "$work/out" ] || fail "$1 says nothing"
}
unread iostat "$mnt" 0.1
unread iostat --json "$mnt" 0.1
unread top --json --interval 0.1 "$mnt"
ok "operations are counted by kind, with errors, bytes and times; iostat tells them by the second"

"$loamfs" metrics "$mnt" >"$work/metrics"
python3 - "$work/metrics" <<'END'
import re, sys
lines = open(sys.argv[1]).read().splitlines()
assert lines[-1] == "# EOF"
family, kind, seen = None, None, set()
for line in lines[:-1]:
    if found := re.fullmatch(r"# TYPE (\w+) (counter|gauge)", line):
        family, kind = found.groups()
        assert family not in seen, line
        seen.add(family)
    elif not line.startswith(f"# HELP {family} "):
        suffix = "_total" if kind == "counter" else ""
        assert re.fullmatch(rf'{family}{suffix}\{{(\w+="[^"]*",?)+\}} [0-9.e+-]+', line), line
assert {"loamfs_operations", "loamfs_device_writes", "loamfs_available_bytes"} <= seen, seen
END
"$loamfs" metrics --json | python3 -c "
import json, sys
assert '$mnt' in [volume['mountpoint'] for volume in json.load(sys.stdin)]"
ok "metrics are OpenMetrics"

expect 64 "$loamfs" top "$mnt"
grep -q "needs a terminal" "$work/out" || fail "top without a terminal: $(cat "$work/out")"
# At a terminal of 80 by 24, with a program that works meanwhile.
python3 - "$loamfs" "$mnt" <<'END'
import fcntl, os, pty, re, select, struct, subprocess, sys, termios, time
loamfs, mnt = sys.argv[1:]
busy = subprocess.Popen(["sh", "-c", f"while :; do echo x >{mnt}/busy; cat {mnt}/busy >/dev/null; rm {mnt}/busy; done"])
try:
    pid, terminal = pty.fork()
    if not pid:
        time.sleep(0.2)
        os.execve(loamfs, [loamfs, "top", "--interval", "0.25", mnt], dict(os.environ, TERM="xterm-256color"))
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    text, end = "", time.monotonic() + 30
    # Only what changes is drawn anew: all that was ever drawn is looked at.
    wanted = ["watched", "operations", "processes", "device", "lookup", "segment", "in use", " sh "]
    while not all(word in text for word in wanted):
        assert time.monotonic() < end, (wanted, text)
        if select.select([terminal], [], [], 1)[0]:
            text += re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", " ", os.read(terminal, 65536).decode(errors="replace"))
            text = re.sub(r" +", " ", text)
    os.write(terminal, b"q")
    while select.select([terminal], [], [], 10)[0]:
        try:
            if not os.read(terminal, 65536):
                break
        except OSError:
            break
    assert os.waitpid(pid, 0)[1] == 0
finally:
    busy.kill()
END
ok "top shows who asks for what, and ends when it is told to"

# ---- what a mount hides, and copies of a volume --------------------------------------------------------------------------

"$loamfs" unmount "$mnt"
cp --sparse=always "$image" "$work/copy.img"
mkdir "$work/copy"
mount_it
"$loamfs" mount -o "log=$work/copy.log" "$work/copy.img" "$work/copy" >/dev/null 2>"$work/out"
grep -q "volume on $mnt has the same UUID" "$work/out" || fail "a copy is mounted without a word: $(cat "$work/out")"
"$loamfs" unmount "$work/copy"
"$loamfs" mkfs -q --force --size 64M "$work/copy.img"
"$loamfs" mount -o "log=$work/copy.log" "$work/copy.img" "$mnt" >/dev/null 2>"$work/out"
grep -q "hides what was mounted on $mnt" "$work/out" || fail "a mount is hidden without a word: $(cat "$work/out")"
"$loamfs" unmount "$mnt"
[ -d "$mnt/tree" ] || fail "what was hidden is not back"
grep -q "mounted $image on $mnt" "$work/daemon.log" || fail "the log does not say mounted"
"$loamfs" unmount "$mnt"
expect 0 "$loamfs" check "$image"
ok "a mount tells what it hides, and that another volume has the same UUID"

# A daemon that died, and with it who would have cleared its mount.
mount_it
exec 7<"$mnt/tree"
pid=$(daemon)
kill -9 "$(ps -o ppid= -p "$pid" | tr -d " ")" "$pid"
is_gone() { [ ! -e "/proc/$pid" ]; }
until_it is_gone
expect 75 "$loamfs" mkfs --force "$image"
advice=$(grep -o '`loamfs unmount [^`]*`' "$work/out" | tr -d '`') || fail "no advice: $(cat "$work/out")"
expect 0 "$loamfs" ${advice#loamfs }
expect 75 "$loamfs" mkfs --force "$image"
grep -q "process $$ (bash)" "$work/out" || fail "who holds it is not named: $(cat "$work/out")"
exec 7<&-
is_made() { "$loamfs" mkfs -q --force "$image" 2>/dev/null; }
until_it is_made
ok "where a dead mount holds an image, what mkfs advises helps"
