//! `GET /v1/report`: all that a member knows of itself, for the page. It waits for nobody.
//!
//! Counts grow from the start of the process; a reader that wants rates asks twice. Histograms are counts up to each
//! bound, in microseconds, the last one above all bounds.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use hustings_kv::{AlarmKind, Need, View};
use hustings_node::Counters;
use hustings_node::counters::{ROUND_TRIP_BUCKETS_MICROS, SYNC_BUCKETS_MICROS};
use hustings_node::reach::{Quorum, Reach};
use serde_json::{Value, json};
use tonic::Status;

use crate::context::Services;
use crate::context::backend::Backend;
use crate::context::caller::Caller;
use crate::context::metrics::REQUEST_BUCKETS_MICROS;
use crate::context::story::unix_millis;

/// A disk with less room than this is warned of.
const DISK_SHORT_BYTES: u64 = 1 << 30;

/// A store that is fuller than this share of its quota is warned of.
const QUOTA_SHORT: f64 = 0.8;

/// A certificate that expires sooner is warned of.
const EXPIRY_SHORT: Duration = Duration::from_secs(30 * 24 * 3_600);

/// The report of this member.
pub(crate) async fn of<B: Backend>(services: &Services<B>, caller: &Caller) -> Result<Value, Status> {
    let view = services.read_local(caller, Need::User).await?;
    let status = services.node_status();
    let mut report = services.status_value(&view.alarms());
    let counters = services.metrics.node.get();
    let disk = services.room.look(services.options.data_dir.as_deref()).await;
    report["kind"] = "Report".into();
    report["now_unix_millis"] = unix_millis(SystemTime::now()).into();
    report["uptime_seconds"] = services.begun.elapsed().as_secs().into();
    report["last"] = status.last.index.into();
    report["store"] = json!({
        "revision": view.revision(),
        "compact_revision": view.compact_revision(),
        "keys": view.key_count(),
        "bytes": view.size_bytes(),
        "quota_bytes": services.options.quota_backend_bytes,
    });
    report["disk_room"] = json!({
        "free_bytes": disk.map(|(free, _)| free),
        "total_bytes": disk.map(|(_, total)| total),
    });
    report["requests"] = json!({
        "answered": services.metrics.answered(),
        "bounds_micros": REQUEST_BUCKETS_MICROS,
        "counts": counts(&services.metrics.request_micros),
    });
    report["connections"] = services.metrics.connections().into();
    report["syncs"] = json!({
        "bounds_micros": SYNC_BUCKETS_MICROS,
        "counts": counters.map(|counters| counts(&counters.syncs)),
    });
    report["round_trips"] = round_trips(services, counters.map(|counters| &**counters));
    report["is_cut"] = counters.is_some_and(|counters| counters.cut.is_cut()).into();
    report["warnings"] = warnings(services, &view, disk).into();
    report["story"] = services.story.told().into();
    Ok(report)
}

fn counts(buckets: &[AtomicU64]) -> Vec<u64> {
    buckets.iter().map(|bucket| bucket.load(Ordering::Relaxed)).collect()
}

fn round_trips<B: Backend>(services: &Services<B>, counters: Option<&Counters>) -> Value {
    let membership = services.node_status().membership;
    let peers = counters.map(Counters::peers).unwrap_or_default();
    let told = peers
        .iter()
        .map(|(id, peer)| json!({ "member": membership.name_of(*id), "counts": counts(&peer.round_trips) }));
    json!({ "bounds_micros": ROUND_TRIP_BUCKETS_MICROS, "peers": told.collect::<Vec<_>>() })
}

/// Warnings about this member or from it, each with its cure.
fn warnings<B: Backend>(services: &Services<B>, view: &View, disk: Option<(u64, u64)>) -> Vec<Value> {
    let status = services.node_status();
    let membership = &status.membership;
    let me = membership.name_of(status.me);
    let mut warnings = Vec::new();
    let mut warn = |what: String, cure: String| warnings.push(json!({ "what": what, "cure": cure }));
    for alarm in view.alarms() {
        let name = membership.name_of(hustings_core::NodeId(alarm.member));
        match alarm.kind {
            AlarmKind::NoSpace => warn(
                format!("{name} raised NOSPACE: writes are refused"),
                format!("hustings compact {}   # or more disk or quota; then: hustings alarm disarm", view.revision()),
            ),
            AlarmKind::Corrupt => {
                warn(format!("{name} raised CORRUPT: its data differs"), format!("hustings member remove {name}"));
            }
            AlarmKind::None => {}
        }
    }
    for id in &status.differing {
        let name = membership.name_of(*id);
        warn(format!("the data of {name} differs from that of most members"), format!("hustings member remove {name}"));
    }
    if !status.is_disk_healthy {
        warn(format!("the disk of {me} does not answer"), format!("dmesg   # on the machine of {me}"));
    }
    let quota = services.options.quota_backend_bytes;
    if view.size_bytes() as f64 > quota as f64 * QUOTA_SHORT {
        warn(
            format!("the store is {:.0} % full", view.size_bytes() as f64 / quota as f64 * 100.0),
            format!("hustings compact {}   # or a larger --quota-backend-bytes", view.revision()),
        );
    }
    if let Some((free, _)) = disk.filter(|(free, _)| *free < DISK_SHORT_BYTES) {
        let data_dir = services.options.data_dir.as_deref().unwrap_or(Path::new("."));
        warn(format!("{me} has {} MiB of disk left", free >> 20), format!("df -h {}", data_dir.display()));
    }
    for expiry in services.metrics.expiries() {
        let left = expiry.not_after.duration_since(SystemTime::now()).unwrap_or_default();
        if left < EXPIRY_SHORT {
            let days = left.as_secs() / 86_400;
            warn(
                format!("the certificate of {me} for {} ends in {days} days", expiry.of),
                "hustings config validate   # then replace the files: they are read again by themselves".to_owned(),
            );
        }
    }
    if let Some(counters) = services.metrics.node.get() {
        for missing in Quorum::look(status.me, membership, counters).missing {
            let cure = match missing.reach {
                Reach::RefusesThis(_) | Reach::IsRefused(_) => format!("hustings member remove {}", missing.name),
                _ => format!("systemctl restart hustings   # on the machine of {}", missing.name),
            };
            warn(missing.to_string(), cure);
        }
    }
    warnings
}
