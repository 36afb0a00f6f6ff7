//! Fast leader election: servers that look exchange votes until a quorum agrees.
//!
//! Source: §5.3 to §5.5 of `docs/protocols/rules`; the rule numbers are theirs.
//!
//! ```text
//!    n1, n2, n3 lose their leader n4 (N = 4)        every vote is better or worse, so all end with the best
//!      n1: LOOKING, vote n1 ──►   n3: LOOKING, vote n3 ──►
//!      n1, n2 adopt n3 and say so ──►  n3 of {n1 n2 n3}: everybody who can be heard agrees ─► LEADING, FOLLOWING, FOLLOWING
//! ```
//!
//! Nothing here is durable and nothing is promised: two servers can come to believe that they are elected. That is why an
//! election only finds a *candidate*, and [`crate::discovery`] follows (§5.12).
//!
//! `[OURS]` finalizeWait is for voters who might still say better. It ends at once when every voter whose link is up
//! agrees. Messages that arrive meanwhile are treated by the usual rules and not thrown away; and the first word of a
//! peer in a round is answered, because it may have been somebody's follower when it heard ours.

use crate::laboratory::Defect;
use crate::message::{Message, Notification};
use crate::vote::{ServerState, Standing, Vote};
use crate::zab::{Following, Leading, Phase, RoleState, Timer, Zab};
use hustings_core::leading::Replicating;
use hustings_core::quorum::Verdict;
use hustings_core::{Effects, Lsn, NodeId, Reason, RestsOn, Term};
use std::collections::BTreeMap;

/// Each vain wait doubles the next, up to an election timeout.
const DOUBLINGS_MAX: u32 = 4;
/// After so many vain waits of a search a server that gives way proposes itself again: by then others would lead.
const GIVES_WAY_DOUBLINGS: u32 = 3;

/// After so many vain waits one that gives way asks others to take care: until then it listens whether somebody speaks who may lead.
const ASKS_FOR_CARE_DOUBLINGS: u32 = 1;

/// After so many attempts to lead that came to nothing, one after the other, a server asks those that must never lead to take care.
pub(crate) const VAIN_ATTEMPTS_MAX: u8 = 2;

/// Above so many voters a changed vote is said a little later, and the changes meanwhile with it: as ZooKeeper's send queue of
/// length 1 (§5.3). Otherwise a hundred members would say ten thousand things for every better vote.
const AT_ONCE_MAX: usize = 7;

/// The last that was heard of a peer.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Heard {
    pub(crate) state: ServerState,
    pub(crate) vote: Vote,
    pub(crate) round: u64,
}

impl Heard {
    /// Whether two words are of the same leader in the same reign: in one epoch (§5.3; ZOOKEEPER-1732, 1805, 1818: the zxids grew old
    /// meanwhile), or of one round, in which a leader and its followers say first the epoch of its history and then that of its reign.
    fn is_same_reign(&self, other: &Heard, is_as_published: bool) -> bool {
        let is_of_one_round = self.round == other.round && !is_as_published;
        self.vote.leader == other.vote.leader && (self.vote.epoch == other.vote.epoch || is_of_one_round)
    }
}

/// Whether a peer still has to be told this node's vote.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reply {
    Owed,
    Given,
}

/// State of a server that looks for a leader.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Looking {
    pub(crate) proposal: Vote,
    /// `recvset`: votes of the present round.
    pub(crate) received: BTreeMap<NodeId, Heard>,
    /// `outofelection`: votes of servers that have settled, whatever their round.
    pub(crate) settled: BTreeMap<NodeId, Heard>,
    pub(crate) is_finalizing: bool,
    /// The vote has changed and is about to be said.
    pub(crate) is_about_to_speak: bool,
    pub(crate) doublings: u32,
    /// Nodes that follow this one already, by FOLLOWERINFO: (connection, acceptedEpoch).
    pub(crate) callers: BTreeMap<NodeId, (u64, Term)>,
}

impl Looking {
    /// The state before the first vote.
    pub(crate) fn unborn(me: NodeId) -> Looking {
        let proposal = Vote { leader: me, epoch: Term::ZERO, last: Lsn::ZERO, standing: Standing::Never };
        Looking {
            proposal,
            received: BTreeMap::new(),
            settled: BTreeMap::new(),
            is_finalizing: false,
            is_about_to_speak: false,
            doublings: 0,
            callers: BTreeMap::new(),
        }
    }
}

