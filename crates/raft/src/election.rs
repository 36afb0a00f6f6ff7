//! Elections: campaigns, answers to vote requests, and their results.
//!
//! Sources: Raft §5.2, §5.4.1; dissertation §9.6 (PreVote), §4.2.3 (stickiness); rules RV-1 to RV-10 of `docs/protocols/rules`.
//!
//! A death that the kernel reports is acted upon at once: when the link to the leader drops, the survivors campaign in the
//! order of their rank, a few milliseconds apart, instead of waiting for an election timeout. A voter that refused because it
//! still heard the leader answers again when its own link to the leader drops:
//!
//! ```text
//!    n1 (leader) ✗        n2: link down ── PreVote ──► n3: "n1 is fresh": refused, remembered
//!                                                      n3: link down ── granted ──► n2: wins, campaigns for real
//! ```

use crate::laboratory::Defect;
use crate::message::{Message, VoteReply, VoteRequest};
use crate::raft::{Raft, RoleState, Timer};
use hustings_core::leading::Replicating;
use hustings_core::quorum::Verdict;
use hustings_core::tally::Vote;
use hustings_core::{Effects, NodeId, Outcome, Priority, Promise, Reason, Record, Refusal, RestsOn, Ticket};

/// Campaigns after a link-down that follow each other quickly; then the usual pace, so that a node with one broken link
/// does not ask for ever at full speed.
const EAGER_CAMPAIGNS: u8 = 5;

/// The way in which this node campaigns.
pub(crate) struct Campaign {
    pub(crate) because: Reason,
    asks_first: bool,
    pub(crate) is_transfer: bool,
}

impl Campaign {
    /// Asks whether votes would be given, then asks for them.
    pub(crate) fn polite(because: Reason) -> Campaign {
        Campaign { because, asks_first: true, is_transfer: false }
    }

    /// Asks for votes without a pre-vote.
    pub(crate) fn for_real(because: Reason) -> Campaign {
        Campaign { because, asks_first: false, is_transfer: false }
    }

    /// Asks for votes in the name of the present leader.
    pub(crate) fn transfer(because: Reason) -> Campaign {
        Campaign { because, asks_first: false, is_transfer: true }
    }
}

impl Raft {
    // --- When to ask. --------------------------------------------------------------------------------------------

    /// An election timeout from now.
    pub(crate) fn arm_election(&mut self, out: &mut Effects<Raft>) {
        out.set_timer(Timer::Election, self.node.timing.election());
    }

    pub(crate) fn on_election_timer(&mut self, out: &mut Effects<Raft>) {
        assert!(!matches!(self.role_state, RoleState::Leader(_)), "a leader's election timer is cancelled");
        self.has_lost |= !matches!(self.role_state, RoleState::Follower);
        if self.may_campaign() {
            let because = match self.lost_leader {
                Some(leader) => Reason::LinkDown(leader),
                None => Reason::ElectionTimeout,
            };
            self.campaign(Campaign::polite(because), out);
            return;
        }
        // A learner, a node that knows of its own removal or one with a stalled disk: it only notes that nobody leads.
        let was_led = self.lost_leader.take().is_some() || self.node.leader.is_some();
        if self.node.leader.is_some() {
            self.forget_leader(Reason::ElectionTimeout, out);
        }
        if self.node.has_noted_that_others_lack && !was_led {
            // Nobody else leads within a whole timeout, because of what only this node holds.
            self.node.take_care();
            if self.may_campaign() {
                return self.campaign(Campaign::polite(Reason::ElectionTimeout), out);
            }
        }
        if !was_led {
            self.ask_who_votes(out);
        }
        self.arm_election(out);
    }

    /// `[OURS]` This node does not vote as far as it knows, or must never lead, and nobody leads. Those who know more say what is committed,
    /// or note that they hold what it lacks. It campaigns for nothing: their answers count for nothing else.
    fn ask_who_votes(&mut self, out: &mut Effects<Raft>) {
        if !self.options.pre_vote || !self.node.only_asks() {
            return;
        }
        for voter in self.node.other_voters() {
            out.send_resting_on(RestsOn::Nothing, voter, Message::PreVote(self.request(Asks::First)));
        }
    }

