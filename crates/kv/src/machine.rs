//! The state machine: one committed entry after the other, applied to the store.
//!
//! Everything that depends on the order of entries is here: what falls due goes first (leases whose time is up, a little of
//! the removal of compacted history), then the command runs. All of it depends on the entries alone, so members that applied
//! the same entries are equal, byte for byte.
//!
//! Deviation: nothing here compares log positions. Applying each entry once, in order, is the replica's promise.

use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf, Bytes};
use hustings_core::{ApplyVersion, Lsn, OnceDurable, SnapshotError, SnapshotFile, StateMachine};

use crate::{
    Alarm, AlarmChange, AlarmKind, Command, KvError, Outcome, RaiseRevision, Response, Rules, View,
    cost::Budget,
    hash,
    lease::{Deadlines, Share},
    permission::RIGHTS_STEP,
    rules::{RULES, VERSION_MAX, rules_of},
    snapshot,
};

/// The key-value store as a replicated value.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct KvStore {
    view: View,
    /// Follows from the view's leases.
    deadlines: Deadlines,
    /// The rules of each apply version.
    known: &'static [Rules],
    last_cost: LastCost,
}

/// Cost of the last command, in visits. It is no part of the state: all values of it are equal.
#[derive(Clone, Copy, Debug, Default)]
struct LastCost(u64);

impl PartialEq for LastCost {
    fn eq(&self, _: &LastCost) -> bool {
        true
    }
}

impl Eq for LastCost {}

impl Hash for LastCost {
    fn hash<H: Hasher>(&self, _: &mut H) {}
}

impl Default for KvStore {
    fn default() -> KvStore {
        KvStore::new()
    }
}

impl KvStore {
    /// An empty store, at revision 1.
    pub fn new() -> KvStore {
        KvStore::knowing(&RULES)
    }

    /// An empty store that computes by the rules of other versions than this build has: for tests of what an upgrade does.
    ///
    /// # Panics
    /// When there are none: a store begins with the first.
    pub fn knowing(rules: &'static [Rules]) -> KvStore {
        let first = rules_of(rules, ApplyVersion::FIRST);
        KvStore { view: View::empty(first), deadlines: Deadlines::new(), known: rules, last_cost: LastCost(0) }
    }

    /// The store whose state that is.
    pub(crate) fn of(view: View) -> KvStore {
        let deadlines = view.leases.iter().map(|(id, lease)| (lease.deadline, *id)).collect();
        KvStore { view, deadlines, known: &RULES, last_cost: LastCost(0) }
    }

    /// Raises the present revision by so many, and compacts everything below: for a store that goes on as a new cluster, which must
    /// use no revision again that the old one may have given out. Existing keys keep theirs. Tokens that the old cluster gave out, also
    /// after this state was saved, count no more: the revision of users is raised as well, however little is asked for.
    ///
    /// Errors: the sum is beyond what a store can count; nothing is changed.
    pub fn bump_revision(&mut self, by: u64) -> Result<(), SnapshotError> {
        let revision = i64::try_from(by).ok().and_then(|by| self.view.revision.checked_add(by));
        let Some(revision) = revision.filter(|revision| *revision <= snapshot::BEGINNING_MAX) else {
            return Err(SnapshotError { what: format!("revision {} cannot be raised by {by}", self.view.revision) });
        };
        self.view.users.outlive_tokens().map_err(|what| SnapshotError { what: what.to_owned() })?;
        if by > 0 {
            self.view.revision = revision;
            self.view.compact(revision).expect("the present is neither compacted nor in the future");
        }
        Ok(())
    }

    /// The state as it is now, without the cost of freezing it.
    pub fn view(&self) -> &View {
        &self.view
    }

    fn run(&mut self, command: Command, budget: &mut Budget) -> Outcome {
        let is_corrupt = self.view.has_alarm(AlarmKind::Corrupt);
        let rules = self.view.rules;
        match command {
            Command::LeaseKeepAlive(renewal) => {
                budget.spend((renewal.ids.len() as u64).saturating_mul(rules.renewal))?;
                let renew = |id| (id, self.view.lease_renew(id, &mut self.deadlines));
                let renewed = renewal.ids.into_iter().map(renew).collect();
                Ok(Response::LeaseKeepAlive { revision: self.view.revision, renewed })
            }
            Command::Alarm(change) => self.change_alarm(&change),
            // Answer as a member that does not know the command.
            Command::Accounts(_) if !self.view.rules.has_users => Err(KvError::Malformed),
            Command::Accounts(accounts) => self.view.change_accounts(accounts),
            Command::RaiseRevision(_) if !self.view.rules.has_users => Err(KvError::Malformed),
            Command::RaiseRevision(raise) if raise.revision > RaiseRevision::MAX => {
                Err(KvError::FutureRevision { revision: self.view.revision })
            }
            Command::RaiseRevision(raise) => {
                self.view.revision = self.view.revision.max(raise.revision);
                Ok(Response::Advance { revision: self.view.revision })
            }
            Command::Advance(_) => {
                self.view.clean(self.view.rules.changes_per_advance);
                Ok(Response::Advance { revision: self.view.revision })
            }
            _ if is_corrupt => Err(KvError::Corrupt),
            Command::Put(put) => self.view.put(&put).map(Response::Put),
            Command::DeleteRange(delete) => self.view.delete_range(&delete, budget).map(Response::DeleteRange),
            Command::Txn(txn) => self.view.txn(&txn, budget).map(Response::Txn),
            Command::Compact(compact) => {
                self.view.compact(compact.revision)?;
                Ok(Response::Compact { revision: self.view.revision })
            }
            Command::LeaseGrant(grant) => {
                let ttl = self.view.lease_grant(&grant, &mut self.deadlines)?;
                Ok(Response::LeaseGrant { revision: self.view.revision, id: grant.id, ttl })
            }
            Command::ShortLeaseGrant(grant) => {
                let ttl = self.view.short_lease_grant(&grant, &mut self.deadlines)?;
                Ok(Response::LeaseGrant { revision: self.view.revision, id: grant.id, ttl })
            }
            Command::LeaseRevoke(revoke) => {
                // Its cost is bounded by rules of its own, and never refused.
                let _ =
                    budget.spend(self.view.cost(&Command::LeaseRevoke(revoke.clone()), rules.cost_max).unwrap_or(0));
                self.view.lease_revoke(revoke.id, &mut self.deadlines)?;
                Ok(Response::LeaseRevoke { revision: self.view.revision })
            }
        }
    }

