//! Goal: an election in a Lease of Kubernetes keeps every promise, also beside clients that follow client-go's rules only.
//! Method: the library's candidates at a server that does what an API server does, and what one does on a bad day.

mod stories;

mod kubernetes {
    mod in_tls;
    mod refusals;
}

use hustings_election::{Election, Loss, Named, Token};
use hustings_testbed::{Cable, FakeKube};
use serde_json::{Value, json};
use std::time::{Duration, Instant};
use stories::{campaign, campaign_behind, candidate, in_time, shown, token_of, until};

const TTL: Duration = Duration::from_secs(3);

fn server() -> FakeKube {
    FakeKube::start().expect("a port is free")
}

#[tokio::test(flavor = "multi_thread")]
async fn the_stories_of_every_store() {
    let server = server();
    tokio::join!(
        async { stories::one_leads_after_the_other(&server.url("billing"), TTL).await },
        async { stories::everybody_has_its_turn(&server.url("turns"), TTL, 8).await },
        async { stories::an_operator_is_heard(&server.url("team.operator"), TTL).await },
        async { stories::who_is_named_is_handed_over_to(&server.url("named"), TTL).await },
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_silent_store_ends_belief() {
    let server = server();
    stories::a_silent_store_ends_belief(&server.url("billing"), TTL, || server.pause(), || server.resume()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_that_is_cut_off_stops_before_another_begins() {
    let server = server();
    let cable = Cable::to(&format!("127.0.0.1:{}", server.port)).expect("a port is free");
    let through = format!("kubernetes://{}/default/billing", cable.host());
    let (url, at_most, cut) = (server.url("billing"), TTL * 2, || cable.cut());
    let cut_off = stories::a_holder_that_is_cut_off_is_succeeded(&through, &url, TTL, at_most, cut);
    cut_off.await.1.resign("done").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_will_releases_its_tenure_and_no_other() {
    stories::a_will_releases_its_tenure_and_no_other(&server().url("billing"), TTL).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_to_copy_that_is_told_to_end_is_succeeded_at_once() {
    let (server, works) = (server(), "working with");
    stories::an_example_that_is_told_to_end_is_succeeded_at_once("one_works", &server.url("copied"), works).await;
}

/// Goal: what somebody else does to the Lease ends a leadership at its next write, and tokens grow on.
#[tokio::test(flavor = "multi_thread")]
async fn a_lease_that_is_deleted_or_erased_ends_a_leadership() {
    let server = server();
    let mut last = Token::default();
    for deed in ["deleted", "erased", "taken"] {
        let leadership = campaign(&candidate(&server.url("billing"), TTL, "a")).await;
        assert!(token_of(&leadership) > last, "{} after {last}", token_of(&leadership));
        last = token_of(&leadership);
        match deed {
            "deleted" => server.delete("billing"),
            // client-go's release after a sleep: it clears the present holder of the Lease.
            "erased" => server.edit("billing", |lease| lease["spec"]["holderIdentity"] = "".into()),
            _ => server.edit("billing", |lease| {
                lease["spec"]["holderIdentity"] = "stranger".into();
                lease["spec"]["leaseDurationSeconds"] = 1.into();
            }),
        }
        let begun = Instant::now();
        let loss = in_time("the loss", leadership.lost()).await;
        println!("kubernetes: {deed}: {loss}, {:?} later", begun.elapsed());
        assert_eq!(loss, if deed == "taken" { Loss::Taken } else { Loss::Gone });
        assert!(begun.elapsed() < TTL, "a watch or the next renewal tells");
    }
}

/// Writes a Lease as client-go does when it wins, renews, and releases.
fn stranger_holds(lease: &mut Value, transitions: u64, micros: u64) {
    lease["spec"] = json!({
        "holderIdentity": "host_1b4e28ba-2fa1-11d2-883f-0016d3cca427", "leaseDurationSeconds": 4,
        "acquireTime": "2026-11-22T10:00:00.000000Z", "renewTime": format!("2026-11-22T10:00:00.{micros:06}Z"),
        "leaseTransitions": transitions,
    });
}

/// Goal: a controller with client-go's elector is a rival like any other. Method: its writes, by hand.
#[tokio::test(flavor = "multi_thread")]
async fn a_rival_with_the_rules_of_client_go_is_waited_for_and_succeeded() {
    let server = server();
    let url = server.url("billing");
    let first = campaign(&candidate(&url, TTL, "a")).await;
    let mut spec = server.lease("billing").expect("it is there")["spec"].clone();
    assert!(spec["holderIdentity"].as_str().is_some_and(|holder| holder.starts_with("a_")), "{spec}");
    assert_eq!((&spec["leaseDurationSeconds"], &spec["leaseTransitions"]), (&json!(3), &json!(0)));
    // client-go goes by what changes in the spec: each renewal must.
    for _ in 0..3 {
        let last = spec["renewTime"].as_str().expect("a time").to_owned();
        until("a renewal", || {
            spec = server.lease("billing").expect("it is there")["spec"].clone();
            spec["renewTime"].as_str().expect("a time") > last.as_str()
        })
        .await;
    }
    let before = token_of(&first);
    first.resign("deploy").await;
    let spec = server.lease("billing").expect("it is there")["spec"].clone();
    assert_eq!(
        (&spec["holderIdentity"], &spec["leaseDurationSeconds"]),
        (&json!(""), &json!(1)),
        "a release as client-go's"
    );
    server.edit("billing", |lease| stranger_holds(lease, 1, 1));
    let mut observer = Election::open(&url).expect("it is right").observe();
    let seen = shown(&mut observer).await.expect("it leads");
    assert!(seen.id.starts_with("host_1b4e") && seen.token > before, "{seen:?}");
    let waiting = campaign_behind(candidate(&url, TTL, "b")).await;
    // A holder that renews is waited for.
    for micros in 2..6 {
        let asked = server.asked("get");
        until("b looks", || server.asked("get") > asked + 2).await;
        server.edit("billing", |lease| stranger_holds(lease, 1, micros));
    }
    assert!(!waiting.is_finished());
    let silent = Instant::now();
    let second = in_time("the successor", waiting).await.expect("it does not panic");
    println!("kubernetes: a rival's Lease of 4 s was taken over {:?} after its last renewal", silent.elapsed());
    assert!(silent.elapsed() >= Duration::from_secs(4), "the rival's own duration counts");
    assert_eq!(server.lease("billing").expect("it is there")["spec"]["leaseTransitions"], json!(2));
    assert!(token_of(&second) > seen.token);
    // A rival wins after us, keeps our annotations, and releases: the note and heir of before are not about it.
    second.resign("next").await;
    let begun = Instant::now();
    server.edit("billing", |lease| stranger_holds(lease, 3, 7));
    let third = campaign_behind(candidate(&url, TTL, "c")).await;
    server.edit("billing", |lease| {
        stranger_holds(lease, 3, 8);
        lease["spec"]["holderIdentity"] = "".into();
    });
    let third = in_time("the successor", third).await.expect("it does not panic");
    assert!(begun.elapsed() < Duration::from_secs(2));
    let history = Election::open(&url).expect("it is right").history().await.expect("it answers").to_string();
    println!("{history}");
    // The history of the rival's end is not the note of the tenure before it.
    assert!(history.lines().last().is_some_and(|line| line.contains("\tc\tsilent")), "{history}");
    third.resign("done").await;
}

/// Goal: a holder that is gone is succeeded, whatever others write beside it, and a holder's own time to live stands there again after
/// somebody wrote over it. Method: a rival that never renews, and something that annotates its Lease whenever the other has looked; then a short
/// time that is written over this candidate's.
#[tokio::test(flavor = "multi_thread")]
async fn what_others_write_is_no_renewal() {
    let server = server();
    let url = server.url("billing");
    server.edit("billing", |lease| stranger_holds(lease, 1, 1));
    let waiting = campaign_behind(candidate(&url, TTL, "b")).await;
    let annotating = async {
        loop {
            let asked = server.asked("get");
            server.edit("billing", |lease| {
                lease["metadata"]["annotations"]["example.com/seen"] = asked.to_string().into()
            });
            until("b looks", || server.asked("get") > asked).await;
        }
    };
    let leadership = tokio::select! {
        won = in_time("the successor", waiting) => won.expect("it does not panic"),
        () = annotating => unreachable!("it goes on"),
    };
    server.edit("billing", |lease| lease["spec"]["leaseDurationSeconds"] = 1.into());
    let stands =
        || server.lease("billing").expect("it is there")["spec"]["leaseDurationSeconds"] == json!(TTL.as_secs());
    until("its own time stands there", stands).await;
    leadership.resign("done").await;
}

/// Goal: who is told by Kubernetes that another one is preferred steps down.
#[tokio::test(flavor = "multi_thread")]
async fn a_preferred_holder_is_made_way_for() {
    let server = server();
    let first = campaign(&candidate(&server.url("billing"), TTL, "a")).await;
    server.edit("billing", |lease| {
        lease["spec"]["strategy"] = "OldestEmulationVersion".into();
        lease["spec"]["preferredHolder"] = "b".into();
    });
    let (loss, _) = in_time("the wish", first.stop()).await;
    assert!(loss.to_string().contains('b'), "{loss}");
    drop(first);
    let vacated =
        |server: &FakeKube| server.lease("billing").expect("it is there")["spec"]["holderIdentity"] == json!("");
    until("it is vacant", || vacated(&server)).await;
    assert!(server.lease("billing").expect("it is there")["spec"]["preferredHolder"].is_null());
}

/// Goal: answers that are lost, late, wrong, and watches that end cost nobody its leadership, and give it to nobody else.
#[tokio::test(flavor = "multi_thread")]
async fn a_bad_day_of_the_server_deposes_nobody() {
    let server = server();
    let url = server.url("billing");
    // The answer to the write that wins is lost, and the one to what comes next.
    server.faults(|faults| faults.lose_answers = 2);
    let first = campaign(&candidate(&url, TTL, "a")).await;
    let token = token_of(&first);
    let waiting = campaign_behind(candidate(&url, TTL, "b")).await;
    for round in 0..4_u64 {
        server.faults(|faults| {
            faults.lose_answers = u32::from(round == 0);
            faults.stale = if round == 1 { 3 } else { 0 };
            faults.latency = Duration::from_millis(if round == 2 { 30 } else { 0 });
        });
        if round == 3 {
            server.compact();
        }
        let asked = server.asked("update");
        until("renewals", || server.asked("update") > asked + 2).await;
        assert!(first.is_leader() && !waiting.is_finished(), "round {round}");
    }
    assert_eq!(token_of(&first), token);
    server.faults(|faults| faults.refuse = Some(500));
    let asked = server.asked("get");
    until("it is asked", || server.asked("get") > asked + 4).await;
    server.faults(|faults| faults.refuse = None);
    let asked = server.asked("update");
    until("renewals", || server.asked("update") > asked + 2).await;
    assert!(first.is_leader() && token_of(&first) == token);
    first.resign("next").await;
    let second = in_time("the successor", waiting).await.expect("it does not panic");
    assert!(token_of(&second) > token);
    second.resign("done").await;
}

/// Goal: the server holds a watch for each election that this process has a candidate in, and none for those of before. Method: one that
/// leads an election is in five others for a while, one after the other; then it comes and goes in one of them without a pause, and stays.
#[tokio::test(flavor = "multi_thread")]
async fn an_election_that_was_left_is_watched_no_more() {
    let server = server();
    let office = |name: &str| {
        let election = Election::open(&server.url(name)).expect("the URL is right").ttl(TTL);
        election.candidate(Named::new("a").stop_grace(TTL / 10).kill_margin(TTL / 20))
    };
    let first = campaign(&office("a")).await;
    for name in ["b1", "b2", "b3", "b4", "b5"] {
        let asked = server.asked("watch");
        let brief = campaign(&office(name)).await;
        until("its watch", || server.asked("watch") > asked).await;
        drop(brief);
    }
    until("one open watch", || server.open_watches() == 1).await;
    for _ in 0..20 {
        campaign(&office("b1")).await.resign("again").await;
    }
    let second = campaign(&office("b1")).await;
    until("two open watches", || server.open_watches() == 2).await;
    assert!(first.is_leader() && second.is_leader());
    second.resign("done").await;
    first.resign("done").await;
}

/// Goal: of two servers the one that answers is used.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_gone_is_passed_over() {
    let server = server();
    let free = hustings_testbed::free_port().expect("one is free");
    let url = format!("kubernetes://127.0.0.1:{free},127.0.0.1:{}/team/billing", server.port);
    let leadership = campaign(&candidate(&url, TTL, "a")).await;
    leadership.resign("done").await;
}
