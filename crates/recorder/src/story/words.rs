//! A story in plain sentences.

use super::{Cause, Reign, Story};
use crate::mark::Mark;

/// The time of day in UTC, with milliseconds: `20:34:05.383`.
pub fn clock_time(unix_micros: u64) -> String {
    let millis = unix_micros / 1_000;
    let (seconds, millis) = (millis / 1_000, millis % 1_000);
    let (hours, minutes, seconds) = (seconds / 3_600 % 24, seconds / 60 % 60, seconds % 60);
    format!("{hours:02}:{minutes:02}:{seconds:02}.{millis:03}")
}

/// `less than 0.1 ms`, `0.2 ms`, `35 ms`, `2.3 s`, `4 min`.
pub(super) fn lasting(micros: u64) -> String {
    match micros {
        0..100 => "less than 0.1 ms".to_owned(),
        100..10_000 => format!("{}.{} ms", micros / 1_000, micros % 1_000 / 100),
        10_000..1_000_000 => format!("{} ms", micros / 1_000),
        1_000_000..120_000_000 => format!("{}.{} s", micros / 1_000_000, micros % 1_000_000 / 100_000),
        _ => format!("{} min", micros / 60_000_000),
    }
}

fn listed(names: &[String]) -> String {
    match names {
        [] => String::new(),
        [one] => one.clone(),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
    }
}

/// `n2 (its process has died) and n3 (not heard for 650 ms)`.
fn missed_by(missed: &[(String, String)]) -> String {
    let each: Vec<String> = missed.iter().map(|(who, why)| format!("{who} ({why})")).collect();
    listed(&each)
}

/// The story in sentences, in order.
pub(super) fn sentences(story: &Story) -> Vec<String> {
    let Story { before, after, causes, gap_micros, election_micros, ended, missing, damaged, left_out, clocks, .. } =
        story;
    let mut told = Vec::new();
    // Others hear of it later than it begins.
    let is_heard_of = after.is_heard_of();
    let since = if is_heard_of { "since, at the latest," } else { "since" };
    let reign = match after.until_micros.filter(|_| ended.is_some()) {
        Some(until) => format!(
            "{} led term {} from {} until {}",
            after.leader,
            after.term,
            clock_time(after.since_micros),
            clock_time(until)
        ),
        None => format!("{} leads term {} {since} {}", after.leader, after.term, clock_time(after.since_micros)),
    };
    match before {
        None => told.push(format!("{reign}, the first leader that is noted: {}.", after.because)),
        Some(before) => {
            let until = before.until_micros.unwrap_or(after.since_micros);
            let why = causes.first().map_or(String::new(), |cause| decisive(cause, before, after));
            told.push(format!("{} led term {} until {}{why}.", before.leader, before.term, clock_time(until)));
            told.extend(causes.iter().skip(1).map(|cause| circumstance(cause, before)));
            let election = election_micros.map(|micros| format!("; its election took {}", lasting(micros)));
            told.push(format!("{reign}: {}{}.", after.because, election.unwrap_or_default()));
            let bound = if is_heard_of { "at most " } else { "" };
            told.push(format!("For {bound}{} nobody led.", lasting(*gap_micros)));
        }
    }
    if let Some(why) = ended {
        told.push(format!("Nobody is noted to lead since then, when {why}."));
    }
    if !missing.is_empty() {
        let names: Vec<String> = missing.iter().cloned().collect();
        told.push(format!("What {} noted is not here: it would say more.", listed(&names)));
    }
    told.extend(damaged.iter().map(|(name, what)| {
        format!("The recording of {name} is damaged ({what}): some of what it noted cannot be read, and may say more.")
    }));
    told.extend(clocks.iter().map(|(name, ahead)| {
        let more = if *ahead > 0 { "more" } else { "less" };
        // To a millisecond: no more is known.
        let apart = (ahead.unsigned_abs() + 500) / 1_000 * 1_000;
        format!("The wall clock of {name} shows {} {more} than the times told here.", lasting(apart))
    }));
    if !left_out.is_empty() {
        let names: Vec<String> = left_out.iter().cloned().collect();
        told.push(format!(
            "Recordings of {} are here too, and of another cluster: nothing is told of them.",
            listed(&names)
        ));
    }
    told
}

