//! TRex's side of the leader code that all protocols share ([`hustings_core::leading`]), and its own part of hand-over,
//! changes of membership and snapshots.
//!
//! `[OURS]`: all absent in the sources, which are configured (the JVM rewrite sketches eras), read through the log, and trim
//! by count to have nothing to say then (TH-8).
//!
//! - Reads: a node that answers a heartbeat of a ballot has promised nobody higher; an accept quorum of them meets
//!   every promise quorum. A leader that has not recovered does not know what is committed: reads wait for that.
//! - A successor, once it holds everything, takes over without a poll; the old leader promises its ballot like everybody
//!   else, and any node may lead, so nothing else is asked of it.
//! - A change of membership fences its slots ([`crate::recover`]): nothing behind it is proposed before it is in force at the
//!   leader, and then only under promises of a quorum of the new membership.
//! - Snapshots are for trimmed slots (TI-10). Values that were accepted above one stay: an acceptor forgets nothing.

use crate::ballot;
use crate::journal::Journal;
use crate::laboratory::Defect;
use crate::message::{Heartbeat, Message};
use crate::paxos::{Paxos, RoleState, Stage, Timer};
use crate::peer::Peer;
use hustings_core::leading::{Adopting, Halves, Haste, Leads, Node, Office, Reading, SendsToMembers, Welcoming};
use hustings_core::{
    Effects, Entry, EntryKind, Lsn, MembershipChange, NodeId, Origin, Reason, RestsOn, SnapshotReference, Stamp, Term,
    Ticket, Wire,
};

impl Leads for Paxos {
    type Log = Journal;
    type Peer = Peer;

    const TRANSFER_TIMER: Timer = Timer::Transfer;
    const PATIENCE_TIMER: Timer = Timer::Patience;

    fn node(&self) -> &Node<Journal> {
        &self.node
    }

    fn node_mut(&mut self) -> &mut Node<Journal> {
        &mut self.node
    }

    fn office(&self) -> Option<&Office<Peer>> {
        self.reign().map(|reign| &reign.office)
    }

    fn split(&mut self) -> Option<Halves<'_, Paxos>> {
        match &mut self.role_state {
            RoleState::Reign(reign) => Some((&mut self.node, &mut reign.office)),
            _ => None,
        }
    }

    fn is_reigning(&self) -> bool {
        self.leading().is_some()
    }

    fn is_settled(&self) -> bool {
        self.reign().is_some_and(|reign| reign.stage == Stage::Leading)
    }

    fn may_transfer(&self) -> bool {
        self.is_settled()
    }

    fn end(&self) -> u64 {
        self.reign().map_or(0, |reign| reign.end)
    }

    fn own_round(&self) -> u64 {
        self.reign().map_or(0, |reign| reign.counter)
    }

    /// The highest heartbeat that an accept quorum has answered.
    fn round_reached(&self) -> u64 {
        if self.has(Defect::ReadsWithoutQuorum) {
            return self.own_round();
        }
        ballot::reached(&self.node.membership, self.accepts_needed(), |id| self.round_of(id))
    }

    fn is_hasty(&self, haste: Haste) -> bool {
        haste == Haste::ChangesTogether && self.has(Defect::ProposesBehindChanges)
    }

    /// It waits for the next heartbeat, which leaves now.
    fn ask_for_round(&mut self, ticket: Ticket, out: &mut Effects<Paxos>) {
        let (commit, next) = (self.node.commit, self.own_round() + 1);
        let Some((_, office)) = self.split() else { return };
        office.reads.ask_in(next, ticket, commit);
        self.send_heartbeats(out);
        self.confirm_reads(out);
    }

    /// TL-2: sends everybody a heartbeat. `[NORM]` The leader's own is the newest that it knows (TH-4).
    fn send_heartbeats(&mut self, out: &mut Effects<Paxos>) {
        let Some(reign) = self.reign_mut().filter(|reign| reign.stage != Stage::Preparing) else { return };
        reign.counter += 1;
        self.heartbeat = Heartbeat { ballot: reign.ballot, counter: reign.counter };
        for peer in self.others() {
            self.send_heartbeat_to(peer, out);
        }
    }

    fn catch_up(&mut self, to: NodeId, out: &mut Effects<Paxos>) {
        self.send_accepts_to(to, out);
    }

    fn tell_successor(&mut self, to: NodeId, _: Reason, out: &mut Effects<Paxos>) {
        if let Some(ballot) = self.leading().map(|reign| reign.ballot) {
            out.send_resting_on(RestsOn::Nothing, to, Message::Handover { ballot });
        }
    }

    fn hand_over_and_follow(&mut self, because: Reason, out: &mut Effects<Paxos>) {
        if let Some(successor) = self.best_successor() {
            self.tell_successor(successor, because.clone(), out);
        }
        self.back_down(because, out);
    }

    fn append_change(&mut self, change: MembershipChange, out: &mut Effects<Paxos>) {
        let (kind, payload, first) = (EntryKind::Membership, change.to_bytes(), self.end() + 1);
        let value = Entry { lsn: Lsn::ZERO, kind, origin: Origin::NOBODY, stamp: Stamp::NONE, payload };
        if self.propose_own(value, out) {
            self.count_own_accepts(first, out);
            self.send_to_all(out);
        }
    }

    /// New voters are asked for their promises.
    fn adjust_peers(&mut self, out: &mut Effects<Paxos>) {
        self.welcome_and_dismiss(out);
        for voter in self.node.other_voters() {
            self.send_prepare_to(voter, out);
        }
    }
}

