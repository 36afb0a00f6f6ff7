//! The loop's part in seeing that no member differs from the others in silence: members compare their states from time to time,
//! and tell each other how much of their logs is durable ([`crate::positions`]).

use super::{Host, Link};
use crate::comparison::{Comparison, Finding};
use crate::frame::SPEAKS_OF_STATE;
use crate::positions::{Heard, Lack, rolled_back};
use crate::snapshots::SnapshotJob;
use hustings_core::replica::message::{POSITIONS_MAX, Position};
use hustings_core::replica::{Event, ReplicaMessage, SnapshotContents};
use hustings_core::{NodeId, Protocol, Role, StateMachine};
use hustings_wal::peers;
use std::collections::BTreeSet;
use std::time::Duration;
use tokio::time::Instant;

/// The least time between two words to a peer that does not lead on what is durable here. The leader hears it with every
/// acknowledgement.
const TELL_EVERY: Duration = Duration::from_millis(20);

/// Pause between two writes of what is known of others while they live.
const REMEMBER_EVERY: Duration = Duration::from_secs(30);

/// Pause after a comparison, as a multiple of the time that this node's own digest took.
const DIGEST_PAUSE: u32 = 20;

impl Link {
    fn speaks_of_state(&self) -> bool {
        self.hello.build.speaks >= SPEAKS_OF_STATE
    }
}

/// The state of these watches.
pub(crate) struct Integrity {
    /// Pause between two comparisons of states; `None` for never.
    every: Option<Duration>,
    next: Instant,
    /// Moment at which the digest that is being made was asked for; `None` if none is being made.
    digest_since: Option<Instant>,
    /// Index up to which this node had applied when it last asked for a comparison, as leader.
    asked_at: u64,
    comparison: Comparison,
    /// Members whose state differed at the last comparison.
    pub(crate) differing: BTreeSet<NodeId>,
    /// The entry of that comparison; 0 before the first.
    pub(crate) compared_at: u64,
    /// The durable part of this node's log as last told: to which leader, and to all.
    told_leader: (Option<NodeId>, u64),
    told_all: u64,
    told_all_at: Instant,
    /// Positions of other members have arrived that this node has not passed on yet; `is_unwritten`: not written down yet.
    is_gossip: bool,
    is_unwritten: bool,
    remember_at: Instant,
}

impl Integrity {
    pub(crate) fn new(every: Option<Duration>) -> Integrity {
        let now = Instant::now();
        Integrity {
            every,
            next: now + every.unwrap_or_default(),
            digest_since: None,
            asked_at: 0,
            comparison: Comparison::default(),
            differing: BTreeSet::new(),
            compared_at: 0,
            told_leader: (None, 0),
            told_all: 0,
            told_all_at: now,
            is_gossip: false,
            is_unwritten: false,
            remember_at: now + REMEMBER_EVERY,
        }
    }

    /// Whether a digest is begun now. One at a time: a log that is applied again, or is caught up with, may ask for hundreds, and each of them
    /// reads all of a state. Those that are left out are asked for again at the next comparison.
    fn begin_digest(&mut self, now: Instant) -> bool {
        let is_first = self.digest_since.is_none();
        self.digest_since.get_or_insert(now);
        is_first
    }

    /// Writes positions down at the next turn: a member went away, and its last position is checked when it returns.
    pub(super) fn remember_soon(&mut self) {
        self.remember_at = Instant::now();
    }
}

impl<P: Protocol, S: StateMachine> Host<P, S> {
    /// A leader asks for a comparison when it is time and something was applied since the last.
    pub(super) fn compare_if_due(&mut self) {
        let (now, applied) = (Instant::now(), self.replica.applied().index);
        let is_due = now >= self.integrity.next && self.integrity.digest_since.is_none();
        let Some(every) = self.integrity.every.filter(|_| is_due) else { return };
        self.integrity.next = now + every;
        if self.replica.role() == Role::Leader && applied > self.integrity.asked_at {
            // The entry that asks is applied, too.
            self.integrity.asked_at = applied + 1;
            self.step(Event::Compare);
        }
    }

