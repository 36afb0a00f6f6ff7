//! The numbers by which commands are applied: [`Rules`], one set for each apply version.
//!
//! Everything here decides what an entry does, so members with other numbers would diverge. A build that wants other numbers
//! adds a set and keeps the old ones: the log says from which entry on the new set applies
//! ([`hustings_core::replica::versions`]). The same holds for what is no number: a new command, a new field of one, another
//! order of steps. None may have an effect below the version that it came with.

use hustings_core::ApplyVersion;

/// The limit of a command's cost, the cost of its parts, and the due work that goes with it.
///
/// Costs are in visits of a key, some 0.1 microseconds each; the weights are measured (`examples/cost.rs`).
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Rules {
    /// Greatest cost of one command: some 20 milliseconds.
    pub cost_max: u64,
    /// A key that a comparison or a deletion looks at.
    pub visit: u64,
    /// Cost of a key's deletion beside the visit.
    pub delete: u64,
    /// Cost of a key that is written.
    pub put: u64,
    /// Cost of a range in a transaction: its state is kept for the reader of the answer, and later writes copy what they share.
    pub range: u64,
    /// A lease named in a renewal.
    pub renewal: u64,
    /// A key that goes with its lease; a step never has more of them than the budget would pay.
    pub lease_key: u64,
    /// Bytes copied or compared that cost as much as a visit.
    pub bytes: usize,
    /// Due leases that end when time passes, once for each batch of entries, and the keys that go with them.
    pub leases_per_tick: usize,
    /// Keys that go with those leases.
    pub keys_per_tick: usize,
    /// Due leases that end beside a command, of which there may be a thousand in a batch.
    pub leases_per_command: usize,
    /// Keys that go with those leases.
    pub keys_per_command: usize,
    /// Changes that an `apply` walks on the side to remove compacted history: more than one command writes, so that the walk ends;
    /// few enough to cost tens of microseconds.
    pub changes_per_command: usize,
    /// Changes that the passing of time walks, once for each batch of entries: a tenth of a millisecond or two. So a leader that
    /// nobody asks anything ends the removal too, by the blank entries with which it tells the time.
    pub changes_per_tick: usize,
    /// Changes that an idle entry ([`crate::Advance`]) walks: a millisecond or two.
    pub changes_per_advance: usize,
    /// Alarms that may stand: two kinds for many more members than a cluster has. Each command looks through them.
    pub alarms_max: usize,
    /// Whether a lease may live for milliseconds ([`crate::ShortLeaseGrant`]).
    pub has_short_leases: bool,
    /// Whether there are users and roles ([`crate::users`]).
    pub has_users: bool,
}

impl Rules {
    /// The rules of the first apply version.
    pub const FIRST: Rules = Rules {
        cost_max: 160_000,
        visit: 1,
        delete: 15,
        put: 40,
        range: 100,
        renewal: 5,
        lease_key: 30,
        bytes: 1_024,
        leases_per_tick: 1_000,
        keys_per_tick: 5_000,
        leases_per_command: 8,
        keys_per_command: 32,
        changes_per_command: 32,
        changes_per_tick: 256,
        changes_per_advance: 2_000,
        alarms_max: 256,
        has_short_leases: false,
        has_users: false,
    };

    /// The rules of the second apply version: leases may live for milliseconds.
    pub const SECOND: Rules = Rules { has_short_leases: true, ..Rules::FIRST };

    /// The rules of the third apply version: there are users and roles, and commands are judged by their caller.
    pub const THIRD: Rules = Rules { has_users: true, ..Rules::SECOND };

    /// The rules of the fourth apply version: as the third; all members know what a witness is.
    pub const FOURTH: Rules = Rules::THIRD;
}

/// The rules of all apply versions that this build knows, from the first on.
#[cfg(not(feature = "laboratory-rules"))]
pub static RULES: [Rules; 4] = [Rules::FIRST, Rules::SECOND, Rules::THIRD, Rules::FOURTH];
#[cfg(not(feature = "laboratory-rules"))]
pub(crate) const VERSION_MAX: ApplyVersion = ApplyVersion(4);

/// A build of tomorrow, for rolling upgrades in the laboratory: it has one set more, with half the budget.
#[cfg(feature = "laboratory-rules")]
pub static RULES: [Rules; 5] = [
    Rules::FIRST,
    Rules::SECOND,
    Rules::THIRD,
    Rules::FOURTH,
    Rules { cost_max: Rules::FIRST.cost_max / 2, ..Rules::FOURTH },
];
#[cfg(feature = "laboratory-rules")]
pub(crate) const VERSION_MAX: ApplyVersion = ApplyVersion(5);

/// The rules of a version.
///
/// # Panics
/// For a version that `known` does not contain: a replica stops before it adopts one.
pub(crate) fn rules_of(known: &'static [Rules], version: ApplyVersion) -> &'static Rules {
    let place = usize::try_from(version.0).ok().and_then(|number| number.checked_sub(1));
    place.and_then(|place| known.get(place)).unwrap_or_else(|| panic!("apply version {version} is not known here"))
}

/// The first version by whose rules a state can be what it is, with these things in it or without.
pub(crate) fn version_with(has_short_leases: bool, has_users: bool) -> ApplyVersion {
    let has_room = |rules: &&Rules| (rules.has_short_leases || !has_short_leases) && (rules.has_users || !has_users);
    let before = RULES.iter().take_while(|rules| !has_room(rules)).count();
    ApplyVersion(u32::try_from(before + 1).expect("versions are few")).min(VERSION_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_needs_the_first_version_that_has_room_for_it() {
        let needed = [(false, false), (true, false), (false, true), (true, true)]
            .map(|(leases, users)| version_with(leases, users).0);
        assert_eq!(needed, [1, 2, 3, 3]);
    }

    #[test]
    fn every_version_up_to_the_highest_has_rules() {
        assert_eq!(RULES.len(), VERSION_MAX.0 as usize);
        assert_eq!(rules_of(&RULES, VERSION_MAX), &RULES[RULES.len() - 1]);
    }
}
