#!/bin/sh
# Fetches Debian's kernel for an emulated machine and unpacks it. Nothing is installed.
#
#   kernel.sh DIRECTORY
set -eu

[ -d "$1" ] && exit 0
aside="$1.new"
rm -rf "$aside"
trap 'rm -rf "$aside"' EXIT
mkdir -p "$aside/package"
name=$(apt-cache depends linux-image-amd64 | sed -n 's/^ *Depends: \(linux-image-[0-9]\)/\1/p' | head -n 1)
[ -n "$name" ] || {
    echo "kernel: linux-image-amd64 is not known here; call apt-get update first" >&2
    exit 1
}
echo "kernel: fetching $name"
(cd "$aside/package" && apt-get download -q "$name")
dpkg -x "$aside"/package/*.deb "$aside"
rm -rf "$aside/package"
mv "$aside" "$1"
