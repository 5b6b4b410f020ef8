#!/bin/bash
# A user without rights who writes superblocks into files, on a real mount: nothing of it is ever taken for one, by no
# command, not when a copy of the volume's own is torn, and not on a volume of an older program. Needs root.
#
#   places.sh LOAMFS
set -euo pipefail

loamfs=$(realpath "$1")
tests=$(realpath "$(dirname "$0")")
golden=$tests/../../testing/golden
. "$tests/common.sh"
user=65534
mkdir "$mnt"
chmod 755 "$work" "$mnt"

# The 4 KiB at a byte of a file.
page() {
    dd if="$1" bs=4096 skip=$(($2 / 4096)) count=1 status=none
}

# A file of one mebibyte: over and over the superblock that a volume of the same UUID, of size $1 and written far more
# often, has at byte $2.
forge() {
    local other=$work/other.img
    "$loamfs" mkfs --quiet --size "$1" --uuid "$uuid" "$other"
    for _ in $(seq 40); do "$loamfs" label "$other" forged; done
    page "$other" "$2" >"$work/page"
    rm "$other"
    for _ in $(seq 256); do cat "$work/page"; done >"$work/forged"
}

# Everybody finds the volume that it is, and what its owner wrote.
is_true() {
    expect 0 "$loamfs" check "$image"
    "$loamfs" probe "$image" >"$work/out"
    grep -qx "ID_FS_UUID=$uuid" "$work/out" || fail "probe finds another volume: $(cat "$work/out")"
    grep -qx "ID_FS_LABEL=true" "$work/out" || fail "probe finds another label: $(cat "$work/out")"
    [ "$("$loamfs" label "$image")" = true ] || fail "another label"
    "$loamfs" info "$image" >/dev/null || fail "no info"
    mount_it || fail "cannot be mounted: $(cat "$work/out")"
    [ "$(cat "$mnt/true")" = owner ] || fail "not what its owner wrote"
    "$loamfs" unmount "$mnt"
}

# SIZE of a volume, SIZE of one that has a copy at the byte PLACE where the first has none.
attack() {
    local size=$1 other=$2 place=$3
    rm -f "$image"
    "$loamfs" mkfs --quiet --size "$size" --label true "$image"
    uuid=$("$loamfs" probe "$image" | sed -n 's/^ID_FS_UUID=//p')
    forge "$other" "$place"
    chmod 644 "$work/forged" "$work/page"
    mount_it
    echo owner >"$mnt/true"
    mkdir "$mnt/user"
    chown $user "$mnt/user"
    # Large files, then small ones, until nothing fits.
    setpriv --reuid $user --clear-groups bash -c '
        for pages in "$1" "$2"; do
            for number in $(seq 100000); do
                cp "$pages" "$3/$(basename "$pages").$number" 2>/dev/null || break
            done
        done' - "$work/forged" "$work/page" "$mnt/user" || true
    [ "$(ls "$mnt/user" | wc -l)" -gt 10 ] || fail "the volume of $size was not filled"
    "$loamfs" unmount "$mnt"
    is_true
    ok "a volume of $size is full of superblocks of one of $other, and nobody takes one for its own"
    page "$image" "$place" | cmp -s - "$work/page" && fail "a file lies where superblocks are looked for"
    dd if=/dev/urandom of="$image" bs=4096 seek=16 count=1 conv=notrunc status=none
    is_true
    ok "nor when its first copy is torn"
}

attack 64M 12M 131072
attack 12M 64M 8388608

# A volume that an older program made.
gzip -dc "$golden/wide.img.gz" >"$image"
"$loamfs" dump "$image" superblock | grep -q 'read-only compatible 0x0,' || fail "not of an older program"
mount_it
find "$mnt" -type f -exec sha256sum {} + >"$work/before"
"$loamfs" unmount "$mnt"
expect 0 "$loamfs" check "$image"
"$loamfs" dump "$image" superblock | grep -q 'read-only compatible 0x[26],' || fail "its places are not reserved"
page "$image" 131072 | cmp -s - <(head -c 4096 /dev/zero) || fail "a file lies where superblocks are looked for"
mount_it
sha256sum --check --quiet "$work/before" || fail "a file has changed"
"$loamfs" unmount "$mnt"
ok "a volume of an older program reserves its places when it is mounted"
