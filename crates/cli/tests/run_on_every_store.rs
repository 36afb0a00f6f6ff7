//! Goal: at most one command runs, on every store, and the next one bears a higher token, although anything may happen to
//! sidecar, warden, command and store. Method: three sidecars stand for one election; faults of nine kinds, in turn, hit the
//! leader; each command holds a witness, a lock of the kernel on one file, and its sidecar ends with 99 when another holds it.
//! Each command passes a gate, too: it writes its token behind the highest one that was there, in one step, and is refused below
//! it. Only a tree that was frozen as a whole gets that far; its command wakes first here, and must be refused.
//!
//! `HUSTINGS_ELECTION_RUNS=1000 cargo test -p hustings --test run_on_every_store -- --nocapture` draws so many faults per store.

mod support;

use hustings_testbed::{Cluster, Consul, FakeKube, Postgres, Program, Zookeeper, wait_for};
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
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

/// A fault of the sidecar that leads, or of its store.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fault {
    StoreLeaderPausedAndSidecarTold,
    WholeTreePaused,
    SidecarKilled,
    SidecarPaused,
    WardenKilled,
    WardenPausedAndSidecarTold,
    CommandPausedAndSidecarTold,
    SidecarAndWardenKilled,
    SidecarTold,
}

const FAULTS: [Fault; 9] = [
    // Only a cluster has a leader of its own.
    Fault::StoreLeaderPausedAndSidecarTold,
    Fault::SidecarKilled,
    Fault::WholeTreePaused,
    Fault::SidecarAndWardenKilled,
    Fault::SidecarPaused,
    Fault::SidecarTold,
    Fault::WardenPausedAndSidecarTold,
    // A fault that waits for no lease is tried at Consul, where leases last longest.
    Fault::WardenKilled,
    Fault::CommandPausedAndSidecarTold,
];

/// The stores in the order in which they share the faults.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Store {
    Hustings,
    Etcd,
    Consul,
    Zookeeper,
    Postgres,
    Kubernetes,
}

impl Store {
    fn is_cluster(self) -> bool {
        matches!(self, Store::Hustings | Store::Etcd)
    }

    /// The faults here, for ever: each store begins where the one before it ends by default.
    fn faults(self) -> impl Iterator<Item = Fault> {
        let may_happen = move |fault: &Fault| self.is_cluster() || *fault != Fault::StoreLeaderPausedAndSidecarTold;
        let faults: Vec<Fault> = FAULTS.into_iter().filter(may_happen).collect();
        faults.into_iter().cycle().skip(self as usize * RUNS)
    }
}

#[test]
fn every_fault_happens_at_some_store_by_default() {
    let stores = [Store::Hustings, Store::Etcd, Store::Consul, Store::Zookeeper, Store::Postgres, Store::Kubernetes];
    let happen: Vec<Fault> = stores.into_iter().flat_map(|store| store.faults().take(RUNS)).collect();
    let never: Vec<Fault> = FAULTS.into_iter().filter(|fault| !happen.contains(fault)).collect();
    assert!(never.is_empty(), "{never:?}");
}

/// The ids of three sidecars that others tell apart, and of three that were given one name.
const IDS: [&str; 3] = ["a", "b", "c"];
const ONE_ID: [&str; 3] = ["a", "a", "a"];

/// A command that has begun: of which sidecar, with which token, under which warden, as which process.
#[derive(Clone, Debug)]
struct Begun {
    place: usize,
    token: (u64, u64),
    warden: Pid,
    command: Pid,
}

