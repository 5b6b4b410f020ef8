#!/bin/bash
# Workloads at the smallest scale where users may run them: in the library, in a directory, on a disk of their own. Needs
# root.
#
#   bench.sh LOAMFS
set -euo pipefail

loamfs=$(realpath "$1")
. "$(dirname "$0")/common.sh"
results=$work/results.json

last_words() { tally bench "$1"; }

bench() { "$loamfs" bench run --scale tiny --out "$results" "$@"; }

# Whether all runs succeeded, and an expression in Python holds for each phase `p` of each run `r` of the results `all`.
holds() {
    python3 - "$results" "$1" <<'END_OF_CHECK'
import json, sys
results = json.load(open(sys.argv[1]))
phases = [(run, phase) for run in results["runs"] for phase in run["phases"]]
hold = [eval(sys.argv[2], {"all": results, "r": run, "p": phase}) for run, phase in phases]
failed = [run for run in results["runs"] if run["failed"]]
sys.exit(not hold or not all(hold) or bool(failed))
END_OF_CHECK
}

in_the_library() {
    expect 0 bench --library --only smallfile --only archive --only mailspool --traces "$work/traces"
    holds 'r["kind"] == "loamfs-library" and p["disks"]["reference"]["seconds"] > 0' || fail "nothing is priced"
    expect 0 "$loamfs" bench replay "$work/traces/smallfile-LoamFS-library-1.trace.gz" --json
    expect 0 bench --library --image "$work/library.img" --only postmark
    [ ! -e "$work/library.img" ] || fail "the image is left"
    expect 0 "$loamfs" bench report "$results" --html "$work/page.html"
    grep -q 'bench run [^<]*--library' "$work/page.html" || fail "the page does not say how to run it again"
    rm "$results"
    ok "the library: traced, priced, in memory and in a file"
}

# What the kernel asks for is told by the kernel, and does not depend on the machine.
requests() {
    chmod 755 "$work"
    expect 0 "$loamfs" bench requests --work "$work" --files 100 --json
    python3 - "$work/out" <<'END_OF_CHECK' || fail "other requests than were known"
import json, sys
rows = json.load(open(sys.argv[1]))
found = {(row["person"], row["operation"]): sum(row["requests"].values()) / row["files"] for row in rows}
most = {
    ("root", "create"): 6, ("root", "stat"): 1, ("root", "cold stat"): 1, ("root", "cold read"): 2,
    ("root", "warm read"): 0, ("root", "rewrite"): 4, ("root", "rename"): 3, ("root", "unlink"): 2,
    ("guest", "create"): 7, ("root", "third grep -r"): 0.1, ("root", "third find"): 0.1, ("root", "third du"): 0.1,
    ("root", "third git status"): 0.2, ("root", "third ls -l"): 1.2,
}
wrong = {key: found[key] for key in most if found[key] > most[key] + 0.05}
print(wrong)
sys.exit(bool(wrong) or found["root", "create"] < 4)
END_OF_CHECK
    ok "requests of each operation, by who does it"
}

in_memory() {
    expect 0 bench --memory --only smallfile --fs loamfs --fs ext4
    grep -q "the larger" "$work/out" || fail "the machine does not stand beside the disk"
    holds '(p["spent"]["daemon"] > 0) == (r["kind"] == "loamfs")' || fail "the daemon's time is not told"
    holds 'p["machine_seconds"] > 0 and p["disks"]["reference"]["seconds"] > 0' || fail "machine or disk is not told"
    expect 0 "$loamfs" bench report "$results" --html "$work/page.html"
    grep -q 'bench run [^<]*--memory' "$work/page.html" || fail "the page does not say how to run it again"
    rm "$results"
    ok "in memory: the machine's time beside that of the disk"
}

at_work() { [ "$(find "$work/own" | wc -l)" -gt 100 ]; }

in_a_directory() {
    mkdir "$work/own"
    echo kept >"$work/own/file"
    expect 0 bench --directory "$work/own" --only smallfile --only createfiles
    holds 'p["disks"] == {} and p["machine_seconds"] > 0' || fail "there are no seconds of the machine"
    holds "all['about']['place']['directory']['directory'] == '$work/own'" || fail "the place is not told"
    [ "$(ls -A "$work/own")" = file ] || fail "the directory is not as it was"
    expect 0 "$loamfs" bench report "$results" --html "$work/page.html"
    rm "$results"
    # However it ends.
    "$loamfs" bench run --directory "$work/own" --out "$results" --only postmark --count 10000000 >"$work/out" 2>&1 &
    until_it at_work
    kill "$!"
    wait "$!" || [ $? -eq 143 ] || fail "a signal does not end it"
    [ "$(ls -A "$work/own")" = file ] || fail "a signal leaves something"
    rm -f "$results"
    ok "a directory: timed, told, and as it was, also after a signal"
}

