//! `cargo xtask rolling-upgrade`: builds of several versions in one cluster, under load, in every order.
//!
//! ```text
//!    old (a revision of this repository) ─► new (this tree) ─► next (this tree, with one apply version more)
//! ```
//!
//! For each order of three members: all run `old`; one after the other is stopped and started with `new`, then with `next`.
//! Meanwhile a client writes, another keeps a lease alive that holds a key, and a third watches, each going on at another member
//! when its own goes down. After each upgrade and at the end: equal hashes, every acknowledged write there, the lease alive, the
//! watch without a gap. Then the apply version has risen, and a member that is put back to `new` or to `old` must refuse to start
//! and say why; with `next` it goes on.

use crate::chore;
use hustings_api::Client;
use hustings_api::etcdserverpb::{
    LeaseGrantRequest, LeaseKeepAliveRequest, LeaseTimeToLiveRequest, PutRequest, RangeRequest, WatchCreateRequest,
    WatchRequest, watch_request::RequestUnion,
};
use hustings_testbed::{Cluster, Program, put, wait_for};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Revision that runs where no other is named: the first that says `{min, max}` in its greetings.
const OLD: &str = "2cb0bed";
/// The apply version of the build of tomorrow: one more than this tree's.
const NEXT_VERSION: u64 = 5;
const ORDERS: [[usize; 3]; 6] = [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]];
/// Acknowledged writes between two upgrades.
const WRITES: u64 = 300;
const LEASE: i64 = 7;
const TTL_SECONDS: i64 = 10;
const PREFIX: &str = "upgrade/";

/// The paths of the three builds.
struct Builds {
    old: PathBuf,
    new: PathBuf,
    next: PathBuf,
}

/// Runs the chore: `[--old REV] [--protocol NAME]`.
pub fn run(arguments: &[&str]) -> Result<(), String> {
    let mut settings = BTreeMap::from([("--old", OLD), ("--protocol", "raft")]);
    for pair in arguments.chunks(2) {
        match pair {
            [name, value] if settings.contains_key(name) => drop(settings.insert(name, value)),
            _ => return Err("usage: cargo xtask rolling-upgrade [--old REV] [--protocol NAME]".into()),
        }
    }
    let builds = build(settings["--old"])?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.map_err(|error| error.to_string())?;
    for order in ORDERS {
        let said = runtime.block_on(upgrade(&builds, order, settings["--protocol"]));
        println!("order {order:?}: {}", said.map_err(|error| format!("order {order:?}: {error:#}"))?);
    }
    Ok(())
}

fn say(command: &mut Command) -> Result<(), String> {
    eprintln!("{command:?}");
    chore::run(command)
}

/// Builds what is not there yet: the old revision in a worktree and a target folder of its own.
fn build(revision: &str) -> Result<Builds, String> {
    let (root, target) = (chore::root(), chore::target());
    let folder = target.join("rolling-upgrade");
    std::fs::create_dir_all(&folder).map_err(|error| format!("cannot make {}: {error}", folder.display()))?;
    let (tree, old_target) = (folder.join(revision), folder.join("target"));
    if !tree.exists() {
        say(Command::new("git").current_dir(&root).args(["worktree", "add", "--detach"]).arg(&tree).arg(revision))?;
    }
    let build = |directory: &Path, target: &Path, name: &str, features: &[&str]| {
        let mut command = chore::cargo();
        command.current_dir(directory).env("CARGO_TARGET_DIR", target).args(["build", "-q", "-p", "hustings"]);
        say(command.args(features))?;
        let binary = folder.join(name);
        std::fs::copy(target.join("debug/hustings"), &binary)
            .map_err(|error| format!("cannot copy {}: {error}", binary.display()))?;
        Ok::<PathBuf, String>(binary)
    };
    Ok(Builds {
        old: build(&tree, &old_target, "old", &[])?,
        new: build(&root, &target, "new", &[])?,
        next: build(&root, &target, "next", &["--features", "laboratory-rules"])?,
    })
}

