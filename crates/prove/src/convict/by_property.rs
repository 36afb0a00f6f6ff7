//! `hustings convict --by-property`: whether each property can fall under a protocol, and which planted defects make it fall.
//!
//! A judge that never convicts by a property has not shown that it looks. Each defect is planted for a while, searches go on
//! after a finding, and what fell is gathered. One property hides another: a second vote is convicted before it makes a second
//! leader. So every other run asks nothing of votes.

use super::processor_time;
use hustings_core::Protocol;
use hustings_kv::KvStore;
use hustings_protocols::{self as protocols, Subject, Visit};
use hustings_world::guided::Search;
use hustings_world::{JUDGED, Plants};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// Properties of some protocols alone: of the primaries of partitions; of who says whose disks hold its history; of who commits by
/// counting what is held, and would say so when it has not; and of leaders whose log is filled in order.
const OF_SOME: [(&str, &[&str]); 4] = [
    ("one-primary-per-lease", &["blazingmq"]),
    ("history-is-durable", &["zab"]),
    ("commits-what-is-held", &["raft", "gmt2000", "blazingmq", "zab"]),
    ("leader-appends-only", &["raft", "gmt2000", "blazingmq", "zab"]),
];

/// The properties that can fall under a protocol, each with the defects that make it fall.
pub(super) struct Matrix {
    protocol: String,
    shown_by: BTreeMap<&'static str, BTreeSet<String>>,
}

/// The properties that are judged under a protocol.
fn judged(protocol: &str) -> BTreeSet<&'static str> {
    let of_some = OF_SOME.into_iter().filter(|(_, protocols)| protocols.contains(&protocol));
    let of_all = JUDGED.into_iter().map(|(property, _)| property);
    of_all.chain(of_some.map(|(property, _)| property)).collect()
}

/// All that can be planted: in the protocol, in what all share, in hosts and stores, and in an application's candidates.
fn all_plants(protocol: &str) -> Vec<String> {
    let of_all = crate::plants_of(protocol).into_iter().map(str::to_owned);
    of_all.chain(crate::plants_of_candidates()).collect()
}

/// Plants each defect for so much processor time.
///
/// # Errors
/// The protocol is not known.
pub(super) fn gather(subject: &Subject, nodes: u64, budget: Duration, jobs: usize) -> anyhow::Result<Matrix> {
    let defects = all_plants(&subject.protocol);
    let (next, found) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let work = || {
        while let Some(defect) = defects.get(next.fetch_add(1, Ordering::Relaxed)) {
            let planted = Subject { plant: Some(defect.clone()), ..subject.clone() };
            let fell = protocols::visit(&planted, Gathering { subject: &planted, nodes, budget });
            found.lock().expect("nobody panics while holding it").push((defect.clone(), fell));
        }
    };
    std::thread::scope(|scope| (0..jobs).for_each(|_| drop(scope.spawn(work))));
    let mut shown_by: BTreeMap<&'static str, BTreeSet<String>> = BTreeMap::new();
    for (defect, fell) in found.into_inner().expect("every thread has ended well") {
        for property in fell? {
            shown_by.entry(property).or_default().insert(defect.clone());
        }
    }
    Ok(Matrix { protocol: subject.protocol.clone(), shown_by })
}

struct Gathering<'a> {
    subject: &'a Subject,
    nodes: u64,
    budget: Duration,
}

impl Gathering<'_> {
    fn with<P: Protocol>(self, options: &P::Options) -> BTreeSet<&'static str> {
        let plants = self.subject.plant.as_deref().and_then(Plants::named).unwrap_or_default();
        // The second asks nothing of votes, so that what they lead to is seen.
        let mut searches = [1, 2].map(|seed| Search::new(seed, self.nodes, super::GUIDED_SAFETY));
        searches[1].are_votes_promises = false;
        let (begun, mut fell) = (processor_time(), BTreeSet::new());
        while processor_time().saturating_sub(begun) < self.budget {
            for search in &mut searches {
                let (plan, report) = search.step::<P, KvStore>(options, plants);
                let fallen = report.violation.map(|(_, violation)| violation.property);
                // What falls where nothing is planted shows nothing of the defect.
                if let Some(property) = fallen
                    && !fell.contains(property)
                    && super::falls_soundly(self.subject, &plan).is_none()
                {
                    fell.insert(property);
                }
            }
        }
        fell
    }
}

