#!/bin/bash
# Types what README.md says, literally and in its order: the blocks of commands between "## Use" and "### At boot". Needs root.
#
#   readme.sh LOAMFS
set -euo pipefail

# What is mounted on /mnt and /tmp is this run's alone.
[ -n "${LOAMFS_PRIVATE-}" ] || exec env LOAMFS_PRIVATE=1 unshare -m bash "$0" "$@"

loamfs=$(realpath "$1")
. "$(dirname "$0")/common.sh"
# What is mounted on /mnt is not below the directory of this run.
last_words() {
    mountpoint -q /mnt && umount /mnt
    tally readme "$1"
}

readme=$(realpath "$(dirname "$0")/../../../README.md")

mkdir "$work/bin" "$work/home" "$work/home/src" "$work/tmp" "$work/here"
ln -s "$loamfs" "$work/bin/loamfs"
export PATH=$work/bin:$PATH HOME=$work/home
echo "A file of some length." >"$HOME/src/README.md"
seq 20000 >"$HOME/src/numbers"
for place in /mnt /tmp; do
    # The work itself may be below /tmp.
    case $work in $place/*) continue ;; esac
    mount -t tmpfs tmpfs $place
done
mount -t tmpfs tmpfs "$work/here"
cd "$work/here"

sed -n '/^## Use/,/^### At boot/p' "$readme" | sed -n '/^```sh/,/^```/{/^```/d;p}' >"$work/commands"
[ "$(wc -l <"$work/commands")" -ge 20 ] || fail "no commands in the README"
while IFS= read -r line; do
    case $line in
    # A continued remark.
    " "*) continue ;;
    # Needs a terminal: watch.sh looks at it.
    "loamfs top"*) continue ;;
    esac
    # Its exit code says what it thinks of this machine.
    got=0
    bash -c "$line" >"$work/out" 2>"$work/err" </dev/null || got=$?
    case $line in "loamfs doctor"*) [ $got -eq 4 ] && got=0 ;; esac
    [ $got -eq 0 ] || { cat "$work/out" "$work/err" >&2; fail "exit code $got of: $line"; }
    [ "$(awk '{ if (length($0) > 80) print }' "$work/out" | wc -l)" -eq 0 ] || {
        case $line in "loamfs metrics"* | "loamfs dump"*) continue ;; esac
        cat "$work/out" >&2
        fail "more than 80 columns from: $line"
    }
done <"$work/commands"
diff "$HOME/src/numbers" /tmp/copy/numbers || fail "not what was put in"
rm -r /tmp/copy /tmp/saved
ok "$(grep -c ^loamfs "$work/commands") commands of the README do what it says, in 80 columns"
