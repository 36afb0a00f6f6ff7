//! Leader-only state, under every protocol: [`Office`], and its knowledge of each follower: [`Known`].

use super::{History, Node, Progress, Reads};
use crate::{Log, NodeId, Priority, Reason};
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// Quorum checks in a row that must find a follower near before it is asked less often: a single one may be deceived by a pause of
/// the leader, which finds the answers of a far one there when it goes on.
const NEAR_CHECKS: u8 = 2;

/// The questions that a leader has asked a follower since the last quorum check.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Asked {
    /// The follower was asked nothing since the last quorum check.
    NotYet,
    /// One heartbeat of this number.
    Once(u64),
    /// More, or something that cannot be told from what was asked before: this check says nothing of how far it is.
    More,
}

/// A leader's knowledge of a follower, however it sends to it.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Known {
    /// Its log equals the leader's up to here, durably.
    pub stored: u64,
    /// Whether it was heard since the last quorum check.
    pub is_active: bool,
    /// The questions that it was asked since then.
    pub asked: Asked,
    /// Quorum checks in a row, two at most, whose first question it answered before the next heartbeat left.
    pub near_checks: u8,
    /// The highest round that it confirmed: a number of the leader's, which heartbeats carry and answers repeat.
    pub round: u64,
    /// The priority that it reported, [`Priority::Normal`] until then.
    pub priority: Priority,
    /// Whether it has reported its priority itself.
    pub has_said: bool,
    /// Quorum checks in a row that found it caught up: leadership goes to a preferred member that stays, not to one
    /// that blinks.
    pub ready_checks: u32,
}

impl Default for Known {
    /// Nothing is known, and it has one quorum check to be heard.
    fn default() -> Known {
        Known {
            stored: 0,
            is_active: true,
            asked: Asked::More,
            near_checks: 0,
            round: 0,
            priority: Priority::Normal,
            has_said: false,
            ready_checks: 0,
        }
    }
}

impl Known {
    /// It answered a heartbeat of `round`; `highest` is the newest that was asked for.
    pub fn on_heard(&mut self, round: u64, highest: u64, priority: Priority) {
        self.is_active = true;
        self.on_said(priority);
        self.round = self.round.max(round.min(highest));
    }

    /// Whether the heartbeat that leaves now must ask it for an answer. It carries `number`, which is higher in each quorum check than
    /// in all before; `wanted` is the newest round that somebody waits for, and `last` the end of the leader's log.
    ///
    /// An idle follower that is near is asked once between two quorum checks: the checks need to hear it, and nobody else needs an
    /// answer. The first heartbeat after a check asks even one that was heard since, for what was heard may have been long on its
    /// way, and the next check would find nothing. One that is behind, or that somebody waits for, is asked every time; so is one that
    /// is far, whose answer does not come before the next heartbeat: a single question would leave too little of the time between
    /// two checks for its way, and for a pause of that follower. Which question was answered its number says: to count questions and
    /// answers would not, for answers come late, twice, and to questions that were taken for lost.
    pub fn asks(&mut self, number: u64, wanted: u64, last: u64) -> bool {
        match self.asked {
            Asked::NotYet => {
                self.asked = Asked::Once(number);
                return true;
            }
            Asked::Once(first) => {
                let is_answered = self.round >= first;
                self.near_checks = if is_answered { (self.near_checks + 1).min(NEAR_CHECKS) } else { 0 };
                self.asked = Asked::More;
            }
            Asked::More => {}
        }
        let is_idle = self.is_active && self.has_said && self.round >= wanted && self.stored >= last;
        !(is_idle && self.near_checks == NEAR_CHECKS)
    }

    /// It said how much it should lead.
    pub fn on_said(&mut self, priority: Priority) {
        (self.priority, self.has_said) = (priority, true);
    }

    /// A quorum check ends, and the next begins; says whether it was heard.
    pub fn end_check(&mut self, keeps_up: bool) -> bool {
        let is_ready = self.is_active && keeps_up;
        self.ready_checks = if is_ready { self.ready_checks.saturating_add(1) } else { 0 };
        self.asked = Asked::NotYet;
        std::mem::take(&mut self.is_active)
    }
}

/// A hand-over under way.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Transfer {
    /// The node that is to take over.
    pub to: NodeId,
    /// Whether the successor was told to take over.
    pub is_told: bool,
    /// The reason for the hand-over.
    pub because: Reason,
}

