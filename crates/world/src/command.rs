//! Everything that can be done to a world, as a value and as a line of text: [`Command`], [`Target`].
//!
//! A line reads the same whether a person wrote it, a seed drew it or the checker found it, so every run can be played again.

use std::fmt;

/// The members that a command is about.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Target {
    /// The member with this id: `n1`.
    Node(u64),
    /// The current leader of the highest term.
    Leader,
    /// The k-th member, by id, of those that do not lead: `follower.1`.
    Follower(u64),
    /// All that do not lead: `others`.
    Others,
    /// Those whose disks were wiped: `wiped`.
    Wiped,
    /// All members that there are: `all`.
    All,
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Target::Node(id) => write!(f, "n{id}"),
            Target::Leader => f.write_str("leader"),
            Target::Follower(number) => write!(f, "follower.{number}"),
            Target::Others => f.write_str("others"),
            Target::Wiped => f.write_str("wiped"),
            Target::All => f.write_str("all"),
        }
    }
}

/// A fault of a disk, or its end.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum DiskFault {
    /// Nothing that was asked for gets done.
    Stall,
    /// The disk works again, as fast as at first, and keeps its word.
    Recover,
    /// Syncs of the log say that they are done, and do nothing.
    Lie,
    /// Syncs take so many microseconds.
    Slow(u64),
    /// So many more bytes, then it is full.
    Full(u64),
    /// The disk has room again.
    Roomy,
    /// The n-th operation from now fails.
    Fail(u64),
    /// The machine stops at the n-th operation from now, which may or may not have happened.
    CrashAt(u64),
    /// The n-th operation from now, if it is a write, lands some sectors further on.
    Misdirect(u64),
    /// The n-th read from now has a flipped bit.
    Rot(u64),
}

/// Something that is done to a world: a fault, a request, or a demand that something be true.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Command {
    /// Time passes, in microseconds.
    Wait(u64),
    /// Time passes until a leader serves everybody who is connected to it, at most so many microseconds.
    Settle(u64),
    /// All is made well, and the cluster must serve; then these go wrong, and the others must serve; then all is well again, and all
    /// members must be alike: the end of each run of `hustings simulate`.
    Peace(Vec<Command>),
    /// The process ends; the machine goes on, and peers see it.
    Crash(Target),
    /// The power goes: what was not synced is lost sector by sector, and peers see nothing.
    PowerOff(Target),
    /// The process starts again.
    Restart(Target),
    /// The process stands still (SIGSTOP).
    Pause(Target),
    /// A process that stood still goes on (SIGCONT).
    Resume(Target),
    /// Nothing that the first says reaches the second.
    Mute(Target, Target),
    /// Nothing reaches the other, either way.
    Cut(Target, Target),
    /// Cut off from all others.
    Isolate(Target),
    /// Only members of the same group reach each other.
    Partition(Vec<Vec<Target>>),
    /// Messages from the first to the second take this long, at least and at most, in microseconds.
    Slow(Target, Target, u64, u64),
    /// A message that is under way takes so many microseconds longer: from whom, to whom, and of those between the two the how
    /// many-th to arrive, from 1.
    Delay(Target, Target, u64, u64),
    /// All links are whole again.
    Heal,
    /// These two reach each other again.
    Mend(Target, Target),
    /// The connection breaks, and both see it.
    Reset(Target, Target),
    /// All links: shortest and longest delay in microseconds, loss and duplicates in a million.
    Links {
        /// The shortest delay, in microseconds.
        delay_min: u64,
        /// The longest delay, in microseconds.
        delay_max: u64,
        /// Messages of a million that are lost.
        loss: u32,
        /// Messages of a million that arrive twice.
        duplicates: u32,
    },
    /// Something goes wrong with this member's disk, or is well again.
    Disk(Target, DiskFault),
    /// The disk is replaced by a blank one, under the same identity.
    Wipe(Target),
    /// The clock runs at so many millionths of its proper speed.
    Clock(Target, u64),
    /// The machine sleeps for so many microseconds: its boot clock goes on, its process does not.
    Suspend(Target, u64),
    /// The leader hands over.
    Transfer(Target),
    /// This member stops leading, and hands over to its best follower.
    Resign(Target),
    /// This member campaigns, without waiting for an election timeout.
    Campaign(Target),
    /// This member treats its leader as unknown.
    ForgetLeader(Target),
    /// Its heartbeat and election times are so many hundredths of what they were at first.
    Retime(Target, u64),
    /// The member that the operator asks for changes of membership from now on; at first it is the leader.
    Operator(Target),
    /// Clients pause so long between two operations on average, in microseconds; 0: as at first.
    Pace(u64),
    /// The bytes of so many messages that the first sends to the second are damaged: the link ends, and nothing else.
    Damage(Target, Target, u64),
    /// This member is removed from the cluster.
    Remove(Target),
    /// A new member joins, as a learner that will vote when it has caught up.
    Join,
    /// All voters are replaced by these, through a joint change.
    Voters(Vec<Target>),
    /// A client writes, through this member.
    Put(String, String, Option<Target>),
    /// A client reads, through this member, and its answer is told.
    Get(String, Option<Target>),
    /// A client is granted the lease with this number, for so many seconds, through the leader, and never renews it.
    Lease(i64, u64),
    /// Something must be true now; if it is not, the script fails.
    Expect(Expectation),
    /// The number of leader changes is counted from here on.
    Mark,
}

