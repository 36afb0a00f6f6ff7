//! Goal: no bytes make a reader panic (BI-01, BI-03, BI-06). Method: the targets of `fuzz/`, over the corpus that is kept there and
//! over a few hundred changes of each file; equal builds make equal changes.

#[path = "../../../fuzz/targets.rs"]
mod targets;

use bytes::Bytes;
use hustings_core::replica::applied_requests::settled;
use hustings_core::wire::EntryShape;
use hustings_core::{Change, Entry, EntryKind, Lsn, MembershipChange, NodeId, Origin, Role, Stamp, Term, Wire as _};
use hustings_kv::{
    Accounts, AccountsChange, AuthEnable, Caller, Command, Named, Permission, Put, RolePermission, UserPassword,
    UserRole,
};
use hustings_protocols::{Subject, visit};
use prost::Message as _;
use std::collections::BTreeMap;
use std::path::Path;

/// Numbers that look drawn, and are the same in each run.
struct Numbers(u64);

impl Numbers {
    /// A number below this one.
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % end.max(1)
    }
}

/// Number of changes of each file.
const CHANGES: usize = 300;

/// A file with one to four changes: bits, bytes, pieces that go, come twice, or come from another file.
fn changed(file: &[u8], other: &[u8], numbers: &mut Numbers) -> Vec<u8> {
    let mut bytes = file.to_vec();
    for _ in 0..=numbers.below(4) {
        let at = numbers.below(bytes.len());
        match numbers.below(6) {
            _ if bytes.is_empty() => bytes.extend_from_slice(other),
            0 => bytes[at] ^= 1 << numbers.below(8),
            1 => bytes[at] = [0, 1, 0x7f, 0x80, 0xff][numbers.below(5)],
            2 => bytes.truncate(at),
            3 => drop(bytes.drain(at..(at + 1 + numbers.below(8)).min(bytes.len()))),
            4 => {
                let piece = bytes[at..(at + 1 + numbers.below(16)).min(bytes.len())].to_vec();
                bytes.splice(at..at, piece);
            }
            _ => {
                let from = numbers.below(other.len());
                let piece = other[from..(from + 1 + numbers.below(32)).min(other.len())].to_vec();
                bytes.splice(at..at, piece);
            }
        }
    }
    bytes
}

/// Runs a target over its corpus; gives how often it ran.
fn run(name: &str, target: fn(&[u8])) -> usize {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(name);
    let entries = std::fs::read_dir(&folder).expect("the corpus is in the repository").flatten();
    let corpus: BTreeMap<String, Vec<u8>> = entries
        .map(|entry| {
            (entry.file_name().to_string_lossy().into_owned(), std::fs::read(entry.path()).expect("it is read"))
        })
        .collect();
    assert!(corpus.len() >= 5, "the corpus of {name} has only {} files", corpus.len());
    let files: Vec<&Vec<u8>> = corpus.values().collect();
    let mut numbers = Numbers(corpus.len() as u64);
    for file in &files {
        target(file);
        for _ in 0..CHANGES {
            let bytes = changed(file, files[numbers.below(files.len())], &mut numbers);
            let ended = std::panic::catch_unwind(|| target(&bytes));
            if ended.is_err() {
                let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
                panic!("`{name}` panicked over these bytes; keep them in {}: {hex}", folder.display());
            }
        }
    }
    files.len() * (CHANGES + 1)
}

#[test]
fn messages_of_strangers_end_nobody() {
    assert!(run("messages", targets::messages) > 5_000);
}

#[test]
fn commands_that_nobody_wrote_are_refused() {
    assert!(run("commands", targets::commands) > 3_000);
}

#[test]
fn entries_that_nobody_wrote_are_applied_or_refused() {
    assert!(run("entries", targets::entries) > 3_000);
}

#[test]
fn a_damaged_database_is_refused_or_read() {
    assert!(run("bolt", targets::bolt) > 1_500);
}

#[test]
fn a_body_that_is_no_json_is_refused() {
    assert!(run("json", targets::json) > 1_500);
}

#[test]
fn a_script_that_is_damaged_is_refused_or_read() {
    assert!(run("scripts", targets::scripts) > 1_500);
}

#[test]
fn a_recording_that_is_damaged_is_told_and_replayed_as_far_as_it_goes() {
    assert!(run("recordings", targets::recordings) > 1_500);
}

#[test]
fn changes_are_many_and_the_same_each_time() {
    let made = |seed| {
        let mut numbers = Numbers(seed);
        (0..100).map(|_| changed(b"0123456789", b"abcdefghij", &mut numbers)).collect::<Vec<_>>()
    };
    assert_eq!(made(1), made(1));
    assert!(made(1).iter().collect::<std::collections::BTreeSet<_>>().len() > 80);
}

