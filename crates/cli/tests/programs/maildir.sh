# needs: python3:python3
# Eight processes deliver, one reader files: every message arrives once and whole, and stays through a crash.
mkdir -p box/tmp box/new box/cur
cat >"$work/deliver.py" <<'PYTHON'
import hashlib, os, sys
box, who = sys.argv[1], sys.argv[2]
for number in range(300):
    name = "%s.%d" % (who, number)
    body = os.urandom(200 + 97 * number)
    text = hashlib.sha256(body).hexdigest().encode() + b"\n" + body
    path = os.path.join(box, "tmp", name)
    with open(path, "xb") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.link(path, os.path.join(box, "new", name))
    os.unlink(path)
directory = os.open(os.path.join(box, "new"), os.O_RDONLY)
os.fsync(directory)
PYTHON
cat >"$work/read.py" <<'PYTHON'
import hashlib, os, sys, time
box, seen = sys.argv[1], set()
deadline = time.monotonic() + 300
while len(seen) < 2400 and time.monotonic() < deadline:
    for name in os.listdir(os.path.join(box, "new")):
        assert name not in seen, name
        seen.add(name)
        target = os.path.join(box, "cur", name + ":2,S")
        os.rename(os.path.join(box, "new", name), target)
        summed, body = open(target, "rb").read().split(b"\n", 1)
        assert hashlib.sha256(body).hexdigest().encode() == summed, name
assert len(seen) == 2400, len(seen)
PYTHON
processes=()
for who in 1 2 3 4 5 6 7 8; do
    python3 "$work/deliver.py" box $who &
    processes+=($!)
done
python3 "$work/read.py" box
for process in "${processes[@]}"; do wait "$process"; done
[ -z "$(ls box/tmp box/new | grep -v :$ | tr -d '\n')" ] || fail "something is left"
sync
cd /
crash
cd "$here"
[ "$(find box/cur -type f | wc -l)" = 2400 ] || fail "messages were lost"
for message in box/cur/*; do
    [ "$(tail -n +2 "$message" | sha256sum | cut -c1-64)" = "$(head -1 "$message")" ] || fail "$message is damaged"
done
