//! The lifelines that nodes of this process hold, as Linux shows them.

use super::{Troupe, propose};
use std::collections::BTreeMap;
use std::fs;

/// Number of writes after which lifelines will not come any more; meanwhile they come about by themselves.
const WRITES_MAX: usize = 20_000;

/// Number of lifelines at each port of this machine.
fn held() -> BTreeMap<u16, usize> {
    let sockets = fs::read_to_string("/proc/self/net/tcp").expect("Linux has it");
    let rows = sockets.lines().skip(1).map(|line| line.split_whitespace().collect::<Vec<_>>());
    let port = |address: &str| u16::from_str_radix(address.rsplit(':').next().expect("a port"), 16).expect("a number");
    let remote: BTreeMap<String, u16> = rows.map(|row| (format!("socket:[{}]", row[9]), port(row[2]))).collect();
    let tasks = fs::read_dir("/proc/self/task").expect("Linux has it").flatten().map(|task| task.path());
    let threads =
        tasks.filter(|task| fs::read_to_string(task.join("comm")).is_ok_and(|name| name == "hustings-life\n"));
    let open = threads.flat_map(|task| fs::read_dir(task.join("fd")).into_iter().flatten().flatten());
    let mut ports = BTreeMap::new();
    for target in open.filter_map(|entry| fs::read_link(entry.path()).ok()) {
        if let Some(port) = remote.get(&target.display().to_string()) {
            *ports.entry(*port).or_default() += 1;
        }
    }
    ports
}

/// Waits until each member that runs holds a lifeline at each other one.
pub async fn until_all_hold_lifelines(troupe: &Troupe) {
    let leader = troupe.leader().await;
    let others = troupe.running.len() - 1;
    let all = |held: &BTreeMap<u16, usize>| {
        troupe.running.keys().all(|id| held.get(&troupe.addresses[id].port()) == Some(&others))
    };
    for _ in 0..WRITES_MAX {
        if all(&held()) {
            return;
        }
        propose(troupe.handle(leader), "x").await;
    }
    panic!("{others} at each of {:?}: {:?}", troupe.addresses, held());
}
