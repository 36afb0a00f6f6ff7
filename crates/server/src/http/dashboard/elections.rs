//! Elections and locks for the page: from this member's own state, so that they can be seen without a quorum.
//!
//! They are looked at once for all pages that are open at this member, and all pages are told the same bytes.

use std::time::Duration;

use bytes::Bytes;
use hustings_kv::{Need, View};
use serde_json::json;
use tokio::time::Instant;
use tonic::Status;

use crate::context::Services;
use crate::context::backend::Backend;
use crate::context::caller::Caller;
use crate::context::listed::Listed;
use crate::http::dashboard::stream::event_of;
use crate::http::elections::tell;

/// Pause between two looks: each reads all keys on leases.
pub(super) const EVERY: Duration = Duration::from_secs(2);

/// A look takes at most one part in as many of the time.
const SHARE: u32 = 10;

/// A longer list is no page.
const TEXT_BYTES_MAX: usize = 4 << 20;

/// All elections and locks that somebody stands for, or why the caller is told none: an event of the stream.
pub(super) async fn told<B: Backend>(services: &Services<B>, caller: &Caller) -> Bytes {
    let found = async {
        let view = services.read_local(caller, Need::Read(b"\0", b"\0")).await?;
        listed(services, view).await
    };
    found.await.unwrap_or_else(|status: Status| {
        event_of("elections", &json!({ "elections": [], "why": status.message() }).to_string())
    })
}

/// The list as it was found a moment ago, or as it is found now. Pages that ask meanwhile wait, and are told the same.
async fn listed<B: Backend>(services: &Services<B>, view: View) -> Result<Bytes, Status> {
    let mut listed = services.listed.lock().await;
    let begun = Instant::now();
    if let Some(listed) = listed.as_ref().filter(|listed| begun < listed.due) {
        return listed.told.clone();
    }
    let memory = services.memory.clone();
    let told = match services.build(move || tell(&view, None, &memory)).await {
        Ok(Ok((text, _held))) => event_from(&text),
        Ok(Err(refusal)) | Err(refusal) => Err(refusal),
    };
    let now = Instant::now();
    let due = (begun + EVERY).max(now + SHARE * (now - begun));
    *listed = Some(Listed { due, told: told.clone() });
    told
}

/// The event of this answer, if it is one for a page.
fn event_from(text: &str) -> Result<Bytes, Status> {
    match text.strip_suffix('}').filter(|text| text.len() <= TEXT_BYTES_MAX) {
        Some(elections) => Ok(event_of("elections", &format!("{elections},\"why\":null}}"))),
        None => {
            let mebibytes = text.len() >> 20;
            let why =
                format!("they fill {mebibytes} MiB, too many for a page: ask for one with GET /v1/elections?name=NAME");
            Err(Status::resource_exhausted(why))
        }
    }
}
