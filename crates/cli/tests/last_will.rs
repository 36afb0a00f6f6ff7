//! Goal: a process that is killed while it leads is succeeded at once, on every store, and one that lives never is.
//! Method: this program again, as a small service that leads with a last will; it is stopped, goes on, and is killed.

mod support;

use hustings_election::{CampaignError, Change, Election, Leadership, Named, Office, will};
use hustings_testbed::{Cluster, Consul, FakeKube, Postgres, Program, Zookeeper};
use rustix::process::{Pid, Signal, kill_process};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

const TTL: Duration = Duration::from_secs(6);
/// The shortest lease that Consul gives.
const TTL_OF_CONSUL: Duration = Duration::from_secs(10);
/// Setting that lets a ZooKeeper say its tick.
const WHITELIST: &str = "4lw.commands.whitelist=*";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [verb, url, ttl] = arguments.as_slice()
        && verb == "lead"
    {
        let ttl = Duration::from_millis(ttl.parse().expect("milliseconds"));
        will::helper();
        return on_runtime(lead(url, ttl));
    }
    on_runtime(stories())
}

fn on_runtime(story: impl Future<Output = ()>) -> ExitCode {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("there is room for threads");
    runtime.block_on(story);
    ExitCode::SUCCESS
}

fn office(url: &str, id: &str, ttl: Duration) -> Office {
    let election = Election::open(url).expect("the URL is right").ttl(ttl).own_session().with_will();
    election.candidate(Named::new(id).stop_grace(Duration::from_secs(1)))
}

/// A service as small as it can be.
async fn lead(url: &str, ttl: Duration) {
    let leadership = office(url, "killed", ttl).campaign().await.expect("the times fit");
    println!("leads with token {}", leadership.lead().expect("it leads").token());
    std::io::stdout().flush().expect("somebody reads");
    leadership.lost().await;
}

async fn stories() {
    let url = "hustings://127.0.0.1:1/billing";
    let refused = in_time("a refusal", office(url, "a", TTL).campaign()).await;
    let Err(CampaignError::Will(why)) = refused else { panic!("nobody could carry it out: {refused:?}") };
    assert!(why.contains("will::helper() first in main"), "{why}");
    println!("test a_will_without_a_helper_is_refused_with_the_remedy ... ok");

    let cluster = Cluster::start(Program::hustings(support::HUSTINGS), 3).await.expect("it starts");
    who_is_killed_is_succeeded_at_once(&format!("hustings://{}/billing", hosts(&cluster)), TTL).await;
    let cluster = Cluster::start(support::etcd(), 3).await.expect("it starts");
    who_is_killed_is_succeeded_at_once(&format!("etcd://{}/billing", hosts(&cluster)), TTL).await;
    let ensemble = Zookeeper::start(1, TTL / 20, WHITELIST).await.expect("it starts");
    who_is_killed_is_succeeded_at_once(&format!("zookeeper://{}/billing", ensemble.hosts()), TTL).await;
    let consul = Consul::start("").await.expect("it starts");
    who_is_killed_is_succeeded_at_once(&format!("consul://{}/billing", consul.host()), TTL_OF_CONSUL).await;
    let postgres = Postgres::start(&[]).expect("it starts");
    who_is_killed_is_succeeded_at_once(&postgres.url("billing"), TTL).await;
    let server = FakeKube::start().expect("it starts");
    who_is_killed_is_succeeded_at_once(&server.url("billing"), TTL).await;
    println!("test who_is_killed_is_succeeded_at_once ... ok");
}

/// The hosts of a cluster, as a store's address names them.
fn hosts(cluster: &Cluster) -> String {
    let hosts: Vec<String> =
        cluster.endpoints().iter().map(|url| url.trim_start_matches("http://").to_owned()).collect();
    hosts.join(",")
}

async fn in_time<T>(what: &str, future: impl Future<Output = T>) -> T {
    let waited = tokio::time::timeout(Duration::from_secs(30), future).await;
    waited.unwrap_or_else(|_| panic!("{what}: not within 30 s"))
}

/// The service as a process; it leads when this returns.
fn started(url: &str, ttl: Duration) -> Child {
    let mut command = Command::new(std::env::current_exe().expect("it runs"));
    let mut child =
        command.args(["lead", url, &ttl.as_millis().to_string()]).stdout(Stdio::piped()).spawn().expect("it starts");
    let mut said = String::new();
    let output = child.stdout.take().expect("it is piped");
    BufReader::new(output).read_line(&mut said).expect("it speaks");
    assert!(said.starts_with("leads with token"), "{said}");
    child
}

fn signal(child: &Child, signal: Signal) {
    let id = Pid::from_raw(child.id().cast_signed()).expect("a process has a number");
    kill_process(id, signal).expect("it runs");
}

/// Whether a process acts no more, reaped or not.
fn is_gone(process: &str) -> bool {
    std::fs::read_to_string(format!("/proc/{process}/stat")).map_or(true, |stat| stat.contains(") Z "))
}

/// The helper of this process, as the kernel lists its children; another one than this.
async fn helper_of(child: &Child, but: &str) -> String {
    let id = child.id();
    in_time("it has a helper", async {
        loop {
            let threads = std::fs::read_dir(format!("/proc/{id}/task")).expect("it runs").flatten();
            let children = threads.filter_map(|thread| std::fs::read_to_string(thread.path().join("children")).ok());
            let all: Vec<String> =
                children.flat_map(|list| list.split(' ').map(str::to_owned).collect::<Vec<_>>()).collect();
            if let Some(helper) = all.into_iter().find(|one| !one.is_empty() && one != but && !is_gone(one)) {
                return helper;
            }
            tokio::task::yield_now().await;
        }
    })
    .await
}

async fn who_is_killed_is_succeeded_at_once(url: &str, ttl: Duration) {
    let mut child = started(url, ttl);
    let (sender, mut changes) = tokio::sync::mpsc::unbounded_channel();
    let successor = Election::open(url).expect("the URL is right").ttl(ttl).own_session();
    let successor = successor.candidate(Named::new("b").stop_grace(Duration::from_secs(1)));
    let waiting = tokio::spawn(async move { successor.campaign_told(Some(sender)).await.expect("the times fit") });
    while in_time("it waits", changes.recv()).await.expect("it stands for election") != Change::Waits {}
    // Stopped, it lives: its lease goes on for as long as it may.
    signal(&child, Signal::STOP);
    let early = tokio::time::timeout(ttl / 4, changes.recv()).await;
    assert!(early.is_err(), "{url}: released while the process lives: {early:?}");
    signal(&child, Signal::CONT);
    // A helper that dies alone has a successor, which knows the will.
    let first = helper_of(&child, "").await;
    kill_process(Pid::from_raw(first.parse().expect("a number")).expect("not 0"), Signal::KILL).expect("it runs");
    let helper = helper_of(&child, &first).await;
    signal(&child, Signal::KILL);
    let killed = Instant::now();
    let second: Leadership = in_time("the successor", waiting).await.expect("it does not panic");
    let took = killed.elapsed();
    println!("{url}: the successor leads {took:?} after kill -9, with a lease of {ttl:?}");
    assert!(took < ttl / 3, "nobody carried out the will: {took:?}");
    child.wait().expect("it was killed");
    in_time("the helper ends", async {
        while !is_gone(&helper) {
            tokio::task::yield_now().await;
        }
    })
    .await;
    let history = Election::open(url).expect("the URL is right").history().await.expect("the store answers");
    assert!(history.to_string().contains("its process is gone") || history.tenures().count() == 1, "{history}");
    second.resign("done").await;
}
