//! Goal: an operator who asks why leadership moved is told what was done. Method: real processes behind proxies, to which things are
//! done one after the other; after each the recordings of all members are asked, and the answer is compared with what was done. At
//! the end all lives are played again.

mod support;

mod why {
    pub mod scene;
}

use hustings_api::etcdserverpb::PutRequest;
use hustings_recorder::{Mark, Note, NoteKind, Recording};
use hustings_testbed::{Cluster, Program, wait_for};
use serde_json::Value;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use support::wall_clock::WallClock;
use support::{HUSTINGS, program, run};
use why::scene::{STAGE, Scene, sentence};

// Every protocol sees a kill, a pause and a cut; each of the others is staged under two of them at least.

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn why_a_raft_leader_was_replaced_is_told() {
    let mut scene = Scene::begin("raft").await;
    scene.is_killed().await;
    scene.is_paused().await;
    scene.is_cut_off().await;
    scene.is_muted().await;
    scene.is_stopped().await;
    scene.hands_over_to_one_that_stands_still().await;
    scene.is_paused_and_killed().await;
    scene.is_killed_while_another_is_dead().await;
    scene.loses_the_others().await;
    scene.are_played_again();
    scene.are_played_as_a_script();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn why_a_gmt2000_leader_was_replaced_is_told() {
    let mut scene = Scene::begin("gmt2000").await;
    scene.is_killed().await;
    scene.is_paused().await;
    scene.is_cut_off().await;
    scene.is_stopped().await;
    scene.is_muted_and_killed().await;
    scene.loses_the_others().await;
    scene.is_removed_and_killed().await;
    scene.are_played_again();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn why_a_blazingmq_leader_was_replaced_is_told() {
    let mut scene = Scene::begin("blazingmq").await;
    scene.is_killed().await;
    scene.is_paused().await;
    scene.is_cut_off().await;
    scene.is_muted().await;
    scene.hands_over_to_one_that_stands_still().await;
    scene.loses_the_others().await;
    scene.are_played_again();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn why_a_zab_leader_was_replaced_is_told() {
    let mut scene = Scene::begin("zab").await;
    scene.is_killed().await;
    scene.is_paused().await;
    scene.is_cut_off().await;
    scene.is_muted_and_killed().await;
    scene.is_paused_and_killed().await;
    scene.is_killed_while_another_is_dead().await;
    scene.loses_the_others().await;
    scene.are_played_again();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn why_a_paxos_leader_was_replaced_is_told() {
    let mut scene = Scene::begin("paxos").await;
    scene.is_killed().await;
    scene.is_paused().await;
    scene.is_cut_off().await;
    scene.is_stopped().await;
    scene.hands_over().await;
    scene.loses_the_others().await;
    scene.is_muted_and_killed().await;
    scene.is_removed_and_killed().await;
    scene.are_played_again();
}

/// Goal: what operators do on purpose is told as that. Method: a member that is preferred comes; then every process is started as
/// another build, which is the same but for the number in it; then the leader is removed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_preferred_member_an_upgrade_and_a_removal_are_told() {
    let mut scene = Scene::begin("raft").await;
    let before = scene.rig.leader().await;
    let preferred = (before + 1) % 3;
    scene.rig.cluster.kill(preferred);
    scene.rig.cluster.start_node_with(preferred, &["--priority", "preferred"]).expect("it starts");
    scene.is_succeeded(before).await;
    let told = scene.is_told(before, "preferred").await;
    assert!(sentence(&told).contains(&scene.name(preferred)), "{told}");

    let newer = scene.rig.cluster.directory().join("newer");
    another_build(&newer);
    scene.rig.cluster.use_program(Program::hustings(&newer).with(&["--protocol", "raft"]));
    let before = scene.rig.leader().await;
    assert_eq!(before, preferred);
    scene.rig.cluster.terminate(before).expect("it is told to stop");
    scene.is_succeeded(before).await;
    scene.is_whole().await;
    let told = scene.is_told(before, "upgraded").await;
    let ours = concat!("hustings ", env!("CARGO_PKG_VERSION"));
    assert!(sentence(&told).contains(&format!("{} came after {ours}", other_build())), "{told}");

    scene.is_removed_and_killed().await;
}

/// Name of the other build: as long as this one's, and another one.
fn other_build() -> String {
    concat!("hustings ", env!("CARGO_PKG_VERSION")).replace(|character: char| character.is_ascii_digit(), "9")
}

/// Writes a copy of this build with another number.
fn another_build(path: &Path) {
    let ours = concat!("hustings ", env!("CARGO_PKG_VERSION")).as_bytes();
    let mut program = std::fs::read(HUSTINGS).expect("the binary under test");
    let mut places: Vec<usize> = Vec::new();
    for place in 0..program.len() - ours.len() {
        if program[place..].starts_with(ours) {
            places.push(place);
        }
    }
    assert!(!places.is_empty(), "the build's name is in it");
    let other = other_build();
    places.iter().for_each(|place| program[*place..place + ours.len()].copy_from_slice(other.as_bytes()));
    std::fs::write(path, program).expect("there is room");
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).expect("it is ours");
}

/// Goal: a disk that does not answer is told. Method: each sync of the leader takes five seconds longer, and somebody writes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_whose_disk_does_not_answer_gives_way_and_says_so() {
    let mut scene = Scene::begin("gmt2000").await;
    let before = scene.rig.leader().await;
    scene.does_to(before, "disk leader slow 5s").await;
    scene.is_written_to(before);
    scene.is_succeeded(before).await;
    scene.does_to(before, "disk leader recover").await;
    scene.is_whole().await;
    let told = scene.is_told(before, "disk-stalled").await;
    assert!(sentence(&told).contains("its disk had not answered for"), "{told}");
    scene.are_played_again();
}

/// Processes that do nothing but run, on one processor; killed when dropped.
struct Busy(Vec<std::process::Child>);

impl Busy {
    fn on_processor(processor: &str) -> Busy {
        let mut command = Command::new("taskset");
        command.args(["-c", processor, "sh", "-c", "while :; do :; done"]);
        Busy((0..3).map(|_| hustings_testbed::spawn(&mut command).expect("util-linux is there")).collect())
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        for process in &mut self.0 {
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

/// Goal: a leader that gets no processor is told apart from one that stands still. Method: its threads may run on one processor, when
/// nobody else wants it, and others always want it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_that_gets_no_processor_is_told() {
    let mut scene = Scene::begin("paxos").await;
    let before = scene.rig.leader().await;
    let pid = scene.rig.cluster.nodes[before].pid().expect("it runs").to_string();
    run(Command::new("taskset").args(["-a", "-c", "-p", "0", &pid])).ok();
    run(Command::new("chrt").args(["--idle", "-a", "-p", "0", &pid])).ok();
    let busy = Busy::on_processor("0");
    scene.is_succeeded(before).await;
    drop(busy);
    let told = scene.is_told(before, "starved").await;
    assert!(sentence(&told).contains("got no processor for"), "{told}");
}

/// Goal: a wall clock that is set moves no leader and is blamed for nothing. Method: real processes whose wall clock is set by an hour,
/// forward and back; after each the leader is killed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wall_clock_that_is_set_moves_nobody_and_is_not_blamed() {
    let clock = WallClock::begin();
    let mut scene = Scene::begin_with(Program::hustings(clock.program()), "raft").await;
    for (times, seconds) in [(1, 3_600i64), (2, -3_600)] {
        let (leader, term) = (scene.rig.leader().await, scene.term());
        clock.set(seconds);
        let noted = wait_for("all members to note that their wall clocks were set", async || {
            let noted = |node: &hustings_testbed::Node| {
                let lives = Recording::open(&node.data_dir).ok()?;
                let marks = lives.last()?.notes.iter();
                let is_step = |note: &&Note| {
                    let step = i128::from(seconds) * 1_000_000 * times;
                    matches!(note.kind, NoteKind::Mark(Mark::WallClock { micros, .. }) if (i128::from(micros) - step).abs() < 1_000_000)
                };
                marks.rev().find(is_step).map(drop)
            };
            scene.rig.cluster.nodes.iter().map(noted).collect::<Option<Vec<()>>>()
        });
        noted.await.expect("they note it");
        assert_eq!((scene.rig.leader().await, scene.term()), (leader, term), "nobody moved");
        scene.is_killed().await;
    }
    scene.are_played_again();
}

/// Goal: a disk that fails is told as what ended its leader. Method: its next write is answered with an error, and somebody writes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_whose_disk_fails_ends_itself_and_says_so() {
    let mut scene = Scene::begin("raft").await;
    let before = scene.rig.leader().await;
    scene.does_to(before, "disk leader fail 1").await;
    scene.is_written_to(before);
    scene.is_succeeded(before).await;
    scene.does_to(before, "disk leader recover").await;
    scene.rig.make_whole().await.expect("the disk is whole again, and so is everything else");
    let told = scene.is_told(before, "failed").await;
    let told = sentence(&told);
    assert!(told.contains("its process ended itself") && told.contains("os error 5"), "{told}");
    scene.are_played_again();
}

/// Goal: load moves no leader, and is not blamed for what happens under it. Method: clients write to the leader as fast as it answers;
/// then it is killed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_under_load_stays_and_its_death_is_told_as_that() {
    const CLIENTS: u32 = 64;
    const WRITES: u32 = 200;
    let mut scene = Scene::begin("raft").await;
    let (before, term) = (scene.rig.leader().await, scene.term());
    let store =
        hustings_api::Client::connect(&[scene.rig.cluster.nodes[before].client.clone()]).await.expect("it serves");
    let written = Arc::new(tokio::sync::Semaphore::new(0));
    let clients: Vec<_> = (0..CLIENTS)
        .map(|client| {
            let (store, written) = (store.clone(), written.clone());
            tokio::spawn(async move {
                let request = PutRequest { key: format!("load/{client}").into(), ..PutRequest::default() };
                // Until the leader is gone.
                while store.kv().put(request.clone()).await.is_ok() {
                    written.add_permits(1);
                }
            })
        })
        .collect();
    written.acquire_many(CLIENTS * WRITES).await.expect("nobody closes it").forget();
    assert_eq!((scene.rig.leader().await, scene.term()), (before, term), "nobody moved");
    scene.does_to(before, "crash leader").await;
    scene.is_succeeded(before).await;
    for client in clients {
        client.await.expect("it ends with the leader");
    }
    scene.is_whole().await;
    scene.is_told(before, "killed").await;
}

