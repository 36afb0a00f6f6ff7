#!/usr/bin/env bash
# Makes the Debian package of a binary, and with --try installs it, starts what its unit starts, and removes it again.
# Usage: xtask/package.sh [--try] BINARY [DIRECTORY]     (--try as root, on a machine without Hustings)
#
# `cargo deb` reads the same metadata; here dpkg-deb does the work, which every Debian has and nobody must build first.
set -euo pipefail
cd "$(dirname "$0")/.."
is_try=
if [ "${1:-}" = --try ]; then is_try=1; shift; fi
binary="$(realpath "${1:?usage: xtask/package.sh [--try] BINARY [DIRECTORY]}")"
out="${2:-${CARGO_TARGET_DIR:-target}/debian}"
mkdir -p "$out"
work="$(mktemp -d)"
member=
is_installed=
finish() {
  [ -z "$member" ] || kill -KILL "$member" 2>/dev/null || true
  rm -rf "$work"
  [ -z "$is_installed" ] || clean >/dev/null 2>&1
}
# The machine as it was.
clean() {
  ! dpkg-query -W hustings >/dev/null 2>&1 || dpkg -P hustings
  rm -rf /var/lib/hustings
  ! getent passwd hustings >/dev/null || deluser --quiet --system hustings
  ! getent group hustings >/dev/null || delgroup --quiet --system hustings
}
trap finish EXIT
fail() { echo "package: $*" >&2; exit 1; }

# --- Build. ---------------------------------------------------------------------------------------------------------
root="$work/root"
mkdir -p "$root/DEBIAN"
cargo metadata --format-version 1 --no-deps --locked | python3 -c '
import json, os, shutil, subprocess, sys
binary, root = sys.argv[1:]
package = next(p for p in json.load(sys.stdin)["packages"] if p["name"] == "hustings")
deb, here = package["metadata"]["deb"], os.path.dirname(package["manifest_path"])
for source, target, mode in deb["assets"]:
    target = os.path.join(root, target)
    os.makedirs(os.path.dirname(target), exist_ok=True)
    if source == "target/release/hustings":
        subprocess.check_call(["strip", "-o", target, binary])
    else:
        shutil.copyfile(os.path.join(here, source), target)
    os.chmod(target, int(mode, 8))
for name in ["postinst", "prerm", "postrm"]:
    shutil.copyfile(os.path.join(here, deb["maintainer-scripts"], name), os.path.join(root, "DEBIAN", name))
    os.chmod(os.path.join(root, "DEBIAN", name), 0o755)
with open(os.path.join(root, "DEBIAN/conffiles"), "w") as file:
    file.writelines(name + "\n" for name in deb["conf-files"])
architecture = subprocess.check_output(["dpkg", "--print-architecture"], text=True).strip()
with open(os.path.join(root, "DEBIAN/control"), "w") as file:
    for field, value in [
        ("Package", "hustings"), ("Version", package["version"] + "-1"), ("Architecture", architecture),
        ("Maintainer", deb["maintainer"]), ("Section", deb["section"]), ("Priority", deb["priority"]),
        ("Depends", deb["depends"]), ("Description", package["description"] + "\n " + deb["extended-description"]),
    ]:
        print(field + ": " + value, file=file)
