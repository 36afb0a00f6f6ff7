//! Situations that a search adds to a plan, each at a moment that may matter: cut links, changes of leader, crashes.
//!
//! Each is a class and not a story: members, times and delays are drawn, and no defect is named. In each of them several things
//! must come together which chance alone rarely brings together.

use super::{SOON, Search};
use crate::command::{Command, Target};
use crate::seed::Plan;

impl Search {
    /// Adds what seeds place anywhere where it may matter: one slow moment, resignations, and writes at a member of choice.
    pub(super) fn add_wild(&mut self, plan: &mut Plan, parent: usize) {
        let moment = self.moment(parent, plan.safety);
        let at = moment.at;
        let election = plan.settings.election_max();
        let lasts = [2_000, 20_000, election, election * 6][self.dice.below(4) as usize];
        let (one, other) = (self.who(plan, moment), self.node(plan));
        let mut push = |at: u64, command| plan.faults.push((at.min(plan.safety), command));
        match self.dice.below(7) {
            0 | 1 => {
                // Messages sent in this while arrive much later.
                let delay = self.dice.between(20_000, election * 5);
                push(at, Command::Slow(one, other, delay, delay + 1_000));
                push(at + lasts, Command::Mend(one, other));
            }
            2 => {
                push(at, Command::Mute(one, other));
                push(at + lasts, Command::Mend(one, other));
            }
            3 => push(at, Command::Resign(Target::Leader)),
            5 => push(at, Command::Remove(one)),
            4 => {
                for number in 0..1 + self.dice.below(6) {
                    push(at + number * 5_000, Command::Put(format!("wild/{number}"), "w".into(), Some(one)));
                }
            }
            _ => {
                push(at, Command::Campaign(one));
                push(at + self.dice.below(SOON), Command::Campaign(other));
            }
        }
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
        let mut push = |at: u64, command| plan.faults.push((at.min(plan.safety), command));
        if self.dice.below(2) == 0 {
            // Messages that one side sent before arrive when all is different.
            let delay = self.dice.between(20_000, election * 3);
            push(at.saturating_sub(5_000), Command::Slow(one, other, delay, delay + 1_000));
            push(at.saturating_sub(5_000), Command::Campaign(one));
            push(at, Command::Mend(one, other));
        }
        push(at, Command::Partition(sides.to_vec()));
        for number in 0..1 + self.dice.below(4) {
            push(at + 10_000 + number * 5_000, Command::Put(format!("rift/{number}"), "r".into(), Some(one)));
        }
        if self.dice.below(2) == 0 {
            push(at + 20_000, Command::Campaign(other));
            push(at + 320_000, Command::Put("rift/other".into(), "o".into(), Some(other)));
        }
        push(found, Command::Mend(one, other));
        push(healed, Command::Heal);
        match self.dice.below(3) {
            0 => {}
            chance => {
                push(healed + 1_000, Command::Campaign(again));
                if chance == 2 {
                    push(healed + 1_000 + soon, Command::Crash(third));
                    push(healed + election * 2, Command::Restart(Target::All));
                }
            }
        }
    }

    /// One after the other leads, is cut off, and writes on: as many histories as reigns. Often two take turns, and each comes back
    /// as the other is cut off. Then all meet, one of them campaigns, and perhaps another dies while it is learnt from. Half of
    /// the time they meet slowly: there is much to learn, one entry at a time. Source: Raft, figure 8.
    pub(super) fn add_reigns(&mut self, plan: &mut Plan, parent: usize) {
        let (mut at, nodes) = (self.moment(parent, plan.safety).at, plan.settings.nodes);
        let election = plan.settings.election_max();
        let mut events = Vec::new();
        let mut leaders: Vec<Target> = Vec::new();
        let (take_turns, is_slow) = (self.dice.below(2) == 0, self.dice.below(2) == 0);
        if is_slow {
            plan.settings.limits.message_bytes_max = 1;
            plan.settings.limits.trailing_entries = plan.settings.limits.trailing_entries.max(60);
        }
        let pair = [self.node(plan), self.node(plan)];
        let reigns = if take_turns { 2 + self.dice.below(3) } else { nodes.div_ceil(2) };
        for reign in 0..reigns {
            let leader = if take_turns { pair[reign as usize % 2] } else { self.node(plan) };
            if let Some(previous) = leaders.last().filter(|_| take_turns) {
                // The leader before the last one is back, and connected again before it campaigns.
                events.push((at, Command::Heal));
                events.push((at, Command::Isolate(*previous)));
                at += 5_000 + self.dice.below(SOON);
            }
            events.push((at, Command::Campaign(leader)));
            // Cut off before it has told anybody anything, or later; or its words are slow, and some of them are on their way.
            at += match self.dice.below(8) {
                choice @ 0..4 => [1_000, 20_000, 100_000, 400_000][choice as usize],
                choice => {
                    let delay = self.dice.between(10_000, 100_000);
                    events.push((at, Command::Slow(leader, Target::All, delay, delay + 1_000)));
                    delay * (choice - 3) + delay / 2
                }
            };
            events.push((at, Command::Isolate(leader)));
            for number in 0..1 + self.dice.below(if is_slow { 12 } else { 3 }) {
                events.push((
                    at + 1_000 + number * 4_000,
                    Command::Put(format!("reign/{number}"), "r".into(), Some(leader)),
                ));
            }
            at += self.dice.between(20_000, election);
            leaders.push(leader);
        }
        let one = self.dice.pick(&leaders).copied().unwrap_or(Target::Leader);
        let other = self.dice.pick(&leaders).copied().unwrap_or(Target::Leader);
        events.push((at, Command::Heal));
        events.push((at + self.dice.below(SOON), Command::Campaign(one)));
        if self.dice.below(2) == 0 {
            events.push((at + self.dice.below(SOON * 3), Command::Crash(other)));
            events.push((at + election * 2, Command::Restart(Target::All)));
        }
        plan.faults.extend(events.into_iter().map(|(at, command)| (at.min(plan.safety), command)));
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
        let mut push = |at: u64, command| plan.faults.push((at.min(plan.safety), command));
        // Nobody else reaches these two, and they reach each other; or only the deserted one is alone.
        push(at, Command::Heal);
        push(at, Command::Isolate(deserted));
        if !comes_back {
            push(at, Command::Isolate(faithful));
            push(at, Command::Mend(deserted, faithful));
            push(at, Command::Slow(deserted, faithful, delay, delay + 1_000));
        }
        // The faithful one is with the others again, and still hears the deserted one; or it hears that one alone.
        push(again, Command::Heal);
        push(again, Command::Isolate(deserted));
        if comes_back {
            push(again, Command::Isolate(faithful));
        }
        push(again, Command::Mend(deserted, faithful));
        push(again, Command::Slow(deserted, faithful, delay, delay + 1_000));
        push(healed, Command::Heal);
    }
}
