//! Healing: a new leader learns the records it missed before it leads. §2.8 of `docs/protocols/rules`, leader side.
//!
//! ```text
//!    elected ──► Collecting ──a quorum's LSNs──► Pulling ──the highest──► Starting ──the start──► Active
//!                (STG1)           │              (STG2)     ledger        (STG3)     is committed  (LDR_HEALED)
//!                                 └── its own LSN is highest, it wins ties ──┘
//! ```
//!
//! Any node may win an election, so its ledger may lack what is committed, and may hold what is not. Why the highest
//! LSN of a quorum holds all that is committed: a node that answers is in the leader's term, durably, and takes no
//! records of an earlier one any more; what a quorum acknowledged in term T meets the answers in a node that had it;
//! its LSN, and thus the highest, is of term T and not before it, or of a later term whose leader collected the LSNs of
//! a quorum in the same way; and ledgers with an equal place are equal before it, for every record follows a place that
//! is compared (`[OURS]`, §2.9).
//!
//! `[OURS]` What is pulled is the tail of the ledger behind the last common place, with its own LSNs, not a snapshot
//! under a new LSN; only where the base is missing, a snapshot by reference. The term starts with a blank record; once
//! a quorum holds it, and everything before it, the leader is active (C7).

use crate::blazingmq::{BlazingMq, Kind, RoleState, Timer};
use crate::laboratory::Defect;
use crate::message::Message;
use hustings_core::leading::{Following, Replicating};
use hustings_core::quorum::Verdict;
use hustings_core::{Effects, Entry, Lsn, NodeId, Reason, RestsOn, SnapshotReference};

/// The progress of a leader's healing.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Stage {
    /// STG1: LSNs are awaited.
    Collecting,
    /// STG2: the most up-to-date follower sends what comes after this place.
    Pulling {
        /// The follower that it pulls from.
        from: NodeId,
        /// The place that was asked about.
        after: Lsn,
    },
    /// STG3: the start of the term is written, and not committed yet.
    Starting,
    /// The start of the term is committed: the leader serves.
    Active,
}

/// The states of the Cluster FSM (§2.8), as they can be seen from outside.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Healing {
    /// No leader is known.
    Unknown,
    /// FOL_WAITING: registered, and no record of the leader's term has come.
    FollowerWaiting,
    /// FOL_HEALING: records of the leader's term have come.
    FollowerHealing,
    /// FOL_HEALED: a record of the leader's term is committed.
    FollowerHealed,
    /// LDR_HEALING_STG1: it collects LSNs.
    LeaderCollecting,
    /// LDR_HEALING_STG2: it pulls records that it lacks.
    LeaderPulling,
    /// LDR_HEALING_STG3: the start of its term is not committed yet.
    LeaderStarting,
    /// LDR_HEALED: the start of its term is committed, and it serves.
    LeaderHealed,
}

impl BlazingMq {
    /// This node's state in the Cluster FSM.
    pub fn healing(&self) -> Healing {
        match &self.role_state {
            RoleState::Leader(leader) => match leader.stage {
                Stage::Collecting => Healing::LeaderCollecting,
                Stage::Pulling { .. } => Healing::LeaderPulling,
                Stage::Starting => Healing::LeaderStarting,
                Stage::Active => Healing::LeaderHealed,
            },
            _ if self.node.leader.is_none() => Healing::Unknown,
            _ if self.node.committed().term == self.node.promise.term => Healing::FollowerHealed,
            _ if self.node.log.last().term == self.node.promise.term => Healing::FollowerHealing,
            _ => Healing::FollowerWaiting,
        }
    }

    // --- A follower says where its ledger ends, and gives what is asked for. -------------------------------------

    /// §2.8, rules 8 and 10. Rests on the ledger that it speaks of, and on the term.
    pub(crate) fn register(&mut self, leader: NodeId, out: &mut Effects<BlazingMq>) {
        out.send(leader, Message::Registration { term: self.node.promise.term, last: self.node.log.last() });
    }