' "$binary" "$root"
"$binary" manual "$root/usr/share/man/man1"
gzip -9 -n "$root"/usr/share/man/man1/*.1
for pair in bash:bash-completion/completions/hustings zsh:zsh/vendor-completions/_hustings fish:fish/vendor_completions.d/hustings.fish; do
  target="$root/usr/share/${pair#*:}"
  mkdir -p "$(dirname "$target")"
  "$binary" completions "${pair%%:*}" >"$target"
done
find "$root" -path "$root/DEBIAN" -prune -o -type d -exec chmod 755 {} + -o -type f ! -perm /111 -exec chmod 644 {} +
(cd "$root" && find . -path ./DEBIAN -prune -o -type f -printf '%P\0' | sort -z | xargs -0 md5sum >DEBIAN/md5sums)
package="$out/hustings_$(sed -n 's/^Version: //p' "$root/DEBIAN/control")_$(sed -n 's/^Architecture: //p' "$root/DEBIAN/control").deb"
dpkg-deb --root-owner-group -Zgzip --build "$root" "$package"
[ -n "$is_try" ] || exit 0

# --- Try. -----------------------------------------------------------------------------------------------------------
[ "$(id -u)" = 0 ] || fail "--try installs a package: run it as root"
if dpkg-query -W hustings >/dev/null 2>&1 || getent passwd hustings >/dev/null || [ -e /var/lib/hustings ]; then
  fail "this machine has Hustings, or what is left of it: --try is for machines that have not"
fi
before="$work/before"
listing() { find /etc /lib/systemd /usr /var/lib -xdev \( -path '*/__pycache__*' -o -path '/var/lib/dpkg*' -o -path '/usr/local/*' \) -prune -o -name '*hustings*' -print | sort; }
listing >"$before"

echo "install"
is_installed=1
dpkg -i "$package" >"$work/log" 2>&1 || { cat "$work/log"; fail "dpkg -i failed"; }
[ "$(stat -c '%U:%G %a' /var/lib/hustings)" = 'hustings:hustings 700' ] || fail "/var/lib/hustings is not its user's"
dpkg --verify hustings || fail "files differ from the package's"
grep -q . <(dpkg-query -W -f '${Conffiles}' hustings) || fail "/etc/default/hustings is not a conffile"
for page in hustings hustings-member-add; do [ -e "/usr/share/man/man1/$page.1.gz" ] || fail "no manual page $page"; done
hustings --version
systemd-analyze verify --man=no /lib/systemd/system/hustings.service

echo "start, as the unit does: there need not be a systemd here"
unit=/lib/systemd/system/hustings.service
of_unit() { sed -n "s/^$1=//p" "$unit"; }
port=$((20000 + $$ % 10000))
cat >>/etc/default/hustings <<END
HUSTINGS_LISTEN_CLIENT_URLS=http://127.0.0.1:$port
HUSTINGS_LISTEN_PEER_URLS=http://127.0.0.1:$((port + 1))
END
start() {
  (
    cd /
    set -a
    eval "$(of_unit Environment)"
    . "$(of_unit EnvironmentFile | sed 's/^-//')"
    set +a
    umask "$(of_unit UMask)"
    # shellcheck disable=SC2046
    exec setpriv --reuid="$(of_unit User)" --regid="$(of_unit Group)" --clear-groups --no-new-privs --bounding-set=-all \
      $(of_unit ExecStart)
  ) 2>>"$work/member" &
  member=$!
  hustings status --endpoints "127.0.0.1:$port" --wait 30s >/dev/null || { cat "$work/member"; fail "it does not serve"; }
}
stop() {
  kill -TERM "$member"
  wait "$member" || { cat "$work/member"; fail "it did not end well"; }
  member=
}
start
hustings put --endpoints "127.0.0.1:$port" greeting hello
stop

echo "an upgrade keeps data and settings"
dpkg --force-confold -i "$package" >"$work/log" 2>&1 || { cat "$work/log"; fail "dpkg -i over itself failed"; }
start
[ "$(hustings get --endpoints "127.0.0.1:$port" greeting)" = hello ] || fail "the data is gone"
stop

echo "remove, then purge"
dpkg -r hustings >"$work/log" 2>&1 || { cat "$work/log"; fail "dpkg -r failed"; }
[ -e /etc/default/hustings ] && [ ! -e /usr/bin/hustings ] || fail "a removal leaves the settings and nothing else"
dpkg -P hustings >"$work/log" 2>&1 || { cat "$work/log"; fail "dpkg -P failed"; }
listing | diff "$before" - | grep '^>' >"$work/left" || true
[ "$(cat "$work/left")" = '> /var/lib/hustings' ] || { cat "$work/left"; fail "more is left than the data"; }
[ -d /var/lib/hustings/data ] || fail "the data is gone"
clean
is_installed=
echo "package: $(du -h "$package" | cut -f1), built, installed, started, upgraded, removed"