impl Zab {
    // --- Rounds. -------------------------------------------------------------------------------------------------

    /// Begins a new round of the same search, since this server's proposal has become untrue.
    pub(crate) fn look_again(&mut self, out: &mut Effects<Zab>) {
        if matches!(self.role_state, RoleState::Looking(_)) {
            self.begin_round(self.own_vote(), out);
        }
    }

    pub(crate) fn begin_round(&mut self, proposal: Vote, out: &mut Effects<Zab>) {
        self.round += 1;
        let RoleState::Looking(looking) = &mut self.role_state else { unreachable!("only who looks votes") };
        if looking.is_finalizing {
            out.cancel_timer(Timer::Finalize);
        }
        if looking.is_about_to_speak {
            out.cancel_timer(Timer::Speak);
        }
        let callers = std::mem::take(&mut looking.callers);
        **looking = Looking { proposal, callers, ..Looking::unborn(self.node.me) };
        if self.is_retired() {
            return out.cancel_timer(Timer::Resend);
        }
        self.broadcast_vote(out);
        self.arm_resend(out);
        self.settle_votes(out);
    }

    /// This server's vote for itself. If it may not lead it has weight 0, as an observer's minimal vote.
    pub(crate) fn own_vote(&self) -> Vote {
        let standing = match self.may_lead() {
            false => Standing::Never,
            true if self.is_successor => Standing::Successor,
            true if self.gives_way => Standing::Never,
            true if self.node.is_caretaker => Standing::Normal,
            true => Standing::from(self.node.priority()),
        };
        if self.has_defect(Defect::ElectsLongestLog) {
            let last = Lsn { term: Term::ZERO, index: self.node.log.last().index };
            return Vote { leader: self.node.me, epoch: Term::ZERO, last, standing };
        }
        Vote { leader: self.node.me, epoch: self.current_epoch(), last: self.node.log.last(), standing }
    }

    // --- Speaking. -----------------------------------------------------------------------------------------------

    fn notification(&self) -> Notification {
        let (state, vote) = match &self.role_state {
            RoleState::Looking(looking) if self.asks_for_care(looking) => (ServerState::Looking, Vote::FOR_CARE),
            RoleState::Looking(looking) => (ServerState::Looking, looking.proposal),
            RoleState::Following(following) => (ServerState::Following, following.vote),
            RoleState::Leading(leading) => (ServerState::Leading, self.vote_as_leader(leading)),
        };
        Notification { state, vote, round: self.round, commit: self.node.committed(), is_answer: false }
    }

    /// `[OURS]` From its synchronisation on a leader says the end of its history as it is now, with the epoch of its reign. ZooKeeper's says
    /// the one with which it was elected, and whoever holds anything of this reign would hold more.
    fn vote_as_leader(&self, leading: &Leading) -> Vote {
        let says_its_end = leading.phase != Phase::Discovery && !self.options.as_published;
        Vote { last: if says_its_end { self.node.log.last() } else { leading.vote.last }, ..leading.vote }
    }

    /// `[OURS]` Whether this server, which could lead and came to nothing again and again, asks those to take care that must never lead: they
    /// serve without it, if they are told. Not before it has listened for a wait: somebody may speak who may lead.
    fn asks_for_care(&self, looking: &Looking) -> bool {
        self.gives_way
            && self.vain_attempts >= VAIN_ATTEMPTS_MAX
            && looking.doublings >= ASKS_FOR_CARE_DOUBLINGS
            && !looking.proposal.is_eligible()
    }

    fn answer(&self, peer: NodeId, out: &mut Effects<Zab>) {
        let answer = Notification { is_answer: true, ..self.notification() };
        out.send_resting_on(RestsOn::Nothing, peer, Message::Notification(answer));
    }

    /// Sends this node's vote to one peer. It promises nothing and rests on nothing.
    pub(crate) fn notify(&self, peer: NodeId, out: &mut Effects<Zab>) {
        if !self.is_retired() {
            out.send_resting_on(RestsOn::Nothing, peer, Message::Notification(self.notification()));
        }
    }

    /// Sends the vote to all voters. `[OURS]` And to the one proposed: it may be a voter by a membership that this node
    /// has not heard of, and then it needs this vote.
    fn broadcast_vote(&self, out: &mut Effects<Zab>) {
        let RoleState::Looking(looking) = &self.role_state else { return };
        let proposed = looking.proposal.leader;
        let stranger = (!self.node.membership.is_voter(proposed)).then_some(proposed);
        for id in self.node.membership.all_voters().chain(stranger).filter(|id| *id != self.node.me) {
            self.notify(id, out);
        }
    }

