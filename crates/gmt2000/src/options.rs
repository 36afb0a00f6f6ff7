//! The switches of GMT-2000: [`Options`].

use crate::laboratory::Defect;
use hustings_core::options::{self, Switch};
/// The options of a GMT-2000 node.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Options {
    /// Elect exactly as the note of 2000 does: no ballots, votes that exclude nothing and survive nothing. Two leaders in one
    /// term are reachable without a crash or a loss (§4.6 of `docs/protocols/rules`). For the laboratory only.
    pub as_published: bool,
    /// A planted defect. For proofs that the judge convicts; no server takes one.
    pub defect: Option<Defect>,
}

impl Options {
    /// The note of 2000 to the letter.
    pub const PUBLISHED: Options = Options { as_published: true, defect: None };
}

impl options::Options for Options {
    const SWITCHES: &'static [Switch] = &[];

    fn set(&mut self, _: &str, _: &str) -> Option<()> {
        None
    }

    fn is_laboratory(&self) -> bool {
        self.as_published || self.defect.is_some()
    }
}
