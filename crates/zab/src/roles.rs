//! Roles: every way into one and out of it. The reasons to move are in the file of each phase.
//!
//! ```text
//!                     a quorum votes for another
//!      ┌─ Looking ─────────────────────────────────► Following: Discovery ─► Synchronization ─► Broadcast
//!      │     ▲  │ a quorum votes for me                    │ LEADERINFO          NEWLEADER        UPTODATE
//!      │     │  └────────► Leading: Discovery ─► Synchronization ─► Broadcast
//!      │     │                      promises by a quorum     its history on a quorum
//!    born    └──────── any error, timeout or lost quorum ◄───────────────────────────────────────────────┘
//! ```
//!
//! Each move drops what only the old role has (`leave_role`), announces why, and arms the timers of the new one.
//! Sources: the ZAB paper, phases 1 to 3; §5 of `docs/protocols/rules`.

use crate::election::{Looking, VAIN_ATTEMPTS_MAX};
use crate::laboratory::Defect;
use crate::learner::{Learner, Stage};
use crate::message::Message;
use crate::vote::{Standing, Vote};
use crate::zab::{Following, Leading, Lost, Phase, RoleState, Timer, Zab};
use hustings_core::leading::{Adopting, Leads, Office, Replicating};
use hustings_core::{Effects, NodeId, Priority, Promise, Reason, Record, Term};
use std::collections::BTreeMap;

impl Zab {
    /// The only way into a later epoch: recorded at once (§5.2).
    pub(crate) fn accept_epoch(&mut self, epoch: Term, out: &mut Effects<Zab>) {
        assert!(epoch > self.node.promise.term, "acceptedEpoch only grows (Z8)");
        self.node.promise = Promise::without_vote(epoch);
        out.persist(Record::Promise(self.node.promise));
    }

    /// Records currentEpoch: this node holds the history of that epoch's leader.
    pub(crate) fn establish(&mut self, epoch: Term, out: &mut Effects<Zab>) {
        assert!(epoch == self.node.promise.term, "only the accepted epoch is established");
        if epoch > self.established {
            self.established = epoch;
            out.persist(Record::Established(epoch));
        }
    }

    /// Rule 1: a new round, in which this server proposes itself.
    pub(crate) fn become_looking(&mut self, because: Reason, out: &mut Effects<Zab>) {
        let from = self.role();
        self.leave_role(out);
        self.announce(from, because, out);
        self.begin_round(self.own_vote(), out);
    }

    /// `[OURS]` A leader that hands over proposes its successor, which holds the same history. It does not wait for
    /// that one's own vote: over a distance it comes after those of the others have made a quorum, and then the old
    /// leader, with the largest id, was elected again and again.
    pub(crate) fn hand_over_to(&mut self, successor: NodeId, because: Reason, out: &mut Effects<Zab>) {
        let from = self.role();
        let end = self.node.log.last().index;
        // Also before this leader serves: a caretaker may never come to it.
        let is_equal = match &self.role_state {
            RoleState::Leading(leading) => {
                leading.office.peers.get(&successor).is_some_and(|it| it.is_synced() && it.known.stored >= end)
            }
            _ => false,
        };
        self.leave_role(out);
        self.announce(from, because, out);
        let own = self.own_vote();
        let its = Vote { leader: successor, standing: Standing::Successor, ..own };
        self.begin_round(if is_equal { its } else { own }, out);
    }

    pub(crate) fn become_following(&mut self, vote: Vote, out: &mut Effects<Zab>) {
        let from = self.role();
        let leader = vote.leader;
        let by = self.supporters(vote);
        self.leave_role(out);
        self.is_successor = false;
        self.gives_way = false;
        let is_ahead = self.is_behind(vote.epoch, vote.last);
        let following = Following { leader, phase: Phase::Discovery, vote, is_leader_fresh: true, is_ahead };
        self.role_state = RoleState::Following(following);
        self.announce(from, Reason::Elected { leader, by }, out);
        self.connect(leader, out);
    }

