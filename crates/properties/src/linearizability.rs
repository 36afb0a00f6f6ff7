//! Deciding whether a history is linearizable: [`check`].
//!
//! Wing and Gong's search with Lowe's memory: take any operation that may come next, undo when stuck, never visit the same set
//! of taken operations with the same register twice. Keys are judged one by one (a history is linearizable if and only if its
//! projection on each register is). The set of taken operations is remembered as the exclusive or of one random 128-bit number
//! per operation, so that a step costs the same in a history of ten operations and of a hundred thousand; two sets that differ
//! share a sum with a chance below 2^-80 in the longest search that fits a machine.
//!
//! Indefinite operations (MX-1) may take effect at any time after they began, or never: they have no return, and the search
//! is done when all definite ones are taken. One is tried only where it helps: where what it leaves is what an operation that
//! is due needs. (Followed by anything else, it might as well not have happened.) Of equal ones the earliest is tried.
//!
//! Source: Wing and Gong, "Testing and Verifying Concurrent Objects", 1993; Lowe, "Testing for linearizability", 2017;
//! Horn and Kroening, "Faster linearizability checking via P-compositionality", 2015.

use crate::history::{Act, Operation, Value};
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fmt;

/// A history that no order of its operations explains.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Nonlinearizable {
    /// Key of the register.
    pub key: u64,
    /// The operation that found no place in the order that came furthest.
    pub stuck: Operation,
    /// The content of the register in that order when the operation had to take effect.
    pub state: Value,
    /// Operations that overlapped it or came shortly before, in the order of their beginning.
    pub around: Vec<Operation>,
}

impl fmt::Display for Nonlinearizable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state.map_or("nothing".into(), |value| value.to_string());
        write!(f, "no order explains: {}; the register held {state}; around it:", self.stuck)?;
        self.around.iter().try_for_each(|operation| write!(f, "\n  {operation}"))
    }
}

/// Judges a history; every register is empty at first.
///
/// # Errors
/// The first register (by key) that no order explains.
pub fn check(history: &[Operation]) -> Result<(), Box<Nonlinearizable>> {
    let mut keys: BTreeMap<u64, Vec<Operation>> = BTreeMap::new();
    for operation in history {
        keys.entry(operation.key).or_default().push(*operation);
    }
    keys.into_values().try_for_each(|operations| Search::of(operations).run())
}

/// A beginning or an end in the list of what is not taken yet.
#[derive(Clone, Copy)]
struct Link {
    operation: u32,
    is_return: bool,
    before: u32,
    after: u32,
    /// In a beginning: the place of its end.
    partner: u32,
}

const NONE: u32 = u32::MAX;

/// The operation that was taken at a step of the path.
#[derive(Clone, Copy)]
enum Choice {
    /// The definite operation that begins at this place of the list.
    Definite(u32),
    /// The indefinite operation with this position.
    Indefinite(u32),
}

struct Search {
    operations: Vec<Operation>,
    /// Definite operations only; place 0 is the head of the list.
    links: Vec<Link>,
    marks: Vec<u128>,
    /// Positions of indefinite operations by what they leave, in the order of their beginning.
    indefinite: BTreeMap<Value, Vec<u32>>,
    is_taken: Vec<bool>,
}

