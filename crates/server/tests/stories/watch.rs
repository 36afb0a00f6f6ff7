//! Watches, through a real port and the client.

// Helpers of tests fail as tests do.

use crate::support::Served;
use hustings_api::EtcdError;
use hustings_api::client::prefix_end;
use hustings_api::etcdserverpb::watch_request::RequestUnion;
use hustings_api::etcdserverpb::{
    CompactionRequest, DeleteRangeRequest, PutRequest, WatchCancelRequest, WatchCreateRequest, WatchProgressRequest,
    WatchRequest, WatchResponse, watch_create_request::FilterType,
};
use hustings_api::mvccpb::event::EventType;
use hustings_server::ServerOptions;
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Streaming;

struct Watching {
    requests: mpsc::Sender<WatchRequest>,
    responses: Streaming<WatchResponse>,
}

impl Watching {
    async fn open(served: &Served) -> Watching {
        let (requests, stream) = mpsc::channel(64);
        let responses = served.client().await.watch().watch(ReceiverStream::new(stream)).await.unwrap().into_inner();
        Watching { requests, responses }
    }

    async fn ask(&self, request: RequestUnion) {
        self.requests.send(WatchRequest { request_union: Some(request) }).await.unwrap();
    }

    async fn create(&mut self, create: WatchCreateRequest) -> WatchResponse {
        self.ask(RequestUnion::CreateRequest(create)).await;
        let created = self.next().await;
        assert!(created.created && created.events.is_empty(), "the first answer says that it is made: {created:?}");
        created
    }

    async fn next(&mut self) -> WatchResponse {
        self.responses.message().await.unwrap().expect("the stream goes on")
    }

