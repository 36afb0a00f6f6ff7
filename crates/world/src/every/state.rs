//! A world as a row of numbers, its successors, and what is judged: [`WorldState`], [`Explorer`].
//!
//! Judged in every world: what a lone member asserts of itself, and of the cluster `one-leader-per-term`,
//! `leader-completeness`, `state-machine-safety`, `commit-on-quorum` and `log-matching`, by the predicates of
//! [`hustings_properties::safety`]. The past (the leader of each term, what was committed) is part of the world.

use super::Bounds;
use super::facts::Facts;
use super::local::{Content, InFlight, Input, Member, reign};
use super::table::{FastMap, Mixing, Table};
use hustings_core::{Links, NodeId, Protocol, Term};
use hustings_properties::safety::{Committed, check_leader, check_state};
use hustings_properties::{Rules, Violation};
use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};
use std::rc::Rc;

mod in_flight;

/// A world: members, history, what is spent of the bounds, messages in flight.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct WorldState {
    /// Numbers of members, by position.
    pub(super) members: Box<[u32]>,
    /// The number of the history.
    history: u32,
    crashes: u8,
    proposals: u8,
    /// Numbers of the messages in flight: sorted where the network is a set, in order of sending where links are sessions.
    pub(super) in_flight: Box<[u32]>,
}

impl WorldState {
    /// A number that two different worlds share with a chance of 2^-128.
    pub fn fingerprint(&self) -> u128 {
        let half = |salt: u64| {
            let mut hasher = Mixing::default();
            hasher.write_u64(salt);
            self.members.iter().for_each(|member| hasher.write_u32(*member));
            hasher.write_u64(u64::from(self.history) << 16 | u64::from(self.crashes) << 8 | u64::from(self.proposals));
            self.in_flight.iter().for_each(|message| hasher.write_u32(*message));
            // Two rounds more: the fast hasher's high bits are its good ones.
            let mut mixed = hasher.finish();
            mixed = (mixed ^ (mixed >> 32)).wrapping_mul(0xD6E8_FEB8_6659_FD93);
            mixed ^ (mixed >> 32)
        };
        u128::from(half(0x5851_F42D_4C95_7F2D)) << 64 | u128::from(half(0x1405_7B7E_F767_814F))
    }

    /// Bytes that a row takes while it waits to be expanded.
    pub fn bytes(&self) -> usize {
        std::mem::size_of::<WorldState>() + (self.members.len() + self.in_flight.len()) * 4 + 32
    }
}

/// The past, as far as it is judged: the leader of each term, and what was committed, in whose reign.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct History {
    leaders: BTreeMap<Term, NodeId>,
    committed: Vec<Committed>,
    states: BTreeMap<u64, u64>,
}

/// The result of a step, as it is stored.
struct Known {
    member: u32,
    in_flight: Box<[u32]>,
    has_crashed: bool,
}

/// An input that a member has without a message.
struct Own {
    input: u32,
    is_crash: bool,
    is_proposal: bool,
    is_start: bool,
}

/// All that is stored once, for all threads.
pub struct Space<P: Protocol> {
    /// The bounds of the search.
    pub bounds: Bounds,
    /// The options of the protocol.
    pub options: P::Options,
    rules: Rules,
    pub(crate) members: Table<Member<P>>,
    pub(crate) in_flight: Table<InFlight<P>>,
    inputs: Table<Input<P>>,
    histories: Table<History>,
}

impl<P: Protocol> Space<P> {
    /// A space in which nothing is explored yet.
    pub fn new(bounds: Bounds, options: P::Options) -> Space<P> {
        Space {
            bounds,
            rules: Rules::default().of::<P>(&options),
            options,
            members: Table::default(),
            in_flight: Table::default(),
            inputs: Table::default(),
            histories: Table::default(),
        }
    }

    /// Members and messages stored.
    pub fn stored(&self) -> (usize, usize) {
        (self.members.len(), self.in_flight.len())
    }
}

/// One successor of a world.
pub struct Successor {
    /// The world after the step.
    pub row: WorldState,
    /// Position of the member that has the input.
    pub at: usize,
    /// The input, by its number in the space.
    pub input: u32,
    /// The way in which the step ends, by its place among the ways that the input has.
    pub way: usize,
}

