//! A cluster on which incidents are staged one after the other, and whose answer to *why* is compared with each.

use crate::support::{HUSTINGS, program, run};
use hustings_recorder::{Mark, Note, NoteKind, Recording};
use hustings_testbed::{Node, Program, wait_for};
use hustings_torture::rig::Rig;
use hustings_torture::script::Act;
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs::DirEntry;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, SystemTime};
use tokio::sync::{Mutex, MutexGuard};

/// One cluster at a time: on a machine that is busy with another one, a member may be late by itself, and say so.
pub static STAGE: Mutex<()> = Mutex::const_new(());

pub struct Scene {
    pub rig: Rig,
    pub protocol: &'static str,
    /// Changes of leadership that were staged, and told right.
    pub told: u32,
    _stage: MutexGuard<'static, ()>,
}

impl Scene {
    pub async fn begin(protocol: &'static str) -> Scene {
        Scene::begin_with(program(), protocol).await
    }

    pub async fn begin_with(program: Program, protocol: &'static str) -> Scene {
        let stage = STAGE.lock().await;
        let rig = Rig::start(program.with(&["--protocol", protocol]), 3, 1, false).await.expect("it starts");
        Scene { rig, protocol, told: 0, _stage: stage }
    }

    pub fn name(&self, position: usize) -> String {
        self.rig.cluster.nodes[position].name.clone()
    }

    pub async fn does(&mut self, act: &str) {
        let act = Act::parse(act).expect("an act");
        self.rig.perform(&act).await.expect("it is done");
    }

    /// Somebody writes at this member. Whether it gets through does not matter: its disk has to write.
    pub fn is_written_to(&self, member: usize) {
        let endpoint = &self.rig.cluster.nodes[member].client;
        run(Command::new(HUSTINGS).args(["put", "key", "value", "--timeout", "2s", "--endpoints", endpoint]));
    }

    /// Waits until somebody else leads.
    pub async fn is_succeeded(&mut self, before: usize) -> usize {
        let what = format!("{}: somebody to lead after {}", self.protocol, self.name(before));
        let rig = &mut self.rig;
        let succeeded = wait_for(&what, async || Some(rig.leader().await).filter(|leader| *leader != before));
        succeeded.await.expect("somebody does")
    }

    pub async fn is_whole(&mut self) {
        self.does("heal").await;
        self.does("resume all").await;
        self.does("restart all").await;
        for position in 0..3 {
            self.rig.cluster.wait_until_serving(position).await.expect("it serves");
        }
    }

    /// The answer of the members' recordings about the last change.
    pub fn why(&self) -> Value {
        self.why_with(&[])
    }

    pub fn why_with(&self, arguments: &[&str]) -> Value {
        let mut command = Command::new(HUSTINGS);
        command.args(["why", "-o", "json"]).args(arguments);
        for node in &self.rig.cluster.nodes {
            command.arg("--ring").arg(&node.data_dir);
        }
        serde_json::from_str(&run(&mut command).ok()).expect("JSON")
    }

    /// Waits until each member that runs has written its recording, which is some milliseconds behind, after this moment.
    pub async fn have_written(&self, moment: SystemTime) {
        let is_later = |entry: &DirEntry| entry.metadata().and_then(|meta| meta.modified()).is_ok_and(|at| at > moment);
        let has_written = |node: &Node| {
            let files = std::fs::read_dir(node.data_dir.join("recording")).expect("it records");
            files.flatten().any(|file| is_later(&file))
        };
        let nodes = &self.rig.cluster.nodes;
        let written = wait_for("recordings to be written", async || {
            nodes.iter().filter(|node| node.pid().is_some()).all(has_written).then_some(())
        });
        written.await.expect("they go on");
    }

