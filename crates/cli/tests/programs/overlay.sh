# needs: getfattr:attr
# overlayfs with the mount below, and as the layer that takes the changes.
mkdir lower upper scratch
mkdir "$work/merged" "$work/plain"
fill() {
    mkdir -p "$1/dir/sub" "$1/gone"
    echo old >"$1/file"
    echo old >"$1/dir/file"
    echo old >"$1/gone/file"
}
change() {
    echo new >>file
    echo new >dir/other
    rm dir/file
    rm -r gone
    mkdir gone
    mv file moved
    ln moved link
    chmod 640 link
}
right() {
    [ "$(cat moved link)" = "$(printf 'old\nnew\nold\nnew')" ] || fail "wrong content"
    [ ! -e file ] && [ ! -e dir/file ] && [ "$(cat dir/other)" = new ] || fail "wrong names"
    [ -d gone ] && [ -z "$(ls gone)" ] || fail "what was removed shows through"
    [ "$(ls | tr '\n' ' ')" = "dir gone link moved " ] || fail "wrong listing"
}
over() { mount -t overlay overlay -o "lowerdir=$1,upperdir=$2,workdir=$3" "$work/merged"; }
away() { cd /; umount "$work/merged"; cd "$here"; }
fill lower
fill "$work/plain"
mount -t tmpfs tmpfs "$work/plain" && mkdir "$work/plain/upper" "$work/plain/work"
trap 'cd /; umount -l "$work/merged" "$work/plain" 2>/dev/null || true' EXIT
# Whether there is such a thing, without this mount.
mkdir "$work/plain/probe" "$work/plain/probe/"{lower,upper,work}
over "$work/plain/probe/lower" "$work/plain/probe/upper" "$work/plain/probe/work" || skip "this kernel mounts no overlay"
away
# Below.
over "$here/lower" "$work/plain/upper" "$work/plain/work" || fail "it cannot be the lower layer"
(cd "$work/merged" && change && right)
away
fill "$work/plain/lower"
# Above, mounted twice.
over "$work/plain/lower" "$here/upper" "$here/scratch" || fail "it cannot be the upper layer"
(cd "$work/merged" && change && right)
away
[ "$(stat -c '%F %t %T' upper/file)" = "character special file 0 0" ] || fail "no whiteout"
getfattr -n trusted.overlay.opaque --only-values upper/gone | grep -q y || fail "no opaque directory"
over "$work/plain/lower" "$here/upper" "$here/scratch"
(cd "$work/merged" && right)
away
# Both: changes go where renames leave whiteouts.
mkdir upper2 scratch2
over "$here/lower" "$here/upper2" "$here/scratch2"
(cd "$work/merged" && change && right)
away
