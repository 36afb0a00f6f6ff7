//! Roles: every way into one and out of it. The reasons to move are in [`crate::elector`] and [`crate::candidate`].
//!
//! ```text
//!                 silence, link down,                every claim heard, or            a majority of
//!                 an ELECT from elsewhere            a round trip passed              identical votes
//!    ┌─────────► Watching ───────────────► Voting ───────────────────► Watching ────────────────────► Leader
//!    │              ▲      (slate: claims)            (one durable vote)   (board: votes)                │
//!    │              └──────────────────────── LEAD of this ballot or a later one ────────────────────────┤
//!    └── born, with its ballot and log                                    later ballot, no quorum, handed over
//! ```
//!
//! Each move announces why, and arms the timers of the new role. Sources: the note of 2000, rules 5 and 11; §4.4 and §4.8 of
//! `docs/protocols/rules`. The moves as published stand beside them; the reasons for those are in [`crate::published`].

use crate::elector::{Ballot, Standing};
use crate::gmt2000::{Gmt2000, RoleState, Timer};
use crate::message::{Claim, Message};
use hustings_core::leading::{InOrder, Leads, Office, Replicating};
use hustings_core::{Effects, Entry, Lsn, NodeId, Priority, Promise, Reason, Record, RestsOn, Role, Term};
use std::collections::BTreeSet;

impl Gmt2000 {
    /// The first role, with what was recovered.
    pub(crate) fn announce_start(&mut self, out: &mut Effects<Gmt2000>) {
        self.announce(Role::Follower, Reason::Started, out);
    }

    /// The only way into a later ballot, with or without a vote in it: recorded at once.
    pub(crate) fn enter_ballot(&mut self, promise: Promise, out: &mut Effects<Gmt2000>) {
        assert!(promise.term > self.node.promise.term, "ballots only grow");
        self.node.promise = promise;
        if self.published.is_none() {
            out.persist(Record::Promise(promise));
        }
    }

    /// A leader spoke in this ballot or a later one.
    pub(crate) fn follow(&mut self, leader: NodeId, term: Term, out: &mut Effects<Gmt2000>) {
        if matches!(self.role_state, RoleState::Voting) && term == self.node.promise.term && self.is_ballot_pressing() {
            // This LEAD was sent before the leader heard of the election that it has asked for.
            return;
        }
        let because =
            if term > self.node.promise.term { Reason::HigherTerm(leader) } else { Reason::LeaderHeard(leader) };
        let is_news = term > self.node.promise.term
            || self.node.leader != Some(leader)
            || !matches!(self.role_state, RoleState::Watching);
        if is_news {
            self.become_follower(term, Some(leader), because, out);
        } else {
            self.hear_leader(out);
        }
    }

    /// Follows `leader`, or waits for one, in `term`.
    pub(crate) fn become_follower(
        &mut self,
        term: Term,
        leader: Option<NodeId>,
        because: Reason,
        out: &mut Effects<Gmt2000>,
    ) {
        let from = self.role();
        if term > self.node.promise.term {
            self.enter_ballot(Promise::without_vote(term), out);
        }
        self.leave_role(out);
        self.node.leader = leader;
        if leader.is_some() {
            self.end_round(out);
            self.wanted = None;
            self.ballot = Ballot::numbered(self.node.promise.term);
        }
        self.announce(from, because, out);
        self.node.end_transfer(out);
        if leader.is_some() {
            self.hear_leader(out);
        } else {
            self.is_leader_fresh = false;
            self.watch(out);
        }
    }

    /// Nobody is known to lead any more: the leader is silent, out of reach, or to be forgotten. The role stays.
    pub(crate) fn forget_leader(&mut self, because: Reason, out: &mut Effects<Gmt2000>) {
        let from = self.role();
        self.node.leader = None;
        self.is_leader_fresh = false;
        self.announce(from, because, out);
    }

    fn hear_leader(&mut self, out: &mut Effects<Gmt2000>) {
        self.eager_rounds = 0;
        self.lost_leader = None;
        self.hears_majority = false;
        self.losses = 0;
        self.strangers.clear();
        self.node.has_noted_that_others_lack = false;
        // A hand-over that waits for the round trip to pass is this leader's own wish, whatever it says meanwhile.
        let is_passing = |(_, standing): &(Reason, Standing)| *standing != Standing::Successor;
        self.wanted.take_if(|wanted| is_passing(wanted));
        self.node.is_caretaker &= self.wanted.is_some();
        if self.ballot.number > self.node.promise.term && !self.is_ballot_pressing() {
            // The caller of that election hears this leader as well, or will call again.
            self.ballot = Ballot::numbered(self.node.promise.term);
        }
        self.hear_leader_as_published();
        self.is_leader_fresh = true;
        out.set_timer(Timer::Freshness, self.node.timing.election_min..=self.node.timing.election_min);
        if !self.is_voting_as_published() {
            self.watch(out);
        }
    }

