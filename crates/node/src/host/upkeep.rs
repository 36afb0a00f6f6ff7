//! What a loop does now and then: it sweeps out waiters that gave up, keeps the membership true, and watches its own pace.

use super::{Host, Proposer, REQUESTS_MANY};
use crate::pace::Finding;
use crate::timers::boot_micros;
use hustings_core::replica::{Event, ReplicaMessage, RequestId};
use hustings_core::{
    ApplyVersion, Change, EntryKind, Member, MembershipChange, NodeId, Protocol, Role, StateMachine, Wire,
};
use std::collections::BTreeMap;

/// How far a leader is with writing down what members say of themselves.
#[derive(Default)]
pub(super) struct Describing {
    pub(super) is_under_way: bool,
    /// The next is written down as soon as this index is applied, not first at the next sweep.
    pub(super) due_at: Option<u64>,
    /// Members up to this one have had their turn: whoever's description is refused holds up nobody else's.
    through: Option<NodeId>,
    is_own_introduced: bool,
}

impl Describing {
    /// One is written down: the next follows at once.
    pub(super) fn go_on(&mut self) {
        self.is_under_way = false;
        self.due_at = Some(0);
    }
}

impl<P: Protocol, S: StateMachine> Host<P, S> {
    /// Requests whose clients gave up are forgotten.
    pub(super) fn sweep(&mut self) {
        let gone: Vec<RequestId> =
            self.proposers.iter().filter(|(_, proposer)| proposer.has_given_up()).map(|(id, _)| *id).collect();
        for request in gone {
            self.proposers.remove(&request);
            self.step(Event::Abandon(request));
        }
        self.readers.retain(|_, answer| !answer.is_closed());
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
            let ping: ReplicaMessage<P::Message> = ReplicaMessage::Ping { sent_micros: boot_micros() };
            self.links.values().for_each(|link| link.outbox.put(&ping));
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

    /// The leader keeps names, client addresses and storage incarnations in the membership true: a member says them when
    /// its link comes up; they are committed like any change, so that every node knows a wiped disk when it sees one.
    pub(super) fn reconcile(&mut self) {
        self.describing.due_at = None;
        if self.replica.role() != Role::Leader || self.describing.is_under_way {
            return;
        }
        let membership = self.replica.membership().clone();
        let own = self.wiring.gatekeeper.borrow().hello.clone();
        let own = (own.from, (own.member, !self.describing.is_own_introduced));
        let peers = self.links.iter().map(|(id, link)| (*id, (link.hello.member.clone(), !link.is_introduced)));
        let said: BTreeMap<NodeId, (Member, bool)> = peers.chain([own]).collect();
        let through = self.describing.through.take();
        for (id, (said, is_new)) in said.into_iter().filter(|(id, _)| Some(*id) > through) {
            let Some(known) = membership.members.get(&id) else { continue };
            let mut described = known.clone();
            if !said.name.is_empty() {
                described.name = said.name;
            }
            if !said.client_urls.is_empty() {
                described.client_urls = said.client_urls;
            }
            if is_new && !said.peer_urls.is_empty() {
                described.peer_urls = said.peer_urls;
            }
            if described.incarnation.is_none() {
                described.incarnation = said.incarnation;
            }
            match self.links.get_mut(&id) {
                Some(link) => link.is_introduced = true,
                None => self.describing.is_own_introduced = true,
            }
            if described != *known {
                self.describing.is_under_way = true;
                self.describing.through = Some(id);
                let change = MembershipChange::of([Change::Describe(id, described)]);
                self.propose(EntryKind::Membership, change.to_bytes(), Proposer::Reconciliation);
                self.hand_over_requests();
                return;
            }
        }
    }
}
