//! Finds in several directories the history to go on with, by the rule of their protocol; and the state behind it.
//!
//! Where slots are filled in order, one log is chosen: the one that the protocol's own elections would call the most recent
//! ([`Protocol::freshness`]). It holds all that any of these members saw committed. Where slots are independent (Paxos), each is
//! taken from the directory that accepted it at the highest ballot: if it was chosen at all, that ballot has the chosen value.
//!
//! Everything up to the end is applied, committed or not: a surviving disk held it, so it may have been acknowledged. The state is
//! computed by the replica that every host runs, which applies what its protocol says is committed at its birth.

use super::known_name;
use crate::protocols::{self, Visit};
use anyhow::{Result, anyhow, bail};
use hustings_core::options::Options as _;
use hustings_core::protocol::Slots;
use hustings_core::quorum::{Quorums, Verdict};
use hustings_core::replica::{Action, Birth, Event, Policy, ReplicaState, SnapshotContents};
use hustings_core::{
    ApplyVersion, Cluster, Durable, Entry, EntryKind, Limits, Lsn, Membership, MembershipChange, NodeId, Priority,
    Protocol, Replica, StateMachine, Term, Timing, Wire as _,
};
use hustings_kv::KvStore;
use hustings_wal::Survey;
use std::collections::BTreeSet;
use std::sync::Arc;

/// The history with which the cluster can go on.
pub(crate) struct Gathered {
    /// Position of the directory whose log it is; where slots are independent, whose snapshot it begins with.
    pub(crate) best: usize,
    /// Last entry of the history.
    pub(crate) last: Lsn,
    /// The highest index that any directory knows to be committed.
    pub(crate) committed: u64,
    /// The state behind the last entry.
    pub(crate) store: KvStore,
    /// Version of the rules by which the state was computed.
    pub(crate) version: ApplyVersion,
    /// The membership behind the last entry.
    pub(crate) membership: Arc<Membership>,
    /// The memberships that may be in force elsewhere: the one at the commit, and those after it.
    pub(crate) possible: Vec<Membership>,
    /// Slots that no directory holds, below others that one does.
    pub(crate) holes: Vec<u64>,
    /// Entries that a directory holds and that are not kept: which directory, the first of them, and how many.
    pub(crate) dropped: Vec<(usize, Lsn, usize)>,
    /// The highest term that any directory has heard of.
    pub(crate) term: Term,
    quorums: Quorums,
}

/// Gathers what these directories hold; all are of one cluster and one protocol.
///
/// # Errors
/// They contradict each other, or hold what this build cannot apply.
pub(crate) fn gather(surveys: &[&Survey]) -> Result<Gathered> {
    let protocol = &surveys.first().expect("at least one was given").peek.identity.protocol;
    protocols::visit_identity(protocol, Gathering(surveys))?
}

struct Gathering<'a>(&'a [&'a Survey]);

impl Visit for Gathering<'_> {
    type Out = Result<Gathered>;

    fn visit<P: Protocol>(self, options: P::Options) -> Result<Gathered> {
        let surveys = self.0;
        let quorums = options.quorums();
        let (best, held, holes) = match P::SLOTS {
            Slots::InOrder => most_recent::<P>(surveys)?,
            Slots::Independent => slot_by_slot(surveys)?,
        };
        let last = last_held(&held);
        let committed = surveys.iter().map(|survey| survey.durable.committed.index).max().unwrap_or(0);
        let committed = committed.min(last.index);
        let founding = &surveys[best].peek.founding;
        let possible = memberships_from(&held, founding, committed);
        let dropped = dropped(surveys, &held);
        let term = surveys.iter().map(|survey| highest_term(&survey.durable)).max().unwrap_or_default();
        let replica = replay::<P>(surveys[best], Durable { committed: last, ..held }, options)?;
        if replica.applied().index != last.index {
            bail!("only {} of {last} could be applied; this is a defect, please report it", replica.applied());
        }
        Ok(Gathered {
            best,
            last,
            committed,
            store: replica.machine().clone(),
            version: replica.version(),
            membership: replica.membership().clone(),
            possible,
            holes,
            dropped,
            term,
            quorums,
        })
    }
}

