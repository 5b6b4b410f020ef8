# needs: python3:python3
# SQLite in both modes while the daemon is killed: what was committed is there, and the database is sound.
cat >"$work/writer.py" <<'PYTHON'
import sqlite3, sys
base = sqlite3.connect(sys.argv[1], isolation_level=None)
base.execute("pragma journal_mode=" + sys.argv[2])
base.execute("pragma synchronous=extra")
base.execute("create table if not exists rows (number integer primary key, text text)")
number = base.execute("select coalesce(max(number), 0) from rows").fetchone()[0]
while True:
    base.execute("begin")
    for _ in range(10):
        number += 1
        base.execute("insert into rows values (?, ?)", (number, "x" * (number % 900)))
    base.execute("delete from rows where number % 7 = 0 and number > ?", (number - 100,))
    base.execute("commit")
    print(number, flush=True)
PYTHON
cat >"$work/reader.py" <<'PYTHON'
import sqlite3, sys
base = sqlite3.connect(sys.argv[1])
assert base.execute("pragma integrity_check").fetchall() == [("ok",)]
print(base.execute("select max(number) from rows").fetchone()[0])
PYTHON
end_writer() {
    ! wait $writer || fail "the writer did not notice"
}
for mode in wal delete; do
    for round in 1 2 3; do
        : >"$work/said"
        (cd / && exec python3 "$work/writer.py" "$here/$mode.db" "$mode") >"$work/said" 2>"$work/died" &
        writer=$!
        until [ "$(wc -l <"$work/said")" -ge $((50 * round)) ]; do
            kill -0 $writer || fail "$(cat "$work/died")"
            sleep 0.1
        done
        cd /
        crash end_writer
        cd "$here"
        found=$(python3 "$work/reader.py" "$here/$mode.db")
        said=$(grep -E '^[0-9]+$' "$work/said" | tail -1)
        # The last row of a commit may be one of those that it deletes.
        [ "$found" -ge $((said - 1)) ] || fail "$mode: $said was committed, and $found is there"
    done
done
