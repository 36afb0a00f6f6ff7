//! Reachability of peers, with its reason and since when: [`PeerReach`] of each peer, [`Quorum`] of all voters.
//!
//! Links write it, and these read it: the log, `/v1/status`, and through it `hustings status` and every command that
//! waited in vain. Nothing is decided by it.
//!
//! A peer counts as reachable while its link is up and something came over it lately: a stopped process keeps its links, and
//! its kernel acknowledges for it.

use crate::counters::Counters;
use crate::timers::boot_micros;
use hustings_core::{Membership, NodeId, quorum::majority};
use std::collections::BTreeSet;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Every peer is asked something each two seconds: one that misses two questions is silent.
const SILENT_AFTER: Duration = Duration::from_secs(5);
/// An answer that came after so long a time in which nothing was heard of a peer says how long that one, or this member, stood still or was
/// cut off, and nothing of the distance: a round trip over a geostationary satellite takes less.
const STILL_MICROS: u64 = 1_000_000;
/// Limit of a peer's own words that are repeated, in characters.
const WHY_CHARS_MAX: usize = 300;

/// State of the way from here to a peer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Reach {
    /// Its link is up, and it was heard lately.
    Reachable,
    /// Its link is up, and nothing comes over it: its process or its machine stands still.
    Silent,
    /// There is no link; why, if that is known.
    Away(String),
    /// It refuses this member, in its words.
    RefusesThis(String),
    /// This member refuses it, in this member's words.
    IsRefused(String),
}

/// The state of the way to a peer.
#[derive(Debug)]
pub struct PeerReach {
    /// Moment of the last bytes from it, or of the first try, by the boot clock.
    heard_micros: AtomicU64,
    /// Begin and end of the last long time in which nothing came from it, by the boot clock.
    still: Mutex<(u64, u64)>,
    state: Mutex<Reach>,
}

impl Default for PeerReach {
    fn default() -> PeerReach {
        PeerReach {
            heard_micros: AtomicU64::new(boot_micros()),
            still: Mutex::default(),
            state: Mutex::new(Reach::Away("no connection yet".to_owned())),
        }
    }
}

impl PeerReach {
    pub(crate) fn on_heard(&self) {
        self.on_heard_at(boot_micros());
    }

    fn on_heard_at(&self, now: u64) {
        let before = self.heard_micros.swap(now, Ordering::Relaxed);
        if now.saturating_sub(before) >= STILL_MICROS {
            *self.still.lock().unwrap_or_else(PoisonError::into_inner) = (before, now);
        }
    }

    /// Whether nothing was heard for long since this time, by the boot clock: an answer to a question of then measures that.
    pub(crate) fn was_still_since(&self, sent_micros: u64) -> bool {
        let (from, until) = *self.still.lock().unwrap_or_else(PoisonError::into_inner);
        until.saturating_sub(from.max(sent_micros)) >= STILL_MICROS
    }

    pub(crate) fn on_up(&self) {
        self.on_heard();
        self.set(Reach::Reachable);
    }

    /// Sets the state of the way to it; it counts as away since it was last heard.
    pub(crate) fn set(&self, state: Reach) {
        let cut = |why: String| why.chars().take(WHY_CHARS_MAX).collect();
        *self.state.lock().expect("nobody panics while holding it") = match state {
            Reach::Away(why) => Reach::Away(cut(why)),
            Reach::RefusesThis(why) => Reach::RefusesThis(cut(why)),
            Reach::IsRefused(why) => Reach::IsRefused(cut(why)),
            state => state,
        };
    }

    /// The state now, and the time since it was last heard.
    ///
    /// # Panics
    /// Never: nobody panics while holding the lock.
    pub fn look(&self) -> (Reach, Duration) {
        let silence = boot_micros().saturating_sub(self.heard_micros.load(Ordering::Relaxed));
        let silence = Duration::from_micros(silence);
        let state = self.state.lock().expect("nobody panics while holding it").clone();
        match state {
            Reach::Reachable if silence > SILENT_AFTER => (Reach::Silent, silence),
            state => (state, silence),
        }
    }
}

/// A voter that cannot be reached.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Missing {
    /// Id of the voter.
    pub id: NodeId,
    /// Its name, or its id while it has none.
    pub name: String,
    /// Time since it was last heard.
    pub silence: Duration,
    /// State of the way to it; never [`Reach::Reachable`].
    pub reach: Reach,
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Missing { name, silence, reach, .. } = self;
        let since = in_words(*silence);
        match reach {
            Reach::Reachable => write!(f, "{name} is reachable"),
            Reach::Silent => {
                write!(f, "{name} silent for {since}, with its connection open: does its process stand still?")
            }
            Reach::Away(why) => write!(f, "{name} silent for {since} ({why})"),
            Reach::RefusesThis(why) => write!(f, "{name} refuses this member: {why}"),
            Reach::IsRefused(why) => write!(f, "{name} is refused: {why}"),
        }
    }
}

