//! Reads an election at Consul, and speaks to its leader.

use super::http::{Consul, Failure, Op, Place};
use super::record::{Keys, holder};
use crate::address::StoreAddress;
use crate::observe::{Leader, StoreError, Wish};
use crate::seat::{Later, Reader};
use crate::stores::troubles::Troubles;
use crate::stores::written::{self, AT_ITS_END, wish_to_bytes};
use hustings_lease::history::History;
use std::time::Duration;
use tokio::time::timeout;

/// Time that one question may take.
const PATIENCE: Duration = Duration::from_secs(2);
/// Time that a read waits for a change.
const WAIT: Duration = Duration::from_secs(10);

/// A watch over an election.
pub(crate) struct ConsulReader {
    consul: Consul,
    keys: Keys,
    /// Index of the state that was shown last; 0 before the first.
    index: u64,
    troubles: Troubles,
    has_shown: bool,
}

impl ConsulReader {
    pub(crate) fn new(address: &StoreAddress, election: &str) -> ConsulReader {
        let troubles = Troubles::of(format!("consul://{}", address.endpoints.join(",")));
        let consul = Consul::new(&Place::of(address));
        ConsulReader { consul, keys: Keys::of(election), index: 0, troubles, has_shown: false }
    }

    async fn step(&mut self) -> Result<Option<Leader>, StoreError> {
        let asked = self.consul.get_after(&self.keys.record, self.index, WAIT);
        let awaited = timeout(WAIT + WAIT / 16 + PATIENCE, asked).await;
        let awaited = awaited.map_err(|_| StoreError::Silent("no answer".to_owned()))?.map_err(told)?;
        let around = in_time(self.keys.around(&self.consul)).await?;
        self.index = if awaited.index < self.index { 0 } else { awaited.index.max(1) };
        let record = awaited.found.as_ref();
        Ok(record
            .zip(holder(record, &around))
            .map(|(found, (session, token))| written::leader(session.as_bytes(), &found.value, token)))
    }

    async fn look(&self) -> Result<Option<Leader>, StoreError> {
        let (record, around) =
            in_time(async { tokio::try_join!(self.consul.get(&self.keys.record), self.keys.around(&self.consul)) })
                .await?;
        let record = record.as_ref();
        Ok(record
            .zip(holder(record, &around))
            .map(|(found, (session, token))| written::leader(session.as_bytes(), &found.value, token)))
    }

    async fn carry_out(&self, wish: &Wish) -> Result<String, StoreError> {
        match wish {
            Wish::StepDown { because, to } => {
                let looked = self.look().await?;
                let leader = looked.ok_or_else(|| StoreError::NobodyLeads(self.keys.record.clone()))?;
                let value = wish_to_bytes(leader.token, because, to.as_deref());
                let put = [Op::Set { key: &self.keys.wish, value: &value }];
                let written = in_time(self.consul.transact(&put)).await?;
                written.map_err(|(_, what)| StoreError::Silent(what))?;
                Ok(format!("told {}, token {}", leader.id, leader.token))
            }
            Wish::Raise => {
                let around = in_time(self.keys.around(&self.consul)).await?;
                let raised = around.generation.unwrap_or(0).checked_add(1);
                let raised = raised.ok_or_else(|| StoreError::Silent(AT_ITS_END.to_owned()))?;
                let (value, index) = (raised.to_string(), around.generation_index);
                // A record that came back with the store's old history would lead with a token of the new generation.
                let operations = [
                    Op::Swap { key: &self.keys.generation, value: value.as_bytes(), index },
                    Op::Delete { key: &self.keys.record },
                ];
                match in_time(self.consul.transact(&operations)).await? {
                    Ok(_) => Ok(format!("the generation of {} is {raised} now", self.keys.record)),
                    Err(_) => {
                        let why = "somebody else changed the generation meanwhile: look, and raise it again";
                        Err(StoreError::Silent(why.to_owned()))
                    }
                }
            }
        }
    }
}

async fn in_time<T>(asked: impl Future<Output = Result<T, Failure>>) -> Result<T, StoreError> {
    let answered = timeout(PATIENCE, asked).await;
    let answered = answered.map_err(|_| StoreError::Silent(format!("no answer within {PATIENCE:?}")))?;
    answered.map_err(told)
}

fn told(failure: Failure) -> StoreError {
    match failure {
        Failure::Denied(why) => StoreError::Denied(why),
        failure => StoreError::Silent(failure.to_string()),
    }
}

impl Reader for ConsulReader {
    fn next(&mut self) -> Later<'_, Result<Option<Leader>, StoreError>> {
        Box::pin(async {
            loop {
                let seen = self.step().await;
                if let Some(told) = self.troubles.after_look(&mut self.has_shown, seen).await {
                    return told;
                }
            }
        })
    }

    fn history(&mut self) -> Later<'_, Result<History, StoreError>> {
        Box::pin(async {
            let asked = async { tokio::try_join!(self.consul.get(&self.keys.history), self.keys.around(&self.consul)) };
            let (found, around) = in_time(asked).await?;
            let text = found.map(|found| String::from_utf8_lossy(&found.value).into_owned());
            Ok(History::parse(&text.unwrap_or_default()).with_note(around.note.as_ref()))
        })
    }

    fn waiting(&mut self) -> Later<'_, Result<Option<Vec<String>>, StoreError>> {
        Box::pin(std::future::ready(Ok(None)))
    }

    fn act<'a>(&'a mut self, wish: &'a Wish) -> Later<'a, Result<String, StoreError>> {
        Box::pin(self.carry_out(wish))
    }
}