    /// Rule 11: this follower serves from now on.
    pub(crate) fn become_serving(&mut self, leader: NodeId, out: &mut Effects<Zab>) {
        let from = self.role();
        let RoleState::Following(following) = &mut self.role_state else {
            unreachable!("only a follower is told that it serves")
        };
        following.phase = Phase::Broadcast;
        self.node.leader = Some(leader);
        self.vain_attempts = 0;
        self.node.is_caretaker = false;
        self.node.has_noted_that_others_lack = false;
        self.announce(from, Reason::LeaderHeard(leader), out);
        self.node.end_transfer(out);
    }

    /// Rule 1: the vote is won; collects the accepted epochs of a quorum.
    pub(crate) fn become_leading(&mut self, vote: Vote, out: &mut Effects<Zab>) {
        let from = self.role();
        let by = self.supporters(vote);
        let callers = match &mut self.role_state {
            RoleState::Looking(looking) => std::mem::take(&mut looking.callers),
            _ => unreachable!("only who looks is elected"),
        };
        self.leave_role(out);
        self.is_successor = false;
        let mut own = Learner::met(0, self.node.promise.term);
        let end = self.node.log.last().index;
        own.next = end + 1;
        self.role_state = RoleState::Leading(Box::new(Leading {
            phase: Phase::Discovery,
            is_epoch_fixed: false,
            vote,
            // All of the history is committed before this node serves, so nothing of others is under way then.
            office: Office {
                first_own: 0,
                end_at_check: end,
                ..Office::new(BTreeMap::from([(self.node.me, own)]), 0, 0)
            },
            epoch_start: end,
            lost: Lost { commit: self.node.commit, connections: 0 },
        }));
        self.announce(from, Reason::Elected { leader: self.node.me, by }, out);
        out.set_timer(Timer::InitLimit, self.node.timing.election());
        for (caller, (connection, accepted)) in callers {
            self.meet(caller, connection, accepted);
        }
        self.fix_epoch(out);
    }

    /// A quorum has promised the epoch: no earlier leader commits anything any more, and this node's history is the one.
    pub(crate) fn become_synchronizing(&mut self, by: Vec<NodeId>, out: &mut Effects<Zab>) {
        let from = self.role();
        let (epoch, me, last) = (self.node.promise.term, self.node.me, self.node.log.last().index);
        let RoleState::Leading(leading) = &mut self.role_state else { unreachable!("only a leader counts promises") };
        leading.phase = Phase::Synchronization;
        // From here on it is the epoch that it says: a follower that has promised it to this node may come back, however long this phase
        // takes.
        if !self.options.as_published {
            leading.vote.epoch = epoch;
        }
        leading.epoch_start = last;
        let promised: Vec<NodeId> = leading
            .office
            .peers
            .iter()
            .filter(|(id, learner)| **id != me && learner.stage == Stage::Promised)
            .map(|(id, _)| *id)
            .collect();
        if let Some(own) = leading.office.peers.get_mut(&me) {
            own.stage = Stage::Told { end: last };
        }
        out.cancel_timer(Timer::InitLimit);
        out.set_timer(Timer::Ping, self.node.timing.heartbeat..=self.node.timing.heartbeat);
        out.set_timer(Timer::QuorumCheck, self.node.timing.election_min..=self.node.timing.election_min);
        self.announce(from, Reason::Promised(by), out);
        self.establish(epoch, out);
        out.send(me, Message::AckNewLeader { connection: 0, epoch, index: last });
        for learner in promised {
            self.synchronize(learner, out);
        }
        if self.has_defect(Defect::ServesBeforeNewLeaderQuorum) {
            self.become_leader(vec![me], out);
        }
    }