/// One thread's view of a space, with what it has looked up.
pub struct Explorer<'a, P: Protocol> {
    space: &'a Space<P>,
    known: FastMap<(u32, u32), Rc<[Known]>>,
    own: FastMap<u32, Rc<[Own]>>,
    facts: FastMap<u32, Rc<Facts>>,
    judged: FastMap<(u32, u32), u32>,
    hearing: FastMap<u32, u32>,
    recipients: FastMap<u32, (u8, u8)>,
}

impl<'a, P: Protocol> Explorer<'a, P> {
    /// A view of this space.
    pub fn new(space: &'a Space<P>) -> Explorer<'a, P> {
        Explorer {
            space,
            known: FastMap::default(),
            own: FastMap::default(),
            facts: FastMap::default(),
            judged: FastMap::default(),
            hearing: FastMap::default(),
            recipients: FastMap::default(),
        }
    }

    /// The world in which all members were just started.
    ///
    /// # Errors
    /// An assertion that does not hold at birth.
    pub fn first(&mut self) -> Result<WorldState, Violation> {
        let bounds = &self.space.bounds;
        let mut in_flight = Vec::new();
        let mut members = Vec::new();
        for id in bounds.members() {
            let outcomes = Member::unborn(id).after(&Input::Restart, bounds, &self.space.options)?;
            let born = outcomes.into_iter().find(|outcome| !outcome.has_crashed);
            let Some(born) = born else {
                return Err(Violation::of("bounds", "a member is born beyond the bounds: raise --terms"));
            };
            in_flight.extend(born.in_flight.into_iter().map(|message| self.space.in_flight.number(message)));
            members.push(self.space.members.number(born.member));
        }
        in_flight.sort_by_key(|message| self.ends(*message));
        let history = self.space.histories.number(History::default());
        Ok(WorldState { members: members.into(), history, crashes: 0, proposals: 0, in_flight: in_flight.into() })
    }

    fn facts(&mut self, member: u32) -> Rc<Facts> {
        let space = self.space;
        self.facts.entry(member).or_insert_with(|| Rc::new(Facts::of(&*space.members.value(member)))).clone()
    }

    fn own(&mut self, number: u32) -> Rc<[Own]> {
        if let Some(own) = self.own.get(&number) {
            return own.clone();
        }
        let member = self.space.members.value(number);
        let bounds = &self.space.bounds;
        let mut own = Vec::new();
        let mut push = |input: Input<P>| {
            let is_crash = input == Input::Crash;
            let is_proposal = matches!(input, Input::Propose(_));
            let is_start = input == Input::Restart;
            own.push(Own { input: self.space.inputs.number(input), is_crash, is_proposal, is_start });
        };
        if member.replica.is_some() {
            for timer in &member.armed {
                if member.may_fire(timer, bounds) {
                    push(Input::Fire(*timer));
                }
            }
            if member.takes_proposals() {
                (1..=bounds.proposals).for_each(|number| push(Input::Propose(number)));
            }
            push(Input::Crash);
        } else {
            push(Input::Restart);
        }
        let own: Rc<[Own]> = own.into();
        self.own.insert(number, own.clone());
        own
    }

    fn known(&mut self, member: u32, input: u32) -> Result<Rc<[Known]>, Violation> {
        if let Some(known) = self.known.get(&(member, input)) {
            return Ok(known.clone());
        }
        let space = self.space;
        let before = space.members.value(member);
        let outcomes = before.after(&space.inputs.value(input), &space.bounds, &space.options)?;
        let known: Rc<[Known]> = outcomes
            .into_iter()
            .map(|outcome| Known {
                member: space.members.number(outcome.member),
                in_flight: outcome.in_flight.into_iter().map(|message| space.in_flight.number(message)).collect(),
                has_crashed: outcome.has_crashed,
            })
            .collect();
        self.known.insert((member, input), known.clone());
        Ok(known)
    }

    fn hearing(&mut self, message: u32) -> u32 {
        let space = self.space;
        *self
            .hearing
            .entry(message)
            .or_insert_with(|| space.inputs.number(Input::Hear((*space.in_flight.value(message)).clone())))
    }

    /// Positions of sender and recipient.
    fn ends(&mut self, message: u32) -> (u8, u8) {
        let space = self.space;
        *self.recipients.entry(message).or_insert_with(|| {
            let message = space.in_flight.value(message);
            // Members are few: positions fit a byte.
            ((message.from.0 - 1) as u8, (message.to.0 - 1) as u8)
        })
    }

    /// Calls `each` with every world that one input leads to.
    ///
    /// # Errors
    /// The property that one of them violates, with the input that led there.
    pub fn successors(
        &mut self,
        row: &WorldState,
        mut each: impl FnMut(Successor),
    ) -> Result<(), Box<(Violation, usize, u32, usize)>> {
        for at in 0..row.members.len() {
            let own = self.own(row.members[at]);
            for own in own.iter() {
                let spends_crash = own.is_crash && row.crashes >= self.space.bounds.crashes;
                if spends_crash || (own.is_proposal && !self.is_next_proposal(row, own.input)) {
                    continue;
                }
                self.lead_to(row, at, own.input, None, own.is_proposal, own.is_start, &mut each)?;
            }
        }
        let is_session = P::LINKS == Links::Session;
        for position in 0..row.in_flight.len() {
            let message = row.in_flight[position];
            let ends = self.ends(message);
            if is_session && row.in_flight[..position].iter().any(|earlier| self.recipients[earlier] == ends) {
                continue;
            }
            let at = ends.1 as usize;
            // A member that is down hears nothing; the message may wait for its next life, or be lost.
            if at < row.members.len() && self.facts(row.members[at]).is_up {
                let input = self.hearing(message);
                self.lead_to(row, at, input, Some(position), false, false, &mut each)?;
            }
        }
        Ok(())
    }

    fn is_next_proposal(&self, row: &WorldState, input: u32) -> bool {
        matches!(&*self.space.inputs.value(input), Input::Propose(number) if *number == row.proposals + 1)
    }

    #[expect(clippy::too_many_arguments, reason = "one place where a step becomes a world")]
    fn lead_to(
        &mut self,
        row: &WorldState,
        at: usize,
        input: u32,
        delivered: Option<usize>,
        is_proposal: bool,
        is_start: bool,
        each: &mut impl FnMut(Successor),
    ) -> Result<(), Box<(Violation, usize, u32, usize)>> {
        let before = row.members[at];
        let wrong = |violation, way| Box::new((violation, at, input, way));
        let known = self.known(before, input).map_err(|violation| wrong(violation, 0))?;
        for (way, known) in known.iter().enumerate() {
            if known.has_crashed && row.crashes >= self.space.bounds.crashes {
                continue;
            }
            // Nothing changed and nothing new was said: to deliver it was the same as to lose it, which is always possible.
            let says_nothing = known.in_flight.iter().all(|message| row.in_flight.contains(message));
            if known.member == before && says_nothing && !is_proposal && P::LINKS == Links::Any {
                continue;
            }
            if P::LINKS == Links::Session && self.would_overfill(row, delivered, &known.in_flight) {
                continue;
            }
            let mut members = row.members.clone();
            members[at] = known.member;
            let in_flight = self.letters_after(row, at, delivered, known, is_start);
            let mut next = WorldState {
                members,
                history: row.history,
                crashes: row.crashes + u8::from(known.has_crashed),
                proposals: row.proposals + u8::from(is_proposal),
                in_flight,
            };
            next.history = self.judge(&next, at).map_err(|violation| wrong(violation, way))?;
            each(Successor { row: next, at, input, way });
        }
        Ok(())
    }

    /// Judges a world in which the member at this position has just taken a step; gives back the history with what is new.
    fn judge(&mut self, row: &WorldState, at: usize) -> Result<u32, Violation> {
        let key = (row.history, row.members[at]);
        let facts = self.facts(row.members[at]);
        self.check_logs(row, at, &facts)?;
        if let Some(history) = self.judged.get(&key) {
            return Ok(*history);
        }
        let mut history = (*self.space.histories.value(row.history)).clone();
        let (id, rules) = (NodeId(at as u64 + 1), self.space.rules);
        if facts.is_elected {
            check_leader(&mut history.leaders, facts.term, id)?;
        }
        if facts.leads {
            rules.check_complete(id, facts.term, &*facts, &history.committed)?;
        }
        let known = history.committed.len() as u64;
        for index in 1..=facts.commit {
            // An entry that a member commits before its own copy is durable is judged when others hold it.
            let Some((lsn, placed)) = facts.at(index) else { continue };
            match history.committed.get(index as usize - 1) {
                Some(chosen) => rules.check_agreement(id, (lsn, Some(placed.value)), *chosen)?,
                None => history.committed.push(Committed { lsn, value: placed.value, reign: facts.term }),
            }
        }
        if history.committed.len() as u64 > known {
            let disks: Vec<Rc<Facts>> = row.members.iter().map(|member| self.facts(*member)).collect();
            // A number below 1 is no member's.
            let disk = |node: NodeId| disks.get((node.0 as usize).wrapping_sub(1));
            // Of a log that is a chain whoever holds the last one holds all.
            let judged = if rules.log_matching { history.committed.len() - 1 } else { known as usize };
            for committed in &history.committed[judged..] {
                let holds = |node| disk(node).is_some_and(|disk| rules.is_held(&**disk, *committed));
                rules.check_on_quorum(id, committed.lsn, [&*facts.membership], holds)?;
            }
        }
        let (applied, state) = facts.applied;
        if applied > 0 {
            check_state(&mut history.states, id, applied, state)?;
        }
        let history = self.space.histories.number(history);
        if facts.commit <= known {
            self.judged.insert(key, history);
        }
        Ok(history)
    }

    /// Compares the log of the member at this position with those of all others.
    fn check_logs(&mut self, row: &WorldState, at: usize, facts: &Facts) -> Result<(), Violation> {
        let (id, rules) = (NodeId(at as u64 + 1), self.space.rules);
        for peer in (0..row.members.len()).filter(|peer| *peer != at) {
            let other = self.facts(row.members[peer]);
            for (lsn, mine) in &facts.log {
                if let Some((_, theirs)) = other.at(lsn.index).filter(|(place, _)| place == lsn) {
                    rules.check_same_entry(id, *lsn, *mine, (format_args!("n{} does", peer + 1), theirs))?;
                }
            }
        }
        Ok(())
    }

    // --- For people. ---------------------------------------------------------------------------------------------

    /// An input as a line of text.
    pub fn text(&self, row: &WorldState, at: usize, input: u32, way: usize) -> String {
        let id = at + 1;
        let base = match &*self.space.inputs.value(input) {
            Input::Hear(heard) => match &heard.content {
                Content::Message(message) => format!("deliver {} {} {message:?}", heard.from, heard.to),
                Content::Down => format!("link-down {} {}", heard.to, heard.from),
                Content::Up => format!("link-up {} {}", heard.to, heard.from),
            },
            Input::Fire(timer) => format!("fire n{id} {timer:?}"),
            Input::Propose(number) => format!("propose n{id} {number}"),
            Input::Crash => format!("crash n{id}"),
            Input::Restart => format!("restart n{id}"),
        };
        let known = self.known.get(&(row.members[at], input));
        match known.and_then(|known| known.get(way)).filter(|known| known.has_crashed && base != format!("crash n{id}"))
        {
            Some(_) => format!("{base}, and n{id} crashes with {way} of its records written"),
            None => base,
        }
    }

    /// One line for each member's state, for the end of a story.
    pub fn describe(&mut self, row: &WorldState) -> Vec<String> {
        let mut lines = Vec::new();
        for (position, number) in row.members.iter().enumerate() {
            let member = self.space.members.value(*number);
            let line = match &member.replica {
                Some(replica) => {
                    let status = replica.status();
                    format!(
                        "n{} {} term {} lsn {} commit {}",
                        position + 1,
                        status.role,
                        status.term,
                        status.last,
                        status.commit
                    )
                }
                None => format!("n{} is down, promise {:?}", position + 1, member.durable.promise),
            };
            lines.push(line);
        }
        lines
    }

    /// The sights of a world: somebody leads, something is committed, somebody is down.
    pub fn sights(&mut self, row: &WorldState) -> Reached {
        let mut sights = Reached::default();
        for number in row.members.iter() {
            let facts = self.facts(*number);
            sights.leads |= facts.leads;
            sights.leads_last_term |= facts.leads && reign::<P>(facts.term) == self.space.bounds.terms;
            sights.is_down |= !facts.is_up;
            sights.witness_leads |= facts.leads && facts.is_witness;
        }
        let history = self.space.histories.value(row.history);
        sights.committed = history.committed.len() as u64;
        sights.leaders = history.leaders.len() as u64;
        sights.proposed = row.proposals;
        sights
    }
}

/// Facts that should be true of some world in a search.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Reached {
    /// Some member leads, in whatever term.
    pub leads: bool,
    /// Somebody leads the last term within the bounds.
    pub leads_last_term: bool,
    /// Some member is down.
    pub is_down: bool,
    /// Some member leads that holds no state.
    pub witness_leads: bool,
    /// Entries committed so far.
    pub committed: u64,
    /// Terms that had a leader so far.
    pub leaders: u64,
    /// Proposals made so far.
    pub proposed: u8,
}
