# needs: smbd:samba smbclient:smbclient
# A share on the mount, through smbclient: there and back, listings, renames, removals.
mkdir share "$work/samba"
head -c 5000000 /dev/urandom >"$work/large"
echo small >"$work/small"
port=44500
cat >"$work/samba/smb.conf" <<CONF
[global]
    server role = standalone server
    map to guest = bad user
    guest account = root
    disable netbios = yes
    bind interfaces only = yes
    interfaces = lo
    smb ports = $port
    load printers = no
    ea support = yes
    log file = $work/samba/log
    lock directory = $work/samba
    state directory = $work/samba
    cache directory = $work/samba
    private dir = $work/samba
    pid directory = $work/samba
    ncalrpc dir = $work/samba
[share]
    path = $here/share
    read only = no
    guest ok = yes
    force user = root
CONF
smbd --foreground --configfile="$work/samba/smb.conf" --debug-stdout >"$work/samba/out" 2>&1 &
server=$!
trap 'kill $server; wait $server || true' EXIT
ask() { smbclient -s "$work/samba/smb.conf" -N -p $port //127.0.0.1/share -c "$1"; }
for _ in $(seq 100); do
    ask ls >/dev/null 2>&1 && break
    kill -0 $server || fail "$(tail -5 "$work/samba/out")"
    sleep 0.1
done
ask "mkdir dir; put $work/large dir/large; put $work/small small; rename small dir/renamed"
cmp "$work/large" share/dir/large
[ "$(cat share/dir/renamed)" = small ] || fail "the rename lost something"
ask "cd dir; get large $work/back; ls" | tee "$work/listing"
cmp "$work/large" "$work/back"
grep -q renamed "$work/listing" || fail "a name is missing"
ask "del dir/large; del dir/renamed; rmdir dir"
[ -z "$(ls share)" ] || fail "something is left"
