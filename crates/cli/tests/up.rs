//! Goal: one command gives a cluster, and leaves nothing behind but its data.
//! Method: `hustings up` on free ports, as a person runs it; signals as a person's Ctrl-C sends them.

use crate::support::{HUSTINGS, Running, hustings};
use hustings_testbed::free_ports;
use rustix::process::{Pid, Signal, test_kill_process};
use std::path::Path;
use std::process::Command;

struct Up {
    running: Running,
    endpoints: String,
    pids: Vec<u32>,
}

fn up(directory: &Path, base: u16) -> Up {
    up_with(directory, base, "raft")
}

fn up_with(directory: &Path, base: u16, protocol: &str) -> Up {
    let mut command = Command::new(HUSTINGS);
    command.args(["up", "--protocol", protocol, "--base-port", &base.to_string(), "--data-dir"]).arg(directory);
    let mut running = Running::start(&mut command);
    running.line_with(&format!("cluster of 3 ({protocol})"));
    let (mut endpoints, mut pids) = (Vec::new(), Vec::new());
    for _ in 0..3 {
        let line = running.line_with("pid ");
        let words: Vec<&str> = line.split_whitespace().collect();
        endpoints.push(words[1].trim_start_matches("http://").to_string());
        pids.push(words[3].parse().expect("a process id"));
    }
    running.line_with("→ Leader");
    Up { running, endpoints: endpoints.join(","), pids }
}

impl Up {
    fn is_alive(pid: u32) -> bool {
        let pid = i32::try_from(pid).ok().and_then(Pid::from_raw).expect("process ids are positive");
        test_kill_process(pid).is_ok()
    }

    fn stop(mut self, signal: Signal) {
        assert!(self.pids.iter().all(|pid| Up::is_alive(*pid)));
        self.running.signal(signal);
        assert_eq!(self.running.end(), Some(0));
        assert!(!self.pids.iter().any(|pid| Up::is_alive(*pid)), "no process is left");
    }
}

/// Two times three free ports in a row.
fn base_port() -> u16 {
    free_ports(6).expect("six ports in a row are free")
}

#[test]
fn a_cluster_comes_up_serves_stops_and_resumes_where_it_was() {
    let directory = tempfile::tempdir().expect("a directory");
    let base = base_port();
    let first = up(directory.path(), base);
    hustings(&["put", "--endpoints", &first.endpoints, "greeting", "hello"]).ok();
    let text = directory.path().to_str().expect("paths here are text");
    let said = hustings(&["up", "--base-port", &base.to_string(), "--data-dir", text]).failed();
    assert!(said.contains("another `hustings up` runs on") && said.contains("--data-dir"), "{said}");
    let elsewhere = tempfile::tempdir().expect("a directory");
    let elsewhere = elsewhere.path().to_str().expect("paths here are text");
    let said = hustings(&["up", "--base-port", &base.to_string(), "--data-dir", elsewhere]).failed();
    assert!(said.contains("is in use: choose another --base-port"), "{said}");
    let first_endpoints = first.endpoints.clone();
    first.stop(Signal::INT);

    // It is where it was, even if this machine would choose another place for a new one.
    let mut command = Command::new(HUSTINGS);
    command.args(["up", "--data-dir", text]);
    let mut second = Running::start(&mut command);
    let line = second.line_with("n1  http://");
    assert!(line.contains(&format!("http://127.0.0.1:{base}  ")), "{line}");
    second.line_with("→ Leader");
    assert_eq!(hustings(&["get", "--endpoints", &first_endpoints, "greeting"]).ok(), "hello\n");
    second.signal(Signal::TERM);
    assert_eq!(second.end(), Some(0));

    let said = hustings(&["up", "--nodes", "5", "--data-dir", text]).failed();
    assert!(said.contains("holds a cluster of another size: 3 nodes"), "{said}");
    let said = hustings(&["up", "--base-port", &(base + 1).to_string(), "--data-dir", text]).failed();
    assert!(said.contains(&format!("know each other by ports from {base} on")), "{said}");

    // Options of the protocol are taken, or refused where the directory was founded with others.
    let flexible = ["--protocol", "paxos", "--protocol-options", "quorums=3/1"];
    let said = hustings(&[&["up", "--data-dir", text], &flexible[..]].concat()).failed();
    assert!(said.contains("holds a cluster of raft, and paxos quorums=3/1 is asked for; leave"), "{said}");
    let said = hustings(&["up", "--data-dir", text, "--protocol-options", "quorum=3"]).failed();
    assert!(said.contains("quorum"), "{said}");
    let mut command = Command::new(HUSTINGS);
    command.args(["up", "--data-dir", text, "--protocol-options", "pre-vote=false"]);
    let mut changed = Running::start(&mut command);
    let line = changed.line_with("n1  http://");
    let pid = line.rsplit(' ').next().expect("a process id");
    // Not before: between its birth and its first line, the kernel may know no words of it yet.
    changed.line_with("→ Leader");
    let words = std::fs::read_to_string(format!("/proc/{pid}/cmdline")).expect("it runs");
    assert!(words.contains("--protocol-options\0pre-vote=false\0"), "{words:?}");
    changed.signal(Signal::TERM);
    assert_eq!(changed.end(), Some(0));

    // Another protocol alone is refused before any member starts, with the way there.
    let said = hustings(&["up", "--protocol", "zab", "--data-dir", text]).failed();
    assert!(said.contains("holds a cluster of raft, and zab is asked for"), "{said}");
    assert!(said.contains("a snapshot takes the data to another protocol"), "{said}");

    // A fault that cannot pass ends it, with the reason: each directory is another member's.
    let member = |name: &str| directory.path().join(name);
    for (from, to) in [("n1", "kept"), ("n2", "n1"), ("n3", "n2"), ("kept", "n3")] {
        std::fs::rename(member(from), member(to)).expect("a directory is moved");
    }
    let mut command = Command::new(HUSTINGS);
    let mut third = Running::start(command.args(["up", "--data-dir", text]));
    third.line_with("n1 is not started again: it ended 3 times at once");
    assert_eq!(third.end(), Some(1));
    let told = |words: &str| third.seen.iter().filter(|line| line.contains("n2: ") && line.contains(words)).count();
    assert_eq!(
        told("belongs to member n3, and this node is configured for member n2"),
        1,
        "each error is said once: {:?}",
        third.seen
    );
}

