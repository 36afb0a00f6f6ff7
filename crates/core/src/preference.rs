//! A leader's patience with members that its operator prefers: [`Patience`].

use crate::NodeId;
use std::collections::BTreeMap;
use std::time::Duration;

/// Quorum checks in a row that a preferred member must be caught up before leadership goes to it: to one that stays, not to
/// one that blinks.
const READY_CHECKS: u32 = 4;

/// Each hand-over to it doubles that, so often: in the end 1,024 election timeouts between two, some four minutes as members are set up.
const DOUBLINGS_MAX: u32 = 8;

/// So often a preferred member may lose the leadership that nobody asked it to give, before it is preferred no more.
const LOSSES_MAX: u32 = 2;

/// Election timeouts after which all that is forgotten.
const FORGOTTEN_AFTER: u32 = READY_CHECKS << DOUBLINGS_MAX;

/// Each time that this member was preferred no more doubles that, so often: in the end half an hour as members are set up.
const SUSPENSIONS_MAX: u32 = 4;

/// The hand-overs to preferred members, in this life; and whether this member, preferred itself, can bear it.
///
/// A preferred member that reaches the leader alone looks ready and cannot win. Handed leadership again and again, it would
/// cost the service an election each time, for ever. So would one that wins and does not last: whose disk is too slow for what a
/// leader writes, whose machine stands still now and then, whose process ends as soon as it leads. How a reign ended is not always
/// seen, so each hand-over counts; what is long ago does not.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Patience {
    handed_over: BTreeMap<NodeId, u32>,
    /// Times that this member lost leadership, and that it was too often.
    losses: u32,
    suspensions: u32,
}

impl Patience {
    /// Nobody was handed anything yet.
    pub fn new() -> Patience {
        Patience::default()
    }

    /// Quorum checks in a row that `member` must be caught up before leadership goes to it.
    ///
    /// Each other member that was handed leadership doubles that once: where one could not win, the next may lack the same link.
    pub fn checks_wanted(&self, member: NodeId) -> u32 {
        let own = self.handed_over.get(&member).copied().unwrap_or(0);
        let others = self.handed_over.keys().filter(|other| **other != member).count();
        let doublings = own.saturating_add(u32::try_from(others).unwrap_or(DOUBLINGS_MAX));
        READY_CHECKS << doublings.min(DOUBLINGS_MAX)
    }

    /// Leadership is handed to `member`, which is preferred.
    pub fn on_handed_over(&mut self, member: NodeId) {
        let times = self.handed_over.entry(member).or_default();
        *times = (*times + 1).min(DOUBLINGS_MAX);
    }

    /// This member, which is preferred, has lost leadership, and nobody asked it to give it.
    pub fn on_lost(&mut self) {
        if self.losses < LOSSES_MAX {
            self.losses += 1;
            self.suspensions = (self.suspensions + u32::from(self.is_at_its_end())).min(SUSPENSIONS_MAX);
        }
    }

    /// The time after which all is forgotten, counted from the last that happened.
    pub fn lasts(&self, election_timeout: Duration) -> Duration {
        election_timeout * (FORGOTTEN_AFTER << self.suspensions.saturating_sub(1))
    }

    /// All that happened is long ago.
    pub fn forget(&mut self) {
        self.handed_over.clear();
        self.losses = 0;
    }

    /// Whether this member lost leadership too often for one that is preferred.
    pub fn is_at_its_end(&self) -> bool {
        self.losses == LOSSES_MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_hand_over_doubles_the_wait_for_the_next_until_it_is_long_ago() {
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
        assert_eq!([1, 4].map(|id| patience.checks_wanted(NodeId(id))), [16, 16], "but two were tried");
        assert_eq!(patience.lasts(Duration::from_millis(250)), Duration::from_secs(256));
        patience.forget();
        assert_eq!([4, 5].map(|id| patience.checks_wanted(NodeId(id))), [4, 4]);
    }

    #[test]
    fn leadership_lost_twice_is_too_often_and_the_next_time_for_twice_as_long() {
        let mut patience = Patience::new();
        let mut lasted = Vec::new();
        for _ in 0..6 {
            let lost = [(); 3].map(|()| {
                patience.on_lost();
                patience.is_at_its_end()
            });
            assert_eq!(lost, [false, true, true]);
            lasted.push(patience.lasts(Duration::from_millis(250)).as_secs());
            patience.forget();
            assert!(!patience.is_at_its_end(), "what is long ago is forgotten");
        }
        assert_eq!(lasted, [256, 512, 1024, 2048, 2048, 2048], "but not that it was so");
    }
}
