//! Releasing a record for a process that is gone: [`Will`].

use super::{Fault, Numbering, Records, Swap};
use crate::stores::bequeathed::Asking;
use hustings_lease::Note;
use serde::{Deserialize, Serialize};
use std::time::Duration;
use tokio::time::error::Elapsed;
use tokio::time::timeout;

/// Time that a first answer may take, whatever it says: a proof of the user may have to be fetched, from a program or another server.
const OPENING: Duration = Duration::from_secs(5);

/// The place of records, as it can be told to another process.
pub(crate) trait Place {
    /// The store of records there.
    type Records: Records;

    /// The store, of which nothing is asked yet, for holders with this time to live.
    fn records(&self, ttl: Duration) -> Self::Records;
}

/// A will: the record, and the life that holds it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Will<P> {
    pub(crate) place: P,
    pub(crate) election: String,
    /// Tells apart candidates of one name.
    pub(crate) life: String,
}

impl<P: Place> Will<P> {
    /// Clears the record if this life holds it with the note's token, and leaves the note.
    pub(crate) async fn carry_out(&self, note: &Note) {
        let records = self.place.records(Duration::from_secs(10));
        let (mut asking, mut is_open) = (Asking::begin(), false);
        while asking.goes_on().await {
            if !is_open {
                match timeout(OPENING, records.open()).await {
                    Ok(Ok(())) => is_open = true,
                    // It waits until the store answers: an error is one that trying again does not mend.
                    Ok(Err(_)) => return,
                    Err(_) => {
                        records.suspect();
                        continue;
                    }
                }
            }
            match self.try_once(&records, note, asking.patience()).await {
                Ok(Ok(true) | Err(Fault::Denied(_))) => return,
                Ok(_) => {}
                // A server may answer for itself, and have lost its own store.
                Err(_) => records.suspect(),
            }
        }
    }

    /// Whether the record is this life's no more.
    ///
    /// # Errors
    /// A request had no answer in that time.
    async fn try_once(
        &self,
        records: &P::Records,
        note: &Note,
        patience: Duration,
    ) -> Result<Result<bool, Fault>, Elapsed> {
        let record = match timeout(patience, records.read(&self.election)).await? {
            Ok(Some(record)) => record,
            Ok(None) => return Ok(Ok(true)),
            Err(fault) => return Ok(Err(fault)),
        };
        let is_its_tenure = record.content.token == note.token || record.content.is_guessed;
        if !record.content.is_held_by(&self.life) || !is_its_tenure {
            return Ok(Ok(true));
        }
        let content = record.content.released(note);
        let swap = Swap { over: Some(&record), content: &content, numbering: Numbering::Kept, is_news: true };
        let swapped = timeout(patience, records.swap(&self.election, swap)).await?;
        Ok(swapped.map(|swapped| swapped.is_some()))
    }
}
