//! The alarm CORRUPT: when members were found in different states, writes are refused until somebody has looked.
//!
//! Source: etcd 3.5, `server/etcdserver/corrupt.go`: the leader raises the alarm in the name of each member that differs, and in
//! nobody's (member 0) when it cannot tell which is right. As in etcd 3.5.1, seen with the real one, reads are served on: the
//! alarm is a command, and once it is applied every member refuses to write by itself.

use std::sync::Arc;

use hustings_core::NodeId;
use hustings_kv::{Alarm, AlarmChange, AlarmKind, Command, Need, Response};
use hustings_node::remedies::CORRUPT;

use crate::context::Context;
use crate::context::backend::Backend;
use crate::context::caller::Caller;

/// Watches over what the node finds until it stops.
pub(crate) async fn keep<B: Backend>(context: Arc<Context<B>>) {
    let mut changes = context.status_changes();
    loop {
        let status = changes.borrow_and_update().clone();
        let differing = status.differing.iter().filter(|_| status.leader == Some(status.me));
        for member in differing {
            raise(&context, *member).await;
        }
        if changes.changed().await.is_err() {
            return;
        }
    }
}

/// Raises the alarm in a member's name, if it is not up.
async fn raise<B: Backend>(context: &Context<B>, NodeId(member): NodeId) {
    let Ok(view) = context.read_local(&Caller::member(), Need::Nothing).await else { return };
    if view.alarms().contains(&Alarm { member, kind: AlarmKind::Corrupt }) {
        return;
    }
    let change = AlarmChange { raise: true, member, kind: AlarmKind::Corrupt as i32 };
    let name = context.node_status().membership.name_of(NodeId(member));
    match context.propose(&Caller::member(), Command::Alarm(change)).await {
        Ok(Response::Alarm { .. }) => {
            tracing::error!(member = name, "alarm CORRUPT raised, writes are refused: {CORRUPT}")
        }
        Ok(_) | Err(_) => {
            tracing::error!(member = name, "the alarm CORRUPT could not be raised: members differ, and go on")
        }
    }
}
