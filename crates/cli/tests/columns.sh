#!/bin/bash
# No line that a command prints for people is wider than a terminal of 80 columns: help, reports, tables, messages. Needs root.
#
#   columns.sh LOAMFS
set -euo pipefail

loamfs=$(realpath "$1")
. "$(dirname "$0")/common.sh"
here=$(realpath "$(dirname "$0")")

mkdir "$mnt" "$work/mnt3" "$work/tree"
head -c 3M /dev/urandom >"$work/tree/large"
seq 5 >"$work/tree/words"
for number in $(seq 20); do echo "$number" >"$work/tree/small$number"; done
echo text >"$work/text"
for volume in "$image" "$work/other.img"; do
    "$loamfs" mkfs -q --size 256M --label "a label of some length" "$volume"
    "$loamfs" put "$volume" "$work/tree" /tree >"$work/out" 2>&1
done
mount_it
python3 "$here/columns.py" "$loamfs" "$work" "$mnt" >"$work/wide" || { cat "$work/wide" >&2; fail "lines are too wide"; }
ok "$(head -1 "$work/wide"), and no line of help, reports and messages is wider than 80 columns"
expect 0 "$loamfs" unmount "$mnt"
