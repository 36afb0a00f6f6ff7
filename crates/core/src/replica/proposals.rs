//! From a client's request to its outcome: tickets, forwarding to the leader, sending again.
//!
//! A node answers its own clients when *it* applies their entries, no matter which leader appended them; so a forwarded proposal needs
//! no answer but a refusal. Commands may be sent again, to the next leader or to the same, since second copies are
//! recognised: by the leader that appended the first, before they cost a place in the log, and by every member that
//! applies both ([`super::applied_requests`]). Changes of membership cannot be told apart by the protocol that interprets them:
//! they are never sent again and end unknown.

use super::applied_requests::settled;
use super::message::ForwardedRequest;
use super::{Action, Replica, ReplicaMessage, ReplicaTimer, Request, RequestId};
use crate::protocol::{Protocol, Refusal};
use crate::{EntryKind, NodeId, Origin, Role, StateMachine};
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Payload bytes of one message of forwarded proposals; the first always fits.
const FORWARD_BYTES_MAX: usize = 1 << 20;

/// Most refusals that are remembered.
const REFUSED_MAX: usize = 16_384;

/// Bytes of forwarded proposals that wait for this node to lead; each costs [`EARLY_OVERHEAD`] besides its payload. A proposal that finds
/// no room is refused, and comes again when its sender's retry timer says so.
const EARLY_BYTES_MAX: usize = 4 << 20;
const EARLY_OVERHEAD: usize = 128;

/// A proposal of one of this node's clients, without an outcome yet.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Outstanding {
    kind: EntryKind,
    payload: Bytes,
    /// The leader to which it went; `None` while it waits for one.
    sent_to: Option<NodeId>,
    /// Number of times that it was sent: only a first and only attempt can be refused for certain.
    attempts: u32,
}

/// The proposals of this node's clients that have no outcome yet, by number.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Proposals {
    outstanding: BTreeMap<RequestId, Outstanding>,
    /// Numbers below were outstanding when the retry timer was armed.
    overdue_below: RequestId,
    next: RequestId,
    retry_armed: bool,
    again: Again,
    /// At a node that is about to lead: what others have forwarded to it, in order, and the bytes of it.
    early: VecDeque<Early>,
    early_bytes: usize,
    /// At a leader: proposals that others forwarded and it has appended in this reign; commands until they are applied.
    /// A second copy is dropped, or slow disks would fill the log with copies of what waits for them. It must not be
    /// answered either: a refusal would say that nothing was done.
    forwarded: BTreeSet<Origin>,
    /// Forwarded proposals that were refused for good: their clients were told that they never happen, so a copy that
    /// comes late, in this reign or in a later one, must not happen either.
    refused: Refused,
}

/// Attempts that follow a refusal by a busy leader before the retry timer has passed, each after twice the time of the one before.
const AGAIN_DOUBLINGS_MAX: u32 = 4;

/// The attempts of this period of the retry timer.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
struct Again {
    is_armed: bool,
    doublings: u32,
}

/// A forwarded proposal that came between the first word of a new leader, which its followers hear, and the moment from which it takes
/// proposals: when its history is the quorum's.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Early {
    from: NodeId,
    incarnation: u64,
    request: ForwardedRequest,
}

/// The latest of what was refused for good, at most [`REFUSED_MAX`]: a copy comes soon after its twin, or never.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
struct Refused {
    answers: BTreeMap<Origin, Refusal>,
    in_order: VecDeque<Origin>,
}

impl Refused {
    fn remember(&mut self, origin: Origin, refusal: Refusal) {
        if self.answers.insert(origin, refusal).is_none() {
            self.in_order.push_back(origin);
        }
        if self.in_order.len() > REFUSED_MAX
            && let Some(oldest) = self.in_order.pop_front()
        {
            self.answers.remove(&oldest);
        }
    }
}

/// Whether the reason passes: the same proposal may be taken a moment later, or by another node.
fn passes(refusal: &Refusal) -> bool {
    matches!(refusal, Refusal::NotLeader(_) | Refusal::Transferring | Refusal::NotReady)
}

