//! Goal: everything that is wrong is refused in words that name it and its remedy, and a cluster that serves goes on
//! serving. Method: every misconfiguration, foreign directory, full disk and hostile byte, against real processes.

use crate::support::{Ended, HUSTINGS, hustings, program, run, throw};
use hustings_api::Client;
use hustings_api::etcdserverpb::alarm_request::AlarmAction;
use hustings_api::etcdserverpb::{AlarmRequest, AlarmType, DeleteRangeRequest, MemberListRequest, RangeRequest};
use hustings_testbed::{Cluster, free_port, get, put, wait_for};
use std::io::Write as _;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// `serve` with ports that are free, and these arguments.
fn serve(directory: &Path, arguments: &[&str]) -> Ended {
    let url = || format!("http://127.0.0.1:{}", free_port().expect("a port is free"));
    let (client, peer) = (url(), url());
    let mut command = Command::new(HUSTINGS);
    command.args(["serve", "--log-format", "json", "--data-dir"]).arg(directory);
    if !arguments.contains(&"--listen-client-urls") {
        command.args(["--listen-client-urls", &client]);
    }
    if !arguments.contains(&"--listen-peer-urls") {
        command.args(["--listen-peer-urls", &peer]);
    }
    run(command.args(arguments))
}

#[track_caller]
fn assert_says(ended: Ended, words: &[&str]) {
    assert!(ended.code.is_some_and(|code| code != 0), "{ended:?}");
    assert!(ended.took < Duration::from_secs(5), "it took its time: {ended:?}");
    assert!(!ended.stderr.contains("panicked"), "{ended:?}");
    for word in words {
        assert!(ended.stderr.contains(word), "no {word:?} in {ended:?}");
    }
}

#[test]
fn a_wrong_setting_is_named_with_its_remedy() {
    let directory = tempfile::tempdir().expect("a directory");
    let data = directory.path().join("data");
    let rows: [(&[&str], &[&str]); 13] = [
        (
            &["--protocol-options", "speed=9"],
            &["`raft` has no option `speed`", "pre-vote=<true|false>", "check-quorum="],
        ),
        (
            &["--protocol", "blazingmq", "--protocol-options", "partitions=8,speed=9"],
            &["`blazingmq` has no option `speed`", "partitions=<0 to 4096>", "placement=<leader|least-assigned>"],
        ),
        (&["--protocol", "gmt2000", "--protocol-options", "speed=9"], &["`gmt2000` has no options"]),
        (&["--protocol", "zab", "--protocol-options", "speed=9"], &["`zab` has no option `speed`", "counter-max="]),
        (&["--protocol", "paxos", "--protocol-options", "speed=9"], &["`paxos` has no option `speed`", "quorums="]),
        (
            &["--protocol", "paxos", "--protocol-options", "quorums=some"],
            &["option `quorums` of protocol `paxos` takes even-nodes|majority|PROMISES/ACCEPTS, not `some`"],
        ),
        (&["--protocol", "craft"], &["no protocol `craft`", "choose one of: raft, gmt2000, blazingmq, zab, paxos"]),
        (
            &["--protocol", "gmt2000-as-published"],
            &["no protocol `gmt2000-as-published`", "choose one of: raft, gmt2000, blazingmq, zab, paxos"],
        ),
        (&["--name", "a", "--initial-cluster", "b=http://h:1"], &["\"a\", is not among them"]),
        (&["--name", "a", "--initial-cluster", "a=http://h:1,b=http://h:1"], &["have the same peer URL"]),
        (&["--name", "a", "--initial-cluster", "a=http://h:1,a=http://h:1"], &["stands twice"]),
        (
            &["--listen-peer-urls", "https://127.0.0.1:1"],
            &["there is no certificate: give --peer-cert-file and --peer-key-file"],
        ),
        (&["--config", "/nonexistent.toml"], &["/nonexistent.toml"]),
    ];
    for (arguments, words) in rows {
        assert_says(serve(&data, arguments), words);
    }
    assert!(!data.exists(), "nothing is created for a setting that is wrong");
    assert_eq!(hustings(&["serve", "--no-such-flag"]).code, Some(2));
}

