//! The limit of open files and sockets: as many as the system lets us, and never all of them for clients.
//!
//! A process that has none left cannot cut a snapshot, prepare its log's next segment or hear its peers; clients come in any
//! number. So their connections end below the limit, and what the member itself needs is set aside.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Descriptors that are kept from clients: some thirty for the process, its log and its snapshots; a link and a lifeline, and one of
/// each that is being made, for each of a dozen peers; and the handshakes of strangers, of which one address may have sixteen.
const RESERVE: u64 = 96;
/// Fewer connections than these would be no service: below, clients share the reserve.
const CONNECTIONS_MIN: u64 = 16;

/// Raises the soft limit of open files to the hard one; gives what is allowed now.
pub(crate) fn raise_limit() -> u64 {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    // A system that refuses leaves the limit as it was, which is read below.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

/// Number of connections that clients may have, where so many files may be open, and `most` in any case.
pub(crate) fn connections_max(descriptors: u64, most: usize) -> usize {
    let left = descriptors.saturating_sub(RESERVE).max(CONNECTIONS_MIN);
    usize::try_from(left).unwrap_or(usize::MAX).min(most)
}