    fn say_changed_vote(&mut self, out: &mut Effects<Zab>) {
        if self.node.membership.all_voters().count() <= AT_ONCE_MAX {
            return self.broadcast_vote(out);
        }
        let RoleState::Looking(looking) = &mut self.role_state else { return };
        if !std::mem::replace(&mut looking.is_about_to_speak, true) {
            out.set_timer(Timer::Speak, self.node.timing.heartbeat / 2..=self.node.timing.heartbeat);
        }
    }

    pub(crate) fn on_speak_timer(&mut self, out: &mut Effects<Zab>) {
        let RoleState::Looking(looking) = &mut self.role_state else { unreachable!("leaving cancels the timer") };
        looking.is_about_to_speak = false;
        self.broadcast_vote(out);
    }

    fn arm_resend(&self, out: &mut Effects<Zab>) {
        let RoleState::Looking(looking) = &self.role_state else { return };
        let wait = (self.node.timing.heartbeat * 2 * (1 << looking.doublings)).min(self.node.timing.election_min);
        out.set_timer(Timer::Resend, wait..=wait * 2);
    }

    /// Rule 2: the vote is said again, and the next wait is longer.
    pub(crate) fn on_resend_timer(&mut self, out: &mut Effects<Zab>) {
        self.give_up_the_unmet(out);
        let RoleState::Looking(looking) = &mut self.role_state else { return };
        looking.doublings = (looking.doublings + 1).min(DOUBLINGS_MAX);
        let stops_giving_way = match looking.doublings {
            GIVES_WAY_DOUBLINGS => self.gives_way,
            _ => self.gives_way_to_nobody(),
        };
        if stops_giving_way {
            self.gives_way = false;
            return self.look_again(out);
        }
        let RoleState::Looking(looking) = &self.role_state else { return };
        let nobody_may_lead = !looking.proposal.is_eligible() && !self.node.is_caretaker;
        if looking.doublings == DOUBLINGS_MAX && nobody_may_lead && self.node.has_noted_that_others_lack {
            // `[OURS]` A voter looks that does not know that it votes: this server can tell it, by leading.
            self.node.take_care();
            return self.look_again(out);
        }
        // It proposes itself, and no quorum that it hears agrees: perhaps another hears one, and votes for this server all the same.
        let is_in_vain = looking.proposal.leader == self.node.me && !looking.is_finalizing;
        if looking.doublings == DOUBLINGS_MAX && is_in_vain && !looking.received.is_empty() {
            self.gives_way = true;
            return self.look_again(out);
        }
        self.broadcast_vote(out);
        self.arm_resend(out);
    }

    // --- Listening. ----------------------------------------------------------------------------------------------

    pub(crate) fn on_notification(&mut self, from: NodeId, notification: Notification, out: &mut Effects<Zab>) {
        let Notification { state, vote, round, commit, is_answer } = notification;
        let wants_answer = !is_answer;
        self.learn_commit(commit, out);
        let is_looking = matches!(self.role_state, RoleState::Looking(_));
        let knows_nobody = is_looking && state == ServerState::Looking && !vote.is_eligible();
        self.node.note_that_others_lack(knows_nobody && self.node.may_not_know_that_it_votes(from, commit));
        match (is_looking, state) {
            // `[OURS]` It votes for nobody. But the only one left may have lost with its disk's last writes that this node's
            // removal is committed, and then it waits for this node's word.
            _ if self.is_retired() => {
                if state == ServerState::Looking && wants_answer {
                    self.answer(from, out);
                }
            }
            (true, ServerState::Looking) => {
                self.take_care_if_nominated(from, vote, round, out);
                if self.on_vote(from, vote, round, out) == Reply::Owed && wants_answer {
                    self.answer(from, out);
                }
                self.stop_giving_way_to_nobody(out);
                self.settle_votes(out);
            }
            (true, _) => self.on_settled_vote(from, Heard { state, vote, round }, out),
            (false, ServerState::Looking) if self.is_unheard_by(from, round) => {
                self.become_looking(Reason::LeaderResigned(from), out);
                // To one that looks, the same word is a vote, and perhaps the one to agree with.
                self.on_notification(from, notification, out);
            }
            (false, ServerState::Looking) if self.is_leader_silent_to(from) => {
                self.become_looking(Reason::ElectionTimeout, out);
                self.on_notification(from, notification, out);
            }
            // Rule 12: a server that has settled tells one that looks whom it settled for, in its own round.
            (false, ServerState::Looking) if wants_answer => self.answer(from, out),
            (false, _) => {}
        }
    }

