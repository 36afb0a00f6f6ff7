//! Causes of the end of a reign: [`of`], and the [`Cause`]s that there are.

mod ends;
mod links;
mod quorum;

use super::{Reign, Timeline};
use crate::mark::Mark;
use hustings_core::Role;

/// The reason why leadership moved.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Cause {
    /// An operator, or the member itself on its way out, handed leadership over.
    HandedOver {
        /// The request, in words.
        what: String,
    },
    /// The leader's process was told to stop.
    Stopped,
    /// The same, and a process of another build came after it.
    Upgraded {
        /// Version of the build before.
        from: String,
        /// Version of the build after.
        to: String,
    },
    /// The leader's process ended without a word: somebody killed it.
    Killed {
        /// Members that saw its links end: name, the kernel's reason, and delay after the first, in microseconds.
        seen_by: Vec<(String, String, u64)>,
    },
    /// The machine of the leader, or all machines, lost their power, or their kernel ended.
    PowerLost {
        /// Whether all members ended, so that nobody was left.
        is_everybody: bool,
    },
    /// The leader's process ended itself.
    Failed {
        /// The reason that it noted.
        why: String,
    },
    /// The leader's disk did not answer.
    DiskStalled {
        /// Time without an answer, in microseconds, as far as it was noted.
        micros: u64,
    },
    /// The loop of a member did not run: its process or its machine stood still.
    Paused {
        /// Name of the member.
        who: String,
        /// Length of the pause, in microseconds.
        micros: u64,
    },
    /// The loop of a member could have run, and the machine was busy with others.
    Starved {
        /// Name of the member.
        who: String,
        /// Length of the pause, in microseconds.
        micros: u64,
    },
    /// No process of a member ran while nobody led, and without it there was no majority.
    Away {
        /// Name of the member.
        who: String,
        /// For how long nobody led meanwhile, in microseconds.
        micros: u64,
    },
    /// The leader ran, and was not heard.
    Cut {
        /// Name of the member that did not hear it.
        deaf: String,
        /// Whether the leader still heard that member: the network was cut in one direction.
        is_one_way: bool,
        /// Time since the leader was last heard, in microseconds.
        silence_micros: u64,
    },
    /// The leader was heard, and the connection to it ended. It ran, where its own notes are here.
    LinkEnded {
        /// Name of the member whose link ended.
        deaf: String,
        /// The reason that member noted for the end.
        why: String,
    },
    /// The leader was not heard, and what it noted itself is not here.
    Silent {
        /// Name of the member that did not hear it.
        deaf: String,
        /// Time since the leader was last heard, in microseconds.
        silence_micros: u64,
    },
    /// The leader heard no quorum any more, and gave way.
    QuorumLost {
        /// Members that it missed: name, and what it noted of each.
        missed: Vec<(String, String)>,
    },
    /// The leader is no longer a voter.
    Removed,
    /// Another member is to lead when it can.
    Preferred {
        /// Name of that member.
        who: String,
    },
    /// The leader handed over, and why it did so was noted where nobody can read it.
    GaveWay {
        /// Name of its successor.
        who: String,
    },
    /// The leader was a witness, and another member has all that it alone held.
    Caretaker {
        /// Name of that member.
        who: String,
    },
    /// The notes do not explain it.
    Unknown {
        /// The reason that the new leader gave when it began.
        because: String,
    },
}

impl Cause {
    /// The member whose loop did not run, if that is the cause.
    fn who_stood_still(&self) -> Option<&str> {
        match self {
            Cause::Paused { who, .. } | Cause::Starved { who, .. } => Some(who),
            _ => None,
        }
    }

