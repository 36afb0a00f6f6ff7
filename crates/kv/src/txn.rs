//! Transactions: compare, then run one of two lists of operations in one revision.
//!
//! Implements etcd 3.5's `applyTxn`: all compares, those of inner transactions included, look at the state before the
//! outermost transaction; the operations on the branches taken are checked against that state before the first one runs, so
//! that a transaction changes all or nothing; then they run in order, each seeing what the earlier ones wrote.
//!
//! Deviation: what a transaction costs is bounded ([`crate::cost`]), and its reads of more than one key are carried out
//! where a client waits for them ([`crate::Response::answered`]).
//!
//! The checks of a proposer (duplicate keys, limits) are in [`crate::check`]; here duplicates simply take one sub
//! revision each.

use std::cmp::Ordering;
use std::sync::Arc;

use crate::{
    AlarmKind, Compare, CompareTarget, Comparison, DeferredRange, DeleteRange, DeleteRangeResponse, KvError, Operation,
    OperationResponse, Put, PutResponse, Request, Txn, TxnResponse, View, cost::Budget, range::KeyRange, store::Writer,
    version::Version,
};

/// The branches that a transaction takes, its inner ones included.
#[derive(Debug)]
pub(crate) struct Plan<'t> {
    succeeded: bool,
    operations: &'t [Operation],
    /// The plans of the inner transactions among the operations, in order.
    inner: Vec<Plan<'t>>,
}

impl Txn {
    /// Whether no branch changes anything: such a transaction can be read from a view ([`View::read_txn`]).
    pub fn is_read_only(&self) -> bool {
        self.operations().all(|operation| match &operation.request {
            Some(Request::Range(_)) => true,
            Some(Request::Txn(txn)) => txn.is_read_only(),
            _ => false,
        })
    }

    /// Whether some branch puts, which a full store refuses.
    fn may_put(&self) -> bool {
        self.operations().any(|operation| match &operation.request {
            Some(Request::Put(_)) => true,
            Some(Request::Txn(txn)) => txn.may_put(),
            _ => false,
        })
    }

    fn operations(&self) -> impl Iterator<Item = &Operation> {
        self.success.iter().chain(&self.failure)
    }
}

impl View {
    /// Runs a transaction that only reads.
    ///
    /// Errors: as a proposed one. A transaction that could write is [`KvError::Malformed`]: it must be proposed.
    pub fn read_txn(&self, txn: &Txn) -> Result<TxnResponse, KvError> {
        if !txn.is_read_only() {
            return Err(KvError::Malformed);
        }
        let plan = self.plan(txn, &mut Budget::new(self.rules))?;
        let mut response = self.read_plan(&plan)?;
        response.revision = self.revision;
        Ok(response)
    }

    fn read_plan(&self, plan: &Plan<'_>) -> Result<TxnResponse, KvError> {
        let mut inner = plan.inner.iter();
        let mut results = Vec::with_capacity(plan.operations.len());
        for operation in plan.operations {
            results.push(match &operation.request {
                Some(Request::Range(range)) => OperationResponse::Range(self.range(range)?),
                _ => OperationResponse::Txn(self.read_plan(inner.next().ok_or(KvError::Malformed)?)?),
            });
        }
        Ok(TxnResponse { revision: 0, succeeded: plan.succeeded, results })
    }

    /// Writes one key at the next revision.
    pub(crate) fn put(&mut self, put: &Put) -> Result<PutResponse, KvError> {
        if self.has_alarm(AlarmKind::NoSpace) {
            return Err(KvError::NoSpace);
        }
        self.check_put(put)?;
        let mut writer = Writer::new(self);
        let response = writer.run_put(put);
        writer.finish();
        Ok(response)
    }

    /// Deletes a key or a range of keys.
    pub(crate) fn delete_range(
        &mut self,
        delete: &DeleteRange,
        budget: &mut Budget,
    ) -> Result<DeleteRangeResponse, KvError> {
        self.check_delete(delete, budget)?;
        let mut writer = Writer::new(self);
        let response = writer.run_delete(delete);
        writer.finish();
        Ok(response)
    }

    /// Runs a transaction at the next revision.
    pub(crate) fn txn(&mut self, txn: &Txn, budget: &mut Budget) -> Result<TxnResponse, KvError> {
        if self.has_alarm(AlarmKind::NoSpace) && txn.may_put() {
            return Err(KvError::NoSpace);
        }
        let plan = self.plan(txn, budget)?;
        let mut writer = Writer::new(self);
        let mut response = writer.run(&plan);
        response.revision = writer.finish();
        Ok(response)
    }

