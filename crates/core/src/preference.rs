//! A leader's patience with members that its operator prefers: [`Patience`].

use crate::NodeId;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Quorum checks in a row that a preferred member must be caught up before leadership goes to it: to one that stays, not to
/// one that blinks.
const READY_CHECKS: u32 = 4;

/// Each hand-over to it doubles that, so often: in the end 1,024 election timeouts between two, some four minutes as members are set up.
const DOUBLINGS_MAX: u32 = 8;

/// Election timeouts after which a step of what is remembered is forgotten: the longest wait for a hand-over.
const PERIOD: u32 = READY_CHECKS << DOUBLINGS_MAX;

/// Periods in which a hand-over is forgotten, and a leadership that was lost. One alone would let a member that never lasts have its next
/// hand-over sooner each time that the longest wait is over.
const STEPS: u32 = 2;

/// Weight of a leadership that was lost to another member.
const LOST: u32 = 4;

/// Weight of a leadership that was lost and that nobody else took. Most often its peers were to blame; but where a member loses and regains
/// leadership again and again, it may be sick itself, and as quick to stand for election.
const REGAINED: u32 = 1;

/// Sum of weights at which a preferred member is preferred no more: a second loss, before the first is forgotten.
const LOSSES_MAX: u32 = LOST + LOST / STEPS;

/// Each time that it comes to that doubles the time which it lasts, until eight periods, half an hour as members are set up.
const SUSPENSIONS_MAX: u32 = 4;

/// Periods in which one such doubling is forgotten: twice as many as the longest takes.
const SUSPENSION_STEPS: u32 = STEPS << (SUSPENSIONS_MAX - 1);

