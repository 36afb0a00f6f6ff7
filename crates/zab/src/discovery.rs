//! Discovery: the elected candidate collects the epochs that were accepted, picks a later one, and a quorum promises it.
//!
//! Source: the ZAB paper, phase 1; §5.8 of `docs/protocols/rules`, whose rule numbers these are.
//!
//! ```text
//!    follower ── FOLLOWERINFO(acceptedEpoch 4) ──► leader     a quorum has come: max(accepted) + 1 = 5
//!             ◄──────────── LEADERINFO(5) ──────── Promise(5), durable first
//!    Promise(5), durable first
//!             ── ACKEPOCH(currentEpoch, last zxid) ─►         a quorum has promised: nobody older can commit any more
//! ```
//!
//! The promise is what makes leadership unique: a node that accepted an epoch helps no leader of an earlier one, and a
//! node that had accepted this very epoch from another leader says so and is not counted (ZB-9).

use crate::election::Looking;
use crate::laboratory::Defect;
use crate::learner::{Learner, Stage};
use crate::message::Message;
use crate::zab::{Phase, RoleState, Timer, Zab};
use hustings_core::options::Options as _;
use hustings_core::quorum::Verdict;
use hustings_core::{Effects, Lsn, NodeId, Priority, Reason, RestsOn, Term};

impl Zab {
    // --- The follower. -------------------------------------------------------------------------------------------

    /// Rule 2. The number of the connection is new, so that nothing of an earlier one is taken for its own.
    pub(crate) fn connect(&mut self, leader: NodeId, out: &mut Effects<Zab>) {
        self.connection += 1;
        let info = Message::FollowerInfo { connection: self.connection, accepted: self.node.promise.term };
        out.send_resting_on(RestsOn::Nothing, leader, info);
        // Longer than a leader waits: it ends the connection first, and says so.
        out.set_timer(Timer::Silence, self.node.timing.election_max..=self.node.timing.election_max * 2);
    }

    /// Rule 5: promises the leader's epoch, durably, or goes back to looking.
    pub(crate) fn on_leader_info(&mut self, from: NodeId, epoch: Term, out: &mut Effects<Zab>) {
        let RoleState::Following(following) = &mut self.role_state else { return };
        if following.phase != Phase::Discovery {
            return;
        }
        if epoch < self.node.promise.term {
            // ZB-8: a promise was made to a later leader.
            return self.become_looking(Reason::HigherTerm(self.node.me), out);
        }
        following.phase = Phase::Synchronization;
        let is_promise = epoch > self.node.promise.term || self.has_defect(Defect::PromisesTwice);
        // The state of this node when it promised, and not more: read before the epoch is accepted.
        let (current, last) = self.summary();
        if epoch > self.node.promise.term {
            self.accept_epoch(epoch, out);
        }
        let priority = self.said_priority();
        let (connection, commit) = (self.connection, self.node.committed());
        let ack = Message::AckEpoch { connection, epoch, current, is_promise, last, commit, priority };
        // It rests on all: it boasts of a log as well as promises.
        out.send(from, ack);
        if self.has_defect(Defect::EpochBeforeEntries) {
            self.establish(epoch, out);
        }
    }

    /// The freshness of this node's history (§5.8 rule 6): its currentEpoch, and its last zxid.
    pub(crate) fn summary(&self) -> (Term, Lsn) {
        (self.current_epoch(), self.node.log.last())
    }

    /// Whether a leader with this summary lacks something that this node holds. `[OURS]` Not if their logs end with the same zxid, whichever
    /// epochs they have been established in: then they are the same history (§5.9), and the ZAB paper's leader begins with the best
    /// follower's. ZooKeeper's asks for the epoch as well, and in a star whose hub missed one, nobody could lead.
    pub(crate) fn is_behind(&self, epoch: Term, last: Lsn) -> bool {
        let own = self.summary();
        (epoch, last) < own && (last != own.1 || self.options.as_published)
    }

    pub(crate) fn on_silence(&mut self, out: &mut Effects<Zab>) {
        assert!(matches!(self.role_state, RoleState::Following(_)), "only a follower waits for its leader");
        self.become_looking(Reason::ElectionTimeout, out);
    }

    pub(crate) fn on_freshness_timer(&mut self) {
        let RoleState::Following(following) = &mut self.role_state else { unreachable!("leaving cancels the timer") };
        following.is_leader_fresh = false;
    }

    // --- The leader. ---------------------------------------------------------------------------------------------

    pub(crate) fn on_follower_info(&mut self, from: NodeId, connection: u64, accepted: Term, out: &mut Effects<Zab>) {
        if !self.node.promise.term.may_follow(accepted) {
            return;
        }
        match &mut self.role_state {
            RoleState::Looking(looking) => {
                let Looking { callers, .. } = &mut **looking;
                // It has settled before this node did; it is served as soon as this node agrees.
                callers.insert(from, (connection, accepted));
            }
            RoleState::Following(_) => self.say_goodbye(from, connection, out),
            RoleState::Leading(leading) if leading.is_epoch_fixed => {
                if accepted > self.node.promise.term {
                    // `[OURS]` ZooKeeper's follower can never join this leader again, whose epoch it may not accept. One more
                    // election gathers both.
                    return self.become_looking(Reason::HigherTerm(from), out);
                }
                self.meet(from, connection, accepted);
                self.inform(from, out);
            }
            RoleState::Leading(_) => {
                self.meet(from, connection, accepted);
                self.fix_epoch(out);
            }
        }
    }

