//! PostgreSQL: a row per election, in the table `hustings_elections` of the database that the URL names.
//!
//! ```text
//!   holder, life, value, priority   who leads; NULL: nobody
//!   token, generation               with which token; both are set by the write that wins, and by no other
//!   ttl_ms                          for how long a waiter lets a version stand before it swaps it
//!   note, wish, history             what the last leader left, what an operator wants, who led
//!   raised, timeline                what the next generation is made of
//!   version                         grows with each write; each write names the version and the token that it swaps
//! ```
//!
//! No clock of the server is read, and no connection stands for a lease: connections are shared, pooled and cut. `NOTIFY` on
//! the channel `hustings_elections` is a hint that saves time; behind a pooler that loses it, polling finds the same.
//!
//! **The generation** is `raised + 1000 · (timeline - 1)`. The timeline is the WAL's: 1 after `initdb`, one more at each
//! promotion of a standby. `raised` is what `elect --raise` has added. A standby that is promoted may lack the last writes:
//! grants, and raises too. It has a higher timeline, and so gives tokens above all that were given before, unless a thousand
//! raises are lost in one failover. Where the timeline falls (`pg_upgrade`, a dump that is loaded into a new cluster), the next
//! winner adds to `raised` what the timeline has lost. The timeline is read by the statement that wins, from the server that
//! executes it.
//!
//! A leader whose row came through a failover unharmed leads on, with its token. Token numbers come from the sequence
//! `hustings_tokens`, so a row that was deleted by hand does not bring old numbers back.
//!
//! Promises of the store. One server: what is committed stays, unless `fsync` or `synchronous_commit` is off. With standbys:
//! replication is asynchronous by default, and **a failover then forgets grants, so two may believe that they lead** until
//! the first one's lease ends; `synchronous_standby_names` prevents it. Tokens grow all the same. Two cases remain in which they
//! may not: a server that was taken for dead and goes on beside the one that replaced it, and a standby that is promoted
//! without having followed the last primary, whose timeline has the same number: raise the generation then.
//!
//! In TLS where the URL or libpq's variables say so: see [`crate::address`]. Nothing falls back to plain text.

mod connection;
mod faults;
mod secured;
mod statements;

use super::record::{Fault, Hints, Numbering, Record, Records, Swap, Troubles, Will};
use crate::address::{Secret, Security, StoreAddress, decoded};
use crate::will::StoreWill;
use connection::Link;
use hustings_lease::Profile;
use serde::{Deserialize, Serialize};
use statements::{INSERT, READ, Stamp, UPDATE};
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinHandle;

/// The address of the database, and the user that asks.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Place {
    endpoints: Vec<String>,
    user: Option<String>,
    /// Password, as the URL has it; without one, `PGPASSWORD` of the environment counts.
    password: Option<Secret>,
    database: String,
    security: Security,
}

/// A connection to one of a database's servers, kept for as long as this value lives.
pub(crate) struct Postgres {
    place: Place,
    ttl: Duration,
    link: Arc<Link>,
    keeper: std::sync::OnceLock<JoinHandle<()>>,
}

impl Postgres {
    /// A store of which nothing is asked yet.
    pub(crate) fn new(address: &StoreAddress, ttl: Duration) -> Postgres {
        let (user, password) = match &address.user {
            Some((user, password)) => (Some(decoded(user)), password.as_ref().map(|secret| Secret(decoded(&secret.0)))),
            None => (None, None),
        };
        let database = decoded(address.place.as_deref().unwrap_or_default());
        let (endpoints, security) = (address.endpoints.clone(), address.security.clone());
        Postgres::at(Place { endpoints, user, password, database, security }, ttl)
    }

    fn at(place: Place, ttl: Duration) -> Postgres {
        let shown = format!("postgres://{}/{}", place.endpoints.join(","), place.database);
        let link = Arc::new(Link::new(shown, &place.security));
        Postgres { place, ttl, link, keeper: std::sync::OnceLock::new() }
    }
}

impl super::record::Place for Place {
    type Records = Postgres;

    fn records(&self, ttl: Duration) -> Postgres {
        Postgres::at(self.clone(), ttl)
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        self.keeper.take().as_ref().inspect(|keeper| keeper.abort());
        self.link.close();
    }
}

impl Records for Postgres {
    type Stamp = Stamp;

    fn profile(&self) -> Profile {
        Profile::POSTGRES
    }

    fn ttl(&self) -> Duration {
        self.ttl
    }

    async fn open(&self) -> Result<(), Fault> {
        let start = || tokio::spawn(connection::keep(self.link.clone(), self.place.clone(), self.ttl));
        self.keeper.get_or_init(start);
        self.link.opened().await
    }

    async fn read(&self, election: &str) -> Result<Option<Record<Stamp>>, Fault> {
        let client = self.link.client()?;
        let rows = client.query_typed(&READ, &statements::name(&election)).await;
        let rows = rows.map_err(|error| self.link.fault(&error))?;
        statements::record_of(election, rows.first())
    }

    async fn swap(&self, election: &str, swap: Swap<'_, Stamp>) -> Result<Option<Record<Stamp>>, Fault> {
        let client = self.link.client()?;
        let values = statements::Values::of(&swap, swap.numbering == Numbering::New);
        let rows = match swap.over {
            Some(over) => client.query_typed(&UPDATE, &values.for_update(&election, &over.stamp)).await,
            None => client.query_typed(&INSERT, &values.for_insert(&election)).await,
        };
        match rows {
            Ok(rows) => statements::record_of(election, rows.first()),
            Err(error) if faults::is_conflict(&error) => Ok(None),
            Err(error) => Err(self.link.fault(&error)),
        }
    }

    fn suspect(&self) {
        self.link.suspect();
    }

    fn hints(&self) -> &Hints {
        self.link.hints()
    }

    fn troubles(&self) -> &Troubles {
        self.link.troubles()
    }

    fn will(&self, election: &str, life: &str) -> Option<StoreWill> {
        let (place, election, life) = (self.place.clone(), election.to_owned(), life.to_owned());
        Some(StoreWill::Postgres(Box::new(Will { place, election, life })))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_a_url_are_decoded() {
        assert_eq!(decoded("p%40ss%2Fword"), "p@ss/word");
        for untouched in ["", "%", "%4", "%zz", "a%b"] {
            assert_eq!(decoded(untouched), untouched);
        }
        assert_eq!(decoded("%ff"), "\u{fffd}");
    }
}
