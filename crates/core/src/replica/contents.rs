//! What a snapshot holds, and its bytes: the replica's own state, then the state machine.

use super::applied_requests::{ABOVE_MAX, AppliedRequests};
use super::clock::LogTime;
use super::{ApplyVersion, application};
use crate::{Lsn, Membership, SnapshotError, SnapshotFile, StateMachine, Term};
use bytes::{Buf, BufMut, Bytes, BytesMut};
use std::fmt;
use std::sync::Arc;

/// First word of a snapshot that has the log's clock; those of format 1 begin with the number of origins, which is small.
const WITH_CLOCK: u32 = u32::MAX;

/// First word of a snapshot that has an apply version above the first, before its clock. A build that knows of no
/// versions cannot read it, and is not meant to.
const WITH_VERSION: u32 = u32::MAX - 1;

/// First word of a witness's snapshot, before everything else: it has no state, and who holds one must not load it. A build that knows
/// of no witnesses cannot read it, and is not meant to.
const OF_WITNESS: u32 = u32::MAX - 2;

/// The replica's own state, kept in every snapshot beside the state machine.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct ReplicaState {
    /// Proposals that were applied.
    pub applied_requests: AppliedRequests,
    /// The reading of the log's clock that stands.
    pub clock: LogTime,
    /// Version of the rules by which entries are applied.
    pub version: ApplyVersion,
    /// Whether this is a witness's: the state machine beside it is that of an empty log.
    pub is_witness: bool,
}

/// The parts of a snapshot, ready to be encoded off the loop.
#[derive(Clone)]
pub struct SnapshotContents<S: StateMachine> {
    /// The last entry that it covers.
    pub lsn: Lsn,
    /// The membership at that place.
    pub membership: Arc<Membership>,
    /// The replica's own state.
    pub state: ReplicaState,
    /// A view of the state machine.
    pub view: S::View,
}

impl<S: StateMachine> fmt::Debug for SnapshotContents<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "snapshot through {:?}", self.lsn)
    }
}

impl<S: StateMachine> PartialEq for SnapshotContents<S> {
    fn eq(&self, other: &SnapshotContents<S>) -> bool {
        self.lsn == other.lsn && self.membership == other.membership && self.state == other.state
    }
}

impl<S: StateMachine> Eq for SnapshotContents<S> {}

impl<S: StateMachine> SnapshotContents<S> {
    /// Hands the snapshot's bytes to `sink` in chunks: the replica's own state, then the state machine.
    pub fn encode(&self, sink: &mut dyn FnMut(Bytes)) {
        sink(self.head());
        application::call(|| self.of_snapshot("encode"), || S::encode(&self.view, sink));
    }

    /// As [`SnapshotContents::encode`], for a file: what comes back is called with it when it is durable
    /// ([`StateMachine::encode_to_file`]).
    pub fn encode_to_file(&self, sink: &mut dyn FnMut(Bytes)) -> Option<impl FnOnce(&Arc<dyn SnapshotFile>) + use<S>> {
        let head = self.head();
        let start = head.len() as u64;
        sink(head);
        let encoded = application::call(|| self.of_snapshot("encode"), || S::encode_to_file(&self.view, sink));
        let once_durable = encoded?;
        Some(move |file: &Arc<dyn SnapshotFile>| once_durable(file, start))
    }

    pub(super) fn of_snapshot(&self, method: &str) -> String {
        format!(
            "{method} panicked at the state of {}; it is called again for each snapshot: start a build that can do it",
            self.lsn
        )
    }

    /// Encodes the replica's own state, with which a snapshot begins.
    fn head(&self) -> Bytes {
        let mut head = BytesMut::new();
        let ReplicaState { applied_requests, clock, version, is_witness } = &self.state;
        if *is_witness {
            head.put_u32_le(OF_WITNESS);
        }
        if *version > ApplyVersion::FIRST {
            head.put_u32_le(WITH_VERSION);
            head.put_u32_le(version.0);
        }
        head.put_u32_le(WITH_CLOCK);
        head.put_u64_le(clock.term.0);
        head.put_u64_le(clock.micros);
        head.put_u8(u8::from(clock.is_closed));
        let parts: Vec<_> = applied_requests.to_parts().collect();
        head.put_u32_le(u32::try_from(parts.len()).expect("clusters are small"));
        for (node, incarnation, through, above) in parts {
            head.put_u64_le(node);
            head.put_u64_le(incarnation);
            head.put_u64_le(through);
            head.put_u32_le(u32::try_from(above.len()).expect("the window is bounded"));
            above.iter().for_each(|sequence| head.put_u64_le(*sequence));
        }
        head.freeze()
    }

    /// Reads the bytes of a snapshot back.
    ///
    /// # Errors
    /// The damage, and where it is.
    pub fn decode(bytes: &mut dyn Buf) -> Result<(S, ReplicaState), SnapshotError> {
        let state = decode_head(bytes)?;
        Ok((S::decode(bytes)?, state))
    }

    /// As [`SnapshotContents::decode`], of all bytes of `file` ([`StateMachine::decode_from_file`]).
    ///
    /// # Errors
    /// The damage, and where it is.
    pub fn decode_from_file(
        bytes: &mut dyn Buf,
        file: &Arc<dyn SnapshotFile>,
    ) -> Result<(S, ReplicaState), SnapshotError> {
        let length = bytes.remaining();
        let state = decode_head(bytes)?;
        let start = (length - bytes.remaining()) as u64;
        Ok((S::decode_from_file(bytes, file, start)?, state))
    }
}

/// Reads the encoding of [`SnapshotContents::head`].
fn decode_head(bytes: &mut dyn Buf) -> Result<ReplicaState, SnapshotError> {
    let short = || SnapshotError { what: "it ends inside the applied requests".into() };
    let (mut clock, mut version) = (LogTime::default(), ApplyVersion::FIRST);
    let mut count = bytes.try_get_u32_le().map_err(|_| short())?;
    let is_witness = count == OF_WITNESS;
    if is_witness {
        count = bytes.try_get_u32_le().map_err(|_| short())?;
    }
    if count == WITH_VERSION {
        version = ApplyVersion(bytes.try_get_u32_le().map_err(|_| short())?);
        count = bytes.try_get_u32_le().map_err(|_| short())?;
    }
    if count == WITH_CLOCK {
        clock.term = Term(bytes.try_get_u64_le().map_err(|_| short())?);
        clock.micros = bytes.try_get_u64_le().map_err(|_| short())?;
        clock.is_closed = bytes.try_get_u8().map_err(|_| short())? != 0;
        count = bytes.try_get_u32_le().map_err(|_| short())?;
    }
    let mut parts = Vec::new();
    for _ in 0..count {
        let node = bytes.try_get_u64_le().map_err(|_| short())?;
        let incarnation = bytes.try_get_u64_le().map_err(|_| short())?;
        let through = bytes.try_get_u64_le().map_err(|_| short())?;
        let length = bytes.try_get_u32_le().map_err(|_| short())?;
        if length as usize > ABOVE_MAX {
            return Err(SnapshotError {
                what: format!("one life of a node remembers {length} proposals, more than any does"),
            });
        }
        let mut above = Vec::new();
        for _ in 0..length {
            above.push(bytes.try_get_u64_le().map_err(|_| short())?);
        }
        parts.push((node, incarnation, through, above));
    }
    Ok(ReplicaState { applied_requests: AppliedRequests::from_parts(parts), clock, version, is_witness })
}
