#!/usr/bin/env bash
# Three members on this machine that hold more than they may take memory for: loads them, counts memory and disk, kills and starts
# each, kills the leader, and compares what all hold.
#
#   xtask/beyond-memory.sh [GIGABYTES=8] [BYTES OF A VALUE=16384]
#
# BINARY is the program (target/release/hustings), DIRECTORY where the data goes (a new one under /var/tmp, removed at the end).
# The disk must have room for three times what is loaded, for each of the three. The hashes come from etcd's own etcdctl.
set -euo pipefail
cd "$(dirname "$0")/.."

gigabytes=${1:-8}
value_bytes=${2:-16384}
binary=${BINARY:-target/release/hustings}
directory=${DIRECTORY:-$(mktemp -d /var/tmp/hustings-beyond-memory-XXXXXX)}
keys=$((gigabytes * 1000000000 / value_bytes))
port=21379
members=()
trap 'kill -9 "${members[@]}" 2>/dev/null; sleep 1; rm -rf "$directory"' EXIT

founders=n1=http://127.0.0.1:$((port + 11)),n2=http://127.0.0.1:$((port + 12)),n3=http://127.0.0.1:$((port + 13))
endpoints=127.0.0.1:$((port + 1)),127.0.0.1:$((port + 2)),127.0.0.1:$((port + 3))
start() { # number
  "$binary" serve --name "n$1" --data-dir "$directory/n$1" --initial-cluster "$founders" \
    --quota-backend-bytes $((gigabytes * 2000000000)) \
    --listen-client-urls "http://127.0.0.1:$((port + $1))" --listen-peer-urls "http://127.0.0.1:$((port + 10 + $1))" \
    2>>"$directory/n$1.log" &
  members[$1]=$!
  # So that nobody reports its end, which is on purpose.
  disown
}
stop() { kill -9 "${members[$1]}"; while kill -0 "${members[$1]}" 2>/dev/null; do sleep 0.05; done; }
hustings() { "$binary" "$@" --endpoints "$endpoints"; }
seconds_since() { python3 -c "import sys,time; print(f'{time.time() - float(sys.argv[1]):.1f} s')" "$1"; }
memory() {
  for n in 1 2 3; do
    awk -v member="n$n" '/^(VmHWM|VmRSS|RssAnon):/ { value[$1] = $2 / 1048576 }
      END { printf "  %s: resident %.2f GiB (%.2f of them its own), at most so far %.2f GiB\n", member, value["VmRSS:"], value["RssAnon:"], value["VmHWM:"] }' \
      "/proc/${members[$n]}/status"
  done
  du -sh "$directory"/n1 "$directory"/n2 "$directory"/n3 | sed 's/^/  /'
}

for n in 1 2 3; do start "$n"; done
hustings status --wait 30s >/dev/null

echo "== $keys keys of $value_bytes bytes, $gigabytes GB"
began=$(date +%s.%N)
hustings bench put --clients 64 --total "$keys" --keys "$keys" --sequential-keys --value-size "$value_bytes" --warm-up 0s --quiet
seconds_since "$began"
memory

echo "== reads of any of them, 10 s"
hustings bench get --clients 64 --seconds 10 --keys "$keys" --quiet

echo "== each killed and started"
for n in 1 2 3; do
  stop "$n"
  began=$(date +%s.%N)
  start "$n"
  until "$binary" get nothing --serializable --timeout 300s --endpoints "127.0.0.1:$((port + n))" >/dev/null 2>&1 || [ $? = 3 ]; do sleep 0.1; done
  echo "  n$n answers after $(seconds_since "$began")"
done
hustings status --wait 300s >/dev/null
memory

echo "== the leader killed"
leader=$(hustings status -o json | python3 -c 'import json,sys; print(json.load(sys.stdin)["leader"][1:])')
hustings put before kill >/dev/null
kill -9 "${members[$leader]}"
began=$(date +%s.%N)
hustings put after kill --timeout 30s >/dev/null
echo "  the next write is acknowledged after $(seconds_since "$began"), with the start of a process in it"
start "$leader"
hustings status --wait 300s >/dev/null

echo "== what all hold"
ETCDCTL_API=3 etcdctl --command-timeout=600s --endpoints "$endpoints" endpoint hashkv
