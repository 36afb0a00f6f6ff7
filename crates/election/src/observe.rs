//! Who leads an election, for whoever does not stand for it: [`Observer`].

use crate::office::Election;
use crate::seat::Reader;
use crate::stores;
use hustings_lease::Token;
use hustings_lease::history::History;

/// Who leads.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Leader {
    /// The candidate's name.
    pub id: String,
    /// What it says beside its name.
    pub value: String,
    /// Its token.
    pub token: Token,
}

/// Follows an election. What is told is the latest state, not each step to it.
pub struct Observer {
    reader: Box<dyn Reader>,
    told: Option<Option<Leader>>,
}

/// What an operator wants of whoever leads.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Wish {
    /// Step down; in favour of this candidate, if one is named.
    StepDown {
        /// Why, for the history.
        because: String,
        /// Who shall be next.
        to: Option<String>,
    },
    /// Raise the generation, after the store's history was replaced: later tokens are above all earlier ones.
    Raise,
}

/// Why a question or a wish came to nothing.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum StoreError {
    /// There is nobody to tell.
    #[error("nobody leads {0}")]
    NobodyLeads(String),
    /// The store does not answer, or refuses; in its words.
    #[error("{0}")]
    Silent(String),
    /// The store does not admit whoever asks, or shows it nothing; in words that name the remedy.
    #[error("{0}")]
    Denied(String),
}

impl Election {
    /// Follows who leads.
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
        self.reader().history().await
    }

    /// Tells whoever leads, or the store, what an operator wants; gives what came of it.
    ///
    /// # Errors
    /// No answer; nobody leads.
    pub async fn wish(&self, wish: &Wish) -> Result<String, StoreError> {
        self.reader().act(wish).await
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
