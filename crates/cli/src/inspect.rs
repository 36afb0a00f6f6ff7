//! `hustings inspect`: what stands in a data directory, whether it is whole, and what a node would recover from it.
//!
//! Reads beside a node that lives there and changes nothing; while one does, its last batch may be seen half written.
//! Deliberately absent: repair. A damaged directory is moved away and its node rejoins as a new member.

use crate::exit::{Code, Exit};
use crate::output::{Format, format_of, json_bytes, not_found, output_argument, table};
use anyhow::Result;
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use hustings_core::{Durable, Entry, Lsn, Membership, Promise, Record, SnapshotReference};
use hustings_wal::{Inspection, Peek};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

/// The command line of `inspect`.
pub(crate) fn command() -> Command {
    Command::new("inspect")
        .about("Look into a data directory; exit code 1 when it is damaged, or other members refused it")
        .arg(
            Arg::new("data-dir")
                .required(true)
                .value_name("DATA-DIR")
                .value_parser(value_parser!(PathBuf))
                .help("The directory"),
        )
        .arg(Arg::new("records").long("records").action(ArgAction::SetTrue).help("List every record"))
        .arg(output_argument())
}

/// Runs `hustings inspect` on a data directory.
pub(crate) fn run(matches: &ArgMatches) -> Result<()> {
    let directory = matches.get_one::<PathBuf>("data-dir").expect("clap requires it");
    let with_records = matches.get_flag("records");
    let mut found = Found::default();
    for inspection in hustings_wal::inspect(directory)? {
        found.take(inspection, with_records);
    }
    found.tell_needed_from_unneeded();
    found.name_what_is_missing(directory);
    if found.is_empty() {
        let members = crate::serve::members_in(directory);
        let what = match members.first() {
            None => "it is absent or empty".to_owned(),
            Some(_) => format!("those in it do ({}): give one of them", members.join(", ")),
        };
        return Err(not_found(format!("{} holds no node: {what}", directory.display())));
    }
    match format_of(matches) {
        Format::Json => println!("{}", found.to_json(directory)),
        Format::Table => found.print(directory),
    }
    if found.damage.is_empty() {
        let Some(why) = &found.rolled_back else { return Ok(()) };
        let what = format!("{} is whole, and no member starts on it: other members refused it", directory.display());
        return Err(Exit::with(Code::Failed, format!("{what}: {why}")));
    }
    let what = format!(
        "{} is damaged in {} {}: move it away, remove the member and add it again",
        directory.display(),
        found.damage.len(),
        if found.damage.len() == 1 { "place" } else { "places" }
    );
    Err(Exit::with(Code::Failed, what))
}

/// The counts of one segment.
#[derive(Default)]
struct SegmentSummary {
    file: String,
    sequence: u64,
    bytes: u64,
    batches: u64,
    records: u64,
    first_index: Option<u64>,
    last_index: Option<u64>,
    torn_bytes: u64,
    blank_bytes: u64,
    /// Each with its batch; only when asked for.
    listed: Vec<(u64, Record)>,
}

/// Everything found, in order.
#[derive(Default)]
struct Found {
    meta: Option<Peek>,
    segments: Vec<SegmentSummary>,
    snapshots: Vec<(String, SnapshotReference)>,
    others: Vec<String>,
    damage: Vec<String>,
    /// Snapshots that are damaged: path, place and checksum that their names say, and the damage.
    damaged_snapshots: Vec<(String, Lsn, u32, String)>,
    /// Of those, the paths of the ones that no node which starts here reads.
    damaged_and_unneeded: Vec<String>,
    /// The reason why other members refused the directory.
    rolled_back: Option<String>,
    verdict: Option<Durable>,
    batch: u64,
}

impl Found {
    fn is_empty(&self) -> bool {
        self.meta.is_none()
            && self.segments.is_empty()
            && self.snapshots.is_empty()
            && self.damage.is_empty()
            && self.damaged_and_unneeded.is_empty()
    }