    /// §2.8, rule 10: the cluster-state request.
    pub(crate) fn on_pull(&mut self, leader: NodeId, after: Lsn, out: &mut Effects<BlazingMq>) {
        let term = self.node.promise.term;
        let reply = if self.node.log.has(after) {
            let entries = self.node.log.slice(after.index + 1, usize::MAX, self.node.limits.message_bytes_max);
            Message::Pulled { term, previous: after, entries, last: self.node.log.last(), commit: self.node.commit }
        } else {
            let (index, found) = self.node.log.last_at_most(after.index, after.term);
            match (found, self.node.snapshot.clone()) {
                (Some(at), _) => Message::PullGap { term, hint: Lsn { term: at, index } },
                // Nothing here is as old: where the two last agreed is compacted away, or the base itself is another than theirs.
                (None, Some(reference)) => Message::PullSnapshot { term, reference },
                // Only a log that begins at its beginning has no snapshot, so this is reached by a malformed request alone.
                (None, None) => Message::PullGap { term, hint: self.node.log.base() },
            }
        };
        out.send_resting_on(RestsOn::Promise, leader, reply);
    }

    // --- STG1. ---------------------------------------------------------------------------------------------------

    /// §2.8, rules 2 and 6: a follower has registered, in whatever stage this leader is.
    pub(crate) fn on_registration(&mut self, from: NodeId, last: Lsn, out: &mut Effects<BlazingMq>) {
        let RoleState::Leader(leader) = &mut self.role_state else { return };
        if !self.node.membership.has(from) {
            return;
        }
        leader.supporters.insert(from);
        leader.lsns.insert(from, last);
        leader.office.peers.entry(from).or_default().become_registered();
        if self.is_started() {
            self.place_peer(from, last, out);
        } else {
            self.settle_collection(out);
        }
    }

    /// Settles on a state once a quorum's LSNs are known: the term starts from the highest; this node's own wins ties.
    pub(crate) fn settle_collection(&mut self, out: &mut Effects<BlazingMq>) {
        let RoleState::Leader(leader) = &self.role_state else { return };
        if leader.stage != Stage::Collecting {
            return;
        }
        if self.has(Defect::LeadsWithoutLsns) {
            return self.start_term(out);
        }
        let lsns = &leader.lsns;
        let is_known = self.verdict(Kind::Sync, |id| lsns.contains_key(&id).then_some(true)) == Verdict::Won;
        let is_enough = is_known || (self.has(Defect::SynchronizesWithoutQuorum) && lsns.len() > 1);
        if !is_enough {
            return;
        }
        let (own, membership) = (self.node.log.last(), &self.node.membership);
        let keeps_own = self.has(Defect::KeepsOwnLedger);
        let ahead = lsns.iter().filter(|(id, last)| membership.is_voter(**id) && **last > own && !keeps_own);
        // The highest of those that were not asked in vain for what lies before, if there is one; of equals one that has a state to give,
        // and the smallest id.
        let best = ahead.max_by_key(|(id, last)| {
            (!leader.spent_sources.contains(id), **last, !membership.is_witness(**id), std::cmp::Reverse(**id))
        });
        let Some((best, last)) = best.map(|(id, last)| (*id, *last)) else { return self.start_term(out) };
        let (index, found) = self.node.log.last_at_most(last.index, last.term);
        let guess = found.map_or(self.node.log.base(), |term| Lsn { term, index });
        self.pull(best, guess, out);
    }

    // --- STG2. ---------------------------------------------------------------------------------------------------

    /// Asks for the records after this place, or after the commit, below which no two nodes differ.
    fn pull(&mut self, from: NodeId, after: Lsn, out: &mut Effects<BlazingMq>) {
        let (term, floor) = (self.node.promise.term, self.node.committed());
        let after = if after.index < floor.index { floor } else { after };
        let RoleState::Leader(leader) = &mut self.role_state else { return };
        leader.stage = Stage::Pulling { from, after };
        out.send_resting_on(RestsOn::Promise, from, Message::Pull { term, after });
        out.set_timer(Timer::Healing, self.node.timing.election_max..=self.node.timing.election_max);
    }

