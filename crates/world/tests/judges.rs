//! Goal: the judge of histories and the judge of every world convict by one set of predicates
//! (`hustings_properties::safety`). Method: a defect is planted; a seed and an exhaustive search meet it, and name the same
//! property.

use hustings_core::laboratory::Defect as Shared;
use hustings_kv::KvStore;
use hustings_raft::{Defect, Options, Raft};
use hustings_world::every::{Bounds, explore};
use hustings_world::seed::{Plan, run};
use hustings_world::{Plants, Script, World};

const MINUTE: u64 = 60_000_000;

/// A defect of Raft, or of what all protocols share.
#[derive(Clone, Copy, Debug)]
enum Planted {
    Own(Defect),
    Shared(Shared),
}

impl Planted {
    fn options(self) -> Options {
        let Planted::Own(defect) = self else { return Options::default() };
        Options { defect: Some(defect), ..Options::default() }
    }

    fn shared(self) -> Option<Shared> {
        let Planted::Shared(defect) = self else { return None };
        Some(defect)
    }
}

/// The property that falls in the shortest trace: two terms, with a proposal, a crash and one timer at each member.
fn by_every(planted: Planted) -> Option<&'static str> {
    let options = Options { pre_vote: false, ..planted.options() };
    let defect = planted.shared();
    let bounds =
        Bounds { terms: 2, proposals: 1, crashes: 1, timers: 1, states_max: 100_000, defect, ..Bounds::default() };
    explore::<Raft>(&bounds, &options, 2, |_| true).violation.map(|(violation, _)| violation.property)
}

/// The properties that fall in these seeds, of three and of five members in turn. By whose vote a leader leads is not asked: that
/// would convict a second vote before there are two leaders.
fn by_seeds(planted: Planted) -> Vec<&'static str> {
    let plants = Plants { defect: planted.shared(), ..Plants::default() };
    let verdict = |seed| {
        let mut plan = Plan::draw(seed, [3, 5][seed as usize % 2], MINUTE);
        plan.settings.rules.votes_are_promises = false;
        run::<Raft, KvStore>(&plan, &planted.options(), plants, 0).violation.map(|(_, violation)| violation.property)
    };
    (1..=64).filter_map(verdict).collect()
}

fn both_convict(planted: Planted, property: &'static str) {
    let (every, seeds) = (by_every(planted), by_seeds(planted));
    println!("{planted:?}: {every:?} in every world, {seeds:?} by seeds");
    assert_eq!(every, Some(property), "{planted:?}");
    assert!(seeds.contains(&property), "{planted:?}: {seeds:?}");
}

#[test]
fn a_second_vote_makes_two_leaders_of_a_term_for_both() {
    both_convict(Planted::Own(Defect::VotesTwice), "one-leader-per-term");
}

#[test]
fn a_vote_for_a_stale_log_makes_an_incomplete_leader_for_both() {
    both_convict(Planted::Own(Defect::VotesForStaleLogs), "leader-completeness");
}

#[test]
fn an_acknowledgement_before_the_sync_commits_without_a_quorum_for_both() {
    both_convict(Planted::Shared(Shared::UnsyncedEntries), "commit-on-quorum");
}

/// Goal: a cluster that many clients keep busy does not talk without end. Method: fifty that write again a millisecond after each answer,
/// until there are more events than a cluster has by itself.
#[test]
fn many_clients_are_no_storm() {
    let script = Script::parse("cluster 3\nload clients 50 values 100 pause 1ms\nwait 5s").expect("it is a script");
    let mut world: World<Raft, KvStore> = World::new(script.settings, Options::default()).expect("it begins");
    script.commands.iter().for_each(|command| world.apply(command).expect("nothing is violated"));
    assert!(world.counts.events > 300_000, "{} events", world.counts.events);
}

/// Goal: an expectation of an outage fails where nobody is served for longer, however early clients give up. Method: nobody hears anybody
/// for a minute, clients wait for a second, and 1.2 s are expected.
#[test]
fn an_outage_longer_than_what_clients_wait_is_seen() {
    let text = |most: &str| {
        format!(
            "cluster 3 seed 7\nload clients 1 keys 1 pause 20ms patience 1s watchers 1 rivals 0\nsettle 6s\nmark\n\
             partition n1 | n2 | n3\nwait 60s\nexpect outage {most}\n"
        )
    };
    let play = |text: &str| {
        let script = Script::parse(text).expect("a script");
        let mut world: World<Raft, KvStore> =
            World::new(script.settings.clone(), Options::default()).expect("a beginning");
        script.play(&mut world, |_, _| {})
    };
    let violation = play(&text("1200ms")).expect_err("a minute is longer");
    assert_eq!(violation.property, "expectation", "{violation}");
    play(&text("61s")).expect("a minute is shorter");
}
