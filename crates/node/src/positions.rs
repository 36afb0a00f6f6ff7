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
//! A number alone is no descent: a directory that was rolled back to before start 3, and has written 900 batches since, also has more than
//! 812. So each start draws a number of its own, a directory keeps those of its last starts, and a greeting names them: start 3 of that
//! directory was another one, and began with 305.
//!
//! It deliberately does not convict on hearsay about a life that is still going on, which may only be ahead of what this
//! node has heard.
//!
//! Source: ADR 13.

use crate::gatekeeper::anew;
use hustings_core::NodeId;
use hustings_core::replica::message::Position;
use hustings_wal::Start;
use std::cmp::Ordering;
use std::collections::BTreeMap;

/// Positions that are kept of a member, of its last starts: a directory is known by all of them, and by its last one alone a start that
/// another has overtaken is not.
const KEPT_MAX: usize = 8;

/// The positions that each member told in its last starts.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Positions(BTreeMap<NodeId, Vec<Position>>);

/// The result of hearing a position.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Heard {
    /// The position was known already.
    Nothing,
    /// It is remembered from now on.
    News,
    /// A start of this member began with less than another one had told: one of them runs on a directory that was rolled back.
    RolledBack,
}

/// The batches that a directory lacks, of those that its member told.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Lack {
    /// The position that was told.
    pub(crate) had: Position,
    /// Number of its batches that the directory has.
    pub(crate) has: u64,
}

/// Whether two starts count alike and are not one.
fn are_rivals(one: &Position, other: &Position) -> bool {
    one.boots == other.boots && one.process != other.process
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
        let known = self.0.entry(told.node).or_default();
        known.retain(|known| known.storage == told.storage);
        let at = known.iter().position(|known| known.boots == told.boots && known.process == told.process);
        if at.is_some_and(|at| told.batches <= known[at].batches) {
            return Heard::Nothing;
        }
        // A later start that began with less tells of another history: it covers nothing of this one.
        if known.iter().any(|known| known.boots < told.boots && told.born_with < known.batches) {
            if let Some(at) = at {
                known.remove(at);
            }
            return Heard::RolledBack;
        }
        // Two starts that count alike: one is of a copy, or of a directory that was rolled back to before the other. The batches that one
        // of them began with are covered; where each has told what the other lacks, both are remembered, and neither is welcome.
        let is_covered = |known: &Position| are_rivals(known, &told) && told.batches <= known.born_with;
        if known.iter().any(is_covered) {
            return Heard::Nothing;
        }
        let is_rival = at.is_none() && known.iter().any(|known| are_rivals(known, &told));
        let count = known.len();
        known.retain(|known| {
            let is_overtaken = known.boots > told.boots && known.born_with < told.batches;
            let is_covered = are_rivals(known, &told) && known.batches <= told.born_with;
            !is_overtaken && !is_covered && (known.boots, known.process) != (told.boots, told.process)
        });
        let is_another_gone = known.len() + usize::from(at.is_some()) < count;
        known.push(told);
        known.sort_by_key(|known| (known.boots, known.process));
        let surplus = known.len().saturating_sub(KEPT_MAX);
        known.drain(..surplus);
        if is_rival || is_another_gone { Heard::RolledBack } else { Heard::News }
    }

    /// The batches that a member told before and that the directory with which it greets lacks; of several gaps, the one of
    /// which most is missing. `starts` are the last starts of
    /// that directory, by its own word; none where an older build speaks.
    pub(crate) fn missing_in(&self, now: &Position, starts: &[Start]) -> Option<Lack> {
        let known = self.0.get(&now.node).into_iter().flatten().filter(|known| known.storage == now.storage);
        let lack = |had: &Position| {
            // A start of another process under the same number: its directory has of the other what it began with.
            let rival = starts.iter().find(|start| start.boots == had.boots && start.process != had.process);
            let has = match now.boots.cmp(&had.boots) {
                Ordering::Greater => rival.map_or(now.born_with, |rival| rival.born_with),
                Ordering::Equal if now.process != had.process => now.born_with,
                // The same life: what others told of it may have come before its own greeting, which was on its way.
                Ordering::Equal => had.batches,
                // It may be the original of which a copy was started elsewhere: then it has more than the copy began with.
                Ordering::Less if now.batches <= had.born_with => now.batches,
                Ordering::Less => had.batches,
            };
            (has < had.batches).then_some(Lack { had: *had, has })
        };
        known.filter_map(lack).max_by_key(|lack| lack.had.batches - lack.has)
    }

    /// Members that are no more are forgotten.
    pub(crate) fn retain(&mut self, is_member: impl Fn(NodeId) -> bool) {
        self.0.retain(|node, _| is_member(*node));
    }

    /// The position of each member's last start, in the order of the nodes' ids: what is passed on all the time.
    pub(crate) fn latest(&self) -> Vec<Position> {
        self.0.values().filter_map(|known| known.last()).copied().collect()
    }

    /// All known positions, in the order of the nodes' ids.
    pub(crate) fn to_vec(&self) -> Vec<Position> {
        self.0.values().flatten().copied().collect()
    }
}

