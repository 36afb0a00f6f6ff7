//! The upkeep of a loop: now and then it sweeps out waiters that gave up, keeps the membership true, and watches its own pace.

use super::{Host, Proposer, REQUESTS_MANY, ping};
use crate::node::or_fatal;
use crate::pace::Finding;
use hustings_core::replica::{Event, RequestId};
use hustings_core::{
    ApplyVersion, Change, EntryKind, Member, Membership, MembershipChange, NodeId, Protocol, Role, StateMachine, Wire,
};
use std::collections::{BTreeMap, BTreeSet};

/// How far a leader is with writing down what members say of themselves.
#[derive(Default)]
pub(super) struct Describing {
    is_under_way: bool,
    /// The next is written down as soon as this index is applied, not first at the next sweep.
    due_at: Option<u64>,
    /// Members up to this one have had their turn: a member whose description is refused holds up no other.
    through: Option<NodeId>,
    is_own_introduced: bool,
}

/// A member's own word on itself.
struct Introduction<'a> {
    said: Member,
    /// Whether its word on its peer URLs is what stands there, or was in this life of it; set when it is seen to.
    is_introduced: &'a mut bool,
}

impl Describing {
    /// This node was elected: it writes down as soon as this entry, of its own term, is applied. Before, it may not.
    pub(super) fn begin_at(&mut self, index: u64) {
        self.due_at = Some(index);
    }

    /// Whether it is time to look for a member whose description is to be written down, with `applied` being applied.
    pub(super) fn is_due(&self, applied: u64) -> bool {
        self.due_at.is_some_and(|index| applied >= index)
    }

    /// One is written down: the next follows at once.
    pub(super) fn go_on(&mut self) {
        self.is_under_way = false;
        self.due_at = Some(0);
    }

    /// One is refused: the others have their turn from the next sweep on, and it has its next one after them.
    pub(super) fn give_way(&mut self) {
        self.is_under_way = false;
    }

    /// The next member that says of itself what the membership does not, with its new description, which is under way from here on.
    fn next(
        &mut self,
        membership: &Membership,
        introductions: BTreeMap<NodeId, Introduction<'_>>,
    ) -> Option<(NodeId, Member)> {
        let through = self.through.take();
        for (id, Introduction { said, is_introduced }) in introductions {
            let Some(known) = membership.members.get(&id).filter(|_| Some(id) > through) else { continue };
            let mut described = known.clone();
            if !said.name.is_empty() {
                described.name = said.name;
            }
            if !said.client_urls.is_empty() {
                described.client_urls = said.client_urls;
            }
            if !*is_introduced && !said.peer_urls.is_empty() {
                described.peer_urls = said.peer_urls;
            }
            if described.storage_incarnation.is_none() {
                described.storage_incarnation = said.storage_incarnation;
            }
            if described != *known {
                self.is_under_way = true;
                self.through = Some(id);
                return Some((id, described));
            }
            // Not before: a description that is refused has its next turn with all that it says.
            *is_introduced = true;
        }
        None
    }
}

impl<P: Protocol, S: StateMachine> Host<P, S> {
    /// Applies the next slice of what is committed.
    pub(super) fn begin_slice(&mut self) {
        if self.has_ended {
            return;
        }
        let (replica, actions) = (&mut self.replica, &mut self.actions);
        if or_fatal(&self.wiring.on_fatal, || replica.next_slice(actions)).is_none() {
            self.actions.clear();
            self.has_ended = true;
            return;
        }
        self.act();
    }

