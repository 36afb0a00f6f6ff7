//! Goal: a node keeps the rules of Maelstrom's nodes (MN, MC), one by one. Method: some nodes in a pond, lines carried by hand.

use hustings_blazingmq::BlazingMq;
use hustings_core::Protocol;
use hustings_maelstrom::envelope::{Envelope, body};
use hustings_maelstrom::node::{Node, Output, Setup};
use hustings_maelstrom::storage::Place;
use hustings_raft::Raft;
use hustings_zab::Zab;
use serde_json::{Value, json};
use std::collections::{BTreeSet, VecDeque};

const SECOND: u64 = 1_000_000;

/// Nodes, and lines on their way between them.
struct Pond {
    nodes: Vec<Option<Node<Raft>>>,
    now: u64,
    under_way: VecDeque<(usize, usize, Envelope)>,
    /// Nodes whose lines go nowhere, and that get none.
    cut_off: BTreeSet<usize>,
    heard: Vec<Envelope>,
    next_msg: i64,
}

fn name(node: usize) -> String {
    format!("n{node}")
}

impl Pond {
    fn new(count: usize) -> Pond {
        let nodes = (0..count).map(|node| Some(Node::new(Setup::new(node as u64)))).collect();
        Pond { nodes, now: 0, under_way: VecDeque::new(), cut_off: BTreeSet::new(), heard: Vec::new(), next_msg: 1 }
    }

    /// A pond whose nodes are initialised and have a leader.
    fn led(count: usize) -> (Pond, usize) {
        let mut pond = Pond::new(count);
        (0..count).for_each(|node| pond.init(node));
        pond.run(5 * SECOND);
        let leader = pond.leader().expect("five seconds are enough to elect one");
        (pond, leader)
    }

    fn init(&mut self, node: usize) {
        let names: Vec<String> = (0..self.nodes.len()).map(name).collect();
        self.tell("c-init", node, json!({"type": "init", "node_id": name(node), "node_ids": names}));
    }

    fn tell(&mut self, client: &str, node: usize, request: Value) -> i64 {
        let mut request = body(request);
        let msg_id = self.next_msg;
        self.next_msg += 1;
        request.insert("msg_id".into(), json!(msg_id));
        self.give(node, &Envelope { src: client.into(), dest: name(node), body: request }.line());
        msg_id
    }

    fn give(&mut self, node: usize, line: &str) {
        self.turn(node, |node, now, out| node.on_line(now, line, out));
    }

    fn turn<E: std::fmt::Debug>(
        &mut self,
        at: usize,
        what: impl FnOnce(&mut Node<Raft>, u64, &mut Output) -> Result<(), E>,
    ) {
        let Some(node) = &mut self.nodes[at] else { return };
        let mut out = Output::default();
        what(node, self.now, &mut out).expect("no disk fails here");
        while node.wants_sync() {
            node.sync(self.now, &mut out).expect("no disk fails here");
        }
        for line in out.lines {
            let envelope = Envelope::parse(&line).expect("nothing but envelopes is printed");
            match (0..self.nodes.len()).find(|node| name(*node) == envelope.dest) {
                Some(to) => self.under_way.push_back((at, to, envelope)),
                None => self.heard.push(envelope),
            }
        }
    }

    /// Carries one line to its receiver; says whether there was one.
    fn carry(&mut self) -> bool {
        let Some((from, to, envelope)) = self.under_way.pop_front() else { return false };
        if !self.cut_off.contains(&from) && !self.cut_off.contains(&to) {
            self.give(to, &envelope.line());
        }
        true
    }

    /// Lets time pass; lines take a millisecond.
    fn run(&mut self, micros: u64) {
        let end = self.now + micros;
        while self.now < end {
            for _ in 0..self.under_way.len() {
                self.carry();
            }
            for node in 0..self.nodes.len() {
                self.turn(node, Node::on_time);
            }
            self.now += 1_000;
        }
    }

    fn leader(&self) -> Option<usize> {
        let leads = |node: &Option<Node<Raft>>| {
            node.as_ref().and_then(Node::replica).is_some_and(|replica| replica.leader() == Some(replica.me()))
        };
        (0..self.nodes.len()).find(|node| !self.cut_off.contains(node) && leads(&self.nodes[*node]))
    }

    fn others(&self, node: usize) -> Vec<usize> {
        (0..self.nodes.len()).filter(|other| *other != node).collect()
    }

    /// All replies to a message.
    fn replies(&self, msg_id: i64) -> Vec<Value> {
        let is_one = |envelope: &&Envelope| envelope.in_reply_to() == Some(msg_id);
        self.heard.iter().filter(is_one).map(|envelope| Value::Object(envelope.body.clone())).collect()
    }

    /// Asks, lets half a second pass, and gives back the only reply without its number.
    fn ask(&mut self, node: usize, request: Value) -> Value {
        let msg_id = self.tell("c1", node, request);
        self.run(SECOND / 2);
        let [reply] = &self.replies(msg_id)[..] else { panic!("one reply: {:?}", self.replies(msg_id)) };
        let mut reply = reply.clone();
        reply.as_object_mut().expect("a body is an object").remove("in_reply_to");
        reply
    }
}

