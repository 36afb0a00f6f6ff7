//! The ELECTOR: WATCHING for silence, VOTING for the best claim.
//!
//! Source: the note of 2000, "ELECTOR state machine"; rules 1 to 7 and §4.4, §4.6, §4.8 of `docs/protocols/rules`.
//!
//! ```text
//!    n1 (leader) ✗     n2: ELECT(6, 5:10) ──►  n3: ELECT(6, 5:10) ──►     every claim is on every slate
//!                      n2: VOTE(6) to n2       n3: VOTE(6) to n2          one durable vote each, same choice
//!                      n2: LEAD(6) ─────────►  n3 follows
//! ```
//!
//! `[OURS]` The number of the election, the *ballot*, is what makes votes comparable. ELECT names it and promises nothing: a
//! node that only claims may still follow the leader of an earlier ballot, so an ELECT costs nobody a leader. The vote is the
//! promise: it is one per ballot, durable before it is sent, and from then on the voter takes no LEAD of an earlier ballot.
//! So ELECT is the protocol's own pre-vote, and three things make it one: a node that heard its leader lately only
//! notes a claim; one that heard claims of less than a majority does not vote, for nobody could win; and the next ELECT
//! of one that has not voted names the same ballot again, so that a node on its own does not run away with the numbers.

use crate::gmt2000::{Gmt2000, RoleState, Timer};
use crate::laboratory::Defect;
use crate::message::{Claim, Message};
use hustings_core::leading::Replicating;
use hustings_core::quorum::Verdict;
use hustings_core::{Effects, Lsn, NodeId, Outcome, Priority, Reason, Refusal, RestsOn, Term, Ticket};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// Elections after a link-down that follow each other quickly; then the usual pace, so that a node with one broken link does
/// not call elections at full speed for ever.
const EAGER_ROUNDS: u8 = 5;

/// A candidate gives way once in so many lost elections, and its rank more: of up to five voters no two have the same number, so that the
/// one that keeps others from leading and the one that is kept do not give way together each time.
const GIVES_WAY_EVERY: usize = 5;

/// The party in whose name an election is called.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Standing {
    /// In the name of the caller itself: the leader is silent.
    Ordinary,
    /// In the present leader's name: it hands over.
    Successor,
}

/// One election, as this node knows it.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct Ballot {
    /// Number of the ballot, which names the election.
    pub(crate) number: Term,
    /// The slate: the claim of each node. Claims are noted even before this node takes part.
    pub(crate) slate: BTreeMap<NodeId, Claim>,
    /// Whether this node broadcast its own claim.
    pub(crate) is_claimed: bool,
    /// The tally board: the nodes that voted for this one, with the claim of this node that each voted for.
    pub(crate) board: BTreeMap<NodeId, Lsn>,
    /// Whether this node's own vote in it, for any node, was made durable in this life.
    pub(crate) is_vote_durable: bool,
    /// Nodes that were told of it because they were still in an earlier one: once each, or a storm would be answered by a storm.
    pub(crate) told: BTreeSet<NodeId>,
}

impl Ballot {
    /// Nobody has claimed anything in it.
    pub(crate) fn numbered(number: Term) -> Ballot {
        Ballot { number, ..Ballot::default() }
    }
}

/// Whether a majority may hear the node that claims this, as far as it says.
fn is_within_reach(claim: &Claim) -> bool {
    claim.hears_majority || claim.is_successor
}

impl Gmt2000 {
    // --- WATCHING. -----------------------------------------------------------------------------------------------

    /// Rule 1: five intervals for the first leader, where rule 2 has three. Spread, so that one starts before the others.
    pub(crate) fn watch_initially(&mut self, out: &mut Effects<Gmt2000>) {
        out.set_timer(Timer::Watch, self.node.timing.election_min * 5 / 3..=self.node.timing.election_max * 5 / 3);
    }

    /// Rule 2: three intervals, which an operator sets as the election timeout. Also the back-off after a vain election.
    pub(crate) fn watch(&mut self, out: &mut Effects<Gmt2000>) {
        out.set_timer(Timer::Watch, self.node.timing.election());
    }

    /// `[OURS]` Random, or nodes that failed together would fail together again.
    fn back_off(&mut self, out: &mut Effects<Gmt2000>) {
        if self.eager_rounds == 0 {
            return self.watch(out);
        }
        self.eager_rounds -= 1;
        if self.eager_rounds == 0 {
            self.lost_leader = None;
        }
        out.set_timer(Timer::Watch, self.node.timing.heartbeat * 2..=self.node.timing.heartbeat * 4);
    }