struct Story {
    directory: TempDir,
    store: String,
    /// The store's members, where there are several.
    cluster: Option<Cluster>,
    ttl: Duration,
    election: &'static str,
    /// The id of each sidecar, by its place; and the sidecars.
    ids: [&'static str; 3],
    sidecars: Vec<Child>,
}

impl Story {
    /// Three sidecars with these ids stand for an election.
    fn begin(
        store: String,
        cluster: Option<Cluster>,
        ttl: Duration,
        election: &'static str,
        ids: [&'static str; 3],
    ) -> Story {
        let directory = tempfile::tempdir().expect("a place");
        let mut story = Story { directory, store, cluster, ttl, election, ids, sidecars: Vec::new() };
        std::fs::write(story.path("gate"), "").expect("a file");
        story.sidecars = (0..ids.len()).map(|place| story.start(place)).collect();
        story
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// The sidecar at this place; what it says is in a file of its own.
    fn start(&self, place: usize) -> Child {
        let script = format!(
            "trap 'exit 0' TERM; T=\"$HUSTINGS_FENCE_GENERATION $HUSTINGS_FENCE_NUMBER\"; cd {}
             write() {{ ( flock 9; set -- $(tail -n 1 gate) 0 0 0; [ $1 -gt ${{T% *}} ] || [ $1 -eq ${{T% *}} -a $2 -gt ${{T#* }} ] || {{ echo $T >> gate; exit 0; }}; echo $T >> refused ) 9> gate.lock; }}
             write; echo {place} $T $PPID $$ >> log
             while :; do write; sleep 0.05; done",
            self.directory.path().display()
        );
        let log = std::fs::OpenOptions::new().create(true).append(true).open(self.path(&format!("sidecar-{place}")));
        let log = log.expect("a file can be made");
        let millis = |part: u32| format!("{}ms", self.ttl.as_millis() as u32 / part);
        Command::new(HUSTINGS)
            .args(["run", "--election", self.election, "--store", &self.store, "--id", self.ids[place]])
            .args(["--ttl", &millis(1)])
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
        let text = |place: usize| {
            let name = format!("sidecar-{place}");
            format!("{name}:\n{}", std::fs::read_to_string(self.path(&name)).unwrap_or_default())
        };
        (0..self.sidecars.len()).map(text).collect()
    }

    fn sidecar(&self, place: usize) -> Pid {
        Pid::from_raw(self.sidecars[place].id().cast_signed()).expect("a process has a number")
    }

    /// Does this to the holder; gives the position of the store's leader, if that was paused.
    async fn strike(&self, fault: Fault, holder: &Begun) -> Option<usize> {
        let sidecar = self.sidecar(holder.place);
        match fault {
            Fault::StoreLeaderPausedAndSidecarTold => {
                let cluster = self.cluster.as_ref().expect("only a cluster gets this fault");
                let leader = cluster.leader().await.expect("it has a leader");
                cluster.nodes[leader].pause().expect("it runs");
                hit(sidecar, Signal::TERM);
                return Some(leader);
            }
            Fault::WholeTreePaused => {
                hit(sidecar, Signal::STOP);
                hit(holder.warden, Signal::STOP);
                // A command that froze within the gate would hold it: no store waits for a client like that.
                let gate = std::fs::File::create(self.path("gate.lock")).expect("a file");
                gate.lock().expect("a command is within the gate for a moment only");
                hit_group(holder.command, Signal::STOP);
                // One that has just forked waits for its child (D), which is stopped.
                let is_frozen =
                    async || states_of(holder.command).iter().all(|state| "TZD".contains(*state)).then_some(());
                wait_for("the command to stand still", is_frozen).await.expect("it is stopped");
                drop(gate);
                // This one holds its witness for as long as it is frozen; later ones hold another.
                std::fs::remove_file(self.path("witness")).expect("it is held");
            }
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
            Fault::SidecarPaused => hit(sidecar, Signal::STOP),
            Fault::WardenPausedAndSidecarTold => {
                // Alone it changes nothing: the sidecar renews, and would replace it at the deadline.
                hit(holder.warden, Signal::STOP);
                hit(sidecar, Signal::TERM);
            }
        }
        None
    }

    /// Lets the paused sidecar go on, once another one works.
    async fn revive(&self, fault: Fault, holder: &Begun, paused: Option<usize>) {
        match fault {
            Fault::SidecarPaused => hit(self.sidecar(holder.place), Signal::CONT),
            Fault::WholeTreePaused => {
                let before = self.refused();
                hit_group(holder.command, Signal::CONT);
                let refused = wait_for("the gate to refuse it", async || (self.refused() > before).then_some(())).await;
                refused.unwrap_or_else(|error| panic!("{error}: a stale command writes on\n{}", self.said()));
                hit(holder.warden, Signal::CONT);
                hit(self.sidecar(holder.place), Signal::CONT);
                let is_gone = async || kill_process_group(holder.command, Signal::CONT).is_err().then_some(());
                wait_for("what was frozen to end", is_gone).await.expect("the warden ends it");
            }
            _ => {}
        }
        if let (Some(cluster), Some(paused)) = (&self.cluster, paused) {
            cluster.nodes[paused].resume().expect("it runs");
        }
    }

    /// The number of writes that the gate has refused.
    fn refused(&self) -> usize {
        std::fs::read_to_string(self.path("refused")).unwrap_or_default().lines().count()
    }

    /// Starts anew each sidecar that has ended; none of them saw an overlap.
    fn mend(&mut self) {
        for place in 0..self.sidecars.len() {
            let Ok(Some(status)) = self.sidecars[place].try_wait() else { continue };
            assert_ne!(status.code(), Some(OVERLAP), "two commands ran at once:\n{}", self.said());
            self.sidecars[place] = self.start(place);
        }
    }
}

/// A process that is gone already cannot be hit.
fn hit(pid: Pid, signal: Signal) {
    let _ = kill_process(pid, signal);
}

/// The state of each process of a command's group, as `/proc` has it.
fn states_of(command: Pid) -> Vec<char> {
    let stats = std::fs::read_dir("/proc").expect("Linux").flatten();
    let stats = stats.filter_map(|entry| std::fs::read_to_string(entry.path().join("stat")).ok());
    let group = command.to_string();
    let state = |stat: String| {
        // After the name: state, parent, group.
        let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
        (fields.get(2) == Some(&group.as_str())).then(|| fields[0].chars().next())?
    };
    stats.filter_map(state).collect()
}

/// The command and what it has started.
fn hit_group(command: Pid, signal: Signal) {
    let _ = kill_process_group(command, signal);
}

impl Drop for Story {
    fn drop(&mut self) {
        for child in &mut self.sidecars {
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
        let place = words[0].parse().expect("a place");
        Begun { place, token: token(&words[1..]), warden: number(3), command: number(4) }
    };
    whole.lines().map(line).collect()
}

fn token(words: &[&str]) -> (u64, u64) {
    (words[0].parse().expect("a generation"), words[1].parse().expect("a number"))
}

/// Draws faults for the leader, and looks on.
async fn one_command_at_most(kind: Store, store: String, cluster: Option<Cluster>, ttl: Duration) {
    let runs = std::env::var("HUSTINGS_ELECTION_RUNS").ok().and_then(|runs| runs.parse().ok()).unwrap_or(RUNS);
    let mut story = Story::begin(store, cluster, ttl, "billing", IDS);
    let mut holder = story.begun(1).await;
    let mut took: Vec<(Duration, Fault)> = Vec::new();
    let mut frozen = 0;
    for (run, fault) in kind.faults().take(runs).enumerate() {
        let struck = Instant::now();
        let paused = story.strike(fault, &holder).await;
        let next = story.begun(run + 2).await;
        took.push((struck.elapsed(), fault));
        assert!(next.token > holder.token, "{fault:?}: {next:?} after {holder:?}");
        story.revive(fault, &holder, paused).await;
        frozen += usize::from(fault == Fault::WholeTreePaused);
        story.mend();
        holder = next;
    }
    let gate = std::fs::read_to_string(story.path("gate")).expect("it was written");
    let admitted: Vec<(u64, u64)> = gate.lines().map(|line| token(&line.split(' ').collect::<Vec<_>>())).collect();
    assert!(admitted.is_sorted() && admitted.len() > runs, "a stale write was admitted: {admitted:?}");
    story.mend();
    let refused = story.refused();
    assert!(frozen > 0 || refused == 0, "{refused} writes came from a command whose successor had written already");
    let shown: Vec<String> =
        took.iter().take(FAULTS.len()).map(|(took, fault)| format!("{fault:?} {took:.1?}")).collect();
    println!(
        "{kind:?}: {runs} faults, no overlap, {} writes admitted in order, {refused} refused; T = {ttl:?}: {}",
        admitted.len(),
        shown.join(", ")
    );
    three_of_one_name(kind, story).await;
}

/// Goal: sidecars that were given one `--id` stand for election like any others, on every store: nobody takes its namesake's leadership
/// for its own, and none of them waits for ever. Method: three of them where the story before was told; the one that leads is told to end,
/// then killed, then killed with its warden, so that nothing but the end of its lease frees the election.
async fn three_of_one_name(kind: Store, mut before: Story) {
    let (store, cluster, ttl) = (before.store.clone(), before.cluster.take(), before.ttl);
    drop(before);
    let mut story = Story::begin(store, cluster, ttl, "namesakes", ONE_ID);
    let mut holder = story.begun(1).await;
    let mut took: Vec<Duration> = Vec::new();
    for (run, fault) in
        [Fault::SidecarTold, Fault::SidecarKilled, Fault::SidecarAndWardenKilled].into_iter().enumerate()
    {
        let struck = Instant::now();
        story.strike(fault, &holder).await;
        let next = story.begun(run + 2).await;
        took.push(struck.elapsed());
        assert!(next.token > holder.token, "{fault:?}: {next:?} after {holder:?}\n{}", story.said());
        holder = next;
    }
    story.mend();
    assert_eq!(story.refused(), 0, "a command wrote after its successor\n{}", story.said());
    println!("{kind:?}: three of one name lead after each other: told, killed, killed with its warden {took:.1?}");
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
    let store = format!("hustings://{}", hosts(&cluster));
    one_command_at_most(Store::Hustings, store, Some(cluster), Duration::from_secs(5)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_command_at_most_over_etcd() {
    let cluster = Cluster::start(support::etcd(), 3).await.expect("it starts");
    let store = format!("etcd://{}", hosts(&cluster));
    one_command_at_most(Store::Etcd, store, Some(cluster), Duration::from_secs(5)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_command_at_most_over_zookeeper() {
    let ensemble = Zookeeper::start(1, Duration::from_millis(200), WHITELIST).await.expect("it starts");
    one_command_at_most(Store::Zookeeper, format!("zookeeper://{}", ensemble.hosts()), None, Duration::from_secs(4))
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_command_at_most_over_consul() {
    let consul = Consul::start("").await.expect("it starts");
    one_command_at_most(Store::Consul, format!("consul://{}", consul.host()), None, Duration::from_secs(10)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_command_at_most_over_postgres() {
    let postgres = Postgres::start(&[]).expect("it starts");
    let store = postgres.url("billing").trim_end_matches("/billing").to_owned();
    one_command_at_most(Store::Postgres, store, None, Duration::from_secs(3)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_command_at_most_over_kubernetes() {
    let server = FakeKube::start().expect("it starts");
    let store = server.url("billing").trim_end_matches("/billing").to_owned();
    one_command_at_most(Store::Kubernetes, store, None, Duration::from_secs(3)).await;
}