on_a_disk() {
    local disk
    truncate -s 1G "$work/disk.img"
    disk=$(losetup --find --show "$work/disk.img")
    expect 64 bench --on "$disk" --only smallfile
    grep -q 'would lose all of its 1.0 GiB' "$work/out" || fail "what is lost is not said"
    mkfs.ext4 -q "$disk"
    mkdir "$work/mnt"
    mount "$disk" "$work/mnt"
    expect 64 bench --on "$disk" --force --only smallfile
    grep -q 'is in use' "$work/out" || fail "a mounted disk is not refused in words"
    umount "$work/mnt"
    expect 0 bench --on "$disk" --force --only smallfile --fs loamfs --fs ext4
    holds 'p["disks"]["reference"]["seconds"] > 0 and p["machine_seconds"] > 0' || fail "figures lack"
    holds "r['case']['device'] == 1 << 30" || fail "the size is not that of the disk"
    losetup -d "$disk"
    rm "$results"
    ok "a disk: refused while in use and without --force; traced, priced and timed"
}

# What a mount through io_uring switches on for the machine is as it was afterwards, mounted or not.
leaves_the_switch() {
    local switch=/sys/module/fuse/parameters/enable_uring was code=0
    [ -e $switch ] || return 0
    was=$(cat $switch)
    echo N >$switch
    "$loamfs" bench mount --work "$work/rates" --files 5 --rounds 1 --clients 1 --fs loamfs -o "$1" >"$work/out" 2>&1 || code=$?
    [ "$(cat $switch)" = N ] || { echo "$was" >$switch; fail "the machine's switch is left on (exit code $code)"; }
    echo "$was" >$switch
}

# Rates depend on the machine; that there are some, and that both servers are asked for the same, does not.
on_mounts() {
    mkdir "$work/rates"
    "$loamfs" bench mount --work "$work/rates" --files 50 --rounds 1 --clients 1,2 --fs loamfs --fs ceiling --fs ext4 \
        --json >"$work/out" 2>"$work/err" || { cat "$work/err" >&2; fail "bench mount does not end well"; }
    python3 - "$work/out" <<'END_OF_CHECK' || fail "figures lack, or requests differ"
import json, sys
report = json.load(open(sys.argv[1]))
cells, requests = report["cells"], report["requests"]
lack = [c for c in cells if not (c["rate"] and c["to_ceiling"] and c["to_ext4"] and c["client_micros"] > 0)]
differ = [r for r in requests if not r["equal"]]
asked = {r["operation"]: sum(r["ceiling"].values()) / r["files"] for r in requests}
print(lack, differ, asked)
sys.exit(len(cells) != 10 * 2 * 3 or len(requests) != 10 or bool(lack or differ) or asked["create"] < 4 or asked["warm-read"] > 0.1)
END_OF_CHECK
    # The ceiling server knows no access times: with these every open is a request, to LoamFS alone.
    expect 1 "$loamfs" bench mount --work "$work/rates" --files 20 --rounds 1 --clients 1 --fs loamfs --fs ceiling -o strictatime
    grep -q 'DIFFER' "$work/out" || fail "other requests are not noticed"
    leaves_the_switch "transport=uring"
    leaves_the_switch "transport=uring,cache=nonsense"
    rmdir "$work/rates" || fail "something is left of it"
    ok "rates on mounts, beside a server that is asked for the same"
}

