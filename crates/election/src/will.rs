//! Wills, with which another process releases an election for one that is gone: [`Will`]; and a helper that does, [`helper`].

mod executor;
mod helper;

pub(crate) use executor::{Bequest, check};
pub use helper::helper;

#[cfg(feature = "consul")]
use crate::stores::consul;
use crate::stores::etcd;
#[cfg(feature = "kubernetes")]
use crate::stores::kubernetes;
#[cfg(feature = "postgres")]
use crate::stores::postgres;
#[cfg(any(feature = "postgres", feature = "kubernetes"))]
use crate::stores::record;
#[cfg(feature = "zookeeper")]
use crate::stores::zookeeper;
use hustings_lease::{Note, Token};
use serde::{Deserialize, Serialize};

/// The data that it takes to release one tenure, and nothing else.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Will {
    token: String,
    store: StoreWill,
}

/// The store's part of it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) enum StoreWill {
    Etcd(etcd::Will),
    #[cfg(feature = "consul")]
    Consul(consul::Will),
    #[cfg(feature = "zookeeper")]
    Zookeeper(zookeeper::Will),
    #[cfg(feature = "postgres")]
    Postgres(Box<record::Will<postgres::Place>>),
    #[cfg(feature = "kubernetes")]
    Kubernetes(Box<record::Will<kubernetes::Place>>),
}

impl Will {
    pub(crate) fn new(token: Token, store: StoreWill) -> Will {
        Will { token: token.to_string(), store }
    }

    /// Releases the election, once nothing of the tenure acts any more. Whether it worked is not told: the lease ends, too.
    pub async fn carry_out(&self, because: &str) {
        let Ok(token) = self.token.parse::<Token>() else { return };
        let note = Note { token, because: because.to_owned(), heir: None, has_stopped: true };
        match &self.store {
            StoreWill::Etcd(will) => will.carry_out(&note).await,
            #[cfg(feature = "consul")]
            StoreWill::Consul(will) => will.carry_out(&note).await,
            #[cfg(feature = "zookeeper")]
            StoreWill::Zookeeper(will) => will.carry_out(&note).await,
            #[cfg(feature = "postgres")]
            StoreWill::Postgres(will) => will.carry_out(&note).await,
            #[cfg(feature = "kubernetes")]
            StoreWill::Kubernetes(will) => will.carry_out(&note).await,
        }
    }
}
