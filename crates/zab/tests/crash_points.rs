//! A crash after every record of an election, a hand-over, an append, a cut-back tail, a change of members and a snapshot: the
//! suite of all protocols (`hustings_stage::crashes`).

use hustings_stage::Direction;
use hustings_stage::crashes::{Crashing, SCENES, crash_after_any_record};
use hustings_zab::{Options, Timer, Zab};

/// As the stories have it, but for links: where something is lost a session ends, as hosts see to it.
struct Sessions;

type Theatre = hustings_stage::Theatre<Sessions>;

impl Direction for Sessions {
    type Protocol = Zab;

    const HEARTBEAT: Timer = Timer::Ping;
    const HEARS_ITSELF_LAST: bool = true;
    const RESTARTS_ARE_SEEN: bool = true;
    const CUTS_END_SESSIONS: bool = true;

    fn is_published(options: &Options) -> bool {
        options.as_published
    }
}

impl Crashing for Sessions {
    fn call(theatre: &mut Theatre, id: u64, among: &[u64]) {
        for other in among {
            // The leader, if it is one of them, hears nobody for two checks.
            for timer in [Timer::Silence, Timer::QuorumCheck, Timer::QuorumCheck] {
                theatre.fire_if_armed(*other, timer);
            }
        }
        theatre.fire_if_armed(id, Timer::Resend);
    }

    /// A leader that nobody answers resigns: a server that is not in the way is elected then.
    fn pass(theatre: &mut Theatre, id: u64) {
        for timer in [Timer::Resend, Timer::Speak, Timer::Finalize, Timer::InitLimit, Timer::QuorumCheck] {
            theatre.fire_if_armed(id, timer);
        }
    }
}

#[test]
fn a_crash_after_any_record_breaks_no_promise() {
    SCENES.into_iter().for_each(crash_after_any_record::<Sessions>);
}