    /// The cause in one word, for programs.
    pub fn word(&self) -> &'static str {
        match self {
            Cause::HandedOver { .. } => "handed-over",
            Cause::Stopped => "stopped",
            Cause::Upgraded { .. } => "upgraded",
            Cause::Killed { .. } => "killed",
            Cause::PowerLost { .. } => "power-lost",
            Cause::Failed { .. } => "failed",
            Cause::DiskStalled { .. } => "disk-stalled",
            Cause::Paused { .. } => "paused",
            Cause::Starved { .. } => "starved",
            Cause::Away { .. } => "away",
            Cause::Cut { .. } => "cut",
            Cause::LinkEnded { .. } => "link-ended",
            Cause::Silent { .. } => "silent",
            Cause::QuorumLost { .. } => "quorum-lost",
            Cause::Removed => "removed",
            Cause::Preferred { .. } => "preferred",
            Cause::GaveWay { .. } => "gave-way",
            Cause::Caretaker { .. } => "caretaker",
            Cause::Unknown { .. } => "unknown",
        }
    }
}

/// The causes of a change, and its times.
pub(super) struct Found {
    pub(super) causes: Vec<Cause>,
    /// Time when the old leader ended, or was not heard any more.
    pub(super) until_micros: u64,
    /// Time when the first of it was noted.
    pub(super) since_micros: Option<u64>,
}

/// An operator's request leads to something within this time.
const REQUEST_MICROS: u64 = 15_000_000;
/// A disk or a pause so long before the end may have to do with it.
const CIRCUMSTANCE_MICROS: u64 = 10_000_000;
/// A process whose last note is so much older than what others noted has ended: heartbeats alone are noted more often.
const ENDED_AFTER_MICROS: u64 = 2_000_000;
/// A leader that was not heard for so long before its end had stood still before.
const SILENT_MICROS: u64 = 200_000;
/// A leader that was not heard for so long was missed: heartbeats come more often.
const MISSED_MICROS: u64 = 100_000;
/// All notes of one end are made within this time.
const TOGETHER_MICROS: u64 = 1_000_000;
/// Processes whose last notes are no further apart ended at once: what each noted in its last quarter of a second may be missing.
const AT_ONCE_MICROS: u64 = 500_000;

/// Explains the end of one reign before the beginning of the next.
pub(super) fn of(line: &Timeline<'_>, before: &Reign, after: &Reign) -> Found {
    let case = Case { line, before, after, stalls: stalls(line) };
    let stepped_down = case.step_down();
    let mut causes = Vec::new();
    causes.extend(case.request());
    // A member that was removed ends itself, for that.
    causes.extend(case.removal().or_else(|| case.failure()));
    if causes.is_empty() && !case.has_given_way_to_its_disk() {
        causes.extend(case.preference());
    }
    let ended = causes.is_empty().then(|| case.end()).flatten();
    let until_micros = match &ended {
        Some((until, _)) => *until,
        None => stepped_down
            .or_else(|| case.own_end(&causes))
            .unwrap_or_else(|| case.last_heard().unwrap_or(after.since_micros)),
    };
    if let Some((_, cause)) = ended {
        if matches!(cause, Cause::Killed { .. }) {
            causes.extend(case.silence_before_the_kill());
        }
        causes.push(cause);
    }
    if causes.is_empty() {
        causes.extend(case.death_of_others());
    }
    let disk = case.disk(until_micros);
    let has_given_way = case.has_given_way_to_its_disk();
    match disk {
        Some(disk) if has_given_way => causes.insert(0, disk),
        Some(disk) => causes.push(disk),
        None => {}
    }
    if !causes.iter().any(|cause| !matches!(cause, Cause::DiskStalled { .. })) && !has_given_way {
        causes.extend(case.stillness());
    }
    if causes.is_empty() {
        causes.extend(case.stillness_of_others());
    }
    if causes.is_empty() || case.is_only_a_circumstance(&causes, has_given_way) {
        let unknown = || Cause::Unknown { because: after.because.clone() };
        let rest = case.cut().or_else(|| causes.is_empty().then(|| case.silence_of_others().unwrap_or_else(unknown)));
        causes.splice(0..0, rest);
    }
    let until_micros = case.stillness_of_its_own(&causes).map_or(until_micros, |from| from.min(until_micros));
    if !causes.iter().any(|cause| matches!(cause, Cause::PowerLost { .. })) {
        let is_told = |who: &str| causes.iter().any(|cause| cause.who_stood_still() == Some(who));
        let has_ended = |cause: &Cause| matches!(cause, Cause::Killed { .. } | Cause::Failed { .. } | Cause::Stopped);
        let stands_still = |cause: &Cause| cause.who_stood_still() == Some(&before.leader);
        let is_gone = causes.iter().any(|cause| has_ended(cause) || stands_still(cause));
        // One that was started again at once could have voted.
        let middle = u64::midpoint(until_micros, after.since_micros);
        let is_back = case.begins_again().is_some_and(|begun| begun < middle);
        let mut meanwhile = case.missing_meanwhile(until_micros, is_gone && !is_back);
        meanwhile.retain(|cause| !cause.who_stood_still().is_some_and(is_told));
        causes.extend(meanwhile);
    }
    let since_micros = Some(until_micros.min(after.since_micros));
    Found { causes, until_micros, since_micros }
}