    /// Damage of a snapshot counts where the log refers to it, and where nobody can say whether it does.
    fn tell_needed_from_unneeded(&mut self) {
        for (file, lsn, digest, what) in std::mem::take(&mut self.damaged_snapshots) {
            let needed = self.verdict.as_ref().map(|durable| durable.snapshot.as_ref());
            let is_needed = needed.is_none_or(|needed| needed.is_some_and(|it| (it.lsn, it.digest) == (lsn, digest)));
            if is_needed {
                self.damage.push(what);
            } else {
                self.damaged_and_unneeded.push(file);
            }
        }
    }

    /// Files that are not there and without which `serve` does not start, as it names them.
    fn name_what_is_missing(&mut self, directory: &Path) {
        let of = |name: &str| directory.join(name).display().to_string();
        let has_some = !self.segments.is_empty() || !self.snapshots.is_empty();
        if self.meta.is_none() && has_some && self.damage.is_empty() {
            self.damage.push(format!("{} is missing, and files of a member stand beside it", of("meta")));
        }
        let needed = self.verdict.as_ref().and_then(|durable| durable.snapshot.as_ref());
        let Some((needed, peek)) = needed.zip(self.meta.as_ref()) else { return };
        // A witness has no state to keep.
        let is_witness = needed.membership.is_witness(peek.identity.node);
        let is_there = self.snapshots.iter().any(|(_, there)| (there.lsn, there.digest) == (needed.lsn, needed.digest));
        let name = hustings_wal::snapshot_file::name(needed.lsn, needed.digest);
        if !is_witness && !is_there && !self.damage.iter().any(|damage| damage.contains(&name)) {
            self.damage.push(format!("{} is missing, and the log begins behind it", of(&name)));
        }
    }

    fn take(&mut self, inspection: Inspection, with_records: bool) {
        if let Inspection::Batch { number, .. } = &inspection {
            self.batch = *number;
        }
        match (inspection, self.segments.last_mut()) {
            (Inspection::Meta(peek), _) => self.meta = Some(peek),
            (Inspection::Segment { file, header }, _) => {
                let (sequence, bytes) = (header.sequence, header.bytes);
                self.segments.push(SegmentSummary { file, sequence, bytes, ..SegmentSummary::default() });
            }
            (Inspection::Batch { .. }, Some(segment)) => segment.batches += 1,
            (Inspection::Record { record, .. }, Some(segment)) => {
                segment.records += 1;
                if let Record::Put(entry) = &record {
                    let index = entry.lsn.index;
                    segment.first_index = Some(segment.first_index.map_or(index, |first| first.min(index)));
                    segment.last_index = segment.last_index.max(Some(index));
                }
                if with_records {
                    segment.listed.push((self.batch, record));
                }
            }
            (Inspection::Torn { bytes, .. }, Some(segment)) => segment.torn_bytes += bytes,
            (Inspection::Blank { bytes, .. }, Some(segment)) => segment.blank_bytes += bytes,
            (Inspection::Snapshot { file, reference }, _) => self.snapshots.push((file, reference)),
            (Inspection::RolledBack { why }, _) => self.rolled_back = Some(why),
            (Inspection::Other { file }, _) => self.others.push(file),
            (Inspection::Bad(error), _) => self.damage.push(error.to_string()),
            (Inspection::DamagedSnapshot { file, lsn, digest, error }, _) => {
                self.damaged_snapshots.push((file, lsn, digest, error.to_string()));
            }
            (Inspection::Verdict(durable), _) => self.verdict = Some(*durable),
            // Nothing stands in a segment before the segment itself.
            (
                Inspection::Batch { .. }
                | Inspection::Record { .. }
                | Inspection::Torn { .. }
                | Inspection::Blank { .. },
                None,
            ) => {}
        }
    }

