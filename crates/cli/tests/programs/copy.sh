# needs: tar:tar rsync:rsync setfattr:attr setfacl:acl
# tar and rsync there and back: links, holes, attributes, ACLs, owners, times, odd names.
mkdir "$work/from" "$work/back"
(
    cd "$work/from"
    cp -r "$repository/crates" .
    ln crates/cli/Cargo.toml hard
    ln -s /no/such/file dangling
    mkfifo fifo
    truncate -s 1G sparse
    printf end | dd of=sparse bs=1 seek=536870912 conv=notrunc status=none
    printf 'odd' >"$(printf 'new\nline \377')"
    setfattr -n user.note -v "a value" hard
    setfattr -n trusted.note -v "another" crates
    setfattr -n user.long -v "$(head -c 3000 /dev/zero | tr '\0' x)" hard
    setfacl -m u:daemon:r,d:g:nogroup:rwx crates
    chown 12345:54321 hard
    chmod 4711 crates/cli/Cargo.toml
    touch -d '1960-05-06 07:08:09.123456789' hard
    # Of what is no file or directory rsync takes whole seconds along.
    touch -h -d '2001-02-03 04:05:06' dangling fifo
    touch -d '2107-05-06 07:08:09.123456789' crates
)
# Whether the second directory is the first in all that rsync knows.
same() {
    local differences
    differences=$(rsync -aHAXnci --delete --modify-window=-1 "$1/" "$2/" | sed '/^\.d\.\.t\.\.\.\.\.\. \.\/$/d')
    [ -z "$differences" ] || fail "$1 and $2 differ: $differences"
}
mkdir tar rsync
tar -C "$work/from" --acls --xattrs --xattrs-include='*' -S -cf - . | tar -C tar --acls --xattrs --xattrs-include='*' -xpf -
# Without that window rsync leaves times alone that are right to the second, as those of a directory just made.
rsync -aHAXS --modify-window=-1 "$work/from/" rsync/
same "$work/from" tar
same "$work/from" rsync
sync
cd /
crash
cd "$here"
same "$work/from" tar
same "$work/from" rsync
[ "$(stat -c %b rsync/sparse)" -lt 2000 ] || fail "the holes were filled"
rsync -aHAXS --modify-window=-1 rsync/ "$work/back/"
same "$work/from" "$work/back"