/// The cause that a loop ran late: it had been stopped, or got no processor.
fn stood_still(who: &str, micros: u64, waited_micros: u64) -> Cause {
    let who = who.to_owned();
    match waited_micros * 2 > micros {
        true => Cause::Starved { who, micros },
        false => Cause::Paused { who, micros },
    }
}

/// A time in which the loop of a life did not run.
struct Stall {
    life: usize,
    from: u64,
    until: u64,
}

fn stalls(line: &Timeline<'_>) -> Vec<Stall> {
    let late = line.seen.iter().filter_map(|seen| match seen.mark {
        Mark::Late { micros, .. } => {
            Some(Stall { life: seen.life, from: seen.at.saturating_sub(*micros), until: seen.at })
        }
        _ => None,
    });
    late.collect()
}

/// A link to the old leader that ended, as one life noted it.
struct BrokenLink<'a> {
    life: usize,
    why: &'a str,
    at: u64,
}

struct Case<'a, 'b> {
    line: &'a Timeline<'b>,
    before: &'a Reign,
    after: &'a Reign,
    stalls: Vec<Stall>,
}

impl Case<'_, '_> {
    /// Time when the old leader noted that it leads no more, if it did before or soon after the next one began.
    fn step_down(&self) -> Option<u64> {
        self.before.until_micros.filter(|until| *until <= self.after.since_micros)
    }

    fn step_down_because(&self) -> Option<&str> {
        let until = self.before.until_micros?;
        self.line.of_life(self.before.life, until, until).find_map(|seen| match seen.mark {
            Mark::Transition { from: Role::Leader, because, .. } => Some(because.as_str()),
            _ => None,
        })
    }

    /// The request of an operator that led to the change, if there was one.
    fn request(&self) -> Option<Cause> {
        // Before its end: a member that was stopped may be started again, and follow itself, any time later.
        let last = self.before.life.map_or(u64::MAX, |life| self.line.span(life).1);
        let ended = self.before.until_micros.unwrap_or(last).min(self.after.since_micros);
        let from = ended.saturating_sub(REQUEST_MICROS).max(self.before.since_micros);
        let asked = self.line.of_life(self.before.life, from, self.after.since_micros);
        let is_request = |mark: &&Mark| match mark {
            Mark::Stopping => true,
            Mark::Asked { what } => what.contains("leadership") && self.has_given_way_when_asked(),
            _ => false,
        };
        // A process that is told to stop asks itself to hand over: the first of both says why.
        match asked.map(|seen| seen.mark).find(is_request) {
            Some(Mark::Stopping) => {
                let build = |life: usize| self.line.lives[life].life.build.clone();
                let life = self.before.life?;
                let from = build(life);
                Some(match self.line.next_life(life).map(build) {
                    Some(to) if to != from => Cause::Upgraded { from, to },
                    _ => Cause::Stopped,
                })
            }
            Some(Mark::Asked { what }) => Some(Cause::HandedOver { what: what.clone() }),
            _ => {
                let asked = self.line.of_life(self.after.life, from, self.after.since_micros);
                asked.map(|seen| seen.mark).find_map(|mark| match mark {
                    Mark::Asked { what } if what.contains("campaign") => Some(Cause::HandedOver { what: what.clone() }),
                    _ => None,
                })
            }
        }
    }