    /// The leader's process or machine is gone, or this one link is: ask the others, soon.
    pub(crate) fn on_leader_link_down(&mut self, leader: NodeId, out: &mut Effects<Raft>) {
        self.eager_campaigns = EAGER_CAMPAIGNS;
        self.lost_leader = Some(leader);
        self.forget_leader(Reason::LinkDown(leader), out);
        for (from, request) in std::mem::take(&mut self.refused_while_fresh) {
            self.on_pre_vote(from, request, out);
        }
        let start = self.node.turn_after(leader);
        out.set_timer(Timer::Election, start..=start);
    }

    /// One quick campaign fewer; after the last, silence is what counts again.
    pub(crate) fn spend_eagerness(&mut self) {
        self.eager_campaigns -= 1;
        if self.eager_campaigns == 0 {
            self.lost_leader = None;
        }
    }

    /// A voter is out of reach: if it was the last whose answer was awaited, the next campaign need not wait for it.
    pub(crate) fn on_voter_link_down(&mut self, out: &mut Effects<Raft>) {
        if matches!(self.role_state, RoleState::PreCandidate { .. } | RoleState::Candidate { .. }) {
            self.hasten_if_all_answered(out);
        }
    }

    pub(crate) fn on_asked_to_campaign(&mut self, ticket: Ticket, out: &mut Effects<Raft>) {
        if matches!(self.role_state, RoleState::Leader(_)) {
            return out.reply(ticket, Outcome::Done);
        }
        if !self.may_campaign() {
            return out.refuse(ticket, Refusal::BadTransferee(self.node.me));
        }
        self.campaign(Campaign::polite(Reason::Asked), out);
        out.reply(ticket, Outcome::Done);
    }

    /// The leader hands over (RV-7). Candidates are on their way already; others may not lead.
    pub(crate) fn on_timeout_now(&mut self, from: NodeId, out: &mut Effects<Raft>) {
        self.node.note_hand_over(from);
        if matches!(self.role_state, RoleState::Follower) && self.may_campaign() {
            self.campaign(Campaign::transfer(Reason::Transfer(from)), out);
        }
    }

    // --- Asking. -------------------------------------------------------------------------------------------------

    pub(crate) fn campaign(&mut self, campaign: Campaign, out: &mut Effects<Raft>) {
        assert!(self.may_campaign(), "{} may not campaign", self.node.me);
        if campaign.asks_first && self.options.pre_vote && !self.node.is_alone() {
            self.become_pre_candidate(campaign.because, out);
        } else {
            self.become_candidate(campaign, out);
        }
    }

    pub(crate) fn request(&self, asks: Asks) -> VoteRequest {
        let term = if asks == Asks::First { self.node.promise.term.next() } else { self.node.promise.term };
        VoteRequest {
            term,
            last: self.node.log.last(),
            commit: self.node.committed(),
            priority: if self.node.is_caretaker { Priority::Normal } else { self.node.priority() },
            is_transfer: asks == Asks::InTheLeadersName,
        }
    }

    /// All who can answer have answered and that was not enough: after a link-down the next try comes soon.
    fn hasten_if_all_answered(&mut self, out: &mut Effects<Raft>) {
        let (RoleState::PreCandidate { tally } | RoleState::Candidate { tally }) = &self.role_state else { return };
        let awaits =
            |voter: NodeId| voter != self.node.me && !self.node.links_down.contains(&voter) && !tally.has_answer(voter);
        if self.eager_campaigns == 0 || self.node.membership.all_voters().any(awaits) {
            return;
        }
        self.spend_eagerness();
        out.set_timer(Timer::Election, self.node.timing.heartbeat / 2..=self.node.timing.heartbeat * 3 / 2);
    }

    // --- Answering. ----------------------------------------------------------------------------------------------

    /// Whether this node hears its leader and nobody may disturb it (RV-3); the leader itself may, by a hand-over.
    pub(crate) fn is_sticky_to(&self, request: &VoteRequest) -> bool {
        let hears_leader =
            matches!(self.role_state, RoleState::Leader(_)) || (self.node.leader.is_some() && self.is_leader_fresh);
        self.options.check_quorum && hears_leader && !request.is_transfer && request.term > self.node.promise.term
    }

