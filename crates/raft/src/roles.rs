//! Roles: every way into one and out of it. The reasons to move are in [`crate::election`]; here is the move.
//!
//! ```text
//!                 timer, link down            pre-vote won               vote won
//!    ┌────────► Follower ───────────► PreCandidate ─────────► Candidate ─────────► Leader
//!    │             ▲                      │                      │                   │
//!    │             └──── refused, or a leader or later term ─────┴──── later term, ──┘
//!    └── born, with its promise and log                         no quorum, handed over
//! ```
//!
//! Each move drops what only the old role has (`leave_role`), announces why, and arms the timers of the new one.
//! Sources: Raft §5.2; rules RT-3 to RT-5, RV-6 to RV-8 of `docs/protocols/rules`.

use crate::election::{Asks, Campaign};
use crate::laboratory::Defect;
use crate::message::{Message, VoteReply};
use crate::raft::{Raft, RoleState, Timer};
use hustings_core::leading::{InOrder, Leads, Office, Replicating};
use hustings_core::tally::Vote;
use hustings_core::{Effects, Entry, NodeId, Promise, Reason, Record, RestsOn, Role, Tally, Term};

impl Raft {
    /// The first role, with what was recovered.
    pub(crate) fn announce_start(&mut self, out: &mut Effects<Raft>) {
        self.announce(Role::Follower, Reason::Started, out);
    }

    /// The only way into a later term: it is recorded at once, and the vote in it is free (RT-3).
    pub(crate) fn enter_term(&mut self, term: Term, vote: Option<NodeId>, out: &mut Effects<Raft>) {
        assert!(term > self.node.promise.term, "terms only grow");
        self.node.promise = Promise { term, vote };
        self.refused_while_fresh.clear();
        out.persist(Record::Promise(self.node.promise));
    }

    /// Follows `leader`, or waits for one, in `term`.
    pub(crate) fn become_follower(
        &mut self,
        term: Term,
        leader: Option<NodeId>,
        because: Reason,
        out: &mut Effects<Raft>,
    ) {
        let from = self.role();
        if term > self.node.promise.term {
            self.enter_term(term, None, out);
        } else {
            self.forget_vote_if_planted();
        }
        self.leave_role(out);
        self.role_state = RoleState::Follower;
        self.node.leader = leader;
        self.announce(from, because, out);
        self.node.end_transfer(out);
        if leader.is_some() {
            self.hear_leader(out);
        } else {
            self.is_leader_fresh = false;
            self.arm_election(out);
        }
    }

    /// [`Defect::ForgetsVoteOnStepDown`]: in memory, as a variable that is reset with the role.
    fn forget_vote_if_planted(&mut self) {
        if self.has(Defect::ForgetsVoteOnStepDown) {
            self.node.promise.vote = None;
        }
    }

    /// A leader of this term spoke (RT-5): candidates give up, followers remember it and wait on.
    pub(crate) fn follow(&mut self, leader: NodeId, out: &mut Effects<Raft>) {
        if self.node.leader == Some(leader) && matches!(self.role_state, RoleState::Follower) {
            self.hear_leader(out);
        } else {
            self.become_follower(self.node.promise.term, Some(leader), Reason::LeaderHeard(leader), out);
        }
    }

    /// Nobody is known to lead any more: the leader is silent, out of reach, or to be forgotten. The role stays.
    pub(crate) fn forget_leader(&mut self, because: Reason, out: &mut Effects<Raft>) {
        self.node.leader = None;
        self.is_leader_fresh = false;
        self.announce(self.role(), because, out);
    }

    fn hear_leader(&mut self, out: &mut Effects<Raft>) {
        self.has_lost = false;
        self.node.is_caretaker = false;
        self.node.has_noted_that_others_lack = false;
        self.eager_campaigns = 0;
        self.lost_leader = None;
        self.refused_while_fresh.clear();
        self.is_leader_fresh = true;
        out.set_timer(Timer::Stickiness, self.node.timing.election_min..=self.node.timing.election_min);
        self.arm_election(out);
    }

