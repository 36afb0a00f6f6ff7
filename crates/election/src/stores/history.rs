//! A winner writes itself into the history of its election: what the seats of all stores share.

use crate::clock::{boot_micros, unix_seconds};
use crate::seat::Sitter;
use crate::stores::pauses::Pauses;
use hustings_lease::history::History;
use hustings_lease::{Note, Token};
use std::time::Duration;

/// Pause of a winner after its first try in vain to write itself into the history, and the longest.
const PAUSE: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(30);
/// Tries in vain after which it is told, once.
const TOLD_AFTER: u32 = 6;

/// Tries in the background until a try says that it stands there, or that it is too late: a later winner does. A history decides
/// nothing, so a candidate leads meanwhile; without it, the next winner's line would say that the tenure before this one has ended.
pub(crate) fn until_written<F>(sitter: &Sitter, write: impl Fn() -> F + Send + 'static)
where
    F: Future<Output = bool> + Send,
{
    let (patience, turns, election) = (sitter.patience, sitter.turns.clone(), sitter.election.clone());
    tokio::spawn(async move {
        let (mut pauses, mut tries) = (Pauses::new(PAUSE, PAUSE_MAX), 0_u32);
        while turns.take(patience, write()).await != Ok(true) {
            tries += 1;
            if tries == TOLD_AFTER {
                tracing::warn!(%election, "the election's history could not be written yet: it is tried again, and lacks this tenure until then");
            }
            pauses.wait().await;
        }
    });
}

impl Sitter {
    /// The history that stands there, with this candidate's tenure in it. The tenure before ended with this note, or, where it
    /// was this process' own, as this process knows; or it has been silent since this moment of boot time.
    pub(crate) fn history_with(&self, there: &[u8], token: Token, note: Option<&Note>, since_micros: u64) -> String {
        let mut history = History::parse(&String::from_utf8_lossy(there));
        if history.strange_lines() > 0 {
            let (election, lines) = (&self.election, history.strange_lines());
            tracing::warn!(%election, lines, "something else had written where this election's history stands: it is replaced");
        }
        let silence = Duration::from_micros(boot_micros().saturating_sub(since_micros));
        let last = history.tenures().next_back().map(|last| last.token);
        let own = self.last_end.clone().filter(|(token, _)| Some(*token) == last);
        let own = own.map(|(token, because)| Note { token, because, heir: None, has_stopped: true });
        let note = note.filter(|note| own.as_ref().is_none_or(|own| own.token <= note.token)).or(own.as_ref());
        history.on_won(token, self.id.clone(), note, silence);
        history.date(token, unix_seconds());
        history.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seat::Turns;
    use crate::seat::testing::sitter;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};
    use tokio::sync::Notify;

    /// Goal: a store that takes no write for some seconds loses no tenure out of the history, for whose end the next one would be blamed.
    /// Method: six tries in vain, which was one more than there were.
    #[tokio::test]
    async fn a_winner_stands_in_the_history_as_soon_as_the_store_takes_it() {
        let (sitter, _told) = sitter("billing", Duration::from_secs(1), Turns::new());
        let (tries, written) = (Arc::new(AtomicU32::new(0)), Arc::new(Notify::new()));
        let (counted, tell) = (tries.clone(), written.clone());
        until_written(&sitter, move || {
            let is_taken = counted.fetch_add(1, Ordering::Relaxed) == 6;
            if is_taken {
                tell.notify_one();
            }
            std::future::ready(is_taken)
        });
        tokio::time::timeout(Duration::from_secs(60), written.notified())
            .await
            .expect("it is tried for as long as it takes");
        assert_eq!(tries.load(Ordering::Relaxed), 7);
    }
}
