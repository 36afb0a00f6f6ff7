//! Prints what the store costs at a million keys: `cargo run --release -p hustings-kv --example measure [keys]`.
//!
//! Measured, never asserted. Values are 256 B; keys are overwritten in a scattered order.

use std::time::{Duration, Instant};

use bytes::Bytes;
use hustings_core::{Lsn, StateMachine, Term};
use hustings_kv::{Advance, Command, Compact, KeyRange, KvStore, Put, Range, hash_kv};

fn payload(key: u64) -> Bytes {
    let key = Bytes::from(format!("/registry/pods/{key:08}"));
    Command::Put(Put { key, value: Bytes::from(vec![7; 256]), ..Put::default() }).to_payload()
}

/// Applies and prints the mean and the worst; `before` runs ahead of each, untimed.
fn run(what: &str, store: &mut KvStore, payloads: &[Bytes], mut before: impl FnMut(usize, &KvStore)) {
    let (mut total, mut worst) = (Duration::ZERO, Duration::ZERO);
    for (index, payload) in payloads.iter().enumerate() {
        before(index, store);
        let start = Instant::now();
        let outcome = store.apply(Lsn { term: Term(1), index: index as u64 }, payload);
        let took = start.elapsed();
        assert!(outcome.is_ok(), "{outcome:?}");
        total += took;
        worst = worst.max(took);
    }
    println!("{what:<44} {:>10.2?} each, worst {worst:.2?}", total / payloads.len().max(1) as u32);
}

fn time<T>(what: &str, work: impl FnOnce() -> T) -> T {
    let start = Instant::now();
    let result = work();
    println!("{what:<44} {:>10.2?}", start.elapsed());
    result
}

fn main() {
    let keys: u64 = std::env::args().nth(1).and_then(|keys| keys.parse().ok()).unwrap_or(1_000_000);
    let scattered = |n: u64| (n.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 20) % keys;
    let mut store = KvStore::new();

    let filling: Vec<_> = (0..keys).map(payload).collect();
    run("put, new keys in order", &mut store, &filling, |_, _| ());
    drop(filling);
    let overwriting: Vec<_> = (0..200_000).map(|n| payload(scattered(n))).collect();
    run("put, scattered overwrites", &mut store, &overwriting, |_, _| ());
    let mut view = store.freeze();
    run("put, a view taken every 100 entries", &mut store, &overwriting, |index, store| {
        if index % 100 == 0 {
            view = store.freeze();
        }
    });
    run("put, a view taken every entry", &mut store, &overwriting[..50_000], |_, store| view = store.freeze());

    view = store.freeze();
    let one = |n: u64| Range { key: format!("/registry/pods/{:08}", scattered(n)).into(), ..Range::default() };
    let gets: Vec<_> = (0..100_000).map(one).collect();
    time("100,000 gets of one key", || gets.iter().map(|get| view.range(get).expect("there").kvs.len()).sum::<usize>());
    let all = Range { key: b"/registry/"[..].into(), range_end: b"/registry0"[..].into(), ..Range::default() };
    time("range of all keys, limit 10", || view.range(&Range { limit: 10, ..all.clone() }).expect("there"));
    time("range of all keys, count only", || view.range(&Range { count_only: true, ..all.clone() }).expect("there"));
    let old = Range { revision: keys as i64 + 5, limit: 10, ..all.clone() };
    time("range of all keys, older revision, limit 10", || view.range(&old).expect("there"));
    let from = view.revision() - 1_000;
    time("the last 1,000 events", || view.events_since(from, &KeyRange::all(), 10_000).expect("there").events.len());
    time("hash", || hash_kv(&view, 0).is_ok());
    drop(view);

    let compact = Command::Compact(Compact { revision: store.view().revision() }).to_payload();
    run("compaction", &mut store, &[compact], |_, _| ());
    run("put while compacted history is removed", &mut store, &overwriting[..5_000], |_, _| ());
    let advance = Command::Advance(Advance {}).to_payload();
    let mut steps = 0;
    let start = Instant::now();
    while store.next_deadline().is_some() {
        store.apply(Lsn { term: Term(1), index: 1 }, &advance).expect("never refused");
        steps += 1;
    }
    println!("the rest of the removal: {steps} idle entries, {:.2?} each", start.elapsed() / steps.max(1));

    let view = store.freeze();
    let mut bytes = Vec::new();
    time("snapshot", || KvStore::encode(&view, &mut |chunk| bytes.extend_from_slice(&chunk)));
    let restored = time("restore", || KvStore::decode(&mut &bytes[..]).expect("our own snapshot"));
    assert!(restored == store, "a snapshot restores the state");
    println!("{} keys, {} MB estimated, snapshot {} MB", view.key_count(), view.size_bytes() >> 20, bytes.len() >> 20);
}