    /// Whether leadership moved as it does when a leader is asked to give it up: requests may come to nothing, and the leader end of
    /// something else soon afterwards. The successor says so, or neither missed its leader nor outlived it.
    fn has_given_way_when_asked(&self) -> bool {
        let is_missed = || self.silence().is_some_and(|(_, silence)| silence > MISSED_MICROS);
        let is_own = self.step_down_because().is_some_and(|because| because.contains("asked to"));
        let is_said = self.is_said("hands over") || self.is_said("leads no more");
        is_own || is_said || !is_missed() && self.end().is_none()
    }

    /// Whether the new leader said this of the old one before it led, and while that one was there: a member that stood still hears of a
    /// hand-over when it runs again, and the leader may have been killed meanwhile.
    fn is_said(&self, of_the_old: &str) -> bool {
        let what = format!("{} {of_the_old}", self.before.leader);
        let from = self.before.since_micros.max(self.after.since_micros.saturating_sub(TOGETHER_MICROS));
        let mut said = self.line.of_life(self.after.life, from, self.after.since_micros);
        let said = said.find(|seen| match seen.mark {
            Mark::Transition { because, .. } => because.contains(&what),
            _ => false,
        });
        said.is_some_and(|said| self.end().is_none_or(|(ended, _)| said.at <= ended + MISSED_MICROS))
    }

    fn removal(&self) -> Option<Cause> {
        let leader = &self.before.leader;
        let is_out = self.step_down_because().is_some_and(|because| because.contains("no longer a voter"));
        let was_removed = self.membership().is_some_and(|(voters, _)| !voters.is_empty() && !voters.contains(leader));
        (is_out || was_removed).then_some(Cause::Removed)
    }

    /// The voters and the witnesses among them, as the old leader or the new one noted them last before the new reign. A member that
    /// was away notes what it knew when it left.
    fn membership(&self) -> Option<(&[String], &[String])> {
        let leaders = [self.before.life, self.after.life];
        let memberships = self.line.seen.iter().filter(|seen| seen.at <= self.after.since_micros);
        let memberships = memberships.filter(|seen| leaders.contains(&Some(seen.life)));
        memberships.rev().find_map(|seen| match seen.mark {
            Mark::Membership { voters, witnesses } => Some((&voters[..], &witnesses[..])),
            _ => None,
        })
    }

    fn failure(&self) -> Option<Cause> {
        // Later notes have nothing to do with it.
        let last = self.after.since_micros + MISSED_MICROS;
        let mut noted = self.line.of_life(self.before.life, self.before.since_micros, last);
        noted.find_map(|seen| match seen.mark {
            Mark::Ended { why } => Some(Cause::Failed { why: why.clone() }),
            _ => None,
        })
    }

    /// The old leader's disk as a cause, if it stood still shortly before.
    fn disk(&self, until: u64) -> Option<Cause> {
        let from = until.saturating_sub(CIRCUMSTANCE_MICROS).max(self.before.since_micros);
        let mut since = None;
        let mut longest = 0;
        for seen in self.line.of_life(self.before.life, from, self.after.since_micros.max(until)) {
            match seen.mark {
                Mark::DiskStalled { micros } => {
                    since = Some(seen.at.saturating_sub(*micros));
                    longest = longest.max(*micros);
                }
                Mark::DiskRecovered => longest = longest.max(since.take().map_or(0, |since| seen.at - since)),
                _ => {}
            }
        }
        let lasting = since.map_or(0, |since| self.after.since_micros.saturating_sub(since));
        let micros = longest.max(lasting);
        (micros > 0).then_some(Cause::DiskStalled { micros })
    }

