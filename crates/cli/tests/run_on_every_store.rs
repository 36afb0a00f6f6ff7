//! Goal: at most one command runs, on every store, and the next one bears a higher token, although anything may happen to one of
//! sidecar, warden and command. Method: three sidecars stand for one election; faults of seven kinds, in turn, hit the leader; each command holds a
//! witness, a lock of the kernel on one file, and its sidecar ends with 99 when another holds it. Each command passes a gate,
//! too: it writes its token behind the highest one that was there, in one step, and is refused below it.
//!
//! `HUSTINGS_ELECTION_RUNS=1000 cargo test -p hustings --test run_on_every_store -- --nocapture` draws so many faults per store.

mod support;

use hustings_testbed::{Cluster, Consul, FakeKube, Postgres, Program, Zookeeper, wait_for};
use rustix::process::{Pid, Signal, kill_process};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use support::HUSTINGS;
use tempfile::TempDir;

/// Exit code of the witness of an overlap.
const OVERLAP: i32 = 99;
/// Number of faults at each store, unless `HUSTINGS_ELECTION_RUNS` says another.
const RUNS: usize = 3;

/// Setting that lets a ZooKeeper say its tick.
const WHITELIST: &str = "4lw.commands.whitelist=*";

/// A fault of the sidecar that leads.
#[derive(Clone, Copy, Debug)]
enum Fault {
    SidecarKilled,
    SidecarPaused,
    WardenKilled,
    WardenPausedAndSidecarTold,
    CommandPausedAndSidecarTold,
    SidecarAndWardenKilled,
    SidecarTold,
}

const FAULTS: [Fault; 7] = [
    Fault::SidecarPaused,
    Fault::SidecarKilled,
    Fault::WardenPausedAndSidecarTold,
    Fault::WardenKilled,
    Fault::CommandPausedAndSidecarTold,
    Fault::SidecarAndWardenKilled,
    Fault::SidecarTold,
];

/// A command that has begun: whose, with which token, under which warden, as which process.
#[derive(Clone, Debug)]
struct Begun {
    id: String,
    token: (u64, u64),
    warden: Pid,
    command: Pid,
}

struct Story {
    directory: TempDir,
    store: String,
    ttl: Duration,
    sidecars: Vec<(String, Child)>,
}

