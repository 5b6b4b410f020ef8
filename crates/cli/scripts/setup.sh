#!/bin/sh
# Installs what is missing on Debian 12, and says what it cannot install.
#
#   setup.sh [bench|emulate]
set -eu

command -v cargo >/dev/null || {
    echo "setup: Rust is missing; install it (https://rustup.rs), then call make again" >&2
    exit 1
}

missing=""
# A program that must be there, and the package that brings it.
need() {
    command -v "$1" >/dev/null || [ -x "/usr/sbin/$1" ] || [ -x "/sbin/$1" ] || missing="$missing $2"
}
need cc gcc
need fusermount3 fuse3
need losetup mount
need mkfs.ext4 e2fsprogs
need blkid util-linux
need xz xz-utils
need diff diffutils
need patch patch
need python3 python3
# The file systems that LoamFS is measured beside.
if [ "${1:-}" = bench ]; then
    need mkfs.xfs xfsprogs
    need mkfs.btrfs btrfs-progs
    need git git
fi
# The emulated machine, and the file systems that it has.
if [ "${1:-}" = emulate ]; then
    need qemu-system-x86_64 qemu-system-x86
    need mkfs.f2fs f2fs-tools
    need mkfs.nilfs2 nilfs-tools
fi
[ -z "$missing" ] && exit 0

echo "setup: installing$missing"
if [ "$(id -u)" = 0 ]; then
    apt="apt-get"
elif command -v sudo >/dev/null; then
    apt="sudo apt-get"
else
    echo "setup: install$missing first, as root" >&2
    exit 1
fi
export DEBIAN_FRONTEND=noninteractive
# shellcheck disable=SC2086
$apt install -y --no-install-recommends $missing || {
    # The lists of a fresh machine may be empty or old.
    $apt update
    $apt install -y --no-install-recommends $missing
}
