//! Goal: members that speak TLS to each other are a cluster as any other, and a peer that shows no certificate, a wrong
//! one, or another member's gets no link. Method: nodes in one process with certificates of a CA made for the story.

mod support;

use hustings_core::{ApplyVersion, Change, Lsn, Member, MembershipChange, NodeId};
use hustings_node::{NodeConfig, PeerTls, discover};
use hustings_tls::made::{Authority, Subject};
use hustings_tls::{Acceptor, ClientTls, Connector, Identity, Pair, Rules, ServerTls, Trust, end_answered};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use support::greeting::{Greeting, REFUSAL, hear, say};
use support::lifelines::until_all_hold_lifelines;
use support::{DAM, Troupe, free_addresses, in_time, named, propose, run, until};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// TLS settings of a member that has this certificate and believes this CA.
fn speaking(pair: &Pair, ca: &Path) -> PeerTls {
    let identity = Identity::Files(pair.clone());
    let server = ServerTls {
        of: "peer",
        identity: identity.clone(),
        trusted_ca: Some(ca.to_owned()),
        revoked: None,
        allowed: None,
        rules: Rules::default(),
        protocols: Vec::new(),
    };
    let client = ClientTls {
        of: "peer",
        trust: Trust::Authority(ca.to_owned()),
        identity: Some(identity),
        revoked: None,
        allowed: None,
        rules: Rules::default(),
        protocols: Vec::new(),
        server_name: None,
    };
    PeerTls {
        acceptor: Some(Acceptor::new(server).expect("its files are good")),
        connector: Some(Connector::new(client).expect("its files are good")),
        binds_identity: true,
    }
}

/// Three founders with certificates of their own, none of them started.
fn encrypted() -> (Troupe, Authority) {
    let mut troupe = Troupe::of(3);
    let authority = Authority::new("the troupe's CA").expect("made");
    let directory = troupe.directory.path().to_owned();
    let ca = authority.write_certificate(&directory).expect("written");
    let ids: Vec<NodeId> = troupe.founding.voters.iter().copied().collect();
    for id in ids {
        let name = named(id);
        let made = authority.issue(&Subject::new(&name).address([127, 0, 0, 1])).expect("issued");
        let pair = made.write(&directory, &name).expect("written");
        troupe.tls.insert(id, speaking(&pair, &ca));
        for url in &mut troupe.founding.members.get_mut(&id).expect("a founder").peer_urls {
            *url = url.replace("http://", "https://");
        }
    }
    (troupe, authority)
}

#[tokio::test]
async fn a_cluster_in_tls_replicates_and_a_member_that_was_away_catches_up() {
    let (mut troupe, _) = encrypted();
    troupe.start_all();
    // Which are in plain text, at the same port.
    until_all_hold_lifelines(&troupe).await;
    let leader = troupe.leader().await;
    let away = troupe.founding.voters.iter().copied().find(|id| *id != leader).expect("three members");
    troupe.stop(away).await;
    // The text is longer than what one record of TLS holds, and than what a socket takes at once.
    let long = "x".repeat(3 << 20);
    for command in ["short".to_owned(), long] {
        in_time(troupe.handle(leader).propose(command.into())).await.expect("two of three agree");
    }
    let applied = troupe.handle(leader).status().applied;
    troupe.start(away).expect("it starts again");
    until(troupe.handle(away), "it has caught up", |status| status.applied >= applied).await;
}

