//! Watching a record, and what is wished of its holder: reads that wait for a change.

use super::http::{Awaited, Failure};
use super::seat::Shared;
use crate::stores::pauses::Pauses;
use crate::stores::written::wish_for;
use hustings_lease::{Observation, Token};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;

/// Pause after the first try in vain, and the longest: an agent that takes no more connections is not asked the more for it.
const RETRY: Duration = Duration::from_millis(100);
const RETRY_MAX: Duration = Duration::from_secs(2);

/// Tells what the record says, now and whenever it changes. After a break it tells of the break, and ends: the candidate
/// watches anew.
pub(super) async fn follow(shared: Arc<Shared>) {
    let (mut index, mut told, mut is_broken) = (0, None, false);
    let mut pauses = Pauses::new(RETRY, RETRY_MAX);
    loop {
        let Some(awaited) = next(&shared, &shared.keys.record, &mut index).await else {
            is_broken = true;
            pauses.wait().await;
            continue;
        };
        pauses.end();
        if is_broken {
            return shared.sitter.line.saw(Observation::Interrupted);
        }
        let state = awaited.found.as_ref().map(|found| (found.index, found.session.clone()));
        if told.as_ref() == Some(&state) {
            continue;
        }
        match timeout(shared.session.patience(), shared.keys.around(&shared.session.consul)).await {
            Ok(Ok(around)) => {
                shared.saw(awaited.found.as_ref(), &around);
                told = Some(state);
            }
            _ => is_broken = true,
        }
    }
}

/// Tells the holder with this token what an operator wishes.
pub(super) async fn listen(shared: Arc<Shared>, token: Token) {
    let (mut index, mut heard) = (0, None);
    let mut pauses = Pauses::new(RETRY, RETRY_MAX);
    loop {
        let awaited = next(&shared, &shared.keys.wish, &mut index).await;
        if awaited.is_some() {
            pauses.end();
        }
        match awaited {
            Some(Awaited { found: Some(found), .. }) if heard != Some(found.index) => {
                heard = Some(found.index);
                if let Some(input) = wish_for(token, &found.value) {
                    shared.sitter.line.input(input);
                }
            }
            Some(_) => {}
            None => pauses.wait().await,
        }
    }
}

/// The next state of a key, after the one with this index.
async fn next(shared: &Shared, key: &str, index: &mut u64) -> Option<Awaited> {
    let session = &shared.session;
    let wait = session.wait();
    // Consul waits up to a sixteenth longer, so that not all ask anew at once.
    let at_most = wait + wait / 16 + session.patience();
    match timeout(at_most, session.consul.get_after(key, *index, wait)).await {
        Ok(Ok(awaited)) => {
            // An index that falls belongs to another history, and 0 would not wait.
            *index = if awaited.index < *index { 0 } else { awaited.index.max(1) };
            Some(awaited)
        }
        Ok(Err(Failure::Refused(why) | Failure::Denied(why))) => {
            tracing::debug!(%key, "it cannot be watched: {why}");
            None
        }
        _ => None,
    }
}
