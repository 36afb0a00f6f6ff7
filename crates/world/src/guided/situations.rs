//! Situations that a search adds to a plan, each at a moment that may matter: cut links, changes of leader, crashes.
//!
//! Each is a class and not a story: members, times and delays are drawn, and no defect is named. In each of them several things
//! must come together which chance alone rarely brings together.

use super::{SOON, Search, Turn};
use crate::command::{Command, Target};
use crate::seed::Plan;

/// Two that are parted from the rest, which has another leader soon. Times are of the plan, in microseconds.
struct Parted {
    old: Target,
    confidant: Target,
    new: Target,
    rest: Vec<Target>,
    /// When they are parted, and when more happens.
    parted: u64,
    soon: u64,
    /// How long slow words take.
    delay: u64,
}

impl Plan {
    /// Adds a fault, at the end of the safety phase at the latest.
    fn push(&mut self, at: u64, command: Command) {
        self.faults.push((at.min(self.safety), command));
    }
}

impl Search {
    /// Adds what seeds place anywhere where it may matter: one slow moment, resignations, and writes at a member of choice.
    pub(super) fn add_wild(&mut self, plan: &mut Plan, parent: usize) {
        let moment = self.moment(parent, plan.safety);
        let at = moment.at;
        let election = plan.settings.election_max();
        let lasts = [2_000, 20_000, election, election * 6][self.dice.below(4) as usize];
        let (one, other) = (self.who(plan, moment), self.node(plan));
        match self.dice.below(7) {
            0 | 1 => {
                // Messages sent in this while arrive much later.
                let delay = self.dice.between(20_000, election * 5);
                plan.push(at, Command::Slow(one, other, delay, delay + 1_000));
                plan.push(at + lasts, Command::Mend(one, other));
            }
            2 => {
                plan.push(at, Command::Mute(one, other));
                plan.push(at + lasts, Command::Mend(one, other));
            }
            3 => plan.push(at, Command::Resign(Target::Leader)),
            5 => plan.push(at, Command::Remove(one)),
            4 => {
                for number in 0..1 + self.dice.below(6) {
                    plan.push(at + number * 5_000, Command::Put(format!("wild/{number}"), "w".into(), Some(one)));
                }
            }
            _ => {
                plan.push(at, Command::Campaign(one));
                plan.push(at + self.dice.below(SOON), Command::Campaign(other));
            }
        }
    }

    /// Adds a situation, half of the time alone: what the plan has later on is left out, for in a plan that has grown long the one is
    /// seldom played to its end undisturbed. Half of these times all is made whole before it begins.
    pub(super) fn add_alone(&mut self, plan: &mut Plan, parent: usize, add: fn(&mut Search, &mut Plan, usize)) {
        let mut earlier = std::mem::take(&mut plan.faults);
        add(self, plan, parent);
        if let Some(begins) = plan.faults.iter().map(|(at, _)| *at).min().filter(|_| self.dice.below(2) == 0) {
            earlier.retain(|(at, _)| *at < begins);
            if self.dice.below(2) == 0 {
                let whole = begins.saturating_sub(self.dice.below(plan.settings.election_max() * 2));
                earlier.extend([Command::Heal, Command::Restart(Target::All)].map(|command| (whole, command)));
            }
        }
        plan.faults.splice(0..0, earlier);
    }

