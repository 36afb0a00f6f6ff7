//! Leases, on the log's clock.
//!
//! A deadline is a reading of the log's clock (the sum of the elapsed times that entries carry), so all members expire a
//! lease at the same entry, and a leader change can lengthen a lease by the gap but never shorten it.
//!
//! A lease is gone when the clock reaches its deadline. Its keys go with it, in one revision per lease, in the same step or,
//! when very many fall due at once, in one of the next ([`LEASES_PER_STEP`]); until then they can still be read. A lease with
//! more keys than a step may delete ([`KEYS_PER_STEP`]) loses them over several steps and revisions. But a lease
//! that is due counts as gone for every command that names it: a keep-alive that is answered with a time to live has really
//! renewed (AP-15), and a key attached to a lease either goes with it or was refused (AP-14).
//!
//! It deliberately picks no ids and knows no smallest time to live; both are the server's.

use std::{collections::BTreeSet, time::Duration};

use crate::{
    AlarmKind, KvError, LeaseGrant, Rules, ShortLeaseGrant, View,
    range::KeyRange,
    store::{Key, Writer},
};

/// The longest time to live, seconds, as in etcd.
pub const LEASE_TTL_SECONDS_MAX: i64 = 9_000_000_000;

/// Most due leases that end in one step: a mass expiry must not stall the loop (TM-08). By the first rules.
pub const LEASES_PER_STEP: usize = Rules::FIRST.leases_per_tick;

/// Most keys that the leases ending in one step delete before the rest must wait: some 20 milliseconds. By the first rules.
pub const KEYS_PER_STEP: usize = Rules::FIRST.keys_per_tick;

/// The part of what is due that ends in one step.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Share {
    leases: usize,
    keys: usize,
}

impl Share {
    /// The share when time passes, once for each batch of entries.
    pub(crate) fn of_a_tick(rules: &Rules) -> Share {
        Share { leases: rules.leases_per_tick, keys: rules.keys_per_tick }
    }

    /// The share beside a command, of which there may be a thousand in a batch.
    pub(crate) fn of_a_command(rules: &Rules) -> Share {
        Share { leases: rules.leases_per_command, keys: rules.keys_per_command }
    }
}

/// A granted lease: its time to live, its end in log time, and its keys.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Lease {
    /// The time to live that was granted, seconds; a part of one counts as a whole.
    pub(crate) ttl: i64,
    /// Time to live, exactly.
    pub(crate) length: Duration,
    /// End of the lease, on the log's clock.
    pub(crate) deadline: Duration,
}

/// The ends of the leases, earliest first: `KvStore` keeps them beside the leases, for they follow from them.
pub(crate) type Deadlines = BTreeSet<(Duration, i64)>;

/// The state of a lease, as a client is told it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LeaseStatus {
    /// Id of the lease.
    pub id: i64,
    /// The time to live that was granted, seconds.
    pub granted_ttl: i64,
    /// Granted time, exactly: less than that, where it was granted in milliseconds.
    pub granted: Duration,
    /// Time that is left at the view's reading of the log's clock; the time since then is the server's to subtract.
    pub remaining: Duration,
    /// The keys attached, in their order, if asked for.
    pub keys: Vec<bytes::Bytes>,
}

/// Whether to list a lease's keys.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum LeaseKeys {
    /// Leave the keys out.
    Omit,
    /// List all keys that hang on the lease.
    List,
}

impl View {
    /// The ids of all leases, the one that ends first first.
    pub fn leases(&self) -> Vec<i64> {
        let mut leases: Vec<_> = self
            .leases
            .iter()
            .filter(|(_, lease)| !self.is_due(lease))
            .map(|(id, lease)| (lease.deadline, *id))
            .collect();
        leases.sort_unstable();
        leases.into_iter().map(|(_, id)| id).collect()
    }

    /// The state of a lease; `None` when there is none, or none any more.
    pub fn lease_time_to_live(&self, id: i64, keys: LeaseKeys) -> Option<LeaseStatus> {
        let lease = self.leases.get(&id).filter(|lease| !self.is_due(lease))?;
        let keys = match keys {
            LeaseKeys::Omit => Vec::new(),
            LeaseKeys::List => {
                let keys = self.attached_keys(id);
                keys.into_iter().map(|key| bytes::Bytes::copy_from_slice(key.as_slice())).collect()
            }
        };
        let remaining = lease.deadline.saturating_sub(self.clock);
        Some(LeaseStatus { id, granted_ttl: lease.ttl, granted: lease.length, remaining, keys })
    }

    /// All keys that are attached to a lease, with the lease; by lease and key.
    pub fn leased_keys(&self) -> impl Iterator<Item = (i64, &[u8])> {
        self.attached.iter().map(|(lease, key)| (*lease, key.as_slice()))
    }

    /// The reading of the log's clock.
    pub fn clock(&self) -> Duration {
        self.clock
    }

    /// Whether a lease exists, its time not up.
    pub fn has_lease(&self, id: i64) -> bool {
        self.leases.get(&id).is_some_and(|lease| !self.is_due(lease))
    }

    fn is_due(&self, lease: &Lease) -> bool {
        lease.deadline <= self.clock
    }

    fn attached_keys(&self, id: i64) -> Vec<Key> {
        let from = (id, Key::new(b""));
        self.attached.range(from..).take_while(|(lease, _)| *lease == id).map(|(_, key)| key.clone()).collect()
    }

    /// Creates a lease and answers the time to live granted.
    pub(crate) fn lease_grant(&mut self, grant: &LeaseGrant, deadlines: &mut Deadlines) -> Result<i64, KvError> {
        if grant.ttl > LEASE_TTL_SECONDS_MAX {
            return Err(self.grant_refusal(grant.id).unwrap_or(KvError::LeaseTtlTooLarge));
        }
        self.grant(grant.id, ttl_duration(grant.ttl.max(1)), deadlines)
    }

