//! The keys of an election, and what stands in them.

use bytes::Bytes;
use hustings_api::mvccpb::KeyValue;
use hustings_lease::store::Standing;
use hustings_lease::{CandidateId, Note, Token};
use serde::{Deserialize, Serialize};

/// The names of one election's keys.
#[derive(Clone, Debug)]
pub(super) struct Names {
    /// All entries begin with it.
    pub(super) entries: String,
    pub(super) note: String,
    pub(super) generation: String,
    pub(super) history: String,
    pub(super) wish: String,
}

impl Names {
    pub(super) fn of(election: &str) -> Names {
        Names {
            entries: format!("{election}/"),
            note: format!("{election}.note"),
            generation: format!("{election}.generation"),
            history: format!("{election}.history"),
            wish: format!("{election}.wish"),
        }
    }

    /// The election's name.
    pub(super) fn election(&self) -> &str {
        self.entries.trim_end_matches('/')
    }

    pub(super) fn entry(&self, lease: i64) -> String {
        format!("{}{lease:x}", self.entries)
    }

    /// Behind the last entry.
    pub(super) fn entries_end(&self) -> Bytes {
        hustings_api::client::prefix_end(self.entries.as_bytes())
    }
}

/// What an entry says: ours is JSON that names itself, a stranger's is any text.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Entry {
    /// The version of this format; also the sign that the entry is ours.
    pub(super) hustings: u32,
    pub(super) id: String,
    #[serde(default)]
    pub(super) priority: u32,
    #[serde(default = "yes")]
    pub(super) healthy: bool,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(super) value: String,
}

fn yes() -> bool {
    true
}

impl Entry {
    pub(super) fn to_bytes(&self) -> Bytes {
        serde_json::to_vec(self).expect("strings and numbers are JSON").into()
    }
}

/// How an entry stands for election.
pub(super) fn standing(kv: &KeyValue) -> Standing {
    match serde_json::from_slice::<Entry>(&kv.value) {
        Ok(Entry { id, priority, healthy, .. }) => {
            Standing { id: CandidateId::named(id), priority, is_healthy: healthy, is_ours: true }
        }
        Err(_) => {
            // A stranger says what it likes; its key is its own.
            let id = match kv.value.is_empty() {
                true => String::from_utf8_lossy(&kv.key),
                false => String::from_utf8_lossy(&kv.value),
            };
            Standing { id: CandidateId::named(id), priority: 0, is_healthy: true, is_ours: false }
        }
    }
}

#[derive(Serialize, Deserialize)]
struct WrittenNote {
    token: String,
    because: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    heir: Option<String>,
}

pub(super) fn note_to_bytes(note: &Note) -> Bytes {
    let heir = note.heir.as_ref().map(|heir| heir.0.clone());
    let written = WrittenNote { token: note.token.to_string(), because: note.because.clone(), heir };
    serde_json::to_vec(&written).expect("strings are JSON").into()
}

/// What was left; nothing if somebody else wrote it.
pub(super) fn note_of(bytes: &[u8]) -> Option<Note> {
    let WrittenNote { token, because, heir } = serde_json::from_slice(bytes).ok()?;
    Some(Note { token: token.parse().ok()?, because, heir: heir.map(CandidateId::named) })
}

/// The generation that stands beside the record; what cannot be read is `None`, and nobody wins beside it.
pub(super) fn generation_of(kv: Option<&KeyValue>) -> Option<u32> {
    match kv {
        None => Some(0),
        Some(kv) => std::str::from_utf8(&kv.value).ok()?.trim().parse().ok(),
    }
}

/// The token of an entry.
pub(super) fn token_of(generation: u32, kv: &KeyValue) -> Token {
    Token { generation, number: kv.create_revision.unsigned_abs() }
}