#[test]
fn words_of_other_tools_are_answered_with_ours() {
    for (typed, ours) in [
        (&["version"][..], "`hustings --version`"),
        (&["delete", "key"], "`hustings del`"),
        (&["move-leader", "n1"], "`hustings transfer MEMBER`"),
        (&["endpoint", "health"], "`hustings status`"),
        (&["get", "key", "-w", "json"], "`-o json`"),
        (&["status", "-w", "json"], "`-o json`"),
    ] {
        let ended = hustings(typed);
        assert!(ended.code == Some(2) && ended.stderr.contains(ours), "{typed:?}: {ended:?}");
        assert!(!ended.stderr.contains("similar"), "one tip is enough: {ended:?}");
    }
    let ended = hustings(&["statsu"]);
    assert!(ended.stderr.contains("a similar subcommand exists: 'status'"), "{ended:?}");
}

#[test]
fn a_port_in_use_is_named() {
    let directory = tempfile::tempdir().expect("a directory");
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let address = taken.local_addr().expect("it is bound").to_string();
    let url = format!("http://{address}");
    let data = directory.path().join("data");
    assert_says(serve(&data, &["--listen-client-urls", &url]), &["cannot listen for clients on", &address]);
    assert_says(serve(&data, &["--listen-peer-urls", &url]), &["cannot listen for peers on", &address]);
}

#[test]
fn a_directory_that_cannot_be_used_is_named() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("file");
    std::fs::write(&file, "no directory").expect("it can be written");
    assert_says(serve(&file, &[]), &["/file"]);
    let mount = Mount::new(directory.path().join("read-only"), "ro,size=1m");
    assert_says(serve(&mount.0.join("data"), &[]), &["/read-only/data", "Read-only file system"]);
}

/// A small file system of its own, gone when dropped.
struct Mount(std::path::PathBuf);

