#!/bin/bash
# What shells complete, in a real bash at a real terminal: commands, switches, paths, options of a mount, what is mounted;
# and what file(1) says of a volume.
#
#   completion.sh LOAMFS
set -euo pipefail

loamfs=$(realpath "$1")
. "$(dirname "$0")/common.sh"
here=$(realpath "$(dirname "$0")")

# The script calls the program by its name.
mkdir "$work/bin" "$work/a place"
ln -s "$loamfs" "$work/bin/loamfs"
ln -s "$loamfs" "$work/bin/mount.loamfs"
bench=$(dirname "$loamfs")/loamfs-bench
export PATH=$work/bin:$PATH
for name in loamfs mount.loamfs; do
    loamfs completions bash "$name" >"$work/$name.bash"
done
cd "$work"
loamfs mkfs -q --size 64M -L "two words" "volume.img"

python3 - "$work" "$([ -x "$bench" ] && echo bench)" <<'END'
import os, pty, select, sys, time
work, bench = sys.argv[1:]

# What is typed before the key TAB, and what must stand there then.
CASES = [
    ("loamfs mou", "loamfs mount "),
    ("loamfs mount vol", "loamfs mount volume.img "),
    ("loamfs mount volume.img a\\ p", "loamfs mount volume.img a\\ place/"),
    ("loamfs mount -o ro,noat", "loamfs mount -o ro,noatime "),
    ("loamfs mount -o cac", "loamfs mount -o cache="),
    ("loamfs mount -o noatime,transport=u", "loamfs mount -o noatime,transport=uring "),
    ("loamfs mount -o ro,log=/etc/hostn", "loamfs mount -o ro,log=/etc/hostname "),
    ("mount.loamfs volume.img /mnt -o accept", "mount.loamfs volume.img /mnt -o accept-loss "),
    ("loamfs dump volume.img superb", "loamfs dump volume.img superblock "),
    ("loamfs dump vol", "loamfs dump volume.img "),
    ("loamfs unmount vol", "loamfs unmount volume.img "),
    ("loamfs check --rep", "loamfs check --repair "),
    ("loamfs scrub stat", "loamfs scrub status "),
] + [("loamfs bench run --scale=sm", "loamfs bench run --scale=small ")] * bool(bench)

pid, terminal = pty.fork()
if not pid:
    os.execvpe("bash", ["bash", "--norc", "--noprofile", "-i"], dict(os.environ, PS1="> ", TERM="dumb"))

def read_until(wanted):
    text, end = "", time.monotonic() + 30
    while wanted not in text:
        assert time.monotonic() < end, f"never {wanted!r} in {text!r}"
        if select.select([terminal], [], [], 1)[0]:
            text += os.read(terminal, 4096).decode()
    return text

def say(text):
    os.write(terminal, text.encode())

say("bind 'set bell-style none'; bind 'set horizontal-scroll-mode off'; stty cols 200\n")
say(f". {work}/loamfs.bash; . {work}/mount.loamfs.bash; echo rea''dy\n")
read_until("ready")
for typed, wanted in CASES:
    say(f"{typed}\t")
    read_until(wanted)
    # Not run: killed.
    say("\x15\n")
say("exit\n")
print(len(CASES), "lines were completed")
END
ok "bash completes commands, switches, paths with blanks, options of a mount and what stands behind them"

for shell in zsh fish; do
    loamfs completions $shell >"$work/loamfs.$shell"
    if command -v $shell >/dev/null; then $shell -n "$work/loamfs.$shell"; fi
done
# The same that zsh and fish ask.
[ "$(LOAMFS_COMPLETE=fish loamfs -- loamfs mount -o ro,noat)" = ro,noatime ] || fail "fish"
[ "$(_CLAP_COMPLETE_INDEX=2 LOAMFS_COMPLETE=zsh loamfs -- loamfs mount vol)" = volume.img ] || fail "zsh"
ok "zsh and fish are answered"

if command -v file >/dev/null; then
    said=$(file -m "$here/../data/loamfs.magic" volume.img)
    for words in "LoamFS volume, version 1" 'label "two words"' "UUID $(loamfs info --json volume.img | sed -n 's/.*"uuid": "\(.*\)".*/\1/p')"; do
        [[ $said == *"$words"* ]] || fail "file says: $said"
    done
    ok "file(1) knows a volume"
fi