    pub(crate) fn refuse_vote(&mut self, from: NodeId, request: &VoteRequest, out: &mut Effects<Raft>) {
        let reply = self.reply_to(request, Vote::Refused);
        out.send_resting_on(RestsOn::Nothing, from, Message::VoteReply(reply));
    }

    /// Grants carry the term of the campaign, refusals the voter's own (RV-5).
    fn reply_to(&self, request: &VoteRequest, vote: Vote) -> VoteReply {
        let is_granted = vote == Vote::Granted;
        let term = if is_granted { request.term } else { self.node.promise.term };
        VoteReply { term, campaign: request.term, is_granted, commit: self.node.committed() }
    }

    /// Whether the candidate's history and standing would do (RV-4, RV-10; Raft §5.4.1).
    fn is_worthy(&self, request: &VoteRequest) -> bool {
        let is_up_to_date = request.last >= self.node.log.last() || self.has(Defect::VotesForStaleLogs);
        let is_wanted = request.is_transfer
            || request.last.index > self.node.log.last().index
            || request.priority >= self.standing();
        is_up_to_date && is_wanted
    }

    /// The priority by which others are measured: one who may not lead asks nobody to stand back, nor does one who could not
    /// win. A preferred member with one deaf link would keep its equals from leading for ever.
    fn standing(&self) -> Priority {
        let has_yielded = self.has_lost && !self.has(Defect::NeverYields);
        if self.may_campaign() && !has_yielded { self.node.priority() } else { Priority::Never }
    }

    /// A member that must never lead notes that it refused a candidate which lacks entries that only it holds. One that must not lead
    /// either is no candidate, and only asks.
    fn note_refusal_for_log(&mut self, from: NodeId, request: &VoteRequest) {
        let lacks_entries = request.last < self.node.log.last() && self.node.membership.is_voter(from);
        self.node.note_that_others_lack(lacks_entries && request.priority != Priority::Never);
    }

    pub(crate) fn on_pre_vote(&mut self, from: NodeId, request: VoteRequest, out: &mut Effects<Raft>) {
        if self.has(Defect::PreVoteRaisesTerm) && request.term > self.node.promise.term {
            self.become_follower(request.term, None, Reason::HigherTerm(from), out);
        }
        self.learn_commit(request.commit, out);
        let sticks = self.is_sticky_to(&request);
        if sticks && !matches!(self.role_state, RoleState::Leader(_)) {
            self.refused_while_fresh.insert(from, request.clone());
        }
        if !sticks {
            self.note_refusal_for_log(from, &request);
        }
        let vote = if !sticks && request.term > self.node.promise.term && self.is_worthy(&request) {
            Vote::Granted
        } else {
            Vote::Refused
        };
        out.send_resting_on(RestsOn::Nothing, from, Message::PreVoteReply(self.reply_to(&request, vote)));
    }

    pub(crate) fn on_vote(&mut self, from: NodeId, request: VoteRequest, out: &mut Effects<Raft>) {
        assert_eq!(request.term, self.node.promise.term, "the dispatcher brought this node into the candidate's term");
        self.learn_commit(request.commit, out);
        let is_free = match self.node.promise.vote {
            Some(candidate) => candidate == from || self.has(Defect::VotesTwice),
            None => self.node.leader.is_none(),
        };
        if !is_free || !self.is_worthy(&request) {
            self.note_refusal_for_log(from, &request);
            return self.refuse_vote(from, &request, out);
        }
        if self.node.promise.vote.is_none() {
            self.node.promise = Promise::vote(self.node.promise.term, from);
            out.persist(Record::Promise(self.node.promise));
        }
        // A vote that was given before is repeated; it rests on its promise like the first time (EL-01).
        out.send_resting_on(RestsOn::Promise, from, Message::VoteReply(self.reply_to(&request, Vote::Granted)));
        self.arm_election(out);
    }

    // --- Counting. -----------------------------------------------------------------------------------------------