/// Goal: members that all end at once are told as a loss of power. Method: all are killed, the leader last, so that nobody can follow
/// it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn members_that_are_all_killed_at_once_are_told_as_a_loss_of_power() {
    let mut scene = Scene::begin("raft").await;
    let leader = scene.rig.leader().await;
    scene.does_to(leader, "crash others").await;
    scene.does_to(leader, "crash leader").await;
    scene.is_whole().await;
    let told = scene.is_told(leader, "power-lost").await;
    assert!(sentence(&told).contains("all members ended at once"), "{told:#}");
}

/// Goal: members tell over their client ports what is in their directories. Method: the leader is killed behind proxies, through which no
/// lifeline passes: that it died, its own notes would show, which are not here.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn members_are_asked_for_what_they_noted() {
    let mut scene = Scene::begin("raft").await;
    let before = scene.rig.leader().await;
    scene.does_to(before, "crash leader").await;
    let after = scene.is_succeeded(before).await;
    // The one that is gone cannot be asked, and is named.
    let endpoint = scene.rig.cluster.nodes[after].client.clone();
    let told = wait_for("members to know each other's addresses", async || {
        let asked = run(Command::new(HUSTINGS).args(["why", "-o", "json", "--endpoints", &endpoint])).ok();
        let told: Value = serde_json::from_str(&asked).expect("JSON");
        (told["missing"].as_array().map(Vec::len) == Some(1)).then_some(told)
    });
    let told = told.await.expect("both that live tell");
    assert_eq!(told["after"]["leader"], scene.name(after).as_str(), "{told:#}");
    assert_eq!(
        (&told["before"]["leader"], &told["causes"][0]),
        (&scene.name(before).into(), &"link-ended".into()),
        "{told:#}"
    );
    assert_eq!(told["missing"][0], scene.name(before).as_str(), "{told:#}");
    assert!(sentence(&told).contains("its own notes would say, which are not here"), "{told:#}");
    let now = run(Command::new(HUSTINGS).args(["why", "--at", "1999-01-01T00:00:00Z", "--endpoints", &endpoint]));
    assert_eq!(now.code, Some(3), "{now:?}");
}