    /// `[OURS]` One that could lead and came to nothing asks those for care that must never lead: this one leads as a caretaker.
    fn take_care_if_nominated(&mut self, by: NodeId, vote: Vote, round: u64, out: &mut Effects<Zab>) {
        let RoleState::Looking(looking) = &self.role_state else { return };
        let are_voters = self.node.membership.is_voter(by) && self.node.membership.is_voter(self.node.me);
        let is_asked = vote == Vote::FOR_CARE && round >= self.round && are_voters;
        let could = self.node.could_take_care() && !self.node.is_caretaker;
        if is_asked && could && !looking.proposal.is_eligible() {
            self.node.take_care();
            self.look_again(out);
        }
    }

    fn stop_giving_way_to_nobody(&mut self, out: &mut Effects<Zab>) {
        if self.gives_way_to_nobody() {
            self.gives_way = false;
            self.look_again(out);
        }
    }

    /// A quorum speaks, and nobody names anybody who may lead: there is nobody to give way to. Those that were asked to take care get a wait.
    fn gives_way_to_nobody(&self) -> bool {
        let RoleState::Looking(looking) = &self.role_state else { return false };
        let speaks = |id: NodeId| id == self.node.me || looking.received.contains_key(&id);
        let is_quorum = self.node.membership.verdict(|id| Some(speaks(id))) == Verdict::Won;
        let still_asks = self.vain_attempts >= VAIN_ATTEMPTS_MAX && looking.doublings <= ASKS_FOR_CARE_DOUBLINGS;
        self.gives_way && is_quorum && !looking.proposal.is_eligible() && !still_asks
    }

    /// `[OURS]` Whether the chosen leader says in a later round that it still looks: it never led, so no connection ends to say
    /// so. Even if it wants to lead, the vote that this node gave it is void in that round (rule 5), and so is what this node
    /// says as its follower (rule 10, ZB-5). ZooKeeper's follower finds nobody listening and gives up after five tries.
    fn is_unheard_by(&self, from: NodeId, round: u64) -> bool {
        let RoleState::Following(Following { leader, phase: Phase::Discovery, .. }) = &self.role_state else {
            return false;
        };
        *leader == from && round > self.round
    }

    /// `[OURS]` Whether a voter looks, and this node has not heard the leader for the shortest election timeout either. It joins at
    /// once, as a voter of Raft does (RV-3): a leader that stands still is replaced when the first timeout ends, and not when those of
    /// a quorum have ended. A node that hears the leader is moved by nobody.
    fn is_leader_silent_to(&self, voter: NodeId) -> bool {
        let RoleState::Following(Following { is_leader_fresh, .. }) = &self.role_state else { return false };
        !is_leader_fresh && self.node.membership.is_voter(voter)
    }

    /// Rules 3 to 8: takes a vote of another server that looks.
    fn on_vote(&mut self, from: NodeId, vote: Vote, round: u64, out: &mut Effects<Zab>) -> Reply {
        let own = self.own_vote();
        // `[OURS]` Rule 3 refuses a server that is no voter. But with a newer history may come a newer membership: then
        // a stranger's word is listened to, and never counted.
        let knows_more = (vote.epoch, vote.last) > (own.epoch, own.last);
        if round < self.round || !(self.node.membership.is_voter(from) || knows_more) {
            // An observer asks; its own vote is nobody's concern. Rules 6 and 13: the laggard hears of this round.
            return Reply::Owed;
        }
        let is_known =
            (self.node.membership.is_voter(vote.leader) || knows_more) && !self.node.links_down.contains(&vote.leader);
        let RoleState::Looking(looking) = &mut self.role_state else { unreachable!("asked before") };
        let heard = Heard { state: ServerState::Looking, vote, round };
        looking.settled.remove(&from);
        let is_first = looking.received.insert(from, heard).is_none();
        if round > self.round {
            // Rule 5: not the present proposal, but this node's initial vote is compared.
            self.round = round;
            looking.received.retain(|id, _| *id == from);
            looking.proposal = if is_known && vote.is_better_than(&own) { vote } else { own };
        } else if is_known && vote.is_better_than(&looking.proposal) {
            // Rule 7.
            looking.proposal = vote;
        } else {
            // Among many servers, votes are repeated often enough to repair it.
            let is_few = self.node.membership.all_voters().count() <= AT_ONCE_MAX;
            return if is_first && is_few { Reply::Owed } else { Reply::Given };
        }
        self.say_changed_vote(out);
        Reply::Given
    }

