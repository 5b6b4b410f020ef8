#!/bin/sh
# Puts a real source tree of at least 20,000 files into DIRECTORY: glibc's, from Debian's package
# glibc-source, or, where that cannot be had, the sources of the crates that the build downloaded,
# as often as it takes.
#
#   tree.sh DIRECTORY
set -eu

directory=$1
files_min=20000

count() {
    find "$1/." -type f | wc -l
}

mkdir -p "$directory"
if [ "$(count "$directory")" -ge "$files_min" ]; then
    exit 0
fi

unpack_glibc() {
    command -v apt-get >/dev/null && command -v dpkg-deb >/dev/null || return 1
    package=$(mktemp -d)
    (
        cd "$package"
        apt-get download glibc-source >apt.log 2>&1 || {
            apt-get update >>apt.log 2>&1 && apt-get download glibc-source >>apt.log 2>&1
        } || exit 1
        dpkg-deb -x glibc-source_*.deb unpacked
    ) && tar -C "$directory" -xf "$package"/unpacked/usr/src/glibc/glibc-*.tar.xz
    status=$?
    rm -rf "$package"
    return $status
}

if ! unpack_glibc; then
    crates=${CARGO_HOME:-$HOME/.cargo}/registry/src
    [ -d "$crates" ] || {
        echo "tree.sh: no source tree can be had; run 'cargo fetch' first" >&2
        exit 1
    }
    copy=1
    while [ "$(count "$directory")" -lt "$files_min" ]; do
        cp -a "$crates" "$directory/crates-$copy"
        copy=$((copy + 1))
    done
fi

found=$(count "$directory")
if [ "$found" -lt "$files_min" ]; then
    crates=${CARGO_HOME:-$HOME/.cargo}/registry/src
    cp -a "$crates" "$directory/crates"
    found=$(count "$directory")
fi
echo "source tree: $found files, $(du -sh "$directory" | cut -f1) in $directory"
