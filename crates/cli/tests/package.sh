#!/bin/bash
# The Debian package: what is in it, and what mkfs(8), mount(8), fsck(8) and man(1) make of it when it is installed on
# this machine, from which it is removed again. Needs root.
#
#   package.sh PACKAGE
set -euo pipefail

package=$(realpath "$1")
. "$(dirname "$0")/common.sh"
installed=

last_words() {
    [ -n "$installed" ] && dpkg --purge loamfs >/dev/null
    tally package "$1"
}

dpkg-deb -x "$package" "$work/root"
for path in usr/{bin,sbin}/loamfs usr/libexec/loamfs-bench usr/sbin/{mkfs,fsck,mount,mount.fuse,mount.fuseblk}.loamfs \
    usr/share/man/man1/loamfs{,-mkfs,-mount,-grow,-map,-bench,-bench-run}.1.gz usr/share/man/man8/{mkfs,fsck,mount,mount.fuse,mount.fuseblk}.loamfs.8.gz \
    usr/share/bash-completion/completions/{,mkfs.,fsck.,mount.}loamfs \
    usr/share/zsh/vendor-completions/_loamfs \
    usr/lib/udev/rules.d/61-loamfs.rules usr/share/loamfs/magic usr/share/doc/loamfs/{copyright,changelog.gz,CHANGELOG.md,sbom.cdx.json.gz,README.md,docs/DESIGN.md}; do
    [ -e "$work/root/$path" ] || fail "/$path is missing"
done
[ -z "$(find "$work/root" ! -user root)" ] || fail "something does not belong to root"
"$work/root/usr/bin/loamfs" --version >/dev/null
[ "$("$work/root/usr/bin/loamfs" bench --version | cut -d" " -f1)" = loamfs-bench ] || fail "bench is not found"
for file in "$work"/root/usr/share/man/man*/*.gz; do
    zcat "$file" | grep -qE '^\.SH "EXIT STATUS"|^\.so man8/mount' || fail "no exit status in $(basename "$file")"
done
ok "everything is in the package"

if command -v lintian >/dev/null; then
    lintian --allow-root --fail-on error,warning --tag-display-limit 0 "$package" >"$work/out" || { cat "$work/out" >&2; fail "lintian finds something"; }
    ok "lintian finds neither errors nor warnings"
else
    echo "skipped: no lintian"
fi

bash -n "$work/root/usr/share/bash-completion/completions/loamfs"
words=$(PATH=$work/root/usr/bin:$PATH bash -c ". $work/root/usr/share/bash-completion/completions/loamfs
    COMP_WORDS=(loamfs gr) COMP_CWORD=1
    _complete_loamfs loamfs gr loamfs
    echo \"\${COMPREPLY[*]}\"")
[ "$words" = grow ] || fail "bash completes 'gr' to '$words'"
if command -v zsh >/dev/null; then
    zsh -n "$work/root/usr/share/zsh/vendor-completions/_loamfs"
else
    head -1 "$work/root/usr/share/zsh/vendor-completions/_loamfs" | grep -qx '#compdef loamfs'
fi
ok "completions"

if dpkg-query -W loamfs >/dev/null 2>&1; then
    echo "skipped: a package loamfs is installed already"
    exit 0
fi
for name in bin/loamfs sbin/{loamfs,mkfs.loamfs,fsck.loamfs,mount.loamfs}; do
    [ ! -e "/usr/$name" ] || fail "/usr/$name is there already, and from no package"
done
dpkg -i "$package" >"$work/out" 2>&1 || { cat "$work/out" >&2; fail "dpkg -i"; }
installed=1
mkdir "$work/mnt"
truncate -s 256M "$work/volume.img"
mkfs -t loamfs -L packaged "$work/volume.img" >/dev/null
fsck -t loamfs "$work/volume.img" -- -a >/dev/null
mount -t loamfs "$work/volume.img" "$work/mnt"
echo hello >"$work/mnt/file"
mount -o remount,ro "$work/mnt"
mount -o remount,rw "$work/mnt"
umount "$work/mnt"
[ "$(loamfs cat "$work/volume.img" /file)" = hello ] || fail "what was written is not there"
if command -v man >/dev/null; then
    for page in 1/loamfs-mount 8/mount.loamfs 8/mount.fuse.loamfs; do
        man -w "${page%/*}" "${page#*/}" >/dev/null || fail "man ${page#*/}"
    done
fi
dpkg --purge loamfs >/dev/null
installed=
for name in bin/loamfs sbin/{loamfs,mkfs.loamfs,fsck.loamfs,mount.loamfs}; do
    [ ! -e "/usr/$name" ] || fail "/usr/$name was left behind"
done
ok "installed, used through mkfs(8), fsck(8) and mount(8), and removed"
