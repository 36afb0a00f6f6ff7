//! Goal: members find each other again whatever address they listen at. Method: three real members that listen at `0.0.0.0` and are told of
//! each other by `--initial-cluster` alone; all are stopped and started again.

use crate::support::{HUSTINGS, Running, hustings, run};
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
        let cluster = self.cluster();
        (0..NAMES.len())
            .map(|position| Running::start(&mut self.command(position, &["--initial-cluster", &cluster])))
            .collect()
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
    let machines = Machines {
        directory: tempfile::tempdir().expect("a directory"),
        base: free_ports(6).expect("six ports in a row are free"),
    };
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
    let machines = Machines {
        directory: tempfile::tempdir().expect("a directory"),
        base: free_ports(6).expect("six ports in a row are free"),
    };
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
