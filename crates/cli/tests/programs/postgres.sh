# needs: psql:postgresql
# PostgreSQL under pgbench while the daemon is killed: it recovers, and the books balance.
bin=$(ls -d /usr/lib/postgresql/*/bin 2>/dev/null | tail -1)
[ -x "$bin/initdb" ] || skip "no initdb below /usr/lib/postgresql"
id postgres >/dev/null 2>&1 || skip "there is no user postgres"
command -v setpriv >/dev/null || skip "no setpriv"
as() { setpriv --reuid=postgres --regid=postgres --clear-groups env PGHOST="$work/run" PGUSER=postgres "$@"; }
mkdir "$work/run"
chown postgres "$work/run" .
data=$here/data
start() { as "$bin/pg_ctl" -D "$data" -w -t 120 -l "$work/run/log" -o "-k $work/run -c listen_addresses=" start; }
stop() { as "$bin/pg_ctl" -D "$data" -w -m "$1" stop; }
end_server() {
    kill -QUIT "$postmaster" 2>/dev/null || true
    ! wait $bench || fail "pgbench did not notice"
    while kill -0 "$postmaster" 2>/dev/null; do sleep 0.2; done
}
trap 'stop immediate 2>/dev/null || true' EXIT
cd /
as "$bin/initdb" -D "$data" -A trust --data-checksums >/dev/null
start
as "$bin/pgbench" -q -i -s 5 postgres
# With -n, since else it empties its history first.
for round in 1 2; do
    as "$bin/pgbench" -n -c 4 -T 60 postgres >"$work/run/bench" 2>&1 &
    bench=$!
    sleep 6
    postmaster=$(head -1 "$data/postmaster.pid")
    crash end_server
    rm -f "$data/postmaster.pid"
    start
    sums=$(as psql -AtF ' ' -c 'select (select sum(abalance) from pgbench_accounts),
        (select sum(tbalance) from pgbench_tellers), (select sum(bbalance) from pgbench_branches),
        (select coalesce(sum(delta), 0) from pgbench_history), (select count(*) > 0 from pgbench_history)' postgres)
    read -r accounts tellers branches history worked <<<"$sums"
    [ "$accounts $tellers $branches" = "$history $history $history" ] || fail "the books do not balance: $sums"
    [ "$worked" = t ] || fail "pgbench did nothing"
done
as psql -qc 'create extension if not exists amcheck' postgres 2>/dev/null && as "$bin/pg_amcheck" postgres
stop fast
as "$bin/pg_checksums" -D "$data" --check
