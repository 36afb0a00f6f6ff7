#!/usr/bin/env bash
# From two disks gone to the first acknowledged write: three commands, as docs/the-worst-day.md has them, timed.
#
#   xtask/two-disks-gone.sh target/release/hustings [KEYS] [ROUNDS]
#
# Each round: three members, so many keys of 256 bytes, all killed, two directories deleted; then `recover`, `recover --into`, `serve`,
# and writes until one is acknowledged. Every acknowledged key must be there.
set -euo pipefail
hustings=$(realpath "$1") keys=${2:-0} rounds=${3:-5}
port=53379
export HUSTINGS_ENDPOINTS=127.0.0.1:$port
# Ends every process of this round.
gone() {
  while pkill -9 -f "$directory"; do :; done
}
took=()
for round in $(seq "$rounds"); do
  directory=$(mktemp -d)
  trap 'gone; rm -rf "$directory"' EXIT
  cd "$directory"
  "$hustings" up --data-dir "$directory" --base-port $port > up.log 2>&1 &
  # So that nobody reports its end, which is on purpose.
  disown
  "$hustings" status --wait 30s > /dev/null
  "$hustings" put greeting hello > /dev/null
  if [ "$keys" -gt 0 ]; then
    "$hustings" bench put --clients 64 --total "$keys" --keys "$keys" --sequential-keys --value-size 256 -o json > bench.json
  fi
  "$hustings" status --wait 60s > /dev/null
  written=$("$hustings" get "" --prefix --count-only)
  gone
  rm -r n2 n3

  begun=$(date +%s%N)
  "$hustings" recover n1 > shown
  "$hustings" recover n1 --lost n2,n3 --into new > made
  "$hustings" serve --name n1 --data-dir "$directory/new" --listen-client-urls http://127.0.0.1:$port \
    --listen-peer-urls http://127.0.0.1:$((port + 1)) 2> n1.log &
  disown
  until "$hustings" put after yes > /dev/null 2>&1; do
    [ $(($(date +%s%N) - begun)) -lt 600000000000 ] || { echo "nobody serves after ten minutes; see $directory/n1.log"; exit 1; }
  done
  ended=$(date +%s%N)

  there=$("$hustings" get "" --prefix --count-only)
  gone
  took+=($(((ended - begun) / 1000000)))
  echo "round $round: ${took[-1]} ms; $written keys were there, $((there - 1)) are; $(tail -1 made)"
  [ "$there" -eq $((written + 1)) ]
  cd /
  rm -rf "$directory"
done
printf '%s\n' "${took[@]}" | sort -n | awk '{ all[NR] = $1 } END { print "median " all[int((NR + 1) / 2)] " ms of " NR }'