    /// Rule 4, and the retry of an election without a majority.
    pub(crate) fn on_watch_timer(&mut self, out: &mut Effects<Gmt2000>) {
        if self.published.is_some() {
            return self.on_watch_timer_as_published(out);
        }
        assert!(!self.is_leading(), "a leader does not watch for itself");
        if self.node.may_lead() {
            let because = match self.lost_leader {
                Some(leader) => Reason::LinkDown(leader),
                None => Reason::ElectionTimeout,
            };
            return self.start_election(because, Standing::Ordinary, out);
        }
        // A learner, one that must not lead or one with a stalled disk: it notes that nobody leads, and joins others.
        let was_led = self.lost_leader.take().is_some() || self.node.leader.is_some();
        if self.node.leader.is_some() {
            self.forget_leader(Reason::ElectionTimeout, out);
        }
        if was_led {
            return self.watch(out);
        }
        // Nobody else leads within a whole timeout: because of what only this node holds; or because the others lack its claim
        // for a majority and have let it grow old; or because its vote is bound to a ballot that they cannot leave without it.
        // So it calls as everybody does, at the usual pace, and claims nothing for itself unless it is a caretaker now.
        if self.node.has_noted_that_others_lack {
            self.node.take_care();
        }
        self.eager_rounds = 0;
        self.start_election(Reason::ElectionTimeout, Standing::Ordinary, out);
    }

    /// The leader is silent for the shortest timeout: a node that called an election meanwhile was right.
    pub(crate) fn on_freshness_timer(&mut self, out: &mut Effects<Gmt2000>) {
        self.is_leader_fresh = false;
        self.join_if_called(out);
    }

    /// The leader's process or machine is gone, or this one link is: all survivors see it at once, and each says so. They
    /// number the election alike and rank its claims alike, so that no jitter is needed.
    pub(crate) fn on_leader_link_down(&mut self, leader: NodeId, out: &mut Effects<Gmt2000>) {
        self.eager_rounds = EAGER_ROUNDS;
        self.lost_leader = Some(leader);
        if self.node.may_lead() && self.calling.is_none() {
            let from = self.role();
            self.node.leader = None;
            return self.become_voting(from, Reason::LinkDown(leader), Standing::Ordinary, out);
        }
        self.forget_leader(Reason::LinkDown(leader), out);
        if self.node.may_lead() {
            self.wanted = Some((Reason::LinkDown(leader), Standing::Ordinary));
        }
        self.join_if_called(out);
    }

    pub(crate) fn on_asked_to_campaign(&mut self, ticket: Ticket, out: &mut Effects<Gmt2000>) {
        if self.is_leading() {
            return out.reply(ticket, Outcome::Done);
        }
        if !self.node.may_lead() {
            return out.refuse(ticket, Refusal::BadTransferee(self.node.me));
        }
        self.start_election(Reason::Asked, Standing::Ordinary, out);
        out.reply(ticket, Outcome::Done);
    }

    // --- ELECT. --------------------------------------------------------------------------------------------------

    /// Calls an election, at once or when the round trip since the last one has passed.
    pub(crate) fn start_election(&mut self, because: Reason, standing: Standing, out: &mut Effects<Gmt2000>) {
        if self.published.is_some() {
            return self.become_voting_as_published(because, out);
        }
        if self.calling.is_some() {
            self.wanted = Some((because, standing));
        } else {
            self.become_voting(self.role(), because, standing, out);
        }
    }

    /// Leaves the present ballot for a later one, no matter which server called it: votes of the old one do not count any more.
    pub(crate) fn turn_to_ballot(&mut self, number: Term) {
        if self.is_awaiting_votes() {
            // It voted for itself, and nobody leads: others should have their turn.
            self.lose();
        }
        self.ballot = Ballot::numbered(number);
    }

    /// One more election lost; the count begins anew where it ends.
    pub(crate) fn lose(&mut self) {
        self.losses = self.losses.checked_add(1).unwrap_or(1);
    }

    /// Another node's election: joined, unless the leader was heard lately or a round trip must pass first.
    fn join_if_called(&mut self, out: &mut Effects<Gmt2000>) {
        let is_called = self.ballot.number > self.node.promise.term && !self.ballot.is_claimed;
        let is_pressing = self.ballot.slate.values().any(|claim| claim.is_successor);
        let has_leader = self.is_leading() || (self.node.leader.is_some() && self.is_leader_fresh);
        if !is_called || self.calling.is_some() || (has_leader && !is_pressing) {
            return;
        }
        if let Some(caller) = self.ballot.slate.keys().next().copied() {
            self.become_voting(self.role(), Reason::HigherTerm(caller), Standing::Ordinary, out);
        }
    }