    /// A leader is left with a minority, is still written to, and is found again link by link: histories part, and meet in some
    /// order. Perhaps somebody campaigns then, and perhaps a member dies from which that one learns.
    pub(super) fn add_rift(&mut self, plan: &mut Plan, parent: usize) {
        let (at, nodes) = (self.moment(parent, plan.safety).at, plan.settings.nodes);
        let election = plan.settings.election_max();
        let mut sides = [Vec::new(), Vec::new()];
        for id in 1..=nodes {
            sides[self.dice.below(2) as usize].push(Target::Node(id));
        }
        let (one, other) = (self.dice.pick(&sides[0]).copied(), self.dice.pick(&sides[1]).copied());
        let (Some(one), Some(other)) = (one, other) else { return };
        let (again, third) = (self.node(plan), self.node(plan));
        let found = at + self.dice.between(election / 4, election * 2);
        let healed = found + [2_000, 30_000, 300_000, election][self.dice.below(4) as usize];
        let soon = self.dice.below(SOON);
        if self.dice.below(2) == 0 {
            // Messages that one side sent before arrive when all is different.
            let delay = self.dice.between(20_000, election * 3);
            plan.push(at.saturating_sub(5_000), Command::Slow(one, other, delay, delay + 1_000));
            plan.push(at.saturating_sub(5_000), Command::Campaign(one));
            plan.push(at, Command::Mend(one, other));
        }
        plan.push(at, Command::Partition(sides.to_vec()));
        for number in 0..1 + self.dice.below(4) {
            plan.push(at + 10_000 + number * 5_000, Command::Put(format!("rift/{number}"), "r".into(), Some(one)));
        }
        if self.dice.below(2) == 0 {
            plan.push(at + 20_000, Command::Campaign(other));
            plan.push(at + 320_000, Command::Put("rift/other".into(), "o".into(), Some(other)));
        }
        plan.push(found, Command::Mend(one, other));
        plan.push(healed, Command::Heal);
        match self.dice.below(3) {
            0 => {}
            chance => {
                plan.push(healed + 1_000, Command::Campaign(again));
                if chance == 2 {
                    plan.push(healed + 1_000 + soon, Command::Crash(third));
                    plan.push(healed + election * 2, Command::Restart(Target::All));
                }
            }
        }
    }

    /// One after the other leads, is cut off, and writes on: as many histories as reigns. Often two take turns, and each comes back
    /// as the other is cut off. Half of the time all of them are cut off alike, so that their histories are hidden alike. Then all
    /// meet, one of them campaigns, and perhaps another dies while it is learnt from; often the last but one, and the last. Half of
    /// the time they meet slowly: there is much to learn, one entry at a time. Source: Raft, figure 8.
    pub(super) fn add_reigns(&mut self, plan: &mut Plan, parent: usize) {
        let (mut at, nodes) = (self.moment(parent, plan.safety).at, plan.settings.nodes);
        let election = plan.settings.election_max();
        let mut leaders: Vec<Target> = Vec::new();
        let (take_turns, is_slow) = (self.dice.below(2) == 0, self.dice.below(2) == 0);
        if is_slow {
            plan.settings.limits.message_bytes_max = 1;
            plan.settings.limits.trailing_entries = plan.settings.limits.trailing_entries.max(60);
        }
        let pair = [self.node(plan), self.node(plan)];
        let reigns = if take_turns { 2 + self.dice.below(3) } else { nodes.div_ceil(2) };
        let alike = (self.dice.below(2) == 0).then(|| self.end_of_reign());
        for reign in 0..reigns {
            let leader = if take_turns { pair[reign as usize % 2] } else { self.node(plan) };
            if let Some(previous) = leaders.last().filter(|_| take_turns) {
                // The leader before the last one is back, and connected again before it campaigns.
                plan.push(at, Command::Heal);
                plan.push(at, Command::Isolate(*previous));
                at += 5_000 + self.dice.below(SOON);
            }
            // Nobody votes while the one before leads, unless that one hands over.
            let is_handed = reign == 0 && self.dice.below(2) == 0;
            plan.push(at, if is_handed { Command::Transfer(leader) } else { Command::Campaign(leader) });
            // Cut off before it has told anybody anything, or later; or its words are slow, and some of them are on their way.
            let (choice, delay) = alike.unwrap_or_else(|| self.end_of_reign());
            at += match choice {
                0..4 => [1_000, 20_000, 100_000, 400_000][choice as usize],
                _ => {
                    plan.push(at, Command::Slow(leader, Target::All, delay, delay + 1_000));
                    delay * (choice - 3) + delay / 2
                }
            };
            plan.push(at, Command::Isolate(leader));
            for number in 0..1 + self.dice.below(if is_slow { 12 } else { 3 }) {
                let put = Command::Put(format!("reign/{number}"), "r".into(), Some(leader));
                plan.push(at + 1_000 + number * 4_000, put);
            }
            at += self.dice.between(20_000, election);
            leaders.push(leader);
        }
        let (one, other) = match leaders[..] {
            [.., one, other] if self.dice.below(2) == 0 => (one, other),
            _ => {
                let mut any = || self.dice.pick(&leaders).copied().unwrap_or(Target::Leader);
                (any(), any())
            }
        };
        plan.push(at, Command::Heal);
        plan.push(at + self.dice.below(SOON), Command::Campaign(one));
        if self.dice.below(2) == 0 {
            plan.push(at + self.dice.below(SOON * 3), Command::Crash(other));
            plan.push(at + election * 2, Command::Restart(Target::All));
        }
    }

