//! The loop's notes for the recorder: links, the disk, its own pauses, requests of operators, and how all stood when leadership
//! moved. Without a tape its pauses are counted, and nothing else is looked at.

use super::Host;
use crate::counters::{Counters, micros};
use crate::reach::Reach;
use hustings_core::protocol::{Admin, DiskHealth};
use hustings_core::{NodeId, Protocol, Role, StateMachine, Transition};
use hustings_recorder::{Heard, Mark, boot_micros, both_clocks_micros};
use rustix::time::{ClockId, clock_gettime};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::time::Instant;

/// A loop that wakes this much too late is noted, and so is a turn that takes this long.
const LATE: Duration = Duration::from_millis(50);
/// A wall clock that moves by this much against the boot clock was set: a time server corrects far less.
const CLOCK_STEP_MICROS: i64 = 100_000;

/// A peer's clock that is seen this much nearer is noted again, at once; less is below what links differ by.
const NEARER_MICROS: i64 = 500;
/// A peer's clock is noted so often at most.
const CLOCK_PAUSE_MICROS: u64 = 1_000_000;
/// Time for which the nearest sight of a peer's clock counts: clocks drift apart.
const CLOCK_WINDOW_MICROS: u64 = 60_000_000;
/// A clock that goes as before is noted again so often: the oldest notes of a recording go.
const CLOCK_AGAIN_MICROS: u64 = 600_000_000;
/// Clocks are noted again beside a change of leader, unless they were so short a time before.
const CLOCKS_BESIDE_MICROS: u64 = 10_000_000;

/// How far the own boot clock is ahead of that of a peer, and of the time that a message is under way, in microseconds.
pub(super) struct PeerClock {
    noted_micros: i64,
    noted_at_micros: u64,
    /// The least since the window began.
    least_micros: i64,
    window_since_micros: u64,
}

impl PeerClock {
    /// A message says what the peer's clock showed; what is to be noted now, if anything is.
    fn sees(known: &mut Option<PeerClock>, ahead_micros: i64, now_micros: u64) -> Option<i64> {
        let note = |least| PeerClock {
            noted_micros: least,
            noted_at_micros: now_micros,
            least_micros: i64::MAX,
            window_since_micros: now_micros,
        };
        let Some(clock) = known else {
            *known = Some(note(ahead_micros));
            return Some(ahead_micros);
        };
        clock.least_micros = clock.least_micros.min(ahead_micros);
        let least = clock.least_micros;
        let since_note = now_micros.saturating_sub(clock.noted_at_micros);
        let is_nearer = clock.noted_micros.saturating_sub(least) >= NEARER_MICROS && since_note >= CLOCK_PAUSE_MICROS;
        let is_window_over = now_micros.saturating_sub(clock.window_since_micros) >= CLOCK_WINDOW_MICROS;
        if !is_nearer && !is_window_over {
            return None;
        }
        let has_drifted = least.saturating_sub(clock.noted_micros) >= NEARER_MICROS;
        if is_nearer || has_drifted || since_note >= CLOCK_AGAIN_MICROS {
            *clock = note(least);
            return Some(least);
        }
        (clock.least_micros, clock.window_since_micros) = (i64::MAX, now_micros);
        None
    }
}

/// Values at the last look, with which new ones are compared.
pub(super) struct Noting {
    /// Clocks of peers, each since its link came up.
    pub(super) clocks: BTreeMap<NodeId, Option<PeerClock>>,
    /// When all of them were noted beside a change of leader, by the boot clock.
    clocks_noted_at_micros: Cell<u64>,
    /// The wall clock less the boot clock, in microseconds, at the last look.
    clock_offset_micros: i64,
    /// Time that this thread had waited for a processor, in microseconds, at the last look, which is half a second ago at most.
    waited_micros: u64,
    /// The part of it that was waited in this turn until the last look, or shortly before the turn.
    waited_in_turn_micros: u64,
    /// Time that this thread had been on a processor when this turn began.
    ran: Duration,
    voters: Vec<String>,
}

impl Noting {
    /// Takes the wall clock less the boot clock, in microseconds, from before the recording began.
    pub(super) fn new(clock_offset_micros: i64) -> Noting {
        Noting {
            clocks: BTreeMap::new(),
            clocks_noted_at_micros: Cell::new(0),
            clock_offset_micros,
            waited_micros: 0,
            waited_in_turn_micros: 0,
            ran: Duration::ZERO,
            voters: Vec::new(),
        }
    }
}

