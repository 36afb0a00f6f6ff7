#!/usr/bin/env bash
# Two clusters of ours beside each other: another build, or the same one with another setting.
#
#   xtask/compare-ours.sh 'target/release/hustings' 'HUSTINGS_RING=off target/release/hustings' [ROUNDS] [SECONDS]
#   xtask/compare-ours.sh 'old/hustings' 'target/release/hustings'
#
# Three nodes each, alternating, who begins changes with each round; puts at 1, 64 and 256 clients (CLIENTS=...). Every round has
# new clusters: two starts of one program differ by several percent, and a cluster slows down as it grows. The figures are medians;
# the ratio is the second of the first, the median of the rounds. The driver is the one of the second. What a program gives beside
# itself is the error of the figures.
set -euo pipefail
cd "$(dirname "$0")/.."

first=${1:?what is compared: a command, with its environment before it}
second=${2:?with what}
rounds=${3:-5}
seconds=${4:-4}
loads=${CLIENTS:-1 64 256}

work=$(mktemp -d)
trap 'kill $(jobs -p) 2>/dev/null; wait; rm -rf "$work"' EXIT

endpoints_of() { echo "127.0.0.1:$1,127.0.0.1:$(($1 + 2)),127.0.0.1:$(($1 + 4))"; }
running=()
start() { # name, command, port
  # shellcheck disable=SC2086 # The command has words.
  env $2 up --data-dir "$work/$1" --base-port "$3" >"$work/$1.log" 2>&1 &
  running+=($!)
  # shellcheck disable=SC2086
  # A command that every build has: an older one knows no `status --wait`.
  for _ in $(seq 300); do
    env $second put compare ready --endpoints "$(endpoints_of "$3")" >/dev/null 2>&1 && return
    sleep 0.1
  done
  echo "$1 does not serve within 30 s: $2" >&2
  exit 1
}
stop_all() {
  kill "${running[@]}" 2>/dev/null
  wait "${running[@]}" 2>/dev/null || true
  running=()
  rm -rf "$work/first" "$work/second"
}
ports=([0]=17379 [1]=18379)
names=([0]=first [1]=second)

for round in $(seq "$rounds"); do
  start first "$first" 17379
  start second "$second" 18379
  for clients in $loads; do
    for turn in $((round % 2)) $(((round + 1) % 2)); do
      echo "round $round, $clients clients, ${names[$turn]}" >&2
      # shellcheck disable=SC2086
      env $second bench put --clients "$clients" --seconds "$seconds" --seed "$round" -o json \
        --endpoints "$(endpoints_of "${ports[$turn]}")" >"$work/$clients.${names[$turn]}.$round.json"
    done
  done
  stop_all
done

python3 - "$work" "$rounds" "$loads" <<'PYTHON'
import json, statistics, sys

work, rounds, loads = sys.argv[1], int(sys.argv[2]), sys.argv[3].split()
print("clients  which      put/s  lowest..highest  p99 ms  servers µs  others  ratio (lowest..highest)")
for clients in loads:
    runs = {which: [json.load(open(f"{work}/{clients}.{which}.{round}.json")) for round in range(1, rounds + 1)]
            for which in ("first", "second")}
    ratios = [second["per_second"] / first["per_second"] for first, second in zip(runs["first"], runs["second"])]
    for which, all in runs.items():
        of = lambda field: statistics.median(run[field] for run in all)
        rates = [run["per_second"] for run in all]
        ratio = f"{statistics.median(ratios):.3f} ({min(ratios):.3f}..{max(ratios):.3f})" if which == "second" else ""
        print(f"{clients:>7}  {which:8} {of('per_second'):7.0f}  {min(rates):6.0f}..{max(rates):<6.0f}"
              f"  {of('p99_ms'):6.2f}  {of('server_cpu_micros_per_request'):10.1f}  {of('cpu_others_share'):6.0%}  {ratio}")
PYTHON
