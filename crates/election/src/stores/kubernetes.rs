//! Kubernetes: one `coordination.k8s.io/v1` Lease per election, by client-go's rules, so that a controller with client-go's
//! `leaderelection` may be a rival for the same Lease.
//!
//! ```text
//!   spec.holderIdentity         ID_LIFE, unique per life; "" is vacant
//!   spec.leaseDurationSeconds   how long a waiter lets a version stand; whole seconds, 1 when released
//!   spec.renewTime, acquireTime for people and for client-go, which compares them; no clock here is compared with them
//!   spec.leaseTransitions       one more for each new holder
//!   metadata.annotations        hustings.github.io/...: tenure, note, wish, history, generation
//! ```
//!
//! Annotations outlive their writer: client-go keeps them when it wins. So `tenure` names the holder and the count of
//! transitions that it is about, and what is about another one is passed over.
//!
//! **The token's number** is the resource version of the write that won. It is known from the answer only; the holder's next
//! write puts it into `tenure`. Until then the Lease has the version of that very write, so everybody reads the same.
//! Versions are ordered by Kubernetes' word since 1.35 (KEP-5504), and in fact before where etcd stores them; older servers
//! are warned of. Where versions are no numbers, `leaseTransitions` are counted, which begin anew when a Lease is deleted.
//!
//! **A renewal always changes the Lease**: a server writes nothing, and gives no new version, when an update says what is there
//! already, and a candidate that waits would see the holder silent. So `renewTime` grows by a microsecond at least, also while
//! the wall clock stands still or goes back.
//!
//! Promises of the store. Its API server reads and writes through etcd; a read of one Lease without a version is linearizable,
//! a watch is late and may end, and is used as a hint only. There are no sessions: when a holder is silent, a candidate that
//! waits lets the version grow old on its own clock. Two things break it: an etcd restored from a backup (raise the generation), and a
//! client that writes what it remembers (client-go's release after a sleep erases its successor): the holder learns of it from
//! its next write, which conflicts, and stops.
//!
//! `kubernetes://HOST:PORT/NAMESPACE/NAME` is plain HTTP, as `kubectl proxy` gives it; `kubernetes:///NAMESPACE/NAME` is what
//! `KUBECONFIG` says, or else the cluster in which this process runs.

mod api;
mod io;
mod lease;
mod micro_time;

use super::record::{Fault, Hints, Record, Records, Swap, Troubles, Will};
use crate::address::StoreAddress;
use crate::clock::boot_micros;
use crate::stores::pauses::Pauses;
use crate::will::StoreWill;
use api::{Answered, Api};
use hustings_lease::Profile;
use lease::Stamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::task::JoinHandle;

/// Pause between two tries to watch, or to reach a server.
const RETRY: Duration = Duration::from_millis(200);
/// The longest pause between two tries to watch, where one after the other is refused.
const RETRY_MAX: Duration = Duration::from_secs(20);
/// The longest pause before a watch is tried again that broke off, or that a server could not serve.
const HICCUP_MAX: Duration = Duration::from_secs(2);

/// The address of the API server, and the namespace of the Leases.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Place {
    /// None: what the environment says.
    endpoints: Vec<String>,
    namespace: String,
}

/// The Leases of a namespace.
pub(crate) struct Kubernetes {
    place: Place,
    ttl: Duration,
    api: Arc<Api>,
    listeners: Arc<Listeners>,
}

/// Tasks that listen for changes, by election.
type Listeners = Mutex<BTreeMap<String, JoinHandle<()>>>;

impl Kubernetes {
    /// A store of which nothing is asked yet.
    pub(crate) fn new(address: &StoreAddress, ttl: Duration) -> Kubernetes {
        let namespace = address.place.clone().unwrap_or_default();
        Kubernetes::at(Place { endpoints: address.endpoints.clone(), namespace }, ttl)
    }

    fn at(place: Place, ttl: Duration) -> Kubernetes {
        // A part of a second cannot be written.
        let ttl = Duration::from_secs(ttl.as_secs() + u64::from(ttl.subsec_nanos() > 0));
        let api = Arc::new(Api::new(&place.endpoints, (ttl / 10).max(Duration::from_millis(100))));
        Kubernetes { place, ttl, api, listeners: Arc::default() }
    }

    fn path(&self, election: &str) -> String {
        format!("{}/{election}", self.collection())
    }

