#!/usr/bin/env bash
# Breaks the disks under a real cluster, for half a minute: frozen, full, slow, without power, failing at the n-th system call; then starts a
# member on a disk without a byte left; then freezes the disk of a leader, which says so.
# Needs root, loop devices, ext4, strace and perl; what is missing is installed, and what cannot be is a failure.
# Builds `hustings` and `torture` unless TORTURE_BINARIES names the directory that holds both.
# TORTURE_PROTOCOLS names other protocols than those whose turn it is today: TORTURE_PROTOCOLS="zab paxos" xtask/torture-disks.sh
set -euo pipefail
cd "$(dirname "$0")/.."

as_root() { if [ "$(id -u)" = 0 ]; then "$@"; else sudo --preserve-env=TMPDIR "$@"; fi; }

missing=()
PATH="$PATH:/usr/sbin:/sbin"
command -v mkfs.ext4 >/dev/null || missing+=(e2fsprogs)
command -v strace >/dev/null || missing+=(strace)
command -v fsfreeze >/dev/null || missing+=(util-linux)
command -v mount >/dev/null || missing+=(mount)
if [ ${#missing[@]} -gt 0 ]; then
  as_root apt-get update -q
  as_root apt-get install -y -q "${missing[@]}"
fi
[ -e /dev/loop-control ] || { echo "torture-disks: there are no loop devices here: this needs a kernel that has them" >&2; exit 1; }

if [ -z "${TORTURE_BINARIES:-}" ]; then
  cargo build --quiet -p hustings -p hustings-torture --bins
  TORTURE_BINARIES="${CARGO_TARGET_DIR:-target}/debug"
fi

# Everything that is made lies under one directory, so that everything can be found and undone, however this ends.
TMPDIR="$(mktemp -d /tmp/hustings-torture-disks-XXXXXX)"
export TMPDIR
mounts() { awk -v under="$TMPDIR/" 'index($2, under) == 1 { print $2 }' /proc/mounts; }
# A process that waits for a frozen disk cannot even be killed.
thaw() { mounts | while read -r mount; do as_root fsfreeze -u "$mount" 2>/dev/null || true; done; }
clean_up() {
  local code=$?
  trap - EXIT
  [ -z "${watchdog:-}" ] || kill "$watchdog" 2>/dev/null || true
  thaw
  [ -z "${members[*]:-}" ] || kill "${members[@]}" 2>/dev/null || true
  [ -z "${torture:-}" ] || { as_root kill "$torture" 2>/dev/null && wait "$torture" || true; }
  mounts | while read -r mount; do as_root umount -l "$mount" || true; done
  if [ "$code" = 0 ]; then as_root rm -rf "$TMPDIR"; else echo "torture-disks: logs stay in $TMPDIR" >&2; fi
  exit "$code"
}
trap clean_up EXIT
trap 'exit 130' INT TERM

# Runs the torturer in the background, so that a signal reaches us at once.
torture() {
  as_root "$TORTURE_BINARIES/torture" --binary "$TORTURE_BINARIES/hustings" "$@" & torture=$!
  # Its output goes nowhere: whoever reads ours must not wait for it.
  ( sleep 120; thaw; as_root kill "$torture" ) >/dev/null 2>&1 </dev/null & watchdog=$!
  local code=0
  wait "$torture" || code=$?
  kill "$watchdog"
  torture= watchdog=
  return "$code"
}

# Two protocols a day, by the day of the year: within five days each of the five has had two turns.
declare -A seeds=([raft]=1 [gmt2000]=2 [paxos]=3 [zab]=12 [blazingmq]=8)
order=(raft gmt2000 paxos zab blazingmq)
day=$((10#$(date -u +%j)))
read -ra protocols <<< "${TORTURE_PROTOCOLS:-${order[day * 2 % 5]} ${order[(day * 2 + 1) % 5]}}"
echo "== day $day of the year: the disks break under ${protocols[*]}"
for protocol in "${protocols[@]}"; do
  seed="${TORTURE_SEED:-${seeds[$protocol]}}"
  torture --protocol "$protocol" --seed "$seed" --seconds "${TORTURE_SECONDS:-18}" \
    --faults disk-freeze,disk-full,power-cut,syscall,slow-disk
done

echo "== a member that starts on a disk without a byte left serves reads"
disk="$TMPDIR/full" endpoint="127.0.0.1:$((20000 + RANDOM % 10000))"
mkdir "$disk"
truncate -s 48M "$disk.img"
mkfs.ext4 -q -m 0 "$disk.img"
as_root mount -o loop "$disk.img" "$disk"
as_root chown "$(id -u)" "$disk"
hustings() { "$TORTURE_BINARIES/hustings" "$@" --endpoints "$endpoint"; }
serve() {
  "$TORTURE_BINARIES/hustings" serve --name n1 --data-dir "$disk/n1" --listen-client-urls "http://$endpoint" \
    --advertise-client-urls "http://$endpoint" --listen-peer-urls http://127.0.0.1:0 --initial-cluster n1=http://127.0.0.1:2380 \
    --initial-advertise-peer-urls http://127.0.0.1:2380 2>> "$TMPDIR/serve.log" & member=$!
}
fill() { dd if=/dev/zero of="$disk/filler.$1" bs="$1" 2>/dev/null || true; sync; }
serve
hustings status --wait 20s > /dev/null
hustings put key before > /dev/null
kill "$member"; wait "$member"
fill 64k; fill 1k; fill 1
for start in first second; do
  serve
  # The alarm may stand already: such a member serves reads, and its status says so and is no success.
  hustings status --wait 20s > /dev/null 2> "$TMPDIR/status.log" || grep -q "NOSPACE, writes are refused" "$TMPDIR/status.log" ||
    { cat "$TMPDIR/serve.log" "$TMPDIR/status.log"; echo "torture-disks: the $start start failed" >&2; exit 1; }
  [ "$(hustings get key)" = before ]
  kill "$member"; wait "$member"
done
echo "and without its reserve it says what to do"
rm "$disk/n1/reserve"
fill 512
serve
if wait "$member"; then echo "torture-disks: the disk was not full" >&2; exit 1; fi
tail -1 "$TMPDIR/serve.log" | grep "the disk is full.*delete no file of the data directory"
as_root umount "$disk"

echo "== a leader whose file system is frozen gives way, and the recordings tell why"
disk="$TMPDIR/frozen" first=$((20000 + RANDOM % 10000)) founders="" members=() rings=()
mkdir "$disk"
truncate -s 96M "$disk.img"
mkfs.ext4 -q -m 0 "$disk.img"
as_root mount -o loop "$disk.img" "$disk"
as_root chown "$(id -u)" "$disk"
for n in 1 2 3; do founders="$founders${founders:+,}n$n=http://127.0.0.1:$((first + 10 + n))"; done
for n in 1 2 3; do
  if [ "$n" = 1 ]; then data="$disk/n1"; else data="$TMPDIR/n$n"; fi
  "$TORTURE_BINARIES/hustings" serve --name "n$n" --data-dir "$data" --initial-cluster "$founders" \
    --listen-client-urls "http://127.0.0.1:$((first + n))" --listen-peer-urls "http://127.0.0.1:$((first + 10 + n))" 2>> "$TMPDIR/n$n.log" &
  members+=($!) rings+=(--ring "$data")
done
endpoint="127.0.0.1:$((first + 1)),127.0.0.1:$((first + 2)),127.0.0.1:$((first + 3))"
# A cluster that is not as it should be says so with its exit code; here only its leader counts.
leads() { [[ "$(hustings status -o json 2> /dev/null)" == *"\"leader\":\"$1\""* ]]; }
# Waits for a command to succeed; a machine that is busy gets half a minute.
eventually() { for _ in $(seq 300); do if "$@"; then return; fi; sleep 0.1; done; echo "torture-disks: in vain: $*" >&2; exit 1; }
comes_to_lead() { leads n1 || { hustings transfer n1 > /dev/null 2>&1; leads n1; }; }
is_replaced() { leads n2 || leads n3; }
eventually comes_to_lead
as_root fsfreeze -f "$disk"
# It has to be written somewhere; nobody need answer.
"$TORTURE_BINARIES/hustings" put key value --timeout 2s --endpoints "127.0.0.1:$((first + 1))" > /dev/null 2>&1 || true
eventually is_replaced
as_root fsfreeze -u "$disk"
# What could not be written meanwhile is written now.
tells() { "$TORTURE_BINARIES/hustings" why "${rings[@]}" -o json > "$TMPDIR/why.json" && grep -q '"causes":\["disk-stalled"' "$TMPDIR/why.json"; }
( eventually tells ) || { cat "$TMPDIR/why.json"; exit 1; }
grep -o '"sentences":\["[^"]*"' "$TMPDIR/why.json"
for member in "${members[@]}"; do kill "$member"; wait "$member" || true; done
members=()
as_root umount "$disk"

echo "== and disks that lie, which nobody survives: the torturer must see it"
code=0
torture --script xtask/torture-liar.script --seconds 5 > "$TMPDIR/liar" || code=$?
# Where no majority serves any more, nobody is left to be asked what became of a change.
if [ "$code" != 1 ] || ! grep -qE "no acknowledged change is lost|a majority serves when all is whole" "$TMPDIR/liar"; then
  cat "$TMPDIR/liar"
  echo "torture-disks: what was lost was not seen (exit $code)" >&2
  exit 1
fi
grep -E "^(verdict|  [a-z].* times)" "$TMPDIR/liar"
