//! Goal: clients of our nodes see nothing that cannot be, whatever happens. Method: the bench in virtual time, from seeds.

mod support;

use hustings_blazingmq::BlazingMq;
use hustings_core::Protocol;
use hustings_gmt2000::Gmt2000;
use hustings_maelstrom::Setup;
use hustings_maelstrom::bench::history::{End, History, Operation};
use hustings_maelstrom::bench::report::{Report, Verdict};
use hustings_maelstrom::bench::settings::{Distribution, Nemesis, SECOND, Settings, Targets, Workload};
use hustings_maelstrom::bench::virtual_time;
use hustings_paxos::Paxos;
use hustings_raft::Raft;
use hustings_zab::Zab;
use support::{run, tutorial};

fn is_valid_and_not_vacuous(report: &Report) {
    assert_eq!(report.verdict(), Verdict::Valid, "{report}");
    assert!(report.ends.values().all(|ends| ends.ok > 0), "{report}");
}

#[test]
fn mael_single_node() {
    let settings = Settings { rate: 10.0, time_limit: 10 * SECOND, ..Settings::new(Workload::LinKv, 1, 1) };
    let report = run::<Raft>(settings);
    is_valid_and_not_vacuous(&report);
    assert_eq!(report.ends.len(), 3);
}

#[test]
fn mael_partition_3() {
    for seed in 1..=10 {
        let report = run::<Raft>(tutorial(seed));
        is_valid_and_not_vacuous(&report);
        assert!(report.ok() > 500 && report.faults["partition"] > 1 && report.traffic.lost > 0, "{report}");
    }
}

#[test]
fn mael_partition_5_stress() {
    let settings = Settings {
        concurrency: 50,
        rate: 100.0,
        latency: SECOND / 100,
        nemeses: [Nemesis::Partition].into(),
        nemesis_interval: 3 * SECOND,
        ..Settings::new(Workload::LinKv, 5, 1)
    };
    is_valid_and_not_vacuous(&run::<Raft>(settings));
}

#[test]
fn mael_reorder_exponential() {
    let settings = Settings {
        concurrency: 20,
        rate: 100.0,
        latency: SECOND / 10,
        distribution: Distribution::Exponential,
        ..Settings::new(Workload::LinKv, 5, 1)
    };
    is_valid_and_not_vacuous(&run::<Raft>(settings));
}

/// No pair can complete a round trip, so nothing need succeed; but nothing wrong may be said, and when the ring is gone
/// somebody is served within five seconds.
#[test]
fn mael_ring_3_oneway() {
    let mut heals = 0;
    for seed in 1..=5 {
        let settings = Settings { targets: Targets::Rings, time_limit: 40 * SECOND, ..tutorial(seed) };
        let (report, history, _) = virtual_time::run::<Raft>(settings, &Setup::new(0));
        is_valid_and_not_vacuous(&report);
        for (healed, until) in spans(&history, "heal", "cut").filter(|(healed, until)| until - healed > 5 * SECOND) {
            let is_served = |operation: &Operation| {
                operation.end.as_ref().is_some_and(|(at, _, end)| {
                    matches!(end, End::Ok(_))
                        && (healed..healed + 5 * SECOND).contains(at)
                        && operation.invoked_at >= healed
                })
            };
            assert!(
                history.operations.iter().any(is_served),
                "seed {seed}: nobody was served after {healed} before {until}"
            );
            heals += 1;
        }
    }
    assert!(heals > 2);
}

/// Spans from a fault of the first kind to the next of the other, or to the end of the run.
fn spans<'a>(history: &'a History, from: &'a str, to: &'a str) -> impl Iterator<Item = (u64, u64)> + 'a {
    let end = history.operations.iter().map(|operation| operation.invoked_at).max().unwrap_or_default();
    history.faults.iter().enumerate().filter(move |(_, (_, _, what))| what.starts_with(from)).map(
        move |(position, (at, _, _))| {
            let next = history.faults[position + 1..].iter().find(|(_, _, what)| what.starts_with(to));
            (*at, next.map_or(end, |(at, _, _)| *at).max(*at))
        },
    )
}

/// MI-5: from two election timeouts after a clean cut on, a node of the majority answers requests.
#[test]
fn a_stable_majority_serves() {
    let (mut asked, mut answered) = (0, 0);
    for seed in 1..=12 {
        let settings = Settings {
            concurrency: 20,
            nemesis_interval: 15 * SECOND,
            time_limit: 90 * SECOND,
            ..Settings { nodes: 5, ..tutorial(seed) }
        };
        let (report, history, _) = virtual_time::run::<Raft>(settings, &Setup::new(0));
        is_valid_and_not_vacuous(&report);
        for (cut, healed) in spans(&history, "cut", "heal") {
            let (_, _, what) = history.faults.iter().find(|(at, ..)| *at == cut).expect("a span begins with it");
            if what.contains("ring") {
                continue;
            }
            // "cut majority: n0 refuses {n1 n2} ...": a node that refuses fewer than half is of the majority.
            let refused: Vec<usize> = (0..5)
                .map(|node| what.split(&format!(" n{node} refuses {{")).nth(1).map_or(0, count_to_brace))
                .collect();
            // An election timeout is drawn from one second to two.
            let settled = cut + 4 * SECOND..healed.saturating_sub(SECOND);
            for operation in history.operations.iter().filter(|operation| settled.contains(&operation.invoked_at)) {
                if refused[operation.node] <= 2 {
                    asked += 1;
                    let is_answer = matches!(operation.end, Some((_, _, End::Ok(_)))) || operation.observed().is_some();
                    answered += u64::from(is_answer);
                }
            }
        }
    }
    println!("{answered} of {asked} answered");
    assert!(asked > 1_000 && answered * 100 >= asked * 99, "{answered} of {asked}");
}

