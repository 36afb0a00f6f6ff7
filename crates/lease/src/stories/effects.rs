//! Stopping takes time, and so does taking office.

use super::{Run, SECOND, Story, TTL, Teller};
use crate::gate::{FenceGate, Memory};
use crate::published::{Office, Stopping};
use crate::timing::{Timing, micros};
use crate::token::Token;

/// A process that cannot renew stops its work.
pub(super) fn late_kill() -> Story {
    Story {
        name: "late-kill",
        must_hold: "the last process of a leader has ended before its successor may begin",
        broken: stopping("stop when the lease is lost", Stopping::AtTheLoss),
        repaired: stopping("stop so early that all has ended before", Stopping::BeforeTheEnd),
    }
}

fn stopping(subject: &'static str, stopping: Stopping) -> Run {
    let mut teller = Teller::of(subject);
    let timing = Timing::default();
    let freed = micros(TTL);
    teller.at(0, "a's last renewal leaves; from here on a is cut off");
    let (begins, ended) = stopping.span(&timing, 0);
    teller.at(begins, "a asks its work to stop, and gives it 2 s");
    let mut then = [(ended, "what had not stopped is killed"), (freed, "the lease is over: b may begin")];
    then.sort_unstable();
    then.iter().for_each(|(at, what)| teller.at(*at, what));
    let late = ended.saturating_sub(freed) as f64 / SECOND as f64;
    teller.end(ended < freed, "one works at a time", format!("for {late:.1} s both work"))
}

/// A leader reads, and then writes what follows from it.
pub(super) fn first_write() -> Story {
    Story {
        name: "first-write",
        must_hold: "what a new leader has read stays true until it writes",
        broken: taking_office("the gate learns the new token with the first write", Office::WithoutRaising),
        repaired: taking_office("the gate is raised before the new leader reads", Office::Raises),
    }
}

fn taking_office(subject: &'static str, office: Office) -> Run {
    let mut teller = Teller::of(subject);
    // A gate in memory cannot fail to open.
    let Ok(mut gate) = FenceGate::open(Memory::default());
    let mut balance = 100;
    let mut write = |teller: &mut Teller, gate: &mut FenceGate<Memory>, who: &str, token, value: i32| {
        let is_admitted = gate.admit(Token::new(token)).is_ok();
        teller.says(format!(
            "{who}, token {token}, writes balance = {value}: {}",
            if is_admitted { "done" } else { "refused" }
        ));
        if is_admitted {
            balance = value;
        }
        balance
    };
    write(&mut teller, &mut gate, "a", 1, 100);
    teller.says("a takes 30 away, and is paused before it writes 70; b is elected, token 2");
    if office == Office::Raises {
        let is_raised = gate.raise(Token::new(2)).is_ok();
        teller.says(format!("b raises the gate: {}", if is_raised { "done" } else { "refused" }));
    }
    let read = 100;
    teller.says(format!("b reads balance = {read}, and takes 50 away"));
    let found = write(&mut teller, &mut gate, "a", 1, 70);
    let is_true = found == read;
    write(&mut teller, &mut gate, "b", 2, read - 50);
    let broke = format!("b wrote {} from {read}, and the balance was {found} by then", read - 50);
    teller.end(is_true, format!("b wrote {} from what was there", read - 50), broke)
}
