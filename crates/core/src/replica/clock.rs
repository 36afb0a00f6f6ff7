//! The log is the clock of leases: [`Clock`] reads it, here and now.
//!
//! Entries carry absolute readings of log time ([`Stamp`]), and applying an entry moves the clock to the highest reading
//! so far. So the clock is a function of the log, the same on all members, and no reading counts twice.
//!
//! ```text
//!    leader: now = 40 s ──► entry (stamp 40 s) ──► every member: log time 40 s, and counts on from there by itself
//!                                                   the next leader's first stamp goes on from what it has counted
//! ```
//!
//! Two promises, both judged in `crates/world`:
//!
//! - **No lease ends early.** After an entry was proposed, log time moves on by no more than the time that passed. A
//!   member therefore counts from the moment at which it *wrote down* the newest entry, which is later than that
//!   entry's proposal, and forgets what it had counted before. Readings of earlier reigns than the newest are ignored:
//!   an isolated Paxos leader may have stamped slots that come to stand behind those of its successor. And such a slot
//!   ends the count of all reigns before it: its command may be younger than readings of the successor that come to
//!   stand behind it in turn. From there on only readings of a later reign count, whose leader has written it down.
//! - **Every lease ends.** A member goes on counting while it follows, so a hand-over loses no more than the delay of a
//!   message, and a leader writes its reading down every few seconds while a lease lives, so that restarts lose no more
//!   than that.
//!
//! It deliberately reads no clock: hosts tell how much time has passed ([`super::Event::Elapsed`]).

use crate::laboratory::Defect;
use crate::log::Stamp;
use crate::{Durable, Entry, EntryKind, Term};
use std::time::Duration;

/// The reading that stands, and whose it is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct LogTime {
    /// The newest reign of which a reading counted.
    pub term: Term,
    /// The reading itself, in microseconds of log time.
    pub micros: u64,
    /// A stale slot stands behind that reign's readings: no more of them count.
    pub is_closed: bool,
}

impl LogTime {
    /// Takes an entry's reading in, if it counts: answers whether it does.
    fn take(&mut self, stamp: Stamp) -> bool {
        let counts = stamp.term > self.term || (stamp.term == self.term && !self.is_closed);
        match counts {
            true => *self = LogTime { term: stamp.term, micros: stamp.micros, is_closed: false },
            false => self.is_closed |= stamp.term < self.term,
        }
        counts
    }
}

/// One member's knowledge of log time.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Clock {
    /// The newest reign whose reading was applied, and the highest reading: the log's clock itself, part of snapshots.
    applied: LogTime,
    /// The newest reading in the log here, applied or not.
    written: LogTime,
    /// Log time now: goes on from the newest entry that was written down here.
    now_micros: u64,
    /// Term of this member's own reign, while it leads.
    reign: Option<Term>,
    /// Value of `now_micros` when the newest entry was written down here.
    differs_from_micros: u64,
    /// A planted defect, in the laboratory.
    defect: Option<Defect>,
}

impl Clock {
    /// The clock of a member that is born with a log and, in its snapshot, with the clock `applied`; in the laboratory with a
    /// defect.
    pub fn new(applied: LogTime, recovered: &Durable, defect: Option<Defect>) -> Clock {
        // The entries of the snapshot were written down here, too: a slot of an earlier reign behind it is stale.
        let mut clock = Clock { applied, written: applied, defect, ..Clock::default() };
        recovered.entries.values().for_each(|entry| clock.on_written(entry));
        clock.now_micros = applied.micros.max(clock.written.micros);
        clock.differs_from_micros = clock.now_micros;
        clock
    }

    /// The log's clock at the last applied entry.
    pub fn applied(&self) -> LogTime {
        self.applied
    }

    /// Log time now, in microseconds: never more than what has truly passed since any entry that is written down here.
    pub fn now_micros(&self) -> u64 {
        self.now_micros
    }

