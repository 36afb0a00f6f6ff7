//! Which changes of membership a leader may propose: the same questions under every protocol, beside what only it knows.
//!
//! Whether a change is under way and whether a learner has caught up are the protocol's to know; that ids are given out in
//! order, that addresses are one member's, and that most protocols move one voter at a time, is not. Sources: RM-1 to RM-9 in
//! the protocol notes, house §3.

use crate::{Change, Membership, MembershipChange, MembershipError, MembershipRefusal, NodeId, Passage};

impl Membership {
    /// Why a change cannot be proposed, whatever it would lead to: definite, nothing was done. A learner is promoted only when
    /// it has caught up.
    pub fn refusal_of(
        &self,
        change: &MembershipChange,
        is_caught_up: impl Fn(NodeId) -> bool,
    ) -> Option<MembershipError> {
        change.steps.iter().find_map(|step| self.refusal_of_step(step, change, &is_caught_up))
    }

    fn refusal_of_step(
        &self,
        step: &Change,
        change: &MembershipChange,
        is_caught_up: impl Fn(NodeId) -> bool,
    ) -> Option<MembershipError> {
        let refuse = |kind, what| Some(MembershipError { kind, what });
        match step {
            Change::AddVoter(id) | Change::AddLearner(id) if !self.has(*id) => {
                if id.0 < self.next_id {
                    return refuse(MembershipRefusal::Taken, format!("{id} was a member once: ids are not reused"));
                }
                let urls = peer_urls(change, *id);
                let shares = |known: &[String]| known.iter().any(|url| urls.contains(url));
                let (owner, _) = self.members.iter().find(|(_, member)| shares(&member.peer_urls))?;
                refuse(MembershipRefusal::Taken, format!("its peer URL is {owner}'s already"))
            }
            Change::AddVoter(id) if self.is_learner(*id) && !is_caught_up(*id) => {
                refuse(MembershipRefusal::NotReady, format!("{id} is not in sync with the leader yet"))
            }
            Change::Remove(id) | Change::Describe(id, _) if !self.has(*id) && !adds(change, *id) => {
                refuse(MembershipRefusal::NotFound, format!("{id} is not a member"))
            }
            _ => None,
        }
    }

    /// [`Membership::after`], for a protocol that moves one voter at a time.
    ///
    /// # Errors
    /// More than one step concerns quorums, or the change asks for a joint phase; or what `after` refuses.
    pub fn after_one(&self, change: &MembershipChange) -> Result<Membership, MembershipError> {
        let concerning_quorums = change.steps.iter().filter(|step| !matches!(step, Change::Describe(..))).count();
        if change.passage != Passage::Auto || concerning_quorums > 1 {
            let what = "this protocol changes one member at a time: ask for the steps one after the other";
            return Err(MembershipError { kind: MembershipRefusal::NotSimple, what: what.into() });
        }
        self.after(change)
    }

    /// How many voters without `dead` come before `me`: in that order survivors ask for leadership, so that two rarely ask at once.
    pub fn rank_without(&self, dead: NodeId, me: NodeId) -> u32 {
        let before = self.all_voters().filter(|voter| *voter != dead && *voter < me).count();
        u32::try_from(before).expect("clusters are small")
    }
}

fn adds(change: &MembershipChange, id: NodeId) -> bool {
    let is_it = |step: &Change| matches!(step, Change::AddVoter(added) | Change::AddLearner(added) if *added == id);
    change.steps.iter().any(is_it)
}

/// The peer URLs that a change gives to a member.
fn peer_urls(change: &MembershipChange, id: NodeId) -> &[String] {
    let urls = change.steps.iter().find_map(|step| match step {
        Change::Describe(described, member) if *described == id => Some(member.peer_urls.as_slice()),
        _ => None,
    });
    urls.unwrap_or_default()
}