fn decisive(cause: &Cause, before: &Reign, after: &Reign) -> String {
    let leader = &before.leader;
    match cause {
        Cause::HandedOver { what } => format!(": it had been asked {what}"),
        Cause::Stopped => ", when its process was told to stop".to_owned(),
        Cause::Upgraded { from, to } => {
            format!(", when its process was told to stop; {to} came after {from}")
        }
        Cause::Killed { seen_by } => {
            let mut names: Vec<String> = seen_by.iter().map(|(who, _, _)| who.clone()).collect();
            names.dedup();
            let within = seen_by.iter().map(|(_, _, after)| *after).max().unwrap_or(0);
            let why = seen_by.first().map_or("", |(_, why, _)| why.as_str());
            match names.len() {
                0 => ", when its process was killed or ended without a word".to_owned(),
                1 => format!(", when its process was killed: {} saw its link end ({why})", names[0]),
                _ => format!(
                    ", when its process was killed: {} saw their links end within {} ({why})",
                    listed(&names),
                    lasting(within)
                ),
            }
        }
        Cause::PowerLost { is_everybody: true } => {
            ", when all members ended at once, as when the power is lost".to_owned()
        }
        Cause::PowerLost { is_everybody: false } => ", when its machine ended; it has started again since".to_owned(),
        Cause::Failed { why } => format!(", when its process ended itself: {why}"),
        Cause::DiskStalled { micros } => {
            format!(", when it gave way because its disk had not answered for {}", lasting(*micros))
        }
        Cause::Paused { who, micros } => {
            format!(", when the process of {who} stood still for {}", lasting(*micros))
        }
        Cause::Starved { who, micros } => format!(
            ", when {who} could have run and got no processor for {}: its machine was busy with something else",
            lasting(*micros)
        ),
        Cause::Away { who, micros } => format!(", when no process of {who} ran for {}", lasting(*micros)),
        Cause::Cut { deaf, is_one_way: true, silence_micros } => format!(
            ", when {deaf} had heard nothing from {leader} for {}, which still heard {deaf}: the network was cut in one direction",
            lasting(*silence_micros)
        ),
        Cause::Cut { deaf, is_one_way: false, silence_micros } => format!(
            ", when {deaf} had heard nothing from {leader} for {}, while its process ran: the network was cut",
            lasting(*silence_micros)
        ),
        Cause::LinkEnded { deaf, why } if before.is_heard_of() => format!(
            ", when the connection of {deaf} to it ended ({why}): whether its process ended or ran on, its own notes would say, which are not here"
        ),
        Cause::LinkEnded { deaf, why } => format!(
            ", when the connection of {deaf} to it ended, though both ran: something between them ends connections ({why})"
        ),
        Cause::Silent { deaf, silence_micros } => {
            let unseen = if before.is_heard_of() { "; its own notes are not here" } else { "" };
            format!(
                ", when {deaf} had heard nothing from it for {}: its process, its machine or the network stood still{unseen}",
                lasting(*silence_micros)
            )
        }
        Cause::QuorumLost { missed } => match missed.is_empty() {
            true => ", when it heard no quorum any more".to_owned(),
            false => format!(", when it heard no quorum any more: it missed {}", missed_by(missed)),
        },
        Cause::Removed => ", when it was removed from the voters".to_owned(),
        Cause::Preferred { who } => format!(", when it gave way to {who}, which is preferred to it"),
        Cause::GaveWay { who } => {
            format!(", when it handed over to {who}; why it did so stands in its own notes, which are not here")
        }
        Cause::Caretaker { who } => format!(
            ", when {who} had all that it held: it is a witness, which leads as a caretaker for no longer than that"
        ),
        Cause::Unknown { .. } => {
            format!("; what was noted does not say why it ended, {} only says: {}", after.leader, after.because)
        }
    }
}