    /// The history is on a quorum, and so is the epoch that vouches for it: all of it is committed, and this node serves.
    pub(crate) fn become_leader(&mut self, by: Vec<NodeId>, out: &mut Effects<Zab>) {
        let from = self.role();
        let (me, epoch, last) = (self.node.me, self.node.promise.term, self.node.log.last().index);
        let RoleState::Leading(leading) = &mut self.role_state else { unreachable!("only a leader is acknowledged") };
        leading.phase = Phase::Broadcast;
        leading.vote.epoch = epoch;
        let synced: Vec<NodeId> =
            leading.office.peers.iter().filter(|(id, l)| **id != me && l.is_synced()).map(|(id, _)| *id).collect();
        self.node.leader = Some(me);
        self.announce(from, Reason::Synchronized(by), out);
        self.node.end_transfer(out);
        self.apply_through(last, out);
        for learner in synced {
            self.tell_up_to_date(learner, out);
        }
        self.invite(out);
        self.step_down_if_removed(out);
    }

    /// A leader that no quorum answers in time resigns, so that nobody waits for it (§5.7). `[OURS]` One that never came to lead, or whose
    /// followers come and go before anything is committed, does not propose itself for a while: what it says may reach the others too
    /// late, and with the largest id it would be elected again and again, to come to nothing each time.
    pub(crate) fn give_up_leading(&mut self, heard: Vec<NodeId>, out: &mut Effects<Zab>) {
        self.note_whether_in_vain();
        self.become_looking(Reason::QuorumLost(heard), out);
    }

    /// Notes that this leader ends: without having come to anything, it lets others try first; and if that was so before, it asks those
    /// that must never lead to take care.
    pub(crate) fn note_whether_in_vain(&mut self) {
        self.gives_way = self.leads_in_vain();
        self.vain_attempts = if self.gives_way { (self.vain_attempts + 1).min(VAIN_ATTEMPTS_MAX) } else { 0 };
    }

    /// Whether this node leads, and that came to nothing until now.
    fn leads_in_vain(&self) -> bool {
        let is_in_vain =
            |leading: &Leading| leading.phase != Phase::Broadcast || leading.lost.connections > self.lost_max();
        matches!(&self.role_state, RoleState::Leading(leading) if is_in_vain(leading))
    }

    /// Drops what only the present role has, and tells those who depend on it: a connection that ends is ended on both sides.
    fn leave_role(&mut self, out: &mut Effects<Zab>) {
        if self.is_leading() && !self.leads_in_vain() {
            self.vain_attempts = 0;
        }
        self.node.leader = None;
        self.fetching = None;
        let next = RoleState::Looking(Box::new(Looking::unborn(self.node.me)));
        match std::mem::replace(&mut self.role_state, next) {
            RoleState::Looking(looking) => {
                out.cancel_timer(Timer::Resend);
                if looking.is_finalizing {
                    out.cancel_timer(Timer::Finalize);
                }
                if looking.is_about_to_speak {
                    out.cancel_timer(Timer::Speak);
                }
                for (caller, (connection, _)) in looking.callers {
                    self.say_goodbye(caller, connection, out);
                }
            }
            RoleState::Following(following) => {
                let Vote { epoch, last, .. } = following.vote;
                let must_never = self.node.priority() == Priority::Never;
                let is_ahead = following.is_ahead && self.is_behind(epoch, last);
                if following.phase != Phase::Broadcast && must_never && is_ahead {
                    // It never served, and perhaps it never can: it held less than this node when they met, and does still.
                    self.node.take_care();
                }
                out.cancel_timer(Timer::Silence);
                out.cancel_timer(Timer::Freshness);
                self.say_goodbye(following.leader, self.connection, out);
            }
            RoleState::Leading(leading) => {
                out.cancel_timer(Timer::InitLimit);
                out.cancel_timer(Timer::Ping);
                out.cancel_timer(Timer::QuorumCheck);
                for (learner, Learner { connection, .. }) in &leading.office.peers {
                    self.say_goodbye(*learner, *connection, out);
                }
                // The timer of a hand-over stays: its requester hears how it ended even if nobody leads.
                leading.office.reads.refuse_all(out);
            }
        }
    }
}