    /// The place behind which records are being pulled from this node; `None` unless they are.
    fn is_pulling_from(&self, from: NodeId) -> Option<Lsn> {
        match &self.role_state {
            RoleState::Leader(leader) => match leader.stage {
                Stage::Pulling { from: source, after } if source == from => Some(after),
                _ => None,
            },
            _ => None,
        }
    }

    pub(crate) fn on_pulled(
        &mut self,
        from: NodeId,
        previous: Lsn,
        entries: Vec<Entry>,
        last: Lsn,
        commit: u64,
        out: &mut Effects<BlazingMq>,
    ) {
        if self.is_pulling_from(from) != Some(previous)
            || !self.node.log.has(previous)
            || self.node.installing.is_some()
        {
            return;
        }
        let end = entries.last().map_or(previous, |entry| entry.lsn);
        if last.term.max(end.term) >= self.node.promise.term {
            // Only a leader of this term writes such records, and that is this node: terms were forgotten (E1).
            return self.step_down(Reason::HigherTerm(from), out);
        }
        self.take_committed_first(from, entries, commit, end.index, out);
        if end == last && self.node.log.last().index > end.index {
            // Records that this node holds beyond the highest LSN are of an earlier term, and nobody's commit.
            assert!(end.index >= self.node.commit, "the chosen ledger lacks what is committed");
            self.node.truncate_from(end.index + 1, out);
        }
        if !self.is_leading() {
            // A change among what was learned removed this node.
            return;
        }
        if end != last && end != previous {
            return self.pull(from, end, out);
        }
        let RoleState::Leader(leader) = &mut self.role_state else { return };
        leader.lsns.insert(self.node.me, self.node.log.last());
        leader.spent_sources.clear();
        leader.stage = Stage::Collecting;
        // Under the membership that is in force now; it may have changed by what was learned.
        self.settle_collection(out);
    }

    pub(crate) fn on_pull_gap(&mut self, from: NodeId, hint: Lsn, out: &mut Effects<BlazingMq>) {
        let Some(after) = self.is_pulling_from(from) else { return };
        let (index, found) = self.node.log.last_at_most(hint.index, hint.term);
        let guess = found.map_or(self.node.log.base(), |term| Lsn { term, index });
        // Each guess is below the one before and none is below the commit, or the source does not hold what is committed and is no source.
        if guess.index < after.index && after != self.node.committed() {
            return self.pull(from, guess, out);
        }
        self.note_lack_of_commit(from, after);
        self.drop_source(from, out);
    }

    /// `[OURS]` A ledger that ends in a later term than the commit and lacks the commit was left behind, or is of another history.
    fn note_lack_of_commit(&mut self, by: NodeId, after: Lsn) {
        let RoleState::Leader(leader) = &self.role_state else { return };
        let ours = self.node.committed();
        let theirs = leader.lsns.get(&by).copied().filter(|theirs| after == ours && theirs.term > ours.term);
        if let Some(theirs) = theirs {
            self.node.note_contradiction(by, ours, theirs);
        }
    }

    pub(crate) fn on_pull_snapshot(
        &mut self,
        from: NodeId,
        reference: SnapshotReference,
        out: &mut Effects<BlazingMq>,
    ) {
        if self.is_pulling_from(from).is_none() {
            return;
        }
        if self.node.log.has(reference.lsn) {
            self.apply_through(reference.lsn.index, out);
            return self.pull(from, reference.lsn, out);
        }
        if reference.lsn.index <= self.node.commit || reference.lsn.term >= self.node.promise.term {
            // Its base is above the commit that was asked about, and its snapshot is not: it cannot be so for long. And
            // nobody has records of a term that this leader has not started.
            return self.drop_source(from, out);
        }
        self.node.fetch(from, reference, out);
    }

