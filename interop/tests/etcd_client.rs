//! Goal: a client that was written for etcd, and never saw us, finds what it expects.
//! Method: the `etcd-client` crate against three real nodes of the binary that `HUSTINGS_BINARY` names; one cluster for all.

use etcd_client::{
    AlarmAction, AlarmType, Client, Compare, CompareOp, DeleteOptions, Error, EventType, GetOptions, LockOptions,
    ProclaimOptions, PutOptions, ResignOptions, SortOrder, SortTarget, Txn, TxnOp, TxnOpResponse, WatchOptions,
};
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(30);

struct Cluster {
    endpoints: Vec<String>,
    processes: Vec<Child>,
    _directory: tempfile::TempDir,
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for process in &mut self.processes {
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

/// URLs of free ports. All are taken before one is given back: the system may give the same one again.
fn urls(count: usize) -> Vec<String> {
    let listeners: Vec<_> = (0..count).map(|_| TcpListener::bind("127.0.0.1:0").expect("a port is free")).collect();
    listeners.iter().map(|listener| format!("http://{}", listener.local_addr().expect("it is bound"))).collect()
}

impl Cluster {
    async fn start() -> Cluster {
        let binary = std::env::var("HUSTINGS_BINARY")
            .expect("name the binary: HUSTINGS_BINARY=$PWD/../target/debug/hustings (cargo build -p hustings)");
        let directory = tempfile::tempdir().expect("a directory");
        let urls = urls(6);
        let pairs =
            urls.chunks(2).zip(1..).map(|(pair, number)| (format!("n{number}"), pair[0].clone(), pair[1].clone()));
        let seats: Vec<(String, String, String)> = pairs.collect();
        let members: Vec<String> = seats.iter().map(|(name, _, peer)| format!("{name}={peer}")).collect();
        let start = |(name, client, peer): &(String, String, String)| {
            Command::new(&binary)
                .args(["serve", "--log-level", "warn", "--name", name, "--initial-cluster", &members.join(",")])
                .args(["--listen-client-urls", client, "--listen-peer-urls", peer, "--data-dir"])
                .arg(directory.path().join(name))
                .stdin(Stdio::null())
                .spawn()
                .unwrap_or_else(|error| panic!("{binary} cannot run: {error}"))
        };
        let processes = seats.iter().map(start).collect();
        let endpoints = seats.into_iter().map(|(_, client, _)| client).collect();
        let cluster = Cluster { endpoints, processes, _directory: directory };
        let deadline = Instant::now() + PATIENCE;
        for endpoint in &cluster.endpoints {
            loop {
                if let Ok(mut client) = Client::connect([endpoint], None).await
                    && client.get("x", None).await.is_ok()
                {
                    break;
                }
                assert!(Instant::now() < deadline, "{endpoint} does not serve");
                tokio::task::yield_now().await;
            }
        }
        cluster
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_foreign_client_finds_what_it_expects() {
    let cluster = Cluster::start().await;
    let mut client = Client::connect(&cluster.endpoints, None).await.expect("it connects");
    keys(&mut client).await;
    transactions(&mut client).await;
    watches(&mut client).await;
    leases(&mut client).await;
    locks(&mut client, &cluster).await;
    elections(&mut client).await;
    maintenance(&mut client, &cluster).await;
}

async fn keys(client: &mut Client) {
    let first = client.put("keys/a", "1", None).await.expect("it is written");
    let revision = first.header().expect("a header").revision();
    let second = client.put("keys/a", "2", Some(PutOptions::new().with_prev_key())).await.expect("it is written");
    assert_eq!(second.prev_key().expect("what was there").value(), b"1");
    client.put("keys/b", "0", None).await.expect("it is written");
    let by_value = GetOptions::new().with_prefix().with_sort(SortTarget::Value, SortOrder::Ascend);
    let found = client.get("keys/", Some(by_value)).await.expect("it is read");
    let values: Vec<&[u8]> = found.kvs().iter().map(|kv| kv.value()).collect();
    assert_eq!((values, found.count()), (vec![&b"0"[..], b"2"], 2));
    let old = client.get("keys/a", Some(GetOptions::new().with_revision(revision))).await.expect("it is read");
    assert_eq!((old.kvs()[0].value(), old.kvs()[0].mod_revision()), (&b"1"[..], revision));
    let deleted = client.delete("keys/", Some(DeleteOptions::new().with_prefix().with_prev_key())).await.expect("gone");
    assert_eq!((deleted.deleted(), deleted.prev_kvs().len()), (2, 2));
    match client.get("keys/a", Some(GetOptions::new().with_revision(1 << 40))).await {
        Err(Error::GRpcStatus(status)) => {
            assert_eq!(status.message(), "etcdserver: mvcc: required revision is a future revision");
        }
        other => panic!("the future was read: {other:?}"),
    }
}

async fn transactions(client: &mut Client) {
    client.put("txn", "old", None).await.expect("it is written");
    let swap = || {
        Txn::new()
            .when([Compare::value("txn", CompareOp::Equal, "old")])
            .and_then([TxnOp::put("txn", "new", None)])
            .or_else([TxnOp::get("txn", None)])
    };
    assert!(client.txn(swap()).await.expect("an answer").succeeded());
    let again = client.txn(swap()).await.expect("an answer");
    assert!(!again.succeeded());
    match &again.op_responses()[0] {
        TxnOpResponse::Get(found) => assert_eq!(found.kvs()[0].value(), b"new"),
        other => panic!("not a get: {other:?}"),
    }
}

async fn watches(client: &mut Client) {
    let put = client.put("watched/1", "first", None).await.expect("it is written");
    let from = put.header().expect("a header").revision();
    let options = WatchOptions::new().with_prefix().with_prev_key().with_start_revision(from);
    let mut stream = client.watch("watched/", Some(options)).await.expect("it opens");
    client.put("watched/2", "second", None).await.expect("it is written");
    client.delete("watched/1", None).await.expect("it is deleted");
    let (mut seen, mut id) = (Vec::new(), 0);
    while seen.len() < 3 {
        let answer = stream.message().await.expect("no error").expect("it goes on");
        id = answer.watch_id();
        for event in answer.events() {
            let kv = event.kv().expect("a key");
            let before = event.prev_kv().map(|kv| kv.value().to_vec());
            seen.push((event.event_type(), kv.key().to_vec(), before));
        }
    }
    let expected = [
        (EventType::Put, b"watched/1".to_vec(), None),
        (EventType::Put, b"watched/2".to_vec(), None),
        (EventType::Delete, b"watched/1".to_vec(), Some(b"first".to_vec())),
    ];
    assert_eq!(seen, expected);
    stream.cancel(id).await.expect("it is sent");
    loop {
        let answer = stream.message().await.expect("no error").expect("it goes on");
        if answer.canceled() {
            break;
        }
    }
}

async fn leases(client: &mut Client) {
    let id = client.lease_grant(600, None).await.expect("it is granted").id();
    client.put("leased", "x", Some(PutOptions::new().with_lease(id))).await.expect("it is written");
    let (mut keeper, mut answers) = client.lease_keep_alive(id).await.expect("it opens");
    for _ in 0..3 {
        keeper.keep_alive().await.expect("it is sent");
        let answer = answers.message().await.expect("no error").expect("it goes on");
        assert_eq!((answer.id(), answer.ttl()), (id, 600));
    }
    let left = client.lease_time_to_live(id, None).await.expect("an answer");
    assert!(left.ttl() > 500 && left.granted_ttl() == 600);
    assert!(client.leases().await.expect("an answer").leases().iter().any(|lease| lease.id() == id));
    client.lease_revoke(id).await.expect("it is revoked");
    assert!(client.get("leased", None).await.expect("it is read").kvs().is_empty());
}

async fn locks(client: &mut Client, cluster: &Cluster) {
    let lease = client.lease_grant(600, None).await.expect("it is granted").id();
    let held = client.lock("mutex", Some(LockOptions::new().with_lease(lease))).await.expect("it is held");
    assert!(held.key().starts_with(b"mutex/"));
    let mut rival = Client::connect(&cluster.endpoints, None).await.expect("it connects");
    let waiting = tokio::spawn(async move { rival.lock("mutex", None).await.map(|held| held.key().to_vec()) });
    while client.get("mutex/", Some(GetOptions::new().with_prefix())).await.expect("it is read").count() < 2 {
        assert!(!waiting.is_finished(), "two hold one lock");
    }
    client.unlock(held.key()).await.expect("it is given back");
    let next = tokio::time::timeout(PATIENCE, waiting).await.expect("its turn comes").expect("no panic");
    assert_ne!(next.expect("it is held"), held.key());
}

async fn elections(client: &mut Client) {
    let lease = client.lease_grant(600, None).await.expect("it is granted").id();
    let won = client.campaign("office", "alice", lease).await.expect("it is won");
    let crown = won.leader().expect("a crown").clone();
    let mut observed = client.observe("office").await.expect("it opens");
    let first = observed.message().await.expect("no error").expect("it goes on");
    assert_eq!(first.kv().expect("a leader").value(), b"alice");
    let proclaim = ProclaimOptions::new().with_leader(crown.clone());
    client.proclaim("alice the first", Some(proclaim)).await.expect("it is proclaimed");
    let second = observed.message().await.expect("no error").expect("it goes on");
    assert_eq!(second.kv().expect("a leader").value(), b"alice the first");
    assert_eq!(client.leader("office").await.expect("an answer").kv().expect("a leader").value(), b"alice the first");
    client.resign(Some(ResignOptions::new().with_leader(crown))).await.expect("it is given back");
    match client.leader("office").await {
        Err(Error::GRpcStatus(status)) => assert_eq!(status.message(), "election: no leader"),
        other => panic!("an empty office has a holder: {other:?}"),
    }
}

async fn maintenance(client: &mut Client, cluster: &Cluster) {
    let status = client.status().await.expect("an answer");
    assert!(status.version().starts_with("3.5.") && status.leader() != 0, "{status:?}");
    let alarms = client.alarm(AlarmAction::Get, AlarmType::None, None).await.expect("an answer");
    assert!(alarms.alarms().is_empty());
    client.defragment().await.expect("an answer");
    let members = client.member_list().await.expect("an answer");
    assert_eq!(members.members().len(), 3);
    let revision = client.get("txn", None).await.expect("it is read").header().expect("a header").revision();
    let mut hashes = Vec::new();
    for endpoint in &cluster.endpoints {
        let mut one = Client::connect([endpoint], None).await.expect("it connects");
        // A linearizable read brings the member to that revision.
        one.get("txn", None).await.expect("it is read");
        hashes.push(one.hash_kv(revision).await.expect("an answer").hash());
        let mut snapshot = one.snapshot().await.expect("it opens");
        let (mut bytes, mut remaining) = (0, u64::MAX);
        while let Some(part) = snapshot.message().await.expect("no error") {
            bytes += part.blob().len();
            remaining = part.remaining_bytes();
        }
        assert_eq!((bytes % 512, remaining), (32, 0), "whole blocks and a digest");
        if one.status().await.expect("an answer").header().expect("a header").member_id() == status.leader() {
            let target = members.members().iter().map(|member| member.id()).find(|id| *id != status.leader());
            one.move_leader(target.expect("two others")).await.expect("it moves");
        }
    }
    assert!(hashes.iter().all(|hash| *hash == hashes[0]), "the nodes differ: {hashes:?}");
    client.put("after", "all", None).await.expect("it is written");
    client.compact(revision, None).await.expect("it is compacted");
}
