//! Goal: a cluster that lost its quorum for good serves again within three commands, and nothing that a surviving disk held is lost.
//! Method: real members are killed and their disks deleted; `hustings recover` makes a new cluster of what is left, and real clients
//! read it.

use crate::support::{Ended, HUSTINGS, PROTOCOLS, hustings, program, run, text};
use hustings_api::Client;
use hustings_api::etcdserverpb::{
    MemberListRequest, RangeRequest, StatusRequest, WatchCreateRequest, WatchRequest, watch_request::RequestUnion,
};
use hustings_api::v3lockpb::{LockRequest, UnlockRequest};
use hustings_testbed::{Cluster, get, put, wait_for};
use serde_json::Value;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Number of keys that clients write.
const KEYS: usize = 40;

fn recover(directories: &[&Path], arguments: &[&str]) -> Ended {
    run(Command::new(HUSTINGS).arg("recover").args(directories).args(arguments))
}

fn json(ended: Ended) -> Value {
    let said = ended.ok();
    serde_json::from_str(&said).unwrap_or_else(|error| panic!("{error}: {said}"))
}

/// Every file with its bytes, those in directories too, so that "unchanged" means it.
fn contents(directory: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut paths: Vec<_> =
        std::fs::read_dir(directory).expect("it is there").map(|entry| entry.expect("it is readable").path()).collect();
    paths.sort();
    let within = |path: PathBuf| match path.is_dir() {
        true => contents(&path),
        false => vec![(path.clone(), std::fs::read(path).expect("it is readable"))],
    };
    paths.into_iter().flat_map(within).collect()
}

/// Puts a copy of a directory in the place of what is there.
fn copy(from: &Path, to: &Path) {
    let _ = std::fs::remove_dir_all(to);
    assert_eq!(run(Command::new("cp").arg("-r").arg(from).arg(to)).code, Some(0));
}

/// Waits until every member has said where clients reach it, which tells of its storage as well.
async fn until_described(client: &Client) {
    wait_for("every member to be described", async || {
        let members = client.cluster().member_list(MemberListRequest::default()).await.ok()?.into_inner().members;
        members.iter().all(|member| !member.client_urls.is_empty()).then_some(())
    })
    .await
    .expect("members are described");
}

async fn write_all(client: &Client, prefix: &str) -> i64 {
    let mut revision = 0;
    for number in 0..KEYS {
        revision =
            put(client, &format!("{prefix}/{number}"), &format!("value {number}")).await.expect("it is acknowledged");
    }
    revision
}

#[track_caller]
fn assert_there(number: usize, found: Option<(String, i64)>) {
    let (value, _) = found.unwrap_or_else(|| panic!("write {number} was acknowledged and is gone"));
    assert_eq!(value, format!("value {number}"));
}

async fn read_all(client: &Client, prefix: &str) {
    for number in 0..KEYS {
        assert_there(number, get(client, &format!("{prefix}/{number}")).await.expect("a read"));
    }
}

