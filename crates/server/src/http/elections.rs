//! `GET /v1/elections[?name=NAME]`: the elections of applications: name, holder, token, since when, why it moved last.
//!
//! An election is seen by the keys of its candidates: `NAME/<lease in hex>`, attached to that lease. So those of our library
//! and sidecar are told, and those of every client of etcd that uses its recipe; and what it costs grows with the keys that
//! hang on leases, not with the store. An election that is asked for by its name is told with what stands in its way, an entry
//! that nobody's lease ends, and when nobody leads any more.
//!
//! Of its candidates' values one is read, that of the holder, and beside it the election's history and generation. All that is
//! told draws on the budget of clients while it is made and until it is sent.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use hustings_api::client::prefix_end;
use hustings_kv::{KeyValue, LeaseKeys, Need, Range, View};
use hustings_lease::Token;
use hustings_lease::history::History;
use hyper::{Response, StatusCode};
use serde::{Deserialize, Serialize};
use tonic::Status;

use crate::context::Services;
use crate::context::backend::Backend;
use crate::context::caller::Caller;
use crate::context::error;
use crate::context::memory::{Held, Memory, SMALL_BYTES, Weight};
use crate::http::body::Body;
use crate::http::gateway::refuse;
use crate::http::own::millis;
use crate::http::respond;
use crate::services::campaign::read_key;

/// Most candidates that one answer looks at.
const CANDIDATES_MAX: usize = 100_000;

/// Keys that are read at a time.
const PART: i64 = 1_000;

/// Bytes of memory beside its texts for an election or a candidate.
const OVERHEAD_BYTES: usize = 256;

/// Most bytes of JSON that a byte of a text can become: a control character is `\u0001`.
const ESCAPED_MAX: usize = 6;

/// The value that our candidates write into their keys.
#[derive(Deserialize)]
struct Entry {
    id: String,
    #[serde(default)]
    value: String,
}

/// One election, as it is told.
#[derive(Serialize)]
struct ElectionStatus {
    name: String,
    /// Id of the leader; a stranger's value is told as it stands. `None` if nobody leads any more.
    holder: Option<String>,
    value: String,
    /// Token of the leadership, or of the last one.
    token: String,
    candidates: usize,
    /// The lease on which the leadership stands, in hex; 0 for an entry that no lease ends.
    lease: String,
    /// The lease's time to live, and what is left of it as far as this member knows.
    ttl_millis: u64,
    remaining_millis: u64,
    /// Moment at which it was won, by the winner's own clock, seconds since 1970; for people, nothing is decided by it.
    since_unix_seconds: Option<u64>,
    /// The end of the leadership before it, or of the last one; `None` if it is not told.
    because: Option<String>,
}

/// An answer's text, and what it holds of the budget.
pub(crate) type Told = (String, Held);

#[derive(Serialize)]
struct Answer<'a> {
    elections: &'a [ElectionStatus],
}

/// The elections of one look, those of one name or all.
struct Look<'a> {
    view: &'a View,
    only: Option<&'a str>,
    held: Held,
    bytes: usize,
}

/// Candidates of one election: how many there are, and who of them stands first.
struct Standing {
    candidates: usize,
    create_revision: i64,
    key: Bytes,
}

/// Answers `GET /v1/elections`: the elections of applications, with their holders.
pub(crate) async fn answer<B: Backend>(services: &Services<B>, caller: &Caller, query: &str) -> Response<Body> {
    let name = query.split('&').find_map(|pair| pair.strip_prefix("name=")).map(str::to_owned);
    let told = async {
        // The keys of an election begin with its name; all elections are told to a user that may read everything.
        let (from, end) = match &name {
            Some(name) => (Bytes::copy_from_slice(name.as_bytes()), prefix_end(name.as_bytes())),
            None => (Bytes::from_static(b"\0"), Bytes::from_static(b"\0")),
        };
        let view = services.read(caller, Need::Read(&from, &end)).await?;
        let memory = services.memory.clone();
        services.build(move || tell(&view, name.as_deref(), &memory)).await?
    };
    match told.await {
        Ok((text, held)) => {
            let bytes = text.len();
            let mut response = respond(StatusCode::OK, "application/json", text.into());
            if bytes > SMALL_BYTES {
                response.extensions_mut().insert(Weight::holding(bytes, held));
            }
            response
        }
        Err(status) => refuse(&status),
    }
}