/// The last entry that is held, of any term: gaps are filled before.
fn last_held(durable: &Durable) -> Lsn {
    let last = durable.entries.values().next_back().map(|entry| entry.lsn);
    last.or(durable.snapshot.as_ref().map(|reference| reference.lsn)).unwrap_or(Lsn::ZERO)
}

fn highest_term(durable: &Durable) -> Term {
    let entries = durable.entries.values().map(|entry| entry.lsn.term);
    let snapshot = durable.snapshot.as_ref().map_or(Term::ZERO, |reference| reference.lsn.term);
    entries.chain([snapshot, durable.promise.term, durable.established]).max().unwrap_or_default()
}

type History = (usize, Durable, Vec<u64>);

/// The most recent log, whole.
fn most_recent<P: Protocol>(surveys: &[&Survey]) -> Result<History> {
    // Of equals the first that was given.
    let freshest = |positions: &[usize]| {
        positions.iter().rev().copied().max_by_key(|position| P::freshness(&surveys[*position].durable))
    };
    let all: Vec<usize> = (0..surveys.len()).collect();
    let with_state: Vec<usize> = all.iter().copied().filter(|position| !is_witness(surveys[*position])).collect();
    let mut best = freshest(&all).expect("at least one was given");
    let mut held = surveys[best].durable.clone();
    if is_witness(surveys[best]) {
        let reaching: Vec<usize> =
            with_state.into_iter().filter(|position| reaches(&surveys[*position].durable, &held)).collect();
        let tail = held;
        best = freshest(&reaching).ok_or_else(|| without_state(surveys[best], surveys))?;
        held = continued(surveys[best].durable.clone(), &tail);
    }
    let last = held.last();
    // Entries that a crash left unconnected were never acknowledged.
    held.entries.split_off(&(last.index + 1));
    for survey in surveys {
        let durable = &survey.durable;
        let lacks = |lsn: Lsn| {
            lsn.index > held.snapshot_index() && held.entries.get(&lsn.index).map(|entry| entry.lsn) != Some(lsn)
        };
        let committed = durable.committed.index.min(durable.last().index);
        let snapshot = durable.snapshot.as_ref().map(|reference| reference.lsn);
        let entries = durable.entries.range(..=committed).map(|(_, entry)| entry.lsn);
        if let Some(lsn) = snapshot.into_iter().chain(entries).find(|lsn| lacks(*lsn)) {
            return Err(contradiction(survey, surveys[best], lsn.index));
        }
    }
    Ok((best, held, Vec::new()))
}

/// Whether a log has the place behind which a witness's tail begins: what a snapshot covers is committed, and so the same everywhere.
fn reaches(log: &Durable, tail: &Durable) -> bool {
    let Some(base) = tail.snapshot.as_ref().map(|reference| reference.lsn) else { return true };
    log.snapshot_index() >= base.index || log.entries.get(&base.index).is_some_and(|entry| entry.lsn == base)
}

/// A log as far as it agrees with a witness's tail, and the tail from there on.
fn continued(mut log: Durable, tail: &Durable) -> Durable {
    let from = log.snapshot_index().max(tail.snapshot_index()) + 1;
    let lsn_of = |durable: &Durable, index: u64| durable.entries.get(&index).map(|entry| entry.lsn);
    let agrees = |index: &u64| lsn_of(&log, *index).is_some() && lsn_of(&log, *index) == lsn_of(tail, *index);
    let from = (from..).find(|index| !agrees(index)).expect("logs end");
    log.entries.split_off(&from);
    log.entries.extend(tail.entries.range(from..).map(|(index, entry)| (*index, entry.clone())));
    log
}

/// Whether this directory is a witness's, which has the tail of a log and no state.
///
/// Any membership that its log knows may say so: after a removal, committed or not, the last one names it no more.
fn is_witness(survey: &Survey) -> bool {
    let memberships = memberships_from(&survey.durable, &survey.peek.founding, 0);
    survey.is_witness || memberships.iter().any(|membership| membership.is_witness(survey.peek.identity.node))
}

