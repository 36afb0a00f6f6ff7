//! The driver's words when Kubernetes cannot be used as it is.

use crate::server;
use crate::stories::log::{count, keep, says};
use crate::stories::strangers::{Observers, Stranger, denial, is_waited_for, refusal, told, told_of_strangers};
use crate::stories::{campaign, candidate, in_time, token_of, until};
use hustings_election::{CampaignError, Election, Named, StoreAddress, Token, Wish};
use serde_json::json;
use std::time::Duration;

const TTL: Duration = Duration::from_secs(3);

#[tokio::test(flavor = "multi_thread")]
async fn who_is_not_let_in_is_told_so() {
    keep();
    let server = server();
    let url = server.url("billing");
    server.faults(|faults| faults.token = Some("secret".to_owned()));
    let why = denial(&url, TTL, Observers::AreDenied).await;
    assert!(why.contains("401") && why.contains("KUBECONFIG"), "{why}");
    server.faults(|faults| (faults.token, faults.forbidden) = (None, vec!["create", "update"]));
    let why = denial(&url, TTL, Observers::AreShown).await;
    assert!(why.contains(&server.port.to_string()) && why.contains("cannot create resource"), "{why}");
    assert!(why.contains("403") && why.contains("grant the verbs"), "{why}");
    // A candidate that has stood once is told so and tries on: rights that are granted again are used.
    server.faults(|faults| faults.forbidden.clear());
    let office = candidate(&url, TTL, "a");
    let leadership = campaign(&office).await;
    server.faults(|faults| faults.forbidden = vec!["create", "update"]);
    let line = says(&["WARN", "asked again", &server.port.to_string(), "403"]).await;
    assert!(line.contains("grant the verbs"), "{line}");
    in_time("the belief ends", leadership.lost()).await;
    drop(leadership);
    let again = tokio::spawn(async move { campaign(&office).await });
    let asked = server.asked("get");
    until("it looks", || server.asked("get") > asked + 2).await;
    assert!(!again.is_finished(), "it neither leads nor gives up");
    server.faults(|faults| faults.forbidden.clear());
    in_time("the rights are there", again).await.expect("it does not panic").resign("done").await;
}

