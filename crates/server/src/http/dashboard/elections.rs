//! Elections and locks for the page: from this member's own state, so that they can be seen without a quorum.

use hustings_kv::Need;
use serde_json::{Value, json};

use crate::context::Services;
use crate::context::backend::Backend;
use crate::context::caller::Caller;
use crate::http::own;

/// All elections and locks that somebody stands for, or why the caller is told none.
pub(super) async fn told<B: Backend>(services: &Services<B>, caller: &Caller) -> Value {
    let found = async {
        let view = services.read_local(caller, Need::Read(b"\0", b"\0")).await?;
        services.build(move || own::elections(&view, None)).await?
    };
    match found.await {
        Ok(elections) => json!({ "elections": elections, "why": null }),
        Err(status) => json!({ "elections": [], "why": status.message() }),
    }
}
