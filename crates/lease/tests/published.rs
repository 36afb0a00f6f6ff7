//! Goal: why the usual forms are not enough. Method: each story is told twice, broken and repaired.

use hustings_lease::gate::{Barred, Memory};
use hustings_lease::published::{Office, Reading, Redlock, Register, Stopping, SuspendedClock, WallLease};
use hustings_lease::{
    Answer, Attempt, CandidateId, Desk, FenceGate, Profile, Request, Schedule, StoreModel, Timing, Token, Until,
    Version,
};
use std::time::Duration;

const SECOND: u64 = 1_000_000;

fn a() -> CandidateId {
    CandidateId::named("a")
}

fn b() -> CandidateId {
    CandidateId::named("b")
}

fn ten_seconds() -> Duration {
    Duration::from_secs(10)
}

/// A write of 2 reaches s1 alone; {s1, s2} are read; s1 leaves; {s2, s3} are read.
fn two_reads(reading: Reading) -> [u64; 2] {
    let mut register = Register::new(3, 1);
    assert!(!register.write(2, 2, &[0]), "one of three is no majority");
    [&[0, 1], &[1, 2]].map(|majority| register.read(majority, reading).expect("a majority").1)
}

#[test]
fn vanishing_value() {
    assert_eq!(two_reads(Reading::AsFound), [2, 1], "what was read once is gone");
    assert_eq!(two_reads(Reading::WritesBack), [2, 2]);
}

#[test]
fn two_winners() {
    // Broken: both read "vacant" of the repaired register, and both write to a majority.
    let mut register = Register::new(3, None);
    let seen = [(); 2].map(|()| register.read(&[0, 1, 2], Reading::WritesBack).expect("a majority"));
    assert!(seen.iter().all(|(_, holder)| holder.is_none()));
    let wrote = [register.write(Some(a()), 2, &[0, 1]), register.write(Some(b()), 3, &[1, 2])];
    assert_eq!(wrote, [true, true], "both were told that they are the leader");
    // Repaired: both swap on what they saw, and one is refused.
    let mut store = StoreModel::new(Profile::POSTGRES, ten_seconds(), 0);
    let answers = [a(), b()].map(|id| {
        let command = Desk::new(id, Profile::POSTGRES, 0).command(Request::Contend { over: None });
        store.execute(&command, 0).expect("it is connected").answer
    });
    assert!(matches!(answers, [Answer::Won(_), Answer::Refused(_)]), "{answers:?}");
}

#[test]
fn sleeping_holder() {
    // Broken: a has a majority, sleeps past its time, and writes; b leads by then, and nobody refuses a.
    let mut redlock = Redlock::new(5, ten_seconds());
    let valid = redlock.acquire(&a(), 0, &[0, 1, 2]).expect("a majority");
    let checked = SECOND;
    assert!(checked < valid, "a checks, and sleeps between the check and the write");
    assert!(redlock.acquire(&b(), 11 * SECOND, &[2, 3, 4]).is_some(), "b leads");
    let mut written = vec!["b"];
    written.push("a");
    assert_eq!(written, ["b", "a"], "a's write comes last, and stays");
    // Repaired: on waking the belief is over by the clock, and what left before is refused by the gate.
    let timing = Timing::default();
    let mut schedule = Schedule::new(&timing);
    schedule.on_ask(Attempt(1), 0);
    assert!(schedule.believe(Token::new(1), Until { attempt: Attempt(1), less: Duration::ZERO }, 0));
    assert_eq!(schedule.believes(11 * SECOND), None);
    let mut gate = FenceGate::open(Memory::default()).expect("memory does not fail");
    assert_eq!(gate.raise(Token::new(2)), Ok(()), "b takes office");
    assert!(matches!(gate.admit(Token::new(1)), Err(Barred::Late { .. })));
}

#[test]
fn early_master() {
    // Broken: a holds s1 to s3; the clock of s3 jumps; b gets s3 to s5, and both locks are valid.
    let mut redlock = Redlock::new(5, ten_seconds());
    let a_until = redlock.acquire(&a(), 0, &[0, 1, 2]).expect("a majority");
    redlock.set_clock(2, Duration::from_secs(60));
    let b_until = redlock.acquire(&b(), SECOND, &[2, 3, 4]).expect("another majority");
    assert!(2 * SECOND < a_until.min(b_until), "two leaders at two seconds");
    // Repaired: the store has one clock, its log's, which nobody sets; b waits.
    let mut store = StoreModel::new(Profile::HUSTINGS, ten_seconds(), 0);
    let mut contend = |id, now| {
        let command = Desk::new(id, Profile::HUSTINGS, 0).command(Request::Contend { over: None });
        store.execute(&command, now).expect("it is connected").answer
    };
    assert!(matches!(contend(a(), 0), Answer::Won(_)));
    assert!(matches!(contend(b(), SECOND), Answer::Waiting(_)));
}

