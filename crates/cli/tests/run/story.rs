//! A cluster, sidecars that stand for election at it, and the traces that their commands leave.

use crate::support::{HUSTINGS, Running};
use hustings_testbed::{Cluster, Program, wait_for};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use tempfile::TempDir;

/// Exit code of the witness of an overlap.
pub const OVERLAP: &str = "99";
pub const TTL: Duration = Duration::from_secs(5);

/// A cluster, and a place where commands leave their traces.
pub struct Story {
    pub cluster: Cluster,
    pub directory: TempDir,
}

impl Story {
    pub async fn begin() -> Story {
        let cluster = Cluster::start(Program::hustings(HUSTINGS), 3).await.expect("it starts");
        Story { cluster, directory: tempfile::tempdir().expect("a place") }
    }

    pub fn store(&self) -> String {
        let hosts: Vec<String> =
            self.cluster.endpoints().iter().map(|url| url.trim_start_matches("http://").to_owned()).collect();
        format!("hustings://{}", hosts.join(","))
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// `hustings run` of this command.
    pub fn sidecar(&self, id: &str, options: &[&str], command: &[&str]) -> Command {
        // Its own output goes where its command's output goes.
        let mut run = Command::new("sh");
        run.args(["-c", "WATCHDOG_PID=$$ exec \"$0\" \"$@\" 2>&1", HUSTINGS]);
        run.args(["run", "--election", "billing", "--store", &self.store(), "--id", id, "--ttl", "5s"])
            .args(["--stop-grace", "1s", "--kill-margin", "300ms"])
            .args(options)
            .arg("--")
            .args(command);
        run
    }

    /// A sidecar whose command holds the witness, writes down that it has begun and with which processes, and stays.
    pub fn worker(&self, id: &str) -> Running {
        Running::start(&mut self.sidecar(id, &[], &self.work(id).each_ref().map(String::as_str)))
    }

    /// Such a command.
    pub fn work(&self, id: &str) -> [String; 9] {
        let (log, witness) = (self.path("log"), self.path("witness"));
        let script = format!(
            "echo {id} $HUSTINGS_FENCE_NUMBER $PPID $$ >> {}; trap 'exit 0' TERM; while :; do sleep 0.01; done",
            log.display()
        );
        let witness = witness.to_string_lossy();
        ["flock", "--nonblock", "--no-fork", "-E", OVERLAP, &witness, "sh", "-c", &script].map(str::to_owned)
    }

    /// The lines that commands have written, once there are so many.
    pub async fn begun(&self, count: usize) -> Vec<Begun> {
        let log = self.path("log");
        let begun = wait_for("commands to begin", async || Some(read(&log)).filter(|begun| begun.len() >= count)).await;
        begun.expect("so many commands begin")
    }
}

/// A command that has begun.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Begun {
    pub id: String,
    pub token: u64,
    pub warden: u32,
    pub command: u32,
}

pub fn read(log: &Path) -> Vec<Begun> {
    let text = std::fs::read_to_string(log).unwrap_or_default();
    let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
    let line = |line: &str| {
        let mut words = line.split(' ').map(str::to_owned);
        let mut next = || words.next().expect("four words");
        let number = |word: String| word.parse().expect("a number");
        Begun {
            id: next(),
            token: number(next()),
            warden: next().parse().expect("a number"),
            command: next().parse().expect("a number"),
        }
    };
    whole.lines().map(line).collect()
}

pub fn is_alive(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // A zombie does nothing any more.
    stat.rsplit_once(')').is_some_and(|(_, rest)| !rest.trim_start().starts_with('Z'))
}

impl Story {
    /// One runs its command, the other waits for its turn.
    pub async fn one_works_and_one_waits(&self) -> (Running, Begun, Running) {
        let first = self.worker("a");
        let begun = self.begun(1).await[0].clone();
        let mut second = self.worker("b");
        second.line_with("waits for its turn");
        (first, begun, second)
    }

    /// The second one's command begins, after the first one's has ended.
    pub async fn the_second_works(&self, before: &Begun) -> Begun {
        let next = self.begun(2).await[1].clone();
        assert!(!is_alive(before.command), "two commands run");
        assert!(next.id == "b" && next.token > before.token, "{next:?} after {before:?}");
        next
    }
}
