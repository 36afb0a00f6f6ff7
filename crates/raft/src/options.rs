//! The switches of Raft: [`Options`].

use crate::laboratory::Defect;
use hustings_core::options::{self, Switch};
/// The options of a Raft node.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Options {
    /// Ask before disturbing (dissertation §9.6).
    pub pre_vote: bool,
    /// A leader that hears no quorum for an election timeout steps down, and voters that hear their leader refuse others
    /// (RQ-1, RV-3). PreVote needs it beside it.
    pub check_quorum: bool,
    /// A defect to be found, for the laboratory only.
    pub defect: Option<Defect>,
}

impl Default for Options {
    fn default() -> Options {
        Options { pre_vote: true, check_quorum: true, defect: None }
    }
}

impl options::Options for Options {
    const SWITCHES: &'static [Switch] = &[
        Switch { name: "pre-vote", values: "true|false", help: "Ask before disturbing a leader" },
        Switch { name: "check-quorum", values: "true|false", help: "A leader that hears no quorum stands down" },
    ];

    fn set(&mut self, name: &str, value: &str) -> Option<()> {
        match name {
            "pre-vote" => options::put(&mut self.pre_vote, value),
            "check-quorum" => options::put(&mut self.check_quorum, value),
            _ => None,
        }
    }

    fn is_laboratory(&self) -> bool {
        self.defect.is_some()
    }
}