/// The state that the clients share.
#[derive(Default)]
struct Shared {
    stop: AtomicBool,
    /// The last value of each key that was acknowledged.
    acknowledged: Mutex<BTreeMap<String, u64>>,
    writes: AtomicU64,
    /// Values that were sent once more, to another member: an event may show them twice.
    repeated: Mutex<BTreeSet<u64>>,
    /// Writes that two members, one after the other, did not acknowledge.
    failed: AtomicU64,
    events: AtomicU64,
    /// The revision of the last event, and what is wrong with the stream.
    watched: AtomicI64,
    gap: Mutex<Option<String>>,
    renewals: AtomicU64,
    lost_lease: AtomicBool,
}

impl Shared {
    fn goes_on(&self) -> bool {
        !self.stop.load(Ordering::Relaxed)
    }
}

async fn upgrade(builds: &Builds, order: [usize; 3], protocol: &str) -> anyhow::Result<String> {
    let program = |path: &Path| Program::hustings(path).with(&["--protocol", protocol, "--snapshot-count", "1000"]);
    let mut cluster = Cluster::start(program(&builds.old), 3).await?;
    let upgraded = upgrade_all(builds, order, &program, &mut cluster).await;
    if upgraded.is_err() {
        eprintln!("what was left of the cluster: {}", cluster.directory().display());
        cluster.keep();
    }
    upgraded
}

async fn upgrade_all(
    builds: &Builds,
    order: [usize; 3],
    program: &impl Fn(&Path) -> Program,
    cluster: &mut Cluster,
) -> anyhow::Result<String> {
    let checked = |path: &Path| program(path).with(&["--experimental-corrupt-check-time", "1s"]);
    let shared = Arc::new(Shared::default());
    let endpoints = cluster.endpoints();
    let client = Client::connect(&endpoints).await?;
    client.lease().lease_grant(LeaseGrantRequest { id: LEASE, ttl: TTL_SECONDS }).await?;
    let held = PutRequest { key: "held".into(), value: "x".into(), lease: LEASE, ..PutRequest::default() };
    client.kv().put(held).await?;
    let tasks = [
        tokio::spawn(write(endpoints.clone(), shared.clone())),
        tokio::spawn(keep_alive(endpoints.clone(), shared.clone())),
        tokio::spawn(watch(endpoints, shared.clone())),
    ];
    for stage in [&builds.new, &builds.next] {
        cluster.use_program(checked(stage));
        for position in order {
            progress(&shared).await?;
            cluster.terminate(position)?;
            cluster.start_node(position)?;
            cluster.wait_until_serving(position).await?;
        }
        progress(&shared).await?;
    }
    wait_for("the apply version to rise", async || {
        let mut versions = Vec::new();
        for node in &cluster.nodes {
            versions.push(version_of(&node.client).await?);
        }
        versions.iter().all(|version| *version == NEXT_VERSION).then_some(())
    })
    .await?;
    progress(&shared).await?;
    shared.stop.store(true, Ordering::Relaxed);
    for task in tasks {
        task.await?;
    }
    judge(cluster, &shared).await?;
    refuse_downgrades(builds, cluster, order[0], program).await?;
    let hashes = cluster.hashes().await?;
    anyhow::ensure!(hashes.iter().all(|hash| *hash == hashes[0]), "members differ: {hashes:?}");
    let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    Ok(format!(
        "{} writes acknowledged and there, {} of them at a second member; {} events without a gap; lease renewed {} times; hash {:08x} at revision {} on all; downgrades refused",
        count(&shared.writes),
        shared.repeated.lock().expect("nobody panics holding it").len(),
        count(&shared.events),
        count(&shared.renewals),
        hashes[0].0,
        hashes[0].1
    ))
}

/// Waits until the clients have got somewhere.
async fn progress(shared: &Shared) -> anyhow::Result<()> {
    let (writes, renewals) = (shared.writes.load(Ordering::Relaxed), shared.renewals.load(Ordering::Relaxed));
    wait_for("writes and renewals to go on", async || {
        let written = shared.writes.load(Ordering::Relaxed) >= writes + WRITES;
        (written && shared.renewals.load(Ordering::Relaxed) > renewals).then_some(())
    })
    .await
}

