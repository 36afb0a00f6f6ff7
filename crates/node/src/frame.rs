//! Bytes on a peer link: frames and the handshake.
//!
//! ```text
//!    frame    length u32 LE │ CRC32C of the payload u32 LE │ payload
//!    link     Hello ──►  ◄── Hello   then frames of replica messages, both ways
//!                        ◄── Refusal instead, in words, and the end
//!    with a cluster secret (see [`crate::secret`])
//!             Hello ──►  ◄── Challenge   Proof ──►  ◄── Hello or Refusal
//! ```
//!
//! A length is checked against a bound before anything is allocated for it. Before the handshake that bound is 64 KiB, and
//! a node holds only what has really come, so a stranger costs it no more than that (BI-01, BI-02).

use bytes::{Buf, BufMut, Bytes, BytesMut};
use hustings_core::replica::message::Position;
use hustings_core::{ApplyVersion, ClusterId, Member, Membership, NodeId, Wire, WireError};
use hustings_wal::{STARTS_MAX, Start};
use prost::Message as _;
use std::io;
use tokio::io::{AsyncRead, AsyncReadExt};

/// Begins every link, so that a browser or a TLS client is recognised as a stranger at once.
pub(crate) const MAGIC: &[u8; 8] = b"hustings";

/// The newest version of frames and messages that this node speaks, and the oldest. Two nodes speak if their ranges overlap.
///
/// 2: entries carry readings of the log's clock; a hello names the process and may be challenged.
/// 3: a hello says by which rules its sender applies entries and can apply them, and how much of its log is durable; members tell
/// that, and digests of their states. To peers that speak 2 nothing of it is sent.
pub(crate) const VERSION: u32 = 3;
pub(crate) const VERSION_MIN: u32 = 2;
/// First version with which a peer says and understands what is durable and what its state is.
pub(crate) const SPEAKS_OF_STATE: u32 = 3;

/// The longest handshake frame, in bytes.
pub(crate) const HELLO_BYTES_MAX: usize = 64 << 10;

const HEADER: usize = 8;

/// The reason why a link ended.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LinkError {
    /// The connection broke, with the system's error.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The peer closed it.
    #[error("closed by the peer")]
    Closed,
    /// The other end speaks something else than this protocol.
    #[error("not a Hustings peer: {0}")]
    Stranger(String),
    /// A frame is longer than allowed.
    #[error("a frame of {length} bytes exceeds the limit of {max}")]
    TooLong { length: usize, max: usize },
    /// Bytes were changed on the way (BI-08).
    #[error("a frame's checksum does not match: bytes were changed on the way")]
    Corrupt,
    /// A frame does not decode.
    #[error(transparent)]
    Undecodable(#[from] WireError),
    /// The lifeline beside the link ended: the process of the peer has died.
    #[error("its lifeline ended: its process has died")]
    Died,
    /// The peer refuses this node, in its words.
    #[error("refused by the peer: {0}")]
    Refused(Refusal),
    /// This node refuses a caller, in its own words.
    #[error("{0}")]
    Declined(Refusal),
    /// This node refuses the peer that it dialled.
    #[error("the peer is refused: {0}")]
    Unwelcome(Refusal),
}

/// The reason why a peer does not speak to this node.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Refusal {
    /// Reason that names the thing and the remedy.
    pub(crate) why: String,
    /// The node was removed from the cluster: it must not go on. Refusals that say nothing of the kind may pass.
    pub(crate) is_removed: bool,
    /// The node's directory lacks what it has acknowledged: it must not go on with it.
    pub(crate) is_rolled_back: bool,
    /// The cluster knows the node with another directory: it can be one that was founded anew beside a cluster that lives.
    pub(crate) is_of_another_directory: bool,
}

impl Refusal {
    /// One that may pass.
    pub(crate) fn because(why: String) -> Refusal {
        Refusal { why, is_removed: false, is_rolled_back: false, is_of_another_directory: false }
    }

    /// The one that cannot pass.
    pub(crate) fn of_removed(name: &str) -> Refusal {
        let why =
            format!("{name} was removed from the cluster: add it again as a new member, with an empty data directory");
        Refusal { is_removed: true, ..Refusal::because(why) }
    }

