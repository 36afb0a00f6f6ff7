//! Goal: what clients saw of a cluster that was broken on purpose has an explanation, and nothing acknowledged is lost.
//! Method: the torturer, for half a minute and with every fault that needs no root, on real processes behind its proxies; once beside a
//! hundred thousand keys, and once with a rolling upgrade in the middle, from this build to itself.
//! The disk's faults need root: `xtask/torture-disks.sh`. Longer runs: `docs/torture.md`.

mod support;

use hustings_recorder::Recording;
use hustings_testbed::wait_for;
use hustings_torture::plan::plan;
use hustings_torture::rig::Rig;
use hustings_torture::script::Act;
use hustings_torture::{Kind, Logs, Torture, run};
use rustix::process::Signal;
use std::time::Duration;

const SECONDS: u64 = 32;

/// What a run has beside its faults.
#[derive(PartialEq)]
enum Beside {
    Nothing,
    /// So many keys stand in the store before anything begins.
    Ballast(u64),
    /// One member after the other is killed and starts anew in the middle of the faults, as in a rolling upgrade.
    Upgrade,
}

async fn nothing_is_lost(protocol: &str, seed: u64, beside: Beside) {
    let nodes = 3;
    let mut script = plan(seed, nodes, SECONDS, Kind::WITHOUT_ROOT).expect("every kind fits");
    if beside == Beside::Upgrade {
        script.upgrade(nodes as u64, Duration::from_secs(SECONDS));
    }
    let torture = Torture {
        binary: env!("CARGO_BIN_EXE_hustings").into(),
        protocol: protocol.into(),
        nodes,
        length: Duration::from_secs(SECONDS),
        seed,
        clients: 6,
        keys: 8,
        script,
        ballast: if let Beside::Ballast(keys) = beside { keys } else { 0 },
        newer: (beside == Beside::Upgrade).then(|| env!("CARGO_BIN_EXE_hustings").into()),
        logs: Logs::Remove,
    };
    let mut story = Vec::new();
    let report = run(&torture, &mut |line| story.push(line.to_string())).await;
    let story = story.join("\n");
    let report = report.unwrap_or_else(|error| panic!("the run could not be made: {error:#}\n{story}"));
    println!("{protocol}, {nodes} nodes, seed {seed}:\n{report}");
    assert!(report.violations.is_empty(), "{story}\n{report}");
    assert!(report.replayed.0 >= nodes, "hardly a life was played again: {report}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn nothing_is_lost_when_processes_and_links_of_a_raft_cluster_break() {
    nothing_is_lost("raft", 3, Beside::Ballast(100_000)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn nothing_is_lost_when_processes_and_links_of_a_gmt2000_cluster_break() {
    nothing_is_lost("gmt2000", 8, Beside::Upgrade).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn nothing_is_lost_when_processes_and_links_of_a_blazingmq_cluster_break() {
    nothing_is_lost("blazingmq", 5, Beside::Nothing).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn nothing_is_lost_when_processes_and_links_of_a_zab_cluster_break() {
    nothing_is_lost("zab", 4, Beside::Nothing).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn nothing_is_lost_when_processes_and_links_of_a_paxos_cluster_break() {
    nothing_is_lost("paxos", 2, Beside::Nothing).await;
}

/// A cluster of three whose second member has been replaced, and serves.
async fn replaced() -> Rig {
    let mut rig = Rig::start(support::program(), 3, 1, false).await.expect("it starts");
    rig.perform(&Act::parse("replace n2").expect("an act")).await.expect("it is begun");
    rig.make_whole().await.expect("it is brought to an end");
    let joined = wait_for("n2 to have joined", async || rig.has_joined(1).then_some(()));
    joined.await.expect("it serves");
    rig
}

/// Goal: a member that was replaced once answers for each later end of its process; each was forgiven. Method: it is crashed and started
/// again, and then somebody else ends its process.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_replaced_member_that_serves_is_excused_no_more() {
    let mut rig = replaced().await;
    for act in ["crash n2", "restart n2"] {
        rig.perform(&Act::parse(act).expect("an act")).await.expect("it is done");
    }
    rig.cluster.wait_until_serving(1).await.expect("it serves");
    rig.cluster.nodes[1].signal(Signal::KILL);
    let told = wait_for("its end to be noticed", async || {
        rig.note_ends().expect("processes are looked at");
        (rig.cluster.nodes[1].pid().is_none()).then(|| (rig.unexpected_ends.clone(), rig.expected_ends))
    });
    let (unexpected, expected) = told.await.expect("it ends");
    assert!(
        unexpected.len() == 1 && unexpected[0].contains("n2 ended by itself"),
        "{unexpected:?}, {expected} excused"
    );
}

/// Goal: what a member noted before it was replaced is judged with all else; it went with the member's directory. Method: a member is
/// replaced.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_lives_of_a_replaced_member_stay() {
    let rig = replaced().await;
    let [kept] = &rig.kept[..] else { panic!("one member was replaced: {:?}", rig.kept) };
    let own = Recording::open(&rig.cluster.nodes[1].data_dir).expect("it records");
    let before = Recording::open(kept).expect("it recorded");
    assert_eq!((own.len(), before.len()), (1, 1));
    assert_eq!((own[0].life.name.as_str(), before[0].life.name.as_str()), ("n2", "n2"));
    assert_ne!(own[0].life.member_id, before[0].life.member_id);
}