    /// Asks once, when the last change is one from this leader and all recordings tell of it: the first answer counts.
    pub async fn is_told(&mut self, before: usize, cause: &str) -> Value {
        let name = self.name(before);
        let noted = wait_for("the change to be noted", async || {
            (self.why()["before"]["leader"] == name.as_str()).then_some(())
        });
        noted.await.unwrap_or_else(|error| panic!("{error}: {}: {:#}", self.protocol, self.why()));
        self.have_written(SystemTime::now()).await;
        let told = self.why();
        assert_eq!(told["causes"][0], cause, "{}: {told:#}", self.protocol);
        self.told += 1;
        println!("{}: {cause}, right in {} of {}\n  {}", self.protocol, self.told, self.told, told["sentences"]);
        assert!(told["before"]["term"].as_u64() < told["after"]["term"].as_u64(), "{told:#}");
        told
    }

    /// Does something in which `leader` stands for this member and `others` for the two others: looked up again, the leader could be
    /// another one.
    pub async fn does_to(&mut self, leader: usize, act: &str) {
        let [leader, first, second] = [0, 1, 2].map(|step| format!("n{}", (leader + step) % 3 + 1));
        match act.replace("leader", &leader) {
            act if act.contains("others") => {
                self.does(&act.replace("others", &first)).await;
                self.does(&act.replace("others", &second)).await;
            }
            act => self.does(&act).await,
        }
    }

    /// Something is done to the leader, and told.
    pub async fn tells(&mut self, act: &str, cause: &str) -> Value {
        let before = self.rig.leader().await;
        self.does_to(before, act).await;
        self.is_succeeded(before).await;
        self.is_whole().await;
        self.is_told(before, cause).await
    }

    /// The last term in which anybody is noted to have led.
    pub fn term(&self) -> Value {
        self.why()["after"]["term"].clone()
    }

    pub fn hustings(&self, arguments: &[&str]) -> String {
        run(Command::new(HUSTINGS).args(arguments).args(["--endpoints", &self.rig.cluster.endpoints().join(",")])).ok()
    }

    pub fn are_played_again(&self) {
        let data_dirs = self.rig.cluster.nodes.iter().map(|node| &node.data_dir);
        let page = self.rig.cluster.directory().join("page.html");
        let mut command = Command::new(HUSTINGS);
        command.args(["replay", "-o", "json", "--report"]).arg(&page).args(data_dirs);
        let said = run(&mut command).ok();
        self.are_drawn(&page);
        let said: Vec<Value> = said.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
        let (judgement, lives) = said.split_last().expect("it says something");
        assert!(lives.len() >= self.rig.cluster.nodes.len());
        for life in lives {
            assert!(life["end"] == "same" && life["inputs"].as_u64() > Some(0), "{life}");
        }
        assert_eq!((&judgement["kind"], &judgement["violations"]), (&"Judgement".into(), &serde_json::json!([])));
        assert!(judgement["facts"].as_u64() > Some(lives.len() as u64), "{judgement}");
    }

    /// Goal: recordings are a script, too. Method: the script of this cluster is played, and then one in which a member that led is
    /// somebody else, who led the same terms.
    pub fn are_played_as_a_script(&self) {
        let [path, doctored, page] =
            ["script.txt", "doctored.txt", "played.html"].map(|name| self.rig.cluster.directory().join(name));
        let data_dirs = self.rig.cluster.nodes.iter().map(|node| &node.data_dir);
        run(Command::new(HUSTINGS).args(["replay", "--script"]).arg(&path).args(data_dirs)).ok();
        let transcript = run(Command::new(HUSTINGS).arg("play").arg(&path)).ok();
        let made = concat!("# hustings ", env!("CARGO_PKG_VERSION"), ": made of recordings by `replay --script`\n");
        assert!(transcript.starts_with(made), "{transcript}");
        assert!(transcript.contains("→ Leader") && transcript.contains("s  n2  message"), "{transcript}");
        assert!(!transcript.contains("otherwise"), "{transcript}");

        let script = std::fs::read_to_string(&path).expect("it is written");
        let mut twins = script.clone();
        for line in script.lines().filter(|line| line.starts_with("1 ")) {
            // Nobody said it to this one.
            twins.push_str(&format!("9{} unseen\n", line[1..].trim_end_matches(" unseen")));
        }
        std::fs::write(&doctored, twins).expect("there is room");
        let played = run(Command::new(HUSTINGS).arg("play").arg(&doctored).arg("--report").arg(&page));
        assert_eq!(played.code, Some(1), "{played:?}");
        assert!(played.stderr.contains("one-leader-per-term does not hold: n1 leads term"), "{played:?}");
        assert!(std::fs::read_to_string(&page).expect("it is drawn").contains("one-leader-per-term"));
        let other = run(Command::new(HUSTINGS).arg("play").arg(&path).args(["--protocol", "zab"]));
        assert!(other.code == Some(2) && other.stderr.contains("recorded under raft"), "{other:?}");
        std::fs::write(&doctored, script.replace(" birth ", " death ")).expect("there is room");
        let refused = run(Command::new(HUSTINGS).arg("play").arg(&doctored));
        assert!(refused.code == Some(2) && refused.stderr.contains("line "), "{refused:?}");
    }