    /// Nor can this one.
    pub(crate) fn of_rolled_back(why: String) -> Refusal {
        Refusal { is_rolled_back: true, ..Refusal::because(why) }
    }

    /// The one that cannot pass where the node is the only voter that it knows.
    pub(crate) fn of_another_directory(why: String) -> Refusal {
        Refusal { is_of_another_directory: true, ..Refusal::because(why) }
    }
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.why)
    }
}

/// Appends a frame around what `write` writes.
pub(crate) fn put_frame(out: &mut BytesMut, write: impl FnOnce(&mut BytesMut)) {
    let start = out.len();
    out.put_u64_le(0);
    write(out);
    let length = out.len() - start - HEADER;
    let digest = crc32c::crc32c(&out[start + HEADER..]);
    let length = u32::try_from(length).expect("messages are bounded far below 4 GiB");
    out[start..start + 4].copy_from_slice(&length.to_le_bytes());
    out[start + 4..start + HEADER].copy_from_slice(&digest.to_le_bytes());
}

/// Takes the next whole frame out of `buffer`; `None` when more bytes are needed.
pub(crate) fn take_frame(buffer: &mut BytesMut, bytes_max: usize) -> Result<Option<Bytes>, LinkError> {
    if buffer.len() < HEADER {
        return Ok(None);
    }
    let mut header = &buffer[..HEADER];
    let length = usize::try_from(header.get_u32_le()).expect("a usize holds 32 bits");
    let digest = header.get_u32_le();
    if length > bytes_max {
        return Err(LinkError::TooLong { length, max: bytes_max });
    }
    if buffer.len() < HEADER + length {
        buffer.reserve(HEADER + length - buffer.len());
        return Ok(None);
    }
    buffer.advance(HEADER);
    let payload = buffer.split_to(length).freeze();
    if crc32c::crc32c(&payload) != digest {
        return Err(LinkError::Corrupt);
    }
    Ok(Some(payload))
}

/// The first frame of a link's end: it says who speaks, and to whom.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Hello {
    pub(crate) cluster_id: ClusterId,
    /// Id of the sender; 0 when it does not know it yet and asks to be told (a node that joins).
    pub(crate) from: NodeId,
    /// Id of the receiver; 0 when the sender does not know it, or asks who the members are.
    pub(crate) to: NodeId,
    pub(crate) protocol: String,
    /// Number of this life of the node.
    pub(crate) boots: u64,
    /// Drawn by the process at its start: two with one id and different numbers are two processes.
    pub(crate) process: u64,
    /// Random number of this greeting: an answer to its challenge is valid for this greeting alone.
    pub(crate) nonce: Bytes,
    pub(crate) build: Build,
    /// Batches of its log that were durable when this life began; `durable`: those that are now.
    pub(crate) born_with: u64,
    pub(crate) durable: u64,
    /// The last starts of its directory, this one included; none from builds before them.
    pub(crate) starts: Vec<Start>,
    /// Token with which the receiver may hold a lifeline at the sender; empty where none is offered.
    pub(crate) lifeline: Bytes,
    pub(crate) member: Member,
}

/// The versions that the sender's build can apply, and the one that it does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Build {
    /// The newest version of the peer protocol that it speaks.
    pub(crate) speaks: u32,
    /// Version of the rules by which it applies entries.
    pub(crate) applies: ApplyVersion,
    /// The highest apply version that it can.
    pub(crate) can: ApplyVersion,
}

impl Build {
    /// This build, by whose rules a state machine can compute up to `can`, before it applies anything.
    pub(crate) fn this(can: ApplyVersion) -> Build {
        Build { speaks: VERSION, applies: ApplyVersion::FIRST, can }
    }
}

impl Hello {
    /// Name of the sender, or its id while it has no name.
    pub(crate) fn who(&self) -> String {
        if self.member.name.is_empty() { self.from.to_string() } else { self.member.name.clone() }
    }

    /// The part of its log that the sender has durable.
    pub(crate) fn position(&self) -> Position {
        let storage = self.member.storage_incarnation.unwrap_or(0);
        Position {
            node: self.from,
            storage,
            boots: self.boots,
            process: self.process,
            born_with: self.born_with,
            batches: self.durable,
        }
    }
}