/// Number of lifelines that a process holds: connections of the thread that has a table of its own.
fn lifelines_of(pid: u32) -> usize {
    let sockets = std::fs::read_to_string(format!("/proc/{pid}/net/tcp")).expect("Linux has it");
    let inodes = sockets.lines().skip(1).filter_map(|row| row.split_whitespace().nth(9));
    let inodes: Vec<String> = inodes.map(|inode| format!("socket:[{inode}]")).collect();
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).expect("it runs").flatten().map(|task| task.path());
    let holder = tasks
        .filter(|task| std::fs::read_to_string(task.join("comm")).is_ok_and(|name| name.trim_end() == "hustings-life"));
    let open = holder.flat_map(|task| std::fs::read_dir(task.join("fd")).into_iter().flatten().flatten());
    let targets = open.filter_map(|entry| std::fs::read_link(entry.path()).ok());
    targets.filter(|target| inodes.iter().any(|inode| target.as_os_str() == inode.as_str())).count()
}

/// Goal: a leader that is dead and cannot be asked is told as killed where others saw it die. Method: nothing stands between the members;
/// the leader is killed when it holds its lifelines.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_death_that_others_heard_is_told_without_the_notes_of_the_dead() {
    let _stage = STAGE.lock().await;
    let mut cluster = Cluster::start(program(), 3).await.expect("it starts");
    let leader = cluster.leader().await.expect("somebody leads");
    let pid = cluster.nodes[leader].pid().expect("it runs");
    let held = wait_for("the leader to hold its lifelines", async || (lifelines_of(pid) == 2).then_some(()));
    held.await.expect("they come about");
    cluster.kill(leader);
    let (name, endpoints) = (cluster.nodes[leader].name.clone(), cluster.live_endpoints().join(","));
    let told = wait_for("the change to be noted by both", async || {
        let asked = run(Command::new(HUSTINGS).args(["why", "-o", "json", "--endpoints", &endpoints]));
        let told: Value = serde_json::from_str(&asked.stdout).ok()?;
        (told["before"]["leader"] == name.as_str() && told["missing"] == serde_json::json!([name])).then_some(told)
    });
    let told = told.await.expect("both that live tell");
    assert_eq!(told["causes"][0], "killed", "{told:#}");
    assert!(sentence(&told).contains("its lifeline ended: its process has died"), "{told:#}");
}