/// Three members; the leader and one follower are killed and their disks deleted. Three commands.
async fn a_cluster_of_three_that_lost_two_disks_serves_again(protocol: &str) {
    let program = program().with(&["--protocol", protocol]);
    let mut cluster = Cluster::start(program.clone(), 3).await.expect("three nodes start");
    let client = Client::connect(&cluster.endpoints()).await.expect("a node answers");
    let revision = write_all(&client, "worst").await;
    // All have it, so the survivor has: what nobody here holds cannot be asked back.
    cluster.hashes().await.expect("all hold the same");
    let leader = cluster.leader().await.expect("somebody leads");
    let survivor = (0..3).find(|position| *position != leader).expect("two follow");
    for position in 0..3 {
        cluster.kill(position);
        if position != survivor {
            std::fs::remove_dir_all(&cluster.nodes[position].data_dir).expect("its disk is gone");
        }
    }
    let old = cluster.nodes[survivor].data_dir.clone();
    let name = cluster.nodes[survivor].name.clone();
    let before = contents(&old);

    // The first command shows what is left and who must be given up.
    let shown = json(recover(&[&old], &["-o", "json"]));
    assert_eq!(shown["directories"][0]["name"], *name, "{shown}");
    assert_eq!(shown["recovery"]["revision"], revision, "{shown}");
    assert_eq!(shown["recovery"]["may_be_served_elsewhere"], true, "{shown}");
    let lost: Vec<&str> =
        shown["recovery"]["absent"].as_array().expect("a list").iter().filter_map(Value::as_str).collect();
    assert_eq!(lost.len(), 2, "{shown}");
    // A directory that is given twice is one; none is changed by making the new one inside it.
    let twice = json(recover(&[&old, &old.join(".")], &["-o", "json"]));
    assert_eq!(twice["directories"].as_array().map(Vec::len), Some(1), "{twice}");
    let within = recover(&[&old], &["--lost", &lost.join(","), "--into", text(&old.join("new"))]);
    assert_eq!(within.code, Some(2), "{within:?}");
    assert!(within.stderr.contains("which is not changed"), "{within:?}");
    // Without a word that they are gone it refuses, and names them.
    let new = cluster.directory().join("recovered");
    let refused = recover(&[&old], &["--into", text(&new)]).failed();
    assert!(lost.iter().all(|name| refused.contains(name)) && refused.contains("--lost"), "{refused}");
    assert!(!new.exists(), "nothing is left of a refusal");

    // The second command makes the new cluster, the third serves it.
    let made = json(recover(&[&old], &["--lost", &lost.join(","), "--into", text(&new), "-o", "json"]));
    assert_eq!(contents(&old), before, "the old directory is as it was");
    let mut alone = Cluster::prepare(program, 1).expect("ports are free");
    alone.nodes[0].name = name;
    alone.nodes[0].data_dir = new;
    alone.start_node(0).expect("it starts");
    alone.wait_until_serving(0).await.expect("it serves");
    let client = Client::connect(&alone.endpoints()).await.expect("it answers");
    read_all(&client, "worst").await;
    let next = put(&client, "after", "the worst day").await.expect("it is written");
    assert!(
        next > revision + 1_000_000_000 && made["made"]["revision"].as_i64() < Some(next),
        "{next} after {revision}"
    );
    let inspected = hustings(&["inspect", "-o", "json", text(&alone.nodes[0].data_dir)]);
    assert!(!inspected.stdout.contains(shown["directories"][0]["cluster_id"].as_str().expect("text")), "{inspected:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_of_three_that_lost_two_disks_serves_again_under_every_protocol() {
    for protocol in PROTOCOLS {
        a_cluster_of_three_that_lost_two_disks_serves_again(protocol).await;
    }
}

/// A client's view before the day: the highest revision, the term, and the fencing token of a lock that it held.
struct Before {
    revision: i64,
    term: u64,
    token: i64,
}

/// Takes a lock nobody holds here; its fencing token is the revision at which its key was created.
async fn take_lock(client: &Client) -> Before {
    let lock = LockRequest { name: b"resource".to_vec().into(), lease: 0 };
    let locked = client.lock().lock(lock).await.expect("nobody holds it").into_inner();
    let range = RangeRequest { key: locked.key.clone(), ..RangeRequest::default() };
    let held = client.kv().range(range).await.expect("a read").into_inner();
    let header = held.header.expect("always");
    let before = Before { revision: header.revision, term: header.raft_term, token: held.kvs[0].create_revision };
    client.lock().unlock(UnlockRequest { key: locked.key }).await.expect("it is ours");
    before
}

/// The compaction that a watcher which has seen everything up to `seen` is told of when it comes back.
async fn compacted_at(client: &Client, seen: i64) -> i64 {
    let create = WatchCreateRequest { key: "worst/0".into(), start_revision: seen + 1, ..Default::default() };
    let create = WatchRequest { request_union: Some(RequestUnion::CreateRequest(create)) };
    let mut events = client.watch().watch(tokio_stream::iter([create])).await.expect("it is opened").into_inner();
    let told = async {
        loop {
            let said = events.message().await.expect("a word").expect("before its end");
            assert!(said.events.is_empty(), "nothing happened at a revision that it knows: {said:?}");
            if said.compact_revision > 0 {
                return said.compact_revision;
            }
        }
    };
    tokio::time::timeout(crate::support::PATIENCE, told).await.expect("it is not left waiting")
}

/// A cluster of three whose third member is behind: the others go on without it, a client sees what they wrote, and then their
/// disks are gone.
async fn lose_all_but_one_that_is_behind() -> (Cluster, Before) {
    let mut cluster = Cluster::start(program(), 3).await.expect("three nodes start");
    let client = Client::connect(&cluster.endpoints()).await.expect("a node answers");
    write_all(&client, "worst").await;
    cluster.hashes().await.expect("all hold the same");
    cluster.kill(2);
    let client = Client::connect(&cluster.live_endpoints()).await.expect("a node answers");
    write_all(&client, "unseen by n3").await;
    let before = take_lock(&client).await;
    for position in 0..2 {
        cluster.kill(position);
        std::fs::remove_dir_all(&cluster.nodes[position].data_dir).expect("its disk is gone");
    }
    (cluster, before)
}

async fn assert_lived_through(client: &Client, before: &Before) {
    read_all(client, "worst").await;
    let told = compacted_at(client, before.revision).await;
    assert!(told > before.revision, "what it has seen is not this cluster's: {told} after {}", before.revision);
    let after = take_lock(client).await;
    assert!(
        after.token > before.token && after.term > before.term,
        "no fencing token falls: {} and {}",
        after.token,
        after.term
    );
}

/// Goal: a client that lived through the day is not deceived by a survivor that had less. Method: a watcher and a lock holder come back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watcher_and_a_lock_holder_live_through_a_recovery_from_one_that_was_behind() {
    let (cluster, before) = lose_all_but_one_that_is_behind().await;
    let new = cluster.directory().join("recovered");
    recover(&[&cluster.nodes[2].data_dir], &["--lost", "n1,n2", "--into", text(&new)]).ok();
    let mut alone = Cluster::prepare(program(), 1).expect("ports are free");
    alone.nodes[0].data_dir = new;
    alone.start_node(0).expect("it starts");
    alone.wait_until_serving(0).await.expect("it serves");
    assert_lived_through(&Client::connect(&alone.endpoints()).await.expect("it answers"), &before).await;
}

