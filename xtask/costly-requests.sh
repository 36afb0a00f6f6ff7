#!/usr/bin/env bash
# What the most costly requests that clients may send do to heartbeats: loads three members with many keys, sends such requests to all
# of them at once, and prints how many turns of each member's loop took 50 ms or more, the longest of them, how many heartbeats were
# late, and whether anybody else came to lead. The same once more for a member that is started again with a backlog.
#
#   xtask/costly-requests.sh [KEYS=1000000] [SECONDS=20]
#
# BINARY is the program (target/release/hustings), DIRECTORY where the data goes (a new one under /var/tmp, removed at the end).
set -euo pipefail
cd "$(dirname "$0")/.."

keys=${1:-1000000}
seconds=${2:-20}
binary=${BINARY:-target/release/hustings}
directory=${DIRECTORY:-$(mktemp -d /var/tmp/hustings-costly-XXXXXX)}
port=22379
members=()
trap 'kill -9 "${members[@]}" 2>/dev/null; sleep 1; rm -rf "$directory"' EXIT

founders=n1=http://127.0.0.1:$((port + 11)),n2=http://127.0.0.1:$((port + 12)),n3=http://127.0.0.1:$((port + 13))
endpoints=127.0.0.1:$((port + 1)),127.0.0.1:$((port + 2)),127.0.0.1:$((port + 3))
start() { # number
  "$binary" serve --name "n$1" --data-dir "$directory/n$1" --initial-cluster "$founders" \
    --listen-client-urls "http://127.0.0.1:$((port + $1))" --listen-peer-urls "http://127.0.0.1:$((port + 10 + $1))" \
    2>>"$directory/n$1.log" &
  members[$1]=$!
  # So that nobody reports its end, which is on purpose.
  disown
}
hustings() { "$binary" "$@" --endpoints "$endpoints"; }
# All that a member counts of its turns.
counted() { # number
  curl -s "127.0.0.1:$((port + $1))/metrics" | awk '
    /^etcd_server_slow_apply_total/ { slow = $2 } /^etcd_server_heartbeat_send_failures_total/ { late = $2 }
    /^etcd_server_leader_changes_seen_total/ { changes = $2 } END { print slow + 0, late + 0, changes + 0 }'
}
during() { # what, command...
  local what=$1 n
  shift
  for n in 1 2 3; do counted "$n" >"$directory/before-$n"; done
  "$@"
  echo "== $what"
  for n in 1 2 3; do
    paste -d' ' "$directory/before-$n" <(counted "$n") | awk -v member="n$n" '{
      printf "  %s: %d turns of 50 ms or more, %d heartbeats late, %d changes of leader\n", member, $4 - $1, $5 - $2, $6 - $3 }'
  done
}

for n in 1 2 3; do start "$n"; done
hustings status --wait 30s >/dev/null
hustings bench put --clients 64 --total "$keys" --keys "$keys" --sequential-keys --value-size 256 --warm-up 0s --quiet

attack() {
  python3 - "$port" "$seconds" "$keys" <<'PYTHON'
import base64, collections, json, sys, threading, time, urllib.error, urllib.request

port, seconds, keys = int(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3])
name = lambda text: base64.b64encode(text).decode()
all_keys = {"key": name(b"\0"), "range_end": name(b"\0")}
compare = {**all_keys, "target": "VERSION", "result": "GREATER", "version": "0"}
mark = {"request_put": {"key": name(b"mark"), "value": name(b"x")}}
few = lambda n: {"key": name(b"gone/%d/" % n), "range_end": name(b"gone/%d0" % n)}
puts = lambda n: [{"request_put": {"key": name(b"gone/%d/%d" % (n, i)), "value": name(b"x" * 256)}} for i in range(120)]
requests = {
    "128 comparisons of all keys": lambda n: ("kv/txn", {"compare": [compare] * 128, "success": [mark]}),
    "100 ranges over all keys": lambda n: ("kv/txn", {"success": [{"request_range": {**all_keys, "limit": "10"}}] * 100 + [mark]}),
    "delete everything": lambda n: ("kv/deleterange", all_keys),
    "120 puts": lambda n: ("kv/txn", {"success": puts(n)}),
    "delete what was put": lambda n: ("kv/deleterange", few(n)),
    "one put": lambda n: ("kv/put", {"key": name(b"one"), "value": name(b"x")}),
}
answers, longest, lock, until = collections.Counter(), collections.Counter(), threading.Lock(), time.time() + seconds

def client(n):
    while time.time() < until:
        for what, make in requests.items():
            path, body = make(n)
            url = "http://127.0.0.1:%d/v3/%s" % (port + 1 + n % 3, path)
            begun = time.time()
            try:
                urllib.request.urlopen(urllib.request.Request(url, json.dumps(body).encode()), timeout=60).read()
                outcome = "done"
            except urllib.error.HTTPError as error:
                outcome = "refused"
                error.read()
            with lock:
                answers[what, outcome] += 1
                longest[what] = max(longest[what], time.time() - begun)

threads = [threading.Thread(target=client, args=(n,)) for n in range(12)]
for thread in threads: thread.start()
for thread in threads: thread.join()
for what in requests:
    print("  %-28s %6d done, %6d refused, longest %.0f ms" % (what, answers[what, "done"], answers[what, "refused"], longest[what] * 1000))
PYTHON
}
during "costly requests of twelve clients for $seconds s, at $keys keys" attack

backlog() {
  local n
  n=$(hustings status -o json | python3 -c 'import json,sys; print({"n1": 2, "n2": 3, "n3": 1}[json.load(sys.stdin)["leader"]])')
  kill -9 "${members[$n]}"
  "$binary" bench put --clients 64 --total 90000 --keys "$keys" --value-size 256 --warm-up 0s --quiet \
    --endpoints "$(tr ',' '\n' <<<"$endpoints" | grep -v ":$((port + n))\$" | paste -sd,)"
  start "$n"
  hustings status --wait 60s >/dev/null
}
during "a member comes back and has 90,000 puts to catch up with" backlog
