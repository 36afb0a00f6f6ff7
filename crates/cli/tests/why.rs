//! Goal: whoever asks why leadership moved is told what was done.
//! Method: real processes behind proxies, to which things are done one after the other; after each the recordings of all members are
//! asked, and the answer is compared with what was done. At the end all lives are played again.

mod support;

use hustings_testbed::wait_for;
use hustings_torture::rig::Rig;
use hustings_torture::script::Act;
use serde_json::Value;
use std::process::Command;
use support::{HUSTINGS, program, run};
use tokio::sync::{Mutex, MutexGuard};

/// One cluster at a time: on a machine that is busy with another one, a member may be late by itself, and say so.
static STAGE: Mutex<()> = Mutex::const_new(());

struct Scene {
    rig: Rig,
    protocol: &'static str,
    _stage: MutexGuard<'static, ()>,
}

impl Scene {
    async fn begin(protocol: &'static str) -> Scene {
        let stage = STAGE.lock().await;
        let rig = Rig::start(program().with(&["--protocol", protocol]), 3, 1, false).await.expect("it starts");
        Scene { rig, protocol, _stage: stage }
    }

    fn name(&self, position: usize) -> String {
        self.rig.cluster.nodes[position].name.clone()
    }

    async fn does(&mut self, act: &str) {
        let act = Act::parse(act).expect("an act");
        self.rig.perform(&act).await.expect("it is done");
    }

    /// Waits until somebody else leads.
    async fn is_succeeded(&mut self, before: usize) -> usize {
        for _ in 0..1_000 {
            let leader = self.rig.leader().await;
            if leader != before {
                return leader;
            }
        }
        panic!("{}: nobody comes after {}", self.protocol, self.name(before));
    }

    async fn is_whole(&mut self) {
        self.does("heal").await;
        self.does("resume all").await;
        self.does("restart all").await;
        for position in 0..3 {
            self.rig.cluster.wait_until_serving(position).await.expect("it serves");
        }
    }

    /// What the members' recordings say of the last change.
    fn why(&self) -> Value {
        let mut command = Command::new(HUSTINGS);
        command.args(["why", "-o", "json"]);
        for node in &self.rig.cluster.nodes {
            command.arg("--ring").arg(&node.data_dir);
        }
        serde_json::from_str(&run(&mut command).ok()).expect("JSON")
    }

    /// Asks until the last change is one from this leader, whose recording may be some milliseconds behind.
    async fn is_told(&self, before: usize, cause: &str) -> Value {
        let name = self.name(before);
        let told = wait_for("the change to be noted", async || {
            let why = self.why();
            (why["before"]["leader"] == name.as_str()).then_some(why)
        });
        let told = told.await.unwrap_or_else(|error| panic!("{error}: {}: {:#}", self.protocol, self.why()));
        println!("{}: {cause}\n  {}", self.protocol, told["sentences"]);
        assert_eq!(told["causes"][0], cause, "{}: {told:#}", self.protocol);
        assert!(told["before"]["term"].as_u64() < told["after"]["term"].as_u64(), "{told:#}");
        told
    }

    /// Something is done to the leader, and told.
    async fn tells(&mut self, act: &str, cause: &str) -> Value {
        let before = self.rig.leader().await;
        self.does(act).await;
        self.is_succeeded(before).await;
        self.is_whole().await;
        self.is_told(before, cause).await
    }

    fn hustings(&self, arguments: &[&str]) -> String {
        run(Command::new(HUSTINGS).args(arguments).args(["--endpoints", &self.rig.cluster.endpoints().join(",")])).ok()
    }

    fn are_played_again(&self) {
        for node in &self.rig.cluster.nodes {
            let said = run(Command::new(HUSTINGS).args(["replay", "-o", "json"]).arg(&node.data_dir)).ok();
            let lives: Vec<Value> = said.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
            assert!(!lives.is_empty());
            for life in lives {
                assert!(life["end"] == "same" && life["inputs"].as_u64() > Some(0), "{life}");
            }
        }
    }
}

async fn what_was_done_is_told(protocol: &'static str) {
    let mut scene = Scene::begin(protocol).await;
    let killed = scene.tells("crash leader", "killed").await;
    assert!(killed["gap_micros"].as_u64() < Some(5_000_000), "{killed}");
    let paused = scene.tells("pause leader", "paused").await;
    assert!(paused["sentences"][0].as_str().is_some_and(|told| told.contains("stood still for")), "{paused}");
    let cut = scene.tells("isolate leader", "cut").await;
    assert!(cut["sentences"][0].as_str().is_some_and(|told| told.contains("the network was cut")), "{cut}");

    let mute = scene.tells("mute leader others", "cut").await;
    assert!(mute["sentences"][0].as_str().is_some_and(|told| told.contains("the network was cut")), "{mute}");

    let before = scene.rig.leader().await;
    scene.rig.cluster.terminate(before).expect("it is told to stop");
    scene.is_succeeded(before).await;
    scene.is_whole().await;
    scene.is_told(before, "stopped").await;

    let before = scene.rig.leader().await;
    let to = scene.name((before + 1) % 3);
    scene.hustings(&["transfer", &to]);
    scene.is_succeeded(before).await;
    let told = scene.is_told(before, "handed-over").await;
    assert!(told["sentences"][0].as_str().is_some_and(|told| told.contains(&to)), "{told}");

    let before = scene.rig.leader().await;
    scene.does("pause leader").await;
    scene.is_succeeded(before).await;
    scene.does(&format!("crash n{}", before + 1)).await;
    scene.is_whole().await;
    let told = scene.is_told(before, "paused").await;
    assert_eq!(told["causes"][1], "killed", "{told:#}");
    scene.are_played_again();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn why_a_raft_leader_was_replaced_is_told() {
    what_was_done_is_told("raft").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn why_a_paxos_leader_was_replaced_is_told() {
    what_was_done_is_told("paxos").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_that_lost_its_power_says_so() {
    let mut scene = Scene::begin("raft").await;
    let leader = scene.rig.leader().await;
    scene.does("crash all").await;
    scene.is_whole().await;
    let told = wait_for("a leader to be noted", async || {
        let why = scene.why();
        (why["before"]["leader"] == scene.name(leader).as_str() && why["causes"][0] == "power-lost").then_some(why)
    });
    let told = told.await.unwrap_or_else(|error| panic!("{error}: {:#}", scene.why()));
    assert!(told["sentences"][0].as_str().is_some_and(|told| told.contains("all members ended at once")), "{told:#}");
}

/// Goal: members tell over their client ports what is in their directories.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn members_are_asked_for_what_they_noted() {
    let mut scene = Scene::begin("raft").await;
    let before = scene.rig.leader().await;
    scene.does("crash leader").await;
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
        (&scene.name(before).into(), &"killed".into()),
        "{told:#}"
    );
    assert_eq!(told["missing"][0], scene.name(before).as_str(), "{told:#}");
    let now = run(Command::new(HUSTINGS).args(["why", "--at", "1999-01-01T00:00:00Z", "--endpoints", &endpoint]));
    assert_eq!(now.code, Some(3), "{now:?}");
}
