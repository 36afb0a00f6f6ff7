//! A winner writes itself into the history of its election: what the seats of all stores share.

use crate::clock::{boot_micros, unix_seconds};
use crate::seat::Sitter;
use crate::stores::pauses::Pauses;
use hustings_lease::history::History;
use hustings_lease::{Note, Token};
use std::time::Duration;
use tokio::sync::oneshot;

/// Pause of a winner after its first try in vain to write itself into the history, and the longest.
const PAUSE: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(30);
/// Tries in vain after which it is told, once.
const TOLD_AFTER: u32 = 6;

/// Longest time for which a candidate that has left, or won again, still tries.
const REST: Duration = Duration::from_secs(60);

/// The beginning of a tenure as its winner knew it then: it may be written down much later.
#[derive(Clone, Debug)]
pub(crate) struct Beginning {
    token: Token,
    /// The note that the tenure before had left, and the time for which nobody had heard of it.
    note: Option<Note>,
    silence: Duration,
    at_unix_seconds: u64,
}

impl Beginning {
    /// A tenure begins now. The one before left this note, or has been silent since this moment of boot time.
    pub(crate) fn now(token: Token, note: Option<Note>, since_micros: u64) -> Beginning {
        let silence = Duration::from_micros(boot_micros().saturating_sub(since_micros));
        Beginning { token, note, silence, at_unix_seconds: unix_seconds() }
    }

    pub(crate) fn token(&self) -> Token {
        self.token
    }
}

/// The outcome of a try to write a tenure down.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Written {
    /// It stands there, or comes too late: a later winner does.
    Stands,
    Again,
    /// The store does not let the user write there now.
    Denied(String),
}

impl Written {
    /// The outcome where a try that succeeds may find that something else was written meanwhile; with the words of a failure that is a denial.
    pub(crate) fn of<E>(tried: Result<bool, E>, denial: impl FnOnce(&E) -> Option<String>) -> Written {
        match tried {
            Ok(true) => Written::Stands,
            Ok(false) => Written::Again,
            Err(error) => denial(&error).map_or(Written::Again, Written::Denied),
        }
    }
}

/// A tenure that is being written down; once nobody holds it, for a minute more at most.
#[must_use]
pub(crate) struct Writing {
    _is_held: oneshot::Sender<()>,
}

/// Tries in the background until a try says how it ended. A history decides nothing, so a candidate leads meanwhile; without it, the
/// next winner's line would say that the tenure before this one has ended.
pub(crate) fn until_written<F>(
    sitter: &Sitter,
    won: Beginning,
    write: impl Fn(Beginning) -> F + Send + 'static,
) -> Writing
where
    F: Future<Output = Written> + Send,
{
    begin(sitter, REST, move || write(won.clone()))
}

