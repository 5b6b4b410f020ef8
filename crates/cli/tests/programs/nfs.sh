# needs: ganesha.nfsd:nfs-ganesha-vfs nfs-cp:libnfs-utils python3:python3
# NFS-Ganesha exports a directory of the mount, by handles: files go there and back, names change, and the
# handles that a client has outlive a remount.
[ -e "$(find /usr/lib -name libfsalvfs.so -print -quit)" ] || skip "Ganesha has no VFS: nfs-ganesha-vfs is not installed"
mkdir share "$work/ganesha"
head -c 5000000 /dev/urandom >"$work/large"
echo small >"$work/small"
port=24049
# A server that exports a directory.
configure() {
    cat >"$work/ganesha/conf" <<CONF
NFS_CORE_PARAM {
    Protocols = 4;
    NFS_Port = $port;
    Bind_addr = 127.0.0.1;
    Enable_NLM = false;
    Enable_RQUOTA = false;
}
NFSv4 {
    Graceless = true;
    Only_Numeric_Owners = true;
    RecoveryRoot = $work/ganesha;
}
NFS_KRB5 { Active_krb5 = false; }
EXPORT {
    Export_Id = 1;
    Path = $1;
    Pseudo = /export;
    Access_Type = RW;
    Squash = No_Root_Squash;
    SecType = sys;
    FSAL { Name = VFS; }
}
CONF
}
url() { echo "nfs://127.0.0.1/export${1-}?version=4&nfsport=$port"; }

stop_server() {
    kill "$server" 2>/dev/null || true
    wait "$server" || true
}

start_server() {
    ganesha.nfsd -F -f "$work/ganesha/conf" -L "$work/ganesha/log" -p "$work/ganesha/pid" &
    server=$!
    trap stop_server EXIT
    for _ in $(seq 100); do
        timeout 10 nfs-ls "$(url)" >"$work/ls" 2>&1 && return
        kill -0 "$server" || return
        sleep 0.1
    done
    fail "Ganesha exports nothing: $(cat "$work/ls")" "$(tail -5 "$work/ganesha/log")"
}

why() { grep -E 'CRIT|MAJ|FATAL' "$work/ganesha/log" | tail -1 || true; }

configure "$here/share"
if ! start_server; then
    because=$(why)
    # Whether it would, of a directory elsewhere.
    mkdir "$work/plain"
    configure "$work/plain"
    start_server || skip "Ganesha does not start here: $(why)"
    fail "Ganesha does not start with this mount: $because"
fi
nfs-cp "$work/small" "$(url /small)"
cmp "$work/small" share/small
# What others change on the mount, and what was there before Ganesha looked.
mkdir -p share/dir/below
echo local >share/dir/below/file
[ "$(nfs-cat "$(url /dir/below/file)")" = local ] || fail "Ganesha reads something else"
nfs-ls -R "$(url)" | tee "$work/listing"
for name in small dir/below dir/below/file; do grep -q " $name\$" "$work/listing" || fail "no $name in the listing"; done

# What the tools of libnfs cannot do, its library can.
cat >"$work/client.py" <<'END'
import ctypes, ctypes.util, errno, os, sys
when, url, large, store = sys.argv[1:]
nfs = ctypes.CDLL(ctypes.util.find_library("nfs"))

class Url(ctypes.Structure):
    _fields_ = [("server", ctypes.c_char_p), ("path", ctypes.c_char_p), ("file", ctypes.c_char_p)]

class Handle(ctypes.Structure):
    _fields_ = [("length", ctypes.c_int), ("bytes", ctypes.POINTER(ctypes.c_char))]

nfs.nfs_init_context.restype = ctypes.c_void_p
nfs.nfs_get_error.restype = ctypes.c_char_p
nfs.nfs_parse_url_dir.restype = ctypes.POINTER(Url)
nfs.nfs_get_fh.restype = ctypes.POINTER(Handle)
context = ctypes.c_void_p(nfs.nfs_init_context())

def call(name, *arguments):
    result = getattr(nfs, name)(context, *arguments)
    if result < 0:
        raise OSError(-result, "%s: %s" % (name, nfs.nfs_get_error(context)))
    return result

def opened(path, flags=os.O_RDONLY):
    file = ctypes.c_void_p()
    call("nfs_open2", path, flags, 0o640, ctypes.byref(file))
    return file

def inode(file):
    stat = (ctypes.c_uint64 * 64)()
    call("nfs_fstat64", file, stat)
    return stat[1]

def handle(path):
    found = nfs.nfs_get_fh(opened(path)).contents
    return found.bytes[: found.length]

# Asks the server for what a handle leads to, whatever file it was opened as.
def inode_of(handle):
    file = opened(b"/other")
    place = nfs.nfs_get_fh(file).contents
    assert place.length == len(handle)
    ctypes.memmove(place.bytes, handle, len(handle))
    return inode(file)

url = nfs.nfs_parse_url_dir(context, url.encode()).contents
call("nfs_mount", url.server, url.path)
if when == "before":
    file = opened(b"/large", os.O_CREAT | os.O_WRONLY)
    with open(large, "rb") as data:
        # Some versions of libnfs cannot write more at once through NFSv4.
        while piece := data.read(3000):
            assert call("nfs_write", file, ctypes.c_uint64(len(piece)), piece) == len(piece)
    call("nfs_fsync", file)
    call("nfs_close", file)
    call("nfs_mkdir", b"/made")
    call("nfs_rename", b"/small", b"/made/renamed")
    call("nfs_link", b"/made/renamed", b"/made/linked")
    call("nfs_symlink", b"renamed", b"/made/symlink")
    call("nfs_chmod", b"/made/renamed", 0o604)
    call("nfs_unlink", b"/dir/below/file")
    call("nfs_rmdir", b"/dir/below")
    with open(store, "w") as out:
        print(handle(b"/made/renamed").hex(), handle(b"/gone").hex(), file=out)
else:
    kept, gone = (bytes.fromhex(word) for word in open(store).read().split())
    print(inode_of(kept))
    try:
        inode_of(gone)
        sys.exit("a removed file is there again")
    except OSError as error:
        assert error.errno in (errno.ESTALE, errno.ENOENT), error
END
client() { python3 "$work/client.py" "$1" "$(url)" "$work/large" "$work/handles"; }

touch share/gone share/other
client before
cmp "$work/large" share/large
[ "$(stat -c '%a %h %s' share/made/renamed)" = "604 2 6" ] || fail "mode, links or size: $(stat share/made/renamed)"
[ "$(readlink share/made/symlink)" = renamed ] || fail "a symbolic link"
[ -z "$(ls share/dir)" ] || fail "something is left"

stop_server
rm share/gone
# The name is another one, and the server has never heard of it.
mv share/made share/moved
cd /
unmount_it
mount_it
cd "$here"
start_server || fail "Ganesha does not start again: $(why)"
found=$(client after)
[ "$found" = "$(stat -c %i share/moved/renamed)" ] || fail "a handle from before leads elsewhere"
nfs-cp "$(url /large)" "$work/back"
cmp "$work/back" "$work/large"
[ "$(nfs-cat "$(url /moved/linked)")" = small ] || fail "content behind a remount"
