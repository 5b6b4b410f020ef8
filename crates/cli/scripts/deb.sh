#!/bin/sh
# Builds a Debian package of what `make install` installs.
#
#   deb.sh OUTPUT_DIRECTORY VERSION
set -eu

output=$1
version=$2
here=$(dirname "$0")
maintainer="The LoamFS authors <loamfs@localhost.localdomain>"
stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
chmod 755 "$stage"

make --no-print-directory install DESTDIR="$stage" PREFIX=/usr >/dev/null
programs="$stage/usr/bin/loamfs $stage/usr/libexec/loamfs-bench"
# shellcheck disable=SC2086
strip --strip-unneeded $programs
gzip -9n "$stage"/usr/share/man/man*/*.[18]
# All documents, so that what they say of each other is there.
doc=$stage/usr/share/doc/loamfs
install -d "$doc/docs"
install -m 644 README.md SECURITY.md CONTRIBUTING.md CHANGELOG.md "$doc"
install -m 644 docs/*.md "$doc/docs"
# Debian has a form of its own for changes of a package; those of the program are beside it.
built=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || date +%s)}
gzip -9nc >"$doc/changelog.gz" <<END
loamfs ($version) unstable; urgency=medium

  * What changed in the program is in CHANGELOG.md beside this file.

 -- $maintainer  $(LC_ALL=C date -R -u -d "@$built")
END
python3 "$here/dependencies.py" sbom | gzip -9n >"$doc/sbom.cdx.json.gz"
cat >"$doc/copyright" <<END
Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: LoamFS

Files: *
Copyright: 2026 the LoamFS contributors
License: Expat or Apache-2.0
 May be used under either licence, at your choice.

License: Expat
$(sed -n '/^Permission is/,$p' LICENSE-MIT | sed 's/^$/./; s/^/ /')

License: Apache-2.0
 On Debian systems it is in /usr/share/common-licenses/Apache-2.0.
END

# The project has no address of its own yet.
install -d "$stage/usr/share/lintian/overrides"
printf 'loamfs: %s *\n' bogus-mail-host bogus-mail-host-in-debian-changelog >"$stage/usr/share/lintian/overrides/loamfs"

# What the programs were linked against is the least that they need.
# shellcheck disable=SC2086
libc=$(objdump -T $programs | sed -n 's/.*(GLIBC_\([0-9.]*\)).*/\1/p' | sort -uV | tail -1)
mkdir "$stage/DEBIAN"
cat >"$stage/DEBIAN/control" <<END
Package: loamfs
Version: $version
Architecture: $(dpkg --print-architecture)
Maintainer: $maintainer
Section: admin
Priority: optional
Installed-Size: $(du -sk "$stage/usr" | cut -f1)
Depends: libc6 (>= $libc), libgcc-s1, mount
Recommends: fuse3
Description: file system for very many small files, on disks where a seek is dear
 LoamFS writes every change to a log first, in large sequential writes that are
 atomic; small files and metadata stay there, large files go to extents of their
 own. It runs in user space, through FUSE. The package holds the command loamfs,
 the helpers that mkfs(8), fsck(8), mount(8) and udev(7) look for, and the
 program behind "loamfs bench".
END

mkdir -p "$output"
dpkg-deb --root-owner-group --build "$stage" "$output/loamfs_${version}_$(dpkg --print-architecture).deb"
