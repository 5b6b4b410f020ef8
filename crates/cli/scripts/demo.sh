#!/bin/sh
# A volume to look at: made in a file, mounted, with a real source tree in it.
#
#   demo.sh start|stop DIRECTORY LOAMFS
set -eu

action=$1
directory=$2
loamfs=$3
here=$(dirname "$0")
image=$directory/volume.img
mnt=$directory/mnt

mounted() {
    grep -q " $mnt " /proc/self/mountinfo
}

stop() {
    if mounted; then
        "$loamfs" unmount "$mnt"
        echo "unmounted; the volume is still in $image"
    else
        echo "nothing is mounted on $mnt"
    fi
}

start() {
    mkdir -p "$mnt" "$directory/tree"
    if mounted; then
        echo "it runs already: look into $mnt, or say 'make stop'"
        return
    fi
    sh "$here/tree.sh" "$directory/tree"
    rm -f "$image"
    "$loamfs" mkfs --size 8G --label demo "$image"
    "$loamfs" mount "$image" "$mnt"
    # Whatever fails from here on must not leave a mount behind.
    trap stop EXIT
    echo "unpacking the tree into $mnt ..."
    mkdir "$mnt/source"
    tar -C "$directory/tree" -cf - . | tar -C "$mnt/source" -xf -
    echo "comparing it with the original ..."
    diff -r --no-dereference "$directory/tree/." "$mnt/source/."
    trap - EXIT
    df -h "$mnt"
    cat <<END

$(find "$mnt/source" -type f | wc -l) files are on the volume, each equal to its original. To try next:

  cd $mnt
  grep -rl malloc $mnt/source | wc -l
  $loamfs info $mnt
  rm -rf $mnt/source
  kill -9 DAEMON    (its number is what info says): another one goes on with the mount

To stop:        make stop
After that:     $loamfs check $image
                $loamfs tree -L 2 $image
END
}

case $action in
start) start ;;
stop) stop ;;
*)
    echo "demo.sh: start or stop?" >&2
    exit 64
    ;;
esac
