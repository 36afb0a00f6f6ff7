//! A member that comes back with less of its log than it has acknowledged, under each protocol.
//!
//! ```text
//!    n1 ─── n2 ─── n3      n1 leads, n2 acknowledges, n3 hears only n2: it knows how much n2 holds, and holds nothing itself
//! ```

use crate::support::{Counter, Troupe, free_addresses, in_time, propose, read, until, url_of};
use hustings_blazingmq::BlazingMq;
use hustings_core::{Membership, NodeId, Priority, Protocol};
use hustings_gmt2000::Gmt2000;
use hustings_node::{Handle, NodeConfig, NodeStatus, StartError};
use hustings_paxos::Paxos;
use hustings_raft::Raft;
use hustings_wal::WalError;
use hustings_zab::Zab;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;

const N1: NodeId = NodeId(1);
const N2: NodeId = NodeId(2);
const N3: NodeId = NodeId(3);

/// Time in which two members that cannot serve elect again and again.
const SOME_ELECTIONS: Duration = Duration::from_secs(2);

fn copy(from: &Path, to: &Path) {
    let _ = std::fs::remove_dir_all(to);
    std::fs::create_dir_all(to).expect("a directory");
    for entry in std::fs::read_dir(from).expect("it is there").flatten() {
        std::fs::copy(entry.path(), to.join(entry.file_name())).expect("there is room");
    }
}

/// Three founders in a row: the outer two cannot reach each other. They call n2; where they listen stands in no log, from which
/// either could learn it.
struct Chain {
    troupe: Troupe,
    fatal: (mpsc::UnboundedSender<String>, mpsc::UnboundedReceiver<String>),
}

impl Chain {
    fn new() -> Chain {
        Chain { troupe: Troupe::of(3), fatal: mpsc::unbounded_channel() }
    }

    fn config(&self, id: NodeId, priority: Priority) -> NodeConfig {
        let mut founding: Membership = self.troupe.founding.clone();
        let hidden: &[NodeId] = if id == N2 { &[] } else { &[N1, N3] };
        for outer in hidden {
            let nowhere = vec![url_of(free_addresses(1)[0])];
            founding.members.get_mut(outer).expect("a founder").peer_urls = nowhere;
        }
        let config = NodeConfig::new(hustings_core::ClusterId(7), id, founding, self.troupe.data_dir(id));
        let mut config = self.troupe.equipped(config, self.troupe.addresses[&id]);
        let fatal = self.fatal.0.clone();
        config.on_fatal = Arc::new(move |why| drop(fatal.send(why.into())));
        config.priority = priority;
        config
    }

    fn start<P: Protocol>(&self, id: NodeId, priority: Priority) -> Result<Handle<Counter>, StartError> {
        let config = self.config(id, priority);
        Ok(hustings_node::start::<P, Counter>(config, P::Options::default(), Counter::default())?.handle)
    }
}

