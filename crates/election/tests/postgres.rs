//! Goal: an election in a row of PostgreSQL keeps every promise. Method: the library's candidates at real servers, which are
//! stopped, killed, promoted, and filled with garbage.

mod stories;

#[path = "../examples/fenced_in_postgres.rs"]
#[allow(dead_code, reason = "an example has a main function, which is not called here")]
mod example;

mod postgres {
    mod in_tls;
    mod refusals;
}

use hustings_election::{Election, Loss, Token, Wish};
use hustings_testbed::{Cable, Postgres};
use std::time::{Duration, Instant};
use stories::{campaign, campaign_behind, candidate, in_time, token_of, until};

const TTL: Duration = Duration::from_secs(3);

fn server() -> Postgres {
    Postgres::start(&[]).expect("it starts")
}

#[tokio::test(flavor = "multi_thread")]
async fn the_stories_of_every_store() {
    let server = server();
    server.sql("CREATE DATABASE strict").expect("it is made");
    server.sql("ALTER DATABASE strict SET default_transaction_isolation = 'serializable'").expect("it is strict");
    let strict = format!("postgres://postgres@127.0.0.1:{}/strict/turns", server.port);
    tokio::join!(
        async { stories::one_leads_after_the_other(&server.url("billing"), TTL).await },
        async { stories::everybody_has_its_turn(&server.url("turns"), TTL, 8).await },
        async { stories::everybody_has_its_turn(&strict, TTL, 4).await },
        async { stories::an_operator_is_heard(&server.url("team/operator"), TTL).await },
        async { stories::who_is_named_is_handed_over_to(&server.url("named"), TTL).await },
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn work_that_hangs_is_succeeded() {
    let at_most = TTL + TTL / 2;
    let server = server();
    tokio::join!(
        async { stories::progress::dead_work_loses_its_leadership(&server.url("hangs"), TTL, at_most).await },
        async {
            stories::progress::work_that_ignores_an_operator_is_succeeded(&server.url("deaf"), TTL, at_most).await
        },
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_silent_store_ends_belief() {
    let server = server();
    let (stop, go_on) = (|| server.pause().expect("it stops"), || server.resume().expect("it goes on"));
    stories::a_silent_store_ends_belief(&server.url("billing"), TTL, stop, go_on).await;
}

/// Goal: a leader that is cut off stops before another begins, and the other begins when the version has grown old.
#[tokio::test(flavor = "multi_thread")]
async fn a_leader_that_is_cut_off_stops_before_another_begins() {
    let server = server();
    let cable = Cable::to(&format!("127.0.0.1:{}", server.port)).expect("a port is free");
    let through = format!("postgres://postgres@{}/postgres/billing", cable.host());
    let (url, at_most, cut) = (server.url("billing"), TTL * 2, || cable.cut());
    let cut_off = stories::a_holder_that_is_cut_off_is_succeeded(&through, &url, TTL, at_most, cut);
    let (first, second, took) = cut_off.await;
    assert!(took >= TTL - TTL / 5, "the lease lasts from the last renewal");
    assert!(token_of(&second).number > 1);
    // The first one believes that somebody else leads when its wire is mended.
    drop(first);
    cable.mend();
    let third = campaign_behind(candidate(&through, TTL, "a")).await;
    assert!(second.is_leader() && !third.is_finished());
    third.abort();
    second.resign("done").await;
}

/// Goal: a process that has looked, or has led, leaves no connection behind.
#[tokio::test(flavor = "multi_thread")]
async fn connections_end_with_their_owners() {
    let server = server();
    let url = server.url("billing");
    let election = Election::open(&url).expect("it is right");
    for _ in 0..3 {
        campaign(&candidate(&url, TTL, "a")).await.resign("done").await;
        in_time("a look", election.history()).await.expect("it answers");
    }
    let open = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'hustings-election'";
    until("all are closed", || server.sql(open).expect("it answers") == "0").await;
}

/// Goal: of several who swap one version at one moment, one wins. Method: the row is locked until all have asked for it.
#[tokio::test(flavor = "multi_thread")]
async fn one_version_has_one_winner() {
    const LONG: Duration = Duration::from_secs(30);
    let server = server();
    let url = server.url("billing");
    campaign(&candidate(&url, LONG, "first")).await.resign("next").await;
    let client = example::connect(&url).await.expect("it connects");
    client.batch_execute("BEGIN; SELECT * FROM hustings_elections FOR UPDATE").await.expect("it is locked");
    let waiting: Vec<_> = (0..3)
        .map(|number| {
            let office = candidate(&url, LONG, &format!("c{number}"));
            tokio::spawn(async move { campaign(&office).await })
        })
        .collect();
    let blocked = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'";
    until("all have asked", || server.sql(blocked).expect("it answers") == "3").await;
    client.batch_execute("COMMIT").await.expect("it is unlocked");
    until("one wins", || waiting.iter().any(tokio::task::JoinHandle::is_finished)).await;
    // The others have had their answers when the server has served them all.
    until("nobody asks any more", || server.sql(blocked).expect("it answers") == "0").await;
    let history = Election::open(&url).expect("it is right");
    in_time("the winner is written down", async {
        while history.history().await.expect("it answers").tenures().count() < 2 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert_eq!(waiting.iter().filter(|task| task.is_finished()).count(), 1, "two lead");
    waiting.iter().for_each(tokio::task::JoinHandle::abort);
}

/// Goal: another process releases exactly the tenure that it has the will of.
#[tokio::test(flavor = "multi_thread")]
async fn a_will_releases_its_tenure_and_no_other() {
    let server = server();
    stories::a_will_releases_its_tenure_and_no_other(&server.url("billing"), TTL).await;
    let history = Election::open(&server.url("billing")).expect("it is right").history().await.expect("it answers");
    assert!(history.to_string().contains("the process was killed"), "{history}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_to_copy_that_is_told_to_end_is_succeeded_at_once() {
    let server = server();
    let is_succeeded = stories::an_example_that_is_told_to_end_is_succeeded_at_once;
    is_succeeded("one_works", &server.url("copied"), "working with").await;
    is_succeeded("fenced_in_postgres", &server.url("fenced"), "billed, with").await;
}

/// Goal: what somebody else does to the row ends a leadership at once, and tokens grow on.
#[tokio::test(flavor = "multi_thread")]
async fn a_row_that_is_deleted_or_erased_ends_a_leadership() {
    let server = server();
    let url = server.url("billing");
    let mut last = Token::default();
    for deed in ["DELETE FROM hustings_elections", "UPDATE hustings_elections SET holder = NULL, version = version + 1"]
    {
        let leadership = campaign(&candidate(&url, TTL, "a")).await;
        assert!(token_of(&leadership) > last, "{} after {last}", token_of(&leadership));
        last = token_of(&leadership);
        server.sql(deed).expect("it is done");
        let begun = Instant::now();
        let loss = in_time("the loss", leadership.lost()).await;
        println!("postgres: {deed}: {loss}, {:?} later", begun.elapsed());
        assert_eq!(loss, Loss::Gone);
        assert!(begun.elapsed() < TTL, "the next renewal tells");
    }
}

/// Goal: a failover that forgets grants, and a raise too, gives tokens above all that were given before.
/// Method: the standby is away while the election changes hands; then the primary dies, and the standby is promoted.
#[tokio::test(flavor = "multi_thread")]
async fn a_promotion_raises_the_generation() {
    let mut primary = server();
    let before = campaign(&candidate(&primary.url("billing"), TTL, "a")).await;
    let mut standby = primary.standby().expect("it follows");
    let both = format!("postgres://postgres@127.0.0.1:{},127.0.0.1:{}/postgres/billing", standby.port, primary.port);
    let all = [token_of(&before)];
    before.resign("next").await;
    standby.kill();
    // Of this the standby knows nothing.
    let forgotten = campaign(&candidate(&both, TTL, "b")).await;
    let raised = Election::open(&both).expect("it is right").wish(&Wish::Raise).await.expect("it answers");
    assert!(raised.contains("is 1 now"), "{raised}");
    let (loss, _) = in_time("the wish", forgotten.stop()).await;
    println!("postgres: raised: {loss}");
    let all = [all[0], token_of(&forgotten)];
    forgotten.resign("next").await;
    let forgotten = campaign(&candidate(&both, TTL, "c")).await;
    let all = [all[0], all[1], token_of(&forgotten)];
    primary.kill();
    standby.go().expect("it starts");
    let died = Instant::now();
    standby.promote().expect("it is promoted");
    println!("postgres: promoted within {:?}", died.elapsed());
    let after = campaign(&candidate(&both, TTL, "d")).await;
    println!("postgres: tokens {}, {}, {}; after the promotion {}", all[0], all[1], all[2], token_of(&after));
    assert_eq!(token_of(&after).generation, 1000);
    assert!(all.is_sorted() && all[2] < token_of(&after), "{all:?}");
    let raised = Election::open(&both).expect("it is right").wish(&Wish::Raise).await.expect("it answers");
    assert!(raised.contains("is 1001 now"), "{raised}");
}

/// Goal: a leader whose row came through the failover leads on.
#[tokio::test(flavor = "multi_thread")]
async fn a_leader_leads_on_through_a_failover_that_keeps_its_word() {
    const LONG: Duration = Duration::from_secs(20);
    let mut primary = server();
    let standby = primary.standby().expect("it follows");
    primary.sql("ALTER SYSTEM SET synchronous_standby_names = '*'").expect("it is set");
    primary.sql("SELECT pg_reload_conf()").expect("it is read");
    let both = format!("postgres://postgres@127.0.0.1:{},127.0.0.1:{}/postgres/billing", primary.port, standby.port);
    let leadership = campaign(&candidate(&both, LONG, "a")).await;
    let token = token_of(&leadership);
    primary.kill();
    standby.promote().expect("it is promoted");
    let version = || standby.sql("SELECT version FROM hustings_elections").expect("the row is there");
    let then = version();
    until("a renewal at the new primary", || version() != then).await;
    assert_eq!(token_of(&leadership), token, "it leads on");
    leadership.resign("done").await;
    let next = campaign(&candidate(&both, LONG, "b")).await;
    assert_eq!((token_of(&next).generation, token.generation), (1000, 0));
}

/// Goal: a late write of an earlier leader changes nothing. Method: the example's own statements.
#[tokio::test(flavor = "multi_thread")]
async fn a_fenced_update_refuses_a_stale_token() {
    let server = server();
    let url = server.url("billing");
    let client = example::connect(&url).await.expect("it connects");
    client.batch_execute(example::SCHEMA).await.expect("the table is made");
    let bill = async |token: Token| {
        example::bill_one(&client, token.generation, token.number).await.expect("the server answers").is_ok()
    };
    let first = campaign(&candidate(&url, TTL, "a")).await;
    let stale = token_of(&first);
    example::open_the_gate(&client, stale.generation, stale.number).await.expect("it answers").expect("it opens");
    assert!(bill(stale).await && bill(stale).await);
    first.resign("next").await;
    let second = campaign(&candidate(&url, TTL, "b")).await;
    assert!(bill(stale).await, "before the second one has taken office its predecessor's writes count");
    let token = token_of(&second);
    example::open_the_gate(&client, token.generation, token.number).await.expect("it answers").expect("it opens");
    assert!(!bill(stale).await, "too late");
    let gate = example::open_the_gate(&client, stale.generation, stale.number).await.expect("it answers");
    assert!(gate.is_err(), "the gate does not go down again");
    assert!(bill(token).await);
    assert!(!bill(Token { generation: 0, number: token.number - 1 }).await);
    assert!(bill(Token { generation: 1, number: 1 }).await, "the generation weighs more than the number");
    assert_eq!(server.sql("SELECT sent FROM invoices").expect("it is there"), "5");
}
