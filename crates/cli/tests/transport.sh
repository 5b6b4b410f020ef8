#!/bin/bash
# How requests travel: what is chosen where io_uring is to be had and where not, that mounts through it outlive kills,
# stops, unmounts under load, signals and a device that does not answer, and that both ways get along with little memory.
# Needs root.
#
#   transport.sh LOAMFS
set -euo pipefail

loamfs=$(realpath "$1")
. "$(dirname "$0")/common.sh"
switch=/sys/module/fuse/parameters/enable_uring
disabled=/proc/sys/kernel/io_uring_disabled
back=$work/back
stopped=
clients=
group=

if [ ! -e $switch ] || [ "$(cat $disabled)" != 0 ]; then
    echo "skipped: requests cannot travel through io_uring here"
    exit 0
fi
was=$(cat $switch)

last_words() {
    echo "$was" >$switch
    echo 0 >$disabled
    [ -z "$stopped" ] || kill -CONT "$stopped" 2>/dev/null
    [ -z "$clients" ] || kill -9 $clients 2>/dev/null
    # What stands on another mount goes first.
    umount -l "$mnt" 2>/dev/null && sleep 1
    [ -z "$group" ] || until_it rmdir "$group"
    tally transport "$1"
}

transport() {
    "$loamfs" info --json "$mnt" | python3 -c 'import json, sys; print(json.load(sys.stdin)["transport"]["name"])'
}

mounted_by() {
    mount_it "$1"
    [ "$(transport)" = "$2" ] || fail "mounted with ${1:-no option}, requests travel by $(transport)"
    echo content >"$mnt/file"
    [ "$(cat "$mnt/file")" = content ] || fail "mounted with ${1:-no option}, a file holds something else"
    umount "$mnt"
}

# That it does not mount, and says this.
refused() {
    expect "$1" "$loamfs" mount -o "$2" "$image" "$mnt"
    grep -q "$3" "$work/out" || fail "mounting with $2 says: $(cat "$work/out")"
}

