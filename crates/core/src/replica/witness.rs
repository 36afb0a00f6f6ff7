//! Witnesses: members that vote and keep the tail of the log, and hold no state (ADR 40).
//!
//! To its protocol a witness is a member like any other that must never lead: it stores entries, acknowledges them, votes by its log,
//! and as a caretaker gives others what only it holds. The differences are here, where entries are applied:
//!
//! - A command changes nothing. Memberships, versions and the log's clock are followed as everywhere.
//! - Its snapshots hold the replica's own state and the state of an empty log, and say so: no other member loads one.
//! - It gives nobody a snapshot. Where one is offered to it, it writes one of its own through the same place and fetches nothing.
//! - It serves no client: it refuses commands and reads, which others answer.
//!
//! ```text
//!    db-a  log ─ apply ─ state                db-b  log ─ apply ─ state             tie  log (its tail)
//!          └──────────────────── each entry is committed by two of three ────────────────┘
//! ```

use super::applied_requests::AppliedRequests;
use super::{Action, Replica, ReplicaMessage, ReplicaState, Request, RequestId, SnapshotContents};
use crate::laboratory::Defect;
use crate::protocol::{Input, Protocol, Refusal};
use crate::{EntryKind, Lsn, Membership, NodeId, SnapshotReference, StateMachine};
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// The state of an empty log, which all members begin with: equal everywhere, and no part of what a checker compares.
#[derive(Clone, Debug)]
pub(super) struct Blank<S>(Arc<S>);

impl<S> Blank<S> {
    pub(super) fn new(machine: S) -> Blank<S> {
        Blank(Arc::new(machine))
    }
}

impl<S> PartialEq for Blank<S> {
    fn eq(&self, _: &Blank<S>) -> bool {
        true
    }
}

impl<S> Eq for Blank<S> {}

impl<S> Hash for Blank<S> {
    fn hash<H: Hasher>(&self, _: &mut H) {}
}

impl<P: Protocol, S: StateMachine> Replica<P, S> {
    /// Whether this member holds no state, as far as it has applied the log.
    pub fn is_witness(&self) -> bool {
        self.is_witness
    }

    /// A membership is in force here. One that makes this member a witness ends the state that it has from older entries.
    pub(super) fn on_reconfigured(&mut self, membership: Arc<Membership>, index: u64, out: &mut Vec<Action<P, S>>) {
        if membership.is_witness(self.me) && !self.is_witness {
            self.is_witness = true;
            self.machine = S::clone(&self.blank.0);
            self.machine.adopt(self.version);
            self.applied_requests = AppliedRequests::new();
        }
        (self.membership, self.reconfigured_at) = (membership.clone(), index);
        out.push(Action::Membership(membership));
    }

    /// Refuses commands of this member's clients, and keeps the changes of membership.
    pub(super) fn refuse_commands(&mut self, requests: Vec<Request>, out: &mut Vec<Action<P, S>>) -> Vec<Request> {
        let (commands, others): (Vec<Request>, Vec<Request>) =
            requests.into_iter().partition(|request| self.is_witness && request.kind == EntryKind::Command);
        let refuse = |Request { id, .. }| Action::Refused { request: id, refusal: Refusal::IsWitness };
        out.extend(commands.into_iter().map(refuse));
        others
    }

    /// Refuses reads of this member's clients: it has nothing to read.
    pub(super) fn refuse_reads(&self, requests: Vec<RequestId>, out: &mut Vec<Action<P, S>>) {
        out.push(Action::Unreadable { requests });
    }

    /// A peer asks for a part of a snapshot, which a witness has for nobody.
    pub(super) fn on_chunk_asked(&self, from: NodeId, lsn: Lsn, digest: u32, offset: u64, out: &mut Vec<Action<P, S>>) {
        let gives = !self.is_witness || self.defect == Some(Defect::WitnessGivesSnapshots);
        out.push(match gives {
            true => Action::ReadChunk { to: from, lsn, digest, offset },
            false => Action::Send(from, ReplicaMessage::ChunkGone { lsn }),
        });
    }

    /// A snapshot is offered to a witness: one of its own takes its place, as soon as no other is being cut.
    pub(super) fn stand_in(&mut self, reference: SnapshotReference, out: &mut Vec<Action<P, S>>) {
        self.snapshots.offered = Some(reference);
        self.cut_stand_in(out);
    }

    pub(super) fn cut_stand_in(&mut self, out: &mut Vec<Action<P, S>>) {
        if self.snapshots.cutting {
            return;
        }
        let Some(reference) = self.snapshots.offered.take() else { return };
        let state = ReplicaState {
            applied_requests: AppliedRequests::new(),
            clock: self.clock.applied(),
            version: self.version,
            is_witness: self.defect != Some(Defect::WitnessGivesSnapshots),
        };
        let (lsn, membership) = (reference.lsn, reference.membership.clone());
        self.snapshots.cutting = true;
        self.snapshots.standing_in = Some(reference);
        out.push(Action::CutSnapshot(SnapshotContents { lsn, membership, state, view: self.blank.0.freeze() }));
    }

    /// The cut that has ended stood in for what was offered.
    pub(super) fn on_stand_in_cut(
        &mut self,
        offered: SnapshotReference,
        own: Option<SnapshotReference>,
        out: &mut Vec<Action<P, S>>,
    ) {
        match own {
            Some(own) => self.feed(Input::SnapshotReady(own), out),
            None => self.feed(Input::SnapshotFailed(offered), out),
        }
    }

    /// Before a snapshot replaces the state: a witness's holds none, and would empty a member that holds one.
    pub(super) fn stops_at_witness(
        &mut self,
        reference: &SnapshotReference,
        state: &ReplicaState,
        out: &mut Vec<Action<P, S>>,
    ) -> bool {
        if state.is_witness
            && !self.is_witness
            && reference.membership.has(self.me)
            && !reference.membership.is_witness(self.me)
        {
            let (me, lsn) = (self.me, reference.lsn);
            self.has_stopped = true;
            out.push(Action::Stop {
                why: format!(
                    "{me} holds data, and its snapshot through {lsn} is a witness's, which has none: it was copied here from another member's data directory. Remove {me} from the cluster and add it again with an empty one"
                ),
            });
        }
        self.has_stopped
    }
}
