//! Elect one leader of a service, know when it stops being one, and make the losers harmless.
//!
//! ```no_run
//! # async fn story() -> Result<(), Box<dyn std::error::Error>> {
//! use hustings_election::{Election, Named};
//!
//! let election = Election::open("hustings://10.0.0.1:2379,10.0.0.2:2379/billing")?;
//! let office = election.candidate(Named::new("billing-1").priority(5));
//! loop {
//!     let leadership = office.campaign().await?;
//!     let ended = leadership
//!         .run(async |lead| {
//!             println!("I lead, and my token is {}", lead.token());
//!             std::future::pending::<()>().await;
//!         })
//!         .await;
//!     println!("I lead no more: {}", ended.expect_err("the work never ends by itself"));
//! }
//! # }
//! ```
//!
//! A [`Leadership`] is computed whenever it is asked, on a clock that runs on while the machine sleeps. It ends before the
//! store gives the election to somebody else, as long as clocks run at rates within 1 %. Only a token can catch what a
//! paused process does between asking and acting: see `docs/leadership.md`.
//!
//! Read next: [`Leadership`], then `engine` (who drives the candidate), then `stores`.

mod address;
mod clock;
mod condition;
mod engine;
#[cfg(feature = "tower")]
pub mod fence;
mod leadership;
mod lines;
mod observe;
mod office;
mod own_thread;
mod progress;
mod renewals;
mod seat;
mod shelf;
mod stores;
pub mod supervisor;
pub mod will;
#[cfg(any(feature = "consul", feature = "postgres", feature = "zookeeper"))]
mod wire;

pub use address::{BadAddress, Scheme, Secret, Security, StoreAddress, StoreTls};
pub use engine::CampaignError;
pub use hustings_api::inside::{Inside, InsideListener};
pub use hustings_lease::history::{End, History, Tenure};
pub use hustings_lease::{Barred, CandidateId, Change, FenceGate, Loss, Memory, Shelf, Token};
pub use leadership::{Extensions, Lead, Leadership, Validity};
pub use observe::{Leader, Observer, StoreError, Wish};
pub use office::{Election, Named, Office, OpenError};
pub use progress::Ticker;
pub use renewals::Renewals;
pub use shelf::{FileShelf, FileShelfError};
pub use will::Will;

/// The example of the README compiles and holds.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
pub struct Readme;