fn count_to_brace(text: &str) -> usize {
    text.split('}').next().unwrap_or_default().split_whitespace().count()
}

#[test]
fn what_was_acknowledged_survives_kills_power_cuts_pauses_and_a_bad_network() {
    use Nemesis::{Duplicate, Kill, Loss, OneWay, Partition, Pause, Power};
    for (seed, nemeses) in [
        (1, vec![Kill]),
        (2, vec![Power]),
        (3, vec![Pause, Partition]),
        (4, vec![Loss, Duplicate, OneWay]),
        (5, vec![Partition, Kill, Power, Pause, Loss, Duplicate]),
    ] {
        let settings =
            Settings { nemeses: nemeses.iter().copied().collect(), nemesis_interval: 4 * SECOND, ..tutorial(seed) };
        let report = run::<Raft>(settings);
        is_valid_and_not_vacuous(&report);
        assert_eq!(report.faults.len(), nemeses.len(), "{report}");
    }
}

/// Three nodes and five, with the genuine tool's partitions, with kills and pauses too, and with everything at once.
fn passes_the_bench<P: Protocol>() {
    use Nemesis::{Duplicate, Kill, Loss, OneWay, Partition, Pause, Power};
    for (seed, nodes) in [(1, 3), (2, 5), (3, 3), (4, 5)] {
        let settings = Settings { nodes, concurrency: 4 * nodes, nemesis_interval: 5 * SECOND, ..tutorial(seed) };
        for nemeses in [
            vec![Partition],
            vec![Partition, Kill, Pause],
            vec![Partition, OneWay, Kill, Power, Pause, Loss, Duplicate],
        ] {
            let report = run::<P>(Settings { nemeses: nemeses.iter().copied().collect(), ..settings.clone() });
            is_valid_and_not_vacuous(&report);
            assert_eq!(report.faults.len(), nemeses.len(), "{report}");
        }
    }
}

#[test]
fn raft_passes_the_bench() {
    passes_the_bench::<Raft>();
}

#[test]
fn gmt2000_passes_the_bench() {
    passes_the_bench::<Gmt2000>();
}

#[test]
fn paxos_passes_the_bench() {
    passes_the_bench::<Paxos>();
}

/// A protocol whose links are sessions has a transport of its own here ([`hustings_maelstrom::connection`]).
#[test]
fn blazingmq_passes_the_bench_over_connections_of_its_own() {
    passes_the_bench::<BlazingMq>();
}

#[test]
fn zab_passes_the_bench_over_connections_of_its_own() {
    passes_the_bench::<Zab>();
}

#[test]
fn every_other_workload_is_served_under_partitions_and_kills() {
    let workloads = [
        Workload::Echo,
        Workload::UniqueIds,
        Workload::TxnListAppend,
        Workload::TxnRwRegister,
        Workload::Broadcast,
        Workload::GSet,
        Workload::PnCounter,
    ];
    for workload in workloads {
        let settings = Settings {
            workload,
            nemeses: [Nemesis::Partition, Nemesis::Kill].into(),
            nemesis_interval: 5 * SECOND,
            time_limit: 40 * SECOND,
            ..tutorial(7)
        };
        is_valid_and_not_vacuous(&run::<Raft>(settings));
    }
}

/// Snapshots must really be cut and fetched: one every forty entries, with hardly anything kept below it.
#[test]
fn a_node_that_comes_back_late_is_served_a_snapshot() {
    let mut setup = Setup::<Raft>::new(0);
    setup.policy.entries_max = 40;
    setup.trailing_entries = 5;
    let nemeses = [Nemesis::Kill, Nemesis::Partition].into();
    let settings = Settings { nemeses, workload: Workload::TxnListAppend, ..tutorial(11) };
    let (report, _, notes) = virtual_time::run(settings, &setup);
    is_valid_and_not_vacuous(&report);
    for word in ["cut a snapshot", "loaded a snapshot"] {
        assert!(notes.iter().any(|(_, _, note)| note.contains(word)), "nobody {word}");
    }
}

#[test]
fn equal_seeds_give_equal_runs() {
    let run = |seed| {
        let setup = Setup::<Raft>::new(0);
        let settings = Settings { time_limit: 20 * SECOND, ..tutorial(seed) };
        let (_, history, notes) = virtual_time::run(settings, &setup);
        (history.lines(), notes)
    };
    assert_eq!(run(5), run(5));
    assert_ne!(run(5).0, run(6).0);
}
