#!/bin/bash
# Real programs on a LoamFS mount, each a script in programs/ that passes, fails, or says why it was skipped. Needs root.
#
#   programs.sh LOAMFS [NAME...]     the program, and which scripts; all of them without names
#
# A script says in a line "# needs: COMMAND:PACKAGE ..." what it uses; what is missing is installed where apt can. It
# runs with -e, in an empty directory $here of the mount, and has an empty $work elsewhere and what stands below.
set -euo pipefail

loamfs=$(realpath "$1")
shift
scripts=$(realpath "$(dirname "$0")/programs")
repository=$(realpath "$scripts/../../../..")
. "$(dirname "$0")/common.sh"
last_words() { :; }

mount_it() {
    "$loamfs" mount -o "log=$work/daemon.log" "$image" "$mnt" >/dev/null
}

# Processes of a server may end a moment after it.
unmount_it() {
    for _ in $(seq 50); do
        "$loamfs" unmount "$mnt" >"$work/unmount.log" 2>&1 && return
        sleep 0.2
    done
    cat "$work/unmount.log"
    return 1
}

# The daemon dies, a command ends whoever still holds files of the dead mount, and the volume is mounted again.
crash() {
    power_cut
    "$@"
    mount_it
}

fail() {
    echo "$*" >&2
    exit 1
}

# Ends a script that cannot be run here.
skip() {
    echo "$*"
    exit 77
}

needs() {
    sed -n 's/^# needs: //p' "$scripts/$1.sh" | tr ' ' '\n'
}

# The commands of a script that are not there.
missing() {
    local command
    for command in $(needs "$1"); do
        command -v "${command%:*}" >/dev/null || echo "$command"
    done
}

names=("$@")
[ $# -gt 0 ] || for script in "$scripts"/*.sh; do names+=("$(basename "$script" .sh)"); done
packages=$(for name in "${names[@]}"; do missing "$name"; done | sed 's/.*://' | sort -u)
if [ -n "$packages" ]; then
    echo "installing" $packages
    # shellcheck disable=SC2086
    { apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends $packages; } \
        >"$work/apt.log" 2>&1 || echo "not everything can be installed:" "$(tail -1 "$work/apt.log")"
fi

mkdir "$mnt"
chmod 755 "$work"
"$loamfs" mkfs --size 8G "$image" >/dev/null
passed=0 failed="" skipped=""
for name in "${names[@]}"; do
    lacking=$(missing "$name")
    if [ -n "$lacking" ]; then
        echo "$name: skipped, not installed:" $lacking
        skipped="$skipped $name"
        continue
    fi
    mount_it
    here=$mnt/$name
    mkdir "$here"
    # Where a command's failure is looked at, -e means nothing to it.
    set +e
    (
        trap - EXIT
        set -e
        work=$work/$name.d
        mkdir "$work"
        cd "$here"
        . "$scripts/$name.sh"
    ) >"$work/$name.log" 2>&1 </dev/null
    status=$?
    set -e
    case $status in
    0) echo "$name: passed"; passed=$((passed + 1)) ;;
    77) echo "$name: skipped, $(tail -1 "$work/$name.log")"; skipped="$skipped $name" ;;
    *) echo "$name: FAILED"; tail -20 "$work/$name.log"; failed="$failed $name" ;;
    esac
    unmount_it || { echo "$name: FAILED to be unmounted"; failed="$failed $name"; break; }
    "$loamfs" check "$image" >"$work/check.log" 2>&1 ||
        { echo "$name: FAILED, check:"; tail -5 "$work/check.log"; failed="$failed $name"; }
done
echo "programs: $passed passed, failed:${failed:- none}, skipped:${skipped:- none}"
[ -z "$failed" ]