    fn collection(&self) -> String {
        format!("/apis/coordination.k8s.io/v1/namespaces/{}/leases", self.place.namespace)
    }
}

impl super::record::Place for Place {
    type Records = Kubernetes;

    fn records(&self, ttl: Duration) -> Kubernetes {
        Kubernetes::at(self.clone(), ttl)
    }
}

impl Drop for Kubernetes {
    fn drop(&mut self) {
        for listener in self.listeners.lock().unwrap_or_else(PoisonError::into_inner).values() {
            listener.abort();
        }
    }
}

/// The record in a Lease.
fn record_of(lease: Value) -> Result<Record<Stamp>, Fault> {
    let (content, generation) = lease::content_of(&lease).map_err(Fault::Refused)?;
    Ok(Record { content, generation, stamp: Stamp(lease) })
}

impl Records for Kubernetes {
    type Stamp = Stamp;

    /// As client-go's: what is written beside the `spec`, as annotations and labels are, is no renewal.
    fn shows_life(before: &Stamp, now: &Stamp) -> bool {
        let of = |stamp: &Stamp| (stamp.0["metadata"]["uid"].clone(), stamp.0["spec"].clone());
        of(before) != of(now)
    }

    fn profile(&self) -> Profile {
        Profile::KUBERNETES
    }

    fn ttl(&self) -> Duration {
        self.ttl
    }

    async fn open(&self) -> Result<(), Fault> {
        self.api.open().await
    }

    async fn read(&self, election: &str) -> Result<Option<Record<Stamp>>, Fault> {
        match self.api.ask("GET", &self.path(election), None).await? {
            Answered::Object(lease) => record_of(lease).map(Some),
            Answered::NotFound(_) | Answered::Conflict => Ok(None),
        }
    }

    async fn swap(&self, election: &str, swap: Swap<'_, Stamp>) -> Result<Option<Record<Stamp>>, Fault> {
        let lease = lease::written(&self.place.namespace, election, &swap);
        let asked = match swap.over {
            Some(_) => self.api.ask("PUT", &self.path(election), Some(&lease)).await?,
            None => self.api.ask("POST", &self.collection(), Some(&lease)).await?,
        };
        match (asked, swap.over) {
            (Answered::Object(lease), _) => record_of(lease).map(Some),
            (Answered::Conflict, _) => Ok(None),
            // It was deleted meanwhile.
            (Answered::NotFound(_), Some(_)) => Ok(None),
            // The namespace is missing.
            (Answered::NotFound(why), None) => Err(Fault::Refused(why)),
        }
    }

    fn suspect(&self) {
        self.api.suspect();
    }

    fn hints(&self) -> &Hints {
        self.api.hints()
    }

    fn listen(&self, election: &str) {
        let mut listeners = self.listeners.lock().unwrap_or_else(PoisonError::into_inner);
        // One that leaves takes itself out; one that panicked could not.
        listeners.retain(|_, listener| !listener.is_finished());
        let path = format!(
            "{}?watch=true&allowWatchBookmarks=true&fieldSelector=metadata.name%3D{election}",
            self.collection()
        );
        let start = || tokio::spawn(listen(self.api.clone(), path, election.to_owned(), self.listeners.clone()));
        listeners.entry(election.to_owned()).or_insert_with(start);
    }

    fn poll(&self, patience: Duration) -> Duration {
        // A watch tells sooner, as long as it is alive.
        patience * 2
    }

    fn troubles(&self) -> &Troubles {
        self.api.troubles()
    }

    fn will(&self, election: &str, life: &str) -> Option<StoreWill> {
        let (place, election, life) = (self.place.clone(), election.to_owned(), life.to_owned());
        Some(StoreWill::Kubernetes(Box::new(Will { place, election, life })))
    }
}

/// Rings at each change of a Lease, until nobody listens.
async fn listen(api: Arc<Api>, path: String, election: String, listeners: Arc<Listeners>) {
    let left = async {
        while !leaves(api.hints(), &election, &listeners) {
            api.hints().until_unheard(&election).await;
        }
    };
    // An open request ends with this task.
    tokio::select! {
        () = watch(&api, &path, &election) => {}
        () = left => {}
    }
}

/// Takes a task out of the listeners if nobody listens; says whether it did. Somebody who comes to listen has its hints before it looks
/// for a task, so that it finds one that stays, or none.
fn leaves(hints: &Hints, election: &str, listeners: &Listeners) -> bool {
    let mut listeners = listeners.lock().unwrap_or_else(PoisonError::into_inner);
    let is_unheard = !hints.are_heard(election);
    if is_unheard {
        listeners.remove(election);
    }
    is_unheard
}

