//! Taking over: prepares for the whole in-flight range, and proposals that the promises allow. TF-8, TR-1 to TR-7.
//!
//! `[OURS]` One prepare asks for everything from the first slot that is not committed here, without end, instead of
//! slot by slot: an answer reports all that was accepted there, in pages, so the range grows to the highest slot that
//! anybody in the quorum accepted (TR-3 a) by itself. Recovery ends with a no-op in the first slot that nobody used.
//!
//! `[OURS]` A change of membership fences: slots behind it are proposed only when it is in force, and only if a promise
//! quorum *of that membership* covers them. So every slot is prepared, proposed and counted under one membership, the
//! one that the slots before it say, and promise and accept quorums of it meet, however many changes a new leader has
//! slept through.

use crate::acceptor::SLOTS_AHEAD_MAX;
use crate::laboratory::Defect;
use crate::message::Message;
use crate::paxos::{Paxos, Stage};
use crate::{Accept, message};
use hustings_core::{Effects, Entry, EntryKind, Lsn, NodeId, Reason, Record, RestsOn, Term};
use std::collections::BTreeSet;

/// Prepare rounds without a quorum before this node polls again.
const ROUNDS_MAX: u8 = 2;

impl Paxos {
    pub(crate) fn send_prepares(&self, out: &mut Effects<Paxos>) {
        for voter in self.node.other_voters() {
            self.send_prepare_to(voter, out);
        }
    }

    /// Asks a voter for what it has not said yet.
    pub(crate) fn send_prepare_to(&self, voter: NodeId, out: &mut Effects<Paxos>) {
        let Some(reign) = self.reign() else { return };
        let covered = reign.promises.covered_by(voter);
        if self.node.membership.is_voter(voter) && covered < u64::MAX {
            let prepare = Message::Prepare { ballot: reign.ballot, from: covered.max(self.node.commit) + 1 };
            out.send_resting_on(RestsOn::Promise, voter, prepare);
        }
    }

    /// TR-6, a few times; then this node asks again whether it should.
    pub(crate) fn on_prepare_deadline(&mut self, out: &mut Effects<Paxos>) {
        let Some(reign) = self.reign_mut() else { return };
        reign.rounds += 1;
        if reign.rounds >= ROUNDS_MAX {
            return self.give_up(out);
        }
        self.send_prepares(out);
        self.set_deadline(out);
    }

    // --- The acceptor's side. ------------------------------------------------------------------------------------

    /// TA-1 to TA-4: promises the ballot, or refuses it.
    pub(crate) fn on_prepare(&mut self, from: NodeId, ballot: Term, slot: u64, out: &mut Effects<Paxos>) {
        let is_forgetful = self.has(Defect::ForgetsCommitted);
        if ballot.node() != from.0 {
            return;
        }
        if ballot < self.node.promise.term || (slot <= self.node.commit && !is_forgetful) {
            let nack = Message::PrepareNack { ballot, promised: self.node.promise.term, committed: self.node.commit };
            return out.send_resting_on(RestsOn::Nothing, from, nack);
        }
        if ballot > self.node.promise.term {
            self.give_way_to_prepare(from, ballot, out);
        }
        let first = slot.max(self.node.commit + 1);
        let (accepted, is_all) = self.node.log.slice(first, u64::MAX, self.node.limits.message_bytes_max);
        let last = accepted.last().map_or(slot, |entry| entry.lsn.index);
        let through = if is_all { u64::MAX } else { last };
        out.send_resting_on(RestsOn::Promise, from, Message::PrepareAck { ballot, from: slot, through, accepted });
    }

    // --- The candidate's side. -----------------------------------------------------------------------------------

    /// TR-2, TR-3: takes in a promise, and proposes where a quorum of them covers the slot.
    pub(crate) fn on_prepare_ack(
        &mut self,
        from: NodeId,
        ballot: Term,
        slot: u64,
        through: u64,
        accepted: Vec<Entry>,
        out: &mut Effects<Paxos>,
    ) {
        let ahead_max = slot.saturating_add(SLOTS_AHEAD_MAX);
        let Some(reign) = self.reign_mut().filter(|reign| reign.ballot == ballot) else { return };
        if accepted.last().is_some_and(|entry| entry.lsn.index > ahead_max) {
            // No acceptor takes a slot so far beyond what it has committed, and this one has not committed what was asked.
            return;
        }
        if let Some(peer) = reign.office.peers.get_mut(&from) {
            peer.known.is_active = true;
        }
        if !reign.promises.take(from, slot, through, accepted) {
            return;
        }
        if through < u64::MAX {
            self.send_prepare_to(from, out);
        }
        self.advance_recovery(out);
    }

    /// TR-1, TR-2: a refusal for a higher promise counts; one by a node that has committed more is a hint.
    pub(crate) fn on_prepare_nack(
        &mut self,
        from: NodeId,
        ballot: Term,
        promised: Term,
        committed: u64,
        out: &mut Effects<Paxos>,
    ) {
        self.ballot_seen = self.ballot_seen.max(promised);
        if committed > self.node.commit {
            self.ask_for_committed(from, out);
        }
        if promised > ballot {
            self.on_refused(from, ballot, promised, out);
        }
    }