fn circumstance(cause: &Cause, before: &Reign) -> String {
    let leader = &before.leader;
    match cause {
        Cause::DiskStalled { micros } => {
            format!("Before that the disk of {leader} had not answered for {}.", lasting(*micros))
        }
        Cause::Paused { who, micros } => format!("The process of {who} stood still for {}.", lasting(*micros)),
        Cause::Starved { who, micros } => format!("{who} got no processor for {}.", lasting(*micros)),
        Cause::Away { who, micros } => {
            format!("For {} of the time after that no process of {who} ran.", lasting(*micros))
        }
        Cause::HandedOver { what } => format!("{leader} had been asked {what}."),
        Cause::Stopped | Cause::Upgraded { .. } => format!("The process of {leader} had been told to stop."),
        Cause::Killed { .. } => format!("The process of {leader} was killed."),
        Cause::PowerLost { .. } => format!("The machine of {leader} ended."),
        Cause::Failed { why } => format!("The process of {leader} ended itself: {why}."),
        Cause::Cut { deaf, .. } | Cause::Silent { deaf, .. } => format!("{deaf} did not hear {leader}."),
        Cause::LinkEnded { deaf, .. } => format!("The connection of {deaf} to {leader} had ended."),
        Cause::QuorumLost { .. } => format!("{leader} heard no quorum any more."),
        Cause::Removed => format!("{leader} had been removed from the voters."),
        Cause::Preferred { who } => format!("{who} is preferred."),
        Cause::GaveWay { who } => format!("{leader} handed over to {who}."),
        Cause::Caretaker { who } => format!("{leader} is a witness and gave way to {who}."),
        Cause::Unknown { because } => format!("It said: {because}."),
    }
}

/// The mark as a sentence.
pub(crate) fn of_mark(mark: &Mark) -> String {
    match mark {
        Mark::Transition { from, to, term, leader, because, .. } => {
            let leader = leader.as_ref().map(|leader| format!(", leader {leader}")).unwrap_or_default();
            match from == to {
                true => format!("stays {to} in term {term}{leader}: {because}"),
                false => format!("{from} → {to} in term {term}{leader}: {because}"),
            }
        }
        Mark::LinkUp { peer } => format!("the link to {peer} is up"),
        Mark::LinkDown { peer, why } => format!("the link to {peer} ends: {why}"),
        Mark::SlowSync { micros } => format!("a write to its disk took {}", lasting(*micros)),
        Mark::DiskStalled { micros } => format!("its disk has not answered for {}", lasting(*micros)),
        Mark::DiskRecovered => "its disk answers again".to_owned(),
        Mark::Late { micros, waited_micros } => match waited_micros * 2 > *micros {
            true => format!("its loop ran {} late: it got no processor", lasting(*micros)),
            false => format!("its loop ran {} late: it stood still", lasting(*micros)),
        },
        Mark::WallClock { micros, .. } => {
            let way = if *micros < 0 { "back" } else { "forward" };
            format!("its wall clock was set {way} by {}", lasting(micros.unsigned_abs()))
        }
        Mark::PeerClock { peer, .. } => format!("the clock of {peer} is known"),
        Mark::Asked { what } => format!("is asked {what}"),
        Mark::Membership { voters, witnesses } if witnesses.is_empty() => format!("the voters are {}", listed(voters)),
        Mark::Membership { voters, witnesses } => {
            format!("the voters are {}; without a state {}", listed(voters), listed(witnesses))
        }
        Mark::Stopping => "is told to stop".to_owned(),
        Mark::Ended { why } => format!("ends itself: {why}"),
        Mark::Ran => "it runs".to_owned(),
        Mark::Lost { .. } => "could not note everything".to_owned(),
    }
}