# Figures depend on the machine; that there are some of each task does not.
side_by_side() {
    mkdir "$work/beside"
    "$loamfs" bench elapsed --work "$work/beside" --files 100 --rounds 1 --json >"$work/out" 2>"$work/err" ||
        { cat "$work/err" >&2; fail "bench elapsed does not end well"; }
    python3 - "$work/out" <<'END_OF_CHECK' || fail "programs were not timed"
import json, sys
report = json.load(open(sys.argv[1]))
tasks = {cell["task"] for cell in report["cells"]}
lack = [c for c in report["cells"] if not (c["median"] and c["to_ceiling"] and c["to_ext4"])]
print(tasks, lack, report["about"]["left_out"])
sys.exit(bool(lack) or not {"tar x", "cp -r", "third grep -r", "rm -rf"} <= tasks)
END_OF_CHECK
    expect 0 "$loamfs" bench streams --work "$work/beside" --mib 4 --streams 1,2 --rounds 1
    [ "$(grep -o '^[a-z].* streams\?' "$work/out" | sort -u | wc -l)" -eq 12 ] || fail "not every stream was timed"
    rmdir "$work/beside" || fail "something is left of it"
    ok "programs and streams, beside a server that does no other work and ext4"
}

# What is not installed is said before anything is measured.
lacking() {
    mkdir -p "$work/none"
    for run in "tiers --only smallfile --scale tiny --work $work" "run --scale tiny --out $work/never.json"; do
        # shellcheck disable=SC2086
        PATH=$work/none "$loamfs" bench $run --fs nilfs2 >"$work/out" 2>"$work/err" && fail "bench $run runs without mkfs.nilfs2"
        [ ! -s "$work/out" ] || fail "bench $run measures first"
        grep -q "mkfs.nilfs2 is not installed" "$work/err" || { cat "$work/err" >&2; fail "bench $run does not say what it lacks"; }
    done
    ln -s "$(command -v tar)" "$work/none/tar"
    PATH=$work/none "$loamfs" bench run --scale tiny --out "$results" --only smallfile >"$work/out" 2>"$work/err" ||
        { cat "$work/err" >&2; fail "what is not installed is not left out"; }
    grep -q "btrfs is left out: no mkfs.btrfs is installed" "$work/err" || fail "nobody is told that btrfs is left out"
    holds 'r["kind"] == "loamfs"' || fail "more runs than what is installed"
    rm "$results"
    ok "what is not installed is refused before anything is measured, or left out if nobody asked for it"
}

# LoamFS on two disks and on each, ext4 on each: five rows, and what is written to the fast one is programmed there.
tiers() {
    "$loamfs" bench tiers --only smallfile --scale tiny --fs ext4 --work "$work" --json >"$work/out" 2>"$work/err" ||
        { cat "$work/err" >&2; fail "bench tiers does not end well"; }
    python3 - "$work/out" <<'END_OF_CHECK' || fail "a volume on two disks was not priced"
import json, sys
rows = json.load(open(sys.argv[1]))
both = rows[0]
print(both)
sys.exit(len(rows) != 5 or both["on"] != "both" or both["fast"]["programmed_bytes"] < both["fast"]["written"]["bytes"])
END_OF_CHECK
    ok "a volume on two disks, beside each alone and ext4"
}

# At this size a policy gains or loses nothing worth a bound; that all were tried does.
policies() {
    "$loamfs" bench settler --only backup --only write-only --size 8 --json >"$work/out" 2>"$work/err" || [ $? -eq 1 ] ||
        { cat "$work/err" >&2; fail "bench settler does not end well"; }
    python3 - "$work/out" <<'END_OF_CHECK' || fail "policies were not compared"
import json, sys
rows = json.load(open(sys.argv[1]))
lack = [r for r in rows if r["to_best"] <= 0 or {t["policy"] for t in r["taken"]} != {"weighed", "never", "always", "unmount"}]
print(rows, lack)
sys.exit(len(rows) != 4 or bool(lack))
END_OF_CHECK
    ok "policies of settling, on disks of a model"
}

tracks() {
    "$loamfs" bench tracks --only deep --files 1000 --reads 100 --volume 256 --json >"$work/out" 2>"$work/err" ||
        { cat "$work/err" >&2; fail "bench tracks does not end well"; }
    python3 - "$work/out" <<'END_OF_CHECK' || fail "reads out of tracks were not compared"
import json, sys
row, = json.load(open(sys.argv[1]))
reads = {it["work"]: (it["log"]["read"]["requests"], it["tracks"]["read"]["requests"]) for it in row["compared"]}
print(row["settled"], reads)
sys.exit(row["settled"] != 1000 or not all(min(both) > 0 for both in reads.values()))
END_OF_CHECK
    ok "small files out of the log and out of tracks, on a disk of the model"
}

in_the_library
policies
tracks
lacking
tiers
in_memory
in_a_directory
on_a_disk
requests
on_mounts
side_by_side