    /// Rules 9 and 10: takes a vote of a server that has settled.
    fn on_settled_vote(&mut self, from: NodeId, heard: Heard, out: &mut Effects<Zab>) {
        let (me, round, promised) = (self.node.me, self.round, self.node.promise.term);
        let is_behind = self.is_behind(heard.vote.epoch, heard.vote.last);
        let RoleState::Looking(looking) = &mut self.role_state else { unreachable!("asked before") };
        // Rule 3 has it that strangers do not count, and they do not. But the leader may be one: the membership that this
        // node knows may be an old one.
        if heard.round == round {
            looking.received.insert(from, heard);
        } else {
            looking.received.remove(&from);
        }
        looking.settled.insert(from, heard);
        let candidate = heard.vote.leader;
        // Nobody follows a dead leader on hearsay (ZB-4): it must have said itself that it leads. And nobody leads because
        // others remember a reign of an earlier round (ZB-5; ZOOKEEPER-1514).
        let leads = |map: &BTreeMap<NodeId, Heard>| match candidate == me {
            true => heard.round == round,
            false => map.get(&candidate).is_some_and(|heard| heard.state == ServerState::Leading),
        };
        let (own, is_as_published) =
            (Heard { state: ServerState::Looking, vote: looking.proposal, round }, self.options.as_published);
        let agrees = |map: &BTreeMap<NodeId, Heard>, with_own: bool| {
            let is_own = |id: NodeId| with_own && id == me && own.is_same_reign(&heard, is_as_published);
            let says = |id: NodeId| map.get(&id).is_some_and(|other| other.is_same_reign(&heard, is_as_published));
            self.node.membership.verdict(|id| Some(is_own(id) || says(id))) == Verdict::Won
        };
        // This node's vote is one of this round's: ZooKeeper loops what a server says back to it (§5.3).
        let is_elected = (heard.round == round && leads(&looking.received) && agrees(&looking.received, true))
            || (leads(&looking.settled) && agrees(&looking.settled, false));
        // `[OURS]` After a vain wait a leader's own word is enough: the quorum that could confirm it may be one of members
        // that this node has not heard of yet. It costs nothing if the leader has no quorum: then it resigns.
        // The leader that this node votes for in this round agrees upon an epoch yet, with a quorum that this node need not hear: what was
        // promised to another one that came to nothing is then a reason to come. Not to one that is behind: it gives way at once.
        let is_own_choice = heard.round == round && own.is_same_reign(&heard, is_as_published) && !is_behind;
        let is_invited = from == candidate
            && heard.state == ServerState::Leading
            && (heard.vote.epoch >= promised || is_own_choice)
            && looking.doublings > 0;
        // A follower says the end of its leader's history as it was when it came; the leader itself says it as it is.
        let its_own = looking.settled.get(&candidate).filter(|its| its.is_same_reign(&heard, is_as_published));
        let told = its_own.map_or(heard.vote.last, |its| its.vote.last);
        if (is_elected || is_invited) && self.may_choose(candidate) {
            self.round = heard.round;
            self.conclude(Vote { last: told.max(heard.vote.last), ..heard.vote }, out);
        }
    }

    /// Whether this node could follow, or be, the one chosen.
    fn may_choose(&self, candidate: NodeId) -> bool {
        if candidate == self.node.me { self.may_lead() } else { !self.node.links_down.contains(&candidate) }
    }

    /// Rule 8: whether a quorum agrees with the proposal, and whether somebody is awaited who might know better.
    pub(crate) fn settle_votes(&mut self, out: &mut Effects<Zab>) {
        let RoleState::Looking(looking) = &self.role_state else { return };
        let proposal = looking.proposal;
        let agrees =
            |id: NodeId| id == self.node.me || looking.received.get(&id).is_some_and(|heard| heard.vote == proposal);
        let is_agreed = proposal.is_eligible()
            && self.may_choose(proposal.leader)
            && self.node.membership.verdict(|id| Some(agrees(id))) == Verdict::Won;
        // A voter that has settled for another does not agree, and is awaited.
        let is_unanimous = self.node.membership.all_voters().all(|id| agrees(id) || self.node.links_down.contains(&id));
        let was_finalizing = looking.is_finalizing;
        if is_agreed && is_unanimous {
            return self.conclude(proposal, out);
        }
        let RoleState::Looking(looking) = &mut self.role_state else { return };
        looking.is_finalizing = is_agreed;
        match (was_finalizing, is_agreed) {
            (false, true) => out.set_timer(Timer::Finalize, self.node.timing.heartbeat..=self.node.timing.heartbeat),
            (true, false) => out.cancel_timer(Timer::Finalize),
            _ => {}
        }
    }

