//! The records of an election, in any store: an entry, a note, a wish, a generation.
//!
//! Anybody may have written what is read here. An entry that is not ours is passed over, or shown as it is; nothing is taken on trust.

use crate::observe::Leader;
use hustings_lease::store::Standing;
use hustings_lease::{CandidateId, Heir, Input, Note, Token, Why};
use serde::{Deserialize, Serialize};

/// The contents of an entry: ours is JSON that names itself, a stranger's is any text.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Entry {
    /// The version of this format; also the sign that the entry is ours.
    pub(crate) hustings: u32,
    pub(crate) id: String,
    #[serde(default)]
    pub(crate) priority: u32,
    #[serde(default = "yes")]
    pub(crate) healthy: bool,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) value: String,
}

fn yes() -> bool {
    true
}

impl Entry {
    /// The entry of a healthy candidate of ours.
    pub(crate) fn new(id: &CandidateId, priority: u32, value: &str) -> Entry {
        Entry { hustings: 1, id: id.0.clone(), priority, healthy: true, value: value.to_owned() }
    }

    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("strings and numbers are JSON")
    }
}

/// The standing of an entry's candidate. A stranger says what it likes; one that says nothing is known by its key.
pub(crate) fn standing(key: &[u8], value: &[u8]) -> Standing {
    match serde_json::from_slice::<Entry>(value) {
        Ok(Entry { id, priority, healthy, .. }) => {
            Standing { id: CandidateId::named(id), priority, is_healthy: healthy, is_ours: true }
        }
        Err(_) => {
            let id = String::from_utf8_lossy(if value.is_empty() { key } else { value });
            Standing { id: CandidateId::named(id), priority: 0, is_healthy: true, is_ours: false }
        }
    }
}

/// The leader by this entry; a stranger as in [`standing`].
pub(crate) fn leader(key: &[u8], value: &[u8], token: Token) -> Leader {
    match serde_json::from_slice::<Entry>(value) {
        Ok(Entry { id, value, .. }) => Leader { id, value, token },
        Err(_) => {
            let value_text = String::from_utf8_lossy(value).into_owned();
            Leader { id: standing(key, value).id.0, value: value_text, token }
        }
    }
}

#[derive(Serialize, Deserialize)]
struct WrittenNote {
    token: String,
    because: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    heir: Option<String>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    stopped: bool,
}

pub(crate) fn note_to_bytes(note: &Note) -> Vec<u8> {
    let heir = note.heir.as_ref().map(|heir| heir.0.clone());
    let (token, because) = (note.token.to_string(), note.because.clone());
    let written = WrittenNote { token, because, heir, stopped: note.has_stopped };
    serde_json::to_vec(&written).expect("strings are JSON")
}

/// Reads a note; `None` if somebody else wrote it.
pub(crate) fn note_of(bytes: &[u8]) -> Option<Note> {
    let WrittenNote { token, because, heir, stopped } = serde_json::from_slice(bytes).ok()?;
    Some(Note { token: token.parse().ok()?, because, heir: heir.map(CandidateId::named), has_stopped: stopped })
}

/// An operator's wish to the tenure with this token, as it is written.
#[derive(Serialize, Deserialize)]
struct WrittenWish {
    token: String,
    because: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    to: Option<String>,
}

pub(crate) fn wish_to_bytes(token: Token, because: &str, to: Option<&str>) -> Vec<u8> {
    let wish = WrittenWish { token: token.to_string(), because: because.to_owned(), to: to.map(str::to_owned) };
    serde_json::to_vec(&wish).expect("strings are JSON")
}

/// The wish that the leader with this token is to be told; `None` if it is for another one, or none.
pub(crate) fn wish_for(token: Token, bytes: &[u8]) -> Option<Input> {
    let WrittenWish { token: of, because, to } = serde_json::from_slice(bytes).ok()?;
    (of.parse() == Ok(token)).then(|| match to {
        Some(to) => Input::HandOver(Heir(CandidateId::named(to))),
        None => Input::StandDown(Why::Asked(because)),
    })
}

/// Said where a generation cannot be raised any more.
pub(crate) const AT_ITS_END: &str =
    "the generation is at its end, 4294967295: hold the election under another name from now on";

/// The words for a generation that cannot be read; `place` is where it stands.
pub(crate) fn no_number(place: &str, election: &str) -> String {
    format!("{place} holds no number that was written here: write one with `hustings elect {election} --raise`")
}

/// The generation that stands beside a record; what cannot be read is `None`, and nobody wins beside it.
pub(crate) fn generation_of(bytes: Option<&[u8]>) -> Option<u32> {
    match bytes {
        None => Some(0),
        Some(bytes) => std::str::from_utf8(bytes).ok()?.trim().parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_ours_is_passed_over() {
        for garbage in [&b""[..], b"{", b"null", b"[1]", b"\xff\xfe", b"{\"token\":\"x\",\"because\":\"\"}"] {
            assert_eq!((note_of(garbage), generation_of(Some(garbage))), (None, None));
            assert!(wish_for(Token::default(), garbage).is_none());
            assert!(!standing(b"key", garbage).is_ours);
        }
        assert_eq!((generation_of(None), generation_of(Some(b" 3\n"))), (Some(0), Some(3)));
        assert_eq!(standing(b"key", b"").id.0, "key");
    }

    #[test]
    fn what_is_written_is_read() {
        let token = Token { generation: 2, number: 7 };
        let note = Note { token, because: "deploy".to_owned(), heir: Some(CandidateId::named("b")), has_stopped: true };
        assert_eq!(note_of(&note_to_bytes(&note)), Some(note));
        let wish = wish_to_bytes(token, "maintenance", None);
        assert!(matches!(wish_for(token, &wish), Some(Input::StandDown(_))));
        assert!(wish_for(Token { generation: 2, number: 8 }, &wish).is_none());
        let entry = Entry::new(&CandidateId::named("a"), 3, "a:80").to_bytes();
        assert_eq!(standing(b"key", &entry).priority, 3);
        assert_eq!(leader(b"key", &entry, token), Leader { id: "a".to_owned(), value: "a:80".to_owned(), token });
    }
}
