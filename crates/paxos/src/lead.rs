//! The stable leader: proposals, accepts, commits, heartbeats. TL-1 to TL-10.
//!
//! ```text
//!    leader    ──Put──┬─ Accept ──► acceptor ──Promise, Put── fsync ── AcceptAck ──┐
//!                     └─ fsync ── AcceptAck (to itself) ───────────────────────────┴──► a quorum of a slot: chosen
//! ```
//!
//! Pipelined: slots are proposed without waiting, and chosen in any order; they are committed in theirs (TL-5). Accepts
//! carry the commit; one without slots is nothing but that. Lost accepts are sent again, identically, when a
//! heartbeat's answer shows the gap.

use crate::Accept;
use crate::acceptor::SLOTS_AHEAD_MAX;
use crate::laboratory::Defect;
use crate::message::{Heartbeat, Message};
use crate::paxos::{Paxos, Stage, Timer};
use hustings_core::leading::{Adopting, Bounded, HandingOver, Leads, Reading};
use hustings_core::{
    Effects, Entry, EntryKind, Lsn, NodeId, Priority, Proposal, Reason, Refusal, RestsOn, Term, Ticket,
};

impl Paxos {
    // --- Proposals. ----------------------------------------------------------------------------------------------

    /// TL-1: proposes these in the next slots, or refuses them.
    pub(crate) fn on_propose(&mut self, proposals: Vec<Proposal>, out: &mut Effects<Paxos>) {
        let Some(first) = self.reign().map(|reign| reign.end + 1) else {
            for proposal in proposals {
                out.refuse(Ticket::Proposal(proposal.origin), Refusal::NotLeader(self.node.leader));
            }
            return;
        };
        for proposal in proposals {
            if let Some(refusal) = self.refusal_of(&proposal) {
                out.refuse(Ticket::Proposal(proposal.origin), refusal);
                continue;
            }
            let origin = proposal.origin;
            if !self.propose_own(proposal.into_entry(Lsn::ZERO), out) {
                out.refuse(Ticket::Proposal(origin), Refusal::NotReady);
            }
        }
        self.count_own_accepts(first, out);
        self.send_to_all(out);
    }

    /// The reason why a proposal cannot be made now, or `None`: definite, no accept of it was ever created (TI-11).
    fn refusal_of(&self, proposal: &Proposal) -> Option<Refusal> {
        let Some(reign) = self.leading() else { return Some(Refusal::NotLeader(self.node.leader)) };
        // A hand-over is told as such, whatever else is the matter.
        let is_handing_over = reign.office.transfer.is_some();
        if reign.is_pausing && !is_handing_over {
            return Some(Refusal::NotReady);
        }
        if reign.end >= self.node.commit + SLOTS_AHEAD_MAX && !is_handing_over {
            return Some(Refusal::Overloaded);
        }
        self.common_refusal(proposal)
    }

    /// A value of this leader's own in the next slot; says whether that slot is prepared and no change of membership is
    /// under way.
    pub(crate) fn propose_own(&mut self, value: Entry, out: &mut Effects<Paxos>) -> bool {
        let (needed, commit) = (self.promises_needed(), self.node.commit);
        let is_hasty = self.has(Defect::ProposesBehindChanges);
        let is_change = value.kind == EntryKind::Membership;
        let Some(reign) = self.leading() else { return false };
        let slot = reign.end + 1;
        if reign.office.first_own == u64::MAX || (reign.office.pending_change > commit && !is_hasty) {
            return false;
        }
        let Some(prepared) = reign.promises.prepared(slot, &self.node.membership, needed) else { return false };
        if let Some(reign) = self.reign_mut()
            && is_change
        {
            reign.office.pending_change = slot;
        }
        self.propose(Accept::of(prepared, value), out);
        true
    }

    // --- Accepts on their way. -----------------------------------------------------------------------------------

    pub(crate) fn others(&self) -> Vec<NodeId> {
        self.leading().map_or(Vec::new(), |reign| reign.office.others(self.node.me))
    }

    pub(crate) fn send_to_all(&mut self, out: &mut Effects<Paxos>) {
        for peer in self.others() {
            self.send_accepts_to(peer, out);
        }
    }

