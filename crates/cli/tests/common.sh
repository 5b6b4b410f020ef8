# What the scripts that mount share; read by them, not run.

# A directory of this run's own.
work=$(mktemp -d)

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

# However the script ends: its function `last_words` gets the exit code, then everything goes.
leave() {
    local status=$?
    set +e
    last_words $status
    clean_up
    exit $status
}
trap leave EXIT
trap 'exit 130' INT TERM