    /// Grants a lease that lives for milliseconds.
    pub(crate) fn short_lease_grant(
        &mut self,
        grant: &ShortLeaseGrant,
        deadlines: &mut Deadlines,
    ) -> Result<i64, KvError> {
        if !self.rules.has_short_leases {
            // Answer as a member that does not know the command.
            return Err(KvError::Malformed);
        }
        let length = Duration::from_millis(grant.ttl_millis.max(1));
        if length > ttl_duration(LEASE_TTL_SECONDS_MAX) {
            return Err(self.grant_refusal(grant.id).unwrap_or(KvError::LeaseTtlTooLarge));
        }
        self.grant(grant.id, length, deadlines)
    }

    /// The reason why no lease of this id can be granted now, whatever its time to live; `None` if there is none.
    fn grant_refusal(&self, id: i64) -> Option<KvError> {
        match () {
            () if self.has_alarm(AlarmKind::NoSpace) => Some(KvError::NoSpace),
            () if id == 0 => Some(KvError::LeaseNotFound),
            () => None,
        }
    }

    fn grant(&mut self, id: i64, length: Duration, deadlines: &mut Deadlines) -> Result<i64, KvError> {
        if let Some(refusal) = self.grant_refusal(id) {
            return Err(refusal);
        }
        if self.has_lease(id) {
            return Err(KvError::LeaseExists);
        }
        if self.leases.contains_key(&id) {
            // Due, and waiting for its turn: the new lease must not inherit its keys.
            self.lease_end(id, self.rules.keys_per_tick, deadlines);
        }
        if self.leases.contains_key(&id) {
            // It had more keys than go in one step.
            return Err(KvError::LeaseExists);
        }
        let ttl = rounded_up_seconds(length);
        let deadline = self.clock.saturating_add(length);
        self.leases.insert(id, Lease { ttl, length, deadline });
        deadlines.insert((deadline, id));
        Ok(ttl)
    }

    /// Ends a lease: its keys go in one revision, or as many as may go in one step; the rest follows in the next.
    pub(crate) fn lease_revoke(&mut self, id: i64, deadlines: &mut Deadlines) -> Result<(), KvError> {
        if !self.leases.contains_key(&id) {
            return Err(KvError::LeaseNotFound);
        }
        self.lease_end(id, self.rules.keys_per_tick, deadlines);
        Ok(())
    }

    /// Whether a lease is over and some of its keys still stand.
    pub fn is_lease_ending(&self, id: i64) -> bool {
        self.leases.get(&id).is_some_and(|lease| self.is_due(lease))
    }

    /// Renews a lease and answers its time to live; `None` when there is none, or its time is up.
    pub(crate) fn lease_renew(&mut self, id: i64, deadlines: &mut Deadlines) -> Option<i64> {
        if !self.has_lease(id) {
            return None;
        }
        let clock = self.clock;
        let lease = self.leases.get_mut(&id)?;
        deadlines.remove(&(lease.deadline, id));
        lease.deadline = clock.saturating_add(lease.length);
        deadlines.insert((lease.deadline, id));
        Some(lease.ttl)
    }

    /// Ends the leases that are due, as many as one step may.
    /// Gives the number of leases and keys that it ended.
    pub(crate) fn lease_expire(&mut self, share: Share, deadlines: &mut Deadlines) -> usize {
        let (mut keys_left, mut ended) = (share.keys, 0);
        for _ in 0..share.leases {
            match deadlines.first() {
                Some((deadline, id)) if *deadline <= self.clock && keys_left > 0 => {
                    keys_left -= self.lease_end(*id, keys_left, deadlines);
                    ended += 1;
                }
                _ => break,
            }
        }
        ended + share.keys - keys_left
    }

    /// Ends a lease, or deletes as many of its keys as asked and leaves it due. Answers how many it deleted.
    fn lease_end(&mut self, id: i64, keys_max: usize, deadlines: &mut Deadlines) -> usize {
        let from = (id, Key::new(b""));
        let attached = self.attached.range(from..).take_while(|(lease, _)| *lease == id).map(|(_, key)| key.clone());
        // One more tells whether there are more.
        let mut keys: Vec<Key> = attached.take(keys_max.saturating_add(1)).collect();
        let is_rest = keys.len() > keys_max;
        keys.truncate(keys_max);

        let lease = self.leases.remove(&id).expect("the callers found the lease");
        deadlines.remove(&(lease.deadline, id));
        if is_rest {
            // Over for everybody who names it, also where it was revoked before its time.
            let deadline = lease.deadline.min(self.clock);
            deadlines.insert((deadline, id));
            self.leases.insert(id, Lease { deadline, ..lease });
        }
        let mut deleted = 0;
        let mut writer = Writer::new(self);
        for key in keys {
            let key = KeyRange::new(bytes::Bytes::copy_from_slice(key.as_slice()), bytes::Bytes::new());
            deleted += writer.delete_range(&key).len();
        }
        writer.finish();
        deleted
    }
}

/// A time in seconds, a part of one counted as a whole; at most [`LEASE_TTL_SECONDS_MAX`].
pub(crate) fn rounded_up_seconds(length: Duration) -> i64 {
    let seconds = length.as_secs() + u64::from(length.subsec_nanos() > 0);
    i64::try_from(seconds).unwrap_or(i64::MAX).min(LEASE_TTL_SECONDS_MAX)
}

pub(crate) fn ttl_duration(ttl: i64) -> Duration {
    Duration::from_secs(ttl.unsigned_abs())
}
