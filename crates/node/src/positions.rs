//! Remembers how much of its log each member has said to be durable, and sees whether one came back with less: [`Positions`].
//!
//! A vote or an acknowledgement binds only as long as it is remembered. A directory that was rolled back (an old copy, a backup of
//! one machine, a disk that lied about its syncs) has forgotten some, and with it a quorum may lose what was acknowledged. So
//! members tell each other how many *batches* of their logs are durable. That number only grows, under every protocol: a
//! truncation, a replaced entry and a snapshot are records in later batches. It is told only after the sync, so a member that lost
//! no more than an unsynced tail always comes back with at least as many as it told.
//!
//! ```text
//!    n2, start 3: durable 812 ──► n1 and n3 remember (n2, start 3, 812), and tell each other
//!    n2, start 4: began with 812 or more: welcome        began with 305: refused, with both numbers
//! ```
//!
//! What it deliberately does not do: convict on hearsay about a life that is still going on, which may only be ahead of what this
//! node has heard.
//!
//! Source: ADR 13.

use crate::gatekeeper::anew;
use hustings_core::NodeId;
use hustings_core::replica::message::Position;
use std::cmp::Ordering;
use std::collections::BTreeMap;

/// The last known position of each member.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Positions(BTreeMap<NodeId, Position>);

/// The result of hearing a position.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Heard {
    /// The position was known already.
    Nothing,
    /// It is remembered from now on.
    News,
    /// A start of this member began with less than an earlier one had told: it runs on a directory that was rolled back.
    RolledBack,
}

impl Positions {
    /// Begins with the positions that were remembered at the last stop.
    pub(crate) fn of(remembered: impl IntoIterator<Item = Position>) -> Positions {
        let mut positions = Positions::default();
        for position in remembered {
            positions.hear(position);
        }
        positions
    }

    /// Takes in what a member told of itself, or another of it.
    ///
    /// One directory per member: what another one told means nothing to this one.
    pub(crate) fn hear(&mut self, told: Position) -> Heard {
        let Some(known) = self.0.get_mut(&told.node).filter(|known| known.storage == told.storage) else {
            self.0.insert(told.node, told);
            return Heard::News;
        };
        if told.boots == known.boots && told.process != known.process {
            // Two starts that count alike: one is of a copy, or of a directory that was rolled back to before the other. Both go
            // on only if nothing is missing in either, and who greets with less is refused.
            if told.batches <= known.batches {
                return Heard::Nothing;
            }
            *known = told;
            return Heard::RolledBack;
        }
        let (earlier, later) = if told.boots < known.boots { (told, *known) } else { (*known, told) };
        if earlier.boots < later.boots && later.born_with < earlier.batches {
            // The later start tells of another history: it covers nothing of this one.
            *known = earlier;
            return Heard::RolledBack;
        }
        let merged = if later.batches >= earlier.batches { later } else { earlier };
        match std::mem::replace(known, merged) == merged {
            true => Heard::Nothing,
            false => Heard::News,
        }
    }

    /// The position that a member had told before, if `now`, with which it greets, lacks some of it.
    pub(crate) fn missing_in(&self, now: &Position) -> Option<Position> {
        let known = self.0.get(&now.node).filter(|known| known.storage == now.storage)?;
        let lacks = match now.boots.cmp(&known.boots) {
            Ordering::Greater => now.born_with < known.batches,
            // The same life: what others told of it may have come before its own greeting, which was on its way.
            Ordering::Equal => now.process != known.process && now.batches < known.batches,
            // It may be the original of which a copy was started elsewhere: then it has more than the copy began with.
            Ordering::Less => now.batches <= known.born_with && now.batches < known.batches,
        };
        lacks.then_some(*known)
    }

    /// Members that are no more are forgotten.
    pub(crate) fn retain(&mut self, is_member: impl Fn(NodeId) -> bool) {
        self.0.retain(|node, _| is_member(*node));
    }

    /// All known positions.
    pub(crate) fn to_vec(&self) -> Vec<Position> {
        self.0.values().copied().collect()
    }
}

