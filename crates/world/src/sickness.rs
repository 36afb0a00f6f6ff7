//! Draws the ailments of one member while the others are well, and how much members should lead.

use crate::command::{Command, DiskFault, Target};
use crate::dice::Dice;
use crate::settings::Settings;
use hustings_core::Priority;

/// One in five must not lead, one in five is preferred; somebody may lead.
pub(crate) fn draw_priorities(dice: &mut Dice, nodes: u64) -> Vec<Priority> {
    let mut draw = || match dice.below(5) {
        0 => Priority::Never,
        1 => Priority::Preferred,
        _ => Priority::Normal,
    };
    let priorities: Vec<Priority> = (0..nodes).map(|_| draw()).collect();
    if priorities.iter().all(|priority| *priority == Priority::Never) { Vec::new() } else { priorities }
}

/// Draws the ailments of one member while the others are well; half of all plans have nothing of the kind.
pub(crate) fn draw_sickness(dice: &mut Dice, settings: &Settings) -> Vec<Command> {
    let who = match dice.below(2) {
        0 => Target::Leader,
        _ => Target::Node(1 + dice.below(settings.nodes)),
    };
    let election = settings.election_max();
    let ill = match dice.below(16) {
        0 => Command::Pause(who),
        1 => Command::Disk(who, DiskFault::Stall),
        2 => Command::Disk(who, DiskFault::Slow(dice.between(50_000, election))),
        3 => Command::Mute(who, Target::All),
        4 => Command::Mute(Target::All, who),
        5 => Command::Slow(who, Target::All, election / 2, election),
        6 => Command::Slow(Target::All, who, election / 2, election),
        7 => Command::Isolate(who),
        _ => return Vec::new(),
    };
    vec![ill]
}

/// Priorities as a search draws them: mostly one member stands out, and perhaps nobody may lead at all.
pub(crate) fn draw_outstanding(dice: &mut Dice, nodes: u64) -> Vec<Priority> {
    let (usual, outstanding) = match dice.below(10) {
        0 | 1 => (Priority::Normal, Priority::Never),
        2 | 3 => (Priority::Normal, Priority::Preferred),
        4 | 5 => (Priority::Never, Priority::Normal),
        // Two may lead, and one of them is to.
        6 | 7 => (Priority::Never, Priority::Preferred),
        8 => (Priority::Never, Priority::Never),
        _ => return draw_priorities(dice, nodes),
    };
    let (one, other) = (dice.below(nodes), dice.below(nodes));
    let has_other = (usual, outstanding) == (Priority::Never, Priority::Preferred);
    let priority = |at| match at {
        _ if at == one => outstanding,
        _ if has_other && at == other => Priority::Normal,
        _ => usual,
    };
    (0..nodes).map(priority).collect()
}

/// Draws an ailment of a whole cluster for the end of a search's run: besides one sick member also one that falls sick while
/// others are behind, and links of which only those of one member are left.
pub(crate) fn draw_illness(dice: &mut Dice, settings: &Settings) -> Vec<Command> {
    match dice.below(4) {
        0 => draw_sickness(dice, settings),
        1 => draw_thin_links(dice, settings.nodes),
        2 => {
            // The leader is all that it reaches: somebody, or one that is to lead itself.
            let preferred: Vec<usize> =
                (0..settings.priorities.len()).filter(|at| settings.priorities[*at] == Priority::Preferred).collect();
            let preferred = dice.pick(&preferred).map(|at| *at as u64);
            let one = Target::Node(
                1 + match preferred {
                    Some(at) if dice.below(4) > 0 => at,
                    _ => dice.below(settings.nodes),
                },
            );
            vec![Command::Isolate(one), Command::Mend(one, Target::Leader)]
        }
        _ => draw_laggards(dice, settings),
    }
}

/// A minority is gone, and of the others one reaches everybody; of the remaining links chance leaves some.
fn draw_thin_links(dice: &mut Dice, nodes: u64) -> Vec<Command> {
    let mut alive: Vec<u64> = (1..=nodes).collect();
    let mut commands = Vec::new();
    for _ in 0..dice.below(nodes.div_ceil(2)) {
        let gone = alive.remove(dice.below(alive.len() as u64) as usize);
        commands.push(Command::Crash(Target::Node(gone)));
    }
    // Let the business of the dead be seen to first.
    commands.push(Command::Wait(100_000));
    let centre = alive[dice.below(alive.len() as u64) as usize];
    let thinness = 1 + dice.below(4);
    for one in alive.iter().filter(|one| **one != centre) {
        for other in alive.iter().filter(|other| **other != centre && *other != one) {
            if dice.below(4) < thinness {
                commands.push(Command::Mute(Target::Node(*one), Target::Node(*other)));
            }
        }
    }
    commands
}

/// Some are cut off until they lack what the others have; as they come back, the leader falls sick.
fn draw_laggards(dice: &mut Dice, settings: &Settings) -> Vec<Command> {
    let mut commands = Vec::new();
    for _ in 0..1 + dice.below(settings.nodes.saturating_sub(1).max(2) / 2) {
        let one = Target::Node(1 + dice.below(settings.nodes));
        commands.push(match dice.below(2) {
            0 => Command::Isolate(one),
            _ => Command::Cut(Target::Leader, one),
        });
    }
    if dice.below(2) == 0 {
        // They soon lack much.
        commands.push(Command::Pace(20_000));
    }
    commands.push(Command::Wait([300_000, 600_000, 3_000_000, 8_000_000][dice.below(4) as usize]));
    let leader = Target::Leader;
    let (ill, is_healed_first) = match dice.below(5) {
        0 => (Command::Crash(leader), false),
        1 => (Command::Pause(leader), false),
        2 => (Command::Isolate(leader), true),
        _ => (Command::Disk(leader, DiskFault::Stall), false),
    };
    let at = if is_healed_first { commands.len() } else { commands.len() + 1 };
    commands.push(ill);
    commands.insert(at, Command::Heal);
    commands
}
