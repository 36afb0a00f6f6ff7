//! What a loop does so that no member differs from the others in silence: from time to time they compare their states.

use super::Host;
use crate::comparison::{Comparison, Finding};
use crate::snapshots::SnapshotJob;
use hustings_core::replica::{Event, ReplicaMessage, SnapshotContents};
use hustings_core::{NodeId, Protocol, Role, StateMachine};
use std::collections::BTreeSet;
use std::time::Duration;
use tokio::time::Instant;

/// From this version of the peer protocol on a peer understands digests.
const SPEAKS_OF_DIGESTS: u32 = 3;

/// The state of these watches.
pub(crate) struct Integrity {
    /// How often states are compared; `None` for never.
    every: Option<Duration>,
    next: Instant,
    /// Up to where this node had applied when it last asked for a comparison, as leader.
    asked_at: u64,
    comparison: Comparison,
    /// Members whose state differed at the last comparison.
    pub(crate) differing: BTreeSet<NodeId>,
    /// The entry of that comparison; 0 before the first.
    pub(crate) compared_at: u64,
}

impl Integrity {
    pub(crate) fn new(every: Option<Duration>) -> Integrity {
        let next = Instant::now() + every.unwrap_or_default();
        Integrity {
            every,
            next,
            asked_at: 0,
            comparison: Comparison::default(),
            differing: BTreeSet::new(),
            compared_at: 0,
        }
    }
}

impl<P: Protocol, S: StateMachine> Host<P, S> {
    /// A leader asks for a comparison when it is time and something was applied since the last.
    pub(super) fn compare_if_due(&mut self) {
        let (now, applied) = (Instant::now(), self.replica.applied().index);
        let Some(every) = self.integrity.every.filter(|_| now >= self.integrity.next) else { return };
        self.integrity.next = now + every;
        if self.replica.role() == Role::Leader && applied > self.integrity.asked_at {
            // The entry that asks is applied, too.
            self.integrity.asked_at = applied + 1;
            self.step(Event::Compare);
        }
    }

    /// This node's state is frozen where all members freeze theirs: the digest is made beside the loop.
    pub(super) fn on_digest_wanted(&mut self, contents: SnapshotContents<S>) {
        self.hand_to_snapshots(SnapshotJob::Digest(contents));
    }

    /// The own digest is made: the leader compares, the others tell it.
    pub(super) fn on_digest(&mut self, index: u64, digest: u64) {
        let me = self.replica.me();
        match self.replica.leader() {
            Some(leader) if leader == me => self.on_digest_of(me, index, digest),
            Some(leader) => {
                let link = self.links.get(&leader).filter(|link| link.hello.build.speaks >= SPEAKS_OF_DIGESTS);
                if let Some(link) = link {
                    link.outbox.put(&ReplicaMessage::<P::Message>::Digest { index, digest });
                }
            }
            // The next leader asks again.
            None => {}
        }
    }

    /// A member tells its digest.
    pub(super) fn on_digest_of(&mut self, member: NodeId, index: u64, digest: u64) {
        if self.replica.role() != Role::Leader {
            return;
        }
        let membership = self.replica.membership().clone();
        match self.integrity.comparison.note(member, index, digest, &membership) {
            Finding::Open => {}
            Finding::Alike => {
                self.integrity.compared_at = index;
                self.integrity.differing.clear();
            }
            Finding::Differ(members) => {
                self.integrity.compared_at = index;
                if self.integrity.differing != members {
                    let names: Vec<String> = members.iter().map(|id| membership.name_of(*id)).collect();
                    tracing::error!(
                        index,
                        ?names,
                        "members differ in what they applied (n0: nobody knows which is right): remove those that do, and add them again with empty directories"
                    );
                }
                self.integrity.differing = members;
            }
        }
    }
}