/// The wall clock less the boot clock, in microseconds.
pub(crate) fn clock_offset_micros() -> i64 {
    let signed = |micros: u64| i64::try_from(micros).unwrap_or(i64::MAX);
    let (boot_micros, unix_micros) = both_clocks_micros();
    signed(unix_micros) - signed(boot_micros)
}

/// Time that this thread has been ready to run and was not run, in microseconds, since it began; 0 where the kernel does not say.
fn waited_micros() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let nanos = text.split_whitespace().nth(1).and_then(|nanos| nanos.parse::<u64>().ok());
    nanos.unwrap_or(0) / 1_000
}

/// Time that this thread has been on a processor since it began.
fn ran() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), u32::try_from(time.tv_nsec).unwrap_or(0))
}

impl<P: Protocol, S: StateMachine> Host<P, S> {
    /// Notes something, if anybody keeps it.
    pub(super) fn mark(&self, mark: impl FnOnce(&Host<P, S>) -> Mark) {
        if let Some(tape) = &self.wiring.tape {
            tape.mark(mark(self));
        }
    }

    /// A member's name; its id while it has no name.
    pub(super) fn name_of(&self, id: NodeId) -> String {
        self.replica.membership().name_of(id)
    }

    /// An operator's request in words.
    pub(super) fn in_words(&self, admin: &Admin) -> String {
        match admin {
            Admin::Campaign => "to campaign".to_owned(),
            Admin::Resign => "to give leadership up".to_owned(),
            Admin::Transfer(to) => format!("to hand leadership to {}", self.name_of(*to)),
            Admin::ForgetLeader => "to forget the leader".to_owned(),
        }
    }

    pub(super) fn mark_transition(&self, transition: &Transition) {
        self.mark_clocks_again();
        self.mark(|host| {
            let heard = host.wiring.counters.peers().into_iter().map(|(peer, counters)| {
                let (reach, silence) = counters.reach.look();
                let is_linked = matches!(reach, Reach::Reachable | Reach::Silent);
                Heard { peer: host.name_of(peer), silence_micros: micros(silence), is_linked }
            });
            Mark::Transition {
                from: transition.from,
                to: transition.to,
                term: transition.term,
                leader: transition.leader.map(|leader| host.name_of(leader)),
                lsn: transition.lsn,
                because: transition.because.by_name(host.replica.membership()),
                heard: heard.collect(),
                disk_busy_micros: micros(host.wiring.disk.busy.busy_for()),
            }
        });
    }

    /// Notes what the boot clock of a peer shows, by a message that it sent at `sent_micros`.
    pub(super) fn mark_clock_of(&mut self, peer: NodeId, sent_micros: u64) {
        if self.wiring.tape.is_none() {
            return;
        }
        let signed = |micros: u64| i64::try_from(micros).unwrap_or(i64::MAX);
        let now_micros = boot_micros();
        let ahead_micros = signed(now_micros) - signed(sent_micros);
        let known = self.noting.clocks.entry(peer).or_default();
        if let Some(ahead_micros) = PeerClock::sees(known, ahead_micros, now_micros) {
            self.mark(|host| Mark::PeerClock { peer: host.name_of(peer), ahead_micros });
        }
    }

    /// Notes all clocks that are known, beside what will be compared by them.
    fn mark_clocks_again(&self) {
        let now_micros = boot_micros();
        if now_micros.saturating_sub(self.noting.clocks_noted_at_micros.get()) < CLOCKS_BESIDE_MICROS {
            return;
        }
        self.noting.clocks_noted_at_micros.set(now_micros);
        for (peer, clock) in &self.noting.clocks {
            if let Some(PeerClock { noted_micros, .. }) = *clock {
                self.mark(|host| Mark::PeerClock { peer: host.name_of(*peer), ahead_micros: noted_micros });
            }
        }
    }