/// The message of a node with a cluster secret before it says anything of itself.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Challenge {
    pub(crate) nonce: Bytes,
    /// Proof that the sender knows the secret, too.
    pub(crate) proof: Bytes,
}

/// A member's answer to a node that joins, or to a member that asks who the others are.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Welcome {
    /// Id of the cluster.
    pub cluster_id: ClusterId,
    /// Id of the joiner, found by its peer URL; or of the member that asks.
    pub you: NodeId,
    /// The membership at the beginning of the log.
    pub founding: Membership,
    /// The present membership, without the join tokens of others.
    pub membership: Membership,
}

/// The first frame in each direction.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Greeting {
    Hello(Hello),
    Welcome(Welcome),
    Refusal(Refusal),
    Challenge(Challenge),
    Proof(Bytes),
}

#[derive(Clone, PartialEq, prost::Message)]
struct GreetingShape {
    #[prost(uint32, tag = "1")]
    version: u32,
    /// 1 hello, 2 welcome, 3 refusal, 4 challenge, 5 proof.
    #[prost(uint32, tag = "2")]
    kind: u32,
    #[prost(uint64, tag = "3")]
    cluster_id: u64,
    #[prost(uint64, tag = "4")]
    from: u64,
    #[prost(uint64, tag = "5")]
    to: u64,
    #[prost(string, tag = "6")]
    protocol: String,
    #[prost(uint64, tag = "7")]
    boots: u64,
    #[prost(uint64, optional, tag = "8")]
    storage_incarnation: Option<u64>,
    #[prost(string, tag = "9")]
    text: String,
    #[prost(string, repeated, tag = "10")]
    peer_urls: Vec<String>,
    #[prost(string, repeated, tag = "11")]
    client_urls: Vec<String>,
    #[prost(bytes = "bytes", tag = "12")]
    founding: Bytes,
    #[prost(bytes = "bytes", tag = "13")]
    membership: Bytes,
    #[prost(bool, tag = "14")]
    is_removed: bool,
    #[prost(uint32, tag = "15")]
    version_min: u32,
    #[prost(uint64, tag = "16")]
    process: u64,
    #[prost(bytes = "bytes", tag = "17")]
    nonce: Bytes,
    #[prost(bytes = "bytes", tag = "18")]
    proof: Bytes,
    /// Left out by builds that speak version 2: they apply by the first version and can no other.
    #[prost(uint32, tag = "19")]
    applies: u32,
    #[prost(uint32, tag = "20")]
    can_apply: u32,
    #[prost(uint64, tag = "21")]
    born_with: u64,
    #[prost(uint64, tag = "22")]
    durable: u64,
    #[prost(bool, tag = "23")]
    is_rolled_back: bool,
    #[prost(bool, tag = "24")]
    is_of_another_directory: bool,
    #[prost(message, repeated, tag = "25")]
    starts: Vec<Start>,
    #[prost(bytes = "bytes", tag = "26")]
    lifeline: Bytes,
}

impl Greeting {
    /// Appends magic and frame.
    pub(crate) fn put(&self, out: &mut BytesMut) {
        out.put_slice(MAGIC);
        put_frame(out, |out| out.put_slice(&self.to_bytes()));
    }

    /// Encodes the greeting as a frame's payload.
    pub(crate) fn to_bytes(&self) -> Bytes {
        let empty = GreetingShape { version: VERSION, version_min: VERSION_MIN, ..GreetingShape::default() };
        let shape = match self.clone() {
            Greeting::Hello(hello) => GreetingShape {
                kind: 1,
                cluster_id: hello.cluster_id.0,
                from: hello.from.0,
                to: hello.to.0,
                protocol: hello.protocol,
                boots: hello.boots,
                process: hello.process,
                nonce: hello.nonce,
                applies: hello.build.applies.0,
                can_apply: hello.build.can.0,
                born_with: hello.born_with,
                durable: hello.durable,
                starts: hello.starts,
                lifeline: hello.lifeline,
                storage_incarnation: hello.member.storage_incarnation,
                text: hello.member.name,
                peer_urls: hello.member.peer_urls,
                client_urls: hello.member.client_urls,
                ..empty
            },
            Greeting::Welcome(Welcome { cluster_id, you, founding, membership }) => GreetingShape {
                kind: 2,
                cluster_id: cluster_id.0,
                to: you.0,
                founding: founding.to_bytes(),
                membership: membership.to_bytes(),
                ..empty
            },
            Greeting::Refusal(Refusal { why, is_removed, is_rolled_back, is_of_another_directory }) => {
                GreetingShape { kind: 3, text: why, is_removed, is_rolled_back, is_of_another_directory, ..empty }
            }
            Greeting::Challenge(Challenge { nonce, proof }) => GreetingShape { kind: 4, nonce, proof, ..empty },
            Greeting::Proof(proof) => GreetingShape { kind: 5, proof, ..empty },
        };
        shape.encode_to_vec().into()
    }