    pub(crate) fn meet(&mut self, from: NodeId, connection: u64, accepted: Term) {
        let RoleState::Leading(leading) = &mut self.role_state else { unreachable!("only a leader is followed") };
        leading.office.peers.insert(from, Learner::met(connection, accepted));
    }

    /// Rule 3: the epoch is fixed as soon as a quorum has come, this node included.
    pub(crate) fn fix_epoch(&mut self, out: &mut Effects<Zab>) {
        let RoleState::Leading(leading) = &mut self.role_state else { return };
        let learners = &leading.office.peers;
        let is_quorum = self.node.membership.verdict(|id| Some(learners.contains_key(&id))) == Verdict::Won;
        let skips = self.options.defect == Some(Defect::SkipsDiscovery);
        if !is_quorum && !skips {
            return;
        }
        leading.is_epoch_fixed = true;
        let highest = learners.values().map(|learner| learner.accepted).max().unwrap_or_default();
        let all: Vec<NodeId> = learners.keys().copied().collect();
        let epoch = highest.max(self.node.promise.term).next();
        self.accept_epoch(epoch, out);
        for learner in all {
            self.inform(learner, out);
        }
    }

    /// Rule 4: sends LEADERINFO. To itself: this node's promise, once it is durable.
    fn inform(&mut self, to: NodeId, out: &mut Effects<Zab>) {
        let (epoch, me) = (self.node.promise.term, self.node.me);
        let (current, last) = self.summary();
        let (commit, priority) = (self.node.committed(), self.node.priority());
        let RoleState::Leading(leading) = &mut self.role_state else { return };
        let Some(learner) = leading.office.peers.get_mut(&to) else { return };
        learner.stage = Stage::Informed;
        let connection = learner.connection;
        if to == me {
            let own = Message::AckEpoch { connection, epoch, current, is_promise: true, last, commit, priority };
            out.send(me, own);
        } else {
            out.send_resting_on(RestsOn::Promise, to, Message::LeaderInfo { connection, epoch });
        }
    }

    pub(crate) fn on_own_promise(&mut self, out: &mut Effects<Zab>) {
        let last = self.node.log.last();
        let me = self.node.me;
        let RoleState::Leading(leading) = &mut self.role_state else { return };
        let Some(own) = leading.office.peers.get_mut(&me).filter(|own| own.stage == Stage::Informed) else { return };
        (own.stage, own.has_promised, own.last) = (Stage::Promised, true, last);
        self.count_promises(out);
    }

    /// Rule 6: counts a follower's promise, or gives way to a fresher history.
    #[expect(clippy::too_many_arguments, reason = "the fields of one message")]
    pub(crate) fn on_ack_epoch(
        &mut self,
        from: NodeId,
        current: Term,
        is_promise: bool,
        last: Lsn,
        commit: Lsn,
        priority: Priority,
        out: &mut Effects<Zab>,
    ) {
        if commit.index > self.node.commit && !self.node.log.has(commit) && !self.options.is_laboratory() {
            // `[OURS]` A later leader committed what this one lacks: nothing of what this one does can count any more. If its own history
            // was established later, that is said as well: the two may be of different histories.
            let because = match commit.term < self.current_epoch() {
                true => self.node.note_contradiction(from, self.node.committed(), commit),
                false => Reason::Fresher(from),
            };
            return self.become_looking(because, out);
        }
        let own = self.summary();
        // The same history is no fresher one, whichever epoch it was established in.
        let is_fresher = (current, last) > own && (last != own.1 || self.options.as_published);
        let ignores = self.has_defect(Defect::IgnoresFresherFollowers) || self.has_defect(Defect::ElectsLongestLog);
        let RoleState::Leading(leading) = &mut self.role_state else { return };
        let Some(learner) = leading.office.peers.get_mut(&from).filter(|learner| learner.stage == Stage::Informed)
        else {
            return;
        };
        if leading.phase == Phase::Discovery && is_fresher && !ignores {
            // Never lead over fresher data.
            leading.office.peers.remove(&from);
            if priority != Priority::Never && self.node.membership.is_voter(from) {
                // `[OURS]` ZooKeeper drops the follower alone; giving way at once lets it be elected without a timeout.
                self.become_looking(Reason::Fresher(from), out);
            }
            return;
        }
        learner.stage = Stage::Promised;
        learner.has_promised = is_promise;
        learner.last = last;
        learner.known.on_said(priority);
        match leading.phase {
            Phase::Discovery => self.count_promises(out),
            Phase::Synchronization | Phase::Broadcast => self.synchronize(from, out),
        }
    }

    fn count_promises(&mut self, out: &mut Effects<Zab>) {
        let RoleState::Leading(leading) = &self.role_state else { return };
        let learners = &leading.office.peers;
        let has_promised = |id: NodeId| learners.get(&id).is_some_and(|learner| learner.has_promised);
        let is_quorum = self.node.membership.verdict(|id| Some(has_promised(id))) == Verdict::Won;
        let skips = self.options.defect == Some(Defect::SkipsDiscovery);
        if leading.phase != Phase::Discovery || !(is_quorum || skips) || !has_promised(self.node.me) {
            return;
        }
        let by = self.node.membership.all_voters().filter(|id| has_promised(*id)).collect();
        self.become_synchronizing(by, out);
    }

    /// initLimit has passed: not enough followers came or promised.
    pub(crate) fn on_init_limit(&mut self, out: &mut Effects<Zab>) {
        let RoleState::Leading(leading) = &self.role_state else { unreachable!("leaving cancels the timer") };
        let heard = leading.office.peers.keys().copied().collect();
        self.give_up_leading(heard, out);
    }
}