    fn to_json(&self, directory: &Path) -> Value {
        let segment = |segment: &SegmentSummary| {
            let mut value = json!({
                "file": segment.file,
                "sequence": segment.sequence,
                "bytes": segment.bytes,
                "batches": segment.batches,
                "records": segment.records,
                "first_index": segment.first_index,
                "last_index": segment.last_index,
                "torn_bytes": segment.torn_bytes,
                "blank_bytes": segment.blank_bytes,
            });
            if !segment.listed.is_empty() {
                let listed = segment.listed.iter().map(|(batch, record)| record_json(*batch, record));
                value["listed"] = listed.collect();
            }
            value
        };
        json!({
            "apiVersion": "v1", "kind": "Inspection",
            "directory": directory.display().to_string(),
            "damaged": !self.damage.is_empty(),
            "meta": self.meta.as_ref().map(meta_json),
            "segments": self.segments.iter().map(segment).collect::<Vec<_>>(),
            "snapshots": self.snapshots.iter().map(|(file, reference)| snapshot_json(file, reference)).collect::<Vec<_>>(),
            "other_files": self.others,
            "damage": self.damage,
            "damaged_and_unneeded": self.damaged_and_unneeded,
            "recovered": self.verdict.as_ref().map(verdict_json),
            "rolled_back": self.rolled_back,
        })
    }

    fn print(&self, directory: &Path) {
        println!("{}", directory.display());
        if let Some(Peek { identity, founding, storage_incarnation, boots, version }) = &self.meta {
            let me = founding.name_of(identity.node);
            println!("  member      {me} ({}) of cluster {}", identity.node, identity.cluster_id);
            println!("  protocol    {}", identity.protocol);
            println!("  storage     {storage_incarnation:016x}, opened {boots} times, needs apply version {version}");
            println!("  founded by  {founding}");
        }
        let or_dash = |index: Option<u64>| index.map_or("-".to_string(), |index| index.to_string());
        let row = |segment: &SegmentSummary| {
            vec![
                file_name(&segment.file),
                segment.bytes.to_string(),
                segment.batches.to_string(),
                segment.records.to_string(),
                or_dash(segment.first_index),
                or_dash(segment.last_index),
                segment.torn_bytes.to_string(),
            ]
        };
        let columns = ["segment", "bytes", "batches", "records", "first", "last", "torn bytes"];
        println!("{}", table(&columns, self.segments.iter().map(row).collect()));
        for (batch, record) in self.segments.iter().flat_map(|segment| &segment.listed) {
            println!("  batch {batch}  {}", record_text(record));
        }
        for (file, reference) in &self.snapshots {
            println!(
                "  snapshot    {} through {}, {} bytes, {}",
                file_name(file),
                reference.lsn,
                reference.bytes,
                reference.membership
            );
        }
        for file in &self.others {
            println!("  other file  {}", file_name(file));
        }
        if let Some(durable) = &self.verdict {
            println!("  recovers    {}", verdict_text(durable));
        }
        for file in &self.damaged_and_unneeded {
            println!(
                "  not needed  {} is damaged, and the log does not refer to it: it may be deleted",
                file_name(file)
            );
        }
        if let Some(why) = &self.rolled_back {
            println!("  REFUSED     by other members: {why}");
        }
        for damage in &self.damage {
            println!("  DAMAGE      {damage}");
        }
    }
}

fn file_name(location: &str) -> String {
    Path::new(location).file_name().map_or_else(|| location.to_string(), |name| name.to_string_lossy().into_owned())
}

fn membership_json(membership: &Membership) -> Value {
    let member = |(id, member): (&hustings_core::NodeId, &hustings_core::Member)| json!({ "id": id.0, "name": member.name, "peer_urls": member.peer_urls, "votes": membership.is_voter(*id) });
    membership.members.iter().map(member).collect()
}