/// Says what is missing and what to do.
pub(crate) fn rolled_back(name: &str, lack: &Lack, now: &Position) -> String {
    let Lack { had, has } = lack;
    let (boots, since) = (now.boots, now.batches.saturating_sub(*has));
    let since = if since > 0 { format!(", and {since} of another history since") } else { String::new() };
    format!(
        "the data directory of {name} is older than what {name} has acknowledged: {} batches of its log were durable in its start {}, and start {boots} has {has} of them{since}. It may not vote or count any more: put the newest directory back; if there is none, {}",
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

    impl Positions {
        /// The gap in a directory that names no starts.
        fn lacked_by(&self, now: &Position) -> Option<Lack> {
            self.missing_in(now, &[])
        }
    }

    /// The position of a copy that was started elsewhere, or after the original was gone.
    fn of_copy(position: Position) -> Position {
        Position { process: 900, ..position }
    }

    #[test]
    fn who_comes_back_with_less_is_told_both_numbers() {
        let positions = Positions::of([position(3, 700, 812)]);
        assert_eq!(positions.lacked_by(&position(4, 812, 812)), None);
        assert_eq!(positions.lacked_by(&position(3, 700, 812)), None, "the same life, its link was down");
        let lack = positions.lacked_by(&position(4, 305, 305)).expect("it lost some");
        let said = rolled_back("n2", &lack, &position(4, 305, 305));
        assert!(said.contains("812 batches") && said.contains("start 4 has 305") && said.contains("remove"), "{said}");
        assert!(positions.lacked_by(&position(4, 305, 900)).is_some(), "what it wrote since is another history");
        assert!(positions.lacked_by(&of_copy(position(3, 305, 305))).is_some(), "a copy that was started as often");
        assert_eq!(positions.lacked_by(&position(3, 700, 811)), None, "hearsay came before the greeting");
        assert!(positions.lacked_by(&position(2, 305, 305)).is_some(), "a copy that was started less often");
        assert_eq!(positions.lacked_by(&Position { storage: 8, ..position(1, 0, 0) }), None, "another directory");
    }

    #[test]
    fn what_a_rolled_back_start_tells_covers_nothing_in_either_order() {
        let (told, rolled_back) = (position(3, 700, 812), position(4, 305, 900));
        for order in [[told, rolled_back], [rolled_back, told]] {
            let mut positions = Positions::default();
            assert_eq!(order.map(|position| positions.hear(position)), [Heard::News, Heard::RolledBack]);
            assert!(positions.lacked_by(&rolled_back).is_some());
            assert_eq!(positions.lacked_by(&position(5, 812, 812)), None, "the newest directory was put back");
        }
    }

    #[test]
    fn of_two_starts_that_count_alike_the_one_that_began_with_less_is_refused() {
        // A backup from before the last start is put back, and links to one that has heard nothing of that start yet.
        let (told, of_backup) = (position(3, 700, 812), of_copy(position(3, 305, 305)));
        let mut positions = Positions::of([of_backup]);
        assert_eq!(positions.hear(told), Heard::RolledBack);
        assert!(positions.lacked_by(&of_backup).is_some());
        assert_eq!(positions.lacked_by(&position(4, 812, 812)), None, "the newest directory was put back");
        assert_eq!(positions.hear(of_backup), Heard::Nothing, "it is said once");
    }

    /// Goal: batches that were written since are no substitute for those that were acknowledged. Method: a directory that is rolled back to
    /// before its start 3, and overtakes what was told in it before anybody who remembers meets it; at once, and one start later.
    #[test]
    fn a_rolled_back_directory_that_has_grown_since_is_refused_all_the_same() {
        let (told, grown) = (position(3, 305, 312), of_copy(position(3, 305, 340)));
        let start = |position: Position| Start {
            boots: position.boots,
            process: position.process,
            born_with: position.born_with,
        };
        let later = position(4, 340, 345);
        let orders: [&[Position]; 3] = [&[told], &[told, grown], &[grown, told, later]];
        for heard in orders {
            let positions = Positions::of(heard.iter().copied());
            assert_eq!(positions.missing_in(&grown, &[start(grown)]).map(|lack| lack.has), Some(305), "{heard:?}");
            let lack =
                positions.missing_in(&later, &[start(grown), start(later)]).expect("it descends from the other start");
            assert_eq!((lack.had.batches, lack.has), (312, 305), "{heard:?}");
            let said = rolled_back("n2", &lack, &later);
            assert!(said.contains("start 4 has 305 of them, and 40 of another history since"), "{said}");
        }
        // The directory of which start 3 was told is welcome to a member that has not met the other.
        let next = position(4, 312, 312);
        assert_eq!(Positions::of([told]).missing_in(&next, &[start(told), start(next)]), None);
        // A member that has acted on the word of both can believe neither.
        assert!(Positions::of([told, grown]).missing_in(&next, &[start(told), start(next)]).is_some());
        // A position that is told again is no news: nobody passes it on for ever.
        let mut positions = Positions::of([told, grown]);
        assert_eq!([told, grown].map(|position| positions.hear(position)), [Heard::Nothing; 2]);
    }

    #[test]
    fn a_copy_that_was_started_elsewhere_convicts_no_original() {
        // The copy was taken at batch 800; the original goes on in the same life.
        let mut positions = Positions::of([position(4, 800, 805)]);
        assert_eq!(positions.lacked_by(&position(3, 700, 812)), None);
        assert_eq!(positions.hear(position(3, 700, 812)), Heard::RolledBack, "and that is the copy");
        assert!(positions.lacked_by(&position(4, 800, 820)).is_some());
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
                    prop_assert_eq!(peer.lacked_by(greeting), None, "{:?} of {:?}", greeting, peer);
                }
            }
            // Any older copy that lacks something it had told is convicted by what it writes afterwards.
            let had = told.iter().map(|told| told.batches).max().unwrap_or(0);
            for copy in copies.into_iter().filter(|copy| copy.batches < had) {
                let again = of_copy(position(copy.boots + 1, copy.batches, copy.batches));
                prop_assert!(peer.lacked_by(&again).is_some(), "{:?} of {:?}", again, peer);
            }
        }
    }
}