    /// Requests whose clients gave up are forgotten.
    pub(super) fn sweep(&mut self) {
        let gone: Vec<RequestId> =
            self.proposers.iter().filter(|(_, proposer)| proposer.has_given_up()).map(|(id, _)| *id).collect();
        for request in gone {
            self.proposers.remove(&request);
            self.step(Event::Abandon(request));
        }
        let gone: BTreeSet<RequestId> =
            self.readers.extract_if(|_, answer| answer.is_closed()).map(|(id, _)| id).collect();
        if !gone.is_empty() {
            self.step(Event::AbandonReads(gone));
        }
        // A commit index that nothing came after need not ride for ever.
        self.hand_over_batch();
        self.reconcile();
        self.tell_who_is_able();
        self.compare_if_due();
        self.keep_positions();
        self.watch_voters();
        self.watch_clocks();
        let applied = self.replica.applied().index;
        let requests = std::mem::take(&mut self.requests_since_sweep) + (applied - self.applied_at_sweep);
        self.applied_at_sweep = applied;
        self.eagerness.set(requests < REQUESTS_MANY);
        self.watch_pace();
    }

    /// Members that are connected said what their builds can; a leader may raise the apply version by it.
    fn tell_who_is_able(&mut self) {
        if self.replica.role() == Role::Leader
            && self.replica.version() < self.wiring.gatekeeper.borrow().hello.build.can
        {
            let able = self.links.iter().map(|(id, link)| (*id, link.hello.build.can)).collect();
            self.step(Event::Able(able));
        }
    }

    /// From here on entries are applied by other rules: peers that cannot are refused, and so is this directory to such builds.
    pub(super) fn on_version(&mut self, version: ApplyVersion) {
        let before = std::mem::replace(&mut self.wiring.gatekeeper.borrow_mut().hello.build.applies, version);
        if version > ApplyVersion::FIRST {
            // A log that raised it has said so already; a snapshot that was fetched has not.
            self.wiring.disk.need_version(version);
        }
        for link in self.links.values().filter(|link| link.hello.build.can < version) {
            link.outbox.close();
        }
        if version > before {
            tracing::info!(
                node = self.own_name(),
                "entries are applied by version {version} from here on: older builds are refused"
            );
        }
    }

    /// Asks peers for round trips, and follows what was measured or warns of it.
    fn watch_pace(&mut self) {
        if self.wiring.pace.on_sweep() {
            self.links.values().for_each(|link| link.outbox.put(ping::<P>()));
        }
        let Some(Finding { warnings, timing }) = self.wiring.pace.look(&self.wiring.counters) else { return };
        for warning in warnings {
            tracing::warn!(
                "the timing does not fit what is measured: {warning}; raise --election-timeout, or let --timing auto do it"
            );
        }
        if let Some(timing) = timing {
            tracing::info!(heartbeat = ?timing.heartbeat, election = ?timing.election(), "the timing follows what is measured");
            self.step(Event::Retime(timing));
        }
    }

    /// Peer URLs that stand there already are no news, in whatever role this node sees it: what an operator changes afterwards must not be
    /// undone by the word of a member's present life once this node leads.
    fn see_who_is_introduced(&mut self) {
        let members = &self.replica.membership().members;
        let stands = |id: NodeId, said: &Member| {
            members.get(&id).is_some_and(|known| said.peer_urls.is_empty() || known.peer_urls == said.peer_urls)
        };
        for (id, link) in &mut self.links {
            link.is_introduced |= stands(*id, &link.hello.member);
        }
        let own = &self.wiring.gatekeeper.borrow().hello;
        self.describing.is_own_introduced |= stands(own.from, &own.member);
    }

