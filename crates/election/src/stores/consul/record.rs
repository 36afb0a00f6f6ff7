//! The keys of an election, and what is read of them together.

use super::http::{Consul, Failure, Found};
use crate::stores::written::{generation_of, note_of, standing};
use hustings_lease::{Note, Sight, Token, Version};

/// The names of one election's keys.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Keys {
    pub(super) record: String,
    pub(super) note: String,
    pub(super) generation: String,
    pub(super) history: String,
    pub(super) wish: String,
}

impl Keys {
    pub(super) fn of(election: &str) -> Keys {
        Keys {
            record: election.to_owned(),
            note: format!("{election}.note"),
            generation: format!("{election}.generation"),
            history: format!("{election}.history"),
            wish: format!("{election}.wish"),
        }
    }

    /// Reads what stands beside the record.
    pub(super) async fn around(&self, consul: &Consul) -> Result<Around, Failure> {
        let found = consul.get_all(&format!("{}.", self.record)).await?;
        let of = |key: &str| found.iter().find(|found| found.key == key);
        let generation = of(&self.generation);
        Ok(Around {
            generation: generation_of(generation.map(|found| &*found.value)),
            generation_index: generation.map_or(0, |found| found.index),
            note: of(&self.note).and_then(|found| note_of(&found.value)),
        })
    }
}

/// The keys beside a record.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Around {
    /// `None` when what stands there cannot be read.
    pub(super) generation: Option<u32>,
    /// 0 when there is none.
    pub(super) generation_index: u64,
    pub(super) note: Option<Note>,
}

/// The session that holds a record, and with which token.
pub(super) fn holder<'a>(record: Option<&'a Found>, around: &Around) -> Option<(&'a str, Token)> {
    let found = record?;
    let token = Token { generation: around.generation?, number: found.index };
    Some((found.session.as_deref()?, token))
}

/// The sight of a record for a candidate.
pub(super) fn sight(record: Option<&Found>, around: &Around) -> Sight {
    match (record, holder(record, around)) {
        (Some(found), Some((session, token))) => Sight::Held {
            by: standing(session.as_bytes(), &found.value).id,
            token,
            version: Version(found.index),
            ttl: None,
        },
        _ => Sight::Vacant { version: record.map(|found| Version(found.index)), note: around.note.clone() },
    }
}
