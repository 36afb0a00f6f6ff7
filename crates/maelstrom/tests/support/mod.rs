//! Runs in virtual time, and a node that needs nobody's consent.

#![allow(dead_code, reason = "each test binary uses its part")]

use hustings_core::Protocol;
use hustings_core::{Lsn, StateMachine};
use hustings_maelstrom::bench::report::{Report, Verdict};
use hustings_maelstrom::bench::settings::{Nemesis, SECOND, Settings, Workload};
use hustings_maelstrom::bench::virtual_time::{self, Simulation, Subject};
use hustings_maelstrom::envelope::{Envelope, body, error};
use hustings_maelstrom::node::Output;
use hustings_maelstrom::request::{Form, Now, Request, understand};
use hustings_maelstrom::storage::Place;
use hustings_maelstrom::{Setup, Store};
use hustings_wal::SimulatedDisk;
use serde_json::{Value, json};

/// The tutorial's final run: 3 nodes, 4n threads, 30 operations a second, a minute, partitions every ten seconds or so.
pub fn tutorial(seed: u64) -> Settings {
    Settings {
        concurrency: 12,
        rate: 30.0,
        latency: SECOND / 100,
        nemeses: [Nemesis::Partition].into(),
        ..Settings::new(Workload::LinKv, 3, seed)
    }
}

/// Runs our nodes, and shows what they said when the run is not valid.
pub fn run<P: Protocol>(settings: Settings) -> Report {
    run_with(settings, &Setup::<P>::new(0))
}

pub fn run_with<P: Protocol>(settings: Settings, setup: &Setup<P>) -> Report {
    let (report, history, notes) = virtual_time::run::<P>(settings, setup);
    println!("{report}");
    if report.verdict() != Verdict::Valid {
        notes.iter().for_each(|(now, node, note)| println!("{now:>10} n{node}: {note}"));
        history.faults.iter().for_each(|(now, _, fault)| println!("{now:>10} {fault}"));
    }
    report
}

/// Runs nodes of any kind.
pub fn run_subjects<N: Subject>(settings: Settings, mut make: impl FnMut(usize) -> N) -> Report {
    let (report, _, _) = Simulation::new(settings, |node, _, _| make(node)).run();
    println!("{report}");
    report
}

/// The rule of conformance that a node of ours is made to break.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Breach {
    /// Reads are answered from what this node has applied, without asking a leader (MC-6).
    ReadsLocally,
    /// Requests that are perhaps done are said to be definitely not done (MC-4, MX-2).
    SaysNever,
    /// A swap is answered from what this node has applied when that differs (MC-5).
    SwapsLocally,
    /// After a kill it begins anew, with a blank disk.
    Forgets,
}

/// A node of ours with a breach.
pub struct Breaching<P: Protocol> {
    pub inner: hustings_maelstrom::Node<P>,
    pub breach: Breach,
}

impl<P: Protocol> Breaching<P> {
    fn spoil(&self, out: &mut Output) {
        if self.breach == Breach::SaysNever {
            for line in &mut out.lines {
                *line = line.replace(r#""code":0,"#, r#""code":11,"#).replace(r#""code":13,"#, r#""code":11,"#);
            }
        }
    }

    /// The answer that it gives without asking anybody, if it does.
    fn answer(&self, line: &str) -> Option<String> {
        let envelope = Envelope::parse(line).ok()?;
        let key = hustings_maelstrom::json::Json::of(envelope.body.get("key")?);
        let found = self.inner.replica()?.machine().ask(&hustings_maelstrom::store::Question::Value(key))?;
        let mut answer = match (self.breach, envelope.kind()) {
            (Breach::ReadsLocally, "read") => body(json!({"type": "read_ok", "value": found["value"]})),
            (Breach::SwapsLocally, "cas") if found["value"] != envelope.body["from"] => error(22, "not here"),
            _ => return None,
        };
        answer.insert("in_reply_to".into(), json!(envelope.msg_id()));
        Some(Envelope { src: envelope.dest, dest: envelope.src, body: answer }.line())
    }
}

impl<P: Protocol> Subject for Breaching<P> {
    fn on_line(&mut self, now: u64, line: &str, out: &mut Output) -> Result<(), String> {
        match self.answer(line) {
            Some(answer) => out.lines.push(answer),
            None => Subject::on_line(&mut self.inner, now, line, out)?,
        }
        self.spoil(out);
        Ok(())
    }

    fn on_time(&mut self, now: u64, out: &mut Output) -> Result<(), String> {
        Subject::on_time(&mut self.inner, now, out)?;
        self.spoil(out);
        Ok(())
    }

    fn next_timer(&self) -> Option<u64> {
        self.inner.next_timer()
    }

    fn wants_sync(&self) -> bool {
        self.inner.wants_sync()
    }