fn without_state(witness: &Survey, surveys: &[&Survey]) -> anyhow::Error {
    let (directory, base) = (witness.directory.display(), witness.durable.snapshot_index());
    match surveys.iter().any(|survey| !is_witness(survey)) {
        false => anyhow!(
            "{directory} is a witness's, which votes and holds no data: give the directory of a member that holds data, too"
        ),
        true => anyhow!(
            "{directory} is a witness's and has only what comes after entry {base}, and no other directory reaches so far: what lies \
             between them was acknowledged, and is lost unless another member's directory is found; to go on without it, recover \
             from the others alone"
        ),
    }
}

/// Each slot above the highest snapshot as it was accepted at the highest ballot.
fn slot_by_slot(surveys: &[&Survey]) -> Result<History> {
    let with_state = || (0..surveys.len()).rev().filter(|position| !is_witness(surveys[*position]));
    let best = with_state().max_by_key(|position| surveys[*position].durable.snapshot_index());
    let best = best.ok_or_else(|| without_state(surveys[0], surveys))?;
    // Entries that a witness has forgotten were chosen: some member with a state must know that, and then has them.
    let known = with_state().map(|position| surveys[position].durable.committed.index).max().unwrap_or(0);
    if let Some(witness) = surveys.iter().find(|survey| is_witness(survey) && survey.durable.snapshot_index() > known) {
        return Err(without_state(witness, surveys));
    }
    let mut held = Durable { entries: std::collections::BTreeMap::new(), ..surveys[best].durable.clone() };
    let base = held.snapshot_index();
    for entry in surveys.iter().flat_map(|survey| survey.durable.entries.values()) {
        let index = entry.lsn.index;
        if index > base && held.entries.get(&index).is_none_or(|known| known.lsn.term < entry.lsn.term) {
            held.entries.insert(index, entry.clone());
        }
    }
    for survey in surveys {
        let committed = survey.durable.committed.index;
        for (index, entry) in survey.durable.entries.range(..=committed).filter(|(index, _)| **index > base) {
            if !is_same_value(&held.entries[index], entry) {
                return Err(contradiction(survey, surveys[best], *index));
            }
        }
    }
    let end = last_held(&held).index;
    let holes: Vec<u64> = (base + 1..=end).filter(|index| !held.entries.contains_key(index)).collect();
    for index in &holes {
        let before = index.checked_sub(1).and_then(|before| held.entries.get(&before)).map(|entry| entry.lsn.term);
        let snapshot = held.snapshot.as_ref().map(|reference| reference.lsn.term);
        let term = before.or(snapshot).unwrap_or(Term(1));
        held.entries.insert(*index, Entry::blank(Lsn { term, index: *index }));
    }
    Ok((best, held, holes))
}

fn is_same_value(one: &Entry, other: &Entry) -> bool {
    (one.kind, one.origin, &one.payload) == (other.kind, other.origin, &other.payload)
}

fn contradiction(of: &Survey, best: &Survey, index: u64) -> anyhow::Error {
    anyhow!(
        "{} knows entry {index} to be committed, and what is most recent ({}) has another one there or none: one of the disks \
         has forgotten what it had acknowledged (an old copy?); recover from the one that you trust, without the other",
        of.directory.display(),
        best.directory.display()
    )
}

/// Entries that a directory holds and the history does not keep.
fn dropped(surveys: &[&Survey], held: &Durable) -> Vec<(usize, Lsn, usize)> {
    let base = held.snapshot_index();
    let is_kept = |entry: &Entry| held.entries.get(&entry.lsn.index).is_some_and(|kept| is_same_value(kept, entry));
    let of = |(position, survey): (usize, &&Survey)| {
        let entries = survey.durable.entries.values().filter(|entry| entry.lsn.index > base && !is_kept(entry));
        let places: Vec<Lsn> = entries.map(|entry| entry.lsn).collect();
        places.first().map(|first| (position, *first, places.len()))
    };
    surveys.iter().enumerate().filter_map(of).collect()
}