/// Goal: three machines go on at once, where nobody wants to wait for members to be added. Method: the same two directories of five are
/// recovered from for each of three names.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_recovery_can_found_several_members() {
    let program = program().with(&["--protocol", "paxos"]);
    let mut cluster = Cluster::start(program.clone(), 5).await.expect("five nodes start");
    let client = Client::connect(&cluster.endpoints()).await.expect("a node answers");
    write_all(&client, "early").await;
    cluster.hashes().await.expect("all hold the same");
    // The directory that is given first has promised a lower ballot than the other has accepted.
    let old = cluster.leader().await.expect("somebody leads");
    cluster.kill(old);
    for position in (0..5).filter(|position| *position != old) {
        cluster.wait_until_serving(position).await.expect("another leads");
    }
    let client = Client::connect(&cluster.live_endpoints()).await.expect("a node answers");
    write_all(&client, "worst").await;
    cluster.hashes().await.expect("all that live hold the same");
    for position in (0..5).filter(|position| *position != old) {
        cluster.kill(position);
    }
    let new = (old + 1) % 5;
    let lost = [(old + 2) % 5, (old + 3) % 5].map(|position| cluster.nodes[position].name.clone()).join(",");
    let (one, two) = (cluster.nodes[old].data_dir.clone(), cluster.nodes[new].data_dir.clone());
    let mut new = Cluster::prepare(program, 3).expect("ports are free");
    let members: Vec<String> = new.nodes.iter().map(|node| format!("{}={}", node.name, node.peer)).collect();
    for node in &new.nodes {
        let place = ["--name", &node.name, "--initial-cluster", &members.join(","), "--into", text(&node.data_dir)];
        recover(&[&one, &two], &[&["--lost", &lost][..], &place].concat()).ok();
    }
    for position in 0..3 {
        new.start_node(position).expect("it starts");
    }
    for position in 0..3 {
        new.wait_until_serving(position).await.expect("it serves");
    }
    let client = Client::connect(&new.endpoints()).await.expect("a node answers");
    read_all(&client, "early").await;
    read_all(&client, "worst").await;
    put(&client, "after", "the worst day").await.expect("it is written");
    let hashes = new.hashes().await.expect("all answer");
    assert!(hashes.len() == 3 && hashes.iter().all(|hash| *hash == hashes[0]), "{hashes:?}");
}