/// Goal: what cannot be read is named, and the rest is told. Method: of one recording a byte behind the middle is another one, in the place
/// of the next there is nothing, and one member stands still when it is asked.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_be_read_is_named_and_the_rest_is_told() {
    let mut scene = Scene::begin("raft").await;
    scene.is_killed().await;
    let leader = scene.rig.leader().await;
    let follower = (leader + 1) % 3;
    let [whole, other] = [leader, follower].map(|member| scene.rig.cluster.nodes[member].data_dir.clone());
    let directory = tempfile::tempdir().expect("there is room");
    let [damaged, nothing] = ["damaged", "nothing"].map(|name| directory.path().join(name));
    let (_, bytes) = Recording::open_with_bytes(&other).expect("it records");
    // Some bytes say how long a note is: where one of them is wrong, the rest may pass for one that was never finished.
    let changed_at = |at: usize| {
        let mut changed = bytes.to_vec();
        changed[at] ^= 0x55;
        changed
    };
    let is_damaged = |bytes: &Vec<u8>| Recording::read(bytes.clone().into()).iter().any(|life| !life.damage.is_empty());
    let changed = (bytes.len() / 2..bytes.len()).map(changed_at).find(is_damaged).expect("most bytes are checked");
    std::fs::write(&damaged, changed).expect("there is room");
    let why = |rings: &[&Path], more: &[&str]| {
        let mut command = Command::new(HUSTINGS);
        command.args(["why", "-o", "json"]).args(more);
        for ring in rings {
            command.arg("--ring").arg(ring);
        }
        run(&mut command)
    };
    let told: Value = serde_json::from_str(&why(&[&whole, &damaged, &nothing], &[]).ok()).expect("JSON");
    assert_eq!(told["after"]["leader"], scene.name(leader).as_str(), "{told:#}");
    assert!(told["damaged"][scene.name(follower)].is_string(), "{told:#}");
    let unread = told["unread"][0].as_str().expect("a sentence");
    assert!(unread.starts_with(&format!("{}: it cannot be read", nothing.display())), "{unread}");
    let refused = why(&[&nothing], &[]);
    assert!(refused.code == Some(1) && refused.stderr.contains("nothing: it cannot be read"), "{refused:?}");

    scene.does(&format!("pause {}", scene.name(follower))).await;
    let endpoints: Vec<&str> = scene.rig.cluster.nodes.iter().map(|node| node.client.as_str()).collect();
    let told = why(&[], &["--timeout", "1s", "--endpoints", &endpoints.join(",")]).ok();
    let told: Value = serde_json::from_str(&told).expect("JSON");
    let silent = &scene.rig.cluster.nodes[follower].client;
    assert_eq!(told["unread"], serde_json::json!([format!("{silent}: no answer within 1s")]), "{told:#}");
    assert_eq!(told["missing"], serde_json::json!([scene.name(follower)]), "{told:#}");
}