/// The membership in force at the commit, and what it becomes with each change behind it.
fn memberships_from(held: &Durable, founding: &Membership, committed: u64) -> Vec<Membership> {
    let mut membership =
        held.snapshot.as_ref().map_or_else(|| founding.clone(), |reference| (*reference.membership).clone());
    let mut possible = Vec::new();
    for entry in held.entries.values().filter(|entry| entry.kind == EntryKind::Membership) {
        if entry.lsn.index > committed {
            possible.push(membership.clone());
        }
        let change = MembershipChange::decode(entry.payload.clone());
        // One that its protocol refuses changes nothing.
        if let Some(next) = change.ok().and_then(|change| membership.after(&change).ok()) {
            membership = next;
        }
    }
    possible.push(membership);
    possible
}

/// Applies everything, by the rules of the protocol and of the replica.
fn replay<P: Protocol>(survey: &Survey, held: Durable, options: P::Options) -> Result<Replica<P, KvStore>> {
    let (machine, state) = match &held.snapshot {
        None => (KvStore::new(), ReplicaState::default()),
        Some(reference) => {
            let mut reader = survey.snapshots().stream(reference)?;
            // Large values stay there: the store may be larger than this machine's memory.
            let file = survey.snapshots().file(reference)?;
            let decoded = SnapshotContents::<KvStore>::decode_from_file(&mut reader, &file);
            reader.finish()?;
            decoded?
        }
    };
    if state.is_witness {
        bail!(
            "{} holds the snapshot of a witness, which votes and holds no data: give the directory of a member that holds data",
            survey.directory.display()
        );
    }
    let can = KvStore::VERSION_MAX;
    if state.version > can {
        bail!(
            "{} was computed by apply version {}, and this build can apply {can} at most: run the build that wrote it, or a newer one",
            survey.directory.display(),
            state.version
        );
    }
    let birth = Birth {
        cluster: Cluster {
            me: survey.peek.identity.node,
            membership: Arc::new(survey.peek.founding.clone()),
            timing: Timing::default(),
            // It is born to remember and not to lead.
            priority: Priority::Never,
            limits: Limits::default(),
            defect: None,
        },
        options,
        recovered: held,
        machine,
        blank: KvStore::new(),
        is_witness: false,
        state,
        incarnation: survey.peek.boots + 1,
        policy: Policy { entries_max: u64::MAX, bytes_max: u64::MAX, log_bytes_max: u64::MAX, ..Policy::default() },
        can,
    };
    let mut actions = Vec::new();
    let mut replica = Replica::<P, KvStore>::start(birth, &mut actions);
    // The first record (Paxos: the ballot of an entry that another directory held) is not written: nobody starts from it.
    while !actions.is_empty() {
        let mut written = None;
        for action in std::mem::take(&mut actions) {
            match action {
                Action::Stop { why } => bail!(why),
                Action::Persist(number, _) => written = Some(number),
                _ => {}
            }
        }
        if let Some(number) = written {
            replica.step(Event::Durable(number), &mut actions);
        }
    }
    Ok(replica)
}

impl Gathered {
    /// Voters that have no directory among these that keeps its word, by any membership that may be in force.
    pub(crate) fn absent(&self, surveys: &[&Survey]) -> Vec<(NodeId, String)> {
        let mut absent: Vec<(NodeId, String)> = Vec::new();
        for membership in &self.possible {
            for id in membership.all_voters().filter(|id| !is_present(*id, membership, surveys)) {
                if absent.iter().all(|(known, _)| *known != id) {
                    // As `--lost` takes it: a member without a name by its id in hex.
                    absent.push((id, known_name(membership, id).unwrap_or_else(|| format!("{:x}", id.0))));
                }
            }
        }
        absent
    }

    /// Whether those that are absent, and not known to be gone, can serve without the ones that are here.
    pub(crate) fn may_be_served_elsewhere(&self, surveys: &[&Survey], gone: &BTreeSet<NodeId>) -> bool {
        self.possible.iter().any(|membership| {
            let lives = |id: NodeId| !is_present(id, membership, surveys) && !gone.contains(&id);
            let living = membership.all_voters().filter(|id| lives(*id)).count();
            let voters = membership.voters.len();
            membership.verdict(|id| Some(lives(id))) == Verdict::Won
                || living >= self.quorums.accepts(voters).min(self.quorums.promises(voters))
        })
    }

