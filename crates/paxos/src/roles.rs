//! Roles: every way into one and out of it. The reasons to move are in [`crate::low_ball`] and [`crate::recover`].
//!
//! ```text
//!              deadline            a quorum answers, and        a promise quorum           all that is
//!    Follower ─────────► Polling ──nobody hears a leader──► Preparing ──covers a slot──► Recovering ──recovered──► Leading
//!       ▲              (low ball:   (ballot durable)                                              and committed
//!       │            nothing promised)                                                                      │
//!       └───────── a higher ballot; evidence of a leader; no quorum of acknowledgements (TB-1) ─────────────┘
//! ```
//!
//! Each move drops what only the old role has (`leave_role`), announces why, and arms the timers of the new one.
//! Source: TRex, "follow", "recover" and "lead"; the rules are those of `docs/protocols/rules`.

use crate::ballot::Promises;
use crate::low_ball::Poll;
use crate::message::Message;
use crate::paxos::{Paxos, Reign, RoleState, Stage, Timer};
use crate::peer::Peer;
use hustings_core::leading::{Leads, Office};
use hustings_core::{Effects, NodeId, Promise, Reason, Record, RestsOn, Role, Term};
use std::collections::{BTreeMap, BTreeSet};

impl Paxos {
    /// The first role, with what was recovered.
    pub(crate) fn announce_start(&mut self, out: &mut Effects<Paxos>) {
        self.announce(Role::Follower, Reason::Started, out);
    }

    /// The only way to a higher promise: durable before anything that rests on it leaves (TI-1).
    pub(crate) fn promise_to(&mut self, ballot: Term, out: &mut Effects<Paxos>) {
        assert!(ballot > self.node.promise.term, "promises only grow (TI-1)");
        self.node.promise = Promise::without_vote(ballot);
        out.persist(Record::Promise(self.node.promise));
    }

    /// The leader was heard: this node's own poll or ballot is answered (TF-1).
    pub(crate) fn hear_leader(&mut self, leader: NodeId, out: &mut Effects<Paxos>) {
        self.lost_leader = None;
        if self.node.leader != Some(leader) {
            let from = self.role();
            self.leave_role(out);
            self.node.leader = Some(leader);
            self.announce(from, Reason::LeaderHeard(leader), out);
            self.node.end_transfer(out);
        }
        self.set_deadline(out);
    }

    /// Forgets the leader that this node follows, and tells the askers whose polls were answered otherwise.
    pub(crate) fn lose_leader(&mut self, because: Reason, out: &mut Effects<Paxos>) {
        if self.node.leader.take().is_none() {
            return;
        }
        self.announce(self.role(), because, out);
        for (peer, poll) in std::mem::take(&mut self.told_polls) {
            self.answer_poll(peer, poll, out);
        }
    }

    /// `[OURS]` Two histories exist: this node leads nobody and follows nobody any more, whatever it was at.
    pub(crate) fn stand_aside(&mut self, because: Reason, out: &mut Effects<Paxos>) {
        let from = self.role();
        self.leave_role(out);
        self.node.leader = None;
        self.announce(from, because, out);
        self.node.end_transfer(out);
    }

    /// TA-7: promises to the ballot of the values that came with it, and gives up what this node was doing.
    pub(crate) fn give_way_to_accept(&mut self, from: NodeId, ballot: Term, out: &mut Effects<Paxos>) {
        let role = self.role();
        self.leave_role(out);
        self.promise_to(ballot, out);
        if role != self.role() {
            self.announce(role, Reason::HigherTerm(from), out);
        }
    }

    /// TA-1: promises to a candidate's ballot, and follows nobody until somebody leads in it.
    pub(crate) fn give_way_to_prepare(&mut self, from: NodeId, ballot: Term, out: &mut Effects<Paxos>) {
        let role = self.role();
        self.leave_role(out);
        self.node.leader = None;
        self.lost_leader = None;
        self.told_polls.clear();
        self.promise_to(ballot, out);
        self.announce(role, Reason::HigherTerm(from), out);
        // TH-7: it is somebody else's turn now.
        self.set_deadline(out);
    }

    /// Asks everybody which leader they hear; nothing is promised (TF-1).
    pub(crate) fn become_polling(&mut self, because: Reason, out: &mut Effects<Paxos>) {
        let from = self.role();
        self.leave_role(out);
        self.poll += 1;
        let is_early = self.lost_leader.is_some() && self.eager_rounds > 0;
        if is_early {
            self.eager_rounds -= 1;
            // Longer than a heartbeat's period: what is still alive will have shown it by then.
            out.set_timer(Timer::Deadline, self.node.timing.heartbeat * 3 / 2..=self.node.timing.heartbeat * 5 / 2);
        } else {
            self.lost_leader = None;
            self.set_deadline(out);
        }
        self.role_state = RoleState::Polling(Poll { id: self.poll, is_early, answers: BTreeMap::new() });
        if from != self.role() {
            self.announce(from, because, out);
        }
        for voter in self.node.other_voters() {
            out.send_resting_on(RestsOn::Nothing, voter, Message::LowBall { poll: self.poll });
        }
        self.settle_poll(false, out);
    }