    fn decode(bytes: Bytes) -> Result<Greeting, LinkError> {
        let shape = GreetingShape::decode(bytes).map_err(WireError::from)?;
        // Version 1 did not say how far back it goes.
        let oldest = if shape.version_min == 0 { shape.version } else { shape.version_min };
        if oldest > VERSION || shape.version < VERSION_MIN {
            return Err(LinkError::Stranger(format!(
                "it speaks versions {oldest} to {} of the peer protocol, this node {VERSION_MIN} to {VERSION}: upgrade the older one",
                shape.version
            )));
        }
        let greeting = match shape.kind {
            1 => Greeting::Hello(Hello {
                cluster_id: ClusterId(shape.cluster_id),
                from: NodeId(shape.from),
                to: NodeId(shape.to),
                protocol: shape.protocol,
                boots: shape.boots,
                process: shape.process,
                nonce: shape.nonce,
                build: Build {
                    speaks: shape.version,
                    applies: ApplyVersion(shape.applies.max(1)),
                    can: ApplyVersion(shape.can_apply.max(1)),
                },
                born_with: shape.born_with,
                durable: shape.durable,
                starts: shape.starts.into_iter().take(STARTS_MAX).collect(),
                lifeline: shape.lifeline,
                member: Member {
                    name: shape.text,
                    peer_urls: shape.peer_urls,
                    client_urls: shape.client_urls,
                    storage_incarnation: shape.storage_incarnation,
                    wants_vote: false,
                    is_witness: false,
                },
            }),
            2 => Greeting::Welcome(Welcome {
                cluster_id: ClusterId(shape.cluster_id),
                you: NodeId(shape.to),
                founding: Membership::decode(shape.founding)?,
                membership: Membership::decode(shape.membership)?,
            }),
            3 => Greeting::Refusal(Refusal {
                why: shape.text,
                is_removed: shape.is_removed,
                is_rolled_back: shape.is_rolled_back,
                is_of_another_directory: shape.is_of_another_directory,
            }),
            4 => Greeting::Challenge(Challenge { nonce: shape.nonce, proof: shape.proof }),
            5 => Greeting::Proof(shape.proof),
            other => return Err(LinkError::Stranger(format!("a greeting of unknown kind {other}"))),
        };
        if let Greeting::Hello(hello) = &greeting {
            hello.position().checked()?;
        }
        Ok(greeting)
    }

    /// Reads magic and frame; bytes beyond stay in `buffer`. Gives the frame's payload, too, as it came.
    pub(crate) async fn read(
        stream: &mut (impl AsyncRead + Unpin),
        buffer: &mut BytesMut,
    ) -> Result<(Greeting, Bytes), LinkError> {
        loop {
            if let Some(greeting) = Greeting::take(buffer)? {
                return Ok(greeting);
            }
            if stream.read_buf(buffer).await? == 0 {
                return Err(LinkError::Closed);
            }
        }
    }

