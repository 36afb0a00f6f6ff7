//! A trace of the checker as a script: [`header`], [`replay`].
//!
//! ```text
//! every nodes 3 terms 2 crashes 0 proposals 0 fires 2 timers 0 link 1 notices no duplicates no
//! fire n2 Protocol(Watch)
//! deliver n2 n1 Protocol(Elect { .. })
//! ```
//!
//! Each line is what one input is called. It is played by looking for it among all that may happen next.

use super::Bounds;
use super::state::{Explorer, Space};
use super::tracing::{STEP, Tracing};
use crate::grammar::BOUNDS;
use crate::parse::nearest;
use hustings_core::Protocol;
use hustings_properties::Violation;

/// The first line of a trace.
pub fn header(bounds: &Bounds) -> String {
    let word = |is: bool| if is { "yes" } else { "no" };
    let some = |name: &str, count: u64| if count > 0 { format!(" {name} {count}") } else { String::new() };
    let (learners, witnesses) = (some("learners", bounds.learners), some("witnesses", bounds.witnesses));
    format!(
        "every nodes {}{learners}{witnesses} terms {} crashes {} proposals {} fires {} timers {} link {} notices {} duplicates {}",
        bounds.nodes,
        bounds.terms,
        bounds.crashes,
        bounds.proposals,
        bounds.fires,
        bounds.timers,
        bounds.link,
        word(bounds.notices),
        word(bounds.duplicates)
    )
}

/// Reads the first line of a trace.
///
/// # Errors
/// In words, what is wrong with it.
pub fn bounds_of(line: &str) -> Result<Bounds, String> {
    let mut words = line.split_whitespace();
    if words.next() != Some("every") {
        return Err("a trace begins with `every`".into());
    }
    let mut bounds = Bounds::default();
    while let Some(name) = words.next() {
        let value = words.next().ok_or_else(|| format!("`{name}` has no value"))?;
        let number = || value.parse::<u64>().map_err(|_| format!("`{value}` is no number, and `{name}` wants one"));
        let small =
            || value.parse::<u8>().map_err(|_| format!("`{value}` is no number up to 255, and `{name}` wants one"));
        let is = || match value {
            "yes" => Ok(true),
            "no" => Ok(false),
            _ => Err(format!("`{name}` is yes or no, and not `{value}`")),
        };
        match name {
            "nodes" => bounds.nodes = number()?,
            "learners" => bounds.learners = number()?,
            "witnesses" => bounds.witnesses = number()?,
            "terms" => bounds.terms = number()?,
            "crashes" => bounds.crashes = small()?,
            "proposals" => bounds.proposals = small()?,
            "fires" => bounds.fires = small()?,
            "timers" => bounds.timers = small()?,
            "link" => bounds.link = usize::try_from(number()?).map_err(|error| error.to_string())?,
            "notices" => bounds.notices = is()?,
            "duplicates" => bounds.duplicates = is()?,
            other => {
                let known: Vec<&str> = BOUNDS.options().collect();
                return Err(format!("`{other}` is not known here; did you mean `{}`?", nearest(other, &known)));
            }
        }
    }
    if !bounds.has_members_to_explore() {
        return Err(
            "a trace has one voter at least, fewer than half of them witnesses, and nine members at most".into()
        );
    }
    Ok(bounds)
}

/// The result of a replayed trace.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Replayed {
    /// Each line, with what the members that changed are then.
    pub steps: Vec<(String, Vec<String>)>,
    /// The property that the last line violates.
    pub violation: Option<Violation>,
    /// The trace as a picture: step by step from 0, a step a second.
    pub tracing: Tracing,
}

/// Plays the lines of a trace, one after the other.
///
/// # Errors
/// The line that cannot happen where it stands, with the nearest that can.
pub fn replay<P: Protocol>(bounds: &Bounds, options: &P::Options, lines: &[&str]) -> Result<Replayed, String> {
    let space: Space<P> = Space::new(bounds.clone(), options.clone());
    let mut explorer = Explorer::new(&space);
    let mut steps = Vec::new();
    let mut row = explorer.first().map_err(|violation| violation.to_string())?;
    let mut tracing = Tracing::default();
    tracing.look(0, &space, &row);
    for (line, number) in lines.iter().zip(1..) {
        let at = number * STEP;
        tracing.step(at, line);
        let mut successors = Vec::new();
        let result = explorer.successors(&row, |successor| successors.push(successor));
        let named = |explorer: &Explorer<'_, P>, at, input, way| explorer.text(&row, at, input, way);
        let found = successors.iter().position(|next| named(&explorer, next.at, next.input, next.way) == *line);
        let Some(found) = found else {
            if let Err(wrong) = result
                && named(&explorer, wrong.1, wrong.2, wrong.3) == *line
            {
                steps.push(((*line).to_string(), Vec::new()));
                return Ok(Replayed { steps, violation: Some(wrong.0), tracing });
            }
            let known: Vec<String> =
                successors.iter().map(|next| named(&explorer, next.at, next.input, next.way)).collect();
            let words: Vec<&str> = known.iter().map(String::as_str).collect();
            return Err(format!("`{line}` cannot happen here; did you mean `{}`?", nearest(line, &words)));
        };
        let before = explorer.describe(&row);
        row = successors.swap_remove(found).row;
        tracing.look(at, &space, &row);
        let changed = explorer.describe(&row).into_iter().zip(before).filter(|(now, before)| now != before);
        let changed = changed.map(|(now, _)| now).collect();
        steps.push(((*line).to_string(), changed));
    }
    Ok(Replayed { steps, violation: None, tracing })
}
