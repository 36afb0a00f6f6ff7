//! A crash after every record of an election, a hand-over, an append, a cut-back tail, a change of members and a snapshot: the
//! suite of all protocols (`hustings_stage::crashes`).

mod support;

use hustings_gmt2000::Timer;
use hustings_stage::crashes::{Crashing, SCENES, crash_after_any_record};
use support::{Ours, Theatre, Verbs as _};

impl Crashing for Ours {
    fn call(theatre: &mut Theatre, id: u64, among: &[u64]) {
        theatre.silence(among);
        theatre.fire_if_armed(id, Timer::Watch);
    }

    fn pass(theatre: &mut Theatre, id: u64) {
        theatre.fire_if_armed(id, Timer::Round);
    }
}

#[test]
fn a_crash_after_any_record_breaks_no_promise() {
    SCENES.into_iter().for_each(crash_after_any_record::<Ours>);
}
