//! Observation of an election by a process that does not stand for it: [`Observer`].

use crate::office::Election;
use crate::seat::Reader;
use crate::stores;
use hustings_lease::Token;
use hustings_lease::history::History;

/// The leader of an election, as observers see it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Leader {
    /// Name of the candidate.
    pub id: String,
    /// Value that it gives beside its name.
    pub value: String,
    /// Token of its leadership.
    pub token: Token,
}

/// Follows the leaders of an election. It tells the latest state, not each step to it.
pub struct Observer {
    reader: Box<dyn Reader>,
    told: Option<Option<Leader>>,
}

/// An operator's wish to the leader or the store.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Wish {
    /// Step down; in favour of this candidate, if one is named.
    StepDown {
        /// Reason, for the history.
        because: String,
        /// Candidate that shall be next; `None` for any.
        to: Option<String>,
    },
    /// Raise the generation, after the store's history was replaced: later tokens are above all earlier ones.
    Raise,
}

/// The reason why a question or a wish came to nothing.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum StoreError {
    /// There is nobody to tell.
    #[error("nobody leads {0}")]
    NobodyLeads(String),
    /// The store does not answer, or refuses; in its words.
    #[error("{0}")]
    Silent(String),
    /// The store does not admit the user, or shows it nothing; in words that name the remedy.
    #[error("{0}")]
    Denied(String),
    /// The candidate that shall lead next does not wait; in words that name those that do.
    #[error("{0}")]
    NotWaiting(String),
}

impl StoreError {
    /// Names the store that was asked, where the words do not.
    fn at(self, endpoints: &[String]) -> StoreError {
        match self {
            StoreError::Silent(why) if !endpoints.is_empty() && !endpoints.iter().any(|one| why.contains(one)) => {
                StoreError::Silent(format!("{}: {why}", endpoints.join(",")))
            }
            error => error,
        }
    }
}

impl Election {
    /// Follows the election's leaders.
    pub fn observe(&self) -> Observer {
        Observer { reader: self.reader(), told: None }
    }

    fn reader(&self) -> Box<dyn Reader> {
        stores::reader(self.store(), self.name())
    }

    /// The last tenures, oldest first, each with the end of the one before it.
    ///
    /// # Errors
    /// No answer.
    pub async fn history(&self) -> Result<History, StoreError> {
        self.reader().history().await.map_err(|error| error.at(&self.store().endpoints))
    }

    /// Checks that a candidate waits, where the store shows who does: at Hustings, etcd and ZooKeeper. At the others candidates that wait
    /// write nothing, and any name will do.
    ///
    /// # Errors
    /// [`StoreError::NotWaiting`]; no answer.
    pub async fn check_waits(&self, id: &str) -> Result<(), StoreError> {
        let waiting = self.reader().waiting().await.map_err(|error| error.at(&self.store().endpoints))?;
        match waiting {
            Some(ids) if !ids.iter().any(|one| one == id) => {
                let who =
                    if ids.is_empty() { "nobody does".to_owned() } else { format!("there are {}", ids.join(", ")) };
                Err(StoreError::NotWaiting(format!("{id:?} does not wait for {}: {who}", self.name())))
            }
            _ => Ok(()),
        }
    }

    /// Tells the leader, or the store, what an operator wants; gives what came of it.
    ///
    /// # Errors
    /// No answer; nobody leads; the candidate that is named does not wait.
    pub async fn wish(&self, wish: &Wish) -> Result<String, StoreError> {
        if let Wish::StepDown { to: Some(heir), .. } = wish {
            self.check_waits(heir).await?;
        }
        self.reader().act(wish).await.map_err(|error| error.at(&self.store().endpoints))
    }
}

impl Observer {
    /// The latest state: at once the first time, then whenever it has changed. Waits for a store that does not answer.
    ///
    /// # Errors
    /// [`StoreError::Denied`], only before the first state was shown: later refusals are logged once, and tried again.
    pub async fn next(&mut self) -> Result<Option<Leader>, StoreError> {
        loop {
            let now = self.reader.next().await?;
            if self.told.as_ref() != Some(&now) {
                self.told = Some(now.clone());
                return Ok(now);
            }
        }
    }
}