    /// The leader keeps names, client addresses and storage incarnations in the membership true: a member says them when
    /// its link comes up; they are committed like any change, so that every node knows a wiped disk when it sees one.
    pub(super) fn reconcile(&mut self) {
        self.describing.due_at = None;
        self.see_who_is_introduced();
        if self.replica.role() != Role::Leader || self.describing.is_under_way {
            return;
        }
        let own = self.wiring.gatekeeper.borrow().hello.clone();
        let mut is_own_introduced = self.describing.is_own_introduced;
        let own = (own.from, Introduction { said: own.member, is_introduced: &mut is_own_introduced });
        let peers = self.links.iter_mut().map(|(id, link)| {
            (*id, Introduction { said: link.hello.member.clone(), is_introduced: &mut link.is_introduced })
        });
        let next = self.describing.next(self.replica.membership(), peers.chain([own]).collect());
        self.describing.is_own_introduced = is_own_introduced;
        if let Some((id, described)) = next {
            let change = MembershipChange::of([Change::Describe(id, described)]);
            self.propose(EntryKind::Membership, change.to_bytes(), Proposer::Reconciliation);
            self.hand_over_requests();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The membership of three whose client URLs are not known, and what they say at first.
    fn three() -> (Membership, BTreeMap<NodeId, Member>) {
        let named = |name: &str| Member { name: name.into(), peer_urls: vec![name.into()], ..Member::default() };
        let membership = Membership::founded_by(["a", "b", "c"].map(named));
        let said = membership.members.iter().map(|(id, member)| {
            (*id, Member { client_urls: vec![format!("{} for clients", member.name)], ..member.clone() })
        });
        let said = said.collect();
        (membership, said)
    }

    /// The member that is described next; `None` if all are.
    fn next(describing: &mut Describing, membership: &Membership, said: &BTreeMap<NodeId, Member>) -> Option<u64> {
        let mut introduced = said.clone().into_iter().map(|(id, said)| (id, (said, false))).collect::<BTreeMap<_, _>>();
        let introductions = introduced
            .iter_mut()
            .map(|(id, (said, is_introduced))| (*id, Introduction { said: said.clone(), is_introduced }));
        describing.next(membership, introductions.collect()).map(|(id, _)| id.0)
    }

    #[test]
    fn a_leader_writes_down_as_soon_as_an_entry_of_its_own_term_is_applied() {
        let mut describing = Describing::default();
        assert!(!describing.is_due(100), "at the sweep");
        describing.begin_at(7);
        assert_eq!([6, 7, 8].map(|applied| describing.is_due(applied)), [false, true, true]);
        describing.go_on();
        assert!(describing.is_due(0), "the next follows at once");
    }

    #[test]
    fn members_are_written_down_one_after_the_other() {
        let (mut membership, said) = three();
        let mut describing = Describing::default();
        for id in 1..=3 {
            assert_eq!(next(&mut describing, &membership, &said), Some(id));
            assert!(describing.is_under_way);
            membership.members.insert(NodeId(id), said[&NodeId(id)].clone());
            describing.go_on();
            assert!(!describing.is_under_way);
        }
        assert_eq!(next(&mut describing, &membership, &said), None);
        assert!(!describing.is_under_way);
    }

    #[test]
    fn a_description_that_is_refused_holds_up_nobody() {
        let (mut membership, said) = three();
        let mut describing = Describing::default();
        for round in 1..=2 {
            assert_eq!(next(&mut describing, &membership, &said), Some(1), "round {round}");
            describing.give_way();
            if round == 1 {
                for id in 2..=3 {
                    assert_eq!(next(&mut describing, &membership, &said), Some(id));
                    membership.members.insert(NodeId(id), said[&NodeId(id)].clone());
                    describing.go_on();
                }
            }
            assert_eq!(next(&mut describing, &membership, &said), None, "round {round} is over");
        }
    }

    #[test]
    fn a_member_says_its_peer_urls_once_in_a_life() {
        let (mut membership, said) = three();
        let mut said = said[&NodeId(1)].clone();
        (said.peer_urls, said.client_urls) = (vec!["elsewhere".into()], Vec::new());
        let mut is_introduced = false;
        let mut next = |membership: &Membership| {
            let introduction = Introduction { said: said.clone(), is_introduced: &mut is_introduced };
            let next = Describing::default().next(membership, BTreeMap::from([(NodeId(1), introduction)]));
            next.map(|(_, described)| described)
        };
        let asked = next(&membership).expect("it says another");
        assert_eq!(asked.peer_urls, ["elsewhere"]);
        assert_eq!(next(&membership), Some(asked.clone()), "a description that was refused is asked for again");
        membership.members.insert(NodeId(1), asked);
        assert_eq!(next(&membership), None);
        // An operator who changes them has the last word.
        membership.members.get_mut(&NodeId(1)).expect("it is there").peer_urls = vec!["by hand".into()];
        assert_eq!(next(&membership), None);
    }
}