/// Entries that a log may hold, beside commands: what origins, members and the host itself say.
fn entries_of_a_log() -> BTreeMap<&'static str, Vec<Entry>> {
    let entry = |kind, sequence, micros, payload: &[u8]| Entry {
        kind,
        origin: Origin { node: NodeId(1), incarnation: 1, sequence },
        stamp: Stamp { term: Term(1), micros },
        payload: Bytes::copy_from_slice(payload),
        ..Entry::blank(Lsn::new(1, 1))
    };
    let put = Command::Put(Put { key: "k".into(), value: "v".into(), ..Put::default() }).to_payload();
    let joins = |change: Change| MembershipChange::of([change]).to_bytes();
    let raise = b"raise-version-1\0\x03\0\0\0\x01\0\0\0\0\0\0\0";
    let writes = |numbers: &[u64]| {
        numbers.iter().map(|at| entry(EntryKind::Command, *at, at.saturating_mul(1_000), &put)).collect()
    };
    BTreeMap::from([
        ("writes", writes(&[1, 2, 2, 5, 70_000, u64::MAX])),
        (
            "settled",
            vec![
                entry(EntryKind::Command, 9, 1, &put),
                entry(EntryKind::Blank, 0, 2, &settled(8)),
                entry(EntryKind::Blank, 0, u64::MAX, &settled(u64::MAX)),
            ],
        ),
        (
            "members",
            vec![
                entry(EntryKind::Membership, 1, 1, &joins(Change::AddLearner(NodeId(2)))),
                entry(EntryKind::Membership, 2, 2, &joins(Change::AddVoter(NodeId(2)))),
                entry(EntryKind::Membership, 3, 3, &joins(Change::Remove(NodeId(1)))),
            ],
        ),
        (
            "version",
            vec![
                Entry { payload: Bytes::copy_from_slice(raise), ..Entry::blank(Lsn::new(1, 1)) },
                entry(EntryKind::Command, 1, 1_000_000, &put),
            ],
        ),
        ("of-the-protocol", vec![entry(EntryKind::Protocol, 1, 5, b"x"), entry(EntryKind::Command, 1, 4, &put)]),
    ])
}

/// A file of pieces, as targets read them.
fn of_pieces(pieces: impl IntoIterator<Item = Vec<u8>>) -> Vec<u8> {
    let length = |piece: &[u8]| u16::try_from(piece.len()).expect("pieces are short").to_le_bytes();
    pieces.into_iter().flat_map(|piece| [&length(&piece)[..], &piece].concat()).collect()
}

/// Goal: nothing that `apply` computes is left out of the corpus. Method: files of entries for each protocol, and commands of users with and
/// without a caller, are made here and must be in the repository; `HUSTINGS_CORPUS=write` writes them.
#[test]
fn the_corpus_has_what_a_log_may_hold() {
    let mut files: BTreeMap<String, Vec<u8>> = BTreeMap::new();
    for (at, protocol) in (0..).zip(hustings_protocols::NAMES) {
        for (name, entries) in entries_of_a_log() {
            let pieces = of_pieces(entries.iter().map(|entry| EntryShape::from(entry).encode_to_vec()));
            let file = [vec![at], pieces].concat();
            assert_eq!(targets::entries_of(&file[1..]), entries, "the target reads all of {protocol}-{name}");
            files.insert(format!("entries/{protocol}-{name}"), file);
        }
    }
    let user = UserPassword { name: "root".into(), hash: "h".into(), no_password: false };
    let both = UserRole { user: "root".into(), role: "root".into() };
    let permission = Permission { kind: 2, key: "a".into(), range_end: "c".into() };
    let changes = [
        AccountsChange::UserAdd(user),
        AccountsChange::RoleAdd(Named { name: "root".into() }),
        AccountsChange::RoleGrant(RolePermission { role: "root".into(), permission: Some(permission) }),
        AccountsChange::UserGrantRole(both),
        AccountsChange::Enable(AuthEnable { token_key: "secret".into() }),
    ];
    let accounts = changes.map(|change| Command::Accounts(Accounts { change: Some(change) }));
    let put = Command::Put(Put { key: "b".into(), value: "v".into(), ..Put::default() });
    let callers = [None, Some(Caller::member()), Some(Caller { user: "root".into(), proven_at: 5, is_member: false })];
    let puts = callers.iter().map(|caller| put.to_payload_by(caller.as_ref()).to_vec());
    files.insert("commands/Accounts".into(), of_pieces(accounts.iter().map(|it| it.to_payload().to_vec()).chain(puts)));

    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus");
    for (name, bytes) in files {
        let path = folder.join(&name);
        if std::env::var("HUSTINGS_CORPUS").is_ok_and(|word| word == "write") {
            std::fs::create_dir_all(path.parent().expect("a folder")).expect("it is made");
            std::fs::write(&path, &bytes).expect("it is written");
        }
        let held = std::fs::read(&path).unwrap_or_default();
        assert_eq!(held, bytes, "{name}: `HUSTINGS_CORPUS=write cargo test -p hustings --test corpus` writes it");
    }
}

/// Goal: the target does apply what it is given. Method: entries of clients under each protocol, all of which are committed by a member alone.
#[test]
fn a_single_member_applies_what_its_log_holds() {
    for name in hustings_protocols::NAMES {
        let written = entries_of_a_log().remove("writes").expect("it is there");
        let count = written.len() as u64;
        let status = visit(&Subject::named(name), targets::Living(written)).expect("the list has this name");
        assert_eq!(status.role, Role::Leader, "{name}");
        assert!(status.commit >= count, "{name}: {} of {count} are committed", status.commit);
    }
}
