//! Goal: members find each other again whatever address they listen at, and are called by their names. Method: three real members that
//! listen at `0.0.0.0` and are told of each other by `--initial-cluster` alone; all are stopped and started again.

use crate::support::{HUSTINGS, PROTOCOLS, Running, hustings, run};
use hustings_testbed::{free_ports, wait_for};
use rustix::process::Signal;
use std::path::Path;
use std::process::Command;

const NAMES: [&str; 3] = ["db-a", "db-b", "db-c"];

/// Three members by name: client and peer port of each, from the first on.
struct Machines {
    directory: tempfile::TempDir,
    base: u16,
}

impl Machines {
    fn found() -> Machines {
        let base = free_ports(6).expect("six ports in a row are free");
        Machines { directory: tempfile::tempdir().expect("a directory"), base }
    }

    fn port(&self, position: usize, is_peer: bool) -> u16 {
        self.base + 2 * u16::try_from(position).expect("three") + u16::from(is_peer)
    }

    fn cluster(&self) -> String {
        let each = NAMES.iter().enumerate();
        each.map(|(at, name)| format!("{name}=http://127.0.0.1:{}", self.port(at, true))).collect::<Vec<_>>().join(",")
    }

    fn endpoint(&self, position: usize) -> String {
        format!("127.0.0.1:{}", self.port(position, false))
    }

    fn command(&self, position: usize, more: &[&str]) -> Command {
        let wildcard = |is_peer| format!("http://0.0.0.0:{}", self.port(position, is_peer));
        let mut command = Command::new(HUSTINGS);
        command.args(["serve", "--name", NAMES[position], "--log-outputs", "stdout", "--data-dir"]);
        command.arg(self.directory.path().join(NAMES[position]));
        command.args(["--listen-client-urls", &wildcard(false), "--listen-peer-urls", &wildcard(true)]);
        command.args(more);
        command
    }

    fn start(&self) -> Vec<Running> {
        (0..NAMES.len()).map(|position| self.start_one(position, &[])).collect()
    }

    fn start_one(&self, position: usize, more: &[&str]) -> Running {
        let cluster = self.cluster();
        Running::start(&mut self.command(position, &[&["--initial-cluster", &cluster], more].concat()))
    }

    /// Waits until a member other than `gone` leads and `reachable` of the three can be reached; gives its position.
    async fn leader(&self, gone: Option<usize>, reachable: usize) -> usize {
        let asked = (0..NAMES.len()).find(|position| gone != Some(*position)).expect("two are there");
        let (endpoint, voters) = (self.endpoint(asked), format!("{reachable} of 3 voters"));
        wait_for("a leader", async || {
            let told = hustings(&["status", "--endpoints", &endpoint]).stdout;
            let leader = NAMES.iter().position(|name| told.contains(&format!("{name} leads in term")))?;
            (gone != Some(leader) && told.contains(&voters)).then_some(leader)
        })
        .await
        .expect("one is elected")
    }

    async fn written(&self, value: &str) {
        wait_for("a write", async || {
            let endpoints: Vec<String> = (0..NAMES.len()).map(|position| self.endpoint(position)).collect();
            let put = hustings(&["put", "key", value, "--endpoints", &endpoints.join(",")]);
            (put.code == Some(0)).then_some(())
        })
        .await
        .expect("they serve");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn members_that_listen_everywhere_find_each_other_again() {
    let machines = Machines::found();
    let members = machines.start();
    machines.written("first").await;
    let told = wait_for("all to say where they are", async || {
        let told = hustings(&["member", "list", "-o", "json", "--endpoints", &machines.endpoint(0)]).ok();
        (told.matches("client_urls\":[\"http").count() == 3).then_some(told)
    })
    .await
    .expect("they do");
    assert!(!told.contains("0.0.0.0"), "nobody is told a wildcard: {told}");
    for position in 0..NAMES.len() {
        assert!(told.contains(&format!("http://{}", machines.endpoint(position))), "{told}");
    }
    for mut member in members {
        member.signal(Signal::TERM);
        assert_eq!(member.end(), Some(0));
    }
    let _members = machines.start();
    machines.written("second").await;
}

/// Goal: a member that would be looked for elsewhere does not begin. Method: another URL than the list has for it; a list of wildcards.
#[test]
fn who_would_not_be_found_is_refused() {
    let machines = Machines::found();
    let refused = |more: &[&str]| run(&mut machines.command(0, more)).failed();
    let elsewhere = format!("http://127.0.0.1:{}", machines.port(1, false));
    let said = refused(&["--initial-cluster", &machines.cluster(), "--initial-advertise-peer-urls", &elsewhere]);
    assert!(said.contains("give both the same") && said.contains(&elsewhere), "{said}");
    let wildcards = machines.cluster().replace("127.0.0.1", "0.0.0.0");
    let said = refused(&["--initial-cluster", &wildcards]);
    assert!(said.contains("no address that another member can reach"), "{said}");
    let wildcard = format!("http://0.0.0.0:{}", machines.port(0, true));
    let said = refused(&["--initial-cluster", &machines.cluster(), "--initial-advertise-peer-urls", &wildcard]);
    assert!(said.contains("no address that another member can reach"), "{said}");
    assert!(!Path::new(&machines.directory.path().join(NAMES[0])).exists(), "nothing was begun");
}

/// Goal: a reader of a log meets members by name, never by an id that no operator gave. Method: under each protocol the leader is killed,
/// another one is elected, and the first one comes back; no line of any of them, however chatty, has such an id as a word.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn logs_name_members_and_say_no_bare_id() {
    for protocol in PROTOCOLS {
        let machines = Machines::found();
        let flags = ["--protocol", protocol, "--log-level", "debug"];
        let mut members: Vec<Running> = (0..NAMES.len()).map(|position| machines.start_one(position, &flags)).collect();
        machines.written("first").await;
        let leader = machines.leader(None, NAMES.len()).await;
        members[leader].signal(Signal::KILL);
        assert_eq!(members[leader].end(), None, "it was killed");
        let successor = machines.leader(Some(leader), NAMES.len() - 1).await;
        let mut lines = std::mem::replace(&mut members[leader], machines.start_one(leader, &flags)).seen.clone();
        machines.leader(None, NAMES.len()).await;
        for member in &mut members {
            member.signal(Signal::TERM);
            assert_eq!(member.end(), Some(0));
            lines.append(&mut member.seen);
        }
        let is_apart = |character: char| !character.is_ascii_alphanumeric() && character != '_';
        let is_bare = |line: &&String| line.split(is_apart).any(|word| ["n1", "n2", "n3"].contains(&word));
        let bare: Vec<&String> = lines.iter().filter(is_bare).collect();
        assert!(bare.is_empty(), "{protocol}: {bare:#?}");
        for won in [leader, successor] {
            let said = format!("\"leader\":\"{}\"", NAMES[won]);
            assert!(lines.iter().any(|line| line.contains(&said)), "{protocol}: {said:?} is not in {lines:#?}");
        }
    }
}
