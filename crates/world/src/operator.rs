//! Reads that an operator asks of members, and the answers. (Changes of membership are in [`crate::faults`].)
//!
//! A write is seen in the logs; what a read saw is a line of the journal, since nothing else shows it.

use crate::digested::Service;
use crate::journal::Line;
use crate::load::Asked;
use crate::world::World;
use bytes::Bytes;
use hustings_core::Protocol;
use hustings_kv::{Range, View};

impl<P: Protocol, S: Service> World<P, S> {
    /// The operator reads a key through a member.
    pub(crate) fn read_for_operator(&mut self, at: usize, key: &str) {
        self.load.keys_read.push(Bytes::copy_from_slice(key.as_bytes()));
        let place = self.load.keys_read.len() - 1;
        self.read(at, Asked::Reader(place));
    }

    /// Writes down what the operator read.
    pub(crate) fn tell_operator(&mut self, at: usize, place: usize, view: &View) {
        let key = self.load.keys_read[place].clone();
        let found = view.range(&Range { key: key.clone(), ..Range::default() });
        let value = found.ok().and_then(|found| found.kvs.first().map(|kv| kv.value.clone()));
        let key = String::from_utf8_lossy(&key);
        let what = match value {
            Some(value) => format!("answers its operator: {key} is {}", String::from_utf8_lossy(&value)),
            None => format!("answers its operator: there is no {key}"),
        };
        let id = self.machines[at].id;
        self.journal.note(self.now, Line::Host(id, what));
    }
}