    /// Sends as many accepts as the window takes.
    pub(crate) fn send_accepts_to(&mut self, to: NodeId, out: &mut Effects<Paxos>) {
        let (commit, limits) = (self.node.commit, self.node.limits);
        let is_link_down = self.node.links_down.contains(&to);
        let Some(reign) = self.reign_mut().filter(|reign| reign.stage != Stage::Preparing) else { return };
        let ballot = reign.ballot;
        let Some(peer) = reign.office.peers.get_mut(&to) else { return };
        loop {
            peer.next = peer.next.max(commit + 1);
            if peer.is_full(limits.inflight_messages_max, limits.inflight_bytes_max) {
                return;
            }
            let (mut accepts, mut bytes) = (Vec::new(), 0);
            for accept in reign.proposed.range(peer.next..).map(|(_, accept)| accept) {
                let cost = accept.entry().cost();
                if !accepts.is_empty() && bytes + cost > limits.message_bytes_max {
                    break;
                }
                bytes += cost;
                accepts.push(accept.clone());
            }
            let Some(last) = accepts.last().map(|accept: &Accept| accept.entry().lsn.index) else { return };
            if is_link_down {
                peer.lost_from.get_or_insert(peer.next);
            }
            peer.on_sent(last, bytes);
            // New accepts rest on nothing: the promise that they do rest on is durable at this node, or this ballot
            // would have no quorum.
            out.send_resting_on(RestsOn::Nothing, to, Message::Accept { ballot, accepts, commit });
        }
    }

    /// Sends a heartbeat, which rests on nothing: no heartbeat ever waits for a disk.
    pub(crate) fn send_heartbeat_to(&mut self, to: NodeId, out: &mut Effects<Paxos>) {
        let (commit, is_caretaker) = (self.node.commit, self.is_caretaker());
        let Some(reign) = self.reign_mut().filter(|reign| reign.stage != Stage::Preparing) else { return };
        let heartbeat = Heartbeat { ballot: reign.ballot, counter: reign.counter };
        let (end, is_settled) = (reign.end, reign.stage == Stage::Leading);
        // Each heartbeat is a round; a read waits for the answers to one of them, and otherwise nobody does.
        let wanted = if reign.office.reads.is_empty() { 0 } else { reign.counter };
        let (stored, asks) = reign.office.peers.get_mut(&to).map_or((0, true), |peer| {
            let asks = peer.asks(heartbeat.counter, wanted, end, commit) || is_caretaker || !is_settled;
            if asks && peer.mark.is_none() {
                peer.mark = Some((heartbeat.counter, peer.next - 1));
            }
            (peer.known.stored, asks)
        });
        out.send_resting_on(RestsOn::Nothing, to, Message::Commit { heartbeat, slot: commit, stored, asks });
    }

    pub(crate) fn on_heartbeat_timer(&mut self, out: &mut Effects<Paxos>) {
        self.send_heartbeats(out);
        out.set_timer(Timer::Heartbeat, self.node.timing.heartbeat..=self.node.timing.heartbeat);
        // A voter that has not promised yet and must, after a change of membership (TR-6).
        if !self.is_prepared_without_end() {
            for voter in self.node.other_voters() {
                self.send_prepare_to(voter, out);
            }
        }
    }

    // --- Answers. ------------------------------------------------------------------------------------------------

    /// TL-4: a vote counts once, and only in its ballot.
    pub(crate) fn on_accept_ack(
        &mut self,
        from: NodeId,
        ballot: Term,
        slot: u64,
        through: u64,
        committed: u64,
        out: &mut Effects<Paxos>,
    ) {
        let commit = self.node.commit;
        let Some(reign) = self.reign_mut().filter(|reign| reign.ballot == ballot) else { return };
        let through = through.min(reign.end);
        if slot <= through {
            for (_, votes) in reign.votes.range_mut(slot..=through) {
                votes.insert(from);
            }
        }
        if let Some(peer) = reign.office.peers.get_mut(&from) {
            peer.known.is_active = true;
            // Of what lies between its commit and these slots it says nothing; and what it committed beyond this leader's
            // commit was another leader's.
            peer.on_committed_durably(committed.min(commit));
            peer.on_stored(slot, through);
        }
        if !self.advance_commit(out) && from != self.node.me {
            self.serve_peer(from, out);
        }
    }

    fn serve_peer(&mut self, peer: NodeId, out: &mut Effects<Paxos>) {
        self.send_accepts_to(peer, out);
        self.on_peer_progressed(peer, out);
    }