impl Mount {
    fn new(path: std::path::PathBuf, options: &str) -> Mount {
        std::fs::create_dir(&path).expect("it can be created");
        let mounted = run(Command::new("mount").args(["-t", "tmpfs", "-o", options, "tmpfs"]).arg(&path));
        assert_eq!(mounted.code, Some(0), "this test mounts a tmpfs: run it as root ({mounted:?})");
        Mount(path)
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_directory_of_someone_else_is_refused_and_left_alone() {
    let mut cluster = Cluster::start(program(), 1).await.expect("a node starts");
    let data = cluster.nodes[0].data_dir.clone();
    let pid = cluster.nodes[0].pid().expect("it runs");
    let said = serve(&data, &["--name", "n1"]);
    assert!(said.took < Duration::from_secs(5), "it waited for the other to end: {said:?}");
    assert_says(said, &["in use by another process", &pid.to_string()]);
    cluster.terminate(0).expect("it ends");

    let meta = data.join("meta");
    let whole = std::fs::read(&meta).expect("it is there");
    let mut newer = whole.clone();
    // The next format, with the checksum that goes with it.
    let (format, next) = (hustings_wal::meta::FORMAT, hustings_wal::meta::FORMAT_VERSIONED + 1);
    newer[8..12].copy_from_slice(&next.to_le_bytes());
    let checksum = crc32c_of(&[&next.to_le_bytes(), &whole[20..]]);
    newer[16..20].copy_from_slice(&checksum.to_le_bytes());
    std::fs::write(&meta, &newer).expect("it can be written");
    let (found, supported) = (format!("format {next}"), format!("up to format {format}"));
    assert_says(serve(&data, &["--name", "n1"]), &[&found, &supported]);
    let mut rotten = whole.clone();
    rotten[30] ^= 1;
    std::fs::write(&meta, &rotten).expect("it can be written");
    assert_says(serve(&data, &["--name", "n1"]), &["meta", "checksum"]);
    std::fs::write(&meta, &whole).expect("it can be written");
    cluster.start_node(0).expect("it starts");
    cluster.wait_until_serving(0).await.expect("nothing was lost by asking");
}

/// CRC32C, bit by bit.
fn crc32c_of(parts: &[&[u8]]) -> u32 {
    let bits = parts.iter().flat_map(|part| part.iter()).fold(!0u32, |state, byte| {
        (0..8).fold(
            state ^ u32::from(*byte),
            |state, _| if state & 1 == 1 { state >> 1 ^ 0x82f6_3b78 } else { state >> 1 },
        )
    });
    !bits
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hostile_bytes_on_any_port_hurt_nobody() {
    let mut cluster = Cluster::start(program(), 3).await.expect("three nodes start");
    let client = Client::connect(&cluster.endpoints()).await.expect("a node answers");
    let random: Vec<u8> = (0..20_000u32).map(|number| (number.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let bombs: [&[u8]; 8] = [
        b"",
        b"GET / HTTP/1.1\r\nHost: h\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\xff\xff\xff\xff\xff\xff\xff\xff\xff",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        &[0xff; 64],
        &[0x00; 4_096],
        b"\xff\xff\xff\x7f\x00\x00\x00\x00",
        &random,
    ];
    let silence = Duration::from_millis(20);
    for (round, bomb) in bombs.iter().enumerate() {
        for node in &cluster.nodes {
            throw(&node.peer, bomb, silence);
            throw(&node.client, bomb, silence);
        }
        put(&client, "bombed", &round.to_string()).await.expect("it serves on");
    }
    let follower = (cluster.leader().await.expect("a leader") + 1) % 3;
    cluster.kill(follower);
    cluster.start_node(follower).expect("it starts");
    cluster.wait_until_serving(follower).await.expect("a killed peer still rejoins");
    assert_eq!(cluster.hashes().await.expect("all answer").len(), 3);
    for node in &cluster.nodes {
        let log = std::fs::read_to_string(&node.log).expect("it has a log");
        assert!(!log.contains("panicked"), "{log}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stranger_of_another_cluster_is_told_so_and_gets_nowhere() {
    let mut cluster = Cluster::start(program(), 3).await.expect("three nodes start");
    let leader = cluster.leader().await.expect("a leader");
    let stranger = (leader + 1) % 3;
    cluster.kill(stranger);
    std::fs::rename(&cluster.nodes[stranger].data_dir, cluster.directory().join("aside")).expect("it can be moved");
    // Same name, same ports, another token: the first start of a node that belongs elsewhere.
    let members: Vec<String> = cluster.nodes.iter().map(|node| format!("{}={}", node.name, node.peer)).collect();
    let node = &cluster.nodes[stranger];
    let mut running = crate::support::Running::start(
        Command::new("sh")
            .arg("-c")
            .arg("exec \"$0\" \"$@\" 2>&1")
            .arg(HUSTINGS)
            .args(["serve", "--exit-with-parent"])
            .args([
                "--log-format",
                "json",
                "--name",
                &node.name,
                "--initial-cluster",
                &members.join(","),
                "--initial-cluster-token",
                "elsewhere",
                "--listen-client-urls",
                &node.client,
                "--listen-peer-urls",
                &node.peer,
                "--data-dir",
                node.data_dir.to_str().expect("text"),
            ]),
    );
    let said = running.line_with("this is cluster");
    assert!(said.contains("--initial-cluster-token"), "{said}");
    let client = Client::connect(&[&cluster.nodes[leader].client]).await.expect("it answers");
    put(&client, "among", "ourselves").await.expect("two of three serve");
    drop(running);
    std::fs::remove_dir_all(&cluster.nodes[stranger].data_dir).expect("it can be removed");
    std::fs::rename(cluster.directory().join("aside"), &cluster.nodes[stranger].data_dir).expect("it can be moved");
    cluster.start_node(stranger).expect("it starts");
    cluster.wait_until_serving(stranger).await.expect("the true one is welcome");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wiped_directory_is_no_voter_until_its_member_is_added_anew() {
    let mut cluster = Cluster::start(program(), 3).await.expect("three nodes start");
    let leader = cluster.leader().await.expect("a leader");
    let (wiped, third) = ((leader + 1) % 3, (leader + 2) % 3);
    let client = Client::connect(&[&cluster.nodes[leader].client]).await.expect("it answers");
    put(&client, "kept", "by two").await.expect("it is written");
    // The cluster must have learnt which disk is whose.
    cluster.hashes().await.expect("all answer");
    wait_for("every member's storage to be known", async || {
        let members = client.cluster().member_list(MemberListRequest::default()).await.ok()?.into_inner().members;
        members.iter().all(|member| !member.client_urls.is_empty()).then_some(())
    })
    .await
    .expect("members are described");
    cluster.kill(wiped);
    std::fs::remove_dir_all(&cluster.nodes[wiped].data_dir).expect("it can be removed");
    cluster.start_node(wiped).expect("it starts");
    let log = cluster.nodes[wiped].log.clone();
    wait_for("the others to refuse it", async || {
        std::fs::read_to_string(&log).ok()?.contains("remove the member and add it again").then_some(())
    })
    .await
    .expect("it is told");
    // With one of the two others gone there is no majority: the wiped one does not make it.
    cluster.kill(third);
    let writing = tokio::time::timeout(Duration::from_secs(2), put(&client, "voted", "by an amnesiac")).await;
    assert!(!matches!(writing, Ok(Ok(_))), "a node without its promises voted");
    cluster.start_node(third).expect("it starts");
    cluster.wait_until_serving(third).await.expect("it serves");
    let found = get(&client, "kept").await.expect("a read").map(|(value, _)| value);
    assert_eq!(found, Some("by two".into()));
}

/// Goal: a full disk ends nobody, and there is a way out. Method: the third member's disk is small. Puts fill it until the alarm
/// refuses them; what the alarm still lets through fills the rest; then the disk grows.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_whose_disk_is_full_raises_the_alarm_stays_and_goes_on_once_there_is_room() {
    let mut cluster = Cluster::prepare(program(), 3).expect("ports are free");
    // Enough for the first two segments, of 1 MiB and 4 MiB, and not for the third, of 16 MiB.
    let mount = Mount::new(cluster.directory().join("small"), "size=8m");
    cluster.nodes[2].data_dir = mount.0.join("data");
    for position in 0..3 {
        cluster.start_node(position).expect("it starts");
    }
    for position in 0..3 {
        cluster.wait_until_serving(position).await.expect("it serves");
    }
    let healthy = [cluster.nodes[0].client.clone(), cluster.nodes[1].client.clone()];
    let client = Client::connect(&healthy).await.expect("one answers");
    let small = Client::connect(&[&cluster.nodes[2].client]).await.expect("it answers");
    put(&client, "before", "the flood").await.expect("there is room");
    let value = "x".repeat(64 << 10);
    let mut number = 0;
    wait_for("the alarm to refuse puts", async || {
        number += 1;
        let refused = put(&client, &format!("large/{number}"), &value).await.err()?;
        refused.message().contains("database space exceeded").then_some(())
    })
    .await
    .expect("it is raised while there is room for it");
    let alarms = async |client: &Client| {
        let asked = AlarmRequest { action: AlarmAction::Get as i32, ..AlarmRequest::default() };
        client.maintenance().alarm(asked).await.expect("it answers").into_inner().alarms
    };
    let raised = alarms(&client).await;
    assert!(raised.len() == 1 && raised[0].alarm == AlarmType::Nospace as i32, "{raised:?}");
    assert_eq!(cluster.has_ended(2).expect("it can be looked at"), None, "a full disk ends nobody");
    let found = get(&small, "before").await.expect("it serves reads").expect("it is there");
    assert_eq!(found.0, "the flood");

    // Deletes free space, so they go on; as entries they take room. The key is long, and absent.
    let log = cluster.nodes[2].log.clone();
    wait_for("the last segment to be full, and its member to wait", async || {
        let delete = DeleteRangeRequest { key: vec![b'k'; 1 << 20].into(), ..DeleteRangeRequest::default() };
        // If the leader is the one that gives way, the next one tells.
        let _ = client.kv().delete_range(delete).await;
        std::fs::read_to_string(&log).ok()?.contains("the disk Stalled").then_some(())
    })
    .await
    .expect("it stands still");
    wait_for("the others to go on", async || {
        let delete = DeleteRangeRequest { key: "large/1".into(), ..DeleteRangeRequest::default() };
        client.kv().delete_range(delete).await.ok()
    })
    .await
    .expect("two of three serve");
    assert_eq!(cluster.has_ended(2).expect("it can be looked at"), None, "nor does one that is full to the brim");
    let local = RangeRequest { key: "before".into(), serializable: true, ..RangeRequest::default() };
    let found = small.kv().range(local).await.expect("it serves what it has").into_inner();
    assert_eq!(found.kvs.len(), 1);

    let grown = run(Command::new("mount").args(["-o", "remount,size=128m"]).arg(&mount.0));
    assert_eq!(grown.code, Some(0), "{grown:?}");
    wait_for("it to go on by itself", async || {
        let same = cluster.hashes().await.ok()?;
        (same.len() == 3 && same.iter().all(|hash| *hash == same[0])).then_some(())
    })
    .await
    .expect("it catches up");
    wait_for("the alarm to be disarmed for good", async || {
        (hustings(&["alarm", "disarm", "--endpoints", &cluster.endpoints().join(",")]).code == Some(0)).then_some(())?;
        put(&client, "after", "the flood").await.ok()
    })
    .await
    .expect("clients write again");
    let said = std::fs::read_to_string(&log).expect("it has a log");
    assert!(said.contains("no room for the log's next segment") && said.contains("alarm disarm"), "{said}");
    for position in 0..3 {
        cluster.kill(position);
    }
}

#[tokio::test]
async fn a_node_whose_log_cannot_be_written_serves() {
    // Goal: H10b, a full log file system ends nobody. Method: standard error is a device that is always full; the first change
    // of leadership is the first line that is lost.
    let directory = tempfile::tempdir().expect("a directory");
    let url = |port: u16| format!("http://127.0.0.1:{port}");
    let (client, peer) = (url(free_port().expect("a port")), url(free_port().expect("a port")));
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").expect("Linux has it");
    let mut command = Command::new(HUSTINGS);
    command.args(["serve", "--name", "n1", "--data-dir"]).arg(directory.path().join("data"));
    command.args(["--listen-client-urls", &client, "--listen-peer-urls", &peer]);
    command.args(["--initial-cluster", &format!("n1={peer}")]);
    let mut child = command.stderr(full).spawn().expect("it starts");
    let served = wait_for("a put", async || {
        let client = Client::connect(std::slice::from_ref(&client)).await.ok()?;
        put(&client, "key", "value").await.ok()
    })
    .await;
    let ended = child.try_wait().expect("an own child can be looked at");
    let _ = child.kill();
    let _ = child.wait();
    assert!(ended.is_none(), "it ended: {ended:?}");
    served.expect("it serves");
}

#[tokio::test]
async fn a_member_that_is_removed_ends_although_nobody_reads_its_log() {
    // Goal: a process whose end is decided ends, whoever does not listen (finding of a hostile reader: it waited for the pipe with all its
    // connections open). Method: standard error of one of three is a full pipe; that one is removed.
    let directory = tempfile::tempdir().expect("a directory");
    let url = |port: u16| format!("http://127.0.0.1:{port}");
    let port = || url(free_port().expect("a port"));
    let members: Vec<(String, String)> = (0..3).map(|_| (port(), port())).collect();
    let founders: Vec<String> =
        members.iter().zip(1..).map(|((_, peer), number)| format!("n{number}={peer}")).collect();
    let (_reader, writer) = std::io::pipe().expect("a pipe");
    rustix::io::ioctl_fionbio(&writer, true).expect("a pipe can be asked not to wait");
    while (&writer).write(&[b'.'; 4_096]).is_ok() {}
    rustix::io::ioctl_fionbio(&writer, false).expect("and to wait again");
    let mut full = Some(writer);
    let mut children: Vec<std::process::Child> = Vec::new();
    for ((client, peer), number) in members.iter().zip(1..) {
        let mut command = Command::new(HUSTINGS);
        command.args(["serve", "--name", &format!("n{number}"), "--data-dir"]);
        command.arg(directory.path().join(format!("n{number}")));
        command.args(["--listen-client-urls", client, "--listen-peer-urls", peer]);
        command.args(["--initial-cluster", &founders.join(",")]);
        command.stderr(full.take_if(|_| number == 3).map_or_else(std::process::Stdio::null, std::process::Stdio::from));
        children.push(command.spawn().expect("it starts"));
    }
    let first = members[0].0.clone();
    let removed = wait_for("the third to be removed", async || {
        let command = Command::new(HUSTINGS).args(["member", "remove", "n3", "--endpoints", &first]).output().ok()?;
        command.status.success().then_some(())
    })
    .await;
    let ended = wait_for("its end", async || children[2].try_wait().ok().flatten()).await;
    children.iter_mut().for_each(|child| drop(child.kill().and_then(|()| child.wait())));
    removed.expect("it is removed");
    assert_eq!(ended.expect("it ends").code(), Some(0));
}