async fn version_of(endpoint: &str) -> Option<u64> {
    let text = http_get(endpoint, "/v1/status").await?;
    let status: serde_json::Value = serde_json::from_str(&text).ok()?;
    status["apply_version"].as_u64()
}

async fn http_get(endpoint: &str, path: &str) -> Option<String> {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let address = endpoint.trim_start_matches("http://");
    let mut stream = tokio::net::TcpStream::connect(address).await.ok()?;
    let request = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.ok()?;
    Some(answer.split_once("\r\n\r\n")?.1.to_owned())
}

/// Writes its keys, one after the other; what a member that goes down does not answer is sent once more, to another one.
async fn write(endpoints: Vec<String>, shared: Arc<Shared>) {
    let (mut value, mut position) = (0, 0);
    let mut client = None;
    while shared.goes_on() {
        value += 1;
        let key = format!("{PREFIX}{}", value % 50);
        let mut is_acknowledged = false;
        for attempt in 0..2 {
            if attempt == 1 {
                shared.repeated.lock().expect("nobody panics holding it").insert(value);
            }
            if client.is_none() {
                client = Client::connect(&[&endpoints[position % endpoints.len()]]).await.ok();
            }
            if let Some(connected) = &client {
                let answer =
                    tokio::time::timeout(Duration::from_secs(10), put(connected, &key, &value.to_string())).await;
                is_acknowledged = matches!(answer, Ok(Ok(_)));
            }
            if is_acknowledged {
                break;
            }
            client = None;
            position += 1;
        }
        if is_acknowledged {
            shared.acknowledged.lock().expect("nobody panics holding it").insert(key, value);
            shared.writes.fetch_add(1, Ordering::Relaxed);
        } else {
            shared.failed.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Renews the lease each second; a lease that is gone is never back.
async fn keep_alive(endpoints: Vec<String>, shared: Arc<Shared>) {
    let mut position = 0;
    while shared.goes_on() {
        let renewed = async {
            let client = Client::connect(&[&endpoints[position % endpoints.len()]]).await.ok()?;
            let renewal = tokio_stream::iter([LeaseKeepAliveRequest { id: LEASE }]);
            let mut answers = client.lease().lease_keep_alive(renewal).await.ok()?.into_inner();
            answers.message().await.ok()?
        };
        match tokio::time::timeout(Duration::from_secs(3), renewed).await {
            Ok(Some(answer)) if answer.ttl <= 0 => return shared.lost_lease.store(true, Ordering::Relaxed),
            Ok(Some(_)) => {
                shared.renewals.fetch_add(1, Ordering::Relaxed);
                tokio::time::sleep(Duration::from_millis(500)).await;
            }
            Ok(None) | Err(_) => position += 1,
        }
    }
}

/// Watches the writer's keys from the beginning; after a loss it goes on where it stood. One writer writes one key at a time, so
/// each event has the next value: one that was skipped was never acknowledged.
async fn watch(endpoints: Vec<String>, shared: Arc<Shared>) {
    let (mut position, mut last_value) = (2, 0);
    while shared.goes_on() {
        let start_revision = shared.watched.load(Ordering::Relaxed).max(1) + 1;
        let key = PREFIX.as_bytes();
        let create = WatchCreateRequest {
            key: key.to_vec().into(),
            range_end: hustings_api::client::prefix_end(key),
            start_revision,
            ..WatchCreateRequest::default()
        };
        let request = WatchRequest { request_union: Some(RequestUnion::CreateRequest(create)) };
        position += 1;
        let Ok(client) = Client::connect(&[&endpoints[position % endpoints.len()]]).await else { continue };
        let (requests, stream) = tokio::sync::mpsc::channel(1);
        let stream = tokio_stream::wrappers::ReceiverStream::new(stream);
        let _ = requests.send(request).await;
        let Ok(answer) = client.watch().watch(stream).await else { continue };
        let mut answers = answer.into_inner();
        while let Ok(Ok(Some(said))) = tokio::time::timeout(Duration::from_secs(2), answers.message()).await {
            for event in said.events {
                let Some(kv) = event.kv else { continue };
                let value: u64 = String::from_utf8_lossy(&kv.value).parse().unwrap_or_default();
                let skipped = (last_value + 1..value).find(|value| {
                    let key = format!("{PREFIX}{}", value % 50);
                    shared.acknowledged.lock().expect("nobody panics holding it").get(&key) == Some(value)
                });
                let is_again =
                    value == last_value && shared.repeated.lock().expect("nobody panics holding it").contains(&value);
                if (value <= last_value && !is_again) || skipped.is_some() {
                    let what = format!("value {value} after {last_value} at revision {}", kv.mod_revision);
                    *shared.gap.lock().expect("nobody panics holding it") = Some(what);
                }
                last_value = value;
                shared.watched.store(kv.mod_revision, Ordering::Relaxed);
                shared.events.fetch_add(1, Ordering::Relaxed);
            }
            if !shared.goes_on() {
                return;
            }
        }
    }
}

async fn judge(cluster: &Cluster, shared: &Shared) -> anyhow::Result<()> {
    let client = Client::connect(&cluster.endpoints()).await?;
    let acknowledged = shared.acknowledged.lock().expect("nobody panics holding it").clone();
    for (key, value) in &acknowledged {
        let range = RangeRequest { key: key.clone().into(), ..RangeRequest::default() };
        let found = client.kv().range(range).await?.into_inner();
        let found: u64 = found.kvs.first().map_or(0, |kv| String::from_utf8_lossy(&kv.value).parse().unwrap_or(0));
        anyhow::ensure!(found >= *value, "{key}: {value} was acknowledged, {found} is there");
    }
    anyhow::ensure!(!shared.lost_lease.load(Ordering::Relaxed), "the lease ended although it was kept alive");
    let left = client.lease().lease_time_to_live(LeaseTimeToLiveRequest { id: LEASE, keys: true }).await?.into_inner();
    anyhow::ensure!(left.ttl > 0 && left.keys.len() == 1, "the lease or its key is gone: {left:?}");
    let gap = shared.gap.lock().expect("nobody panics holding it").clone();
    anyhow::ensure!(gap.is_none(), "the watch missed or repeated something: {gap:?}");
    let failed = shared.failed.load(Ordering::Relaxed);
    anyhow::ensure!(failed == 0, "{failed} writes were acknowledged by none of two members");
    anyhow::ensure!(shared.events.load(Ordering::Relaxed) > 0, "nothing was watched");
    for node in &cluster.nodes {
        let log = std::fs::read_to_string(&node.log)?;
        anyhow::ensure!(!log.contains("members differ"), "{} says that members differ", node.name);
    }
    Ok(())
}

/// A member is put back to each older build, which must not start; with the newest it goes on.
async fn refuse_downgrades(
    builds: &Builds,
    cluster: &mut Cluster,
    position: usize,
    program: &impl Fn(&Path) -> Program,
) -> anyhow::Result<()> {
    cluster.terminate(position)?;
    let newer = format!("needs apply version {NEXT_VERSION}");
    for (build, reason) in [(&builds.new, newer.as_str()), (&builds.old, "format 3")] {
        cluster.use_program(program(build));
        cluster.start_node(position)?;
        let code = cluster.wait_for_end(position)?;
        let log = std::fs::read_to_string(&cluster.nodes[position].log)?;
        let last = log.lines().rev().take(8).collect::<Vec<_>>().join("\n");
        anyhow::ensure!(code != Some(0) && last.contains(reason), "{code:?} and not {reason:?}:\n{last}");
    }
    cluster.use_program(program(&builds.next));
    cluster.start_node(position)?;
    cluster.wait_until_serving(position).await
}