/// Goal: a cluster that tells nobody its version is used as any other. Method: one that answers with 403 there; and one that lets nobody
/// watch, which says so once and is not asked five times a second.
#[tokio::test(flavor = "multi_thread")]
async fn what_need_not_be_allowed_keeps_nobody_out() {
    keep();
    let server = server();
    server.faults(|faults| faults.forbidden = vec!["version", "watch"]);
    let leadership = campaign(&candidate(&server.url("billing"), TTL, "a")).await;
    let port = server.port.to_string();
    let line = says(&["WARN", &port, "may not be watched", "403"]).await;
    assert!(line.contains("verb watch"), "{line}");
    let line = says(&["WARN", &port, "does not tell its version"]).await;
    assert!(line.contains("1.35"), "{line}");
    let (renewed, begun) = (server.asked("update"), std::time::Instant::now());
    until("it renews six times, in three seconds and more", || server.asked("update") >= renewed + 6).await;
    let asked = server.asked("watch");
    assert!(asked < 6 + begun.elapsed().as_secs(), "{asked} times it was asked for what it denies");
    assert_eq!(count(&["WARN", &port, "may not be watched"]), 1);
    leadership.resign("done").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_none_is_waited_for_with_a_reason() {
    let url = |port: u16| format!("kubernetes://127.0.0.1:{port}/default/billing");
    let [_, (_, silence), _] = told_of_strangers(url, b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello").await;
    assert!(silence.contains("no answer"), "{silence}");
    let nobody = Stranger::nobody();
    is_waited_for(&url(nobody.port), TTL, &["tried again", &nobody.port.to_string()]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_namespace_that_is_missing_is_named() {
    let server = server();
    let url = format!("kubernetes://127.0.0.1:{}/nowhere/billing", server.port);
    is_waited_for(&url, TTL, &["tried again", &server.port.to_string(), "namespaces \"nowhere\" not found"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_part_of_a_second_is_refused_with_what_a_lease_can_state() {
    let why = refusal(&server().url("billing"), Duration::from_millis(500)).await;
    assert!(why.contains("500ms is below 1s, the least that kubernetes grants"), "{why}");
    let none = in_time("a refusal", candidate(&server().url("billing"), Duration::ZERO, "a").campaign()).await;
    assert!(none.is_err_and(|why| why.to_string().contains("a time to live of 0ns is none")), "no store is asked");
    let of_ensemble = cfg!(feature = "zookeeper").then(|| "zookeeper://127.0.0.1:1/billing".to_owned());
    for url in [server().url("billing")].into_iter().chain(of_ensemble) {
        let forever = in_time("a refusal", candidate(&url, Duration::MAX, "a").campaign()).await;
        assert!(forever.is_err_and(|why| why.to_string().contains("give the lease a year at most")), "{url}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_name_or_a_value_that_others_could_not_read_is_refused() {
    let server = server();
    let election = Election::open(&server.url("billing")).expect("the URL is right");
    for (named, why) in [
        (Named::new(""), "1 to 512 bytes"),
        (Named::new("a\nb"), "no control characters"),
        (Named::new("a".repeat(513)), "this one has 513"),
        (Named::new("a").value("v".repeat((64 << 10) + 1)), "65536 bytes at most"),
    ] {
        let refused = in_time("a refusal", election.candidate(named).campaign()).await;
        let Err(CampaignError::Candidate(told)) = refused else { panic!("{why}: {refused:?}") };
        assert!(told.contains(why) && told.len() < 200, "{told}");
    }
    let longest = election.candidate(Named::new("ä".repeat(256)).value("v".repeat(64 << 10)));
    campaign(&longest).await.resign("it is known").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn work_that_outlived_its_tenure_is_told_so() {
    // Goal: found by a hostile reader: work that blocked its thread until long after the end was answered with success, while another led.
    // Method: it is told to stop, and its thread is held until all must have ended.
    let server = server();
    let leadership = campaign(&candidate(&server.url("billing"), TTL, "a")).await;
    let validity = leadership.validity();
    leadership.step_down("an operator asks");
    let (_, left) = in_time("it is told to stop", leadership.stop()).await;
    let work = leadership.run(async |lead| {
        let begun = std::time::Instant::now();
        while begun.elapsed() <= left {
            std::hint::spin_loop();
        }
        lead.token()
    });
    let answer = in_time("the work", work).await;
    assert!(answer.is_err(), "{answer:?}, and {:?} are left", validity.remaining());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_old_server_is_warned_of() {
    keep();
    let server = server();
    server.faults(|faults| faults.version = ("1", "34+"));
    campaign(&candidate(&server.url("billing"), TTL, "a")).await.resign("done").await;
    let line = says(&["WARN", &server.port.to_string(), "1.34"]).await;
    assert!(line.contains("resource versions grow"), "{line}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_somebody_else_wrote_into_a_lease_is_passed_over_or_named() {
    keep();
    let server = server();
    let url = server.url("billing");
    let annotation = |name: &str| format!("hustings.github.io/{name}");
    // A Lease that is empty, and annotations that are none of ours.
    server.edit("billing", |lease| lease["spec"] = json!({}));
    let mut last = Token::default();
    for (name, garbage) in [
        ("tenure", "x"),
        ("tenure", "{\"identity\": \"\", \"transitions\": 0, \"generation\": 4000000000}"),
        ("note", "{"),
        ("wish", "7"),
        ("history", "\t\t\n"),
    ] {
        server.edit("billing", |lease| lease["metadata"]["annotations"][annotation(name)] = garbage.into());
        let leadership = campaign(&candidate(&url, TTL, "a")).await;
        assert!(token_of(&leadership) > last && token_of(&leadership).generation == 0, "{name}");
        last = token_of(&leadership);
        // While it leads, too.
        server.edit("billing", |lease| lease["metadata"]["annotations"][annotation(name)] = garbage.into());
        leadership.resign("done").await;
    }
    // A damaged generation, of which tokens are made, is not guessed.
    server.edit("billing", |lease| lease["metadata"]["annotations"][annotation("generation")] = "many".into());
    let why = told(&url).await;
    assert!(why.contains("generation holds \"many\""), "{why}");
    let waiting = tokio::spawn({
        let office = candidate(&url, TTL, "a");
        async move { campaign(&office).await }
    });
    says(&["tried again", &server.port.to_string(), "many"]).await;
    assert!(!waiting.is_finished());
    server.edit("billing", |lease| lease["metadata"]["annotations"][annotation("generation")] = "3".into());
    let leadership = in_time("it is repaired", waiting).await.expect("it does not panic");
    assert_eq!(token_of(&leadership).generation, 3);
    // All annotations are lost while it leads: it leads on, and releases what it holds.
    server.edit("billing", |lease| drop(lease["metadata"].as_object_mut().map(|all| all.remove("annotations"))));
    leadership.resign("done").await;
    assert_eq!(server.lease("billing").expect("it is there")["spec"]["holderIdentity"], json!(""));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stranger_hears_no_wishes_and_what_is_not_ours_is_left_as_it_was() {
    let server = server();
    let url = server.url("billing");
    server.edit("billing", |lease| {
        lease["metadata"]["labels"] = json!({"app": "billing"});
        lease["metadata"]["annotations"] = json!({"owner": "team"});
        lease["spec"] = json!({"holderIdentity": "stranger", "leaseDurationSeconds": 1});
    });
    let wish = Wish::StepDown { because: "maintenance".to_owned(), to: None };
    let election = Election::open(&url).expect("the URL is right");
    let why = in_time("an answer", election.wish(&wish)).await.expect_err("it hears nothing").to_string();
    assert!(why.contains("stranger leads") && why.contains("hears no wishes"), "{why}");
    let leadership = campaign(&candidate(&url, TTL, "a")).await;
    leadership.resign("done").await;
    let metadata = server.lease("billing").expect("it is there")["metadata"].clone();
    assert_eq!((&metadata["labels"]["app"], &metadata["annotations"]["owner"]), (&json!("billing"), &json!("team")));
}

#[test]
fn a_name_that_no_lease_can_have_is_refused_at_once() {
    let (store, _) = StoreAddress::parse("kubernetes:///team").expect("it is right");
    let refused = Election::of(store, "Team/Billing").expect_err("it is none").to_string();
    assert!(refused.contains("lower-case"), "{refused}");
}
