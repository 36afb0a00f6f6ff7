//! One record, for a process that does not stand for election: [`RecordReader`].

use super::{Content, Fault, Numbering, Record, Records, Swap, Wished};
use crate::observe::{Leader, StoreError, Wish};
use crate::seat::{Later, Reader};
use crate::stores::written::AT_ITS_END;
use hustings_lease::history::History;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::timeout;

/// Time that one question may take.
const PATIENCE: Duration = Duration::from_secs(2);
/// Pause between two reads of the record without a hint.
const POLL: Duration = Duration::from_millis(500);
/// Times that a wish is written over what somebody else has just written.
const TRIES: usize = 20;

/// Reads a record again and again.
pub(crate) struct RecordReader<R> {
    records: R,
    election: String,
    hints: Option<watch::Receiver<()>>,
    has_shown: bool,
}

impl<R: Records> RecordReader<R> {
    pub(crate) fn new(records: R, election: &str) -> RecordReader<R> {
        RecordReader { records, election: election.to_owned(), hints: None, has_shown: false }
    }

    /// The record, once the store answers.
    async fn read(&self) -> Result<Option<Record<R::Stamp>>, StoreError> {
        let asked = timeout(PATIENCE, async {
            self.records.open().await.map_err(silent)?;
            self.records.read(&self.election).await.map_err(silent)
        });
        match asked.await {
            Ok(read) => read,
            Err(_) => {
                self.records.suspect();
                let why = self.records.troubles().now().unwrap_or_else(|| format!("no answer within {PATIENCE:?}"));
                Err(StoreError::Silent(why))
            }
        }
    }

    /// Writes over the present version of the record.
    async fn write(
        &self,
        change: impl Fn(Option<&Record<R::Stamp>>) -> Result<Content, StoreError>,
    ) -> Result<Record<R::Stamp>, StoreError> {
        for _ in 0..TRIES {
            let over = self.read().await?;
            let content = change(over.as_ref())?;
            let swap = Swap { over: over.as_ref(), content: &content, numbering: Numbering::Kept, is_news: true };
            let swapped = timeout(PATIENCE, self.records.swap(&self.election, swap)).await;
            let swapped = swapped.map_err(|_| StoreError::Silent(format!("no answer within {PATIENCE:?}: look")))?;
            if let Some(written) = swapped.map_err(silent)? {
                return Ok(written);
            }
        }
        Err(StoreError::Silent("others write the record all the time: try again".to_owned()))
    }

    async fn act(&self, wish: &Wish) -> Result<String, StoreError> {
        match wish {
            Wish::StepDown { because, to } => {
                let written = self.write(|over| {
                    let content = over.map(|over| over.content.clone()).filter(|content| content.holder.is_some());
                    let content = content.ok_or_else(|| StoreError::NobodyLeads(self.election.clone()))?;
                    if let Some(stranger) = content.holder.as_ref().filter(|holder| holder.life.is_empty()) {
                        let why = format!("{} leads, and is no candidate of ours: it hears no wishes", stranger.id);
                        return Err(StoreError::Silent(why));
                    }
                    let wish = Wished { token: content.token, because: because.clone(), to: to.clone() };
                    Ok(Content { wish: Some(wish), ..content })
                });
                let content = written.await?.content;
                let who = content.holder.map(|holder| holder.id.0).unwrap_or_default();
                Ok(format!("told {who}, token {}", content.token))
            }
            Wish::Raise => {
                let written = self.write(|over| {
                    let content = over.map(|over| over.content.clone()).unwrap_or_default();
                    let raised = content.raised.checked_add(1);
                    let raised = raised.ok_or_else(|| StoreError::Silent(AT_ITS_END.to_owned()))?;
                    // A holder has a token of the generation before: it stops, releases, and may win again.
                    let wish = content.holder.is_some().then(|| Wished {
                        token: content.token,
                        because: "the generation was raised".to_owned(),
                        to: None,
                    });
                    Ok(Content { raised, wish, ..content })
                });
                Ok(format!("the generation of {} is {} now", self.election, written.await?.generation))
            }
        }
    }

    async fn leader(&self) -> Result<Option<Leader>, StoreError> {
        let content = self.read().await?.map(|record| record.content);
        Ok(content.and_then(|content| {
            let holder = content.holder?;
            Some(Leader { id: holder.id.0, value: holder.value, token: content.token })
        }))
    }
}

impl<R: Records> Reader for RecordReader<R> {
    fn next(&mut self) -> Later<'_, Result<Option<Leader>, StoreError>> {
        Box::pin(async {
            loop {
                match &mut self.hints {
                    None => {
                        self.hints = Some(self.records.hints().of(&self.election));
                        self.records.listen(&self.election);
                    }
                    Some(hints) => {
                        // Without a hint, too.
                        let _ = timeout(POLL, hints.changed()).await;
                    }
                }
                let seen = self.leader().await;
                if let Some(told) = self.records.troubles().after_look(&mut self.has_shown, seen).await {
                    return told;
                }
            }
        })
    }

    fn history(&mut self) -> Later<'_, Result<History, StoreError>> {
        Box::pin(async {
            let content = self.read().await?.map(|record| record.content).unwrap_or_default();
            Ok(History::parse(&content.history).with_note(content.note.as_ref()))
        })
    }

    fn waiting(&mut self) -> Later<'_, Result<Option<Vec<String>>, StoreError>> {
        Box::pin(std::future::ready(Ok(None)))
    }

    fn act<'a>(&'a mut self, wish: &'a Wish) -> Later<'a, Result<String, StoreError>> {
        Box::pin(RecordReader::act(self, wish))
    }
}

fn silent(fault: Fault) -> StoreError {
    match fault {
        Fault::Denied(why) => StoreError::Denied(why),
        fault => StoreError::Silent(fault.to_string()),
    }
}
