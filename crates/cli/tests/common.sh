# What the scripts that mount share; read by them, not run.

# A directory of this run's own, and where its volume and its mount are, unless it has others.
work=$(mktemp -d)
image=$work/volume.img
mnt=$work/mnt

# Takes away what this run made: mounts below its own directory, and loop devices of its own images.
clean_up() {
    local path device
    while read -r _ _ _ _ path _; do
        case $path in "$work"/*) umount -l "$path" ;; esac
    done </proc/self/mountinfo
    for device in /sys/block/loop*/loop/backing_file; do
        case $(cat "$device" 2>/dev/null) in
        "$work"/*) losetup -d "/dev/$(basename "$(dirname "$(dirname "$device")")")" ;;
        esac
    done
    rm -rf "$work"
}

# What a script has to do and to say at its end, with its exit code; some have more.
last_words() {
    tally "$(basename "$0" .sh)" "$1"
}

# However the script ends: `last_words` gets the exit code, then everything goes.
leave() {
    local status=$?
    set +e
    last_words $status
    clean_up
    exit $status
}
trap leave EXIT
trap 'exit 130' INT TERM

# ---- steps ---------------------------------------------------------------------------------------------------

passed=0

ok() {
    passed=$((passed + 1))
    echo "ok $passed - $*"
}

fail() {
    echo "not ok - $*" >&2
    exit 1
}

# Runs a command that must end with this exit code.
expect() {
    local code=$1 got=0
    shift
    "$@" >"$work/out" 2>&1 || got=$?
    if [ $got -ne "$code" ]; then
        cat "$work/out" >&2
        fail "exit code $got instead of $code: $*"
    fi
}

# Waits, for half a minute at most, until a command succeeds.
until_it() {
    for _ in $(seq 300); do
        if "$@"; then return; fi
        sleep 0.1
    done
    fail "never: $*"
}

# ---- the mount -------------------------------------------------------------------------------------------------

# Mounts the volume, with these options if any.
mount_it() {
    "$loamfs" mount -o "log=$work/daemon.log${1:+,$1}" "$image" "$mnt" >"$work/out"
}

# The process that serves a mount, this run's unless another is given.
daemon() {
    "$loamfs" info --json "${1:-$mnt}" | sed -n 's/.*"daemon": \([0-9]*\).*/\1/p'
}

# What a power cut does: kills a daemon, this run's unless another is given, with the process that would replace it, and
# takes the dead mount away.
power_cut() {
    local pid=${1:-$(daemon)}
    kill -9 "$(sed -n 's/^PPid:[^0-9]*//p' "/proc/$pid/status")" "$pid"
    # Whoever has become its parent may leave it as a zombie.
    while grep -qs . "/proc/$pid/cmdline"; do sleep 0.05; done
    umount -l "${2:-$mnt}"
}

# The same, and mounts again, with these options if any.
crash() {
    power_cut
    until_it mount_it "${1-}"
}

# ---- the end ---------------------------------------------------------------------------------------------------

# The last line, by which a script may be judged: its name, and its exit code; behind what the daemons have to say.
tally() {
    if [ "$2" -eq 0 ]; then
        echo "$1: $passed passed, 0 failed"
    else
        echo "FAILED after $passed steps" >&2
        [ ! -s "$work/daemon.log" ] || tail -50 "$work/daemon.log" >&2
        echo "$1: $passed passed, 1 failed"
    fi
}
