//! A closure as a state machine: [`Replicated`], for an application that writes no [`StateMachine`] of its own.
//!
//! The application gives a state and a closure, and gets each command's answer. It has no log time, no leases and no versions of its
//! rules: who needs those implements [`StateMachine`], where [`Replicated`] is a page to begin with.
//!
//! A snapshot has the state, and cannot have the closure. So a state that was read from one takes the closure over from the machine that
//! it replaces ([`StateMachine::inherit`]): at a start that is the one that the application has given, later the one that ran until then.

use crate::wire::{Wire, WireError};
use crate::{Lsn, SnapshotError, StateMachine};
use bytes::{Buf, BufMut, Bytes, BytesMut};
use std::collections::BTreeMap;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

/// Computes the answer to one command, and changes the state.
type Rules<T> = Arc<dyn Fn(&mut T, &[u8]) -> Vec<u8> + Send + Sync>;

/// A state that all members hold, and the closure by which commands change it.
///
/// ```
/// use bytes::Bytes;
/// use hustings_core::{Lsn, Replicated, StateMachine};
///
/// let mut letters = Replicated::new(0_u64, |letters, command| {
///     *letters += command.len() as u64;
///     letters.to_string().into_bytes()
/// });
/// assert_eq!(letters.apply(Lsn::ZERO, &Bytes::from_static(b"hello")), b"5");
/// assert_eq!(letters.state(), &5);
/// ```
#[derive(Clone)]
pub struct Replicated<T> {
    /// Shared with views: the first change after a view was taken copies it.
    state: Arc<T>,
    /// `None` between a snapshot and the machine that it replaces.
    rules: Option<Rules<T>>,
}

impl<T> Replicated<T> {
    /// A state machine that begins with `initial` and answers each command with what `rules` says.
    ///
    /// Equal commands in equal order must give equal states on every member, so `rules` looks at nothing but its two arguments: at no
    /// clock, no random number and no variable that differs between members. It never panics, whatever a command holds. All members
    /// must have the same rules; members of different builds that have other ones need a [`StateMachine`] with versions.
    pub fn new(initial: T, rules: impl Fn(&mut T, &[u8]) -> Vec<u8> + Send + Sync + 'static) -> Replicated<T> {
        Replicated { state: Arc::new(initial), rules: Some(Arc::new(rules)) }
    }

    /// The state as it is now.
    pub fn state(&self) -> &T {
        &self.state
    }
}

// Members hold the same state; the closure has no part in comparisons.
impl<T: PartialEq> PartialEq for Replicated<T> {
    fn eq(&self, other: &Replicated<T>) -> bool {
        self.state == other.state
    }
}

impl<T: Eq> Eq for Replicated<T> {}

impl<T: Hash> Hash for Replicated<T> {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        self.state.hash(hasher);
    }
}

impl<T: fmt::Debug> fmt::Debug for Replicated<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Replicated").field("state", &self.state).finish_non_exhaustive()
    }
}

impl<T: Wire + Clone + Eq + Hash + fmt::Debug + Send + Sync + 'static> StateMachine for Replicated<T> {
    type Response = Vec<u8>;
    type View = Arc<T>;

    fn inherit(&mut self, before: &Replicated<T>) {
        self.rules.clone_from(&before.rules);
    }

    fn advance(&mut self, _: Duration) {}

    fn apply(&mut self, _: Lsn, payload: &Bytes) -> Vec<u8> {
        let rules = self.rules.as_ref().expect("a state from a snapshot inherits its rules before anything is applied");
        rules(Arc::make_mut(&mut self.state), payload)
    }

    fn freeze(&self) -> Arc<T> {
        self.state.clone()
    }

    fn next_deadline(&self) -> Option<Duration> {
        None
    }

    fn encode(view: &Arc<T>, sink: &mut dyn FnMut(Bytes)) {
        sink(view.to_bytes());
    }

    fn decode(snapshot: &mut dyn Buf) -> Result<Replicated<T>, SnapshotError> {
        let bytes = snapshot.copy_to_bytes(snapshot.remaining());
        let state = T::decode(bytes).map_err(|error| SnapshotError { what: error.to_string() })?;
        Ok(Replicated { state: Arc::new(state), rules: None })
    }
}

