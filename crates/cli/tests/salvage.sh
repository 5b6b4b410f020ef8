#!/bin/bash
# What `loamfs salvage` brings out of volumes of which parts are gone, beside what was put in. Needs root.
#
#   salvage.sh LOAMFS
set -euo pipefail

loamfs=$(realpath "$1")
. "$(dirname "$0")/common.sh"
tree=$work/tree

# Zeros in place of so many units of 4 KiB, from a byte of the image on.
zero() {
    dd if=/dev/zero of="$image" bs=4096 seek=$(($1 / 4096)) count="$2" conv=notrunc status=none
}

no_superblocks() {
    zero 65536 1
    zero $((8 << 20)) 1
}

# Where nodes of a kind and level are, in bytes.
nodes() {
    "$loamfs" dump --json "$image" owners | python3 -c '
import json, sys
kind, level = sys.argv[1], int(sys.argv[2])
for owner in json.load(sys.stdin):
    if (owner["kind"], owner["level"]) == (kind, level):
        print(owner["extent"]["at"] * 1024)' "$@"
}

fresh() {
    rm -rf "$work/out.d"
    cp "$work/sound.img" "$image"
}

# Brings out, and demands that nothing was written to the image.
salvage() {
    local code=$1
    shift
    sha256sum "$image" >"$work/sum"
    expect "$code" "$loamfs" salvage "$@" "$image" "$work/out.d"
    sha256sum --quiet --check "$work/sum"
}

same() {
    diff -r --no-dereference "$tree" "$work/out.d/tree" >"$work/diff" || {
        head "$work/diff" >&2
        fail "not what was put in"
    }
}

mkdir -p "$tree/many" "$tree/a/b/c"
for number in $(seq 1500); do head -c $((number % 3000)) /dev/zero | tr '\0' "$((number % 10))" >"$tree/many/$number"; done
head -c 20000000 /dev/urandom >"$tree/a/large"
head -c 9000 /dev/urandom >"$tree/a/b/medium"
ln "$tree/a/b/medium" "$tree/a/b/c/again"
ln -s ../nowhere "$tree/a/link"
python3 -c "import os, sys; os.setxattr(sys.argv[1], \"user.colour\", b\"green\")" "$tree/a/b/medium"
chmod 640 "$tree/a/large"
touch -d 2001-02-03 "$tree/a/b"
"$loamfs" mkfs -q --size 256M "$image"
"$loamfs" put "$image" "$tree" / 2>"$work/out"
cp "$image" "$work/sound.img"

fresh
salvage 0
same
[ "$(stat -c %h "$work/out.d/tree/a/b/medium")" -eq 2 ] || fail "a hard link has become a copy"
[ "$(stat -c %a-%Y "$work/out.d/tree/a/b")" = "$(stat -c %a-%Y "$tree/a/b")" ] || fail "mode or time"
[ "$(python3 -c "import os, sys; print(os.getxattr(sys.argv[1], \"user.colour\").decode())" "$work/out.d/tree/a/b/medium")" = green ] || fail "attribute"
ok "all of a volume that is sound"

expect 73 "$loamfs" salvage "$image" "$work/out.d"
grep -q "is not empty" "$work/out" || fail "does not say why"
head -c 1000000 /dev/urandom >"$work/noise"
expect 65 "$loamfs" salvage "$work/noise" "$work/out.e"
grep -q "nothing of a LoamFS volume" "$work/out" || fail "does not say why"
expect 64 "$loamfs" salvage --block-size 5000 "$image" "$work/out.e"
ok "a directory that is not empty, and what is no volume, are refused"

fresh
no_superblocks
salvage 0
grep -q "no superblock was found" "$work/out" || fail "does not say what it did without"
same
rm -rf "$work/out.d"
salvage 0 --json
python3 - "$work/out" <<'END'
import json, sys
told = json.load(open(sys.argv[1]))
assert told["superblock"] is False and told["bad"] == 0 and told["scanned"], told
END
ok "all of a volume without superblocks"

fresh
for level in 0 1; do
    for node in $(nodes IfileNode $level); do zero "$node" 2; done
done
no_superblocks
salvage 0
same
ok "all of a volume without superblocks and without the map of its inodes"

fresh
root=$("$loamfs" dump "$image" inode 2 | grep -c "inline directory")
[ "$root" -eq 1 ] || fail "the root is larger than this script thinks"
block=$("$loamfs" dump --json "$image" ifile | python3 -c '
import json, sys
print(json.load(sys.stdin)[0]["pointer"]["extent"]["at"])')
dd if=/dev/zero of="$image" bs=1024 seek="$block" count=1 conv=notrunc status=none
salvage 65
find "$work/out.d" -name large -size 20000000c | grep -q lost+found || fail "what has no name is not in lost+found"
large=$(find "$work/out.d" -name large)
cmp "$large" "$tree/a/large"
[ "$(find "$work/out.d" -path '*many/*' -type f | wc -l)" -eq 1500 ] || fail "files are missing"
ok "without the root directory, the rest is in lost+found"

fresh
place=$("$loamfs" map --json "$image" /tree/a/large | python3 -c '
import json, sys
print(next(piece["at"] for piece in json.load(sys.stdin) if piece["place"] == "home"))')
zero $((place + 8192)) 1
salvage 65
grep -q "tree/a/large: 4.0 KiB of 19.1 MiB are lost" "$work/out" || fail "does not say what is damaged"
cmp -n 8192 "$work/out.d/tree/a/large" "$tree/a/large"
cmp -i 12288 "$work/out.d/tree/a/large" "$tree/a/large"
[ "$(od -An -tx1 -j 8192 -N 4096 "$work/out.d/tree/a/large" | tr -d ' 0*\n')" = "" ] || fail "no hole"
cp "$tree/a/large" "$work/out.d/tree/a/large"
same
ok "what is damaged of a file becomes a hole, and is told"

fresh
truncate -s $((200 << 20)) "$image"
got=0
"$loamfs" salvage "$image" "$work/out.d" >"$work/out" 2>&1 || got=$?
case $got in 0 | 65) ;; *) fail "exit code $got" ;; esac
[ "$(find "$work/out.d" -path '*many/*' -type f | wc -l)" -eq 1500 ] || fail "files are missing"
for number in 1 77 1500; do cmp "$work/out.d/tree/many/$number" "$tree/many/$number"; done
ok "what is left of a device that is too small now"

rm -rf "$work/rights"
mkdir "$work/rights"
cp /bin/true "$work/rights/program"
chmod 4755 "$work/rights/program"
mknod "$work/rights/device" c 1 3
"$loamfs" mkfs -q --size 64M --force "$work/sound.img"
"$loamfs" put "$work/sound.img" "$work/rights" / 2>"$work/out"
fresh
salvage 74
[ -x "$work/out.d/rights/program" ] && [ ! -u "$work/out.d/rights/program" ] || fail "a program keeps its rights"
[ ! -e "$work/out.d/rights/device" ] || fail "a device comes along"
ok "programs get no rights of others, and no devices come along"