    /// Time since the last applied reading, in microseconds.
    pub fn unapplied_micros(&self) -> u64 {
        self.now_micros.saturating_sub(self.applied.micros)
    }

    /// Counts time that passed here.
    pub fn on_elapsed(&mut self, micros: u64) {
        self.now_micros = self.now_micros.saturating_add(micros);
    }

    /// This member begins to lead.
    pub fn lead(&mut self, term: Term) {
        self.reign = Some(term);
        match self.defect {
            Some(Defect::LosesTimeWithReigns) => self.now_micros = self.applied.micros,
            Some(Defect::StampsDifferences) => {
                let unstamped_micros = self.now_micros - self.differs_from_micros;
                self.differs_from_micros = self.applied.micros;
                self.now_micros = self.applied.micros + unstamped_micros;
            }
            _ => {}
        }
    }

    /// This member leads no longer.
    pub fn follow(&mut self) {
        self.reign = None;
    }

    /// The reading that a proposal carries now.
    ///
    /// # Panics
    /// When this member does not lead: nobody else may stamp.
    pub fn stamp(&mut self) -> Stamp {
        let term = self.reign.expect("only a leader stamps");
        let since_micros = match self.defect {
            Some(Defect::StampsDifferences) => std::mem::replace(&mut self.differs_from_micros, self.now_micros),
            _ => 0,
        };
        match self.now_micros - since_micros {
            0 => Stamp::NONE,
            micros => Stamp { term, micros },
        }
    }

    /// An entry is being written down here.
    pub fn on_written(&mut self, entry: &Entry) {
        let Entry { stamp, kind, .. } = entry;
        if *stamp == Stamp::NONE && *kind != EntryKind::Command {
            // An entry that nobody proposed grants nothing.
            return;
        }
        if self.reign == Some(stamp.term) {
            // The readings that this leader stamped itself are counted on from already. But from here on readings of earlier
            // reigns are stale for it, too, when it leads no more: an isolated leader's slots may come to stand behind these.
            self.written.take(*stamp);
            return;
        }
        if self.defect == Some(Defect::StampsDifferences) {
            self.differs_from_micros = self.now_micros;
            return;
        }
        if !self.written.take(*stamp) {
            self.written.micros = 0;
        }
        // The entry was proposed before now, perhaps only just: nothing counted before may come behind it.
        self.now_micros = self.applied.micros.max(self.written.micros);
    }

    /// An entry is applied: answers by how much log time moves on.
    pub fn on_applied(&mut self, stamp: Stamp) -> Duration {
        if stamp == Stamp::NONE {
            return Duration::ZERO;
        }
        let before_micros = self.applied.micros;
        if self.defect == Some(Defect::StampsDifferences) {
            self.applied.micros += stamp.micros;
            let ahead_micros = self.applied.micros.saturating_sub(self.now_micros);
            (self.now_micros, self.differs_from_micros) =
                (self.now_micros + ahead_micros, self.differs_from_micros + ahead_micros);
            return Duration::from_micros(stamp.micros);
        }
        self.applied.take(stamp);
        self.applied.micros = self.applied.micros.max(before_micros);
        let elapsed_micros = self.applied.micros - before_micros;
        self.now_micros = self.now_micros.max(self.applied.micros);
        Duration::from_micros(elapsed_micros)
    }

