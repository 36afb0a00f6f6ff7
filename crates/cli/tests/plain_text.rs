//! Goal: where one end speaks TLS and the other does not, both say so, and what to change. Method: real members, on the client port and on
//! the peer port; a client and a member that were told the wrong scheme. A client without TLS at a port that speaks it is in `tls.rs`.

use crate::support::{HUSTINGS, Running, hustings, program, text, wait_for_line};
use crate::town::Town;
use hustings_testbed::{Cluster, free_ports, wait_for};
use hustings_tls::made::Subject;
use std::process::Command;

/// Goal: a client that speaks TLS to a member without is told to say `http://`. Method: what is asked most, whatever it believes.
#[tokio::test]
async fn a_client_that_speaks_tls_to_a_plain_port_is_told_the_scheme() {
    let cluster = Cluster::start(program(), 1).await.expect("a member without TLS");
    let member = &cluster.nodes[0];
    let town = Town::found();
    let secured = member.client.replace("http://", "https://");
    for believing in [&["--insecure-skip-verify"][..], &["--cacert", text(&town.ca)]] {
        for words in [&["put", "key", "value"][..], &["get", "key"], &["status"]] {
            let told = hustings(&[words, &["--endpoints", &secured], believing].concat());
            assert_eq!(told.code, Some(4), "{words:?}: {told:?}");
            let said = format!("{}{}", told.stdout, told.stderr);
            assert!(said.contains("does it speak TLS on this port? If not, say http://, or name no CA"), "{said}");
        }
    }
    wait_for_line(&member.log, "it speaks TLS, and this port does not: give it http://, or this member --cert-file")
        .await;
    assert_eq!(hustings(&["put", "key", "value", "--endpoints", &member.client]).ok().trim(), "OK", "it serves on");
}

/// Waits until a member has said all of this in one line, whatever it said since.
async fn said(member: &mut Running, words: &[&str]) {
    let has_all = |line: &String| words.iter().all(|words| line.contains(words));
    let is_said = async || member.so_far().iter().any(has_all).then_some(());
    if wait_for(&words.join(" ... "), is_said).await.is_err() {
        panic!("{words:?} is not in {:#?}", member.seen);
    }
}

/// Goal: a cluster that is half in TLS says at both ends what keeps its members apart. Method: two members; each was told that all speak as
/// it does, one of them `https://` and the other `http://`.
#[tokio::test]
async fn members_of_which_one_speaks_tls_say_what_keeps_them_apart() {
    let town = Town::found();
    let pair = town.issue("secured", &Subject::new("secured").host("secured").address([127, 0, 0, 1]));
    let base = free_ports(4).expect("four ports in a row are free");
    let names = ["secured", "plain"];
    let member = |position: u16, scheme: &str| {
        let peer = |position: u16| format!("{scheme}://127.0.0.1:{}", base + 2 * position + 1);
        let (name, client) = (names[usize::from(position)], format!("http://127.0.0.1:{}", base + 2 * position));
        let mut command = Command::new(HUSTINGS);
        command.args(["serve", "--name", name, "--log-format", "human", "--log-outputs", "stdout"]);
        command.args(["--listen-client-urls", &client, "--listen-peer-urls", &peer(position)]);
        command.args(["--initial-cluster", &format!("{}={},{}={}", names[0], peer(0), names[1], peer(1))]);
        command.arg("--data-dir").arg(town.path(name));
        command
    };
    let mut plain = Running::start(&mut member(1, "http"));
    said(&mut plain, &["1 of 2 voters reachable; secured silent"]).await;
    let mut command = member(0, "https");
    command.arg("--peer-cert-file").arg(&pair.certificate).arg("--peer-key-file").arg(&pair.key);
    let mut secured = Running::start(command.arg("--peer-trusted-ca-file").arg(&town.ca));

    let remedy = "it speaks TLS, and this port does not: give this member --peer-cert-file and https:// peer URLs";
    said(&mut plain, &["a peer was turned away", remedy]).await;
    let remedy = "it speaks no TLS, which this port asks for: give it https:// peer URLs and --peer-cert-file";
    said(&mut secured, &["a peer was turned away", remedy]).await;
    // The one that dials in TLS says it of the voter that it misses, too.
    let remedy = "does it speak TLS on this port? If not, give that member https:// peer URLs and --peer-cert-file";
    said(&mut secured, &["1 of 2 voters reachable; plain silent for", remedy]).await;
}
