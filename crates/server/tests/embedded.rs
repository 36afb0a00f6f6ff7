//! Goal: a service whose replicas have members of Hustings inside elects one of them, without a port for clients. Method: the
//! example that a newcomer copies, as it stands.

#[path = "../examples/embedded.rs"]
#[allow(dead_code, reason = "an example has a main function, which is not called here")]
mod example;

use hustings_election::{Election, Inside, Named};
use std::time::Duration;

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_that_ends_with_its_member_is_succeeded() {
    let told = tokio::time::timeout(Duration::from_secs(60), example::story()).await;
    let took = told.expect("it goes on").expect("every sentence of it is true");
    assert!(took < Duration::from_secs(30), "{took:?}");
}

/// Goal: a candidate that asks a member that has stopped waits, and believes nothing.
#[tokio::test(flavor = "multi_thread")]
async fn a_member_that_has_stopped_elects_nobody() {
    let (inside, listener) = Inside::new();
    drop(listener);
    let refused = inside.connect().expect_err("nobody is there");
    assert!(refused.to_string().contains("the member of this process has stopped"), "{refused}");
    let office = Election::inside(&inside, "billing").expect("the name is right").candidate(Named::new("a"));
    let elected = tokio::time::timeout(Duration::from_millis(500), office.campaign()).await;
    assert!(elected.is_err(), "nobody answered");
}