    /// A stopped loop as a cause, if that of the old leader, or of the new one, did not run when it should have.
    fn stillness(&self) -> Option<Cause> {
        let shortest = self.silence().map_or(SILENT_MICROS, |(_, silence)| silence * 2 / 3);
        // Where the successor does not say what it heard, a pause that ended just before counts.
        let silent_from = self.last_heard().unwrap_or(self.after.since_micros.saturating_sub(TOGETHER_MICROS));
        let of = |life: Option<usize>, to: u64| {
            // A pause is noted when it is over; it counts where it overlaps the time in which the old leader was not heard.
            let late = self.line.of_life(life, silent_from, to).filter_map(|seen| match seen.mark {
                Mark::Late { micros, waited_micros } => {
                    let from = seen.at.saturating_sub(*micros).max(silent_from);
                    let common = seen.at.min(self.after.since_micros).saturating_sub(from);
                    (common >= shortest).then_some((*micros, *waited_micros))
                }
                _ => None,
            });
            // One stall may be noted twice, and only the first of both has what the thread waited for.
            late.reduce(|(longest, waited), (micros, more)| (longest.max(micros), waited.saturating_add(more)))
        };
        let old = of(self.before.life, u64::MAX);
        let old = old.map(|(micros, waited)| stood_still(&self.before.leader, micros, waited));
        let new = || of(self.after.life, self.after.since_micros);
        old.or_else(|| new().map(|(micros, waited)| stood_still(&self.after.leader, micros, waited)))
    }

    /// When the old leader fell still, where that is the cause and the successor does not say since when it missed it.
    fn stillness_of_its_own(&self, causes: &[Cause]) -> Option<u64> {
        let is_cause = causes.first().is_some_and(|cause| cause.who_stood_still() == Some(&self.before.leader));
        if !is_cause || self.silence().is_some() {
            return None;
        }
        let last = self.after.since_micros + MISSED_MICROS;
        let own = self.stalls.iter().filter(|stall| Some(stall.life) == self.before.life && stall.until <= last);
        own.max_by_key(|stall| stall.until).map(|stall| stall.from.max(self.before.since_micros))
    }

    fn has_given_way_to_its_disk(&self) -> bool {
        self.step_down_because().is_some_and(|because| because.contains("disk stalls"))
    }

    /// The silence of the old leader when the new one first moved without it, since it followed it last: when that was, and how long it
    /// had lasted. Where it never missed it for long, when it first moved.
    fn silence(&self) -> Option<(u64, u64)> {
        let from = self.before.since_micros.max(self.after.since_micros.saturating_sub(CIRCUMSTANCE_MICROS));
        let moves = || self.line.of_life(self.after.life, from, self.after.since_micros);
        let follows = |mark: &Mark| match mark {
            Mark::Transition { to: Role::Follower, leader, .. } => leader.as_ref() == Some(&self.before.leader),
            _ => false,
        };
        let followed = moves().rev().find(|seen| follows(seen.mark)).map_or(from, |seen| seen.at);
        let moves = moves().filter(|seen| seen.at >= followed).filter_map(|seen| match seen.mark {
            Mark::Transition { to, heard, .. } if *to != Role::Follower => {
                let heard = heard.iter().find(|heard| heard.peer == self.before.leader)?;
                Some((seen.at, heard.silence_micros))
            }
            _ => None,
        });
        let moves: Vec<(u64, u64)> = moves.collect();
        moves.iter().find(|(_, silence)| *silence > MISSED_MICROS).or(moves.first()).copied()
    }