    /// Begins to vote (rule 5). The slate keeps what was noted of this election, and the leader, if there was one, is no more.
    pub(crate) fn become_voting(
        &mut self,
        from: Role,
        because: Reason,
        standing: Standing,
        out: &mut Effects<Gmt2000>,
    ) {
        let is_again = matches!(self.role_state, RoleState::Voting);
        if is_again && self.ballot.is_claimed {
            // Claims grow old: their makers may follow a leader by now, and a vote for nobody's sake is still a promise.
            self.ballot.slate.clear();
        }
        if self.ballot.number <= self.node.promise.term {
            self.turn_to_ballot(self.node.promise.term.next());
        }
        if self.node.has_noted_that_others_lack && self.eager_rounds == 0 {
            // Its own timer says the same, but may never fire: each election that others call sets it anew.
            self.node.take_care();
        }
        self.leave_role(out);
        self.role_state = RoleState::Voting;
        self.node.leader = None;
        self.is_leader_fresh = false;
        self.wanted = None;
        if !is_again {
            self.announce(from, because, out);
        }
        let claim = Claim { is_successor: standing == Standing::Successor, ..self.claim() };
        if self.gives_way() {
            // Once only: nobody else may have what this one holds.
            self.lose();
        }
        self.ballot.is_claimed = true;
        self.ballot.slate.insert(self.node.me, claim);
        self.calling = Some(self.ballot.number);
        out.cancel_timer(Timer::Watch);
        out.set_timer(Timer::Round, self.node.timing.heartbeat..=self.node.timing.heartbeat);
        let elect = Message::Elect { ballot: self.ballot.number, claim, commit: self.node.committed() };
        let hearers: BTreeSet<NodeId> = self
            .node
            .membership
            .all_voters()
            .chain(self.ballot.slate.keys().copied())
            .chain(self.strangers.iter().copied())
            .filter(|id| *id != self.node.me)
            .collect();
        for hearer in hearers {
            // Rests on nothing: it promises nothing, and a vote for a claim that a crash has undone is not counted.
            out.send_resting_on(RestsOn::Nothing, hearer, elect.clone());
        }
        self.settle_slate(out);
    }

    /// Rule 5: sends its ELECT and waits for those of others.
    pub(crate) fn become_voting_as_published(&mut self, because: Reason, out: &mut Effects<Gmt2000>) {
        let from = self.role();
        let last = self.last_seen();
        let Some(published) = &mut self.published else { return };
        published.is_voting = true;
        published.slate.insert(self.node.me, last);
        if !self.is_leading() {
            self.node.leader = None;
            self.announce(from, because, out);
        }
        out.cancel_timer(Timer::Watch);
        out.set_timer(Timer::Round, self.node.timing.heartbeat..=self.node.timing.heartbeat);
        let claim = Claim {
            last,
            priority: Priority::Normal,
            is_successor: false,
            reign: Term::ZERO,
            hears_majority: false,
            losses: 0,
        };
        let elect = Message::Elect { ballot: Term::ZERO, claim, commit: Lsn::ZERO };
        for voter in self.node.membership.all_voters().filter(|voter| *voter != self.node.me) {
            out.send_resting_on(RestsOn::Nothing, voter, elect.clone());
        }
    }

    /// Rule 7: the vote is cast, and this server watches for a winner.
    pub(crate) fn become_watching(&mut self, choice: NodeId, out: &mut Effects<Gmt2000>) {
        let from = self.role();
        // The promise is made here and nowhere else: one vote per ballot, for ever (G2).
        self.enter_ballot(Promise::vote(self.ballot.number, choice), out);
        self.role_state = RoleState::Watching;
        let claimants = self.ballot.slate.keys().copied().collect();
        self.announce(from, Reason::PollWon(claimants), out);
    }

    /// Rule 7 as published: the claims are in, and this server watches again. A leader's elector does so in silence.
    pub(crate) fn become_watching_as_published(
        &mut self,
        from: Role,
        claimants: Vec<NodeId>,
        out: &mut Effects<Gmt2000>,
    ) {
        self.watch_initially(out);
        if !self.is_leading() {
            self.announce(from, Reason::PollWon(claimants), out);
        }
    }

    /// Rule 11: the first LEAD announces the new leadership; it carries a blank message of the leader's own, because
    /// nothing older commits by counting (§4.8).
    pub(crate) fn become_leader(&mut self, because: Reason, out: &mut Effects<Gmt2000>) {
        let from = self.role();
        self.role_state = RoleState::Leader(Box::new(Office::elected(&self.node)));
        self.node.leader = Some(self.node.me);
        self.reign = self.node.promise.term;
        self.hears_majority = false;
        self.losses = 0;
        self.strangers.clear();
        self.is_leader_fresh = false;
        self.eager_rounds = 0;
        self.lost_leader = None;
        self.wanted = None;
        self.announce(from, because, out);
        self.node.end_transfer(out);
        self.end_round(out);
        out.cancel_timer(Timer::Watch);
        out.cancel_timer(Timer::Freshness);
        out.set_timer(Timer::Heartbeat, self.node.timing.heartbeat..=self.node.timing.heartbeat);
        out.set_timer(Timer::QuorumCheck, self.node.timing.election_min..=self.node.timing.election_min);
        self.append_own(Entry::blank(self.node.next_lsn()), out);
        self.spread(out);
    }

    /// Drops what only the present role has, and tells those who wait for it.
    fn leave_role(&mut self, out: &mut Effects<Gmt2000>) {
        let RoleState::Leader(office) = std::mem::replace(&mut self.role_state, RoleState::Watching) else { return };
        self.node.leader = None;
        if self.ballot.number <= self.node.promise.term {
            // The ballot that it won is closed: votes that come late must not elect it a second time.
            self.ballot = Ballot::numbered(self.node.promise.term);
        }
        out.cancel_timer(Timer::Heartbeat);
        out.cancel_timer(Timer::QuorumCheck);
        // The timer of a hand-over stays: its requester hears how it ended even if nobody leads.
        office.reads.refuse_all(out);
    }
}