/// State that only a leader has. `F` is what it knows of each follower.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Office<F> {
    /// The peers that it sends to, and itself.
    pub peers: BTreeMap<NodeId, F>,
    /// Reads that wait for a quorum.
    pub reads: Reads,
    /// The hand-over under way; `None` when there is none.
    pub transfer: Option<Transfer>,
    /// The last index that may hold a change of membership: no other starts before it is applied (RM-2).
    pub pending_change: u64,
    /// The index of this leader's first entry: reads and changes wait for its commit (RM-1, RR-1).
    pub first_own: u64,
    /// The bytes of proposals beyond the commit (RF-1).
    pub uncommitted_bytes: usize,
    /// Last index of this leader's log at the last quorum check. A follower that stores everything up to there keeps
    /// up: while others write, no follower stores *everything*, for what was written last is still on its way.
    pub end_at_check: u64,
    /// Quorum checks that ended while it led as a caretaker, as far as they count.
    pub care_checks: u8,
}

impl Office<Progress> {
    /// The office of a node that is elected with the log that it has, and sends to everyone from its end on.
    ///
    /// # Panics
    /// When the log holds an entry of this term already: a term's entries are its leader's, and there was none.
    pub fn elected(node: &Node<Log>) -> Office<Progress> {
        let last = node.log.last();
        assert!(last.term < node.promise.term, "no entry of a term is written before its leader is elected");
        let peers = node.membership.everyone().map(|peer| (peer, Progress::new(last.index)));
        let mut office = Office::new(peers.collect(), last.index, node.uncommitted_bytes());
        if let Some(own) = office.peers.get_mut(&node.me) {
            own.become_flow();
        }
        office
    }
}

impl<F: AsRef<Known> + AsMut<Known>> Office<F> {
    /// The office of a leader whose log ends at `last`: everything up to there may hold a change of membership.
    pub fn new(peers: BTreeMap<NodeId, F>, last: u64, uncommitted_bytes: usize) -> Office<F> {
        let (pending_change, first_own) = (last, last + 1);
        let (reads, transfer, end_at_check) = (Reads::default(), None, first_own);
        Office { peers, reads, transfer, pending_change, first_own, uncommitted_bytes, end_at_check, care_checks: 0 }
    }

    /// The office of a leader that must make its log whole before it has an entry of its own: until then nothing is read or changed.
    pub fn unready(peers: BTreeMap<NodeId, F>) -> Office<F> {
        Office { first_own: u64::MAX, ..Office::new(peers, 0, 0) }
    }

    /// Knowledge of a follower; `None` of a stranger.
    pub fn known(&self, id: NodeId) -> Option<&Known> {
        self.peers.get(&id).map(AsRef::as_ref)
    }

    /// Last index up to which a follower's log equals the leader's; 0 of a stranger.
    pub fn stored(&self, id: NodeId) -> u64 {
        self.known(id).map_or(0, |known| known.stored)
    }

    /// All peers but `me`.
    pub fn others(&self, me: NodeId) -> Vec<NodeId> {
        self.peers.keys().copied().filter(|id| *id != me).collect()
    }

    /// The voters that were heard since the last quorum check, the leader among them.
    pub fn heard<L: History>(&self, node: &Node<L>) -> Vec<NodeId> {
        let is_heard = |id: &NodeId| *id == node.me || self.known(*id).is_some_and(|known| known.is_active);
        node.membership.all_voters().filter(is_heard).collect()
    }

    /// Ends a quorum check and begins the next; the log ends at `last` now. Gives the index that a follower which keeps up stores by now.
    ///
    /// Questions from here on have a number of their own, so that no answer to an earlier one is taken for theirs.
    pub fn begin_check(&mut self, last: u64) -> u64 {
        self.reads.begin_round();
        std::mem::replace(&mut self.end_at_check, last)
    }

    /// Ends a quorum check in the same way, for followers that have nothing but [`Known`].
    pub fn end_check(&mut self, last: u64) {
        let wanted = self.begin_check(last);
        for known in self.peers.values_mut().map(AsMut::as_mut) {
            known.end_check(known.stored >= wanted);
        }
    }

    /// The most up-to-date reachable voter that may lead; ties go to the higher priority, then to the smaller id.
    pub fn best_successor<L: History>(&self, node: &Node<L>, is_able: impl Fn(NodeId) -> bool) -> Option<NodeId> {
        let ranked = node.membership.voters.iter().copied().filter_map(|id| {
            let known = self.known(id).filter(|known| known.priority != Priority::Never && known.stored > 0)?;
            let is_able = id != node.me && !node.links_down.contains(&id) && is_able(id);
            is_able.then_some(((known.stored, known.priority, Reverse(id)), id))
        });
        ranked.max().map(|(_, id)| id)
    }
}