# Work without end, in a directory of its own.
work_on() {
    mkdir -p "$mnt/$1"
    while true; do
        for number in $(seq 50); do echo "$number" >"$mnt/$1/$number"; done
        cat "$mnt/$1"/* >/dev/null
        rm "$mnt/$1"/*
        sync -f "$mnt/$1"
    done 2>/dev/null
}

start_clients() {
    clients=
    for name in one two three; do
        work_on $name &
        clients="$clients $!"
    done
    disown -a
    sleep 1
}

end_clients() {
    kill -9 $clients 2>/dev/null || true
    clients=
}

is_sound() {
    expect 0 timeout 120 "$loamfs" check "$image"
}

mkdir "$mnt" "$back"
"$loamfs" mkfs -q --size 256M "$image"

# ---- what is chosen ----------------------------------------------------------------------------------------------

echo N >$switch
mounted_by transport=dev dev
mounted_by transport=auto,restart=no dev
[ "$(cat $switch)" = N ] || fail "auto switched io_uring on for the machine"
echo Y >$switch
mounted_by transport=auto,restart=no uring
# A daemon that follows another could not have requests of rings sent again.
mounted_by transport=auto dev
mounted_by transport=dev dev
echo N >$switch
mounted_by transport=uring uring
[ "$(cat $switch)" = Y ] || fail "uring did not switch io_uring on for the machine"
ok "io_uring is used where it is on, and switched on where it is asked for by name"

echo 2 >$disabled
mounted_by transport=auto,restart=no dev
refused 32 transport=uring "transport=uring: the system allows no io_uring"
echo 0 >$disabled
mounted_by transport=auto,restart=no uring
ok "where the system allows no io_uring, /dev/fuse serves, or it is said why not"

mounted_by transport=auto,restart=no,cache=16M dev
refused 32 transport=uring,cache=16M "give a larger cache="
mounted_by transport=uring,cache=24M uring
mount_it transport=uring,cache=64M
cache=$("$loamfs" info --json "$mnt" | python3 -c 'import json, sys; print(json.load(sys.stdin)["memory"]["cache_bytes"])')
umount "$mnt"
[ "$cache" = $((64 << 20)) ] || fail "of cache=64M info shows $cache"
refused 1 transport=tcp "give transport=auto|uring|dev"
ok "buffers take their part of the cache and no more"

# ---- what it outlives ----------------------------------------------------------------------------------------------

mount_it transport=uring
start_clients
pid=$(daemon)
for _ in 1 2 3; do
    kill -STOP "$pid"
    sleep 0.3
    kill -CONT "$pid"
    timeout 60 ls -l "$mnt" >/dev/null || fail "no answer after a stop"
done
ok "it goes on after being stopped"

power_cut "$pid"
end_clients
# The kernel takes a while to end what was under way.
for _ in 1 2 3 4 5; do
    until_it mount_it transport=uring
    power_cut
done
until_it mount_it transport=uring
[ "$(transport)" = uring ] || fail "after a kill, requests travel by $(transport)"
timeout 60 ls -l "$mnt"/* >/dev/null
ok "a daemon that is killed under load leaves nothing that hangs"

pid=$(daemon)
start_clients
timeout 60 umount -l "$mnt"
end_clients
has_ended() { [ ! -e "/proc/$pid" ]; }
until_it has_ended
is_sound
ok "a mount that is taken away under load ends, and the volume is sound"

# ---- a device that does not answer -----------------------------------------------------------------------------------

"$loamfs" mkfs -q --size 1G "$work/back.img"
"$loamfs" mount -o "log=$work/back.log" "$work/back.img" "$back" >/dev/null
image=$back/volume.img
"$loamfs" mkfs -q --size 256M "$image"
mount_it transport=uring
mkdir "$mnt/warm"
for number in $(seq 20); do head -c 3000 /dev/urandom >"$mnt/warm/$number"; done
for number in $(seq 8); do head -c 4M /dev/urandom >"$mnt/cold$number"; done
sums=$(cat "$mnt/warm"/* "$mnt"/cold* | sha256sum)
sync
"$loamfs" drop-caches "$mnt" >/dev/null
cat "$mnt/warm"/* >/dev/null
ls -l "$mnt" >/dev/null
echo 3 >/proc/sys/vm/drop_caches
stopped=$(daemon "$back")
kill -STOP "$stopped"
readers=
for number in $(seq 8); do
    cat "$mnt/cold$number" >/dev/null &
    readers="$readers $!"
done
sleep 1
for _ in 1 2 3; do
    timeout 30 df "$mnt" >/dev/null || fail "df waits for the device"
    timeout 30 ls -l "$mnt/warm" >/dev/null || fail "ls waits for the device"
    timeout 30 cat "$mnt/warm"/* >/dev/null || fail "what is in memory waits for the device"
done
ok "what is in memory is read while others wait for a device that does not answer"

# The first two are told to end, one of them in a way that it cannot refuse.
set -- $readers
kill -INT "$1"
kill -9 "$2"
timeout 30 df "$mnt" >/dev/null || fail "df waits after signals"
kill -CONT "$stopped"
stopped=
shift 2
for reader in "$@"; do wait "$reader" || fail "a reader failed after the device answered again"; done
wait || true
[ "$(timeout 60 cat "$mnt/warm"/* "$mnt"/cold* | sha256sum)" = "$sums" ] || fail "other content"
timeout 60 umount "$mnt"
is_sound
timeout 60 umount "$back"
ok "clients that wait can be signalled, and the rest reads on when the device answers"

# ---- little memory -------------------------------------------------------------------------------------------------

# Makes a group of processes that may use so many bytes of memory, where the system has such groups.
make_group() {
    local root
    for root in /sys/fs/cgroup/memory /sys/fs/cgroup; do
        group=$root/loamfs-test-$$
        if [ -e "$root/memory.limit_in_bytes" ]; then
            mkdir "$group" && echo "$1" >"$group/memory.limit_in_bytes" && return
        elif grep -qs memory "$root/cgroup.subtree_control"; then
            mkdir "$group" && echo "$1" >"$group/memory.max" && return
        fi
    done 2>/dev/null
    group=
    return 1
}

# Whatever is mounted by this runs in the group.
mount_in_group() { (
    echo "$BASHPID" >"$group/cgroup.procs"
    mount_it "$1"
); }

if [ "$(stat -f -c %T "$work")" != tmpfs ] && make_group $((96 << 20)); then
    image=$work/small.img
    for transport in dev uring; do
        "$loamfs" mkfs -q --force --size 1G "$image"
        mount_in_group "transport=$transport,cache=64M"
        pid=$(daemon)
        work_on group &
        clients=$!
        disown -a
        for number in $(seq 4); do head -c 64M /dev/urandom >"$mnt/large$number"; done
        mkdir "$mnt/many"
        for number in $(seq 3000); do echo "$number" >"$mnt/many/$number"; done
        sums=$(cat "$mnt/large"* "$mnt/many"/* | sha256sum)
        end_clients
        sync -f "$mnt"
        "$loamfs" drop-caches "$mnt" >/dev/null
        echo 3 >/proc/sys/vm/drop_caches
        [ "$(timeout 120 cat "$mnt/large"* "$mnt/many"/* | sha256sum)" = "$sums" ] || fail "other content by $transport"
        [ "$(daemon)" = "$pid" ] || fail "the daemon died in its group by $transport"
        grep -q "$(basename "$group")" "/proc/$pid/cgroup" || fail "the daemon is not in the group"
        timeout 60 umount "$mnt"
        is_sound
    done
    ok "with half as much memory again as cache= says, both ways go on"
else
    echo "skipped: no group of processes with little memory can be made here"
fi
