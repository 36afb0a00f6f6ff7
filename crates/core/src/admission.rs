//! Changes of membership that a leader may propose: the checks that are the same under every protocol.
//!
//! The protocol itself knows whether a change is under way and whether a learner has caught up. The rest is checked
//! here: ids are given out in order, an address belongs to one member, and most protocols move one voter at a time.
//! Sources: RM-1 to RM-9 in `docs/protocols/rules`, ADR 1.

use crate::{
    Change, Member, Membership, MembershipChange, MembershipError, MembershipRefusal, NodeId, Passage, Wire as _,
};
use std::collections::BTreeMap;

/// Bytes of a name or of one address.
const TEXT_BYTES_MAX: usize = 512;
/// Addresses of one kind that a member may have.
const URLS_MAX: usize = 16;
/// Most bytes that an encoded membership may have: every snapshot carries it, and a greeting carries two of them.
pub const MEMBERSHIP_BYTES_MAX: usize = 24 << 10;

impl Membership {
    /// Reason why a change cannot be proposed: definite, nothing was done. `None` if it may be. A learner is promoted
    /// only when it has caught up.
    pub fn refusal_of(
        &self,
        change: &MembershipChange,
        is_caught_up: impl Fn(NodeId) -> bool,
    ) -> Option<MembershipError> {
        let refused = change.steps.iter().find_map(|step| self.refusal_of_step(step, change, &is_caught_up));
        refused.or_else(|| self.refusal_of_ids(change)).or_else(|| self.refusal_of_size(change))
    }

    /// Ids are given out one after the other, and each once.
    fn refusal_of_ids(&self, change: &MembershipChange) -> Option<MembershipError> {
        let mut next = self.next_id;
        for step in &change.steps {
            match step {
                Change::AddVoter(id) | Change::AddLearner(id) if id.0 == next => next += 1,
                Change::AddVoter(id) | Change::AddLearner(id) if id.0 > next => {
                    let what = format!("ids are given out in order: the next member is {}, not {id}", NodeId(next));
                    return Some(MembershipError { kind: MembershipRefusal::Taken, what });
                }
                _ => {}
            }
        }
        None
    }

    /// This membership, which a change leads to, if any of its voters may lead: where none may there is no leader ever again,
    /// and so no change that could mend it.
    ///
    /// # Errors
    /// None of them may.
    pub fn with_somebody_to_lead(self, may_lead: impl Fn(NodeId) -> bool) -> Result<Membership, MembershipError> {
        if self.voters.iter().any(|id| may_lead(*id)) {
            return Ok(self);
        }
        let what =
            "no voter would be left that may lead: the others have the priority `never`, or cannot lead now".into();
        Err(MembershipError { kind: MembershipRefusal::NoVoters, what })
    }

    fn refusal_of_size(&self, change: &MembershipChange) -> Option<MembershipError> {
        let refuse = |what| Some(MembershipError { kind: MembershipRefusal::TooLarge, what });
        for step in &change.steps {
            let Change::Describe(id, Member { name, peer_urls, client_urls, .. }) = step else { continue };
            if peer_urls.len().max(client_urls.len()) > URLS_MAX {
                return refuse(format!("{id} would have more than {URLS_MAX} addresses of one kind"));
            }
            let longest = peer_urls.iter().chain(client_urls).chain([name]).map(String::len).max().unwrap_or(0);
            if longest > TEXT_BYTES_MAX {
                return refuse(format!(
                    "{id} would have a name or an address of {longest} bytes; at most {TEXT_BYTES_MAX}"
                ));
            }
        }
        // Without a change of quorums in between, what this one adds is all that can make the membership grow.
        let people = Membership { assignments: BTreeMap::new(), ..self.clone() };
        let bytes = people.to_bytes().len() + change.to_bytes().len();
        if bytes > MEMBERSHIP_BYTES_MAX && change.steps.iter().any(|step| !matches!(step, Change::Remove(_))) {
            return refuse(format!(
                "the membership would take {bytes} bytes with its names and addresses; at most {MEMBERSHIP_BYTES_MAX}"
            ));
        }
        None
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

    /// Number of voters without `dead` that come before `me`: survivors campaign in that order, so that two rarely do at once.
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