/// Directories beside a member's that its name begins.
fn beside(directory: &Path, what: &str) -> Vec<PathBuf> {
    let wanted = format!("{}{what}", directory.file_name().expect("a name").to_str().expect("text"));
    let all = std::fs::read_dir(directory.parent().expect("a parent")).expect("it is there");
    let all = all.map(|entry| entry.expect("it is readable"));
    all.filter(|entry| entry.file_name().to_str().is_some_and(|name| name.starts_with(&wanted)))
        .map(|entry| entry.path())
        .collect()
}

async fn term_of(client: &Client) -> u64 {
    let status = client.maintenance().status(StatusRequest {}).await.expect("it answers").into_inner();
    status.raft_term
}

/// Goal: `--force-new-cluster` in a unit brings the last member back once, and does no harm when it stays there.
/// Method: the survivor of three starts with it; then again; then after a member was added.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_forced_new_cluster_is_made_once() {
    const FORCE: &[&str] = &["--force-new-cluster"];
    let (mut cluster, before) = lose_all_but_one_that_is_behind().await;
    let directory = cluster.nodes[2].data_dir.clone();
    let old = contents(&directory);
    cluster.start_node_with(2, FORCE).expect("it starts");
    cluster.wait_until_serving(2).await.expect("it serves");
    let client = Client::connect(&cluster.live_endpoints()).await.expect("it answers");
    assert_lived_through(&client, &before).await;
    let members = client.cluster().member_list(MemberListRequest { linearizable: true }).await.expect("it answers");
    assert_eq!(members.into_inner().members.len(), 1);
    let kept = beside(&directory, ".before-");
    let names = |files: &[(PathBuf, Vec<u8>)]| -> Vec<(String, Vec<u8>)> {
        let name = |path: &Path| path.file_name().expect("a name").to_string_lossy().into_owned();
        files.iter().map(|(path, bytes)| (name(path), bytes.clone())).filter(|(name, _)| name != "LOCK").collect()
    };
    assert_eq!(names(&contents(&kept[0])), names(&old), "the old directory is kept as it was");

    // The flag is still in the unit.
    let (term, revision) = (term_of(&client).await, put(&client, "x", "y").await.expect("it is written"));
    cluster.terminate(2).expect("it ends");
    cluster.start_node_with(2, FORCE).expect("it starts");
    cluster.wait_until_serving(2).await.expect("it serves");
    let client = Client::connect(&cluster.live_endpoints()).await.expect("it answers");
    assert!(term_of(&client).await < term + 1000, "terms are not raised again");
    assert_eq!(put(&client, "x", "z").await.expect("it is written"), revision + 1);
    assert_eq!(beside(&directory, ".before-").len(), 1);
    assert!(std::fs::read_to_string(&cluster.nodes[2].log).expect("a log").contains("take the flag out"));

    // A crash between the exchange and the last rename left the old directory under the name of the new one.
    cluster.terminate(2).expect("it ends");
    let forcing = directory.with_file_name("n3.forcing");
    std::fs::rename(&kept[0], &forcing).expect("it can be renamed");
    cluster.start_node_with(2, FORCE).expect("it starts");
    cluster.wait_until_serving(2).await.expect("it serves");
    assert!(!forcing.exists(), "it is put away");
    assert_eq!(names(&contents(&beside(&directory, ".before-")[0])), names(&old), "and not lost");
}

fn cluster_id_of(directory: &Path) -> String {
    let found = json(hustings(&["inspect", "-o", "json", text(directory)]));
    found["meta"]["cluster_id"].as_str().expect("text").to_string()
}

