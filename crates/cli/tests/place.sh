#!/bin/bash
# Directories that say where small files go, on real mounts: what each word does, who takes it over and who does not, what is
# refused, and that it can be broken off and gone on with. Needs root.
#
#   place.sh LOAMFS
set -euo pipefail

loamfs=$(realpath "$1")
. "$(dirname "$0")/common.sh"
mkdir "$mnt"

# Groups of a role: log, data or track.
groups() {
    "$loamfs" info --json "$mnt" |
        python3 -c "import json, sys; print(json.load(sys.stdin)['groups'][sys.argv[1]])" "$1"
}

# What an attribute of a file is, by the kernel's way; nothing if it has none.
attribute() {
    python3 - "$1" <<'PYTHON'
import errno, os, sys
try:
    print(os.getxattr(sys.argv[1], "loamfs.place").decode())
except OSError as error:
    print(errno.errorcode[error.errno])
print(*os.listxattr(sys.argv[1]), end="")
PYTHON
}

# That a directory says this.
says() {
    expect 0 "$loamfs" place "$1"
    [ "$(cat "$work/out")" = "$2" ] || fail "$1 says $(cat "$work/out"), not $2"
}

# Where a file's first piece is.
place_of() {
    "$loamfs" map --json "$1" | python3 -c "import json, sys; print(json.load(sys.stdin)[0]['place'])"
}

remount() {
    "$loamfs" unmount "$mnt"
    expect 0 "$loamfs" check "$image"
    mount_it "${1-}"
}

# That all files are what they were, also when they are read from the device.
same() {
    (cd "$mnt" && sha256sum --quiet -c "$work/sums") || fail "$1: files changed"
    remount
    (cd "$mnt" && sha256sum --quiet -c "$work/sums") || fail "$1: files changed on the device"
}

"$loamfs" mkfs --size 256M "$image" >"$work/out"
mount_it
mkdir -p "$mnt/dir/below"
for number in $(seq 300); do
    head -c $((number * 41)) /dev/urandom >"$mnt/dir/file $number"
    head -c $((number * 23)) /dev/urandom >"$mnt/dir/below/file $number"
done
head -c 8M /dev/urandom >"$mnt/dir/large"
(cd "$mnt" && find . -type f -print0 | xargs -0 sha256sum) >"$work/sums"

says "$mnt/dir" auto
[ "$(groups track)" = 0 ] || fail "tracks before anybody asked"
expect 0 "$loamfs" place "$mnt/dir" hash
grep -q "hash; 2 directories, 600 files moved" "$work/out" || fail "$(cat "$work/out")"
[ "$(groups track)" -gt 0 ] || fail "no tracks"
same "hash"
ok "hash puts small files into tracks"

mkdir "$mnt/dir/new" "$mnt/dir/new/deeper"
for dir in dir dir/below dir/new dir/new/deeper; do
    says "$mnt/$dir" hash
done
says "$mnt" auto
[ "$(attribute "$mnt/dir/new")" = hash ] || fail "getfattr shows $(attribute "$mnt/dir/new")"
[ "$(attribute "$mnt/dir/file 1")" = ENODATA ] || fail "a file shows $(attribute "$mnt/dir/file 1")"
cp -a "$mnt/dir/new" "$mnt/copy"
tar -C "$mnt/dir" --xattrs --xattrs-include='*' -cf - new | tar -C "$mnt" --xattrs --xattrs-include='*' -xf -
for dir in copy new copy/deeper new/deeper; do
    says "$mnt/$dir" auto
done
python3 - "$mnt/dir" <<'PYTHON' || fail "an attribute of that name was set"
import errno, os, sys
for change in (lambda: os.setxattr(sys.argv[1], "loamfs.place", b"log"), lambda: os.removexattr(sys.argv[1], "loamfs.place")):
    try:
        change()
    except OSError as error:
        assert error.errno == errno.EOPNOTSUPP, error
    else:
        sys.exit(1)
PYTHON
ok "new directories take it over, copies do not, and it can be seen"

says "$mnt/dir/new/deeper" hash
expect 0 "$loamfs" place --json "$mnt/dir" hash
python3 -c "
import json, sys
told = json.load(open(sys.argv[1]))
assert told['place'] == 'hash' and told['directories'] == 4 and told['moved_files'] == 0 and told['full'] is False, told
" "$work/out" || fail "$(cat "$work/out")"
same "again"
ok "it holds behind another mount, and nothing is moved twice"

