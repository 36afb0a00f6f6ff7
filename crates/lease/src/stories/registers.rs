//! Majorities are no log: a value that was read vanishes, two win, a clock frees a lock.

use super::{Run, SECOND, Story, TTL, Teller, a, ask, b, desk, heard};
use crate::published::{Reading, Redlock, Register};
use crate::store::{Answer, CandidateId, Profile, Request};
use crate::store_model::StoreModel;
use std::time::Duration;

fn members(replicas: &[usize]) -> String {
    let names: Vec<String> = replicas.iter().map(|replica| format!("s{}", replica + 1)).collect();
    names.join(" ")
}

/// A write that reached one replica is read by a majority, and then not by the next one.
pub(super) fn vanishing_value() -> Story {
    let play = |subject, reading| {
        let mut teller = Teller::of(subject);
        let mut register = Register::new(3, 1);
        teller.says("s1 s2 s3 have x = 1");
        let is_done = register.write(2, 2, &[0]);
        teller
            .says(format!("x = 2 reaches s1, then its writer dies: {}", if is_done { "done" } else { "no majority" }));
        let mut seen = Vec::new();
        for majority in [[0, 1], [1, 2]] {
            let value = register.read(&majority, reading).map(|(_, value)| value);
            teller.says(format!("a client reads from {}: x = {}", members(&majority), value.unwrap_or_default()));
            seen.extend(value);
        }
        let holds = seen.windows(2).all(|pair| pair[0] <= pair[1]);
        teller.end(holds, "who reads later reads no older value", format!("a client saw x = {seen:?}, in this order"))
    };
    Story {
        name: "vanishing-value",
        must_hold: "a value that somebody has read is not gone for whoever reads later",
        broken: play("a register that answers what a majority shows", Reading::AsFound),
        repaired: play("a register that writes back before it answers", Reading::WritesBack),
    }
}

/// Two read "vacant", and both write.
pub(super) fn two_winners() -> Story {
    Story {
        name: "two-winners",
        must_hold: "of two candidates that find the office vacant, one wins",
        broken: read_then_write(),
        repaired: compare_and_swap(),
    }
}

fn winners(teller: Teller, winners: &[CandidateId]) -> Run {
    let names: Vec<&str> = winners.iter().map(|winner| winner.0.as_str()).collect();
    let (held, broke) =
        (format!("{} leads alone", names.join(", ")), format!("{} lead, all at once", names.join(" and ")));
    teller.end(winners.len() == 1, held, broke)
}

fn read_then_write() -> Run {
    let mut teller = Teller::of("the repaired register: read, and write if it is vacant");
    let mut register = Register::<Option<CandidateId>>::new(3, None);
    let mut found = Vec::new();
    for who in [a(), b()] {
        let holder = register.read(&[0, 1, 2], Reading::WritesBack).and_then(|(_, holder)| holder);
        teller.says(format!("{who} reads from s1 s2 s3: {}", holder.as_ref().map_or("vacant", |_| "taken")));
        found.push((who, holder));
    }
    let mut won = Vec::new();
    let vacant = found.into_iter().filter(|(_, holder)| holder.is_none());
    for ((who, _), (version, reaches)) in vacant.zip([(2, [0, 1]), (3, [1, 2])]) {
        let is_done = register.write(Some(who.clone()), version, &reaches);
        teller.says(format!(
            "{who} writes itself to {}: {}",
            members(&reaches),
            if is_done { "done" } else { "failed" }
        ));
        won.extend(is_done.then_some(who));
    }
    winners(teller, &won)
}

fn compare_and_swap() -> Run {
    let mut teller = Teller::of("a record that is swapped through a log, on the version that was seen");
    let mut store = StoreModel::new(Profile::POSTGRES, TTL, 0);
    let mut won = Vec::new();
    let mut desks = [a(), b()].map(|who| (desk(who.clone(), Profile::POSTGRES), who));
    for (desk, who) in &mut desks {
        let answer = ask(&mut store, desk, Request::Look, 0);
        teller.says(format!("{who} looks: {}", if answer == Answer::Gone { "vacant" } else { "taken" }));
    }
    for (desk, who) in &mut desks {
        let answer = ask(&mut store, desk, Request::Contend { over: None }, 0);
        teller.says(format!("{who} swaps \"vacant\" for itself: {}", heard(&answer)));
        won.extend(matches!(answer, Answer::Won(_)).then(|| who.clone()));
    }
    winners(teller, &won)
}

/// The clock of one master jumps, and frees a lock that is held.
pub(super) fn early_master() -> Story {
    Story {
        name: "early-master",
        must_hold: "a lease that is held is given to nobody else, whatever a clock of the store is set to",
        broken: redlock(),
        repaired: log_clock(),
    }
}

fn redlock() -> Run {
    let mut teller = Teller::of("five independent masters, a majority of which is the lock (Redlock)");
    let mut masters = Redlock::new(5, TTL);
    let mut valid = Vec::new();
    let mut acquire = |teller: &mut Teller, masters: &mut Redlock, who: CandidateId, now, reaches: &[usize]| {
        let until = masters.acquire(&who, now, reaches);
        let said = until.map_or("refused".to_owned(), |until| format!("valid until {} s", until / SECOND));
        teller.at(now, format!("{who} asks {}: {said}", members(reaches)));
        valid.extend(until.map(|until| (who, until)));
    };
    acquire(&mut teller, &mut masters, a(), 0, &[0, 1, 2]);
    acquire(&mut teller, &mut masters, b(), SECOND / 2, &[2, 3, 4]);
    masters.set_clock(2, Duration::from_secs(60));
    teller.at(SECOND, "the clock of s3 is set a minute ahead");
    acquire(&mut teller, &mut masters, b(), SECOND, &[2, 3, 4]);
    let holders: Vec<CandidateId> =
        valid.into_iter().filter(|(_, until)| 2 * SECOND < *until).map(|(who, _)| who).collect();
    teller.at(2 * SECOND, format!("{} hold a valid lock", holders.len()));
    winners(teller, &holders)
}

fn log_clock() -> Run {
    let mut teller = Teller::of("one log, whose entries carry the time that has passed");
    let mut store = StoreModel::new(Profile::HUSTINGS, TTL, 0);
    let mut won = Vec::new();
    let mut desks = [desk(a(), Profile::HUSTINGS), desk(b(), Profile::HUSTINGS)];
    let answer = ask(&mut store, &mut desks[0], Request::Contend { over: None }, 0);
    teller.at(0, format!("a asks: {}", heard(&answer)));
    won.extend(matches!(answer, Answer::Won(_)).then(a));
    teller.at(SECOND, "the wall clock of a member is set a minute ahead: no entry carries it");
    let answer = ask(&mut store, &mut desks[1], Request::Contend { over: None }, SECOND);
    teller.at(SECOND, format!("b asks: {}", heard(&answer)));
    won.extend(matches!(answer, Answer::Won(_)).then(b));
    winners(teller, &won)
}
