//! The loop's news for people: changes of role, term and leader, and who can be reached. One line for each thing that is
//! new; what repeats while nobody leads is counted.

use super::Host;
use crate::counters::Counters;
use crate::handle::Happening;
use crate::reach::{Quorum, Reach, in_words};
use crate::remedies::NO_QUORUM;
use hustings_core::{NodeId, Protocol, Reason, Role, StateMachine, Transition};
use std::collections::{BTreeMap, BTreeSet};
use std::mem::{Discriminant, discriminant};
use std::time::{Duration, SystemTime};
use tokio::time::Instant;

/// A voter is missed after this time: a process that is started again at once is not.
const MISSED_AFTER: Duration = Duration::from_secs(1);
/// The pause before it is said again that there is no quorum; six times as long each time, up to the second.
const REMIND_AFTER: (Duration, Duration) = (Duration::from_secs(10), Duration::from_secs(600));

/// News that were told, so that each is told once.
pub(super) struct News {
    /// Changes that were told since there was a leader: from what, to what, why.
    told: BTreeSet<(Role, Role, String)>,
    /// Number of changes like those that were left out.
    left_out: u64,
    leaderless_since: Instant,
    /// Members that were said to be missing, with their kind of absence.
    missed: BTreeMap<NodeId, Discriminant<Reach>>,
    remind_at: Instant,
    remind_after: Duration,
}

impl News {
    pub(super) fn new() -> News {
        let now = Instant::now();
        News {
            told: BTreeSet::new(),
            left_out: 0,
            leaderless_since: now,
            missed: BTreeMap::new(),
            remind_at: now + REMIND_AFTER.0,
            remind_after: REMIND_AFTER.0,
        }
    }

    /// Whether a change is to be told. Without a leader the same elections are lost again and again.
    fn is_new(&mut self, transition: &Transition, why: &str) -> bool {
        if transition.leader.is_some() {
            return true;
        }
        if self.told.is_empty() {
            self.leaderless_since = Instant::now();
        }
        let is_new = self.told.insert((transition.from, transition.to, why.to_owned()));
        self.left_out += u64::from(!is_new);
        is_new
    }

    /// There is a leader: how many lines were left out.
    fn take_left_out(&mut self) -> u64 {
        self.told.clear();
        std::mem::take(&mut self.left_out)
    }
}

impl<P: Protocol, S: StateMachine> Host<P, S> {
    pub(super) fn on_transition(&mut self, transition: Transition) {
        let counters = &self.wiring.counters;
        if transition.leader.is_some() && transition.leader != self.leader_seen {
            Counters::add(&counters.leader_changes, 1);
        }
        self.leader_seen = transition.leader;
        self.succession.note(&transition);
        if transition.to == Role::Leader && transition.from != Role::Leader {
            Counters::add(&counters.elections_won, 1);
            self.describing.begin_at(self.replica.status().last.index);
            if self.replica.is_witness() {
                tracing::warn!(
                    node = self.own_name(),
                    "this witness leads as a caretaker: the others lack entries that it holds; it hands over to the first that has them, and until then nothing is written"
                );
            }
        }
        self.mark_transition(&transition);
        if transition.leader.is_none() {
            // However many ask: the election comes first.
            self.eagerness.set(true);
        }
        self.untold.push(Happening { at: SystemTime::now(), moment: Instant::now().into_std(), transition });
    }

    /// Tells all listeners of the changes since the last time. Called after a turn's messages have left, because an election waits for
    /// them.
    pub(super) fn tell_transitions(&mut self) {
        if self.untold.is_empty() {
            return;
        }
        // Status first, so that a hearer finds it there; nobody need listen.
        self.tell_status();
        for happening in std::mem::take(&mut self.untold) {
            self.log(&happening.transition);
            let _ = self.wiring.happenings.send(happening);
        }
    }

    /// A member that is preferred by its operator is so no more for a while, or is again.
    pub(super) fn tell_preference(&self, is_suspended: bool) {
        if self.wiring.status.borrow().is_suspended == is_suspended {
            return;
        }
        let node = self.own_name();
        if is_suspended {
            tracing::warn!(
                node,
                "this member is preferred as leader no more for a while: it lost leadership again and again, asked by nobody; look at its disk, its machine and its links"
            );
        } else {
            tracing::info!(node, "this member is preferred as leader again");
        }
    }

    /// This node's name; its id while it has no name.
    pub(super) fn own_name(&self) -> String {
        self.replica.membership().name_of(self.replica.me())
    }

    fn log(&mut self, transition: &Transition) {
        let membership = self.replica.membership();
        let Transition { node, from, to, term, leader, lsn, because } = transition;
        let reason = because.by_name(membership);
        let line = transition.by_name(membership);
        let (node, leader) = (membership.name_of(*node), leader.map(|leader| membership.name_of(leader)));
        if leader.is_some() {
            let left_out = self.news.take_left_out();
            if left_out > 0 {
                let since = in_words(self.news.leaderless_since.elapsed());
                tracing::info!(node, left_out, "{left_out} changes more like those above, in {since} without a leader");
            }
        }
        let is_new = self.news.is_new(transition, &reason);
        if is_new && matches!(because, Reason::Contradicted(_)) {
            tracing::warn!(node, %from, %to, term = term.0, leader, %lsn, reason, protocol = P::NAME, "{line}");
        } else if is_new {
            tracing::info!(node, %from, %to, term = term.0, leader, %lsn, reason, protocol = P::NAME, "{line}");
        } else {
            tracing::debug!(node, %from, %to, term = term.0, leader, %lsn, reason, protocol = P::NAME, "{line}");
        }
    }

    /// Now and then: who cannot be reached is said when it changes, and again while that leaves no quorum.
    pub(super) fn watch_voters(&mut self) {
        let (me, membership) = (self.replica.me(), self.replica.membership());
        if !membership.has(me) {
            return;
        }
        let mut quorum = Quorum::look(me, membership, &self.wiring.counters);
        quorum.missing.retain(|missing| missing.silence >= MISSED_AFTER);
        let missed: BTreeMap<_, _> =
            quorum.missing.iter().map(|missing| (missing.id, discriminant(&missing.reach))).collect();
        let is_news = missed != self.news.missed;
        if !is_news && (missed.is_empty() || quorum.is_there || Instant::now() < self.news.remind_at) {
            return;
        }
        let node = membership.name_of(me);
        if missed.is_empty() {
            tracing::info!(node, voters = quorum.voters, "all {} voters can be reached", quorum.voters);
        } else {
            let (voters, left_out) = (quorum.voters, self.news.left_out);
            // Members that came and went within a second are nobody's business.
            quorum.reachable = voters - quorum.missing.len();
            let remedy = match (quorum.is_there, left_out) {
                (true, _) => String::new(),
                (false, 0) => format!("; nothing is written: {NO_QUORUM}"),
                (false, count) => {
                    format!("; nothing is written: {NO_QUORUM} ({count} elections' lines left out)")
                }
            };
            tracing::warn!(node, voters, reachable = quorum.reachable, left_out, "{quorum}{remedy}");
        }
        self.news.remind_after = match is_news {
            true => REMIND_AFTER.0,
            false => (self.news.remind_after * 6).min(REMIND_AFTER.1),
        };
        self.news.remind_at = Instant::now() + self.news.remind_after;
        self.news.missed = missed;
    }
}
