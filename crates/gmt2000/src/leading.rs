//! GMT-2000's side of the leader code that all protocols share ([`hustings_core::leading`]), and its own part of
//! hand-over and snapshots.
//!
//! `[OURS]`: the note has "N servers configured", no reads, no hand-over, and its LEAD messages "disseminate other info"; a
//! state of gigabytes is not one of them. Changes of membership are of one voter at a time. They are safe because memberships
//! that follow each other share a member in any two majorities, because a leader starts one change at a time and only after a
//! message of its own term is committed, and because the record of a commit precedes every later message: a node that holds a
//! second change knows that the first is in force, and one that does not gets no vote of a node that does (G3).
//!
//! A successor, once it stores everything, calls an election in which its claim ranks above equal ones; the old leader takes
//! part and gives its vote like everybody else.

use crate::elector::Standing;
use crate::gmt2000::{Gmt2000, RoleState, Timer};
use crate::laboratory::Defect;
use crate::message::Message;
use hustings_core::leading::{
    Acknowledging, Following, Halves, Haste, InOrder, Leads, Node, Office, Progress, Reading, Replicating,
    SendsToMembers, Welcoming,
};
use hustings_core::{Effect, Effects, Log, Lsn, MembershipChange, NodeId, Reason, RestsOn, Ticket};

impl Leads for Gmt2000 {
    type Log = Log;
    type Peer = Progress;

    const TRANSFER_TIMER: Timer = Timer::Transfer;
    const PATIENCE_TIMER: Timer = Timer::Patience;

    fn node(&self) -> &Node {
        &self.node
    }

    fn node_mut(&mut self) -> &mut Node {
        &mut self.node
    }

    fn office(&self) -> Option<&Office<Progress>> {
        match &self.role_state {
            RoleState::Leader(office) => Some(office),
            _ => None,
        }
    }

    fn split(&mut self) -> Option<Halves<'_, Gmt2000>> {
        match &mut self.role_state {
            RoleState::Leader(office) => Some((&mut self.node, office)),
            _ => None,
        }
    }

    fn is_hasty(&self, haste: Haste) -> bool {
        self.has_defect(match haste {
            Haste::ReadsEarly => Defect::ReadsBeforeOwnCommit,
            Haste::ChangesEarly => Defect::ChangesBeforeOwnCommit,
            Haste::ChangesTogether => Defect::ChangesTogether,
        })
    }

    fn ask_for_round(&mut self, ticket: Ticket, out: &mut Effects<Gmt2000>) {
        let (commit, is_lonely) = (self.node.commit, self.has_defect(Defect::ReadsWithoutQuorum));
        match self.split() {
            Some((_, office)) if !is_lonely => office.reads.ask(ticket, commit),
            _ => return out.push(Effect::ReadAt { ticket, index: commit }),
        }
        if !self.confirm_reads(out) {
            self.send_heartbeats(out);
        }
    }

    /// Rule 11: sends at least one LEAD per interval.
    fn send_heartbeats(&mut self, out: &mut Effects<Gmt2000>) {
        for peer in self.others() {
            self.send_heartbeat_to(peer, out);
        }
    }

    fn catch_up(&mut self, to: NodeId, out: &mut Effects<Gmt2000>) {
        self.send_entries_to(to, out);
    }

    fn tell_successor(&mut self, to: NodeId, _: Reason, out: &mut Effects<Gmt2000>) {
        out.send_resting_on(RestsOn::Nothing, to, Message::Handover { term: self.node.promise.term });
    }

    fn hand_over_and_follow(&mut self, because: Reason, out: &mut Effects<Gmt2000>) {
        if let Some(successor) = self.best_successor() {
            self.tell_successor(successor, because.clone(), out);
        }
        self.become_follower(self.node.promise.term, None, because, out);
    }

    fn append_change(&mut self, change: MembershipChange, out: &mut Effects<Gmt2000>) {
        self.write_change(&change, out);
    }

    fn adjust_peers(&mut self, out: &mut Effects<Gmt2000>) {
        self.welcome_and_dismiss(out);
    }
}

impl SendsToMembers for Gmt2000 {
    fn newcomer(last: u64) -> Progress {
        Progress::new(last)
    }

    /// The last LEAD to it tells what is committed.
    fn dismiss(&mut self, peer: NodeId, stored: u64, out: &mut Effects<Gmt2000>) {
        let (term, commit) = (self.node.promise.term, self.node.commit);
        let index = commit.min(stored);
        if let Some(at) = self.node.log.term_at(index) {
            let previous = Lsn { term: at, index };
            let lead = Message::Lead { term, previous, entries: Vec::new(), commit, round: None };
            out.send_resting_on(RestsOn::Nothing, peer, lead);
        }
    }
}

impl InOrder for Gmt2000 {
    fn spread(&mut self, out: &mut Effects<Gmt2000>) {
        self.count_own_log(out);
        for peer in self.others() {
            self.send_entries_to(peer, out);
        }
    }

    fn index_reached(&self) -> u64 {
        self.office().map_or(0, |office| self.node.membership.reached(|id| office.stored(id)))
    }

    fn may_commit(&self, index: u64) -> bool {
        self.node.log.term_at(index) == Some(self.node.promise.term) || self.has_defect(Defect::CommitsOldTerms)
    }
}

impl Acknowledging for Gmt2000 {
    fn stored_message(&self, index: u64) -> Message {
        Message::Stored { term: self.node.promise.term, index }
    }

    fn snapshot_failed_message(&self, lsn: Lsn) -> Message {
        Message::SnapshotFailed { term: self.node.promise.term, lsn }
    }
}

impl Gmt2000 {
    /// Offers the snapshot to a peer whose messages are compacted away, if it was heard lately.
    pub(crate) fn send_snapshot_to(&mut self, to: NodeId, out: &mut Effects<Gmt2000>) {
        let Some(reference) = self.node.snapshot.clone() else {
            unreachable!("messages are compacted only below a snapshot");
        };
        let Some(peer) = self.peer_mut(to).filter(|peer| peer.known.is_active) else { return };
        peer.become_fetch(reference.lsn.index);
        out.send_resting_on(RestsOn::Nothing, to, Message::Snapshot { term: self.node.promise.term, reference });
    }

    /// Whether this leader wants `node` to succeed it.
    pub(crate) fn is_handing_over_to(&self, node: NodeId) -> bool {
        let transfer = self.office().and_then(|office| office.transfer.as_ref());
        transfer.is_some_and(|transfer| transfer.to == node)
    }

    /// The leader hands over to this node.
    pub(crate) fn on_handover(&mut self, from: NodeId, out: &mut Effects<Gmt2000>) {
        self.node.note_hand_over(from);
        if self.node.may_lead() {
            self.start_election(Reason::Transfer(from), Standing::Successor, out);
        }
    }
}