/// As [`until_written`], with another rest.
fn begin<F>(sitter: &Sitter, rest: Duration, write: impl Fn() -> F + Send + 'static) -> Writing
where
    F: Future<Output = Written> + Send,
{
    let (patience, turns, election) = (sitter.patience, sitter.turns.clone(), sitter.election.clone());
    let tries = async move {
        let (mut pauses, mut tries, mut is_told) = (Pauses::new(PAUSE, PAUSE_MAX), 0_u32, false);
        loop {
            match turns.take(patience, write()).await {
                Ok(Written::Stands) => return,
                // Rights that are put right are used.
                Ok(Written::Denied(why)) => {
                    if !std::mem::replace(&mut is_told, true) {
                        tracing::warn!(%election, why, "the election's history may not be written: it is tried again, and lacks this tenure until then");
                    }
                    tokio::time::sleep(PAUSE_MAX).await;
                    continue;
                }
                Ok(Written::Again) | Err(_) => tries += 1,
            }
            if tries == TOLD_AFTER {
                tracing::warn!(%election, "the election's history could not be written yet: it is tried again, and lacks this tenure until then");
            }
            pauses.wait().await;
        }
    };
    let (is_held, until_left) = oneshot::channel::<()>();
    tokio::spawn(async move {
        let rest = async {
            let _ = until_left.await;
            tokio::time::sleep(rest).await;
        };
        tokio::select! {
            () = tries => {}
            () = rest => {}
        }
    });
    Writing { _is_held: is_held }
}

impl Sitter {
    /// The history that stands there, with this candidate's tenure in it. Where the tenure before was this process' own, it ended as this
    /// process knows.
    pub(crate) fn history_with(&self, there: &[u8], won: &Beginning) -> String {
        let mut history = History::parse(&String::from_utf8_lossy(there));
        if history.strange_lines() > 0 {
            let (election, lines) = (&self.election, history.strange_lines());
            tracing::warn!(%election, lines, "something else had written where this election's history stands: it is replaced");
        }
        let last = history.tenures().next_back().map(|last| last.token);
        let own = self.last_end.clone().filter(|(token, _)| Some(*token) == last);
        let own = own.map(|(token, because)| Note { token, because, heir: None, has_stopped: true });
        let note =
            won.note.as_ref().filter(|note| own.as_ref().is_none_or(|own| own.token <= note.token)).or(own.as_ref());
        history.on_won(won.token, self.id.clone(), note, won.silence, won.at_unix_seconds);
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
        let won = Beginning::now(Token::new(1), None, boot_micros());
        let _writing = until_written(&sitter, won, move |_| {
            let is_taken = counted.fetch_add(1, Ordering::Relaxed) == 6;
            if is_taken {
                tell.notify_one();
            }
            std::future::ready(if is_taken { Written::Stands } else { Written::Again })
        });
        tokio::time::timeout(Duration::from_secs(60), written.notified())
            .await
            .expect("it is tried for as long as it takes");
        assert_eq!(tries.load(Ordering::Relaxed), 7);
    }

    /// Goal: a tenure that can be written down only later says what was so when it began. Method: one that began long ago, behind three
    /// seconds of silence; that all tries get the same beginning is the form of `until_written`.
    #[tokio::test]
    async fn what_is_written_late_says_what_was_so_at_the_beginning() {
        let (sitter, _told) = sitter("billing", Duration::from_secs(1), Turns::new());
        let first = sitter.history_with(b"", &Beginning::now(Token::new(1), None, boot_micros()));
        let won =
            Beginning { silence: Duration::from_secs(3), at_unix_seconds: 7, ..Beginning::now(Token::new(2), None, 0) };
        let late = sitter.history_with(first.as_bytes(), &won);
        assert!(late.ends_with("2\ta\tsilent\t3000\t7\n"), "{late}");
    }

    /// Goal: what is denied is not asked for again and again, and what nobody waits for ends. Method: a store that denies it, and one that
    /// takes nothing; their candidates leave.
    #[tokio::test]
    async fn tries_are_rare_where_they_are_denied_and_end_when_the_candidate_has_left() {
        let asked = |answer: Written| {
            let (sitter, told) = sitter("billing", Duration::from_secs(1), Turns::new());
            let tries = Arc::new(AtomicU32::new(0));
            let counted = tries.clone();
            let writing = begin(&sitter, Duration::ZERO, move || {
                counted.fetch_add(1, Ordering::Relaxed);
                std::future::ready(answer.clone())
            });
            (writing, tries, told)
        };
        let ended = async |tries: &Arc<AtomicU32>| {
            let is_given_back = async {
                while Arc::strong_count(tries) > 1 {
                    tokio::task::yield_now().await;
                }
            };
            tokio::time::timeout(Duration::from_secs(60), is_given_back).await.expect("it ends");
        };
        let (of_denied, denied, _told) = asked(Written::Denied("may not".to_owned()));
        let (of_refused, refused, _told) = asked(Written::Again);
        while refused.load(Ordering::Relaxed) < 4 {
            tokio::task::yield_now().await;
        }
        assert_eq!(denied.load(Ordering::Relaxed), 1);
        drop((of_denied, of_refused));
        ended(&denied).await;
        ended(&refused).await;
    }
}