/// The hand-overs to preferred members, in this life; and whether this member, preferred itself, can bear it.
///
/// A preferred member that reaches the leader alone looks ready and cannot win. Handed leadership again and again, it would
/// cost the service an election each time, for ever. So would one that wins and does not last: whose disk is too slow for what a
/// leader writes, whose machine stands still now and then, whose process ends as soon as it leads. How a reign ended is not always
/// seen, so each hand-over counts; what is long ago does not. All is forgotten step by step, so that a member that never
/// lasts has a burst of reigns once, and from then on one in each longest wait.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Patience {
    /// Steps until the hand-overs to a member are forgotten.
    handed_over: BTreeMap<NodeId, u32>,
    /// This member lost leadership, and nobody has led since.
    has_lost: bool,
    /// An operator has asked for another leader in its present reign: however it ends, that is no loss.
    is_asked_away: bool,
    /// Sum of the weights of the leaderships that it lost, and that are not forgotten.
    losses: u32,
    /// Ends of periods until it is preferred again.
    suspended: u32,
    /// Steps until it is forgotten that it was suspended.
    suspensions: u32,
    /// Those to which this member, a witness, gave its care: next time it is another's turn.
    in_care: BTreeSet<NodeId>,
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
        let own = self.handed_over.get(&member).map_or(0, |steps| steps.div_ceil(STEPS));
        let others = self.handed_over.keys().filter(|other| **other != member).count();
        let doublings = own.saturating_add(u32::try_from(others).unwrap_or(DOUBLINGS_MAX));
        READY_CHECKS << doublings.min(DOUBLINGS_MAX)
    }

    /// Quorum checks in a row that `member` must be caught up before a caretaker hands over to it: none at first, for nobody wants the
    /// caretaker to lead, and then half of what a preferred member waits.
    pub fn checks_wanted_by_caretaker(&self, member: NodeId) -> u32 {
        if self.handed_over.contains_key(&member) { self.checks_wanted(member) / 2 } else { 0 }
    }

    /// Whether leadership was handed to anybody, and that is not forgotten.
    pub fn has_handed_over(&self) -> bool {
        !self.handed_over.is_empty()
    }

    /// The one of these to which a witness gives its care; `None` of nobody. Each gets it once before one gets it again: what one could not
    /// win, for nobody hears it, another may.
    pub fn next_in_care(&mut self, able: &[NodeId]) -> Option<NodeId> {
        if !able.is_empty() && able.iter().all(|id| self.in_care.contains(id)) {
            self.in_care.clear();
        }
        let next = able.iter().copied().find(|id| !self.in_care.contains(id));
        self.in_care.extend(next);
        next
    }

    /// Leadership is handed to `member`, which is preferred, or better than this caretaker.
    pub fn on_handed_over(&mut self, member: NodeId) {
        let steps = self.handed_over.entry(member).or_default();
        *steps = (*steps + STEPS).min(STEPS * DOUBLINGS_MAX);
    }

    /// An operator asks this member, which leads, to let another lead.
    pub fn on_asked_away(&mut self) {
        self.is_asked_away = true;
    }

    /// This member, which is preferred, has lost leadership. That counts once somebody leads, unless an operator wanted it.
    pub fn on_lost(&mut self) {
        self.has_lost = !self.is_asked_away;
    }

    /// This member leads: nobody else took the leadership that it lost before, if it lost one.
    pub fn on_leads(&mut self) {
        self.is_asked_away = false;
        self.count(REGAINED);
    }

    /// Another member leads: it took the leadership that this member lost before, if it lost one.
    pub fn on_other_leads(&mut self) {
        self.count(LOST);
    }

    /// Counts the leadership that was lost, if one was.
    fn count(&mut self, weight: u32) {
        if !std::mem::take(&mut self.has_lost) || self.is_suspended() {
            return;
        }
        self.losses += weight;
        if self.losses >= LOSSES_MAX {
            self.losses = 0;
            self.suspensions = (self.suspensions + SUSPENSION_STEPS).min(SUSPENSION_STEPS * SUSPENSIONS_MAX);
            // The period that has begun is not a whole one.
            self.suspended = 1 + (1 << (self.suspensions.div_ceil(SUSPENSION_STEPS) - 1));
        }
    }

    /// The time from one step of forgetting to the next.
    pub fn period(election_timeout: Duration) -> Duration {
        election_timeout * PERIOD
    }

    /// A period is over.
    pub fn forget_a_step(&mut self) {
        self.handed_over.retain(|_, steps| {
            *steps -= 1;
            *steps > 0
        });
        self.losses = self.losses.saturating_sub(LOST / STEPS);
        self.suspended = self.suspended.saturating_sub(1);
        self.suspensions = self.suspensions.saturating_sub(1);
    }

    /// Whether there is something to forget.
    pub fn remembers(&self) -> bool {
        !self.handed_over.is_empty() || self.losses + self.suspended + self.suspensions > 0
    }

    /// Whether this member lost leadership too often for one that is preferred.
    pub fn is_suspended(&self) -> bool {
        self.suspended > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Leadership is lost, and another leads.
    fn lose(patience: &mut Patience) -> bool {
        patience.on_lost();
        patience.on_other_leads();
        patience.is_suspended()
    }

    /// Ends of periods until this holds.
    fn periods_until(patience: &mut Patience, holds: impl Fn(&Patience) -> bool) -> u32 {
        let mut periods = 0;
        while !holds(patience) {
            patience.forget_a_step();
            periods += 1;
        }
        periods
    }

    #[test]
    fn each_hand_over_doubles_the_wait_for_the_next() {
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
        assert_eq!(Patience::period(Duration::from_millis(250)), Duration::from_secs(256));
        let waits = [(); 4].map(|()| {
            patience.forget_a_step();
            patience.checks_wanted(NodeId(5))
        });
        assert_eq!(waits, [1024, 512, 512, 256], "a doubling is forgotten in two periods");
        assert_eq!(periods_until(&mut patience, |it| !it.remembers()), 12);
        assert_eq!([4, 5].map(|id| patience.checks_wanted(NodeId(id))), [4, 4]);
    }

    #[test]
    fn each_of_those_who_can_take_care_gets_its_turn() {
        let mut patience = Patience::new();
        let able = [1, 2, 3].map(NodeId);
        let turns: Vec<u64> = (0..7).filter_map(|_| patience.next_in_care(&able)).map(|id| id.0).collect();
        assert_eq!(turns, [1, 2, 3, 1, 2, 3, 1]);
        assert_eq!([patience.next_in_care(&able[..1]), patience.next_in_care(&[])], [Some(NodeId(1)), None]);
    }

    #[test]
    fn a_member_that_never_lasts_is_handed_leadership_once_in_each_longest_wait_however_long_that_goes_on() {
        let mut patience = Patience::new();
        let (mut checks, mut ready, mut handed_over) = (0, 0, Vec::new());
        while checks < 200 * PERIOD {
            checks += 1;
            ready += 1;
            if ready >= patience.checks_wanted(NodeId(5)) {
                patience.on_handed_over(NodeId(5));
                handed_over.push(checks);
                ready = 0;
            }
            if checks % PERIOD == 0 {
                patience.forget_a_step();
            }
        }
        let first = handed_over.iter().filter(|at| **at <= 2 * PERIOD).count();
        assert_eq!(first, 9, "a burst, once");
        assert!(handed_over[first..].windows(2).all(|pair| pair[1] - pair[0] == PERIOD), "{handed_over:?}");
    }

    #[test]
    fn leadership_lost_to_another_twice_is_too_often_and_the_next_time_for_twice_as_long() {
        let mut patience = Patience::new();
        let lasted = [(); 6].map(|()| {
            assert_eq!([(); 3].map(|()| lose(&mut patience)), [false, true, true]);
            periods_until(&mut patience, |it| !it.is_suspended())
        });
        assert_eq!(lasted, [2, 3, 5, 9, 9, 9], "the first of these is not a whole one");
        assert_eq!(periods_until(&mut patience, |it| !it.remembers()), 55);
        lose(&mut patience);
        lose(&mut patience);
        assert_eq!(periods_until(&mut patience, |it| !it.is_suspended()), 2, "that is long ago");
    }

    #[test]
    fn leadership_that_nobody_else_took_counts_for_less() {
        fn regain(patience: &mut Patience) -> bool {
            patience.on_lost();
            patience.on_leads();
            patience.on_other_leads();
            patience.is_suspended()
        }
        let mut patience = Patience::new();
        assert_eq!([(); 6].map(|()| regain(&mut patience)), [false, false, false, false, false, true]);
        let mut patience = Patience::new();
        assert_eq!([lose(&mut patience), regain(&mut patience), regain(&mut patience)], [false, false, true]);
        let mut patience = Patience::new();
        lose(&mut patience);
        patience.forget_a_step();
        let mut long_ago = patience.clone();
        long_ago.forget_a_step();
        assert_eq!([lose(&mut patience), lose(&mut long_ago)], [true, false], "the first is forgotten in two periods");
    }

    #[test]
    fn leadership_that_an_operator_wanted_elsewhere_was_not_lost() {
        let mut patience = Patience::new();
        for _ in 0..5 {
            patience.on_asked_away();
            patience.on_lost();
            patience.on_other_leads();
            patience.on_leads();
        }
        assert_eq!(patience, Patience::new());
        assert_eq!([(); 2].map(|()| lose(&mut patience)), [false, true], "in its next reign nobody asked");
    }
}
