//! The switches of ZAB: [`Options`].

use crate::laboratory::Defect;
use hustings_core::options::{self, Switch};

/// The options of a ZAB node.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Options {
    /// Acknowledge NEWLEADER as ZooKeeper did before its data-loss fixes: currentEpoch first (ZOOKEEPER-4643), the
    /// acknowledgement before the disk (ZOOKEEPER-4646). For the laboratory only.
    pub as_published: bool,
    /// A mistake made on purpose. For the laboratory only.
    pub defect: Option<Defect>,
    /// Number of proposals in one epoch before the leader resigns (§5.10 rule 5). A zxid has 32 bits for the counter.
    pub counter_max: u32,
}

impl Default for Options {
    fn default() -> Options {
        Options { as_published: false, defect: None, counter_max: u32::MAX }
    }
}

impl Options {
    /// ZooKeeper as it was before its data-loss fixes.
    pub const PUBLISHED: Options = Options { as_published: true, defect: None, counter_max: u32::MAX };
}

impl options::Options for Options {
    const SWITCHES: &'static [Switch] = &[Switch {
        name: "counter-max",
        values: "1 to 4294967295",
        help: "Proposals in one epoch before the leader resigns",
    }];

    fn set(&mut self, name: &str, value: &str) -> Option<()> {
        match name {
            "counter-max" if value.parse() != Ok(0) => options::put(&mut self.counter_max, value),
            _ => None,
        }
    }

    fn is_laboratory(&self) -> bool {
        self.as_published || self.defect.is_some()
    }
}
