//! The properties that a run of a seed, of a search or of a script can violate: [`JUDGED`].

/// Each property that is judged whatever the protocol, and a defect that makes it fall under most: one of hosts, disks, clients or
/// candidates ([`crate::Plants`]), or one that all protocols share.
///
/// A judge that never convicts by a property has not shown that it looks.
pub const JUDGED: [(&str, &str); 28] = [
    ("answers-fit", "reuses-incarnation"),
    ("assertions", "counts-unwritten"),
    ("commit-on-quorum", "counts-itself-at-once"),
    ("dead-work-leads", "candidate-renews-unhealthy"),
    ("durable-survives", "drops-tail"),
    ("fenced", "writes-unfenced"),
    ("leader-completeness", "drops-tail"),
    ("leadership-stays", "insists-on-preference"),
    ("leases-end", "loses-time-with-reigns"),
    ("leases-last", "doubles-time"),
    ("linearizable", "moody-apply"),
    ("log-matching", "writes-other-entries"),
    ("never-backwards", "tells-old-status"),
    ("never-leaderless", "forgets-timers"),
    ("no-storm", "candidate-unknown-is-refused"),
    ("one-believer", "candidate-releases-early"),
    ("one-holder", "adopts-without-trace"),
    ("one-leader-per-term", "announces-old-term"),
    ("one-outcome", "reuses-incarnation"),
    ("promises-stay", "writes-promises-again"),
    ("serves-beside-the-sick", "loses-timers"),
    ("serves-when-healed", "loses-timers"),
    ("somebody-may-lead", "removes-last-leader"),
    ("state-machine-safety", "forgets-applied-requests"),
    ("told-in-order", "hides-ends"),
    ("tokens-grow", "counts-versions"),
    ("votes-are-durable", "unsynced-promises"),
    ("watch-without-gap", "drops-watch-event"),
];