/// Goal: a member that is forced a second time from the same old directory is a stranger to whoever joined the first cluster, and its log
/// says how to begin above that. Method: the directory that was kept is put back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn forced_twice_from_one_directory_is_two_clusters() {
    let mut cluster = Cluster::start(program(), 1).await.expect("a node starts");
    let directory = cluster.nodes[0].data_dir.clone();
    let mut ids = vec![cluster_id_of(&directory)];
    for _ in 0..2 {
        cluster.kill(0);
        if let Some(kept) = beside(&directory, ".before-").first() {
            std::fs::remove_dir_all(&directory).expect("it can be removed");
            std::fs::rename(kept, &directory).expect("it can be put back");
        }
        cluster.start_node_with(0, &["--force-new-cluster"]).expect("it starts");
        cluster.wait_until_serving(0).await.expect("it serves");
        ids.push(cluster_id_of(&directory));
        let mode = std::fs::metadata(&directory).expect("it is there").mode();
        assert_eq!(mode & 0o777, 0o700, "it holds every secret of the store");
    }
    assert!(ids[0] != ids[1] && ids[1] != ids[2] && ids[0] != ids[2], "{ids:?}");
    let log = std::fs::read_to_string(&cluster.nodes[0].log).expect("a log");
    let wanted =
        ["--into NEW-DIR --bump-revision 2000000000", "save a snapshot once it serves: one that was saved before"];
    assert!(wanted.iter().all(|words| log.contains(words)), "{log}");
}

/// Goal: a crash while the new directory is written leaves the old one in force. Method: what such a crash leaves is put there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_forced_new_cluster_that_was_cut_short_is_begun_again() {
    let mut cluster = Cluster::start(program(), 1).await.expect("a node starts");
    let client = Client::connect(&cluster.endpoints()).await.expect("it answers");
    write_all(&client, "worst").await;
    let directory = cluster.nodes[0].data_dir.clone();
    // A second process on the same directory is refused before it touches anything.
    let second = [&["serve", "--force-new-cluster", "--name", "n1", "--data-dir", text(&directory)][..]];
    let said = hustings(second[0]).failed();
    assert!(said.contains("is in use by another process"), "{said}");
    let id = cluster_id_of(&directory);
    cluster.kill(0);

    let forcing = directory.with_file_name("n1.forcing");
    std::fs::create_dir(&forcing).expect("a directory");
    std::fs::write(forcing.join("forced-new-cluster"), &id).expect("written");
    std::fs::write(forcing.join("wal-next.tmp"), "half a segment").expect("written");
    cluster.start_node_with(0, &["--force-new-cluster"]).expect("it starts");
    cluster.wait_until_serving(0).await.expect("it serves");
    read_all(&Client::connect(&cluster.endpoints()).await.expect("it answers"), "worst").await;
    assert!(!forcing.exists() && beside(&directory, ".before-").len() == 1);
    cluster.kill(0);

    // Only a directory that was made here is removed.
    std::fs::remove_file(directory.join("forced-new-cluster")).expect("it is there");
    std::fs::create_dir(&forcing).expect("a directory");
    std::fs::write(forcing.join("precious"), "data").expect("written");
    cluster.start_node_with(0, &["--force-new-cluster"]).expect("it starts");
    assert_eq!(cluster.wait_for_end(0).expect("it ends"), Some(1));
    assert!(forcing.join("precious").exists());
    assert!(std::fs::read_to_string(&cluster.nodes[0].log).expect("a log").contains("move it away"));
}