impl Visit for Gathering<'_> {
    type Out = BTreeSet<&'static str>;

    fn visit<P: Protocol>(self, options: P::Options) -> BTreeSet<&'static str> {
        self.with::<P>(&options)
    }
}

impl Matrix {
    /// The properties that no defect made fall.
    pub(super) fn missing(&self) -> Vec<&'static str> {
        judged(&self.protocol).into_iter().filter(|property| !self.shown_by.contains_key(property)).collect()
    }

    pub(super) fn markdown(&self) -> String {
        let mut told = format!("| Property | falls under {} with |\n|---|---|\n", self.protocol);
        for property in judged(&self.protocol) {
            let by: Vec<String> =
                self.shown_by.get(property).into_iter().flatten().map(|name| format!("`{name}`")).collect();
            let (first, rest) = by.split_at(by.len().min(3));
            let more = if rest.is_empty() { String::new() } else { format!(", and {} more", rest.len()) };
            let shown = if first.is_empty() { "nothing that was planted".to_owned() } else { first.join(", ") + &more };
            told += &format!("| `{property}` | {shown} |\n");
        }
        told
    }

    pub(super) fn json(&self) -> serde_json::Value {
        serde_json::json!({
            "apiVersion": "v1", "kind": "ConvictionByProperty", "protocol": self.protocol,
            "properties": self.shown_by, "missing": self.missing(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    /// Judged by others than a run of a seed: traces of every possibility, regions, scripts, members that judge themselves, and
    /// the model of stores in the election's own crate.
    const ELSEWHERE: [&str; 8] = [
        "bounds",
        "eventually-serves",
        "expectation",
        "liveness",
        "no-fault-no-change",
        // Of disks that are rolled back, and none is in the simulator: real ones are in the node's tests.
        "one-history",
        "priority",
        "wire-round-trip",
    ];

    fn sources(folder: &Path, into: &mut String) {
        for entry in std::fs::read_dir(folder).expect("a folder of sources").flatten() {
            let path = entry.path();
            match path.is_dir() {
                true => sources(&path, into),
                false => into.push_str(&std::fs::read_to_string(&path).expect("a source file")),
            }
        }
    }

    /// Goal: no property is forgotten here when one is added. Method: the names in the sources of the judges.
    #[test]
    fn every_property_that_is_judged_is_looked_for() {
        let mut text = String::new();
        for krate in ["properties", "world"] {
            sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(krate).join("src"), &mut text);
        }
        let named = text.split("Violation::of(").skip(1).filter_map(|after| {
            let name = after.trim_start().strip_prefix('"')?;
            name.split_once('"').map(|(name, _)| name)
        });
        let named: BTreeSet<&str> = named.collect();
        assert!(named.len() > 20, "{named:?}");
        let of_some = OF_SOME.into_iter().map(|(property, _)| property);
        let of_all = JUDGED.into_iter().map(|(property, _)| property);
        let known: BTreeSet<&str> = of_all.chain(of_some).chain(ELSEWHERE).collect();
        let forgotten: Vec<&&str> = named.difference(&known).collect();
        assert!(
            forgotten.is_empty(),
            "add {forgotten:?} to `hustings_world::JUDGED`, to OF_SOME, or to ELSEWHERE with the reason"
        );
    }

    /// Goal: a property that nothing shows is said. Method: a matrix with one of them.
    #[test]
    fn a_property_that_nothing_shows_is_missing() {
        let shown_by = BTreeMap::from([("linearizable", BTreeSet::from(["moody-apply".to_owned()]))]);
        let matrix = Matrix { protocol: "raft".into(), shown_by };
        let told = matrix.markdown();
        assert!(told.contains("| `linearizable` | `moody-apply` |"), "{told}");
        assert!(told.contains("| `fenced` | nothing that was planted |"), "{told}");
        assert_eq!(matrix.missing().len(), judged("raft").len() - 1);
        let primaries = "one-primary-per-lease";
        assert!(judged("blazingmq").contains(primaries) && !judged("raft").contains(primaries));
    }
}