fn meta_json(peek: &Peek) -> Value {
    json!({
        "cluster_id": peek.identity.cluster_id.to_string(),
        "node": peek.identity.node.0,
        "name": peek.founding.name_of(peek.identity.node),
        "protocol": peek.identity.protocol,
        "founding": membership_json(&peek.founding),
        "storage_incarnation": format!("{:016x}", peek.storage_incarnation),
        "boots": peek.boots,
        "apply_version": peek.version.0,
    })
}

fn snapshot_json(file: &str, reference: &SnapshotReference) -> Value {
    json!({
        "file": file,
        "lsn": reference.lsn.to_string(),
        "bytes": reference.bytes,
        "digest": format!("{:08x}", reference.digest),
        "membership": membership_json(&reference.membership),
    })
}

fn verdict_json(durable: &Durable) -> Value {
    json!({
        "term": durable.promise.term.0,
        "vote": durable.promise.vote.map(|vote| vote.0),
        "snapshot": durable.snapshot.as_ref().map(|reference| reference.lsn.to_string()),
        "entries": durable.entries.len(),
        "first_index": durable.entries.keys().next(),
        "last_index": durable.entries.keys().next_back(),
        "committed": durable.committed.to_string(),
    })
}

fn verdict_text(durable: &Durable) -> String {
    let snapshot =
        durable.snapshot.as_ref().map_or("no snapshot".to_string(), |reference| format!("snapshot {}", reference.lsn));
    let entries = match (durable.entries.first_key_value(), durable.entries.last_key_value()) {
        (Some((_, first)), Some((_, last))) => {
            format!("{} entries {} to {}", durable.entries.len(), first.lsn, last.lsn)
        }
        _ => "no entries".to_string(),
    };
    format!("{}, {snapshot}, {entries}, committed {}", promise_text(durable.promise), durable.committed)
}

fn promise_text(promise: Promise) -> String {
    match promise.vote {
        Some(vote) => format!("term {} with a vote for {vote}", promise.term),
        None => format!("term {}", promise.term),
    }
}

fn entry_text(entry: &Entry) -> String {
    let Entry { lsn, kind, origin, payload, .. } = entry;
    format!(
        "put         {lsn} {kind:?}, {} bytes, from {} life {} number {}",
        payload.len(),
        origin.node,
        origin.incarnation,
        origin.sequence
    )
}

fn record_text(record: &Record) -> String {
    match record {
        Record::Promise(promise) => format!("promise     {}", promise_text(*promise)),
        Record::Established(term) => format!("established {term}"),
        Record::Put(entry) => entry_text(entry),
        Record::TruncateFrom(index) => format!("truncate    from {index}"),
        Record::Snapshot(reference) => format!("snapshot    through {}, {} bytes", reference.lsn, reference.bytes),
        Record::Committed(lsn) => format!("committed   {lsn}"),
    }
}

fn record_json(batch: u64, record: &Record) -> Value {
    let mut value = match record {
        Record::Promise(Promise { term, vote }) => {
            json!({ "record": "promise", "term": term.0, "vote": vote.map(|vote| vote.0) })
        }
        Record::Established(term) => json!({ "record": "established", "term": term.0 }),
        Record::Put(entry) => json!({
            "record": "put",
            "lsn": entry.lsn.to_string(),
            "kind": format!("{:?}", entry.kind).to_lowercase(),
            "origin": { "node": entry.origin.node.0, "incarnation": entry.origin.incarnation, "sequence": entry.origin.sequence },
            "stamp_micros": entry.stamp.micros,
            "payload": json_bytes(&entry.payload),
        }),
        Record::TruncateFrom(index) => json!({ "record": "truncate", "from": index }),
        Record::Snapshot(reference) => {
            json!({ "record": "snapshot", "lsn": reference.lsn.to_string(), "bytes": reference.bytes })
        }
        Record::Committed(lsn) => json!({ "record": "committed", "lsn": lsn.to_string() }),
    };
    value["batch"] = json!(batch);
    value
}