    fn change_alarm(&mut self, change: &AlarmChange) -> Outcome {
        let kind = AlarmKind::try_from(change.kind).map_err(|_| KvError::Malformed)?;
        let alarm = Alarm { member: change.member, kind };
        let concerns_it = match (kind, change.raise) {
            (AlarmKind::None, _) => false,
            (_, true) => {
                if self.view.alarms.len() >= self.view.rules.alarms_max && !self.view.alarms.contains(&alarm) {
                    return Err(KvError::TooManyAlarms);
                }
                self.view.alarms.insert(alarm);
                true
            }
            (_, false) => self.view.alarms.remove(&alarm).is_some(),
        };
        let alarms = if concerns_it { vec![alarm] } else { Vec::new() };
        Ok(Response::Alarm { revision: self.view.revision, alarms })
    }
}

/// Cost of what fell due: leases and keys that ended, changes of compacted history that were looked at.
fn cost_of_due(rules: &Rules, ended: usize, cleaned: usize) -> u64 {
    ended as u64 * rules.lease_key + cleaned as u64 * rules.delete
}

impl StateMachine for KvStore {
    type Response = Outcome;
    type View = View;

    const VERSION_MAX: ApplyVersion = VERSION_MAX;

    fn adopt(&mut self, version: ApplyVersion) {
        self.view.rules = rules_of(self.known, version);
    }

    fn advance(&mut self, elapsed: Duration) {
        self.view.clock = self.view.clock.saturating_add(elapsed);
        let rules = self.view.rules;
        let ended = self.view.lease_expire(Share::of_a_tick(rules), &mut self.deadlines);
        let cleaned = self.view.clean(rules.changes_per_tick);
        self.last_cost = LastCost(cost_of_due(rules, ended, cleaned));
    }

    fn apply(&mut self, _lsn: Lsn, payload: &Bytes) -> Outcome {
        let rules = self.view.rules;
        self.last_cost = LastCost(rules.put + (payload.len() / rules.bytes) as u64);
        let (command, caller) = Command::with_caller(payload).ok_or(KvError::Malformed)?;
        let ended = self.view.lease_expire(Share::of_a_command(rules), &mut self.deadlines);
        let cleaned = self.view.clean(rules.changes_per_command);
        self.last_cost.0 += cost_of_due(rules, ended, cleaned);
        // Before anything else, so that no alarm hides it.
        let (verdict, steps) = self.view.judge_to_the_end(caller.as_ref(), &command);
        self.last_cost.0 += command.decoding_cost() + steps * RIGHTS_STEP;
        verdict?;
        let mut budget = Budget::new(rules);
        let outcome = self.run(command, &mut budget);
        self.last_cost.0 += budget.spent();
        outcome
    }

    fn last_cost(&self) -> u64 {
        self.last_cost.0
    }

    fn freeze(&self) -> View {
        self.view.clone()
    }

    /// The next lease's deadline; zero while leases are due or compacted history is left to remove, so that an idle leader's
    /// blank entries, which carry the time, bring both to an end.
    fn next_deadline(&self) -> Option<Duration> {
        if self.view.is_cleaning() {
            return Some(Duration::ZERO);
        }
        self.deadlines.first().map(|(deadline, _)| deadline.saturating_sub(self.view.clock))
    }

    fn encode(view: &View, sink: &mut dyn FnMut(Bytes)) {
        snapshot::encode(view, sink);
    }

    /// Large values leave memory when the file holds them.
    fn encode_to_file(view: &View, sink: &mut dyn FnMut(Bytes)) -> Option<OnceDurable> {
        let places = snapshot::encode(view, sink);
        Some(Box::new(move |file: &Arc<dyn SnapshotFile>, start| {
            for (large, offset) in places {
                large.move_to(file.clone(), start + offset);
            }
        }))
    }

    fn digest(view: &View) -> u64 {
        hash::digest(view)
    }

    fn decode(bytes: &mut dyn Buf) -> Result<KvStore, SnapshotError> {
        Ok(KvStore::of(snapshot::decode(bytes, None)?))
    }

    fn decode_from_file(
        bytes: &mut dyn Buf,
        file: &Arc<dyn SnapshotFile>,
        start: u64,
    ) -> Result<KvStore, SnapshotError> {
        Ok(KvStore::of(snapshot::decode(bytes, Some((file, start)))?))
    }
}