    fn last_heard(&self) -> Option<u64> {
        let (at, silence) = self.silence()?;
        let heard = at.saturating_sub(silence);
        // A process that never heard it says how long ago it began.
        let begun = self.after.life.map(|life| self.line.span(life).0);
        let has_heard = begun.is_none_or(|begun| begun + MISSED_MICROS < heard);
        let heard = if has_heard { heard } else { self.last_sign().unwrap_or(heard) };
        Some(heard.max(self.before.since_micros))
    }

    /// The old leader handed over, and nobody had asked it to: it does so for a member that is preferred to it, or as a caretaker. It
    /// says so itself, or the new leader does.
    fn preference(&self) -> Option<Cause> {
        let is_handed = self.is_said("hands over");
        let is_preferred = self.step_down_because().is_some_and(|because| because.contains("is preferred"));
        let who = self.after.leader.clone();
        let is_witness = self.membership().is_some_and(|(_, witnesses)| witnesses.contains(&self.before.leader));
        let cause = match (is_witness, self.before.life) {
            (true, _) => Cause::Caretaker { who },
            (false, Some(_)) => Cause::Preferred { who },
            // An operator may have asked, or its process been told to stop.
            (false, None) => Cause::GaveWay { who },
        };
        (is_preferred || is_handed).then_some(cause)
    }

    /// Time of the new leader's election: before it leads it may have to learn.
    fn elected(&self) -> u64 {
        let mut said = self.line.of_life(self.after.life, self.before.since_micros, self.after.since_micros);
        let elected = said.find(|seen| match seen.mark {
            Mark::Transition { to: Role::Synchronizing, term, .. } => *term == self.after.term,
            _ => false,
        });
        elected.map_or(self.after.since_micros, |seen| seen.at)
    }

    /// The old leader lived, and was not heard.
    fn cut(&self) -> Option<Cause> {
        let (at, silence_micros) = self.silence()?;
        let deaf = self.after.leader.clone();
        let from = at.saturating_sub(silence_micros);
        if self.alone().is_some_and(|until| until <= from) {
            // It was heard for as long as it led: that it heard no quorum is what ended its reign.
            return None;
        }
        if self.before.life.is_none() {
            return Some(match self.ended_link_of_one_unseen(from) {
                Some(why) => Cause::LinkEnded { deaf, why },
                None if silence_micros <= MISSED_MICROS => Cause::GaveWay { who: deaf },
                None => Cause::Silent { deaf, silence_micros },
            });
        }
        if silence_micros <= SILENT_MICROS
            && let Some(why) = self.ended_link()
        {
            return Some(Cause::LinkEnded { deaf, why });
        }
        // The last notes of a process may not be written yet; of one that has noted something since it fell silent it is known that it ran.
        let noted = self.before.life.map_or(0, |life| self.line.span(life).1);
        if noted <= from + silence_micros / 2 && silence_micros > MISSED_MICROS {
            return Some(Cause::Silent { deaf, silence_micros });
        }
        // The old leader's view of the new one when it moved before that one was elected; later it may hear everything
        // again. At the beginning of the silence a member that is cut off has heard everybody a moment ago, too.
        let mut moves = self.line.of_life(self.before.life, from + silence_micros / 2, self.elected());
        let learnt = moves.find_map(|seen| match seen.mark {
            Mark::Transition { heard, because, .. } => {
                let heard = heard.iter().find(|heard| heard.peer == self.after.leader)?;
                Some((heard.silence_micros, seen.at - from, because.contains("no quorum")))
            }
            _ => None,
        });
        let is_one_way = learnt.is_some_and(|(heard, lasting, is_deaf)| !is_deaf && heard * 2 < lasting);
        Some(Cause::Cut { deaf, is_one_way, silence_micros })
    }

    /// A disk that was slow once does not explain a change by itself, unless the leader gave way for it.
    fn is_only_a_circumstance(&self, causes: &[Cause], has_given_way: bool) -> bool {
        !has_given_way && causes.iter().all(|cause| matches!(cause, Cause::DiskStalled { .. }))
    }
}
