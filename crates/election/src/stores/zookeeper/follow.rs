//! Watching a queue from one's place in it.
//!
//! A candidate that waits watches the entry before its own, so that a departure wakes one candidate and no herd; and its own entry. The
//! first one watches who comes and goes, and what an operator wishes. A watch tells only that something has changed: what it is now is read
//! behind it, on the same connection. Entries before one's own never come, so one that the member does not show is gone.
//!
//! A turn is clear when the entry directly before one's own was seen to be there, with the transaction that created it, and
//! when it had gone the note was of that very tenure, and said that it had led and stopped. The note is written by the
//! transaction that deletes the entry, so the entry has not expired; and as long as it stood, nobody between could lead.

use super::connection::{Bell, Connection, Failure};
use super::nodes::in_order;
use super::seat::{Own, Shared};
use super::wire::Stat;
use crate::stores::written::{note_of, standing, wish_for};
use hustings_lease::store::Standing;
use hustings_lease::{CandidateId, Note, Observation, Token};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Most entries of which the holder reads who they are, and of which a candidate looks at what they hang on, beside the first.
const READ_MAX: usize = 64;

/// A candidate's place in the queue, as it was told last.
pub(super) struct Place {
    pub(super) connection: Connection,
    pub(super) own: Own,
    /// The entries before its own.
    pub(super) ahead: Vec<String>,
}

/// Follows until the entry is gone, or the connection over: then the session tells everybody that it was interrupted.
pub(super) async fn follow(shared: Arc<Shared>, mut place: Place) {
    let token = place.own.token;
    let followed = async {
        let is_there = place.ahead.is_empty() || place.wait(&shared).await?;
        if is_there {
            place.lead(&shared).await?;
        }
        Ok::<(), Failure>(())
    };
    match followed.await {
        Ok(()) => shared.sitter.line.saw(Observation::EntryGone(token)),
        Err(Failure::Lost) => {}
        Err(Failure::Refused(code)) => {
            shared.refuse(format!("the queue cannot be watched: {code}"));
            tokio::time::sleep(shared.sitter.patience).await;
            // A look finds out.
            shared.sitter.line.saw(Observation::Interrupted);
        }
    }
}

impl Place {
    /// Waits for the turn. False when the entry is gone.
    async fn wait(&mut self, shared: &Shared) -> Result<bool, Failure> {
        self.tell_names(shared);
        // Entries that never end, by their names; and all that were looked at: what an entry hangs on does not change.
        let (mut endless, mut known) = (BTreeSet::new(), BTreeSet::new());
        while let Some(nearest) = self.ahead.last() {
            let nearby = self.ahead.len().saturating_sub(READ_MAX);
            let looked_at = self.ahead.iter().enumerate().filter(|(place, _)| *place == 0 || *place >= nearby);
            let asked: Vec<_> = looked_at
                .filter(|(_, name)| *name == nearest || !known.contains(*name))
                .map(|(_, name)| (name.clone(), self.connection.stat(&shared.nodes.entry(name))))
                .collect();
            let own = self.connection.watch_children(&shared.nodes.entry(&self.own.name));
            let before = self.connection.watch_children(&shared.nodes.entry(nearest));
            // The nearest is the last of them.
            let mut there = None;
            for (name, stat) in asked {
                there = stat.await?;
                if there.is_some_and(|there| there.owner == 0) {
                    endless.insert(name.clone());
                }
                known.insert(name);
            }
            // The first of them holds up the most.
            let place = self.ahead.iter().position(|name| endless.contains(name));
            shared.tell_of_endless(place.map(|place| (&self.ahead[place], place == 0)));
            let Some((_, mut mine)) = own.await? else { return Ok(false) };
            // An entry has no children: its bell rings when it goes.
            if let Some((_, mut theirs)) = before.await? {
                tokio::select! {
                    rang = theirs.rings() => rang.then_some(()).ok_or(Failure::Lost)?,
                    rang = mine.rings() => {
                        rang.then_some(()).ok_or(Failure::Lost)?;
                        return Ok(false);
                    }
                }
            }
            let (names, note) =
                (self.connection.children(&shared.nodes.directory), self.connection.data(&shared.nodes.note));
            let mut names = in_order(names.await?.unwrap_or_default());
            let note = note.await?.and_then(|(data, _)| note_of(&data));
            let Some(place) = names.iter().position(|name| *name == self.own.name) else { return Ok(false) };
            names.truncate(place);
            self.ahead = names;
            shared.set_note(note.clone());
            match self.ahead.is_empty() {
                true => {
                    let (token, is_clear) = (self.own.token, self.is_clear(there, note.as_ref()));
                    shared.sitter.line.saw(Observation::Turn { token, note, is_clear });
                }
                false => self.tell_names(shared),
            }
        }
        Ok(true)
    }

