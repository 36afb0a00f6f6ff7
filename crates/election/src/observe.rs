//! Who leads an election, for whoever does not stand for it: [`Observer`].

use crate::address::Scheme;
use crate::office::Election;
use crate::stores::etcd::observe::{Following, Shown, act, history};
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
    following: Following,
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
}

impl Election {
    /// Follows who leads.
    pub fn observe(&self) -> Observer {
        // One kind of store so far; the compiler asks here when there is another.
        match self.store().scheme {
            Scheme::Hustings | Scheme::Etcd => {}
        }
        Observer { following: Following::new(&self.store().endpoints, self.name()), told: None }
    }

    /// The last tenures, oldest first, each with the end of the one before it.
    ///
    /// # Errors
    /// No answer.
    pub async fn history(&self) -> Result<History, StoreError> {
        history(&self.store().endpoints, self.name()).await.map_err(StoreError::Silent)
    }

    /// Tells whoever leads, or the store, what an operator wants; gives what came of it.
    ///
    /// # Errors
    /// No answer; nobody leads.
    pub async fn wish(&self, wish: &Wish) -> Result<String, StoreError> {
        act(&self.store().endpoints, self.name(), wish).await
    }
}

impl Observer {
    /// The latest state: at once the first time, then whenever it has changed. Waits for a store that does not answer.
    pub async fn next(&mut self) -> Option<Leader> {
        loop {
            let Shown(now) = self.following.next().await;
            if self.told.as_ref() != Some(&now) {
                self.told = Some(now.clone());
                return now;
            }
        }
    }
}