/// All elections that somebody stands for, by name; or the one that is asked for, also if somebody only did. In JSON.
///
/// # Errors
/// `ResourceExhausted` where there are too many, or where the budget of memory has no room for what is told.
pub(crate) fn tell(view: &View, only: Option<&str>, memory: &Arc<Memory>) -> Result<Told, Status> {
    let mut look = Look { view, only, held: Held::nothing(memory), bytes: 0 };
    let mut told = Vec::new();
    let standing = look.standing()?;
    let vacancy = if standing.is_empty() { only.map(|name| vacancy(view, name)).transpose()?.flatten() } else { None };
    told.extend(vacancy);
    for (name, standing) in standing {
        let election = told_of(view, name, &standing)?;
        look.hold(election.text_bytes() + OVERHEAD_BYTES)?;
        told.push(election);
    }
    // Before there is a text: it may be as long as this.
    let texts: usize = told.iter().map(ElectionStatus::text_bytes).sum();
    look.hold(texts * ESCAPED_MAX + told.len() * OVERHEAD_BYTES)?;
    let text = serde_json::to_string(&Answer { elections: &told });
    let text = text.map_err(|error| Status::internal(format!("elections cannot be told: {error}")))?;
    drop(told);
    look.held.resize(text.capacity())?;
    Ok((text, look.held))
}

impl Look<'_> {
    /// Draws this many bytes more on the budget.
    fn hold(&mut self, bytes: usize) -> Result<(), Status> {
        self.bytes += bytes;
        self.held.resize(self.bytes)
    }

    /// All candidates, counted by election.
    fn standing(&mut self) -> Result<BTreeMap<String, Standing>, Status> {
        let view = self.view;
        let mut all = BTreeMap::new();
        if let Some(name) = self.only {
            // Not through all leases: whoever may read this name alone could have all of them read again and again.
            for kv in entries_of(view, name)?.0 {
                self.add(&mut all, name, kv)?;
            }
            return Ok(all);
        }
        let mut seen = 0;
        for (lease, key) in view.leased_keys() {
            let Some(name) = election_of(key, lease) else { continue };
            seen += 1;
            if seen > CANDIDATES_MAX {
                let why =
                    format!("more than {CANDIDATES_MAX} candidates stand for election: ask for one with ?name=NAME");
                return Err(Status::resource_exhausted(why));
            }
            if let Some(kv) = read_record(view, &Bytes::copy_from_slice(key))? {
                self.add(&mut all, name, kv)?;
            }
        }
        Ok(all)
    }

    /// Counts a candidate, and remembers it if it stands before the others.
    fn add(&mut self, all: &mut BTreeMap<String, Standing>, name: &str, kv: KeyValue) -> Result<(), Status> {
        match all.get_mut(name) {
            None => {
                self.hold(name.len() + kv.key.len() + OVERHEAD_BYTES)?;
                let standing = Standing { candidates: 1, create_revision: kv.create_revision, key: kv.key };
                all.insert(name.to_owned(), standing);
            }
            Some(standing) => {
                standing.candidates += 1;
                if kv.create_revision < standing.create_revision {
                    (standing.create_revision, standing.key) = (kv.create_revision, kv.key);
                }
            }
        }
        Ok(())
    }
}

impl ElectionStatus {
    /// Bytes of its texts.
    fn text_bytes(&self) -> usize {
        let holder = self.holder.as_ref().map_or(0, String::len);
        self.name.len() + holder + self.value.len() + self.because.as_ref().map_or(0, String::len)
    }
}

/// A key without its value.
fn read_record(view: &View, key: &Bytes) -> Result<Option<KeyValue>, Status> {
    let range = Range { key: key.clone(), keys_only: true, ..Range::default() };
    Ok(view.range(&range).map_err(error::of_store)?.kvs.pop())
}

