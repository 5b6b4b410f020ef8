#!/bin/bash
# What becomes of permissions, access lists, privileges and flags: the same steps on ext4 and on a LoamFS mount, compared.
# Needs root for mounting and changing users.
#
#   oracle.sh LOAMFS [SEED [STEPS]]
set -euo pipefail

loamfs=$(realpath "$1")
seed=${2:-1}
steps=${3:-400}
here=$(dirname "$(realpath "$0")")
. "$here/common.sh"

last_words() {
    [ "$1" -eq 0 ] || [ ! -s "$work/daemon.log" ] || tail -50 "$work/daemon.log" >&2
}

chmod 755 "$work"
mkdir "$work/loamfs" "$work/ext4"

projects="-O project" without=
mount_ext4() {
    truncate -s 256M "$work/ext4.img"
    # Blocks that hold long access lists.
    # shellcheck disable=SC2086
    mkfs.ext4 -q -F -b 4096 $projects "$work/ext4.img"
    mount -o "loop,$1" "$work/ext4.img" "$work/ext4"
}

mount_ext4 relatime 2>/dev/null || {
    echo "oracle: projects are not compared, as this kernel's ext4 has none" >&2
    projects='' without=without-projects
    mount_ext4 relatime
}
umount "$work/ext4"

list() {
    (cd "$work/loamfs/oracle" && find . -printf '%p %M %U:%G\n' | sort)
}

# The steps on new volumes, mounted with these options.
compare() {
    local name before
    mount_ext4 "$1"
    "$loamfs" mkfs --force --size 256M "$work/loamfs.img" >/dev/null
    "$loamfs" mount -o "log=$work/daemon.log,$1" "$work/loamfs.img" "$work/loamfs"

    for name in ext4 loamfs; do
        mkdir "$work/$name/oracle"
        python3 "$here/oracle.py" "$work/$name/oracle" "$seed" "$steps" $without >"$work/$name.said"
    done
    diff "$work/ext4.said" "$work/loamfs.said" | head -40
    cmp "$work/ext4.said" "$work/loamfs.said"
    umount "$work/ext4"

    # What was there before a remount is there behind it.
    before=$(list)
    "$loamfs" unmount "$work/loamfs"
    "$loamfs" check "$work/loamfs.img" >/dev/null
    "$loamfs" mount -o "log=$work/daemon.log,$1" "$work/loamfs.img" "$work/loamfs"
    [ "$before" = "$(list)" ] || { echo "oracle: a remount changed something" >&2; exit 1; }
    "$loamfs" unmount "$work/loamfs"
    echo "oracle: $(wc -l <"$work/ext4.said") lines are the same on ext4 with $1 (seed $seed)"
}

compare relatime
# Writes pass by the kernel's cache, and with that by what it does about privileges.
compare strictatime