// States that small applications have; for another one, implement `Wire`.

impl Wire for u64 {
    fn encode(&self, out: &mut BytesMut) {
        out.put_u64_le(*self);
    }

    fn decode(bytes: Bytes) -> Result<u64, WireError> {
        let wrong = |_| WireError(format!("a number has 8 bytes, and these are {}", bytes.len()));
        <[u8; 8]>::try_from(&bytes[..]).map(u64::from_le_bytes).map_err(wrong)
    }
}

impl Wire for String {
    fn encode(&self, out: &mut BytesMut) {
        out.put_slice(self.as_bytes());
    }

    fn decode(bytes: Bytes) -> Result<String, WireError> {
        String::from_utf8(bytes.into()).map_err(|error| WireError(format!("a text is none: {error}")))
    }
}

/// Each key and each value with its length before it.
impl<K: Wire + Ord, V: Wire> Wire for BTreeMap<K, V> {
    fn encode(&self, out: &mut BytesMut) {
        for (key, value) in self {
            for bytes in [key.to_bytes(), value.to_bytes()] {
                out.put_u64_le(bytes.len() as u64);
                out.put_slice(&bytes);
            }
        }
    }

    fn decode(mut bytes: Bytes) -> Result<BTreeMap<K, V>, WireError> {
        let next = |bytes: &mut Bytes| {
            let cut_off = || WireError(format!("a map is cut off {} bytes before its end", bytes.remaining()));
            let length = bytes.clone().try_get_u64_le().map_err(|_| cut_off())?;
            let length =
                usize::try_from(length).ok().filter(|length| *length <= bytes.len() - 8).ok_or_else(cut_off)?;
            bytes.advance(8);
            Ok::<Bytes, WireError>(bytes.split_to(length))
        };
        let mut map = BTreeMap::new();
        while bytes.has_remaining() {
            let (key, value) = (next(&mut bytes)?, next(&mut bytes)?);
            map.insert(K::decode(key)?, V::decode(value)?);
        }
        Ok(map)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encoded<T: Wire + Clone + Eq + Hash + fmt::Debug + Send + Sync + 'static>(machine: &Replicated<T>) -> Bytes {
        let mut all = BytesMut::new();
        Replicated::encode(&machine.freeze(), &mut |chunk| all.extend_from_slice(&chunk));
        all.freeze()
    }

    #[test]
    fn a_state_from_a_snapshot_goes_on_by_the_rules_of_its_predecessor() {
        let mut before = Replicated::new(BTreeMap::new(), |seen: &mut BTreeMap<String, u64>, command| {
            let times = seen.entry(String::from_utf8_lossy(command).into_owned()).or_default();
            *times += 1;
            times.to_string().into_bytes()
        });
        assert_eq!(before.apply(Lsn::ZERO, &Bytes::from_static(b"a")), b"1");
        let mut after = Replicated::decode(&mut encoded(&before)).expect("it was encoded so");
        assert_eq!(after, before);
        after.inherit(&before);
        assert_eq!(after.apply(Lsn::ZERO, &Bytes::from_static(b"a")), b"2");
        assert_eq!((before.state()["a"], after.state()["a"]), (1, 2), "a view is not changed by what comes later");
    }

    #[test]
    fn a_damaged_snapshot_is_refused() {
        let machine = Replicated::new(BTreeMap::from([("key".to_owned(), 7_u64)]), |_, _| Vec::new());
        let whole = encoded(&machine);
        for length in 1..whole.len() {
            let decoded = Replicated::<BTreeMap<String, u64>>::decode(&mut whole.slice(..length));
            assert!(decoded.is_err(), "{length} bytes of {}: {decoded:?}", whole.len());
        }
    }
}