    /// The page has every member, and messages that arrived.
    pub fn are_drawn(&self, page: &Path) {
        let page = std::fs::read_to_string(page).expect("it is drawn");
        let run = page.split_once("<script type=\"application/json\" id=\"run\">").expect("a run is in it").1;
        let run: Value = serde_json::from_str(run.split_once("</script>").expect("it ends").0).expect("JSON");
        let lanes: BTreeSet<u64> =
            run["members"].as_array().into_iter().flatten().filter_map(|row| row[1].as_u64()).collect();
        assert!(lanes.len() >= self.rig.cluster.nodes.len(), "{lanes:?}");
        let messages = run["messages"].as_array().expect("a list");
        let arrived = messages.iter().filter(|row| row[4] == 0).count();
        let is_upright = |row: &&Value| row[3].as_u64() >= row[2].as_u64() && row[0] != row[1];
        assert!(
            arrived > 20 && messages.iter().filter(is_upright).count() == messages.len(),
            "{arrived}: {messages:?}"
        );
        assert!(
            run["lines"].as_array().is_some_and(|lines| lines.iter().any(|line| line[1] == "role")),
            "{}",
            run["lines"]
        );
    }

    pub async fn is_killed(&mut self) {
        let killed = self.tells("crash leader", "killed").await;
        assert!(killed["gap_micros"].as_u64() < Some(5_000_000), "{killed}");
    }

    pub async fn is_paused(&mut self) {
        let paused = self.tells("pause leader", "paused").await;
        assert!(sentence(&paused).contains("stood still for"), "{paused}");
    }

    pub async fn is_cut_off(&mut self) {
        let cut = self.tells("isolate leader", "cut").await;
        assert!(sentence(&cut).contains("the network was cut"), "{cut}");
        assert!(!sentence(&cut).contains("in one direction"), "{cut:#}");
    }

    pub async fn is_muted(&mut self) {
        let mute = self.tells("mute leader others", "cut").await;
        assert!(sentence(&mute).contains("the network was cut"), "{mute}");
    }

    /// Mutes the leader; once another one leads, the old one is killed.
    pub async fn is_muted_and_killed(&mut self) {
        let before = self.rig.leader().await;
        self.does_to(before, "mute leader others").await;
        self.is_succeeded(before).await;
        // What a killed process had yet to write is lost, and only its own recording shows that it ran.
        self.have_written(SystemTime::now()).await;
        self.does_to(before, "crash leader").await;
        self.is_whole().await;
        self.is_told(before, "cut").await;
    }

    pub async fn is_stopped(&mut self) {
        let before = self.rig.leader().await;
        self.rig.cluster.terminate(before).expect("it is told to stop");
        self.is_succeeded(before).await;
        self.is_whole().await;
        self.is_told(before, "stopped").await;
    }

    pub async fn hands_over(&mut self) -> Value {
        let before = self.rig.leader().await;
        let to = self.name((before + 1) % 3);
        self.hustings(&["transfer", &to]);
        self.is_succeeded(before).await;
        let told = self.is_told(before, "handed-over").await;
        assert!(sentence(&told).contains(&to), "{told}");
        told
    }