    /// TL-3: a refusal by a node that promised a higher ballot, or has committed more than this leader.
    pub(crate) fn on_accept_nack(
        &mut self,
        from: NodeId,
        ballot: Term,
        promised: Term,
        committed: u64,
        out: &mut Effects<Paxos>,
    ) {
        if self.reign().is_none_or(|reign| reign.ballot != ballot) {
            return;
        }
        if promised > ballot {
            return self.on_refused(from, ballot, promised, out);
        }
        self.hear_committed(from, committed, out);
    }

    /// Takes in a follower's commit. Says whether this node still leads.
    fn hear_committed(&mut self, from: NodeId, committed: u64, out: &mut Effects<Paxos>) -> bool {
        let commit = self.node.commit;
        if committed > self.node.commit {
            let is_settled = self.reign().is_some_and(|reign| reign.stage == Stage::Leading);
            self.ask_for_committed(from, out);
            if is_settled && !self.options.as_published {
                // Issue 16: there was another leader since.
                self.back_down(Reason::HigherTerm(from), out);
                return false;
            }
        }
        if let Some(peer) = self.reign_mut().and_then(|reign| reign.office.peers.get_mut(&from)) {
            peer.known.is_active = true;
            peer.on_committed(committed.min(commit));
        }
        true
    }

    /// TL-10: counts a HeartbeatAck.
    #[expect(clippy::too_many_arguments, reason = "the fields of one message")]
    pub(crate) fn on_commit_ack(
        &mut self,
        from: NodeId,
        ballot: Term,
        counter: u64,
        committed: u64,
        held: u64,
        priority: Priority,
        out: &mut Effects<Paxos>,
    ) {
        if self.leading().is_none_or(|reign| reign.ballot != ballot) || !self.hear_committed(from, committed, out) {
            return;
        }
        let commit = self.node.commit;
        let Some(reign) = self.reign_mut() else { return };
        let newest = reign.counter;
        let Some(peer) = reign.office.peers.get_mut(&from) else { return };
        peer.known.on_heard(counter, newest, priority);
        if let Some((asked, sent)) = peer.mark
            && counter >= asked
        {
            peer.mark = None;
            if held < sent && sent > commit {
                // TL-7 `[NORM]`: the identical accepts, again.
                peer.rewind(held.max(commit) + 1);
            }
            // Otherwise it has them, perhaps in memory only: the window waits for its disk, and an acknowledgement that was lost is said
            // again with each heartbeat that shows this leader not to know it.
        }
        self.confirm_reads(out);
        if !self.advance_commit(out) {
            self.serve_peer(from, out);
        }
    }

    /// TL-5: commits the longest run of chosen slots behind the commit. Says whether there was any.
    pub(crate) fn advance_commit(&mut self, out: &mut Effects<Paxos>) -> bool {
        let before = self.node.commit;
        while self.is_chosen(self.node.commit + 1) {
            // One after the other: a change of membership among them changes who is counted.
            let mut end = self.node.commit + 1;
            while self.node.log.slot(end).is_some_and(|entry| entry.kind != EntryKind::Membership)
                && self.is_chosen(end + 1)
            {
                end += 1;
            }
            self.apply_through(end, out);
            self.forget_committed();
        }
        if self.node.commit == before {
            return false;
        }
        self.become_leading_if_recovered(out);
        self.advance_recovery(out);
        for peer in self.others() {
            self.tell_commit(peer, out);
            self.serve_peer(peer, out);
        }
        self.release_early_reads(out);
        self.step_down_if_removed(out);
        if self.reign().is_some_and(|reign| reign.is_pausing) {
            self.repair_promises_if_quiet(out);
        }
        true
    }

    fn is_chosen(&self, slot: u64) -> bool {
        let Some(votes) = self.reign().and_then(|reign| reign.votes.get(&slot)) else { return false };
        let is_enough = self.has(Defect::CommitsAlone) && votes.contains(&self.node.me);
        let is_accepted = self.count_voters(|id| votes.contains(&id)) >= self.accepts_needed();
        is_enough || (is_accepted && self.is_secured(slot))
    }

    /// Forgets proposals and votes of slots that are committed.
    pub(crate) fn forget_committed(&mut self) {
        let commit = self.node.commit;
        let Some(reign) = self.reign_mut() else { return };
        let rest = reign.proposed.split_off(&(commit + 1));
        let bytes: usize = reign.proposed.values().map(|accept| accept.entry().payload.len()).sum();
        reign.proposed = rest;
        reign.votes = reign.votes.split_off(&(commit + 1));
        reign.office.uncommitted_bytes = reign.office.uncommitted_bytes.saturating_sub(bytes);
        // Nodes that are asked from now on are asked about slots behind the commit.
        reign.promises.start_at(commit + 1);
        reign.end = reign.end.max(commit);
    }

