//! A leader's patience with members that its operator prefers: [`Patience`].

use crate::NodeId;
use std::collections::BTreeMap;

/// Quorum checks in a row that a preferred member must be caught up before leadership goes to it: to one that stays, not to
/// one that blinks.
const READY_CHECKS: u32 = 4;

/// Each vain hand-over doubles that, so often: in the end 1,024 election timeouts between two, some four minutes as members are set up.
const DOUBLINGS_MAX: u32 = 8;

/// So often a preferred member's disk may stall while it leads, before it is preferred no more.
const STALLS_MAX: u32 = 2;

/// Quorum checks that it must then lead without that to be preferred again: some four minutes as members are set up.
const FORGIVEN_AFTER_CHECKS: u32 = READY_CHECKS << DOUBLINGS_MAX;

/// The hand-overs to preferred members that came to nothing, in this life; and whether this member, preferred itself, can bear it.
///
/// A preferred member that reaches the leader alone looks ready and cannot win. Handed leadership again and again, it would
/// cost the service an election each time, for ever. So would one that wins, and whose disk is too slow for what a leader writes.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Patience {
    vain: BTreeMap<NodeId, u32>,
    /// Times that this member's own disk stalled while it led, and what it has led since without that.
    stalls: u32,
    checks_since: u32,
}

impl Patience {
    /// Nobody was handed anything yet.
    pub fn new() -> Patience {
        Patience::default()
    }

    /// Quorum checks in a row that `member` must be caught up before leadership goes to it.
    ///
    /// Each other member that was handed leadership in vain doubles that once: where one could not win, the next may lack the same link.
    pub fn checks_wanted(&self, member: NodeId) -> u32 {
        let own = self.vain.get(&member).copied().unwrap_or(0);
        let others = self.vain.keys().filter(|other| **other != member).count();
        let doublings = own.saturating_add(u32::try_from(others).unwrap_or(DOUBLINGS_MAX));
        READY_CHECKS << doublings.min(DOUBLINGS_MAX)
    }

    /// Leadership is handed to `member`: in vain, until it is seen to lead.
    pub fn on_handed_over(&mut self, member: NodeId) {
        let vain = self.vain.entry(member).or_default();
        *vain = (*vain + 1).min(DOUBLINGS_MAX);
    }

    /// This member leads, and its disk stalls.
    pub fn on_stalled_leading(&mut self) {
        (self.stalls, self.checks_since) = ((self.stalls + 1).min(STALLS_MAX), 0);
    }

    /// This member leads, and has heard a quorum between two checks. A long reign makes its stalls forgotten.
    pub fn on_led_on(&mut self) {
        if self.stalls == 0 {
            return;
        }
        self.checks_since += 1;
        if self.checks_since >= FORGIVEN_AFTER_CHECKS {
            (self.stalls, self.checks_since) = (0, 0);
        }
    }

    /// Whether this member's disk has stalled too often for one that is preferred.
    pub fn is_at_its_end(&self) -> bool {
        self.stalls == STALLS_MAX
    }

    /// `leader` leads: earlier hand-overs to it that failed are forgotten.
    pub fn on_leader(&mut self, leader: NodeId) {
        self.vain.remove(&leader);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_vain_hand_over_doubles_the_wait_for_the_next_and_a_reign_ends_that() {
        let mut patience = Patience::new();
        let wanted: Vec<u32> = (0..10)
            .map(|_| {
                let wanted = patience.checks_wanted(NodeId(5));
                patience.on_handed_over(NodeId(5));
                wanted
            })
            .collect();
        assert_eq!(wanted, [4, 8, 16, 32, 64, 128, 256, 512, 1024, 1024]);
        assert_eq!(patience.checks_wanted(NodeId(4)), 8, "that is hardly another member's fault");
        patience.on_handed_over(NodeId(4));
        assert_eq!([1, 4].map(|id| patience.checks_wanted(NodeId(id))), [16, 16], "but two have failed");
        patience.on_leader(NodeId(5));
        assert_eq!([4, 5].map(|id| patience.checks_wanted(NodeId(id))), [8, 8]);
        patience.on_leader(NodeId(4));
        assert_eq!([4, 5].map(|id| patience.checks_wanted(NodeId(id))), [4, 4]);
    }

    #[test]
    fn two_stalls_are_too_many_until_a_long_reign_without_one() {
        let mut patience = Patience::new();
        let stalled = |patience: &mut Patience| {
            patience.on_stalled_leading();
            patience.is_at_its_end()
        };
        assert_eq!([(); 3].map(|()| stalled(&mut patience)), [false, true, true]);
        let checks = (1..).find(|_| {
            patience.on_led_on();
            !patience.is_at_its_end()
        });
        assert_eq!(checks, Some(FORGIVEN_AFTER_CHECKS), "a long reign forgives all");
        assert!(!stalled(&mut patience), "one stall is none too many");
        patience.on_led_on();
        assert!(stalled(&mut patience), "a short reign between two forgives nothing");
    }
}
