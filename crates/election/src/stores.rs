//! The stores that can arbitrate, and the one place that knows them all.

pub(crate) mod bequeathed;
#[cfg(feature = "consul")]
pub(crate) mod consul;
pub(crate) mod etcd;
pub(crate) mod history;
#[cfg(feature = "kubernetes")]
pub(crate) mod kubernetes;
mod pauses;
#[cfg(feature = "postgres")]
pub(crate) mod postgres;
#[cfg(any(feature = "postgres", feature = "kubernetes"))]
pub(crate) mod record;
pub(crate) mod refusal;
pub(crate) mod shared_lease;
pub(crate) mod troubles;
pub(crate) mod written;
#[cfg(feature = "zookeeper")]
pub(crate) mod zookeeper;

use crate::address::{Scheme, StoreAddress};
use crate::seat::{Reader, Store};
use hustings_lease::Profile;
use std::time::Duration;

/// Time to live that a reader waits for connections with, as if it were a candidate: a little less than it waits for an
/// answer, so that it can tell what is wrong with the connection.
#[cfg(any(feature = "postgres", feature = "kubernetes"))]
const READER_TTL: Duration = Duration::from_secs(6);

/// The driver of a store, for candidates with this time to live; tethered to the process where the store can do that.
pub(crate) fn open(address: &StoreAddress, ttl: Duration, is_tethered: bool) -> Box<dyn Store> {
    if is_tethered && (address.scheme != Scheme::Hustings || address.inside.is_some()) {
        tracing::warn!(
            "only a cluster of Hustings that is reached over a network sees that a process has ended: here a tether changes nothing, and who is killed is \
             succeeded when its lease ends; a last will (`Election::with_will`) works at every store"
        );
    }
    match address.scheme {
        Scheme::Hustings => {
            Box::new(etcd::EtcdStore::new(Profile::HUSTINGS, address, ttl, is_tethered && address.inside.is_none()))
        }
        Scheme::Etcd => Box::new(etcd::EtcdStore::new(Profile::ETCD, address, ttl, false)),
        #[cfg(feature = "consul")]
        Scheme::Consul => Box::new(consul::ConsulStore::new(address, ttl)),
        #[cfg(feature = "zookeeper")]
        Scheme::Zookeeper => Box::new(zookeeper::ZookeeperStore::new(address, ttl)),
        #[cfg(feature = "postgres")]
        Scheme::Postgres => Box::new(record::RecordStore::new(postgres::Postgres::new(address, ttl))),
        #[cfg(feature = "kubernetes")]
        Scheme::Kubernetes => Box::new(record::RecordStore::new(kubernetes::Kubernetes::new(address, ttl))),
    }
}

/// The profile of a store whose least time to live is the same on all servers; `None` where a server's own setting decides.
pub(crate) fn known_profile(scheme: Scheme) -> Option<Profile> {
    match scheme {
        Scheme::Hustings => Some(Profile::HUSTINGS),
        // Its least depends on its election timeout; parts of a second it does not know.
        Scheme::Etcd => Some(Profile { ttl_min: Duration::from_secs(1), ..Profile::ETCD }),
        #[cfg(feature = "consul")]
        Scheme::Consul => Some(Profile::CONSUL),
        #[cfg(feature = "zookeeper")]
        Scheme::Zookeeper => None,
        #[cfg(feature = "postgres")]
        Scheme::Postgres => Some(Profile::POSTGRES),
        #[cfg(feature = "kubernetes")]
        Scheme::Kubernetes => Some(Profile::KUBERNETES),
    }
}

/// The driver of a store, for a reader of one election.
pub(crate) fn reader(address: &StoreAddress, election: &str) -> Box<dyn Reader> {
    match address.scheme {
        Scheme::Hustings | Scheme::Etcd => Box::new(etcd::observe::EtcdReader::new(address, election)),
        #[cfg(feature = "consul")]
        Scheme::Consul => Box::new(consul::observe::ConsulReader::new(address, election)),
        #[cfg(feature = "zookeeper")]
        Scheme::Zookeeper => Box::new(zookeeper::observe::ZookeeperReader::new(address, election)),
        #[cfg(feature = "postgres")]
        Scheme::Postgres => Box::new(record::RecordReader::new(postgres::Postgres::new(address, READER_TTL), election)),
        #[cfg(feature = "kubernetes")]
        Scheme::Kubernetes => {
            Box::new(record::RecordReader::new(kubernetes::Kubernetes::new(address, READER_TTL), election))
        }
    }
}

/// Whether the user of this address can say its password, where the store will ask for it at once.
///
/// # Errors
/// In words.
pub(crate) fn check_user(address: &StoreAddress) -> Result<(), String> {
    let is_etcd = matches!(address.scheme, Scheme::Hustings | Scheme::Etcd);
    if is_etcd { etcd::check_user(address) } else { Ok(()) }
}
