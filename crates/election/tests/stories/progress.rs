//! Work that makes no progress, or does not stop when it is told to, loses its leadership, on every store.

use super::{campaign, campaign_behind, candidate, in_time, token_of};
use hustings_election::{Change, Election, Loss, Named, Office, Wish};
use std::time::{Duration, Instant};
use tokio::sync::mpsc::unbounded_channel;

/// A candidate whose work must tick within this time.
fn ticking(url: &str, ttl: Duration, at_most: Duration) -> Office {
    let election = Election::open(url).expect("the URL is right").ttl(ttl).own_session();
    election.candidate(Named::new("a").stop_grace(ttl / 10).kill_margin(ttl / 20).progress(at_most))
}

/// Goal: who hangs is succeeded although its process renews on, and stands for election again when it ticks, not before.
/// Method: one that ticks for a while, then neither ticks nor stops; another one waits.
pub async fn dead_work_loses_its_leadership(url: &str, ttl: Duration, at_most: Duration) {
    let pace = ttl / 4;
    let office = ticking(url, ttl, pace);
    let first = campaign(&office).await;
    let token = token_of(&first);
    let waiting = campaign_behind(candidate(url, ttl, "b")).await;
    let begun = Instant::now();
    let mut hangs = begun;
    while begun.elapsed() < ttl + pace {
        // No later than the last tick.
        hangs = Instant::now();
        first.tick();
        tokio::task::yield_now().await;
    }
    assert!(first.is_leader() && !waiting.is_finished(), "it makes progress");
    let (loss, _) = in_time("nothing ticks", first.stop()).await;
    let stops = hangs.elapsed();
    assert_eq!(loss, Loss::Stalled);
    // It hears nothing, stops nothing, drops nothing.
    let second = in_time("the successor", waiting).await.expect("it does not panic");
    let took = hangs.elapsed();
    assert!(!first.is_leader(), "two believe");
    println!(
        "{url}: nothing ticked for {pace:?}: told to stop after {stops:?}, succeeded after {took:?}, lease {ttl:?}"
    );
    assert!(stops >= pace && took <= pace + at_most, "the successor waited {took:?}");
    assert!(token_of(&second) > token);
    it_stands_back_until_it_ticks(url, ttl, office, second).await;
    drop(first);
}

async fn it_stands_back_until_it_ticks(
    url: &str,
    ttl: Duration,
    office: Office,
    second: hustings_election::Leadership,
) {
    let ticker = office.ticker();
    let (sender, mut changes) = unbounded_channel();
    let again = tokio::spawn(async move { office.campaign_told(Some(sender)).await.expect("the times fit") });
    let change = in_time("it stands back", changes.recv()).await;
    assert_eq!(change, Some(Change::StandsBack(Duration::ZERO)));
    second.resign("deploy").await;
    let third = campaign(&candidate(url, ttl, "c")).await;
    assert!(!again.is_finished() && changes.try_recv().is_err(), "nothing has ticked");
    ticker.tick();
    let behind = in_time("it stands again", changes.recv()).await;
    assert_eq!(behind, Some(Change::Waits));
    third.resign("next").await;
    let last = in_time("its turn", again).await.expect("it does not panic");
    last.resign("done").await;
}

/// Goal: a leader that ignores an operator's step-down leaves the store when its validity is over, although its process lives on and renews
/// for others. Method: the holder hears of it and does nothing; another election of the same session keeps that alive.
pub async fn work_that_ignores_an_operator_is_succeeded(url: &str, ttl: Duration, at_most: Duration) {
    let session = |url: &str| Election::open(url).expect("the URL is right").ttl(ttl);
    let shared = session(url).own_session();
    let named = |id: &str| Named::new(id).stop_grace(ttl / 10).kill_margin(ttl / 20);
    let first = campaign(&shared.candidate(named("a"))).await;
    let token = token_of(&first);
    let waiting = campaign_behind(candidate(url, ttl, "b")).await;
    let wish = Wish::StepDown { because: "maintenance".to_owned(), to: None };
    in_time("an answer", shared.wish(&wish)).await.expect("a leads");
    let (loss, _) = in_time("it is told", first.stop()).await;
    assert!(matches!(loss, Loss::StoodDown(_)), "{loss}");
    let told = Instant::now();
    // It hears it, stops nothing, drops nothing.
    let second = in_time("the successor", waiting).await.expect("it does not panic");
    let took = told.elapsed();
    assert!(!first.is_leader(), "two believe");
    println!("{url}: whoever ignored an operator was succeeded after {took:?}, with a lease of {ttl:?}");
    assert!(took <= at_most, "the successor waited {took:?}");
    assert!(token_of(&second) > token);
    second.resign("done").await;
    // Its campaigns go on as if it had stopped: the tenure is over.
    let again = campaign(&shared.candidate(named("a"))).await;
    again.resign("done").await;
    drop(first);
}
