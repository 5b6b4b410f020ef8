#!/bin/bash
# Volumes full to the brim of tiny files, on a real mount: everything can be deleted, unmounted, mounted again and grown,
# after kills too, and the daemon has nothing to complain of. Needs root.
#
#   brim.sh LOAMFS
set -euo pipefail

loamfs=$(realpath "$1")
. "$(dirname "$0")/common.sh"
mkdir "$mnt"

# Files of 1,000 bytes until nothing fits; says how many.
fill() {
    python3 - "$mnt" <<'END'
import errno, itertools, os, sys
for number in itertools.count():
    name = f"{sys.argv[1]}/file{number}"
    try:
        with open(name, "wb", buffering=0) as file:
            whole = file.write(b"x" * 1000) == 1000
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        whole = False
    if not whole:
        if os.path.exists(name):
            os.unlink(name)
        print(number)
        break
END
}

# Deletes at most $1 files, in an order of chance; the names go to the file $2.
delete() {
    python3 - "$mnt" "$1" "$2" <<'END'
import os, random, sys
mnt, most, gone = sys.argv[1], int(sys.argv[2]), open(sys.argv[3], "a")
names = sorted(os.listdir(mnt))
random.Random(len(names)).shuffle(names)
for done, name in enumerate(names[:most]):
    try:
        os.unlink(f"{mnt}/{name}")
    except OSError as error:
        sys.exit(f"{done} of {len(names)} files are deleted, then: {error}")
    print(name, file=gone)
END
}

# The log of a daemon that goes in circles fills up.
is_quiet() {
    local bytes
    bytes=$(wc -c <"$work/daemon.log")
    [ "$bytes" -lt 65536 ] || fail "the daemon has much to say, $bytes bytes: $(tail -3 "$work/daemon.log")"
    ! grep -q "no room for a segment" "$work/daemon.log" || fail "a segment found no place"
}

"$loamfs" mkfs --quiet --size 64M "$image"
mount_it
count=$(fill)
[ "$count" -gt 30000 ] || fail "only $count files of 1,000 bytes fit into 64 MiB"
sync -f "$mnt"
delete 1000000 "$work/gone" || fail "full, not everything can be deleted"
[ "$(wc -l <"$work/gone")" -eq "$count" ] || fail "other files than were made"
is_quiet
expect 0 "$loamfs" unmount "$mnt"
expect 0 "$loamfs" check "$image"
mount_it
[ -z "$(ls "$mnt")" ] || fail "back after unmounting: $(ls "$mnt" | head -3)"
ok "$count files fill 64 MiB, and all can be deleted"

again=$(fill)
[ "$again" -gt $((count / 20 * 19)) ] || fail "$again files fit where $count did"
"$loamfs" unmount "$mnt"
ok "as many fit again"

rm "$image"
"$loamfs" mkfs --quiet --size 16M "$image"
mount_it
count=$(fill)
sync -f "$mnt"
# What is synced stays deleted; what is not may be back.
: >"$work/gone"
for round in $(seq 40); do
    rm -f "$work/lately"
    delete 100 "$work/lately" || fail "round $round: full, not everything can be deleted"
    if [ $((round % 4)) -eq 0 ]; then
        sync -f "$mnt"
        cat "$work/lately" >>"$work/gone"
    fi
    crash
done
ls "$mnt" | sort | comm -12 - <(sort -u "$work/gone") >"$work/back"
[ ! -s "$work/back" ] || fail "deleted, synced, and back: $(head -3 "$work/back")"
is_quiet
ok "16 MiB full of $count files are deleted though the daemon is killed 40 times"

expect 0 "$loamfs" unmount "$mnt"
truncate -s 24M "$image"
expect 0 "$loamfs" grow "$image"
expect 0 "$loamfs" check "$image"
mount_it
left=$(ls "$mnt" | wc -l)
delete 1000000 "$work/gone" || fail "grown, not everything can be deleted"
expect 0 "$loamfs" unmount "$mnt"
expect 0 "$loamfs" check "$image"
ok "it grows then, and the other $left are deleted"
