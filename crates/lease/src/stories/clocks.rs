//! Clocks are set, stand still, and run on while a process sleeps.

use super::{Run, SECOND, Story, TTL, Teller, a, ask, b, desk, heard};
use crate::candidate::Until;
use crate::gate::{FenceGate, Memory};
use crate::published::{Redlock, SuspendedClock, WallLease};
use crate::schedule::Schedule;
use crate::store::{Answer, Attempt, Profile, Request, Version};
use crate::store_model::StoreModel;
use crate::timing::Timing;
use crate::token::Token;
use std::time::Duration;

/// A holder is paused between its check and its write.
pub(super) fn sleeping_holder() -> Story {
    Story {
        name: "sleeping-holder",
        must_hold: "what a leader writes too late changes nothing",
        broken: checked_then_written(),
        repaired: fenced(),
    }
}

fn last_writer(teller: Teller, written: &[&str]) -> Run {
    let last = written.last().copied().unwrap_or("nobody");
    teller.end(last == "b", "b leads, and b's write stands", format!("b leads, and {last}'s late write stands"))
}

fn checked_then_written() -> Run {
    let mut teller = Teller::of("a lock, checked before the write");
    let mut masters = Redlock::new(5, TTL);
    let mut written = Vec::new();
    let until = masters.acquire(&a(), 0, &[0, 1, 2]).unwrap_or(0);
    teller.at(0, format!("a holds the lock until {} s", until / SECOND));
    let is_checked = SECOND < until;
    teller.at(SECOND, format!("a checks: {}; then its process is paused", if is_checked { "valid" } else { "over" }));
    if masters.acquire(&b(), 11 * SECOND, &[2, 3, 4]).is_some() {
        teller.at(11 * SECOND, "b holds the lock, and writes");
        written.push("b");
    }
    if is_checked {
        teller.at(12 * SECOND, "a goes on behind its check, and writes");
        written.push("a");
    }
    last_writer(teller, &written)
}

fn fenced() -> Run {
    let mut teller = Teller::of("belief by the clock, and a gate at what is written");
    let mut written = Vec::new();
    // A gate in memory cannot fail to open.
    let Ok(mut gate) = FenceGate::open(Memory::default());
    let mut schedule = Schedule::new(&Timing::default());
    schedule.on_ask(Attempt(1), 0);
    schedule.believe(Token::new(1), Until { attempt: Attempt(1), less: Duration::ZERO }, 0);
    let shown = |schedule: &Schedule, now| if schedule.believes(now).is_some() { "I lead" } else { "I lead no more" };
    teller.at(0, "a leads, token 1");
    teller.at(SECOND, format!("a checks: {}; then its process is paused", shown(&schedule, SECOND)));
    let raised = gate.raise(Token::new(2));
    teller.at(
        11 * SECOND,
        format!("b leads, and raises the gate to token 2: {}", said(raised.map_err(|why| why.to_string()))),
    );
    if gate.admit(Token::new(2)).is_ok() {
        teller.at(11 * SECOND, "b writes");
        written.push("b");
    }
    let late = gate.admit(Token::new(1));
    teller.at(
        12 * SECOND,
        format!("a goes on behind its check, and writes: {}", said(late.clone().map_err(|why| why.to_string()))),
    );
    if late.is_ok() {
        written.push("a");
    }
    teller.at(12 * SECOND, format!("a checks again: {}", shown(&schedule, 12 * SECOND)));
    last_writer(teller, &written)
}

fn said(outcome: Result<(), String>) -> String {
    // The first words say it.
    outcome.map_or_else(|why| why.split(':').next().unwrap_or_default().to_owned(), |()| "done".to_owned())
}

/// Somebody sets a wall clock.
pub(super) fn stepped_clock() -> Story {
    Story {
        name: "stepped-clock",
        must_hold: "a clock that is set makes nobody a second leader",
        broken: wall_lease(),
        repaired: observed_versions(),
    }
}

fn wall_lease() -> Run {
    let mut teller = Teller::of("a record with the time of its renewal, judged by everybody's wall clock");
    let mut record = WallLease::new(TTL);
    let is_held = record.acquire(&a(), 0);
    teller.at(0, format!("a takes the record: {is_held}"));
    teller.at(SECOND, "b's wall clock is set a minute ahead");
    let is_taken = record.acquire(&b(), 61 * SECOND);
    teller.at(SECOND, format!("b finds it a minute old and takes it: {is_taken}"));
    let believes = record.believes(0, SECOND);
    teller.at(SECOND, format!("a looks at its own clock: {}", if believes { "I lead" } else { "I lead no more" }));
    teller.end(!(is_taken && believes), "one leads", "a and b lead, both by the book")
}

fn observed_versions() -> Run {
    let mut teller = Teller::of("a record whose versions everybody watches, each by a clock that nobody sets");
    let mut store = StoreModel::new(Profile::KUBERNETES, TTL, 0);
    let (mut first, mut second) = (desk(a(), Profile::KUBERNETES), desk(b(), Profile::KUBERNETES));
    let won = ask(&mut store, &mut first, Request::Contend { over: None }, 0);
    teller.at(0, format!("a takes the record: {}", heard(&won)));
    let seen = Version(store.revision());
    teller.at(SECOND, format!("b's wall clock is set; b goes on waiting for version {} to stand 10 s", seen.0));
    let renewed = ask(&mut store, &mut first, Request::Renew, 9 * SECOND);
    teller.at(9 * SECOND, format!("a renews: {}, version {} now", heard(&renewed), store.revision()));
    let swapped = ask(&mut store, &mut second, Request::Contend { over: Some(seen) }, 10 * SECOND);
    teller.at(10 * SECOND, format!("a hasty b swaps on version {}: {}", seen.0, heard(&swapped)));
    teller.end(!matches!(swapped, Answer::Won(_)), "a leads alone", "a and b lead")
}

/// A machine is suspended and goes on.
pub(super) fn suspended_host() -> Story {
    Story {
        name: "suspended-host",
        must_hold: "who was asleep while its lease ended knows it at once",
        broken: after_suspend("the monotonic clock, which is what `Instant` reads", SuspendedClock::Monotonic),
        repaired: after_suspend("the boot-time clock, which runs on in suspend", SuspendedClock::Boot),
    }
}

fn after_suspend(subject: &'static str, clock: SuspendedClock) -> Run {
    let mut teller = Teller::of(subject);
    let mut schedule = Schedule::new(&Timing::default());
    let sent = clock.read(100 * SECOND, 0);
    schedule.on_ask(Attempt(1), sent);
    schedule.believe(Token::new(1), Until { attempt: Attempt(1), less: Duration::ZERO }, sent);
    teller.at(100 * SECOND, format!("a renews its lease of 10 s; its clock reads {} s", sent / SECOND));
    teller.at(101 * SECOND, "a's machine is suspended");
    teller.at(110 * SECOND, "the lease is over: b leads");
    let now = clock.read(161 * SECOND, 60 * SECOND);
    let believes = schedule.believes(now).is_some();
    let said = if believes { "I lead" } else { "I lead no more" };
    teller.at(161 * SECOND, format!("a's machine goes on; its clock reads {} s: {said}", now / SECOND));
    teller.end(!believes, "b leads alone", "a and b lead")
}
