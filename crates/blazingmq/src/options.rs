//! The switches of BlazingMQ: [`Options`].

use crate::laboratory::Defect;
use crate::partitions::{PARTITIONS_MAX, Placement};
use hustings_core::options::{self, Switch};

/// Numbers of nodes that must agree, besides a majority. `[OURS]` One knob each, and none leads below a majority (§2.9, §1.10/5).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Quorums {
    /// Votes for scouting and election; 0 is a majority. More than there are voters forbids leadership.
    pub vote: usize,
    /// Nodes whose LSNs a new leader collects; 0 is a majority.
    pub sync: usize,
    /// Acknowledgements for a commit; 0 is a majority.
    pub commit: usize,
}

/// The options of a BlazingMQ node.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Options {
    /// Ask before proposing (the article's second part). Without it a node that was cut off deposes a healthy leader.
    pub scouting: bool,
    /// Quorums above a majority.
    pub quorums: Quorums,
    /// Number of partitions that the leader assigns primaries to, at most [`PARTITIONS_MAX`]; partitions once assigned
    /// stay so.
    pub partitions: u32,
    /// The choice of a primary for a partition that needs one.
    pub placement: Placement,
    /// The article's literal rule: a scouting is answered with yes only if the responder's id is below the asker's
    /// (§1.7). For the laboratory only.
    pub seed_literal: bool,
    /// The term lives in the ledger alone, as published: a crash forgets whom a node supported (§1.9). For the
    /// laboratory only.
    pub as_published: bool,
    /// A planted defect. For the laboratory only.
    pub defect: Option<Defect>,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            scouting: true,
            quorums: Quorums::default(),
            partitions: 0,
            placement: Placement::default(),
            seed_literal: false,
            as_published: false,
            defect: None,
        }
    }
}

impl options::Options for Options {
    const SWITCHES: &'static [Switch] = &[
        Switch { name: "scouting", values: "true|false", help: "Ask before proposing" },
        Switch { name: "vote-quorum", values: "a number of voters", help: "Votes needed, above a majority" },
        Switch {
            name: "sync-quorum",
            values: "a number of voters",
            help: "LSNs a new leader collects, above a majority",
        },
        Switch { name: "commit-quorum", values: "a number of voters", help: "Copies that commit, above a majority" },
        Switch { name: "partitions", values: "0 to 4096", help: "Partitions that the leader assigns primaries to" },
        Switch { name: "placement", values: "leader|least-assigned", help: "Who becomes primary of a partition" },
    ];

    fn set(&mut self, name: &str, value: &str) -> Option<()> {
        match name {
            "scouting" => options::put(&mut self.scouting, value),
            "vote-quorum" => options::put(&mut self.quorums.vote, value),
            "sync-quorum" => options::put(&mut self.quorums.sync, value),
            "commit-quorum" => options::put(&mut self.quorums.commit, value),
            "partitions" if value.parse::<u32>().is_ok_and(|count| count > PARTITIONS_MAX) => None,
            "partitions" => options::put(&mut self.partitions, value),
            "placement" => options::put(&mut self.placement, value),
            _ => None,
        }
    }

    fn is_laboratory(&self) -> bool {
        self.as_published || self.seed_literal || self.defect.is_some()
    }

    /// A majority, or as many as the operator asks for.
    fn voters_to_serve(&self, voters: usize) -> usize {
        let Quorums { vote, sync, commit } = self.quorums;
        (voters / 2 + 1).max(vote).max(sync).max(commit)
    }
}
