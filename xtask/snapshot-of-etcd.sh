#!/usr/bin/env bash
# Makes a small snapshot of a real etcd, with something of everything in it, and writes down what etcd itself says of it:
#   xtask/snapshot-of-etcd.sh FOLDER      with `etcd` and `etcdctl` in it, as `cargo xtask newest-etcd --build-only` makes it
# The two files go to crates/cli/tests/snapshots, where `cargo test -p hustings --test stories snapshots_of_etcd::` restores them.
set -euo pipefail
[ $# = 1 ] && [ -x "$1/etcd" ] && [ -x "$1/etcdctl" ] || { sed -n '2,4s/^# \{0,1\}//p' "$0" >&2; exit 2; }
folder="$(cd "$1" && pwd)"
cd "$(dirname "$0")/.."
scratch="$(mktemp -d)"
client=127.0.0.1:$((20000 + RANDOM % 10000)) peer=127.0.0.1:$((30000 + RANDOM % 2000))
"$folder/etcd" --data-dir "$scratch/data" --listen-client-urls "http://$client" --advertise-client-urls "http://$client" \
  --listen-peer-urls "http://$peer" --initial-advertise-peer-urls "http://$peer" --initial-cluster "default=http://$peer" \
  > "$scratch/etcd.log" 2>&1 & etcd=$!
trap 'kill $etcd; wait $etcd || true; rm -rf "$scratch"' EXIT
export ETCDCTL_ENDPOINTS="$client" ETCDCTL_DIAL_TIMEOUT=30s ETCDCTL_COMMAND_TIMEOUT=30s
etcdctl() { "$folder/etcdctl" "$@"; }
field() { python3 -c 'import json, sys; print(json.load(sys.stdin)'"$1"')'; }

for number in $(seq 100 300); do etcdctl put "key/$number" "value $number"; done > /dev/null
etcdctl put key/100 again > /dev/null
etcdctl del key/101 > /dev/null
etcdctl del key/102 > /dev/null
etcdctl put key/102 back > /dev/null
lease="$(printf %x "$(etcdctl lease grant 5000 -w json | field '["ID"]')")"
etcdctl put --lease="$lease" leased mine > /dev/null
etcdctl put key/100 'before the compaction' > /dev/null
etcdctl compact "$(etcdctl get one -w json | field '["header"]["revision"]')" --physical > /dev/null
printf '\nput one 1\ndel key/103\nput two 2\n\n\n' | etcdctl txn > /dev/null
etcdctl put one 'and more' > /dev/null
etcdctl del two > /dev/null
etcdctl role add reader > /dev/null
etcdctl role grant-permission reader read key/ --prefix=true > /dev/null
etcdctl role grant-permission reader readwrite one > /dev/null
etcdctl user add root:rootpw > /dev/null
etcdctl user grant-role root root > /dev/null
etcdctl user add ann:annpw > /dev/null
etcdctl user grant-role ann reader > /dev/null
etcdctl user add bob --no-password > /dev/null

version="$(etcdctl endpoint status -w json | field '[0]["Status"]["version"]')"
to="crates/cli/tests/snapshots/etcd-$version"
mkdir -p "$(dirname "$to")"
etcdctl snapshot save "$scratch/snapshot.db" > /dev/null 2>&1
mv "$scratch/snapshot.db" "$to.db"
chmod 644 "$to.db"
python3 - "$lease" > "$to.json" <<PYTHON
import json
keys, lease = json.loads('''$(etcdctl get "" --prefix -w json)'''), json.loads('''$(etcdctl lease timetolive "$lease" --keys -w json)''')
role = json.loads('''$(etcdctl role get reader -w json)''')
print(json.dumps({
    "revision": keys["header"]["revision"], "kvs": keys["kvs"], "lease": "$lease", "granted-ttl": lease["granted-ttl"],
    "keys": lease["keys"], "users": '''$(etcdctl user list)'''.split(), "reader": role["perm"],
}, separators=(",", ":")))
PYTHON
ls -l "$to.db" "$to.json"