    pub(crate) fn on_pre_vote_reply(&mut self, from: NodeId, reply: VoteReply, out: &mut Effects<Raft>) {
        if self.node.only_asks() {
            // It asked who votes. A term that it carried from one voter to another would depose a healthy leader.
            return self.learn_commit(reply.commit, out);
        }
        if !reply.is_granted && reply.term > self.node.promise.term {
            return self.become_follower(reply.term, None, Reason::HigherTerm(from), out);
        }
        if reply.campaign != self.node.promise.term.next() {
            return;
        }
        self.learn_commit(reply.commit, out);
        let membership = self.node.membership.clone();
        let RoleState::PreCandidate { tally } = &mut self.role_state else { return };
        // A voter that refused while it still heard the leader may answer again.
        if reply.is_granted {
            tally.forget_refusal(from);
        }
        tally.record(from, vote_of(&reply), &membership);
        self.settle_pre_vote(out);
    }

    pub(crate) fn settle_pre_vote(&mut self, out: &mut Effects<Raft>) {
        let RoleState::PreCandidate { tally } = &self.role_state else { return };
        match tally.verdict(&self.node.membership) {
            Verdict::Won => {
                let because = Reason::PollWon(tally.granted());
                self.campaign(Campaign::for_real(because), out);
            }
            // Right after a link-down a refusal is not final: its voter may be about to see the leader die.
            Verdict::Lost if self.eager_campaigns == 0 => {
                let because = Reason::PollLost { granted: tally.granted(), refused: tally.refused() };
                self.give_up(because, out);
            }
            Verdict::Lost | Verdict::Pending => self.hasten_if_all_answered(out),
        }
    }

    pub(crate) fn on_vote_reply(&mut self, from: NodeId, reply: VoteReply, out: &mut Effects<Raft>) {
        if reply.term > self.node.promise.term {
            return self.become_follower(reply.term, None, Reason::HigherTerm(from), out);
        }
        if reply.campaign != self.node.promise.term && !self.has(Defect::CountsStaleVotes) {
            return;
        }
        self.learn_commit(reply.commit, out);
        let membership = self.node.membership.clone();
        let counts_twice = self.has(Defect::CountsDuplicateVotes) && reply.is_granted;
        let RoleState::Candidate { tally } = &mut self.role_state else { return };
        if reply.is_granted {
            tally.forget_refusal(from);
        }
        if counts_twice && tally.has_answer(from) {
            let silent = membership.all_voters().find(|voter| !tally.has_answer(*voter));
            if let Some(voter) = silent {
                tally.record(voter, Vote::Granted, &membership);
            }
        }
        tally.record(from, vote_of(&reply), &membership);
        let RoleState::Candidate { tally } = &self.role_state else { return };
        match tally.verdict(&self.deciding()) {
            Verdict::Won => {
                let because = Reason::VoteWon(tally.granted());
                self.become_leader(because, out);
            }
            Verdict::Lost => {
                let because = Reason::VoteLost { granted: tally.granted(), refused: tally.refused() };
                self.give_up(because, out);
            }
            Verdict::Pending => self.hasten_if_all_answered(out),
        }
    }

    // --- Commit knowledge spreads with votes (RV-9). -------------------------------------------------------------

    /// A non-leader whose log has the committed place fast-forwards; a candidate that thereby learns of a changed set
    /// of voters steps back, since it asked the wrong ones.
    fn learn_commit(&mut self, commit: hustings_core::Lsn, out: &mut Effects<Raft>) {
        let leads = matches!(self.role_state, RoleState::Leader(_));
        if leads || commit.index <= self.node.commit || !self.node.log.has(commit) || self.node.installing.is_some() {
            return;
        }
        let before = self.node.membership.clone();
        self.apply_through(commit.index, out);
        let is_asking = !matches!(self.role_state, RoleState::Follower);
        if is_asking && !self.node.membership.votes_as(&before) {
            self.become_follower(self.node.promise.term, None, Reason::MembershipPending, out);
        }
    }
}

fn vote_of(reply: &VoteReply) -> Vote {
    if reply.is_granted { Vote::Granted } else { Vote::Refused }
}

/// The kind of a vote request: a pre-vote, a real one, or one in the leader's name.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Asks {
    First,
    ForReal,
    InTheLeadersName,
}
