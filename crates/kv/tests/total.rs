//! Goal: `apply` is total. A panic in it could never be restarted away: each start would apply the same bytes again.
//! Method: random and mutated bytes of every command, with the numbers that arithmetic fears, are applied to one store after
//! the other; then its state is frozen, encoded and restored. `HUSTINGS_APPLY_CASES` sets how many (default 100,000).

mod common;

use bytes::Bytes;
use common::snapshot;
use hustings_core::{Lsn, StateMachine, Term};
use hustings_kv::*;
use std::time::Duration;

/// Commands between two looks at the whole state.
const COMMANDS_PER_STORE: u64 = 500;

/// A generator of our own: the same commands in each run.
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        // xorshift64*
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    fn one_of<T: Clone>(&mut self, all: &[T]) -> T {
        all[self.below(all.len() as u64) as usize].clone()
    }

    fn flag(&mut self) -> bool {
        self.below(2) == 0
    }

    fn number(&mut self) -> i64 {
        let small = self.below(20) as i64;
        let any = self.next() as i64;
        self.one_of(&[0, 1, 2, 3, small, small, small, -1, -small, i64::MAX, i64::MAX - 1, i64::MIN, i64::MIN + 1, any])
    }

    fn key(&mut self) -> Bytes {
        let long = Bytes::from(vec![b'b'; 40]);
        let keys: Vec<Bytes> = ["", "\0", "a", "b", "c", "d", "e"].into_iter().map(Bytes::from).chain([long]).collect();
        let byte = self.next() as u8;
        if self.below(20) == 0 { Bytes::from(vec![byte]) } else { self.one_of(&keys) }
    }

    fn put(&mut self) -> Put {
        Put {
            key: self.key(),
            value: Bytes::from(vec![7; self.below(50) as usize]),
            lease: self.number(),
            prev_kv: self.flag(),
            ignore_value: self.below(4) == 0,
            ignore_lease: self.below(4) == 0,
        }
    }

    fn delete(&mut self) -> DeleteRange {
        DeleteRange { key: self.key(), range_end: self.key(), prev_kv: self.flag() }
    }

    fn range(&mut self) -> Range {
        Range {
            key: self.key(),
            range_end: self.key(),
            limit: self.number(),
            revision: self.number(),
            sort_order: self.number() as i32,
            sort_target: self.number() as i32,
            keys_only: self.flag(),
            count_only: self.flag(),
            min_mod_revision: self.number(),
            max_mod_revision: self.number(),
            min_create_revision: self.number(),
            max_create_revision: self.number(),
        }
    }

    fn compare(&mut self) -> Compare {
        let number = self.number();
        let targets = [
            None,
            Some(CompareTarget::Version(number)),
            Some(CompareTarget::Create(number)),
            Some(CompareTarget::Mod(number)),
            Some(CompareTarget::Value(Bytes::from_static(b"x"))),
            Some(CompareTarget::Lease(number)),
        ];
        let target = self.one_of(&targets);
        Compare { comparison: self.below(6) as i32 - 1, key: self.key(), range_end: self.key(), target }
    }

    fn txn(&mut self, depth: u64) -> Txn {
        let compare = (0..self.below(3)).map(|_| self.compare()).collect();
        let [success, failure] = [(); 2].map(|()| (0..self.below(4)).map(|_| self.operation(depth)).collect());
        Txn { compare, success, failure }
    }

    fn operation(&mut self, depth: u64) -> Operation {
        let request = match self.below(12) {
            0 => None,
            1..=3 => Some(Request::Range(self.range())),
            4..=7 => Some(Request::Put(self.put())),
            8 | 9 => Some(Request::DeleteRange(self.delete())),
            _ if depth > 0 => Some(Request::Txn(self.txn(depth - 1))),
            _ => None,
        };
        Operation { request }
    }

    fn command(&mut self) -> Command {
        match self.below(19) {
            16 | 17 => Command::Accounts(self.accounts()),
            0..=3 => Command::Put(self.put()),
            4 => Command::DeleteRange(self.delete()),
            5..=8 => Command::Txn(self.txn(3)),
            9 => Command::Compact(Compact { revision: self.number() }),
            10 => Command::ShortLeaseGrant(ShortLeaseGrant {
                id: self.number(),
                ttl_millis: self.number().unsigned_abs(),
            }),
            11 => Command::LeaseGrant(LeaseGrant { id: self.number(), ttl: self.number() }),
            12 => Command::LeaseRevoke(LeaseRevoke { id: self.number() }),
            13 => {
                let ids = (0..self.below(5)).map(|_| self.number()).collect();
                Command::LeaseKeepAlive(LeaseKeepAlive { ids })
            }
            14 => {
                let (raise, member, kind) = (self.below(5) == 0, self.below(3), self.below(5) as i32 - 1);
                Command::Alarm(AlarmChange { raise, member, kind })
            }
            15 => Command::RaiseRevision(RaiseRevision { revision: self.number() }),
            _ => Command::Advance(Advance {}),
        }
    }

    fn name(&mut self) -> String {
        self.one_of(&["", "root", "ann", "r", "s"]).to_string()
    }

    /// A change of users or roles.
    fn accounts(&mut self) -> Accounts {
        let (name, other) = (self.name(), self.name());
        let named = Named { name: name.clone() };
        let both = UserRole { user: name.clone(), role: other };
        let password = UserPassword { name: name.clone(), hash: self.key(), no_password: self.flag() };
        let permission = Permission { kind: self.below(4) as i32, key: self.key(), range_end: self.key() };
        let with_permission = RolePermission { role: name, permission: Some(permission).filter(|_| self.flag()) };
        let change = match self.below(12) {
            0 => AccountsChange::Enable(AuthEnable { token_key: self.key() }),
            1 => AccountsChange::Disable(AuthDisable {}),
            2 => AccountsChange::UserAdd(password),
            3 => AccountsChange::UserDelete(named),
            4 => AccountsChange::UserChangePassword(password),
            5 => AccountsChange::UserGrantRole(both),
            6 => AccountsChange::UserRevokeRole(both),
            7 => AccountsChange::RoleAdd(named),
            8 => AccountsChange::RoleDelete(named),
            9 | 10 => AccountsChange::RoleGrant(with_permission),
            _ => AccountsChange::RoleRevoke(with_permission),
        };
        Accounts { change: Some(change).filter(|_| self.below(20) > 0) }
    }

    fn caller(&mut self) -> Option<Caller> {
        match self.below(3) {
            0 => None,
            1 => Some(Caller::member()),
            _ => Some(Caller { user: self.name(), proven_at: self.number().unsigned_abs(), is_member: false }),
        }
    }

    /// A command's bytes: as they are, damaged, or noise.
    fn payload(&mut self) -> Bytes {
        let caller = self.caller();
        let mut bytes = self.command().to_payload_by(caller.as_ref()).to_vec();
        match self.below(8) {
            0 => bytes = (0..self.below(64)).map(|_| self.next() as u8).collect(),
            1 => bytes.truncate(self.below(bytes.len() as u64 + 1) as usize),
            2 | 3 => {
                for _ in 0..=self.below(3) {
                    let place = self.below(bytes.len().max(1) as u64) as usize;
                    if let Some(byte) = bytes.get_mut(place) {
                        *byte = self.next() as u8;
                    }
                }
            }
            4 => {
                // A number of eleven bytes, or one that ends the field before its time, in the middle of others.
                let place = self.below(bytes.len() as u64 + 1) as usize;
                let length = self.below(12) as usize;
                bytes.splice(place..place, vec![0xff; length]);
            }
            _ => {}
        }
        bytes.into()
    }
}