impl Proposals {
    pub(super) fn new() -> Proposals {
        Proposals {
            outstanding: BTreeMap::new(),
            overdue_below: 0,
            next: 1,
            retry_armed: false,
            again: Again::default(),
            early: VecDeque::new(),
            early_bytes: 0,
            forwarded: BTreeSet::new(),
            refused: Refused::default(),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.outstanding.len()
    }

    /// Ends a proposal; says whether it was outstanding.
    pub(super) fn take(&mut self, id: RequestId) -> bool {
        self.outstanding.remove(&id).is_some()
    }

    pub(super) fn forget(&mut self, id: RequestId) {
        self.outstanding.remove(&id);
    }

    /// A forwarded command is applied: from now on its copies are known by the table of applied requests.
    pub(super) fn on_forward_applied(&mut self, origin: &Origin) {
        self.forwarded.remove(origin);
    }

    /// A forwarded proposal was not appended after all: it may come again, or never may.
    pub(super) fn on_forward_refused(&mut self, origin: Origin, refusal: &Refusal) {
        self.forwarded.remove(&origin);
        // Settlings of one life all have the number 0, and are nobody's: a later one may be taken.
        if origin.sequence > 0 && !passes(refusal) {
            self.refused.remember(origin, refusal.clone());
        }
    }

    /// A reign began or ended: what was proposed before may be lost, and come again.
    pub(super) fn forget_forwarded(&mut self) {
        self.forwarded.clear();
    }
}

impl<P: Protocol, S: StateMachine> Replica<P, S> {
    pub(super) fn on_propose(&mut self, requests: Vec<Request>, out: &mut Vec<Action<P, S>>) {
        let requests = self.refuse_commands(requests, out);
        let mut ids = Vec::with_capacity(requests.len());
        for Request { id, kind, payload } in requests {
            assert!(
                id >= self.proposals.next,
                "proposals are numbered upwards: {id} came after {}",
                self.proposals.next
            );
            self.proposals.next = id + 1;
            self.proposals.outstanding.insert(id, Outstanding { kind, payload, sent_to: None, attempts: 0 });
            ids.push(id);
        }
        self.send_to_leader(&ids, out);
    }

    /// Proposes here or forwards, in order; without a leader the proposals wait for one.
    fn send_to_leader(&mut self, ids: &[RequestId], out: &mut Vec<Action<P, S>>) {
        let Some(leader) = self.leader else { return self.arm_retry(out) };
        if leader == self.me && self.role != Role::Leader {
            return self.arm_retry(out);
        }
        let mut batch = Vec::with_capacity(ids.len());
        for id in ids {
            let Some(outstanding) = self.proposals.outstanding.get_mut(id) else { continue };
            outstanding.sent_to = Some(leader);
            outstanding.attempts += 1;
            batch.push((*id, outstanding.kind, outstanding.payload.clone()));
        }
        if batch.is_empty() {
            return;
        }
        if leader == self.me {
            let (node, incarnation) = (self.me, self.incarnation);
            let proposals = batch
                .into_iter()
                .map(|(sequence, kind, payload)| self.stamp(Origin { node, incarnation, sequence }, kind, payload))
                .collect();
            self.propose(proposals, out);
        } else {
            let (mut requests, mut bytes) = (Vec::new(), 0);
            for (sequence, kind, payload) in batch {
                // Many at once after a leader change: no frame may grow beyond what the peer accepts.
                if bytes + payload.len() > FORWARD_BYTES_MAX && !requests.is_empty() {
                    let requests = std::mem::take(&mut requests);
                    out.push(Action::Send(leader, ReplicaMessage::Forward { incarnation: self.incarnation, requests }));
                    bytes = 0;
                }
                bytes += payload.len();
                requests.push(ForwardedRequest { sequence, kind, payload });
            }
            out.push(Action::Send(leader, ReplicaMessage::Forward { incarnation: self.incarnation, requests }));
            self.arm_retry(out);
        }
    }

    /// A follower's clients propose through this node, which should lead.
    pub(super) fn on_forward(
        &mut self,
        from: NodeId,
        incarnation: u64,
        requests: Vec<ForwardedRequest>,
        out: &mut Vec<Action<P, S>>,
    ) {
        if self.role != Role::Leader {
            for request in requests {
                self.keep_or_refuse(Early { from, incarnation, request }, out);
            }
            return;
        }
        let mut proposals = Vec::with_capacity(requests.len());
        for ForwardedRequest { sequence, kind, payload } in requests {
            let origin = Origin { node: from, incarnation, sequence };
            if let Some(refusal) = self.proposals.refused.answers.get(&origin) {
                let refusal = refusal.clone();
                out.push(Action::Send(from, ReplicaMessage::ForwardRefused { incarnation, sequence, refusal }));
                continue;
            }
            let is_copy = match kind {
                EntryKind::Command => {
                    self.applied_requests.contains(origin) || !self.proposals.forwarded.insert(origin)
                }
                EntryKind::Membership => !self.proposals.forwarded.insert(origin),
                EntryKind::Blank | EntryKind::Protocol => false,
            };
            if !is_copy {
                proposals.push(self.stamp(origin, kind, payload));
            }
        }
        if !proposals.is_empty() {
            self.propose(proposals, out);
        }
    }

