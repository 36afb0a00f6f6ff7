//! Calls by path, with bytes: for tests that try every method.

use bytes::{Buf, BufMut, Bytes};
use futures::StreamExt;
use hustings_api::etcdserverpb as pb;
use prost::Message;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::Channel;
use tonic::{Code, Request, Status};

use super::cases::Case;

/// A codec that leaves messages as bytes.
#[derive(Clone, Copy, Default)]
struct Raw;

impl Codec for Raw {
    type Encode = Bytes;
    type Decode = Bytes;
    type Encoder = Raw;
    type Decoder = Raw;

    fn encoder(&mut self) -> Raw {
        Raw
    }

    fn decoder(&mut self) -> Raw {
        Raw
    }
}

impl Encoder for Raw {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, item: Bytes, to: &mut EncodeBuf<'_>) -> Result<(), Status> {
        to.put(item);
        Ok(())
    }
}

impl Decoder for Raw {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, from: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        Ok(Some(from.copy_to_bytes(from.remaining())))
    }
}

/// Makes one call over gRPC; the code and the text of its refusal, or 0. Of a stream the first answer counts.
///
/// # Panics
/// When what is answered cannot be read.
pub async fn call(channel: &Channel, case: &Case, token: Option<&str>) -> (i32, String) {
    let outcome = answer(channel, case, token).await;
    match outcome {
        Ok(Some(first)) if case.method.ends_with("/Watch") => {
            let first = pb::WatchResponse::decode(first).expect("an answer of a watch");
            if first.canceled { refusal_in(&first.cancel_reason) } else { (0, String::new()) }
        }
        Ok(_) => (0, String::new()),
        Err(status) => (status.code() as i32, status.message().to_owned()),
    }
}

async fn answer(channel: &Channel, case: &Case, token: Option<&str>) -> Result<Option<Bytes>, Status> {
    let mut grpc = tonic::client::Grpc::new(channel.clone());
    grpc.ready().await.map_err(|error| Status::unavailable(error.to_string()))?;
    let path = case.method.parse().expect("a path");
    let says = |mut metadata: tonic::metadata::MetadataMap| {
        if let Some(token) = token {
            let token: MetadataValue<Ascii> = token.parse().expect("a token is text");
            metadata.insert("token", token);
        }
        metadata
    };
    let is_stream = ["Watch", "LeaseKeepAlive", "Snapshot", "Observe"].iter().any(|name| case.method.ends_with(name));
    if !is_stream {
        let mut request = Request::new(case.bytes.clone());
        *request.metadata_mut() = says(Default::default());
        return grpc.unary(request, path, Raw).await.map(|answer| Some(answer.into_inner()));
    }
    let message = case.bytes.clone();
    let reads_on = !case.method.ends_with("Snapshot") && !case.method.ends_with("Observe");
    let messages = futures::stream::once(async { message });
    let mut request = Request::new(match reads_on {
        true => messages.chain(futures::stream::pending()).left_stream(),
        false => messages.right_stream(),
    });
    *request.metadata_mut() = says(Default::default());
    let mut answers = grpc.streaming(request, path, Raw).await?.into_inner();
    if case.method.ends_with("Observe") {
        // A caller that may observe an election without a leader hears nothing: a refusal comes at once.
        let wait = std::time::Duration::from_millis(50);
        return tokio::time::timeout(wait, answers.message()).await.unwrap_or(Ok(None));
    }
    answers.message().await
}

/// The code and the text in "rpc error: code = PermissionDenied desc = etcdserver: permission denied".
pub(super) fn refusal_in(reason: &str) -> (i32, String) {
    let parts = reason.strip_prefix("rpc error: code = ").and_then(|rest| rest.split_once(" desc = "));
    let (code, text) = parts.unwrap_or_else(|| panic!("a reason of another form: {reason:?}"));
    let code = (0..17).map(Code::from_i32).find(|known| format!("{known:?}") == code).expect("a code of gRPC");
    (code as i32, text.to_owned())
}