    /// TL-5: broadcast at once, unless the window to the peer is not empty and accepts carry the news.
    fn tell_commit(&mut self, to: NodeId, out: &mut Effects<Paxos>) {
        let commit = self.node.commit;
        let Some(reign) = self.reign() else { return };
        let ballot = reign.ballot;
        let has_more = reign.office.peers.get(&to).is_some_and(|peer| peer.next <= reign.end);
        if !has_more {
            out.send_resting_on(RestsOn::Nothing, to, Message::Accept { ballot, accepts: Vec::new(), commit });
        }
    }

    /// Whether a promise quorum covers every slot that this ballot may yet use; true without a ballot.
    fn is_prepared_without_end(&self) -> bool {
        let needed = self.promises_needed();
        self.reign().is_none_or(|reign| reign.promises.frontier(&self.node.membership, needed) == u64::MAX)
    }

    /// Voters that this ballot cannot do without: accepts are enough once promises cover every slot. While some are awaited, and for an even
    /// number of nodes they are more, nothing behind those slots can be proposed.
    pub(crate) fn voters_needed(&self) -> usize {
        if self.is_prepared_without_end() { self.accepts_needed() } else { self.promises_needed() }
    }

    /// TL-10: a leader that too few answer stands down, so that nobody waits for it. (The notes say promise quorum; for an even number
    /// of nodes the smaller one still commits, `trex_even_nodes_split`, if no promise is awaited any more.) TL-9: then
    /// promises are repaired.
    pub(crate) fn on_quorum_check(&mut self, out: &mut Effects<Paxos>) {
        let Some(heard) = self.leading().map(|reign| reign.office.heard(&self.node)) else { return };
        if heard.len() < self.voters_needed() {
            return self.back_down(Reason::QuorumLost(heard), out);
        }
        let is_due = self.lost_acceptor().is_some() && self.reign().is_some_and(|reign| !reign.is_pausing);
        if self.repair_promises_if_quiet(out) {
            return;
        }
        // `[OURS]` What is open while nothing gets on is never quiet: who has promised a higher ballot accepts nothing of this one, and a
        // change of membership needs others than the present voters. A ballot above that promise may have them.
        let commit = self.node.commit;
        let Some(reign) = self.reign() else { return };
        let is_stuck = reign.commit_at_check == commit;
        let refuser = self.refusing_voter().filter(|_| is_stuck && reign.end > commit && !self.options.as_published);
        if let Some(refuser) = refuser {
            return self.back_down(Reason::HigherTerm(refuser), out);
        }
        let Some(reign) = self.reign_mut() else { return };
        reign.is_stuck = is_stuck;
        reign.commit_at_check = commit;
        // Under a load that never ends nothing is quiet by itself. Slots that are open for longer than one check are not waited for
        // twice.
        reign.is_pausing = is_due;
        reign.office.end_check(reign.end);
        out.set_timer(Timer::QuorumCheck, self.node.timing.election_max..=self.node.timing.election_max);
        self.on_checked(out);
    }

    /// A voter that has promised a higher ballot than this one, and counts for nothing until this leader has one above it.
    fn refusing_voter(&self) -> Option<NodeId> {
        self.reign()?.refusers.iter().copied().find(|id| self.node.membership.is_voter(*id))
    }

    /// TL-9: such a voter, where a prepare round of this leader may win it back.
    fn lost_acceptor(&self) -> Option<NodeId> {
        self.reign().filter(|reign| reign.stage == Stage::Leading && reign.office.transfer.is_none())?;
        let may_repair = self.node.may_lead() && !self.options.as_published;
        self.refusing_voter().filter(|_| may_repair)
    }

    /// A prepare round in a higher ballot, while nothing is under way. Says whether it began.
    fn repair_promises_if_quiet(&mut self, out: &mut Effects<Paxos>) -> bool {
        let is_quiet = self.reign().is_some_and(|reign| reign.end == self.node.commit);
        let lost = self.lost_acceptor().filter(|_| is_quiet);
        if let Some(lost) = lost {
            self.take_over(Reason::HigherTerm(lost), out);
        }
        lost.is_some()
    }
}