/// A state that a script may demand.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Expectation {
    /// This member leads at present.
    Leader(Target),
    /// Nobody leads who could commit.
    NoLeader,
    /// So many changes of leadership since the last mark, or the beginning.
    Changes(u64, u64),
    /// No operation of a client took longer to end well than so many microseconds, since the last mark.
    Outage(u64),
    /// All that run hold and have applied the same.
    Same,
    /// The lease with this number lives, as the leader has applied.
    Lease(i64),
    /// The lease with this number does not live, as the leader has applied.
    NoLease(i64),
    /// The member is down, and refused to start.
    Refused(Target),
}

impl Command {
    /// All members that it names.
    fn names(&mut self) -> Vec<&mut Target> {
        match self {
            Command::Crash(who)
            | Command::PowerOff(who)
            | Command::Restart(who)
            | Command::Pause(who)
            | Command::Resume(who)
            | Command::Isolate(who)
            | Command::Disk(who, _)
            | Command::Wipe(who)
            | Command::Clock(who, _)
            | Command::Suspend(who, _)
            | Command::Transfer(who)
            | Command::Resign(who)
            | Command::Campaign(who)
            | Command::ForgetLeader(who)
            | Command::Retime(who, _)
            | Command::Operator(who)
            | Command::Remove(who)
            | Command::Put(_, _, Some(who))
            | Command::Get(_, Some(who))
            | Command::Expect(Expectation::Leader(who) | Expectation::Refused(who)) => vec![who],
            Command::Mute(one, other)
            | Command::Cut(one, other)
            | Command::Slow(one, other, ..)
            | Command::Delay(one, other, ..)
            | Command::Mend(one, other)
            | Command::Reset(one, other)
            | Command::Damage(one, other, _) => vec![one, other],
            Command::Partition(groups) => groups.iter_mut().flatten().collect(),
            Command::Voters(members) => members.iter_mut().collect(),
            Command::Peace(sick) => sick.iter_mut().flat_map(Command::names).collect(),
            Command::Wait(_)
            | Command::Settle(_)
            | Command::Heal
            | Command::Links { .. }
            | Command::Pace(_)
            | Command::Join
            | Command::Lease(..)
            | Command::Put(_, _, None)
            | Command::Get(_, None)
            | Command::Expect(_)
            | Command::Mark => Vec::new(),
        }
    }

    /// The highest id that it names, where it names one above this.
    pub(crate) fn stranger_above(&self, highest: u64) -> Option<u64> {
        let mut named = self.clone();
        let ids = named.names().into_iter().filter_map(|who| match who {
            Target::Node(id) => Some(*id),
            _ => None,
        });
        ids.filter(|id| *id > highest).max()
    }

    /// The same command where there are members up to this id only; `None` if it would do nothing.
    pub(crate) fn among(&self, highest: u64) -> Option<Command> {
        let is_there = |who: &Target| !matches!(who, Target::Node(id) if *id > highest);
        if self.stranger_above(highest).is_none() {
            return Some(self.clone());
        }
        let kept = |members: &[Target]| members.iter().copied().filter(is_there).collect::<Vec<_>>();
        match self {
            Command::Partition(groups) => {
                let groups: Vec<_> = groups.iter().map(|group| kept(group)).collect();
                // Where nobody is left to name, each is alone.
                let alone = || (1..=highest).map(|id| vec![Target::Node(id)]).collect();
                let is_empty = groups.iter().all(Vec::is_empty);
                Some(Command::Partition(if is_empty { alone() } else { groups }))
            }
            Command::Voters(members) => Some(Command::Voters(kept(members))),
            Command::Operator(_) => Some(Command::Operator(Target::Leader)),
            Command::Peace(sick) => {
                Some(Command::Peace(sick.iter().filter_map(|command| command.among(highest)).collect()))
            }
            _ => None,
        }
    }
}

pub(crate) fn shown(micros: u64) -> String {
    match micros {
        0 => "0s".into(),
        _ if micros.is_multiple_of(1_000_000) => format!("{}s", micros / 1_000_000),
        _ if micros.is_multiple_of(1_000) => format!("{}ms", micros / 1_000),
        _ => format!("{micros}us"),
    }
}

fn list(members: &[Target]) -> String {
    members.iter().map(Target::to_string).collect::<Vec<_>>().join(" ")
}