impl Story {
    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// A sidecar with this name; what it says is in a file of that name.
    fn start(&self, id: &str) -> Child {
        let script = format!(
            "trap 'exit 0' TERM; T=\"$HUSTINGS_FENCE_GENERATION $HUSTINGS_FENCE_NUMBER\"; cd {}
             write() {{ ( flock 9; set -- $(tail -n 1 gate) 0 0 0; [ $1 -gt ${{T% *}} ] || [ $1 -eq ${{T% *}} -a $2 -gt ${{T#* }} ] || echo $T >> gate ) 9> gate.lock; }}
             write; echo {id} $T $PPID $$ >> log
             while :; do write; sleep 0.05; done",
            self.directory.path().display()
        );
        let log =
            std::fs::OpenOptions::new().create(true).append(true).open(self.path(id)).expect("a file can be made");
        let millis = |part: u32| format!("{}ms", self.ttl.as_millis() as u32 / part);
        Command::new(HUSTINGS)
            .args(["run", "--election", "billing", "--store", &self.store, "--id", id, "--ttl", &millis(1)])
            .args(["--stop-grace", &millis(10), "--kill-margin", &millis(16), "--"])
            .args(["flock", "--nonblock", "--no-fork", "-E", &OVERLAP.to_string()])
            .args([self.path("witness").to_str().expect("text"), "sh", "-c", &script])
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("a descriptor"))
            .stderr(log)
            .spawn()
            .expect("it starts")
    }

    /// The command that has begun as the so-many-th. A sidecar that was struck may end after the next command has begun: whoever
    /// has ended is started anew all the while, or three faults in a row would leave nobody.
    async fn begun(&mut self, count: usize) -> Begun {
        let log = self.path("log");
        let look = async || {
            self.mend();
            read(&log).into_iter().nth(count - 1)
        };
        let begun = wait_for("a command to begin", look).await;
        begun.unwrap_or_else(|error| panic!("{error}\n{}", self.said()))
    }

    fn said(&self) -> String {
        let text = |(id, _): &(String, Child)| {
            format!("{id}:\n{}", std::fs::read_to_string(self.path(id)).unwrap_or_default())
        };
        self.sidecars.iter().map(text).collect()
    }

    fn sidecar(&self, id: &str) -> Pid {
        let (_, child) = self.sidecars.iter().find(|(known, _)| known == id).expect("its command runs");
        Pid::from_raw(child.id().cast_signed()).expect("a process has a number")
    }

    /// Does this to the holder, and gives who is to go on afterwards.
    fn strike(&self, fault: Fault, holder: &Begun) -> Option<Pid> {
        let sidecar = self.sidecar(&holder.id);
        // A process that is gone already cannot be hit.
        let hit = |pid: Pid, signal: Signal| {
            let _ = kill_process(pid, signal);
        };
        match fault {
            Fault::SidecarKilled => hit(sidecar, Signal::KILL),
            Fault::WardenKilled => hit(holder.warden, Signal::KILL),
            Fault::SidecarTold => hit(sidecar, Signal::TERM),
            Fault::SidecarAndWardenKilled => {
                hit(sidecar, Signal::KILL);
                hit(holder.warden, Signal::KILL);
            }
            Fault::CommandPausedAndSidecarTold => {
                hit(holder.command, Signal::STOP);
                hit(sidecar, Signal::TERM);
            }
            Fault::SidecarPaused => {
                hit(sidecar, Signal::STOP);
                return Some(sidecar);
            }
            Fault::WardenPausedAndSidecarTold => {
                // Alone it changes nothing: the sidecar renews, and would replace it at the deadline.
                hit(holder.warden, Signal::STOP);
                hit(sidecar, Signal::TERM);
            }
        }
        None
    }

    /// Starts anew each sidecar that has ended; none of them saw an overlap.
    fn mend(&mut self) {
        for place in 0..self.sidecars.len() {
            let Ok(Some(status)) = self.sidecars[place].1.try_wait() else { continue };
            assert_ne!(status.code(), Some(OVERLAP), "two commands ran at once:\n{}", self.said());
            let id = self.sidecars[place].0.clone();
            self.sidecars[place].1 = self.start(&id);
        }
    }
}

impl Drop for Story {
    fn drop(&mut self) {
        for (_, child) in &mut self.sidecars {
            // The warden ends what runs.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn read(log: &Path) -> Vec<Begun> {
    let text = std::fs::read_to_string(log).unwrap_or_default();
    let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
    let line = |line: &str| {
        let words: Vec<&str> = line.split(' ').collect();
        let number = |place: usize| words[place].parse::<i32>().ok().and_then(Pid::from_raw).expect("a process");
        Begun { id: words[0].to_owned(), token: token(&words[1..]), warden: number(3), command: number(4) }
    };
    whole.lines().map(line).collect()
}

fn token(words: &[&str]) -> (u64, u64) {
    (words[0].parse().expect("a generation"), words[1].parse().expect("a number"))
}

/// Draws faults for the leader, and looks on.
async fn one_command_at_most(name: &str, store: String, ttl: Duration) {
    let runs = std::env::var("HUSTINGS_ELECTION_RUNS").ok().and_then(|runs| runs.parse().ok()).unwrap_or(RUNS);
    let mut story = Story { directory: tempfile::tempdir().expect("a place"), store, ttl, sidecars: Vec::new() };
    std::fs::write(story.path("gate"), "").expect("a file");
    story.sidecars = ["a", "b", "c"].map(|id| (id.to_owned(), story.start(id))).into();
    let mut holder = story.begun(1).await;
    let mut took: Vec<(Duration, Fault)> = Vec::new();
    for run in 0..runs {
        let fault = FAULTS[(run + name.len()) % FAULTS.len()];
        let struck = Instant::now();
        let goes_on = story.strike(fault, &holder);
        let next = story.begun(run + 2).await;
        took.push((struck.elapsed(), fault));
        assert!(next.token > holder.token, "{fault:?}: {next:?} after {holder:?}");
        if let Some(pid) = goes_on {
            let _ = kill_process(pid, Signal::CONT);
        }
        story.mend();
        holder = next;
    }
    let gate = std::fs::read_to_string(story.path("gate")).expect("it was written");
    let admitted: Vec<(u64, u64)> = gate.lines().map(|line| token(&line.split(' ').collect::<Vec<_>>())).collect();
    assert!(admitted.is_sorted() && admitted.len() > runs, "a stale write was admitted: {admitted:?}");
    story.mend();
    let shown: Vec<String> =
        took.iter().take(FAULTS.len()).map(|(took, fault)| format!("{fault:?} {took:.1?}")).collect();
    println!(
        "{name}: {runs} faults, no overlap, {} writes admitted in order; T = {ttl:?}: {}",
        admitted.len(),
        shown.join(", ")
    );
}

/// The hosts of a cluster, as a store's address names them.
fn hosts(cluster: &Cluster) -> String {
    let hosts: Vec<String> =
        cluster.endpoints().iter().map(|url| url.trim_start_matches("http://").to_owned()).collect();
    hosts.join(",")
}

#[tokio::test(flavor = "multi_thread")]
async fn one_command_at_most_over_hustings() {
    let cluster = Cluster::start(Program::hustings(HUSTINGS), 3).await.expect("it starts");
    one_command_at_most("hustings", format!("hustings://{}", hosts(&cluster)), Duration::from_secs(5)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_command_at_most_over_etcd() {
    let cluster = Cluster::start(support::etcd(), 3).await.expect("it starts");
    one_command_at_most("etcd", format!("etcd://{}", hosts(&cluster)), Duration::from_secs(5)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_command_at_most_over_zookeeper() {
    let ensemble = Zookeeper::start(1, Duration::from_millis(200), WHITELIST).await.expect("it starts");
    one_command_at_most("zookeeper", format!("zookeeper://{}", ensemble.hosts()), Duration::from_secs(4)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_command_at_most_over_consul() {
    let consul = Consul::start("").await.expect("it starts");
    one_command_at_most("consul", format!("consul://{}", consul.host()), Duration::from_secs(10)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_command_at_most_over_postgres() {
    let postgres = Postgres::start(&[]).expect("it starts");
    let store = postgres.url("billing").trim_end_matches("/billing").to_owned();
    one_command_at_most("postgres", store, Duration::from_secs(3)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_command_at_most_over_kubernetes() {
    let server = FakeKube::start().expect("it starts");
    let store = server.url("billing").trim_end_matches("/billing").to_owned();
    one_command_at_most("kubernetes", store, Duration::from_secs(3)).await;
}
