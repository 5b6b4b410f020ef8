#!/bin/bash
# Mounts without extended attributes, and without access lists: what the kernel then asks, what may still be done, and
# that no file keeps capabilities that is changed meanwhile. Needs root for fuseblk and loop devices.
#
#   noxattr.sh LOAMFS
set -euo pipefail

loamfs=$(realpath "$1")
. "$(dirname "$0")/common.sh"

tracing=/sys/kernel/tracing

# How often the kernel asks for attributes while a command runs.
asked() {
    local instance=$tracing/instances/loamfs-$$
    [ -d $tracing/instances ] || mount -t tracefs tracefs $tracing
    mkdir "$instance"
    echo 1 >"$instance/events/fuse/fuse_request_send/enable"
    "$@" || fail "$*"
    echo 0 >"$instance/events/fuse/fuse_request_send/enable"
    local connection
    # The kernel's own form of a device number.
    connection=$(($(stat -c "(%Hd << 20) + %Ld" "$mnt")))
    grep -c "connection $connection .*FUSE_GETXATTR" "$instance/trace" || true
    rmdir "$instance"
}

# Does something with an attribute: set FILE NAME, get FILE NAME, list FILE.
attribute() {
    python3 - "$@" <<'PYTHON'
import os, sys
what, path, *name = sys.argv[1:]
if what == "set":
    os.setxattr(path, name[0], bytes.fromhex(name[1]))
elif what == "get":
    print(os.getxattr(path, name[0]).hex())
else:
    print(" ".join(os.listxattr(path)))
PYTHON
}

files() {
    for number in $(seq 50); do echo content >"$mnt/$1$number"; done
}

remount() {
    "$loamfs" unmount "$mnt"
    mount_it "$1"
}

# An access list: owner rw, user 1000 r, group none, mask r, others none.
list=0200000001000600ffffffff02000400e803000004000000ffffffff10000400ffffffff20000000ffffffff
# cap_net_raw+ep
capability=0100000200200000000000000000000000000000

# Others than root come to the mount too.
chmod 755 "$work"
mkdir "$mnt"
"$loamfs" mkfs --size 64M "$image" >"$work/out"
mount_it rw
echo content >"$mnt/file"
echo listed >"$mnt/listed"
chmod 600 "$mnt/listed"
attribute set "$mnt/file" user.note 6e6f7465
attribute set "$mnt/listed" system.posix_acl_access $list
for name in written cut given mapped; do
    cp /bin/true "$mnt/$name"
    attribute set "$mnt/$name" security.capability $capability
done
[ "$(asked files a)" -ge 50 ] || fail "this counts no requests for attributes"
ok "with attributes the kernel asks for one of each file that is written"

remount noxattr
[ "$(asked files b)" -le 1 ] || fail "noxattr: the kernel asks for attributes"
ok "noxattr: it does not"
for what in "get $mnt/file user.note" "list $mnt/file" "set $mnt/file user.other 00"; do
    # shellcheck disable=SC2086
    if attribute $what >"$work/out" 2>&1; then fail "noxattr: $what"; fi
done
if setpriv --reuid 1000 --regid 1000 --clear-groups cat "$mnt/listed" >"$work/out" 2>&1; then
    fail "noxattr: the access list counts"
fi
ok "noxattr: there are no attributes"
echo more >>"$mnt/written"
truncate -s 100 "$mnt/cut"
chown 1000 "$mnt/given"
python3 -c "import mmap, sys
with open(sys.argv[1], 'r+b') as file, mmap.mmap(file.fileno(), 0) as content: content[0] = 1" "$mnt/mapped"

remount noacl
[ "$(attribute get "$mnt/file" user.note)" = 6e6f7465 ] || fail "the attribute is gone"
if attribute get "$mnt/listed" system.posix_acl_access >"$work/out" 2>&1; then fail "noacl: the list is there"; fi
if setpriv --reuid 1000 --regid 1000 --clear-groups cat "$mnt/listed" >"$work/out" 2>&1; then fail "noacl: the list counts"; fi
ok "noacl: attributes, but no access lists"

remount rw
[ "$(attribute get "$mnt/listed" system.posix_acl_access)" = $list ] || fail "the access list is gone"
setpriv --reuid 1000 --regid 1000 --clear-groups cat "$mnt/listed" >"$work/out" || fail "the access list does not count"
ok "what the volume has it keeps"
for name in written cut given mapped; do
    [ -z "$(attribute list "$mnt/$name")" ] || fail "$name was changed and has its capabilities"
done
ok "what was changed without attributes has no capabilities"
"$loamfs" unmount "$mnt"
"$loamfs" check "$image" >"$work/out"
