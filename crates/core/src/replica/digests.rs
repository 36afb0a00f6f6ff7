//! Comparing the states of members that applied the same entries, by a digest that all take at one entry.
//!
//! From time to time the leader proposes an entry that does nothing. A member that applies it freezes its state, which costs nothing, and
//! hands it to the host ([`super::Action::Digest`]); the host digests it beside the loop and tells the leader, whose host compares. States
//! that differ have diverged before, through a defect, a damaged memory or a rule that depends on the build.
//!
//! Source: etcd's corruption check (`server/etcdserver/corrupt.go`), which asks members for a hash at one revision. Here the
//! place is an entry, so leases, timers and requests recognised as applied are compared, too.

use super::versions::ApplyVersion;
use super::{Action, Replica, SnapshotContents};
use crate::{EntryKind, Origin, Protocol, Role, StateMachine};
use bytes::Bytes;

/// Payload of the blank, proposed by nobody, at which members digest their states.
const COMPARE: &[u8; 16] = b"compare-states-1";

/// A 64-bit hash over eight bytes at a time: for states, not against people.
///
/// Each word is mixed by a bijection that spreads every bit over all, as the finalizer of SplitMix64 does (Steele et al., "Fast
/// splittable pseudorandom number generators", 2014): a flipped bit cannot be made good by another one further on.
#[derive(Clone, Copy, Debug)]
pub struct Digest(u64);

impl Digest {
    /// The digest of no bytes.
    pub fn new() -> Digest {
        Digest(0xcbf2_9ce4_8422_2325)
    }

    /// Takes bytes in. The same bytes in other portions give another digest: portions belong to what is hashed.
    pub fn write(&mut self, bytes: &[u8]) {
        self.write_number(bytes.len() as u64);
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.write_number(u64::from_le_bytes(word));
        }
    }

    /// Takes a number in, as 8 bytes.
    pub fn write_number(&mut self, number: u64) {
        let mut mixed = (self.0.rotate_left(23) ^ number).wrapping_add(0x9e37_79b9_7f4a_7c15);
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        self.0 = mixed ^ (mixed >> 31);
    }

    /// The digest of all that was taken in.
    pub fn finish(self) -> u64 {
        self.0
    }
}

impl Default for Digest {
    fn default() -> Digest {
        Digest::new()
    }
}

impl<S: StateMachine> SnapshotContents<S> {
    /// A digest of all that is replicated. Takes long for a large state: not for the loop.
    pub fn digest(&self) -> u64 {
        let mut digest = Digest::new();
        let ApplyVersion(version) = self.state.version;
        digest.write_number(u64::from(version));
        digest.write_number(self.state.clock.micros);
        for (node, incarnation, through, above) in self.state.applied_requests.to_parts() {
            [node, incarnation, through].into_iter().chain(above).for_each(|number| digest.write_number(number));
        }
        digest.write_number(super::application::call(|| self.of_snapshot("digest"), || S::digest(&self.view)));
        digest.finish()
    }
}

impl<P: Protocol, S: StateMachine> Replica<P, S> {
    /// The host wants the members' states compared; a leader puts the place for it into the log.
    pub(super) fn on_compare(&mut self, out: &mut Vec<Action<P, S>>) {
        if self.role == Role::Leader {
            let entry = self.stamp(Origin::NOBODY, EntryKind::Blank, Bytes::from_static(COMPARE));
            self.propose(vec![entry], out);
        }
    }

    /// A blank of nobody's is applied: perhaps it is the place where states are compared.
    pub(super) fn on_compare_applied(&mut self, payload: &[u8], out: &mut Vec<Action<P, S>>) {
        // A witness has no state to compare.
        if payload == COMPARE && !self.is_witness {
            out.push(Action::Digest(self.contents()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_changed_bit_and_any_swap_changes_the_digest() {
        let of = |parts: &[&[u8]]| {
            let mut digest = Digest::new();
            parts.iter().for_each(|part| digest.write(part));
            digest.finish()
        };
        let text = *b"what every member should hold, and in this order";
        let mut seen = std::collections::BTreeSet::from([of(&[&text])]);
        for bit in 0..text.len() * 8 {
            let mut flipped = text;
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(seen.insert(of(&[&flipped])), "bit {bit}");
        }
        assert_ne!(of(&[b"ab", b"c"]), of(&[b"a", b"bc"]));
        assert_ne!(of(&[b"a", b"b"]), of(&[b"b", b"a"]));
        assert_ne!(of(&[b"a\0"]), of(&[b"a"]));
    }
}
