//! Goal: an application replicates a state with nothing but a closure. Method: three members that add up words.

use crate::support::{Troupe, in_time};
use bytes::Bytes;
use hustings_core::replica::Policy;
use hustings_core::{ClusterId, Limits, NodeId, Replicated, Role};
use hustings_node::{Handle, NodeConfig, RequestError};
use hustings_raft::{Options, Raft};
use std::collections::BTreeMap;
use std::sync::Arc;

type Words = BTreeMap<String, u64>;
type Member = Handle<Replicated<Words>>;

/// The whole application: counts each word, and answers how often it was said.
fn words() -> Replicated<Words> {
    Replicated::new(Words::new(), |words, command| {
        let times = words.entry(String::from_utf8_lossy(command).into_owned()).or_default();
        *times += 1;
        times.to_string().into_bytes()
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_panic_of_the_application_is_told_as_such_and_a_mended_build_goes_on() {
    // Goal: found by a hostile reader: it was told as an impossible state of the node, without the entry, and nobody could tell what
    // helps. Method: a closure that panics at one word; then one that does not.
    let troupe = Troupe::of(1);
    let (tell, told) = std::sync::mpsc::channel();
    let mut config = NodeConfig::new(ClusterId(7), NodeId(1), troupe.founding.clone(), troupe.data_dir(NodeId(1)));
    config = troupe.equipped(config, troupe.addresses[&NodeId(1)]);
    config.on_fatal = Arc::new(move |why| drop(tell.send(why.to_owned())));
    let picky = Replicated::new(Words::new(), |_, command| {
        assert_ne!(command, b"unwanted", "that word again");
        Vec::new()
    });
    let member = hustings_node::start::<Raft, _>(config, Options::default(), picky).expect("it starts").handle;
    let answer = in_time(member.propose(Bytes::from_static(b"unwanted"))).await;
    assert_eq!(answer.map(|applied| applied.response), Err(RequestError::Stopped));
    let why = told.recv().expect("it is told");
    let entry = member.status().last;
    assert!(why.starts_with(&format!("StateMachine::apply panicked at entry {entry}, a command of 8 bytes")), "{why}");
    assert!(why.contains("that word again") && why.contains("start that build"), "{why}");
    member.stop().await;
    let member = start(&troupe, NodeId(1));
    assert_eq!(say(&member, "unwanted").await, b"2", "the mended build applies it, and goes on");
    member.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_that_fits_into_no_frame_is_refused_and_disturbs_nobody() {
    // Goal: found by a hostile reader: such a command was taken, came through no link, and kept those that held it from serving, also
    // after a restart. Method: the longest command that is taken, and one byte more, at the leader and at a follower.
    let troupe = Troupe::of(3);
    let start = |id| {
        let config = NodeConfig::new(ClusterId(7), id, troupe.founding.clone(), troupe.data_dir(id));
        let mut config = troupe.equipped(config, troupe.addresses[&id]);
        config.frame_bytes_max = 200_000;
        hustings_node::start::<Raft, _>(config, Options::default(), words()).expect("it starts").handle
    };
    let members: Vec<Member> = (1..=3).map(NodeId).map(start).collect();
    assert_eq!(say(&members[0], "first").await, b"1");
    let term = members[0].status().term;
    let bytes_max = 200_000 - (64 << 10);
    for member in &members {
        in_time(member.propose(vec![b'x'; bytes_max].into())).await.expect("it fits");
        let refused = in_time(member.propose(vec![b'x'; bytes_max + 1].into())).await.map(|applied| applied.lsn);
        assert_eq!(refused, Err(RequestError::TooLarge { bytes: bytes_max + 1, bytes_max }));
    }
    // Nor do many at once, which wait together at each member, each as long as one may be.
    let long = move |word: u8| Bytes::from(vec![word; bytes_max]);
    let proposals = (b'a'..=b'i').map(|word| {
        let member = members[usize::from(word) % 3].clone();
        tokio::spawn(async move { member.propose(long(word)).await.map(|applied| applied.lsn) })
    });
    for proposal in proposals.collect::<Vec<_>>() {
        in_time(proposal).await.expect("it ends").expect("it fits");
    }
    assert_eq!(say(&members[2], "first").await, b"2");
    assert_eq!(members[0].status().term, term, "nobody was deposed");
    for member in members {
        let status = member.clone();
        member.stop().await;
        assert_eq!(
            (status.status().role, status.status().leader),
            (Role::Follower, None),
            "who has stopped leads nobody"
        );
    }
}

fn start(troupe: &Troupe, id: NodeId) -> Member {
    let config = NodeConfig::new(ClusterId(7), id, troupe.founding.clone(), troupe.data_dir(id));
    let config = troupe.equipped(config, troupe.addresses[&id]);
    hustings_node::start::<Raft, _>(config, Options::default(), words()).expect("it starts").handle
}

async fn say(member: &Member, word: &'static str) -> Vec<u8> {
    in_time(member.propose(Bytes::from_static(word.as_bytes()))).await.expect("it is applied").response
}

/// The words that a member has applied, once they are as many as `wanted`.
async fn heard(member: &Member, wanted: &Words) -> Arc<Words> {
    let mut applied = member.applied_changes();
    loop {
        applied.borrow_and_update();
        let local = in_time(member.read_local()).await.expect("it is always served").view;
        if local.values().sum::<u64>() >= wanted.values().sum() {
            return local;
        }
        in_time(applied.changed()).await.expect("it runs");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn three_members_agree_on_what_a_closure_makes_of_the_log() {
    // Two surprises, both of snapshots, which hold the state and not the closure: one member fetches a snapshot from another, and one
    // starts again on its own.
    let mut troupe = Troupe::of(3);
    troupe.policy = Policy { entries_max: 20, ..Policy::default() };
    troupe.limits = Limits { trailing_entries: 0, ..Limits::default() };
    let mut members: BTreeMap<NodeId, Member> = (1..=3).map(NodeId).map(|id| (id, start(&troupe, id))).collect();
    assert_eq!(say(&members[&NodeId(1)], "first").await, b"1");
    let away = NodeId(3);
    members.remove(&away).expect("it runs").stop().await;
    for times in 1..=100 {
        let speaker = &members[&NodeId(1 + times % 2)];
        assert_eq!(say(speaker, "again").await, times.to_string().as_bytes(), "one answer, wherever it is asked");
    }

    // What it lacks is in no log any more.
    members.insert(away, start(&troupe, away));
    let mut wanted = Words::from([("first".into(), 1), ("again".into(), 100)]);
    assert_eq!(*heard(&members[&away], &wanted).await, wanted, "it has the snapshot of another");
    assert_eq!(say(&members[&away], "again").await, b"101", "and goes on by the closure that it was given");
    wanted.insert("again".into(), 101);

    let restarted = NodeId(2);
    members.remove(&restarted).expect("it runs").stop().await;
    members.insert(restarted, start(&troupe, restarted));
    assert_eq!(say(&members[&restarted], "again").await, b"102", "it has its own snapshot");
    wanted.insert("again".into(), 102);
    for member in members.values() {
        assert_eq!(*heard(member, &wanted).await, wanted);
        member.stop().await;
    }
}