    /// Whether the leader's successor called the election under way, within this round trip: then it is the leader's own wish,
    /// and a LEAD that it sent before it heard of it does not end it.
    pub(crate) fn is_ballot_pressing(&self) -> bool {
        let is_called = self.ballot.number > self.node.promise.term;
        self.calling.is_some() && is_called && self.ballot.slate.values().any(|claim| claim.is_successor)
    }

    /// Whether this node, which lost again, stands in nobody's way this time. The candidate with the longest log may be unable to win: it may be the best claim
    /// that one voter hears, whose vote another needs that has all the others behind it. Nobody can tell which of them should yield.
    pub(crate) fn gives_way(&self) -> bool {
        let rank = self.node.membership.all_voters().take_while(|id| *id != self.node.me).count() % GIVES_WAY_EVERY;
        let yields = !self.has_defect(Defect::NeverYields);
        yields && self.losses > 0 && usize::from(self.losses) % (GIVES_WAY_EVERY + rank) == 0
    }

    /// The claim that this node makes.
    pub(crate) fn claim(&self) -> Claim {
        let priority = match self.node.may_lead() {
            true if self.gives_way() => Priority::Never,
            true if self.node.is_caretaker => Priority::Normal,
            true => self.node.priority(),
            false => Priority::Never,
        };
        let Gmt2000 { reign, hears_majority, losses, .. } = *self;
        Claim { last: self.node.log.last(), priority, is_successor: false, reign, hears_majority, losses }
    }

    /// Rules 3 and 6: another node's ELECT is noted on the slate, and perhaps joined or answered.
    pub(crate) fn on_elect(
        &mut self,
        from: NodeId,
        ballot: Term,
        claim: Claim,
        commit: Lsn,
        out: &mut Effects<Gmt2000>,
    ) {
        self.learn_commit(commit, out);
        let cannot_lead = claim.priority == Priority::Never && self.node.leader.is_none();
        self.node.note_that_others_lack(cannot_lead && self.node.may_not_know_that_it_votes(from, commit));
        let is_ordained = claim.is_successor && ballot > self.node.promise.term;
        if self.is_leading() && !(is_ordained && self.is_handing_over_to(from)) {
            // GM-3: the old leader is alive, and says so to a node that doubts it.
            return self.send_heartbeat_to(from, out);
        }
        if self.has_defect(Defect::VotesTwice) && ballot == self.node.promise.term && claim.last >= self.node.log.last()
        {
            // A second vote in a ballot in which this node may have voted for another.
            let vote = Message::Vote { ballot, choice: from, claim: claim.last };
            out.send_resting_on(RestsOn::Promise, from, vote);
        }
        if claim.last > self.node.log.last() && !self.node.membership.is_voter(from) {
            // Also if it comes after the vote: in the next ballot it is awaited.
            self.strangers.insert(from);
        }
        if ballot < self.ballot.number || ballot <= self.node.promise.term {
            return self.on_earlier_elect(from, ballot, out);
        }
        if ballot > self.ballot.number {
            self.turn_to_ballot(ballot);
        }
        self.ballot.slate.insert(from, claim);
        self.answer_stranger(from, out);
        if self.is_leading() {
            // Its successor asks. A leader takes part like everybody else, and without delay: it accepts no proposals now.
            self.calling = None;
        }
        self.join_if_called(out);
        self.settle_slate(out);
    }

    /// A node of which this one does not know that it votes calls the same ballot: it was not told of this node's claim, and may need it
    /// for its majority.
    fn answer_stranger(&mut self, from: NodeId, out: &mut Effects<Gmt2000>) {
        let Some(claim) = self.ballot.slate.get(&self.node.me).copied().filter(|_| self.ballot.is_claimed) else {
            return;
        };
        if self.node.membership.is_voter(from) || !self.ballot.told.insert(from) {
            return;
        }
        let elect = Message::Elect { ballot: self.ballot.number, claim, commit: self.node.committed() };
        out.send_resting_on(RestsOn::Nothing, from, elect);
    }

