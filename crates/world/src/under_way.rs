//! Messages and syncs that are under way when all is made well: [`World::hasten`].
//!
//! A message that was slowed down, and a sync that a slow disk began, would keep a healthy cluster waiting for as long as the fault
//! had meant. Before liveness is judged they are made well, too. Clients then ask members of the cluster, as users do.

use crate::digested::Service;
use crate::world::{EventKind, World};
use hustings_core::Protocol;

impl<P: Protocol, S: Service> World<P, S> {
    /// Lets what is under way take no longer than on healthy links and disks.
    pub(crate) fn hasten(&mut self) {
        for (slot, arrives_at, arrow) in self.network.hasten(self.now) {
            self.journal.arrow_arrives(arrow, arrives_at);
            self.at(arrives_at, EventKind::Deliver(slot));
        }
        for (one, other, when) in self.network.hasten_breaks(self.now) {
            let session = self.network.session(one, other);
            self.at(when, EventKind::Break(one, other, session));
        }
        let latest = self.now + self.settings.disk.sync_max;
        for at in 0..self.machines.len() {
            let machine = &self.machines[at];
            if machine.syncing.is_some() && machine.sync_due > latest {
                let life = machine.lives;
                self.machines[at].sync_due = latest;
                self.at(latest, EventKind::Synced(at, life));
            }
        }
    }

    /// Clients of a machine that is no member lose it, as its process ends, and ask members from now on.
    pub(crate) fn leave_strangers(&mut self) {
        let known = self.known_members();
        if known.is_empty() {
            return;
        }
        for (client, number) in self.load.waiting_beyond(&known) {
            self.on_patience(client, number);
        }
    }
}