    /// Draws how a reign is cut off, of eight ways, and how long its words take in the last four.
    fn end_of_reign(&mut self) -> (u64, u64) {
        (self.dice.below(8), self.dice.between(10_000, 100_000))
    }

    /// A leader and one confidant are parted from the rest, hold more than they, and are written to; another one is to lead the rest.
    fn part(&mut self, plan: &mut Plan, at: u64) -> Option<Parted> {
        let mut rest: Vec<Target> = (1..=plan.settings.nodes).map(Target::Node).collect();
        if rest.len() < 4 {
            return None;
        }
        let mut draw = || rest.remove(self.dice.below(rest.len() as u64) as usize);
        let (old, confidant) = (draw(), draw());
        // Ties between equals often go to the highest id.
        let new = if self.dice.below(4) > 0 { rest.len() - 1 } else { self.dice.below(rest.len() as u64) as usize };
        let new = rest.remove(new);
        let election = plan.settings.election_max();
        let longest = election >> self.dice.below(5);
        let delay = self.dice.between(longest / 4, longest);
        let parted = at + self.dice.between(20_000, election / 2);
        plan.push(at, Command::Transfer(old));
        let others = rest.iter().copied().chain([new]).collect();
        plan.push(parted, Command::Partition(vec![vec![old, confidant], others]));
        for number in 0..1 + self.dice.below(3) {
            plan.push(parted + 1_000 + number * 4_000, Command::Put(format!("old/{number}"), "o".into(), Some(old)));
        }
        let soon = parted + self.dice.between(10_000, 100_000);
        Some(Parted { old, confidant, new, rest, parted, soon, delay })
    }

    /// Some are parted, and the old leader's first words to one of the rest were slow. They arrive, on a link that is back, when that
    /// one has heard of the new leader, and the old one hears of that alone.
    pub(super) fn add_late_word(&mut self, plan: &mut Plan, parent: usize) {
        let (at, election) = (self.moment(parent, plan.safety).at, plan.settings.election_max());
        let Some(Parted { old, new, rest, parted, soon, delay, .. }) = self.part(plan, at) else { return };
        let Some(follower) = self.dice.pick(&rest).copied() else { return };
        let arrives = at + delay;
        // Before it comes to lead, so that its first words are slow already.
        plan.faults.insert(0, (at, Command::Slow(old, follower, delay, delay + 1_000)));
        plan.push(soon, Command::Campaign(new));
        plan.push(soon * 2 - parted, Command::Put("new".into(), "n".into(), Some(new)));
        plan.push(arrives.saturating_sub(self.dice.below(SOON)), Command::Mend(old, follower));
        plan.push(arrives + self.dice.between(20_000, election), Command::Heal);
    }

    /// Some are parted, and the new leader teaches the confidant, with slow words. The rest leaves it meanwhile for the old one, and
    /// the confidant hears of that while words of the new one are on their way.
    pub(super) fn add_teaching(&mut self, plan: &mut Plan, parent: usize) {
        let (at, election) = (self.moment(parent, plan.safety).at, plan.settings.election_max());
        let Some(Parted { old, confidant, new, rest, parted, soon, delay }) = self.part(plan, at) else { return };
        if self.dice.below(2) == 0 {
            // Where nobody else writes, both end where the old leader's reign ended.
            plan.settings.load.clients = 0;
        }
        // When so many of its words have arrived, one after the other, and the next is on its way.
        let overtaken = parted + delay * (1 + self.dice.below(3)) + delay / 2;
        plan.push(parted, Command::Slow(new, Target::All, delay, delay + 1_000));
        plan.push(soon, Command::Cut(old, confidant));
        plan.push(soon, Command::Reset(old, confidant));
        if self.dice.below(2) == 0 {
            // It does not take itself for the leader any more.
            plan.push(soon, Command::Crash(old));
            plan.push(overtaken.saturating_sub(5_000), Command::Restart(old));
        }
        plan.push(soon, Command::Mend(new, confidant));
        plan.push(soon, Command::Slow(new, confidant, delay, delay + 1_000));
        for other in rest {
            plan.push(overtaken, Command::Cut(new, other));
            plan.push(overtaken, Command::Reset(new, other));
            plan.push(overtaken, Command::Mend(old, other));
        }
        plan.push(overtaken, Command::Campaign(old));
        plan.push(overtaken + self.dice.between(delay / 2, delay * 4), Command::Mend(old, confidant));
        plan.push(overtaken + election * 2, Command::Heal);
    }