    /// A snapshot replaces the state: its entries were proposed before now, perhaps only just.
    pub fn on_restored(&mut self, applied: LogTime) {
        self.applied = applied;
        // The readings that were written down here may be those of entries that are lost: they count for nothing behind it. Of slots that
        // are kept behind the snapshot one may be stale, so no more readings of the same reign count when they are written, only when
        // they are applied.
        let micros = if applied.term >= self.written.term { applied.micros } else { 0 };
        self.written = LogTime { term: self.written.term.max(applied.term), micros, is_closed: true };
        self.now_micros = applied.micros;
        if self.defect == Some(Defect::StampsDifferences) {
            self.differs_from_micros = self.now_micros;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Lsn, NodeId, Origin};
    use bytes::Bytes;

    const SECOND: u64 = 1_000_000;

    fn command(index: u64, term: u64, seconds: u64) -> Entry {
        let origin = Origin { node: NodeId(1), incarnation: 1, sequence: index };
        let stamp = Stamp { term: Term(term), micros: seconds * SECOND };
        Entry { lsn: Lsn::new(term, index), kind: EntryKind::Command, origin, stamp, payload: Bytes::new() }
    }

    /// Goal: a hand-over loses no time. Method: a follower counts, then stamps as the next leader.
    #[test]
    fn a_successor_goes_on_from_what_it_counted_as_a_follower() {
        let mut clock = Clock::default();
        clock.on_written(&command(1, 1, 40));
        assert_eq!(clock.on_applied(command(1, 1, 40).stamp), Duration::from_secs(40));
        clock.on_elapsed(5 * SECOND);
        clock.lead(Term(2));
        assert_eq!(clock.stamp(), Stamp { term: Term(2), micros: 45 * SECOND });
    }

    /// Goal: no lease that a slower clock granted ends early. Method: a member that counted much writes down a grant.
    #[test]
    fn what_was_counted_before_an_entry_never_comes_behind_it() {
        let mut clock = Clock::default();
        clock.on_written(&command(1, 1, 40));
        clock.on_elapsed(60 * SECOND);
        // The leader of term 2 had counted less: its grant stands at 50 s.
        clock.on_written(&command(2, 2, 50));
        clock.on_elapsed(SECOND);
        assert_eq!(clock.now_micros(), 51 * SECOND);
    }

    /// Goal: log time neither jumps nor falls at a change of leader. Method: an isolated leader's slots come to stand
    /// behind its successor's.
    #[test]
    fn readings_of_an_earlier_reign_do_not_move_the_clock() {
        let mut clock = Clock::default();
        assert_eq!(clock.on_applied(command(1, 2, 40).stamp), Duration::from_secs(40));
        assert_eq!(clock.on_applied(command(2, 1, 90).stamp), Duration::ZERO);
        assert_eq!(clock.on_applied(command(3, 3, 41).stamp), Duration::from_secs(1));
    }

    /// Goal: a stale slot may grant a lease later than its successor's readings were taken. Method: those readings stand
    /// behind it in the log, and a third leader goes on from both.
    #[test]
    fn readings_that_are_older_than_a_stale_grant_do_not_come_behind_it() {
        let mut clock = Clock::default();
        for entry in [command(1, 2, 40), command(3, 2, 55), command(2, 1, 90), command(3, 2, 55)] {
            clock.on_written(&entry);
        }
        assert_eq!(clock.on_applied(command(1, 2, 40).stamp), Duration::from_secs(40));
        assert_eq!(clock.on_applied(command(2, 1, 90).stamp), Duration::ZERO);
        assert_eq!(clock.on_applied(command(3, 2, 55).stamp), Duration::ZERO, "it was read before the grant");
        clock.on_elapsed(2 * SECOND);
        clock.lead(Term(3));
        let stamp = clock.stamp();
        assert_eq!(clock.on_applied(stamp), Duration::from_secs(2));
    }

    /// Goal: the same before it is applied. Method: a member writes the stale slot down after the newer one.
    #[test]
    fn a_stale_entry_that_is_written_down_again_sets_the_count_back_and_the_reading_not_forward() {
        let mut clock = Clock::default();
        clock.on_written(&command(1, 2, 40));
        clock.on_elapsed(7 * SECOND);
        clock.on_written(&command(2, 1, 90));
        assert_eq!(clock.now_micros(), 0, "nothing is applied yet");
    }

    /// Goal: no lease of a stale slot ends early, though its reading is written down by a member that stamped less
    /// before. Method: a leader of term 2 leads no more, and recovers a slot of term 1 behind its own, proposed only
    /// now, when that reign had counted more.
    #[test]
    fn readings_of_an_earlier_reign_do_not_move_one_that_led_since() {
        let mut clock = Clock::default();
        clock.on_written(&command(1, 1, 40));
        clock.on_applied(command(1, 1, 40).stamp);
        clock.lead(Term(2));
        clock.on_written(&command(2, 2, 40));
        clock.on_applied(command(2, 2, 40).stamp);
        clock.follow();
        clock.on_written(&command(3, 1, 45));
        assert_eq!(clock.on_applied(command(3, 1, 45).stamp), Duration::ZERO);
        clock.lead(Term(3));
        assert_eq!(clock.stamp().micros, 40 * SECOND, "a lease of that slot counts from here");
    }

    /// Goal: a member that gets a snapshot does not count on from an entry that it has lost. Method: a leader that stood still wrote an
    /// entry down that nobody else has; its successor had counted less, and sends a snapshot and no command behind it.
    #[test]
    fn the_reading_of_an_entry_that_was_lost_does_not_come_behind_a_snapshot() {
        let mut clock = Clock::default();
        clock.lead(Term(1));
        clock.on_elapsed(50 * SECOND);
        clock.on_written(&command(1, 1, 50));
        clock.follow();
        let applied = LogTime { term: Term(2), micros: 45 * SECOND, is_closed: false };
        clock.on_restored(applied);
        assert_eq!(clock.now_micros(), 45 * SECOND);
        clock.on_elapsed(SECOND);
        clock.lead(Term(3));
        assert_eq!(clock.stamp(), Stamp { term: Term(3), micros: 46 * SECOND });
    }

    /// Goal: a stale grant is not overtaken by readings that are older, whenever a snapshot comes. Method: a slot of reign 1 stands
    /// behind a snapshot of reign 2, written before it, and more of reign 2 behind that.
    #[test]
    fn a_snapshot_does_not_open_a_reign_that_a_stale_slot_has_closed() {
        let snapshot = LogTime { term: Term(2), micros: 40 * SECOND, is_closed: false };
        for before in [&[command(10, 2, 40), command(11, 1, 90)][..], &[command(11, 1, 90)]] {
            let mut clock = Clock::default();
            before.iter().for_each(|entry| clock.on_written(entry));
            clock.on_restored(snapshot);
            clock.on_written(&command(12, 2, 55));
            clock.lead(Term(3));
            assert_eq!(clock.stamp().micros, 40 * SECOND, "a lease of the slot 11 counts from here");
        }
    }

    /// Goal: what is stale for a member stays so when it starts again. Method: a slot of an earlier reign stands behind the snapshot.
    #[test]
    fn a_stale_slot_behind_a_snapshot_moves_nothing_at_a_start() {
        let recovered = Durable { entries: [(9, command(9, 1, 90))].into(), ..Durable::default() };
        let applied = LogTime { term: Term(2), micros: 45 * SECOND, is_closed: false };
        let mut clock = Clock::new(applied, &recovered, None);
        assert_eq!(clock.now_micros(), 45 * SECOND);
        assert_eq!(clock.on_applied(command(9, 1, 90).stamp), Duration::ZERO);
        clock.lead(Term(3));
        assert_eq!(clock.stamp().micros, 45 * SECOND, "a lease of that slot counts from here");
    }

    #[test]
    fn a_leader_counts_on_through_its_own_entries() {
        let mut clock = Clock::default();
        clock.lead(Term(1));
        clock.on_elapsed(3 * SECOND);
        let stamp = clock.stamp();
        clock.on_elapsed(2 * SECOND);
        clock.on_written(&command(1, 1, 3));
        assert_eq!(clock.on_applied(stamp), Duration::from_secs(3));
        assert_eq!(clock.now_micros(), 5 * SECOND);
        assert_eq!(clock.unapplied_micros(), 2 * SECOND);
    }
}