/// Goal: a directory that cannot be recovered from is named with its remedy, and nothing is made of it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn directories_that_cannot_be_recovered_from_are_named() {
    let mut cluster = Cluster::start(program(), 2).await.expect("two nodes start");
    let client = Client::connect(&cluster.endpoints()).await.expect("a node answers");
    write_all(&client, "worst").await;
    cluster.hashes().await.expect("all hold the same");
    let (one, two) = (cluster.nodes[0].data_dir.clone(), cluster.nodes[1].data_dir.clone());
    let new = cluster.directory().join("recovered");
    let into = ["--into", text(&new)];
    let said = recover(&[&one], &into).failed();
    assert!(said.contains("in use by another process (pid") && said.contains("stop it first"), "{said}");
    cluster.terminate(0).expect("it ends");
    cluster.terminate(1).expect("it ends");

    let copy = cluster.directory().join("copy");
    assert!(run(Command::new("cp").arg("-r").arg(&one).arg(&copy)).code == Some(0));
    let said = recover(&[&one, &copy], &into).failed();
    assert!(said.contains("are both of member n1"), "{said}");
    let said = recover(&[&one], &["--lost", "n7", "--into", text(&new)]).failed();
    assert!(said.contains("those are: n2"), "{said}");
    let said = recover(&[&one], &["--lost", "n2", "--into", text(&two)]).failed();
    assert!(said.contains("not empty"), "{said}");
    let said = recover(&[Path::new("/nonexistent"), &one], &into).failed();
    assert!(said.contains("/nonexistent holds no member"), "{said}");

    let mut other = Cluster::start(program().with(&["--protocol", "zab"]), 1).await.expect("a node starts");
    other.terminate(0).expect("it ends");
    let said = recover(&[&one, &other.nodes[0].data_dir], &into).failed();
    assert!(said.contains("belongs to cluster") && said.contains("give directories of one cluster"), "{said}");

    damage(&copy);
    let ended = recover(&[&two, &copy], &into);
    let said = format!("{}{}", ended.stdout, ended.stderr);
    assert!(
        ended.code == Some(1) && said.contains("is damaged: leave it out") && said.contains("cannot be used"),
        "{said}"
    );
    assert!(!new.exists(), "nothing was made of any of them");

    let empty = cluster.directory().join("empty");
    let said = hustings(&["serve", "--force-new-cluster", "--name", "n1", "--data-dir", text(&empty)]).failed();
    assert!(said.contains("holds no member") && said.contains("take the flag out"), "{said}");
    assert!(!empty.exists(), "no empty cluster is begun");

    // Both are whole: a quorum is here, and the remedy is to start it, unless somebody insists.
    let shown = recover(&[&one, &two], &[]).ok();
    assert!(shown.contains("a quorum is here") && !shown.contains("to go on from here"), "{shown}");
    let said = recover(&[&one, &two], &into).failed();
    assert!(said.contains("start n1 and n2 on these directories") && said.contains("--even-with-quorum"), "{said}");
    assert!(!new.exists(), "nothing is left of a refusal");
    recover(&[&one, &two], &[&into[..], &["--even-with-quorum"]].concat()).ok();
    assert!(new.exists());
}

/// Goal: a disk that was put back from an old copy does not speak for its member. Method: n1 is down while n2 and n3 acknowledge; n2 comes
/// back on a copy from before, n3 refuses it, and then n3's disk is gone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_said_to_be_kept_for_the_sake_of_an_old_copy() {
    let mut cluster = Cluster::start(program(), 3).await.expect("three nodes start");
    let client = Client::connect(&[&cluster.nodes[1].client, &cluster.nodes[2].client]).await.expect("a node answers");
    write_all(&client, "worst").await;
    until_described(&client).await;
    cluster.hashes().await.expect("all hold the same");
    cluster.terminate(1).expect("it ends");
    let (one, two) = (cluster.nodes[0].data_dir.clone(), cluster.nodes[1].data_dir.clone());
    let sunday = cluster.directory().join("sunday");
    copy(&two, &sunday);
    cluster.start_node(1).expect("it starts");
    cluster.wait_until_serving(1).await.expect("it serves");
    cluster.terminate(0).expect("it ends");
    write_all(&client, "later").await;
    cluster.terminate(1).expect("it ends");
    copy(&sunday, &two);
    cluster.start_node(1).expect("it starts");
    assert_eq!(cluster.wait_for_end(1).expect("it ends"), Some(1), "n3 refuses it");
    let inspected = hustings(&["inspect", text(&two)]);
    assert!(inspected.code == Some(1) && inspected.stdout.contains("REFUSED     by other members: "), "{inspected:?}");
    cluster.kill(2);
    std::fs::remove_dir_all(&cluster.nodes[2].data_dir).expect("its disk is gone");

    let new = cluster.directory().join("new");
    let refused = recover(&[&one, &two], &["--into", text(&new)]);
    let said = format!("{}{}", refused.stdout, refused.stderr);
    assert!(refused.code == Some(1) && said.contains("--lost n2,n3") && !new.exists(), "{said}");
    assert!(said.contains("may be lost: what n2 and n3 acknowledged") && !said.contains("nothing that was"), "{said}");
    recover(&[&one, &two], &["--lost", "n2,n3", "--into", text(&new)]).ok();
    // The copy that nobody refused: n3 would know, and is gone.
    let shown = recover(&[&one, &sunday], &[]).ok();
    assert!(shown.contains("a quorum is here: start n1 and n2 on"), "{shown}");
}

