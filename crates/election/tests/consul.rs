//! Goal: an election at Consul has one leader at most, tokens grow, and nobody waits for longer than it must.
//! Method: the real agent as a server of its own; what everybody must pass, and what only this store does.
#![cfg(feature = "consul")]

mod stories;

use hustings_election::{CampaignError, Election, Wish};
use hustings_testbed::{Cable, Consul, free_port};
use hustings_tls::made::Subject;
use rustix::process::Signal;
use std::process::Stdio;
use std::time::Duration;
use stories::{
    a_holder_that_is_cut_off_is_succeeded, a_silent_store_ends_belief, a_will_releases_its_tenure_and_no_other,
    an_example_that_is_told_to_end_is_succeeded_at_once, an_operator_is_heard, campaign, campaign_behind, candidate,
    everybody_has_its_turn, in_time, log, one_leads_after_the_other, shown,
    strangers::{Observers, Stranger, denial, is_waited_for, refusal},
    town::{Town, query},
};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};

/// The shortest that Consul grants.
const TTL: Duration = Duration::from_secs(10);

async fn consul() -> Consul {
    Consul::start("").await.expect("it starts")
}

fn url(consul: &Consul, name: &str) -> String {
    format!("consul://{}/{name}", consul.host())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_stories_of_every_store() {
    let consul = consul().await;
    let took = one_leads_after_the_other(&url(&consul, "team/billing"), TTL).await;
    assert!(took < TTL / 2, "nobody told the successor");
    everybody_has_its_turn(&url(&consul, "turns"), TTL, 4).await;
    an_operator_is_heard(&url(&consul, "heard"), TTL).await;
    a_will_releases_its_tenure_and_no_other(&url(&consul, "will"), TTL).await;
    an_example_that_is_told_to_end_is_succeeded_at_once("one_works", &url(&consul, "copied"), "working with").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_is_named_is_handed_over_to() {
    let consul = consul().await;
    stories::who_is_named_is_handed_over_to(&url(&consul, "named"), TTL).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_is_cut_off_is_succeeded_within_twice_its_time() {
    let consul = consul().await;
    let cable = Cable::to(&consul.host()).expect("a port is free");
    let (through, direct) = (format!("consul://{}/cut", cable.host()), url(&consul, "cut"));
    let at_most = TTL * 2 + Duration::from_secs(1);
    let cut = || cable.cut();
    let (_first, second, _) = a_holder_that_is_cut_off_is_succeeded(&through, &direct, TTL, at_most, cut).await;
    second.resign("done").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_silent_agent_ends_the_belief() {
    let consul = consul().await;
    let signal = |signal| consul.signal(signal).expect("it runs");
    a_silent_store_ends_belief(&url(&consul, "x"), TTL, || signal(Signal::STOP), || signal(Signal::CONT)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_others_do_is_seen_or_told() {
    log::keep();
    let consul = consul().await;
    a_session_that_somebody_destroys_ends_the_tenure(&consul).await;
    a_record_that_somebody_deletes_ends_the_tenure(&consul).await;
    consul_lock_is_a_rival_like_any_other(&consul).await;
    garbage_is_told_and_raising_the_generation_heals_it(&consul).await;
    what_stands_beside_an_election_holds_nobody_up(&consul).await;
}

async fn a_session_that_somebody_destroys_ends_the_tenure(consul: &Consul) {
    let url = url(consul, "destroyed");
    let first = campaign(&candidate(&url, TTL, "a")).await;
    let token = first.lead().expect("it leads").token();
    let waiting = campaign_behind(candidate(&url, TTL, "b")).await;
    let record = consul.http("GET", "kv/destroyed", "").await.expect("it answers");
    let session = record.split("\"Session\": \"").nth(1).and_then(|rest| rest.split('"').next()).expect("it is locked");
    consul.http("PUT", &format!("session/destroy/{session}"), "").await.expect("it answers");
    let second = in_time("the successor", waiting).await.expect("it does not panic");
    let loss = in_time("the loss", first.lost()).await;
    println!("{url}: a session was destroyed by hand: {loss}");
    assert!(second.lead().expect("it leads").token() > token);
    second.resign("done").await;
}

async fn a_record_that_somebody_deletes_ends_the_tenure(consul: &Consul) {
    let url = url(consul, "deleted");
    let first = campaign(&candidate(&url, TTL, "a")).await;
    let token = first.lead().expect("it leads").token();
    consul.http("DELETE", "kv/deleted", "").await.expect("it answers");
    in_time("the loss", first.lost()).await;
    drop(first);
    let second = campaign(&candidate(&url, TTL, "b")).await;
    assert!(second.lead().expect("it leads").token() > token, "LockIndex begins again at 1, the token does not");
    second.resign("done").await;
}

/// `consul lock` of this agent, which runs a command while it holds `rivals/.lock`.
fn consul_lock(consul: &Consul, command: &str) -> tokio::process::Child {
    tokio::process::Command::new(Consul::program())
        .args(["lock", "-pass-stdin", "-http-addr", &consul.host(), "rivals", command])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .expect("it was started before")
}

async fn consul_lock_is_a_rival_like_any_other(consul: &Consul) {
    let url = url(consul, "rivals/.lock");
    let mut stranger = consul_lock(consul, "echo leads; read end");
    let mut said = BufReader::new(stranger.stdout.take().expect("it is piped")).lines();
    let line = in_time("the stranger", said.next_line()).await.expect("it is text");
    assert_eq!(line.as_deref(), Some("leads"));
    let ours = campaign_behind(candidate(&url, TTL, "a")).await;
    let shown = shown(&mut Election::open(&url).expect("the URL is right").observe()).await;
    assert_eq!(shown.expect("somebody leads").id.len(), 36, "who says nothing is known by its session");
    stranger.stdin.take().expect("it is piped").write_all(b"\n").await.expect("it listens");
    let ours = in_time("our turn", ours).await.expect("it does not panic");
    let mut stranger = consul_lock(consul, "echo leads");
    let mut said = BufReader::new(stranger.stdout.take().expect("it is piped")).lines();
    assert!(ours.is_leader(), "two lead");
    ours.resign("done").await;
    let line = in_time("the stranger", said.next_line()).await.expect("it is text");
    assert_eq!(line.as_deref(), Some("leads"));
}

/// Elections whose names begin with the name of another one do not hold it up, however many they are: 6 MB stand beside it.
async fn what_stands_beside_an_election_holds_nobody_up(consul: &Consul) {
    let history = "x".repeat(500_000);
    for number in 0..12 {
        consul.http("PUT", &format!("kv/jobs.{number}.history"), &history).await.expect("it answers");
    }
    let url = url(consul, "jobs");
    let election = Election::open(&url).expect("the URL is right");
    in_time("an answer", election.wish(&Wish::Raise)).await.expect("it is raised");
    let leadership = campaign(&candidate(&url, TTL, "a")).await;
    assert_eq!(leadership.lead().expect("it leads").token().generation, 1);
    assert_eq!(shown(&mut election.observe()).await.expect("somebody leads").id, "a");
    leadership.resign("done").await;
}

async fn garbage_is_told_and_raising_the_generation_heals_it(consul: &Consul) {
    let url = url(consul, "garbage");
    for key in ["garbage", "garbage.note", "garbage.history", "garbage.wish", "garbage.generation", "garbage.else"] {
        consul.http("PUT", &format!("kv/{key}"), "{\"token\":7").await.expect("it answers");
    }
    let office = candidate(&url, TTL, "a");
    let waiting = tokio::spawn(async move { campaign(&office).await });
    let said = log::says(&["nobody can be elected", "garbage.generation holds no number"]).await;
    assert!(said.contains("hustings elect garbage --raise"), "{said}");
    assert!(!waiting.is_finished(), "it leads beside a generation that nobody can read");
    let election = Election::open(&url).expect("the URL is right");
    in_time("an answer", election.wish(&Wish::Raise)).await.expect("it is raised");
    let leadership = in_time("the election", waiting).await.expect("it does not panic");
    assert_eq!(leadership.lead().expect("it leads").token().generation, 1);
    leadership.resign("done").await;
}

/// Goal: the environment's token is what is asked with. Method: an agent that denies everybody else; this test again, as a
/// process that has the token.
#[tokio::test(flavor = "multi_thread")]
async fn the_token_of_the_environment_gives_access() {
    const URL: &str = "HUSTINGS_TEST_CONSUL_URL";
    if let Ok(url) = std::env::var(URL) {
        one_leads_after_the_other(&url, TTL).await;
        return;
    }
    let further = "acl { enabled = true  default_policy = \"deny\"  tokens { master = \"root\" } }";
    let consul = Consul::start(further).await.expect("it starts");
    let url = url(&consul, "secured");
    let why = denial(&url, TTL, Observers::AreDenied).await;
    assert!(why.contains("403") && why.contains("CONSUL_HTTP_TOKEN"), "{why}");
    let mut again = tokio::process::Command::new(std::env::current_exe().expect("it runs"));
    again
        .args(["--exact", "the_token_of_the_environment_gives_access"])
        .env(URL, &url)
        .env("CONSUL_HTTP_TOKEN", "root");
    let ended = in_time("this test with the token", again.status()).await.expect("it runs");
    assert!(ended.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_time_to_live_below_the_store_s_least_is_refused_with_the_least() {
    let why = refusal("consul://127.0.0.1:1/x", Duration::from_secs(3)).await;
    assert!(why.contains("3s is below 10s, the least that consul grants"), "{why}");
}

/// Goal: a time to live that the servers do not grant ends the campaign, and what is to be given instead is told. Method: servers that
/// grant no less than half a minute, a shorter one, and that.
#[tokio::test(flavor = "multi_thread")]
async fn a_time_to_live_that_the_servers_do_not_grant_ends_the_campaign() {
    let consul = Consul::start("session_ttl_min = \"30s\"").await.expect("it starts");
    let url = url(&consul, "untimely");
    let refused = in_time("a refusal", candidate(&url, TTL, "a").campaign()).await;
    let Err(CampaignError::Timing(why)) = refused else { panic!("10 s are less than the least: {refused:?}") };
    assert!(why.contains("[30s=24h") && why.contains("--ttl") && why.contains(&consul.host()), "{why}");
    campaign(&candidate(&url, Duration::from_secs(30), "a")).await.resign("done").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_consul_is_told() {
    let strangers = [
        (Stranger::nobody(), "Connection refused"),
        (Stranger::silent(), "do not answer"),
        (
            Stranger::answers(&b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"[..]),
            "what answers there is no Consul",
        ),
        (Stranger::answers(&b"SSH-2.0-OpenSSH_9.2\r\n"[..]), "invalid HTTP"),
    ];
    for (stranger, words) in strangers {
        let host = format!("127.0.0.1:{}", stranger.port);
        is_waited_for(&format!("consul://{host}/x"), TTL, &["no session", &host, words]).await;
    }
}

/// An agent that speaks TLS at a second port, and asks for certificates there.
async fn in_tls(town: &Town) -> (Consul, String) {
    let port = free_port().expect("a port is free");
    let further = format!(
        "ports {{ https = {port} }} verify_incoming_https = true ca_file = {:?} cert_file = {:?} key_file = {:?}",
        town.ca, town.server.certificate, town.server.key
    );
    (Consul::start(&further).await.expect("it starts"), format!("127.0.0.1:{port}"))
}

#[tokio::test(flavor = "multi_thread")]
async fn an_election_in_tls_is_one_and_what_keeps_tls_from_it_is_named() {
    log::keep();
    let town = Town::found();
    let (consul, secured) = in_tls(&town).await;
    let ours = town.issue("ours", &Subject::new("ours"));
    let good = query(&town.ca, Some(&ours));
    one_leads_after_the_other(&format!("consul://{secured}/billing{good}"), TTL).await;
    a_will_releases_its_tenure_and_no_other(&format!("consul://{secured}/will{good}"), TTL).await;
    let why = refusal(&format!("consul://{secured}/x"), TTL).await;
    assert!(why.contains("to an HTTPS server") && why.contains("CONSUL_HTTP_SSL=true"), "{why}");
    let why = refusal(&format!("consul://{secured}/x?cacert=/nowhere/ca.crt"), TTL).await;
    assert!(why.contains("/nowhere/ca.crt: it cannot be read"), "{why}");
    let plain = consul.host();
    for (host, query, words) in [
        (&secured, query(&town.other_ca, Some(&ours)), ["signed by a CA that is not trusted here", "CONSUL_CACERT"]),
        (&secured, query(&town.ca, None), ["asks for a certificate that it knows", "CONSUL_CLIENT_CERT"]),
        (&plain, good, ["does not speak TLS on this port", "CONSUL_HTTP_SSL"]),
    ] {
        is_waited_for(&format!("consul://{host}/x{query}"), TTL, &["no session", host, words[0], words[1]]).await;
    }
}

/// Goal: a user with Consul's own variables needs no other settings. Method: this test again, as a process that has them.
#[tokio::test(flavor = "multi_thread")]
async fn the_variables_of_consul_say_how_tls_is_spoken() {
    const URL: &str = "HUSTINGS_TEST_CONSUL_URL";
    if let Ok(url) = std::env::var(URL) {
        one_leads_after_the_other(&url, TTL).await;
        return;
    }
    let town = Town::found();
    let (_consul, secured) = in_tls(&town).await;
    let ours = town.issue("ours", &Subject::new("ours"));
    let mut again = tokio::process::Command::new(std::env::current_exe().expect("it runs"));
    again.args(["--exact", "the_variables_of_consul_say_how_tls_is_spoken"]);
    again.env(URL, format!("consul://{secured}/billing")).env("CONSUL_HTTP_SSL", "true");
    again
        .env("CONSUL_CACERT", &town.ca)
        .env("CONSUL_CLIENT_CERT", &ours.certificate)
        .env("CONSUL_CLIENT_KEY", &ours.key);
    let ended = in_time("this test with the variables", again.status()).await.expect("it runs");
    assert!(ended.success());
}