    /// Keeps what is forwarded to a member that is about to lead until it does. Refused, it would come back an election timeout later.
    fn keep_or_refuse(&mut self, early: Early, out: &mut Vec<Action<P, S>>) {
        let bytes = early.request.payload.len() + EARLY_OVERHEAD;
        if self.leader == Some(self.me) && self.proposals.early_bytes + bytes <= EARLY_BYTES_MAX {
            self.proposals.early_bytes += bytes;
            return self.proposals.early.push_back(early);
        }
        let Early { from, incarnation, request } = early;
        let (sequence, refusal) = (request.sequence, Refusal::NotLeader(self.leader));
        out.push(Action::Send(from, ReplicaMessage::ForwardRefused { incarnation, sequence, refusal }));
    }

    /// Takes, as the leader that this node is now, or refuses, since it will not be, what was forwarded to it before.
    fn take_early(&mut self, out: &mut Vec<Action<P, S>>) {
        self.proposals.early_bytes = 0;
        let mut of_senders: BTreeMap<(NodeId, u64), Vec<ForwardedRequest>> = BTreeMap::new();
        for Early { from, incarnation, request } in std::mem::take(&mut self.proposals.early) {
            of_senders.entry((from, incarnation)).or_default().push(request);
        }
        for ((from, incarnation), requests) in of_senders {
            self.on_forward(from, incarnation, requests, out);
        }
    }

    /// Says in the log that this node waits for nothing below its oldest proposal any more, so that all forget the gap which a
    /// lost one left. Numbered 0, which is no proposal: nobody waits for it, and a refusal of it concerns nobody. If this entry is
    /// lost, the next one does the same, once as many proposals again have been applied.
    pub(super) fn settle_requests(&mut self, out: &mut Vec<Action<P, S>>) {
        let oldest = self.proposals.outstanding.keys().next().copied().unwrap_or(self.proposals.next);
        let (node, incarnation, sequence) = (self.me, self.incarnation, 0);
        let through = oldest - 1;
        if self.applied_requests.through(node, incarnation) >= through {
            // A proposal that is missing is still waited for.
            return;
        }
        let (kind, payload) = (EntryKind::Blank, settled(through));
        match self.leader {
            Some(leader) if leader != self.me => {
                let requests = vec![ForwardedRequest { sequence, kind, payload }];
                out.push(Action::Send(leader, ReplicaMessage::Forward { incarnation, requests }));
            }
            Some(_) if self.role == Role::Leader => {
                let blank = self.stamp(Origin { node, incarnation, sequence }, kind, payload);
                self.propose(vec![blank], out);
            }
            _ => {}
        }
    }

    /// A leader, this node or another, did not append a proposal.
    pub(super) fn on_refused(&mut self, id: RequestId, refusal: Refusal, out: &mut Vec<Action<P, S>>) {
        let Some(outstanding) = self.proposals.outstanding.get_mut(&id) else { return };
        match refusal {
            // These pass: the next leader, or this one in a moment, gets it again.
            refusal if passes(&refusal) => {
                outstanding.sent_to = None;
                self.arm_retry(out);
                if refusal == Refusal::NotReady {
                    self.arm_again(out);
                }
            }
            // An earlier copy may be in a log already: refusing this one says nothing of that.
            _ if outstanding.attempts > 1 => {
                self.proposals.take(id);
                out.push(Action::Unknown { request: id });
            }
            refusal => {
                self.proposals.take(id);
                out.push(Action::Refused { request: id, refusal });
            }
        }
    }

    /// A new leader, or none: commands without an outcome go to it, in order; what cannot be sent again ends unknown.
    pub(super) fn on_leader_changed(&mut self, out: &mut Vec<Action<P, S>>) {
        self.proposals.again.doublings = 0;
        let lost: Vec<RequestId> = self
            .proposals
            .outstanding
            .iter()
            .filter(|(_, waiting)| waiting.kind == EntryKind::Membership && waiting.sent_to.is_some())
            .map(|(id, _)| *id)
            .collect();
        if self.leader.is_some() {
            for request in lost {
                self.proposals.take(request);
                out.push(Action::Unknown { request });
            }
            self.send_again(out);
        }
        self.take_early(out);
        self.ask_again(out);
    }