#[test]
fn no_bytes_make_apply_panic() {
    let cases: u64 = std::env::var("HUSTINGS_APPLY_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(100_000);
    let mut dice = Dice(0x5EED);
    let (mut applied, mut done, mut malformed) = (0, 0_u64, 0_u64);
    while applied < cases {
        let mut store = KvStore::new();
        store.adopt(KvStore::VERSION_MAX);
        for index in 0..COMMANDS_PER_STORE.min(cases - applied) {
            if dice.below(10) == 0 {
                let elapsed = dice.one_of(&[0, 1, 1_000_000, 3_600_000_000, u64::MAX]);
                store.advance(Duration::from_micros(elapsed));
            }
            let payload = dice.payload();
            let before = store.clone();
            match store.apply(Lsn { term: Term(1), index }, &payload) {
                Ok(response) => {
                    done += 1;
                    response.answered().expect("what was not refused can be read");
                }
                Err(KvError::Malformed) => malformed += 1,
                Err(_) => assert!(store.view().revision() - before.view().revision() <= 9, "only what was due went"),
            }
            let _ = store.next_deadline();
        }
        applied += COMMANDS_PER_STORE;
        let view = store.freeze();
        let mut restored = KvStore::decode(&mut &snapshot(&view)[..]).expect("our own snapshot is readable");
        restored.adopt(KvStore::VERSION_MAX);
        assert!(restored == store, "what a snapshot brings back is what was");
        let _ = hash_kv(&view, 0);
        let _ = view.events_since(view.compact_revision(), &KeyRange::all(), 1_000).map(|events| events.events.len());
    }
    println!("{cases} commands: {done} done, {malformed} malformed");
    assert!(done > cases / 10 && malformed > cases / 100, "an empty test proves nothing: {done}, {malformed}");
}
