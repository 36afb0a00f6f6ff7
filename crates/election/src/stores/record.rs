//! One record that candidates swap and observe with their own clocks: what PostgreSQL and Kubernetes have in common.
//!
//! ```text
//!   seat, reader, will ──► Content (who, token, note, wish, history) ──► Records: read, swap ──► a row, a Lease
//! ```
//!
//! A driver reads the record and swaps exactly the version that was read; everything else is here. No session is needed, and nobody but the
//! candidates ends a lease: a candidate that waits lets a version grow old on its own clock, then swaps that version.
//!
//! - A renewal is a swap of what the holder wrote last. When somebody else has written meanwhile (a wish, say), the record is
//!   read again, and renewed if it still names this tenure.
//! - A raise of the generation is written together with a wish that the holder steps down. So the holder stops first, and at no
//!   moment do two believe.
//! - Hints that the record has changed save time; without any, a waiter reads it twice per renewal interval.
//!
//! Read next: [`Records`], then `seat`.

mod hints;
mod reader;
mod seat;
mod text;
mod will;

pub(crate) use super::troubles::Troubles;
pub(crate) use hints::Hints;
pub(crate) use reader::RecordReader;
pub(crate) use text::{note_of, note_to_text, wish_of, wish_to_text};
pub(crate) use will::{Place, Will};

use crate::seat::{DriverEvent, Later, Seat, Sitter, Store};
use crate::will::StoreWill;
use hustings_lease::{CandidateId, Note, Profile, Token};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc::UnboundedSender;

/// The candidate that holds an election.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Holder {
    pub(crate) id: CandidateId,
    /// Tells apart candidates of one name: drawn anew for each.
    pub(crate) life: String,
    pub(crate) value: String,
    pub(crate) priority: u32,
}

/// An operator's wish to the tenure with this token.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Wished {
    pub(crate) token: Token,
    pub(crate) because: String,
    pub(crate) to: Option<String>,
}

/// The contents of a record.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Content {
    pub(crate) holder: Option<Holder>,
    /// The token of the tenure that is, or else of the last one.
    pub(crate) token: Token,
    /// The token is a guess: only the answer to the write that won has told it, and nobody has written it down yet.
    pub(crate) is_guessed: bool,
    /// The time to live that the holder counts with.
    pub(crate) ttl: Option<Duration>,
    pub(crate) note: Option<Note>,
    pub(crate) wish: Option<Wished>,
    /// Times that the generation was raised by hand.
    pub(crate) raised: u32,
    /// The tenures, as [`hustings_lease::history::History`] writes them.
    pub(crate) history: String,
}

impl Content {
    /// The record once this holder has won it; its token is the store's to give.
    pub(crate) fn won_by(&self, holder: Holder, ttl: Duration) -> Content {
        let before = self.clone();
        Content { holder: Some(holder), ttl: Some(ttl), is_guessed: false, note: None, wish: None, ..before }
    }

    /// The record once its holder has left.
    pub(crate) fn released(&self, note: &Note) -> Content {
        Content { holder: None, note: Some(note.clone()), wish: None, ..self.clone() }
    }

    /// Whether this life holds it.
    pub(crate) fn is_held_by(&self, life: &str) -> bool {
        self.holder.as_ref().is_some_and(|holder| holder.life == life)
    }
}

/// A record as it was read or written, with what it takes to swap exactly this version.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Record<S> {
    pub(crate) content: Content,
    /// The generation that the next tenure will have, as far as is known.
    pub(crate) generation: u32,
    pub(crate) stamp: S,
}

/// The effect of a swap on the token.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Numbering {
    /// A tenure begins: it gets a token above all before.
    New,
    /// The token stays as it is.
    Kept,
}

/// A swap of one version of a record for the next.
pub(crate) struct Swap<'a, S> {
    /// The version to swap: exactly this one. `None`: only if there is no record.
    pub(crate) over: Option<&'a Record<S>>,
    pub(crate) content: &'a Content,
    pub(crate) numbering: Numbering,
    /// Whether others want to know at once: true for all but renewals.
    pub(crate) is_news: bool,
}