    /// Whether those that are here could go on by themselves, as the cluster that they are.
    pub(crate) fn is_quorum_here(&self, surveys: &[&Survey]) -> bool {
        let is_won = |membership: &Membership| {
            membership.verdict(|id| Some(is_present(id, membership, surveys))) == Verdict::Won
        };
        self.possible.iter().all(is_won)
    }
}

/// Whether a member's directory is among these: the one that the cluster knows, where it knows one, with all that was acknowledged on it.
fn is_present(id: NodeId, membership: &Membership, surveys: &[&Survey]) -> bool {
    let known = membership.members.get(&id).and_then(|member| member.storage_incarnation);
    surveys.iter().any(|survey| {
        survey.peek.identity.node == id
            && known.is_none_or(|known| known == survey.peek.storage_incarnation)
            && keeps_its_word(survey, surveys)
    })
}

/// Whether nothing speaks against a directory holding all that its member acknowledged on it. A member that has
/// another is as good as lost: what it acknowledged since is not here, and the others refuse it.
pub(crate) fn keeps_its_word(survey: &Survey, surveys: &[&Survey]) -> bool {
    survey.refused_by_others.is_none() && more_remembered(survey, surveys).is_none()
}

/// The directory that remembers more batches of this one's log than it has, and how many: then it is an old copy.
pub(crate) fn more_remembered<'a>(survey: &Survey, surveys: &[&'a Survey]) -> Option<(&'a Survey, u64)> {
    let (id, storage) = (survey.peek.identity.node, survey.peek.storage_incarnation);
    let told = surveys.iter().flat_map(|other| other.positions.iter().map(|position| (*other, position)));
    let of_this = told.filter(|(_, position)| position.node == id && position.storage == storage);
    let more =
        of_this.map(|(other, position)| (other, position.batches)).filter(|(_, batches)| *batches > survey.batches);
    more.max_by_key(|(_, batches)| *batches)
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use hustings_core::replica::message::Position;
    use hustings_core::{Change, ClusterId, Member, Origin, Promise, Record, Stamp};
    use hustings_wal::{Identity, Options, RealDisk, Wal, peers};
    use std::path::PathBuf;
    use tempfile::TempDir;

    /// The data directory that a member of three left behind, after these records.
    fn directory(place: &TempDir, protocol: &str, node: u64, records: &[Record]) -> PathBuf {
        let path = place.path().join(format!("n{node}"));
        let founding = Membership::of_voters([1, 2, 3].map(NodeId));
        let identity = Identity { cluster_id: ClusterId(7), node: NodeId(node), protocol: protocol.into() };
        let disk = Arc::new(RealDisk::open(&path).expect("it is ours"));
        let (mut wal, _) = Wal::open(disk, &identity, &founding, Options::default()).expect("it is blank");
        records.iter().for_each(|record| wal.append(record).expect("no contradiction"));
        wal.sync().expect("there is room");
        path
    }

    fn put(term: u64, index: u64, payload: &str) -> Record {
        let payload = Bytes::copy_from_slice(payload.as_bytes());
        let (kind, origin) = (EntryKind::Command, Origin::NOBODY);
        Record::Put(Entry { lsn: Lsn::new(term, index), kind, origin, stamp: Stamp::NONE, payload })
    }

    fn promise(term: u64) -> Record {
        Record::Promise(Promise::without_vote(Term(term)))
    }

    fn gathered(paths: &[PathBuf]) -> Result<Gathered> {
        let of = |path: &PathBuf| Survey::of(path, KvStore::VERSION_MAX).expect("it is whole").expect("it is there");
        let surveys: Vec<Survey> = paths.iter().map(of).collect();
        gather(&surveys.iter().collect::<Vec<_>>())
    }

    #[test]
    fn the_later_term_wins_over_the_longer_log_where_slots_are_in_order() {
        // Goal: what a later leader replaced does not come back. Method: n1 has three entries of term 1, n2 the first of them and
        // one of term 2; ZAB alone asks first in which epoch a member was last synchronised.
        for protocol in ["raft", "gmt2000", "blazingmq", "zab"] {
            let place = tempfile::tempdir().expect("a directory");
            let long = [promise(2), put(1, 1, "a"), put(1, 2, "b"), put(1, 3, "c")];
            let late = [promise(2), put(1, 1, "a"), put(2, 2, "d"), Record::Committed(Lsn::new(1, 1))];
            let paths = [directory(&place, protocol, 1, &long), directory(&place, protocol, 2, &late)];
            let found = gathered(&paths).expect("they agree");
            assert_eq!((found.best, found.last, found.committed), (1, Lsn::new(2, 2), 1), "{protocol}");
            assert_eq!(found.dropped, [(0, Lsn::new(1, 2), 2)], "{protocol}");
            assert_eq!(found.term, Term(2), "{protocol}");
        }
    }

    #[test]
    fn zab_asks_for_the_epoch_before_the_zxid() {
        let place = tempfile::tempdir().expect("a directory");
        let long = [promise(3), Record::Established(Term(1)), put(1, 1, "a"), put(1, 2, "b")];
        let synchronised = [promise(3), put(1, 1, "a"), Record::Established(Term(3))];
        let paths = |protocol: &str, place: &TempDir| {
            [directory(place, protocol, 1, &long), directory(place, protocol, 2, &synchronised)]
        };
        assert_eq!(gathered(&paths("zab", &place)).expect("they agree").best, 1);
        let place = tempfile::tempdir().expect("a directory");
        assert_eq!(gathered(&paths("raft", &place)).expect("they agree").best, 0);
    }

    #[test]
    fn paxos_takes_each_slot_from_the_highest_ballot_and_passes_over_holes() {
        let place = tempfile::tempdir().expect("a directory");
        let (low, high) = (Term::packed(1, 1).0, Term::packed(2, 2).0);
        let one = [promise(high), put(low, 1, "a"), put(low, 2, "old"), put(low, 5, "e")];
        let other = [promise(high), put(low, 1, "a"), put(high, 2, "new"), put(high, 3, "c")];
        let paths = [directory(&place, "paxos", 1, &one), directory(&place, "paxos", 2, &other)];
        let found = gathered(&paths).expect("they agree");
        assert_eq!((found.last, &found.holes[..]), (Lsn::new(low, 5), &[4][..]));
        assert_eq!(found.dropped, [(0, Lsn::new(low, 2), 1)]);
    }

    #[test]
    fn a_disk_that_forgot_what_another_knows_to_be_committed_is_named() {
        for protocol in ["raft", "gmt2000", "blazingmq", "zab"] {
            let place = tempfile::tempdir().expect("a directory");
            let committed = [promise(3), put(1, 1, "a"), put(1, 2, "b"), Record::Committed(Lsn::new(1, 2)), promise(4)];
            let forgetful = [promise(3), put(3, 1, "z")];
            let paths = [directory(&place, protocol, 1, &committed), directory(&place, protocol, 2, &forgetful)];
            let said = gathered(&paths).err().expect("one of them lies").to_string();
            assert!(said.contains("n1 knows entry 1 to be committed") && said.contains("trust"), "{protocol}: {said}");
        }
    }

    #[test]
    fn directories_of_another_protocol_are_no_part_of_it() {
        let place = tempfile::tempdir().expect("a directory");
        let paths = [directory(&place, "raft", 1, &[promise(1)]), directory(&place, "zab", 2, &[promise(1)])];
        let remains = paths.map(|path| super::super::Remains { found: super::super::read(&path), path });
        let said = super::super::check(&remains).expect_err("they mean different things").to_string();
        assert!(said.contains("n1 belongs to protocol raft and") && said.contains("n2 to protocol zab"), "{said}");
    }

    #[test]
    fn whoever_may_have_become_a_voter_may_be_serving() {
        // Goal: a change that none of these disks knows to be committed may be in force elsewhere. Method: n4 and n5 were added
        // in the tail: with n3 they are a quorum of five, though n3 alone is none of three.
        let place = tempfile::tempdir().expect("a directory");
        let add = |index: u64, id: u64| {
            let member = Member { name: format!("n{id}"), ..Member::default() };
            let change = MembershipChange::of([Change::AddVoter(NodeId(id)), Change::Describe(NodeId(id), member)]);
            let (kind, origin) = (EntryKind::Membership, Origin::NOBODY);
            Record::Put(Entry { lsn: Lsn::new(1, index), kind, origin, stamp: Stamp::NONE, payload: change.to_bytes() })
        };
        let three = [promise(1), put(1, 1, "a")];
        let five = [promise(1), put(1, 1, "a"), add(2, 4), add(3, 5)];
        let paths = [directory(&place, "raft", 1, &three), directory(&place, "raft", 2, &three)];
        let open = |paths: &[PathBuf]| -> Vec<Survey> {
            let of =
                |path: &PathBuf| Survey::of(path, KvStore::VERSION_MAX).expect("it is whole").expect("it is there");
            paths.iter().map(of).collect()
        };
        let surveys = open(&paths);
        let surveys: Vec<&Survey> = surveys.iter().collect();
        let found = gather(&surveys).expect("they agree");
        assert!(!found.may_be_served_elsewhere(&surveys, &BTreeSet::new()), "n3 alone is no quorum");
        assert!(found.is_quorum_here(&surveys));

        let place = tempfile::tempdir().expect("a directory");
        let paths = [directory(&place, "raft", 1, &five), directory(&place, "raft", 2, &three)];
        let surveys = open(&paths);
        let surveys: Vec<&Survey> = surveys.iter().collect();
        let found = gather(&surveys).expect("they agree");
        let absent: Vec<String> = found.absent(&surveys).into_iter().map(|(_, name)| name).collect();
        assert_eq!(absent, ["n3", "n4", "n5"]);
        assert!(found.may_be_served_elsewhere(&surveys, &BTreeSet::new()));
        assert!(found.may_be_served_elsewhere(&surveys, &[NodeId(9)].into()));
        assert!(!found.may_be_served_elsewhere(&surveys, &[NodeId(4)].into()), "n3 and n5 are no quorum of five");
    }

    #[test]
    fn an_old_copy_is_no_directory_of_its_member() {
        // Goal: nobody is told that nothing is lost, or that a quorum is here, because of a disk that forgot what it had acknowledged.
        // Method: n1 and n2 of three; then others have refused n2's directory, or n1 remembers more of its log than it has.
        let read = |path: &PathBuf| Survey::of(path, KvStore::VERSION_MAX).expect("it is whole").expect("it is there");
        for how in ["whole", "refused", "remembered"] {
            let place = tempfile::tempdir().expect("a directory");
            let paths = [1, 2].map(|node| directory(&place, "raft", node, &[promise(1), put(1, 1, "a")]));
            let disk = |path: &PathBuf| RealDisk::open(path).expect("nobody lives there");
            let (peek, batches) = {
                let survey = read(&paths[1]);
                (survey.peek.clone(), survey.batches)
            };
            let position = |batches: u64| Position {
                node: peek.identity.node,
                storage: peek.storage_incarnation,
                boots: 1,
                process: 0,
                born_with: 0,
                batches,
            };
            match how {
                "refused" => peers::mark_rolled_back(&disk(&paths[1]), "it is older").expect("there is room"),
                "remembered" => peers::write_positions(&disk(&paths[0]), &[position(batches + 1)]).expect("room"),
                _ => peers::write_positions(&disk(&paths[0]), &[position(batches)]).expect("there is room"),
            }
            let surveys = paths.each_ref().map(read);
            let surveys: Vec<&Survey> = surveys.iter().collect();
            let found = gather(&surveys).expect("they agree");
            let absent: Vec<u64> = found.absent(&surveys).iter().map(|(id, _)| id.0).collect();
            let is_whole = how == "whole";
            assert_eq!(absent, if is_whole { vec![3] } else { vec![2, 3] }, "{how}");
            assert_eq!(found.is_quorum_here(&surveys), is_whole, "{how}");
            assert_eq!(found.may_be_served_elsewhere(&surveys, &BTreeSet::new()), !is_whole, "{how}");
            assert!(!found.may_be_served_elsewhere(&surveys, &[NodeId(3)].into()), "{how}: n2 alone is no quorum");
        }
    }
}