    /// Decides which branches a transaction takes, and makes sure that nothing on them can fail once the first operation has
    /// written: what they need is there, and what they cost is within the budget.
    pub(crate) fn plan<'t>(&self, txn: &'t Txn, budget: &mut Budget) -> Result<Plan<'t>, KvError> {
        let plan = self.branches(txn, budget)?;
        self.check_plan(&plan, budget)?;
        Ok(plan)
    }

    /// The branches that a transaction takes, inner ones included, on the state as it is now.
    fn branches<'t>(&self, txn: &'t Txn, budget: &mut Budget) -> Result<Plan<'t>, KvError> {
        let mut succeeded = true;
        for compare in &txn.compare {
            succeeded &= self.holds(compare, budget)?;
        }
        let operations = if succeeded { &txn.success[..] } else { &txn.failure[..] };
        let inner = operations.iter().filter_map(|operation| match &operation.request {
            Some(Request::Txn(txn)) => Some(self.branches(txn, budget)),
            _ => None,
        });
        Ok(Plan { succeeded, operations, inner: inner.collect::<Result<_, _>>()? })
    }

    fn holds(&self, compare: &Compare, budget: &mut Budget) -> Result<bool, KvError> {
        if compare.key.is_empty() {
            return Err(KvError::EmptyKey);
        }
        budget.spend(budget.rules.visit)?;
        let target_bytes = match &compare.target {
            Some(CompareTarget::Value(value)) => value.len(),
            _ => 0,
        };
        let keys = KeyRange::new(compare.key.clone(), compare.range_end.clone());
        let mut versions = self.live_versions(&keys).peekable();
        if versions.peek().is_none() {
            // A missing key has no value, not even an empty one; its numbers are all 0.
            return Ok(!matches!(compare.target, Some(CompareTarget::Value(_))) && stands(compare, None));
        }
        for version in versions {
            budget.spend(budget.rules.visit)?;
            budget.spend_bytes(target_bytes)?;
            if budget.counts_reads() && needs_bytes(compare, version) {
                budget.spend_read()?;
            }
            if !stands(compare, Some(version)) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Checks all operations that will run, and charges for them.
    fn check_plan(&self, plan: &Plan<'_>, budget: &mut Budget) -> Result<(), KvError> {
        // Puts first, then reads, as etcd does: the error of a put wins.
        self.check_operations(plan, &mut |request| match request {
            Request::Put(put) => self.check_put(put),
            _ => Ok(()),
        })?;
        self.check_operations(plan, &mut |request| match request {
            Request::Range(range) => {
                budget.spend(budget.rules.range)?;
                self.check_readable(range, self.revision)
            }
            Request::DeleteRange(delete) => {
                budget.spend(budget.rules.visit)?;
                self.check_delete(delete, budget)
            }
            Request::Put(put) => {
                let kept = if put.ignore_value { self.live_version(&put.key) } else { None };
                budget.spend_bytes(kept.map_or(put.value.len(), |kept| kept.value_length()))?;
                budget.spend(budget.rules.put)
            }
            Request::Txn(_) => Ok(()),
        })
    }

    fn check_operations(
        &self,
        plan: &Plan<'_>,
        check: &mut dyn FnMut(&Request) -> Result<(), KvError>,
    ) -> Result<(), KvError> {
        let mut inner = plan.inner.iter();
        for operation in plan.operations {
            match &operation.request {
                None => return Err(KvError::Malformed),
                Some(Request::Txn(_)) => {
                    let inner = inner.next().ok_or(KvError::Malformed)?;
                    self.check_operations(inner, check)?;
                }
                Some(request) => check(request)?,
            }
        }
        Ok(())
    }

    /// Checks a deletion, and charges for the keys that it will find.
    pub(crate) fn check_delete(&self, delete: &DeleteRange, budget: &mut Budget) -> Result<(), KvError> {
        if delete.key.is_empty() {
            return Err(KvError::EmptyKey);
        }
        let keys = KeyRange::new(delete.key.clone(), delete.range_end.clone());
        for _ in self.live_versions(&keys) {
            budget.spend(budget.rules.visit + budget.rules.delete)?;
        }
        Ok(())
    }

    fn check_put(&self, put: &Put) -> Result<(), KvError> {
        if put.key.is_empty() {
            return Err(KvError::EmptyKey);
        }
        if (put.ignore_value || put.ignore_lease) && self.live_version(&put.key).is_none() {
            return Err(KvError::KeyNotFound);
        }
        if put.lease != 0 && !self.has_lease(put.lease) {
            return Err(KvError::LeaseNotFound);
        }
        Ok(())
    }
}

impl Writer<'_> {
    fn run(&mut self, plan: &Plan<'_>) -> TxnResponse {
        let mut inner = plan.inner.iter();
        let mut results = Vec::with_capacity(plan.operations.len());
        for operation in plan.operations {
            let request = operation.request.as_ref().expect("check_operations refused operations without a request");
            results.push(match request {
                Request::Range(range)
                    if range.range_end.is_empty() && !self.view().is_on_file(range, self.revision()) =>
                {
                    let answer = self.view().range_at(range, self.revision());
                    OperationResponse::Range(
                        answer.expect("check_plan found the range readable, and writes change no past"),
                    )
                }
                // Read where somebody waits for it, and not here, on every member's loop.
                Request::Range(range) => OperationResponse::Deferred(DeferredRange {
                    view: Arc::new(self.view().clone()),
                    range: range.clone(),
                    present: self.revision(),
                }),
                Request::Put(put) => OperationResponse::Put(self.run_put(put)),
                Request::DeleteRange(delete) => OperationResponse::DeleteRange(self.run_delete(delete)),
                Request::Txn(_) => {
                    let inner = inner.next().expect("a plan has one inner plan per inner transaction");
                    OperationResponse::Txn(self.run(inner))
                }
            });
        }
        TxnResponse { revision: 0, succeeded: plan.succeeded, results }
    }

    fn run_put(&mut self, put: &Put) -> PutResponse {
        // The key was there when the plan was checked. It can be gone only by a deletion in this very transaction (etcd's
        // checks do not see through a deletion with the end "\0", and etcd dies of it): then there is nothing to keep.
        let kept = match put.ignore_value || put.ignore_lease {
            true => self.view().live_version(&put.key).cloned(),
            false => None,
        };
        let lease = match (&kept, put.ignore_lease) {
            (Some(kept), true) => kept.lease(),
            _ => put.lease,
        };
        let before = match kept.as_ref().filter(|_| put.ignore_value) {
            Some(kept) => self.put_again(kept, lease),
            None => self.put(&put.key, &put.value, lease),
        };
        let revision = self.revision();
        match before.filter(|_| put.prev_kv) {
            Some(before) if before.is_on_file() => PutResponse { revision, prev_kv: None, deferred: Some(before) },
            before => PutResponse { revision, prev_kv: before.map(|before| before.kv()), deferred: None },
        }
    }

    fn run_delete(&mut self, delete: &DeleteRange) -> DeleteRangeResponse {
        let keys = KeyRange::new(delete.key.clone(), delete.range_end.clone());
        let deleted = self.delete_range(&keys);
        let answer =
            DeleteRangeResponse { revision: self.revision(), deleted: deleted.len() as i64, ..Default::default() };
        match delete.prev_kv {
            false => answer,
            true if deleted.iter().any(Version::is_on_file) => DeleteRangeResponse { deferred: deleted, ..answer },
            true => DeleteRangeResponse { prev_kvs: deleted.iter().map(Version::kv).collect(), ..answer },
        }
    }
}

