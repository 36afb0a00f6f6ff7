//! The keys of an election, and what stands in them.

use crate::stores::written;
use bytes::Bytes;
use hustings_api::mvccpb::KeyValue;
use hustings_lease::Token;
use hustings_lease::store::Standing;

/// The names of one election's keys.
#[derive(Clone, Debug)]
pub(super) struct Names {
    /// All entries begin with it, and so do the keys of elections below this one by name.
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

    /// Name of the election.
    pub(super) fn election(&self) -> &str {
        self.entries.trim_end_matches('/')
    }

    /// Whether a key is an entry of this election, and not of one whose name begins with this one's and a slash.
    pub(super) fn is_entry(&self, key: &[u8]) -> bool {
        let lease = key.strip_prefix(self.entries.as_bytes()).unwrap_or_default();
        !lease.is_empty() && lease.iter().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f'))
    }

    pub(super) fn entry(&self, lease: i64) -> String {
        format!("{}{lease:x}", self.entries)
    }

    /// The key that keeps a request to stand from being done late. It hangs on the lease, too, and is no entry in anybody's eyes.
    pub(super) fn fence(&self, lease: i64) -> String {
        format!("{}.fence.{lease:x}", self.election())
    }

    /// The key behind the last entry.
    pub(super) fn entries_end(&self) -> Bytes {
        hustings_api::client::prefix_end(self.entries.as_bytes())
    }
}

/// The standing of an entry's candidate.
pub(super) fn standing(kv: &KeyValue) -> Standing {
    written::standing(&kv.key, &kv.value)
}

/// The generation that stands beside the record; what cannot be read is `None`, and nobody wins beside it.
pub(super) fn generation_of(kv: Option<&KeyValue>) -> Option<u32> {
    written::generation_of(kv.map(|kv| &*kv.value))
}

/// The token of an entry.
pub(super) fn token_of(generation: u32, kv: &KeyValue) -> Token {
    Token { generation, number: kv.create_revision.unsigned_abs() }
}
