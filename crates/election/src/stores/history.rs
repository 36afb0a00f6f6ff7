//! A winner writes itself into the history of its election: what the seats of all stores share.

use crate::clock::{boot_micros, unix_seconds};
use crate::seat::Sitter;
use hustings_lease::history::History;
use hustings_lease::{Note, Token};
use std::time::Duration;

/// Times that a winner tries to write itself into the history, and its pause between two tries.
const TRIES: usize = 5;
const PAUSE: Duration = Duration::from_millis(50);

/// Tries in the background until a try says that it stands there. As far as it goes: a history decides nothing.
pub(crate) fn until_written<F>(sitter: &Sitter, write: impl Fn() -> F + Send + 'static)
where
    F: Future<Output = bool> + Send,
{
    let (patience, turns, election) = (sitter.patience, sitter.turns.clone(), sitter.election.clone());
    tokio::spawn(async move {
        for _ in 0..TRIES {
            if turns.take(patience, write()).await == Ok(true) {
                return;
            }
            tokio::time::sleep(PAUSE).await;
        }
        tracing::debug!(%election, "the history could not be written");
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
