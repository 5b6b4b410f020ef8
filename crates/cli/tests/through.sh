#!/bin/bash
# Runs another script with mounts whose requests travel in a given way, or on volumes of a given profile. What that switches
# on for the machine is put back. Needs root.
#
#   through.sh WAY LOAMFS SCRIPT [ARGUMENT...]      a value of the mount option `transport`, or `lfs`
set -euo pipefail

mount='' made=''
case $1 in
lfs) made="--profile lfs" ;;
*) mount="-o transport=$1" ;;
esac
way=$1
loamfs=$(realpath "$2")
script=$3
shift 3
switch=/sys/module/fuse/parameters/enable_uring

if [ "$way" = uring ] && { [ ! -e $switch ] || [ "$(cat /proc/sys/kernel/io_uring_disabled)" != 0 ]; }; then
    echo "skipped: requests cannot travel through io_uring here"
    exit 0
fi
was=$(cat $switch 2>/dev/null || true)
work=$(mktemp -d)
chmod 711 "$work"

put_back() {
    [ -z "$was" ] || echo "$was" >$switch
    rm -rf "$work"
}
trap put_back EXIT
trap 'exit 130' INT TERM

# By another name it is a helper of mount(8) and others.
cat >"$work/loamfs" <<END
#!/bin/bash
name=\$(basename "\$0")
case \$name:\${1-} in
loamfs:mkfs) shift; exec "$loamfs" mkfs $made "\$@" ;;
loamfs:mount) shift; exec "$loamfs" mount $mount "\$@" ;;
mount.*) exec -a "\$name" "$loamfs" "\$@" $mount ;;
*) exec -a "\$name" "$loamfs" "\$@" ;;
esac
END
chmod 755 "$work/loamfs"
bash "$script" "$work/loamfs" "$@"
