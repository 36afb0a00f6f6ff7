//! The switches of TRex: [`Options`].

use crate::laboratory::Defect;
use hustings_core::options::{self, Switch};
use hustings_core::quorum::Quorums;
/// The options of a TRex node.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Options {
    /// Poll before raising a ballot (TF-3). Without it, as in the JVM rewrite, a node that was cut off deposes a
    /// healthy leader.
    pub low_ball: bool,
    /// Numbers of voters that must promise and accept.
    pub quorums: Quorums,
    /// Ballots are raised without a prepare round, as in both published versions (TH-1, TH-2). For the laboratory only.
    pub as_published: bool,
    /// A planted defect. For the laboratory only.
    pub defect: Option<Defect>,
}

impl Default for Options {
    fn default() -> Options {
        Options { low_ball: true, quorums: Quorums::default(), as_published: false, defect: None }
    }
}

impl options::Options for Options {
    const SWITCHES: &'static [Switch] = &[
        Switch { name: "low-ball", values: "true|false", help: "Ask before raising a ballot" },
        Switch {
            name: "quorums",
            values: "even-nodes|majority|PROMISES/ACCEPTS",
            help: "How many must promise and accept; sizes are the same on all members for ever",
        },
    ];

    fn set(&mut self, name: &str, value: &str) -> Option<()> {
        match name {
            "low-ball" => options::put(&mut self.low_ball, value),
            "quorums" => options::put(&mut self.quorums, value),
            _ => None,
        }
    }

    fn is_laboratory(&self) -> bool {
        self.as_published || self.defect.is_some()
    }

    fn quorums(&self) -> Quorums {
        self.quorums
    }

    /// Even nodes and majorities meet each other in any mix, for a majority promises in both; sizes of one's own meet
    /// only themselves, also in what was accepted before a restart.
    fn variant(&self) -> Option<String> {
        match self.quorums {
            Quorums::EvenNodes | Quorums::Majority => None,
            Quorums::Flexible { promise, accept } => Some(format!("quorums={promise}/{accept}")),
        }
    }
}