impl SendsToMembers for Paxos {
    fn newcomer(_: u64) -> Peer {
        Peer::new()
    }

    /// Tells a removed member the commit, by which it learns of its removal.
    fn dismiss(&mut self, peer: NodeId, _: u64, out: &mut Effects<Paxos>) {
        let Some(ballot) = self.reign().map(|reign| reign.ballot) else { return };
        let news = Message::Accept { ballot, accepts: Vec::new(), commit: self.node.commit };
        out.send_resting_on(RestsOn::Nothing, peer, news);
    }
}

impl Paxos {
    /// The leader hands over to this node.
    pub(crate) fn on_handover(&mut self, from: NodeId, ballot: Term, out: &mut Effects<Paxos>) {
        let is_current = ballot >= self.node.promise.term && ballot.node() == from.0;
        if is_current && self.reign().is_none() && self.node.may_lead() {
            self.take_over(Reason::Transfer(from), out);
        }
    }

    /// Whether a slot may be committed as far as its successors' voters are concerned: a change must be held, with
    /// everything before it, by a member of each promise quorum of the membership that it makes, or that membership
    /// would not know what it decided.
    pub(crate) fn is_secured(&self, slot: u64) -> bool {
        let change = self.node.log.slot(slot).filter(|entry| entry.kind == EntryKind::Membership);
        let Some(entry) = change else { return true };
        let Ok(change) = MembershipChange::decode(entry.payload.clone()) else { return true };
        let (Ok(next), Some(reign)) = (self.membership_after(&change), self.reign()) else { return true };
        let voters = next.all_voters().count();
        let needed = voters + 1 - self.options.quorums.promises(voters);
        let has_voted = reign.votes.get(&slot).is_some_and(|votes| votes.contains(&self.node.me));
        let holds = |id: NodeId| if id == self.node.me { has_voted } else { reign.office.stored(id) >= slot };
        next.all_voters().filter(|id| holds(*id)).count() >= needed
    }

    // --- Snapshots. ----------------------------------------------------------------------------------------------

    pub(crate) fn on_snapshot(&mut self, from: NodeId, reference: SnapshotReference, out: &mut Effects<Paxos>) {
        self.asked = None;
        if reference.lsn.index <= self.node.commit || self.node.installing.is_some() {
            return;
        }
        // `[OURS]` A reign that gets on takes no offer: that member may never give its bytes, and each reign would end like this one.
        let gets_on = self.reign().is_some_and(|reign| match reign.stage {
            Stage::Preparing => reign.rounds == 0,
            Stage::Recovering => !reign.is_stuck,
            Stage::Leading => false,
        });
        // `[OURS]` Once, where another one's may come; if there is no other, its next one is taken.
        let has_failed = self.failed_source.take_if(|source| *source == from).is_some();
        if gets_on || has_failed {
            return;
        }
        if self.reign().is_some() {
            // Nobody can tell any more in which ballots its slots were chosen, so this reign may be over (TF-2, and why:
            // [`crate::catch_up`]).
            self.back_down(Reason::HigherTerm(from), out);
        }
        self.source = Some(from);
        self.node.fetch(from, reference, out);
    }

    pub(crate) fn on_snapshot_ready(&mut self, reference: SnapshotReference, out: &mut Effects<Paxos>) {
        if !self.node.take_ready(&reference) {
            return;
        }
        if reference.lsn.index <= self.node.commit {
            self.node.installing = None;
            return;
        }
        let (index, membership) = (reference.lsn.index, reference.membership.clone());
        self.node.install(reference, out);
        self.adopt(membership, index, out);
    }

    /// The next heartbeat leads to another request.
    pub(crate) fn on_snapshot_failed(&mut self, reference: &SnapshotReference) {
        if self.node.installing.take_if(|installing| installing == reference).is_some() {
            self.failed_source = self.source;
        }
    }

    pub(crate) fn on_snapshot_installed(&mut self, lsn: Lsn, out: &mut Effects<Paxos>) {
        if self.node.end_install(lsn)
            && let Some(leader) = self.node.other_leader()
        {
            let (committed, promised) = (self.node.commit, self.node.promise.term);
            out.send_resting_on(RestsOn::Nothing, leader, Message::RetransmitRequest { committed, promised });
        }
    }
}