    /// Notes who votes, when that has changed.
    pub(super) fn mark_membership(&mut self) {
        if self.wiring.tape.is_none() {
            return;
        }
        let membership = self.wiring.gatekeeper.borrow().membership.clone();
        let voters = membership.everyone().filter(|id| membership.is_voter(*id));
        let voters: Vec<String> = voters.map(|id| membership.name_of(id)).collect();
        if voters != self.noting.voters {
            let witnesses = membership.all_voters().filter(|id| membership.is_witness(*id));
            let witnesses = witnesses.map(|id| membership.name_of(id)).collect();
            self.noting.voters.clone_from(&voters);
            self.mark(|_| Mark::Membership { voters, witnesses });
        }
    }

    pub(super) fn mark_disk(&self, health: DiskHealth) {
        self.mark(|host| match health {
            DiskHealth::Stalled => Mark::DiskStalled { micros: micros(host.wiring.disk.busy.busy_for()) },
            DiskHealth::Recovered => Mark::DiskRecovered,
        });
    }

    /// Begins a turn, and notes when it begins much later than the loop had asked for.
    pub(super) fn begin_turn(&mut self, wanted: Instant, woken: Instant) {
        let late = woken.saturating_duration_since(wanted);
        if late >= LATE {
            Counters::add(&self.wiring.counters.heartbeats_late, u64::from(self.replica.role() == Role::Leader));
            self.mark_late(late);
        }
        // What it waited until now is told; the turn begins here.
        self.noting.waited_in_turn_micros = 0;
        self.noting.ran = ran();
    }

    /// Ends a turn: counts it, and notes it when it took long or was interrupted.
    pub(super) fn end_turn(&mut self, since: Instant) {
        let took = since.elapsed();
        self.wiring.counters.on_turn(took);
        if took >= LATE {
            let ran = ran().saturating_sub(self.noting.ran).min(took);
            let counters = &self.wiring.counters;
            Counters::add(&counters.turns_long, 1);
            Counters::add(&counters.turns_long_micros, micros(took));
            Counters::add(&counters.turns_long_ran_micros, micros(ran));
            self.mark_late(took);
        }
    }

    /// Notes it with the time that this thread has waited meanwhile.
    fn mark_late(&mut self, late: Duration) {
        self.look_at_waiting();
        let waited_micros = self.noting.waited_in_turn_micros;
        self.mark(|_| Mark::Late { micros: micros(late), waited_micros });
    }

    fn look_at_waiting(&mut self) {
        let waited = waited_micros();
        let since = waited.saturating_sub(std::mem::replace(&mut self.noting.waited_micros, waited));
        self.noting.waited_in_turn_micros += since;
    }

    /// Now and then: how long the loop has waited for a processor, and whether somebody has set the wall clock.
    pub(super) fn watch_clocks(&mut self) {
        self.look_at_waiting();
        self.wiring.counters.loop_waited_micros.store(self.noting.waited_micros, Ordering::Relaxed);
        if self.wiring.tape.is_none() {
            return;
        }
        let offset = clock_offset_micros();
        let step = offset - std::mem::replace(&mut self.noting.clock_offset_micros, offset);
        if step.abs() > CLOCK_STEP_MICROS {
            self.mark(|_| Mark::WallClock { micros: step, ahead_micros: Some(offset) });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a clock is noted when it is first seen, when it is seen nearer, when it has drifted, and now and then; and not each time. Method:
    /// sights every two seconds.
    #[test]
    fn a_clock_is_noted_when_there_is_news() {
        let mut known = None;
        let mut sees = |ahead: i64, seconds: u64| PeerClock::sees(&mut known, ahead, 1_000_000 + seconds * 1_000_000);
        assert_eq!(sees(9_000, 0), Some(9_000));
        assert_eq!(sees(200, 2), Some(200), "the first message had waited");
        let same: Vec<i64> = (2..30).filter_map(|step| sees(300 + step as i64 % 3, step * 2)).collect();
        assert_eq!(same, Vec::<i64>::new());
        assert_eq!(sees(90_000, 60), None, "one that waited says nothing");
        let drifted: Vec<i64> = (31..70).filter_map(|step| sees(2_000, step * 2)).collect();
        assert_eq!(drifted, [2_000], "it has drifted, which shows once no nearer sight is left");
        let again: Vec<i64> = (70..700).filter_map(|step| sees(2_000, step * 2)).collect();
        assert_eq!(again.len(), 2, "every ten minutes");
    }
}