/// The reason why a store did not do what it was asked.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Fault {
    /// The request never left.
    Unreachable(String),
    /// The request was perhaps done.
    Unknown(String),
    /// The request was definitely not done.
    Refused(String),
    /// The request was definitely not done: the user may not.
    Denied(String),
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Fault::Unreachable(why) | Fault::Unknown(why) | Fault::Refused(why) | Fault::Denied(why)) = self;
        why.fmt(f)
    }
}

/// A store of records: all that a driver is.
///
/// Reads are linearizable. Futures that are dropped leave a request behind that may be done, or not.
pub(crate) trait Records: Send + Sync + 'static {
    /// Identifies the version to swap; equal for equal versions only, also after the record was deleted.
    type Stamp: Clone + PartialEq + fmt::Debug + Send + Sync + 'static;

    /// Whether a version shows whoever knows an earlier one that the holder lives. Each renewal must; what others write need not.
    fn shows_life(before: &Self::Stamp, now: &Self::Stamp) -> bool {
        before != now
    }
    fn profile(&self) -> Profile;
    /// The time to live that its records can state: as it was asked for, or a little more.
    fn ttl(&self) -> Duration;
    /// Waits until the store answers.
    ///
    /// # Errors
    /// An error that trying again does not mend, with the remedy: denied, or refused otherwise.
    fn open(&self) -> impl Future<Output = Result<(), Fault>> + Send;
    /// The record, if there is one.
    fn read(&self, election: &str) -> impl Future<Output = Result<Option<Record<Self::Stamp>>, Fault>> + Send;
    /// Writes a record over exactly one version; gives what stands there now, or `None` if it was another version.
    fn swap(
        &self,
        election: &str,
        swap: Swap<'_, Self::Stamp>,
    ) -> impl Future<Output = Result<Option<Record<Self::Stamp>>, Fault>> + Send;
    /// A request had no answer in time: the connection is not trusted any more.
    fn suspect(&self);
    /// The hints of changes that were heard.
    fn hints(&self) -> &Hints;
    /// Somebody wants to hear of changes of this record.
    fn listen(&self, _election: &str) {}
    /// Pause between two reads without a hint by a candidate that waits, if a request may take so long.
    fn poll(&self, patience: Duration) -> Duration {
        patience
    }
    /// The troubles that were told.
    fn troubles(&self) -> &Troubles;
    /// The will with which another process can release what this life holds; `None` if there is none.
    fn will(&self, election: &str, life: &str) -> Option<StoreWill>;
}

/// A store of records, for the candidates of a process.
pub(crate) struct RecordStore<R> {
    records: Arc<R>,
}

impl<R: Records> RecordStore<R> {
    pub(crate) fn new(records: R) -> RecordStore<R> {
        RecordStore { records: Arc::new(records) }
    }
}

impl<R: Records> Store for RecordStore<R> {
    fn profile(&self) -> Profile {
        self.records.profile()
    }

    fn open(&mut self, told: UnboundedSender<DriverEvent>) {
        let records = self.records.clone();
        tokio::spawn(async move {
            let opened = records.open().await;
            // An engine that has ended needs no store.
            let _ = told.send(match opened {
                Ok(()) => DriverEvent::Opened(records.ttl()),
                Err(Fault::Denied(why)) => DriverEvent::Denied(why),
                Err(fault) => DriverEvent::Refused(fault.to_string()),
            });
        });
    }

    fn seat(&mut self, sitter: Sitter) -> Box<dyn Seat> {
        Box::new(seat::RecordSeat::new(self.records.clone(), sitter))
    }

    fn close(&mut self) -> Later<'_, ()> {
        // Nothing of this process stands in the store but what its candidates release themselves.
        Box::pin(std::future::ready(()))
    }
}
