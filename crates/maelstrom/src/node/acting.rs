//! The way out of a node: it does what its replica wants, and answers who waits.

use super::{Output, PEER, Running, Waiting};
use crate::envelope::{Body, body, code, error};
use crate::storage::StorageError;
use crate::store::Answer;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hustings_core::replica::{Action, Event};
use hustings_core::{Protocol, Refusal, Wire};
use hustings_wal::Stored;
use serde_json::json;

impl<P: Protocol> Running<P> {
    /// Carries out the replica's actions in order: one flat dispatcher.
    pub(super) fn act(&mut self, now: u64, out: &mut Output) -> Result<(), StorageError> {
        let mut actions = std::mem::take(&mut self.actions);
        for action in actions.drain(..) {
            match action {
                Action::Persist(number, record) => {
                    self.storage.append(&record)?;
                    self.appended = number;
                    self.wants_sync |= record.wants_sync();
                }
                Action::Send(to, message) => {
                    let data = STANDARD.encode(message.to_bytes());
                    match &mut self.connections {
                        Some(connections) => {
                            if let Some(packet) = connections.send(now, to, data) {
                                self.post(to, packet, out);
                            }
                        }
                        // Lost, as this network may lose anything.
                        None if self.quiet_until.is_some_and(|until| now < until) => {}
                        None => {
                            if let Some(peer) = self.name_of(to) {
                                out.say(&self.name, peer, body(json!({"type": PEER, "data": data})));
                            }
                        }
                    }
                }
                Action::SetTimer(timer, after) => self.timers.arm(timer, &after, now, &mut self.dice),
                Action::CancelTimer(timer) => self.timers.disarm(timer),
                Action::Applied { request, response, .. } => self.on_applied(request, response, out),
                Action::Refused { request, refusal } => self.on_refused(request, &refusal, out),
                Action::Unknown { request } => self.answer_change(request, error(code::CRASH, "perhaps done"), out),
                Action::Readable { requests, view, .. } => {
                    for request in requests {
                        let Some(Waiting { client, msg_id, form: (question, form), .. }) = self.looks.remove(&request)
                        else {
                            continue;
                        };
                        let reply = form.after_look(view.0.0.ask(&question));
                        out.reply(&self.name, &client, msg_id, reply);
                    }
                }
                Action::Unreadable { .. } => unreachable!("Maelstrom has no witnesses"),
                Action::Announce(transition) => out.notes.push(transition.to_string()),
                Action::Reconfigured { .. } | Action::AdminEnded { .. } | Action::Membership(_) => {}
                Action::Version(_) | Action::Digest(_) => {}
                Action::Stop { why } => unreachable!("members of one build can apply what one of them proposes: {why}"),
                Action::CutSnapshot(contents) => {
                    let reference = self.storage.cut(&contents)?;
                    out.notes.push(format!("cut a snapshot through {}", reference.lsn));
                    self.news.push_back(Event::SnapshotCut(Some(reference)));
                }
                Action::StoreChunk { reference, offset, bytes } => {
                    let stored = self.storage.store_chunk(&reference, offset, &bytes)?;
                    self.news.push_back(Event::ChunkStored { bytes: bytes.len() as u64 });
                    match stored {
                        Stored::More => {}
                        Stored::Complete => self.news.push_back(Event::SnapshotStored(Ok(reference))),
                        Stored::Corrupt => self.news.push_back(Event::SnapshotStored(Err(reference))),
                    }
                }
                Action::ReadChunk { to, lsn, digest, offset } => {
                    let bytes = self.storage.read_chunk(lsn, digest, offset)?;
                    self.news.push_back(Event::ChunkRead { to, lsn, offset, bytes });
                }
                Action::LoadSnapshot(reference) => {
                    let (machine, state) = self.storage.load(&reference)?;
                    let lsn = reference.lsn;
                    out.notes.push(format!("loaded a snapshot through {lsn}"));
                    self.news.push_back(Event::SnapshotLoaded { lsn, machine: Box::new(machine), state });
                }
            }
        }
        self.actions = actions;
        if self.appended > self.durable && !self.wants_sync {
            self.storage.write()?;
        }
        Ok(())
    }

    pub(super) fn on_applied(&mut self, request: u64, answer: Answer, out: &mut Output) {
        if let Some(Waiting { client, msg_id, form, .. }) = self.changes.remove(&request) {
            out.reply(&self.name, &client, msg_id, form.after_change(answer));
        }
    }

    pub(super) fn on_refused(&mut self, request: u64, refusal: &Refusal, out: &mut Output) {
        self.answer_change(request, error(code::UNAVAILABLE, refusal.to_string()), out);
    }

    pub(super) fn answer_change(&mut self, request: u64, answer: Body, out: &mut Output) {
        if let Some(waiting) = self.changes.remove(&request) {
            out.reply(&self.name, &waiting.client, waiting.msg_id, answer);
        }
    }
}