    /// An election that this node has left behind: the caller hears of the present one. One that it voted in is left to end.
    fn on_earlier_elect(&mut self, from: NodeId, ballot: Term, out: &mut Effects<Gmt2000>) {
        let has_leader = self.node.leader.is_some() && self.is_leader_fresh;
        let present = if self.ballot.is_claimed { self.ballot.number } else { self.node.promise.term };
        // Within a round trip this node's ELECT has told everybody already.
        if has_leader || self.calling.is_some() || ballot >= present || !self.ballot.told.insert(from) {
            return;
        }
        let elect = Message::Elect { ballot: present, claim: self.claim(), commit: self.node.committed() };
        out.send_resting_on(RestsOn::Nothing, from, elect);
    }

    // --- VOTE. ---------------------------------------------------------------------------------------------------

    /// Rule 7's timeout has passed; an election that waited for the round trip to pass can start.
    pub(crate) fn on_round_timer(&mut self, out: &mut Effects<Gmt2000>) {
        if self.published.is_some() {
            return self.on_round_timer_as_published(out);
        }
        self.calling = None;
        match self.role_state {
            RoleState::Voting if self.ballot.is_claimed => {
                self.settle_slate(out);
                if matches!(self.role_state, RoleState::Voting) && self.calling.is_none() {
                    self.back_off(out);
                }
            }
            // A later election was called meanwhile.
            RoleState::Voting => self.join_if_called(out),
            RoleState::Watching => match self.wanted.take() {
                Some((because, standing)) if self.node.may_lead() => {
                    self.become_voting(self.role(), because, standing, out)
                }
                Some(_) => {
                    self.watch(out);
                    self.join_if_called(out);
                }
                None => self.join_if_called(out),
            },
            RoleState::Leader(_) => {}
        }
    }

    /// There is a leader. If it is that of the ballot in which this node called, or of a later one, a round trip has passed. The bound
    /// on storms (GM-7) stays, for no ballot has two leaders; and when this one dies, nobody waits for the rest of a heartbeat interval.
    pub(crate) fn end_round(&mut self, out: &mut Effects<Gmt2000>) {
        let is_over = self.calling.is_some_and(|ballot| ballot <= self.node.promise.term);
        if is_over && self.published.is_none() {
            self.calling = None;
            out.cancel_timer(Timer::Round);
        }
    }

    /// `[OURS]` Votes once a majority has claimed *and* nobody who could still claim is awaited, or the round trip is over.
    ///
    /// A node that hears no majority votes all the same, if a node on its slate does: of five with two dead, the middle one of
    /// the other three needs both its neighbours, which hear each other as little as the dead. In a minority nobody hears a
    /// majority, so nobody votes, and no ballot grows. A leader that a majority answered has ordained its successor a moment ago.
    pub(crate) fn settle_slate(&mut self, out: &mut Effects<Gmt2000>) {
        if !matches!(self.role_state, RoleState::Voting) || !self.ballot.is_claimed {
            return;
        }
        let slate = &self.ballot.slate;
        let is_awaited = |id: NodeId| !slate.contains_key(&id) && !self.node.links_down.contains(&id);
        // One that holds more may be a voter since an entry that this node lacks.
        let is_any_awaited = self.node.membership.all_voters().chain(self.strangers.iter().copied()).any(is_awaited);
        let is_over = self.calling.is_none() || !is_any_awaited;
        if !is_over {
            return;
        }
        let yields = !self.has_defect(Defect::NeverYields);
        let is_heard_of = yields && slate.iter().any(|(id, claim)| *id != self.node.me && is_within_reach(claim));
        self.hears_majority = self.has_majority();
        if self.hears_majority || is_heard_of {
            self.vote(out);
        }
    }

    /// Whether a majority has claimed, or voted for this node: one that knows an older membership votes for a candidate to which it says no
    /// ELECT.
    fn has_majority(&self) -> bool {
        let Ballot { slate, board, .. } = &self.ballot;
        let is_heard = |id: NodeId| (slate.contains_key(&id) || board.contains_key(&id)).then_some(true);
        self.node.membership.verdict(is_heard) == Verdict::Won
    }