/// Goal: whoever asks or dials hears the answer in TLS, too. Method: one that no member is asks who it is, before it is added and
/// after; and a member that was removed while it was away comes back.
#[tokio::test]
async fn in_tls_a_newcomer_is_welcomed_and_whoever_is_refused_hears_why() {
    let (mut troupe, authority) = encrypted();
    troupe.start_all();
    let (leader, away) = (troupe.leader().await, troupe.follower().await);
    propose(troupe.handle(leader), "first").await;
    let made = authority.issue(&Subject::new("m4").address([127, 0, 0, 1])).expect("issued");
    let directory = troupe.directory.path().to_owned();
    let tls = speaking(&made.write(&directory, "m4").expect("written"), &directory.join("ca.crt"));
    let newcomer =
        Member { name: "m4".into(), peer_urls: vec![format!("https://{}", free_addresses(1)[0])], ..Member::default() };
    let urls = [format!("https://{}", troupe.addresses[&leader])];
    let ask =
        async || in_time(discover(&urls, &newcomer, "raft", ApplyVersion::FIRST, None, tls.connector.as_ref())).await;
    let refused = ask().await.expect_err("nobody has added it").to_string();
    assert!(refused.contains("add it first"), "{refused}");
    let seat = Member { name: String::new(), ..newcomer.clone() };
    let change = MembershipChange::of([Change::AddLearner(NodeId(4)), Change::Describe(NodeId(4), seat)]);
    in_time(troupe.handle(leader).change_membership(change)).await.expect("it is added");
    assert_eq!(ask().await.expect("it is told").you, NodeId(4));

    troupe.stop(away).await;
    let change = MembershipChange::of([Change::Remove(away)]);
    in_time(troupe.handle(leader).change_membership(change)).await.expect("it is removed");
    let (says, mut said) = tokio::sync::mpsc::unbounded_channel();
    let on_removed: hustings_node::OnFatal = Arc::new(move |why| drop(says.send(why.to_owned())));
    let _removed = run(NodeConfig { on_removed, ..troupe.config_of(away) }).expect("it starts");
    let why = in_time(said.recv()).await.expect("it hears so");
    assert!(why.contains("was removed from the cluster"), "{why}");
}

#[tokio::test]
async fn in_tls_a_member_that_was_away_follows_a_leader_that_joined_meanwhile() {
    let (mut troupe, authority) = encrypted();
    let directory = troupe.directory.path().to_owned();
    let made = authority.issue(&Subject::new("m4").address([127, 0, 0, 1])).expect("issued");
    let pair = made.write(&directory, "m4").expect("written");
    troupe.tls.insert(NodeId(4), speaking(&pair, &directory.join("ca.crt")));
    troupe.start_all();
    troupe.follow_one_that_joined_meanwhile().await;
}

#[tokio::test]
async fn a_member_with_anothers_certificate_gets_no_link() {
    let (mut troupe, authority) = encrypted();
    let ids: Vec<NodeId> = troupe.founding.voters.iter().copied().collect();
    let directory = troupe.directory.path().to_owned();
    let ca = directory.join("ca.crt");
    // The first member's host may have lost its files; the third one uses them.
    let stolen = Pair { certificate: directory.join("m1.crt"), key: directory.join("m1.key") };
    let own = troupe.tls.insert(ids[2], speaking(&stolen, &ca)).expect("it had its own");
    troupe.start_all();
    let two_of_three = |status: &hustings_node::NodeStatus| status.leader.is_some_and(|leader| leader != ids[2]);
    until(troupe.handle(ids[0]), "two elect one of them", two_of_three).await;
    in_time(troupe.handle(ids[0]).propose("without the third".into())).await.expect("two of three agree");
    assert_eq!(troupe.handle(ids[2]).status().applied, Lsn::default(), "nobody tells it anything");
    troupe.stop(ids[2]).await;

    // With its own, and with a new one of the same name, it is welcome.
    troupe.tls.insert(ids[2], own);
    troupe.start(ids[2]).expect("it starts again");
    until(troupe.handle(ids[2]), "it follows", |status| status.applied > Lsn::default()).await;
    troupe.stop(ids[2]).await;
    let renewed = authority.issue(&Subject::new("m3").address([127, 0, 0, 1])).expect("issued");
    let pair = renewed.write(&directory, "renewed").expect("written");
    troupe.tls.insert(ids[2], speaking(&pair, &ca));
    troupe.start(ids[2]).expect("it starts again");
    in_time(troupe.handle(ids[0]).propose("with the third".into())).await.expect("they agree");
    let applied = troupe.handle(ids[0]).status().applied;
    until(troupe.handle(ids[2]), "it follows", |status| status.applied >= applied).await;
}

