//! Stories of embedded nodes: real sockets, real files, real threads, in one process. Nothing sleeps: all wait for conditions.

use crate::support::{Counter, DAM, Troupe, free_addresses, in_time, propose, read, run, until, url_of};
use bytes::Bytes;
use hustings_core::replica::Policy;
use hustings_core::{
    Admin, ApplyVersion, Change, Limits, Member, MembershipChange, MembershipRefusal, NodeId, Refusal, Role,
};
use hustings_node::{NodeConfig, RequestError, StartError, discover};
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

type Answer<'a> = Pin<Box<dyn Future<Output = Result<hustings_node::Applied<u64>, RequestError>> + 'a>>;

#[tokio::test(flavor = "multi_thread")]
async fn proposals_through_a_follower_survive_the_leaders_stop_and_are_applied_once() {
    // Goal: at most once, none lost. Method: many clients of a follower propose; it forgets its leader again and again, and
    // sends what is unanswered again whenever it hears of one; then the leader stops. Afterwards every command was applied
    // exactly as often as it was acknowledged, wherever one looks.
    let mut troupe = Troupe::started(3);
    let leader = troupe.leader().await;
    let follower = troupe.follower().await;
    let (say_stopped, is_stopped) = tokio::sync::watch::channel(false);
    let clients: Vec<_> = (0..64)
        .map(|client| {
            let (handle, is_stopped) = (troupe.handle(follower).clone(), is_stopped.clone());
            tokio::spawn(async move {
                let (mut count, mut after) = (0, 0);
                while after < 3 {
                    assert_eq!(propose(&handle, &format!("{client}: {count}")).await, 1, "applied once");
                    count += 1;
                    after += u64::from(*is_stopped.borrow());
                }
                count
            })
        })
        .collect();
    let mut applied = troupe.handle(follower).applied_changes();
    in_time(applied.wait_for(|index| *index > 300)).await.expect("it runs");
    for _ in 0..20 {
        in_time(troupe.handle(follower).admin(Admin::ForgetLeader)).await.expect("it forgets");
        until(troupe.handle(follower), "it hears of a leader", |status| status.leader.is_some()).await;
    }
    troupe.stop(leader).await;
    say_stopped.send(true).expect("the clients go on until they hear so");
    let mut count = 0;
    for client in clients {
        count += in_time(client).await.expect("every command is acknowledged");
    }
    for handle in troupe.running.values() {
        let counter = read(handle).await;
        assert_eq!((counter.times.len() as u64, counter.total()), (count, count));
    }
    let successor = troupe.leader().await;
    assert_ne!(successor, leader);
}

#[tokio::test(flavor = "multi_thread")]
async fn who_is_woken_by_an_applied_entry_finds_it_in_the_status() {
    // Goal: an embedder that waits for a position misses none. Method: a thread looks at the index all the time, and at the
    // status each time that it has moved, while commands are applied.
    let troupe = Troupe::started(1);
    let handle = troupe.handle(troupe.leader().await);
    let (applied, watched) = (handle.applied_changes(), handle.clone());
    let watcher = std::thread::spawn(move || {
        let mut moved = 0;
        while moved < 2000 {
            let index = *applied.borrow();
            let shown = watched.status().applied.index;
            assert!(shown >= index, "entry {index} is told, and the status shows {shown}");
            moved = index;
        }
    });
    while !watcher.is_finished() {
        propose(handle, "one").await;
    }
    watcher.join().expect("it saw none too early");
}