    /// Takes magic and frame from what has arrived; `None` while they are not whole.
    pub(crate) fn take(buffer: &mut BytesMut) -> Result<Option<(Greeting, Bytes)>, LinkError> {
        let seen = buffer.len().min(MAGIC.len());
        if buffer[..seen] != MAGIC[..seen] {
            let shown: Vec<u8> = buffer.iter().copied().take(8).collect();
            return Err(LinkError::Stranger(format!("it began with {:?}", Bytes::from(shown))));
        }
        if buffer.len() <= MAGIC.len() {
            return Ok(None);
        }
        let mut rest = buffer.split_off(MAGIC.len());
        if let Some(frame) = take_frame(&mut rest, HELLO_BYTES_MAX)? {
            *buffer = rest;
            return Ok(Some((Greeting::decode(frame.clone())?, frame)));
        }
        buffer.unsplit(rest);
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hustings_stage::golden;
    use proptest::prelude::*;

    fn hello() -> Greeting {
        Greeting::Hello(Hello {
            cluster_id: ClusterId(7),
            from: NodeId(1),
            to: NodeId(2),
            protocol: "raft".into(),
            boots: 3,
            process: 5,
            nonce: Bytes::from_static(b"once"),
            build: Build { speaks: VERSION, applies: ApplyVersion(2), can: ApplyVersion(3) },
            born_with: 4,
            durable: 6,
            starts: vec![Start { boots: 2, process: 8, born_with: 1 }, Start { boots: 3, process: 5, born_with: 4 }],
            lifeline: Bytes::from_static(b"sixteen bytes   "),
            member: Member {
                name: "a".into(),
                peer_urls: vec!["http://127.0.0.1:1".into()],
                storage_incarnation: Some(9),
                ..Member::default()
            },
        })
    }

    async fn read(bytes: &[u8]) -> Result<Greeting, LinkError> {
        Ok(Greeting::read(&mut &bytes[..], &mut BytesMut::new()).await?.0)
    }

    #[tokio::test]
    async fn a_greeting_arrives_as_it_was_sent_and_leaves_what_follows() {
        let mut bytes = BytesMut::new();
        hello().put(&mut bytes);
        bytes.put_slice(b"tail");
        let (mut stream, mut buffer) = (&bytes[..], BytesMut::new());
        assert_eq!(Greeting::read(&mut stream, &mut buffer).await.unwrap().0, hello());
        assert_eq!([&buffer[..], stream].concat(), b"tail");
    }

    #[tokio::test]
    async fn strangers_are_recognised_by_their_first_bytes() {
        for stranger in [&b"GET / HTTP/1.1\r\n"[..], b"\x16\x03\x01\x02\x00", b"PRI * HTTP/2.0", &[0xff; 64], &[0; 64]]
        {
            assert!(matches!(read(stranger).await, Err(LinkError::Stranger(_))), "{stranger:?}");
        }
    }

    #[tokio::test]
    async fn a_length_bomb_is_refused_before_anything_is_allocated() {
        for length in [u32::MAX, i32::MAX as u32, HELLO_BYTES_MAX as u32 + 1] {
            let mut bytes = BytesMut::from(&MAGIC[..]);
            bytes.put_u32_le(length);
            bytes.put_u32_le(0);
            assert!(matches!(read(&bytes).await, Err(LinkError::TooLong { .. })));
        }
    }

    #[test]
    fn a_flipped_bit_is_noticed() {
        let mut whole = BytesMut::new();
        put_frame(&mut whole, |out| out.put_slice(b"payload"));
        for bit in 32..whole.len() * 8 {
            let mut flipped = whole.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(matches!(take_frame(&mut flipped, 1 << 20), Err(LinkError::Corrupt)), "bit {bit}");
        }
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(bytes: Vec<u8>) {
            let mut buffer = BytesMut::from(&bytes[..]);
            while let Ok(Some(frame)) = take_frame(&mut buffer, 1 << 16) {
                let _ = Greeting::decode(frame);
            }
            let _ = Greeting::decode(Bytes::from(bytes));
        }
    }

    fn greetings() -> Vec<Greeting> {
        let membership = Membership::of_voters([NodeId(1), NodeId(2)]);
        vec![
            hello(),
            Greeting::Welcome(Welcome {
                cluster_id: ClusterId(7),
                you: NodeId(3),
                founding: membership.clone(),
                membership,
            }),
            Greeting::Refusal(Refusal::because("no".into())),
            Greeting::Challenge(Challenge { nonce: Bytes::from_static(b"once"), proof: Bytes::from_static(b"proof") }),
            Greeting::Proof(Bytes::from_static(b"proof")),
        ]
    }

    #[test]
    fn greetings_of_earlier_builds_mean_the_same() {
        let decode = |bytes| Greeting::decode(bytes).map_err(|error| error.to_string());
        golden::check("greetings", prop::sample::select(greetings()), Greeting::to_bytes, decode);
    }
}