/// Says what is missing and what to do.
pub(crate) fn rolled_back(name: &str, had: &Position, now: &Position) -> String {
    let Position { boots, born_with, batches, .. } = now;
    let has = if *boots > had.boots { born_with } else { batches };
    format!(
        "the data directory of {name} is older than what {name} has acknowledged: {} batches of its log were durable in its start {}, and start {boots} has {has}. It may not vote or count any more: put the newest directory back; if there is none, {}",
        had.batches,
        had.boots,
        anew(now.node)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const N2: NodeId = NodeId(2);

    fn position(boots: u64, born_with: u64, batches: u64) -> Position {
        Position { node: N2, storage: 9, boots, process: 100 + boots, born_with, batches }
    }

    /// The position of a copy that was started elsewhere, or after the original was gone.
    fn of_copy(position: Position) -> Position {
        Position { process: 900, ..position }
    }

    #[test]
    fn who_comes_back_with_less_is_told_both_numbers() {
        let positions = Positions::of([position(3, 700, 812)]);
        assert_eq!(positions.missing_in(&position(4, 812, 812)), None);
        assert_eq!(positions.missing_in(&position(3, 700, 812)), None, "the same life, its link was down");
        let had = positions.missing_in(&position(4, 305, 305)).expect("it lost some");
        let said = rolled_back("n2", &had, &position(4, 305, 305));
        assert!(said.contains("812 batches") && said.contains("start 4 has 305") && said.contains("remove"), "{said}");
        assert!(positions.missing_in(&position(4, 305, 900)).is_some(), "what it wrote since is another history");
        assert!(positions.missing_in(&of_copy(position(3, 305, 305))).is_some(), "a copy that was started as often");
        assert_eq!(positions.missing_in(&position(3, 700, 811)), None, "hearsay came before the greeting");
        assert!(positions.missing_in(&position(2, 305, 305)).is_some(), "a copy that was started less often");
        assert_eq!(positions.missing_in(&Position { storage: 8, ..position(1, 0, 0) }), None, "another directory");
    }

    #[test]
    fn what_a_rolled_back_start_tells_covers_nothing_in_either_order() {
        let (told, rolled_back) = (position(3, 700, 812), position(4, 305, 900));
        for order in [[told, rolled_back], [rolled_back, told]] {
            let mut positions = Positions::default();
            assert_eq!(order.map(|position| positions.hear(position)), [Heard::News, Heard::RolledBack]);
            assert!(positions.missing_in(&rolled_back).is_some());
            assert_eq!(positions.missing_in(&position(5, 812, 812)), None, "the newest directory was put back");
        }
    }

    #[test]
    fn of_two_starts_that_count_alike_the_one_that_began_with_less_is_refused() {
        // A backup from before the last start is put back, and links to one that has heard nothing of that start yet.
        let (told, of_backup) = (position(3, 700, 812), of_copy(position(3, 305, 305)));
        let mut positions = Positions::of([of_backup]);
        assert_eq!(positions.hear(told), Heard::RolledBack);
        assert!(positions.missing_in(&of_backup).is_some());
        assert_eq!(positions.missing_in(&position(4, 812, 812)), None, "the newest directory was put back");
        assert_eq!(positions.hear(of_backup), Heard::Nothing, "it is said once");
    }

    #[test]
    fn a_copy_that_was_started_elsewhere_convicts_no_original() {
        // The copy was taken at batch 800; the original goes on in the same life.
        let mut positions = Positions::of([position(4, 800, 805)]);
        assert_eq!(positions.missing_in(&position(3, 700, 812)), None);
        assert_eq!(positions.hear(position(3, 700, 812)), Heard::RolledBack, "and that is the copy");
        assert!(positions.missing_in(&position(4, 800, 820)).is_some());
    }

    /// One step in the life of an honest member: it syncs some batches, of which it tells or not; a peer that remembers hears,
    /// late or twice; it crashes, and finds some batches again that it had written and not synced.
    #[derive(Clone, Copy, Debug)]
    enum Step {
        Sync(u64),
        Tell,
        Hearsay(usize),
        Crash { found: u64 },
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            (1..9_u64).prop_map(Step::Sync),
            Just(Step::Tell),
            (0..64_usize).prop_map(Step::Hearsay),
            (0..5_u64).prop_map(|found| Step::Crash { found }),
        ]
    }

    proptest! {
        #[test]
        fn an_honest_member_is_never_convicted_and_a_rolled_back_one_always(steps in prop::collection::vec(step(), 1..60)) {
            let mut now = position(1, 0, 0);
            let (mut told, mut peer) = (Vec::new(), Positions::default());
            let (mut copies, mut greetings) = (vec![now], vec![now]);
            for step in steps {
                match step {
                    Step::Sync(batches) => now.batches += batches,
                    Step::Tell => {
                        told.push(now);
                        prop_assert_ne!(peer.hear(now), Heard::RolledBack);
                    }
                    Step::Hearsay(which) if !told.is_empty() => {
                        prop_assert_ne!(peer.hear(told[which % told.len()]), Heard::RolledBack);
                    }
                    Step::Hearsay(_) => {}
                    Step::Crash { found } => {
                        copies.push(now);
                        now = position(now.boots + 1, now.batches + found, now.batches + found);
                        greetings.clear();
                    }
                }
                // Also a greeting of this life that was on its way for long.
                greetings.push(now);
                for greeting in &greetings {
                    prop_assert_eq!(peer.missing_in(greeting), None, "{:?} of {:?}", greeting, peer);
                }
            }
            // Any older copy that lacks something it had told is convicted by what it writes afterwards.
            let had = told.iter().map(|told| told.batches).max().unwrap_or(0);
            for copy in copies.into_iter().filter(|copy| copy.batches < had) {
                let again = of_copy(position(copy.boots + 1, copy.batches, copy.batches));
                prop_assert!(peer.missing_in(&again).is_some(), "{:?} of {:?}", again, peer);
            }
        }
    }
}
