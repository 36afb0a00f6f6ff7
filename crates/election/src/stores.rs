//! The stores that can arbitrate, and the one place that knows them all.

pub(crate) mod etcd;

use crate::address::{Scheme, StoreAddress};
use crate::seat::{Reader, Store};
use hustings_lease::Profile;
use std::time::Duration;

/// The driver of a store, for candidates with this time to live; tethered to the process where the store can do that.
pub(crate) fn open(address: &StoreAddress, ttl: Duration, is_tethered: bool) -> Box<dyn Store> {
    match address.scheme {
        Scheme::Hustings => Box::new(etcd::EtcdStore::new(Profile::HUSTINGS, &address.endpoints, ttl, is_tethered)),
        Scheme::Etcd => Box::new(etcd::EtcdStore::new(Profile::ETCD, &address.endpoints, ttl, false)),
    }
}

/// The driver of a store, for whoever only looks at one election.
pub(crate) fn reader(address: &StoreAddress, election: &str) -> Box<dyn Reader> {
    match address.scheme {
        Scheme::Hustings | Scheme::Etcd => Box::new(etcd::observe::EtcdReader::new(&address.endpoints, election)),
    }
}
