//! Greetings and frames as a stranger writes them: by another hand than the product's.

use super::in_time;
use bytes::{BufMut, Bytes, BytesMut};
use hustings_core::NodeId;
use prost::Message as _;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// The fields of a greeting that a stranger fills in.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Greeting {
    #[prost(uint32, tag = "1")]
    pub version: u32,
    #[prost(uint32, tag = "2")]
    pub kind: u32,
    #[prost(uint64, tag = "3")]
    pub cluster_id: u64,
    #[prost(uint64, tag = "4")]
    pub from: u64,
    #[prost(uint64, tag = "5")]
    pub to: u64,
    #[prost(string, tag = "6")]
    pub protocol: String,
    #[prost(uint64, tag = "7")]
    pub boots: u64,
    #[prost(string, tag = "9")]
    pub text: String,
    #[prost(bool, tag = "14")]
    pub is_removed: bool,
    #[prost(uint32, tag = "15")]
    pub version_min: u32,
    #[prost(uint64, tag = "16")]
    pub process: u64,
    #[prost(bytes = "bytes", tag = "18")]
    pub proof: Bytes,
    #[prost(bool, tag = "23")]
    pub is_rolled_back: bool,
    #[prost(bytes = "bytes", tag = "26")]
    pub lifeline: Bytes,
}

/// A hello with more starts is no hello.
pub const BOOTS_MAX: u64 = 1 << 55;

/// Kinds of greetings.
pub const HELLO: u32 = 1;
pub const REFUSAL: u32 = 3;
pub const CHALLENGE: u32 = 4;
pub const PROOF: u32 = 5;

/// The hello of a stranger that says it is this member.
pub fn hello(protocol: &str, from: u64, to: NodeId) -> Greeting {
    let (version, protocol) = (2, protocol.to_owned());
    Greeting { version, version_min: 2, kind: HELLO, cluster_id: 7, from, to: to.0, protocol, ..Greeting::default() }
}

/// Says a greeting.
pub async fn say(stream: &mut (impl AsyncWrite + Unpin), greeting: &Greeting) {
    let bytes = [&b"hustings"[..], &framed(&greeting.encode_to_vec())].concat();
    stream.write_all(&bytes).await.expect("the port takes it");
    stream.flush().await.expect("the port takes it");
}

/// Hears one.
pub async fn hear(stream: &mut (impl AsyncRead + Unpin)) -> Greeting {
    let mut head = [0; 16];
    in_time(stream.read_exact(&mut head)).await.expect("an answer");
    let mut payload = vec![0; u32::from_le_bytes(head[8..12].try_into().expect("four bytes")) as usize];
    in_time(stream.read_exact(&mut payload)).await.expect("all of it");
    Greeting::decode(&payload[..]).expect("a greeting")
}

/// A frame with its length and checksum.
pub fn framed(payload: &[u8]) -> BytesMut {
    let mut frame = BytesMut::new();
    frame.put_u32_le(payload.len() as u32);
    frame.put_u32_le(crc32c::crc32c(payload));
    frame.put_slice(payload);
    frame
}
