//! Prints how long single commands hold the loop at a million keys: `cargo run -p hustings-kv --example cost [keys]`.
//!
//! Measured, never asserted. The budget of `hustings_kv::cost` rests on these figures; see `docs/adr`.

use std::time::{Duration, Instant};

use bytes::Bytes;
use hustings_core::{Lsn, StateMachine, Term};
use hustings_kv::{
    Command, Compare, CompareTarget, Comparison, DeleteRange, KvStore, LeaseGrant, LeaseKeepAlive, LeaseRevoke, Put,
    Range, Request, Txn,
};

fn key(number: u64) -> Bytes {
    // Scattered, as keys come: neighbours in the tree are no neighbours in memory.
    Bytes::from(format!("/k/{:016x}", number.wrapping_mul(0x9E37_79B9_7F4A_7C15)))
}

fn put(number: u64, lease: i64) -> Command {
    Command::Put(Put { key: key(number), value: Bytes::from(vec![7; 256]), lease, ..Put::default() })
}

/// The first so many keys, of a million, by their order.
fn share(of: u64, keys: u64) -> (Bytes, Bytes) {
    let end = (u128::from(u64::MAX) * u128::from(of) / u128::from(keys)) as u64;
    (Bytes::from_static(b"/k/"), Bytes::from(format!("/k/{end:016x}")))
}

fn apply(store: &mut KvStore, command: &Command) -> (Duration, bool) {
    let payload = command.to_payload();
    let start = Instant::now();
    let outcome = store.apply(Lsn { term: Term(1), index: 1 }, &payload);
    (start.elapsed(), outcome.is_ok())
}

fn main() {
    let keys: u64 = std::env::args().nth(1).and_then(|keys| keys.parse().ok()).unwrap_or(1_000_000);
    let mut full = KvStore::new();
    full.apply(Lsn { term: Term(1), index: 1 }, &Command::LeaseGrant(LeaseGrant { id: 7, ttl: 60 }).to_payload())
        .expect("granted");
    for number in 0..keys {
        let lease = if number < keys / 10 { 7 } else { 0 };
        full.apply(Lsn { term: Term(1), index: 1 }, &put(number, lease).to_payload()).expect("room");
    }
    let begun = Instant::now();
    let frozen = full.freeze();
    let (froze, begun) = (begun.elapsed(), Instant::now());
    let digest = KvStore::digest(&frozen);
    println!("freeze {froze:.2?}, digest {:.2?} of {keys} keys ({digest:016x})", begun.elapsed());
    let say = |what: &str, command: &Command| {
        // Beside a view, as watches and snapshots hold one: the first write to each node copies it.
        let mut store = full.clone();
        let (took, is_done) = apply(&mut store, command);
        println!("{what:<56} {took:>10.2?}  {}", if is_done { "done" } else { "refused" });
    };
    for of in [1_000, 10_000, 20_000, 100_000, keys] {
        let (key, range_end) = share(of, keys);
        say(
            &format!("delete {of} keys"),
            &Command::DeleteRange(DeleteRange { key: key.clone(), range_end: range_end.clone(), prev_kv: false }),
        );
        say(
            &format!("delete {of} keys, the former ones returned"),
            &Command::DeleteRange(DeleteRange { key: key.clone(), range_end: range_end.clone(), prev_kv: true }),
        );
        let compare = |target| Compare {
            comparison: Comparison::Greater as i32,
            key: key.clone(),
            range_end: range_end.clone(),
            target: Some(target),
        };
        let txn = |compare| Command::Txn(Txn { compare, ..Txn::default() });
        say(&format!("compare {of} revisions"), &txn(vec![compare(CompareTarget::Mod(0))]));
        say(&format!("compare {of} revisions, 128 times"), &txn(vec![compare(CompareTarget::Mod(0)); 128]));
        let short = compare(CompareTarget::Value(Bytes::from(vec![6; 10])));
        say(&format!("compare {of} values"), &txn(vec![short]));
        let reads = Range { key: key.clone(), range_end: range_end.clone(), ..Range::default() };
        let one = Request::Put(Put { key: Bytes::from_static(b"x"), ..Put::default() });
        let mut success = vec![one.into()];
        success.extend(std::iter::repeat_n(Request::Range(reads).into(), 100));
        say(&format!("100 ranges over {of} keys and a put"), &Command::Txn(Txn { success, ..Txn::default() }));
    }
    say(&format!("revoke a lease with {} keys", keys / 10), &Command::LeaseRevoke(LeaseRevoke { id: 7 }));
    say("renew 8,192 leases", &Command::LeaseKeepAlive(LeaseKeepAlive { ids: vec![7; 8_192] }));
    let puts = |count: u64| {
        (0..count)
            .map(|number| {
                Request::Put(Put { key: key(number * 31), value: Bytes::from(vec![7; 100]), ..Put::default() }).into()
            })
            .collect()
    };
    say("10,000 puts in one transaction", &Command::Txn(Txn { success: puts(10_000), ..Txn::default() }));
}
