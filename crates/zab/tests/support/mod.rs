//! ZAB's own part of the stage that all protocols share: a node hears itself last in a step.

#![allow(dead_code, unused_imports, reason = "each test file uses its own part of the support")]

use hustings_core::{Durable, Entry, Lsn, Promise, Record, Term};
use hustings_stage::Direction;
pub use hustings_stage::{End, one};
use hustings_zab::{Options, Timer, Zab};

pub struct Ours;

pub type Theatre = hustings_stage::Theatre<Ours>;

/// This many voters, n1 to nN, as they are by default.
pub fn cast(voters: u64) -> Theatre {
    Theatre::cast(voters)
}

impl Direction for Ours {
    type Protocol = Zab;

    const HEARTBEAT: Timer = Timer::Ping;
    const HEARS_ITSELF_LAST: bool = true;

    fn is_published(options: &Options) -> bool {
        options.as_published
    }
}

pub trait Verbs {
    /// The disk that was held is durable, and everything that comes of it is delivered.
    fn sync_now(&mut self, id: u64);
}

impl Verbs for Theatre {
    fn sync_now(&mut self, id: u64) {
        self.release_disk(id);
        self.hear_own(id);
        self.settle();
    }
}

/// The disk of a node before the story begins: acceptedEpoch, currentEpoch, and entries of these epochs.
pub fn history(accepted: u64, current: u64, epochs: &[u64]) -> Durable {
    let promise = Record::Promise(Promise::without_vote(Term(accepted)));
    let puts = (1..).zip(epochs).map(|(index, term)| Record::Put(Entry::blank(Lsn::new(*term, index))));
    [promise].into_iter().chain(puts).chain([Record::Established(Term(current))]).collect()
}