#[tokio::test(flavor = "multi_thread")]
async fn who_has_an_answer_finds_it_in_the_status() {
    // Goal: what was answered is in the status that is asked for next, of a member that has much to do. Method: many propose all the
    // time, and somebody changes how a member is described and looks at once, as does whoever reads at a follower.
    let troupe = Troupe::started(3);
    // A leader describes members by their directories as it hears of them, and would do so meanwhile.
    troupe.know_each_other().await;
    let (leader, follower) = (troupe.leader().await, troupe.follower().await);
    let (handle, other) = (troupe.handle(leader), troupe.handle(follower).clone());
    propose(handle, "first").await;
    let crowd: Vec<_> = (0..64)
        .map(|_| {
            let handle = handle.clone();
            tokio::spawn(async move {
                loop {
                    // Whoever leads may change on a busy machine.
                    let Ok(applied) = handle.propose(Bytes::from_static(b"more")).await else { continue };
                    let shown = handle.status().applied;
                    assert!(shown >= applied.lsn, "{} is answered, and the status shows {shown}", applied.lsn);
                }
            })
        })
        .collect();
    let mut member = handle.status().membership.members[&leader].clone();
    for number in 0..200 {
        member.client_urls = vec![format!("http://client:{number}")];
        let change = MembershipChange::of([Change::Describe(leader, member.clone())]);
        let Ok(told) = in_time(handle.change_membership(change)).await else { continue };
        assert_eq!(told.members[&leader], member);
        assert_eq!(handle.status().membership.members[&leader], member, "change {number}");
        if in_time(other.read()).await.is_err() {
            continue;
        }
        assert_eq!(other.status().membership.members[&leader], member, "change {number}, where somebody has read");
    }
    for one in crowd {
        assert!(!one.is_finished(), "{:?}", one.await);
        one.abort();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_is_far_behind_fetches_a_snapshot() {
    // Goal: RA-7 over real links. Method: snapshots every 20 entries, none kept below; one node sleeps through 200 writes.
    let mut troupe = Troupe::of(3);
    troupe.policy = Policy { entries_max: 20, ..Policy::default() };
    troupe.limits = Limits { trailing_entries: 0, ..Limits::default() };
    troupe.start_all();
    let sleeper = troupe.follower().await;
    propose(troupe.handle(sleeper), "before").await;
    troupe.stop(sleeper).await;
    let leader = troupe.leader().await;
    for number in 0..200 {
        propose(troupe.handle(leader), &format!("command {number}")).await;
    }
    // A compacted entry can only be fetched with a snapshot.
    let last = troupe.handle(leader).status().last.index;
    troupe.start(sleeper).expect("it starts again");
    let mut applied = troupe.handle(sleeper).applied_changes();
    in_time(applied.wait_for(|index| *index >= last)).await.expect("it catches up");
    let local = in_time(troupe.handle(sleeper).read_local()).await.expect("always served").view;
    assert_eq!((local.of("before"), local.total()), (1, 201));
    let snapshots = std::fs::read_dir(troupe.data_dir(sleeper)).expect("its directory");
    let names: Vec<String> =
        snapshots.map(|e| e.expect("an entry").file_name().to_string_lossy().into_owned()).collect();
    assert!(names.iter().any(|name| name.contains("snap")), "it holds a snapshot: {names:?}");
    // Of ten snapshots the last stays, the one before it for a peer that fetches it, and one that no durable record names yet.
    let leader = troupe.leader().await;
    troupe.stop(leader).await;
    let files = std::fs::read_dir(troupe.data_dir(leader)).expect("its directory");
    let is_snapshot = |name: &str| name.ends_with(".snap");
    let count =
        files.filter(|file| is_snapshot(&file.as_ref().expect("an entry").file_name().to_string_lossy())).count();
    assert!((1..=3).contains(&count), "{count} snapshots");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_queue_is_said_at_once_and_loses_nothing_that_was_taken() {
    // Goal: bounded queues (ADR 33). Method: the loop is held inside `apply`; proposals pile up until one is refused.
    let troupe = Troupe::started(1);
    let handle = troupe.handle(troupe.leader().await).clone();
    let held = tokio::spawn({
        let handle = handle.clone();
        async move { propose(&handle, "hold").await }
    });
    in_time(DAM.reached.notified()).await;
    let mut accepted: Vec<Answer<'_>> = Vec::new();
    let refused = loop {
        assert!(accepted.len() < 1_000_000, "the queue has no end");
        let mut answer: Answer<'_> = Box::pin(handle.propose(Bytes::from_static(b"x")));
        match answer.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Pending => accepted.push(answer),
            Poll::Ready(ended) => break ended,
        }
    };
    assert_eq!(refused.map(|applied| applied.lsn), Err(RequestError::QueueFull));
    DAM.open();
    // The queue was full; the log may be so as well, where many entries wait to be applied. A request with that answer was not counted.
    let mut done = 0;
    for answer in accepted {
        match in_time(answer).await {
            Ok(_) => done += 1,
            Err(error) => {
                assert_eq!(error, RequestError::QueueFull, "an answer is an outcome, or says that nothing was done")
            }
        }
    }
    assert_eq!(in_time(held).await.expect("the first one too"), 1);
    let counter = read(&handle).await;
    assert_eq!((counter.of("x"), done > 0), (done, true), "those that were refused were definitely not done");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stopped_nodes_directory_and_port_can_be_taken_at_once() {
    // Goal: `stop` means stopped: threads gone, lock released, port free. Method: again and again, without a pause.
    let mut troupe = Troupe::started(1);
    let me = NodeId(1);
    for life in 1..=20 {
        troupe.leader().await;
        assert_eq!(propose(troupe.handle(me), "again").await, life, "nothing is forgotten");
        let handle = troupe.handle(me).clone();
        troupe.stop(me).await;
        let late = in_time(handle.propose(Bytes::from_static(b"late"))).await;
        assert_eq!(late.map(|applied| applied.lsn), Err(RequestError::Stopped));
        troupe.start(me).unwrap_or_else(|error| panic!("life {life}: {error}"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn two_nodes_do_not_share_a_directory() {
    let troupe = Troupe::started(1);
    let elsewhere = free_addresses(1)[0];
    let second = run(troupe.equipped(troupe.config_of(NodeId(1)), elsewhere));
    let Err(StartError::Storage(error)) = second.map(|node| node.me) else { panic!("the second was to be refused") };
    let error = error.to_string();
    assert!(error.contains("is in use by another process"), "it names the remedy: {error}");
    assert_eq!(propose(troupe.handle(NodeId(1)), "x").await, 1, "the first is not disturbed");
}

#[tokio::test(flavor = "multi_thread")]
async fn two_nodes_do_not_share_a_port() {
    let troupe = Troupe::started(1);
    let mut config = troupe.config_of(NodeId(1));
    config.data_dir = troupe.directory.path().join("elsewhere");
    let second = run(config).map(|node| node.me);
    assert!(matches!(second, Err(StartError::Listen { .. })), "{second:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_joiner_learns_who_it_is_and_becomes_a_voter_once_it_has_caught_up() {
    // Goal: MB-06, identity by assignment. Method: a learner that wants a vote is added by its peer URL; it asks a member
    // who it is, starts with an empty directory, and is promoted without anybody asking again.
    let mut troupe = Troupe::of(3);
    troupe.policy = Policy { entries_max: 10, ..Policy::default() };
    troupe.limits = Limits { trailing_entries: 0, ..Limits::default() };
    troupe.start_all();
    let follower = troupe.follower().await;
    for number in 0..50 {
        propose(troupe.handle(follower), &format!("command {number}")).await;
    }
    let address = free_addresses(1)[0];
    let member = Member { peer_urls: vec![url_of(address)], wants_vote: true, ..Member::default() };
    let urls: Vec<String> = troupe.addresses.values().map(|address| url_of(*address)).collect();
    let itself = Member { name: "m4".into(), peer_urls: vec![url_of(address)], ..Member::default() };
    let early = in_time(discover(&urls, &itself, "raft", ApplyVersion::FIRST, None, None))
        .await
        .expect_err("nobody knows it yet");
    assert_eq!(early.tried.len(), 3, "each member was asked: {early}");

    let id = NodeId(troupe.handle(follower).status().membership.next_id);
    let change = MembershipChange::of([Change::AddLearner(id), Change::Describe(id, member)]);
    let membership = in_time(troupe.handle(follower).change_membership(change)).await.expect("it is added");
    assert!(membership.is_learner(id));
    // The other members learn of it when they apply the change; the one that answered the change has.
    let known = url_of(troupe.addresses[&follower]);
    let welcome =
        in_time(discover(&[known], &itself, "raft", ApplyVersion::FIRST, None, None)).await.expect("now it is known");
    assert_eq!((welcome.you, &welcome.founding), (id, &troupe.founding));

    let data_dir = troupe.data_dir(id);
    let config = NodeConfig::joining(welcome.cluster_id, id, itself, welcome.founding, welcome.membership, data_dir);
    let joiner = run(troupe.equipped(config, address)).expect("it starts");
    let voter = until(&joiner.handle, "it is a voter", |status| status.membership.voters.contains(&id)).await;
    assert_eq!(voter.membership.voters.len(), 4);
    assert_eq!(read(&joiner.handle).await.total(), 50, "what was written before it came came with a snapshot");
    assert_eq!(propose(&joiner.handle, "mine").await, 1);
    joiner.handle.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_that_cannot_be_made_is_refused_with_its_rule_wherever_it_is_asked() {
    let troupe = Troupe::started(3);
    let leader = troupe.leader().await;
    let follower = troupe.follower().await;
    // A leader changes nothing before its first own entry is committed.
    propose(troupe.handle(leader), "x").await;
    let taken = Member { peer_urls: vec![url_of(troupe.addresses[&NodeId(2)])], ..Member::default() };
    let everyone = [1, 2, 3].map(|id| Change::Remove(NodeId(id)));
    let rows = [
        (MembershipChange::of([Change::Remove(NodeId(9))]), MembershipRefusal::NotFound),
        (MembershipChange::of(everyone), MembershipRefusal::NoVoters),
        (MembershipChange::leave(), MembershipRefusal::NotJoint),
        (
            MembershipChange::of([Change::AddLearner(NodeId(4)), Change::Describe(NodeId(4), taken)]),
            MembershipRefusal::Taken,
        ),
    ];
    for (change, rule) in rows {
        for asked in [leader, follower] {
            let refused = in_time(troupe.handle(asked).change_membership(change.clone())).await;
            match refused {
                Err(RequestError::Refused(Refusal::Membership(said, _))) => assert_eq!(said, rule, "{change:?}"),
                other => panic!("{change:?} through {asked}: {other:?}"),
            }
        }
    }
    assert_eq!(troupe.handle(leader).status().membership.voters.len(), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn leadership_is_handed_over_on_request_and_every_listener_hears_why() {
    let troupe = Troupe::started(3);
    let leader = troupe.leader().await;
    let successor = troupe.follower().await;
    troupe.know_each_other().await;
    let mut happenings = troupe.handle(successor).happenings();
    propose(troupe.handle(leader), "x").await;
    in_time(troupe.handle(leader).admin(Admin::Transfer(successor))).await.expect("it is handed over");
    until(troupe.handle(successor), "it leads", |status| status.role == Role::Leader).await;
    let mut reasons = Vec::new();
    while let Ok(happening) = happenings.try_recv() {
        reasons.push(happening.transition.because.to_string());
    }
    assert!(reasons.contains(&format!("{leader} hands over")), "{reasons:?}");
    let stranger = in_time(troupe.handle(successor).admin(Admin::Transfer(NodeId(9)))).await;
    assert_eq!(stranger, Err(RequestError::Refused(Refusal::BadTransferee(NodeId(9)))));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_read_anywhere_sees_what_was_acknowledged_anywhere() {
    // Goal: RI-15. Method: write through one node, read through the next at once, a hundred times round.
    let troupe = Troupe::started(3);
    troupe.leader().await;
    for round in 1..=100_u64 {
        let (writer, reader) = (NodeId(round % 3 + 1), NodeId((round + 1) % 3 + 1));
        propose(troupe.handle(writer), "x").await;
        let seen: Counter = read(troupe.handle(reader)).await;
        assert_eq!(seen.of("x"), round, "{reader} after {writer}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn silent_strangers_keep_no_peer_out() {
    // Goal: a crowd that says nothing costs the oldest of itself and nobody else. Method: 200 silent connections to a node's
    // peer port, held open; then its peers start, which reach it from the same address.
    let mut troupe = Troupe::of(3);
    let ids: Vec<NodeId> = troupe.founding.everyone().collect();
    let besieged = ids[2];
    troupe.start(besieged).expect("it starts");
    let address = troupe.addresses[&besieged];
    let mut crowd = Vec::new();
    for _ in 0..200 {
        crowd.push(tokio::net::TcpStream::connect(address).await.expect("the backlog is longer"));
    }
    // The oldest is dropped when the crowd has grown, and not when it has been silent for too long.
    let said = in_time(tokio::io::AsyncReadExt::read(&mut crowd[0], &mut [0; 1])).await;
    assert!(matches!(said, Ok(0) | Err(_)), "{said:?}");
    for id in &ids[..2] {
        troupe.start(*id).expect("it starts");
    }
    until(troupe.handle(besieged), "it follows somebody or leads", |status| status.leader.is_some()).await;
    // Nobody waited for the crowd to go: its youngest may still say who it is.
    let youngest = crowd.last().expect("there are 200").try_read(&mut [0; 1]);
    assert_eq!(youngest.expect_err("nothing was said").kind(), std::io::ErrorKind::WouldBlock);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_that_computed_something_else_is_named() {
    // Goal: no silent divergence. Method: states are compared whenever the loop looks; first all are alike, then one member
    // counts a command twice.
    let troupe = Troupe::started(3);
    let leader = troupe.leader().await;
    for number in 0..3 {
        propose(troupe.handle(leader), &format!("command {number}")).await;
    }
    let handle = troupe.handle(leader);
    let compared = until(handle, "states are compared", |status| status.compared_at >= 3).await;
    assert!(compared.differing.is_empty(), "{compared:?}");
    propose(handle, "defect").await;
    let found = until(handle, "somebody differs", |status| !status.differing.is_empty()).await.differing;
    let mut defective = Vec::new();
    for (id, handle) in &troupe.running {
        let local = in_time(handle.read_local()).await.expect("always served").view;
        defective.extend((local.of("defect") == 2).then_some(*id));
    }
    assert_eq!(found.into_iter().collect::<Vec<_>>(), defective);
    assert_eq!(defective.len(), 1);
}