    /// Whether the entry that stood directly before this one, and was there so, left this note and had led and stopped.
    fn is_clear(&self, there: Option<Stat>, note: Option<&Note>) -> bool {
        let Some((there, note)) = there.zip(note) else { return false };
        let token = Token { number: there.created.unsigned_abs(), ..self.own.token };
        note.has_stopped && note.token == token
    }

    /// A candidate that waits needs to know that it is not alone, and no more.
    fn tell_names(&self, shared: &Shared) {
        let standings = self.ahead.iter().map(|name| Standing {
            id: CandidateId::named(name.as_str()),
            priority: 0,
            is_healthy: true,
            is_ours: true,
        });
        shared.sitter.line.saw(Observation::Roster(standings.collect()));
    }

    /// Sees who stands behind, and what is wished, until the entry is gone.
    async fn lead(&self, shared: &Shared) -> Result<(), Failure> {
        let mut known = BTreeMap::new();
        let mut wish_bell = self.read_wish(shared).await?;
        loop {
            let Some((names, mut bell)) = self.connection.watch_children(&shared.nodes.directory).await? else {
                return Ok(());
            };
            let names = in_order(names);
            if !names.contains(&self.own.name) {
                return Ok(());
            }
            self.tell_roster(shared, &names, &mut known).await?;
            loop {
                tokio::select! {
                    rang = bell.rings() => {
                        rang.then_some(()).ok_or(Failure::Lost)?;
                        break;
                    }
                    rang = wish_bell.rings() => {
                        rang.then_some(()).ok_or(Failure::Lost)?;
                        wish_bell = self.read_wish(shared).await?;
                    }
                }
            }
        }
    }

    async fn read_wish(&self, shared: &Shared) -> Result<Bell, Failure> {
        let watch = self.connection.watch_stat(&shared.nodes.wish);
        let wish = self.connection.data(&shared.nodes.wish);
        let (_, bell) = watch.await?;
        if let Some(input) = wish.await?.and_then(|(data, _)| wish_for(self.own.token, &data)) {
            shared.sitter.line.input(input);
        }
        Ok(bell)
    }

    /// Tells the roster of the entries; their contents do not change, but for renewals that say the same.
    async fn tell_roster(
        &self,
        shared: &Shared,
        names: &[String],
        known: &mut BTreeMap<String, Standing>,
    ) -> Result<(), Failure> {
        known.retain(|name, _| names.contains(name));
        let unknown: Vec<_> = names
            .iter()
            .take(READ_MAX)
            .filter(|name| !known.contains_key(*name))
            .map(|name| (name.clone(), self.connection.data(&shared.nodes.entry(name))))
            .collect();
        for (name, data) in unknown {
            if let Some((data, _)) = data.await? {
                known.insert(name.clone(), standing(name.as_bytes(), &data));
            }
        }
        shared.sitter.line.saw(Observation::Roster(names.iter().filter_map(|name| known.get(name).cloned()).collect()));
        Ok(())
    }
}