    /// Chooses the best claim (rule 7): the latest; among equals the present leader's successor, then the old leader (§4.8: only if its claim is not
    /// below), then the preferred, then the smallest id. `[OURS]` After an election that came to nothing, nodes that heard a majority in it
    /// come first, and those that lost less often: neither old honours nor a preference elect a node that cannot win.
    ///
    /// All of this is read from the claims. If each voter went by the leader that it heard last itself, two that heard
    /// different leaders would vote for each other, and again in the next ballot, and never elect anybody.
    fn vote(&mut self, out: &mut Effects<Gmt2000>) {
        let own = match self.ballot.slate.get(&self.node.me) {
            // News heard meanwhile goes into this node's next election: all must rank the same claims.
            Some(said) => Claim {
                last: self.node.log.last(),
                reign: self.reign,
                priority: self.claim().priority.min(said.priority),
                ..*said
            },
            None => self.claim(),
        };
        self.ballot.slate.insert(self.node.me, own);
        let (me, has_majority) = (self.node.me, self.has_majority());
        let yields = !self.has_defect(Defect::NeverYields);
        let rank = |id: NodeId, claim: &Claim| {
            let fortune = yields.then_some((claim.hears_majority, Reverse(claim.losses)));
            (claim.last, claim.is_successor, fortune, claim.reign, claim.priority, Reverse(id))
        };
        let is_blind = self.has_defect(Defect::VotesBelowOwnLog);
        let is_faithful = self.has_defect(Defect::PrefersOldLeader);
        let rank = |id: NodeId, claim: &Claim| {
            let favour = if is_faithful { claim.reign } else { Term::ZERO };
            let last = if is_blind { Lsn::ZERO } else { claim.last };
            (favour, rank(id, &Claim { last, ..*claim }))
        };
        let may_win = |id: NodeId, claim: &Claim| has_majority || (id != me && is_within_reach(claim));
        let able = |id: NodeId, claim: &Claim| claim.priority != Priority::Never && may_win(id, claim);
        // The longest log is no reason to vote for a node that no majority reaches, where one that a majority reaches holds enough.
        let is_sound = |claim: &Claim| claim.hears_majority && claim.last >= own.last;
        let has_sound = yields && self.ballot.slate.iter().any(|(id, claim)| able(*id, claim) && is_sound(claim));
        let is_doubtful = |claim: &Claim| has_sound && !claim.hears_majority && !claim.is_successor;
        let able = self.ballot.slate.iter().filter(|(id, claim)| able(**id, claim) && !is_doubtful(claim));
        let best = able.max_by_key(|(id, claim)| rank(**id, claim)).map(|(id, claim)| (*id, *claim));
        let is_fresher = best.is_some_and(|(_, claim)| claim.last < own.last);
        // Nor does it help to vote for one that others do not hear, and that says so: it lost before, or has heard no majority yet where
        // another has, and is the best all the same.
        let is_heard_by_majority = self.ballot.slate.values().any(|claim| claim.hears_majority);
        let is_in_vain =
            best.is_some_and(|(_, claim)| claim.losses > 0 || (is_heard_by_majority && !claim.hears_majority));
        self.node.note_that_others_lack(is_fresher || is_in_vain);
        // G3: never for one who saw less than this node did.
        let Some((choice, claim)) = best.filter(|(_, claim)| claim.last >= own.last || is_blind || is_faithful) else {
            // The timer that was set when the round trip had passed stands: a claim that helps nobody must not put off this node's next one.
            return;
        };
        let ballot = self.ballot.number;
        self.become_watching(choice, out);
        self.back_off(out);
        let vote = Message::Vote { ballot, choice, claim: claim.last };
        if choice != self.node.me {
            out.send_resting_on(RestsOn::Promise, choice, vote.clone());
        }
        // To itself: before its own vote is durable no node may win, see `count_votes`.
        out.send_resting_on(RestsOn::Promise, self.node.me, vote);
    }

    // --- Later ballots, and what comes with an election. ---------------------------------------------------------

    /// A voter of a later ballot cannot follow this leader any more: the reign ends, and an election must gather both.
    pub(crate) fn on_obsolete(&mut self, from: NodeId, term: Term, out: &mut Effects<Gmt2000>) {
        if term <= self.node.promise.term || self.published.is_some() {
            return;
        }
        let was_leading = self.is_leading();
        self.become_follower(term, None, Reason::HigherTerm(from), out);
        if was_leading {
            self.eager_rounds = EAGER_ROUNDS;
            self.back_off(out);
        }
    }

    /// Commit knowledge spreads with claims, so that nobody elects by a membership that was left behind.
    fn learn_commit(&mut self, commit: Lsn, out: &mut Effects<Gmt2000>) {
        let is_known = self.is_leading() || commit.index <= self.node.commit;
        if !is_known && self.node.log.has(commit) && self.node.installing.is_none() {
            self.apply_through(commit.index, out);
        }
    }
}