    /// TF-8: a new ballot, durable before anybody hears of it.
    pub(crate) fn take_over(&mut self, because: Reason, out: &mut Effects<Paxos>) {
        let from = self.role();
        let ballot = self.next_ballot();
        self.leave_role(out);
        self.node.leader = None;
        self.lost_leader = None;
        self.told_polls.clear();
        self.promise_to(ballot, out);
        let first = self.node.commit + 1;
        let peers = self.node.membership.everyone().map(|peer| (peer, Peer::new()));
        self.role_state = RoleState::Reign(Box::new(Reign {
            ballot,
            stage: Stage::Preparing,
            promises: Promises::new(ballot, first),
            refusers: BTreeSet::new(),
            commit_at_check: self.node.commit,
            is_stuck: false,
            rounds: 0,
            proposed: BTreeMap::new(),
            votes: BTreeMap::new(),
            end: self.node.commit,
            counter: 0,
            office: Office::unready(peers.collect()),
            is_pausing: false,
        }));
        self.announce(from, because, out);
        self.set_deadline(out);
        self.send_prepares(out);
        // This node's own promise counts once it is durable, like everyone else's.
        let own = Message::PrepareAck { ballot, from: first, through: u64::MAX, accepted: Vec::new() };
        out.send_resting_on(RestsOn::Promise, self.node.me, own);
    }

    pub(crate) fn become_recovering(&mut self, out: &mut Effects<Paxos>) {
        let Some(reign) = self.reign_mut() else { return };
        reign.stage = Stage::Recovering;
        let promised = reign.promises.nodes();
        self.node.leader = Some(self.node.me);
        self.announce(Role::Candidate, Reason::VoteWon(promised), out);
        self.node.end_transfer(out);
        out.cancel_timer(Timer::Deadline);
        out.set_timer(Timer::Heartbeat, self.node.timing.heartbeat..=self.node.timing.heartbeat);
        out.set_timer(Timer::QuorumCheck, self.node.timing.election_max..=self.node.timing.election_max);
        self.send_heartbeats(out);
    }

    /// TR-4: the in-flight range is committed, and a slot behind it.
    pub(crate) fn become_leading_if_recovered(&mut self, out: &mut Effects<Paxos>) {
        let commit = self.node.commit;
        let Some(reign) = self.reign_mut() else { return };
        if reign.stage == Stage::Recovering && commit >= reign.office.first_own {
            reign.stage = Stage::Leading;
            self.announce(Role::Synchronizing, Reason::LeaderHeard(self.node.me), out);
        }
    }

    pub(crate) fn give_up(&mut self, out: &mut Effects<Paxos>) {
        let Some(reign) = self.reign() else { return };
        let because =
            Reason::VoteLost { granted: reign.promises.nodes(), refused: reign.refusers.iter().copied().collect() };
        self.back_down(because, out);
    }

    /// TB-1: clears the poll, or the ballot's prepares, accepts and reign, whichever there is.
    pub(crate) fn back_down(&mut self, because: Reason, out: &mut Effects<Paxos>) {
        let from = self.role();
        self.leave_role(out);
        self.announce(from, because, out);
        self.set_deadline(out);
    }

    /// TH-1 and TH-2: the leader leads on, in a ballot above the one seen, which it was not promised.
    pub(crate) fn announce_raised_ballot(&mut self, seen: Term, out: &mut Effects<Paxos>) {
        self.announce(self.role(), Reason::HigherTerm(NodeId(seen.node())), out);
    }

    /// Drops what only the present role has, and tells those who wait for it.
    fn leave_role(&mut self, out: &mut Effects<Paxos>) {
        match std::mem::replace(&mut self.role_state, RoleState::Follower) {
            RoleState::Follower => {}
            RoleState::Polling(_) => out.cancel_timer(Timer::Grace),
            RoleState::Reign(reign) => {
                self.node.leader = self.node.other_leader();
                for timer in [Timer::Heartbeat, Timer::QuorumCheck] {
                    out.cancel_timer(timer);
                }
                // The timer of a hand-over stays: its requester hears how it ended even if nobody leads.
                reign.office.reads.refuse_all(out);
            }
        }
    }
}
