//! A sidecar's news to systemd, where it asked for them (`Type=notify`): [`Notify`].

use hustings_election::Change;
use sd_notify::NotifyState;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// The moment at which a sidecar counts as started.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ReadyAs {
    /// Once it stands for election: units that wait for it do not wait for a leadership.
    Candidate,
    /// Once its command may run.
    Leader,
}

/// Says each transition to the process that started this one. Without `NOTIFY_SOCKET` nobody hears it.
#[derive(Debug)]
pub(crate) struct Notify {
    election: String,
    ready_as: ReadyAs,
    is_ready: AtomicBool,
}

impl Notify {
    pub(crate) fn new(election: &str, ready_as: ReadyAs) -> Notify {
        Notify { election: election.to_owned(), ready_as, is_ready: AtomicBool::new(false) }
    }

    /// Tells systemd of a change of the candidacy: a line of status, and once whether the unit is ready.
    pub(crate) fn told(&self, change: &Change) {
        let election = &self.election;
        let (status, is_ready) = match change {
            Change::Waits => (format!("waits for {election}"), self.ready_as == ReadyAs::Candidate),
            Change::Elected(token) => {
                (format!("is elected for {election}, token {token}"), self.ready_as == ReadyAs::Candidate)
            }
            Change::Leads(token) => (format!("leads {election}, token {token}"), true),
            other => (format!("{election}: {other}"), false),
        };
        let mut words = vec![NotifyState::Status(&status)];
        if is_ready && !self.is_ready.swap(true, Ordering::Relaxed) {
            words.push(NotifyState::Ready);
        }
        say(&words);
    }

    /// The sidecar is about to end.
    pub(crate) fn ends(&self) {
        say(&[NotifyState::Stopping]);
    }
}

fn say(words: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(words) {
        tracing::warn!(%error, "the process that started this one cannot be told how it is: look at NOTIFY_SOCKET");
    }
}

/// Says that this process lives, twice as often as it must, if it must (`WatchdogSec=`). To be run by what would stand still.
pub(crate) async fn keep_watch() {
    let Some(period) = sd_notify::watchdog_enabled() else { return };
    let mut ticks = tokio::time::interval((period / 2).max(Duration::from_millis(1)));
    loop {
        ticks.tick().await;
        say(&[NotifyState::Watchdog]);
    }
}