async fn story<P: Protocol>() {
    let mut chain = Chain::new();
    let start = |chain: &Chain, id, priority| chain.start::<P>(id, priority).expect("it starts");
    let n1 = start(&chain, N1, Priority::Normal);
    let n3 = start(&chain, N3, Priority::Never);
    let n2 = start(&chain, N2, Priority::Never);
    until(&n2, "n1 leads", |status| status.leader == Some(N1)).await;
    for number in 0..5 {
        propose(&n1, &format!("early {number}")).await;
    }
    n2.stop().await;
    let (directory, old) = (chain.troupe.data_dir(N2), chain.troupe.directory.path().join("old"));
    copy(&directory, &old);
    let n2 = start(&chain, N2, Priority::Never);
    for number in 0..15 {
        propose(&n1, &format!("late {number}")).await;
    }
    for stopped in [n2, n3, n1] {
        stopped.stop().await;
    }
    let newest = chain.troupe.directory.path().join("newest");
    copy(&directory, &newest);
    copy(&old, &directory);

    let n3 = start(&chain, N3, Priority::Normal);
    let n2 = start(&chain, N2, Priority::Normal);
    if let Ok(readable) = in_time(n2.read()).await {
        panic!("{} of 20 acknowledged commands are left", readable.view.total());
    }
    let why = in_time(chain.fatal.1.recv()).await.expect("it ended for a reason");
    assert!(why.contains("the data directory of m2 is older than what m2 has acknowledged"), "{why}");
    assert!(why.contains("batches of its log were durable in its start 2, and start 2 has"), "{why}");
    assert!(why.contains("remove the member and add it again"), "{why}");
    assert_eq!(n3.status().leader, None, "alone it decides nothing");
    drop(n2);
    let refused = loop {
        // The threads of the one that ended let go of directory and port in their own time.
        match chain.start::<P>(N2, Priority::Normal) {
            Err(StartError::Storage(WalError::InUse { .. }) | StartError::Listen { .. }) => {
                tokio::task::yield_now().await
            }
            other => break other.map(|_| ()).expect_err("its own directory says so now"),
        }
    };
    assert!(matches!(&refused, StartError::Storage(WalError::RolledBack { .. })), "{refused}");

    copy(&newest, &directory);
    let n2 = start(&chain, N2, Priority::Normal);
    assert_eq!(read(&n2).await.total(), 20, "what was acknowledged is there");
    for stopped in [n2, n3] {
        stopped.stop().await;
    }
    assert!(chain.fatal.1.try_recv().is_err(), "nobody else was convicted");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_older_directory_is_refused_by_whoever_remembers_under_raft() {
    story::<Raft>().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_older_directory_is_refused_by_whoever_remembers_under_gmt2000() {
    story::<Gmt2000>().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_older_directory_is_refused_by_whoever_remembers_under_blazingmq() {
    story::<BlazingMq>().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_older_directory_is_refused_by_whoever_remembers_under_zab() {
    story::<Zab>().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_older_directory_is_refused_by_whoever_remembers_under_paxos() {
    story::<Paxos>().await;
}

/// Starts a member, equipped further. While it was away, a call of its peers may have taken its port for a moment.
async fn start_patiently<P: Protocol>(
    troupe: &Troupe,
    id: NodeId,
    priority: Priority,
    equip: impl Fn(&mut NodeConfig),
) -> Handle<Counter> {
    loop {
        let mut config = troupe.config_of(id);
        config.priority = priority;
        equip(&mut config);
        match hustings_node::start::<P, Counter>(config, P::Options::default(), Counter::default()) {
            Err(StartError::Listen { .. }) => tokio::task::yield_now().await,
            node => break node.expect("it starts").handle,
        }
    }
}

/// n2 leads; n3 acknowledges with it while n1 is away; then an older copy of n3's directory is put back, and nobody runs.
async fn acknowledge_and_roll_back(troupe: &Troupe, start: &impl AsyncFn(NodeId, Priority) -> Handle<Counter>) {
    let n1 = start(N1, Priority::Never).await;
    let n2 = start(N2, Priority::Normal).await;
    let n3 = start(N3, Priority::Never).await;
    until(&n2, "n2 leads", |status| status.leader == Some(N2)).await;
    for number in 0..5 {
        propose(&n2, &format!("early {number}")).await;
    }
    n3.stop().await;
    let (directory, old) = (troupe.data_dir(N3), troupe.directory.path().join("old"));
    copy(&directory, &old);
    let n3 = start(N3, Priority::Never).await;
    // It has acknowledged something once it is caught up: alone with n2 it is a quorum.
    n1.stop().await;
    for number in 0..15 {
        propose(&n2, &format!("late {number}")).await;
    }
    for stopped in [n3, n2] {
        stopped.stop().await;
    }
    copy(&old, &directory);
}

/// Goal: what a rolled-back member has written since is no substitute for what it had acknowledged. Method: n3 acknowledges with n2 while
/// n1 is away; an older copy of its directory is put back, and with n1, which knows nothing, it writes more than was lost, over several
/// starts, before n2 returns.
async fn grown<P: Protocol>(starts_since: u64) {
    let troupe = Troupe::of(3);
    let fatal = mpsc::unbounded_channel();
    let start = async |id, priority| {
        let told = |config: &mut NodeConfig| {
            let sender = fatal.0.clone();
            config.on_fatal = Arc::new(move |why| drop(sender.send((id, String::from(why)))));
        };
        start_patiently::<P>(&troupe, id, priority, told).await
    };
    let mut fatal_ends = fatal.1;
    acknowledge_and_roll_back(&troupe, &start).await;
    let n1 = start(N1, Priority::Normal).await;
    let mut n3 = start(N3, Priority::Never).await;
    for again in 0..starts_since {
        until(&n1, "n1 leads", |status| status.leader == Some(N1)).await;
        for number in 0..40 {
            propose(&n1, &format!("other {again} {number}")).await;
        }
        if again + 1 < starts_since {
            n3.stop().await;
            n3 = start(N3, Priority::Never).await;
        }
    }
    let n2 = start(N2, Priority::Never).await;
    let (who, why) = in_time(fatal_ends.recv()).await.expect("one ends for a reason");
    assert_eq!(who, N3, "{why}");
    assert!(why.contains("the data directory of m3 is older than what m3 has acknowledged"), "{why}");
    assert!(why.contains("of another history since"), "{why}");
    for stopped in [n1, n2] {
        stopped.stop().await;
    }
    // It may have been told twice: as the one that calls, and as the one that is called.
    let others = std::iter::from_fn(|| fatal_ends.try_recv().ok()).find(|(who, _)| *who != N3);
    assert_eq!(others, None, "nobody else was convicted");
    drop(n3);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rolled_back_member_that_has_written_more_since_is_refused_under_every_protocol() {
    grown::<Raft>(1).await;
    grown::<Gmt2000>(1).await;
    grown::<BlazingMq>(1).await;
    grown::<Zab>(1).await;
    grown::<Paxos>(1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rolled_back_member_is_refused_also_after_another_start() {
    grown::<Raft>(2).await;
    grown::<Paxos>(2).await;
}

/// Goal: of two histories none is served by a quorum, and somebody says that there are two. Method: n2 and n3 acknowledge while n1 is away; an older
/// copy of n3's directory is put back, and with n1 it writes other entries in their place; n3 goes for good, and n2, which knows what was
/// acknowledged first, meets n1.
async fn two_histories<P: Protocol>() {
    let troupe = Troupe::of(3);
    let start = async |id, priority| start_patiently::<P>(&troupe, id, priority, |_| {}).await;
    acknowledge_and_roll_back(&troupe, &start).await;
    let mut n1 = start(N1, Priority::Normal).await;
    let n3 = start(N3, Priority::Never).await;
    // The copy has forgotten a vote as well: its first election is of the term that n2 led. Of entries of one term nobody could tell the
    // difference by their places.
    for again in 0..2 {
        until(&n1, "n1 leads", |status| status.leader == Some(N1)).await;
        if again == 0 {
            n1.stop().await;
            n1 = start(N1, Priority::Normal).await;
        }
    }
    for number in 0..40 {
        propose(&n1, &format!("other {number}")).await;
    }
    for stopped in [n3, n1] {
        stopped.stop().await;
    }

    let both = [start(N1, Priority::Normal).await, start(N2, Priority::Normal).await];
    let says_so = |status: &NodeStatus| status.contradiction.is_some();
    let served = async |handle: &Handle<Counter>| loop {
        if let Ok(readable) = handle.read().await {
            break readable.view.total();
        }
    };
    let by = tokio::select! {
        status = until(&both[0], "it says so", says_so) => status.contradiction,
        status = until(&both[1], "it says so", says_so) => status.contradiction,
        total = served(&both[0]) => panic!("{total} commands are read at m1"),
        total = served(&both[1]) => panic!("{total} commands are read at m2"),
    };
    assert!(by.is_some_and(|found| [N1, N2].contains(&found.by)), "{by:?}");
    let asked = tokio::time::timeout(SOME_ELECTIONS, async {
        tokio::select! {
            total = served(&both[0]) => total,
            total = served(&both[1]) => total,
        }
    });
    assert!(asked.await.is_err(), "however often they elect");
    for stopped in both {
        stopped.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn of_two_histories_none_is_served_under_raft() {
    two_histories::<Raft>().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn of_two_histories_none_is_served_under_gmt2000() {
    two_histories::<Gmt2000>().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn of_two_histories_none_is_served_under_blazingmq() {
    two_histories::<BlazingMq>().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn of_two_histories_none_is_served_under_zab() {
    two_histories::<Zab>().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn of_two_histories_none_is_served_under_paxos() {
    two_histories::<Paxos>().await;
}