#[test]
fn a_cluster_outlives_whoever_reads_of_it() {
    // Goal: `hustings up | head -1` leaves a cluster that serves. Method: the pipe's reader is closed before the first line.
    let (directory, base) = (tempfile::tempdir().expect("a directory"), base_port());
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    let mut command = Command::new(HUSTINGS);
    command.args(["up", "--nodes", "1", "--base-port", &base.to_string(), "--data-dir"]).arg(directory.path());
    let mut up = command.stdout(writer).stderr(std::process::Stdio::null()).spawn().expect("it starts");
    let endpoint = format!("127.0.0.1:{base}");
    let deadline = std::time::Instant::now() + crate::support::PATIENCE;
    while hustings(&["put", "--timeout", "1s", "--endpoints", &endpoint, "a", "b"]).code != Some(0) {
        assert!(std::time::Instant::now() < deadline, "it serves");
        assert!(up.try_wait().expect("it is a child").is_none(), "it runs");
    }
    crate::support::signal_pid(up.id(), Signal::INT);
    assert_eq!(up.wait().expect("it ends").code(), Some(0));
}

#[test]
fn a_cluster_of_gmt2000_serves_without_its_leader_and_keeps_its_data_to_itself() {
    serves_without_its_leader("gmt2000");
}

#[test]
fn a_cluster_of_blazingmq_serves_without_its_leader_and_keeps_its_data_to_itself() {
    serves_without_its_leader("blazingmq");
}

#[test]
fn a_cluster_of_zab_serves_without_its_leader_and_keeps_its_data_to_itself() {
    serves_without_its_leader("zab");
}

#[test]
fn a_cluster_of_paxos_serves_without_its_leader_and_keeps_its_data_to_itself() {
    serves_without_its_leader("paxos");
}

fn serves_without_its_leader(protocol: &str) {
    let directory = tempfile::tempdir().expect("a directory");
    let base = base_port();
    let mut first = up_with(directory.path(), base, protocol);
    hustings(&["put", "--endpoints", &first.endpoints, "greeting", "hello"]).ok();
    let elected = first.running.seen.iter().find(|line| line.contains("→ Leader")).expect("it was waited for");
    let name = elected.split_whitespace().find(|word| word.starts_with('n')).expect("who leads").to_string();
    let leader: usize = name[1..].parse::<usize>().expect("a number") - 1;
    crate::support::signal_pid(first.pids[leader], Signal::KILL);
    // Until then its socket may still accept, and a caller that it accepted is hung up on.
    first.running.line_with(&format!("{name} ended"));
    hustings(&["put", "--endpoints", &first.endpoints, "after", "death"]).ok();
    assert_eq!(hustings(&["get", "--endpoints", &first.endpoints, "greeting"]).ok(), "hello\n");
    let line = first.running.line_with(&format!("{name} started again"));
    first.pids[leader] = line.rsplit(' ').next().and_then(|pid| pid.parse().ok()).expect("a process id");
    first.stop(Signal::INT);

    let of_one = directory.path().join("n1");
    let of_one = of_one.to_str().expect("paths here are text");
    // On its own ports, which are free: the usual ones may belong to a story beside this one.
    let url = |port: u16| format!("http://127.0.0.1:{port}");
    let (client, peer) = (url(base), url(base + 1));
    let serve = ["serve", "--name", "n1", "--protocol", "raft", "--data-dir", of_one];
    let said =
        hustings(&[&serve[..], &["--listen-client-urls", &client, "--listen-peer-urls", &peer]].concat()).failed();
    assert!(
        said.contains(&format!("belongs to protocol {protocol}")) && said.contains("configured for protocol raft"),
        "{said}"
    );
    let second = up_with(directory.path(), base, protocol);
    assert_eq!(hustings(&["get", "--endpoints", &second.endpoints, "after"]).ok(), "death\n");
    second.stop(Signal::TERM);
}

#[test]
fn a_node_that_dies_is_started_again_and_none_outlives_its_parent() {
    let directory = tempfile::tempdir().expect("a directory");
    let mut up = up(directory.path(), base_port());
    crate::support::signal_pid(up.pids[1], Signal::KILL);
    up.running.line_with("n2 ended");
    let line = up.running.line_with("n2 started again");
    up.pids[1] = line.rsplit(' ').next().and_then(|pid| pid.parse().ok()).expect("a process id");
    hustings(&["put", "--endpoints", &up.endpoints, "after", "death"]).ok();
    up.running.signal(Signal::KILL);
    up.running.end();
    let deadline = std::time::Instant::now() + crate::support::PATIENCE;
    while up.pids.iter().any(|pid| Up::is_alive(*pid)) {
        assert!(std::time::Instant::now() < deadline, "they outlive their parent");
        std::thread::yield_now();
    }
}
