//! The behaviour of etcd, as stories: one point of its semantics each. The answers were compared with etcd 3.5.1.

mod common;

mod stories {
    mod alarms;
    mod compaction;
    mod costs;
    mod large_values;
    mod leases;
    mod ranges;
    mod revisions;
    mod transactions;
    mod watches;
}