/// Goal: nobody founds a second cluster beside a living one, however sure the operator is. Method: n1 is stopped and the others are
/// given up by `--lost`: while they serve, while one of them stands still, while one is left alone, and once both are dead.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_recovery_asks_the_lost_members_before_it_founds_a_cluster() {
    let mut cluster = Cluster::start(program(), 3).await.expect("three nodes start");
    let client = Client::connect(&cluster.endpoints()).await.expect("a node answers");
    write_all(&client, "worst").await;
    until_described(&client).await;
    cluster.hashes().await.expect("all hold the same");
    cluster.terminate(0).expect("it ends");
    for position in [1, 2] {
        cluster.wait_until_serving(position).await.expect("two of three serve");
    }
    let (old, new) = (cluster.nodes[0].data_dir.clone(), cluster.directory().join("new"));
    let into = ["--lost", "n2,n3", "--into", text(&new)];

    let said = recover(&[&old], &into).failed();
    let named = [1, 2].map(|position| &cluster.nodes[position]);
    let named = named.iter().any(|node| said.contains(&format!("{} answers at {}", node.name, node.client)));
    assert!(named && said.contains("serves the old cluster") && said.contains("--even-if-alive"), "{said}");
    assert!(!new.exists(), "nothing is left of a refusal");

    // One stands still, and the other alone knows no leader before long.
    cluster.nodes[1].pause().expect("it stands still");
    let still = format!("n2: somebody answers at {}", cluster.nodes[1].client);
    let said = wait_for("the one that is left to serve no more", async || {
        Some(recover(&[&old], &into).failed()).filter(|said| said.contains(&still))
    });
    let said = said.await.expect("it is told of");
    assert!(said.contains("says nothing") && said.contains("--even-if-alive"), "{said}");
    let beside = cluster.directory().join("beside");
    let made = recover(&[&old], &["--lost", "n2,n3", "--into", text(&beside), "--even-if-alive"]).ok();
    assert!(made.contains(&still) && made.contains("made "), "whoever insists is told beside whom: {made}");

    cluster.kill(1);
    let made = json(recover(&[&old], &[&into[..], &["-o", "json"]].concat()));
    let answers: Vec<&str> = made["made"]["asked"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|asked| asked["answer"].as_str().expect("a word"))
        .collect();
    assert_eq!(answers, ["silent", "silent", "other"], "n3 answers, and nobody leads: {made}");
    for phase in ["read", "choose", "ask", "write"] {
        assert!(made["made"]["took_millis"][phase].is_u64(), "{phase}: {made}");
    }

    cluster.kill(2);
    let last = cluster.directory().join("last");
    let made = recover(&[&old], &["--lost", "n2,n3", "--into", text(&last)]).ok();
    assert!(!made.contains("answers") && last.exists(), "nobody is there: {made}");
    assert!(
        made.contains("one that was saved before must be restored with --bump-revision 2000000000 or more"),
        "{made}"
    );
    let took = made.lines().find(|line| line.starts_with("took: ")).expect("it says how long it took");
    assert!(["read ", "choose ", "ask ", "write "].iter().all(|phase| took.contains(phase)), "{took}");
}

