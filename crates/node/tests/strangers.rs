//! Goal: a stranger gets nothing from a peer port: no link, no vote, no byte, and no place in anybody's memory. Method:
//! greetings and frames written by another hand, against nodes that run.

use crate::support::greeting::{BOOTS_MAX, CHALLENGE, Greeting, PROOF, REFUSAL, framed, hear, hello, say};
use crate::support::{Troupe, free_addresses, in_time, propose, run, secret, until, url_of};
use hustings_core::{ApplyVersion, Member, NodeId, Role};
use hustings_node::{ClusterSecret, NodeConfig, discover};
use std::net::SocketAddr;
use std::path::Path;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Says hello and then messages, and asserts that the connection ends without one byte in return but a refusal.
async fn is_refused(address: SocketAddr, greeting: Greeting, because: &str) {
    let mut stream = TcpStream::connect(address).await.expect("it listens");
    say(&mut stream, &greeting).await;
    let answer = hear(&mut stream).await;
    assert_eq!(answer.kind, REFUSAL, "{answer:?}");
    assert!(answer.text.contains(because), "{answer:?}");
    // A message between protocols that means nothing good. The port may be closed already.
    let _ = stream.write_all(&framed(&[0x0a, 0x02, 0x08, 0x7f])).await;
    let mut rest = Vec::new();
    let _ = in_time(stream.read_to_end(&mut rest)).await;
    assert_eq!(rest, Vec::<u8>::new(), "nothing follows a refusal");
}

/// Three nodes that know the secret.
fn start_secret(troupe: &mut Troupe, ids: &[NodeId]) {
    for id in ids {
        let config = NodeConfig { secret: Some(secret()), ..troupe.config_of(*id) };
        let handle = run(config).expect("it starts").handle;
        troupe.running.insert(*id, handle);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stranger_with_an_id_of_its_own_gets_no_link() {
    // Goal: a stranger is no peer, even without a secret. Method: it knows cluster, address and protocol, and takes ids that nobody has.
    let troupe = Troupe::started(3);
    let leader = troupe.leader().await;
    let term = troupe.handle(leader).status().term;
    for stranger in [4, 9, u64::MAX] {
        for (id, address) in &troupe.addresses {
            is_refused(*address, hello("raft", stranger, *id), "has not heard of a member").await;
        }
    }
    is_refused(troupe.addresses[&leader], hello("raft", leader.0, leader), "two nodes run as").await;
    let elsewhere = troupe.addresses.keys().copied().find(|id| *id != leader).expect("there are three");
    let wrong_port = hello("raft", elsewhere.0, elsewhere);
    is_refused(troupe.addresses[&leader], wrong_port, "check the peer addresses").await;
    assert_eq!(propose(troupe.handle(leader), "x").await, 1);
    assert_eq!(troupe.handle(leader).status().term, term, "no term moved");
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_does_not_know_the_secret_locks_no_member_out() {
    // Goal: a hello with the highest count of starts made every later one an old copy. Method: a stranger says that it is a
    // member which does not run yet, and proves it with bytes of the right length.
    let mut troupe = Troupe::of(3);
    let ids: Vec<NodeId> = troupe.founding.everyone().collect();
    start_secret(&mut troupe, &ids[..2]);
    let leader = troupe.leader().await;
    for id in &ids[..2] {
        let mut stream = TcpStream::connect(troupe.addresses[id]).await.expect("it listens");
        say(&mut stream, &Greeting { boots: BOOTS_MAX, ..hello("raft", ids[2].0, *id) }).await;
        let challenge = hear(&mut stream).await;
        assert_eq!((challenge.kind, challenge.from, challenge.text.as_str()), (CHALLENGE, 0, ""), "nothing of itself");
        say(&mut stream, &Greeting { version: 2, kind: PROOF, proof: vec![7; 32].into(), ..Greeting::default() }).await;
        assert!(hear(&mut stream).await.text.contains("does not know the cluster secret"));
    }
    start_secret(&mut troupe, &ids[2..]);
    until(troupe.handle(ids[2]), "the real one follows", |status| status.leader == Some(leader)).await;
    assert_eq!(propose(troupe.handle(ids[2]), "x").await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_lacks_the_secret_is_told_so_and_learns_no_member() {
    // Goal: the remedy is named on both sides. Method: the question of a node that joins, without a secret and with another.
    let mut troupe = Troupe::of(3);
    let ids: Vec<NodeId> = troupe.founding.everyone().collect();
    start_secret(&mut troupe, &ids);
    let itself = troupe.founding.members[&ids[0]].clone();
    let urls = [url_of(troupe.addresses[&ids[1]])];
    let without = in_time(discover(&urls, &itself, "raft", ApplyVersion::FIRST, None, None))
        .await
        .expect_err("it is told nothing");
    assert!(without.tried[0].1.contains("give it the same --cluster-secret-file"), "{without}");
    let other = ClusterSecret::new(b"known to nobody in this story", Path::new("other")).expect("it is long enough");
    let wrong = in_time(discover(&urls, &itself, "raft", ApplyVersion::FIRST, Some(&other), None))
        .await
        .expect_err("it is told nothing");
    assert!(wrong.tried[0].1.contains("does not know the cluster secret"), "{wrong}");
    let welcome = in_time(discover(&urls, &itself, "raft", ApplyVersion::FIRST, Some(&secret()), None))
        .await
        .expect("it is welcome");
    assert_eq!(welcome.you, ids[0]);
}

/// Copies a data directory while its node runs.
fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).expect("a directory");
    for entry in std::fs::read_dir(from).expect("it is there").flatten() {
        if entry.file_type().expect("it is there").is_file() {
            std::fs::copy(entry.path(), to.join(entry.file_name())).expect("there is room");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copied_directory_started_elsewhere_evicts_nobody() {
    // Goal: H10c. Method: a follower's directory is copied and started at another address; the original lives on.
    let troupe = Troupe::started(3);
    let leader = troupe.leader().await;
    let original = troupe.follower().await;
    let peer_urls = vec![url_of(troupe.addresses[&original])];
    for id in troupe.running.keys() {
        until(troupe.handle(*id), "everybody is known", |status| {
            status.membership.members.values().all(|member| member.storage_incarnation.is_some())
        })
        .await;
    }
    let directory = troupe.directory.path().join("copy");
    copy(&troupe.data_dir(original), &directory);
    let address = free_addresses(1)[0];
    let itself = Member { peer_urls: vec![url_of(address)], ..troupe.founding.members[&original].clone() };
    let founding = troupe.founding.clone();
    let config =
        NodeConfig::joining(hustings_core::ClusterId(7), original, itself, founding.clone(), founding, directory);
    let copied = run(troupe.equipped(config, address)).expect("nothing in the directory forbids it").handle;
    for round in 1..=20 {
        assert_eq!(propose(troupe.handle(original), "through the original").await, round);
    }
    assert_eq!(copied.status().leader, None, "it is heard by nobody");
    copied.stop().await;
    let status = troupe.handle(leader).status();
    assert_eq!(status.role, Role::Leader);
    assert_eq!(status.membership.members[&original].peer_urls, peer_urls, "its address is its own");
    assert_eq!(propose(troupe.handle(original), "through the original").await, 21);
}