    /// finalizeWait is over, and nobody sent a better vote.
    pub(crate) fn on_finalize_timer(&mut self, out: &mut Effects<Zab>) {
        let RoleState::Looking(looking) = &mut self.role_state else { unreachable!("leaving cancels the timer") };
        looking.is_finalizing = false;
        let proposal = looking.proposal;
        self.conclude(proposal, out);
    }

    fn conclude(&mut self, vote: Vote, out: &mut Effects<Zab>) {
        if vote.leader == self.node.me {
            self.become_leading(vote, out);
        } else {
            self.become_following(vote, out);
        }
    }

    /// Nodes that are known to vote for this leader.
    pub(crate) fn supporters(&self, vote: Vote) -> Vec<NodeId> {
        let RoleState::Looking(looking) = &self.role_state else { return Vec::new() };
        let says = |heard: &Heard| heard.vote.leader == vote.leader;
        let is_one = |id: &NodeId| {
            let is_heard = looking.received.get(id).is_some_and(says) || looking.settled.get(id).is_some_and(says);
            is_heard || (*id == self.node.me && looking.proposal.leader == vote.leader)
        };
        self.node.membership.all_voters().filter(is_one).collect()
    }

    // --- Events. -------------------------------------------------------------------------------------------------

    /// A server that reaches a quorum again may propose itself, which needs no new round: its vote is a better one (rule 7).
    pub(crate) fn on_link_up_while_looking(&mut self, out: &mut Effects<Zab>) {
        let own = self.own_vote();
        let RoleState::Looking(looking) = &mut self.role_state else { return };
        if own.is_better_than(&looking.proposal) {
            looking.proposal = own;
            self.say_changed_vote(out);
            self.settle_votes(out);
        }
    }

    /// A server that cannot be heard is not waited for; and one that cannot be followed is not voted for. The round
    /// stays: links come and go one by one, and a new round makes everybody speak. It begins only where what this
    /// server proposed has become untrue, itself: without this link it reaches no quorum.
    pub(crate) fn on_link_down_while_looking(&mut self, peer: NodeId, could_lead: bool, out: &mut Effects<Zab>) {
        let (own, may_lead) = (self.own_vote(), self.may_lead());
        let RoleState::Looking(looking) = &mut self.role_state else { return };
        looking.received.remove(&peer);
        looking.settled.remove(&peer);
        looking.callers.remove(&peer);
        if could_lead && !may_lead {
            return self.look_again(out);
        }
        if looking.proposal.leader == peer {
            let votes = looking.received.values().filter(|heard| heard.state == ServerState::Looking);
            let reachable = votes.map(|heard| heard.vote).filter(|vote| !self.node.links_down.contains(&vote.leader));
            let best = reachable.fold(own, |best, vote| if vote.is_better_than(&best) { vote } else { best });
            looking.proposal = best;
            self.say_changed_vote(out);
        }
        self.settle_votes(out);
    }

    /// Commit knowledge spreads with votes (RV-9), so that nobody elects by a membership that was left behind.
    fn learn_commit(&mut self, commit: Lsn, out: &mut Effects<Zab>) {
        let is_busy = self.is_leading() || self.fetching.is_some() || self.node.installing.is_some();
        if !is_busy && commit.index > self.node.commit && self.node.log.has(commit) {
            let before = self.node.membership.clone();
            self.apply_through(commit.index, out);
            if self.is_retired() {
                self.retire(out);
            } else if !self.node.membership.votes_as(&before) {
                self.look_again(out);
            }
        }
    }

    /// A committed change removed this node: it follows nobody and asks nobody any more.
    pub(crate) fn retire(&mut self, out: &mut Effects<Zab>) {
        match self.role_state {
            RoleState::Looking(_) => self.begin_round(self.own_vote(), out),
            _ => self.become_looking(Reason::Removed, out),
        }
    }
}