/// The voters that can be reached from a member; the member itself can.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Quorum {
    /// Number of voters, in both halves of a joint membership.
    pub voters: usize,
    /// Number of voters that can be reached.
    pub reachable: usize,
    /// The voters that cannot be reached.
    pub missing: Vec<Missing>,
    /// Whether those that can be reached are a majority.
    pub is_there: bool,
}

impl Quorum {
    /// The quorum as `me` sees it now.
    pub fn look(me: NodeId, membership: &Membership, counters: &Counters) -> Quorum {
        let mut quorum = Quorum { voters: 0, reachable: 0, missing: Vec::new(), is_there: false };
        let mut reached = Vec::new();
        for id in membership.everyone().filter(|id| membership.is_voter(*id)) {
            quorum.voters += 1;
            let (reach, silence) = if id == me { (Reach::Reachable, Duration::ZERO) } else { counters.reach_of(id) };
            if reach == Reach::Reachable {
                quorum.reachable += 1;
                reached.push(id);
            } else {
                quorum.missing.push(Missing { id, name: membership.name_of(id), silence, reach });
            }
        }
        let has_majority = |group: &BTreeSet<NodeId>| {
            let there = group.iter().filter(|id| reached.contains(id)).count();
            group.is_empty() || there >= majority(group.len())
        };
        quorum.is_there = has_majority(&membership.voters) && has_majority(&membership.outgoing);
        quorum
    }
}

impl fmt::Display for Quorum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Quorum { voters, reachable, missing, .. } = self;
        write!(f, "{reachable} of {voters} voters reachable")?;
        for missing in missing {
            write!(f, "; {missing}")?;
        }
        Ok(())
    }
}

/// `0.4 s`, `41 s`, `12 min`, `5 h`, `3 d`.
pub fn in_words(time: Duration) -> String {
    let seconds = time.as_secs();
    match seconds {
        0..10 => format!("{:.1} s", time.as_secs_f64()),
        10..120 => format!("{seconds} s"),
        120..7_200 => format!("{} min", seconds / 60),
        7_200..172_800 => format!("{} h", seconds / 3_600),
        _ => format!("{} d", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hustings_core::Member;

    /// Goal: a majority of all voters is not taken for a quorum. Method: three of the five of a joint membership, one of the old three.
    #[test]
    fn both_halves_of_a_joint_membership_are_counted() {
        let mut membership = Membership::of_voters([1, 2, 3].map(NodeId));
        membership.outgoing = [3, 4, 5].map(NodeId).into();
        let counters = Counters::default();
        let reach = |id, state| counters.of_peer(NodeId(id)).reach.set(state);
        (2..=3).for_each(|id| reach(id, Reach::Reachable));
        let quorum = Quorum::look(NodeId(1), &membership, &counters);
        assert_eq!((quorum.voters, quorum.reachable, quorum.is_there), (5, 3, false));
        reach(4, Reach::Reachable);
        assert!(Quorum::look(NodeId(1), &membership, &counters).is_there);
    }

    /// Goal: the time for which a peer stood still is no distance to it. Method: a question before and one after the silence; a link that is
    /// idle between two quick answers.
    #[test]
    fn an_answer_that_waited_for_a_peer_measures_no_round_trip() {
        let reach = PeerReach::default();
        let begun = boot_micros();
        for (at, sent, is_still) in [
            (300_000, 299_000, false),
            (2_300_000, 2_299_000, false),
            (9_300_000, 4_000_000, true),
            (9_300_100, 9_300_000, false),
            (9_900_000, 9_600_000, false),
        ] {
            reach.on_heard_at(begun + at);
            assert_eq!(reach.was_still_since(begun + sent), is_still, "asked at {sent}, answered at {at}");
        }
    }

    #[test]
    fn who_is_missing_is_said_by_name_with_the_reason() {
        let founders = ["db-a", "db-b", "db-c"].map(|name| Member { name: name.into(), ..Member::default() });
        let membership = Membership::founded_by(founders);
        let counters = Counters::default();
        counters.of_peer(NodeId(2)).reach.set(Reach::Away("connection refused".into()));
        counters.of_peer(NodeId(3)).reach.set(Reach::RefusesThis("another data directory".into()));
        let mut quorum = Quorum::look(NodeId(1), &membership, &counters);
        assert!(!quorum.is_there);
        for missing in &mut quorum.missing {
            missing.silence = Duration::from_secs(41);
        }
        assert_eq!(
            quorum.to_string(),
            "1 of 3 voters reachable; db-b silent for 41 s (connection refused); db-c refuses this member: another data directory"
        );
        counters.of_peer(NodeId(3)).reach.on_up();
        let quorum = Quorum::look(NodeId(1), &membership, &counters);
        assert!(quorum.is_there && quorum.reachable == 2 && quorum.missing[0].name == "db-b");
    }

    #[test]
    fn a_time_is_said_in_one_unit() {
        let said = |seconds| in_words(Duration::from_secs(seconds));
        assert_eq!(
            [said(0), said(9), said(41), said(125), said(86_400), said(400_000)].join(", "),
            "0.0 s, 9.0 s, 41 s, 2 min, 24 h, 4 d"
        );
    }
}