    /// The snapshot that was pulled is installed: go on.
    pub(crate) fn resume_pull(&mut self, out: &mut Effects<BlazingMq>) {
        let RoleState::Leader(leader) = &mut self.role_state else { return };
        if !matches!(leader.stage, Stage::Pulling { .. }) {
            return;
        }
        leader.lsns.insert(self.node.me, self.node.log.last());
        leader.spent_sources.clear();
        leader.stage = Stage::Collecting;
        self.settle_collection(out);
    }

    /// The snapshot that was pulled cannot be had: its source is one no more.
    pub(crate) fn give_up_source(&mut self, out: &mut Effects<BlazingMq>) {
        if let RoleState::Leader(leader) = &self.role_state
            && let Stage::Pulling { from, .. } = leader.stage
        {
            self.drop_source(from, out);
        }
    }

    /// §2.8, rule 4: the source is gone; another one is chosen, or the others are asked again (CS-7).
    pub(crate) fn on_source_lost(&mut self, peer: NodeId, out: &mut Effects<BlazingMq>) {
        if self.is_pulling_from(peer).is_some() && self.node.installing.is_none() {
            self.drop_source(peer, out);
        }
    }

    fn drop_source(&mut self, source: NodeId, out: &mut Effects<BlazingMq>) {
        let (term, is_stale) = (self.node.promise.term, self.has(Defect::TrustsStalePlace));
        let RoleState::Leader(leader) = &mut self.role_state else { return };
        leader.lsns.remove(&source);
        leader.spent_sources.insert(source);
        if !is_stale {
            // Records that were pulled from it, or cut back for that, have moved the end of this node's own ledger.
            leader.lsns.insert(self.node.me, self.node.log.last());
        }
        leader.stage = Stage::Collecting;
        out.send_resting_on(RestsOn::Promise, source, Message::LsnRequest { term });
        self.settle_collection(out);
    }

    /// The watchdog (§2.6): a node that has not said where its ledger ends is asked; a source that is silent is given up.
    pub(crate) fn on_healing_timer(&mut self, out: &mut Effects<BlazingMq>) {
        let RoleState::Leader(leader) = &self.role_state else { return };
        match leader.stage {
            Stage::Pulling { from, .. } if self.node.installing.is_none() => self.drop_source(from, out),
            Stage::Pulling { .. } => {}
            Stage::Collecting => {
                let term = self.node.promise.term;
                let silent: Vec<NodeId> =
                    self.node.other_voters().into_iter().filter(|id| !leader.lsns.contains_key(id)).collect();
                for peer in silent {
                    out.send_resting_on(RestsOn::Promise, peer, Message::LsnRequest { term });
                }
            }
            Stage::Starting | Stage::Active => return,
        }
        out.set_timer(Timer::Healing, self.node.timing.election_max..=self.node.timing.election_max);
    }

    // --- STG3. ---------------------------------------------------------------------------------------------------

    /// §2.8, rule 5: the start of the term, over the state that was chosen.
    fn start_term(&mut self, out: &mut Effects<BlazingMq>) {
        let (term, last) = (self.node.promise.term, self.node.log.last());
        assert!(last.term < term, "no record of a term is written before its leader starts it");
        let RoleState::Leader(leader) = &mut self.role_state else { unreachable!("only a leader starts a term") };
        leader.stage = Stage::Starting;
        leader.office.uncommitted_bytes = self.node.uncommitted_bytes();
        (leader.office.first_own, leader.office.end_at_check) = (last.index + 1, last.index + 1);
        leader.office.pending_change = last.index;
        let registered: Vec<(NodeId, Lsn)> = leader.lsns.iter().map(|(id, last)| (*id, *last)).collect();
        let start = self.start_of_term(Lsn { term, index: last.index + 1 });
        self.append_own(start, out);
        self.count_own_log(out);
        let me = self.node.me;
        for (peer, last) in registered.into_iter().filter(|(peer, _)| *peer != me) {
            self.place_peer(peer, last, out);
        }
    }
}