    /// This node's state is frozen where all members freeze theirs: the digest is made beside the loop.
    pub(super) fn on_digest_wanted(&mut self, contents: SnapshotContents<S>) {
        if self.integrity.begin_digest(Instant::now()) {
            self.hand_to_snapshots(SnapshotJob::Digest(contents));
        }
    }

    /// This node's digest is made: the leader compares, the others tell it.
    pub(super) fn on_digest(&mut self, index: u64, digest: u64) {
        // The digest reads all that is on file: at most a part of the time goes into that, however large the state is.
        let took = self.integrity.digest_since.take().map_or(Duration::ZERO, |since| since.elapsed());
        self.integrity.next = self.integrity.next.max(Instant::now() + took * DIGEST_PAUSE);
        let me = self.replica.me();
        match self.replica.leader() {
            Some(leader) if leader == me => self.on_digest_of(me, index, digest),
            Some(leader) => {
                let link = self.links.get(&leader).filter(|link| link.speaks_of_state());
                if let Some(link) = link {
                    link.outbox.put(ReplicaMessage::<P::Message>::Digest { index, digest });
                }
            }
            // The next leader asks again.
            None => {}
        }
    }

    /// A member tells its digest.
    pub(super) fn on_digest_of(&mut self, member: NodeId, index: u64, digest: u64) {
        if self.replica.role() != Role::Leader {
            return;
        }
        if index > self.replica.status().commit {
            tracing::warn!(
                member = self.replica.membership().name_of(member),
                index,
                "a member tells its state at an entry that is not committed: not compared"
            );
            return;
        }
        let membership = self.replica.membership().clone();
        match self.integrity.comparison.note(member, index, digest, &membership) {
            Finding::Open => {}
            Finding::Differ(members) => {
                self.integrity.compared_at = index;
                if !members.is_empty() && self.integrity.differing != members {
                    let names: Vec<String> = members.iter().map(|id| membership.name_of(*id)).collect();
                    tracing::error!(
                        index,
                        ?names,
                        "members differ in what they applied (n0: nobody knows which is right): remove those that do, and add them again with empty directories"
                    );
                }
                self.integrity.differing = members;
            }
        }
    }

    // --- What is durable. ----------------------------------------------------------------------------------------

    /// Tells what is durable here: the leader at once, with the acknowledgements that rest on it, the others soon.
    pub(super) fn tell_position(&mut self) {
        let own = self.wiring.gatekeeper.borrow().hello.position();
        let leader = self.replica.leader();
        if self.integrity.told_leader != (leader, own.batches) {
            self.integrity.told_leader = (leader, own.batches);
            self.tell_positions(&[own], |peer| Some(peer) == leader);
        }
        let now = Instant::now();
        if self.integrity.told_all != own.batches && now >= self.integrity.told_all_at + TELL_EVERY {
            (self.integrity.told_all, self.integrity.told_all_at) = (own.batches, now);
            self.tell_positions(&[own], |peer| Some(peer) != leader);
        }
    }

    fn tell_positions(&self, positions: &[Position], is_meant: impl Fn(NodeId) -> bool) {
        for portion in positions.chunks(POSITIONS_MAX) {
            for (_, link) in self.links.iter().filter(|(peer, link)| is_meant(**peer) && link.speaks_of_state()) {
                link.outbox.put(ReplicaMessage::<P::Message>::Durable(portion.to_vec()));
            }
        }
    }

    /// A link is up: each tells the other what it knows of everybody.
    pub(super) fn on_introduced(&mut self, peer: NodeId) {
        let Some(link) = self.links.get(&peer).filter(|link| link.speaks_of_state()) else { return };
        let said = link.hello.position();
        self.on_positions(vec![said]);
        let known = self.wiring.gatekeeper.borrow().positions.to_vec();
        self.tell_positions(&known, |to| to == peer);
    }

