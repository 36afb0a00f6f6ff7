#!/usr/bin/env bash
# What the most costly requests that clients may send do to a cluster: loads three members with many keys, sends one kind of such
# requests after the other, and prints for each kind what was answered, and of each member how long the longest turns of the loop that
# sends heartbeats were, how many of them took 50 ms or more, how many heartbeats were late, whether anybody else came to lead, and
# by how much its memory grew at most. The same once more for a member that is started again with a backlog, and for puts of 1 MB at
# a member that hears no other.
#
#   xtask/costly-requests.sh [KEYS=1000000] [SECONDS=20] [PROTOCOL=raft]
#
# BINARY is the program (target/release/hustings), DIRECTORY where a new folder for the data is made and removed at the end (/var/tmp),
# MEMORY_LIMIT the budget of each member for what clients make it hold, in bytes (256 MiB); ONLY names kinds to try in place of all.
set -euo pipefail
cd "$(dirname "$0")/.."

keys=${1:-1000000}
seconds=${2:-20}
protocol=${3:-raft}
binary=${BINARY:-target/release/hustings}
directory=$(mktemp -d "${DIRECTORY:-/var/tmp}/hustings-costly-XXXXXX")
limit=${MEMORY_LIMIT:-$((256 << 20))}
port=22379
members=()
trap 'kill -CONT "${members[@]}" 2>/dev/null; kill -9 "${members[@]}" 2>/dev/null; sleep 1; rm -rf "$directory"' EXIT

founders=n1=http://127.0.0.1:$((port + 11)),n2=http://127.0.0.1:$((port + 12)),n3=http://127.0.0.1:$((port + 13))
endpoints=127.0.0.1:$((port + 1)),127.0.0.1:$((port + 2)),127.0.0.1:$((port + 3))
start() { # number
  "$binary" serve --name "n$1" --data-dir "$directory/n$1" --initial-cluster "$founders" --protocol "$protocol" \
    --memory-limit "$limit" --quota-backend-bytes 4000000000 \
    --listen-client-urls "http://127.0.0.1:$((port + $1))" --listen-peer-urls "http://127.0.0.1:$((port + 10 + $1))" \
    2>>"$directory/n$1.log" &
  members[$1]=$!
  # So that nobody reports its end, which is on purpose.
  disown
}
hustings() { "$binary" "$@" --endpoints "$endpoints"; }
wanted() { [ -z "${ONLY:-}" ] || [[ " $ONLY " == *" $1 "* ]]; }
# Turns by their bounds, and what else a member counts; a line each.
counted() { # number
  curl -s "127.0.0.1:$((port + $1))/metrics" | grep -E \
    '^(hustings_loop_turn_seconds_bucket|hustings_loop_waited_seconds_total|hustings_loop_long_turns|etcd_server_heartbeat_send_failures_total|etcd_server_leader_changes_seen_total)' || true
}
field() { awk -v name="$1:" '$1 == name { print $2 }' "/proc/${members[$2]}/status"; }
during() { # what, command...
  local what=$1 n
  shift
  for n in 1 2 3; do
    counted "$n" >"$directory/before-$n"
    # The high-water mark of its memory begins anew.
    echo 5 >"/proc/${members[$n]}/clear_refs"
    echo "${members[$n]} $(field VmRSS "$n")" >"$directory/process-$n"
  done
  echo "== $what"
  "$@"
  for n in 1 2 3; do
    counted "$n" >"$directory/after-$n"
    python3 - "$directory" "$n" "${members[$n]}" "$(field VmHWM "$n")" <<'PYTHON'
import sys
directory, n, process, peak = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])
old, resident = open(f"{directory}/process-{n}").read().split()
read = lambda when: dict(line.rsplit(" ", 1) for line in open(f"{directory}/{when}-{n}"))
before, after = read("before"), read("after")
# A member that was started anew counts from nothing.
since = lambda name: float(after.get(name, 0)) - (float(before.get(name, 0)) if process == old else 0)
memory = f"memory grew by {(peak - int(resident)) / 1024:.0f} MiB at most" if process == old else (
    f"a new process, {peak / 1024:.0f} MiB at most")
turns, below, longest = [], 0, "none"
for name in after:
    if name.startswith("hustings_loop_turn"):
        bound, count = name.split('"')[1], since(name)
        if count > below:
            longest = "above 1 s" if bound == "+Inf" else f"at most {float(bound) * 1000:g} ms"
        turns.append((bound, count - below))
        below = count
long = sum(count for bound, count in turns if bound == "+Inf" or float(bound) > 0.05)
print(f"  n{n}: {below:.0f} turns, the longest {longest}; {long:.0f} above 50 ms"
      + (f", in which its loop ran {since('hustings_loop_long_turns_ran_seconds_total') * 1000:.0f} of "
         f"{since('hustings_loop_long_turns_seconds_total') * 1000:.0f} ms" if long else "") + "; "
      f"it waited {since('hustings_loop_waited_seconds_total'):.1f} s for a processor; "
      f"{since('etcd_server_heartbeat_send_failures_total'):.0f} heartbeats late, "
      f"{since('etcd_server_leader_changes_seen_total'):.0f} changes of leader; "
      f"{memory}")
PYTHON
  done
}
attack() { python3 xtask/costly_requests.py "$1" "$port" "$seconds" "$keys"; }

for n in 1 2 3; do start "$n"; done
hustings status --wait 30s >/dev/null
hustings bench put --clients 64 --total "$keys" --keys "$keys" --sequential-keys --value-size 256 --warm-up 0s --quiet
echo "$("$binary" --version), $protocol, $keys keys of 256 bytes, $seconds s for each kind, memory limit $((limit >> 20)) MiB"

for kind in transactions reads watches history accounts leases uploads; do
  if wanted "$kind"; then during "$kind" attack "$kind"; fi
done

backlog() {
  local n
  n=$(hustings status -o json | python3 -c 'import json,sys; print({"n1": 2, "n2": 3, "n3": 1}[json.load(sys.stdin)["leader"]])')
  kill -9 "${members[$n]}"
  "$binary" bench put --clients 64 --total 90000 --keys "$keys" --value-size 256 --warm-up 0s --quiet \
    --endpoints "$(tr ',' '\n' <<<"$endpoints" | grep -v ":$((port + n))\$" | paste -sd,)"
  start "$n"
  hustings status --wait 60s >/dev/null
}
if wanted backlog; then during "backlog: a member comes back and has 90,000 puts to catch up with" backlog; fi

# Last, because nobody leads while it goes on.
alone() {
  kill -STOP "${members[2]}" "${members[3]}"
  sleep 2
  attack uploads
  kill -CONT "${members[2]}" "${members[3]}"
  hustings status --wait 60s >/dev/null
}
if wanted alone; then during "alone: uploads and puts of 1 MB at a member that hears no other" alone; fi
