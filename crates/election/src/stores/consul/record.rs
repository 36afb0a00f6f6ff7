//! The keys of an election, and what is read of them together.

use super::http::{Consul, Failure, Found};
use crate::stores::written::{generation_of, note_of, standing};
use hustings_lease::{CandidateId, Note, Observation, Token, Version};

/// The names of one election's keys.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Keys {
    pub(super) record: String,
    pub(super) note: String,
    pub(super) generation: String,
    pub(super) history: String,
    pub(super) wish: String,
    pub(super) fence: String,
}

impl Keys {
    pub(super) fn of(election: &str) -> Keys {
        Keys {
            record: election.to_owned(),
            note: format!("{election}.note"),
            generation: format!("{election}.generation"),
            history: format!("{election}.history"),
            wish: format!("{election}.wish"),
            fence: format!("{election}.fence"),
        }
    }

    /// Reads what stands beside the record. By name: other elections may stand there by the thousand, each with its history.
    pub(super) async fn around(&self, consul: &Consul) -> Result<Around, Failure> {
        let found = consul.get_each(&[&self.note, &self.generation, &self.fence]).await?;
        let of = |key: &str| found.iter().find(|found| found.key == key);
        let generation = of(&self.generation);
        Ok(Around {
            generation: generation_of(generation.map(|found| &*found.value)),
            generation_index: generation.map_or(0, |found| found.index),
            fence_index: of(&self.fence).map_or(0, |found| found.index),
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
    /// 0 when there is none.
    pub(super) fence_index: u64,
    pub(super) note: Option<Note>,
}

/// The session that holds a record, and with which token.
pub(super) fn holder<'a>(record: Option<&'a Found>, around: &Around) -> Option<(&'a str, Token)> {
    let found = record?;
    let token = Token { generation: around.generation?, number: found.index };
    Some((found.session.as_deref()?, token))
}

/// The observation of a record for the candidate with this id. A holder of its name is that candidate only in a session of its own.
pub(super) fn observation(
    record: Option<&Found>,
    around: &Around,
    id: &CandidateId,
    is_own: impl Fn(&str) -> bool,
) -> Observation {
    match (record, holder(record, around)) {
        (Some(found), Some((session, token))) => Observation::Held {
            by: match standing(session.as_bytes(), &found.value).id {
                namesake if namesake == *id && !is_own(session) => CandidateId::named(format!("{id} ({session})")),
                by => by,
            },
            token,
            version: Version(found.index),
            ttl: None,
        },
        _ => Observation::Vacant { version: record.map(|found| Version(found.index)), note: around.note.clone() },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stores::written::Entry;

    /// Goal: a candidate that waits behind a holder of its own name does not take that one for itself. Method: one record, whose session is
    /// the candidate's own, and then another one's.
    #[test]
    fn a_holder_of_the_same_name_is_itself_in_its_own_session_alone() {
        let a = CandidateId::named("a");
        let value = Entry::new(&a, 0, "").to_bytes();
        let record = Found { key: "billing".to_owned(), value, session: Some("s1".to_owned()), index: 7 };
        let around = Around { generation: Some(0), generation_index: 0, fence_index: 0, note: None };
        let held_by = |own: &str| match observation(Some(&record), &around, &a, |session| session == own) {
            Observation::Held { by, token, .. } => (by, token),
            other => panic!("{other:?}"),
        };
        assert_eq!(held_by("s1"), (a.clone(), Token::new(7)));
        assert_eq!(held_by("s2"), (CandidateId::named("a (s1)"), Token::new(7)));
    }
}