fn is_equality(compare: &Compare) -> bool {
    matches!(Comparison::try_from(compare.comparison), Ok(Comparison::Equal | Comparison::NotEqual))
}

/// Whether [`stands`] needs the bytes of a large value.
fn needs_bytes(compare: &Compare, version: &Version) -> bool {
    let Some(CompareTarget::Value(target)) = &compare.target else { return false };
    version.large().is_some_and(|large| large.needs_bytes_for(target, is_equality(compare)))
}

/// Whether one version, or a missing key, stands to the target as asked.
fn stands(compare: &Compare, version: Option<&Version>) -> bool {
    let number = |of: fn(&Version) -> i64| version.map_or(0, of);
    let ordering = match &compare.target {
        None => number(|version| version.count()).cmp(&0),
        Some(CompareTarget::Version(target)) => number(|version| version.count()).cmp(target),
        Some(CompareTarget::Create(target)) => number(|version| version.create_revision()).cmp(target),
        Some(CompareTarget::Mod(target)) => number(|version| version.mod_revision()).cmp(target),
        Some(CompareTarget::Lease(target)) => number(|version| version.lease()).cmp(target),
        Some(CompareTarget::Value(target)) => match version {
            Some(version) if is_equality(compare) => match version.has_value(target) {
                true => Ordering::Equal,
                // Nobody asks which of the two unequal ones is the greater.
                false => Ordering::Less,
            },
            Some(version) => version.compare_value(target),
            None => [][..].cmp(target),
        },
    };
    match Comparison::try_from(compare.comparison) {
        Ok(Comparison::Equal) => ordering.is_eq(),
        Ok(Comparison::Greater) => ordering.is_gt(),
        Ok(Comparison::Less) => ordering.is_lt(),
        Ok(Comparison::NotEqual) => ordering.is_ne(),
        // As etcd: a comparison that it does not know holds.
        Err(_) => true,
    }
}