    /// A reign is hidden: what a member says that has just come to lead, or to seek it, arrives nowhere from now on; it is written
    /// to, and cut off. Half of the time all meet then; who came before it is to lead again, and it dies in the meantime.
    pub(super) fn add_hiding(&mut self, plan: &mut Plan, parent: usize) {
        let rising: Vec<Turn> = self.corpus[parent].turns.iter().copied().filter(|turn| turn.rises).collect();
        let Some(turn) = self.dice.pick(&rising).copied() else { return };
        let (hidden, election) = (turn.who, plan.settings.election_max());
        let before = rising.iter().rfind(|other| other.at < turn.at && other.who != hidden);
        let again = before.map_or(Target::Leader, |other| other.who);
        let soon = [300, 3_000, 30_000][self.dice.below(3) as usize];
        let at = turn.at + 1 + self.dice.below(soon);
        let cut = at + self.dice.between(1_000, SOON);
        let met = cut + self.dice.between(1_000, election);
        let meet = self.dice.below(2) == 0;
        plan.push(at, Command::Slow(hidden, Target::All, election * 2, election * 2 + 1_000));
        for number in 0..1 + self.dice.below(8) {
            plan.push(at + number * 2_000, Command::Put(format!("hidden/{number}"), "h".into(), Some(hidden)));
        }
        plan.push(cut, Command::Isolate(hidden));
        if meet {
            plan.push(met, Command::Heal);
            for time in 0..3 {
                plan.push(met + time * self.dice.between(1_000, SOON), Command::Campaign(again));
            }
            plan.push(met + self.dice.below(SOON * 4), Command::Crash(hidden));
            plan.push(met + election * 2, Command::Restart(Target::All));
        }
    }

    /// A member that has just come to lead, or to seek it, is deserted by all but one, and its words to that one are slow. The
    /// others go on without it; the one hears of them again before it does. Or the other way round: it is deserted by all, and the
    /// one, which has heard of what the others did since, comes back to it alone.
    pub(super) fn add_desertion(&mut self, plan: &mut Plan, parent: usize) {
        let moment = self.moment_among(parent, plan.safety, |turn| turn.rises);
        let (at, election) = (moment.at, plan.settings.election_max());
        let deserted = moment.turned.unwrap_or_else(|| self.node(plan));
        let faithful = self.node(plan);
        let longest = election >> self.dice.below(4);
        let delay = self.dice.between(longest / 4, longest);
        let again = at + self.dice.between(20_000, longest);
        let healed = again + self.dice.between(20_000, election);
        let comes_back = self.dice.below(2) == 0;
        // Nobody else reaches these two, and they reach each other; or only the deserted one is alone.
        plan.push(at, Command::Heal);
        plan.push(at, Command::Isolate(deserted));
        if !comes_back {
            plan.push(at, Command::Isolate(faithful));
            plan.push(at, Command::Mend(deserted, faithful));
            plan.push(at, Command::Slow(deserted, faithful, delay, delay + 1_000));
        }
        // The faithful one is with the others again, and still hears the deserted one; or it hears that one alone.
        plan.push(again, Command::Heal);
        plan.push(again, Command::Isolate(deserted));
        if comes_back {
            plan.push(again, Command::Isolate(faithful));
        }
        plan.push(again, Command::Mend(deserted, faithful));
        plan.push(again, Command::Slow(deserted, faithful, delay, delay + 1_000));
        plan.push(healed, Command::Heal);
    }
}
