//! The driver's words when PostgreSQL cannot be used as it is.

use crate::server;
use crate::stories::log::{keep, says};
use crate::stories::strangers::{Observers, Stranger, denial, is_waited_for, refusal, told, told_of_strangers};
use crate::stories::{campaign, candidate, in_time};
use hustings_election::{Election, Named};
use hustings_testbed::Postgres;
use std::time::Duration;

const TTL: Duration = Duration::from_secs(3);

#[tokio::test(flavor = "multi_thread")]
async fn what_trying_again_does_not_help_against_is_refused_with_the_remedy() {
    let server = server();
    let at = |user: &str, database: &str| format!("postgres://{user}@127.0.0.1:{}/{database}/billing", server.port);
    let why = refusal(&at("postgres", "nowhere"), TTL).await;
    assert!(why.contains("3D000") && why.contains("nowhere") && why.contains("createdb"), "{why}");
    assert!(!why.contains("PGPASSWORD"), "it is not the password: {why}");
    server.sql("CREATE ROLE poor LOGIN").expect("it is made");
    let why = denial(&at("poor", "postgres"), TTL, Observers::AreDenied).await;
    assert!(why.contains("CREATE TABLE IF NOT EXISTS hustings_elections"), "{why}");
    assert!(why.contains("GRANT SELECT, INSERT, UPDATE ON hustings_elections TO \"poor\""), "{why}");
    // Somebody who may makes them; rights are still missing.
    campaign(&candidate(&at("postgres", "postgres"), TTL, "a")).await.resign("done").await;
    let why = denial(&at("poor", "postgres"), TTL, Observers::AreDenied).await;
    assert!(why.contains("may not use the tables") && why.contains("GRANT USAGE ON SEQUENCE"), "{why}");
    let grants = why.split("execute: ").nth(1).expect("the remedy is SQL");
    server.sql(grants).expect("the remedy can be executed as it is told");
    campaign(&candidate(&at("poor", "postgres"), TTL, "a")).await.resign("done").await;
    server.sql("CREATE DATABASE taken").expect("it is made");
    let taken = format!("postgres://postgres@127.0.0.1:{}/taken/billing", server.port);
    example_table(&taken).await;
    let why = refusal(&taken, TTL).await;
    assert!(why.contains("somebody else's") && why.contains("search_path"), "{why}");
}

/// Somebody else's table of the same name.
async fn example_table(url: &str) {
    let client = crate::example::connect(url).await.expect("it connects");
    let made = client.batch_execute("CREATE TABLE hustings_elections (election text); CREATE SEQUENCE hustings_tokens");
    made.await.expect("it is made");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_password_is_refused_and_the_right_one_is_never_shown() {
    let server = Postgres::start(&["password_encryption=scram-sha-256"]).expect("it starts");
    server
        .sql("CREATE ROLE locked LOGIN PASSWORD 'se/cr@t'; GRANT ALL ON SCHEMA public TO locked")
        .expect("it is made");
    server.demand_passwords().expect("it reads its file");
    let at = |password: &str| format!("postgres://locked{password}@127.0.0.1:{}/postgres/billing", server.port);
    let why = denial(&at(":wrong"), TTL, Observers::AreDenied).await;
    assert!(why.contains("28P01") && !why.contains("wrong"), "{why}");
    assert_eq!(why.matches("PGPASSWORD").count(), 1, "the remedy is told once: {why}");
    let why = denial(&at(""), TTL, Observers::AreDenied).await;
    assert!(why.contains("password") && why.contains("PGPASSWORD"), "{why}");
    let leadership = campaign(&candidate(&at(":se%2Fcr%40t"), TTL, "a")).await;
    let shown = format!("{:?} {:?}", leadership, leadership.will());
    assert!(!shown.contains("cr@t"), "{shown}");
    leadership.resign("done").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_none_is_waited_for_with_a_reason() {
    let url = |port: u16| format!("postgres://me@127.0.0.1:{port}/shop/billing");
    let [_, (_, silence), (_, babble)] = told_of_strangers(url, b"HTTP/1.1 400 Bad Request\r\n\r\n").await;
    assert!(silence.contains("does not answer"), "{silence}");
    assert!(babble.contains("no connection"), "{babble}");
    let nobody = Stranger::nobody();
    is_waited_for(&url(nobody.port), TTL, &["tried again", &nobody.port.to_string()]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_somebody_else_wrote_into_a_row_is_named_and_waited_for() {
    keep();
    let server = server();
    let url = server.url("billing");
    campaign(&candidate(&url, TTL, "a")).await.resign("done").await;
    for (column, garbage, good) in [
        ("token", "-5", "1"),
        ("generation", "-1", "0"),
        ("generation", "1099511627776", "0"),
        ("raised", "-7", "0"),
        ("raised", "9223372036854775807", "0"),
        ("ttl_ms", "-1", "NULL"),
    ] {
        let set =
            |value: &str| server.sql(&format!("UPDATE hustings_elections SET {column} = {value}")).expect("it is set");
        set(garbage);
        let why = told(&url).await;
        let waiting = tokio::spawn({
            let office = candidate(&url, TTL, "a");
            async move { campaign(&office).await }
        });
        // An operator is told the store, too, which the line of the log names on its own.
        let what = why.split_once(": ").expect("the store, and what is wrong").1;
        says(&["tried again", &server.port.to_string(), what]).await;
        assert!(!waiting.is_finished());
        set(good);
        println!("{column} = {garbage}: {why}");
        in_time("it is repaired", waiting).await.expect("it does not panic").resign("done").await;
    }
    // A column that is only told to people, or decides nothing, may be anything.
    for (column, garbage) in [
        ("note", "'{\"token\": 7}'"),
        ("wish", "'{'"),
        ("history", "E'\\x01\\t\\tx\\n'"),
        ("priority", "-1"),
        ("timeline", "-9"),
        ("value", "repeat('x', 100000)"),
        ("life", "NULL"),
    ] {
        server.sql(&format!("UPDATE hustings_elections SET {column} = {garbage}")).expect("it is set");
        campaign(&candidate(&url, TTL, "a")).await.resign("done").await;
    }
    // A holder that no candidate is ends like any that is silent.
    server
        .sql("UPDATE hustings_elections SET holder = 'a', life = NULL, ttl_ms = NULL, version = -3")
        .expect("it is set");
    campaign(&candidate(&url, TTL, "a")).await.resign("done").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn settings_that_break_promises_are_warned_of() {
    keep();
    let server = Postgres::start(&["fsync=off", "synchronous_commit=off", "full_page_writes=off"]).expect("it starts");
    let _standby = server.standby().expect("it follows");
    let leadership = campaign(&candidate(&server.url("billing"), TTL, "a")).await;
    let port = server.port.to_string();
    for setting in ["fsync = off", "full_page_writes = off", "synchronous_commit = off", "synchronous_standby_names"] {
        let line = says(&["WARN", &port, setting]).await;
        println!("{line}");
    }
    leadership.resign("done").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_candidate_whose_value_cannot_be_written_waits_with_a_reason() {
    keep();
    let server = server();
    let url = server.url("billing");
    let election = Election::open(&url).expect("the URL is right").ttl(TTL).own_session();
    let office = election.candidate(Named::new("a").value("a\0b").stop_grace(TTL / 10).kill_margin(TTL / 20));
    let waiting = tokio::spawn(async move { office.campaign().await.map(drop) });
    says(&["tried again", &server.port.to_string(), "22021"]).await;
    assert!(!waiting.is_finished());
    waiting.abort();
}