expect 0 "$loamfs" place "$mnt/dir/below" data
says "$mnt/dir/below" data
says "$mnt/dir" hash
sync -f "$mnt"
[ "$(place_of "$mnt/dir/below/file 300")" = home ] || fail "a file is in $(place_of "$mnt/dir/below/file 300")"
echo 1 >"$mnt/dir/below/tiny"
head -c 3000 /dev/urandom >"$mnt/dir/below/new"
sync -f "$mnt"
[ "$(place_of "$mnt/dir/below/tiny")" = inode ] || fail "a tiny file is in $(place_of "$mnt/dir/below/tiny")"
[ "$(place_of "$mnt/dir/below/new")" = home ] || fail "a new file is in $(place_of "$mnt/dir/below/new")"
same "data"
ok "data puts small files into data groups, those that come later too"

expect 0 "$loamfs" place "$mnt/dir" log
# What is held back comes free with checkpoints.
remount
remount
[ "$(groups track)" = 0 ] || fail "$(groups track) groups of tracks are left"
[ "$(place_of "$mnt/dir/file 300")" = log ] || fail "a file is in $(place_of "$mnt/dir/file 300")"
head -c 3000 /dev/urandom >"$mnt/dir/new/file"
sync -f "$mnt"
[ "$(place_of "$mnt/dir/new/file")" = log ] || fail "a new file is in $(place_of "$mnt/dir/new/file")"
same "log"
ok "log takes tracks apart"

expect 0 "$loamfs" place "$mnt/dir" auto
says "$mnt/dir/below" auto
expect 0 "$loamfs" place "$mnt/dir/below" hash
same "auto"
ok "auto takes it back"

mkdir "$mnt/many"
for number in $(seq 3000); do
    head -c 6000 /dev/zero | tr '\0' x >"$mnt/many/$number"
done
(cd "$mnt" && find . -type f -print0 | xargs -0 sha256sum) >"$work/sums"
for seconds in 0.05 0.1 0.2; do
    timeout -s INT $seconds "$loamfs" place "$mnt/many" hash >"$work/out" 2>&1 || true
    says "$mnt/many" hash
done
pid=$(daemon)
kill -9 "$pid"
until_it eval '[ ! -e "/proc/$pid" ] && "$loamfs" info "$mnt" >/dev/null 2>&1'
expect 0 "$loamfs" place "$mnt/many" hash
same "broken off"
ok "it can be broken off, and goes on"

expect 64 "$loamfs" place "$mnt/dir/large" hash
grep -q "is no directory" "$work/out" || fail "$(cat "$work/out")"
expect 64 "$loamfs" place "$work" hash
grep -q "is on no mount of LoamFS; mount the volume first" "$work/out" || fail "$(cat "$work/out")"
expect 64 "$loamfs" place "$mnt/dir" fast
grep -q "auto, log, data, hash" "$work/out" || fail "$(cat "$work/out")"
expect 66 "$loamfs" place "$mnt/none"
"$loamfs" unmount "$mnt"
mount_it ro
expect 74 "$loamfs" place "$mnt/dir" data
says "$mnt/dir" auto
remount noxattr
expect 74 "$loamfs" place "$mnt/dir"
grep -q "noxattr" "$work/out" || fail "$(cat "$work/out")"
expect 0 "$loamfs" place "$mnt/dir" data
remount
says "$mnt/dir" data
same "at the end"
ok "mistakes are told, and lose nothing"

# Another volume, of which a directory rots.
"$loamfs" unmount "$mnt"
image=$work/rotten.img
"$loamfs" mkfs -q --size 64M "$image"
mount_it
mkdir -p "$mnt/top/bad" "$mnt/top/good"
for number in $(seq 100); do
    head -c 3000 /dev/urandom | tee "$mnt/top/bad/its-name-rots-$number" >"$mnt/top/good/file $number"
done
"$loamfs" unmount "$mnt"
python3 - "$image" <<'END'
import sys
with open(sys.argv[1], "r+b") as image:
    content = image.read()
    units = [at for at in range(0, len(content), 4096) if content.count(b"its-name-rots-", at, at + 4096) > 9]
    assert units
    for at in units:
        image.seek(at + 200)
        image.write(bytes([content[at + 200] ^ 1]))
END
mount_it
expect 74 "$loamfs" place "$mnt/top" data
grep -q "/top/bad: " "$work/out" || fail "not named: $(cat "$work/out")"
[ "$(place_of "$mnt/top/good/file 7")" = home ] || fail "a file is in $(place_of "$mnt/top/good/file 7")"
expect 74 "$loamfs" place --json "$mnt/top" log
grep -q '"damaged_directories": 1' "$work/out" || fail "not counted: $(cat "$work/out")"
"$loamfs" unmount "$mnt"
ok "a directory that is damaged is named, and the others are gone on with"
