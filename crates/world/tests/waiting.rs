//! Goal: what waits for a leader is sent to it once, when it leads, and never waits for a timer besides. Method: three replicas of each
//! protocol, whose messages and syncs take a millisecond; a client of each writes and reads before anybody leads, and neither timer that
//! asks again ever fires.

use hustings_core::replica::{Action, Birth, Event, Policy, Replica, ReplicaState, ReplicaTimer, Request};
use hustings_core::{ApplyVersion, Cluster, Durable, EntryKind, NodeId, Protocol, Role};
use std::collections::BTreeMap;
use std::time::Duration;

const DELAY: Duration = Duration::from_millis(1);
const LONG: Duration = Duration::from_secs(60);

struct Table<P: Protocol> {
    replicas: Vec<Replica<P, ()>>,
    now: Duration,
    /// Events to come, by time and in order: the member, and the event.
    coming: BTreeMap<(Duration, u64), (usize, Event<P, ()>)>,
    timers: BTreeMap<(usize, ReplicaTimer<P::Timer>), Duration>,
    number: u64,
    /// When each member's client was answered: its write, its read.
    answered: [[Option<Duration>; 2]; 3],
    led_since: Option<Duration>,
}

impl<P: Protocol> Table<P> {
    fn laid() -> Table<P> {
        let mut table = Table {
            replicas: Vec::new(),
            now: Duration::ZERO,
            coming: BTreeMap::new(),
            timers: BTreeMap::new(),
            number: 0,
            answered: [[None; 2]; 3],
            led_since: None,
        };
        for id in 1..=3 {
            let birth = Birth {
                cluster: Cluster::of(3, id),
                options: P::Options::default(),
                recovered: Durable::default(),
                blank: (),
                is_witness: false,
                machine: (),
                state: ReplicaState::default(),
                incarnation: 1,
                policy: Policy::default(),
                can: ApplyVersion::FIRST,
            };
            let mut actions = Vec::new();
            table.replicas.push(Replica::start(birth, &mut actions));
            table.act(id as usize, actions);
        }
        table
    }

    fn come(&mut self, to: usize, event: Event<P, ()>) {
        self.number += 1;
        self.coming.insert((self.now + DELAY, self.number), (to, event));
    }

    fn act(&mut self, id: usize, actions: Vec<Action<P, ()>>) {
        for action in actions {
            match action {
                Action::Persist(number, _) => self.come(id, Event::Durable(number)),
                Action::Send(to, message) => {
                    self.come(to.0 as usize, Event::Peer { from: NodeId(id as u64), message });
                }
                // The lower the id, the sooner: no two are due at once.
                Action::SetTimer(timer, after) => {
                    let late = Duration::from_millis(20 * (id as u64 - 1));
                    self.timers.insert((id, timer), self.now + *after.start() + late);
                }
                Action::CancelTimer(timer) => drop(self.timers.remove(&(id, timer))),
                Action::Applied { .. } => self.answered[id - 1][0] = Some(self.now),
                Action::Readable { .. } => self.answered[id - 1][1] = Some(self.now),
                Action::Refused { refusal, .. } => panic!("the write was refused: {refusal}"),
                Action::Unknown { .. } => panic!("the write ended unknown"),
                _ => {}
            }
        }
    }

    /// The next thing that happens; a timer that asks again never does.
    fn go_on(&mut self) {
        let asks_again = |timer: &ReplicaTimer<P::Timer>| matches!(timer, ReplicaTimer::Retry | ReplicaTimer::Again);
        let due = self.timers.iter().filter(|((_, timer), _)| !asks_again(timer)).min_by_key(|(_, due)| **due);
        let due = due.map(|(key, due)| (*key, *due));
        let coming = self.coming.first_key_value().map(|((at, _), _)| *at);
        let (id, event) = match (coming, due) {
            (Some(at), due) if due.is_none_or(|(_, due)| at <= due) => {
                self.now = at;
                self.coming.pop_first().expect("there is one").1
            }
            (_, Some(((id, timer), due))) => {
                self.now = self.now.max(due);
                self.timers.remove(&(id, timer));
                (id, Event::Timer(timer))
            }
            (_, None) => panic!("nothing is armed"),
        };
        let mut actions = Vec::new();
        self.replicas[id - 1].step(event, &mut actions);
        self.act(id, actions);
        let leads = self.replicas.iter().any(|replica| replica.role() == Role::Leader);
        if leads && self.led_since.is_none() {
            self.led_since = Some(self.now);
        }
    }
}

fn is_answered_when_one_leads<P: Protocol>() {
    let mut table = Table::<P>::laid();
    for id in 1..=3 {
        let payload = bytes::Bytes::from_static(b"x");
        table.come(id, Event::Propose(vec![Request { id: 1, kind: EntryKind::Command, payload }]));
        table.come(id, Event::Read(vec![1]));
    }
    while table.answered.as_flattened().contains(&None) {
        assert!(table.now < LONG, "since one leads ({:?}) some wait for ever: {:?}", table.led_since, table.answered);
        table.go_on();
    }
    let led_since = table.led_since.expect("one leads");
    let waits = table.answered.map(|ends| ends.map(|end| end.expect("it is answered") - led_since));
    // To the leader, to the others' disks and back, and with the word of the commit, before or after a heartbeat.
    let most = Cluster::of(3, 1).timing.heartbeat + 12 * DELAY;
    assert!(waits.as_flattened().iter().all(|wait| *wait <= most), "writes and reads waited {waits:?}");
}

under_each_protocol! { who_waits_is_answered_when_one_leads: is_answered_when_one_leads; }