/// SplitMix64, twice: marks need only differ, and be the same in every run.
fn mark(position: u64) -> u128 {
    let half = |salt: u64| {
        let mut mixed = (position * 2 + salt + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        u128::from(mixed ^ (mixed >> 31))
    };
    half(0) << 64 | half(1)
}

impl Search {
    fn of(mut operations: Vec<Operation>) -> Search {
        operations
            .sort_by_key(|operation| (operation.invoked, operation.returned.unwrap_or(u64::MAX), operation.client));
        let mut moments: Vec<(u64, bool, u32)> = Vec::with_capacity(operations.len() * 2);
        let mut indefinite: BTreeMap<Value, Vec<u32>> = BTreeMap::new();
        for (position, operation) in (0u32..).zip(&operations) {
            match (operation.returned, operation.act.leaves()) {
                // Ends come after beginnings of the same time: equal times overlap.
                (Some(returned), _) => {
                    moments.push((operation.invoked, false, position));
                    moments.push((returned.max(operation.invoked), true, position));
                }
                (None, Some(left)) => indefinite.entry(left).or_default().push(position),
                // A read whose answer nobody got.
                (None, None) => {}
            }
        }
        moments.sort_unstable();
        let mut links = vec![Link { operation: NONE, is_return: false, before: NONE, after: NONE, partner: NONE }];
        let mut beginnings = vec![NONE; operations.len()];
        for (_, is_return, operation) in moments {
            let place = u32::try_from(links.len()).expect("fewer than 2^32 moments");
            let before = place - 1;
            links[before as usize].after = place;
            links.push(Link { operation, is_return, before, after: NONE, partner: NONE });
            match is_return {
                false => beginnings[operation as usize] = place,
                true => links[beginnings[operation as usize] as usize].partner = place,
            }
        }
        let marks = (0..operations.len() as u64).map(mark).collect();
        let is_taken = vec![false; operations.len()];
        Search { operations, links, marks, indefinite, is_taken }
    }

    fn unlink(&mut self, place: u32) {
        let Link { before, after, .. } = self.links[place as usize];
        self.links[before as usize].after = after;
        if after != NONE {
            self.links[after as usize].before = before;
        }
    }

    fn relink(&mut self, place: u32) {
        let Link { before, after, .. } = self.links[place as usize];
        self.links[before as usize].after = place;
        if after != NONE {
            self.links[after as usize].before = place;
        }
    }

    /// Takes an operation out: its end first, so that putting back in the opposite order restores the list.
    fn lift(&mut self, beginning: u32) {
        self.unlink(self.links[beginning as usize].partner);
        self.unlink(beginning);
    }

    fn unlift(&mut self, beginning: u32) {
        self.relink(beginning);
        self.relink(self.links[beginning as usize].partner);
    }

    /// Indefinite operations that may come next and leave what an operation that is due needs, in order of position.
    fn helpful(&self, state: Value) -> Vec<u32> {
        let mut needed = BTreeSet::new();
        let mut is_change_needed = false;
        let mut cursor = self.links[0].after;
        // All that began before the first end are due.
        while !self.links[cursor as usize].is_return {
            match self.operations[self.links[cursor as usize].operation as usize].act {
                Act::Read(value) | Act::Swap { from: value, .. } | Act::Mismatch { saw: Some(value), .. } => {
                    needed.insert(value);
                }
                Act::Mismatch { saw: None, .. } => is_change_needed = true,
                Act::Write(_) => {}
            }
            cursor = self.links[cursor as usize].after;
        }
        let deadline = self.operations[self.links[cursor as usize].operation as usize].returned;
        let begun = |position: &u32| {
            let operation = &self.operations[*position as usize];
            !self.is_taken[*position as usize] && Some(operation.invoked) <= deadline
        };
        if is_change_needed {
            needed.extend(self.indefinite.keys());
        }
        let mut acts = Vec::new();
        let mut helpful = Vec::new();
        let mut open: Vec<Value> = needed.iter().copied().collect();
        while let Some(value) = open.pop() {
            for position in self.indefinite.get(&value).into_iter().flatten().filter(|position| begun(position)) {
                let act = self.operations[*position as usize].act;
                if act.upon(state).is_some() && value != state {
                    if !acts.contains(&act) {
                        acts.push(act);
                        helpful.push(*position);
                    }
                } else if let Act::Swap { from, .. } = act
                    && needed.insert(from)
                {
                    // Another operation may leave the value that it needs in turn.
                    open.push(from);
                }
            }
        }
        helpful.sort_unstable();
        helpful
    }

    fn run(mut self) -> Result<(), Box<Nonlinearizable>> {
        let mut due = (self.links.len() - 1) / 2;
        let mut state: Value = None;
        let mut taken = 0u128;
        let mut visited: HashSet<(u128, Value)> = HashSet::new();
        let mut path: Vec<(Choice, Value)> = Vec::new();
        let mut furthest: (usize, u32, Value) = (0, 0, None);
        let mut cursor = self.links[0].after;
        // Where to go on among the indefinite operations, once no definite one is left to try.
        let mut tried = None;
        while due > 0 {
            let link = self.links[cursor as usize];
            let choice = if !link.is_return {
                Some(Choice::Definite(cursor))
            } else {
                if path.len() >= furthest.0 {
                    furthest = (path.len(), link.operation, state);
                }
                self.helpful(state)
                    .into_iter()
                    .find(|next| tried.is_none_or(|tried| *next > tried))
                    .map(Choice::Indefinite)
            };
            let Some(choice) = choice else {
                let Some((last, before)) = path.pop() else {
                    return Err(self.stuck(furthest.1, furthest.2));
                };
                state = before;
                match last {
                    Choice::Definite(place) => {
                        taken ^= self.marks[self.links[place as usize].operation as usize];
                        due += 1;
                        self.unlift(place);
                        // Read anew: what stood behind it when it was lifted may have had its end between.
                        cursor = self.links[place as usize].after;
                        tried = None;
                    }
                    Choice::Indefinite(position) => {
                        taken ^= self.marks[position as usize];
                        self.is_taken[position as usize] = false;
                        tried = Some(position);
                        cursor = self.first_end();
                    }
                }
                continue;
            };
            let position = match choice {
                Choice::Definite(_) => link.operation,
                Choice::Indefinite(position) => position,
            };
            let next = self.operations[position as usize].act.upon(state);
            if let Some(next) = next
                && visited.insert((taken ^ self.marks[position as usize], next))
            {
                path.push((choice, state));
                state = next;
                taken ^= self.marks[position as usize];
                match choice {
                    Choice::Definite(place) => {
                        due -= 1;
                        self.lift(place);
                    }
                    Choice::Indefinite(position) => self.is_taken[position as usize] = true,
                }
                cursor = self.links[0].after;
                tried = None;
            } else {
                match choice {
                    Choice::Definite(_) => cursor = link.after,
                    Choice::Indefinite(position) => tried = Some(position),
                }
            }
        }
        Ok(())
    }

    fn first_end(&self) -> u32 {
        let mut cursor = self.links[0].after;
        while !self.links[cursor as usize].is_return {
            cursor = self.links[cursor as usize].after;
        }
        cursor
    }

    fn stuck(&self, operation: u32, state: Value) -> Box<Nonlinearizable> {
        let position = operation as usize;
        let stuck = self.operations[position];
        let from = position.saturating_sub(6);
        let around = self.operations[from..(position + 4).min(self.operations.len())].to_vec();
        Box::new(Nonlinearizable { key: stuck.key, stuck, state, around })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn operation(client: u64, invoked: u64, returned: impl Into<Option<u64>>, act: Act) -> Operation {
        Operation { key: 0, client, invoked, returned: returned.into(), act }
    }

    #[test]
    fn a_read_during_a_write_may_see_either_value() {
        let write = operation(1, 0, 10, Act::Write(Some(1)));
        for saw in [None, Some(1)] {
            assert_eq!(check(&[write, operation(2, 5, 6, Act::Read(saw))]), Ok(()));
        }
    }

    #[test]
    fn a_read_after_a_write_that_sees_what_was_before_is_stale() {
        let stale = [operation(1, 0, 10, Act::Write(Some(1))), operation(2, 11, 12, Act::Read(None))];
        let story = check(&stale).expect_err("nothing explains it");
        assert_eq!(story.stuck, stale[1]);
        assert_eq!(story.state, Some(1));
        assert!(story.to_string().contains("client 2 on key 0: read nothing"), "{story}");
    }

    #[test]
    fn two_reads_may_not_see_values_in_opposite_orders() {
        let history = [
            operation(1, 0, 1, Act::Write(Some(1))),
            operation(1, 2, 20, Act::Write(Some(2))),
            operation(2, 3, 4, Act::Read(Some(2))),
            operation(3, 5, 6, Act::Read(Some(1))),
        ];
        assert!(check(&history).is_err());
    }

    #[test]
    fn what_is_perhaps_done_may_be_done_late_or_never_but_not_before_it_began() {
        let lost = operation(1, 10, None, Act::Write(Some(7)));
        assert_eq!(check(&[lost, operation(2, 20, 21, Act::Read(None))]), Ok(()));
        assert_eq!(
            check(&[lost, operation(2, 20, 21, Act::Read(None)), operation(2, 30, 31, Act::Read(Some(7)))]),
            Ok(())
        );
        assert!(check(&[operation(2, 1, 2, Act::Read(Some(7))), lost]).is_err());
    }

    #[test]
    fn only_one_of_two_swaps_from_the_same_value_can_succeed() {
        let swap = |client, to| operation(client, 2, 9, Act::Swap { from: Some(1), to: Some(to) });
        let write = operation(1, 0, 1, Act::Write(Some(1)));
        assert_eq!(check(&[write, swap(1, 2)]), Ok(()));
        assert!(check(&[write, swap(1, 2), swap(2, 3)]).is_err());
    }

    #[test]
    fn a_refused_swap_is_an_observation() {
        let write = operation(1, 0, 1, Act::Write(Some(1)));
        let refused = |saw| operation(2, 2, 3, Act::Mismatch { from: Some(1), saw });
        assert!(check(&[write, refused(None)]).is_err(), "the value was there");
        let lost = operation(3, 0, None, Act::Write(Some(5)));
        assert_eq!(check(&[write, lost, refused(None)]), Ok(()), "perhaps the other write came between");
        assert_eq!(check(&[write, lost, refused(Some(Some(5)))]), Ok(()));
        assert!(check(&[write, lost, refused(Some(Some(6)))]).is_err());
    }

    #[test]
    fn keys_are_registers_of_their_own() {
        let one = Operation { key: 1, ..operation(1, 0, 1, Act::Write(Some(1))) };
        assert_eq!(check(&[one, operation(2, 2, 3, Act::Read(None))]), Ok(()));
    }
}
