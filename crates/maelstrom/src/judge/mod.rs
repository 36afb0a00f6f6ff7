//! Deciding whether the answers that clients saw are possible: [`judge`]. Stricter than the genuine tool (MB-6).
//!
//! - [`registers`]: lin-kv, by the linearizability checker of `hustings-properties`, and transactions over registers;
//! - [`transactions`]: transactions as clients saw them;
//! - [`append`]: transactions over lists;
//! - [`graph`]: circles among transactions;
//! - [`sets`]: everything else.
//!
//! Read next: [`append`].

pub mod append;
pub mod graph;
pub mod registers;
pub mod sets;
pub mod transactions;

use crate::bench::history::Operation;
use crate::bench::settings::Workload;
use hustings_properties::Violation;

/// Finds what is wrong with a history, one finding of each kind.
pub fn judge(workload: Workload, history: &[Operation]) -> Vec<Violation> {
    match workload {
        Workload::LinKv => registers::judge(history),
        Workload::Echo => sets::judge_echo(history),
        Workload::UniqueIds => sets::judge_ids(history),
        Workload::TxnListAppend => append::judge(&transactions::parse(history)),
        Workload::TxnRwRegister => registers::judge_transactions(&transactions::parse(history)),
        Workload::Broadcast => sets::judge_elements(history, "message", "messages"),
        Workload::GSet => sets::judge_elements(history, "element", "value"),
        Workload::PnCounter => sets::judge_counter(history),
    }
}