/// Rings at each change of a Lease for ever.
async fn watch(api: &Api, path: &str, election: &str) {
    let mut pauses = Pauses::new(RETRY, RETRY_MAX);
    loop {
        let begun = boot_micros();
        let watched = api.watch(path, || api.hints().ring(election)).await;
        tracing::debug!(%election, because = ?watched, "a watch has ended");
        // One that was open for long has worked, whatever ended it.
        let has_worked = Duration::from_micros(boot_micros().saturating_sub(begun)) >= RETRY_MAX;
        if has_worked || watched.is_ok() {
            pauses.end();
        }
        api.hints().ring(election);
        match watched {
            Err(Fault::Refused(_) | Fault::Denied(_)) => pauses.wait().await,
            _ => pauses.wait_at_most(HICCUP_MAX).await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::record::{Content, Holder, Numbering};
    use super::*;
    use hustings_lease::Note;
    use hustings_testbed::FakeKube;
    use tokio::time::timeout;

    /// Goal: a candidate that comes when the last one has gone, and its task has not noticed, has a watch. Method: one thread, on which no
    /// task runs between the two; then the Lease changes. Later all go, and one comes again.
    #[tokio::test]
    async fn whoever_comes_when_a_watch_is_to_end_has_one() {
        let server = FakeKube::start().expect("a port is free");
        let endpoints = vec![format!("127.0.0.1:{}", server.port)];
        let store = Kubernetes::at(Place { endpoints, namespace: "default".to_owned() }, Duration::from_secs(3));
        let patience = Duration::from_secs(20);
        let open = async |count| {
            let is_so = async {
                while server.open_watches() != count {
                    tokio::task::yield_now().await;
                }
            };
            timeout(patience, is_so)
                .await
                .unwrap_or_else(|_| panic!("not {count} watches but {}", server.open_watches()));
        };
        let first = store.hints().of("billing");
        store.listen("billing");
        open(1).await;
        drop(first);
        let mut second = store.hints().of("billing");
        store.listen("billing");
        server.edit("billing", |lease| lease["spec"]["leaseTransitions"] = 7.into());
        timeout(patience, second.changed()).await.expect("a watch tells").expect("the store lives");
        open(1).await;
        assert_eq!(server.asked("watch"), 1, "it is the same watch");
        drop(second);
        open(0).await;
        let _third = store.hints().of("billing");
        store.listen("billing");
        open(1).await;
    }

    /// Goal: one server that answers for itself alone holds up no will, for which helpers and wardens had five seconds. Method: the first of
    /// two says which version it has, and nothing about Leases.
    #[tokio::test]
    async fn a_will_passes_a_server_that_has_lost_its_store() {
        let (cut_off, well) = (FakeKube::start().expect("a port is free"), FakeKube::start().expect("a port is free"));
        cut_off.faults(|faults| faults.is_cut_off = true);
        let place = |servers: &[&FakeKube]| {
            let endpoints = servers.iter().map(|server| format!("127.0.0.1:{}", server.port)).collect();
            Place { endpoints, namespace: "default".to_owned() }
        };
        let store = Kubernetes::at(place(&[&well]), Duration::from_secs(60));
        store.open().await.expect("it answers");
        let (id, life) = (hustings_lease::CandidateId::named("a"), "0123456789abcdef".to_owned());
        let holder = Holder { id, life: life.clone(), value: String::new(), priority: 0 };
        let content = Content::default().won_by(holder, Duration::from_secs(60));
        let won = Swap { over: None, content: &content, numbering: Numbering::New, is_news: true };
        let won = store.swap("billing", won).await.expect("it is written").expect("nobody held it");
        let note =
            Note { token: won.content.token, because: "its process is gone".into(), heir: None, has_stopped: true };
        let will = Will { place: place(&[&cut_off, &well]), election: "billing".to_owned(), life };
        timeout(Duration::from_secs(5), will.carry_out(&note)).await.expect("the second one is asked in time");
        let left = store.read("billing").await.expect("it is read").expect("it is there");
        let is_noted = left.content.note.as_ref().is_some_and(|left| left.because == note.because);
        assert!(left.content.holder.is_none() && is_noted, "{:?}", left.content);
    }
}