#[test]
fn stepped_clock() {
    // Broken: b's wall clock is set a minute ahead, and a's lease has ended for b alone.
    let mut lease = WallLease::new(ten_seconds());
    assert!(lease.acquire(&a(), 0));
    assert!(lease.acquire(&b(), 61 * SECOND), "true time is 1 s");
    assert!(lease.believes(0, SECOND), "a believes, too");
    // Repaired: b waits ten seconds of its own on a version, and a's next renewal makes another one.
    let mut store = StoreModel::new(Profile::KUBERNETES, ten_seconds(), 0);
    let mut desk = Desk::new(a(), Profile::KUBERNETES, 0);
    let contend = desk.command(Request::Contend { over: None });
    let won = store.execute(&contend, 0).expect("it is connected");
    desk.on_reply(&contend, won);
    let seen = Version(store.revision());
    store.execute(&desk.command(Request::Renew), 9 * SECOND).expect("it is connected");
    let swap = Desk::new(b(), Profile::KUBERNETES, 0).command(Request::Contend { over: Some(seen) });
    assert!(matches!(store.execute(&swap, 10 * SECOND).expect("it is connected").answer, Answer::Refused(_)));
}

/// Whether a leader believes that renewed at 100 s after its boot and whose machine was then suspended for a minute.
fn believes_after_suspend(clock: SuspendedClock) -> bool {
    let mut schedule = Schedule::new(&Timing::default());
    let sent = clock.read(100 * SECOND, 0);
    schedule.on_ask(Attempt(1), sent);
    schedule.believe(Token::new(1), Until { attempt: Attempt(1), less: Duration::ZERO }, sent);
    schedule.believes(clock.read(161 * SECOND, 60 * SECOND)).is_some()
}

#[test]
fn suspended_host() {
    assert!(believes_after_suspend(SuspendedClock::Monotonic), "it believes in a lease that ended long ago");
    assert!(!believes_after_suspend(SuspendedClock::Boot));
}

#[test]
fn late_kill() {
    let timing = Timing::default();
    let freed = 10 * SECOND;
    let (_, ended) = Stopping::AtTheLoss.span(&timing, 0);
    assert!(ended > freed, "the last process ends {} us after the successor may have begun", ended - freed);
    let (began, ended) = Stopping::BeforeTheEnd.span(&timing, 0);
    assert!(ended < freed && began < ended);
}

/// The predecessor's write of tenure 1 is late; tenure 2 reads, then the write comes, then tenure 2 writes.
fn is_late_write_admitted(office: Office) -> bool {
    let mut gate = FenceGate::open(Memory::default()).expect("memory does not fail");
    gate.admit(Token::new(1)).expect("the predecessor leads");
    if office == Office::Raises {
        gate.raise(Token::new(2)).expect("nobody is later");
    }
    gate.admit(Token::new(1)).is_ok()
}

#[test]
fn first_write() {
    assert!(is_late_write_admitted(Office::WithoutRaising), "what the successor has read is no longer true");
    assert!(!is_late_write_admitted(Office::Raises));
}

/// Goal: the page that tells the stories shows what is played, both forms of each, and nothing that is not. Method: its transcripts are
/// read as rows of two columns, and laid beside those that are played now.
#[test]
fn the_page_shows_both_forms_of_every_story_side_by_side() {
    let page = include_str!("../../../docs/why-quorum-reads-are-not-enough.md");
    let mut shown: Vec<[Vec<String>; 2]> = Vec::new();
    for block in page.split("```text\n").skip(1) {
        let rows: Vec<&str> = block.split("```").next().unwrap_or_default().lines().collect();
        let second = rows[0].find("repaired: ").expect("the second column begins with its form");
        let column = |of: fn(&str, usize) -> &str| {
            let cells = rows.iter().skip(1).map(|row| of(row, second).trim_end().to_owned());
            cells.filter(|cell| !cell.is_empty()).collect::<Vec<String>>()
        };
        shown.push([column(|row, at| &row[..at.min(row.len())]), column(|row, at| row.get(at..).unwrap_or_default())]);
    }
    let played: Vec<[Vec<String>; 2]> = hustings_lease::stories::all()
        .into_iter()
        .map(|story| {
            [story.broken, story.repaired].map(|run| run.to_string().lines().skip(1).map(str::to_owned).collect())
        })
        .collect();
    assert_eq!(shown, played);
}