impl fmt::Display for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Command::Wait(micros) => write!(f, "wait {}", shown(*micros)),
            Command::Settle(micros) => write!(f, "settle {}", shown(*micros)),
            Command::Peace(sick) => {
                let sick: Vec<String> = sick.iter().map(Command::to_string).collect();
                write!(f, "{}", format!("peace {}", sick.join("; ")).trim_end())
            }
            Command::Crash(who) => write!(f, "crash {who}"),
            Command::PowerOff(who) => write!(f, "power-off {who}"),
            Command::Restart(who) => write!(f, "restart {who}"),
            Command::Pause(who) => write!(f, "pause {who}"),
            Command::Resume(who) => write!(f, "resume {who}"),
            Command::Mute(from, to) => write!(f, "mute {from} {to}"),
            Command::Cut(one, other) => write!(f, "cut {one} {other}"),
            Command::Isolate(who) => write!(f, "isolate {who}"),
            Command::Partition(groups) => {
                let groups: Vec<String> = groups.iter().map(|group| list(group)).collect();
                write!(f, "partition {}", groups.join(" | "))
            }
            Command::Slow(from, to, min, max) => write!(f, "slow {from} {to} {} {}", shown(*min), shown(*max)),
            Command::Delay(from, to, 1, micros) => write!(f, "delay {from} {to} {}", shown(*micros)),
            Command::Delay(from, to, which, micros) => write!(f, "delay {from} {to} {} {which}", shown(*micros)),
            Command::Heal => f.write_str("heal"),
            Command::Mend(one, other) => write!(f, "mend {one} {other}"),
            Command::Reset(one, other) => write!(f, "reset {one} {other}"),
            Command::Links { delay_min, delay_max, loss, duplicates } => {
                write!(f, "links {} {} loss {loss} duplicates {duplicates}", shown(*delay_min), shown(*delay_max))
            }
            Command::Disk(who, fault) => match fault {
                DiskFault::Stall => write!(f, "disk {who} stall"),
                DiskFault::Recover => write!(f, "disk {who} recover"),
                DiskFault::Lie => write!(f, "disk {who} lie"),
                DiskFault::Slow(micros) => write!(f, "disk {who} slow {}", shown(*micros)),
                DiskFault::Full(bytes) => write!(f, "disk {who} full {bytes}"),
                DiskFault::Roomy => write!(f, "disk {who} roomy"),
                DiskFault::Fail(operation) => write!(f, "disk {who} fail {operation}"),
                DiskFault::CrashAt(operation) => write!(f, "disk {who} crash-at {operation}"),
                DiskFault::Misdirect(operation) => write!(f, "disk {who} misdirect {operation}"),
                DiskFault::Rot(read) => write!(f, "disk {who} rot {read}"),
            },
            Command::Wipe(who) => write!(f, "wipe {who}"),
            Command::Clock(who, rate) => write!(f, "clock {who} {rate}"),
            Command::Suspend(who, micros) => write!(f, "suspend {who} {}", shown(*micros)),
            Command::Transfer(who) => write!(f, "transfer {who}"),
            Command::Resign(who) => write!(f, "resign {who}"),
            Command::Campaign(who) => write!(f, "campaign {who}"),
            Command::ForgetLeader(who) => write!(f, "forget-leader {who}"),
            Command::Retime(who, percent) => write!(f, "retime {who} {percent}"),
            Command::Operator(who) => write!(f, "operator {who}"),
            Command::Pace(micros) => write!(f, "pace {}", shown(*micros)),
            Command::Damage(from, to, count) => write!(f, "damage {from} {to} {count}"),
            Command::Remove(who) => write!(f, "remove {who}"),
            Command::Join => f.write_str("join"),
            Command::Voters(who) => write!(f, "voters {}", list(who)),
            Command::Put(key, value, None) => write!(f, "put {key} {value}"),
            Command::Put(key, value, Some(at)) => write!(f, "put {key} {value} at {at}"),
            Command::Get(key, None) => write!(f, "get {key}"),
            Command::Get(key, Some(at)) => write!(f, "get {key} at {at}"),
            Command::Lease(id, seconds) => write!(f, "lease {id} {seconds}s"),
            Command::Expect(Expectation::Leader(who)) => write!(f, "expect leader {who}"),
            Command::Expect(Expectation::NoLeader) => f.write_str("expect no-leader"),
            Command::Expect(Expectation::Changes(least, most)) => write!(f, "expect changes {least} to {most}"),
            Command::Expect(Expectation::Outage(micros)) => write!(f, "expect outage {}", shown(*micros)),
            Command::Expect(Expectation::Lease(id)) => write!(f, "expect lease {id}"),
            Command::Expect(Expectation::NoLease(id)) => write!(f, "expect no-lease {id}"),
            Command::Expect(Expectation::Same) => f.write_str("expect same"),
            Command::Expect(Expectation::Refused(who)) => write!(f, "expect refused {who}"),
            Command::Mark => f.write_str("mark"),
        }
    }
}