    /// Reads events until there are so many, as (key, mod revision, is put).
    async fn events(&mut self, count: usize) -> Vec<(String, i64, bool)> {
        let mut events = Vec::new();
        while events.len() < count {
            for event in self.next().await.events {
                let kv = event.kv.unwrap();
                let key = String::from_utf8(kv.key.to_vec()).unwrap();
                events.push((key, kv.mod_revision, event.r#type == EventType::Put as i32));
            }
        }
        events
    }
}

fn key(key: &str) -> WatchCreateRequest {
    WatchCreateRequest { key: key.to_owned().into(), ..WatchCreateRequest::default() }
}

fn prefix(prefix: &str) -> WatchCreateRequest {
    WatchCreateRequest { range_end: prefix_end(prefix.as_bytes()), ..key(prefix) }
}

async fn put(served: &Served, key: &str, value: &str) {
    let put = PutRequest { key: key.to_owned().into(), value: value.to_owned().into(), ..PutRequest::default() };
    served.client().await.kv().put(put).await.unwrap();
}

async fn delete(served: &Served, key: &str) {
    let delete = DeleteRangeRequest { key: key.to_owned().into(), ..DeleteRangeRequest::default() };
    served.client().await.kv().delete_range(delete).await.unwrap();
}

/// Goal: a watch from now on hears what comes, and nothing of what was acknowledged before.
#[tokio::test]
async fn a_watch_hears_what_happens_from_now_on() {
    let served = Served::start().await;
    put(&served, "a", "old").await;
    let mut watching = Watching::open(&served).await;
    let created = watching.create(WatchCreateRequest { prev_kv: true, ..key("a") }).await;
    assert_eq!((created.watch_id, created.header.unwrap().revision), (0, 2));
    put(&served, "b", "other").await;
    put(&served, "a", "new").await;
    let told = watching.next().await;
    assert_eq!((told.watch_id, told.events.len(), told.header.unwrap().revision), (0, 1, 4));
    assert_eq!(&told.events[0].prev_kv.as_ref().unwrap().value[..], b"old");
    delete(&served, "a").await;
    assert_eq!(watching.events(1).await, [("a".to_owned(), 5, false)]);
    served.stop().await;
}

/// Goal: a watch from the past reads history, then the present, without gap or repetition; filters leave out.
#[tokio::test]
async fn a_watch_from_the_past_joins_the_present() {
    let served = Served::start().await;
    for n in 0..2_500 {
        put_quietly(&served, &format!("k/{:04}", n % 50));
    }
    let mut watching = Watching::open(&served).await;
    watching.create(WatchCreateRequest { start_revision: 2, ..prefix("k/") }).await;
    for n in 0..10 {
        put(&served, &format!("k/{n}"), "late").await;
    }
    let revisions: Vec<i64> = watching.events(2_510).await.into_iter().map(|(_, revision, _)| revision).collect();
    assert_eq!(revisions, (2..2_512).collect::<Vec<i64>>());

    let mut puts_left_out = Watching::open(&served).await;
    let filtered = WatchCreateRequest { filters: vec![FilterType::Noput as i32], ..prefix("k/") };
    puts_left_out.create(filtered).await;
    put(&served, "k/x", "").await;
    delete(&served, "k/x").await;
    assert_eq!(puts_left_out.events(1).await, [("k/x".to_owned(), 2_513, false)]);
}

fn put_quietly(served: &Served, key: &str) {
    let put = hustings_kv::Put { key: key.to_owned().into(), ..hustings_kv::Put::default() };
    served.double.apply_now(&hustings_kv::Command::Put(put));
}

/// Goal: a watch of the future hears nothing below its start.
#[tokio::test]
async fn a_watch_of_the_future_waits_for_it() {
    let served = Served::start().await;
    let mut watching = Watching::open(&served).await;
    watching.create(WatchCreateRequest { start_revision: 5, ..key("a") }).await;
    for _ in 0..5 {
        put(&served, "a", "").await;
    }
    assert_eq!(watching.events(2).await.iter().map(|(_, revision, _)| *revision).collect::<Vec<_>>(), [5, 6]);
}

/// Goal: ids are the client's or the stream's; a taken one and an empty range are refused as etcd does; cancelled means silent.
#[tokio::test]
async fn ids_ranges_and_cancellation_are_etcds() {
    let served = Served::start().await;
    let mut watching = Watching::open(&served).await;
    assert_eq!(watching.create(key("a")).await.watch_id, 0);
    assert_eq!(watching.create(WatchCreateRequest { watch_id: 7, ..key("a") }).await.watch_id, 7);
    let taken = watching.create(WatchCreateRequest { watch_id: 7, ..key("a") }).await;
    assert_eq!((taken.watch_id, taken.canceled), (-1, true));
    assert_eq!(taken.cancel_reason, "mvcc: duplicate watch ID provided on the WatchStream");
    let empty = watching.create(WatchCreateRequest { range_end: "a".into(), ..key("b") }).await;
    assert_eq!(empty.cancel_reason, "mvcc: watcher range is empty");

    watching.ask(RequestUnion::CancelRequest(WatchCancelRequest { watch_id: 0 })).await;
    let canceled = watching.next().await;
    assert_eq!((canceled.watch_id, canceled.canceled, canceled.created), (0, true, false));
    put(&served, "a", "").await;
    assert_eq!(watching.next().await.watch_id, 7);
}

/// Goal: a watcher that asks for forgotten history learns so, with the revision that is left.
#[tokio::test]
async fn a_watch_of_forgotten_history_is_cancelled() {
    let served = Served::start().await;
    for _ in 0..5 {
        put(&served, "a", "").await;
    }
    served.client().await.kv().compact(CompactionRequest { revision: 4, physical: false }).await.unwrap();
    let mut watching = Watching::open(&served).await;
    watching.create(WatchCreateRequest { start_revision: 2, ..key("a") }).await;
    let canceled = watching.next().await;
    assert_eq!((canceled.canceled, canceled.compact_revision), (true, 4));
    watching.create(WatchCreateRequest { start_revision: 4, ..key("a") }).await;
    assert_eq!(watching.events(3).await.len(), 3);
}

/// Goal: progress comes when asked for, after everything up to it, and by itself when nothing happens.
#[tokio::test(start_paused = true)]
async fn progress_is_told_when_asked_for_and_now_and_then() {
    let served = Served::start().await;
    let mut watching = Watching::open(&served).await;
    watching.create(WatchCreateRequest { progress_notify: true, ..key("a") }).await;
    put(&served, "b", "").await;
    watching.ask(RequestUnion::ProgressRequest(WatchProgressRequest {})).await;
    let progress = watching.next().await;
    assert_eq!((progress.watch_id, progress.events.len(), progress.header.unwrap().revision), (-1, 0, 2));
    let by_itself = watching.next().await;
    assert_eq!((by_itself.watch_id, by_itself.events.len(), by_itself.header.unwrap().revision), (0, 0, 2));
}

/// Goal: a reader that stops reading loses nothing and holds nobody up.
/// Method: one stream does not read while far more is written than its queue holds; another reads all.
#[tokio::test]
async fn a_slow_reader_misses_nothing_and_delays_nobody() {
    let served = Served::start().await;
    let mut slow = Watching::open(&served).await;
    let mut quick = Watching::open(&served).await;
    slow.create(prefix("k")).await;
    quick.create(prefix("k")).await;
    let value = bytes::Bytes::from(vec![b'x'; 100_000]);
    for n in 0..400 {
        let put = hustings_kv::Put { key: format!("k{n}").into(), value: value.clone(), ..Default::default() };
        served.double.apply_now(&hustings_kv::Command::Put(put));
        if n % 20 == 0 {
            // Lets the hub look, so that there are many parcels.
            quick.events(1).await;
        }
    }
    put(&served, "k-end", "").await;
    while quick.next().await.events.last().is_none_or(|event| event.kv.as_ref().unwrap().mod_revision < 402) {}
    let revisions: Vec<i64> = slow.events(401).await.into_iter().map(|(_, revision, _)| revision).collect();
    assert_eq!(revisions, (2..403).collect::<Vec<i64>>());
}

/// Goal: many watchers on one stream that falls behind each hear every event, once. Method: twenty watch the same keys and nobody reads,
/// while far more is written than the stream's queue holds, several changes between two looks; then all is read.
#[tokio::test]
async fn many_watchers_of_a_slow_reader_hear_everything_once() {
    let served = Served::start().await;
    let mut slow = Watching::open(&served).await;
    let mut quick = Watching::open(&served).await;
    quick.create(prefix("k")).await;
    for _ in 0..20 {
        slow.create(prefix("k")).await;
    }
    for n in 0..60 {
        let put = hustings_kv::Put { value: vec![b'x'; 20_000].into(), ..large_put(n) };
        served.double.apply_now(&hustings_kv::Command::Put(put));
        if n % 3 == 2 {
            quick.events(3).await;
        }
    }
    let mut heard: BTreeMap<i64, Vec<i64>> = BTreeMap::new();
    while heard.len() < 20 || heard.values().any(|revisions| revisions.last() < Some(&61)) {
        let answer = slow.next().await;
        let revisions = answer.events.iter().map(|event| event.kv.as_ref().unwrap().mod_revision);
        heard.entry(answer.watch_id).or_default().extend(revisions);
    }
    for (watcher, revisions) in heard {
        assert_eq!(revisions, (2..62).collect::<Vec<i64>>(), "watcher {watcher}");
    }
}

fn large_put(n: usize) -> hustings_kv::Put {
    hustings_kv::Put { key: format!("k{n}").into(), value: vec![b'x'; 100_000].into(), ..Default::default() }
}

/// Goal: a watcher that catches up on large events gets them in small answers, however many they are: none costs much memory.
#[tokio::test]
async fn large_events_come_in_small_answers() {
    let served = Served::start().await;
    for n in 0..60 {
        served.double.apply_now(&hustings_kv::Command::Put(large_put(n)));
    }
    let mut watching = Watching::open(&served).await;
    watching.create(WatchCreateRequest { start_revision: 2, ..prefix("k") }).await;
    let mut events = 0;
    while events < 60 {
        let part = watching.next().await.events.len();
        assert!(part <= 11, "{part} events of 100,000 bytes in one answer");
        events += part;
    }
}

/// Goal: large answers are cut where the client asked for that, and put together they are whole.
#[tokio::test]
async fn a_large_answer_is_fragmented_on_request() {
    let served = Served::start().await;
    let put = |n| hustings_kv::Request::Put(large_put(n)).into();
    let txn = hustings_kv::Txn { success: (0..60).map(put).collect(), ..Default::default() };
    served.double.apply_now(&hustings_kv::Command::Txn(txn));
    let mut watching = Watching::open(&served).await;
    watching.create(WatchCreateRequest { fragment: true, start_revision: 2, ..prefix("k") }).await;
    let (mut parts, mut events) = (0, 0);
    loop {
        let part = watching.next().await;
        (parts, events) = (parts + 1, events + part.events.len());
        if !part.fragment {
            break;
        }
    }
    assert_eq!((parts, events), (3, 60));
}

/// Goal: a thousand watches on one stream, and each hears its own key only.
#[tokio::test]
async fn a_thousand_watches_share_a_stream() {
    let served = Served::start().await;
    let mut watching = Watching::open(&served).await;
    for n in 0..1_000 {
        watching.create(key(&format!("k{n}"))).await;
    }
    put(&served, "k500", "").await;
    let told = watching.next().await;
    assert_eq!((told.watch_id, told.events.len()), (500, 1));
}

/// Goal: who insisted on a leader is let go when there has been none for too long; others stay. A stop ends all.
#[tokio::test(start_paused = true)]
async fn streams_end_for_want_of_a_leader_and_at_a_stop() {
    let served = Served::start_with(ServerOptions { grace: Duration::from_secs(1), ..ServerOptions::default() }).await;
    let mut patient = Watching::open(&served).await;
    patient.create(key("a")).await;
    let (requests, stream) = mpsc::channel::<WatchRequest>(1);
    let mut request = tonic::Request::new(ReceiverStream::new(stream));
    request.metadata_mut().insert("hasleader", "true".parse().unwrap());
    let mut insisting = served.client().await.watch().watch(request).await.unwrap().into_inner();
    served.double.declare(|status| status.leader = None);
    assert_eq!(EtcdError::of(&insisting.message().await.unwrap_err()), Some(EtcdError::NoLeader));
    drop(requests);
    put(&served, "a", "").await;
    assert_eq!(patient.events(1).await.len(), 1);
    served.stop().await;
    assert_eq!(EtcdError::of(&patient.responses.message().await.unwrap_err()), Some(EtcdError::Stopped));
}

/// Goal: the keys of watchers stand in the budget, however many a stream makes. Method: keys of 100 KB, until the budget is full.
#[tokio::test]
async fn the_keys_of_watchers_stand_in_the_budget() {
    let served = Served::start_with(ServerOptions { memory_limit_bytes: 8 << 20, ..ServerOptions::default() }).await;
    let mut watching = Watching::open(&served).await;
    let mut made = 0;
    let refused = loop {
        let large = key(&format!("{made:05}{}", "k".repeat(100_000)));
        watching.ask(RequestUnion::CreateRequest(large)).await;
        match watching.responses.message().await {
            Ok(answer) => match answer.expect("the stream goes on") {
                answer if answer.canceled => break answer.cancel_reason,
                _ => made += 1,
            },
            // Events on their way count in the budget as well.
            Err(status) => break status.message().to_owned(),
        }
        assert!(made < 100, "nothing is refused");
    };
    assert!((60..84).contains(&made), "{made} of 100 KB within 8 MiB");
    assert_eq!(refused, EtcdError::TooManyRequests.message());
    drop(watching);
    let again = async {
        loop {
            let mut other = Watching::open(&served).await;
            other.ask(RequestUnion::CreateRequest(key(&"k".repeat(100_000)))).await;
            if other.responses.message().await.is_ok_and(|answer| answer.is_some_and(|answer| !answer.canceled)) {
                break;
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(30), again).await.expect("what one stream held is another's");
}

/// Goal: followers of the same keys leave together without a trace, and others hear on. Method: of many on one stream each second one is
/// cancelled, then the stream ends.
#[tokio::test]
async fn many_followers_of_the_same_keys_come_and_go() {
    let served = Served::start().await;
    let mut other = Watching::open(&served).await;
    other.create(prefix("a")).await;
    let mut many = Watching::open(&served).await;
    for number in 0..200 {
        let range = WatchCreateRequest { range_end: "az".into(), ..key("a") };
        many.create(if number % 2 == 0 { prefix("a") } else { range }).await;
    }
    for watch_id in (0..200).filter(|id| id % 4 < 2) {
        many.ask(RequestUnion::CancelRequest(WatchCancelRequest { watch_id })).await;
        assert!(many.next().await.canceled);
    }
    put(&served, "ab", "1").await;
    assert_eq!(many.events(100).await.len(), 100, "each that is left hears it once");
    drop(many);
    assert_eq!(other.events(1).await, [("ab".to_owned(), 2, true)]);
    put(&served, "ac", "2").await;
    assert_eq!(other.events(1).await, [("ac".to_owned(), 3, true)]);
}
