#!/bin/bash
# The tools around a volume, and mounting the way that administrators do: options, remount, fstab, fsck(8).
# Needs root for fuseblk and loop devices.
#
#   tools.sh LOAMFS
set -euo pipefail

# Where what is mounted below /dev is this run's alone.
[ -n "${LOAMFS_PRIVATE-}" ] || exec env LOAMFS_PRIVATE=1 unshare -m bash "$0" "$@"

loamfs=$(realpath "$1")
. "$(dirname "$0")/common.sh"
links=()
directories=()
# Processes that keep files of a mount.
holders=()

# The links and processes of this run, and what it says.
last_words() {
    let_go
    [ ${#links[@]} -gt 0 ] && rm -f "${links[@]}"
    [ ${#directories[@]} -gt 0 ] && rmdir -p --ignore-fail-on-non-empty "${directories[@]}"
    tally tools "$1"
}

# A link that is not there yet, for this run.
link() {
    if [ ! -e "$2" ]; then
        [ -d "$(dirname "$2")" ] || directories+=("$(dirname "$2")")
        mkdir -p "$(dirname "$2")"
        ln -s "$1" "$2"
        links+=("$2")
    fi
}

mount_it() {
    "$loamfs" mount -o "log=$work/daemon.log" "$@" "$image" "$mnt" >"$work/out"
}

# A number of the report of the mount.
figure() {
    "$loamfs" info --json "$mnt" | python3 -c "
import functools, json, sys
print(functools.reduce(lambda value, name: value[name], '$1'.split('.'), json.load(sys.stdin)))"
}

is_unmounted() {
    ! grep -q " $1 " /proc/self/mountinfo
}

# Ends the processes that keep files of a mount.
let_go() {
    [ ${#holders[@]} -eq 0 ] && return
    kill "${holders[@]}" 2>/dev/null || true
    wait "${holders[@]}" 2>/dev/null || true
    holders=()
}

mkdir "$mnt"
for name in mkfs.loamfs fsck.loamfs mount.loamfs mount.fuseblk.loamfs mount.fuse.loamfs; do
    link "$loamfs" "/sbin/$name"
done
"$loamfs" mkfs --size 256M --label first "$image" >"$work/out"

# ---- tools --------------------------------------------------------------------------------------------------------------

mount_it
head -c 100 /dev/urandom >"$mnt/tiny"
head -c 9000 /dev/urandom >"$mnt/small"
# Whoever calls sync(2) meanwhile has the last unit rewritten: it waits in the log, in the middle of an extent.
{ head -c 1500000 /dev/urandom && sync "$mnt/large" && head -c 1500000 /dev/urandom; } >"$mnt/large"
truncate -s 10M "$mnt/large"
sync
for size in tiny:inode small:log large:home; do
    "$loamfs" map --json "$mnt/${size%:*}" | grep -q "\"place\": \"${size#*:}\"" || fail "map of ${size%:*}"
done
"$loamfs" map "$mnt/large" | tail -1 | grep -q hole || fail "map of a hole"
expect 64 "$loamfs" map "$work/out"
for name in tiny large; do
    "$loamfs" map --json "$mnt/$name" >"$work/$name.map"
done
tiny_sum=$(sha256sum <"$mnt/tiny")
sum=$(sha256sum <"$mnt/large")
tiny=$(stat -c %i "$mnt/tiny")
large=$(stat -c %i "$mnt/large")
version=$(printf %08x $(($(lsattr -v "$mnt/tiny" | awk '{print $1}') & 0xffffffff)))
"$loamfs" unmount "$mnt"
"$loamfs" dump "$image" inode "$tiny" | grep -q "generation $version\b" || fail "lsattr -v says $version"
"$loamfs" map --json "$image" /large | diff - "$work/large.map" || fail "map says something else of an unmounted volume"
# So does the dump, which has the bytes of tiny files too.
for what in superblock "inode $tiny" "extents $large"; do
    "$loamfs" dump --json "$image" $what
    echo ,
done >"$work/dumps"
python3 - "$work" "${tiny_sum%% *}" <<'END' || fail "dump --json says something else"
import hashlib, json, re, sys
work, tiny_sum = sys.argv[1:]
with open(f"{work}/dumps") as dumps, open(f"{work}/large.map") as pieces:
    superblock, tiny, extents = json.loads(f"[{dumps.read().strip().rstrip(',')}]")
    homes = [piece for piece in json.load(pieces) if piece["place"] == "home"]
escaped = re.compile(rb"\\(\\|x[0-9a-f]{2})")
byte = lambda found: b"\\" if found[1] == b"\\" else bytes.fromhex(found[1][1:].decode())
content = escaped.sub(byte, tiny["content"]["inline"].encode())
assert hashlib.sha256(content).hexdigest() == tiny_sum, tiny
frag = superblock["fragment_size"]
def is_in(piece, extent):
    place = extent["pointer"]["extent"]
    ahead = piece["offset"] - extent["block"] * superblock["block_size"]
    return 0 <= ahead < place["fragments"] * frag and piece["at"] == place["at"] * frag + ahead
assert homes and all(any(is_in(piece, extent) for extent in extents) for piece in homes), (homes, extents)
END
# Where the map says, there it is.
for name in "tiny ${tiny_sum%% *}" "large ${sum%% *}"; do
    python3 - "$work/${name% *}.map" "$image" "${name#* }" <<'END'
import hashlib, json, sys
pieces, whole = json.load(open(sys.argv[1])), hashlib.sha256()
with open(sys.argv[2], "rb") as image:
    for piece in pieces:
        if piece["place"] == "hole":
            whole.update(bytes(piece["length"]))
        else:
            image.seek(piece["at"])
            whole.update(image.read(piece["length"]))
assert whole.hexdigest() == sys.argv[3]
END
done
ok "map says where a file's bytes are, mounted or not, and dump says so too"

[ "$("$loamfs" label "$image")" = first ] || fail "label"
"$loamfs" label "$image" second
mount_it
[ "$("$loamfs" label "$mnt")" = second ] || fail "label of a mount"
"$loamfs" label "$mnt" "the third"
[ "$("$loamfs" label "$image")" = "the third" ] || fail "label of what is mounted"
[ "$(figure volume.label)" = "the third" ] || fail "label in the report"
"$loamfs" probe "$image" | grep -qx 'ID_FS_LABEL_ENC=the\\x20third' || fail "probe of a device in use"
expect 66 "$loamfs" probe /dev/zero
"$loamfs" unmount "$mnt"
expect 0 "$loamfs" check "$image"
ok "labels are read and changed, mounted or not"

mount_it
python3 - "$mnt/tiny" <<'END' || fail "what is stored through a mapping of an immutable file stays in the page cache"
import mmap, os, subprocess, sys, time
fd = os.open(sys.argv[1], os.O_RDWR)
content = os.pread(fd, 100, 0)
subprocess.run(["chattr", "+i", sys.argv[1]], check=True)
for _ in range(3):
    mapping = mmap.mmap(fd, 100)
    mapping[:9] = b"elsewhere"
    try:
        mapping.flush()
        sys.exit("it was written")
    except OSError:
        pass
    tries = 0
    while os.pread(fd, 100, 0) != content or mapping[:] != content:
        tries += 1
        assert tries < 100
        time.sleep(0.1)
subprocess.run(["chattr", "-i", sys.argv[1]], check=True)
mapping[:9] = b"elsewhere"
mapping.flush()
assert os.pread(fd, 9, 0) == b"elsewhere"
END
"$loamfs" unmount "$mnt"
[ "$("$loamfs" cat "$image" /tiny | head -c 9)" = elsewhere ] || fail "a mapping of what is not immutable any more"
ok "what a mapping stores of an immutable file is not shown to readers"
# Parts of a large file that were overwritten wait in the log, until they settle.
mount_it
head -c 8000000 /dev/urandom >"$mnt/parts"
sync
for part in $(seq 0 9); do
    printf part | dd of="$mnt/parts" bs=1 seek=$((part * 700000)) conv=notrunc status=none
done
sync
images=$(figure log.unsettled_images)
[ "$images" -gt 0 ] || fail "overwritten parts do not wait in the log"
parts=$(sha256sum <"$mnt/parts")
"$loamfs" settle --json "$mnt" | python3 -c "
import json, sys
assert json.load(sys.stdin) == {'settled': $images, 'left': 0}" || fail "settle says something else than $images"
[ "$(figure log.unsettled_images)" = 0 ] || fail "parts are left in the log"
"$loamfs" settle "$mnt" | grep -q ": 0 parts settled, 0 left" || fail "settle a second time"
[ "$(sha256sum <"$mnt/parts")" = "$parts" ] || fail "settling changed a file"
rm "$mnt/parts"
"$loamfs" unmount "$mnt"
ok "parts that were overwritten settle, and are counted"
# Small files, of which three of four go, leave groups of the log that are emptied when one asks for it.
mount_it
mkdir "$mnt/many"
# Quickly: what is idle for long empties groups by itself.
head -c 12000000 /dev/urandom | split -b 6000 -a 4 -d - "$mnt/many/"
sync
(cd "$mnt/many" && seq -f %04g 0 1999 | awk 'NR % 4 != 1' | xargs rm)
many=$(cat "$mnt"/many/* | sha256sum)
"$loamfs" clean --until 60% --json "$mnt" | python3 -c "
import json, sys
found = json.load(sys.stdin)
assert found['groups'] > 0 and found['moved_bytes'] > 0 and found['freed_groups'] > 0, found
assert found['left'] == 0, found" || fail "clean does not say what it did"
"$loamfs" clean --until 60 "$mnt" | tr -s ' \n' ' ' | grep -q ", 0 left" || fail "clean a second time"
"$loamfs" clean --until 100% "$mnt" 2>/dev/null && fail "clean takes what cannot be"
[ "$(cat "$mnt"/many/* | sha256sum)" = "$many" ] || fail "cleaning changed a file"
rm -r "$mnt/many"
"$loamfs" unmount "$mnt"
"$loamfs" check "$image" >/dev/null || fail "the volume is not sound after cleaning"
ok "groups of the log are emptied when asked for"
# An unmount ends it, and that is what is said: nothing is read-only or dead.
other=$image image=$work/cleaned.img
"$loamfs" mkfs -q --size 256M "$image"
for _ in 1 2 3; do
    mount_it
    mkdir -p "$mnt/many"
    head -c 40000000 /dev/urandom | split -b 6000 -a 4 -d - "$mnt/many/"
    sync
    (cd "$mnt/many" && seq -f %04g 0 2 6660 | xargs rm -f)
    sync
    "$loamfs" clean --until 95% "$mnt" >"$work/cleaned" 2>&1 &
    sleep 0.1
    "$loamfs" unmount "$mnt"
    wait $! || grep -q "is being closed, for an unmount\|was unmounted before that was done\|no LoamFS is mounted" "$work/cleaned" ||
        fail "clean says $(cat "$work/cleaned")"
done
rm "$image"
image=$other
ok "a clean that an unmount ends says so"

# Image files lose what the volume does not need.
mount_it -o discard
head -c 60000000 /dev/urandom >"$mnt/much"
sync
[ "$(du -B1 "$image" | cut -f1)" -gt 60000000 ] || fail "the image is small before anything is deleted"
rm "$mnt/much"
sync
is_small() { [ "$(du -B1 "$image" | cut -f1)" -lt 30000000 ]; }
until_it is_small
"$loamfs" unmount "$mnt"
mount_it
head -c 60000000 /dev/urandom >"$mnt/much"
sync
rm "$mnt/much"
"$loamfs" unmount "$mnt"
! is_small || fail "deleted data were discarded though nobody asked for it"
expect 0 "$loamfs" trim "$image"
is_small || fail "trim left the image large"
mount_it
[ "$(sha256sum <"$mnt/large")" = "$sum" ] || fail "trim took data"
"$loamfs" trim --json "$mnt" | grep -q '"bytes": [1-9]' || fail "trim of a mount"
fstrim -v "$mnt" | grep -q '[1-9][0-9]* bytes' || fail "fstrim"
expect 1 fstrim -o $((1 << 60)) -m 1x "$mnt"
[ "$(sha256sum <"$mnt/large")" = "$sum" ] || fail "trim of a mount took data"
"$loamfs" unmount "$mnt"
expect 0 "$loamfs" check "$image"
ok "free space is discarded, at once or when asked"

mount_it
expect 64 "$loamfs" grow --size 100M "$image"
[ "$(stat -c %s "$image")" = $((256 << 20)) ] || fail "a refused grow changed the image"
expect 0 "$loamfs" grow --size 512M "$mnt"
[ "$(df --output=size -B1 "$mnt" | tail -1)" -gt $((500 << 20)) ] || fail "the mounted volume did not grow"
[ "$(sha256sum <"$mnt/large")" = "$sum" ] || fail "growing a mounted volume took data"
"$loamfs" unmount "$mnt"
expect 64 "$loamfs" grow --size 100M "$image"
[ "$(stat -c %s "$image")" = $((512 << 20)) ] || fail "a refused grow changed the image"
expect 0 "$loamfs" grow --size 1G "$image"
expect 0 "$loamfs" grow "$image"
expect 0 "$loamfs" check "$image"
mount_it
[ "$(df --output=size -B1 "$mnt" | tail -1)" -gt $((1000 << 20)) ] || fail "the volume did not grow"
head -c 500000000 /dev/zero >"$mnt/much"
[ "$(sha256sum <"$mnt/large")" = "$sum" ] || fail "growing took data"
rm "$mnt/much"
"$loamfs" unmount "$mnt"
expect 0 "$loamfs" check "$image"
ok "a volume grows, and is used to its new end"

expect 64 "$loamfs" shrink --size 2G "$image"
expect 64 "$loamfs" shrink --size 15M "$image"
mount_it
mkdir "$mnt/far"
for n in $(seq 1 30); do head -c 20000000 /dev/urandom >"$mnt/far/$n" && head -c 5000 /dev/urandom >"$mnt/far/small$n"; done
sums=$(cd "$mnt/far" && sha256sum * | sha256sum)
"$loamfs" unmount "$mnt"
expect 64 "$loamfs" shrink --size 300M "$image"
[ "$(stat -c %s "$image")" = $((1 << 30)) ] || fail "a refused shrink changed the image"
least=$({ "$loamfs" shrink --size 300M "$image" 2>&1 || true; } | sed -n 's/.*--size \([0-9]*K\) or.*/\1/p')
expect 0 "$loamfs" shrink --size "$least" "$image"
[ "$(stat -c %s "$image")" = $((${least%K} << 10)) ] || fail "the image has $(stat -c %s "$image") bytes, not $least"
expect 0 "$loamfs" check "$image"
mount_it
[ "$(cd "$mnt/far" && sha256sum * | sha256sum)" = "$sums" ] || fail "shrinking took data"
rm "$mnt"/far/{1..20}
(while [ ! -e "$work/stop" ]; do cp "$mnt/far/25" "$mnt/copy" && cmp -s "$mnt/far/25" "$mnt/copy" || touch "$work/lost"; done) &
writer=$!
expect 0 "$loamfs" shrink --size 400M "$mnt"
touch "$work/stop"
wait $writer
[ ! -e "$work/lost" ] || fail "a copy failed while the volume became smaller"
[ "$(stat -c %s "$image")" = $((400 << 20)) ] || fail "the image has $(stat -c %s "$image") bytes"
[ "$(df --output=size -B1 "$mnt" | tail -1)" -le $((400 << 20)) ] || fail "the mounted volume did not shrink"
# Another file, where the image was.
mv "$image" "$work/moved.img"
truncate -s 500M "$image"
expect 0 "$loamfs" shrink --size 390M "$mnt"
expect 64 "$loamfs" grow --size 600M "$mnt"
[ "$(stat -c %s "$image")" = $((500 << 20)) ] || fail "another file was cut or extended"
mv "$work/moved.img" "$image"
[ "$(stat -c %s "$image")" = $((400 << 20)) ] || fail "an image that was moved was cut"
sums=$(cd "$mnt/far" && sha256sum * | sha256sum)
expect 74 "$loamfs" shrink --size 100M "$mnt"
"$loamfs" unmount "$mnt"
expect 0 "$loamfs" check "$image"
mount_it
[ "$(cd "$mnt/far" && sha256sum * | sha256sum)" = "$sums" ] || fail "shrinking a mounted volume took data"
rm -r "$mnt/far" "$mnt/copy"
"$loamfs" unmount "$mnt"
ok "a volume becomes smaller, mounted or not, as far as what it holds has room"

# A terabyte of hole costs nothing but the hole.
truncate -s 1T "$work/sparse"
printf data | dd of="$work/sparse" bs=1 seek=500000000000 conv=notrunc status=none
"$loamfs" put --json "$image" "$work/sparse" /sparse | grep -q '"files": 1' || fail "put of a sparse file"
"$loamfs" get --json "$image" /sparse "$work/got" >"$work/out"
[ "$(stat -c %s "$work/got")" = $((1 << 40)) ] || fail "size of a sparse file"
[ "$(du -B1 "$work/got" | cut -f1)" -lt 1000000 ] || fail "holes were filled"
[ "$(dd if="$work/got" bs=1 skip=500000000000 count=4 status=none)" = data ] || fail "content of a sparse file"
[ "$("$loamfs" cat "$image" /sparse | head -c 1000000 | tr -d '\0' | wc -c)" = 0 ] || fail "cat of a hole"
rm "$work/sparse" "$work/got"
"$loamfs" tree --json "$image" | python3 -c '
import json, sys
assert {"/sparse", "/tiny"} < {entry["path"] for entry in json.load(sys.stdin)}'
"$loamfs" tree --json -L 1 "$image" / | python3 -m json.tool >/dev/null
ok "put, get and cat of a sparse file; tree"

# ---- check ---------------------------------------------------------------------------------------------------------------

# A unit of a file that rots. What people call the file is said, and nothing is wrong with what is left out.
"$loamfs" mkfs -q --force --size 64M "$work/rotten.img"
mkdir -p "$work/some/place"
head -c 300000 /dev/urandom >"$work/some/place/file"
"$loamfs" put "$work/rotten.img" "$work/some" / 2>"$work/out"
expect 0 "$loamfs" check --data "$work/rotten.img"
at=$("$loamfs" map --json "$work/rotten.img" /some/place/file | sed -n 's/.*"at": \([0-9]*\).*/\1/p' | head -1)
printf 'rot' | dd of="$work/rotten.img" bs=1 seek=$((at + 5000)) conv=notrunc status=none
expect 4 "$loamfs" check "$work/rotten.img"
grep -q "UnitData: inode .* (/some/place/file)" "$work/out" || fail "no path"
expect 4 "$loamfs" check --json "$work/rotten.img"
grep -q '"path": "/some/place/file"' "$work/out" || fail "no path in JSON"
expect 0 "$loamfs" check --quick "$work/rotten.img"
grep -q "left out: the contents of files" "$work/out" || fail "--quick does not say what it left out"
expect 16 "$loamfs" check --quick --data "$work/rotten.img"
expect 0 fsck.loamfs -p "$work/rotten.img"
expect 4 fsck.loamfs -f -n "$work/rotten.img"
rm -rf "$work/some" "$work/rotten.img"
ok "check verifies what has a checksum, and says the paths of what is damaged"

# ---- fsck(8) ------------------------------------------------------------------------------------------------------------

device=$(losetup --show -f "$image")
for switches in -a -p "-f -y" -n "-T -a"; do
    # shellcheck disable=SC2086
    expect 0 fsck.loamfs $switches "$device"
done
fsck.loamfs -n -C5 "$device" 5>"$work/progress" >"$work/out"
grep -Eq "^[1-7] [0-9]+ [0-9]+ $device\$" "$work/progress" || fail "no progress"
expect 0 fsck -t loamfs "$device" -- -f -n
expect 16 fsck.loamfs -n -y "$device"
# A superblock copy that is gone is found, and nothing to repair: the next mount writes it.
dd if=/dev/zero of="$device" bs=4096 seek=16 count=1 conv=notrunc status=none
expect 0 fsck.loamfs -a "$device"
"$loamfs" mount -o "log=$work/daemon.log" "$device" "$mnt" >"$work/out"
"$loamfs" unmount "$mnt"
expect 0 fsck.loamfs -f -n "$device"
dd if=/dev/zero of="$device" bs=1M count=9 conv=notrunc status=none
expect 8 fsck.loamfs -a "$device"
losetup -d "$device"
rm "$image"
"$loamfs" mkfs --size 256M --label "the third" "$image" >"$work/out"
ok "fsck(8) and its switches"

# ---- options --------------------------------------------------------------------------------------------------------------

mount_it -o nosuid,nodev,noexec,commit=30,cache=32M
grep " $mnt " /proc/self/mountinfo | grep -q nosuid,nodev,noexec || fail "flags are not set"
printf '#!/bin/sh\n' >"$mnt/script"
chmod +x "$mnt/script"
! "$mnt/script" 2>/dev/null || fail "noexec"
"$loamfs" unmount "$mnt"
# Links are there, and lead nowhere; also where a remount says so.
follows() { cat "$mnt/link" >/dev/null 2>"$work/out"; }
leads_nowhere() {
    [ "$(readlink "$mnt/link")" = script ] || fail "nosymfollow: a link is not there"
    ! follows || fail "nosymfollow"
    grep -q "Too many levels" "$work/out" || fail "nosymfollow: $(cat "$work/out")"
    findmnt -n -o OPTIONS "$mnt" | grep -qw nosymfollow || fail "nosymfollow is not shown"
}
mount -t loamfs -o "nosymfollow,iversion,nomand,log=$work/daemon.log" "$image" "$mnt"
ln -s script "$mnt/link"
leads_nowhere
mount -o remount,symfollow "$mnt"
follows || fail "remount,symfollow"
mount -o remount,nosymfollow "$mnt"
leads_nowhere
umount "$mnt"
expect 1 "$loamfs" mount -o context=system_u:object_r:tmp_t:s0 "$image" "$mnt"
grep -q SELinux "$work/out" || fail "context= is refused without a reason"
for kind in "" plain; do
    mount_it -o uid=1234,gid=4321 -o "$kind"
    touch "$mnt/new$kind"
    [ "$(stat -c %u:%g "$mnt" "$mnt/new$kind" | uniq)" = 1234:4321 ] || fail "the owner is not shown"
    ! chown 1 "$mnt/new$kind" 2>/dev/null || fail "chown to another user"
    ! chgrp 1 "$mnt/new$kind" 2>/dev/null || fail "chgrp to another group"
    chown 1234:4321 "$mnt/new$kind" || fail "chown to the owner"
    "$loamfs" unmount "$mnt"
done
"$loamfs" stat --json "$image" /new | grep -q '"uid": 1234' || fail "the owner is not stored"
"$loamfs" stat --json "$image" / | grep -q '"uid": 0' || fail "the root directory was given away"
ok "nosuid, nodev, noexec, nosymfollow, uid and gid"

# ---- remount --------------------------------------------------------------------------------------------------------------

mount -t loamfs -o "log=$work/daemon.log" "$image" "$mnt"
# Stored, and not yet on the device.
echo before >"$mnt/file"
exec 7>"$mnt/open"
expect 32 mount -o remount,ro "$mnt"
echo still >"$mnt/file"
exec 7>&-
mount -o remount,ro "$mnt"
! touch "$mnt/no" 2>/dev/null || fail "a mount that became ro took a write"
[ "$(figure read_only)" = True ] || fail "the daemon was not told"
for command in "label $mnt other" "trim $mnt"; do
    # shellcheck disable=SC2086
    expect 74 "$loamfs" $command
    grep -q "read-only; remount it with" "$work/out" || fail "no advice: $(cat "$work/out")"
done
writes=$(figure requests.total.writes)
cat "$mnt"/* >/dev/null
sync
# More than its clock's period, in which a daemon that may write would.
sleep 1.5
[ "$(figure requests.total.writes)" = "$writes" ] || fail "the daemon wrote an ro volume"
cp --sparse=always "$image" "$work/copy.img"
[ "$("$loamfs" cat "$work/copy.img" /file)" = still ] || fail "what was written before is not on the device"
rm "$work/copy.img"
mount -o remount,rw "$mnt"
[ "$(figure read_only)" = False ] || fail "the daemon was not told that it may write"
echo after >"$mnt/file"
mount -o remount,rw,noexec "$mnt"
grep " $mnt " /proc/self/mountinfo | grep -q noexec || fail "remount,noexec"
mount -o "remount,cache=$(figure memory.cache_bytes),commit=5,nodiscard" "$mnt" 2>"$work/out"
[ ! -s "$work/out" ] || fail "a remount that changes nothing says $(cat "$work/out")"
mount -o remount,cache=17M,uid=5,commit=5 "$mnt" 2>"$work/out"
grep -q "the next mount does: cache, uid\$" "$work/out" || fail "options that a remount leaves alone: $(cat "$work/out")"
umount "$mnt"
[ "$("$loamfs" cat "$image" /file)" = after ] || fail "writes after remount,rw"
mount_it -o ro
expect 32 mount -o remount,rw "$mnt"
"$loamfs" unmount "$mnt"
expect 0 "$loamfs" check "$image"
ok "remount,ro stops the daemon too, remount,rw starts it again; what a remount leaves alone is said"

# ---- JSON -----------------------------------------------------------------------------------------------------------------

"$loamfs" mount --json -o "log=$work/daemon.log" "$image" "$mnt" >"$work/mounted.json"
daemon=$(figure daemon)
echo seen >"$mnt/file"
"$loamfs" mount --json -o remount,noexec "$image" "$mnt" >"$work/remounted.json"
"$loamfs" unmount --json "$mnt" >"$work/unmounted.json"
"$loamfs" mount --json -o nofail "$work/missing.img" "$mnt" >"$work/missing.json"
mount_it -o plain
# The process above the daemon goes first, which would replace it.
pid=$(figure daemon)
kill -9 "$(sed -n 's/^PPid:[^0-9]*//p' "/proc/$pid/status")" "$pid"
"$loamfs" unmount --json "$mnt" >"$work/died.json" 2>"$work/out"
"$loamfs" mount --json -o plain,ro,log="$work/daemon.log" "$image" "$mnt" >"$work/plain.json"
"$loamfs" unmount "$mnt"
python3 - "$work" "$image" "$mnt" "$daemon" <<'END'
import json, sys
work, image, mnt, daemon = sys.argv[1:]
def read(name):
    with open(f"{work}/{name}.json") as file:
        return json.load(file)
mounted, unmounted, plain = read("mounted"), read("unmounted"), read("plain")
assert mounted["mounted"] and mounted["device"] == image and mounted["mountpoint"] == mnt, mounted
assert mounted["loop"].startswith("/dev/loop") and mounted["type"] == "fuseblk.loamfs", mounted
assert mounted["daemon"] == int(daemon) and mounted["volume"]["label"] == "the third", mounted
opening = mounted["opening"]
assert opening["seconds"] > 0 and opening["requests"]["total"]["reads"] > 0, opening
assert unmounted["device"] == mounted["loop"] and unmounted["mountpoint"] == mnt, unmounted
assert unmounted["seconds"] > 0 and not unmounted["daemon_died"], unmounted
# Since the mount began, with its end.
writes = [it["total"]["writes"] for it in (opening["requests"], unmounted["requests"])]
assert writes[0] < writes[1], writes
assert plain["type"] == "fuse.loamfs" and plain["loop"] is None and plain["read_only"], plain
assert read("remounted")["mounted"] and not read("missing")["mounted"]
assert read("died")["daemon_died"], read("died")
END
grep -q "had died" "$work/out" || fail "a daemon that died is not told of"
ok "mount and unmount say as JSON what they did"

# ---- a daemon that dies ---------------------------------------------------------------------------------------------------

for how in "" "-o plain"; do
    # shellcheck disable=SC2086
    mount_it $how -o restart=no
    echo synced >"$mnt/synced"
    sync "$mnt/synced"
    pid=$(figure daemon)
    kill -9 "$pid"
    while [ -e "/proc/$pid" ]; do sleep 0.05; done
    ! is_unmounted "$mnt" || fail "the mount is gone"
    expect 1 stat "$mnt/synced"
    # Who asks while the connection is taken down is told the other.
    grep -Eqi 'not connected|connection abort' "$work/out" || fail "another error: $(cat "$work/out")"
    # shellcheck disable=SC2086
    mount_it $how
    [ "$(cat "$mnt/synced")" = synced ] || fail "recovered without what was synced"
    "$loamfs" unmount "$mnt"
done
is_detached() { ! grep -q "$image" /sys/block/loop*/loop/backing_file 2>/dev/null; }
until_it is_detached
ok "with restart=no the mount of a daemon that died stays as an error, and the next mount clears it"

# Who stands in the dead mount, or has its files open or mapped, keeps it and its loop device; the image is mounted through
# another one, to which nothing of theirs gets.
hold() {
    (cd "$mnt" && exec sleep 600 >/dev/null 2>&1) &
    holders=($!)
    rm -rf "$work/mapped"
    python3 - "$mnt/mapped" "$work/mapped" >/dev/null 2>&1 <<'END' &
import mmap, os, sys, time
fd = os.open(sys.argv[1], os.O_CREAT | os.O_RDWR)
os.write(fd, b"old" * 4096)
os.fsync(fd)
with mmap.mmap(fd, 3 * 4096) as mapped:
    assert mapped[0:3] == b"old"
    os.close(fd)
    os.mkdir(sys.argv[2])
    while os.path.isdir(sys.argv[2]):
        time.sleep(0.05)
    # Whoever calls sync(2) cannot bring this to the daemon, which is dead.
    mapped[0:3] = b"bad"
    os.mkdir(sys.argv[2])
    time.sleep(600)
END
    holders+=($!)
    until_it test -d "$work/mapped"
}
# They store something through the mapping.
store() {
    rmdir "$work/mapped"
    until_it test -d "$work/mapped"
}
loops() { losetup -j "$image" | wc -l; }
is_alone() { [ "$(loops)" = "$1" ]; }

mkdir "$work/other"
# Behind the volume's end, what stays in the device's page cache can be told.
truncate -s +1M "$image"
behind=$((256 << 20))
mount_it
old=$(findmnt -n -o SOURCE "$mnt")
hold
power_cut "$(figure daemon)"
store
printf late | dd of="$old" bs=4 seek=$((behind / 4)) conv=notrunc status=none
expect 75 "$loamfs" mkfs --force "$image"
grep -q "$old and used by processes ${holders[0]} (sleep), .*daemon died; end that first" "$work/out" \
    || fail "not named: $(cat "$work/out")"
mount_it
[ "$(dd if="$image" bs=4 skip=$((behind / 4)) count=1 status=none)" = late ] || fail "the old device can still write"
[ "$(findmnt -n -o SOURCE "$mnt")" != "$old" ] || fail "the dead mount is back"
[ "$(cat "$mnt/synced")" = synced ] || fail "recovered without what was synced"
[ "$(head -c 3 "$mnt/mapped")" = old ] || fail "what was never synced is there"
printf new | dd of="$mnt/mapped" conv=notrunc status=none
expect 32 "$loamfs" mount "$image" "$mnt"
expect 32 env LOAMFS_PATIENCE=0 "$loamfs" mount "$old" "$work/other"
is_alone 2 || fail "$(loops) loop devices"
let_go
until_it is_alone 1
"$loamfs" unmount "$mnt"
until_it is_detached
[ "$("$loamfs" cat "$image" /mapped | head -c 3)" = new ] || fail "a dead mount wrote"
expect 0 "$loamfs" check "$image"
ok "an image is mounted again while others keep its dead mount"

# Not so where the device is in somebody's hands. A daemon inherits none of its caller's files.
exec 9<"$work"
mount_it
readlink "/proc/$(figure daemon)/fd/"* | grep -qx "$work" && fail "the daemon keeps its caller's files"
exec 9<&-
old=$(findmnt -n -o SOURCE "$mnt")
hold
power_cut "$(figure daemon)"
exec 8<"$old"
expect 32 env LOAMFS_PATIENCE=0 "$loamfs" mount "$image" "$mnt" 8<&-
grep -q "$old and used by process $$ (" "$work/out" || fail "not named: $(cat "$work/out")"
exec 8<&-
mount_it
"$loamfs" unmount "$mnt"
let_go
until_it is_detached
# Nor where another mount namespace began with a copy of the mount.
mount_it
unshare --mount sleep 600 >/dev/null 2>&1 &
holders=($!)
has_copy() { [ "$(readlink "/proc/${holders[0]}/ns/mnt")" != "$(readlink "/proc/$$/ns/mnt")" ]; }
until_it has_copy
power_cut "$(figure daemon)"
expect 32 env LOAMFS_PATIENCE=0 "$loamfs" mount "$image" "$mnt"
grep -q "used by process ${holders[0]} (.*, where a copy of its mount is" "$work/out" || fail "not named: $(cat "$work/out")"
let_go
mount_it
"$loamfs" unmount "$mnt"
until_it is_detached
device=$(losetup --show -f "$image")
expect 32 env LOAMFS_PATIENCE=0 "$loamfs" mount "$image" "$mnt"
grep -q "$device already" "$work/out" || fail "the loop device is not named"
expect 75 "$loamfs" mkfs --force "$image"
grep -q "losetup -d $device" "$work/out" || fail "no advice: $(cat "$work/out")"
other=$(losetup --show -f "$image")
"$loamfs" mount -o "log=$work/daemon.log" "$device" "$mnt" >"$work/out"
expect 32 env LOAMFS_PATIENCE=0 "$loamfs" mount "$other" "$work/other"
# Nor is it made anew, read or written by another device of the image, be that a part of it.
part=$(losetup --show -f -o 1M "$image")
for way in "$other" "$part"; do
    expect 75 "$loamfs" mkfs --force "$way"
    expect 8 "$loamfs" check --repair "$way"
    expect 75 "$loamfs" put "$way" "$0" /new
done
expect 75 "$loamfs" mkfs --force "$other"
grep -q "$other is mounted on $mnt" "$work/out" || fail "the mount is not named: $(cat "$work/out")"
losetup -d "$part"
hold
power_cut "$(figure daemon)"
expect 32 env LOAMFS_PATIENCE=0 "$loamfs" mount "$device" "$mnt"
grep -q "processes ${holders[0]} (sleep), ${holders[1]} (" "$work/out" || fail "not named: $(cat "$work/out")"
let_go
"$loamfs" mount -o "log=$work/daemon.log" "$device" "$mnt" >"$work/out"
"$loamfs" unmount "$mnt"
losetup -d "$device" "$other"
until_it is_detached
expect 0 "$loamfs" check "$image"
ok "devices that somebody else may write to are left alone, and the users named"

# The same for a user who is not root.
user="setpriv --reuid=nobody --regid=nogroup --clear-groups env -u XDG_RUNTIME_DIR"
own=$work/own
mkdir "$own"
chmod 755 "$work"
chown nobody:nogroup "$own"
# Everybody may open these devices where udev makes them, which is not everywhere, and here; likewise the program.
mkdir "$work/dev"
mount -t tmpfs -o mode=755 tmpfs "$work/dev"
for node in fuse:10:229 null:1:3; do
    IFS=: read -r name major minor <<<"$node"
    mknod -m 666 "$work/dev/$name" c "$major" "$minor"
    mount --bind "$work/dev/$name" "/dev/$name"
done
install -m 755 "$loamfs" "$work/dev/loamfs"
as_root=$loamfs loamfs=$work/dev/loamfs
# shellcheck disable=SC2086
if [ -u "$(command -v fusermount3)" ]; then
    $user "$loamfs" mkfs -q --size 64M "$own/volume.img"
    $user mkdir "$own/mnt"
    $user "$loamfs" mount -o log="$own/log,uid=65534,gid=65534" "$own/volume.img" "$own/mnt" >"$work/out"
    $user sh -c "echo mine >'$own/mnt/file'"
    [ "$($user stat -c %u:%g "$own/mnt/file")" = 65534:65534 ] || fail "rootless: the owner"
    ! $user chgrp daemon "$own/mnt/file" 2>/dev/null || fail "rootless: chgrp"
    $user sync "$own/mnt/file"
    $user "$loamfs" map --json "$own/mnt/file" | grep -q inode || fail "rootless: map"
    pid=$($user "$loamfs" info --json "$own/mnt" | sed -n 's/.*"daemon": \([0-9]*\).*/\1/p')
    power_cut "$pid" "$own/mnt"
    [ "$($user "$loamfs" cat "$own/volume.img" /file)" = mine ] || fail "rootless: what was synced"
    expect 32 $user "$loamfs" mount -o nosymfollow "$own/volume.img" "$own/mnt"
    grep -q nosymfollow "$work/out" || fail "rootless: nosymfollow is refused without a reason"
    ok "rootless: uid and gid, map, a daemon that dies, and no option that is dropped"
else
    echo "skipped: fusermount3 is not set-user-id"
fi
loamfs=$as_root
umount -l /dev/fuse /dev/null

# ---- fstab and systemd ------------------------------------------------------------------------------------------------------

device=$(losetup --show -f "$image")
eval "$("$loamfs" probe "$device" | grep '^ID_FS_UUID=')"
# What udev does with our rule.
link "$device" "/dev/disk/by-uuid/$ID_FS_UUID"
link "$device" '/dev/disk/by-label/the\x20third'
mkdir "$work/by-uuid" "$work/by-label" "$work/not"
cat >"$work/fstab" <<END
$image $mnt loamfs nofail,_netdev,x-systemd.device-timeout=5,cache=32M 0 2
UUID=$ID_FS_UUID $work/by-uuid loamfs noauto,discard,relatime 0 2
LABEL=the\\040third $work/by-label loamfs noauto 0 0
$work/missing.img $work/not loamfs nofail 0 0
END
losetup -d "$device"
mount -T "$work/fstab" -a
mountpoint -q "$mnt" || fail "mount -a"
mount -T "$work/fstab" -o remount,ro "$mnt" 2>"$work/out"
[ ! -s "$work/out" ] || fail "a remount by fstab says $(cat "$work/out")"
[ "$(figure read_only)" = True ] || fail "remount by fstab"
umount "$mnt"
is_detached_here() { ! losetup -j "$image" | grep -q .; }
until_it is_detached_here
losetup "$device" "$image"
for name in by-uuid by-label; do
    mount -T "$work/fstab" "$work/$name"
    [ "$(cat "$work/$name/synced")" = synced ] || fail "mount by ${name#by-}"
    umount "$work/$name"
done
losetup -d "$device"
ok "fstab: mount -a, UUID=, LABEL=, nofail, remount"

generator=/usr/lib/systemd/system-generators/systemd-fstab-generator
if [ -x $generator ] && command -v systemd-analyze >/dev/null; then
    mkdir "$work/units"
    SYSTEMD_FSTAB=$work/fstab $generator "$work/units" "$work/units" "$work/units"
    for unit in "$work"/units/*.mount; do
        grep -q "Type=loamfs" "$unit" || fail "no mount unit: $unit"
        systemd-analyze verify --man=no "$unit" >"$work/out" 2>&1 || { cat "$work/out" >&2; fail "$unit"; }
    done
    ok "systemd: $(ls "$work"/units/*.mount | wc -l) units of that fstab are verified"
else
    echo "skipped: systemd-fstab-generator or systemd-analyze is missing"
fi
if command -v udevadm >/dev/null && udevadm verify --help >/dev/null 2>&1; then
    expect 0 udevadm verify "$(dirname "$0")/../data/61-loamfs.rules"
    ok "the udev rule is verified"
else
    echo "skipped: no udevadm that verifies rules"
fi