fn code(reply: &Value) -> i64 {
    reply["code"].as_i64().unwrap_or(-1)
}

#[test]
fn mael_init_once() {
    let mut pond = Pond::new(5);
    // Four chatter with each other and with the fifth for seconds before it is told who it is; strangers chatter too.
    (0..4).for_each(|node| pond.init(node));
    pond.run(5 * SECOND);
    assert!(pond.leader().is_some(), "four of five elect a leader");
    pond.give(4, r#"{"src":"n0","dest":"n4","body":{"type":"gossip","data":7}}"#);
    pond.give(4, "this is not JSON");
    pond.init(4);
    pond.init(4);
    pond.run(SECOND);
    let init_ok: Vec<&str> =
        pond.heard.iter().filter(|said| said.kind() == "init_ok").map(|said| said.src.as_str()).collect();
    assert_eq!(init_ok, ["n0", "n1", "n2", "n3", "n4"]);
    let leader = pond.leader().expect("there is one");
    let replica = pond.nodes[4].as_ref().and_then(Node::replica).expect("it is initialised");
    assert_eq!(replica.leader().map(|id| id.0), Some(leader as u64 + 1));
}

#[test]
fn mael_cas_semantics() {
    let (mut pond, leader) = Pond::led(3);
    let follower = pond.others(leader)[0];
    let cas = |from: u64, to: u64| json!({"type": "cas", "key": 7, "from": from, "to": to});
    assert_eq!(code(&pond.ask(follower, json!({"type": "read", "key": 7}))), 20);
    assert_eq!(code(&pond.ask(follower, cas(1, 2))), 20);
    assert_eq!(pond.ask(leader, json!({"type": "write", "key": 7, "value": 1})), json!({"type": "write_ok"}));
    assert_eq!(code(&pond.ask(follower, cas(3, 2))), 22);
    assert_eq!(pond.ask(follower, cas(1, 2)), json!({"type": "cas_ok"}));
    assert_eq!(pond.ask(leader, cas(2, 2)), json!({"type": "cas_ok"}));
    assert_eq!(pond.ask(follower, json!({"type": "read", "key": 7})), json!({"type": "read_ok", "value": 2}));
    let creating = json!({"type": "cas", "key": 8, "from": 0, "to": 5, "create_if_not_exists": true});
    assert_eq!(pond.ask(follower, creating), json!({"type": "cas_ok"}));
}

#[test]
fn mael_unknown_type() {
    let mut pond = Pond::new(1);
    pond.init(0);
    pond.run(SECOND);
    pond.give(0, r#"{"src":"c1","dest":"n0","body":{"type":"frobnicate","msg_id":7,"more":{}}}"#);
    assert_eq!(code(&pond.replies(7)[0]), 10);
    // Without a number there is nothing to answer, and nobody asked for what this answers.
    let before = pond.heard.len();
    pond.give(0, r#"{"src":"c1","dest":"n0","body":{"type":"frobnicate"}}"#);
    pond.give(0, r#"{"src":"lin-kv","dest":"n0","body":{"type":"read_ok","value":1,"in_reply_to":99,"msg_id":3}}"#);
    assert_eq!(pond.heard.len(), before);
    assert_eq!(pond.ask(0, json!({"type": "echo", "echo": [1]})), json!({"type": "echo_ok", "echo": [1]}));
}

#[test]
fn mael_not_leader_code() {
    // No leader is known: nothing was appended or forwarded, so the error is definite.
    let mut pond = Pond::new(3);
    (0..3).for_each(|node| pond.init(node));
    let write = |value: u64| json!({"type": "write", "key": 1, "value": value});
    let msg_id = pond.tell("c1", 0, write(1));
    assert_eq!(code(&pond.replies(msg_id)[0]), 11);
    pond.run(5 * SECOND);
    let old = pond.leader().expect("it is elected by now");
    // A leader that is cut off appends and cannot commit: nothing definite may be said of it.
    pond.cut_off.insert(old);
    let msg_id = pond.tell("c1", old, write(2));
    pond.run(10 * SECOND);
    let replies = pond.replies(msg_id);
    assert!(matches!(&replies[..], [reply] if [0, 13].contains(&code(reply))), "{replies:?}");
    let new = pond.leader().expect("the others elect one");
    assert_eq!(pond.ask(new, write(3)), json!({"type": "write_ok"}));
    pond.cut_off.clear();
    pond.run(5 * SECOND);
    assert_eq!(pond.replies(msg_id).len(), 1);
    assert_eq!(pond.ask(old, json!({"type": "read", "key": 1})), json!({"type": "read_ok", "value": 3}));
}

#[test]
fn mael_reply_from_new_leader() {
    for is_heard in [true, false] {
        let (mut pond, old) = Pond::led(3);
        pond.run(SECOND / 100);
        let asked = pond.others(old)[0];
        let msg_id = pond.tell("c1", asked, json!({"type": "write", "key": 1, "value": 5}));
        // The leader gets the request, appends it, and dies: its last words are heard by the others, or not.
        while pond.under_way.iter().any(|(from, to, _)| (*from, *to) == (asked, old)) {
            pond.carry();
        }
        pond.nodes[old] = None;
        if !is_heard {
            pond.under_way.retain(|(from, _, _)| *from != old);
        }
        pond.run(10 * SECOND);
        assert_ne!(pond.leader(), Some(old));
        let replies = pond.replies(msg_id);
        assert!(
            matches!(&replies[..], [reply] if reply["type"] == "write_ok" || [0, 13].contains(&code(reply))),
            "{replies:?}"
        );
        let read = pond.ask(asked, json!({"type": "read", "key": 1}));
        assert_eq!(read, json!({"type": "read_ok", "value": 5}), "it was sent again, or had been appended");
    }
}

#[test]
fn mael_stale_data_dir() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let life = |may_resume| {
        let mut pond = Pond::new(1);
        let place = Place::Below(directory.path().into());
        pond.nodes[0] = Some(Node::new(Setup { place, may_resume, ..Setup::new(1) }));
        pond.init(0);
        pond.run(3 * SECOND);
        pond
    };
    let mut first = life(false);
    assert_eq!(first.ask(0, json!({"type": "write", "key": 1, "value": 5})), json!({"type": "write_ok"}));
    drop(first);
    // A second run with the same directory fails loudly: the test that gets this answer to `init` aborts.
    let refused = life(false);
    assert_eq!(refused.heard.len(), 1);
    assert_eq!(code(&Value::Object(refused.heard[0].body.clone())), 14);
    drop(refused);
    // Unless it is told that the same run goes on.
    let mut resumed = life(true);
    assert_eq!(resumed.ask(0, json!({"type": "read", "key": 1})), json!({"type": "read_ok", "value": 5}));
    let id = |pond: &mut Pond| pond.ask(0, json!({"type": "generate"}))["id"].clone();
    let before = id(&mut resumed);
    drop(resumed);
    assert_ne!(id(&mut life(true)), before, "ids of different lives differ");
}

#[test]
fn before_init_a_request_is_definitely_not_done() {
    let mut pond = Pond::new(1);
    let msg_id = pond.tell("c1", 0, json!({"type": "write", "key": 1, "value": 5}));
    assert_eq!(code(&pond.replies(msg_id)[0]), 11);
}

#[test]
fn reads_without_a_key_are_answered_in_the_shape_of_what_is_there() {
    let (mut pond, leader) = Pond::led(1);
    let read = || json!({"type": "read"});
    assert_eq!(code(&pond.ask(leader, read())), 20);
    pond.ask(leader, json!({"type": "add", "delta": -3}));
    assert_eq!(pond.ask(leader, read()), json!({"type": "read_ok", "value": -3}));
    pond.ask(leader, json!({"type": "add", "element": 4}));
    assert_eq!(pond.ask(leader, read()), json!({"type": "read_ok", "value": [4]}));
    pond.ask(leader, json!({"type": "topology", "topology": {"n0": []}}));
    assert_eq!(pond.ask(leader, read()), json!({"type": "read_ok", "messages": []}));
    assert_eq!(
        pond.ask(leader, json!({"type": "send", "key": "k", "msg": 9})),
        json!({"type": "send_ok", "offset": 0})
    );
}

#[test]
fn mael_quiet_until_asked() {
    assert_quiet_until_asked::<Raft>();
    assert_quiet_until_asked::<Zab>();
    assert_quiet_until_asked::<BlazingMq>();
}

/// The tool may not know the others yet: nothing leaves before a client asks, or word from a peer, or three seconds.
fn assert_quiet_until_asked<P: Protocol>() {
    let init = json!({"src": "c0", "dest": "n0", "body": {"type": "init", "msg_id": 1, "node_id": "n0", "node_ids": ["n0", "n1", "n2"]}});
    let echo = json!({"src": "c1", "dest": "n0", "body": {"type": "echo", "msg_id": 1, "echo": "ho"}});
    let spoke_at = |asked_at: Option<u64>| {
        let mut node = Node::<P>::new(Setup::new(1));
        let mut out = Output::default();
        node.on_line(0, &init.to_string(), &mut out).expect("a memory does not fail");
        (0..10 * SECOND).step_by(10_000).find(|now| {
            if asked_at == Some(*now) {
                node.on_line(*now, &echo.to_string(), &mut out).expect("a memory does not fail");
            }
            node.on_time(*now, &mut out).expect("a memory does not fail");
            node.sync(*now, &mut out).expect("a memory does not fail");
            let mut spoken = out.lines.iter().map(|line| Envelope::parse(line).expect("an envelope"));
            spoken.any(|envelope| envelope.dest.starts_with('n'))
        })
    };
    let asked = spoke_at(Some(SECOND)).expect("a node that was asked speaks to its peers");
    let alone = spoke_at(None).expect("a node that nobody asks speaks in the end");
    assert!((SECOND..3 * SECOND).contains(&asked) && alone >= 3 * SECOND, "{}: {asked} {alone}", P::NAME);
}
