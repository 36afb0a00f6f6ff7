//! The cost of a command and its limit: [`Budget`].
//!
//! Entries are applied one after the other on the thread that also sends heartbeats and votes. So the work of one command is
//! bounded, whatever its client asks for, and the bound is checked before the first write: a command runs whole or not at
//! all. The cost follows from the state and the command alone, so that all members refuse the same commands.
//!
//! The unit is a visit of one key, some 0.1 microseconds; the weights are measured (`examples/cost.rs`), the decision and
//! what it refuses stand in `docs/adr/0010-a-budget-per-command.md`. The numbers are part of the replicated rules
//! ([`crate::rules`]): members with other ones would refuse other commands.

use crate::{Command, Compare, CompareTarget, KvError, Operation, Request, Rules, Txn, View, store::Key};

/// Greatest cost of one command by the first rules, in visits.
pub const COST_MAX: u64 = Rules::FIRST.cost_max;

/// Operations that a transaction may have and count as cheap: etcd's own bound for each of its three lists, and some more.
const CHEAP_STEPS_MAX: usize = 400;

/// Most large values that one command may compare where only their bytes tell: one with more is refused to its proposer, for
/// other members may have them on file, and no loop may read more.
const READS_MAX: u32 = 16;

/// Cost of an operation of a transaction that is decoded, whether it runs or not.
const DECODING: u64 = 3;

/// A value to compare with that is longer may not be told from one on file without a read.
const CHEAP_TARGET_BYTES: usize = 64;

/// Most keys that one command may delete by the first rules.
pub const DELETIONS_MAX: u64 = COST_MAX / (Rules::FIRST.visit + Rules::FIRST.delete);

/// The part of its cost that a command has left to spend.
#[derive(Debug)]
pub(crate) struct Budget {
    /// The prices of things.
    pub(crate) rules: &'static Rules,
    limit: u64,
    left: u64,
    /// Values that may be read from disk to decide; no bound where the command is applied, for it follows from no state that all share.
    reads_left: u32,
}

impl Budget {
    /// All that one command may spend.
    pub(crate) fn new(rules: &'static Rules) -> Budget {
        Budget::of(rules, rules.cost_max)
    }

    fn of(rules: &'static Rules, limit: u64) -> Budget {
        Budget { rules, limit, left: limit, reads_left: u32::MAX }
    }

    /// Whether reads of the disk are counted at all.
    pub(crate) fn counts_reads(&self) -> bool {
        self.reads_left < u32::MAX
    }

    /// Takes a read of the disk out of what is left.
    pub(crate) fn spend_read(&mut self) -> Result<(), KvError> {
        self.reads_left = self.reads_left.checked_sub(1).ok_or(KvError::TooCostly)?;
        Ok(())
    }

    /// Takes a cost out of what is left; refuses when that is not enough.
    pub(crate) fn spend(&mut self, cost: u64) -> Result<(), KvError> {
        self.left = self.left.checked_sub(cost).ok_or(KvError::TooCostly)?;
        Ok(())
    }

    /// Spends the cost of a run over so many bytes.
    pub(crate) fn spend_bytes(&mut self, bytes: usize) -> Result<(), KvError> {
        self.spend((bytes / self.rules.bytes) as u64)
    }

    /// Cost that was spent so far.
    pub(crate) fn spent(&self) -> u64 {
        self.limit - self.left
    }
}

impl View {
    /// The cost of a command if it were applied to this state: for proposers, which hold back expensive ones. Looks no
    /// further than up to `limit`.
    ///
    /// # Errors
    /// Those with which applying it would be refused at once; [`KvError::TooCostly`] above `limit`.
    pub fn cost(&self, command: &Command, limit: u64) -> Result<u64, KvError> {
        let rules = self.rules;
        let mut budget = Budget { reads_left: READS_MAX, ..Budget::of(rules, limit.min(rules.cost_max)) };
        match command {
            Command::DeleteRange(delete) => self.check_delete(delete, &mut budget)?,
            Command::Txn(txn) => drop(self.plan(txn, &mut budget)?),
            Command::LeaseKeepAlive(renewal) => {
                budget.spend((renewal.ids.len() as u64).saturating_mul(rules.renewal))?
            }
            Command::LeaseRevoke(revoke) => {
                budget.spend(rules.visit)?;
                let attached = self.attached.range((revoke.id, Key::new(b""))..);
                for _ in attached.take_while(|(lease, _)| *lease == revoke.id).take(rules.keys_per_tick) {
                    budget.spend(rules.lease_key)?;
                }
            }
            _ => budget.spend(rules.put)?,
        }
        Ok(budget.spent() + command.decoding_cost())
    }
}

impl Command {
    /// Cost of what an entry says, whatever comes of it: both branches of a transaction are there, and only one of them runs. It decides
    /// nothing, and so it is no part of the rules.
    pub(crate) fn decoding_cost(&self) -> u64 {
        match self {
            Command::Txn(txn) => txn.size() as u64 * DECODING,
            _ => 0,
        }
    }

    /// Whether a value that is on file may have to be read to decide what it does.
    pub fn may_ask_disk(&self) -> bool {
        matches!(self, Command::Txn(txn) if txn.may_ask_disk())
    }

    /// Whether it may cost more than a few puts: it names ranges of keys or a lease's keys, or has very many operations.
    pub fn may_cost_much(&self) -> bool {
        match self {
            Command::DeleteRange(delete) => !delete.range_end.is_empty(),
            Command::LeaseRevoke(_) => true,
            Command::Txn(txn) => txn.steps().is_none_or(|steps| steps > CHEAP_STEPS_MAX),
            _ => false,
        }
    }
}

impl Compare {
    /// Whether a value that is on file may have to be read to decide it: only a long value is not told from another by what is in
    /// memory.
    pub fn may_ask_disk(&self) -> bool {
        matches!(&self.target, Some(CompareTarget::Value(target)) if target.len() > CHEAP_TARGET_BYTES)
    }
}

impl Txn {
    fn may_ask_disk(&self) -> bool {
        let inner =
            |operation: &Operation| matches!(&operation.request, Some(Request::Txn(inner)) if inner.may_ask_disk());
        self.compare.iter().any(Compare::may_ask_disk) || self.success.iter().chain(&self.failure).any(inner)
    }

    /// Number of operations in it, at all depths; `None` when one of them compares or deletes a range, or compares with a long
    /// value.
    fn steps(&self) -> Option<usize> {
        if self.compare.iter().any(|compare| !compare.range_end.is_empty() || compare.may_ask_disk()) {
            return None;
        }
        self.success.iter().chain(&self.failure).try_fold(self.compare.len(), |steps, operation| {
            let more = match &operation.request {
                Some(Request::DeleteRange(delete)) if !delete.range_end.is_empty() => return None,
                Some(Request::Txn(inner)) => 1 + inner.steps()?,
                _ => 1,
            };
            Some(steps + more)
        })
    }

    /// Number of compares and operations on both branches, at all depths.
    fn size(&self) -> usize {
        let inner = |operation: &Operation| match &operation.request {
            Some(Request::Txn(inner)) => inner.size(),
            _ => 0,
        };
        let operations = self.success.len() + self.failure.len();
        self.compare.len() + operations + self.success.iter().chain(&self.failure).map(inner).sum::<usize>()
    }
}
