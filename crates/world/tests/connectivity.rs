//! Goal: in every way in which members can be connected, nothing commits where nobody reaches a majority, and something does
//! where somebody reaches everybody who is reachable; and when the links are whole again, everybody serves and holds the same.
//! Method: all graphs of three and four nodes up to isomorphism, with seeded labels, from a cold start and under a leader that
//! stood before. `HUSTINGS_GRAPHS=5` tries the 9,608 of five nodes too.

use hustings_blazingmq::BlazingMq;
use hustings_core::{Links, NodeId, Protocol, Slots};
use hustings_gmt2000::Gmt2000;
use hustings_kv::KvStore;
use hustings_paxos::Paxos;
use hustings_raft::Raft;
use hustings_world::command::{Command, Expectation};
use hustings_world::graphs::{Graph, Oracle, Strays};
use hustings_world::{LoadSettings, Settings, World};
use hustings_zab::Zab;
use std::collections::BTreeMap;

const SECOND: u64 = 1_000_000;

/// The state of the cluster when the links become what the graph says.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Start {
    Cold,
    Led,
}

/// The chances of a member that reaches a majority and is behind all but a minority of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Behind {
    /// It may lead, and then learns.
    Learns,
    /// A member that knows more refuses it, and there is nobody else (`scenarios/constrained-election`).
    CannotLead,
}

/// The service that a graph allowed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Service {
    /// Something was committed in its last seconds.
    Served,
    /// Nothing was committed in its last seconds.
    Silent,
    /// Nothing was, and every node that reaches a majority has a shorter log than a member of each majority that it reaches.
    OnlyBehind,
}

/// Whether somebody reaches a majority whose logs end no later than its own.
fn has_fresh_centre<P: Protocol>(world: &World<P, KvStore>, graph: &Graph, size: usize) -> bool {
    let last = |node: usize| world.replica(NodeId(node as u64 + 1)).map(|replica| replica.status().last);
    let is_fresh = |centre: &usize| {
        let peers = (0..size).filter(|peer| graph.has(*centre, *peer) && graph.has(*peer, *centre));
        peers.filter(|peer| last(*peer) <= last(*centre)).count() > size / 2
    };
    graph.central().iter().any(is_fresh)
}

/// Plays one graph; says whether something was committed in its last four seconds.
fn plays<P: Protocol>(graph: &Graph, size: usize, start: Start, seed: u64) -> Result<Service, String> {
    let load = LoadSettings { clients: 3, pause: 50_000, patience: SECOND, ..LoadSettings::default() };
    let mut world: World<P, KvStore> =
        World::new(Settings { load, ..Settings::new(size as u64, seed) }, P::Options::default())
            .map_err(|violation| violation.to_string())?;
    let mut live = || -> Result<Service, hustings_properties::Violation> {
        if start == Start::Led {
            world.apply(&Command::Settle(4 * SECOND))?;
        }
        for command in graph.commands() {
            world.apply(&command)?;
        }
        world.run_until(12 * SECOND)?;
        let before = world.highest_applied();
        world.run_until(16 * SECOND)?;
        let service = match world.highest_applied() > before {
            true => Service::Served,
            false if has_fresh_centre(&world, graph, size) => Service::Silent,
            false => Service::OnlyBehind,
        };
        world.apply(&Command::Heal)?;
        world.run_until(20 * SECOND)?;
        world.end_load();
        world.apply(&Command::Settle(20 * SECOND))?;
        world.apply(&Command::Expect(Expectation::Same))?;
        Ok(service)
    };
    live().map_err(|violation| violation.to_string())
}

fn every_graph<P: Protocol>(strays: Strays, behind: Behind, size: usize, shapes: usize) {
    let graphs = Graph::shapes(size);
    assert_eq!(graphs.len(), shapes);
    let mut seen: BTreeMap<(Oracle, Start, Service), usize> = BTreeMap::new();
    let mut wrong = Vec::new();
    for (number, shape) in (0_u64..).zip(&graphs) {
        for start in [Start::Cold, Start::Led] {
            let graph = shape.relabelled(number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20);
            // A connection that is mute one way is down both ways.
            let oracle =
                if P::LINKS == Links::Session { graph.both_ways().oracle(strays) } else { graph.oracle(strays) };
            // Half of an even number meets every majority: where slots stand alone, a leader that stood before commits with it.
            let has_half = start == Start::Led && !graph.reaching(size.div_ceil(2)).is_empty();
            let oracle = match oracle {
                Oracle::MustNot if P::SLOTS == Slots::Independent && has_half => Oracle::May,
                oracle => oracle,
            };
            match plays::<P>(&graph, size, start, number + 1) {
                Ok(service) => {
                    *seen.entry((oracle, start, service)).or_default() += 1;
                    if oracle != Oracle::MustNot && service != Service::Served {
                        println!("{} is not served in {graph}, {start:?}: {service:?}", P::NAME);
                    }
                    let is_right = match (oracle, service) {
                        (Oracle::MustNot, service) => service != Service::Served,
                        (Oracle::Must, Service::Silent) => false,
                        (Oracle::Must, Service::OnlyBehind) => behind == Behind::CannotLead,
                        (Oracle::Must, Service::Served) | (Oracle::May, _) => true,
                    };
                    if !is_right {
                        wrong.push(format!("{graph}, {start:?}: {oracle:?}, and it is {service:?}"));
                    }
                }
                Err(violation) => wrong.push(format!("{graph}, {start:?}: {violation}")),
            }
        }
    }
    println!("{} {size} nodes: {seen:?}", P::NAME);
    assert!(wrong.is_empty(), "{} of {} went wrong:\n{}", wrong.len(), graphs.len() * 2, wrong.join("\n"));
}

fn every_size<P: Protocol>(strays: Strays, behind: Behind) {
    every_graph::<P>(strays, behind, 3, 16);
    every_graph::<P>(strays, behind, 4, 218);
    if std::env::var("HUSTINGS_GRAPHS").is_ok_and(|size| size == "5") {
        every_graph::<P>(strays, behind, 5, 9_608);
    }
}

#[test]
fn raft_serves_in_every_graph_in_which_it_must() {
    every_size::<Raft>(Strays::AskFirst, Behind::CannotLead);
}

#[test]
fn gmt_2000_serves_in_every_graph_in_which_it_must() {
    every_size::<Gmt2000>(Strays::Disturb, Behind::CannotLead);
}

#[test]
fn blazingmq_serves_in_every_graph_in_which_it_must() {
    every_size::<BlazingMq>(Strays::AskFirst, Behind::Learns);
}

/// A search for a leader raises no epoch, and a node that reaches no quorum asks for no votes.
#[test]
fn zab_serves_in_every_graph_in_which_it_must() {
    every_size::<Zab>(Strays::AskFirst, Behind::CannotLead);
}

#[test]
fn paxos_serves_in_every_graph_in_which_it_must() {
    every_size::<Paxos>(Strays::AskFirst, Behind::Learns);
}