    /// Nothing is promised and no term is raised: a node that cannot win disturbs nobody.
    pub(crate) fn become_pre_candidate(&mut self, because: Reason, out: &mut Effects<Raft>) {
        let from = self.role();
        let mut tally = Tally::new();
        tally.record(self.node.me, Vote::Granted, &self.node.membership);
        self.leave_role(out);
        self.role_state = RoleState::PreCandidate { tally };
        self.node.leader = None;
        self.is_leader_fresh = false;
        self.announce(from, because, out);
        self.arm_election(out);
        let request = self.request(Asks::First);
        for voter in self.node.other_voters() {
            // Rests on nothing: a pre-vote is a question, not a promise.
            out.send_resting_on(RestsOn::Nothing, voter, Message::PreVote(request.clone()));
        }
        self.settle_pre_vote(out);
    }

    pub(crate) fn become_candidate(&mut self, campaign: Campaign, out: &mut Effects<Raft>) {
        let from = self.role();
        self.leave_role(out);
        self.role_state = RoleState::Candidate { tally: Tally::new() };
        self.node.leader = None;
        self.is_leader_fresh = false;
        self.enter_term(self.node.promise.term.next(), Some(self.node.me), out);
        self.announce(from, campaign.because, out);
        self.arm_election(out);
        let request = self.request(if campaign.is_transfer { Asks::InTheLeadersName } else { Asks::ForReal });
        // These rest on the promise *and* on the log they boast of: after a crash this node may hold less than it said.
        for voter in self.node.other_voters() {
            out.send(voter, Message::Vote(request.clone()));
        }
        out.send(self.node.me, self.own_vote());
    }

    /// A vote on its way to this node itself: counted once the promise is durable.
    fn own_vote(&self) -> Message {
        let (term, campaign) = (self.node.promise.term, self.node.promise.term);
        Message::VoteReply(VoteReply { term, campaign, is_granted: true, commit: self.node.committed() })
    }

    /// The vote is won (RV-8): appends a blank entry of its own, because nothing older commits by counting.
    pub(crate) fn become_leader(&mut self, because: Reason, out: &mut Effects<Raft>) {
        assert!(matches!(self.role_state, RoleState::Candidate { .. }), "only a candidate becomes leader (RT-4)");
        let from = self.role();
        self.role_state = RoleState::Leader(Box::new(Office::elected(&self.node)));
        self.node.leader = Some(self.node.me);
        self.has_lost = false;
        self.eager_campaigns = 0;
        self.lost_leader = None;
        self.announce(from, because, out);
        out.cancel_timer(Timer::Election);
        out.cancel_timer(Timer::Stickiness);
        out.set_timer(Timer::Heartbeat, self.node.timing.heartbeat..=self.node.timing.heartbeat);
        out.set_timer(Timer::QuorumCheck, self.node.timing.election_min..=self.node.timing.election_min);
        self.append_own(Entry::blank(self.node.next_lsn()), out);
        self.spread(out);
    }

    /// A quorum of refusals came: wait for another leader, or for another try (RV-6). The term stays.
    pub(crate) fn give_up(&mut self, because: Reason, out: &mut Effects<Raft>) {
        let from = self.role();
        self.has_lost = true;
        let is_eager = self.eager_campaigns > 0;
        self.leave_role(out);
        self.role_state = RoleState::Follower;
        self.forget_vote_if_planted();
        self.announce(from, because, out);
        if is_eager {
            self.spend_eagerness();
            out.set_timer(Timer::Election, self.node.timing.heartbeat / 2..=self.node.timing.heartbeat * 3 / 2);
        } else {
            self.arm_election(out);
        }
    }

    /// Drops what only the present role has, and tells those who wait for it (RT-3).
    fn leave_role(&mut self, out: &mut Effects<Raft>) {
        let RoleState::Leader(office) = std::mem::replace(&mut self.role_state, RoleState::Follower) else { return };
        out.cancel_timer(Timer::Heartbeat);
        out.cancel_timer(Timer::QuorumCheck);
        // The timer of a hand-over stays: its requester hears how it ended even if nobody leads.
        office.reads.refuse_all(out);
    }
}