/// The entries of one election, without their values, and the number of keys that were looked at; of the entries those as well that no
/// lease ends, which stand until somebody deletes them.
fn entries_of(view: &View, name: &str) -> Result<(Vec<KeyValue>, usize), Status> {
    let prefix = Bytes::from(format!("{name}/"));
    let is_number = |key: &[u8]| !key.is_empty() && key.iter().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f'));
    let is_entry = |kv: &KeyValue| match kv.lease {
        0 => is_number(&kv.key[prefix.len()..]),
        lease => election_of(&kv.key, lease) == Some(name),
    };
    let (mut key, range_end, mut entries, mut looked_at) = (prefix.clone(), prefix_end(&prefix), Vec::new(), 0);
    loop {
        let range = Range { key, range_end: range_end.clone(), limit: PART, keys_only: true, ..Range::default() };
        let found = view.range(&range).map_err(error::of_store)?;
        looked_at += found.kvs.len();
        let Some(last) = found.kvs.last().filter(|_| found.more) else {
            entries.extend(found.kvs.into_iter().filter(is_entry));
            return Ok((entries, looked_at));
        };
        key = behind(&last.key, prefix.len());
        entries.extend(found.kvs.into_iter().filter(is_entry));
        if looked_at > CANDIDATES_MAX {
            return Err(Status::resource_exhausted(format!(
                "more than {CANDIDATES_MAX} candidates or other keys stand below {name:?}"
            )));
        }
    }
}

/// The first key behind this one that may be an entry: what stands below another name is passed over, whole elections among it.
fn behind(key: &[u8], prefix_bytes: usize) -> Bytes {
    match key[prefix_bytes..].iter().position(|byte| *byte == b'/') {
        Some(slash) => [&key[..prefix_bytes + slash], &[b'/' + 1]].concat().into(),
        None => [key, b"\0"].concat().into(),
    }
}

/// An election that somebody has led, and nobody stands for: its last leadership, and how that ended.
fn vacancy(view: &View, name: &str) -> Result<Option<ElectionStatus>, Status> {
    let history = History::parse(&text_at(view, &format!("{name}.history"))?.unwrap_or_default());
    let note = text_at(view, &format!("{name}.note"))?.and_then(|text| serde_json::from_str::<LastWords>(&text).ok());
    let Some(last) = history.tenures().next_back() else { return Ok(None) };
    let note = note.filter(|note| note.token == last.token.to_string());
    Ok(Some(ElectionStatus {
        name: name.to_owned(),
        holder: None,
        value: String::new(),
        token: last.token.to_string(),
        candidates: 0,
        lease: String::new(),
        ttl_millis: 0,
        remaining_millis: 0,
        since_unix_seconds: None,
        because: Some(note.map_or_else(|| "left no note".to_owned(), |note| note.because)),
    }))
}

/// A leader's last words, as our candidates write them.
#[derive(Deserialize)]
struct LastWords {
    token: String,
    because: String,
}

fn text_at(view: &View, key: &str) -> Result<Option<String>, Status> {
    let kv = read_key(view, &Bytes::copy_from_slice(key.as_bytes()))?;
    Ok(kv.and_then(|kv| String::from_utf8(kv.value.to_vec()).ok()))
}

/// The election for which this key stands, if it does.
fn election_of(key: &[u8], lease: i64) -> Option<&str> {
    let (name, entry) = std::str::from_utf8(key).ok()?.rsplit_once('/')?;
    (!name.is_empty() && i64::from_str_radix(entry, 16) == Ok(lease)).then_some(name)
}

fn told_of(view: &View, name: String, standing: &Standing) -> Result<ElectionStatus, Status> {
    let first = read_key(view, &standing.key)?.expect("one view has the same keys at each look");
    let generation =
        text_at(view, &format!("{name}.generation"))?.and_then(|text| text.trim().parse().ok()).unwrap_or(0);
    let token = Token { generation, number: first.create_revision.unsigned_abs() };
    let history = History::parse(&text_at(view, &format!("{name}.history"))?.unwrap_or_default());
    let tenure = history.tenures().rev().find(|tenure| tenure.token == token);
    let (holder, value) = match serde_json::from_slice::<Entry>(&first.value) {
        Ok(entry) => (entry.id, entry.value),
        Err(_) => (String::from_utf8_lossy(&first.value).into_owned(), String::new()),
    };
    let lease = view.lease_time_to_live(first.lease, LeaseKeys::Omit);
    Ok(ElectionStatus {
        name,
        holder: Some(holder),
        value,
        token: token.to_string(),
        candidates: standing.candidates,
        lease: format!("{:x}", first.lease),
        ttl_millis: lease.as_ref().map_or(0, |lease| millis(lease.granted)),
        remaining_millis: lease.as_ref().map_or(0, |lease| millis(lease.remaining)),
        since_unix_seconds: tenure.and_then(|tenure| tenure.since_unix_seconds),
        because: tenure.map(|tenure| tenure.before.to_string()),
    })
}