/// Goal: whoever answers in a member's place with a certificate that is not that member's ends no node, whatever it says. Method: m3 is away,
/// and somebody with the files of m2 answers at its port that the others are removed and rolled back, until each has dialled again twice.
#[tokio::test]
async fn who_answers_with_anothers_certificate_ends_nobody() {
    let (mut troupe, _) = encrypted();
    let ids: Vec<NodeId> = troupe.founding.voters.iter().copied().collect();
    let place = TcpListener::bind(troupe.addresses[&ids[2]]).await.expect("the port is free");
    let stolen = troupe.tls[&ids[1]].acceptor.clone().expect("it has a port");
    for id in &ids[..2] {
        troupe.start(*id).expect("it starts");
    }
    let mut dials: BTreeMap<u64, u32> = ids[..2].iter().map(|id| (id.0, 0)).collect();
    while dials.values().any(|dials| *dials < 3) {
        let (stream, _) = in_time(place.accept()).await.expect("it is dialled");
        let (mut stream, _) = in_time(stolen.accept(stream)).await.expect("the same CA signed both");
        let caller = hear(&mut stream).await.from;
        *dials.get_mut(&caller).expect("one of the two") += 1;
        let (version, text) = (2, format!("{caller} is to end"));
        let refusal = Greeting { version, version_min: 2, kind: REFUSAL, text, ..Greeting::default() };
        say(&mut stream, &Greeting { is_removed: true, is_rolled_back: true, ..refusal }).await;
        end_answered(stream).await;
    }
    let leader = troupe.leader().await;
    in_time(troupe.handle(leader).propose("they go on".into())).await.expect("two of three agree");
}

#[tokio::test]
async fn strangers_at_a_port_in_tls_change_nothing() {
    let (mut troupe, _) = encrypted();
    troupe.start_all();
    let leader = troupe.leader().await;
    let term = troupe.handle(leader).status().term;
    for said in
        [&b"HUST\x05\x00\x00\x00garbage"[..], b"GET / HTTP/1.1\r\n\r\n", &[0x16, 3, 1, 0xff, 0xff, 1], &[0; 4096]]
    {
        let mut stream = TcpStream::connect(troupe.addresses[&leader]).await.expect("it accepts");
        stream.write_all(said).await.expect("it reads");
        stream.shutdown().await.expect("it is open");
        // It may answer with an alert, and then it hangs up; a reset is an end too.
        let mut answer = Vec::new();
        let _ = in_time(stream.read_to_end(&mut answer)).await;
        assert!(answer.len() < 16, "{said:?} was told {answer:?}");
    }
    in_time(troupe.handle(leader).propose("all is well".into())).await.expect("they agree");
    assert_eq!(troupe.handle(leader).status().term, term);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_handshake_takes_nothing_from_the_loop() {
    // Goal: strangers decide how many handshakes there are, and no election waits for one. Method: the loop of a member alone is held
    // up, and a peer that dials its port shakes hands with it all the same.
    let mut troupe = Troupe::of(1);
    let authority = Authority::new("the troupe's CA").expect("made");
    let directory = troupe.directory.path().to_owned();
    let ca = authority.write_certificate(&directory).expect("written");
    let (id, address) = troupe.addresses.first_key_value().map(|(id, address)| (*id, *address)).expect("one member");
    let made = authority.issue(&Subject::new("m1").address([127, 0, 0, 1])).expect("issued");
    let tls = speaking(&made.write(&directory, "m1").expect("written"), &ca);
    let connector = tls.connector.clone().expect("it dials");
    troupe.tls.insert(id, tls);
    troupe.start_all();
    assert_eq!(troupe.leader().await, id);
    let handle = troupe.handle(id).clone();
    let held = tokio::spawn(async move { propose(&handle, "hold").await });
    in_time(DAM.reached.notified()).await;
    for _ in 0..100 {
        let stream = TcpStream::connect(address).await.expect("it accepts");
        in_time(connector.connect("127.0.0.1", stream)).await.expect("it shakes hands");
    }
    DAM.open();
    assert_eq!(in_time(held).await.expect("applied"), 1);
}