    /// Hears the durable position of a peer and, as far as it has heard, those of others.
    pub(super) fn on_positions(&mut self, positions: Vec<Position>) {
        let own = self.wiring.gatekeeper.borrow().hello.position();
        for told in positions {
            if told.node == own.node && told.storage == own.storage {
                // The position of a copy of the directory that was started elsewhere is not this node's to judge.
                if told.boots < own.boots && own.born_with < told.batches {
                    let why = rolled_back(&self.own_name(), &Lack { had: told, has: own.born_with }, &own);
                    return self.on_rolled_back(&why);
                }
                continue;
            }
            let heard = {
                let mut gatekeeper = self.wiring.gatekeeper.borrow_mut();
                if !gatekeeper.knows(told.node) || !gatekeeper.may_be_of(told.node, told.storage) {
                    continue;
                }
                gatekeeper.positions.hear(told)
            };
            self.integrity.is_gossip |= heard != Heard::Nothing;
            self.integrity.is_unwritten |= heard != Heard::Nothing;
            if heard == Heard::RolledBack {
                self.hang_up_if_rolled_back(told.node);
            }
        }
    }

    /// Its next greeting is refused, in words.
    fn hang_up_if_rolled_back(&self, peer: NodeId) {
        let Some(link) = self.links.get(&peer) else { return };
        let now = link.hello.position();
        if let Some(lack) = self.wiring.gatekeeper.borrow().positions.missing_in(&now, &link.hello.starts) {
            let name = self.replica.membership().name_of(peer);
            tracing::error!(peer = &name, "{}", rolled_back(&name, &lack, &now));
            link.outbox.close();
        }
    }

    /// This node's directory lacks what the node has acknowledged: neither this life of it nor a later one goes on with it.
    pub(super) fn on_rolled_back(&mut self, why: &str) {
        if let Err(error) = peers::mark_rolled_back(&*self.wiring.files, why) {
            tracing::error!("the directory could not be marked as rolled back: {error}");
        }
        (self.wiring.on_fatal)(why);
        self.has_ended = true;
    }

    /// Passes the positions of other members on, and writes them down when that is due.
    pub(super) fn keep_positions(&mut self) {
        if std::mem::take(&mut self.integrity.is_gossip) {
            // Those of earlier starts were told when the link came up.
            let known = self.wiring.gatekeeper.borrow().positions.latest();
            self.tell_positions(&known, |_| true);
        }
        if Instant::now() >= self.integrity.remember_at {
            self.integrity.remember_at = Instant::now() + REMEMBER_EVERY;
            self.remember_positions();
        }
    }

    /// At a stop everybody hears how far this node's log is durable, and what it knows of others is written down.
    pub(super) fn say_last_words(&mut self) {
        let own = self.wiring.gatekeeper.borrow().hello.position();
        self.tell_positions(&[own], |_| true);
        self.links.values().for_each(|link| link.outbox.flush_last());
        self.remember_positions();
    }

    /// The positions could not be written down: they are when they are due again, however little is heard meanwhile.
    pub(super) fn on_not_remembered(&mut self, why: &str) {
        tracing::warn!("what is known of other members is not written down yet: {why}");
        self.integrity.is_unwritten = true;
    }

    fn remember_positions(&mut self) {
        if std::mem::take(&mut self.integrity.is_unwritten) {
            let positions = {
                let mut gatekeeper = self.wiring.gatekeeper.borrow_mut();
                let membership = gatekeeper.membership.clone();
                gatekeeper.positions.retain(|node| !membership.has_removed(node));
                gatekeeper.positions.to_vec()
            };
            self.hand_to_snapshots(SnapshotJob::Remember(positions));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: however many comparisons a log asks for that is applied again, one state is digested at a time. Method: three, then the end of
    /// the first.
    #[test]
    fn one_digest_is_made_at_a_time() {
        let now = Instant::now();
        let mut integrity = Integrity::new(None);
        let begun: Vec<bool> = (0..3).map(|_| integrity.begin_digest(now)).collect();
        assert_eq!(begun, [true, false, false]);
        integrity.digest_since = None;
        assert!(integrity.begin_digest(now));
    }
}