    /// Somebody promised a higher ballot: it is lost to this reign for ever.
    pub(crate) fn on_refused(&mut self, from: NodeId, ballot: Term, promised: Term, out: &mut Effects<Paxos>) {
        self.ballot_seen = self.ballot_seen.max(promised);
        let Some(reign) = self.reign_mut().filter(|reign| reign.ballot == ballot) else { return };
        reign.refusers.insert(from);
        let Some(reign) = self.reign() else { return };
        let left = self.count_voters(|id| !reign.refusers.contains(&id));
        let is_preparing = reign.stage == Stage::Preparing;
        let needed = if is_preparing { self.promises_needed() } else { self.voters_needed() };
        if !is_preparing && self.reissue_as_published(promised, out) {
            return;
        }
        if left >= needed {
            return;
        }
        if is_preparing {
            return self.give_up(out);
        }
        // TL-4, TL-7: never a higher ballot without a prepare round.
        self.back_down(Reason::HigherTerm(from), out);
    }

    /// Proposes what the promises allow: recovered values, no-ops in holes, and a no-op behind them.
    pub(crate) fn advance_recovery(&mut self, out: &mut Effects<Paxos>) {
        let Some(first) = self.reign().map(|reign| reign.end.max(self.node.commit) + 1) else { return };
        while let Some(accept) = self.next_recovered() {
            let is_change = accept.entry().kind == EntryKind::Membership;
            let index = accept.entry().lsn.index;
            self.propose(accept, out);
            if let Some(reign) = self.reign_mut()
                && is_change
            {
                reign.office.pending_change = index;
            }
        }
        let Some(end) = self.reign().map(|reign| reign.end) else { return };
        if end < first {
            return;
        }
        if self.reign().is_some_and(|reign| reign.stage == Stage::Preparing) {
            self.become_recovering(out);
        }
        self.count_own_accepts(first, out);
        self.send_to_all(out);
    }

    fn next_recovered(&mut self) -> Option<Accept> {
        let is_own_enough = self.has(Defect::RecoversWithoutQuorum);
        let needed = self.promises_needed() - usize::from(is_own_enough);
        let is_forgetful = self.has(Defect::IgnoresAccepted);
        let (me, commit, membership) = (self.node.me, self.node.commit, self.node.membership.clone());
        let reign = self.reign()?;
        let slot = reign.end.max(commit) + 1;
        // Nothing is said in a ballot before this node's own promise of it is durable.
        let is_durable = reign.promises.nodes().contains(&me);
        if !is_durable || reign.office.pending_change > commit || reign.office.first_own != u64::MAX {
            return None;
        }
        let prepared = reign.promises.prepared(slot, &membership, needed)?;
        let value = reign.promises.value_at(slot).filter(|_| !is_forgetful);
        let is_behind_all = slot > reign.promises.highest_accepted();
        let is_last = is_behind_all && reign.promises.frontier(&membership, needed) == u64::MAX;
        if let Some(reign) = self.reign_mut()
            && is_last
        {
            (reign.office.first_own, reign.office.end_at_check) = (slot, slot);
        }
        Some(Accept::of(prepared, value.unwrap_or_else(|| Entry::blank(Lsn::ZERO))))
    }

    /// TL-1, TR-3 c: journals a proposal and tracks it. Its sending, and its own vote, come with the batch.
    pub(crate) fn propose(&mut self, accept: Accept, out: &mut Effects<Paxos>) {
        let entry = accept.entry().clone();
        let index = entry.lsn.index;
        let Some(reign) = self.reign_mut() else { unreachable!("only a ballot's owner proposes in it") };
        assert_eq!(entry.lsn.term, reign.ballot, "an accept is of this ballot and no other (TI-5)");
        reign.end = index;
        reign.office.uncommitted_bytes += entry.payload.len();
        reign.proposed.insert(index, accept);
        reign.votes.insert(index, BTreeSet::new());
        self.node.log.put(entry.clone());
        out.persist(Record::Put(entry));
    }

    /// Sends this node's votes on everything from `first` on to itself, on their way through its own disk.
    pub(crate) fn count_own_accepts(&self, first: u64, out: &mut Effects<Paxos>) {
        let Some(reign) = self.reign() else { return };
        if first <= reign.end {
            let (ballot, through) = (reign.ballot, reign.end);
            let own = message::Message::AcceptAck { ballot, from: first, through, committed: self.node.commit };
            out.send(self.node.me, own);
        }
    }

    /// Goes on with recovery: slots committed elsewhere meanwhile need not be asked about.
    pub(crate) fn resume_recovery(&mut self, out: &mut Effects<Paxos>) {
        let commit = self.node.commit;
        let Some(reign) = self.reign_mut() else { return };
        reign.promises.start_at(commit + 1);
        if reign.stage == Stage::Preparing {
            self.send_prepares(out);
        }
        self.advance_recovery(out);
    }
}