/// Flips one bit of an entry that was durable.
fn damage(directory: &Path) {
    let segment = directory.join("wal-0000000000000001.seg");
    let mut bytes = std::fs::read(&segment).expect("it is there");
    let place = bytes.windows(8).position(|window| window == b"worst/10").expect("it was written");
    bytes[place] ^= 0x20;
    std::fs::write(&segment, bytes).expect("it can be written");
}

/// Goal: a member that comes back with less than it had hears what happened to it, who says so, and what to do; and that helps.
/// Method: its directory is deleted, then an old copy put back, then a bit flipped; then the remedy, word by word.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deleted_an_old_and_a_damaged_directory_are_told_apart() {
    let mut cluster = Cluster::start(program(), 3).await.expect("three nodes start");
    let client = Client::connect(&[&cluster.nodes[0].client, &cluster.nodes[1].client]).await.expect("a node answers");
    write_all(&client, "worst").await;
    until_described(&client).await;
    cluster.hashes().await.expect("all hold the same");
    let directory = cluster.nodes[2].data_dir.clone();
    let (old, newest) = (cluster.directory().join("old"), cluster.directory().join("newest"));
    cluster.terminate(2).expect("it ends");
    copy(&directory, &old);
    cluster.start_node(2).expect("it starts");
    cluster.wait_until_serving(2).await.expect("it serves");
    write_all(&client, "later").await;
    cluster.hashes().await.expect("all hold the same");
    cluster.terminate(2).expect("it ends");
    copy(&directory, &newest);

    // Each start has a log of its own.
    let told = async |cluster: &mut Cluster, name: &str, wanted: &[&str]| {
        cluster.nodes[2].log = cluster.directory().join(name);
        cluster.start_node(2).expect("it starts");
        let log = cluster.nodes[2].log.clone();
        let said = wait_for(name, async || {
            let said = std::fs::read_to_string(&log).ok()?;
            wanted.iter().all(|word| said.contains(word)).then_some(said)
        });
        said.await.unwrap_or_else(|error| panic!("{error}: {:?}", std::fs::read_to_string(&log)))
    };
    let remedy = ["`hustings member remove", "`hustings member add"];
    std::fs::remove_dir_all(&directory).expect("it can be removed");
    let words =
        [&["says: the data directory of n3 is not the one that the cluster knows", "was it deleted?"][..], &remedy]
            .concat();
    let said = told(&mut cluster, "deleted.log", &words).await;
    assert!(!said.contains("is older than") && !said.contains("is damaged"), "{said}");
    cluster.kill(2);

    copy(&old, &directory);
    let words =
        [&["says: the data directory of n3 is older than what n3 has acknowledged", "batches of its log"][..], &remedy]
            .concat();
    let said = told(&mut cluster, "old.log", &words).await;
    assert!(!said.contains("is not the one") && !said.contains("is damaged"), "{said}");
    assert_eq!(cluster.wait_for_end(2).expect("it ends"), Some(1));

    copy(&newest, &directory);
    damage(&directory);
    let words = [&["wal-0000000000000001.seg is damaged at byte", "nothing was changed"][..], &remedy].concat();
    told(&mut cluster, "damaged.log", &words).await;
    assert_eq!(cluster.wait_for_end(2).expect("it ends"), Some(1));

    // The remedy, as it was told.
    let endpoints = cluster.nodes[0].client.clone();
    hustings(&["member", "remove", "3", "--endpoints", &endpoints]).ok();
    std::fs::remove_dir_all(&directory).expect("it can be removed");
    let added =
        hustings(&["member", "add", "n3", "--peer-urls", &cluster.nodes[2].advertised, "--endpoints", &endpoints]);
    let token = added.stderr.split_once("--join-token ").map_or("", |(_, rest)| &rest[..16]).to_string();
    assert_eq!(added.code, Some(0), "{added:?}");
    cluster.join_with(2, &["--join-token", &token]).expect("it starts");
    cluster.wait_until_serving(2).await.expect("it serves");
    cluster.hashes().await.expect("all hold the same");
}
