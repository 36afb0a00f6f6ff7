//! Goal: what a search finds is a fault. Method: what once looked like one and was none.

use hustings_core::Protocol;
use hustings_kv::KvStore;
use hustings_raft::Raft;
use hustings_world::seed::{Plan, run};
use hustings_world::{Command, Plants, Quality, Settings, Target};

/// Goal: nobody is asked to serve by a membership that only the sick one knows. Method: of four voters n4 is dead and removed; the
/// leader alone hears that this is committed, and falls silent. The other two are half of the four that they know.
#[test]
fn members_are_judged_by_the_membership_that_they_can_know() {
    let quality = Quality { delay_min: 10_000, delay_max: 10_000, loss: 0, duplicates: 0 };
    let sick = vec![
        Command::Crash(Target::Node(4)),
        Command::Wait(100_000),
        Command::Remove(Target::Node(4)),
        // The others have the change, and it is on its way to be acknowledged.
        Command::Wait(15_000),
        Command::Mute(Target::Leader, Target::All),
        // Now it knows that the change is committed, and tells nobody.
        Command::Wait(50_000),
    ];
    let faults = vec![(4_000_000, Command::Transfer(Target::Node(1)))];
    let settings = Settings { quality, ..Settings::new(4, 1) };
    let plan = Plan { settings, faults, safety: 8_000_000, sick };
    let report = run::<Raft, KvStore>(&plan, &<Raft as Protocol>::Options::default(), Plants::default(), 0);
    assert_eq!(report.violation, None);
}
