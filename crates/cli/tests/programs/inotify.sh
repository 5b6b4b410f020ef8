# needs: inotifywait:inotify-tools
# What happens in a directory is told to who watches it.
mkdir watched
inotifywait -m -q --format '%e %f' watched >"$work/events" &
watcher=$!
trap 'kill $watcher; wait $watcher || true' EXIT
# Until it watches: this name is told once it does.
for _ in $(seq 300); do
    touch watched/ready
    sleep 0.1
    grep -q ready "$work/events" && break
    kill -0 $watcher || fail "inotifywait has ended"
done
grep -q ready "$work/events" || fail "nothing is told"
echo text >watched/file
chmod 600 watched/file
mv watched/file watched/moved
ln watched/moved watched/link
mkdir watched/dir
rm watched/moved
touch watched/end
for _ in $(seq 100); do
    grep -q end "$work/events" && break
    sleep 0.1
done
for event in 'CREATE file' 'MODIFY file' 'CLOSE_WRITE,CLOSE file' 'ATTRIB file' 'MOVED_FROM file' 'MOVED_TO moved' \
    'CREATE link' 'CREATE,ISDIR dir' 'DELETE moved'; do
    grep -qx "$event" "$work/events" || fail "not told: $event"
done
