//! The stories of the binary that may be told side by side. One program for all of them: each that speaks gRPC takes twenty seconds to
//! build. Those that compare times with each other, or drive a browser, are programs of their own.

mod advertised;
mod beside_etcd;
mod coming_from_etcd;
mod copies;
mod descriptors;
mod endings;
mod etcdctl;
mod gateway;
mod held_once;
mod large_values;
mod leases;
mod lived_through;
mod maelstrom;
mod members;
mod metrics_move;
mod metrics_of_etcd;
mod mixed;
mod odd_keys;
mod plain_text;
mod proving_ground;
mod refusals;
mod resume;
mod rolling_certificates;
mod snapshots;
mod snapshots_of_etcd;
mod status;
mod storms;
mod support;
mod the_worst_day;
mod tls;
#[path = "../../tls/tests/town/mod.rs"]
mod town;
mod unit_of_etcd;
mod up;
mod users;
mod users_beside_etcd;
mod witnesses;
