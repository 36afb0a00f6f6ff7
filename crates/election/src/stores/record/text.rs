//! Notes and wishes as text that any record can hold.

use super::Wished;
use hustings_lease::{CandidateId, Note};
use serde::{Deserialize, Serialize};

/// A note and a wish have the same parts; `to` is the heir of the one, and the candidate that the other names.
#[derive(Serialize, Deserialize)]
struct Written {
    token: String,
    because: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    to: Option<String>,
}

impl Written {
    fn to_text(&self) -> String {
        serde_json::to_string(self).expect("strings are JSON")
    }
}

/// Writes a leader's note as text.
pub(crate) fn note_to_text(note: &Note) -> String {
    let to = note.heir.as_ref().map(|heir| heir.0.clone());
    Written { token: note.token.to_string(), because: note.because.clone(), to }.to_text()
}

/// Reads a leader's note; `None` if somebody else wrote it.
pub(crate) fn note_of(text: &str) -> Option<Note> {
    let Written { token, because, to } = serde_json::from_str(text).ok()?;
    // Nobody holds off at a record, so nobody needs to know.
    Some(Note { token: token.parse().ok()?, because, heir: to.map(CandidateId::named), has_stopped: false })
}

/// Writes an operator's wish as text.
pub(crate) fn wish_to_text(wish: &Wished) -> String {
    Written { token: wish.token.to_string(), because: wish.because.clone(), to: wish.to.clone() }.to_text()
}

/// Reads an operator's wish; `None` if it cannot be read.
pub(crate) fn wish_of(text: &str) -> Option<Wished> {
    let Written { token, because, to } = serde_json::from_str(text).ok()?;
    Some(Wished { token: token.parse().ok()?, because, to })
}

#[cfg(test)]
mod tests {
    use super::*;
    use hustings_lease::Token;

    #[test]
    fn notes_and_wishes_are_read_back_and_garbage_is_left_out() {
        let token = Token::new(7).in_generation(2);
        let note = Note {
            token,
            because: "leaving: \"deploy\"".to_owned(),
            heir: Some(CandidateId::named("b")),
            has_stopped: false,
        };
        assert_eq!(note_of(&note_to_text(&note)), Some(note));
        let wish = Wished { token, because: "maintenance".to_owned(), to: None };
        assert_eq!(wish_of(&wish_to_text(&wish)), Some(wish));
        for garbage in ["", "{}", "7", "{\"token\": \"x\", \"because\": \"\"}", "{\"token\": 7, \"because\": \"\"}"] {
            assert_eq!((note_of(garbage), wish_of(garbage)), (None, None), "{garbage}");
        }
    }
}