    /// The successor stands still as soon as it leads. Both changes are told, each at its time.
    pub async fn hands_over_to_one_that_stands_still(&mut self) {
        let first = self.hands_over().await;
        self.is_paused().await;
        let at = first["after"]["since"].as_str().expect("a time");
        let again = self.why_with(&["--at", at]);
        assert_eq!(again["causes"][0], "handed-over", "{again:#}");
        // Each answer reads both clocks by the newest recording of its time, and two readings differ by microseconds.
        let names_the_same = |key: &str| again["before"][key] == first["before"][key];
        assert!(["leader", "term", "because"].into_iter().all(names_the_same), "{first:#}: {again:#}");
        let at = |told: &Value| {
            humantime::parse_rfc3339(told["before"]["until"].as_str().expect("a time")).expect("RFC 3339")
        };
        let (one, other) = (at(&first), at(&again));
        let apart = one.max(other).duration_since(one.min(other)).expect("in order");
        assert!(apart < Duration::from_millis(1), "{apart:?} apart: {first:#}: {again:#}");
    }

    pub async fn is_paused_and_killed(&mut self) {
        let before = self.rig.leader().await;
        self.does_to(before, "pause leader").await;
        self.is_succeeded(before).await;
        self.does_to(before, "crash leader").await;
        self.is_whole().await;
        let told = self.is_told(before, "paused").await;
        assert_eq!(told["causes"][1], "killed", "{told:#}");
    }

    /// The others are killed: the leader gives way, and while nobody leads, that is told. Then they come back, and somebody leads again.
    pub async fn loses_the_others(&mut self) {
        let before = self.rig.leader().await;
        self.does_to(before, "crash others").await;
        let has_ended = wait_for("the leader to give way", async || {
            let told = self.why()["sentences"].to_string();
            told.contains("Nobody is noted to lead since then, when it gave way").then_some(())
        });
        has_ended.await.unwrap_or_else(|error| panic!("{error}: {}: {:#}", self.protocol, self.why()));
        self.is_whole().await;
        let told = self.is_told(before, "quorum-lost").await;
        for step in [1, 2] {
            let name = self.name((before + step) % 3);
            assert!(sentence(&told).contains(&format!("{name} (")), "{name} is missing: {told:#}");
        }
    }

    /// A follower is killed, and then the leader: nobody can lead before one of both is back, and that is told.
    pub async fn is_killed_while_another_is_dead(&mut self) {
        let before = self.rig.leader().await;
        let dead = (before + 1) % 3;
        self.does(&format!("crash {}", self.name(dead))).await;
        self.does_to(before, "crash leader").await;
        let (leader, third) = (self.name(before), &self.rig.cluster.nodes[(before + 2) % 3].data_dir);
        let is_seen = wait_for("the third to see that it is alone", async || {
            let life = Recording::open(third).ok()?.pop()?;
            let mut links = life.notes.iter().rev().filter(|note| match &note.kind {
                NoteKind::Mark(Mark::LinkUp { peer } | Mark::LinkDown { peer, .. }) => *peer == leader,
                _ => false,
            });
            // Nobody leads for a while.
            let is_alone = |last: &&Note| {
                matches!(last.kind, NoteKind::Mark(Mark::LinkDown { .. }))
                    && life.end_micros() > last.at_micros + 1_000_000
            };
            links.next().filter(is_alone).map(drop)
        });
        is_seen.await.expect("it notes it");
        self.is_whole().await;
        let told = self.is_told(before, "killed").await;
        assert_eq!(told["causes"][1], "away", "{told:#}");
        let says = |said: &Value| {
            said.as_str().is_some_and(|said| said.contains(&format!("no process of {} ran", self.name(dead))))
        };
        assert!(told["sentences"].as_array().expect("sentences").iter().any(says), "{told:#}");
    }

    /// The leader is removed, and killed as soon as somebody else leads.
    pub async fn is_removed_and_killed(&mut self) {
        let before = self.rig.leader().await;
        self.hustings(&["member", "remove", &self.name(before)]);
        self.is_succeeded(before).await;
        self.rig.cluster.kill(before);
        self.is_told(before, "removed").await;
    }
}

/// The first sentence, which says why.
pub fn sentence(told: &Value) -> &str {
    told["sentences"][0].as_str().unwrap_or_default()
}