#[cfg(test)]
mod tests {
    use hustings_core::{Lsn, StateMachine};
    use hustings_kv::{Command, KvStore, LeaseGrant, Put};

    use super::*;

    /// Bytes of each candidate's value.
    const VALUE_BYTES: usize = 1 << 20;

    /// A store in which this many candidates stand for each of these elections, each with a value of a mebibyte.
    fn store(elections: i64, candidates: i64) -> KvStore {
        let mut store = KvStore::new();
        let mut index = 0;
        let mut apply = |command: Command| {
            index += 1;
            let _ = store.apply(Lsn::new(1, index), &command.to_payload());
        };
        for id in 1..=elections * candidates {
            apply(Command::LeaseGrant(LeaseGrant { id, ttl: 60 }));
            let key = format!("e{}/{id:x}", id % elections).into();
            apply(Command::Put(Put { key, value: vec![b'x'; VALUE_BYTES].into(), lease: id, ..Put::default() }));
        }
        store
    }

    /// Goal: what an election costs is its holder's value, however many stand behind it. Method: a budget in which the values of all
    /// would not fit.
    #[test]
    fn of_all_candidates_the_holder_alone_is_read() {
        let memory = Memory::new(16 * VALUE_BYTES as u64);
        let (text, held) = tell(store(1, 40).view(), None, &memory).expect("there is room");
        assert!(text.contains("\"candidates\":40") && text.len() > VALUE_BYTES);
        assert!(memory.used() >= text.len() as u64, "what is told is held until it is sent");
        drop(held);
        assert_eq!(memory.used(), 0);
    }

    /// Goal: many large elections draw on the budget, and are refused where they do not fit. Method: the same values, an election
    /// each.
    #[test]
    fn what_does_not_fit_the_budget_is_refused() {
        let (store, memory) = (store(40, 1), Memory::new(16 * VALUE_BYTES as u64));
        let refusal = tell(store.view(), None, &memory).expect_err("they are too many");
        assert_eq!(refusal.code(), tonic::Code::ResourceExhausted);
        assert_eq!(memory.used(), 0, "a refusal holds nothing");
        assert!(tell(store.view(), Some("e7"), &memory).is_ok());
    }

    /// Goal: one election is found among others whose names begin with its own, however many they are, and costs what stands for it and a
    /// part of each. Method: three times as many candidates of elections below it as are read at a time, before and behind its own, and an
    /// entry without a lease.
    #[test]
    fn one_election_is_found_among_those_below_its_name() {
        let mut store = KvStore::new();
        let mut index = 0;
        let mut apply = |command: Command| {
            index += 1;
            let _ = store.apply(Lsn::new(1, index), &command.to_payload());
        };
        for id in 1..=6 * PART {
            apply(Command::LeaseGrant(LeaseGrant { id, ttl: 60 }));
            let name = if id % 2 == 0 { "prod/eu" } else { "prod/0/us" };
            apply(Command::Put(Put { key: format!("{name}/{id:x}").into(), lease: id, ..Put::default() }));
        }
        for (key, lease) in
            [("prod/1f", 0x1f), ("prod/2a", 0x2a), ("prod/3", 0x1f), ("prod/7", 0), ("prod/config", 0x1f)]
        {
            apply(Command::Put(Put { key: key.into(), lease, ..Put::default() }));
        }
        let (entries, looked_at) = entries_of(store.view(), "prod").expect("they are few");
        assert!(looked_at as i64 <= 2 * PART + 5, "{looked_at} keys were looked at, of {}", 6 * PART + 5);
        let keys: Vec<&[u8]> = entries.iter().map(|kv| &kv.key[..]).collect();
        assert_eq!(keys, [&b"prod/1f"[..], b"prod/2a", b"prod/7"]);
        let (below, looked_at) = entries_of(store.view(), "prod/eu").expect("they are few");
        assert_eq!((below.len() as i64, looked_at as i64), (3 * PART, 3 * PART));
    }

    #[test]
    fn a_key_stands_for_an_election_if_it_ends_in_its_own_lease() {
        assert_eq!(election_of(b"team/billing/7f", 0x7f), Some("team/billing"));
        assert_eq!(election_of(b"team/billing/7f", 0x80), None);
        assert_eq!(election_of(b"/7f", 0x7f), None);
        assert_eq!(election_of(b"config", 0x7f), None);
        assert_eq!(election_of(b"\xff/7f", 0x7f), None);
    }
}