    /// Sends every outstanding command to the present leader, also those that went to it before.
    pub(super) fn send_again(&mut self, out: &mut Vec<Action<P, S>>) {
        let ids: Vec<RequestId> = self
            .proposals
            .outstanding
            .iter()
            .filter(|(_, waiting)| waiting.kind != EntryKind::Membership || waiting.sent_to.is_none())
            .map(|(id, _)| *id)
            .collect();
        self.send_to_leader(&ids, out);
    }

    /// Proposals and reads share the timer.
    pub(super) fn arm_retry(&mut self, out: &mut Vec<Action<P, S>>) {
        if !self.proposals.retry_armed {
            self.proposals.retry_armed = true;
            self.proposals.overdue_below = self.proposals.next;
            out.push(Action::SetTimer(ReplicaTimer::Retry, self.timing.election()));
        }
    }

    fn arm_again(&mut self, out: &mut Vec<Action<P, S>>) {
        let Again { is_armed, doublings } = &mut self.proposals.again;
        if !std::mem::replace(is_armed, true) && *doublings < AGAIN_DOUBLINGS_MAX {
            let wait = self.timing.heartbeat / 8 * (1 << *doublings);
            *doublings += 1;
            out.push(Action::SetTimer(ReplicaTimer::Again, wait..=wait * 2));
        }
    }

    /// Sends again what came back from a leader that was busy: it recovers slots, or a change of membership is not in force yet.
    pub(super) fn on_again(&mut self, out: &mut Vec<Action<P, S>>) {
        self.proposals.again.is_armed = false;
        let outstanding = self.proposals.outstanding.iter();
        let unsent: Vec<RequestId> =
            outstanding.filter(|(_, waiting)| waiting.sent_to.is_none()).map(|(id, _)| *id).collect();
        self.send_to_leader(&unsent, out);
    }

    /// Sends again the proposals that were forwarded a whole timer ago and are still outstanding: they may be lost.
    /// Those that this node appended itself are not, while it leads.
    pub(super) fn on_retry(&mut self, out: &mut Vec<Action<P, S>>) {
        self.proposals.retry_armed = false;
        self.proposals.again = Again::default();
        self.end_those_too_old(out);
        let (me, below, role) = (self.me, self.proposals.overdue_below, self.role);
        let overdue: Vec<RequestId> = self
            .proposals
            .outstanding
            .range(..below)
            .filter(|(_, waiting)| match waiting.sent_to {
                None => true,
                Some(leader) if leader == me => role != Role::Leader && waiting.kind != EntryKind::Membership,
                Some(_) => waiting.kind != EntryKind::Membership,
            })
            .map(|(id, _)| *id)
            .collect();
        self.send_to_leader(&overdue, out);
        self.ask_again_if_overdue(out);
        let forwarded = self.proposals.outstanding.values().any(|waiting| waiting.sent_to != Some(me));
        if forwarded || self.reads.is_asking() {
            self.arm_retry(out);
        }
    }

    /// A command that this node applied and still waits for was too old to be told from a copy. A leader drops it for the same
    /// reason, so sending it again would never end.
    fn end_those_too_old(&mut self, out: &mut Vec<Action<P, S>>) {
        let (node, incarnation, applied_requests) = (self.me, self.incarnation, &self.applied_requests);
        let is_over = |sequence: RequestId, waiting: &Outstanding| {
            waiting.kind == EntryKind::Command && applied_requests.contains(Origin { node, incarnation, sequence })
        };
        self.proposals.outstanding.retain(|request, waiting| {
            let is_over = is_over(*request, waiting);
            if is_over {
                out.push(Action::Unknown { request: *request });
            }
            !is_over
        });
    }

    /// Proposals that a snapshot contains were applied where this node could not see their response. A snapshot does not say
    /// which changes of membership it contains, so any that was sent ends here.
    pub(super) fn end_those_in_snapshot(&mut self, out: &mut Vec<Action<P, S>>) {
        let (node, incarnation) = (self.me, self.incarnation);
        let is_in_it = |sequence: RequestId, waiting: &Outstanding| match waiting.kind {
            EntryKind::Membership => waiting.attempts > 0,
            _ => self.applied_requests.contains(Origin { node, incarnation, sequence }),
        };
        let outstanding = self.proposals.outstanding.iter();
        let ended: Vec<RequestId> =
            outstanding.filter(|(id, waiting)| is_in_it(**id, waiting)).map(|(id, _)| *id).collect();
        for request in ended {
            self.proposals.take(request);
            out.push(Action::Unknown { request });
        }
    }
}