    fn sync(&mut self, now: u64, out: &mut Output) -> Result<(), String> {
        Subject::sync(&mut self.inner, now, out)?;
        self.spoil(out);
        Ok(())
    }
}

/// Runs nodes of ours with a breach.
pub fn run_breach<P: Protocol>(settings: Settings, breach: Breach) -> Report {
    let disks: Vec<SimulatedDisk> = (0..settings.nodes).map(|_| SimulatedDisk::new(settings.seed)).collect();
    let (report, _, _) = Simulation::new(settings, |node, life, loss| {
        let place = match (breach, loss) {
            (Breach::Forgets, _) => Place::Memory,
            (_, None) => Place::Simulated(disks[node].clone()),
            (_, Some(loss)) => {
                disks[node].restart(loss);
                Place::Simulated(disks[node].clone())
            }
        };
        let setup = Setup { place, may_resume: loss.is_some(), ..Setup::new(life * 100 + node as u64) };
        Breaching { inner: hustings_maelstrom::Node::<P>::new(setup), breach }
    })
    .run();
    println!("{breach:?} {report}");
    report
}

/// The way in which a lonely node is wrong beyond being lonely.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Fault {
    /// It has no fault: alone it is right.
    #[default]
    None,
    /// It prints something that is no envelope.
    Chatters,
    /// It answers everything twice.
    Stutters,
    /// It answers writes with "definitely not done", and does them.
    Lies,
    /// It answers reads with a field that does not belong there.
    Embroiders,
    /// It ends by itself after some requests.
    Ends,
    /// It forgets every third change, and acknowledges it.
    Forgets,
    /// It gives the same id again.
    Repeats,
    /// It never answers `init`.
    Mute,
    /// It answers nothing after half a minute.
    Retires,
    /// It refuses every swap, definitely.
    Refuses,
    /// Its errors have no code.
    Mumbles,
    /// Its echo is another one.
    Distorts,
    /// It speaks to somebody who is not there.
    Dreams,
    /// It greets its neighbour as soon as it is initialised, before the tool need know that one.
    Hurries,
}

/// A node that keeps its own store and asks nobody.
pub struct Lonely {
    pub name: String,
    pub store: Store,
    pub fault: Fault,
    pub requests: u64,
    pub has_topology: bool,
}

impl Lonely {
    pub fn new(fault: Fault) -> Lonely {
        Lonely { name: String::new(), store: Store::new(), fault, requests: 0, has_topology: false }
    }
}

impl Subject for Lonely {
    fn on_line(&mut self, now: u64, line: &str, out: &mut Output) -> Result<(), String> {
        let envelope = Envelope::parse(line)?;
        let mut say = |mut answer: serde_json::Map<String, Value>| {
            answer.insert("in_reply_to".into(), json!(envelope.msg_id()));
            let line = Envelope { src: envelope.dest.clone(), dest: envelope.src.clone(), body: answer }.line();
            out.lines.push(line);
        };
        if envelope.kind() == "init" {
            self.name = envelope.dest.clone();
            if self.fault != Fault::Mute {
                say(body(json!({"type": "init_ok"})));
            }
            if self.fault == Fault::Hurries {
                let body = body(json!({"type": "hello"}));
                out.lines.push(Envelope { src: self.name.clone(), dest: "n1".into(), body }.line());
            }
            return Ok(());
        }
        if envelope.kind() == "hello" {
            return Ok(());
        }
        self.requests += 1;
        let third = self.requests.is_multiple_of(3);
        if self.fault == Fault::Retires && now > 30 * SECOND {
            return Ok(());
        }
        let answer = match understand(&envelope.body, self.has_topology) {
            Request::Now(Now::Echo(_)) if self.fault == Fault::Distorts => {
                body(json!({"type": "echo_ok", "echo": "ho"}))
            }
            Request::Change(..) if self.fault == Fault::Refuses && envelope.kind() == "cas" => error(11, "no"),
            Request::Change(..) if self.fault == Fault::Mumbles && third => body(json!({"type": "error", "text": "?"})),
            Request::Now(Now::Echo(value)) => body(json!({"type": "echo_ok", "echo": value})),
            Request::Now(Now::Topology) => {
                self.has_topology = true;
                body(json!({"type": "topology_ok"}))
            }
            Request::Now(Now::Generate) => {
                let number = if self.fault == Fault::Repeats { self.requests / 2 } else { self.requests };
                body(json!({"type": "generate_ok", "id": format!("{}-{number}", self.name)}))
            }
            Request::Change(_, Form::Plain(kind)) if self.fault == Fault::Forgets && third => {
                body(json!({"type": kind}))
            }
            Request::Change(command, form) => {
                let answer = self.store.apply(Lsn::ZERO, &command.encode());
                match self.fault {
                    Fault::Lies if third => error(14, "not done"),
                    _ => form.after_change(answer),
                }
            }
            Request::Look(question, form) => {
                let mut answer = form.after_look(self.store.ask(&question));
                if self.fault == Fault::Embroiders {
                    answer.insert("by_the_way".into(), json!("hello"));
                }
                answer
            }
            Request::Refused(code, why) => error(code, why),
        };
        if self.fault == Fault::Stutters && third {
            say(answer.clone());
        }
        say(answer);
        match self.fault {
            Fault::Chatters if third => out.lines.push("I am fine".into()),
            Fault::Dreams if third => {
                let line = json!({"src": self.name, "dest": "n99", "body": {"type": "hello"}}).to_string();
                out.lines.push(line);
            }
            Fault::Ends if self.requests > 20 => return Err("enough".into()),
            _ => {}
        }
        Ok(())
    }

    fn on_time(&mut self, _: u64, _: &mut Output) -> Result<(), String> {
        Ok(())
    }

    fn next_timer(&self) -> Option<u64> {
        None
    }

    fn wants_sync(&self) -> bool {
        false
    }

    fn sync(&mut self, _: u64, _: &mut Output) -> Result<(), String> {
        Ok(())
    }
}
