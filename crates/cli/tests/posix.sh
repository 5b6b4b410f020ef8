#!/bin/bash
# The POSIX test suite pjdfstest on a LoamFS mount, and on ext4 beside it. Needs root for fuseblk, loop devices and
# changing users.
#
#   posix.sh LOAMFS SUITE [PATTERN...]     the program, a directory to install the suite into, tests to choose
#
# Fails when a test fails on LoamFS, or is skipped there, and not on ext4, for no known reason.
set -euo pipefail

loamfs=$(realpath "$1")
suite=$(realpath -m "$2")
shift 2
version=0.2.2
. "$(dirname "$0")/common.sh"

# What is skipped on LoamFS and not on ext4, and why.
known_skips() {
    sed '/^#/d' <<END
# pathconf(_PC_LINK_MAX) is the C library's guess of 127 for a FUSE mount, which cannot say its own: no link is refused
# at that number.
link::link_count_max
END
}

last_words() {
    [ "$1" -eq 0 ] || [ ! -s "$work/daemon.log" ] || tail -50 "$work/daemon.log" >&2
}

install_suite() {
    [ "$("$suite/bin/pjdfstest" --version 2>/dev/null)" = "pjdfstest $version" ] ||
        cargo install --debug pjdfstest --version "=$version" --locked --root "$suite"
}

# Two users that every Debian has: nobody and daemon. $1 says whether tests may remount the file system.
configure() {
    cat <<END
[features]
posix_fallocate = {}
rename_ctime = {}
utime_now = {}
utimensat = {}
[settings]
naptime = 0.01
allow_remount = $1
[dummy_auth]
entries = [["nobody", "nogroup"], ["daemon", "daemon"]]
END
}

# Runs the suite below a directory, another file system beside it; its words go to NAME.log, and the names of the tests
# by what came of them to NAME.ok, NAME.FAILED and NAME.skipped. Tests that remount run in a process of their own: the
# others leave files open, with which no file system becomes read-only.
run() {
    local name=$1 other=$2 result
    shift 2
    suite "$name" "$other" false "$@"
    [ $# -gt 0 ] || suite "$name" "$other" true erofs
    for result in ok FAILED skipped; do
        sed -n "s/^\([a-z0-9_:]*\)  *$result\$/\1/p" "$work/$name.log" | sort -u >"$work/$name.$result"
    done
    sort "$work/$name.ok" "$work/$name.FAILED" | comm -23 "$work/$name.skipped" - >"$work/$name.left"
    mv "$work/$name.left" "$work/$name.skipped"
    echo "$name: $(wc -l <"$work/$name.ok") passed, $(wc -l <"$work/$name.FAILED") failed," \
        "$(wc -l <"$work/$name.skipped") skipped"
}

suite() {
    local name=$1 other=$2 remounts=$3
    shift 3
    configure "$remounts" >"$work/suite.toml"
    NO_COLOR=1 "$suite/bin/pjdfstest" -c "$work/suite.toml" -p "$work/$name" -s "$work/$other" "$@" \
        >"$work/part.log" 2>&1 || true
    grep -q '^Summary' "$work/part.log" || {
        tail -20 "$work/part.log" >&2
        echo "posix: the suite did not come to its end on $name" >&2
        exit 1
    }
    cat "$work/part.log" >>"$work/$name.log"
}

# A test's name and what the suite said of it.
explain() {
    awk -v test="$2" '$1 == test { found = 1; print "  " $0; next } found && /^\t/ { print "  " $0; next } { found = 0 }' \
        "$work/$1.log"
}

mkdir "$work/loamfs" "$work/ext4"
install_suite
truncate -s 1G "$work/ext4.img"
mkfs.ext4 -q "$work/ext4.img"
mount -o loop "$work/ext4.img" "$work/ext4"
"$loamfs" mkfs --size 1G "$work/loamfs.img" >/dev/null
"$loamfs" mount -o "log=$work/daemon.log" "$work/loamfs.img" "$work/loamfs"
chmod 755 "$work"

run ext4 loamfs "$@"
run loamfs ext4 "$@"

while read -r test; do
    explain loamfs "$test"
done <"$work/loamfs.FAILED"
comm -12 "$work/ext4.FAILED" "$work/loamfs.FAILED" | sed 's/^/fails on ext4 too: /'
comm -13 "$work/ext4.skipped" "$work/loamfs.skipped" >"$work/skipped"
while read -r test; do
    echo "skipped on loamfs, not on ext4:"
    explain loamfs "$test"
done <"$work/skipped"

bad=$(cat "$work/loamfs.FAILED"; comm -23 "$work/skipped" <(known_skips))
"$loamfs" unmount "$work/loamfs"
"$loamfs" check "$work/loamfs.img" >/dev/null || bad="$bad check"
if [ -n "$bad" ]; then
    echo "posix: FAILED:" $bad
    exit 1
fi
echo "posix: passed"
